//! Tells libFuzzer which ways through a program's code the interpreter went, so that it looks for inputs that go others.
//! What an engine does for a grammar is in the grammar's code, not in the engine's: counting the engine's own branches guides
//! nobody.
//! Source: libFuzzer's extra counters (FuzzerExtraCounters.cpp), hashed as AFL hashes edges.

use std::sync::atomic::{AtomicU8, Ordering};

use flick_abi::FuncId;
use flick_ir::data::BlockId;

/// Counters; ways share one where their hashes meet.
const COUNTERS: usize = 1 << 15;

/// What libFuzzer finds by the name of its section, reads after each input and clears before the next.
#[expect(
    unsafe_code,
    reason = "the name of the section is how libFuzzer finds the counters; nothing else lies in it"
)]
// SAFETY: the section holds bytes of any value, and libFuzzer takes all of it for counters.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static REACHED: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];

/// The interpreter of program `of` went from one block to another.
pub fn went(of: usize, function: FuncId, from: BlockId, to: BlockId) {
    let way = [of as u64, u64::from(function.0), u64::from(from.0), u64::from(to.0)];
    let hash = way
        .iter()
        .fold(0_u64, |hash, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    let counter = &REACHED[(hash >> 20) as usize % COUNTERS];
    let count = counter.load(Ordering::Relaxed);
    counter.store(count.saturating_add(1), Ordering::Relaxed);
}
