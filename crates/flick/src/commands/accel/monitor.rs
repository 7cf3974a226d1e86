//! `flick monitor`: the process that pairs the ends of pipes and connections, one per user and directory of states.
//! Promises: its death disturbs none, and another one continues; without work it sleeps; it ends by itself when no
//! process is left that was started to move.
//! Not here: who holds an end (`holders.rs`), and what may move (`pairing.rs`).

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use super::pairing::Pairing;
use super::{install, observed};
use crate::failure::{Failure, Outcome};
use crate::sys;

/// Time without a process to look after, before the monitor ends.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at segments that were offered, and at processes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a look at all processes, in its processor time, and at most.
const PAUSE_FACTOR: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Such pauses at least: several processes knock at a time.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// Pair the pipes and connections of programs that were started with `flick accel --move`.
#[derive(Debug, Args)]
pub struct Monitor {
    /// Start it in the background, unless one runs
    #[arg(long)]
    start: bool,
}

impl Monitor {
    /// Serves, or starts the process that serves.
    pub fn run(self) -> Outcome {
        let states = install::state_directory()?;
        if self.start {
            sys::close_on_exec();
            return command(&[])?.spawn().map(drop).map_err(|error| cannot_start(&error));
        }
        let Some(_lock) = lock(&states)? else { return Ok(()) };
        // Not part of the session of the program, whose terminal it does not need. A leader of a group cannot leave it.
        let _ = rustix::process::setsid();
        serve(&states).map_err(|error| Failure::failed(format!("the monitor of pipes: {error}")))
    }
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::failed(format!("the monitor of pipes does not start: {error}"))
}

/// `flick monitor` with nothing of this process but the environment.
fn command(arguments: &[&str]) -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(|error| cannot_start(&error))?;
    let mut command = Command::new(own);
    command.arg("monitor").args(arguments).env_remove("LD_PRELOAD").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Starts the monitor, unless one runs. It is no child of this process, which becomes the program.
pub fn start(states: &Path) -> Outcome {
    if lock(states)?.is_none() {
        return Ok(());
    }
    let status = command(&["--start"])?.status().map_err(|error| cannot_start(&error))?;
    if status.success() { Ok(()) } else { Err(Failure::failed("the monitor of pipes does not start")) }
}

/// The lock of the one monitor. `None`: it runs.
fn lock(states: &Path) -> Result<Option<fs::File>, Failure> {
    let path = states.join("monitor.lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(|error| Failure::failed(format!("cannot open {}: {error}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(_) => Ok(None),
    }
}

/// Waits for processes that knock, and pairs what they use.
fn serve(states: &Path) -> io::Result<()> {
    let path: PathBuf = states.join("monitor.sock");
    let _ = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(CHECK_INTERVAL))?;
    let (mut pairing, mut busy_until) = (Pairing::default(), Instant::now() + IDLE_MAX);
    let mut byte = [0; 4];
    loop {
        let runs = match socket.recv(&mut byte) {
            Ok(_) => {
                std::thread::sleep(PAUSE_MIN);
                // One look serves all who have knocked by now.
                socket.set_nonblocking(true)?;
                while socket.recv(&mut byte).is_ok() {}
                socket.set_nonblocking(false)?;
                std::thread::sleep((pairing.pair(states) * PAUSE_FACTOR).min(PAUSE_MAX));
                true
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                observed::has_running(states)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        pairing.collect();
        if runs {
            busy_until = Instant::now() + IDLE_MAX;
        }
        // The directory may be gone, with its user's session.
        if Instant::now() > busy_until || !path.exists() {
            return Ok(());
        }
    }
}
