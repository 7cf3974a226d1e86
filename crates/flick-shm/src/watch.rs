//! A thread that sees the end of other processes for streams that sleep without a time limit: their futexes show none.
//! Promises: a stream that sleeps while its watch runs is woken when the other process ends or the watch stops, however
//! it does; a stream whose watch does not run sleeps with limits; signals of a peer do not wake the watch, and nothing
//! that a peer does makes it run more often than once in `WATCH_NAP_NS`, deaths apart; memory of a stream stays mapped
//! while the watch uses it; the child of a fork has no watch, and leaves that of its parent alone.
//! Refuses: starting the thread. The caller gives one to [`PeerWatch::run`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, write};

use crate::conn::RingConn;
use crate::control::Direction;
use crate::limits::{PEERS_WATCHED_MAX, WATCH_NAP_NS, WATCH_REPORTS_MAX};
use crate::raw::{WordList, Words};
use crate::sleep;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Lock, Mapping};

/// Number of the report that the watch was stopped; those of streams have a slot below [`PEERS_WATCHED_MAX`].
const STOP: u64 = u64::MAX;

/// Failure to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The watch has [`PEERS_WATCHED_MAX`] streams.
    Full,
    /// The watch was stopped or dropped.
    Stopped,
    /// This process is the child of the one that created the watch.
    Forked,
    /// A system call failed.
    System(Errno),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "a watch has at most {PEERS_WATCHED_MAX} streams"),
            Self::Stopped => f.write_str("the watch was stopped"),
            Self::Forked => f.write_str("the watch belongs to the parent of this process"),
            Self::System(errno) => write!(f, "system call failed: {errno}"),
        }
    }
}

impl core::error::Error for WatchError {}

impl From<Errno> for WatchError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// State of a watched stream as it sees it itself; its number is the value of the slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum PeerState {
    /// The slot is free, or of the parent of this process.
    Foreign = 0,
    /// The watch does not know yet where a thread of the stream sleeps.
    New = 1,
    /// The watch does not run.
    Idle = 2,
    /// The stream is woken when the other process ends.
    Watched = 3,
    /// The socket has shown the end of the other process.
    Ended = 4,
}

impl PeerState {
    fn of(word: &AtomicU64) -> Self {
        match word.load(Ordering::Acquire) {
            1 => Self::New,
            2 => Self::Idle,
            3 => Self::Watched,
            4 => Self::Ended,
            _ => Self::Foreign,
        }
    }
}

/// A watch of other processes, for the thread that runs it. When it is dropped, streams go on with limited sleeps.
#[derive(Debug)]
pub struct PeerWatch {
    shared: Arc<SharedWatch>,
}

/// Registers streams with a watch, and stops it.
#[derive(Clone, Debug)]
pub struct PeerWatchHandle {
    shared: Arc<SharedWatch>,
}

#[derive(Debug)]
struct SharedWatch {
    epoll: OwnedFd,
    stop: OwnedFd,
    /// The first is 1 in the process that created the watch. Then the state of each slot. In a child all are 0.
    words: WordList<AtomicU64>,
    registry: Lock<Registry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    Idle,
    Running,
    Stopped,
}

/// The streams of a watch. States change only while a thread has it.
struct Registry {
    mode: WatchMode,
    free: Vec<u32>,
    slots: Box<[WatchSlot]>,
}

struct WatchSlot {
    /// Number of streams that had the slot: a report that was taken for one of them says nothing of the present one.
    generation: u32,
    stream: Option<WatchedStream>,
}

struct WatchedStream {
    socket: Arc<OwnedFd>,
    /// `None` until a thread may sleep on their sleep words. They keep the mapping.
    directions: Option<[Words<Direction>; 2]>,
}

impl WatchedStream {
    /// Changes the state and wakes the stream if it sleeps.
    fn interrupt(&self, word: &AtomicU64, state: PeerState) {
        let Some([incoming, outgoing]) = &self.directions else {
            word.store(state as u64, Ordering::Release);
            return;
        };
        let sleep_words = [&incoming.shared.data_sleep, &outgoing.shared.space_sleep];
        // The futexes are woken whatever the words said: the other process may have written them.
        let _ = sleep::interrupt(word, state as u64, sleep_words);
        sleep_words.into_iter().for_each(sys::futex_wake_all);
    }
}

impl PeerWatch {
    /// Creates a watch without streams.
    ///
    /// Cost: two descriptors, a page, and all allocations of the watch.
    /// Errors: those of epoll_create(2), epoll_ctl(2), eventfd(2), mmap(2); of madvise(2) before Linux 4.14.
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let page = Arc::new(Mapping::cleared_by_fork()?);
        let words = WordList::<AtomicU64>::at(&page, 0, 1 + PEERS_WATCHED_MAX)
            .expect("a page has the words of all slots");
        words[0].store(1, Ordering::Relaxed);
        let slots = (0..PEERS_WATCHED_MAX).map(|_| WatchSlot { generation: 0, stream: None }).collect();
        let free = (0..PEERS_WATCHED_MAX).rev().collect();
        let registry = Lock::new(Registry { mode: WatchMode::Idle, free, slots });
        Ok(Self { shared: Arc::new(SharedWatch { epoll, stop, words, registry }) })
    }

    /// Returns a handle for streams.
    pub fn handle(&self) -> PeerWatchHandle {
        PeerWatchHandle { shared: Arc::clone(&self.shared) }
    }

    /// Watches until [`PeerWatchHandle::stop`]. Streams that sleep then, or when it fails or panics, are woken once and
    /// go on with limited sleeps.
    ///
    /// Errors: `Forked`; `System`: those of epoll_wait(2).
    pub fn run(self) -> Result<(), WatchError> {
        let shared = &*self.shared;
        shared.begin()?;
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); WATCH_REPORTS_MAX];
        loop {
            let reports = match epoll::wait(&shared.epoll, &mut space[..], None) {
                Err(Errno::INTR) => continue,
                reports => reports?.0,
            };
            let mut has_ended = false;
            for report in reports {
                match report.data.u64() {
                    STOP => return Ok(()),
                    data => has_ended |= shared.end((data & 0xffff_ffff) as u32, (data >> 32) as u32),
                }
            }
            // A peer that shuts its socket down again and again is reported each time.
            if !has_ended {
                sys::nap(WATCH_NAP_NS);
            }
        }
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl PeerWatchHandle {
    /// Stops the watch for ever. Streams that sleep are woken once, and go on with limited sleeps, as they do if the
    /// thread of the watch ends otherwise. In the child of a fork nothing happens.
    pub fn stop(&self) {
        self.shared.stop();
        if self.shared.is_own() {
            // It fails only for a counter that is full, which is readable.
            let _ = write(&self.shared.stop, &1_u64.to_ne_bytes());
        }
    }

    /// Watches the other end of a socket.
    ///
    /// Errors: `Full`, `Stopped`, `Forked`; `System`: those of epoll_ctl(2).
    pub(crate) fn register(&self, socket: &Arc<OwnedFd>) -> Result<WatchedPeer, WatchError> {
        let slot = self.shared.register(socket)?;
        Ok(WatchedPeer { shared: Arc::clone(&self.shared), slot })
    }
}

impl SharedWatch {
    /// Returns whether this process has created the watch. A child has a copy of the lock, which may be locked for
    /// ever, and the same epoll as its parent.
    fn is_own(&self) -> bool {
        self.words[0].load(Ordering::Relaxed) != 0
    }

    fn word(&self, slot: u32) -> &AtomicU64 {
        &self.words[1 + slot as usize]
    }

    fn begin(&self) -> Result<(), WatchError> {
        if !self.is_own() {
            return Err(WatchError::Forked);
        }
        self.registry.with(|registry| {
            // A watch that was stopped before finds the report of that.
            if registry.mode == WatchMode::Idle {
                registry.mode = WatchMode::Running;
                self.change_all(registry, PeerState::Idle, PeerState::Watched);
            }
        });
        Ok(())
    }

    fn stop(&self) {
        if self.is_own() {
            self.registry.with(|registry| {
                registry.mode = WatchMode::Stopped;
                self.change_all(registry, PeerState::Watched, PeerState::Idle);
            });
        }
    }

    fn change_all(&self, registry: &Registry, from: PeerState, to: PeerState) {
        for (slot, entry) in (0..).zip(&registry.slots) {
            if let Some(stream) = &entry.stream
                && PeerState::of(self.word(slot)) == from
            {
                stream.interrupt(self.word(slot), to);
            }
        }
    }

    fn register(&self, socket: &Arc<OwnedFd>) -> Result<u32, WatchError> {
        if !self.is_own() {
            return Err(WatchError::Forked);
        }
        self.registry.with(|registry| {
            if registry.mode == WatchMode::Stopped {
                return Err(WatchError::Stopped);
            }
            let slot = *registry.free.last().ok_or(WatchError::Full)?;
            let entry = &mut registry.slots[slot as usize];
            let data = epoll::EventData::new_u64(u64::from(entry.generation) << 32 | u64::from(slot));
            // Only the end is reported, once for each time that something happens to it; no byte is. Not only once at
            // all: a peer that shuts its socket down may still write to the sleep words, until it ends.
            let events = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &**socket, data, events)?;
            entry.stream = Some(WatchedStream { socket: Arc::clone(socket), directions: None });
            registry.free.pop();
            self.word(slot).store(PeerState::New as u64, Ordering::Release);
            Ok(slot)
        })
    }

    /// Notes the end that the socket of a slot has shown, and wakes the stream. `false`: it was known before, or the
    /// slot has another stream now.
    fn end(&self, slot: u32, generation: u32) -> bool {
        self.registry.with(|registry| {
            let Some(entry) = registry.slots.get(slot as usize) else { return false };
            let Some(stream) = entry.stream.as_ref().filter(|_| entry.generation == generation) else {
                return false;
            };
            let is_new = PeerState::of(self.word(slot)) != PeerState::Ended;
            stream.interrupt(self.word(slot), PeerState::Ended);
            is_new
        })
    }
}

/// The slot of a stream in a watch, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct WatchedPeer {
    shared: Arc<SharedWatch>,
    slot: u32,
}

impl WatchedPeer {
    /// Returns whether the end of the other process wakes the stream, as far as it has not happened.
    pub fn is_watched(&self) -> bool {
        self.state() == PeerState::Watched
    }

    fn state(&self) -> PeerState {
        PeerState::of(self.shared.word(self.slot))
    }

    /// Returns the state, after the watch has learned on which sleep words the stream sleeps: it has one connection.
    pub fn attach(&self, conn: &RingConn) -> PeerState {
        if self.state() == PeerState::New {
            self.shared.registry.with(|registry| {
                if let Some(stream) = &mut registry.slots[self.slot as usize].stream
                    && self.state() == PeerState::New
                {
                    stream.directions = Some(conn.directions());
                    let is_running = registry.mode == WatchMode::Running;
                    let state = if is_running { PeerState::Watched } else { PeerState::Idle };
                    self.shared.word(self.slot).store(state as u64, Ordering::Release);
                }
            });
        }
        self.state()
    }
}

impl Drop for WatchedPeer {
    fn drop(&mut self) {
        if self.state() == PeerState::Foreign {
            return;
        }
        self.shared.registry.with(|registry| {
            let entry = &mut registry.slots[self.slot as usize];
            if let Some(stream) = entry.stream.take() {
                // It fails only for a socket that is not there.
                let _ = epoll::delete(&self.shared.epoll, &*stream.socket);
            }
            entry.generation = entry.generation.wrapping_add(1);
            registry.free.push(self.slot);
            self.shared.word(self.slot).store(PeerState::Foreign as u64, Ordering::Release);
        });
    }
}
