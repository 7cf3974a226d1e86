//! Queries on checked units: the types and maximum lengths of their fields, which fields a program may write.

mod sizes;

pub(crate) use sizes::row as row_size;

use crate::hir::{Derived, Expr, ExprKind, Facts, Field, FieldId, FieldKind, Forward, ListEnd, Ty, Unit};
use crate::items::Items;
use crate::limits::{DEFAULT_BYTES_MAX, WRITTEN_BYTES_MAX};
use crate::range::{INT, Range, range_of};
use crate::report::counted;
use crate::{primitives, units};

/// The type of a field as a record declares it.
pub(crate) fn type_name(items: &Items, kind: &FieldKind) -> String {
    match kind {
        FieldKind::Int { enumeration: Some(id), .. } => items.enumeration(*id).name.clone(),
        FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. }
            if repr.width_bytes == 8 && !repr.signed =>
        {
            "uint64".to_owned()
        }
        FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Var { .. } => "int".to_owned(),
        FieldKind::Bytes { text: true, .. } => "string".to_owned(),
        FieldKind::Bytes { text: false, .. } => "bytes".to_owned(),
        FieldKind::Text { text, .. } | FieldKind::TextVar { text, .. } | FieldKind::ToClose { text } => {
            if *text {
                "string".to_owned()
            } else {
                "bytes".to_owned()
            }
        }
        FieldKind::Flag { .. } | FieldKind::Full { .. } => "bool".to_owned(),
        FieldKind::Number { .. }
        | FieldKind::Varint { .. }
        | FieldKind::Bits { .. }
        | FieldKind::Kept
        | FieldKind::Carried => {
            let wide = kind.number_range().is_some_and(|(_, hi)| hi > INT.hi);
            if wide { "uint64".to_owned() } else { "int".to_owned() }
        }
        FieldKind::List(_) => "a list".to_owned(),
    }
}

/// The type of an integer as the grammar declares it.
pub(crate) fn wire_type_name(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Int { repr, .. } => primitives::int_name(*repr),
        FieldKind::Number { base: 16, digits_max, .. } => format!("hex<{digits_max}>"),
        FieldKind::Number { digits_max, .. } => format!("decimal<{digits_max}>"),
        FieldKind::Varint { bytes_max, .. } => format!("varint<{bytes_max}>"),
        _ => "number".to_owned(),
    }
}

/// Whether a program may assign to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    Yes,
    /// It is computed from other fields.
    Follows,
    /// It is not part of the message.
    Computed,
    /// It ends when the peer closes the connection.
    ToClose,
    /// A list whose elements have several fields.
    Parts,
    /// Its length cannot be updated, with the reason.
    NoLength(String),
}

/// Returns whether a program may assign to `field`.
pub(crate) fn writable(unit: &Unit, field: FieldId) -> Writable {
    let kind = &unit.fields[field.0 as usize].kind;
    let length = match kind {
        FieldKind::Int { .. }
        | FieldKind::Vint { .. }
        | FieldKind::Number { .. }
        | FieldKind::Varint { .. } => {
            return if kind.derived().is_some() { Writable::Follows } else { Writable::Yes };
        }
        FieldKind::Var { .. }
        | FieldKind::Flag { .. }
        | FieldKind::Full { .. }
        | FieldKind::TextVar { .. }
        | FieldKind::Kept
        | FieldKind::Carried => {
            return Writable::Computed;
        }
        FieldKind::Text { .. } | FieldKind::Bits { .. } => return Writable::Yes,
        FieldKind::ToClose { .. } => return Writable::ToClose,
        FieldKind::List(list) if list.element.is_none() && list.keyed.is_none() => return Writable::Parts,
        FieldKind::List(list) => match &list.end {
            ListEnd::Until(_) => return Writable::Yes,
            // With another number of elements, only a derived count is correct.
            ListEnd::Count(Expr { kind: ExprKind::SelfField(count), .. }) if matches!(unit.fields[count.0 as usize].kind.derived(), Some(Derived::LengthOf(of)) if *of == field) =>
            {
                return Writable::Yes;
            }
            _ => return Writable::Parts,
        },
        FieldKind::Bytes { length, .. } => length,
    };
    let source = match length.kind {
        ExprKind::SelfField(source) => source,
        ExprKind::Int(bytes) => {
            return Writable::NoLength(format!("its length is fixed at {}", counted(bytes, "byte")));
        }
        _ => return Writable::NoLength("its length is computed from several fields".to_owned()),
    };
    let shares = |other: &crate::hir::Field| matches!(&other.kind, FieldKind::Bytes { length, .. } if matches!(length.kind, ExprKind::SelfField(known) if known == source));
    let name = |id: FieldId| unit.fields[id.0 as usize].name.clone().unwrap_or_default();
    if unit.fields.iter().filter(|other| shares(other)).count() > 1 {
        return Writable::NoLength(format!("`{}` is the length of several fields", name(source)));
    }
    let measures = |expr: &Expr| {
        crate::walk::any(
            expr,
            &mut |expr| matches!(expr.kind, ExprKind::LenOf(measured) if measured == field),
        )
    };
    let follows = unit.fields.iter().any(|other| {
        let by_key = match &other.kind {
            FieldKind::List(list) => {
                list.keyed.iter().any(|keyed| keyed.follows.iter().any(|(_, expr)| measures(expr)))
            }
            _ => false,
        };
        by_key
            || match other.kind.derived() {
                Some(Derived::LengthOf(measured)) => *measured == field,
                Some(Derived::Expr(expr)) => measures(expr),
                None => false,
            }
    });
    if follows {
        Writable::Yes
    } else {
        Writable::NoLength(format!("the variable `{}` has no `&serialize`", name(source)))
    }
}
/// The lists whose elements contain a field, outermost first.
pub(super) fn owners(unit: &Unit, id: FieldId) -> impl Iterator<Item = (FieldId, &Field)> {
    let before = unit.fields[..id.0 as usize].iter().enumerate();
    before.filter_map(move |(index, field)| match &field.kind {
        FieldKind::List(list) if id.0 < list.fields_end => Some((FieldId(index as u32), field)),
        _ => None,
    })
}

/// The name of the innermost list whose elements contain a field.
pub(crate) fn element_of(unit: &Unit, id: FieldId) -> Option<String> {
    let (_, list) = owners(unit, id).last()?;
    Some(list.name.clone().unwrap_or_else(|| "an unnamed list".to_owned()))
}

/// The type of a field for a program without a record of the unit.
pub(crate) fn grammar_type(kind: &FieldKind) -> Ty {
    match kind {
        FieldKind::Int { enumeration: Some(id), .. } => Ty::Enum(*id),
        FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => Range::of_repr(*repr).ty(),
        FieldKind::Vint { .. } => INT.ty(),
        FieldKind::Bytes { text, max_bytes, length, .. } => {
            Ty::Bytes { max: max_bytes.unwrap_or_else(|| units::longest(length, None)), text: *text }
        }
        FieldKind::Text { text, max_bytes, .. } | FieldKind::TextVar { text, max_bytes, .. } => {
            Ty::Bytes { max: *max_bytes, text: *text }
        }
        FieldKind::Number { .. }
        | FieldKind::Varint { .. }
        | FieldKind::Bits { .. }
        | FieldKind::Kept
        | FieldKind::Carried => kind.number_range().map_or(Ty::Unknown, |(lo, hi)| Range { lo, hi }.ty()),
        FieldKind::Flag { .. } | FieldKind::Full { .. } => Ty::Bool,
        FieldKind::List(list) => {
            let elem = Box::new(Ty::Bytes { max: list.elem_bytes_max, text: list.elem_text });
            Ty::List { elem, max: list.max.unwrap_or(0) }
        }
        FieldKind::ToClose { .. } => Ty::Unknown,
    }
}

/// Maximum length of a field whose length expression is `length`.
pub(crate) fn longest(length: &Expr, bound: Option<u32>) -> u32 {
    let bound = bound.unwrap_or(match length.kind {
        // A literal length is an explicit bound.
        ExprKind::Int(_) => WRITTEN_BYTES_MAX,
        _ => DEFAULT_BYTES_MAX,
    });
    let possible = range_of(&length.ty).map_or(i128::from(bound), |range| range.hi.max(0));
    possible.min(i128::from(bound)) as u32
}

/// The properties that are computed while a message is parsed.
pub(crate) fn computed(facts: &Facts) -> impl Iterator<Item = &Expr> {
    let all = [
        &facts.request,
        &facts.reply,
        &facts.ends,
        &facts.mute,
        &facts.stateful,
        &facts.silent,
        &facts.more,
        &facts.keep,
        &facts.carry,
        &facts.last,
        &facts.retry,
        &facts.whole,
        &facts.tunnel,
        &facts.closes,
        &facts.status,
        &facts.failed,
    ];
    all.into_iter().flatten().chain(facts.forwards.iter().flat_map(Forward::exprs))
}
