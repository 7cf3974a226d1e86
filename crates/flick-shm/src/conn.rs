//! A connection over two rings of a pair: what one side sends and receives in one slot.
//! Promises: bytes of other connections are never delivered; a peer that violates the protocol gets a fault for this
//! connection; the end of a stream is reported after its last byte.
//! Not here: who opens and accepts (`pair.rs`); sockets (`stream.rs`).

use crate::control::{Direction, FINISHED, RESET};
use crate::fault::PeerFault;
use crate::limits::{FUTEX_SLEEP_MS_MAX, PIECE_BYTES_MAX};
use crate::notify::Notifier;
use crate::raw::{Window, Words};
use crate::ring::{RingReceiver, RingSender};
use crate::sleep::{AWAKE, FENCED, SleepKind};
use crate::sync::{AtomicU32, Ordering};
use crate::sys;
use crate::watch::WatchedPeer;

/// Location of the ring of a side that refuses a connection.
pub(crate) const NO_RING: u64 = u64::MAX;
/// Location of the second ring of a connection that was refused because there is no memory for its rings. Processes
/// that do not know it do not look there, and leave the word 0.
pub(crate) const NO_MEMORY: u64 = u64::MAX;

/// Result of a look for received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRead {
    /// As many bytes were copied.
    Bytes(usize),
    /// No byte is there yet.
    Empty,
    /// The other side has sent its last byte, and it was read.
    Finished,
    /// The other side has given the connection up; what it had sent before was read.
    Reset,
}

/// Answer of the other side to a connection that this side has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAnswer {
    /// None yet; the ready bit is set when it comes.
    Pending,
    /// It has accepted.
    Accepted,
    /// It has no memory, or accepts no more connections.
    Refused,
}

/// Limit of the sleep of a thread on a futex, beside the other side's wake-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SleepLimit<'a> {
    /// A time in milliseconds.
    Ms(u32),
    /// The watch of the other process, and nothing else.
    PeerEnd(&'a WatchedPeer),
}

impl SleepLimit<'_> {
    /// Sleeps on a word behind the announcement that made it `asleep`. `true`: the limit is reached.
    fn sleep(self, word: &AtomicU32, asleep: u32) -> bool {
        match self {
            Self::Ms(timeout_ms) => sys::futex_wait(word, asleep, Some(timeout_ms)),
            Self::PeerEnd(watched) => {
                // The watch changes its state first and takes the announcement then: it finds it, or this side has to
                // find the change here.
                if watched.is_watched() {
                    sys::futex_wait(word, asleep, None);
                }
                !watched.is_watched()
            }
        }
    }
}

/// One connection between the two processes of a pair.
#[derive(Debug)]
pub struct RingConn {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) sender: RingSender,
    pub(crate) incoming: Words<Direction>,
    window: Window,
    notifier: Notifier,
    /// `None` until the other side has accepted.
    receiver: Option<RingReceiver>,
    is_refused: bool,
    is_refused_for_memory: bool,
    is_event_loop_asleep: bool,
}

impl RingConn {
    pub(crate) fn new(
        (slot, generation): (u32, u32),
        sender: RingSender,
        (incoming, window): (Words<Direction>, Window),
        notifier: Notifier,
    ) -> Self {
        Self {
            slot,
            generation,
            sender,
            incoming,
            window,
            notifier,
            receiver: None,
            is_refused: false,
            is_refused_for_memory: false,
            is_event_loop_asleep: false,
        }
    }

    /// Returns the slot of the connection, which is also its bit in the ready bitmap.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the capacity of the ring that this side sends through.
    pub fn send_capacity(&self) -> u64 {
        self.sender.capacity()
    }

    /// Returns the receiving side, once the other side has accepted.
    ///
    /// Errors: `SlotGeneration`, `RingLocation`.
    fn receiver(&mut self) -> Result<Option<&mut RingReceiver>, PeerFault> {
        if self.receiver.is_none() && !self.is_refused {
            match self.incoming.sender.generation.load(Ordering::Acquire) {
                0 => return Ok(None),
                generation if generation == self.generation => {}
                _ => return Err(PeerFault::SlotGeneration),
            }
            let location = self.incoming.sender.ring_location[0].load(Ordering::Relaxed);
            if location == NO_RING {
                self.is_refused = true;
                let reason = self.incoming.sender.ring_location[1].load(Ordering::Relaxed);
                self.is_refused_for_memory = reason == NO_MEMORY;
                return Ok(None);
            }
            let fencing = self.notifier.fencing;
            self.receiver = Some(RingReceiver::new(self.incoming.clone(), self.window.clone(), fencing)?);
        }
        Ok(self.receiver.as_mut())
    }

    /// Returns whether the other side has accepted the connection.
    ///
    /// Errors: `SlotGeneration`, `RingLocation`.
    pub fn answer(&mut self) -> Result<OpenAnswer, PeerFault> {
        let is_accepted = self.receiver()?.is_some();
        Ok(match (is_accepted, self.is_refused) {
            (true, _) => OpenAnswer::Accepted,
            (false, true) => OpenAnswer::Refused,
            (false, false) => OpenAnswer::Pending,
        })
    }

    /// Returns whether [`answer`](Self::answer) has found that the other side has no memory for the connection's rings.
    pub fn is_refused_for_memory(&self) -> bool {
        self.is_refused_for_memory
    }

    /// Sends the front of `bytes` and returns how many bytes the ring took.
    ///
    /// Errors: those of [`push`](Self::push) and [`publish`](Self::publish).
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, PeerFault> {
        let piece_bytes = piece_bytes(self.send_capacity());
        let mut sent = 0;
        while sent < bytes.len() {
            let end = bytes.len().min(sent + piece_bytes);
            let count = self.push(&bytes[sent..end])?;
            if count == 0 {
                break;
            }
            self.publish()?;
            sent += count;
        }
        Ok(sent)
    }

    /// Copies the front of `bytes` to the ring and returns how many bytes it took. The other side sees them after
    /// [`publish`](Self::publish).
    ///
    /// Errors: those of [`RingSender::push`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, PeerFault> {
        self.sender.push(bytes)
    }

    /// Publishes what was pushed, and wakes the other side if it sleeps.
    ///
    /// Errors: those of [`RingSender::publish`].
    pub fn publish(&mut self) -> Result<(), PeerFault> {
        let wake = self.sender.publish()?;
        self.notifier.deliver(self.slot, wake, &self.sender.words().shared.data_sleep);
        Ok(())
    }

    /// Receives bytes to the front of `out`.
    ///
    /// Errors: those of [`RingReceiver::pop`], [`RingReceiver::release`], and `SlotGeneration`.
    pub fn receive(&mut self, out: &mut [u8]) -> Result<RingRead, PeerFault> {
        self.receiver()?;
        let Some(receiver) = &mut self.receiver else {
            return Ok(if self.is_refused { RingRead::Finished } else { RingRead::Empty });
        };
        let piece_bytes = piece_bytes(receiver.capacity());
        let mut received = 0;
        while received < out.len() {
            let end = out.len().min(received + piece_bytes);
            let count = match receiver.pop(&mut out[received..end]) {
                // Bytes before the fault are delivered; the next call reports it.
                Err(_) if received > 0 => break,
                count => count?,
            };
            if count == 0 {
                break;
            }
            received += count;
            let wake = receiver.release()?;
            self.notifier.deliver(self.slot, wake, &self.incoming.shared.space_sleep);
        }
        Ok(match received {
            0 if !receiver.is_finished()? => RingRead::Empty,
            0 if receiver.is_reset() => RingRead::Reset,
            0 => RingRead::Finished,
            _ => RingRead::Bytes(received),
        })
    }

    /// Announces that this side sends no more.
    ///
    /// Errors: `SleepWord`; the end is announced.
    pub fn finish_sending(&mut self) -> Result<(), PeerFault> {
        let wake = self.sender.close()?;
        self.notifier.deliver(self.slot, wake, &self.sender.words().shared.data_sleep);
        Ok(())
    }

    /// Returns whether the other side reads no more: bytes that are sent now are lost.
    pub fn is_peer_gone(&self) -> bool {
        self.sender.is_receiver_closed()
    }

    /// Returns whether the other side has closed the connection in order: bytes that are sent now are lost, and none
    /// that it had sent is.
    pub fn is_peer_closed(&self) -> bool {
        self.is_peer_gone() && self.incoming.sender.closed.load(Ordering::Acquire) == FINISHED
    }

    /// Returns whether the other side has closed the connection in order, and what it had sent is not read to its end.
    ///
    /// Errors: those of [`RingReceiver::is_finished`], and `SlotGeneration`.
    pub fn is_closed_unread(&mut self) -> Result<bool, PeerFault> {
        let is_closed = self.is_peer_closed();
        match self.receiver()? {
            Some(receiver) if is_closed => Ok(!receiver.is_finished()?),
            Some(_) | None => Ok(false),
        }
    }

    /// Returns whether the other side has ended its direction, or reads no more.
    pub fn is_hung_up(&self) -> bool {
        self.incoming.sender.closed.load(Ordering::Acquire) != 0 || self.is_peer_gone()
    }

    /// Announces that this side neither sends nor reads any more, and wakes the other side. `is_complete`: all that
    /// this side had to send was sent.
    pub(crate) fn close(&mut self, is_complete: bool) {
        let closed = if is_complete { FINISHED } else { RESET };
        self.sender.words().sender.closed.store(closed, Ordering::Release);
        self.incoming.shared.receiver_closed.store(1, Ordering::Release);
        // The other side is woken whatever its sleep words say; a wrong value has no consequence any more.
        for word in [&self.sender.words().shared.data_sleep, &self.incoming.shared.space_sleep] {
            if word.swap(AWAKE, Ordering::AcqRel) & !FENCED == SleepKind::Thread as u32 {
                sys::futex_wake(word);
            }
        }
        self.notifier.mark_ready(self.slot);
    }

    /// Announces that this side's event loop is about to sleep; see [`Pair::prepare_sleep`](crate::pair::Pair).
    ///
    /// Errors: `SlotGeneration`, `RingLocation`.
    pub fn announce_sleep(&mut self) -> Result<(), PeerFault> {
        self.is_event_loop_asleep = true;
        if let Some(receiver) = self.receiver()? {
            receiver.announce_sleep(SleepKind::EventLoop);
        }
        Ok(())
    }

    /// Returns whether the announcement needs a barrier on all cores ([`Fencing::before_sleep`] of the pair's fencing);
    /// otherwise a fence is enough, because the other side executes one in each publication.
    ///
    /// [`Fencing::before_sleep`]: crate::sleep::Fencing::before_sleep
    pub fn needs_barrier(&self) -> bool {
        self.receiver.as_ref().is_some_and(RingReceiver::needs_barrier)
    }

    /// Makes later announcements do without the barrier: one was executed after the last.
    pub fn note_barrier(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            receiver.note_barrier();
        }
    }

    /// Returns whether nothing is there to be read. The other side sets the ready bit when it accepts.
    ///
    /// Errors: those of [`RingReceiver::is_idle`], and `SlotGeneration`.
    pub fn is_idle(&mut self) -> Result<bool, PeerFault> {
        let is_new = self.receiver.is_none();
        match self.receiver()? {
            // It accepted after the announcement, which so had no sleep word to store.
            Some(_) if is_new => Ok(false),
            Some(receiver) => receiver.is_idle(),
            None => Ok(!self.is_refused),
        }
    }

    /// Takes the announcement of a sleep back: this side polls the connection again.
    pub fn cancel_sleep(&mut self) {
        if core::mem::take(&mut self.is_event_loop_asleep)
            && let Some(receiver) = &mut self.receiver
        {
            receiver.cancel_sleep();
        }
    }

    /// Returns whether the ring has space.
    ///
    /// Errors: those of [`RingSender::free_bytes`].
    pub fn has_space(&mut self) -> Result<bool, PeerFault> {
        Ok(self.sender.free_bytes(1)? > 0)
    }

    /// Returns how many of the bytes that were sent the other side has consumed.
    ///
    /// Errors: those of [`RingSender::free_bytes`].
    pub fn consumed_bytes(&mut self) -> Result<u64, PeerFault> {
        self.sender.consumed_bytes()
    }

    /// Returns whether so much of the ring is free that a sender that has waited should continue: a quarter. It would
    /// otherwise send in small pieces, one for each that the other side reads.
    ///
    /// Errors: those of [`RingSender::free_bytes`].
    pub(crate) fn has_much_space(&mut self) -> Result<bool, PeerFault> {
        let much = (self.send_capacity() / 4) as usize;
        Ok(self.sender.free_bytes(much)? >= much)
    }

    /// Frees the other side of the fences that sleeps of this thread have asked it for.
    pub(crate) fn end_fences(&mut self) {
        self.sender.end_fences();
        if let Some(receiver) = &mut self.receiver {
            receiver.end_fences();
        }
    }

    /// Returns whether both sides have the connection, so that a thread can sleep on its sleep words.
    pub(crate) fn is_accepted(&self) -> bool {
        self.receiver.is_some()
    }

    /// Asks for the ready bit of this connection when the ring has space. `false`: it has space already.
    ///
    /// Errors: those of [`RingSender::prepare_sleep`].
    pub fn announce_full(&mut self) -> Result<bool, PeerFault> {
        self.sender.prepare_sleep(SleepKind::EventLoop)
    }

    /// Returns the control words of both directions, on whose sleep words a thread of this side sleeps: for data on
    /// those of the first, for space on those of the second.
    pub(crate) fn directions(&self) -> [Words<Direction>; 2] {
        [self.incoming.clone(), self.sender.words().clone()]
    }

    /// Blocks the thread until bytes or the end can be read, or the limit is reached. `true`: it is reached.
    ///
    /// Errors: those of [`RingReceiver::prepare_sleep`].
    pub(crate) fn wait_readable(&mut self, limit: SleepLimit<'_>) -> Result<bool, PeerFault> {
        let Some(receiver) = self.receiver()? else {
            if self.is_refused {
                return Ok(false);
            }
            // The side that accepts wakes this futex; the watch does not.
            let timeout_ms = match limit {
                SleepLimit::Ms(timeout_ms) => timeout_ms,
                SleepLimit::PeerEnd(_) => FUTEX_SLEEP_MS_MAX,
            };
            return Ok(sys::futex_wait(&self.incoming.sender.generation, 0, Some(timeout_ms)));
        };
        if !receiver.prepare_sleep(SleepKind::Thread)? {
            return Ok(false);
        }
        let asleep = receiver.asleep(SleepKind::Thread);
        let is_over = limit.sleep(&self.incoming.shared.data_sleep, asleep);
        self.receiver.as_mut().map(RingReceiver::cancel_sleep);
        Ok(is_over)
    }

    /// Blocks the thread until half of the ring is free, or the limit is reached. `true`: it is reached.
    ///
    /// Errors: those of [`RingSender::prepare_sleep`].
    pub(crate) fn wait_writable(&mut self, limit: SleepLimit<'_>) -> Result<bool, PeerFault> {
        if !self.sender.prepare_sleep(SleepKind::Thread)? {
            return Ok(false);
        }
        let asleep = self.sender.asleep(SleepKind::Thread);
        let is_over = limit.sleep(&self.sender.words().shared.space_sleep, asleep);
        self.sender.cancel_sleep();
        Ok(is_over)
    }
}

/// Returns how many bytes of a ring a call copies at once.
fn piece_bytes(capacity: u64) -> usize {
    (capacity / 4).min(PIECE_BYTES_MAX) as usize
}
