//! Clients: their connections, the messages that arrive on them, and their deadlines.

pub(crate) mod body;
pub(crate) mod deadlines;
pub(crate) mod inbox;
pub(crate) mod session;

use std::collections::VecDeque;

use self::deadlines::Deadlines;
use self::session::Session;
use crate::slab::{Key, Slab};

/// Component of the worker. Client connections, their deadlines, and which of them wait for capacity.
pub(crate) struct Downstream {
    pub(crate) sessions: Slab<Session>,
    pub(crate) deadlines: Deadlines,
    /// Sessions that wait for capacity that several share, first come first served.
    pub(crate) blocked: VecDeque<Key>,
    /// Sessions with replies in their batch buffer, which are sent at the end of the iteration.
    pub(crate) filled: Vec<Key>,
    /// Sessions with a truncated reply: they are reset once its received part is sent.
    pub(crate) to_reset: Vec<Key>,
}

impl Downstream {
    /// Slots for `sessions_max` sessions.
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            sessions: Slab::new(sessions_max),
            deadlines: Deadlines::new(sessions_max),
            blocked: VecDeque::with_capacity(sessions_max),
            filled: Vec::with_capacity(sessions_max),
            to_reset: Vec::with_capacity(sessions_max),
        }
    }
}
