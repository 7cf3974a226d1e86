//! A set of the directions that move, as bits.

use super::{MOVED, Moved};
use crate::limits::MOVED_MAX;

/// A set of slots.
#[derive(Debug)]
pub struct MovedSet([u64; MOVED_MAX / 64]);

impl MovedSet {
    /// None.
    pub const fn new() -> Self {
        Self([0; MOVED_MAX / 64])
    }

    /// Adds one.
    pub fn add(&mut self, moved: &'static Moved) {
        let offset = core::ptr::from_ref(moved).addr() - MOVED.as_ptr().addr();
        let index = offset / size_of::<Moved>();
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
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
