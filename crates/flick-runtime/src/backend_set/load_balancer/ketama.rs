//! Consistent hashing on a ring, with the points that twemproxy 0.5 has for `distribution: ketama`, `hash: fnv1a_64`
//! and servers without names.
//! Promises: a service can be moved from twemproxy to flick, or back, and every key keeps its backend, whatever the
//! weights.
//! Refuses: names of hosts: a ring is built from addresses.
//! Source: libketama as twemproxy describes and runs it; compared with the program itself in `tests/twemproxy.rs`.

use flick_net::Endpoint;
use md5::{Digest, Md5};

use crate::config::BackendAddress;

/// Points of one element on the ring, where nothing is rounded away.
const POINTS_PER_ELEMENT: u32 = 160;
/// Points that one digest gives.
const POINTS_PER_DIGEST: u32 = 4;
/// The port that is not part of an element's name, as libmemcached has it.
const NAMELESS_PORT: u16 = 11211;
/// Longest name with its number, in bytes; twemproxy truncates longer ones.
const NAME_BYTES_MAX: usize = 85;

/// The ring.
#[derive(Debug, Default)]
pub struct KetamaRing {
    /// Points on the ring in ascending order, each with its element.
    points: Vec<(u32, u32)>,
}

impl KetamaRing {
    /// Points the elements.
    pub fn new(members: &[BackendAddress]) -> Self {
        let sum = members.iter().map(|member| member.weight).sum();
        let mut points = Vec::with_capacity(members.len() * POINTS_PER_ELEMENT as usize);
        for (element, member) in members.iter().enumerate() {
            let name = name_of(&member.endpoint);
            for number in 0..digests_of(member.weight, sum, members.len()) {
                let mut text = format!("{name}-{number}").into_bytes();
                text.truncate(NAME_BYTES_MAX);
                let digest = Md5::digest(&text);
                let (words, _) = digest.as_slice().as_chunks::<4>();
                points.extend(words.iter().map(|word| (u32::from_le_bytes(*word), element as u32)));
            }
        }
        // Stable: of equal points the one of the lower element stays in front.
        points.sort_by_key(|(point, _)| *point);
        Self { points }
    }

    /// The element that the key belongs to: the one of the first point at or behind the key's, around the ring.
    pub fn pick(&self, key: &[u8]) -> u64 {
        let key_point = fnv1a(key);
        let at = self.points.partition_point(|(point, _)| *point < key_point);
        let point = self.points.get(at).or(self.points.first());
        point.map_or(0, |(_, element)| u64::from(*element))
    }
}

/// Digests of an element of this weight among `elements` with a total weight of `sum`. The arithmetic is in single
/// precision, as in twemproxy, which for some counts loses a digest.
fn digests_of(weight: u32, sum: u32, elements: usize) -> u32 {
    let count = elements as f32;
    let share = weight as f32 / sum as f32;
    let digests = share * POINTS_PER_ELEMENT as f32 / POINTS_PER_DIGEST as f32 * count;
    (f64::from(digests) + 0.000_000_000_1) as f32 as u32
}

/// Returns the name of an element on the ring.
fn name_of(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp(address) if address.port() == NAMELESS_PORT => address.ip().to_string(),
        Endpoint::Tcp(address) => format!("{}:{}", address.ip(), address.port()),
        // The colon stood before the weight.
        Endpoint::Unix(path) => format!("{}:", path.display()),
        Endpoint::Shm(name) => format!("shm:{name}:"),
        Endpoint::Descriptor(at) => format!("{at}:"),
    }
}

/// The hash that is called `fnv1a_64` there: 32 bits of state, and bytes above 127 taken as negative numbers, as C does
/// on this kind of machine.
fn fnv1a(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    key.iter().fold(0x8422_2325, |hash: u32, byte| (hash ^ (*byte as i8) as u32).wrapping_mul(0x1b3))
}

#[cfg(test)]
mod tests {
    use super::{KetamaRing, digests_of, fnv1a, name_of};
    use flick_net::Endpoint;

    #[test]
    fn names_are_those_of_twemproxy() {
        for (endpoint, expected) in [
            ("10.0.0.1:11211", "10.0.0.1"),
            ("10.0.0.1:11212", "10.0.0.1:11212"),
            ("[::1]:80", "::1:80"),
            ("unix:/run/a.sock", "/run/a.sock:"),
        ] {
            let endpoint: Endpoint = endpoint.parse().expect("it is an endpoint");
            assert_eq!(name_of(&endpoint), expected);
        }
    }

    #[test]
    fn rounding_loses_digests_for_some_counts() {
        let each = |count: usize| digests_of(1, count as u32, count);
        let rounded: Vec<usize> = (1..=1024).filter(|count| each(*count) != 40).collect();
        assert_eq!(rounded[..5], [25, 47, 50, 55, 61], "tests/twemproxy.rs has lists of 25 and 47");
        assert!(rounded.iter().all(|count| each(*count) == 39));
    }

    #[test]
    fn the_empty_key_has_the_point_zero() {
        assert_eq!(fnv1a(b""), 0);
        assert_eq!(KetamaRing::default().pick(b"x"), 0, "a ring without points picks nothing");
    }
}
