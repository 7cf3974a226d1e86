//! Backend sets: the addresses of the elements of each channel, and changes of them while a service runs.
//! Promises: a list changes as a whole, between two iterations of a worker; no lock is taken unless the list has
//! changed; an address that stays keeps its slot, and with it its connections; what an operator changes of a backend
//! renumbers no element, and moves no key.
//! Refuses: more elements than capacity was made for before the start.

pub mod load_balancer;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flick_net::Endpoint;

use crate::config::{BackendAddress, BackendMode, BackendOverride};
use load_balancer::LoadBalancer;

/// The lists of all channels at one moment.
#[derive(Debug)]
pub struct BackendSet {
    version: u64,
    /// By channel: where its part of `members` begins, and how long it is.
    spans: Vec<(u32, u32)>,
    /// By channel and element: the slot.
    members: Vec<u32>,
    /// By channel: number of elements as rules see it.
    lens: Vec<u64>,
    slots: Vec<Slot>,
    load_balancer: Arc<LoadBalancer>,
}

/// Slot of one backend.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Address of the backend that has the slot, or had it last; `None`: the slot was never used.
    pub endpoint: Option<Endpoint>,
    /// Weight of that backend.
    pub weight: u32,
    /// Rank of that backend.
    pub rank: u16,
    /// Requests that the operator lets that backend have.
    pub mode: BackendMode,
    /// Index of that backend in its list; `None`: it was removed, or the slot was never used.
    pub element: Option<u64>,
    /// Version of the lists in which it was removed.
    left: u64,
}

impl BackendSet {
    /// The slot of an element; `None` outside the list.
    pub fn slot_of(&self, channel: u32, element: u64) -> Option<u32> {
        let (first, count) = *self.spans.get(channel as usize)?;
        (element < u64::from(count)).then(|| self.members[first as usize + element as usize])
    }

    /// By channel: number of elements as rules see it. An empty list counts as one element that is not there.
    pub fn lens(&self) -> &[u64] {
        &self.lens
    }

    /// All slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns the load balancer for these lists.
    pub fn load_balancer(&self) -> &Arc<LoadBalancer> {
        &self.load_balancer
    }

    /// Returns the version of the lists: the number of changes since the start.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The list of a channel.
    pub fn list(&self, channel: usize) -> impl Iterator<Item = BackendAddress> {
        let (first, count) = self.spans.get(channel).copied().unwrap_or_default();
        let members = &self.members[first as usize..(first + count) as usize];
        members.iter().filter_map(|slot| {
            let slot = &self.slots[*slot as usize];
            let endpoint = slot.endpoint.clone()?;
            Some(BackendAddress { endpoint, weight: slot.weight, rank: slot.rank, mode: slot.mode })
        })
    }
}

/// Capacity for the backends of one channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelCapacity {
    /// Its slots.
    pub slots: Range<u32>,
    /// Most elements of a list.
    pub elements_max: u32,
    /// It is no array: exactly one address.
    pub is_single: bool,
}

/// Publisher of the latest backend sets, which the workers read.
#[derive(Debug)]
pub struct BackendSetPublisher {
    version: AtomicU64,
    published: Mutex<Published>,
    /// By channel.
    capacities: Vec<ChannelCapacity>,
}

/// The latest lists, and what they are made of.
#[derive(Debug)]
struct Published {
    latest: Arc<BackendSet>,
    /// By channel: the list that was given, those of the array in front.
    lists: Vec<Vec<BackendAddress>>,
    /// By channel: what an operator has changed.
    overrides: Vec<Vec<BackendOverride>>,
}

impl Published {
    /// The list of a channel with the operator's changes.
    fn changed(&self, channel: usize) -> Vec<BackendAddress> {
        let mut list = self.lists[channel].clone();
        for member in &mut list {
            let change = self.overrides[channel].iter().find(|change| change.backend == member.endpoint);
            change.inspect(|change| change.apply(member));
        }
        list
    }
}

impl BackendSetPublisher {
    /// The first lists and the operator's changes of them, by channel. Panics when there is no capacity for one.
    pub fn new(
        capacities: Vec<ChannelCapacity>,
        lists: Vec<Vec<BackendAddress>>,
        overrides: Vec<Vec<BackendOverride>>,
    ) -> Self {
        let slots = capacities.iter().map(|capacity| capacity.slots.end).max().unwrap_or(0) as usize;
        let mut first = BackendSet {
            version: 0,
            slots: vec![Slot::default(); slots],
            ..BackendSet::empty(capacities.len())
        };
        let lists: Vec<Vec<BackendAddress>> = lists.iter().map(|list| ranked(list)).collect();
        let latest = Arc::new(BackendSet::empty(0));
        let mut published = Published { latest, lists, overrides };
        for (channel, capacity) in capacities.iter().enumerate() {
            let list = published.changed(channel);
            assert!(list.len() <= capacity.slots.len(), "the first list has capacity");
            seat(&mut first.slots, capacity, &list, 0);
        }
        first.number(&capacities, &published);
        published.latest = Arc::new(first);
        Self { version: AtomicU64::new(0), published: Mutex::new(published), capacities }
    }

    /// No channel connects; channels have these lengths.
    pub fn of_lens(lens: Vec<u64>) -> Self {
        let latest = Arc::new(BackendSet { lens, ..BackendSet::empty(0) });
        let published = Published { latest, lists: Vec::new(), overrides: Vec::new() };
        Self { version: AtomicU64::new(0), published: Mutex::new(published), capacities: Vec::new() }
    }

    /// The number of the latest lists.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The latest lists.
    pub fn latest(&self) -> Arc<BackendSet> {
        Arc::clone(&self.published().latest)
    }

    /// The list of a channel that was given, each element with itself as the operator has changed it.
    pub fn listed(&self, channel: usize) -> Vec<(BackendAddress, BackendAddress)> {
        let published = self.published();
        match published.lists.get(channel) {
            Some(list) => list.iter().cloned().zip(published.changed(channel)).collect(),
            None => Vec::new(),
        }
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By channel: its capacity.
    pub fn capacities(&self) -> &[ChannelCapacity] {
        &self.capacities
    }

    /// Gives a channel a new list. Workers apply it at their next iteration. Returns whether anything is new.
    ///
    /// Errors: the list is longer than the capacity of the channel.
    pub fn publish(&self, channel: usize, list: &[BackendAddress]) -> Result<bool, String> {
        let capacity = self.capacities.get(channel).filter(|capacity| !capacity.slots.is_empty());
        let capacity = capacity.ok_or("it is not a channel of backends")?;
        if capacity.is_single && list.len() > 1 {
            return Err(format!("it is a single channel, and {} addresses were given", list.len()));
        }
        if list.len() > capacity.elements_max as usize {
            return Err(format!(
                "{} addresses are too many: there is capacity for {} (`--max-backends`)",
                list.len(),
                capacity.elements_max
            ));
        }
        let list = ranked(list);
        let mut published = self.published();
        if published.lists[channel] == list {
            return Ok(false);
        }
        published.lists[channel] = list;
        self.renew(&mut published, channel);
        Ok(true)
    }

    /// Replaces what an operator has changed of a backend. Returns whether anything is new.
    pub fn change(&self, channel: usize, change: BackendOverride) -> bool {
        let mut published = self.published();
        let Some(overrides) = published.overrides.get_mut(channel) else { return false };
        let before = overrides.clone();
        overrides.retain(|known| known.backend != change.backend);
        if !change.is_none() {
            overrides.push(change);
        }
        let is_new = *overrides != before;
        if is_new {
            self.renew(&mut published, channel);
        }
        is_new
    }

    /// Makes and publishes the next set, in which the list of a channel is new.
    fn renew(&self, published: &mut Published, channel: usize) {
        let version = published.latest.version + 1;
        let mut slots = published.latest.slots.clone();
        seat(&mut slots, &self.capacities[channel], &published.changed(channel), version);
        let mut next = BackendSet { version, slots, ..BackendSet::empty(self.capacities.len()) };
        next.number(&self.capacities, published);
        published.latest = Arc::new(next);
        self.version.store(version, Ordering::Release);
    }
}

impl BackendSet {
    fn empty(channels: usize) -> Self {
        Self {
            version: 0,
            spans: vec![(0, 0); channels],
            members: Vec::new(),
            lens: vec![1; channels],
            slots: Vec::new(),
            load_balancer: Arc::default(),
        }
    }

    /// Works out what follows from who has which slot.
    fn number(&mut self, capacities: &[ChannelCapacity], published: &Published) {
        let lists = &published.lists;
        for (channel, capacity) in capacities.iter().enumerate() {
            let mut own: Vec<(u64, u32)> = capacity
                .slots
                .clone()
                .filter_map(|slot| Some((self.slots[slot as usize].element?, slot)))
                .collect();
            own.sort_unstable();
            self.spans[channel] = (self.members.len() as u32, own.len() as u32);
            let is_of_array = |member: &&BackendAddress| member.rank == lists[channel][0].rank;
            self.lens[channel] = (lists[channel].iter().filter(is_of_array).count() as u64).max(1);
            self.members.extend(own.iter().map(|(_, slot)| *slot));
        }
        // A backend with another address keeps the keys of the one in its list.
        let balanced = lists.iter().enumerate().map(|(channel, list)| -> Vec<BackendAddress> {
            let named = list.iter().map(|member| member.endpoint.clone());
            let changed = published.changed(channel).into_iter().zip(named);
            changed.map(|(member, endpoint)| BackendAddress { endpoint, ..member }).collect()
        });
        self.load_balancer = Arc::new(LoadBalancer::new(&balanced.collect::<Vec<_>>()));
    }
}

/// A list with those of the array in front.
fn ranked(list: &[BackendAddress]) -> Vec<BackendAddress> {
    let mut list = list.to_vec();
    list.sort_by_key(|member| member.rank);
    list
}

/// Gives each address of a list a slot of the channel: the slot that it has or had, else one that was never used, else
/// that of the backend that was removed first.
fn seat(slots: &mut [Slot], capacity: &ChannelCapacity, list: &[BackendAddress], version: u64) {
    let range = capacity.slots.start as usize..capacity.slots.end as usize;
    let own = &mut slots[range];
    let was: Vec<bool> = own.iter().map(|slot| slot.element.is_some()).collect();
    own.iter_mut().for_each(|slot| slot.element = None);
    let mut homeless = Vec::new();
    for (element, member) in list.iter().enumerate() {
        let known = (0..own.len())
            .filter(|at| own[*at].element.is_none() && own[*at].endpoint.as_ref() == Some(&member.endpoint))
            .max_by_key(|at| was[*at]);
        match known {
            Some(at) => {
                let slot = &mut own[at];
                (slot.element, slot.weight) = (Some(element as u64), member.weight);
                (slot.rank, slot.mode) = (member.rank, member.mode);
            }
            None => homeless.push((element, member)),
        }
    }
    for (at, slot) in own.iter_mut().enumerate() {
        if was[at] && slot.element.is_none() {
            slot.left = version;
        }
    }
    for (element, member) in homeless {
        let free = own.iter_mut().filter(|slot| slot.element.is_none());
        let slot = free.min_by_key(|slot| (slot.endpoint.is_some(), slot.left));
        let slot = slot.expect("a channel has more slots than elements");
        let BackendAddress { endpoint, weight, rank, mode } = member.clone();
        *slot = Slot { endpoint: Some(endpoint), weight, rank, mode, element: Some(element as u64), left: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendAddress, BackendMode, BackendOverride, BackendSetPublisher, ChannelCapacity};
    use flick_abi::Policy;
    use flick_net::Endpoint;

    fn publisher(capacities: Vec<ChannelCapacity>, lists: Vec<Vec<BackendAddress>>) -> BackendSetPublisher {
        let overrides = vec![Vec::new(); lists.len()];
        BackendSetPublisher::new(capacities, lists, overrides)
    }

    fn list(ports: &[u16]) -> Vec<BackendAddress> {
        ports.iter().map(|port| Endpoint::Tcp(([10, 0, 0, 1], *port).into()).into()).collect()
    }

    /// Slots by element after each of the lists.
    fn check(elements_max: u32, lists: &[&[u16]], expected: &[&[u32]]) {
        let capacities = vec![
            ChannelCapacity::default(),
            ChannelCapacity { slots: 0..2 * elements_max, elements_max, is_single: false },
        ];
        let backend_sets = publisher(capacities, vec![Vec::new(), list(lists[0])]);
        for (at, (ports, expected)) in lists.iter().zip(expected).enumerate() {
            if at > 0 {
                assert_eq!(backend_sets.publish(1, &list(ports)), Ok(true), "list {at}");
            }
            let backend_set = backend_sets.latest();
            let slots: Vec<u32> = (0..ports.len() as u64)
                .map(|element| backend_set.slot_of(1, element).expect("a slot"))
                .collect();
            assert_eq!(slots, *expected, "list {at}: {ports:?}");
            assert_eq!(backend_set.slot_of(1, ports.len() as u64), None);
            assert_eq!(backend_set.lens(), [1, ports.len().max(1) as u64]);
            assert_eq!((backend_set.version(), backend_sets.version()), (at as u64, at as u64));
            assert!(backend_set.list(1).eq(list(ports)));
        }
    }

    #[test]
    fn who_stays_keeps_its_slot_and_who_comes_back_gets_it_back() {
        check(
            3,
            &[&[1, 2, 3], &[3, 1], &[4, 3, 1], &[2, 4], &[]],
            &[&[0, 1, 2], &[2, 0], &[3, 2, 0], &[1, 3], &[]],
        );
    }

    #[test]
    fn the_slot_of_the_one_that_left_first_is_given_away_first() {
        check(1, &[&[1], &[2], &[3], &[1]], &[&[0], &[1], &[0], &[1]]);
    }

    #[test]
    fn who_only_weighs_more_keeps_its_slot_and_that_is_news() {
        let capacities = vec![ChannelCapacity { slots: 0..6, elements_max: 3, is_single: false }];
        let backend_sets = publisher(capacities, vec![list(&[1, 2, 3])]);
        let mut heavier = list(&[1, 2, 3]);
        heavier[1].weight = 5;
        assert_eq!(backend_sets.publish(0, &heavier), Ok(true));
        assert!(backend_sets.latest().list(0).eq(heavier.clone()));
        assert_eq!(
            (0..3).map(|at| backend_sets.latest().slot_of(0, at)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(backend_sets.publish(0, &heavier), Ok(false));
    }

    #[test]
    fn who_stands_in_for_others_is_behind_the_array() {
        let capacities = vec![ChannelCapacity { slots: 0..8, elements_max: 4, is_single: false }];
        let mut given = list(&[1, 2, 3, 4]);
        (given[0].rank, given[2].rank) = (1, 1);
        let backend_sets = publisher(capacities, vec![given.clone()]);
        assert_eq!(backend_sets.latest().lens(), [2]);
        let ports: Vec<String> = backend_sets.latest().list(0).map(|member| member.to_string()).collect();
        assert_eq!(ports, ["10.0.0.1:2", "10.0.0.1:4", "10.0.0.1:1 backup", "10.0.0.1:3 backup"]);
        assert_eq!(backend_sets.publish(0, &given), Ok(false), "nothing is new");
        given[2].rank = 0;
        assert_eq!((backend_sets.publish(0, &given), backend_sets.latest().lens()), (Ok(true), &[3_u64][..]));
    }

    fn at(port: u16) -> Endpoint {
        Endpoint::Tcp(([10, 0, 0, 1], port).into())
    }

    /// Elements that a key picks.
    fn keys(backend_sets: &BackendSetPublisher) -> Vec<u64> {
        let latest = backend_sets.latest();
        let balancer = latest.load_balancer();
        let mut state = balancer.balancer_state(0);
        let mut pick = |key: u8| balancer.pick(&mut state, Policy::Ketama, 0, &[key], &(), || 0);
        (0..50).map(&mut pick).collect()
    }

    #[test]
    fn change_of_a_backend_renumbers_no_element_and_moves_no_key() {
        let capacities = vec![ChannelCapacity { slots: 0..3, elements_max: 3, is_single: false }];
        let backend_sets = publisher(capacities, vec![list(&[1, 2, 3])]);
        let before = keys(&backend_sets);
        let shown =
            || backend_sets.latest().list(0).map(|member| member.to_string()).collect::<Vec<_>>().join(", ");
        for (change, expected) in [
            (
                BackendOverride { mode: Some(BackendMode::Drain), ..BackendOverride::none(at(2)) },
                "10.0.0.1:1, 10.0.0.1:2 drain, 10.0.0.1:3",
            ),
            (
                BackendOverride { weight: Some(0), ..BackendOverride::none(at(2)) },
                "10.0.0.1:1, 10.0.0.1:2 drain, 10.0.0.1:3",
            ),
            (
                BackendOverride { address: Some(at(9)), ..BackendOverride::none(at(2)) },
                "10.0.0.1:1, 10.0.0.1:9, 10.0.0.1:3",
            ),
            (
                BackendOverride { mode: Some(BackendMode::Maint), ..BackendOverride::none(at(2)) },
                "10.0.0.1:1, 10.0.0.1:2 maint, 10.0.0.1:3",
            ),
        ] {
            backend_sets.change(0, change.clone());
            assert_eq!(shown(), expected);
            assert_eq!(
                (keys(&backend_sets), backend_sets.latest().lens()),
                (before.clone(), &[3][..]),
                "{change:?}"
            );
            assert!(!backend_sets.change(0, change), "nothing is new");
        }
        // A list that comes again keeps the change; one that has the backend no more does not show it.
        assert_eq!(backend_sets.publish(0, &list(&[2, 1])), Ok(true));
        assert_eq!(shown(), "10.0.0.1:2 maint, 10.0.0.1:1");
        assert!(backend_sets.change(0, BackendOverride::none(at(2))));
        assert_eq!(shown(), "10.0.0.1:2, 10.0.0.1:1");
    }

    #[test]
    fn an_address_may_stand_in_a_list_twice() {
        check(2, &[&[1, 1], &[1], &[1, 1]], &[&[0, 1], &[1], &[1, 0]]);
    }

    #[test]
    fn a_list_above_the_capacity_changes_nothing() {
        let capacities = vec![
            ChannelCapacity { slots: 0..4, elements_max: 2, is_single: false },
            ChannelCapacity { slots: 4..6, elements_max: 1, is_single: true },
        ];
        let backend_sets = publisher(capacities, vec![list(&[1]), list(&[9])]);
        let refused = backend_sets.publish(0, &list(&[1, 2, 3])).expect_err("three are too many");
        assert!(refused.contains("capacity for 2"), "{refused}");
        assert!(
            backend_sets.publish(1, &list(&[1, 2])).is_err() && backend_sets.publish(2, &list(&[1])).is_err()
        );
        assert_eq!(backend_sets.publish(0, &list(&[1])), Ok(false), "nothing is new");
        assert_eq!(backend_sets.version(), 0);
    }
}
