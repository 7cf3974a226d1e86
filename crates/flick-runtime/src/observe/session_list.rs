//! Session list: the clients of a service and its connections to backends, as its workers report them between two
//! iterations.
//! Promises: it costs nothing until it is asked for; an answer has at most [`SESSIONS_LISTED_MAX`] clients and is
//! written into memory that the caller has allocated. Refuses: waiting for a worker that does not answer; the list goes
//! without its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, PoisonError};
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

/// Query for the session list of a worker, and the slot for its answer.
#[derive(Debug, Default)]
pub(crate) struct SessionQuery {
    is_asked: AtomicBool,
    capacity: Mutex<Option<AnswerBuffer>>,
}

/// Buffer that an answer is written into, and the channel that returns it to the asker.
#[derive(Debug)]
struct AnswerBuffer {
    list: ConnLists,
    back: SyncSender<ConnLists>,
}

impl SessionQuery {
    /// Answers a pending query: `fill` writes at most as many connections as the lists have capacity for.
    pub(crate) fn answer(&self, fill: impl FnOnce(&mut ConnLists)) {
        if !self.is_asked.swap(false, Ordering::Acquire) {
            return;
        }
        let capacity = self.capacity.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(AnswerBuffer { mut list, back }) = capacity {
            fill(&mut list);
            // Who has not waited does not want it.
            let _ = back.try_send(list);
        }
    }
}

/// Asks these workers, each with what wakes it; what has come within `limit`.
pub(crate) fn ask<'a>(
    workers: impl Iterator<Item = (&'a SessionQuery, &'a Waker)>,
    limit: Duration,
) -> ConnLists {
    let deadline = Instant::now() + limit;
    let mut answers = Vec::new();
    for (question, waker) in workers {
        let (back, answer) = mpsc::sync_channel(1);
        let list = ConnLists {
            sessions: Vec::with_capacity(SESSIONS_LISTED_MAX),
            backend_conns: Vec::with_capacity(BACKEND_CONNS_LISTED_MAX),
        };
        let capacity = AnswerBuffer { list, back };
        *question.capacity.lock().unwrap_or_else(PoisonError::into_inner) = Some(capacity);
        question.is_asked.store(true, Ordering::Release);
        waker.wake();
        answers.push(answer);
    }
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
