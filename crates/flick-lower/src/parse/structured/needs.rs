//! The values that a parser of a structured unit must keep, and the position after which it reads nothing.
//! Promises: a key is kept only if the channel's view, a fact for the role, an update or the framing itself reads it.
//! Source: FLICK §4.2 (unread fields are never decoded).

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{
    Channel, DecodedField, Expr, ExprKind, FieldId, FieldKind, ForwardTarget, Item, Keyed, List, ListEnd,
};
use flick_check::walk;

use super::forwarded::long_field;
use crate::parse::plan::{Role, role_checks};
use crate::unit::{SlotKey, UnitInfo};
use crate::walk::keys_of;

/// Further values of a key that names what is cut, besides the first.
pub const FURTHER_MAX: u32 = 3;

/// The values that a parser keeps.
#[derive(Debug)]
pub struct Needs {
    /// Keys that have slots.
    pub kept: BTreeSet<SlotKey>,
    /// Fields that an expression, the view or code behind the parser reads, besides lookups by key.
    pub read: BTreeSet<FieldId>,
    /// Lists whose elements become items.
    pub read_lists: BTreeSet<FieldId>,
    /// Fields of the view, by number.
    pub view: BTreeMap<FieldId, DecodedField>,
    /// Limits that an operator sets: of strings in bytes, of lists in elements.
    pub limits: BTreeMap<FieldId, u32>,
    /// Flags that are kept and follow from a key: flag, list, key.
    pub flags: Vec<(FieldId, FieldId, u32)>,
    /// Variables that are kept and summed over elements: variable, list.
    pub sums: Vec<(FieldId, FieldId)>,
    /// Variables that are kept and say that a list is full: variable, list.
    pub full: Vec<(FieldId, FieldId)>,
    /// Lists that end when they are full, as the program looks at what says so.
    pub cut_short: BTreeSet<FieldId>,
    /// Index of the first item, in the order of the text, behind all that rules and the platform read.
    pub tail: usize,
}

impl Needs {
    /// Finds them.
    pub fn new(info: &UnitInfo<'_>, body: &[Item], role: Role, channel: &Channel) -> Self {
        let view: BTreeMap<FieldId, DecodedField> =
            channel.view.iter().map(|field| (field.field, *field)).collect();
        let read_lists: BTreeSet<FieldId> =
            view.keys().copied().filter(|id| is_read_list(info, *id)).collect();
        let mut outside = outside_keys(info, role, &view, &read_lists);
        outside.extend(channel.keys.iter().map(|(list, key)| SlotKey::At(*list, *key)));
        let mut finder = Finder { info, kept: BTreeSet::new(), open: Vec::new(), read: BTreeSet::new() };
        finder.read.extend(outside.iter().map(|key| key.id()));
        finder.open.extend(&outside);
        finder.items(body, &read_lists);
        finder.close();
        let optional = |id: &FieldId| view.get(id).is_some_and(|field| field.optional);
        let mut last_uses = LastUses { info, last: BTreeMap::new(), count: 0 };
        last_uses.items(body);
        let last = outside
            .iter()
            .filter(|key| !matches!(key, SlotKey::Field(id) if optional(id)))
            .filter_map(|key| last_uses.last.get(&key.id()))
            .max();
        let tail = last.map_or(0, |index| index + 1);
        let mut flags = flags_of(info, body);
        flags.retain(|(flag, ..)| finder.kept.contains(&SlotKey::Field(*flag)));
        let mut sums = sums_of(info, body);
        sums.retain(|(var, _)| finder.kept.contains(&SlotKey::Field(*var)));
        let mut full = full_of(info, body);
        full.retain(|(var, _)| finder.kept.contains(&SlotKey::Field(*var)));
        let is_looked_at = |(var, _): &&(FieldId, FieldId)| role == Role::Request && view.contains_key(var);
        let cut_short = full.iter().filter(is_looked_at).map(|(_, list)| *list).collect();
        let is_from_client = role == Role::Request && channel.receives == Some(info.id);
        let limits = info.unit.facts.request_limits.iter().filter(|_| is_from_client);
        let limits = limits.copied().collect();
        let Finder { kept, read, .. } = finder;
        Self { limits, kept, read, read_lists, view, flags, sums, full, cut_short, tail }
    }

    /// Whether a key has a slot.
    pub fn has(&self, key: SlotKey) -> bool {
        self.kept.contains(&key)
    }

    /// Whether the channel's view makes an option of a field.
    pub fn is_optional(&self, field: FieldId) -> bool {
        self.view.get(&field).is_some_and(|field| field.optional)
    }

    /// The bound that the channel's view or an operator sets to a field.
    pub fn view_max(&self, field: FieldId) -> Option<u32> {
        let of_view = self.view.get(&field).and_then(|field| field.max);
        of_view.into_iter().chain(self.limits.get(&field).copied()).min()
    }

    /// The maximum number of elements of a list.
    pub fn elements_max(&self, id: FieldId, list: &List) -> Option<u32> {
        list.max.into_iter().chain(self.limits.get(&id).copied()).min()
    }
}

/// Whether a program that has this field in its view looks at the elements of a list one by one.
fn is_read_list(info: &UnitInfo<'_>, field: FieldId) -> bool {
    match &info.field(field).kind {
        FieldKind::List(list) => list.keyed.is_none() || info.uses.read.contains(&field),
        _ => false,
    }
}

/// Collects the slots that later code reads from the frame, and those that the facts for the role read.
fn outside_keys(
    info: &UnitInfo<'_>,
    role: Role,
    view: &BTreeMap<FieldId, DecodedField>,
    read_lists: &BTreeSet<FieldId>,
) -> BTreeSet<SlotKey> {
    let facts = &info.unit.facts;
    let mut keys: BTreeSet<SlotKey> = info.update_needs.clone();
    for id in view.keys() {
        match &info.field(*id).kind {
            FieldKind::TextVar { parse, .. } => keys.extend(text_var_keys(info, parse)),
            FieldKind::List(_) if !read_lists.contains(id) => {}
            _ => _ = keys.insert(SlotKey::Field(*id)),
        }
    }
    keys.extend(info.uses.read_keys.iter().map(|(list, key)| SlotKey::At(*list, *key)));
    for (list, _) in &info.uses.changed_keys {
        keys.extend([SlotKey::Field(*list), SlotKey::Start(*list), SlotKey::End(*list)]);
    }
    for forward in &facts.forwards {
        keys.extend(forward.exprs().flat_map(keys_of));
        match forward.target {
            ForwardTarget::Field(id, _) => keys.extend([SlotKey::Start(id), SlotKey::End(id)]),
            ForwardTarget::Key(list, key) => {
                keys.extend([SlotKey::Start(list), SlotKey::End(list)]);
                let is_cut = |keyed: &Keyed| keyed.cut.contains(&key);
                let FieldKind::List(declared) = &info.field(list).kind else { continue };
                if forward.value.is_some() && !declared.keyed.as_ref().is_some_and(is_cut) {
                    keys.insert(SlotKey::At(list, key));
                }
            }
        }
    }
    keys.extend(role_checks(info, role).into_iter().flat_map(keys_of));
    let mut exprs: Vec<&Expr> = facts.last.iter().collect();
    match role {
        Role::Request => {
            keys.extend(facts.logged.iter().map(|(list, key)| SlotKey::At(*list, *key)));
            keys.extend(info.echo().into_iter().map(SlotKey::Field));
            exprs.extend(facts.ends.iter().chain(&facts.mute).chain(&facts.keep).chain(&facts.carry));
            exprs.extend(facts.retry.iter().chain(&facts.whole).chain(&facts.stateful));
            exprs.extend(facts.loud.iter().map(|(_, expr)| expr));
        }
        Role::Reply => {
            let loud = facts.loud.iter().map(|(field, _)| *field);
            let own = facts.correlate.into_iter().chain(loud);
            keys.extend(own.chain(facts.repeats.iter().copied()).map(SlotKey::Field));
            exprs.extend(facts.silent.iter().chain(&facts.more).chain(&facts.tunnel));
            exprs.extend(facts.closes.iter().chain(&facts.failed));
            exprs.extend(&facts.status);
        }
    }
    keys.extend(exprs.into_iter().flat_map(keys_of));
    keys.into_iter().flat_map(|key| text_keys(info, key)).collect()
}

/// Collects the slots that a text variable is computed from, through other text variables.
fn text_var_keys(info: &UnitInfo<'_>, parse: &Expr) -> Vec<SlotKey> {
    keys_of(parse).into_iter().flat_map(|key| text_keys(info, key)).collect()
}

/// A key, or what stands for it where it is a text variable, which no parser computes.
fn text_keys(info: &UnitInfo<'_>, key: SlotKey) -> Vec<SlotKey> {
    match key {
        SlotKey::Field(id) | SlotKey::Length(id) => match &info.field(id).kind {
            FieldKind::TextVar { parse, .. } => text_var_keys(info, parse),
            _ => vec![key],
        },
        _ => vec![key],
    }
}

/// Flags that follow from keys of lists, by list.
fn flags_of(info: &UnitInfo<'_>, body: &[Item]) -> Vec<(FieldId, FieldId, u32)> {
    let mut found = Vec::new();
    each_field(info, body, &mut |id| {
        if let FieldKind::Flag { any: Some((list, key)), .. } = &info.field(id).kind {
            found.push((id, *list, *key));
        }
    });
    found
}

/// Variables that are summed over the elements of lists.
fn sums_of(info: &UnitInfo<'_>, body: &[Item]) -> Vec<(FieldId, FieldId)> {
    let mut found = Vec::new();
    each_field(info, body, &mut |id| {
        if let FieldKind::Var { sum: Some(list), .. } = &info.field(id).kind {
            found.push((id, *list));
        }
    });
    found
}

/// Variables that say that a list is full.
fn full_of(info: &UnitInfo<'_>, body: &[Item]) -> Vec<(FieldId, FieldId)> {
    let mut found = Vec::new();
    each_field(info, body, &mut |id| {
        if let FieldKind::Full { list } = &info.field(id).kind {
            found.push((id, *list));
        }
    });
    found
}

/// Calls `visit` on every field of a row, elements of lists and arms of choices among them.
pub fn each_field(info: &UnitInfo<'_>, items: &[Item], visit: &mut dyn FnMut(FieldId)) {
    for item in items {
        match item {
            Item::Field(id) => {
                visit(*id);
                if let FieldKind::List(list) = &info.field(*id).kind {
                    each_field(info, &list.body, visit);
                }
            }
            Item::Switch(choice) => {
                let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                arms.for_each(|items| each_field(info, items, visit));
            }
            Item::Literal(_) | Item::Check(_) => {}
        }
    }
}

/// The position of each field, as an index in the order of the text; of a list, the position of its end.
struct LastUses<'a, 'p> {
    info: &'a UnitInfo<'p>,
    last: BTreeMap<FieldId, usize>,
    count: usize,
}

impl LastUses<'_, '_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            let own = self.count;
            self.count += 1;
            match item {
                Item::Field(id) => {
                    if let FieldKind::List(list) = &self.info.field(*id).kind {
                        self.items(&list.body);
                        // Behind all of it: code that reads elements needs the last one whole.
                        self.last.insert(*id, self.count);
                    } else {
                        self.last.insert(*id, own);
                    }
                }
                Item::Switch(choice) => {
                    let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                    arms.for_each(|items| self.items(items));
                }
                Item::Literal(_) | Item::Check(_) => {}
            }
        }
    }
}

struct Finder<'a, 'p> {
    info: &'a UnitInfo<'p>,
    kept: BTreeSet<SlotKey>,
    open: Vec<SlotKey>,
    /// Fields that expressions read, and elements of lists that are read.
    read: BTreeSet<FieldId>,
}

impl Finder<'_, '_> {
    /// Notes the slots that the framing of a row reads.
    fn items(&mut self, items: &[Item], read_lists: &BTreeSet<FieldId>) {
        for item in items {
            match item {
                Item::Field(id) => self.field(*id, read_lists),
                Item::Literal(_) => {}
                Item::Check(check) => self.expr(&check.expr),
                Item::Switch(choice) => {
                    self.expr(&choice.on);
                    let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                    arms.for_each(|items| self.items(items, read_lists));
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        let keys = keys_of(expr);
        self.read.extend(keys.iter().map(|key| key.id()));
        self.open.extend(keys);
    }

    fn field(&mut self, id: FieldId, read_lists: &BTreeSet<FieldId>) {
        let field = self.info.field(id);
        for check in &field.requires {
            self.expr(check);
            walk::expr(check, &mut |inner| {
                if matches!(inner.kind, ExprKind::Dollar) {
                    self.open.push(SlotKey::Field(id));
                }
            });
        }
        match &field.kind {
            FieldKind::Bytes { length, .. } => self.expr(length),
            FieldKind::List(list) => self.list(id, list, read_lists.contains(&id)),
            _ => {}
        }
        if let FieldKind::List(list) = &field.kind {
            self.items(&list.body, read_lists);
        }
    }

    fn list(&mut self, id: FieldId, list: &List, is_read: bool) {
        match &list.end {
            ListEnd::Until(_) => {}
            ListEnd::Last(last) => self.expr(last),
            ListEnd::Count(expr) | ListEnd::Bytes(expr) | ListEnd::Children(expr) => {
                self.expr(expr);
                self.open.push(SlotKey::Rest(id));
            }
        }
        if list.max.is_some() && !matches!(list.end, ListEnd::Count(_)) {
            self.open.push(SlotKey::Seen(id));
        }
        if is_read {
            self.open.push(SlotKey::Field(id));
            match list.element {
                Some(element) => {
                    self.read.insert(element);
                    self.open.push(SlotKey::Field(element));
                }
                None => self.open.push(SlotKey::Element(id)),
            }
        }
        if let Some(keyed) = &list.keyed {
            self.keyed(id, list, keyed);
        }
        if let Some(bare) = &list.bare {
            self.expr(bare);
            self.open.push(SlotKey::Element(id));
            let long = long_field(self.info, list);
            self.open.extend(long.into_iter().flat_map(|long| [SlotKey::Start(long), SlotKey::End(long)]));
        }
    }

    fn keyed(&mut self, id: FieldId, list: &List, keyed: &Keyed) {
        self.open.extend(keyed.once.iter().map(|key| SlotKey::At(id, *key)));
        if let Some(listed) = keyed.cut_listed {
            self.open.extend([SlotKey::At(id, listed), SlotKey::Start(id), SlotKey::End(id)]);
            self.open.extend((0..FURTHER_MAX).map(|number| SlotKey::Further(id, number)));
        }
        let changes = self.info.uses.changed_keys.iter().any(|(changed, _)| *changed == id);
        if !keyed.cut.is_empty() || changes {
            self.open.extend([SlotKey::Which(id), SlotKey::Element(id)]);
        }
        if changes {
            self.open.push(SlotKey::Field(keyed.key));
        }
        if let Some(keep) = &keyed.keep_cut {
            assert!(matches!(list.end, ListEnd::Until(_) | ListEnd::Last(_)), "cuts are counted in `Rest`");
            self.expr(keep);
            self.open.push(SlotKey::Rest(id));
        }
    }

    /// Follows what is kept to what it is computed from.
    fn close(&mut self) {
        while let Some(key) = self.open.pop() {
            if !self.kept.insert(key) {
                continue;
            }
            match key {
                SlotKey::Field(id) => self.value(id),
                SlotKey::Length(id) if matches!(self.info.field(id).kind, FieldKind::List(_)) => {
                    self.open.push(SlotKey::Seen(id));
                }
                SlotKey::At(list, _) => {
                    let FieldKind::List(own) = &self.info.field(list).kind else {
                        panic!("only lists are looked into by key")
                    };
                    let keyed = own.keyed.as_ref().expect("only keyed lists are looked into by key");
                    self.open.extend([SlotKey::Field(keyed.value), SlotKey::Which(list)]);
                }
                _ => {}
            }
        }
    }

    fn value(&mut self, id: FieldId) {
        match &self.info.field(id).kind {
            FieldKind::Var { parse, .. } | FieldKind::Flag { parse, any: None } => self.expr(parse),
            FieldKind::Flag { parse, any: Some((list, key)) } => {
                let own = SlotKey::At(*list, *key);
                self.open.extend(keys_of(parse).into_iter().filter(|key| *key != own));
                // The value of each occurrence, whether or not the first is kept.
                self.open.push(SlotKey::Which(*list));
                if let FieldKind::List(list) = &self.info.field(*list).kind
                    && let Some(keyed) = &list.keyed
                {
                    self.open.push(SlotKey::Field(keyed.value));
                }
            }
            FieldKind::TextVar { parse, .. } => {
                self.kept.remove(&SlotKey::Field(id));
                self.open.extend(text_var_keys(self.info, parse));
            }
            _ => {}
        }
    }
}

/// Items of a row's item, itself, those of elements and arms among them.
pub fn count(info: &UnitInfo<'_>, item: &Item) -> usize {
    let inside = |items: &[Item]| items.iter().map(|item| count(info, item)).sum::<usize>();
    1 + match item {
        Item::Field(id) => match &info.field(*id).kind {
            FieldKind::List(list) => inside(&list.body),
            _ => 0,
        },
        Item::Switch(choice) => {
            let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
            arms.map(|items| inside(items)).sum()
        }
        Item::Literal(_) | Item::Check(_) => 0,
    }
}
