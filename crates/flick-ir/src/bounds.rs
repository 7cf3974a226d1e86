//! How much work and how many messages one activation can cause at most.
//! Promises: no activation uses more steps, counted with `weights`, than `steps` says, on any input; the sum runs
//! along one path that the blocks allow, though perhaps no input takes it.
//! Refuses: modules that the verifier has refused; it needs blocks without cycles and calls without recursion.
//! Source: longest path in an acyclic graph; RELIABILITY of a cooperative scheduler rests on it.

use crate::calls;
use crate::cfg::{Cfg, successors};
use crate::data::{BlockId, Function, Inst, Module, Op, Origin};
use crate::weights;

/// What one function needs at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionBounds {
    /// Steps, callees included.
    pub steps: u64,
    /// Messages sent, callees included.
    pub sends: u64,
    /// Places along the costliest path with their steps, costliest first. A call counts with its callee's body.
    pub places: Vec<(Origin, u64)>,
}

/// Bounds of all functions, by `FuncId`. Panics on recursion.
pub fn bounds(module: &Module) -> Vec<FunctionBounds> {
    let order = calls::callees_first(module).expect("the verifier has refused recursion");
    let mut bounds = vec![FunctionBounds::default(); module.functions.len()];
    for index in order {
        bounds[index] = function_bounds(&module.functions[index], &bounds);
    }
    bounds
}

/// Steps of an instruction, a callee's body included. Saturates.
fn inst_steps(inst: &Inst, known: &[FunctionBounds]) -> u64 {
    let body = if let Op::Call { func, .. } = &inst.op { known[func.0 as usize].steps } else { 0 };
    weights::op_steps(&inst.op).saturating_add(body)
}

/// Messages that an instruction sends.
fn inst_sends(inst: &Inst, known: &[FunctionBounds]) -> u64 {
    match &inst.op {
        Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. } => 1,
        Op::Call { func, .. } => known[func.0 as usize].sends,
        _ => 0,
    }
}

fn function_bounds(function: &Function, known: &[FunctionBounds]) -> FunctionBounds {
    let cfg = Cfg::new(function);
    assert!(!cfg.has_cycle, "the verifier has refused loops");
    let mut steps = vec![0_u64; function.blocks.len()];
    let mut sends = vec![0_u64; function.blocks.len()];
    let mut worst_next: Vec<Option<BlockId>> = vec![None; function.blocks.len()];
    for id in cfg.order.iter().rev() {
        let index = id.0 as usize;
        let block = &function.blocks[index];
        let targets = successors(&block.end);
        worst_next[index] =
            targets.iter().map(|(target, _)| *target).max_by_key(|target| steps[target.0 as usize]);
        let after = worst_next[index].map_or(0, |next| steps[next.0 as usize]);
        let own = block
            .insts
            .iter()
            .fold(weights::end_steps(&block.end), |sum, inst| sum.saturating_add(inst_steps(inst, known)));
        steps[index] = after.saturating_add(own);
        let after = targets.iter().map(|(target, _)| sends[target.0 as usize]).max().unwrap_or(0);
        sends[index] =
            block.insts.iter().fold(after, |sum, inst| sum.saturating_add(inst_sends(inst, known)));
    }
    let places = costliest_places(function, &worst_next, known);
    FunctionBounds { steps: steps[0], sends: sends[0], places }
}

fn costliest_places(
    function: &Function,
    worst_next: &[Option<BlockId>],
    known: &[FunctionBounds],
) -> Vec<(Origin, u64)> {
    let mut places: Vec<(Origin, u64)> = Vec::new();
    let mut at = Some(BlockId(0));
    while let Some(block) = at {
        for inst in &function.blocks[block.0 as usize].insts {
            let steps = inst_steps(inst, known);
            match places.iter_mut().find(|(origin, _)| *origin == inst.origin) {
                Some((_, sum)) => *sum = sum.saturating_add(steps),
                None => places.push((inst.origin, steps)),
            }
        }
        at = worst_next[block.0 as usize];
    }
    places.sort_by_key(|(origin, steps)| (std::cmp::Reverse(*steps), origin.file, origin.offset));
    places
}

#[cfg(test)]
mod tests {
    use super::bounds;
    use crate::text;

    fn check(functions: &str, steps: &[u64], sends: &[u64]) {
        let text = format!("program \"p\" {{ channel \"c\" single protocol 0 }} {functions}");
        let bounds = bounds(&text::parse(&text).expect("the test's text is of the form"));
        assert_eq!(bounds.iter().map(|b| b.steps).collect::<Vec<_>>(), steps);
        assert_eq!(bounds.iter().map(|b| b.sends).collect::<Vec<_>>(), sends);
    }

    #[test]
    fn the_costlier_branch_counts_with_its_callee() {
        check(
            r#"fn f0 helper "h" {
                 b0(v0: chan): send_original v0 return
               }
               fn f1 rule "r" {
                 b0(v0: frame, v1: uint): v2: chan = const 0 v3: bool = const 1 branch v3, b1, b2
                 b1(): call f0(v2) jump b3
                 b2(): v4: uint = add v1, v1 jump b3
                 b3(): return
               }"#,
            &[9, 1 + 2 + 9 + 1],
            &[1, 1],
        );
    }

    #[test]
    fn the_costliest_place_comes_first() {
        let text = r#"program "p" { } fn f0 helper "h" {
            b0(v0: bytes, v1: int):
              v2: int = add v1, v1 @0:7
              v3: uint = hash_bytes v0 @0:9
              v4: int = add v1, v1 @0:7
              return
        }"#;
        let bounds = bounds(&text::parse(text).expect("the test's text is of the form"));
        let places: Vec<_> = bounds[0].places.iter().map(|(origin, steps)| (origin.offset, *steps)).collect();
        assert_eq!(places, [(9, 8), (7, 2)]);
    }
}
