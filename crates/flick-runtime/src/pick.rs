//! How an element of an array of channels is picked: the policies behind `ketama(...)`, `round_robin(...)` and so on.
//! Promises: bounded by the array's length, no allocation; where a key decides, the same key and the same list of
//! addresses give the same element in every process and release.
//! Refuses: trying another element when the picked one is down, where a key decides: that is the program's choice.

mod ketama;

pub use ketama::Ring;

use flick_abi::Policy;
use flick_abi::hash::hash;
use flick_net::Endpoint;

use crate::host::Backends;

/// What picks are made of; the same for all workers.
#[derive(Debug, Default)]
pub struct Places {
    channels: Vec<Channel>,
}

#[derive(Debug)]
struct Channel {
    len: u64,
    ring: Ring,
    /// By element: hash of its address.
    names: Vec<u64>,
}

/// What one worker remembers between picks.
#[derive(Debug)]
pub struct Turns {
    /// By channel: the element that round robin looks at next.
    next: Vec<u64>,
}

impl Places {
    /// `channels`: for each channel of the program the addresses of its elements; none for one that is not dialled.
    pub fn new(channels: &[Vec<Endpoint>]) -> Self {
        let channel = |endpoints: &Vec<Endpoint>| Channel {
            len: endpoints.len() as u64,
            ring: Ring::new(endpoints),
            names: endpoints.iter().map(|endpoint| hash(endpoint.to_string().as_bytes())).collect(),
        };
        Self { channels: channels.iter().map(channel).collect() }
    }

    /// The turns of one worker. Workers begin at different elements.
    pub fn turns(&self, worker: usize) -> Turns {
        Turns { next: vec![worker as u64; self.channels.len()] }
    }

    /// Picks an element of `channel`; 0 when it has none.
    ///
    /// `backends` tell about elements; `random` gives a number each time.
    pub fn pick<B: Backends + ?Sized>(
        &self,
        turns: &mut Turns,
        policy: Policy,
        channel: u32,
        key: &[u8],
        backends: &B,
        mut random: impl FnMut() -> u64,
    ) -> u64 {
        let index = channel as usize;
        let Some(places) = self.channels.get(index) else { return 0 };
        let len = places.len;
        if len <= 1 {
            return 0;
        }
        let alive = |element| backends.is_alive(channel, element);
        let share = |element| backends.share_per_mille(channel, element).max(1) as i64;
        // One with a tenth of its share counts as if it had ten times as many requests, and one more.
        let load = |element| match share(element) {
            1000 => backends.load(channel, element),
            share => (backends.load(channel, element) + 1) * 1000 / share,
        };
        match policy {
            Policy::Ketama => places.ring.pick(key),
            Policy::Rendezvous => places.rendezvous(key),
            Policy::RoundRobin => {
                let first = turns.next[index] % len;
                let mut takes =
                    |element| share(element) == 1000 || scale(random(), 1000) < share(element) as u64;
                let mut alive_ones = from(first, len).filter(|element| alive(*element));
                let next = alive_ones.next().unwrap_or(first);
                let picked = if takes(next) {
                    next
                } else {
                    alive_ones.find(|element| takes(*element)).unwrap_or(next)
                };
                turns.next[index] = picked + 1;
                picked
            }
            Policy::LeastLoaded => {
                // Where loads are equal the turn decides, or a quiet service would use its first element only.
                let first = turns.next[index] % len;
                let picked = from(first, len)
                    .min_by_key(|element| (!alive(*element), load(*element)))
                    .unwrap_or(first);
                turns.next[index] = picked + 1;
                picked
            }
            Policy::TwoChoices => {
                let one = scale(random(), len);
                let other = (one + 1 + scale(random(), len - 1)) % len;
                let cost = |element: u64| (!alive(element), load(element));
                if cost(other) < cost(one) { other } else { one }
            }
        }
    }
}

/// All elements, from `first` on and around.
fn from(first: u64, len: u64) -> impl Iterator<Item = u64> {
    (first..len).chain(0..first)
}

/// A number below `len`, from one out of all.
fn scale(random: u64, len: u64) -> u64 {
    ((u128::from(random) * u128::from(len)) >> 64) as u64
}

impl Channel {
    /// The element whose address and the key together give the highest number. Frozen, as `hash` of the language is.
    fn rendezvous(&self, key: &[u8]) -> u64 {
        let key = hash(key);
        let weight = |(element, name): (usize, &u64)| (mix(key ^ name), std::cmp::Reverse(element));
        let best = self.names.iter().enumerate().map(weight).max();
        best.map_or(0, |(_, std::cmp::Reverse(element))| element as u64)
    }
}

/// Spreads what two hashes differ in over all bits: the finalizer of SplitMix64.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: u16) -> Places {
        let endpoints =
            (0..count).map(|n| Endpoint::Tcp(([10, 0, 0, 1], 9_000 + n).into())).collect::<Vec<_>>();
        Places::new(&[Vec::new(), endpoints])
    }

    /// Element `n` is alive where `alive[n]` says so, and has load `loads[n]`.
    struct Seen {
        loads: [i64; 4],
        alive: [bool; 4],
    }

    impl Backends for Seen {
        fn is_alive(&self, _channel: u32, element: u64) -> bool {
            self.alive[element as usize]
        }
        fn load(&self, _channel: u32, element: u64) -> i64 {
            self.loads[element as usize]
        }
        fn peer(&self, _channel: u32, _element: u64) -> [u8; 18] {
            [0; 18]
        }
    }

    /// Picks as often as something is expected, with a policy without key.
    fn check(policy: Policy, loads: [i64; 4], alive: [bool; 4], expected: &[u64]) {
        let (places, seen) = (places(4), Seen { loads, alive });
        let mut turns = places.turns(0);
        let mut pick = || places.pick(&mut turns, policy, 1, b"", &seen, || 0);
        let picked: Vec<u64> = expected.iter().map(|_| pick()).collect();
        assert_eq!(picked, expected, "{policy:?}, loads {loads:?}, alive {alive:?}");
    }

    #[test]
    fn policies_without_a_key() {
        let (all, none) = ([true; 4], [false; 4]);
        check(Policy::RoundRobin, [0; 4], all, &[0, 1, 2, 3, 0, 1]);
        check(Policy::RoundRobin, [0; 4], [true, false, true, false], &[0, 2, 0, 2]);
        check(Policy::RoundRobin, [0; 4], none, &[0, 1, 2, 3, 0]);
        check(Policy::LeastLoaded, [5, 2, 2, 9], all, &[1, 2, 1, 2]);
        check(Policy::LeastLoaded, [5, 2, 2, 9], [true, false, false, true], &[0, 0]);
        check(Policy::LeastLoaded, [0; 4], none, &[0, 1, 2, 3]);
    }

    #[test]
    fn two_choices_avoid_the_most_loaded() {
        let (places, seen) = (places(4), Seen { loads: [0, 1, 2, 3], alive: [true; 4] });
        let mut turns = places.turns(0);
        let (mut random, mut counts) = (1, [0; 4]);
        for _ in 0..4_000 {
            let draw = || {
                random = mix(random + 1);
                random
            };
            let picked = places.pick(&mut turns, Policy::TwoChoices, 1, b"", &seen, draw);
            counts[picked as usize] += 1;
        }
        assert_eq!(
            counts[3], 0,
            "two different elements are drawn, so the most loaded never wins: {counts:?}"
        );
        assert!(counts[0] > 1_700 && counts[1] > 1_000 && counts[2] > 400, "{counts:?}");
    }

    fn by_key(places: &Places, policy: Policy, key: u32) -> u64 {
        let mut turns = places.turns(0);
        places.pick(&mut turns, policy, 1, &key.to_le_bytes(), &(), || 0)
    }

    #[test]
    fn a_key_moves_only_to_an_element_that_is_new() {
        for policy in [Policy::Rendezvous, Policy::Ketama] {
            let (four, five) = (places(4), places(5));
            let mut moved = 0;
            for key in 0..10_000 {
                let (before, after) = (by_key(&four, policy, key), by_key(&five, policy, key));
                assert!(before == after || after == 4, "{policy:?}: key {key} went from {before} to {after}");
                moved += u32::from(before != after);
            }
            assert!((1_000..3_000).contains(&moved), "{policy:?}: {moved} of 10,000 keys moved");
        }
    }

    #[test]
    fn rendezvous_never_changes_between_releases() {
        let picked: Vec<u64> = (0..12).map(|key| by_key(&places(5), Policy::Rendezvous, key)).collect();
        assert_eq!(picked, [2, 0, 3, 4, 4, 1, 1, 3, 2, 3, 1, 1]);
    }

    #[test]
    fn an_array_without_a_choice() {
        assert_eq!(by_key(&places(0), Policy::Ketama, 3), 0);
        assert_eq!(by_key(&places(1), Policy::Rendezvous, 3), 0);
    }
}
