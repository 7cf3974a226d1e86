//! Runs and needles sixteen bytes at a time, inline, because most are shorter than a call is long; a frame's items.
//! Promises: the places of `flick_ir::semantics`; only loads inside the message. The last bytes of a message are looked
//! at together with those in front of them; a message shorter than a step goes to the runtime.
//! Source: see `symbols::scan`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, ConstantData, InstBuilder, types};
use flick_abi::Frame;
use flick_abi::frame::SLOT_ITEMS;
use flick_abi::limits::ITEMS_MAX;
use flick_ir::data::{Op, Value};

use super::function::{Translator, own_memory, slot_offset};
use super::words::bytes_memory;
use crate::symbols::lines::LineTable;
use crate::symbols::scan::STEP_BYTES;
use crate::symbols::{self, SymbolId};

/// Longest needle that is looked for inline; longer ones are rare.
const INLINE_NEEDLE_BYTES_MAX: usize = 2;

/// Classes of so few bytes are those of blanks and the like, whose runs are short.
const FEW_MEMBERS: usize = 2;

/// Target of a scan step.
enum Sought {
    /// A byte that is not of the class of this number.
    NotOf(usize),
    /// One or two bytes.
    Needle(Vec<u8>),
}

impl Sought {
    /// Bytes of the message that a step reads.
    fn step_bytes(&self) -> i64 {
        let more = if let Sought::Needle(needle) = self { needle.len() - 1 } else { 0 };
        (STEP_BYTES + more) as i64
    }
}

impl Translator<'_, '_> {
    /// Translates what only parsers do with places and lists. Returns the word it defines.
    pub(super) fn scan_op(&mut self, op: &Op) -> Option<ir::Value> {
        match op {
            Op::ScanRun { from, class, max } => Some(self.scan_run(*from, *class, *max)),
            Op::Seek { from, offset, len, max } => Some(self.seek(*from, (*offset, *len), *max)),
            Op::Lines { from, left, form } => {
                let (data, len) = self.message.expect("only parsers pass over lines");
                let (_, table) = self.shared.lines.iter().find(|(known, _)| known == &**form)?;
                let table: *const LineTable = table;
                let (table, from, left) = (self.iconst(table as i64), self.get(*from), self.get(*left));
                self.call_symbol(SymbolId::Lines, &[data, len, from, left, table, self.frame])
            }
            Op::ItemPush(value) => {
                self.item_push(*value);
                None
            }
            Op::Cut { start, end } => self.predicate(SymbolId::Cut, *start, *end),
            Op::Insert { at, text } => self.predicate(SymbolId::Insert, *at, *text),
            Op::CutListed { names, start, end, lines_max } => {
                let mut words = vec![self.raw_call()];
                words.extend([*names, *start, *end].map(|arg| self.get(arg)));
                words.push(self.iconst(i64::from(*lines_max)));
                let word = self.call_symbol(SymbolId::CutListed, &words)?;
                Some(self.builder.ins().ireduce(types::I8, word))
            }
            other => panic!("{other:?} has a translation of its own"),
        }
    }

    /// Returns a position, but at most the end of the message.
    fn inside(&mut self, position: Value) -> ir::Value {
        let (_, len) = self.message.expect("only parsers look for the end of something");
        let word = self.get(position);
        if self.is_inside(position) { word } else { self.builder.ins().umin(word, len) }
    }

    fn scan_run(&mut self, from: Value, class: u32, max: u32) -> ir::Value {
        let from = self.inside(from);
        if !self.shared.steps_by_sixteen {
            let max = self.iconst(i64::from(max));
            return self.runtime_scan(from, class, max);
        }
        let end = self.builder.ins().iadd_imm_u(from, i64::from(max));
        let next = self.builder.create_block();
        let result = self.builder.append_block_param(next, types::I64);
        let members = self.shared.classes[class as usize].members();
        if members.len() <= FEW_MEMBERS && max > 1 {
            self.first_bytes(&members, from, next);
        }
        let sought = Sought::NotOf(class as usize);
        let position = self.steps(&sought, from, end, i64::from(max), |translator, from| {
            let max = translator.builder.ins().isub(end, from);
            translator.runtime_scan(from, class, max)
        });
        self.builder.ins().jump(next, &[BlockArg::Value(position)]);
        self.builder.switch_to_block(next);
        result
    }

    /// Continues at `next` if the run has no or one byte, as the blank behind a colon: that is guessed well, and what
    /// follows need not wait for a step.
    fn first_bytes(&mut self, members: &[u8], from: ir::Value, next: ir::Block) {
        let (data, len) = self.message.expect("only parsers look for where a run ends");
        let (near, second, longer) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let rest = self.builder.ins().isub(len, from);
        let is_there = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, rest, 1);
        self.builder.ins().brif(is_there, near, &[], longer, &[]);
        self.builder.switch_to_block(near);
        let address = self.builder.ins().iadd(data, from);
        let is_first = self.is_one_of(members, address, 0);
        self.builder.ins().brif(is_first, second, &[], next, &[BlockArg::Value(from)]);
        self.builder.switch_to_block(second);
        let is_second = self.is_one_of(members, address, 1);
        let position = self.builder.ins().iadd_imm_u(from, 1);
        self.builder.ins().brif(is_second, longer, &[], next, &[BlockArg::Value(position)]);
        self.builder.switch_to_block(longer);
    }

    fn is_one_of(&mut self, members: &[u8], address: ir::Value, offset: i32) -> ir::Value {
        let byte = self.builder.ins().load(types::I8, bytes_memory(), address, offset);
        let mut found = None;
        for member in members {
            let same = self.builder.ins().icmp_imm_u(IntCC::Equal, byte, i64::from(*member));
            found = Some(match found {
                None => same,
                Some(before) => self.builder.ins().bor(before, same),
            });
        }
        found.unwrap_or_else(|| self.builder.ins().iconst(types::I8, 0))
    }

    fn runtime_scan(&mut self, from: ir::Value, class: u32, max: ir::Value) -> ir::Value {
        let (data, len) = self.message.expect("only parsers look for where a run ends");
        let table = self.class(class);
        let found = self.call_symbol(SymbolId::ScanRun, &[data, len, from, table, max]);
        found.expect("it returns a position")
    }

    fn seek(&mut self, from: Value, needle: (u32, u32), max: u32) -> ir::Value {
        let from = self.inside(from);
        let bytes = &self.shared.consts[needle.0 as usize..(needle.0 + needle.1) as usize];
        if !self.shared.steps_by_sixteen || bytes.len() > INLINE_NEEDLE_BYTES_MAX {
            let max = self.iconst(i64::from(max));
            return self.runtime_seek(from, needle, max);
        }
        // The first position that is too late for its start.
        let end = self.builder.ins().iadd_imm_u(from, i64::from(max) + 1);
        let sought = Sought::Needle(bytes.to_vec());
        let sought_near = bytes.to_vec();
        self.steps(&sought, from, end, i64::from(max) + 1, |translator, from| {
            translator.seek_near(from, end, &sought_near)
        })
    }

    fn runtime_seek(&mut self, from: ir::Value, needle: (u32, u32), max: ir::Value) -> ir::Value {
        let (data, len) = self.message.expect("only parsers seek");
        let (start, needle_len) = self.const_data(needle);
        let found = self.call_symbol(SymbolId::Seek, &[data, len, from, start, needle_len, max]);
        found.expect("it returns a position")
    }

    /// The first position from `from` on, but at most `end`, which is `max` bytes behind it. Where fewer bytes are
    /// left than a step takes, the last step of the message is looked at; `runtime` does a message that has not even
    /// that.
    fn steps(
        &mut self,
        sought: &Sought,
        from: ir::Value,
        end: ir::Value,
        max: i64,
        runtime: impl FnOnce(&mut Self, ir::Value) -> ir::Value,
    ) -> ir::Value {
        let (data, len) = self.message.expect("only parsers look for the end of something");
        let [head, step, more, tail, last, short, next] = [(); 7].map(|()| self.builder.create_block());
        self.builder.set_cold_block(short);
        let at = self.builder.append_block_param(head, types::I64);
        let result = self.builder.append_block_param(next, types::I64);
        self.builder.ins().jump(head, &[BlockArg::Value(from)]);

        self.builder.switch_to_block(head);
        let rest = self.builder.ins().isub(len, at);
        let is_there =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, rest, sought.step_bytes());
        self.builder.ins().brif(is_there, step, &[], tail, &[]);

        self.builder.switch_to_block(step);
        let address = self.builder.ins().iadd(data, at);
        let found = self.look(sought, address);
        let hit = self.builder.create_block();
        self.builder.ins().brif(found, hit, &[], more, &[]);
        self.builder.switch_to_block(hit);
        let position = self.position_of(at, found);
        self.end_at(position, end, next);

        self.builder.switch_to_block(more);
        let after = self.builder.ins().iadd_imm_u(at, STEP_BYTES as i64);
        if max <= STEP_BYTES as i64 {
            self.builder.ins().jump(next, &[BlockArg::Value(end)]);
        } else {
            let is_over = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, after, end);
            self.builder.ins().brif(is_over, next, &[BlockArg::Value(end)], head, &[BlockArg::Value(after)]);
        }

        self.builder.switch_to_block(tail);
        let has_step =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, len, sought.step_bytes());
        self.builder.ins().brif(has_step, last, &[], short, &[]);

        self.builder.switch_to_block(last);
        let position = self.last_step(sought, at);
        self.end_at(position, end, next);

        self.builder.switch_to_block(short);
        let position = runtime(self, at);
        self.builder.ins().jump(next, &[BlockArg::Value(position)]);
        self.builder.switch_to_block(next);
        result
    }

    /// Continues at `next` with a position, or with `end` if that comes first. A branch that is never taken costs
    /// less than a minimum here, because all that follows waits for the position.
    fn end_at(&mut self, position: ir::Value, end: ir::Value, next: ir::Block) {
        let beyond = self.builder.create_block();
        self.builder.set_cold_block(beyond);
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, position, end);
        self.builder.ins().brif(is_inside, next, &[BlockArg::Value(position)], beyond, &[]);
        self.builder.switch_to_block(beyond);
        self.builder.ins().jump(next, &[BlockArg::Value(end)]);
    }

    /// Looks at the last bytes of the message from `at` on, of which there are fewer than a step takes.
    fn last_step(&mut self, sought: &Sought, at: ir::Value) -> ir::Value {
        let (data, len) = self.message.expect("only parsers look for the end of something");
        let start = self.builder.ins().iadd_imm_s(len, -sought.step_bytes());
        let address = self.builder.ins().iadd(data, start);
        let found = self.look(sought, address);
        let skipped = self.builder.ins().isub(at, start);
        // At most 17, of 32 bits of which at most 16 are set.
        let found = self.builder.ins().ushr(found, skipped);
        let position = self.position_of(at, found);
        // Where a needle may still begin: its first bytes may be the last that are there.
        let kept = sought.step_bytes() - STEP_BYTES as i64;
        let none = self.builder.ins().iadd_imm_s(len, -kept);
        let none = self.builder.ins().umax(none, at);
        self.builder.ins().select(found, position, none)
    }

    /// `at` and the number of the lowest bit that is set.
    fn position_of(&mut self, at: ir::Value, found: ir::Value) -> ir::Value {
        let first = self.builder.ins().ctz(found);
        let first = self.builder.ins().uextend(types::I64, first);
        self.builder.ins().iadd(at, first)
    }

    /// A bit for each of the sixteen places from `address` on that is what is sought.
    fn look(&mut self, sought: &Sought, address: ir::Value) -> ir::Value {
        let bytes = self.builder.ins().load(types::I8X16, bytes_memory(), address, 0);
        let hits = match sought {
            Sought::NotOf(class) => self.not_of(*class, bytes),
            Sought::Needle(needle) => {
                let mut hits = None;
                for (offset, byte) in needle.iter().enumerate() {
                    let there = match offset {
                        0 => bytes,
                        _ => {
                            let offset = i32::try_from(offset).expect("a needle is short");
                            self.builder.ins().load(types::I8X16, bytes_memory(), address, offset)
                        }
                    };
                    let wanted = self.sixteen([*byte; STEP_BYTES]);
                    let same = self.builder.ins().icmp(IntCC::Equal, there, wanted);
                    hits = Some(match hits {
                        None => same,
                        Some(before) => self.builder.ins().band(before, same),
                    });
                }
                hits.expect("a needle has a byte")
            }
        };
        self.builder.ins().vhigh_bits(types::I32, hits)
    }

    /// All ones where a byte is not of the class.
    fn not_of(&mut self, class: usize, bytes: ir::Value) -> ir::Value {
        let table = &self.shared.classes[class];
        let (low_rows, bits) = (self.sixteen(table.low_rows), self.sixteen(table.bits));
        // A byte from 128 on finds nothing here, because its top bit is set.
        let mut rows = self.builder.ins().x86_pshufb(low_rows, bytes);
        if !table.is_ascii() {
            let high_rows = self.sixteen(table.high_rows);
            let top = self.sixteen([0x80; STEP_BYTES]);
            let flipped = self.builder.ins().bxor(bytes, top);
            let high = self.builder.ins().x86_pshufb(high_rows, flipped);
            rows = self.builder.ins().bor(rows, high);
        }
        let lanes = ir::MemFlagsData::new().with_endianness(ir::Endianness::Little);
        let wide = self.builder.ins().bitcast(types::I16X8, lanes, bytes);
        let wide = self.builder.ins().ushr_imm_u(wide, 4);
        let shifted = self.builder.ins().bitcast(types::I8X16, lanes, wide);
        let low_half = self.sixteen([0x0f; STEP_BYTES]);
        let nibbles = self.builder.ins().band(shifted, low_half);
        let bit = self.builder.ins().x86_pshufb(bits, nibbles);
        let hit = self.builder.ins().band(rows, bit);
        let zero = self.sixteen([0; STEP_BYTES]);
        self.builder.ins().icmp(IntCC::Equal, hit, zero)
    }

    /// A constant.
    pub(super) fn sixteen(&mut self, bytes: [u8; STEP_BYTES]) -> ir::Value {
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
        self.builder.ins().vconst(types::I8X16, constant)
    }

    /// Address of a class's table.
    fn class(&mut self, class: u32) -> ir::Value {
        let table: *const _ = &self.shared.classes[class as usize];
        self.iconst(table as i64)
    }

    /// Address and length of constant bytes.
    fn const_data(&mut self, (offset, len): (u32, u32)) -> (ir::Value, ir::Value) {
        let bytes = &self.shared.consts[offset as usize..(offset + len) as usize];
        let (start, len) = (bytes.as_ptr() as i64, bytes.len() as i64);
        (self.iconst(start), self.iconst(len))
    }

    /// Whether a field may hold bytes.
    pub(super) fn guard(
        &mut self,
        bytes: Value,
        class: Option<u32>,
        without: Option<(u32, u32)>,
    ) -> Option<ir::Value> {
        match (class, without, self.message) {
            (Some(class), None, Some(_)) if self.shared.steps_by_sixteen => {
                Some(self.guard_by_steps(bytes, class))
            }
            _ => self.runtime_guard(bytes, class, without),
        }
    }

    /// Whether all bytes of a value are of a class: whether a run that starts with it ends with it.
    fn guard_by_steps(&mut self, bytes: Value, class: u32) -> ir::Value {
        let word = self.get(bytes);
        let len = self.bytes_len(word);
        let (rare, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(rare);
        let result = self.builder.append_block_param(next, types::I8);
        let start = self.message_start(bytes, word, len, rare);
        let end = self.builder.ins().iadd(start, len);
        let sought = Sought::NotOf(class as usize);
        let position = self.steps(&sought, start, end, i64::MAX, |translator, from| {
            let max = translator.builder.ins().isub(end, from);
            translator.runtime_scan(from, class, max)
        });
        let all = self.builder.ins().icmp(IntCC::Equal, position, end);
        self.builder.ins().jump(next, &[BlockArg::Value(all)]);
        self.builder.switch_to_block(rare);
        let all = self.runtime_guard(bytes, Some(class), None).expect("it gives a word");
        self.builder.ins().jump(next, &[BlockArg::Value(all)]);
        self.builder.switch_to_block(next);
        result
    }

    fn runtime_guard(
        &mut self,
        bytes: Value,
        class: Option<u32>,
        without: Option<(u32, u32)>,
    ) -> Option<ir::Value> {
        let class = match class {
            Some(class) => self.class(class),
            None => self.iconst(0),
        };
        let (needle, needle_len) = self.const_data(without.unwrap_or((0, 0)));
        let args = [self.raw_call(), self.get(bytes), class, needle, needle_len];
        let word = self.call_symbol(SymbolId::Guard, &args)?;
        Some(self.builder.ins().ireduce(types::I8, word))
    }

    fn item_push(&mut self, value: Value) {
        let word = self.get(value);
        let counter = slot_offset(SLOT_ITEMS as u16);
        let count = self.builder.ins().load(types::I64, own_memory(), self.frame, counter);
        let is_full =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, count, ITEMS_MAX as i64);
        self.bug_if(is_full, symbols::BUG_ITEMS);
        let offset = self.builder.ins().ishl_imm_u(count, 3);
        let address = self.builder.ins().iadd(self.frame, offset);
        self.builder.ins().store(own_memory(), word, address, ITEMS);
        let after = self.builder.ins().iadd_imm_u(count, 1);
        self.builder.ins().store(own_memory(), after, self.frame, counter);
    }
}

/// Offset of the items in a frame.
const ITEMS: i32 = std::mem::offset_of!(Frame, items) as i32;
const _: () = assert!(std::mem::offset_of!(Frame, slots) == 0);
