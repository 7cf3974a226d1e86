//! Structured units in the summary of a program: one line for each item of the tree.

use std::fmt::Write;

use flick_abi::FaultCause;

use super::{Text, field_name};
use crate::hir::{Choice, Field, FieldId, FieldKind, Item, List, ListEnd, Unit};

/// The `&fault` of a cause; empty for the default.
fn fault(cause: FaultCause) -> String {
    match cause.name() {
        Some(name) if cause != FaultCause::Malformed => format!(", fault {name}"),
        _ => String::new(),
    }
}

impl Text<'_> {
    /// The rows of a tree.
    pub(super) fn tree(&self, out: &mut String, unit: &Unit, row: &[Item], depth: usize) {
        let indent = "  ".repeat(depth);
        let body = self.in_body(&[]);
        for item in row {
            match item {
                Item::Field(id) => {
                    let field = &unit.fields[id.0 as usize];
                    let has_own_cause = field.too_long != FaultCause::TooLong;
                    let cause = if has_own_cause { field.too_long } else { field.cause };
                    let _ = writeln!(out, "{indent}{}{}", self.field(unit, field), fault(cause));
                    if let FieldKind::List(list) = &field.kind {
                        self.tree(out, unit, &list.body, depth + 1);
                    }
                }
                Item::Literal(literal) => {
                    let bare = [
                        (literal.nocase, " nocase"),
                        (literal.optional, " optional"),
                        (literal.cut, " cut"),
                        (literal.supplied, " supplied"),
                    ];
                    let bare: String = bare.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
                    let bytes = literal.bytes.escape_ascii();
                    let _ = writeln!(out, "{indent}\"{bytes}\"{bare}{}", fault(literal.cause));
                }
                Item::Check(check) => {
                    let _ = writeln!(out, "{indent}check {}{}", body.expr(&check.expr), fault(check.cause));
                }
                Item::Switch(choice) => self.choice(out, unit, choice, depth),
            }
        }
    }

    fn choice(&self, out: &mut String, unit: &Unit, choice: &Choice, depth: usize) {
        let indent = "  ".repeat(depth);
        let body = self.in_body(&[]);
        let _ = writeln!(out, "{indent}switch {}{}", body.expr(&choice.on), fault(choice.cause));
        for (constants, row) in &choice.arms {
            let constants: Vec<String> = constants.iter().map(|constant| body.expr(constant)).collect();
            let _ = writeln!(out, "{indent}  {}", constants.join(", "));
            self.tree(out, unit, row, depth + 2);
        }
        if let Some(row) = &choice.otherwise {
            let _ = writeln!(out, "{indent}  else");
            self.tree(out, unit, row, depth + 2);
        }
    }

    /// The kind of a field of a structured unit.
    pub(super) fn wire_kind(&self, unit: &Unit, field: &Field) -> String {
        let body = self.in_body(&[]);
        let name = field.name.as_deref().unwrap_or("_");
        let word = |text: bool| if text { "string" } else { "bytes" };
        match &field.kind {
            FieldKind::Text { text, class, until, min_bytes, max_bytes, trim, cut } => {
                let of = class.map_or(String::new(), |class| {
                    format!(", of {}", self.program.classes[class.0 as usize].name)
                });
                let until = until
                    .as_ref()
                    .map_or(String::new(), |until| format!(", until \"{}\"", until.escape_ascii()));
                let trim = if *trim { ", trimmed" } else { "" };
                let cut = if *cut { ", cut" } else { "" };
                format!("{name}: {}<{max_bytes}>{of}{until}, at least {min_bytes}{trim}{cut}", word(*text))
            }
            FieldKind::Number { base, digits_max, signed, zeros, derived } => {
                let sign = match (signed, zeros) {
                    (true, _) => " signed",
                    (false, true) => " behind zeros",
                    (false, false) => "",
                };
                let follows = self.follows(unit, derived.as_ref());
                format!("{name}: {digits_max} digits of base {base}{sign}{follows}")
            }
            FieldKind::Varint { bytes_max, derived } => {
                format!("{name}: varint<{bytes_max}>{}", self.follows(unit, derived.as_ref()))
            }
            FieldKind::Bits { of, shift, width } => {
                format!("{name}: {width} bits of field {} above {shift}", of.0)
            }
            FieldKind::Flag { parse, any: None } => format!("var {name}: bool = {}", body.expr(parse)),
            FieldKind::Flag { parse, any: Some((list, _)) } => {
                format!("var {name}: bool = any in {}: {}", field_name(unit, *list), body.expr(parse))
            }
            FieldKind::TextVar { text, max_bytes, parse } => {
                format!("var {name}: {}<{max_bytes}> when read = {}", word(*text), body.expr(parse))
            }
            FieldKind::Kept => format!("var {name}: what the request keeps"),
            FieldKind::Carried => format!("var {name}: what the request before it carries"),
            FieldKind::Full { list } => format!("var {name}: bool = {} is full", field_name(unit, *list)),
            FieldKind::ToClose { text } => format!("{name}: {} to close", word(*text)),
            FieldKind::List(list) => self.list(unit, name, list),
            _ => name.to_owned(),
        }
    }

    fn list(&self, unit: &Unit, name: &str, list: &List) -> String {
        let body = self.in_body(&[]);
        let end = match &list.end {
            ListEnd::Count(end) => format!("count {}", body.expr(end)),
            ListEnd::Until(end) => format!("until \"{}\"", end.escape_ascii()),
            ListEnd::Bytes(end) => format!("length {}", body.expr(end)),
            ListEnd::Children(end) => format!("children {}", body.expr(end)),
            ListEnd::Last(end) => format!("last when {}", body.expr(end)),
        };
        let max = list.max.map_or(String::new(), |max| format!("<{max}>"));
        let is = match list.element {
            Some(element) => field_name(unit, element),
            None => "its bytes".to_owned(),
        };
        let streamed = if list.streamed { ", streamed" } else { "" };
        let keyed = list.keyed.as_ref().map_or(String::new(), |keyed| {
            let key = |index: &u32| keyed.keys[*index as usize].escape_ascii().to_string();
            let keys = |keys: &[u32]| keys.iter().map(key).collect::<Vec<_>>().join(" ");
            let all: Vec<u32> = (0..keyed.keys.len() as u32).collect();
            let mut text = format!(", keys {{{}}}", keys(&all));
            let _ =
                write!(text, " from {} to {}", field_name(unit, keyed.key), field_name(unit, keyed.value));
            for (word, these) in [("once", &keyed.once), ("cut", &keyed.cut)] {
                if !these.is_empty() {
                    let _ = write!(text, ", {word} {}", keys(these));
                }
            }
            keyed.cut_listed.iter().for_each(|listed| _ = write!(text, ", cut what {} lists", key(listed)));
            keyed.keep_cut.iter().for_each(|unless| _ = write!(text, ", unless {}", body.expr(unless)));
            keyed.follows.iter().for_each(|(at, value)| {
                _ = write!(text, ", {} follows: {}", key(at), body.expr(value));
            });
            text
        });
        let longest = list.elem_bytes_max;
        let bare = list.bare.as_ref().map_or(String::new(), |bare| format!(", bare if {}", body.expr(bare)));
        format!("{name}: list{max} {end}, element {is} up to {longest}{keyed}{streamed}{bare}")
    }

    /// Names of fields, for the tree.
    pub(super) fn key_name(&self, unit: &Unit, list: FieldId, key: u32) -> String {
        let FieldKind::List(declared) = &unit.fields[list.0 as usize].kind else { return String::new() };
        let key = declared.keyed.as_ref().and_then(|keyed| keyed.keys.get(key as usize));
        let key = key.map_or(String::new(), |key| key.escape_ascii().to_string());
        format!("{}[\"{key}\"]", field_name(unit, list))
    }
}
