//! Fields of requests that an operator wants in the access log: keys of a keyed list, such as the fields of HTTP.
//! Promises: a program means the same with and without them; its parsers keep them for the platform.

use crate::hir::{FieldId, FieldKind, Program, Unit};
use crate::limits::KEYS_MAX;

/// Makes the parsers of requests keep these fields for the access log. Requests without named fields have none.
///
/// Errors: the first field for which a list of fields has no capacity.
pub fn keep_log_fields(program: &mut Program, names: &[String]) -> Result<(), String> {
    keep_in_one(program, names)?;
    program.siblings.iter_mut().try_for_each(|sibling| keep_in_one(sibling, names))
}

fn keep_in_one(program: &mut Program, names: &[String]) -> Result<(), String> {
    let requests = program.units.iter_mut().filter(|unit| unit.facts.replies.is_some());
    requests.into_iter().try_for_each(|unit| keep_in_unit(unit, names))
}

fn keep_in_unit(unit: &mut Unit, names: &[String]) -> Result<(), String> {
    let keyed = unit.fields.iter_mut().enumerate().find_map(|(index, field)| match &mut field.kind {
        FieldKind::List(list) => Some((FieldId(index as u32), list.keyed.as_mut()?)),
        _ => None,
    });
    let Some((list, keyed)) = keyed else { return Ok(()) };
    for name in names {
        let key = if keyed.nocase { name.to_ascii_lowercase() } else { name.clone() }.into_bytes();
        let index = match keyed.keys.iter().position(|known| *known == key) {
            Some(index) => index,
            None if keyed.keys.len() >= KEYS_MAX => return Err(name.clone()),
            None => {
                keyed.keys.push(key);
                keyed.keys.len() - 1
            }
        };
        unit.facts.logged.push((list, index as u32));
    }
    Ok(())
}
