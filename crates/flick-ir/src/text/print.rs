//! Writes the text form of functions; `program` writes the rest.

use std::fmt::Write as _;

use super::lexer::quote;
use super::{binary_name, program, type_name};
use crate::data::{BlockId, FuncKind, Function, Inst, Module, Op, Origin, Terminator, Value};

/// Writes a module as text.
pub fn print(module: &Module) -> String {
    let mut text = program::print(&module.program);
    if !module.consts.is_empty() {
        text.push_str(&format!("\nconst {}\n", quote(&module.consts)));
    }
    for (index, function) in module.functions.iter().enumerate() {
        text.push('\n');
        text.push_str(&print_function(index, function));
    }
    text
}

/// Writes one function as text.
pub fn print_function(index: usize, function: &Function) -> String {
    let mut text = format!("fn f{index} {} {}", kind_name(function.kind), quote(function.name.as_bytes()));
    for (index, ty) in function.results.iter().enumerate() {
        text.push_str(if index == 0 { " -> " } else { ", " });
        text.push_str(type_name(*ty));
    }
    text.push_str(" {\n");
    for value in undefined(function) {
        let _ = writeln!(text, "  unused v{}: {}", value, type_name(function.values[value]));
    }
    for (index, block) in function.blocks.iter().enumerate() {
        let params: Vec<_> = block.params.iter().map(|value| typed(function, *value)).collect();
        let _ = writeln!(text, "  b{index}({}):", params.join(", "));
        for instruction in &block.insts {
            let _ = writeln!(text, "    {}", inst(function, instruction));
        }
        let _ = writeln!(text, "    {}", end(&block.end));
    }
    text.push_str("}\n");
    text
}

/// Values that no block defines, by index.
fn undefined(function: &Function) -> Vec<usize> {
    let mut is_defined = vec![false; function.values.len()];
    for block in &function.blocks {
        let results = block.insts.iter().filter_map(|inst| inst.result);
        for value in block.params.iter().copied().chain(results) {
            is_defined[value.0 as usize] = true;
        }
    }
    (0..is_defined.len()).filter(|index| !is_defined[*index]).collect()
}

/// Name of a kind of function.
pub(super) fn kind_name(kind: FuncKind) -> &'static str {
    match kind {
        FuncKind::Parser => "parser",
        FuncKind::Rule => "rule",
        FuncKind::Helper => "helper",
        FuncKind::Builder => "builder",
    }
}

/// `u16be` for two bytes, and so on.
pub(super) fn width_name(width_bytes: u8, big_endian: bool) -> String {
    format!("{}{}", u32::from(width_bytes) * 8, if big_endian { "be" } else { "le" })
}

fn typed(function: &Function, value: Value) -> String {
    format!("v{}: {}", value.0, type_name(function.values[value.0 as usize]))
}

fn inst(function: &Function, inst: &Inst) -> String {
    let mut text = inst.result.map(|value| format!("{} = ", typed(function, value))).unwrap_or_default();
    text.push_str(&op(&inst.op));
    if inst.origin != Origin::default() {
        let _ = write!(text, " @{}:{}", inst.origin.file, inst.origin.offset);
    }
    text
}

fn list(values: &[Value]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("v{}", value.0)).collect();
    values.join(", ")
}

fn op(op: &Op) -> String {
    let with = |name: &str, values: &[Value]| format!("{name} {}", list(values));
    match op {
        Op::Const(word) => format!("const {word}"),
        Op::ConstBytes { offset, len } => format!("const_bytes {offset}, {len}"),
        Op::Binary(op, a, b) => with(binary_name(*op), &[*a, *b]),
        Op::Not(a) => with("not", &[*a]),
        Op::Select { cond, a, b } => with("select", &[*cond, *a, *b]),
        Op::Len(a) => with("len", &[*a]),
        Op::HashBytes(a) => with("hash_bytes", &[*a]),
        Op::HashInt(a) => with("hash_int", &[*a]),
        Op::BytesEq(a, b) => with("bytes_eq", &[*a, *b]),
        Op::BytesStartsWith(a, b) => with("bytes_starts_with", &[*a, *b]),
        Op::BytesEndsWith(a, b) => with("bytes_ends_with", &[*a, *b]),
        Op::BytesContains(a, b) => with("bytes_contains", &[*a, *b]),
        Op::BytesLess(a, b) => with("bytes_less", &[*a, *b]),
        Op::FrameGet { slot } => format!("frame_get {slot}"),
        Op::FrameSet { slot, value } => format!("frame_set {slot}, v{}", value.0),
        Op::Load { base, offset, width_bytes, big_endian, signed } => {
            let sign = if *signed { 's' } else { 'u' };
            let at = sum(*base, *offset);
            format!("load.{sign}{} {at}", width_name(*width_bytes, *big_endian))
        }
        Op::MessageBytes { start, end } => with("message_bytes", &[*start, *end]),
        Op::ChanLen(chan) => with("chan_len", &[*chan]),
        Op::ChanElem { chan, index } => with("chan_elem", &[*chan, *index]),
        Op::Call { func, args } => format!("call f{}({})", func.0, list(args)),
        Op::SendOriginal { chan } => with("send_original", &[*chan]),
        Op::OutMark => "out_mark".to_owned(),
        Op::EmitInt { value, width_bytes, big_endian } => {
            format!("emit_int.{} v{}", width_name(*width_bytes, *big_endian), value.0)
        }
        Op::EmitBytes { value } => with("emit_bytes", &[*value]),
        Op::EmitMessage { start, end } => with("emit_message", &[*start, *end]),
        Op::SendRebuilt { chan, mark, tail_from } => {
            let tail = tail_from.map(|value| format!(", tail v{}", value.0)).unwrap_or_default();
            format!("send_rebuilt v{}, v{}{tail}", chan.0, mark.0)
        }
    }
}

fn sum(base: Option<Value>, offset: u32) -> String {
    base.map_or(offset.to_string(), |base| format!("v{} + {offset}", base.0))
}

fn target(block: BlockId, args: &[Value]) -> String {
    if args.is_empty() { format!("b{}", block.0) } else { format!("b{}({})", block.0, list(args)) }
}

fn end(end: &Terminator) -> String {
    match end {
        Terminator::Jump(block, args) => format!("jump {}", target(*block, args)),
        Terminator::Branch { cond, then, otherwise } => {
            let (then, otherwise) = (target(then.0, &then.1), target(otherwise.0, &otherwise.1));
            format!("branch v{}, {then}, {otherwise}", cond.0)
        }
        Terminator::Switch { value, cases, default } => {
            let cases: String = cases.iter().map(|(case, block)| format!("{case}: b{}, ", block.0)).collect();
            format!("switch v{} {{ {cases}else: b{} }}", value.0, default.0)
        }
        Terminator::Need { base, bytes, then, state } => {
            format!("need {} -> b{} state {state}", sum(*base, *bytes), then.0)
        }
        Terminator::Done => "done".to_owned(),
        Terminator::Fault { field, cause } => format!("fault {field} cause {cause}"),
        Terminator::Return(values) if values.is_empty() => "return".to_owned(),
        Terminator::Return(values) => format!("return {}", list(values)),
    }
}
