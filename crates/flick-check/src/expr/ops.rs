//! Operators.

use flick_syntax::ast;

use super::builtin::callee_text;
use super::time::time_result;
use super::{Exprs, adapt, bind, int, recast, unknown, value_block};
use crate::hir::{BinaryOp, Expr, ExprKind, Span, Ty};
use crate::items::Items;
use crate::range::{INT, Range, UINT, range_of};
use crate::report;

impl Exprs<'_> {
    pub(super) fn unary(&mut self, unary: &ast::UnaryExpr, span: Span) -> Expr {
        let operand = self.opt_expr(unary.operand(), &span);
        if operand.ty == Ty::Unknown {
            return unknown(span);
        }
        match (unary.op(), &operand.ty) {
            (Some(ast::UnaryOp::Not), Ty::Bool) => {
                Expr { kind: ExprKind::Not(Box::new(operand)), ty: Ty::Bool, span }
            }
            (Some(ast::UnaryOp::Neg), &Ty::Int { lo, hi, .. }) => {
                if let ExprKind::Int(value) = operand.kind
                    && -value >= INT.lo
                {
                    return int(-value, span);
                }
                let range = Range { lo, hi };
                if range.hi > INT.hi {
                    let help = "keep the low bits first: `-(... mod 256)`";
                    self.sink.push(report::types::prefix(
                        operand.span,
                        "-",
                        "an integer that may be above 9223372036854775807",
                        help,
                    ));
                    return unknown(span);
                }
                let ty = self.wrapped(range.neg(), false).ty();
                Expr { kind: ExprKind::Neg(Box::new(operand)), ty, span }
            }
            (Some(ast::UnaryOp::Neg), Ty::Duration) => {
                let negated = ExprKind::Neg(Box::new(recast(operand, INT.ty())));
                recast(Expr { kind: negated, ty: INT.ty(), span }, Ty::Duration)
            }
            (Some(op), found) => {
                let (sign, help) = match op {
                    ast::UnaryOp::Not => {
                        ("not", "`not` takes a boolean; compare an integer first: `not (x == 0)`")
                    }
                    ast::UnaryOp::Neg => ("-", "`-` takes an integer or a duration"),
                };
                let found = self.items.describe(found);
                self.sink.push(report::types::prefix(operand.span, sign, &found, help));
                unknown(span)
            }
            (None, _) => unknown(span),
        }
    }

    pub(super) fn binary(&mut self, binary: &ast::BinaryExpr, span: Span) -> Expr {
        if let Some((message, channel)) = self.left_arrow(binary) {
            self.sink.push(report::channels::left_arrow(span.clone(), &message, &channel));
            return Expr { ty: Ty::Nothing, ..unknown(span) };
        }
        let mut left = self.opt_expr(binary.left(), &span);
        let expected = left.ty.clone();
        let mut right = match binary.right() {
            Some(right) => self.expr_like(&right, &expected),
            None => unknown(span.clone()),
        };
        let Some(op) = binary.op().map(lower_op) else { return unknown(span) };
        if left.ty == Ty::Unknown || right.ty == Ty::Unknown {
            // The type of a comparison is known anyway, which avoids follow-up errors.
            let ty = if is_arithmetic(op) { Ty::Unknown } else { Ty::Bool };
            return Expr { kind: ExprKind::Int(0), ty, span };
        }
        if let Some(test) = self.none_test(op, &left, &right, &span) {
            return test;
        }
        let may_adapt = |ty: &Ty| !matches!(ty, Ty::Option(_));
        if may_adapt(&left.ty) && may_adapt(&right.ty) {
            adapt(&mut left, &right.ty.clone());
            adapt(&mut right, &left.ty.clone());
        }
        match op {
            BinaryOp::And | BinaryOp::Or => self.logic(op, left, right, span),
            _ if is_arithmetic(op) => self.arithmetic(op, left, right, span),
            _ => self.comparison(op, left, right, span),
        }
    }

    /// The texts of the message and the channel of `channel <- message` or `message <- channel`. `None` if neither side
    /// is a channel: `a <-b` compares.
    fn left_arrow(&mut self, binary: &ast::BinaryExpr) -> Option<(String, String)> {
        let (left, ast::Expr::Unary(negated)) = (binary.left()?, binary.right()?) else { return None };
        let is_arrow = binary.op() == Some(ast::BinaryOp::Less) && negated.op() == Some(ast::UnaryOp::Neg);
        let right = negated.operand().filter(|_| is_arrow)?;
        for (channel, message) in [(&left, &right), (&right, &left)] {
            let (name, index) = match channel {
                ast::Expr::Name(name) => (name.name(), None),
                ast::Expr::Index(index) => match index.base() {
                    Some(ast::Expr::Name(name)) => (name.name(), Some(channel)),
                    _ => continue,
                },
                _ => continue,
            };
            let Some(name) = name else { continue };
            let written = match (self.scope.resolve(name.text()), index) {
                (Some((_, Ty::ChanArray { .. })), Some(element)) => callee_text(element),
                (Some((_, Ty::ChanArray { .. })), None) => format!("{}[i]", name.text()),
                (Some((_, Ty::Chan { .. })), _) => name.text().to_owned(),
                _ => continue,
            };
            return Some((callee_text(message), written));
        }
        None
    }

    fn logic(&mut self, op: BinaryOp, left: Expr, right: Expr, span: Span) -> Expr {
        // Two operands of the wrong type are one error.
        let wrong = [&left, &right].into_iter().find(|side| side.ty != Ty::Bool);
        if let Some(side) = wrong {
            {
                let found = self.items.describe(&side.ty);
                let help = format!(
                    "`{}` takes two booleans; write both comparisons: `x == 1 {0} x == 2`",
                    spelled(op)
                );
                self.sink.push(report::types::prefix(side.span.clone(), spelled(op), &found, &help));
            }
        }
        make(op, left, right, Ty::Bool, span)
    }

    /// `option == none` and `option != none`.
    fn none_test(&mut self, op: BinaryOp, left: &Expr, right: &Expr, span: &Span) -> Option<Expr> {
        let is_none = |side: &Expr| matches!(side.kind, ExprKind::None);
        let option = match (is_none(left), is_none(right)) {
            (false, true) => left,
            (true, false) => right,
            _ => return None,
        };
        let for_none = match op {
            BinaryOp::Eq => true,
            BinaryOp::Ne => false,
            _ => return None,
        };
        if !matches!(option.ty, Ty::Option(_)) {
            let found = self.items.describe(&option.ty);
            self.sink.push(report::values::never_none(option.span.clone(), &found));
            return Some(Expr { ty: Ty::Bool, ..unknown(span.clone()) });
        }
        let truth =
            |value: bool| value_block(Expr { kind: ExprKind::Bool(value), ty: Ty::Bool, span: span.clone() });
        let arms = vec![(vec![0], None, truth(for_none)), (vec![1], None, truth(!for_none))];
        let kind = ExprKind::Match { value: Box::new(option.clone()), arms, otherwise: None };
        Some(Expr { kind, ty: Ty::Bool, span: span.clone() })
    }

    pub(super) fn comparison(&mut self, op: BinaryOp, mut left: Expr, mut right: Expr, span: Span) -> Expr {
        let is_order = !matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        if matches!((&left.ty, &right.ty), (Ty::Time, Ty::Time) | (Ty::Duration, Ty::Duration)) {
            return make(op, recast(left, INT.ty()), recast(right, INT.ty()), Ty::Bool, span);
        }
        let is_whole = matches!((&left.ty, &right.ty), (Ty::Struct(_), _) | (Ty::Tuple(_), _));
        if is_whole && !is_order && Items::same_kind(&left.ty, &right.ty) {
            return self.elementwise(op, left, right, span);
        }
        let fits = match (&left.ty, &right.ty) {
            (Ty::Int { .. }, Ty::Int { .. }) => {
                self.same_sign(&mut left, &mut right);
                true
            }
            (Ty::Enum(id), Ty::Int { .. }) | (Ty::Int { .. }, Ty::Enum(id)) => {
                let number = if matches!(left.ty, Ty::Int { .. }) { &left } else { &right };
                self.number_for_enum(*id, number);
                true
            }
            (a, b) if !Items::same_kind(a, b) => false,
            (Ty::Bytes { .. }, _) => true,
            (Ty::Bool | Ty::Enum(_) | Ty::Ipv4 | Ty::Ipv6 | Ty::Endpoint, _) => !is_order,
            _ => false,
        };
        if !fits {
            let is_comparison = |side: &Expr| matches!(side.kind, ExprKind::Binary(op, ..) if !is_arithmetic(op) && !matches!(op, BinaryOp::And | BinaryOp::Or));
            let is_chained = is_comparison(&left) || is_comparison(&right);
            let (left_ty, right_ty) = (left.ty.clone(), right.ty.clone());
            let (left, right) = (self.items.describe(&left_ty), self.items.describe(&right_ty));
            let help = if is_chained {
                "write both comparisons: `3 < x and x < 9`".to_owned()
            } else {
                comparison_help(&left_ty, &right_ty, &left, is_order)
            };
            self.sink.push(report::types::operator(span.clone(), spelled(op), &left, &right, &help));
        }
        make(op, left, right, Ty::Bool, span)
    }

    /// Records and tuples are equal if all their elements are.
    fn elementwise(&mut self, op: BinaryOp, left: Expr, right: Expr, span: Span) -> Expr {
        let count = match &left.ty {
            Ty::Struct(id) => self.items.structs[id.0 as usize].fields.len(),
            Ty::Tuple(parts) => parts.len(),
            _ => 0,
        };
        bind(self, left, |exprs, left| {
            bind(exprs, right, |exprs, right| {
                let mut whole: Option<Expr> = None;
                for index in 0..count {
                    let (a, b) = (exprs.part_of(&left, index, &span), exprs.part_of(&right, index, &span));
                    let same = exprs.comparison(BinaryOp::Eq, a, b, span.clone());
                    whole = Some(match whole {
                        None => same,
                        Some(before) => make(BinaryOp::And, before, same, Ty::Bool, span.clone()),
                    });
                }
                let truth = Expr { kind: ExprKind::Bool(true), ty: Ty::Bool, span: span.clone() };
                let whole = whole.unwrap_or(truth);
                match op {
                    BinaryOp::Ne => {
                        Expr { kind: ExprKind::Not(Box::new(whole)), ty: Ty::Bool, span: span.clone() }
                    }
                    _ => whole,
                }
            })
        })
    }

    fn part_of(&self, whole: &Expr, index: usize, span: &Span) -> Expr {
        let base = Box::new(whole.clone());
        match &whole.ty {
            Ty::Struct(id) => {
                let ty = self.items.structs[id.0 as usize].fields[index].1.clone();
                Expr { kind: ExprKind::StructField(base, index as u32), ty, span: span.clone() }
            }
            Ty::Tuple(parts) => Expr {
                kind: ExprKind::TupleField(base, index as u32),
                ty: parts[index].clone(),
                span: span.clone(),
            },
            _ => unknown(span.clone()),
        }
    }

    /// Reports an integer where a member of an enum is expected.
    pub(super) fn number_for_enum(&mut self, id: crate::hir::EnumId, number: &Expr) {
        let enumeration = self.items.enumeration(id);
        let value = range_of(&number.ty).filter(|range| range.is_point()).map(|range| range.lo);
        let member = enumeration.members.iter().find(|(_, known)| Some(i128::from(*known)) == value);
        let member = member.map(|(name, _)| name.as_str());
        self.sink.push(report::types::enum_and_number(number.span.clone(), &enumeration.name, member));
    }

    pub(super) fn arithmetic(&mut self, op: BinaryOp, left: Expr, right: Expr, span: Span) -> Expr {
        if let Some(result) = time_result(op, &left.ty, &right.ty) {
            return self.time_arithmetic(op, left, right, result, span);
        }
        if let (BinaryOp::Add, Ty::Bytes { text: a, .. }, Ty::Bytes { text: b, .. }) =
            (op, &left.ty, &right.ty)
            && a == b
            && self.grammar.as_ref().is_none_or(|scope| scope.is_lazy)
        {
            return self.concat(left, right, span);
        }
        let (Some(_), Some(by)) = (range_of(&left.ty), range_of(&right.ty)) else {
            return self.reject_arithmetic(op, &left, &right, span);
        };
        self.check_divisor(op, by, &right.span);
        self.integer_arithmetic(op, left, right, span)
    }

    /// Reports a divisor of this range that may be zero.
    pub(super) fn check_divisor(&mut self, op: BinaryOp, by: Range, span: &Span) {
        if matches!(op, BinaryOp::Div | BinaryOp::Mod) && by.contains(0) {
            self.sink.push(report::bounds::zero_divisor(span.clone(), spelled(op), by.is_point()));
        }
    }

    /// `left op right` of integers; by zero it is zero.
    pub(super) fn integer_arithmetic(
        &mut self,
        op: BinaryOp,
        mut left: Expr,
        mut right: Expr,
        span: Span,
    ) -> Expr {
        let is_unsigned = self.same_sign(&mut left, &mut right);
        let (a, b) = (range_of(&left.ty).unwrap_or(INT), range_of(&right.ty).unwrap_or(INT));
        let exact = match op {
            BinaryOp::Add => a.add(b),
            BinaryOp::Sub => a.sub(b),
            BinaryOp::Mul => a.mul(b),
            BinaryOp::Div => a.div(b),
            _ => a.modulo(b),
        };
        let range = self.wrapped(exact, is_unsigned);
        if let (ExprKind::Int(_), ExprKind::Int(_), true) = (
            &left.kind,
            &right.kind,
            exact.is_point() && exact == range && (INT.contains(exact.lo) || UINT.contains(exact.lo)),
        ) {
            return int(range.lo, span);
        }
        make(op, left, right, range.ty(), span)
    }

    fn reject_arithmetic(&mut self, op: BinaryOp, left: &Expr, right: &Expr, span: Span) -> Expr {
        if let Some(side) = [left, right].into_iter().find(|side| matches!(side.ty, Ty::Option(_)))
            && let Ty::Option(inner) = &side.ty
        {
            let inner = self.items.describe(inner);
            self.sink.push(report::values::may_be_none(side.span.clone(), &inner));
            return unknown(span);
        }
        let help = match (&left.ty, &right.ty) {
            (Ty::Bytes { text: true, .. }, Ty::Int { .. })
            | (Ty::Int { .. }, Ty::Bytes { text: true, .. })
                if op == BinaryOp::Add =>
            {
                "convert the integer to a string: `str(n)`"
            }
            (Ty::Bytes { .. }, Ty::Bytes { .. }) if op == BinaryOp::Add => {
                "convert one of them before concatenating: `raw(string)` or `text(bytes)`"
            }
            (Ty::Bytes { .. }, Ty::Bytes { .. }) => {
                "concatenate strings with `+`; other arithmetic takes integers"
            }
            (Ty::Time | Ty::Duration, Ty::Int { .. }) | (Ty::Int { .. }, Ty::Time | Ty::Duration) => {
                "convert the integer to a duration: `n * 1ms`"
            }
            (Ty::Time, _) | (_, Ty::Time) => {
                "subtract two times to get a duration; add a duration to a time or subtract it"
            }
            (Ty::Duration, Ty::Duration) => {
                "durations can be added, subtracted and divided, or multiplied by an integer"
            }
            (Ty::List { .. }, _) => "build lists with `map`, `filter` and `[a, b]`, slice them with `[..n]`",
            (Ty::Enum(_), _) | (_, Ty::Enum(_)) => "convert a member to its integer: `int(member)`",
            _ => "arithmetic takes integers",
        };
        let (left, right) = (self.items.describe(&left.ty), self.items.describe(&right.ty));
        self.sink.push(report::types::operator(span.clone(), spelled(op), &left, &right, help));
        unknown(span)
    }

    /// Whether a 64-bit type holds all values of this common type; reports it if not. Exact arithmetic needs none.
    pub(super) fn check_signs(&mut self, common: &Ty, span: &Span) -> bool {
        let differ =
            matches!(common, Ty::Int { lo, unsigned: true, .. } if *lo < 0) && self.grammar.is_none();
        if differ {
            self.sink.push(report::types::signs_differ(span.clone()));
        }
        !differ
    }

    /// Converts both operands to the same 64-bit type; returns whether it is the unsigned one. Exact arithmetic needs
    /// no conversion.
    fn same_sign(&mut self, left: &mut Expr, right: &mut Expr) -> bool {
        let (Ty::Int { lo: a_lo, unsigned: a, .. }, Ty::Int { lo: b_lo, unsigned: b, .. }) =
            (&mut left.ty, &mut right.ty)
        else {
            return false;
        };
        if self.grammar.is_some() || !(*a || *b) {
            return false;
        }
        if *a_lo < 0 || *b_lo < 0 {
            let span = if *a_lo < 0 { left.span.clone() } else { right.span.clone() };
            self.sink.push(report::types::signs_differ(span));
        }
        *a = true;
        *b = true;
        true
    }
}

/// Help for two values that cannot be compared.
fn comparison_help(left: &Ty, right: &Ty, left_text: &str, is_order: bool) -> String {
    match (left, right) {
        (Ty::Option(inner), _) | (_, Ty::Option(inner)) if matches!(**inner, Ty::Bytes { .. }) => {
            "write a default value, `(... else \"\") == x`, or compare with `none`: `... == none`".to_owned()
        }
        (Ty::Option(_), _) | (_, Ty::Option(_)) => {
            "write a default value, `(... else 0) == x`, or compare with `none`: `... == none`".to_owned()
        }
        (Ty::Time | Ty::Duration, Ty::Int { .. }) | (Ty::Int { .. }, Ty::Time | Ty::Duration) => {
            "compare with a duration, `5s`, or `n * 1ms` for an integer".to_owned()
        }
        (Ty::Variant(_), _) | (_, Ty::Variant(_)) => {
            "match its cases: `switch ...:` with one line for each".to_owned()
        }
        (Ty::Record(_), Ty::Record(_)) => "compare the fields of the messages".to_owned(),
        (Ty::List { .. }, _) => "compare the elements or the lengths of the lists".to_owned(),
        (Ty::Bytes { .. }, Ty::Bytes { .. }) => {
            "convert both to strings with `text(...)`, or both to bytes with `raw(...)`".to_owned()
        }
        _ if left == right && is_order => format!("{left_text} has no order; compare with `==` or `!=`"),
        _ => "compare values of the same type".to_owned(),
    }
}

fn make(op: BinaryOp, left: Expr, right: Expr, ty: Ty, span: Span) -> Expr {
    Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), ty, span }
}

fn is_arithmetic(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod)
}

fn lower_op(op: ast::BinaryOp) -> BinaryOp {
    match op {
        ast::BinaryOp::Or => BinaryOp::Or,
        ast::BinaryOp::And => BinaryOp::And,
        ast::BinaryOp::Equal => BinaryOp::Eq,
        ast::BinaryOp::NotEqual => BinaryOp::Ne,
        ast::BinaryOp::Less => BinaryOp::Lt,
        ast::BinaryOp::LessEqual => BinaryOp::Le,
        ast::BinaryOp::Greater => BinaryOp::Gt,
        ast::BinaryOp::GreaterEqual => BinaryOp::Ge,
        ast::BinaryOp::Add => BinaryOp::Add,
        ast::BinaryOp::Sub => BinaryOp::Sub,
        ast::BinaryOp::Mul => BinaryOp::Mul,
        ast::BinaryOp::Div => BinaryOp::Div,
        ast::BinaryOp::Mod => BinaryOp::Mod,
    }
}

/// The symbol of an operator.
pub(crate) fn spelled(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Mod => "mod",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::And => "and",
        BinaryOp::Or => "or",
    }
}
