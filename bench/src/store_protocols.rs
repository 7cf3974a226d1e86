//! `flick store` beside memcached by protocol, pipeline, workload, number of workers and of connections.
//!
//! Promises: both servers have the same memory, workers and requests; they alternate in each round; every reply is
//! checked. Not here: few connections, which `key-value-server` sweeps.

use std::fmt::Write as _;
use std::io;
use std::process::Command;
use std::time::Duration;

use flick_load::load::{KeySize, LoadConfig, LoadProtocol, ValueSize};
use flick_shm::client::ClientAddress;

use crate::cli::StoreProtocolsArgs;
use crate::machine::Machine;
use crate::measure;
use crate::memcached_proxy::memcached_command;
use crate::page;
use crate::process::{Server, free_addr, workspace};
use crate::stats::Spread;
use crate::sweep::Round;

/// Memory of both servers.
const MEMORY_MIB: &str = "1024";
const WARM_UP: Duration = Duration::from_millis(300);

/// Lengths of keys and values.
const WORKLOADS: [(&str, KeySize, ValueSize); 2] = [
    ("uniform: keys of 16 bytes, values of 100", KeySize::Fixed(16), ValueSize::Fixed(100)),
    ("ETC: keys and values of Facebook's pool", KeySize::Etc, ValueSize::Etc),
];
const PROTOCOLS: [(&str, LoadProtocol); 3] =
    [("text", LoadProtocol::Text), ("binary", LoadProtocol::Binary), ("meta", LoadProtocol::Meta)];

/// The path of the load to flick; memcached has TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Tcp,
    /// Here the protocols of one store cannot share an address, so that each has a server of its own.
    SharedMemory(&'static str),
}

impl Path {
    /// Least processor time of memcached for a reply, in that of flick.
    fn goal(self, pipeline: usize) -> f64 {
        match (self, pipeline) {
            (Path::SharedMemory(_), _) => 2.5,
            (Path::Tcp, 1) => 1.0,
            (Path::Tcp, _) => 1.3,
        }
    }
}

/// Both servers, flick first.
struct Servers([Server; 2]);

impl Servers {
    fn start(args: &StoreProtocolsArgs, workers: usize, path: Path) -> io::Result<Servers> {
        let cores = &args.run.cores;
        let start = |command, addr: ClientAddress| match workers {
            1 => Server::start(command, cores.server_core, cores.load_core, addr),
            _ => Server::start_anywhere(command, addr),
        };
        let (addr, theirs) = (free_addr()?, free_addr()?);
        let mut memcached = memcached_command(theirs, workers);
        memcached.args(["-m", MEMORY_MIB]);
        let mut flick = Command::new(args.run.flick.path());
        let ours = match path {
            Path::Tcp => {
                flick.args([
                    "store",
                    "--workers",
                    &workers.to_string(),
                    "--memory",
                    &format!("{MEMORY_MIB}MiB"),
                ]);
                flick.args(["--listen", &addr.to_string()]);
                addr.into()
            }
            Path::SharedMemory(program) => {
                let name = format!("shm:store-{}-{}", std::process::id(), addr.port());
                flick.arg("run").arg(workspace().join("examples/key_value_server").join(program));
                flick.args(["--workers", &workers.to_string(), "--listen", &format!("client={name}")]);
                name.parse().map_err(io::Error::other)?
            }
        };
        Ok(Servers([start(flick, ours)?, start(memcached, theirs.into())?]))
    }

    /// The rounds of each, by turns.
    fn measure(&self, args: &StoreProtocolsArgs, load: &LoadConfig) -> io::Result<[Vec<Round>; 2]> {
        let mut rounds = [Vec::new(), Vec::new()];
        for number in 0..args.run.rounds.max(1) {
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                let server = &self.0[side];
                let config = LoadConfig { addr: server.addr.clone(), ..load.clone() };
                rounds[side].push(measure::round(config, Some(server))?);
            }
        }
        Ok(rounds)
    }

    /// Prints the rows of one protocol and workload, and appends them to `table`.
    fn rows(
        &self,
        args: &StoreProtocolsArgs,
        (path, name, protocol): (Path, &str, LoadProtocol),
        (key_size, value): (KeySize, ValueSize),
        table: &mut String,
    ) -> io::Result<()> {
        for pipeline in &args.pipelines {
            for connections in &args.connections {
                let load = LoadConfig {
                    protocol,
                    connections: *connections as usize,
                    depth: *pipeline,
                    key_size,
                    value,
                    get_ratio: 0.9,
                    warmup: WARM_UP,
                    duration: Some(Duration::from_millis(args.round_ms)),
                    ..LoadConfig::new(self.0[0].addr.clone())
                };
                let rounds = self.measure(args, &load)?;
                let line = line(name, (*pipeline, *connections), path.goal(*pipeline), &rounds);
                print!("{line}");
                table.push_str(&line);
            }
        }
        Ok(())
    }
}

/// Measures all cells, prints their tables, and writes the page.
///
/// Errors: a server does not start, or a round is void.
pub(crate) fn run(args: &StoreProtocolsArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let mut tables = String::new();
    for workers in &args.workers {
        let servers = Servers::start(args, *workers, Path::Tcp)?;
        for (workload, key_size, value) in WORKLOADS {
            head(&mut tables, &format!("{workers} worker(s), {workload}"));
            for (name, protocol) in PROTOCOLS {
                servers.rows(args, (Path::Tcp, name, protocol), (key_size, value), &mut tables)?;
            }
        }
    }
    for (workload, key_size, value) in WORKLOADS {
        head(&mut tables, &format!("flick in shared memory, memcached on TCP, {workload}"));
        for (name, protocol, program) in [
            ("text", LoadProtocol::Text, "key_value_server.flick"),
            ("binary", LoadProtocol::Binary, "binary_server.flick"),
        ] {
            let path = Path::SharedMemory(program);
            let servers = Servers::start(args, 1, path)?;
            servers.rows(args, (path, name, protocol), (key_size, value), &mut tables)?;
        }
    }
    let Some(results) = &args.run.results else { return Ok(()) };
    let machine = Machine::describe(&args.run.flick.path());
    let versions = ["flick", "memcached"].map(|name| machine.versions[name].clone());
    let text = format!(
        "# `flick store` and memcached by protocol\n\nMedians of {} alternating rounds of {} ms, extremes of the ratio \
         in brackets; 10,000 keys, 90 % reads, closed loop. Method: [METHOD.md](../METHOD.md#the-store-by-protocol).\n\n\
         - Linux {}, {}, {} cores\n- {}\n- {}\n{tables}",
        args.run.rounds, args.round_ms, machine.kernel, machine.cpu, machine.cores, versions[0], versions[1],
    );
    page::write(results, "store-protocols.md", &text)
}

/// Begins a table.
fn head(tables: &mut String, title: &str) {
    let head = format!(
        "\n## {title}\n\n| protocol | pipeline | connections | flick, processor µs | user | requests/s | p99 µs \
         | memcached, processor µs | user | requests/s | p99 µs | memcached / flick, processor | requests/s, flick / \
         memcached | goal |\n|--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    print!("{head}");
    tables.push_str(&head);
}

fn line(
    protocol: &str,
    (pipeline, connections): (usize, u32),
    goal: f64,
    [ours, theirs]: &[Vec<Round>; 2],
) -> String {
    let processor = |round: &Round| round.user_us + round.system_us;
    let median =
        |rounds: &[Round], figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(figure)).median;
    let mut text = format!("| {protocol} | {pipeline} | {connections} ");
    for side in [ours, theirs] {
        let _ = write!(
            text,
            "| {:.2} | {:.2} | {:.0} | {:.0} ",
            median(side, &processor),
            median(side, &|round| round.user_us),
            median(side, &|round| round.requests_per_s),
            median(side, &|round| round.p99_us),
        );
    }
    let pairs = || ours.iter().zip(theirs);
    let Spread { median, min, max } =
        Spread::of(pairs().map(|(ours, theirs)| processor(theirs) / processor(ours)));
    let rates = Spread::of(pairs().map(|(ours, theirs)| ours.requests_per_s / theirs.requests_per_s)).median;
    let mark = if median >= goal { "✓" } else { "✗" };
    let _ = writeln!(text, "| {median:.2} ({min:.2}–{max:.2}) | {rates:.2} | ≥ {goal} {mark} |");
    text
}
