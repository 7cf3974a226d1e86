//! Hit rates of a dictionary beside those of memcached's segmented LRU in as many bytes, both simulated.

use std::collections::HashMap;

use flick_dict::{DictConfig, Dictionary, Evict, Seed};

use super::Random;

/// Keys of a Zipf load. As many again are those of scans and loops.
const KEYS: usize = 60_000;
/// Memory of both caches.
const BYTES: u64 = 2 << 20;
/// Requests of a load; those of the first half warm up.
const REQUESTS: usize = 400_000;
/// The store's item with a value of 100 bytes.
const ITEM_BYTES: usize = 152;
/// memcached's item with this value and a key of 16 bytes has 175 bytes, which lie in a chunk of 192.
const MEMCACHED_BYTES: u64 = 192;

/// Keys with probabilities of a Zipf distribution.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut add = |rank: usize| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Self((1..=KEYS).map(&mut add).collect())
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * self.0[KEYS - 1];
        self.0.partition_point(|sum| *sum < at)
    }
}

/// The keys of a load: a part of them in order, if `in_order` is not zero, the others by `zipf`.
fn load(zipf: &Zipf, in_order: usize, share: u64) -> Vec<usize> {
    let (mut random, mut at) = (Random(1), 0);
    let mut key = |_| {
        if in_order > 0 && random.below(100) < share {
            at = (at + 1) % in_order;
            KEYS + at
        } else {
            zipf.draw(&mut random)
        }
    };
    (0..REQUESTS).map(&mut key).collect()
}

/// Returns the share of hits in the second half of a load; `ask` says whether a request hits, and stores what misses.
fn hit_rate(load: &[usize], mut ask: impl FnMut(usize) -> bool) -> f64 {
    let (first, second) = load.split_at(load.len() / 2);
    for key in first {
        ask(*key);
    }
    second.iter().filter(|key| ask(**key)).count() as f64 / second.len() as f64
}

fn of_dictionary(load: &[usize]) -> f64 {
    let dictionary = Dictionary::new(DictConfig {
        entries_max: BYTES / 200,
        bytes_max: Some(BYTES),
        key_bytes_max: 250,
        value_bytes_max: 1_000,
        expire_ns: None,
        evict: Evict::Lru,
        seed: Seed::Fixed(1),
    });
    let dictionary = dictionary.expect("it fits");
    let (value, mut out) = ([7; ITEM_BYTES], [0; 1_000]);
    hit_rate(load, |key| {
        let text = format!("{key:016}");
        let hits = dictionary.get(text.as_bytes(), 1, &mut out).is_some();
        assert!(hits || dictionary.put(text.as_bytes(), &value, 1), "an entry is evicted");
        hits
    })
}

/// memcached 1.6 with segments: new items are hot, and leave for the warm ones if they were read twice, else for the
/// cold ones. A cold item that is read twice becomes warm; others are evicted. At most 20 % are hot, and 40 % warm.
/// Source: `items.c`, `do_item_bump` and `lru_pull_tail`.
#[derive(Default)]
struct Memcached {
    /// By key: its segment, its position there, and whether it was read once or twice.
    items: HashMap<usize, (usize, u64, u8)>,
    /// By position, oldest first; an item that has left is missing.
    segments: [std::collections::BTreeMap<u64, usize>; 3],
    moves: u64,
}

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;

impl Memcached {
    fn put(&mut self, key: usize, segment: usize, reads: u8) {
        self.moves += 1;
        if let Some((old, position, _)) = self.items.insert(key, (segment, self.moves, reads)) {
            self.segments[old].remove(&position);
        }
        self.segments[segment].insert(self.moves, key);
    }

    /// Moves the oldest item of a segment, or evicts it.
    fn pull(&mut self, segment: usize) {
        let Some((_, key)) = self.segments[segment].pop_first() else { return };
        match self.items.remove(&key) {
            Some((_, _, 2)) => self.put(key, WARM, 1),
            Some((_, _, reads)) if segment != COLD => self.put(key, COLD, reads),
            _ => {}
        }
    }

    fn balance(&mut self, capacity: usize) {
        for (segment, percent) in [(HOT, 20), (WARM, 40)] {
            for _ in 0..5 {
                if self.segments[segment].len() * 100 > capacity * percent {
                    self.pull(segment);
                }
            }
        }
    }

    fn ask(&mut self, key: usize, capacity: usize) -> bool {
        if let Some((segment, _, reads)) = self.items.get_mut(&key) {
            *reads = (*reads + 1).min(2);
            if (*segment, *reads) == (COLD, 2) {
                self.put(key, WARM, 1);
            }
            return true;
        }
        while self.items.len() >= capacity {
            self.balance(capacity);
            self.pull(COLD);
        }
        self.put(key, HOT, 0);
        self.balance(capacity);
        false
    }
}

fn of_memcached(load: &[usize]) -> f64 {
    let mut memcached = Memcached::default();
    hit_rate(load, |key| memcached.ask(key, (BYTES / MEMCACHED_BYTES) as usize))
}

#[test]
fn hits_are_as_many_as_memcacheds() {
    let (flat, one, steep) = (Zipf::new(0.8), Zipf::new(1.0), Zipf::new(1.2));
    let loads = [
        ("zipf 0.8", load(&flat, 0, 0)),
        ("zipf 1.0", load(&one, 0, 0)),
        ("zipf 1.2", load(&steep, 0, 0)),
        ("zipf 1.0 and a scan", load(&one, KEYS, 25)),
        ("zipf 1.0 and a loop", load(&one, 4_000, 50)),
    ];
    for (name, load) in loads {
        let (ours, theirs) = (of_dictionary(&load), of_memcached(&load));
        println!("{name}: {ours:.4}, memcached {theirs:.4}");
        assert!(ours >= theirs, "{name}: {ours:.4} of the requests hit, with memcached {theirs:.4}");
    }
}
