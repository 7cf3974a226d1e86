//! The sink for the events of a poll.
//! Promises: never more events than the poll may return.

use crate::driver::DriverEvent;

/// The events of one poll, up to its limit.
pub(crate) struct EventSink<'poll> {
    events: &'poll mut Vec<DriverEvent>,
    end: usize,
}

impl<'poll> EventSink<'poll> {
    pub(crate) fn new(events: &'poll mut Vec<DriverEvent>, events_max: usize) -> EventSink<'poll> {
        let end = events.len() + events_max;
        EventSink { events, end }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.end
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.end - self.events.len()
    }

    /// Adds an event; the caller has checked [`EventSink::is_full`].
    #[inline]
    pub(crate) fn put(&mut self, event: DriverEvent) {
        assert!(self.events.len() < self.end, "a poll returns no more events than its limit");
        self.events.push(event);
    }
}
