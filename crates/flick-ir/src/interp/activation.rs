//! One activation: registers, the walk over blocks, and each operation on its state.
//! Promises: see `interp`. Operations without state are in `semantics`.

use flick_abi::frame::SLOT_STATE;
use flick_abi::limits::{FRAME_SLOTS_MAX, OUT_BYTES_MAX};
use flick_abi::{BytesRef, Region, Send, SendBody, SendList, Step};

use crate::data::{Block, BlockId, Function, Inst, Module, Op, Terminator, Type, Value};
use crate::{semantics, weights};

/// Everything a function may read and change while it runs.
pub(super) struct Activation<'a> {
    pub(super) module: &'a Module,
    pub(super) slots: [u64; FRAME_SLOTS_MAX],
    pub(super) message: &'a [u8],
    pub(super) out: &'a mut [u8],
    pub(super) out_len: usize,
    pub(super) sends: &'a mut SendList,
    pub(super) channel_lens: &'a [u64],
    pub(super) steps: u64,
}

/// How a function ended.
pub(super) enum Outcome {
    /// A parser's way.
    Step(Step),
    /// Everybody else's, with the result if there is one.
    Returned(Option<u64>),
}

/// The words of one function under way, by value.
struct Registers(Vec<u64>);

impl Registers {
    fn get(&self, value: Value) -> u64 {
        self.0[value.0 as usize]
    }

    fn set(&mut self, value: Value, word: u64) {
        self.0[value.0 as usize] = word;
    }

    fn opt(&self, value: Option<Value>) -> u64 {
        value.map_or(0, |value| self.get(value))
    }
}

impl Activation<'_> {
    /// Runs a function to its end. Terminates because blocks form no cycle and calls go to earlier functions.
    pub(super) fn call(&mut self, function: &Function, args: &[u64]) -> Outcome {
        let mut registers = Registers(vec![0; function.values.len()]);
        let mut block = &function.blocks[0];
        enter(&mut registers, block, args);
        loop {
            for inst in &block.insts {
                self.steps += weights::op_steps(&inst.op);
                let word = self.execute(function, &mut registers, inst);
                if let (Some(result), Some(word)) = (inst.result, word) {
                    registers.set(result, word);
                }
            }
            self.steps += weights::end_steps(&block.end);
            let (next, args) = match self.leave(&registers, &block.end) {
                Next::Block(next, args) => (next, args),
                Next::End(outcome) => return outcome,
            };
            block = &function.blocks[next.0 as usize];
            enter(&mut registers, block, &args);
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
                if self.message.len() as u64 >= need {
                    return Next::Block(*then, Vec::new());
                }
                self.slots[SLOT_STATE] = u64::from(*state);
                Next::End(Outcome::Step(Step::NeedMore(need)))
            }
            Terminator::Suspend { .. } => panic!("a suspension is not interpreted"),
            Terminator::Done => Next::End(Outcome::Step(Step::Done)),
            Terminator::Fault { field, cause } => {
                Next::End(Outcome::Step(Step::Fault { field: *field, cause: *cause }))
            }
            Terminator::Return(values) => {
                Next::End(Outcome::Returned(values.first().map(|value| registers.get(*value))))
            }
        }
    }

    /// Executes one instruction and gives the word it defines.
    fn execute(&mut self, function: &Function, registers: &mut Registers, inst: &Inst) -> Option<u64> {
        let get = |value: Value| registers.get(value);
        Some(match &inst.op {
            Op::Const(word) => *word as u64,
            Op::ConstBytes { offset, len } => BytesRef::new(Region::Const, u64::from(*offset), *len).0,
            Op::Binary(op, a, b) => semantics::binary(*op, get(*a), get(*b)),
            Op::Not(a) => semantics::not(get(*a)),
            Op::Select { cond, a, b } => get(if get(*cond) != 0 { *a } else { *b }),
            Op::Len(a) => u64::from(BytesRef(get(*a)).len()),
            Op::HashInt(a) => semantics::hash_int(get(*a)),
            Op::HashBytes(a) => semantics::hash_bytes(self.bytes(get(*a))),
            Op::BytesEq(a, b) => u64::from(self.bytes(get(*a)) == self.bytes(get(*b))),
            Op::BytesStartsWith(a, b) => u64::from(self.bytes(get(*a)).starts_with(self.bytes(get(*b)))),
            Op::BytesEndsWith(a, b) => u64::from(self.bytes(get(*a)).ends_with(self.bytes(get(*b)))),
            Op::BytesContains(a, b) => {
                u64::from(semantics::contains(self.bytes(get(*a)), self.bytes(get(*b))))
            }
            Op::BytesLess(a, b) => u64::from(self.bytes(get(*a)) < self.bytes(get(*b))),
            Op::FrameGet { slot } => {
                let word = self.slots[usize::from(*slot)];
                let is_bool = inst.result.is_some_and(|v| function.values[v.0 as usize] == Type::Bool);
                if is_bool { u64::from(word != 0) } else { word }
            }
            Op::FrameSet { slot, value } => {
                self.slots[usize::from(*slot)] = get(*value);
                return None;
            }
            Op::Load { base, offset, width_bytes, big_endian, signed } => {
                let at = registers.opt(*base).checked_add(u64::from(*offset));
                at.and_then(|at| semantics::load(self.message, at, *width_bytes, *big_endian, *signed))
                    .expect("a `Need` covers every load")
            }
            Op::MessageBytes { start, end } => {
                let (start, end) = (get(*start), get(*end));
                assert!(start <= end, "a bytes value ends before it starts");
                assert!(end <= self.message.len() as u64, "a `Need` covers every bytes value");
                let len = u32::try_from(end - start).expect("a message's head is bounded");
                BytesRef::new(Region::Message, start, len).0
            }
            Op::ChanLen(chan) => self.channel_lens[semantics::chan_index(get(*chan)) as usize],
            Op::ChanElem { chan, index } => semantics::chan_elem(get(*chan), get(*index)),
            Op::Call { func, args } => {
                let callee = &self.module.functions[func.0 as usize];
                let args: Vec<u64> = args.iter().map(|arg| get(*arg)).collect();
                match self.call(callee, &args) {
                    Outcome::Returned(word) => return word,
                    Outcome::Step(_) => panic!("`{}` is called but ends in a parser's step", callee.name),
                }
            }
            Op::OutMark => self.out_len as u64,
            Op::EmitInt { .. } | Op::EmitBytes { .. } | Op::EmitMessage { .. } => {
                self.emit(registers, &inst.op);
                return None;
            }
            Op::SendOriginal { chan } => {
                self.send(get(*chan), SendBody::Original);
                return None;
            }
            Op::SendRebuilt { chan, mark, tail_from, .. } => {
                self.send_rebuilt(get(*chan), get(*mark), tail_from.map(get));
                return None;
            }
            other => panic!("{other:?} is not interpreted"),
        })
    }

    fn bytes(&self, word: u64) -> &[u8] {
        let bytes =
            BytesRef(word).resolve(|_| Some(self.message), &self.module.consts, &self.out[..self.out_len]);
        bytes.expect("a bytes value lies inside its region")
    }

    fn emit(&mut self, registers: &Registers, op: &Op) {
        let limit = self.out.len().min(OUT_BYTES_MAX);
        let start = self.out_len;
        let reserve = |len: usize| {
            assert!(len <= limit - start, "a rule builds more than its bound");
            start..start + len
        };
        let range = match op {
            Op::EmitInt { value, width_bytes, big_endian } => {
                let bytes = semantics::int_bytes(registers.get(*value), *width_bytes, *big_endian);
                let range = reserve(usize::from(*width_bytes));
                self.out[range.clone()].copy_from_slice(&bytes[..usize::from(*width_bytes)]);
                range
            }
            Op::EmitBytes { value } => {
                let value = BytesRef(registers.get(*value));
                let range = reserve(value.len() as usize);
                let (used, free) = self.out.split_at_mut(start);
                let bytes = value.resolve(|_| Some(self.message), &self.module.consts, used);
                let bytes = bytes.expect("a bytes value lies inside its region");
                free[..bytes.len()].copy_from_slice(bytes);
                range
            }
            Op::EmitMessage { start: from, end } => {
                let (from, end) = (registers.get(*from), registers.get(*end));
                let bytes =
                    message_part(self.message, from, end).expect("a copied part lies inside the head");
                let range = reserve(bytes.len());
                self.out[range.clone()].copy_from_slice(bytes);
                range
            }
            other => panic!("{other:?} emits nothing"),
        };
        self.out_len = range.end;
    }

    fn send(&mut self, chan: u64, body: SendBody) {
        let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
        self.sends.push(Send { channel, element, body });
    }

    fn send_rebuilt(&mut self, chan: u64, mark: u64, tail_from: Option<u64>) {
        let len = (self.out_len as u64).checked_sub(mark).expect("a mark lies inside the output");
        let tail_from = tail_from.map_or(u32::MAX, |from| {
            u32::try_from(from)
                .ok()
                .filter(|from| *from != u32::MAX)
                .expect("a tail starts inside the message")
        });
        self.send(chan, SendBody::Rebuilt { offset: mark as u32, len: len as u32, tail_from, tail_of: 0 });
    }
}

/// Where control goes.
enum Next {
    Block(BlockId, Vec<u64>),
    End(Outcome),
}

fn enter(registers: &mut Registers, block: &Block, args: &[u64]) {
    assert!(block.params.len() == args.len(), "a block gets as many values as it has parameters");
    for (param, word) in block.params.iter().zip(args) {
        registers.set(*param, *word);
    }
}

/// `message[start..end]`; `None` when it is not inside.
fn message_part(message: &[u8], start: u64, end: u64) -> Option<&[u8]> {
    message.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}
