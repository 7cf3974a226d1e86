//! Values of the fields that the access log has of a request, of all requests in flight that will be logged.
//! Promises: no allocation after `new`; of a value the first `ACCESS_FIELD_BYTES_MAX` bytes are kept.
//! Not here: which fields these are; parsers find them (`Protocol::log_fields`).

use flick_abi::{BytesRef, Frame};

use super::entry::Prefix;
use crate::limits::{ACCESS_ENTRIES_MAX, ACCESS_FIELD_BYTES_MAX};

/// The beginning of a value; `None`: the request has no such field.
type Value = Option<Prefix<ACCESS_FIELD_BYTES_MAX>>;

/// A row of values for each entry, and one for the request that may be chosen next.
#[derive(Debug)]
pub(super) struct FieldValues {
    slots: Vec<u16>,
    rows: Vec<Value>,
}

impl FieldValues {
    /// Memory of the values of one field.
    pub(super) const BYTES_PER_FIELD: u64 = (size_of::<Value>() * (ACCESS_ENTRIES_MAX + 1)) as u64;
    /// Row of the request that may be chosen next.
    pub(super) const NEXT: usize = ACCESS_ENTRIES_MAX;

    /// Rows for the fields with these slots.
    pub(super) fn new(slots: Vec<u16>) -> Self {
        let rows = vec![None; slots.len() * (ACCESS_ENTRIES_MAX + 1)];
        Self { slots, rows }
    }

    /// Whether there are no fields.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Keeps the values of a request: its frame, and its bytes. `None`: it could not be parsed, and has none.
    pub(super) fn set(&mut self, row: usize, request: Option<(&Frame, &[u8])>) {
        let width = self.slots.len();
        for (slot, value) in self.slots.iter().zip(&mut self.rows[row * width..][..width]) {
            let found = request.and_then(|(frame, bytes)| {
                BytesRef(frame.slots[usize::from(*slot)]).resolve(|_| Some(bytes), &[], &[])
            });
            *value = found.map(|found| {
                let mut kept = Prefix::NOTHING;
                kept.set(found);
                kept
            });
        }
    }

    /// Gives an entry the values of the request that was chosen.
    pub(super) fn take_next(&mut self, row: usize) {
        let width = self.slots.len();
        self.rows.copy_within(Self::NEXT * width..(Self::NEXT + 1) * width, row * width);
    }

    /// The values of an entry.
    pub(super) fn of(&self, row: usize) -> impl Iterator<Item = Option<&[u8]>> {
        let width = self.slots.len();
        self.rows[row * width..][..width].iter().map(|value| value.as_ref().map(Prefix::get))
    }
}
