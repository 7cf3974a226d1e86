//! Handshakes of a driver with other processes: how a pair begins.
//! Promises: none blocks; one that fails costs the connections that wait for it only.

use std::os::fd::OwnedFd;

use flick_shm::pair::Pair;
use flick_shm::pairing::{Acceptance, Handshake, Offer, PairError, PairPolicy, PeerProcess};
use flick_shm::segment::SegmentConfig;
use rustix::event::epoll;
use rustix::io::Errno;

use super::{NONE, News, OpenPair, Origin, PairEntry, PairState, PairTable, Progress};
use crate::driver::ListenerId;
use crate::fault::ConnFault;
use crate::limits::{SHM_ARENA_BYTES, SHM_HANDSHAKE_NS_MAX, SHM_SLOTS};

/// Handshakes.
impl PairTable {
    /// Returns the pair for a new connection to `shm:NAME`; begins the handshake if there is none.
    ///
    /// Errors: `Refused`: no process listens there; `Exhausted`: too many pairs; `System`.
    pub(in crate::shm) fn pair_to(&mut self, name: &str, now_ns: u64) -> Result<u32, ConnFault> {
        let is_it = |entry: &PairEntry| match &entry.origin {
            Origin::Connected { name: of, is_current: true } => of == name,
            Origin::Connected { .. } | Origin::Accepted(_) => false,
        };
        let current = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it));
        if let Some(number) = current {
            return Ok(number as u32);
        }
        let config = SegmentConfig { slots: SHM_SLOTS, arena_bytes: SHM_ARENA_BYTES, huge_pages: false };
        let offer = Offer::begin(name, &config, PairPolicy::SameUser).map_err(|error| fault_of(&error))?;
        let pid = offer.pid();
        self.add(PairEntry {
            pid,
            state: PairState::Offered(Box::new(offer)),
            origin: Origin::Connected { name: name.to_owned(), is_current: true },
            conns: 0,
            waiting: Vec::new(),
            deadline_ns: Some(now_ns + SHM_HANDSHAKE_NS_MAX),
        })
    }

    /// Returns the pair for a connection that `refused` has refused: a new one with the same name.
    ///
    /// Errors: as [`PairTable::pair_to`]; `Refused` if this process did not connect.
    pub(in crate::shm) fn replace(&mut self, refused: u32, now_ns: u64) -> Result<u32, ConnFault> {
        let Some(entry) = self.entry(refused) else { return Err(ConnFault::Refused) };
        let Origin::Connected { name, is_current } = &mut entry.origin else {
            return Err(ConnFault::Refused);
        };
        *is_current = false;
        let name = name.clone();
        self.pair_to(&name, now_ns)
    }

    /// Takes in a process that has connected to a listener.
    pub(in crate::shm) fn accept_process(&mut self, socket: OwnedFd, id: ListenerId, now_ns: u64) {
        let acceptance = match Acceptance::begin(socket, PairPolicy::SameUser) {
            Ok(acceptance) => acceptance,
            Err(error) => {
                tracing::debug!(%error, "a process cannot use this service through shared memory");
                return;
            }
        };
        let added = self.add(PairEntry {
            pid: acceptance.pid(),
            state: PairState::Accepting(acceptance),
            origin: Origin::Accepted(Some(id)),
            conns: 0,
            waiting: Vec::new(),
            deadline_ns: Some(now_ns + SHM_HANDSHAKE_NS_MAX),
        });
        if let Err(fault) = added {
            tracing::debug!(?fault, "no more processes can pair with this service");
        }
    }

    /// Acts on news from a pair's socket.
    pub(in crate::shm) fn advance(&mut self, number: u32) -> Progress {
        let Some(entry) = self.entry(number) else { return Progress::Nothing };
        let advanced = match std::mem::replace(&mut entry.state, PairState::Gone) {
            PairState::Offered(offer) => offer.advance().map(|shake| match shake {
                Handshake::Pending(offer) => Err(PairState::Offered(Box::new(offer))),
                Handshake::Done(peer, pair) => Ok((peer, pair)),
            }),
            PairState::Accepting(acceptance) => acceptance.advance().map(|shake| match shake {
                Handshake::Pending(acceptance) => Err(PairState::Accepting(acceptance)),
                Handshake::Done(peer, pair) => Ok((peer, pair)),
            }),
            // The other process has nothing to say, so this is its end, or it violates the protocol. Without either it
            // is a report of a former socket with this number, which another process kept open.
            PairState::Open(open) => {
                let peeked = crate::socket::peek(open.peer.socket(), &mut [0; 1]);
                entry.state = PairState::Open(open);
                let is_over = !matches!(peeked, Err(Errno::AGAIN | Errno::INTR));
                return if is_over { Progress::Ended } else { Progress::Nothing };
            }
            PairState::Gone => return Progress::Nothing,
        };
        match advanced {
            Ok(Err(pending)) => {
                entry.state = pending;
                Progress::Nothing
            }
            Ok(Ok((peer, Ok(pair)))) => self.open(number, peer, pair),
            Ok(Ok((_, Err(error)))) | Err(error) => {
                tracing::debug!(%error, "a process did not become a partner in shared memory");
                Progress::Ended
            }
        }
    }

    fn open(&mut self, number: u32, peer: PeerProcess, pair: Pair) -> Progress {
        // Edge-triggered: a signal is reported once, also if the other side takes it back, or if it cannot be cleared.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let registered = epoll::add(&self.watch, pair.event(), News::Event(number).pack(), flags);
        if let Err(error) = registered {
            tracing::debug!(%error, "a process did not become a partner in shared memory");
            return Progress::Ended;
        }
        self.open_count += 1;
        let slots = pair.slots();
        let open = OpenPair {
            peer,
            conns: vec![NONE; slots as usize].into(),
            opened: Vec::with_capacity(slots as usize / 2),
            over: Vec::with_capacity(slots as usize),
            is_asleep: false,
            is_ending: false,
            idle_looks: 0,
            pair,
        };
        if let Some(entry) = self.entry(number) {
            (entry.state, entry.deadline_ns) = (PairState::Open(Box::new(open)), None);
        }
        self.awake.push(number);
        Progress::Opened
    }
}

/// Returns the fault of a connect that could not begin.
fn fault_of(error: &PairError) -> ConnFault {
    match error {
        PairError::System(errno) => ConnFault::of_connect(*errno),
        PairError::Open(_) | PairError::Segment(_) => ConnFault::Exhausted,
        PairError::Name | PairError::User(_) | PairError::Handshake => ConnFault::Refused,
    }
}
