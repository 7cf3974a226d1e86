//! `flick`, the command line: compiles programs, runs them, and explains what is wrong with them.
//! Promises: exit codes as on any Unix tool (`failure.rs`); results on stdout, everything said to a person on stderr.
//! Not here: the subcommands (`commands/`, one file each), what an operator may set (`settings.rs`).
#![deny(unsafe_code)]

mod commands;

mod compile;
mod library;

mod settings;
mod sources;

mod access;
mod confine;
mod holding;
mod logging;
mod notify;
mod perf_map;
mod supervise;
mod takeover;
mod watching;

mod console;
mod failure;
mod report;

mod sys;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    sys::set_up_memory();
    let cli = commands::Cli::parse();
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
