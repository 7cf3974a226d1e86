//! Built-in functions: text, numbers, time, the platform.
//! Promises: arguments are evaluated from left to right; what may be absent is an option.

use flick_abi::{HostCall, Policy};
use flick_check::hir::{BinaryOp, Builtin, CounterId, Expr, ExprKind, Ty};
use flick_ir::data::{Binary, Op, Transform, Type, Value};

use crate::body::Body;
use crate::interval::Interval;
use crate::value::{Num, Val};

/// Bytes of an endpoint: an IPv6 address, then a port.
const ENDPOINT_BYTES: u32 = 18;
/// The position of the port in an endpoint.
const PORT_AT: i64 = 16;
/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

impl Body<'_> {
    /// Lowers a call of a built-in function.
    pub fn builtin(&mut self, builtin: Builtin, args: &[Expr], ty: &Ty) -> Val {
        match (builtin, args) {
            (Builtin::Len, [arg]) => return self.len(arg, ty),
            (Builtin::BytesUsed | Builtin::Evictions, [arg]) => {
                let ExprKind::Dict(dict) = arg.kind else { panic!("the checker measures dictionaries only") };
                let is_bytes = builtin == Builtin::BytesUsed;
                let call =
                    if is_bytes { HostCall::DictBytes(dict.0) } else { HostCall::DictEvictions(dict.0) };
                let value = self.host(Type::Int, call, Vec::new());
                return self.val_of_word(ty, value);
            }
            (Builtin::Remove, [dict, key]) => match dict.kind {
                ExprKind::Dict(dict) => return self.dict_remove(dict, key),
                _ => panic!("the checker removes from dictionaries only"),
            },
            (Builtin::Count | Builtin::Set | Builtin::Value, [counter, amount @ ..]) => {
                return self.counter(builtin, counter_of(counter), amount.first(), ty);
            }
            (Builtin::Split, [text, separator, ..]) => return self.split(text, separator, ty),
            (Builtin::Hash, [arg]) => return self.hash(arg),
            (Builtin::Str, [arg]) if is_address(&arg.ty) => return self.address_text(arg, ty),
            (Builtin::Wire, [message]) => {
                let Ty::Bytes { max, .. } = ty else { panic!("the bytes of a message are bytes") };
                let record = self.expr(message).record();
                return self.wire_of(&record, *max);
            }
            _ => {}
        }
        let vals: Vec<Val> = args.iter().map(|arg| self.expr(arg)).collect();
        match vals.as_slice() {
            [] => self.builtin_of_none(builtin, ty),
            [val] => self.builtin_of_one(builtin, val, ty),
            [a, b] => self.builtin_of_two(builtin, a, b),
            _ => panic!("the checker counts the arguments of {builtin:?}: {}", vals.len()),
        }
    }

    fn builtin_of_none(&mut self, builtin: Builtin, ty: &Ty) -> Val {
        match builtin {
            Builtin::OpenClients => {
                let count = self.host(Type::Int, HostCall::OpenClients, Vec::new());
                self.val_of_word(ty, count)
            }
            Builtin::Now => {
                let now = self.host(Type::Int, HostCall::Now, Vec::new());
                Val::Num(Num::one(now, Interval::INT))
            }
            // The number of bytes is known when everything is lowered.
            Builtin::Room => Val::Bool(self.f.define(Type::Bool, Op::HasCapacity { bytes: 0 })),
            builtin => panic!("the checker gives {builtin:?} arguments"),
        }
    }

    fn builtin_of_one(&mut self, builtin: Builtin, val: &Val, ty: &Ty) -> Val {
        match builtin {
            Builtin::Abs => Val::Num(self.abs(val.num(), ty)),
            Builtin::Lower | Builtin::Upper => {
                let Ty::Bytes { max, .. } = ty else { panic!("letters are of text") };
                let upper = builtin == Builtin::Upper;
                let op = Op::Case { bytes: val.bytes(), upper, max_bytes: *max };
                Val::Bytes(self.f.define(Type::Bytes, op))
            }
            Builtin::Trim => Val::Bytes(self.f.define(Type::Bytes, Op::Trim(val.bytes()))),
            Builtin::ParseInt => self.parse_int(val.bytes(), 10),
            Builtin::ParseHex => self.parse_int(val.bytes(), 16),
            Builtin::Str => self.format(val, 10),
            Builtin::Hex => self.format(val, 16),
            Builtin::Text | Builtin::Raw => val.clone(),
            Builtin::Random => {
                let word = self.host(Type::Uint, HostCall::Random, Vec::new());
                let value = self.f.binary(Type::Int, Binary::ModU, word, val.num().value());
                self.val_of_word(ty, value)
            }
            Builtin::Log => {
                self.host_effect(HostCall::Log, vec![val.bytes()]);
                Val::Nothing
            }
            Builtin::PercentDecode => self.transform(Transform::PercentDecode, val, ty),
            Builtin::PercentEncode => self.transform(Transform::PercentEncode, val, ty),
            Builtin::Base64Decode => self.transform(Transform::Base64Decode, val, ty),
            Builtin::Base64Encode => self.transform(Transform::Base64Encode, val, ty),
            Builtin::IsDigits => Val::Bool(self.is_digits(val.bytes())),
            Builtin::Alive => Val::Bool(self.host(Type::Bool, HostCall::Alive, vec![val.chan()])),
            Builtin::Load => {
                let load = self.host(Type::Int, HostCall::Load, vec![val.chan()]);
                self.val_of_word(ty, load)
            }
            Builtin::Peer => {
                let args = vec![val.chan()];
                let op = Op::Host { call: HostCall::Peer, args, max_bytes: ENDPOINT_BYTES };
                Val::Bytes(self.f.define(Type::Bytes, op))
            }
            Builtin::Address => {
                let (start, end) = (self.f.int(0), self.f.int(PORT_AT));
                Val::Bytes(self.f.define(Type::Bytes, Op::Slice { bytes: val.bytes(), start, end }))
            }
            Builtin::Port => self.port(val.bytes(), ty),
            Builtin::RoundRobin => self.pick(Policy::RoundRobin, val.chan(), None, ty),
            Builtin::LeastLoaded => self.pick(Policy::LeastLoaded, val.chan(), None, ty),
            Builtin::TwoChoices => self.pick(Policy::TwoChoices, val.chan(), None, ty),
            Builtin::InUnits(unit_ns) => self.in_units(val.num(), i128::from(unit_ns), ty),
            Builtin::Unix => self.in_units(val.num(), SECOND_NS, ty),
            builtin => panic!("the checker gives {builtin:?} more than one argument"),
        }
    }

    fn builtin_of_two(&mut self, builtin: Builtin, a: &Val, b: &Val) -> Val {
        let index = Ty::Int { lo: 0, hi: i128::from(u32::MAX), unsigned: false };
        match builtin {
            Builtin::StartsWith => self.bytes_test(Op::BytesStartsWith(a.bytes(), b.bytes())),
            Builtin::Contains => self.bytes_test(Op::BytesContains(a.bytes(), b.bytes())),
            Builtin::EndsWith => self.bytes_test(Op::BytesEndsWith(a.bytes(), b.bytes())),
            Builtin::SameText => self.bytes_test(Op::SameText(a.bytes(), b.bytes())),
            Builtin::HasToken => self.has_token(a, b),
            Builtin::Find => {
                let at = self.f.define(Type::Int, Op::Find(a.bytes(), b.bytes()));
                self.unless_negative(at, Interval::new(0, i128::from(u32::MAX)))
            }
            Builtin::Min => Val::Num(self.smaller(BinaryOp::Le, a.num(), b.num())),
            Builtin::Max => Val::Num(self.smaller(BinaryOp::Ge, a.num(), b.num())),
            Builtin::Ketama => self.pick(Policy::Ketama, a.chan(), Some(b), &index),
            Builtin::Rendezvous => self.pick(Policy::Rendezvous, a.chan(), Some(b), &index),
            builtin => panic!("the checker gives {builtin:?} another number of arguments"),
        }
    }

    /// Bytes in another form, or an option of them where not all can be.
    fn transform(&mut self, kind: Transform, val: &Val, ty: &Ty) -> Val {
        let (max_bytes, is_option) = match ty {
            Ty::Bytes { max, .. } => (*max, false),
            Ty::Option(inner) => match &**inner {
                Ty::Bytes { max, .. } => (*max, true),
                other => panic!("the checker transforms bytes into bytes, not {other:?}"),
            },
            other => panic!("the checker transforms bytes into bytes, not {other:?}"),
        };
        let word = self.f.define(Type::Bytes, Op::Transform { kind, bytes: val.bytes(), max_bytes });
        if is_option { self.option_of(word) } else { Val::Bytes(word) }
    }

    fn is_digits(&mut self, bytes: Value) -> Value {
        let digits = (b'0'..=b'9').fold([0; 4], |mut set: [u64; 4], byte| {
            set[usize::from(byte) / 64] |= 1 << (byte % 64);
            set
        });
        let all = self.is_of(bytes, digits);
        let (len, zero) = (self.f.define(Type::Int, Op::Len(bytes)), self.f.int(0));
        let some = self.f.binary(Type::Bool, Binary::LtS, zero, len);
        self.f.binary(Type::Bool, Binary::And, all, some)
    }

    /// Whether all bytes are of a set.
    pub fn is_of(&mut self, bytes: Value, set: [u64; 4]) -> Value {
        let class = Some(self.consts.class(set));
        self.f.define(Type::Bool, Op::Guard { bytes, class, without: None })
    }

    /// `has_token(list, token)`, of a list that may be missing: then it has none.
    fn has_token(&mut self, list: &Val, token: &Val) -> Val {
        match list {
            Val::Option { present, value } => {
                let has = self.f.define(Type::Bool, Op::HasToken(value.bytes(), token.bytes()));
                Val::Bool(self.f.binary(Type::Bool, Binary::And, *present, has))
            }
            list => self.bytes_test(Op::HasToken(list.bytes(), token.bytes())),
        }
    }

    fn len(&mut self, arg: &Expr, ty: &Ty) -> Val {
        let value = match (&arg.kind, &arg.ty) {
            (ExprKind::Dict(dict), _) => self.host(Type::Int, HostCall::DictLen(dict.0), Vec::new()),
            (_, Ty::List { elem, .. }) => {
                let memory = self.expr(arg).bytes();
                self.list_len(memory, elem)
            }
            _ => {
                let op = match self.expr(arg) {
                    Val::Bytes(value) => Op::Len(value),
                    Val::Chan(value) => Op::ChanLen(value),
                    other => panic!("the checker measures bytes, lists and channels only, not {other:?}"),
                };
                self.f.define(Type::Int, op)
            }
        };
        self.val_of_word(ty, value)
    }

    fn counter(&mut self, builtin: Builtin, counter: CounterId, amount: Option<&Expr>, ty: &Ty) -> Val {
        let amount = amount.map(|amount| self.expr(amount).num().value());
        match builtin {
            Builtin::Count => {
                let amount = amount.unwrap_or_else(|| self.f.int(1));
                self.host_effect(HostCall::CounterAdd(counter.0), vec![amount]);
                Val::Nothing
            }
            Builtin::Set => {
                let value = amount.expect("the checker sets gauges to something");
                self.host_effect(HostCall::GaugeSet(counter.0), vec![value]);
                Val::Nothing
            }
            _ => {
                let value = self.host(Type::Int, HostCall::CounterGet(counter.0), Vec::new());
                self.val_of_word(ty, value)
            }
        }
    }

    fn split(&mut self, text: &Expr, separator: &Expr, ty: &Ty) -> Val {
        let Ty::List { max, .. } = ty else { panic!("`split` gives a list") };
        let (bytes, separator) = (self.expr(text).bytes(), self.expr(separator).bytes());
        Val::Bytes(self.f.define(Type::Bytes, Op::Split { bytes, separator, max: *max }))
    }

    fn hash(&mut self, arg: &Expr) -> Val {
        let op = match self.expr(arg) {
            Val::Bytes(value) => Op::HashBytes(value),
            Val::Num(num) => Op::HashInt(num.value()),
            Val::Bool(value) => Op::HashInt(self.f.bool_to_int(value)),
            val => Op::HashBytes(self.pack(&val, &arg.ty)),
        };
        Val::Num(Num::one(self.f.define(Type::Uint, op), Interval::UINT))
    }

    /// An address as people write it.
    fn address_text(&mut self, arg: &Expr, ty: &Ty) -> Val {
        let val = self.expr(arg);
        if arg.ty != Ty::Ipv4 {
            return Val::Bytes(self.f.define(Type::Bytes, Op::FormatAddress(val.bytes())));
        }
        let number = val.num().value();
        let Ty::Bytes { max, .. } = ty else { panic!("an address is written as text") };
        let mut parts = Vec::new();
        for divisor in [1 << 24, 1 << 16, 1 << 8, 1] {
            if !parts.is_empty() {
                let point = self.consts.intern(b".");
                parts.push(self.f.define(Type::Bytes, point));
            }
            let (divisor, values) = (self.f.int(divisor), self.f.int(256));
            let above = self.f.binary(Type::Int, Binary::DivU, number, divisor);
            let value = self.f.binary(Type::Int, Binary::ModU, above, values);
            parts.push(self.f.define(Type::Bytes, Op::FormatInt { value, signed: false, base: 10 }));
        }
        Val::Bytes(self.f.define(Type::Bytes, Op::Concat { parts, max_bytes: *max }))
    }

    fn abs(&mut self, num: Num, ty: &Ty) -> Num {
        if num.range.lo >= 0 {
            return num;
        }
        let zero = self.constant(0);
        let is_negative = self.compare(BinaryOp::Lt, num, zero);
        let negated = self.f.binary(Type::Int, Binary::Sub, zero.value(), num.value());
        let value = self.select(is_negative, negated, num.value());
        self.val_of_word(ty, value).num()
    }

    pub fn parse_int(&mut self, bytes: Value, base: u8) -> Val {
        let present = self.f.define(Type::Bool, Op::IsInt { bytes, base });
        let value = self.f.define(Type::Int, Op::ParseInt { bytes, base });
        Val::Option { present, value: Box::new(Val::Num(Num::one(value, Interval::INT))) }
    }

    /// A number in digits; text as it is.
    pub fn format(&mut self, val: &Val, base: u8) -> Val {
        let (value, signed) = match val {
            Val::Bytes(_) => return val.clone(),
            Val::Bool(value) => (self.f.bool_to_int(*value), false),
            Val::Num(num) => (num.value(), num.range.within(Interval::INT)),
            other => panic!("the checker writes numbers, not {other:?}"),
        };
        Val::Bytes(self.f.define(Type::Bytes, Op::FormatInt { value, signed, base }))
    }

    /// The same bits as a word of this kind.
    pub fn as_kind(&mut self, value: Value, ty: Type) -> Value {
        if self.f.type_of(value) == ty {
            return value;
        }
        let zero = self.f.int(0);
        self.f.binary(ty, Binary::Add, value, zero)
    }

    fn port(&mut self, bytes: Value, ty: &Ty) -> Val {
        let byte = |body: &mut Self, at: i64| {
            let index = body.f.int(at);
            body.f.define(Type::Int, Op::ByteAt { bytes, index })
        };
        let (high, low) = (byte(self, PORT_AT), byte(self, PORT_AT + 1));
        let high = self.times(high, 256);
        let value = self.f.binary(Type::Int, Binary::Add, high, low);
        self.val_of_word(ty, value)
    }

    fn pick(&mut self, policy: Policy, chan: Value, key: Option<&Val>, ty: &Ty) -> Val {
        let key = match key {
            None => self.empty_bytes(),
            Some(Val::Bytes(key)) => *key,
            Some(Val::Num(num)) => {
                let items = vec![num.value()];
                self.f.define(Type::Bytes, Op::Pack { items, max_bytes: crate::layout::WORD_BYTES })
            }
            Some(other) => panic!("the checker places bytes and numbers, not {other:?}"),
        };
        let value = self.host(Type::Int, HostCall::Pick(policy), vec![chan, key]);
        self.val_of_word(ty, value)
    }

    fn in_units(&mut self, num: Num, unit_ns: i128, ty: &Ty) -> Val {
        let unit = self.constant(unit_ns);
        Val::Num(self.arithmetic(BinaryOp::Div, num, unit, ty))
    }

    fn bytes_test(&mut self, op: Op) -> Val {
        Val::Bool(self.f.define(Type::Bool, op))
    }

    /// `a` where `a op b`, else `b`.
    fn smaller(&mut self, op: BinaryOp, a: Num, b: Num) -> Num {
        let cond = self.compare(op, a, b);
        self.select_num(cond, a, b)
    }

    /// `uint8(n)` and the like: the low bits.
    pub fn convert(&mut self, num: Num, width_bytes: u8, signed: bool, ty: &Ty) -> Val {
        let repr = flick_check::hir::IntRepr { width_bytes, signed };
        if num.range.within(Interval::of_repr(repr)) {
            return Val::Num(num);
        }
        let value = if width_bytes == 8 {
            self.as_kind(num.value(), if signed { Type::Int } else { Type::Uint })
        } else {
            let modulus = 1_i64 << (8 * u32::from(width_bytes));
            let (modulus, half) = (self.f.int(modulus), self.f.int(modulus / 2));
            if signed {
                let shifted = self.f.binary(Type::Int, Binary::Add, num.value(), half);
                let low = self.f.binary(Type::Int, Binary::ModU, shifted, modulus);
                self.f.binary(Type::Int, Binary::Sub, low, half)
            } else {
                self.f.binary(Type::Int, Binary::ModU, num.value(), modulus)
            }
        };
        self.val_of_word(ty, value)
    }
}

fn counter_of(expr: &Expr) -> CounterId {
    match expr.kind {
        ExprKind::Counter(counter) => counter,
        _ => panic!("the checker counts with counters only"),
    }
}

fn is_address(ty: &Ty) -> bool {
    matches!(ty, Ty::Ipv4 | Ty::Ipv6 | Ty::Endpoint)
}
