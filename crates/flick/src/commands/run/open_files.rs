//! Whether there are as many open files as clients and backends may need.
//! Promises: the soft limit becomes the hard one where that helps; what is still missing is told with the figure that would
//! do. Nothing is refused for it: a service that has fewer clients than it may have needs less.

use flick_runtime::Service;
use flick_runtime::open_files::open_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use super::not_started;
use crate::failure::Outcome;

/// What the process has open beside its services: programs, logs, the admin side and who reads there; generous.
const OF_THE_PROCESS: u64 = 64;

/// Provides what these services may need, as far as this process may.
///
/// Errors: the bindings of one do not fit its program.
pub fn provide(services: &[Service]) -> Outcome {
    let mut needed = OF_THE_PROCESS;
    for service in services {
        needed += open_files(&service.program, &service.config).map_err(not_started)?;
    }
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|most| most >= needed);
    if is_enough(limit.current) {
        return Ok(());
    }
    let raised = Rlimit { current: limit.maximum.or(Some(needed)), maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(open_files = raised.current, "the limit on open files is raised"),
        Err(error) => debug!(%error, "the limit on open files cannot be raised"),
    }
    let limit = getrlimit(Resource::Nofile).current;
    if !is_enough(limit) {
        warn!(
            limit,
            needed,
            "clients and backends may need more open files than this process may have: clients wait then, and \
             backends cannot be dialled; raise the limit (`ulimit -n {needed}`, `LimitNOFILE={needed}` in a unit of \
             systemd), or lower `sessions_max`"
        );
    }
    Ok(())
}
