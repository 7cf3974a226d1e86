//! Renders the fields of a unit as a table: offsets, bounds, meanings; then computed values and checks.
//! Promises: every named field has a row, and an anchor of its own; only a constant offset is shown.

use std::ops::Range;

use flick_syntax::ast::{
    Attr, Expr, Name, Type, UnitBits, UnitCheck, UnitDecl, UnitField, UnitItem, UnitLiteral, UnitSwitch,
    UnitVar,
};

use crate::comments::Comments;
use crate::html::{code, code_in_lines, code_of, escape, one_line, sentence};
use crate::scope::{Scope, constant, field_id};
use crate::shape::{bytes_code, class_link, digits, literal_code};

/// Writes the tables of a unit.
pub(crate) fn tables(scope: &Scope, comments: &Comments, unit: &UnitDecl) -> String {
    let name = unit.name();
    let name = name.as_ref().map_or("", |name| name.text());
    let mut tables = Tables {
        scope,
        comments,
        unit: name,
        offset_bits: Some(0),
        fields: String::new(),
        vars: String::new(),
        checks: String::new(),
    };
    tables.items(unit.items());
    let mut out = String::new();
    if !tables.fields.is_empty() {
        out.push_str(
            "<table class=\"fields\"><thead><tr><th scope=\"col\">Field</th><th scope=\"col\">Type</th>",
        );
        out.push_str("<th scope=\"col\">At</th><th scope=\"col\">Bounds</th><th scope=\"col\">Meaning</th></tr></thead><tbody>\n");
        out.push_str(&format!("{}</tbody></table>\n", tables.fields));
    }
    if !tables.vars.is_empty() {
        out.push_str("<h4>Computed</h4>\n<table class=\"fields\"><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Type</th>");
        out.push_str("<th scope=\"col\">Value</th><th scope=\"col\">Meaning</th></tr></thead><tbody>\n");
        out.push_str(&format!("{}</tbody></table>\n", tables.vars));
    }
    if !tables.checks.is_empty() {
        out.push_str(&format!("<h4>Refused unless</h4>\n<ul>\n{}</ul>\n", tables.checks));
    }
    out
}

struct Tables<'a> {
    scope: &'a Scope,
    comments: &'a Comments,
    unit: &'a str,
    /// Offset of the next field, while it is the same in every message.
    offset_bits: Option<u32>,
    fields: String,
    vars: String,
    checks: String,
}

impl Tables<'_> {
    fn items(&mut self, items: impl Iterator<Item = UnitItem>) {
        let mut behind_choice = false;
        for item in items {
            let is_field = matches!(item, UnitItem::Field(_) | UnitItem::Bits(_) | UnitItem::Switch(_));
            if behind_choice && is_field {
                self.heading("then");
                behind_choice = false;
            }
            match item {
                UnitItem::Field(field) => self.field(&field),
                UnitItem::Var(var) => self.var(&var),
                UnitItem::Check(check) => self.check(&check),
                UnitItem::Literal(literal) => self.literal(&literal),
                UnitItem::Bits(group) => self.bits(&group),
                UnitItem::Switch(switch) => {
                    self.switch(&switch);
                    behind_choice = true;
                }
                UnitItem::Property(_) => {}
            }
        }
    }

    /// A literal speaks for itself, unless it is explained or is more than its bytes.
    fn literal(&mut self, literal: &UnitLiteral) {
        let bytes = literal.bytes().unwrap_or_default();
        let attrs: Vec<Attr> = literal.attrs().collect();
        let said = self.comments.above(literal.range().start);
        if !said.is_empty() || !attrs.is_empty() {
            let row = Row { label: bytes_code(&bytes), attrs: &attrs, said, ..Row::default() };
            self.row(row);
        }
        let bits = u32::try_from(bytes.len()).ok().and_then(|bytes| bytes.checked_mul(8));
        self.advance(bits.filter(|_| attrs.is_empty()));
    }

    fn bits(&mut self, group: &UnitBits) {
        for field in group.fields() {
            let bits = field.width().and_then(|width| constant(&width));
            let attrs: Vec<Attr> = field.attrs().collect();
            let ty = match bits {
                Some(1) => "1 bit".to_owned(),
                Some(bits) => format!("{bits} bits"),
                None => String::new(),
            };
            self.named_row(field.name(), ty, Vec::new(), &attrs, field.range());
            self.advance(bits);
        }
    }

    fn switch(&mut self, switch: &UnitSwitch) {
        let subject = switch.subject().map_or(String::new(), |subject| code_of(&subject));
        for arm in switch.arms() {
            let values: Vec<String> = arm.patterns().map(|pattern| one_line(&pattern)).collect();
            let is = format!("{subject} is {}", code(&values.join(", ")));
            self.arm(&is, arm.range().start, arm.items());
        }
        if let Some(arm) = switch.otherwise() {
            self.arm(&format!("{subject} is anything else"), arm.range().start, arm.items());
        }
        self.offset_bits = None;
    }

    fn arm(&mut self, condition: &str, start: usize, items: impl Iterator<Item = UnitItem>) {
        let offset = self.offset_bits;
        let before = self.fields.len();
        let said = sentence(&self.comments.above(start));
        let said = if said.is_empty() { said } else { format!(": {said}") };
        self.heading(&format!("where {condition}{said}"));
        let empty = self.fields.len();
        self.items(items);
        if self.fields.len() == empty {
            self.fields.truncate(before); // no field: nothing to explain
        }
        self.offset_bits = offset;
    }

    fn heading(&mut self, text: &str) {
        self.fields
            .push_str(&format!("<tr class=\"case\"><th scope=\"rowgroup\" colspan=\"5\">{text}</th></tr>\n"));
    }

    fn advance(&mut self, bits: Option<u32>) {
        self.offset_bits = match (self.offset_bits, bits) {
            (Some(offset), Some(bits)) => offset.checked_add(bits),
            _ => None,
        };
    }

    fn field(&mut self, field: &UnitField) {
        let attrs: Vec<Attr> = field.attrs().collect();
        let ty = field.ty();
        let mut bounds = Vec::new();
        if let Some(ty) = &ty {
            bounds.extend(bound_of(ty));
        }
        let link = ty.as_ref().map_or(String::new(), |ty| self.scope.type_link(ty));
        let bits = match &ty {
            Some(Type::Named(ty)) => self.scope.bits_of(ty).or_else(|| constant_length(&attrs)),
            _ => None,
        };
        self.named_row(field.name(), link, bounds, &attrs, field.range());
        let is_always = !attrs.iter().any(|attr| name_of(attr) == "if");
        self.advance(bits.filter(|_| is_always));
    }

    /// Writes the row of a field; one without a name has none unless it is explained.
    fn named_row(
        &mut self,
        name: Option<Name>,
        ty: String,
        bounds: Vec<String>,
        attrs: &[Attr],
        range: Range<usize>,
    ) {
        let said = self.comments.about(range);
        match name {
            Some(name) => {
                let id = format!(" id=\"{}\"", escape(&field_id(self.unit, name.text())));
                self.row(Row { id, label: escape(name.text()), ty, bounds, attrs, said });
            }
            None if said.is_empty() => {}
            None => {
                let label = "<i>unnamed</i>".to_owned();
                self.row(Row { id: String::new(), label, ty, bounds, attrs, said });
            }
        }
    }

    fn row(&mut self, row: Row) {
        let Row { id, label, ty, mut bounds, attrs, said } = row;
        let mut meaning = vec![sentence(&said)];
        for attr in attrs {
            match self.attr(attr) {
                Said::Bound(text) => bounds.push(text),
                Said::Meaning(text) => meaning.push(text),
            }
        }
        let meaning = sentences(meaning);
        let offset = self.offset_bits.map_or(String::new(), |bits| match bits % 8 {
            0 => format!("{}", bits / 8),
            rest => format!("{}, bit {rest}", bits / 8),
        });
        self.fields.push_str(&format!(
            "<tr{id}><th scope=\"row\">{label}</th><td>{ty}</td><td>{offset}</td><td>{}</td><td>{meaning}</td></tr>\n",
            bounds.join("; ")
        ));
    }

    fn var(&mut self, var: &UnitVar) {
        let Some(name) = var.name() else { return };
        let mut value = String::new();
        let mut meaning = vec![sentence(&self.comments.about(var.range()))];
        for attr in var.attrs() {
            let text = attr.value().map_or(String::new(), |value| code_of(&value));
            match name_of(&attr).as_str() {
                "parse" => value = attr.value().map_or(String::new(), |value| code_in_lines(&value)),
                "any" => value = format!("{text} for any of them"),
                "sum" => value = format!("{text} added up over all of them"),
                "kept" => value = "what the request that it answers said in <code>%keep</code>".to_owned(),
                "full" => value = format!("whether {text} ended because it was full"),
                "carried" => {
                    value = "what the request before it said in <code>%carry</code>".to_owned();
                }
                "serialize" => {
                    let target = attr.target().map_or(String::new(), |target| code_of(&target));
                    meaning.push(format!("When it is changed, {target} becomes {text}."));
                }
                _ => match self.attr(&attr) {
                    Said::Bound(text) | Said::Meaning(text) => meaning.push(text),
                },
            }
        }
        let meaning = sentences(meaning);
        let ty = var.ty().map_or(String::new(), |ty| self.scope.type_link(&ty));
        self.vars.push_str(&format!(
            "<tr id=\"{}\"><th scope=\"row\">{}</th><td>{ty}</td><td>{value}</td><td>{}</td></tr>\n",
            escape(&field_id(self.unit, name.text())),
            escape(name.text()),
            meaning
        ));
    }

    fn check(&mut self, check: &UnitCheck) {
        let Some(condition) = check.condition() else { return };
        let fault = check.attrs().find(|attr| name_of(attr) == "fault").and_then(|attr| attr.value());
        let fault = fault.map_or(String::new(), |fault| format!(" (else {})", code_of(&fault)));
        let said = sentence(&self.comments.about(check.range()));
        let said = if said.is_empty() { said } else { format!(": {said}") };
        self.checks.push_str(&format!("<li>{}{fault}{said}</li>\n", code_in_lines(&condition)));
    }

    /// Says what an attribute means.
    fn attr(&self, attr: &Attr) -> Said {
        let name = name_of(attr);
        let Some(value) = attr.value() else {
            return match name.as_str() {
                "streamed" => Said::Bound("passed on as it arrives".to_owned()),
                "to_close" => Said::Bound("all until the peer closes".to_owned()),
                "signed" => Said::Bound("a minus sign may stand before it".to_owned()),
                "nocase" => Said::Bound("keys in any case".to_owned()),
                "trim" => Said::Bound("blanks around it left out".to_owned()),
                "cut" => Said::Meaning("Never forwarded.".to_owned()),
                "zeros" => Said::Bound("zeros may stand before it".to_owned()),
                "optional" => Said::Bound("may be missing".to_owned()),
                "supply" => Said::Meaning("Forwarded also where it is missing.".to_owned()),
                _ => Said::Meaning(code_of(attr)),
            };
        };
        let text = code_of(&value);
        let keys = || key_list(&value);
        match name.as_str() {
            "length" => Said::Bound(format!("{text} bytes")),
            "of" => Said::Bound(format!("of {}", class_link(self.scope, &value))),
            "until" => Said::Bound(format!("up to {}", literal_code(&value))),
            "min" => Said::Bound(format!("at least {text}")),
            "count" => Said::Bound(format!("{text} of them")),
            "last" => Said::Bound(format!("the last with {text}")),
            "children" => Said::Bound(format!("each opens {text} more")),
            "if" => Said::Bound(format!("only if {text}")),
            "requires" => Said::Bound(format!("refused unless {text}")),
            "default" => Said::Meaning(format!("{text} in a message that is built and does not give it.")),
            "fault" => Said::Meaning(format!("Else the message is refused as {text}.")),
            "key" => Said::Meaning(format!("Looked up by {text}.")),
            "value" => Said::Meaning(format!("What is found is {text}.")),
            "once" => Said::Meaning(format!("At most once each: {}.", keys())),
            "cut" => Said::Meaning(format!("Never forwarded: {}.", keys())),
            "cut_listed" => Said::Meaning(format!("Nor is what {} names.", keys())),
            "keep_cut" => Said::Meaning(format!("Forwarded all the same if {text}.")),
            "serialize" => Said::Meaning(format!("Written as {text}.")),
            "bare" => Said::Meaning(format!("Only the bytes of its elements are forwarded if {text}.")),
            _ => Said::Meaning(code_of(attr)),
        }
    }
}

/// A row of the table of fields. Texts are HTML, but for the comments.
#[derive(Default)]
struct Row<'a> {
    /// The attribute with its anchor; empty for what has no name.
    id: String,
    label: String,
    ty: String,
    bounds: Vec<String>,
    attrs: &'a [Attr],
    said: Vec<String>,
}

/// Description of an attribute, as a bound of the bytes or as their meaning. HTML.
enum Said {
    Bound(String),
    Meaning(String),
}

/// Joins what is said about one thing; what has no full stop is given one if more follows.
fn sentences(mut texts: Vec<String>) -> String {
    texts.retain(|text| !text.is_empty());
    let mut out = String::new();
    for text in texts {
        if !out.is_empty() {
            out.push_str(if out.ends_with(['.', '!', '?', ':']) { " " } else { ". " });
        }
        out.push_str(&text);
    }
    out
}

fn name_of(attr: &Attr) -> String {
    attr.name().map_or(String::new(), |name| name.text().to_owned())
}

fn constant_length(attrs: &[Attr]) -> Option<u32> {
    let length = attrs.iter().find(|attr| name_of(attr) == "length")?.value()?;
    constant(&length)?.checked_mul(8)
}

/// Says what the type itself bounds.
fn bound_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Named(named) => {
            let size = code_of(&named.size()?);
            let count = escape(&one_line(&named.size()?));
            Some(match named.name()?.text() {
                "string" | "bytes" => format!("at most {size} bytes"),
                "decimal" => digits(&count, ""),
                "hex" => digits(&count, "hexadecimal "),
                "varint" => format!("at most {size} bytes"),
                _ => return None,
            })
        }
        Type::List(list) => Some(format!("at most {}", code_of(&list.len()?))),
        Type::Tuple(_) => None,
    }
}

/// Returns the keys of `["a", "b"]`.
fn key_list(value: &Expr) -> String {
    let Expr::List(list) = value else { return literal_code(value) };
    let keys: Vec<String> = list.items().map(|item| literal_code(&item).replace("&quot;", "")).collect();
    keys.join(", ")
}
