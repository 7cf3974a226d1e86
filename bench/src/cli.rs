//! The command line of the benchmarks.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flick_load::load::{KeySize, LoadConfig, LoadProtocol, ValueSize};
use flick_shm::client::ClientAddress;

use crate::process::{Boost, pin_this_thread, workspace};

/// Measures flick beside its rivals.
#[derive(Debug, Parser)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Benchmark to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The memcached proxy of Listing 1 beside twemproxy and a direct connection by number of connections
    MemcachedProxy(ProxyArgs),
    /// The Hadoop aggregator of Listing 3 against a merge written by hand
    Hadoop(HadoopArgs),
    /// The merge written by hand, started by `hadoop`
    #[command(hide = true)]
    HadoopMerge(HadoopMergeArgs),
    /// The embedded store without a proxy: the limit of the load generator
    Store(LoadArgs),
    /// Reads of the shared dictionary against papaya, a concurrent map
    Dictionary(DictionaryArgs),
    /// Compiled functions of the language beside the same in Rust
    Kernels(KernelArgs),
    /// Parsers of grammars beside parsers in Rust
    Parsing(ParsingArgs),
    /// Parsers of grammars beside what Kaitai Struct generates (needs npm, Maven and a JDK)
    Kaitai(KaitaiArgs),
    /// Long bodies through a relay and an HTTP proxy, beside relays that parse nothing, HAProxy and nginx
    Relay(RelayArgs),
    /// The HTTP balancer beside HAProxy and nginx by number of connections (needs wrk)
    HttpBalancer(SweepArgs),
    /// The HTTP balancer between clients and servers in shared memory, beside itself and nginx on TCP
    HttpBalancerShm(SweepArgs),
    /// The memcached proxy between clients and servers in shared memory, beside itself and twemproxy on TCP
    MemcachedProxyShm(ShmProxyArgs),
    /// The memory of idle connections of a service, in shared memory and on TCP
    IdleConnections(IdleArgs),
    /// A static web server beside nginx by number of connections (needs wrk)
    StaticServer(SweepArgs),
    /// The key-value server beside memcached by number of connections
    KeyValueServer(MemcachedSweepArgs),
    /// `flick store` beside memcached by protocol, pipeline, workload, workers and connections
    StoreProtocols(StoreProtocolsArgs),
    /// A service beside a flooded one on the same thread
    Neighbours(NeighboursArgs),
    /// A client of the memcached proxy beside clients that pipeline requests for long values
    Shares(SharesArgs),
    /// An echo service beside a program at its worst case on the same worker
    WorstMessage(WorstMessageArgs),
    /// The cost of counters and of the access log
    Counting(CountingArgs),
    /// The cost of a message between tasks, and of a task switch
    Handover(HandoverArgs),
    /// Streams in shared memory beside TCP, Unix sockets and pipes
    Shm(ShmArgs),
    /// Chains of packet filters: shared memory, pipes, TCP, one process, and filters written by hand
    Chain(ChainArgs),
    /// A packet filter written by hand, started by `chain`
    #[command(hide = true)]
    PacketFilter(PacketFilterArgs),
    /// Unmodified programs with and without `flick accel --move`
    Accel(AccelArgs),
    /// Figure 7: 200 tasks on one worker, light and heavy, under the three policies
    Sharing(SharingArgs),
    /// A relay that parses nothing, started by `relay`
    #[command(hide = true)]
    BareRelay(BareRelayArgs),
    /// From text to machine code: the examples, and a generated program of 5,000 lines
    Compile(CompileArgs),
    /// Load any running memcached server, check every reply, print a line each second
    Load(DriveArgs),
    /// `flick load` beside wrk, ab, redis-benchmark and memcslap at the same servers
    Generators(GeneratorsArgs),
    /// The memcached proxy with tunables that follow a day's load (`[tune]`), beside fixed ones
    Following(FollowingArgs),
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
    /// Take precedence over other work of a shared machine (needs the right to raise priorities)
    #[arg(long)]
    pub(crate) boost: bool,
    /// Directory for the results [default: bench/results]
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// The compiler's benchmark.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompileArgs {
    /// Rounds; the best counts
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: u32,
}

/// Rounds of a microbenchmark, and the directory for its table.
#[derive(Debug, Clone, Args)]
pub(crate) struct BatchArgs {
    /// Rounds; each takes the best of ten batches
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Directory for the table
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// The parsers to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct ParsingArgs {
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
    /// Only rows whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Print the parsers in the IR's text form, and the generated code
    #[arg(long)]
    pub(crate) asm: bool,
}

/// The comparison with Kaitai Struct.
#[derive(Debug, Clone, Args)]
pub(crate) struct KaitaiArgs {
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
}

/// The kernels to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct KernelArgs {
    /// Only this one
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) batches: BatchArgs,
    /// Print the generated code
    #[arg(long)]
    pub(crate) asm: bool,
    /// Measure the time of a step of `flick check --bounds` for each kind of work instead
    #[arg(long)]
    pub(crate) steps: bool,
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
    /// Path of flick [default: target/release/flick]
    #[arg(long)]
    pub(crate) flick: Option<PathBuf>,
}

/// The merge written by hand.
#[derive(Debug, Clone, Args)]
pub(crate) struct HadoopMergeArgs {
    /// Address that mappers connect to
    pub(crate) listen: SocketAddr,
    /// Address of the reducer
    pub(crate) reducer: SocketAddr,
    /// Mappers
    pub(crate) streams: usize,
}

/// The cores that the sides run on, and their priority.
#[derive(Debug, Clone, Args)]
pub(crate) struct CoreArgs {
    /// Core of what is measured
    #[arg(long, default_value_t = 0)]
    pub(crate) server_core: usize,
    /// Core of the load and of the servers behind what is measured
    #[arg(long, default_value_t = 1)]
    pub(crate) load_core: usize,
    /// Take precedence over other work of a shared machine (needs the right to raise priorities)
    #[arg(long)]
    pub(crate) boost: bool,
}

impl CoreArgs {
    /// Binds this thread to the core of the load and raises the priority, as long as the returned value lives.
    pub(crate) fn take(&self) -> io::Result<Option<Boost>> {
        pin_this_thread(self.load_core)?;
        self.boost.then(Boost::new).transpose()
    }
}

/// The flick under test and its I/O driver.
#[derive(Debug, Clone, Args)]
pub(crate) struct FlickArgs {
    /// Path of flick [default: target/release/flick]
    #[arg(long)]
    pub(crate) flick: Option<PathBuf>,
    /// I/O driver of flick: epoll or uring [default: auto]
    #[arg(long)]
    pub(crate) io: Option<String>,
}

impl FlickArgs {
    /// Path of the command.
    pub(crate) fn path(&self) -> PathBuf {
        self.flick.clone().unwrap_or_else(|| workspace().join("target/release/flick"))
    }

    /// The command that runs a service with one worker; the caller adds its addresses.
    pub(crate) fn run(&self, program: &Path) -> Process {
        let mut command = Process::new(self.path());
        command.arg("run").arg(program).args(["--workers", "1"]);
        command.args(self.io.iter().flat_map(|io| ["--io", io.as_str()]));
        command
    }
}

/// Rounds, cores, flick and result directory of a service benchmark.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) cores: CoreArgs,
    #[command(flatten)]
    pub(crate) flick: FlickArgs,
    /// Directory for the results [default: print only]
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
    /// Leave out HAProxy and nginx
    #[arg(long)]
    pub(crate) no_rivals: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A load benchmark over numbers of connections.
#[derive(Debug, Clone, Args)]
pub(crate) struct SweepArgs {
    /// Numbers of connections
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=20_000),
          default_values_t = [1, 2, 4, 10, 30, 100, 300, 1600])]
    pub(crate) connections: Vec<u32>,
    /// Measured seconds of each round
    #[arg(long, default_value_t = 3)]
    pub(crate) seconds: u64,
    /// Seconds of each round before the measured ones
    #[arg(long, default_value_t = 1)]
    pub(crate) warmup_seconds: u64,
    /// Sides to run [default: all]
    #[arg(long, value_name = "SIDE", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl SweepArgs {
    /// The load with the times of a round.
    pub(crate) fn timed(&self, load: LoadConfig) -> LoadConfig {
        LoadConfig {
            warmup: Duration::from_secs(self.warmup_seconds),
            duration: Some(Duration::from_secs(self.seconds.max(1))),
            ..load
        }
    }
}

/// A sweep with memcached's protocols.
#[derive(Debug, Clone, Args)]
pub(crate) struct MemcachedSweepArgs {
    #[command(flatten)]
    pub(crate) load: MemcachedLoadArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
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

/// A client beside clients with long replies.
#[derive(Debug, Clone, Args)]
pub(crate) struct SharesArgs {
    /// Measured seconds of each round
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Long replies per second that the others ask for together [default: as many as they get]
    #[arg(long)]
    pub(crate) long_rate: Option<f64>,
    /// Numbers of clients with long replies
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [0, 4, 16])]
    pub(crate) long: Vec<usize>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// An echo service, and a program at its worst case.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorstMessageArgs {
    /// Requests each second of the echo service
    #[arg(long, default_value_t = 500.0)]
    pub(crate) rate: f64,
    /// Measured seconds of each round
    #[arg(long, default_value_t = 4.0)]
    pub(crate) seconds: f64,
    /// Only neighbours whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A service with counters, and one without.
#[derive(Debug, Clone, Args)]
pub(crate) struct CountingArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) flick: FlickArgs,
    /// A flick without counters, built with `--features flick-runtime/uncounted`
    #[arg(long)]
    pub(crate) uncounted: PathBuf,
    /// Directory for the page
    #[arg(long)]
    pub(crate) results: Option<PathBuf>,
}

/// The platform's overhead per message.
#[derive(Debug, Clone, Args)]
pub(crate) struct HandoverArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Streams in shared memory.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShmArgs {
    /// Only figures whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Exchange a hundredth of the messages: for correctness, not for figures
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Chains of packet filters.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChainArgs {
    /// Numbers of filters
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    pub(crate) lengths: Vec<usize>,
    /// Records of a round; a tenth of them for filters that read packet by packet
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) records: usize,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Unmodified programs.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccelArgs {
    /// Numbers of filters
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    pub(crate) lengths: Vec<usize>,
    /// Records or lines of a round of filters
    #[arg(long, default_value_t = 500_000)]
    pub(crate) records: usize,
    /// Round trips of a round
    #[arg(long, default_value_t = 200_000)]
    pub(crate) round_trips: u64,
    /// Seconds of a round of a server
    #[arg(long, default_value_t = 2)]
    pub(crate) seconds: u64,
    /// Only figures whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Load generators.
#[derive(Debug, Clone, Args)]
pub(crate) struct GeneratorsArgs {
    /// Numbers of connections
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000),
          default_values_t = [1, 50])]
    pub(crate) connections: Vec<u32>,
    /// Seconds of a round of each
    #[arg(long, default_value_t = 3)]
    pub(crate) seconds: u64,
    /// Only pairs whose name contains this
    #[arg(long)]
    pub(crate) only: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The store by protocol.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreProtocolsArgs {
    /// Numbers of connections
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_000),
          default_values_t = [10, 100, 1280])]
    pub(crate) connections: Vec<u32>,
    /// Requests that each connection keeps unanswered
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16])]
    pub(crate) pipelines: Vec<usize>,
    /// Workers of each server; one has a core of its own, several share all with the load
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub(crate) workers: Vec<usize>,
    /// Measured milliseconds of each round
    #[arg(long, default_value_t = 1_000)]
    pub(crate) round_ms: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A service that follows its load.
#[derive(Debug, Clone, Args)]
pub(crate) struct FollowingArgs {
    /// Seconds of each load; there are 24 in a day
    #[arg(long, default_value_t = 8)]
    pub(crate) seconds: u64,
    /// Requests per second at the day's peak
    #[arg(long, default_value_t = 8_000.0)]
    pub(crate) peak: f64,
    /// SLA to follow
    #[arg(long, default_value = "p90:500us")]
    pub(crate) sla: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A packet filter written by hand.
#[derive(Debug, Clone, Args)]
pub(crate) struct PacketFilterArgs {
    /// Change a byte of each packet
    #[arg(long)]
    pub(crate) edit: bool,
    /// Read and write 64 KiB at a time instead of a packet
    #[arg(long)]
    pub(crate) buffered: bool,
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

/// The relay that parses nothing.
#[derive(Debug, Clone, Args)]
pub(crate) struct BareRelayArgs {
    /// Address to listen on
    pub(crate) listen: SocketAddr,
    /// Address of the server
    pub(crate) server: SocketAddr,
    /// Let the kernel move pages instead of copying them
    #[arg(long)]
    pub(crate) splice: bool,
    /// Bytes read and written at once
    #[arg(long, default_value_t = 16384)]
    pub(crate) buffer_bytes: usize,
}

/// Idle connections of a service.
#[derive(Debug, Clone, Args)]
pub(crate) struct IdleArgs {
    /// Number of connections
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) connections: u32,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The proxy comparison in shared memory.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShmProxyArgs {
    #[command(flatten)]
    pub(crate) memcached: MemcachedSweepArgs,
    /// Servers behind the proxies
    #[arg(long, default_value_t = 4)]
    pub(crate) backends: usize,
}

/// A load against a server that is already running.
#[derive(Debug, Clone, Args)]
pub(crate) struct DriveArgs {
    /// Address of the server: `IP:PORT`, `unix:PATH` or `shm:NAME`
    pub(crate) addr: ClientAddress,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Use the text protocol
    #[arg(long)]
    pub(crate) text: bool,
    /// Split every write into random small pieces
    #[arg(long)]
    pub(crate) split: bool,
    /// Reconnect lost connections
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// Do not write every key first
    #[arg(long)]
    pub(crate) no_populate: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Requests of memcached's protocols, the same for every side.
#[derive(Debug, Clone, Args)]
pub(crate) struct MemcachedLoadArgs {
    /// Requests that each connection keeps unanswered
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
    /// Requests per second of an open loop [default: a closed loop]
    #[arg(long)]
    pub(crate) rate: Option<f64>,
}

impl MemcachedLoadArgs {
    /// The load against `addr`.
    pub(crate) fn config(
        &self,
        addr: impl Into<ClientAddress>,
        protocol: LoadProtocol,
        connections: usize,
    ) -> LoadConfig {
        LoadConfig {
            protocol,
            connections,
            depth: self.depth,
            keys: self.keys,
            key_size: KeySize::Fixed(self.key_bytes),
            value: ValueSize::Fixed(self.value_bytes),
            get_ratio: self.get_ratio,
            rate_per_s: self.rate,
            ..LoadConfig::new(addr)
        }
    }

    /// The load in words.
    pub(crate) fn in_words(&self) -> String {
        let pace = match self.rate {
            None => "closed loop".to_owned(),
            Some(rate) => format!("open loop of {rate} requests/s"),
        };
        format!(
            "{} unanswered request(s) on each connection, {pace}; {} keys of {} bytes,\nvalues of {} bytes, {} % reads",
            self.depth,
            self.keys,
            self.key_bytes,
            self.value_bytes,
            self.get_ratio * 100.0,
        )
    }

    /// The name of the results of a figure with this load.
    pub(crate) fn file_name(&self, figure: &str) -> String {
        let depth = if self.depth > 1 { format!("-depth{}", self.depth) } else { String::new() };
        format!("{figure}{depth}{}", if self.rate.is_some() { "-open" } else { "" })
    }
}

/// A load with one number of connections.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Connections of the load
    #[arg(long, default_value_t = 128)]
    pub(crate) clients: usize,
    #[command(flatten)]
    pub(crate) requests: MemcachedLoadArgs,
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
    pub(crate) cores: CoreArgs,
}

impl LoadArgs {
    /// The load of one round against `addr`.
    pub(crate) fn config(&self, addr: impl Into<ClientAddress>, protocol: LoadProtocol) -> LoadConfig {
        LoadConfig {
            warmup: Duration::from_secs_f64(self.warmup_seconds.max(0.0)),
            duration: Some(Duration::from_secs_f64(self.seconds.max(0.1))),
            ..self.requests.config(addr, protocol, self.clients)
        }
    }
}

/// The proxy comparison.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    pub(crate) memcached: MemcachedSweepArgs,
    /// Backends behind the proxies
    #[arg(long, default_value_t = 4)]
    pub(crate) backends: usize,
    /// The program flick runs [default: examples/memcached_proxy/memcached_proxy.flick]
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// twemproxy's buffer size in bytes (its -m)
    #[arg(long, default_value_t = 16384)]
    pub(crate) mbuf_bytes: usize,
}
