//! `flick top`: shows a running process in the terminal, from the state of its admin endpoint.
//! Promises: updates every second; restores the terminal; `--once`, or a build without the feature `tui`, prints the
//! figures of one second and exits.
//! Not here: the figures (`top/figures.rs`), their layout on a small screen (`top/layout.rs`).

mod figures;
#[cfg(feature = "tui")]
mod layout;
#[cfg(feature = "tui")]
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
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
}

impl Top {
    /// Shows the process until `q`, or for a second.
    pub fn run(self) -> Outcome {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let read = || -> Result<StateReport, Failure> {
            client::state(&self.address, token.as_deref()).map_err(|error| {
                Failure::failed(format!("cannot read the state at {}: {error}", self.address))
            })
        };
        let first = read()?;
        if !self.once && std::io::stdout().is_terminal() {
            #[cfg(feature = "tui")]
            return view::show(first, &read);
            #[cfg(not(feature = "tui"))]
            anstream::eprintln!(
                "note: flick is built without its feature `tui`; these are the figures of one second"
            );
        }
        std::thread::sleep(INTERVAL);
        let second = read()?;
        crate::console::say!("{}", Figures::of(&second, Some(&first)).text());
        Ok(())
    }
}
