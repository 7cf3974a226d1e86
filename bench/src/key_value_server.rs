//! The key-value server beside memcached, both asked in memcached's text protocol.
//!
//! Promises: both sides have one worker on a core of its own; the load has the other core; every reply is checked.

use std::io;

use flick_load::load::LoadProtocol;

use crate::cli::MemcachedSweepArgs;
use crate::measure;
use crate::memcached_proxy::memcached;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::sweep::{self, Figure};

/// Sweeps both sides.
pub(crate) fn run(args: &MemcachedSweepArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("key-value")?;
    let figure = Figure {
        name: args.load.file_name("key-value-server"),
        title: "Key-value server: flick and memcached by number of connections",
        load: format!("Text protocol, {}.", args.load.in_words()),
        sides: &["flick", "memcached"],
    };
    let sweep = &args.sweep;
    sweep::run(&figure, sweep, |side, connections| {
        let server = start(args, side, &scratch)?;
        let config = args.load.config(server.addr.clone(), LoadProtocol::Text, connections);
        measure::round(sweep.timed(config), Some(&server))
    })
}

fn start(args: &MemcachedSweepArgs, side: &str, scratch: &ScratchDir) -> io::Result<Server> {
    let (addr, cores) = (free_addr()?, &args.sweep.run.cores);
    if side == "memcached" {
        return memcached(addr, cores.server_core, cores.load_core);
    }
    let program = workspace().join("examples/key_value_server/key_value_server.flick");
    let mut command = args.sweep.run.flick.run(&program);
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--state-dir").arg(scratch.0.join("state"));
    Server::start(command, cores.server_core, cores.load_core, addr)
}
