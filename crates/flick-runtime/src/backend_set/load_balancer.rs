//! Load-balancing policies: how `ketama(...)`, `round_robin(...)` and the others pick an element of an array of
//! channels.
//! Promises: a pick is bounded by the length of the array and allocates nothing; with a key, the same key and the same
//! list of addresses and weights give the same element in every process and release; round robin keeps weights exactly,
//! not on average.
//! Refuses: another element when the one picked by a key is down; that is the program's choice. Backup backends have no
//! keys.
//! Source: nginx's smooth weighted round robin, and its `least_conn`.

mod ketama;
mod rendezvous;

pub use ketama::KetamaRing;

use std::cmp::Ordering;
use std::ops::Range;

use flick_abi::Policy;

use crate::config::BackendAddress;
use rendezvous::RendezvousNames;

/// Whether picks without a key may choose an element; the better standing is the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// They may.
    Healthy,
    /// They may if there is none that is healthy: it can be reached, but has failed lately.
    LastResort,
    /// They may if there is no other.
    Down,
}

/// State of the elements of the channels, as the worker that runs a rule sees it. Channels are indices in
/// `Program::channels`; an element may lie outside its array.
pub trait Backends {
    /// Whether it is up or was never tried; `false` outside the array.
    fn is_alive(&self, channel: u32, element: u64) -> bool;
    /// Whether picks without a key may choose it.
    fn standing(&self, channel: u32, element: u64) -> Standing {
        if self.is_alive(channel, element) { Standing::Healthy } else { Standing::Down }
    }
    /// Requests in flight to it from this worker; 0 outside the array.
    fn load(&self, channel: u32, element: u64) -> i64;
    /// Part of its weight for picks without a key, in thousandths: below 1000 during its slow start.
    fn share_per_mille(&self, channel: u32, element: u64) -> u64 {
        let _ = (channel, element);
        1000
    }
    /// Its address, or that of the client whose rule runs.
    fn peer(&self, channel: u32, element: u64) -> [u8; 18];
}

/// No backends at all.
impl Backends for () {
    fn is_alive(&self, _channel: u32, _element: u64) -> bool {
        false
    }
    fn load(&self, _channel: u32, _element: u64) -> i64 {
        0
    }
    fn peer(&self, _channel: u32, _element: u64) -> [u8; 18] {
        [0; 18]
    }
}

/// Load-balancing tables of all channels; the same for all workers.
#[derive(Debug, Default)]
pub struct LoadBalancer {
    channels: Vec<ChannelBalancer>,
}

#[derive(Debug)]
struct ChannelBalancer {
    len: u64,
    /// By rank: where its elements end.
    ends: Vec<u64>,
    ring: KetamaRing,
    names: RendezvousNames,
    /// By element, and one behind the last: the weights of those before it.
    sums: Vec<u64>,
    /// All weights are the same.
    is_even: bool,
}

/// Load-balancing state of one worker, kept between picks.
#[derive(Debug)]
pub struct BalancerState {
    /// By channel: the element that round robin looks at next.
    next: Vec<u64>,
    /// By channel and element: how far it is behind its share.
    credits: Vec<Vec<i64>>,
    worker: u64,
}

impl LoadBalancer {
    /// `channels`: for each channel of the program its elements; none for one that does not connect.
    pub fn new(channels: &[Vec<BackendAddress>]) -> Self {
        Self { channels: channels.iter().map(|members| ChannelBalancer::new(members)).collect() }
    }

    /// The load-balancing state of one worker. Workers begin at different elements.
    pub fn balancer_state(&self, worker: usize) -> BalancerState {
        let mut balancer_state =
            BalancerState { next: Vec::new(), credits: Vec::new(), worker: worker as u64 };
        self.begin(&mut balancer_state);
        balancer_state
    }

    /// Resets the state of a worker, since lists have changed.
    pub fn begin(&self, balancer_state: &mut BalancerState) {
        balancer_state.next.resize(self.channels.len(), balancer_state.worker);
        balancer_state.credits.resize_with(self.channels.len(), Vec::new);
        for (credits, channel) in balancer_state.credits.iter_mut().zip(&self.channels) {
            credits.clear();
            credits.resize(channel.len as usize, 0);
        }
    }

    /// Picks an element of `channel`; 0 when it has none.
    ///
    /// `backends` tell about elements; `random` gives a number each time.
    pub fn pick<B: Backends + ?Sized>(
        &self,
        balancer_state: &mut BalancerState,
        policy: Policy,
        channel: u32,
        key: &[u8],
        backends: &B,
        mut random: impl FnMut() -> u64,
    ) -> u64 {
        let index = channel as usize;
        let Some(balancer) = self.channels.get(index).filter(|balancer| balancer.len > 1) else { return 0 };
        match policy {
            Policy::Ketama => return balancer.ring.pick(key),
            Policy::Rendezvous => return balancer.names.pick(key),
            _ => {}
        }
        let around = Candidates::of(balancer, channel, backends);
        if around.tier.end - around.tier.start == 1 {
            return around.tier.start;
        }
        let (next, credits) = (&mut balancer_state.next[index], &mut balancer_state.credits[index]);
        match policy {
            Policy::RoundRobin if balancer.is_even => around.next_one(next, random),
            Policy::RoundRobin => {
                around.furthest_behind(credits, *next, |element| around.takes_part(element))
            }
            Policy::LeastLoaded => {
                let all = around.tier.clone().filter(|element| around.takes_part(*element));
                let least = all.min_by(|one, other| around.loads(*one, *other)).unwrap_or(around.tier.start);
                // Where loads are equal the turn decides, or a quiet service would use its first element only.
                around.furthest_behind(credits, *next, |element| {
                    around.takes_part(element) && around.loads(element, least) == Ordering::Equal
                })
            }
            Policy::TwoChoices => around.better_of_two(&mut random),
            Policy::Ketama | Policy::Rendezvous => panic!("what a key decides has been decided"),
        }
    }
}

/// The elements of a channel as they are at the moment of a pick.
struct Candidates<'a, B: ?Sized> {
    balancer: &'a ChannelBalancer,
    channel: u32,
    backends: &'a B,
    /// Those of the first rank that has one of that standing.
    tier: Range<u64>,
    /// The best standing that one of them has.
    standing: Standing,
}

impl<'a, B: Backends + ?Sized> Candidates<'a, B> {
    fn of(balancer: &'a ChannelBalancer, channel: u32, backends: &'a B) -> Self {
        let starts = std::iter::once(0).chain(balancer.ends.iter().copied());
        let tiers = starts.zip(&balancer.ends).map(|(start, end)| start..*end);
        let has = |standing| {
            move |tier: &Range<u64>| {
                tier.clone().any(|element| backends.standing(channel, element) == standing)
            }
        };
        let found = [Standing::Healthy, Standing::LastResort]
            .into_iter()
            .find_map(|standing| Some((tiers.clone().find(has(standing))?, standing)));
        let (tier, standing) = found.unwrap_or((0..balancer.ends[0], Standing::Down));
        Self { balancer, channel, backends, tier, standing }
    }

    /// All of them, from that one of them on and around.
    fn from(&self, nth: u64) -> impl Iterator<Item = u64> + use<B> {
        let Range { start, end } = self.tier.clone();
        let first = start + nth % (end - start);
        (first..end).chain(start..first)
    }

    /// Whether an element has the best standing.
    fn takes_part(&self, element: u64) -> bool {
        self.backends.standing(self.channel, element) == self.standing
    }

    fn share_per_mille(&self, element: u64) -> u64 {
        self.backends.share_per_mille(self.channel, element).max(1)
    }

    /// Its weight of the moment: less than all of it while it has just come back.
    fn weight(&self, element: u64) -> u64 {
        self.balancer.weight(element) * self.share_per_mille(element)
    }

    /// Compares two loads, each by the weight of its element, exactly.
    fn loads(&self, one: u64, other: u64) -> Ordering {
        let scaled = |element, by| {
            let load = self.backends.load(self.channel, element).max(0);
            u128::from(load.unsigned_abs()) * u128::from(self.weight(by))
        };
        scaled(one, other).cmp(&scaled(other, one))
    }

    /// Whether one that has just come back takes its turn.
    fn takes(&self, element: u64, random: &mut impl FnMut() -> u64) -> bool {
        let share = self.share_per_mille(element);
        share == 1000 || scale(random(), 1000) < share
    }

    /// The next one that takes part.
    fn next_one(&self, next: &mut u64, mut random: impl FnMut() -> u64) -> u64 {
        let mut alive_ones = self.from(*next).filter(|element| self.takes_part(*element));
        let (start, len) = (self.tier.start, self.tier.end - self.tier.start);
        let one = alive_ones.next().unwrap_or(start + *next % len);
        let picked = if self.takes(one, &mut random) {
            one
        } else {
            alive_ones.find(|element| self.takes(*element, &mut random)).unwrap_or(one)
        };
        *next = picked - start + 1;
        picked
    }

    /// Of some elements the one that is furthest behind its share of the balancer_state that they had together.
    fn furthest_behind(&self, credits: &mut [i64], first: u64, is_one: impl Fn(u64) -> bool) -> u64 {
        let (mut best, mut sum) = (None, 0);
        for element in self.from(first).filter(|element| is_one(*element)) {
            let weight = self.weight(element).cast_signed();
            let credit = &mut credits[element as usize];
            *credit += weight;
            sum += weight;
            if best.is_none_or(|(most, _)| *credit > most) {
                best = Some((*credit, element));
            }
        }
        let Some((_, picked)) = best else { return self.tier.start };
        credits[picked as usize] -= sum;
        picked
    }

    /// Two different ones are drawn by their weights: the less loaded of them.
    fn better_of_two(&self, random: &mut impl FnMut() -> u64) -> u64 {
        let balancer = self.balancer;
        let before = balancer.sums[self.tier.start as usize];
        let sum = balancer.sums[self.tier.end as usize] - before;
        let one = balancer.at(before + scale(random(), sum));
        let rest = before + scale(random(), sum - balancer.weight(one));
        let skipped = if rest >= balancer.sums[one as usize] { balancer.weight(one) } else { 0 };
        let other = balancer.at(rest + skipped);
        match (self.takes_part(one), self.takes_part(other)) {
            (true, true) => {}
            (false, true) => return other,
            (true, false) => return one,
            // Others may be alive: those drawn may be drained, say.
            (false, false) => {
                let start = self.tier.start;
                return self.from(one - start).find(|element| self.takes_part(*element)).unwrap_or(one);
            }
        }
        let (better, worse) =
            if self.loads(other, one) == Ordering::Less { (other, one) } else { (one, other) };
        if self.takes(better, random) { better } else { worse }
    }
}

/// A number below `len`, from one out of all.
fn scale(random: u64, len: u64) -> u64 {
    ((u128::from(random) * u128::from(len)) >> 64) as u64
}

impl ChannelBalancer {
    fn new(members: &[BackendAddress]) -> Self {
        let mut sums = vec![0];
        for member in members {
            sums.push(sums[sums.len() - 1] + u64::from(member.weight));
        }
        let ends = members.windows(2).enumerate().filter(|(_, two)| two[0].rank != two[1].rank);
        let ends: Vec<u64> = ends.map(|(at, _)| at as u64 + 1).chain([members.len() as u64]).collect();
        let array = &members[..ends[0] as usize];
        Self {
            len: members.len() as u64,
            ring: KetamaRing::new(array),
            names: RendezvousNames::new(array),
            ends,
            sums,
            is_even: members.windows(2).all(|two| two[0].weight == two[1].weight),
        }
    }

    fn weight(&self, element: u64) -> u64 {
        self.sums[element as usize + 1] - self.sums[element as usize]
    }

    /// The element that has a point, where each has as many as it weighs.
    fn at(&self, point: u64) -> u64 {
        self.sums.partition_point(|sum| *sum <= point) as u64 - 1
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
    use flick_net::Endpoint;

    use super::*;

    fn balancer(count: usize) -> LoadBalancer {
        weighing(&vec![1; count])
    }

    fn weighing(weights: &[u32]) -> LoadBalancer {
        let at = |n: usize| Endpoint::Tcp(([10, 0, 0, 1], 9_000 + n as u16).into());
        let members = weights.iter().enumerate().map(|(n, weight)| BackendAddress::weighing(at(n), *weight));
        LoadBalancer::new(&[Vec::new(), members.collect()])
    }

    /// Numbers that look like chance.
    fn draws() -> impl FnMut() -> u64 {
        let mut random = 1;
        move || {
            random = mix(random + 1);
            random
        }
    }

    /// Element `n` is alive where `alive[n]` says so, and has load `loads[n]`.
    struct Fixed {
        loads: [i64; 4],
        alive: [bool; 4],
        shares: [u64; 4],
    }

    impl Backends for Fixed {
        fn is_alive(&self, _channel: u32, element: u64) -> bool {
            self.alive[element as usize]
        }
        fn load(&self, _channel: u32, element: u64) -> i64 {
            self.loads[element as usize]
        }
        fn share_per_mille(&self, _channel: u32, element: u64) -> u64 {
            self.shares[element as usize]
        }
        fn peer(&self, _channel: u32, _element: u64) -> [u8; 18] {
            [0; 18]
        }
    }

    /// Picks as often as something is expected, with a policy without key.
    fn check(policy: Policy, loads: [i64; 4], alive: [bool; 4], expected: &[u64]) {
        let (balancer, seen) = (balancer(4), Fixed { loads, alive, shares: [1000; 4] });
        let mut balancer_state = balancer.balancer_state(0);
        let mut pick = || balancer.pick(&mut balancer_state, policy, 1, b"", &seen, || 0);
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

    /// Returns how often each of four elements is picked.
    fn counts(weights: &[u32; 4], policy: Policy, picks: u32, seen: &Fixed) -> [u32; 4] {
        let balancer = weighing(weights);
        let (mut balancer_state, mut draw, mut counts) = (balancer.balancer_state(0), draws(), [0; 4]);
        for _ in 0..picks {
            counts[balancer.pick(&mut balancer_state, policy, 1, b"", seen, &mut draw) as usize] += 1;
        }
        counts
    }

    /// All four at rest.
    const IDLE: Fixed = Fixed { loads: [0; 4], alive: [true; 4], shares: [1000; 4] };

    #[test]
    fn round_robin_interleaves_picks_by_weight() {
        let order = |weights: &[u32], policy| {
            let (balancer, mut draw) = (weighing(weights), draws());
            let mut balancer_state = balancer.balancer_state(0);
            let mut pick = || balancer.pick(&mut balancer_state, policy, 1, b"", &IDLE, &mut draw);
            (0..weights.iter().sum()).map(|_| pick()).collect::<Vec<u64>>()
        };
        for policy in [Policy::RoundRobin, Policy::LeastLoaded] {
            assert_eq!(order(&[5, 1, 1], policy), [0, 0, 1, 0, 2, 0, 0], "{policy:?}, as nginx does it");
            assert_eq!(order(&[1, 2, 3, 4], policy).len(), 10);
        }
    }

    #[test]
    fn those_that_stand_in_get_something_only_while_all_before_them_are_down() {
        let at = |n: u16| Endpoint::Tcp(([10, 0, 0, 1], 9_000 + n).into());
        let members: Vec<BackendAddress> = [0, 0, 1, 2]
            .iter()
            .zip(0..)
            .map(|(rank, n)| BackendAddress::from(at(n)).ranking(*rank))
            .collect();
        let balancer = LoadBalancer::new(&[Vec::new(), members]);
        let mut draw = draws();
        for policy in [Policy::RoundRobin, Policy::LeastLoaded, Policy::TwoChoices] {
            let mut balancer_state = balancer.balancer_state(0);
            let mut picked = |alive: [bool; 4]| {
                let seen = Fixed { alive, ..IDLE };
                let picks =
                    (0..8).map(|_| balancer.pick(&mut balancer_state, policy, 1, b"", &seen, &mut draw));
                picks.collect::<std::collections::BTreeSet<u64>>().into_iter().collect::<Vec<u64>>()
            };
            assert_eq!(picked([true; 4]), [0, 1], "{policy:?}");
            assert_eq!(picked([false, true, true, true]), [1], "{policy:?}");
            assert_eq!(picked([false, false, true, true]), [2], "{policy:?}");
            assert_eq!(picked([false, false, false, true]), [3], "{policy:?}");
            assert_eq!(picked([false; 4]), [0, 1], "{policy:?}");
        }
        for policy in [Policy::Ketama, Policy::Rendezvous] {
            assert!(
                (0..1_000).all(|key| by_key(&balancer, policy, key) < 2),
                "{policy:?}: no keys for others"
            );
        }
    }

    #[test]
    fn picks_are_counted_by_weight() {
        for policy in [Policy::RoundRobin, Policy::LeastLoaded] {
            assert_eq!(counts(&[1, 2, 3, 4], policy, 1_000, &IDLE), [100, 200, 300, 400], "{policy:?}");
            assert_eq!(counts(&[7, 1, 1, 1], policy, 50, &IDLE), [35, 5, 5, 5], "{policy:?}");
            let dead = Fixed { alive: [true, true, false, true], ..IDLE };
            assert_eq!(counts(&[1, 2, 3, 4], policy, 700, &dead), [100, 200, 0, 400], "{policy:?}");
            let cold = Fixed { shares: [1000, 1000, 500, 1000], ..IDLE };
            assert_eq!(counts(&[1, 2, 4, 3], policy, 800, &cold), [100, 200, 200, 300], "{policy:?}");
            let none = Fixed { alive: [false; 4], ..IDLE };
            assert_eq!(counts(&[1, 2, 3, 4], policy, 100, &none), [10, 20, 30, 40], "{policy:?}");
        }
        let chance = counts(&[1, 2, 3, 4], Policy::TwoChoices, 100_000, &IDLE);
        for (had, weight) in chance.iter().zip([1, 2, 3, 4]) {
            assert!((weight * 9_700..weight * 10_300).contains(had), "{chance:?}");
        }
        let cold = Fixed { shares: [1000, 1000, 500, 1000], ..IDLE };
        let chance = counts(&[1; 4], Policy::TwoChoices, 100_000, &cold);
        assert!((12_000..13_000).contains(&chance[2]), "half of its share: {chance:?}");
    }

    #[test]
    fn loads_are_compared_by_weight() {
        let seen = Fixed { loads: [2, 5, 4, 9], ..IDLE };
        let least = counts(&[1, 3, 2, 4], Policy::LeastLoaded, 10, &seen);
        assert_eq!(least, [0, 10, 0, 0], "five thirds are less than two");
        let seen = Fixed { loads: [2, 6, 4, 8], ..IDLE };
        assert_eq!(counts(&[1, 3, 2, 4], Policy::LeastLoaded, 100, &seen), [10, 30, 20, 40], "all the same");
        let seen = Fixed { loads: [3, 0, 0, 0], alive: [true, true, false, false], ..IDLE };
        let two = counts(&[100, 1, 1, 1], Policy::TwoChoices, 1_000, &seen);
        assert_eq!((two[2], two[3]), (0, 0), "the dead get nothing beside the living: {two:?}");
    }

    #[test]
    fn keys_are_spread_by_weight_and_move_only_to_one_that_weighs_more() {
        let spread = |weights: &[u32], policy| {
            let balancer = weighing(weights);
            let mut counts = vec![0; weights.len()];
            (0..20_000).for_each(|key| counts[by_key(&balancer, policy, key) as usize] += 1);
            counts
        };
        let rendezvous = spread(&[1, 2, 3, 4], Policy::Rendezvous);
        for (had, weight) in rendezvous.iter().zip([1, 2, 3, 4]) {
            assert!((weight * 1_900..weight * 2_100).contains(had), "{rendezvous:?}");
        }
        let ketama = spread(&[1, 2, 3, 4], Policy::Ketama);
        assert!(ketama.windows(2).all(|two| two[0] < two[1]), "{ketama:?}");
        let (even, heavier) = (weighing(&[1; 4]), weighing(&[1, 1, 2, 1]));
        let mut moved = 0;
        for key in 0..10_000 {
            let (before, after) =
                (by_key(&even, Policy::Rendezvous, key), by_key(&heavier, Policy::Rendezvous, key));
            assert!(before == after || after == 2, "key {key} went from {before} to {after}");
            moved += u32::from(before != after);
        }
        assert!((1_300..1_700).contains(&moved), "a fourth becomes two fifths: {moved}");
    }

    #[test]
    fn weighted_rendezvous_never_changes_between_releases() {
        let picked: Vec<u64> =
            (0..12).map(|key| by_key(&weighing(&[1, 2, 3, 4, 5]), Policy::Rendezvous, key)).collect();
        assert_eq!(picked, [2, 4, 3, 4, 4, 1, 3, 3, 2, 3, 1, 1]);
    }

    #[test]
    fn two_choices_avoid_the_most_loaded() {
        let seen = Fixed { loads: [0, 1, 2, 3], alive: [true; 4], shares: [1000; 4] };
        let counts = counts(&[1; 4], Policy::TwoChoices, 4_000, &seen);
        assert_eq!(
            counts[3], 0,
            "two different elements are drawn, so the most loaded never wins: {counts:?}"
        );
        assert!(counts[0] > 1_700 && counts[1] > 1_000 && counts[2] > 400, "{counts:?}");
    }

    fn by_key(balancer: &LoadBalancer, policy: Policy, key: u32) -> u64 {
        let mut balancer_state = balancer.balancer_state(0);
        balancer.pick(&mut balancer_state, policy, 1, &key.to_le_bytes(), &(), || 0)
    }

    #[test]
    fn a_key_moves_only_to_an_element_that_is_new() {
        for policy in [Policy::Rendezvous, Policy::Ketama] {
            let (four, five) = (balancer(4), balancer(5));
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
        let picked: Vec<u64> = (0..12).map(|key| by_key(&balancer(5), Policy::Rendezvous, key)).collect();
        assert_eq!(picked, [2, 0, 3, 4, 4, 1, 1, 3, 2, 3, 1, 1]);
    }

    #[test]
    fn an_array_without_a_choice() {
        assert_eq!(by_key(&balancer(0), Policy::Ketama, 3), 0);
        assert_eq!(by_key(&balancer(1), Policy::Rendezvous, 3), 0);
    }
}
