//! Backends as text, in `--connect`, in `flick.toml` and in the file of a backend list.
//!
//! | text | meaning |
//! |---|---|
//! | `127.0.0.1:9000` | one element |
//! | `127.0.0.1:9000 weight=3` | a backend with three times the share of the others |
//! | `127.0.0.1:9000 backup` | a backend used only while all others are down |
//! | `127.0.0.1:9000 drain` | a backend that gets no request without a key; `maint`: none at all |
//! | `127.0.0.1:9000x8` | eight streams to one address, for a process that merges |

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_net::Endpoint;
use flick_runtime::limits::WEIGHT_MAX;
use flick_runtime::{BackendAddress, BackendMode};

/// Parses a backend: an address, its weight, and whether it is a backup.
///
/// Errors: what is wrong, and what is allowed.
pub fn parse_backends(text: &str) -> Result<Vec<BackendAddress>, String> {
    let mut words = text.split_ascii_whitespace();
    let endpoints = parse_endpoints(words.next().unwrap_or_default())?;
    if endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Tcp(at) if at.port() == 0)) {
        return Err(format!(
            "`{text}` has port 0, at which no server listens; write the port of the backend"
        ));
    }
    let (mut weight, mut rank, mut mode) = (1, 0, BackendMode::Ready);
    for word in words {
        if word == "backup" {
            rank = 1;
            continue;
        }
        if let Ok(named) = word.parse() {
            mode = named;
            continue;
        }
        let number = word.strip_prefix("weight=").and_then(|number| number.parse().ok());
        weight = number.filter(|weight| (1..=WEIGHT_MAX).contains(weight)).ok_or_else(|| {
            if parse_endpoints(word).is_ok() {
                return format!(
                    "`{text}` has two addresses; each is an item of the list (`A,B`), or a line of the file"
                );
            }
            format!(
                "`{text}` has an unknown parameter `{word}`; the parameters are `backup`, `drain`, `maint` and `weight=N`, N from 1 to {WEIGHT_MAX}"
            )
        })?;
    }
    Ok(endpoints
        .into_iter()
        .map(|endpoint| BackendAddress::weighing(endpoint, weight).ranking(rank).in_mode(mode))
        .collect())
}

/// Parses an address, repeated for each stream it stands for.
///
/// Errors: what is wrong, and what is allowed.
pub fn parse_endpoints(text: &str) -> Result<Vec<Endpoint>, String> {
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

/// Checks that an address can be one of a running service.
///
/// Errors: descriptors are opened at the start only.
pub fn check_changeable(endpoint: &Endpoint) -> Result<(), String> {
    match endpoint {
        Endpoint::Descriptor(at) => Err(format!(
            "`{at}` is a descriptor, which a service opens at its start only; write an address such as `127.0.0.1:8080`"
        )),
        Endpoint::Tcp(_) | Endpoint::Unix(_) | Endpoint::Shm(_) => Ok(()),
    }
}

/// Splits off the number of streams. Not of a path or name, which may end in `x8` itself: repeat such an address
/// instead.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('x') {
        Some((address, count))
            if !["unix:", "pipe:", "shm:"].iter().any(|kind| text.starts_with(kind)) && !count.is_empty() =>
        {
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
    use super::{parse_backends, parse_endpoints};

    fn check(text: &str, expected: &str) {
        let shown = match parse_endpoints(text) {
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
        check("shm:cachex8", "shm:cachex8");
        check("127.0.0.1:9000x0", "the range is 1 to 1024");
        check("127.0.0.1:9000x99999999999999999999", "asks for 99999999999999999999 streams");
        check("127.0.0.1x3", "127.0.0.1");
    }

    #[test]
    fn backend_with_weight_and_backup() {
        let check = |text: &str, expected: &str| {
            let shown = match parse_backends(text) {
                Ok(backends) => backends.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
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
        check("127.0.0.1:9000 drain", "127.0.0.1:9000 drain");
        check("127.0.0.1:9000 maint weight=2", "127.0.0.1:9000 weight=2 maint");
        check("127.0.0.1:0", "`127.0.0.1:0` has port 0, at which no server listens");
        check("127.0.0.1:9000 down", "unknown parameter `down`; the parameters are `backup`");
        check("127.0.0.1:9000 127.0.0.1:9001", "has two addresses; each is an item of the list");
        check("weight=3", "weight=3");
    }
}
