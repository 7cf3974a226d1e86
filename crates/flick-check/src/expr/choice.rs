//! `if`, and the common type of branches.
//! Promises: afterwards the values of all branches have one type.

use flick_syntax::ast;

use super::{Expectation, Exprs, conform, unknown};
use crate::hir::{Block, Expr, ExprKind, Span, Ty};
use crate::limits::ELSE_IFS_MAX;
use crate::report;
use crate::ty::join;

/// The common type of the branches of an `if` or `switch`.
pub(super) struct Branches<'t> {
    pub(super) wanted: Expectation<'t>,
    /// Type so far, and the location of the first branch with a value.
    common: Option<(Ty, Span)>,
}

impl<'t> Branches<'t> {
    pub(super) fn new(wanted: Expectation<'t>) -> Self {
        Self { wanted, common: None }
    }

    pub(super) fn add(&mut self, exprs: &mut Exprs<'_>, ty: &Ty, span: &Span) {
        if !self.wanted.is_value() || *ty == Ty::Unknown {
            return;
        }
        if matches!(ty, Ty::Dict(_) | Ty::Counter(_)) {
            let found = exprs.items.describe(ty);
            exprs.sink.push(report::values::not_storable(span.clone(), &found, "a branch"));
            return;
        }
        let Some((common, first)) = &mut self.common else {
            self.common = Some((ty.clone(), span.clone()));
            return;
        };
        match join(common, ty) {
            Some(both) => {
                exprs.check_signs(&both, span);
                *common = both;
            }
            None => {
                let (wanted, found) = (exprs.items.describe(common), exprs.items.describe(ty));
                exprs.sink.push(report::types::branches_differ(span.clone(), &wanted, first.clone(), &found));
            }
        }
    }

    /// Returns the common type, and converts the values of all branches to it.
    pub(super) fn finish<'b>(self, blocks: impl IntoIterator<Item = &'b mut Block>) -> Ty {
        let ty = match self.wanted {
            Expectation::NoValue => return Ty::Nothing,
            _ => self.common.map_or(Ty::Unknown, |(ty, _)| ty),
        };
        conform(blocks, &ty);
        ty
    }
}

impl Exprs<'_> {
    pub(crate) fn if_expr(&mut self, choice: &ast::IfExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let branches: Vec<ast::IfBranch> = choice.branches().collect();
        let mut common = Branches::new(wanted);
        let mut checked = Vec::new();
        let outside = self.else_ifs;
        for (index, branch) in branches.iter().enumerate() {
            self.else_ifs = outside + index;
            if self.else_ifs > ELSE_IFS_MAX {
                self.sink.push(report::values::too_many_else_ifs(self.heading(branch), ELSE_IFS_MAX));
                self.else_ifs = outside;
                return unknown(span);
            }
            let branch_span = self.span(branch.range());
            let cond = self.condition(branch.condition(), &branch_span);
            let then = self.branch_block(branch.body(), wanted, &branch_span, &mut common);
            checked.push((cond, then, branch_span));
        }
        let mut otherwise = match choice.else_body() {
            Some(body) => Some(self.branch_block(Some(body), wanted, &span, &mut common)),
            None => {
                if wanted.is_value() {
                    let first = branches.first().map_or(span.clone(), |branch| self.heading(branch));
                    self.sink.push(report::types::missing_else(first));
                }
                None
            }
        };
        self.else_ifs = outside;
        let blocks = checked.iter_mut().map(|(_, then, _)| then).chain(&mut otherwise);
        let ty = common.finish(blocks);
        // From the last branch to the first: each `else if` is the `else` of the previous one.
        for (index, (cond, then, branch_span)) in checked.into_iter().enumerate().rev() {
            let kind = ExprKind::If { cond: Box::new(cond), then, otherwise: otherwise.take() };
            let whole =
                Expr { kind, ty: ty.clone(), span: if index == 0 { span.clone() } else { branch_span } };
            if index == 0 {
                return whole;
            }
            otherwise = Some(Block { stmts: Vec::new(), value: Some(Box::new(whole)) });
            if !wanted.is_value() {
                otherwise = otherwise.map(effect_block);
            }
        }
        unknown(span)
    }

    /// The location of `if condition`, without its block.
    fn heading(&self, branch: &ast::IfBranch) -> Span {
        let start = branch.range().start;
        self.span(start..branch.condition().map_or(start, |cond| cond.range().end))
    }

    pub(super) fn branch_block(
        &mut self,
        body: Option<ast::Block>,
        wanted: Expectation<'_>,
        span: &Span,
        common: &mut Branches<'_>,
    ) -> Block {
        let Some(body) = body else { return Block::default() };
        let (block, ty, value_span) = self.block(&body, wanted);
        if ty == Ty::Nothing && wanted.is_value() {
            self.sink.push(report::types::no_value(value_span, "this branch"));
        } else {
            common.add(self, &ty, if value_span.range.is_empty() { span } else { &value_span });
        }
        block
    }

    pub(super) fn condition(&mut self, cond: Option<ast::Expr>, around: &Span) -> Expr {
        let cond = self.opt_expr(cond, around);
        if !matches!(cond.ty, Ty::Bool | Ty::Unknown) {
            let found = self.items.describe(&cond.ty);
            let help = match cond.ty {
                Ty::Int { .. } => "compare it: `... != 0`",
                Ty::Bytes { .. } => "compare it: `... != \"\"`",
                Ty::Option(_) => "compare it with `none`: `... != none`",
                Ty::Enum(_) => "compare it with a member: `... == opcode.get`",
                _ => "write a comparison",
            };
            self.sink.push(report::types::condition(cond.span.clone(), &found, help));
        }
        cond
    }
}

pub(crate) fn value_block(value: Expr) -> Block {
    Block { stmts: Vec::new(), value: Some(Box::new(value)) }
}

/// Turns the value of a block into its last statement.
fn effect_block(block: Block) -> Block {
    let Block { mut stmts, value } = block;
    stmts.extend(value.map(|value| crate::hir::Stmt::Expr(*value)));
    Block { stmts, value: None }
}
