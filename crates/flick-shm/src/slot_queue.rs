//! A queue of table slots to work on, each queued at most once.
//! Promises: never longer than the table, so it never grows. A queued slot may have been reused meanwhile; the caller
//! checks what is in it, so that is harmless.
//! Refuses: priorities.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Slot numbers below a fixed capacity, first in first out, without duplicates.
#[derive(Debug)]
pub struct SlotQueue {
    queue: VecDeque<u32>,
    is_member: Vec<bool>,
}

impl SlotQueue {
    /// Allocates a queue for slots below `capacity`.
    pub fn new(capacity: u32) -> SlotQueue {
        SlotQueue {
            queue: VecDeque::with_capacity(capacity as usize),
            is_member: vec![false; capacity as usize],
        }
    }

    /// Adds a slot unless it is queued already.
    #[inline]
    pub fn push(&mut self, index: u32) {
        if !core::mem::replace(&mut self.is_member[index as usize], true) {
            self.queue.push_back(index);
        }
    }

    /// Takes the slot that was added first.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let index = self.queue.pop_front()?;
        self.is_member[index as usize] = false;
        Some(index)
    }

    /// Returns the number of slots in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no slot is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
