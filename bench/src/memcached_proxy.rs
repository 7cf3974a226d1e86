//! The memcached proxy of Listing 1 against twemproxy, with a direct connection as the reference of throughput.
//!
//! Promises: every side gets a fresh server on the same core, the same backends, the same load; the sides take turns
//! within each round, so that what disturbs the machine disturbs all of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use flick_load::load::Protocol;

use crate::cli::{LoadArgs, ProxyArgs, Side};
use crate::machine::Machine;
use crate::measure::{self, Round};
use crate::process::{ScratchDir, Server, free_addr, in_words, workspace};
use crate::report::{Comparison, SideResult};

/// twemproxy's configuration, with gaps for the addresses.
const TWEMPROXY_CONFIG: &str = include_str!("../rivals/twemproxy.yml");

/// Runs the comparison and writes its results.
pub(crate) fn run(args: &ProxyArgs) -> io::Result<()> {
    let _boost = args.load.place.take()?;
    let bench = Bench::prepare(args)?;
    let sides = bench.sides()?;
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); sides.len()];
    let mut configurations = BTreeMap::new();
    for number in 1..=args.load.rounds.max(1) {
        for (side, rounds) in sides.iter().zip(&mut rounds) {
            let (server, configuration) = bench.start(*side)?;
            let round = measure::round(&args.load, server.addr, protocol(*side), Some(&server))
                .map_err(|error| io::Error::other(format!("{}, round {number}: {error}", side.name())))?;
            eprintln!(
                "round {number} {:<9} {:>9.0}/s  {:>6.2} us CPU each  core {:.2}  p50 {} us  p99 {} us",
                side.name(),
                round.replies_per_s,
                round.cpu_us_per_request,
                round.server_load,
                round.p50_us,
                round.p99_us
            );
            rounds.push(round);
            configurations.insert(side.name(), configuration);
        }
    }
    let results = sides.iter().zip(rounds).map(|(side, rounds)| SideResult::of(side.name(), rounds));
    let comparison = Comparison {
        name: file_name(&args.load),
        load: load_in_words(args),
        machine: Machine::describe(&bench.flick),
        configurations,
        sides: results.collect(),
        ratios: Vec::new(),
    }
    .with_ratios();
    print!("{}", comparison.markdown());
    let dir = args.results.clone().unwrap_or_else(|| workspace().join("bench/results"));
    // A run of some sides only must not overwrite a whole comparison.
    if args.only.is_empty() || args.results.is_some() { comparison.write(&dir) } else { Ok(()) }
}

fn protocol(side: Side) -> Protocol {
    match side {
        Side::Twemproxy => Protocol::Text,
        Side::Flick | Side::Direct => Protocol::Binary,
    }
}

fn file_name(load: &LoadArgs) -> String {
    let mut name = "memcached-proxy".to_owned();
    if load.depth > 1 {
        let _ = write!(name, "-depth{}", load.depth);
    }
    if load.rate.is_some() {
        name.push_str("-open");
    }
    name
}

fn load_in_words(args: &ProxyArgs) -> String {
    let load = &args.load;
    let pace = match load.rate {
        None => "closed loop".to_owned(),
        Some(rate) => format!("open loop of {rate} requests/s"),
    };
    format!(
        "{} connections with {} unanswered requests each, {pace}; {} keys of {} bytes, values of {} bytes, {} % reads; \
         {} backends; {} rounds of {} s after {} s of warm-up; server on core {}, load and backends on core {}{}.",
        load.clients,
        load.depth,
        load.keys,
        load.key_bytes,
        load.value_bytes,
        load.get_ratio * 100.0,
        args.backends,
        load.rounds,
        load.seconds,
        load.warmup_seconds,
        load.place.server_core,
        load.place.load_core,
        if load.place.boost { ", all of them before other work of the machine" } else { "" }
    )
}

/// What all rounds share: the backends and the scratch directory.
struct Bench<'a> {
    args: &'a ProxyArgs,
    flick: PathBuf,
    program: PathBuf,
    backends: Vec<Server>,
    scratch: ScratchDir,
}

impl<'a> Bench<'a> {
    fn prepare(args: &'a ProxyArgs) -> io::Result<Bench<'a>> {
        let flick = args.flick.path();
        let example = "examples/memcached_proxy/memcached_proxy.flick";
        let program = args.program.clone().unwrap_or_else(|| workspace().join(example));
        let core = args.load.place.load_core;
        let backends = (0..args.backends.max(1))
            .map(|_| memcached(free_addr()?, core, core))
            .collect::<Result<_, _>>()?;
        Ok(Bench { args, flick, program, backends, scratch: ScratchDir::new("proxy")? })
    }

    /// Returns the sides to run, in order; refuses to leave flick out silently.
    fn sides(&self) -> io::Result<Vec<Side>> {
        let all = [Side::Twemproxy, Side::Flick, Side::Direct];
        let chosen: Vec<Side> = all
            .into_iter()
            .filter(|side| self.args.only.is_empty() || self.args.only.contains(side))
            .collect();
        if chosen.contains(&Side::Flick) && !self.flick.exists() {
            let path = self.flick.display();
            return Err(io::Error::other(format!(
                "there is no {path}: run `cargo build --release -p flick`, or leave it out with `--only twemproxy,direct`"
            )));
        }
        Ok(chosen)
    }

    /// Starts the server of one side; returns it with how it was started.
    fn start(&self, side: Side) -> io::Result<(Server, String)> {
        let (addr, load) = (free_addr()?, &self.args.load);
        match side {
            Side::Twemproxy => self.start_twemproxy(addr),
            Side::Flick => {
                let command = self.flick_command(addr);
                let told = in_words(&command);
                Ok((Server::start(command, load.place.server_core, load.place.load_core, addr)?, told))
            }
            Side::Direct => {
                let told = in_words(&memcached_command(addr));
                Ok((memcached(addr, load.place.server_core, load.place.load_core)?, told))
            }
        }
    }

    fn start_twemproxy(&self, addr: SocketAddr) -> io::Result<(Server, String)> {
        let mut servers = String::new();
        for backend in &self.backends {
            let _ = writeln!(servers, "   - {}:1", backend.addr);
        }
        let config = TWEMPROXY_CONFIG.replace("{listen}", &addr.to_string()).replace("{servers}\n", &servers);
        let path = self.scratch.0.join("twemproxy.yml");
        std::fs::write(&path, &config)?;
        let mut command = Command::new("nutcracker");
        command.arg("-c").arg(&path).args(["-o", "/dev/null", "-v", "0", "-i", "60000"]);
        command.arg("-m").arg(self.args.mbuf_bytes.to_string());
        command.arg("-s").arg(free_addr()?.port().to_string());
        command.arg("-p").arg(self.scratch.0.join("twemproxy.pid"));
        let load = &self.args.load;
        let told = format!("nutcracker -m {}, with\n{config}", self.args.mbuf_bytes);
        Ok((Server::start(command, load.place.server_core, load.place.load_core, addr)?, told))
    }

    fn flick_command(&self, addr: SocketAddr) -> Command {
        let backends: Vec<String> = self.backends.iter().map(|backend| backend.addr.to_string()).collect();
        let mut command = self.args.flick.run(&self.program);
        command.arg("--listen").arg(format!("client={addr}"));
        command.arg("--connect").arg(format!("backends={}", backends.join(",")));
        command
    }
}

fn memcached_command(addr: SocketAddr) -> Command {
    let mut command = Command::new("memcached");
    command.args(["-U", "0", "-t", "1", "-c", "4096", "-l", "127.0.0.1", "-p"]).arg(addr.port().to_string());
    // As root memcached wants to be told which user to be.
    command.args(["-u", "root"]);
    command
}

/// A memcached on a core.
pub(crate) fn memcached(addr: SocketAddr, core: usize, home_core: usize) -> io::Result<Server> {
    Server::start(memcached_command(addr), core, home_core, addr)
}
