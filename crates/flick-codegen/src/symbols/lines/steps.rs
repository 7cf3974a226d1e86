//! The steps themselves: which of 64 bytes are of no name and of no value, some steps at a time, and then the walk
//! from end to end. Both are short loops of their own: together they would not fit the machine's registers.
//! Promises: one walk for both kinds of machine; it goes over each byte once, and acts as `LineScanner::pass` does.

use std::hint::black_box;

use flick_abi::limits::ITEMS_MAX;
use flick_abi::{BytesRef, Frame, Region};
use flick_ir::data::LineDoes;
use flick_ir::semantics::Line;

use super::{END_BYTES, KeyTable, LineTable, NAME_ROWS, Steps};

/// Bytes of one step.
const STEP_BYTES: usize = 64;
/// Steps of one stride: what may be looked at of a body behind the last line.
const STRIDE: usize = 4;
const STRIDE_BYTES: usize = STRIDE * STEP_BYTES;
/// Bytes in front of the first line that are looked at with it.
const EARLY_BYTES: usize = 2 * STEP_BYTES;
/// Bytes behind a value that are looked at together with it.
const BEHIND_BYTES: usize = 4;
/// No byte of a message stands there.
const NOT_YET: usize = usize::MAX;

/// Returns the SIMD steps that this machine supports.
pub(super) fn of_machine() -> Steps {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let has_words = has!("avx2") && has!("bmi1") && has!("bmi2");
        if has_words && has!("avx512bw") && has!("avx512vbmi") {
            return Steps::Bytes;
        }
        if has_words {
            return Steps::Nibbles;
        }
    }
    Steps::None
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::pass;

/// Bit masks of a stride: bytes that are outside the class of names, and first bytes of runs outside the class of
/// values. Bytes that are not there have no bits set.
#[derive(Default)]
struct Masks {
    no_name: [u64; STRIDE],
    ends: [u64; STRIDE],
    /// The byte in front of the stride is of no value.
    carry: u64,
}

impl Masks {
    /// Notes the masks of a step; whether the byte in front of it is of no value is known, and given for the next.
    #[inline(always)]
    fn note(&mut self, index: usize, no_name: u64, no_value: u64, carry: u64) -> u64 {
        self.no_name[index] = no_name;
        // Of what ends a line the first byte counts. So where lines end does not wait until it is known where they
        // start.
        self.ends[index] = no_value & !(no_value << 1 | carry);
        no_value >> (STEP_BYTES - 1)
    }

    /// The first byte of no name from byte `from` of the stride on.
    #[inline(always)]
    fn name_end(&self, from: usize) -> Option<usize> {
        let step = from / STEP_BYTES;
        let ends = self.no_name.get(step)? >> (from % STEP_BYTES);
        if ends != 0 {
            return Some(from + ends.trailing_zeros() as usize);
        }
        let more = self.no_name[step + 1..].iter().position(|ends| *ends != 0)?;
        let step = step + 1 + more;
        Some(step * STEP_BYTES + self.no_name[step].trailing_zeros() as usize)
    }
}

/// See `LineScanner::pass`; the message goes on at `from`, and there may be lines. `fill` looks at a stride from a
/// position on; `PUSH`: lines are items.
#[inline(always)]
fn walk<const PUSH: bool>(
    table: &LineTable,
    frame: &mut Frame,
    data: &[u8],
    from: usize,
    left: u64,
    fill: impl Fn(usize, &mut Masks),
) -> u64 {
    let limit = data.len().min(table.upto);
    let (mut start, mut separator, mut rest) = (from, NOT_YET, left);
    let mut stride = start_of_strides(from);
    if from >= limit || data[from] == table.end as u8 {
        return from as u64;
    }
    let mut masks = Masks::default();
    fill(stride, &mut masks);
    // Lines start behind the first step's start.
    let mut index = (from - stride) / STEP_BYTES;
    let mut ends = masks.ends[index % STRIDE] & (u64::MAX << (from % STEP_BYTES));
    while rest != 0 {
        while ends == 0 {
            index += 1;
            if index >= STRIDE {
                if separator == NOT_YET {
                    let at = masks.name_end(start.max(stride) - stride);
                    separator = at.map_or(NOT_YET, |at| stride + at);
                }
                // Each stride is followed by one further on.
                stride += STRIDE_BYTES;
                if stride >= limit {
                    return start as u64 + ((left - rest) << 32);
                }
                fill(stride, &mut masks);
                index = 0;
            }
            ends = masks.ends[index];
        }
        let end = stride + index * STEP_BYTES + ends.trailing_zeros() as usize;
        ends &= ends - 1;
        if separator == NOT_YET {
            // A byte of no value is of no name either, so there is one.
            separator = masks.name_end(start.max(stride) - stride).map_or(end, |at| stride + at);
        }
        if separator == start {
            break;
        }
        if end + BEHIND_BYTES > limit {
            // The reference judges the last line of what is there.
            return table.lines.pass(frame, data, start as u64, rest as i64) + ((left - rest) << 32);
        }
        // SAFETY: `BEHIND_BYTES` are there.
        let at_end = unsafe { data.as_ptr().add(end) };
        // SAFETY: as above.
        let behind = u32::from_le(unsafe { at_end.cast::<u32>().read_unaligned() });
        let has_capacity = !PUSH || frame.items().len() < ITEMS_MAX;
        if !has_capacity || !is_passed(table, frame, data, (start, separator, end), behind) {
            break;
        }
        let next = end + END_BYTES;
        if PUSH {
            frame.push_item(Line { start, separator, end, next }.all().0);
        }
        (start, separator, rest) = (next, NOT_YET, rest - 1);
        if (behind >> 16) as u8 == table.end as u8 {
            // No line begins with what ends one.
            break;
        }
    }
    start as u64 + ((left - rest) << 32)
}

/// Returns the start of the first stride. If the lines start early, it is the start of the message, so that it does not
/// depend on the position at which they start, which may not be computed yet.
#[inline(always)]
fn start_of_strides(from: usize) -> usize {
    if from < EARLY_BYTES { black_box(0) } else { from - from % STEP_BYTES }
}

/// Whether a line is one, and all is done for it that is to be done. It has a start, a separator and the end of a
/// value, and behind that there are `BEHIND_BYTES`.
#[inline(always)]
fn is_passed(
    table: &LineTable,
    frame: &mut Frame,
    data: &[u8],
    (start, separator, end): (usize, usize, usize),
    behind: u32,
) -> bool {
    let bytes = data.as_ptr();
    // SAFETY: the value and `BEHIND_BYTES` follow the separator, all of them in the message.
    let at_separator = unsafe { bytes.add(separator) };
    // SAFETY: as above.
    let around = u32::from_le(unsafe { at_separator.cast::<u32>().read_unaligned() });
    // SAFETY: a line starts in front of its separator.
    let at_start = unsafe { bytes.add(start) };
    // SAFETY: as above.
    let first = unsafe { *at_start };
    let name_len = separator - start;
    let row = table.names[name_len.min(NAME_ROWS - 1)];
    let second = (around >> 16) as u8;
    let len = end + END_BYTES - start;
    let is_plain = behind as u16 == table.end
        && around as u8 == table.separator
        && second > table.blank_most
        // Most lines are shorter than a name may be.
        && (len <= table.short || name_len <= table.name_max && len <= table.max);
    if is_plain && (row >> (first & 31)) & 1 == 0 {
        return true;
    }
    (is_plain || second <= table.blank_most) && is_odd_passed(table, frame, data, (start, separator, end))
}

/// As [`is_passed`], of a line for which something may be to be done, or with two blanks behind the separator.
#[inline(never)]
fn is_odd_passed(
    table: &LineTable,
    frame: &mut Frame,
    data: &[u8],
    (start, separator, end): (usize, usize, usize),
) -> bool {
    let name = &data[start..separator];
    let line = Line { start, separator, end, next: end + END_BYTES };
    if data[separator + 2] <= table.blank_most {
        // It may have blanks, or no value; such lines are few.
        let Some(found) = table.lines.line(table.lines.within(data), start) else { return false };
        debug_assert_eq!(found, line, "a line ends where its value does");
    }
    // The end of the line is behind the name, so mostly a word is there.
    let word = data.get(start..).and_then(<[u8]>::first_chunk);
    let last = name.last_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let first = usize::from(table.first_of_len[name.len().min(NAME_ROWS)]);
    for key in table.keys[first..].iter().take_while(|key| key.name.len() <= name.len()) {
        let is_same = match word {
            Some(word) => key.is(name, u64::from_le_bytes(*word), last),
            None => key.is_name(name),
        };
        if is_same {
            return act(table, frame, data, line, key.does);
        }
    }
    true
}

impl KeyTable {
    /// Whether a name is this one, whose first word and, if it is that long, last word are known.
    #[inline]
    fn is(&self, name: &[u8], word: u64, last: Option<u64>) -> bool {
        let is_first = (word | self.first_case) & self.first_mask == self.first;
        let is_last = last.is_none_or(|last| last | self.last_case == self.last);
        is_first
            && is_last
            && name.len() == self.name.len()
            && (name.len() <= 2 * size_of::<u64>() || self.is_name(name))
    }

    /// Whether a name is this one.
    fn is_name(&self, name: &[u8]) -> bool {
        if self.nocase { self.name.eq_ignore_ascii_case(name) } else { *self.name == *name }
    }
}

/// See `LineScanner::act`. What is mostly done, to keep a value that has no blanks at its ends, is done here.
#[inline(always)]
fn act(table: &LineTable, frame: &mut Frame, data: &[u8], line: Line, does: LineDoes) -> bool {
    match does {
        LineDoes::Keep { slot, cut, .. } => {
            let slot = usize::from(slot);
            let first = line.separator + 1;
            let value =
                data.get(first + usize::from(data[first] == table.blank)..line.end).unwrap_or_default();
            let is_first = frame.slots[slot] == BytesRef::MISSING.0;
            if let ([first, .., last] | [first @ last], true) = (value, is_first)
                && (*first).min(*last) > b' '.max(table.blank_most)
            {
                if cut && !frame.cut(line.start as u64, line.next as u64) {
                    return false;
                }
                let start = line.end - value.len();
                frame.slots[slot] = BytesRef::new(Region::Message, start as u64, value.len() as u32).0;
                return true;
            }
            table.lines.act(does, frame, data, line)
        }
        LineDoes::Cut => frame.cut(line.start as u64, line.next as u64),
        LineDoes::Stop => false,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
        _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_setzero_si256,
        _mm256_shuffle_epi8, _mm256_srli_epi16, _mm512_add_epi8, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
        _mm512_movepi8_mask, _mm512_or_si512, _mm512_permutex2var_epi8, _mm512_set1_epi8,
        _mm512_ternarylogic_epi64,
    };

    use flick_abi::Frame;

    use super::{LineTable, Masks, STEP_BYTES, STRIDE, STRIDE_BYTES, walk};
    use crate::symbols::lines::Steps;

    /// Bytes of one register of AVX2.
    const HALF_BYTES: usize = 32;
    /// Of the bits of (what is of no value, byte, all high bytes are values): what is of no value, the highest bit
    /// known.
    const NO_VALUE_OF: i32 = 0x74;

    /// See `LineScanner::pass`. The machine has what the table's steps ask for.
    #[target_feature(enable = "bmi1,bmi2")]
    pub(in crate::symbols::lines) fn pass(
        table: &LineTable,
        frame: &mut Frame,
        data: &[u8],
        from: usize,
        left: u64,
    ) -> u64 {
        let fill = |stride: usize, masks: &mut Masks| match table.steps {
            // SAFETY: the table's steps are those that the machine has.
            Steps::Bytes => unsafe { by_bytes(table, data, stride, masks) },
            // SAFETY: as above; who has no steps is not here.
            Steps::Nibbles | Steps::None => unsafe { by_nibbles(table, data, stride, masks) },
        };
        match table.lines.form.push {
            true => walk::<true>(table, frame, data, from, left, fill),
            false => walk::<false>(table, frame, data, from, left, fill),
        }
    }

    /// With the nibbles of 32 bytes at a time.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn by_nibbles(table: &LineTable, data: &[u8], stride: usize, masks: &mut Masks) {
        let tables = (twice(&table.name_rows), twice(&table.value_rows), twice(&table.bits));
        let mut carry = masks.carry;
        for index in 0..STRIDE {
            let rest = data.get(stride + index * STEP_BYTES..).unwrap_or_default();
            let (no_name, no_value) = match rest.first_chunk::<STEP_BYTES>() {
                Some(bytes) => nibbles(bytes, tables, table.high_values),
                None if rest.is_empty() => (0, 0),
                None => {
                    let mut bytes = [0; STEP_BYTES];
                    bytes[..rest.len()].copy_from_slice(rest);
                    let there = (1 << rest.len()) - 1;
                    let (no_name, no_value) = nibbles(&bytes, tables, table.high_values);
                    (no_name & there, no_value & there)
                }
            };
            carry = masks.note(index, no_name, no_value, carry);
        }
        masks.carry = carry;
    }

    /// With a table of bytes, 64 at a time.
    #[target_feature(enable = "avx512bw,avx512vbmi,avx2,bmi1,bmi2")]
    fn by_bytes(table: &LineTable, data: &[u8], stride: usize, masks: &mut Masks) {
        let (low, high) = table.kinds.split_at(STEP_BYTES);
        // SAFETY: the first 64 of 128 bytes are read, of any alignment.
        let low = unsafe { _mm512_loadu_si512(low.as_ptr().cast()) };
        // SAFETY: the other 64 bytes are read, of any alignment.
        let high = unsafe { _mm512_loadu_si512(high.as_ptr().cast()) };
        let high_values = _mm512_set1_epi8(table.high_values as i8);
        // The table is asked by seven bits; the eighth, the highest, tells those above it apart. It is the bit of what
        // is of no name, and behind the sum that of what is of no value.
        let masks_of = |bytes: __m512i| {
            let kinds = _mm512_permutex2var_epi8(low, bytes, high);
            let no_value = _mm512_add_epi8(kinds, kinds);
            let no_value = _mm512_ternarylogic_epi64::<NO_VALUE_OF>(no_value, bytes, high_values);
            (_mm512_movepi8_mask(_mm512_or_si512(kinds, bytes)), _mm512_movepi8_mask(no_value))
        };
        let rest = data.get(stride..).unwrap_or_default();
        let mut carry = masks.carry;
        if let Some(bytes) = rest.first_chunk::<STRIDE_BYTES>() {
            for index in 0..STRIDE {
                let at = bytes[index * STEP_BYTES..].as_ptr();
                // SAFETY: 64 of the stride's bytes are read, of any alignment.
                let (no_name, no_value) = masks_of(unsafe { _mm512_loadu_si512(at.cast()) });
                carry = masks.note(index, no_name, no_value, carry);
            }
        } else {
            for index in 0..STRIDE {
                let rest = rest.get(index * STEP_BYTES..).unwrap_or_default();
                let there = if rest.len() < STEP_BYTES { (1 << rest.len()) - 1 } else { u64::MAX };
                if rest.is_empty() {
                    carry = masks.note(index, 0, 0, carry);
                    continue;
                }
                // SAFETY: of the bytes behind the message none is read: their bits in the mask are zero.
                let bytes = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().cast()) };
                let (no_name, no_value) = masks_of(bytes);
                carry = masks.note(index, no_name & there, no_value & there, carry);
            }
        }
        masks.carry = carry;
    }

    /// The masks of 64 bytes.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    #[inline]
    fn nibbles(
        bytes: &[u8; STEP_BYTES],
        tables: (__m256i, __m256i, __m256i),
        high_values: u64,
    ) -> (u64, u64) {
        let (names, values, bits) = tables;
        let first: *const u8 = bytes.as_ptr();
        // SAFETY: the first half of the array is read, of any alignment.
        let low = unsafe { _mm256_loadu_si256(first.cast()) };
        let second = bytes[HALF_BYTES..].as_ptr();
        // SAFETY: the second half of the array is read, of any alignment.
        let high = unsafe { _mm256_loadu_si256(second.cast()) };
        let bit_of = |bytes: __m256i| {
            let nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15));
            _mm256_shuffle_epi8(bits, nibbles)
        };
        let (low_bit, high_bit) = (bit_of(low), bit_of(high));
        let no_name = both(outside(names, low, low_bit), outside(names, high, high_bit));
        let no_value = both(outside(values, low, low_bit), outside(values, high, high_bit));
        let is_high = both(_mm256_movemask_epi8(low) as u32, _mm256_movemask_epi8(high) as u32);
        (no_name, no_value & !(is_high & high_values))
    }

    /// The bits of two halves.
    #[inline]
    fn both(low: u32, high: u32) -> u64 {
        u64::from(low) | (u64::from(high) << HALF_BYTES)
    }

    /// A bit for each byte that is not of a class, and for each from 128 on.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn outside(rows: __m256i, bytes: __m256i, bit: __m256i) -> u32 {
        let hit = _mm256_and_si256(_mm256_shuffle_epi8(rows, bytes), bit);
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(hit, _mm256_setzero_si256())) as u32
    }

    /// A table in both halves of a register.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn twice(bytes: &[u8; 16]) -> __m256i {
        // SAFETY: an array of 16 bytes is read, of any alignment.
        let half = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        _mm256_broadcastsi128_si256(half)
    }
}
