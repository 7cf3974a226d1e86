//! `if`, `switch`, and what becomes of values where branches meet.
//! Promises: an `if` or `switch` is an expression; its value is a block parameter. Where integers meet that need
//! different words, each is brought to the word that holds both.

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{BinaryOp, Block, Expr, ExprKind, FieldId, Stmt};
use flick_ir::data::{BlockId, Op, Terminator, Type, Value};

use crate::body::{Body, Mode};
use crate::interval::Interval;
use crate::value::{Num, Record, Shape, ShapeKind, Val, Word};

impl Body<'_> {
    /// Lowers statements and the value behind them.
    pub fn block(&mut self, block: &Block) -> Val {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let(local, expr) => {
                    let val = self.expr(expr);
                    let index = local.0 as usize;
                    if self.locals.len() <= index {
                        self.locals.resize(index + 1, None);
                    }
                    self.locals[index] = Some(val);
                }
                Stmt::Expr(expr) => _ = self.expr(expr),
            }
        }
        block.value.as_ref().map_or(Val::Nothing, |value| self.expr(value))
    }

    /// Lowers `if`.
    pub fn lower_if(&mut self, cond: &Expr, then: &Block, otherwise: Option<&Block>) -> Val {
        let (then_block, else_block) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.branch_on(cond, then_block, else_block);
        let then = self.arm(then_block, then);
        let otherwise = match otherwise {
            Some(block) => self.arm(else_block, block),
            None => (else_block, Val::Nothing),
        };
        self.join(vec![then, otherwise])
    }

    /// Lowers `switch`. Where no `else` is written the arms are exhaustive, so the last one is it.
    pub fn lower_switch(
        &mut self,
        value: &Expr,
        arms: &[(Vec<Expr>, Block)],
        otherwise: Option<&Block>,
    ) -> Val {
        let value = self.expr(value);
        let (default, arms) = match (otherwise, arms.split_last()) {
            (Some(block), _) => (block, arms),
            (None, Some(((_, last), others))) => (last, others),
            (None, None) => panic!("the checker refuses a `switch` without arms"),
        };
        let blocks: Vec<BlockId> = arms.iter().map(|_| self.f.new_block(&[])).collect();
        let default_block = self.f.new_block(&[]);
        let targets = arms
            .iter()
            .zip(&blocks)
            .flat_map(|((patterns, _), &block)| patterns.iter().map(move |pattern| (pattern, block)));
        match value {
            Val::Num(Num { word: Word::One(value), .. }) => self.switch_words(value, targets, default_block),
            Val::Bool(value) => {
                let value = self.f.bool_to_int(value);
                self.switch_words(value, targets, default_block);
            }
            other => self.switch_chain(&other, targets, default_block),
        }
        let mut ends: Vec<(BlockId, Val)> =
            arms.iter().zip(&blocks).map(|((_, body), &block)| self.arm(block, body)).collect();
        ends.push(self.arm(default_block, default));
        self.join(ends)
    }

    fn switch_words<'e>(
        &mut self,
        value: Value,
        targets: impl Iterator<Item = (&'e Expr, BlockId)>,
        default: BlockId,
    ) {
        let mut seen = BTreeSet::new();
        let cases: Vec<(i64, BlockId)> = targets
            .map(|(pattern, block)| (pattern_bits(pattern), block))
            .filter(|(bits, _)| seen.insert(*bits))
            .collect();
        self.f.end(Terminator::Switch { value, cases, default });
    }

    /// Compares with one pattern after the other.
    fn switch_chain<'e>(
        &mut self,
        value: &Val,
        targets: impl Iterator<Item = (&'e Expr, BlockId)>,
        default: BlockId,
    ) {
        for (pattern, block) in targets {
            let pattern = self.expr(pattern);
            let same = match value {
                Val::Bytes(value) => self.f.define(Type::Bool, Op::BytesEq(*value, pattern.bytes())),
                other => self.compare(BinaryOp::Eq, other.num(), pattern.num()),
            };
            let next = self.f.new_block(&[]);
            self.f.branch_to(same, block, next);
            self.f.go_on_in(next);
        }
        self.f.jump(default, Vec::new());
    }

    fn arm(&mut self, block: BlockId, body: &Block) -> (BlockId, Val) {
        self.f.go_on_in(block);
        let val = self.block(body);
        (self.f.current(), val)
    }

    /// Joins open blocks in a new one, where the value of the block it came from goes on.
    pub fn join(&mut self, ends: Vec<(BlockId, Val)>) -> Val {
        let first = ends.first().map(|(_, val)| val.clone()).expect("a join has branches");
        match first {
            Val::Nothing => {
                self.join_words(ends.into_iter().map(|(block, _)| (block, Vec::new())).collect(), &[]);
                Val::Nothing
            }
            Val::Bool(_) => Val::Bool(self.join_one(ends, Type::Bool, |val| val.bool())),
            Val::Bytes(_) => Val::Bytes(self.join_one(ends, Type::Bytes, |val| val.bytes())),
            Val::Chan(_) => Val::Chan(self.join_one(ends, Type::Chan, |val| val.chan())),
            Val::Num(_) => Val::Num(self.join_nums(ends)),
            Val::Record(_) => Val::Record(self.join_records(ends)),
        }
    }

    fn join_one(&mut self, ends: Vec<(BlockId, Val)>, ty: Type, word: impl Fn(&Val) -> Value) -> Value {
        self.join_words(ends.iter().map(|(block, val)| (*block, vec![word(val)])).collect(), &[ty])[0]
    }

    fn join_words(&mut self, ends: Vec<(BlockId, Vec<Value>)>, types: &[Type]) -> Vec<Value> {
        let target = self.f.new_block(types);
        for (block, args) in ends {
            self.f.go_on_in(block);
            self.f.jump(target, args);
        }
        self.f.go_on_in(target);
        self.f.params(target).to_vec()
    }

    fn join_nums(&mut self, ends: Vec<(BlockId, Val)>) -> Num {
        let nums: Vec<Num> = ends.iter().map(|(_, val)| val.num()).collect();
        let range = nums.iter().map(|num| num.range).reduce(Interval::hull).expect("a join has branches");
        let word = match self.mode {
            _ if range.within(Interval::INT) => Some((Type::Int, range)),
            _ if range.within(Interval::UINT) => Some((Type::Uint, range)),
            Mode::Exact { .. } => None,
            Mode::Wrapping => Some((Type::Uint, Interval::UINT)),
        };
        let Some((ty, range)) = word else {
            let ends = ends.iter().zip(&nums).map(|((block, _), num)| {
                self.f.go_on_in(*block);
                let (hi, lo) = self.wide(*num);
                (*block, vec![hi, lo])
            });
            let ends = ends.collect();
            let words = self.join_words(ends, &[Type::Int, Type::Uint]);
            return Num { word: Word::Two { hi: words[0], lo: words[1] }, range };
        };
        let value = self.join_one(ends, ty, |val| val.num().value());
        Num::one(value, range)
    }

    /// Joins messages: at most one shape of each kind, with the fields that any branch replaced.
    fn join_records(&mut self, ends: Vec<(BlockId, Val)>) -> Record {
        let ends: Vec<(BlockId, Record)> =
            ends.into_iter().map(|(block, val)| (block, val.record())).collect();
        let unit = ends[0].1.unit;
        let mut layout: BTreeMap<ShapeKind, BTreeSet<FieldId>> = BTreeMap::new();
        for shape in ends.iter().flat_map(|(_, record)| &record.shapes) {
            layout.entry(shape.kind).or_default().extend(shape.overrides.keys());
        }
        let info = self.cx.unit(unit);
        let mut types: Vec<Type> = Vec::new();
        if layout.len() > 1 {
            types.push(Type::Int);
        }
        let fields = layout.values().flatten();
        types.extend(fields.map(|&field| info.key_type(crate::unit::Key::Field(field))));

        let ends = ends.into_iter().map(|(block, record)| {
            self.f.go_on_in(block);
            let args = self.record_words(&record, &layout);
            (self.f.current(), args)
        });
        let ends = ends.collect();
        let mut words = self.join_words(ends, &types).into_iter();
        let selector = if layout.len() > 1 { words.next() } else { None };
        let shapes = layout
            .into_iter()
            .map(|(kind, fields)| {
                let overrides = fields.into_iter().map(|field| {
                    let word = words.next().expect("a parameter for each replaced field");
                    (field, info.key_val(crate::unit::Key::Field(field), word))
                });
                Shape { kind, unit, overrides: overrides.collect() }
            })
            .collect();
        Record { unit, selector, shapes }
    }

    /// The words of a message as the layout of a join wants them.
    fn record_words(
        &mut self,
        record: &Record,
        layout: &BTreeMap<ShapeKind, BTreeSet<FieldId>>,
    ) -> Vec<Value> {
        let mut words = Vec::new();
        if layout.len() > 1 {
            let place = |kind: ShapeKind| layout.keys().position(|&other| other == kind).unwrap_or(0) as i64;
            let places: Vec<i64> = record.shapes.iter().map(|shape| place(shape.kind)).collect();
            let constants: Vec<Value> = places.iter().map(|&place| self.f.int(place)).collect();
            words.push(self.select_shape(record, &constants));
        }
        for (&kind, fields) in layout {
            for &field in fields {
                let val = match record.shape(kind) {
                    Some(shape) => {
                        let val = self.shape_field(&shape.clone(), field);
                        self.fit_to_field(record.unit, field, val)
                    }
                    None => self.empty_field(record.unit, field),
                };
                words.push(match val {
                    Val::Num(num) => num.value(),
                    other => other.bytes(),
                });
            }
        }
        words
    }
}

/// A constant pattern as the word that it is.
pub fn pattern_bits(pattern: &Expr) -> i64 {
    match pattern.kind {
        ExprKind::Int(value) => value as i64,
        ExprKind::Bool(value) => i64::from(value),
        ExprKind::Member(_, value) => value,
        _ => panic!("the checker allows constants as patterns only"),
    }
}
