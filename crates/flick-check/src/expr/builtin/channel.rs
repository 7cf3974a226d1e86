//! Built-ins on channels, endpoints, counters and dictionaries.

use super::BuiltinCall;
use crate::expr::{Exprs, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Ty};
use crate::range::{INT, Range};
use crate::report;
use flick_abi::limits::CHANNEL_ELEMENTS_MAX;

/// Indices of an array of channels.
const ELEMENT: Range = Range { lo: 0, hi: CHANNEL_ELEMENTS_MAX as i128 - 1 };
/// Range of port numbers.
const PORT: Range = Range { lo: 0, hi: u16::MAX as i128 };

impl Exprs<'_> {
    /// `alive`, `load` and `peer`, of one channel.
    pub(super) fn of_channel(&mut self, call: BuiltinCall<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Chan { .. }) {
            let help = match call.arg(0) {
                Ty::ChanArray { .. } => format!("index the array: `{}(backends[i])`", call.name),
                _ => format!("`{}` takes a channel", call.name),
            };
            self.reject_argument(&call, 0, &help);
        }
        let ty = match call.builtin {
            Builtin::Alive => Ty::Bool,
            Builtin::Load => Range { lo: 0, hi: INT.hi }.ty(),
            _ => Ty::Endpoint,
        };
        call.returning(ty)
    }

    pub(super) fn of_endpoint(&mut self, call: BuiltinCall<'_>) -> Expr {
        if *call.arg(0) != Ty::Endpoint {
            let help = match call.arg(0) {
                Ty::Chan { .. } => {
                    format!("take the endpoint of its peer first: `{}(peer(client))`", call.name)
                }
                _ => format!("`{}` takes an endpoint", call.name),
            };
            self.reject_argument(&call, 0, &help);
        }
        let ty = if call.builtin == Builtin::Port { PORT.ty() } else { Ty::Ipv6 };
        call.returning(ty)
    }

    fn array(&mut self, call: &BuiltinCall<'_>) {
        if !matches!(call.arg(0), Ty::ChanArray { .. }) {
            let help = match call.arg(0) {
                Ty::Chan { .. } => format!("pass the array, without an index: `{}(backends)`", call.name),
                _ => format!("`{}` takes an array of channels", call.name),
            };
            self.reject_argument(call, 0, &help);
        }
    }

    /// `ketama` and `rendezvous`: the index of a channel for a key.
    pub(super) fn index_by_key(&mut self, call: BuiltinCall<'_>) -> Expr {
        self.array(&call);
        if !matches!(call.arg(1), Ty::Bytes { .. }) {
            let help = match call.arg(1) {
                Ty::Int { .. } => "a key is a string or bytes; convert an integer with `str(n)`",
                Ty::Record(_) => "pass a field of the message: `req.key`",
                _ => "a key is a string or bytes",
            };
            self.reject_argument(&call, 1, help);
        }
        call.returning(ELEMENT.ty())
    }

    /// `round_robin` and the like: the index of a channel.
    pub(super) fn index_of(&mut self, call: BuiltinCall<'_>) -> Expr {
        self.array(&call);
        call.returning(ELEMENT.ty())
    }

    /// `count`, `set` and `value`.
    pub(super) fn counter(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        let ty = if call.builtin == Builtin::Value { INT.ty() } else { Ty::Nothing };
        let ExprKind::Counter(id) = call.args[0].kind else {
            let help = "declare one outside the process: `global served: counter`, or `gauge` if it may also go down";
            self.reject_argument(&call, 0, help);
            return Expr { kind: ExprKind::Int(0), ty, span: call.span };
        };
        let counter = &self.items.counters[id.0 as usize];
        if call.builtin == Builtin::Set && !counter.is_gauge {
            let report = report::values::counter_set(call.span.clone(), &counter.name, counter.span.clone());
            self.sink.push(report);
        }
        if call.args.len() == 2 {
            let allowed = if counter.is_gauge { INT } else { Range { lo: 0, hi: INT.hi } };
            let number = call.args.remove(1);
            let target = format!("the increment of counter `{}`", counter.name);
            let target = if call.builtin == Builtin::Set { format!("`{}`", counter.name) } else { target };
            let number = self.coerce(number, &allowed.ty(), &target, None);
            call.args.push(number);
        }
        call.returning(ty)
    }

    pub(super) fn remove(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        let ExprKind::Dict(id) = call.args[0].kind else {
            let help = match call.arg(0) {
                Ty::List { .. } => {
                    "lists are immutable; keep the wanted elements with `filter x in list: ...`"
                }
                _ => "`remove(d, key)` removes an entry of a dictionary",
            };
            self.reject_argument(&call, 0, help);
            return unknown(call.span);
        };
        let key = call.args.remove(1);
        let key = self.coerced_key(id, key);
        call.args.push(key);
        call.returning(Ty::Bool)
    }
}
