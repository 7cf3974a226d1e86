//! Values of a message that are known while its grammar's tree is walked, and expressions over them, on 128-bit
//! integers.
//! Promises: nothing of the compiler behind the checker is in here, so that one fault cannot hide on both sides.

use std::collections::BTreeMap;

use flick_check::hir::{BinaryOp, Block, Builtin, Expr, ExprKind, FieldId, FieldKind, Item, Program, Unit};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum V {
    /// A number, a member of an enumeration.
    Int(i128),
    /// A boolean.
    Bool(bool),
    /// Bytes or text.
    Bytes(Vec<u8>),
    /// An option.
    Opt(Option<Box<V>>),
}

impl V {
    /// The number.
    pub fn int(&self) -> i128 {
        if let V::Int(value) = self { *value } else { panic!("{self:?} is no number") }
    }

    /// The boolean.
    pub fn bool(&self) -> bool {
        if let V::Bool(value) = self { *value } else { panic!("{self:?} is no boolean") }
    }

    /// The bytes; none where an option is none.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            V::Bytes(bytes) => Some(bytes),
            V::Opt(Some(inner)) => inner.bytes(),
            V::Opt(None) => None,
            other => panic!("{other:?} is no text"),
        }
    }
}

/// Known values of a message.
#[derive(Clone, Debug)]
pub struct Env<'p> {
    /// The program.
    pub program: &'p Program,
    /// The grammar.
    pub unit: &'p Unit,
    /// Fields and variables; what is not here reads as nothing.
    pub values: BTreeMap<FieldId, V>,
    /// First values of keys.
    pub keyed: BTreeMap<(FieldId, u32), Vec<u8>>,
    /// The occurrence at hand, for `&any`.
    pub occurrence: Option<((FieldId, u32), Vec<u8>)>,
    /// The value that the request kept for its reply (`%keep`).
    pub asked: u64,
    /// The value of `$$`.
    pub dollar: Option<V>,
}

/// An expression that this walker does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

type Value = Result<V, Unknown>;

impl<'p> Env<'p> {
    /// Nothing is known.
    pub fn new(program: &'p Program, unit: &'p Unit, asked: u64) -> Self {
        Self {
            program,
            unit,
            values: BTreeMap::new(),
            keyed: BTreeMap::new(),
            occurrence: None,
            asked,
            dollar: None,
        }
    }

    /// Makes ready for an element of a list: what was in the one before is not there.
    pub fn forget(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Field(field) => {
                    self.values.remove(field);
                    if let FieldKind::List(list) = self.kind(*field) {
                        self.keyed.retain(|(of, _), _| of != field);
                        self.forget(&list.body);
                    }
                }
                Item::Switch(choice) => {
                    let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                    arms.for_each(|items| self.forget(items));
                }
                Item::Literal(_) | Item::Check(_) => {}
            }
        }
    }

    /// Variables that are summed over the elements of a list, and what each adds.
    pub fn sums_of(&self, list: FieldId) -> Vec<(FieldId, &'p Expr)> {
        let fields = self.unit.fields.iter().enumerate();
        let sums = fields.filter_map(|(index, field)| match &field.kind {
            FieldKind::Var { sum: Some(own), parse, .. } if *own == list => {
                Some((FieldId(index as u32), parse))
            }
            _ => None,
        });
        sums.collect()
    }

    /// The kind of a field.
    pub fn kind(&self, field: FieldId) -> &'p FieldKind {
        &self.unit.fields[field.0 as usize].kind
    }

    /// A field's value.
    pub fn field(&self, field: FieldId) -> V {
        if let Some(value) = self.values.get(&field) {
            return value.clone();
        }
        match self.kind(field) {
            FieldKind::Bytes { .. } | FieldKind::Text { .. } | FieldKind::TextVar { .. } => {
                V::Bytes(Vec::new())
            }
            FieldKind::Flag { .. } | FieldKind::Full { .. } => V::Bool(false),
            FieldKind::Carried => V::Int(0),
            FieldKind::Kept => V::Int(i128::from(self.asked)),
            FieldKind::Bits { of, shift, width } => {
                V::Int((self.field(*of).int() >> shift) & ((1 << width) - 1))
            }
            _ => V::Int(0),
        }
    }

    fn key(&self, list: FieldId, key: u32) -> V {
        let here = self.occurrence.as_ref().filter(|(which, _)| *which == (list, key));
        let value = here.map(|(_, value)| value).or_else(|| self.keyed.get(&(list, key)));
        V::Opt(value.map(|value| Box::new(V::Bytes(value.clone()))))
    }

    /// An expression's value.
    pub fn eval(&self, expr: &Expr) -> Value {
        Ok(match &expr.kind {
            ExprKind::Int(value) => V::Int(*value),
            ExprKind::Bool(value) => V::Bool(*value),
            ExprKind::Str(value) => V::Bytes(value.clone()),
            ExprKind::Member(_, value) => V::Int(i128::from(*value)),
            ExprKind::SelfField(field) => self.field(*field),
            ExprKind::SelfKey(list, key) => self.key(*list, *key),
            ExprKind::LenOf(field) => V::Int(self.field(*field).bytes().map_or(0, <[u8]>::len) as i128),
            ExprKind::Dollar => self.dollar.clone().ok_or_else(|| Unknown("$$".into()))?,
            ExprKind::Not(inner) => V::Bool(!self.eval(inner)?.bool()),
            ExprKind::Neg(inner) => V::Int(-self.eval(inner)?.int()),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b)?,
            ExprKind::If { cond, then, otherwise: Some(otherwise) } => {
                self.block(if self.eval(cond)?.bool() { then } else { otherwise })?
            }
            ExprKind::Switch { value, arms, otherwise } => {
                let value = self.eval(value)?;
                for (patterns, body) in arms {
                    for pattern in patterns {
                        if self.eval(pattern)? == value {
                            return self.block(body);
                        }
                    }
                }
                self.block(otherwise.as_ref().ok_or_else(|| Unknown("no case".into()))?)?
            }
            ExprKind::OrElse(value, otherwise) => match self.eval(value)? {
                V::Opt(Some(inner)) => *inner,
                V::Opt(None) => self.block(otherwise)?,
                plain => plain,
            },
            // A comparison with `none`.
            ExprKind::Match { value, arms, otherwise } => {
                let is_there = u32::from(self.eval(value)? != V::Opt(None));
                let arm = arms.iter().find(|(cases, ..)| cases.contains(&is_there));
                match (arm, otherwise) {
                    (Some((_, None, body)), _) | (None, Some(body)) => self.block(body)?,
                    _ => return Err(Unknown("a case that binds".into())),
                }
            }
            ExprKind::IsOf(inner, class) => {
                let set = self.program.classes[class.0 as usize].set;
                let is_in = |byte: &u8| set[usize::from(*byte >> 6)] >> (*byte & 63) & 1 == 1;
                V::Bool(self.eval(inner)?.bytes().unwrap_or_default().iter().all(is_in))
            }
            ExprKind::Some(inner) => V::Opt(Some(Box::new(self.eval(inner)?))),
            ExprKind::None => V::Opt(None),
            ExprKind::Builtin(builtin, args) => self.builtin(*builtin, args)?,
            ExprKind::Concat(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend(self.eval(part)?.bytes().unwrap_or_default());
                }
                V::Bytes(all)
            }
            ExprKind::Slice(value, from, to) => {
                let value = self.eval(value)?;
                let bytes = value.bytes().unwrap_or_default();
                let len = bytes.len() as i128;
                let end = |at: &Option<Box<Expr>>, default| {
                    at.as_ref().map_or(Ok(default), |at| Ok(self.eval(at)?.int().clamp(0, len)))
                };
                let (from, to) = (end(from, 0)?, end(to, len)?);
                V::Bytes(bytes[from as usize..(to.max(from)) as usize].to_vec())
            }
            ExprKind::ByteAt(value, at) => {
                let (value, at) = (self.eval(value)?, self.eval(at)?.int());
                let byte = usize::try_from(at).ok().and_then(|at| value.bytes()?.get(at).copied());
                V::Opt(byte.map(|byte| Box::new(V::Int(i128::from(byte)))))
            }
            ExprKind::Convert(inner, _) | ExprKind::Recast(inner) => self.eval(inner)?,
            other => return Err(Unknown(format!("{other:?}").chars().take(60).collect())),
        })
    }

    fn block(&self, block: &Block) -> Value {
        match (&block.stmts[..], &block.value) {
            ([], Some(value)) => self.eval(value),
            _ => Err(Unknown("a block with statements".into())),
        }
    }

    fn binary(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Value {
        let a = self.eval(a)?;
        if let (BinaryOp::And, V::Bool(false)) | (BinaryOp::Or, V::Bool(true)) = (op, &a) {
            return Ok(a);
        }
        let b = self.eval(b)?;
        Ok(match op {
            BinaryOp::Add => V::Int(a.int() + b.int()),
            BinaryOp::Sub => V::Int(a.int() - b.int()),
            BinaryOp::Mul => V::Int(a.int().checked_mul(b.int()).ok_or_else(|| Unknown("product".into()))?),
            BinaryOp::Div if b.int() == 0 => V::Int(0),
            BinaryOp::Div => V::Int(a.int().div_euclid(b.int())),
            BinaryOp::Mod if b.int() == 0 => V::Int(0),
            BinaryOp::Mod => V::Int(a.int().rem_euclid(b.int())),
            BinaryOp::Eq => V::Bool(same(&a, &b)),
            BinaryOp::Ne => V::Bool(!same(&a, &b)),
            BinaryOp::Lt => V::Bool(less(&a, &b)),
            BinaryOp::Le => V::Bool(!less(&b, &a)),
            BinaryOp::Gt => V::Bool(less(&b, &a)),
            BinaryOp::Ge => V::Bool(!less(&a, &b)),
            BinaryOp::And | BinaryOp::Or => b,
        })
    }

    fn builtin(&self, builtin: Builtin, args: &[Expr]) -> Value {
        let values: Vec<V> = args.iter().map(|arg| self.eval(arg)).collect::<Result<_, _>>()?;
        let text = |at: usize| values[at].bytes().unwrap_or_default().to_vec();
        let number = |number: Option<i128>| V::Opt(number.map(|number| Box::new(V::Int(number))));
        Ok(match builtin {
            Builtin::Len => V::Int(text(0).len() as i128),
            Builtin::StartsWith => V::Bool(text(0).starts_with(&text(1))),
            Builtin::EndsWith => V::Bool(text(0).ends_with(&text(1))),
            Builtin::Contains => V::Bool(find(&text(0), &text(1)).is_some()),
            Builtin::Find => number(find(&text(0), &text(1)).map(|at| at as i128)),
            Builtin::Lower => V::Bytes(text(0).to_ascii_lowercase()),
            Builtin::Upper => V::Bytes(text(0).to_ascii_uppercase()),
            Builtin::Trim => V::Bytes(trimmed(&text(0)).to_vec()),
            Builtin::SameText => V::Bool(text(0).eq_ignore_ascii_case(&text(1))),
            Builtin::ParseInt => number(whole_number(&text(0), 10)),
            Builtin::ParseHex => number(whole_number(&text(0), 16)),
            Builtin::Min => V::Int(values[0].int().min(values[1].int())),
            Builtin::Max => V::Int(values[0].int().max(values[1].int())),
            Builtin::Text | Builtin::Raw => values[0].clone(),
            Builtin::HasToken => {
                let (list, token) = (text(0), text(1));
                let is_in = list
                    .split(|byte| *byte == b',')
                    .any(|part| trimmed(part).eq_ignore_ascii_case(&token) && !trimmed(part).is_empty());
                V::Bool(is_in)
            }
            Builtin::IsDigits => V::Bool(!text(0).is_empty() && text(0).iter().all(u8::is_ascii_digit)),
            other => return Err(Unknown(format!("{other:?}"))),
        })
    }
}

/// Equality as the language has it: a plain value equals an option of it.
fn same(a: &V, b: &V) -> bool {
    match (a, b) {
        (V::Opt(Some(inner)), plain @ (V::Int(_) | V::Bool(_) | V::Bytes(_)))
        | (plain @ (V::Int(_) | V::Bool(_) | V::Bytes(_)), V::Opt(Some(inner))) => **inner == *plain,
        _ => a == b,
    }
}

fn less(a: &V, b: &V) -> bool {
    match (a, b) {
        (V::Int(a), V::Int(b)) => a < b,
        _ => a.bytes() < b.bytes(),
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|window| window == part) }
}

/// Without blanks, tabs, CR and LF at both ends.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let Some(first) = text.iter().position(|byte| !is_blank(byte)) else { return &[] };
    let last = text.iter().rposition(|byte| !is_blank(byte)).unwrap_or(first);
    &text[first..=last]
}

fn whole_number(text: &[u8], base: u32) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) if base == 10 => (-1, digits),
        _ => (1, text),
    };
    let is_digit = |byte: &u8| (*byte as char).is_digit(base);
    let is_short = base == 10 || digits.len() <= 16;
    if digits.is_empty() || !digits.iter().all(is_digit) || !is_short {
        return None;
    }
    let value = i128::from_str_radix(std::str::from_utf8(digits).ok()?, base).ok()? * sign;
    if base == 16 {
        return Some(i128::from(value as u64 as i64));
    }
    i64::try_from(value).ok().map(i128::from)
}
