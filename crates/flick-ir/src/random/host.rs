//! A platform for tests: everything in ordered maps, chance from a seed, every call written down.
//! Promises: the same seed and the same calls give the same answers. Two engines that make the same calls in the same
//! order therefore leave the same record.

use std::collections::BTreeMap;

use flick_abi::limits::DICT_ATTEMPTS_MAX;
use flick_abi::{Host, Policy};

use super::Rng;

/// Entries that each dictionary of a [`MockHost`] has room for.
const ENTRIES_MAX: usize = 64;

/// A deterministic platform.
#[derive(Clone, Debug)]
pub struct MockHost {
    /// Every call so far, with what it gave.
    pub calls: Vec<String>,
    /// Entries by dictionary and key.
    pub entries: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    /// Counters and gauges by number.
    pub counters: BTreeMap<u32, i64>,
    /// The time; it goes on by a millisecond with each question.
    pub now_ns: i64,
    /// The percentage of updates in which another activation changes the entry between begin and commit.
    pub contention_percent: usize,
    /// Attempt of the running update.
    attempt: i64,
    rng: Rng,
}

impl MockHost {
    /// An empty platform.
    pub fn new(seed: u64) -> Self {
        Self {
            calls: Vec::new(),
            entries: BTreeMap::new(),
            counters: BTreeMap::new(),
            now_ns: 1_700_000_000_000_000_000,
            contention_percent: 30,
            attempt: 0,
            rng: Rng::new(seed ^ 0x5eed),
        }
    }

    fn note<T: std::fmt::Debug>(&mut self, call: std::fmt::Arguments<'_>, result: T) -> T {
        self.calls.push(format!("{call} = {result:?}"));
        result
    }

    fn copy(&self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize> {
        let value = self.entries.get(&(dict, key.to_vec()))?;
        out[..value.len()].copy_from_slice(value);
        Some(value.len())
    }

    fn put(&mut self, dict: u32, key: &[u8], value: &[u8]) {
        let key = (dict, key.to_vec());
        let is_full = self.entries.keys().filter(|(known, _)| *known == dict).count() >= ENTRIES_MAX;
        if !is_full || self.entries.contains_key(&key) {
            self.entries.insert(key, value.to_vec());
        }
    }
}

impl Host for MockHost {
    fn now_ns(&mut self) -> i64 {
        self.now_ns += 1_000_000;
        self.note(format_args!("now"), self.now_ns)
    }

    fn random(&mut self) -> u64 {
        let word = self.rng.word();
        self.note(format_args!("random"), word)
    }

    fn log(&mut self, text: &[u8]) {
        self.note(format_args!("log {text:?}"), ());
    }

    fn counter_add(&mut self, counter: u32, amount: i64) {
        let value = self.counters.entry(counter).or_insert(0);
        *value = value.wrapping_add(amount);
        self.note(format_args!("counter_add {counter} {amount}"), ());
    }

    fn gauge_set(&mut self, gauge: u32, value: i64) {
        self.counters.insert(gauge, value);
        self.note(format_args!("gauge_set {gauge} {value}"), ());
    }

    fn counter_get(&mut self, counter: u32) -> i64 {
        let value = self.counters.get(&counter).copied().unwrap_or(0);
        self.note(format_args!("counter_get {counter}"), value)
    }

    fn alive(&mut self, channel: u32, element: u64) -> bool {
        self.note(format_args!("alive {channel} {element}"), element.is_multiple_of(3))
    }

    fn load(&mut self, channel: u32, element: u64) -> i64 {
        self.note(format_args!("load {channel} {element}"), (element % 5) as i64)
    }

    fn peer(&mut self, channel: u32, element: u64) -> [u8; 18] {
        let mut peer = [0; 18];
        peer[10..12].fill(0xff);
        peer[15] = element as u8;
        peer[17] = channel as u8;
        self.note(format_args!("peer {channel} {element}"), peer)
    }

    fn pick(&mut self, policy: Policy, channel: u32, key: &[u8]) -> i64 {
        let element = flick_abi::hash::hash(key) % 7;
        self.note(format_args!("pick {policy:?} {channel} {key:?}"), element as i64)
    }

    fn dict_get(&mut self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize> {
        let found = self.copy(dict, key, out);
        self.note(format_args!("dict_get {dict} {key:?}"), found)
    }

    fn dict_has(&mut self, dict: u32, key: &[u8]) -> bool {
        let found = self.entries.contains_key(&(dict, key.to_vec()));
        self.note(format_args!("dict_has {dict} {key:?}"), found)
    }

    fn dict_put(&mut self, dict: u32, key: &[u8], value: &[u8]) {
        self.put(dict, key, value);
        self.note(format_args!("dict_put {dict} {key:?} {value:?}"), ());
    }

    fn dict_remove(&mut self, dict: u32, key: &[u8]) -> bool {
        let found = self.entries.remove(&(dict, key.to_vec())).is_some();
        self.note(format_args!("dict_remove {dict} {key:?}"), found)
    }

    fn dict_len(&mut self, dict: u32) -> i64 {
        let len = self.entries.keys().filter(|(known, _)| *known == dict).count();
        self.note(format_args!("dict_len {dict}"), len as i64)
    }

    fn dict_bytes(&mut self, dict: u32) -> i64 {
        let of_entry = |(key, value): (&(u32, Vec<u8>), &Vec<u8>)| key.1.len() + value.len();
        let bytes: usize = self.entries.iter().filter(|((known, _), _)| *known == dict).map(of_entry).sum();
        self.note(format_args!("dict_bytes {dict}"), bytes as i64)
    }

    fn dict_evictions(&mut self, dict: u32) -> i64 {
        self.note(format_args!("dict_evictions {dict}"), 0)
    }

    fn open_clients(&mut self) -> i64 {
        self.note(format_args!("open_clients"), 1)
    }

    fn dict_begin(&mut self, dict: u32, key: &[u8], attempt: i64, out: &mut [u8]) -> Option<usize> {
        self.attempt = attempt;
        let found = self.copy(dict, key, out);
        self.note(format_args!("dict_begin {dict} {key:?} {attempt}"), found)
    }

    fn dict_commit(&mut self, dict: u32, key: &[u8], value: Option<&[u8]>) -> bool {
        let may_fail = self.attempt < DICT_ATTEMPTS_MAX - 1;
        let is_first = !(may_fail && self.rng.chance(self.contention_percent));
        if is_first {
            match value {
                Some(value) => self.put(dict, key, value),
                None => drop(self.entries.remove(&(dict, key.to_vec()))),
            }
        } else {
            self.put(dict, key, b"another value");
        }
        self.note(format_args!("dict_commit {dict} {key:?} {value:?}"), is_first)
    }
}
