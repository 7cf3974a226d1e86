//! The switch of one direction of a connection between the kernel's socket and a ring, and back: freeze, cut, inject.
//! Any thread of any process that has the socket may send and receive: see [`members`](crate::members).
//! Promises: bytes arrive once and in order whichever thread stops, or is killed, at any step; a call sends or receives
//! bytes that follow each other; no side waits for another to leave a critical section, and a thread waits for another
//! one of its side for a millisecond at most; the kernel's socket holds only bytes of before the ring while it is used.
//! Refuses: sockets. It says which transport a byte belongs to; the caller makes the system call and reports its
//! result. Also rings that change their size: a switched direction keeps one ring.
//!
//! | state | left by | senders | receivers |
//! |---|---|---|---|
//! | kernel | a receiver, to prepare, unless the direction is held | kernel | kernel |
//! | prepare | the same, to offer, if no other receiver is in a call; anyone, to kernel | kernel | kernel |
//! | offer | a sender, to enter, unless held; anyone, to kernel | kernel | kernel |
//! | enter | the same, to ring, if no other sender is in a call; anyone, to kernel | kernel | kernel |
//! | ring | an injector, to frozen | ring | kernel until all of before the ring is read, then ring |
//! | frozen | the injector, to kernel, after the last byte | wait | kernel |
//!
//! Each return to the kernel begins an epoch. In the ring, a token (`token.rs`) keeps the threads of a side apart;
//! in the kernel its own lock does. A thread that is stopped in a call keeps the direction in the kernel until it ends
//! it.
//!
//! A side that finds the state changed after it has published or consumed bytes agrees with the others on a **cut**:
//! the indices at which the ring ended. Bytes beyond the cut are sent again, or discarded and read from the kernel.

#[cfg(all(test, not(loom), not(miri)))]
mod exhaustive;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

mod injector;
mod receiver;
mod sender;
mod steps;

pub use injector::{Freeze, Injection, Injector};
pub use receiver::{SwitchReceiver, SwitchedReceive};
pub use sender::{SwitchSender, SwitchedSend};
pub use steps::{PlainSteps, SwitchRule, SwitchSteps};

use crate::control::Direction;
use crate::fault::PeerFault;
use crate::members::{Call, Member, Others};
use crate::raw::{Area, Words};
use crate::sleep::Fencing;
use crate::sync::{AtomicU64, Ordering};
use crate::token::{Acquired, Token};

/// Bits of the state in the control word.
const STATE: u32 = 7;
const KERNEL: u32 = 0;
const OFFER: u32 = 1;
const RING: u32 = 2;
const FROZEN: u32 = 3;
const PREPARE: u32 = 4;
const ENTER: u32 = 5;
/// A thread died while it wrote to the kernel, or read from it: how many bytes it moved is unknown.
const SENT_UNCOUNTED: u32 = 0x08;
const RECEIVED_UNCOUNTED: u32 = 0x80;
/// Bits of those that hold a direction in the kernel: one for each end and one for the monitor; and bytes that are not
/// counted.
const HOLDS: u32 = 0x70 | SENT_UNCOUNTED | RECEIVED_UNCOUNTED;
/// Position of the epoch in the control word.
const EPOCH_SHIFT: u32 = 8;
/// Bits of an index in a cut.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// Holder of a direction: it stays in the kernel as long as one is left. Each has a bit of its own, so that none takes
/// back the hold of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SwitchHolder {
    /// The end that created the segment.
    EndZero = 0x10,
    /// The other end.
    EndOne = 0x20,
    /// The process that watches both ends.
    Monitor = 0x40,
}

/// Returns the bit that says that bytes are not counted of the side that leaves the kernel in this state.
fn uncounted_of(state: u32) -> u32 {
    if state == ENTER { SENT_UNCOUNTED } else { RECEIVED_UNCOUNTED }
}

fn is_kept<S: SwitchSteps>(rule: SwitchRule) -> bool {
    S::WITHOUT != Some(rule)
}

fn epoch(control: u32) -> u32 {
    control >> EPOCH_SHIFT
}

/// Returns the epoch that follows the one of a control word.
fn next_epoch(control: u32) -> u32 {
    epoch(control).wrapping_add(1) & (u32::MAX >> EPOCH_SHIFT)
}

/// Returns a control word of an epoch without holds.
fn control_of(epoch: u32, state: u32) -> u32 {
    (epoch << EPOCH_SHIFT) | state
}

/// Indices at which the ring of an epoch ended: the low bits of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SwitchCut(u64);

impl SwitchCut {
    fn new(epoch: u32, head: u64, tail: u64) -> Self {
        let epoch = u64::from(epoch & 0xffff);
        Self(epoch << (2 * INDEX_BITS) | (head & INDEX_MASK) << INDEX_BITS | (tail & INDEX_MASK))
    }

    /// The value before the cut. No ring is long enough for these indices.
    fn empty(epoch: u32) -> Self {
        Self::new(epoch, 0, INDEX_MASK)
    }

    fn is_of(self, epoch: u32) -> bool {
        self.0 >> (2 * INDEX_BITS) == u64::from(epoch & 0xffff)
    }

    fn head(self) -> u64 {
        (self.0 >> INDEX_BITS) & INDEX_MASK
    }

    fn tail(self) -> u64 {
        self.0 & INDEX_MASK
    }
}

/// The ring and the words of one direction.
#[derive(Debug)]
pub(crate) struct SwitchedRing<S> {
    pub words: Words<Direction>,
    pub area: Area,
    pub fencing: Fencing,
    pub steps: S,
}

impl<S: SwitchSteps> SwitchedRing<S> {
    /// Returns a direction to the kernel that is not in the ring yet, in the next epoch: what a thread has found out
    /// about the other ones no longer counts.
    fn withdraw(&self, control: u32) -> bool {
        let next =
            if is_kept::<S>(SwitchRule::EpochPerReturn) { next_epoch(control) } else { epoch(control) };
        self.replace(control, control_of(next, KERNEL) | (control & HOLDS))
    }

    /// Uses the ring once no other thread of an end does. `None`: the state has changed.
    ///
    /// Errors: `SwitchState` if the kernel refuses the barrier that it allowed before, and those of `use_ring`.
    #[inline(always)]
    fn with_token<R>(
        &self,
        token: &Token,
        (member, call): (&Member, Call),
        stalled: R,
        use_ring: impl FnOnce(Acquired) -> Result<Option<R>, PeerFault>,
    ) -> Result<Option<R>, PeerFault> {
        let acquired = token.acquire(member, call, self.steps);
        let result = match acquired {
            Acquired::Stalled => return Ok(Some(stalled)),
            Acquired::NoBarrier => return Err(PeerFault::SwitchState),
            Acquired::Owned | Acquired::Biased | Acquired::Locked => use_ring(acquired),
        };
        self.steps.reach();
        token.release(member, acquired, self.steps);
        result
    }

    /// Leaves a state for one in which no other thread of this side begins to use the kernel, and looks whether one is
    /// in a call. `None`: the direction has another state now. `Some(false)`: it stays, or is back, in the kernel.
    ///
    /// Errors: `SwitchState` if the kernel refuses the barrier that it allowed before.
    fn exclude_others(
        &self,
        control: u32,
        state: u32,
        token: &Token,
        member: &Member,
        call: Call,
    ) -> Result<Option<bool>, PeerFault> {
        let is_checked = is_kept::<S>(SwitchRule::OthersIdle);
        let others = || if is_checked { token.threads.others(token.end, member, call) } else { Others::Idle };
        match others() {
            Others::Idle => {}
            Others::Busy => return Ok(Some(false)),
            Others::Uncounted => {
                self.words.shared.control.fetch_or(uncounted_of(state), Ordering::AcqRel);
                return Ok(Some(false));
            }
        }
        let excluding = control_of(epoch(control), state) | (control & HOLDS);
        if !self.replace(control, excluding) {
            return Ok(None);
        }
        self.steps.reach();
        if !self.fencing.before_sleep() {
            self.withdraw(excluding);
            return Err(PeerFault::SwitchState);
        }
        self.steps.reach();
        if others() == Others::Idle {
            return Ok(Some(true));
        }
        self.withdraw(excluding);
        Ok(None)
    }

    /// Replaces the count of the bytes that a side has moved through the kernel, while no other thread moves any.
    /// `state`: the one in which none begins to.
    fn recount(
        &self,
        state: u32,
        word: &AtomicU64,
        (token, member, call): (&Token, &Member, Call),
        kernel_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<bool, PeerFault> {
        let uncounted = uncounted_of(state);
        // Until it is counted, also if this call fails.
        let control = self.words.shared.control.fetch_or(uncounted, Ordering::AcqRel) | uncounted;
        if control & STATE != KERNEL {
            return Ok(false);
        }
        token.threads.forget_dead(token.end);
        let before = word.load(Ordering::Acquire);
        if self.exclude_others(control, state, token, member, call)? != Some(true) {
            return Ok(false);
        }
        let excluding = control_of(epoch(control), state) | (control & HOLDS);
        let counted = kernel_bytes();
        // A thread that began to use the kernel meanwhile has changed the control word first.
        let is_counted = self.control() == excluding
            && counted.is_some_and(|new| {
                word.compare_exchange(before, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            });
        self.withdraw(excluding);
        if is_counted {
            self.words.shared.control.fetch_and(!uncounted, Ordering::AcqRel);
        }
        Ok(is_counted)
    }

    fn control(&self) -> u32 {
        self.words.shared.control.load(Ordering::Acquire)
    }

    /// Replaces the control word; returns whether it had the expected value.
    fn replace(&self, expected: u32, new: u32) -> bool {
        let word = &self.words.shared.control;
        word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Agrees with the others on the cut of an epoch that is no longer in the ring.
    ///
    /// Errors: `SwitchCut`; `SwitchState` if the kernel refuses the barrier that it allowed before.
    fn cut(&self, epoch: u32) -> Result<SwitchCut, PeerFault> {
        let (word, empty) = (&self.words.switch.cut, SwitchCut::empty(epoch));
        let mut cut = SwitchCut(word.load(Ordering::Acquire));
        if cut == empty || !is_kept::<S>(SwitchRule::OneCutPerEpoch) {
            self.steps.reach();
            // What an end published before it looked at the control word is visible behind the barrier; an end that
            // publishes later sees the change and comes here.
            if !self.fencing.before_sleep() {
                return Err(PeerFault::SwitchState);
            }
            self.steps.reach();
            let (head, tail) = (&self.words.sender.head, &self.words.receiver.tail);
            let (head, tail) = if is_kept::<S>(SwitchRule::TailBeforeHead) {
                let tail = tail.load(Ordering::Acquire);
                self.steps.reach();
                (head.load(Ordering::Acquire), tail)
            } else {
                let head = head.load(Ordering::Acquire);
                self.steps.reach();
                (head, tail.load(Ordering::Acquire))
            };
            self.steps.reach();
            let new = SwitchCut::new(epoch, head, tail);
            let swapped = word.compare_exchange(empty.0, new.0, Ordering::AcqRel, Ordering::Acquire);
            cut = match swapped {
                Ok(_) => new,
                Err(_) if !is_kept::<S>(SwitchRule::OneCutPerEpoch) => new,
                Err(first) => SwitchCut(first),
            };
        }
        if cut.is_of(epoch) { Ok(cut) } else { Err(PeerFault::SwitchCut) }
    }

    /// Returns whether an index moved from `before` to `after` was accepted by the cut of an epoch, which holds one of
    /// the two.
    ///
    /// Errors: `SwitchCut` if it holds neither.
    fn accepted(cut: u64, before: u64, after: u64) -> Result<bool, PeerFault> {
        if cut == before & INDEX_MASK {
            Ok(false)
        } else if cut == after & INDEX_MASK {
            Ok(true)
        } else {
            Err(PeerFault::SwitchCut)
        }
    }
}
