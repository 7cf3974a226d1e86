//! Reads and writes of a pipe through its ring, the way into the ring and the way back.
//! Promises: bytes keep their order, and none is lost or doubled, whatever the other end does and wherever it is
//! stopped or killed; a write of at most `PIPE_BUF` bytes is published whole; an end never sleeps beside the ring for
//! longer than [`SLEEP_NS_MAX`]: then it returns to the kernel, whose calls know of signals and of the end of the pipe.
//! Refuses: two threads in one direction (`threads.rs`).

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, fence};

use crate::fast;
use crate::limits::{
    ALIVE_CYCLES, EMPTY_CYCLES, EMPTY_PAUSE_NS, EMPTY_PAUSES_MAX, ENTER_SENDS_MIN, ENTER_SKIPS_LOG2_MAX,
    ENTERING_LOOKS_MAX, FENCED_READS_MAX, FROZEN_NS_MAX, PIPE_BUF, POOR_SLEEPS_MAX, RING_BYTES,
    RING_BYTES_MAX, SLEEP_NS_MAX, SLEEP_READS_MIN,
};
use crate::moving::Moved;
use crate::numbers as nr;
use crate::ring::{Control, Ctl, PipeEnd, PipeState};
use crate::sleep::{ON_EVENT, ON_WORD};
use crate::socket;
use crate::sys::pipe::{self as sys, PipeSegment, SignalsHeld, Vectors};
use crate::sys::{close, now_ns, unread_bytes};
use crate::wake;

/// Outcome of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct PipeProgress {
    /// Bytes that went through the ring.
    pub in_ring: u64,
    /// Bytes that went through the kernel on the way into the ring.
    pub in_kernel: u64,
    /// The error, if no byte went.
    pub error: i64,
    /// Whether the call is over. If not, the rest goes through the kernel.
    pub is_done: bool,
}

impl PipeProgress {
    /// The call is over.
    pub fn done(self) -> Self {
        Self { is_done: true, ..self }
    }

    fn failed(self, error: i64) -> Self {
        Self { error, is_done: true, ..self }
    }

    fn bytes(self) -> u64 {
        self.in_ring + self.in_kernel
    }
}

/// Outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Ready,
    TimedOut,
    Interrupted,
}

/// Reads.
pub fn receive(
    moved: &Moved,
    segment: PipeSegment,
    fd: u64,
    vectors: &Vectors,
    blocks: bool,
) -> PipeProgress {
    let control = segment.control();
    let none = PipeProgress::default();
    loop {
        if moved.rest.load(Relaxed) > 0 {
            return socket::read_rest(moved, segment, fd, vectors);
        }
        let seen = control.look();
        match seen.state() {
            PipeState::Kernel => {
                moved.epoch.store(0, Relaxed);
                return none;
            }
            PipeState::Entering => {
                moved.epoch.store(0, Relaxed);
                if unread_bytes(fd) > 0 || refuse_entry(control, seen) {
                    return none;
                }
            }
            PipeState::FrozenBySender | PipeState::FrozenByReceiver => {
                wait_for_thaw(moved, segment, fd, seen, end_of_wait(blocks));
                if !blocks && control.look() == seen {
                    return none.failed(sys::AGAIN);
                }
            }
            PipeState::Ring => {
                if let Some(progress) = receive_in_ring(moved, segment, (fd, blocks), vectors, seen) {
                    return progress;
                }
            }
        }
    }
}

/// Reads in the state *ring*. `None`: the state has changed or is to be looked at again.
#[inline]
fn receive_in_ring(
    moved: &Moved,
    segment: PipeSegment,
    (fd, blocks): (u64, bool),
    vectors: &Vectors,
    seen: Ctl,
) -> Option<PipeProgress> {
    let (control, none) = (segment.control(), PipeProgress::default());
    let epoch = u32::from(seen.epoch()) | 1 << 16;
    if moved.epoch.load(Relaxed) != epoch {
        if !is_drained(moved, segment, fd, seen, blocks)? {
            if vectors.peeks() {
                // The kernel shows what it has, also the next time: all bytes are to be there.
                go_back(moved, segment, seen);
            }
            return Some(none);
        }
        moved.epoch.store(epoch, Relaxed);
    }
    let (index, head) = (moved.index.load(Relaxed), control.head.0.load(Acquire));
    let ready = head.wrapping_sub(index);
    if ready == 0 {
        return wait_for_bytes(moved, segment, (fd, blocks), seen).map(|error| none.failed(error));
    }
    if ready > RING_BYTES || !control.look().is_same(seen) {
        // The words of another epoch, or overwritten ones: those are cut to what the ring can hold.
        go_back(moved, segment, seen);
        return None;
    }
    let bytes = ready.min(vectors.bytes);
    get(segment, index, vectors, bytes);
    let progress = PipeProgress { in_ring: bytes, ..none }.done();
    if vectors.peeks() {
        // Bytes that were copied while the state was this one are the next ones, wherever they are by now.
        fence(Acquire);
        return control.look().is_same(seen).then_some(progress);
    }
    if !control.consume(seen, index + bytes, sys::barrier) {
        return None;
    }
    moved.index.store(index + bytes, Relaxed);
    fast::allow(moved, seen, head);
    note_read(moved, control);
    // A sender that sleeps wants more than a few bytes.
    if ready - bytes <= RING_BYTES_MAX / 2 {
        wake::sender(control);
    }
    Some(progress)
}

/// Counts a read since the last sleep. After many of them the sender needs no fences.
fn note_read(moved: &Moved, control: &Control) {
    let reads = moved.sends.load(Relaxed) + 1;
    moved.sends.store(reads, Relaxed);
    if reads == FENCED_READS_MAX {
        control.end_fences(PipeEnd::Receiver);
    }
}

/// Copies bytes of the ring to the program.
pub fn get(segment: PipeSegment, index: u64, vectors: &Vectors, bytes: u64) {
    let mut at = index;
    vectors.ranges(0, bytes, |address, bytes| {
        segment.get(at, address, bytes);
        at += bytes;
        true
    });
}

/// Waits for bytes in an empty ring, or returns to the kernel. Returns the error with which the call ends.
fn wait_for_bytes(moved: &Moved, segment: PipeSegment, (fd, blocks): (u64, bool), seen: Ctl) -> Option<i64> {
    let (control, index) = (segment.control(), moved.index.load(Relaxed));
    let is_ready = || control.head.0.load(Acquire) != index || !control.look().is_same(seen);
    if !blocks {
        // The kernel knows of the end. What a dead sender has published is read before.
        if !moved.is_alone(fd) {
            return (!is_ready()).then_some(sys::AGAIN);
        }
        if !is_ready() {
            go_back(moved, segment, seen);
        }
        return None;
    }
    match wait(moved, control, is_ready) {
        Waited::Ready => {}
        Waited::TimedOut => go_back(moved, segment, seen),
        Waited::Interrupted => return Some(sys::INTERRUPTED),
    }
    None
}

/// Whether the receiver has read what the sender has sent before the ring: its last write through the kernel comes
/// first, and no other one follows in this state. `None`: the state has changed.
fn is_drained(moved: &Moved, segment: PipeSegment, fd: u64, seen: Ctl, blocks: bool) -> Option<bool> {
    let control = segment.control();
    let unread = socket::unread_before(moved, control.base(), fd);
    if !control.look().is_same(seen) {
        return None;
    }
    moved.index.store(control.base().wrapping_sub(unread), Relaxed);
    moved.is_counted.store(1, Relaxed);
    if unread > 0 && blocks && !socket::is_on_its_way(moved, fd) {
        go_back(moved, segment, seen);
        return None;
    }
    Some(unread == 0)
}

/// Writes. A sender that is not alone, since another thread of it is in the kernel, does not enter the ring.
pub fn send(
    moved: &Moved,
    segment: PipeSegment,
    number: u32,
    arguments: [u64; 6],
    vectors: &Vectors,
    (blocks, is_alone): (bool, bool),
) -> PipeProgress {
    let (control, fd) = (segment.control(), arguments[0]);
    let mut progress = PipeProgress::default();
    while progress.bytes() < vectors.bytes {
        let seen = control.look();
        match seen.state() {
            PipeState::Kernel if moved.error.load(Relaxed) != 0 => {
                return progress.failed(-i64::from(moved.error.swap(0, Relaxed)));
            }
            PipeState::Kernel
                if progress.bytes() > 0
                    || seen.is_dead()
                    || !is_alone
                    || !is_time_to_enter(moved, control, fd, blocks) =>
            {
                return progress;
            }
            PipeState::Kernel => match enter(moved, control, seen, number, arguments, vectors) {
                Some(result) if result < 0 => return progress.failed(result),
                Some(result) => progress.in_kernel = result as u64,
                None => return progress,
            },
            // An earlier call has not come to its end.
            PipeState::Entering => {
                control.change(seen, PipeState::Kernel);
            }
            PipeState::FrozenBySender | PipeState::FrozenByReceiver => {
                wait_for_thaw(moved, segment, fd, seen, end_of_wait(blocks));
                if control.look() == seen && !blocks && !moved.is_alone(fd) {
                    return refused(moved, progress);
                }
                if control.look() == seen {
                    // The receiver is dead: the kernel says so.
                    return progress;
                }
            }
            PipeState::Ring => match put(moved, segment, seen, (fd, blocks), vectors, progress.bytes()) {
                Ok(bytes) => progress.in_ring += bytes,
                Err(Waited::Interrupted) => return progress.failed(sys::INTERRUPTED),
                Err(_) => {}
            },
        }
    }
    progress.done()
}

/// Outcome of a send that does not wait for the other end to return bytes to the kernel.
fn refused(moved: &Moved, progress: PipeProgress) -> PipeProgress {
    moved.refuse();
    if progress.bytes() > 0 { progress.done() } else { progress.failed(sys::AGAIN) }
}

/// Readiness of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The kernel knows it.
    Kernel,
    /// A call moves bytes through the ring.
    Ready,
    /// It does not.
    NotReady,
}

/// Whether a call on a direction would move bytes through its ring.
pub fn readiness(moved: &Moved, segment: PipeSegment) -> Readiness {
    let control = segment.control();
    let seen = control.look();
    let is_ready = match (moved.role(), seen.state()) {
        (PipeEnd::Receiver, _) if moved.rest.load(Relaxed) > 0 => true,
        (PipeEnd::Receiver, PipeState::Ring) => {
            let epoch = u32::from(seen.epoch()) | 1 << 16;
            let is_counted = moved.epoch.load(Relaxed) == epoch;
            let index = if is_counted { moved.index.load(Relaxed) } else { control.base() };
            control.head.0.load(Acquire) != index
        }
        (PipeEnd::Sender, PipeState::Ring) => {
            let used = moved.index.load(Relaxed).wrapping_sub(control.tail(seen.epoch()));
            used + PIPE_BUF <= RING_BYTES_MAX
        }
        _ => return Readiness::Kernel,
    };
    if is_ready { Readiness::Ready } else { Readiness::NotReady }
}

/// Returns a direction to the kernel for now, unless it is ready in its ring.
pub fn return_unless_ready(moved: &Moved, segment: PipeSegment) {
    return_if(moved, segment, || readiness(moved, segment) == Readiness::NotReady);
}

/// Returns what is received to the kernel for now.
pub fn return_now(moved: &Moved, segment: PipeSegment) {
    if moved.role() == PipeEnd::Receiver {
        return_if(moved, segment, || true);
    }
}

/// A sender that is about to enter the ring would send there what a receiver waits for in the kernel: it is refused
/// first.
fn return_if(moved: &Moved, segment: PipeSegment, is_due: impl FnOnce() -> bool) {
    let seen = segment.control().look();
    if moved.role() == PipeEnd::Receiver && seen.state() == PipeState::Entering {
        refuse_entry(segment.control(), seen);
    }
    if is_due() {
        go_back(moved, segment, segment.control().look());
    }
}

/// Writes what fits into the ring.
///
/// Errors: nothing was written, and the state has changed or is to be looked at again, or a signal came.
#[inline]
fn put(
    moved: &Moved,
    segment: PipeSegment,
    seen: Ctl,
    (fd, blocks): (u64, bool),
    vectors: &Vectors,
    done: u64,
) -> Result<u64, Waited> {
    let control = segment.control();
    let (index, rest) = (moved.index.load(Relaxed), vectors.bytes - done);
    let capacity = || {
        let used = index.wrapping_sub(control.tail(seen.epoch()));
        RING_BYTES_MAX.saturating_sub(used)
    };
    let needed = rest.min(PIPE_BUF);
    let mut free = capacity();
    if free < needed {
        let is_ready = || capacity() >= needed || !control.look().is_same(seen);
        if !blocks {
            // The kernel holds more, and says how much it takes.
            go_back(moved, segment, seen);
            return Err(Waited::TimedOut);
        }
        match wait(moved, control, is_ready) {
            Waited::Ready => free = capacity(),
            Waited::TimedOut => {
                go_back(moved, segment, seen);
                return Err(Waited::TimedOut);
            }
            Waited::Interrupted => return Err(Waited::Interrupted),
        }
        if free < needed {
            return Err(Waited::Ready);
        }
    }
    let (now, core) = sys::cycles_and_core();
    note_core(&control.shared.0.sender_core, core);
    if now.wrapping_sub(moved.looked.load(Relaxed)) > ALIVE_CYCLES {
        moved.looked.store(now, Relaxed);
        if moved.slept.load(Relaxed) == 0 {
            control.end_fences(PipeEnd::Sender);
        }
        moved.slept.store(0, Relaxed);
        if moved.is_alone(fd) {
            control.end();
            go_back(moved, segment, control.look());
            return Err(Waited::TimedOut);
        }
    }
    if !control.look().is_same(seen) {
        return Err(Waited::Ready);
    }
    let bytes = rest.min(free);
    let mut at = index;
    vectors.ranges(done, bytes, |address, bytes| {
        segment.put(at, address, bytes);
        at += bytes;
        true
    });
    if !control.publish(seen, index + bytes, sys::barrier) {
        return Err(Waited::Ready);
    }
    moved.index.store(index + bytes, Relaxed);
    fast::allow(moved, seen, control.tail(seen.epoch()));
    moved.sends.store(moved.sends.load(Relaxed) + 1, Relaxed);
    wake_receiver(moved, segment);
    Ok(bytes)
}

/// Wakes a receiver that sleeps, by a return to the kernel if there is no other way.
#[inline]
pub fn wake_receiver(moved: &Moved, segment: PipeSegment) {
    if !wake::receiver(moved, segment.control()) {
        go_back(moved, segment, segment.control().look());
    }
}

/// Whether a sender that is in the kernel is to enter the ring: both ends are there, the pipe is empty, and the last
/// time was worth it.
fn is_time_to_enter(moved: &Moved, control: &Control, fd: u64, blocks: bool) -> bool {
    let both = PipeEnd::Sender as u32 | PipeEnd::Receiver as u32;
    if control.shared.0.attached.load(Acquire) != both || control.header.0.revoked.load(Relaxed) != 0 {
        return false;
    }
    let skip = moved.skip.load(Relaxed);
    if skip > 0 {
        moved.skip.store(skip - 1, Relaxed);
        return false;
    }
    let mut fails = moved.fails.load(Relaxed);
    let sends = moved.sends.swap(0, Relaxed);
    fails = if sends >= ENTER_SENDS_MIN { 0 } else { (fails + 1).min(ENTER_SKIPS_LOG2_MAX) };
    moved.fails.store(fails, Relaxed);
    moved.skip.store((1 << fails) - 1, Relaxed);
    // A receiver that is slower lets the pipe be empty only if the sender waits.
    let began = sys::cycles();
    for _ in 0..EMPTY_PAUSES_MAX {
        if socket::is_empty(moved, fd) {
            return true;
        }
        // On a busy machine one pause may last for milliseconds.
        if !blocks || sys::cycles().wrapping_sub(began) > EMPTY_CYCLES {
            break;
        }
        let never = AtomicU32::new(0);
        sys::sleep(&never, 0, EMPTY_PAUSE_NS);
    }
    false
}

/// Enters the ring: the state says so before the last write through the kernel, and the ring is used behind it. That
/// write wakes a receiver that sleeps in the kernel. `None`: the whole call is the kernel's.
fn enter(
    moved: &Moved,
    control: &Control,
    seen: Ctl,
    number: u32,
    arguments: [u64; 6],
    vectors: &Vectors,
) -> Option<i64> {
    let is_small = vectors.bytes <= PIPE_BUF;
    if !is_small {
        vectors.single()?;
    }
    socket::count(moved, arguments[0])?;
    let base = moved.index.load(Relaxed) + vectors.bytes.min(PIPE_BUF);
    let entering = control.enter(seen, base)?;
    // The kernel would hold bytes with `MSG_MORE` back until more are sent, which go through the ring.
    let result = match vectors.single() {
        Some(address) if !is_small => {
            sys::write(arguments[0], address, PIPE_BUF, vectors.flags & !nr::MSG_MORE)
        }
        _ => sys::repeat(number, without_more(number, arguments)),
    };
    let is_whole = result == vectors.bytes.min(PIPE_BUF) as i64;
    if let Ok(bytes) = u64::try_from(result) {
        moved.index.fetch_add(bytes, Relaxed);
    }
    control.change(entering, if is_whole { PipeState::Ring } else { PipeState::Kernel });
    Some(result)
}

/// The arguments of a send without `MSG_MORE`.
fn without_more(number: u32, mut arguments: [u64; 6]) -> [u64; 6] {
    match number {
        nr::SENDTO => arguments[3] &= !nr::MSG_MORE,
        nr::SENDMSG => arguments[2] &= !nr::MSG_MORE,
        _ => {}
    }
    arguments
}

/// Refuses the entry of a sender that does not come to its end. Returns whether the kernel is to make the call.
fn refuse_entry(control: &Control, seen: Ctl) -> bool {
    for _ in 0..ENTERING_LOOKS_MAX {
        if control.look() != seen {
            return false;
        }
        sys::yield_core();
    }
    control.change(seen, PipeState::Kernel)
}

/// Waits beside the ring: polls for a short time, where that has helped before, then sleeps on this end's word.
fn wait(moved: &Moved, control: &Control, is_ready: impl Fn() -> bool) -> Waited {
    if moved.polling.poll(|| shares_core(moved, control), &is_ready) {
        return Waited::Ready;
    }
    let words = &control.shared.0;
    let sleeps =
        if moved.role() == PipeEnd::Receiver { &words.receiver_sleeps } else { &words.sender_sleeps };
    if moved.role() == PipeEnd::Receiver && is_slower(moved) {
        return Waited::TimedOut;
    }
    if sleeps.load(Relaxed) == ON_EVENT {
        // Another thread waits for it beside its event: both wake in the kernel.
        return Waited::TimedOut;
    }
    sleeps.store(ON_WORD, SeqCst);
    control.order_sleep(moved.role(), sys::barrier);
    moved.slept.store(1, Relaxed);
    let result = if is_ready() { 0 } else { sys::sleep(sleeps, ON_WORD, SLEEP_NS_MAX) };
    sleeps.store(0, Relaxed);
    match result {
        _ if is_ready() => Waited::Ready,
        sys::TIMED_OUT => Waited::TimedOut,
        sys::INTERRUPTED => Waited::Interrupted,
        _ => Waited::Ready,
    }
}

/// Whether the other end of a direction was last seen on this core. A sender notes its core with each send, a receiver
/// here.
pub fn shares_core(moved: &Moved, control: &Control) -> bool {
    let (words, own) = (&control.shared.0, sys::core_number());
    let other = if moved.role() == PipeEnd::Sender {
        &words.receiver_core
    } else {
        note_core(&words.receiver_core, own);
        &words.sender_core
    };
    own != 0 && other.load(Relaxed) == own
}

/// Notes the core of an end, where it has changed: the other end reads the line all the time.
fn note_core(word: &AtomicU32, core: u32) {
    if word.load(Relaxed) != core {
        word.store(core, Relaxed);
    }
}

/// Whether a receiver sleeps for every few reads: then the kernel's pipe wakes it at a lower price.
fn is_slower(moved: &Moved) -> bool {
    let reads = moved.sends.swap(0, Relaxed);
    let poor = if reads < SLEEP_READS_MIN { moved.poor.load(Relaxed) + 1 } else { 0 };
    moved.poor.store(poor % POOR_SLEEPS_MAX, Relaxed);
    poor == POOR_SLEEPS_MAX
}

/// The time until which a call waits for the other end.
fn end_of_wait(blocks: bool) -> u64 {
    if blocks { u64::MAX } else { 0 }
}

/// Waits until the other end has returned its bytes to the kernel, or until this time; takes over if it is dead. A
/// sender whose receiver is dead returns in the same state.
fn wait_for_thaw(moved: &Moved, segment: PipeSegment, fd: u64, seen: Ctl, until: u64) {
    let control = segment.control();
    loop {
        let result = sys::sleep(control.word(), seen.0, FROZEN_NS_MAX);
        if control.look() != seen {
            return;
        }
        if result == sys::TIMED_OUT && moved.is_alone(fd) {
            if moved.role() == PipeEnd::Receiver {
                let _held = SignalsHeld::new();
                let others = moved.injecting.fetch_add(1, SeqCst);
                // If the receiver itself has frozen it, another thread of it is at work, or this is a call after one
                // that was left.
                let is_taken_over = match seen.state() {
                    PipeState::FrozenByReceiver => others == 0,
                    _ => control.change(seen, PipeState::FrozenByReceiver),
                };
                if is_taken_over {
                    inject(moved, segment, fd, seen.epoch());
                }
                moved.injecting.fetch_sub(1, SeqCst);
            }
            return;
        }
        if now_ns() >= until {
            return;
        }
    }
}

/// Returns to the kernel for now.
fn go_back(moved: &Moved, segment: PipeSegment, seen: Ctl) {
    let _held = SignalsHeld::new();
    if seen.state() == PipeState::Ring {
        moved.injecting.fetch_add(1, SeqCst);
        if segment.control().change(seen, moved.role().frozen()) {
            // A thread without the token may have come late to the slot: from here on that is left by no other one.
            inject(moved, segment, u64::from(moved.fd.load(Relaxed)), seen.epoch());
        }
        moved.injecting.fetch_sub(1, SeqCst);
    }
}

/// Returns to the kernel, whatever the state is. From this time on it waits no more for the other end, which is to go
/// on as if this process had died.
pub fn leave(moved: &Moved, segment: PipeSegment, fd: u64, until: u64) {
    let control = segment.control();
    while moved.rest.load(Relaxed) == 0 {
        let seen = control.look();
        match seen.state() {
            PipeState::Kernel => return,
            PipeState::Entering => {
                control.change(seen, PipeState::Kernel);
            }
            PipeState::Ring => go_back(moved, segment, seen),
            PipeState::FrozenBySender | PipeState::FrozenByReceiver => {
                wait_for_thaw(moved, segment, fd, seen, until);
                // A sender's receiver is dead then, or it is time. A thread here that returns bytes uses `fd`.
                let is_over = moved.role() == PipeEnd::Sender || now_ns() >= until;
                if is_over && control.look() == seen && moved.injecting.load(SeqCst) == 0 {
                    return;
                }
            }
        }
    }
}

/// Writes the bytes between the cut's indices to the kernel's pipe, which has capacity for them. Signals are held back.
/// Where a receiver cannot open the end to write to, it reads them from the ring, behind what is in the kernel; the
/// direction stays frozen until then.
fn inject(moved: &Moved, segment: PipeSegment, fd: u64, epoch: u16) {
    let control = segment.control();
    if moved.is_socket() {
        if socket::inject(moved, segment, fd, epoch) {
            thaw(control);
        }
        return;
    }
    let unread = unread_bytes(fd);
    // A receiver knows what is left of the last write through the kernel, once it has counted from a ring on.
    let is_counted = moved.role() == PipeEnd::Receiver && moved.is_counted.load(Relaxed) != 0;
    let left = control.base().saturating_sub(moved.index.load(Relaxed));
    let mut done = match control.before(epoch) {
        Some(_) if is_counted => unread.saturating_sub(left),
        Some(before) => unread.saturating_sub(before),
        None => {
            control.note_before(epoch, unread);
            0
        }
    };
    if let Some(cut) = control.cut(epoch, sys::barrier) {
        let bytes = cut.bytes().min(RING_BYTES);
        let needs_sender = moved.role() == PipeEnd::Receiver && done < bytes;
        let own = needs_sender.then_some(()).and_then(|()| {
            sys::open_sender(fd).or_else(|| {
                moved.release_reserve();
                sys::open_sender(fd)
            })
        });
        let target = own.unwrap_or(fd);
        if needs_sender && own.is_none() {
            moved.rest_index.store(cut.tail + done, Relaxed);
            moved.rest.store(bytes - done, Relaxed);
            return;
        }
        while done < bytes {
            match segment.write(target, cut.tail + done, bytes - done) {
                sys::BROKEN => {
                    SignalsHeld::new().discard_broken();
                    break;
                }
                sys::AGAIN => sys::yield_core(),
                written if written <= 0 => break,
                written => done += written as u64,
            }
        }
        if let Some(own) = own {
            close(own);
        }
    }
    thaw(control);
}

/// Returns to the kernel, and wakes both ends.
pub fn thaw(control: &Control) {
    control.thaw();
    sys::wake(control.word());
    sys::wake_sleeper(&control.shared.0.receiver_sleeps);
    sys::wake_sleeper(&control.shared.0.sender_sleeps);
}
