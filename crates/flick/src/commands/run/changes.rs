//! Description of what a reload has changed: services, their programs and settings, listening addresses.
//! Promises: a service that is not named serves with the same program and settings as before.
//! Not here: settings that take effect at the next start (`generations.rs`).

use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};

use flick_runtime::Platform;

use super::prepare::Prepared;
use crate::settings::Settings;

/// The program and the settings of a service, to compare them.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceSummary {
    name: String,
    /// Hash of its code.
    code: u64,
    /// Names of groups of settings, and their values as text.
    settings: [(&'static str, String); 3],
}

impl ServiceSummary {
    /// The services that are about to start.
    pub fn of(prepared: &Prepared) -> Vec<Self> {
        let services = prepared.services.iter().zip(&prepared.modules);
        let summary = services.map(|(service, module)| {
            let own = &prepared.settings.programs[service.group];
            let mut code = HashWriter(DefaultHasher::new());
            write!(code, "{module:?}{:?}", own.engine).expect("hashing does not fail");
            Self {
                name: service.name.clone(),
                code: code.0.finish(),
                settings: [
                    ("limits", format!("{:?}", own.limits)),
                    ("timeouts", format!("{:?}", own.timeouts)),
                    ("backends", format!("{:?}", service.config.connect)),
                ],
            }
        });
        summary.collect()
    }

    /// Describes how a service differs from its earlier state; `None`: not at all.
    fn changed_since(&self, before: &Self) -> Option<String> {
        let program = (self.code != before.code).then_some("program");
        let settings = self.settings.iter().zip(&before.settings);
        let settings = settings.filter(|(now, before)| now != before).map(|((name, _), _)| *name);
        let parts: Vec<&str> = program.into_iter().chain(settings).collect();
        (!parts.is_empty()).then(|| format!("`{}`: {} changed", self.name, parts.join(", ")))
    }
}

/// Hashes a text without storing it.
struct HashWriter(DefaultHasher);

impl Write for HashWriter {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Describes how services differ from those before.
pub fn of_services(before: &[ServiceSummary], after: &[ServiceSummary]) -> Vec<String> {
    let known = |all: &[ServiceSummary], name: &str| all.iter().any(|service| service.name == name);
    let new = after.iter().filter(|service| !known(before, &service.name));
    let new = new.map(|service| format!("`{}` is new", service.name));
    let ended = before.iter().filter(|service| !known(after, &service.name));
    let ended = ended.map(|service| format!("`{}` has ended", service.name));
    let changed = after.iter().filter_map(|service| {
        service.changed_since(before.iter().find(|earlier| earlier.name == service.name)?)
    });
    new.chain(ended).chain(changed).collect()
}

/// Describes which settings of the process differ that the new generation has.
pub fn of_process(before: &Settings, after: &Settings) -> Option<String> {
    let log = |settings: &Settings| {
        let log = settings.access_log.as_ref();
        log.map(|log| (log.path.clone(), log.sample, log.fields.clone(), log.rotation))
    };
    let changed = [
        ("workers", before.workers != after.workers),
        ("cpu_affinity", before.cpu_affinity != after.cpu_affinity),
        ("access_log", log(before) != log(after)),
        ("max_memory", before.max_memory != after.max_memory),
        ("shutdown_timeout", before.shutdown_timeout != after.shutdown_timeout),
        ("old_generation_timeout", before.old_generation_timeout != after.old_generation_timeout),
        ("watchdog_timeout", before.watchdog_timeout != after.watchdog_timeout),
        ("resolver", before.resolver != after.resolver),
        ("tune", before.follow != after.follow),
    ];
    let names: Vec<String> =
        changed.iter().filter(|(_, is_other)| *is_other).map(|(name, _)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("{} changed", names.join(", ")))
}

/// Describes which listening addresses were opened and closed.
pub fn of_addresses(before: &Platform, after: &Platform) -> Vec<String> {
    let at = |platform: &Platform| -> Vec<String> {
        let each = platform.services().iter().flat_map(|service| {
            let addresses = service.addresses().iter();
            addresses.map(move |(channel, at)| format!("{}.{channel} at {at}", service.name()))
        });
        each.collect()
    };
    let (before, after) = (at(before), at(after));
    let listed = |what: &str, these: &[String], others: &[String]| -> Option<String> {
        let new: Vec<&str> = these.iter().filter(|one| !others.contains(one)).map(String::as_str).collect();
        (!new.is_empty()).then(|| format!("{what} {}", new.join(", ")))
    };
    [listed("opened", &after, &before), listed("closed", &before, &after)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{ServiceSummary, of_services};

    fn service(name: &str, code: u64, limits: &str) -> ServiceSummary {
        let settings =
            [("limits", limits.to_owned()), ("timeouts", String::new()), ("backends", String::new())];
        ServiceSummary { name: name.to_owned(), code, settings }
    }

    #[test]
    fn reload_says_what_has_changed() {
        let check = |after: &[ServiceSummary], expected: &[&str]| {
            let before = [service("a", 1, "x"), service("b", 2, "x")];
            assert_eq!(of_services(&before, after), expected);
        };
        check(&[service("a", 1, "x"), service("b", 2, "x")], &[]);
        check(&[service("a", 9, "y"), service("b", 2, "x")], &["`a`: program, limits changed"]);
        check(
            &[service("c", 1, "x"), service("b", 2, "y")],
            &["`c` is new", "`a` has ended", "`b`: limits changed"],
        );
    }
}
