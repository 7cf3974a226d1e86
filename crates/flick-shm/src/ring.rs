//! A ring of bytes between two processes, one of which sends and the other receives.
//! Promises: bytes arrive once and in order; each index of the other side is read once, checked, and masked before use;
//! no call allocates or blocks; a sender can move to a larger or smaller ring while bytes are in the old one.
//! Refuses: messages; two threads on one side (no `Clone`); waking the other side: it only returns that a wake-up is
//! due.
//! Source: free-running indices as in Linux `xsk.h`; a bounded copy as in SocksDirect's rings.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::control::{Direction, FINISHED, RESET};
use crate::fault::PeerFault;
use crate::raw::{Area, Window, Words};
use crate::sleep::{self, Fencing, SleepKind, Sleeper, Wake};
use crate::sync::Ordering;

/// The sending side of a ring.
#[derive(Debug)]
pub struct RingSender {
    words: Words<Direction>,
    window: Window,
    fencing: Fencing,
    sleeper: Sleeper,
    area: Area,
    location: u64,
    /// Number of the present ring.
    number: u32,
    /// Whether the receiver has to find the present ring by its number.
    has_changed: bool,
    /// Offset in the stream at which the present ring begins.
    start: u64,
    /// The former ring, until the receiver has consumed all bytes before `start`.
    former: Option<u64>,
    /// Bytes copied in, published or not.
    head: u64,
    published: u64,
    /// Bytes consumed, as last read.
    tail_seen: u64,
}

impl RingSender {
    /// Begins to send from offset 0 through the ring at a location, and describes it to the receiver. The direction's
    /// words are zero.
    ///
    /// Errors: `RingLocation`.
    pub(crate) fn new(
        words: Words<Direction>,
        window: Window,
        fencing: Fencing,
        location: u64,
    ) -> Result<Self, PeerFault> {
        let area = window.area(location).ok_or(PeerFault::RingLocation)?;
        words.sender.ring_location[0].store(location, Ordering::Relaxed);
        Ok(Self {
            words,
            window,
            fencing,
            sleeper: Sleeper::new(fencing),
            area,
            location,
            number: 0,
            has_changed: false,
            start: 0,
            former: None,
            head: 0,
            published: 0,
            tail_seen: 0,
        })
    }

    /// Returns the capacity of the present ring.
    pub fn capacity(&self) -> u64 {
        self.area.len()
    }

    /// Returns the free bytes of the ring.
    ///
    /// Cost: the receiver's cache line is read only when the ring appears too full for `wanted` bytes.
    /// Errors: `TailDecreased`, `TailOutOfRange`.
    pub fn free_bytes(&mut self, wanted: usize) -> Result<usize, PeerFault> {
        if self.free_now() < wanted {
            let tail = self.words.receiver.tail.load(Ordering::Acquire);
            if tail < self.tail_seen {
                return Err(PeerFault::TailDecreased);
            }
            if tail > self.published {
                return Err(PeerFault::TailOutOfRange);
            }
            self.tail_seen = tail;
        }
        Ok(self.free_now())
    }

    /// Returns how many of the bytes that were sent the other side has consumed.
    ///
    /// Errors: those of [`free_bytes`](Self::free_bytes).
    pub fn consumed_bytes(&mut self) -> Result<u64, PeerFault> {
        self.free_bytes(usize::MAX)?;
        Ok(self.tail_seen)
    }

    fn free_now(&self) -> usize {
        (self.area.len() - (self.head - self.tail_seen.max(self.start))) as usize
    }

    /// Copies the front of `bytes` in and returns how many bytes fit. The receiver sees them after [`publish`].
    ///
    /// Errors: those of [`free_bytes`](Self::free_bytes).
    ///
    /// [`publish`]: Self::publish
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, PeerFault> {
        let count = self.free_bytes(bytes.len())?.min(bytes.len());
        self.area.copy_in(self.head, &bytes[..count]);
        self.head += count as u64;
        Ok(count)
    }

    /// Publishes all bytes that were copied in, and returns which wake-up the receiver needs.
    ///
    /// Errors: `SleepWord`; the bytes are published.
    pub fn publish(&mut self) -> Result<Wake, PeerFault> {
        if self.published == self.head {
            return Ok(Wake::NotNeeded);
        }
        self.published = self.head;
        self.words.sender.head.store(self.head, Ordering::Release);
        self.fencing.after_publication();
        sleep::take(&self.words.shared.data_sleep)
    }

    /// Announces that no byte follows, and returns which wake-up the receiver needs.
    ///
    /// Errors: `SleepWord`; the end is announced.
    pub fn close(&mut self) -> Result<Wake, PeerFault> {
        self.words.sender.closed.store(FINISHED, Ordering::Release);
        self.fencing.after_publication();
        sleep::take(&self.words.shared.data_sleep)
    }

    /// Returns whether the receiver reads no more.
    pub fn is_receiver_closed(&self) -> bool {
        self.words.shared.receiver_closed.load(Ordering::Acquire) != 0
    }

    /// Announces that this side is about to sleep until the ring has space. `true`: sleep; the release that leaves half
    /// of it free wakes this side. `false`: look again.
    ///
    /// Errors: those of [`free_bytes`](Self::free_bytes).
    pub fn prepare_sleep(&mut self, kind: SleepKind) -> Result<bool, PeerFault> {
        assert!(self.published == self.head, "a receiver cannot release bytes that are not published");
        self.sleeper.announce(&self.words.shared.space_sleep, kind);
        let may_sleep = self.sleeper.before_sleep()
            && (self.free_bytes(usize::MAX)? as u64) < self.area.len() / 2
            && !self.is_receiver_closed();
        if !may_sleep {
            self.cancel_sleep();
        }
        Ok(may_sleep)
    }

    /// Takes the announcement of a sleep back.
    pub fn cancel_sleep(&mut self) {
        self.sleeper.cancel(&self.words.shared.space_sleep);
    }

    /// Returns the value of the sleep word while this side sleeps.
    pub(crate) fn asleep(&self, kind: SleepKind) -> u32 {
        self.sleeper.asleep(kind)
    }

    /// Frees the receiver of the fences that a thread's sleep has asked it for.
    pub(crate) fn end_fences(&mut self) {
        self.sleeper.end_fences(&self.words.shared.space_sleep);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn begin_fences(&mut self) {
        self.sleeper.begin_fences(&self.words.shared.space_sleep);
    }

    /// Moves to the ring at another location; bytes in the present one stay there until the receiver has them. `false`:
    /// not now, the receiver has not read from the present ring yet.
    ///
    /// Errors: `RingLocation`; those of [`free_bytes`](Self::free_bytes).
    pub fn change_ring(&mut self, location: u64) -> Result<bool, PeerFault> {
        assert!(self.published == self.head, "the next ring begins behind published bytes");
        self.free_bytes(usize::MAX)?;
        // Until the receiver has consumed a byte of the present ring, it may not know of it, and must not miss it.
        if self.former.is_some() || (self.has_changed && self.tail_seen <= self.start) {
            return Ok(false);
        }
        let area = self.window.area(location).ok_or(PeerFault::RingLocation)?;
        let number = self.number.wrapping_add(1);
        let at = number as usize % 2;
        self.words.sender.ring_location[at].store(location, Ordering::Relaxed);
        self.words.sender.ring_start[at].store(self.head, Ordering::Relaxed);
        self.words.sender.ring_number.store(number, Ordering::Release);
        self.former = Some(self.location);
        self.has_changed = true;
        (self.area, self.location, self.number, self.start) = (area, location, number, self.head);
        Ok(true)
    }

    /// Returns the location of the present ring.
    pub(crate) fn location(&self) -> u64 {
        self.location
    }

    /// Returns the location of the former ring, once, when the receiver has consumed all of its bytes.
    ///
    /// Errors: those of [`free_bytes`](Self::free_bytes).
    pub fn take_unused_ring(&mut self) -> Result<Option<u64>, PeerFault> {
        if self.former.is_none() {
            return Ok(None);
        }
        self.free_bytes(usize::MAX)?;
        Ok(if self.tail_seen >= self.start { self.former.take() } else { None })
    }

    /// Returns the location of a former ring that the receiver has not consumed, for when the connection ends.
    pub(crate) fn former_location(&self) -> Option<u64> {
        self.former
    }

    pub(crate) fn words(&self) -> &Words<Direction> {
        &self.words
    }
}

/// The receiving side of a ring.
#[derive(Debug)]
pub struct RingReceiver {
    words: Words<Direction>,
    window: Window,
    fencing: Fencing,
    sleeper: Sleeper,
    area: Area,
    number: u32,
    /// The next ring and the offset in the stream at which it begins.
    next: Option<(u64, Area)>,
    /// Bytes copied out, released or not.
    tail: u64,
    released: u64,
    /// Bytes published, as last read.
    head_seen: u64,
    /// End of the bytes that are published in the present ring.
    end: u64,
}

impl RingReceiver {
    /// Begins to receive at offset 0 from the ring that the sender describes.
    ///
    /// Errors: `RingLocation`.
    pub(crate) fn new(words: Words<Direction>, window: Window, fencing: Fencing) -> Result<Self, PeerFault> {
        let location = words.sender.ring_location[0].load(Ordering::Relaxed);
        let area = window.area(location).ok_or(PeerFault::RingLocation)?;
        Ok(Self {
            words,
            window,
            fencing,
            sleeper: Sleeper::new(fencing),
            area,
            number: 0,
            next: None,
            tail: 0,
            released: 0,
            head_seen: 0,
            end: 0,
        })
    }

    /// Returns the capacity of the ring that is read from.
    pub fn capacity(&self) -> u64 {
        self.area.len()
    }

    /// Returns the published bytes that [`pop`](Self::pop) can return at once.
    ///
    /// Cost: the sender's cache line is read only when fewer than `wanted` bytes are known to be there.
    /// Errors: `HeadDecreased`, `HeadOutOfRange`, `RingNumber`, `RingStart`, `RingLocation`.
    pub fn available_bytes(&mut self, wanted: usize) -> Result<usize, PeerFault> {
        if self.end - self.tail < wanted as u64 {
            self.look()?;
        }
        Ok((self.end - self.tail) as usize)
    }

    /// Reads the sender's index and ring.
    fn look(&mut self) -> Result<(), PeerFault> {
        let head = self.words.sender.head.load(Ordering::Acquire);
        if head < self.head_seen {
            return Err(PeerFault::HeadDecreased);
        }
        // The sender stores the number before it publishes a byte of the ring.
        let number = self.words.sender.ring_number.load(Ordering::Acquire);
        if self.next.is_none() && number != self.number {
            self.next = Some(self.next_ring(number)?);
        }
        if let Some((start, area)) = self.next.take_if(|(start, _)| *start == self.tail) {
            (self.area, self.number) = (area, self.number.wrapping_add(1));
            self.end = start;
        }
        let (end, beyond) = match &self.next {
            Some((start, area)) => (head.min(*start), head.saturating_sub(*start) > area.len()),
            None => (head, false),
        };
        if beyond || end - self.tail > self.area.len() {
            return Err(PeerFault::HeadOutOfRange);
        }
        (self.head_seen, self.end) = (head, end);
        Ok(())
    }

    /// Reads and checks the description of the next ring.
    fn next_ring(&self, number: u32) -> Result<(u64, Area), PeerFault> {
        if number != self.number.wrapping_add(1) {
            return Err(PeerFault::RingNumber);
        }
        let at = number as usize % 2;
        let start = self.words.sender.ring_start[at].load(Ordering::Relaxed);
        if start < self.head_seen || start - self.tail > self.area.len() {
            return Err(PeerFault::RingStart);
        }
        let location = self.words.sender.ring_location[at].load(Ordering::Relaxed);
        Ok((start, self.window.area(location).ok_or(PeerFault::RingLocation)?))
    }

    /// Copies published bytes to the front of `out` and returns how many. The next [`release`](Self::release) frees
    /// their space.
    ///
    /// Errors: those of [`available_bytes`](Self::available_bytes).
    pub fn pop(&mut self, out: &mut [u8]) -> Result<usize, PeerFault> {
        let mut count = 0;
        // Two rounds at most: the rest of the present ring, then the next one.
        for _ in 0..2 {
            let out = &mut out[count..];
            let part = match self.available_bytes(out.len()) {
                // Bytes before the fault are delivered; the next call reports it.
                Err(_) if count > 0 => break,
                part => part?.min(out.len()),
            };
            self.area.copy_out(self.tail, &mut out[..part]);
            self.tail += part as u64;
            count += part;
            if self.next.is_none() {
                break;
            }
        }
        Ok(count)
    }

    /// Frees the space of all bytes that were copied out, and returns which wake-up the sender needs.
    ///
    /// Errors: `SleepWord`; the space is free.
    pub fn release(&mut self) -> Result<Wake, PeerFault> {
        if self.released == self.tail {
            return Ok(Wake::NotNeeded);
        }
        self.released = self.tail;
        self.words.receiver.tail.store(self.tail, Ordering::Release);
        self.fencing.after_publication();
        // The ring may be fuller than `head_seen` shows: a wake-up may come too early, never too late. The sender
        // sleeps for half of its ring, which may be the next one.
        let capacity =
            self.next.as_ref().map_or(self.area.len(), |(_, area)| area.len().min(self.area.len()));
        if self.head_seen - self.tail <= capacity / 2 {
            sleep::take(&self.words.shared.space_sleep)
        } else {
            Ok(Wake::NotNeeded)
        }
    }

    /// Announces that this side reads no more, and returns which wake-up the sender needs.
    ///
    /// Errors: `SleepWord`; the end is announced.
    pub fn close(&mut self) -> Result<Wake, PeerFault> {
        self.words.shared.receiver_closed.store(1, Ordering::Release);
        self.fencing.after_publication();
        sleep::take(&self.words.shared.space_sleep)
    }

    /// Returns whether the sender has closed and every byte was copied out.
    ///
    /// Errors: those of [`available_bytes`](Self::available_bytes).
    pub fn is_finished(&mut self) -> Result<bool, PeerFault> {
        if self.words.sender.closed.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        Ok(self.available_bytes(1)? == 0 && self.head_seen == self.tail)
    }

    /// Returns whether the sender has given the connection up.
    pub fn is_reset(&self) -> bool {
        self.words.sender.closed.load(Ordering::Acquire) == RESET
    }

    /// Announces that this side is about to sleep because the ring is empty. `true`: sleep; the next publication wakes
    /// this side. `false`: look again.
    ///
    /// Errors: those of [`available_bytes`](Self::available_bytes).
    pub fn prepare_sleep(&mut self, kind: SleepKind) -> Result<bool, PeerFault> {
        self.announce_sleep(kind);
        let may_sleep = self.sleeper.before_sleep() && self.is_idle()?;
        if !may_sleep {
            self.cancel_sleep();
        }
        Ok(may_sleep)
    }

    /// Stores the sleep word. An event loop does so for all connections, then calls [`Fencing::before_sleep`] once, and
    /// then [`is_idle`](Self::is_idle) for each.
    pub fn announce_sleep(&mut self, kind: SleepKind) {
        assert!(
            self.released == self.tail,
            "a sender may be waiting for space that this side has not released"
        );
        self.sleeper.announce(&self.words.shared.data_sleep, kind);
    }

    /// Returns whether an announced sleep needs a barrier on all cores; otherwise the other side executes fences.
    pub(crate) fn needs_barrier(&self) -> bool {
        self.sleeper.needs_barrier()
    }

    /// Relies on the other side's fences from now on: a barrier was executed after the announcement.
    pub(crate) fn note_barrier(&mut self) {
        self.sleeper.note_barrier();
    }

    /// Returns whether neither a byte nor the end of the stream is there to be read.
    ///
    /// Errors: those of [`available_bytes`](Self::available_bytes).
    pub fn is_idle(&mut self) -> Result<bool, PeerFault> {
        let is_closed = self.words.sender.closed.load(Ordering::Acquire) != 0;
        Ok(self.available_bytes(1)? == 0 && !is_closed)
    }

    /// Takes the announcement of a sleep back.
    pub fn cancel_sleep(&mut self) {
        self.sleeper.cancel(&self.words.shared.data_sleep);
    }

    /// Returns the value of the sleep word while this side sleeps.
    pub(crate) fn asleep(&self, kind: SleepKind) -> u32 {
        self.sleeper.asleep(kind)
    }

    /// Frees the sender of the fences that a thread's sleep has asked it for.
    pub(crate) fn end_fences(&mut self) {
        self.sleeper.end_fences(&self.words.shared.data_sleep);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn begin_fences(&mut self) {
        self.sleeper.begin_fences(&self.words.shared.data_sleep);
    }
}
