//! An epoll instance over the descriptors of several drivers, for a thread that runs several services.
//! Promises: one system call per wait; no allocation after `new`; a level-triggered descriptor that is not handled is
//! reported again.
//! Refuses: knowing what happened; the owner of a reported token polls its driver.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// An epoll over the descriptors of drivers and shared listeners.
pub struct Poller {
    epoll: OwnedFd,
    reports: Vec<epoll::Event>,
}

impl Poller {
    /// Creates a poller for `capacity` descriptors.
    ///
    /// Errors: `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new(capacity: usize) -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll, reports: Vec::with_capacity(capacity.max(1)) })
    }

    /// Adds a descriptor, level-triggered, until it is closed.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn add(&mut self, what: impl AsFd, token: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        Ok(epoll::add(&self.epoll, what, data, epoll::EventFlags::IN)?)
    }

    /// Adds a descriptor, edge-triggered: it is reported once per change.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn add_edge_triggered(&mut self, what: impl AsFd, token: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        Ok(epoll::add(&self.epoll, what, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Pauses or resumes the reports of a level-triggered descriptor.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn set_paused(&mut self, what: impl AsFd, token: u32, paused: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        let flags = if paused { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.epoll, what, data, flags)?)
    }

    /// Removes a descriptor.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn remove(&mut self, what: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, what)?)
    }

    /// Waits at most `timeout` (`None`: until something happens) and calls `ready` with each reported token.
    ///
    /// Errors: those of epoll_wait(2) except `EINTR`.
    pub fn wait(&mut self, timeout: Option<Duration>, mut ready: impl FnMut(u32)) -> io::Result<()> {
        let timeout = timeout.map(timespec);
        self.reports.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.reports), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.reports.iter().for_each(|report| ready(report.data.u64() as u32));
        Ok(())
    }
}

/// Its descriptor is readable while it has a report.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Converts a duration to the kernel's form.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i32::MAX as u64) as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
