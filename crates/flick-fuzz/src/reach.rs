//! Reports to libFuzzer which edges of a program's code the interpreter took, so that it looks for inputs that take
//! others. An engine's work for a grammar depends on the grammar's code: the coverage of the engine's own branches
//! does not guide the fuzzer.
//! Source: libFuzzer's extra counters (FuzzerExtraCounters.cpp), hashed as AFL hashes edges.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use flick_abi::FuncId;
use flick_ir::data::BlockId;

/// Number of counters; edges whose hashes collide share one.
pub const COUNTERS: usize = 1 << 15;

/// The counters of a target.
pub type ReachCounters = [AtomicU8; COUNTERS];

static REACHED: OnceLock<&'static ReachCounters> = OnceLock::new();

/// Makes all later counts go to `counters`.
pub fn count_in(counters: &'static ReachCounters) {
    REACHED.get_or_init(|| counters);
}

/// Counts that the interpreter of program `of` went from one block to another.
pub fn went(of: usize, function: FuncId, from: BlockId, to: BlockId) {
    let Some(counters) = REACHED.get() else { return };
    let edge = [of as u64, u64::from(function.0), u64::from(from.0), u64::from(to.0)];
    let mixed = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let hash = edge.iter().fold(0_u64, mixed);
    let counter = &counters[(hash >> 20) as usize % COUNTERS];
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}
