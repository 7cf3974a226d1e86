//! The words of a pipe that moves between the kernel and a ring: its state, the indices, and the cut.
//! Promises: an operation that a thread has begun in the ring is judged by one word, the cut, however late it ends; the
//! words of an earlier epoch change nothing.
//! Not here: system calls (`transfer.rs`), the memory of the bytes (`sys/pipe.rs`).
//! Source: `flick_shm::switch`, for ends that one thread of one process holds. Each of three things makes this smaller:
//! only the sender enters the ring, its last write through the kernel wakes a receiver that sleeps there, and a ring
//! always fits into its pipe, so that going back never waits for anyone.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;

use crate::limits::RING_BYTES;
use crate::sync::{AtomicU32, AtomicU64};

/// First word of a segment. The last byte is the version of the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLKPIPE5");

/// States of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeState {
    /// Bytes go through the kernel.
    Kernel,
    /// The sender makes its last write through the kernel.
    Entering,
    /// Bytes go through the ring.
    Ring,
    /// The sender returns the bytes of the ring to the kernel.
    FrozenBySender,
    /// The receiver does so.
    FrozenByReceiver,
}

const STATES: [PipeState; 5] = [
    PipeState::Kernel,
    PipeState::Entering,
    PipeState::Ring,
    PipeState::FrozenBySender,
    PipeState::FrozenByReceiver,
];
const STATE_MASK: u32 = 0xff;
const DEAD: u32 = 0x100;

/// A value of the word that both ends look at: epoch, state, and whether the ring may be entered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ctl(pub u32);

impl Ctl {
    /// The state.
    pub fn state(self) -> PipeState {
        STATES.get((self.0 & STATE_MASK) as usize).copied().unwrap_or(PipeState::Kernel)
    }

    /// Number of times that the ring was entered.
    pub fn epoch(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Whether an end has left for good.
    pub fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// Whether state and epoch are the same.
    pub fn is_same(self, other: Self) -> bool {
        (self.0 ^ other.0) & !DEAD == 0
    }

    fn with(self, state: PipeState) -> u32 {
        self.0 & !STATE_MASK | STATES.iter().position(|one| *one == state).unwrap_or(0) as u32
    }
}

/// An end of a pipe, or of a direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PipeEnd {
    /// The end that is written.
    Sender = 1,
    /// The end that is read.
    Receiver = 2,
}

impl PipeEnd {
    /// The state in which this end returns bytes to the kernel.
    pub fn frozen(self) -> PipeState {
        if self == PipeEnd::Sender { PipeState::FrozenBySender } else { PipeState::FrozenByReceiver }
    }
}

/// A cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct OwnLine<T>(pub T);

/// Words that the monitor writes before it hands the segment out.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PipeHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Device of the pipe; of a connection the cookie of the sender's socket.
    pub device: AtomicU64,
    /// Inode of the pipe; of a connection the cookie of the receiver's socket.
    pub inode: AtomicU64,
    /// The process that writes.
    pub sender: AtomicU32,
    /// The process that reads.
    pub receiver: AtomicU32,
    /// The monitor has given up: an end did not come.
    pub revoked: AtomicU32,
    /// Of a connection: the sender's descriptor.
    pub sender_fd: AtomicU32,
}

/// Words that both ends read often and write rarely.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PipeWords {
    /// A [`Ctl`].
    ctl: AtomicU32,
    /// Ends that have mapped the segment: bits of [`PipeEnd`].
    pub attached: AtomicU32,
    /// 1: the sender sleeps until there is capacity.
    pub sender_sleeps: AtomicU32,
    /// Not 0: the receiver sleeps until there are bytes (`wake.rs`).
    pub receiver_sleeps: AtomicU32,
    /// Index at which the epoch began.
    base: AtomicU64,
    /// The cut of the epoch.
    cut: AtomicU64,
    /// Bytes that the kernel's pipe held when the direction was frozen, with the epoch.
    before: AtomicU64,
    /// The event of the thread that receives, as `wake.rs` numbers it.
    pub receiver_event: AtomicU64,
    /// 1: the sender cannot get it.
    pub event_refused: AtomicU32,
    /// The core on which the sender has last sent, and 1. 0: none.
    pub sender_core: AtomicU32,
    /// The core on which the receiver has last begun to wait, and 1. 0: none.
    pub receiver_core: AtomicU32,
    /// Ends for whose sleeps the other end executes fences: bits of [`PipeEnd`] (`sleep.rs`).
    pub fences: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<PipeWords>() == 64);

/// The first page of a segment.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Control {
    /// The monitor's.
    pub header: OwnLine<PipeHeader>,
    /// Both ends'.
    pub shared: OwnLine<PipeWords>,
    /// Index behind the last byte that was written.
    pub head: OwnLine<AtomicU64>,
    /// Index behind the last byte that was read, with the epoch above it.
    tail: OwnLine<AtomicU64>,
}

const INDEX_BITS: u32 = 48;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const CUT_BITS: u32 = 23;
const CUT_MASK: u64 = (1 << CUT_BITS) - 1;
const IS_CUT: u64 = 1 << (2 * CUT_BITS);
const _: () = assert!(RING_BYTES < CUT_MASK / 2 && RING_BYTES.is_power_of_two());

fn tagged(epoch: u16, value: u64) -> u64 {
    u64::from(epoch) << INDEX_BITS | value & INDEX_MASK
}

/// The bytes between the indices of a cut: where they begin, modulo the ring, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeCut {
    /// Index of the first byte, its low bits.
    pub tail: u64,
    /// Index behind the last byte, its low bits.
    pub head: u64,
}

impl PipeCut {
    /// Bytes that were written and not read.
    pub fn bytes(self) -> u64 {
        self.head.wrapping_sub(self.tail) & CUT_MASK
    }
}

impl Control {
    /// The present value of the word that both ends look at.
    #[inline]
    pub fn look(&self) -> Ctl {
        Ctl(self.shared.0.ctl.load(Acquire))
    }

    /// The word, for those who sleep on it.
    pub fn word(&self) -> &AtomicU32 {
        &self.shared.0.ctl
    }

    /// Changes the state, unless another end has changed something.
    pub fn change(&self, seen: Ctl, state: PipeState) -> bool {
        self.shared.0.ctl.compare_exchange(seen.0, seen.with(state), AcqRel, Acquire).is_ok()
    }

    /// Forbids to enter the ring again.
    pub fn end(&self) {
        self.shared.0.ctl.fetch_or(DEAD, AcqRel);
    }

    /// Returns to the kernel, from a state that this end has set.
    pub fn thaw(&self) {
        self.shared.0.ctl.fetch_and(!STATE_MASK, AcqRel);
    }

    /// Begins an epoch at `index`. Only the sender calls this, in the kernel.
    pub fn enter(&self, seen: Ctl, index: u64) -> Option<Ctl> {
        let epoch = seen.epoch().wrapping_add(1);
        let shared = &self.shared.0;
        shared.base.store(index, Relaxed);
        shared.cut.store(tagged(epoch, 0), Relaxed);
        self.head.0.store(index, Relaxed);
        self.tail.0.store(tagged(epoch, index), Relaxed);
        let next = Ctl(Ctl(u32::from(epoch) << 16).with(PipeState::Entering));
        shared.ctl.compare_exchange(seen.0, next.0, AcqRel, Acquire).ok().map(|_| next)
    }

    /// Index at which the epoch began: behind the last write through the kernel.
    #[inline]
    pub fn base(&self) -> u64 {
        self.shared.0.base.load(Relaxed)
    }

    /// The receiver's index, if it has read in this epoch; else that at which the epoch began.
    #[inline]
    pub fn tail(&self, epoch: u16) -> u64 {
        let tail = self.tail.0.load(Acquire);
        if (tail >> INDEX_BITS) as u16 == epoch {
            tail & INDEX_MASK
        } else {
            self.shared.0.base.load(Relaxed)
        }
    }

    /// Publishes that bytes up to `index` were written; returns whether that counts.
    #[inline]
    pub fn publish(&self, seen: Ctl, index: u64, barrier: impl Fn()) -> bool {
        self.head.0.store(index, Release);
        compiler_fence(core::sync::atomic::Ordering::SeqCst);
        self.look().is_same(seen)
            || self.cut(seen.epoch(), barrier).is_none_or(|cut| cut.head == index & CUT_MASK)
    }

    /// Publishes that bytes up to `index` were read; returns whether that counts.
    #[inline]
    pub fn consume(&self, seen: Ctl, index: u64, barrier: impl Fn()) -> bool {
        self.tail.0.store(tagged(seen.epoch(), index), Release);
        compiler_fence(core::sync::atomic::Ordering::SeqCst);
        self.look().is_same(seen)
            || self.cut(seen.epoch(), barrier).is_none_or(|cut| cut.tail == index & CUT_MASK)
    }

    /// The cut of an epoch that is frozen or over; the first end that needs it decides it. `None`: a later epoch has
    /// begun, which it only does once all bytes of this one were read.
    #[cold]
    pub fn cut(&self, epoch: u16, barrier: impl Fn()) -> Option<PipeCut> {
        let word = &self.shared.0.cut;
        let mut cut = word.load(Acquire);
        if cut == tagged(epoch, 0) {
            barrier();
            // The tail first: the head that is read later is not behind it.
            let tail = self.tail(epoch) & CUT_MASK;
            let head = self.head.0.load(Acquire) & CUT_MASK;
            let decided = tagged(epoch, IS_CUT | head << CUT_BITS | tail);
            cut = match word.compare_exchange(cut, decided, AcqRel, Acquire) {
                Ok(_) => decided,
                Err(other) => other,
            };
        }
        let cut_of = PipeCut { tail: cut & CUT_MASK, head: cut >> CUT_BITS & CUT_MASK };
        ((cut >> INDEX_BITS) as u16 == epoch && cut & IS_CUT != 0).then_some(cut_of)
    }

    /// Whether the ring holds bytes.
    pub fn has_unread(&self) -> bool {
        let seen = self.look();
        seen.state() == PipeState::Ring && self.head.0.load(Acquire) != self.tail(seen.epoch())
    }

    /// Notes how many bytes the kernel's pipe held before any was returned to it.
    pub fn note_before(&self, epoch: u16, bytes: u64) {
        self.shared.0.before.store(tagged(epoch, bytes), Release);
    }

    /// Bytes that [`Control::note_before`] has noted in this epoch.
    pub fn before(&self, epoch: u16) -> Option<u64> {
        let before = self.shared.0.before.load(Acquire);
        ((before >> INDEX_BITS) as u16 == epoch).then_some(before & INDEX_MASK)
    }
}

#[cfg(all(test, not(loom)))]
mod exhaustive;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A direction in the ring, with 100 bytes written and 40 of them read.
    fn in_ring() -> (Control, Ctl) {
        let control = Control::default();
        let entering = control.enter(control.look(), 1000).expect("no one else changes it");
        assert_eq!(entering.state(), PipeState::Entering);
        assert!(control.change(entering, PipeState::Ring));
        let seen = control.look();
        assert!(control.publish(seen, 1100, || ()) && control.consume(seen, 1040, || ()));
        (control, seen)
    }

    #[test]
    fn bytes_behind_the_cut_do_not_count() {
        let (control, seen) = in_ring();
        assert!(control.change(seen, PipeState::FrozenByReceiver));
        let cut = control.cut(seen.epoch(), || ()).expect("it is of this epoch");
        assert_eq!((cut.tail, cut.head, cut.bytes()), (1040, 1100, 60));
        // Both ends were in the middle of a call.
        assert!(!control.publish(seen, 1164, || ()));
        assert!(!control.consume(seen, 1050, || ()));
        assert_eq!(control.cut(seen.epoch(), || ()), Some(cut));
    }

    #[test]
    fn bytes_that_were_published_before_the_cut_count() {
        let (control, seen) = in_ring();
        assert!(control.change(seen, PipeState::FrozenBySender));
        // The first who asks decides, and sees both indices.
        assert!(control.publish(seen, 1164, || ()));
        assert_eq!(control.cut(seen.epoch(), || ()), Some(PipeCut { tail: 1040, head: 1164 }));
        control.thaw();
        assert_eq!(control.look().state(), PipeState::Kernel);
        assert!(control.publish(seen, 1164, || ()));
    }

    #[test]
    fn words_of_an_earlier_epoch_change_nothing() {
        let (control, seen) = in_ring();
        assert!(control.change(seen, PipeState::FrozenBySender));
        control.cut(seen.epoch(), || ());
        control.note_before(seen.epoch(), 7);
        control.thaw();
        let entering = control.enter(control.look(), 2000).expect("no one else changes it");
        assert_eq!((control.tail(entering.epoch()), control.before(entering.epoch())), (2000, None));
        assert_eq!(control.cut(seen.epoch(), || ()), None);
        // A reader that wakes late.
        control.consume(seen, 1040, || ());
        assert_eq!(control.tail(entering.epoch()), 2000);
    }

    #[test]
    fn ring_is_not_entered_after_an_end_has_left_for_good() {
        let (control, seen) = in_ring();
        control.end();
        assert!(control.look().is_dead() && control.look().is_same(seen));
        assert!(!control.change(seen, PipeState::FrozenBySender), "the word has changed");
        assert!(control.change(control.look(), PipeState::FrozenBySender));
        control.thaw();
        assert!(control.look().is_dead() && control.look().state() == PipeState::Kernel);
    }

    #[test]
    fn indices_wrap_in_the_cut() {
        let control = Control::default();
        let start = (1 << CUT_BITS) - 10;
        let entering = control.enter(control.look(), start).expect("no one else changes it");
        assert!(control.change(entering, PipeState::Ring));
        let seen = control.look();
        assert!(control.publish(seen, start + 30, || ()));
        assert!(control.change(seen, PipeState::FrozenBySender));
        assert_eq!(control.cut(seen.epoch(), || ()).map(PipeCut::bytes), Some(30));
    }
}
