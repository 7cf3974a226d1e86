//! The command line of the benchmarks.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use flick_load::load::{LoadConfig, Protocol, ValueSize};

use crate::process::{Boost, pin_this_thread, workspace};

/// Measures flick beside its rivals.
#[derive(Debug, Parser)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The memcached proxy of Listing 1 against twemproxy and a direct connection
    MemcachedProxy(ProxyArgs),
    /// The Hadoop aggregator of Listing 3 against a merge written by hand
    Hadoop(HadoopArgs),
    /// The merge written by hand, started by `hadoop`
    #[command(hide = true)]
    HadoopMerge(HadoopMergeArgs),
    /// The embedded store, asked directly: what the load generator and the store can do by themselves
    Store(LoadArgs),
    /// Reads of the shared dictionary against papaya, a concurrent map
    Dictionary(DictionaryArgs),
    /// Compiled functions of the language beside the same in Rust
    Kernels(KernelArgs),
    /// Parsers of grammars beside parsers in Rust
    Parsing(ParsingArgs),
    /// Parsers of grammars beside what Kaitai Struct generates (needs npm, Maven and a JDK)
    Kaitai(KaitaiArgs),
    /// Long bodies through a relay and an HTTP proxy, beside relays that look at nothing, HAProxy and nginx
    Relay(RelayArgs),
    /// The HTTP balancer beside HAProxy and nginx (needs wrk)
    HttpBalancer(BalancerArgs),
    /// A service beside one on the same thread that is flooded
    Neighbours(NeighboursArgs),
    /// What counters and the access log cost a service
    Counting(CountingArgs),
    /// A message from task to task, and a switch between tasks
    Handover(HandoverArgs),
    /// Figure 7: 200 tasks on one worker, light and heavy, under the three policies
    Sharing(SharingArgs),
    /// A relay that looks at nothing, started by `relay`
    #[command(hide = true)]
    BareRelay(BareRelayArgs),
    /// From text to machine code: the examples, and a generated program of 5,000 lines
    Compile(CompileArgs),
    /// Any server that is already running: drives it, checks every reply, prints what was seen each second
    Load(DriveArgs),
}

/// The dictionary comparison.
#[derive(Debug, Clone, Args)]
pub(crate) struct DictionaryArgs {
    /// Seconds of processor time for each thread in each round of each side
    #[arg(long, default_value_t = 0.3)]
    pub(crate) seconds: f64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Goes before other work of a shared machine (needs the right to raise priorities)
    #[arg(long)]
    pub(crate) boost: bool,
    /// Where results go [default: bench/results]
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// How often to compile.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompileArgs {
    /// Rounds; the best counts
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: u32,
}

/// How often short pieces of code are measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct BatchArgs {
    /// Rounds; each takes the best of ten batches
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Writes the table there
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// Which parsers, how often.
#[derive(Debug, Clone, Args)]
pub(crate) struct ParsingArgs {
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
    /// Only rows whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Prints the parsers in the IR's text form, and the generated code
    #[arg(long)]
    pub(crate) asm: bool,
}

/// How often, beside Kaitai Struct.
#[derive(Debug, Clone, Args)]
pub(crate) struct KaitaiArgs {
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
}

/// Which functions, how often.
#[derive(Debug, Clone, Args)]
pub(crate) struct KernelArgs {
    /// Only this one
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
    /// Prints the generated code
    #[arg(long)]
    pub(crate) asm: bool,
}

/// The aggregator comparison.
#[derive(Debug, Clone, Args)]
pub(crate) struct HadoopArgs {
    /// Mappers
    #[arg(long, default_value_t = 8)]
    pub(crate) streams: usize,
    /// Pairs of each mapper
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) records: u64,
    /// Different words
    #[arg(long, default_value_t = 100_000)]
    pub(crate) words: u64,
    /// Length of a word
    #[arg(long, default_value_t = 12)]
    pub(crate) word_bytes: usize,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// The flick command [default: target/release/flick]
    #[arg(long)]
    pub(crate) flick: Option<PathBuf>,
}

/// The merge written by hand.
#[derive(Debug, Clone, Args)]
pub(crate) struct HadoopMergeArgs {
    /// Where mappers come to
    pub(crate) listen: SocketAddr,
    /// Where the result goes
    pub(crate) reducer: SocketAddr,
    /// Mappers
    pub(crate) streams: usize,
}

/// Where the sides run, and before whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// Core of what is measured
    #[arg(long, default_value_t = 0)]
    pub(crate) server_core: usize,
    /// Core of the load and of the servers behind what is measured
    #[arg(long, default_value_t = 1)]
    pub(crate) load_core: usize,
    /// Goes before other work of a shared machine (needs the right to raise priorities)
    #[arg(long)]
    pub(crate) boost: bool,
}

impl PlaceArgs {
    /// Takes the place of the load, until the end of what is returned.
    pub(crate) fn take(&self) -> io::Result<Option<Boost>> {
        pin_this_thread(self.load_core)?;
        self.boost.then(Boost::new).transpose()
    }
}

/// Which flick is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct FlickArgs {
    /// The flick command [default: target/release/flick]
    #[arg(long)]
    pub(crate) flick: Option<PathBuf>,
    /// I/O driver of flick: epoll or uring; its own choice by default
    #[arg(long)]
    pub(crate) io: Option<String>,
}

impl FlickArgs {
    /// Where the command is.
    pub(crate) fn path(&self) -> PathBuf {
        self.flick.clone().unwrap_or_else(|| workspace().join("target/release/flick"))
    }

    /// The command that runs a service with one worker; its addresses are still to be added.
    pub(crate) fn run(&self, program: &Path) -> Process {
        let mut command = Process::new(self.path());
        command.arg("run").arg(program).args(["--workers", "1"]);
        command.args(self.io.iter().flat_map(|io| ["--io", io.as_str()]));
        command
    }
}

/// How a service is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) flick: FlickArgs,
    /// Writes the page there, and the picture if there is one
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// Long bodies.
#[derive(Debug, Clone, Args)]
pub(crate) struct RelayArgs {
    /// Length of a body in MiB
    #[arg(long, default_value_t = 1024)]
    pub(crate) mib: u64,
    /// Only shapes whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Leaves out HAProxy and nginx
    #[arg(long)]
    pub(crate) no_rivals: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Short HTTP requests.
#[derive(Debug, Clone, Args)]
pub(crate) struct BalancerArgs {
    /// Connections of the load
    #[arg(long, default_value_t = 100)]
    pub(crate) clients: usize,
    /// Measured seconds of each round
    #[arg(long, default_value_t = 3)]
    pub(crate) seconds: u64,
    /// Seconds of each round before the measured ones
    #[arg(long, default_value_t = 1)]
    pub(crate) warmup_seconds: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Services that share a thread.
#[derive(Debug, Clone, Args)]
pub(crate) struct NeighboursArgs {
    /// Requests each second of the service that is measured
    #[arg(long, default_value_t = 2000.0)]
    pub(crate) rate: f64,
    /// Measured seconds of each round
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Options of flick
    #[arg(last = true)]
    pub(crate) more: Vec<String>,
}

/// A service that counts, and one that does not.
#[derive(Debug, Clone, Args)]
pub(crate) struct CountingArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) flick: FlickArgs,
    /// A flick that counts nothing, built with `--features flick-runtime/uncounted`
    #[arg(long)]
    pub(crate) uncounted: PathBuf,
    /// Writes the page there
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// What the platform adds to a message.
#[derive(Debug, Clone, Args)]
pub(crate) struct HandoverArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Tasks that share a worker.
#[derive(Debug, Clone, Args)]
pub(crate) struct SharingArgs {
    /// Tasks, half of them light
    #[arg(long, default_value_t = 200)]
    pub(crate) tasks: usize,
    /// Only policies whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The relay that looks at nothing.
#[derive(Debug, Clone, Args)]
pub(crate) struct BareRelayArgs {
    /// Where clients come to
    pub(crate) listen: SocketAddr,
    /// Where their bytes go
    pub(crate) server: SocketAddr,
    /// Lets the kernel move pages in place of copying
    #[arg(long)]
    pub(crate) splice: bool,
    /// Bytes read and written at once
    #[arg(long, default_value_t = 16384)]
    pub(crate) buffer_bytes: usize,
}

/// A load against a server of somebody else.
#[derive(Debug, Clone, Args)]
pub(crate) struct DriveArgs {
    /// Where the server listens
    pub(crate) addr: SocketAddr,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Speaks the text protocol
    #[arg(long)]
    pub(crate) text: bool,
    /// Cuts every write into random small pieces
    #[arg(long)]
    pub(crate) split: bool,
    /// Opens lost connections again
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// Leaves out writing every key first
    #[arg(long)]
    pub(crate) no_populate: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The load, the same for every side.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Connections of the load
    #[arg(long, default_value_t = 128)]
    pub(crate) clients: usize,
    /// Requests each connection keeps unanswered
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: usize,
    /// Different keys
    #[arg(long, default_value_t = 10_000)]
    pub(crate) keys: u64,
    /// Length of a key
    #[arg(long, default_value_t = 16)]
    pub(crate) key_bytes: usize,
    /// Length of a value
    #[arg(long, default_value_t = 100)]
    pub(crate) value_bytes: usize,
    /// Share of reads; the others write
    #[arg(long, default_value_t = 0.9)]
    pub(crate) get_ratio: f64,
    /// Requests per second of an open loop, in place of the closed one
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Measured seconds of each round
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Seconds of each round before the measured ones
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warmup_seconds: f64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

impl LoadArgs {
    /// Returns the load of one round against `addr`.
    pub(crate) fn config(&self, addr: SocketAddr, protocol: Protocol) -> LoadConfig {
        LoadConfig {
            protocol,
            connections: self.clients,
            depth: self.depth,
            keys: self.keys,
            key_bytes: self.key_bytes,
            value: ValueSize::Fixed(self.value_bytes),
            get_ratio: self.get_ratio,
            rate_per_s: self.rate,
            warmup: Duration::from_secs_f64(self.warmup_seconds.max(0.0)),
            duration: Some(Duration::from_secs_f64(self.seconds.max(0.1))),
            ..LoadConfig::new(addr)
        }
    }
}

/// One side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// nutcracker, text protocol
    Twemproxy,
    /// flick, binary protocol
    Flick,
    /// One memcached without a proxy, binary protocol
    Direct,
}

impl Side {
    /// Returns the name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Twemproxy => "twemproxy",
            Side::Flick => "flick",
            Side::Direct => "direct",
        }
    }
}

/// The proxy comparison.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Sides to run; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Side>,
    /// Backends behind the proxies
    #[arg(long, default_value_t = 4)]
    pub(crate) backends: usize,
    #[command(flatten)]
    pub(crate) flick: FlickArgs,
    /// The program flick runs [default: examples/memcached_proxy/memcached_proxy.flick]
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// twemproxy's buffer size in bytes (its -m)
    #[arg(long, default_value_t = 16384)]
    pub(crate) mbuf_bytes: usize,
    /// Where results go [default: bench/results]
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}
