//! What rules may learn of the connections around them: how backends are doing, who the client is.

use flick_net::PeerAddr;

use crate::backend_set::BackendSet;
use crate::backend_set::load_balancer::Backends;
use crate::rules::host::{client_bytes, endpoint_bytes};
use crate::setup::Setup;
use crate::upstream::backend::{Backend, BackendConnState, BackendConns, BackendLife};

/// A worker's connections, as the rule that runs sees them.
pub(super) struct BackendView<'a> {
    /// The bound program.
    pub setup: &'a Setup,
    /// Which backends there are.
    pub backend_set: &'a BackendSet,
    /// All backends.
    pub backends: &'a [Backend],
    /// The connections to them.
    pub backend_conns: &'a BackendConns,
    /// What the driver's clock shows.
    pub now_ns: u64,
    /// The client of the session under way.
    pub client: Option<PeerAddr>,
}

impl BackendView<'_> {
    fn backend(&self, channel: u32, element: u64) -> Option<&Backend> {
        self.backend_set.slot_of(channel, element).map(|slot| &self.backends[slot as usize])
    }
}

impl Backend {
    /// Whether requests for it are sent: it is up, or being dialled for the first time.
    pub(super) fn is_usable(&self, backend_conns: &BackendConns) -> bool {
        if self.life != BackendLife::SessionInfo || self.health.is_out() {
            return false;
        }
        if self.exclusive {
            return self.is_relay || self.failures == 0;
        }
        let backend_conn = &backend_conns[self.shared];
        match backend_conn.state {
            BackendConnState::Up => backend_conn.conn.is_some(),
            BackendConnState::Connecting => self.failures == 0,
            BackendConnState::Down => false,
        }
    }
}

impl Backend {
    /// Requests under way on it, about: of an exclusive protocol, connections in use.
    pub(super) fn load(&self, backend_conns: &BackendConns) -> i64 {
        let shared = &backend_conns[self.shared];
        if !self.exclusive {
            return i64::from(shared.requests.len());
        }
        // One that is dialled to find out how the backend is carries nothing yet.
        let counts = shared.state == BackendConnState::Up || !shared.requests.is_empty();
        let open = self.dedicated.len() - self.spare.len() + usize::from(counts);
        open as i64 - self.idle.len() as i64
    }
}

impl Backends for BackendView<'_> {
    fn is_alive(&self, channel: u32, element: u64) -> bool {
        self.backend(channel, element).is_some_and(|backend| backend.is_usable(self.backend_conns))
    }

    fn load(&self, channel: u32, element: u64) -> i64 {
        self.backend(channel, element).map_or(0, |backend| backend.load(self.backend_conns))
    }

    fn share_per_mille(&self, channel: u32, element: u64) -> u64 {
        let slow_start = self.setup.limits.health.slow_start;
        let share = |backend: &Backend| backend.health.share_per_mille(self.now_ns, slow_start);
        self.backend(channel, element).map_or(1000, share)
    }

    fn peer(&self, channel: u32, element: u64) -> [u8; 18] {
        if channel as usize == self.setup.listened {
            return self.client.map_or([0; 18], client_bytes);
        }
        self.backend(channel, element).map_or([0; 18], |backend| endpoint_bytes(&backend.endpoint))
    }
}
