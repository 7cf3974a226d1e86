//! `flick run`: a program as a service, until a signal ends it.

pub mod admin;
mod memory;
mod services;

use std::sync::Arc;

use admin::View;
use clap::Args;
use flick_abi::Program;
use flick_admin::faults::Faults;
use flick_runtime::{Platform, PlatformConfig, Service, StartError};
use tracing::info;

use crate::failure::{Failure, Outcome};
use crate::settings::{Bound, RunFlags, Settings};
use crate::{compile, logging, supervise};

/// Memory for network buffers that a service of several gets at least, unless it is set.
const BUFFERS_MIN: u64 = 64 << 20;

/// Runs programs as services.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    flags: RunFlags,
}

impl Run {
    /// Compiles, starts, and stays until the service has ended.
    pub fn run(self) -> Outcome {
        let settings = Settings::resolve(self.flags)?;
        let mut made = Vec::new();
        for (entry, own) in settings.entries.iter().enumerate() {
            let each = compile::each(&own.program, None, own.engine)?;
            made.extend(each.into_iter().map(|ready| (entry, ready)));
        }
        let programs: Vec<_> = made.iter().map(|(entry, ready)| (*entry, &ready.module.program)).collect();
        let named = services::named(&settings, &programs)?;
        let configs = configs(&settings, &named)?;
        if settings.verbose {
            made.iter().for_each(|(_, ready)| anstream::eprintln!("{}", ready.times.line()));
        }
        // Handlers come first: a signal during the start must not kill a service that is half there.
        let signals = supervise::signals()
            .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
        let faults = Faults::default();
        logging::start(settings.log, settings.verbose, &faults);
        spare_memory();
        let asked: Vec<_> = named.iter().zip(&configs).collect();
        memory::check(&asked, &settings)?;
        let modules: Vec<_> = made.iter().map(|(_, ready)| Arc::clone(&ready.module)).collect();
        let names: Vec<String> = named.into_iter().map(|named| named.name).collect();
        let services = made.into_iter().zip(names).zip(configs).map(|(((group, ready), name), config)| {
            let program = Arc::new(ready.module.program.clone());
            Service { name, program, engine: ready.engine, config, group }
        });
        let platform = Platform::start_services(services.collect()).map_err(not_started)?;
        for service in platform.services() {
            for (channel, address) in service.addresses() {
                let process = service.name();
                info!(process, channel, %address, io = platform.io(), workers = settings.workers, "listening");
            }
        }
        let views = platform.watches().into_iter().zip(&modules);
        let views = views.map(|(watch, module)| View::new(watch, module)).collect();
        let _admin = admin::start(settings.admin, settings.admin_token_file.as_deref(), views, faults)?;
        supervise::supervise(platform, &signals, settings.drain_deadline)
    }
}

/// What each service is bound to and limited by.
fn configs(settings: &Settings, named: &[services::Named<'_>]) -> Result<Vec<PlatformConfig>, Failure> {
    let bound = services::bound(settings, named)?;
    let count = named.len() as u64;
    let config = |(named, bound): (&services::Named<'_>, Bound)| {
        let entry = &settings.entries[named.entry];
        let mut limits = entry.limits.clone();
        if !entry.sets_buffers {
            limits.buffer_bytes = (limits.buffer_bytes / count).max(BUFFERS_MIN);
        }
        PlatformConfig {
            workers: settings.workers,
            pin: settings.pin,
            io: settings.io,
            listen: bound.listen,
            connect: bound.connect,
            limits,
            timeouts: entry.timeouts.clone(),
            state_dir: Some(entry.state_dir.clone()),
        }
    };
    Ok(named.iter().zip(bound).map(config).collect())
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
