//! Built-in functions: names, parameter and result types.
//! Promises: an accepted call has exactly the argument types that `hir::Builtin` states, except integers, which may
//! be narrower. Start reading at [`Exprs::call_builtin`].

mod channel;
mod number;
mod text;

use flick_syntax::ast;

use super::{Exprs, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Span, Ty};
use crate::range::{INT, Range};
use crate::report;

/// Every built-in: name and number of arguments.
const SIGNATURES: &[(&str, Builtin, usize)] = &[
    ("hash", Builtin::Hash, 1),
    ("len", Builtin::Len, 1),
    ("bytes_used", Builtin::BytesUsed, 1),
    ("evictions", Builtin::Evictions, 1),
    ("open_clients", Builtin::OpenClients, 0),
    ("starts_with", Builtin::StartsWith, 2),
    ("ends_with", Builtin::EndsWith, 2),
    ("contains", Builtin::Contains, 2),
    ("min", Builtin::Min, 2),
    ("max", Builtin::Max, 2),
    ("abs", Builtin::Abs, 1),
    ("find", Builtin::Find, 2),
    ("split", Builtin::Split, 3),
    ("lower", Builtin::Lower, 1),
    ("upper", Builtin::Upper, 1),
    ("trim", Builtin::Trim, 1),
    ("same_text", Builtin::SameText, 2),
    ("parse_int", Builtin::ParseInt, 1),
    ("parse_hex", Builtin::ParseHex, 1),
    ("str", Builtin::Str, 1),
    ("hex", Builtin::Hex, 1),
    ("text", Builtin::Text, 1),
    ("raw", Builtin::Raw, 1),
    ("now", Builtin::Now, 0),
    ("room", Builtin::Room, 0),
    ("random", Builtin::Random, 1),
    ("log", Builtin::Log, 1),
    ("count", Builtin::Count, 2),
    ("set", Builtin::Set, 2),
    ("value", Builtin::Value, 1),
    ("alive", Builtin::Alive, 1),
    ("load", Builtin::Load, 1),
    ("peer", Builtin::Peer, 1),
    ("address", Builtin::Address, 1),
    ("port", Builtin::Port, 1),
    ("ketama", Builtin::Ketama, 2),
    ("rendezvous", Builtin::Rendezvous, 2),
    ("round_robin", Builtin::RoundRobin, 1),
    ("least_loaded", Builtin::LeastLoaded, 1),
    ("two_choices", Builtin::TwoChoices, 1),
    ("remove", Builtin::Remove, 2),
    ("nanos", Builtin::InUnits(1), 1),
    ("micros", Builtin::InUnits(1_000), 1),
    ("millis", Builtin::InUnits(1_000_000), 1),
    ("seconds", Builtin::InUnits(1_000_000_000), 1),
    ("unix", Builtin::Unix, 1),
    ("wire", Builtin::Wire, 1),
    ("has_token", Builtin::HasToken, 2),
    ("is_digits", Builtin::IsDigits, 1),
    ("percent_decode", Builtin::PercentDecode, 1),
    ("percent_encode", Builtin::PercentEncode, 1),
    ("base64_decode", Builtin::Base64Decode, 1),
    ("base64_encode", Builtin::Base64Encode, 1),
];
/// Range of what is counted.
const COUNT: Range = Range { lo: 0, hi: INT.hi };
/// Bytes of a 64-bit integer in decimal, with its sign.
const DECIMAL_BYTES_MAX: u32 = 20;
/// `255.255.255.255`.
const IPV4_TEXT_MAX: u32 = 15;
/// Eight groups of four digits with colons between them.
const IPV6_TEXT_MAX: u32 = 39;
/// An IPv6 address in brackets, a colon, five digits.
const ENDPOINT_TEXT_MAX: u32 = 47;
/// Bytes of a 64-bit integer in hexadecimal.
const HEX_BYTES_MAX: u32 = 16;

/// Names of all built-ins.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SIGNATURES.iter().map(|(name, ..)| *name)
}

/// Resolves the name of a built-in.
pub(crate) fn named(name: &str) -> Option<Builtin> {
    SIGNATURES.iter().find(|(known, ..)| *known == name).map(|(_, builtin, _)| *builtin)
}

/// The name of a built-in.
pub(crate) fn builtin_name(builtin: Builtin) -> &'static str {
    let known = SIGNATURES.iter().find(|(_, known, _)| *known == builtin);
    known.map_or("a built-in", |(name, ..)| name)
}

/// A call of a built-in.
pub(super) struct BuiltinCall<'n> {
    pub(super) builtin: Builtin,
    name: &'n str,
    pub(super) args: Vec<Expr>,
    pub(super) span: Span,
}

impl BuiltinCall<'_> {
    /// The checked call, with a result of type `ty`.
    pub(super) fn returning(self, ty: Ty) -> Expr {
        Expr { kind: ExprKind::Builtin(self.builtin, self.args), ty, span: self.span }
    }

    pub(super) fn arg(&self, index: usize) -> &Ty {
        &self.args[index].ty
    }
}

impl Exprs<'_> {
    /// Checks a call of a built-in.
    pub(super) fn call_builtin(
        &mut self,
        builtin: Builtin,
        name: &str,
        args: Vec<Expr>,
        is_piped: bool,
        span: Span,
    ) -> Expr {
        let wanted = SIGNATURES.iter().find(|(known, ..)| *known == name).map_or(0, |(_, _, wanted)| *wanted);
        let is_short_count = builtin == Builtin::Count && args.len() == 1;
        if args.len() != wanted && !is_short_count {
            let found = args.len();
            self.sink.push(report::types::argument_count(span, name, wanted, found, None, is_piped));
            return unknown_call(builtin, args);
        }
        if !self.grammar.as_ref().is_none_or(|scope| scope.allows(builtin)) {
            let help = "use integers and the fields of the message";
            let what = "a built-in function of programs";
            self.sink.push(report::names::not_in_grammar(span, name, what, help));
            return unknown_call(builtin, args);
        }
        if args.iter().any(|arg| arg.ty == Ty::Unknown) {
            return Expr { span, ..unknown_call(builtin, Vec::new()) };
        }
        let call = BuiltinCall { builtin, name, args, span };
        match builtin {
            Builtin::Hash => self.hash(call),
            Builtin::Len => self.len(call),
            Builtin::Min | Builtin::Max => self.extremum(call),
            Builtin::Abs => self.abs(call),
            Builtin::Str | Builtin::Hex => self.print_number(call),
            Builtin::Random => self.random(call),
            Builtin::InUnits(_) | Builtin::Unix => self.in_units(call),
            Builtin::Now => call.returning(Ty::Time),
            Builtin::Room => call.returning(Ty::Bool),
            Builtin::OpenClients => call.returning(COUNT.ty()),
            Builtin::BytesUsed | Builtin::Evictions => self.of_dictionary(call),
            Builtin::StartsWith
            | Builtin::EndsWith
            | Builtin::Contains
            | Builtin::SameText
            | Builtin::Find => self.search(call),
            Builtin::Split => self.split(call),
            Builtin::Lower | Builtin::Upper | Builtin::Trim => self.same_bytes(call),
            Builtin::ParseInt | Builtin::ParseHex => self.parse_number(call),
            Builtin::Text | Builtin::Raw => self.as_text_or_bytes(call),
            Builtin::Wire => self.wire(call),
            Builtin::HasToken => self.has_token(call),
            Builtin::IsDigits => self.is_digits(call),
            Builtin::PercentDecode
            | Builtin::PercentEncode
            | Builtin::Base64Decode
            | Builtin::Base64Encode => self.transform(call),
            Builtin::Log => self.log(call),
            Builtin::Count | Builtin::Set | Builtin::Value => self.counter(call),
            Builtin::Alive | Builtin::Load | Builtin::Peer => self.of_channel(call),
            Builtin::Address | Builtin::Port => self.of_endpoint(call),
            Builtin::Ketama | Builtin::Rendezvous => self.index_by_key(call),
            Builtin::RoundRobin | Builtin::LeastLoaded | Builtin::TwoChoices => self.index_of(call),
            Builtin::Remove => self.remove(call),
        }
    }

    /// Reports an argument of a type that the built-in does not accept.
    pub(super) fn reject_argument(&mut self, call: &BuiltinCall<'_>, index: usize, help: &str) {
        let arg = &call.args[index];
        let found = self.items.describe(&arg.ty);
        let report = match (&arg.ty, help) {
            (Ty::Option(inner), _) => {
                report::values::may_be_none(arg.span.clone(), &self.items.describe(inner))
            }
            _ => report::types::argument(arg.span.clone(), call.name, &found, help),
        };
        self.sink.push(report);
    }

    fn hash(&mut self, call: BuiltinCall<'_>) -> Expr {
        let is_fit = matches!(
            call.arg(0),
            Ty::Bytes { .. }
                | Ty::Int { .. }
                | Ty::Enum(_)
                | Ty::Bool
                | Ty::Ipv4
                | Ty::Ipv6
                | Ty::Endpoint
                | Ty::Time
                | Ty::Duration
        );
        if !is_fit {
            let help = match call.arg(0) {
                Ty::Record(_) => "hash a field of the message: `hash(req.key)`",
                _ => "`hash` takes a string, bytes, an integer, an address, a member of an enum or a boolean",
            };
            self.reject_argument(&call, 0, help);
        }
        call.returning(crate::range::UINT.ty())
    }

    /// `bytes_used` and `evictions`.
    fn of_dictionary(&mut self, call: BuiltinCall<'_>) -> Expr {
        if !matches!(call.args[0].kind, ExprKind::Dict(_)) {
            let help = "pass a dictionary that is declared outside the process: `global seen: dict<string<64>, int>`";
            self.reject_argument(&call, 0, help);
            return unknown_call(call.builtin, call.args);
        }
        call.returning(COUNT.ty())
    }

    fn len(&mut self, call: BuiltinCall<'_>) -> Expr {
        let range = match call.arg(0) {
            Ty::Bytes { max, .. } | Ty::List { max, .. } => Range { lo: 0, hi: i128::from(*max) },
            Ty::ChanArray { .. } => Range { lo: 1, hi: flick_abi::limits::CHANNEL_ELEMENTS_MAX as i128 },
            Ty::Dict(id) => Range { lo: 0, hi: i128::from(self.items.dicts[id.0 as usize].entries_max) },
            other => {
                let help = match other {
                    Ty::Record(_) => "take the length of a field: `len(req.key)`",
                    _ => "`len` takes a string, bytes, a list, a dictionary or an array of channels",
                };
                self.reject_argument(&call, 0, help);
                return unknown(call.span);
            }
        };
        call.returning(range.ty())
    }
}

/// A call that was reported; its type is known if it does not depend on the arguments, so that an error is reported
/// once.
fn unknown_call(builtin: Builtin, args: Vec<Expr>) -> Expr {
    let span = args.first().map(|arg| arg.span.clone()).unwrap_or_default();
    let ty = match builtin {
        Builtin::Hash => crate::range::UINT.ty(),
        Builtin::StartsWith | Builtin::EndsWith | Builtin::Contains | Builtin::SameText => Ty::Bool,
        Builtin::HasToken | Builtin::IsDigits => Ty::Bool,
        Builtin::Alive | Builtin::Remove => Ty::Bool,
        Builtin::Value | Builtin::InUnits(_) | Builtin::Unix => INT.ty(),
        Builtin::BytesUsed | Builtin::Evictions | Builtin::OpenClients => COUNT.ty(),
        Builtin::Now => Ty::Time,
        Builtin::Peer => Ty::Endpoint,
        Builtin::Address => Ty::Ipv6,
        Builtin::Log | Builtin::Count | Builtin::Set => Ty::Nothing,
        _ => Ty::Unknown,
    };
    Expr { kind: ExprKind::Int(0), ty, span }
}

/// The value of a literal integer argument.
fn literal(arg: &Expr) -> Option<i128> {
    if let ExprKind::Int(value) = arg.kind { Some(value) } else { None }
}

/// The text of a callee, for diagnostics.
pub(super) fn callee_text(expr: &ast::Expr) -> String {
    use flick_syntax::ast::AstNode;
    let text = expr.syntax().text().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
