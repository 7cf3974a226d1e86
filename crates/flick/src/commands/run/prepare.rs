//! Prepares services before anything is opened: reads settings, compiles programs, resolves bindings, checks limits
//! against the machine.
//! Promises: does not touch running services, so that a reload that fails here changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use flick_compiler::{Compilation, CompileFailure, Executable, Input, compile_with};
use flick_discovery::Resolver;
use flick_ir::data::Module;
use flick_net::Endpoint;
use flick_runtime::access_log::{AccessLog, AccessLogPort};
use flick_runtime::memory::MemoryPart;
use flick_runtime::{PlatformConfig, ServiceConfig, own_files};

use super::backend_overrides::BackendOverrides;
use super::backends::{self, DiscoveredChannel, FirstReads};
use super::{memory, services, start_failure};
use crate::failure::{Failure, Outcome};
use crate::settings::{ChannelBindings, EmbeddedProgram, ProgramSettings, RunFlags, Settings, Shm};
use crate::{descriptors, report};

/// Smallest default of `--buffer-memory` for a service that shares its process, and the default for a filter.
const BUFFER_MEMORY_MIN: u64 = 64 << 20;

/// Services that are ready to start.
pub struct Prepared {
    /// The settings.
    pub settings: Settings,
    /// The services.
    pub services: Vec<ServiceConfig>,
    /// The code of each service.
    pub modules: Vec<Arc<Module>>,
    /// By service: channels with a discovered backend list.
    pub opened: Vec<Vec<DiscoveredChannel>>,
    /// Memory of their dictionaries.
    pub dicts: Vec<MemoryPart>,
    /// Compile times of each program, one line each.
    pub times: Vec<String>,
    /// Every file that was read.
    pub files: Vec<PathBuf>,
    /// Time at which reading began.
    pub begun: SystemTime,
}

impl Prepared {
    /// Reads the settings and compiles the programs. An access log is written through `port`. Backend lists that cannot
    /// be read keep their known contents; dictionaries in `existing` are mapped already; `overrides` are the
    /// operator's changes of backends.
    ///
    /// Errors: the settings or a program are wrong; the services may need more memory than available.
    pub fn new(
        flags: &RunFlags,
        port: &Arc<AccessLogPort>,
        reads: &FirstReads<'_>,
        existing: &[MemoryPart],
        overrides: &BackendOverrides,
    ) -> Result<Self, Failure> {
        let begun = SystemTime::now();
        let settings = Settings::resolve(flags.clone())?;
        overrides.load(settings.backend_state_file.as_deref())?;
        let (mut made, mut files) = (Vec::new(), Vec::new());
        for (entry, own) in settings.programs.iter().enumerate() {
            let compiled = compiled(own, flags.embedded.as_ref());
            let compiled = compiled.and_then(|compiled| compiled.within(own.max_message_work));
            let compiled = compiled.map_err(|failure| settings.at_program(entry, failure.into()))?;
            report::warnings(&compiled.warnings, &compiled.sources);
            files.extend(compiled.files());
            made.extend(compiled.executables.into_iter().map(|executable| (entry, executable)));
        }
        check_snapshots(&settings, &made)?;
        let programs: Vec<_> =
            made.iter().map(|(entry, executable)| (*entry, &executable.module.program)).collect();
        let named = services::named(&settings, &programs)?;
        let (mut configs, opened) = configs(&settings, &named, port, reads)?;
        for (named, config) in named.iter().zip(&mut configs) {
            config.shares_free_ports = flags.embedded.is_some();
            for binding in &mut config.connect {
                binding.overrides = overrides.of_channel(&named.name, &binding.channel);
            }
        }
        check_loops(&settings, &named, &configs)?;
        let root = Path::new("/");
        memory::fit_limits(root, &named, &mut configs, &settings)?;
        let configured: Vec<_> = named.iter().zip(&configs).collect();
        let dicts = memory::check(root, &configured, &settings, existing)?;
        let modules = made.iter().map(|(_, executable)| Arc::clone(&executable.module)).collect();
        let times = made.iter().map(|(_, executable)| executable.times.line()).collect();
        files.extend(settings.file.iter().flat_map(|file| file.files()).map(Path::to_path_buf));
        files.sort();
        files.dedup();
        let names: Vec<String> = named.into_iter().map(|named| named.name).collect();
        let services =
            made.into_iter().zip(names).zip(configs).map(|(((group, executable), name), config)| {
                let program = executable.program();
                ServiceConfig { name, program, engine: executable.engine, config, group }
            });
        let services = services.collect();
        Ok(Self { settings, services, modules, opened, dicts, times, files, begun })
    }
}

/// Compiles a program: its file, or the one that is part of this binary.
fn compiled(
    own: &ProgramSettings,
    embedded: Option<&EmbeddedProgram>,
) -> Result<Compilation, CompileFailure> {
    let Some(embedded) = embedded else {
        return compile_with(&Input::file(&own.program)?, own.engine, &own.requests);
    };
    let libraries: Vec<_> = embedded.libraries.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let input = Input::text(&own.program.display().to_string(), embedded.text).with_files(&libraries);
    compile_with(&input, own.engine, &own.requests)
}

/// Rejects two programs that would write to the same snapshot file. The processes of one program share their
/// dictionaries.
fn check_snapshots(settings: &Settings, made: &[(usize, Executable)]) -> Outcome {
    let mut kept = Vec::new();
    for (entry, own) in settings.programs.iter().enumerate() {
        let Some((_, executable)) = made.iter().find(|(of, _)| *of == entry) else { continue };
        let owned = own_files(&executable.module.program, Some(&own.state_dir), &mut kept);
        owned.map_err(|error| settings.at_program(entry, start_failure(error)))?;
    }
    Ok(())
}

/// Rejects a service that connects to an address that it listens on: its requests would come back to it.
fn check_loops(
    settings: &Settings,
    named: &[services::NamedService<'_>],
    configs: &[PlatformConfig],
) -> Outcome {
    for (service, config) in named.iter().zip(configs) {
        // The kernel chooses port 0, and descriptors have a check of their own.
        let is_chosen = |endpoint: &&Endpoint| match endpoint {
            Endpoint::Tcp(address) => address.port() == 0,
            Endpoint::Unix(_) | Endpoint::Shm(_) => false,
            Endpoint::Descriptor(_) => true,
        };
        let listened = config.listen.iter().flat_map(|binding| &binding.endpoints);
        for endpoint in listened.filter(|endpoint| !is_chosen(endpoint)) {
            let Some(binding) = config.connect.iter().find(|binding| binding.endpoints.contains(endpoint))
            else {
                continue;
            };
            let (name, channel) = (&service.name, &binding.channel);
            let title = format!(
                "`{name}` listens on {endpoint}, and `{channel}` connects to it: its requests would come back"
            );
            let failure = Failure::usage(title);
            return Err(match &settings.file {
                Some(file) => file.shown_at(Some(service.entry), &["connect", channel], failure),
                None => failure,
            });
        }
    }
    Ok(())
}

/// The configuration of each service, and its channels with a discovered backend list.
type Configs = (Vec<PlatformConfig>, Vec<Vec<DiscoveredChannel>>);

pub(super) fn configs(
    settings: &Settings,
    named: &[services::NamedService<'_>],
    port: &Arc<AccessLogPort>,
    reads: &FirstReads<'_>,
) -> Result<Configs, Failure> {
    let resolver = settings.resolver.map_or_else(Resolver::system, Resolver::new);
    let resolver = resolver.cancelled_by(Arc::clone(&reads.cancelled));
    let bound = services::bound(settings, named)?;
    let count = named.len() as u64;
    let config = |(named, bound): (&services::NamedService<'_>, ChannelBindings)| {
        let entry = &settings.programs[named.entry];
        let mut limits = entry.limits.clone();
        let is_filter = descriptors::is_filter(&bound.listen);
        if is_filter {
            limits.max_connections = limits.max_connections.min(descriptors::FILTER_CONNECTIONS_MAX);
            limits.max_inflight_requests = limits.max_inflight_requests.min(descriptors::FILTER_REQUESTS_MAX);
        }
        if !entry.sets_buffer_memory {
            let share = if is_filter { 0 } else { limits.buffer_memory / count };
            limits.buffer_memory = share.max(BUFFER_MEMORY_MIN);
        }
        let (connect, opened) = backends::open(bound.connect, &resolver, reads.known, &mut limits)?;
        let config = PlatformConfig {
            workers: settings.workers,
            pin: settings.cpu_affinity,
            io: settings.io,
            upgrades_to_shm: settings.shm == Shm::Auto,
            shares_free_ports: false,
            listen: bound.listen,
            connect,
            limits,
            timeouts: entry.timeouts.clone(),
            state_dir: Some(entry.state_dir.clone()),
            access: settings.access_log.as_ref().map(|log| AccessLog {
                sample: log.sample.0,
                fields: log.fields.clone(),
                port: Arc::clone(port),
            }),
        };
        Ok((config, opened))
    };
    let made: Result<Vec<_>, Failure> = named.iter().zip(bound).map(config).collect();
    Ok(made?.into_iter().unzip())
}
