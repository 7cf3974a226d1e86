//! A checked program as text, for people and golden files.
//! Promises: the text says every decision of the checker that is not in the source: bounds, what streams, which fields
//! follow, which fields a channel decodes, types of names. It is the same for the same program.

use std::fmt::Write;

use crate::hir::{
    Block, Builtin, Derived, Expr, ExprKind, Facts, Field, FieldId, FieldKind, Program, Stmt, Ty, Unit,
    UnitId,
};

/// Describes `program`. Units of other files are described only where their messages travel on its channels, in one
/// line, unless `with_used` asks for all of them in full.
pub fn summary(program: &Program, with_used: bool) -> String {
    let mut out = String::new();
    let text = Text { program, unit: None };
    for enumeration in program.enums.iter().filter(|known| known.span.file == 0) {
        let members: Vec<String> =
            enumeration.members.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let repr = enumeration.repr.map_or("no width".to_owned(), crate::types::int_name);
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
    for fun in &program.funs {
        let locals: Vec<String> =
            fun.locals.iter().map(|local| format!("{}: {}", local.name, text.ty(&local.ty))).collect();
        let (params, lets) = locals.split_at(fun.param_count.min(locals.len()));
        let _ = writeln!(out, "fun {}({}) -> {}", fun.name, params.join(", "), text.ty(&fun.result));
        for local in lets {
            let _ = writeln!(out, "  let {local}");
        }
        text.in_body(&fun.locals).block(&mut out, &fun.body, 1);
    }
    if let Some(process) = &program.process {
        let _ = writeln!(out, "proc {}", process.name);
        for channel in &process.channels {
            let name =
                |unit: Option<UnitId>| unit.map_or("-", |unit| program.units[unit.0 as usize].name.as_str());
            let many = if channel.is_array { "[]" } else { "" };
            let decodes: Vec<String> = channel
                .view
                .iter()
                .map(|(field, bound)| {
                    let unit = channel.receives.map(|unit| &program.units[unit.0 as usize]);
                    let field = unit.map_or(String::new(), |unit| field_name(unit, *field));
                    bound.map_or(field.clone(), |bound| format!("{field}<{bound}>"))
                })
                .collect();
            let decodes = if decodes.is_empty() { "nothing".to_owned() } else { decodes.join(" ") };
            let _ = writeln!(
                out,
                "  channel {}{many}: {}/{} decodes {decodes}",
                channel.name,
                name(channel.receives),
                name(channel.sends)
            );
        }
        for rule in &process.rules {
            let _ = writeln!(out, "  rule {}", process.channels[rule.source.0 as usize].name);
            text.in_body(&rule.locals).block(&mut out, &rule.body, 2);
        }
    }
    out
}

/// Fields whose length differs from message to message.
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
    /// The unit that `self` stands for.
    unit: Option<&'a Unit>,
}

/// Code with names for its locals.
struct Body<'a> {
    text: &'a Text<'a>,
    locals: &'a [crate::hir::Local],
}

impl Text<'_> {
    fn in_body<'a>(&'a self, locals: &'a [crate::hir::Local]) -> Body<'a> {
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
            Ty::Nothing => "nothing".to_owned(),
            Ty::Unknown => "unknown".to_owned(),
        }
    }

    fn unit(&self, out: &mut String, unit: &Unit) {
        let _ = writeln!(out, "unit {}", unit.name);
        for field in &unit.fields {
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
                let follows = match derived {
                    None => String::new(),
                    Some(Derived::LengthOf(measured)) => {
                        format!(", follows: len({})", field_name(unit, *measured))
                    }
                    Some(Derived::Expr(expr)) => format!(", follows: {}", body.expr(expr)),
                };
                format!("{name}: {}{order}{kind}{follows}", crate::types::int_name(*repr))
            }
            FieldKind::Bytes { text, max_bytes, length, streamed } => {
                let kind = if *text { "string" } else { "bytes" };
                let bound = max_bytes.map_or(String::new(), |max| format!("<{max}>"));
                let streamed = if *streamed { ", streamed" } else { "" };
                format!("{name}: {kind}{bound}, length {}{streamed}", body.expr(length))
            }
            FieldKind::Var { repr, parse } => {
                format!("var {name}: {} = {}", crate::types::int_name(*repr), body.expr(parse))
            }
        };
        for check in &field.requires {
            let _ = write!(text, ", requires {}", body.expr(check));
        }
        text
    }

    fn facts(&self, out: &mut String, unit: &Unit, facts: &Facts) {
        let body = self.in_body(&[]);
        let truths = [
            ("request", &facts.request),
            ("reply", &facts.reply),
            ("ends", &facts.ends),
            ("mute", &facts.mute),
            ("silent", &facts.silent),
            ("more", &facts.more),
        ];
        for (name, fact) in truths {
            if let Some(fact) = fact {
                let _ = writeln!(out, "  %{name} {}", body.expr(fact));
            }
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
        for (reason, answer) in &facts.on {
            let _ = writeln!(out, "  %on {reason} = {}", body.expr(answer));
        }
    }
}

impl Body<'_> {
    fn block(&self, out: &mut String, block: &Block, depth: usize) {
        let indent = "  ".repeat(depth);
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let(local, value) => {
                    let name = self.locals.get(local.0 as usize).map_or("?", |local| local.name.as_str());
                    let _ = writeln!(out, "{indent}{name} = {}", self.expr(value));
                }
                Stmt::Expr(value) => self.stmt(out, value, depth),
            }
        }
        if let Some(value) = &block.value {
            let _ = writeln!(out, "{indent}gives {}", self.expr(value));
        }
    }

    fn stmt(&self, out: &mut String, value: &Expr, depth: usize) {
        let indent = "  ".repeat(depth);
        match &value.kind {
            ExprKind::If { cond, then, otherwise } if value.ty == Ty::Nothing => {
                let _ = writeln!(out, "{indent}if {}", self.expr(cond));
                self.block(out, then, depth + 1);
                if let Some(otherwise) = otherwise {
                    let _ = writeln!(out, "{indent}else");
                    self.block(out, otherwise, depth + 1);
                }
            }
            ExprKind::Switch { value: subject, arms, otherwise } if value.ty == Ty::Nothing => {
                let _ = writeln!(out, "{indent}switch {}", self.expr(subject));
                for (patterns, body) in arms {
                    let patterns: Vec<String> = patterns.iter().map(|pattern| self.expr(pattern)).collect();
                    let _ = writeln!(out, "{indent}  {}", patterns.join(", "));
                    self.block(out, body, depth + 2);
                }
                if let Some(otherwise) = otherwise {
                    let _ = writeln!(out, "{indent}  else");
                    self.block(out, otherwise, depth + 2);
                }
            }
            _ => {
                let _ = writeln!(out, "{indent}{}", self.expr(value));
            }
        }
    }

    fn inline(&self, block: &Block) -> String {
        let mut text = String::new();
        self.block(&mut text, block, 0);
        let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("gives ").unwrap_or(line)).collect();
        lines.join("; ")
    }

    fn fields(&self, unit: &Ty, fields: &[(FieldId, Expr)]) -> String {
        let name = |field: FieldId| match unit {
            Ty::Record(unit) => field_name(&self.text.program.units[unit.0 as usize], field),
            _ => format!("#{}", field.0),
        };
        let fields: Vec<String> =
            fields.iter().map(|(field, value)| format!("{}={}", name(*field), self.expr(value))).collect();
        fields.join(" ")
    }

    fn self_name(&self, field: FieldId) -> String {
        self.text.unit.map_or(format!("#{}", field.0), |unit| field_name(unit, field))
    }

    fn list(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|expr| self.expr(expr)).collect::<Vec<_>>().join(", ")
    }

    fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Int(value) => value.to_string(),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Str(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            ExprKind::Member(id, value) => {
                let known =
                    self.text.program.enums[id.0 as usize].members.iter().find(|(_, known)| known == value);
                known.map_or(value.to_string(), |(name, _)| name.clone())
            }
            ExprKind::Local(id) => match self.locals.get(id.0 as usize) {
                Some(local) if local.name.is_empty() => "message".to_owned(),
                Some(local) => local.name.clone(),
                None => format!("%{}", id.0),
            },
            ExprKind::Channel(id) => {
                let process = self.text.program.process.as_ref();
                process.map_or(String::new(), |process| process.channels[id.0 as usize].name.clone())
            }
            ExprKind::Field(base, field) => {
                let name = match base.ty {
                    Ty::Record(unit) => field_name(&self.text.program.units[unit.0 as usize], *field),
                    _ => format!("#{}", field.0),
                };
                format!("{}.{name}", self.expr(base))
            }
            ExprKind::SelfField(field) => self.self_name(*field),
            ExprKind::LenOf(field) => format!("len({})", self.self_name(*field)),
            ExprKind::Dollar => "$$".to_owned(),
            ExprKind::Not(inner) => format!("not {}", self.expr(inner)),
            ExprKind::Neg(inner) => format!("-{}", self.expr(inner)),
            ExprKind::Binary(op, a, b) => {
                format!("({} {} {})", self.expr(a), crate::expr::spelled(*op), self.expr(b))
            }
            ExprKind::If { cond, then, otherwise } => {
                let other =
                    otherwise.as_ref().map_or(String::new(), |other| format!(" else {}", self.inline(other)));
                format!("if {} then {}{other}", self.expr(cond), self.inline(then))
            }
            ExprKind::Switch { value, arms, otherwise } => {
                let mut parts: Vec<String> = arms
                    .iter()
                    .map(|(patterns, body)| format!("{}: {}", self.list(patterns), self.inline(body)))
                    .collect();
                parts.extend(otherwise.iter().map(|other| format!("else: {}", self.inline(other))));
                format!("switch {} {{ {} }}", self.expr(value), parts.join("; "))
            }
            ExprKind::Call(fun, args) => {
                format!("{}({})", self.text.program.funs[fun.0 as usize].name, self.list(args))
            }
            ExprKind::Builtin(builtin, args) => format!("{}({})", builtin_name(*builtin), self.list(args)),
            ExprKind::Index(base, index) => format!("{}[{}]", self.expr(base), self.expr(index)),
            ExprKind::With(base, fields) => {
                format!("{} with {}", self.expr(base), self.fields(&expr.ty, fields))
            }
            ExprKind::Build(_, fields) => {
                format!("{}{{{}}}", self.text.ty(&expr.ty), self.fields(&expr.ty, fields))
            }
            ExprKind::Send { message, channel } => {
                format!("send {} to {}", self.expr(message), self.expr(channel))
            }
        }
    }
}

fn builtin_name(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::Hash => "hash",
        Builtin::Len => "len",
        Builtin::StartsWith => "starts_with",
        Builtin::EndsWith => "ends_with",
        Builtin::Contains => "contains",
        Builtin::Min => "min",
        Builtin::Max => "max",
    }
}
