//! The HTTP balancer and the memcached proxy with clients and servers in shared memory, beside themselves and rivals on
//! TCP.
//!
//! Promises: every side has one worker on a core of its own; the servers behind it share the other core with the load;
//! `flick-load` drives every side and checks every reply.

use std::io;

use flick_load::load::{LoadConfig, LoadProtocol, ValueSize};
use flick_shm::client::ClientAddress;

use crate::cli::{CoreArgs, RunArgs, ShmProxyArgs, SweepArgs};
use crate::http_balancer;
use crate::measure;
use crate::memcached_proxy;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::sweep::{self, Figure};

/// Servers behind the balancer.
const WEB_SERVERS: usize = 2;
/// twemproxy's default buffer size.
const TWEMPROXY_BUFFER_BYTES: usize = 16384;
/// Longest page.
const PAGE_BYTES_MAX: usize = 1024;

/// Sweeps the balancer.
pub(crate) fn http_balancer(args: &SweepArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("balancer-shm")?;
    let program = "examples/http_static/http_static.flick";
    let shm = servers(&args.run, program, WEB_SERVERS, true, &scratch)?;
    let tcp = servers(&args.run, program, WEB_SERVERS, false, &scratch)?;
    let figure = Figure {
        name: "http-balancer-shm".to_owned(),
        title: "HTTP balancer in shared memory: flick, and flick and nginx on TCP, by number of connections",
        load: format!(
            "One short GET at a time on each persistent connection, a closed loop of `flick-load`; {WEB_SERVERS} static servers\n\
             of flick behind the balancer. *flick* has its clients and servers in shared memory, *flick-tcp* and *nginx* have\n\
             them on TCP."
        ),
        sides: &["flick", "flick-tcp", "nginx"],
    };
    sweep::run(&figure, args, |side, connections| {
        let server = match side {
            "nginx" => http_balancer::start(args, "nginx", &tcp, &scratch)?,
            _ => {
                let servers = if side == "flick" { &shm } else { &tcp };
                start(&args.run, "examples/http_balancer/round_robin.flick", side == "flick", servers)?
            }
        };
        let load = LoadConfig {
            protocol: LoadProtocol::Http,
            connections,
            get_ratio: 1.0,
            value: ValueSize::Fixed(PAGE_BYTES_MAX),
            ..LoadConfig::new(server.addr.clone())
        };
        measure::round(args.timed(load), Some(&server))
    })
}

/// Sweeps the proxy.
pub(crate) fn memcached_proxy(args: &ShmProxyArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("proxy-shm")?;
    let (load, sweep) = (&args.memcached.load, &args.memcached.sweep);
    let program = "examples/key_value_server/binary_server.flick";
    let count = args.backends.max(1);
    let shm = servers(&sweep.run, program, count, true, &scratch)?;
    let core = sweep.run.cores.load_core;
    let memcached = || memcached_proxy::memcached(free_addr()?, core, core);
    let tcp = (0..count).map(|_| memcached()).collect::<io::Result<Vec<_>>>()?;
    let figure = Figure {
        name: load.file_name("memcached-proxy-shm"),
        title: "memcached proxy in shared memory: flick, and flick and twemproxy on TCP, by number of connections",
        load: format!(
            "{}; {count} servers behind the proxies. *flick* has its clients and servers in shared memory, the servers being\n\
             flick's key-value server; *flick-tcp* and *twemproxy* have clients and memcached servers on TCP. twemproxy\n\
             speaks the text protocol only, the others are asked in the binary one.",
            load.in_words(),
        ),
        sides: &["flick", "flick-tcp", "twemproxy"],
    };
    sweep::run(&figure, sweep, |side, connections| {
        let (server, protocol) = match side {
            "twemproxy" => {
                let addr = free_addr()?;
                let command = memcached_proxy::twemproxy(addr, &tcp, &scratch, TWEMPROXY_BUFFER_BYTES)?;
                let CoreArgs { server_core, load_core, .. } = sweep.run.cores;
                (Server::start(command, server_core, load_core, addr)?, LoadProtocol::Text)
            }
            _ => {
                let servers = if side == "flick" { &shm } else { &tcp };
                let program = "examples/memcached_proxy/memcached_proxy.flick";
                (start(&sweep.run, program, side == "flick", servers)?, LoadProtocol::Binary)
            }
        };
        let load = load.config(server.addr.clone(), protocol, connections);
        measure::round(sweep.timed(load), Some(&server))
    })
}

/// Starts a proxy in front of servers.
fn start(run: &RunArgs, program: &str, is_shm: bool, servers: &[Server]) -> io::Result<Server> {
    let addr = address(is_shm, "proxy", 0)?;
    let addrs: Vec<String> = servers.iter().map(|server| server.addr.to_string()).collect();
    let mut command = run.flick.run(&workspace().join(program));
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--connect").arg(format!("backends={}", addrs.join(",")));
    Server::start(command, run.cores.server_core, run.cores.load_core, addr)
}

/// Starts the servers behind a proxy.
fn servers(
    run: &RunArgs,
    program: &str,
    count: usize,
    is_shm: bool,
    scratch: &ScratchDir,
) -> io::Result<Vec<Server>> {
    let start = |number: usize| {
        let addr = address(is_shm, "server", number)?;
        let mut command = run.flick.run(&workspace().join(program));
        command.arg("--listen").arg(format!("client={addr}"));
        command.arg("--state-dir").arg(scratch.0.join(format!("state-{is_shm}-{number}")));
        Server::start(command, run.cores.load_core, run.cores.load_core, addr)
    };
    (0..count).map(start).collect()
}

/// Returns an address that no other process uses.
fn address(is_shm: bool, role: &str, number: usize) -> io::Result<ClientAddress> {
    if is_shm {
        return Ok(ClientAddress::Shm(format!("bench-{role}-{number}-{}", std::process::id())));
    }
    Ok(free_addr()?.into())
}
