//! Everything an operator may set for `flick run`, from the command line and from `flick.toml`.
//! Promises: both know the same settings; the command line wins; what neither says has a documented default; a
//! mistake in the file is shown at its line, with what would be right.

mod addresses;
mod file;
mod flags;
mod limits;
mod units;

use std::path::{Path, PathBuf};
use std::time::Duration;

use flick_net::IoKind;
use flick_runtime::{Binding, Limits, Timeouts};

pub use flags::RunFlags;

use crate::compile::EngineKind;
use crate::failure::Failure;
use crate::logging::LogFormat;

/// The settings file that `flick run` looks for when it is given neither a program nor a file.
pub const DEFAULT_FILE: &str = "flick.toml";
/// How long a drain may take unless the operator says otherwise.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

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

/// Settings of one run, complete.
#[derive(Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// What runs it.
    pub engine: EngineKind,
    /// Worker threads.
    pub workers: usize,
    /// Whether each worker stays on a core of its own.
    pub pin: bool,
    /// Which kernel interface carries the bytes.
    pub io: IoKind,
    /// Channels to listen on.
    pub listen: Vec<Binding>,
    /// Channels to connect.
    pub connect: Vec<Binding>,
    /// Limits.
    pub limits: Limits,
    /// Memory that the service may need at most; `None`: what the machine has.
    pub memory: Option<u64>,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// How long a drain may take.
    pub drain_deadline: Duration,
    /// Where dictionaries with a snapshot are kept across restarts.
    pub state_dir: PathBuf,
    /// Where the admin side listens, if at all.
    pub admin: Option<flick_admin::Address>,
    /// The file with its token.
    pub admin_token_file: Option<PathBuf>,
    /// How the log looks.
    pub log: LogFormat,
    /// Whether to say more.
    pub verbose: bool,
    /// The settings file, if one was read.
    pub file: Option<file::Named>,
}

impl Settings {
    /// Merges what the command line and the settings file say.
    ///
    /// Errors: the file cannot be read or is wrong; there is no program.
    pub fn resolve(flags: RunFlags) -> Result<Self, Failure> {
        let named = settings_file(&flags)?;
        let (file, place) = match named {
            Some(path) => {
                let (file, named) = file::read(&path)?;
                (file, Some(named))
            }
            None => (file::File::default(), None),
        };
        let (mut limits, mut timeouts) = (Limits::default(), Timeouts::default());
        file.limits.apply(&mut limits);
        file.timeouts.apply(&mut timeouts);
        flags.limits.apply(&mut limits);
        flags.timeouts.apply(&mut timeouts);
        let service = file.service.unwrap_or_default();
        let from_file = |program: PathBuf| match place.as_ref().and_then(|named| named.path.parent()) {
            Some(directory) => directory.join(program),
            None => program,
        };
        let program = flags.program.or_else(|| service.program.map(from_file)).ok_or_else(|| {
            Failure::usage(
                "no program: name one, `flick run FILE`, or write `program = \"FILE\"` under [service]",
            )
        })?;
        let io = match flags.io.or(file.io).unwrap_or(Io::Auto) {
            Io::Auto => IoKind::Auto,
            Io::Epoll => IoKind::Epoll,
            Io::Uring => IoKind::Uring,
        };
        Ok(Self {
            program,
            engine: flags.engine.or(service.engine).unwrap_or_default(),
            workers: flags.workers.or(file.workers).map_or_else(cores, |workers| workers.0),
            pin: !flags.no_pin && file.pin.unwrap_or(true),
            io,
            listen: merge(file::bindings(file.listen), flags.listen),
            connect: merge(file::bindings(file.connect), flags.connect),
            limits,
            memory: flags.limits.memory().or(file.limits.memory()),
            timeouts,
            drain_deadline: flags
                .drain_deadline
                .or(file.drain_deadline)
                .map_or(DRAIN_DEADLINE, |period| period.0),
            state_dir: flags
                .state_dir
                .or_else(|| file.state_dir.map(from_file))
                .unwrap_or_else(|| PathBuf::from(STATE_DIR)),
            admin: flags.admin.or(file.admin.listen),
            admin_token_file: flags.admin_token_file.or_else(|| file.admin.token_file.map(from_file)),
            log: flags.log.or(file.log).unwrap_or_default(),
            verbose: flags.verbose,
            file: place,
        })
    }
}

/// Which settings file to read: the one that was named, or the usual one when no program was named either.
fn settings_file(flags: &RunFlags) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = &flags.config {
        return Ok(Some(path.clone()));
    }
    if flags.program.is_some() {
        return Ok(None);
    }
    if Path::new(DEFAULT_FILE).exists() {
        return Ok(Some(PathBuf::from(DEFAULT_FILE)));
    }
    Err(Failure::usage(format!(
        "nothing to run: name a program, `flick run FILE --listen CHANNEL=ADDRESS ...`, or write a ./{DEFAULT_FILE}"
    )))
}

/// Bindings of the file, but for a channel that the command line binds too.
fn merge(file: Vec<Binding>, flags: Vec<Binding>) -> Vec<Binding> {
    let is_free = |binding: &Binding| !flags.iter().any(|flag| flag.channel == binding.channel);
    file.into_iter().filter(is_free).chain(flags.iter().cloned()).collect()
}

/// One worker for each core this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
