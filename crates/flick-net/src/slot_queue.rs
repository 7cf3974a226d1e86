//! A queue of table slots to work on, each queued at most once.
//! Promises: never longer than the table, so it never grows. A queued slot may have been reused meanwhile; the caller
//! checks what is in it, so that is harmless.
//! Refuses: priorities.

use std::collections::VecDeque;

/// Slot numbers below a fixed capacity, first in first out, without duplicates.
pub(crate) struct SlotQueue {
    queue: VecDeque<u32>,
    is_member: Vec<bool>,
}

impl SlotQueue {
    pub(crate) fn new(capacity: u32) -> SlotQueue {
        SlotQueue {
            queue: VecDeque::with_capacity(capacity as usize),
            is_member: vec![false; capacity as usize],
        }
    }

    /// Adds a slot unless it is queued already.
    #[inline]
    pub(crate) fn push(&mut self, index: u32) {
        if !std::mem::replace(&mut self.is_member[index as usize], true) {
            self.queue.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let index = self.queue.pop_front()?;
        self.is_member[index as usize] = false;
        Some(index)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
