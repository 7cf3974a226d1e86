//! Writes operations; `parse_op` reads them.

use super::names::{host_name, op_name};
use super::print::width_name;
use crate::data::{LineDoes, LineForm, LineKey, Op, Value};
use crate::operands::operands;

/// `v1, v2`.
pub(super) fn list(values: &[Value]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("v{}", value.0)).collect();
    values.join(", ")
}

/// `24` or `v5 + 24`.
pub(super) fn sum(base: Option<Value>, offset: u32) -> String {
    base.map_or(offset.to_string(), |base| format!("v{} + {offset}", base.0))
}

/// `, tail v3 of v4`, as far as it is there.
fn tail(from: Option<Value>, of: Option<Value>) -> String {
    let part = |word: &str, value: Option<Value>| {
        value.map(|value| format!("{word} v{}", value.0)).unwrap_or_default()
    };
    format!("{}{}", part(", tail", from), part(" of", of))
}

/// ` of v4`, if it is there.
fn of(message: Option<Value>) -> String {
    message.map(|message| format!(" of v{}", message.0)).unwrap_or_default()
}

/// An operation without its result.
pub(super) fn op(op: &Op) -> String {
    let name = op_name(op);
    match op {
        Op::Const(word) => format!("const {word}"),
        Op::ConstBytes { offset, len } => format!("const_bytes {offset}, {len}"),
        Op::OutMark | Op::ResumeState => name.to_owned(),
        Op::HasCapacity { bytes } => format!("{name} {bytes}"),
        Op::FrameGet { slot } | Op::SpillGet { slot } => format!("{name} {slot}"),
        Op::FrameSet { slot, value } | Op::SpillSet { slot, value } => format!("{name} {slot}, v{}", value.0),
        Op::MessageGet { message, slot } => format!("{name} v{}, {slot}", message.0),
        Op::Load { base, offset, width_bytes, big_endian, signed } => {
            let sign = if *signed { 's' } else { 'u' };
            format!("load.{sign}{} {}", width_name(*width_bytes, *big_endian), sum(*base, *offset))
        }
        Op::EmitInt { value, width_bytes, big_endian } => {
            format!("emit_int.{} v{}", width_name(*width_bytes, *big_endian), value.0)
        }
        Op::FormatInt { value, signed, base } => {
            format!("{name}.{}{base} v{}", if *signed { 's' } else { 'u' }, value.0)
        }
        Op::IsInt { bytes: a, base } | Op::ParseInt { bytes: a, base } => {
            format!("{name}.{base} v{}", a.0)
        }
        Op::Call { func, args } => format!("call f{}({})", func.0, list(args)),
        other => bounded_op(name, other),
    }
}

/// Operations with words between their operands (bounds, positions, times), and those with operands alone.
fn bounded_op(name: &str, op: &Op) -> String {
    match op {
        Op::Concat { parts: items, max_bytes } | Op::Pack { items, max_bytes } => {
            format!("{name}({}) max {max_bytes}", list(items))
        }
        Op::Split { bytes, separator, max } => format!("{name} {} max {max}", list(&[*bytes, *separator])),
        Op::Case { bytes: a, max_bytes: max, .. } | Op::WordsNew { words: a, words_max: max } => {
            format!("{name} v{} max {max}", a.0)
        }
        Op::ScanRun { from, class, max } => format!("{name} v{} class {class} max {max}", from.0),
        Op::Seek { from, offset, len, max } => format!("{name} v{}, {offset}, {len} max {max}", from.0),
        Op::Lines { from, left, form } => format!("{name} {} {}", list(&[*from, *left]), line_form(form)),
        Op::CutListed { names, start, end, lines_max } => {
            format!("{name} {} max {lines_max}", list(&[*names, *start, *end]))
        }
        Op::Items { message, from, count, count_max } => {
            format!("{name} {}{} max {count_max}", list(&[*from, *count]), of(*message))
        }
        Op::Written { mark, max_bytes } => format!("{name} v{} max {max_bytes}", mark.0),
        Op::Whole { message } => format!("{name}{}", of(*message)),
        Op::Transform { bytes, max_bytes, .. } => format!("{name} v{} max {max_bytes}", bytes.0),
        Op::Guard { bytes, class, without } => {
            let class = class.map(|class| format!(" class {class}")).unwrap_or_default();
            let without = without.map(|(offset, len)| format!(" without {offset}, {len}"));
            format!("{name} v{}{class}{}", bytes.0, without.unwrap_or_default())
        }
        Op::PackedBytes { packed, index } => format!("{name} v{}, {index}", packed.0),
        Op::StateLoad { word } => format!("{name} {word}"),
        Op::StateStore { word, value } => format!("{name} {word}, v{}", value.0),
        Op::StateLoadBytes { word, max_bytes } => format!("{name} {word} max {max_bytes}"),
        Op::StateStoreBytes { word, max_bytes, value } => {
            format!("{name} {word}, v{} max {max_bytes}", value.0)
        }
        Op::SendRebuilt { chan, mark, tail_from, tail_of } => {
            format!("{name} v{}, v{}{}", chan.0, mark.0, tail(*tail_from, *tail_of))
        }
        Op::AskOriginal { chan, timeout_ns } => format!("{name} v{} timeout v{}", chan.0, timeout_ns.0),
        Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns } => {
            let tail = tail(*tail_from, *tail_of);
            format!("{name} v{}, v{}{tail} timeout v{}", chan.0, mark.0, timeout_ns.0)
        }
        Op::AskMessage { chan, message, timeout_ns } => {
            format!("{name} v{}, v{} timeout v{}", chan.0, message.0, timeout_ns.0)
        }
        Op::Host { call, args, max_bytes: 0 } => format!("{name} {}({})", host_name(*call), list(args)),
        Op::Host { call, args, max_bytes } => {
            format!("{name} {}({}) max {max_bytes}", host_name(*call), list(args))
        }
        // All other operations have operands and nothing else.
        plain => {
            let mut values = Vec::new();
            operands(plain, &mut |value| values.push(value));
            format!("{name} {}", list(&values))
        }
    }
}

/// Prints a line form: its fields, in order.
fn line_form(form: &LineForm) -> String {
    let LineForm { name, name_max, separator, blanks, value, end, max, upto, trim, nocase, push, keys } =
        form;
    let keys: String = keys.iter().map(line_key).collect();
    let (start, len) = end;
    let (trim, nocase) = (if *trim { " trim" } else { "" }, if *nocase { " nocase" } else { "" });
    let push = if *push { " push" } else { "" };
    format!(
        "name {name} max {name_max} separator {separator} blanks {blanks} value {value} end {start}, {len} \
         max {max} upto {upto}{trim}{nocase}{push}{keys}"
    )
}

/// ` key 4, 2 keep 14 once`.
fn line_key(key: &LineKey) -> String {
    let (start, len) = key.name;
    let does = match key.does {
        LineDoes::Stop => "stop".to_owned(),
        LineDoes::Cut => "cut".to_owned(),
        LineDoes::Keep { slot, once, cut } => {
            format!("keep {slot}{}{}", if once { " once" } else { "" }, if cut { " cut" } else { "" })
        }
    };
    format!(" key {start}, {len} {does}")
}
