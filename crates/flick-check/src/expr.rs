//! Expressions: what each means and which type it has, in programs and in grammars alike.
//! Promises: every expression of the tree becomes one of the program, at worst of type `Unknown`, and a mistake is
//! reported where it stands, once. Grammar arithmetic is exact; program arithmetic wraps at 64 bits, and its interval then
//! is that of the whole 64-bit kind.
//! Start reading at [`Exprs::expr`].

mod access;
mod builtin;
mod bytes;
mod call;
mod choice;
mod constants;
mod fit;
mod keys;
mod loops;
mod matching;
mod messages;
mod ops;
mod record;
mod switch;
mod time;
mod value;

pub(crate) use access::{grammar_type, unfold_path};
pub(crate) use builtin::{builtin_name, named as builtin_named};
pub(crate) use choice::value_block;
pub(crate) use fit::{adapt, conform, has_part, is_open, join, some, widen};
pub(crate) use ops::spelled;
pub(crate) use time::recast;

use value::bind;

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::grammar::{GrammarScope, Purpose};
use crate::hir::{EnumId, Expr, ExprKind, Span, Ty};
use crate::items::Items;
use crate::load::span_of;
use crate::range::Range;
use crate::report;
use crate::scope::Scope;

/// Checks expressions of one place: a function, a rule, or an attribute of a grammar.
pub(crate) struct Exprs<'a> {
    pub(crate) items: &'a Items,
    pub(crate) sink: &'a mut Sink,
    pub(crate) file: u32,
    pub(crate) scope: Scope,
    /// Set inside a grammar, where `self` and `$$` have a meaning and channels have none.
    pub(crate) grammar: Option<GrammarScope>,
    /// Inside a `map` over an enumeration, its members need no prefix.
    pub(crate) enum_hint: Option<EnumId>,
    /// How many repetitions are around what is being checked.
    pub(crate) loop_depth: usize,
    /// How many times bodies were checked to find a bound.
    pub(crate) trials: usize,
}

/// What the surroundings do with an expression or block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'t> {
    /// They need its value.
    Value,
    /// They need its value, which best is of this type; whether it is, they see themselves.
    Like(&'t Ty),
    /// They need only its effect.
    Effect,
}

impl<'t> Wanted<'t> {
    /// Whether a value is needed.
    pub(crate) fn is_value(self) -> bool {
        !matches!(self, Wanted::Effect)
    }

    /// The type that is hoped for.
    pub(crate) fn ty(self) -> Option<&'t Ty> {
        if let Wanted::Like(ty) = self { Some(ty) } else { None }
    }
}

impl<'a> Exprs<'a> {
    /// Begins a function or rule.
    pub(crate) fn new(items: &'a Items, sink: &'a mut Sink, file: u32, scope: Scope) -> Self {
        let mut scope = scope;
        scope.set_outer(items.kept(file));
        Exprs { items, sink, file, scope, grammar: None, enum_hint: None, loop_depth: 0, trials: 0 }
    }
}

impl Exprs<'_> {
    /// In a grammar whose expressions may look into text.
    fn sees_text(&self) -> bool {
        self.grammar.as_ref().is_some_and(|scope| scope.sees_text())
    }

    /// In what the platform answers by itself.
    fn builds_answer(&self) -> bool {
        self.grammar.as_ref().is_some_and(|scope| matches!(scope.purpose, Purpose::Answer(_)))
    }

    /// A place in the file at hand.
    pub(crate) fn span(&self, range: std::ops::Range<usize>) -> Span {
        span_of(self.file, range)
    }

    /// Checks an expression whose value is needed.
    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> Expr {
        self.valued(expr, Wanted::Value)
    }

    /// As `expr`, where a value of type `ty` is hoped for.
    pub(crate) fn expr_like(&mut self, expr: &ast::Expr, ty: &Ty) -> Expr {
        self.valued(expr, Wanted::Like(ty))
    }

    /// Checks an expression that must have a value.
    pub(crate) fn valued(&mut self, expr: &ast::Expr, wanted: Wanted<'_>) -> Expr {
        let checked = self.any(expr, wanted);
        if checked.ty == Ty::Nothing {
            // A function that gives a value against its heading was told so already.
            if let ExprKind::Call(fun, _) = &checked.kind
                && self.sink.explains("E0413", &self.items.fun(*fun).result_span)
            {
                return unknown(checked.span);
            }
            let what = match &checked.kind {
                ExprKind::Call(fun, _) => format!("`{}`", self.items.fun(*fun).name),
                _ => "this".to_owned(),
            };
            self.sink.push(report::types::no_value(checked.span.clone(), &what));
            return unknown(checked.span);
        }
        checked
    }

    /// Checks an expression that may be absent because the source has an error there.
    pub(crate) fn opt_expr(&mut self, expr: Option<ast::Expr>, around: &Span) -> Expr {
        expr.map_or_else(|| unknown(around.clone()), |expr| self.expr(&expr))
    }

    /// Checks an expression; its type may be `Nothing`.
    pub(crate) fn any(&mut self, expr: &ast::Expr, wanted: Wanted<'_>) -> Expr {
        let span = self.span(expr.range());
        match expr {
            ast::Expr::Literal(literal) => self.literal(literal.value(), span),
            ast::Expr::Name(name) => self.name(name, wanted, span),
            ast::Expr::SelfValue(_) => self.lone_self(span),
            ast::Expr::Dollar(_) => self.dollar(span),
            ast::Expr::Paren(paren) => match paren.inner() {
                Some(inner) => self.any(&inner, wanted),
                None => unknown(span),
            },
            ast::Expr::Unary(unary) => self.unary(unary, span),
            ast::Expr::Binary(binary) => self.binary(binary, span),
            ast::Expr::Call(call) => self.call(call, None, wanted, span),
            ast::Expr::Index(index) => self.index(index, span),
            ast::Expr::Field(field) => self.field(field, span),
            ast::Expr::Record(record) => self.build(record, span),
            ast::Expr::With(with) => self.with(with, span),
            ast::Expr::If(choice) => self.if_expr(choice, wanted, span),
            ast::Expr::Switch(switch) => self.switch(switch, wanted, span),
            ast::Expr::Map(map) => self.map(map, span),
            ast::Expr::In(set) => self.set(set, span),
            ast::Expr::Tuple(tuple) if self.builds_answer() => self.tuple(tuple, wanted, span),
            ast::Expr::List(list) if self.builds_answer() => self.list(list, wanted, span),
            ast::Expr::Default(default) if self.sees_text() => self.or_else(default, wanted, span),
            other if self.grammar.is_some() => self.not_in_grammars(other, span),
            other => self.compound(other, wanted, span),
        }
    }

    /// Expressions of programs alone.
    fn compound(&mut self, expr: &ast::Expr, wanted: Wanted<'_>, span: Span) -> Expr {
        match expr {
            ast::Expr::Tuple(tuple) => self.tuple(tuple, wanted, span),
            ast::Expr::List(list) => self.list(list, wanted, span),
            ast::Expr::TupleField(field) => self.tuple_field(field, span),
            ast::Expr::Range(range) => self.lone_range(range, span),
            ast::Expr::Default(default) => self.or_else(default, wanted, span),
            ast::Expr::Fold(fold) => self.fold(fold, wanted, span),
            ast::Expr::MapEach(map) => self.map_each(map, wanted, span),
            ast::Expr::Filter(filter) => self.filter(filter, span),
            ast::Expr::Ask(ask) => self.ask(ask, span),
            ast::Expr::AskAll(ask) => self.ask_all(ask, span),
            ast::Expr::Update(update) => self.update(update, span),
            ast::Expr::Foldt(foldt) => {
                let head = span.range.start as usize;
                let end = foldt.key_name().map_or(span.range.end as usize, |name| name.range().end);
                self.sink.push(report::merges::elsewhere(self.span(head..end)));
                unknown(span)
            }
            // Every other kind has an arm in `any`.
            _ => unknown(span),
        }
    }

    fn not_in_grammars(&mut self, expr: &ast::Expr, span: Span) -> Expr {
        let text = builtin::callee_text(expr);
        let help = "a grammar computes with numbers and the fields of its message";
        self.sink.push(report::names::wrong_kind(
            span.clone(),
            &text,
            "for programs",
            "part of a grammar",
            help,
        ));
        unknown(span)
    }

    fn literal(&mut self, value: Option<LiteralValue>, span: Span) -> Expr {
        match value {
            Some(LiteralValue::Int(value) | LiteralValue::Size(value)) => int(i128::from(value), span),
            Some(LiteralValue::Bool(value)) => Expr { kind: ExprKind::Bool(value), ty: Ty::Bool, span },
            Some(LiteralValue::Bytes(bytes)) => {
                let max = bytes.len() as u32;
                Expr { kind: ExprKind::Str(bytes), ty: Ty::Bytes { max, text: true }, span }
            }
            Some(LiteralValue::Duration(ns)) if self.grammar.is_none() => self.duration(ns, span),
            Some(LiteralValue::Duration(_)) => {
                self.sink.push(report::not_yet::grammar(span.clone(), "a duration", "write a plain number"));
                unknown(span)
            }
            None => unknown(span),
        }
    }
}

/// An expression that was reported, or stands for nothing.
pub(crate) fn unknown(span: Span) -> Expr {
    Expr { kind: ExprKind::Int(0), ty: Ty::Unknown, span }
}

/// An integer constant.
pub(crate) fn int(value: i128, span: Span) -> Expr {
    Expr { kind: ExprKind::Int(value), ty: Range::point(value).ty(), span }
}

/// The interval of an integer type.
pub(crate) fn range_of(ty: &Ty) -> Option<Range> {
    match *ty {
        Ty::Int { lo, hi, .. } => Some(Range { lo, hi }),
        _ => None,
    }
}
