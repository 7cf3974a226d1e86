//! Where threads leave things for one that looks now and then: connections that change hands.
//! Promises: what is left is taken, or comes back to who leaves it; after [`Mailbox::close`] has said that it is closed nothing
//! is in it, and nothing will be.
//! Refuses: messages. There is a lock, which is held for a push or a pop.

use std::collections::VecDeque;

use crate::sync::{Mutex, MutexGuard};

/// The box.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    /// With room for so many before it grows.
    pub fn new(room: usize) -> Self {
        Self(Mutex::new(State { items: VecDeque::with_capacity(room), is_closed: false }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().expect("nobody panics while it holds the lock")
    }

    /// Leaves a thing. Errors: the thing, because nobody looks any more.
    pub fn leave(&self, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(())
    }

    /// As [`leave`](Self::leave), where the box need not grow for it. Errors: the thing.
    pub fn leave_within(&self, room: usize, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed || state.items.len() >= room {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(())
    }

    /// The next thing.
    pub fn take(&self) -> Option<T> {
        self.state().items.pop_front()
    }

    /// Takes nothing any more, unless something is in it. Whether it is closed.
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
    fn who_has_ended_takes_nothing_and_who_still_has_something_does_not_end() {
        let mailbox = Mailbox::new(2);
        assert_eq!(
            (mailbox.leave(1), mailbox.leave_within(2, 2), mailbox.leave_within(2, 3)),
            (Ok(()), Ok(()), Err(3))
        );
        assert!(!mailbox.close());
        assert_eq!((mailbox.take(), mailbox.take(), mailbox.take()), (Some(1), Some(2), None));
        assert!(mailbox.close());
        assert_eq!((mailbox.leave(4), mailbox.leave_within(2, 5)), (Err(4), Err(5)));
    }
}
