//! Arithmetic and comparison of times and durations, and constants of types without literals.
//! Promises: the result is arithmetic on 64-bit integers, recast to the type of the operation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Exprs, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, Span, Ty};
use crate::range::{INT, Range, range_of};
use crate::report;

/// Reinterprets the bits of `value` as a value of type `ty`.
pub(crate) fn recast(value: Expr, ty: Ty) -> Expr {
    if value.ty == ty {
        return value;
    }
    match value.kind {
        // A cast and its inverse cancel out; the known range is kept.
        ExprKind::Recast(inner) if matches!(ty, Ty::Int { .. }) && is_signed(&inner.ty) => signed(*inner),
        kind => {
            let span = value.span.clone();
            let inner = Expr { kind, ty: value.ty, span: value.span };
            Expr { kind: ExprKind::Recast(Box::new(inner)), ty, span }
        }
    }
}

/// Whether all values of an integer type are values of `int`.
fn is_signed(ty: &Ty) -> bool {
    range_of(ty).is_some_and(|range| range.is_inside(INT))
}

/// An integer as one of `int`: a duration is signed, whatever it is computed from.
fn signed(value: Expr) -> Expr {
    match range_of(&value.ty) {
        Some(range) if range.is_inside(INT) => Expr { ty: range.ty(), ..value },
        _ => recast(value, INT.ty()),
    }
}

/// The type of `left op right` if one of them is a time or duration; `None` if they cannot be combined.
pub(super) fn time_result(op: BinaryOp, left: &Ty, right: &Ty) -> Option<Ty> {
    use BinaryOp::{Add, Div, Mod, Mul, Sub};
    Some(match (op, left, right) {
        (Sub, Ty::Time, Ty::Time) => Ty::Duration,
        (Add | Sub, Ty::Time, Ty::Duration) | (Add, Ty::Duration, Ty::Time) => Ty::Time,
        (Add | Sub | Mod, Ty::Duration, Ty::Duration) => Ty::Duration,
        (Mul | Div, Ty::Duration, Ty::Int { .. }) | (Mul, Ty::Int { .. }, Ty::Duration) => Ty::Duration,
        (Div, Ty::Duration, Ty::Duration) => INT.ty(),
        _ => return None,
    })
}

impl Exprs<'_> {
    /// `left op right` if one of them is a time or duration, and the result is of type `result`.
    pub(super) fn time_arithmetic(
        &mut self,
        op: BinaryOp,
        left: Expr,
        right: Expr,
        result: Ty,
        span: Span,
    ) -> Expr {
        let divisor = range_of(&right.ty);
        let (left, right) = (signed(left), signed(right));
        // By a duration that happens to be zero it is zero: there is no least duration to divide by instead.
        if let Some(by) = divisor.or(range_of(&right.ty).filter(|by| by.is_point())) {
            self.check_divisor(op, by, &right.span);
        }
        let computed = self.integer_arithmetic(op, left, right, span);
        if matches!(result, Ty::Int { .. }) { computed } else { recast(computed, result) }
    }

    /// A literal duration.
    pub(super) fn duration(&mut self, ns: u64, span: Span) -> Expr {
        if i128::from(ns) > INT.hi {
            self.sink.push(report::values::duration_too_long(span.clone()));
        }
        recast(super::int(i128::from(ns).min(INT.hi), span), Ty::Duration)
    }

    /// `ipv4("10.0.0.1")` and the like.
    pub(super) fn constant(&mut self, name: &str, args: &[flick_syntax::ast::Expr], span: Span) -> Expr {
        let ty = match name {
            "ipv4" => Ty::Ipv4,
            "ipv6" => Ty::Ipv6,
            _ => Ty::Endpoint,
        };
        let values: Vec<Expr> = args.iter().map(|arg| self.expr(arg)).collect();
        let rejected = Expr { ty: ty.clone(), ..unknown(span.clone()) };
        let [value] = values.as_slice() else {
            self.sink.push(report::types::argument_count(span, name, 1, values.len(), None, false));
            return rejected;
        };
        let ExprKind::Str(bytes) = &value.kind else {
            if value.ty != Ty::Unknown {
                self.sink.push(report::values::address_literal(value.span.clone(), name));
            }
            return rejected;
        };
        let text = String::from_utf8_lossy(bytes).into_owned();
        let constant = match ty {
            Ty::Ipv4 => {
                text.parse::<Ipv4Addr>().ok().map(|address| ExprKind::Int(i128::from(u32::from(address))))
            }
            Ty::Ipv6 => text.parse::<Ipv6Addr>().ok().map(|address| ExprKind::Str(address.octets().to_vec())),
            _ => text.parse::<SocketAddr>().ok().map(|endpoint| {
                let address = match endpoint.ip() {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                let mut bytes = address.octets().to_vec();
                bytes.extend(endpoint.port().to_be_bytes());
                ExprKind::Str(bytes)
            }),
        };
        let Some(kind) = constant else {
            self.sink.push(report::values::bad_address(value.span.clone(), name, &text));
            return rejected;
        };
        let plain = match &kind {
            ExprKind::Int(value) => Range::point(*value).ty(),
            ExprKind::Str(bytes) => Ty::Bytes { max: bytes.len() as u32, text: false },
            _ => Ty::Unknown,
        };
        recast(Expr { kind, ty: plain, span }, ty)
    }
}
