//! The limit on open files, compared with what clients and backends may need.
//! Promises: raises the soft limit to the hard limit if needed; if that is not enough, services take fewer clients, so
//! that each has a descriptor for its request to a backend, and a warning names the number needed, once, and again when
//! more are needed. A service that starts has the descriptors to serve a client.
//! Refuses: a start that leaves none; merges, whose number of clients is given, keep theirs.

use std::io;

use flick_check::counted;
use flick_runtime::ServiceConfig;
use flick_runtime::open_files::OpenFiles;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use super::start_failure;
use crate::failure::{Failure, Outcome, start_help};

/// Open files of the process beside its services: programs, logs, the admin endpoint and its clients. Rounded up.
const OF_THE_PROCESS: u64 = 64;
/// The process has at most one in this many of the files for that.
const PROCESS_SHARE: u64 = 4;

/// Files that services may need beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The limit, if there is one.
    limit: Option<u64>,
    /// The number that may be needed.
    needed: u64,
    /// Clients that each service takes at most.
    clients: u32,
}

impl Shortage {
    /// Says what happens, and what to change.
    pub fn text(&self) -> String {
        let (needed, clients) = (self.needed, counted(self.clients, "client"));
        format!(
            "clients and backends may need more open files than the limit; each service takes at most {clients}, \
             and closes idle ones for new ones; raise the limit (`ulimit -n {needed}`, `LimitNOFILE={needed}` of a \
             systemd unit), or lower `max_connections`"
        )
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit.unwrap_or(u64::MAX);
        write!(f, "{} (limit {limit}, needed {})", self.text(), self.needed)
    }
}

/// Raises the limit for these services, and returns what is missing then, which lowers the clients of each.
///
/// Errors: the bindings of a service do not fit its program.
pub fn raise_limit(services: &mut [ServiceConfig]) -> Result<Option<Shortage>, Failure> {
    let files = services.iter().map(|service| OpenFiles::of(&service.program, &service.config));
    let files = files.collect::<Result<Vec<_>, _>>().map_err(start_failure)?;
    let needed_with = |clients: u64| files.iter().map(|service| service.with_clients(clients)).sum::<u64>();
    let needed = OF_THE_PROCESS + needed_with(u64::MAX);
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
    if is_enough(limit) {
        return Ok(None);
    }
    let most = limit.unwrap_or(u64::MAX);
    let free = most - OF_THE_PROCESS.min(most / PROCESS_SHARE);
    let clients = clients_within(free, needed_with);
    for service in services.iter_mut().filter(|service| service.program.merges.is_empty()) {
        let limits = &mut service.config.limits;
        limits.few_descriptors = clients < limits.max_connections;
        limits.max_connections = limits.max_connections.min(clients);
    }
    Ok(Some(Shortage { limit, needed, clients }))
}

/// The largest number of clients of each service, at least one, for which the files suffice.
fn clients_within(files: u64, needed_with: impl Fn(u64) -> u64) -> u32 {
    let (mut most, mut step) = (0_u32, 1 << (u32::BITS - 1));
    while step > 0 {
        most += if needed_with(u64::from(most | step)) <= files { step } else { 0 };
        step /= 2;
    }
    most.max(1)
}

/// Checks that a process whose services have started has descriptors left: for a client and its backend.
///
/// Errors: it has not.
pub fn check_left() -> Outcome {
    let duplicate = || rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0);
    duplicate().and_then(|first| duplicate().map(|second| drop((first, second)))).map_err(|error| {
        let error = io::Error::from(error);
        let help = start_help(&error);
        Failure::failed(format!("no descriptor is left for a client and its backend: {error}{help}"))
    })
}

/// The limit of this process.
#[derive(Debug, Default)]
pub struct OpenFilesLimit {
    /// The largest number of files that a warning has named.
    warned: u64,
}

impl OpenFilesLimit {
    /// Raises the limit for these services, or lowers their clients, and logs what is missing then.
    ///
    /// Errors: as [`raise_limit`].
    pub fn raise_limit(&mut self, services: &mut [ServiceConfig]) -> Outcome {
        let shortage = raise_limit(services)?;
        if let Some(shortage) = shortage.filter(|shortage| shortage.needed > self.warned) {
            let Shortage { limit, needed, .. } = shortage;
            self.warned = needed;
            warn!(limit, needed, "{}", shortage.text());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Shortage, clients_within};

    #[test]
    fn limit_of_one_was_printed_with_a_plural() {
        let text = |clients| Shortage { limit: Some(64), needed: 100, clients }.text();
        assert!(text(1).contains("at most 1 client, and"), "{}", text(1));
        assert!(text(2).contains("at most 2 clients, and"), "{}", text(2));
    }

    #[test]
    fn each_client_has_a_descriptor_for_its_request() {
        let needed_with = |clients: u64| 20 + 2 * clients.min(300);
        assert_eq!(clients_within(100, needed_with), 40);
        assert_eq!(clients_within(101, needed_with), 40);
        assert_eq!(clients_within(619, needed_with), 299);
        assert_eq!(clients_within(10, needed_with), 1, "a service without any client is of no use");
    }
}
