//! Bounds of this crate, and their relations.

use flick_abi::limits::FRAME_SLOTS_MAX;

/// Channels of a program: their index is 16 bits of a channel value.
pub const CHANNELS_MAX: usize = 1 << 16;
/// Farthest offset of a load from its base, in bytes; what a machine's addressing reaches.
pub const LOAD_OFFSET_MAX: u32 = i32::MAX as u32;
/// Bytes that one load reads at most.
pub const LOAD_BYTES_MAX: u32 = 8;
/// Parts that a split makes at most.
pub const SPLIT_PARTS_MAX: u32 = 1024;
/// Longest bytes that a parser seeks, and that a guard keeps out of a field.
pub const NEEDLE_BYTES_MAX: u32 = 16;
/// Longest end of a line that is passed over.
pub const LINE_END_BYTES_MAX: u32 = 2;
/// Names in a list whose lines are cut: each line is compared with all of them.
pub const LISTED_NAMES_MAX: usize = 32;
/// Rounds of the passes over one function; each either shrinks it or is the last.
pub const PASS_ROUNDS_MAX: usize = 4;
/// Calls that are followed to find a look-up by a field of a rule's message.
pub const LOOKUP_CALLS_MAX: usize = 1024;

/// Instructions of a block that may be copied into a predecessor that knows its condition.
pub const DUPLICATE_INSTS_MAX: usize = 16;
/// Instructions that copying may add to a function, for each that it has.
pub const DUPLICATE_GROWTH_MAX: usize = 1;

const _: () = assert!(FRAME_SLOTS_MAX <= u16::MAX as usize);
