//! Reads one source: the list at the start, then a new list whenever it changed.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flick_net::Endpoint;
use flick_runtime::BackendAddress;
use tracing::warn;

use crate::dns::{Lookup, LookupError, MissingFamily, Resolver};
use crate::file::{self, FileStamp};
use crate::limits::{
    FILE_POLL_INTERVAL, NEGATIVE_TTL_MAX, PARTIAL_TTL_MAX, RETRY_DELAY_MAX, RETRY_DELAY_MIN, SRV_TARGETS_MAX,
    TTL_MAX, TTL_MIN,
};
use crate::source::Source;

/// The last list of one source, shared with the generation that follows.
#[derive(Clone, Debug, Default)]
struct LastList(Arc<Mutex<Option<Vec<BackendAddress>>>>);

impl LastList {
    fn set(&self, list: &[BackendAddress]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(list.to_vec());
    }

    fn get(&self) -> Option<Vec<BackendAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The last list of each source of a generation. The next generation starts with it if a source cannot be read.
#[derive(Debug, Default)]
pub struct LastLists(Vec<(Source, LastList)>);

impl LastLists {
    /// Follows these readers from now on.
    pub fn of<'a>(readers: impl Iterator<Item = &'a SourceReader>) -> Self {
        Self(readers.map(|reader| (reader.source.clone(), reader.last.clone())).collect())
    }

    /// Returns the last list of a source, for whichever channel it was read.
    fn list(&self, of: &Source) -> Option<Vec<BackendAddress>> {
        self.0.iter().filter(|(source, _)| source == of).find_map(|(_, last)| last.get())
    }
}

/// The first list of a source.
pub struct FirstList {
    /// The backends.
    pub list: Vec<BackendAddress>,
    /// Delay before the next read of the source.
    pub next_read: Duration,
    /// Error of reading the source, in which case the list is the one of the former generation; `None` if it was read.
    pub error: Option<String>,
}

/// Reads one source repeatedly.
pub struct SourceReader {
    source: Source,
    last: LastList,
    resolver: Resolver,
    /// The file when it was read without an error.
    file: Option<FileStamp>,
    /// The addresses of the last successful lookup.
    found: Vec<RankedAddress>,
    /// Failed lookups in a row.
    failures: u32,
    last_error: Option<String>,
    /// Error of the part whose addresses the last lookup did not get; `None` if none is missing.
    partial: Option<String>,
    logged_partial: Option<String>,
    /// That the list is empty is logged.
    logged_empty: bool,
}

/// Rank, address and weight.
type RankedAddress = (u16, SocketAddr, u32);

/// The addresses of a lookup.
struct Addresses {
    list: Vec<RankedAddress>,
    ttl: Duration,
    missing: Vec<Missing>,
}

/// Part of a lookup that failed. Former addresses that may be of it stay.
enum Missing {
    Family(MissingFamily),
    /// A target of a service.
    Target {
        rank: u16,
        port: u16,
        error: LookupError,
    },
}

impl Missing {
    fn covers(&self, (rank, at, _): &RankedAddress) -> bool {
        match self {
            Self::Family(family) => family.contains(at.ip()),
            Self::Target { rank: of, port, .. } => (of, *port) == (rank, at.port()),
        }
    }

    fn error(&self) -> &LookupError {
        match self {
            Self::Family(family) => &family.error,
            Self::Target { error, .. } => error,
        }
    }
}

impl SourceReader {
    /// A reader whose lookups use `resolver`.
    pub fn new(source: Source, resolver: Resolver) -> Self {
        Self {
            source,
            last: LastList::default(),
            resolver,
            file: None,
            found: Vec::new(),
            failures: 0,
            last_error: None,
            partial: None,
            logged_partial: None,
            logged_empty: false,
        }
    }

    /// Reads the list to start with. If the source cannot be read, it is the list that `known` has of the source.
    ///
    /// Errors: the source cannot be read and `known` does not have it.
    pub fn read_first(&mut self, known: &LastLists) -> Result<FirstList, String> {
        // What completes a lookup that fails for one address family.
        self.found = known.list(&self.source).iter().flatten().filter_map(ranked).collect();
        let (list, next_read) = self.read();
        let (list, error) = match list {
            Ok(list) => (list.unwrap_or_default(), None),
            Err(error) => {
                let list = known.list(&self.source).ok_or_else(|| error.clone())?;
                // The caller logs this error.
                self.is_new_error(&error);
                (list, Some(error))
            }
        };
        self.log_partial();
        self.last.set(&list);
        Ok(FirstList { list, next_read, error })
    }

    /// Returns the source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the path of the file, if the source is a file.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Host { .. } | Source::Service(_) => None,
        }
    }

    /// Reads the source. Returns the list, or `None` if it is known not to have changed, and when to read next.
    ///
    /// Errors: why the source cannot be read.
    pub fn read(&mut self) -> (Result<Option<Vec<BackendAddress>>, String>, Duration) {
        let addresses = match &self.source {
            Source::File(path) => {
                let stamp = file::stamp(path);
                if stamp.is_some() && stamp == self.file {
                    return (Ok(None), FILE_POLL_INTERVAL);
                }
                let list = file::read(path);
                // After an error the file is read again even if it has not changed: the cause may be outside of it.
                self.file = stamp.filter(|_| list.is_ok());
                return (list.map(Some), FILE_POLL_INTERVAL);
            }
            Source::Host { name, port } => self.resolver.addresses(name, None).map(|lookup| Addresses {
                list: lookup.records.iter().map(|ip| (0, SocketAddr::new(*ip, *port), 1)).collect(),
                ttl: clamp_ttl(&lookup),
                missing: lookup.missing.into_iter().map(Missing::Family).collect(),
            }),
            Source::Service(name) => resolve_service(&self.resolver, name),
        };
        match addresses {
            Ok(addresses) => {
                self.failures = 0;
                let ttl = addresses.ttl;
                (Ok(Some(self.merge(addresses))), ttl)
            }
            Err(error) => {
                let delay = RETRY_DELAY_MIN.saturating_mul(1 << self.failures.min(5)).min(RETRY_DELAY_MAX);
                self.failures += 1;
                (Err(error.text), delay)
            }
        }
    }

    /// Completes a lookup with the former addresses of its missing parts, and returns the list.
    fn merge(&mut self, Addresses { mut list, missing, .. }: Addresses) -> Vec<BackendAddress> {
        list.extend(self.found.iter().filter(|found| missing.iter().any(|part| part.covers(found))));
        self.partial = missing.first().map(|part| part.error().text.clone());
        // An address with several ranks keeps the lowest.
        list.sort_unstable_by_key(|(rank, at, _)| (*at, *rank));
        list.dedup_by_key(|(_, at, _)| *at);
        self.found.clone_from(&list);
        let backend = |(rank, at, weight)| BackendAddress::weighing(Endpoint::Tcp(at), weight).ranking(rank);
        list.into_iter().map(backend).collect()
    }

    /// Stores the list that the channel has now.
    pub(crate) fn published(&mut self, list: &[BackendAddress]) {
        self.last.set(list);
    }

    /// Logs a lookup that failed in part, once per error.
    pub(crate) fn log_partial(&mut self) {
        if let Some(error) =
            self.partial.as_ref().filter(|error| self.logged_partial.as_ref() != Some(*error))
        {
            let source = &self.source;
            warn!(%source, error, "part of a lookup failed, its addresses are unchanged");
        }
        self.logged_partial.clone_from(&self.partial);
    }

    /// Returns why the list is empty, once until it is not.
    pub(crate) fn newly_empty(&mut self) -> Option<&'static str> {
        let is_empty = self.last.get().is_some_and(|list| list.is_empty());
        let was_logged = std::mem::replace(&mut self.logged_empty, is_empty);
        (is_empty && !was_logged).then_some(match &self.source {
            Source::File(_) => "the file lists no backend",
            Source::Host { .. } | Source::Service(_) => "the name does not exist or has no records",
        })
    }

    /// Stores an error. Returns whether it differs from the last one, so that it is logged once.
    pub(crate) fn is_new_error(&mut self, error: &str) -> bool {
        let is_new = self.last_error.as_deref() != Some(error);
        self.last_error = Some(error.to_owned());
        is_new
    }

    /// Forgets the last error.
    pub(crate) fn clear_error(&mut self) {
        self.last_error = None;
    }
}

/// The address of a backend that was looked up, as a lookup returns it.
fn ranked(backend: &BackendAddress) -> Option<RankedAddress> {
    match &backend.endpoint {
        Endpoint::Tcp(at) => Some((backend.rank, *at, backend.weight)),
        Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
    }
}

/// Returns the TTL of a lookup within its bounds.
fn clamp_ttl<T>(lookup: &Lookup<T>) -> Duration {
    let max = if lookup.records.is_empty() { NEGATIVE_TTL_MAX } else { TTL_MAX };
    lookup.ttl.clamp(TTL_MIN, max)
}

/// Looks up the addresses of the targets of a service. Each address of a target has the weight of the target.
fn resolve_service(resolver: &Resolver, name: &str) -> Result<Addresses, LookupError> {
    let mut targets = resolver.targets(name)?;
    let mut ttl = clamp_ttl(&targets);
    //= RFC 2782 section The format of the SRV RR
    //# A client MUST attempt to contact the target host with the lowest-numbered priority it can reach; target hosts
    //# with the same priority SHOULD be tried in an order defined by the weight field.
    targets.records.sort_by_key(|target| target.priority);
    let (mut list, mut missing) = (Vec::new(), Vec::<Missing>::new());
    for target in targets.records.iter().take(SRV_TARGETS_MAX) {
        let silent = missing.iter().map(Missing::error).find(|error| !error.is_response);
        let addresses = match resolver.addresses(&target.name, silent) {
            Ok(addresses) => addresses,
            Err(error) if error.is_response => {
                ttl = ttl.min(PARTIAL_TTL_MAX);
                missing.push(Missing::Target { rank: target.priority, port: target.port, error });
                continue;
            }
            Err(error) => return Err(error),
        };
        ttl = ttl.min(clamp_ttl(&addresses));
        let at = |ip: &IpAddr| (target.priority, SocketAddr::new(*ip, target.port), u32::from(target.weight));
        list.extend(addresses.records.iter().map(at));
        missing.extend(addresses.missing.map(Missing::Family));
    }
    match missing.last() {
        // All others have no records.
        Some(failed) if list.is_empty() => Err(failed.error().clone()),
        _ => Ok(Addresses { list, ttl, missing }),
    }
}

#[cfg(test)]
mod tests {
    use super::SourceReader;
    use crate::dns::Resolver;
    use crate::source::Source;

    #[test]
    fn file_is_read_after_a_change_and_errors_name_the_line() {
        let path = std::env::temp_dir().join(format!("flick-discovery-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("the file can be written");
        write("# two\n127.0.0.1:1 weight=7 # much\n\n unix:/run/x.sock # here\n");
        let mut reader = SourceReader::new(Source::File(path.clone()), Resolver::system());
        let list = reader.read().0.expect("a list").expect("the first list");
        assert_eq!(
            list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["127.0.0.1:1 weight=7", "unix:/run/x.sock"]
        );
        assert_eq!(reader.read().0, Ok(None), "the file has not changed");
        for incomplete in ["", "127.0.0.1:1\n127.0.0"] {
            write(incomplete);
            let error = reader.read().0.expect_err("an incomplete file");
            assert!(error.contains("may be incomplete"), "{incomplete:?}");
        }
        assert!(reader.read().0.is_err(), "a file that could not be read is read again without a change");
        let mut device = SourceReader::new(Source::File("/dev/null".into()), Resolver::system());
        assert!(device.read().0.expect_err("a device").contains("is not a regular file"));
        write("127.0.0.1:1\nlocalhost\n");
        let error = reader.read().0.expect_err("a name without a port");
        assert!(error.contains(":2: ") && error.contains("localhost"), "{error}");
        for descriptor in ["stdout:", "fd:3", "pipe:/run/x"] {
            write(&format!("127.0.0.1:1\n{descriptor}\n"));
            let error = reader.read().0.expect_err("a descriptor that no start has opened");
            assert!(error.contains(":2: ") && error.contains("opens at its start only"), "{error}");
        }
        std::fs::remove_file(&path).expect("the file exists");
        assert!(reader.read().0.expect_err("a missing file").contains("cannot read"));
    }
}
