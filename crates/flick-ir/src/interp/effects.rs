//! Operations of one activation that leave something behind: output, sends, asks, state, calls of the platform.

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{Ask, BytesRef, Region, Send, SendBody};

use super::activation::{Activation, Registers};
use crate::data::{Function, Op, Type, Value};
use crate::semantics::{self, NoTransform, PackItem};

impl Activation<'_, '_> {
    /// Executes one operation and gives the word it defines.
    pub(super) fn effect(&mut self, function: &Function, registers: &Registers, op: &Op) -> Option<u64> {
        let get = |value: Value| registers.get(value);
        match op {
            Op::OutMark => return Some(self.call.out_len as u64),
            Op::HasCapacity { bytes } => {
                let limit = self.call.out.len().min(OUT_BYTES_MAX);
                return Some(u64::from(
                    self.call.out_len as u64 + semantics::with_reserve(*bytes) <= limit as u64,
                ));
            }
            Op::Written { mark, max_bytes } => {
                let mark = get(*mark);
                let len = (self.call.out_len as u64).checked_sub(mark).expect("a mark lies in the output");
                assert!(len <= u64::from(*max_bytes), "what was written is longer than its bound");
                return Some(BytesRef::new(Region::Out, mark, len as u32).0);
            }
            Op::SendOriginal { chan } => self.send(get(*chan), SendBody::Original),
            Op::SendMessage { chan, message } => {
                let body = semantics::message_body(self.message_number(get(*message)));
                self.send(get(*chan), body);
            }
            Op::SendRebuilt { chan, mark, tail_from, tail_of } => {
                let body = self.rebuilt(get(*mark), tail_from.map(get), tail_of.map(get));
                self.send(get(*chan), body);
            }
            Op::AskOriginal { chan, timeout_ns } => {
                self.ask(get(*chan), SendBody::Original, get(*timeout_ns))
            }
            Op::AskMessage { chan, message, timeout_ns } => {
                let body = semantics::message_body(self.message_number(get(*message)));
                self.ask(get(*chan), body, get(*timeout_ns));
            }
            Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns } => {
                let body = self.rebuilt(get(*mark), tail_from.map(get), tail_of.map(get));
                self.ask(get(*chan), body, get(*timeout_ns));
            }
            Op::Fail { reason } => self.call.failure = Some(get(*reason) as u32),
            Op::SpillSet { slot, value } => self.call.spills[usize::from(*slot)] = get(*value),
            Op::StateStore { word, value } => self.call.state[*word as usize] = get(*value),
            Op::StateStoreBytes { word, max_bytes, value } => {
                let bytes = self.bytes(get(*value)).to_vec();
                assert!(bytes.len() <= *max_bytes as usize, "what a local keeps is longer than its bound");
                semantics::state_store_bytes(self.call.state, *word, &bytes)
                    .expect("a local lies in the state");
            }
            Op::WordSet { bytes, index, value } => {
                let list = BytesRef(get(*bytes));
                assert!(list.region() == Region::Out as u64, "only a list of the output is written");
                assert!(
                    list.offset() as usize + list.len() as usize <= self.call.out_len,
                    "a list lies in the output"
                );
                let (start, end) = (list.offset() as usize, (list.offset() + list.len()) as usize);
                semantics::word_set(&mut self.call.out[start..end], get(*index) as i64, get(*value))
                    .expect("a written word lies inside its list");
            }
            Op::Host { call, args, max_bytes } => return self.host(registers, *call, args, *max_bytes),
            Op::EmitInt { .. } | Op::EmitBytes { .. } | Op::EmitMessage { .. } | Op::EmitMessageOf { .. } => {
                self.emit(registers, op);
            }
            build => return Some(self.build(function, registers, build)),
        }
        None
    }

    fn send(&mut self, chan: u64, body: SendBody) {
        let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
        self.call.sends.push(Send { channel, element, body });
    }

    fn ask(&mut self, chan: u64, body: SendBody, timeout_ns: u64) {
        let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
        let send = Send { channel, element, body };
        self.call.asks.push(Ask { send, timeout_ns: timeout_ns as i64 });
    }

    fn rebuilt(&mut self, mark: u64, tail_from: Option<u64>, tail_of: Option<u64>) -> SendBody {
        let len = (self.call.out_len as u64).checked_sub(mark).expect("a mark lies inside the output");
        let tail_from = tail_from.map_or(u32::MAX, |from| {
            let from = u32::try_from(from).ok().filter(|from| *from != u32::MAX);
            from.expect("a tail starts inside the message")
        });
        let tail_of = tail_of.map_or(0, |message| self.message_number(message));
        SendBody::Rebuilt { offset: mark as u32, len: len as u32, tail_from, tail_of }
    }

    /// Appends bytes to the output.
    fn append(&mut self, bytes: &[u8]) {
        let limit = self.call.out.len().min(OUT_BYTES_MAX);
        assert!(bytes.len() <= limit - self.call.out_len, "a rule builds more than its bound");
        let end = self.call.out_len + bytes.len();
        self.call.out[self.call.out_len..end].copy_from_slice(bytes);
        self.call.out_len = end;
    }

    fn emit(&mut self, registers: &Registers, op: &Op) {
        let get = |value: Value| registers.get(value);
        let bytes = match op {
            Op::EmitInt { value, width_bytes, big_endian } => {
                let bytes = semantics::int_bytes(get(*value), *width_bytes, *big_endian);
                bytes[..usize::from(*width_bytes)].to_vec()
            }
            Op::EmitBytes { value } => self.bytes(get(*value)).to_vec(),
            Op::EmitMessage { start, end } => self.message_part(0, get(*start), get(*end)),
            Op::EmitMessageOf { message, start, end } => {
                let number = self.message_number(get(*message));
                self.message_part(number, get(*start), get(*end))
            }
            other => panic!("{other:?} emits nothing"),
        };
        self.append(&bytes);
    }

    /// A copy of a message in the output, as it is forwarded.
    pub(super) fn whole_as_forwarded(&mut self, number: u8, total: u64) -> u64 {
        let (start, kept) = (self.call.out_len as u64, self.message_part(number, 0, total));
        self.append(&kept);
        BytesRef::new(Region::Out, start, kept.len() as u32).0
    }

    /// Part of a message, as it is forwarded.
    fn message_part(&self, number: u8, start: u64, end: u64) -> Vec<u8> {
        let message = self.message_bytes(number);
        assert!(start <= end && end <= message.len() as u64, "a copied part lies inside the head");
        let pieces = self.frame_of(number).forwarded(start, end);
        pieces.flat_map(|piece| piece.bytes(message)).copied().collect()
    }

    /// Makes new bytes in the output and gives their reference.
    fn build(&mut self, function: &Function, registers: &Registers, op: &Op) -> u64 {
        let get = |value: Value| registers.get(value);
        let start = self.call.out_len as u64;
        let (built, max_bytes) = match op {
            Op::Concat { parts, max_bytes } => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| self.bytes(get(*part))).collect();
                (parts.concat(), *max_bytes as usize)
            }
            Op::FormatInt { value, signed, base } => {
                let (digits, len) = semantics::format_int(get(*value), *signed, *base);
                (digits[..len].to_vec(), semantics::DIGITS_MAX)
            }
            Op::FormatAddress(bytes) => {
                let (text, len) = semantics::format_address(self.bytes(get(*bytes)));
                (text[..len].to_vec(), semantics::ADDRESS_TEXT_MAX)
            }
            Op::Split { bytes, separator, max } => {
                let mut words = vec![0; 8 * *max as usize];
                let (value, separator) = (BytesRef(get(*bytes)), self.bytes(get(*separator)));
                let len = semantics::split(value, self.bytes(value.0), separator, *max, &mut words);
                words.truncate(len.expect("there is room for every part"));
                (words, 8 * *max as usize)
            }
            Op::Case { bytes, upper, max_bytes } => {
                let bytes = self.bytes(get(*bytes));
                let mut text = vec![0; bytes.len()];
                semantics::case(bytes, *upper, &mut text).expect("there is room for every letter");
                (text, *max_bytes as usize)
            }
            Op::WordsNew { words, words_max } => {
                let count = usize::try_from(get(*words)).ok().filter(|count| *count <= *words_max as usize);
                (vec![0; 8 * count.expect("a list is within its bound")], 8 * *words_max as usize)
            }
            Op::Pack { items, max_bytes } => {
                let mut packed = vec![0; *max_bytes as usize];
                let item = |value: &Value| match function.values[value.0 as usize] {
                    Type::Bytes => PackItem::Bytes(self.bytes(get(*value))),
                    _ => PackItem::Word(get(*value)),
                };
                let len = semantics::pack(items.iter().map(item), &mut packed);
                packed.truncate(len.expect("packed values are within their bound"));
                (packed, *max_bytes as usize)
            }
            Op::Items { message, from, count, count_max } => {
                let number = message.map_or(0, |message| self.message_number(get(message)));
                let frame = self.frame_of(number);
                let words = semantics::items(frame, number, get(*from), get(*count), *count_max);
                (words.flat_map(u64::to_le_bytes).collect(), 8 * *count_max as usize)
            }
            Op::Transform { kind, bytes, max_bytes } => {
                let mut text = vec![0; *max_bytes as usize];
                match semantics::transform(*kind, self.bytes(get(*bytes)), &mut text) {
                    Ok(len) => text.truncate(len),
                    Err(NoTransform::Malformed) => return BytesRef::MISSING.0,
                    Err(NoTransform::TooLong) => panic!("what is built is longer than its bound"),
                }
                (text, *max_bytes as usize)
            }
            Op::StateLoadBytes { word, max_bytes } => {
                let mut bytes = vec![0; *max_bytes as usize];
                let len = semantics::state_load_bytes(self.call.state, *word, *max_bytes, &mut bytes);
                bytes.truncate(len.expect("a local lies in the state"));
                (bytes, *max_bytes as usize)
            }
            other => panic!("{other:?} has no meaning here"),
        };
        assert!(built.len() <= max_bytes, "what is built is longer than its bound");
        self.append(&built);
        BytesRef::new(Region::Out, start, built.len() as u32).0
    }
}
