//! Choices with blocks of their own; each is also an expression.
//!
//! ```text
//! if     := 'if' expr ':' block ('else' 'if' expr ':' block)* ['else' ':' block]
//! switch := 'switch' expr ':' LINE-END INDENT (pattern (',' pattern)* ':' block)+ ['else' ':' block] DEDENT
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const IF: Construct = Construct { name: "an `if`", shape: "`if condition:` with an indented block" };
const ELSE: Construct = Construct { name: "an `else`", shape: "`else:` or `else if condition:`" };
const SWITCH: Construct =
    Construct { name: "a `switch`", shape: "`switch value:` with one indented `pattern: result` per line" };
const CASE: Construct = Construct {
    name: "a case of a `switch`",
    shape: "`get, getk: result` or `circle r: result`, the last one `else: result`",
};

impl Parser<'_> {
    pub(super) fn if_expr(&mut self) {
        self.start(IfExpr);
        self.start(IfBranch);
        self.bump();
        self.condition();
        self.colon_block(IF);
        self.finish();
        let mut has_else = false;
        while self.else_follows() {
            if self.at_word("elif") {
                self.note(
                    SyntaxErrorKind::ForeignKeyword,
                    self.here(),
                    "`elif` is not supported",
                    "write `else if condition:`",
                );
                self.start(IfBranch);
            } else if self.nth(1) == IfKw {
                self.start(IfBranch);
                self.bump();
            } else {
                self.start(ElseBranch);
                self.bump();
                self.colon_block(ELSE);
                self.finish();
                has_else = true;
                break;
            }
            self.bump();
            self.condition();
            self.colon_block(IF);
            self.finish();
        }
        if !has_else {
            self.check_loose_else();
        }
        self.loose_else = None;
        self.finish();
    }

    /// Reports the `else` of `if c: a else b`, which is the default of `a` and not a branch of the `if`.
    fn check_loose_else(&mut self) {
        // The value of an inline block stands two levels below its `if`.
        let is_value = |depth: u32| depth == self.depth + 2 && !self.after_dedent;
        if let Some((_, range)) = self.loose_else.take_if(|(depth, _)| is_value(*depth)) {
            let title = "missing `:` after `else`";
            let help = "write `if condition: a else: b`; without `:`, `a else b` is the option `a` with the default `b`";
            self.note(SyntaxErrorKind::StrayElse, range, title, help);
        }
    }

    /// Says whether an `else` of this `if` follows, and steps over the line end before it. Behind a heading on the
    /// same line (`a: if x: y`) an `else` of the next line belongs to that heading.
    fn else_follows(&mut self) -> bool {
        if self.at(ElseKw) || self.at_word("elif") {
            return !(self.is_inline && self.after_dedent);
        }
        let next_line_is_else = self.at(LineEnd) && (self.nth(1) == ElseKw || self.nth_text(1) == "elif");
        if next_line_is_else && !self.is_inline {
            self.bump();
            return true;
        }
        false
    }

    /// Parses a condition, in which `=` is understood (and reported) as `==`.
    fn condition(&mut self) {
        let was_condition = std::mem::replace(&mut self.is_condition, true);
        self.expr();
        self.is_condition = was_condition;
    }

    /// Parses the `:` of a heading and its block.
    pub(super) fn colon_block(&mut self, construct: Construct) {
        if self.at(LBrace) {
            self.brace_block();
            self.skip_line();
        } else if !self.eat(Colon) {
            self.expected("`:`", construct);
            self.skip_until(|kind| kind == Colon);
            self.eat(Colon);
        }
        self.block(construct);
    }

    pub(super) fn stray_else(&mut self) {
        self.disrupt(
            SyntaxErrorKind::StrayElse,
            self.here(),
            "unexpected `else` without `if`",
            "align it with its `if`; in a `switch` it is the last case",
        );
        self.start(Error);
        self.bump();
        if self.eat(IfKw) {
            self.condition();
        }
        self.colon_block(ELSE);
        self.finish();
    }

    pub(super) fn switch_expr(&mut self) {
        self.start(SwitchExpr);
        self.bump();
        self.expr();
        if self.at(LBrace) {
            self.brace_block();
            self.skip_line();
        } else if !self.eat(Colon) {
            self.expected("`:`", SWITCH);
            self.skip_line();
        }
        if self.at(LineEnd) && self.nth(1) == Indent {
            let was_inline = std::mem::replace(&mut self.is_inline, false);
            self.bump();
            self.bump();
            self.switch_arms();
            self.eat(Dedent);
            self.is_inline = was_inline;
        } else if self.current().is_virtual() {
            self.missing_block("cases", "add indented cases: `  get: result`");
        } else {
            let help = "write each case on its own line, indented; inside brackets, name the result with `let` first";
            self.disrupt(
                SyntaxErrorKind::MissingBlock,
                self.here(),
                "expected the cases of a `switch` on lines of their own",
                help,
            );
            self.skip_line();
        }
        self.finish();
    }

    fn switch_arms(&mut self) {
        while !matches!(self.current(), Dedent | EndOfFile) {
            match self.current() {
                LineEnd => self.bump(),
                Indent => {
                    if !self.line_was_bad {
                        self.unexpected_indent();
                    }
                    self.skip_extra_indent();
                }
                _ => {
                    self.after_dedent = false;
                    self.switch_arm();
                    self.end_of_line(CASE);
                }
            }
        }
    }

    fn switch_arm(&mut self) {
        let is_foreign_default =
            (self.at_word("default") || self.at_word("_")) && matches!(self.nth(1), Colon | FatArrow | Arrow);
        if is_foreign_default {
            let title = format!("expected `else`, found `{}`", self.text());
            self.note(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                title,
                "write `else: result` as the last case",
            );
        }
        if self.at(ElseKw) || is_foreign_default {
            self.start(ElseBranch);
            self.bump_as(ElseKw);
        } else {
            self.start(SwitchArm);
            if self.at_word("case") && !matches!(self.nth(1), Colon | Comma | Dot) {
                self.note(
                    SyntaxErrorKind::ForeignKeyword,
                    self.here(),
                    "unexpected `case`",
                    "write `pattern: result`",
                );
                self.bump_as(Unknown);
            }
            self.pattern(CASE, true);
            while self.eat(Comma) {
                self.pattern(CASE, true);
            }
        }
        if matches!(self.current(), FatArrow | Arrow) {
            let title = format!("expected `:` after a case, found `{}`", self.text());
            self.note(SyntaxErrorKind::ArrowConfusion, self.here(), title, "write `pattern: result`");
            self.bump_as(Colon);
            self.block(CASE);
        } else {
            self.colon_block(CASE);
        }
        self.finish();
    }
}
