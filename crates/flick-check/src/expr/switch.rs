//! `switch`, tables (`map`) and sets (`in`).

use flick_syntax::ast;

use super::bytes::among;
use super::choice::{Branches, value_block};
use super::{Expectation, Exprs, adapt, unknown};
use crate::hir::{EnumId, Expr, ExprKind, Span, Ty};
use crate::items::{Items, TypeItem};
use crate::range::range_of;
use crate::report;

impl Exprs<'_> {
    pub(crate) fn switch(&mut self, switch: &ast::SwitchExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let subject_end = switch.subject().map_or(switch.range().end, |subject| subject.range().end);
        let heading = self.span(switch.range().start..subject_end);
        let value = self.opt_expr(switch.subject(), &span);
        if matches!(value.ty, Ty::Variant(_) | Ty::Option(_)) {
            return self.matching(value, switch, wanted, heading, span);
        }
        let value = self.decidable(value);
        let mut common = Branches::new(wanted);
        let mut seen: Vec<Expr> = Vec::new();
        let mut arms = Vec::new();
        for arm in switch.arms() {
            let mark = self.scope.open();
            if let Some(binding) = arm.patterns().find_map(|pattern| pattern.binding()) {
                let location = self.span(binding.range());
                if value.ty != Ty::Unknown {
                    let found = self.items.describe(&value.ty);
                    self.sink.push(report::values::binding_in_plain_switch(location.clone(), &found));
                }
                match binding.kind() {
                    Some(ast::BindingKind::Parts(parts)) => {
                        self.declare_parts(&parts, &Ty::Unknown, &location);
                    }
                    Some(ast::BindingKind::Name(name)) => {
                        self.scope.declare(name.text(), Ty::Unknown, location, self.sink);
                    }
                    Some(ast::BindingKind::Nothing) | None => {}
                }
            }
            let patterns =
                arm.patterns().filter_map(|pattern| self.pattern(&pattern, &value.ty, &mut seen)).collect();
            let arm_span = self.span(arm.range());
            let body = self.branch_block(arm.body(), wanted, &arm_span, &mut common);
            self.scope.close(mark);
            arms.push((patterns, body));
        }
        let mut otherwise =
            switch.else_body().map(|body| self.branch_block(Some(body), wanted, &span, &mut common));
        self.check_exhaustive(&value.ty, &seen, otherwise.is_some(), heading);
        let ty = common.finish(arms.iter_mut().map(|(_, body)| body).chain(&mut otherwise));
        Expr { kind: ExprKind::Switch { value: Box::new(value), arms, otherwise }, ty, span }
    }

    /// `map e { a: x, else: y }`, which is a `switch`.
    pub(super) fn map(&mut self, map: &ast::MapExpr, span: Span) -> Expr {
        let value = self.subject(map.subject(), &span);
        let mut common = Branches::new(Expectation::Value);
        let mut seen: Vec<Expr> = Vec::new();
        let mut arms = Vec::new();
        let hint = if let Ty::Enum(id) = value.ty { Some(id) } else { None };
        let outer = std::mem::replace(&mut self.enum_hint, hint);
        for arm in map.arms() {
            let pattern = arm.pattern().and_then(|pattern| self.pattern(&pattern, &value.ty, &mut seen));
            let result = self.opt_expr(arm.value(), &span);
            common.add(self, &result.ty, &result.span);
            arms.push((pattern.into_iter().collect(), value_block(result)));
        }
        let mut otherwise = map.else_value().map(|otherwise| {
            let result = self.expr(&otherwise);
            common.add(self, &result.ty, &result.span);
            value_block(result)
        });
        self.enum_hint = outer;
        self.check_exhaustive(&value.ty, &seen, otherwise.is_some(), value.span.clone());
        let ty = common.finish(arms.iter_mut().map(|(_, body)| body).chain(&mut otherwise));
        Expr { kind: ExprKind::Switch { value: Box::new(value), arms, otherwise }, ty, span }
    }

    /// `e in { a, b }`, and `e in list`.
    pub(super) fn set(&mut self, set: &ast::InExpr, span: Span) -> Expr {
        if let Some(collection) = set.collection() {
            return self.in_collection(set.subject(), &collection, span);
        }
        let value = self.subject(set.subject(), &span);
        let mut seen: Vec<Expr> = Vec::new();
        let patterns: Vec<Expr> =
            set.patterns().filter_map(|pattern| self.pattern(&pattern, &value.ty, &mut seen)).collect();
        among(value, patterns, span)
    }

    /// Checks the value of a `switch` of a grammar.
    pub(crate) fn switch_subject(&mut self, subject: &ast::Expr) -> Expr {
        let value = self.expr(subject);
        self.decidable(value)
    }

    /// Checks a case of a `switch` of a grammar.
    pub(crate) fn constant_pattern(
        &mut self,
        pattern: &ast::Pattern,
        subject: &Ty,
        seen: &mut Vec<Expr>,
    ) -> Option<Expr> {
        if let Some(binding) = pattern.binding() {
            let location = self.span(binding.range());
            if *subject != Ty::Unknown {
                let found = self.items.describe(subject);
                self.sink.push(report::values::binding_in_plain_switch(location, &found));
            }
        }
        self.pattern(pattern, subject, seen)
    }

    fn subject(&mut self, subject: Option<ast::Expr>, around: &Span) -> Expr {
        let value = self.opt_expr(subject, around);
        self.decidable(value)
    }

    /// `x in list`, `key in dict`.
    fn in_collection(&mut self, subject: Option<ast::Expr>, collection: &ast::Expr, span: Span) -> Expr {
        let collection = self.expr(collection);
        let expected = match &collection.ty {
            Ty::List { elem, .. } => (**elem).clone(),
            Ty::Dict(id) => self.items.dicts[id.0 as usize].key.clone(),
            _ => Ty::Unknown,
        };
        let value = match subject {
            Some(subject) => self.expr_like(&subject, &expected),
            None => unknown(span.clone()),
        };
        let truth = Expr { ty: Ty::Bool, ..unknown(span.clone()) };
        if let ExprKind::Dict(id) = collection.kind {
            let key = self.coerced_key(id, value);
            return Expr { kind: ExprKind::DictHas(id, Box::new(key)), ty: Ty::Bool, span };
        }
        match &collection.ty {
            Ty::List { .. } if value.ty == Ty::Unknown => truth,
            Ty::List { .. } => self.in_list(value, collection, span),
            Ty::Unknown => truth,
            other => {
                let found = self.items.describe(other);
                self.sink.push(report::values::not_a_collection(collection.span.clone(), &found));
                truth
            }
        }
    }

    /// Rejects a value that cannot be compared with literals.
    fn decidable(&mut self, value: Expr) -> Expr {
        if !matches!(value.ty, Ty::Int { .. } | Ty::Bool | Ty::Enum(_) | Ty::Bytes { .. } | Ty::Unknown) {
            let found = self.items.describe(&value.ty);
            let help = match value.ty {
                Ty::Record(_) => "switch on a field of the message: `switch req.opcode:`",
                Ty::Option(_) | Ty::Variant(_) => "write a `switch`: a table cannot name the value of a case",
                _ => "switch on an integer, a boolean, a string or a member of an enum",
            };
            self.sink.push(report::types::argument(value.span.clone(), "switch", &found, help));
            return unknown(value.span);
        }
        value
    }

    /// Checks one pattern and enters it into `seen`; `None` if it was reported.
    fn pattern(&mut self, pattern: &ast::Pattern, subject: &Ty, seen: &mut Vec<Expr>) -> Option<Expr> {
        let span = self.span(pattern.range());
        let kind = pattern.kind()?;
        let library = pattern.library();
        let library = library.as_ref().map(ast::Name::text);
        let mut checked = match kind {
            ast::PatternKind::Literal(value) => self.literal(Some(value), span),
            ast::PatternKind::Negative(value) => super::int(-i128::from(value), span),
            ast::PatternKind::Name(name) => self.member_pattern(None, None, &name, subject, span)?,
            ast::PatternKind::Qualified(owner, name) => {
                self.member_pattern(library, Some(&owner), &name, subject, span)?
            }
        };
        if *subject == Ty::Unknown || checked.ty == Ty::Unknown {
            return None;
        }
        adapt(&mut checked, subject);
        if let (Ty::Enum(id), Ty::Int { .. }) = (subject, &checked.ty) {
            self.number_for_enum(*id, &checked);
            return None;
        }
        if !Items::same_kind(&checked.ty, subject) {
            let (wanted, found) = (self.items.describe(subject), self.items.describe(&checked.ty));
            let help = format!("write {wanted} as the case");
            self.sink.push(report::types::pattern(checked.span, &wanted, &found, help));
            return None;
        }
        self.check_reachable(&checked, subject, seen).then(|| {
            seen.push(checked.clone());
            checked
        })
    }

    fn check_reachable(&mut self, pattern: &Expr, subject: &Ty, seen: &[Expr]) -> bool {
        let text = format!("`{}`", constant_text(self.items, pattern));
        if let Some(first) = seen.iter().find(|first| same_constant(first, pattern)) {
            self.sink.push(report::types::unreachable_case(
                pattern.span.clone(),
                &text,
                Some(first.span.clone()),
            ));
            return false;
        }
        let outside = match (&pattern.kind, subject) {
            (ExprKind::Int(value), _) => range_of(subject).is_some_and(|range| !range.contains(*value)),
            (ExprKind::Str(bytes), Ty::Bytes { max, .. }) => bytes.len() > *max as usize,
            _ => false,
        };
        if outside {
            self.sink.push(report::types::unreachable_case(pattern.span.clone(), &text, None));
        }
        !outside
    }

    fn member_pattern(
        &mut self,
        library: Option<&str>,
        owner: Option<&ast::Name>,
        name: &ast::Name,
        subject: &Ty,
        span: Span,
    ) -> Option<Expr> {
        let id = match owner {
            Some(owner) => match self.items.type_named(self.file, library, owner.text()) {
                Some(TypeItem::Enum(id)) => id,
                _ => {
                    let names = self.items.enums.iter().map(|known| known.name.as_str());
                    let owner_span = self.span(owner.range());
                    self.sink.push(report::names::unknown_type(
                        owner_span,
                        owner.text(),
                        names.collect::<Vec<_>>(),
                    ));
                    return None;
                }
            },
            None => match subject {
                Ty::Enum(id) => *id,
                Ty::Unknown => return None,
                other => {
                    let found = format!("the name `{}`", name.text());
                    let help = "write a literal or a member of an enum as the case; compare with other values with `if`";
                    let wanted = self.items.describe(other);
                    self.sink.push(report::types::pattern(span, &wanted, &found, help.to_owned()));
                    return None;
                }
            },
        };
        self.pattern_member(id, name, span)
    }

    fn pattern_member(&mut self, id: EnumId, name: &ast::Name, span: Span) -> Option<Expr> {
        match self.member_of(id, name.text()) {
            Some((kind, ty)) => Some(Expr { kind, ty, span }),
            None => {
                let name_span = self.span(name.range());
                self.report_unknown_member(id, name.text(), name_span);
                None
            }
        }
    }

    /// Reports a `switch` that is not exhaustive.
    fn check_exhaustive(&mut self, subject: &Ty, seen: &[Expr], has_else: bool, heading: Span) {
        if has_else || *subject == Ty::Unknown {
            return;
        }
        let missing = match subject {
            Ty::Bool => {
                let without = [true, false].into_iter().find(|value| {
                    !seen.iter().any(|seen| matches!(seen.kind, ExprKind::Bool(known) if known == *value))
                });
                match without {
                    Some(value) => format!("`{value}`"),
                    None => return,
                }
            }
            Ty::Enum(id) => {
                let members = &self.items.enumeration(*id).members;
                let is_seen = |value: i64| {
                    seen.iter().any(|seen| matches!(seen.kind, ExprKind::Member(_, known) if known == value))
                };
                let absent: Vec<&str> = members
                    .iter()
                    .filter(|(_, value)| !is_seen(*value))
                    .map(|(name, _)| name.as_str())
                    .collect();
                if self.items.closed_enums.contains(&id.0) {
                    match absent.as_slice() {
                        [] => return,
                        [one] => format!("`{one}`"),
                        [first, rest @ ..] => {
                            format!("`{first}` and {} more members", rest.len())
                        }
                    }
                } else {
                    match absent.as_slice() {
                        [] => "other integers".to_owned(),
                        [one] => format!("`{one}` and other integers"),
                        [first, rest @ ..] => {
                            format!("`{first}`, {} more members and other integers", rest.len())
                        }
                    }
                }
            }
            _ => "other values".to_owned(),
        };
        self.sink.push(report::types::not_exhaustive(
            heading,
            &missing,
            matches!(subject, Ty::Enum(id) if !self.items.closed_enums.contains(&id.0)),
        ));
    }
}

fn same_constant(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Int(a), ExprKind::Int(b)) => a == b,
        (ExprKind::Bool(a), ExprKind::Bool(b)) => a == b,
        (ExprKind::Str(a), ExprKind::Str(b)) => a == b,
        (ExprKind::Member(_, a), ExprKind::Member(_, b)) => a == b,
        _ => false,
    }
}

/// The syntax of a constant.
pub(crate) fn constant_text(items: &Items, expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Str(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        ExprKind::Member(id, value) => {
            let members = &items.enumeration(*id).members;
            members
                .iter()
                .find(|(_, known)| known == value)
                .map_or_else(|| value.to_string(), |(name, _)| name.clone())
        }
        _ => "...".to_owned(),
    }
}
