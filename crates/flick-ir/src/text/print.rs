//! Writes the text form of functions; `program` writes the rest.

use std::fmt::Write as _;

use super::lexer::quote;
use super::print_op::{list, op, sum};
use super::{program, type_name};
use crate::data::{BlockId, FuncKind, Function, Inst, Module, SourceOrigin, Terminator, Value};

/// Writes a module as text.
pub fn print(module: &Module) -> String {
    let mut text = program::print(&module.program);
    if !module.consts.is_empty() {
        text.push_str(&format!("\nconst {}\n", quote(&module.consts)));
    }
    for (index, [a, b, c, d]) in module.classes.iter().enumerate() {
        let start = if index == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{start}class {a} {b} {c} {d}");
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
        let advance = block.advance.map(|advance| format!(" by {} of {}", advance.least, advance.most));
        let trips = block.trips_max.map(|trips| format!(" loop {trips}")).unwrap_or_default();
        let trips = trips + &advance.unwrap_or_default();
        let _ = writeln!(text, "  b{index}({}){trips}:", params.join(", "));
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
        FuncKind::Order => "order",
    }
}

/// `u16be` for two bytes, and so on.
pub(super) fn width_name(width_bytes: u8, big_endian: bool) -> String {
    format!("{}{}", u32::from(width_bytes) * 8, if big_endian { "be" } else { "le" })
}

fn typed(function: &Function, value: Value) -> String {
    let max = function.lengths.get(&value).map(|max| format!(" max {max}")).unwrap_or_default();
    format!("v{}: {}{max}", value.0, type_name(function.values[value.0 as usize]))
}

fn inst(function: &Function, inst: &Inst) -> String {
    let mut text = inst.result.map(|value| format!("{} = ", typed(function, value))).unwrap_or_default();
    text.push_str(&op(&inst.op));
    if inst.origin != SourceOrigin::default() {
        let _ = write!(text, " @{}:{}", inst.origin.file, inst.origin.offset);
    }
    text
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
        Terminator::Suspend { then, state } => format!("suspend -> b{} state {state}", then.0),
        Terminator::Done => "done".to_owned(),
        Terminator::Fault { field, cause } => format!("fault {field} cause {}", cause.number()),
        Terminator::Return(values) if values.is_empty() => "return".to_owned(),
        Terminator::Return(values) => format!("return {}", list(values)),
    }
}
