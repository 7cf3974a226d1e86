//! `flick`, the command line: compiles programs, runs them, and explains what is wrong with them.
//! Promises: exit codes as on any Unix tool (`failure.rs`); results on stdout, everything said to a person on stderr.
//! Not here: the subcommands (`commands/`, one file each), what an operator may set (`settings.rs`).
#![deny(unsafe_code)]

mod commands;

mod compile;
mod library;

mod settings;
mod sources;

mod confine;
mod logging;
mod notify;
mod supervise;
mod takeover;
mod watching;

mod failure;
mod report;

mod sys;

use std::process::ExitCode;

use clap::Parser;

/// The data path allocates nothing; the compiler and start-up do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sys::map_large_blocks();
    let cli = commands::Cli::parse();
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
