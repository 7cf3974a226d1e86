//! Directories of one figure, in which `flick accel` keeps states, and the programs that run.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use crate::cli::AccelArgs;
use crate::process::{Children, ScratchDir, workspace};

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
    files: Vec<SeenFile>,
}

/// File of a process there.
#[derive(Debug, Deserialize)]
struct SeenFile {
    sent: u64,
    received: u64,
    /// Of these, through a ring.
    ring_bytes: u64,
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

    /// The same for a program that makes code as it runs.
    pub(super) fn command_with_jit(&self, side: Mode, program: impl AsRef<OsStr>) -> Command {
        if side != Mode::Accelerated {
            return Command::new(program);
        }
        let mut command = self.flick();
        command.args(["--move", "--jit", "--"]).arg(program);
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

    /// Notes which part of the bytes of open files went through rings. Does nothing in a round that is timed.
    pub(super) fn note_rings(&self) -> io::Result<()> {
        if !self.looks.get() {
            return Ok(());
        }
        let output = self.flick().args(["--status", "--json"]).output()?;
        let seen: Vec<Seen> = serde_json::from_slice(&output.stdout)?;
        let files = || seen.iter().flat_map(|process| &process.files);
        let rings: u64 = files().map(|file| file.ring_bytes).sum();
        let all: u64 = files().map(|file| file.sent + file.received).sum();
        self.share.set(self.share.get().max(rings as f64 / all.max(1) as f64));
        Ok(())
    }

    /// Runs a client to its end, notes the part meanwhile, and returns what it prints.
    pub(super) fn output(&self, command: &mut Command) -> io::Result<Output> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        while self.looks.get() && child.try_wait()?.is_none() {
            self.note_rings()?;
        }
        child.wait_with_output()
    }

    /// Notes it again and again until all programs have ended.
    pub(super) fn look_until_ended(&self, programs: &mut Children) -> io::Result<()> {
        if self.looks.get() { programs.look_until_ended(|| self.note_rings()) } else { Ok(()) }
    }

    /// Returns the part of the bytes that went through rings, and ends looking.
    pub(super) fn ring_share(&self) -> f64 {
        self.looks.set(false);
        self.share.get()
    }
}
