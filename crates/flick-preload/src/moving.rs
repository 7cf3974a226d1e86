//! The pipes of this process that move: their segments, when one is taken over, and the way back for good.
//! Promises: a call that is not followed finds all bytes in the kernel; a process that forks, runs another program or
//! ends has left its rings before.
//! Refuses: processes with several threads; an end that has another descriptor in this process or elsewhere.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::calls::{Call, HookDecision};
use crate::limits::{MOVE_CALLS_MIN, MOVED_MAX, PIPE_BYTES};
use crate::ring::{MAGIC, PipeEnd};
use crate::state::{File, FileRef, Kind, ProcessTable, flag, kept};
use crate::sys::pipe::{self as sys, PipeSegment, Vectors};
use crate::sys::{ProgramMemory, close};
use crate::transfer::{self, PipeProgress};

/// A pipe of this process with a segment. All fields but the words of the segment are this process's own.
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
    /// Waits that sleep at once.
    pub poll_skip: AtomicU32,
    /// The next number of such waits.
    pub poll_skips: AtomicU32,
}

impl Moved {
    const fn new() -> Self {
        Self {
            segment: AtomicU64::new(0),
            file: AtomicU64::new(0),
            fd: AtomicU32::new(0),
            reserve: AtomicU32::new(0),
            role: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            index: AtomicU64::new(0),
            is_counted: AtomicU32::new(0),
            sends: AtomicU64::new(0),
            poor: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            fails: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            poll_skip: AtomicU32::new(0),
            poll_skips: AtomicU32::new(0),
        }
    }

    /// The segment, unless the slot is free.
    #[inline]
    pub fn segment(&self) -> Option<PipeSegment> {
        PipeSegment::from_word(self.segment.load(Relaxed))
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

/// Whether a pipe has a slot, so that other calls on pipes have to be looked at.
pub fn has_moved() -> bool {
    COUNT.load(Relaxed) != 0
}

fn slot_of(file: &File) -> Option<&'static Moved> {
    (file.moved.load(Relaxed) as usize).checked_sub(1).and_then(|index| MOVED.get(index))
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
    let moved = slot_of(file)?;
    let (number, arguments) = (call.number(), call.arguments());
    let Some(vectors) = Vectors::of(number, arguments, memory) else {
        if arguments[2] != 0 {
            leave(state, moved, file, kept::LEFT);
        }
        return None;
    };
    let segment = moved.segment().filter(|_| moved.file.load(Relaxed) == found.into_word())?;
    if moved.busy.swap(1, Relaxed) != 0 {
        // A signal handler within a call of this pipe, or a call after one that a handler has left.
        leave(state, moved, file, kept::LEFT);
        return None;
    }
    moved.fd.store(arguments[0] as u32, Relaxed);
    let progress = match moved.role() {
        PipeEnd::Sender => transfer::send(moved, segment, number, arguments, &vectors),
        PipeEnd::Receiver => transfer::receive(moved, segment, arguments[0], &vectors),
    };
    moved.busy.store(0, Relaxed);
    let control = segment.control();
    if control.look().is_dead() || control.header.0.revoked.load(Relaxed) != 0 {
        leave(state, moved, file, kept::LEFT);
    }
    state.ring_bytes.fetch_add(progress.in_ring, Relaxed);
    account(file, moved, arguments[0], &vectors, progress).map(|result| {
        call.result = result;
        HookDecision::Done
    })
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
            let written = sys::write(fd, address, bytes);
            slot.index.fetch_add(u64::try_from(written).unwrap_or_default(), Relaxed);
            moved += u64::try_from(written).unwrap_or_default();
            written == bytes as i64
        });
    }
    let counter = if slot.role() == PipeEnd::Sender { &file.sent } else { &file.received };
    counter.fetch_add(moved, Relaxed);
    Some(if moved > 0 { moved as i64 } else { error })
}

/// Counts a call that the kernel has made, and lets the monitor know of a pipe that is used.
pub fn count_call(state: &ProcessTable, file: &File, bytes: u64) {
    if state.moves.load(Relaxed) == 0
        || ![Kind::PipeRead as u32, Kind::PipeWrite as u32].contains(&file.kind.load(Relaxed))
    {
        return;
    }
    if let Some(moved) = slot_of(file) {
        moved.index.fetch_add(bytes, Relaxed);
    }
    let calls = file.calls.load(Relaxed).wrapping_add(1);
    file.calls.store(calls, Relaxed);
    let is_in_kernel = file.moved.load(Relaxed) == 0 && file.offer.is_ready.load(Relaxed) == 0;
    if calls >= MOVE_CALLS_MIN && calls.is_power_of_two() && is_in_kernel && may_move(state) {
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
    let (monitor, number) = (offer.monitor.load(Relaxed), offer.fd.load(Relaxed));
    offer.is_ready.store(0, Relaxed);
    let role =
        if file.kind.load(Relaxed) == Kind::PipeWrite as u32 { PipeEnd::Sender } else { PipeEnd::Receiver };
    let why = if !may_move(state) || !is_of_now || file.refs.load(Relaxed) != 1 {
        kept::LEFT
    } else if !sys::is_plain_pipe(fd, PIPE_BYTES) || !can_return(role, fd) {
        kept::SETTINGS
    } else if attach(found, file, role, fd, (monitor, number)).is_none() {
        kept::SEGMENT
    } else {
        kept::NONE
    };
    file.kept.store(why, Relaxed);
}

/// Whether this process can do all that leaving the ring needs.
fn can_return(role: PipeEnd, fd: u64) -> bool {
    if role == PipeEnd::Receiver {
        let Some(sender) = sys::open_sender(fd) else { return false };
        close(sender);
    }
    sys::can_sleep() && sys::register_barrier()
}

fn attach(found: FileRef, file: &File, role: PipeEnd, fd: u64, offer: (u32, u32)) -> Option<()> {
    let index = MOVED.iter().position(|moved| moved.segment.load(Relaxed) == 0)?;
    let moved = MOVED.get(index)?;
    let (segment, reserve) = PipeSegment::map(offer.0, offer.1)?;
    let header = &segment.control().header.0;
    let holder = if role == PipeEnd::Sender { &header.sender } else { &header.receiver };
    let is_own = header.magic.load(Relaxed) == MAGIC
        && header.device.load(Relaxed) == file.id.load(Relaxed)
        && header.inode.load(Relaxed) == file.inode.load(Relaxed)
        && holder.load(Relaxed) == crate::sys::process_id();
    if !is_own {
        close(reserve);
        segment.unmap();
        return None;
    }
    if role == PipeEnd::Sender {
        close(reserve);
    }
    moved.reserve.store(if role == PipeEnd::Receiver { reserve as u32 } else { 0 }, Relaxed);
    for word in [
        &moved.busy,
        &moved.poor,
        &moved.epoch,
        &moved.skip,
        &moved.fails,
        &moved.poll_skip,
        &moved.poll_skips,
    ] {
        word.store(0, Relaxed);
    }
    moved.is_counted.store(0, Relaxed);
    for word in [&moved.index, &moved.sends, &moved.looked] {
        word.store(0, Relaxed);
    }
    moved.file.store(found.into_word(), Relaxed);
    moved.fd.store(fd as u32, Relaxed);
    moved.role.store(role as u32, Relaxed);
    moved.segment.store(segment.into_word(), Relaxed);
    COUNT.fetch_add(1, Relaxed);
    file.moved.store(index as u32 + 1, Relaxed);
    segment.control().shared.0.attached.fetch_or(role as u32, AcqRel);
    Some(())
}

/// Returns a pipe to the kernel for good, or until the monitor offers another segment.
#[cold]
fn leave(state: &ProcessTable, moved: &Moved, file: &File, why: u32) {
    let Some(segment) = moved.segment() else { return };
    segment.control().end();
    transfer::leave(moved, segment, u64::from(moved.fd.load(Relaxed)));
    moved.release_reserve();
    let stays = state.stays.load(Relaxed);
    file.kept.store(if stays == 0 { why } else { stays }, Relaxed);
    file.moved.store(0, Relaxed);
    // The call that a signal has interrupted is still in the segment; its slot is lost.
    if moved.busy.load(Relaxed) == 0 {
        moved.segment.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
        segment.unmap();
    }
}

/// Returns the pipe of a descriptor to the kernel.
pub fn leave_file(state: &ProcessTable, found: FileRef) {
    if !has_moved() {
        return;
    }
    if let Some(file) = state.file(found)
        && let Some(moved) = slot_of(file)
    {
        leave(state, moved, file, kept::LEFT);
    }
}

/// Returns the pipe of a descriptor that is closed to the kernel, if it is the last one or the one that is used.
pub fn closing(state: &ProcessTable, file: &File, fd: u64) {
    if let Some(moved) = slot_of(file)
        && (file.refs.load(Relaxed) == 1 || u64::from(moved.fd.load(Relaxed)) == fd)
    {
        leave(state, moved, file, kept::LEFT);
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

/// Returns all pipes to the kernel.
pub fn leave_all(state: &ProcessTable) {
    if !has_moved() {
        return;
    }
    for moved in &MOVED {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if moved.segment().is_some()
            && let Some(file) = state.file(file).filter(|file| file.moved.load(Relaxed) != 0)
        {
            leave(state, moved, file, kept::LEFT);
        }
    }
}

/// Returns all pipes to the kernel, and keeps them and later ones there.
pub fn stay(state: &ProcessTable, why: u32) {
    state.stays.store(why, Relaxed);
    leave_all(state);
}

/// Returns a pipe to the kernel of which this process has got another end that it uses.
pub fn leave_same(state: &ProcessTable, id: (u64, u64)) {
    if !has_moved() {
        return;
    }
    for moved in &MOVED {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if let Some(file) = state.file(file).filter(|_| moved.segment().is_some())
            && (file.id.load(Relaxed), file.inode.load(Relaxed)) == id
            && file.moved.load(Relaxed) != 0
        {
            leave(state, moved, file, kept::HOLDERS);
        }
    }
}
