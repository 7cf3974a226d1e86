//! Requests whose reply the program waits for.
//!
//! ```text
//! ask     := 'ask' path 'with' message ['timeout' value] ['else' expr]
//!          | 'ask' 'all' (path 'with' message | '[' (path 'with' message),+ ']' | '[' each ']') ['timeout' value]
//! each    := NAME 'in' source ':' path 'with' message
//! message := an expression tighter than `with`
//! value   := an expression tighter than `with`
//! ```
//! `ask`, `all` and `timeout` are words of the language only here.

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::limits::ALL_LOOKAHEAD_MAX;
use crate::syntax_kind::SyntaxKind::*;

const ASK: Construct = Construct {
    name: "an `ask`",
    shape: "`ask backends[i] with req`, with an optional `timeout 50ms` and `else none`",
};
const ASK_ALL: Construct = Construct {
    name: "an `ask all`",
    shape: "`ask all backends with req` or `ask all [a with x, b with y]`, with an optional `timeout 50ms`",
};
const ASK_EACH: Construct = Construct {
    name: "an `ask all` of a list",
    shape: "`ask all [x in xs: backends[index(x)] with request(x)]`, with an optional `timeout 50ms`",
};

/// Words that stand behind a value, so that `ask` before them is a name.
const WORDS_BEHIND_A_VALUE: [&str; 8] = ["ordering", "over", "from", "by", "as", "in", "timeout", "entries"];

impl Parser<'_> {
    /// Says whether the word `ask` sends a request here.
    pub(super) fn at_ask(&self) -> bool {
        self.at_word("ask")
            && match self.nth(1) {
                Ident => {
                    !WORDS_BEHIND_A_VALUE.contains(&self.nth_text(1))
                        || matches!(self.nth(2), WithKw | Dot | LBrack)
                }
                SelfKw => true,
                _ => false,
            }
    }

    pub(super) fn ask_expr(&mut self) {
        let is_all =
            self.nth_text(1) == "all" && matches!(self.nth(2), Ident | LBrack) && !self.all_is_a_channel();
        self.start(if is_all { AskAllExpr } else { AskExpr });
        self.bump();
        let construct = if is_all { ASK_ALL } else { ASK };
        if is_all {
            self.bump();
        }
        if is_all && self.at(LBrack) {
            self.ask_items();
        } else {
            self.channel_with_message(construct);
        }
        if self.at_word("timeout") {
            self.bump();
            if matches!(self.current(), Eq | Colon) {
                let title = format!("unexpected `{}` after `timeout`", self.text());
                self.note(SyntaxErrorKind::EqualsConfusion, self.here(), title, "write `timeout 50ms`");
                self.bump();
            }
            self.value_within_with();
        }
        if self.default_follows() {
            if is_all {
                self.note(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "`else` is not allowed on an `ask all`: each reply is an option, `none` if it did not come",
                    "handle each reply where it is used: `for rep in replies:` and `switch rep:` with `some v` and `none`",
                );
            }
            self.bump();
            self.expr();
        }
        self.finish();
    }

    /// Says whether `all` in `ask all[i] with m` is the name of an array of channels.
    fn all_is_a_channel(&self) -> bool {
        if self.nth(2) != LBrack {
            return false;
        }
        // In the list of an `ask all` a `with` stands before the bracket closes.
        let mut open = 0u32;
        for ahead in 2..2 + ALL_LOOKAHEAD_MAX {
            match self.nth(ahead) {
                LBrack | LParen => open += 1,
                RBrack | RParen => {
                    open = open.saturating_sub(1);
                    if open == 0 {
                        return self.nth(ahead + 1) == WithKw;
                    }
                }
                WithKw => return false,
                kind if kind.is_virtual() => return false,
                _ => {}
            }
        }
        false
    }

    fn channel_with_message(&mut self, construct: Construct) {
        self.path_expr();
        if matches!(self.current(), Comma | RBrack) {
            let title = format!("expected `with` after the channel, found `{}`", self.text());
            let help = format!("the syntax is {}", construct.shape);
            self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
        } else if self.expect(WithKw, construct) {
            self.value_within_with();
        }
    }

    fn ask_items(&mut self) {
        let open = self.here();
        self.bump();
        if self.at(Ident) && self.nth(1) == Ident && self.nth_text(1) == "in" {
            self.each(ASK_EACH);
            self.expect(Colon, ASK_EACH);
        }
        while !self.at(RBrack) && !self.current().is_virtual() {
            self.start(AskItem);
            self.channel_with_message(ASK_ALL);
            self.finish();
            if !self.eat(Comma) {
                break;
            }
        }
        if !self.expect_closing(RBrack, open, ASK_ALL) {
            self.skip_until(|kind| matches!(kind, RBrack | FatArrow | Semi));
            self.eat(RBrack);
        }
    }

    /// Reports `ask(channel, message)`.
    pub(super) fn check_ask_call(&mut self) {
        if self.at_word("ask") && self.nth(1) == LParen {
            let title = "expected a channel after `ask`, found parentheses";
            self.note(SyntaxErrorKind::Expected, self.here(), title, format!("the syntax is {}", ASK.shape));
        }
    }
}
