//! The connections of a pair: slots are opened by their owner, accepted by the other side, and used again after both
//! sides have closed.
//! Promises: a slot has one connection at a time, told apart by its generation; a ring is zeroed before another
//! connection gets it; which slot and which memory is free is known from memory of this process only. A peer that never
//! closes keeps the memory of its own connections, nothing else.
//! Not here: sockets and descriptors that are passed between processes (`pairing.rs`).

#[cfg(all(test, not(miri)))]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::arena::Arena;
use crate::conn::{NO_MEMORY, NO_RING, RingConn};
use crate::control::{Direction, RESET, SideWords};
use crate::fault::PeerFault;
use crate::limits::{RECLAIM_STEPS_MAX, RING_BYTES_MAX, RING_BYTES_MIN, SIGNALS_UNREAD_MAX};
use crate::notify::Notifier;
pub use crate::notify::Signals;
use crate::raw::Words;
use crate::ready::ReadyBitmap;
use crate::ring::RingSender;
use crate::segment::{CAPABILITY_ATTACHED, CAPABILITY_BARRIER, Segment, Side};
use crate::sleep::Fencing;
use crate::sync::Ordering;
use crate::sys;

/// Failure to open or accept a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The other process has not attached to the segment.
    NotAttached,
    /// All slots of this side are in use.
    NoSlot,
    /// The arena of this side has no memory for the ring.
    NoMemory,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAttached => "the other process has not attached to the segment",
            Self::NoSlot => "all connection slots are in use",
            Self::NoMemory => "no memory for another ring",
        })
    }
}

impl core::error::Error for OpenError {}

/// A closed connection whose memory the other side may still read.
#[derive(Clone, Copy, Debug)]
struct ClosedConn {
    slot: u32,
    locations: [Option<u64>; 2],
}

/// One side's view of a pair of processes.
#[derive(Debug)]
pub struct Pair {
    segment: Segment,
    arena: Arena,
    notifier: Notifier,
    /// Bits that the other side sets.
    ready: ReadyBitmap,
    own: Words<SideWords>,
    socket: Arc<OwnedFd>,
    /// Sleeps since signals were last taken.
    unread: Cell<u32>,
    /// Slots of this side without a connection.
    free: Vec<u32>,
    /// By slot: generation of its present or last connection.
    generations: Box<[u32]>,
    /// By slot: whether it has a connection that is not reclaimed.
    is_used: Box<[bool]>,
    closed: Vec<ClosedConn>,
    /// By slot: position in `closed`, if the connection there is of this slot.
    closed_at: Box<[u32]>,
    next_closed: usize,
}

impl Pair {
    /// Begins to use a segment to which both processes have attached. `socket` connects the two; this side sleeps on
    /// it and signals the other side through it.
    ///
    /// Cost: the only allocations of a pair.
    /// Errors: `NotAttached`.
    pub fn new(segment: Segment, socket: Arc<OwnedFd>) -> Result<Self, OpenError> {
        let side = segment.side();
        let capabilities = segment.capabilities(side.other());
        if capabilities & CAPABILITY_ATTACHED == 0 {
            return Err(OpenError::NotAttached);
        }
        let can_barrier = segment.can_barrier() && capabilities & CAPABILITY_BARRIER != 0;
        let notifier = Notifier {
            ready: segment.ready(side.other()),
            peer: segment.side_words(side.other()),
            socket: Arc::clone(&socket),
            fencing: if can_barrier { Fencing::Sleeper } else { Fencing::Both },
        };
        let slots = segment.slots();
        let free = (0..slots).rev().filter(|slot| segment.owner(*slot) == side).collect();
        Ok(Self {
            arena: Arena::new(segment.arena_bytes()),
            notifier,
            ready: segment.ready(side),
            own: segment.side_words(side),
            socket,
            unread: Cell::new(SIGNALS_UNREAD_MAX),
            free,
            generations: vec![0; slots as usize].into(),
            is_used: vec![false; slots as usize].into(),
            closed: Vec::with_capacity(slots as usize),
            closed_at: vec![0; slots as usize].into(),
            next_closed: 0,
            segment,
        })
    }

    /// Returns the side of this process.
    pub fn side(&self) -> Side {
        self.segment.side()
    }

    /// Returns which side executes the expensive fence.
    pub fn fencing(&self) -> Fencing {
        self.notifier.fencing
    }

    /// Returns the bytes of rings that this side has in use.
    pub fn ring_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    /// Returns the number of connection slots, half of which this side opens.
    pub fn slots(&self) -> u32 {
        self.segment.slots()
    }

    /// Returns the bytes for the rings of each side.
    pub fn arena_bytes(&self) -> u64 {
        self.segment.arena_bytes()
    }

    /// Returns whether a slot is one in which the other side opens connections.
    pub fn is_peer_slot(&self, slot: u32) -> bool {
        slot < self.slots() && self.segment.owner(slot) != self.side()
    }

    /// Returns the number of closed connections whose memory the other side may still read.
    pub fn closed_conns(&self) -> usize {
        self.closed.len()
    }

    fn words(&self, slot: u32, sender: Side) -> Words<Direction> {
        self.segment.direction(slot, sender).expect("the slot is one of the segment")
    }

    fn conn(&self, slot: u32, sender: RingSender) -> RingConn {
        let peer = self.side().other();
        let incoming = (self.words(slot, peer), self.segment.window(peer));
        RingConn::new((slot, self.generations[slot as usize]), sender, incoming, self.notifier.clone())
    }

    fn sender(&self, slot: u32, location: u64) -> RingSender {
        let words = self.words(slot, self.side());
        RingSender::new(words, self.segment.window(self.side()), self.notifier.fencing, location)
            .expect("the arena's rings are inside of the window")
    }

    /// Opens a connection whose ring has `ring_bytes` bytes, rounded up to a power of two within the limits. It can
    /// send at once; the other side accepts when it sees the ready bit.
    ///
    /// Errors: `NoSlot`, `NoMemory`.
    pub fn open(&mut self, ring_bytes: u64) -> Result<RingConn, OpenError> {
        let slot = *self.free.last().ok_or(OpenError::NoSlot)?;
        let ring_bytes = ring_bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let location = self.arena.take(ring_bytes).ok_or(OpenError::NoMemory)?;
        self.free.pop();
        for side in [Side::Zero, Side::One] {
            self.words(slot, side).reset();
        }
        let generation = &mut self.generations[slot as usize];
        // 0 means that the slot has no connection.
        *generation = generation.checked_add(1).unwrap_or(1);
        self.is_used[slot as usize] = true;
        let conn = self.conn(slot, self.sender(slot, location));
        conn.sender.words().sender.generation.store(conn.generation, Ordering::Release);
        self.notifier.mark_ready(slot);
        Ok(conn)
    }

    /// Accepts the connection that the other side has opened in a slot, of which the ready bit was set; `None` if there
    /// is none, or if this side has it already.
    ///
    /// Errors: `NoMemory`: the connection is refused; the other side finds that its stream has ended.
    pub fn accept(&mut self, slot: u32, ring_bytes: u64) -> Result<Option<RingConn>, OpenError> {
        self.answer(slot, Ok(ring_bytes))
    }

    /// Refuses the connection that the other side has opened in a slot, if there is one.
    pub fn refuse(&mut self, slot: u32) {
        // The error is the refusal.
        let _ = self.answer(slot, Err(0));
    }

    /// As [`refuse`](Self::refuse), and shows the other side that there is no memory for the connection. Returns
    /// whether there was one.
    pub fn refuse_for_memory(&mut self, slot: u32) -> bool {
        self.answer(slot, Err(NO_MEMORY)).is_err()
    }

    /// Accepts a connection with a ring of `ring_bytes`, or refuses it for a reason: [`NO_MEMORY`] or 0.
    fn answer(&mut self, slot: u32, ring_bytes: Result<u64, u64>) -> Result<Option<RingConn>, OpenError> {
        if slot >= self.segment.slots()
            || self.segment.owner(slot) == self.side()
            || self.is_used[slot as usize]
        {
            return Ok(None);
        }
        let (incoming, outgoing) = (self.words(slot, self.side().other()), self.words(slot, self.side()));
        let generation = incoming.sender.generation.load(Ordering::Acquire);
        if generation == 0 || generation == self.generations[slot as usize] {
            return Ok(None);
        }
        self.generations[slot as usize] = generation;
        self.is_used[slot as usize] = true;
        let ring_bytes = ring_bytes.map(|bytes| bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX));
        let location = ring_bytes.and_then(|ring_bytes| self.arena.take(ring_bytes).ok_or(NO_MEMORY));
        let location = match location {
            Ok(location) => location,
            Err(reason) => {
                outgoing.sender.ring_location[0].store(NO_RING, Ordering::Relaxed);
                outgoing.sender.ring_location[1].store(reason, Ordering::Relaxed);
                outgoing.sender.closed.store(RESET, Ordering::Release);
                incoming.shared.receiver_closed.store(1, Ordering::Release);
                self.announce_accepted(slot, &outgoing, generation);
                self.add_closed(ClosedConn { slot, locations: [None, None] });
                return Err(OpenError::NoMemory);
            }
        };
        let conn = self.conn(slot, self.sender(slot, location));
        self.announce_accepted(slot, &outgoing, generation);
        Ok(Some(conn))
    }

    /// Makes this side's description of a connection visible to the side that opened it.
    fn announce_accepted(&self, slot: u32, outgoing: &Direction, generation: u32) {
        outgoing.sender.generation.store(generation, Ordering::Release);
        sys::futex_wake(&outgoing.sender.generation);
        self.notifier.mark_ready(slot);
    }

    /// Moves a connection to a ring of `ring_bytes` bytes. `false`: not now, because there is no memory or the other
    /// side has not read from the present ring yet.
    ///
    /// Errors: those of [`RingSender::change_ring`].
    pub fn resize(&mut self, conn: &mut RingConn, ring_bytes: u64) -> Result<bool, PeerFault> {
        self.return_unused(conn)?;
        let ring_bytes = ring_bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let Some(location) = self.arena.take(ring_bytes) else { return Ok(false) };
        let is_changed = conn.sender.change_ring(location);
        if !matches!(is_changed, Ok(true)) {
            self.arena.give_back(location);
        }
        is_changed
    }

    /// Returns the memory of a connection's former ring, once the other side has read it.
    ///
    /// Errors: those of [`RingSender::take_unused_ring`].
    pub fn return_unused(&mut self, conn: &mut RingConn) -> Result<(), PeerFault> {
        if let Some(location) = conn.sender.take_unused_ring()? {
            self.return_ring(location);
        }
        Ok(())
    }

    fn return_ring(&mut self, location: u64) {
        let window = self.segment.window(self.side());
        window.area(location).expect("the arena's rings are inside of the window").clear();
        self.arena.give_back(location);
    }

    /// Closes a connection in both directions. Bytes that were sent can still be read by the other side.
    pub fn close(&mut self, conn: RingConn) {
        self.end(conn, true);
    }

    /// Closes a connection in both directions, of which not all was sent: the other side finds a reset behind the bytes
    /// that were.
    pub fn reset(&mut self, conn: RingConn) {
        self.end(conn, false);
    }

    fn end(&mut self, mut conn: RingConn, is_complete: bool) {
        conn.close(is_complete);
        let locations = [Some(conn.sender.location()), conn.sender.former_location()];
        self.add_closed(ClosedConn { slot: conn.slot, locations });
    }

    fn add_closed(&mut self, conn: ClosedConn) {
        self.closed_at[conn.slot as usize] = self.closed.len() as u32;
        self.closed.push(conn);
    }

    /// Reclaims the slot and the rings of one closed connection, if the other side has closed it too. For a slot whose
    /// ready bit was set.
    pub fn reclaim_slot(&mut self, slot: u32) {
        let at = self.closed_at.get(slot as usize).map_or(usize::MAX, |at| *at as usize);
        if self.closed.get(at).is_some_and(|conn| conn.slot == slot) {
            self.reclaim_one(at);
        }
    }

    /// Reclaims slots and rings of closed connections, as far as the other side has closed them too.
    ///
    /// Cost: at most [`RECLAIM_STEPS_MAX`] connections are looked at.
    pub fn reclaim(&mut self) {
        for _ in 0..self.closed.len().min(RECLAIM_STEPS_MAX) {
            if self.next_closed >= self.closed.len() {
                self.next_closed = 0;
            }
            if !self.reclaim_one(self.next_closed) {
                self.next_closed += 1;
            }
        }
    }

    /// Reclaims one closed connection; returns whether it is gone from the list.
    fn reclaim_one(&mut self, at: usize) -> bool {
        let ClosedConn { slot, locations } = self.closed[at];
        let outgoing = self.words(slot, self.side());
        if outgoing.shared.receiver_closed.load(Ordering::Acquire) == 0 {
            return false;
        }
        locations.into_iter().flatten().for_each(|location| self.return_ring(location));
        self.closed[at].locations = [None, None];
        let is_owner = self.segment.owner(slot) == self.side();
        if is_owner {
            // The other side must not touch the slot's words any more.
            let incoming = self.words(slot, self.side().other());
            if incoming.sender.generation.load(Ordering::Acquire) != 0 {
                return false;
            }
            self.free.push(slot);
        } else {
            outgoing.sender.generation.store(0, Ordering::Release);
            self.notifier.mark_ready(slot);
        }
        self.is_used[slot as usize] = false;
        self.closed.swap_remove(at);
        if let Some(moved) = self.closed.get(at) {
            self.closed_at[moved.slot as usize] = at as u32;
        }
        true
    }

    /// Returns whether a ready bit may be set.
    pub fn is_any_ready(&self) -> bool {
        self.ready.is_any()
    }

    /// Takes the ready bits and calls `run` with the slot of each.
    pub fn take_ready(&self, run: impl FnMut(u32)) {
        self.ready.take(run);
    }

    /// Announces that this side's event loop is about to sleep. The caller has called [`RingConn::announce_sleep`] for
    /// each connection that it polls, and calls [`RingConn::is_idle`] for each afterwards. `false`: look again.
    pub fn prepare_sleep(&self) -> bool {
        self.announce_sleep();
        let may_sleep = self.notifier.fencing.before_sleep() && !self.ready.is_any();
        if !may_sleep {
            self.end_sleep();
        }
        may_sleep
    }

    /// The first part of [`prepare_sleep`](Self::prepare_sleep), for an event loop that announces the sleep of several
    /// pairs and connections, then orders all at once: with a fence, and with a barrier if a connection
    /// [needs it](RingConn::needs_barrier). It then looks at each again.
    pub fn announce_sleep(&self) {
        self.unread.set(self.unread.get().saturating_add(1));
        self.own.sleep.swap(1, Ordering::AcqRel);
    }

    /// Announces the sleep of an event loop for new ready bits only. `false`: look again.
    pub fn sleep_if_quiet(&self) -> bool {
        self.announce_sleep();
        let may_sleep = Fencing::Both.before_sleep() && !self.ready.is_any();
        if !may_sleep {
            self.wake();
        }
        may_sleep
    }

    /// Takes the announcement of a sleep back. A signal of it may still arrive.
    pub fn wake(&self) {
        self.own.sleep.swap(0, Ordering::AcqRel);
    }

    /// Takes the announcement of a sleep back, and its signal if there was one.
    pub fn end_sleep(&self) {
        if self.own.sleep.swap(0, Ordering::AcqRel) == 0 {
            self.take_signals();
        }
    }

    /// As [`end_sleep`](Self::end_sleep), after the socket was readable: the signal may be one of an earlier sleep,
    /// which arrived late.
    pub fn end_signalled_sleep(&self) {
        self.own.sleep.swap(0, Ordering::AcqRel);
        self.take_signals();
    }

    /// Takes the signals that have arrived.
    pub fn take_signals(&self) -> Signals {
        self.unread.set(0);
        sys::take_signals(self.socket.as_fd())
    }

    /// Takes the signals of several sleeps at once. For an event loop to which the kernel reports each arrival
    /// (edge-triggered), so that most need no read; it calls this for each report, then [wakes](Self::wake).
    pub fn note_signal(&self) -> Signals {
        if self.unread.get() < SIGNALS_UNREAD_MAX { Signals::Arrived } else { self.take_signals() }
    }

    /// Returns the socket that is readable when this side has to look at its ready bits, or when the other process is
    /// gone.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
