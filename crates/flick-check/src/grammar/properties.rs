//! Properties of a unit: what the platform must know to carry its messages.
//! Promises: every property has the type that the platform expects; fields that are kept have fixed offsets.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use super::with_exprs;
use crate::diagnostic::Sink;
use crate::expr::{Exprs, GrammarScope, Purpose};
use crate::hir::{Expr, ExprKind, Facts, Field, FieldId, FieldKind, Item, ListEnd, Span, Ty, Unit, UnitId};
use crate::items::{InFile, Items, TypeItem};
use crate::limits::VINT_BYTES_MAX;
use crate::load::span_of;
use crate::report;
use crate::units;
use flick_abi::FailureReason;
use flick_abi::limits::{ECHO_FIELDS_MAX, FAILURE_BYTES_MAX, STATUS_MAX};

pub(super) fn check(unit: UnitId, decl: &InFile<ast::UnitDecl>, items: &mut Items, sink: &mut Sink) {
    let mut reader =
        PropertyReader { unit, file: decl.file, items, sink, facts: Facts::default(), carry: None };
    let named = |property: &ast::UnitProperty| property.name().is_some_and(|name| name.text() == "replies");
    let replies = decl.node.properties().find(named).and_then(|property| property.value());
    reader.facts.replies = replies.and_then(|value| reader.replies(&value));
    let mut seen: Vec<(String, Span)> = Vec::new();
    let mut responses = Vec::new();
    for property in decl.node.properties() {
        let Some(name) = property.name() else { continue };
        let span = span_of(decl.file, property.range());
        let key = match property.qualifier() {
            Some(qualifier) => format!("{} {}", name.text(), qualifier.text()),
            None => name.text().to_owned(),
        };
        if let Some((_, first)) = seen.iter().find(|(known, _)| *known == key && name.text() != "echo") {
            reader.sink.push(report::names::duplicate(span, "property", &key, first.clone()));
            continue;
        }
        seen.push((key, span));
        if name.text() == "on" {
            responses.push(property);
        } else {
            reader.property(&property, &name);
        }
    }
    reader.add_implicit_echoes(span_of(decl.file, decl.node.range()));
    for error_response in responses {
        reader.error_response(&error_response);
    }
    let (mut facts, carry) = (reader.facts, reader.carry);
    // Replies come in the order of their requests, unless `%correlate` is given.
    facts.in_order |= facts.replies.is_some() || facts.exclusive;
    if let Some(span) = carry.filter(|_| !facts.in_order) {
        sink.push(report::grammar::carry_without_replies(span));
    }
    items.units[unit.0 as usize].facts = facts;
}

struct PropertyReader<'a> {
    unit: UnitId,
    file: u32,
    items: &'a Items,
    sink: &'a mut Sink,
    facts: Facts,
    /// Location of `%carry`.
    carry: Option<Span>,
}

impl PropertyReader<'_> {
    fn property(&mut self, property: &ast::UnitProperty, name: &ast::Name) {
        let name_span = span_of(self.file, name.range());
        match name.text() {
            "byteorder" => {}
            "order" => {
                let is_in_order = matches!(property.value(), Some(ast::Expr::Name(word)) if word.name().is_some_and(|word| word.text() == "in_order"));
                if let (false, Some(value)) = (is_in_order, property.value()) {
                    let span = span_of(self.file, value.range());
                    self.sink.push(report::grammar::bad_fact(
                        span,
                        "order",
                        "`in_order`",
                        "%order = in_order;",
                    ));
                }
                self.facts.in_order = true;
            }
            "request" => self.facts.request = self.truth(property, "request"),
            "reply" => self.facts.reply = self.truth(property, "reply"),
            "ends" => self.facts.ends = self.truth(property, "ends"),
            "mute" => self.facts.mute = self.truth(property, "mute"),
            "stateful" => self.facts.stateful = self.truth(property, "stateful"),
            "silent" => self.facts.silent = self.truth(property, "silent"),
            "more" => self.facts.more = self.truth(property, "more"),
            "last" => self.facts.last = self.truth(property, "last"),
            "retry" => self.facts.retry = self.truth(property, "retry"),
            "whole" => self.facts.whole = self.truth(property, "whole"),
            "tunnel" => self.facts.tunnel = self.truth(property, "tunnel"),
            "closes" => self.facts.closes = self.truth(property, "closes"),
            "status" => self.facts.status = self.status(property),
            "failed" => self.facts.failed = self.truth(property, "failed"),
            "keep" => self.facts.keep = self.kept_number(property, "keep", "%keep = self.opcode;"),
            "carry" => {
                self.facts.carry = self.kept_number(property, "carry", "%carry = self.opcode;");
                self.carry = Some(name_span);
            }
            "keep_last" => {
                self.facts.keep_last = self.kept_constant(property, "keep_last", "%keep_last = 16;");
            }
            "keep_client" => {
                self.facts.keep_client = self.kept_constant(property, "keep_client", "%keep_client = 8;");
            }
            "exclusive" => self.facts.exclusive = self.is_exclusive(property),
            "replies" => {}
            "correlate" => {
                self.facts.correlate =
                    property.value().and_then(|value| self.fixed_field(&value, "correlate"));
                self.facts.in_order = true;
            }
            "echo" => {
                let field = property.value().and_then(|value| self.fixed_field(&value, "echo"));
                self.keep(field);
            }
            "loud" => self.loud(property, name_span),
            other => self.sink.push(report::grammar::unknown_property(name_span, other)),
        }
    }

    fn scope(&self, fact: &'static str) -> GrammarScope {
        GrammarScope {
            is_structured: self.items.unit(self.unit).body.is_some(),
            ..GrammarScope::new(self.unit, self.file, Purpose::Fact(fact))
        }
    }

    fn exprs<T>(&mut self, scope: GrammarScope, check: impl FnOnce(&mut Exprs<'_>) -> T) -> T {
        with_exprs(self.items, self.sink, scope, check)
    }

    fn truth(&mut self, property: &ast::UnitProperty, fact: &'static str) -> Option<Expr> {
        let value = property.value()?;
        let target = format!("`%{fact}`");
        let scope = self.scope(fact);
        let checked = self.exprs(scope, |exprs| {
            let checked = exprs.expr(&value);
            exprs.coerce(checked, &Ty::Bool, &target, None)
        });
        Some(checked)
    }

    /// `%keep = self.length`.
    fn kept_number(
        &mut self,
        property: &ast::UnitProperty,
        fact: &'static str,
        example: &str,
    ) -> Option<Expr> {
        let value = property.value()?;
        let scope = self.scope(fact);
        let checked = self.exprs(scope, |exprs| exprs.expr(&value));
        match checked.ty {
            Ty::Int { lo, .. } if lo >= 0 => Some(checked),
            Ty::Unknown => None,
            _ => {
                let wanted = "a non-negative integer";
                self.sink.push(report::grammar::bad_fact(checked.span, fact, wanted, example));
                None
            }
        }
    }

    /// `%status = self.status`.
    fn status(&mut self, property: &ast::UnitProperty) -> Option<Expr> {
        let example = "%status = self.status;";
        let status = self.kept_number(property, "status", example)?;
        if let Ty::Int { hi, .. } = status.ty
            && hi > i128::from(STATUS_MAX)
        {
            let wanted = "an integer of at most three digits";
            self.sink.push(report::grammar::bad_fact(status.span, "status", wanted, example));
            return None;
        }
        Some(status)
    }

    /// `%keep_last = 16` or `%keep_client = 8`.
    fn kept_constant(&mut self, property: &ast::UnitProperty, fact: &'static str, example: &str) -> u32 {
        let Some(value) = self.kept_number(property, fact, example) else { return 0 };
        if let ExprKind::Int(number) = value.kind
            && let Ok(number) = u32::try_from(number)
        {
            return number;
        }
        let wanted = "an integer literal of at most 32 bits";
        self.sink.push(report::grammar::bad_fact(value.span, fact, wanted, example));
        0
    }

    /// `%exclusive = true`.
    fn is_exclusive(&mut self, property: &ast::UnitProperty) -> bool {
        let Some(value) = property.value() else { return false };
        let literal = match value.clone().unparenthesised() {
            Some(ast::Expr::Literal(literal)) => literal.value(),
            _ => None,
        };
        if let Some(LiteralValue::Bool(truth)) = literal {
            return truth;
        }
        let span = span_of(self.file, value.range());
        self.sink.push(report::grammar::bad_fact(
            span,
            "exclusive",
            "`true` or `false`",
            "%exclusive = true;",
        ));
        false
    }

    /// `%replies = response`.
    fn replies(&mut self, value: &ast::Expr) -> Option<UnitId> {
        let span = span_of(self.file, value.range());
        let (library, name) = match value {
            ast::Expr::Name(name) => (None, name.name()),
            ast::Expr::Field(field) => match crate::expr::unfold_path(field) {
                (Some(ast::Expr::Name(library)), Some(path)) if path.len() == 1 => {
                    (library.name(), path.into_iter().next())
                }
                _ => (None, None),
            },
            _ => (None, None),
        };
        let item = name.as_ref().and_then(|name| {
            self.items.type_named(self.file, library.as_ref().map(ast::Name::text), name.text())
        });
        match item {
            Some(TypeItem::Unit(unit)) => Some(unit),
            None if name.is_some() => {
                let known: Vec<&str> = self.items.units.iter().map(|unit| unit.name.as_str()).collect();
                let name = name.as_ref().map_or("", |name| name.text());
                self.sink.push(report::names::unknown_type(span, name, known));
                None
            }
            _ => {
                let wanted = "the unit of the replies";
                self.sink.push(report::grammar::bad_fact(span, "replies", wanted, "%replies = response;"));
                None
            }
        }
    }

    /// Resolves `value` to an integer field at a fixed offset.
    fn fixed_field(&mut self, value: &ast::Expr, fact: &'static str) -> Option<FieldId> {
        let scope = self.scope(fact);
        let checked = self.exprs(scope, |exprs| exprs.expr(value));
        let example = format!("%{fact} = self.opaque;");
        let field = match checked.kind {
            ExprKind::SelfField(field) => field,
            _ if checked.ty == Ty::Unknown => return None,
            _ => {
                self.sink.push(report::grammar::bad_fact(checked.span, fact, "a field", &example));
                return None;
            }
        };
        let fields = &self.items.unit(self.unit).fields;
        if let FieldKind::Vint { .. } = fields[field.0 as usize].kind {
            let own = fields[field.0 as usize].name.clone().unwrap_or_default();
            let location = fields[field.0 as usize].span.clone();
            self.sink.push(report::grammar::varying_number(checked.span, fact, &own, location));
            return None;
        }
        if !matches!(fields[field.0 as usize].kind, FieldKind::Int { .. }) {
            self.sink.push(report::grammar::bad_fact(
                checked.span,
                fact,
                "an integer field of the message",
                &example,
            ));
            return None;
        }
        if let Some(body) = &self.items.unit(self.unit).body
            && !has_fixed_offset(fields, body, field)
        {
            let own = fields[field.0 as usize].name.as_deref().unwrap_or_default();
            self.sink.push(report::grammar::not_fixed_in_a_tree(checked.span, fact, own));
            return None;
        }
        if let Some(before) = varying_before(fields, field) {
            let own = fields[field.0 as usize].name.as_deref().unwrap_or_default();
            let name = before.name.as_deref().unwrap_or("an unnamed field");
            self.sink.push(report::grammar::not_fixed(checked.span, fact, own, name, before.span.clone()));
            return None;
        }
        Some(field)
    }

    fn loud(&mut self, property: &ast::UnitProperty, name_span: Span) {
        let (Some(target), Some(value)) = (property.target(), property.value()) else {
            if property.value().is_some() {
                let example = "%loud self.opcode = map self.opcode { getq: get, else: self.opcode };";
                self.sink.push(report::grammar::bad_fact(name_span, "loud", "the field to set", example));
            }
            return;
        };
        let Some(field) = self.fixed_field(&target, "loud") else { return };
        let ty = units::grammar_type(&self.items.field(self.unit, field).kind);
        let scope = self.scope("loud");
        let checked = self.exprs(scope, |exprs| {
            let checked = exprs.expr(&value);
            exprs.coerce(checked, &ty, "the field", None)
        });
        self.facts.loud = Some((field, checked));
    }

    fn keep(&mut self, field: Option<FieldId>) {
        if let Some(field) = field
            && !self.facts.echo.contains(&field)
        {
            self.facts.echo.push(field);
        }
    }

    /// The fields of `%correlate` and `%loud` are kept implicitly.
    fn add_implicit_echoes(&mut self, unit_span: Span) {
        self.keep(self.facts.correlate);
        self.keep(self.facts.loud.as_ref().map(|(field, _)| *field));
        self.facts.echo.sort_unstable();
        if self.facts.echo.len() > ECHO_FIELDS_MAX {
            let name = self.items.unit(self.unit).span.clone();
            let span = if name.range.is_empty() { unit_span } else { name };
            self.sink.push(report::grammar::too_many_echoes(span, self.facts.echo.len(), ECHO_FIELDS_MAX));
        }
    }

    /// `%on reason = unit{...}`.
    fn error_response(&mut self, property: &ast::UnitProperty) {
        let property_span = span_of(self.file, property.range());
        let Some(reason) = property.qualifier() else {
            let example = "%on timeout = cmd{status = 0x86};";
            self.sink.push(report::grammar::bad_fact(property_span, "on", "a reason", example));
            return;
        };
        let reasons = || FailureReason::NAMES.iter().map(|(name, _)| *name);
        if !reasons().any(|known| known == reason.text()) {
            let span = span_of(self.file, reason.range());
            let help = match report::similar(reason.text(), reasons()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("the reasons are {}", report::list(reasons())),
            };
            self.sink.push(report::grammar::error_response(
                span,
                &format!("unknown reason `{}`", reason.text()),
                &help,
            ));
            return;
        }
        let Some(value) = property.value() else { return };
        let purpose = Purpose::Answer(self.facts.echo.clone());
        let scope = GrammarScope::new(self.unit, self.file, purpose);
        let built = self.exprs(scope, |exprs| exprs.expr(&value));
        let responses = self.facts.replies.unwrap_or(self.unit);
        let is_answer = matches!(built.kind, ExprKind::Build(unit, _) | ExprKind::BuildWire(unit, _) if unit == responses);
        if !is_answer {
            if built.ty != Ty::Unknown {
                let name = &self.items.unit(responses).name;
                let help = format!("write `{name}{{field = value, ...}}`");
                self.sink.push(report::grammar::error_response(
                    built.span,
                    &format!("expected a message `{name}`"),
                    &help,
                ));
            }
            return;
        }
        self.check_response_size(&built);
        self.facts.on.push((reason.text().to_owned(), built));
    }

    /// Checks the size of an error response, which the platform writes into a small buffer.
    fn check_response_size(&mut self, built: &Expr) {
        let (fixed, given) = match &built.kind {
            ExprKind::Build(unit, inits) => {
                let declared = self.items.unit(*unit);
                let given: u64 =
                    inits.iter().map(|(field, value)| given_bytes(declared, *field, value)).sum();
                let fixed = match &declared.body {
                    Some(body) => fixed_bytes(&declared.fields, body),
                    None => declared.fields.iter().map(plain_bytes).sum(),
                };
                (fixed, given)
            }
            ExprKind::BuildWire(_, bytes) => (0, text_bytes(bytes)),
            _ => return,
        };
        if fixed + given > FAILURE_BYTES_MAX as u64 {
            let why = format!("up to {} bytes, the limit is {FAILURE_BYTES_MAX}", fixed + given);
            self.sink.push(report::grammar::error_response(
                built.span.clone(),
                &why,
                "write a shorter response",
            ));
        }
    }
}

/// The first field of variable length before `field`.
fn varying_before(fields: &[Field], field: FieldId) -> Option<&Field> {
    fields[..field.0 as usize].iter().find(|before| match &before.kind {
        FieldKind::Bytes { length, .. } => !matches!(length.kind, ExprKind::Int(_)),
        FieldKind::Vint { .. } => true,
        FieldKind::Int { .. } | FieldKind::Var { .. } => false,
        other => other.is_on_wire(),
    })
}

/// Whether a field has the same offset in all messages of its unit.
pub(super) fn is_at_fixed_offset(unit: &Unit, field: FieldId) -> bool {
    let in_body = unit.body.as_deref().is_none_or(|body| has_fixed_offset(&unit.fields, body, field));
    in_body && varying_before(&unit.fields, field).is_none()
}

/// Whether only integers of a fixed width, and literals that every message has and that are forwarded as they are, come
/// before a field of a structured unit.
fn has_fixed_offset(fields: &[Field], body: &[Item], field: FieldId) -> bool {
    let own = body.iter().position(|item| matches!(item, Item::Field(id) if *id == field));
    let is_fixed = |item: &Item| match item {
        Item::Field(id) => {
            let kind = &fields[id.0 as usize].kind;
            matches!(kind, FieldKind::Int { .. }) || !kind.is_on_wire()
        }
        Item::Literal(literal) => !literal.optional && !literal.supplied && !literal.cut,
        Item::Check(_) => true,
        Item::Switch(_) => false,
    };
    own.is_some_and(|own| body[..own].iter().all(is_fixed))
}

/// Size of an unset field of a plain unit.
fn plain_bytes(field: &Field) -> u64 {
    match &field.kind {
        FieldKind::Int { repr, .. } => u64::from(repr.width_bytes),
        FieldKind::Bytes { length: Expr { kind: ExprKind::Int(bytes), .. }, .. } => *bytes as u64,
        FieldKind::Vint { .. } => VINT_BYTES_MAX,
        _ => 0,
    }
}

/// Maximum size of the unset fields of a structured unit.
fn fixed_bytes(fields: &[Field], row: &[Item]) -> u64 {
    let item = |item: &Item| match item {
        Item::Literal(literal) => literal.bytes.len() as u64,
        Item::Check(_) => 0,
        Item::Switch(choice) => {
            let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
            rows.map(|row| fixed_bytes(fields, row)).max().unwrap_or(0)
        }
        Item::Field(id) => match &fields[id.0 as usize].kind {
            FieldKind::Number { digits_max, .. } => u64::from(*digits_max) + 1,
            FieldKind::Varint { bytes_max, .. } => u64::from(*bytes_max),
            FieldKind::Text { until: Some(until), .. } => until.len() as u64,
            FieldKind::List(list) => match &list.end {
                ListEnd::Until(end) => end.len() as u64,
                _ => 0,
            },
            _ => plain_bytes(&fields[id.0 as usize]),
        },
    };
    row.iter().map(item).sum()
}

fn text_bytes(value: &Expr) -> u64 {
    if let Ty::Bytes { max, .. } = value.ty { u64::from(max) } else { 0 }
}

/// Size of a value, including the literals around list elements.
fn given_bytes(unit: &Unit, field: FieldId, value: &Expr) -> u64 {
    let FieldKind::List(list) = &unit.fields[field.0 as usize].kind else { return text_bytes(value) };
    let ExprKind::List(elements) = &value.kind else { return FAILURE_BYTES_MAX as u64 + 1 };
    let around = fixed_bytes(&unit.fields, &list.body);
    let element = |element: &Expr| match &element.kind {
        ExprKind::Tuple(parts) => parts.iter().map(text_bytes).sum::<u64>(),
        _ => text_bytes(element),
    };
    elements.iter().map(|one| element(one) + around).sum()
}
