//! Operations of one activation that look for the end of something, fill a frame's lists, or take all of a message.

use flick_abi::BytesRef;

use super::activation::{Activation, Registers};
use crate::data::{Op, Value};
use crate::semantics;

impl Activation<'_, '_> {
    /// Executes one operation that only parsers use, and gives the word it defines.
    pub(super) fn scan(&mut self, registers: &Registers, op: &Op) -> Option<u64> {
        let get = |value: Value| registers.get(value);
        Some(match op {
            Op::ScanRun { from, class, max } => {
                let class = &self.module.classes[*class as usize];
                semantics::scan_run(self.call.message, get(*from), class, *max)
            }
            Op::Seek { from, offset, len, max } => {
                let needle = self.constants(*offset, *len);
                semantics::seek(self.call.message, get(*from), needle, *max)
            }
            Op::Lines { from, left, form } => {
                let lines = semantics::LineScanner::new(self.module, form);
                lines.pass(&mut self.frame, self.call.message, get(*from), get(*left) as i64)
            }
            Op::ItemPush(value) => {
                self.frame.push_item(get(*value));
                return None;
            }
            Op::Cut { start, end } => u64::from(self.frame.cut(get(*start), get(*end))),
            Op::Insert { at, text } => {
                let text = self.bytes(get(*text)).to_vec();
                u64::from(self.frame.insert(get(*at), &text))
            }
            Op::CutListed { names, start, end, lines_max } => {
                let names = self.bytes(get(*names)).to_vec();
                let (start, end) = (get(*start), get(*end));
                assert!(start <= end, "a range of lines ends before it starts");
                let message = self.call.message;
                u64::from(semantics::cut_listed(&mut self.frame, message, &names, (start, end), *lines_max))
            }
            other => panic!("{other:?} is no search"),
        })
    }

    /// All of a message as it is forwarded.
    pub(super) fn whole(&mut self, message: u64) -> u64 {
        let number = self.message_number(message);
        let have = self.message_bytes(number).len();
        let whole = semantics::whole(self.frame_of(number), number, have);
        if whole == BytesRef::MISSING || !self.frame_of(number).is_edited() {
            return whole.0;
        }
        self.whole_as_forwarded(number, u64::from(whole.len()))
    }
}
