//! Every bound of the front end, in one place.
//! Promises: a source within these bounds is parsed in time and memory linear in its length, on a bounded stack.

/// Longest source accepted, in bytes; anything longer is one error and an empty tree.
pub const SOURCE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Deepest nesting of blocks, brackets and operators. It also bounds the height of the tree, so that code
/// that walks it by recursion (the checker, and dropping the tree) needs a bounded stack.
pub const NESTING_DEPTH_MAX: u32 = 128;

/// Most errors reported for one source; later ones are dropped.
pub const ERRORS_MAX: usize = 64;

/// Longest part of the source quoted inside a message, in characters.
pub(crate) const QUOTE_CHARS_MAX: usize = 24;

/// Most times the parser may look at one token before it consumes it: each of the `NESTING_DEPTH_MAX` levels that end
/// there looks a bounded number of times. More means a loop that makes no progress.
pub(crate) const LOOKS_PER_TOKEN_MAX: u32 = 200 * NESTING_DEPTH_MAX;

/// Number of tokens behind `ask all [` in which the parser looks for the `with` that tells a list of requests from an
/// index.
pub(crate) const ALL_LOOKAHEAD_MAX: usize = 16;

// The tree library counts bytes in 32 bits.
const _: () = assert!(SOURCE_BYTES_MAX < u32::MAX as usize);
