//! `flick reload` and `flick upgrade`: request a reload or a hot restart at the admin endpoint and print the result.

use std::path::PathBuf;

use clap::Args;
use flick_admin::{Address, client};

use crate::commands::run::admin::read_token;
use crate::failure::{Failure, Outcome};

/// A request to a running process.
#[derive(Debug, Args)]
pub struct AdminRequest {
    /// Address of the admin endpoint, as given to `flick run --admin`: `9900`, `ADDRESS:PORT`, `unix:PATH`
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// File with the token of the admin endpoint
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AdminRequest {
    /// Requests a reload. Errors: why nothing has changed, as the process reports it.
    pub fn reload(self) -> Outcome {
        post(&self.address, self.token_file.as_deref(), "/api/reload")
    }

    /// Requests a hot restart. Errors: why the old process goes on, as it reports it.
    pub fn upgrade(self) -> Outcome {
        post(&self.address, self.token_file.as_deref(), "/api/upgrade")
    }
}

/// Sends a request and prints the result.
fn post(address: &Address, token_file: Option<&std::path::Path>, path: &str) -> Outcome {
    let token = token_file.map(read_token).transpose()?;
    let reply = client::post(address, path, token.as_deref())
        .map_err(|error| Failure::failed(format!("cannot reach the admin endpoint at {address}: {error}")))?;
    match reply.status {
        200 => {
            crate::console::sayln!("{}", reply.body.trim_end());
            Ok(())
        }
        _ => Err(Failure::failed(client::refusal(&reply))),
    }
}
