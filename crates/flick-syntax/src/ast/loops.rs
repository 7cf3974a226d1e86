//! Repetitions and ranges: see `parser/loops.rs` for their grammar.

use rowan::ast::{AstNode, support};

use super::{
    Block, Expr, Name, child_after, child_after_word, child_before, named, nodes, nth_child, nth_name,
};
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// `for x in values:`
    ForStmt,
    /// `fold x in values, sum = 0: sum + x`
    FoldExpr,
    /// `map x in values: x + 1`
    MapEachExpr,
    /// `filter x in values: x > 0`
    FilterExpr,
    /// `a..b`, and in an index also `a..`, `..b` and `..`
    RangeExpr,
    /// `foldt on channels ordering e a, b by e.key as k:`
    FoldtExpr,
}

named! { ForStmt, FoldExpr }

impl ForStmt {
    /// Returns the values to visit; a range is `Expr::Range`.
    pub fn iterable(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns what to do with each.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl FoldExpr {
    /// Returns the values to visit; a range is `Expr::Range`.
    pub fn iterable(&self) -> Option<Expr> {
        child_before(self.syntax(), SyntaxKind::Comma)
    }

    /// Returns the name of the accumulator.
    pub fn accumulator(&self) -> Option<Name> {
        nth_name(self.syntax(), 2) // element, in, accumulator
    }

    /// Returns what the accumulator begins with.
    pub fn start(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::Eq)
    }

    /// Returns what the accumulator becomes.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

/// Implements the accessors of `map` and `filter`, whose own word is a name to the lexer.
macro_rules! each {
    ($( $name:ident ),*) => { $(
        impl $name {
            /// Returns the name of an element.
            pub fn name(&self) -> Option<Name> {
                nth_name(self.syntax(), 1)
            }

            /// Returns the values to visit; a range is `Expr::Range`.
            pub fn iterable(&self) -> Option<Expr> {
                support::child(self.syntax())
            }

            /// Returns what becomes of an element, or whether it stays.
            pub fn body(&self) -> Option<Block> {
                support::child(self.syntax())
            }
        }
    )* };
}

each! { MapEachExpr, FilterExpr }

impl RangeExpr {
    /// Returns where it begins; `None` is the beginning.
    pub fn start(&self) -> Option<Expr> {
        child_before(self.syntax(), SyntaxKind::DotDot)
    }

    /// Returns what it ends before; `None` is the end.
    pub fn end(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::DotDot)
    }
}

impl FoldtExpr {
    /// Returns the channels that are merged.
    pub fn channels(&self) -> Option<Expr> {
        child_after_word(self.syntax(), "on")
    }

    /// Returns the name of any element, `elem` in the paper.
    pub fn element(&self) -> Option<Name> {
        self.name_after("ordering", 0)
    }

    /// Returns the name of the first of two elements with equal keys.
    pub fn left(&self) -> Option<Name> {
        self.name_after("ordering", 1)
    }

    /// Returns the name of the second of two elements with equal keys.
    pub fn right(&self) -> Option<Name> {
        self.name_after("ordering", 2)
    }

    /// Returns the key that elements are ordered by.
    pub fn key(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }

    /// Returns the name of the key.
    pub fn key_name(&self) -> Option<Name> {
        // on, ordering, element, left, right, by, as, key
        nth_name(self.syntax(), 7)
    }

    /// Returns what becomes of two elements with equal keys.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }

    fn name_after(&self, word: &str, offset: usize) -> Option<Name> {
        let position =
            (0..).map_while(|index| nth_name(self.syntax(), index)).position(|name| name.text() == word)?;
        nth_name(self.syntax(), position + 1 + offset)
    }
}
