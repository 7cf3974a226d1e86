//! Lines that are passed over: the reference that vectorised code is compared with, and the judge of what that finds odd.

use super::in_class;
use crate::data::{LineForm, Module};
use crate::limits::LINE_NAMES;

/// A [`LineForm`] with its classes and its end.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What it was.
    pub form: LineForm,
    /// Class of a name's bytes.
    pub name: [u64; 4],
    /// Class of which there are not two bytes behind the separator.
    pub blanks: [u64; 4],
    /// Class of a value's bytes.
    pub value: [u64; 4],
    /// What ends a line.
    pub end: Vec<u8>,
}

impl Lines {
    /// Of a module that has them.
    pub fn new(module: &Module, form: &LineForm) -> Self {
        let class = |class: u32| module.classes[class as usize];
        let end = form.end.0 as usize..(form.end.0 + form.end.1) as usize;
        Self {
            form: form.clone(),
            name: class(form.name),
            blanks: class(form.blanks),
            value: class(form.value),
            end: module.consts[end].to_vec(),
        }
    }

    /// What of a message lines may lie in.
    pub fn within<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        &data[..data.len().min(self.form.upto as usize)]
    }

    /// The place behind the line that starts at `start`, if it is one that does not matter.
    pub fn next(&self, data: &[u8], start: usize) -> Option<usize> {
        let rest = data.get(start..)?;
        let name_len = rest.iter().take_while(|byte| in_class(&self.name, **byte)).count();
        let (name, rest) = rest.split_at(name_len);
        let (separator, rest) = rest.split_first()?;
        let is_name = name_len <= self.form.name_max as usize && *separator == self.form.separator;
        let blanks = |bytes: &[u8]| bytes.iter().all(|byte| in_class(&self.blanks, *byte));
        if !is_name || self.may_matter(name.len(), *name.first()?) || rest.get(..2).is_some_and(blanks) {
            return None;
        }
        let value_len = rest.iter().take_while(|byte| in_class(&self.value, **byte)).count();
        let len = name_len + 1 + value_len + self.end.len();
        let is_line = rest[value_len..].starts_with(&self.end) && len <= self.form.max as usize;
        is_line.then_some(start + len)
    }

    /// Whether a line may matter whose name has that many bytes and begins so.
    pub fn may_matter(&self, len: usize, first: u8) -> bool {
        (self.form.names[len.min(LINE_NAMES - 1)] >> (first & 31)) & 1 == 1
    }

    /// What [`crate::data::Op::Lines`] comes to.
    pub fn pass(&self, data: &[u8], from: u64, left: i64) -> u64 {
        let (mut place, mut count) = (from.min(data.len() as u64) as usize, 0);
        let data = self.within(data);
        while count < left
            && let Some(next) = self.next(data, place)
        {
            (place, count) = (next, count + 1);
        }
        place as u64 + ((count as u64) << 32)
    }
}
