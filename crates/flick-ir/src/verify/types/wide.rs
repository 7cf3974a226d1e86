//! Types of operations that build, send, ask, keep or call the platform.

use flick_abi::HostCall;
use flick_abi::limits::{BUILT_BYTES_MAX, CAPACITY_CHECK_BYTES_MAX, FRAME_SLOTS_MAX, SPILL_WORDS_MAX};

use super::{Checker, Class};
use crate::data::{Inst, Op, Value};
use crate::limits::SPLIT_PARTS_MAX;
use crate::semantics;
use crate::text::host_name;

/// Bytes of a peer's address and port.
const PEER_BYTES: u32 = 18;

impl Checker<'_, '_> {
    /// Checks the operands and gives the class of the result.
    pub(super) fn wide(&mut self, inst: &Inst, op: &Op) -> Option<Class> {
        use Class::{Bytes, Chan, Message, Number, State, Word};
        match op {
            Op::OutMark | Op::ResumeState => Some(Number),
            Op::HasCapacity { bytes } => {
                if *bytes as usize > CAPACITY_CHECK_BYTES_MAX {
                    self.add(format!("no output ever has room for {bytes} bytes"));
                }
                Some(Class::Bool)
            }
            Op::Written { mark, .. } => {
                self.takes(op, &[(*mark, Number)]);
                Some(Bytes)
            }
            Op::WordGet { bytes, index } => {
                self.takes(op, &[(*bytes, Bytes), (*index, Number)]);
                Some(Word)
            }
            Op::WordSet { bytes, index, value } => {
                self.takes(op, &[(*bytes, Bytes), (*index, Number), (*value, Word)]);
                None
            }
            Op::AsMessage(number) => {
                self.takes(op, &[(*number, Number)]);
                Some(Message)
            }
            Op::MessageGet { message, slot } => {
                self.takes(op, &[(*message, Message)]);
                if usize::from(*slot) >= FRAME_SLOTS_MAX {
                    self.add(format!("a frame has no slot {slot}"));
                }
                Some(Class::Stored)
            }
            Op::Answer { index } => {
                self.takes(op, &[(*index, Number)]);
                Some(Number)
            }
            Op::StateLoad { word } => {
                self.state(*word, 1);
                Some(State)
            }
            Op::StateStore { word, value } => {
                self.state(*word, 1);
                self.takes(op, &[(*value, State)]);
                None
            }
            Op::SpillSet { slot, value } => {
                self.spill(*slot);
                self.takes(op, &[(*value, Word)]);
                None
            }
            Op::SpillGet { slot } => {
                self.spill(*slot);
                Some(Word)
            }
            Op::SendOriginal { chan } => {
                self.takes(op, &[(*chan, Chan)]);
                None
            }
            _ => self.text(inst, op),
        }
    }

    /// Checks an operation that reads bytes, and returns the class of its result.
    fn text(&mut self, inst: &Inst, op: &Op) -> Option<Class> {
        use Class::{Bool, Bytes, Number};
        match op {
            Op::Slice { bytes, start, end } => {
                self.takes(op, &[(*bytes, Bytes), (*start, Number), (*end, Number)]);
                Some(Bytes)
            }
            Op::ByteAt { bytes, index } => {
                self.takes(op, &[(*bytes, Bytes), (*index, Number)]);
                Some(Number)
            }
            Op::Find(a, b) => {
                self.takes(op, &[(*a, Bytes), (*b, Bytes)]);
                Some(Number)
            }
            Op::SameText(a, b) | Op::HasToken(a, b) => {
                self.takes(op, &[(*a, Bytes), (*b, Bytes)]);
                Some(Bool)
            }
            Op::Trim(bytes) | Op::PackedBytes { packed: bytes, .. } => {
                self.takes(op, &[(*bytes, Bytes)]);
                Some(Bytes)
            }
            Op::Guard { bytes, class, without } => {
                if let Some(class) = class {
                    self.class(*class);
                }
                if let Some((offset, len)) = without {
                    self.needle(*offset, *len);
                }
                self.takes(op, &[(*bytes, Bytes)]);
                Some(Bool)
            }
            Op::Whole { message } => {
                self.takes(op, &message.iter().map(|message| (*message, Class::Message)).collect::<Vec<_>>());
                Some(Bytes)
            }
            Op::IsMissing(bytes) => {
                self.takes(op, &[(*bytes, Bytes)]);
                Some(Bool)
            }
            Op::IsInt { bytes, base } => {
                self.base(*base);
                self.takes(op, &[(*bytes, Bytes)]);
                Some(Bool)
            }
            Op::ParseInt { bytes, base } => {
                self.base(*base);
                self.takes(op, &[(*bytes, Bytes)]);
                Some(Number)
            }
            _ => self.built(inst, op),
        }
    }

    /// Checks an operation that makes new bytes in the output, within a bound of its own, and returns the class of its
    /// result.
    fn built(&mut self, inst: &Inst, op: &Op) -> Option<Class> {
        use Class::{Bytes, Number};
        let bytes_max = match op {
            Op::Concat { parts, max_bytes } => {
                self.takes(op, &parts.iter().map(|part| (*part, Bytes)).collect::<Vec<_>>());
                *max_bytes
            }
            Op::Pack { items, max_bytes } => {
                self.takes(op, &items.iter().map(|item| (*item, Class::Packed)).collect::<Vec<_>>());
                *max_bytes
            }
            Op::FormatInt { value, base, .. } => {
                self.base(*base);
                self.takes(op, &[(*value, Number)]);
                0
            }
            Op::FormatAddress(bytes) => {
                self.takes(op, &[(*bytes, Bytes)]);
                0
            }
            Op::Split { bytes, separator, max } => {
                self.takes(op, &[(*bytes, Bytes), (*separator, Bytes)]);
                if !(1..=SPLIT_PARTS_MAX).contains(max) {
                    self.add(format!("`split` makes 1 to {SPLIT_PARTS_MAX} parts, not {max}"));
                }
                0
            }
            Op::Case { bytes, max_bytes, .. } => {
                self.takes(op, &[(*bytes, Bytes)]);
                *max_bytes
            }
            Op::WordsNew { words, words_max } => {
                self.takes(op, &[(*words, Number)]);
                words_max.saturating_mul(8)
            }
            Op::Items { message, from, count, count_max } => {
                self.takes(op, &message.iter().map(|message| (*message, Class::Message)).collect::<Vec<_>>());
                self.takes(op, &[(*from, Number), (*count, Number)]);
                count_max.saturating_mul(8)
            }
            Op::Transform { bytes, max_bytes, .. } => {
                self.takes(op, &[(*bytes, Bytes)]);
                *max_bytes
            }
            Op::StateLoadBytes { word, max_bytes } => {
                self.state(*word, semantics::state_words(*max_bytes));
                *max_bytes
            }
            other => return self.effect(inst, other),
        };
        self.bytes_max(bytes_max);
        Some(Bytes)
    }

    /// Checks an operation that sends, asks or writes, and returns the class of its result.
    fn effect(&mut self, inst: &Inst, op: &Op) -> Option<Class> {
        use Class::{Bytes, Chan, Message, Number};
        let some = |value: &Option<Value>, class: Class| value.map(|value| (value, class));
        match op {
            Op::EmitInt { value, width_bytes, .. } => {
                self.width(*width_bytes);
                self.takes(op, &[(*value, Number)]);
            }
            Op::EmitBytes { value } => self.takes(op, &[(*value, Bytes)]),
            Op::EmitMessage { start, end } => self.takes(op, &[(*start, Number), (*end, Number)]),
            Op::EmitMessageOf { message, start, end } => {
                self.takes(op, &[(*message, Message), (*start, Number), (*end, Number)]);
            }
            Op::SendMessage { chan, message } => self.takes(op, &[(*chan, Chan), (*message, Message)]),
            Op::SendRebuilt { chan, mark, tail_from, tail_of }
            | Op::AskRebuilt { chan, mark, tail_from, tail_of, .. } => {
                self.takes(op, &[(*chan, Chan), (*mark, Number)]);
                let tail = [some(tail_from, Number), some(tail_of, Message)];
                self.takes(op, &tail.into_iter().flatten().collect::<Vec<_>>());
                if let Op::AskRebuilt { timeout_ns, .. } = op {
                    self.takes(op, &[(*timeout_ns, Number)]);
                }
            }
            Op::AskOriginal { chan, timeout_ns } => self.takes(op, &[(*chan, Chan), (*timeout_ns, Number)]),
            Op::AskMessage { chan, message, timeout_ns } => {
                self.takes(op, &[(*chan, Chan), (*message, Message), (*timeout_ns, Number)]);
            }
            Op::Fail { reason } => self.takes(op, &[(*reason, Number)]),
            Op::StateStoreBytes { word, max_bytes, value } => {
                self.state(*word, semantics::state_words(*max_bytes));
                self.takes(op, &[(*value, Bytes)]);
            }
            Op::Host { call, args, max_bytes } => return self.host(inst, op, *call, args, *max_bytes),
            other => self.add(format!("{other:?} has no rule")),
        }
        None
    }

    /// A call of the platform: see `flick_abi::HostCall`.
    fn host(
        &mut self,
        inst: &Inst,
        op: &Op,
        call: HostCall,
        args: &[Value],
        max_bytes: u32,
    ) -> Option<Class> {
        use Class::{Bool, Bytes, Chan, Number};
        let (takes, gives): (&[Class], Option<Class>) = match call {
            HostCall::Now
            | HostCall::Random
            | HostCall::CounterGet(_)
            | HostCall::DictLen(_)
            | HostCall::DictBytes(_)
            | HostCall::DictEvictions(_)
            | HostCall::OpenClients => (&[], Some(Number)),
            HostCall::Log => (&[Bytes], None),
            HostCall::CounterAdd(_) | HostCall::GaugeSet(_) => (&[Number], None),
            HostCall::Alive => (&[Chan], Some(Bool)),
            HostCall::Load => (&[Chan], Some(Number)),
            HostCall::Peer => (&[Chan], Some(Bytes)),
            HostCall::Pick(_) => (&[Chan, Bytes], Some(Number)),
            HostCall::DictGet(_) => (&[Bytes], Some(Bytes)),
            HostCall::DictHas(_) | HostCall::DictRemove(_) | HostCall::DictCommitRemoved(_) => {
                (&[Bytes], Some(Bool))
            }
            HostCall::DictPut(_) => (&[Bytes, Bytes], None),
            HostCall::DictBegin(_) => (&[Bytes, Number], Some(Bytes)),
            HostCall::DictCommit(_) => (&[Bytes, Bytes], Some(Bool)),
        };
        let name = host_name(call);
        if takes.len() == args.len() {
            self.takes(op, &args.iter().copied().zip(takes.iter().copied()).collect::<Vec<_>>());
        } else {
            self.add(format!("`host {name}` takes {} values, but gets {}", takes.len(), args.len()));
        }
        self.host_bound(call, &name, max_bytes, gives == Some(Bytes));
        // What a call answers may be dropped, because the call itself may have been the point.
        gives.filter(|_| inst.result.is_some())
    }

    fn host_bound(&mut self, call: HostCall, name: &str, max_bytes: u32, gives_bytes: bool) {
        let program = &self.module.program;
        let least = match call {
            HostCall::Peer => Some(PEER_BYTES),
            HostCall::DictGet(dict) | HostCall::DictBegin(dict) => {
                program.dicts.get(dict as usize).map(|dict| dict.value_bytes_max)
            }
            _ => None,
        };
        let is_known = match call {
            HostCall::CounterAdd(counter) | HostCall::CounterGet(counter) => {
                (counter as usize) < program.counters.len()
            }
            HostCall::GaugeSet(gauge) => {
                program.counters.get(gauge as usize).is_some_and(|counter| counter.is_gauge)
            }
            call => crate::text::host_number(call).is_none_or(|dict| (dict as usize) < program.dicts.len()),
        };
        if !is_known {
            self.add(format!("`host {name}` is about what the program has not"));
        }
        if !gives_bytes && max_bytes > 0 {
            self.add(format!("`host {name}` gives no bytes"));
        }
        if least.is_some_and(|least| max_bytes < least) {
            self.add(format!("`host {name}` gives more than {max_bytes} bytes"));
        }
        self.bytes_max(max_bytes);
    }

    fn base(&mut self, base: u8) {
        if !matches!(base, 10 | 16) {
            self.add(format!("no number is written in base {base}"));
        }
    }

    fn spill(&mut self, slot: u16) {
        if usize::from(slot) >= SPILL_WORDS_MAX {
            self.add(format!("nothing is kept in word {slot}"));
        }
    }

    fn state(&mut self, word: u32, words: u32) {
        let end = u64::from(word) + u64::from(words);
        if end > u64::from(self.module.program.state_words) {
            self.add(format!("the state has no words from {word} to {end}"));
        }
    }

    fn bytes_max(&mut self, bytes: u32) {
        if bytes as usize > BUILT_BYTES_MAX {
            self.add(format!("no output has room for {bytes} bytes"));
        }
    }
}
