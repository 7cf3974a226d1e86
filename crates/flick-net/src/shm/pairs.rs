//! The processes that a driver is paired with: handshakes, ready bits, and the slots of their connections.
//! Promises: a handshake blocks nothing and ends by time; one process has at most [`SHM_PAIRS_OF_PROCESS_MAX`] pairs;
//! all rings together have at most the bytes that the driver is granted, those of one process half of it, one ring a
//! sixteenth; a process that is gone costs its own connections only.
//! Not here: handshakes (`handshake.rs`), the sleep of pairs (`sleep.rs`), bytes (`transfer.rs`), and which connections
//! are polled (`sleeping.rs`).

mod handshake;
mod sleep;
#[cfg(test)]
mod tests;

use std::os::fd::{BorrowedFd, OwnedFd};

use flick_shm::conn::RingConn;
use flick_shm::fault::PeerFault;
use flick_shm::pair::{OpenError, Pair};
use flick_shm::pairing::{Acceptance, Offer, PeerProcess};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::fairness::Holdings;
use crate::driver::{ListenerId, ShmStats};
use crate::fault::ConnFault;
use crate::limits::{
    SHM_IDLE_LOOKS_MAX, SHM_PAIR_UNUSED_NS_MAX, SHM_PAIRS_MAX, SHM_PAIRS_OF_PROCESS_MAX,
    SHM_READY_BITS_PER_POLL_MAX, SHM_RING_BYTES_GROWN_MAX, SHM_RING_BYTES_MAX, SHM_RING_BYTES_START,
    SHM_RING_SHARE,
};
use crate::listen::ListenSocket;
use crate::listeners::Accepting;
use crate::slot_queue::SlotQueue;

/// Number that no connection and no pair has.
pub(super) const NONE: u32 = u32::MAX;
/// Number that stands for a connection which the other side has opened, and which waits to be accepted.
const OPENED: u32 = u32::MAX - 1;
/// News of the watch that one look takes.
pub(super) const NEWS_MAX: usize = 64;

/// The pairs of one driver.
pub(super) struct PairTable {
    /// An epoll over listeners and sockets.
    pub(super) watch: OwnedFd,
    entries: Vec<Option<PairEntry>>,
    /// Connections that the driver has at most.
    conns_max: u32,
    count: u32,
    /// Pairs whose ready bits are looked at in every poll.
    awake: SlotQueue,
    /// Pairs in which the other side has opened connections that are not accepted.
    pub(super) opened: SlotQueue,
    open_count: u64,
    /// There is, or was, an internal pair.
    pub(super) has_internal: bool,
    /// Open pairs whose process is gone, and of which connections are still to be accepted.
    ending_pairs: u32,
    /// Bytes of the rings of this process in all pairs.
    ring_bytes: u64,
    /// Bytes that they may have.
    ring_bytes_max: u64,
    /// The first deadline, or an earlier time.
    next_deadline_ns: Option<u64>,
    reports: Vec<epoll::Event>,
    /// Space for a list of which process holds how much; empty between two uses.
    pub(super) holdings: Vec<Holdings>,
}

/// A process, as a partner of this driver.
struct PairEntry {
    state: PairState,
    origin: Origin,
    /// It is between threads of this process; see [`crate::internal`].
    is_internal: bool,
    /// Number of the process.
    pid: i32,
    /// Connections of the platform, waiting ones among them.
    conns: u32,
    /// Memory of the pair, the rings of this side excepted, in use or not.
    memory_bytes: u64,
    /// Connections that wait for the handshake.
    waiting: Vec<u32>,
    /// End of the handshake, or of an unused pair.
    deadline_ns: Option<u64>,
}

/// Origin of a pair.
enum Origin {
    /// This process connected to `shm:NAME`. New connections to the name use the pair while it is current.
    Connected { name: String, is_current: bool },
    /// The other process connected; `None` once the listener is closed.
    Accepted(Option<ListenerId>),
    /// The other process connected, and its connection continues one of this process.
    Continuing,
}

enum PairState {
    Offered(Box<Offer>),
    Accepting(Acceptance),
    Open(Box<OpenPair>),
    /// The other process is gone, or never became a partner.
    Gone,
}

struct OpenPair {
    peer: PeerProcess,
    pair: Pair,
    /// By slot: index of the connection, [`NONE`] or [`OPENED`].
    conns: Box<[u32]>,
    /// Slots in which the other side has opened connections that are not accepted.
    opened: Vec<u32>,
    /// Slots without a connection of which the ready bit was set; empty between two looks.
    over: Vec<u32>,
    is_asleep: bool,
    /// The other process is gone; what it had opened is still accepted.
    is_ending: bool,
    /// Looks at an empty ready bitmap.
    idle_looks: u32,
    /// Ready bits of slots in which nothing was opened.
    false_opens: u32,
}

/// News of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A process wants to pair.
    Listener(ListenerId),
    /// The socket of a pair has a message of the handshake, a signal, or its end.
    Socket { pair: u32, is_over: bool },
    /// A thread of this process asks for a continuation.
    Continuation(u32),
}

impl News {
    fn of_listener(id: ListenerId) -> epoll::EventData {
        epoll::EventData::new_u64(u64::from(id.0))
    }

    fn of_socket(pair: u32) -> epoll::EventData {
        epoll::EventData::new_u64(1 << 32 | u64::from(pair))
    }

    pub(super) fn of_continuation(number: u32) -> epoll::EventData {
        epoll::EventData::new_u64(2 << 32 | u64::from(number))
    }

    fn unpack(report: &epoll::Event) -> News {
        let (data, flags) = (report.data.u64(), report.flags);
        let number = data as u32;
        match data >> 32 {
            0 => News::Listener(ListenerId(number)),
            2 => News::Continuation(number),
            _ => News::Socket {
                pair: number,
                is_over: flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP),
            },
        }
    }
}

/// Result of news from a pair's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Nothing,
    /// The pair is there.
    Opened,
    /// The other process has news, after the sleep of this side.
    Signalled,
    /// The other process is gone, or did not become a partner.
    Ended,
    /// It did not become a partner for this reason, and will not soon.
    Failed(ConnFault),
}

impl PairTable {
    pub(super) fn new(watch: OwnedFd, conns_max: u32) -> PairTable {
        PairTable {
            watch,
            conns_max,
            entries: Vec::with_capacity(SHM_PAIRS_MAX as usize),
            count: 0,
            awake: SlotQueue::new(SHM_PAIRS_MAX),
            opened: SlotQueue::new(SHM_PAIRS_MAX),
            open_count: 0,
            has_internal: false,
            ending_pairs: 0,
            ring_bytes: 0,
            ring_bytes_max: SHM_RING_BYTES_MAX,
            next_deadline_ns: None,
            reports: Vec::with_capacity(NEWS_MAX),
            holdings: Vec::with_capacity(SHM_PAIRS_MAX as usize),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns `stats` with the pairs and the bytes of rings of this process, those within it excepted, and without the
    /// connections within it.
    pub(super) fn with_pairs(&self, stats: ShmStats) -> ShmStats {
        let mut stats = ShmStats { pairs: self.open_count, ring_bytes: self.ring_bytes, ..stats };
        // Filters have internal pairs, and few.
        let entries: &[Option<PairEntry>] = if self.has_internal { &self.entries } else { &[] };
        for entry in entries.iter().flatten().filter(|entry| entry.is_internal) {
            stats.conns = stats.conns.saturating_sub(entry.conns.into());
            if let PairState::Open(open) = &entry.state {
                stats.pairs -= 1;
                stats.ring_bytes -= open.ring_bytes();
            }
        }
        stats
    }

    /// Returns whether a pair is between threads of this process.
    pub(super) fn is_internal(&self, number: u32) -> bool {
        let entry = || self.entries.get(number as usize)?.as_ref();
        self.has_internal && entry().is_some_and(|entry| entry.is_internal)
    }

    /// Returns the bytes of the rings of this process.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Limits the bytes of the rings of this process. Present rings stay as they are.
    pub(super) fn limit_rings(&mut self, bytes_max: u64) {
        self.ring_bytes_max = bytes_max.min(SHM_RING_BYTES_MAX);
    }

    /// Returns the size up to which a ring grows.
    pub(super) fn grown_bytes_max(&self) -> u64 {
        grown_bytes_max(self.ring_bytes_max)
    }

    fn entry(&mut self, number: u32) -> Option<&mut PairEntry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    fn open_pair(&mut self, number: u32) -> Option<&mut OpenPair> {
        match &mut self.entry(number)?.state {
            PairState::Open(open) => Some(open),
            PairState::Offered(_) | PairState::Accepting(_) | PairState::Gone => None,
        }
    }

    /// Calls `run` with a pair, and counts the bytes of rings that it takes or returns.
    fn with_pair<R>(&mut self, number: u32, run: impl FnOnce(&mut Pair) -> R) -> Option<R> {
        let open = self.open_pair(number)?;
        let before = open.ring_bytes();
        let result = run(&mut open.pair);
        let after = open.ring_bytes();
        self.ring_bytes = self.ring_bytes + after - before;
        Some(result)
    }

    /// Returns whether a pair may take a ring of `bytes` bytes, for a new connection or for one that has one.
    fn has_ring_bytes(&self, number: u32, bytes: u64, is_new: bool) -> bool {
        let Some(Some(entry)) = self.entries.get(number as usize) else { return false };
        if matches!(&entry.state, PairState::Open(open) if open.is_ending) {
            return true;
        }
        let of_process = self.entries.iter().flatten().filter(|other| other.pid == entry.pid);
        let used = of_process.map(|other| match &other.state {
            PairState::Open(open) => open.ring_bytes(),
            PairState::Offered(_) | PairState::Accepting(_) | PairState::Gone => 0,
        });
        is_within_share(self.ring_bytes_max, used.sum(), self.ring_bytes, bytes, is_new)
    }
}

/// Watching.
impl PairTable {
    pub(super) fn watch_listener(&mut self, id: ListenerId, socket: &ListenSocket, on: bool) {
        let changed = if on {
            // Level-triggered, so that those left in the backlog are reported again; exclusive, so that of several
            // workers only one wakes.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.watch, socket, News::of_listener(id), flags)
        } else {
            epoll::delete(&self.watch, socket)
        };
        if let Err(error) = changed {
            tracing::error!(%error, listener = id.0, on, "the system refused to change a listener's registration");
        }
    }

    /// Separates the pairs of a closed listener from it: its number may be another listener's soon.
    pub(super) fn close_listener(&mut self, closed: ListenerId) {
        for entry in self.entries.iter_mut().flatten() {
            if let Origin::Accepted(id) = &mut entry.origin
                && *id == Some(closed)
            {
                *id = None;
            }
        }
        self.queue_opened();
    }

    /// Looks again at all pairs with connections that are not accepted.
    pub(super) fn queue_opened(&mut self) {
        for number in 0..self.entries.len() as u32 {
            if self.open_pair(number).is_some_and(|open| !open.opened.is_empty()) {
                self.opened.push(number);
            }
        }
    }

    /// Takes the news of the watch; at most [`NEWS_MAX`]. Returns how many.
    pub(super) fn take_news(&mut self, news: &mut [Option<News>; NEWS_MAX]) -> usize {
        self.reports.clear();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted or failed: the watch stays readable, and the next poll looks again.
        let _ = epoll::wait(&self.watch, spare_capacity(&mut self.reports), Some(&no_wait));
        for (at, report) in self.reports.iter().enumerate() {
            news[at] = Some(News::unpack(report));
        }
        self.reports.len()
    }

    /// Adds an entry and watches its socket.
    ///
    /// Errors: `Exhausted`: too many pairs, or too many of the process; `System`.
    fn add(&mut self, entry: PairEntry) -> Result<u32, ConnFault> {
        let of_process = self.entries.iter().flatten().filter(|other| other.pid == entry.pid);
        if of_process.count() >= SHM_PAIRS_OF_PROCESS_MAX {
            return Err(ConnFault::Exhausted);
        }
        let free = self.entries.iter().position(Option::is_none);
        let number = free.unwrap_or(self.entries.len());
        if number == SHM_PAIRS_MAX as usize {
            return Err(ConnFault::Exhausted);
        }
        if let Some(socket) = entry.socket() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            epoll::add(&self.watch, socket, News::of_socket(number as u32), flags)
                .map_err(|errno| ConnFault::System(errno.raw_os_error()))?;
        }
        self.note_deadline(entry.deadline_ns);
        self.has_internal |= entry.is_internal;
        if number == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[number] = Some(entry);
        self.count += 1;
        Ok(number as u32)
    }

    fn note_deadline(&mut self, deadline_ns: Option<u64>) {
        self.next_deadline_ns = self.next_deadline_ns.into_iter().chain(deadline_ns).min();
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.next_deadline_ns
    }

    /// Returns a pair whose handshake or unused time is over; the caller ends it.
    pub(super) fn expired(&mut self, now_ns: u64) -> Option<u32> {
        if self.next_deadline_ns.is_none_or(|next_ns| next_ns > now_ns) {
            return None;
        }
        let is_over = |entry: &PairEntry| entry.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns);
        let over = self.entries.iter_mut().enumerate().find_map(|(number, entry)| {
            let entry = entry.as_mut().filter(|entry| is_over(entry))?;
            entry.deadline_ns = None;
            Some(number as u32)
        });
        if over.is_none() {
            self.next_deadline_ns = self.entries.iter().flatten().filter_map(|entry| entry.deadline_ns).min();
        }
        over
    }

    /// Begins to end a pair whose other process is gone. Returns whether it had opened connections that are still to be
    /// accepted: what it had sent through them is not lost. They have until a deadline.
    pub(super) fn begin_end(&mut self, number: u32, now_ns: u64) -> bool {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else {
            return false;
        };
        let (PairState::Open(open), Origin::Accepted(_) | Origin::Continuing) =
            (&mut entry.state, &entry.origin)
        else {
            return false;
        };
        let before = open.pair.ring_bytes();
        // All connections are looked at anyway.
        open.take_ready(&mut |_| {});
        open.is_ending = !open.opened.is_empty();
        self.ring_bytes -= before - open.ring_bytes();
        if !open.is_ending {
            return false;
        }
        // It would be readable all the time.
        let deleted = epoll::delete(&self.watch, open.peer.socket());
        assert!(deleted.is_ok(), "the socket of an open pair is registered");
        entry.deadline_ns = Some(now_ns + SHM_PAIR_UNUSED_NS_MAX);
        self.ending_pairs += 1;
        self.note_deadline(Some(now_ns + SHM_PAIR_UNUSED_NS_MAX));
        self.opened.push(number);
        true
    }

    /// Returns a pair that ends and of which everything is accepted.
    pub(super) fn ended(&self) -> Option<u32> {
        if self.ending_pairs == 0 {
            return None;
        }
        let is_ended = |entry: &PairEntry| match &entry.state {
            PairState::Open(open) => open.is_ending && open.opened.is_empty(),
            PairState::Offered(_) | PairState::Accepting(_) | PairState::Gone => false,
        };
        let ended = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_ended));
        ended.map(|number| number as u32)
    }

    /// Ends a pair: its socket is closed, which shows the other process that this one is gone. Its connections have
    /// their rings until they end.
    pub(super) fn end(&mut self, number: u32) {
        let Some(entry) = self.entry(number) else { return };
        let ended = std::mem::replace(&mut entry.state, PairState::Gone);
        entry.deadline_ns = None;
        if let Origin::Connected { is_current, .. } = &mut entry.origin {
            *is_current = false;
        }
        if let PairState::Open(open) = &ended {
            // Connections that have not ended keep the socket open, which would not end the registration.
            let deleted = epoll::delete(&self.watch, open.peer.socket());
            assert!(deleted.is_ok() || open.is_ending, "the socket of an open pair is registered");
            self.ring_bytes -= open.ring_bytes();
            self.open_count -= 1;
            self.ending_pairs -= u32::from(open.is_ending);
        }
        drop(ended);
        self.remove_if_unused(number);
    }

    /// Frees the number of a pair that has ended and has no connection left.
    fn remove_if_unused(&mut self, number: u32) {
        let is_unused = |entry: &mut PairEntry| entry.conns == 0 && matches!(entry.state, PairState::Gone);
        if self.entry(number).is_some_and(is_unused) {
            self.entries[number as usize] = None;
            self.count -= 1;
        }
    }

    /// Returns whether a pair has connections.
    pub(super) fn has_conns(&mut self, number: u32) -> bool {
        self.entry(number).is_some_and(|entry| entry.conns > 0)
    }

    pub(super) fn is_in_handshake(&mut self, number: u32) -> bool {
        let is_in_handshake =
            |entry: &mut PairEntry| matches!(entry.state, PairState::Offered(_) | PairState::Accepting(_));
        self.entry(number).is_some_and(is_in_handshake)
    }

    /// Returns the listener at which the process of a pair connected.
    pub(super) fn listener(&self, number: u32) -> Option<ListenerId> {
        match self.entries.get(number as usize)?.as_ref()?.origin {
            Origin::Accepted(id) => id,
            Origin::Connected { .. } | Origin::Continuing => None,
        }
    }

    /// Returns the connections of the process of a pair, and how often it said that it had opened one and had not.
    pub(super) fn conns_of_process(&self, number: u32) -> u32 {
        let pid = self.pid(number);
        let own = self.entries.iter().flatten().filter(|other| Some(other.pid) == pid);
        own.map(|other| match &other.state {
            PairState::Open(open) => other.conns.saturating_add(open.false_opens),
            _ => other.conns,
        })
        .fold(0, u32::saturating_add)
    }

    /// Lists the connections of each pair that began at a listener. `is_paused`: of a listener; `None` if its
    /// connections are not the platform's.
    pub(super) fn list_holdings(&mut self, is_paused: impl Fn(ListenerId) -> Option<bool>) {
        self.holdings.clear();
        for entry in self.entries.iter().flatten() {
            if let Origin::Accepted(Some(id)) = entry.origin
                && let Some(is_paused) = is_paused(id)
            {
                let has_opened = matches!(&entry.state, PairState::Open(open) if !open.opened.is_empty());
                let is_waiting = has_opened && is_paused;
                self.holdings.push(Holdings { pid: entry.pid, conns: entry.conns, is_waiting });
            }
        }
    }

    pub(super) fn pid(&self, number: u32) -> Option<i32> {
        Some(self.entries.get(number as usize)?.as_ref()?.pid)
    }

    /// Returns the user of a process that is paired.
    pub(super) fn uid(&self, number: u32) -> Option<u32> {
        match &self.entries.get(number as usize)?.as_ref()?.state {
            PairState::Open(open) => Some(open.peer.uid()),
            PairState::Offered(_) | PairState::Accepting(_) | PairState::Gone => None,
        }
    }

    pub(super) fn is_gone(&self, number: u32) -> bool {
        let entry = self.entries.get(number as usize).and_then(Option::as_ref);
        entry.is_none_or(|entry| match &entry.state {
            PairState::Open(open) => open.is_ending,
            PairState::Gone => true,
            PairState::Offered(_) | PairState::Accepting(_) => false,
        })
    }
}

impl OpenPair {
    /// Returns the bytes of rings that count. Those of a pair that ends are freed soon, and none is written to.
    fn ring_bytes(&self) -> u64 {
        if self.is_ending { 0 } else { self.pair.ring_bytes() }
    }

    /// Takes the ready bits, and calls `ready` with the index of each connection. Returns how many bits there were.
    fn take_ready(&mut self, ready: &mut impl FnMut(u32)) -> usize {
        let OpenPair { pair, conns, opened, over, .. } = self;
        let mut bits = 0;
        pair.take_ready(|slot| {
            bits += 1;
            match conns.get_mut(slot as usize) {
                None => {}
                Some(conn) if *conn == NONE => {
                    if pair.is_peer_slot(slot) {
                        *conn = OPENED;
                        opened.push(slot);
                    }
                    over.push(slot);
                }
                Some(conn) if *conn == OPENED => {}
                Some(conn) => ready(*conn),
            }
        });
        over.drain(..).for_each(|slot| pair.reclaim_slot(slot));
        bits
    }

    /// Refuses the connections that the other side has opened.
    fn refuse_opened(&mut self) {
        for slot in self.opened.drain(..) {
            self.conns[slot as usize] = NONE;
            self.pair.refuse(slot);
        }
    }
}

impl PairEntry {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            PairState::Offered(offer) => Some(offer.socket()),
            PairState::Accepting(acceptance) => Some(acceptance.socket()),
            PairState::Open(open) => Some(open.peer.socket()),
            PairState::Gone => None,
        }
    }
}

/// Connections.
impl PairTable {
    pub(super) fn count_conn(&mut self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.conns += 1;
            // A handshake has its deadline also with connections, an open pair only without.
            if matches!(&entry.state, PairState::Open(open) if !open.is_ending) {
                entry.deadline_ns = None;
            }
        }
    }

    /// Counts the end of a connection. A pair that this process began and does not use ends some time later.
    pub(super) fn uncount_conn(&mut self, number: u32, now_ns: u64) {
        let Some(entry) = self.entry(number) else { return };
        entry.conns -= 1;
        // No further connection gets a pair that was replaced.
        let unused_ns = match entry.origin {
            Origin::Connected { is_current: true, .. } => Some(SHM_PAIR_UNUSED_NS_MAX),
            Origin::Connected { is_current: false, .. } => Some(0),
            Origin::Accepted(_) | Origin::Continuing => None,
        };
        if let Some(unused_ns) = unused_ns
            && entry.conns == 0
            && matches!(entry.state, PairState::Open(_))
        {
            let deadline_ns = Some(now_ns + unused_ns);
            entry.deadline_ns = deadline_ns;
            self.note_deadline(deadline_ns);
        }
        self.remove_if_unused(number);
    }

    /// Makes a connection wait for the pair.
    pub(super) fn add_waiting(&mut self, number: u32, index: u32) {
        if let Some(entry) = self.entry(number) {
            entry.waiting.push(index);
        }
    }

    /// Takes a connection that waited for the pair, if the pair is there.
    pub(super) fn next_waiting(&mut self, number: u32) -> Option<u32> {
        self.open_pair(number)?;
        self.entry(number)?.waiting.pop()
    }

    /// Opens a connection.
    ///
    /// Errors: those of [`Pair::open`].
    pub(super) fn open_conn(&mut self, number: u32, index: u32) -> Result<RingConn, OpenError> {
        if !self.has_ring_bytes(number, SHM_RING_BYTES_START, true) {
            return Err(OpenError::NoMemory);
        }
        let opened = self.with_pair(number, |pair| {
            pair.reclaim();
            pair.open(SHM_RING_BYTES_START)
        });
        let ring = opened.unwrap_or(Err(OpenError::NotAttached))?;
        self.set_conn(number, ring.slot(), index);
        Ok(ring)
    }

    /// Records which connection a slot has.
    pub(super) fn set_conn(&mut self, number: u32, slot: u32, index: u32) {
        if let Some(open) = self.open_pair(number) {
            open.conns[slot as usize] = index;
        }
    }

    /// Moves a connection to a larger ring. `false`: not now.
    ///
    /// Errors: those of [`Pair::resize`].
    pub(super) fn resize(
        &mut self,
        number: u32,
        ring: &mut RingConn,
        ring_bytes: u64,
    ) -> Result<bool, PeerFault> {
        if !self.has_ring_bytes(number, ring_bytes, false) {
            return Ok(false);
        }
        self.with_pair(number, |pair| pair.resize(ring, ring_bytes)).unwrap_or(Ok(false))
    }

    /// Ends a connection's part of the pair.
    pub(super) fn end_conn(&mut self, number: u32, ring: RingConn, is_complete: bool) {
        self.set_conn(number, ring.slot(), NONE);
        self.with_pair(number, |pair| {
            if is_complete {
                pair.close(ring);
            } else {
                pair.reset(ring);
            }
            pair.reclaim();
        });
    }

    /// Takes the ready bits of all pairs that are awake, and calls `ready` with the index of each connection.
    /// `may_rest`: pairs that were found idle often fall asleep.
    pub(super) fn take_ready(&mut self, may_rest: bool, mut ready: impl FnMut(u32)) {
        let mut bits = 0;
        for _ in 0..self.awake.len() {
            // The rest comes first in the next poll, which `prepare_sleep` demands.
            if bits >= SHM_READY_BITS_PER_POLL_MAX {
                break;
            }
            let Some(number) = self.awake.pop() else { break };
            let Some(open) = self.open_pair(number).filter(|open| !open.is_ending && !open.is_asleep) else {
                continue;
            };
            let before = open.pair.ring_bytes();
            let taken = open.take_ready(&mut ready);
            let is_idle = taken == 0;
            bits += taken;
            let returned = before - open.pair.ring_bytes();
            open.idle_looks = if is_idle { open.idle_looks.saturating_add(u32::from(may_rest)) } else { 0 };
            open.is_asleep = may_rest && open.idle_looks >= SHM_IDLE_LOOKS_MAX && open.pair.sleep_if_quiet();
            let (is_awake, has_opened) = (!open.is_asleep, !is_idle && !open.opened.is_empty());
            self.ring_bytes -= returned;
            if has_opened {
                self.opened.push(number);
            }
            if is_awake {
                self.awake.push(number);
            }
        }
    }

    /// Returns whether the ready bits of any pair are looked at.
    pub(super) fn is_any_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Returns whether there are connections to be accepted.
    pub(super) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Returns a pair with a connection to be accepted, and its listener. Connections of a closed listener are refused;
    /// those of a paused one stay. `accepting`: of a listener, for a process.
    pub(super) fn with_opened(
        &mut self,
        accepting: impl Fn(ListenerId, i32) -> Option<Accepting>,
    ) -> Option<(u32, ListenerId)> {
        while let Some(number) = self.take_opened() {
            let Some(entry) = self.entry(number).filter(|entry| !matches!(entry.origin, Origin::Continuing))
            else {
                continue;
            };
            let (PairState::Open(open), Origin::Accepted(id)) = (&mut entry.state, &entry.origin) else {
                // A process that this one connected to opens nothing.
                if let PairState::Open(open) = &mut entry.state {
                    open.refuse_opened();
                }
                continue;
            };
            match id.and_then(|id| Some((id, accepting(id, entry.pid)?))) {
                Some((id, Accepting::On)) if !open.opened.is_empty() => return Some((number, id)),
                Some(_) => {}
                None => open.refuse_opened(),
            }
        }
        None
    }

    /// Accepts one connection of a pair that [`PairTable::with_opened`] returned, or that continues a connection;
    /// `None` if there is none.
    ///
    /// Errors: `NoMemory`: it was refused.
    pub(super) fn accept_opened(&mut self, number: u32) -> Result<Option<RingConn>, OpenError> {
        let Some(open) = self.open_pair(number) else { return Ok(None) };
        let Some(slot) = open.opened.pop() else { return Ok(None) };
        open.conns[slot as usize] = NONE;
        if !open.opened.is_empty() {
            self.opened.push(number);
        }
        let has_memory = self.has_ring_bytes(number, SHM_RING_BYTES_START, true);
        let accepted = self.with_pair(number, |pair| {
            if has_memory {
                pair.accept(slot, SHM_RING_BYTES_START)
            } else if pair.refuse_for_memory(slot) {
                Err(OpenError::NoMemory)
            } else {
                // A bit that means nothing.
                Ok(None)
            }
        });
        let accepted = accepted.unwrap_or(Ok(None));
        if let (Ok(None), Some(open)) = (&accepted, self.open_pair(number)) {
            open.false_opens = open.false_opens.saturating_add(1);
        }
        accepted
    }
}

/// Returns the size up to which one ring of a driver grows that has `bytes_max` bytes of ring memory.
fn grown_bytes_max(bytes_max: u64) -> u64 {
    let share = bytes_max / SHM_RING_SHARE;
    let rounded = share.checked_ilog2().map_or(0, |bits| 1 << bits);
    rounded.clamp(SHM_RING_BYTES_START, SHM_RING_BYTES_GROWN_MAX)
}

/// Returns whether a process that has `used` bytes of all `total` bytes of rings may have `bytes` more of `max` bytes.
/// It may have as much as is free then, so that there is always as much for others; larger rings take half of that at
/// most, so that there is always memory for new connections.
/// Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998.
fn is_within_share(max: u64, used: u64, total: u64, bytes: u64, is_new: bool) -> bool {
    let free = max.saturating_sub(total + bytes);
    used + bytes <= if is_new { free } else { free / 2 }
}
