//! Strings, bytes and lists: concatenation, indexing, slicing, membership.
//! Promises: a concatenated string is never longer than its type; an element that may not exist is an option.

use flick_syntax::ast;

use super::{Exprs, adapt, bind, unknown, value_block};
use crate::hir::{BinaryOp, Block, Builtin, Expr, ExprKind, LoopSource, Span, Ty};
use crate::limits::JOINED_BYTES_MAX;
use crate::range::{INT, Range, range_of};
use crate::report;
use crate::ty::join;
use flick_abi::limits::CHANNEL_ELEMENTS_MAX;

/// Values of a byte.
const BYTE: Range = Range { lo: 0, hi: 255 };

impl Exprs<'_> {
    /// `a + b` of two strings or two bytes.
    pub(super) fn concat(&mut self, left: Expr, right: Expr, span: Span) -> Expr {
        let text = matches!(left.ty, Ty::Bytes { text: true, .. });
        let longest = |side: &Expr| if let Ty::Bytes { max, .. } = side.ty { u64::from(max) } else { 0 };
        let total = longest(&left) + longest(&right);
        let mut parts = Vec::new();
        for side in [left, right] {
            match side.kind {
                ExprKind::Concat(inner) => parts.extend(inner),
                _ => parts.push(side),
            }
        }
        if total > u64::from(JOINED_BYTES_MAX) {
            self.sink.push(report::values::joined_too_long(span.clone(), total, JOINED_BYTES_MAX));
        }
        let max = total.min(u64::from(JOINED_BYTES_MAX)) as u32;
        if let Some(bytes) = parts.iter().map(literal_bytes).collect::<Option<Vec<&[u8]>>>() {
            return Expr { kind: ExprKind::Str(bytes.concat()), ty: Ty::Bytes { max, text }, span };
        }
        Expr { kind: ExprKind::Concat(parts), ty: Ty::Bytes { max, text }, span }
    }

    /// `base[index]`, `base[from..to]`.
    pub(super) fn index(&mut self, index: &ast::IndexExpr, span: Span) -> Expr {
        if let Some(found) = self.self_index(index, &span) {
            return found;
        }
        let base = self.opt_expr(index.base(), &span);
        if let Some(found) = self.message_key(&base, index.index(), &span) {
            return found;
        }
        if let Some(range) = index.slice() {
            return self.slice(base, &range, span);
        }
        if let ExprKind::Dict(dict) = base.kind {
            return self.dict_get(dict, index.index(), span);
        }
        let position = self.opt_expr(index.index(), &span);
        let ty = match &base.ty {
            Ty::ChanArray { receives, sends } => Ty::Chan { receives: *receives, sends: *sends },
            Ty::List { elem, .. } => Ty::Option(elem.clone()),
            Ty::Bytes { .. } => Ty::Option(Box::new(BYTE.ty())),
            Ty::Unknown => return unknown(span),
            other => {
                let report = match other {
                    Ty::Option(inner) => {
                        report::values::may_be_none(base.span.clone(), &self.items.describe(inner))
                    }
                    Ty::Tuple(_) => report::values::tuple_by_index(base.span.clone()),
                    _ => report::types::not_indexable(base.span.clone(), &self.items.describe(other)),
                };
                self.sink.push(report);
                return unknown(span);
            }
        };
        let position = self.number(position, "the index");
        self.reject_outside(&base, &position);
        let (base, position) = (Box::new(base), Box::new(position));
        let kind = match base.ty {
            Ty::ChanArray { .. } => ExprKind::Index(base, position),
            Ty::List { .. } => ExprKind::ListGet(base, position),
            _ => ExprKind::ByteAt(base, position),
        };
        Expr { kind, ty, span }
    }

    /// Rejects an index that is outside whatever the value is.
    fn reject_outside(&mut self, base: &Expr, position: &Expr) {
        let (what, elements_max) = match &base.ty {
            Ty::ChanArray { .. } => ("an array of channels", CHANNEL_ELEMENTS_MAX as u32),
            Ty::List { max, .. } => ("a list", *max),
            Ty::Bytes { max, .. } => ("a string", *max),
            _ => return,
        };
        let Some(range) = range_of(&position.ty) else { return };
        let why = if range.hi < 0 {
            "an index is not negative; it does not count from the end".to_owned()
        } else if self.is_past_end(base, position) {
            format!("the last index of {what} is `len(...) - 1`")
        // The bound of an empty accumulator is not known yet.
        } else if elements_max > 0 && range.lo >= i128::from(elements_max) {
            let most = report::counted(elements_max, "element");
            format!("{what} of this type has at most {most}, and the first is 0")
        } else {
            return;
        };
        self.sink.push(report::bounds::index_outside(position.span.clone(), &why, &base.ty));
    }

    /// Whether an index is the length of the value, or more.
    fn is_past_end(&self, base: &Expr, position: &Expr) -> bool {
        match &position.kind {
            ExprKind::Builtin(Builtin::Len, args) => is_same_name(base, &args[0]),
            ExprKind::Local(local) => {
                self.lens.iter().any(|(known, of)| known == local && is_same_name(base, of))
            }
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                let is_more = |by: &Expr| range_of(&by.ty).is_some_and(|range| range.lo >= 0);
                self.is_past_end(base, a) && is_more(b) || self.is_past_end(base, b) && is_more(a)
            }
            _ => false,
        }
    }

    /// Checks that an index is an integer in the range of `int`.
    pub(super) fn number(&mut self, value: Expr, target: &str) -> Expr {
        match &value.ty {
            Ty::Int { .. } | Ty::Unknown => value,
            _ => self.coerce(value, &INT.ty(), target, None),
        }
    }

    fn slice(&mut self, base: Expr, range: &ast::RangeExpr, span: Span) -> Expr {
        let end = |exprs: &mut Self, end: Option<ast::Expr>| {
            end.map(|end| {
                let value = exprs.expr(&end);
                Box::new(exprs.coerce(value, &INT.ty(), "an end of the slice", None))
            })
        };
        let (from, to) = (end(self, range.start()), end(self, range.end()));
        let shorter = |max: u32| slice_max(max, from.as_deref(), to.as_deref());
        let ty = match &base.ty {
            Ty::Bytes { max, text } => Ty::Bytes { max: shorter(*max), text: *text },
            Ty::List { elem, max } => Ty::List { elem: elem.clone(), max: shorter(*max).max(1) },
            Ty::Unknown => return unknown(span),
            other => {
                let found = self.items.describe(other);
                let report = match other {
                    Ty::Option(inner) => {
                        report::values::may_be_none(base.span.clone(), &self.items.describe(inner))
                    }
                    _ => report::values::not_sliceable(base.span.clone(), &found),
                };
                self.sink.push(report);
                return unknown(span);
            }
        };
        Expr { kind: ExprKind::Slice(Box::new(base), from, to), ty, span }
    }

    /// `x in list`.
    pub(super) fn in_list(&mut self, wanted: Expr, list: Expr, span: Span) -> Expr {
        let Ty::List { elem, .. } = list.ty.clone() else { return unknown(span) };
        let mut wanted = wanted;
        let common = join(&wanted.ty, &elem);
        if common.is_none() {
            let is_name = matches!(wanted.ty, Ty::Bytes { .. });
            let (wanted, list) = (self.items.describe(&wanted.ty), self.items.describe(&list.ty));
            let help = if is_name {
                "search for a value of the element type of the list; a field that has this name is `fields[name] != none`"
            } else {
                "search for a value of the element type of the list"
            };
            self.sink.push(report::types::operator(span.clone(), "in", &wanted, &list, help));
            return Expr { ty: Ty::Bool, ..unknown(span) };
        }
        adapt(&mut wanted, &elem);
        if let ExprKind::List(elements) = &list.kind
            && elements.iter().all(is_constant)
        {
            if common.is_some_and(|common| !self.check_signs(&common, &span)) {
                return Expr { ty: Ty::Bool, ..unknown(span) };
            }
            return among(wanted, elements.clone(), span);
        }
        bind(self, wanted, |exprs, wanted| {
            let location = span.clone();
            let local = exprs.scope.hidden("", (*elem).clone(), location.clone());
            let acc = exprs.scope.hidden("", Ty::Bool, location.clone());
            let read =
                |id, ty: &Ty| Expr { kind: ExprKind::Local(id), ty: ty.clone(), span: location.clone() };
            let same = exprs.comparison(BinaryOp::Eq, read(local, &elem), wanted, span.clone());
            let both = ExprKind::Binary(BinaryOp::Or, Box::new(read(acc, &Ty::Bool)), Box::new(same));
            let both = Expr { kind: both, ty: Ty::Bool, span: span.clone() };
            let body: Block = value_block(both);
            let init = Box::new(Expr { kind: ExprKind::Bool(false), ty: Ty::Bool, span: span.clone() });
            let kind = ExprKind::Fold { local, source: Box::new(LoopSource::List(list)), acc, init, body };
            Expr { kind, ty: Ty::Bool, span: span.clone() }
        })
    }
}

fn is_constant(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Int(_) | ExprKind::Bool(_) | ExprKind::Str(_) | ExprKind::Member(..))
}

/// Whether `value` is one of `constants`.
pub(super) fn among(value: Expr, constants: Vec<Expr>, span: Span) -> Expr {
    let truth =
        |value: bool| value_block(Expr { kind: ExprKind::Bool(value), ty: Ty::Bool, span: span.clone() });
    let (arms, otherwise) = (vec![(constants, truth(true))], Some(truth(false)));
    Expr { kind: ExprKind::Switch { value: Box::new(value), arms, otherwise }, ty: Ty::Bool, span }
}

fn literal_bytes(part: &Expr) -> Option<&[u8]> {
    if let ExprKind::Str(bytes) = &part.kind { Some(bytes) } else { None }
}

/// Whether both are the same variable or channel.
fn is_same_name(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Local(a), ExprKind::Local(b)) => a == b,
        (ExprKind::Channel(a), ExprKind::Channel(b)) => a == b,
        _ => false,
    }
}

/// Maximum length of a slice of a value of at most `max` elements.
fn slice_max(max: u32, from: Option<&Expr>, to: Option<&Expr>) -> u32 {
    let range = |end: Option<&Expr>| end.and_then(|end| range_of(&end.ty));
    let lo = range(from).map_or(0, |range| range.lo.max(0));
    let hi = range(to).map_or(i128::from(max), |range| range.hi.min(i128::from(max)));
    let by_ends = (hi - lo).max(0);
    // `text[i..i + 8]` has at most 8 bytes.
    let by_width = match (from.map(|from| &from.kind), to.map(|to| &to.kind)) {
        (Some(ExprKind::Local(start)), Some(ExprKind::Binary(BinaryOp::Add, a, b))) => {
            match (&a.kind, &b.kind) {
                (ExprKind::Local(same), ExprKind::Int(width)) if same == start && *width >= 0 => Some(*width),
                _ => None,
            }
        }
        _ => None,
    };
    by_width.map_or(by_ends, |width| width.min(by_ends)).min(i128::from(max)) as u32
}
