//! Files that a service may have open at a time: its clients, its connections to backends and its listeners.
//! Promises: enough for as many clients as there may be, each with an exchange in flight.
//! Refuses: to count a connection for each of several requests that one client pipelines: few clients do, and those
//! then wait. The machine's limit: `flick run` compares.

use flick_abi::Program;

use crate::config::PlatformConfig;
use crate::setup::{BackendConnsMax, BoundBackends, StartError};

/// Files that a worker opens for itself: its driver, its wakers, its timers; an upper bound.
const OF_A_WORKER: u64 = 8;

/// Files that a service may have open. Errors: the bindings do not fit the process.
pub fn open_files(program: &Program, config: &PlatformConfig) -> Result<u64, StartError> {
    let limits = &config.limits;
    let bound = BoundBackends::of(program, config)?;
    let backend_conns = BackendConnsMax::of(program, config, &bound.capacities);
    let workers = config.workers.max(1) as u64;
    let sessions = u64::from(limits.session_slots());
    // A dedicated connection carries an exchange of a client, so there are no more of them than clients.
    let backend_conns = workers * backend_conns.backends + (workers * backend_conns.dedicated).min(sessions);
    let listened: u64 = config.listen.iter().map(|binding| binding.endpoints.len() as u64).sum();
    Ok(sessions + backend_conns + workers * (listened + OF_A_WORKER))
}
