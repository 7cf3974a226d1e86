//! The limit on open files, compared with what clients and backends may need.
//! Promises: raises the soft limit to the hard limit if needed; if that is not enough, a warning names the number
//! needed, once, and again when more are needed.
//! Refuses: nothing; a service with fewer clients than its limit needs fewer files.

use flick_runtime::ServiceConfig;
use flick_runtime::open_files::open_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use super::start_failure;
use crate::failure::Outcome;

/// Open files of the process beside its services: programs, logs, the admin endpoint and its clients. Rounded up.
const OF_THE_PROCESS: u64 = 64;

/// The limit of this process.
#[derive(Debug, Default)]
pub struct OpenFilesLimit {
    /// The largest number of files that a warning has named.
    warned: u64,
}

impl OpenFilesLimit {
    /// Raises the limit for these services.
    ///
    /// Errors: the bindings of a service do not fit its program.
    pub fn raise_limit(&mut self, services: &[ServiceConfig]) -> Outcome {
        let mut needed = OF_THE_PROCESS;
        for service in services {
            needed += open_files(&service.program, &service.config).map_err(start_failure)?;
        }
        let limit = getrlimit(Resource::Nofile);
        let is_enough = |limit: Option<u64>| limit.is_none_or(|most| most >= needed);
        if is_enough(limit.current) {
            return Ok(());
        }
        let raised = Rlimit { current: limit.maximum.or(Some(needed)), maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => debug!(open_files = raised.current, "raised the limit on open files"),
            Err(error) => debug!(%error, "cannot raise the limit on open files"),
        }
        let limit = getrlimit(Resource::Nofile).current;
        if !is_enough(limit) && needed > self.warned {
            self.warned = needed;
            warn!(
                limit,
                needed,
                "clients and backends may need more open files than the limit; new connections then wait or fail; raise the \
                 limit (`ulimit -n {needed}`, `LimitNOFILE={needed}` of a systemd unit), or lower `max_connections`"
            );
        }
        Ok(())
    }
}
