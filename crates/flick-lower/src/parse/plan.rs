//! Plans the steps of a parser and their order, before any instruction is emitted.
//! Promises: a field is decoded only if the channel's view, the grammar's facts for the role, a check or the
//! length of the message asks for it; every check runs as soon as what it reads is there; the order depends on
//! the grammar alone, so any split of the input gives the same answer.
//! Refuses: grammars whose lengths depend on later fields; the checker finds those.
//! Source: FLICK §4.2; RELIABILITY P1 (split invariance), P4 (progress).

use std::collections::BTreeSet;

use flick_check::hir::{Channel, Expr, ExprKind, Facts, FieldId, FieldKind};
use flick_check::walk;

use crate::unit::{SlotKey, UnitInfo};
use crate::walk::{conjuncts, keys_of};

/// The sender of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client: `%request` must hold.
    Request,
    /// A backend: `%reply` must hold.
    Reply,
}

/// One step of a parser.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanStep {
    /// This many bytes from the cursor must be there.
    Need {
        /// Bytes.
        bytes: u32,
    },
    /// Reads an integer.
    Load {
        /// The field.
        field: FieldId,
        /// Offset of the field from the cursor, in bytes.
        offset: u32,
    },
    /// All echo fields are decoded.
    EchoReady,
    /// This part of the role's fact (`%request`, `%reply`) must hold.
    RoleCheck(usize),
    /// Computes a variable.
    Var(FieldId),
    /// Computes the length of a bytes field and checks it.
    Length(FieldId),
    /// A part of the `&requires` of a field must hold.
    Requires(FieldId, usize),
    /// Sets the message's flags.
    Flags,
    /// Sets what to write into the non-quiet field.
    Loud,
    /// Sets the lengths of message and head.
    Totals,
    /// A bytes field that is read: all of it must be there. The cursor moves behind it.
    Take {
        /// The field.
        field: FieldId,
        /// Offset of the field from the cursor, in bytes.
        offset: u32,
    },
    /// Reads the first byte of a variable-length integer, which says how long it is.
    VintLead {
        /// The field.
        field: FieldId,
        /// Offset of the field from the cursor, in bytes.
        offset: u32,
    },
    /// A variable-length integer: all of it must be there. The cursor moves behind it.
    Vint {
        /// The field.
        field: FieldId,
        /// Offset of the field from the cursor, in bytes.
        offset: u32,
    },
    /// An unread bytes field before one that is read. The cursor moves behind it.
    Skip {
        /// The field.
        field: FieldId,
        /// Offset of the field from the cursor, in bytes.
        offset: u32,
    },
}

/// The plan of a parser.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In order.
    pub steps: Vec<PlanStep>,
    /// The slots that must be in the frame when the parser is done.
    pub persistent: BTreeSet<SlotKey>,
    /// The last field that must lie in the head.
    pub head_end: Option<FieldId>,
}

/// Returns the conditions on messages of a role. Each part is checked as soon as the fields that it reads have arrived.
pub fn role_checks<'p>(info: &UnitInfo<'p>, role: Role) -> Vec<&'p Expr> {
    let fact = match role {
        Role::Request => &info.unit.facts.request,
        Role::Reply => &info.unit.facts.reply,
    };
    fact.iter().flat_map(conjuncts).collect()
}

/// Returns the conditions on a field, part by part.
pub fn field_checks<'p>(info: &UnitInfo<'p>, field: FieldId) -> Vec<&'p Expr> {
    info.field(field).requires.iter().flat_map(conjuncts).collect()
}

/// Collects the slots that later code reads from the frame: those of the view, of the platform and of updates.
pub fn persistent_keys(info: &UnitInfo<'_>, role: Role, channel: &Channel) -> BTreeSet<SlotKey> {
    let facts = &info.unit.facts;
    let mut keys: BTreeSet<SlotKey> = channel.view.iter().map(|known| SlotKey::Field(known.field)).collect();
    keys.extend(&info.update_needs);
    match role {
        Role::Request => keys.extend(info.echo().into_iter().map(SlotKey::Field)),
        Role::Reply => {
            let loud = facts.loud.iter().map(|(field, _)| *field);
            let own = facts.correlate.into_iter().chain(loud);
            keys.extend(own.chain(facts.repeats.iter().copied()).map(SlotKey::Field));
            keys.extend(facts.silent.iter().chain(&facts.more).flat_map(keys_of));
        }
    }
    keys.into_iter().map(|key| info.canonical(key)).collect()
}

/// Lists the facts that are flags of a request.
fn request_flags(facts: &Facts) -> impl Iterator<Item = &Expr> {
    facts.ends.iter().chain(&facts.mute).chain(&facts.stateful)
}

/// The fields that are decoded or computed.
fn needed(info: &UnitInfo<'_>, role: Role, channel: &Channel) -> BTreeSet<FieldId> {
    let facts = &info.unit.facts;
    let mut open: Vec<SlotKey> = persistent_keys(info, role, channel).into_iter().collect();
    open.extend(role_checks(info, role).into_iter().flat_map(keys_of));
    if role == Role::Request {
        let loud = facts.loud.iter().map(|(_, expr)| expr);
        open.extend(request_flags(facts).chain(loud).flat_map(keys_of));
    }
    for (id, field) in info.fields() {
        match field.kind {
            FieldKind::Bytes { .. } => open.push(SlotKey::Length(id)),
            FieldKind::Vint { .. } => open.push(SlotKey::Field(id)),
            _ => {}
        }
        for check in field_checks(info, id) {
            open.extend(check_keys(id, check));
        }
    }
    let mut needed = BTreeSet::new();
    let mut lengths = BTreeSet::new();
    while let Some(key) = open.pop() {
        match key {
            SlotKey::Field(id) if needed.insert(id) => match &info.field(id).kind {
                FieldKind::Var { parse, .. } => open.extend(keys_of(parse)),
                FieldKind::Bytes { .. } => open.push(SlotKey::Length(id)),
                FieldKind::Int { .. } | FieldKind::Vint { .. } => {}
                _ => panic!("the checker makes no field of a structured unit yet"),
            },
            SlotKey::Length(id) if lengths.insert(id) => match &info.field(id).kind {
                FieldKind::Bytes { length, .. } => open.extend(keys_of(length)),
                FieldKind::Vint { .. } => open.push(SlotKey::Field(id)),
                _ => panic!("the checker allows the length of bytes only"),
            },
            _ => {}
        }
    }
    needed
}

/// Collects the slots that a `&requires` of `field` reads, with the field itself if it has `$$`.
fn check_keys(field: FieldId, check: &Expr) -> Vec<SlotKey> {
    let mut keys = keys_of(check);
    walk::expr(check, &mut |inner| {
        if matches!(inner.kind, ExprKind::Dollar) {
            keys.push(SlotKey::Field(field));
        }
    });
    if keys.is_empty() {
        keys.push(SlotKey::Field(field));
    }
    keys
}

/// Plans the parser of `channel` for messages of `role`.
pub fn plan(info: &UnitInfo<'_>, role: Role, channel: &Channel) -> Plan {
    let needed = needed(info, role, channel);
    let on_wire = |id: &FieldId| !matches!(info.field(*id).kind, FieldKind::Var { .. });
    let head_end = needed.iter().copied().filter(on_wire).max();
    let mut planner = Planner {
        info,
        steps: Vec::new(),
        known: BTreeSet::new(),
        waiting: waiting_steps(info, role, &needed),
        loads: Vec::new(),
    };
    let mut fixed = 0;
    for (id, field) in info.fields() {
        if head_end.is_none_or(|end| id > end) {
            break;
        }
        match &field.kind {
            FieldKind::Var { .. } => {}
            FieldKind::Int { repr, .. } => {
                let width = u32::from(repr.width_bytes);
                if needed.contains(&id) {
                    planner.loads.push((id, fixed, width));
                }
                fixed += width;
            }
            FieldKind::Bytes { .. } => {
                planner.flush();
                planner.bytes(id, fixed, needed.contains(&id));
                fixed = 0;
            }
            FieldKind::Vint { .. } => {
                planner.flush();
                planner.vint(id, fixed);
                fixed = 0;
            }
            _ => panic!("the checker makes no field of a structured unit yet"),
        }
    }
    planner.flush();
    planner.run_ready();
    assert!(planner.waiting.is_empty(), "what a parser of `{}` needs is decoded at its end", info.unit.name);
    let persistent = persistent_keys(info, role, channel);
    Plan { steps: planner.steps, persistent, head_end }
}

/// Steps that wait for what they read, in the order in which they run when several are ready.
fn waiting_steps(
    info: &UnitInfo<'_>,
    role: Role,
    needed: &BTreeSet<FieldId>,
) -> Vec<(PlanStep, Vec<SlotKey>)> {
    let facts = &info.unit.facts;
    let mut waiting = Vec::new();
    if role == Role::Request && !info.echo().is_empty() {
        waiting.push((PlanStep::EchoReady, info.echo().into_iter().map(SlotKey::Field).collect()));
    }
    for (index, check) in role_checks(info, role).into_iter().enumerate() {
        waiting.push((PlanStep::RoleCheck(index), keys_of(check)));
    }
    let mut lengths = Vec::new();
    for (id, field) in info.fields() {
        match &field.kind {
            FieldKind::Var { parse, .. } if needed.contains(&id) => {
                waiting.push((PlanStep::Var(id), keys_of(parse)));
            }
            FieldKind::Bytes { length, .. } => {
                waiting.push((PlanStep::Length(id), keys_of(length)));
                lengths.push(SlotKey::Length(id));
            }
            FieldKind::Vint { .. } => lengths.push(SlotKey::Length(id)),
            _ => {}
        }
        for (index, check) in field_checks(info, id).into_iter().enumerate() {
            waiting.push((PlanStep::Requires(id, index), check_keys(id, check)));
        }
    }
    if role == Role::Request {
        if request_flags(facts).next().is_some() {
            waiting.push((PlanStep::Flags, request_flags(facts).flat_map(keys_of).collect()));
        }
        if let Some((_, expr)) = &facts.loud {
            waiting.push((PlanStep::Loud, keys_of(expr)));
        }
    }
    waiting.push((PlanStep::Totals, lengths));
    waiting
}

struct Planner<'a, 'p> {
    info: &'a UnitInfo<'p>,
    steps: Vec<PlanStep>,
    known: BTreeSet<SlotKey>,
    waiting: Vec<(PlanStep, Vec<SlotKey>)>,
    /// Integers of the current segment: field, offset, width.
    loads: Vec<(FieldId, u32, u32)>,
}

impl Planner<'_, '_> {
    /// Decodes the integers of the current segment: first those up to the first check, then the others.
    fn flush(&mut self) {
        let prefix = (1..self.loads.len()).find(|&len| self.check_is_ready_after(len));
        if let Some(len) = prefix {
            let rest = self.loads.split_off(len);
            self.flush_all();
            self.loads = rest;
        }
        self.flush_all();
    }

    fn flush_all(&mut self) {
        if let Some(&(_, offset, width)) = self.loads.last() {
            self.steps.push(PlanStep::Need { bytes: offset + width });
        }
        for (field, offset, _) in std::mem::take(&mut self.loads) {
            self.steps.push(PlanStep::Load { field, offset });
            self.known.insert(SlotKey::Field(field));
        }
        self.run_ready();
    }

    /// Whether the first `len` integers of the segment suffice for a check that has not run.
    fn check_is_ready_after(&self, len: usize) -> bool {
        let loaded: BTreeSet<SlotKey> =
            self.loads[..len].iter().map(|(field, ..)| SlotKey::Field(*field)).collect();
        self.waiting.iter().any(|(step, reads)| {
            matches!(step, PlanStep::RoleCheck(_) | PlanStep::Requires(..))
                && reads.iter().all(|key| self.known.contains(key) || loaded.contains(key))
        })
    }

    fn run_ready(&mut self) {
        while let Some(index) = self.waiting.iter().position(|(_, reads)| self.all_known(reads)) {
            let (step, _) = self.waiting.remove(index);
            match step {
                PlanStep::Var(field) => _ = self.known.insert(SlotKey::Field(field)),
                PlanStep::Length(field) => _ = self.known.insert(SlotKey::Length(field)),
                _ => {}
            }
            self.steps.push(step);
        }
    }

    fn all_known(&self, reads: &[SlotKey]) -> bool {
        reads.iter().all(|key| self.known.contains(key))
    }

    fn vint(&mut self, field: FieldId, offset: u32) {
        self.steps.push(PlanStep::Need { bytes: offset + 1 });
        self.steps.push(PlanStep::VintLead { field, offset });
        self.steps.push(PlanStep::Vint { field, offset });
        self.known.extend([SlotKey::Length(field), SlotKey::Field(field)]);
        self.run_ready();
    }

    fn bytes(&mut self, field: FieldId, offset: u32, is_read: bool) {
        let name = &self.info.unit.name;
        assert!(
            self.known.contains(&SlotKey::Length(field)),
            "a length in `{name}` depends on earlier fields"
        );
        if is_read {
            self.steps.push(PlanStep::Take { field, offset });
            self.known.insert(SlotKey::Field(field));
            self.run_ready();
        } else {
            self.steps.push(PlanStep::Skip { field, offset });
        }
    }
}

impl Plan {
    /// Returns the values that are written to the frame as soon as they are known: those that persist, and those that
    /// are read after a cut.
    pub fn stored(&self, info: &UnitInfo<'_>, role: Role) -> BTreeSet<SlotKey> {
        let mut stored = self.persistent.clone();
        let mut found = BTreeSet::new();
        for (index, step) in self.steps.iter().enumerate() {
            if matches!(step, PlanStep::Need { .. } | PlanStep::Take { .. } | PlanStep::Vint { .. }) {
                stored.extend(self.live_after(info, role, index).intersection(&found));
            }
            found.extend(step.defines().into_iter().map(|key| info.canonical(key)));
        }
        stored
    }

    /// Returns the canonical keys of the values that the steps from `index` on read and earlier steps define.
    pub fn live_after(&self, info: &UnitInfo<'_>, role: Role, index: usize) -> BTreeSet<SlotKey> {
        let mut live = BTreeSet::new();
        for step in self.steps[index..].iter().rev() {
            for key in step.defines() {
                live.remove(&info.canonical(key));
            }
            live.extend(step.reads(info, role).into_iter().map(|key| info.canonical(key)));
        }
        live
    }
}

impl PlanStep {
    fn defines(&self) -> Vec<SlotKey> {
        match self {
            PlanStep::Load { field, .. }
            | PlanStep::Var(field)
            | PlanStep::Take { field, .. }
            | PlanStep::Vint { field, .. } => vec![SlotKey::Field(*field)],
            PlanStep::Length(field) => vec![SlotKey::Length(*field)],
            PlanStep::VintLead { field, .. } => vec![SlotKey::Lead(*field), SlotKey::Length(*field)],
            _ => Vec::new(),
        }
    }

    fn reads(&self, info: &UnitInfo<'_>, role: Role) -> Vec<SlotKey> {
        let facts = &info.unit.facts;
        match self {
            PlanStep::Need { .. }
            | PlanStep::Load { .. }
            | PlanStep::EchoReady
            | PlanStep::VintLead { .. } => Vec::new(),
            PlanStep::Vint { field, .. } => vec![SlotKey::Lead(*field), SlotKey::Length(*field)],
            PlanStep::RoleCheck(index) => keys_of(role_checks(info, role)[*index]),
            PlanStep::Var(field) => match &info.field(*field).kind {
                FieldKind::Var { parse, .. } => keys_of(parse),
                _ => Vec::new(),
            },
            PlanStep::Length(field) => match &info.field(*field).kind {
                FieldKind::Bytes { length, .. } => keys_of(length),
                _ => Vec::new(),
            },
            PlanStep::Requires(field, index) => check_keys(*field, field_checks(info, *field)[*index]),
            PlanStep::Flags => request_flags(facts).flat_map(keys_of).collect(),
            PlanStep::Loud => facts.loud.iter().flat_map(|(_, expr)| keys_of(expr)).collect(),
            PlanStep::Totals => info
                .fields()
                .map(|(id, _)| id)
                .filter(|id| info.has_length(*id))
                .map(SlotKey::Length)
                .collect(),
            PlanStep::Take { field, .. } | PlanStep::Skip { field, .. } => vec![SlotKey::Length(*field)],
        }
    }
}
