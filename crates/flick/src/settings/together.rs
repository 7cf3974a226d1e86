//! Settings that only make sense together: what contradicts another one, or does nothing without it, is refused.
//! Promises: a mistake in the file is shown at its line, with what would be right.

use std::path::PathBuf;
use std::time::Duration;

use flick_runtime::Timeouts;

use super::file::{File, Named, Service};
use super::flags::RunFlags;
use super::health::HealthSettings;
use crate::failure::{Failure, Outcome};

/// Where something is set; what comes first wins.
#[derive(Clone, Copy)]
enum At {
    Flags,
    /// In a table of the file: of the service of this number, or the file's own.
    File(Option<usize>),
}

/// Settings that do nothing without another one.
struct Dependent {
    /// One of them that is set.
    of: fn(&HealthSettings) -> Option<&'static str>,
    /// Whether the other one is, be it to never.
    has_other: fn(&HealthSettings) -> bool,
    /// What is so without it.
    without: &'static str,
    /// What the other one says.
    says: &'static str,
    /// The other one.
    other: &'static str,
}

/// All of them.
const DEPENDENT: [Dependent; 4] = [
    Dependent {
        of: HealthSettings::of_checks,
        has_other: HealthSettings::sets_checks,
        without: "backends are not checked",
        says: "how often they are",
        other: "check_every",
    },
    Dependent {
        of: HealthSettings::of_ejection,
        has_other: HealthSettings::sets_ejection,
        without: "no backend is put out",
        says: "after how many failures one is",
        other: "eject_failures",
    },
    Dependent {
        of: HealthSettings::of_being_out,
        has_other: HealthSettings::sets_what_puts_out,
        without: "no backend is put out",
        says: "after how many failures one is",
        other: "eject_failures",
    },
    Dependent {
        of: HealthSettings::of_share,
        has_other: HealthSettings::sets_share,
        without: "no part of its requests puts a backend out",
        says: "which part does",
        other: "eject_share",
    },
];

/// Compares what is set for these programs. Errors: what does not fit.
pub fn check(
    flags: &RunFlags,
    file: &File,
    programs: &[(PathBuf, Service)],
    named: Option<&Named>,
) -> Outcome {
    let whole = Whole { flags, file, programs, named };
    whole.admin()?;
    DEPENDENT.iter().try_for_each(|settings| whole.dependent(settings))?;
    (0..programs.len()).try_for_each(|index| whole.check_time(index).and_then(|()| whole.backoff(index)))
}

struct Whole<'a> {
    flags: &'a RunFlags,
    file: &'a File,
    programs: &'a [(PathBuf, Service)],
    named: Option<&'a Named>,
}

impl Whole<'_> {
    /// Whoever can be reached by others asks for a token.
    fn admin(&self) -> Outcome {
        let of_flags = self.flags.admin.as_ref().map(|address| (At::Flags, address));
        let of_file = || self.file.admin.listen.as_ref().map(|address| (At::File(None), address));
        let has_token = self.flags.admin_token_file.is_some() || self.file.admin.token_file.is_some();
        match of_flags.or_else(of_file) {
            Some((at, address)) if !address.is_local() && !has_token => {
                let title = format!("{address} can be reached by others: that needs a token");
                let help = format!(
                    "give one with {}, or listen on this machine only",
                    match at {
                        At::Flags => "--admin-token-file FILE",
                        At::File(_) => "`token_file = \"FILE\"`",
                    }
                );
                Err(self.failure(at, ["admin", "listen"], &title, &help))
            }
            _ => Ok(()),
        }
    }

    /// What belongs to checks needs that there are some, of one service at least that it holds for; others likewise.
    fn dependent(&self, settings: &Dependent) -> Outcome {
        let Dependent { of, has_other, without, says, other } = settings;
        let shared = [(At::Flags, &self.flags.health), (At::File(None), &self.file.health)];
        let in_all = shared.iter().any(|(_, health)| has_other(health));
        let own = self.programs.iter().map(|(_, service)| &service.health);
        let in_one = own.clone().any(has_other);
        let own = own.enumerate().map(|(index, health)| (At::File(Some(index)), health, has_other(health)));
        let shared = shared.into_iter().map(|(at, health)| (at, health, in_one));
        for (at, health, is_there) in shared.chain(own) {
            if let Some(key) = of(health).filter(|_| !in_all && !is_there) {
                let title = format!("{} does nothing: {without}", written(at, key));
                let help = format!("say {says}: {}", written(at, other));
                return Err(self.failure(at, ["health", key], &title, &help));
            }
        }
        Ok(())
    }

    /// A check is over before the next one is due.
    fn check_time(&self, index: usize) -> Outcome {
        let layers = [
            (At::Flags, &self.flags.health),
            (At::File(Some(index)), &self.programs[index].1.health),
            (At::File(None), &self.file.health),
        ];
        let set = |read: fn(&HealthSettings) -> Option<Duration>| {
            layers.iter().find_map(|(at, settings)| Some((*at, read(settings)?)))
        };
        let (Some((at, timeout)), Some((of, every))) =
            (set(HealthSettings::check_timeout), set(HealthSettings::check_every))
        else {
            return Ok(());
        };
        if every.is_zero() || timeout <= every {
            return Ok(());
        }
        let (long, short) = (written(at, "check_timeout"), written(of, "check_every"));
        let title = format!("{long} of {timeout:?} is longer than {short} of {every:?}");
        let help = "a check that hangs would keep the next ones waiting";
        Err(self.failure(at, ["health", "check_timeout"], &title, help))
    }

    /// Pauses do not begin longer than they may become.
    fn backoff(&self, index: usize) -> Outcome {
        let layers = [
            (At::Flags, &self.flags.timeouts),
            (At::File(Some(index)), &self.programs[index].1.timeouts),
            (At::File(None), &self.file.timeouts),
        ];
        let set = |key: &'static str, default: Duration| {
            let found = layers.iter().find_map(|(at, settings)| Some((*at, settings.backoff(key)?)));
            (key, found.map(|(at, _)| at), found.map_or(default, |(_, time)| time))
        };
        let default = Timeouts::default();
        let (least, most) =
            (set("backoff_min", default.backoff_min), set("backoff_max", default.backoff_max));
        let (Some((at, key)), true) =
            (least.1.map(|at| (at, least.0)).or(most.1.map(|at| (at, most.0))), least.2 > most.2)
        else {
            return Ok(());
        };
        let shown = |(key, set, time): (&str, Option<At>, Duration)| match set {
            Some(at) => format!("{} of {time:?}", written(at, key)),
            None => format!("{} of {time:?}, the default,", written(at, key)),
        };
        let title = format!("{} is longer than {}", shown(least), shown(most).trim_end_matches(','));
        Err(self.failure(at, ["timeouts", key], &title, "pauses begin with the one and grow to the other"))
    }

    fn failure(&self, at: At, path: [&str; 2], title: &str, help: &str) -> Failure {
        match (at, self.named) {
            (At::File(service), Some(named)) => named.at_setting(service, &path, title, help),
            _ => Failure::usage(format!("{title}; {help}")),
        }
    }
}

/// A setting as it is written there.
fn written(at: At, key: &str) -> String {
    match at {
        At::Flags => format!("`--{}`", key.replace('_', "-")),
        At::File(_) => format!("`{key}`"),
    }
}
