//! Compound values: tuples, lists, options, records, variants.
//! Promises: an element of a value is a plain value; messages are only in the result of `ask all`.

use flick_syntax::ast;

use super::{Expectation, Exprs, unknown};
use crate::hir::{Block, Builtin, Expr, ExprKind, LocalId, Span, Stmt, StructId, Ty, VariantId};
use crate::limits::VALUE_WORDS_MAX;
use crate::report;
use crate::ty::{has_part, join};
use crate::types;

impl Exprs<'_> {
    /// `none`, of the expected type.
    pub(super) fn none(&self, wanted: Expectation<'_>, span: Span) -> Expr {
        let inner = match wanted.ty() {
            Some(Ty::Option(inner)) => inner.clone(),
            _ => Box::new(Ty::Unknown),
        };
        Expr { kind: ExprKind::None, ty: Ty::Option(inner), span }
    }

    /// `(a, b)`.
    pub(super) fn tuple(&mut self, tuple: &ast::TupleExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let items: Vec<ast::Expr> = tuple.items().collect();
        let expected: &[Ty] = match wanted.ty() {
            Some(Ty::Tuple(parts)) if parts.len() == items.len() => parts,
            _ => &[],
        };
        let mut parts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let part = match expected.get(index) {
                Some(ty) => self.expr_like(item, ty),
                None => self.expr(item),
            };
            parts.push(self.part(part, "a tuple"));
        }
        if parts.len() < 2 {
            self.sink.push(report::values::short_tuple_value(span.clone(), parts.len()));
            return unknown(span);
        }
        if parts.iter().any(|part| part.ty == Ty::Unknown) {
            return unknown(span);
        }
        let ty = Ty::Tuple(parts.iter().map(|part| part.ty.clone()).collect());
        // Tuples of tuples grow exponentially in a few lines.
        let words = self.items.words(&ty);
        if words > VALUE_WORDS_MAX {
            self.sink.push(report::values::wide_tuple(span.clone(), words, VALUE_WORDS_MAX));
            return unknown(span);
        }
        Expr { kind: ExprKind::Tuple(parts), ty, span }
    }

    /// Rejects an element that cannot be stored.
    pub(super) fn part(&mut self, value: Expr, of: &str) -> Expr {
        if matches!(value.ty, Ty::Chan { .. } | Ty::ChanArray { .. } | Ty::Dict(_) | Ty::Counter(_)) {
            let found = self.items.describe(&value.ty);
            self.sink.push(report::values::not_storable(value.span.clone(), &found, of));
            return unknown(value.span);
        }
        value
    }

    /// `pair.0`.
    pub(super) fn tuple_field(&mut self, field: &ast::TupleFieldExpr, span: Span) -> Expr {
        let base = self.opt_expr(field.base(), &span);
        let Some(position) = field.position() else { return unknown(span) };
        match &base.ty {
            Ty::Unknown => unknown(span),
            Ty::Tuple(parts) => match parts.get(position as usize) {
                Some(ty) => {
                    let ty = ty.clone();
                    Expr { kind: ExprKind::TupleField(Box::new(base), position as u32), ty, span }
                }
                None => {
                    let location = field.position_range().map_or(span.clone(), |range| self.span(range));
                    self.sink.push(report::values::tuple_position(location, parts.len(), position));
                    unknown(span)
                }
            },
            other => {
                let found = self.items.describe(other);
                self.sink.push(report::values::not_a_tuple(base.span.clone(), &found));
                unknown(span)
            }
        }
    }

    /// `[a, b]`.
    pub(super) fn list(&mut self, list: &ast::ListExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let expected = match wanted.ty() {
            Some(Ty::List { elem, .. }) => Some((**elem).clone()),
            _ => None,
        };
        let mut items = Vec::new();
        let mut common = expected.clone().map_or(Ty::Unknown, |expected| {
            if list.items().next().is_none() { expected } else { Ty::Unknown }
        });
        let mut first: Option<Span> = None;
        for item in list.items() {
            let value = match &expected {
                Some(ty) => self.expr_like(&item, ty),
                None => self.expr(&item),
            };
            if value.ty == Ty::Unknown {
                return unknown(span);
            }
            if !self.is_element(&value.ty, &value.span) {
                return unknown(span);
            }
            match join(&common, &value.ty) {
                Some(both) => common = both,
                None => {
                    let (wanted, found) = (self.items.describe(&common), self.items.describe(&value.ty));
                    let first = first.clone().unwrap_or_else(|| span.clone());
                    let report = report::values::elements_differ(value.span.clone(), &wanted, first, &found);
                    self.sink.push(report);
                    return unknown(span);
                }
            }
            first.get_or_insert(value.span.clone());
            items.push(value);
        }
        if !self.check_signs(&common, &span) {
            return unknown(span);
        }
        items.iter_mut().for_each(|item| super::adapt(item, &common));
        let max = items.len() as u32;
        let largest = types::longest_list(self.items, &common);
        if max > largest {
            let spelled = self.items.spell(&common);
            self.sink.push(report::values::list_too_large(span.clone(), &spelled, max, largest));
        }
        Expr { kind: ExprKind::List(items), ty: Ty::List { elem: Box::new(common), max }, span }
    }

    /// Whether a list can contain values of type `ty`; reports it if not.
    pub(super) fn is_element(&mut self, ty: &Ty, span: &Span) -> bool {
        if has_part(ty, &|part| matches!(part, Ty::Record(_))) {
            let found = self.items.describe(ty);
            self.sink.push(report::values::message_element(span.clone(), &found));
            return false;
        }
        if let Some(what) = types::invalid_element(self.items, ty) {
            self.sink.push(report::values::list_element(span.clone(), &what));
            return false;
        }
        true
    }

    /// `some(x)`.
    pub(super) fn some(&mut self, args: &[ast::Expr], wanted: Expectation<'_>, span: Span) -> Expr {
        let [arg] = args else {
            let report = report::types::argument_count(span.clone(), "some", 1, args.len(), None, false);
            self.sink.push(report);
            return unknown(span);
        };
        let value = match wanted.ty() {
            Some(Ty::Option(inner)) => self.expr_like(arg, inner),
            _ => self.expr(arg),
        };
        let value = self.part(value, "an option");
        if value.ty == Ty::Unknown {
            return unknown(span);
        }
        let mut option = super::some(value);
        option.span = span;
        option
    }

    /// `option else default`.
    pub(super) fn or_else(
        &mut self,
        default: &ast::DefaultExpr,
        wanted: Expectation<'_>,
        span: Span,
    ) -> Expr {
        let expected = wanted.ty().map(|ty| match ty {
            Ty::Option(_) => ty.clone(),
            plain => Ty::Option(Box::new(plain.clone())),
        });
        let option = match (default.value(), &expected) {
            (Some(value), Some(expected)) => self.expr_like(&value, expected),
            (value, _) => self.opt_expr(value, &span),
        };
        let inner = match &option.ty {
            Ty::Option(inner) => (**inner).clone(),
            Ty::Unknown => {
                self.opt_expr(default.default(), &span);
                return unknown(span);
            }
            other => {
                let found = self.items.describe(other);
                self.sink.push(report::values::never_none(option.span.clone(), &found));
                return option;
            }
        };
        let mut other = match default.default() {
            Some(value) => self.expr_like(&value, wanted.ty().unwrap_or(&inner)),
            None => unknown(span.clone()),
        };
        if other.ty == Ty::Unknown {
            return Expr { ty: inner, ..unknown(span) };
        }
        let Some(ty) = join(&inner, &other.ty) else {
            let (wanted, found) = (self.items.describe(&inner), self.items.describe(&other.ty));
            let report =
                report::types::branches_differ(other.span.clone(), &wanted, option.span.clone(), &found);
            self.sink.push(report);
            return unknown(span);
        };
        self.check_signs(&ty, &other.span);
        super::adapt(&mut other, &ty);
        let is_option = matches!(ty, Ty::Option(_)) && !matches!(inner, Ty::Option(_));
        if !is_option {
            let kind = ExprKind::OrElse(Box::new(option), super::value_block(other));
            return Expr { kind, ty, span };
        }
        // The default may be none itself: then the result is an option.
        let local = self.scope.hidden("", inner.clone(), option.span.clone());
        let found = Expr { kind: ExprKind::Local(local), ty: inner, span: option.span.clone() };
        let arms = vec![
            (vec![1], Some(local), super::value_block(super::some(found))),
            (vec![0], None, super::value_block(other)),
        ];
        Expr { kind: ExprKind::Match { value: Box::new(option), arms, otherwise: None }, ty, span }
    }

    /// `point(1, 2)`; `piped` is the last value, checked already.
    pub(super) fn struct_positional(
        &mut self,
        id: StructId,
        args: &[ast::Expr],
        piped: Option<Expr>,
        span: Span,
    ) -> Expr {
        let record = &self.items.structs[id.0 as usize];
        let (wanted, is_piped) = (record.fields.len(), piped.is_some());
        let found = args.len() + usize::from(is_piped);
        if found != wanted {
            let location = Some(record.span.clone());
            let report =
                report::types::argument_count(span.clone(), &record.name, wanted, found, location, is_piped);
            self.sink.push(report);
            return Expr { ty: Ty::Struct(id), ..unknown(span) };
        }
        let mut values: Vec<Expr> =
            args.iter().zip(&record.fields).map(|(arg, (_, ty))| self.expr_like(arg, ty)).collect();
        values.extend(piped);
        let fields = values.into_iter().zip(&record.fields).map(|(value, (name, ty))| {
            self.coerce(value, ty, &format!("`{name}`"), Some(record.span.clone()))
        });
        let fields = (0..).zip(fields).collect();
        Expr { kind: ExprKind::StructBuild(id, fields), ty: Ty::Struct(id), span }
    }

    /// `point{x = 1, y = 2}`.
    pub(super) fn struct_build(&mut self, id: StructId, record: &ast::RecordExpr, span: Span) -> Expr {
        let given = self.struct_inits(id, record.fields());
        let declared = &self.items.structs[id.0 as usize];
        let missing: Vec<&str> = declared
            .fields
            .iter()
            .enumerate()
            .filter(|(index, _)| !given.iter().any(|(known, _)| known == index))
            .map(|(_, (name, _))| name.as_str())
            .collect();
        if let Some(first) = missing.first() {
            let report = report::values::fields_missing(
                span.clone(),
                &declared.name,
                first,
                missing.len(),
                declared.span.clone(),
            );
            self.sink.push(report);
            return Expr { ty: Ty::Struct(id), ..unknown(span) };
        }
        let fields = given.into_iter().map(|(index, value)| (index as u32, value)).collect();
        Expr { kind: ExprKind::StructBuild(id, fields), ty: Ty::Struct(id), span }
    }

    /// `p with x = 1`.
    pub(super) fn struct_with(&mut self, base: Expr, id: StructId, with: &ast::WithExpr, span: Span) -> Expr {
        let fields = self.struct_inits(id, with.fields());
        let fields = fields.into_iter().map(|(index, value)| (index as u32, value)).collect();
        Expr { kind: ExprKind::StructWith(Box::new(base), fields), ty: Ty::Struct(id), span }
    }

    fn struct_inits(
        &mut self,
        id: StructId,
        inits: impl Iterator<Item = ast::FieldInit>,
    ) -> Vec<(usize, Expr)> {
        let mut out: Vec<(usize, Expr)> = Vec::new();
        let mut locations: Vec<(usize, Span)> = Vec::new();
        for init in inits {
            let Some(name) = init.name() else { continue };
            let location = self.span(name.range());
            let Some(index) = self.struct_field(id, &name) else {
                init.value().iter().for_each(|value| _ = self.expr(value));
                continue;
            };
            let declared = &self.items.structs[id.0 as usize];
            let ty = &declared.fields[index].1;
            let whole = self.span(init.range());
            let value = match init.value() {
                Some(value) => self.expr_like(&value, ty),
                None => unknown(whole),
            };
            if let Some((_, first)) = locations.iter().find(|(known, _)| *known == index) {
                self.sink.push(report::names::field_specified_twice(location, name.text(), first.clone()));
                continue;
            }
            let target = format!("`{}`", name.text());
            out.push((index, self.coerce(value, ty, &target, Some(declared.span.clone()))));
            locations.push((index, location));
        }
        out
    }

    /// `shape.circle(3)`; `shape.nothing` without `args`.
    pub(super) fn variant(
        &mut self,
        id: VariantId,
        case: &ast::Name,
        args: Option<(&[ast::Expr], Option<Expr>)>,
        span: Span,
    ) -> Expr {
        let declared = &self.items.variants[id.0 as usize];
        let ty = Ty::Variant(id);
        let location = self.span(case.range());
        let Some(index) = declared.cases.iter().position(|(known, _)| known == case.text()) else {
            let known: Vec<&str> = declared.cases.iter().map(|(name, _)| name.as_str()).collect();
            self.sink.push(report::values::unknown_case(location, &declared.name, case.text(), &known));
            return Expr { ty, ..unknown(span) };
        };
        let carried = declared.cases[index].1.as_ref();
        let whole = format!("{}.{}", declared.name, case.text());
        let mut given: Vec<Expr> = Vec::new();
        if let Some((args, piped)) = args {
            // The value of `rect(2, 3)` is a tuple.
            let parts: &[Ty] = match carried {
                Some(Ty::Tuple(parts)) if args.len() + usize::from(piped.is_some()) == parts.len() => parts,
                Some(other) => std::slice::from_ref(other),
                None => &[],
            };
            for (index, arg) in args.iter().enumerate() {
                given.push(match parts.get(index) {
                    Some(ty) => self.expr_like(arg, ty),
                    None => self.expr(arg),
                });
            }
            given.extend(piped);
        }
        let payload = match (carried, given.len()) {
            (None, 0) => None,
            (None, _) => {
                self.sink.push(report::values::unexpected_case_value(span.clone(), &whole));
                return Expr { ty, ..unknown(span) };
            }
            (Some(carried), 1) => {
                let value = given.swap_remove(0);
                Some(self.coerce(value, carried, &format!("`{whole}`"), Some(declared.span.clone())))
            }
            (Some(carried @ Ty::Tuple(parts)), count) if count == parts.len() => {
                let tys = given.iter().map(|part| part.ty.clone()).collect();
                let tuple = Expr { kind: ExprKind::Tuple(given), ty: Ty::Tuple(tys), span: span.clone() };
                Some(self.coerce(tuple, carried, &format!("`{whole}`"), Some(declared.span.clone())))
            }
            (Some(carried), count) => {
                let carried = self.items.spell(carried);
                self.sink.push(report::values::wrong_case_values(span.clone(), &whole, &carried, count));
                return Expr { ty, ..unknown(span) };
            }
        };
        Expr { kind: ExprKind::VariantBuild(id, index as u32, payload.map(Box::new)), ty, span }
    }

    /// Declares the elements of `value` under the names of `binding`; `None` for `_`.
    pub(crate) fn declare_parts(
        &mut self,
        binding: &[ast::Binding],
        ty: &Ty,
        span: &Span,
    ) -> Option<Vec<Option<LocalId>>> {
        let parts = match ty {
            Ty::Tuple(parts) if parts.len() == binding.len() => parts.clone(),
            Ty::Unknown => vec![Ty::Unknown; binding.len()],
            Ty::Tuple(parts) => {
                self.sink.push(report::values::wrong_element_count(span.clone(), binding.len(), parts.len()));
                vec![Ty::Unknown; binding.len()]
            }
            other => {
                let found = self.items.describe(other);
                self.sink.push(report::values::not_destructurable(span.clone(), &found));
                vec![Ty::Unknown; binding.len()]
            }
        };
        let mut out = Vec::new();
        for (part, ty) in binding.iter().zip(parts) {
            let location = self.span(part.range());
            out.push(match part.kind() {
                Some(ast::BindingKind::Name(name)) => {
                    Some(self.scope.declare(name.text(), ty, location, self.sink))
                }
                Some(ast::BindingKind::Parts(_)) => {
                    self.sink.push(report::values::nested_destructuring(location));
                    None
                }
                Some(ast::BindingKind::Nothing) | None => None,
            });
        }
        Some(out)
    }
}

/// Binds `value` to a local for `rest`, so that it is computed once; a cheap value is repeated instead.
pub(super) fn bind(
    exprs: &mut Exprs<'_>,
    value: Expr,
    rest: impl FnOnce(&mut Exprs<'_>, Expr) -> Expr,
) -> Expr {
    let is_cheap = match &value.kind {
        ExprKind::Local(_)
        | ExprKind::Int(_)
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Member(..) => true,
        ExprKind::Field(base, _) => matches!(base.kind, ExprKind::Local(_)),
        _ => false,
    };
    if is_cheap {
        return rest(exprs, value);
    }
    let (local, read) = hidden(exprs, &value);
    let result = rest(exprs, read);
    let_in(local, value, result)
}

/// A local for `value`, and the expression that reads it.
fn hidden(exprs: &mut Exprs<'_>, value: &Expr) -> (LocalId, Expr) {
    let (ty, span) = (value.ty.clone(), value.span.clone());
    let local = exprs.scope.hidden("", ty.clone(), span.clone());
    (local, Expr { kind: ExprKind::Local(local), ty, span })
}

/// `let local = value`, then `result`.
fn let_in(local: LocalId, value: Expr, result: Expr) -> Expr {
    let (ty, span) = (result.ty.clone(), result.span.clone());
    let body = Block { stmts: vec![Stmt::Let(local, value)], value: Some(Box::new(result)) };
    // An `if true` with one branch is a block as an expression.
    let truth = Expr { kind: ExprKind::Bool(true), ty: Ty::Bool, span: span.clone() };
    let arms = vec![(vec![truth.clone()], body)];
    Expr { kind: ExprKind::Switch { value: Box::new(truth), arms, otherwise: None }, ty, span }
}

/// Makes the value that a chain passes as the last argument of `call` the first one to be computed, as it is written.
pub(super) fn piped_first(exprs: &mut Exprs<'_>, call: Expr) -> Expr {
    let mut call = call;
    let moved = match &mut call.kind {
        ExprKind::StructBuild(_, fields) => {
            fields.rotate_right(1);
            None
        }
        ExprKind::Build(_, fields) => {
            fields.rotate_right(1);
            None
        }
        ExprKind::Call(_, args) | ExprKind::Builtin(_, args) => match args.split_last_mut() {
            Some((piped, rest)) if depends_on_order(piped) && rest.iter().any(depends_on_order) => {
                let (local, read) = hidden(exprs, piped);
                Some((local, std::mem::replace(piped, read)))
            }
            _ => None,
        },
        _ => None,
    };
    match moved {
        Some((local, piped)) => let_in(local, piped, call),
        None => call,
    }
}

/// Whether an expression has an effect, or its value may depend on effects of others.
pub(super) fn depends_on_order(value: &Expr) -> bool {
    crate::walk::any(value, &mut |part| match &part.kind {
        ExprKind::Builtin(builtin, _) => matches!(
            builtin,
            Builtin::Now
                | Builtin::Random
                | Builtin::Log
                | Builtin::Alive
                | Builtin::Load
                | Builtin::RoundRobin
                | Builtin::LeastLoaded
                | Builtin::TwoChoices
        ),
        kind => matches!(
            kind,
            ExprKind::Call(..)
                | ExprKind::SessionLocal(_)
                | ExprKind::Dict(_)
                | ExprKind::Counter(_)
                | ExprKind::DictGet(..)
                | ExprKind::DictHas(..)
                | ExprKind::DictPut(..)
                | ExprKind::DictUpdate { .. }
                | ExprKind::Ask { .. }
                | ExprKind::AskAll { .. }
        ),
    })
}
