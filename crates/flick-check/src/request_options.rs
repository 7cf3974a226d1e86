//! An operator's choices about requests with named fields, such as those of HTTP: which fields the access log has, and
//! limits below those of the grammar.
//! Promises: a program means the same with and without them; parsers of requests from clients obey them. Requests that
//! the program itself builds, and requests without named fields, are not limited.

use flick_abi::FaultCause;
use flick_abi::limits::HEAD_BYTES_MAX;

use crate::hir::{FieldId, FieldKind, Program, Unit};
use crate::limits::KEYS_MAX;

/// Smallest limit of a head, in bytes.
pub const REQUEST_HEAD_BYTES_MIN: u32 = 1024;
/// Largest limit of a head, in bytes: what parsers take.
pub const REQUEST_HEAD_BYTES_MAX: u32 = HEAD_BYTES_MAX as u32;

/// An operator's choices about requests.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// Names of the fields that the access log has.
    pub log_fields: Vec<String>,
    /// Longest head: all before the end of the fields, in bytes.
    pub head_bytes_max: Option<u32>,
    /// Most fields.
    pub fields_max: Option<u32>,
    /// Longest name of the requested thing (`&fault = name_too_long`), in bytes.
    pub name_bytes_max: Option<u32>,
}

/// Reason that an option cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOptionError {
    /// The parser has no capacity for this field of the access log.
    LogField(String),
    /// The grammar allows this many fields only.
    FieldsMax(u32),
    /// The grammar allows a name of this many bytes only.
    NameBytesMax(u32),
}

/// Makes the parsers of requests obey an operator's choices.
///
/// Errors: the first one that they cannot obey.
pub fn apply_request_options(
    program: &mut Program,
    options: &RequestOptions,
) -> Result<(), RequestOptionError> {
    apply_to_one(program, options)?;
    program.siblings.iter_mut().try_for_each(|sibling| apply_to_one(sibling, options))
}

fn apply_to_one(program: &mut Program, options: &RequestOptions) -> Result<(), RequestOptionError> {
    let mut requests = program.units.iter_mut().filter(|unit| unit.facts.replies.is_some());
    requests.try_for_each(|unit| apply_to_unit(unit, options))
}

fn apply_to_unit(unit: &mut Unit, options: &RequestOptions) -> Result<(), RequestOptionError> {
    let found = unit.fields.iter().position(|field| match &field.kind {
        FieldKind::List(list) => list.keyed.is_some(),
        _ => false,
    });
    let Some(index) = found else { return Ok(()) };
    limit_names(unit, options)?;
    let list_id = FieldId(index as u32);
    let FieldKind::List(list) = &mut unit.fields[index].kind else { return Ok(()) };
    if let Some(wanted) = options.fields_max {
        if let Some(allowed) = list.max.filter(|allowed| wanted > *allowed) {
            return Err(RequestOptionError::FieldsMax(allowed));
        }
        unit.facts.request_limits.push((list_id, wanted));
    }
    unit.facts.request_head_max = options.head_bytes_max;
    let Some(keyed) = &mut list.keyed else { return Ok(()) };
    for name in &options.log_fields {
        let key = if keyed.nocase { name.to_ascii_lowercase() } else { name.clone() }.into_bytes();
        let index = match keyed.keys.iter().position(|known| *known == key) {
            Some(index) => index,
            None if keyed.keys.len() >= KEYS_MAX => return Err(RequestOptionError::LogField(name.clone())),
            None => {
                keyed.keys.push(key);
                keyed.keys.len() - 1
            }
        };
        unit.facts.logged.push((list_id, index as u32));
    }
    Ok(())
}

fn limit_names(unit: &mut Unit, options: &RequestOptions) -> Result<(), RequestOptionError> {
    let Some(wanted) = options.name_bytes_max else { return Ok(()) };
    for (index, field) in unit.fields.iter().enumerate() {
        if let FieldKind::Text { max_bytes, .. } = field.kind
            && field.too_long == FaultCause::NameTooLong
        {
            if wanted > max_bytes {
                return Err(RequestOptionError::NameBytesMax(max_bytes));
            }
            unit.facts.request_limits.push((FieldId(index as u32), wanted));
        }
    }
    Ok(())
}
