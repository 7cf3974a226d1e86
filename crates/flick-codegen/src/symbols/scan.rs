//! Looking for where something ends: the tables that vectorised code works with, and what generated code calls for the
//! few bytes that its own steps of sixteen leave over.
//! Promises: the places of `flick_ir::semantics`, whatever the bytes; nothing is read outside the message.
//! Source: Langdale, Lemire, "Parsing Gigabytes of JSON per Second" §3.1.2 (two tables of nibbles classify sixteen
//! bytes).

use flick_ir::semantics;

use crate::raw::{Data, RawCall};

/// Bytes that vectorised code looks at in one step.
pub(crate) const STEP_BYTES: usize = 16;

/// A class of bytes, by nibbles: a byte is of it if the bit of its high nibble is set in the row of its low one.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub(crate) struct ClassTable {
    /// Rows of bytes below 128, by low nibble.
    pub(crate) low_rows: [u8; 16],
    /// Rows of bytes from 128 on.
    pub(crate) high_rows: [u8; 16],
    /// The bit of each high nibble.
    pub(crate) bits: [u8; 16],
    set: [u64; 4],
}

impl ClassTable {
    pub(crate) fn new(set: [u64; 4]) -> Self {
        let (mut low_rows, mut high_rows) = ([0; 16], [0; 16]);
        for byte in (0..=255_u8).filter(|byte| semantics::in_class(&set, *byte)) {
            let rows = if byte < 128 { &mut low_rows } else { &mut high_rows };
            rows[usize::from(byte & 15)] |= 1 << ((byte >> 4) & 7);
        }
        let bits = std::array::from_fn(|nibble| 1 << (nibble & 7));
        Self { low_rows, high_rows, bits, set }
    }

    /// All bytes of the class.
    pub(crate) fn members(&self) -> Vec<u8> {
        (0..=255).filter(|byte| semantics::in_class(&self.set, *byte)).collect()
    }

    /// Whether no byte from 128 on is of the class.
    pub(crate) fn is_ascii(&self) -> bool {
        self.high_rows == [0; 16]
    }
}

pub(super) extern "C-unwind" fn scan_run(
    data: Data,
    len: u64,
    from: u64,
    class: &ClassTable,
    max: u64,
) -> u64 {
    semantics::scan_run(data.bytes(len), from, &class.set, max as u32)
}

/// `needle`: the first of `needle_len` constant bytes.
pub(super) extern "C-unwind" fn seek(
    data: Data,
    len: u64,
    from: u64,
    needle: Data,
    needle_len: u64,
    max: u64,
) -> u64 {
    let (data, needle) = (data.bytes(len), needle.bytes(needle_len));
    let start = from.min(len);
    let last = start + (max as u32 as u64);
    let end = last.saturating_add(needle_len).min(len);
    let found = memchr::memmem::find(&data[start as usize..end as usize], needle);
    found
        .map_or_else(|| (len + 1).saturating_sub(needle_len).max(start).min(last + 1), |at| start + at as u64)
}

pub(super) extern "C-unwind" fn guard(
    call: &RawCall<'_>,
    value: u64,
    class: Option<&ClassTable>,
    needle: Data,
    needle_len: u64,
) -> u64 {
    let without = (needle_len > 0).then(|| needle.bytes(needle_len));
    u64::from(semantics::guard(call.bytes(value), class.map(|class| &class.set), without))
}
