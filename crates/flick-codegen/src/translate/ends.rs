//! Translates the terminators of blocks.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, Endianness, InstBuilder, Value as ClifValue, types};
use cranelift_frontend::Switch;
use flick_abi::ParseStep;
use flick_abi::frame::SLOT_STATE;
use flick_ir::data::{Binary, BlockId, FuncKind, Op, Terminator, Value};
use flick_ir::semantics::NEED_BYTES_MAX;

use super::arithmetic::NATIVE;
use super::function::{Translator, own_memory, slot_offset};

/// Most jumps that one condition becomes.
const BRANCHES_MAX: usize = 8;
/// Bytes of half a word.
const HALF_BYTES: i32 = 4;
/// Minimum number of cases for which a range check in front pays off.
const SEARCHED_CASES: usize = 8;

impl Translator<'_, '_> {
    pub(super) fn end(&mut self, block: BlockId, end: &Terminator) {
        match end {
            Terminator::Jump(target, args) => {
                let args = self.args(args);
                let target = self.target(*target);
                self.builder.ins().jump(target, &args);
            }
            Terminator::Branch { cond, then, otherwise } => {
                let (then_args, otherwise_args) = (self.args(&then.1), self.args(&otherwise.1));
                let (then, otherwise) = (self.target(then.0), self.target(otherwise.0));
                self.branch(*cond, (then, &then_args), (otherwise, &otherwise_args), BRANCHES_MAX);
            }
            Terminator::Switch { value, cases, default } => {
                let (value, default) = (self.get(*value), self.target(*default));
                let is_state = |case: i64| i32::try_from(case).is_ok_and(|case| case > 0);
                if block.0 == 0 && self.message.is_some() && cases.iter().all(|(case, _)| is_state(*case)) {
                    return self.resume(value, cases, default);
                }
                if let Some((members, target)) = members(cases) {
                    return self.branch_if_member(value, members, target, default);
                }
                self.pass_what_is_outside(value, cases, default);
                let mut switch = Switch::new();
                for (case, target) in cases {
                    switch.set_entry(u128::from(*case as u64), self.target(*target));
                }
                switch.emit(&mut self.builder, value, default);
            }
            Terminator::Need { base, bytes, then, state } => self.need(*base, *bytes, *then, *state),
            Terminator::Done => self.step(ParseStep::Done),
            Terminator::Fault { field, cause } => {
                self.step(ParseStep::Fault { field: *field, cause: *cause })
            }
            Terminator::Suspend { state, .. } => {
                let state = self.iconst(i64::from(*state));
                self.builder.ins().return_(&[state]);
            }
            Terminator::Return(_) if self.function.kind == FuncKind::Rule => {
                let finished = self.iconst(0);
                self.builder.ins().return_(&[finished]);
            }
            Terminator::Return(values) => {
                let values: Vec<_> = values.iter().map(|value| self.get(*value)).collect();
                self.builder.ins().return_(&values);
            }
        }
    }

    /// Goes one of two ways. Where the condition is of several parts, each decides for itself, up to `most` of them: a
    /// comparison and its jump are one step of the machine, and what joins comparisons must have each in a register.
    fn branch(
        &mut self,
        cond: Value,
        then: (Block, &[BlockArg]),
        otherwise: (Block, &[BlockArg]),
        most: usize,
    ) {
        let both = match self.definition(cond) {
            Some(Op::Binary(op @ (Binary::And | Binary::Or), a, b)) if most > 1 => Some((*op, *a, *b)),
            _ => None,
        };
        let Some((op, a, b)) = both else {
            let cond = self.get(cond);
            self.builder.ins().brif(cond, then.0, then.1, otherwise.0, otherwise.1);
            return;
        };
        let next = self.builder.create_block();
        match op {
            Binary::And => self.branch(a, (next, &[]), otherwise, most / 2),
            _ => self.branch(a, then, (next, &[]), most / 2),
        }
        self.builder.switch_to_block(next);
        self.branch(b, then, otherwise, most / 2);
    }

    /// A parser's entry decides on its state, which is 0 in the first call for a message and mostly the only one:
    /// that way goes straight on. The search through the cases is kept cold.
    fn resume(&mut self, state: ClifValue, cases: &[(i64, BlockId)], default: Block) {
        let mut next = self.cold_block();
        let is_first = self.builder.ins().icmp_imm_s(IntCC::Equal, state, 0);
        self.builder.ins().brif(is_first, default, &[], next, &[]);
        self.builder.switch_to_block(next);
        // In halves: see `need_more`.
        let bits = self.builder.ins().iconst(types::I32, i64::from(i32::BITS));
        let high = self.builder.ins().ushr(state, bits);
        let state = self.builder.ins().ireduce(types::I32, state);
        next = self.cold_block();
        self.builder.ins().brif(high, default, &[], next, &[]);
        for (case, target) in cases {
            self.builder.switch_to_block(next);
            // A block of its own for the edge, or Cranelift puts one among the common blocks.
            let found = self.cold_block();
            next = self.cold_block();
            let is_case = self.builder.ins().icmp_imm_s(IntCC::Equal, state, *case);
            self.builder.ins().brif(is_case, found, &[], next, &[]);
            self.builder.switch_to_block(found);
            let target = self.target(*target);
            self.builder.ins().jump(target, &[]);
        }
        self.builder.switch_to_block(next);
        self.builder.ins().jump(default, &[]);
    }

    /// Whether a small number is in a set: a table of 64 bits instead of a search or a jump table.
    fn branch_if_member(&mut self, value: ClifValue, members: u64, target: BlockId, default: Block) {
        let target = self.target(target);
        let is_small = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, value, 64);
        let small = self.builder.create_block();
        self.builder.ins().brif(is_small, small, &[], default, &[]);
        self.builder.switch_to_block(small);
        let table = self.iconst(members as i64);
        let shifted = self.builder.ins().ushr(table, value);
        let bit = self.builder.ins().band_imm_u(shifted, 1);
        self.builder.ins().brif(bit, target, &[], default, &[]);
    }

    /// Before a search through many cases: what is below or above all of them goes on at once.
    fn pass_what_is_outside(&mut self, value: ClifValue, cases: &[(i64, BlockId)], default: Block) {
        let numbers = || cases.iter().map(|(case, _)| *case);
        let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else { return };
        let Some(count) = last.checked_sub(first).filter(|_| cases.len() >= SEARCHED_CASES) else { return };
        let position = self.builder.ins().iadd_imm_s(value, first.wrapping_neg());
        let is_among = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, position, count);
        let among = self.builder.create_block();
        self.builder.ins().brif(is_among, among, &[], default, &[]);
        self.builder.switch_to_block(among);
    }

    fn cold_block(&mut self) -> Block {
        let block = self.builder.create_block();
        self.builder.set_cold_block(block);
        block
    }

    fn target(&self, block: BlockId) -> Block {
        self.blocks[block.0 as usize]
    }

    fn args(&self, values: &[Value]) -> Vec<BlockArg> {
        values.iter().map(|value| BlockArg::Value(self.get(*value))).collect()
    }

    fn step(&mut self, step: ParseStep) {
        let word = self.iconst(step.to_word() as i64);
        self.builder.ins().return_(&[word]);
    }

    /// Two comparisons instead of one of `base + bytes`, which could wrap: the memory safety of the loads behind
    /// rests on this check, so it does not rest on lowering's word that a base is never negative.
    fn need(&mut self, base: Option<Value>, bytes: u32, then: BlockId, state: u32) {
        let (_, len) = self.message.expect("only parsers wait for bytes");
        let then = self.target(then);
        let more = self.cold_block();
        let mut rest = len;
        if let Some(base) = base {
            let is_inside = self.is_inside(base);
            let base = self.get(base);
            if is_inside && bytes > 0 {
                rest = self.builder.ins().isub(len, base);
                let is_there =
                    self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, rest, i64::from(bytes));
                self.builder.ins().brif(is_there, then, &[], more, &[]);
                return self.need_more(more, Some(base), bytes, state);
            }
            let enough = self.builder.create_block();
            let is_within = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, base, len);
            if bytes == 0 {
                self.builder.ins().brif(is_within, then, &[], more, &[]);
                self.need_more(more, Some(base), bytes, state);
                return;
            }
            self.builder.ins().brif(is_within, enough, &[], more, &[]);
            self.builder.switch_to_block(enough);
            rest = self.builder.ins().isub(len, base);
        }
        let is_there =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, rest, i64::from(bytes));
        self.builder.ins().brif(is_there, then, &[], more, &[]);
        let base = base.map(|base| self.get(base));
        self.need_more(more, base, bytes, state);
    }

    /// Stores the state and returns how much is needed, as `semantics::need_bytes` computes it.
    fn need_more(&mut self, block: Block, base: Option<ClifValue>, bytes: u32, state: u32) {
        self.builder.switch_to_block(block);
        // In halves: Cranelift rematerialises a constant at each use, but not one that it has met in a cold block
        // before. That constant would occupy a register on the hot path, where small numbers are common.
        let [low, high] = if NATIVE == Endianness::Big { [0, state] } else { [state, 0] };
        for (half, at) in [(low, 0), (high, HALF_BYTES)] {
            let half = self.builder.ins().iconst(types::I32, i64::from(half));
            let slot = slot_offset(SLOT_STATE as u16);
            self.builder.ins().store(own_memory(), half, self.frame, slot + at);
        }
        let Some(base) = base else {
            self.step(ParseStep::NeedMore(u64::from(bytes)));
            return;
        };
        let sum = self.builder.ins().iadd_imm_u(base, i64::from(bytes));
        let has_wrapped = self.builder.ins().icmp(IntCC::UnsignedLessThan, sum, base);
        let limit = self.iconst(NEED_BYTES_MAX as i64);
        let need = self.builder.ins().umin(sum, limit);
        let need = self.builder.ins().select(has_wrapped, limit, need);
        let payload = self.builder.ins().ishl_imm_u(need, 2);
        let word = self.builder.ins().bor_imm_u(payload, 1);
        self.builder.ins().return_(&[word]);
    }
}

/// Cases as a set of numbers below 64 that all lead to one block; `None` where they are not, or too few to gain.
fn members(cases: &[(i64, BlockId)]) -> Option<(u64, BlockId)> {
    let (_, target) = cases.first()?;
    let mut members = 0_u64;
    for (case, to) in cases {
        let bit = u32::try_from(*case).ok().filter(|bit| *bit < u64::BITS && to == target)?;
        members |= 1 << bit;
    }
    (cases.len() > 2).then_some((members, *target))
}
