//! The way back from the ring: an injector freezes a direction, agrees on the cut, and writes the bytes that the
//! receiver has not consumed to the kernel's socket.
//! Promises: one injector at a time, told by a number that is never 0, such as that of its thread; it can stop at any
//! step and continue; a sender whose injector has died continues from the kernel's own count of bytes.
//! Not here: the socket, and the wake-ups. The caller writes without blocking and reports the result, and signals both
//! ends after [`Freeze::Frozen`] and [`Injection::Done`].

use super::{
    FROZEN, HOLDS, INDEX_MASK, KERNEL, RING, STATE, SwitchHolder, SwitchRule, SwitchSteps, SwitchedRing,
    control_of, epoch, is_kept, next_epoch,
};
use crate::fault::PeerFault;
use crate::limits::CONTROL_ATTEMPTS_MAX;
use crate::sync::Ordering;

/// Result of an attempt to freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// The direction is in the kernel already, and held as asked.
    InKernel,
    /// The direction is frozen, and this injector must inject.
    Frozen,
    /// Another injector is at work, or the control word keeps changing: try again.
    Busy,
}

/// Next step of an injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The caller writes the first bytes of its buffer to the socket and reports it with [`Injector::injected`].
    Write(usize),
    /// All bytes are in the kernel, and the direction too.
    Done,
}

/// One that can return a direction to the kernel: either end, or a monitor.
#[derive(Debug)]
pub struct Injector<S> {
    ring: SwitchedRing<S>,
    number: u32,
    /// Offset in the stream of the next byte to inject, and of the end; `None` before the cut is known.
    range: Option<(u64, u64)>,
}

impl<S: SwitchSteps> Injector<S> {
    pub(crate) fn new(ring: SwitchedRing<S>, number: u32) -> Self {
        assert!(number != 0, "0 means that there is no injector");
        Self { ring, number, range: None }
    }

    /// Freezes the direction if it is in the ring, and holds it in the kernel if a holder is given.
    pub fn freeze(&mut self, hold: Option<SwitchHolder>) -> Freeze {
        let injector = &self.ring.words.shared.injector;
        let taken = injector.compare_exchange(0, self.number, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err_and(|present| present != self.number) {
            return Freeze::Busy;
        }
        let hold = hold.map_or(0, |holder| self.hold_bit(holder));
        let mut freeze = Freeze::Busy;
        // An honest end changes the word at most once before it sees the hold or the freeze.
        for _ in 0..CONTROL_ATTEMPTS_MAX {
            self.ring.steps.reach();
            let control = self.ring.control();
            let (epoch, state) = match control & STATE {
                RING => (epoch(control), FROZEN),
                state @ (KERNEL | FROZEN) => (epoch(control), state),
                _ => (next_epoch(control), KERNEL),
            };
            let new = control_of(epoch, state) | (control & HOLDS) | hold;
            if new == control || self.ring.replace(control, new) {
                freeze = if state == FROZEN { Freeze::Frozen } else { Freeze::InKernel };
                break;
            }
        }
        if freeze != Freeze::Frozen {
            self.ring.words.shared.injector.store(0, Ordering::Release);
        }
        freeze
    }

    fn hold_bit(&self, holder: SwitchHolder) -> u32 {
        if is_kept::<S>(SwitchRule::HoldPerHolder) { holder as u32 } else { SwitchHolder::Monitor as u32 }
    }

    /// Takes back a hold.
    pub fn release(&self, holder: SwitchHolder) {
        self.ring.words.shared.control.fetch_and(!self.hold_bit(holder), Ordering::AcqRel);
    }

    /// Returns whether a holder keeps the direction in the kernel, and it is there.
    pub fn is_held(&self, holder: SwitchHolder) -> bool {
        let control = self.ring.control();
        control & STATE == KERNEL && control & self.hold_bit(holder) != 0
    }

    /// Lets others be the injector after one has died before it froze the direction. After it has frozen it, see
    /// [`continue_for`](Self::continue_for) and [`complete_for`](Self::complete_for). Returns whether the dead one was
    /// the injector.
    pub fn discard_dead(&self, dead: u32) -> bool {
        let injector = &self.ring.words.shared.injector;
        // Only the injector freezes, and it is dead.
        !self.is_frozen() && injector.compare_exchange(dead, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the number of the injector that is at work; 0: there is none.
    pub fn present(&self) -> u32 {
        self.ring.words.shared.injector.load(Ordering::Acquire)
    }

    /// Returns whether the direction is frozen.
    pub fn is_frozen(&self) -> bool {
        self.ring.control() & STATE == FROZEN
    }

    /// Copies the next bytes to the front of `out`, after [`Freeze::Frozen`].
    ///
    /// Errors: `SwitchCut`, `SwitchState`.
    pub fn next(&mut self, out: &mut [u8]) -> Result<Injection, PeerFault> {
        let (at, end) = match self.range {
            Some(range) => range,
            None => {
                let (tail, head) = self.cut_range()?;
                *self.range.insert((tail, head))
            }
        };
        if at == end {
            self.finish()?;
            return Ok(Injection::Done);
        }
        let count = out.len().min((end - at) as usize);
        self.ring.area.copy_out(at, &mut out[..count]);
        self.ring.steps.reach();
        Ok(Injection::Write(count))
    }

    /// Reports bytes that the caller has written to the kernel's socket.
    pub fn injected(&mut self, count: usize) {
        if let Some((at, _)) = &mut self.range {
            *at += count as u64;
            self.ring.words.switch.kernel_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Reports that the socket refuses all further bytes; the sender gets the error number.
    pub fn failed(&mut self, errno: u32) {
        self.ring.words.switch.error.store(errno, Ordering::Relaxed);
        if let Some((at, end)) = &mut self.range {
            *at = *end;
        }
    }

    /// Returns the offsets in the stream at which the ring was cut: those of the receiver and of the sender.
    fn cut_range(&self) -> Result<(u64, u64), PeerFault> {
        let control = self.ring.control();
        if control & STATE != FROZEN {
            return Err(PeerFault::SwitchState);
        }
        let cut = self.ring.cut(epoch(control))?;
        // The sender's index is at the cut, or one message beyond it.
        let index = self.ring.words.sender.head.load(Ordering::Relaxed);
        let head = index.wrapping_sub(index.wrapping_sub(cut.head()) & INDEX_MASK);
        let left = cut.head().wrapping_sub(cut.tail()) & INDEX_MASK;
        if left > self.ring.area.len() || left > head {
            return Err(PeerFault::SwitchCut);
        }
        Ok((head - left, head))
    }

    /// Returns the direction to the kernel, in the next epoch.
    ///
    /// Errors: `SwitchState` if the control word keeps changing, or shows another state.
    fn finish(&mut self) -> Result<(), PeerFault> {
        // Only holds change a frozen direction, each once.
        for _ in 0..CONTROL_ATTEMPTS_MAX {
            let control = self.ring.control();
            if control & STATE != FROZEN {
                break;
            }
            let next = control_of(next_epoch(control), KERNEL);
            if self.ring.replace(control, next | (control & HOLDS)) {
                self.range = None;
                self.ring.steps.reach();
                self.ring.words.shared.injector.store(0, Ordering::Release);
                return Ok(());
            }
        }
        Err(PeerFault::SwitchState)
    }

    /// Ends the injection of a dead injector, at the receiver's end, after
    /// [`SwitchReceiver::receive_left_over`](super::SwitchReceiver::receive_left_over) has returned 0 and the kernel's
    /// socket is empty; only for sockets that deliver at once. Returns whether the direction is back in the kernel.
    ///
    /// Errors: `SwitchState`.
    pub fn complete_for(&mut self, dead: u32) -> Result<bool, PeerFault> {
        if self.ring.control() & STATE != FROZEN {
            return Ok(false);
        }
        let injector = &self.ring.words.shared.injector;
        if injector.compare_exchange(dead, self.number, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(false);
        }
        // All that was frozen counts as read from the kernel, whatever the dead injector has counted.
        let switch = &self.ring.words.switch;
        switch.kernel_bytes.store(switch.kernel_taken.load(Ordering::Relaxed), Ordering::Relaxed);
        self.finish()?;
        Ok(true)
    }

    /// Continues the injection of a dead injector, at the sender's end. `kernel_bytes` are the bytes of this direction
    /// that the kernel has accepted since the connection began: of TCP, `bytes_sent - bytes_retrans + notsent`. Returns
    /// whether this injector must inject now.
    ///
    /// Errors: `SwitchCut`, `SwitchState`.
    pub fn continue_for(&mut self, dead: u32, kernel_bytes: u64) -> Result<bool, PeerFault> {
        if self.ring.control() & STATE != FROZEN {
            return Ok(false);
        }
        let injector = &self.ring.words.shared.injector;
        if injector.compare_exchange(dead, self.number, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(false);
        }
        let (tail, head) = self.cut_range()?;
        let at_entry = self.ring.words.switch.kernel_bytes_at_entry.load(Ordering::Relaxed);
        let injected = kernel_bytes.checked_sub(at_entry).ok_or(PeerFault::SwitchCut)?;
        if injected > head - tail {
            return Err(PeerFault::SwitchCut);
        }
        // The dead injector may have died between its last write and its count.
        self.ring.words.switch.kernel_bytes.store(kernel_bytes, Ordering::Relaxed);
        self.range = Some((tail + injected, head));
        Ok(true)
    }
}
