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

/// Compares what is set for these programs. Errors: what does not fit.
pub fn check(
    flags: &RunFlags,
    file: &File,
    programs: &[(PathBuf, Service)],
    named: Option<&Named>,
) -> Outcome {
    let whole = Whole { flags, file, programs, named };
    whole.checks()?;
    (0..programs.len()).try_for_each(|index| whole.backoff(index))
}

struct Whole<'a> {
    flags: &'a RunFlags,
    file: &'a File,
    programs: &'a [(PathBuf, Service)],
    named: Option<&'a Named>,
}

impl Whole<'_> {
    /// What belongs to checks needs that there are some, of one service at least that it holds for.
    fn checks(&self) -> Outcome {
        let shared = [(At::Flags, &self.flags.health), (At::File(None), &self.file.health)];
        let in_all = shared.iter().any(|(_, health)| health.sets_checks());
        let own = self.programs.iter().map(|(_, service)| &service.health);
        let in_one = own.clone().any(HealthSettings::sets_checks);
        let own =
            own.enumerate().map(|(index, health)| (At::File(Some(index)), health, health.sets_checks()));
        let shared = shared.into_iter().map(|(at, health)| (at, health, in_one));
        for (at, health, has_checks) in shared.chain(own) {
            if let Some(key) = health.of_checks().filter(|_| !in_all && !has_checks) {
                let title = format!("{} does nothing: backends are not checked", written(at, key));
                let help = format!("say how often they are: {}", written(at, "check_every"));
                return Err(self.failure(at, ["health", key], &title, &help));
            }
        }
        Ok(())
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
