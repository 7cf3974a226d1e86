//! A second opinion on grammars: reads a whole message with integers that never wrap, field after field, and
//! knows nothing of plans, stages, ranges or slots.

use flick_check::hir::{BinaryOp, Expr, ExprKind, FieldId, FieldKind, IntRepr, Ty, Unit};

/// The value of a field or expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i128),
    /// A boolean.
    Bool(bool),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Result of reading a message.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The fields, or nothing: the message is refused.
    pub fields: Option<Vec<Value>>,
    /// Length of the message.
    pub total: i128,
    /// Whether lowering may refuse the message though this model does not: an operand of a product or division
    /// left 64 bits.
    pub may_refuse: bool,
}

/// Reads the message at the front of `data`, which is long enough for all but a streamed last field.
pub fn read(unit: &Unit, data: &[u8]) -> Outcome {
    let mut reader = Reader { unit, fields: Vec::new(), may_refuse: false };
    let total = reader.read(data);
    let fields = total.is_some().then_some(reader.fields);
    Outcome { fields, total: total.unwrap_or(0), may_refuse: reader.may_refuse }
}

struct Reader<'u> {
    unit: &'u Unit,
    fields: Vec<Value>,
    may_refuse: bool,
}

impl Reader<'_> {
    fn read(&mut self, data: &[u8]) -> Option<i128> {
        let mut at: i128 = 0;
        let mut good = true;
        for field in &self.unit.fields {
            let value = match &field.kind {
                FieldKind::Int { repr, big_endian, .. } => {
                    let from = at as usize;
                    at += i128::from(repr.width_bytes);
                    Value::Int(integer(&data[from..at as usize], *repr, *big_endian))
                }
                FieldKind::Var { repr, parse, sum: None } => {
                    let value = self.int(parse, None);
                    good &= fits(value, *repr);
                    Value::Int(value)
                }
                FieldKind::Vint { .. } => {
                    let (value, len) = vint(&data[at as usize..]);
                    at += len as i128;
                    Value::Int(value.into())
                }
                FieldKind::Bytes { max_bytes, length, .. } => {
                    let len = self.int(length, None);
                    if len < 0 || max_bytes.is_some_and(|max| len > i128::from(max)) || len > 1 << 60 {
                        return None;
                    }
                    let from = at as usize;
                    at += len;
                    Value::Bytes(data.get(from..at as usize).map(<[u8]>::to_vec).unwrap_or_default())
                }
                _ => panic!("the model reads plain units"),
            };
            self.fields.push(value);
            for check in &field.requires {
                let dollar = self.fields.last().cloned();
                good &= self.eval(check, dollar.as_ref()) == Value::Bool(true);
            }
        }
        (good && (1..=1 << 60).contains(&at)).then_some(at)
    }

    fn int(&mut self, expr: &Expr, dollar: Option<&Value>) -> i128 {
        match self.eval(expr, dollar) {
            Value::Int(value) => value,
            other => panic!("{other:?} is no integer"),
        }
    }

    fn eval(&mut self, expr: &Expr, dollar: Option<&Value>) -> Value {
        match &expr.kind {
            ExprKind::Int(value) => Value::Int(*value),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::SelfField(FieldId(field)) => self.fields[*field as usize].clone(),
            ExprKind::Dollar => dollar.cloned().expect("`$$` is in checks only"),
            ExprKind::Not(inner) => Value::Bool(self.eval(inner, dollar) != Value::Bool(true)),
            ExprKind::Neg(inner) => Value::Int(-self.int(inner, dollar)),
            ExprKind::Binary(BinaryOp::And, a, b) => {
                let a = self.eval(a, dollar);
                if a == Value::Bool(true) { self.eval(b, dollar) } else { a }
            }
            ExprKind::Binary(BinaryOp::Or, a, b) => {
                let a = self.eval(a, dollar);
                if a == Value::Bool(true) { a } else { self.eval(b, dollar) }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.int(a, dollar), self.int(b, dollar));
                if expr.ty == Ty::Bool { Value::Bool(compare(*op, a, b)) } else { self.arithmetic(*op, a, b) }
            }
            ExprKind::If { cond, then, otherwise } => {
                let cond = self.eval(cond, dollar) == Value::Bool(true);
                let block = if cond { then } else { otherwise.as_ref().expect("values have both branches") };
                self.eval(block.value.as_ref().expect("it has a value"), dollar)
            }
            ExprKind::Switch { value, arms, otherwise } => {
                let value = self.eval(value, dollar);
                let is_hit =
                    |pattern: &Expr| matches!(pattern.kind, ExprKind::Int(hit) if Value::Int(hit) == value);
                let arm = arms.iter().find(|(patterns, _)| patterns.iter().any(is_hit));
                let block = arm.map(|(_, block)| block).or(otherwise.as_ref()).expect("there is an `else`");
                self.eval(block.value.as_ref().expect("it has a value"), dollar)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn arithmetic(&mut self, op: BinaryOp, a: i128, b: i128) -> Value {
        let is_word = |value: i128| i64::try_from(value).is_ok();
        if matches!(op, BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod) {
            // The quotient of the least word by -1 is refused although both are words.
            self.may_refuse |= !is_word(a) || !is_word(b) || a == i128::from(i64::MIN);
        }
        let floored = |a: i128, b: i128| if (a % b != 0) && ((a < 0) != (b < 0)) { a / b - 1 } else { a / b };
        let value = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::Div => Some(if b == 0 { 0 } else { floored(a, b) }),
            BinaryOp::Mod => Some(if b == 0 { 0 } else { a - floored(a, b) * b }),
            other => panic!("{other:?} is no arithmetic"),
        };
        self.may_refuse |= value.is_none();
        Value::Int(value.unwrap_or(0))
    }
}

fn compare(op: BinaryOp, a: i128, b: i128) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        BinaryOp::Ge => a >= b,
        other => panic!("{other:?} is no comparison"),
    }
}

fn integer(bytes: &[u8], repr: IntRepr, big_endian: bool) -> i128 {
    let mut value: i128 = 0;
    for index in 0..bytes.len() {
        let byte = if big_endian { bytes[index] } else { bytes[bytes.len() - 1 - index] };
        value = (value << 8) | i128::from(byte);
    }
    let bits = u32::from(repr.width_bytes) * 8;
    if repr.signed && value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
}

fn fits(value: i128, repr: IntRepr) -> bool {
    let bits = u32::from(repr.width_bytes) * 8;
    let range = if repr.signed { -(1 << (bits - 1))..1 << (bits - 1) } else { 0..1 << bits };
    range.contains(&value)
}

/// A variable-length integer at the front of `data`, and its length in bytes.
pub fn vint(data: &[u8]) -> (i64, usize) {
    let lead = i32::from(data[0] as i8);
    let (count, negative) = match lead {
        -120..=-113 => (-112 - lead, false),
        -128..=-121 => (-120 - lead, true),
        short => return (i64::from(short), 1),
    };
    let value = data[1..=count as usize].iter().fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
    (if negative { !(value as i64) } else { value as i64 }, 1 + count as usize)
}

/// The shortest form of a variable-length integer.
pub fn vint_bytes(value: i64) -> Vec<u8> {
    if (-112..=127).contains(&value) {
        return vec![value as u8];
    }
    let magnitude = if value < 0 { !value } else { value };
    let count = 8 - magnitude.leading_zeros() / 8;
    let lead = if value < 0 { -120 } else { -112 } - count as i64;
    [&[lead as u8][..], &magnitude.to_be_bytes()[8 - count as usize..]].concat()
}
