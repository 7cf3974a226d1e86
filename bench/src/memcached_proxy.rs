//! The memcached proxy of Listing 1 beside twemproxy, with a direct connection as the reference of throughput.
//!
//! Promises: every side has one worker on a core of its own and the same memcached servers behind it, which share the
//! other core with the load; every reply is checked.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use flick_load::load::LoadProtocol;

use crate::cli::ProxyArgs;
use crate::measure;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::sweep::{self, Figure};

/// twemproxy's configuration, with placeholders for the addresses.
const TWEMPROXY_CONFIG: &str = include_str!("../rivals/twemproxy.yml");

/// Sweeps all sides.
pub(crate) fn run(args: &ProxyArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("proxy")?;
    let core = args.memcached.sweep.run.cores.load_core;
    let backends = (0..args.backends.max(1))
        .map(|_| memcached(free_addr()?, core, core))
        .collect::<io::Result<Vec<_>>>()?;
    let load = &args.memcached.load;
    let figure = Figure {
        name: load.file_name("memcached-proxy"),
        title: "memcached proxy: flick and twemproxy by number of connections",
        load: format!(
            "{}; {} memcached servers behind the proxies. *direct* is one memcached without a proxy: the reference of\n\
             throughput, not a rival. twemproxy speaks the text protocol only, the others are asked in the binary one.",
            load.in_words(),
            args.backends.max(1)
        ),
        sides: &["flick", "twemproxy", "direct"],
    };
    let sweep = &args.memcached.sweep;
    sweep::run(&figure, sweep, |side, connections| {
        let server = start(args, side, &backends, &scratch)?;
        let protocol = if side == "twemproxy" { LoadProtocol::Text } else { LoadProtocol::Binary };
        measure::round(sweep.timed(load.config(server.addr.clone(), protocol, connections)), Some(&server))
    })
}

/// Starts the server of one side.
fn start(args: &ProxyArgs, side: &str, backends: &[Server], scratch: &ScratchDir) -> io::Result<Server> {
    let (addr, run) = (free_addr()?, &args.memcached.sweep.run);
    let command = match side {
        "direct" => memcached_command(addr, 1),
        "twemproxy" => twemproxy(addr, backends, scratch, args.mbuf_bytes)?,
        _ => {
            let example = "examples/memcached_proxy/memcached_proxy.flick";
            let program = args.program.clone().unwrap_or_else(|| workspace().join(example));
            let addrs: Vec<String> = backends.iter().map(|backend| backend.addr.to_string()).collect();
            let mut command = run.flick.run(&program);
            command.arg("--listen").arg(format!("client={addr}"));
            command.arg("--connect").arg(format!("backends={}", addrs.join(",")));
            command
        }
    };
    Server::start(command, run.cores.server_core, run.cores.load_core, addr)
}

/// twemproxy in front of servers, with buffers of `mbuf_bytes`.
pub(crate) fn twemproxy(
    addr: SocketAddr,
    backends: &[Server],
    scratch: &ScratchDir,
    mbuf_bytes: usize,
) -> io::Result<Command> {
    let mut servers = String::new();
    for backend in backends {
        let _ = writeln!(servers, "   - {}:1", backend.addr);
    }
    let config = TWEMPROXY_CONFIG.replace("{listen}", &addr.to_string()).replace("{servers}\n", &servers);
    let path = scratch.0.join("twemproxy.yml");
    std::fs::write(&path, &config)?;
    let mut command = Command::new("nutcracker");
    command.arg("-c").arg(&path).args(["-o", "/dev/null", "-v", "0", "-i", "60000"]);
    command.arg("-m").arg(mbuf_bytes.to_string());
    command.arg("-s").arg(free_addr()?.port().to_string());
    command.arg("-p").arg(scratch.0.join("twemproxy.pid"));
    Ok(command)
}

/// The command that runs memcached with that many threads.
pub(crate) fn memcached_command(addr: SocketAddr, threads: usize) -> Command {
    let mut command = Command::new("memcached");
    command.args(["-U", "0", "-t", &threads.to_string(), "-c", "4096", "-l", "127.0.0.1", "-p"]);
    command.arg(addr.port().to_string());
    // As root, memcached wants to know which user to become.
    command.args(["-u", "root"]);
    command
}

/// A memcached on a core.
pub(crate) fn memcached(addr: SocketAddr, core: usize, home_core: usize) -> io::Result<Server> {
    Server::start(memcached_command(addr, 1), core, home_core, addr)
}
