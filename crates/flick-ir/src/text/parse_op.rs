//! Reads operations; `print_op` writes them.

use super::BINARIES;
use super::names::{TRANSFORMS, host_call};
use super::parse::{Parsed, Reader};
use crate::data::{LineDoes, LineForm, LineKey, Op, Value};

/// An operation after its first word.
pub(super) fn op(reader: &mut Reader, word: &str) -> Parsed<Op> {
    if let Some((_, op)) = BINARIES.iter().find(|(name, _)| *name == word) {
        return Ok(Op::Binary(*op, reader.value()?, reader.comma_value()?));
    }
    if let Some((name, detail)) = word.split_once('.') {
        return dotted(reader, name, detail);
    }
    Ok(match word {
        "const" => Op::Const(reader.number()?),
        "const_bytes" => {
            let offset = reader.number()?;
            reader.mark(",")?;
            Op::ConstBytes { offset, len: reader.number()? }
        }
        "not" => Op::Not(reader.value()?),
        "select" => Op::Select { cond: reader.value()?, a: reader.comma_value()?, b: reader.comma_value()? },
        "bytes_offset" => Op::BytesOffset(reader.value()?),
        "len" => Op::Len(reader.value()?),
        "hash_bytes" => Op::HashBytes(reader.value()?),
        "hash_int" => Op::HashInt(reader.value()?),
        "bytes_eq" => Op::BytesEq(reader.value()?, reader.comma_value()?),
        "bytes_starts_with" => Op::BytesStartsWith(reader.value()?, reader.comma_value()?),
        "bytes_ends_with" => Op::BytesEndsWith(reader.value()?, reader.comma_value()?),
        "bytes_contains" => Op::BytesContains(reader.value()?, reader.comma_value()?),
        "bytes_less" => Op::BytesLess(reader.value()?, reader.comma_value()?),
        "frame_get" => Op::FrameGet { slot: reader.number()? },
        "frame_set" => Op::FrameSet { slot: reader.number()?, value: reader.comma_value()? },
        "message_bytes" => Op::MessageBytes { start: reader.value()?, end: reader.comma_value()? },
        "chan_len" => Op::ChanLen(reader.value()?),
        "chan_elem" => Op::ChanElem { chan: reader.value()?, index: reader.comma_value()? },
        "call" => Op::Call { func: reader.func()?, args: reader.args()? },
        "out_mark" => Op::OutMark,
        "has_capacity" => Op::HasCapacity { bytes: reader.number()? },
        "emit_bytes" => Op::EmitBytes { value: reader.value()? },
        "emit_message" => Op::EmitMessage { start: reader.value()?, end: reader.comma_value()? },
        "slice" => {
            Op::Slice { bytes: reader.value()?, start: reader.comma_value()?, end: reader.comma_value()? }
        }
        "byte_at" => Op::ByteAt { bytes: reader.value()?, index: reader.comma_value()? },
        "find" => Op::Find(reader.value()?, reader.comma_value()?),
        "trim" => Op::Trim(reader.value()?),
        "same_text" => Op::SameText(reader.value()?, reader.comma_value()?),
        "word_get" => Op::WordGet { bytes: reader.value()?, index: reader.comma_value()? },
        "word_set" => {
            Op::WordSet { bytes: reader.value()?, index: reader.comma_value()?, value: reader.comma_value()? }
        }
        "is_missing" => Op::IsMissing(reader.value()?),
        "as_message" => Op::AsMessage(reader.value()?),
        _ => match bounded(reader, word)? {
            Some(op) => op,
            None => effect(reader, word)?,
        },
    })
}

/// `load.u32be`, `parse_int.10`.
fn dotted(reader: &mut Reader, name: &str, detail: &str) -> Parsed<Op> {
    let base = |reader: &Reader| {
        detail
            .trim_start_matches(['s', 'u'])
            .parse()
            .map_err(|_| reader.error(format!("`{detail}` is no base")))
    };
    Ok(match name {
        "load" => {
            let signed = detail.starts_with('s');
            let (width_bytes, big_endian) = reader.width(detail.trim_start_matches(['s', 'u']))?;
            let (base, offset) = reader.sum()?;
            Op::Load { base, offset, width_bytes, big_endian, signed }
        }
        "emit_int" => {
            let (width_bytes, big_endian) = reader.width(detail)?;
            Op::EmitInt { value: reader.value()?, width_bytes, big_endian }
        }
        "format_int" => {
            let base = base(reader)?;
            Op::FormatInt { signed: detail.starts_with('s'), base, value: reader.value()? }
        }
        "is_int" => Op::IsInt { base: base(reader)?, bytes: reader.value()? },
        "parse_int" => Op::ParseInt { base: base(reader)?, bytes: reader.value()? },
        _ => return Err(reader.error(format!("`{name}.{detail}` is no operation"))),
    })
}

/// ` max 12`.
fn max(reader: &mut Reader) -> Parsed<u32> {
    reader.expect_word("max")?;
    reader.number()
}

/// Operations with a bound of their own.
fn bounded(reader: &mut Reader, word: &str) -> Parsed<Option<Op>> {
    Ok(Some(match word {
        "concat" => Op::Concat { parts: reader.args()?, max_bytes: max(reader)? },
        "pack" => Op::Pack { items: reader.args()?, max_bytes: max(reader)? },
        "split" => Op::Split { bytes: reader.value()?, separator: reader.comma_value()?, max: max(reader)? },
        "lower" | "upper" => {
            Op::Case { upper: word == "upper", bytes: reader.value()?, max_bytes: max(reader)? }
        }
        "words_new" => Op::WordsNew { words: reader.value()?, words_max: max(reader)? },
        "packed_bytes" => {
            let packed = reader.value()?;
            reader.mark(",")?;
            Op::PackedBytes { packed, index: reader.number()? }
        }
        "message_get" => {
            let message = reader.value()?;
            reader.mark(",")?;
            Op::MessageGet { message, slot: reader.number()? }
        }
        "state_load" => Op::StateLoad { word: reader.number()? },
        "state_store" => Op::StateStore { word: reader.number()?, value: reader.comma_value()? },
        "state_load_bytes" => Op::StateLoadBytes { word: reader.number()?, max_bytes: max(reader)? },
        "state_store_bytes" => {
            let (word, value) = (reader.number()?, reader.comma_value()?);
            Op::StateStoreBytes { word, value, max_bytes: max(reader)? }
        }
        "host" => {
            let name = reader.word()?;
            let call = host_call(&name)
                .ok_or_else(|| reader.error(format!("`{name}` is no call of the platform")))?;
            let args = reader.args()?;
            let max_bytes = if reader.opt_word("max") { reader.number()? } else { 0 };
            Op::Host { call, args, max_bytes }
        }
        _ => return scan(reader, word),
    }))
}

/// Parses operations that search for an end, or fill and read lists.
fn scan(reader: &mut Reader, word: &str) -> Parsed<Option<Op>> {
    if let Some((_, kind)) = TRANSFORMS.iter().find(|(name, _)| *name == word) {
        return Ok(Some(Op::Transform { kind: *kind, bytes: reader.value()?, max_bytes: max(reader)? }));
    }
    Ok(Some(match word {
        "scan_run" => {
            let from = reader.value()?;
            reader.expect_word("class")?;
            Op::ScanRun { from, class: reader.number()?, max: max(reader)? }
        }
        "seek" => {
            let from = reader.value()?;
            reader.mark(",")?;
            let (offset, len) = range(reader)?;
            Op::Seek { from, offset, len, max: max(reader)? }
        }
        "lines" => {
            let (from, left) = (reader.value()?, reader.comma_value()?);
            Op::Lines { from, left, form: Box::new(line_form(reader)?) }
        }
        "format_address" => Op::FormatAddress(reader.value()?),
        "item_push" => Op::ItemPush(reader.value()?),
        "cut" => Op::Cut { start: reader.value()?, end: reader.comma_value()? },
        "insert" => Op::Insert { at: reader.value()?, text: reader.comma_value()? },
        "cut_listed" => {
            let (names, start, end) = (reader.value()?, reader.comma_value()?, reader.comma_value()?);
            Op::CutListed { names, start, end, lines_max: max(reader)? }
        }
        "items" => {
            let (from, count) = (reader.value()?, reader.comma_value()?);
            Op::Items { message: of(reader)?, from, count, count_max: max(reader)? }
        }
        "written" => Op::Written { mark: reader.value()?, max_bytes: max(reader)? },
        "whole" => Op::Whole { message: of(reader)? },
        "has_token" => Op::HasToken(reader.value()?, reader.comma_value()?),
        "guard" => {
            let bytes = reader.value()?;
            let class = if reader.opt_word("class") { Some(reader.number()?) } else { None };
            let without = if reader.opt_word("without") { Some(range(reader)?) } else { None };
            Op::Guard { bytes, class, without }
        }
        _ => return Ok(None),
    }))
}

/// Parses a line form: its fields, in order.
fn line_form(reader: &mut Reader) -> Parsed<LineForm> {
    fn number<T: TryFrom<i128>>(reader: &mut Reader, word: &str) -> Parsed<T> {
        reader.expect_word(word)?;
        reader.number()
    }
    let (name, name_max) = (number(reader, "name")?, max(reader)?);
    let (separator, blanks) = (number(reader, "separator")?, number(reader, "blanks")?);
    let value = number(reader, "value")?;
    reader.expect_word("end")?;
    let end = range(reader)?;
    let (max, upto) = (max(reader)?, number(reader, "upto")?);
    let (trim, nocase) = (reader.opt_word("trim"), reader.opt_word("nocase"));
    let push = reader.opt_word("push");
    let mut keys = Vec::new();
    while reader.opt_word("key") {
        keys.push(LineKey { name: range(reader)?, does: line_does(reader)? });
    }
    Ok(LineForm { name, name_max, separator, blanks, value, end, max, upto, trim, nocase, push, keys })
}

/// `keep 14 once cut`, `cut` or `stop`.
fn line_does(reader: &mut Reader) -> Parsed<LineDoes> {
    if reader.opt_word("keep") {
        let slot = reader.number()?;
        return Ok(LineDoes::Keep { slot, once: reader.opt_word("once"), cut: reader.opt_word("cut") });
    }
    if reader.opt_word("cut") {
        return Ok(LineDoes::Cut);
    }
    reader.expect_word("stop")?;
    Ok(LineDoes::Stop)
}

/// `4, 2`.
fn range(reader: &mut Reader) -> Parsed<(u32, u32)> {
    let offset = reader.number()?;
    reader.mark(",")?;
    Ok((offset, reader.number()?))
}

/// ` of v4`, if it is there.
fn of(reader: &mut Reader) -> Parsed<Option<Value>> {
    Ok(if reader.opt_word("of") { Some(reader.value()?) } else { None })
}

/// `, tail v3 of v4`, as far as it is there.
fn tail(reader: &mut Reader) -> Parsed<(Option<Value>, Option<Value>)> {
    let (mut from, mut of) = (None, None);
    if reader.opt_mark(",") {
        reader.expect_word("tail")?;
        from = Some(reader.value()?);
    }
    if reader.opt_word("of") {
        of = Some(reader.value()?);
    }
    Ok((from, of))
}

/// ` timeout v5`.
fn timeout(reader: &mut Reader) -> Parsed<Value> {
    reader.expect_word("timeout")?;
    reader.value()
}

/// Sends, asks and what belongs to them.
fn effect(reader: &mut Reader, word: &str) -> Parsed<Op> {
    Ok(match word {
        "send_original" => Op::SendOriginal { chan: reader.value()? },
        "send_message" => Op::SendMessage { chan: reader.value()?, message: reader.comma_value()? },
        "emit_message_of" => Op::EmitMessageOf {
            message: reader.value()?,
            start: reader.comma_value()?,
            end: reader.comma_value()?,
        },
        "send_rebuilt" => {
            let (chan, mark) = (reader.value()?, reader.comma_value()?);
            let (tail_from, tail_of) = tail(reader)?;
            Op::SendRebuilt { chan, mark, tail_from, tail_of }
        }
        "ask_original" => Op::AskOriginal { chan: reader.value()?, timeout_ns: timeout(reader)? },
        "ask_rebuilt" => {
            let (chan, mark) = (reader.value()?, reader.comma_value()?);
            let (tail_from, tail_of) = tail(reader)?;
            Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns: timeout(reader)? }
        }
        "ask_message" => {
            let (chan, message) = (reader.value()?, reader.comma_value()?);
            Op::AskMessage { chan, message, timeout_ns: timeout(reader)? }
        }
        "answer" => Op::Answer { index: reader.value()? },
        "fail" => Op::Fail { reason: reader.value()? },
        "resume_state" => Op::ResumeState,
        "spill_set" => Op::SpillSet { slot: reader.number()?, value: reader.comma_value()? },
        "spill_get" => Op::SpillGet { slot: reader.number()? },
        other => return Err(reader.error(format!("`{other}` is no operation"))),
    })
}
