//! Compares the in-flight table with lists of the standard library: requests are opened, queued and removed in any
//! order, and after each step both agree on every queue, on the free capacity and on the pieces that are held.

use std::collections::VecDeque;

use flick_buffers::{Buf, BufClass, Pool, PoolConfig};

use super::{Inflight, QueueOf, RequestId, RequestQueue};
use crate::backend_set::load_balancer::mix;
use crate::limits::BUSY_ENTRIES;
use crate::pieces::Pieces;
use crate::slab::Key;

/// Few, so that steps meet on them.
const QUEUES: usize = 3;
const CAPACITY: usize = 5;
const STEPS: u64 = 2_000;
const WHO: Key = Key { index: 0, generation: 0 };

/// One run: the table, and what is expected of it.
struct Run {
    seed: u64,
    inflight: Inflight,
    pieces: Pieces,
    /// Buffer that the pieces are slices of.
    buf: Buf,
    sessions: [RequestQueue; QUEUES],
    backend_conns: [RequestQueue; QUEUES],
    /// Numbers of requests, oldest first.
    in_sessions: [VecDeque<u64>; QUEUES],
    in_backend_conns: [VecDeque<u64>; QUEUES],
    opened: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let pool = Pool::new(PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
        let buf = pool.alloc(BufClass::Small).expect("the pool has one");
        assert_eq!(buf.append(b"piece"), 5);
        Self {
            seed,
            inflight: Inflight::new(CAPACITY),
            pieces: Pieces::new(4 * (CAPACITY + BUSY_ENTRIES)),
            buf,
            sessions: [RequestQueue::new(); QUEUES],
            backend_conns: [RequestQueue::new(); QUEUES],
            in_sessions: Default::default(),
            in_backend_conns: Default::default(),
            opened: 0,
        }
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.seed += 1;
        (mix(self.seed) % limit as u64) as usize
    }

    /// Requests that are in some queue.
    fn live(&self) -> usize {
        let all = self.in_sessions.iter().chain(&self.in_backend_conns).flatten();
        all.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Opens a request and queues it: at a session, at a connection, or at both.
    fn open(&mut self) {
        let fits = self.live() < CAPACITY + BUSY_ENTRIES;
        assert_eq!(self.inflight.can_answer(), fits);
        let opened = self.inflight.open(Some(WHO), Default::default(), 7);
        assert_eq!(opened.is_some(), fits, "with {} in use", self.live());
        let Some(id) = opened else { return };
        self.opened += 1;
        let request = self.inflight.get_mut(id);
        assert!(!request.done && request.held.is_empty() && request.resend.is_empty());
        request.number = self.opened;
        let (session, backend_conn, queued) = (self.below(QUEUES), self.below(QUEUES), self.below(3));
        if queued != 0 {
            self.inflight.push(&mut self.sessions[session], id, QueueOf::Session);
            self.in_sessions[session].push_back(self.opened);
        }
        if queued != 1 {
            self.inflight.push(&mut self.backend_conns[backend_conn], id, QueueOf::BackendConn);
            self.in_backend_conns[backend_conn].push_back(self.opened);
        }
        self.keep(id, queued == 2);
    }

    /// Has a request hold a piece to send again and, where a session will take it off, a reply.
    fn keep(&mut self, id: RequestId, is_in_both: bool) {
        let request = self.inflight.get_mut(id);
        assert!(self.pieces.push(&mut request.resend, self.buf.slice(0..3)));
        if is_in_both {
            assert!(self.pieces.push(&mut request.held, self.buf.slice(3..5)));
        }
    }

    fn pop_session(&mut self, at: usize) {
        let popped = self.inflight.pop_session(&mut self.sessions[at], &mut self.pieces);
        assert_eq!(popped.map(|id| self.inflight.get(id).number), self.in_sessions[at].pop_front());
        if let Some(id) = popped {
            assert_eq!(self.inflight.get(id).session, None, "its session is gone");
        }
    }

    fn pop_backend_conn(&mut self, at: usize) {
        let popped = self.inflight.pop_backend_conn(&mut self.backend_conns[at], &mut self.pieces);
        let number = popped.map(|id| self.inflight.get(id).number);
        assert_eq!(number, self.in_backend_conns[at].pop_front());
        let waits = self.in_sessions.iter().flatten().any(|waiting| Some(*waiting) == number);
        if let Some(id) = popped.filter(|_| waits) {
            assert_eq!(self.inflight.get(id).session, Some(WHO), "its client waits still");
        }
    }

    /// Moves the oldest request of a connection to another connection, as a retry does, if its session still has it.
    fn requeue(&mut self, from: usize, to: usize) {
        let Some(id) = self.backend_conns[from].front() else { return };
        let number = self.inflight.get(id).number;
        if !self.in_sessions.iter().flatten().any(|waiting| *waiting == number) {
            return;
        }
        self.pop_backend_conn(from);
        self.inflight.push(&mut self.backend_conns[to], id, QueueOf::BackendConn);
        self.in_backend_conns[to].push_back(number);
    }

    /// Compares all that can be asked of the table.
    fn compare(&self) {
        let live = self.live();
        assert_eq!(self.inflight.len(), live);
        assert_eq!(self.inflight.capacity(), CAPACITY.saturating_sub(live));
        let queues = self
            .sessions
            .iter()
            .zip(&self.in_sessions)
            .chain(self.backend_conns.iter().zip(&self.in_backend_conns));
        for (fifo, expected) in queues {
            let number = |id: Option<RequestId>| id.map(|id| self.inflight.get(id).number);
            assert_eq!((fifo.len() as usize, fifo.is_empty()), (expected.len(), expected.is_empty()));
            assert_eq!(number(fifo.front()), expected.front().copied());
            assert_eq!(number(fifo.back()), expected.back().copied());
        }
    }
}

/// `opens` of a hundred steps open a request: the table stays nearly empty, or fills up.
fn check(seed: u64, opens: usize) {
    let mut run = Run::new(seed);
    for _ in 0..STEPS {
        let at = run.below(QUEUES);
        match run.below(100) {
            step if step < opens => run.open(),
            step if step % 3 == 0 => {
                let to = run.below(QUEUES);
                run.requeue(at, to);
            }
            step if step % 2 == 0 => run.pop_session(at),
            _ => run.pop_backend_conn(at),
        }
        run.compare();
    }
    for at in 0..QUEUES {
        while !run.in_sessions[at].is_empty() {
            run.pop_session(at);
        }
        while !run.in_backend_conns[at].is_empty() {
            run.pop_backend_conn(at);
        }
    }
    run.compare();
    assert_eq!((run.inflight.len(), run.pieces.len()), (0, 0), "nothing is left behind");
}

#[test]
fn the_table_agrees_with_lists() {
    for (seed, opens) in [(1, 40), (2, 50), (3, 60), (4, 90)] {
        println!("seed {seed}");
        check(seed << 32, opens);
    }
}

#[test]
fn a_request_moved_to_another_connection_leaves_its_old_neighbour_behind() {
    let mut run = Run::new(7);
    let pool = &mut run.pieces;
    let (mut session, mut old, mut new) = (RequestQueue::new(), RequestQueue::new(), RequestQueue::new());
    let mut open = |table: &mut Inflight| {
        let id = table.open(Some(WHO), Default::default(), 0).expect("it has room");
        table.push(&mut session, id, QueueOf::Session);
        table.push(&mut old, id, QueueOf::BackendConn);
        id
    };
    let (moved, stays) = (open(&mut run.inflight), open(&mut run.inflight));
    assert_eq!(run.inflight.pop_backend_conn(&mut old, pool), Some(moved));
    run.inflight.push(&mut new, moved, QueueOf::BackendConn);
    assert_eq!(run.inflight.pop_backend_conn(&mut new, pool), Some(moved));
    assert_eq!((new.len(), new.front(), new.back()), (0, None, None), "it was alone there");
    assert_eq!((old.len(), old.front()), (1, Some(stays)));
}
