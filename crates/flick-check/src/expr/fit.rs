//! Where a value meets the place it is for: what adapts by itself, what two branches have in common, what is refused.
//! Promises: an expression that was fitted has the type of its place, but for intervals of numbers, bounds of text and
//! lengths of lists, which are inside those of the place. A plain value given to an option becomes `some`.

use super::{Exprs, range_of};
use crate::hir::{Block, Expr, ExprKind, Span, Ty, UnitId};
use crate::range::{INT, Range, UINT};
use crate::report;

/// Gives `expr` the kind of type that its surroundings expect, where it can have it: literals are text or bytes, a
/// plain value is `some` of itself, `none` and `[]` are of what is wanted.
pub(crate) fn adapt(expr: &mut Expr, wanted: &Ty) {
    if expr.ty == *wanted || matches!(expr.ty, Ty::Unknown | Ty::Nothing) || *wanted == Ty::Unknown {
        return;
    }
    if let (Ty::Option(inner), false) = (wanted, matches!(expr.ty, Ty::Option(_))) {
        adapt(expr, inner);
        let plain = std::mem::replace(expr, super::unknown(expr.span.clone()));
        *expr = some(plain);
        return;
    }
    match (&mut expr.kind, wanted) {
        (ExprKind::Str(_), Ty::Bytes { text: wanted, .. }) => {
            if let Ty::Bytes { text, .. } = &mut expr.ty {
                *text = *wanted;
            }
        }
        (ExprKind::Tuple(parts), Ty::Tuple(wanted)) if parts.len() == wanted.len() => {
            parts.iter_mut().zip(wanted).for_each(|(part, wanted)| adapt(part, wanted));
            expr.ty = Ty::Tuple(parts.iter().map(|part| part.ty.clone()).collect());
        }
        (ExprKind::List(items), Ty::List { elem, .. }) => {
            items.iter_mut().for_each(|item| adapt(item, elem));
            let max = items.len() as u32;
            let elem = items.iter().try_fold(Ty::Unknown, |common, item| join(&common, &item.ty));
            if let Some(elem) = elem {
                expr.ty = Ty::List { elem: Box::new(elem), max };
            }
        }
        (ExprKind::Some(inner), Ty::Option(wanted)) => {
            adapt(inner, wanted);
            expr.ty = Ty::Option(Box::new(inner.ty.clone()));
        }
        _ => adapt_branches(expr, wanted),
    }
    fill(&mut expr.ty, wanted);
}

fn adapt_branches(expr: &mut Expr, wanted: &Ty) {
    let mut common = Some(Ty::Unknown);
    let mut has_branches = false;
    each_branch(expr, &mut |value| {
        has_branches = true;
        adapt(value, wanted);
        common = common.take().and_then(|common| join(&common, &value.ty));
    });
    if let (true, Some(common)) = (has_branches, common) {
        expr.ty = common;
    }
}

/// Calls `change` on the value of every branch of a choice.
fn each_branch(expr: &mut Expr, change: &mut dyn FnMut(&mut Expr)) {
    let mut branch = |block: &mut Block| block.value.iter_mut().for_each(|value| change(value));
    match &mut expr.kind {
        ExprKind::If { then, otherwise, .. } => {
            branch(then);
            otherwise.iter_mut().for_each(branch);
        }
        ExprKind::Switch { arms, otherwise, .. } => {
            arms.iter_mut().for_each(|(_, body)| branch(body));
            otherwise.iter_mut().for_each(branch);
        }
        ExprKind::Match { arms, otherwise, .. } => {
            arms.iter_mut().for_each(|(_, _, body)| branch(body));
            otherwise.iter_mut().for_each(branch);
        }
        _ => {}
    }
}

/// Replaces what `ty` leaves open (`none`, `[]`) by what `wanted` says.
fn fill(ty: &mut Ty, wanted: &Ty) {
    match (ty, wanted) {
        (Ty::Option(a), Ty::Option(b)) => match **a {
            Ty::Unknown => *a = b.clone(),
            _ => fill(a, b),
        },
        (Ty::List { elem: a, .. }, Ty::List { elem: b, .. }) => match **a {
            Ty::Unknown => *a = b.clone(),
            _ => fill(a, b),
        },
        (Ty::Tuple(a), Ty::Tuple(b)) => a.iter_mut().zip(b).for_each(|(a, b)| fill(a, b)),
        _ => {}
    }
}

/// `some(plain)`.
pub(crate) fn some(plain: Expr) -> Expr {
    let (ty, span) = (Ty::Option(Box::new(plain.ty.clone())), plain.span.clone());
    Expr { kind: ExprKind::Some(Box::new(plain)), ty, span }
}

/// Gives the values of `blocks` the type they have in common.
pub(crate) fn conform<'b>(blocks: impl IntoIterator<Item = &'b mut Block>, common: &Ty) {
    for block in blocks {
        block.value.iter_mut().for_each(|value| adapt(value, common));
    }
}

/// The type that holds values of both, if one does. What is `Unknown` in one is as in the other.
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

/// The widest type of the kind: what a name may hold that gets other values later. Bounds stay.
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

/// Whether a part of the type is open: of a `none` or `[]` that nothing says more about.
pub(crate) fn is_open(ty: &Ty) -> bool {
    match ty {
        Ty::Option(inner) | Ty::List { elem: inner, .. } => **inner == Ty::Unknown || is_open(inner),
        Ty::Tuple(parts) => parts.iter().any(is_open),
        _ => false,
    }
}

/// Whether a type has a part for which `test` holds.
pub(crate) fn has_part(ty: &Ty, test: &dyn Fn(&Ty) -> bool) -> bool {
    test(ty)
        || match ty {
            Ty::Option(inner) | Ty::List { elem: inner, .. } => has_part(inner, test),
            Ty::Tuple(parts) => parts.iter().any(|part| has_part(part, test)),
            _ => false,
        }
}

impl Exprs<'_> {
    /// Checks that `expr` may stand where `wanted` is expected, and gives it that type where it can adapt.
    /// `target` is what receives the value, for the message, with the place that says so.
    pub(crate) fn coerce(&mut self, mut expr: Expr, wanted: &Ty, target: &str, why: Option<Span>) -> Expr {
        let literal = if let ExprKind::Int(value) = expr.kind { Some(value) } else { None };
        let found = expr.ty.clone();
        let is_plain_for_option = matches!(wanted, Ty::Option(_)) && !matches!(found, Ty::Option(_));
        adapt(&mut expr, wanted);
        let place = Place { span: expr.span.clone(), target: target.to_owned(), why, literal };
        if let (true, Ty::Option(inner)) = (is_plain_for_option, wanted) {
            let plain = if let ExprKind::Some(inner) = &expr.kind { inner.ty.clone() } else { found };
            self.fit(&plain, inner, &place);
        } else {
            self.fit(&expr.ty.clone(), wanted, &place);
        }
        expr
    }

    /// Reports why a value of type `found` cannot be where `wanted` is, unless it can.
    fn fit(&mut self, found: &Ty, wanted: &Ty, place: &Place) {
        match (found, wanted) {
            (Ty::Unknown, _) | (_, Ty::Unknown) => {}
            (Ty::Int { .. }, Ty::Int { .. }) => self.fit_int(found, wanted, place),
            (Ty::Bytes { max, text }, Ty::Bytes { max: allowed, text: wanted_text }) => {
                if text != wanted_text {
                    let (wanted, found) = (self.items.describe(wanted), self.items.describe(found));
                    self.sink.push(report::types::kind_differs(place.span.clone(), &wanted, &found));
                } else if max > allowed {
                    let report =
                        report::bounds::bytes_too_long(place.span.clone(), &place.target, *max, *allowed);
                    self.sink.push(report);
                }
            }
            (Ty::Option(found), Ty::Option(wanted)) => self.fit(found, wanted, &place.part("the value in")),
            (Ty::List { elem: found, max }, Ty::List { elem: wanted, max: allowed }) => {
                if max > allowed {
                    let report =
                        report::values::list_too_long(place.span.clone(), &place.target, *max, *allowed);
                    self.sink.push(report);
                } else {
                    self.fit(found, wanted, &place.part("an element of"));
                }
            }
            (Ty::Tuple(found), Ty::Tuple(wanted)) if found.len() == wanted.len() => {
                for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                    self.fit(found, wanted, &place.part(&format!("part {index} of")));
                }
            }
            (Ty::Int { .. }, Ty::Enum(id)) => {
                let enumeration = self.items.enumeration(*id);
                let member =
                    enumeration.members.iter().find(|(_, value)| Some(i128::from(*value)) == place.literal);
                let member = member.map(|(name, _)| name.as_str());
                let report = report::types::enum_and_number(place.span.clone(), &enumeration.name, member);
                self.sink.push(report);
            }
            (found, wanted) if channel_fits(found, wanted) || found == wanted => {}
            (Ty::Option(inner), _) if join(inner, wanted).is_some() => {
                let inner = self.items.describe(inner);
                self.sink.push(report::values::may_be_none(place.span.clone(), &inner));
            }
            (found, wanted) => {
                let (wanted_text, found_text) =
                    (self.describe_wanted(wanted, found), self.describe_wanted(found, wanted));
                let why = place.why.clone().map(|span| (span, format!("{} is {wanted_text}", place.target)));
                self.sink.push(report::types::mismatch(place.span.clone(), &wanted_text, &found_text, why));
            }
        }
    }

    fn fit_int(&mut self, found: &Ty, wanted: &Ty, place: &Place) {
        let (Some(found), Some(allowed)) = (range_of(found), range_of(wanted)) else { return };
        if found.is_inside(allowed) {
            return;
        }
        let modulus = allowed.modulus().filter(|_| !found.is_point());
        self.sink.push(report::bounds::int_too_wide(
            place.span.clone(),
            &place.target,
            found,
            allowed,
            modulus,
        ));
    }

    /// Describes `ty`; where the other one is a channel too, with its directions.
    fn describe_wanted(&self, ty: &Ty, other: &Ty) -> String {
        let end = |unit: &Option<UnitId>| unit.map_or("-", |id| self.items.unit(id).name.as_str());
        match (ty, other) {
            (Ty::Chan { receives, sends }, Ty::Chan { .. } | Ty::ChanArray { .. }) => {
                format!("a channel `{}/{}`", end(receives), end(sends))
            }
            (Ty::ChanArray { receives, sends }, Ty::Chan { .. } | Ty::ChanArray { .. }) => {
                format!("an array of channels `[{}/{}]`", end(receives), end(sends))
            }
            _ => self.items.describe(ty),
        }
    }

    /// The interval of a result of program arithmetic, which wraps; a grammar's is exact.
    pub(super) fn wrapped(&self, exact: Range, is_unsigned: bool) -> Range {
        let whole = if is_unsigned { UINT } else { INT };
        if self.grammar.is_some() || exact.is_inside(whole) { exact } else { whole }
    }
}

/// Where a value is needed.
struct Place {
    span: Span,
    /// What receives it.
    target: String,
    why: Option<Span>,
    /// The value, if it is a literal number.
    literal: Option<i128>,
}

impl Place {
    fn part(&self, what: &str) -> Place {
        let target = format!("{what} {}", self.target);
        Place { span: self.span.clone(), target, why: self.why.clone(), literal: self.literal }
    }
}

/// A channel may be passed where fewer directions are needed.
fn channel_fits(found: &Ty, wanted: &Ty) -> bool {
    let (found, wanted) = match (found, wanted) {
        (Ty::Chan { receives: a, sends: b }, Ty::Chan { receives: c, sends: d })
        | (Ty::ChanArray { receives: a, sends: b }, Ty::ChanArray { receives: c, sends: d }) => {
            ((a, b), (c, d))
        }
        _ => return false,
    };
    let covers = |have: &Option<UnitId>, need: &Option<UnitId>| need.is_none() || have == need;
    covers(found.0, wanted.0) && covers(found.1, wanted.1)
}
