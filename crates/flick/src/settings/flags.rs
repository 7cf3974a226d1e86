//! The options of `flick run`.

use std::path::PathBuf;

use clap::Args;
use flick_runtime::Binding;

use super::addresses::{Connect, Part};
use super::health::HealthSettings;
use super::limits::{LimitSettings, TimeoutSettings};
use super::units::{Period, Workers};
use super::{Io, addresses};
use crate::access::Sample;
use crate::compile::EngineKind;
use crate::confine::{Confine, User};
use crate::logging::LogFormat;

/// What the command line says; `None` where it says nothing.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// The programs; without one, those of the settings file
    #[arg(value_name = "FILE")]
    pub programs: Vec<PathBuf>,
    /// Settings file [default without FILE: ./flick.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen for a channel of the process: `client=127.0.0.1:11211`, `client=unix:/run/x.sock`; for eight streams of
    /// an array that the process merges: `mappers=127.0.0.1:9000x8`. Where several services have a channel of that name:
    /// `SERVICE.client=...`
    #[arg(long, value_name = "CHANNEL=ADDRESS[,...]", value_parser = binding)]
    pub listen: Vec<Binding>,
    /// Connect a channel, or the elements of an array in order: `backends=127.0.0.1:11311,127.0.0.1:11312`
    /// A list that may change while the service runs is read from a file, `backends=file:PATH` (an address on each line), or
    /// from name servers: `backends=dns:NAME:PORT`, `backends=srv:_SERVICE._tcp.NAME`
    #[arg(long, value_name = "CHANNEL=ADDRESS[,...]", value_parser = connect)]
    pub connect: Vec<Connect>,
    /// The name server to ask [default: those of /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub resolver: Option<std::net::SocketAddr>,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N")]
    pub workers: Option<Workers>,
    /// Leave the choice of cores to the kernel
    #[arg(long)]
    pub no_pin: bool,
    /// Which kernel interface carries the bytes [default: auto]
    #[arg(long, value_name = "KIND")]
    pub io: Option<Io>,
    /// What runs the code [default: native]
    #[arg(long, value_name = "KIND")]
    pub engine: Option<EngineKind>,
    /// How long a drain may take after SIGTERM or SIGINT [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub drain_deadline: Option<Period>,
    /// How long clients that cannot change hands may stay with what was before a reload or an upgrade [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub reload_deadline: Option<Period>,
    /// How long a worker may not turn until `/healthz` says that it hangs; `0`: for ever [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub hang_after: Option<Period>,
    /// Reload whenever a program or the settings file changes
    #[arg(long)]
    pub watch: bool,
    /// Where dictionaries with a snapshot are kept across restarts [default: flick-state]
    #[arg(long, value_name = "DIRECTORY")]
    pub state_dir: Option<PathBuf>,
    /// Show metrics, health and a page here: `9900` (of this machine only), `ADDRESS:PORT`, `unix:PATH` [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<flick_admin::Address>,
    /// A file whose first line is the token that readers of the admin side must show
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Become this user once the sockets are open; only root can
    #[arg(long, value_name = "NAME[:GROUP]")]
    pub user: Option<User>,
    /// What the service gives up when it has started [default: on]
    #[arg(long, value_name = "HOW")]
    pub confine: Option<Confine>,
    /// How the log on stderr looks [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
    /// Write a line of JSON for each request that is answered to this file, or to standard output: `-`; SIGUSR1 opens it anew
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Of so many requests one is in the access log: `1/100` [default: 1, all of them]
    #[arg(long, value_name = "PART")]
    pub access_log_sample: Option<Sample>,
    /// Keep the names of compiled functions in /tmp/perf-PID.map, where perf looks for them
    #[arg(long)]
    pub perf_map: bool,
    /// Say more: where the time to start went, and what the service does
    #[arg(short, long)]
    pub verbose: bool,
    /// Health of backends.
    #[command(flatten)]
    pub health: HealthSettings,
    /// Limits.
    #[command(flatten)]
    pub limits: LimitSettings,
    /// Time-outs.
    #[command(flatten)]
    pub timeouts: TimeoutSettings,
}

/// The channel and what is said of it.
fn channel_of(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').filter(|(channel, _)| !channel.is_empty()).ok_or_else(|| {
        format!("`{text}` names no channel; write `CHANNEL=ADDRESS`, such as `client=127.0.0.1:11211`")
    })
}

/// Reads `CHANNEL=ADDRESS[,ADDRESS...]` or `CHANNEL=SOURCE`.
fn connect(text: &str) -> Result<Connect, String> {
    let (channel, list) = channel_of(text)?;
    let parts = list.split(',').map(|part| Part::parse(part.trim())).collect::<Result<Vec<_>, _>>()?;
    Connect::new(channel.to_owned(), &parts)
}

/// Reads `CHANNEL=ADDRESS[,ADDRESS...]`.
fn binding(text: &str) -> Result<Binding, String> {
    let (channel, addresses) = channel_of(text)?;
    let each = addresses.split(',').map(|address| addresses::parse(address.trim()));
    let endpoints = each.collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Binding::new(channel, endpoints))
}

#[cfg(test)]
mod tests {
    use super::binding;

    #[test]
    fn bindings_keep_the_order_of_their_addresses() {
        let read = binding("backends=127.0.0.1:2,[::1]:1,unix:/a.sock").expect("three addresses");
        let shown: Vec<_> = read.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(
            (read.channel.as_str(), shown.join(" ")),
            ("backends", "127.0.0.1:2 [::1]:1 unix:/a.sock".to_owned())
        );
        for wrong in ["127.0.0.1:1", "=127.0.0.1:1", "client=", "client=localhost:1", "client=127.0.0.1:1,"] {
            assert!(binding(wrong).is_err(), "{wrong}");
        }
    }
}
