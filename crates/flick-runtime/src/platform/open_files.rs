//! Files that a service may have open at a time: its clients, its connections to backends and its listeners.
//! Promises: enough for as many clients as there may be, each with an exchange in flight.
//! Refuses: to count a connection for each of several requests that one client pipelines: few clients do, and those
//! then wait. The machine's limit: `flick run` compares.

use flick_abi::Program;

use crate::config::PlatformConfig;
use crate::setup::{BackendConnsMax, BoundBackends, StartError};

/// Files that a worker opens for itself: its driver, its wakers, its timers; an upper bound.
const OF_A_WORKER: u64 = 8;

/// Files that a service may have open.
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles {
    clients: u64,
    /// Connections that each carry an exchange of one client: no more than clients are in use.
    dedicated: u64,
    others: u64,
}

impl OpenFiles {
    /// Errors: the bindings do not fit the process.
    pub fn of(program: &Program, config: &PlatformConfig) -> Result<Self, StartError> {
        let limits = &config.limits;
        let bound = BoundBackends::of(program, config)?;
        let backend_conns = BackendConnsMax::of(program, config, &bound.capacities);
        let workers = config.workers.max(1) as u64;
        let listened: u64 = config.listen.iter().map(|binding| binding.endpoints.len() as u64).sum();
        Ok(Self {
            clients: u64::from(limits.session_slots()),
            dedicated: workers * backend_conns.dedicated,
            others: workers * (backend_conns.backends + listened + OF_A_WORKER),
        })
    }

    /// Number of files, if there are at most `clients_max` clients.
    pub fn with_clients(&self, clients_max: u64) -> u64 {
        let clients = self.clients.min(clients_max);
        clients + self.dedicated.min(clients) + self.others
    }
}
