//! Queues between threads that do not wait for each other: a bounded ring of byte records with one producer and one
//! consumer. Beside it: wake-ups (`wakeup.rs`) and a mailbox for items that change threads (`mailbox.rs`).
//! Promises: records arrive whole, once and in order; nothing is allocated after [`ring`]; a side that sleeps after
//! [`Consumer::prepare_wait`] or [`Producer::prepare_wait`] returned `true` is woken by the other side's next step that
//! lets it continue.
//! Refuses: carrying buffers by reference (a worker's buffers do not cross threads, so bytes are copied); more than one
//! thread per side (the types have no `Clone`); waking threads itself: it only returns that a wake-up is due.
//! Source: index arithmetic as in Linux `xsk.h` (free-running, masked on use); flags against lost wake-ups as Dekker.
//!
//! The words are atomics with relaxed access, which compile to plain moves on x86-64 and AArch64. A copy so moves eight
//! bytes at a time instead of thirty-two, and the ring needs no unsafe code and runs under a model checker unchanged.
#![forbid(unsafe_code)]

pub mod limits;
pub mod mailbox;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, shuttle))]
mod schedules;
mod sync;
pub mod wakeup;

use limits::{RING_BYTES_MAX, RING_BYTES_MIN};
use sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};

/// Bytes of a word.
const WORD: usize = 8;

/// Keeps the fields of the two sides on different cache lines; two lines each, as processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The memory that both sides share. Indices count words since the ring was created.
#[derive(Debug)]
struct Shared {
    /// Records: a word with the length in bytes, then the bytes, padded to whole words.
    words: Box<[AtomicU64]>,
    /// Words published; written by the producer.
    head: Padded<AtomicU64>,
    /// Words released; written by the consumer.
    tail: Padded<AtomicU64>,
    /// The consumer sleeps; the next publish must wake it.
    consumer_waits: Padded<AtomicBool>,
    /// The producer sleeps; a release that leaves half of the ring free must wake it.
    producer_waits: Padded<AtomicBool>,
}

impl Shared {
    fn mask(&self) -> u64 {
        self.words.len() as u64 - 1
    }

    /// Clears a flag; returns whether it was set.
    fn take(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::AcqRel)
    }

    /// Sets or clears the caller's own flag. An exchange, not a store: all writes of a flag are exchanges, so that none
    /// is ordered after a later one.
    fn set(flag: &AtomicBool, to: bool) {
        flag.swap(to, Ordering::AcqRel);
    }
}

/// Creates a ring of `bytes` bytes, a power of two. A record takes its length, rounded up to whole words, and one word.
///
/// Panics when `bytes` is not a power of two within [`limits`].
pub fn ring(bytes: usize) -> (Producer, Consumer) {
    assert!(bytes.is_power_of_two(), "a ring's size is a power of two");
    assert!((RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes), "a ring's size is within its limits");
    let shared = Arc::new(Shared {
        words: (0..bytes / WORD).map(|_| AtomicU64::new(0)).collect(),
        head: Padded(AtomicU64::new(0)),
        tail: Padded(AtomicU64::new(0)),
        consumer_waits: Padded(AtomicBool::new(false)),
        producer_waits: Padded(AtomicBool::new(false)),
    });
    let producer = Producer { shared: Arc::clone(&shared), head: 0, published: 0, tail_seen: 0 };
    (producer, Consumer { shared, tail: 0, released: 0, head_seen: 0 })
}

/// The producing side.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// Words written, published or not.
    head: u64,
    published: u64,
    /// Words released, as last read.
    tail_seen: u64,
}

impl Producer {
    /// Returns the longest record in bytes: it fits while half of the ring is free.
    pub fn record_bytes_max(&self) -> usize {
        (self.shared.words.len() / 2 - 1) * WORD
    }

    /// Copies a record in; the consumer sees it after the next [`publish`](Self::publish). `false`: the ring is full.
    ///
    /// Cost: a copy; the other side's cache line is read only when the ring appears full.
    /// Panics when the record is longer than [`record_bytes_max`](Self::record_bytes_max).
    pub fn push(&mut self, record: &[u8]) -> bool {
        assert!(record.len() <= self.record_bytes_max(), "a record is not longer than its bound");
        let need = 1 + record.len().div_ceil(WORD) as u64;
        let capacity = self.shared.words.len() as u64;
        if self.head + need - self.tail_seen > capacity {
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
            if self.head + need - self.tail_seen > capacity {
                return false;
            }
        }
        let words = &self.shared.words;
        let mask = self.shared.mask();
        words[(self.head & mask) as usize].store(record.len() as u64, Ordering::Relaxed);
        let start = ((self.head + 1) & mask) as usize;
        let (whole, rest) = record.as_chunks::<WORD>();
        let straight = whole.len().min(words.len() - start);
        let (first, wrapped) = whole.split_at(straight);
        for (word, bytes) in words[start..].iter().zip(first) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        for (word, bytes) in words.iter().zip(wrapped) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            let at = ((self.head + need - 1) & mask) as usize;
            words[at].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        self.head += need;
        true
    }

    /// Makes all pushed records visible. `true`: the consumer sleeps and the caller must wake it.
    #[must_use = "a sleeping consumer must be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        self.shared.head.0.store(self.head, Ordering::Release);
        // Either this side reads the flag, or the consumer, after its own fence, reads the new head.
        fence(Ordering::SeqCst);
        Shared::take(&self.shared.consumer_waits.0)
    }

    /// Announces that this side is about to sleep because the ring is full. `true`: sleep; the [`release`] that leaves
    /// half of the ring free returns that this side must be woken. `false`: half of it is free already.
    ///
    /// [`release`]: Consumer::release
    pub fn prepare_wait(&mut self) -> bool {
        assert!(self.published == self.head, "a consumer cannot release records that are not published");
        Shared::set(&self.shared.producer_waits.0, true);
        fence(Ordering::SeqCst);
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        let waits = !is_half_free(&self.shared, self.head, self.tail_seen);
        if !waits {
            Shared::set(&self.shared.producer_waits.0, false);
        }
        waits
    }
}

/// The consuming side.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Words read, released or not.
    tail: u64,
    released: u64,
    /// Words published, as last read.
    head_seen: u64,
}

impl Consumer {
    /// Returns the length in bytes of the next published record.
    pub fn front_bytes(&mut self) -> Option<usize> {
        if self.tail == self.head_seen {
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
            if self.tail == self.head_seen {
                return None;
            }
        }
        let at = (self.tail & self.shared.mask()) as usize;
        Some(self.shared.words[at].load(Ordering::Relaxed) as usize)
    }

    /// Copies the next record to the front of `out` and returns its length; `None` when there is none. The next
    /// [`release`](Self::release) frees its words.
    ///
    /// Panics when `out` is too short: see [`front_bytes`](Self::front_bytes).
    pub fn pop(&mut self, out: &mut [u8]) -> Option<usize> {
        let len = self.front_bytes()?;
        let (words, mask) = (&self.shared.words, self.shared.mask());
        let start = ((self.tail + 1) & mask) as usize;
        let (whole, rest) = out[..len].as_chunks_mut::<WORD>();
        let straight = whole.len().min(words.len() - start);
        let (first, wrapped) = whole.split_at_mut(straight);
        for (bytes, word) in first.iter_mut().zip(&words[start..]) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        for (bytes, word) in wrapped.iter_mut().zip(words.iter()) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let taken = 1 + len.div_ceil(WORD) as u64;
        if !rest.is_empty() {
            let at = ((self.tail + taken - 1) & mask) as usize;
            let last = words[at].load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        self.tail += taken;
        Some(len)
    }

    /// Frees the words of all popped records. `true`: the producer sleeps and the caller must wake it.
    #[must_use = "a sleeping producer must be woken"]
    pub fn release(&mut self) -> bool {
        if self.released == self.tail {
            return false;
        }
        self.released = self.tail;
        self.shared.tail.0.store(self.tail, Ordering::Release);
        // Either this side reads the flag, or the producer, after its own fence, reads the new tail.
        fence(Ordering::SeqCst);
        // The ring may be fuller than `head_seen` shows: the wake-up may come too early, never too late.
        is_half_free(&self.shared, self.head_seen, self.tail) && Shared::take(&self.shared.producer_waits.0)
    }

    /// Announces that this side is about to sleep because the ring is empty. `true`: sleep; the next [`publish`]
    /// returns that this side must be woken. `false`: a record was published meanwhile.
    ///
    /// [`publish`]: Producer::publish
    pub fn prepare_wait(&mut self) -> bool {
        assert!(
            self.released == self.tail,
            "a producer may be waiting for words that this side has not released"
        );
        Shared::set(&self.shared.consumer_waits.0, true);
        fence(Ordering::SeqCst);
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        let waits = self.head_seen == self.tail;
        if !waits {
            Shared::set(&self.shared.consumer_waits.0, false);
        }
        waits
    }
}

fn is_half_free(shared: &Shared, head: u64, tail: u64) -> bool {
    head - tail <= shared.words.len() as u64 / 2
}
