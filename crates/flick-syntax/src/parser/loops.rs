//! Repetitions over something finite. Each but `for` is an expression.
//!
//! ```text
//! for    := 'for' NAME 'in' source ':' block
//! fold   := 'fold' NAME 'in' source ',' NAME '=' expr ':' block
//! map    := 'map' NAME 'in' source ':' block
//! filter := 'filter' NAME 'in' source ':' block
//! source := expr | expr '..' expr
//! foldt  := 'foldt' 'on' expr 'ordering' NAME NAME ',' NAME 'by' expr 'as' NAME ':' block
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::{self, *};

const FOR: Construct = Construct { name: "a `for`", shape: "`for x in values:` with an indented block" };
const FOLD: Construct = Construct { name: "a `fold`", shape: "`fold x in values, sum = 0: sum + x`" };
const MAP_EACH: Construct = Construct { name: "a `map`", shape: "`map x in values: x + 1`" };
const FILTER: Construct = Construct { name: "a `filter`", shape: "`filter x in values: x > 0`" };
const FOLDT: Construct = Construct {
    name: "a `foldt`",
    shape: "`foldt on channels ordering elem a, b by elem.key as k:` with an indented body",
};

impl Parser<'_> {
    pub(super) fn for_stmt(&mut self) {
        self.start(ForStmt);
        self.bump();
        if self.at_counting_for() {
            self.disrupt(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                "a `for` with a start, a condition and a step is not supported",
                "write `for i in 0..n:` or `for x in values:`",
            );
            self.skip_until(|kind| kind == Colon);
            self.eat(Colon);
            self.block(FOR);
        } else {
            self.each(FOR);
            self.colon_block(FOR);
        }
        self.finish();
    }

    /// Says whether `for (...; ...)` or `for i := 0; ...` stands here.
    fn at_counting_for(&self) -> bool {
        match self.current() {
            LParen => !(self.nth(1).is_word() && matches!(self.nth(2), Comma | RParen)),
            kind => kind.is_word() && matches!(self.nth(1), ColonEq | Eq | Semi),
        }
    }

    /// Parses `NAME in source`.
    pub(super) fn each(&mut self, construct: Construct) {
        if self.at(LParen) {
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                "expected one name before `in`, found several",
                "write `for pair in pairs:`, then `let (a, b) = pair`",
            );
            self.binding(construct);
        } else {
            self.name("a name", construct);
            if self.at(Comma) {
                let help = "write `for x in values:`; for the index, write `for i in 0..len(values):`";
                self.disrupt(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "expected one name before `in`, found several",
                    help,
                );
                self.skip_until(|kind| kind == Colon);
                return;
            }
        }
        if self.eat_word("in") {
            self.source(construct);
        } else {
            self.expected("`in`", construct);
            self.skip_until(|kind| matches!(kind, Colon | Comma));
        }
    }

    /// Parses what is visited: a value or a range.
    fn source(&mut self, construct: Construct) {
        if matches!(self.text(), "range" | "enumerate") && self.nth(1) == LParen {
            let title = format!("`{}` is not supported", self.text());
            let help = "write `for i in 0..n:` for the integers from 0 to n - 1";
            self.note(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        }
        self.range_or_expr(construct);
    }

    pub(super) fn fold_expr(&mut self) {
        self.start(FoldExpr);
        self.bump();
        if self.nth_text(1) == "over" && self.nth(1) == Ident {
            let help = format!(
                "write `fold x in values, acc = start: {}(acc, x)`; the expression after `:` is the next `acc`",
                self.text()
            );
            let title = "expected an element name after `fold`, found a function";
            self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
            self.skip_line();
            self.finish();
            return;
        }
        self.each(FOLD);
        if !self.at(Comma) {
            let title = format!("missing initial value of a `fold`: expected `,`, found {}", self.found());
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                title,
                format!("the syntax is {}", FOLD.shape),
            );
            self.skip_until(|kind| matches!(kind, Colon | Comma));
        }
        if self.eat(Comma) && self.name("the name of the accumulator", FOLD) {
            if matches!(self.current(), ColonEq | Eq2) {
                let title = format!("expected `=` after the accumulator, found `{}`", self.text());
                self.note(
                    SyntaxErrorKind::EqualsConfusion,
                    self.here(),
                    title,
                    format!("the syntax is {}", FOLD.shape),
                );
                self.bump_as(Eq);
                self.expr();
            } else if self.expect(Eq, FOLD) {
                self.expr();
            }
        }
        self.colon_block(FOLD);
        self.finish();
    }

    /// Says whether the word `map` or `filter` begins a repetition here.
    pub(super) fn at_each(&self, word: &str) -> bool {
        self.at_word(word)
            && self.nth(1) == Ident
            && self.nth(2) == Ident
            && self.nth_text(2) == "in"
            && self.nth(3) != LBrace
    }

    /// Parses `map x in source: block` or `filter x in source: block`.
    pub(super) fn each_expr(&mut self, kind: SyntaxKind) {
        let construct = if kind == FilterExpr { FILTER } else { MAP_EACH };
        self.start(kind);
        self.bump();
        self.each(construct);
        self.colon_block(construct);
        self.finish();
    }

    pub(super) fn foldt_expr(&mut self) {
        self.start(FoldtExpr);
        self.bump();
        if self.foldt_heading() {
            self.colon_block(FOLDT);
        } else {
            self.skip_until(|kind| kind == Colon);
            self.eat(Colon);
            self.block(FOLDT);
        }
        self.finish();
    }

    fn foldt_heading(&mut self) -> bool {
        if !self.eat_word("on") {
            self.expected("`on`", FOLDT);
            return false;
        }
        self.expr();
        if !self.eat_word("ordering") {
            self.expected("`ordering`", FOLDT);
            return false;
        }
        let has_names = self.name("the name of an element", FOLDT)
            && self.name("the name of the left element", FOLDT)
            && self.expect(Comma, FOLDT)
            && self.name("the name of the right element", FOLDT);
        if !has_names {
            return false;
        }
        if !self.eat_word("by") {
            self.expected("`by`", FOLDT);
            return false;
        }
        self.expr();
        if !self.eat_word("as") {
            self.expected("`as`", FOLDT);
            return false;
        }
        self.name("the name of the key", FOLDT)
    }
}
