//! Lines that are passed over: the reference that vectorised code is compared with, and the judge of what that finds
//! odd.

use flick_abi::limits::ITEMS_MAX;
use flick_abi::{BytesRef, Frame, Region};

use super::{in_class, trim};
use crate::data::{LineDoes, LineForm, Module};

/// A [`LineForm`] with its classes, its names and its end.
#[derive(Clone, Debug)]
pub struct LineScanner {
    /// Form that the scanner was made from.
    pub form: LineForm,
    /// Class of a name's bytes.
    pub name: [u64; 4],
    /// Class of which there are not two bytes behind the separator.
    pub blanks: [u64; 4],
    /// Class of a value's bytes.
    pub value: [u64; 4],
    /// The bytes that end a line.
    pub end: Vec<u8>,
    /// Names for which something happens, and what.
    pub keys: Vec<(Vec<u8>, LineDoes)>,
}

/// The positions of the parts of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its first byte, the name's.
    pub start: usize,
    /// Its separator.
    pub separator: usize,
    /// Behind its value.
    pub end: usize,
    /// Behind all of it.
    pub next: usize,
}

impl Line {
    /// All of it.
    pub fn all(&self) -> BytesRef {
        BytesRef::new(Region::Message, self.start as u64, (self.next - self.start) as u32)
    }
}

impl LineScanner {
    /// Of a module that has them.
    pub fn new(module: &Module, form: &LineForm) -> Self {
        let class = |class: u32| module.classes[class as usize];
        let bytes = |(start, len): (u32, u32)| module.consts[start as usize..(start + len) as usize].to_vec();
        Self {
            form: form.clone(),
            name: class(form.name),
            blanks: class(form.blanks),
            value: class(form.value),
            end: bytes(form.end),
            keys: form.keys.iter().map(|key| (bytes(key.name), key.does)).collect(),
        }
    }

    /// Returns the part of a message in which lines may lie.
    pub fn within<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        &data[..data.len().min(self.form.upto as usize)]
    }

    /// The line that starts at `start`, if it is one.
    pub fn line(&self, data: &[u8], start: usize) -> Option<Line> {
        let rest = data.get(start..)?;
        let name_len = rest.iter().take_while(|byte| in_class(&self.name, **byte)).count();
        let (name, rest) = rest.split_at(name_len);
        let (separator, rest) = rest.split_first()?;
        let is_name = (1..=self.form.name_max as usize).contains(&name.len());
        let has_blanks =
            rest.get(..2).is_some_and(|bytes| bytes.iter().all(|byte| in_class(&self.blanks, *byte)));
        if !is_name || *separator != self.form.separator || has_blanks {
            return None;
        }
        let value_len = rest.iter().take_while(|byte| in_class(&self.value, **byte)).count();
        let len = name_len + 1 + value_len + self.end.len();
        let is_line = rest[value_len..].starts_with(&self.end) && len <= self.form.max as usize;
        let separator = start + name_len;
        is_line.then_some(Line { start, separator, end: separator + 1 + value_len, next: start + len })
    }

    /// Returns the action for a name.
    pub fn does(&self, name: &[u8]) -> Option<LineDoes> {
        let is_name = |key: &[u8]| {
            if self.form.nocase { key.eq_ignore_ascii_case(name) } else { key == name }
        };
        self.keys.iter().find(|(key, _)| is_name(key)).map(|(_, does)| *does)
    }

    /// Does what a line's name asks for. Returns whether that is all there is to do.
    pub fn act(&self, does: LineDoes, frame: &mut Frame, data: &[u8], line: Line) -> bool {
        let (slot, once, cut) = match does {
            LineDoes::Stop => return false,
            LineDoes::Cut => return frame.cut(line.start as u64, line.next as u64),
            LineDoes::Keep { slot, once, cut } => (usize::from(slot), once, cut),
        };
        let is_first = frame.slots[slot] == BytesRef::MISSING.0;
        let has_capacity = is_first || !once;
        if !has_capacity || cut && !frame.cut(line.start as u64, line.next as u64) {
            return false;
        }
        if is_first {
            frame.slots[slot] = self.value_of(data, line).0;
        }
        true
    }

    /// A line's value as it is kept.
    fn value_of(&self, data: &[u8], line: Line) -> BytesRef {
        let first = line.separator + 1;
        let start = first + usize::from(first < line.end && in_class(&self.blanks, data[first]));
        let value = BytesRef::new(Region::Message, start as u64, (line.end - start) as u32);
        if self.form.trim { trim(value, &data[start..line.end]) } else { value }
    }

    /// Executes [`crate::data::Op::Lines`] and returns its result.
    pub fn pass(&self, frame: &mut Frame, data: &[u8], from: u64, left: i64) -> u64 {
        let (mut position, mut count) = (from.min(data.len() as u64) as usize, 0);
        let data = self.within(data);
        while count < left
            && let Some(line) = self.line(data, position)
        {
            let does = self.does(&data[line.start..line.separator]);
            let has_capacity = !self.form.push || frame.items().len() < ITEMS_MAX;
            if !has_capacity || does.is_some_and(|does| !self.act(does, frame, data, line)) {
                break;
            }
            if self.form.push {
                frame.push_item(line.all().0);
            }
            (position, count) = (line.next, count + 1);
        }
        position as u64 + ((count as u64) << 32)
    }
}
