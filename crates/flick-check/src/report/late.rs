//! What only the code of a checked program tells: counted when it is lowered, said like everything else.
//! Promises: codes that the checker has too, for the same mistakes found early.

use crate::diagnostic::Diagnostic;
use crate::hir::{FieldId, Program, Span, UnitId};
use crate::limits::UNIT_FIELDS_MAX;

/// Most fields that are named with what they take.
const NAMED_MAX: usize = 6;

/// A unit of which more is in use than a frame has places. `by_field`: places of each field, those with most first.
pub fn crowded(program: &Program, unit: UnitId, used: usize, by_field: &[(FieldId, usize)]) -> Diagnostic {
    let unit = &program.units[unit.0 as usize];
    let named = by_field.iter().filter_map(|(field, places)| {
        let name = unit.fields[field.0 as usize].name.as_ref().filter(|name| !name.contains(' '))?;
        Some(format!("`{name}` {places}"))
    });
    let named: Vec<String> = named.take(NAMED_MAX).collect();
    super::grammar::too_many_fields(unit.span.clone(), &unit.name, used, UNIT_FIELDS_MAX)
        .note(format!("Most places are taken by {}.", named.join(", ")))
        .note("Only fields count that the grammar looks at again, and those that the program reads or changes; a changed field takes two more, each key of a list that is asked for one.")
        .help("read fewer fields and keys in one program, or take several of them as one text")
}

/// What a rule may need more of than one activation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Messages that are sent.
    Sends,
    /// Messages that are asked for.
    Asks,
    /// Text, lists and changed messages; what is kept while it waits.
    Made,
}

/// A rule that may need too much; `does` says what with the numbers: `builds up to 300000 bytes, more than 262144`.
pub fn exceeded(span: Span, what: Excess, does: &str) -> Diagnostic {
    let (code, help) = match what {
        Excess::Sends => ("E0307", "send fewer messages from one rule"),
        Excess::Asks => ("E0905", "ask fewer channels for one message"),
        Excess::Made => (
            "E0327",
            "make its strings and lists shorter with `[..n]`, its ranges smaller, or do less in one rule",
        ),
    };
    Diagnostic::error(code, span, format!("one message is too much for this rule: it {does}"))
        .label("most of it comes from here")
        .help(help)
}
