//! Lists: their ends, the type of an element, and keys.
//! Promises: a list ends in exactly one way; its keys are literals that an element can have.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use super::{RowPosition, Rows};
use crate::grammar::draft::{Draft, attr};
use crate::grammar::field_types::delimiter;
use crate::hir::{Expr, FieldId, FieldKind, Item, Keyed, ListEnd, Ty};
use crate::load::span_of;
use crate::{report, units};
use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};

/// Attributes for the end of a list.
const ENDS: &[&str] = &["until", "count", "length", "children", "last"];
/// Attributes of lists with keys.
const KEYED_ATTRS: &[&str] = &["value", "nocase", "once", "cut", "cut_listed", "keep_cut"];

/// Checks a list and its elements.
pub(super) fn check<'a>(rows: &mut Rows<'a>, index: usize, position: RowPosition) {
    let draft = rows.draft(index);
    let is_keyed = attr(&draft.attrs, "key").is_some();
    let name = draft.own_name(rows.items.unit(rows.unit).fields[index].name.as_deref());
    let is_open = position.is_last && !is_keyed;
    let before = end(rows, index, draft, &name, true);
    let body = rows.row(&draft.body, RowPosition { is_last: false, is_open });
    let end = before.or_else(|| end(rows, index, draft, &name, false));
    let keyed = if is_keyed { keyed(rows, index, draft) } else { None };
    let bare = attr(&draft.attrs, "bare").and_then(|attr| attr.value()).map(|value| {
        let scope = rows.scope(&draft.site, "`&bare`".to_owned(), index);
        rows.exprs(scope, |exprs| {
            let checked = exprs.expr(&value);
            exprs.coerce(checked, &Ty::Bool, "`&bare`", None)
        })
    });
    if !is_keyed {
        for attr in &draft.attrs {
            if let Some(word) = attr.name().filter(|word| KEYED_ATTRS.contains(&word.text())) {
                let span = span_of(draft.site.file, attr.range());
                rows.sink.push(report::structured::keyed_attribute(span, word.text()));
            }
        }
    }
    if draft.bound.is_none() && !is_open {
        rows.sink.push(report::structured::list_without_bound(draft.span.clone(), &name, is_keyed));
    }
    let element = only_string(rows, &body);
    let fields = &rows.items.unit(rows.unit).fields;
    let size = units::row_size(fields, &body);
    if size.least == 0 && !body.is_empty() {
        rows.sink.push(report::structured::empty_element(draft.span.clone(), &name));
    }
    let (elem_text, longest) = match element.map(|element| &fields[element.0 as usize].kind) {
        Some(FieldKind::Text { text, max_bytes, .. }) => (*text, Some(u64::from(*max_bytes))),
        Some(FieldKind::Bytes { text, max_bytes, .. }) => (*text, max_bytes.map(u64::from)),
        _ => (false, size.most),
    };
    let elem_bytes_max = longest.unwrap_or(HEAD_BYTES_MAX as u64).min(BIG_HEAD_BYTES_MAX as u64) as u32;
    if let FieldKind::List(list) = rows.kind_mut(index) {
        list.body = body;
        list.end = end.unwrap_or(ListEnd::Until(vec![b'\n']));
        list.element = element;
        list.elem_text = elem_text;
        list.elem_bytes_max = elem_bytes_max;
        list.keyed = keyed;
        list.streamed = is_open;
        list.bare = bare;
    }
}

/// Checks the end of a list: one that is known before its elements (`is_before`), or one that uses an element.
fn end<'a>(
    rows: &mut Rows<'a>,
    index: usize,
    draft: &'a Draft,
    name: &str,
    is_before: bool,
) -> Option<ListEnd> {
    let given: Vec<&ast::Attr> = draft
        .attrs
        .iter()
        .filter(|attr| attr.name().is_some_and(|name| ENDS.contains(&name.text())))
        .collect();
    let [attr] = given.as_slice() else {
        if is_before {
            let second = given.get(1).map(|attr| span_of(draft.site.file, attr.range()));
            rows.sink.push(match second {
                None => report::structured::list_without_end(draft.span.clone(), name),
                Some(span) => report::structured::conflicting_ends(span, name),
            });
        }
        return None;
    };
    let word = attr.name()?;
    let is_after = matches!(word.text(), "children" | "last");
    if is_after == is_before {
        return None;
    }
    if word.text() == "until" {
        return delimiter(draft.site.file, attr, rows.sink).map(ListEnd::Until);
    }
    let value = attr.value()?;
    let (mut site, mut visible) = (draft.site.clone(), index);
    if is_after {
        site.inside.push(FieldId(index as u32));
        visible = draft.body_end;
    }
    let scope = rows.scope(&site, format!("the end of `{name}`"), visible);
    let checked = rows.exprs(scope, |exprs| {
        let checked = exprs.expr(&value);
        match word.text() {
            "last" => exprs.coerce(checked, &Ty::Bool, "`&last`", None),
            _ => number(exprs, checked),
        }
    });
    Some(match word.text() {
        "count" => ListEnd::Count(checked),
        "length" => ListEnd::Bytes(checked),
        "children" => ListEnd::Children(checked),
        _ => ListEnd::Last(checked),
    })
}

fn number(exprs: &mut crate::expr::Exprs<'_>, checked: Expr) -> Expr {
    match &checked.ty {
        Ty::Int { .. } | Ty::Unknown => checked,
        other => {
            let found = exprs.items.describe(other);
            exprs.sink.push(report::types::mismatch(checked.span.clone(), "an integer", &found, None));
            checked
        }
    }
}

/// The only string of an element, if it has exactly one; otherwise an element is its bytes.
fn only_string(rows: &Rows<'_>, body: &[Item]) -> Option<FieldId> {
    let mut found: Vec<FieldId> = Vec::new();
    texts(rows, body, &mut found);
    match found.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

fn texts(rows: &Rows<'_>, body: &[Item], found: &mut Vec<FieldId>) {
    for item in body {
        match item {
            Item::Field(field) => {
                let declared = rows.items.field(rows.unit, *field);
                let is_text = matches!(declared.kind, FieldKind::Text { .. } | FieldKind::Bytes { .. });
                // With a list in it, an element is its bytes.
                if matches!(declared.kind, FieldKind::List(_)) {
                    found.extend([*field; 2]);
                }
                let named = declared.name.as_deref().and_then(|name| name.rsplit('.').next());
                if is_text && named.is_some_and(|name| !name.starts_with('#')) {
                    found.push(*field);
                }
            }
            Item::Switch(choice) => {
                // A string that may be absent is not the only string.
                choice.arms.iter().for_each(|(_, row)| {
                    texts(rows, row, found);
                    texts(rows, row, found);
                });
                choice.otherwise.iter().for_each(|row| {
                    texts(rows, row, found);
                    texts(rows, row, found);
                });
            }
            Item::Literal(_) | Item::Check(_) => {}
        }
    }
}

/// `&key`, `&value` and the other attributes of keys.
fn keyed<'a>(rows: &mut Rows<'a>, index: usize, draft: &'a Draft) -> Option<Keyed> {
    let nocase = attr(&draft.attrs, "nocase").is_some();
    let list = FieldId(index as u32);
    rows.items.keys.declare(rows.unit, list, nocase);
    let key = member(rows, index, draft, "key");
    let value = member(rows, index, draft, "value");
    let once = key_list(rows, list, draft, "once");
    let cut = key_list(rows, list, draft, "cut");
    let cut_listed = attr(&draft.attrs, "cut_listed").and_then(|attr| one_key(rows, list, draft, &attr));
    let keep_cut = attr(&draft.attrs, "keep_cut").and_then(|attr| attr.value()).map(|value| {
        // An `&any` variable is declared after the list, and known at its end.
        let visible = rows.items.unit(rows.unit).fields.len();
        let scope = rows.scope(&draft.site, "`&keep_cut`".to_owned(), visible);
        rows.exprs(scope, |exprs| {
            let checked = exprs.expr(&value);
            exprs.coerce(checked, &Ty::Bool, "`&keep_cut`", None)
        })
    });
    let (key, value) = (key?, value?);
    Some(Keyed { key, value, nocase, keys: Vec::new(), once, cut, cut_listed, keep_cut, follows: Vec::new() })
}

/// The field of an element in `&key = name` or `&value = name`.
fn member(rows: &mut Rows<'_>, index: usize, draft: &Draft, attribute: &str) -> Option<FieldId> {
    let Some(attr) = attr(&draft.attrs, attribute) else {
        rows.sink.push(report::structured::keyed_without(draft.span.clone(), attribute));
        return None;
    };
    let span = span_of(draft.site.file, attr.range());
    let word = match attr.value()? {
        ast::Expr::Name(name) => name.name()?.text().to_owned(),
        ast::Expr::Field(field) => match crate::expr::unfold_path(&field) {
            (Some(ast::Expr::Name(first)), Some(path)) => {
                let path: Vec<&str> = path.iter().map(|name| name.text()).collect();
                format!("{}.{}", first.name()?.text(), path.join("."))
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    let fields = &rows.items.unit(rows.unit).fields;
    let own = fields[index].name.clone().map(|name| format!("{name}."));
    let prefix = own.unwrap_or_else(|| format!("{}#{index}.", draft.site.prefix));
    let full = format!("{prefix}{word}");
    let found = fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()));
    let is_text = found
        .is_some_and(|found| matches!(fields[found].kind, FieldKind::Text { .. } | FieldKind::Bytes { .. }));
    if !is_text {
        let texts = fields[index + 1..draft.body_end]
            .iter()
            .filter(|field| matches!(field.kind, FieldKind::Text { .. } | FieldKind::Bytes { .. }));
        let texts: Vec<String> = texts
            .filter_map(|field| Some(field.name.as_deref()?.strip_prefix(prefix.as_str())?.to_owned()))
            .collect();
        rows.sink.push(report::structured::keyed_member(span, attribute, &word, &texts));
        return None;
    }
    found.map(|found| FieldId(found as u32))
}

fn key_list(rows: &mut Rows<'_>, list: FieldId, draft: &Draft, attribute: &str) -> Vec<u32> {
    let Some(attr) = attr(&draft.attrs, attribute) else { return Vec::new() };
    let Some(value) = attr.value() else { return Vec::new() };
    let items: Vec<ast::Expr> = match &value {
        ast::Expr::List(list) => list.items().collect(),
        other => vec![other.clone()],
    };
    let mut keys = Vec::new();
    for item in items {
        let span = span_of(draft.site.file, item.range());
        match literal_bytes(&item) {
            Some(bytes) => keys.extend(rows.items.keys.index(rows.unit, list, &bytes)),
            None => rows.sink.push(report::structured::key_list(span, attribute)),
        }
    }
    keys
}

fn one_key(rows: &mut Rows<'_>, list: FieldId, draft: &Draft, attr: &ast::Attr) -> Option<u32> {
    let value = attr.value()?;
    let Some(bytes) = literal_bytes(&value) else {
        let span = span_of(draft.site.file, value.range());
        rows.sink.push(report::structured::key_literal(span));
        return None;
    };
    rows.items.keys.index(rows.unit, list, &bytes)
}

fn literal_bytes(expr: &ast::Expr) -> Option<Vec<u8>> {
    match expr.clone().unparenthesised()? {
        ast::Expr::Literal(literal) => match literal.value()? {
            LiteralValue::Bytes(bytes) => Some(bytes),
            _ => None,
        },
        _ => None,
    }
}
