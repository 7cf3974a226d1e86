//! The options of `flick run`.

use std::path::PathBuf;

use clap::Args;
use flick_compiler::EngineKind;
use flick_discovery::address::parse_endpoints;
use flick_runtime::Binding;

use super::addresses::{Connect, ConnectTarget, name_server};
use super::deprecated::Deprecated;
use super::following::TuneSettings;
use super::health::HealthSettings;
use super::limits::{LimitSettings, TimeoutSettings};
use super::units::{CountOrZero, Period, Size, Workers};
use super::{Io, Shm};
use crate::access::{FieldNames, Sample};
use crate::logging::LogFormat;
use crate::sandbox::{SandboxMode, User};

/// Help headings.
const CHANNELS: &str = "Channels";
const PROCESS: &str = "Process";
const LIFECYCLE: &str = "Reload and shutdown";
const OBSERVABILITY: &str = "Admin endpoint and logs";

/// The command line of `flick run`; `None` is an option that is not given.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// Programs to run as services. [default: those of the settings file]
    #[arg(value_name = "FILE")]
    pub programs: Vec<PathBuf>,
    /// File with the settings. [default: ./flick.toml, if no FILE is given]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen for connections to a channel: `client=127.0.0.1:11211`, `client=unix:/run/x.sock`,
    /// `client=shm:NAME`; a filter reads `in=stdin:`, `in=fd:3` or `in=pipe:PATH`. For an array that the process
    /// merges, `mappers=127.0.0.1:9000x8` is eight streams. Write `SERVICE.CHANNEL` if several services have a channel
    /// of that name. [default: none]
    #[arg(long, value_name = "CHANNEL=ADDRESS[,...]", value_parser = binding, help_heading = CHANNELS)]
    pub listen: Vec<Binding>,
    /// Connect a channel to backends, in order: `backends=127.0.0.1:11311,127.0.0.1:11312 weight=2`; a filter writes to
    /// `out=stdout:`, `out=fd:4` or `out=pipe:PATH`. A list that changes at run time comes from a file
    /// (`backends=file:PATH`, one address per line) or from DNS (`backends=dns:NAME:PORT`,
    /// `backends=srv:_SERVICE._tcp.NAME`). [default: none]
    #[arg(long, value_name = "CHANNEL=BACKEND[,...]", value_parser = connect, help_heading = CHANNELS)]
    pub connect: Vec<Connect>,
    /// DNS server for `dns:` and `srv:`. [default: those of /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = name_server, help_heading = CHANNELS)]
    pub resolver: Option<std::net::SocketAddr>,
    /// File in which what `flick backend` changes survives a restart. [default: none]
    #[arg(long, value_name = "FILE", help_heading = CHANNELS)]
    pub backend_state_file: Option<PathBuf>,
    /// Number of worker threads. [default: one per core]
    #[arg(long, value_name = "N", help_heading = PROCESS)]
    pub workers: Option<Workers>,
    /// Do not bind each worker to a core; the kernel places them.
    #[arg(long, help_heading = PROCESS)]
    pub no_cpu_affinity: bool,
    /// Kernel interface for network I/O. Kept connections cost the same with both; long bodies cost a fifth less with
    /// io_uring, and connections of one request each a tenth less with epoll. [default: auto]
    #[arg(long, value_name = "BACKEND", help_heading = PROCESS)]
    pub io: Option<Io>,
    /// Use of shared memory in place of pipes and sockets between flick processes of this host.
    /// [default: auto, or pipes before Linux 6.16]
    #[arg(long, value_name = "MODE", help_heading = PROCESS)]
    pub shm: Option<Shm>,
    /// Engine that executes the compiled program. [default: native]
    #[arg(long, value_name = "ENGINE", help_heading = PROCESS)]
    pub engine: Option<EngineKind>,
    /// User to switch to once the sockets are open. Only root can switch. [default: none]
    #[arg(long, value_name = "USER[:GROUP]", help_heading = PROCESS)]
    pub user: Option<User>,
    /// Sandbox of the process, Landlock and seccomp, once it has started. [default: on]
    #[arg(long, value_name = "MODE", help_heading = PROCESS)]
    pub sandbox: Option<SandboxMode>,
    /// Directory in which dictionaries with a `snapshot` survive restarts. One process at a time uses it. It is created
    /// if it is missing, but not its parent.
    /// [default: flick-state]
    #[arg(long, value_name = "DIR", help_heading = PROCESS)]
    pub state_dir: Option<PathBuf>,
    /// Longest graceful shutdown after SIGTERM or SIGINT. Connections still open are then closed. [default: 10s]
    #[arg(long, value_name = "DURATION", help_heading = LIFECYCLE)]
    pub shutdown_timeout: Option<Period>,
    /// Check the settings and the programs as a start would, without starting anything, and exit.
    #[arg(long, help_heading = LIFECYCLE)]
    pub check: bool,
    /// Longest time that the old generation serves its remaining clients after a reload or an upgrade. [default: 10m]
    #[arg(long, value_name = "DURATION", help_heading = LIFECYCLE)]
    pub old_generation_timeout: Option<Period>,
    /// Time without an event-loop iteration after which a worker counts as stalled and `/healthz` answers 503.
    /// 0 disables. [default: 5s]
    #[arg(long, value_name = "DURATION", help_heading = LIFECYCLE)]
    pub watchdog_timeout: Option<Period>,
    /// Reload when a program or the settings file changes.
    #[arg(long, help_heading = LIFECYCLE)]
    pub watch: bool,
    /// Address of the admin endpoint (metrics, health, admin page): `9900` on the loopback, `ADDRESS:PORT`,
    /// `unix:PATH`. [default: none]
    #[arg(long, value_name = "ADDRESS", help_heading = OBSERVABILITY)]
    pub admin: Option<flick_admin::Address>,
    /// File whose first line is the bearer token of the admin endpoint. [default: none]
    #[arg(long, value_name = "FILE", help_heading = OBSERVABILITY)]
    pub admin_token_file: Option<PathBuf>,
    /// File whose first line is a bearer token that may read at the admin endpoint and change nothing. [default: none]
    #[arg(long, value_name = "FILE", help_heading = OBSERVABILITY)]
    pub admin_read_token_file: Option<PathBuf>,
    /// Format of the log on standard error. [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = OBSERVABILITY)]
    pub log: Option<LogFormat>,
    /// File of the access log, one line of JSON per request; `-` is standard output. SIGUSR1 reopens it.
    /// [default: none]
    #[arg(long, value_name = "FILE", help_heading = OBSERVABILITY)]
    pub access_log: Option<PathBuf>,
    /// Ratio of requests in the access log: `1/100` logs one in a hundred. [default: 1]
    #[arg(long, value_name = "RATIO", help_heading = OBSERVABILITY)]
    pub access_log_sample: Option<Sample>,
    /// Fields of requests in the access log, at most 8: `User-Agent,X-Request-Id`. Values are cut to 200 bytes.
    /// [default: none]
    #[arg(long, value_name = "NAME[,NAME...]", help_heading = OBSERVABILITY)]
    pub access_log_fields: Option<FieldNames>,
    /// Size from which the access log is rotated: FILE becomes FILE.1. 0B disables. [default: 0B]
    #[arg(long, value_name = "SIZE", help_heading = OBSERVABILITY)]
    pub access_log_max_size: Option<Size>,
    /// Number of old files that rotation by `--access-log-max-size` keeps. [default: 5]
    #[arg(long, value_name = "N", help_heading = OBSERVABILITY)]
    pub access_log_keep: Option<CountOrZero>,
    /// Write the names of compiled functions to /tmp/perf-PID.map for perf.
    #[arg(long, help_heading = OBSERVABILITY)]
    pub perf_map: bool,
    /// Log at level `debug`, and print how long each compiler phase took.
    #[arg(short, long, help_heading = OBSERVABILITY)]
    pub verbose: bool,
    /// Backend health.
    #[command(flatten)]
    pub health: HealthSettings,
    /// Limits.
    #[command(flatten)]
    pub limits: LimitSettings,
    /// Timeouts.
    #[command(flatten)]
    pub timeouts: TimeoutSettings,
    /// Tunables that follow the load.
    #[command(flatten)]
    pub tune: TuneSettings,
    /// The program, if it is part of this binary; `programs` is then its name.
    #[arg(skip)]
    pub embedded: Option<EmbeddedProgram>,
    /// Deprecated options that were given.
    #[arg(skip)]
    pub deprecated: Vec<Deprecated>,
}

/// A program that is part of this binary.
#[derive(Clone, Debug)]
pub struct EmbeddedProgram {
    /// Its text.
    pub text: &'static str,
    /// Names and texts of the files that it uses.
    pub libraries: Vec<(&'static str, String)>,
    /// Remedy for its dictionaries in errors about memory.
    pub dictionary_remedy: &'static str,
}

/// Splits `CHANNEL=...`.
fn channel_of(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').filter(|(channel, _)| !channel.is_empty()).ok_or_else(|| {
        format!("`{text}` has no channel; write `CHANNEL=ADDRESS`, such as `client=127.0.0.1:11211`")
    })
}

/// Parses `CHANNEL=BACKEND[,BACKEND...]` or `CHANNEL=SOURCE`.
fn connect(text: &str) -> Result<Connect, String> {
    let (channel, list) = channel_of(text)?;
    let targets =
        list.split(',').map(|item| ConnectTarget::parse(item.trim())).collect::<Result<Vec<_>, _>>()?;
    Connect::new(channel.to_owned(), &targets)
}

/// Parses `CHANNEL=ADDRESS[,ADDRESS...]`.
pub fn binding(text: &str) -> Result<Binding, String> {
    let (channel, addresses) = channel_of(text)?;
    let each = addresses.split(',').map(|address| parse_endpoints(address.trim()));
    let endpoints = each.collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Binding::new(channel, endpoints))
}

#[cfg(test)]
mod tests {
    use super::binding;

    #[test]
    fn binding_keeps_the_order_of_addresses() {
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
