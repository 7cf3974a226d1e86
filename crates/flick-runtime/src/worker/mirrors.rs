//! Mirrors: channels without a rule, to which a rule sends a copy of a request beside the one for a backend.
//! Promises: no client waits for a mirror. A copy for which there is no capacity is dropped and counted; the in-flight
//! table takes copies only while less than half of it is in use. No drain waits for a mirror that was sent copies only.
//! Not here: messages that are sent to channels without a rule only: these are no copies, and wait for capacity.

use flick_abi::Send;
use flick_net::Driver;

use super::Worker;
use crate::limits::BACKEND_CONN_BACKLOG_BYTES_MAX;
use crate::setup::Setup;

impl Setup {
    /// Whether a channel is connected and no rule takes what is received on it.
    pub fn lacks_rule(&self, channel: usize) -> bool {
        channel != self.listened && !self.has_rule_of(channel as u32)
    }

    /// Whether a channel is connected and a rule takes what is received on it.
    pub fn handles(&self, channel: usize) -> bool {
        channel != self.listened && self.has_rule_of(channel as u32)
    }
}

impl<D: Driver> Worker<D> {
    /// Whether one of the sends for a message is a copy for a mirror.
    pub(super) fn is_mirrored(&self, send: &Send, sends: &[Send]) -> bool {
        let setup = self.ctx.setup();
        setup.lacks_rule(send.channel as usize)
            && sends.iter().any(|other| setup.handles(other.channel as usize))
    }

    /// Whether there is capacity for a copy now.
    pub(super) fn has_capacity_for_copy(&self, send: &Send) -> bool {
        let Some(at) = self.backend_of(send) else { return true };
        let is_exclusive = self.upstream.backend(at as usize).is_exclusive();
        !self.is_clogged_backend(at, BACKEND_CONN_BACKLOG_BYTES_MAX)
            && self.inflight.takes_copies()
            && (!is_exclusive || self.dedicates_now(at))
    }

    /// Counts a message that is sent to a backend, and whether it is a copy.
    pub(super) fn count_request(&mut self, backend: u32, is_copy: bool) {
        self.observe.backend(backend as usize).requests.add(1);
        if is_copy {
            self.upstream.backend_mut(backend as usize).note_copy();
        }
    }

    /// Whether a backend was sent copies, and nothing else.
    pub(super) fn gets_only_copies(&self, backend: u32) -> bool {
        let copies = self.upstream.backend(backend as usize).copies();
        copies > 0 && copies == self.observe.backend(backend as usize).requests.get()
    }
}
