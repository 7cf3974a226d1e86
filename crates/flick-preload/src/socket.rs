//! Rings of connections, where they differ from those of pipes.
//! Promises: bytes that were sent through the kernel are read before those of the ring, for TCP by the kernel's own
//! counts of both ends; a receiver that leaves the ring returns the sender's bytes by the sender's socket, so that the
//! kernel's queue has them in their order; what a dead sender has left is read from the ring before the end.
//! Not here: the words and the cut (`ring.rs`), reads and writes (`transfer.rs`).

use core::sync::atomic::Ordering::Relaxed;

use crate::limits::{COMPARISONS_MAX, IN_FLIGHT_MS_MAX, RING_BYTES};
use crate::moving::{self, Moved};
use crate::ring::{Control, PipeEnd, PipeHeader};
use crate::state::{File, Kind, ProcessTable};
use crate::sys::pipe::{self, PipeSegment, Vectors};
use crate::sys::socket::{self as sys, PeerSocket};
use crate::sys::{file_facts, process_id, tcp_facts, unread_bytes};
use crate::transfer::{self, PipeProgress};
use crate::verify;

/// State of TCP in which both ends may send.
const ESTABLISHED: u8 = 1;

/// Notes what the monitor needs to find the other end.
pub fn identify(file: &File, fd: u64) {
    if file.id.load(Relaxed) == 0 {
        file.id.store(sys::cookie(fd).unwrap_or_default(), Relaxed);
    }
    file.inode.store(file_facts(fd).map_or(0, |facts| facts.id.1), Relaxed);
    let is_tcp = file.kind.load(Relaxed) == Kind::Tcp as u32;
    file.pair.store(if is_tcp { sys::pair_of(fd) } else { 0 }, Relaxed);
}

/// Whether the program's bytes are those that the kernel has counted, where that can be known: some may have gone
/// unseen, and more would.
pub fn is_counted(state: &ProcessTable, file: &File, fd: u64) -> bool {
    let is_own =
        file.epoch.load(Relaxed) == state.fork_epoch.load(Relaxed) && file.ring_bytes.load(Relaxed) == 0;
    if file.kind.load(Relaxed) != Kind::Tcp as u32 || !is_own {
        return true;
    }
    let counted = (file.sent.load(Relaxed), file.received.load(Relaxed));
    // Bytes may arrive between the kernel's answers.
    (0..COMPARISONS_MAX).any(|_| {
        let facts = tcp_facts(fd).filter(|facts| facts.state == ESTABLISHED);
        facts.is_some_and(|facts| counted == (facts.sent, facts.received.saturating_sub(unread_bytes(fd))))
    })
}

/// Whether the segment of a direction is meant for this process's end, and the other end is what it says.
pub fn is_own(header: &PipeHeader, file: &File, role: PipeEnd, fd: u64) -> bool {
    let cookie = file.id.load(Relaxed);
    if cookie == 0 || sys::has_ended(fd) {
        return false;
    }
    if role == PipeEnd::Sender {
        return header.device.load(Relaxed) == cookie
            && header.sender.load(Relaxed) == process_id()
            && u64::from(header.sender_fd.load(Relaxed)) == fd;
    }
    let is_tcp = file.kind.load(Relaxed) == Kind::Tcp as u32;
    header.inode.load(Relaxed) == cookie
        && header.receiver.load(Relaxed) == process_id()
        && sender(header).is_some_and(|sender| !is_tcp || sender.is_other_end_of(fd))
}

/// The sender's socket.
fn sender(header: &PipeHeader) -> Option<PeerSocket> {
    let (process, fd) = (header.sender.load(Relaxed), header.sender_fd.load(Relaxed));
    PeerSocket::of(process, fd, header.device.load(Relaxed))
}

/// Whether the sender of a connection of TCP holds small sends back until earlier ones are acknowledged.
pub fn holds_back(header: &PipeHeader) -> bool {
    sender(header).is_some_and(|sender| sender.holds_back())
}

/// Whether a sender may enter the ring: what was sent has arrived.
pub fn is_empty(moved: &Moved, fd: u64) -> bool {
    if moved.is_socket() { sys::outstanding_bytes(fd) == 0 } else { unread_bytes(fd) == 0 }
}

/// Sets the index of a sender of TCP that enters the ring to the kernel's count. `None`: it may not enter.
pub fn count(moved: &Moved, fd: u64) -> Option<()> {
    if moved.kind() == Some(Kind::Tcp) {
        let facts = tcp_facts(fd).filter(|facts| facts.state == ESTABLISHED)?;
        moved.index.store(facts.sent, Relaxed);
    }
    Some(())
}

/// Bytes before those of the ring that the receiver has not read. Of TCP they may be on their way.
pub fn unread_before(moved: &Moved, base: u64, fd: u64) -> u64 {
    let unread = unread_bytes(fd);
    if moved.kind() != Some(Kind::Tcp) {
        return unread;
    }
    let Some(facts) = tcp_facts(fd) else { return unread.max(1) };
    // What arrives between the answers makes this larger, so that the receiver looks again.
    let read = facts.received.saturating_sub(verify::unread(fd, facts.state));
    base.saturating_sub(read).max(unread)
}

/// Whether such bytes are there, or come in time.
pub fn is_on_its_way(moved: &Moved, fd: u64) -> bool {
    moved.kind() != Some(Kind::Tcp) || unread_bytes(fd) > 0 || sys::is_readable(fd, IN_FLIGHT_MS_MAX)
}

/// Returns the bytes between the cut's indices to the kernel. Signals are held back. Returns whether the direction may
/// return to the kernel; if not, the sender is gone, and the receiver reads the rest from the ring.
pub fn inject(moved: &Moved, segment: PipeSegment, fd: u64, epoch: u16) -> bool {
    let control = segment.control();
    let Some(cut) = control.cut(epoch, pipe::barrier) else { return true };
    let (tail, bytes) = (cut.tail, cut.bytes().min(RING_BYTES));
    if moved.role() == PipeEnd::Sender {
        control.note_before(epoch, 0);
        let (_, error) = send_all(segment, fd, tail, bytes);
        // A broken connection says so again.
        let error = if error == pipe::BROKEN { 0 } else { error };
        moved.error.store(error.unsigned_abs() as u32, Relaxed);
        return true;
    }
    let mut done = sent_before(moved, control, fd, epoch).min(bytes);
    if done < bytes {
        let header = &control.header.0;
        let sender = sender(header).or_else(|| {
            moving::release_reserves(moved);
            self::sender(header)
        });
        if let Some(sender) = sender {
            done += send_all(segment, sender.fd(), tail + done, bytes - done).0;
        }
    }
    moved.rest_index.store(tail + done, Relaxed);
    moved.rest.store(bytes - done, Relaxed);
    done == bytes
}

/// Bytes of a cut that a sender has returned to the kernel before it died.
fn sent_before(moved: &Moved, control: &Control, fd: u64, epoch: u16) -> u64 {
    if control.before(epoch).is_none() {
        return 0;
    }
    let base = control.base();
    if moved.kind() != Some(Kind::Tcp) {
        let left = base.saturating_sub(moved.index.load(Relaxed));
        return if moved.is_counted.load(Relaxed) == 0 { 0 } else { unread_bytes(fd).saturating_sub(left) };
    }
    tcp_facts(fd).map_or(0, |facts| {
        let has_fin = verify::HAS_FIN.contains(&facts.state);
        facts.received.saturating_sub(base + u64::from(has_fin))
    })
}

/// Sends bytes of a ring. Returns how many were sent, and the error that ended it.
fn send_all(segment: PipeSegment, fd: u64, index: u64, bytes: u64) -> (u64, i64) {
    let mut done = 0;
    while done < bytes {
        match sys::send(segment, fd, index + done, bytes - done) {
            // The send buffer has capacity for a ring; the kernel may lack memory.
            pipe::AGAIN => sys::wait_writable(fd),
            sent if sent <= 0 => return (done, sent),
            sent => done += sent as u64,
        }
    }
    (done, 0)
}

/// Reads what a dead sender has left in the ring, behind what is in the kernel.
#[cold]
pub fn read_rest(moved: &Moved, segment: PipeSegment, fd: u64, vectors: &Vectors) -> PipeProgress {
    if unread_bytes(fd) > 0 {
        return PipeProgress::default();
    }
    let (index, rest) = (moved.rest_index.load(Relaxed), moved.rest.load(Relaxed));
    let bytes = rest.min(vectors.bytes);
    transfer::get(segment, index, vectors, bytes);
    let progress = PipeProgress { in_ring: bytes, ..PipeProgress::default() }.done();
    if vectors.peeks() {
        return progress;
    }
    moved.rest_index.store(index + bytes, Relaxed);
    moved.rest.store(rest - bytes, Relaxed);
    if rest == bytes {
        transfer::thaw(segment.control());
    }
    progress
}
