//! States of processes, read from the files that the library keeps.
//! Promises: a file that is no state, or of another version, is skipped; values are read one by one while the process
//! goes on, so that sums may be of different moments.

use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flick_preload::limits::{CHUNK_FDS, CHUNKS_MAX};
use flick_preload::state::{self, Chunk, Kind, MAGIC, ProcessTable, flag, kept, reason};
use serde::Serialize;

use crate::failure::Failure;

/// A process.
#[derive(Debug, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Whether it has ended, or has become another program; its state was kept for its counts.
    pub ended: bool,
    /// The way in which calls are seen: `patched-text` or `plain`.
    pub method: &'static str,
    /// Call sites that lead to the library.
    pub sites: u32,
    /// The cause if there is no patched text.
    pub why_plain: Option<String>,
    /// Reasons for which it is not followed.
    pub not_followed: Vec<&'static str>,
    /// The reason for which nothing of it moves to rings any more.
    pub why_stays: Option<&'static str>,
    /// Whether its pipes are to move to rings.
    pub moves: bool,
    /// Bytes that it has sent and received through rings.
    pub ring_bytes: u64,
    /// Waits for several files beside rings.
    pub waits: Waits,
    /// Descriptors that could not be entered.
    pub not_entered: u32,
    /// Time that the library took to start.
    pub start_ns: u64,
    /// Sockets and pipes that it has closed.
    pub closed: Closed,
    /// The files in use.
    pub files: Vec<Followed>,
}

/// Counts of sleeps beside rings, and of wake-ups.
#[derive(Debug, Serialize)]
pub struct Waits {
    /// Sleeps of this process.
    pub slept: u64,
    /// Sleeps that have lasted too long while bytes were in a ring.
    pub late: u64,
    /// Sleepers of other processes that this one has woken.
    pub woken: u64,
    /// Sleepers whose event it could not get: the kernel has woken them.
    pub refused: u64,
    /// Waits that slept earlier, since other programs polled on all cores but one.
    pub polls_refused: u64,
    /// Calls of `epoll_ctl` that the kernel did not get as the program made them.
    pub controls_kept: u64,
    /// Calls by which it got the difference.
    pub controls_sent: u64,
}

/// Counts of sockets and pipes that were closed, and under `--verify` of connections of TCP among them.
#[derive(Debug, Serialize)]
pub struct Closed {
    /// All of them.
    pub files: u64,
    /// Bytes that they have sent.
    pub sent: u64,
    /// Bytes that they have received.
    pub received: u64,
    /// The counts equalled the kernel's.
    pub equal: u64,
    /// They differed.
    pub different: u64,
    /// They were not compared: the connection was shared, or reset.
    pub not_compared: u64,
    /// The last difference: counted and the kernel's bytes sent, counted and the kernel's bytes received.
    pub last_difference: [u64; 4],
}

/// A socket or pipe.
#[derive(Debug, Serialize)]
pub struct Followed {
    /// The descriptor that it was entered with.
    pub fd: u32,
    /// `tcp`, `unix`, `pipe-read`, `pipe-write`.
    pub kind: &'static str,
    /// The pipe's device, or the socket's cookie once it has asked to be moved.
    pub id: u64,
    /// The inode.
    pub inode: u64,
    /// Bytes sent by this process.
    pub sent: u64,
    /// Bytes received by this process.
    pub received: u64,
    /// `ring` or `kernel`: what carries its bytes.
    pub transport: &'static str,
    /// Bytes that went through a ring.
    pub ring_bytes: u64,
    /// The reason for which a pipe or a connection is in the kernel.
    pub why_kernel: Option<&'static str>,
    /// `listening`, `connected`, `shared`, `adopted`, `out-of-band`, `in-epoll`.
    pub flags: Vec<&'static str>,
}

const FLAGS: &[(u32, &str)] = &[
    (flag::LISTENING, "listening"),
    (flag::CONNECTED, "connected"),
    (flag::SHARED, "shared"),
    (flag::ADOPTED, "adopted"),
    (flag::OUT_OF_BAND, "out-of-band"),
    (flag::IN_EPOLL, "in-epoll"),
];

const REASONS: &[(u32, &str)] = &[
    (reason::IO_URING, "it uses io_uring, whose requests make no calls"),
    (reason::SECCOMP, "it has installed a seccomp filter, which may refuse the library's system calls"),
    (reason::OWN_TABLES, "threads of it have descriptors of their own"),
    (reason::MANY_FDS, "it uses descriptors above the table's limit"),
    (reason::PRIVATE, "its state cannot be shown: its file could not be created"),
    (reason::ENVIRONMENT, "it started a program with an environment that is too large to be completed"),
];

const KEPT: &[(u32, &str)] = &[
    (kept::HOLDERS, "its ends are not held by two processes with one descriptor each"),
    (kept::PEER, "the process at the other end was not started with `flick accel --move`, or its files stay"),
    (kept::UNREADABLE, "a process that may hold it too belongs to another user and cannot be looked into"),
    (kept::OWN_CALLS, "the program of an end makes system calls outside of libc"),
    (
        kept::GENERATES,
        "the program of an end makes code as it runs; `--jit` says that such code makes no system calls",
    ),
    (
        kept::SETTINGS,
        "it has timeouts, flags or another size than usual, or cannot be opened by `/proc/self/fd`",
    ),
    (
        kept::THREADS,
        "several threads of a process receive at a time, or one waits while another one receives",
    ),
    (kept::CREDENTIALS, "the process has changed its user or its root"),
    (
        kept::LEFT,
        "an end was forked, passed on, shut down or closed, or used otherwise than by reads and writes",
    ),
    (kept::SEGMENT, "its segment could not be made or mapped"),
    (kept::PEER_SOCKET, "the socket of the other end cannot be had (`pidfd_getfd`), or has ended"),
    (kept::COUNTS, "the kernel has counted other bytes than the program's calls have moved"),
];

fn why_kept(number: u32) -> Option<&'static str> {
    KEPT.iter().find(|entry| entry.0 == number).map(|entry| entry.1)
}

fn names(table: &[(u32, &'static str)], bits: u32) -> Vec<&'static str> {
    table.iter().filter(|entry| bits & entry.0 != 0).map(|entry| entry.1).collect()
}

/// A part of a file with a state.
pub struct Words {
    bytes: Vec<u8>,
}

impl Words {
    /// Reads a part.
    pub fn read(file: &File, offset: usize, bytes: usize) -> Option<Self> {
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, offset as u64).ok()?;
        Some(Self { bytes: buffer })
    }

    /// A word of four bytes.
    pub fn half(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    /// A word of eight bytes.
    pub fn word(&self, at: usize) -> u64 {
        u64::from(self.half(at)) | u64::from(self.half(at + 4)) << 32
    }
}

/// The file of a state.
pub fn path(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.state"))
}

/// The file of a state, and what is before its chunks.
fn open(directory: &Path, pid: u32) -> Option<(File, Words)> {
    let file = File::open(path(directory, pid)).ok()?;
    let head = Words::read(&file, 0, offset_of!(ProcessTable, chunks))?;
    (head.word(offset_of!(ProcessTable, magic)) == MAGIC).then_some((file, head))
}

/// The state of a process.
pub fn one(directory: &Path, pid: u32) -> Option<Process> {
    let (file, head) = open(directory, pid)?;
    let half = |at| head.half(at);
    let is_patched = half(offset_of!(ProcessTable, method)) == state::Method::PatchedText as u32;
    let difference = offset_of!(ProcessTable, difference);
    let is_alive = is_alive(pid, &head);
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok().filter(|_| is_alive);
    let why = half(offset_of!(ProcessTable, why_plain));
    Some(Process {
        pid,
        ended: !is_alive || !has_library(pid),
        program: program.map(|name| name.trim_end().to_owned()).unwrap_or_else(|| name_at_start(&head)),
        method: if is_patched { "patched-text" } else { "plain" },
        sites: half(offset_of!(ProcessTable, sites)),
        why_plain: (!is_patched).then(|| why_plain(why)),
        not_followed: names(REASONS, half(offset_of!(ProcessTable, not_followed))),
        why_stays: why_kept(half(offset_of!(ProcessTable, stays))),
        moves: half(offset_of!(ProcessTable, moves)) != 0,
        ring_bytes: head.word(offset_of!(ProcessTable, ring_bytes)),
        not_entered: half(offset_of!(ProcessTable, not_entered)),
        start_ns: head.word(offset_of!(ProcessTable, start_ns)),
        waits: Waits {
            slept: head.word(offset_of!(ProcessTable, sleeps)),
            late: head.word(offset_of!(ProcessTable, late)),
            woken: head.word(offset_of!(ProcessTable, wakes)),
            refused: head.word(offset_of!(ProcessTable, wakes_refused)),
            polls_refused: head.word(offset_of!(ProcessTable, polls_refused)),
            controls_kept: head.word(offset_of!(ProcessTable, controls_kept)),
            controls_sent: head.word(offset_of!(ProcessTable, controls_sent)),
        },
        closed: Closed {
            files: head.word(offset_of!(ProcessTable, closed)),
            sent: head.word(offset_of!(ProcessTable, closed_sent)),
            received: head.word(offset_of!(ProcessTable, closed_received)),
            equal: head.word(offset_of!(ProcessTable, closed_equal)),
            different: head.word(offset_of!(ProcessTable, closed_different)),
            not_compared: head.word(offset_of!(ProcessTable, closed_not_compared)),
            last_difference: [0, 8, 16, 24].map(|at| head.word(difference + at)),
        },
        files: files(&file, &head),
    })
}

fn why_plain(number: u32) -> String {
    match number {
        1001 => "the patched text is of another version of flick".to_owned(),
        1002 => "the patched text is of another libc".to_owned(),
        1003 => "libc in memory has other bytes than its file".to_owned(),
        1004 => "the patched text belongs to another user, or others may write to it".to_owned(),
        1005 => "the process has no glibc".to_owned(),
        2 => "there is no patched text of the process's libc".to_owned(),
        number => {
            let error = std::io::Error::from_raw_os_error(i32::try_from(number).unwrap_or_default());
            format!("the patched text cannot be mapped: {error}")
        }
    }
}

/// Whether a chunk of a table has memory.
pub fn is_populated(head: &Words, index: usize) -> bool {
    head.word(offset_of!(ProcessTable, populated) + index / 64 * 8) >> (index % 64) & 1 == 1
}

fn files(file: &File, head: &Words) -> Vec<Followed> {
    let epoch = head.half(offset_of!(ProcessTable, fork_epoch));
    let mut files = Vec::new();
    for index in (0..CHUNKS_MAX).filter(|index| is_populated(head, *index)) {
        let offset = offset_of!(ProcessTable, chunks) + index * size_of::<Chunk>();
        let Some(chunk) = Words::read(file, offset, size_of::<Chunk>()) else { continue };
        let slots = (0..CHUNK_FDS).map(|slot| offset_of!(Chunk, files) + slot * size_of::<state::File>());
        files.extend(slots.filter_map(|at| followed(&chunk, at, epoch)));
    }
    files
}

fn followed(chunk: &Words, at: usize, epoch: u32) -> Option<Followed> {
    let half = |field| chunk.half(at + field);
    let word = |field| chunk.word(at + field);
    if half(offset_of!(state::File, refs)) == 0 {
        return None;
    }
    let kind = match Kind::of(half(offset_of!(state::File, kind)))? {
        Kind::Tcp => "tcp",
        Kind::Unix => "unix",
        Kind::PipeRead => "pipe-read",
        Kind::PipeWrite => "pipe-write",
    };
    let is_inherited = half(offset_of!(state::File, epoch)) != epoch;
    let shared = if is_inherited { flag::SHARED } else { 0 };
    let is_moved = half(offset_of!(state::File, moved)) != 0;
    Some(Followed {
        fd: half(offset_of!(state::File, fd)),
        kind,
        id: word(offset_of!(state::File, id)),
        inode: word(offset_of!(state::File, inode)),
        sent: word(offset_of!(state::File, sent)),
        received: word(offset_of!(state::File, received)),
        transport: if is_moved { "ring" } else { "kernel" },
        ring_bytes: word(offset_of!(state::File, ring_bytes)),
        why_kernel: if is_moved { None } else { why_kept(half(offset_of!(state::File, kept))) },
        flags: names(FLAGS, half(offset_of!(state::File, flags)) | shared),
    })
}

/// The name that the process had when its state was created.
fn name_at_start(head: &Words) -> String {
    let at = offset_of!(ProcessTable, name);
    let name = [at, at + 8].map(|at| head.word(at).to_le_bytes()).concat();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// Nanoseconds of the kernel's unit of start times, a hundredth of a second (`USER_HZ`).
const START_TIME_UNIT_NS: u64 = 10_000_000;

/// Whether the process of a state exists and is no zombie. One that has started later only has the same number.
pub fn is_alive(pid: u32, head: &Words) -> bool {
    const STATE: usize = 0;
    const START_TIME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<_> = rest.split_whitespace().collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let started: u64 = field(START_TIME).parse().unwrap_or_default();
    !field(STATE).starts_with(['Z', 'X'])
        && started.saturating_mul(START_TIME_UNIT_NS) <= head.word(offset_of!(ProcessTable, created_ns))
}

/// Whether a process still runs the program that has loaded the library. Of other users' processes that is not known.
fn has_library(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    maps.map_or(true, |maps| maps.contains("/libflick_preload.so"))
}

/// The processes that have a state.
pub fn pids(directory: &Path) -> Result<Vec<u32>, Failure> {
    let entries = fs::read_dir(directory)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", directory.display())))?;
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".state")?.parse().ok();
    let mut pids: Vec<u32> = entries.flatten().filter_map(pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Whether a process runs that was started to move.
pub fn has_running(directory: &Path) -> bool {
    let moves = |pid: u32| {
        let (_, head) = open(directory, pid)?;
        (head.half(offset_of!(ProcessTable, moves)) != 0 && is_alive(pid, &head) && has_library(pid))
            .then_some(())
    };
    pids(directory).unwrap_or_default().into_iter().any(|pid| moves(pid).is_some())
}

/// The states of all processes.
pub fn all(directory: &Path) -> Result<Vec<Process>, Failure> {
    Ok(pids(directory)?.into_iter().filter_map(|pid| one(directory, pid)).collect())
}

/// Removes the states of processes that have ended, and files that are no states; if `keeps_compared`, not those of
/// processes that were started with `--verify`.
pub fn remove_ended(directory: &Path, keeps_compared: bool) {
    let is_kept = |pid: &u32| match open(directory, *pid) {
        Some((_, head)) => {
            is_alive(*pid, &head) || keeps_compared && head.half(offset_of!(ProcessTable, verify)) != 0
        }
        // A process that starts has not completed its state yet.
        None => Path::new("/proc").join(pid.to_string()).exists(),
    };
    for pid in pids(directory).unwrap_or_default().iter().filter(|pid| !is_kept(pid)) {
        // Another `flick accel` may have removed it.
        let _ = fs::remove_file(path(directory, *pid));
    }
}
