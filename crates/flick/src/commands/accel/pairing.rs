//! Pairs pipes and connections that may move: those with exactly one descriptor at each end, in two processes that were
//! started to move and whose calls are all seen. Each direction gets a segment of its own, which is offered in the
//! tables of both processes.
//! Promises: tables are read before descriptors, so that a process that forks meanwhile refuses the offer; a segment
//! that one end does not take is withdrawn.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use flick_preload::limits::{CHUNK_FDS, CHUNKS_MAX, MOVE_CALLS_MIN, SEGMENT_BYTES};
use flick_preload::ring::{Control, MAGIC, PipeEnd, PipeHeader, PipeWords};
use flick_preload::state::{
    self, Chunk, Kind, MOVES_GENERATED, Method, ProcessTable, SegmentOffer, flag, kept,
};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::time::{ClockId, clock_gettime};

use super::holders::{self, Holder, Holders, Wanted};
use super::observed::{self, Words};
use super::{patched_text, socket_peers};

/// Time for which a segment is offered.
const OFFER_MAX: Duration = Duration::from_secs(5);
/// Segments that are offered at a time.
const OFFERS_MAX: usize = 64;
/// Libraries whose code is remembered.
const CODE_MAX: usize = 1024;
/// Bytes of a library whose code is looked through.
const CODE_BYTES_MAX: u64 = 256 << 20;

/// An end of a pipe or a connection, in the table of its process.
struct End {
    pid: u32,
    table: Rc<File>,
    /// Offset of the file in the table.
    at: u64,
    kind: Kind,
    /// The pipe's device, or the socket's cookie.
    device: u64,
    inode: u64,
    /// Equal for both ends of a connection of TCP.
    pair: u64,
    serial: u32,
    epoch: u32,
    calls: u32,
    /// Whether the process may make code as it runs.
    may_generate: bool,
}

impl End {
    fn is_socket(&self) -> bool {
        matches!(self.kind, Kind::Tcp | Kind::Unix)
    }

    fn writes(&self) -> bool {
        self.kind == Kind::PipeWrite
    }

    /// Writes an offer into the process's table: the segment, and of a connection that for what it sends.
    fn offer(&self, segment: u32, segment_out: u32) -> io::Result<()> {
        let mut offer = Vec::new();
        for half in [std::process::id(), segment, segment_out, self.serial, self.epoch] {
            offer.extend(half.to_le_bytes());
        }
        let at = self.at + offset_of!(state::File, offer) as u64;
        self.table.write_all_at(&offer, at)?;
        self.table.write_all_at(&[1], at + offset_of!(SegmentOffer, is_ready) as u64)
    }

    /// Says why it is in the kernel.
    fn note(&self, why: u32) {
        let at = self.at + offset_of!(state::File, kept) as u64;
        // A process that has ended needs no reason.
        let _ = self.table.write_all_at(&why.to_le_bytes(), at);
    }
}

/// Facts that all ends of a process have in common.
#[derive(Clone, Copy)]
struct ProcessFacts {
    pid: u32,
    epoch: u32,
    may_generate: bool,
}

/// A segment that was offered.
struct Offered {
    segment: File,
    since: Instant,
}

/// The monitor's knowledge.
#[derive(Default)]
pub struct Pairing {
    offered: Vec<Offered>,
    /// Whether the code of a file makes system calls: by device, inode, length and time of change.
    code: HashMap<(u64, u64, u64, i64), bool>,
    /// Time that code took in this look which is remembered from now on.
    code_time: Duration,
}

impl Pairing {
    /// Offers segments to all pipes that may move, and says of the others why not. Returns the processor time of such a
    /// look: without the code that it has looked through for all later ones.
    pub fn pair(&mut self, states: &Path) -> Duration {
        self.code_time = Duration::ZERO;
        let began = processor_time();
        self.offer(states);
        processor_time().saturating_sub(began + self.code_time)
    }

    fn offer(&mut self, states: &Path) {
        let ends: Vec<End> = observed::pids(states)
            .unwrap_or_default()
            .into_iter()
            .flat_map(|pid| ends(states, pid))
            .collect();
        let (connections, pipe_ends): (Vec<&End>, Vec<&End>) = ends.iter().partition(|end| end.is_socket());
        let mut pipes: HashMap<u64, Vec<&End>> = HashMap::new();
        for end in pipe_ends {
            pipes.entry(end.inode).or_default().push(end);
        }
        pipes.retain(|_, ends| ends.iter().any(|end| end.calls >= MOVE_CALLS_MIN));
        let pairs = pairs_of(&connections);
        let sockets = pairs.iter().flat_map(|pair| [pair.0.inode, pair.1.inode]).collect();
        let wanted = Wanted { pipes: pipes.keys().copied().collect(), sockets };
        let Some(holders) = holders::look(&wanted) else { return };
        let mut unseen = HashMap::new();
        for (inode, ends) in pipes {
            let held = holders.of_pipe.get(&inode).map(Vec::as_slice).unwrap_or_default();
            let outcome = pair_of(&ends, held, &holders).and_then(|(sender, receiver)| {
                self.check_calls(&mut unseen, [sender, receiver])?;
                let id = [sender.device, sender.inode];
                let segment = self.segment(sender, receiver, id, 0).map_err(|_| kept::SEGMENT)?;
                for end in [sender, receiver] {
                    end.offer(segment, 0).map_err(|_| kept::SEGMENT)?;
                }
                Ok(())
            });
            let why = outcome.err().unwrap_or(kept::NONE);
            ends.iter().for_each(|end| end.note(why));
        }
        for (one, other) in pairs {
            let outcome = holds_alone(one, &holders).and_then(|fd| {
                let other_fd = holds_alone(other, &holders)?;
                if one.pid == other.pid {
                    return Err(kept::HOLDERS);
                }
                self.check_calls(&mut unseen, [one, other])?;
                let mut segment = |sender: &End, receiver: &End, fd| {
                    self.segment(sender, receiver, [sender.device, receiver.device], fd)
                };
                let segments =
                    segment(one, other, fd).and_then(|there| Ok((there, segment(other, one, other_fd)?)));
                let (there, back) = segments.map_err(|_| kept::SEGMENT)?;
                other.offer(there, back).and_then(|()| one.offer(back, there)).map_err(|_| kept::SEGMENT)
            });
            let why = outcome.err().unwrap_or(kept::NONE);
            [one, other].iter().for_each(|end| end.note(why));
        }
    }

    /// Checks that the programs of both ends make no calls that are not seen.
    ///
    /// Errors: a reason of [`kept`].
    fn check_calls(&mut self, known: &mut HashMap<u32, Result<(), u32>>, ends: [&End; 2]) -> Result<(), u32> {
        ends.iter().try_for_each(|end| *known.entry(end.pid).or_insert_with(|| self.check_code(end)))
    }

    /// Makes a segment for a direction; returns its descriptor.
    fn segment(&mut self, sender: &End, receiver: &End, id: [u64; 2], sender_fd: u32) -> io::Result<u32> {
        if self.offered.len() >= OFFERS_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let segment =
            rustix::fs::memfd_create("flick-pipe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&segment, SEGMENT_BYTES)?;
        rustix::fs::fcntl_add_seals(&segment, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let segment = File::from(segment);
        let mut header = Vec::new();
        let processes = u64::from(sender.pid) | u64::from(receiver.pid) << 32;
        for word in [MAGIC, id[0], id[1], processes, u64::from(sender_fd) << 32] {
            header.extend(word.to_le_bytes());
        }
        const { assert!(offset_of!(PipeHeader, sender_fd) == 36) };
        segment.write_all_at(&header, offset_of!(Control, header) as u64)?;
        let fd = segment.as_raw_fd() as u32;
        self.offered.push(Offered { segment, since: Instant::now() });
        Ok(fd)
    }

    /// Forgets segments that both ends have, and withdraws those that were offered for long.
    pub fn collect(&mut self) {
        let attached = offset_of!(Control, shared) + offset_of!(PipeWords, attached);
        let revoked = offset_of!(Control, header) + offset_of!(PipeHeader, revoked);
        self.offered.retain(|offered| {
            let mut word = [0; 4];
            let is_read = offered.segment.read_exact_at(&mut word, attached as u64).is_ok();
            if is_read && u32::from_le_bytes(word) == PipeEnd::Sender as u32 | PipeEnd::Receiver as u32 {
                return false;
            }
            if offered.since.elapsed() < OFFER_MAX {
                return true;
            }
            // It is memory of this process: it can be written.
            let _ = offered.segment.write_all_at(&[1], revoked as u64);
            false
        });
    }

    /// Checks that a process has no code outside of libc that makes system calls, and makes none as it runs, or may.
    ///
    /// Errors: a reason of [`kept`].
    fn check_code(&mut self, end: &End) -> Result<(), u32> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", end.pid)).map_err(|_| kept::OWN_CALLS)?;
        if maps.is_empty() {
            // Its first thread has ended, which the others need not have done.
            return Err(kept::OWN_CALLS);
        }
        let known = ["/libc.so.6", "/ld-linux-x86-64.so.2", "/libflick_preload.so", "[vdso]", "[vsyscall]"];
        let is_known = |path: &str| {
            known.iter().any(|end| path.ends_with(end))
                || path.contains("/flick/accel-") && path.ends_with(".text")
        };
        let mut generates = false;
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            if !fields.nth(1).is_some_and(|permissions| permissions.contains('x')) {
                continue;
            }
            match fields.nth(3).filter(|path| !path.starts_with("[anon:")) {
                None => generates = true,
                Some(path) if !is_known(path) && self.file_makes_calls(Path::new(path)) => {
                    return Err(kept::OWN_CALLS);
                }
                Some(_) => {}
            }
        }
        // Behind the others: with calls of its own, `--jit` would not help.
        if generates && !end.may_generate { Err(kept::GENERATES) } else { Ok(()) }
    }

    /// Whether the code of a file makes system calls, or cannot be read.
    fn file_makes_calls(&mut self, path: &Path) -> bool {
        let Ok(facts) = fs::metadata(path) else { return true };
        if !is_code(&facts) {
            return true;
        }
        let key = (facts.dev(), facts.ino(), facts.len(), facts.mtime_nsec() ^ facts.mtime());
        if let Some(known) = self.code.get(&key) {
            return *known;
        }
        let began = processor_time();
        let makes_calls = code_of(path).is_none_or(|bytes| patched_text::makes_calls(&bytes));
        if self.code.len() < CODE_MAX {
            self.code.insert(key, makes_calls);
            self.code_time += processor_time().saturating_sub(began);
        }
        makes_calls
    }
}

/// Processor time of this thread. Beside busy programs a look may wait much longer than it works.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Whether a file may be read as code: devices may have no end.
fn is_code(facts: &fs::Metadata) -> bool {
    facts.is_file() && facts.len() <= CODE_BYTES_MAX
}

/// The bytes of a file, unless it is none that may be read as code by now.
fn code_of(path: &Path) -> Option<Vec<u8>> {
    // Does not wait for a writer, if it is a pipe by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let facts = file.metadata().ok().filter(is_code)?;
    let mut bytes = Vec::with_capacity(usize::try_from(facts.len()).ok()?);
    file.take(CODE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= CODE_BYTES_MAX).then_some(bytes)
}

/// The two ends of a pipe, if it has exactly these.
///
/// Errors: a reason of [`kept`].
fn pair_of<'a>(ends: &[&'a End], held: &[Holder], holders: &Holders) -> Result<(&'a End, &'a End), u32> {
    let [one, other] = held else { return Err(kept::HOLDERS) };
    let (sender, receiver) = if one.writes { (one, other) } else { (other, one) };
    let is_one_each = sender.writes && !sender.reads && receiver.reads && !receiver.writes;
    if !is_one_each || sender.pid == receiver.pid {
        return Err(kept::HOLDERS);
    }
    let end_of = |holder: &Holder| {
        let mut found = ends.iter().filter(|end| end.pid == holder.pid && end.writes() == holder.writes);
        found.next().copied().filter(|_| found.next().is_none()).ok_or(kept::PEER)
    };
    let is_readable = |holder: &Holder| {
        holders::session(holder.pid).is_some_and(|session| !holders.unreadable.contains(&session))
    };
    if holders.is_hidden || !is_readable(sender) || !is_readable(receiver) {
        return Err(kept::UNREADABLE);
    }
    Ok((end_of(sender)?, end_of(receiver)?))
}

/// The descriptor of a socket that one process holds by one descriptor.
///
/// Errors: a reason of [`kept`].
fn holds_alone(end: &End, holders: &Holders) -> Result<u32, u32> {
    let held = holders.of_socket.get(&end.inode).map(Vec::as_slice).unwrap_or_default();
    let [holder] = held else { return Err(kept::HOLDERS) };
    if holder.pid != end.pid {
        return Err(kept::HOLDERS);
    }
    let is_readable = holders::session(end.pid).is_some_and(|one| !holders.unreadable.contains(&one));
    if holders.is_hidden || !is_readable { Err(kept::UNREADABLE) } else { Ok(holder.fd) }
}

/// The connections whose ends both asked to be moved; an end without the other one learns why it stays.
fn pairs_of<'a>(ends: &[&'a End]) -> Vec<(&'a End, &'a End)> {
    let unix: Vec<u64> = ends.iter().filter(|end| end.kind == Kind::Unix).map(|end| end.inode).collect();
    let peers = socket_peers::look(&unix).unwrap_or_default();
    let mut pairs = Vec::new();
    for (at, one) in ends.iter().enumerate() {
        let is_other = |other: &&&End| match one.kind {
            Kind::Unix => {
                peers.get(&one.inode) == Some(&other.inode) && peers.get(&other.inode) == Some(&one.inode)
            }
            _ => one.pair != 0 && one.pair == other.pair,
        };
        let mut found = ends.iter().enumerate().filter(|(other, end)| *other != at && is_other(end));
        match (found.next(), found.next()) {
            (Some((other, end)), None) if at < other => pairs.push((*one, *end)),
            (Some(_), None) => {}
            _ => one.note(kept::PEER),
        }
    }
    pairs
}

/// The pipes and connections of a process that may be offered a segment.
fn ends(states: &Path, pid: u32) -> Vec<End> {
    let table = File::options().read(true).write(true).open(observed::path(states, pid));
    let Ok(table) = table else { return Vec::new() };
    let Some(head) = Words::read(&table, 0, offset_of!(ProcessTable, chunks)) else { return Vec::new() };
    let half = |at| head.half(at);
    let moves = half(offset_of!(ProcessTable, moves));
    let may_move = head.word(offset_of!(ProcessTable, magic)) == state::MAGIC
        && half(offset_of!(ProcessTable, method)) == Method::PatchedText as u32
        && moves != 0
        && half(offset_of!(ProcessTable, stays)) == 0
        && half(offset_of!(ProcessTable, not_followed)) == 0
        && observed::is_alive(pid, &head);
    if !may_move {
        return Vec::new();
    }
    let facts = ProcessFacts {
        pid,
        epoch: half(offset_of!(ProcessTable, fork_epoch)),
        may_generate: moves == MOVES_GENERATED,
    };
    let table = Rc::new(table);
    let mut ends = Vec::new();
    for index in (0..CHUNKS_MAX).filter(|index| observed::is_populated(&head, *index)) {
        let offset = offset_of!(ProcessTable, chunks) + index * size_of::<Chunk>();
        let Some(chunk) = Words::read(&table, offset, size_of::<Chunk>()) else { continue };
        for slot in 0..CHUNK_FDS {
            let at = offset_of!(Chunk, files) + slot * size_of::<state::File>();
            ends.extend(end(&chunk, at, offset, facts, &table));
        }
    }
    ends
}

fn end(chunk: &Words, at: usize, offset: usize, process: ProcessFacts, table: &Rc<File>) -> Option<End> {
    let half = |field| chunk.half(at + field);
    let word = |field| chunk.word(at + field);
    let kind = Kind::of(half(offset_of!(state::File, kind)))?;
    let flags = half(offset_of!(state::File, flags));
    let inode = word(offset_of!(state::File, inode));
    let is_kind = match kind {
        Kind::PipeRead | Kind::PipeWrite => true,
        Kind::Tcp | Kind::Unix => ProcessTable::is_connection(kind as u32, flags) && inode != 0,
    };
    let is_free = half(offset_of!(state::File, moved)) == 0
        && half(offset_of!(state::File, offer) + offset_of!(SegmentOffer, is_ready)) == 0;
    let is_usable = half(offset_of!(state::File, refs)) > 0
        && flags & (flag::SHARED | flag::IN_EPOLL | flag::BY_THREADS) == 0;
    (is_kind && is_free && is_usable).then(|| End {
        pid: process.pid,
        table: Rc::clone(table),
        at: (offset + at) as u64,
        kind,
        device: word(offset_of!(state::File, id)),
        inode,
        pair: word(offset_of!(state::File, pair)),
        serial: half(offset_of!(state::File, serial)),
        epoch: process.epoch,
        may_generate: process.may_generate,
        calls: half(offset_of!(state::File, calls)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_file_without_an_end_was_read_until_memory_was_used_up() {
        for path in ["/dev/zero", "/dev/null", "/proc/self/fd"] {
            assert!(Pairing::default().file_makes_calls(Path::new(path)), "{path}");
            assert!(code_of(Path::new(path)).is_none(), "{path}");
        }
        assert!(!Pairing::default().file_makes_calls(Path::new("/bin/cat")), "its calls are those of libc");
    }
}
