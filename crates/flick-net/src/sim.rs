//! A simulated network: one driver, scripted peers, faults and virtual time, all from one seed.
//! Promises: the same seed and the same calls give the same run, bit for bit; time passes only inside `poll`;
//! bytes of a connection keep their order and none is handed out while receiving is off (asserted here).
//! Refuses: threads, sleeping, sockets; more than one driver per network.
//! Source: deterministic simulation testing as FoundationDB and TigerBeetle made it known.

use std::cell::RefCell;
use std::rc::Rc;

use crate::address::{Endpoint, PeerAddr};
use crate::driver::DriverLimits;

mod agenda;
mod driver;
mod link;
mod peer;
mod rng;
mod state;
mod world;

pub use driver::SimDriver;
pub use peer::{Actor, PeerIo};
pub use rng::Rng;

use agenda::Action;
use world::World;

/// What the network does to bytes. The default is a quiet one; [`SimConfig::hostile`] is not.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// How often, of 1000 pieces, one is cut short.
    pub split_per_mille: u32,
    /// Longest piece that is left after a cut; 1 gives single bytes.
    pub split_bytes_max: usize,
    /// Shortest and longest time a piece is under way.
    pub delay_ns: (u64, u64),
    /// Shortest and longest time each half of a dial takes.
    pub connect_delay_ns: (u64, u64),
    /// Bytes a connection holds in each direction, under way or waiting to be read: a sender waits beyond it.
    pub window_bytes: usize,
    /// How many, of 1000 connections, are reset after a few pieces.
    pub reset_per_mille: u32,
    /// Hands out what different connections have ready in random order.
    pub reorder: bool,
    /// Virtual time one poll takes, so that time passes for a platform that never waits.
    pub poll_cost_ns: u64,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            split_per_mille: 0,
            split_bytes_max: 1,
            delay_ns: (10_000, 10_000),
            connect_delay_ns: (20_000, 20_000),
            window_bytes: 64 * 1024,
            reset_per_mille: 0,
            reorder: false,
            poll_cost_ns: 1_000,
        }
    }
}

impl SimConfig {
    /// A network that cuts, delays and mixes as much as one may, but loses no connection.
    pub fn hostile() -> SimConfig {
        SimConfig {
            split_per_mille: 500,
            split_bytes_max: 7,
            delay_ns: (1_000, 2_000_000),
            connect_delay_ns: (1_000, 5_000_000),
            window_bytes: 4096,
            reorder: true,
            ..SimConfig::default()
        }
    }
}

/// How a scripted server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It answers.
    Up,
    /// New connections are refused; those that are up go on.
    Refuse,
    /// Nothing comes through in either direction and nobody is told; what was sent arrives once it is `Up`.
    BlackHole,
}

/// The network. Clone is a second handle on the same one.
#[derive(Clone)]
pub struct SimNet(Rc<RefCell<World>>);

impl SimNet {
    /// An empty network whose every choice comes from `seed`.
    pub fn new(seed: u64, config: SimConfig) -> SimNet {
        assert!(config.window_bytes > 0, "a connection without a window carries nothing");
        assert!(config.split_bytes_max > 0, "a piece has at least one byte");
        SimNet(Rc::new(RefCell::new(World::new(seed, config))))
    }

    /// The driver of this network; a second call panics.
    pub fn driver(&self, limits: DriverLimits) -> std::io::Result<SimDriver> {
        SimDriver::attach(Rc::clone(&self.0), limits)
    }

    /// Lets a scripted client dial a listener of the driver at a time (or now, if that has passed). If nobody
    /// listens then, the client's `on_reset` is called.
    pub fn dial(&self, listener: &Endpoint, at_ns: u64, actor: Box<dyn Actor>) {
        let mut world = self.0.borrow_mut();
        let link = world.new_link(Some(actor), None);
        world.core.schedule(at_ns, Action::Dial { link, to: listener.clone() });
    }

    /// Puts a scripted server at an address that the driver can dial and returns the address (a port 0 becomes
    /// a free one). `factory` makes the actor of each connection, or `None` to refuse it.
    pub fn serve(
        &self,
        at: &Endpoint,
        factory: impl FnMut(PeerAddr) -> Option<Box<dyn Actor>> + 'static,
    ) -> Endpoint {
        self.0.borrow_mut().add_server(at, Box::new(factory))
    }

    /// Changes how a server is reached, now. Not to be called from an actor.
    pub fn set_down(&self, server: &Endpoint, reach: Reach) {
        let now_ns = self.now_ns();
        self.set_down_at(now_ns, server, reach);
    }

    /// Changes how a server is reached, at a time.
    pub fn set_down_at(&self, at_ns: u64, server: &Endpoint, reach: Reach) {
        self.0.borrow_mut().core.schedule(at_ns, Action::SetReach { server: server.clone(), reach });
    }

    /// Resets all connections of a server now, as when its process is killed. New dials still succeed: see
    /// [`SimNet::set_down`].
    pub fn kill(&self, server: &Endpoint) {
        let now_ns = self.now_ns();
        self.kill_at(now_ns, server);
    }

    /// As [`SimNet::kill`], at a time.
    pub fn kill_at(&self, at_ns: u64, server: &Endpoint) {
        self.0.borrow_mut().core.schedule(at_ns, Action::Kill { server: server.clone() });
    }

    /// Makes the next accept fail with this error number, as when file descriptors have run out.
    pub fn fail_next_accept(&self, errno: i32) {
        self.0.borrow_mut().core.accept_errno = Some(errno);
    }

    /// Virtual time since the network was made.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().core.now_ns
    }

    /// Says whether nothing will ever happen again unless the driver does something.
    pub fn is_quiet(&self) -> bool {
        self.0.borrow().is_quiet()
    }

    /// Connections of the driver, closing ones not counted.
    pub fn conns_count(&self) -> usize {
        self.0.borrow().conns_count()
    }

    /// A fingerprint of everything handed to driver and actors so far, with its time.
    pub fn trace_hash(&self) -> u64 {
        self.0.borrow().core.trace_hash
    }
}
