//! Models of two threads on a tiny dictionary: every interleaving, and every value that the memory model allows a load
//! to see, up to a bound of preemptions: `RUSTFLAGS="--cfg loom" cargo test --release -p flick-dict --test models`.

#![cfg(loom)]

use flick_dict::{DictConfig, Dictionary, Evict, Seed};
use loom::sync::Arc;
use loom::thread;

/// Preemptions in one execution; the authors of loom recommend this bound.
const SWITCHES_MAX: usize = 3;

fn dictionary(entries_max: u64, expire_ns: Option<u64>, evict: Evict) -> Arc<Dictionary> {
    dictionary_of(entries_max, 16, expire_ns, evict)
}

fn dictionary_of(
    entries_max: u64,
    value_bytes_max: u32,
    expire_ns: Option<u64>,
    evict: Evict,
) -> Arc<Dictionary> {
    let config = DictConfig {
        entries_max,
        bytes_max: None,
        key_bytes_max: 8,
        value_bytes_max,
        expire_ns,
        evict,
        seed: Seed::Fixed(1),
    };
    Arc::new(Dictionary::new(config).expect("a tiny dictionary fits"))
}

/// Runs `model` over all interleavings.
fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(SWITCHES_MAX, model);
}

fn check_within(switches_max: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches_max);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A value that shows its key and whether it is torn: first and last byte are the key, the others a number.
fn value(key: u8, number: u8) -> [u8; 16] {
    let mut value = [number; 16];
    value[0] = key;
    value[15] = key;
    value
}

fn check_value(key: u8, found: &[u8]) {
    assert_eq!(found.len(), 16, "a value of another length");
    assert_eq!((found[0], found[15]), (key, key), "a value for another key");
    assert!(found[1..15].iter().all(|byte| *byte == found[1]), "a torn value");
}

fn read(dictionary: &Dictionary, key: u8, now_ns: u64) -> Option<u8> {
    let mut out = [0; 16];
    let len = dictionary.get(&[key], now_ns, &mut out)?;
    check_value(key, &out[..len]);
    Some(out[1])
}

#[test]
fn a_value_is_never_torn() {
    check(|| {
        let dictionary = dictionary(2, None, Evict::Nothing);
        dictionary.put(b"a", &value(b'a', 1), 1);
        let writer = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            writer.put(b"a", &value(b'a', 2), 1);
        });
        let first = read(&dictionary, b'a', 1).expect("it is always there");
        let second = read(&dictionary, b'a', 1).expect("it is always there");
        assert!(first <= second, "time went backwards");
        thread.join().expect("the writer ends");
        assert_eq!(read(&dictionary, b'a', 1), Some(2));
    });
}

#[test]
fn a_reused_slot_is_not_mistaken_for_the_old_key() {
    check(|| {
        // One slot: writing `b` evicts `a` and reuses its slot while the reader may be reading it.
        let dictionary = dictionary(1, None, Evict::Lru);
        dictionary.put(b"a", &value(b'a', 1), 1);
        let writer = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            writer.put(b"b", &value(b'b', 2), 1);
        });
        read(&dictionary, b'a', 1);
        read(&dictionary, b'b', 1);
        thread.join().expect("the writer ends");
        assert_eq!((read(&dictionary, b'a', 1), read(&dictionary, b'b', 1)), (None, Some(2)));
        assert_eq!(dictionary.len(), 1);
    });
}

#[test]
fn a_slot_reused_by_another_bucket_is_not_mistaken() {
    check(|| {
        // Two buckets, so that the lock of one does not cover the other; all four slots are reused.
        let dictionary = dictionary(4, None, Evict::Lru);
        for key in [b'a', b'b', b'c', b'd'] {
            dictionary.put(&[key], &value(key, 1), 1);
        }
        let writer = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            writer.remove(b"a", 1);
            writer.put(b"e", &value(b'e', 2), 1);
        });
        read(&dictionary, b'a', 1);
        assert_eq!(read(&dictionary, b'b', 1), Some(1), "no thread wrote it");
        thread.join().expect("the writer ends");
        assert_eq!((read(&dictionary, b'a', 1), read(&dictionary, b'e', 1)), (None, Some(2)));
    });
}

/// A value in a slot and two chunks; models have small ones.
const fn long_value(key: u8, number: u8) -> [u8; 40] {
    let mut value = [number; 40];
    value[0] = key;
    value[39] = key;
    value
}

fn read_long(dictionary: &Dictionary, key: u8) -> Option<u8> {
    let mut out = [0; 40];
    let len = dictionary.get(&[key], 1, &mut out)?;
    assert!(len == 40 || len == 8, "a value of another length: {len}");
    assert_eq!((out[0], out[len - 1]), (key, key), "a value for another key");
    assert!(out[1..len - 1].iter().all(|byte| *byte == out[1]), "a torn value");
    Some(out[1])
}

/// One reads a long value while the other thread writes these; in the end the last is there.
fn check_chunks(switches_max: usize, before: &'static [u8], writes: &'static [&'static [u8]]) {
    check_within(switches_max, move || {
        let dictionary = dictionary_of(1, 40, None, Evict::Nothing);
        dictionary.put(b"a", before, 1);
        let writer = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            for value in writes {
                writer.put(b"a", value, 1);
            }
        });
        let first = read_long(&dictionary, b'a').expect("it is always there");
        thread.join().expect("the writer ends");
        let last = writes[writes.len() - 1][1];
        assert!(first <= last && read_long(&dictionary, b'a') == Some(last));
    });
}

const LONG_1: [u8; 40] = long_value(b'a', 1);
const SHORT_2: [u8; 8] = [b'a', 2, 2, 2, 2, 2, 2, b'a'];
const LONG_3: [u8; 40] = long_value(b'a', 3);

#[test]
fn a_value_in_chunks_is_never_torn() {
    check_chunks(SWITCHES_MAX, &LONG_1, &[&LONG_3]);
    check_chunks(SWITCHES_MAX, &LONG_1, &[&SHORT_2]);
    check_chunks(SWITCHES_MAX, &SHORT_2, &[&LONG_3]);
}

/// With one switch less: with as many it takes as long as all other models together.
#[test]
fn a_value_in_chunks_allocated_in_another_order_is_never_torn() {
    check_chunks(SWITCHES_MAX - 1, &LONG_1, &[&SHORT_2, &LONG_3]);
}

#[test]
fn chunks_reused_by_another_entry_are_not_mistaken() {
    check(|| {
        // Both slots and all chunks are in use: writing `c` evicts one of the two entries and reuses its memory.
        // Without marks: loom treats a writer's store and a reader's earlier `fetch_or` as unordered, and lets a later
        // load see the older of the two.
        let dictionary = dictionary_of(2, 40, None, Evict::Oldest);
        dictionary.put(b"a", &long_value(b'a', 1), 1);
        dictionary.put(b"b", &long_value(b'b', 1), 1);
        let writer = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            assert!(writer.put(b"c", &long_value(b'c', 2), 1), "one of the two is evicted");
        });
        read_long(&dictionary, b'a');
        thread.join().expect("the writer ends");
        assert_eq!(read_long(&dictionary, b'c'), Some(2));
        assert_eq!(dictionary.len(), 2);
    });
}

/// Adds one to the number of `a`, as `update` of the language does.
fn count_up(dictionary: &Dictionary, attempts: usize) {
    let mut out = [0; 16];
    for attempt in 0..attempts {
        let (found, begun) = dictionary.begin(b"a", 1, attempt + 1 == attempts, &mut out);
        let number = found.map_or(0, |_| out[1]);
        if dictionary.commit(begun, b"a", Some(&value(b'a', number + 1)), 1) {
            return;
        }
    }
    panic!("the last attempt of an update always succeeds");
}

#[test]
fn updates_are_not_lost() {
    for attempts in [1, 2] {
        check(move || {
            let dictionary = dictionary(2, None, Evict::Nothing);
            let other = Arc::clone(&dictionary);
            let thread = thread::spawn(move || count_up(&other, attempts));
            count_up(&dictionary, attempts);
            thread.join().expect("the other one ends");
            assert_eq!(read(&dictionary, b'a', 1), Some(2));
        });
    }
}

#[test]
fn two_writers_of_a_full_dictionary_lose_no_slot() {
    check(|| {
        let dictionary = dictionary(1, None, Evict::Lru);
        let other = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            other.put(b"a", &value(b'a', 1), 1);
        });
        dictionary.put(b"b", &value(b'b', 1), 1);
        thread.join().expect("the other one ends");
        assert_eq!(dictionary.len(), 1);
        assert!(dictionary.put(b"c", &value(b'c', 3), 1), "the only slot is in use or free, never lost");
        assert_eq!((dictionary.len(), read(&dictionary, b'c', 1)), (1, Some(3)));
    });
}

#[test]
fn the_sweep_removes_no_live_entry() {
    check(|| {
        let dictionary = dictionary(2, Some(10), Evict::Nothing);
        dictionary.put(b"a", &value(b'a', 1), 1);
        let other = Arc::clone(&dictionary);
        let thread = thread::spawn(move || {
            // The entry expires at 11; it is written again meanwhile.
            other.sweep(11, 10);
        });
        assert!(dictionary.put(b"a", &value(b'a', 2), 11));
        assert_eq!(read(&dictionary, b'a', 12), Some(2));
        thread.join().expect("the other one ends");
        assert_eq!((dictionary.len(), read(&dictionary, b'a', 12)), (1, Some(2)));
    });
}
