//! Everything an operator may set for `flick run`, from the command line and from `flick.toml`.
//! Promises: both know the same settings; the command line wins; what neither says has a documented default; a
//! mistake in the file is shown at its line, with what would be right.

pub mod addresses;
pub mod file;
mod flags;
mod health;
mod limits;
mod together;
mod units;

use std::path::{Path, PathBuf};
use std::time::Duration;

use flick_net::IoKind;
use flick_runtime::{Binding, Limits, Timeouts};

use addresses::Connect;
pub use flags::RunFlags;

use crate::access::{self, Sample};
use crate::compile::EngineKind;
use crate::confine::{Confine, User};
use crate::failure::Failure;
use crate::logging::LogFormat;

/// The settings file that `flick run` looks for when it is given neither a program nor a file.
pub const DEFAULT_FILE: &str = "flick.toml";
/// How long a drain may take unless the operator says otherwise.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// How long what was before a reload may go on unless the operator says otherwise.
const RELOAD_DEADLINE: Duration = Duration::from_secs(600);

/// How long a worker may not turn unless the operator says otherwise.
const HANG_AFTER: Duration = Duration::from_secs(5);

/// Where dictionaries are kept unless the operator says otherwise.
const STATE_DIR: &str = "flick-state";

/// Which kernel interface carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// io_uring where the kernel allows it, otherwise epoll
    Auto,
    /// epoll
    Epoll,
    /// io_uring, or refuse to start
    Uring,
}

/// A program to run, with what holds for its services.
#[derive(Debug)]
pub struct Entry {
    /// What operators call it, if they do.
    pub name: Option<String>,
    /// The program.
    pub program: PathBuf,
    /// What runs it.
    pub engine: EngineKind,
    /// Its own channels to listen on.
    pub listen: Vec<Binding>,
    /// Its own channels to connect.
    pub connect: Vec<Connect>,
    /// Limits of each of its services.
    pub limits: Limits,
    /// Whether the memory for network buffers was set.
    pub sets_buffers: bool,
    /// Memory that it may need at most.
    pub memory: Option<u64>,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// Where its dictionaries are kept across restarts.
    pub state_dir: PathBuf,
}

/// Channels that are bound for all services in one place.
#[derive(Debug, Default)]
pub struct Bound {
    /// Channels to listen on.
    pub listen: Vec<Binding>,
    /// Channels to connect.
    pub connect: Vec<Connect>,
}

/// Settings of one run, complete.
#[derive(Debug)]
pub struct Settings {
    /// The programs, at least one.
    pub entries: Vec<Entry>,
    /// Worker threads.
    pub workers: usize,
    /// Whether each worker stays on a core of its own.
    pub pin: bool,
    /// Which kernel interface carries the bytes.
    pub io: IoKind,
    /// What the file binds outside its services.
    pub of_file: Bound,
    /// What the command line binds, which wins.
    pub of_flags: Bound,
    /// Memory that all services together may need at most; `None`: what the machine has.
    pub memory: Option<u64>,
    /// How long a drain may take.
    pub drain_deadline: Duration,
    /// How long what was before a reload may go on.
    pub reload_deadline: Duration,
    /// How long a worker may not turn until it counts as hanging; zero: for ever.
    pub hang_after: Duration,
    /// Whether to reload when a file changes.
    pub watch: bool,
    /// Where the admin side listens, if at all.
    pub admin: Option<flick_admin::Address>,
    /// The file with its token.
    pub admin_token_file: Option<PathBuf>,
    /// Where the settings file names that, if it does.
    token_place: Option<file::Place>,
    /// Who to become once the sockets are open.
    pub user: Option<User>,
    /// What is given up.
    pub confine: Confine,
    /// How the log looks.
    pub log: LogFormat,
    /// The access log, if one is kept.
    pub access_log: Option<access::Wanted>,
    /// Whether perf is told the names of compiled functions.
    pub perf_map: bool,
    /// Whether to say more.
    pub verbose: bool,
    /// Which name server is asked; `None`: those of the machine.
    pub resolver: Option<std::net::SocketAddr>,
    /// Whether the programs are those of the settings file.
    names_programs: bool,
    /// The settings file, if one was read.
    pub file: Option<file::Named>,
}

/// How the log looks, as far as that is known before anything else is: what is wrong with the rest is told in it, too. Of a file
/// that is wrong, what can be read of it counts; one that can be read only once is not looked into.
pub fn log_format(flags: &RunFlags) -> Option<LogFormat> {
    match (flags.log, settings_file(flags)) {
        (Some(format), _) => Some(format),
        (None, Ok(Some(path))) if path.is_file() => Some(file::log_format(&path).unwrap_or_default()),
        (None, Ok(Some(_))) => None,
        (None, _) => Some(LogFormat::default()),
    }
}

impl Settings {
    /// Merges what the command line and the settings file say.
    ///
    /// Errors: the file cannot be read or is wrong; there is no program.
    pub fn resolve(flags: RunFlags) -> Result<Self, Failure> {
        let named = settings_file(&flags)?;
        let (mut file, place) = match named {
            Some(path) => {
                let (file, named) = file::read(&path)?;
                (file, Some(named))
            }
            None => (file::File::default(), None),
        };
        let services = std::mem::take(&mut file.service.0);
        let beside_file = |program: PathBuf| match place.as_ref().and_then(|named| named.path.parent()) {
            Some(directory) => directory.join(program),
            None => program,
        };
        let programs = chosen(&flags, services, place.as_ref(), beside_file)?;
        together::check(&flags, &file, &programs, place.as_ref())?;
        let entries = programs
            .into_iter()
            .map(|(program, service)| entry(&flags, &file, program, service, beside_file))
            .collect();
        let io = match flags.io.or(file.io).unwrap_or(Io::Auto) {
            Io::Auto => IoKind::Auto,
            Io::Epoll => IoKind::Epoll,
            Io::Uring => IoKind::Uring,
        };
        let access_log = wanted_log(&flags, &file, place.as_ref(), beside_file)?;
        let in_file = place.as_ref().filter(|_| flags.admin_token_file.is_none());
        let token_place = in_file.and_then(|named| named.place(&["admin", "token_file"]));
        Ok(Self {
            entries,
            workers: flags.workers.or(file.workers).map_or_else(cores, |workers| workers.0 as usize),
            pin: !flags.no_pin && file.pin.unwrap_or(true),
            io,
            of_file: Bound {
                listen: file::bindings(file.listen),
                connect: connects(file.connect, beside_file),
            },
            of_flags: Bound { listen: flags.listen, connect: flags.connect },
            memory: flags.limits.memory().or(file.limits.memory()),
            drain_deadline: flags
                .drain_deadline
                .or(file.drain_deadline)
                .map_or(DRAIN_DEADLINE, |period| period.0),
            reload_deadline: flags
                .reload_deadline
                .or(file.reload_deadline)
                .map_or(RELOAD_DEADLINE, |period| period.0),
            hang_after: flags.hang_after.or(file.hang_after).map_or(HANG_AFTER, |period| period.0),
            watch: flags.watch,
            admin: flags.admin.or(file.admin.listen),
            admin_token_file: flags.admin_token_file.or_else(|| file.admin.token_file.map(beside_file)),
            token_place,
            resolver: flags.resolver.or(file.resolver),
            user: flags.user.or(file.user),
            confine: flags.confine.or(file.confine).unwrap_or_default(),
            access_log,
            perf_map: flags.perf_map || file.perf_map.unwrap_or(false),
            log: flags.log.or(file.log).unwrap_or_default(),
            verbose: flags.verbose,
            names_programs: flags.programs.is_empty(),
            file: place,
        })
    }

    /// A failure that has to do with a program, shown where the settings file names it, if it does.
    pub fn at_program(&self, entry: usize, failure: Failure) -> Failure {
        match &self.file {
            Some(file) if self.names_programs => file.shown_at(Some(entry), &["program"], failure),
            _ => failure,
        }
    }

    /// A failure that has to do with the token of the admin side, shown where the settings file names it, if it does.
    pub fn at_token(&self, failure: Failure) -> Failure {
        file::shown_at(self.token_place.as_ref(), failure)
    }
}

/// The access log, if one is to be kept.
///
/// Errors: a part of one that there is not.
fn wanted_log(
    flags: &RunFlags,
    file: &file::File,
    named: Option<&file::Named>,
    beside_file: impl Fn(PathBuf) -> PathBuf,
) -> Result<Option<access::Wanted>, Failure> {
    let sample = flags.access_log_sample.or(file.access_log_sample);
    let beside = |path: PathBuf| if access::is_stdout(&path) { path } else { beside_file(path) };
    let path = flags.access_log.clone().or_else(|| file.access_log.clone().map(beside));
    let Some(path) = path else {
        let of_file = named.filter(|_| flags.access_log_sample.is_none());
        return if sample.is_some() { Err(sample_of_nothing(of_file)) } else { Ok(None) };
    };
    let in_file = named.filter(|_| flags.access_log.is_none());
    let place = in_file.and_then(|named| named.place(&["access_log"]));
    Ok(Some(access::Wanted { path, sample: sample.unwrap_or(Sample::ALL), place }))
}

/// What to say of a part of an access log that there is not.
fn sample_of_nothing(file: Option<&file::Named>) -> Failure {
    let refused = Failure::usage("`access_log_sample` is set, but there is no `access_log` to write");
    match file {
        Some(file) => file.shown_at(None, &["access_log_sample"], refused),
        None => refused,
    }
}

/// The programs to run and their tables: those of the command line, or else of the file. A file with one service lends
/// its table to the one program of the command line.
fn chosen(
    flags: &RunFlags,
    mut services: Vec<file::Service>,
    named: Option<&file::Named>,
    beside_file: impl Fn(PathBuf) -> PathBuf,
) -> Result<Vec<(PathBuf, file::Service)>, Failure> {
    let missing = || {
        Failure::usage(
            "no program: name one, `flick run FILE`, or write `program = \"FILE\"` under [service]",
        )
    };
    if flags.programs.is_empty() {
        if services.is_empty() {
            return Err(missing());
        }
        let without = |number: usize| {
            let help = "write `program = \"FILE\"` in it";
            named.map_or_else(missing, |named| named.at_service(number, "this service has no program", help))
        };
        let with_program = |(number, mut service): (usize, file::Service)| {
            let program = service.program.take().ok_or_else(|| without(number))?;
            Ok((beside_file(program), service))
        };
        return services.into_iter().enumerate().map(with_program).collect();
    }
    let lent = if flags.programs.len() == 1 && services.len() == 1 { services.pop() } else { None };
    if !services.is_empty() {
        return Err(Failure::usage(
            "the settings file has services of its own; name programs on the command line or there, not in both",
        ));
    }
    let mut lent = lent.into_iter();
    let programs = flags.programs.iter();
    Ok(programs.map(|program| (program.clone(), lent.next().unwrap_or_default())).collect())
}

/// What holds for a program: the command line before its own table, that before the file's, that before the defaults.
fn entry(
    flags: &RunFlags,
    file: &file::File,
    program: PathBuf,
    service: file::Service,
    beside_file: impl Fn(PathBuf) -> PathBuf,
) -> Entry {
    let (mut limits, mut timeouts) = (Limits::default(), Timeouts::default());
    for settings in [&file.limits, &service.limits, &flags.limits] {
        settings.apply(&mut limits);
    }
    for settings in [&file.health, &service.health, &flags.health] {
        settings.apply(&mut limits);
    }
    for settings in [&file.timeouts, &service.timeouts, &flags.timeouts] {
        settings.apply(&mut timeouts);
    }
    let state_dir = service.state_dir.or_else(|| file.state_dir.clone()).map(&beside_file);
    let state_dir = flags.state_dir.clone().or(state_dir).unwrap_or_else(|| PathBuf::from(STATE_DIR));
    Entry {
        name: service.name,
        program,
        engine: flags.engine.or(service.engine).unwrap_or_default(),
        listen: file::bindings(service.listen),
        connect: connects(service.connect, &beside_file),
        sets_buffers: [&file.limits, &service.limits, &flags.limits]
            .iter()
            .any(|limits| limits.sets_buffers()),
        memory: service.limits.memory(),
        limits,
        timeouts,
        state_dir,
    }
}

/// Channels of a table, with paths of their sources below the directory of the file.
fn connects(table: file::Table<file::Sources>, beside_file: impl Fn(PathBuf) -> PathBuf) -> Vec<Connect> {
    let below = |connect: Connect| {
        let source = connect.source.map(|source| source.below(&beside_file));
        Connect { source, ..connect }
    };
    file::connects(table).into_iter().map(below).collect()
}

/// Which settings file to read: the one that was named, or the usual one when no program was named either.
fn settings_file(flags: &RunFlags) -> Result<Option<PathBuf>, Failure> {
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
        "nothing to run: name a program, `flick run FILE --listen CHANNEL=ADDRESS ...`, or write a ./{DEFAULT_FILE}"
    )))
}

/// One worker for each core this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
