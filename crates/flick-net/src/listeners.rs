//! The listeners of one driver, by number, and what made accepting fail.
//! Promises: at most [`LISTENERS_MAX`]; the number of a removed one is used again; a failure is reported once.

use std::io;

use crate::driver::{DriverEvent, ListenerId};
use crate::event_sink::EventSink;
use crate::limits::LISTENERS_MAX;

/// A table of listeners.
pub(crate) struct Listeners<L> {
    slots: Vec<Option<L>>,
}

/// Whether a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepting {
    On,
    /// The platform, or an error, has paused it.
    Off,
    /// The connection table was full; the driver resumes it when a slot is free.
    WaitsForSlot,
}

impl<L> Listeners<L> {
    pub(crate) fn new() -> Listeners<L> {
        Listeners { slots: Vec::with_capacity(LISTENERS_MAX) }
    }

    /// Adds a listener.
    ///
    /// Errors: there are [`LISTENERS_MAX`] already.
    pub(crate) fn insert(&mut self, listener: L) -> io::Result<ListenerId> {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or(self.slots.len());
        if index == LISTENERS_MAX {
            return Err(io::Error::other(format!("a driver has at most {LISTENERS_MAX} listeners")));
        }
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(listener);
        Ok(ListenerId(index as u32))
    }

    pub(crate) fn get(&self, id: ListenerId) -> Option<&L> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut L> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<L> {
        self.slots.get_mut(id.0 as usize)?.take()
    }

    /// Returns all numbers that were ever used.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ListenerId> + use<L> {
        (0..self.slots.len() as u32).map(ListenerId)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &L> {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.slots.iter_mut().flatten()
    }
}

/// Listeners that were paused because the system refused to accept or to watch them, until that is reported.
pub(crate) struct AcceptFaults {
    /// With the error number; each listener once.
    faults: Vec<(ListenerId, i32)>,
}

impl AcceptFaults {
    pub(crate) fn new() -> AcceptFaults {
        AcceptFaults { faults: Vec::with_capacity(LISTENERS_MAX) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn note(&mut self, id: ListenerId, errno: i32) {
        self.forget(id);
        self.faults.push((id, errno));
    }

    /// Drops the failure of a listener that is closed.
    pub(crate) fn forget(&mut self, id: ListenerId) {
        self.faults.retain(|(of, _)| *of != id);
    }

    /// Reports as many as the poll may return.
    pub(crate) fn report(&mut self, sink: &mut EventSink<'_>) {
        while !sink.is_full()
            && let Some((listener, errno)) = self.faults.pop()
        {
            sink.put(DriverEvent::AcceptFailed { listener, errno });
        }
    }
}
