//! Enumerations: their width and the number of each member.
//! Promises: every member has its own number, which fits the width; without one it is the one before plus one.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::hir::{IntRepr, Span};
use crate::items::{Decls, Items};
use crate::load::span_of;
use crate::range::{INT, Range};
use crate::report;
use crate::types;

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
    let repr = name.and_then(|name| types::sized_int(name.text()));
    if repr.is_none() {
        sink.push(report::grammar::enum_base(span_of(file, base.range())));
    }
    repr
}

fn members(node: &ast::EnumDecl, file: u32, repr: Option<IntRepr>, sink: &mut Sink) -> Vec<(String, i64)> {
    let allowed = repr.map_or(INT, Range::of_repr);
    let mut members: Vec<(String, i64)> = Vec::new();
    let mut places: Vec<Span> = Vec::new();
    let mut next = 0i128;
    for variant in node.variants() {
        let Some(name) = variant.name() else { continue };
        let place = span_of(file, name.range());
        let (number, number_place) = match variant.value() {
            Some(value) => (constant(&value), span_of(file, value.range())),
            None => (Some(next), place.clone()),
        };
        let text = name.text();
        let Some(number) = number else {
            sink.push(report::grammar::member_value(
                number_place,
                text,
                "is not a literal",
                "write a plain number: `get = 0x00`",
            ));
            continue;
        };
        next = number + 1;
        if let Some(known) = members.iter().position(|(known, _)| known == text) {
            sink.push(report::names::duplicate(place, "member", text, places[known].clone()));
            continue;
        }
        if !allowed.contains(number) || !INT.contains(number) {
            let held =
                repr.map_or("an enumeration".to_owned(), |repr| format!("`{}`", types::int_name(repr)));
            let (why, help) =
                (format!("does not fit {held}"), format!("write a number between {}", allowed.describe()));
            sink.push(report::grammar::member_value(number_place, text, &why, &help));
            continue;
        }
        let number = number as i64;
        if let Some(known) = members.iter().position(|(_, known)| *known == number) {
            sink.push(report::grammar::same_member_value(
                number_place,
                text,
                &members[known].0,
                number,
                places[known].clone(),
            ));
            continue;
        }
        members.push((text.to_owned(), number));
        places.push(place);
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
