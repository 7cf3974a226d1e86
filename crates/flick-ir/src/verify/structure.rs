//! Numbers in range, one definition for each value, and definitions before uses.

use super::Report;
use crate::cfg::{Cfg, successors};
use crate::data::{BlockId, FuncKind, Function, Module, Op, Type, Value};
use crate::operands::{end_operands, operands};

/// Checks what everything else relies on. Returns whether numbers are in range.
pub(super) fn check(module: &Module, function: &Function, report: &mut Report<'_>) -> bool {
    let before = report.errors.len();
    if function.blocks.is_empty() {
        report.add("a function has at least one block".to_owned());
        return false;
    }
    let mut definitions = vec![0_u8; function.values.len()];
    for (index, block) in function.blocks.iter().enumerate() {
        let results = block.insts.iter().filter_map(|inst| inst.result);
        for value in block.params.iter().copied().chain(results) {
            match definitions.get_mut(value.0 as usize) {
                Some(count) => *count = count.saturating_add(1),
                None => report.add_in(index, format!("v{} has no type", value.0)),
            }
        }
        for inst in &block.insts {
            operands(&inst.op, &mut |value| in_range(function, value, index, report));
            if let Op::Call { func, .. } = &inst.op
                && func.0 as usize >= module.functions.len()
            {
                report.add_in(index, format!("f{} does not exist", func.0));
            }
        }
        end_operands(&block.end, &mut |value| in_range(function, value, index, report));
        for (target, _) in successors(&block.end) {
            match target {
                BlockId(0) => report.add("the entry is no target".to_owned()),
                BlockId(at) if at as usize >= function.blocks.len() => {
                    report.add_in(index, format!("b{at} does not exist"));
                }
                _ => {}
            }
        }
    }
    for (value, _) in definitions.iter().enumerate().filter(|(_, count)| **count > 1) {
        report.add(format!("v{value} is defined twice"));
    }
    if report.errors.len() == before {
        shape(function, report);
    }
    report.errors.len() == before
}

fn in_range(function: &Function, value: Value, block: usize, report: &mut Report<'_>) {
    if value.0 as usize >= function.values.len() {
        report.add_in(block, format!("v{} has no type", value.0));
    }
}

/// Parameters and results that a kind of function must have.
fn shape(function: &Function, report: &mut Report<'_>) {
    let types: Vec<Type> =
        function.blocks[0].params.iter().map(|value| function.values[value.0 as usize]).collect();
    let (params, text): (&[Type], _) = match function.kind {
        FuncKind::Parser => (&[Type::Frame, Type::Int], "(frame, int)"),
        FuncKind::Rule => (&[Type::Frame, Type::Uint], "(frame, uint)"),
        FuncKind::Builder | FuncKind::Order => (&[Type::Frame], "(frame)"),
        FuncKind::Helper => (&types[..], ""),
    };
    report.require(types == params, || format!("a {:?} takes {text}", function.kind));
    if function.kind == FuncKind::Order {
        let is_int = function.results == [Type::Int];
        return report.require(is_int, || "an Order gives one int".to_owned());
    }
    let results_max = usize::from(function.kind == FuncKind::Helper);
    report.require(function.results.len() <= results_max, || {
        format!("a {:?} has at most {results_max} results", function.kind)
    });
}

/// Checks that every use is reached only through its definition.
pub(super) fn check_order(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    // Where each value is defined: block, and position in it (0: a parameter).
    let mut defined: Vec<Option<(BlockId, usize)>> = vec![None; function.values.len()];
    for (index, block) in function.blocks.iter().enumerate() {
        let id = BlockId(index as u32);
        for value in &block.params {
            defined[value.0 as usize] = Some((id, 0));
        }
        for (position, inst) in block.insts.iter().enumerate() {
            if let Some(value) = inst.result {
                defined[value.0 as usize] = Some((id, position + 1));
            }
        }
    }
    for id in &cfg.order {
        let block = &function.blocks[id.0 as usize];
        let mut check = |value: Value, position: usize| {
            let is_before = defined[value.0 as usize]
                .is_some_and(|(at, from)| if at == *id { from <= position } else { cfg.dominates(at, *id) });
            if !is_before {
                report.add_in(id.0 as usize, format!("v{} is not defined on every way here", value.0));
            }
        };
        for (position, inst) in block.insts.iter().enumerate() {
            operands(&inst.op, &mut |value| check(value, position));
        }
        end_operands(&block.end, &mut |value| check(value, block.insts.len()));
    }
}
