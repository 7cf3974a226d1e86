//! Operations on types: the common type of two values, type parameters that inference left open, parts of a type.

use crate::hir::Ty;
use crate::range::{INT, UINT};

/// The type that holds the values of both, if there is one. A part that is `Unknown` in one is taken from the other.
pub(crate) fn join(a: &Ty, b: &Ty) -> Option<Ty> {
    Some(match (a, b) {
        (Ty::Unknown, other) | (other, Ty::Unknown) => other.clone(),
        (Ty::Int { lo, hi, unsigned }, Ty::Int { lo: other_lo, hi: other_hi, unsigned: other }) => {
            Ty::Int { lo: *lo.min(other_lo), hi: *hi.max(other_hi), unsigned: *unsigned || *other }
        }
        (Ty::Bytes { max, text }, Ty::Bytes { max: other, text: other_text }) if text == other_text => {
            Ty::Bytes { max: *max.max(other), text: *text }
        }
        (Ty::Option(a), Ty::Option(b)) => Ty::Option(Box::new(join(a, b)?)),
        (Ty::Nothing, Ty::Option(_)) | (Ty::Option(_), Ty::Nothing) => return None,
        (Ty::Option(inner), plain) | (plain, Ty::Option(inner)) => Ty::Option(Box::new(join(inner, plain)?)),
        (Ty::List { elem, max }, Ty::List { elem: other, max: other_max }) => {
            Ty::List { elem: Box::new(join(elem, other)?), max: *max.max(other_max) }
        }
        (Ty::Tuple(a), Ty::Tuple(b)) if a.len() == b.len() => {
            Ty::Tuple(a.iter().zip(b).map(|(a, b)| join(a, b)).collect::<Option<_>>()?)
        }
        (a, b) if a == b => a.clone(),
        _ => return None,
    })
}

/// The widest type of this kind, for a variable that is assigned other values later. Bounds are kept.
pub(crate) fn widen(ty: &Ty) -> Ty {
    match ty {
        Ty::Int { unsigned: true, hi, .. } if *hi > INT.hi => UINT.ty(),
        Ty::Int { .. } => INT.ty(),
        Ty::Option(inner) => Ty::Option(Box::new(widen(inner))),
        Ty::List { elem, max } => Ty::List { elem: Box::new(widen(elem)), max: *max },
        Ty::Tuple(parts) => Ty::Tuple(parts.iter().map(widen).collect()),
        other => other.clone(),
    }
}

/// Whether inference left a part of the type open: a `none` or `[]` without context.
pub(crate) fn is_open(ty: &Ty) -> bool {
    match ty {
        Ty::Option(inner) | Ty::List { elem: inner, .. } => **inner == Ty::Unknown || is_open(inner),
        Ty::Tuple(parts) => parts.iter().any(is_open),
        _ => false,
    }
}

/// Whether `test` is true for a part of a type.
pub(crate) fn has_part(ty: &Ty, test: &dyn Fn(&Ty) -> bool) -> bool {
    test(ty)
        || match ty {
            Ty::Option(inner) | Ty::List { elem: inner, .. } => has_part(inner, test),
            Ty::Tuple(parts) => parts.iter().any(|part| has_part(part, test)),
            _ => false,
        }
}
