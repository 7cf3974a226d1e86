//! Lists of backends that are read from elsewhere: first before the start, then for as long as the service runs.

use std::path::Path;
use std::time::Duration;

use flick_runtime::{Binding, Limits, Member, Platform};

use crate::failure::{Failure, Outcome};
use crate::settings::addresses::Connect;
use crate::sources::names::Resolver;
use crate::sources::{Known, Reader, Source, Watched, Watchers};

/// Room for elements of a list that may change, unless it is set.
const BACKENDS_MAX: u32 = 16;

/// A channel whose list is read, of a service that does not run yet.
pub struct Opened {
    channel: String,
    reader: Reader,
    after: Duration,
    /// Why its list begins empty, if it could not be read.
    pub error: Option<String>,
    /// Why its list begins as it was before, if it could not be read.
    pub kept: Option<String>,
}

impl Opened {
    /// The file that it is read from, if it is one.
    pub fn file(&self) -> Option<&Path> {
        self.reader.file()
    }

    /// What reads it.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }
}

/// Reads all lists for the first time, and makes room for what they may become. A list that is known from the same source is
/// good enough where that fails.
///
/// Errors: a file is not there, or is no list. A name server may be late: without it the list begins empty.
pub fn open(
    connects: Vec<Connect>,
    resolver: &Resolver,
    known: &Known,
    limits: &mut Limits,
) -> Result<(Vec<Binding>, Vec<Opened>), Failure> {
    let (mut bindings, mut opened) = (Vec::new(), Vec::new());
    for Connect { channel, mut members, source } in connects {
        if let Some(source) = source {
            if limits.backends_max == 0 {
                limits.backends_max = BACKENDS_MAX;
            }
            let is_file = matches!(source, Source::File(_));
            let mut reader = Reader::new(source, resolver.clone());
            let nothing = Known::default();
            let (after, error, kept);
            match reader.begin(if is_file { &nothing } else { known }) {
                Ok(begun) => (members, after, error, kept) = (begun.list, begun.after, None, begun.failed),
                Err(error) if is_file => return Err(Failure::usage(error)),
                // Read again at once, when the log is there to say why.
                Err(why) => (after, error, kept) = (Duration::ZERO, Some(why), None),
            }
            opened.push(Opened { channel: channel.clone(), reader, after, error, kept });
        }
        let mut binding = Binding::new(channel, Vec::new());
        for Member { endpoint, weight, rank } in members {
            binding.endpoints.push(endpoint);
            binding.weights.push(weight);
            binding.ranks.push(rank);
        }
        bindings.push(binding);
    }
    Ok((bindings, opened))
}

/// Whether there is every list that was asked for: who has them already would be followed by services without.
///
/// Errors: why one is not there.
pub fn complete(opened: &[Vec<Opened>]) -> Outcome {
    let missing = opened.iter().flatten().find_map(|opened| opened.error.clone());
    missing.map_or(Ok(()), |error| Err(Failure::failed(error)))
}

/// Goes on reading. By service, in their order: what was opened for it.
///
/// Errors: the system has no more threads.
pub fn watch(platform: &Platform, opened: Vec<Vec<Opened>>) -> Result<Watchers, Failure> {
    let services = platform.services().iter().zip(opened);
    let watched = services.flat_map(|(service, opened)| {
        let (name, lists) = (service.name().to_owned(), service.lists());
        opened.into_iter().map(move |Opened { channel, reader, after, .. }| Watched {
            service: name.clone(),
            lists: lists.clone(),
            channel,
            reader,
            after,
        })
    });
    Watchers::start(watched.collect())
        .map_err(|error| Failure::failed(format!("cannot watch lists of backends: {error}")))
}
