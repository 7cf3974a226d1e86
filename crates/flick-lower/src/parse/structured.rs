//! Parsers of structured units: the tree of items becomes one function that is a state machine.
//! Promises: items are met in the order of the text, whatever the split of the input, so any split gives the same
//! answer; what outlives a cut lies in slots; only what is needed is kept (`needs.rs`).
//! Refuses: plain units, whose parsers wait for whole runs of fields (`plan.rs`, `emit.rs`).
//! Start reading at [`lower_structured`], then `stage.rs` (where a parser stops and goes on), `text.rs` (fields),
//! `choice.rs`, `list.rs`, `keyed.rs` and `lines.rs` (repetition), `ending.rs` (facts, heads and
//! parts), `forwarded.rs` (what is forwarded instead of what was received).

mod choice;
mod ending;
mod forwarded;
mod keyed;
mod lines;
mod list;
pub mod needs;
pub mod sizes;
mod stage;
mod text;

use flick_abi::frame::{SLOT_CARRIED, SLOT_STATE};
use flick_check::hir::{Channel, Expr, FieldId, FieldKind, Item, UnitId};
use flick_ir::data::{FuncKind, Op, SourceOrigin, Terminator, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::interval::Interval;
use crate::parse::Parser;
use crate::parse::plan::Role;
use crate::unit::{SlotKey, UnitInfo};
use crate::value::{Num, Val};
use ending::Fact;
use needs::Needs;
use stage::{Cursor, Scope};
use text::{ByteRun, NumberFront, Text};

/// Purpose of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Requests, in parts where they stream.
    Request,
    /// Replies, in parts where they stream.
    Reply,
    /// Replies in one piece.
    Asked,
}

/// Writes a parser of `channel`.
pub fn lower_structured(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    channel: &Channel,
    unit: UnitId,
    way: Way,
) -> Parser {
    let info = cx.unit(unit);
    let items = info.unit.body.as_deref().expect("a structured unit has a tree");
    let (role, name) = match way {
        Way::Request => (Role::Request, format!("parse_request.{}", channel.name)),
        Way::Reply => (Role::Reply, format!("parse_reply.{}", channel.name)),
        Way::Asked => (Role::Reply, format!("parse_asked.{}", channel.name)),
    };
    let parts = way != Way::Asked && !channel.whole;
    let mut body = Body::new(cx, consts, name, FuncKind::Parser, &[Type::Frame, Type::Int], Vec::new());
    body.scope = (unit, SelfScope::Frame);
    body.mode = Mode::Exact { field: 0 };
    let entry = body.f.current();
    let len = body.f.params(entry)[1];
    let start = body.f.new_block(&[]);
    body.f.go_on_in(start);
    let needs = Needs::new(info, items, role, channel);
    let pending = ending::facts(info, role);
    let (longest, longest_head) =
        (stage::longest_front(info, &needs, role, channel), stage::longest_head(info, &needs));
    let mut emitter = Emitter {
        body,
        info,
        needs,
        len,
        role,
        parts,
        at: Cursor::START,
        kept_cursor: None,
        at_hand: None,
        is_at_start: true,
        is_over: false,
        index: 0,
        field: 0,
        byte_run: None,
        bits_of: None,
        scopes: vec![Scope::default()],
        lists: Vec::new(),
        bare: None,
        states: 0,
        pending,
        facts_done: false,
        has_parts: false,
        head_bytes_max: 0,
        longest,
        longest_head,
    };
    emitter.top_items(items);
    if !emitter.is_over {
        emitter.end_of_message();
    }
    let scope = emitter.scopes.pop().expect("the function is a scope");
    let mut body = emitter.body;
    body.f.go_on_in(entry);
    if scope.cases.is_empty() {
        body.f.jump(start, Vec::new());
    } else {
        let value = body.f.define(Type::Int, Op::FrameGet { slot: SLOT_STATE as u16 });
        body.f.end(Terminator::Switch { value, cases: scope.cases, default: start });
    }
    Parser { function: body.f.finish(), head_bytes_max: emitter.head_bytes_max }
}

struct Emitter<'a, 'p> {
    body: Body<'p>,
    info: &'a UnitInfo<'p>,
    needs: Needs,
    /// Number of available bytes of the message.
    len: Value,
    role: Role,
    /// A message may be given in parts.
    parts: bool,
    /// Position up to which the message has been parsed.
    at: Cursor,
    /// The place that the cursor's slot holds, on whatever way this is come to.
    kept_cursor: Option<(Value, u32)>,
    /// The value of a keyed list's element, where nothing is waited for between it and the element's end.
    at_hand: Option<(FieldId, Value)>,
    /// Nothing has been done yet: state 0 goes on here.
    is_at_start: bool,
    /// The current path has ended.
    is_over: bool,
    /// Index of the current item in the order of the text.
    index: usize,
    /// The field that faults are reported of.
    field: u32,
    /// Bytes that the current path has skipped in one piece.
    byte_run: Option<ByteRun>,
    /// The integer that bits are of.
    bits_of: Option<(FieldId, Value)>,
    scopes: Vec<Scope>,
    /// Lists that are being parsed, inner ones last.
    lists: Vec<FieldId>,
    /// The list that streams of which only the streamed fields may be forwarded.
    bare: Option<FieldId>,
    states: u32,
    /// Facts that have not been evaluated on the current path.
    pending: Vec<Fact>,
    /// All facts have been evaluated on the current path.
    facts_done: bool,
    /// Some part may have ended before the message does.
    has_parts: bool,
    head_bytes_max: u64,
    /// Longest head that a message may have, in bytes.
    longest: u64,
    /// The same behind the keyed list of a request, to which an operator may set a limit.
    longest_head: u64,
}

impl Emitter<'_, '_> {
    /// The items of the unit itself: behind each, the facts that have become known.
    fn top_items(&mut self, items: &[Item]) {
        let mut known = Vec::new();
        self.tell_known(&known);
        for (index, item) in items.iter().enumerate() {
            if self.is_in_tail() {
                self.tell();
            }
            let behind = items[index + 1..].iter().any(|item| sizes::is_on_wire(self.info, item));
            self.item(&items[index..], behind);
            if self.is_over {
                return;
            }
            let passed = known.len();
            needs::each_field(self.info, std::slice::from_ref(item), &mut |id| known.push(id));
            if known[passed..].iter().any(|id| stage::is_keyed(self.info, *id)) {
                self.longest = self.longest_head;
            }
            if !self.facts_done {
                self.tell_known(&known);
            }
        }
    }

    /// A row of items; `behind`: something may stand behind it.
    fn items(&mut self, items: &[Item], behind: bool) {
        for index in 0..items.len() {
            let more = items[index + 1..].iter().any(|item| sizes::is_on_wire(self.info, item));
            self.item(&items[index..], behind || more);
            if self.is_over {
                // The others on this way are counted, though they are never met.
                self.index +=
                    items[index + 1..].iter().map(|item| needs::count(self.info, item)).sum::<usize>();
                return;
            }
        }
    }

    /// The first of `items`.
    fn item(&mut self, items: &[Item], behind: bool) {
        let Some((item, ahead)) = items.split_first() else { return };
        self.index += 1;
        let goes_on = match item {
            Item::Field(id) => matches!(self.info.field(*id).kind, FieldKind::Text { .. }),
            Item::Literal(_) => true,
            Item::Check(_) | Item::Switch(_) => false,
        };
        self.byte_run = self.byte_run.filter(|_| goes_on);
        match item {
            Item::Field(id) => self.field(*id, items, ahead, behind),
            Item::Literal(literal) => self.literal(literal, items),
            Item::Check(check) => {
                self.body.expect_expr(&check.expr, self.field, check.cause);
            }
            Item::Switch(choice) => self.choice(choice, behind),
        }
        self.byte_run = self.byte_run.filter(|_| goes_on);
    }

    fn field(&mut self, id: FieldId, items: &[Item], ahead: &[Item], behind: bool) {
        let field = self.info.field(id);
        self.field = id.0;
        self.body.mode = Mode::Exact { field: id.0 };
        self.body.f.set_origin(SourceOrigin { file: field.span.file, offset: field.span.range.start });
        match &field.kind {
            FieldKind::Int { repr, big_endian, .. } => self.int(id, *repr, *big_endian, items),
            FieldKind::Vint { .. } => self.vint(id),
            FieldKind::Varint { bytes_max, .. } => self.varint(id, *bytes_max),
            FieldKind::Number { base: 10, digits_max: 1, signed: false, zeros: false, .. } => {
                self.digit(id, items);
            }
            FieldKind::Number { base, digits_max, signed, zeros, .. } => {
                let front = match (signed, zeros) {
                    (true, _) => NumberFront::Sign,
                    (false, true) => NumberFront::Zeros,
                    (false, false) => NumberFront::Nothing,
                };
                self.number(id, *base, *digits_max, front, ahead);
            }
            FieldKind::Bits { of, shift, width } => self.bits(id, *of, *shift, *width),
            FieldKind::Text { class, until, min_bytes, max_bytes, trim, cut, .. } => {
                let text = Text {
                    class: *class,
                    until: until.as_deref(),
                    min_bytes: *min_bytes,
                    max_bytes: *max_bytes,
                    trim: *trim,
                    cut: *cut,
                };
                self.text(id, text, ahead);
            }
            FieldKind::Bytes { length, max_bytes, .. } => self.bytes(id, length, *max_bytes, behind),
            FieldKind::Var { parse, sum: None, .. } => self.var(id, parse),
            // It is set where its list begins.
            FieldKind::Var { sum: Some(_), .. } | FieldKind::Full { .. } => {}
            FieldKind::Carried => self.carried(id),
            FieldKind::Flag { parse, any } => {
                if any.is_none() && self.needs.has(SlotKey::Field(id)) {
                    let value = self.body.expr(parse).bool();
                    self.keep(SlotKey::Field(id), value);
                }
            }
            FieldKind::TextVar { .. } | FieldKind::Kept => {}
            FieldKind::ToClose { .. } => self.until_close(),
            FieldKind::List(list) => self.list(id, list),
        }
    }

    /// A variable: computed where it stands, if anybody reads it.
    fn var(&mut self, id: FieldId, parse: &Expr) {
        if !self.needs.has(SlotKey::Field(id)) {
            return;
        }
        let num = self.number_of(parse);
        let range = self.info.range(id);
        let num = self.body.check_range(num, range, id.0, self.info.field(id).cause);
        let num = self.body.narrow(num);
        let value = self.body.as_kind(num.value(), self.info.key_type(SlotKey::Field(id)));
        self.keep(SlotKey::Field(id), value);
        self.requires(id, Val::Num(Num::one(value, num.range)));
    }

    /// Reads the number that the request before carries: only requests follow one another.
    fn carried(&mut self, id: FieldId) {
        if !self.needs.has(SlotKey::Field(id)) {
            return;
        }
        let value = match self.role {
            Role::Request => self.get(SLOT_CARRIED),
            Role::Reply => self.body.f.int(0),
        };
        let value = self.body.as_kind(value, self.info.key_type(SlotKey::Field(id)));
        self.keep(SlotKey::Field(id), value);
        self.requires(id, Val::Num(Num::one(value, self.info.range(id))));
    }

    /// A number; a boolean is 1 or 0.
    fn number_of(&mut self, expr: &Expr) -> Num {
        match self.body.expr(expr) {
            Val::Bool(value) => Num::one(self.body.f.bool_to_int(value), Interval::new(0, 1)),
            val => val.num(),
        }
    }

    /// Whether nothing from here on is looked at behind the parser.
    fn is_in_tail(&self) -> bool {
        self.index >= self.needs.tail
    }
}
