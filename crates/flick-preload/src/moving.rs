//! The pipes and connections of this process that move: their segments, when one is taken over, and the way back for
//! good. A connection is two directions, which move and leave together.
//! Promises: a call that is not followed finds all bytes in the kernel; a process that forks, runs another program or
//! ends has left its rings before.
//! Refuses: processes with several threads; an end that has another descriptor in this process or elsewhere.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::calls::{Call, HookDecision};
use crate::limits::{MOVE_CALLS_MIN, MOVED_MAX, PIPE_BYTES};
use crate::numbers as nr;
use crate::ring::{MAGIC, PipeEnd, PipeHeader};
use crate::socket;
use crate::state::{File, FileRef, Kind, ProcessTable, flag, kept};
use crate::sys::pipe::{self as sys, PipeSegment, Vectors};
use crate::sys::{ProgramMemory, close, socket as sys_socket};
use crate::transfer::{self, PipeProgress, Polling};

/// A pipe of this process, or a direction of a connection, with a segment. All fields but the words of the segment are
/// this process's own.
#[derive(Debug)]
pub struct Moved {
    /// The segment; 0: the slot is free.
    segment: AtomicU64,
    /// A [`FileRef`].
    file: AtomicU64,
    /// A descriptor of it.
    pub fd: AtomicU32,
    /// A descriptor of the library's own, in place of which the writable end is opened if no other is free. 0: none.
    reserve: AtomicU32,
    /// A [`PipeEnd`].
    role: AtomicU32,
    /// A [`Kind`].
    kind: AtomicU32,
    /// 1: a call is in the ring, or has left it by `siglongjmp`.
    busy: AtomicU32,
    /// The epoch in which the receiver has found the kernel's pipe empty.
    pub epoch: AtomicU32,
    /// This end's index: bytes through the kernel count too.
    pub index: AtomicU64,
    /// 1: the receiver's index is that of the sender, since both were in a ring.
    pub is_counted: AtomicU32,
    /// Sends since the sender has entered the ring; reads since the receiver has slept.
    pub sends: AtomicU64,
    /// Sleeps of the receiver that came after few reads.
    pub poor: AtomicU32,
    /// Writes through the kernel before the next attempt to enter.
    pub skip: AtomicU32,
    /// Attempts that were in vain, or not worth it.
    pub fails: AtomicU32,
    /// When the sender has last looked whether the receiver is alive.
    pub looked: AtomicU64,
    /// Whether its waits poll.
    pub polling: Polling,
    /// Bytes of a ring that cannot be returned to the kernel, since the sender is dead: they are read from the ring.
    pub rest: AtomicU64,
    /// The index of the first of them.
    pub rest_index: AtomicU64,
    /// 1: calls do not wait.
    pub nonblocking: AtomicU32,
    /// Index of the last edge that `epoll_wait` has reported of a receiver, and 1. 0: the next bytes are one.
    edge_reported: AtomicU64,
    /// 1: a send was refused beside the kernel, so that `epoll_wait` tells when more can be sent.
    refused: AtomicU32,
    /// The error that bytes have met which were returned to the kernel; the next send reports it. 0: none.
    pub error: AtomicU32,
}

impl Moved {
    const fn new() -> Self {
        Self {
            segment: AtomicU64::new(0),
            file: AtomicU64::new(0),
            fd: AtomicU32::new(0),
            reserve: AtomicU32::new(0),
            role: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            index: AtomicU64::new(0),
            is_counted: AtomicU32::new(0),
            sends: AtomicU64::new(0),
            poor: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            fails: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            polling: Polling::new(),
            rest: AtomicU64::new(0),
            rest_index: AtomicU64::new(0),
            error: AtomicU32::new(0),
            nonblocking: AtomicU32::new(0),
            edge_reported: AtomicU64::new(0),
            refused: AtomicU32::new(0),
        }
    }

    /// Begins a direction in the kernel. Its first readiness is an edge.
    fn reset(&self) {
        for word in
            [&self.busy, &self.poor, &self.epoch, &self.skip, &self.fails, &self.error, &self.is_counted]
        {
            word.store(0, Relaxed);
        }
        for word in [&self.index, &self.sends, &self.looked, &self.rest] {
            word.store(0, Relaxed);
        }
        self.polling.reset();
        self.arm();
    }

    /// The segment, unless the slot is free.
    #[inline]
    pub fn segment(&self) -> Option<PipeSegment> {
        PipeSegment::from_word(self.segment.load(Relaxed))
    }

    /// The kind of the file.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::of(self.kind.load(Relaxed))
    }

    /// Whether it is a direction of a connection.
    #[inline]
    pub fn is_socket(&self) -> bool {
        matches!(self.kind(), Some(Kind::Tcp | Kind::Unix))
    }

    /// Whether the other end is gone, or sends no more.
    pub fn is_alone(&self, fd: u64) -> bool {
        if self.is_socket() { sys_socket::has_ended(fd) } else { sys::is_alone(fd) }
    }

    /// Whether a call on it has not come to its end.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) != 0
    }

    /// The file.
    pub fn file<'a>(&self, state: &'a ProcessTable) -> Option<&'a File> {
        state.file(FileRef::from_word(self.file.load(Relaxed)))
    }

    /// The next readiness is an edge: the program has asked for it.
    pub fn arm(&self) {
        self.edge_reported.store(0, Relaxed);
        self.refused.store(1, Relaxed);
    }

    /// Notes that a send was refused, of which the kernel knows nothing.
    pub fn refuse(&self) {
        self.refused.store(1, Relaxed);
    }

    /// Whether a send was refused since the last edge.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Relaxed) != 0
    }

    /// Whether the kernel takes more bytes.
    pub fn is_writable(&self) -> bool {
        sys_socket::is_writable(u64::from(self.fd.load(Relaxed)))
    }

    fn edge(&self) -> u64 {
        self.segment().map_or(0, |segment| segment.control().head.0.load(Acquire).wrapping_add(1))
    }

    /// Whether there is an edge that was not reported.
    pub fn has_edge(&self) -> bool {
        if self.role() == PipeEnd::Sender {
            self.is_refused()
        } else {
            self.edge_reported.load(Relaxed) != self.edge()
        }
    }

    /// Notes that the edge was reported.
    pub fn note_edge(&self) {
        if self.role() == PipeEnd::Sender {
            self.refused.store(0, Relaxed);
        } else {
            self.edge_reported.store(self.edge(), Relaxed);
        }
    }

    /// Closes the descriptor that is kept.
    pub fn release_reserve(&self) {
        let reserve = self.reserve.swap(0, Relaxed);
        if reserve != 0 {
            close(u64::from(reserve));
        }
    }

    /// The end that this process holds.
    pub fn role(&self) -> PipeEnd {
        if self.role.load(Relaxed) == PipeEnd::Sender as u32 { PipeEnd::Sender } else { PipeEnd::Receiver }
    }
}

/// The slots. A thread and its signal handlers are the only ones that use them.
static MOVED: [Moved; MOVED_MAX] = [const { Moved::new() }; MOVED_MAX];
/// Slots in use.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether a file has a slot, so that other calls on files have to be looked at.
pub fn has_moved() -> bool {
    COUNT.load(Relaxed) != 0
}

fn slot(word: &AtomicU32) -> Option<&'static Moved> {
    (word.load(Relaxed) as usize).checked_sub(1).and_then(|index| MOVED.get(index))
}

/// The slots in use.
pub fn all() -> impl Iterator<Item = &'static Moved> {
    MOVED.iter().filter(|moved| moved.segment.load(Relaxed) != 0)
}

/// The slots of a file.
pub fn slots_of(file: &File) -> impl Iterator<Item = &'static Moved> + use<> {
    [slot(&file.moved), slot(&file.moved_out)].into_iter().flatten()
}

/// The slot of one direction of a file.
#[inline]
fn slot_of(file: &File, role: PipeEnd) -> Option<&'static Moved> {
    let has_two = file.moved_out.load(Relaxed) != 0 && role == PipeEnd::Sender;
    slot(if has_two { &file.moved_out } else { &file.moved }).filter(|moved| moved.role() == role)
}

/// Closes the descriptors that are kept for the directions of a file.
pub fn release_reserves(moved: &Moved) {
    let file = moved.file.load(Relaxed);
    MOVED.iter().filter(|other| other.file.load(Relaxed) == file).for_each(Moved::release_reserve);
}

/// The end that a call uses.
fn role_of(number: u32) -> PipeEnd {
    if matches!(number, nr::READ | nr::READV | nr::RECVFROM | nr::RECVMSG) {
        PipeEnd::Receiver
    } else {
        PipeEnd::Sender
    }
}

fn is_socket(file: &File) -> bool {
    ProcessTable::is_connection(file.kind.load(Relaxed), file.flags.load(Relaxed))
}

/// Makes a call through the ring of a file, if it has one. `None`: the kernel is to make it.
#[inline]
pub fn transfer(
    state: &ProcessTable,
    found: FileRef,
    call: &mut Call,
    memory: ProgramMemory,
) -> Option<HookDecision> {
    let file = state.file(found)?;
    if file.moved.load(Relaxed) == 0 {
        if file.offer.is_ready.load(Acquire) == 0 {
            return None;
        }
        take_offer(state, found, file, call.arguments()[0]);
    }
    let (number, arguments) = (call.number(), call.arguments());
    let moved = slot_of(file, role_of(number))?;
    let vectors = if moved.is_socket() {
        sys_socket::bytes_of(number, arguments, memory)
    } else {
        Vectors::of(number, arguments, memory)
    };
    let Some(vectors) = vectors else {
        leave(state, file, kept::LEFT);
        return None;
    };
    if vectors.bytes == 0 {
        return None;
    }
    let segment = moved.segment().filter(|_| moved.file.load(Relaxed) == found.into_word())?;
    if moved.busy.swap(1, Relaxed) != 0 {
        // A signal handler within a call of this pipe, or a call after one that a handler has left.
        leave(state, file, kept::LEFT);
        return None;
    }
    moved.fd.store(arguments[0] as u32, Relaxed);
    let blocks = moved.nonblocking.load(Relaxed) == 0 && flags_of(number, arguments) & nr::MSG_DONTWAIT == 0;
    let progress = match moved.role() {
        PipeEnd::Sender => transfer::send(moved, segment, number, arguments, &vectors, blocks),
        PipeEnd::Receiver => transfer::receive(moved, segment, arguments[0], &vectors, blocks),
    };
    moved.busy.store(0, Relaxed);
    let control = segment.control();
    if control.look().is_dead() || control.header.0.revoked.load(Relaxed) != 0 {
        leave(state, file, kept::LEFT);
    }
    if number == nr::RECVMSG && progress.is_done && progress.error == 0 {
        sys_socket::complete_message(memory, arguments[1]);
    }
    state.ring_bytes.fetch_add(progress.in_ring, Relaxed);
    account(file, moved, arguments[0], &vectors, progress).map(|result| {
        call.result = result;
        HookDecision::Done
    })
}

/// The flags of a message that is sent or received.
fn flags_of(number: u32, arguments: [u64; 6]) -> u64 {
    match number {
        nr::SENDTO | nr::RECVFROM => arguments[3],
        nr::SENDMSG | nr::RECVMSG => arguments[2],
        _ => 0,
    }
}

/// The program has set whether calls on a file wait.
pub fn set_nonblocking(state: &ProcessTable, found: FileRef, is_set: bool) {
    let Some(file) = state.file(found) else { return };
    slots_of(file).for_each(|moved| moved.nonblocking.store(u32::from(is_set), Relaxed));
}

/// Counts what a call has moved, and moves the rest through the kernel. `None`: the kernel is to make the whole call.
fn account(file: &File, slot: &Moved, fd: u64, vectors: &Vectors, progress: PipeProgress) -> Option<i64> {
    let PipeProgress { in_ring, in_kernel, error, is_done } = progress;
    let mut moved = in_ring + in_kernel;
    if !is_done && moved == 0 {
        return None;
    }
    file.ring_bytes.fetch_add(in_ring, Relaxed);
    if !is_done {
        vectors.ranges(moved, vectors.bytes - moved, |address, bytes| {
            let written = sys::write(fd, address, bytes, vectors.flags);
            slot.index.fetch_add(u64::try_from(written).unwrap_or_default(), Relaxed);
            moved += u64::try_from(written).unwrap_or_default();
            written == bytes as i64
        });
    }
    let counter = if slot.role() == PipeEnd::Sender { &file.sent } else { &file.received };
    counter.fetch_add(moved, Relaxed);
    Some(if moved > 0 { moved as i64 } else { error })
}

/// Whether the stream of a connection has ended because the other process has died with bytes unread in the ring, which
/// the kernel would have answered with a reset. The connection has left the ring then.
pub fn was_reset(state: &ProcessTable, file: &File, fd: u64) -> bool {
    let was_reset = slot(&file.moved_out).is_some_and(|moved| {
        moved.segment().is_some_and(|segment| segment.control().has_unread()) && moved.is_alone(fd)
    });
    if was_reset {
        leave(state, file, kept::LEFT);
    }
    was_reset
}

/// Counts a call that the kernel has made, and lets the monitor know of a pipe or a connection that is used.
pub fn count_call(state: &ProcessTable, file: &File, call: &Call, bytes: u64) {
    let is_pipe = [Kind::PipeRead as u32, Kind::PipeWrite as u32].contains(&file.kind.load(Relaxed));
    if state.moves.load(Relaxed) == 0 || !is_pipe && !is_socket(file) {
        return;
    }
    if let Some(moved) = slot_of(file, role_of(call.number())) {
        moved.index.fetch_add(bytes, Relaxed);
    }
    let calls = file.calls.load(Relaxed).wrapping_add(1);
    file.calls.store(calls, Relaxed);
    let is_in_kernel = file.moved.load(Relaxed) == 0 && file.offer.is_ready.load(Relaxed) == 0;
    if calls >= MOVE_CALLS_MIN && calls.is_power_of_two() && is_in_kernel && may_move(state) {
        if !is_pipe {
            socket::identify(file, call.arguments()[0]);
        }
        sys::knock(state.pid.load(Relaxed));
    }
}

fn may_move(state: &ProcessTable) -> bool {
    state.moves.load(Relaxed) != 0 && state.stays.load(Relaxed) == 0 && state.not_followed.load(Relaxed) == 0
}

/// Takes the segment that the monitor offers, unless something has changed since it looked.
#[cold]
fn take_offer(state: &ProcessTable, found: FileRef, file: &File, fd: u64) {
    let offer = &file.offer;
    let is_of_now = offer.serial.load(Relaxed) == found.serial()
        && offer.epoch.load(Relaxed) == state.fork_epoch.load(Relaxed)
        && file.flags.load(Relaxed) & (flag::SHARED | flag::IN_EPOLL) == 0;
    let from = |fd: &AtomicU32| (offer.monitor.load(Relaxed), fd.load(Relaxed));
    let (offered, offered_out) = (from(&offer.fd), from(&offer.fd_out));
    offer.is_ready.store(0, Relaxed);
    let is_writer = file.kind.load(Relaxed) == Kind::PipeWrite as u32;
    let role = if is_writer { PipeEnd::Sender } else { PipeEnd::Receiver };
    let why = if !may_move(state) || !is_of_now || file.refs.load(Relaxed) != 1 {
        kept::LEFT
    } else if is_socket(file) {
        attach_socket(state, found, file, fd, (offered, offered_out)).err().unwrap_or(kept::NONE)
    } else if !sys::is_plain_pipe(fd, PIPE_BYTES) || !can_return(role, fd) {
        kept::SETTINGS
    } else {
        let is_own = |header: &PipeHeader| is_own_pipe(header, file, role);
        match attach(found, file, role, fd, offered, is_own) {
            Some(moved) => {
                if role == PipeEnd::Sender {
                    moved.release_reserve();
                }
                kept::NONE
            }
            None => kept::SEGMENT,
        }
    };
    file.kept.store(why, Relaxed);
}

/// Whether the segment of a pipe is meant for this process's end.
fn is_own_pipe(header: &PipeHeader, file: &File, role: PipeEnd) -> bool {
    let holder = if role == PipeEnd::Sender { &header.sender } else { &header.receiver };
    header.device.load(Relaxed) == file.id.load(Relaxed)
        && header.inode.load(Relaxed) == file.inode.load(Relaxed)
        && holder.load(Relaxed) == crate::sys::process_id()
}

/// Takes over the segments of both directions of a connection, or none.
///
/// Errors: a reason of [`kept`].
fn attach_socket(
    state: &ProcessTable,
    found: FileRef,
    file: &File,
    fd: u64,
    offers: ((u32, u32), (u32, u32)),
) -> Result<(), u32> {
    let kind = Kind::of(file.kind.load(Relaxed)).ok_or(kept::SETTINGS)?;
    if !sys_socket::is_plain(fd, kind) || !sys::can_sleep() || !sys::register_barrier() {
        return Err(kept::SETTINGS);
    }
    if !socket::is_counted(state, file, fd) {
        return Err(kept::COUNTS);
    }
    let is_own = |header: &PipeHeader| socket::is_own(header, file, PipeEnd::Receiver, fd);
    attach(found, file, PipeEnd::Receiver, fd, offers.0, is_own).ok_or(kept::PEER_SOCKET)?;
    let is_own = |header: &PipeHeader| socket::is_own(header, file, PipeEnd::Sender, fd);
    if attach(found, file, PipeEnd::Sender, fd, offers.1, is_own).is_none() {
        leave(state, file, kept::SEGMENT);
        return Err(kept::SEGMENT);
    }
    Ok(())
}

/// Whether this process can do all that leaving the ring needs.
fn can_return(role: PipeEnd, fd: u64) -> bool {
    if role == PipeEnd::Receiver {
        let Some(sender) = sys::open_sender(fd) else { return false };
        close(sender);
    }
    sys::can_sleep() && sys::register_barrier()
}

fn attach(
    found: FileRef,
    file: &File,
    role: PipeEnd,
    fd: u64,
    offer: (u32, u32),
    is_own: impl Fn(&PipeHeader) -> bool,
) -> Option<&'static Moved> {
    let index = MOVED.iter().position(|moved| moved.segment.load(Relaxed) == 0)?;
    let moved = MOVED.get(index)?;
    let (segment, reserve) = PipeSegment::map(offer.0, offer.1)?;
    let header = &segment.control().header.0;
    if header.magic.load(Relaxed) != MAGIC || !is_own(header) {
        close(reserve);
        segment.unmap();
        return None;
    }
    moved.reserve.store(reserve as u32, Relaxed);
    moved.reset();
    moved.nonblocking.store(u32::from(!sys::is_blocking(fd)), Relaxed);
    moved.file.store(found.into_word(), Relaxed);
    moved.fd.store(fd as u32, Relaxed);
    moved.role.store(role as u32, Relaxed);
    moved.kind.store(file.kind.load(Relaxed), Relaxed);
    moved.segment.store(segment.into_word(), Relaxed);
    COUNT.fetch_add(1, Relaxed);
    let has_two = moved.is_socket() && role == PipeEnd::Sender;
    let word = if has_two { &file.moved_out } else { &file.moved };
    word.store(index as u32 + 1, Relaxed);
    segment.control().shared.0.attached.fetch_or(role as u32, AcqRel);
    Some(moved)
}

/// Returns a file to the kernel for good, or until the monitor offers another segment.
#[cold]
fn leave(state: &ProcessTable, file: &File, why: u32) {
    for word in [&file.moved_out, &file.moved] {
        let Some(moved) = slot(word) else { continue };
        let Some(segment) = moved.segment() else { continue };
        segment.control().end();
        transfer::leave(moved, segment, u64::from(moved.fd.load(Relaxed)));
        // What a dead sender has left stays in the ring, and is read there.
        if moved.rest.load(Relaxed) == 0 || why == kept::CLOSED {
            release(moved, segment);
            word.store(0, Relaxed);
        }
    }
    let stays = state.stays.load(Relaxed);
    file.kept.store(if stays == 0 { why } else { stays }, Relaxed);
}

/// Gives the slot and the segment up.
fn release(moved: &Moved, segment: PipeSegment) {
    moved.release_reserve();
    // The call that a signal has interrupted is still in the segment; its slot is lost.
    if moved.busy.load(Relaxed) == 0 {
        moved.segment.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
        segment.unmap();
    }
}

/// Returns the file of a descriptor to the kernel.
pub fn leave_file(state: &ProcessTable, found: FileRef) {
    if !has_moved() {
        return;
    }
    if let Some(file) = state.file(found) {
        leave_moved(state, file, kept::LEFT);
    }
}

/// Returns a file to the kernel, if it is in a ring.
pub fn leave_moved(state: &ProcessTable, file: &File, why: u32) {
    if slots_of(file).next().is_some() {
        leave(state, file, why);
    }
}

/// Returns the file of a descriptor that is closed to the kernel, if it is the last one or the one that is used.
pub fn closing(state: &ProcessTable, file: &File, fd: u64) {
    let is_last = file.refs.load(Relaxed) == 1;
    let is_used = |moved: &Moved| moved.is_socket() || u64::from(moved.fd.load(Relaxed)) == fd;
    if slots_of(file).any(|moved| is_last || is_used(moved)) {
        leave(state, file, if is_last { kept::CLOSED } else { kept::LEFT });
    }
}

/// The program closes descriptors of these numbers, or replaces one: those of the library are its own no more.
pub fn closing_numbers(first: u64, last: u64) {
    if has_moved() {
        for moved in &MOVED {
            if (first..=last).contains(&u64::from(moved.reserve.load(Relaxed))) {
                moved.reserve.store(0, Relaxed);
            }
        }
    }
}

/// Returns everything to the kernel.
pub fn leave_all(state: &ProcessTable) {
    if !has_moved() {
        return;
    }
    for moved in &MOVED {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if moved.segment().is_some()
            && let Some(file) = state.file(file)
        {
            leave_moved(state, file, kept::LEFT);
        }
    }
}

/// Returns everything to the kernel, and keeps it and later files there.
pub fn stay(state: &ProcessTable, why: u32) {
    state.stays.store(why, Relaxed);
    leave_all(state);
}

/// Returns a file to the kernel of which this process has got another end that it uses.
pub fn leave_same(state: &ProcessTable, id: (u64, u64)) {
    if !has_moved() {
        return;
    }
    for moved in &MOVED {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if let Some(file) = state.file(file).filter(|_| moved.segment().is_some())
            && file.id.load(Relaxed) == id.0
            && (is_socket(file) || file.inode.load(Relaxed) == id.1)
        {
            leave_moved(state, file, kept::HOLDERS);
        }
    }
}
