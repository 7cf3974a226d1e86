//! A platform in one struct, for programs with state: what happens on it is the same in every run.

use std::collections::BTreeMap;

use flick_abi::{Host, Policy};

/// Dictionaries, counters, a clock that the test sets, and what was logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Platform {
    /// Nanoseconds since 1970.
    pub now_ns: i64,
    /// Entries by dictionary and key.
    pub dicts: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    /// Counters and gauges.
    pub counters: BTreeMap<u32, i64>,
    /// Lines of the log.
    pub log: Vec<String>,
    /// Number of commits that will still fail because another worker was faster.
    pub lost_races: u32,
    /// Attempts that `update`s have made.
    pub attempts: Vec<i64>,
    randoms: u64,
}

impl Host for Platform {
    fn now_ns(&mut self) -> i64 {
        self.now_ns
    }
    fn random(&mut self) -> u64 {
        self.randoms += 1;
        self.randoms.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn log(&mut self, text: &[u8]) {
        self.log.push(String::from_utf8_lossy(text).into_owned());
    }
    fn counter_add(&mut self, counter: u32, amount: i64) {
        let value = self.counters.entry(counter).or_default();
        *value = value.wrapping_add(amount);
    }
    fn gauge_set(&mut self, gauge: u32, value: i64) {
        self.counters.insert(gauge, value);
    }
    fn counter_get(&mut self, counter: u32) -> i64 {
        self.counters.get(&counter).copied().unwrap_or_default()
    }
    fn alive(&mut self, _channel: u32, element: u64) -> bool {
        element.is_multiple_of(2)
    }
    fn load(&mut self, _channel: u32, element: u64) -> i64 {
        element as i64 * 10
    }
    fn peer(&mut self, channel: u32, element: u64) -> [u8; 18] {
        let mut endpoint = [0; 18];
        endpoint[10..12].fill(0xff);
        endpoint[12..16].copy_from_slice(&[10, 0, channel as u8, element as u8]);
        endpoint[16..].copy_from_slice(&8080_u16.to_be_bytes());
        endpoint
    }
    fn pick(&mut self, policy: Policy, _channel: u32, key: &[u8]) -> i64 {
        policy as i64 + key.len() as i64
    }
    fn dict_get(&mut self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize> {
        let value = self.dicts.get(&(dict, key.to_vec()))?;
        out[..value.len()].copy_from_slice(value);
        Some(value.len())
    }
    fn dict_has(&mut self, dict: u32, key: &[u8]) -> bool {
        self.dicts.contains_key(&(dict, key.to_vec()))
    }
    fn dict_put(&mut self, dict: u32, key: &[u8], value: &[u8]) {
        self.dicts.insert((dict, key.to_vec()), value.to_vec());
    }
    fn dict_remove(&mut self, dict: u32, key: &[u8]) -> bool {
        self.dicts.remove(&(dict, key.to_vec())).is_some()
    }
    fn dict_len(&mut self, dict: u32) -> i64 {
        self.dicts.keys().filter(|(number, _)| *number == dict).count() as i64
    }
    fn dict_bytes(&mut self, dict: u32) -> i64 {
        let of_dict = self.dicts.iter().filter(|((number, _), _)| *number == dict);
        of_dict.map(|((_, key), value)| (key.len() + value.len()) as i64).sum()
    }
    fn dict_evictions(&mut self, dict: u32) -> i64 {
        i64::from(dict) + 7
    }
    fn open_clients(&mut self) -> i64 {
        3
    }
    fn dict_begin(&mut self, dict: u32, key: &[u8], attempt: i64, out: &mut [u8]) -> Option<usize> {
        self.attempts.push(attempt);
        self.dict_get(dict, key, out)
    }
    fn dict_commit(&mut self, dict: u32, key: &[u8], value: Option<&[u8]>) -> bool {
        if self.lost_races > 0 {
            self.lost_races -= 1;
            return false;
        }
        match value {
            Some(value) => self.dict_put(dict, key, value),
            None => _ = self.dict_remove(dict, key),
        }
        true
    }
}
