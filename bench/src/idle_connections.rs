//! The memory of idle connections of a service, in shared memory and on TCP.
//!
//! Promises: every connection has had a request and its reply, so all that an idle one keeps is there; counted is what
//! the service's process has of its own and of shared memory, after less before.
//! Not here: the kernel's memory of sockets, and that of the clients' process.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use flick_load::http;
use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::conn::RingRead;
use rustix::event::Timespec;

use crate::cli::IdleArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{Server, free_addr, workspace};
use crate::sweep::raise_file_limit;

/// Longest time until all connections have had their reply.
const REPLIES_WAIT_MAX: Duration = Duration::from_secs(60);
/// Connections that are opened at a time.
const BATCH: u32 = 100;

/// Memory of a process in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    own: f64,
    shared: f64,
}

/// Measures both transports, prints the table and writes the page.
pub(crate) fn run(args: &IdleArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    raise_file_limit()?;
    let mut table = String::from(
        "| transport | connections | own bytes per connection | shared bytes per connection | together |\n\
         |---|--:|--:|--:|--:|\n",
    );
    let shm = ClientAddress::Shm(format!("bench-idle-{}", std::process::id()));
    for (name, addr) in [("shared memory", shm), ("TCP", free_addr()?.into())] {
        let Memory { own, shared } = measure(args, &addr)?;
        let connections = args.connections;
        let _ = writeln!(table, "| {name} | {connections} | {own:.0} | {shared:.0} | {:.0} |", own + shared);
    }
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let text = format!(
            "# Memory of idle connections\n\n`examples/http_static` with one worker and default settings; each connection \
             has had one request. *Own* is the anonymous memory of the service's process, *shared* what it has of the \
             segment: rings of both directions and control words. The kernel's memory for sockets is not included.\n\n\
             - Linux {}, {} cores\n\n{table}",
            machine.kernel, machine.cores,
        );
        page::write(results, "idle-connections.md", &text)?;
    }
    Ok(())
}

/// Returns the memory per connection of a service at an address.
fn measure(args: &IdleArgs, addr: &ClientAddress) -> io::Result<Memory> {
    let cores = &args.run.cores;
    let mut command = args.run.flick.run(&workspace().join("examples/http_static/http_static.flick"));
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--max-connections").arg((args.connections + 1).to_string());
    let server = Server::start(command, cores.server_core, cores.load_core, addr.clone())?;
    let mut set = ClientSet::new(&ClientConfig::new(args.connections + 1))?;
    // What the first connection touches is there once.
    open(&mut set, 0..1, addr)?;
    let before = memory_of(&server)?;
    for first in (1..=args.connections).step_by(BATCH as usize) {
        open(&mut set, first..(first + BATCH).min(args.connections + 1), addr)?;
    }
    let after = memory_of(&server)?;
    let each = |before: f64, after: f64| (after - before) / f64::from(args.connections);
    Ok(Memory { own: each(before.own, after.own), shared: each(before.shared, after.shared) })
}

/// Opens connections, and exchanges a request and a reply on each.
fn open(set: &mut ClientSet, tokens: std::ops::Range<u32>, addr: &ClientAddress) -> io::Result<()> {
    let mut missing = tokens.len();
    for token in tokens {
        set.connect(token, addr).map_err(io::Error::other)?;
    }
    let (mut events, mut reply) = (Vec::with_capacity(512), [0; 4096]);
    let begun = Instant::now();
    while missing > 0 {
        if begun.elapsed() > REPLIES_WAIT_MAX {
            return Err(io::Error::other(format!("{missing} connections to {addr} have no reply")));
        }
        set.wait(&mut events, Some(Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        for event in &events {
            match *event {
                ClientEvent::Connected(token) => {
                    if set.send(token, http::GET).map_err(io::Error::other)? < http::GET.len() {
                        return Err(io::Error::other("a fresh connection takes no request"));
                    }
                }
                ClientEvent::Readable(token) => {
                    match set.receive(token, &mut reply).map_err(io::Error::other)? {
                        RingRead::Bytes(count) if is_page(&reply[..count]) => missing -= 1,
                        RingRead::Empty => {}
                        other => return Err(io::Error::other(format!("{other:?} in place of a reply"))),
                    }
                }
                other => return Err(io::Error::other(format!("{other:?} in place of a connection"))),
            }
        }
    }
    Ok(())
}

fn is_page(reply: &[u8]) -> bool {
    let (len, step) = http::HttpReader::new(http::HttpVersion::Http11).advance(reply);
    len == reply.len() && matches!(step, http::HttpStep::Whole { status: 200, .. })
}

/// Reads the memory of the server's process.
fn memory_of(server: &Server) -> io::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero()))?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
    };
    let unreadable = || io::Error::other("the kernel does not tell the memory of a process");
    Ok(Memory {
        own: bytes("RssAnon:").ok_or_else(unreadable)?,
        shared: bytes("RssShmem:").ok_or_else(unreadable)?,
    })
}
