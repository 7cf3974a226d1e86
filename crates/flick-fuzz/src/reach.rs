//! Tells libFuzzer which ways through a program's code the interpreter went, so that it looks for inputs that go others.
//! What an engine does for a grammar is in the grammar's code, not in the engine's: counting the engine's own branches guides
//! nobody.
//! Source: libFuzzer's extra counters (FuzzerExtraCounters.cpp), hashed as AFL hashes edges.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use flick_abi::FuncId;
use flick_ir::data::BlockId;

/// Counters; ways share one where their hashes meet.
pub const COUNTERS: usize = 1 << 15;

/// The counters of a target.
pub type Counters = [AtomicU8; COUNTERS];

static REACHED: OnceLock<&'static Counters> = OnceLock::new();

/// Counts in these from here on.
pub fn count_in(counters: &'static Counters) {
    REACHED.get_or_init(|| counters);
}

/// The interpreter of program `of` went from one block to another.
pub fn went(of: usize, function: FuncId, from: BlockId, to: BlockId) {
    let Some(counters) = REACHED.get() else { return };
    let way = [of as u64, u64::from(function.0), u64::from(from.0), u64::from(to.0)];
    let mixed = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let hash = way.iter().fold(0_u64, mixed);
    let counter = &counters[(hash >> 20) as usize % COUNTERS];
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}
