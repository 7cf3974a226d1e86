//! Session list: the clients of a service and its connections to backends, as its workers report them between two
//! iterations.
//! Promises: it costs nothing until it is asked for; an answer has at most [`SESSIONS_LISTED_MAX`] clients and is
//! written into memory that the caller has allocated; several callers have an answer each. Refuses: waiting for a
//! worker that does not answer, or that has ended; the list goes without its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flick_net::{Handle, PeerAddr, TransportKind, Waker};

use crate::limits::{BACKEND_CONNS_LISTED_MAX, SESSIONS_LISTED_MAX};

/// A connection to a backend as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConnInfo {
    /// Its worker.
    pub worker: usize,
    /// The connection.
    pub conn: Handle,
    /// Slot of the backend, which it keeps until it has drained.
    pub slot: usize,
    /// The transport of its bytes.
    pub transport: TransportKind,
    /// Its requests in flight.
    pub inflight: u32,
    /// Bytes that the backend has sent.
    pub bytes_in: u64,
    /// Bytes that were sent to the backend.
    pub bytes_out: u64,
}

/// The connections that workers list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnLists {
    /// Clients.
    pub sessions: Vec<SessionInfo>,
    /// Connections to backends.
    pub backend_conns: Vec<BackendConnInfo>,
}

/// A client as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its worker.
    pub worker: usize,
    /// The connection.
    pub conn: Handle,
    /// The transport of its bytes.
    pub transport: TransportKind,
    /// Address of the client.
    pub client: PeerAddr,
    /// Time since it was accepted.
    pub age_ms: u64,
    /// Time since bytes moved on its connection.
    pub idle_ms: u64,
    /// State of the session, in a few words.
    pub state: &'static str,
    /// Its requests in flight.
    pub inflight: u32,
    /// Bytes that the client has sent.
    pub bytes_in: u64,
    /// Bytes that were sent to the client.
    pub bytes_out: u64,
}

/// Place where the session list of a worker is asked for.
#[derive(Debug, Default)]
pub(crate) struct SessionQuery {
    is_asked: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// Those who wait for an answer of a worker.
#[derive(Debug)]
enum Waiting {
    Askers(Vec<AnswerBuffer>),
    /// The worker has ended.
    Closed,
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Askers(Vec::new())
    }
}

/// Buffer that an answer is written into, and the channel that returns it to the asker.
#[derive(Debug)]
struct AnswerBuffer {
    list: ConnLists,
    back: SyncSender<ConnLists>,
    /// The asker waits until then.
    until: Instant,
}

impl SessionQuery {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the worker, which must be woken. Returns what receives the answer; without a sender, the worker has ended.
    pub(crate) fn ask(&self, until: Instant) -> Receiver<ConnLists> {
        let (back, answer) = mpsc::sync_channel(1);
        let list = ConnLists {
            sessions: Vec::with_capacity(SESSIONS_LISTED_MAX),
            backend_conns: Vec::with_capacity(BACKEND_CONNS_LISTED_MAX),
        };
        let (asker, now) = (AnswerBuffer { list, back, until }, Instant::now());
        // Allocated before and freed behind the lock, for which the worker may wait.
        let mut late = Vec::new();
        if let Waiting::Askers(askers) = &mut *self.waiting() {
            // A stalled worker collects no buffers.
            late.extend(askers.extract_if(.., |asker| asker.until <= now));
            askers.push(asker);
            self.is_asked.store(true, Ordering::Release);
        }
        answer
    }

    /// Answers all pending queries: `fill` writes at most as many connections as the lists have capacity for.
    pub(crate) fn answer(&self, fill: impl Fn(&mut ConnLists)) {
        if !self.is_asked.swap(false, Ordering::Acquire) {
            return;
        }
        while let Some(AnswerBuffer { mut list, back, .. }) = self.next() {
            fill(&mut list);
            // Who has not waited does not want it.
            let _ = back.try_send(list);
        }
    }

    fn next(&self) -> Option<AnswerBuffer> {
        match &mut *self.waiting() {
            Waiting::Askers(askers) => askers.pop(),
            Waiting::Closed => None,
        }
    }

    /// The worker ends: no caller waits for it.
    pub(crate) fn close(&self) {
        *self.waiting() = Waiting::Closed;
    }
}

/// Asks these workers, each with what wakes it; what has come within `limit`.
pub(crate) fn ask<'a>(
    workers: impl Iterator<Item = (&'a SessionQuery, &'a Waker)>,
    limit: Duration,
) -> ConnLists {
    let deadline = Instant::now() + limit;
    let ask = |(question, waker): (&SessionQuery, &Waker)| {
        let answer = question.ask(deadline);
        waker.wake();
        answer
    };
    let answers: Vec<_> = workers.map(ask).collect();
    let mut all = ConnLists::default();
    for answer in answers {
        let list = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        // One that has not come in time is left out.
        let list = list.unwrap_or_default();
        all.sessions.extend(list.sessions);
        all.backend_conns.extend(list.backend_conns);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;
    use std::time::{Duration, Instant};

    use super::SessionQuery;

    #[test]
    fn second_asker_took_the_answer_of_the_first() {
        let (question, until) = (SessionQuery::default(), Instant::now() + Duration::from_secs(60));
        let answers = [question.ask(until), question.ask(until)];
        question.answer(|list| assert!(list.sessions.capacity() > 0 && list.sessions.is_empty()));
        assert!(answers.iter().all(|answer| answer.try_recv().is_ok()), "each has an answer");
        let late = question.ask(Instant::now());
        let _ = question.ask(until);
        assert_eq!(late.try_recv(), Err(TryRecvError::Disconnected), "one who waits no more is forgotten");
    }
}
