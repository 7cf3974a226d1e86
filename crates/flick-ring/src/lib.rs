//! What threads share that do not wait for each other. Here: a bounded ring of byte records, one pushes, one pops. Beside it:
//! calls (`calls.rs`), and things that change hands (`mailbox.rs`).
//! Promises: records arrive whole, once and in order; nothing is allocated after [`ring`]; a side that goes to rest
//! after [`Consumer::wait`] or [`Producer::wait`] said so is called by the other side's next step that helps it.
//! Refuses: carrying buffers by reference (a worker's buffers do not cross threads, so bytes are copied), more than one
//! thread on either side (the types have no `Clone`), calling threads itself: it only says that a call is due.
//! Source: index arithmetic as in Linux `xsk.h` (free-running, masked on use); flags against lost wake-ups as Dekker.
//!
//! The words are atomics with relaxed access, which on the machines we know are plain moves: that costs a copy eight
//! bytes at a time instead of thirty-two and buys a ring without unsafe code that a model checker can run as it is.
#![forbid(unsafe_code)]

pub mod calls;
pub mod limits;
pub mod mailbox;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, shuttle))]
mod schedules;
mod sync;

use limits::{RING_BYTES_MAX, RING_BYTES_MIN};
use sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};

/// Bytes of a word.
const WORD: usize = 8;

/// Keeps what one side writes off the cache lines that the other side writes; two lines, as they are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// What both sides see. Indices count words since the ring was made.
#[derive(Debug)]
struct Shared {
    /// Records: a word with the length in bytes, then the bytes, padded to whole words.
    words: Box<[AtomicU64]>,
    /// Words published; written by the producer.
    head: Padded<AtomicU64>,
    /// Words released; written by the consumer.
    tail: Padded<AtomicU64>,
    /// The consumer rests and is to be called when something is published.
    consumer_waits: Padded<AtomicBool>,
    /// The producer rests and is to be called when half of the ring is free.
    producer_waits: Padded<AtomicBool>,
}

impl Shared {
    fn mask(&self) -> u64 {
        self.words.len() as u64 - 1
    }

    /// Takes a flag; says whether it was set.
    fn take(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::AcqRel)
    }

    /// Sets or takes back the own flag. An exchange, not a store: all writes of a flag are exchanges, so that none can
    /// slip behind a later one.
    fn set(flag: &AtomicBool, to: bool) {
        flag.swap(to, Ordering::AcqRel);
    }
}

/// Makes a ring with room for `bytes`, a power of two; each record takes its length, rounded up to words, and a word.
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

/// The side that pushes.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// Words written, published or not.
    head: u64,
    published: u64,
    /// Words released, as last looked at.
    tail_seen: u64,
}

impl Producer {
    /// Longest record in bytes: with half of the ring free, it fits.
    pub fn record_bytes_max(&self) -> usize {
        (self.shared.words.len() / 2 - 1) * WORD
    }

    /// Copies a record in, visible from the next [`publish`](Self::publish) on. `false`: no room now.
    ///
    /// Cost: a copy; the other side's cache line is read only when the ring seems full.
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

    /// Makes everything pushed visible. `true`: the consumer rests and is to be called.
    #[must_use = "a consumer that rests must be called"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        self.shared.head.0.store(self.head, Ordering::Release);
        // Either this side sees the flag, or the consumer, behind its own fence, sees the new head.
        fence(Ordering::SeqCst);
        Shared::take(&self.shared.consumer_waits.0)
    }

    /// Says that this side is about to rest for want of room. `true`: rest; the consumer's [`release`] that leaves half
    /// of the ring free will ask for a call. `false`: half of it is free already.
    ///
    /// [`release`]: Consumer::release
    pub fn wait(&mut self) -> bool {
        assert!(self.published == self.head, "what a consumer cannot see it cannot make room for");
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

/// The side that pops.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Words read, released or not.
    tail: u64,
    released: u64,
    /// Words published, as last looked at.
    head_seen: u64,
}

impl Consumer {
    /// Length in bytes of the next record, if one has been published.
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

    /// Copies the next record to the front of `out`; its length, or `None` when there is none. Its room is the
    /// producer's again from the next [`release`](Self::release) on.
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

    /// Gives the room of everything popped back. `true`: the producer rests and is to be called.
    #[must_use = "a producer that rests must be called"]
    pub fn release(&mut self) -> bool {
        if self.released == self.tail {
            return false;
        }
        self.released = self.tail;
        self.shared.tail.0.store(self.tail, Ordering::Release);
        // Either this side sees the flag, or the producer, behind its own fence, sees the new tail.
        fence(Ordering::SeqCst);
        // What was published since the last look makes the ring seem freer than it is: a call too early, never too late.
        is_half_free(&self.shared, self.head_seen, self.tail) && Shared::take(&self.shared.producer_waits.0)
    }

    /// Says that this side is about to rest for want of records. `true`: rest; the next [`publish`] will ask for a
    /// call. `false`: something has been published meanwhile.
    ///
    /// [`publish`]: Producer::publish
    pub fn wait(&mut self) -> bool {
        assert!(
            self.released == self.tail,
            "a producer that lacks room must not wait for what is not given back"
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
