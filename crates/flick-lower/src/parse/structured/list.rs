//! Lists: a loop over elements, each a row of items of its own.
//! Promises: an element goes forward by at least a byte, and the number of elements is bounded by the list, by the head
//! or by what one call sees; a stage inside an element is entered through the head of the loop.

use flick_abi::FaultCause;
use flick_abi::frame::{SLOT_ITEMS, SLOT_STATE};
use flick_abi::limits::{HEAD_BYTES_MAX, ITEMS_MAX};
use flick_check::hir::{FieldId, FieldKind, Item, List, ListEnd};
use flick_ir::data::{Advance, Binary, BlockId, Op, Terminator, Type, Value};

use super::Emitter;
use super::sizes::Sizes;
use super::stage::{Cursor, Scope};
use crate::body::Mode;
use crate::interval::Interval;
use crate::limits::{MESSAGE_BYTES_MAX, PART_BYTES_MAX};
use crate::unit::{SlotKey, UnitInfo};
use crate::value::Val;

/// Most elements of a list that are counted: a list that is longer than that only streams.
const ELEMENTS_MAX: i128 = 1 << 32;
/// The upper half of a list's word counts its items.
const COUNT_UNIT: i64 = 1 << 32;

/// A list that is being parsed.
struct Loop<'l> {
    id: FieldId,
    list: &'l List,
    head: BlockId,
    /// Elements so far, where they are counted.
    seen: Option<Value>,
    /// Passed on as it arrives.
    streams: bool,
    /// Each element ends a part of its own.
    ends_parts: bool,
    /// The blocks and positions at which the list ends.
    exits: Vec<(BlockId, Cursor)>,
}

impl Emitter<'_, '_> {
    /// A list.
    pub fn list(&mut self, id: FieldId, list: &List) {
        let streams = self.streams(list);
        if streams && !self.is_at_start {
            self.part(None);
        }
        // Lists in its elements are left out with what is around them.
        let is_bare = streams && list.bare.is_some();
        if is_bare {
            self.bare = Some(id);
        }
        self.reach();
        self.is_at_start = false;
        self.begin(id, list);
        let is_counted = self.needs.has(SlotKey::Seen(id)) || self.needs.has(SlotKey::Length(id));
        let trips = self.trips_max(list, streams);
        let head = self.body.f.new_loop(&[Type::Int, Type::Int, Type::Int], trips);
        if !streams {
            self.body.f.set_advance(head, self.advance(list));
        }
        let (position, zero) = (self.position(self.at), self.body.f.int(0));
        let (position, seen) = if streams {
            (position, zero)
        } else {
            let (position, passed) = self.pass_lines(id, list, position, is_counted.then_some(zero));
            (position, passed.unwrap_or(zero))
        };
        self.body.f.jump(head, vec![position, zero, seen]);
        self.scopes.push(Scope::default());

        self.body.f.go_on_in(head);
        let &[position, state, seen] = self.body.f.params(head) else {
            panic!("a list's head has three values")
        };
        let (element, inside) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        let zero = self.body.f.int(0);
        let is_new = self.body.f.binary(Type::Bool, Binary::Eq, state, zero);
        self.body.f.branch_to(is_new, element, inside);
        self.body.f.go_on_in(element);
        self.kept_cursor = None;
        self.at = Cursor::there(position, self.most_in(list, self.at.most, streams));
        let ends_parts = streams && !streams_in(self.info, &list.body);
        let seen = is_counted.then_some(seen);
        let mut own = Loop { id, list, head, seen, streams, ends_parts, exits: Vec::new() };
        self.lists.push(id);
        self.element(&mut own);
        self.lists.pop();
        let exits = own.exits;
        self.close_scope(id, head, inside, state);
        self.kept_cursor = None;
        self.join(exits);
        if is_bare && !self.is_over {
            let end = self.position(self.at);
            self.leave_bare(end);
        }
        if is_bare {
            self.bare = None;
        }
        if !self.is_over {
            self.end_of_list(id, list, seen);
        }
    }

    /// Whether a list is streamed.
    fn streams(&self, list: &List) -> bool {
        self.parts && list.streamed && self.is_in_tail()
    }

    /// Returns the largest number of iterations in one call.
    fn trips_max(&self, list: &List, streams: bool) -> u32 {
        let least = Sizes::of(self.info, &list.body).least;
        assert!(
            list.max.is_some() || least > 0,
            "the checker refuses elements of `{}` that may be empty",
            self.info.unit.name
        );
        let by_head = self.longest.checked_div(least).map(|most| most as u32 + 1);
        match list.max {
            // A part ends with each element, or inside of it.
            _ if streams => 1,
            Some(max) => max.min(by_head.unwrap_or(max)),
            None => by_head.unwrap_or(self.longest as u32),
        }
    }

    /// Returns the largest number of elements of a list.
    pub fn elements_max(&self, id: FieldId) -> u32 {
        let FieldKind::List(list) = &self.info.field(id).kind else { panic!("lists are lists") };
        self.trips_max(list, false)
    }

    /// Returns how elements get on in the message, if each has bytes of its own.
    fn advance(&self, list: &List) -> Option<Advance> {
        let least = Sizes::of(self.info, &list.body).own.min(self.longest) as u32;
        (least > 0).then_some(Advance { least, most: self.longest as u32 })
    }

    /// The largest place at which an element starts.
    fn most_in(&self, list: &List, start: u64, streams: bool) -> u64 {
        let element = Sizes::of(self.info, &list.body).most;
        let elements = list.max.map_or(u64::MAX, u64::from);
        let most = start.saturating_add(element.saturating_mul(elements));
        if streams { self.longest } else { most.min(self.longest) }
    }

    /// Before the first element.
    fn begin(&mut self, id: FieldId, list: &List) {
        let cause = self.info.field(id).cause;
        let position = self.position(self.at);
        self.keep(SlotKey::Start(id), position);
        match &list.end {
            ListEnd::Count(count) => {
                let all = Interval::new(0, ELEMENTS_MAX);
                let value = self.exact_number(count, id, all, cause);
                let value = match self.needs.elements_max(id, list) {
                    Some(max) => {
                        let allowed = Interval::new(0, i128::from(max));
                        let value = self.body.check_range(value, allowed, id.0, self.info.too_long(id));
                        self.body.narrow(value)
                    }
                    None => value,
                };
                self.keep(SlotKey::Rest(id), value.value());
            }
            ListEnd::Bytes(bytes) => {
                let all = Interval::new(0, MESSAGE_BYTES_MAX);
                let bytes = self.exact_number(bytes, id, all, cause);
                let end = self.body.f.binary(Type::Int, Binary::Add, position, bytes.value());
                self.keep(SlotKey::Rest(id), end);
            }
            ListEnd::Children(_) => {
                let one = self.body.f.int(1);
                self.keep(SlotKey::Rest(id), one);
            }
            ListEnd::Until(_) | ListEnd::Last(_) => {}
        }
        if self.needs.read_lists.contains(&id) || self.is_changed(id) {
            let first = self.get(SLOT_ITEMS);
            self.keep(SlotKey::Field(id), first);
        }
        let zero = self.body.f.int(0);
        for (var, _) in self.needs.sums.clone().into_iter().filter(|(_, list)| *list == id) {
            self.keep(SlotKey::Field(var), zero);
        }
        let full: Vec<FieldId> = self.full_of(id).collect();
        for var in full {
            let no = self.body.f.define(Type::Bool, Op::Const(0));
            self.keep(SlotKey::Field(var), no);
        }
        if let Some(keyed) = &list.keyed {
            self.begin_keys(id, keyed);
        }
    }

    /// One element, from the question whether there is one to the next question.
    fn element(&mut self, own: &mut Loop<'_>) {
        let (id, list) = (own.id, own.list);
        if let Some(seen) = own.seen {
            self.keep(SlotKey::Seen(id), seen);
        }
        self.is_there_more(own);
        let max = self.needs.elements_max(id, list);
        if self.needs.cut_short.contains(&id) {
            self.leave_if_full(own, max);
        } else if let (Some(seen), Some(max), false) = (own.seen, max, matches!(list.end, ListEnd::Count(_)))
        {
            let most = self.body.f.int(i64::from(max));
            let fits = self.body.f.binary(Type::Bool, Binary::LtS, seen, most);
            self.body.expect(fits, id.0, self.info.too_long(id));
        }
        // Where only a key that matters asks for it, it is kept when the key is known to be one.
        if !self.is_element_at_key(id) {
            let position = self.position(self.at);
            self.keep(SlotKey::Element(id), position);
        }
        self.items(&list.body, true);
        if self.is_over {
            return;
        }
        self.element_is_over(own);
    }

    /// Leaves the loop where no element follows.
    fn is_there_more(&mut self, own: &mut Loop<'_>) {
        match &own.list.end {
            ListEnd::Until(until) => self.is_delimiter_here(own, until),
            ListEnd::Last(_) => {}
            ListEnd::Count(_) | ListEnd::Children(_) | ListEnd::Bytes(_) => self.leave_if_over(own),
        }
    }

    /// Leaves the loop where what is left says so.
    fn leave_if_over(&mut self, own: &mut Loop<'_>) {
        let rest = self.get_key(SlotKey::Rest(own.id));
        let more = if let ListEnd::Bytes(_) = own.list.end {
            let position = self.position(self.at);
            let fits = self.body.f.binary(Type::Bool, Binary::LeS, position, rest);
            self.body.expect(fits, own.id.0, self.info.field(own.id).cause);
            self.body.f.binary(Type::Bool, Binary::LtS, position, rest)
        } else {
            let zero = self.body.f.int(0);
            self.body.f.binary(Type::Bool, Binary::LtS, zero, rest)
        };
        let (more, over) = self.fork(more);
        own.exits.push((over, self.at));
        self.body.f.go_on_in(more);
    }

    /// The variables that say that a list is full.
    fn full_of(&self, list: FieldId) -> impl Iterator<Item = FieldId> {
        self.needs.full.iter().filter(move |(_, own)| *own == list).map(|(var, _)| *var)
    }

    /// Leaves the loop where an element follows for which there is no room: the list has as many as it may, or the
    /// message is so long that the longest element might not fit into a head. Nothing of it depends on how much has
    /// arrived.
    fn leave_if_full(&mut self, own: &mut Loop<'_>, max: Option<u32>) {
        let (Some(seen), Some(max), ListEnd::Until(until)) = (own.seen, max, &own.list.end) else {
            panic!("a list that may be full has a bound and a delimiter")
        };
        let element = Sizes::of(self.info, &own.list.body).most.saturating_add(until.len() as u64);
        let last = self.longest.min(HEAD_BYTES_MAX as u64).saturating_sub(element);
        let (max, last, zero) =
            (self.body.f.int(i64::from(max)), self.body.f.int(last as i64), self.body.f.int(0));
        let position = self.position(self.at);
        let has_all = self.body.f.binary(Type::Bool, Binary::LeS, max, seen);
        let is_long = self.body.f.binary(Type::Bool, Binary::LtS, last, position);
        let has_some = self.body.f.binary(Type::Bool, Binary::LtS, zero, seen);
        let is_long = self.body.f.binary(Type::Bool, Binary::And, is_long, has_some);
        let is_full = self.body.f.binary(Type::Bool, Binary::Or, has_all, is_long);
        let (full, more) = self.fork(is_full);
        self.body.f.go_on_in(full);
        let vars: Vec<FieldId> = self.full_of(own.id).collect();
        for var in vars {
            let yes = self.body.f.define(Type::Bool, Op::Const(1));
            self.keep(SlotKey::Field(var), yes);
        }
        own.exits.push((self.body.f.current(), self.at));
        self.body.f.go_on_in(more);
    }

    /// Leaves the loop where the delimiter stands in place of an element.
    fn is_delimiter_here(&mut self, own: &mut Loop<'_>, until: &[u8]) {
        let least = Sizes::of(self.info, &own.list.body).least;
        if self.needs.has(SlotKey::End(own.id)) {
            let end = self.position(self.at);
            self.keep(SlotKey::End(own.id), end);
        }
        // Nothing is waited for that may not come: an element may be shorter than the delimiter.
        let (first, rest) = until.split_at(until.len().min(least as usize).max(1));
        let mut elsewhere = Vec::new();
        for (from, part) in [(0, first)].into_iter().chain(single_bytes(first.len(), rest)) {
            let all = from + part.len() as u32;
            if from == 0 {
                self.need(all);
            } else {
                let state = self.stage();
                self.wait(all, state);
            }
            let (more, over) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
            let start = self.at;
            self.at = start.advanced(from);
            self.branch_on_bytes(part, over, more);
            self.at = start;
            elsewhere.push((more, start));
            self.body.f.go_on_in(over);
        }
        own.exits.push((self.body.f.current(), self.at.advanced(until.len() as u32)));
        self.join(elsewhere);
    }

    /// Ends the block two ways.
    fn fork(&mut self, cond: Value) -> (BlockId, BlockId) {
        let (then, otherwise) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.body.f.branch_to(cond, then, otherwise);
        (then, otherwise)
    }

    /// Behind an element: counts it, keeps it, and goes back to the head.
    fn element_is_over(&mut self, own: &mut Loop<'_>) {
        self.reach();
        let (id, list) = (own.id, own.list);
        if let (Some(bare), false) = (&list.bare, own.streams) {
            self.bare_element(id, list, bare);
        }
        if self.needs.read_lists.contains(&id) {
            self.push_element(id, list);
        }
        if let Some(keyed) = &list.keyed {
            self.element_of_key(id, keyed);
        }
        for (var, _) in self.needs.sums.clone().into_iter().filter(|(_, list)| *list == id) {
            self.add_to_sum(var);
        }
        self.count_towards_the_end(own);
        let seen = match own.seen {
            None => self.body.f.int(0),
            Some(seen) => {
                let one = self.body.f.int(1);
                self.body.f.binary(Type::Int, Binary::Add, seen, one)
            }
        };
        if own.streams && !own.ends_parts {
            self.pass_on_what_is_there(own);
        }
        if own.ends_parts {
            // The last element ends the last part, where that is known.
            if !matches!(list.end, ListEnd::Until(_) | ListEnd::Last(_)) {
                self.leave_if_over(own);
            }
            self.keep(SlotKey::Seen(id), seen);
            self.part(None);
        }
        self.limit(0);
        let (position, zero) = (self.position(self.at), self.body.f.int(0));
        // Where a part has ended the next call knows how many there were from the slot alone.
        let seen = match (own.ends_parts, self.needs.has(SlotKey::Seen(id))) {
            (false, _) => seen,
            (true, true) => self.get_key(SlotKey::Seen(id)),
            (true, false) => zero,
        };
        let (position, seen) = if own.streams {
            (position, seen)
        } else {
            let (position, passed) = self.pass_lines(id, list, position, own.seen.map(|_| seen));
            (position, passed.unwrap_or(seen))
        };
        self.body.f.jump(own.head, vec![position, zero, seen]);
    }

    /// Counts an element towards the end of its list.
    fn count_towards_the_end(&mut self, own: &mut Loop<'_>) {
        let (id, list) = (own.id, own.list);
        match &list.end {
            ListEnd::Count(_) => {
                let (rest, one) = (self.get_key(SlotKey::Rest(id)), self.body.f.int(1));
                let rest = self.body.f.binary(Type::Int, Binary::Sub, rest, one);
                self.keep(SlotKey::Rest(id), rest);
            }
            ListEnd::Children(children) => {
                let cause = self.info.field(id).cause;
                let opens = self.exact_number(children, id, Interval::new(0, ELEMENTS_MAX), cause);
                let rest = self.get_key(SlotKey::Rest(id));
                let one = self.body.f.int(1);
                let rest = self.body.f.binary(Type::Int, Binary::Sub, rest, one);
                let rest = self.body.f.binary(Type::Int, Binary::Add, rest, opens.value());
                let most = self.body.f.int(ELEMENTS_MAX as i64);
                let fits = self.body.f.binary(Type::Bool, Binary::LeS, rest, most);
                self.body.expect(fits, id.0, FaultCause::TooLong);
                self.keep(SlotKey::Rest(id), rest);
            }
            ListEnd::Last(last) => {
                let (over, more) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
                self.body.branch_on(last, over, more);
                own.exits.push((over, self.at));
                self.body.f.go_on_in(more);
            }
            ListEnd::Until(_) | ListEnd::Bytes(_) => {}
        }
    }

    /// Behind an element of a list that streams, when nothing of the next one is there: what was read of this one
    /// ends a part, so that no client waits for it until the next one comes. So where parts end may depend on the
    /// split; what they say does not.
    fn pass_on_what_is_there(&mut self, own: &Loop<'_>) {
        self.tell();
        let (position, zero) = (self.position(self.at), self.body.f.int(0));
        let is_all = self.body.f.binary(Type::Bool, Binary::LeS, self.len, position);
        let is_some = self.body.f.binary(Type::Bool, Binary::LtS, zero, position);
        let ends = self.body.f.binary(Type::Bool, Binary::And, is_all, is_some);
        let (ends, goes_on) = self.fork(ends);
        self.body.f.go_on_in(ends);
        let here = self.at;
        if let Some(seen) = own.seen {
            let one = self.body.f.int(1);
            let seen = self.body.f.binary(Type::Int, Binary::Add, seen, one);
            self.keep(SlotKey::Seen(own.id), seen);
        }
        self.part(None);
        let seen = if self.needs.has(SlotKey::Seen(own.id)) {
            self.get_key(SlotKey::Seen(own.id))
        } else {
            self.body.f.int(0)
        };
        let (position, zero) = (self.position(self.at), self.body.f.int(0));
        self.body.f.jump(own.head, vec![position, zero, seen]);
        self.body.f.go_on_in(goes_on);
        (self.at, self.kept_cursor) = (here, None);
    }

    /// Adds what an element adds to a variable.
    fn add_to_sum(&mut self, var: FieldId) {
        let field = self.info.field(var);
        let FieldKind::Var { parse, .. } = &field.kind else { panic!("sums are variables") };
        self.body.mode = Mode::Exact { field: var.0 };
        let more = self.number_of(parse);
        let word = self.get_key(SlotKey::Field(var));
        let known = self.info.key_val(SlotKey::Field(var), word).num();
        let sum = self.body.exact_sum(known, more);
        let sum = self.body.check_range(sum, self.info.range(var), var.0, self.info.too_long(var));
        let sum = self.body.narrow(sum);
        self.keep(SlotKey::Field(var), sum.value());
        self.requires(var, Val::Num(sum));
    }

    /// Keeps an element for the program.
    fn push_element(&mut self, id: FieldId, list: &List) {
        let value = match list.element {
            Some(element) => self.get_key(SlotKey::Field(element)),
            None => {
                self.need(0);
                let (start, end) = (self.get_key(SlotKey::Element(id)), self.position(self.at));
                self.body.f.define(Type::Bytes, Op::MessageBytes { start, end })
            }
        };
        self.push_item(id, value);
    }

    /// Appends an item, if there is room.
    pub fn push_item(&mut self, id: FieldId, value: Value) {
        let (count, most) = (self.get(SLOT_ITEMS), self.body.f.int(ITEMS_MAX as i64));
        let fits = self.body.f.binary(Type::Bool, Binary::LtS, count, most);
        self.body.expect(fits, id.0, FaultCause::TooLong);
        self.body.f.effect(Op::ItemPush(value));
    }

    /// Writes the switch that leads to the stages inside a list, and lets everybody around know of them.
    fn close_scope(&mut self, id: FieldId, head: BlockId, inside: BlockId, state: Value) {
        let scope = self.scopes.pop().expect("a list has a scope");
        self.body.f.go_on_in(inside);
        let Some((_, default)) = scope.cases.first().copied() else {
            // Nothing in it waits, so it is never resumed.
            let never = self.body.fault_block(id.0, FaultCause::Malformed);
            return self.body.f.jump(never, Vec::new());
        };
        let states: Vec<i64> = scope.cases.iter().map(|(state, _)| *state).collect();
        let cases = scope.cases.into_iter().skip(1).collect();
        self.body.f.end(Terminator::Switch { value: state, cases, default });

        let enter = self.body.f.new_block(&[]);
        self.body.f.go_on_in(enter);
        let (zero, state) = (self.body.f.int(0), self.get(SLOT_STATE));
        let seen = if self.needs.has(SlotKey::Seen(id)) { self.get_key(SlotKey::Seen(id)) } else { zero };
        self.body.f.jump(head, vec![zero, state, seen]);
        let around = self.scopes.last_mut().expect("the function is a scope");
        around.cases.extend(states.into_iter().map(|state| (state, enter)));
    }

    /// Behind the last element.
    fn end_of_list(&mut self, id: FieldId, list: &List, seen: Option<Value>) {
        self.flags_of_first(id, list);
        self.forget_line(id, list);
        if !matches!(list.end, ListEnd::Until(_)) && self.needs.has(SlotKey::End(id)) {
            let end = self.position(self.at);
            self.keep(SlotKey::End(id), end);
        }
        if let (true, Some(seen)) = (self.needs.has(SlotKey::Length(id)), seen) {
            self.keep(SlotKey::Length(id), seen);
        }
        if self.needs.has(SlotKey::Field(id)) {
            let (first, all) = (self.get_key(SlotKey::Field(id)), self.get(SLOT_ITEMS));
            let count = self.body.f.binary(Type::Int, Binary::Sub, all, first);
            let unit = self.body.f.int(COUNT_UNIT);
            let count = self.body.f.binary(Type::Int, Binary::Mul, count, unit);
            let word = self.body.f.binary(Type::Int, Binary::Add, first, count);
            self.keep(SlotKey::Field(id), word);
        }
        // Of a list of the unit itself this is a fact: it may depend on what follows the list.
        if let Some(keyed) = list.keyed.as_ref().filter(|_| !is_of_unit(self.info, id)) {
            self.cut_rest(id, keyed);
        }
    }

    /// Whether the program changes keys of a list.
    pub fn is_changed(&self, id: FieldId) -> bool {
        self.info.uses.changed_keys.iter().any(|(list, _)| *list == id)
    }
}

/// Whether a field stands in the unit itself, not in an arm or an element.
pub fn is_of_unit(info: &UnitInfo<'_>, field: FieldId) -> bool {
    let items = info.unit.body.as_deref().unwrap_or_default();
    items.iter().any(|item| matches!(item, Item::Field(id) if *id == field))
}

/// The bytes behind the first `from` ones, one by one, with their places.
fn single_bytes(from: usize, rest: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    rest.chunks(1).enumerate().map(move |(index, byte)| ((from + index) as u32, byte))
}

/// Whether each element of a list has a field that is passed on as it arrives, whatever else is in it.
fn streams_in(info: &UnitInfo<'_>, items: &[Item]) -> bool {
    items.iter().any(|item| matches!(item, Item::Field(id) if is_long(info, *id)))
}

/// Whether a field may have more bytes than a head.
pub fn is_long(info: &UnitInfo<'_>, field: FieldId) -> bool {
    match info.field(field).kind {
        FieldKind::Bytes { max_bytes, .. } => max_bytes.is_none_or(|max| max as usize > PART_BYTES_MAX),
        _ => false,
    }
}
