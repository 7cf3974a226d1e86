//! Types of operations that look for where something ends, and that fill a frame's lists.

use super::{Checker, Class};
use flick_abi::limits::BYTES_OFFSET_MAX;

use crate::data::{LineDoes, Op};
use crate::limits::{LINE_END_BYTES_MAX, NEEDLE_BYTES_MAX};

impl Checker<'_, '_> {
    /// Checks the operands and gives the class of the result.
    pub(super) fn scan(&mut self, op: &Op) -> Option<Class> {
        use Class::{Bool, Bytes, Number};
        match op {
            Op::ScanRun { from, class, .. } => {
                self.class(*class);
                self.takes(op, &[(*from, Number)]);
                Some(Number)
            }
            Op::Seek { from, offset, len, .. } => {
                self.needle(*offset, *len);
                self.takes(op, &[(*from, Number)]);
                Some(Number)
            }
            Op::Lines { from, left, form } => {
                [form.name, form.blanks, form.value].into_iter().for_each(|class| self.class(class));
                let (offset, len) = form.end;
                if !(1..=LINE_END_BYTES_MAX).contains(&len) {
                    self.add(format!("a line ends with 1 to {LINE_END_BYTES_MAX} bytes, not {len}"));
                }
                self.constants(offset, len);
                if u64::from(form.upto) > BYTES_OFFSET_MAX {
                    self.add(format!("values lie before byte {BYTES_OFFSET_MAX}, not {}", form.upto));
                }
                for key in &form.keys {
                    let (offset, len) = key.name;
                    if len == 0 {
                        self.add("a name of lines has bytes".to_owned());
                    }
                    self.constants(offset, len);
                    if let LineDoes::Keep { slot, .. } = key.does {
                        self.slot(slot);
                    }
                }
                self.takes(op, &[(*from, Number), (*left, Number)]);
                Some(Number)
            }
            Op::ItemPush(value) => {
                self.takes(op, &[(*value, Bytes)]);
                None
            }
            Op::Cut { start, end } => {
                self.takes(op, &[(*start, Number), (*end, Number)]);
                Some(Bool)
            }
            Op::Insert { at, text } => {
                self.takes(op, &[(*at, Number), (*text, Bytes)]);
                Some(Bool)
            }
            Op::CutListed { names, start, end, .. } => {
                self.takes(op, &[(*names, Bytes), (*start, Number), (*end, Number)]);
                Some(Bool)
            }
            other => {
                self.add(format!("{other:?} has no rule"));
                None
            }
        }
    }

    /// A class of the module.
    pub(super) fn class(&mut self, class: u32) {
        if class as usize >= self.module.classes.len() {
            self.add(format!("the program has no class {class}"));
        }
    }

    /// Constant bytes to be looked for.
    pub(super) fn needle(&mut self, offset: u32, len: u32) {
        if !(1..=NEEDLE_BYTES_MAX).contains(&len) {
            self.add(format!("a needle has 1 to {NEEDLE_BYTES_MAX} bytes, not {len}"));
        }
        self.constants(offset, len);
    }

    /// A range of the constants.
    pub(super) fn constants(&mut self, offset: u32, len: u32) {
        let end = u64::from(offset) + u64::from(len);
        if end > self.module.consts.len() as u64 {
            self.add(format!("the program has no constants from {offset} to {end}"));
        }
    }
}
