//! `flick top`: shows a running process in the terminal, from the state of its admin endpoint.
//! Promises: updates every second; restores the terminal; `--once`, or a build without the feature `tui`, prints the
//! figures of one second and exits.
//! Not here: the figures (`top/figures.rs`), their layout on a small screen (`top/layout.rs`).

mod figures;
#[cfg(feature = "tui")]
mod layout;
#[cfg(feature = "tui")]
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use flick_admin::state::Sessions;
use flick_admin::{Address, StateReport, client};

use crate::commands::run::admin::read_token;
use crate::failure::{Failure, Outcome};
use figures::Figures;

/// Time between two states.
const INTERVAL: Duration = Duration::from_secs(1);

/// Show a running process.
#[derive(Debug, Args)]
pub struct Top {
    /// Address of the admin endpoint, as given to `flick run --admin`: `9900`, `ADDRESS:PORT`, `unix:PATH`
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// File with the token of the admin endpoint
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the figures of one second and exit
    #[arg(long)]
    once: bool,
    /// Also list connections: what carries their bytes, wake-ups, and why not shared memory (up to 64 clients and 64
    /// connections to backends of each worker)
    #[arg(long)]
    connections: bool,
}

/// State of a process at one moment.
struct Observed {
    state: StateReport,
    /// Empty unless asked for: each request costs the workers a little.
    connections: Sessions,
}

impl Top {
    /// Shows the process until `q`, or for a second.
    pub fn run(self) -> Outcome {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let (address, lists_connections) = (self.address, self.connections);
        let read = move || -> Result<Observed, Failure> {
            let failed = |error| Failure::failed(format!("cannot read the state at {address}: {error}"));
            let state = client::state(&address, token.as_deref()).map_err(failed)?;
            let connections = if lists_connections {
                client::sessions(&address, token.as_deref()).map_err(failed)?
            } else {
                Sessions::default()
            };
            Ok(Observed { state, connections })
        };
        let first = read()?;
        if !self.once && crate::console::has_screen() {
            #[cfg(feature = "tui")]
            return view::show(first, read);
            #[cfg(not(feature = "tui"))]
            anstream::eprintln!(
                "note: flick is built without its feature `tui`; these are the figures of one second"
            );
        }
        std::thread::sleep(INTERVAL);
        let second = read()?;
        crate::console::say!(
            "{}",
            Figures::of(&second.state, Some(&first.state), &second.connections).text()
        );
        Ok(())
    }
}
