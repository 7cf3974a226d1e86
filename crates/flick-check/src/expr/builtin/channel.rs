//! Built-ins on channels, endpoints, counters and dictionaries.

use super::Call;
use crate::expr::{Exprs, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Ty};
use crate::range::{INT, Range};
use crate::report;
use flick_abi::limits::CHANNEL_ELEMENTS_MAX;

/// Indices of an array of channels.
const ELEMENT: Range = Range { lo: 0, hi: CHANNEL_ELEMENTS_MAX as i128 - 1 };
/// Numbers of ports.
const PORT: Range = Range { lo: 0, hi: u16::MAX as i128 };

impl Exprs<'_> {
    /// `alive`, `load` and `peer`, of one channel.
    pub(super) fn of_channel(&mut self, call: Call<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Chan { .. }) {
            let help = match call.arg(0) {
                Ty::ChanArray { .. } => format!("say of which one: `{}(backends[i])`", call.name),
                _ => format!("`{}` takes a channel", call.name),
            };
            self.refuse_argument(&call, 0, &help);
        }
        let ty = match call.builtin {
            Builtin::Alive => Ty::Bool,
            Builtin::Load => Range { lo: 0, hi: INT.hi }.ty(),
            _ => Ty::Endpoint,
        };
        call.gives(ty)
    }

    pub(super) fn of_endpoint(&mut self, call: Call<'_>) -> Expr {
        if *call.arg(0) != Ty::Endpoint {
            let help = match call.arg(0) {
                Ty::Chan { .. } => format!("ask for its peer first: `{}(peer(client))`", call.name),
                _ => format!("`{}` takes an endpoint", call.name),
            };
            self.refuse_argument(&call, 0, &help);
        }
        let ty = if call.builtin == Builtin::Port { PORT.ty() } else { Ty::Ipv6 };
        call.gives(ty)
    }

    fn array(&mut self, call: &Call<'_>) {
        if !matches!(call.arg(0), Ty::ChanArray { .. }) {
            let help = match call.arg(0) {
                Ty::Chan { .. } => format!("name the array, without an index: `{}(backends)`", call.name),
                _ => format!("`{}` picks from an array of channels", call.name),
            };
            self.refuse_argument(call, 0, &help);
        }
    }

    /// Picks an element of an array by a key.
    pub(super) fn place_by_key(&mut self, call: Call<'_>) -> Expr {
        self.array(&call);
        if !matches!(call.arg(1), Ty::Bytes { .. }) {
            let help = match call.arg(1) {
                Ty::Int { .. } => "a key is text or bytes; a number is text with `str(n)`",
                Ty::Record(_) => "name a field of the message: `req.key`",
                _ => "a key is text or bytes",
            };
            self.refuse_argument(&call, 1, help);
        }
        call.gives(ELEMENT.ty())
    }

    /// Picks an element of an array.
    pub(super) fn place(&mut self, call: Call<'_>) -> Expr {
        self.array(&call);
        call.gives(ELEMENT.ty())
    }

    /// `count`, `set` and `value`.
    pub(super) fn counter(&mut self, mut call: Call<'_>) -> Expr {
        let ty = if call.builtin == Builtin::Value { INT.ty() } else { Ty::Nothing };
        let ExprKind::Counter(id) = call.args[0].kind else {
            let help = "declare one at the left margin: `global served: counter`, or `gauge` for what also goes down";
            self.refuse_argument(&call, 0, help);
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
            let target = format!("the change of the counter `{}`", counter.name);
            let target = if call.builtin == Builtin::Set { format!("`{}`", counter.name) } else { target };
            let number = self.coerce(number, &allowed.ty(), &target, None);
            call.args.push(number);
        }
        call.gives(ty)
    }

    pub(super) fn remove(&mut self, mut call: Call<'_>) -> Expr {
        let ExprKind::Dict(id) = call.args[0].kind else {
            let help = match call.arg(0) {
                Ty::List { .. } => "lists do not change; keep what is wanted with `filter x in list: ...`",
                _ => "`remove(d, key)` takes an entry from a dictionary",
            };
            self.refuse_argument(&call, 0, help);
            return unknown(call.span);
        };
        let key = call.args.remove(1);
        let key = self.coerced_key(id, key);
        call.args.push(key);
        call.gives(Ty::Bool)
    }
}
