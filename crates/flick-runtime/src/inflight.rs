//! The ledger: who asked what on which connection, so that every reply goes to the client that asked or to nobody.
//! Promises: a request is in the recorder from before it is sent until its last reply or failure; both queues of a
//! request (its session's and its connection's) are first in, first out; a book entry is freed when it is out of
//! both. No allocation after `new`.
//! Source: LANGUAGE rules on shared connections are in `docs/internals/backends.md`.

pub(crate) mod retry_budget;

use self::retry_budget::RetryBudget;
use flick_abi::Policy;
use flick_abi::limits::ECHO_FIELDS_MAX;

use crate::limits::BUSY_ENTRIES;
use crate::pieces::{PieceQueue, Pieces};
use crate::slab::Key;

#[cfg(test)]
mod model;

const NONE: u32 = u32::MAX;

/// Component of the worker. The in-flight table and the retry budget.
pub(crate) struct Inflight {
    pub(crate) table: InflightTable,
    pub(crate) retry_budget: RetryBudget,
}

/// Index of a request in the in-flight table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u32);

/// What of a suspended rule an entry is tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTarget {
    /// Nothing.
    Nothing,
    /// Its reply answers this ask.
    Ask {
        /// Whose.
        suspended: Key,
        /// Which of its last suspension.
        ask: u8,
    },
    /// This activation will answer it.
    Answerer(Key),
}

/// One request under way.
#[derive(Debug)]
pub struct InflightRequest {
    /// Who asked; `None`: a copy whose reply nobody waits for, or the client is gone.
    pub session: Option<Key>,
    /// The activation that is concerned.
    pub reply_target: ReplyTarget,
    /// The number it carries on its connection.
    pub number: u64,
    /// The fields that its reply repeats, as the client sent them.
    pub echo: [u64; ECHO_FIELDS_MAX],
    /// The connection that was lent to it alone, by its protocol; it may have been lost since.
    pub dedicated_conn: Option<u32>,
    /// What its grammar keeps of it for the reader of its reply (`%keep`).
    pub kept: u64,
    /// It as it was sent, while it may be sent again: no byte of a reply has come.
    pub resend: PieceQueue,
    /// Times that it was sent to another backend.
    pub retries: u8,
    /// The channel and the policy of the pick without a key that chose its backend: another will do.
    pub picked: Option<(u32, Policy)>,
    /// When it was taken in.
    pub taken_ns: u64,
    /// When it was sent to a backend.
    pub sent_ns: u64,
    /// When it counts as unanswered.
    pub deadline_ns: u64,
    /// Its last reply has arrived, or its failure has been written.
    pub done: bool,
    /// Part of a reply has been passed to the client, or its first to the rule that asked: it can no longer be answered
    /// otherwise.
    pub begun: bool,
    /// Replies that wait for earlier requests of the same client.
    pub held: PieceQueue,
    /// Where the access log has it, if it is to be in there.
    pub logged: Option<Key>,
    next_in_session: u32,
    next_in_backend_conn: u32,
    in_session: bool,
    in_backend_conn: bool,
}

/// A queue of requests; which one is said by the method that is called.
#[derive(Clone, Copy, Debug)]
pub struct RequestQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl RequestQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }

    /// Requests in it.
    pub fn len(&self) -> u32 {
        self.len
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

/// All requests of a worker.
#[derive(Debug)]
pub struct InflightTable {
    requests: Vec<InflightRequest>,
    free: u32,
    live: usize,
    capacity: usize,
}

impl InflightTable {
    /// A ledger for at most `capacity` requests under way, and some more that are only told that there are too many.
    pub fn new(capacity: usize) -> Self {
        Self { requests: Vec::with_capacity(capacity + BUSY_ENTRIES), free: NONE, live: 0, capacity }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Further requests that would fit.
    pub fn capacity(&self) -> usize {
        self.capacity.saturating_sub(self.live)
    }

    /// Whether one more request can be answered, though perhaps not served.
    pub fn can_answer(&self) -> bool {
        self.live < self.capacity + BUSY_ENTRIES
    }

    /// Opens an entry that is in no queue yet; `None` when the ledger is full.
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
            resend: PieceQueue::new(),
            retries: 0,
            picked: None,
            taken_ns: 0,
            sent_ns: 0,
            deadline_ns,
            done: false,
            begun: false,
            held: PieceQueue::new(),
            logged: None,
            next_in_session: NONE,
            next_in_backend_conn: NONE,
            in_session: false,
            in_backend_conn: false,
        };
        self.live += 1;
        if self.free != NONE {
            let index = self.free;
            self.free = self.requests[index as usize].next_in_session;
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

    /// Appends to a session's queue.
    pub fn push_session(&mut self, fifo: &mut RequestQueue, id: RequestId) {
        if fifo.tail == NONE {
            fifo.head = id.0;
        } else {
            self.requests[fifo.tail as usize].next_in_session = id.0;
        }
        fifo.tail = id.0;
        fifo.len += 1;
        self.requests[id.0 as usize].in_session = true;
    }

    /// Appends to a connection's queue.
    pub fn push_backend_conn(&mut self, fifo: &mut RequestQueue, id: RequestId) {
        if fifo.tail == NONE {
            fifo.head = id.0;
        } else {
            self.requests[fifo.tail as usize].next_in_backend_conn = id.0;
        }
        fifo.tail = id.0;
        fifo.len += 1;
        self.requests[id.0 as usize].in_backend_conn = true;
    }

    /// Takes the oldest of a session's queue off; frees the entry if no connection has it.
    pub fn pop_session(&mut self, fifo: &mut RequestQueue, pieces: &mut Pieces) -> Option<RequestId> {
        let id = fifo.front()?;
        let request = &mut self.requests[id.0 as usize];
        fifo.head = std::mem::replace(&mut request.next_in_session, NONE);
        fifo.len -= 1;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        request.in_session = false;
        request.session = None;
        pieces.clear(&mut request.held);
        pieces.clear(&mut request.resend);
        self.free_if_out(id);
        Some(id)
    }

    /// Takes the oldest of a connection's queue off; frees the entry if no session has it.
    pub fn pop_backend_conn(&mut self, fifo: &mut RequestQueue, pieces: &mut Pieces) -> Option<RequestId> {
        let id = fifo.front()?;
        let request = &mut self.requests[id.0 as usize];
        pieces.clear(&mut request.resend);
        fifo.head = std::mem::replace(&mut request.next_in_backend_conn, NONE);
        fifo.len -= 1;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        request.in_backend_conn = false;
        self.free_if_out(id);
        Some(id)
    }

    fn free_if_out(&mut self, id: RequestId) {
        let request = &mut self.requests[id.0 as usize];
        if !request.in_session && !request.in_backend_conn {
            assert!(request.held.is_empty(), "a closed ledger entry holds no reply");
            assert!(request.resend.is_empty(), "a closed ledger entry is not sent again");
            request.next_in_session = self.free;
            self.free = id.0;
            self.live -= 1;
        }
    }
}
