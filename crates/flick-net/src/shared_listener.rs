//! A listening address shared by several services: the first byte of a connection selects the service.
//! Promises: the byte is peeked at, not consumed; a connection that has sent nothing holds a descriptor and nothing
//! else, for a bounded time; at most [`PREREAD_CONNS_MAX`] such connections exist, and a further one evicts the oldest.
//! No allocation after `new`.
//! Refuses: knowing which byte selects which service; the caller does.
//! Source: nginx's `preread` phase of stream modules.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::address::PeerAddr;
use crate::driver::Handle;
use crate::limits::{
    ACCEPT_RETRY_NS, ACCEPTS_PER_POLL_MAX, KERNEL_EVENTS_MAX, LISTEN_BACKLOG_MAX, PREREAD_CONNS_MAX,
};
use crate::listen::ListenSocket;
use crate::socket;
use crate::table::Table;

/// A connection whose first byte has arrived.
#[derive(Debug)]
pub struct PrereadConn {
    /// The connection, with all its input still in it.
    pub socket: OwnedFd,
    /// The peer's address.
    pub peer: PeerAddr,
    /// The first byte.
    pub first_byte: u8,
}

/// A listening socket and the accepted connections that have sent nothing yet.
pub struct SharedListener {
    epoll: OwnedFd,
    /// None once it is closed.
    listener: Option<ListenSocket>,
    silent: Table<SilentConn>,
    silent_count: u32,
    silent_ns_max: u64,
    /// No descriptor is left: accepts again then.
    retry_ns: Option<u64>,
    reports: Vec<epoll::Event>,
    dropped: u64,
}

struct SilentConn {
    socket: OwnedFd,
    peer: PeerAddr,
    since_ns: u64,
}

const LISTENER_TOKEN: u64 = u64::MAX;

/// The result of peeking at a connection.
enum Peeked {
    First(u8),
    Nothing,
    Closed,
}

impl SharedListener {
    /// Starts accepting on `listener`; peers may be silent for `silent_ns_max`.
    ///
    /// Errors: those of epoll_create(2) and epoll_ctl(2).
    pub fn new(listener: ListenSocket, silent_ns_max: u64) -> io::Result<SharedListener> {
        // An inherited socket may be blocking.
        socket::set_blocking(&listener, false)?;
        let mut shared = SharedListener {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: Some(listener),
            silent: Table::new(PREREAD_CONNS_MAX),
            silent_count: 0,
            silent_ns_max,
            retry_ns: None,
            reports: Vec::with_capacity(KERNEL_EVENTS_MAX),
            dropped: 0,
        };
        shared.accept(true)?;
        Ok(shared)
    }

    /// Returns whether it still listens.
    pub fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Returns how many connections were closed because they sent nothing in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns when it must be polled at the latest, even without events.
    pub fn deadline_ns(&self) -> Option<u64> {
        let oldest = self.oldest().map(|(_, since_ns)| since_ns.saturating_add(self.silent_ns_max));
        oldest.into_iter().chain(self.retry_ns).min()
    }

    /// Accepts the peers in the listen backlog, passes those whose first byte has arrived to `arrived`, stops
    /// listening, and closes the connections that have sent nothing.
    pub fn finish(&mut self, now_ns: u64, mut arrived: impl FnMut(PrereadConn)) {
        for _ in 0..=LISTEN_BACKLOG_MAX as usize / ACCEPTS_PER_POLL_MAX {
            if !self.accept_some(now_ns, &mut arrived) {
                break;
            }
        }
        for index in 0..self.silent.used() {
            self.peek_silent(self.silent.handle(index), &mut arrived);
        }
        self.close();
    }

    /// Stops listening and closes the connections that have sent nothing.
    fn close(&mut self) {
        if self.listener.is_some() {
            let _ = self.accept(false);
            self.listener = None;
        }
        for index in 0..self.silent.used() {
            self.drop_silent(index);
        }
        self.retry_ns = None;
    }

    /// Accepts new connections and passes those whose first byte has arrived to `arrived`. Out of descriptors, it
    /// pauses accepting for [`ACCEPT_RETRY_NS`].
    ///
    /// Errors: those of epoll_wait(2) except `EINTR`.
    pub fn poll(&mut self, now_ns: u64, mut arrived: impl FnMut(PrereadConn)) -> io::Result<()> {
        if self.retry_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            let is_on = self.accept(true).is_ok();
            self.retry_ns = (!is_on).then(|| now_ns + ACCEPT_RETRY_NS);
        }
        self.expire(now_ns);
        let mut reports = std::mem::take(&mut self.reports);
        reports.clear();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut reports), Some(&no_wait));
        for report in &reports {
            match report.data.u64() {
                LISTENER_TOKEN => {
                    self.accept_some(now_ns, &mut arrived);
                }
                word => {
                    let handle = Handle { index: word as u32, generation: (word >> 32) as u32 };
                    self.peek_silent(handle, &mut arrived);
                }
            }
        }
        self.reports = reports;
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, on: bool) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        if on {
            // Exclusive, so that of several threads on one Unix socket only one wakes.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, listener, epoll::EventData::new_u64(LISTENER_TOKEN), flags)?;
        } else {
            epoll::delete(&self.epoll, listener)?;
        }
        Ok(())
    }

    /// Returns whether there may be more to accept.
    fn accept_some(&mut self, now_ns: u64, arrived: &mut impl FnMut(PrereadConn)) -> bool {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let Some(listener) = &self.listener else { return false };
            match socket::accept(listener) {
                Ok((socket, peer)) => match peek(&socket) {
                    Peeked::First(first_byte) => arrived(PrereadConn { socket, peer, first_byte }),
                    Peeked::Nothing => self.keep(SilentConn { socket, peer, since_ns: now_ns }),
                    Peeked::Closed => {}
                },
                Err(Errno::AGAIN) => return false,
                Err(errno) if socket::is_per_connection_error(errno) => {}
                Err(errno) => {
                    tracing::warn!(errno = errno.raw_os_error(), "accepting failed; paused");
                    // A listener that stays registered is retried at once, which is as good.
                    if self.accept(false).is_ok() {
                        self.retry_ns = Some(now_ns + ACCEPT_RETRY_NS);
                    }
                    return false;
                }
            }
        }
        true
    }

    fn keep(&mut self, silent: SilentConn) {
        if self.silent.is_full()
            && let Some((oldest, _)) = self.oldest()
        {
            self.dropped += 1;
            self.drop_silent(oldest);
        }
        let handle = self.silent.insert(silent).expect("a slot was freed just above");
        let word = u64::from(handle.generation) << 32 | u64::from(handle.index);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let kept = self.silent.get(handle).expect("inserted just above");
        let added = epoll::add(&self.epoll, &kept.socket, epoll::EventData::new_u64(word), flags);
        self.silent_count += 1;
        if added.is_err() {
            self.drop_silent(handle.index);
        }
    }

    fn peek_silent(&mut self, handle: Handle, arrived: &mut impl FnMut(PrereadConn)) {
        let Some(silent) = self.silent.get(handle) else { return };
        match peek(&silent.socket) {
            Peeked::Nothing => {}
            Peeked::Closed => self.drop_silent(handle.index),
            Peeked::First(first_byte) => {
                let _ = epoll::delete(&self.epoll, &silent.socket);
                self.silent_count -= 1;
                if let Some(SilentConn { socket, peer, .. }) = self.silent.remove(handle.index) {
                    arrived(PrereadConn { socket, peer, first_byte });
                }
            }
        }
    }

    /// Closes a silent connection, which also ends its registration.
    fn drop_silent(&mut self, index: u32) {
        if self.silent.remove(index).is_some() {
            self.silent_count -= 1;
        }
    }

    /// Finds the connection that has been silent for longest, and since when. Scans a short table, and only while there
    /// are silent connections.
    fn oldest(&self) -> Option<(u32, u64)> {
        if self.silent_count == 0 {
            return None;
        }
        let of = |index: u32| Some((index, self.silent.at(index)?.since_ns));
        (0..self.silent.used()).filter_map(of).min_by_key(|(_, since_ns)| *since_ns)
    }

    fn expire(&mut self, now_ns: u64) {
        while let Some((index, since_ns)) = self.oldest()
            && since_ns.saturating_add(self.silent_ns_max) <= now_ns
        {
            self.dropped += 1;
            self.drop_silent(index);
        }
    }
}

impl AsFd for SharedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn peek(socket: &OwnedFd) -> Peeked {
    let mut byte = [0];
    match socket::peek(socket, &mut byte) {
        Ok(0) => Peeked::Closed,
        Ok(_) => Peeked::First(byte[0]),
        Err(Errno::AGAIN | Errno::INTR) => Peeked::Nothing,
        Err(_) => Peeked::Closed,
    }
}
