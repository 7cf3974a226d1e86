//! The receiving end of a switched direction.

use super::{
    FROZEN, HOLDS, INDEX_MASK, KERNEL, OFFER, PREPARE, RING, STATE, SwitchRule, SwitchSteps, SwitchedRing,
    control_of, epoch, is_kept,
};
use crate::fault::PeerFault;
use crate::limits::SWITCH_ATTEMPTS_MAX;
use crate::members::{Call, Member, Others, Refused};
use crate::sleep::{self, Wake};
use crate::sync::Ordering;
use crate::token::{Acquired, Token};

/// Result of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedReceive {
    /// As many bytes came from the ring; the sender needs the wake-up.
    Received(usize, Wake),
    /// The caller reads the kernel's socket now, and reports it with [`SwitchReceiver::kernel_received`] in any case.
    Kernel {
        /// Whether it may sleep in the kernel; otherwise bytes may arrive in the ring meanwhile.
        may_sleep: bool,
    },
    /// The ring is in use and empty. The end of the stream shows at the kernel's socket only.
    Empty,
    /// A signal handler interrupts a receive of its thread.
    Nested,
    /// The thread that may receive appears to be stopped: the caller returns the direction to the kernel.
    Stalled,
    /// A thread died while it read bytes of before the ring: the caller returns the direction to the kernel, and counts
    /// again ([`SwitchReceiver::recount`]).
    Uncounted,
    /// This process was forked and has not joined.
    NotJoined,
}

/// The receiving end of a switched direction, for all threads of all processes.
#[derive(Debug)]
pub struct SwitchReceiver<S> {
    ring: SwitchedRing<S>,
    token: Token,
}

impl<S: SwitchSteps> SwitchReceiver<S> {
    pub(crate) fn new(ring: SwitchedRing<S>, token: Token) -> Self {
        Self { ring, token }
    }

    /// Offers the senders to use the ring, if no other thread receives; returns whether the offer stands. From now on
    /// no thread of this end may sleep in the kernel alone.
    ///
    /// Errors: `SwitchState`.
    pub fn offer(&self, member: &Member) -> Result<bool, PeerFault> {
        let control = self.ring.control();
        if control & (STATE | HOLDS) != KERNEL {
            return Ok(false);
        }
        let Ok(call) = member.enter(self.token.end, self.ring.fencing) else { return Ok(false) };
        let result = self.offer_in_call(member, call, control);
        member.leave(call);
        result
    }

    fn offer_in_call(&self, member: &Member, call: Call, control: u32) -> Result<bool, PeerFault> {
        self.ring.steps.reach();
        if self.ring.exclude_others(control, PREPARE, &self.token, member, call)? != Some(true) {
            return Ok(false);
        }
        self.token.reset::<S>(member);
        self.ring.steps.reach();
        let (preparing, new) = (control_of(epoch(control), PREPARE), control_of(epoch(control), OFFER));
        Ok(self.ring.replace(preparing, new))
    }

    /// Receives from the ring to the front of `out`, or says that the kernel's socket has the next bytes.
    ///
    /// Errors: `HeadDecreased`, `HeadOutOfRange`, `SwitchCut`, `SwitchState`, `SleepWord`.
    #[inline]
    pub fn receive(&self, member: &Member, out: &mut [u8]) -> Result<SwitchedReceive, PeerFault> {
        let call = match member.enter(self.token.end, self.ring.fencing) {
            Ok(call) => call,
            Err(Refused::Nested) => return Ok(SwitchedReceive::Nested),
            Err(Refused::NotJoined) => return Ok(SwitchedReceive::NotJoined),
        };
        let result = self.receive_in_call(member, call, out);
        if !matches!(result, Ok(SwitchedReceive::Kernel { .. })) {
            self.ring.steps.reach();
            member.leave(call);
        }
        result
    }

    #[inline(always)]
    fn receive_in_call(
        &self,
        member: &Member,
        call: Call,
        out: &mut [u8],
    ) -> Result<SwitchedReceive, PeerFault> {
        for _ in 0..SWITCH_ATTEMPTS_MAX {
            self.ring.steps.reach();
            let control = self.ring.control();
            self.ring.steps.reach();
            let switch = &self.ring.words.switch;
            let is_ring = control & STATE == RING;
            if is_ring && switch.kernel_taken.load(Ordering::Relaxed) >= self.kernel_bytes_at_entry() {
                if let Some(result) = self.receive_with_token(member, call, control, out)? {
                    return Ok(result);
                }
                continue;
            }
            if is_ring && self.token.threads.others(self.token.end, member, call) == Others::Uncounted {
                return Ok(SwitchedReceive::Uncounted);
            }
            member.use_kernel(call);
            return Ok(SwitchedReceive::Kernel { may_sleep: control & STATE == KERNEL });
        }
        Ok(SwitchedReceive::Empty)
    }

    fn kernel_bytes_at_entry(&self) -> u64 {
        self.ring.words.switch.kernel_bytes_at_entry.load(Ordering::Relaxed)
    }

    /// Receives from the ring, once no other thread of this end does; `None`: the state has changed.
    #[inline(always)]
    fn receive_with_token(
        &self,
        member: &Member,
        call: Call,
        control: u32,
        out: &mut [u8],
    ) -> Result<Option<SwitchedReceive>, PeerFault> {
        let has_changed = || is_kept::<S>(SwitchRule::LookAfterWait) && self.ring.control() != control;
        let receive = |acquired| match acquired {
            // While it waited, the call may not have been marked.
            Acquired::Biased | Acquired::Locked if has_changed() => Ok(None),
            _ => self.receive_ring(control, out),
        };
        self.ring.with_token(&self.token, (member, call), SwitchedReceive::Stalled, receive)
    }

    /// Receives from the ring; `None`: the state has changed and no byte was received.
    #[inline(always)]
    fn receive_ring(&self, control: u32, out: &mut [u8]) -> Result<Option<SwitchedReceive>, PeerFault> {
        let ring = &self.ring;
        let tail = ring.words.receiver.tail.load(Ordering::Relaxed);
        let head = ring.words.sender.head.load(Ordering::Acquire);
        ring.steps.reach();
        let there = head.checked_sub(tail).ok_or(PeerFault::HeadDecreased)?;
        if there > ring.area.len() {
            return Err(PeerFault::HeadOutOfRange);
        }
        let count = out.len().min(there as usize);
        if count == 0 {
            // Nothing that an index shows leaves before a later look at the control word.
            let is_same = ring.control() == control;
            return Ok(is_same.then_some(SwitchedReceive::Empty));
        }
        ring.area.copy_out(tail, &mut out[..count]);
        ring.steps.reach();
        let after = tail.wrapping_add(count as u64);
        ring.words.receiver.tail.store(after, Ordering::Release);
        ring.fencing.after_publication();
        ring.steps.reach();
        if is_kept::<S>(SwitchRule::LookAfterRelease) && ring.control() != control {
            let cut = ring.cut(epoch(control))?;
            if !SwitchedRing::<S>::accepted(cut.tail(), tail, after)? {
                return Ok(None);
            }
        }
        let wake = sleep::take(&ring.words.shared.space_sleep)?;
        Ok(Some(SwitchedReceive::Received(count, wake)))
    }

    /// Reports the bytes that the caller has read from the kernel's socket after [`SwitchedReceive::Kernel`], also 0.
    pub fn kernel_received(&self, member: &Member, count: usize) {
        if let Some(call) = member.kernel_call(self.token.end) {
            self.ring.words.switch.kernel_taken.fetch_add(count as u64, Ordering::Relaxed);
            self.ring.steps.reach();
            member.leave(call);
        }
    }

    /// Counts again, after a thread died that read from the kernel: `kernel_bytes` asks for the bytes that were read
    /// from the socket since the connection began. Returns whether the ring may be used again; `false`: another thread
    /// receives, or the direction is not in the kernel.
    ///
    /// Errors: `SwitchState`.
    pub fn recount(
        &self,
        member: &Member,
        kernel_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<bool, PeerFault> {
        let Ok(call) = member.enter(self.token.end, self.ring.fencing) else { return Ok(false) };
        let (word, who) = (&self.ring.words.switch.kernel_taken, (&self.token, member, call));
        let result = self.ring.recount(PREPARE, word, who, kernel_bytes);
        member.leave(call);
        result
    }

    /// Receives bytes that a dead injector has not injected, once the kernel's socket has nothing left: it is at its
    /// end, or it is a Unix socket, which delivers at once, and is empty. 0: there are none, or another thread
    /// receives.
    ///
    /// Errors: `SwitchCut`, `SwitchState`.
    pub fn receive_left_over(&self, member: &Member, out: &mut [u8]) -> Result<usize, PeerFault> {
        let Ok(call) = member.enter(self.token.end, self.ring.fencing) else { return Ok(0) };
        let acquired = self.token.acquire(member, call, self.ring.steps);
        let result = match acquired {
            Acquired::Stalled | Acquired::NoBarrier => Ok(0),
            _ => self.copy_left_over(out),
        };
        self.token.release(member, acquired, self.ring.steps);
        member.leave(call);
        result
    }

    fn copy_left_over(&self, out: &mut [u8]) -> Result<usize, PeerFault> {
        let (ring, switch) = (&self.ring, &self.ring.words.switch);
        let control = ring.control();
        let taken = switch.kernel_taken.load(Ordering::Relaxed);
        let Some(injected) = taken.checked_sub(self.kernel_bytes_at_entry()) else { return Ok(0) };
        if control & STATE != FROZEN {
            return Ok(0);
        }
        let cut = ring.cut(epoch(control))?;
        let len = cut.head().wrapping_sub(cut.tail()) & INDEX_MASK;
        if len > ring.area.len() {
            return Err(PeerFault::SwitchCut);
        }
        // What the injector has written was read from the kernel.
        let left = len.checked_sub(injected).ok_or(PeerFault::SwitchCut)?;
        let count = out.len().min(left as usize);
        ring.area.copy_out(cut.tail().wrapping_add(injected), &mut out[..count]);
        switch.kernel_taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
