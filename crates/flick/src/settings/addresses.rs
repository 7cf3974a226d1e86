//! Addresses of a channel: `127.0.0.1:9000`, of a backend that gets more than others `127.0.0.1:9000 weight=3`, of one
//! that stands in for them `127.0.0.1:9000 backup`, and for the array that a process merges `127.0.0.1:9000x8`, which stands for eight streams that come to one address.

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_net::Endpoint;
use flick_runtime::Member;
use flick_runtime::limits::WEIGHT_MAX;

use crate::sources::Source;

/// What a channel is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Its name.
    pub channel: String,
    /// The elements of the array in order; none yet where there is a source.
    pub members: Vec<Member>,
    /// Where the list comes from, if it may change.
    pub source: Option<Source>,
}

impl Connect {
    /// Of these addresses, or of one source.
    ///
    /// Errors: a source stands beside something else.
    pub fn new(channel: String, list: &[Part]) -> Result<Self, String> {
        let mut members = Vec::new();
        for part in list {
            match part {
                Part::Members(part) => members.extend(part.iter().cloned()),
                Part::Source(source) if list.len() == 1 => {
                    return Ok(Self { channel, members, source: Some(source.clone()) });
                }
                Part::Source(source) => {
                    return Err(format!(
                        "`{source}` is the whole list of `{channel}`; write nothing beside it"
                    ));
                }
            }
        }
        Ok(Self { channel, members, source: None })
    }
}

/// A part of what a channel is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Addresses with their weights.
    Members(Vec<Member>),
    /// The whole list, from elsewhere.
    Source(Source),
}

impl Part {
    /// Errors: what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Source::parse(text) {
            Some(source) => source.map(Self::Source),
            None => members(text).map(Self::Members),
        }
    }
}

/// Reads a backend: an address, what it weighs, and whether it only stands in for others.
///
/// Errors: what is wrong, and what would be right.
pub fn members(text: &str) -> Result<Vec<Member>, String> {
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
                "`{text}` says `{word}`; write `backup` behind the address, or `weight=N` with a number from 1 to {WEIGHT_MAX}"
            )
        })?;
    }
    Ok(endpoints.into_iter().map(|endpoint| Member::weighing(endpoint, weight).ranking(rank)).collect())
}

/// Reads an address, or one for several elements of an array.
///
/// Errors: what is wrong, and what would be right.
pub fn parse(text: &str) -> Result<Vec<Endpoint>, String> {
    let (address, count) = split(text);
    let endpoint: Endpoint =
        address.parse().map_err(|error: flick_net::address::EndpointError| error.to_string())?;
    let count = count.map_or(Ok(1), |count| {
        count.parse().ok().filter(|count| (1..=CHANNEL_ELEMENTS_MAX).contains(count)).ok_or_else(|| {
            format!("`{text}` asks for {count} streams; write a number from 1 to {CHANNEL_ELEMENTS_MAX} behind the `x`")
        })
    })?;
    Ok(vec![endpoint; count])
}

/// Cuts the number of streams off. A path may end in `x8` by itself: there the address is written several times.
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
    fn a_number_behind_an_address_stands_for_streams() {
        check("127.0.0.1:9000", "127.0.0.1:9000");
        check("127.0.0.1:9000x3", "127.0.0.1:9000 127.0.0.1:9000 127.0.0.1:9000");
        check("[::1]:9000x2", "[::1]:9000 [::1]:9000");
        check("unix:/run/box8", "unix:/run/box8");
        check("127.0.0.1:9000x0", "write a number from 1 to 1024 behind the `x`");
        check("127.0.0.1:9000x99999999999999999999", "asks for 99999999999999999999 streams");
        check("127.0.0.1x3", "127.0.0.1");
    }

    #[test]
    fn a_backend_may_weigh_more_than_others() {
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
        check("127.0.0.1:9000 weight=0", "with a number from 1 to 65535");
        check("127.0.0.1:9000 weight=65536", "with a number from 1 to 65535");
        check("127.0.0.1:9000 backup weight=2", "127.0.0.1:9000 weight=2 backup");
        check("127.0.0.1:9000 down", "says `down`; write `backup`");
        check("weight=3", "weight=3");
    }
}
