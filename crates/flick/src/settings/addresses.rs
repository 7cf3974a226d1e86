//! Addresses of a channel: `127.0.0.1:9000`, and for the array that a process merges `127.0.0.1:9000x8`, which stands
//! for eight streams that come to one address.

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_net::Endpoint;

use crate::sources::Source;

/// What a channel is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Its name.
    pub channel: String,
    /// The elements of the array in order; none yet where there is a source.
    pub endpoints: Vec<Endpoint>,
    /// Where the list comes from, if it may change.
    pub source: Option<Source>,
}

impl Connect {
    /// Of these addresses, or of one source.
    ///
    /// Errors: a source stands beside something else.
    pub fn new(channel: String, list: &[Part]) -> Result<Self, String> {
        let mut endpoints = Vec::new();
        for part in list {
            match part {
                Part::Addresses(addresses) => endpoints.extend(addresses.iter().cloned()),
                Part::Source(source) if list.len() == 1 => {
                    return Ok(Self { channel, endpoints, source: Some(source.clone()) });
                }
                Part::Source(source) => {
                    return Err(format!(
                        "`{source}` is the whole list of `{channel}`; write nothing beside it"
                    ));
                }
            }
        }
        Ok(Self { channel, endpoints, source: None })
    }
}

/// A part of what a channel is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Addresses.
    Addresses(Vec<Endpoint>),
    /// The whole list, from elsewhere.
    Source(Source),
}

impl Part {
    /// Errors: what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Source::parse(text) {
            Some(source) => source.map(Self::Source),
            None => parse(text).map(Self::Addresses),
        }
    }
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
    use super::parse;

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
}
