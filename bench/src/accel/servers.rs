//! Servers of Debian: redis, and nginx before wrk. Clients are started as the server is, or stay plain.

use std::io;
use std::process::{Command, Stdio};

use super::setting::{Mode, Setting};
use crate::process::{Server, free_addr};
use crate::rivals::nginx as nginx_command;
use crate::wrk;

/// Figures of a round of servers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    /// Answers per second.
    pub(super) rate: f64,
    /// Processor time of all servers for an answer, in µs.
    pub(super) cpu_us: f64,
    /// The kernel's part of it.
    pub(super) kernel_share: f64,
}

/// The page of nginx.
const NGINX: &str = include_str!("../../rivals/nginx-backend.conf");
/// Requests for each second of a round: of a client, and at most.
const REDIS_CLIENT_REQUESTS: u64 = 5_000;
const REDIS_REQUESTS_MAX: u64 = 50_000;

/// GET of 8 bytes per second.
pub(super) fn redis(setting: &Setting<'_>, side: Mode, clients: usize) -> io::Result<f64> {
    let addr = free_addr()?;
    let port = addr.port().to_string();
    let command = redis_command(setting, side, &port);
    let cores = &setting.args.run.cores;
    let _server = Server::start(command, cores.server_core, cores.load_core, addr)?;
    let mut benchmark = setting.command(side, "redis-benchmark");
    let requests = setting.args.seconds * (clients as u64 * REDIS_CLIENT_REQUESTS).min(REDIS_REQUESTS_MAX);
    benchmark.args(["-p", &port, "-t", "get", "-d", "8", "--csv", "-c", &clients.to_string(), "-n"]);
    let output = setting.output(benchmark.arg(requests.to_string()).stderr(Stdio::inherit()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("\"GET\",\"")?.split('"').next()?.parse().ok());
    rate.ok_or_else(|| io::Error::other(format!("redis-benchmark printed {text:?}")))
}

/// redis without persistence on a port.
pub(super) fn redis_command(setting: &Setting<'_>, side: Mode, port: &str) -> Command {
    let mut command = setting.command(side, "redis-server");
    command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(&setting.scratch.0);
    command
}

/// Pages per second. Only `client` says how wrk is started.
pub(super) fn nginx(setting: &Setting<'_>, side: Mode, client: Mode, connections: usize) -> io::Result<f64> {
    let addr = free_addr()?;
    let config = NGINX.replace("{listen}", &addr.to_string()).replace("{number}", "accel");
    let plain = nginx_command(&config, "accel.conf", &setting.scratch)?;
    let mut command = setting.command(side, plain.get_program());
    command.args(plain.get_args());
    let cores = &setting.args.run.cores;
    let server = Server::start(command, cores.server_core, cores.load_core, addr)?;
    let mut load = setting.command(client, "wrk");
    load.args(wrk::arguments(server.ip()?, connections, setting.args.seconds));
    wrk::requests_per_s(&setting.output(&mut load)?)
}
