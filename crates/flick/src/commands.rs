//! The subcommands, one file each.

mod accel;
mod backend;
mod build;
mod check;
mod demo;
mod doc;
mod explain;
mod fmt;
pub mod load;
mod reload;
pub mod run;
mod store;
mod tap;
mod test;
mod top;
mod tune;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::console;
use crate::failure::{Failure, Outcome};
use crate::launcher::LauncherCommand;
use crate::settings::deprecated;
use crate::sys::HeldSignals;
use crate::version;

/// flick: a typed, bounded language for network services, and the platform that runs them.
#[derive(Debug, Parser)]
#[command(name = "flick", version = version::LINE, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a program, and compute its resource bounds
    Check(check::Check),
    /// Run programs as services
    Run(Box<run::Run>),
    /// Run a memcached-compatible cache: binary, text and meta protocol at one address
    Store(Box<store::Store>),
    /// Print the IR, machine code or task graph of a program
    Build(build::Build),
    /// Reload the programs and settings of a running process
    Reload(reload::AdminRequest),
    /// Hot restart: replace a running process by the current binary, with its listening sockets and clients
    Upgrade(reload::AdminRequest),
    /// List the backends of a running process, drain them, put them into maintenance, change weight or address
    Backend(backend::Backend),
    /// Start a program so that its connections are counted, and moved to shared memory (experimental)
    ///
    /// Connections and pipes of the program are observed, and their bytes counted. Without `--move` nothing is moved,
    /// and nothing becomes faster; with it, pipes and connections between programs that are started so move to shared
    /// memory. Linux on x86-64, programs with glibc.
    Accel(accel::Accel),
    /// Pair the pipes and connections of programs that `flick accel --move` has started; it starts by itself
    #[command(hide = true)]
    Monitor(accel::monitor::Monitor),
    /// Show what passes through the connections of a running process, as messages or bytes
    Tap(tap::TapCommand),
    /// Show a running process in the terminal
    Top(top::Top),
    /// Search settings that serve a load within an SLA for the least energy, of a running service or on a model
    Tune(Box<tune::Tune>),
    /// Run the scenarios of a program in the simulator
    Test(test::Test),
    /// Format programs
    Fmt(fmt::Fmt),
    /// Render a grammar or library as HTML
    Doc(doc::Doc),
    /// Explain an error code
    Explain(explain::Explain),
    /// Put load on a server of HTTP, memcached or Redis, check every reply, and measure
    Load(Box<load::Load>),
    /// Show a memcached proxy under load: backends, proxy and clients in one process
    Demo(demo::Demo),
    /// Start the new process of an upgrade on behalf of a service
    #[command(hide = true)]
    Launcher(LauncherCommand),
}

impl Cli {
    /// Parses the arguments of the process. Exits with a message if they are wrong.
    ///
    /// Errors: an option is given by its deprecated and its new name.
    pub fn from_arguments() -> Result<Self, Failure> {
        let translated = deprecated::translate_arguments(std::env::args_os());
        let (arguments, deprecated) = translated.map_err(|twice| Failure::usage(twice.message))?;
        let parsed = Self::try_parse_from(&arguments);
        let mut cli = parsed.unwrap_or_else(|error| console::exit_with(&suggest(error, &arguments)));
        if let Command::Run(run) = &mut cli.command {
            run.flags.deprecated = deprecated;
        }
        Ok(cli)
    }
}

/// Replaces the suggestion for an unknown option, which clap chooses by a prefix in common, by the option that is
/// spelled most alike.
fn suggest(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) if is_unknown => {
            unknown.trim_start_matches('-').replace('_', "-")
        }
        _ => return error,
    };
    let command = Cli::command();
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let subcommand = command.find_subcommand(name).unwrap_or(&command);
    let known: Vec<&str> = subcommand.get_arguments().filter_map(clap::Arg::get_long).collect();
    let renamed = deprecated::new_option(&unknown).filter(|_| name == "run");
    let exact = known.iter().copied().find(|known| *known == unknown);
    let suggested = exact.or(renamed).or_else(|| flick_check::similar(&unknown, known));
    error.remove(ContextKind::SuggestedArg);
    let of_run = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    if name == "store"
        && exact.is_none()
        && of_run.filter_map(clap::Arg::get_long).any(|known| known == unknown)
    {
        let tip = format!("options of `flick run` go behind `--`: `flick store -- --{unknown} ...`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return error;
    }
    if let Some(suggested) = suggested {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{suggested}")));
    }
    error
}

impl Command {
    /// Runs the subcommand. A service gets the held signals once it has handlers for them.
    pub fn run(self, held: HeldSignals) -> Outcome {
        let handles = matches!(self, Command::Run(_) | Command::Store(_) | Command::Launcher(_));
        let held = handles.then_some(held);
        match self {
            Command::Check(check) => check.run(),
            Command::Run(run) => run.run(held),
            Command::Store(store) => store.run(held),
            Command::Build(build) => build.run(),
            Command::Reload(request) => request.reload(),
            Command::Upgrade(request) => request.upgrade(),
            Command::Backend(backend) => backend.run(),
            Command::Accel(accel) => accel.run(),
            Command::Monitor(monitor) => monitor.run(),
            Command::Tap(tap) => tap.run(),
            Command::Top(top) => top.run(),
            Command::Tune(tune) => tune.run(),
            Command::Test(test) => test.run(),
            Command::Fmt(fmt) => fmt.run(),
            Command::Doc(doc) => doc.run(),
            Command::Explain(explain) => explain.run(),
            Command::Load(load) => load.run(),
            Command::Demo(demo) => demo.run(),
            Command::Launcher(launcher) => launcher.run(held),
        }
    }
}
