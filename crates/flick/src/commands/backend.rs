//! `flick backend`: lists the backends of a running process, drains them, puts them into maintenance, and changes their
//! weights and addresses, at the admin endpoint.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use flick_admin::state::BackendEntry;
use flick_admin::{Address, client};

use crate::commands::run::admin::read_token;
use crate::failure::{Failure, Outcome};

/// A request about the backends of a running process.
#[derive(Debug, Args)]
pub struct Backend {
    /// Address of the admin endpoint, as given to `flick run --admin`: `9900`, `ADDRESS:PORT`, `unix:PATH`
    #[arg(value_name = "ADDRESS")]
    admin: Address,
    /// Action; without one, the backends are listed
    #[arg(value_name = "ACTION", requires = "backend")]
    action: Option<Action>,
    /// Address of the backend as its list has it
    #[arg(value_name = "BACKEND")]
    backend: Option<String>,
    /// The weight, or the other address
    #[arg(value_name = "VALUE", required_if_eq_any = [("action", "weight"), ("action", "address")])]
    value: Option<String>,
    /// Only of this service
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only of this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// File with the token of the admin endpoint
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// An action on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// All requests, unless its weight is 0: its weight stays
    Ready,
    /// No new requests from `round_robin`, `least_loaded` and `two_choices`; requests whose key selects it continue
    Drain,
    /// No request; its connections are closed once the requests in flight are answered
    Maint,
    /// Set its weight; 0 is as `drain`
    Weight,
    /// Give it another address; its position in the list and its keys stay
    Address,
    /// Undo all changes
    Reset,
}

impl Backend {
    /// Sends the request and prints the result. Errors: why nothing has changed, as the process reports it.
    pub fn run(self) -> Outcome {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let failed =
            |error| Failure::failed(format!("cannot reach the admin endpoint at {}: {error}", self.admin));
        let Some((action, backend)) = self.action.zip(self.backend.as_deref()) else {
            let reply = client::get(&self.admin, "/api/backends", token.as_deref()).map_err(failed)?;
            return self.print(&reply);
        };
        let value = self.value.as_deref();
        if value.is_some() != matches!(action, Action::Weight | Action::Address) {
            return Err(Failure::usage("only `weight` and `address` have a value"));
        }
        let change = match action {
            Action::Ready => "mode=ready".to_owned(),
            Action::Drain => "mode=drain".to_owned(),
            Action::Maint => "mode=maint".to_owned(),
            Action::Weight => format!("weight={}", value.unwrap_or_default()),
            Action::Address => format!("address={}", value.unwrap_or_default()),
            Action::Reset => "reset=1".to_owned(),
        };
        let scope = [("service", &self.service), ("channel", &self.channel)];
        let scope = scope.iter().filter_map(|(name, value)| Some(format!("&{name}={}", value.as_ref()?)));
        let path = format!("/api/backends?backend={backend}&{change}{}", scope.collect::<String>());
        if path.contains(char::is_whitespace) {
            return Err(Failure::usage("an address, a service and a channel have no blanks"));
        }
        let reply = client::post(&self.admin, &path, token.as_deref()).map_err(failed)?;
        if reply.status != 200 {
            return Err(Failure::failed(client::refusal(&reply)));
        }
        crate::console::sayln!("{}", reply.body.trim_end());
        Ok(())
    }

    /// Prints the list of backends.
    fn print(&self, reply: &client::Reply) -> Outcome {
        if reply.status != 200 {
            return Err(Failure::failed(client::refusal(reply)));
        }
        let all: Vec<BackendEntry> = serde_json::from_str(&reply.body)
            .map_err(|error| Failure::failed(format!("the response is not a list of backends: {error}")))?;
        let is_wanted = |entry: &&BackendEntry| {
            self.service.as_ref().is_none_or(|service| *service == entry.service)
                && self.channel.as_ref().is_none_or(|channel| *channel == entry.channel)
        };
        for entry in all.iter().filter(is_wanted) {
            let BackendEntry { service, channel, element, backend, mode, weight, health, .. } = entry;
            let moved = Some(&entry.address).filter(|address| *address != backend);
            let moved = moved.map_or(String::new(), |address| format!(" at {address}"));
            let backup = if entry.is_backup { " backup" } else { "" };
            // A process of an earlier version does not say it.
            let health = if health.is_empty() { String::new() } else { format!(", {health}") };
            crate::console::sayln!(
                "{service}.{channel}[{element}] {backend}{moved} {mode} weight={weight}{backup}{health}"
            );
        }
        Ok(())
    }
}
