//! The work of the most expensive trigger (a message, an event or a timer), by position in the source.
//! Promises: the work of a called function counts at the function, not at the call.

use std::collections::BTreeMap;

use flick_abi::FuncId;

use super::program::{Trigger, triggers};
use super::{FunctionBounds, bounds};
use crate::data::{Module, Op, SourceOrigin};

/// Returns the steps at each position of the source for the trigger with the most steps; a position may occur several
/// times. Panics on recursion.
pub fn hottest_positions(module: &Module) -> Vec<(SourceOrigin, u64)> {
    let functions = bounds(module);
    let triggers = triggers(module).into_iter();
    let worst: Trigger = triggers.max_by_key(|trigger| trigger.steps(&functions)).unwrap_or_default();
    let mut work = WorkByOrigin { module, functions: &functions, known: BTreeMap::new() };
    worst.functions.into_iter().flat_map(|id| work.of(id)).collect()
}

/// Work of functions by origin, including called functions.
struct WorkByOrigin<'a> {
    module: &'a Module,
    functions: &'a [FunctionBounds],
    known: BTreeMap<u32, Vec<(SourceOrigin, u64)>>,
}

impl WorkByOrigin<'_> {
    /// Work of a function, with the work of calls moved to the called functions. The depth of calls is bounded.
    fn of(&mut self, id: FuncId) -> Vec<(SourceOrigin, u64)> {
        if let Some(known) = self.known.get(&id.0) {
            return known.clone();
        }
        let mut sums: Vec<(SourceOrigin, u64)> = Vec::new();
        for (origin, steps) in &self.functions[id.0 as usize].hottest {
            let mut left = *steps;
            for callee in self.callees(id, *origin) {
                let each = self.functions[callee.0 as usize].steps.max(1);
                // A call in a loop counts with all iterations.
                let rounds = left / each;
                left -= rounds * each;
                sums.extend(
                    self.of(callee).iter().map(|(origin, steps)| (*origin, steps.saturating_mul(rounds))),
                );
            }
            sums.push((*origin, left));
        }
        self.known.insert(id.0, sums.clone());
        sums
    }

    /// Functions called at an origin, the most expensive first.
    fn callees(&self, id: FuncId, origin: SourceOrigin) -> Vec<FuncId> {
        let insts = self.module.functions[id.0 as usize].blocks.iter().flat_map(|block| &block.insts);
        let mut callees: Vec<FuncId> = insts
            .filter(|inst| inst.origin == origin)
            .filter_map(|inst| if let Op::Call { func, .. } = inst.op { Some(func) } else { None })
            .collect();
        callees.sort_by_key(|callee| std::cmp::Reverse(self.functions[callee.0 as usize].steps));
        callees.dedup();
        callees
    }
}
