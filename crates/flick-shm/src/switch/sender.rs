//! The sending end of a switched direction.

use super::{
    ENTER, FROZEN, HOLDS, KERNEL, OFFER, PREPARE, RING, SENT_UNCOUNTED, STATE, SwitchCut, SwitchRule,
    SwitchSteps, SwitchedRing, control_of, epoch, is_kept,
};
use crate::fault::PeerFault;
use crate::limits::SWITCH_ATTEMPTS_MAX;
use crate::members::{Call, Member, Refused};
use crate::sleep::{self, Wake};
use crate::sync::Ordering;
use crate::token::Token;

#[cfg(not(loom))]
use crate::members::ProcessId;

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedSend {
    /// The ring took as many bytes; the receiver needs the wake-up.
    Sent(usize, Wake),
    /// The caller writes to the kernel's socket now, and reports it with [`SwitchSender::kernel_sent`] in any case.
    Kernel,
    /// The ring is full, or the direction is frozen.
    Wait,
    /// A signal handler interrupts a send of its thread: its bytes must not overtake those.
    Nested,
    /// The thread that may send appears to be stopped: the caller returns the direction to the kernel.
    Stalled,
    /// This process was forked and has not joined.
    NotJoined,
}

/// The sending end of a switched direction, for all threads of all processes.
#[derive(Debug)]
pub struct SwitchSender<S> {
    ring: SwitchedRing<S>,
    token: Token,
}

impl<S: SwitchSteps> SwitchSender<S> {
    pub(crate) fn new(ring: SwitchedRing<S>, token: Token) -> Self {
        Self { ring, token }
    }

    /// Sends the front of `bytes`, or says who sends. `can_switch`: this call may take an offer of the receiver.
    ///
    /// Errors: `TailOutOfRange`, `SwitchCut`, `SwitchState`, `SleepWord`.
    #[inline]
    pub fn send(&self, member: &Member, bytes: &[u8], can_switch: bool) -> Result<SwitchedSend, PeerFault> {
        let call = match member.enter(self.token.end, self.ring.fencing) {
            Ok(call) => call,
            Err(Refused::Nested) => return Ok(SwitchedSend::Nested),
            Err(Refused::NotJoined) => return Ok(SwitchedSend::NotJoined),
        };
        let result = self.send_in_call(member, call, bytes, can_switch);
        if result != Ok(SwitchedSend::Kernel) {
            self.ring.steps.reach();
            member.leave(call);
        }
        result
    }

    #[inline(always)]
    fn send_in_call(
        &self,
        member: &Member,
        call: Call,
        bytes: &[u8],
        can_switch: bool,
    ) -> Result<SwitchedSend, PeerFault> {
        for _ in 0..SWITCH_ATTEMPTS_MAX {
            self.ring.steps.reach();
            let control = self.ring.control();
            self.ring.steps.reach();
            match control & STATE {
                RING => {
                    let send = |_| self.send_ring(control, bytes);
                    let who = (member, call);
                    if let Some(result) =
                        self.ring.with_token(&self.token, who, SwitchedSend::Stalled, send)?
                    {
                        return Ok(result);
                    }
                }
                OFFER if can_switch && control & HOLDS == 0 => {
                    if !self.enter_ring(member, call, control)? {
                        member.use_kernel(call);
                        return Ok(SwitchedSend::Kernel);
                    }
                }
                // Bytes that go to the kernel now would be missed by the thread that enters.
                ENTER => {
                    self.ring.withdraw(control);
                }
                FROZEN if is_kept::<S>(SwitchRule::FrozenSenderWaits) => return Ok(SwitchedSend::Wait),
                KERNEL | PREPARE | OFFER | FROZEN => {
                    member.use_kernel(call);
                    return Ok(SwitchedSend::Kernel);
                }
                _ => return Err(PeerFault::SwitchState),
            }
        }
        Ok(SwitchedSend::Wait)
    }

    /// Takes an offer, if no other thread sends. `false`: the kernel is to be used.
    ///
    /// Errors: `SwitchState`.
    #[cold]
    fn enter_ring(&self, member: &Member, call: Call, control: u32) -> Result<bool, PeerFault> {
        let ring = &self.ring;
        match ring.exclude_others(control, ENTER, &self.token, member, call)? {
            None => return Ok(true),
            Some(false) => return Ok(false),
            Some(true) => {}
        }
        // No other thread of this end is in a call, and the receivers do not use the ring: these words belong to this
        // call until the direction is in the ring, or the call has ended.
        self.token.reset::<S>(member);
        let words = &ring.words;
        let kernel_bytes = words.switch.kernel_bytes.load(Ordering::Relaxed);
        words.switch.kernel_bytes_at_entry.store(kernel_bytes, Ordering::Relaxed);
        let head = words.sender.head.load(Ordering::Relaxed);
        words.receiver.tail.store(head, Ordering::Relaxed);
        words.switch.cut.store(SwitchCut::empty(epoch(control)).0, Ordering::Relaxed);
        ring.steps.reach();
        // If it fails, the direction was returned or held, and the next attempt finds out.
        let (entering, new) = (control_of(epoch(control), ENTER), control_of(epoch(control), RING));
        ring.replace(entering, new);
        Ok(true)
    }

    /// Sends through the ring; `None`: the state has changed and no byte was sent.
    #[inline(always)]
    fn send_ring(&self, control: u32, bytes: &[u8]) -> Result<Option<SwitchedSend>, PeerFault> {
        let ring = &self.ring;
        let head = ring.words.sender.head.load(Ordering::Relaxed);
        let tail = ring.words.receiver.tail.load(Ordering::Acquire);
        ring.steps.reach();
        // Space that the index shows may hold bytes that an injector still reads, unless the ring is in use now.
        if is_kept::<S>(SwitchRule::LookAfterTail) && ring.control() != control {
            return Ok(None);
        }
        let free = head.checked_sub(tail).and_then(|used| ring.area.len().checked_sub(used));
        let count = bytes.len().min(free.ok_or(PeerFault::TailOutOfRange)? as usize);
        ring.steps.reach();
        if count == 0 {
            return Ok(Some(SwitchedSend::Wait));
        }
        ring.area.copy_in(head, &bytes[..count]);
        ring.steps.reach();
        let after = head.wrapping_add(count as u64);
        ring.words.sender.head.store(after, Ordering::Release);
        ring.fencing.after_publication();
        ring.steps.reach();
        if is_kept::<S>(SwitchRule::LookAfterPublication) && ring.control() != control {
            let cut = ring.cut(epoch(control))?;
            if !SwitchedRing::<S>::accepted(cut.head(), head, after)? {
                return Ok(None);
            }
        }
        let wake = sleep::take(&ring.words.shared.data_sleep)?;
        Ok(Some(SwitchedSend::Sent(count, wake)))
    }

    /// Reports the bytes that the caller has written to the kernel's socket after [`SwitchedSend::Kernel`], also 0.
    pub fn kernel_sent(&self, member: &Member, count: usize) {
        if let Some(call) = member.kernel_call(self.token.end) {
            self.ring.words.switch.kernel_bytes.fetch_add(count as u64, Ordering::Relaxed);
            self.ring.steps.reach();
            member.leave(call);
        }
    }

    /// Counts again, after a thread died that wrote to the kernel: `kernel_bytes` asks for the bytes of this direction
    /// that the kernel has accepted since the connection began. Returns whether the ring may be used again; `false`:
    /// another thread sends, or the direction is not in the kernel.
    ///
    /// Errors: `SwitchState`.
    pub fn recount(
        &self,
        member: &Member,
        kernel_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<bool, PeerFault> {
        let Ok(call) = member.enter(self.token.end, self.ring.fencing) else { return Ok(false) };
        let word = &self.ring.words.switch.kernel_bytes;
        let result = self.ring.recount(ENTER, word, (&self.token, member, call), kernel_bytes);
        member.leave(call);
        result
    }

    /// Returns whether the bytes of a thread that died have to be counted before the ring is used again.
    pub fn is_uncounted(&self) -> bool {
        self.ring.control() & SENT_UNCOUNTED != 0
    }

    /// Takes the error of the socket that an injector received in this end's place; 0 if there is none.
    pub fn take_error(&self) -> u32 {
        self.ring.words.switch.error.swap(0, Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl<S: SwitchSteps> SwitchSender<S> {
    /// Notes that a process has this end of the connection open; before a fork, also the child. `false`: too many
    /// processes have, so the direction has to stay in the kernel.
    pub fn hold(&self, process: ProcessId) -> bool {
        let holders = &self.token.words.holders;
        if holders.iter().any(|word| word.load(Ordering::Acquire) == process.0) {
            return true;
        }
        holders.iter().any(|word| {
            let held = word.load(Ordering::Acquire);
            let is_free = held == 0 || !self.token.threads.is_listed(ProcessId(held));
            is_free && word.compare_exchange(held, process.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Notes that a process has closed its last descriptor of this end; returns whether no process has it open now. If
    /// two close it at once, both may be the last.
    pub fn close(&self, process: ProcessId) -> bool {
        for word in &self.token.words.holders {
            let _ = word.compare_exchange(process.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        !self.is_open()
    }

    /// Returns whether a process that is still a member has this end open.
    pub fn is_open(&self) -> bool {
        let mut holders = self.token.words.holders.iter().map(|word| word.load(Ordering::Acquire));
        holders.any(|held| held != 0 && self.token.threads.is_listed(ProcessId(held)))
    }
}
