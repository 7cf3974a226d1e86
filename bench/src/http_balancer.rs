//! The HTTP balancer with round robin beside HAProxy and nginx: short requests on persistent connections.
//!
//! Promises: every side has one worker on a core of its own and the same two nginx servers behind it, which share the
//! other core with the load.

use std::io;

use flick_shm::client::ClientAddress;

use crate::cli::SweepArgs;
use crate::process::{ScratchDir, Server, free_addr, in_words, workspace};
use crate::rivals::{haproxy, nginx};
use crate::sweep::{self, Figure};
use crate::wrk;

/// Configurations, with placeholders for addresses and directories.
const BACKEND: &str = include_str!("../rivals/nginx-backend.conf");
const NGINX: &str = include_str!("../rivals/nginx-balancer.conf");
const HAPROXY: &str = include_str!("../rivals/haproxy-balancer.cfg");
/// Servers behind the balancers.
const BACKENDS: usize = 2;

/// Sweeps all sides.
pub(crate) fn run(args: &SweepArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("balancer")?;
    let backends =
        (0..BACKENDS).map(|number| backend(args, number, &scratch)).collect::<io::Result<Vec<_>>>()?;
    let figure = Figure {
        name: "http-balancer".to_owned(),
        title: "HTTP balancer: flick, HAProxy and nginx by number of connections",
        load: format!(
            "One short GET at a time on each persistent connection, replies of 98 bytes; {BACKENDS} nginx servers behind the\n\
             balancer; load from wrk, a closed loop."
        ),
        sides: &["flick", "haproxy", "nginx"],
    };
    sweep::run(&figure, args, |side, connections| {
        let server = start(args, side, &backends, &scratch)?;
        wrk::round(&server, connections, args.warmup_seconds, args.seconds)
    })
}

fn backend(args: &SweepArgs, number: usize, scratch: &ScratchDir) -> io::Result<Server> {
    let addr = free_addr()?;
    let config = BACKEND.replace("{listen}", &addr.to_string()).replace("{number}", &number.to_string());
    let command = nginx(&config, &format!("backend-{number}.conf"), scratch)?;
    Server::start(command, args.run.cores.load_core, args.run.cores.load_core, addr)
}

/// Starts a balancer on TCP.
pub(crate) fn start(
    args: &SweepArgs,
    side: &str,
    backends: &[Server],
    scratch: &ScratchDir,
) -> io::Result<Server> {
    let addr = free_addr()?;
    let each = |line: &dyn Fn(usize, &ClientAddress) -> String| {
        let lines = backends.iter().enumerate().map(|(number, server)| line(number, &server.addr));
        lines.collect::<Vec<_>>().join("\n")
    };
    let command = match side {
        "haproxy" => {
            let servers = each(&|number, addr| format!("  server s{number} {addr}"));
            let config = HAPROXY.replace("{listen}", &addr.to_string());
            haproxy(&config.replace("{haproxy_servers}", &servers), scratch)?
        }
        "nginx" => {
            let servers = each(&|_, addr| format!("    server {addr};"));
            let config = NGINX.replace("{listen}", &addr.to_string()).replace("{nginx_servers}", &servers);
            nginx(&config, "balancer.conf", scratch)?
        }
        _ => {
            let example = workspace().join("examples/http_balancer/round_robin.flick");
            let addrs: Vec<String> = backends.iter().map(|server| server.addr.to_string()).collect();
            let mut command = args.run.flick.run(&example);
            command.arg("--listen").arg(format!("client={addr}"));
            command.arg("--connect").arg(format!("backends={}", addrs.join(",")));
            command
        }
    };
    let shown = in_words(&command);
    Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
        .map_err(|error| io::Error::other(format!("{shown}: {error}")))
}
