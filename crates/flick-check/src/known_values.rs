//! Value analysis of grammar expressions: the possible values of an expression, given what is known about the fields
//! it uses.
//! Promises: an expression that is reported as always false, or as being in a range, is so in every message;
//! arithmetic of a grammar is exact, so ranges are too. An expression that is not understood may have any value of
//! its type.
//! Not here: the users (`grammar/unsatisfiable.rs`, `expr/constants.rs`).

use std::collections::BTreeMap;

use crate::hir::{BinaryOp, Block, Builtin, Class, Expr, ExprKind, Field, FieldId, FieldKind, Ty};
use crate::range::Range;
use crate::range::range_of;

/// Known value, or range of values, of a field.
#[derive(Clone, Debug)]
pub(crate) enum KnownValue {
    /// An integer in this range.
    Number(Range),
    /// This string.
    Text(Vec<u8>),
}

/// Known values of fields at the location of an expression.
#[derive(Clone)]
pub(crate) struct KnownValues<'a> {
    pub(crate) fields: &'a [Field],
    pub(crate) classes: &'a [Class],
    pub(crate) known: BTreeMap<FieldId, KnownValue>,
    /// The field that `$$` stands for.
    pub(crate) dollar: Option<FieldId>,
}

impl KnownValues<'_> {
    /// The value of a boolean expression, if it is constant.
    pub(crate) fn truth(&self, expr: &Expr) -> Option<bool> {
        match &expr.kind {
            ExprKind::Bool(value) => Some(*value),
            ExprKind::Not(inner) => self.truth(inner).map(|value| !value),
            ExprKind::Binary(BinaryOp::And, a, b) => match (self.truth(a), self.truth(b)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), other) => other,
                (None, _) => None,
            },
            ExprKind::Binary(BinaryOp::Or, a, b) => match (self.truth(a), self.truth(b)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), other) => other,
                (None, _) => None,
            },
            ExprKind::Binary(op, a, b) => self.compared(*op, a, b),
            ExprKind::If { cond, then, otherwise } => match self.truth(cond) {
                Some(true) => self.truth_of(then),
                Some(false) => self.truth_of(otherwise.as_ref()?),
                None => {
                    let then = self.truth_of(then)?;
                    (self.truth_of(otherwise.as_ref()?) == Some(then)).then_some(then)
                }
            },
            ExprKind::Switch { value, arms, otherwise } => {
                let is_met = |(patterns, _): &&(Vec<Expr>, Block)| {
                    patterns.iter().any(|pattern| self.compared(BinaryOp::Eq, value, pattern) != Some(false))
                };
                let met: Vec<_> = arms.iter().filter(is_met).map(|(_, block)| block).collect();
                let is_sure = arms
                    .iter()
                    .flat_map(|(patterns, _)| patterns)
                    .any(|pattern| self.compared(BinaryOp::Eq, value, pattern) == Some(true));
                let rest = otherwise.iter().filter(|_| !is_sure);
                let mut truths = met.into_iter().chain(rest).map(|block| self.truth_of(block));
                let first = truths.next()??;
                truths.all(|other| other == Some(first)).then_some(first)
            }
            ExprKind::Builtin(Builtin::StartsWith | Builtin::EndsWith | Builtin::Contains, args) => {
                let [text, part] = args.as_slice() else { return None };
                let least = if let ExprKind::Str(part) = &part.kind { part.len() as i128 } else { 0 };
                (self.length(text)?.hi < least).then_some(false)
            }
            _ => None,
        }
    }

    fn truth_of(&self, block: &Block) -> Option<bool> {
        block.value.as_ref().and_then(|value| self.truth(value))
    }

    fn compared(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<bool> {
        if matches!(a.ty, Ty::Bytes { .. }) {
            return match op {
                BinaryOp::Eq => self.same_text(a, b),
                BinaryOp::Ne => self.same_text(a, b).map(|value| !value),
                _ => None,
            };
        }
        let (a, b) = (self.range(a)?, self.range(b)?);
        match op {
            BinaryOp::Eq => equal(a, b),
            BinaryOp::Ne => equal(a, b).map(|value| !value),
            BinaryOp::Lt => order(a.hi < b.lo, a.lo >= b.hi),
            BinaryOp::Le => order(a.hi <= b.lo, a.lo > b.hi),
            BinaryOp::Gt => order(a.lo > b.hi, a.hi <= b.lo),
            BinaryOp::Ge => order(a.lo >= b.hi, a.hi < b.lo),
            _ => None,
        }
    }

    /// Whether two values are always equal (`true`) or never (`false`).
    pub(crate) fn same(&self, a: &Expr, b: &Expr) -> Option<bool> {
        self.compared(BinaryOp::Eq, a, b)
    }

    /// Whether two strings are equal, one of them a constant.
    fn same_text(&self, a: &Expr, b: &Expr) -> Option<bool> {
        let (text, constant) = match (self.constant(a), self.constant(b)) {
            (Some(a), Some(b)) => return Some(a == b),
            (None, Some(b)) => (a, b),
            (Some(a), None) => (b, a),
            (None, None) => return None,
        };
        if !self.length(text)?.contains(constant.len() as i128) {
            return Some(false);
        }
        let ExprKind::SelfField(field) = text.kind else { return None };
        let FieldKind::Text { class, until, .. } = &self.fields[field.0 as usize].kind else { return None };
        let class = class.map(|class| &self.classes[class.0 as usize]);
        let is_outside = class.is_some_and(|class| constant.iter().any(|byte| !class.has(*byte)));
        let has_end =
            until.as_ref().is_some_and(|until| constant.windows(until.len()).any(|part| part == until));
        (is_outside || has_end).then_some(false)
    }

    fn constant<'e>(&'e self, expr: &'e Expr) -> Option<&'e [u8]> {
        match &expr.kind {
            ExprKind::Str(bytes) => Some(bytes),
            ExprKind::SelfField(field) => match self.known.get(field)? {
                KnownValue::Text(bytes) => Some(bytes),
                KnownValue::Number(_) => None,
            },
            _ => None,
        }
    }

    /// The possible lengths of a string.
    fn length(&self, text: &Expr) -> Option<Range> {
        if let Some(constant) = self.constant(text) {
            return Some(Range::point(constant.len() as i128));
        }
        let Ty::Bytes { max, .. } = text.ty else { return None };
        // A field that is not present reads as empty, whatever its minimum length.
        Some(Range { lo: 0, hi: i128::from(max) })
    }

    /// The range of an integer expression.
    pub(crate) fn range(&self, expr: &Expr) -> Option<Range> {
        let of_type = match &expr.ty {
            Ty::Bool => Some(Range { lo: 0, hi: 1 }),
            ty => range_of(ty),
        };
        match &expr.kind {
            ExprKind::Int(value) if expr.ty != Ty::Unknown => Some(Range::point(*value)),
            ExprKind::Bool(value) => Some(Range::point(i128::from(*value))),
            ExprKind::Member(_, value) => Some(Range::point(i128::from(*value))),
            ExprKind::Dollar => self.dollar.map_or(of_type, |field| self.field(field, of_type)),
            ExprKind::SelfField(field) => self.field(*field, of_type),
            ExprKind::Binary(op, a, b) if matches!(expr.ty, Ty::Int { .. }) => {
                Range::of_binary(*op, self.range(a)?, self.range(b)?).or(of_type)
            }
            ExprKind::Builtin(Builtin::Len, args) => match args.as_slice() {
                [text] => self.length(text).or(of_type),
                _ => of_type,
            },
            _ => of_type,
        }
    }

    fn field(&self, field: FieldId, of_type: Option<Range>) -> Option<Range> {
        match self.known.get(&field) {
            Some(KnownValue::Number(range)) => Some(*range),
            _ => of_type,
        }
    }

    /// Learns from a check that is true.
    pub(crate) fn learn(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                self.learn(a);
                self.learn(b);
            }
            ExprKind::Binary(op, a, b) => {
                let mirrored = match op {
                    BinaryOp::Lt => BinaryOp::Gt,
                    BinaryOp::Le => BinaryOp::Ge,
                    BinaryOp::Gt => BinaryOp::Lt,
                    BinaryOp::Ge => BinaryOp::Le,
                    other => *other,
                };
                self.learn_of(*op, a, b);
                self.learn_of(mirrored, b, a);
            }
            _ => {}
        }
    }

    /// Learns that a value equals a constant.
    pub(crate) fn learn_equal(&mut self, value: &Expr, constant: &Expr) {
        self.learn_of(BinaryOp::Eq, value, constant);
    }

    fn learn_of(&mut self, op: BinaryOp, subject: &Expr, other: &Expr) {
        let field = match subject.kind {
            ExprKind::SelfField(field) => field,
            ExprKind::Dollar => match self.dollar {
                Some(field) => field,
                None => return,
            },
            _ => return,
        };
        if let (ExprKind::Str(bytes), BinaryOp::Eq) = (&other.kind, op) {
            self.known.insert(field, KnownValue::Text(bytes.clone()));
            return;
        }
        let (Some(own), Some(other)) = (self.range(subject), self.range(other)) else { return };
        let narrow = match op {
            BinaryOp::Eq => Range { lo: own.lo.max(other.lo), hi: own.hi.min(other.hi) },
            BinaryOp::Lt => Range { hi: own.hi.min(other.hi - 1), ..own },
            BinaryOp::Le => Range { hi: own.hi.min(other.hi), ..own },
            BinaryOp::Gt => Range { lo: own.lo.max(other.lo + 1), ..own },
            BinaryOp::Ge => Range { lo: own.lo.max(other.lo), ..own },
            _ => return,
        };
        // A condition that is always false was reported; after it nothing is known.
        if narrow.lo <= narrow.hi {
            self.known.insert(field, KnownValue::Number(narrow));
        }
    }
}

fn equal(a: Range, b: Range) -> Option<bool> {
    order(a.is_point() && b.is_point() && a.lo == b.lo, a.hi < b.lo || b.hi < a.lo)
}

/// The result of a comparison that is always true or always false.
fn order(always: bool, never: bool) -> Option<bool> {
    match (always, never) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}
