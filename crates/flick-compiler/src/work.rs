//! The work of one message: where most of it is, and whether it is within a budget.
//! Promises: the figure is the one that `flick check --bounds` prints.

use std::collections::BTreeMap;

use flick_check::{Diagnostic, Sources, hir};
use flick_ir::bounds::hottest_positions;
use flick_ir::data::Module;
use flick_ir::weights::STEPS_PER_US;

/// Default of the most steps for one message: about a millisecond.
pub const MESSAGE_WORK_MAX: u64 = 1000 * STEPS_PER_US;

/// A line of the source and its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// The line without the blanks around it.
    pub span: hir::Span,
    /// Steps for one message.
    pub steps: u64,
}

/// Returns the line with the most work; of equal ones the first.
pub fn hottest_line(module: &Module, sources: &Sources) -> Option<HotLine> {
    let mut lines = BTreeMap::<(u32, usize), (u64, u32)>::new();
    for (origin, steps) in hottest_positions(module) {
        let (line, _) = sources.line_column(origin.file, origin.offset);
        let (sum, _) = lines.entry((origin.file, line)).or_insert((0, origin.offset));
        *sum = sum.saturating_add(steps);
    }
    let most = lines.values().map(|(steps, _)| *steps).max()?;
    let ((file, _), (steps, offset)) = lines.into_iter().find(|(_, (steps, _))| *steps == most)?;
    let text = &sources.get(file)?.text;
    let start = text.get(..offset as usize)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or("");
    let start = start + (line.len() - line.trim_start().len());
    Some(HotLine { span: hir::Span { file, range: start as u32..(start + line.trim().len()) as u32 }, steps })
}

/// Rejects a program whose worst message takes more than `steps_max` steps, and names the line with most of the work; 0
/// allows any.
pub fn over_budget(module: &Module, sources: &Sources, steps_max: u64) -> Option<Diagnostic> {
    let steps = module.program.bounds.steps_per_message_max;
    if steps_max == 0 || steps <= steps_max {
        return None;
    }
    let hot = hottest_line(module, sources).unwrap_or(HotLine { span: hir::Span::default(), steps });
    Some(flick_check::too_much_work(hot.span, hot.steps, steps, steps_max))
}
