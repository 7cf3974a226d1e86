//! Connections through shared memory with processes of this host, beside the kernel's under the same driver.
//! Promises: bytes are copied out of a ring before anyone parses them; a peer that violates the protocol, stops or dies
//! costs its own connections only, and what it had published is delivered first; a transport that sleeps uses no
//! processor time; nothing is allocated per connection or message, only per pair of processes.
//! Refuses: waiting. The kernel's driver waits, and watches [`ShmTransport::watch_fd`].
//! Start reading here; `pairs.rs` has the processes, `transfer.rs` the bytes, `sleeping.rs` the end of polling. See
//! `docs/internals/shared-memory.md`.

mod claims;
mod continued;
mod fairness;
mod pairs;
mod silent_claims;
mod sleeping;
#[cfg(test)]
mod tests;
mod transfer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use flick_buffers::{Pool, Slice};
use flick_shm::conn::{OpenAnswer, RingConn};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::address::{Endpoint, PeerAddr};
use crate::clock::Clock;
use crate::conn::quota::SendQuota;
use crate::conn::{Conns, Then};
use crate::driver::{DriverEvent, DriverLimits, Handle, ListenerId, ShmStats};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::internal;
use crate::limits::{
    ACCEPT_RETRY_NS, ACCEPTS_PER_POLL_MAX, LINGER_SCRATCH_BYTES, LISTENERS_MAX, SHM_HANDSHAKES_PER_POLL_MAX,
    SHM_MOVES_MAX, SHM_PAIRS_MAX, SHM_REFUSALS_LOG_NS, SHM_RING_BYTES_START,
};
use crate::listen::ListenSocket;
use crate::listeners::{AcceptFaults, Accepting, Listeners};
use crate::receive_buffer::ReceiveBuffer;
use crate::slot_queue::SlotQueue;
pub(crate) use claims::{ClaimPeek, ClaimRead};
use continued::Continued;
use pairs::{NEWS_MAX, NONE, News, PairTable, Progress};
use silent_claims::SilentClaims;

/// All connections through shared memory of one driver.
pub(crate) struct ShmTransport {
    /// Its handles begin at 0; the driver above converts the platform's.
    conns: Conns<ShmPart>,
    /// By index of a connection: its rings, from when the pair is there until the connection ends.
    rings: Vec<Option<RingConn>>,
    pairs: PairTable,
    listeners: Listeners<ShmListener>,
    /// Connections that are looked at in every poll, because they were active lately.
    polled: SlotQueue,
    /// Connections that wait for a receive buffer and for nothing else.
    starved: SlotQueue,
    /// Connections of the driver above that have something to read now; see `claims.rs`.
    claims: SlotQueue,
    silent_claims: SilentClaims,
    /// Connections whose sleep is being announced.
    sleepers: Vec<u32>,
    /// Connections that may go on in rings of another process.
    continued: Vec<Continued>,
    /// Buffer for the input of lingering connections, which is discarded.
    scratch: Box<[u8]>,
    receive_buffer: ReceiveBuffer,
    pub(crate) clock: Clock,
    quota: SendQuota,
    limits: DriverLimits,
    accept_faults: AcceptFaults,
    /// When the listeners for claims accept again that the system has refused to accept from. Those of the platform are
    /// the platform's to resume.
    claims_retry_ns: Option<u64>,
    received_bytes: usize,
    stats: ShmStats,
    /// Connections that were refused for lack of memory since the last line about them.
    refusals_unlogged: u64,
    /// Time before which there is no further line; `None`: there was none yet.
    refusals_log_ns: Option<u64>,
    /// Connections that the platform takes at most.
    accepts_left: u32,
    /// Handshakes that the next poll advances at most.
    handshakes_left: usize,
    /// News were left in the watch.
    has_news: bool,
    now_ns: u64,
    is_used: bool,
}

/// Part of a connection.
struct ShmPart {
    /// Number of its pair.
    pair: u32,
    /// Looks at an empty ring since something was there.
    idle_looks: u32,
    /// Bytes received after the end of the pair.
    late_bytes: u64,
    /// Pairs that have refused the connection, or ended before they answered.
    moves: u32,
    /// Ready bits that the other side has set for it.
    wake_ups: u64,
    /// The driver above reads it, not the platform.
    is_claim: bool,
    /// The platform has no session for it yet.
    is_waiting: bool,
}

/// An address at which processes pair.
struct ShmListener {
    socket: ListenSocket,
    accepting: Accepting,
    /// Processes can pair.
    is_watched: bool,
    /// The driver above takes its connections.
    is_for_claims: bool,
}

impl ShmTransport {
    /// Allocates what connections need; at most `limits.shm_conns_max` exist.
    ///
    /// Errors: those of epoll_create(2).
    pub(crate) fn new(limits: &DriverLimits, clock: Clock) -> io::Result<ShmTransport> {
        let limits = DriverLimits { conns_max: limits.shm_conns_max, ..*limits };
        let conns_max = limits.conns_max;
        Ok(ShmTransport {
            conns: Conns::new(&limits, conns_max),
            rings: Vec::with_capacity(conns_max as usize),
            pairs: PairTable::new(epoll::create(epoll::CreateFlags::CLOEXEC)?, conns_max),
            listeners: Listeners::new(),
            polled: SlotQueue::new(conns_max),
            starved: SlotQueue::new(conns_max),
            claims: SlotQueue::new(conns_max),
            silent_claims: SilentClaims::new(conns_max),
            sleepers: Vec::with_capacity(conns_max as usize),
            continued: Vec::new(),
            scratch: vec![0; LINGER_SCRATCH_BYTES].into_boxed_slice(),
            receive_buffer: ReceiveBuffer::default(),
            quota: SendQuota::unlimited(),
            limits,
            accept_faults: AcceptFaults::new(),
            claims_retry_ns: None,
            received_bytes: 0,
            stats: ShmStats::default(),
            refusals_unlogged: 0,
            refusals_log_ns: None,
            accepts_left: u32::MAX,
            handshakes_left: 0,
            has_news: false,
            now_ns: clock.now_ns(),
            is_used: false,
            clock,
        })
    }

    /// Returns whether the platform had a listener or a connection.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns whether polls have anything to do here.
    pub(crate) fn is_active(&self) -> bool {
        self.is_used || self.stats.conns > 0 || !self.pairs.is_empty() || self.claims_retry_ns.is_some()
    }

    /// Returns the descriptor that is readable when [`ShmTransport::take_news`] has something to take.
    pub(crate) fn watch_fd(&self) -> BorrowedFd<'_> {
        self.pairs.watch.as_fd()
    }

    pub(crate) fn bounds_mut(&mut self) -> (&mut DriverLimits, &mut SendQuota) {
        (&mut self.limits, &mut self.quota)
    }

    /// Returns the clock as of the last poll.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Limits the bytes of the rings of this process.
    pub(crate) fn limit_rings(&mut self, bytes_max: u64) {
        self.pairs.limit_rings(bytes_max);
    }

    /// Returns the use of this transport, [internal](crate::internal) connections excepted.
    pub(crate) fn stats(&self) -> ShmStats {
        self.pairs.with_pairs(self.stats)
    }

    /// Returns how often the other side has signalled input of a connection.
    pub(crate) fn wake_ups_of(&self, index: u32) -> u64 {
        self.conns.at(index).map_or(0, |conn| conn.part.wake_ups)
    }

    /// Begins a poll.
    pub(crate) fn begin_poll(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.received_bytes = 0;
        self.quota.renew();
    }
}

/// The platform's calls, with handles of this transport's table.
impl ShmTransport {
    /// Begins to accept at an address that was opened before.
    ///
    /// Errors: more than [`LISTENERS_MAX`] listeners; those of epoll_ctl(2).
    pub(crate) fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        self.is_used = true;
        let continuation = socket.continuation().cloned();
        let id = self.add_listener(socket, false)?;
        if let Some(continuation) = continuation {
            self.add_continuation(id, continuation)?;
        }
        Ok(id)
    }

    fn add_listener(&mut self, socket: ListenSocket, is_for_claims: bool) -> io::Result<ListenerId> {
        crate::socket::set_blocking(&socket, false)?;
        let id = self.listeners.insert(ShmListener {
            socket,
            accepting: Accepting::Off,
            is_watched: false,
            is_for_claims,
        })?;
        self.accept(id, true);
        Ok(id)
    }

    pub(crate) fn local_addr(&self, id: ListenerId) -> io::Result<Endpoint> {
        let listener = self.listeners.get(id).ok_or(io::ErrorKind::NotFound)?;
        Ok(listener.socket.local_addr().clone())
    }

    /// Pauses or resumes accepting, of processes and of connections.
    pub(crate) fn accept(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        listener.accepting = if on { Accepting::On } else { Accepting::Off };
        if on {
            self.pairs.queue_opened();
        }
        self.watch(id, on);
    }

    /// Lets processes pair at a listener, or not.
    fn watch(&mut self, id: ListenerId, on: bool) {
        if let Some(listener) = self.listeners.get_mut(id)
            && listener.is_watched != on
        {
            listener.is_watched = on;
            self.pairs.watch_listener(id, &listener.socket, on);
        }
    }

    /// Stops accepting. Processes that have paired keep their connections, and further ones are refused.
    pub(crate) fn close_listener(&mut self, id: ListenerId) {
        self.accept(id, false);
        self.listeners.remove(id);
        self.accept_faults.forget(id);
        self.pairs.close_listener(id);
    }

    /// Starts connecting to `shm:NAME`.
    ///
    /// Errors: `ENFILE` when the table is full.
    pub(crate) fn connect(&mut self, name: &str) -> io::Result<Handle> {
        if !self.free_slot() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        self.is_used = true;
        // The last poll may be long ago, or was never.
        let pair = self.pairs.pair_to(name, self.clock.now_ns());
        let handle = self.insert(pair.unwrap_or(NONE), None, false);
        match pair {
            Ok(pair) => {
                self.pairs.add_waiting(pair, handle.index);
                self.open_waiting(pair);
            }
            Err(fault) => self.fail(handle.index, fault),
        }
        Ok(handle)
    }

    pub(crate) fn receive(&mut self, conn: Handle, on: bool) {
        let index = conn.index;
        let Some(conn) = self.conns.set_receiving(conn, on) else { return };
        conn.part.is_waiting &= !on;
        if conn.wants_input() {
            self.conns.ready.push(index);
        }
    }

    pub(crate) fn send(&mut self, conn: Handle, data: Slice) {
        if self.conns.send(conn, data).is_err() {
            self.fail(conn.index, ConnFault::Exhausted);
        }
    }

    pub(crate) fn set_corked(&mut self, conn: Handle, on: bool) {
        self.conns.set_corked(conn, on);
    }

    pub(crate) fn backlog_bytes(&self, conn: Handle) -> usize {
        self.conns.backlog_bytes(conn)
    }

    pub(crate) fn pinned_bytes(&self, conn: Handle) -> u64 {
        self.conns.pinned_bytes(conn)
    }

    pub(crate) fn is_hung_up(&self, conn: Handle) -> bool {
        let Some(state) = self.conns.get(conn) else { return false };
        let ring = self.rings[conn.index as usize].as_ref();
        ring.is_some_and(RingConn::is_hung_up) || self.pairs.is_gone(state.part.pair)
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.conns.is_flushing()
    }

    pub(crate) fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.conns.set_watermarks(high_bytes, low_bytes);
    }

    pub(crate) fn shutdown(&mut self, conn: Handle) {
        let then = self.conns.shutdown(conn);
        self.apply(conn.index, then);
    }

    pub(crate) fn close(&mut self, conn: Handle) {
        let then = self.conns.close(conn, self.now_ns);
        self.apply(conn.index, then);
    }

    pub(crate) fn abort(&mut self, conn: Handle) {
        if self.conns.get(conn).is_some() {
            self.drop_conn(conn.index, false);
        }
    }
}

/// One poll.
impl ShmTransport {
    /// Returns whether something is to be done that no descriptor signals.
    pub(crate) fn has_work(&self, pool: &Pool) -> bool {
        let can_receive = !self.starved.is_empty() && self.receive_buffer.is_available(pool);
        can_receive
            || self.has_accepts()
            || self.has_news
            || !self.conns.ready.is_empty()
            || !self.conns.dirty.is_empty()
    }

    /// Returns whether there are connections to be accepted, or failures of it to be reported.
    fn has_accepts(&self) -> bool {
        self.pairs.has_opened() || !self.accept_faults.is_empty()
    }

    /// Sends what was appended.
    pub(crate) fn flush(&mut self) {
        self.write_dirty();
    }

    /// Returns whether a handshake or an unused pair is over by time, or claims are to be accepted again.
    pub(crate) fn is_due(&self) -> bool {
        let deadline_ns = self.pairs.deadline_ns().into_iter().chain(self.claims_retry_ns).min();
        deadline_ns.is_some_and(|deadline_ns| deadline_ns <= self.now_ns)
    }

    /// Sends what was appended, then serves every connection that has something, once.
    pub(crate) fn serve_all(&mut self, pool: &Pool, sink: &mut EventSink<'_>) {
        while let Some(index) = self.conns.expired_lingerer(self.now_ns) {
            self.drop_conn(index, true);
        }
        while let Some(index) = self.conns.expired_flusher(self.now_ns) {
            // Not complete, which the other side sees as a reset.
            self.drop_conn(index, false);
        }
        self.write_dirty();
        self.look(true);
        self.accept_opened(sink);
        if !self.starved.is_empty() && self.receive_buffer.is_available(pool) {
            while let Some(index) = self.starved.pop() {
                self.conns.ready.push(index);
            }
        }
        self.serve_ready(pool, sink);
        self.advance_continued();
    }

    /// Looks at the ready bits of all pairs that are awake, and at all connections that were active lately. `may_rest`:
    /// those that were found idle often are not looked at any more, until the other side signals.
    pub(crate) fn look(&mut self, may_rest: bool) {
        let Self { pairs, conns, .. } = self;
        pairs.take_ready(may_rest, |index| {
            if let Some(conn) = conns.at_mut(index) {
                conn.part.wake_ups += 1;
            }
            conns.ready.push(index);
        });
        self.look_at_polled(may_rest);
    }

    /// Accepts connections that other processes have opened.
    fn accept_opened(&mut self, sink: &mut EventSink<'_>) {
        self.accept_some(sink);
        while let Some(pair) = self.pairs.ended() {
            self.pairs.end(pair);
        }
    }

    fn accept_some(&mut self, sink: &mut EventSink<'_>) {
        self.accept_faults.report(sink);
        let has_opened = self.pairs.has_opened();
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            if sink.is_full() || self.accepts_left == 0 {
                return;
            }
            let (listeners, silent_claims) = (&self.listeners, &self.silent_claims);
            let accepting = |id, pid| {
                let listener = listeners.get(id)?;
                let waits = listener.is_for_claims && silent_claims.is_full_for(pid);
                Some(if waits { Accepting::Off } else { listener.accepting })
            };
            let Some((pair, listener)) = self.pairs.with_opened(accepting) else {
                if has_opened && self.conns.is_full() {
                    self.evict_greedy();
                }
                return;
            };
            let is_for_claims = self.listeners.get(listener).is_some_and(|at| at.is_for_claims);
            if !self.free_slot() {
                self.accept(listener, false);
                if let Some(listener) = self.listeners.get_mut(listener) {
                    listener.accepting = Accepting::WaitsForSlot;
                }
                if is_for_claims || !self.silent_claims.expire_one() {
                    self.evict_greedy();
                }
                sink.put(DriverEvent::AcceptFailed { listener, errno: libc::ENFILE });
                return;
            }
            match self.pairs.accept_opened(pair) {
                Ok(Some(ring)) => {
                    let conn = self.insert(pair, Some(ring), true);
                    if is_for_claims {
                        self.await_question(pair, conn.index);
                    } else {
                        self.accepts_left -= 1;
                    }
                    self.note_continued(listener, pair, conn.index);
                    sink.put(DriverEvent::Accepted { listener, conn, peer: PeerAddr::Shm });
                }
                Ok(None) => {}
                Err(_) => self.note_refusal(listener, pair),
            }
        }
    }

    /// Counts a connection that was refused because there is no memory for its rings.
    fn note_refusal(&mut self, listener: ListenerId, pair: u32) {
        let is_claim = self.listeners.get(listener).is_some_and(|at| at.is_for_claims);
        *(if is_claim { &mut self.stats.plain_limit } else { &mut self.stats.refused }) += 1;
        self.refusals_unlogged += 1;
        if self.refusals_log_ns.is_some_and(|log_ns| self.now_ns < log_ns) {
            return;
        }
        self.refusals_log_ns = Some(self.now_ns + SHM_REFUSALS_LOG_NS);
        tracing::warn!(
            pid = self.pairs.pid(pair),
            connections = std::mem::take(&mut self.refusals_unlogged),
            ring_bytes = self.pairs.ring_bytes(),
            "no memory for the rings of further connections of a process: those to `shm:` are refused, others stay \
             on their sockets; raise --buffer-memory"
        );
    }

    /// Returns whether a slot is free; closes the oldest lingering connection if its slot is needed.
    fn free_slot(&mut self) -> bool {
        while self.conns.is_full() {
            let Some(oldest) = self.conns.oldest_lingerer() else { return false };
            self.drop_conn(oldest, true);
        }
        true
    }

    /// Takes in a connection of a pair.
    fn insert(&mut self, pair: u32, ring: Option<RingConn>, is_established: bool) -> Handle {
        let handle = self.conns.insert(
            ShmPart {
                pair,
                idle_looks: 0,
                late_bytes: 0,
                moves: 0,
                wake_ups: 0,
                is_claim: false,
                is_waiting: false,
            },
            is_established,
        );
        let at = handle.index as usize;
        if at == self.rings.len() {
            self.rings.push(None);
        }
        if let Some(ring) = &ring {
            self.pairs.set_conn(pair, ring.slot(), handle.index);
        }
        self.rings[at] = ring;
        self.stats.conns += 1;
        self.pairs.count_conn(pair);
        handle
    }

    /// Opens the connections that wait for a pair, if the pair is there.
    fn open_waiting(&mut self, pair: u32) {
        while let Some(index) = self.pairs.next_waiting(pair) {
            let is_waiting = self
                .conns
                .at(index)
                .is_some_and(|conn| conn.part.pair == pair && conn.is_connecting() && !conn.has_failed());
            if !is_waiting || self.rings[index as usize].is_some() {
                continue;
            }
            match self.pairs.open_conn(pair, index) {
                Ok(ring) => self.rings[index as usize] = Some(ring),
                Err(_) => self.fail(index, ConnFault::Exhausted),
            }
        }
    }

    /// Looks for the answer to a connection that this side has opened.
    fn end_connect(&mut self, index: u32) {
        let Some(ring) = &mut self.rings[index as usize] else { return };
        match ring.answer() {
            Ok(OpenAnswer::Pending) => {}
            Ok(OpenAnswer::Accepted) => {
                let then = self.conns.established(index);
                self.conns.ready.push(index);
                self.apply(index, then);
            }
            Ok(OpenAnswer::Refused) => {
                let is_for_memory = ring.is_refused_for_memory();
                self.end_refused(index, is_for_memory);
            }
            Err(fault) => self.fail_peer(index, fault),
        }
    }

    /// The other process accepts no more connections of this pair, or is gone, perhaps because it gives its address to
    /// a successor: the connection gets a pair with the process that listens there now. Of several workers at a name
    /// another one may have memory, but not of those that have a name each.
    fn end_refused(&mut self, index: u32, is_for_memory: bool) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let refused = conn.part.pair;
        if conn.part.moves == SHM_MOVES_MAX || is_for_memory && conn.part.is_claim {
            let fault = if is_for_memory { ConnFault::PairMemory } else { ConnFault::Refused };
            if let Some(ring) = self.rings[index as usize].take() {
                self.pairs.end_conn(refused, ring, true);
            }
            return self.fail(index, fault);
        }
        conn.part.moves += 1;
        let next = self.pairs.replace(refused, self.now_ns);
        if let Some(ring) = self.rings[index as usize].take() {
            self.pairs.end_conn(refused, ring, true);
        }
        self.pairs.uncount_conn(refused, self.now_ns);
        let Some(conn) = self.conns.at_mut(index) else { return };
        match next {
            Ok(next) => {
                conn.part.pair = next;
                self.pairs.count_conn(next);
                self.pairs.add_waiting(next, index);
                self.open_waiting(next);
            }
            Err(fault) => {
                conn.part.pair = NONE;
                self.fail(index, fault);
            }
        }
    }

    /// Fails a connection. What arrived before can still be read.
    fn fail(&mut self, index: u32, fault: ConnFault) {
        let then = self.conns.fail(index, fault);
        self.conns.ready.push(index);
        self.apply(index, then);
    }

    /// Fails a connection whose peer violated the protocol.
    fn fail_peer(&mut self, index: u32, fault: flick_shm::fault::PeerFault) {
        tracing::debug!(%fault, "a process violated the protocol of shared memory; its connection ends");
        let ring = self.rings[index as usize].take();
        if let (Some(ring), Some(conn)) = (ring, self.conns.at(index)) {
            self.pairs.end_conn(conn.part.pair, ring, false);
        }
        self.fail(index, ConnFault::Reset);
    }

    /// Does what the connection core asks for.
    fn apply(&mut self, index: u32, then: Then) {
        match then {
            Then::Nothing => {}
            Then::ShutDownWrite | Then::Linger => {
                self.end_continued(index);
                // The driver above may have waited for it.
                self.claims.push(index);
                let ring = self.rings.get_mut(index as usize).and_then(Option::as_mut);
                if let Some(Err(fault)) = ring.map(RingConn::finish_sending) {
                    self.fail_peer(index, fault);
                } else if then == Then::Linger {
                    self.conns.ready.push(index);
                }
            }
            Then::Close => self.drop_conn(index, true),
            Then::Drop | Then::Reset => self.drop_conn(index, false),
        }
    }

    /// Ends a connection and frees its slot. `is_complete`: all its output is in the ring.
    fn drop_conn(&mut self, index: u32, is_complete: bool) {
        self.end_continued(index);
        let ring = self.rings.get_mut(index as usize).and_then(Option::take);
        let Some(part) = self.conns.remove(index) else { return };
        self.end_silence(index);
        self.stats.conns -= 1;
        if let Some(ring) = ring {
            self.pairs.end_conn(part.pair, ring, is_complete);
        }
        self.pairs.uncount_conn(part.pair, self.now_ns);
        for id in self.listeners.ids() {
            let waits = |listener: &ShmListener| listener.accepting == Accepting::WaitsForSlot;
            if self.listeners.get(id).is_some_and(waits) {
                self.accept(id, true);
            }
        }
    }

    /// Takes the news of the watch: processes that come and go, and pairs that wake.
    pub(crate) fn take_news(&mut self) {
        self.resume_claims();
        let mut news = [None; NEWS_MAX];
        (self.handshakes_left, self.has_news) = (SHM_HANDSHAKES_PER_POLL_MAX, false);
        // Each round handles what it takes, so a full one may be followed by another.
        for _ in 0..SHM_PAIRS_MAX as usize / NEWS_MAX {
            let count = self.pairs.take_news(&mut news);
            news[..count].iter().flatten().for_each(|news| self.handle(*news));
            if count < NEWS_MAX || self.has_news {
                break;
            }
        }
        while let Some(pair) = self.pairs.expired(self.now_ns) {
            self.end_conns_of(pair, None);
            self.pairs.end(pair);
        }
    }

    fn handle(&mut self, news: News) {
        match news {
            News::Listener(id) => self.accept_processes(id),
            News::Continuation(number) => self.take_continuation_request(number),
            News::Socket { pair, .. } if self.pairs.is_in_handshake(pair) && self.handshakes_left == 0 => {
                // Level-triggered, so the next poll finds it.
                self.has_news = true;
            }
            News::Socket { pair, is_over } => match self.advance(pair, is_over) {
                Progress::Nothing => {}
                Progress::Opened => self.open_waiting(pair),
                Progress::Signalled => {
                    self.stats.wake_ups += u64::from(!self.pairs.is_internal(pair));
                    self.pairs.wake(pair);
                }
                Progress::Ended => self.end_pair(pair, None),
                Progress::Failed(fault) => self.end_pair(pair, Some(fault)),
            },
        }
    }

    fn advance(&mut self, pair: u32, is_over: bool) -> Progress {
        self.handshakes_left = self.handshakes_left.saturating_sub(1);
        self.pairs.advance(pair, is_over)
    }

    fn accept_processes(&mut self, id: ListenerId) {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let Some(listener) = self.listeners.get(id) else { return };
            let is_internal = internal::is_of(listener.socket.local_addr());
            match crate::socket::accept(&listener.socket) {
                Ok((socket, _)) => self.pairs.accept_process(socket, id, is_internal, self.now_ns),
                Err(errno) if crate::socket::is_per_connection_error(errno) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    let is_for_claims = listener.is_for_claims;
                    self.accept(id, false);
                    if is_for_claims {
                        self.claims_retry_ns = Some(self.now_ns + ACCEPT_RETRY_NS);
                    } else {
                        self.accept_faults.note(id, errno.raw_os_error());
                    }
                    return;
                }
            }
        }
    }

    /// Accepts claims again that the system refused to accept.
    fn resume_claims(&mut self) {
        if self.claims_retry_ns.take_if(|at_ns| *at_ns <= self.now_ns).is_none() {
            return;
        }
        for id in self.listeners.ids() {
            let is_paused =
                |listener: &ShmListener| listener.is_for_claims && listener.accepting == Accepting::Off;
            if self.listeners.get(id).is_some_and(is_paused) {
                self.accept(id, true);
            }
        }
    }

    /// Ends a pair whose other process is gone, or has refused it for a reason. What it had opened is accepted first.
    fn end_pair(&mut self, pair: u32, refusal: Option<ConnFault>) {
        let has_opened = self.pairs.begin_end(pair, self.now_ns);
        self.end_conns_of(pair, refusal);
        if !has_opened {
            self.pairs.end(pair);
        }
    }

    /// Returns when a handshake, an unused pair, a silent claim or a lingering connection ends by time, or claims are
    /// accepted again, as a wait from now.
    pub(crate) fn wait_time(&self) -> Option<Duration> {
        let of_claims = self.silent_claims.deadline_ns().into_iter().chain(self.claims_retry_ns);
        let of_conns = self.conns.linger_deadline_ns().into_iter().chain(of_claims);
        let deadline_ns = self.pairs.deadline_ns().into_iter().chain(of_conns).min()?;
        Some(Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns)))
    }

    /// Ends the connections of a process that is gone, once what it had published is delivered. Those that wait for the
    /// pair get another one, unless there is a reason against that.
    fn end_conns_of(&mut self, pair: u32, refusal: Option<ConnFault>) {
        if !self.pairs.has_conns(pair) {
            return;
        }
        for index in 0..self.conns.used() {
            let Some(conn) = self.conns.at(index).filter(|conn| conn.part.pair == pair) else { continue };
            let ring = self.rings[index as usize].as_mut();
            // Behind both ends, or the end of a connection that was closed in order, a death changes nothing.
            let is_over = conn.is_shut_down() && !conn.has_output()
                || ring.as_ref().is_some_and(|ring| ring.is_peer_closed());
            // Behind its own end the other side sends nothing more, though its ring is not idle.
            let awaits_input = if conn.has_input_end() {
                is_over
            } else {
                ring.is_some_and(|ring| matches!(ring.is_idle(), Ok(false)))
            };
            if conn.is_connecting() {
                match refusal {
                    Some(fault) => self.fail(index, fault),
                    None => self.end_refused(index, false),
                }
            } else if awaits_input {
                // It fails once the input is delivered, or when it sends; that may be when receiving is resumed.
                self.conns.ready.push(index);
            } else if !self.leave_rings_of(index) {
                self.fail(index, ConnFault::Reset);
            }
        }
    }
}

const _: () = assert!(LISTENERS_MAX <= u32::MAX as usize / 2);
const _: () = assert!(SHM_RING_BYTES_START >= flick_shm::limits::RING_BYTES_MIN);
