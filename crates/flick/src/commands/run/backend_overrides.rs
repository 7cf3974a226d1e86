//! Changes that an operator has made of backends at run time, by service and channel.
//! Promises: changes outlive reloads and upgrades and, with a state file, restarts; the file is replaced as a whole.
//! Not here: what a change does (`flick_runtime::BackendOverride`), who may make one (`flick-admin`).

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flick_discovery::address::check_changeable;
use flick_net::Endpoint;
use flick_runtime::limits::WEIGHT_MAX;
use flick_runtime::{BackendMode, BackendOverride};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::access::check_directory;
use crate::failure::Failure;

/// Largest state file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The changes of one backend, as the state file has them: one JSON object per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    service: String,
    channel: String,
    backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Record {
    fn of(service: &str, channel: &str, change: &BackendOverride) -> Self {
        Self {
            service: service.to_owned(),
            channel: channel.to_owned(),
            backend: change.backend.to_string(),
            mode: change.mode.map(|mode| mode.name().to_owned()),
            weight: change.weight,
            address: change.address.as_ref().map(Endpoint::to_string),
        }
    }

    /// The changes. Errors: which value is wrong.
    fn change(&self) -> Result<BackendOverride, String> {
        let address = |text: &str| text.parse::<Endpoint>().map_err(|error| error.to_string());
        Ok(BackendOverride {
            backend: address(&self.backend)?,
            mode: self.mode.as_deref().map(str::parse).transpose()?,
            weight: self.weight.map(checked_weight).transpose()?,
            address: self.address.as_deref().map(new_address).transpose()?,
        })
    }
}

/// An address for a backend of a running service. Errors: it is none, or is a descriptor.
fn new_address(text: &str) -> Result<Endpoint, String> {
    let address = text.parse::<Endpoint>().map_err(|error| error.to_string())?;
    check_changeable(&address)?;
    Ok(address)
}

/// Errors: the weight is out of range.
fn checked_weight(weight: u32) -> Result<u32, String> {
    match weight {
        0..=WEIGHT_MAX => Ok(weight),
        _ => Err(format!("{weight} is not a weight; the range is 0 to {WEIGHT_MAX}")),
    }
}

/// The changes of all backends of a process.
#[derive(Debug, Default)]
pub struct BackendOverrides(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    origin: ChangesOrigin,
    /// The state file that the settings name at the start.
    file: Option<PathBuf>,
    records: Vec<(Record, BackendOverride)>,
}

/// Origin of the changes at the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChangesOrigin {
    /// From the state file, which was not read yet.
    #[default]
    File,
    /// From the old process of an upgrade; the state file is not known yet.
    OldProcess,
    /// They are loaded.
    Known,
}

impl BackendOverrides {
    /// The changes that the old process of an upgrade has passed on, one line for each.
    pub fn inherited(lines: &[String]) -> Self {
        let parsed = lines.iter().filter_map(|line| match parse(line) {
            Ok(record) => Some(record),
            Err(error) => {
                warn!(error, "a change of a backend is lost in the upgrade");
                None
            }
        });
        let is_new = crate::hot_restart::is_new_process();
        let origin = if is_new { ChangesOrigin::OldProcess } else { ChangesOrigin::File };
        Self(Mutex::new(Changes { origin, file: None, records: parsed.collect() }))
    }

    /// Loads the changes of the state file that the settings name at the start; what a reload names takes effect at the
    /// next start only. A file that does not exist has none.
    ///
    /// Errors: the file cannot be read, a line is not a change, or the file's directory cannot be written.
    pub fn load(&self, file: Option<&Path>) -> Result<(), Failure> {
        let mut changes = self.changes();
        let origin = std::mem::replace(&mut changes.origin, ChangesOrigin::Known);
        if origin == ChangesOrigin::Known {
            return Ok(());
        }
        changes.file = file.map(Path::to_path_buf);
        let (Some(file), ChangesOrigin::File) = (file, origin) else { return Ok(()) };
        let failed = |error: String| {
            Failure::usage(format!("cannot read the backend state in {}: {error}", file.display()))
        };
        let text = match std::fs::metadata(file) {
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(failed(format!("it has more than {FILE_BYTES_MAX} bytes")));
            }
            Ok(_) => std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parsed = numbered.map(|(number, line)| {
            parse(line).map_err(|error| failed(format!("line {}: {error}", number + 1)))
        });
        let records = parsed.collect::<Result<Vec<_>, _>>()?;
        check_directory(file).map_err(|error| {
            Failure::usage(format!("cannot write the backend state to {}: {error}", file.display()))
        })?;
        changes.records = records;
        Ok(())
    }

    /// The changes of the backends of a channel.
    pub fn of_channel(&self, service: &str, channel: &str) -> Vec<BackendOverride> {
        let changes = self.changes();
        let own = changes.records.iter().filter(|(of, _)| of.service == service && of.channel == channel);
        own.map(|(_, change)| change.clone()).collect()
    }

    /// The changes of a backend; those of a backend without any change nothing.
    pub fn of_backend(&self, service: &str, channel: &str, backend: &Endpoint) -> BackendOverride {
        let known = self.of_channel(service, channel).into_iter().find(|change| change.backend == *backend);
        known.unwrap_or_else(|| BackendOverride::none(backend.clone()))
    }

    /// Replaces the changes of a backend.
    pub fn set(&self, service: &str, channel: &str, change: BackendOverride) {
        let record = Record::of(service, channel, &change);
        let is_same = |known: &Record| {
            (&known.service, &known.channel, &known.backend)
                == (&record.service, &record.channel, &record.backend)
        };
        let records = &mut self.changes().records;
        records.retain(|(known, _)| !is_same(known));
        if !change.is_none() {
            records.push((record, change));
        }
    }

    /// Writes the state file. Returns whether there is one.
    ///
    /// Errors: it cannot be written; the changes hold until the process ends.
    pub fn save(&self) -> Result<bool, String> {
        let changes = self.changes();
        let Some(file) = &changes.file else { return Ok(false) };
        let text: String = changes.records.iter().map(|(record, _)| line(record) + "\n").collect();
        let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut new = File::create(&temporary)?;
            new.write_all(text.as_bytes())?;
            new.sync_all()?;
            std::fs::rename(&temporary, file)
        };
        write().map_err(|error| {
            // What was written of it is of no use; it may not exist.
            let _ = std::fs::remove_file(&temporary);
            format!("cannot write the backend state to {}: {error}", file.display())
        })?;
        Ok(true)
    }

    /// One line for each change, for the new process of an upgrade.
    pub fn lines(&self) -> Vec<String> {
        self.changes().records.iter().map(|(record, _)| line(record)).collect()
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("strings and numbers are valid JSON")
}

fn parse(line: &str) -> Result<(Record, BackendOverride), String> {
    let record: Record = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let change = record.change()?;
    Ok((record, change))
}

/// Applies a request's parameters to the changes of a backend: `mode`, `weight`, `address`, or `reset`.
///
/// Errors: a parameter is unknown or wrong, or there is none.
pub fn changed(before: BackendOverride, parameters: &[(&str, &str)]) -> Result<BackendOverride, String> {
    if parameters.is_empty() {
        return Err(
            "nothing is to be changed; the parameters are `mode`, `weight`, `address` and `reset`".to_owned()
        );
    }
    let mut change = before;
    for (name, value) in parameters {
        match *name {
            "mode" => change.mode = Some(value.parse()?),
            "weight" => {
                let number = value.parse().map_err(|_| format!("`{value}` is not a weight"))?;
                change.weight = Some(checked_weight(number)?);
            }
            "address" => change.address = Some(new_address(value)?),
            "reset" => change = BackendOverride::none(change.backend),
            other => {
                return Err(format!(
                    "`{other}` is not a parameter; they are `service`, `channel`, `backend`, `mode`, `weight`, `address` and \
                     `reset`"
                ));
            }
        }
    }
    Ok(change)
}

/// Describes the changes of a backend.
pub fn describe(change: &BackendOverride) -> String {
    let parts = [
        change.mode.map(|mode| mode.name().to_owned()),
        change.weight.map(|weight| format!("weight={weight}")),
        change.address.as_ref().map(|address| format!("address={address}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let parts = if parts.is_empty() { "as configured".to_owned() } else { parts.join(" ") };
    format!("{}: {parts}", change.backend)
}

/// Says why a backend that the operator has set to `ready` is drained nevertheless.
pub fn why_not_ready(change: &BackendOverride) -> Option<String> {
    let is_drained = change.mode == Some(BackendMode::Ready) && change.weight == Some(0);
    is_drained.then(|| {
        format!(
            "its weight is 0, so it stays drained: `flick backend ADMIN weight {0} N` sets a weight from 1 to {WEIGHT_MAX}, \
             `flick backend ADMIN reset {0}` undoes all changes",
            change.backend
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{BackendOverrides, changed};
    use flick_runtime::{BackendMode, BackendOverride};

    fn none() -> BackendOverride {
        BackendOverride::none("127.0.0.1:1".parse().expect("an address"))
    }

    #[test]
    fn reload_that_named_a_state_file_dropped_all_changes() {
        let file = std::env::temp_dir().join(format!("flick-backend-state-named-{}", std::process::id()));
        let overrides = BackendOverrides::default();
        overrides.load(None).expect("a start without a file");
        overrides.set("a", "backends", BackendOverride { mode: Some(BackendMode::Maint), ..none() });
        overrides.load(Some(&file)).expect("a reload reads no file");
        assert_eq!(overrides.of_channel("a", "backends").len(), 1);
        assert_eq!(overrides.save(), Ok(false), "the file takes effect at the next start");
    }

    #[test]
    fn state_file_holds_changes_over_a_restart() {
        let file = std::env::temp_dir().join(format!("flick-backend-state-{}", std::process::id()));
        let first = BackendOverrides::default();
        first.load(Some(&file)).expect("a file that does not exist has no changes");
        let change =
            changed(none(), &[("mode", "maint"), ("weight", "0"), ("address", "[::1]:2")]).expect("right");
        first.set("a", "backends", change.clone());
        first.set("b", "backends", BackendOverride { mode: Some(BackendMode::Drain), ..none() });
        first.set("b", "backends", none());
        assert_eq!(first.save(), Ok(true));
        let second = BackendOverrides::default();
        second.load(Some(&file)).expect("the file is right");
        assert_eq!(second.of_channel("a", "backends"), std::slice::from_ref(&change));
        assert_eq!(second.of_channel("b", "backends"), []);
        assert_eq!(BackendOverrides::inherited(&first.lines()).of_channel("a", "backends"), [change]);
        std::fs::write(&file, "{\"service\":\"a\",\"channel\":\"c\",\"backend\":\"x\"}\n")
            .expect("it can be written");
        let error = BackendOverrides::default().load(Some(&file)).expect_err("not an address").text();
        assert!(error.contains("line 1: `x` is not an address"), "{error}");
        std::fs::remove_file(&file).expect("it is ours");
    }

    #[test]
    fn wrong_change_is_refused() {
        for (parameters, piece) in [
            (&[][..], "nothing is to be changed"),
            (&[("mode", "off")], "the modes are"),
            (&[("weight", "65536")], "0 to 65535"),
            (&[("weight", "-1")], "is not a weight"),
            (&[("address", "nowhere")], "is not an address"),
            (&[("address", "stdout:")], "`stdout:` is a descriptor, which a service opens at its start only"),
            (&[("address", "fd:1")], "at its start only"),
            (&[("address", "pipe:/run/x")], "at its start only"),
            (&[("wieght", "1")], "is not a parameter"),
        ] {
            let error = changed(none(), parameters).expect_err("it is wrong");
            assert!(error.contains(piece), "{parameters:?}: {error}");
        }
        assert_eq!(changed(none(), &[("weight", "3"), ("reset", "1")]), Ok(none()));
    }
}
