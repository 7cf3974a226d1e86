//! The settings of `flick run`, from the command line and from `flick.toml`.
//! Promises: both have the same settings; the command line has precedence over the file, the file over the default; an
//! error in the file is reported at its line, with what is allowed there.

pub mod addresses;
mod consistency;
pub mod deprecated;
pub mod file;
mod flags;
pub mod following;
mod health;
mod limits;
pub mod units;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod schema;

use std::path::{Path, PathBuf};
use std::time::Duration;

use flick_compiler::{EngineKind, MESSAGE_WORK_MAX, RequestOptions};
use flick_net::{DescriptorAddr, Endpoint, IoKind};
use flick_runtime::{Binding, Limits, Timeouts};

use addresses::Connect;
use deprecated::Deprecated;
pub use flags::{EmbeddedProgram, RunFlags, binding};
use following::FollowPlan;
pub use units::{Bounded, Period, Size, Workers};

use crate::access::{self, RotationLimits, Sample};
use crate::failure::Failure;
use crate::logging::LogFormat;
use crate::sandbox::{SandboxMode, User};

/// The settings file that `flick run` reads if neither a program nor a file is given.
pub const DEFAULT_FILE: &str = "flick.toml";

/// Default of `--shutdown-timeout`.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Default of `--old-generation-timeout`.
const OLD_GENERATION_TIMEOUT: Duration = Duration::from_secs(600);

/// Default of `--watchdog-timeout`.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(5);

/// Default of `--access-log-keep`.
const ACCESS_LOG_KEEP: u32 = 5;

/// Default of `--state-dir`.
const STATE_DIR: &str = "flick-state";

/// Kernel interface for network I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// io_uring if the kernel allows it, else epoll
    Auto,
    /// epoll
    Epoll,
    /// io_uring; do not start without it
    Uring,
}

impl Io {
    fn kind(self) -> IoKind {
        match self {
            Io::Auto => IoKind::Auto,
            Io::Epoll => IoKind::Epoll,
            Io::Uring => IoKind::Uring,
        }
    }
}

/// Use of shared memory in place of pipes and sockets between flick processes of one user on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shm {
    /// shared memory in place of sockets and pipes, where the other side uses it too
    Auto,
    /// shared memory in place of pipes between filters only
    Pipes,
    /// the kernel only; does not affect addresses `shm:NAME`
    Off,
}

impl Shm {
    /// Returns the use of shared memory where none is set. A service listens for processes that move its connections,
    /// also at addresses of TCP; it does so of its own accord only if they cannot stop its workers.
    fn otherwise() -> Self {
        if flick_shm::pairing::can_refuse_descriptors() { Self::Auto } else { Self::Pipes }
    }
}

/// A program to run, with the settings of its services.
#[derive(Debug)]
pub struct ProgramSettings {
    /// Name of the service, if set.
    pub name: Option<String>,
    /// The program.
    pub program: PathBuf,
    /// Engine that executes the program.
    pub engine: EngineKind,
    /// Channels to listen on, from its own table.
    pub listen: Vec<Binding>,
    /// Channels to connect, from its own table.
    pub connect: Vec<Connect>,
    /// Limits of each of its services.
    pub limits: Limits,
    /// Limits of its requests, and the fields that the access log has.
    pub requests: RequestOptions,
    /// Whether `buffer_memory` is set.
    pub sets_buffer_memory: bool,
    /// Whether `max_connections` is set.
    pub sets_max_connections: bool,
    /// Whether `max_connections_per_backend` is set.
    pub sets_max_connections_per_backend: bool,
    /// Most steps for one message; 0: any.
    pub max_message_work: u64,
    /// `max_memory` of its own table, in bytes.
    pub max_memory: Option<u64>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Directory of the snapshots of its dictionaries.
    pub state_dir: PathBuf,
}

/// Channels bound by one origin: the command line, or the file's own tables.
#[derive(Debug, Default)]
pub struct ChannelBindings {
    /// Channels to listen on.
    pub listen: Vec<Binding>,
    /// Channels to connect.
    pub connect: Vec<Connect>,
}

/// The complete settings of one run.
#[derive(Debug)]
pub struct Settings {
    /// The programs, at least one.
    pub programs: Vec<ProgramSettings>,
    /// Number of worker threads.
    pub workers: usize,
    /// The same, if it is set.
    pub workers_set: Option<usize>,
    /// Whether each worker is bound to a core.
    pub cpu_affinity: bool,
    /// Kernel interface for network I/O.
    pub io: IoKind,
    /// Use of shared memory in place of pipes and sockets.
    pub shm: Shm,
    /// Channels bound by the file outside its services.
    pub of_file: ChannelBindings,
    /// Channels bound by the command line, which has precedence.
    pub of_flags: ChannelBindings,
    /// Memory that all services together may need, in bytes; `None`: what the machine has.
    pub max_memory: Option<u64>,
    /// Longest graceful shutdown.
    pub shutdown_timeout: Duration,
    /// Longest time that an old generation may serve its clients after a reload.
    pub old_generation_timeout: Duration,
    /// Time without an event-loop iteration after which a worker counts as stalled; zero: never.
    pub watchdog_timeout: Duration,
    /// Whether and how tunables follow the load.
    pub follow: Option<FollowPlan>,
    /// Whether to reload when a file changes.
    pub watch: bool,
    /// Address of the admin endpoint.
    pub admin: Option<flick_admin::Address>,
    /// File of the token that may change something.
    pub admin_token_file: Option<TokenFile>,
    /// File of the token that may read.
    pub admin_read_token_file: Option<TokenFile>,
    /// User to switch to once the sockets are open.
    pub user: Option<User>,
    /// Mode in which the process restricts itself.
    pub sandbox: SandboxMode,
    /// Format of the log.
    pub log: LogFormat,
    /// The access log.
    pub access_log: Option<access::AccessLogConfig>,
    /// Whether to write `/tmp/perf-PID.map`.
    pub perf_map: bool,
    /// Whether to log at level `debug`.
    pub verbose: bool,
    /// File of what an operator changes of backends at run time.
    pub backend_state_file: Option<PathBuf>,
    /// DNS server for backend names; `None`: those of the machine.
    pub resolver: Option<std::net::SocketAddr>,
    /// Remedy for dictionaries that need too much memory, if the program is part of this binary.
    pub dictionary_remedy: Option<&'static str>,
    /// Deprecated options that were used.
    deprecated: Vec<Deprecated>,
    /// Whether the programs are those of the settings file.
    has_programs_of_file: bool,
    /// The settings file, if one was read.
    pub file: Option<file::SettingsFile>,
}

/// The format of the log, found before anything else is checked so that errors in the settings are logged in it. A
/// wrong settings file is read as far as possible; a pipe is not read, because it can be read only once.
pub fn log_format(flags: &RunFlags) -> Option<LogFormat> {
    match (flags.log, settings_path(flags)) {
        (Some(format), _) => Some(format),
        (None, Ok(Some(path))) if path.is_file() => Some(file::log_format(&path).unwrap_or_default()),
        (None, Ok(Some(_))) => None,
        (None, _) => Some(LogFormat::default()),
    }
}

impl Settings {
    /// Merges the command line and the settings file.
    ///
    /// Errors: the file cannot be read or is wrong; there is no program.
    pub fn resolve(flags: RunFlags) -> Result<Self, Failure> {
        let loaded = settings_path(&flags)?.map(|path| file::read(&path)).transpose()?;
        let (mut file, source) =
            loaded.map_or_else(Default::default, |loaded| (loaded.file, Some(loaded.source)));
        // The path is relative to the file in which the service, or the file's own table, is written.
        let beside = |service: Option<usize>, path: PathBuf| match &source {
            Some(source) => source.directory_of(service).join(path),
            None => path,
        };
        let beside_file = |path: PathBuf| beside(None, path);
        let programs = programs(&flags, std::mem::take(&mut file.service.0), source.as_ref(), beside)?;
        consistency::check(&flags, &file, &programs, source.as_ref())?;
        let access_log = access_log(&flags, &file, source.as_ref(), beside_file)?;
        let log_fields = access_log.as_ref().map_or(&[][..], |log| &log.fields);
        let programs = programs.into_iter().enumerate().map(|(index, (program, service))| {
            let beside_service = |path| beside(Some(index), path);
            program_settings(&flags, &file, (program, service), log_fields, (beside_service, beside_file))
        });
        let programs = programs.collect();
        let token_file = |flag: Option<PathBuf>, key: Option<PathBuf>, name: &str| {
            let location = source.as_ref().filter(|_| flag.is_none());
            let location = location.and_then(|source| source.location(&["admin", name]));
            Some(TokenFile { path: flag.or_else(|| key.map(beside_file))?, location })
        };
        let admin_token_file = token_file(flags.admin_token_file, file.admin.token_file, "token_file");
        let admin_read_token_file =
            token_file(flags.admin_read_token_file, file.admin.read_token_file, "read_token_file");
        let period = |flag: Option<units::Period>, key: Option<units::Period>, default: Duration| {
            flag.or(key).map_or(default, |period| period.0)
        };
        let workers_set = flags.workers.or(file.workers).map(|workers| workers.0 as usize);
        Ok(Self {
            programs,
            workers: workers_set.unwrap_or_else(cores),
            workers_set,
            cpu_affinity: !flags.no_cpu_affinity && file.cpu_affinity.unwrap_or(true),
            io: flags.io.or(file.io).unwrap_or(Io::Auto).kind(),
            shm: flags.shm.or(file.shm).unwrap_or_else(Shm::otherwise),
            of_file: ChannelBindings {
                listen: bindings(file.listen, beside_file),
                connect: connects(file.connect, beside_file),
            },
            of_flags: ChannelBindings { listen: flags.listen, connect: flags.connect },
            max_memory: flags.limits.max_memory().or(file.limits.max_memory()),
            shutdown_timeout: period(flags.shutdown_timeout, file.shutdown_timeout, SHUTDOWN_TIMEOUT),
            old_generation_timeout: period(
                flags.old_generation_timeout,
                file.old_generation_timeout,
                OLD_GENERATION_TIMEOUT,
            ),
            watchdog_timeout: period(flags.watchdog_timeout, file.watchdog_timeout, WATCHDOG_TIMEOUT),
            follow: FollowPlan::resolve(&flags.tune, &file.tune),
            watch: flags.watch,
            admin: flags.admin.or(file.admin.listen),
            admin_token_file,
            admin_read_token_file,
            backend_state_file: flags.backend_state_file.or_else(|| file.backend_state_file.map(beside_file)),
            resolver: flags.resolver.or(file.resolver),
            dictionary_remedy: flags.embedded.map(|embedded| embedded.dictionary_remedy),
            user: flags.user.or(file.user),
            sandbox: flags.sandbox.or(file.sandbox).unwrap_or_default(),
            access_log,
            perf_map: flags.perf_map || file.perf_map.unwrap_or(false),
            log: flags.log.or(file.log).unwrap_or_default(),
            verbose: flags.verbose,
            deprecated: flags.deprecated,
            has_programs_of_file: flags.programs.is_empty(),
            file: source,
        })
    }

    /// Logs a warning for each deprecated name that was used.
    pub fn warn_deprecated(&self) {
        self.file.iter().for_each(file::SettingsFile::warn_deprecated);
        self.deprecated.iter().for_each(|deprecated| deprecated.warn(None));
    }

    /// Paths of the files of two services, if they are written in different files.
    pub fn files_of(&self, services: [usize; 2]) -> Option<[String; 2]> {
        let file = self.file.as_ref().filter(|_| self.has_programs_of_file)?;
        let [one, other] = services.map(|service| file.path_of(service).display().to_string());
        (one != other).then_some([one, other])
    }

    /// Adds an excerpt to a failure of a program that the settings file names.
    pub fn at_program(&self, index: usize, failure: Failure) -> Failure {
        match &self.file {
            Some(file) if self.has_programs_of_file => file.shown_at(Some(index), &["program"], failure),
            _ => failure,
        }
    }
}

/// A file with a token of the admin endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// Its path.
    pub path: PathBuf,
    /// Its location in the settings file.
    location: Option<file::Location>,
}

impl TokenFile {
    /// Adds an excerpt of the settings file to a failure, if that names the file.
    pub fn located(&self, failure: Failure) -> Failure {
        file::at_location(self.location.as_ref(), failure)
    }
}

/// The access log, if one is set.
///
/// Errors: the sample, the fields or the rotation are set without a log, or what rotation keeps without its size.
fn access_log(
    flags: &RunFlags,
    file: &file::File,
    source: Option<&file::SettingsFile>,
    beside_file: impl Fn(PathBuf) -> PathBuf,
) -> Result<Option<access::AccessLogConfig>, Failure> {
    let sample = flags.access_log_sample.or(file.access_log_sample);
    let beside = |path: PathBuf| if access::is_stdout(&path) { path } else { beside_file(path) };
    let path = flags.access_log.clone().or_else(|| file.access_log.clone().map(beside));
    let of_file = file.access_log_fields.as_ref().map(|names| &names.0);
    let fields = flags.access_log_fields.as_ref().map(|names| &names.0).or(of_file);
    let size = flags.access_log_max_size.or(file.access_log_max_size);
    let keep = flags.access_log_keep.or(file.access_log_keep);
    let size_given = ("access_log_max_size", size.is_some(), flags.access_log_max_size.is_some());
    let keep_given = ("access_log_keep", keep.is_some(), flags.access_log_keep.is_some());
    let Some(path) = path else {
        let given = [
            ("access_log_sample", sample.is_some(), flags.access_log_sample.is_some()),
            ("access_log_fields", fields.is_some(), flags.access_log_fields.is_some()),
            size_given,
            keep_given,
        ];
        let why = "there is no `access_log` to write";
        return useless(given, why, source).map_or(Ok(None), Err);
    };
    let of_file = source.filter(|_| flags.access_log.is_none());
    let location = of_file.and_then(|source| source.location(&["access_log"]));
    if size.is_none() {
        useless([keep_given], "there is no `access_log_max_size`", source).map_or(Ok(()), Err)?;
    }
    let bytes_max = size.map(|size| size.0);
    let keep = keep.map_or(ACCESS_LOG_KEEP, |count| count.0);
    let rotation = bytes_max.filter(|bytes| *bytes > 0).map(|bytes_max| RotationLimits { bytes_max, keep });
    let sample = sample.unwrap_or(Sample::ALL);
    let fields = fields.into_iter().flatten().map(|name| name.0.clone()).collect();
    Ok(Some(access::AccessLogConfig { path, sample, fields, rotation, location }))
}

/// The failure of the first setting that is set, and useless for this reason; of each the key, whether it is set at all
/// and by a flag.
fn useless<const N: usize>(
    given: [(&str, bool, bool); N],
    why: &str,
    source: Option<&file::SettingsFile>,
) -> Option<Failure> {
    let (key, _, is_flag) = given.into_iter().find(|(_, is_set, _)| *is_set)?;
    let refused = Failure::usage(format!("`{key}` is set, but {why}"));
    Some(match source.filter(|_| !is_flag) {
        Some(file) => file.shown_at(None, &[key], refused),
        None => refused,
    })
}

/// The programs to run with their tables: those of the command line, or else of the file. If each has exactly one, the
/// table of the file applies to the program of the command line.
fn programs(
    flags: &RunFlags,
    mut services: Vec<file::Service>,
    source: Option<&file::SettingsFile>,
    beside: impl Fn(Option<usize>, PathBuf) -> PathBuf,
) -> Result<Vec<(PathBuf, file::Service)>, Failure> {
    let missing =
        || Failure::usage("no program; give one, `flick run FILE`, or set `program = \"FILE\"` in [service]");
    if flags.programs.is_empty() {
        if services.is_empty() {
            return Err(missing());
        }
        let without = |index: usize| {
            let help = "set `program = \"FILE\"`";
            source.map_or_else(missing, |file| file.at_service(index, "this service has no program", help))
        };
        let with_program = |(index, mut service): (usize, file::Service)| {
            let program = service.program.take().ok_or_else(|| without(index))?;
            Ok((beside(Some(index), program), service))
        };
        return services.into_iter().enumerate().map(with_program).collect();
    }
    let own = if flags.programs.len() == 1 && services.len() == 1 { services.pop() } else { None };
    if !services.is_empty() {
        return Err(Failure::usage(
            "the settings file has services; give programs on the command line or in the file, not in both",
        ));
    }
    let mut own = own.into_iter();
    let programs = flags.programs.iter();
    Ok(programs.map(|program| (program.clone(), own.next().unwrap_or_default())).collect())
}

/// The settings of a program: the command line, then its own table, then the file's tables, then the defaults.
/// Paths are relative to the file in which its own table, or the file's tables, are written.
fn program_settings(
    flags: &RunFlags,
    file: &file::File,
    (program, service): (PathBuf, file::Service),
    log_fields: &[String],
    (beside_service, beside_file): (impl Fn(PathBuf) -> PathBuf, impl Fn(PathBuf) -> PathBuf),
) -> ProgramSettings {
    let (mut limits, mut timeouts) = (Limits::default(), Timeouts::default());
    let mut requests = RequestOptions { log_fields: log_fields.to_vec(), ..RequestOptions::default() };
    for settings in [&file.limits, &service.limits, &flags.limits] {
        settings.apply(&mut limits);
        settings.apply_to_requests(&mut requests);
    }
    for settings in [&file.health, &service.health, &flags.health] {
        settings.apply(&mut limits);
    }
    for settings in [&file.timeouts, &service.timeouts, &flags.timeouts] {
        settings.apply(&mut timeouts);
    }
    let state_dir = service.state_dir.map(&beside_service);
    let state_dir = state_dir.or_else(|| file.state_dir.clone().map(beside_file));
    let state_dir = flags.state_dir.clone().or(state_dir).unwrap_or_else(|| PathBuf::from(STATE_DIR));
    let limits_given = [&flags.limits, &service.limits, &file.limits];
    ProgramSettings {
        name: service.name,
        program,
        engine: flags.engine.or(service.engine).unwrap_or_default(),
        listen: bindings(service.listen, &beside_service),
        connect: connects(service.connect, beside_service),
        sets_buffer_memory: limits_given.iter().any(|limits| limits.sets_buffer_memory()),
        sets_max_connections: limits_given.iter().any(|limits| limits.sets_max_connections()),
        sets_max_connections_per_backend: limits_given
            .iter()
            .any(|limits| limits.sets_max_connections_per_backend()),
        max_message_work: limits_given
            .iter()
            .find_map(|limits| limits.max_message_work())
            .unwrap_or(MESSAGE_WORK_MAX),
        max_memory: service.limits.max_memory(),
        limits,
        requests,
        timeouts,
        state_dir,
    }
}

/// The channels of a `[connect]` table, with paths relative to the settings file.
fn connects(
    table: file::Table<file::ConnectTargets>,
    beside_file: impl Fn(PathBuf) -> PathBuf,
) -> Vec<Connect> {
    let below = |mut connect: Connect| {
        connect.members.iter_mut().for_each(|member| resolve_pipe(&mut member.endpoint, &beside_file));
        let source = connect.source.map(|source| source.below(&beside_file));
        Connect { source, ..connect }
    };
    file::connects(table).into_iter().map(below).collect()
}

/// The channels of a `[listen]` table, with paths relative to the settings file.
fn bindings(table: file::Table, beside_file: impl Fn(PathBuf) -> PathBuf) -> Vec<Binding> {
    let mut bindings = file::bindings(table);
    let endpoints = bindings.iter_mut().flat_map(|binding| &mut binding.endpoints);
    endpoints.for_each(|endpoint| resolve_pipe(endpoint, &beside_file));
    bindings
}

/// Resolves the path of a `pipe:`.
fn resolve_pipe(endpoint: &mut Endpoint, beside_file: impl Fn(PathBuf) -> PathBuf) {
    if let Endpoint::Descriptor(DescriptorAddr::Pipe(path)) = endpoint {
        *path = beside_file(std::mem::take(path));
    }
}

/// Path of the settings file: the one that is given, or the default if no program is given either.
fn settings_path(flags: &RunFlags) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = flags.programs.iter().find(|path| path.extension().is_some_and(|end| end == "toml")) {
        let path = path.display();
        let text = format!("{path} is a settings file, not a program; write `flick run --config {path}`");
        return Err(Failure::usage(text));
    }
    if let Some(path) = &flags.config {
        return Ok(Some(path.clone()));
    }
    if !flags.programs.is_empty() {
        return Ok(None);
    }
    if Path::new(DEFAULT_FILE).exists() {
        return Ok(Some(PathBuf::from(DEFAULT_FILE)));
    }
    Err(Failure::usage(format!(
        "nothing to run: give a program, `flick run FILE --listen CHANNEL=ADDRESS ...`, or write a ./{DEFAULT_FILE}"
    )))
}

/// Number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
