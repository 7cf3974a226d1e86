//! `flick reload` and `flick upgrade`: tell a running service to read its programs and settings again, or to have a new
//! process take its place, and say what came of it.

use std::path::PathBuf;

use clap::Args;
use flick_admin::{Address, client};

use crate::commands::run::admin::read_token;
use crate::failure::{Failure, Outcome};

/// Which service is asked.
#[derive(Debug, Args)]
pub struct Asked {
    /// Where its admin side listens: `9900`, `ADDRESS:PORT`, `unix:PATH`, as given to `flick run --admin`
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// The file with its token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Asked {
    /// Asks for a reload. Errors: why nothing has changed, in the words of the service.
    pub fn reload(self) -> Outcome {
        ask(&self.address, self.token_file.as_deref(), "/api/reload")
    }

    /// Asks for a new process. Errors: why the old one goes on, in its words.
    pub fn upgrade(self) -> Outcome {
        ask(&self.address, self.token_file.as_deref(), "/api/upgrade")
    }
}

/// Asks a running service for something, and prints what came of it.
fn ask(address: &Address, token_file: Option<&std::path::Path>, path: &str) -> Outcome {
    let token = token_file.map(read_token).transpose()?;
    let reply = client::post(address, path, token.as_deref())
        .map_err(|error| Failure::failed(format!("cannot ask the service at {address}: {error}")))?;
    match reply.status {
        200 => {
            crate::console::sayln!("{}", reply.body.trim_end());
            Ok(())
        }
        _ => Err(Failure::failed(reply.body)),
    }
}
