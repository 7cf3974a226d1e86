//! `flick top`: a running service in the terminal, from the state that its admin side gives.
//! Promises: once a second; the terminal is as it was afterwards; `--once` prints the figures of one second and ends.
//! Not here: what the figures are (`top/figures.rs`), which of them a small screen shows (`top/layout.rs`).

mod figures;
mod layout;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use flick_admin::{Address, State, client};

use crate::commands::run::admin::read_token;
use crate::failure::{Failure, Outcome};
use figures::Figures;

/// Time between two states.
const EVERY: Duration = Duration::from_secs(1);

/// Shows a running service.
#[derive(Debug, Args)]
pub struct Top {
    /// Where its admin side listens: `9900`, `ADDRESS:PORT`, `unix:PATH`, as given to `flick run --admin`
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// The file with its token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the figures of one second and end
    #[arg(long)]
    once: bool,
}

impl Top {
    /// Shows it until `q`, or for a second.
    pub fn run(self) -> Outcome {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let read = || -> Result<State, Failure> {
            client::state(&self.address, token.as_deref()).map_err(|error| {
                Failure::failed(format!("cannot read the state at {}: {error}", self.address))
            })
        };
        let first = read()?;
        if self.once || !std::io::stdout().is_terminal() {
            std::thread::sleep(EVERY);
            let second = read()?;
            crate::console::say!("{}", Figures::of(&second, Some(&first)).text());
            return Ok(());
        }
        view::show(first, &read)
    }
}
