//! Operators.

use flick_syntax::ast;

use super::{Exprs, adapt, int, range_of, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, Span, Ty};
use crate::items::Items;
use crate::range::{INT, Range, UINT};
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
                    let help = "keep the low part first: `-(... mod 256)`";
                    self.sink.push(report::types::prefix(
                        operand.span,
                        "-",
                        "a number that may be above 9223372036854775807",
                        help,
                    ));
                    return unknown(span);
                }
                let ty = self.wrapped(range.neg(), false).ty();
                Expr { kind: ExprKind::Neg(Box::new(operand)), ty, span }
            }
            (Some(op), found) => {
                let (sign, help) = match op {
                    ast::UnaryOp::Not => {
                        ("not", "`not` turns a truth value round; compare a number first: `not (x == 0)`")
                    }
                    ast::UnaryOp::Neg => ("-", "`-` works on numbers"),
                };
                let found = self.items.describe(found);
                self.sink.push(report::types::prefix(operand.span, sign, &found, help));
                unknown(span)
            }
            (None, _) => unknown(span),
        }
    }

    pub(super) fn binary(&mut self, binary: &ast::BinaryExpr, span: Span) -> Expr {
        let mut left = self.opt_expr(binary.left(), &span);
        let mut right = self.opt_expr(binary.right(), &span);
        let Some(op) = binary.op().map(lower_op) else { return unknown(span) };
        if left.ty == Ty::Unknown || right.ty == Ty::Unknown {
            // The type of a comparison is known even so, which keeps a mistake from being reported twice.
            let ty = if is_arithmetic(op) { Ty::Unknown } else { Ty::Bool };
            return Expr { kind: ExprKind::Int(0), ty, span };
        }
        adapt(&mut left, &right.ty.clone());
        adapt(&mut right, &left.ty.clone());
        match op {
            BinaryOp::And | BinaryOp::Or => self.logic(op, left, right, span),
            _ if is_arithmetic(op) => self.arithmetic(op, left, right, span),
            _ => self.comparison(op, left, right, span),
        }
    }

    fn logic(&mut self, op: BinaryOp, left: Expr, right: Expr, span: Span) -> Expr {
        // Two operands of the wrong kind are one mistake.
        let wrong = [&left, &right].into_iter().find(|side| side.ty != Ty::Bool);
        if let Some(side) = wrong {
            {
                let found = self.items.describe(&side.ty);
                let help = format!(
                    "`{}` joins truth values; write out both comparisons: `x == 1 {0} x == 2`",
                    spelled(op)
                );
                self.sink.push(report::types::prefix(side.span.clone(), spelled(op), &found, &help));
            }
        }
        make(op, left, right, Ty::Bool, span)
    }

    fn comparison(&mut self, op: BinaryOp, mut left: Expr, mut right: Expr, span: Span) -> Expr {
        let is_order = !matches!(op, BinaryOp::Eq | BinaryOp::Ne);
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
            (Ty::Bool | Ty::Enum(_), _) => !is_order,
            _ => false,
        };
        if !fits {
            let is_comparison = |side: &Expr| matches!(side.kind, ExprKind::Binary(op, ..) if !is_arithmetic(op) && !matches!(op, BinaryOp::And | BinaryOp::Or));
            let is_chained = is_comparison(&left) || is_comparison(&right);
            let (left, right) = (self.items.describe(&left.ty), self.items.describe(&right.ty));
            let help = if is_chained {
                "write both comparisons: `3 < x and x < 9`".to_owned()
            } else if left == right {
                format!("compare {left} with `==` or `!=`, and messages by their fields")
            } else {
                "compare values of the same kind".to_owned()
            };
            self.sink.push(report::types::operator(span.clone(), spelled(op), &left, &right, &help));
        }
        make(op, left, right, Ty::Bool, span)
    }

    /// Reports a number where a member of an enumeration belongs.
    pub(super) fn number_for_enum(&mut self, id: crate::hir::EnumId, number: &Expr) {
        let enumeration = self.items.enumeration(id);
        let value = range_of(&number.ty).filter(|range| range.is_point()).map(|range| range.lo);
        let member = enumeration.members.iter().find(|(_, known)| Some(i128::from(*known)) == value);
        let member = member.map(|(name, _)| name.as_str());
        self.sink.push(report::types::enum_and_number(number.span.clone(), &enumeration.name, member));
    }

    fn arithmetic(&mut self, op: BinaryOp, mut left: Expr, mut right: Expr, span: Span) -> Expr {
        let (Some(_), Some(by)) = (range_of(&left.ty), range_of(&right.ty)) else {
            let (left, right) = (self.items.describe(&left.ty), self.items.describe(&right.ty));
            let help = if op == BinaryOp::Add && left == right && (left == "text" || left == "bytes") {
                "joining text is not in this version of flick yet"
            } else {
                "arithmetic works on numbers"
            };
            self.sink.push(report::types::operator(span.clone(), spelled(op), &left, &right, help));
            return unknown(span);
        };
        if matches!(op, BinaryOp::Div | BinaryOp::Mod) && by.contains(0) {
            self.sink.push(report::bounds::zero_divisor(right.span.clone(), spelled(op), by.is_point()));
        }
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

    /// Gives both operands the same 64-bit kind; says whether it is the unsigned one. Exact arithmetic needs none.
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

/// How an operator is written.
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
