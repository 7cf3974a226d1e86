//! The source line with the most work, for the most expensive trigger: a message, an event or a timer.
//! Promises: the work of a called function counts at the function, not at the call.

use std::collections::BTreeMap;

use flick_abi::{FuncId, RuleAction};
use flick_check::Sources;
use flick_ir::bounds::FunctionBounds;
use flick_ir::data::{Module, Op, SourceOrigin};
use serde::Serialize;

/// A source line and its work.
#[derive(Debug, Serialize)]
pub struct HotLine {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Steps.
    pub steps: u64,
    /// Text of the line.
    pub text: String,
}

/// Finds the line with the most work.
pub fn hottest_line(module: &Module, functions: &[FunctionBounds], sources: &Sources) -> Option<HotLine> {
    let mut spread = WorkByOrigin { module, functions, known: BTreeMap::new() };
    let work: Vec<(SourceOrigin, u64)> =
        hottest_functions(module, functions).into_iter().flat_map(|id| spread.of(id)).collect();
    max_line(&work, sources)
}

/// The functions that run for the most expensive trigger. A message runs one parser and the rules of its channel.
fn hottest_functions(module: &Module, functions: &[FunctionBounds]) -> Vec<FuncId> {
    let program = &module.program;
    let steps = |id: FuncId| functions[id.0 as usize].steps;
    let mut worst: (u64, Vec<FuncId>) = (0, Vec::new());
    let mut offer = |parts: Vec<FuncId>| {
        let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(steps(*part)));
        if total > worst.0 {
            worst = (total, parts);
        }
    };
    let run = |action: RuleAction| match action {
        RuleAction::Pass { .. } => None,
        RuleAction::Run { rule } => Some(rule),
    };
    for (index, channel) in program.channels.iter().enumerate() {
        let Some(view) = &channel.view else { continue };
        let is_request = steps(view.parse_request) >= steps(view.parse_reply);
        let mut parts = vec![if is_request { view.parse_request } else { view.parse_reply }];
        let rules = program.rules.iter().filter(|rule| rule.source == index);
        parts.extend(rules.filter_map(|rule| run(rule.action)));
        for merge in program.merges.iter().filter(|merge| merge.source == index) {
            parts.extend([merge.order, merge.combine]);
            parts.extend(run(merge.finish));
        }
        offer(parts);
    }
    program.handlers.iter().for_each(|handler| offer(vec![handler.rule]));
    program.timers.iter().for_each(|timer| offer(vec![timer.rule]));
    worst.1
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

/// Sums the work by line and returns the largest sum; of equal ones the first.
fn max_line(work: &[(SourceOrigin, u64)], sources: &Sources) -> Option<HotLine> {
    let mut lines = BTreeMap::<(u32, usize), u64>::new();
    for (origin, steps) in work {
        let (line, _) = sources.line_column(origin.file, origin.offset);
        let sum = lines.entry((origin.file, line)).or_default();
        *sum = sum.saturating_add(*steps);
    }
    let most = lines.values().copied().max()?;
    let ((file, line), steps) = lines.into_iter().find(|(_, steps)| *steps == most)?;
    let source = sources.get(file)?;
    let text = source.text.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
    Some(HotLine { file: source.name.clone(), line, steps, text })
}
