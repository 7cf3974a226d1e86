//! The descriptor table of a process, in memory that `flick accel --status` maps too.
//! Promises: every field is an atomic, so that threads, signal handlers and a reader in another process need no lock;
//! a descriptor that cannot be entered is counted and not followed.
//! Refuses: guessing. A file that another process may hold is marked as shared, and its counts prove nothing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::limits::{CHUNK_FDS, CHUNKS_MAX};

/// First word of a state. The last byte is the version of the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLKACCL9");

/// Kinds of files that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A stream socket of TCP.
    Tcp = 1,
    /// A stream socket of the family Unix.
    Unix = 2,
    /// The end of a pipe that is read.
    PipeRead = 3,
    /// The end of a pipe that is written.
    PipeWrite = 4,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u32) -> Option<Self> {
        [Self::Tcp, Self::Unix, Self::PipeRead, Self::PipeWrite]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// Flags of a file.
pub mod flag {
    /// It listens.
    pub const LISTENING: u32 = 1;
    /// It is connected, or connects.
    pub const CONNECTED: u32 = 2;
    /// Another process may hold it: it was passed, or inherited by a forked process.
    pub const SHARED: u32 = 4;
    /// It was open before the library saw it; its counts began with the kernel's.
    pub const ADOPTED: u32 = 8;
    /// Out-of-band data was sent or received.
    pub const OUT_OF_BAND: u32 = 16;
    /// It was entered into an epoll set, which sees the kernel's bytes only.
    pub const IN_EPOLL: u32 = 32;
    /// Threads have used it in ways that a ring does not serve: it stays in the kernel.
    pub const BY_THREADS: u32 = 64;
}

/// Reasons for which a process is not followed, as bits.
pub mod reason {
    /// It uses io_uring.
    pub const IO_URING: u32 = 1;
    /// It installed a seccomp filter, which may refuse system calls of the library.
    pub const SECCOMP: u32 = 2;
    /// Its threads have tables of descriptors of their own.
    pub const OWN_TABLES: u32 = 4;
    /// A descriptor's number exceeds the table.
    pub const MANY_FDS: u32 = 8;
    /// The file of the state cannot be created or mapped; the table is in private memory.
    pub const PRIVATE: u32 = 16;
    /// An image with hooks was started without them: its environment is too large to be completed.
    pub const ENVIRONMENT: u32 = 32;
}

/// Reasons for which a pipe or a connection is in the kernel.
pub mod kept {
    /// It was not used enough, or the monitor has not looked yet.
    pub const NONE: u32 = 0;
    /// Its ends are not held by exactly one process each, by one descriptor.
    pub const HOLDERS: u32 = 1;
    /// The process at the other end was not started to move, or is not followed.
    pub const PEER: u32 = 2;
    /// A process of the session cannot be looked into.
    pub const UNREADABLE: u32 = 3;
    /// An end's program makes system calls of its own.
    pub const OWN_CALLS: u32 = 4;
    /// It has timeouts, flags or another size, or is otherwise not of the default kind.
    pub const SETTINGS: u32 = 5;
    /// Several threads of a process receive at the same time, or wait for it while another one receives.
    pub const THREADS: u32 = 6;
    /// A process that holds an end has changed its user or its root.
    pub const CREDENTIALS: u32 = 7;
    /// An end was forked, passed on, or used otherwise than by plain reads and writes.
    pub const LEFT: u32 = 8;
    /// The segment could not be mapped.
    pub const SEGMENT: u32 = 9;
    /// The socket at the other end cannot be had (`pidfd_getfd`), or is not the other end.
    pub const PEER_SOCKET: u32 = 10;
    /// The program's counts are not those of the kernel.
    pub const COUNTS: u32 = 11;
    /// Its last descriptor is closed.
    pub const CLOSED: u32 = 12;
    /// An end's program makes code as it runs, and was not started with `--jit`.
    pub const GENERATES: u32 = 13;
}

/// Pipes and connections are to move, unless the program makes code as it runs.
pub const MOVES: u32 = 1;
/// They are to move also then: the user who started the program says that such code makes no system calls.
pub const MOVES_GENERATED: u32 = 2;

/// Bytes that a core fetches at a time.
const CACHE_LINE_BYTES: usize = 64;

/// Ways in which calls are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Method {
    /// Calls are not seen.
    Plain = 0,
    /// Pages of libc's text are mapped from a file that was patched before.
    PatchedText = 1,
}

/// One file: an open file description, or an end of a connection. A call that moves nothing looks at the first 64 bytes
/// only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct File {
    /// Descriptors of this process that refer to it. 0: the slot is free.
    pub refs: AtomicU32,
    /// Number of a [`Kind`].
    pub kind: AtomicU32,
    /// Bits of [`flag`].
    pub flags: AtomicU32,
    /// Counts the files in this slot, so that a call that returns late does not count for the next one.
    pub serial: AtomicU32,
    /// Bytes sent by this process.
    pub sent: AtomicU64,
    /// Bytes received by this process.
    pub received: AtomicU64,
    /// Reads and writes through the kernel, if the file may move.
    pub calls: AtomicU32,
    /// The slot of the process's moved directions, and 1; of a socket that which is received. 0: in the kernel.
    pub moved: AtomicU32,
    /// The monitor's offer.
    pub offer: SegmentOffer,
    /// `fork_epoch` of the process when the file was entered.
    pub epoch: AtomicU32,
    /// The descriptor that it was entered with.
    pub fd: AtomicU32,
    /// The pipe's device, or the socket's cookie once it has asked the monitor to move it.
    pub id: AtomicU64,
    /// The inode: of a pipe, and of a socket once it has asked the monitor to move it.
    pub inode: AtomicU64,
    /// Of such a socket of TCP: equal for both ends of a connection. 0: none.
    pub pair: AtomicU64,
    /// Bytes of these that went through a ring.
    pub ring_bytes: AtomicU64,
    /// The slot of the direction in which a socket sends, and 1.
    pub moved_out: AtomicU32,
    /// Number of the reason why it is in the kernel ([`kept`]).
    pub kept: AtomicU32,
    /// Calls that receive, of threads and of what signal handlers have interrupted, if the process's files may move.
    pub receiving: AtomicU32,
    /// Calls of the kernel that send, likewise; in a process with one thread also those in a ring.
    pub sending: AtomicU32,
    /// The epoll instance that it is in, and what the kernel has of it (`registrations.rs`). 0: in none.
    pub epoll: AtomicU64,
    /// Data that the program has given there: that which counts and the kernel's, by bits of `epoll`, and free slots.
    pub epoll_data: [AtomicU64; 5],
    /// The events with it.
    pub epoll_events: [AtomicU32; 5],
    /// The descriptor by which it is there.
    pub epoll_fd: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(File, epoch) == CACHE_LINE_BYTES);

/// A segment that the monitor offers: the process is to map `/proc/MONITOR/fd/FD`. Written before `is_ready`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SegmentOffer {
    /// The monitor.
    pub monitor: AtomicU32,
    /// Its descriptor; of a socket that for the direction which is received.
    pub fd: AtomicU32,
    /// Its descriptor for the direction in which a socket sends.
    pub fd_out: AtomicU32,
    /// `serial` of the file when the monitor looked.
    pub serial: AtomicU32,
    /// `fork_epoch` of the process when the monitor looked.
    pub epoch: AtomicU32,
    /// 1: there is an offer. More: as many calls less one have looked at it in vain.
    pub is_ready: AtomicU32,
}

/// Descriptors with adjacent numbers, and as many files.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// For each descriptor a generation (upper half) and an entry (lower half): [`UNKNOWN`], [`OTHER`], or a slot.
    fds: [AtomicU64; CHUNK_FDS],
    /// The files.
    pub files: [File; CHUNK_FDS],
}

const UNKNOWN: u32 = 0;
const OTHER: u32 = 1;
const SLOT: u32 = 2;

/// The table and the facts of the process. All zero is the empty table. A call that moves nothing looks at the first 64
/// bytes, and at one of its chunks.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ProcessTable {
    /// [`MAGIC`], once the table is complete.
    pub magic: AtomicU64,
    /// The process.
    pub pid: AtomicU32,
    /// Bits of [`reason`].
    pub not_followed: AtomicU32,
    /// Forks so far. A file with an earlier epoch may be held by a forked process.
    pub fork_epoch: AtomicU32,
    /// Whether counts are compared with the kernel's at each close.
    pub verify: AtomicU32,
    /// Whether pipes and connections are to move: 0, [`MOVES`] or [`MOVES_GENERATED`].
    pub moves: AtomicU32,
    /// 1: the process has made threads.
    pub threads: AtomicU32,
    /// Chunks that are populated, as bits.
    pub populated: [AtomicU64; CHUNKS_MAX / 64],
    /// Number of a [`Method`].
    pub method: AtomicU32,
    /// The cause if there is no patched text: an error of the kernel, or of [`crate::image::Mismatch`].
    pub why_plain: AtomicU32,
    /// Sites of calls that lead to the library.
    pub sites: AtomicU32,
    /// The reason of [`kept`] for which nothing of the process may move any more. 0: it may.
    pub stays: AtomicU32,
    /// Time that the library took to start.
    pub start_ns: AtomicU64,
    /// Time since boot at which the state was created. A process that started later is another one.
    pub created_ns: AtomicU64,
    /// The name that the kernel has for the process (`comm`).
    pub name: [AtomicU64; 2],
    /// Descriptors that could not be entered.
    pub not_entered: AtomicU32,
    /// Bytes that the process has sent and received through rings.
    pub ring_bytes: AtomicU64,
    /// Waits for several files that slept beside rings.
    pub sleeps: AtomicU64,
    /// Sleeping receivers that this process has signalled.
    pub wakes: AtomicU64,
    /// Sleeping receivers whose event this process could not get, so that the kernel had to wake them.
    pub wakes_refused: AtomicU64,
    /// Sleeps that have lasted too long and had bytes in a ring then.
    pub late: AtomicU64,
    /// Waits that slept earlier, since others polled on all cores but one.
    pub polls_refused: AtomicU64,
    /// Calls of `epoll_ctl` that the kernel did not get as the program made them.
    pub controls_kept: AtomicU64,
    /// Calls of `epoll_ctl` by which it got the difference.
    pub controls_sent: AtomicU64,
    /// Files that are closed.
    pub closed: AtomicU64,
    /// Bytes that these have sent.
    pub closed_sent: AtomicU64,
    /// Bytes that these have received.
    pub closed_received: AtomicU64,
    /// Connections of TCP whose counts equalled the kernel's when they were closed.
    pub closed_equal: AtomicU64,
    /// Connections of TCP whose counts differed.
    pub closed_different: AtomicU64,
    /// Connections of TCP that were not compared: shared, or reset.
    pub closed_not_compared: AtomicU64,
    /// The last difference: counted and the kernel's bytes sent, counted and the kernel's bytes received.
    pub difference: [AtomicU64; 4],
    /// The chunks. Only populated ones may be touched.
    pub chunks: [Chunk; CHUNKS_MAX],
}

const _: () = assert!(core::mem::offset_of!(ProcessTable, method) == CACHE_LINE_BYTES);

/// Bytes of a state.
pub const STATE_BYTES: usize = size_of::<ProcessTable>();

/// A file as a call has seen it. Having one means that the slot held this file when the call began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRef {
    slot: u32,
    serial: u32,
}

impl FileRef {
    /// The reference in one word.
    pub fn into_word(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.slot)
    }

    /// Serial number of the file in its slot.
    pub fn serial(self) -> u32 {
        self.serial
    }

    /// The reference of a word.
    pub fn from_word(word: u64) -> Self {
        Self { slot: word as u32, serial: (word >> 32) as u32 }
    }
}

/// The table's knowledge of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: the descriptor was not used yet.
    Unknown,
    /// A file that is not followed.
    Other,
    /// A file that is followed.
    File(FileRef),
}

/// A new file for the table.
#[derive(Debug, Clone, Copy)]
pub struct NewFile {
    /// Its kind.
    pub kind: Kind,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Its identity: a cookie and 0, or device and inode.
    pub id: (u64, u64),
    /// Bytes sent and received before.
    pub counts: (u64, u64),
}

impl ProcessTable {
    /// The chunk of a descriptor or slot, if it is populated.
    fn chunk(&self, number: usize) -> Option<&Chunk> {
        let index = number / CHUNK_FDS;
        let is_populated = self.populated.get(index / 64)?.load(Acquire) >> (index % 64) & 1 == 1;
        if is_populated { self.chunks.get(index) } else { None }
    }

    fn entry(&self, fd: usize) -> Option<&AtomicU64> {
        self.chunk(fd)?.fds.get(fd % CHUNK_FDS)
    }

    fn slot(&self, slot: u32) -> Option<&File> {
        let slot = slot as usize;
        self.chunk(slot)?.files.get(slot % CHUNK_FDS)
    }

    /// Whether the chunk of a descriptor is populated.
    pub fn is_populated(&self, fd: usize) -> bool {
        self.chunk(fd).is_some()
    }

    /// Marks the chunk of a descriptor as populated: its memory is there, and zero.
    pub fn mark_populated(&self, fd: usize) {
        let index = fd / CHUNK_FDS;
        if let Some(word) = self.populated.get(index / 64) {
            word.fetch_or(1 << (index % 64), AcqRel);
        }
    }

    /// Lets readers in other processes see the table, once its facts are complete.
    pub fn make_visible(&self) {
        self.magic.store(MAGIC, Release);
    }

    /// Looks a descriptor up.
    pub fn look(&self, fd: usize) -> Seen {
        let Some(entry) = self.entry(fd) else { return Seen::Unknown };
        match entry.load(Acquire) as u32 {
            UNKNOWN => Seen::Unknown,
            OTHER => Seen::Other,
            slot => match self.slot(slot - SLOT) {
                Some(file) => Seen::File(FileRef { slot: slot - SLOT, serial: file.serial.load(Acquire) }),
                None => Seen::Other,
            },
        }
    }

    /// The file of a descriptor, if it is followed.
    #[inline]
    pub fn file_of(&self, fd: usize) -> Option<(FileRef, &File)> {
        let slot = (self.entry(fd)?.load(Acquire) as u32).checked_sub(SLOT)?;
        let file = self.slot(slot)?;
        let serial = file.serial.load(Acquire);
        (file.refs.load(Relaxed) > 0).then_some((FileRef { slot, serial }, file))
    }

    /// The file of a reference, unless the slot has another one by now.
    pub fn file(&self, file: FileRef) -> Option<&File> {
        let found = self.slot(file.slot)?;
        (found.serial.load(Acquire) == file.serial && found.refs.load(Relaxed) > 0).then_some(found)
    }

    /// Replaces the entry of a descriptor, and releases the file that it had.
    fn replace(&self, fd: usize, value: u32) {
        let Some(entry) = self.entry(fd) else { return };
        let next = |old: u64| ((old >> 32).wrapping_add(1) << 32) | u64::from(value);
        let old = entry.fetch_update(AcqRel, Acquire, |old| Some(next(old))).unwrap_or_default();
        let old = old as u32;
        if old >= SLOT
            && let Some(file) = self.slot(old - SLOT)
        {
            // The counts are the next file's once the slot is free.
            let (sent, received) = (file.sent.load(Relaxed), file.received.load(Relaxed));
            if file.refs.fetch_sub(1, AcqRel) == 1 {
                self.closed.fetch_add(1, Relaxed);
                self.closed_sent.fetch_add(sent, Relaxed);
                self.closed_received.fetch_add(received, Relaxed);
            }
        }
    }

    /// Enters a file under a descriptor.
    ///
    /// Errors: `None`: the chunk is not populated or has no free slot; the descriptor is unknown then.
    pub fn enter(&self, fd: usize, new: &NewFile) -> Option<FileRef> {
        let slot = self.take_slot(fd)?;
        let file = self.slot(slot)?;
        let serial = file.serial.fetch_add(1, AcqRel).wrapping_add(1);
        file.kind.store(new.kind as u32, Relaxed);
        file.flags.store(new.flags, Relaxed);
        file.epoch.store(self.fork_epoch.load(Relaxed), Relaxed);
        file.fd.store(fd as u32, Relaxed);
        file.id.store(new.id.0, Relaxed);
        file.inode.store(new.id.1, Relaxed);
        for word in [&file.calls, &file.moved, &file.moved_out, &file.kept, &file.offer.is_ready] {
            word.store(0, Relaxed);
        }
        file.receiving.store(0, Relaxed);
        file.sending.store(0, Relaxed);
        for word in [&file.ring_bytes, &file.pair, &file.epoll] {
            word.store(0, Relaxed);
        }
        file.sent.store(new.counts.0, Relaxed);
        file.received.store(new.counts.1, Release);
        self.replace(fd, slot + SLOT);
        Some(FileRef { slot, serial })
    }

    /// Takes a free slot of the descriptor's chunk: that of its own number, or the next one.
    fn take_slot(&self, fd: usize) -> Option<u32> {
        let chunk = self.chunk(fd)?;
        let first = fd - fd % CHUNK_FDS;
        (0..CHUNK_FDS).map(|step| (fd + step) % CHUNK_FDS).find_map(|index| {
            let file = chunk.files.get(index)?;
            file.refs.compare_exchange(0, 1, AcqRel, Relaxed).ok()?;
            Some((first + index) as u32)
        })
    }

    /// Enters a descriptor as one that is not followed.
    pub fn enter_other(&self, fd: usize) {
        self.replace(fd, OTHER);
    }

    /// Enters a descriptor that refers to the file of another one.
    pub fn duplicate(&self, old: usize, new: usize) {
        match self.entry(old).map(|entry| entry.load(Acquire) as u32) {
            Some(slot) if slot >= SLOT => {
                let Some(file) = self.slot(slot - SLOT) else { return };
                file.refs.fetch_add(1, AcqRel);
                if self.is_populated(new) {
                    self.replace(new, slot);
                } else {
                    file.refs.fetch_sub(1, AcqRel);
                }
            }
            Some(value) => self.replace(new, value),
            None => self.forget(new),
        }
    }

    /// Forgets a descriptor: it is closed, or another file by now.
    pub fn forget(&self, fd: usize) {
        if self.entry(fd).is_some_and(|entry| entry.load(Acquire) as u32 != UNKNOWN) {
            self.replace(fd, UNKNOWN);
        }
    }

    /// Whether a file with these numbers is a connected socket.
    pub fn is_connection(kind: u32, flags: u32) -> bool {
        [Kind::Tcp as u32, Kind::Unix as u32].contains(&kind)
            && flags & (flag::CONNECTED | flag::LISTENING) == flag::CONNECTED
    }

    /// Whether another process may hold the file.
    pub fn is_shared(&self, file: &File) -> bool {
        file.flags.load(Relaxed) & flag::SHARED != 0
            || file.epoch.load(Relaxed) != self.fork_epoch.load(Relaxed)
    }

    /// The number behind those of the populated chunks.
    pub fn fds_end(&self) -> usize {
        let words = self.populated.iter().enumerate().rev();
        let last = words.map(|(index, word)| (index, word.load(Acquire))).find(|(_, word)| *word != 0);
        last.map_or(0, |(index, word)| (64 * index + 64 - word.leading_zeros() as usize) * CHUNK_FDS)
    }

    /// The populated chunks.
    pub fn populated_chunks(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        (0..CHUNKS_MAX).filter_map(|index| Some((index * CHUNK_FDS, self.chunk(index * CHUNK_FDS)?)))
    }

    /// The files in use.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.populated_chunks()
            .flat_map(|(_, chunk)| chunk.files.iter())
            .filter(|file| file.refs.load(Relaxed) > 0)
    }

    /// Takes over the table of the process that forked this one: every file is shared, nothing was counted here.
    /// The chunks of `parent` are populated here.
    pub fn inherit(&self, parent: &ProcessTable) {
        self.method.store(parent.method.load(Relaxed), Relaxed);
        self.sites.store(parent.sites.load(Relaxed), Relaxed);
        self.verify.store(parent.verify.load(Relaxed), Relaxed);
        self.moves.store(parent.moves.load(Relaxed), Relaxed);
        self.stays.store(parent.stays.load(Relaxed), Relaxed);
        self.not_followed.fetch_or(parent.not_followed.load(Relaxed) & !reason::PRIVATE, Relaxed);
        self.fork_epoch.store(parent.fork_epoch.load(Relaxed).wrapping_add(1), Relaxed);
        for ((_, old), (_, new)) in parent.populated_chunks().zip(self.populated_chunks()) {
            for (old, new) in old.fds.iter().zip(&new.fds) {
                let entry = old.load(Relaxed);
                if entry as u32 != UNKNOWN {
                    new.store(entry, Relaxed);
                }
            }
            for (old, new) in old.files.iter().zip(&new.files) {
                let refs = old.refs.load(Relaxed);
                if refs == 0 {
                    continue;
                }
                new.refs.store(refs, Relaxed);
                new.kind.store(old.kind.load(Relaxed), Relaxed);
                new.flags.store(old.flags.load(Relaxed), Relaxed);
                new.serial.store(old.serial.load(Relaxed), Relaxed);
                new.epoch.store(old.epoch.load(Relaxed), Relaxed);
                new.fd.store(old.fd.load(Relaxed), Relaxed);
                new.id.store(old.id.load(Relaxed), Relaxed);
                new.inode.store(old.inode.load(Relaxed), Relaxed);
            }
        }
    }
}
