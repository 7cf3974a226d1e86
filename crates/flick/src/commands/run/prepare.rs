//! Everything about services that can be made before anything is opened: settings read, programs compiled, addresses and
//! limits found and compared with the machine.
//! Promises: touches nothing that runs, so that a reload that fails here has changed nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use flick_ir::data::Module;
use flick_runtime::access::{Access, Port};
use flick_runtime::memory::Part;
use flick_runtime::{PlatformConfig, Service, own_files};

use super::backends::{self, Opened};
use super::{memory, not_started, services};
use crate::compile;
use crate::failure::{Failure, Outcome};
use crate::settings::{Bound, RunFlags, Settings};
use crate::sources::Known;
use crate::sources::names::Resolver;

/// Memory for network buffers that a service of several gets at least, unless it is set.
const BUFFERS_MIN: u64 = 64 << 20;

/// Services that could start.
pub struct Prepared {
    /// What the operator says.
    pub settings: Settings,
    /// The services.
    pub services: Vec<Service>,
    /// What each of them runs.
    pub modules: Vec<Arc<Module>>,
    /// By service: lists of backends that are read from elsewhere.
    pub opened: Vec<Vec<Opened>>,
    /// Their dictionaries.
    pub dicts: Vec<Part>,
    /// How long each program took, in words.
    pub times: Vec<String>,
    /// Every file that was read.
    pub files: Vec<PathBuf>,
    /// When that began.
    pub begun: SystemTime,
}

impl Prepared {
    /// Reads and compiles what the command line asks for; an access log goes through that port. Lists of backends that are
    /// `known` stand in for those that cannot be read; dictionaries that are `there` need no addresses again.
    ///
    /// Errors: a mistake in the settings or in a program; more memory than there is.
    pub fn new(flags: &RunFlags, port: &Arc<Port>, known: &Known, there: &[Part]) -> Result<Self, Failure> {
        let begun = SystemTime::now();
        let settings = Settings::resolve(flags.clone())?;
        let mut made = Vec::new();
        for (entry, own) in settings.entries.iter().enumerate() {
            let each = compile::each(&own.program, None, own.engine);
            let each = each.map_err(|failure| settings.at_program(entry, failure))?;
            made.extend(each.into_iter().map(|ready| (entry, ready)));
        }
        own_snapshots(&settings, &made)?;
        let programs: Vec<_> = made.iter().map(|(entry, ready)| (*entry, &ready.module.program)).collect();
        let named = services::named(&settings, &programs)?;
        let (configs, opened) = configs(&settings, &named, port, known)?;
        let asked: Vec<_> = named.iter().zip(&configs).collect();
        let dicts = memory::check(&asked, &settings, there)?;
        let modules = made.iter().map(|(_, ready)| Arc::clone(&ready.module)).collect();
        let times = made.iter().map(|(_, ready)| ready.times.line()).collect();
        let mut files: Vec<PathBuf> =
            made.iter().flat_map(|(_, ready)| ready.files.iter().cloned()).collect();
        files.extend(settings.file.as_ref().map(|file| file.path.clone()));
        files.sort();
        files.dedup();
        let names: Vec<String> = named.into_iter().map(|named| named.name).collect();
        let services = made.into_iter().zip(names).zip(configs).map(|(((group, ready), name), config)| {
            let program = Arc::new(ready.module.program.clone());
            Service { name, program, engine: ready.engine, config, group }
        });
        let services = services.collect();
        Ok(Self { settings, services, modules, opened, dicts, times, files, begun })
    }
}

/// Refuses two programs that would write their snapshots to one file. The processes of one program share what they keep.
fn own_snapshots(settings: &Settings, made: &[(usize, compile::Ready)]) -> Outcome {
    let mut kept = Vec::new();
    for (entry, own) in settings.entries.iter().enumerate() {
        let Some((_, ready)) = made.iter().find(|(of, _)| *of == entry) else { continue };
        let owned = own_files(&ready.module.program, Some(&own.state_dir), &mut kept);
        owned.map_err(|error| settings.at_program(entry, not_started(error)))?;
    }
    Ok(())
}

/// What services are bound to and limited by, and their lists of backends that are read from elsewhere.
type Configs = (Vec<PlatformConfig>, Vec<Vec<Opened>>);

fn configs(
    settings: &Settings,
    named: &[services::Named<'_>],
    port: &Arc<Port>,
    known: &Known,
) -> Result<Configs, Failure> {
    let resolver = settings.resolver.map_or_else(Resolver::system, Resolver::new);
    let bound = services::bound(settings, named)?;
    let count = named.len() as u64;
    let config = |(named, bound): (&services::Named<'_>, Bound)| {
        let entry = &settings.entries[named.entry];
        let mut limits = entry.limits.clone();
        if !entry.sets_buffers {
            limits.buffer_bytes = (limits.buffer_bytes / count).max(BUFFERS_MIN);
        }
        let (connect, opened) = backends::open(bound.connect, &resolver, known, &mut limits)?;
        let config = PlatformConfig {
            workers: settings.workers,
            pin: settings.pin,
            io: settings.io,
            listen: bound.listen,
            connect,
            limits,
            timeouts: entry.timeouts.clone(),
            state_dir: Some(entry.state_dir.clone()),
            access: settings
                .access_log
                .as_ref()
                .map(|wanted| Access { sample: wanted.sample.0, port: Arc::clone(port) }),
        };
        Ok((config, opened))
    };
    let made: Result<Vec<_>, Failure> = named.iter().zip(bound).map(config).collect();
    Ok(made?.into_iter().unzip())
}
