//! Wakes a driver's poll from another thread.
//! Promises: what a thread writes before `wake` is visible after the driver's `Woken`; many wakes before one poll cost
//! one system call.
//! Refuses: carrying data; that is a queue's work.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use flick_ring::wakeup::WakeFlag;
use rustix::event::{EventfdFlags, eventfd};

/// A handle with which any thread ends the current or the next wait of one driver.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Saves the system call for a wake-up that is already requested.
    requested: WakeFlag,
    /// None in the simulator, where nothing sleeps.
    eventfd: Option<OwnedFd>,
}

impl Waker {
    /// Ends the driver's wait and makes its poll report `Woken`.
    pub fn wake(&self) {
        if self.0.requested.request()
            && let Some(eventfd) = &self.0.eventfd
        {
            // Can only fail with EAGAIN at 2^64 - 1 unread wake-ups, and then the driver is awake anyway.
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn with_eventfd() -> io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(Shared { eventfd: Some(eventfd), ..Shared::default() })))
    }

    pub(crate) fn simulated() -> Waker {
        Waker(Arc::default())
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether a wake-up is pending.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.requested.is_requested()
    }

    /// Takes the wake-up; returns whether there was one. The eventfd is read first: a wake between the two steps finds
    /// `requested` still set and relies on the `Woken` that this call leads to.
    pub(crate) fn take(&self) -> bool {
        if let Some(eventfd) = &self.0.eventfd {
            let mut count = [0u8; 8];
            // EAGAIN (nothing to read) is as good as success here.
            let _ = rustix::io::read(eventfd, &mut count);
        }
        self.0.requested.take()
    }
}
