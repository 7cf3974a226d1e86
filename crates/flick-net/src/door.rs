//! One address of several services: the first byte of a connection tells whose it is.
//! Promises: the byte is looked at, not taken; a peer that says nothing holds a descriptor and nothing else, for a
//! bounded time, and at most [`DOOR_SILENT_MAX`] of them do: beyond, whoever is silent for longest goes. No allocation
//! after `new`.
//! Refuses: to know whose which byte is; the caller does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::address::PeerAddr;
use crate::driver::Handle;
use crate::limits::{ACCEPTS_PER_POLL_MAX, DOOR_AGAIN_NS, DOOR_SILENT_MAX, KERNEL_EVENTS_MAX};
use crate::listen::ListenSocket;
use crate::socket;
use crate::table::Table;

/// A connection that has said its first byte.
#[derive(Debug)]
pub struct Arrival {
    /// The connection, with everything it has sent still in it.
    pub socket: OwnedFd,
    /// Who it is.
    pub peer: PeerAddr,
    /// The first byte.
    pub first: u8,
}

/// A listening socket and the peers behind it that have said nothing yet.
pub struct Door {
    epoll: OwnedFd,
    /// None once it is closed.
    listener: Option<ListenSocket>,
    silent: Table<Silent>,
    silent_count: u32,
    silent_ns_max: u64,
    /// Out of descriptors: accepts again then.
    again_ns: Option<u64>,
    reports: Vec<epoll::Event>,
    dropped: u64,
}

struct Silent {
    socket: OwnedFd,
    peer: PeerAddr,
    since_ns: u64,
}

const LISTENER_TOKEN: u64 = u64::MAX;

/// What a look at a connection came to.
enum Looked {
    First(u8),
    Nothing,
    Gone,
}

impl Door {
    /// Accepts on `listener` from now on; peers may be silent for `silent_ns_max`.
    ///
    /// Errors: the system's.
    pub fn new(listener: ListenSocket, silent_ns_max: u64) -> io::Result<Door> {
        // One that somebody else opened may wait.
        socket::set_blocking(&listener, false)?;
        let mut door = Door {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: Some(listener),
            silent: Table::new(DOOR_SILENT_MAX),
            silent_count: 0,
            silent_ns_max,
            again_ns: None,
            reports: Vec::with_capacity(KERNEL_EVENTS_MAX),
            dropped: 0,
        };
        door.accept(true)?;
        Ok(door)
    }

    /// Whether it accepts.
    pub fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Peers that were let go because they said nothing in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// When it must be looked after at latest though nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let oldest = self.oldest().map(|(_, since_ns)| since_ns.saturating_add(self.silent_ns_max));
        oldest.into_iter().chain(self.again_ns).min()
    }

    /// Accepts no more, and lets go who has said nothing.
    pub fn close(&mut self) {
        if self.listener.is_some() {
            let _ = self.accept(false);
            self.listener = None;
        }
        for index in 0..self.silent.used() {
            self.forget(index);
        }
        self.again_ns = None;
    }

    /// Takes in who came, and hands out who has begun to speak. Out of descriptors, it pauses and tries again.
    ///
    /// Errors: its epoll does not work, which is nobody's fault but ours.
    pub fn turn(&mut self, now_ns: u64, mut arrived: impl FnMut(Arrival)) -> io::Result<()> {
        if self.again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            let is_on = self.accept(true).is_ok();
            self.again_ns = (!is_on).then(|| now_ns + DOOR_AGAIN_NS);
        }
        self.expire(now_ns);
        let mut reports = std::mem::take(&mut self.reports);
        reports.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut reports), Some(&at_once));
        for report in &reports {
            match report.data.u64() {
                LISTENER_TOKEN => self.accept_some(now_ns, &mut arrived),
                word => {
                    let handle = Handle { index: word as u32, generation: (word >> 32) as u32 };
                    self.look(handle, &mut arrived);
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

    fn accept_some(&mut self, now_ns: u64, arrived: &mut impl FnMut(Arrival)) {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let Some(listener) = &self.listener else { return };
            match socket::accept(listener) {
                Ok((socket, peer)) => match look_at(&socket) {
                    Looked::First(first) => arrived(Arrival { socket, peer, first }),
                    Looked::Nothing => self.keep(Silent { socket, peer, since_ns: now_ns }),
                    Looked::Gone => {}
                },
                Err(Errno::AGAIN) => return,
                Err(errno) if socket::is_of_one_peer(errno) => {}
                Err(errno) => {
                    tracing::warn!(errno = errno.raw_os_error(), "accepting failed; paused");
                    // One that stays registered is tried again at once, which is as well.
                    if self.accept(false).is_ok() {
                        self.again_ns = Some(now_ns + DOOR_AGAIN_NS);
                    }
                    return;
                }
            }
        }
    }

    fn keep(&mut self, silent: Silent) {
        if self.silent.is_full()
            && let Some((oldest, _)) = self.oldest()
        {
            self.dropped += 1;
            self.forget(oldest);
        }
        let handle = self.silent.insert(silent).expect("a slot was freed just above");
        let word = u64::from(handle.generation) << 32 | u64::from(handle.index);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let kept = self.silent.get(handle).expect("inserted just above");
        let added = epoll::add(&self.epoll, &kept.socket, epoll::EventData::new_u64(word), flags);
        self.silent_count += 1;
        if added.is_err() {
            self.forget(handle.index);
        }
    }

    fn look(&mut self, handle: Handle, arrived: &mut impl FnMut(Arrival)) {
        let Some(silent) = self.silent.get(handle) else { return };
        match look_at(&silent.socket) {
            Looked::Nothing => {}
            Looked::Gone => self.forget(handle.index),
            Looked::First(first) => {
                let _ = epoll::delete(&self.epoll, &silent.socket);
                self.silent_count -= 1;
                if let Some(Silent { socket, peer, .. }) = self.silent.remove(handle.index) {
                    arrived(Arrival { socket, peer, first });
                }
            }
        }
    }

    /// Lets a silent peer go; closing the socket ends its registration.
    fn forget(&mut self, index: u32) {
        if self.silent.remove(index).is_some() {
            self.silent_count -= 1;
        }
    }

    /// Who has been silent for longest, and since when. A look at a short table, which only silent peers cause.
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
            self.forget(index);
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn look_at(socket: &OwnedFd) -> Looked {
    let mut byte = [0];
    match socket::peek(socket, &mut byte) {
        Ok(0) => Looked::Gone,
        Ok(_) => Looked::First(byte[0]),
        Err(Errno::AGAIN | Errno::INTR) => Looked::Nothing,
        Err(_) => Looked::Gone,
    }
}
