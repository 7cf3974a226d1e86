//! What one thread waits for that carries several drivers: any of their descriptors.
//! Promises: one system call per wait; no allocation after `new`; whoever is not looked after is reported again.
//! Refuses: knowing what happened there; whoever is named looks for itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// An epoll over the descriptors of drivers and doors.
pub struct Watch {
    epoll: OwnedFd,
    reports: Vec<epoll::Event>,
}

impl Watch {
    /// For so many descriptors. Errors: the system's.
    pub fn new(most: usize) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watch { epoll, reports: Vec::with_capacity(most.max(1)) })
    }

    /// Watches a descriptor until it is closed. Errors: the system's.
    pub fn add(&mut self, what: impl AsFd, token: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        Ok(epoll::add(&self.epoll, what, data, epoll::EventFlags::IN)?)
    }

    /// As [`Watch::add`], but reports only what is new since the last report.
    pub fn add_edges(&mut self, what: impl AsFd, token: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        Ok(epoll::add(&self.epoll, what, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Stops or goes on to report a descriptor. Errors: the system's.
    pub fn hold(&mut self, what: impl AsFd, token: u32, held: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(token));
        let flags = if held { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.epoll, what, data, flags)?)
    }

    /// Waits at most `timeout` (`None`: until something happens) and names those who have something to look at.
    pub fn wait(&mut self, timeout: Option<Duration>, mut named: impl FnMut(u32)) -> io::Result<()> {
        let timeout = timeout.map(timespec);
        self.reports.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.reports), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.reports.iter().for_each(|report| named(report.data.u64() as u32));
        Ok(())
    }
}

/// A time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i32::MAX as u64) as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
