//! `flick run`: a program as a service, until a signal ends it.

pub mod admin;
mod memory;

use std::sync::Arc;

use admin::View;
use clap::Args;
use flick_abi::Program;
use flick_admin::faults::Faults;
use flick_runtime::{Platform, PlatformConfig, StartError};
use tracing::info;

use crate::failure::{Failure, Outcome};
use crate::settings::{RunFlags, Settings};
use crate::{compile, logging, supervise};

/// Runs a program as a service.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    flags: RunFlags,
}

impl Run {
    /// Compiles, starts, and stays until the service has ended.
    pub fn run(self) -> Outcome {
        let settings = Settings::resolve(self.flags)?;
        let ready = compile::ready(&settings.program, None, settings.engine)?;
        let program = &ready.module.program;
        if let Some(file) = &settings.file {
            let known: Vec<&str> = program.channels.iter().map(|channel| channel.name.as_str()).collect();
            if let Some(failure) = file.unknown_channel(&known, &channels(program)) {
                return Err(failure);
            }
        }
        if settings.verbose {
            anstream::eprintln!("{}", ready.times.line());
        }
        // Handlers come first: a signal during the start must not kill a service that is half there.
        let signals = supervise::signals()
            .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
        let faults = Faults::default();
        logging::start(settings.log, settings.verbose, &faults);
        spare_memory();
        let config = PlatformConfig {
            workers: settings.workers,
            pin: settings.pin,
            io: settings.io,
            listen: settings.listen,
            connect: settings.connect,
            limits: settings.limits,
            timeouts: settings.timeouts,
            state_dir: Some(settings.state_dir),
        };
        memory::check(program, &config, settings.memory)?;
        let platform =
            Platform::start(Arc::new(program.clone()), ready.engine, config).map_err(not_started)?;
        for (channel, address) in platform.addresses() {
            info!(process = program.name, channel, %address, io = platform.io(), workers = settings.workers, "listening");
        }
        let views = vec![View::new(platform.watch(), &ready.module)];
        let _admin = admin::start(settings.admin, settings.admin_token_file.as_deref(), views, faults)?;
        supervise::supervise(platform, &signals, settings.drain_deadline)
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

/// The channels of a process for people: name, whether an array, direction and type.
pub fn channels(program: &Program) -> String {
    let describe = |channel: &flick_abi::Channel| {
        let unit = &program.protocols[channel.protocol].name;
        let direction = match (&channel.view, channel.sends) {
            (Some(_), true) => "receives and sends",
            (Some(_), false) => "receives",
            (None, _) => "sends",
        };
        let array = if channel.is_array { "array, " } else { "" };
        format!("`{}` ({array}{direction} {unit})", channel.name)
    };
    program.channels.iter().map(describe).collect::<Vec<_>>().join(", ")
}
