//! The ready bitmap: which connections have news for a side's event loop.
//! Promises: a bit that is set is taken once; what its setter wrote before is visible to its taker; a look at an empty
//! bitmap costs one load for 4096 connections; a process that dies while it sets a bit leaves nothing half done.
//! Refuses: order among connections; counting. One bit stands for any number of messages.

use crate::raw::WordList;
use crate::sync::Ordering;

/// Bits of a word, and words of a summary's bit.
const BITS: u32 = u64::BITS;

/// Ready connections of one side: a bit for each slot, and a summary with a bit for each word.
#[derive(Clone, Debug)]
pub struct ReadyBitmap {
    words: WordList,
    summary: WordList,
}

impl ReadyBitmap {
    pub(crate) fn new(words: WordList, summary: WordList) -> Self {
        assert!(words.len() <= summary.len() * BITS as usize, "each word has a bit of the summary");
        Self { words, summary }
    }

    /// Sets the bit of a slot. Slots that do not exist are ignored.
    pub fn set(&self, slot: u32) {
        let word = slot / BITS;
        let Some(bits) = self.words.get(word as usize) else { return };
        let bit = 1 << (slot % BITS);
        // A bit that was set already has its summary, or its taker is between the two.
        if bits.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.summary[(word / BITS) as usize].fetch_or(1 << (word % BITS), Ordering::AcqRel);
        }
    }

    /// Returns whether a bit may be set.
    pub fn is_any(&self) -> bool {
        self.summary.iter().any(|summary| summary.load(Ordering::Acquire) != 0)
    }

    /// Takes all bits and calls `run` with the slot of each.
    pub fn take(&self, mut run: impl FnMut(u32)) {
        for (at, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut words = summary.swap(0, Ordering::AcqRel);
            while words != 0 {
                let word = at as u32 * BITS + words.trailing_zeros();
                words &= words - 1;
                // The other process may have set a bit of the summary for which there is no word.
                let Some(bits) = self.words.get(word as usize) else { continue };
                let mut slots = bits.swap(0, Ordering::AcqRel);
                while slots != 0 {
                    run(word * BITS + slots.trailing_zeros());
                    slots &= slots - 1;
                }
            }
        }
    }
}
