//! Built-ins on integers, times and durations.

use super::{BuiltinCall, DECIMAL_BYTES_MAX, ENDPOINT_TEXT_MAX, HEX_BYTES_MAX, IPV4_TEXT_MAX, IPV6_TEXT_MAX};
use crate::expr::{Exprs, recast, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Ty};
use crate::range::{INT, Range, UINT, range_of};
use crate::{primitives, report};

impl Exprs<'_> {
    pub(super) fn extremum(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        if let (a @ (Ty::Time | Ty::Duration), b) = (call.arg(0).clone(), call.arg(1).clone())
            && a == b
        {
            call.args = call.args.into_iter().map(|arg| recast(arg, INT.ty())).collect();
            return recast(call.returning(INT.ty()), a);
        }
        let (Some(a), Some(b)) = (range_of(call.arg(0)), range_of(call.arg(1))) else {
            let (a, b) = (self.items.describe(call.arg(0)), self.items.describe(call.arg(1)));
            let help = format!("`{}` takes two integers, two times or two durations", call.name);
            let of_list = matches!(call.arg(0), Ty::List { .. });
            let help =
                if of_list { "iterate over the list: `fold x in xs, best = 0: max(best, x)`" } else { &help };
            self.sink.push(report::types::operator(call.span.clone(), call.name, &a, &b, help));
            return unknown(call.span);
        };
        let is_wide = a.hi > INT.hi || b.hi > INT.hi;
        if is_wide && (a.lo < 0 || b.lo < 0) {
            self.sink.push(report::types::signs_differ(call.span.clone()));
        }
        for arg in &mut call.args {
            if let Ty::Int { unsigned, .. } = &mut arg.ty {
                *unsigned = is_wide;
            }
        }
        let range = if call.builtin == Builtin::Min {
            Range { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) }
        } else {
            Range { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }
        };
        call.returning(range.ty())
    }

    pub(super) fn abs(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        if *call.arg(0) == Ty::Duration {
            call.args = call.args.into_iter().map(|arg| recast(arg, INT.ty())).collect();
            return recast(call.returning(INT.ty()), Ty::Duration);
        }
        let Some(range) = range_of(call.arg(0)) else {
            self.reject_argument(&call, 0, "`abs` takes an integer or a duration");
            return unknown(call.span);
        };
        if range.lo >= 0 {
            return Expr { span: call.span, ..call.args.swap_remove(0) };
        }
        let least = if range.contains(0) { 0 } else { range.hi.abs() };
        let found = Range { lo: least, hi: range.hi.max(-range.lo) };
        // The minimum has no positive counterpart and stays negative.
        let found = if found.is_inside(INT) { found } else { INT };
        call.returning(found.ty())
    }

    /// `str(n)`, which also converts addresses and returns strings unchanged, and `hex(n)`.
    pub(super) fn print_number(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        if let (Builtin::Str, Ty::Bytes { text: true, .. }) = (call.builtin, call.arg(0)) {
            return Expr { span: call.span, ..call.args.swap_remove(0) };
        }
        let address_max = match (call.builtin, call.arg(0)) {
            (Builtin::Str, Ty::Ipv4) => Some(IPV4_TEXT_MAX),
            (Builtin::Str, Ty::Ipv6) => Some(IPV6_TEXT_MAX),
            (Builtin::Str, Ty::Endpoint) => Some(ENDPOINT_TEXT_MAX),
            _ => None,
        };
        if let Some(max) = address_max {
            return call.returning(Ty::Bytes { max, text: true });
        }
        if range_of(call.arg(0)).is_none() {
            let help = match (call.arg(0), call.builtin) {
                (Ty::Duration, _) => "convert it to a unit first: `str(millis(d))`".to_owned(),
                (Ty::Time, _) => "convert it first: `str(unix(t))` returns the seconds since 1970".to_owned(),
                (Ty::Bool, _) => "write both strings: `if flag: \"yes\" else: \"no\"`".to_owned(),
                (Ty::Bytes { .. }, Builtin::Str) => "convert bytes with `text(...)`".to_owned(),
                (_, Builtin::Str) => "`str` takes an integer or an address".to_owned(),
                _ => "`hex` takes an integer".to_owned(),
            };
            self.reject_argument(&call, 0, &help);
        }
        let max = if call.builtin == Builtin::Str { DECIMAL_BYTES_MAX } else { HEX_BYTES_MAX };
        call.returning(Ty::Bytes { max, text: true })
    }

    pub(super) fn random(&mut self, call: BuiltinCall<'_>) -> Expr {
        let Some(range) = range_of(call.arg(0)) else {
            self.reject_argument(&call, 0, "`random(n)` takes an integer and returns one from 0 to n - 1");
            return unknown(call.span);
        };
        if range.lo < 1 {
            self.sink.push(report::values::random_argument(call.args[0].span.clone()));
        }
        if range.hi > INT.hi {
            let target = "the argument of `random`";
            let location = call.args[0].span.clone();
            self.sink.push(report::bounds::int_too_wide(location, target, UINT, INT, None));
        }
        call.returning(Range { lo: 0, hi: (range.hi - 1).clamp(0, INT.hi) }.ty())
    }

    pub(super) fn in_units(&mut self, call: BuiltinCall<'_>) -> Expr {
        let is_fit = match call.builtin {
            Builtin::Unix => *call.arg(0) == Ty::Time,
            _ => matches!(call.arg(0), Ty::Time | Ty::Duration),
        };
        if !is_fit {
            let help = match (call.builtin, call.arg(0)) {
                (_, Ty::Int { .. }) => "convert an integer to a duration first: `n * 1ms`".to_owned(),
                (Builtin::Unix, _) => "`unix` takes a time, for example `unix(now())`".to_owned(),
                _ => format!("`{}` takes a duration or a time", call.name),
            };
            self.reject_argument(&call, 0, &help);
        }
        let divisor = match call.builtin {
            Builtin::InUnits(ns) => i128::from(ns),
            _ => 1_000_000_000,
        };
        call.returning(INT.div(Range::point(divisor)).ty())
    }

    /// `uint8(n)` and the like: the low bits.
    pub(in crate::expr) fn convert(
        &mut self,
        name: &str,
        mut args: Vec<Expr>,
        span: crate::hir::Span,
    ) -> Expr {
        let repr =
            primitives::sized_int(name).unwrap_or(crate::hir::IntRepr { width_bytes: 8, signed: true });
        let target = Range::of_repr(repr);
        let found = match args.as_slice() {
            [_] => args.swap_remove(0),
            _ => {
                let report = report::types::argument_count(span.clone(), name, 1, args.len(), None, false);
                self.sink.push(report);
                return Expr { kind: ExprKind::Int(0), ty: target.ty(), span };
            }
        };
        match &found.ty {
            Ty::Unknown => return Expr { kind: ExprKind::Int(0), ty: target.ty(), span },
            Ty::Enum(_) => {}
            Ty::Int { lo, hi, .. } => {
                let range = Range { lo: *lo, hi: *hi };
                if range.is_inside(target) {
                    return Expr { span, ..found };
                }
                if let ExprKind::Int(value) = found.kind {
                    return super::super::int(low_bits(value, target), span);
                }
            }
            other => {
                let help = match other {
                    Ty::Bytes { .. } => {
                        "parse a string with `parse_int(...)`, which returns an option".to_owned()
                    }
                    Ty::Duration => "convert it to a unit: `millis(d)`".to_owned(),
                    Ty::Time => "convert it: `unix(t)` returns the seconds since 1970".to_owned(),
                    Ty::Bool => "write both integers: `if flag: 1 else: 0`".to_owned(),
                    _ => format!("`{name}` takes an integer or a member of an enum"),
                };
                let found_text = self.items.describe(other);
                let report = match other {
                    Ty::Option(inner) => {
                        report::values::may_be_none(found.span.clone(), &self.items.describe(inner))
                    }
                    _ => report::types::argument(found.span.clone(), name, &found_text, &help),
                };
                self.sink.push(report);
                return Expr { kind: ExprKind::Int(0), ty: target.ty(), span };
            }
        }
        Expr { kind: ExprKind::Convert(Box::new(found), repr), ty: target.ty(), span }
    }
}

/// The low bits of `value` as a value of the range `target`.
fn low_bits(value: i128, target: Range) -> i128 {
    let modulus = target.hi - target.lo + 1;
    (value - target.lo).rem_euclid(modulus) + target.lo
}

#[cfg(test)]
mod tests {
    use super::{Range, low_bits};
    use crate::hir::IntRepr;

    #[test]
    fn conversions_of_literals_keep_the_low_bits() {
        for (value, width_bytes, signed, kept) in [
            (256, 1, false, 0),
            (-1, 1, false, 255),
            (255, 1, true, -1),
            (-129, 1, true, 127),
            (1 << 16, 2, true, 0),
        ] {
            let target = Range::of_repr(IntRepr { width_bytes, signed });
            assert_eq!(low_bits(value, target), kept, "{value} in {target:?}");
        }
    }
}
