//! Classes: sets of bytes with a name.
//!
//! ```text
//! class    := 'class' ['not'] '{' member,* '}'
//! member   := STRING | STRING '..' STRING | NAME ['.' NAME]    # each byte; a range; another class
//! ```
//! A comma may stand behind the last member.

use rowan::Checkpoint;

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const CLASS: Construct = Construct {
    name: "a class of bytes",
    shape: "`type tchar = class { \"a\"..\"z\", \"0\"..\"9\", \"-_\" };`, or `class not { ... }` for all other bytes",
};

impl Parser<'_> {
    /// Says whether the word `class` begins a set of bytes here.
    pub(super) fn at_class(&self) -> bool {
        self.at_word("class")
    }

    /// Parses from the word `class` on; `checkpoint` stands before `type`.
    pub(super) fn class_decl(&mut self, checkpoint: Checkpoint) {
        self.start_at(checkpoint, ClassDecl);
        self.bump();
        self.eat(NotKw);
        let open = self.here();
        if !self.expect(LBrace, CLASS) {
            self.skip_line();
            return;
        }
        while !self.at(RBrace) && !self.current().is_virtual() {
            self.class_member();
            if self.at(Semi) {
                let title = "expected `,` between the members of a class, found `;`";
                self.note(SyntaxErrorKind::Expected, self.here(), title, "write `,` instead of `;`");
                self.bump();
            } else if !self.eat(Comma) {
                if self.at(RBrace) || self.current().is_virtual() {
                    break;
                }
                self.expected("`,` or `}`", CLASS);
                self.skip_until(|kind| matches!(kind, Comma | RBrace));
                self.eat(Comma);
            }
        }
        self.expect_closing(RBrace, open, CLASS);
    }

    fn class_member(&mut self) {
        self.start(ClassItem);
        match self.current() {
            Ident => {
                self.bump();
                if self.eat(Dot) {
                    self.name("the name of a class", CLASS);
                }
            }
            Str | OpenStr | SingleQuoted => {
                self.bump();
                if matches!(self.current(), Minus | Ellipsis) {
                    let title = "expected `..` in a range of bytes";
                    self.note(SyntaxErrorKind::ForeignOperator, self.here(), title, "write `\"a\"..\"z\"`");
                    self.bump_as(DotDot);
                    self.range_end_of_class();
                } else if self.eat(DotDot) {
                    self.range_end_of_class();
                }
            }
            Number => {
                let title = "expected a string in a class";
                self.note(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    title,
                    "write `\"\\x00\"..\"\\x1f\"` for byte values",
                );
                self.bump();
                if self.eat(DotDot) && self.at(Number) {
                    self.bump();
                }
            }
            _ => {
                self.expected("a string or the name of a class", CLASS);
                self.skip_until(|kind| matches!(kind, Comma | RBrace));
            }
        }
        self.finish();
    }

    fn range_end_of_class(&mut self) {
        if matches!(self.current(), Str | OpenStr | SingleQuoted) {
            self.bump();
        } else {
            self.expected("a string", CLASS);
        }
    }
}
