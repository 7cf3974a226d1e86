//! Lists: memory of words in the output, element after element.
//! Promises: a list is written where it is made and never changed; an index outside gives none, ends of a slice are
//! clamped. Elements take as many words as their type's carrier has.

use flick_check::hir::{Expr, ExprKind, Ty};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::interval::Interval;
use crate::layout::WORD_BYTES;
use crate::value::{Num, Val};

impl Body<'_> {
    /// `[a, b]`.
    pub fn list_of(&mut self, exprs: &[Expr], elem: &Ty) -> Val {
        if let Some(words) = exprs.iter().map(constant_word).collect::<Option<Vec<i64>>>() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let op = self.consts.intern(&bytes);
            return Val::Bytes(self.f.define(Type::Bytes, op));
        }
        let vals: Vec<Val> = exprs.iter().map(|expr| self.expr(expr)).collect();
        self.list_of_vals(&vals, elem)
    }

    /// A list of these values.
    pub fn list_of_vals(&mut self, vals: &[Val], elem: &Ty) -> Val {
        let carrier = self.cx.elem_carrier(elem);
        let words: Vec<Value> = vals.iter().flat_map(|val| self.words(&carrier, val)).collect();
        let count = self.f.int(words.len() as i64);
        let memory = self.words_new(count, words.len() as u32);
        self.words_to(memory, None, &words);
        Val::Bytes(memory)
    }

    /// New memory for `words` words.
    pub fn words_new(&mut self, words: Value, words_max: u32) -> Value {
        self.f.define(Type::Bytes, Op::WordsNew { words, words_max })
    }

    /// Memory for `count` elements, at most `max`.
    pub fn list_new(&mut self, count: Value, elem: &Ty, max: u32) -> Value {
        let stride = self.cx.stride(elem);
        let words = self.times(count, i64::from(stride));
        self.words_new(words, max.saturating_mul(stride))
    }

    /// Writes words side by side from the word `base` on.
    pub fn words_to(&mut self, memory: Value, base: Option<Value>, words: &[Value]) {
        for (index, &value) in words.iter().enumerate() {
            let index = self.word_index(base, index);
            self.f.effect(Op::WordSet { bytes: memory, index, value });
        }
    }

    /// Reads words side by side from the word `base` on.
    pub fn words_from(&mut self, memory: Value, base: Option<Value>, types: &[Type]) -> Vec<Value> {
        let words = types.iter().enumerate().map(|(index, &ty)| {
            let index = self.word_index(base, index);
            self.f.define(ty, Op::WordGet { bytes: memory, index })
        });
        words.collect()
    }

    fn word_index(&mut self, base: Option<Value>, index: usize) -> Value {
        let Some(base) = base else { return self.f.int(index as i64) };
        if index == 0 {
            return base;
        }
        let index = self.f.int(index as i64);
        self.f.binary(Type::Int, Binary::Add, base, index)
    }

    /// Writes an element.
    pub fn elem_to(&mut self, memory: Value, index: Value, elem: &Ty, val: &Val) {
        let carrier = self.cx.elem_carrier(elem);
        let words = self.words(&carrier, val);
        let base = self.times(index, words.len() as i64);
        self.words_to(memory, Some(base), &words);
    }

    /// Reads an element that is there.
    pub fn elem_from(&mut self, memory: Value, index: Value, elem: &Ty) -> Val {
        let carrier = self.cx.elem_carrier(elem);
        let types = carrier.types(self.cx);
        let base = self.times(index, types.len() as i64);
        let words = self.words_from(memory, Some(base), &types);
        let val = self.arrived(&carrier, &mut words.into_iter());
        self.bound_length(elem, &val);
        val
    }

    /// Returns the number of elements of a list.
    pub fn list_len(&mut self, memory: Value, elem: &Ty) -> Value {
        let bytes = self.f.define(Type::Int, Op::Len(memory));
        let size = self.f.int(i64::from(self.cx.stride(elem) * WORD_BYTES));
        self.f.binary(Type::Int, Binary::DivU, bytes, size)
    }

    /// `list[i]`.
    pub fn list_get(&mut self, list: &Expr, index: &Expr) -> Val {
        let elem = elem_of(&list.ty).clone();
        let memory = self.expr(list).bytes();
        let index = self.expr(index).num();
        let index = self.signed_index(index);
        let len = self.list_len(memory, &elem);
        // As unsigned words, negative ones are beyond every length.
        let present = self.f.binary(Type::Bool, Binary::LtU, index, len);
        let zero = self.f.int(0);
        let index = self.select(present, index, zero);
        let value = self.elem_from(memory, index, &elem);
        Val::Option { present, value: Box::new(value) }
    }

    /// `text[i]`.
    pub fn byte_at(&mut self, text: &Expr, index: &Expr) -> Val {
        let bytes = self.expr(text).bytes();
        let index = self.expr(index).num();
        let index = self.signed_index(index);
        let value = self.f.define(Type::Int, Op::ByteAt { bytes, index });
        self.unless_negative(value, Interval::new(0, 255))
    }

    /// A number, or none where it is -1.
    pub fn unless_negative(&mut self, value: Value, range: Interval) -> Val {
        let zero = self.f.int(0);
        let present = self.f.binary(Type::Bool, Binary::LeS, zero, value);
        Val::Option { present, value: Box::new(Val::Num(Num::one(value, range))) }
    }

    /// `text[a..b]` and `list[a..b]`.
    pub fn slice(&mut self, of: &Expr, start: Option<&Expr>, end: Option<&Expr>) -> Val {
        let bytes = self.expr(of).bytes();
        let start = start.map(|start| self.expr(start).num());
        let end = end.map(|end| self.expr(end).num());
        let size = match &of.ty {
            Ty::List { elem, .. } => self.cx.stride(elem) * WORD_BYTES,
            _ => 1,
        };
        let len = self.f.define(Type::Int, Op::Len(bytes));
        let start = match start {
            Some(start) => self.byte_offset(start, size, len),
            None => self.f.int(0),
        };
        let end = match end {
            Some(end) => self.byte_offset(end, size, len),
            None => len,
        };
        Val::Bytes(self.f.define(Type::Bytes, Op::Slice { bytes, start, end }))
    }

    /// Returns the offset of the element `index`. An element of several bytes is clamped, to keep the product small.
    fn byte_offset(&mut self, index: Num, size: u32, len: Value) -> Value {
        let index = self.signed_index(index);
        if size == 1 {
            return index;
        }
        let zero = self.f.int(0);
        let index = self.f.binary(Type::Int, Binary::MaxS, index, zero);
        let index = self.f.binary(Type::Int, Binary::MinS, index, len);
        self.times(index, i64::from(size))
    }

    /// An index as a signed word; what does not fit is the largest.
    pub fn signed_index(&mut self, index: Num) -> Value {
        if index.range.within(Interval::INT) {
            return index.value();
        }
        let most = self.f.int(i64::MAX);
        self.f.binary(Type::Int, Binary::MinU, index.value(), most)
    }

    /// `value` times a constant.
    pub fn times(&mut self, value: Value, factor: i64) -> Value {
        if factor == 1 {
            return value;
        }
        let factor = self.f.int(factor);
        self.f.binary(Type::Int, Binary::Mul, value, factor)
    }
}

/// The type of a list's elements.
pub fn elem_of(ty: &Ty) -> &Ty {
    match ty {
        Ty::List { elem, .. } => elem,
        other => panic!("the checker found a list here, not {other:?}"),
    }
}

/// The word of a constant that is one.
fn constant_word(expr: &Expr) -> Option<i64> {
    match expr.kind {
        ExprKind::Int(value) => Some(value as i64),
        ExprKind::Bool(value) => Some(i64::from(value)),
        ExprKind::Member(_, value) => Some(value),
        _ => None,
    }
}
