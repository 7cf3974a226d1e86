//! Pairs the fields that the platform changes in a request with the fields of a reply of another unit (`%replies`) that
//! repeat them.
//! Promises: each field of `%correlate`, and each of `%loud` that the reply has, is paired with an integer of the same
//! width at a fixed offset in the reply; otherwise the grammar is rejected.
//! Not here: replies of the request's own unit, which repeat a field where the request has it.

use flick_syntax::ast;

use super::properties::is_at_fixed_offset;
use crate::diagnostic::Sink;
use crate::hir::{FieldId, FieldKind, Span, Unit, UnitId};
use crate::items::{Decls, InFile, Items};
use crate::load::span_of;
use crate::report;

/// Pairs the fields of all requests with those of their replies.
pub(super) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    for (index, decl) in decls.units.iter().enumerate() {
        let id = UnitId(index as u32);
        let Some(replies) = items.unit(id).facts.replies.filter(|replies| *replies != id) else { continue };
        let pairing = Pairing { request: items.unit(id), reply: items.unit(replies), decl };
        let own = property(decl, "correlate");
        let theirs = property(&decls.units[replies.0 as usize], "correlate");
        if let (None, Some(theirs)) = (own, theirs) {
            sink.push(report::grammar::correlated_reply_only(theirs, pairing.request, pairing.reply));
            continue;
        }
        let pairs = pairing.pairs(sink);
        let facts = &mut items.units[replies.0 as usize].facts;
        facts.repeats.extend(pairs.iter().map(|(_, field)| *field));
        items.units[index].facts.repeated = pairs;
    }
}

/// Location of the property `name` of a unit.
fn property(decl: &InFile<ast::UnitDecl>, name: &str) -> Option<Span> {
    let found = decl.node.properties().find(|one| one.name().is_some_and(|own| own.text() == name));
    found.map(|property| span_of(decl.file, property.range()))
}

/// A unit, and another one that its replies are of.
struct Pairing<'a> {
    request: &'a Unit,
    reply: &'a Unit,
    decl: &'a InFile<ast::UnitDecl>,
}

impl Pairing<'_> {
    /// By field that is kept of a request: the field of its reply that repeats it.
    fn pairs(&self, sink: &mut Sink) -> Vec<(FieldId, FieldId)> {
        let facts = &self.request.facts;
        let loud = facts.loud.as_ref().map(|(field, _)| *field);
        let pair = |field: &FieldId| {
            let (fact, is_required) = match *field {
                field if facts.correlate == Some(field) => ("correlate", true),
                field if loud == Some(field) => ("loud", false),
                _ => ("echo", false),
            };
            let declared = self.reply.facts.correlate.filter(|_| fact == "correlate");
            let Some(found) = declared.or_else(|| self.same_name(*field)) else {
                if is_required {
                    sink.push(report::grammar::not_repeated(self.span(fact), self.field(*field), self.reply));
                }
                return None;
            };
            if let Some(why) = self.mismatch(*field, found) {
                if fact != "echo" {
                    let location = self.reply.fields[found.0 as usize].span.clone();
                    let names = (self.field(*field), self.reply);
                    sink.push(report::grammar::cannot_repeat(self.span(fact), names, location, &why));
                }
                return None;
            }
            Some((*field, found))
        };
        facts.echo.iter().filter_map(pair).collect()
    }

    /// The field of the reply with the name of a field of the request.
    fn same_name(&self, field: FieldId) -> Option<FieldId> {
        let name = self.request.fields[field.0 as usize].name.as_ref()?;
        let at = self.reply.fields.iter().position(|field| field.name.as_ref() == Some(name))?;
        Some(FieldId(at as u32))
    }

    /// Returns the reason why a field of the reply cannot repeat a field of the request, or `None` if it can.
    fn mismatch(&self, field: FieldId, found: FieldId) -> Option<String> {
        let width = |unit: &Unit, field: FieldId| match &unit.fields[field.0 as usize].kind {
            FieldKind::Int { repr, .. } => Some(repr.width_bytes),
            _ => None,
        };
        let (own, theirs) = (width(self.request, field), width(self.reply, found));
        let Some(theirs) = theirs else { return Some("is not a sized integer".to_owned()) };
        if own.is_some_and(|own| own != theirs) {
            return Some(format!("has {} bits, not {}", theirs * 8, own.unwrap_or_default() * 8));
        }
        (!is_at_fixed_offset(self.reply, found)).then(|| "has no fixed offset".to_owned())
    }

    fn field(&self, field: FieldId) -> &str {
        self.request.fields[field.0 as usize].name.as_deref().unwrap_or_default()
    }

    /// Location of the property that a message is about.
    fn span(&self, fact: &str) -> Span {
        property(self.decl, fact).unwrap_or_else(|| self.request.span.clone())
    }
}
