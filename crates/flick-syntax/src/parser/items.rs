//! The items of a grammar beyond fields: what must stand on the wire, choices, bit fields, checks.
//!
//! ```text
//! literal  := STRING attr* ';'                                            # `"\r\n";`, `"HTTP" &nocase;`
//! bits     := 'bits' '<' size '>' '{' ([NAME] ':' expr attr* ';')* '}' ';'
//! check    := 'check' expr attr* ';'
//! switch   := 'switch' expr '{' arm* ['else' ':' '{' item* '}'] '}' ';'
//! arm      := pattern (',' pattern)* ':' '{' item* '}'
//! ```
//! `bits`, `check` and `switch` are words of the language only here: with a `:` behind it each is the name of a field.

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::{self, *};

const LITERAL: Construct = Construct { name: "a literal of a grammar", shape: "`\"\\r\\n\";`" };
const BITS: Construct =
    Construct { name: "a group of bit fields", shape: "`bits<16> { version : 4; flags : 12; };`" };
const BIT_FIELD: Construct =
    Construct { name: "a bit field", shape: "`name : width;` (without a name: `: 4;`)" };
const CHECK: Construct = Construct { name: "a check", shape: "`check self.length <= 100;`" };
const SWITCH: Construct = Construct {
    name: "a `switch` in a grammar",
    shape: "`switch self.kind { 1, 2: { name : type; } else: { } };`",
};
const CASE: Construct = Construct {
    name: "a case of a `switch`",
    shape: "`1, 2: { name : type; }`, the last one `else: { ... }`",
};

impl Parser<'_> {
    /// Says whether an item of this file begins here.
    pub(super) fn at_wire_item(&self) -> bool {
        match self.current() {
            Str | OpenStr | SingleQuoted => true,
            SwitchKw => self.nth(1) != Colon,
            Ident if self.text() == "bits" => matches!(self.nth(1), Lt | LBrace),
            Ident if self.text() == "check" => self.nth(1) != Colon,
            _ => false,
        }
    }

    /// Parses an item of this file; says whether there was one.
    pub(super) fn wire_item(&mut self) -> bool {
        if !self.at_wire_item() {
            return false;
        }
        match self.current() {
            SwitchKw => self.unit_switch(),
            Ident if self.text() == "bits" => self.unit_bits(),
            Ident => {
                self.start(UnitCheck);
                self.bump();
                self.expr();
                self.attrs();
                self.end_of_item(CHECK);
            }
            _ => {
                self.start(UnitLiteral);
                self.bump();
                if self.at(DotDot) {
                    self.range_outside_class();
                }
                self.attrs();
                self.end_of_item(LITERAL);
            }
        }
        true
    }

    /// Reports `"a".."z"` where no class is.
    pub(super) fn range_outside_class(&mut self) {
        self.disrupt(
            SyntaxErrorKind::Expected,
            self.here(),
            "a range of bytes is only allowed in a class",
            "declare it, as in `type lower = class { \"a\"..\"z\" };`, and write `name : string<64> &of = lower;`",
        );
        self.skip_until(|kind| matches!(kind, Amp | Semi | RBrace));
    }

    fn unit_bits(&mut self) {
        self.start(UnitBits);
        self.bump();
        if self.at(Lt) {
            self.type_args(true);
        } else {
            let help = format!("the syntax is {}", BITS.shape);
            self.note(SyntaxErrorKind::Expected, self.here(), "missing number of bits after `bits`", help);
        }
        let open = self.here();
        if self.expect(LBrace, BITS) {
            while !self.at(RBrace) && !self.current().is_virtual() {
                let before = self.position;
                self.bit_field();
                if self.position == before {
                    self.skip_item();
                }
            }
            self.expect_closing(RBrace, open, BITS);
        }
        self.end_of_item(BITS);
    }

    fn bit_field(&mut self) {
        if self.at(Semi) {
            self.note(
                SyntaxErrorKind::StraySemicolon,
                self.here(),
                "unnecessary trailing semicolon",
                "remove it",
            );
            self.bump();
            return;
        }
        self.start(BitField);
        if !self.at(Colon) {
            self.field_name(BIT_FIELD);
        }
        if self.expect(Colon, BIT_FIELD) {
            self.expr();
            self.attrs();
        }
        self.end_of_item(BIT_FIELD);
    }

    fn unit_switch(&mut self) {
        self.start(UnitSwitch);
        self.bump();
        self.subject();
        if self.at(Colon) {
            let help = format!("in a grammar, the syntax is {}", SWITCH.shape);
            self.note(
                SyntaxErrorKind::Expected,
                self.here(),
                "missing braces around the cases of a `switch` in a grammar",
                help,
            );
            self.bump();
            if !self.at(LBrace) {
                self.bare_arms();
                self.finish();
                return;
            }
        }
        let open = self.here();
        if !self.expect(LBrace, SWITCH) {
            self.end_of_item(SWITCH);
            return;
        }
        if self.enter() {
            self.unit_arms();
            self.leave();
        }
        self.expect_closing(RBrace, open, SWITCH);
        self.end_of_item(SWITCH);
    }

    fn unit_arms(&mut self) {
        let mut has_else = false;
        while !self.at(RBrace) && !self.current().is_virtual() {
            let before = self.position;
            if has_else {
                let help = "move it to the end";
                self.note(
                    SyntaxErrorKind::StrayElse,
                    self.here(),
                    "`else` must be the last case of a `switch`",
                    help,
                );
            }
            has_else |= self.unit_arm();
            if self.at(Semi) && self.nth(1).is_word() && self.nth(2) == Colon && self.nth(3) != LBrace {
                return; // a field: the `}` before the `;` is missing
            }
            if matches!(self.current(), Comma | Semi) {
                let title = format!("unexpected `{}` between the cases of a `switch`", self.text());
                self.note(SyntaxErrorKind::Expected, self.here(), title, "remove it");
                self.bump();
            }
            if self.position == before {
                self.skip_item();
            }
        }
    }

    /// Skips the cases of a `switch` without braces, up to the first line that may be a field.
    fn bare_arms(&mut self) {
        self.start(Error);
        while matches!(self.current(), Number | Str | Minus | TrueKw | FalseKw | ElseKw) {
            self.skip_until(|kind| matches!(kind, Semi | RBrace));
            self.eat(Semi);
        }
        self.finish();
    }

    /// Parses one case; says whether it is the `else`.
    fn unit_arm(&mut self) -> bool {
        let is_foreign_else = (self.at_word("default") || self.at_word("_")) && self.nth(1) == Colon;
        if is_foreign_else {
            let title = format!("expected `else`, found `{}`", self.text());
            self.note(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                title,
                "write `else: { ... }` as the last case",
            );
        }
        let is_else = self.at(ElseKw) || is_foreign_else;
        self.start(if is_else { UnitElse } else { UnitArm });
        if is_else {
            self.bump_as(ElseKw);
        } else {
            self.unit_patterns();
        }
        if matches!(self.current(), FatArrow | Arrow | Eq) {
            let title = format!("expected `:` after a case, found `{}`", self.text());
            self.note(
                SyntaxErrorKind::ArrowConfusion,
                self.here(),
                title,
                format!("the syntax is {}", CASE.shape),
            );
            self.bump();
        } else if self.at(LBrace) {
            let title = "missing `:` between a case and its items";
            self.note(
                SyntaxErrorKind::Expected,
                self.end_of_previous(),
                title,
                format!("the syntax is {}", CASE.shape),
            );
        } else if !self.expect(Colon, CASE) {
            self.skip_until(|kind| matches!(kind, Semi | LBrace | RBrace));
        }
        self.arm_items();
        self.finish();
        is_else
    }

    /// Parses what a case is for.
    fn unit_patterns(&mut self) {
        let is_foreign = self.at_word("case") && !matches!(self.nth(1), Colon | Comma | Dot);
        if is_foreign {
            let help = format!("remove it; the syntax is {}", CASE.shape);
            self.note(SyntaxErrorKind::ForeignKeyword, self.here(), "unexpected `case`", help);
            self.bump_as(Unknown);
        }
        loop {
            self.pattern(CASE, false);
            if !self.eat(Comma) {
                return;
            }
        }
    }

    /// Parses the items of a case with their braces.
    fn arm_items(&mut self) {
        if !self.at(LBrace) {
            self.bare_item();
            return;
        }
        let open = self.here();
        self.bump();
        self.unit_items();
        self.expect_closing(RBrace, open, CASE);
    }

    /// Reports an item that stands behind a case without braces.
    fn bare_item(&mut self) {
        let begins_item = |kind: SyntaxKind| matches!(kind, Str | Colon | SwitchKw) || kind.is_word();
        if !begins_item(self.current()) {
            self.expected("`{`", CASE);
            self.skip_until(|kind| matches!(kind, Semi | RBrace));
            self.eat(Semi);
            return;
        }
        let title = "missing braces around the items of a case";
        self.disrupt(SyntaxErrorKind::Expected, self.here(), title, format!("the syntax is {}", CASE.shape));
        self.start(Error);
        self.skip_until(|kind| matches!(kind, Semi | RBrace));
        self.eat(Semi);
        self.finish();
        self.is_quiet = false;
    }

    /// Reports and steps over an item as other languages of grammars have it; says whether one was there.
    pub(super) fn foreign_item(&mut self) -> bool {
        let is_check = matches!(self.text(), "assert" | "require" | "expect" | "ensure" | "verify")
            && matches!(self.nth(1), SelfKw | NotKw | LParen);
        let is_if = self.at(IfKw) && self.nth(1) != Colon;
        if is_check {
            let title = format!("`{}` is not supported", self.text());
            self.disrupt(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                title,
                format!("write {}", CHECK.shape),
            );
            self.skip_item();
        } else if is_if {
            self.disrupt(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                "`if` is not allowed in a grammar",
                "write `name : type &if = condition;` for one field, `switch condition { true: { ... } else: { ... } };` for several items",
            );
            self.start(Error);
            loop {
                self.skip_until(|kind| matches!(kind, Semi | LBrace | RBrace));
                if !self.at(LBrace) {
                    break;
                }
                self.bump();
                self.skip_until(|kind| kind == RBrace);
                self.eat(RBrace);
                if !self.at(ElseKw) {
                    break;
                }
            }
            self.eat(Semi);
            self.finish();
            self.is_quiet = false;
        }
        is_check || is_if
    }
}
