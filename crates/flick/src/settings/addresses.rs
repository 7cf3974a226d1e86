//! Addresses of a channel.
//!
//! | text | meaning |
//! |---|---|
//! | `127.0.0.1:9000` | one element |
//! | `127.0.0.1:9000 weight=3` | a backend with three times the share of the others |
//! | `127.0.0.1:9000 backup` | a backend used only while all others are down |
//! | `127.0.0.1:9000x8` | eight streams to one address, for a process that merges |

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_net::Endpoint;
use flick_runtime::BackendAddress;
use flick_runtime::limits::WEIGHT_MAX;

use crate::sources::Source;

/// The backends of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Name of the channel.
    pub channel: String,
    /// The elements of the array in order; empty if there is a source.
    pub members: Vec<BackendAddress>,
    /// Source of the list, if it may change at run time.
    pub source: Option<Source>,
}

impl Connect {
    /// The backends that `list` names.
    ///
    /// Errors: a source is not the only item.
    pub fn new(channel: String, list: &[Target]) -> Result<Self, String> {
        let mut members = Vec::new();
        for target in list {
            match target {
                Target::Members(addresses) => members.extend(addresses.iter().cloned()),
                Target::Source(source) if list.len() == 1 => {
                    return Ok(Self { channel, members, source: Some(source.clone()) });
                }
                Target::Source(source) => {
                    return Err(format!("`{source}` must be the only item in the list of `{channel}`"));
                }
            }
        }
        Ok(Self { channel, members, source: None })
    }
}

/// An item in the list of a channel's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Addresses with their weights.
    Members(Vec<BackendAddress>),
    /// A source of the whole list.
    Source(Source),
}

impl Target {
    /// Parses an address or a source. Errors: what is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Source::parse(text) {
            Some(source) => source.map(Self::Source),
            None => members(text).map(Self::Members),
        }
    }
}

/// Parses a backend: an address, its weight, and whether it is a backup.
///
/// Errors: what is wrong, and what is allowed.
pub fn members(text: &str) -> Result<Vec<BackendAddress>, String> {
    let mut words = text.split_ascii_whitespace();
    let endpoints = parse(words.next().unwrap_or_default())?;
    let (mut weight, mut rank) = (1, 0);
    for word in words {
        if word == "backup" {
            rank = 1;
            continue;
        }
        let number = word.strip_prefix("weight=").and_then(|number| number.parse().ok());
        weight = number.filter(|weight| (1..=WEIGHT_MAX).contains(weight)).ok_or_else(|| {
            format!(
                "`{text}` has an unknown parameter `{word}`; the parameters are `backup` and `weight=N`, N from 1 to {WEIGHT_MAX}"
            )
        })?;
    }
    Ok(endpoints
        .into_iter()
        .map(|endpoint| BackendAddress::weighing(endpoint, weight).ranking(rank))
        .collect())
}

/// Parses an address, repeated for each stream it stands for.
///
/// Errors: what is wrong, and what is allowed.
pub fn parse(text: &str) -> Result<Vec<Endpoint>, String> {
    let (address, count) = split(text);
    let endpoint: Endpoint =
        address.parse().map_err(|error: flick_net::address::EndpointError| error.to_string())?;
    let count = count.map_or(Ok(1), |count| {
        count.parse().ok().filter(|count| (1..=CHANNEL_ELEMENTS_MAX).contains(count)).ok_or_else(|| {
            format!("`{text}` asks for {count} streams; the range is 1 to {CHANNEL_ELEMENTS_MAX}")
        })
    })?;
    Ok(vec![endpoint; count])
}

/// Splits off the number of streams. Not of a path, which may end in `x8` itself: repeat such an address instead.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('x') {
        Some((address, count)) if !text.starts_with("unix:") && !count.is_empty() => {
            if count.bytes().all(|byte| byte.is_ascii_digit()) {
                (address, Some(count))
            } else {
                (text, None)
            }
        }
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{members, parse};

    fn check(text: &str, expected: &str) {
        let shown = match parse(text) {
            Ok(endpoints) => endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error,
        };
        assert!(shown.contains(expected), "{text}: {shown}");
    }

    #[test]
    fn suffix_x_repeats_an_address() {
        check("127.0.0.1:9000", "127.0.0.1:9000");
        check("127.0.0.1:9000x3", "127.0.0.1:9000 127.0.0.1:9000 127.0.0.1:9000");
        check("[::1]:9000x2", "[::1]:9000 [::1]:9000");
        check("unix:/run/box8", "unix:/run/box8");
        check("127.0.0.1:9000x0", "the range is 1 to 1024");
        check("127.0.0.1:9000x99999999999999999999", "asks for 99999999999999999999 streams");
        check("127.0.0.1x3", "127.0.0.1");
    }

    #[test]
    fn backend_with_weight_and_backup() {
        let check = |text: &str, expected: &str| {
            let shown = match members(text) {
                Ok(members) => members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                Err(error) => error,
            };
            assert!(shown.contains(expected), "{text}: {shown}");
        };
        check("127.0.0.1:9000 weight=3", "127.0.0.1:9000 weight=3");
        check("[::1]:9000  weight=1", "[::1]:9000");
        check("127.0.0.1:9000x2 weight=65535", "127.0.0.1:9000 weight=65535, 127.0.0.1:9000 weight=65535");
        check("127.0.0.1:9000 weight=0", "N from 1 to 65535");
        check("127.0.0.1:9000 weight=65536", "N from 1 to 65535");
        check("127.0.0.1:9000 backup weight=2", "127.0.0.1:9000 weight=2 backup");
        check("127.0.0.1:9000 down", "unknown parameter `down`; the parameters are `backup`");
        check("weight=3", "weight=3");
    }
}
