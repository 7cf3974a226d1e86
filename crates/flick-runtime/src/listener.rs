//! Listening sockets and the clients that wait for a session slot.

use std::collections::VecDeque;
use std::sync::Arc;

use flick_net::{Handle, ListenerId};

use crate::shared::handoff::HandoffQueue;
use crate::shared::worker_loads::ConnectionBalancer;

/// Whether the listeners accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// They do.
    On,
    /// They do not; `again_ns`: when to try again, if that is due at a time.
    Paused { again_ns: Option<u64> },
}

/// Whether the worker drains, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// It serves.
    Off,
    /// Its clients end.
    Ending { since_ns: u64 },
    /// Its clients migrate to a successor.
    Migrating { since_ns: u64 },
}

impl Drain {
    /// Since when the worker drains.
    pub(crate) fn since_ns(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Ending { since_ns } | Self::Migrating { since_ns } => Some(since_ns),
        }
    }
}

/// Component of the worker. Listening sockets, clients that wait for a session slot, and the drain.
pub(crate) struct Listeners {
    ids: Vec<ListenerId>,
    accepting: Accepting,
    /// Clients that other workers, and the worker's predecessor, hand over.
    handoff: Option<Arc<HandoffQueue>>,
    /// Accepted clients that wait for a session slot, first come first served.
    waiting: VecDeque<Handle>,
    drain: Drain,
    /// Moves accepted clients to less busy workers of the service.
    balancer: Option<ConnectionBalancer>,
}

impl Listeners {
    /// No listener yet; at most `conns_max` clients wait.
    pub(crate) fn new(
        conns_max: usize,
        handoff: Option<Arc<HandoffQueue>>,
        balancer: Option<ConnectionBalancer>,
    ) -> Self {
        Self {
            ids: Vec::new(),
            accepting: Accepting::On,
            handoff,
            waiting: VecDeque::with_capacity(conns_max),
            drain: Drain::Off,
            balancer,
        }
    }

    /// Adds a listener that the driver has opened.
    pub(crate) fn add(&mut self, listener: ListenerId) {
        self.ids.push(listener);
    }

    /// The listeners, in the order in which they were added.
    pub(crate) fn ids(&self) -> &[ListenerId] {
        &self.ids
    }

    /// Takes the listeners, which the caller closes.
    pub(crate) fn take_ids(&mut self) -> Vec<ListenerId> {
        std::mem::take(&mut self.ids)
    }

    /// Clients that other workers hand over, if they can.
    pub(crate) fn handoff(&self) -> Option<&Arc<HandoffQueue>> {
        self.handoff.as_ref()
    }

    /// Whether accepting is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.accepting != Accepting::On
    }

    /// Pauses accepting; `false` if it was paused before.
    pub(crate) fn pause(&mut self) -> bool {
        let was_on = !self.is_paused();
        if was_on {
            self.accepting = Accepting::Paused { again_ns: None };
        }
        was_on
    }

    /// Accepting is paused until a time, or until a slot is free.
    pub(crate) fn pause_until(&mut self, again_ns: u64) {
        self.accepting = Accepting::Paused { again_ns: Some(again_ns) };
    }

    /// Returns the time at which accepting is tried again, if it is paused until a time.
    pub(crate) fn again_ns(&self) -> Option<u64> {
        match self.accepting {
            Accepting::On => None,
            Accepting::Paused { again_ns } => again_ns,
        }
    }

    /// Accepting is tried again now: it is not due any more.
    pub(crate) fn clear_again(&mut self) {
        if let Accepting::Paused { again_ns } = &mut self.accepting {
            *again_ns = None;
        }
    }

    /// Accepting is not paused any more.
    pub(crate) fn resume(&mut self) {
        self.accepting = Accepting::On;
    }

    /// Queues a client for a session slot.
    pub(crate) fn queue(&mut self, conn: Handle) {
        self.waiting.push_back(conn);
    }

    /// Queues a client again, before all others.
    pub(crate) fn queue_first(&mut self, conn: Handle) {
        self.waiting.push_front(conn);
    }

    /// The client that has waited for longest.
    pub(crate) fn first_waiting(&self) -> Option<Handle> {
        self.waiting.front().copied()
    }

    /// Takes the client that has waited for longest.
    pub(crate) fn pop_waiting(&mut self) -> Option<Handle> {
        self.waiting.pop_front()
    }

    /// A client that waited is lost.
    pub(crate) fn remove_waiting(&mut self, conn: Handle) {
        self.waiting.retain(|waiting| *waiting != conn);
    }

    /// Whether this client waits.
    pub(crate) fn is_waiting(&self, conn: Handle) -> bool {
        self.waiting.contains(&conn)
    }

    /// Returns the number of clients that wait for a session slot.
    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the worker drains, and how.
    pub(crate) fn drain(&self) -> Drain {
        self.drain
    }

    /// Begins a drain, or another one.
    pub(crate) fn set_drain(&mut self, drain: Drain) {
        self.drain = drain;
    }

    /// Whether the worker drains.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain != Drain::Off
    }

    /// Returns the balancer of connections among the workers of the service, if accepted clients may move.
    pub(crate) fn balancer(&self) -> Option<&ConnectionBalancer> {
        self.balancer.as_ref()
    }

    /// Returns the balancer of connections among the workers of the service, if accepted clients may move.
    pub(crate) fn balancer_mut(&mut self) -> Option<&mut ConnectionBalancer> {
        self.balancer.as_mut()
    }

    /// Keeps accepted clients to this worker.
    pub(crate) fn stop_balancing(&mut self) {
        self.balancer = None;
    }
}
