//! Clients that change hands when a service is replaced: from the workers of the old one to those of the new one.
//! Promises: nothing here is on the path of a message; a client that is left behind is taken or given back, never
//! forgotten; what is left for somebody who has ended already goes to who has taken their place.
//! Refuses: to know when a client can go; that is the worker's (`worker/leaving.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flick_net::{PeerAddr, Waker};

/// A client between two workers.
pub struct Handed {
    /// Its connection.
    pub socket: OwnedFd,
    /// Who it is.
    pub peer: PeerAddr,
    /// It has a session, which counts: the number of sessions is that of the old and the new service together.
    pub is_counted: bool,
}

/// Who goes on with clients.
pub trait Heir: Send + Sync + fmt::Debug {
    /// Takes a client; `worker` is the number of the thread that it comes from.
    ///
    /// Errors: the client, because this one has ended.
    fn take(&self, worker: usize, client: Handed) -> Result<(), Handed>;
}

/// What is left for one worker.
#[derive(Default)]
pub struct Intake {
    waiting: Mutex<Waiting>,
    waker: OnceLock<Waker>,
}

#[derive(Default)]
struct Waiting {
    clients: VecDeque<Handed>,
    is_closed: bool,
}

impl Intake {
    /// Says how its worker is woken.
    pub(crate) fn set_waker(&self, waker: Waker) {
        // A worker is built once.
        let _ = self.waker.set(waker);
    }

    /// Leaves a client here. Errors: the client, because nobody looks any more.
    pub(crate) fn leave(&self, client: Handed) -> Result<(), Handed> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_closed {
            return Err(client);
        }
        waiting.clients.push_back(client);
        drop(waiting);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        Ok(())
    }

    /// The next client.
    pub(crate) fn take(&self) -> Option<Handed> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clients.pop_front()
    }

    /// Takes nobody any more, unless somebody waits. Whether it is closed.
    pub(crate) fn close(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_closed |= waiting.clients.is_empty();
        waiting.is_closed
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intake")
    }
}

/// The workers of a service of this process.
#[derive(Debug)]
pub(crate) struct Workers(pub(crate) Vec<Arc<Intake>>);

impl Heir for Workers {
    fn take(&self, worker: usize, client: Handed) -> Result<(), Handed> {
        match self.0.len() {
            0 => Err(client),
            count => self.0[worker % count].leave(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Handed, Heir, Intake, Workers};
    use flick_net::PeerAddr;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn client() -> Handed {
        let (socket, _) = UnixStream::pair().expect("a pair of sockets");
        Handed { socket: socket.into(), peer: PeerAddr::Unix, is_counted: true }
    }

    #[test]
    fn who_has_ended_takes_nobody_and_who_still_has_clients_does_not_end() {
        let intakes: Vec<Arc<Intake>> = (0..2).map(|_| Arc::default()).collect();
        let workers = Workers(intakes.clone());
        assert!(workers.take(3, client()).is_ok(), "the second of two workers");
        assert!(intakes[0].close() && !intakes[1].close());
        assert!(workers.take(0, client()).is_err());
        assert!(intakes[1].take().is_some() && intakes[1].take().is_none());
        assert!(intakes[1].close() && workers.take(1, client()).is_err());
    }
}
