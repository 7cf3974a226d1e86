//! The switch of one direction of a connection between the kernel's socket and a ring, and back: freeze, cut, inject.
//! Promises: bytes arrive once and in order whichever side stops, or is killed, at any step; no side waits for another
//! to leave a critical section; the kernel's socket holds only bytes below `ring_from` while the ring is in use.
//! Refuses: sockets. It says which transport a byte belongs to; the caller makes the system call and reports its
//! result. Also rings that change their size: a switched direction keeps one ring.
//!
//! | state | left by | sender | receiver |
//! |---|---|---|---|
//! | kernel | the receiver, to offer, unless the direction is held | kernel | kernel |
//! | offer | the sender, to ring, unless held; anyone, to kernel | kernel | kernel |
//! | ring | an injector, to frozen | ring | kernel below `ring_from`, then ring |
//! | frozen | the injector, to kernel of the next epoch, after the last byte | waits | kernel |
//!
//! A side that finds the state changed after it has published or consumed bytes agrees with the others on a **cut**:
//! the indices at which the ring ended. Bytes beyond the cut are sent again, or discarded and read from the kernel.

#[cfg(all(test, not(miri)))]
mod exhaustive;
#[cfg(all(test, not(miri)))]
mod tests;

mod injector;

pub use injector::{Freeze, Injection, Injector};

use crate::control::Direction;
use crate::fault::PeerFault;
use crate::limits::SWITCH_ATTEMPTS_MAX;
use crate::raw::{Area, Words};
use crate::sleep::{self, Fencing, Wake};
use crate::sync::Ordering;

/// Bits of the state in the control word.
const STATE: u32 = 3;
const KERNEL: u32 = 0;
const OFFER: u32 = 1;
const RING: u32 = 2;
const FROZEN: u32 = 3;
/// Bits of those that hold a direction in the kernel: one for each end and one for the monitor.
const HOLDS: u32 = 0x70;
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

/// Rules without which bytes are lost or doubled. Tests leave one out to show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchRule {
    /// The sender looks at the control word after it has loaded the receiver's index, before it uses the space.
    LookAfterTail,
    /// The sender looks at the control word after it has published.
    LookAfterPublication,
    /// The receiver looks at the control word after it has released.
    LookAfterRelease,
    /// A cut reads the receiver's index before the sender's.
    TailBeforeHead,
    /// All take the first cut of an epoch.
    OneCutPerEpoch,
    /// Only the injector writes to the kernel while a direction is frozen.
    FrozenSenderWaits,
    /// Each holder has a bit of its own.
    HoldPerHolder,
}

/// Points between two accesses to shared words or sockets; tests interleave the two ends there.
pub trait SwitchSteps: Copy {
    /// The rule that is left out; `None` outside of tests.
    const WITHOUT: Option<SwitchRule> = None;

    /// Runs between two accesses.
    #[inline]
    fn reach(self) {}
}

/// Steps of production code: none is interrupted, no rule is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainSteps;

impl SwitchSteps for PlainSteps {}

fn is_kept<S: SwitchSteps>(rule: SwitchRule) -> bool {
    S::WITHOUT != Some(rule)
}

fn epoch(control: u32) -> u32 {
    control >> EPOCH_SHIFT
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

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedSend {
    /// The ring took as many bytes; the receiver needs the wake-up.
    Sent(usize, Wake),
    /// The caller writes to the kernel's socket now and reports it with [`SwitchSender::kernel_sent`].
    Kernel,
    /// The ring is full, or the direction is frozen.
    Wait,
}

/// The sending end of a switched direction.
#[derive(Debug)]
pub struct SwitchSender<S> {
    ring: SwitchedRing<S>,
    /// Bytes of the stream that were sent, by either transport.
    sent: u64,
    /// Smallest valid value of the receiver's index.
    tail_seen: u64,
}

impl<S: SwitchSteps> SwitchSender<S> {
    pub(crate) fn new(ring: SwitchedRing<S>) -> Self {
        Self { ring, sent: 0, tail_seen: 0 }
    }

    /// Returns the bytes that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the front of `bytes`, or says who sends. `can_switch`: this end has the right to send for all its threads,
    /// and takes an offer of the receiver.
    ///
    /// Errors: `TailDecreased`, `TailOutOfRange`, `SwitchCut`, `SwitchState`, `SleepWord`.
    pub fn send(&mut self, bytes: &[u8], can_switch: bool) -> Result<SwitchedSend, PeerFault> {
        for _ in 0..SWITCH_ATTEMPTS_MAX {
            let control = self.ring.control();
            self.ring.steps.reach();
            match control & STATE {
                OFFER if can_switch && control & HOLDS == 0 => self.enter_ring(control),
                KERNEL | OFFER => return Ok(SwitchedSend::Kernel),
                RING => {
                    if let Some(result) = self.send_ring(control, bytes)? {
                        return Ok(result);
                    }
                }
                _ if is_kept::<S>(SwitchRule::FrozenSenderWaits) => return Ok(SwitchedSend::Wait),
                _ => return Ok(SwitchedSend::Kernel),
            }
        }
        Ok(SwitchedSend::Wait)
    }

    /// Takes an offer. Only this end can leave the state `offer` for `ring`, so it writes the words first.
    fn enter_ring(&mut self, control: u32) {
        let words = &self.ring.words;
        let kernel_bytes = words.switch.kernel_bytes.load(Ordering::Relaxed);
        words.switch.kernel_bytes_at_entry.store(kernel_bytes, Ordering::Relaxed);
        words.switch.ring_from.store(self.sent, Ordering::Relaxed);
        words.sender.head.store(self.sent, Ordering::Relaxed);
        words.receiver.tail.store(self.sent, Ordering::Relaxed);
        words.switch.cut.store(SwitchCut::empty(epoch(control)).0, Ordering::Relaxed);
        self.tail_seen = self.sent;
        self.ring.steps.reach();
        // If it fails, the offer was taken back or held, and the next attempt finds out.
        let _ = self.ring.replace(control, control_of(epoch(control), RING));
    }

    /// Sends through the ring; `None`: the state has changed and no byte was sent.
    fn send_ring(&mut self, control: u32, bytes: &[u8]) -> Result<Option<SwitchedSend>, PeerFault> {
        let ring = &self.ring;
        let tail = ring.words.receiver.tail.load(Ordering::Acquire);
        ring.steps.reach();
        // Space that the index shows may hold bytes that an injector still reads, unless the ring is in use now.
        if is_kept::<S>(SwitchRule::LookAfterTail) && ring.control() != control {
            return Ok(None);
        }
        if tail < self.tail_seen {
            return Err(PeerFault::TailDecreased);
        }
        if tail > self.sent {
            return Err(PeerFault::TailOutOfRange);
        }
        self.tail_seen = tail;
        ring.steps.reach();
        let count = bytes.len().min((ring.area.len() - (self.sent - tail)) as usize);
        if count == 0 {
            return Ok(Some(SwitchedSend::Wait));
        }
        ring.area.copy_in(self.sent, &bytes[..count]);
        ring.steps.reach();
        let sent = self.sent + count as u64;
        ring.words.sender.head.store(sent, Ordering::Release);
        ring.fencing.after_publication();
        ring.steps.reach();
        if is_kept::<S>(SwitchRule::LookAfterPublication) && ring.control() != control {
            let cut = ring.cut(epoch(control))?;
            if !SwitchedRing::<S>::accepted(cut.head(), self.sent, sent)? {
                return Ok(None);
            }
        }
        self.sent = sent;
        let wake = sleep::take(&ring.words.shared.data_sleep)?;
        Ok(Some(SwitchedSend::Sent(count, wake)))
    }

    /// Reports bytes that the caller has written to the kernel's socket after [`SwitchedSend::Kernel`].
    pub fn kernel_sent(&mut self, count: usize) {
        self.sent += count as u64;
        self.ring.words.switch.kernel_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Takes the error of the socket that an injector received in this end's place; 0 if there is none.
    pub fn take_error(&self) -> u32 {
        self.ring.words.switch.error.swap(0, Ordering::Relaxed)
    }
}

/// Result of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedReceive {
    /// As many bytes came from the ring; the sender needs the wake-up.
    Received(usize, Wake),
    /// The caller reads the kernel's socket now and reports it with [`SwitchReceiver::kernel_received`].
    Kernel,
    /// The ring is in use and empty. The end of the stream shows at the kernel's socket only.
    Empty,
}

/// The receiving end of a switched direction.
#[derive(Debug)]
pub struct SwitchReceiver<S> {
    ring: SwitchedRing<S>,
    /// Bytes of the stream that were received, by either transport.
    received: u64,
}

impl<S: SwitchSteps> SwitchReceiver<S> {
    pub(crate) fn new(ring: SwitchedRing<S>) -> Self {
        Self { ring, received: 0 }
    }

    /// Returns the bytes that were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Offers the sender to use the ring; returns whether the offer stands. From now on this end must not sleep in the
    /// kernel without its eventfd.
    pub fn offer(&self) -> bool {
        let control = self.ring.control();
        self.ring.steps.reach();
        control & (STATE | HOLDS) == KERNEL && self.ring.replace(control, control_of(epoch(control), OFFER))
    }

    /// Receives from the ring to the front of `out`, or says that the kernel's socket has the next bytes.
    ///
    /// Errors: `HeadDecreased`, `HeadOutOfRange`, `SwitchCut`, `SwitchState`, `SleepWord`.
    pub fn receive(&mut self, out: &mut [u8]) -> Result<SwitchedReceive, PeerFault> {
        for _ in 0..SWITCH_ATTEMPTS_MAX {
            let control = self.ring.control();
            self.ring.steps.reach();
            let ring_from = self.ring.words.switch.ring_from.load(Ordering::Relaxed);
            if control & STATE != RING || self.received < ring_from {
                return Ok(SwitchedReceive::Kernel);
            }
            if let Some(result) = self.receive_ring(control, out)? {
                return Ok(result);
            }
        }
        Ok(SwitchedReceive::Empty)
    }

    /// Receives from the ring; `None`: the state has changed and no byte was received.
    fn receive_ring(&mut self, control: u32, out: &mut [u8]) -> Result<Option<SwitchedReceive>, PeerFault> {
        let ring = &self.ring;
        let head = ring.words.sender.head.load(Ordering::Acquire);
        ring.steps.reach();
        let there = head.checked_sub(self.received).ok_or(PeerFault::HeadDecreased)?;
        if there > ring.area.len() {
            return Err(PeerFault::HeadOutOfRange);
        }
        let count = out.len().min(there as usize);
        if count == 0 {
            // Nothing that an index shows leaves before a later look at the control word.
            let is_same = ring.control() == control;
            return Ok(is_same.then_some(SwitchedReceive::Empty));
        }
        ring.area.copy_out(self.received, &mut out[..count]);
        ring.steps.reach();
        let received = self.received + count as u64;
        ring.words.receiver.tail.store(received, Ordering::Release);
        ring.fencing.after_publication();
        ring.steps.reach();
        if is_kept::<S>(SwitchRule::LookAfterRelease) && ring.control() != control {
            let cut = ring.cut(epoch(control))?;
            if !SwitchedRing::<S>::accepted(cut.tail(), self.received, received)? {
                return Ok(None);
            }
        }
        self.received = received;
        let wake = sleep::take(&ring.words.shared.space_sleep)?;
        Ok(Some(SwitchedReceive::Received(count, wake)))
    }

    /// Reports bytes that the caller has read from the kernel's socket.
    pub fn kernel_received(&mut self, count: usize) {
        self.received += count as u64;
    }

    /// Receives bytes that a dead injector has not injected, once the kernel's socket has nothing left: it is at its
    /// end, or it is a Unix socket, which delivers at once, and is empty. 0: there are none.
    ///
    /// Errors: `SwitchCut`, `SwitchState`.
    pub fn receive_left_over(&mut self, out: &mut [u8]) -> Result<usize, PeerFault> {
        let control = self.ring.control();
        let ring_from = self.ring.words.switch.ring_from.load(Ordering::Relaxed);
        if control & STATE != FROZEN || self.received < ring_from {
            return Ok(0);
        }
        let cut = self.ring.cut(epoch(control))?;
        let left = (cut.head().wrapping_sub(self.received)) & INDEX_MASK;
        if left > self.ring.area.len() {
            return Err(PeerFault::SwitchCut);
        }
        let count = out.len().min(left as usize);
        self.ring.area.copy_out(self.received, &mut out[..count]);
        self.received += count as u64;
        Ok(count)
    }
}
