//! Patterns of a `switch`, and the names that patterns and `let` give to parts of a value.
//!
//! ```text
//! pattern := path [binding] | ['-'] NUMBER | STRING | 'true' | 'false'      # a binding only in a `switch`
//! path    := NAME ['.' NAME ['.' NAME]]
//! binding := NAME | '_' | '(' binding,* ')'
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const BINDING: Construct =
    Construct { name: "a list of names", shape: "`(a, b)`; `_` for an element that is not needed" };

impl Parser<'_> {
    /// Parses a pattern; `may_bind` where names for the parts may follow it, as in `rect (w, h)`.
    pub(super) fn pattern(&mut self, construct: Construct, may_bind: bool) {
        self.start(Pattern);
        match self.current() {
            Ident => {
                self.foreign_pattern();
                self.bump();
                while self.eat(Dot) {
                    if !self.field_name(construct) {
                        break;
                    }
                }
                if may_bind && matches!(self.current(), Ident | LParen) {
                    self.binding(construct);
                }
            }
            Minus if self.nth(1) == Number => {
                self.bump();
                self.bump();
            }
            Number | Str | OpenStr | SingleQuoted | FractionalNumber | TrueKw | FalseKw => self.bump(),
            _ => {
                self.expected("a pattern", construct);
                self.skip_until(|kind| matches!(kind, Comma | Colon | RBrace | Semi));
            }
        }
        self.finish();
    }

    /// Parses a name, `_`, or names in parentheses.
    pub(super) fn binding(&mut self, construct: Construct) {
        if !self.enter() {
            return;
        }
        self.start(Binding);
        if self.at(LParen) {
            let open = self.here();
            self.bump();
            while !self.at(RParen) && !self.current().is_virtual() {
                self.binding(BINDING);
                if !self.eat(Comma) {
                    break;
                }
            }
            if !self.expect_closing(RParen, open, BINDING) {
                self.skip_until(|kind| matches!(kind, RParen | Colon | Eq));
                self.eat(RParen);
            }
        } else if matches!(self.current(), Number | Str | TrueKw | FalseKw) {
            let title = format!("expected a name in a pattern, found {}", self.found());
            let help = "write a name here and compare it with `if` in the case";
            self.note(SyntaxErrorKind::Expected, self.here(), title, help);
            self.bump_as(Ident);
        } else if !self.name("a name", construct) {
            self.skip_until(|kind| matches!(kind, Comma | RParen | Colon | Eq | Semi));
        }
        self.finish();
        self.leave();
    }

    /// Reports `Some` and `None`.
    fn foreign_pattern(&mut self) {
        let (title, help) = match self.text() {
            "Some" => ("unknown case `Some`: the case is `some`, in lower case", "write `some v: result`"),
            "None" => ("unknown case `None`: the case is `none`, in lower case", "write `none: result`"),
            _ => return,
        };
        self.note(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
    }
}
