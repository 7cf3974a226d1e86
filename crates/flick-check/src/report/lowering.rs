//! Limits that only the lowered code of a checked program shows.
//! Promises: the codes are those that the checker uses where it finds the same errors earlier.

use crate::diagnostic::Diagnostic;
use crate::hir::{FieldId, Program, Span, UnitId};
use crate::limits::UNIT_FIELDS_MAX;

/// Most fields that are listed with their slots.
const NAMED_MAX: usize = 6;

/// A unit that uses more slots than a frame has. `by_field`: slots of each field, largest first.
pub fn too_many_slots(
    program: &Program,
    unit: UnitId,
    used: usize,
    by_field: &[(FieldId, usize)],
) -> Diagnostic {
    let unit = &program.units[unit.0 as usize];
    let named = by_field.iter().filter_map(|(field, slots)| {
        let name = unit.fields[field.0 as usize].name.as_ref().filter(|name| !name.contains(' '))?;
        Some(format!("`{name}` {slots}"))
    });
    let named: Vec<String> = named.take(NAMED_MAX).collect();
    let mut report = super::grammar::too_many_fields(unit.span.clone(), &unit.name, used, UNIT_FIELDS_MAX)
        .note(format!("Most slots are used by {}.", named.join(", ")));
    let logged = unit.facts.logged.len();
    if logged > 0 {
        report = report.note(format!("{logged} of them are fields of the access log (`access_log_fields`)."));
    }
    report
        .note("Only fields that the grammar refers to, and those that the program reads or changes, use slots; a changed field uses two more, each key of a list that is looked up one.")
        .help("read fewer fields and keys in one program, or declare several of them as one string")
}

/// Resource of an activation that a rule may exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// Messages that are sent.
    Sends,
    /// Messages that are asked for.
    Asks,
    /// Memory for strings, lists and changed messages, and for what is kept while it waits.
    Memory,
}

/// A rule over a limit; `does` says what with the numbers: `builds up to 300000 bytes, more than 262144`.
pub fn limit_exceeded(span: Span, what: RuleLimit, side_effect: &str) -> Diagnostic {
    let (code, help) = match what {
        RuleLimit::Sends => ("E0307", "send fewer messages from one rule"),
        RuleLimit::Asks => ("E0905", "ask fewer channels for one message"),
        RuleLimit::Memory => (
            "E0327",
            "shorten its strings and lists with `[..n]`, lower the bounds of its ranges, or do less in one rule",
        ),
    };
    Diagnostic::error(code, span, format!("rule exceeds a limit: for one message, it {side_effect}"))
        .label("most of it is used here")
        .help(help)
}

/// A program whose worst message takes more steps than its budget; `hottest` of them in the line at `span`.
pub fn too_much_work(span: Span, hottest: u64, steps: u64, steps_max: u64) -> Diagnostic {
    let title = format!("too much work: one message may take {steps} steps, the budget is {steps_max}");
    Diagnostic::error("E0309", span, title)
        .label(format!("{hottest} steps"))
        .note("A step is about half a nanosecond. `flick check --bounds` prints the same figure.")
        .help("compute a value once and name it with `let`, lower the bounds of loops, lists and strings, or allow more with `--max-message-work`")
}
