//! Sets of the directions that move, as bits: one of a call, and one that signal handlers change, too.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::{MOVED, Moved};
use crate::limits::MOVED_MAX;

const WORDS: usize = MOVED_MAX / 64;

/// The word and the bit of a direction.
fn word_and_bit(moved: &'static Moved) -> (usize, u64) {
    let offset = core::ptr::from_ref(moved).addr() - MOVED.as_ptr().addr();
    let index = offset / size_of::<Moved>();
    (index / 64, 1 << (index % 64))
}

/// A set of slots.
#[derive(Debug)]
pub struct MovedSet([u64; WORDS]);

impl MovedSet {
    /// None.
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    /// Adds one.
    pub fn add(&mut self, moved: &'static Moved) {
        let (word, bit) = word_and_bit(moved);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The slots.
    pub fn iter(&self) -> impl Iterator<Item = &'static Moved> {
        let (mut words, mut first, mut rest) = (self.0.iter(), 0, 0_u64);
        core::iter::from_fn(move || {
            while rest == 0 {
                rest = *words.next()?;
                first += 64;
            }
            let index = first - 64 + rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            MOVED.get(index)
        })
    }
}

/// A set of slots that signal handlers change, too.
#[derive(Debug)]
pub struct SharedMovedSet([AtomicU64; WORDS]);

impl SharedMovedSet {
    /// None.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Adds one.
    pub fn add(&self, moved: &'static Moved) {
        let (word, bit) = word_and_bit(moved);
        if let Some(word) = self.0.get(word)
            && word.load(Relaxed) & bit == 0
        {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Relaxed) == 0)
    }

    /// Takes all.
    pub fn take(&self) -> MovedSet {
        MovedSet(core::array::from_fn(|index| self.0.get(index).map_or(0, |word| word.swap(0, Relaxed))))
    }
}
