//! What generated code calls: everything that touches runs of bytes, and the list of sends.
//! Promises: each checks every bytes value against its region. A panic in here is a bug of the compiler, never of a
//! peer; it prints the broken invariant and aborts the process, because a panic does not pass through an
//! `extern "C"` function and generated frames cannot be unwound.
//! Not here: meaning; that is `flick_ir::semantics`.

use flick_abi::{Send, SendBody};
use flick_ir::semantics;

use crate::raw::RawCall;

/// A function offered to generated code.
pub(crate) struct Symbol {
    /// Its name for the linker.
    pub(crate) name: &'static str,
    /// Number of words it takes, the call itself included.
    pub(crate) params: usize,
    /// Whether it gives a word back.
    pub(crate) returns: bool,
    /// Where it is.
    pub(crate) address: *const u8,
}

/// Number of a symbol in [`all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolId {
    HashBytes,
    HashInt,
    Equal,
    StartsWith,
    EndsWith,
    Contains,
    Less,
    EmitBytes,
    EmitMessage,
    SendOriginal,
    SendRebuilt,
    Bug,
}

/// Number of symbols.
pub(crate) const SYMBOLS: usize = SymbolId::Bug as usize + 1;

/// Broken invariants that generated code finds itself.
pub(crate) const BUGS: [&str; 2] =
    ["a bytes value ends before it starts", "a rule builds more than its bound"];
/// What a parser returns instead of a step, in its two low bits, when an invariant is broken; an index in [`BUGS`]
/// follows.
pub(crate) const BUG_WORD: i64 = 3;
/// Index in [`BUGS`].
pub(crate) const BUG_BYTES_ORDER: i64 = 0;
/// Index in [`BUGS`].
pub(crate) const BUG_OUT_BOUND: i64 = 1;
/// Index in [`BUGS`].
pub(crate) const BUG_NO_PARSER: i64 = 2;

/// All symbols, in the order of [`SymbolId`].
pub(crate) fn all() -> [Symbol; SYMBOLS] {
    let symbol = |name, params, returns, address| Symbol { name, params, returns, address };
    [
        symbol("flick_hash_bytes", 2, true, hash_bytes as *const u8),
        symbol("flick_hash_int", 1, true, hash_int as *const u8),
        symbol("flick_equal", 3, true, equal as *const u8),
        symbol("flick_starts_with", 3, true, starts_with as *const u8),
        symbol("flick_ends_with", 3, true, ends_with as *const u8),
        symbol("flick_contains", 3, true, contains as *const u8),
        symbol("flick_less", 3, true, less as *const u8),
        symbol("flick_emit_bytes", 2, false, emit_bytes as *const u8),
        symbol("flick_emit_message", 3, false, emit_message as *const u8),
        symbol("flick_send_original", 2, false, send_original as *const u8),
        symbol("flick_send_rebuilt", 4, false, send_rebuilt as *const u8),
        symbol("flick_bug", 1, false, bug as *const u8),
    ]
}

extern "C" fn hash_bytes(call: &RawCall<'_>, value: u64) -> u64 {
    semantics::hash_bytes(call.bytes(value))
}

extern "C" fn hash_int(value: u64) -> u64 {
    semantics::hash_int(value)
}

extern "C" fn equal(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a) == call.bytes(b))
}

extern "C" fn starts_with(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a).starts_with(call.bytes(b)))
}

extern "C" fn ends_with(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a).ends_with(call.bytes(b)))
}

extern "C" fn contains(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(semantics::contains(call.bytes(a), call.bytes(b)))
}

extern "C" fn less(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a) < call.bytes(b))
}

extern "C" fn emit_bytes(call: &mut RawCall<'_>, value: u64) {
    call.emit(value);
}

extern "C" fn emit_message(call: &mut RawCall<'_>, start: u64, end: u64) {
    call.emit_message(start, end);
}

extern "C" fn send_original(call: &mut RawCall<'_>, chan: u64) {
    push(call, chan, SendBody::Original);
}

/// `tail_from` is -1 where nothing follows.
extern "C" fn send_rebuilt(call: &mut RawCall<'_>, chan: u64, mark: u64, tail_from: u64) {
    let len = (call.out_len() as u64).checked_sub(mark).expect("a mark lies inside the output");
    let tail_from = if tail_from == u64::MAX {
        u32::MAX
    } else {
        let from = u32::try_from(tail_from).ok().filter(|from| *from != u32::MAX);
        from.expect("a tail starts inside the message")
    };
    push(call, chan, SendBody::Rebuilt { offset: mark as u32, len: len as u32, tail_from });
}

fn push(call: &mut RawCall<'_>, chan: u64, body: SendBody) {
    let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
    call.sends().push(Send { channel, element, body });
}

/// Panics with the invariant that generated code has found broken.
pub(crate) extern "C" fn bug(which: u64) {
    panic!("{}", BUGS.get(which as usize).unwrap_or(&"generated code broke an invariant without a name"));
}
