//! Listening sockets and the clients that wait for a session slot.

use std::collections::VecDeque;
use std::sync::Arc;

use flick_net::{Handle, ListenerId};

use crate::shared::handoff::HandoffQueue;
use crate::shared::worker_loads::ConnectionBalancer;

/// Component of the worker. Listening sockets, clients that wait for a session slot, and the drain.
pub(crate) struct Listeners {
    pub(crate) ids: Vec<ListenerId>,
    /// Clients that the worker's predecessor hands over.
    pub(crate) intake: Option<Arc<HandoffQueue>>,
    pub(crate) accept_paused: bool,
    /// Accepted clients that wait for a session slot.
    pub(crate) waiting: VecDeque<Handle>,
    /// When to accept again after the system had no descriptor.
    pub(crate) accept_again_ns: Option<u64>,
    pub(crate) draining_since_ns: Option<u64>,
    /// Moves accepted clients to less busy workers of the service.
    pub(crate) balance: Option<ConnectionBalancer>,
}

impl Listeners {
    /// No listener yet; at most `conns_max` clients wait.
    pub(crate) fn new(
        conns_max: usize,
        intake: Option<Arc<HandoffQueue>>,
        balance: Option<ConnectionBalancer>,
    ) -> Self {
        Self {
            ids: Vec::new(),
            intake,
            accept_paused: false,
            waiting: VecDeque::with_capacity(conns_max),
            accept_again_ns: None,
            draining_since_ns: None,
            balance,
        }
    }
}
