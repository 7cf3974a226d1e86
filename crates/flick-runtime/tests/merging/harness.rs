//! A service that merges, in the simulator: a network for each worker, mappers on any of them, the reducer on all.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, SimConfig, SimDriver, SimNet};
use flick_net::{Driver, DriverLimits, Endpoint};
use flick_runtime::state::{Origin, State};
use flick_runtime::{
    Binding, Counters, Hub, Limits, PlatformConfig, Setup, Shared, Timeouts, Totals, Worker, WorkerConfig,
};

use crate::pairs::{Combine, Hand, program};

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Simulated time after which a run is given up.
const RUN_NS_MAX: u64 = 600_000 * MS;

/// What one job's reducer has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub bytes: Vec<u8>,
    /// Closed in good order.
    pub complete: bool,
    /// Reset.
    pub reset: bool,
}

/// How a reducer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducer {
    Reads,
    /// Reads nothing for a while.
    ReadsLate,
    /// Resets the connection at its first byte.
    Resets,
    /// Is not there.
    Refuses,
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

/// How a mapper ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closes its side and waits for ours.
    Closes,
    /// Closes everything.
    Leaves,
    /// Resets the connection.
    Resets,
    /// Goes on for ever.
    Never,
}

/// What a mapper has seen of the end of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    pub closed: bool,
    pub reset: bool,
}

struct MapperActor {
    stream: Vec<u8>,
    end: End,
    fate: Rc<RefCell<Fate>>,
}

impl Actor for MapperActor {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.write(&self.stream);
        match self.end {
            End::Closes => io.shutdown_write(),
            End::Leaves => io.close(),
            // Behind its bytes, as far as they have got.
            End::Resets => io.timer(5 * MS, 0),
            End::Never => {}
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

/// What a run is about.
#[derive(Clone)]
pub struct Config {
    pub seed: u64,
    pub workers: usize,
    pub streams: usize,
    pub combine: Combine,
    pub through_rule: bool,
    pub reducer: Reducer,
    pub sim: SimConfig,
}

impl Config {
    pub fn new(seed: u64, workers: usize, streams: usize) -> Self {
        Self {
            seed,
            workers,
            streams,
            combine: Combine::Join,
            through_rule: false,
            reducer: Reducer::Reads,
            sim: SimConfig::hostile(),
        }
    }
}

/// The service.
pub struct Service {
    nets: Vec<SimNet>,
    pub workers: Vec<Worker<SimDriver>>,
    counters: Vec<Arc<Counters>>,
    pub shared: Arc<Shared>,
    listen: Endpoint,
    jobs: Rc<RefCell<Vec<Received>>>,
    finished: Vec<bool>,
    random: u64,
}

impl Service {
    pub fn new(config: &Config) -> Self {
        let listen: Endpoint = "127.0.0.1:9000".parse().expect("an address");
        let reducer: Endpoint = "127.0.0.1:9100".parse().expect("an address");
        let platform = PlatformConfig {
            workers: config.workers,
            pin: false,
            io: Default::default(),
            listen: vec![Binding {
                channel: "mappers".into(),
                endpoints: vec![listen.clone(); config.streams],
            }],
            connect: vec![Binding { channel: "reducer".into(), endpoints: vec![reducer.clone()] }],
            limits: Limits {
                sessions_max: 64,
                requests_max: 1024,
                buffer_bytes: 8 << 20,
                merge_ring_bytes: 1024,
                ..Limits::default()
            },
            timeouts: Timeouts::default(),
            state_dir: None,
        };
        let engine = Arc::new(Hand(config.combine));
        let setup = Setup::new(program(config.through_rule), engine, &platform).expect("the bindings fit");
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
            random: config.seed | 1,
        };
        let state = State::new(&setup.program, config.workers, Origin::Simulated(config.seed));
        let state = Arc::new(state.expect("small dictionaries fit"));
        for index in 0..config.workers {
            let net = SimNet::new(config.seed ^ index as u64, config.sim.clone());
            let (jobs, habit) = (Rc::clone(&jobs), config.reducer);
            net.serve(&reducer, move |_| {
                if habit == Reducer::Refuses {
                    return None;
                }
                jobs.borrow_mut().push(Received::default());
                let job = jobs.borrow().len() - 1;
                Some(Box::new(ReducerActor { habit, job, jobs: Rc::clone(&jobs) }))
            });
            let driver = net.driver(driver_limits(&setup)).expect("a driver");
            let counters = Arc::new(Counters::default());
            let worker_config = WorkerConfig {
                setup: Arc::clone(&setup),
                shared: Arc::clone(&shared),
                state: Arc::clone(&state),
                counters: Arc::clone(&counters),
                backend_counters: Arc::default(),
                workers: config.workers,
                index,
                hub: hub.clone(),
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

    /// Adds a mapper that dials some worker at a time.
    pub fn mapper(&mut self, at_ns: u64, stream: &[u8], end: End) -> Rc<RefCell<Fate>> {
        let fate = Rc::new(RefCell::new(Fate::default()));
        let actor = MapperActor { stream: stream.to_vec(), end, fate: Rc::clone(&fate) };
        let net = self.draw(self.nets.len() as u64) as usize;
        self.nets[net].dial(&self.listen, at_ns, Box::new(actor));
        fate
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
            self.turn();
        }
    }

    /// Runs for a while of simulated time.
    pub fn run_for(&mut self, ms: u64) {
        let until: Vec<u64> = self.nets.iter().map(|net| net.now_ns() + ms * MS).collect();
        while self.nets.iter().zip(&until).any(|(net, until)| net.now_ns() < *until) {
            self.turn();
        }
    }

    /// Runs until every worker has said that it is finished.
    pub fn run_out(&mut self) {
        while self.finished.iter().any(|finished| !finished) {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let index = self.draw(self.workers.len() as u64) as usize;
        assert!(self.nets[index].now_ns() < RUN_NS_MAX, "the service makes no progress: {:?}", self.totals());
        let goes_on = self.workers[index].turn(Some(Duration::from_millis(1))).expect("a turn");
        self.finished[index] |= !goes_on;
    }

    pub fn jobs(&self) -> Vec<Received> {
        self.jobs.borrow().clone()
    }

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

fn driver_limits(setup: &Setup) -> DriverLimits {
    DriverLimits {
        conns_max: Worker::<SimDriver>::conns_max(setup),
        output_slices_max: 16_384,
        events_max: 1024,
        receive_bytes: 16 * 1024,
    }
}
