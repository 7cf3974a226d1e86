//! Type checking of expressions, in programs and in grammars.
//! Promises: every expression of the tree becomes one of the program, at worst of type `Unknown`, and an error is
//! reported once, at its location. Grammar arithmetic is exact; program arithmetic wraps at 64 bits, and its range is
//! then that of the whole 64-bit type.
//! Start reading at [`Exprs::expr`].

mod access;
mod ask;
mod block;
mod builtin;
mod bytes;
mod call;
mod choice;
mod constants;
mod fit;
mod grammar_scope;
mod keys;
mod loops;
mod matching;
mod messages;
mod ops;
mod record;
mod self_fields;
mod state;
mod switch;
mod time;
mod value;

pub(crate) use access::unfold_path;
pub(crate) use builtin::{builtin_name, named as builtin_named};
pub(crate) use choice::value_block;
pub(crate) use fit::{adapt, conform, some};
pub(crate) use grammar_scope::{Args, GrammarScope, Purpose, Site};
pub(crate) use ops::spelled;
pub(crate) use time::recast;

use value::bind;

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::hir::{EnumId, Expr, ExprKind, LocalId, Span, Ty};
use crate::items::Items;
use crate::load::span_of;
use crate::range::Range;
use crate::report;
use crate::scope::Scope;

/// Checks the expressions of one function, rule, or attribute of a grammar.
pub(crate) struct Exprs<'a> {
    pub(crate) items: &'a Items,
    pub(crate) sink: &'a mut Sink,
    pub(crate) file: u32,
    pub(crate) scope: Scope,
    /// Set in a grammar, where `self` and `$$` are defined and channels are not.
    pub(crate) grammar: Option<GrammarScope>,
    /// In a `map` over an enum, its members need no prefix.
    pub(crate) enum_hint: Option<EnumId>,
    /// Number of enclosing loops.
    pub(crate) loop_depth: usize,
    /// Number of `else if` on the way to the current block.
    pub(crate) else_ifs: usize,
    /// Variables that are the length of something, with that.
    pub(crate) lens: Vec<(LocalId, Expr)>,
    /// Number of trial checks of loop bodies.
    pub(crate) trials: usize,
}

/// Result that the context expects of an expression or block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expectation<'t> {
    /// A value.
    Value,
    /// A value, if possible of this type; the context checks whether it is.
    HasType(&'t Ty),
    /// No value, only its effect.
    NoValue,
}

impl<'t> Expectation<'t> {
    /// Whether a value is expected.
    pub(crate) fn is_value(self) -> bool {
        !matches!(self, Expectation::NoValue)
    }

    /// The expected type.
    pub(crate) fn ty(self) -> Option<&'t Ty> {
        if let Expectation::HasType(ty) = self { Some(ty) } else { None }
    }
}

impl<'a> Exprs<'a> {
    /// Starts a function or rule.
    pub(crate) fn new(items: &'a Items, sink: &'a mut Sink, file: u32, scope: Scope) -> Self {
        let mut scope = scope;
        scope.set_outer(items.state_names_in(file));
        Exprs {
            items,
            sink,
            file,
            scope,
            grammar: None,
            enum_hint: None,
            loop_depth: 0,
            else_ifs: 0,
            lens: Vec::new(),
            trials: 0,
        }
    }
}

impl Exprs<'_> {
    /// Whether this is a grammar whose expressions may read strings.
    fn reads_strings(&self) -> bool {
        self.grammar.as_ref().is_some_and(|scope| scope.reads_strings())
    }

    /// Whether this is an error response of the platform.
    fn is_error_response(&self) -> bool {
        self.grammar.as_ref().is_some_and(|scope| matches!(scope.purpose, Purpose::Answer(_)))
    }

    /// A location in the current file.
    pub(crate) fn span(&self, range: std::ops::Range<usize>) -> Span {
        span_of(self.file, range)
    }

    /// Checks an expression whose value is used.
    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> Expr {
        self.valued(expr, Expectation::Value)
    }

    /// As `expr`, with the expected type `ty`.
    pub(crate) fn expr_like(&mut self, expr: &ast::Expr, ty: &Ty) -> Expr {
        self.valued(expr, Expectation::HasType(ty))
    }

    /// Checks an expression that must have a value.
    pub(crate) fn valued(&mut self, expr: &ast::Expr, wanted: Expectation<'_>) -> Expr {
        let checked = self.any(expr, wanted);
        if checked.ty == Ty::Nothing {
            // A function that returns a value without declaring it was reported already.
            if let ExprKind::Call(fun, _) = &checked.kind
                && self.sink.explains("E0413", &self.items.fun(*fun).result_span)
            {
                return unknown(checked.span);
            }
            let what = match &checked.kind {
                ExprKind::Call(fun, _) => format!("`{}`", self.items.fun(*fun).name),
                _ => "this expression".to_owned(),
            };
            self.sink.push(report::types::no_value(checked.span.clone(), &what));
            return unknown(checked.span);
        }
        checked
    }

    /// Checks an expression that is absent after a syntax error.
    pub(crate) fn opt_expr(&mut self, expr: Option<ast::Expr>, around: &Span) -> Expr {
        expr.map_or_else(|| unknown(around.clone()), |expr| self.expr(&expr))
    }

    /// Checks an expression; its type may be `Nothing`.
    pub(crate) fn any(&mut self, expr: &ast::Expr, wanted: Expectation<'_>) -> Expr {
        let span = self.span(expr.range());
        match expr {
            ast::Expr::Literal(literal) => self.literal(literal.value(), span),
            ast::Expr::Name(name) => self.name(name, wanted, span),
            ast::Expr::SelfValue(_) => self.bare_self(span),
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
            ast::Expr::Tuple(tuple) if self.is_error_response() => self.tuple(tuple, wanted, span),
            ast::Expr::List(list) if self.is_error_response() => self.list(list, wanted, span),
            ast::Expr::Default(default) if self.reads_strings() => self.or_else(default, wanted, span),
            other if self.grammar.is_some() => self.not_in_grammars(other, span),
            other => self.compound(other, wanted, span),
        }
    }

    /// Checks expressions that only programs have.
    fn compound(&mut self, expr: &ast::Expr, wanted: Expectation<'_>, span: Span) -> Expr {
        match expr {
            ast::Expr::Tuple(tuple) => self.tuple(tuple, wanted, span),
            ast::Expr::List(list) => self.list(list, wanted, span),
            ast::Expr::TupleField(field) => self.tuple_field(field, span),
            ast::Expr::Range(range) => self.bare_range(range, span),
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
                self.sink.push(report::merge::misplaced_foldt(self.span(head..end)));
                unknown(span)
            }
            // Every other kind has an arm in `any`.
            _ => unknown(span),
        }
    }

    fn not_in_grammars(&mut self, expr: &ast::Expr, span: Span) -> Expr {
        let text = builtin::callee_text(expr);
        let help = "use integers and the fields of the message";
        self.sink.push(report::names::not_in_grammar(span.clone(), &text, "a construct of programs", help));
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
                self.sink.push(report::unsupported::grammar(span.clone(), "a duration", "write an integer"));
                unknown(span)
            }
            None => unknown(span),
        }
    }
}

/// An expression that was reported as invalid.
pub(crate) fn unknown(span: Span) -> Expr {
    Expr { kind: ExprKind::Int(0), ty: Ty::Unknown, span }
}

/// An integer constant.
pub(crate) fn int(value: i128, span: Span) -> Expr {
    Expr { kind: ExprKind::Int(value), ty: Range::point(value).ty(), span }
}
