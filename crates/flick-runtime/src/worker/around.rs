//! What rules may learn of the connections around them: how backends are doing, who the client is.

use flick_net::PeerAddr;

use crate::backend::{Backend, Life, Link, LinkState};
use crate::host::{Backends, client_bytes, endpoint_bytes};
use crate::roster::Roster;
use crate::setup::Setup;

/// A worker's connections, as the rule that runs sees them.
pub(super) struct Around<'a> {
    /// The bound program.
    pub setup: &'a Setup,
    /// Which backends there are.
    pub roster: &'a Roster,
    /// All backends.
    pub backends: &'a [Backend],
    /// The connections to them.
    pub links: &'a [Link],
    /// What the driver's clock shows.
    pub now_ns: u64,
    /// The client of the session under way.
    pub client: Option<PeerAddr>,
}

impl Around<'_> {
    fn backend(&self, channel: u32, element: u64) -> Option<&Backend> {
        self.roster.slot_of(channel, element).map(|slot| &self.backends[slot as usize])
    }
}

impl Backend {
    /// Whether requests for it are sent: it is up, or being dialled for the first time.
    pub(super) fn is_usable(&self, links: &[Link]) -> bool {
        if self.life != Life::Listed || self.health.is_out() {
            return false;
        }
        if self.exclusive {
            return self.private || self.failures == 0;
        }
        let link = &links[self.shared as usize];
        match link.state {
            LinkState::Up => link.conn.is_some(),
            LinkState::Connecting => self.failures == 0,
            LinkState::Down => false,
        }
    }
}

impl Backend {
    /// Requests under way on it, about: of an exclusive protocol, connections in use.
    pub(super) fn load(&self, links: &[Link]) -> i64 {
        let shared = &links[self.shared as usize];
        if !self.exclusive {
            return i64::from(shared.requests.len());
        }
        // One that is dialled to find out how the backend is carries nothing yet.
        let counts = shared.state == LinkState::Up || !shared.requests.is_empty();
        let open = self.lent.len() - self.spare.len() + usize::from(counts);
        open as i64 - self.idle.len() as i64
    }
}

impl Backends for Around<'_> {
    fn is_alive(&self, channel: u32, element: u64) -> bool {
        self.backend(channel, element).is_some_and(|backend| backend.is_usable(self.links))
    }

    fn load(&self, channel: u32, element: u64) -> i64 {
        self.backend(channel, element).map_or(0, |backend| backend.load(self.links))
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
