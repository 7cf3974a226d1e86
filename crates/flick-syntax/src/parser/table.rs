//! Choices that fit on a line: tables and sets, mostly for the properties of a grammar, where layout means nothing.
//!
//! ```text
//! map    := 'map' expr '{' (pattern ':' expr),* ['else' ':' expr] '}'
//! in     := expr 'in' ('{' pattern,* '}' | expr)             # second form: an element of a list, a key
//! ```
//! A comma may stand behind the last entry. `map` and `in` are words of the language only here: elsewhere both are
//! names.

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const MAP: Construct =
    Construct { name: "a `map`", shape: "`map self.opcode { getq: get, getkq: getk, else: self.opcode }`" };
const SET: Construct =
    Construct { name: "a test for one of several values", shape: "`req.opcode in { getq, getkq }`" };

/// Words that stand behind the value of a construct around it, as in `foldt on map ordering ...`.
const WORDS_BEHIND_A_VALUE: [&str; 5] = ["ordering", "over", "from", "by", "as"];

/// Most tokens of the value of a table that begins with `(` or `-`: without a bound, `map - map - map ...` takes long.
const TABLE_VALUE_TOKENS_MAX: usize = 256;

impl Parser<'_> {
    /// Says whether the word `map` begins a table here, that is, whether a value follows it.
    pub(super) fn at_map(&self) -> bool {
        self.at_word("map")
            && match self.nth(1) {
                SelfKw | DollarDollar | NotKw | Number | Str => true,
                Ident if self.nth_text(1) == "in" => self.nth(2) == Dot,
                Ident if WORDS_BEHIND_A_VALUE.contains(&self.nth_text(1)) => {
                    matches!(self.nth(2), LBrace | Dot)
                }
                Ident => true,
                LParen | Minus => !self.is_subject && self.table_follows(),
                _ => false,
            }
    }

    /// Says whether what follows the current word is a value and the brace of a table. If not, the word is the name of
    /// a function that is called, or of what something is subtracted from.
    fn table_follows(&self) -> bool {
        let mut depth = 0_u32;
        for ahead in 1..TABLE_VALUE_TOKENS_MAX {
            // Not `nth`, whose looks are those of a loop that does not end.
            let Some(token) = self.tokens.get(self.position + ahead) else { return false };
            match token.kind {
                LBrace if depth == 0 => return !self.record_fields_follow(ahead),
                LParen | LBrack | LBrace => depth += 1,
                RParen | RBrack | RBrace if depth > 0 => depth -= 1,
                RParen | RBrack | RBrace | Comma | Semi | Colon | Eq | Arrow | FatArrow if depth == 0 => {
                    return false;
                }
                Ident if depth == 0 && self.nth_text(ahead) == "in" => return false,
                kind if kind.is_virtual() => return false,
                _ => {}
            }
        }
        false
    }

    /// Says whether the word `in` is an operator here, and not the next field of a grammar that forgot a `;`.
    pub(super) fn at_in(&self) -> bool {
        self.at_word("in") && self.nth(1) != Colon
    }

    pub(super) fn map_expr(&mut self) {
        self.start(MapExpr);
        self.bump();
        if self.at(Ident) && self.nth(1) == LBrace {
            self.single(NameExpr); // never a record value: those cannot be looked up
        } else {
            self.expr();
        }
        let open = self.here();
        if self.expect(LBrace, MAP) {
            self.map_entries();
            self.closing_brace(open, MAP);
        }
        self.finish();
    }

    fn map_entries(&mut self) {
        let mut has_else = false;
        while !self.at(RBrace) && !self.current().is_virtual() {
            if has_else {
                let help = "move it to the end";
                self.note(
                    SyntaxErrorKind::StrayElse,
                    self.end_of_previous(),
                    "`else` must be the last entry of a `map`",
                    help,
                );
            }
            has_else = self.map_entry();
            if self.eat(Comma) {
                continue;
            }
            if !(self.nth(1) == Colon && (self.current().is_word() || matches!(self.current(), Number | Str)))
            {
                break;
            }
            let title = "missing `,` between the entries of a `map`";
            self.note(SyntaxErrorKind::Expected, self.end_of_previous(), title, "add `,` here");
        }
    }

    /// Parses one entry; says whether it is the `else`.
    fn map_entry(&mut self) -> bool {
        let is_foreign_default = (self.at_word("default") || self.at_word("_")) && self.nth(1) == Colon;
        if is_foreign_default {
            let title = format!("expected `else`, found `{}`", self.text());
            self.note(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                title,
                "write `else: result` as the last entry",
            );
        }
        let is_else = self.at(ElseKw) || is_foreign_default;
        if is_else {
            self.start(MapElse);
            self.bump_as(ElseKw);
        } else {
            self.start(MapArm);
            self.pattern(MAP, false);
        }
        if matches!(self.current(), Eq | FatArrow | Arrow) {
            let title = format!("expected `:` before a result, found `{}`", self.text());
            self.note(SyntaxErrorKind::ArrowConfusion, self.here(), title, "write `value: result`");
            self.bump_as(Colon);
            self.expr();
        } else if self.at(Comma) {
            let help = "write `a: x, b: x` if several values have the same result";
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                "expected one value before `:` in a `map`",
                help,
            );
        } else if self.expect(Colon, MAP) {
            self.expr();
        } else {
            self.skip_until(|kind| matches!(kind, Comma | RBrace | Semi));
        }
        self.finish();
        is_else
    }

    /// Parses the values behind `in`.
    pub(super) fn set_members(&mut self) {
        if matches!(self.current(), Ident | LParen | LBrack) {
            self.value_within_in();
            return;
        }
        let open = self.here();
        if !self.expect(LBrace, SET) {
            return;
        }
        while !self.at(RBrace) && !self.current().is_virtual() {
            self.pattern(SET, false);
            if !self.eat(Comma) {
                break;
            }
        }
        self.closing_brace(open, SET);
    }

    fn closing_brace(&mut self, open: std::ops::Range<usize>, construct: Construct) {
        if !self.expect_closing(RBrace, open, construct) {
            self.skip_until(|kind| matches!(kind, RBrace | FatArrow | Semi));
            self.eat(RBrace);
        }
    }
}
