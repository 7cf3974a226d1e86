//! Directories of one figure, in which `flick accel` keeps states, and the programs that run.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::cli::AccelArgs;
use crate::process::{ScratchDir, workspace};

/// Longest time that a step of a figure takes.
pub(super) const STEP_TIME_MAX: Duration = Duration::from_secs(120);
/// Pause between two looks whether it is over.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// Name of the compiled programs.
const PROGRAMS: &str = "programs";

/// Way to start the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Accelerated,
    Plain,
    /// Plain, with connections of TCP in place of pipes.
    PlainTcp,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Accelerated => "accelerated",
            Mode::Plain => "plain",
            Mode::PlainTcp => "plain, TCP",
        }
    }
}

/// Process in `flick accel --status --json`.
#[derive(Debug, Deserialize)]
struct Seen {
    ring_bytes: u64,
    files: Vec<SeenFile>,
}

/// File of a process there.
#[derive(Debug, Deserialize)]
struct SeenFile {
    sent: u64,
    received: u64,
}

/// Directories of one figure, and the part of its bytes that went through rings.
pub(super) struct Setting<'a> {
    pub(super) args: &'a AccelArgs,
    pub(super) scratch: ScratchDir,
    looks: Cell<bool>,
    share: Cell<f64>,
}

impl<'a> Setting<'a> {
    pub(super) fn new(args: &'a AccelArgs) -> io::Result<Self> {
        let scratch = ScratchDir::new("accel")?;
        for name in ["run", "cache"] {
            std::fs::create_dir_all(scratch.0.join(name))?;
        }
        let source = workspace().join("bench/scenarios/accel/programs.c");
        let status =
            Command::new("cc").args(["-O2", "-o"]).arg(scratch.0.join(PROGRAMS)).arg(source).status()?;
        if !status.success() {
            return Err(io::Error::other("cc cannot compile the programs"));
        }
        Ok(Self { args, scratch, looks: Cell::new(false), share: Cell::new(0.0) })
    }

    /// Path of the compiled programs. What the compiler of Rust makes of this crate would not do: a dependency makes
    /// system calls of its own, so `flick accel` moves nothing of it.
    pub(super) fn programs(&self) -> PathBuf {
        self.scratch.0.join(PROGRAMS)
    }

    /// A command of this side.
    pub(super) fn command(&self, side: Mode, program: impl AsRef<OsStr>) -> Command {
        if side != Mode::Accelerated {
            return Command::new(program);
        }
        let mut command = self.flick();
        command.args(["--move", "--"]).arg(program);
        command
    }

    fn flick(&self) -> Command {
        let mut command = Command::new(self.args.run.flick.path());
        command.env("XDG_RUNTIME_DIR", self.scratch.0.join("run"));
        command.env("XDG_CACHE_HOME", self.scratch.0.join("cache")).arg("accel");
        command
    }

    /// Has [`Setting::note_rings`] look from now on.
    pub(super) fn look_at_rings(&self) {
        self.looks.set(true);
    }

    /// Notes which part of the bytes of running processes went through rings. Does nothing in a round that is timed.
    pub(super) fn note_rings(&self) -> io::Result<()> {
        if !self.looks.get() {
            return Ok(());
        }
        let output = self.flick().args(["--status", "--json"]).output()?;
        let seen: Vec<Seen> = serde_json::from_slice(&output.stdout)?;
        let rings: u64 = seen.iter().map(|process| process.ring_bytes).sum();
        let all: u64 =
            seen.iter().flat_map(|process| &process.files).map(|file| file.sent + file.received).sum();
        self.share.set(self.share.get().max(rings as f64 / all.max(1) as f64));
        Ok(())
    }

    /// Returns the part of the bytes that went through rings, and ends looking.
    pub(super) fn ring_share(&self) -> f64 {
        self.looks.set(false);
        self.share.get()
    }
}

/// Programs that are killed and reaped when this is dropped.
#[derive(Default)]
pub(super) struct Programs(Vec<Child>);

impl Programs {
    pub(super) fn start(&mut self, command: &mut Command) -> io::Result<()> {
        self.0.push(command.spawn()?);
        Ok(())
    }

    /// Returns what `look` finds, unless a program fails or the time is up before.
    pub(super) fn until<T>(&mut self, mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
        let deadline = Instant::now() + STEP_TIME_MAX;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            for child in &mut self.0 {
                if child.try_wait()?.is_some_and(|status| !status.success()) {
                    return Err(io::Error::other("a program failed"));
                }
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("a program does not answer"));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// Waits until all have ended with success, and looks at rings meanwhile.
    pub(super) fn finish(mut self, setting: &Setting<'_>) -> io::Result<()> {
        for child in &mut self.0 {
            while setting.looks.get() && child.try_wait()?.is_none() {
                setting.note_rings()?;
                std::thread::sleep(LOOK_PAUSE);
            }
            let status = child.wait()?;
            if !status.success() {
                return Err(io::Error::other(format!("a program ended with {status}")));
            }
        }
        self.0.clear();
        Ok(())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the child has ended by itself, and then it only has to be reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
