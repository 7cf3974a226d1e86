//! The queue of clients that wait for capacity that several share, by slot of the client table.
//! Promises: a slot is in it at most once, so that it never exceeds the capacity reserved at start; a slot that is
//! pushed again keeps its position.
//! Not here: what a client waits for, and whether it still waits; that is its stream's (`stream.rs`). A slot stays
//! queued when its client leaves: the next client of the slot, if it waits too, has the position.

use std::collections::VecDeque;

/// The queue.
#[derive(Debug)]
pub struct BlockedQueue {
    slots: VecDeque<u32>,
    /// By slot: whether it is queued.
    is_queued: Box<[bool]>,
}

impl BlockedQueue {
    /// An empty queue for that many slots.
    pub fn new(slots_max: usize) -> Self {
        Self {
            slots: VecDeque::with_capacity(slots_max),
            is_queued: vec![false; slots_max].into_boxed_slice(),
        }
    }

    /// Appends a slot, unless it is queued.
    pub fn push(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_queued[slot as usize], true) {
            self.slots.push_back(slot);
        }
    }

    /// Removes the first slot.
    pub fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop_front()?;
        self.is_queued[slot as usize] = false;
        Some(slot)
    }

    /// Number of queued slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}
