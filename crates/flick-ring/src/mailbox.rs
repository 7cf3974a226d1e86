//! A queue of items that change threads now and then: client connections that migrate to another worker.
//! Promises: a pushed item is popped, or `push` returns it to the caller; once [`Mailbox::close`] has returned `true`,
//! the mailbox is empty and stays empty.
//! Refuses: messages. It has a lock, held for one push or pop.

use std::collections::VecDeque;

use crate::sync::{Mutex, MutexGuard};

/// A bounded or growing queue with a closed state.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    /// Creates a mailbox that holds `capacity` items before it grows.
    pub fn new(capacity: usize) -> Self {
        Self(Mutex::new(State { items: VecDeque::with_capacity(capacity), is_closed: false }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    /// Appends an item; the mailbox grows if it must.
    ///
    /// Errors: the item, because the mailbox is closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(())
    }

    /// Appends an item unless the mailbox holds `items_max` already.
    ///
    /// Errors: the item, because the mailbox is full or closed.
    pub fn push_within(&self, items_max: usize, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed || state.items.len() >= items_max {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(())
    }

    /// Removes the oldest item.
    pub fn pop(&self) -> Option<T> {
        self.state().items.pop_front()
    }

    /// Closes the mailbox if it is empty; returns whether it is closed.
    pub fn close(&self) -> bool {
        let mut state = self.state();
        state.is_closed |= state.items.is_empty();
        state.is_closed
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Mailbox;

    #[test]
    fn close_succeeds_only_when_empty_and_rejects_later_items() {
        let mailbox = Mailbox::new(2);
        assert_eq!(
            (mailbox.push(1), mailbox.push_within(2, 2), mailbox.push_within(2, 3)),
            (Ok(()), Ok(()), Err(3))
        );
        assert!(!mailbox.close());
        assert_eq!((mailbox.pop(), mailbox.pop(), mailbox.pop()), (Some(1), Some(2), None));
        assert!(mailbox.close());
        assert_eq!((mailbox.push(4), mailbox.push_within(2, 5)), (Err(4), Err(5)));
    }
}
