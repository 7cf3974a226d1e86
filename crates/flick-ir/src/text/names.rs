//! Names of operations and of calls of the platform in the text form.

use flick_abi::{HostCall, Policy};

use super::binary_name;
use crate::data::{Op, Transform};

/// Name of an operation.
pub(crate) fn op_name(op: &Op) -> &'static str {
    match op {
        Op::Const(_) => "const",
        Op::ConstBytes { .. } => "const_bytes",
        Op::Binary(op, ..) => binary_name(*op),
        Op::Not(_) => "not",
        Op::Select { .. } => "select",
        Op::Len(_) => "len",
        Op::BytesOffset(_) => "bytes_offset",
        Op::HashBytes(_) => "hash_bytes",
        Op::HashInt(_) => "hash_int",
        Op::BytesEq(..) => "bytes_eq",
        Op::BytesStartsWith(..) => "bytes_starts_with",
        Op::BytesEndsWith(..) => "bytes_ends_with",
        Op::BytesContains(..) => "bytes_contains",
        Op::BytesLess(..) => "bytes_less",
        Op::FrameGet { .. } => "frame_get",
        Op::FrameSet { .. } => "frame_set",
        Op::Load { .. } => "load",
        Op::MessageBytes { .. } => "message_bytes",
        Op::ChanLen(_) => "chan_len",
        Op::ChanElem { .. } => "chan_elem",
        Op::Call { .. } => "call",
        Op::SendOriginal { .. } => "send_original",
        Op::OutMark => "out_mark",
        Op::HasCapacity { .. } => "has_capacity",
        Op::Written { .. } => "written",
        Op::EmitInt { .. } => "emit_int",
        Op::EmitBytes { .. } => "emit_bytes",
        Op::EmitMessage { .. } => "emit_message",
        Op::SendRebuilt { .. } => "send_rebuilt",
        other => wide_name(other),
    }
}

/// As [`op_name`], of what needs more than the message that started the activation.
fn wide_name(op: &Op) -> &'static str {
    match op {
        Op::SendMessage { .. } => "send_message",
        Op::EmitMessageOf { .. } => "emit_message_of",
        Op::MessageGet { .. } => "message_get",
        Op::Concat { .. } => "concat",
        Op::FormatInt { .. } => "format_int",
        Op::FormatAddress(_) => "format_address",
        Op::IsInt { .. } => "is_int",
        Op::ParseInt { .. } => "parse_int",
        Op::Slice { .. } => "slice",
        Op::ByteAt { .. } => "byte_at",
        Op::Find(..) => "find",
        Op::Split { .. } => "split",
        Op::Case { upper: false, .. } => "lower",
        Op::Case { upper: true, .. } => "upper",
        Op::Trim(_) => "trim",
        Op::SameText(..) => "same_text",
        Op::WordsNew { .. } => "words_new",
        Op::WordGet { .. } => "word_get",
        Op::WordSet { .. } => "word_set",
        Op::Pack { .. } => "pack",
        Op::PackedBytes { .. } => "packed_bytes",
        Op::StateLoad { .. } => "state_load",
        Op::StateStore { .. } => "state_store",
        Op::StateLoadBytes { .. } => "state_load_bytes",
        Op::StateStoreBytes { .. } => "state_store_bytes",
        Op::AskOriginal { .. } => "ask_original",
        Op::AskRebuilt { .. } => "ask_rebuilt",
        Op::AskMessage { .. } => "ask_message",
        Op::Answer { .. } => "answer",
        Op::AsMessage(_) => "as_message",
        Op::Fail { .. } => "fail",
        Op::ResumeState => "resume_state",
        Op::SpillSet { .. } => "spill_set",
        Op::SpillGet { .. } => "spill_get",
        Op::IsMissing(_) => "is_missing",
        Op::Host { .. } => "host",
        other => scan_name(other),
    }
}

/// As [`op_name`], of what looks for the end of something or fills and reads lists.
fn scan_name(op: &Op) -> &'static str {
    match op {
        Op::ScanRun { .. } => "scan_run",
        Op::Seek { .. } => "seek",
        Op::Lines { .. } => "lines",
        Op::ItemPush(_) => "item_push",
        Op::Cut { .. } => "cut",
        Op::CutListed { .. } => "cut_listed",
        Op::Insert { .. } => "insert",
        Op::Items { .. } => "items",
        Op::Whole { .. } => "whole",
        Op::HasToken(..) => "has_token",
        Op::Transform { kind, .. } => {
            TRANSFORMS.iter().find(|(_, known)| known == kind).map_or("?", |(name, _)| name)
        }
        Op::Guard { .. } => "guard",
        _ => "?",
    }
}

/// The transforms, by name.
pub(super) const TRANSFORMS: [(&str, Transform); 4] = [
    ("percent_decode", Transform::PercentDecode),
    ("percent_encode", Transform::PercentEncode),
    ("base64_decode", Transform::Base64Decode),
    ("base64_encode", Transform::Base64Encode),
];

/// Ways to pick a backend, by name.
const POLICIES: [(&str, Policy); 5] = [
    ("ketama", Policy::Ketama),
    ("rendezvous", Policy::Rendezvous),
    ("round_robin", Policy::RoundRobin),
    ("least_loaded", Policy::LeastLoaded),
    ("two_choices", Policy::TwoChoices),
];

/// Calls without a number, by name.
const PLAIN_CALLS: [(&str, HostCall); 7] = [
    ("now", HostCall::Now),
    ("random", HostCall::Random),
    ("log", HostCall::Log),
    ("alive", HostCall::Alive),
    ("load", HostCall::Load),
    ("peer", HostCall::Peer),
    ("open_clients", HostCall::OpenClients),
];

/// A call that is made of a number.
type Numbered = fn(u32) -> HostCall;

/// Calls with the number of a counter or dictionary, by name.
const NUMBERED_CALLS: [(&str, Numbered); 13] = [
    ("counter_add", HostCall::CounterAdd),
    ("gauge_set", HostCall::GaugeSet),
    ("counter_get", HostCall::CounterGet),
    ("dict_get", HostCall::DictGet),
    ("dict_has", HostCall::DictHas),
    ("dict_put", HostCall::DictPut),
    ("dict_remove", HostCall::DictRemove),
    ("dict_len", HostCall::DictLen),
    ("dict_bytes", HostCall::DictBytes),
    ("dict_evictions", HostCall::DictEvictions),
    ("dict_begin", HostCall::DictBegin),
    ("dict_commit", HostCall::DictCommit),
    ("dict_commit_removed", HostCall::DictCommitRemoved),
];

/// Number of the counter or dictionary that a call is about.
pub(crate) fn host_number(call: HostCall) -> Option<u32> {
    match call {
        HostCall::CounterAdd(number)
        | HostCall::GaugeSet(number)
        | HostCall::CounterGet(number)
        | HostCall::DictGet(number)
        | HostCall::DictHas(number)
        | HostCall::DictPut(number)
        | HostCall::DictRemove(number)
        | HostCall::DictLen(number)
        | HostCall::DictBytes(number)
        | HostCall::DictEvictions(number)
        | HostCall::DictBegin(number)
        | HostCall::DictCommit(number)
        | HostCall::DictCommitRemoved(number) => Some(number),
        _ => None,
    }
}

/// `now`, `dict_get.3`, `pick.ketama`.
pub(crate) fn host_name(call: HostCall) -> String {
    if let HostCall::Pick(policy) = call {
        let name = POLICIES.iter().find(|(_, known)| *known == policy).map_or("?", |(name, _)| name);
        return format!("pick.{name}");
    }
    if let Some((name, _)) = PLAIN_CALLS.iter().find(|(_, known)| *known == call) {
        return (*name).to_owned();
    }
    let number = host_number(call).unwrap_or(0);
    let name = NUMBERED_CALLS.iter().find(|(_, make)| make(number) == call).map_or("?", |(name, _)| name);
    format!("{name}.{number}")
}

/// Reverse of [`host_name`].
pub(super) fn host_call(word: &str) -> Option<HostCall> {
    if let Some((_, call)) = PLAIN_CALLS.iter().find(|(name, _)| *name == word) {
        return Some(*call);
    }
    let (name, detail) = word.split_once('.')?;
    if name == "pick" {
        return POLICIES.iter().find(|(name, _)| *name == detail).map(|(_, policy)| HostCall::Pick(*policy));
    }
    let (_, make) = NUMBERED_CALLS.iter().find(|(known, _)| *known == name)?;
    Some(make(detail.parse().ok()?))
}
