//! Coercion: which values are converted implicitly to an expected type, and which are rejected.
//! Promises: a coerced expression has the expected type, except for ranges, bounds of strings and lengths of lists,
//! which are inside the expected ones. A plain value becomes `some` where an option is expected.

use super::Exprs;
use crate::hir::{Block, Expr, ExprKind, Span, Ty, UnitId};
use crate::range::{INT, Range, UINT, range_of};
use crate::report;
use crate::ty::join;

/// Converts `expr` to the kind of the expected type if it can have it: literals become strings or bytes, a plain
/// value becomes `some` of itself, `none` and `[]` take the expected type.
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

/// Calls `change` on the value of every branch.
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

/// Replaces the open parts of `ty` (`none`, `[]`) by those of `wanted`.
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

/// Converts the values of `blocks` to their common type.
pub(crate) fn conform<'b>(blocks: impl IntoIterator<Item = &'b mut Block>, common: &Ty) {
    for block in blocks {
        block.value.iter_mut().for_each(|value| adapt(value, common));
    }
}

impl Exprs<'_> {
    /// Checks that `expr` can be used where `wanted` is expected, and converts it if possible. `target` is what
    /// receives the value, for the diagnostic, with the location of its type.
    pub(crate) fn coerce(&mut self, mut expr: Expr, wanted: &Ty, target: &str, why: Option<Span>) -> Expr {
        let literal = if let ExprKind::Int(value) = expr.kind { Some(value) } else { None };
        let found = expr.ty.clone();
        let is_plain_for_option = matches!(wanted, Ty::Option(_)) && !matches!(found, Ty::Option(_));
        adapt(&mut expr, wanted);
        let target = CoercionTarget { span: expr.span.clone(), target: target.to_owned(), why, literal };
        if let (true, Ty::Option(inner)) = (is_plain_for_option, wanted) {
            let plain = if let ExprKind::Some(inner) = &expr.kind { inner.ty.clone() } else { found };
            self.fit(&plain, inner, &target);
        } else {
            self.fit(&expr.ty.clone(), wanted, &target);
        }
        expr
    }

    /// Reports that a value of type `found` cannot be used as `wanted`, unless it can.
    fn fit(&mut self, found: &Ty, wanted: &Ty, target: &CoercionTarget) {
        match (found, wanted) {
            (Ty::Unknown, _) | (_, Ty::Unknown) => {}
            (Ty::Int { .. }, Ty::Int { .. }) => self.fit_int(found, wanted, target),
            (Ty::Bytes { max, text }, Ty::Bytes { max: allowed, text: wanted_text }) => {
                if text != wanted_text {
                    let (wanted, found) = (self.items.describe(wanted), self.items.describe(found));
                    self.sink.push(report::types::string_or_bytes(target.span.clone(), &wanted, &found));
                } else if max > allowed {
                    let report =
                        report::bounds::bytes_too_long(target.span.clone(), &target.target, *max, *allowed);
                    self.sink.push(report);
                }
            }
            (Ty::Option(found), Ty::Option(wanted)) => self.fit(found, wanted, &target.part("the value of")),
            (Ty::List { elem: found, max }, Ty::List { elem: wanted, max: allowed }) => {
                if max > allowed {
                    let report =
                        report::values::list_too_long(target.span.clone(), &target.target, *max, *allowed);
                    self.sink.push(report);
                } else {
                    self.fit(found, wanted, &target.part("an element of"));
                }
            }
            (Ty::Tuple(found), Ty::Tuple(wanted)) if found.len() == wanted.len() => {
                for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                    self.fit(found, wanted, &target.part(&format!("element {index} of")));
                }
            }
            (Ty::Int { .. }, Ty::Enum(id)) => {
                let enumeration = self.items.enumeration(*id);
                let member =
                    enumeration.members.iter().find(|(_, value)| Some(i128::from(*value)) == target.literal);
                let member = member.map(|(name, _)| name.as_str());
                let report = report::types::enum_and_number(target.span.clone(), &enumeration.name, member);
                self.sink.push(report);
            }
            (found, wanted) if channel_fits(found, wanted) || found == wanted => {}
            (Ty::Record(a), Ty::Record(b)) if self.explained_by_reversal(*a, *b) => {}
            (Ty::Chan { receives: Some(a), sends: Some(b) }, Ty::Chan { receives, sends })
            | (Ty::ChanArray { receives: Some(a), sends: Some(b) }, Ty::ChanArray { receives, sends })
                if (*receives == Some(*b) || *sends == Some(*a)) && self.explained_by_reversal(*a, *b) => {}
            (found, wanted) if lacks_sending(found, wanted) => {
                let (wanted, found) =
                    (self.describe_wanted(wanted, found), self.describe_wanted(found, wanted));
                let why = target.why.clone().map(|span| (span, format!("{} is {wanted}", target.target)));
                self.sink.push(report::channels::receive_only_argument(
                    target.span.clone(),
                    &wanted,
                    &found,
                    why,
                ));
            }
            (Ty::Option(inner), _) if join(inner, wanted).is_some() => {
                let inner = self.items.describe(inner);
                self.sink.push(report::values::may_be_none(target.span.clone(), &inner));
            }
            (found, wanted) => {
                let (wanted_text, found_text) =
                    (self.describe_wanted(wanted, found), self.describe_wanted(found, wanted));
                let why =
                    target.why.clone().map(|span| (span, format!("{} is {wanted_text}", target.target)));
                self.sink.push(report::types::mismatch(target.span.clone(), &wanted_text, &found_text, why));
            }
        }
    }

    fn fit_int(&mut self, found: &Ty, wanted: &Ty, target: &CoercionTarget) {
        let (Some(found), Some(allowed)) = (range_of(found), range_of(wanted)) else { return };
        if found.is_inside(allowed) {
            return;
        }
        let modulus = allowed.modulus().filter(|_| !found.is_point());
        self.sink.push(report::bounds::int_too_wide(
            target.span.clone(),
            &target.target,
            found,
            allowed,
            modulus,
        ));
    }

    /// Describes `ty`; with its directions if both are channels.
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

    /// The range of a result of program arithmetic, which wraps; that of a grammar is exact.
    pub(super) fn wrapped(&self, exact: Range, is_unsigned: bool) -> Range {
        let whole = if is_unsigned { UINT } else { INT };
        if self.grammar.is_some() || exact.is_inside(whole) { exact } else { whole }
    }
}

/// Target of a coercion, for its diagnostics.
struct CoercionTarget {
    span: Span,
    /// Description of what receives it.
    target: String,
    why: Option<Span>,
    /// The value, if it is a literal integer.
    literal: Option<i128>,
}

impl CoercionTarget {
    fn part(&self, what: &str) -> CoercionTarget {
        let target = format!("{what} {}", self.target);
        CoercionTarget { span: self.span.clone(), target, why: self.why.clone(), literal: self.literal }
    }
}

/// Whether a channel that only receives stands where one that sends is expected.
fn lacks_sending(found: &Ty, wanted: &Ty) -> bool {
    match (found, wanted) {
        (Ty::Chan { sends: None, .. }, Ty::Chan { sends: Some(_), receives: None })
        | (Ty::ChanArray { sends: None, .. }, Ty::ChanArray { sends: Some(_), receives: None }) => true,
        (Ty::Chan { receives: a, sends: None }, Ty::Chan { receives: b, sends: Some(_) })
        | (Ty::ChanArray { receives: a, sends: None }, Ty::ChanArray { receives: b, sends: Some(_) }) => {
            a == b
        }
        _ => false,
    }
}

/// Whether a channel can be passed for a parameter with fewer directions.
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
