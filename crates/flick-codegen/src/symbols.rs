//! Runtime functions that generated code calls: all that read or write runs of bytes, and those for the list of sends.
//! Promises: each checks every bytes value against its region. A panic in here is a bug of ours, never of a peer; it
//! passes through the generated code (`unwind`) to the caller of the engine, which ends one service and no other.
//! Not here: meaning; that is `flick_ir::semantics`.

pub(crate) mod frame_lists;
pub(crate) mod host;
pub(crate) mod lines;
pub(crate) mod scan;

use flick_abi::{Ask, BytesRef, Region, Send, SendBody};
use flick_ir::data::Type;
use flick_ir::semantics;
use flick_ir::semantics::PackItem;

use crate::raw::{Area, RawCall};

/// A function offered to generated code.
pub(crate) struct RuntimeSymbol {
    /// Its name for the linker.
    pub(crate) name: &'static str,
    /// Number of words it takes, the call itself included.
    pub(crate) params: usize,
    /// Whether it gives a word back.
    pub(crate) returns: bool,
    /// Address.
    pub(crate) address: *const u8,
}

macro_rules! symbols {
    ($($id:ident = $function:path, $name:literal, $params:literal, $returns:literal;)*) => {
        /// Number of a symbol in [`all`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum SymbolId { $($id),* }

        /// Number of symbols.
        pub(crate) const SYMBOLS: usize = [$(SymbolId::$id),*].len();

        /// All symbols, in the order of [`SymbolId`].
        pub(crate) fn all() -> [RuntimeSymbol; SYMBOLS] {
            [$(RuntimeSymbol { name: $name, params: $params, returns: $returns, address: $function as *const u8 }),*]
        }
    };
}

symbols! {
    HashBytes = hash_bytes, "flick_hash_bytes", 2, true;
    HashInt = hash_int, "flick_hash_int", 1, true;
    Equal = equal, "flick_equal", 3, true;
    StartsWith = starts_with, "flick_starts_with", 3, true;
    EndsWith = ends_with, "flick_ends_with", 3, true;
    Contains = contains, "flick_contains", 3, true;
    Less = less, "flick_less", 3, true;
    SameText = same_text, "flick_same_text", 3, true;
    Find = find, "flick_find", 3, true;
    Trim = trim, "flick_trim", 2, true;
    ByteAt = byte_at, "flick_byte_at", 3, true;
    IsInt = is_int, "flick_is_int", 3, true;
    ParseInt = parse_int, "flick_parse_int", 3, true;
    FormatInt = format_int, "flick_format_int", 4, true;
    Concat = concat, "flick_concat", 4, true;
    Split = split, "flick_split", 4, true;
    Case = case, "flick_case", 4, true;
    WordsNew = words_new, "flick_words_new", 3, true;
    WordGet = word_get, "flick_word_get", 3, true;
    WordSet = word_set, "flick_word_set", 4, false;
    Pack = pack, "flick_pack", 4, true;
    PackedBytes = packed_bytes, "flick_packed_bytes", 3, true;
    StateLoadBytes = state_load_bytes, "flick_state_load_bytes", 3, true;
    StateStoreBytes = state_store_bytes, "flick_state_store_bytes", 4, false;
    MessageGet = message_get, "flick_message_get", 4, true;
    EmitBytes = emit_bytes, "flick_emit_bytes", 2, false;
    EmitMessage = emit_message, "flick_emit_message", 4, false;
    SendOriginal = send_original, "flick_send_original", 2, false;
    SendMessage = send_message, "flick_send_message", 3, false;
    SendRebuilt = send_rebuilt, "flick_send_rebuilt", 5, false;
    AskOriginal = ask_original, "flick_ask_original", 3, false;
    AskMessage = ask_message, "flick_ask_message", 4, false;
    AskRebuilt = ask_rebuilt, "flick_ask_rebuilt", 6, false;
    Fail = fail, "flick_fail", 2, false;
    Answer = answer, "flick_answer", 2, true;
    HostNow = host::now, "flick_now", 1, true;
    HostRandom = host::random, "flick_random", 1, true;
    HostLog = host::log, "flick_log", 2, false;
    HostCounterAdd = host::counter_add, "flick_counter_add", 3, false;
    HostGaugeSet = host::gauge_set, "flick_gauge_set", 3, false;
    HostCounterGet = host::counter_get, "flick_counter_get", 2, true;
    HostAlive = host::alive, "flick_alive", 2, true;
    HostLoad = host::load, "flick_load", 2, true;
    HostPeer = host::peer, "flick_peer", 2, true;
    HostPick = host::pick, "flick_pick", 4, true;
    DictGet = host::dict_get, "flick_dict_get", 4, true;
    DictHas = host::dict_has, "flick_dict_has", 3, true;
    DictPut = host::dict_put, "flick_dict_put", 4, false;
    DictRemove = host::dict_remove, "flick_dict_remove", 3, true;
    DictLen = host::dict_len, "flick_dict_len", 2, true;
    DictBytes = host::dict_bytes, "flick_dict_bytes", 2, true;
    DictEvictions = host::dict_evictions, "flick_dict_evictions", 2, true;
    HostOpenClients = host::open_clients, "flick_open_clients", 1, true;
    DictBegin = host::dict_begin, "flick_dict_begin", 5, true;
    DictCommit = host::dict_commit, "flick_dict_commit", 4, true;
    DictCommitRemoved = host::dict_commit_removed, "flick_dict_commit_removed", 3, true;
    ScanRun = scan::scan_run, "flick_scan_run", 5, true;
    Seek = scan::seek, "flick_seek", 6, true;
    Lines = lines::lines, "flick_lines", 6, true;
    Guard = scan::guard, "flick_guard", 5, true;
    FormatAddress = format_address, "flick_format_address", 2, true;
    Cut = frame_lists::cut, "flick_cut", 3, true;
    CutListed = frame_lists::cut_listed, "flick_cut_listed", 5, true;
    Insert = frame_lists::insert, "flick_insert", 3, true;
    Items = frame_lists::items, "flick_items", 5, true;
    Whole = frame_lists::whole, "flick_whole", 2, true;
    HasToken = frame_lists::has_token, "flick_has_token", 3, true;
    Transform = frame_lists::transform, "flick_transform", 4, true;
    Bug = bug, "flick_bug", 1, false;
}

/// Broken invariants that generated code finds itself.
pub(crate) const BUGS: [&str; 5] = [
    "a bytes value ends before it starts",
    "a rule builds more than its bound",
    "the platform parses only with parsers",
    "a channel is one of the program's",
    "the lists of a message hold more items than their bound",
];
/// Value of the two low bits of a parser's result when an invariant is broken; an index in [`BUGS`] follows.
pub(crate) const BUG_WORD: i64 = 3;
/// Index in [`BUGS`].
pub(crate) const BUG_BYTES_ORDER: i64 = 0;
/// Index in [`BUGS`].
pub(crate) const BUG_OUT_BOUND: i64 = 1;
/// Index in [`BUGS`].
pub(crate) const BUG_NO_PARSER: i64 = 2;
/// Index in [`BUGS`].
pub(crate) const BUG_NO_CHANNEL: i64 = 3;
/// Index in [`BUGS`].
pub(crate) const BUG_ITEMS: i64 = 4;

extern "C-unwind" fn hash_bytes(call: &RawCall<'_>, value: u64) -> u64 {
    semantics::hash_bytes(call.bytes(value))
}

extern "C-unwind" fn hash_int(value: u64) -> u64 {
    semantics::hash_int(value)
}

extern "C-unwind" fn equal(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a) == call.bytes(b))
}

extern "C-unwind" fn starts_with(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a).starts_with(call.bytes(b)))
}

extern "C-unwind" fn ends_with(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a).ends_with(call.bytes(b)))
}

extern "C-unwind" fn contains(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(semantics::contains(call.bytes(a), call.bytes(b)))
}

extern "C-unwind" fn less(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(call.bytes(a) < call.bytes(b))
}

extern "C-unwind" fn same_text(call: &RawCall<'_>, a: u64, b: u64) -> u64 {
    u64::from(semantics::same_text(call.bytes(a), call.bytes(b)))
}

extern "C-unwind" fn find(call: &RawCall<'_>, bytes: u64, needle: u64) -> u64 {
    semantics::find(call.bytes(bytes), call.bytes(needle)) as u64
}

extern "C-unwind" fn trim(call: &RawCall<'_>, value: u64) -> u64 {
    semantics::trim(BytesRef(value), call.bytes(value)).0
}

extern "C-unwind" fn byte_at(call: &RawCall<'_>, value: u64, index: u64) -> u64 {
    semantics::byte_at(call.bytes(value), index as i64) as u64
}

extern "C-unwind" fn is_int(call: &RawCall<'_>, value: u64, base: u64) -> u64 {
    u64::from(semantics::parse_int(call.bytes(value), base as u8).is_some())
}

extern "C-unwind" fn parse_int(call: &RawCall<'_>, value: u64, base: u64) -> u64 {
    semantics::parse_int(call.bytes(value), base as u8).unwrap_or(0) as u64
}

/// `signed`: the sign counts.
extern "C-unwind" fn format_int(call: &mut RawCall<'_>, value: u64, base: u64, signed: u64) -> u64 {
    let (digits, len) = semantics::format_int(value, signed != 0, base as u8);
    call.split(len).1.copy_from_slice(&digits[..len]);
    call.grow(len)
}

extern "C-unwind" fn format_address(call: &mut RawCall<'_>, value: u64) -> u64 {
    let (text, len) = semantics::format_address(call.bytes(value));
    call.split(len).1.copy_from_slice(&text[..len]);
    call.grow(len)
}

/// `parts`: the first of `count` words on the caller's stack.
extern "C-unwind" fn concat(call: &mut RawCall<'_>, parts: Area, count: u64, max_bytes: u64) -> u64 {
    let parts = parts.words(count);
    let len: usize = parts.iter().map(|part| BytesRef(*part).len() as usize).sum();
    assert!(len as u64 <= max_bytes, "a rule joins more bytes than its bound");
    let (regions, mut free) = call.split(len);
    for part in parts {
        let bytes = regions.bytes(*part);
        let (target, rest) = free.split_at_mut(bytes.len());
        target.copy_from_slice(bytes);
        free = rest;
    }
    call.grow(len)
}

extern "C-unwind" fn split(call: &mut RawCall<'_>, value: u64, separator: u64, max: u64) -> u64 {
    let (regions, free) = call.split(max as usize * 8);
    let (bytes, separator) = (regions.bytes(value), regions.bytes(separator));
    let len = semantics::split(BytesRef(value), bytes, separator, max as u32, free);
    call.grow(len.expect("there is room for all parts"))
}

extern "C-unwind" fn case(call: &mut RawCall<'_>, value: u64, upper: u64, max_bytes: u64) -> u64 {
    let len = BytesRef(value).len() as usize;
    assert!(len as u64 <= max_bytes, "text in another case is longer than its bound");
    let (regions, free) = call.split(len);
    let len = semantics::case(regions.bytes(value), upper != 0, free);
    call.grow(len.expect("there is room for text in another case"))
}

extern "C-unwind" fn words_new(call: &mut RawCall<'_>, count: u64, max: u64) -> u64 {
    assert!(count <= max, "a list is longer than its bound");
    let len = count as usize * 8;
    call.split(len).1.fill(0);
    call.grow(len)
}

extern "C-unwind" fn word_get(call: &RawCall<'_>, value: u64, index: u64) -> u64 {
    semantics::word_get(call.bytes(value), index as i64)
}

extern "C-unwind" fn word_set(call: &mut RawCall<'_>, value: u64, index: u64, word: u64) {
    let target = BytesRef(value);
    assert!(target.region() == Region::Out as u64, "only a list under construction is written to");
    let start = target.offset() as usize;
    let list = call.out_mut().get_mut(start..start + target.len() as usize);
    let list = list.expect("a list lies inside the output");
    semantics::word_set(list, index as i64, word).expect("a list is written inside its length");
}

/// `items`: the first of `count` pairs on the caller's stack: a word, and 1 if it is a bytes value.
extern "C-unwind" fn pack(call: &mut RawCall<'_>, items: Area, count: u64, max_bytes: u64) -> u64 {
    let items = items.words(count * 2);
    let items = items.chunks_exact(2);
    let payload: u64 =
        items.clone().filter(|item| item[1] != 0).map(|item| u64::from(BytesRef(item[0]).len())).sum();
    let len = count * 8 + payload;
    assert!(len <= max_bytes, "packed values are longer than their bound");
    let (regions, free) = call.split(len as usize);
    let items = items.map(|item| match item[1] {
        0 => PackItem::Word(item[0]),
        _ => PackItem::Bytes(regions.bytes(item[0])),
    });
    let len = semantics::pack(items, free);
    call.grow(len.expect("there is room for packed values"))
}

extern "C-unwind" fn packed_bytes(call: &RawCall<'_>, value: u64, index: u64) -> u64 {
    semantics::packed_bytes(BytesRef(value), call.bytes(value), index as u32).0
}

/// `area`: the length word of bytes in the session's state.
extern "C-unwind" fn state_load_bytes(call: &mut RawCall<'_>, area: Area, max_bytes: u64) -> u64 {
    let max_bytes = max_bytes as u32;
    let state = area.words(u64::from(semantics::state_words(max_bytes)));
    let (_, free) = call.split(max_bytes as usize);
    let len = semantics::state_load_bytes(state, 0, max_bytes, free);
    call.grow(len.expect("the state has room for its bytes"))
}

extern "C-unwind" fn state_store_bytes(call: &RawCall<'_>, area: Area, max_bytes: u64, value: u64) {
    let bytes = call.bytes(value);
    assert!(bytes.len() as u64 <= max_bytes, "bytes of a session's state are longer than their bound");
    let state = area.words_mut(u64::from(semantics::state_words(max_bytes as u32)));
    semantics::state_store_bytes(state, 0, bytes).expect("the state has room for its bytes");
}

/// `kind`: 0 a word, 1 a boolean, 2 bytes.
extern "C-unwind" fn message_get(call: &RawCall<'_>, message: u64, slot: u64, kind: u64) -> u64 {
    let ty = [Type::Uint, Type::Bool, Type::Bytes][kind as usize];
    let message = number(message);
    semantics::message_get(call.frame_slot(message, slot as usize), message, ty)
}

extern "C-unwind" fn emit_bytes(call: &mut RawCall<'_>, value: u64) {
    call.emit(value);
}

extern "C-unwind" fn emit_message(call: &mut RawCall<'_>, message: u64, start: u64, end: u64) {
    call.emit_message(number(message), start, end);
}

extern "C-unwind" fn send_original(call: &mut RawCall<'_>, chan: u64) {
    call.sends().push(send(chan, SendBody::Original));
}

extern "C-unwind" fn send_message(call: &mut RawCall<'_>, chan: u64, message: u64) {
    let body = body_of_message(message);
    call.sends().push(send(chan, body));
}

extern "C-unwind" fn send_rebuilt(
    call: &mut RawCall<'_>,
    chan: u64,
    mark: u64,
    tail_from: u64,
    tail_of: u64,
) {
    let body = rebuilt(call, mark, tail_from, tail_of);
    call.sends().push(send(chan, body));
}

extern "C-unwind" fn ask_original(call: &mut RawCall<'_>, chan: u64, timeout_ns: u64) {
    call.asks().push(Ask { send: send(chan, SendBody::Original), timeout_ns: timeout_ns as i64 });
}

extern "C-unwind" fn ask_message(call: &mut RawCall<'_>, chan: u64, message: u64, timeout_ns: u64) {
    let body = body_of_message(message);
    call.asks().push(Ask { send: send(chan, body), timeout_ns: timeout_ns as i64 });
}

extern "C-unwind" fn ask_rebuilt(
    call: &mut RawCall<'_>,
    chan: u64,
    mark: u64,
    tail_from: u64,
    tail_of: u64,
    timeout_ns: u64,
) {
    let body = rebuilt(call, mark, tail_from, tail_of);
    call.asks().push(Ask { send: send(chan, body), timeout_ns: timeout_ns as i64 });
}

extern "C-unwind" fn fail(call: &mut RawCall<'_>, reason: u64) {
    call.fail(reason as u32);
}

extern "C-unwind" fn answer(call: &RawCall<'_>, index: u64) -> u64 {
    semantics::answer(call.answers(), index as i64) as u64
}

/// A message sent as it is; number 0 is the original.
fn body_of_message(message: u64) -> SendBody {
    match number(message) {
        0 => SendBody::Original,
        number => SendBody::Message(number),
    }
}

fn number(message: u64) -> u8 {
    semantics::message_number(message).expect("messages of an activation are numbered below their bound")
}

/// Returns the body that was emitted since `mark`, with the rest of message `tail_of` from `tail_from`; -1: no rest.
fn rebuilt(call: &RawCall<'_>, mark: u64, tail_from: u64, tail_of: u64) -> SendBody {
    let len = (call.out_len() as u64).checked_sub(mark).expect("a mark lies inside the output");
    let tail_from = if tail_from == u64::MAX {
        u32::MAX
    } else {
        let from = u32::try_from(tail_from).ok().filter(|from| *from != u32::MAX);
        from.expect("a tail starts inside the message")
    };
    SendBody::Rebuilt { offset: mark as u32, len: len as u32, tail_from, tail_of: number(tail_of) }
}

fn send(chan: u64, body: SendBody) -> Send {
    Send { channel: semantics::chan_index(chan), element: semantics::chan_element(chan), body }
}

/// Panics with the invariant that generated code has found broken.
pub(crate) extern "C-unwind" fn bug(which: u64) {
    panic!("{}", BUGS.get(which as usize).unwrap_or(&"generated code broke an invariant without a name"));
}
