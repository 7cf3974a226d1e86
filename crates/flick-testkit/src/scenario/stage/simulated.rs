//! A scenario in the simulator: time is virtual, so waiting costs nothing and limits are exact.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::Endpoint;
use flick_net::sim::{Actor, PeerIo, Reachability, SimConfig};

use super::{Command, PeerId, Reachable, Stage, limits, timeouts};
use crate::scenario::{Happening, Scenario, What};
use crate::service::{MS, SimService, SimServiceConfig, Subject, try_setup};

/// Interval at which a peer looks for its next action.
const LOOK_NS: u64 = 100_000;

#[derive(Default)]
struct State {
    /// The backend whose connection it is; `None`: a client.
    backend: Option<usize>,
    input: Vec<u8>,
    is_closed: bool,
    commands: VecDeque<Command>,
}

type Shared = Rc<RefCell<State>>;
type Peers = Rc<RefCell<Vec<Shared>>>;
type Log = Rc<RefCell<Vec<Happening>>>;
/// Time until which no peer is commanded.
type Rest = Rc<Cell<u64>>;

struct Puppet {
    state: Shared,
    id: PeerId,
    log: Log,
    rest: Rest,
}

impl Puppet {
    /// A new peer's connection, and what it keeps.
    fn new(peers: &Peers, log: &Log, rest: &Rest, backend: Option<usize>) -> Self {
        let state = Shared::default();
        state.borrow_mut().backend = backend;
        peers.borrow_mut().push(Rc::clone(&state));
        Self { state, id: PeerId(peers.borrow().len() - 1), log: Rc::clone(log), rest: Rc::clone(rest) }
    }

    fn note(&self, io: &PeerIo<'_>, what: What) {
        self.log.borrow_mut().push(Happening { at_ns: io.now_ns(), peer: self.id, what });
    }

    fn obey(&mut self, io: &mut PeerIo<'_>) {
        loop {
            let Some(command) = self.state.borrow_mut().commands.pop_front() else { return };
            match &command {
                Command::Write(bytes) => self.note(io, What::Sent(bytes.clone())),
                Command::ShutdownWrite => self.note(io, What::Did("half-closes")),
                Command::Close => self.note(io, What::Did("closes")),
                Command::Reset => self.note(io, What::Did("resets")),
                Command::Pause(_) => {}
            }
            match command {
                Command::Write(bytes) => io.write(&bytes),
                Command::ShutdownWrite => io.shutdown_write(),
                Command::Close => io.close(),
                Command::Reset => io.reset(),
                Command::Pause(pause) => io.pause_reading(pause),
            }
        }
    }
}

impl Actor for Puppet {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.obey(io);
        io.timer(LOOK_NS, 0);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.note(io, What::Got(data.to_vec()));
        self.state.borrow_mut().input.extend(data);
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.note(io, What::Saw("is closed"));
        self.state.borrow_mut().is_closed = true;
    }

    fn on_reset(&mut self, io: &mut PeerIo<'_>) {
        self.note(io, What::Saw("is reset"));
        self.state.borrow_mut().is_closed = true;
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        self.obey(io);
        io.timer(LOOK_NS.max(self.rest.get().saturating_sub(io.now_ns())), 0);
    }
}

/// The simulator as a stage.
pub struct Simulated {
    service: SimService,
    peers: Peers,
    log: Log,
    rest: Rest,
}

/// Returns the network of a seed: the first one is quiet, the others cut, delay and reorder, but lose no connection.
pub(super) fn network(seed: u64) -> SimConfig {
    if seed == QUIET_SEED {
        return SimConfig::default();
    }
    SimConfig {
        split_per_mille: 400,
        split_bytes_max: [1, 7, 40, 1000][seed as usize % 4],
        delay_ns: (1_000, 60_000),
        connect_delay_ns: (1_000, 200_000),
        wake_delay_ns: (1_000, 200_000),
        reorder: true,
        ..SimConfig::default()
    }
}

/// The seed whose network is quiet.
pub const QUIET_SEED: u64 = 1;

impl Simulated {
    /// Sets the stage for a scenario, on a quiet network.
    ///
    /// Errors: it asks for limits that do not exist.
    pub fn new(scenario: &Scenario, subject: &Subject) -> Result<Self, String> {
        Self::with_seed(scenario, subject, QUIET_SEED)
    }

    /// Sets the stage for a scenario, on the network of a seed.
    ///
    /// Errors: it asks for limits that do not exist.
    pub fn with_seed(scenario: &Scenario, subject: &Subject, seed: u64) -> Result<Self, String> {
        let mut config = SimServiceConfig::new(seed, scenario.backends);
        config.groups = scenario.groups.clone();
        config.streams = scenario.streams();
        config.sim = network(seed);
        config.limits = limits(scenario, config.limits)?;
        config.timeouts = timeouts(scenario)?;
        let anywhere: Endpoint = "127.0.0.1:1".parse().map_err(|_| "the loopback has an address")?;
        let backends = vec![anywhere.clone(); scenario.backends];
        try_setup(&config, subject, &anywhere, &backends).map_err(|error| error.to_string())?;
        let peers = Peers::default();
        let log = Log::default();
        let rest = Rest::default();
        let (made, written, quiet) = (Rc::clone(&peers), Rc::clone(&log), Rc::clone(&rest));
        let service = SimService::new(&config, subject, move |backend, _| {
            Some(Box::new(Puppet::new(&made, &written, &quiet, Some(backend))))
        });
        Ok(Self { service, peers, log, rest })
    }

    /// Returns the shared state through which the service is drained and replaced.
    pub fn shared(&self) -> &flick_runtime::Shared {
        &self.service.shared
    }

    fn run(&mut self, until_ns: u64) {
        self.service.iterations(until_ns, |_| false).expect("a scenario does not make the service spin");
    }

    fn peer(&self, peer: PeerId) -> Shared {
        Rc::clone(&self.peers.borrow()[peer.0])
    }
}

impl Stage for Simulated {
    fn step(&mut self) {
        self.run(self.service.net.now_ns() + MS / 2);
    }

    fn rest(&mut self, until_ms: u64) {
        self.rest.set(until_ms * MS);
        self.run(until_ms * MS);
    }

    fn now_ms(&self) -> u64 {
        self.service.net.now_ns() / MS
    }

    fn open(&mut self) -> PeerId {
        let puppet = Puppet::new(&self.peers, &self.log, &self.rest, None);
        let (id, now_ns) = (puppet.id, self.service.net.now_ns());
        self.service.net.connect(&self.service.listen, now_ns, Box::new(puppet));
        id
    }

    fn connections(&mut self, backend: usize) -> Vec<PeerId> {
        let peers = self.peers.borrow();
        let of_it = peers.iter().enumerate().filter(|(_, peer)| peer.borrow().backend == Some(backend));
        of_it.map(|(index, _)| PeerId(index)).collect()
    }

    fn command(&mut self, peer: PeerId, command: Command) {
        self.peer(peer).borrow_mut().commands.push_back(command);
    }

    fn with_input(&mut self, peer: PeerId, look: &mut dyn FnMut(&mut Vec<u8>)) {
        look(&mut self.peer(peer).borrow_mut().input);
    }

    fn is_closed(&mut self, peer: PeerId) -> bool {
        self.peer(peer).borrow().is_closed
    }

    fn set_reach(&mut self, backend: usize, reach: Reachable) {
        let server = self.service.backends[backend].clone();
        let reach = match reach {
            Reachable::Yes => Reachability::Up,
            Reachable::Refuses => Reachability::Refuse,
            Reachable::Vanished => Reachability::BlackHole,
        };
        self.service.net.set_reachability(&server, reach);
    }

    fn drain(&mut self, within_ms: u64) {
        self.service.shared.drain(std::time::Duration::from_millis(within_ms));
    }

    fn is_finished(&self) -> bool {
        self.service.is_finished
    }

    fn counters(&self) -> Vec<(String, i64)> {
        super::counters(&self.service.state, &self.service.counters, &self.service.backend_counters)
    }

    fn expect_quiet(&self) -> Result<(), String> {
        self.service.expect_quiet()
    }

    fn log(&self) -> Vec<Happening> {
        self.log.borrow().clone()
    }
}
