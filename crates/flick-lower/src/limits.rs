//! The limits of lowering, and their relations.

/// Longest message that a parser accepts, in bytes. A length that leads beyond it is refused as arithmetic that
/// left its range. It leaves room in the words that carry lengths: `NeedMore` has 62 bits.
pub const MESSAGE_BYTES_MAX: i128 = 1 << 60;
/// Instructions of one function. The checker bounds the work of a rule far below it; inlining cannot pass it.
pub const FUNCTION_INSTS_MAX: usize = 1 << 20;

const _: () = assert!(MESSAGE_BYTES_MAX < 1 << 61);
