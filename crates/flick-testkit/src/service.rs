//! A whole service in the simulator: the platform with any engine, scripted servers behind it, checking clients
//! before it. Start reading here; `fault_injection.rs` makes a run with faults from one seed and checks it.
//! Promises: a run depends on its seed and its program alone; a service that spins is found out.
//! Refuses: threads and real time.

pub mod backend_faults;
pub mod client;
mod conduct;
pub mod fault_injection;
pub mod memcached;
pub mod merging;
pub mod mutant;
pub mod server;
pub mod traffic;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_abi::{Engine, Program};
use flick_net::sim::{Actor, SimConfig, SimDriver, SimNet};
use flick_net::{Driver, DriverLimits, Endpoint, PeerAddr};
use flick_runtime::access_log::AccessLog;
use flick_runtime::edge_counters::EdgeCounters;
use flick_runtime::state::{Origin, State};
use flick_runtime::{
    BackendCounters, Binding, Counters, Hub, Limits, PlatformConfig, Setup, Shared, StartError, Timeouts,
    Totals, Worker, WorkerConfig,
};

use crate::scenario::stage::expect_quiet;
use client::{Habit, MemcachedClient, Verdict};
use memcached::Cmd;

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// Turns in a row in which nothing happens and no time is waited for: more of them is spinning.
const IDLE_ITERATIONS_MAX: u32 = 200;

/// Longest that a run in the simulator waits in one turn.
const ITERATION_MS_MAX: u64 = 10;

/// A program and what runs it.
#[derive(Clone)]
pub struct Subject {
    /// The program. It listens on its first channel and connects to backends on its second; a process that merges
    /// listens on the array that it merges.
    pub program: Arc<Program>,
    /// Its code.
    pub engine: Arc<dyn Engine>,
}

/// Configuration of a service in the simulator.
#[derive(Clone)]
pub struct SimServiceConfig {
    /// Seed of the network and the worker.
    pub seed: u64,
    /// The network.
    pub sim: SimConfig,
    /// Number of backends.
    pub servers: usize,
    /// Number of streams that a merging process receives.
    pub streams: usize,
    /// Number of backends by backend channel, in the order of the channels. Empty: all are of the program's
    /// second channel, if it has one.
    pub groups: Vec<(String, usize)>,
    /// Weights of the backends of each channel; empty: all the same.
    pub weights: Vec<u32>,
    /// Ranks of the backends of each channel, by which some stand in for others; empty: none does.
    pub ranks: Vec<u16>,
    /// The platform's limits.
    pub limits: Limits,
    /// The platform's timeouts.
    pub timeouts: Timeouts,
}

impl SimServiceConfig {
    /// A small service on a quiet network.
    pub fn new(seed: u64, servers: usize) -> Self {
        let limits = Limits {
            max_connections: 64,
            max_inflight_requests: 1024,
            buffer_memory: 8 << 20,
            max_dedicated_connections: 2,
            ..Limits::default()
        };
        Self {
            seed,
            sim: SimConfig::default(),
            servers,
            streams: 1,
            groups: Vec::new(),
            weights: Vec::new(),
            ranks: Vec::new(),
            limits,
            timeouts: Timeouts::default(),
        }
    }
}

/// The service.
pub struct SimService {
    /// The network around it.
    pub net: SimNet,
    /// Its only worker.
    pub worker: Worker<SimDriver>,
    /// Setup of the service, with its sets of backends.
    pub setup: Arc<Setup>,
    /// State that its program shares.
    pub state: Arc<State>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Its counters of each backend.
    pub backend_counters: Arc<Vec<BackendCounters>>,
    /// Shared state through which it is drained and stopped.
    pub shared: Arc<Shared>,
    /// Address at which clients reach it.
    pub listen: Endpoint,
    /// Addresses of its backends.
    pub backends: Vec<Endpoint>,
    /// It has said that it is finished.
    pub is_finished: bool,
}

impl SimService {
    /// Starts the service; `server` makes each connection that it opens to the backend of that number, or refuses it.
    pub fn new(
        config: &SimServiceConfig,
        subject: &Subject,
        server: impl FnMut(usize, PeerAddr) -> Option<Box<dyn Actor>> + 'static,
    ) -> Self {
        let net = SimNet::new(config.seed, config.sim.clone());
        let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
        let server = Rc::new(RefCell::new(server));
        let backends: Vec<Endpoint> = (0..config.servers)
            .map(|index| {
                let server = Rc::clone(&server);
                net.serve(&any, move |peer| (server.borrow_mut())(index, peer))
            })
            .collect();
        let listen: Endpoint = "127.0.0.1:11211".parse().expect("an address");
        let setup = Arc::new(setup(config, subject, &listen, &backends));
        let driver = net.driver(driver_limits(&setup)).expect("a driver");
        let counters = Arc::new(Counters::default());
        let backend_counters = Arc::new(setup.backend_counters());
        let edge_counters = Arc::new(EdgeCounters::of(&setup.program));
        let shared = Arc::new(Shared::default());
        let state =
            State::new(&subject.program, 1, Origin::Simulated(config.seed)).expect("small dictionaries fit");
        let state = Arc::new(state);
        // Some runs keep an access log without a reader.
        let access = AccessLog { sample: NonZeroU32::MIN, fields: Vec::new(), port: Arc::default() };
        let is_logged = config.seed % 8 == 1;
        let mut worker = Worker::new(
            driver,
            WorkerConfig {
                service: setup.program.name.clone(),
                setup: Arc::clone(&setup),
                shared: Arc::clone(&shared),
                state: Arc::clone(&state),
                counters: Arc::clone(&counters),
                backend_counters: Arc::clone(&backend_counters),
                edge_counters,
                workers: 1,
                index: 0,
                hub: hub_of(&setup),
                access: is_logged.then(|| access.sink("simulated", 0)),
                seed: config.seed,
                time_slices: false,
            },
        );
        let listener = worker.driver().listen(&listen).expect("listens");
        worker.add_listener(listener);
        worker.start();
        let is_finished = false;
        Self { net, worker, setup, state, counters, backend_counters, shared, listen, backends, is_finished }
    }

    /// Adds a client that connects at a time.
    pub fn client(&self, at_ns: u64, requests: &[Cmd], habit: Habit) -> Rc<RefCell<Verdict>> {
        let verdict = Rc::new(RefCell::new(Verdict::default()));
        let client = MemcachedClient::new(requests, habit, Rc::clone(&verdict));
        self.net.connect(&self.listen, at_ns, Box::new(client));
        verdict
    }

    /// Runs until `done`, or a moment of simulated time, or until the worker says that it is finished.
    ///
    /// Errors: the service spins.
    pub fn run(&mut self, until_ns: u64, mut done: impl FnMut(&Self) -> bool) -> Result<(), String> {
        self.iterations(until_ns, |service| service.is_finished || done(service))
    }

    /// Delivers what is in flight after the worker has finished, as a kernel would.
    ///
    /// Errors: something that the worker had promised to send has not been handed over.
    pub fn wind_up(&mut self, until_ns: u64, done: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let audit = self.worker.audit();
        if self.net.conns_count() > audit.backend_conns + audit.sessions {
            return Err("finished although output of closed connections was still to be sent".into());
        }
        self.iterations(until_ns, done)
    }

    /// Runs until `done` or a moment of simulated time, whatever the worker says.
    ///
    /// Errors: the service spins.
    pub fn iterations(&mut self, until_ns: u64, mut done: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let mut idle_iterations = 0;
        while self.net.now_ns() < until_ns && !done(self) {
            let (before, at_ns) = (self.net.trace_hash(), self.net.now_ns());
            let left = Duration::from_nanos(until_ns - at_ns).min(Duration::from_millis(ITERATION_MS_MAX));
            let goes_on =
                self.worker.run_once(Some(left)).map_err(|error| format!("a turn failed: {error}"))?;
            self.is_finished = !goes_on;
            let is_idle = self.net.trace_hash() == before && self.net.now_ns() < at_ns + IDLE_NS;
            idle_iterations = if is_idle { idle_iterations + 1 } else { 0 };
            if idle_iterations > IDLE_ITERATIONS_MAX {
                return Err(format!(
                    "the service spins at {} ns: {:?}",
                    self.net.now_ns(),
                    self.worker.audit()
                ));
            }
        }
        Ok(())
    }

    /// The counters now.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.absorb(&self.counters);
        totals
    }

    /// Resources that are still in use although nothing is in flight.
    ///
    /// Errors: a list of what should not be there.
    pub fn expect_quiet(&self) -> Result<(), String> {
        // The driver may keep one large buffer to receive into.
        expect_quiet(&self.worker.audit(), self.counters.connections_open.get(), 1)
    }
}

/// A turn that takes less time than this has not waited.
const IDLE_NS: u64 = 5_000;

pub(crate) fn setup(
    config: &SimServiceConfig,
    subject: &Subject,
    listen: &Endpoint,
    backends: &[Endpoint],
) -> Setup {
    try_setup(config, subject, listen, backends).expect("the bindings fit")
}

/// Binds a program to peers.
///
/// Errors: the peers do not fit the program's channels.
pub(crate) fn try_setup(
    config: &SimServiceConfig,
    subject: &Subject,
    listen: &Endpoint,
    backends: &[Endpoint],
) -> Result<Setup, StartError> {
    let bind = |name: &str, endpoints: &[Endpoint]| Binding {
        weights: config.weights.clone(),
        ranks: config.ranks.clone(),
        ..Binding::new(name, endpoints.to_vec())
    };
    let channels = &subject.program.channels;
    let merged = subject.program.merges.first().map(|merge| merge.source);
    let listened = merged.unwrap_or(0);
    let connected = if listened == 1 { 0 } else { 1 };
    let streams = if merged.is_some() { config.streams } else { 1 };
    let mut rest = backends;
    let mut connect: Vec<Binding> = Vec::new();
    for (name, count) in &config.groups {
        let (own, behind) = rest.split_at((*count).min(rest.len()));
        connect.push(bind(name, own));
        rest = behind;
    }
    if let (true, Some(connected)) = (config.groups.is_empty(), channels.get(connected)) {
        connect.push(bind(&connected.name, backends));
    }
    let platform = PlatformConfig {
        limits: config.limits.clone(),
        timeouts: config.timeouts.clone(),
        ..PlatformConfig::new(vec![bind(&channels[listened].name, &vec![listen.clone(); streams])], connect)
    };
    let (program, engine) = (Arc::clone(&subject.program), Arc::clone(&subject.engine));
    Setup::new(program, engine, &platform)
}

/// Returns the hub of a service with one worker, if its program merges.
pub(crate) fn hub_of(setup: &Setup) -> Option<Arc<Hub>> {
    setup.merge.as_ref().map(|merge| Arc::new(Hub::new(merge, 1)))
}

/// Room for a small service.
fn driver_limits(setup: &Setup) -> DriverLimits {
    DriverLimits {
        conns_max: Worker::<SimDriver>::conns_max(setup),
        shm_conns_max: 0,
        output_slices_max: 16_384,
        events_max: 1024,
        receive_bytes: 16 * 1024,
    }
}

/// Seeds of one run; `FLICK_SEEDS` asks for another number of them, `FLICK_SEED` for one only.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FLICK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_SEEDS").unwrap_or(default),
    }
}
