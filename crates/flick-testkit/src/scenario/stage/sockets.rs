//! A scenario on the sockets of this machine: the same worker on a kernel driver, peers without threads beside it. Or
//! on rings alone, with the clock of a simulated network.
//! Promises: one thread does everything in turns, so nothing depends on a scheduler but how long a turn takes; with
//! simulated time not even that.
//! Refuses: peers that vanish from the network; neither the loopback nor a ring ever loses anything.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flick_net::{AnyDriver, Driver, DriverLimits, Endpoint, IoKind, SimNet, monotonic_ns};
use flick_runtime::access_log::AccessLog;
use flick_runtime::edge_counters::EdgeCounters;
use flick_runtime::state::{Origin, State};
use flick_runtime::{BackendCounters, Counters, Shared, Worker, WorkerAudit, WorkerConfig};

use super::peer_conn::{BackendListener, PeerConn, Transport};
use super::simulated::network;
use super::{Command, PeerId, Reachable, Stage, expect_quiet, limits, timeouts};
use crate::scenario::{Scenario, play};
use crate::service::{MS, SimServiceConfig, Subject, hub_of, setup};

/// Large buffers that an io_uring driver keeps to receive into.
const URING_BUFS: u32 = flick_net::limits::PROVIDED_BUFS_MAX as u32 + 1;
/// Longest that one turn of the worker waits, so that the peers get their turn.
const STEP: Duration = Duration::from_millis(1);
/// Pause between two iterations after which a run counts as held up by the machine: timeouts may have expired early.
/// Shorter than the margins of scenarios, of which some wait 10 ms longer than a timeout.
const HELD_UP: Duration = Duration::from_millis(5);
/// Maximum number of runs of a scenario that fails while the machine holds it up.
const TRIES_MAX: usize = 8;
/// Bytes a peer reads at once.
const READ_BYTES: usize = 64 * 1024;

struct Peer {
    stream: Option<PeerConn>,
    backend: Option<usize>,
    input: Vec<u8>,
    is_closed: bool,
    is_paused: bool,
    unsent: VecDeque<u8>,
    commands: VecDeque<Command>,
}

impl Peer {
    fn new(stream: PeerConn, backend: Option<usize>) -> Self {
        Self {
            stream: Some(stream),
            backend,
            input: Vec::new(),
            is_closed: false,
            is_paused: false,
            unsent: VecDeque::new(),
            commands: VecDeque::new(),
        }
    }

    fn step(&mut self) {
        while self.write_some() {
            let Some(command) = self.commands.pop_front() else { break };
            let Some(stream) = &mut self.stream else { break };
            match command {
                Command::Write(bytes) => self.unsent.extend(bytes),
                Command::ShutdownWrite => stream.shutdown_write(),
                Command::Close => self.stream = None,
                Command::Reset => {
                    if let Some(stream) = self.stream.take() {
                        stream.reset();
                    }
                }
                Command::Pause(pause) => self.is_paused = pause,
            }
        }
        self.read_some();
    }

    /// Says whether everything has been written.
    fn write_some(&mut self) -> bool {
        while let (Some(stream), (part, _)) = (&mut self.stream, self.unsent.as_slices())
            && !part.is_empty()
        {
            match stream.write(part) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // The reading side will tell that the connection is gone.
                Err(_) => self.unsent.clear(),
            }
        }
        true
    }

    fn read_some(&mut self) {
        let mut spare = vec![0; READ_BYTES];
        while let Some(stream) = &mut self.stream
            && !self.is_paused
            && !self.is_closed
        {
            match stream.read(&mut spare) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.input.extend(&spare[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_closed = true,
            }
        }
    }
}

/// Real sockets as a stage.
pub struct Sockets {
    worker: Option<Worker<AnyDriver>>,
    state: Arc<State>,
    counters: Arc<Counters>,
    backend_counters: Arc<Vec<BackendCounters>>,
    shared: Arc<Shared>,
    listen: Endpoint,
    backends: Vec<BackendListener>,
    peers: Vec<Peer>,
    begun: Instant,
    /// The network whose clock it has; `None`: the real clock.
    net: Option<SimNet>,
    /// Steps of a simulated network since the worker has ended, in which only time passes.
    idle_steps: u64,
    /// Start of the last event-loop iteration; the next field is the longest time between two.
    turned: Instant,
    longest: Duration,
    driver_bufs: u32,
    last_audit: WorkerAudit,
    gauge: fn() -> u64,
    gauged: u64,
}

impl Sockets {
    /// Plays a scenario, and plays it again if it fails and was held up: its timeouts are those of the real clock,
    /// and a busy machine is no fault of the service. `false`: this machine does not grant that kernel interface.
    ///
    /// Errors: as of [`play`], or the scenario asks for limits that do not exist.
    pub fn play(
        scenario: &Scenario,
        subject: &Subject,
        io: IoKind,
        transport: Transport,
    ) -> Result<bool, String> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(mut sockets) = Sockets::new(scenario, subject, io, transport)? else { return Ok(false) };
            let came_true = play(scenario, &mut sockets);
            // What it waited for in vain may have been held up in the last turn.
            let longest = sockets.longest.max(sockets.turned.elapsed());
            match came_true {
                Ok(()) => return Ok(true),
                Err(what) if longest > HELD_UP && tries < TRIES_MAX => {
                    eprintln!("held up for {longest:?}, played again: {what}");
                }
                Err(what) => return Err(what),
            }
        }
    }

    /// Plays a scenario through rings in simulated time, in which wake-ups take as long as a seed says.
    ///
    /// Errors: as of [`play`], or the scenario asks for limits that do not exist.
    pub fn play_simulated(scenario: &Scenario, subject: &Subject, seed: u64) -> Result<(), String> {
        let net = SimNet::new(seed, network(seed));
        let open = |limits| net.driver(limits).and_then(AnyDriver::simulated);
        let (transport, clock) = (Transport::SharedMemory, Some(net.clone()));
        match Sockets::with_driver(scenario, subject, transport, open, clock)? {
            Some(mut sockets) => play(scenario, &mut sockets),
            None => Err("there is no simulated driver".to_owned()),
        }
    }

    /// Starts to add up the growth of `gauge` inside the worker's event-loop iterations: allocations, for example.
    pub fn watch(&mut self, gauge: fn() -> u64) {
        (self.gauge, self.gauged) = (gauge, 0);
    }

    /// Returns the growth of the gauge since [`Sockets::watch`].
    pub fn gauged(&self) -> u64 {
        self.gauged
    }

    /// Sets the stage for a scenario. `None`: this machine does not grant that kernel interface.
    ///
    /// Errors: the scenario asks for limits that do not exist.
    pub fn new(
        scenario: &Scenario,
        subject: &Subject,
        io: IoKind,
        transport: Transport,
    ) -> Result<Option<Self>, String> {
        Sockets::with_driver(scenario, subject, transport, |limits| AnyDriver::open(io, limits), None)
    }

    fn with_driver(
        scenario: &Scenario,
        subject: &Subject,
        transport: Transport,
        open: impl FnOnce(DriverLimits) -> io::Result<AnyDriver>,
        net: Option<SimNet>,
    ) -> Result<Option<Self>, String> {
        let mut config = SimServiceConfig::new(1, scenario.backends);
        config.groups = scenario.groups.clone();
        config.streams = scenario.streams();
        config.limits = limits(scenario, config.limits)?;
        config.timeouts = timeouts(scenario)?;
        let any = transport.fresh_address();
        let backends: Vec<_> =
            (0..scenario.backends).map(|_| BackendListener::listen(&transport.fresh_address())).collect();
        let endpoints: Vec<Endpoint> = backends.iter().map(|backend| backend.at().clone()).collect();
        let setup = Arc::new(setup(&config, subject, &any, &endpoints));
        let conns_max = Worker::<AnyDriver>::conns_max(&setup);
        let Ok(driver) = open(driver_limits(conns_max)) else { return Ok(None) };
        let kernel_bufs = if driver.name() == "uring" { URING_BUFS } else { 1 };
        let driver_bufs = kernel_bufs + u32::from(transport == Transport::SharedMemory);
        let (counters, shared) = (Arc::<Counters>::default(), Arc::<Shared>::default());
        let backend_counters = Arc::new(setup.backend_counters());
        let edge_counters = Arc::new(EdgeCounters::of(&setup.program));
        let origin = if net.is_some() { Origin::Simulated(1) } else { Origin::System(monotonic_ns()) };
        let state = Arc::new(State::new(&setup.program, 1, origin).expect("small dictionaries fit"));
        let worker_config = WorkerConfig {
            service: setup.program.name.clone(),
            hub: hub_of(&setup),
            setup,
            shared: Arc::clone(&shared),
            state: Arc::clone(&state),
            counters: Arc::clone(&counters),
            backend_counters: Arc::clone(&backend_counters),
            edge_counters,
            workers: 1,
            index: 0,
            // A log of every request that no thread reads: this also tests what happens when its ring is full.
            access: Some(
                AccessLog { sample: NonZeroU32::MIN, fields: Vec::new(), port: Arc::default() }
                    .sink("stage", 0),
            ),
            seed: 1,
            time_slices: true,
        };
        let mut worker = Worker::new(driver, worker_config);
        let listener = worker.driver().listen(&any).expect("the loopback has a free port");
        let listen = worker.driver().local_addr(listener).expect("it listens");
        worker.add_listener(listener);
        worker.start();
        Ok(Some(Self {
            worker: Some(worker),
            state,
            counters,
            backend_counters,
            shared,
            listen,
            backends,
            peers: Vec::new(),
            begun: Instant::now(),
            net,
            idle_steps: 0,
            turned: Instant::now(),
            longest: Duration::ZERO,
            driver_bufs,
            last_audit: WorkerAudit::default(),
            gauge: || 0,
            gauged: 0,
        }))
    }
}

/// Limits of the driver of a small service, as many connections through each transport.
fn driver_limits(conns_max: u32) -> DriverLimits {
    DriverLimits {
        conns_max,
        shm_conns_max: conns_max,
        output_slices_max: 16_384,
        events_max: 1024,
        receive_bytes: 16 * 1024,
    }
}

impl Stage for Sockets {
    fn step(&mut self) {
        let last = std::mem::replace(&mut self.turned, Instant::now());
        self.longest = self.longest.max(self.turned - last);
        if let Some(worker) = &mut self.worker {
            let before = (self.gauge)();
            let goes_on = worker.run_once(Some(STEP)).expect("the kernel does not fail us");
            self.gauged += (self.gauge)() - before;
            self.last_audit = worker.audit();
            if !goes_on {
                // As when its process ends: the kernel closes what is open.
                self.worker = None;
            }
        } else {
            self.idle_steps += 1;
        }
        for (index, backend) in self.backends.iter_mut().enumerate() {
            self.peers
                .extend(backend.accept_all().into_iter().map(|peer_conn| Peer::new(peer_conn, Some(index))));
        }
        self.peers.iter_mut().for_each(Peer::step);
    }

    fn now_ms(&self) -> u64 {
        match &self.net {
            Some(net) => net.now_ns() / MS + self.idle_steps,
            None => self.begun.elapsed().as_millis() as u64,
        }
    }

    fn open(&mut self) -> PeerId {
        self.peers.push(Peer::new(PeerConn::connect(&self.listen), None));
        PeerId(self.peers.len() - 1)
    }

    fn connections(&mut self, backend: usize) -> Vec<PeerId> {
        let of_it = self.peers.iter().enumerate().filter(|(_, peer)| peer.backend == Some(backend));
        of_it.map(|(index, _)| PeerId(index)).collect()
    }

    fn command(&mut self, peer: PeerId, command: Command) {
        self.peers[peer.0].commands.push_back(command);
    }

    fn with_input(&mut self, peer: PeerId, look: &mut dyn FnMut(&mut Vec<u8>)) {
        look(&mut self.peers[peer.0].input);
    }

    fn is_closed(&mut self, peer: PeerId) -> bool {
        self.peers[peer.0].is_closed
    }

    fn set_reach(&mut self, backend: usize, reach: Reachable) {
        match reach {
            Reachable::Yes => self.backends[backend].set_open(true),
            Reachable::Refuses => self.backends[backend].set_open(false),
            Reachable::Vanished => panic!("only the simulator can do this: write `simulator only`"),
        }
    }

    fn drain(&mut self, within_ms: u64) {
        self.shared.drain(Duration::from_millis(within_ms));
    }

    fn is_finished(&self) -> bool {
        self.worker.is_none()
    }

    fn counters(&self) -> Vec<(String, i64)> {
        super::counters(&self.state, &self.counters, &self.backend_counters)
    }

    fn expect_quiet(&self) -> Result<(), String> {
        expect_quiet(&self.last_audit, self.counters.connections_open.get(), self.driver_bufs)
    }
}
