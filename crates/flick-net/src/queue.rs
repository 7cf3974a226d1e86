//! A queue of table slots that need attention, each at most once.
//! Promises: never longer than the table, so it never grows; a slot that was emptied and used again meanwhile
//! is simply looked at, which is harmless.
//! Refuses: priorities.

use std::collections::VecDeque;

/// Slot numbers below a fixed capacity, first in first out, without repeats.
pub(crate) struct SlotQueue {
    waiting: VecDeque<u32>,
    is_member: Vec<bool>,
}

impl SlotQueue {
    pub(crate) fn new(capacity: u32) -> SlotQueue {
        SlotQueue {
            waiting: VecDeque::with_capacity(capacity as usize),
            is_member: vec![false; capacity as usize],
        }
    }

    /// Adds a slot unless it waits already.
    #[inline]
    pub(crate) fn push(&mut self, index: u32) {
        if !std::mem::replace(&mut self.is_member[index as usize], true) {
            self.waiting.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let index = self.waiting.pop_front()?;
        self.is_member[index as usize] = false;
        Some(index)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Where a poll puts its events, and how many more it may.
pub(crate) struct Sink<'poll, E> {
    events: &'poll mut Vec<E>,
    end: usize,
}

impl<'poll, E> Sink<'poll, E> {
    pub(crate) fn new(events: &'poll mut Vec<E>, events_max: usize) -> Sink<'poll, E> {
        let end = events.len() + events_max;
        Sink { events, end }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.end
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.end - self.events.len()
    }

    /// Adds an event; the caller has looked at [`Sink::is_full`].
    #[inline]
    pub(crate) fn put(&mut self, event: E) {
        assert!(self.events.len() < self.end, "a poll hands out no more events than it may");
        self.events.push(event);
    }
}
