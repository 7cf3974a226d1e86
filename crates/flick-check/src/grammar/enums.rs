//! Enums: their width and the value of each member.
//! Promises: every member has a value of its own, which fits the width; without one it is the previous value plus
//! one.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::hir::{IntRepr, Span};
use crate::items::{Decls, Items};
use crate::load::span_of;
use crate::range::{INT, Range};
use crate::{primitives, report};

pub(super) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    for (index, decl) in decls.enums.iter().enumerate() {
        let repr = decl.node.base().and_then(|base| base_repr(&base, decl.file, sink));
        let members = members(&decl.node, decl.file, repr, sink);
        items.enums[index].repr = repr;
        items.enums[index].members = members;
    }
}

fn base_repr(base: &ast::Type, file: u32, sink: &mut Sink) -> Option<IntRepr> {
    let name = match base {
        ast::Type::Named(named) => named.name(),
        _ => None,
    };
    let repr = name.and_then(|name| primitives::sized_int(name.text()));
    if repr.is_none() {
        sink.push(report::grammar::enum_type(span_of(file, base.range())));
    }
    repr
}

fn members(node: &ast::EnumDecl, file: u32, repr: Option<IntRepr>, sink: &mut Sink) -> Vec<(String, i64)> {
    let allowed = repr.map_or(INT, Range::of_repr);
    let mut members: Vec<(String, i64)> = Vec::new();
    let mut locations: Vec<Span> = Vec::new();
    let mut next = 0i128;
    for variant in node.variants() {
        let Some(name) = variant.name() else { continue };
        let location = span_of(file, name.range());
        let (number, value_location) = match variant.value() {
            Some(value) => (constant(&value), span_of(file, value.range())),
            None => (Some(next), location.clone()),
        };
        let text = name.text();
        let Some(number) = number else {
            sink.push(report::grammar::member_value(
                value_location,
                text,
                "is not a literal integer",
                "write a literal: `get = 0x00`",
            ));
            continue;
        };
        next = number + 1;
        if let Some(known) = members.iter().position(|(known, _)| known == text) {
            sink.push(report::names::duplicate(location, "member", text, locations[known].clone()));
            continue;
        }
        if !allowed.contains(number) || !INT.contains(number) {
            let held = repr.map_or("an enum".to_owned(), |repr| format!("`{}`", primitives::int_name(repr)));
            let (why, help) = (
                format!("is out of range for {held}"),
                format!("write an integer between {}", allowed.describe()),
            );
            sink.push(report::grammar::member_value(value_location, text, &why, &help));
            continue;
        }
        let number = number as i64;
        if let Some(known) = members.iter().position(|(_, known)| *known == number) {
            sink.push(report::grammar::same_member_value(
                value_location,
                text,
                &members[known].0,
                number,
                locations[known].clone(),
            ));
            continue;
        }
        members.push((text.to_owned(), number));
        locations.push(location);
    }
    members
}

fn constant(value: &ast::Expr) -> Option<i128> {
    match value {
        ast::Expr::Literal(literal) => match literal.value()? {
            LiteralValue::Int(number) | LiteralValue::Size(number) => Some(i128::from(number)),
            _ => None,
        },
        ast::Expr::Unary(unary) if unary.op() == Some(ast::UnaryOp::Neg) => {
            constant(&unary.operand()?).map(|number| -number)
        }
        ast::Expr::Paren(paren) => constant(&paren.inner()?),
        _ => None,
    }
}
