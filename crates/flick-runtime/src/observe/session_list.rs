//! Session list: the clients of a service, as its workers report them between two iterations.
//! Promises: it costs nothing until it is asked for; an answer is at most [`SESSIONS_LISTED_MAX`] long and written into
//! memory that the caller has allocated. Refuses: waiting for a worker that does not answer; the list goes without its
//! clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flick_net::{PeerAddr, Waker};

use crate::limits::SESSIONS_LISTED_MAX;

/// A client as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its worker.
    pub worker: usize,
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
    list: Vec<SessionInfo>,
    back: SyncSender<Vec<SessionInfo>>,
}

impl SessionQuery {
    /// Answers a pending query: `fill` writes at most as many sessions as the list has capacity for.
    pub(crate) fn answer(&self, fill: impl FnOnce(&mut Vec<SessionInfo>)) {
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
) -> Vec<SessionInfo> {
    let deadline = Instant::now() + limit;
    let mut answers = Vec::new();
    for (question, waker) in workers {
        let (back, answer) = mpsc::sync_channel(1);
        let capacity = AnswerBuffer { list: Vec::with_capacity(SESSIONS_LISTED_MAX), back };
        *question.capacity.lock().unwrap_or_else(PoisonError::into_inner) = Some(capacity);
        question.is_asked.store(true, Ordering::Release);
        waker.wake();
        answers.push(answer);
    }
    let answer = |answer: mpsc::Receiver<Vec<SessionInfo>>| {
        answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    };
    answers.into_iter().filter_map(answer).flatten().collect()
}
