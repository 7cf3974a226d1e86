//! Memory of buffers that have been free for a while goes back to the kernel.
//! Promises: a step discards at most [`RELEASE_STEP_BYTES`] and checks at most [`RELEASE_STEP_SLOTS`] buffers; a buffer
//! in use keeps its memory; the free list, and so the order of `alloc`, stays.
//! Refuses: deciding when. The worker begins a pass every few seconds and makes its steps when no task waits.
//!
//! The free list is last-in-first-out, so load reuses the buffers at its head, and those that a peak has left behind
//! stay at its end. A pass looks for these: each buffer has the number of the pass during which it was freed.

use super::{ClassPool, Pool};
use crate::limits::{RELEASE_AGE_PASSES, RELEASE_STEP_BYTES, RELEASE_STEP_SLOTS};
use crate::raw::FreeRange;

/// Bytes and buffers that are left to a step.
struct Budget {
    bytes: u32,
    slots: u32,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.bytes == 0 || self.slots == 0
    }
}

impl Pool {
    /// Returns whether the buffers of a class, in use or free, may have more than `keep_bytes` of memory.
    #[inline]
    pub fn is_above(&self, keep_bytes: u32) -> bool {
        self.0.classes().iter().any(|class| class.touched_bytes() > u64::from(keep_bytes))
    }

    /// Begins a pass over all buffers.
    pub fn begin_release(&self) {
        for class in self.0.classes() {
            class.pass.set(class.pass.get().checked_add(1).unwrap_or(1));
            class.pass_at.set(0);
        }
    }

    /// Gives back memory of buffers that have been free for [`RELEASE_AGE_PASSES`] passes, but leaves `keep_bytes` to
    /// the free buffers of each class. Returns whether the pass goes on.
    ///
    /// Cost: a system call for each run of adjacent buffers, no allocation; bounded by [`RELEASE_STEP_BYTES`] and
    /// [`RELEASE_STEP_SLOTS`].
    pub fn release_some(&self, keep_bytes: u32) -> bool {
        let mut budget = Budget { bytes: RELEASE_STEP_BYTES, slots: RELEASE_STEP_SLOTS };
        self.0.classes().iter().any(|class| class.release_some(keep_bytes, &mut budget))
    }
}

impl ClassPool {
    fn touched_bytes(&self) -> u64 {
        u64::from(self.live.get() + self.idle.get()) * u64::from(self.class.bytes())
    }

    fn is_above(&self, keep_bytes: u32) -> bool {
        u64::from(self.idle.get()) * u64::from(self.class.bytes()) > u64::from(keep_bytes)
    }

    /// Goes on with the pass until it is over (false) or the budget is spent.
    fn release_some(&self, keep_bytes: u32, budget: &mut Budget) -> bool {
        let end = self.fresh.get();
        while self.is_above(keep_bytes) && self.pass_at.get() + self.page_group <= end {
            if budget.is_spent() {
                return true;
            }
            let start = self.pass_at.get();
            let mut at = start;
            while at + self.page_group <= end
                && !budget.is_spent()
                && self.is_above(keep_bytes)
                && self.forget_group(at)
            {
                at += self.page_group;
                budget.bytes = budget.bytes.saturating_sub(self.page_group * self.class.bytes());
                budget.slots = budget.slots.saturating_sub(self.page_group);
            }
            if at > start {
                let len = self.offset(at) - self.offset(start);
                FreeRange { at: self.offset(start), len }.discard(&self.region);
            } else {
                at += self.page_group;
                budget.slots = budget.slots.saturating_sub(self.page_group);
            }
            self.pass_at.set(at);
        }
        false
    }

    /// Marks the buffers of a page group as without memory, if all have been free for long and one has any. Returns
    /// whether it did; the caller discards their memory.
    fn forget_group(&self, start: u32) -> bool {
        let group = &self.slots[start as usize..(start + self.page_group) as usize];
        let is_old = |freed_in: u16| self.pass.get().wrapping_sub(freed_in) >= RELEASE_AGE_PASSES;
        let is_over = group
            .iter()
            .all(|slot| slot.handles.get() == 0 && (slot.freed_in.get() == 0 || is_old(slot.freed_in.get())));
        let touched = group.iter().filter(|slot| slot.freed_in.get() != 0).count() as u32;
        if !is_over || touched == 0 {
            return false;
        }
        for slot in group {
            slot.freed_in.set(0);
        }
        self.idle.set(self.idle.get() - touched);
        true
    }
}
