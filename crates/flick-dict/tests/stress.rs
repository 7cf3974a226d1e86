//! Concurrent readers and writers: values carry their key and a sum, so a torn or foreign one is detected.
//! `FLICK_DICT_STRESS=N` does N times the work.

#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flick_dict::{DictConfig, Dictionary, Evict, Seed};

const THREADS: usize = 2;
const ACTORS: u64 = 10;
const KEYS: u64 = 60;

fn step(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// A value for `key`: the key, a count, filler of a length that depends on the count, and the sum of all that.
fn value_of(key: u64, count: u64, value_bytes_max: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(value_bytes_max);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&count.to_le_bytes());
    let filler = count.wrapping_mul(0x9e37_79b9) % (value_bytes_max as u64 - 23);
    value.resize(16 + filler as usize, count as u8);
    let sum = sum(&value);
    value.extend_from_slice(&sum.to_le_bytes());
    value
}

/// Sums whole words where there are some, so that long values take no time to sum.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words =
        words.iter().map(|word| u64::from_le_bytes(*word)).chain(rest.iter().map(|byte| u64::from(*byte)));
    words.fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(7)
    })
}

fn check_value(key: u64, value: &[u8], context: &str) {
    let (body, end) = value.split_at(value.len() - 8);
    assert_eq!(end, sum(body).to_le_bytes(), "a torn value; {context}");
    assert_eq!(body[..8], key.to_le_bytes(), "a value for another key; {context}");
}

/// One thread's share: `ACTORS` readers and writers, one after the other.
fn work(dictionary: &Dictionary, clock: &AtomicU64, seed: u64, rounds: u64, value_bytes_max: usize) -> u64 {
    let mut random = seed | 1;
    let mut out = vec![0; value_bytes_max];
    let mut hits = 0;
    for round in 0..rounds {
        for actor in 0..ACTORS {
            let now_ns = clock.fetch_add(step(&mut random) % 3, Ordering::Relaxed);
            let number = step(&mut random) % KEYS;
            // Keys are of two lengths, and some need more than a word.
            let mut key = number.to_le_bytes().to_vec();
            key.resize(if number.is_multiple_of(2) { 8 } else { 20 }, 1);
            let context = format!("seed {seed}, round {round}, actor {actor}");
            if actor % 2 == 0 {
                if let Some(len) = dictionary.get(&key, now_ns, &mut out) {
                    check_value(number, &out[..len], &context);
                    hits += 1;
                }
                continue;
            }
            match step(&mut random) % 8 {
                0 => {
                    dictionary.remove(&key, now_ns);
                }
                1 => {
                    dictionary.sweep(now_ns, 4);
                }
                2 | 3 => update(dictionary, &key, number, now_ns, &mut out),
                _ => {
                    dictionary.put(
                        &key,
                        &value_of(number, step(&mut random) % 1_000, value_bytes_max),
                        now_ns,
                    );
                }
            }
        }
    }
    hits
}

/// Increments the value's count.
fn update(dictionary: &Dictionary, key: &[u8], number: u64, now_ns: u64, out: &mut [u8]) {
    for attempt in 0..8 {
        let (found, begun) = dictionary.begin(key, now_ns, attempt == 7, out);
        let count = found.map_or(0, |len| {
            check_value(number, &out[..len], "update");
            out[8..16].iter().rev().fold(0_u64, |count, byte| (count << 8) | u64::from(*byte))
        });
        let value = value_of(number, count + 1, out.len());
        if dictionary.commit(begun, key, Some(&value), now_ns) {
            return;
        }
    }
    panic!("the last attempt of an update always succeeds");
}

/// Runs all threads on one dictionary.
fn check(entries_max: u64, value_bytes_max: u32, expire_ns: Option<u64>, evict: Evict) {
    check_bounded(entries_max, None, value_bytes_max, expire_ns, evict, 1_500);
}

fn check_bounded(
    entries_max: u64,
    bytes_max: Option<u64>,
    value_bytes_max: u32,
    expire_ns: Option<u64>,
    evict: Evict,
    rounds: u64,
) {
    let scale = std::env::var("FLICK_DICT_STRESS").ok().and_then(|times| times.parse().ok()).unwrap_or(1_u64);
    let config = DictConfig {
        entries_max,
        bytes_max,
        key_bytes_max: 20,
        value_bytes_max,
        expire_ns,
        evict,
        seed: Seed::Random,
    };
    let dictionary = Arc::new(Dictionary::new(config.clone()).expect("a small dictionary fits"));
    let clock = Arc::new(AtomicU64::new(1));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (dictionary, clock) = (Arc::clone(&dictionary), Arc::clone(&clock));
            std::thread::spawn(move || {
                work(&dictionary, &clock, 77 + thread as u64, rounds * scale, value_bytes_max as usize)
            })
        })
        .collect();
    let hits: u64 = threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
    assert!(hits > 0, "readers found nothing at all: {config:?}");
    // Every slot and chunk must be free again: the dictionary can be emptied and filled.
    let end = clock.load(Ordering::Relaxed) + expire_ns.unwrap_or(0) + 10;
    for number in 0..KEYS {
        for len in [8, 20] {
            let mut key = number.to_le_bytes().to_vec();
            key.resize(len, 1);
            dictionary.remove(&key, end);
        }
    }
    assert_eq!(dictionary.len(), 0, "{config:?}");
    let value = value_of(1, 1, if bytes_max.is_some() { 40 } else { value_bytes_max as usize });
    for number in 0..entries_max {
        assert!(dictionary.put(&number.to_be_bytes(), &value, end), "entry {number}: {config:?}");
    }
    assert_eq!(dictionary.len(), entries_max, "{config:?}");
}

#[test]
fn no_value_is_torn_or_another_keys() {
    for (entries_max, value_bytes_max) in [(5, 24 + 40), (40, 24 + 40), (40, 1_000), (100, 64)] {
        for expire_ns in [None, Some(50)] {
            for evict in [Evict::Lru, Evict::Oldest, Evict::Nothing] {
                check(entries_max, value_bytes_max, expire_ns, evict);
            }
        }
    }
}

/// Values of up to 1 MiB in memory for a dozen of them.
#[test]
fn long_values_are_not_torn() {
    for expire_ns in [None, Some(50)] {
        for evict in [Evict::Lru, Evict::Oldest, Evict::Nothing] {
            check_bounded(100, Some(12 << 20), (1 << 20) + 1000, expire_ns, evict, 60);
        }
    }
}

#[test]
fn updates_of_one_key_are_all_counted() {
    let config = DictConfig {
        entries_max: 10,
        bytes_max: None,
        key_bytes_max: 8,
        value_bytes_max: 64,
        expire_ns: None,
        evict: Evict::Nothing,
        seed: Seed::Random,
    };
    let dictionary = Arc::new(Dictionary::new(config).expect("a small dictionary fits"));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let dictionary = Arc::clone(&dictionary);
            std::thread::spawn(move || {
                let mut out = [0; 64];
                (0..20_000).for_each(|_| update(&dictionary, b"k", 0, 1, &mut out));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    let mut out = [0; 64];
    dictionary.get(b"k", 1, &mut out).expect("it was written");
    assert_eq!(out[8..16], (20_000 * THREADS as u64).to_le_bytes());
}
