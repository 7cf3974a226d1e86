//! The limits of lowering, and their relations.

use flick_abi::limits::{DICT_ATTEMPTS_MAX, HEAD_BYTES_MAX};

/// Longest message that a parser accepts, in bytes. A length that leads beyond it is refused as arithmetic that
/// left its range. It leaves room in the words that carry lengths: `NeedMore` has 62 bits.
pub const MESSAGE_BYTES_MAX: i128 = 1 << 60;
/// Longest field that is waited for although it could be passed on as it arrives, where more of the message stands
/// behind it: a message that is there whole shares its connection with others.
pub const PART_BYTES_MAX: usize = 8 * 1024;
/// Instructions of one function. The checker bounds the work of a rule far below it; inlining cannot pass it.
pub const FUNCTION_INSTS_MAX: usize = 1 << 20;
/// Expressions of a function that gives a tuple, record, option or variant and is lowered where it is called; a longer
/// one is called, and gives its words in memory.
pub const INLINED_PARTS_MAX: usize = 120;
/// Patterns of text with which a `switch` compares one after the other; of more, only with those of the value's length,
/// and of more letters it looks at the value's own.
pub const CHAIN_PATTERNS_MAX: usize = 4;
/// Bytes that all attempts of an `update` together may build; where they would build more, the first attempt already
/// has the entry for itself.
pub const UPDATE_BYTES_MAX: u32 = 8 * 1024;
/// Attempts of an `update`.
pub const UPDATE_ATTEMPTS_MAX: u32 = DICT_ATTEMPTS_MAX as u32;

const _: () = assert!(MESSAGE_BYTES_MAX < 1 << 61);
const _: () = assert!(PART_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(DICT_ATTEMPTS_MAX > 0);
