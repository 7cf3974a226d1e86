//! Handshakes of a driver with other processes: how a pair begins.
//! Promises: none blocks; one that fails costs the connections that wait for it only.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use flick_shm::limits::{SLOTS_MAX, SLOTS_MIN};
use flick_shm::pair::{Pair, Signals};
use flick_shm::pairing::{Acceptance, Handshake, Offer, PairError, PairPolicy, PeerProcess};
use flick_shm::segment::{SegmentConfig, SegmentError};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{NONE, News, OpenPair, Origin, PairEntry, PairState, PairTable, Progress};
use crate::driver::ListenerId;
use crate::fault::ConnFault;
use crate::internal;
use crate::limits::{
    SHM_ARENA_BYTES, SHM_ARENA_BYTES_MAX, SHM_ARENA_BYTES_MIN, SHM_HANDSHAKE_NS_MAX, SHM_PAIR_ARENA_SHARE,
    SHM_PAIR_MEMORY_FACTOR, SHM_PAIR_SLOTS_SHARE, SHM_PAIRS_FILES_LEFT_SHARE,
    SHM_PAIRS_OF_PROCESS_FILES_SHARE, SHM_SLOT_BYTES, SHM_SLOTS,
};

/// Smallest sizes of a pair.
const LEAST: SegmentConfig =
    SegmentConfig { slots: SLOTS_MIN, arena_bytes: SHM_ARENA_BYTES_MIN, huge_pages: false };
/// Number that no process has.
const NO_PROCESS: i32 = -1;

/// Handshakes.
impl PairTable {
    /// Returns the largest sizes of a further pair with a process; `None` if there is too little memory. A process
    /// may have twice as much as is free then, so that there is always memory for others.
    fn grant(&self, pid: i32) -> Option<SegmentConfig> {
        let mut available = SHM_PAIR_MEMORY_FACTOR * self.ring_bytes_max;
        for entry in self.entries.iter().flatten() {
            let own_bytes = if entry.pid == pid { entry.memory_bytes / 2 } else { 0 };
            available = available.saturating_sub(entry.memory_bytes + own_bytes);
        }
        grant_of(available, self.conns_max)
    }

    /// Returns the pair for a new connection to `shm:NAME`; begins the handshake if there is none.
    ///
    /// Errors: `Refused`: no process listens there; `Exhausted`: too many pairs; `OtherUser`, `PairMemory`, `System`.
    pub(in crate::shm) fn pair_to(&mut self, name: &str, now_ns: u64) -> Result<u32, ConnFault> {
        let is_it = |entry: &PairEntry| match &entry.origin {
            Origin::Connected { name: of, is_current: true } => of == name,
            Origin::Connected { .. } | Origin::Accepted(_) | Origin::Continuing => false,
        };
        let current = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it));
        if let Some(number) = current {
            return Ok(number as u32);
        }
        // The process at the name is not known yet; it gets no more than this.
        let grant = self.grant(NO_PROCESS).ok_or(ConnFault::PairMemory)?;
        let config = SegmentConfig {
            slots: grant.slots.min(SHM_SLOTS),
            arena_bytes: grant.arena_bytes.min(SHM_ARENA_BYTES),
            huge_pages: false,
        };
        let offer = Offer::begin(name, &config, PairPolicy::SameUser).map_err(|error| fault_of(&error))?;
        let pid = offer.pid();
        self.add(PairEntry {
            pid,
            state: PairState::Offered(Box::new(offer)),
            origin: Origin::Connected { name: name.to_owned(), is_current: true },
            is_internal: internal::is_internal(name),
            conns: 0,
            memory_bytes: memory_of(&config),
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

    /// Takes in a process that has connected to a listener. `is_internal`: it is this one.
    pub(in crate::shm) fn accept_process(
        &mut self,
        socket: OwnedFd,
        id: ListenerId,
        is_internal: bool,
        now_ns: u64,
    ) {
        self.accept_from(socket, Origin::Accepted(Some(id)), is_internal, now_ns);
    }

    /// Takes in a process whose connection continues one of this process; returns the number of the pair. The caller
    /// uncounts a connection of the pair when it is over.
    pub(in crate::shm) fn accept_continuing(&mut self, socket: OwnedFd, now_ns: u64) -> Option<u32> {
        let number = self.accept_from(socket, Origin::Continuing, false, now_ns)?;
        self.count_conn(number);
        Some(number)
    }

    fn accept_from(
        &mut self,
        socket: OwnedFd,
        origin: Origin,
        is_internal: bool,
        now_ns: u64,
    ) -> Option<u32> {
        let acceptance = match Acceptance::begin(socket, PairPolicy::SameUser) {
            Ok(acceptance) => acceptance,
            Err(error) => {
                tracing::debug!(%error, "a process cannot use this service through shared memory");
                return None;
            }
        };
        let pid = acceptance.pid();
        if matches!(origin, Origin::Accepted(_)) && !self.has_descriptors(pid, acceptance.socket()) {
            tracing::debug!(pid, "a process that is paired gets no further pair: descriptors are few");
            return None;
        }
        let added = self.add(PairEntry {
            pid,
            state: PairState::Accepting(acceptance),
            origin,
            is_internal,
            conns: 0,
            memory_bytes: 0,
            waiting: Vec::new(),
            deadline_ns: Some(now_ns + SHM_HANDSHAKE_NS_MAX),
        });
        added
            .inspect_err(|fault| tracing::debug!(?fault, "no more processes can pair with this service"))
            .ok()
    }

    /// Returns whether a process may have the descriptor of a further pair. It always has the first.
    fn has_descriptors(&self, pid: i32, socket: BorrowedFd<'_>) -> bool {
        let Some(files) = getrlimit(Resource::Nofile).current else { return true };
        let of_process = self.entries.iter().flatten().filter(|other| other.pid == pid).count() as u64;
        // The system gives out the lowest number that is free.
        let number = socket.as_raw_fd().unsigned_abs().into();
        let is_spare = files - files / SHM_PAIRS_FILES_LEFT_SHARE > number;
        of_process == 0 || is_spare && of_process < files / SHM_PAIRS_OF_PROCESS_FILES_SHARE
    }

    /// Acts on news from a pair's socket. `is_over`: its end was reported.
    pub(in crate::shm) fn advance(&mut self, number: u32, is_over: bool) -> Progress {
        let Some(entry) = self.entry(number) else { return Progress::Nothing };
        let (pid, nothing) = (entry.pid, SegmentConfig { slots: 0, arena_bytes: 0, huge_pages: false });
        let is_accepting = matches!(entry.state, PairState::Accepting(_));
        // A process that continues a connection has no other way.
        let least = if matches!(entry.origin, Origin::Continuing) { LEAST } else { nothing };
        let most = if is_accepting { self.grant(pid).unwrap_or(least) } else { nothing };
        let Some(entry) = self.entry(number) else { return Progress::Nothing };
        let advanced = match std::mem::replace(&mut entry.state, PairState::Gone) {
            PairState::Offered(offer) => offer.advance().map(|shake| match shake {
                Handshake::Pending(offer) => Err(PairState::Offered(Box::new(offer))),
                Handshake::Done(peer, pair) => Ok((peer, pair)),
            }),
            PairState::Accepting(acceptance) => acceptance.advance(&most).map(|shake| match shake {
                Handshake::Pending(acceptance) => Err(PairState::Accepting(acceptance)),
                Handshake::Done(peer, pair) => Ok((peer, pair)),
            }),
            PairState::Open(open) => {
                // It may be the end of a former socket with this number, which another process kept open.
                let is_over = is_over && open.peer.is_gone();
                let signals = if is_over { Signals::Over } else { open.pair.note_signal() };
                entry.state = PairState::Open(open);
                return match signals {
                    Signals::Nothing => Progress::Nothing,
                    Signals::Arrived => Progress::Signalled,
                    Signals::Over => Progress::Ended,
                };
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
                // The other process has said that a further attempt is in vain.
                match fault_of(&error) {
                    ConnFault::PairMemory => Progress::Failed(ConnFault::PairMemory),
                    _ => Progress::Ended,
                }
            }
        }
    }

    fn open(&mut self, number: u32, peer: PeerProcess, pair: Pair) -> Progress {
        // From now on each signal is reported once, and need not be read.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Err(error) = epoll::modify(&self.watch, peer.socket(), News::of_socket(number), flags) {
            tracing::error!(%error, "the system refused to change the registration of a pair");
            return Progress::Ended;
        }
        self.open_count += 1;
        let slots = pair.slots();
        let granted = SegmentConfig { slots, arena_bytes: pair.arena_bytes(), huge_pages: false };
        let open = OpenPair {
            peer,
            conns: vec![NONE; slots as usize].into(),
            opened: Vec::with_capacity(slots as usize / 2),
            over: Vec::with_capacity(slots as usize),
            is_asleep: false,
            is_ending: false,
            idle_looks: 0,
            false_opens: 0,
            pair,
        };
        if let Some(entry) = self.entry(number) {
            (entry.state, entry.deadline_ns) = (PairState::Open(Box::new(open)), None);
            entry.memory_bytes = memory_of(&granted);
        }
        self.awake.push(number);
        Progress::Opened
    }
}

/// Returns the memory of a pair with these sizes, the rings of this side excepted.
pub(super) fn memory_of(config: &SegmentConfig) -> u64 {
    u64::from(config.slots) * SHM_SLOT_BYTES + config.arena_bytes
}

/// Returns the largest sizes of a pair whose process may have `available` bytes more, of a driver with `conns_max`
/// connections.
pub(super) fn grant_of(available: u64, conns_max: u32) -> Option<SegmentConfig> {
    let rounded = |number: u64| number.checked_ilog2().map_or(0, |bits| 1_u64 << bits);
    let arena_bytes = rounded(available / SHM_PAIR_ARENA_SHARE).min(SHM_ARENA_BYTES_MAX);
    // Half of the slots are for connections of the other side.
    let usable = (2 * u64::from(conns_max)).next_power_of_two().clamp(SLOTS_MIN.into(), SLOTS_MAX.into());
    let slots = rounded(available / SHM_PAIR_SLOTS_SHARE / SHM_SLOT_BYTES).min(usable) as u32;
    let is_enough = arena_bytes >= SHM_ARENA_BYTES_MIN && slots >= SLOTS_MIN;
    is_enough.then_some(SegmentConfig { slots, arena_bytes, huge_pages: false })
}

/// Returns the fault of a connect that made no pair.
pub(super) fn fault_of(error: &PairError) -> ConnFault {
    match error {
        PairError::System(errno) => ConnFault::of_connect(*errno),
        PairError::Segment(SegmentError::System(Errno::NOMEM)) => ConnFault::PairMemory,
        PairError::Open(_) | PairError::Segment(_) => ConnFault::Exhausted,
        PairError::User(_) => ConnFault::OtherUser,
        PairError::Name | PairError::Handshake => ConnFault::Refused,
    }
}
