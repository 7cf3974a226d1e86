//! Passing over lines that do not matter, 64 bytes in a step: for each step two words say which bytes are of no name and
//! of no value, and lines are found by the lowest bits of those.
//! Promises: the places of `flick_ir::semantics::Lines`, which is asked wherever a line does not lie in one step as most
//! do; nothing is read outside the message.
//! Source: Langdale, Lemire, "Parsing Gigabytes of JSON per Second" §3.1 (bitmaps of structural bytes).

use flick_ir::data::{LineForm, Module, Op};
use flick_ir::limits::LINE_NAMES;
use flick_ir::semantics::Lines;

use super::scan::ClassTable;
use crate::raw::Data;

/// Lines of one form, as the runtime passes over them.
#[derive(Clone, Debug)]
pub(crate) struct LineTable {
    /// The classes' rows and bits; see `ClassTable`.
    name_rows: [u8; 16],
    value_rows: [u8; 16],
    bits: [u8; 16],
    /// All ones if bytes from 128 on are of a value's class.
    high_values: u32,
    /// As in the form.
    names: [u32; LINE_NAMES],
    separator: u8,
    /// No byte above is a blank.
    blank_most: u8,
    /// What ends a line, and which bits of two bytes that is.
    end: [u16; 2],
    end_len: usize,
    /// As in the form.
    upto: usize,
    /// The machine can, and the form is such that 64 bytes may be looked at in one step.
    has_steps: bool,
    lines: Lines,
}

impl LineTable {
    fn new(module: &Module, form: &LineForm, hurries: bool) -> Self {
        let lines = Lines::new(module, form);
        let (name, value) = (ClassTable::new(lines.name), ClassTable::new(lines.value));
        let blanks = ClassTable::new(lines.blanks).members();
        let has_all_high = lines.value[2..] == [u64::MAX; 2];
        let is_simple = name.is_ascii() && (has_all_high || value.is_ascii());
        let is_wide = form.max as usize >= STEP_BYTES && form.name_max as usize >= STEP_BYTES;
        let end = match lines.end[..] {
            [a, b] => [u16::from_le_bytes([a, b]), u16::MAX],
            _ => [u16::from(lines.end[0]), 0xff],
        };
        Self {
            name_rows: name.low_rows,
            value_rows: value.low_rows,
            bits: name.bits,
            high_values: if has_all_high { u32::MAX } else { 0 },
            names: form.names,
            separator: form.separator,
            blank_most: blanks.last().copied().unwrap_or(0),
            end,
            end_len: lines.end.len(),
            upto: form.upto as usize,
            has_steps: hurries && is_simple && is_wide && can_step(),
            lines,
        }
    }
}

/// Bytes of one step.
const STEP_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
fn can_step() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2")
}

#[cfg(not(target_arch = "x86_64"))]
fn can_step() -> bool {
    false
}

/// The lines that a module's parsers pass over. `hurries`: as fast as the machine can.
pub(crate) fn tables(module: &Module, hurries: bool) -> Box<[(LineForm, LineTable)]> {
    let mut tables: Vec<(LineForm, LineTable)> = Vec::new();
    let blocks = module.functions.iter().flat_map(|function| &function.blocks);
    for inst in blocks.flat_map(|block| &block.insts) {
        if let Op::Lines { form, .. } = &inst.op
            && !tables.iter().any(|(known, _)| *known == **form)
        {
            tables.push(((**form).clone(), LineTable::new(module, form, hurries)));
        }
    }
    tables.into_boxed_slice()
}

pub(super) extern "C" fn lines(data: Data, len: u64, from: u64, left: u64, table: &LineTable) -> u64 {
    let data = data.bytes(len);
    #[cfg(target_arch = "x86_64")]
    if table.has_steps && data.len() >= STEP_BYTES && from < len {
        // SAFETY: `has_steps` says that the machine has what the function asks for.
        return unsafe { steps::pass(table, data, from as usize, left as i64) };
    }
    table.lines.pass(data, from, left as i64)
}

#[cfg(target_arch = "x86_64")]
mod steps {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
        _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_setzero_si256,
        _mm256_shuffle_epi8, _mm256_srli_epi16,
    };

    use super::{LINE_NAMES, LineTable, STEP_BYTES};

    /// Bytes of one register.
    const HALF_BYTES: usize = 32;

    /// What a line is that starts in a step.
    enum Line {
        /// One that does not matter; the next one starts there in the step.
        Passed(usize),
        /// Its value goes on behind the step.
        Long,
        /// None that is passed over.
        Other,
        /// The step does not say.
        Odd,
    }

    /// See `Lines::pass`; `data` has a step's bytes and goes on at `from`.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn pass(table: &LineTable, data: &[u8], from: usize, left: i64) -> u64 {
        let tables = Tables::new(table);
        let limit = data.len().min(table.upto);
        let (mut place, mut rest) = (from, left.max(0));
        let passed = |place: usize, rest: i64| place as u64 + ((left.max(0).wrapping_sub(rest) as u64) << 32);
        // Each step passes over a line or is the last.
        while rest > 0 && place < limit {
            let (bytes, start) = window(data, place);
            let step = tables.step(bytes);
            let is_last = start + STEP_BYTES == data.len();
            let mut at = place - start;
            while rest > 0 && at < STEP_BYTES {
                let next = match line(table, bytes, at, step) {
                    Line::Passed(next) if start + next <= limit => next,
                    Line::Passed(_) | Line::Other => return passed(start + at, rest),
                    Line::Odd if at > 0 && !is_last => break,
                    Line::Long if is_last => return passed(start + at, rest),
                    Line::Long => match tables.long(table, &data[..limit], start + at, start + STEP_BYTES) {
                        Some(next) => next - start,
                        None => return passed(start + at, rest),
                    },
                    Line::Odd => match table.lines.next(&data[..limit], start + at) {
                        Some(next) => next - start,
                        None => return passed(start + at, rest),
                    },
                };
                (at, rest) = (next, rest - 1);
            }
            place = start + at;
        }
        passed(place, rest)
    }

    /// The line at byte `at` of a step. What is not passed over for certain, and what is for certain not, is told.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn line(table: &LineTable, bytes: &[u8; STEP_BYTES], at: usize, (no_name, no_value): (u64, u64)) -> Line {
        let byte = |at: usize| bytes[at % STEP_BYTES];
        let name_end = (no_name & (u64::MAX << at)).trailing_zeros() as usize;
        if name_end + 2 >= STEP_BYTES {
            return Line::Odd;
        }
        let len = name_end - at;
        let may_matter = table.names[len.min(LINE_NAMES - 1)] >> (byte(at) & 31) & 1 == 1;
        if len == 0 || byte(name_end) != table.separator || may_matter {
            return Line::Other;
        }
        if byte(name_end + 2) <= table.blank_most {
            return Line::Odd;
        }
        let end = (no_value & (u64::MAX << (name_end + 1))).trailing_zeros() as usize;
        if end + 1 >= STEP_BYTES {
            return if end == STEP_BYTES { Line::Long } else { Line::Odd };
        }
        let found = u16::from_le_bytes([byte(end), byte(end + 1)]);
        if found & table.end[1] == table.end[0] { Line::Passed(end + table.end_len) } else { Line::Other }
    }

    /// The step's bytes from `place` on, or the last ones of the message, and where they start.
    #[inline]
    fn window(data: &[u8], place: usize) -> (&[u8; STEP_BYTES], usize) {
        let last = data.len().saturating_sub(STEP_BYTES);
        let start = place.min(last);
        let bytes = data.get(start..).and_then(|rest| rest.first_chunk());
        (bytes.expect("the message has a step's bytes"), start)
    }

    /// The tables of a form in registers.
    struct Tables {
        names: __m256i,
        values: __m256i,
        bits: __m256i,
        high_values: u32,
    }

    impl Tables {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        #[inline]
        fn new(table: &LineTable) -> Self {
            Self {
                names: twice(&table.name_rows),
                values: twice(&table.value_rows),
                bits: twice(&table.bits),
                high_values: table.high_values,
            }
        }

        /// Which bytes are of no name, and of no value.
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        #[inline]
        fn step(&self, bytes: &[u8; STEP_BYTES]) -> (u64, u64) {
            let [(low, low_bit), (high, high_bit)] = self.halves(bytes);
            let no_name = both(outside(self.names, low, low_bit), outside(self.names, high, high_bit));
            (no_name, both(self.no_value(low, low_bit), self.no_value(high, high_bit)))
        }

        /// The place behind the line that starts at `first` and whose value goes on at `from`.
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn long(&self, table: &LineTable, data: &[u8], first: usize, from: usize) -> Option<usize> {
            let mut place = from;
            let end = loop {
                if place >= data.len() {
                    return None;
                }
                let (bytes, start) = window(data, place);
                let [(low, low_bit), (high, high_bit)] = self.halves(bytes);
                let no_value = both(self.no_value(low, low_bit), self.no_value(high, high_bit));
                let found = (no_value & (u64::MAX << (place - start))).trailing_zeros() as usize;
                if found < STEP_BYTES {
                    break start + found;
                }
                place = start + STEP_BYTES;
            };
            let next = end + table.end_len;
            let is_end = data.get(end..next).is_some_and(|bytes| bytes == table.lines.end);
            (is_end && next - first <= table.lines.form.max as usize).then_some(next)
        }

        /// The halves of a step, and the bit of each byte's high nibble.
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        #[inline]
        fn halves(&self, bytes: &[u8; STEP_BYTES]) -> [(__m256i, __m256i); 2] {
            let first: *const u8 = bytes.as_ptr();
            // SAFETY: the first half of the array is read, of any alignment.
            let low = unsafe { _mm256_loadu_si256(first.cast()) };
            let second = bytes[HALF_BYTES..].as_ptr();
            // SAFETY: the second half of the array is read, of any alignment.
            let high = unsafe { _mm256_loadu_si256(second.cast()) };
            [(low, self.bit_of(low)), (high, self.bit_of(high))]
        }

        #[target_feature(enable = "avx2,bmi1,bmi2")]
        #[inline]
        fn bit_of(&self, bytes: __m256i) -> __m256i {
            let nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15));
            _mm256_shuffle_epi8(self.bits, nibbles)
        }

        #[target_feature(enable = "avx2,bmi1,bmi2")]
        #[inline]
        fn no_value(&self, bytes: __m256i, bit: __m256i) -> u32 {
            let high = _mm256_movemask_epi8(bytes) as u32 & self.high_values;
            outside(self.values, bytes, bit) & !high
        }
    }

    /// The bits of two halves.
    #[inline]
    fn both(low: u32, high: u32) -> u64 {
        u64::from(low) | (u64::from(high) << HALF_BYTES)
    }

    /// A bit for each byte that is not of a class, and for each from 128 on.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn outside(rows: __m256i, bytes: __m256i, bit: __m256i) -> u32 {
        let hit = _mm256_and_si256(_mm256_shuffle_epi8(rows, bytes), bit);
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(hit, _mm256_setzero_si256())) as u32
    }

    /// A table in both halves of a register.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn twice(bytes: &[u8; 16]) -> __m256i {
        // SAFETY: an array of 16 bytes is read, of any alignment.
        let half = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        _mm256_broadcastsi128_si256(half)
    }
}
