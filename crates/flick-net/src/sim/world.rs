//! The simulated network at work: it carries out scheduled actions and calls the actors.

use std::collections::BTreeMap;

use super::config::{Reachability, SimConfig};
use super::connection::{DriverSide, Side, SimConn, peer_addr};
use super::core::Core;
use super::driver_end::DriverEnd;
use super::event_queue::{Action, Segment, SimConnId};
use super::peer::{Actor, PeerIo};
use crate::address::{Endpoint, PeerAddr};
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS_MAX};

/// The network: the shared state, the ends of the driver and of the peers' driver, and the actors.
pub(super) struct World {
    pub(super) core: Core,
    /// By side.
    pub(super) drivers: [Option<DriverEnd>; 2],
    /// Connections that no driver has now, by the number of the descriptor that stands for the socket.
    pub(super) detached: BTreeMap<i32, SimConnId>,
    actors: Vec<Option<Box<dyn Actor>>>,
    servers: BTreeMap<Endpoint, SimServer>,
    ports_given: u16,
}

type ActorFactory = Box<dyn FnMut(PeerAddr) -> Option<Box<dyn Actor>>>;

struct SimServer {
    factory: ActorFactory,
    reachability: Reachability,
    /// Actions held back while the server is a black hole.
    held: Vec<Action>,
}

/// Most segments that a connection to be reset carries.
const SEGMENTS_TO_RESET_MAX: u64 = 16;

impl World {
    pub(super) fn new(seed: u64, config: SimConfig) -> World {
        World {
            core: Core::new(seed, config),
            drivers: [None, None],
            detached: BTreeMap::new(),
            actors: Vec::new(),
            servers: BTreeMap::new(),
            ports_given: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.core.is_idle() && self.drivers.iter().flatten().all(DriverEnd::is_idle)
    }

    pub(super) fn conns_count(&self) -> usize {
        self.core.conns.iter().filter(|conn| conn.handle(Side::Driver).is_some()).count()
    }

    /// Adds a connection that is not established yet.
    pub(super) fn new_conn(&mut self, actor: Option<Box<dyn Actor>>, server: Option<Endpoint>) -> SimConnId {
        let mut conn = SimConn::new(server);
        if self.core.rng.chance(self.core.config.reset_per_mille) {
            conn.segments_to_reset = Some(self.core.rng.between(1, SEGMENTS_TO_RESET_MAX));
        }
        self.core.conns.push(conn);
        self.actors.push(actor);
        self.core.conns.len() - 1
    }

    /// Replaces a port 0 by one that is free in this network.
    pub(super) fn resolve(&mut self, at: &Endpoint) -> Endpoint {
        match at {
            Endpoint::Tcp(address) if address.port() == 0 => {
                self.ports_given += 1;
                let mut address = *address;
                address.set_port(32_768 + self.ports_given);
                Endpoint::Tcp(address)
            }
            other => other.clone(),
        }
    }

    pub(super) fn add_server(&mut self, at: &Endpoint, factory: ActorFactory) -> Endpoint {
        let at = self.resolve(at);
        let server = SimServer { factory, reachability: Reachability::Up, held: Vec::new() };
        self.servers.insert(at.clone(), server);
        at
    }

    /// Carries out everything that is due, and what that schedules for now.
    pub(super) fn run_due(&mut self) {
        while let Some(action) = self.core.next_due() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let Some(action) = self.hold_if_unreachable(action) else { return };
        match action {
            Action::ConnectToDriver { conn, to } => self.connect_to_driver(conn, &to),
            Action::Syn { conn } => self.answer_syn(conn),
            Action::Arrive { conn, side, segment } => self.arrive(conn, side, segment),
            Action::WatchReady { side } => {
                if let Some(driver) = &mut self.drivers[side as usize] {
                    driver.is_watch_ready = true;
                }
            }
            Action::PeerReads { conn } => self.peer_reads(conn),
            Action::Timer { conn, id } => self.call_actor(conn, 1, |actor, io| actor.on_timer(io, id)),
            Action::SetReachability { server, reachability } => self.set_reachability(&server, reachability),
            Action::Kill { server } => self.kill(&server),
        }
    }

    fn hold_if_unreachable(&mut self, action: Action) -> Option<Action> {
        let (Action::Syn { conn } | Action::Arrive { conn, .. }) = &action else {
            return Some(action);
        };
        let server = self.core.conns[*conn].server.as_ref();
        match server.and_then(|server| self.servers.get_mut(server)) {
            Some(server) if server.reachability == Reachability::BlackHole => {
                server.held.push(action);
                None
            }
            _ => Some(action),
        }
    }

    fn set_reachability(&mut self, server: &Endpoint, reachability: Reachability) {
        let Some(server) = self.servers.get_mut(server) else { return };
        server.reachability = reachability;
        if reachability != Reachability::BlackHole {
            for action in std::mem::take(&mut server.held) {
                self.core.schedule(self.core.now_ns, action);
            }
        }
    }

    fn kill(&mut self, server: &Endpoint) {
        for id in 0..self.core.conns.len() {
            let conn = &mut self.core.conns[id];
            if conn.server.as_ref() == Some(server) && conn.hosted_end.is_none() && !conn.peer_is_gone() {
                conn.lose_peer();
                self.core.send_to_driver(id, Segment::Reset);
            }
        }
    }

    /// Calls an actor, unless its end is gone.
    fn call_actor(&mut self, conn: SimConnId, kind: u8, call: impl FnOnce(&mut dyn Actor, &mut PeerIo<'_>)) {
        if self.core.conns[conn].peer_is_gone() {
            return;
        }
        let Some(mut actor) = self.actors[conn].take() else { return };
        self.core.trace(kind, conn as u64, &[]);
        call(&mut *actor, &mut PeerIo { core: &mut self.core, conn });
        self.actors[conn] = Some(actor);
    }

    fn connect_to_driver(&mut self, conn: SimConnId, to: &Endpoint) {
        let listener = self.drivers[Side::Driver as usize].as_mut().and_then(|driver| driver.listener_at(to));
        if self.core.conns[conn].hosted_end.is_some() {
            let answer = if listener.is_some() { Segment::Established } else { Segment::Refused };
            self.core.send_to(Side::Peer, conn, answer);
        }
        match listener {
            Some(listener) => {
                listener.backlog.push_back(conn);
                self.call_actor(conn, 2, |actor, io| actor.on_open(io));
            }
            None => self.lose_peer(conn),
        }
    }

    fn answer_syn(&mut self, conn: SimConnId) {
        if let DriverSide::Closed { .. } = self.core.conns[conn].driver_end {
            return;
        }
        let to = self.core.conns[conn].to.clone();
        let host = self.drivers[Side::Peer as usize].as_mut();
        if let Some(listener) = host.zip(to.as_ref()).and_then(|(host, to)| host.listener_at(to)) {
            listener.backlog.push_back(conn);
            self.core.conns[conn].hosted_end = Some(DriverSide::Pending);
            return self.core.send_to_driver(conn, Segment::Established);
        }
        let peer = peer_addr(conn);
        let server = self.core.conns[conn].server.as_ref().and_then(|server| self.servers.get_mut(server));
        let actor = match server {
            Some(server) if server.reachability == Reachability::Up => (server.factory)(peer),
            _ => None,
        };
        match actor {
            Some(actor) => {
                self.actors[conn] = Some(actor);
                self.core.send_to_driver(conn, Segment::Established);
                self.call_actor(conn, 2, |actor, io| actor.on_open(io));
            }
            None => self.core.send_to_driver(conn, Segment::Refused),
        }
    }

    fn arrive(&mut self, id: SimConnId, side: Side, segment: Segment) {
        if self.core.is_to_be_reset(id) {
            self.reset_both(id);
        } else if side == Side::Peer && self.core.conns[id].hosted_end.is_none() {
            self.reach_actor(id, segment);
        } else {
            self.reach_driver(id, side, segment);
        }
    }

    fn reach_driver(&mut self, id: SimConnId, side: Side, segment: Segment) {
        let now_ns = self.core.now_ns;
        let conn = &mut self.core.conns[id];
        if conn.is_broken && !matches!(segment, Segment::Reset) {
            return;
        }
        let DriverSide::Closed { at_ns, discarded_bytes } = conn.end(side) else {
            conn.stream_to_mut(side).arrived.push_back(segment);
            self.core.touch(side, id);
            return;
        };
        if let Segment::Bytes { offset, bytes } = segment {
            let discarded_bytes = discarded_bytes + bytes.len();
            conn.set_end(side, DriverSide::Closed { at_ns, discarded_bytes });
            let is_over = now_ns > at_ns + LINGER_NS_MAX || discarded_bytes > LINGER_BYTES_MAX;
            conn.stream_to_mut(side).note_read(offset, bytes.len());
            if is_over {
                self.core.send_to(side.other(), id, Segment::Reset);
            } else {
                self.core.opened_window(side, id);
            }
        }
    }

    fn reach_actor(&mut self, id: SimConnId, segment: Segment) {
        let conn = &mut self.core.conns[id];
        if conn.is_broken {
            return;
        }
        if conn.peer_is_gone() {
            if matches!(segment, Segment::Bytes { .. }) {
                self.core.send_to_driver(id, Segment::Reset);
            }
        } else if matches!(segment, Segment::Reset) {
            self.lose_peer(id);
        } else {
            conn.to_peer.arrived.push_back(segment);
            self.peer_reads(id);
        }
    }

    /// Delivers to the peer what has arrived, as long as it reads.
    fn peer_reads(&mut self, id: SimConnId) {
        loop {
            let conn = &mut self.core.conns[id];
            if conn.peer_is_gone() || conn.peer_is_paused {
                return;
            }
            match conn.to_peer.arrived.pop_front() {
                Some(Segment::Bytes { offset, bytes }) => {
                    conn.to_peer.note_read(offset, bytes.len());
                    self.core.touch(Side::Driver, id);
                    self.core.trace(3, id as u64, &bytes);
                    self.call_actor(id, 3, |actor, io| actor.on_data(io, &bytes));
                }
                Some(Segment::Fin) => self.call_actor(id, 4, |actor, io| actor.on_eof(io)),
                Some(Segment::Established | Segment::Refused | Segment::Reset) => {}
                None => return,
            }
        }
    }

    /// The network breaks a connection: both ends learn of it.
    fn reset_both(&mut self, id: SimConnId) {
        self.core.conns[id].segments_to_reset = None;
        self.core.conns[id].is_broken = true;
        self.core.send_to_driver(id, Segment::Reset);
        if self.core.conns[id].hosted_end.is_some() {
            self.core.send_to(Side::Peer, id, Segment::Reset);
        }
        self.lose_peer(id);
    }

    /// Reports to a peer that its connection is gone.
    fn lose_peer(&mut self, id: SimConnId) {
        self.call_actor(id, 5, |actor, io| actor.on_reset(io));
        self.core.conns[id].lose_peer();
    }
}
