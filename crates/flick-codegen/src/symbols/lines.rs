//! Skips lines 64 bytes at a time, each byte once: for each step two words say which bytes are outside the class of
//! names and of values. The ends of names and values are the lowest set bits of these words.
//! Promises: the positions and effects of `flick_ir::semantics::LineScanner`, which is used where the machine has no
//! SIMD; nothing is read outside the message.
//! Source: Langdale, Lemire, "Parsing Gigabytes of JSON per Second" §3.1 (bitmaps of structural bytes).

mod steps;

use flick_abi::Frame;
use flick_ir::data::{LineDoes, LineForm, Module, Op};
use flick_ir::semantics::{LineScanner, in_class};

use super::scan::ClassTable;
use crate::raw::Data;

/// Number of name lengths that have a row of their own in `names`.
const NAME_ROWS: usize = 32;
/// Bytes of the end of a line; with one byte more or less nothing is gained by steps.
const END_BYTES: usize = 2;

/// Lines of one form, as the runtime passes over them.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct LineTable {
    /// Flags of each byte below 128: `NO_NAME`, `NO_VALUE`.
    kinds: [u8; 128],
    /// The classes' rows and bits; see `ClassTable`.
    name_rows: [u8; 16],
    value_rows: [u8; 16],
    bits: [u8; 16],
    /// All ones if bytes from 128 on are of a value's class.
    high_values: u64,
    /// Something may be done for a line if bit `b mod 32` of word `n` is set, with `n` the length of its name, or the
    /// last word for longer ones, and `b` its first byte; so letters of either case are one.
    names: [u32; NAME_ROWS],
    /// Names for which something is done, ordered by length.
    keys: Box<[KeyTable]>,
    /// Index in `keys` of the first name of at least this length; all longer names share the last entry.
    first_of_len: [u8; NAME_ROWS + 1],
    separator: u8,
    /// No byte above is a blank.
    blank_most: u8,
    /// A blank, if there are any.
    blank: u8,
    /// Bytes that end a line, in little-endian order; 0 if there are not `END_BYTES` of them.
    end: u16,
    /// As in the form.
    name_max: usize,
    max: usize,
    upto: usize,
    /// A line of at most this many bytes is not too long, nor is its name.
    short: usize,
    /// SIMD steps for lines of this form.
    steps: Steps,
    lines: LineScanner,
}

/// A byte is not of a name's class.
const NO_NAME: u8 = 0x80;
/// A byte is not of a value's class.
const NO_VALUE: u8 = 0x40;

/// Instruction set of the SIMD steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// No SIMD: the machine does not support it, or not for lines of this form.
    None,
    /// AVX2: two tables of nibbles.
    Nibbles,
    /// AVX-512 with VBMI: one table of bytes.
    Bytes,
}

/// A name for which something is done.
#[derive(Clone, Debug)]
struct KeyTable {
    /// The first word of the name, its letters with the bits that make no difference, and which bits it has.
    first: u64,
    first_case: u64,
    first_mask: u64,
    /// The last word, if the name has one.
    last: u64,
    last_case: u64,
    /// The name as it is.
    name: Box<[u8]>,
    nocase: bool,
    does: LineDoes,
}

impl KeyTable {
    fn new(name: &[u8], does: LineDoes, nocase: bool) -> Self {
        let mut first = [0; size_of::<u64>()];
        let first_len = name.len().min(first.len());
        first[..first_len].copy_from_slice(&name[..first_len]);
        let last: [u8; size_of::<u64>()] = name.last_chunk().copied().unwrap_or_default();
        let case = |bytes: [u8; size_of::<u64>()]| {
            let bit = |byte: u8| if nocase && byte.is_ascii_alphabetic() { 0x20 } else { 0 };
            u64::from_le_bytes(bytes.map(bit))
        };
        let mask = u64::MAX >> (u64::BITS - 8 * first_len as u32);
        Self {
            first: u64::from_le_bytes(first) | case(first),
            first_case: case(first),
            first_mask: mask,
            last: u64::from_le_bytes(last) | case(last),
            last_case: case(last),
            name: name.into(),
            nocase,
            does,
        }
    }
}

impl LineTable {
    fn new(module: &Module, form: &LineForm, hurries: bool) -> Self {
        let lines = LineScanner::new(module, form);
        let (name, value) = (ClassTable::new(lines.name), ClassTable::new(lines.value));
        let blanks = ClassTable::new(lines.blanks).members();
        let has_all_high = lines.value[2..] == [u64::MAX; 2];
        let is_simple = name.is_ascii() && (has_all_high || value.is_ascii());
        let end = <[u8; END_BYTES]>::try_from(&lines.end[..]).map(u16::from_le_bytes).ok();
        // Ends of values are then ends of lines, wherever names end.
        let is_of_value = |byte: u8| in_class(&lines.value, byte);
        let has_names = name.members().iter().all(|byte| is_of_value(*byte)) && is_of_value(form.separator);
        let is_apart = has_names && end.is_some() && !lines.end.iter().any(|byte| is_of_value(*byte));
        let kind = |byte: usize| {
            let is_not = |class: &[u64; 4], bit: u8| if in_class(class, byte as u8) { 0 } else { bit };
            is_not(&lines.name, NO_NAME) | is_not(&lines.value, NO_VALUE)
        };
        let mut names = [0; NAME_ROWS];
        for (key, _) in &lines.keys {
            let rows = [key[0], key[0].to_ascii_lowercase(), key[0].to_ascii_uppercase()];
            rows.iter().for_each(|first| names[key.len().min(NAME_ROWS - 1)] |= 1 << (first & 31));
        }
        // Of two that are one the first counts, as for the reference.
        let mut keys: Vec<_> =
            lines.keys.iter().map(|(key, does)| KeyTable::new(key, *does, form.nocase)).collect();
        keys.sort_by_key(|key| key.name.len());
        let first_of_len = |len: usize| {
            keys.iter().take_while(|key| key.name.len() < len).count().min(usize::from(u8::MAX)) as u8
        };
        let first_of_len = std::array::from_fn(first_of_len);
        Self {
            name_rows: name.low_rows,
            value_rows: value.low_rows,
            bits: name.bits,
            kinds: std::array::from_fn(kind),
            high_values: if has_all_high { u64::MAX } else { 0 },
            names,
            first_of_len,
            keys: keys.into_boxed_slice(),
            separator: form.separator,
            blank_most: blanks.last().copied().unwrap_or(0),
            // Without any, what no value begins with.
            blank: blanks
                .iter()
                .copied()
                .find(|byte| *byte == b' ')
                .or(blanks.first().copied())
                .unwrap_or(lines.end[0]),
            end: end.unwrap_or(0),
            name_max: form.name_max as usize,
            max: form.max as usize,
            upto: form.upto as usize,
            short: form.name_max.min(form.max) as usize,
            steps: if hurries && is_simple && is_apart { steps::of_machine() } else { Steps::None },
            lines,
        }
    }
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

pub(super) extern "C-unwind" fn lines(
    data: Data,
    len: u64,
    from: u64,
    left: u64,
    table: &LineTable,
    frame: &mut Frame,
) -> u64 {
    pass(table, frame, data.bytes(len), from, left)
}

/// See `LineScanner::pass`.
#[inline]
fn pass(table: &LineTable, frame: &mut Frame, data: &[u8], from: u64, left: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if from < data.len() as u64 && left as i64 > 0 {
        let (from, left) = (from as usize, left.min(u64::from(u32::MAX)));
        if table.steps != Steps::None {
            // SAFETY: a machine that has steps has what the function asks for.
            return unsafe { steps::pass(table, frame, data, from, left) };
        }
    }
    table.lines.pass(frame, data, from, left as i64)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use flick_abi::{BytesRef, Frame};
    use flick_ir::data::{LineDoes, LineForm, LineKey, Module};
    use flick_ir::random::Rng;

    use super::{LineTable, Steps, steps};

    /// The first slot that values are kept in.
    const KEPT: u16 = 15;

    fn class(is_member: impl Fn(u8) -> bool) -> [u64; 4] {
        let mut class = [0; 4];
        for byte in (0..=255_u8).filter(|byte| is_member(*byte)) {
            class[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        class
    }

    fn table(nocase: bool) -> LineTable {
        let mut module: Module = flick_ir::text::parse("program \"p\" { }").expect("the text is of the form");
        module.consts = b"\r\nhostx-cutaccept".to_vec();
        module.classes = vec![
            class(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            class(|byte| byte >= 0x20 && byte != 0x7f || byte == b'\t'),
            class(|byte| byte == b' ' || byte == b'\t'),
        ];
        let keep = |slot, once, cut| LineDoes::Keep { slot, once, cut };
        let keys = [
            LineKey { name: (2, 4), does: keep(KEPT, true, false) },
            LineKey { name: (6, 5), does: LineDoes::Cut },
            LineKey { name: (11, 6), does: keep(KEPT + 1, false, true) },
        ];
        let form = LineForm {
            name: 0,
            name_max: 70,
            separator: b':',
            blanks: 2,
            value: 1,
            end: (0, 2),
            max: 200,
            upto: 2000,
            trim: nocase,
            nocase,
            push: nocase,
            keys: keys.to_vec(),
        };
        LineTable::new(&module, &form, true)
    }

    fn message(rng: &mut Rng) -> Vec<u8> {
        let mut message = Vec::new();
        for _ in 0..rng.below(7) {
            let names = ["host", "Host", "x-cut", "accept", "hast", "a-name-of-no-importance", "n"];
            message.extend(rng.pick(&names).bytes());
            message.extend_from_slice(if rng.chance(97) { b":" } else { b"" });
            message.extend(std::iter::repeat_n(b' ', if rng.chance(90) { 1 } else { rng.below(4) }));
            let len = if rng.chance(80) { rng.below(60) } else { rng.below(220) };
            let byte =
                |rng: &mut Rng| if rng.chance(99) { 0x21 + rng.below(0x5e) as u8 } else { rng.word() as u8 };
            message.extend((0..len).map(|_| byte(rng)));
            message.extend_from_slice(if rng.chance(97) { b"\r\n" } else { b"\r" });
            // The last line, and perhaps more behind it.
            message.extend_from_slice(if rng.chance(5) { b"\r\n" } else { b"" });
        }
        message
    }

    #[test]
    fn every_machine_passes_over_the_same_lines() {
        let mut rng = Rng::new(5);
        let all = [Steps::Nibbles, Steps::Bytes];
        // A machine that has the one has the other.
        let known: Vec<Steps> = match steps::of_machine() {
            Steps::None => Vec::new(),
            Steps::Nibbles => vec![Steps::Nibbles],
            Steps::Bytes => all.to_vec(),
        };
        for round in 0..3000 {
            let mut table = table(round % 2 == 0);
            let message = message(&mut rng);
            let from = rng.below(message.len() + 1) as u64;
            let left = if rng.chance(80) { 100 } else { rng.below(3) as u64 };
            let mut found = |steps: Steps| {
                table.steps = steps;
                let mut frame = Frame::new();
                frame.slots[usize::from(KEPT)..][..2].fill(BytesRef::MISSING.0);
                let word = super::pass(&table, &mut frame, &message, from, left);
                let kept = frame.slots[usize::from(KEPT)..][..2].to_vec();
                (word, kept, frame.cuts().collect::<Vec<_>>(), frame.items().to_vec())
            };
            let expected = found(Steps::None);
            for steps in &known {
                let text = String::from_utf8_lossy(&message);
                assert_eq!(found(*steps), expected, "{steps:?} from {from}, at most {left}: {text:?}");
            }
        }
    }
}
