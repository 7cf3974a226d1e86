//! Expressions: what each means and which type it has, in programs and in grammars alike.
//! Promises: every expression of the tree becomes one of the program, at worst of type `Unknown`, and a mistake is
//! reported where it stands, once. Grammar arithmetic is exact; program arithmetic wraps at 64 bits, and its interval then
//! is that of the whole 64-bit kind.
//! Start reading at [`Exprs::expr`].

mod access;
mod builtin;
mod call;
mod choice;
mod ops;
mod record;

pub(crate) use access::{grammar_type, unfold_path};
pub(crate) use builtin::{builtin_name, named as builtin_named};
pub(crate) use ops::spelled;

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::grammar::GrammarScope;
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
}

/// Whether the surroundings need the value of a block or only its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Value,
    Effect,
}

impl Exprs<'_> {
    /// A place in the file at hand.
    pub(crate) fn span(&self, range: std::ops::Range<usize>) -> Span {
        span_of(self.file, range)
    }

    /// Checks an expression whose value is needed.
    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> Expr {
        let checked = self.any(expr, Wanted::Value);
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
    pub(crate) fn any(&mut self, expr: &ast::Expr, wanted: Wanted) -> Expr {
        let span = self.span(expr.range());
        match expr {
            ast::Expr::Literal(literal) => self.literal(literal.value(), span),
            ast::Expr::Name(name) => self.name(name, span),
            ast::Expr::SelfValue(_) => self.lone_self(span),
            ast::Expr::Dollar(_) => self.dollar(span),
            ast::Expr::Paren(paren) => match paren.inner() {
                Some(inner) => self.any(&inner, wanted),
                None => unknown(span),
            },
            ast::Expr::Unary(unary) => self.unary(unary, span),
            ast::Expr::Binary(binary) => self.binary(binary, span),
            ast::Expr::Call(call) => self.call(call, None, span),
            ast::Expr::Index(index) => self.index(index, span),
            ast::Expr::Field(field) => self.field(field, span),
            ast::Expr::Record(record) => self.build(record, span),
            ast::Expr::With(with) => self.with(with, span),
            ast::Expr::If(choice) => self.if_expr(choice, wanted, span),
            ast::Expr::Switch(switch) => self.switch(switch, wanted, span),
            ast::Expr::Tuple(_) => {
                self.not_yet(span, "a tuple", "give each value a name of its own with `let`")
            }
            ast::Expr::List(_) => self.not_yet(span, "a list", "handle the values one by one"),
            ast::Expr::Foldt(_) => {
                self.not_yet(span, "`foldt`", "programs of this version handle one message at a time")
            }
            ast::Expr::Fold(_) => {
                self.not_yet(span, "`fold`", "programs of this version handle one message at a time")
            }
            other => self.table(other, span),
        }
    }

    pub(crate) fn not_yet(&mut self, span: Span, what: &str, instead: &str) -> Expr {
        self.sink.push(report::not_yet::construct(span.clone(), what, instead));
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
            Some(LiteralValue::Duration(_)) => self.not_yet(span, "a duration", "write a plain number"),
            None => unknown(span),
        }
    }

    /// Checks that `expr` may stand where `wanted` is expected, and gives it that type where it can adapt.
    /// `target` is what receives the value, for the message, with the place that says so.
    pub(crate) fn coerce(&mut self, mut expr: Expr, wanted: &Ty, target: &str, why: Option<Span>) -> Expr {
        adapt_literal(&mut expr, wanted);
        let span = expr.span.clone();
        match (&expr.ty, wanted) {
            (Ty::Unknown, _) | (_, Ty::Unknown) => {}
            (&Ty::Int { lo, hi, .. }, &Ty::Int { lo: want_lo, hi: want_hi, .. }) => {
                let (found, allowed) = (Range { lo, hi }, Range { lo: want_lo, hi: want_hi });
                if !found.is_inside(allowed) {
                    let modulus = allowed.modulus().filter(|_| !found.is_point());
                    let report = report::bounds::int_too_wide(
                        span,
                        target,
                        &found.describe(),
                        &allowed.describe(),
                        modulus,
                    );
                    self.sink.push(report);
                }
            }
            (Ty::Bytes { max, text }, Ty::Bytes { max: allowed, text: wanted_text }) => {
                if text != wanted_text {
                    let (wanted, found) = (self.items.describe(wanted), self.items.describe(&expr.ty));
                    self.sink.push(report::types::kind_differs(span, &wanted, &found));
                } else if max > allowed {
                    self.sink.push(report::bounds::bytes_too_long(span, target, *max, *allowed));
                }
            }
            (Ty::Int { lo, hi, .. }, Ty::Enum(id)) => {
                let enumeration = self.items.enumeration(*id);
                let member =
                    enumeration.members.iter().find(|(_, value)| i128::from(*value) == *lo && lo == hi);
                let member = member.map(|(name, _)| name.as_str());
                self.sink.push(report::types::enum_and_number(span, &enumeration.name, member));
            }
            (found, wanted) if channel_fits(found, wanted) || found == wanted => {}
            (found, wanted) => {
                let (wanted_text, found_text) =
                    (self.describe_wanted(wanted, found), self.describe_wanted(found, wanted));
                let why = why.map(|span| (span, format!("{target} is {wanted_text}")));
                self.sink.push(report::types::mismatch(span, &wanted_text, &found_text, why));
            }
        }
        expr
    }

    /// Describes `ty`; where the other one is a channel too, with its directions.
    fn describe_wanted(&self, ty: &Ty, other: &Ty) -> String {
        let end =
            |unit: &Option<crate::hir::UnitId>| unit.map_or("-", |id| self.items.unit(id).name.as_str());
        match (ty, other) {
            (Ty::Chan { receives, sends }, Ty::Chan { .. } | Ty::ChanArray { .. }) => {
                format!("a channel `{}/{}`", end(receives), end(sends))
            }
            (Ty::ChanArray { receives, sends }, Ty::Chan { .. } | Ty::ChanArray { .. }) => {
                format!("an array of channels `[{}/{}]`", end(receives), end(sends))
            }
            _ => self.items.describe(ty),
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

/// A string literal is text or bytes, whichever is needed.
pub(crate) fn adapt_literal(expr: &mut Expr, wanted: &Ty) {
    if let (ExprKind::Str(_), Ty::Bytes { text, .. }, Ty::Bytes { text: wanted, .. }) =
        (&expr.kind, &mut expr.ty, wanted)
    {
        *text = *wanted;
    }
}

/// A channel may be passed where fewer directions are needed.
fn channel_fits(found: &Ty, wanted: &Ty) -> bool {
    let (found, wanted) = match (found, wanted) {
        (Ty::Chan { receives: a, sends: b }, Ty::Chan { receives: c, sends: d })
        | (Ty::ChanArray { receives: a, sends: b }, Ty::ChanArray { receives: c, sends: d }) => {
            ((a, b), (c, d))
        }
        _ => return false,
    };
    let covers =
        |have: &Option<crate::hir::UnitId>, need: &Option<crate::hir::UnitId>| need.is_none() || have == need;
    covers(found.0, wanted.0) && covers(found.1, wanted.1)
}
