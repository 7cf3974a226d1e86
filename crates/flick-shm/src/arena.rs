//! Rings of one sender in its half of a segment: a buddy allocator in memory of its own.
//! Promises: nothing that the other process can write decides which memory is free; taking and returning a ring costs
//! at most [`RING_ORDER_MAX`] steps and allocates nothing; rings never overlap.
//! Refuses: clearing a ring before its next use; `segment.rs` does.
//! Source: Knowlton, "A Fast Storage Allocator", 1965.

use alloc::boxed::Box;
use alloc::vec;

use crate::limits::{ARENA_BYTES_MAX, ARENA_BYTES_MIN, RING_BYTES_MIN, RING_ORDER_MAX};

/// End of a list.
const NONE: u32 = u32::MAX;
/// Mark of a block that is in use, or is no first unit of a block.
const IN_USE: u8 = u8::MAX;

/// A free block's neighbours in the list of its order.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: u32,
    after: u32,
}

/// Free memory for the rings of one sender.
#[derive(Debug)]
pub struct Arena {
    /// First free block of each order, by number of its first unit.
    free: [u32; RING_ORDER_MAX as usize + 1],
    /// By unit: order of the free block that begins there.
    orders: Box<[u8]>,
    neighbours: Box<[Neighbours]>,
    used_bytes: u64,
}

impl Arena {
    /// Creates an arena of `bytes` bytes, a power of two within the limits.
    ///
    /// Panics otherwise: the caller has checked its configuration.
    pub fn new(bytes: u64) -> Self {
        assert!(bytes.is_power_of_two() && (ARENA_BYTES_MIN..=ARENA_BYTES_MAX).contains(&bytes));
        let units = bytes / RING_BYTES_MIN;
        let mut arena = Self {
            free: [NONE; RING_ORDER_MAX as usize + 1],
            orders: vec![IN_USE; units as usize].into(),
            neighbours: vec![Neighbours { before: NONE, after: NONE }; units as usize].into(),
            used_bytes: 0,
        };
        let order = RING_ORDER_MAX.min(units.ilog2());
        // From the last to the first, so that rings are taken from the front.
        for unit in (0..units as u32).step_by(1 << order).rev() {
            arena.insert(unit, order);
        }
        arena
    }

    /// Returns the bytes that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Takes a ring of `bytes` bytes, rounded up to a size that rings have, and returns its location; `None` if there
    /// is no memory for it.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(RING_BYTES_MIN).max(1).checked_next_power_of_two()?;
        let order = units.ilog2();
        let mut from = (order..=RING_ORDER_MAX).find(|order| self.free[*order as usize] != NONE)?;
        let unit = self.free[from as usize];
        self.remove(unit, from);
        while from > order {
            from -= 1;
            self.insert(unit + (1 << from), from);
        }
        self.used_bytes += RING_BYTES_MIN << order;
        Some(u64::from(unit) << 8 | u64::from(order))
    }

    /// Returns a ring. Its bytes are zero again: the next owner must not see those of this one.
    pub fn give_back(&mut self, location: u64) {
        let (mut unit, mut order) = ((location >> 8) as u32, (location & 0xff) as u32);
        self.used_bytes -= RING_BYTES_MIN << order;
        while order < RING_ORDER_MAX {
            let buddy = unit ^ (1 << order);
            if self.orders.get(buddy as usize) != Some(&(order as u8)) {
                break;
            }
            self.remove(buddy, order);
            unit &= !(1 << order);
            order += 1;
        }
        self.insert(unit, order);
    }

    fn insert(&mut self, unit: u32, order: u32) {
        let first = core::mem::replace(&mut self.free[order as usize], unit);
        self.neighbours[unit as usize] = Neighbours { before: NONE, after: first };
        self.orders[unit as usize] = order as u8;
        if first != NONE {
            self.neighbours[first as usize].before = unit;
        }
    }

    fn remove(&mut self, unit: u32, order: u32) {
        let Neighbours { before, after } = self.neighbours[unit as usize];
        self.orders[unit as usize] = IN_USE;
        if before == NONE {
            self.free[order as usize] = after;
        } else {
            self.neighbours[before as usize].after = after;
        }
        if after != NONE {
            self.neighbours[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::RING_BYTES_MAX;

    fn range(location: u64) -> core::ops::Range<u64> {
        let start = (location >> 8) * RING_BYTES_MIN;
        start..start + (RING_BYTES_MIN << (location & 0xff))
    }

    const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

    proptest! {
        #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn rings_never_overlap_and_all_memory_comes_back(steps in prop::collection::vec(any::<(u8, u8)>(), 1..200)) {
            const BYTES: u64 = 4 * RING_BYTES_MAX;
            let (mut arena, mut taken) = (Arena::new(BYTES), Vec::<u64>::new());
            for (what, size) in steps {
                if what % 3 == 0 && !taken.is_empty() {
                    arena.give_back(taken.swap_remove(size as usize % taken.len()));
                    continue;
                }
                let bytes = RING_BYTES_MIN << (u32::from(size) % (RING_ORDER_MAX + 1));
                let Some(location) = arena.take(bytes) else { continue };
                let new = range(location);
                prop_assert!(new.end - new.start == bytes && new.start.is_multiple_of(bytes) && new.end <= BYTES);
                for other in taken.iter().map(|other| range(*other)) {
                    prop_assert!(new.end <= other.start || other.end <= new.start);
                }
                taken.push(location);
                let used: u64 = taken.iter().map(|location| range(*location)).map(|range| range.end - range.start).sum();
                prop_assert_eq!(arena.used_bytes(), used);
            }
            taken.drain(..).for_each(|location| arena.give_back(location));
            let whole = (0..4).filter(|_| arena.take(RING_BYTES_MAX).is_some()).count();
            prop_assert_eq!((whole, arena.take(1)), (4, None));
        }
    }

    #[test]
    fn sizes_outside_of_the_limits_get_no_ring() {
        let mut arena = Arena::new(ARENA_BYTES_MIN);
        assert_eq!(
            (arena.take(u64::MAX), arena.take(RING_BYTES_MAX + 1), arena.take(8192)),
            (None, None, None)
        );
        assert_eq!((arena.take(0), arena.take(0)), (Some(0), None));
    }
}
