//! Keyed lists whose elements are lines, `name: value` with an end: one operation passes over them, many at a time,
//! and does for those whose names matter what is simply done: it keeps a value, or cuts the line. The others go
//! through the list's loop.
//! Promises: a line that is passed over is one that the loop would have found good and done the same with; wherever
//! that is not certain, or the line is not all there, the loop looks at it.

use flick_abi::frame::SLOT_SCAN;
use flick_check::hir::{BinaryOp, Builtin, Expr, ExprKind, FieldId, FieldKind, Item, Keyed, List, ListEnd};
use flick_ir::data::{Binary, LineDoes, LineForm, LineKey, Op, Type, Value};
use flick_ir::limits::LINE_END_BYTES_MAX;

use super::Emitter;
use crate::unit::SlotKey;

/// The place is the lower half of what `Op::Lines` gives, how many there were the upper one.
const COUNT_UNIT: i64 = 1 << 32;
/// Lines that are passed over at a time where the list has no bound.
const LINES_MAX: i64 = 1 << 20;

/// A text of an element.
struct Part<'a> {
    id: FieldId,
    set: [u64; 4],
    until: Option<&'a [u8]>,
    min: u32,
    max: u32,
}

impl<'a> Emitter<'a, '_> {
    /// Passes over the lines of a list for which little is to be done, where an element begins at `position` and
    /// `seen` have been.
    pub fn pass_lines(
        &mut self,
        id: FieldId,
        list: &List,
        position: Value,
        seen: Option<Value>,
    ) -> (Value, Option<Value>) {
        let Some(form) = self.line_form(id, list) else { return (position, seen) };
        let left = match (seen, self.needs.elements_max(id, list)) {
            (Some(seen), Some(max)) => {
                let max = self.body.f.int(i64::from(max));
                self.body.f.binary(Type::Int, Binary::Sub, max, seen)
            }
            _ => self.body.f.int(LINES_MAX),
        };
        let passed = self.body.f.define(Type::Int, Op::Lines { from: position, left, form: Box::new(form) });
        let low = self.body.f.int(COUNT_UNIT - 1);
        let position = self.body.f.binary(Type::Int, Binary::BitAnd, passed, low);
        let seen = seen.map(|seen| {
            let unit = self.body.f.int(COUNT_UNIT);
            let count = self.body.f.binary(Type::Int, Binary::DivU, passed, unit);
            self.body.f.binary(Type::Int, Binary::Add, seen, count)
        });
        (position, seen)
    }

    /// Clears the values of the last line that the loop looked at: they depend on where the message was cut.
    pub fn forget_line(&mut self, id: FieldId, list: &List) {
        if self.line_form(id, list).is_none() {
            return;
        }
        let zero = self.body.f.int(0);
        self.body.set_slot(SLOT_SCAN as u16, zero);
        self.keep(SlotKey::Element(id), zero);
        if let Some(keyed) = &list.keyed {
            self.keep(SlotKey::Which(id), zero);
            let missing = self.body.f.define(Type::Bytes, Op::Const(-1));
            self.keep(SlotKey::Field(keyed.key), missing);
        }
    }

    /// Returns the form of the elements of a list, if they are lines of which most may be skipped.
    fn line_form(&mut self, id: FieldId, list: &List) -> Option<LineForm> {
        let (keyed, ListEnd::Until(end)) = (list.keyed.as_ref(), &list.end) else { return None };
        let is_summed = self.needs.sums.iter().any(|(_, of)| *of == id);
        // Whole lines are kept, but not of a list that is looked into besides, nor a part of each.
        let push = self.needs.read_lists.contains(&id);
        let is_kept_otherwise = push && (keyed.is_some() || list.element.is_some());
        // Those that are skipped are as many as have arrived, and where it is full does not depend on that.
        let may_be_full = self.needs.cut_short.contains(&id);
        if is_kept_otherwise || is_summed || may_be_full || end.len() as u32 > LINE_END_BYTES_MAX {
            return None;
        }
        let key = keyed.map(|keyed| keyed.key);
        let (name, separator, blanks, value) = match &list.body[..] {
            [Item::Field(name), Item::Literal(literal), Item::Field(value)] => (name, literal, None, value),
            [Item::Field(name), Item::Literal(literal), Item::Field(blanks), Item::Field(value)] => {
                (name, literal, Some(blanks), value)
            }
            _ => return None,
        };
        if separator.optional || separator.cut {
            return None;
        }
        let &[separator] = &separator.bytes[..] else { return None };
        let (name, value) = (self.text_of_line(*name, key)?, self.text_of_line(*value, key)?);
        let blanks = match blanks {
            Some(blanks) => Some(self.text_of_line(*blanks, key)?),
            None => None,
        };
        let has = |set: &[u64; 4], byte: u8| set[usize::from(byte) / 64] >> (byte % 64) & 1 == 1;
        let is_apart = !has(&name.set, separator) && !has(&name.set, end[0]) && !has(&value.set, end[0]);
        let is_key = keyed.is_none_or(|keyed| keyed.key == name.id && keyed.value == value.id);
        let is_name = name.until.is_none() && name.min <= 1;
        let is_value = value.until == Some(&end[..]) && value.min == 0;
        // A blank is of the value's class too, so that the value's end is found from the separator on.
        let are_blanks = blanks.as_ref().is_none_or(|blanks| {
            let is_inside = (0..4).all(|word| blanks.set[word] & !value.set[word] == 0);
            is_inside && blanks.until.is_none() && blanks.min == 0 && blanks.max > 0
        });
        if !is_apart || !is_key || !is_name || !is_value || !are_blanks {
            return None;
        }
        Some(LineForm {
            name: self.body.consts.class(name.set),
            name_max: name.max,
            separator,
            blanks: self.body.consts.class(blanks.map_or([0; 4], |blanks| blanks.set)),
            value: self.body.consts.class(value.set),
            end: self.const_range(end),
            max: value.max,
            upto: u32::try_from(self.longest).ok()?,
            trim: matches!(self.info.field(value.id).kind, FieldKind::Text { trim: true, .. }),
            nocase: keyed.is_some_and(|keyed| keyed.nocase),
            push,
            keys: keyed.map_or_else(Vec::new, |keyed| self.line_keys(id, keyed)),
        })
    }

    /// A text of a class of which nothing is kept for each line but the name itself.
    fn text_of_line(&self, id: FieldId, key: Option<FieldId>) -> Option<Part<'a>> {
        let info = self.info;
        let field = info.field(id);
        let FieldKind::Text { class: Some(class), until, min_bytes, max_bytes, .. } = &field.kind else {
            return None;
        };
        let max = self.needs.view_max(id).map_or(*max_bytes, |max| max.min(*max_bytes));
        let set = self.body.cx.program.classes[class.0 as usize].set;
        let part = Part { id, set, until: until.as_deref(), min: *min_bytes, max };
        let is_kept = self.needs.kept.iter().any(|key| key.id() == id && *key != SlotKey::Field(id));
        // A value that is read for its key alone is at hand and has no slot of its own; the name's is forgotten.
        let is_at_hand = part.until.is_some() && !self.needs.read.contains(&id);
        let is_free = !self.needs.has(SlotKey::Field(id)) || is_at_hand || Some(id) == key;
        (field.requires.is_empty() && !is_kept && is_free).then_some(part)
    }

    /// The names that matter, and what is to be done for each.
    fn line_keys(&mut self, id: FieldId, keyed: &Keyed) -> Vec<LineKey> {
        let keys = self.keys_that_matter(id, keyed);
        let line_key = |key: u32| {
            let name = self.const_range(&keyed.keys[key as usize]);
            LineKey { name, does: self.line_does(id, keyed, key) }
        };
        // A line without a name is none that is passed over.
        keys.into_iter().filter(|key| !keyed.keys[*key as usize].is_empty()).map(line_key).collect()
    }

    /// Returns the action of the operation for a name, if no other work is left until the last line.
    fn line_does(&self, id: FieldId, keyed: &Keyed, key: u32) -> LineDoes {
        let is_changed = self.info.uses.changed_keys.contains(&(id, key));
        let (own, cut, is_listed) =
            (SlotKey::At(id, key), keyed.cut.contains(&key), keyed.cut_listed == Some(key));
        let flags: Vec<FieldId> = self.flags_of_key(id, key).collect();
        if is_changed || !flags.iter().all(|flag| self.is_flag_of_tokens(*flag)) {
            return LineDoes::Stop;
        }
        match self.needs.has(own) && self.needs.has(SlotKey::Field(keyed.value)) {
            // What further ones come to is the loop's.
            true => {
                let once = keyed.once.contains(&key) || is_listed || !flags.is_empty();
                LineDoes::Keep { slot: self.info.slot(own), once, cut }
            }
            false if cut && !is_listed && flags.is_empty() => LineDoes::Cut,
            false => LineDoes::Stop,
        }
    }

    /// The flags that follow from a key.
    fn flags_of_key(&self, id: FieldId, key: u32) -> impl Iterator<Item = FieldId> {
        self.needs
            .flags
            .iter()
            .filter(move |(_, list, own)| (*list, *own) == (id, key))
            .map(|(flag, ..)| *flag)
    }

    /// Whether a flag asks for tokens alone, so that it comes to the same wherever it is asked, and how often.
    fn is_flag_of_tokens(&self, flag: FieldId) -> bool {
        fn is_text(expr: &Expr) -> bool {
            matches!(expr.kind, ExprKind::Str(_))
        }
        fn is_value(expr: &Expr) -> bool {
            match &expr.kind {
                ExprKind::SelfKey(..) => true,
                ExprKind::OrElse(value, other) => {
                    let is_constant = other.stmts.is_empty() && other.value.as_deref().is_some_and(is_text);
                    is_constant && is_value(value)
                }
                _ => false,
            }
        }
        fn asks_for_tokens(expr: &Expr) -> bool {
            match &expr.kind {
                ExprKind::Not(a) => asks_for_tokens(a),
                ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b) => {
                    asks_for_tokens(a) && asks_for_tokens(b)
                }
                ExprKind::Builtin(Builtin::HasToken, args) => {
                    matches!(&args[..], [list, token] if is_value(list) && is_text(token))
                }
                _ => false,
            }
        }
        matches!(&self.info.field(flag).kind, FieldKind::Flag { parse, .. } if asks_for_tokens(parse))
    }

    /// Behind the last line: flags of the first values that the operation has kept. A line that the loop has looked
    /// at has raised them before, which makes no difference.
    pub fn flags_of_first(&mut self, id: FieldId, list: &List) {
        let (Some(form), Some(keyed)) = (self.line_form(id, list), &list.keyed) else { return };
        let kept: Vec<u16> = form
            .keys
            .iter()
            .filter_map(|key| match key.does {
                LineDoes::Keep { slot, .. } => Some(slot),
                LineDoes::Cut | LineDoes::Stop => None,
            })
            .collect();
        for key in self.keys_that_matter(id, keyed) {
            let own = SlotKey::At(id, key);
            let is_kept = self.needs.has(own) && kept.contains(&self.info.slot(own));
            if !is_kept || self.flags_of_key(id, key).next().is_none() {
                continue;
            }
            let value = self.get_key(own);
            let is_missing = self.body.f.define(Type::Bool, Op::IsMissing(value));
            let (there, behind) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
            self.body.f.branch_to(is_missing, behind, there);
            self.body.f.go_on_in(there);
            self.raise_flags(id, key, value);
            self.body.f.jump(behind, Vec::new());
            self.body.f.go_on_in(behind);
        }
    }

    /// Returns the offset and length of constant bytes.
    fn const_range(&mut self, bytes: &[u8]) -> (u32, u32) {
        match self.body.consts.intern(bytes) {
            Op::ConstBytes { offset, len } => (offset, len),
            _ => panic!("constant bytes are constant bytes"),
        }
    }
}
