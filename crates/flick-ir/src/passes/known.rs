//! Behind a switch its value is one of the cases, or none of them: comparisons with those have their answer.

use super::definitions;
use crate::cfg::Cfg;
use crate::data::{Binary, BlockId, Function, Op, Terminator, Value};

/// Runs the pass. Returns whether it changed anything.
pub(super) fn run(function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let definitions = definitions(function);
    let constant = |value: Value| match definitions[value.0 as usize] {
        Some(Op::Const(word)) => Some(word),
        _ => None,
    };
    let mut changed = false;
    for id in &cfg.order {
        let [before] = cfg.predecessors[id.0 as usize][..] else { continue };
        let Terminator::Switch { value, cases, default } = &function.blocks[before.0 as usize].end else {
            continue;
        };
        let Some(known) = Known::of(*id, cases, *default) else { continue };
        let value = *value;
        for inst in &mut function.blocks[id.0 as usize].insts {
            let Op::Binary(op @ (Binary::Eq | Binary::Ne), a, b) = inst.op else { continue };
            let other = match (a == value, b == value) {
                (true, false) => constant(b),
                (false, true) => constant(a),
                _ => None,
            };
            if let Some(is_equal) = other.and_then(|other| known.is(other)) {
                inst.op = Op::Const(i64::from(is_equal == (op == Binary::Eq)));
                changed = true;
            }
        }
    }
    changed
}

/// Fact about the value of a switch that holds in a block behind the switch.
enum Known {
    /// It is this.
    Is(i64),
    /// It is none of these.
    None(Vec<i64>),
}

impl Known {
    /// Returns the fact that a switch implies for its value in one of its blocks, if there is one.
    fn of(id: BlockId, cases: &[(i64, BlockId)], default: BlockId) -> Option<Self> {
        let here: Vec<i64> = cases.iter().filter(|(_, to)| *to == id).map(|(case, _)| *case).collect();
        match (&here[..], default == id) {
            ([], true) => Some(Known::None(cases.iter().map(|(case, _)| *case).collect())),
            ([case], false) => Some(Known::Is(*case)),
            _ => None,
        }
    }

    /// Whether the value is another.
    fn is(&self, other: i64) -> Option<bool> {
        match self {
            Known::Is(case) => Some(*case == other),
            Known::None(cases) => cases.contains(&other).then_some(false),
        }
    }
}
