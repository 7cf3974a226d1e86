//! The body of one random function: nested diamonds of blocks, filled with operations whose operands fit.

use std::collections::BTreeMap;

use super::wide::{BYTES_MAX, List};
use super::{BOOL_SLOTS, BYTES_SLOTS, CONSTS_BYTES, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, NUMBER_SLOTS, Rng};
use flick_abi::FaultCause;
use flick_abi::frame::SLOT_STATE;
use flick_abi::limits::SENDS_MAX;

use crate::data::{
    Binary, Block, BlockId, FuncKind, Function, Inst, Op, SourceOrigin, Terminator, Type, Value,
};

const ARITHMETIC: [Binary; 13] = [
    Binary::BitAnd,
    Binary::BitOr,
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::DivS,
    Binary::DivU,
    Binary::ModS,
    Binary::ModU,
    Binary::MinS,
    Binary::MaxS,
    Binary::MinU,
    Binary::MaxU,
];
const COMPARISONS: [Binary; 6] = [Binary::Eq, Binary::Ne, Binary::LtS, Binary::LeS, Binary::LtU, Binary::LeU];

/// The values that may be used at one point.
#[derive(Clone, Default)]
pub(super) struct Scope {
    pub(super) values: Vec<Value>,
    /// The bytes that `Need`s have established: base, bytes.
    covered: Vec<(Option<Value>, u32)>,
    /// Results of `OutMark`.
    marks: Vec<Value>,
    /// Lists in the output.
    pub(super) lists: Vec<List>,
}

pub(super) struct Body<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) function: Function,
    earlier: &'a [Function],
    /// Longest length of each value that is bytes.
    lens: Vec<u64>,
    sends_left: usize,
    calls_left: usize,
    /// Loops around the current block.
    pub(super) loop_depth: usize,
    /// The largest number of runs of the current block.
    pub(super) rounds: usize,
    pub(super) waits_left: usize,
    /// Suspensions so far.
    pub(super) states: u32,
    /// State to resume in, for a parser's `Need`.
    state: u32,
}

/// Makes a function of a kind; helpers among `earlier` may be called.
pub(super) fn function(rng: &mut Rng, kind: FuncKind, earlier: &[Function]) -> Function {
    let result = match kind {
        FuncKind::Helper if rng.chance(70) => {
            Some(rng.pick(&[Type::Int, Type::Uint, Type::Bool, Type::Bytes, Type::Chan, Type::Message]))
        }
        FuncKind::Order => Some(Type::Int),
        _ => None,
    };
    let name = format!("random.{}", earlier.len());
    let function = Function {
        name,
        kind,
        results: result.into_iter().collect(),
        values: Vec::new(),
        lengths: BTreeMap::new(),
        blocks: Vec::new(),
    };
    let (sends_left, calls_left) = match kind {
        FuncKind::Rule => (SENDS_MAX.min(16), 3),
        FuncKind::Helper => (sends_of(earlier.len()), 1),
        _ => (0, 0),
    };
    let waits_left = if kind == FuncKind::Rule && rng.chance(60) { 3 } else { 0 };
    let (lens, loop_depth, rounds, states) = (Vec::new(), 0, 1, 0);
    let mut body = Body {
        rng,
        function,
        earlier,
        lens,
        sends_left,
        calls_left,
        loop_depth,
        rounds,
        waits_left,
        states,
        state: 0,
    };
    let types = match kind {
        FuncKind::Parser => vec![Type::Frame, Type::Int],
        FuncKind::Rule => vec![Type::Frame, Type::Uint],
        FuncKind::Builder | FuncKind::Order => vec![Type::Frame],
        FuncKind::Helper => {
            let all =
                [Type::Int, Type::Uint, Type::Bool, Type::Bytes, Type::Chan, Type::Frame, Type::Message];
            (0..body.rng.below(4)).map(|_| body.rng.pick(&all)).collect()
        }
    };
    let entry = body.block(&types);
    let scope = Scope { values: body.params(entry), ..Scope::default() };
    if kind == FuncKind::Parser {
        body.parser(entry, scope);
    } else {
        let (last, scope) = body.sequence(entry, scope, 2);
        body.close(last, &scope);
    }
    body.function
}

/// Sends that a helper of this number may cause, those of a helper it calls among them.
fn sends_of(helper: usize) -> usize {
    2 * helper.saturating_sub(1)
}

impl Scope {
    /// A position that the message is known to reach.
    pub(super) fn cover(&mut self, position: Value) {
        self.covered.push((Some(position), 0));
    }

    /// Some position that the message is known to reach.
    pub(super) fn some_covered(&self, rng: &mut Rng) -> Option<Value> {
        let positions: Vec<Value> = self.covered.iter().filter_map(|(base, _)| *base).collect();
        if positions.is_empty() { None } else { Some(rng.pick(&positions)) }
    }
}

impl Body<'_> {
    pub(super) fn value(&mut self, ty: Type) -> Value {
        self.function.values.push(ty);
        self.lens.push(if ty == Type::Bytes { BYTES_MAX } else { 0 });
        Value(self.function.values.len() as u32 - 1)
    }

    /// Longest length of a value.
    pub(super) fn len(&self, value: Value) -> u64 {
        self.lens[value.0 as usize]
    }

    /// Sets the longest length of a value, if it is bytes.
    pub(super) fn set_len(&mut self, value: Value, len: u64) {
        if self.ty(value) == Type::Bytes {
            self.lens[value.0 as usize] = len;
        }
    }

    pub(super) fn block(&mut self, types: &[Type]) -> BlockId {
        let params = types.iter().map(|ty| self.value(*ty)).collect();
        self.function.blocks.push(Block {
            params,
            trips_max: None,
            advance: None,
            insts: Vec::new(),
            end: Terminator::Done,
        });
        BlockId(self.function.blocks.len() as u32 - 1)
    }

    pub(super) fn params(&self, block: BlockId) -> Vec<Value> {
        self.function.blocks[block.0 as usize].params.clone()
    }

    pub(super) fn end(&mut self, block: BlockId, end: Terminator) {
        self.function.blocks[block.0 as usize].end = end;
    }

    pub(super) fn push(&mut self, block: BlockId, result: Option<Value>, op: Op) {
        let mut origin = SourceOrigin::default();
        if self.rng.chance(20) {
            origin = SourceOrigin { file: self.rng.below(2) as u32, offset: self.rng.below(500) as u32 };
        }
        self.function.blocks[block.0 as usize].insts.push(Inst { result, op, origin });
    }

    pub(super) fn define(&mut self, block: BlockId, scope: &mut Scope, ty: Type, op: Op) -> Value {
        let value = self.value(ty);
        self.push(block, Some(value), op);
        scope.values.push(value);
        value
    }

    fn ty(&self, value: Value) -> Type {
        self.function.values[value.0 as usize]
    }

    /// Some value of a type, made if there is none, or for variety.
    pub(super) fn some(&mut self, block: BlockId, scope: &mut Scope, ty: Type) -> Value {
        let is_number = |ty| matches!(ty, Type::Int | Type::Uint);
        let fits = |found: Type| found == ty || is_number(found) && is_number(ty);
        let known: Vec<Value> = scope.values.iter().copied().filter(|value| fits(self.ty(*value))).collect();
        if !known.is_empty() && self.rng.chance(75) {
            return self.rng.pick(&known);
        }
        let mut len = MESSAGE_BYTES_MAX;
        let op = match ty {
            Type::Message => {
                let last = usize::from(self.function.kind == FuncKind::Order);
                let number = self.rng.below(last + 1);
                Op::AsMessage(self.constant(block, scope, number))
            }
            Type::Bool if self.rng.chance(50) => Op::Const(self.rng.below(2) as i64),
            Type::Bool => Op::FrameGet { slot: self.slot(BOOL_SLOTS) },
            Type::Bytes if self.rng.chance(50) => {
                let offset = self.rng.below(CONSTS_BYTES + 1);
                len = self.rng.below((CONSTS_BYTES - offset).min(6) + 1);
                Op::ConstBytes { offset: offset as u32, len: len as u32 }
            }
            Type::Bytes => Op::FrameGet { slot: self.slot(BYTES_SLOTS) },
            Type::Chan => Op::Const((self.rng.below(2) | (self.rng.below(4) << 16)) as i64),
            _ if self.rng.chance(50) => Op::Const(self.rng.corner() as i64),
            _ => Op::FrameGet { slot: self.slot(NUMBER_SLOTS) },
        };
        // Only kinds of functions that have a frame ask for one.
        let value = self.define(block, scope, ty, op);
        self.set_len(value, len as u64);
        value
    }

    pub(super) fn number(&mut self, block: BlockId, scope: &mut Scope) -> Value {
        self.some(block, scope, Type::Int)
    }

    /// A number no larger than `limit`.
    pub(super) fn at_most(&mut self, block: BlockId, scope: &mut Scope, limit: Value) -> Value {
        let any = self.number(block, scope);
        self.define(block, scope, Type::Int, Op::Binary(Binary::MinU, any, limit))
    }

    pub(super) fn constant(&mut self, block: BlockId, scope: &mut Scope, word: usize) -> Value {
        self.define(block, scope, Type::Int, Op::Const(word as i64))
    }

    pub(super) fn slot(&mut self, slots: std::ops::Range<u16>) -> u16 {
        slots.start + self.rng.below(slots.len()) as u16
    }

    /// Runs of operations with diamonds between them. Returns the block that is still open, and its scope.
    pub(super) fn sequence(
        &mut self,
        mut block: BlockId,
        mut scope: Scope,
        depth: usize,
    ) -> (BlockId, Scope) {
        for _ in 0..1 + self.rng.below(2) {
            for _ in 0..self.rng.below(6) {
                block = self.operation(block, &mut scope);
            }
            if self.function.kind == FuncKind::Parser && self.rng.chance(20) {
                block = self.need(block, &mut scope);
            }
            if depth > 0 && self.rng.chance(60) {
                block = self.diamond(block, &mut scope, depth);
            }
            if depth > 0 && self.loop_depth < 2 && self.rng.chance(30) {
                block = self.repeat(block, &mut scope, depth);
            }
            if self.waits_left > 0 && self.loop_depth == 0 && self.rng.chance(40) {
                block = self.wait(block, &mut scope);
            }
        }
        (block, scope)
    }

    /// Two or more branches that meet again, or end. Returns the block where they meet.
    fn diamond(&mut self, block: BlockId, scope: &mut Scope, depth: usize) -> BlockId {
        let all = [Type::Int, Type::Uint, Type::Bool, Type::Bytes, Type::Chan];
        let types: Vec<Type> = (0..self.rng.below(3)).map(|_| self.rng.pick(&all)).collect();
        let ty = if self.rng.chance(70) { Type::Bool } else { Type::Int };
        let decides = self.some(block, scope, ty);
        let is_switch = self.ty(decides) != Type::Bool;
        let arms: Vec<BlockId> = (0..if is_switch { 3 } else { 2 }).map(|_| self.block(&[])).collect();
        if is_switch {
            let words = [self.rng.corner() as i64, self.rng.below(3) as i64];
            let mut cases = vec![(words[0], arms[1])];
            if words[1] != words[0] {
                cases.push((words[1], arms[2]));
            }
            self.end(block, Terminator::Switch { value: decides, cases, default: arms[0] });
        } else {
            let (then, otherwise) = ((arms[0], Vec::new()), (arms[1], Vec::new()));
            self.end(block, Terminator::Branch { cond: decides, then, otherwise });
        }
        let meet = self.block(&types);
        for (index, arm) in arms.into_iter().enumerate() {
            let (last, mut scope) = self.sequence(arm, scope.clone(), depth - 1);
            // The first branch always continues, so that what follows is reached.
            if index > 0 && self.rng.chance(20) {
                self.close(last, &scope);
                continue;
            }
            let args = types.iter().map(|ty| self.some(last, &mut scope, *ty)).collect();
            self.end(last, Terminator::Jump(meet, args));
        }
        scope.values.extend(self.params(meet));
        meet
    }

    /// Ends the function here.
    fn close(&mut self, block: BlockId, scope: &Scope) {
        let end = if self.function.kind == FuncKind::Parser {
            let (field, number) = (self.rng.below(9) as u32, 1 + self.rng.below(4) as u32);
            let cause = FaultCause::from_number(number).expect("causes are numbered from 1");
            let fault = Terminator::Fault { field, cause };
            if self.rng.chance(50) { fault } else { Terminator::Done }
        } else {
            let results = self.function.results.clone();
            let mut scope = scope.clone();
            Terminator::Return(results.iter().map(|ty| self.some(block, &mut scope, *ty)).collect())
        };
        self.end(block, end);
    }

    /// A parser: segments that can each be resumed, since they use nothing of the ones before but slots.
    fn parser(&mut self, entry: BlockId, mut scope: Scope) {
        let segments: Vec<BlockId> = (0..1 + self.rng.below(3)).map(|_| self.block(&[])).collect();
        let state = self.define(entry, &mut scope, Type::Int, Op::FrameGet { slot: SLOT_STATE as u16 });
        let cases =
            segments.iter().enumerate().skip(1).map(|(index, block)| (index as i64, *block)).collect();
        self.end(entry, Terminator::Switch { value: state, cases, default: segments[0] });
        for (index, segment) in segments.iter().enumerate() {
            self.state = index as u32;
            let mut scope = scope.clone();
            let mut block = *segment;
            for _ in 0..1 + self.rng.below(2) {
                block = self.need(block, &mut scope);
                let (last, inner) = self.sequence(block, scope.clone(), 1);
                // Values of the sequence's straight part are still known behind it.
                (block, scope) = (last, inner);
            }
            match segments.get(index + 1) {
                Some(next) => self.end(block, Terminator::Jump(*next, Vec::new())),
                None => self.close(block, &scope),
            }
        }
    }

    /// Waits for bytes. Returns the block where they are there.
    fn need(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        let bytes = self.rng.below(12) as u32;
        let base = match self.rng.below(10) {
            0..=4 => None,
            5 => Some(self.number(block, scope)),
            _ => {
                let limit = 1 + self.rng.below(30);
                let limit = self.constant(block, scope, limit);
                Some(self.at_most(block, scope, limit))
            }
        };
        let then = self.block(&[]);
        self.end(block, Terminator::Need { base, bytes, then, state: self.state });
        scope.covered.push((base, bytes));
        then
    }

    /// One operation that this kind of function may use. Returns the block where it goes on.
    fn operation(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        match (self.function.kind, self.rng.below(100)) {
            (FuncKind::Parser, 0..40) => self.parser_operation(block, scope),
            (FuncKind::Parser, 40..50) => return self.push_or_cut(block, scope),
            (FuncKind::Rule | FuncKind::Helper, 0..25) => self.rule_operation(block, scope),
            (FuncKind::Rule | FuncKind::Helper, 25..35) => return self.host(block, scope),
            (FuncKind::Rule | FuncKind::Helper, 35..42) => self.state(block, scope),
            (FuncKind::Builder, 0..40) => self.emit(block, scope),
            (FuncKind::Rule | FuncKind::Helper | FuncKind::Order, 42..50) => self.build(block, scope),
            (FuncKind::Rule | FuncKind::Helper | FuncKind::Order, 50..58) => self.words(block, scope),
            (FuncKind::Rule | FuncKind::Helper | FuncKind::Order, 58..65) => self.message(block, scope),
            (_, 65..70) => self.ask_bytes(block, scope),
            (FuncKind::Rule | FuncKind::Helper | FuncKind::Order, 70..75) => return self.take(block, scope),
            (_, 70..82) => self.string(block, scope),
            _ => self.pure(block, scope),
        }
        block
    }

    fn pure(&mut self, block: BlockId, scope: &mut Scope) {
        let number = if self.rng.chance(50) { Type::Int } else { Type::Uint };
        let (ty, op) = match self.rng.below(12) {
            0..=3 => {
                let (a, b) = (self.number(block, scope), self.number(block, scope));
                (number, Op::Binary(self.rng.pick(&ARITHMETIC), a, b))
            }
            4 | 5 => {
                let (a, b) = (self.number(block, scope), self.number(block, scope));
                (Type::Bool, Op::Binary(self.rng.pick(&COMPARISONS), a, b))
            }
            6 => {
                let (a, b) = (self.some(block, scope, Type::Bool), self.some(block, scope, Type::Bool));
                let op = self.rng.pick(&[Binary::And, Binary::Or, Binary::Eq, Binary::Ne]);
                (Type::Bool, if self.rng.chance(30) { Op::Not(a) } else { Op::Binary(op, a, b) })
            }
            7 => {
                let ty = self.rng.pick(&[Type::Int, Type::Bool, Type::Bytes, Type::Chan]);
                let cond = self.some(block, scope, Type::Bool);
                let (a, b) = (self.some(block, scope, ty), self.some(block, scope, ty));
                (self.ty(a), Op::Select { cond, a, b })
            }
            8 => {
                let value = self.number(block, scope);
                (Type::Uint, Op::HashInt(value))
            }
            9 => {
                let value = self.some(block, scope, Type::Bytes);
                (number, if self.rng.chance(50) { Op::Len(value) } else { Op::HashBytes(value) })
            }
            10 => {
                let (a, b) = (self.some(block, scope, Type::Bytes), self.some(block, scope, Type::Bytes));
                let ops: [fn(Value, Value) -> Op; 5] =
                    [Op::BytesEq, Op::BytesStartsWith, Op::BytesEndsWith, Op::BytesContains, Op::BytesLess];
                (Type::Bool, self.rng.pick(&ops)(a, b))
            }
            _ => {
                let (chan, index) = (self.some(block, scope, Type::Chan), self.number(block, scope));
                (Type::Chan, Op::ChanElem { chan, index })
            }
        };
        let len = match op {
            Op::Select { a, b, .. } => self.len(a).max(self.len(b)),
            _ => 0,
        };
        let value = self.define(block, scope, ty, op);
        self.set_len(value, len);
    }

    fn parser_operation(&mut self, block: BlockId, scope: &mut Scope) {
        match self.rng.below(6) {
            0 | 1 => self.load(block, scope),
            2 | 3 => self.scan(block, scope),
            4 => {
                let Some(end) = scope.some_covered(self.rng) else { return self.load(block, scope) };
                let start = self.at_most(block, scope, end);
                self.define(block, scope, Type::Bytes, Op::MessageBytes { start, end });
            }
            _ => {
                let (ty, slots) = self.rng.pick(&[
                    (Type::Int, (NUMBER_SLOTS.start, NUMBER_SLOTS.end)),
                    (Type::Bool, (BOOL_SLOTS.start, BOOL_SLOTS.end)),
                    (Type::Bytes, (BYTES_SLOTS.start, BYTES_SLOTS.end)),
                ]);
                let value = self.some(block, scope, ty);
                let slot = self.slot(slots.0..slots.1);
                self.push(block, None, Op::FrameSet { slot, value });
            }
        }
    }

    fn load(&mut self, block: BlockId, scope: &mut Scope) {
        let (base, bytes) = self.rng.pick(&scope.covered);
        let widths: Vec<u8> = [1, 2, 4, 8].into_iter().filter(|width| u32::from(*width) <= bytes).collect();
        if widths.is_empty() {
            return;
        }
        let width_bytes = self.rng.pick(&widths);
        let offset = self.rng.below(bytes as usize - usize::from(width_bytes) + 1) as u32;
        let (big_endian, signed) = (self.rng.chance(50), self.rng.chance(50));
        self.define(block, scope, Type::Int, Op::Load { base, offset, width_bytes, big_endian, signed });
    }

    fn rule_operation(&mut self, block: BlockId, scope: &mut Scope) {
        match self.rng.below(6) {
            0 => self.call(block, scope),
            1 => {
                let chan = self.some(block, scope, Type::Chan);
                self.define(block, scope, Type::Int, Op::ChanLen(chan));
            }
            2 if self.sends_left >= self.rounds => {
                self.sends_left -= self.rounds;
                let chan = self.some(block, scope, Type::Chan);
                if self.rng.chance(20) {
                    let message = self.some(block, scope, Type::Message);
                    return self.push(block, None, Op::SendMessage { chan, message });
                }
                if scope.marks.is_empty() || self.rng.chance(40) {
                    return self.push(block, None, Op::SendOriginal { chan });
                }
                let mark = self.rng.pick(&scope.marks);
                let limit = self.constant(block, scope, MESSAGE_BYTES_MIN);
                let from = self.at_most(block, scope, limit);
                let tail_from = self.rng.chance(50).then_some(from);
                let tail_of = if tail_from.is_some() && self.rng.chance(30) {
                    Some(self.some(block, scope, Type::Message))
                } else {
                    None
                };
                self.push(block, None, Op::SendRebuilt { chan, mark, tail_from, tail_of });
            }
            3 => {
                let value = self.some(block, scope, Type::Bytes);
                // A message's bytes are shorter than the message, so their length is a place in it; a constant's
                // need not be.
                let end = self.define(block, scope, Type::Int, Op::Len(value));
                let limit = self.constant(block, scope, MESSAGE_BYTES_MIN);
                let end = self.define(block, scope, Type::Int, Op::Binary(Binary::MinU, end, limit));
                let start = self.at_most(block, scope, end);
                self.push(block, None, Op::EmitMessage { start, end });
            }
            _ => self.emit(block, scope),
        }
    }

    /// Marks or emits.
    fn emit(&mut self, block: BlockId, scope: &mut Scope) {
        match self.rng.below(3) {
            0 => {
                let mark = self.define(block, scope, Type::Int, Op::OutMark);
                scope.marks.push(mark);
            }
            1 => {
                let value = self.number(block, scope);
                let width_bytes = self.rng.pick(&[1, 2, 4, 8]);
                let big_endian = self.rng.chance(50);
                self.push(block, None, Op::EmitInt { value, width_bytes, big_endian });
            }
            _ => {
                let value = self.some(block, scope, Type::Bytes);
                self.push(block, None, Op::EmitBytes { value });
            }
        }
    }

    fn call(&mut self, block: BlockId, scope: &mut Scope) {
        let helpers: Vec<usize> =
            (0..self.earlier.len()).filter(|index| self.earlier[*index].kind == FuncKind::Helper).collect();
        if helpers.is_empty() || self.calls_left == 0 {
            return self.pure(block, scope);
        }
        let index = self.rng.pick(&helpers);
        let sends = sends_of(index) * self.rounds;
        if sends > self.sends_left {
            return self.pure(block, scope);
        }
        self.sends_left -= sends;
        self.calls_left -= 1;
        let callee = &self.earlier[index];
        let wants: Vec<Type> =
            callee.blocks[0].params.iter().map(|value| callee.values[value.0 as usize]).collect();
        let result = callee.results.first().copied();
        let has_frame = scope.values.iter().any(|value| self.ty(*value) == Type::Frame);
        if wants.contains(&Type::Frame) && !has_frame {
            return self.pure(block, scope);
        }
        let frame = scope.values.iter().copied().find(|value| self.ty(*value) == Type::Frame);
        let mut args = Vec::new();
        for ty in wants {
            let arg = match (ty, frame) {
                (Type::Frame, Some(frame)) => frame,
                _ => self.some(block, scope, ty),
            };
            args.push(arg);
        }
        let op = Op::Call { func: flick_abi::FuncId(index as u32), args };
        match result {
            Some(ty) if self.rng.chance(90) => {
                self.define(block, scope, ty, op);
            }
            _ => self.push(block, None, op),
        }
    }
}
