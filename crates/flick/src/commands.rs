//! The subcommands, one file each.

mod build;
mod check;
mod demo;
mod doc;
mod explain;
mod fmt;
mod reload;
pub mod run;
mod test;
mod top;

use clap::{Parser, Subcommand};

use crate::failure::Outcome;

/// Turns a page of typed, bounded code into a network service.
#[derive(Debug, Parser)]
#[command(name = "flick", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the tool can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Says whether a program is right, and what it needs
    Check(check::Check),
    /// Runs a program as a service
    Run(Box<run::Run>),
    /// Writes what the compiler makes of a program
    Build(build::Build),
    /// Tells a running service to read its programs and settings again
    Reload(reload::Asked),
    /// Has the binary that lies there now take a running service's place, with its listening sockets and clients
    Upgrade(reload::Asked),
    /// Shows a running service in the terminal
    Top(top::Top),
    /// Plays the scenarios beside a program in the simulator
    Test(test::Test),
    /// Gives programs their one layout
    Fmt(fmt::Fmt),
    /// Writes a grammar or library as a page of HTML
    Doc(doc::Doc),
    /// Explains an error code
    Explain(explain::Explain),
    /// Shows a memcached proxy at work: stores, proxy and load in one process
    Demo(demo::Demo),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Outcome {
        match self {
            Command::Check(check) => check.run(),
            Command::Run(run) => run.run(),
            Command::Build(build) => build.run(),
            Command::Reload(asked) => asked.reload(),
            Command::Upgrade(asked) => asked.upgrade(),
            Command::Top(top) => top.run(),
            Command::Test(test) => test.run(),
            Command::Fmt(fmt) => fmt.run(),
            Command::Doc(doc) => doc.run(),
            Command::Explain(explain) => explain.run(),
            Command::Demo(demo) => demo.run(),
        }
    }
}
