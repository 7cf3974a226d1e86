//! The limits of checking, in one place.
//! Promises: a program within them is checked in time linear in its size times the depth of its calls.

use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};

/// Most diagnostics reported in one run; what comes after helps nobody.
pub const DIAGNOSTICS_MAX: usize = 64;
/// Most files that one program may use, directly or through others.
pub const FILES_MAX: usize = 32;
/// Most processes of one program.
pub const PROCESSES_MAX: usize = 16;
/// Bound of a `string` or `bytes` field where none is written, in bytes.
pub const DEFAULT_BYTES_MAX: u32 = 1024;
/// Largest bound that may be written for a `string` or `bytes`, in bytes.
pub const WRITTEN_BYTES_MAX: u32 = flick_abi::limits::DICT_VALUE_BYTES_MAX as u32;
/// Longest text or bytes that are joined, in bytes: two of the longest, so that they can be joined before they are cut.
pub const JOINED_BYTES_MAX: u32 = 2 * WRITTEN_BYTES_MAX;
/// Most bytes that the head of a message may have whose fields have these bounds: all of them together a short head, but
/// for those whose own bound is longer, which come on top.
pub(crate) fn head_bytes_max(bounds: impl Iterator<Item = u64>) -> u64 {
    let big: u64 = bounds.filter(|bound| *bound > HEAD_BYTES_MAX as u64).sum();
    (HEAD_BYTES_MAX as u64).saturating_add(big).min(BIG_HEAD_BYTES_MAX as u64)
}
/// Most bytes that a variable-length integer takes on the wire.
pub const VINT_BYTES_MAX: u64 = 9;
/// Deepest nesting of units in units.
pub const UNIT_NESTING_MAX: usize = 8;
/// Nested units in one flattened unit, counting those in nested ones.
pub const UNIT_EXPANSIONS_MAX: usize = 256;
/// Fields and variables of one flattened unit that a frame has room for, one slot each; a length that is computed from
/// several fields takes one more, a `vint` two more.
pub const UNIT_FIELDS_MAX: usize = flick_abi::limits::FRAME_SLOTS_MAX - flick_abi::limits::FRAME_HEAD_SLOTS;
/// Most fields and variables of one structured unit; those that are in use together have `UNIT_FIELDS_MAX` places.
pub const WIRE_FIELDS_MAX: usize = 512;
/// Longest literal of a grammar, in bytes.
pub const LITERAL_BYTES_MAX: usize = 64;
/// Longest delimiter (`&until`), in bytes.
pub const DELIMITER_BYTES_MAX: usize = 16;
/// Most digits of a decimal number in a message.
pub const DECIMAL_DIGITS_MAX: u8 = 19;
/// Most digits of a hexadecimal number in a message.
pub const HEX_DIGITS_MAX: u8 = 16;
/// Most bytes of a LEB128 number in a message.
pub const VARINT_BYTES_MAX: u8 = 9;
/// Largest bound of a list in a message.
pub const LIST_ELEMENTS_MAX: u32 = 1 << 20;
/// Deepest nesting of classes in classes.
pub const CLASS_NESTING_MAX: usize = 16;
/// Most keys of one keyed list that a grammar and its program name.
pub const KEYS_MAX: usize = 48;
/// Most elements of lists that programs read of one message.
pub const LIST_READ_MAX: u64 = flick_abi::limits::ITEMS_MAX as u64;
/// Most entries of a dictionary.
pub const DICT_ENTRIES_MAX: u64 = 1 << 28;
/// How often a snapshot is written where the program does not say.
pub const SNAPSHOT_INTERVAL_NS: u64 = 60_000_000_000;
/// Longest name of a snapshot, in bytes.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 64;
/// Most operations that a rule may be made of once the functions it calls are written out in their places.
pub const RULE_SIZE_MAX: u64 = 1 << 15;
/// Most asks that one message may cause: the replies are all kept, beside the message itself.
pub const ASKED_MAX: u64 = flick_abi::limits::MESSAGES_MAX as u64 - 1;
/// Most work that one message may cause, in steps: one for each operation, call and byte looked at.
pub const WORK_STEPS_MAX: u64 = 1 << 20;
/// Bytes that are copied, compared or hashed in one step.
pub const BYTES_PER_STEP: u64 = 32;
/// Most functions on one path of calls, so that what walks calls needs a bounded stack.
pub const CALL_DEPTH_MAX: usize = 64;
/// Bytes of a word.
pub const WORD_BYTES: u64 = 8;
/// Most bytes that a list may take, in words side by side.
pub const LIST_BYTES_MAX: u64 = 32 * 1024;
/// Most words that one value of a record, tuple, option or variant may have side by side.
pub const VALUE_WORDS_MAX: u32 = 64;
/// Deepest nesting of types in types.
pub const TYPE_NESTING_MAX: usize = 16;
/// Bytes that all attempts of an `update` together may build.
pub const UPDATE_BYTES_MAX: u64 = 8 * 1024;
/// Most rounds of one repetition.
pub const TRIPS_MAX: u32 = 65_536;
/// Most times that bodies of repetitions in one function are checked to find how long a text gets in them.
pub const TRIALS_MAX: usize = 200;
/// Most repetitions inside each other.
pub const LOOP_NESTING_MAX: usize = 4;

const _: () = assert!(DEFAULT_BYTES_MAX <= WRITTEN_BYTES_MAX);
const _: () = assert!(LIST_BYTES_MAX <= flick_abi::limits::BUILT_BYTES_MAX as u64);

/// Shortest interval of an `every`, in nanoseconds: a shorter one would do little else than run.
pub const TIMER_INTERVAL_NS_MIN: u64 = 1_000_000;
