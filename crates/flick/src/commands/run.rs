//! `flick run`: runs programs as services until a signal ends them.

pub mod backends;
pub mod prepare;

pub mod backend_overrides;
mod changes;
mod follow_load;
mod memory;
mod open_files;
mod services;
mod watchdog;

pub mod generations;

pub mod admin;
pub mod observed_state;
mod tap;

use std::sync::Arc;

use clap::Args;
use flick_abi::Program;
use flick_admin::recent_events::RecentEvents;
use flick_runtime::{Platform, StartError};

use crate::access::{self, AccessLog};
use crate::descriptors::{Descriptors, RunningDescriptors};
use crate::failure::{Failure, Outcome, start_help};
use crate::hot_restart::{InheritedResources, OldProcess};
use crate::launcher::Launcher;
use crate::notify;
use crate::settings::{self, RunFlags, Shm};
use crate::state_dir_lock::{self, StateDirLocks};
use crate::supervise::{self, ControlQueue, EarlySignals};
use crate::sys::HeldSignals;
use crate::{descriptors, logging, perf_map, sandbox, sys};
use backend_overrides::BackendOverrides;
use backends::FirstReads;
use generations::Generations;
use observed_state::ObservedState;
use prepare::Prepared;

/// Run programs as services.
#[derive(Debug, Args)]
pub struct Run {
    /// The options.
    #[command(flatten)]
    pub flags: RunFlags,
}

impl Run {
    /// Compiles and starts the services, and returns when they have ended.
    pub fn run(self, held: Option<HeldSignals>) -> Outcome {
        if self.flags.check {
            drop(held);
            let names = self.check()?;
            crate::console::sayln!("ok: services {}", names.join(", "));
            return Ok(());
        }
        let recent = RecentEvents::default();
        if let Some(format) = settings::log_format(&self.flags) {
            logging::start(format, self.flags.verbose, &recent)?;
        }
        let early = EarlySignals::new()?;
        drop(held);
        let (old_process, inherited) = OldProcess::receive()?;
        let started = self.start(inherited, early, old_process.is_some(), recent);
        let (mut generations, descriptors, mut queue) = match (started, &old_process) {
            (Err(failure), Some(old_process)) => {
                old_process.report_failure(&failure);
                return Err(failure);
            }
            (started, _) => started?,
        };
        if let Some(old_process) = old_process {
            let reported = old_process.report_ready(queue.sender());
            let old_process = reported
                .map_err(|error| Failure::failed(format!("cannot replace the old process: {error}")))?;
            generations.set_old_process(old_process);
        }
        generations.keep_snapshots();
        generations.serve_admin();
        notify::ready();
        supervise::supervise(generations, descriptors, &mut queue)
    }

    /// Checks what can be checked without opening a socket: settings, programs, bindings, needed memory, token files,
    /// the access log, limits of this process. Returns the names of the services.
    pub(super) fn check(self) -> Result<Vec<String>, Failure> {
        let (port, overrides) = (AccessLog::default().port(), BackendOverrides::default());
        let mut prepared = Prepared::new(&self.flags, &port, &FirstReads::default(), &[], &overrides)?;
        descriptors::check(&prepared.services, &prepared.settings)?;
        Platform::check(&prepared.services).map_err(start_failure)?;
        state_dir_lock::check(&prepared.services)?;
        admin::tokens(&prepared.settings, flick_admin::Tokens::default())?;
        prepared.settings.access_log.as_ref().map_or(Ok(()), access::check)?;
        prepared.settings.warn_deprecated();
        if let Some(shortage) = open_files::raise_limit(&mut prepared.services)? {
            anstream::eprintln!("warning: {shortage}");
        }
        Ok(prepared.services.iter().map(|service| format!("`{}`", service.name)).collect())
    }

    /// Compiles the programs, opens the sockets and starts the workers. A new process of an upgrade rejects what a
    /// reload of the old one would reject.
    fn start(
        self,
        mut inherited: InheritedResources,
        early: EarlySignals,
        is_upgrade: bool,
        recent: RecentEvents,
    ) -> Result<(Generations, RunningDescriptors, ControlQueue), Failure> {
        let access = AccessLog::default();
        let overrides = Arc::new(BackendOverrides::inherited(&inherited.overrides));
        let mut prepared =
            Prepared::new(&self.flags, &access.port(), &FirstReads::default(), &[], &overrides)?;
        descriptors::check(&prepared.services, &prepared.settings)?;
        let is_filter =
            prepared.services.iter().any(|service| descriptors::uses_descriptors(&service.config));
        if is_filter {
            prepared.settings.workers = 1;
        }
        let settings = &prepared.settings;
        logging::start(settings.log, settings.verbose, &recent)?;
        settings.warn_deprecated();
        inherited.admin.tokens = admin::tokens(settings, inherited.admin.tokens)?;
        if is_upgrade {
            backends::complete(&prepared.opened)?;
            warn_unsaved(&prepared);
        }
        if settings.verbose {
            prepared.times.iter().for_each(|line| match logging::is_json() {
                true => tracing::debug!("{line}"),
                false => anstream::eprintln!("{line}"),
            });
        }
        if settings.perf_map {
            perf_map::start();
        }
        let locks = StateDirLocks::lock(&prepared.services, &inherited.locks)?;
        // There is no upgrade of a process that uses descriptors, and they are for no other process.
        let launcher = if is_filter { None } else { Launcher::start(settings)? };
        // Behind all that may refuse the start, and before the sandbox, which opens no other files.
        let mut descriptors = Descriptors::open(&mut prepared.services, prepared.settings.shm != Shm::Off)?;
        inherited.handoff.add_sockets(descriptors.take_sockets());
        let files = sandbox::restrict_files(&prepared)?;
        let in_background = logging::background::start();
        in_background.map_err(|error| {
            let help = start_help(&error);
            Failure::failed(format!("cannot start the log's thread: {error}{help}"))
        })?;
        let queue = ControlQueue::without_signals();
        if let Err(error) = sys::disable_huge_pages() {
            tracing::debug!(%error, "cannot disable huge pages");
        }
        let observed = Arc::new(ObservedState::new(recent, access.dropped(), queue.sender(), overrides));
        let inherited = InheritedResources { locks, ..inherited };
        // A signal must not kill the process while the services are half started, but it may while they only read back
        // their state, which can take long.
        let before_open = || queue.queue_signals(early);
        let mut generations =
            Generations::start(self.flags, prepared, inherited, observed, access, launcher, before_open)?;
        let descriptors = descriptors.start(&queue.sender())?;
        if !is_filter {
            open_files::check_left()?;
        }
        generations.set_sandbox(sandbox::drop_privileges(generations.settings(), files, is_filter)?);
        generations.log_addresses();
        sys::trim_memory();
        Ok((generations, descriptors, queue))
    }
}

/// Warns of the dictionaries that an upgrade empties, because no snapshot passes on what they hold.
fn warn_unsaved(prepared: &Prepared) {
    let dicts = prepared.services.iter().flat_map(|service| &service.program.dicts);
    let unsaved = dicts.filter(|dict| dict.snapshot.is_none()).map(|dict| dict.name.as_str());
    let names: std::collections::BTreeSet<&str> = unsaved.collect();
    if !names.is_empty() {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        tracing::warn!(dictionaries = names, "dictionaries without a snapshot start empty after an upgrade");
    }
}

/// The failure of a start: a wrong binding is an error of the settings, anything else of the program or the machine.
pub fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Binding(text) => Failure::usage(text),
        StartError::Io { error: ref cause, .. } => {
            let help = start_help(cause);
            Failure::failed(format!("{error}{help}"))
        }
        error => Failure::failed(error.to_string()),
    }
}

/// Describes the channels of a process: name, whether an array, and the types of both directions.
pub fn channels(program: &Program) -> String {
    let describe = |channel: &flick_abi::Channel| {
        let array = if channel.is_array { "array, " } else { "" };
        format!("`{}` ({array}{})", channel.name, program.directions(channel))
    };
    program.channels.iter().map(describe).collect::<Vec<_>>().join(", ")
}
