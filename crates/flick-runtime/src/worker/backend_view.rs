//! Connections as rules see them: the health, load and addresses of backends, and the address of the client.

use flick_net::PeerAddr;

use crate::backend_set::load_balancer::{Backends, Standing};
use crate::rules::host::{client_bytes, endpoint_bytes};
use crate::setup::Setup;
use crate::upstream::Upstream;

/// A worker's connections, as the rule that runs sees them.
pub(super) struct BackendView<'a> {
    /// The bound program.
    pub setup: &'a Setup,
    /// The backends and the connections to them.
    pub upstream: &'a Upstream,
    /// The driver's clock.
    pub now_ns: u64,
    /// The client whose message started the rule.
    pub client: Option<PeerAddr>,
}

impl BackendView<'_> {
    /// The slot of a backend.
    pub fn slot_of(&self, channel: u32, element: u64) -> Option<usize> {
        self.upstream.backend_set().slot_of(channel, element).map(|slot| slot as usize)
    }
}

impl Backends for BackendView<'_> {
    fn is_alive(&self, channel: u32, element: u64) -> bool {
        self.slot_of(channel, element).is_some_and(|at| self.upstream.is_alive(at))
    }

    fn standing(&self, channel: u32, element: u64) -> Standing {
        self.slot_of(channel, element).map_or(Standing::Down, |at| self.upstream.standing(at))
    }

    fn load(&self, channel: u32, element: u64) -> i64 {
        self.slot_of(channel, element).map_or(0, |at| self.upstream.load(at))
    }

    fn share_per_mille(&self, channel: u32, element: u64) -> u64 {
        let slow_start = self.setup.limits.health.slow_start;
        let share = |at| self.upstream.backend(at).health().share_per_mille(self.now_ns, slow_start);
        self.slot_of(channel, element).map_or(1000, share)
    }

    fn peer(&self, channel: u32, element: u64) -> [u8; 18] {
        if channel as usize == self.setup.listened {
            return self.client.map_or([0; 18], client_bytes);
        }
        self.slot_of(channel, element)
            .map_or([0; 18], |at| endpoint_bytes(self.upstream.backend(at).endpoint()))
    }
}
