//! `flick`, the command line: compiles, checks and runs programs.
//! Promises: exit statuses as in `failure.rs`; results on standard output, messages on standard error.
//! Not here: the subcommands (`commands/`, one file each), the settings (`settings.rs`).
#![deny(unsafe_code)]

mod commands;
mod descriptors;

mod settings;

mod access;
mod file_watcher;
mod hot_restart;
mod launcher;
mod logging;
mod notify;
mod perf_map;
mod sandbox;
mod state_dir_lock;
mod supervise;

mod console;
mod failure;
mod replace_file;
mod report;
mod version;

mod sys;

use std::process::ExitCode;

fn main() -> ExitCode {
    let held = sys::HeldSignals::hold();
    sys::configure_allocator();
    let code = match commands::Cli::from_arguments().and_then(|cli| cli.command.run(held)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    };
    logging::background::flush();
    code
}
