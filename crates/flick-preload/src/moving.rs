//! The pipes and connections of this process that move: their segments, when one is taken over, and the way back for
//! good. A connection is two directions, which move and leave together.
//! Promises: a call that is not followed finds all bytes in the kernel; a process that forks, runs another program or
//! ends has left its rings before.
//! Refuses: an end that has another descriptor in this process or elsewhere; two threads that receive at a time
//! (`threads.rs`).

mod offers;
mod returning;
mod set;

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::calls::{Call, HookDecision};
use crate::limits::{MOVE_CALLS_MIN, MOVED_MAX, PARTED_NAP_NS, PARTED_NS_MAX};
use crate::numbers as nr;
use crate::polling::Polling;
use crate::raw::{parted_fd, set_parted_fd};
use crate::registrations;
use crate::ring::{PipeEnd, PipeState};
use crate::socket;
use crate::state::{File, FileRef, Kind, ProcessTable, flag, kept};
use crate::sys::pipe::{self as sys, PipeSegment, Vectors};
use crate::sys::{ProgramMemory, close, now_ns, socket as sys_socket};
use crate::threads::{self, Taking, Token};
use crate::transfer::{self, PipeProgress};
use crate::wake;
use returning::leave;

pub use returning::{
    closing, closing_all, closing_numbers, leave_all, leave_file, leave_moved, leave_same, replaced,
    replacing, stay,
};
pub use set::{MovedSet, SharedMovedSet};

/// A pipe of this process, or a direction of a connection, with a segment. All fields but the words of the segment are
/// this process's own.
#[derive(Debug)]
pub struct Moved {
    /// The segment; 0: the slot is free.
    segment: AtomicU64,
    /// The memory of its last segment, which the next one replaces: another thread may still look there.
    memory: AtomicU64,
    /// 1: the slot is given up once no thread has its token.
    is_retired: AtomicU32,
    /// A duplicate of the descriptor, for a call in the ring while which another thread closes it. 0: none.
    parted: AtomicU32,
    /// 1: the sender at the other end holds small sends back until earlier ones are acknowledged.
    holds_back: AtomicU32,
    /// Threads of this process that return bytes to the kernel, or try to.
    pub injecting: AtomicU32,
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
    /// Of the thread whose call is in the ring, or has left it by `siglongjmp`.
    pub token: Token,
    /// The epoch in which the receiver has found the kernel's pipe empty.
    pub epoch: AtomicU32,
    /// The word of the direction, as the last call in the ring has left it; while it is the same, so is all that call
    /// has made sure of (`fast.rs`). 0: the next call makes sure of it.
    pub fast: AtomicU32,
    /// The index of the other end, as this end has last seen it in that state.
    pub known: AtomicU64,
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
    /// 1: this end has slept beside the ring since the sender has looked.
    pub slept: AtomicU32,
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
    /// The receiver's event, as the sender knows it (`wake.rs`). 0: not yet.
    pub event: AtomicU64,
    /// The sender's descriptor of it. 0: none.
    pub event_fd: AtomicU32,
    /// The error that bytes have met which were returned to the kernel; the next send reports it. 0: none.
    pub error: AtomicU32,
}

impl Moved {
    const fn new() -> Self {
        Self {
            segment: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            is_retired: AtomicU32::new(0),
            parted: AtomicU32::new(0),
            holds_back: AtomicU32::new(0),
            injecting: AtomicU32::new(0),
            file: AtomicU64::new(0),
            fd: AtomicU32::new(0),
            reserve: AtomicU32::new(0),
            role: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            token: Token::new(),
            epoch: AtomicU32::new(0),
            fast: AtomicU32::new(0),
            known: AtomicU64::new(0),
            index: AtomicU64::new(0),
            is_counted: AtomicU32::new(0),
            sends: AtomicU64::new(0),
            poor: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            fails: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            slept: AtomicU32::new(0),
            polling: Polling::new(),
            rest: AtomicU64::new(0),
            rest_index: AtomicU64::new(0),
            error: AtomicU32::new(0),
            nonblocking: AtomicU32::new(0),
            edge_reported: AtomicU64::new(0),
            refused: AtomicU32::new(0),
            event: AtomicU64::new(0),
            event_fd: AtomicU32::new(0),
        }
    }

    /// Begins a direction in the kernel. Its first readiness is an edge.
    fn reset(&self) {
        for word in [&self.poor, &self.epoch, &self.skip, &self.fails] {
            word.store(0, Relaxed);
        }
        for word in [&self.error, &self.is_counted, &self.slept, &self.fast] {
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

    /// Whether bytes go through the ring, or the sender enters it.
    fn is_in_ring(&self) -> bool {
        self.segment().is_some_and(|segment| segment.control().look().state() != PipeState::Kernel)
    }

    /// Whether a call of this thread on it has not come to its end.
    pub fn is_busy(&self) -> bool {
        self.token.is_own()
    }

    /// Gives the token back. Gives the slot up if another thread has left it meanwhile.
    fn release(&self, state: &ProcessTable) {
        if threads::are_several(state) {
            self.token.release();
        } else {
            self.token.release_alone();
        }
        self.give_up_if_retired();
    }

    /// Gives the slot of a direction up that was left, unless a call is in it: then that one does.
    #[inline]
    pub fn give_up_if_retired(&self) {
        while self.is_retired.load(SeqCst) != 0 && self.token.try_take() {
            if self.is_retired.swap(0, SeqCst) != 0 {
                let segment = self.segment();
                self.segment.store(0, SeqCst);
                self.close_parted();
                wake::release(self);
                COUNT.fetch_sub(1, Relaxed);
                if let Some(segment) = segment {
                    segment.retire();
                }
            }
            self.token.release();
        }
    }

    /// Keeps the file for a call of another thread, while this one closes its descriptor: in the kernel that call would
    /// go on. Returns that thread and the duplicate with which it does.
    fn part(&self, fd: u64) -> Option<(u32, u64)> {
        let thread = self.token.other()?;
        let duplicate = sys::duplicate(fd)?;
        self.close_parted();
        self.parted.store(duplicate as u32, SeqCst);
        Some((thread, duplicate))
    }

    /// Waits, after the file has left, until such a thread's call goes on in the kernel or has ended. A signal that
    /// comes later ends it; one that comes before would run its handler only.
    fn await_parted(&self, (thread, duplicate): (u32, u64)) {
        let until = now_ns() + PARTED_NS_MAX;
        while self.is_retired.load(SeqCst) != 0
            && self.token.other() == Some(thread)
            && !sys::is_in_call(thread, duplicate)
            && now_ns() < until
        {
            sys::sleep(&AtomicU32::new(0), 0, PARTED_NAP_NS);
        }
    }

    fn close_parted(&self) {
        let parted = self.parted.swap(0, SeqCst);
        if parted != 0 {
            close(u64::from(parted));
        }
    }

    /// Whether it is the direction of this file, and none that was left.
    #[inline]
    pub fn is_of(&self, found: FileRef) -> bool {
        self.file.load(Relaxed) == found.into_word() && self.is_retired.load(Relaxed) == 0
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

/// The slots. Those with odd numbers are of senders: a thread that comes late to one finds the same end there.
static MOVED: [Moved; MOVED_MAX] = [const { Moved::new() }; MOVED_MAX];
/// Slots that were ever in use are below this number: the free one with the lowest number is taken.
static END: AtomicU32 = AtomicU32::new(0);
/// Slots in use.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether a file has a slot, so that other calls on files have to be looked at.
pub fn has_moved() -> bool {
    COUNT.load(Relaxed) != 0
}

fn slot(word: &AtomicU32) -> Option<&'static Moved> {
    (word.load(Relaxed) as usize).checked_sub(1).and_then(|index| MOVED.get(index))
}

/// The slots that were ever in use.
fn used() -> &'static [Moved] {
    MOVED.get(..END.load(Relaxed) as usize).unwrap_or(&MOVED)
}

/// The slots in use.
pub fn all() -> impl Iterator<Item = &'static Moved> {
    used().iter().filter(|moved| moved.segment.load(Relaxed) != 0 && moved.is_retired.load(Relaxed) == 0)
}

/// This is a forked process: nothing of it moves, and it does not have the memory of the segments.
pub fn forked() {
    threads::forked();
    wake::forked();
    registrations::forked();
    COUNT.store(0, Relaxed);
    for moved in &MOVED {
        moved.token.reset();
        for word in [&moved.segment, &moved.memory, &moved.file, &moved.event] {
            word.store(0, Relaxed);
        }
        for word in [&moved.is_retired, &moved.parted, &moved.injecting, &moved.reserve, &moved.event_fd] {
            word.store(0, Relaxed);
        }
    }
}

/// The slots of a file.
pub fn slots_of(file: &File) -> impl Iterator<Item = &'static Moved> + use<> {
    [slot(&file.moved), slot(&file.moved_out)].into_iter().flatten()
}

/// The slot of one direction of a file.
#[inline]
pub fn slot_of(file: &File, role: PipeEnd) -> Option<&'static Moved> {
    let has_two = file.moved_out.load(Relaxed) != 0 && role == PipeEnd::Sender;
    slot(if has_two { &file.moved_out } else { &file.moved }).filter(|moved| moved.role() == role)
}

/// Closes the descriptors that are kept for the directions of a file.
pub fn release_reserves(moved: &Moved) {
    let file = moved.file.load(Relaxed);
    used().iter().filter(|other| other.file.load(Relaxed) == file).for_each(Moved::release_reserve);
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
    let role = role_of(call.number());
    if state.moves.load(Relaxed) == 0 {
        return None;
    }
    let calls = threads::calls_at(file, role);
    let others = threads::begin_call(state, calls);
    if role == PipeEnd::Receiver && others > 0 && has_slot_or_offer(file) {
        // One would sleep in the kernel while bytes come by the ring.
        second_receives(state, file);
    }
    let decision = transfer_alone(state, (found, file), role, call, memory);
    if decision.is_some() {
        threads::end_call(state, calls);
    } else {
        call.set_counted();
    }
    decision
}

fn has_slot_or_offer(file: &File) -> bool {
    file.moved.load(SeqCst) != 0 || file.offer.is_ready.load(Acquire) != 0
}

/// Makes a call of the one thread that receives, or of one of those that send.
#[inline]
fn transfer_alone(
    state: &ProcessTable,
    (found, file): (FileRef, &File),
    role: PipeEnd,
    call: &mut Call,
    memory: ProgramMemory,
) -> Option<HookDecision> {
    if file.moved.load(Relaxed) == 0 {
        if file.offer.is_ready.load(Acquire) == 0 {
            return None;
        }
        offers::take_offer(state, found, file, call.arguments()[0]);
    }
    let (number, arguments) = (call.number(), call.arguments());
    loop {
        let moved = slot_of(file, role)?;
        let vectors = if moved.is_socket() {
            sys_socket::bytes_of(moved.kind(), number, arguments, memory)
        } else {
            Vectors::of(number, arguments, memory)
        };
        let Some(vectors) = vectors else {
            leave(state, file, kept::LEFT);
            return None;
        };
        if vectors.bytes == 0 {
            if matches!(number, nr::RECVFROM | nr::RECVMSG) {
                // It waits in the kernel until there is a byte to receive.
                return_awaited(file);
            }
            return None;
        }
        let blocks =
            moved.nonblocking.load(Relaxed) == 0 && flags_of(number, arguments) & nr::MSG_DONTWAIT == 0;
        let is_several = threads::are_several(state) && role == PipeEnd::Sender;
        if is_several {
            // Those who wait for the token are not in the kernel.
            file.sending.fetch_sub(1, SeqCst);
        }
        let taking = moved.token.take(blocks);
        let (mut decision, mut leaves) = (None, false);
        match taking {
            Taking::Taken => {
                (decision, leaves) = use_ring(state, (found, file), moved, (call, &vectors, blocks), memory);
            }
            Taking::Busy => {
                moved.refuse();
                call.result = sys::AGAIN;
                decision = Some(HookDecision::Done);
            }
            // A signal handler within a call of this pipe, or a call after one that was left in the middle.
            Taking::Nested | Taking::Kept => leaves = true,
        }
        if is_several {
            file.sending.fetch_add(1, SeqCst);
        }
        if taking == Taking::Taken {
            moved.release(state);
        }
        if leaves {
            leave(state, file, kept::LEFT);
        }
        // A sender may have waited while others have left this slot and entered another one.
        let is_same = |slot: &Moved| core::ptr::eq(slot, moved);
        if decision.is_some() || !is_several || slot_of(file, role).is_none_or(is_same) {
            return decision;
        }
    }
}

/// Makes a call through the ring of a direction whose token this thread has. Also returns whether the file is to leave
/// its rings for good.
#[inline]
fn use_ring(
    state: &ProcessTable,
    (found, file): (FileRef, &File),
    moved: &Moved,
    (call, vectors, blocks): (&mut Call, &Vectors, bool),
    memory: ProgramMemory,
) -> (Option<HookDecision>, bool) {
    let Some(segment) = moved.segment().filter(|_| moved.is_of(found)) else { return (None, false) };
    let (number, arguments) = (call.number(), call.arguments());
    moved.fd.store(arguments[0] as u32, Relaxed);
    let progress = match moved.role() {
        PipeEnd::Sender => {
            // A process with one thread counts this call, too: another one is that which a signal handler interrupts.
            let is_alone = file.sending.load(SeqCst) <= u32::from(!threads::are_several(state));
            transfer::send(moved, segment, number, arguments, vectors, (blocks, is_alone))
        }
        PipeEnd::Receiver => transfer::receive(moved, segment, arguments[0], vectors, blocks),
    };
    let control = segment.control();
    let leaves = control.look().is_dead() || control.header.0.revoked.load(Relaxed) != 0;
    if progress.is_done && progress.error == 0 {
        sys_socket::complete(number, arguments, memory);
    }
    let are_several = threads::are_several(state);
    let in_ring = if vectors.peeks() { 0 } else { progress.in_ring };
    threads::add(&state.ring_bytes, in_ring, are_several);
    // The thread that has stored a number has changed the direction's state behind it: a call that needs it sees that.
    let parted = if moved.parted.load(Acquire) == 0 { 0 } else { moved.parted.swap(0, SeqCst) };
    let fd = if parted == 0 { arguments[0] } else { u64::from(parted) };
    let mut result = account(file, moved, (fd, are_several), vectors, progress);
    if parted != 0 {
        // The program has closed the descriptor while the call was in the ring.
        let [_, b, c, d, e, f] = arguments;
        set_parted_fd(parted);
        result = result.or_else(|| Some(sys::repeat(number, [fd, b, c, d, e, f])));
        set_parted_fd(0);
        close(fd);
    }
    let decision = result.map(|result| {
        call.result = result;
        HookDecision::Done
    });
    (decision, leaves)
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
fn account(
    file: &File,
    slot: &Moved,
    (fd, are_several): (u64, bool),
    vectors: &Vectors,
    progress: PipeProgress,
) -> Option<i64> {
    let PipeProgress { in_ring, in_kernel, error, is_done } = progress;
    let mut moved = in_ring + in_kernel;
    if !is_done && moved == 0 {
        return None;
    }
    if vectors.peeks() {
        return Some(if moved > 0 { moved as i64 } else { error });
    }
    threads::add(&file.ring_bytes, in_ring, are_several);
    if !is_done {
        file.sending.fetch_add(1, SeqCst);
        vectors.ranges(moved, vectors.bytes - moved, |address, bytes| {
            let written = sys::write(fd, address, bytes, vectors.flags);
            moved += u64::try_from(written).unwrap_or_default();
            written == bytes as i64
        });
        file.sending.fetch_sub(1, SeqCst);
    }
    let counter = if slot.role() == PipeEnd::Sender { &file.sent } else { &file.received };
    threads::add(counter, moved, are_several);
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
    if role_of(call.number()) == PipeEnd::Receiver
        && let Some(moved) = slot_of(file, PipeEnd::Receiver)
    {
        count_received(state, (file, call.arguments()[0]), moved, bytes);
    }
    let calls = file.calls.fetch_add(1, Relaxed).wrapping_add(1);
    let is_in_kernel = file.moved.load(Relaxed) == 0 && file.offer.is_ready.load(Relaxed) == 0;
    if calls >= MOVE_CALLS_MIN
        && calls.is_power_of_two()
        && is_in_kernel
        && may_move(state)
        && !threads::keep_in_kernel(file)
    {
        if !is_pipe {
            socket::identify(file, call.arguments()[0]);
        }
        // What the monitor sees before is refused.
        threads::forget_forkers(state);
        sys::knock(state.pid.load(Relaxed));
    }
}

/// Counts bytes that were received through the kernel. If another thread waits in the kernel for more, and the sender
/// has entered the ring by these, it would not wake.
fn count_received(state: &ProcessTable, (file, fd): (&File, u64), moved: &Moved, bytes: u64) {
    let is_in_ring = moved.is_in_ring();
    if bytes > 0 && moved.holds_back.load(Relaxed) != 0 && slots_of(file).any(Moved::is_in_ring) {
        // No answer through the kernel brings the acknowledgement for which the other end waits to send again.
        sys_socket::acknowledge(fd);
    }
    // Another thread has the token only if it leaves the ring; else the slot is this file's as long as this one has it.
    if moved.token.try_take() {
        if moved.file(state).is_some_and(|own| core::ptr::eq(own, file)) {
            moved.index.fetch_add(bytes, Relaxed);
        }
        moved.release(state);
    }
    if is_in_ring {
        // The read was short where the ring begins: the program waits for the next edge, although bytes are there.
        moved.arm();
    }
    if is_in_ring && bytes > 0 && threads::are_several(state) && threads::is_awaited(file) {
        keep_in_kernel(state, file);
    }
}

/// Returns a file to the kernel for good: its threads use it in a way that a ring does not serve.
#[cold]
pub fn keep_in_kernel(state: &ProcessTable, file: &File) {
    file.flags.fetch_or(flag::BY_THREADS, SeqCst);
    leave(state, file, kept::THREADS);
}

/// A second call receives at a time: another thread's, or that which a signal handler has interrupted.
#[cold]
fn second_receives(state: &ProcessTable, file: &File) {
    if threads::are_several(state) {
        keep_in_kernel(state, file);
    } else {
        leave(state, file, kept::LEFT);
    }
}

/// Returns all files to the kernel that have to stay there.
#[cold]
pub fn keep_all_in_kernel(state: &ProcessTable) {
    for moved in all() {
        if let Some(file) = moved.file(state).filter(|file| threads::keep_in_kernel(file)) {
            keep_in_kernel(state, file);
        }
    }
}

/// A thread has made its call in the kernel.
pub fn uncount(state: &ProcessTable, file: &File, number: u32) {
    threads::end_call(state, threads::calls_at(file, role_of(number)));
}

/// A file is read or written by a call that is not followed. Returns whether the call is counted, so that no signal
/// handler lets the file move before it has ended. Threads in such calls are not counted.
pub fn use_otherwise(state: &ProcessTable, file: &File, number: u32) -> bool {
    if threads::are_several(state) {
        keep_in_kernel(state, file);
        return false;
    }
    let is_counted = state.moves.load(Relaxed) != 0;
    if is_counted {
        threads::begin_call(state, threads::calls_at(file, role_of(number)));
    }
    leave_moved(state, file, kept::LEFT);
    is_counted
}

/// Returns what a file receives to the kernel for now: a thread waits there from now on.
pub fn return_awaited(file: &File) {
    for moved in slots_of(file) {
        if let Some(segment) = moved.segment() {
            transfer::return_now(moved, segment);
        }
    }
}

/// This thread is cancelled in its call: the files whose directions it has leave their rings, as after a call that a
/// handler has left, and what it keeps of a file that another thread has closed is closed.
#[cold]
pub fn abandoned(state: &ProcessTable) {
    let parted = parted_fd();
    if parted != 0 {
        set_parted_fd(0);
        close(u64::from(parted));
    }
    for moved in used().iter().filter(|moved| moved.is_busy()) {
        if let Some(file) = moved.file(state) {
            leave_moved(state, file, kept::LEFT);
        }
        moved.release(state);
    }
}

fn may_move(state: &ProcessTable) -> bool {
    state.moves.load(Relaxed) != 0 && state.stays.load(Relaxed) == 0 && state.not_followed.load(Relaxed) == 0
}
