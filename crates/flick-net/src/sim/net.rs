//! The network as tests see it: they connect clients, place servers, and make both fail.

use std::cell::RefCell;
use std::rc::Rc;

use super::config::{Reachability, SimConfig};
use super::connection::Side;
use super::driver::SimDriver;
use super::event_queue::Action;
use super::peer::Actor;
use super::world::World;
use crate::address::{Endpoint, PeerAddr};
use crate::driver::DriverLimits;

/// The network. A clone is a second handle on the same one.
#[derive(Clone)]
pub struct SimNet(Rc<RefCell<World>>);

impl SimNet {
    /// Creates an empty network whose every choice comes from `seed`.
    pub fn new(seed: u64, config: SimConfig) -> SimNet {
        assert!(config.window_bytes > 0, "a connection without a window carries nothing");
        assert!(config.split_bytes_max > 0, "a segment has at least one byte");
        SimNet(Rc::new(RefCell::new(World::new(seed, config))))
    }

    /// Returns the driver of this network; a second call panics.
    ///
    /// Errors: `InvalidInput` for limits without capacity.
    pub fn driver(&self, limits: DriverLimits) -> std::io::Result<SimDriver> {
        SimDriver::attach(self, Side::Driver, limits)
    }

    /// Returns a driver for peers of the driver under test: what it connects to are the listeners of the other, and its
    /// listeners replace scripted servers. There is one at a time.
    ///
    /// Errors: `InvalidInput` for limits without capacity.
    pub fn peer_driver(&self, limits: DriverLimits) -> std::io::Result<SimDriver> {
        SimDriver::attach(self, Side::Peer, limits)
    }

    /// Returns a begin of names that no other network has.
    pub(crate) fn claims_prefix(&self) -> String {
        format!("fs{:x}.{:x}", std::process::id(), Rc::as_ptr(&self.0).addr())
    }

    pub(super) fn world(&self) -> &Rc<RefCell<World>> {
        &self.0
    }

    /// Lets a scripted client connect to a listener of the driver at a time (or now, if that has passed). Without a
    /// listener there, the client's `on_reset` is called.
    pub fn connect(&self, listener: &Endpoint, at_ns: u64, actor: Box<dyn Actor>) {
        let mut world = self.0.borrow_mut();
        let conn = world.new_conn(Some(actor), None);
        world.core.schedule(at_ns, Action::ConnectToDriver { conn, to: listener.clone() });
    }

    /// Places a scripted server at an address that the driver can connect to and returns the address (a port 0 becomes
    /// a free one). `factory` makes the actor of each connection, or `None` to refuse it.
    pub fn serve(
        &self,
        at: &Endpoint,
        factory: impl FnMut(PeerAddr) -> Option<Box<dyn Actor>> + 'static,
    ) -> Endpoint {
        self.0.borrow_mut().add_server(at, Box::new(factory))
    }

    /// Changes how a server is reached, now. Not to be called from an actor.
    pub fn set_reachability(&self, server: &Endpoint, reachability: Reachability) {
        let now_ns = self.now_ns();
        self.set_reachability_at(now_ns, server, reachability);
    }

    /// Changes how a server is reached, at a time.
    pub fn set_reachability_at(&self, at_ns: u64, server: &Endpoint, reachability: Reachability) {
        let action = Action::SetReachability { server: server.clone(), reachability };
        self.0.borrow_mut().core.schedule(at_ns, action);
    }

    /// Resets all connections of a server now, as when its process is killed. New connects still succeed: see
    /// [`SimNet::set_reachability`].
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

    /// Returns the virtual time since the network was created.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().core.now_ns
    }

    /// Returns whether nothing will ever happen again unless the driver does something.
    pub fn is_idle(&self) -> bool {
        self.0.borrow().is_idle()
    }

    /// Returns the number of the driver's connections, closing ones not counted.
    pub fn conns_count(&self) -> usize {
        self.0.borrow().conns_count()
    }

    /// Returns a fingerprint of everything delivered to driver and actors so far, with its time.
    pub fn trace_hash(&self) -> u64 {
        self.0.borrow().core.trace_hash
    }
}
