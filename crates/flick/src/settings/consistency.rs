//! Checks between settings: one that contradicts another, or has no effect without another, is an error.
//! Promises: an error in the settings file is reported at its line, with what to set instead.

use std::path::PathBuf;
use std::time::Duration;

use flick_runtime::Timeouts;

use super::file::{File, Service, SettingsFile};
use super::flags::RunFlags;
use super::following::TuneSettings;
use super::health::HealthSettings;
use super::limits::TimeoutSettings;
use crate::failure::{Failure, Outcome};

/// Origin of a setting; the first variant has precedence.
#[derive(Clone, Copy)]
enum Origin {
    Flags,
    /// In the settings file: in the service of this index, or in the file's own tables.
    File(Option<usize>),
}

/// Settings of a table `T` that have no effect without another one.
struct Dependent<T> {
    /// The table, and what the options of its keys begin with.
    table: &'static str,
    prefix: &'static str,
    /// Key of one of them, if it is set.
    find: fn(&T) -> Option<&'static str>,
    /// Whether the required setting is set, even to zero.
    has_required: fn(&T) -> bool,
    /// Reason that it has no effect.
    reason: &'static str,
    /// Key of the required setting.
    required: &'static str,
}

const HEALTH: [Dependent<HealthSettings>; 2] = [
    Dependent {
        table: "health",
        prefix: "",
        find: HealthSettings::health_check_detail,
        has_required: HealthSettings::sets_health_checks,
        reason: "there are no health checks",
        required: "health_check_interval",
    },
    Dependent {
        table: "health",
        prefix: "",
        find: HealthSettings::min_requests_detail,
        has_required: HealthSettings::sets_failure_percent,
        reason: "no backend is ejected for its percentage of failures",
        required: "outlier_failure_percent",
    },
];

const TUNE: Dependent<TuneSettings> = Dependent {
    table: "tune",
    prefix: "tune-",
    find: TuneSettings::detail,
    has_required: TuneSettings::sets_sla,
    reason: "there is no SLA to keep",
    required: "sla",
};

/// Checks the settings of these programs against each other. Errors: what contradicts what.
pub fn check(
    flags: &RunFlags,
    file: &File,
    programs: &[(PathBuf, Service)],
    source: Option<&SettingsFile>,
) -> Outcome {
    let layers = Layers { flags, file, programs, source };
    layers.check_admin()?;
    layers.check_dependent(&TUNE, [&flags.tune, &file.tune], &[])?;
    let health: Vec<&HealthSettings> = programs.iter().map(|(_, service)| &service.health).collect();
    HEALTH
        .iter()
        .try_for_each(|settings| layers.check_dependent(settings, [&flags.health, &file.health], &health))?;
    (0..programs.len())
        .try_for_each(|index| layers.check_health_check(index).and_then(|()| layers.check_backoff(index)))
}

/// Everything that is set, by origin.
struct Layers<'a> {
    flags: &'a RunFlags,
    file: &'a File,
    programs: &'a [(PathBuf, Service)],
    source: Option<&'a SettingsFile>,
}

impl Layers<'_> {
    /// An admin endpoint that other machines can reach needs a token.
    fn check_admin(&self) -> Outcome {
        let of_flags = self.flags.admin.as_ref().map(|address| (Origin::Flags, address));
        let of_file = || self.file.admin.listen.as_ref().map(|address| (Origin::File(None), address));
        let (flags, file) = (self.flags, &self.file.admin);
        let files =
            [&flags.admin_token_file, &flags.admin_read_token_file, &file.token_file, &file.read_token_file];
        let has_token = files.iter().any(|file| file.is_some());
        match of_flags.or_else(of_file) {
            Some((origin, address)) if !address.is_local() && !has_token => {
                let title =
                    format!("other machines can reach {address}, so the admin endpoint needs a token");
                let help = format!(
                    "set {}, or listen on the loopback",
                    match origin {
                        Origin::Flags => "--admin-token-file FILE",
                        Origin::File(_) => "`token_file = \"FILE\"`",
                    }
                );
                Err(self.failure(origin, ["admin", "listen"], &title, &help))
            }
            _ => Ok(()),
        }
    }

    /// A dependent setting needs the required one in at least one service that it applies to: those of the flags and
    /// the file's own tables (`shared`), and of each service in the file (`own`).
    fn check_dependent<T>(&self, settings: &Dependent<T>, shared: [&T; 2], own: &[&T]) -> Outcome {
        let Dependent { table, prefix, find, has_required, reason, required } = settings;
        let shown = |origin, key: &str| match origin {
            Origin::Flags => written(origin, &format!("{prefix}{key}")),
            Origin::File(_) => written(origin, key),
        };
        let is_in_all = shared.iter().any(|table| has_required(table));
        let is_in_one = own.iter().any(|table| has_required(table));
        let shared = [Origin::Flags, Origin::File(None)].into_iter().zip(shared);
        let shared = shared.map(|(origin, table)| (origin, table, is_in_one));
        let own = own.iter().enumerate();
        let own = own.map(|(index, table)| (Origin::File(Some(index)), *table, has_required(table)));
        for (origin, values, is_set) in shared.chain(own) {
            if let Some(key) = find(values).filter(|_| !is_in_all && !is_set) {
                let title = format!("{} has no effect: {reason}", shown(origin, key));
                let help = format!("set {}", shown(origin, required));
                return Err(self.failure(origin, [table, key], &title, &help));
            }
        }
        Ok(())
    }

    /// A health check ends before the next one starts.
    fn check_health_check(&self, index: usize) -> Outcome {
        let layers = [
            (Origin::Flags, &self.flags.health),
            (Origin::File(Some(index)), &self.programs[index].1.health),
            (Origin::File(None), &self.file.health),
        ];
        let set = |read: fn(&HealthSettings) -> Option<Duration>| {
            layers.iter().find_map(|(origin, settings)| Some((*origin, read(settings)?)))
        };
        let (Some((origin, timeout)), Some((of_interval, interval))) =
            (set(HealthSettings::health_check_timeout), set(HealthSettings::health_check_interval))
        else {
            return Ok(());
        };
        if interval.is_zero() || timeout <= interval {
            return Ok(());
        }
        let long = written(origin, "health_check_timeout");
        let short = written(of_interval, "health_check_interval");
        let title = format!("{long} of {timeout:?} is longer than {short} of {interval:?}");
        let help = "a stalled health check would delay the next one";
        Err(self.failure(origin, ["health", "health_check_timeout"], &title, help))
    }

    /// The first reconnect delay is not longer than the longest.
    fn check_backoff(&self, index: usize) -> Outcome {
        let layers = [
            (Origin::Flags, &self.flags.timeouts),
            (Origin::File(Some(index)), &self.programs[index].1.timeouts),
            (Origin::File(None), &self.file.timeouts),
        ];
        let set = |key: &'static str, read: fn(&TimeoutSettings) -> Option<Duration>, default: Duration| {
            let found = layers.iter().find_map(|(origin, settings)| Some((*origin, read(settings)?)));
            (key, found.map(|(origin, _)| origin), found.map_or(default, |(_, time)| time))
        };
        let default = Timeouts::default();
        let min = set(
            "reconnect_backoff_min",
            TimeoutSettings::reconnect_backoff_min,
            default.reconnect_backoff_min,
        );
        let max = set(
            "reconnect_backoff_max",
            TimeoutSettings::reconnect_backoff_max,
            default.reconnect_backoff_max,
        );
        let given = min.1.map(|origin| (origin, min.0)).or(max.1.map(|origin| (origin, max.0)));
        let Some((origin, key)) = given.filter(|_| min.2 > max.2) else { return Ok(()) };
        let shown = |(key, given, time): (&str, Option<Origin>, Duration)| match given {
            Some(given) => format!("{} of {time:?}", written(given, key)),
            None => format!("{} of {time:?} (the default)", written(origin, key)),
        };
        let title = format!("{} is longer than {}", shown(min), shown(max));
        Err(self.failure(
            origin,
            ["timeouts", key],
            &title,
            "the delay grows from the minimum to the maximum",
        ))
    }

    fn failure(&self, origin: Origin, path: [&str; 2], title: &str, help: &str) -> Failure {
        match (origin, self.source) {
            (Origin::File(service), Some(source)) => source.at_setting(service, &path, title, help),
            _ => Failure::usage(format!("{title}; {help}")),
        }
    }
}

/// A setting as it is written there.
fn written(origin: Origin, key: &str) -> String {
    match origin {
        Origin::Flags => format!("`--{}`", key.replace('_', "-")),
        Origin::File(_) => format!("`{key}`"),
    }
}
