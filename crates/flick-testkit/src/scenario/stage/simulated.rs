//! A scenario in the simulator: time is virtual, so waiting costs nothing and limits are exact.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo, Reach};

use super::{Command, PeerId, Reachable, Stage, limits, timeouts};
use crate::scenario::Scenario;
use crate::service::{MS, Service, ServiceConfig, Subject};

/// How often a peer looks for what it is told to do.
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

struct Puppet(Shared);

impl Puppet {
    fn obey(&mut self, io: &mut PeerIo<'_>) {
        while let Some(command) = self.0.borrow_mut().commands.pop_front() {
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

    fn on_data(&mut self, _io: &mut PeerIo<'_>, data: &[u8]) {
        self.0.borrow_mut().input.extend(data);
    }

    fn on_eof(&mut self, _io: &mut PeerIo<'_>) {
        self.0.borrow_mut().is_closed = true;
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.0.borrow_mut().is_closed = true;
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        self.obey(io);
        io.timer(LOOK_NS, 0);
    }
}

/// The simulator as a stage.
pub struct Simulated {
    service: Service,
    peers: Peers,
}

impl Simulated {
    /// Sets the stage for a scenario.
    ///
    /// Errors: it asks for limits that do not exist.
    pub fn new(scenario: &Scenario, subject: &Subject) -> Result<Self, String> {
        let mut config = ServiceConfig::new(1, scenario.backends);
        config.limits = limits(scenario, config.limits)?;
        config.timeouts = timeouts(scenario)?;
        let peers = Peers::default();
        let made = Rc::clone(&peers);
        let service = Service::new(&config, subject, move |backend, _| {
            let state = Shared::default();
            state.borrow_mut().backend = Some(backend);
            made.borrow_mut().push(Rc::clone(&state));
            Some(Box::new(Puppet(state)))
        });
        Ok(Self { service, peers })
    }

    fn peer(&self, peer: PeerId) -> Shared {
        Rc::clone(&self.peers.borrow()[peer.0])
    }
}

impl Stage for Simulated {
    fn turn(&mut self) {
        let until_ns = self.service.net.now_ns() + MS / 2;
        self.service.turns(until_ns, |_| false).expect("a scenario does not make the service spin");
    }

    fn now_ms(&self) -> u64 {
        self.service.net.now_ns() / MS
    }

    fn open(&mut self) -> PeerId {
        let state = Shared::default();
        self.peers.borrow_mut().push(Rc::clone(&state));
        let now_ns = self.service.net.now_ns();
        self.service.net.dial(&self.service.listen, now_ns, Box::new(Puppet(state)));
        PeerId(self.peers.borrow().len() - 1)
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
            Reachable::Yes => Reach::Up,
            Reachable::Refuses => Reach::Refuse,
            Reachable::Vanished => Reach::BlackHole,
        };
        self.service.net.set_down(&server, reach);
    }

    fn drain(&mut self, within_ms: u64) {
        self.service.shared.drain(std::time::Duration::from_millis(within_ms));
    }

    fn is_finished(&self) -> bool {
        self.service.is_finished
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        super::counters(&self.service.counters)
    }

    fn expect_quiet(&self) -> Result<(), String> {
        self.service.expect_quiet()
    }
}
