//! `switch` over variants and options: the case and its value.
//! Promises: the cases are exhaustive or there is an `else`; a binding is in scope in its branch only.

use flick_syntax::ast;

use super::choice::Branches;
use super::{Expectation, Exprs};
use crate::hir::{Block, Expr, ExprKind, LocalId, Span, Stmt, Ty, VariantId};
use crate::report;

/// Cases of an option, by their number.
const OPTION_CASES: [&str; 2] = ["none", "some"];

/// A branch: the numbers of its cases, the local that is bound to the value, and the body.
type Arm = (Vec<u32>, Option<LocalId>, Block);

/// A tuple pattern: the local of the tuple, and the names of its elements.
type Parts = (LocalId, Vec<Option<LocalId>>);

impl Exprs<'_> {
    /// Checks a `switch` over `value`, whose type is a variant or an option.
    pub(super) fn matching(
        &mut self,
        value: Expr,
        switch: &ast::SwitchExpr,
        wanted: Expectation<'_>,
        heading: Span,
        span: Span,
    ) -> Expr {
        let cases = self.cases(&value.ty);
        let mut common = Branches::new(wanted);
        let mut seen: Vec<(u32, Span)> = Vec::new();
        let mut arms: Vec<Arm> = Vec::new();
        for arm in switch.arms() {
            let arm_span = self.span(arm.range());
            let mark = self.scope.open();
            let patterns: Vec<ast::Pattern> = arm.patterns().collect();
            let mut numbers = Vec::new();
            for pattern in &patterns {
                numbers.extend(self.case_of(pattern, &value.ty, &cases, &mut seen));
            }
            let (local, parts) = self.arm_names(&patterns, numbers.first().copied(), &cases);
            let mut body = self.branch_block(arm.body(), wanted, &arm_span, &mut common);
            self.scope.close(mark);
            if let Some((whole, parts)) = parts {
                let ty = self.scope.locals[whole.0 as usize].ty.clone();
                let read = Expr { kind: ExprKind::Local(whole), ty, span: arm_span };
                body.stmts.insert(0, Stmt::LetTuple(parts, read));
            }
            arms.push((numbers, local, body));
        }
        let mut otherwise =
            switch.else_body().map(|body| self.branch_block(Some(body), wanted, &span, &mut common));
        self.check_cases(&cases, &seen, switch.else_body().as_ref(), heading);
        let ty = common.finish(arms.iter_mut().map(|(_, _, body)| body).chain(&mut otherwise));
        Expr { kind: ExprKind::Match { value: Box::new(value), arms, otherwise }, ty, span }
    }

    /// Names of the cases of a type, and the types of their values.
    fn cases(&self, ty: &Ty) -> Vec<(String, Option<Ty>)> {
        match ty {
            Ty::Variant(id) => self.items.variants[id.0 as usize].cases.clone(),
            Ty::Option(inner) => {
                let [none, some] = OPTION_CASES;
                vec![(none.to_owned(), None), (some.to_owned(), Some((**inner).clone()))]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the number of the case of a pattern; an unknown or duplicate one is reported.
    fn case_of(
        &mut self,
        pattern: &ast::Pattern,
        ty: &Ty,
        cases: &[(String, Option<Ty>)],
        seen: &mut Vec<(u32, Span)>,
    ) -> Option<u32> {
        let span = self.span(pattern.path_range());
        let name = match pattern.kind()? {
            ast::PatternKind::Name(name) => name,
            ast::PatternKind::Qualified(owner, name) if self.is_owner(&owner, &pattern.library(), ty) => name,
            ast::PatternKind::Qualified(owner, _) => {
                let wanted = self.items.describe(ty);
                let found = format!("a member of enum `{}`", owner.text());
                self.sink.push(report::types::pattern(span, &wanted, &found, case_help(ty, cases)));
                return None;
            }
            ast::PatternKind::Literal(_) | ast::PatternKind::Negative(_) => {
                let wanted = self.items.describe(ty);
                self.sink.push(report::types::pattern(span, &wanted, "a literal", case_help(ty, cases)));
                return None;
            }
        };
        let Some(number) = cases.iter().position(|(known, _)| known == name.text()) else {
            let known: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
            let of = match ty {
                Ty::Variant(VariantId(id)) => self.items.variants[*id as usize].name.clone(),
                _ => "option".to_owned(),
            };
            self.sink.push(report::values::unknown_case(span, &of, name.text(), &known));
            return None;
        };
        let number = number as u32;
        if let Some((_, first)) = seen.iter().find(|(known, _)| *known == number) {
            let text = format!("`{}`", name.text());
            self.sink.push(report::types::unreachable_case(span, &text, Some(first.clone())));
            return None;
        }
        seen.push((number, span));
        Some(number)
    }

    /// Whether `owner.case` names a case of `ty`.
    fn is_owner(&self, owner: &ast::Name, library: &Option<ast::Name>, ty: &Ty) -> bool {
        let item = self.items.type_named(self.file, library.as_ref().map(ast::Name::text), owner.text());
        match (item, ty) {
            (Some(crate::items::TypeItem::Variant(found)), Ty::Variant(id)) => found == *id,
            _ => false,
        }
    }

    /// Declares the bindings of an arm.
    fn arm_names(
        &mut self,
        patterns: &[ast::Pattern],
        case: Option<u32>,
        cases: &[(String, Option<Ty>)],
    ) -> (Option<LocalId>, Option<Parts>) {
        let Some(binding) = patterns.iter().find_map(ast::Pattern::binding) else { return (None, None) };
        let location = self.span(binding.range());
        if patterns.len() > 1 {
            self.sink.push(report::values::binding_of_several(location));
            return (None, None);
        }
        let carried = match case.map(|case| &cases[case as usize]) {
            // The case was reported: the type of its value is not known.
            None => Ty::Unknown,
            Some((_, Some(ty))) => ty.clone(),
            Some((name, None)) => {
                self.sink.push(report::values::unexpected_binding(location.clone(), name));
                Ty::Unknown
            }
        };
        match binding.kind() {
            Some(ast::BindingKind::Name(name)) => {
                (Some(self.scope.declare(name.text(), carried, location, self.sink)), None)
            }
            Some(ast::BindingKind::Parts(parts)) => {
                let whole = self.scope.hidden("", carried.clone(), location.clone());
                let parts = self.declare_parts(&parts, &carried, &location);
                (Some(whole), parts.map(|parts| (whole, parts)))
            }
            Some(ast::BindingKind::Nothing) | None => (None, None),
        }
    }

    fn check_cases(
        &mut self,
        cases: &[(String, Option<Ty>)],
        seen: &[(u32, Span)],
        other: Option<&ast::Block>,
        heading: Span,
    ) {
        let missing: Vec<&(String, Option<Ty>)> = cases
            .iter()
            .enumerate()
            .filter(|(number, _)| !seen.iter().any(|(known, _)| *known == *number as u32))
            .map(|(_, case)| case)
            .collect();
        match (missing.as_slice(), other) {
            ([], Some(other)) => {
                let location = self.span(other.range());
                self.sink.push(report::values::unreachable_else_of_variant(location));
            }
            ([], None) | (_, Some(_)) => {}
            ([(name, carried), rest @ ..], None) => {
                let example =
                    if carried.is_some() { format!("{name} x: ...") } else { format!("{name}: ...") };
                self.sink.push(report::values::cases_missing(heading, name, rest.len(), &example));
            }
        }
    }
}

fn case_help(ty: &Ty, cases: &[(String, Option<Ty>)]) -> String {
    match ty {
        Ty::Option(_) => "write `some x: ...` or `none: ...`".to_owned(),
        _ => {
            let names: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
            format!("write one of its cases: {}", report::list(names))
        }
    }
}
