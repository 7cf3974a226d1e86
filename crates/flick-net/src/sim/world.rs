//! The clock, the agenda and both ends of every connection.
//! Promises: `Core` is all that actors and driver share; actors never see the driver and the reverse.

use std::collections::{BTreeMap, BinaryHeap};

use super::agenda::{Action, Entry, LinkId, Piece};
use super::link::{Link, peer_addr};
use super::peer::{Actor, PeerIo};
use super::state::DriverState;
use super::{Reach, Rng, SimConfig};
use crate::address::{Endpoint, PeerAddr};
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS_MAX};

/// What the peers' side works with.
pub(super) struct Core {
    pub(super) config: SimConfig,
    pub(super) rng: Rng,
    pub(super) now_ns: u64,
    pub(super) links: Vec<Link>,
    /// Links whose driver end has something new: to read, to report, or room to send.
    pub(super) touched: Vec<LinkId>,
    pub(super) accept_errno: Option<i32>,
    pub(super) trace_hash: u64,
    agenda: BinaryHeap<Entry>,
    planned_count: u64,
}

/// Everything.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) driver: Option<DriverState>,
    actors: Vec<Option<Box<dyn Actor>>>,
    servers: BTreeMap<Endpoint, Server>,
    ports_given: u16,
}

type Factory = Box<dyn FnMut(PeerAddr) -> Option<Box<dyn Actor>>>;

struct Server {
    factory: Factory,
    reach: Reach,
    /// What would have happened, had the server not been unreachable.
    held: Vec<Action>,
}

/// Longest piece that travels whole.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Most pieces a connection that is to be reset carries.
const PIECES_TO_RESET_MAX: u64 = 16;

impl Core {
    /// Plans an action; a time that has passed means now.
    pub(super) fn schedule(&mut self, at_ns: u64, action: Action) {
        self.planned_count += 1;
        self.agenda.push(Entry { at_ns: at_ns.max(self.now_ns), sequence: self.planned_count, action });
    }

    /// When the next thing happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.agenda.peek().map(|entry| entry.at_ns)
    }

    /// Adds to the fingerprint of the run.
    pub(super) fn trace(&mut self, kind: u8, who: u64, bytes: &[u8]) {
        let mut hash = self.trace_hash ^ self.now_ns.rotate_left(17) ^ who.rotate_left(40) ^ u64::from(kind);
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.trace_hash = hash.wrapping_mul(0x0000_0100_0000_01B3);
    }

    pub(super) fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.between(low, high)
    }

    /// How much of `bytes` travels as one piece.
    pub(super) fn piece_bytes(&mut self, bytes: usize) -> usize {
        let whole = bytes.min(PIECE_BYTES_MAX);
        if self.rng.chance(self.config.split_per_mille) {
            let most = self.config.split_bytes_max.min(whole);
            self.rng.between(1, most as u64) as usize
        } else {
            whole
        }
    }

    /// Puts as much of what the peer wrote under way as the window lets.
    pub(super) fn pump_to_driver(&mut self, id: LinkId) {
        loop {
            let window_bytes = self.config.window_bytes;
            let link = &self.links[id];
            let room = window_bytes.saturating_sub(link.to_driver.held_bytes);
            let offered = link.peer_out.len().min(room);
            if offered == 0 {
                break;
            }
            let taken = self.piece_bytes(offered);
            let link = &mut self.links[id];
            let bytes: Vec<u8> = link.peer_out.drain(..taken).collect();
            let offset = link.to_driver.sent_bytes;
            link.to_driver.sent_bytes += taken as u64;
            link.to_driver.held_bytes += taken;
            self.send_to_driver(id, Piece::Bytes { offset, bytes });
        }
        let link = &mut self.links[id];
        if link.peer_ends && link.peer_out.is_empty() && !link.to_driver.fin_is_sent {
            link.to_driver.fin_is_sent = true;
            self.send_to_driver(id, Piece::Fin);
        }
    }

    /// Lets a piece travel to the driver.
    pub(super) fn send_to_driver(&mut self, id: LinkId, piece: Piece) {
        let delay_ns = self.between(self.config.delay_ns);
        let stream = &mut self.links[id].to_driver;
        stream.last_ns = stream.last_ns.max(self.now_ns + delay_ns);
        let at_ns = stream.last_ns;
        self.schedule(at_ns, Action::ToDriver { link: id, piece });
    }

    /// Lets a piece travel to the peer.
    pub(super) fn send_to_peer(&mut self, id: LinkId, piece: Piece) {
        let delay_ns = self.between(self.config.delay_ns);
        let stream = &mut self.links[id].to_peer;
        stream.last_ns = stream.last_ns.max(self.now_ns + delay_ns);
        let at_ns = stream.last_ns;
        self.schedule(at_ns, Action::ToPeer { link: id, piece });
    }

    /// Counts down to a random reset; says whether it is due.
    fn is_to_be_reset(&mut self, id: LinkId) -> bool {
        let Some(left) = &mut self.links[id].pieces_to_reset else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

impl World {
    pub(super) fn new(seed: u64, config: SimConfig) -> World {
        let core = Core {
            config,
            rng: Rng::new(seed),
            now_ns: 0,
            links: Vec::new(),
            touched: Vec::new(),
            accept_errno: None,
            trace_hash: 0xCBF2_9CE4_8422_2325,
            agenda: BinaryHeap::new(),
            planned_count: 0,
        };
        World { core, driver: None, actors: Vec::new(), servers: BTreeMap::new(), ports_given: 0 }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.core.agenda.is_empty() && self.driver.as_ref().is_none_or(DriverState::is_idle)
    }

    pub(super) fn conns_count(&self) -> usize {
        self.core.links.iter().filter(|link| link.conn.is_some()).count()
    }

    /// Makes a connection that is not up yet.
    pub(super) fn new_link(&mut self, actor: Option<Box<dyn Actor>>, server: Option<Endpoint>) -> LinkId {
        let mut link = Link::new(server);
        if self.core.rng.chance(self.core.config.reset_per_mille) {
            link.pieces_to_reset = Some(self.core.rng.between(1, PIECES_TO_RESET_MAX));
        }
        self.core.links.push(link);
        self.actors.push(actor);
        self.core.links.len() - 1
    }

    /// Replaces a port 0 by one nobody else has in this network.
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

    pub(super) fn add_server(&mut self, at: &Endpoint, factory: Factory) -> Endpoint {
        let at = self.resolve(at);
        self.servers.insert(at.clone(), Server { factory, reach: Reach::Up, held: Vec::new() });
        at
    }

    /// Does everything that is due. Actions that these plan for now are done too.
    pub(super) fn run_due(&mut self) {
        while self.core.next_ns().is_some_and(|at_ns| at_ns <= self.core.now_ns) {
            let Some(entry) = self.core.agenda.pop() else { break };
            self.act(entry.action);
        }
    }

    fn act(&mut self, action: Action) {
        let Some(action) = self.hold_if_unreachable(action) else { return };
        match action {
            Action::Dial { link, to } => self.dial(link, &to),
            Action::Syn { link } => self.answer_dial(link),
            Action::ToDriver { link, piece } => self.reach_driver(link, piece),
            Action::ToPeer { link, piece } => self.reach_peer(link, piece),
            Action::PeerReads { link } => self.peer_reads(link),
            Action::Timer { link, id } => self.tell(link, 1, |actor, io| actor.on_timer(io, id)),
            Action::SetReach { server, reach } => self.set_reach(&server, reach),
            Action::Kill { server } => self.kill(&server),
        }
    }

    fn hold_if_unreachable(&mut self, action: Action) -> Option<Action> {
        let (Action::Syn { link } | Action::ToDriver { link, .. } | Action::ToPeer { link, .. }) = &action
        else {
            return Some(action);
        };
        let server = self.core.links[*link].server.as_ref();
        match server.and_then(|server| self.servers.get_mut(server)) {
            Some(server) if server.reach == Reach::BlackHole => {
                server.held.push(action);
                None
            }
            _ => Some(action),
        }
    }

    fn set_reach(&mut self, server: &Endpoint, reach: Reach) {
        let Some(server) = self.servers.get_mut(server) else { return };
        server.reach = reach;
        if reach != Reach::BlackHole {
            for action in std::mem::take(&mut server.held) {
                self.core.schedule(self.core.now_ns, action);
            }
        }
    }

    fn kill(&mut self, server: &Endpoint) {
        for id in 0..self.core.links.len() {
            let link = &mut self.core.links[id];
            if link.server.as_ref() == Some(server) && !link.peer_is_gone {
                link.peer_is_gone = true;
                link.peer_out.clear();
                self.core.send_to_driver(id, Piece::Reset);
            }
        }
    }

    /// Calls an actor, unless its end is gone.
    pub(super) fn tell(
        &mut self,
        link: LinkId,
        kind: u8,
        call: impl FnOnce(&mut dyn Actor, &mut PeerIo<'_>),
    ) {
        if self.core.links[link].peer_is_gone {
            return;
        }
        let Some(mut actor) = self.actors[link].take() else { return };
        self.core.trace(kind, link as u64, &[]);
        call(&mut *actor, &mut PeerIo { core: &mut self.core, link });
        self.actors[link] = Some(actor);
    }

    fn dial(&mut self, link: LinkId, to: &Endpoint) {
        let listener = self.driver.as_mut().and_then(|driver| driver.listener_at(to));
        match listener {
            Some(listener) => {
                listener.waiting.push_back(link);
                self.tell(link, 2, |actor, io| actor.on_open(io));
            }
            None => self.lose_peer(link),
        }
    }

    fn answer_dial(&mut self, link: LinkId) {
        if self.core.links[link].driver_is_gone {
            return;
        }
        let peer = peer_addr(link);
        let server = self.core.links[link].server.as_ref().and_then(|server| self.servers.get_mut(server));
        let actor = match server {
            Some(server) if server.reach == Reach::Up => (server.factory)(peer),
            _ => None,
        };
        match actor {
            Some(actor) => {
                self.actors[link] = Some(actor);
                self.core.send_to_driver(link, Piece::Up);
                self.tell(link, 2, |actor, io| actor.on_open(io));
            }
            None => self.core.send_to_driver(link, Piece::Refused),
        }
    }

    fn reach_driver(&mut self, id: LinkId, piece: Piece) {
        if self.core.is_to_be_reset(id) {
            return self.reset_both(id);
        }
        let now_ns = self.core.now_ns;
        let link = &mut self.core.links[id];
        if link.is_broken && !matches!(piece, Piece::Reset) {
            return;
        }
        if !link.driver_is_gone {
            link.to_driver.arrived.push_back(piece);
            self.core.touched.push(id);
            return;
        }
        if let Piece::Bytes { offset, bytes } = piece {
            link.to_driver.note_read(offset, bytes.len());
            link.lingered_bytes += bytes.len();
            let is_late = now_ns > link.driver_gone_ns + LINGER_NS_MAX;
            if is_late || link.lingered_bytes > LINGER_BYTES_MAX {
                self.core.send_to_peer(id, Piece::Reset);
            } else {
                self.core.pump_to_driver(id);
            }
        }
    }

    fn reach_peer(&mut self, id: LinkId, piece: Piece) {
        if self.core.is_to_be_reset(id) {
            return self.reset_both(id);
        }
        let link = &mut self.core.links[id];
        if link.is_broken {
            return;
        }
        if link.peer_is_gone {
            if matches!(piece, Piece::Bytes { .. }) {
                self.core.send_to_driver(id, Piece::Reset);
            }
        } else if matches!(piece, Piece::Reset) {
            self.lose_peer(id);
        } else {
            link.to_peer.arrived.push_back(piece);
            self.peer_reads(id);
        }
    }

    /// Hands the peer what has arrived, as long as it reads.
    fn peer_reads(&mut self, id: LinkId) {
        loop {
            let link = &mut self.core.links[id];
            if link.peer_is_gone || link.peer_is_paused {
                return;
            }
            match link.to_peer.arrived.pop_front() {
                Some(Piece::Bytes { offset, bytes }) => {
                    link.to_peer.note_read(offset, bytes.len());
                    self.core.touched.push(id);
                    self.core.trace(3, id as u64, &bytes);
                    self.tell(id, 3, |actor, io| actor.on_data(io, &bytes));
                }
                Some(Piece::Fin) => self.tell(id, 4, |actor, io| actor.on_eof(io)),
                Some(Piece::Up | Piece::Refused | Piece::Reset) => {}
                None => return,
            }
        }
    }

    /// The network breaks a connection: both ends learn of it.
    fn reset_both(&mut self, id: LinkId) {
        self.core.links[id].pieces_to_reset = None;
        self.core.links[id].is_broken = true;
        self.core.send_to_driver(id, Piece::Reset);
        self.lose_peer(id);
    }

    /// Tells a peer that its connection is gone.
    pub(super) fn lose_peer(&mut self, id: LinkId) {
        self.tell(id, 5, |actor, io| actor.on_reset(io));
        let link = &mut self.core.links[id];
        link.peer_is_gone = true;
        link.peer_out.clear();
    }
}
