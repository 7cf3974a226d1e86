//! Limits that compiler and platform share, and their relations.

/// Slots of a message frame: the head slots and one for each decoded field. Enough for an HTTP proxy that reads what
/// caches and routers do, and eight fields of its access log.
pub const FRAME_SLOTS_MAX: usize = 71;
/// Slots at the front of a frame that are not fields.
pub const FRAME_HEAD_SLOTS: usize = 12;
/// Items of a frame: the elements of all lists of one message that a program reads.
pub const ITEMS_MAX: usize = 256;
/// Ranges of one message that are never forwarded.
pub const CUTS_MAX: usize = 32;
/// Texts that one message gets when it is forwarded.
pub const INSERTS_MAX: usize = 16;
/// Bytes of these texts together.
pub const INSERTED_BYTES_MAX: usize = 512;
/// Messages that one activation of a rule may send.
pub const SENDS_MAX: usize = 256;
/// Asks that one suspension of an activation may wait for; also the longest array for `ask all`.
pub const ASKS_MAX: usize = 64;
/// Messages of one activation: message 0 and all replies to its asks.
pub const MESSAGES_MAX: usize = 200;
/// Words that one activation may keep while it is suspended.
pub const SPILL_WORDS_MAX: usize = 512;
/// Words of state of one session.
pub const STATE_WORDS_MAX: usize = 8 * 1024;
/// Dictionaries of a program.
pub const DICTS_MAX: usize = 64;
/// Longest key of a dictionary, in bytes.
pub const DICT_KEY_BYTES_MAX: usize = 4 * 1024;
/// Longest value of a dictionary, in bytes.
pub const DICT_VALUE_BYTES_MAX: usize = (1 << 20) + 64 * 1024;
/// Attempts of an `update`; the last one locks the entry.
pub const DICT_ATTEMPTS_MAX: i64 = 8;
/// Counters and gauges of a program.
pub const COUNTERS_MAX: usize = 1024;
/// Bytes that one activation of a rule may always build: rebuilt heads of messages and strings.
pub const BUILT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Further bytes that it may build, in branches that are entered only if they fit.
pub const CAPACITY_CHECK_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of the output of an activation.
pub const OUT_BYTES_MAX: usize = BUILT_BYTES_MAX + CAPACITY_CHECK_BYTES_MAX;
/// Longest head of a message, the part that must be contiguous before a rule reads it, without fields whose grammar or
/// record has a larger bound.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Longest head with such fields.
pub const BIG_HEAD_BYTES_MAX: usize = (1 << 20) + 64 * 1024;
/// Zeros that may stand before a number with `&zeros`.
pub const LEADING_ZEROS_MAX: u32 = 64;
/// Fields of a request that are kept while it is in flight.
pub const ECHO_FIELDS_MAX: usize = 4;
/// Largest status code of a reply (`%status`).
pub const STATUS_MAX: u16 = 999;
/// Longest reply that the platform itself writes for a failed request.
pub const FAILURE_BYTES_MAX: usize = 512;
/// Largest offset or length of a bytes value.
pub const BYTES_OFFSET_MAX: u64 = (1 << 28) - 1;
/// Elements of an array of channels.
pub const CHANNEL_ELEMENTS_MAX: usize = 1024;

const _: () = assert!(FRAME_HEAD_SLOTS < FRAME_SLOTS_MAX);
const _: () = assert!((HEAD_BYTES_MAX as u64) <= BYTES_OFFSET_MAX);
const _: () = assert!((OUT_BYTES_MAX as u64) <= BYTES_OFFSET_MAX);
const _: () = assert!(HEAD_BYTES_MAX < BIG_HEAD_BYTES_MAX);
const _: () = assert!(BIG_HEAD_BYTES_MAX < BUILT_BYTES_MAX);
const _: () = assert!(DICT_VALUE_BYTES_MAX <= BIG_HEAD_BYTES_MAX);
const _: () = assert!(MESSAGES_MAX + 3 < 0xff);
const _: () = assert!(ASKS_MAX < MESSAGES_MAX);
