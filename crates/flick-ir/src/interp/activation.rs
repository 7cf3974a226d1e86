//! One activation: registers, the walk over blocks, and each operation that only reads.
//! Promises: see `interp`. Operations without state are in `semantics`.

use flick_abi::frame::SLOT_STATE;
use flick_abi::{BytesRef, Frame, FuncId, HostCall, ParseStep, Region, RuleCall};

use super::FunctionLoops;
use crate::data::{Advance, Block, BlockId, Function, Inst, Module, Op, Terminator, Type, Value};
use crate::weights::Amounts;
use crate::{semantics, weights};

/// Answers what was asked, where a suspension does not give way.
pub(super) type Through<'a, 'c> = Option<&'a mut dyn FnMut(&mut RuleCall<'c>)>;

/// Called for each block that is entered: the function, the block left (for the first one, itself) and the block
/// entered.
pub type Visitor<'a> = &'a mut dyn FnMut(FuncId, BlockId, BlockId);

/// Everything a function may read and change while it runs.
pub(super) struct Activation<'a, 'c> {
    pub(super) module: &'a Module,
    pub(super) loops: &'a [FunctionLoops],
    /// The frame, which only parsers change.
    pub(super) frame: Frame,
    pub(super) call: &'a mut RuleCall<'c>,
    pub(super) through: Through<'a, 'c>,
    pub(super) visitor: Option<Visitor<'a>>,
    pub(super) steps: u64,
}

/// Result of running a function.
pub(super) enum Ending {
    /// A parser's, with its step.
    Step(ParseStep),
    /// A suspended rule's, with the state to resume in.
    Suspended(u32),
    /// Any other function's, with its result if it has one.
    Returned(Option<u64>),
}

/// Rounds of a loop so far.
#[derive(Clone, Copy, Debug, Default)]
struct Trips {
    since_entered: u32,
    all: u32,
}

/// The words of one running function, by value.
pub(super) struct Registers(Vec<u64>);

impl Registers {
    pub(super) fn get(&self, value: Value) -> u64 {
        self.0[value.0 as usize]
    }

    fn set(&mut self, value: Value, word: u64) {
        self.0[value.0 as usize] = word;
    }

    fn opt(&self, value: Option<Value>) -> u64 {
        value.map_or(0, |value| self.get(value))
    }
}

impl Activation<'_, '_> {
    /// Runs a function to its end. Terminates because loops have bounds and calls go to earlier functions.
    pub(super) fn run(&mut self, index: usize, args: &[u64]) -> Ending {
        let function = &self.module.functions[index];
        let mut registers = Registers(vec![0; function.values.len()]);
        let mut trips = vec![Trips::default(); self.loops[index].latches.len()];
        let mut at = BlockId(0);
        let mut block = &function.blocks[0];
        enter(&mut registers, block, args);
        self.visit(index, at, at);
        loop {
            for inst in &block.insts {
                let built = self.call.out_len;
                let word = self.execute(function, &registers, inst);
                // What a callee builds, it is charged for itself.
                let built = if matches!(inst.op, Op::Call { .. }) { 0 } else { self.call.out_len - built };
                self.charge(&registers, &inst.op, built as u64, word);
                if let (Some(result), Some(word)) = (inst.result, word) {
                    registers.set(result, word);
                    if let Some(max) = function.lengths.get(&result) {
                        assert!(
                            len_of(word) <= u64::from(*max),
                            "a value of `{}` is too long",
                            function.name
                        );
                    }
                }
            }
            self.steps += weights::end_steps(&block.end);
            let (next, args) = match self.leave(&registers, &block.end) {
                Next::Block(next, args) => (next, args),
                Next::End(ending) => return ending,
            };
            block = &function.blocks[next.0 as usize];
            if let Some(trips_max) = block.trips_max {
                let count = &mut trips[next.0 as usize];
                let goes_round = self.loops[index].latches[next.0 as usize].contains(&at);
                count.since_entered = if goes_round { count.since_entered + 1 } else { 0 };
                count.all += u32::from(goes_round);
                let all_max = block.advance.map_or(u32::MAX, Advance::rounds_max);
                assert!(
                    count.since_entered <= trips_max && count.all <= all_max,
                    "a loop of `{}` goes round more often than its bound",
                    function.name
                );
            }
            self.visit(index, at, next);
            at = next;
            enter(&mut registers, block, &args);
        }
    }

    /// Counts the steps of an operation that has given `word`.
    fn charge(&mut self, registers: &Registers, op: &Op, built: u64, word: Option<u64>) {
        let len = |value: Value| len_of(registers.get(value));
        let (have, to) = (self.call.message.len() as u64, word.unwrap_or(0));
        let from = |from: &Value| registers.get(*from).min(have);
        let (passed, lines) = match op {
            Op::ScanRun { from: start, .. } | Op::Seek { from: start, .. } => {
                (to.saturating_sub(from(start)), 0)
            }
            Op::Lines { from: start, .. } => ((to & 0xffff_ffff).saturating_sub(from(start)), to >> 32),
            Op::CutListed { start, end, lines_max, .. } => {
                (registers.get(*end) - registers.get(*start), u64::from(*lines_max))
            }
            _ => (0, 0),
        };
        let elements = match op {
            Op::Host { call: HostCall::Pick(_), args, .. } => {
                let channel = semantics::chan_index(registers.get(args[0])) as usize;
                self.call.channel_lens.get(channel).copied().unwrap_or(0)
            }
            _ => 0,
        };
        let amounts = Amounts { bytes: &len, built, passed, lines, elements };
        self.steps += weights::op_cost(op, &amounts).total();
    }

    fn visit(&mut self, index: usize, from: BlockId, to: BlockId) {
        if let Some(visitor) = &mut self.visitor {
            visitor(FuncId(index as u32), from, to);
        }
    }

    fn leave(&mut self, registers: &Registers, end: &Terminator) -> Next {
        let words = |values: &[Value]| values.iter().map(|value| registers.get(*value)).collect();
        match end {
            Terminator::Jump(next, args) => Next::Block(*next, words(args)),
            Terminator::Branch { cond, then, otherwise } => {
                let (next, args) = if registers.get(*cond) != 0 { then } else { otherwise };
                Next::Block(*next, words(args))
            }
            Terminator::Switch { value, cases, default } => {
                let word = registers.get(*value) as i64;
                let case = cases.iter().find(|(case, _)| *case == word);
                Next::Block(case.map_or(*default, |(_, next)| *next), Vec::new())
            }
            Terminator::Need { base, bytes, then, state } => {
                let need = semantics::need_bytes(registers.opt(*base), *bytes);
                if self.call.message.len() as u64 >= need {
                    return Next::Block(*then, Vec::new());
                }
                self.frame.slots[SLOT_STATE] = u64::from(*state);
                Next::End(Ending::Step(ParseStep::NeedMore(need)))
            }
            Terminator::Done => Next::End(Ending::Step(ParseStep::Done)),
            Terminator::Fault { field, cause } => {
                Next::End(Ending::Step(ParseStep::Fault { field: *field, cause: *cause }))
            }
            Terminator::Suspend { then, state } => match &mut self.through {
                None => Next::End(Ending::Suspended(*state)),
                Some(answer) => {
                    answer(self.call);
                    Next::Block(*then, Vec::new())
                }
            },
            Terminator::Return(values) => {
                Next::End(Ending::Returned(values.first().map(|value| registers.get(*value))))
            }
        }
    }

    /// Executes one instruction and gives the word it defines.
    fn execute(&mut self, function: &Function, registers: &Registers, inst: &Inst) -> Option<u64> {
        let get = |value: Value| registers.get(value);
        let ty = inst.result.map_or(Type::Int, |value| function.values[value.0 as usize]);
        Some(match &inst.op {
            Op::Const(word) => *word as u64,
            Op::ConstBytes { offset, len } => BytesRef::new(Region::Const, u64::from(*offset), *len).0,
            Op::Binary(op, a, b) => semantics::binary(*op, get(*a), get(*b)),
            Op::Not(a) => semantics::not(get(*a)),
            Op::Select { cond, a, b } => get(if get(*cond) != 0 { *a } else { *b }),
            Op::HashInt(a) => semantics::hash_int(get(*a)),
            Op::FrameGet { slot } => semantics::as_type(self.frame.slots[usize::from(*slot)], ty),
            Op::FrameSet { slot, value } => {
                self.frame.slots[usize::from(*slot)] = get(*value);
                return None;
            }
            Op::Load { base, offset, width_bytes, big_endian, signed } => {
                let at = registers.opt(*base).checked_add(u64::from(*offset));
                at.and_then(|at| semantics::load(self.call.message, at, *width_bytes, *big_endian, *signed))
                    .expect("a `Need` covers every load")
            }
            Op::MessageBytes { start, end } => {
                let (start, end) = (get(*start), get(*end));
                assert!(start <= end, "a bytes value ends before it starts");
                assert!(end <= self.call.message.len() as u64, "a `Need` covers every bytes value");
                let len = u32::try_from(end - start).expect("a message's head is bounded");
                BytesRef::new(Region::Message, start, len).0
            }
            Op::ChanLen(chan) => self.call.channel_lens[semantics::chan_index(get(*chan)) as usize],
            Op::ChanElem { chan, index } => semantics::chan_elem(get(*chan), get(*index)),
            Op::Call { func, args } => {
                let args: Vec<u64> = args.iter().map(|arg| get(*arg)).collect();
                match self.run(func.0 as usize, &args) {
                    Ending::Returned(word) => return word,
                    _ => panic!("`{}` calls what is no helper", function.name),
                }
            }
            Op::AsMessage(number) => get(*number),
            Op::IsMissing(value) => u64::from(BytesRef(get(*value)) == BytesRef::MISSING),
            Op::MessageGet { message, slot } => {
                let number = self.message_number(get(*message));
                semantics::message_get(self.frame_of(number).slots[usize::from(*slot)], number, ty)
            }
            Op::WordGet { bytes, index } => {
                let word = semantics::word_get(self.bytes(get(*bytes)), get(*index) as i64);
                if ty == Type::Chan {
                    let is_known =
                        (semantics::chan_index(word) as usize) < self.module.program.channels.len();
                    assert!(is_known, "a list of channels holds channels");
                }
                semantics::as_type(word, ty)
            }
            Op::Answer { index } => semantics::answer(self.call.answers, get(*index) as i64) as u64,
            Op::ResumeState => u64::from(self.call.resume),
            Op::SpillGet { slot } => self.call.spills[usize::from(*slot)],
            Op::StateLoad { word } => semantics::as_type(self.call.state[*word as usize], ty),
            Op::ScanRun { .. } | Op::Seek { .. } | Op::Lines { .. } | Op::ItemPush(_) => {
                return self.scan(registers, &inst.op);
            }
            Op::Cut { .. } | Op::CutListed { .. } | Op::Insert { .. } => {
                return self.scan(registers, &inst.op);
            }
            Op::Whole { message } => self.whole(message.map_or(0, get)),
            other => match self.text(registers, other) {
                Some(word) => word,
                None => return self.effect(function, registers, other),
            },
        })
    }

    /// Operations on bytes that only read.
    fn text(&self, registers: &Registers, op: &Op) -> Option<u64> {
        let get = |value: Value| registers.get(value);
        let bytes = |value: Value| self.bytes(registers.get(value));
        Some(match op {
            Op::BytesOffset(a) => u64::from(BytesRef(get(*a)).offset()),
            Op::Len(a) => u64::from(BytesRef(get(*a)).len()),
            Op::HashBytes(a) => semantics::hash_bytes(bytes(*a)),
            Op::BytesEq(a, b) => u64::from(bytes(*a) == bytes(*b)),
            Op::BytesStartsWith(a, b) => u64::from(bytes(*a).starts_with(bytes(*b))),
            Op::BytesEndsWith(a, b) => u64::from(bytes(*a).ends_with(bytes(*b))),
            Op::BytesContains(a, b) => u64::from(semantics::contains(bytes(*a), bytes(*b))),
            Op::BytesLess(a, b) => u64::from(bytes(*a) < bytes(*b)),
            Op::HasToken(a, _) if BytesRef(get(*a)) == BytesRef::MISSING => 0,
            Op::HasToken(a, b) => u64::from(semantics::has_token(bytes(*a), bytes(*b))),
            Op::Guard { bytes: a, class, without } => {
                let class = class.map(|class| &self.module.classes[class as usize]);
                let without = without.map(|(offset, len)| self.constants(offset, len));
                u64::from(semantics::guard(bytes(*a), class, without))
            }
            Op::SameText(a, b) => u64::from(semantics::same_text(bytes(*a), bytes(*b))),
            Op::IsInt { bytes: a, base } => u64::from(semantics::parse_int(bytes(*a), *base).is_some()),
            Op::ParseInt { bytes: a, base } => semantics::parse_int(bytes(*a), *base).unwrap_or(0) as u64,
            Op::Slice { bytes: a, start, end } => {
                semantics::slice(BytesRef(get(*a)), get(*start) as i64, get(*end) as i64).0
            }
            Op::ByteAt { bytes: a, index } => semantics::byte_at(bytes(*a), get(*index) as i64) as u64,
            Op::Find(a, b) => semantics::find(bytes(*a), bytes(*b)) as u64,
            Op::Trim(a) => semantics::trim(BytesRef(get(*a)), bytes(*a)).0,
            Op::PackedBytes { packed, index } => {
                semantics::packed_bytes(BytesRef(get(*packed)), bytes(*packed), *index).0
            }
            _ => return None,
        })
    }

    /// The bytes that a word stands for.
    pub(super) fn bytes(&self, word: u64) -> &[u8] {
        let call = &*self.call;
        let message = |number: usize| match number {
            0 => Some(call.message),
            _ => call.others.get(number - 1).map(|message| message.bytes),
        };
        let bytes = BytesRef(word).resolve(message, &self.module.consts, &call.out[..call.out_len]);
        bytes.expect("a bytes value lies inside its region")
    }

    /// Constant bytes.
    pub(super) fn constants(&self, offset: u32, len: u32) -> &[u8] {
        &self.module.consts[offset as usize..(offset + len) as usize]
    }

    /// The frame of a message of this activation.
    pub(super) fn frame_of(&self, number: u8) -> &Frame {
        match number {
            0 => &self.frame,
            _ => self.call.others[usize::from(number) - 1].frame,
        }
    }

    /// Returns the available bytes of a message of this activation.
    pub(super) fn message_bytes(&self, number: u8) -> &[u8] {
        match number {
            0 => self.call.message,
            _ => self.call.others[usize::from(number) - 1].bytes,
        }
    }

    /// The number of a message of this activation.
    pub(super) fn message_number(&self, word: u64) -> u8 {
        let number = semantics::message_number(word);
        let number = number.filter(|number| usize::from(*number) <= self.call.others.len());
        number.expect("a message is one of this activation")
    }
}

/// Bytes of a `Bytes` value.
fn len_of(word: u64) -> u64 {
    let bytes = BytesRef(word);
    if bytes == BytesRef::MISSING { 0 } else { u64::from(bytes.len()) }
}

/// Target of a terminator: a block with its arguments, or the end of the function.
enum Next {
    Block(BlockId, Vec<u64>),
    End(Ending),
}

fn enter(registers: &mut Registers, block: &Block, args: &[u64]) {
    assert!(block.params.len() == args.len(), "a block gets as many values as it has parameters");
    for (param, word) in block.params.iter().zip(args) {
        registers.set(*param, *word);
    }
}
