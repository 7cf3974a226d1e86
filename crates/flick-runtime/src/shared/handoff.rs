//! Queue of clients that one worker hands to another: from the old service to its successor, and from a busy worker to
//! an idle one (`worker_loads.rs`).
//! Promises: nothing here is on the path of a message; a queued client is taken or given back, never forgotten; one
//! that is queued for a worker that has ended goes to its successor.
//! Refuses: to know when a client can migrate; that is the worker's (`worker/migrate.rs`).

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use flick_net::{PeerAddr, Waker};
use flick_ring::mailbox::Mailbox;

use crate::limits::SCAVENGED_MAX;

/// A client between two workers.
pub struct HandedConn {
    /// Its connection.
    pub socket: OwnedFd,
    /// Address of the client.
    pub peer: PeerAddr,
    /// The count of sessions that includes it; `None`: it has none yet.
    pub counted: Option<SessionCount>,
}

/// A count of sessions. The old and the new service of the same name have one together.
#[derive(Clone, Debug, Default)]
pub struct SessionCount(Arc<AtomicU32>);

impl SessionCount {
    /// Counts a session in, unless there are `most` already.
    pub fn take(&self, most: u32) -> bool {
        let more = |count| (count < most).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts a session in that another count or process let in.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session out.
    pub fn give(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sessions now.
    pub fn sessions(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves a session here from the count that includes it.
    pub(crate) fn move_from(&self, other: &SessionCount) {
        if !Arc::ptr_eq(&self.0, &other.0) {
            self.add();
            other.give();
        }
    }
}

/// Service that takes over the clients of another.
pub trait Successor: Send + Sync + fmt::Debug {
    /// Takes a client; `worker` is the number of the thread that it comes from.
    ///
    /// Errors: the client, because this one has ended.
    fn take(&self, worker: usize, client: HandedConn) -> Result<(), HandedConn>;
}

/// Queue of the clients that are handed to one worker.
pub struct HandoffQueue {
    clients: Mailbox<HandedConn>,
    /// Clients that busier workers have left since the last look.
    scavenged: AtomicU32,
    waker: OnceLock<Waker>,
}

impl Default for HandoffQueue {
    fn default() -> Self {
        Self { clients: Mailbox::new(SCAVENGED_MAX), scavenged: AtomicU32::new(0), waker: OnceLock::new() }
    }
}

impl HandoffQueue {
    /// Sets the waker of its worker.
    pub(crate) fn set_waker(&self, waker: Waker) {
        // A worker is built once.
        let _ = self.waker.set(waker);
    }

    /// Queues a client. Errors: the client, because the queue is closed.
    pub(crate) fn leave(&self, client: HandedConn) -> Result<(), HandedConn> {
        self.clients.push(client)?;
        self.wake();
        Ok(())
    }

    /// Queues a client of a busier worker of the same service. Errors: the client, because the queue is closed or full.
    pub(crate) fn leave_to_idle(&self, client: HandedConn) -> Result<(), HandedConn> {
        self.clients.push_within(SCAVENGED_MAX, client)?;
        self.scavenged.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The next client.
    pub(crate) fn take(&self) -> Option<HandedConn> {
        self.clients.pop()
    }

    /// Clients that busier workers have left since this was last asked.
    pub(crate) fn take_scavenged(&self) -> u32 {
        self.scavenged.swap(0, Ordering::Relaxed)
    }

    /// Closes the queue, unless a client is queued. Returns whether it is closed.
    pub(crate) fn close(&self) -> bool {
        self.clients.close()
    }
}

impl fmt::Debug for HandoffQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandoffQueue")
    }
}

/// The workers of a service of this process.
#[derive(Debug)]
pub(crate) struct SuccessorWorkers(pub(crate) Vec<Arc<HandoffQueue>>);

impl Successor for SuccessorWorkers {
    fn take(&self, worker: usize, client: HandedConn) -> Result<(), HandedConn> {
        match self.0.len() {
            0 => Err(client),
            count => self.0[worker % count].leave(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HandedConn, HandoffQueue, SessionCount, Successor, SuccessorWorkers};
    use flick_net::PeerAddr;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn client() -> HandedConn {
        let (socket, _) = UnixStream::pair().expect("a pair of sockets");
        HandedConn { socket: socket.into(), peer: PeerAddr::Unix, counted: Some(SessionCount::default()) }
    }

    #[test]
    fn a_closed_queue_takes_no_client_and_one_with_clients_does_not_close() {
        let intakes: Vec<Arc<HandoffQueue>> = (0..2).map(|_| Arc::default()).collect();
        let workers = SuccessorWorkers(intakes.clone());
        assert!(workers.take(3, client()).is_ok(), "the second of two workers");
        assert!(intakes[0].close() && !intakes[1].close());
        assert!(workers.take(0, client()).is_err());
        assert!(intakes[1].take().is_some() && intakes[1].take().is_none());
        assert!(intakes[1].close() && workers.take(1, client()).is_err());
    }
}
