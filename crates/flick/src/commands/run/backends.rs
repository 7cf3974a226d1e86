//! Discovered backend lists: read once before the start, then updated while the service runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flick_discovery::{FirstList, LastLists, Resolver, Source, SourceReader, WatchedChannel, Watchers};
use flick_runtime::{BackendAddress, Binding, Limits, Platform};

use crate::failure::{Failure, Outcome};
use crate::settings::addresses::Connect;

/// Default of `--max-backends` for a list that may change.
const MAX_BACKENDS: u32 = 16;

/// Conditions of the first reads of backend lists.
#[derive(Debug, Default)]
pub struct FirstReads<'a> {
    /// The lists of the running generation, if there is one.
    pub known: Option<&'a LastLists>,
    /// Set when the lists are not wanted any more: lookups fail then.
    pub cancelled: Arc<AtomicBool>,
}

/// A channel with a discovered list, of a service that does not run yet.
pub struct DiscoveredChannel {
    channel: String,
    reader: SourceReader,
    after: Duration,
    /// Error because of which its list is empty at the start; `None` if the list could be read.
    pub error: Option<String>,
    /// Error because of which its list keeps its old contents; `None` if the list could be read.
    pub kept: Option<String>,
}

impl DiscoveredChannel {
    /// The file of the list, if the source is a file.
    pub fn file(&self) -> Option<&Path> {
        self.reader.file()
    }

    /// The reader of the list.
    pub fn reader(&self) -> &SourceReader {
        &self.reader
    }

    /// Name of the channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }
}

/// Reads all lists for the first time. If that fails, a list keeps the contents that are `known` from the same source.
///
/// Errors: a file cannot be read or is malformed. Without an answer from DNS a list is empty at the start.
pub fn open(
    connects: Vec<Connect>,
    resolver: &Resolver,
    known: Option<&LastLists>,
    limits: &mut Limits,
) -> Result<(Vec<Binding>, Vec<DiscoveredChannel>), Failure> {
    let (mut bindings, mut opened) = (Vec::new(), Vec::new());
    for Connect { channel, mut members, source } in connects {
        if let Some(source) = source {
            if limits.max_backends == 0 {
                limits.max_backends = MAX_BACKENDS;
            }
            let is_file = matches!(source, Source::File(_));
            let mut reader = SourceReader::new(source, resolver.clone());
            let nothing = LastLists::default();
            let (after, error, kept);
            match reader.read_first(known.filter(|_| !is_file).unwrap_or(&nothing)) {
                Ok(FirstList { list, next_read, error: unread }) => {
                    (members, after, error, kept) = (list, next_read, None, unread);
                }
                Err(error) if is_file => return Err(Failure::usage(error)),
                // Read again as soon as the log can report the error.
                Err(why) => (after, error, kept) = (Duration::ZERO, Some(why), None),
            }
            opened.push(DiscoveredChannel { channel: channel.clone(), reader, after, error, kept });
        }
        let mut binding = Binding::new(channel, Vec::new());
        for BackendAddress { endpoint, weight, rank, mode } in members {
            binding.endpoints.push(endpoint);
            binding.weights.push(weight);
            binding.ranks.push(rank);
            binding.modes.push(mode);
        }
        bindings.push(binding);
    }
    Ok((bindings, opened))
}

/// Checks that every list was read, so that a new generation does not replace one that has backends.
///
/// Errors: why a list was not read.
pub fn complete(opened: &[Vec<DiscoveredChannel>]) -> Outcome {
    let missing = opened.iter().flatten().find_map(|opened| opened.error.clone());
    missing.map_or(Ok(()), |error| Err(Failure::failed(error)))
}

/// Starts updating the lists. `opened` has one entry per service, in their order.
///
/// Errors: a thread cannot be started.
pub fn watch(platform: &Platform, opened: Vec<Vec<DiscoveredChannel>>) -> Result<Watchers, Failure> {
    let services = platform.services().iter().zip(opened);
    let watched = services.flat_map(|(service, opened)| {
        let (name, lists) = (service.name().to_owned(), service.backend_set());
        opened.into_iter().map(move |DiscoveredChannel { channel, reader, after, .. }| WatchedChannel {
            service: name.clone(),
            backends: lists.clone(),
            channel,
            reader,
            next_read: after,
        })
    });
    Watchers::start(watched.collect())
        .map_err(|error| Failure::failed(format!("cannot start a thread for backend lists: {error}")))
}
