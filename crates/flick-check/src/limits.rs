//! The limits of the checker.
//! Promises: a program within them is checked in time linear in its size times the depth of its calls.

use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};

/// Most diagnostics reported in one run.
pub const DIAGNOSTICS_MAX: usize = 64;
/// Most files that one program may import, directly or through others.
pub const FILES_MAX: usize = 32;
/// Most processes of one program.
pub const PROCESSES_MAX: usize = 16;
/// Bound of a `string` or `bytes` field without a declared bound, in bytes.
pub const DEFAULT_BYTES_MAX: u32 = 1024;
/// Largest bound that may be declared for a `string` or `bytes`, in bytes.
pub const WRITTEN_BYTES_MAX: u32 = flick_abi::limits::DICT_VALUE_BYTES_MAX as u32;
/// Longest string or bytes that are concatenated, in bytes: two of the longest, so that they can be concatenated
/// before they are truncated.
pub const JOINED_BYTES_MAX: u32 = 2 * WRITTEN_BYTES_MAX;
/// Returns the maximum size of a message head whose fields have these bounds: all of them together a short head,
/// except those with a larger bound, which come on top.
pub(crate) fn head_bytes_max(bounds: impl Iterator<Item = u64>) -> u64 {
    let big: u64 = bounds.filter(|bound| *bound > HEAD_BYTES_MAX as u64).sum();
    (HEAD_BYTES_MAX as u64).saturating_add(big).min(BIG_HEAD_BYTES_MAX as u64)
}
/// Most bytes of an encoded variable-length integer.
pub const VINT_BYTES_MAX: u64 = 9;
/// Deepest nesting of units.
pub const UNIT_NESTING_MAX: usize = 8;
/// Nested units in one flattened unit, counting those in nested ones.
pub const UNIT_EXPANSIONS_MAX: usize = 256;
/// Slots of a frame for the fields and variables of one flattened unit, one each; a length that is computed from
/// several fields uses one more, a `vint` two more.
pub const UNIT_FIELDS_MAX: usize = flick_abi::limits::FRAME_SLOTS_MAX - flick_abi::limits::FRAME_HEAD_SLOTS;
/// Most fields and variables of one structured unit; those that are in use together have `UNIT_FIELDS_MAX` slots.
pub const WIRE_FIELDS_MAX: usize = 512;
/// Longest literal of a grammar, in bytes.
pub const LITERAL_BYTES_MAX: usize = 64;
/// Longest delimiter (`&until`), in bytes.
pub const DELIMITER_BYTES_MAX: usize = 16;
/// Most digits of a decimal integer in a message.
pub const DECIMAL_DIGITS_MAX: u8 = 19;
/// Most digits of a hexadecimal integer in a message.
pub const HEX_DIGITS_MAX: u8 = 16;
/// Most bytes of a LEB128 integer in a message.
pub const VARINT_BYTES_MAX: u8 = 9;
/// Largest bound of a list in a message.
pub const LIST_ELEMENTS_MAX: u32 = 1 << 20;
/// Most keys of one keyed list that a grammar and its program look up.
pub const KEYS_MAX: usize = 48;
/// Most list elements of one message that programs read.
pub const LIST_READ_MAX: u64 = flick_abi::limits::ITEMS_MAX as u64;
/// Most entries of a dictionary.
pub const DICT_ENTRIES_MAX: u64 = 1 << 28;
/// Default interval of snapshots.
pub const SNAPSHOT_INTERVAL_NS: u64 = 60_000_000_000;
/// Longest name of a snapshot, in bytes.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 64;
/// Most operations of a rule after the functions it calls are inlined.
pub const RULE_SIZE_MAX: u64 = 1 << 15;
/// Most asks of one message: the replies are all kept, beside the message itself.
pub const ASKS_PER_MESSAGE_MAX: u64 = flick_abi::limits::MESSAGES_MAX as u64 - 1;
/// Most functions on one path of calls, so that recursion over calls needs a bounded stack.
pub const CALL_DEPTH_MAX: usize = 64;
/// Bytes of a word.
pub const WORD_BYTES: u64 = 8;
/// Most bytes of a list.
pub const LIST_BYTES_MAX: u64 = 32 * 1024;
/// Most words of one value of a record, tuple, option or variant.
pub const VALUE_WORDS_MAX: u32 = 64;
/// Deepest nesting of types.
pub const TYPE_NESTING_MAX: usize = 16;
/// Most bytes that all attempts of an `update` may build together.
pub const UPDATE_BYTES_MAX: u64 = 8 * 1024;
/// Most iterations of one loop.
pub const TRIPS_MAX: u32 = 65_536;
/// Most trial checks of loop bodies in one function to find the bound of a string.
pub const TRIALS_MAX: usize = 200;
/// Deepest nesting of loops.
pub const LOOP_NESTING_MAX: usize = 4;
/// Most `else if` on the way to one block: each is the `else` of the one before it.
pub const ELSE_IFS_MAX: usize = 256;

const _: () = assert!(DEFAULT_BYTES_MAX <= WRITTEN_BYTES_MAX);
const _: () = assert!(LIST_BYTES_MAX <= flick_abi::limits::BUILT_BYTES_MAX as u64);

/// Shortest interval of an `every`, in nanoseconds: a shorter one would use up the worker.
pub const TIMER_INTERVAL_NS_MIN: u64 = 1_000_000;
