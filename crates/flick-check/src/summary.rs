//! A checked program as text, for golden files and debugging.
//! Promises: the text shows every decision of the checker that is not in the source: bounds, streaming, derived
//! fields, the fields that a channel decodes, types of names. It is deterministic.

mod code;
mod structured;

use std::fmt::Write;

use code::Body;

use crate::hir::{
    Channel, DecodedField, Derived, Facts, Field, FieldId, FieldKind, Forward, ForwardTarget, Local, Program,
    Rule, SessionLocal, Ty, Unit, UnitId,
};
use crate::primitives;

/// Describes `program`. Units of other files are described only if its channels carry their messages, in one line,
/// unless `with_used` asks for all of them in full.
pub fn summary(program: &Program, with_used: bool) -> String {
    let mut out = String::new();
    let text = Text { program, unit: None };
    for enumeration in program.enums.iter().filter(|known| known.span.file == 0) {
        let members: Vec<String> =
            enumeration.members.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let repr = enumeration.repr.map_or("no width".to_owned(), primitives::int_name);
        let _ = writeln!(out, "enum {}: {repr} {}", enumeration.name, members.join(" "));
    }
    for (index, unit) in program.units.iter().enumerate() {
        let channels = program.process.iter().flat_map(|process| &process.channels);
        let travels = channels
            .into_iter()
            .any(|channel| [channel.receives, channel.sends].contains(&Some(UnitId(index as u32))));
        if unit.span.file == 0 || travels && with_used {
            Text { program, unit: Some(unit) }.unit(&mut out, unit);
        } else if travels {
            let _ = writeln!(out, "unit {} of another file: {}", unit.name, bounds(unit));
        }
    }
    text.declarations(&mut out);
    for fun in &program.funs {
        let locals: Vec<String> = fun
            .locals
            .iter()
            .enumerate()
            .map(|(index, local)| {
                let name = if local.name.is_empty() { format!("_{index}") } else { local.name.clone() };
                format!("{name}: {}", text.ty(&local.ty))
            })
            .collect();
        let (params, lets) = locals.split_at(fun.param_count.min(locals.len()));
        let _ = writeln!(out, "fun {}({}) -> {}", fun.name, params.join(", "), text.ty(&fun.result));
        for local in lets {
            let _ = writeln!(out, "  let {local}");
        }
        text.in_body(&fun.locals).block(&mut out, &fun.body, 1);
    }
    for program in program.each() {
        let Some(process) = &program.process else { continue };
        let text = Text { program, unit: None };
        let _ = writeln!(out, "proc {}", process.name);
        for channel in &process.channels {
            text.describe_channel(&mut out, channel);
        }
        for rule in &process.rules {
            text.rule(&mut out, "rule", rule);
        }
        text.events(&mut out);
    }
    out
}

/// Fields of variable length.
fn bounds(unit: &Unit) -> String {
    let fields = unit.fields.iter().filter_map(|field| match &field.kind {
        FieldKind::Bytes { max_bytes, .. } => {
            let name = field.name.as_deref().unwrap_or("_");
            Some(max_bytes.map_or(format!("{name} streamed"), |max| format!("{name}<{max}>")))
        }
        _ => None,
    });
    fields.collect::<Vec<_>>().join(", ")
}

fn field_name(unit: &Unit, field: FieldId) -> String {
    unit.fields[field.0 as usize].name.clone().unwrap_or_else(|| format!("#{}", field.0))
}

struct Text<'a> {
    program: &'a Program,
    /// The unit that `self` refers to.
    unit: Option<&'a Unit>,
}

impl Text<'_> {
    fn describe_channel(&self, out: &mut String, channel: &Channel) {
        let unit = |unit: UnitId| &self.program.units[unit.0 as usize];
        let name = |id: Option<UnitId>| id.map_or("-", |id| unit(id).name.as_str());
        let many = if channel.is_array { "[]" } else { "" };
        let fields = channel.view.iter().map(|DecodedField { field, max, optional }| {
            let field = channel.receives.map_or(String::new(), |id| field_name(unit(id), *field));
            let field = format!("{field}{}", if *optional { "?" } else { "" });
            max.map_or(field.clone(), |bound| format!("{field}<{bound}>"))
        });
        let keys = channel
            .keys
            .iter()
            .filter_map(|(list, key)| Some(self.key_name(unit(channel.receives?), *list, *key)));
        let whole = channel.whole.then(|| "all of it".to_owned());
        let decodes: Vec<String> = fields.chain(keys).chain(whole).collect();
        let decodes = if decodes.is_empty() { "nothing".to_owned() } else { decodes.join(" ") };
        let (receives, sends) = (name(channel.receives), name(channel.sends));
        let _ = writeln!(out, "  channel {}{many}: {receives}/{sends} decodes {decodes}", channel.name);
    }

    fn in_body<'a>(&'a self, locals: &'a [Local]) -> Body<'a> {
        Body { text: self, locals }
    }

    fn ty(&self, ty: &Ty) -> String {
        let end = |unit: &Option<UnitId>| {
            unit.map_or("-", |unit| self.program.units[unit.0 as usize].name.as_str())
        };
        match ty {
            Ty::Int { lo, hi, .. } if *lo == i128::from(i64::MIN) && *hi == i128::from(i64::MAX) => {
                "int".to_owned()
            }
            Ty::Int { lo, hi, .. } if *lo == 0 && *hi == i128::from(u64::MAX) => "uint64".to_owned(),
            Ty::Int { lo, hi, .. } => format!("{lo}..{hi}"),
            Ty::Bool => "bool".to_owned(),
            Ty::Bytes { max, text } => format!("{}<{max}>", if *text { "string" } else { "bytes" }),
            Ty::Enum(id) => self.program.enums[id.0 as usize].name.clone(),
            Ty::Record(id) => self.program.units[id.0 as usize].name.clone(),
            Ty::Chan { receives, sends } => format!("{}/{}", end(receives), end(sends)),
            Ty::ChanArray { receives, sends } => format!("[{}/{}]", end(receives), end(sends)),
            Ty::Ipv4 => "ipv4".to_owned(),
            Ty::Ipv6 => "ipv6".to_owned(),
            Ty::Endpoint => "endpoint".to_owned(),
            Ty::Time => "time".to_owned(),
            Ty::Duration => "duration".to_owned(),
            Ty::Struct(id) => self.program.structs[id.0 as usize].name.clone(),
            Ty::Variant(id) => self.program.variants[id.0 as usize].name.clone(),
            Ty::Option(inner) => format!("option<{}>", self.ty(inner)),
            Ty::Tuple(parts) => {
                format!("({})", parts.iter().map(|part| self.ty(part)).collect::<Vec<_>>().join(", "))
            }
            Ty::List { elem, max } => format!("[{}]<{max}>", self.ty(elem)),
            Ty::Dict(id) => format!("dict {}", self.program.dicts[id.0 as usize].name),
            Ty::Counter(id) => format!("counter {}", self.program.counters[id.0 as usize].name),
            Ty::Nothing => "nothing".to_owned(),
            Ty::Unknown => "unknown".to_owned(),
        }
    }

    fn unit(&self, out: &mut String, unit: &Unit) {
        let _ = writeln!(out, "unit {}", unit.name);
        if let Some(body) = &unit.body {
            self.tree(out, unit, body, 1);
        }
        let plain = unit.fields.iter().filter(|_| unit.body.is_none());
        for field in plain {
            let _ = writeln!(out, "  {}", self.field(unit, field));
        }
        self.facts(out, unit, &unit.facts);
    }

    fn field(&self, unit: &Unit, field: &Field) -> String {
        let body = self.in_body(&[]);
        let name = field.name.as_deref().unwrap_or("_");
        let mut text = match &field.kind {
            FieldKind::Int { repr, big_endian, enumeration, derived } => {
                let order = match (repr.width_bytes, big_endian) {
                    (1, _) => "",
                    (_, true) => " big",
                    (_, false) => " little",
                };
                let kind = enumeration
                    .map_or(String::new(), |id| format!(" {}", self.program.enums[id.0 as usize].name));
                let follows = self.follows(unit, derived.as_ref());
                format!("{name}: {}{order}{kind}{follows}", primitives::int_name(*repr))
            }
            FieldKind::Vint { derived } => format!("{name}: vint{}", self.follows(unit, derived.as_ref())),
            FieldKind::Bytes { text, max_bytes, length, streamed } => {
                let kind = if *text { "string" } else { "bytes" };
                let bound = max_bytes.map_or(String::new(), |max| format!("<{max}>"));
                let streamed = if *streamed { ", streamed" } else { "" };
                format!("{name}: {kind}{bound}, length {}{streamed}", body.expr(length))
            }
            FieldKind::Var { repr, parse, sum } => {
                let over =
                    sum.map_or(String::new(), |list| format!("sum over {} of ", field_name(unit, list)));
                format!("var {name}: {} = {over}{}", primitives::int_name(*repr), body.expr(parse))
            }
            _ => self.wire_kind(unit, field),
        };
        for check in &field.requires {
            let _ = write!(text, ", requires {}", body.expr(check));
        }
        text
    }

    fn follows(&self, unit: &Unit, derived: Option<&Derived>) -> String {
        match derived {
            None => String::new(),
            Some(Derived::LengthOf(measured)) => format!(", follows: len({})", field_name(unit, *measured)),
            Some(Derived::Expr(expr)) => format!(", follows: {}", self.in_body(&[]).expr(expr)),
        }
    }

    fn facts(&self, out: &mut String, unit: &Unit, facts: &Facts) {
        let body = self.in_body(&[]);
        let truths = [
            ("request", &facts.request),
            ("reply", &facts.reply),
            ("ends", &facts.ends),
            ("mute", &facts.mute),
            ("stateful", &facts.stateful),
            ("silent", &facts.silent),
            ("more", &facts.more),
            ("keep", &facts.keep),
            ("carry", &facts.carry),
            ("last", &facts.last),
            ("retry", &facts.retry),
            ("whole", &facts.whole),
            ("tunnel", &facts.tunnel),
            ("closes", &facts.closes),
            ("status", &facts.status),
            ("failed", &facts.failed),
        ];
        for (name, fact) in truths {
            if let Some(fact) = fact {
                let _ = writeln!(out, "  %{name} {}", body.expr(fact));
            }
        }
        for (name, number) in [("keep_last", facts.keep_last), ("keep_client", facts.keep_client)] {
            if number > 0 {
                let _ = writeln!(out, "  %{name} {number}");
            }
        }
        if let Some(replies) = facts.replies {
            let _ = writeln!(out, "  %replies {}", self.program.units[replies.0 as usize].name);
        }
        if facts.exclusive {
            let _ = writeln!(out, "  %exclusive");
        }
        if facts.in_order {
            let _ = writeln!(out, "  %order in_order");
        }
        if let Some(field) = facts.correlate {
            let _ = writeln!(out, "  %correlate {}", field_name(unit, field));
        }
        if !facts.echo.is_empty() {
            let names: Vec<String> = facts.echo.iter().map(|field| field_name(unit, *field)).collect();
            let _ = writeln!(out, "  %echo {}", names.join(" "));
        }
        if let Some((field, expr)) = &facts.loud {
            let _ = writeln!(out, "  %loud {} = {}", field_name(unit, *field), body.expr(expr));
        }
        for Forward { cond, target, value } in &facts.forwards {
            let target = match target {
                ForwardTarget::Field(field, None) => field_name(unit, *field),
                ForwardTarget::Field(field, Some(front)) => {
                    format!("{}[..{}]", field_name(unit, *field), body.expr(front))
                }
                ForwardTarget::Key(list, key) => self.key_name(unit, *list, *key),
            };
            let value = value.as_ref().map_or("none".to_owned(), |value| body.expr(value));
            let _ = writeln!(out, "  forward {target} = {value} if {}", body.expr(cond));
        }
        for (reason, error_response) in &facts.on {
            let _ = writeln!(out, "  %on {reason} = {}", body.expr(error_response));
        }
    }

    /// The declarations of the program other than units and functions.
    fn declarations(&self, out: &mut String) {
        for record in self.program.structs.iter().filter(|known| known.span.file == 0) {
            let fields: Vec<String> =
                record.fields.iter().map(|(name, ty)| format!("{name}: {}", self.ty(ty))).collect();
            let _ = writeln!(out, "record {} {{{}}}", record.name, fields.join(", "));
        }
        for variant in self.program.variants.iter().filter(|known| known.span.file == 0) {
            let cases = variant.cases.iter().map(|(name, ty)| match ty {
                Some(ty) => format!("{name}: {}", self.ty(ty)),
                None => name.clone(),
            });
            let _ = writeln!(out, "variant {} {{{}}}", variant.name, cases.collect::<Vec<_>>().join(", "));
        }
        for dict in &self.program.dicts {
            let expire = dict.expire_ns.map_or(String::new(), |ns| format!(", expire {ns}ns"));
            let bytes = dict.bytes_max.map_or(String::new(), |bytes| format!(" in {bytes} bytes"));
            let snapshot = dict.snapshot.as_ref().map_or(String::new(), |kept| {
                format!(", snapshot {:?} every {}ns", kept.file, kept.every_ns)
            });
            let _ = writeln!(
                out,
                "dict {}: {} to {}, max {}{bytes}, evict {:?}{expire}{snapshot}",
                dict.name,
                self.ty(&dict.key),
                self.ty(&dict.value),
                dict.entries_max,
                dict.evict
            );
        }
        for counter in &self.program.counters {
            let _ = writeln!(out, "{} {}", if counter.is_gauge { "gauge" } else { "counter" }, counter.name);
        }
        for SessionLocal { name, ty, init, .. } in &self.program.session_locals {
            let _ = writeln!(out, "local {name}: {} := {}", self.ty(ty), self.in_body(&[]).expr(init));
        }
    }

    fn rule(&self, out: &mut String, what: &str, rule: &Rule) {
        let _ = writeln!(out, "  {what} {}", self.channel(rule.source));
        self.in_body(&rule.locals).block(out, &rule.body, 2);
    }

    /// Merges, handlers and timers of a process.
    fn events(&self, out: &mut String) {
        let Some(process) = &self.program.process else { return };
        for merge in &process.merges {
            let body = self.in_body(&merge.locals);
            let _ = writeln!(out, "  merge {} by {}", self.channel(merge.source), body.expr(&merge.key));
            body.block(out, &merge.body, 2);
            self.rule(out, "merged", &merge.finish);
        }
        for handler in &process.handlers {
            let _ = writeln!(out, "  except {:?} {}", handler.event, self.channel(handler.channel));
            self.in_body(&handler.locals).block(out, &handler.body, 2);
        }
        for timer in &process.timers {
            let _ = writeln!(out, "  every {}ns", timer.interval_ns);
            self.in_body(&timer.locals).block(out, &timer.body, 2);
        }
    }

    fn channel(&self, id: crate::hir::ChannelId) -> &str {
        let process = self.program.process.as_ref();
        process.map_or("?", |process| process.channels[id.0 as usize].name.as_str())
    }
}
