//! `flick run`: a program as a service, until a signal ends it.

pub mod backends;
pub mod prepare;

mod memory;
mod open_files;
mod pulse;
mod services;

pub mod generations;

pub mod admin;
pub mod seen;

use std::sync::Arc;

use clap::Args;
use flick_abi::Program;
use flick_admin::faults::Faults;
use flick_runtime::StartError;

use crate::access::AccessLog;
use crate::failure::{Failure, Outcome};
use crate::holding::Held;
use crate::notify;
use crate::settings::{self, RunFlags};
use crate::sources::Known;
use crate::supervise::{self, Calls, Early};
use crate::takeover::{Legacy, Predecessor};
use crate::{confine, logging, perf_map, sys};
use generations::Generations;
use prepare::Prepared;
use seen::Seen;

/// Runs programs as services.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    flags: RunFlags,
}

impl Run {
    /// Compiles, starts, and stays until the service has ended.
    pub fn run(self) -> Outcome {
        let faults = Faults::default();
        if let Some(format) = settings::log_format(&self.flags) {
            logging::start(format, self.flags.verbose, &faults);
        }
        let (predecessor, legacy) = Predecessor::meet()?;
        let outcome = self.start(legacy, predecessor.is_some(), faults);
        let (mut generations, mut calls) = match (outcome, &predecessor) {
            (Err(failure), Some(predecessor)) => {
                predecessor.refuse(&failure);
                return Err(failure);
            }
            (outcome, _) => outcome?,
        };
        if let Some(predecessor) = predecessor {
            let succeeded = predecessor.succeed(calls.sender());
            succeeded.map_err(|error| Failure::failed(format!("cannot take a process's place: {error}")))?;
        }
        generations.serve_admin();
        notify::ready();
        supervise::supervise(generations, &mut calls)
    }

    /// Makes, opens and shows everything. Who takes a process's place refuses what a reload of that one would.
    fn start(
        self,
        mut legacy: Legacy,
        takes_place: bool,
        faults: Faults,
    ) -> Result<(Generations, Calls), Failure> {
        let early = Early::new()?;
        let access = AccessLog::default();
        let prepared = Prepared::new(&self.flags, &access.port(), &Known::default(), &[])?;
        let settings = &prepared.settings;
        logging::start(settings.log, settings.verbose, &faults);
        legacy.admin.token = admin::token(settings, legacy.admin.token)?;
        if takes_place {
            backends::complete(&prepared.opened)?;
        }
        if settings.verbose {
            prepared.times.iter().for_each(|line| match logging::is_json() {
                true => tracing::debug!("{line}"),
                false => anstream::eprintln!("{line}"),
            });
        }
        open_files::provide(&prepared.services)?;
        if settings.perf_map {
            perf_map::keep();
        }
        let held = Held::take(&prepared.services, &legacy.held)?;
        let files = confine::files(&prepared)?;
        // Handlers come first: a signal during the start must not kill a service that is half there.
        let calls = Calls::new(early)?;
        spare_memory();
        let seen = Arc::new(Seen::new(faults, access.unwritten(), calls.sender()));
        let legacy = Legacy { held, ..legacy };
        let mut generations = Generations::start(self.flags, prepared, legacy, seen, access)?;
        generations.confined(confine::rights(generations.settings(), files)?);
        generations.tell_addresses();
        sys::give_memory_back();
        Ok((generations, calls))
    }
}

/// Tables are as large as their limits and touched only as they are used; a huge page would touch 2 MiB of them at a
/// time, and 10,000 idle connections would pay for 40,000. A kernel that refuses leaves things as they are.
fn spare_memory() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay on");
    }
}

/// Bindings are the operator's, the rest is the program's or the machine's.
pub fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Binding(text) => Failure::usage(text),
        error => Failure::failed(error.to_string()),
    }
}

/// The channels of a process for people: name, whether an array, and what goes which way.
pub fn channels(program: &Program) -> String {
    let describe = |channel: &flick_abi::Channel| {
        let array = if channel.is_array { "array, " } else { "" };
        format!("`{}` ({array}{})", channel.name, program.ways(channel))
    };
    program.channels.iter().map(describe).collect::<Vec<_>>().join(", ")
}
