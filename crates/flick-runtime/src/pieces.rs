//! Queues of slices, all from one table that is allocated once.
//! Promises: no allocation after `new`; adjacent slices of one buffer become one piece.

use flick_buffers::{Slice, pinned_bytes};

use crate::limits::FIRST_SHARE;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Piece {
    slice: Option<Slice>,
    next: u32,
}

/// The table behind all queues of a worker.
#[derive(Debug)]
pub struct Pieces {
    pieces: Vec<Piece>,
    free: u32,
    /// Pieces in all queues.
    live: usize,
    capacity: usize,
}

/// One queue. Must be emptied through its table before it is dropped.
#[derive(Debug)]
pub struct PieceQueue {
    head: u32,
    tail: u32,
}

impl PieceQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { head: NONE, tail: NONE }
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl Pieces {
    /// A table for at most `capacity` pieces.
    pub fn new(capacity: usize) -> Self {
        Self { pieces: Vec::with_capacity(capacity), free: NONE, live: 0, capacity }
    }

    /// Pieces in all queues.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Pieces that are free, without those that are kept for clients that have none.
    pub fn capacity_for_more(&self) -> usize {
        (self.capacity - self.live).saturating_sub(self.capacity / FIRST_SHARE as usize)
    }

    /// Whether less than one in `share` of the table is free.
    pub fn are_few(&self, share: u32) -> bool {
        self.capacity - self.live < self.capacity / share as usize
    }

    /// Appends; `false` when the table is full (the slice is dropped).
    pub fn push(&mut self, queue: &mut PieceQueue, slice: Slice) -> bool {
        if queue.tail != NONE
            && let Some(last) = self.pieces[queue.tail as usize].slice.as_mut()
            && last.try_extend(&slice)
        {
            return true;
        }
        let index = if self.free != NONE {
            let index = self.free;
            let piece = &mut self.pieces[index as usize];
            self.free = piece.next;
            *piece = Piece { slice: Some(slice), next: NONE };
            index
        } else if self.pieces.len() < self.capacity {
            self.pieces.push(Piece { slice: Some(slice), next: NONE });
            (self.pieces.len() - 1) as u32
        } else {
            return false;
        };
        self.live += 1;
        if queue.tail == NONE {
            queue.head = index;
        } else {
            self.pieces[queue.tail as usize].next = index;
        }
        queue.tail = index;
        true
    }

    /// Puts a piece before all others; `false` when the table is full (the slice is dropped).
    pub fn push_front(&mut self, queue: &mut PieceQueue, slice: Slice) -> bool {
        let mut first = PieceQueue::new();
        if !self.push(&mut first, slice) {
            return false;
        }
        self.pieces[first.tail as usize].next = queue.head;
        if queue.tail == NONE {
            queue.tail = first.tail;
        }
        queue.head = first.head;
        true
    }

    /// The first piece.
    pub fn front<'a>(&'a self, queue: &PieceQueue) -> Option<&'a Slice> {
        if queue.head == NONE { None } else { self.pieces[queue.head as usize].slice.as_ref() }
    }

    /// Whether a queue has more than `most` pieces. Cost: a look at that many.
    pub fn has_more_than(&self, queue: &PieceQueue, most: usize) -> bool {
        let mut at = queue.head;
        for _ in 0..most {
            let Some(piece) = self.pieces.get(at as usize) else { return false };
            at = piece.next;
        }
        at != NONE
    }

    /// Bytes of the buffers in which a queue is.
    pub fn pinned_bytes(&self, queue: &PieceQueue) -> u64 {
        let mut at = queue.head;
        pinned_bytes(std::iter::from_fn(|| {
            let piece = self.pieces.get(at as usize)?;
            at = piece.next;
            piece.slice.as_ref()
        }))
    }

    /// Drops the first `len` bytes of the first piece, and the piece when nothing is left of it.
    pub fn advance(&mut self, queue: &mut PieceQueue, len: u32) {
        let slice = self.pieces[queue.head as usize].slice.as_mut().expect("a queued piece has its slice");
        if len < slice.len() {
            slice.advance(len);
        } else {
            let popped = self.pop(queue);
            debug_assert_eq!(popped.map(|slice| slice.len()), Some(len), "advanced past the first piece");
        }
    }

    /// Takes the first piece.
    pub fn pop(&mut self, queue: &mut PieceQueue) -> Option<Slice> {
        if queue.head == NONE {
            return None;
        }
        let index = queue.head;
        let piece = &mut self.pieces[index as usize];
        let slice = piece.slice.take().expect("a queued piece has its slice");
        queue.head = piece.next;
        piece.next = self.free;
        self.free = index;
        self.live -= 1;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        Some(slice)
    }

    /// Empties a queue.
    pub fn clear(&mut self, queue: &mut PieceQueue) {
        while self.pop(queue).is_some() {}
    }
}
