//! Bodies in the summary of a program: every block, statement and expression, one line for each effect.

use std::fmt::Write;

use super::{Text, field_name};
use crate::hir::{AskAll, Block, Expr, ExprKind, FieldId, Local, LocalId, LoopSource, Stmt, Ty};
use crate::primitives;

/// Code with the names of its locals.
pub(super) struct Body<'a> {
    pub(super) text: &'a Text<'a>,
    pub(super) locals: &'a [Local],
}

impl Body<'_> {
    pub(super) fn block(&self, out: &mut String, block: &Block, depth: usize) {
        let indent = "  ".repeat(depth);
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let(local, value) => {
                    let _ = writeln!(out, "{indent}{} = {}", self.local(*local), self.expr(value));
                }
                Stmt::LetTuple(locals, value) => {
                    let names: Vec<String> = locals
                        .iter()
                        .map(|local| local.map_or("_".to_owned(), |id| self.local(id)))
                        .collect();
                    let _ = writeln!(out, "{indent}({}) = {}", names.join(", "), self.expr(value));
                }
                Stmt::Assign(state, value) => {
                    let _ = writeln!(out, "{indent}{} := {}", self.state(*state), self.expr(value));
                }
                Stmt::Expr(value) => self.stmt(out, value, depth),
            }
        }
        if let Some(value) = &block.value {
            let _ = writeln!(out, "{indent}returns {}", self.expr(value));
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
        let lines: Vec<&str> =
            text.lines().map(|line| line.strip_prefix("returns ").unwrap_or(line)).collect();
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

    pub(super) fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Int(value) => value.to_string(),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Str(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            ExprKind::Member(id, value) => {
                let known =
                    self.text.program.enums[id.0 as usize].members.iter().find(|(_, known)| known == value);
                known.map_or(value.to_string(), |(name, _)| name.clone())
            }
            ExprKind::Local(id) => self.local(*id),
            ExprKind::Channel(id) => self.text.channel(*id).to_owned(),
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
            ExprKind::Builtin(builtin, args) => {
                format!("{}({})", crate::expr::builtin_name(*builtin), self.list(args))
            }
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
            _ => self.value(expr),
        }
    }

    /// Compound values and their constructors.
    fn value(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Tuple(parts) => format!("({})", self.list(parts)),
            ExprKind::TupleField(base, index) => format!("{}.{index}", self.expr(base)),
            ExprKind::StructBuild(_, fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(index, value)| format!("{index}={}", self.expr(value))).collect();
                format!("{}({})", self.text.ty(&expr.ty), fields.join(" "))
            }
            ExprKind::StructField(base, index) => format!("{}.{index}", self.expr(base)),
            ExprKind::StructWith(base, fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(index, value)| format!("{index}={}", self.expr(value))).collect();
                format!("{} with {}", self.expr(base), fields.join(" "))
            }
            ExprKind::VariantBuild(id, case, payload) => {
                let name = &self.text.program.variants[id.0 as usize].cases[*case as usize].0;
                let payload =
                    payload.as_ref().map_or(String::new(), |value| format!("({})", self.expr(value)));
                format!("{}.{name}{payload}", self.text.ty(&expr.ty))
            }
            ExprKind::Some(inner) => format!("some({})", self.expr(inner)),
            ExprKind::None => "none".to_owned(),
            ExprKind::OrElse(value, other) => format!("({} else {})", self.expr(value), self.inline(other)),
            ExprKind::Match { value, arms, otherwise } => self.cases(value, arms, otherwise.as_ref()),
            ExprKind::List(items) => format!("[{}]", self.list(items)),
            ExprKind::ListGet(base, index) | ExprKind::ByteAt(base, index) => {
                format!("{}[{}]", self.expr(base), self.expr(index))
            }
            ExprKind::Slice(base, from, to) => {
                let end = |end: &Option<Box<Expr>>| end.as_ref().map_or(String::new(), |end| self.expr(end));
                format!("{}[{}..{}]", self.expr(base), end(from), end(to))
            }
            ExprKind::Concat(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.expr(part)).collect();
                format!("({})", parts.join(" + "))
            }
            ExprKind::Convert(inner, repr) => {
                format!("{}({})", primitives::int_name(*repr), self.expr(inner))
            }
            ExprKind::Recast(inner) => format!("{} as {}", self.expr(inner), self.text.ty(&expr.ty)),
            _ => self.action(expr),
        }
    }

    /// Loops, state and asks.
    fn action(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::For { local, source, body } => self.repeat("for", *local, source, "", body),
            ExprKind::Fold { local, source, acc, init, body } => {
                let init = format!(", {} = {}", self.local(*acc), self.expr(init));
                self.repeat("fold", *local, source, &init, body)
            }
            ExprKind::MapList { local, source, body } => self.repeat("map", *local, source, "", body),
            ExprKind::Filter { local, source, body } => self.repeat("filter", *local, source, "", body),
            ExprKind::SessionLocal(id) => self.state(*id),
            ExprKind::Dict(id) => self.dict(*id),
            ExprKind::Counter(id) => self.text.program.counters[id.0 as usize].name.clone(),
            ExprKind::DictGet(id, key) => format!("{}[{}]", self.dict(*id), self.expr(key)),
            ExprKind::DictHas(id, key) => format!("{} in {}", self.expr(key), self.dict(*id)),
            ExprKind::DictPut(id, key, value) => {
                format!("{}[{}] := {}", self.dict(*id), self.expr(key), self.expr(value))
            }
            ExprKind::DictUpdate { dict, key, old, body, .. } => {
                let (dict, key) = (self.dict(*dict), self.expr(key));
                format!("update {dict}[{key}] from {}: {{ {} }}", self.local(*old), self.inline(body))
            }
            ExprKind::Ask { channel, message, timeout, otherwise } => {
                let (channel, message) = (self.expr(channel), self.expr(message));
                let other =
                    otherwise.as_ref().map_or(String::new(), |other| format!(" else {}", self.inline(other)));
                format!("ask {channel} with {message}{}{other}", self.timeout(timeout.as_deref()))
            }
            ExprKind::AskAll { asks, timeout } => {
                let asks = match asks {
                    AskAll::Array { channels, message } => {
                        format!("{} with {}", self.expr(channels), self.expr(message))
                    }
                    AskAll::Each(asks) => {
                        let asks: Vec<String> = asks
                            .iter()
                            .map(|(channel, message)| {
                                format!("{} with {}", self.expr(channel), self.expr(message))
                            })
                            .collect();
                        format!("[{}]", asks.join(", "))
                    }
                    AskAll::Over(over) => {
                        let (channel, message) = (self.expr(over.channel()), self.expr(over.message()));
                        let source = self.source(&over.source);
                        format!("[{} in {source}: {channel} with {message}]", self.local(over.local))
                    }
                };
                format!("ask all {asks}{}", self.timeout(timeout.as_deref()))
            }
            ExprKind::SelfKey(list, key) => {
                self.text.unit.map_or(String::new(), |unit| self.text.key_name(unit, *list, *key))
            }
            ExprKind::FieldKey(base, list, key) => {
                format!("{}.{}", self.expr(base), self.key_of(base, *list, *key))
            }
            ExprKind::WithKey(base, list, key, value) => {
                let value = value.as_ref().map_or("none".to_owned(), |value| self.expr(value));
                format!("{} with {}={value}", self.expr(base), self.key_of(base, *list, *key))
            }
            ExprKind::BuildWire(_, bytes) => {
                format!("{}{{wire={}}}", self.text.ty(&expr.ty), self.expr(bytes))
            }
            ExprKind::IsOf(value, class) => {
                let class = &self.text.program.classes[class.0 as usize].name;
                format!("is_of({}, {class})", self.expr(value))
            }
            // Every other kind has an arm in `expr` or `value`.
            other => unreachable!("the summary has no words for {other:?}"),
        }
    }

    fn key_of(&self, message: &Expr, list: FieldId, key: u32) -> String {
        match message.ty {
            Ty::Record(unit) => self.text.key_name(&self.text.program.units[unit.0 as usize], list, key),
            _ => String::new(),
        }
    }

    fn cases(
        &self,
        value: &Expr,
        arms: &[(Vec<u32>, Option<LocalId>, Block)],
        otherwise: Option<&Block>,
    ) -> String {
        let name = |case: u32| match &value.ty {
            Ty::Variant(id) => self.text.program.variants[id.0 as usize].cases[case as usize].0.clone(),
            _ if case == 0 => "none".to_owned(),
            _ => "some".to_owned(),
        };
        let mut parts: Vec<String> = arms
            .iter()
            .map(|(cases, local, body)| {
                let names: Vec<String> = cases.iter().map(|case| name(*case)).collect();
                let local = local.map_or(String::new(), |id| format!(" {}", self.local(id)));
                format!("{}{local}: {}", names.join(", "), self.inline(body))
            })
            .collect();
        parts.extend(otherwise.iter().map(|other| format!("else: {}", self.inline(other))));
        format!("switch {} {{ {} }}", self.expr(value), parts.join("; "))
    }

    fn repeat(&self, word: &str, local: LocalId, source: &LoopSource, more: &str, body: &Block) -> String {
        let source = self.source(source);
        format!("{word} {} in {source}{more}: {{ {} }}", self.local(local), self.inline(body))
    }

    fn source(&self, source: &LoopSource) -> String {
        match source {
            LoopSource::List(list) | LoopSource::Channels(list) => self.expr(list),
            LoopSource::Range { lo, hi, trips_max } => {
                format!("{}..{} (at most {trips_max})", self.expr(lo), self.expr(hi))
            }
        }
    }

    fn local(&self, id: LocalId) -> String {
        match self.locals.get(id.0 as usize) {
            Some(local) if local.name.is_empty() && id.0 == 0 => "message".to_owned(),
            Some(local) if local.name.is_empty() => format!("_{}", id.0),
            Some(local) => local.name.clone(),
            None => format!("%{}", id.0),
        }
    }

    fn state(&self, id: crate::hir::SessionLocalId) -> String {
        self.text.program.session_locals[id.0 as usize].name.clone()
    }

    fn dict(&self, id: crate::hir::DictId) -> String {
        self.text.program.dicts[id.0 as usize].name.clone()
    }

    fn timeout(&self, timeout: Option<&Expr>) -> String {
        timeout.map_or(String::new(), |timeout| format!(" timeout {}", self.expr(timeout)))
    }
}
