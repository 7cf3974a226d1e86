//! A connection whose input goes on in the rings of another process, and comes back to its own ring.
//! Promises: what the connection had received before is delivered first, then what the other process has published,
//! then what the own ring receives; the end of the other process, however it ends, is not the end of the connection.
//! Refuses: two other processes at a time, and output to them.
//! Start reading at [`Continuation`], which a thread and a driver share; `shm/continued.rs` is the driver's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Handle on the connection that this process makes to a listener of its own: the thread that sends through it asks the
/// driver to read from another process for a while.
#[derive(Clone, Debug)]
pub struct Continuation(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stage: Mutex<Stage>,
    /// Readable when the thread has asked for something.
    requests: OwnedFd,
    /// Readable when the driver has ended what was asked for.
    ends: OwnedFd,
}

#[derive(Debug, Default)]
enum Stage {
    /// The connection is read from its own ring.
    #[default]
    Own,
    /// A process has connected to this socket, and the driver has not seen it.
    Offered(OwnedFd),
    /// The driver reads from the other process.
    Reading,
    /// The thread wants the driver to read no more.
    Stopping,
    Ended(ContinuationEnd),
}

/// The reason for which a driver reads the other process no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinuationEnd {
    /// The other process has ended its stream or is gone, and all that it had published is read; or the thread has
    /// stopped it.
    OfRings,
    /// The service has closed the connection.
    OfConnection,
}

/// A request of the thread to the driver.
#[derive(Debug)]
pub(crate) enum ContinuationRequest {
    Read(OwnedFd),
    Stop,
}

impl Continuation {
    /// Creates the handle; [`ListenSocket::with_continuation`](crate::ListenSocket::with_continuation) gives it to a
    /// driver.
    ///
    /// Errors: those of eventfd(2).
    pub fn new() -> io::Result<Continuation> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (requests, ends) = (event()?, event()?);
        Ok(Continuation(Arc::new(Shared { stage: Mutex::default(), requests, ends })))
    }

    /// Makes the driver read from the process that has connected to `socket`, behind all that was sent through the
    /// connection before. The thread sends nothing until [`Continuation::take_end`] returns.
    pub fn begin(&self, socket: OwnedFd) {
        *self.stage() = Stage::Offered(socket);
        signal(&self.0.requests);
    }

    /// Makes the driver read no more from the other process. The end follows.
    pub fn stop(&self) {
        {
            let mut stage = self.stage();
            if let Stage::Own | Stage::Ended(_) = *stage {
                return;
            }
            *stage = Stage::Stopping;
        }
        signal(&self.0.requests);
    }

    /// Returns the descriptor that is readable when [`Continuation::take_end`] has something to take.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.0.ends.as_fd()
    }

    /// Takes the end of what [`Continuation::begin`] began.
    pub fn take_end(&self) -> Option<ContinuationEnd> {
        clear(&self.0.ends);
        let mut stage = self.stage();
        let Stage::Ended(end) = *stage else { return None };
        *stage = Stage::Own;
        Some(end)
    }

    pub(crate) fn requests(&self) -> BorrowedFd<'_> {
        self.0.requests.as_fd()
    }

    pub(crate) fn take_request(&self) -> Option<ContinuationRequest> {
        clear(&self.0.requests);
        let mut stage = self.stage();
        match std::mem::take(&mut *stage) {
            Stage::Offered(socket) => {
                *stage = Stage::Reading;
                Some(ContinuationRequest::Read(socket))
            }
            Stage::Stopping => {
                *stage = Stage::Stopping;
                Some(ContinuationRequest::Stop)
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    pub(crate) fn end(&self, end: ContinuationEnd) {
        *self.stage() = Stage::Ended(end);
        signal(&self.0.ends);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        // A stage is whole also when a thread has panicked.
        self.0.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(event: &OwnedFd) {
    // Fails only with 2^64 - 1 events unread, and then it is readable.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn clear(event: &OwnedFd) {
    // Nothing to read is as good.
    let _ = rustix::io::read(event, &mut [0_u8; 8]);
}
