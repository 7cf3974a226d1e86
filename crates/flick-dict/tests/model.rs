//! Random operations against a map of the standard library; the seed of a failure is printed.

#![cfg(not(loom))]

#[path = "model/hit_rate.rs"]
mod hit_rate;

use std::collections::HashMap;

use flick_dict::{DictConfig, Dictionary, Evict, Seed, memory_bytes, min_bytes};

/// A small generator, so that a seed always means the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// An entry of the model.
#[derive(Clone, Debug)]
struct Known {
    value: Vec<u8>,
    until_ns: u64,
}

struct Case {
    config: DictConfig,
    keys: u64,
    steps: u64,
}

fn key_of(number: u64, key_bytes_max: u32) -> Vec<u8> {
    // Lengths differ, and numbers come first, so that no key is a zero-padded prefix of another.
    let mut key = number.to_le_bytes()[..2].to_vec();
    key.resize(2 + (number * 7 % u64::from(key_bytes_max - 1)) as usize, 0);
    key
}

/// Does `steps` random operations on both and compares the results. Where entries may be evicted, a missing one is
/// accepted, a wrong one never.
fn check(case: &Case, seed: u64) {
    let dictionary = Dictionary::new(case.config.clone()).expect("a small dictionary fits");
    let mut model: HashMap<Vec<u8>, Known> = HashMap::new();
    let mut random = Random(seed);
    let mut now_ns = 1_000;
    let mut out = vec![0; case.config.value_bytes_max as usize];
    let evicts = case.config.evict != Evict::Nothing;
    for step in 0..case.steps {
        let context = || format!("seed {seed}, step {step}, {:?}", case.config);
        now_ns += random.below(3);
        let life = case.config.expire_ns;
        model.retain(|_, known| life.is_none() || known.until_ns > now_ns);
        let key = key_of(random.below(case.keys), case.config.key_bytes_max);
        let short = random.below(2) == 0;
        let longest = u64::from(case.config.value_bytes_max);
        let value_len = random.below(if short { longest.min(8) + 1 } else { longest + 1 });
        let value: Vec<u8> = (0..value_len).map(|_| random.next() as u8).collect();
        let until_ns = now_ns + life.unwrap_or(0);
        if random.below(4) == 0 {
            // More keys than are loaded, some of them absent.
            let keys: Vec<Vec<u8>> =
                (0..case.keys.min(40)).map(|number| key_of(number, case.config.key_bytes_max)).collect();
            dictionary.preload(keys.iter().map(Vec::as_slice));
        }
        match random.below(10) {
            0..3 => {
                if dictionary.put(&key, &value, now_ns) {
                    model.insert(key, Known { value, until_ns });
                } else if evicts {
                    panic!("a write was refused though entries may be evicted: {}", context());
                } else {
                    let full = dictionary.len() == case.config.entries_max;
                    assert!(full && !model.contains_key(&key), "{}", context());
                }
            }
            3..6 => {
                let found = dictionary.get(&key, now_ns, &mut out).map(|len| out[..len].to_vec());
                compare(&model, &key, found, evicts, &context);
                if !model.is_empty() && !dictionary.has(&key, now_ns) && evicts {
                    model.remove(&key);
                }
            }
            6 => {
                let was = dictionary.remove(&key, now_ns);
                let known = model.remove(&key).is_some();
                assert!(was == known || (evicts && !was), "{}", context());
            }
            7 => {
                let has = dictionary.has(&key, now_ns);
                assert!(has == model.contains_key(&key) || (evicts && !has), "{}", context());
            }
            8 => {
                let exclusive = random.below(2) == 0;
                let (found, begun) = dictionary.begin(&key, now_ns, exclusive, &mut out);
                compare(&model, &key, found.map(|len| out[..len].to_vec()), evicts, &context);
                let refusals = dictionary.counts().refusals;
                let (removes, drops) = (random.below(3) == 0, random.below(4) == 0);
                if drops {
                    dictionary.abandon(begun);
                } else if removes {
                    assert!(dictionary.commit(begun, &key, None, now_ns), "{}", context());
                    model.remove(&key);
                } else {
                    assert!(dictionary.commit(begun, &key, Some(&value), now_ns), "{}", context());
                    if dictionary.counts().refusals == refusals {
                        model.insert(key, Known { value, until_ns });
                    }
                }
            }
            _ => {
                dictionary.sweep(now_ns, 5);
            }
        }
        assert!(dictionary.len() <= case.config.entries_max, "{}", context());
        assert!(evicts || dictionary.len() >= model.len() as u64, "{}", context());
    }
    if !evicts && case.config.expire_ns.is_none() {
        assert_eq!(dictionary.len(), model.len() as u64, "seed {seed}, {:?}", case.config);
        let least: usize = model.iter().map(|(key, known)| key.len() + known.value.len()).sum();
        assert!(dictionary.bytes_used() >= least as u64, "seed {seed}, {:?}", case.config);
    }
    assert_eq!(dictionary.bytes_used() == 0, dictionary.is_empty(), "seed {seed}, {:?}", case.config);
    (0..case.keys)
        .for_each(|number| _ = dictionary.remove(&key_of(number, case.config.key_bytes_max), now_ns));
    assert_eq!((dictionary.len(), dictionary.bytes_used()), (0, 0), "seed {seed}, {:?}", case.config);
}

fn compare(
    model: &HashMap<Vec<u8>, Known>,
    key: &[u8],
    found: Option<Vec<u8>>,
    evicts: bool,
    context: &dyn Fn() -> String,
) {
    let known = model.get(key).map(|known| known.value.clone());
    assert!(
        found == known || (evicts && found.is_none()),
        "{key:?}: {found:?}, not {known:?}; {}",
        context()
    );
}

fn config(entries_max: u64, value_bytes_max: u32, expire_ns: Option<u64>, evict: Evict) -> DictConfig {
    DictConfig {
        entries_max,
        bytes_max: None,
        key_bytes_max: 24,
        value_bytes_max,
        expire_ns,
        evict,
        seed: Seed::Fixed(7),
    }
}

#[test]
fn a_dictionary_behaves_as_a_map() {
    for (entries_max, keys) in [(1, 3), (4, 6), (50, 40), (50, 80), (300, 500)] {
        for value_bytes_max in [0, 8, 40, 1000] {
            for expire_ns in [None, Some(1), Some(200)] {
                for evict in [Evict::Nothing, Evict::Lru, Evict::Oldest] {
                    let case = Case {
                        config: config(entries_max, value_bytes_max, expire_ns, evict),
                        keys,
                        steps: 4_000,
                    };
                    for seed in 0..2 {
                        check(&case, seed);
                    }
                }
            }
        }
    }
}

/// A bound of a few longest entries: values of any length are written, and none is refused.
#[test]
fn a_dictionary_bounded_in_bytes_behaves_as_a_map() {
    for (value_bytes_max, bytes_max, steps) in [(1_000, 40_000, 4_000), (1 << 20, 9 << 20, 600)] {
        for expire_ns in [None, Some(200)] {
            for evict in [Evict::Lru, Evict::Oldest] {
                let config = DictConfig {
                    bytes_max: Some(bytes_max),
                    ..config(200, value_bytes_max, expire_ns, evict)
                };
                assert!(memory_bytes(&config) <= bytes_max, "{config:?}");
                for seed in 0..2 {
                    check(&Case { config: config.clone(), keys: 300, steps }, seed);
                }
            }
        }
    }
}

#[test]
fn memory_goes_to_entries_of_any_length() {
    // Memory of four of the longest entries.
    let config = config(100_000, 1 << 20, None, Evict::Lru);
    let config = DictConfig { bytes_max: Some(min_bytes(&config)), ..config };
    let dictionary = Dictionary::new(config).expect("it fits");
    for number in 0_u64..200_000 {
        assert!(dictionary.put(&number.to_le_bytes(), b"short", number));
    }
    assert!(dictionary.len() > 40_000, "short entries take a block each: {}", dictionary.len());
    let long = vec![1; 1 << 20];
    for number in 0_u64..4 {
        assert!(dictionary.put(&number.to_be_bytes(), &long, 300_000), "short entries are evicted for it");
    }
    assert_eq!((dictionary.counts().refusals, dictionary.has(&3_u64.to_be_bytes(), 300_000)), (0, true));
    for number in 0_u64..200_000 {
        assert!(dictionary.put(&number.to_le_bytes(), b"short", 400_000 + number));
    }
    let left = (0_u64..4).filter(|number| dictionary.has(&number.to_be_bytes(), 700_000)).count();
    assert!(left <= 1, "long entries are evicted for short ones: {left} are left");
}

#[test]
fn evict_nothing_holds_entries_max_of_the_longest() {
    for (entries_max, value_bytes_max) in [(1, 8), (7, 300), (1_000, 1_000), (20_000, 16)] {
        for seed in 0..5 {
            let config = DictConfig {
                seed: Seed::Fixed(seed),
                ..config(entries_max, value_bytes_max, None, Evict::Nothing)
            };
            let dictionary = Dictionary::new(config).expect("it fits");
            let value = vec![1; value_bytes_max as usize];
            for number in 0..entries_max {
                assert!(dictionary.put(&number.to_le_bytes(), &value, 1), "entry {number} of {entries_max}");
            }
            assert!(!dictionary.put(b"one more", &value, 1), "{entries_max}");
            assert_eq!((dictionary.len(), dictionary.counts().refusals), (entries_max, 1));
        }
    }
}

#[test]
fn lru_keeps_used_entries() {
    for (evict, kept_used) in [(Evict::Lru, 100..=100), (Evict::Oldest, 0..=70)] {
        let dictionary = Dictionary::new(config(1_000, 16, None, evict)).expect("it fits");
        let mut out = [0; 16];
        for number in 0_u64..1_000 {
            dictionary.put(&number.to_le_bytes(), b"value", number);
        }
        for number in 1_000_u64..2_000 {
            for used in 0_u64..100 {
                dictionary.get(&used.to_le_bytes(), number, &mut out);
            }
            assert!(dictionary.put(&number.to_le_bytes(), b"value", number), "an entry is evicted");
        }
        let left = (0_u64..100).filter(|number| dictionary.has(&number.to_le_bytes(), 2_000)).count();
        assert!(kept_used.contains(&left), "{evict:?}: {left} of 100 entries in use are left");
        assert_eq!((dictionary.len(), dictionary.counts().evictions), (1_000, 1_000), "{evict:?}");
    }
}

#[test]
fn the_oldest_of_few_is_evicted_first() {
    let dictionary = Dictionary::new(config(3, 16, None, Evict::Oldest)).expect("it fits");
    for (time, key) in [b"a", b"b", b"c", b"d"].iter().enumerate() {
        dictionary.put(*key, b"", time as u64);
    }
    let there: Vec<bool> = [b"a", b"b", b"c", b"d"].iter().map(|key| dictionary.has(*key, 9)).collect();
    assert_eq!(there, [false, true, true, true]);
}

#[test]
fn lru_evicts_the_entry_that_was_not_read() {
    let dictionary = Dictionary::new(config(3, 16, None, Evict::Lru)).expect("it fits");
    for (time, key) in [b"a", b"b", b"c"].iter().enumerate() {
        dictionary.put(*key, b"", time as u64);
    }
    assert!(dictionary.has(b"a", 9) && dictionary.has(b"c", 9));
    dictionary.put(b"d", b"", 9);
    let there: Vec<bool> = [b"a", b"b", b"c", b"d"].iter().map(|key| dictionary.has(*key, 9)).collect();
    assert_eq!(there, [true, false, true, true]);
}

#[test]
fn the_sweep_removes_expired_entries() {
    let dictionary = Dictionary::new(config(100, 16, Some(10), Evict::Nothing)).expect("it fits");
    for number in 0_u64..100 {
        assert!(dictionary.put(&number.to_le_bytes(), b"value", number / 50));
    }
    assert_eq!(dictionary.sweep(10, 1_000), 50);
    assert_eq!((dictionary.len(), dictionary.counts().expirations), (50, 50));
    assert!(dictionary.put(b"more", b"", 10));
    assert!(!dictionary.has(&99_u64.to_le_bytes(), 11), "an expired entry is not found, swept or not");
}

#[test]
fn a_conflicting_update_fails_and_is_repeated() {
    let dictionary = Dictionary::new(config(10, 16, None, Evict::Lru)).expect("it fits");
    let mut out = [0; 16];
    let (_, begun) = dictionary.begin(b"key", 1, false, &mut out);
    dictionary.put(b"key", b"first", 1);
    assert!(!dictionary.commit(begun, b"key", Some(b"second"), 1));
    assert_eq!(dictionary.get(b"key", 1, &mut out).map(|len| &out[..len]), Some(&b"first"[..]));
}
