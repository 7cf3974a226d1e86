//! A service that merges, in the simulator: a network for each worker, mappers on any of them, the reducer on all.
//! Promises: a run depends on its seed and its program alone; a worker without progress fails the run.
//! Refuses: threads and real time. Workers run one iteration each, in a random order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, SimConfig, SimDriver, SimNet, SimRng};
use flick_net::{Driver, Endpoint};
use flick_runtime::edge_counters::EdgeCounters;
use flick_runtime::state::{Origin, State};
use flick_runtime::{
    Binding, Counters, Hub, Limits, PlatformConfig, Setup, Shared, Totals, Worker, WorkerConfig,
};

use super::{MS, Subject, driver_limits};

/// Simulated time after which a run is given up.
const RUN_NS_MAX: u64 = 600_000 * MS;
/// Time for which a mapper stalls.
const STALL_NS: u64 = 300 * MS;

/// Input of the reducer of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// All that it was sent.
    pub bytes: Vec<u8>,
    /// Closed in good order.
    pub complete: bool,
    /// Reset.
    pub reset: bool,
}

/// Behaviour of a reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducer {
    /// Reads what it is sent.
    Reads,
    /// Reads nothing for a while.
    ReadsLate,
    /// Resets the connection at its first byte.
    Resets,
    /// Is not there.
    Refuses,
    /// Any of these, connection by connection, until [`MergeService::calm`]; then it reads.
    Moody,
}

struct ReducerActor {
    habit: Reducer,
    job: usize,
    jobs: Rc<RefCell<Vec<Received>>>,
}

impl Actor for ReducerActor {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        if self.habit == Reducer::ReadsLate {
            io.pause_reading(true);
            io.timer(50 * MS, 0);
        }
    }
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        if self.habit == Reducer::Resets {
            io.reset();
            return;
        }
        self.jobs.borrow_mut()[self.job].bytes.extend(data);
    }
    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.jobs.borrow_mut()[self.job].complete = true;
        io.close();
    }
    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        self.jobs.borrow_mut()[self.job].reset = true;
    }
    fn on_timer(&mut self, io: &mut PeerIo<'_>, _: u64) {
        io.pause_reading(false);
    }
}

/// Behaviour of a mapper at the end of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapperEnd {
    /// Closes its side and waits for ours.
    Closes,
    /// Closes everything.
    Leaves,
    /// Resets the connection.
    Resets,
    /// Says nothing more for a long while, then resets the connection.
    Stalls,
    /// Goes on for ever.
    Never,
}

/// End of a mapper's connection, as the mapper has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It was closed in good order.
    pub closed: bool,
    /// It was reset.
    pub reset: bool,
}

struct MapperActor {
    stream: Vec<u8>,
    end: MapperEnd,
    fate: Rc<RefCell<Fate>>,
}

impl Actor for MapperActor {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.write(&self.stream);
        match self.end {
            MapperEnd::Closes => io.shutdown_write(),
            MapperEnd::Leaves => io.close(),
            // Behind its bytes, as far as they have got.
            MapperEnd::Resets => io.timer(5 * MS, 0),
            MapperEnd::Stalls => io.timer(STALL_NS, 0),
            MapperEnd::Never => {}
        }
    }
    fn on_data(&mut self, _: &mut PeerIo<'_>, _: &[u8]) {
        panic!("a mapper is sent nothing");
    }
    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.fate.borrow_mut().closed = true;
        io.close();
    }
    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        self.fate.borrow_mut().reset = true;
    }
    fn on_timer(&mut self, io: &mut PeerIo<'_>, _: u64) {
        io.reset();
    }
}

/// Configuration of a run.
#[derive(Clone)]
pub struct MergeConfig {
    /// Seed of the networks and of the order of iterations.
    pub seed: u64,
    /// Number of workers.
    pub workers: usize,
    /// Number of mappers of a job.
    pub streams: usize,
    /// Behaviour of the reducers.
    pub reducer: Reducer,
    /// The network of each worker.
    pub sim: SimConfig,
}

impl MergeConfig {
    /// One whose network cuts and delays and whose reducers read.
    pub fn new(seed: u64, workers: usize, streams: usize) -> Self {
        Self { seed, workers, streams, reducer: Reducer::Reads, sim: SimConfig::hostile() }
    }
}

/// The service.
pub struct MergeService {
    nets: Vec<SimNet>,
    /// Its workers.
    pub workers: Vec<Worker<SimDriver>>,
    counters: Vec<Arc<Counters>>,
    /// Shared state through which it is drained and stopped.
    pub shared: Arc<Shared>,
    listen: Endpoint,
    jobs: Rc<RefCell<Vec<Received>>>,
    finished: Vec<bool>,
    is_calm: Rc<Cell<bool>>,
    random: u64,
}

impl MergeService {
    /// Starts the service.
    pub fn new(config: &MergeConfig, subject: &Subject) -> Self {
        let listen: Endpoint = "127.0.0.1:9000".parse().expect("an address");
        let reducer: Endpoint = "127.0.0.1:9100".parse().expect("an address");
        let platform = platform_of(config, &listen, &reducer);
        let (program, engine) = (Arc::clone(&subject.program), Arc::clone(&subject.engine));
        let setup = Setup::new(program, engine, &platform).expect("the bindings fit");
        let setup = Arc::new(setup);
        let hub = setup.merge.as_ref().map(|merge| Arc::new(Hub::new(merge, config.workers)));
        let shared = Arc::new(Shared::default());
        let jobs: Rc<RefCell<Vec<Received>>> = Rc::default();
        let mut service = Self {
            nets: Vec::new(),
            workers: Vec::new(),
            counters: Vec::new(),
            shared: Arc::clone(&shared),
            listen: listen.clone(),
            jobs: Rc::clone(&jobs),
            finished: vec![false; config.workers],
            is_calm: Rc::default(),
            random: config.seed | 1,
        };
        let state = State::new(&setup.program, config.workers, Origin::Simulated(config.seed));
        let state = Arc::new(state.expect("small dictionaries fit"));
        for index in 0..config.workers {
            let net = SimNet::new(config.seed ^ index as u64, config.sim.clone());
            let (jobs, habit, is_calm) = (Rc::clone(&jobs), config.reducer, Rc::clone(&service.is_calm));
            let mut rng = SimRng::new(config.seed ^ 0x4ed0 ^ index as u64);
            net.serve(&reducer, move |_| {
                let habit = if habit == Reducer::Moody { any_mood(&mut rng, is_calm.get()) } else { habit };
                if habit == Reducer::Refuses {
                    return None;
                }
                jobs.borrow_mut().push(Received::default());
                let job = jobs.borrow().len() - 1;
                Some(Box::new(ReducerActor { habit, job, jobs: Rc::clone(&jobs) }))
            });
            let driver = net.driver(driver_limits(&setup)).expect("a driver");
            let counters = Arc::new(Counters::default());
            let edge_counters = Arc::new(EdgeCounters::of(&setup.program));
            let worker_config = WorkerConfig {
                service: setup.program.name.clone(),
                setup: Arc::clone(&setup),
                shared: Arc::clone(&shared),
                state: Arc::clone(&state),
                counters: Arc::clone(&counters),
                backend_counters: Arc::default(),
                edge_counters,
                workers: config.workers,
                index,
                hub: hub.clone(),
                access: None,
                seed: config.seed,
                time_slices: false,
            };
            let mut worker = Worker::new(driver, worker_config);
            let listener = worker.driver().listen(&listen).expect("listens");
            worker.add_listener(listener);
            worker.start();
            service.nets.push(net);
            service.workers.push(worker);
            service.counters.push(counters);
        }
        service
    }

    /// Adds a mapper that connects to some worker at a time.
    pub fn mapper(&mut self, at_ns: u64, stream: &[u8], end: MapperEnd) -> Rc<RefCell<Fate>> {
        let fate = Rc::new(RefCell::new(Fate::default()));
        let actor = MapperActor { stream: stream.to_vec(), end, fate: Rc::clone(&fate) };
        let net = self.draw(self.nets.len() as u64) as usize;
        self.nets[net].connect(&self.listen, at_ns, Box::new(actor));
        fate
    }

    /// The time of the network that is ahead of the others.
    pub fn now_ns(&self) -> u64 {
        self.nets.iter().map(SimNet::now_ns).max().unwrap_or(0)
    }

    /// A moody reducer is so no more.
    pub fn calm(&self) {
        self.is_calm.set(true);
    }

    /// A number below `below`.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Runs workers, in an order that is drawn, until `done`. Panics when that takes too long.
    pub fn run(&mut self, mut done: impl FnMut(&[Received], &Totals) -> bool) {
        while !done(&self.jobs.borrow(), &self.totals()) {
            self.step();
        }
    }

    /// Runs for a while of simulated time.
    pub fn run_for(&mut self, ms: u64) {
        let until: Vec<u64> = self.nets.iter().map(|net| net.now_ns() + ms * MS).collect();
        while self.nets.iter().zip(&until).any(|(net, until)| net.now_ns() < *until) {
            self.step();
        }
    }

    /// Runs until every worker has said that it is finished.
    pub fn run_out(&mut self) {
        while self.finished.iter().any(|finished| !finished) {
            self.step();
        }
    }

    fn step(&mut self) {
        let index = self.draw(self.workers.len() as u64) as usize;
        assert!(self.nets[index].now_ns() < RUN_NS_MAX, "the service makes no progress: {:?}", self.totals());
        let goes_on = self.workers[index].run_once(Some(Duration::from_millis(1))).expect("a turn");
        self.finished[index] |= !goes_on;
    }

    /// Returns the input of the reducers, connection by connection.
    pub fn jobs(&self) -> Vec<Received> {
        self.jobs.borrow().clone()
    }

    /// The counters of all workers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.iter().for_each(|counters| totals.absorb(counters));
        totals
    }

    /// Panics when anything of a job is left.
    pub fn expect_quiet(&self) {
        for worker in &self.workers {
            let audit = worker.audit();
            assert_eq!((audit.sessions, audit.pieces, audit.blocked), (0, 0, 0), "{audit:?}");
            assert!(audit.large_bufs <= 1 && audit.small_bufs == 0, "{audit:?}");
        }
    }
}

/// Small rings, so that back-pressure is the usual case.
fn platform_of(config: &MergeConfig, listen: &Endpoint, reducer: &Endpoint) -> PlatformConfig {
    PlatformConfig {
        workers: config.workers,
        limits: Limits {
            max_connections: 64,
            max_inflight_requests: 1024,
            buffer_memory: 8 << 20,
            merge_ring_bytes: 1024,
            ..Limits::default()
        },
        ..PlatformConfig::new(
            vec![Binding::new("mappers", vec![listen.clone(); config.streams])],
            vec![Binding::new("reducer", vec![reducer.clone()])],
        )
    }
}

fn any_mood(rng: &mut SimRng, is_calm: bool) -> Reducer {
    match if is_calm { 0 } else { rng.between(0, 5) } {
        0..=2 => Reducer::Reads,
        3 => Reducer::ReadsLate,
        4 => Reducer::Resets,
        _ => Reducer::Refuses,
    }
}
