//! `flick accel`: starts an unmodified program with the library that sees its calls, and shows what was seen.
//! Promises: the program runs as it would without, with the descriptors and signals that this process has inherited;
//! where its calls cannot be seen, that is said and nothing else changes.
//! Not here: the process that pairs pipes (`accel/monitor.rs`); the library (`crates/flick-preload`); its patched text
//! (`accel/patched_text.rs`); where both are kept (`accel/install.rs`).

mod elf;
mod holders;
mod install;
pub mod monitor;
mod observed;
mod pairing;
mod patched_text;
mod program;
mod socket_peers;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use flick_preload::state::{MOVES, MOVES_GENERATED};

use crate::console::say;
use crate::failure::{Failure, Outcome};
use crate::sys;

/// Start a program so that its connections are counted.
#[derive(Debug, Args)]
pub struct Accel {
    /// Show the processes that were started so, and their connections
    #[arg(long, conflicts_with_all = ["program", "why", "verify", "moves"])]
    status: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["program", "verify", "libc"])]
    json: bool,
    /// Say what is seen of a process, and what is not and why
    #[arg(long, value_name = "PID", conflicts_with_all = ["program", "verify"])]
    why: Option<u32>,
    /// Compare the counts of every connection of TCP with the kernel's when it is closed
    #[arg(long)]
    verify: bool,
    /// Move pipes and connections between programs that are started so to shared memory (experimental)
    #[arg(long = "move")]
    moves: bool,
    /// With --move, also of programs that make code as they run (node, Java): you say that it makes no system calls
    #[arg(long, requires = "moves")]
    jit: bool,
    /// Show which call sites of a libc are seen, and which are not
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "status", "why", "verify"])]
    libc: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present_any = ["status", "why", "libc"], value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Accel {
    /// Starts the program in place of this process, or shows what was seen.
    pub fn run(self) -> Outcome {
        if let Some(libc) = &self.libc {
            let sites = install::patched_text(libc);
            let sites = sites.map_err(|why| Failure::failed(format!("{}: {why}", libc.display())))?;
            say!("{}", status::sites(&sites));
            return Ok(());
        }
        if self.status {
            let states = install::state_directory()?;
            observed::remove_ended(&states, true);
            return status::show(&observed::all(&states)?, self.json);
        }
        if let Some(pid) = self.why {
            return status::why(pid, &install::state_directory()?, self.json);
        }
        let (program, arguments) = self.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
        if let Some(why) = program::find(program).and_then(|path| program::why_not_seen(&path)) {
            anstream::eprintln!("note: calls of `{}` are not seen: {why}", program.display());
        }
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        if let Err(failure) = self.let_be_seen(&mut command) {
            anstream::eprintln!("note: calls of `{}` are not seen: {}", program.display(), failure.text());
        }
        let error = sys::exec_as_inherited(command);
        Err(Failure::not_started(format!("cannot start `{}`: {error}", program.display()), &error))
    }

    /// Prepares the library, and has the program load it.
    ///
    /// Errors: a directory cannot be written to; the program is to run all the same.
    fn let_be_seen(&self, command: &mut std::process::Command) -> Outcome {
        install::check_file_limit()?;
        let (states, library) = (install::state_directory()?, install::library()?);
        observed::remove_ended(&states, self.verify);
        command.env("LD_PRELOAD", preload(library)).env("FLICK_ACCEL_STATE", &states);
        if self.verify {
            command.env("FLICK_ACCEL_VERIFY", "1");
        }
        if self.moves {
            // Without permits waits sleep earlier, no more.
            let _ = install::polling_permits(&states);
            monitor::start(&states)?;
            command.env("FLICK_ACCEL_MOVE", (if self.jit { MOVES_GENERATED } else { MOVES }).to_string());
        }
        Ok(())
    }
}

/// The value of `LD_PRELOAD`: the library, then those that are in it.
fn preload(library: PathBuf) -> OsString {
    let mut value = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}
