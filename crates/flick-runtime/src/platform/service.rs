//! One of the services of a platform: what the control thread knows and can ask of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flick_abi::{Engine, Program};
use flick_net::{Endpoint, Waker};

use crate::config::BackendAddress;
use crate::config::PlatformConfig;
use crate::merge::Hub;
use crate::observe::heartbeat::HeartbeatReader;
use crate::observe::outlier::{HealthState, UnhealthyBackend};
use crate::platform::stats::{ServiceStats, WorkerStats};
use crate::setup::Setup;
use crate::shared::Shared;
use crate::shared::handoff::Successor;
use crate::state::State;
use crate::thread::scheduler::ProgramGroup;
use crate::tunables::Tunables;

/// A service to start.
pub struct ServiceConfig {
    /// Name of the service, as operators know it.
    pub name: String,
    /// The process.
    pub program: Arc<Program>,
    /// Its code.
    pub engine: Arc<dyn Engine>,
    /// Its bindings and limits. Threads, pinning and the kernel interface are the first service's.
    pub config: PlatformConfig,
    /// Services with the same number are processes of one program file and share its dictionaries and counters.
    pub group: usize,
}

/// The lists of backends of a running service, to be changed.
#[derive(Clone)]
pub struct BackendSetHandle {
    setup: Arc<Setup>,
    wakers: Vec<Waker>,
}

impl BackendSetHandle {
    /// Sets the backends of a channel; the workers use them from their next iteration on. Removed backends get no new
    /// request, and their requests in flight finish. Returns whether anything changed.
    ///
    /// Errors: the service has no such channel of backends, or `list` is too long.
    pub fn set(&self, channel: &str, list: &[BackendAddress]) -> Result<bool, String> {
        let channels = &self.setup.program.channels;
        let index = channels.iter().position(|known| known.name == channel);
        let index = index.ok_or_else(|| format!("there is no channel `{channel}`"))?;
        let is_new = self.setup.backend_sets.publish(index, list)?;
        if is_new {
            self.wakers.iter().for_each(Waker::wake);
        }
        Ok(is_new)
    }
}

/// A service that runs.
pub struct RunningService {
    pub(super) name: String,
    pub(super) setup: Arc<Setup>,
    pub(super) shared: Arc<Shared>,
    pub(super) state: Arc<State>,
    pub(super) hub: Option<Arc<Hub>>,
    pub(super) group: Arc<ProgramGroup>,
    pub(super) is_first_of_group: bool,
    pub(super) state_dir: Option<PathBuf>,
    /// Its access log, if it keeps one.
    pub(super) access: Option<crate::observe::access_log::AccessLog>,
    pub(super) addresses: Vec<(String, Endpoint)>,
    /// By thread.
    pub(super) workers: Vec<WorkerStats>,
    pub(super) wakers: Vec<Waker>,
    /// By thread.
    pub(super) readers: Vec<HeartbeatReader>,
}

impl RunningService {
    /// Name of the service, as operators know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the addresses that clients can connect to, by channel.
    pub fn addresses(&self) -> &[(String, Endpoint)] {
        &self.addresses
    }

    /// By worker: backends with which something is wrong, as it has seen.
    pub(super) fn health_problems(&self) -> Vec<Vec<UnhealthyBackend>> {
        let backend_set = self.setup.backend_sets.latest();
        let slots = || backend_set.slots().iter().enumerate().filter(|(_, slot)| slot.element.is_some());
        let of_worker = |watch: &WorkerStats| {
            let health_problems = slots().filter_map(|(at, slot)| {
                let health_problem = watch.backend_counters[at].health.get();
                let endpoint =
                    slot.endpoint.as_ref().filter(|_| health_problem != HealthState::default())?.clone();
                let channel = self.setup.program.channels[self.setup.slots[at]].name.clone();
                Some(UnhealthyBackend { channel, endpoint, health_problem })
            });
            health_problems.collect()
        };
        self.workers.iter().map(of_worker).collect()
    }

    /// Its name, the first backend that a session of a relay has lost before its client's end, and why.
    pub(super) fn lost_backend(&self) -> Option<(String, Endpoint, String)> {
        let (at, why) = self.setup.backend_log.lost()?;
        let endpoint = self.setup.backend_sets.latest().slots()[at].endpoint.clone()?;
        Some((self.name.clone(), endpoint, why.to_string()))
    }

    /// Returns the state that its code shares: its program's counters and dictionaries.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The settings that may be changed while it runs.
    pub fn tunables(&self) -> &Arc<Tunables> {
        &self.setup.tunables
    }

    /// Whether it is the first service of its program. The others show the same state.
    pub fn is_first_of_program(&self) -> bool {
        self.is_first_of_group
    }

    /// A handle on its lists of backends, for the threads that watch where these are.
    pub fn backend_set(&self) -> BackendSetHandle {
        BackendSetHandle { setup: Arc::clone(&self.setup), wakers: self.wakers.clone() }
    }

    /// A handle on all that it counts, for other threads.
    pub(super) fn stats(&self, io: &'static str) -> ServiceStats {
        ServiceStats {
            name: self.name.clone(),
            setup: Arc::clone(&self.setup),
            shared: Arc::clone(&self.shared),
            state: Arc::clone(&self.state),
            workers: self.workers.clone(),
            addresses: self.addresses.clone(),
            io,
            wakers: self.wakers.clone(),
        }
    }

    /// Asks it to take no new clients and to end when the present ones are served, at `deadline` at latest.
    pub fn drain(&self, deadline: Duration) {
        self.shared.drain(deadline);
        self.wake();
    }

    /// Asks it to hand over what it can to `successor`, and to end when the rest is served, at `deadline` at latest.
    pub(super) fn replace(&self, deadline: Duration, successor: Arc<dyn Successor>) {
        self.shared.replace(deadline, successor);
        self.wake();
    }

    /// Whether a connection that was accepted at this address can be one of its clients.
    pub(super) fn listens_at(&self, address: &Endpoint) -> bool {
        let includes = |own: &Endpoint| match (own, address) {
            (Endpoint::Tcp(own), Endpoint::Tcp(at)) => {
                let (own_ip, ip) = (own.ip().to_canonical(), at.ip().to_canonical());
                own.port() == at.port() && (own_ip.is_unspecified() || own_ip == ip)
            }
            (own, at) => own == at,
        };
        self.addresses.iter().any(|(_, own)| includes(own))
    }

    /// Whether this one can take over the clients of `other`: it has its name or one of its addresses, and neither
    /// merges.
    pub(super) fn succeeds(&self, other: &RunningService) -> bool {
        let shares =
            || other.setup.listen.iter().any(|(_, at)| self.setup.listen.iter().any(|(_, own)| own == at));
        self.hub.is_none() && other.hub.is_none() && (self.name == other.name || shares())
    }

    /// Asks it to end at once.
    pub fn stop(&self) {
        self.shared.stop();
        self.wake();
    }

    /// By worker: the number of its event-loop iterations; `None`: it has ended.
    pub fn loops(&self) -> Vec<Option<u64>> {
        self.readers.iter().map(HeartbeatReader::iterations).collect()
    }

    /// Wakes a worker for an event-loop iteration, though it has nothing to do.
    pub fn wake_worker(&self, worker: usize) {
        if let Some(waker) = self.wakers.get(worker) {
            waker.wake();
        }
    }

    fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }
}
