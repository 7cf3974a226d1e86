//! The limit on open files, compared with what clients and backends may need.
//! Promises: raises the soft limit to the hard limit if needed; if that is not enough, a warning names the number
//! needed, once, and again when more are needed.
//! Refuses: nothing; a service with fewer clients than its limit needs fewer files.

use flick_runtime::ServiceConfig;
use flick_runtime::open_files::open_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use super::start_failure;
use crate::failure::{Failure, Outcome};

/// Open files of the process beside its services: programs, logs, the admin endpoint and its clients. Rounded up.
const OF_THE_PROCESS: u64 = 64;

/// Files that services may need beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The limit, if there is one.
    limit: Option<u64>,
    /// The number that may be needed.
    needed: u64,
}

impl Shortage {
    /// Says what happens, and what to change.
    pub fn text(&self) -> String {
        let needed = self.needed;
        format!(
            "clients and backends may need more open files than the limit; new connections then wait or fail; raise the \
             limit (`ulimit -n {needed}`, `LimitNOFILE={needed}` of a systemd unit), or lower `max_connections`"
        )
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit.unwrap_or(u64::MAX);
        write!(f, "{} (limit {limit}, needed {})", self.text(), self.needed)
    }
}

/// Raises the limit for these services, and returns what is missing then.
///
/// Errors: the bindings of a service do not fit its program.
pub fn raise_limit(services: &[ServiceConfig]) -> Result<Option<Shortage>, Failure> {
    let mut needed = OF_THE_PROCESS;
    for service in services {
        needed += open_files(&service.program, &service.config).map_err(start_failure)?;
    }
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|most| most >= needed);
    if is_enough(limit.current) {
        return Ok(None);
    }
    let raised = Rlimit { current: limit.maximum.or(Some(needed)), maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(open_files = raised.current, "raised the limit on open files"),
        Err(error) => debug!(%error, "cannot raise the limit on open files"),
    }
    let limit = getrlimit(Resource::Nofile).current;
    Ok((!is_enough(limit)).then_some(Shortage { limit, needed }))
}

/// The limit of this process.
#[derive(Debug, Default)]
pub struct OpenFilesLimit {
    /// The largest number of files that a warning has named.
    warned: u64,
}

impl OpenFilesLimit {
    /// Raises the limit for these services, and logs what is missing then.
    ///
    /// Errors: as [`raise_limit`].
    pub fn raise_limit(&mut self, services: &[ServiceConfig]) -> Outcome {
        let shortage = raise_limit(services)?;
        if let Some(shortage) = shortage.filter(|shortage| shortage.needed > self.warned) {
            let Shortage { limit, needed } = shortage;
            self.warned = needed;
            warn!(limit, needed, "{}", shortage.text());
        }
        Ok(())
    }
}
