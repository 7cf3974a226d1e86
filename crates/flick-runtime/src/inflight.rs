//! The in-flight table: which client sent which request on which connection, so that a reply goes to that client only.
//! Promises: a request has an entry from before it is sent until its last reply or failure; both queues of a request
//! (its session's and its connection's) are first in, first out; an entry is freed when it is out of both. No
//! allocation after `new`.
//! Source: LANGUAGE rules on shared connections are in `docs/internals/backends.md`.

pub(crate) mod retry_budget;

use flick_abi::Policy;
use flick_abi::limits::ECHO_FIELDS_MAX;

use self::retry_budget::RetryBudget;
use crate::config::RetryLimits;
use crate::limits::{BUSY_ENTRIES, FIRST_SHARE, INFLIGHT_SHARE, MIRROR_SHARE, PIECES_SHARE, RETRIES_MAX};
use crate::pieces::{PieceQueue, Pieces};
use crate::slab::Key;

#[cfg(test)]
mod model;

const NONE: u32 = u32::MAX;

/// Index of a request in the in-flight table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u32);

/// Suspended rule that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTarget {
    /// None.
    Nothing,
    /// Its reply answers this ask.
    Ask {
        /// The suspended rule that asked.
        suspended: Key,
        /// Index of the ask in the rule's last suspension.
        ask: u8,
    },
    /// This suspended rule will answer it.
    Answerer(Key),
}

/// One request in flight.
#[derive(Debug)]
pub struct InflightRequest {
    /// Its session; `None`: it is a copy, or the client is gone.
    session: Option<Key>,
    /// The suspended rule that it belongs to.
    reply_target: ReplyTarget,
    /// The number it carries on its connection.
    number: u64,
    /// The fields that its reply repeats, as the client sent them.
    echo: [u64; ECHO_FIELDS_MAX],
    /// The connection that it has alone, by its protocol; it may have been lost since.
    dedicated_conn: Option<u32>,
    /// Value that its grammar keeps of it for the parser of its reply (`%keep`).
    kept: u64,
    /// Cost of the request on its connection, in bytes.
    cost_bytes: u32,
    /// Its bytes, while it may be sent again: no byte of a reply has come.
    resend: PieceQueue,
    /// Times that it was sent to another backend.
    retries: u8,
    /// A pick without a key chose its backend.
    is_picked: bool,
    /// The channel and the policy of that pick, if another backend will do.
    picked: Option<(u32, Policy)>,
    /// It is watched whether its backend is silent.
    is_watched: bool,
    /// Time of its arrival.
    taken_ns: u64,
    /// Time at which it was last sent to a backend.
    sent_ns: u64,
    /// Time at which it counts as unanswered.
    deadline_ns: u64,
    /// Its last reply has arrived, or its failure has been written.
    done: bool,
    /// A reply says that the backend has failed (`%failed`).
    is_failed: bool,
    /// Part of a reply has been delivered: it can no longer be answered otherwise.
    begun: bool,
    /// Its reply says that more follow (`%more`), each with an entry of its own.
    is_continued: bool,
    /// Its reply says that the session ends with it (`%closes`).
    is_last: bool,
    /// Replies that wait for earlier requests of the same client.
    held: PieceQueue,
    /// Its entry of the access recorder, if it is logged.
    logged: Option<Key>,
    /// By queue: its position there. Of a free entry the first one leads to the next free one.
    positions: [Position; 2],
}

/// A queue that a request is in.
#[derive(Clone, Copy, Debug)]
pub enum QueueOf {
    /// Queue of its session.
    Session,
    /// Queue of its backend connection.
    BackendConn,
}

/// The position of a request in a queue.
#[derive(Clone, Copy, Debug)]
struct Position {
    is_queued: bool,
    /// The entry behind it.
    next: u32,
}

const OUT: Position = Position { is_queued: false, next: NONE };

/// Properties that a request gets when it is sent.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    /// The number that it carries on its connection.
    pub number: u64,
    /// Value that its grammar keeps of it for the parser of its reply.
    pub kept: u64,
    /// Cost of the request on its connection, in bytes.
    pub cost_bytes: u32,
    /// The connection that it has alone.
    pub dedicated_conn: Option<u32>,
    /// A pick without a key chose its backend.
    pub is_picked: bool,
    /// The channel and the policy of that pick, if another backend will do.
    pub picked: Option<(u32, Policy)>,
    /// The driver's clock.
    pub now_ns: u64,
}

impl InflightRequest {
    /// Its session; `None`: it is a copy, or the client is gone.
    #[inline]
    pub fn session(&self) -> Option<Key> {
        self.session
    }

    /// The suspended rule that it belongs to.
    #[inline]
    pub fn reply_target(&self) -> ReplyTarget {
        self.reply_target
    }

    /// It belongs to that suspended rule from now on. Returns the one before.
    #[inline]
    pub fn set_reply_target(&mut self, reply_target: ReplyTarget) -> ReplyTarget {
        std::mem::replace(&mut self.reply_target, reply_target)
    }

    /// The number it carries on its connection.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The fields that its reply repeats, as the client sent them.
    #[inline]
    pub fn echo(&self) -> &[u64; ECHO_FIELDS_MAX] {
        &self.echo
    }

    /// Value that its grammar keeps of it for the parser of its reply.
    #[inline]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Sets the value that its grammar keeps of it.
    #[inline]
    pub fn keep(&mut self, kept: u64) {
        self.kept = kept;
    }

    /// The connection that it has alone; it may have been lost since.
    #[inline]
    pub fn dedicated_conn(&self) -> Option<u32> {
        self.dedicated_conn
    }

    /// It is being sent.
    #[inline]
    pub fn note_sent(&mut self, sent: SentRequest) {
        self.number = sent.number;
        self.kept = sent.kept;
        self.cost_bytes = sent.cost_bytes;
        self.dedicated_conn = sent.dedicated_conn;
        (self.is_picked, self.picked) = (sent.is_picked, sent.picked);
        self.sent_ns = sent.now_ns;
    }

    /// Whether a pick without a key chose its backend.
    #[inline]
    pub fn is_picked(&self) -> bool {
        self.is_picked
    }

    /// Whether it is watched for a silent backend: it was not sent to another one before, and no byte has come.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// It is watched for a silent backend from now on, or no longer. Returns whether it was.
    #[inline]
    pub fn set_watched(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.is_watched, on)
    }

    /// Whether it was sent to another backend.
    pub fn is_retried(&self) -> bool {
        self.retries > 0
    }

    /// Time at which it was last sent to a backend.
    #[inline]
    pub fn sent_ns(&self) -> u64 {
        self.sent_ns
    }

    /// Time of its arrival.
    #[inline]
    pub fn taken_ns(&self) -> u64 {
        self.taken_ns
    }

    /// It has arrived.
    #[inline]
    pub fn note_taken(&mut self, now_ns: u64) {
        self.taken_ns = now_ns;
    }

    /// Time at which it counts as unanswered.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Sets when it counts as unanswered.
    #[inline]
    pub fn set_deadline(&mut self, deadline_ns: u64) {
        self.deadline_ns = deadline_ns;
    }

    /// Whether its bytes are kept to be sent again.
    #[inline]
    pub fn may_resend(&self) -> bool {
        !self.resend.is_empty()
    }

    /// Its bytes, while it may be sent again.
    #[inline]
    pub fn resend_mut(&mut self) -> &mut PieceQueue {
        &mut self.resend
    }

    /// The channel and the policy that choose another backend for it, if it may go to one and waits for a client.
    pub fn retry_pick(&self) -> Option<(u32, Policy)> {
        let is_waited_for = self.session.is_some() && self.reply_target == ReplyTarget::Nothing;
        self.picked.filter(|_| is_waited_for && self.may_resend() && self.retries < RETRIES_MAX)
    }

    /// It leaves its connection for another one: its bytes.
    pub fn begin_retry(&mut self) -> PieceQueue {
        (self.retries, self.is_watched) = (self.retries + 1, false);
        std::mem::replace(&mut self.resend, PieceQueue::new())
    }

    /// It is sent again, on that connection.
    pub fn note_retried(&mut self, resend: PieceQueue, dedicated_conn: u32, now_ns: u64) {
        (self.resend, self.dedicated_conn, self.sent_ns) = (resend, Some(dedicated_conn), now_ns);
    }

    /// Whether its last reply has arrived, or its failure has been written.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Its last reply has arrived, or its failure has been written.
    #[inline]
    pub fn finish(&mut self) {
        self.done = true;
    }

    /// Whether a reply says that the backend has failed.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// A reply has arrived, which may say that the backend has failed.
    #[inline]
    pub fn note_outcome(&mut self, has_failed: bool) {
        self.is_failed |= has_failed;
    }

    /// Whether it can no longer be answered otherwise.
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Part of a reply has been delivered.
    #[inline]
    pub fn note_begun(&mut self) {
        self.begun = true;
    }

    /// Whether its reply is one of several to the same request, and not the last of them.
    #[inline]
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// More replies to the same request follow, each with an entry of its own.
    #[inline]
    pub fn note_continued(&mut self) {
        self.is_continued = true;
    }

    /// Whether its session ends with its reply.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Its session ends with its reply.
    pub fn note_last(&mut self) {
        self.is_last = true;
    }

    /// Replies that wait for earlier requests of the same client.
    #[inline]
    pub fn held_mut(&mut self) -> &mut PieceQueue {
        &mut self.held
    }

    /// Its entry of the access recorder, if it is logged.
    #[inline]
    pub fn logged(&self) -> Option<Key> {
        self.logged
    }

    /// It has that entry of the access recorder, or none any more. Returns the one before.
    #[inline]
    pub fn set_logged(&mut self, logged: Option<Key>) -> Option<Key> {
        std::mem::replace(&mut self.logged, logged)
    }
}

/// A queue of requests: of a session or of a backend connection.
#[derive(Clone, Copy, Debug)]
pub struct RequestQueue {
    head: u32,
    tail: u32,
    len: u32,
    /// Sum of the costs of its requests, if it is that of a backend connection.
    cost_bytes: u64,
}

impl RequestQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0, cost_bytes: 0 }
    }

    /// Requests in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Sum of the costs of its requests, in bytes, if it is the queue of a backend connection.
    #[inline]
    pub fn cost_bytes(&self) -> u64 {
        self.cost_bytes
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest request.
    pub fn front(&self) -> Option<RequestId> {
        (self.head != NONE).then_some(RequestId(self.head))
    }

    /// The newest request.
    pub fn back(&self) -> Option<RequestId> {
        (self.tail != NONE).then_some(RequestId(self.tail))
    }
}

/// Component of the worker. All requests in flight, and the retry budget.
#[derive(Debug)]
pub struct Inflight {
    requests: Vec<InflightRequest>,
    free: u32,
    live: usize,
    capacity: usize,
    retry_budget: RetryBudget,
}

impl Inflight {
    /// A table for at most `capacity` requests in flight, and some more that are only answered with *overload*.
    pub fn new(capacity: usize) -> Self {
        Self {
            requests: Vec::with_capacity(capacity + BUSY_ENTRIES),
            free: NONE,
            live: 0,
            capacity,
            retry_budget: RetryBudget::default(),
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Further requests that would fit.
    pub fn capacity(&self) -> usize {
        self.capacity.saturating_sub(self.live)
    }

    /// Whether so few entries are in use that copies for mirrors may have one.
    pub fn takes_copies(&self) -> bool {
        self.live < self.capacity / MIRROR_SHARE
    }

    /// Requests that one client may have in flight: the fewer, the more others have, and one when only the entries, or
    /// the pieces for replies that must wait, are free that are kept for clients that have nothing in flight.
    /// Source: dynamic thresholds of shared buffers (Choudhury and Hahne, 1998).
    pub fn client_share(&self, pieces: &Pieces) -> u32 {
        let free = self.capacity().saturating_sub(self.capacity / FIRST_SHARE as usize);
        let share = (free / INFLIGHT_SHARE).min(pieces.capacity_for_more() / PIECES_SHARE);
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Whether one more request can be answered, though perhaps not served.
    pub fn can_answer(&self) -> bool {
        self.live < self.capacity + BUSY_ENTRIES
    }

    /// Opens an entry that is in no queue yet; `None` when the table is full.
    pub fn open(
        &mut self,
        session: Option<Key>,
        echo: [u64; ECHO_FIELDS_MAX],
        deadline_ns: u64,
    ) -> Option<RequestId> {
        if !self.can_answer() {
            return None;
        }
        let request = InflightRequest {
            session,
            reply_target: ReplyTarget::Nothing,
            number: 0,
            echo,
            dedicated_conn: None,
            kept: 0,
            cost_bytes: 0,
            resend: PieceQueue::new(),
            retries: 0,
            is_picked: false,
            picked: None,
            is_watched: false,
            taken_ns: 0,
            sent_ns: 0,
            deadline_ns,
            done: false,
            is_failed: false,
            begun: false,
            is_continued: false,
            is_last: false,
            held: PieceQueue::new(),
            logged: None,
            positions: [OUT; 2],
        };
        self.live += 1;
        if self.free != NONE {
            let index = self.free;
            self.free = self.requests[index as usize].positions[0].next;
            self.requests[index as usize] = request;
            return Some(RequestId(index));
        }
        self.requests.push(request);
        Some(RequestId((self.requests.len() - 1) as u32))
    }

    /// The entry.
    pub fn get(&self, id: RequestId) -> &InflightRequest {
        &self.requests[id.0 as usize]
    }

    /// The entry.
    pub fn get_mut(&mut self, id: RequestId) -> &mut InflightRequest {
        &mut self.requests[id.0 as usize]
    }

    /// Appends to a queue.
    pub fn push(&mut self, fifo: &mut RequestQueue, id: RequestId, of: QueueOf) {
        if fifo.tail == NONE {
            fifo.head = id.0;
        } else {
            self.requests[fifo.tail as usize].positions[of as usize].next = id.0;
        }
        fifo.tail = id.0;
        fifo.len += 1;
        let request = &mut self.requests[id.0 as usize];
        request.positions[of as usize].is_queued = true;
        if let QueueOf::BackendConn = of {
            fifo.cost_bytes += u64::from(request.cost_bytes);
        }
    }

    #[inline]
    fn pop(&mut self, fifo: &mut RequestQueue, of: QueueOf) -> Option<RequestId> {
        let id = fifo.front()?;
        let request = &mut self.requests[id.0 as usize];
        fifo.head = std::mem::replace(&mut request.positions[of as usize], OUT).next;
        fifo.len -= 1;
        if let QueueOf::BackendConn = of {
            fifo.cost_bytes -= u64::from(request.cost_bytes);
        }
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        Some(id)
    }

    /// Takes the oldest of a session's queue off; frees the entry if no connection has it.
    pub fn pop_session(&mut self, fifo: &mut RequestQueue, pieces: &mut Pieces) -> Option<RequestId> {
        let id = self.pop(fifo, QueueOf::Session)?;
        let request = &mut self.requests[id.0 as usize];
        request.session = None;
        pieces.clear(&mut request.held);
        pieces.clear(&mut request.resend);
        self.free_if_out(id);
        Some(id)
    }

    /// Takes the oldest of a connection's queue off; frees the entry if no session has it.
    pub fn pop_backend_conn(&mut self, fifo: &mut RequestQueue, pieces: &mut Pieces) -> Option<RequestId> {
        let id = self.pop(fifo, QueueOf::BackendConn)?;
        pieces.clear(&mut self.requests[id.0 as usize].resend);
        self.free_if_out(id);
        Some(id)
    }

    /// Notes the time and the requests taken so far, ever, for the retry budget.
    #[inline]
    pub fn note_time(&mut self, now_ns: u64, requests: u64) {
        self.retry_budget.note_time(now_ns, requests);
    }

    /// Takes one retry from the budget, if there is one. `requests`: taken so far, ever.
    pub fn take_retry(&mut self, now_ns: u64, requests: u64, limits: RetryLimits) -> bool {
        self.retry_budget.take(now_ns, requests, limits)
    }

    /// Gives the retry back that was just taken: the request was not sent again.
    pub fn give_retry_back(&mut self) {
        self.retry_budget.give_back();
    }

    fn free_if_out(&mut self, id: RequestId) {
        let request = &mut self.requests[id.0 as usize];
        if request.positions.iter().all(|position| !position.is_queued) {
            assert!(request.held.is_empty(), "a closed entry holds no reply");
            assert!(request.resend.is_empty(), "a closed entry is not sent again");
            request.positions[0].next = self.free;
            self.free = id.0;
            self.live -= 1;
        }
    }
}
