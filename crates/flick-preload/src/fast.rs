//! The shortest way of a `read` or a `write`: through a ring in which a call of before has succeeded, in a process that
//! has one thread.
//! Promises: what is made here is what `calls.rs` would make. As long as the word of the direction is the one that the
//! earlier call has seen, so is all else which that call has made sure of; where anything else is to be done, as to
//! wait or to look whether the other end is alive, nothing was done and the call is made there.
//! Refuses: several threads, a file that is not in a ring, an empty or a full one, a signal handler within a call.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::calls;
use crate::limits::{ALIVE_CYCLES, CALL_BYTES_MAX, FENCED_READS_MAX, RING_BYTES, RING_BYTES_MAX};
use crate::moving::{self, Moved};
use crate::raw::vfork_parent;
use crate::ring::{Ctl, PipeEnd};
use crate::state::{File, FileRef, ProcessTable};
use crate::sys::{self, pipe::PipeSegment};
use crate::{threads, transfer, wake};

/// The call is to be made elsewhere.
pub const ELSEWHERE: i64 = -1;

/// A direction whose token this call has. Having one means: in this state of the direction's word an earlier call has
/// moved bytes through its ring.
struct Direction<'a> {
    state: &'a ProcessTable,
    file: &'a File,
    moved: &'static Moved,
    segment: PipeSegment,
    seen: Ctl,
}

/// Lets the next call in this state of the direction's word be made here. The other end's index was `known`.
#[inline]
pub fn allow(moved: &Moved, seen: Ctl, known: u64) {
    moved.known.store(known, Relaxed);
    moved.fast.store(if seen.is_dead() { 0 } else { seen.0 }, Relaxed);
}

/// Reads.
#[inline]
pub fn read(fd: u64, address: u64, bytes: u64) -> i64 {
    make(fd, PipeEnd::Receiver, |direction| direction.receive(address, bytes))
}

/// Writes.
#[inline]
pub fn write(fd: u64, address: u64, bytes: u64) -> i64 {
    make(fd, PipeEnd::Sender, |direction| direction.send(address, bytes))
}

/// Makes a call on a direction, if it is to be made here.
#[inline]
fn make(fd: u64, role: PipeEnd, call: impl FnOnce(&Direction<'_>) -> Option<u64>) -> i64 {
    let Some((state, found, file, moved)) = find(fd, role) else { return ELSEWHERE };
    if !moved.token.try_take_alone() {
        return ELSEWHERE;
    }
    if state.threads.load(Relaxed) != 0 {
        // A handler has made a thread since the look before, which may have the token, too: it stays taken, and the
        // file leaves its rings.
        return ELSEWHERE;
    }
    let seen = Ctl(moved.fast.load(Relaxed));
    let segment = moved.segment().filter(|_| seen.0 != 0 && moved.is_of(found));
    let direction = segment.map(|segment| Direction { state, file, moved, segment, seen });
    let result = direction.and_then(|direction| call(&direction));
    moved.token.release_alone();
    moved.give_up_if_retired();
    result.map_or(ELSEWHERE, |bytes| bytes as i64)
}

/// Finds the direction of a descriptor, in a process that is followed and has one thread.
#[inline]
fn find(fd: u64, role: PipeEnd) -> Option<(&'static ProcessTable, FileRef, &'static File, &'static Moved)> {
    let (state, word) = (sys::state()?, sys::fork_word()?);
    let is_plain = word.load(Acquire) == 1
        && vfork_parent() == 0
        && !calls::has_filter(state)
        && state.threads.load(Relaxed) == 0;
    let (found, file) = state.file_of(fd as u32 as usize).filter(|_| is_plain)?;
    let moved = moving::slot_of(file, role)?;
    // The descriptor by which it is left, if it has several.
    (moved.fd.load(Relaxed) == fd as u32).then_some((state, found, file, moved))
}

/// Whether a read is to look for a sender that sleeps until half of the ring is free. Such a sender has filled the ring
/// since the last look. So what is known crosses the half later on, or is read before all is and has to be looked up.
#[inline]
fn is_sender_due(ready: u64, bytes: u64, is_looked_up: bool) -> bool {
    const HALF: u64 = RING_BYTES_MAX / 2;
    ready - bytes <= HALF && (is_looked_up || ready > HALF)
}

impl Direction<'_> {
    /// Reads what is in the ring.
    #[inline]
    fn receive(&self, address: u64, wanted: u64) -> Option<u64> {
        let (moved, control) = (self.moved, self.segment.control());
        let index = moved.index.load(Relaxed);
        let mut ready = moved.known.load(Relaxed).wrapping_sub(index);
        let is_looked_up = ready < wanted;
        if is_looked_up {
            // As many as the kernel would return.
            let head = control.head.0.load(Acquire);
            moved.known.store(head, Relaxed);
            ready = head.wrapping_sub(index);
        }
        let (bytes, reads) = (ready.min(wanted), moved.sends.load(Relaxed) + 1);
        let is_usual = control.look() == self.seen && reads != FENCED_READS_MAX && wanted <= CALL_BYTES_MAX;
        if bytes == 0 || ready > RING_BYTES || !is_usual || self.is_revoked() {
            return None;
        }
        self.segment.get(index, address, bytes);
        if !control.consume(self.seen, index + bytes, sys::pipe::barrier) {
            return None;
        }
        moved.index.store(index + bytes, Relaxed);
        moved.sends.store(reads, Relaxed);
        if is_sender_due(ready, bytes, is_looked_up) {
            wake::sender(control);
        }
        threads::add(&self.file.received, bytes, false);
        self.count(bytes);
        Some(bytes)
    }

    /// Writes what the ring has capacity for, if that is all.
    #[inline]
    fn send(&self, address: u64, bytes: u64) -> Option<u64> {
        let (moved, control) = (self.moved, self.segment.control());
        let index = moved.index.load(Relaxed);
        let free = |tail: u64| RING_BYTES_MAX.saturating_sub(index.wrapping_sub(tail));
        let mut is_free = bytes <= free(moved.known.load(Relaxed));
        if !is_free {
            let tail = control.tail(self.seen.epoch());
            moved.known.store(tail, Relaxed);
            is_free = bytes <= free(tail);
        }
        let is_usual = control.look() == self.seen && !self.is_revoked();
        if bytes == 0 || !is_free || !is_usual || self.is_time_to_look() {
            return None;
        }
        self.segment.put(index, address, bytes);
        if !control.publish(self.seen, index + bytes, sys::pipe::barrier) {
            return None;
        }
        moved.index.store(index + bytes, Relaxed);
        moved.sends.store(moved.sends.load(Relaxed) + 1, Relaxed);
        transfer::wake_receiver(moved, self.segment);
        threads::add(&self.file.sent, bytes, false);
        self.count(bytes);
        Some(bytes)
    }

    /// Whether a sender is to look whether the receiver is alive.
    #[inline]
    fn is_time_to_look(&self) -> bool {
        sys::pipe::cycles().wrapping_sub(self.moved.looked.load(Relaxed)) > ALIVE_CYCLES
    }

    /// Whether the monitor has given the segment up.
    #[inline]
    fn is_revoked(&self) -> bool {
        self.segment.control().header.0.revoked.load(Relaxed) != 0
    }

    /// Counts bytes that went through the ring.
    #[inline]
    fn count(&self, bytes: u64) {
        threads::add(&self.file.ring_bytes, bytes, false);
        threads::add(&self.state.ring_bytes, bytes, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that fills the ring and sleeps, at any moment in what the receiver knows, and reads of any size.
    #[test]
    fn sender_slept_on_since_no_read_looked_for_it() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let (mut head, mut index, mut known) = (random(RING_BYTES_MAX), 0_u64, 0_u64);
            let wanted_bits = random(17);
            let (mut is_asleep, mut reads) = (false, random(100));
            loop {
                if !is_asleep {
                    head = head.max(index + random(RING_BYTES_MAX));
                }
                if !is_asleep && reads == 0 {
                    (head, is_asleep) = (head.max(index + RING_BYTES_MAX - random(4096)), true);
                }
                reads = reads.saturating_sub(1);
                let wanted = 1 + random(1 << wanted_bits);
                let is_looked_up = known - index < wanted;
                if is_looked_up {
                    known = head;
                }
                let (ready, bytes) = (known - index, wanted.min(known - index));
                index += bytes;
                if bytes > 0 && is_asleep && is_sender_due(ready, bytes, is_looked_up) {
                    break;
                }
                assert!(!is_asleep || index < head, "all is read, and the sender sleeps");
            }
        }
    }
}
