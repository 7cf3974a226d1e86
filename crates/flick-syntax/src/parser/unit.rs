//! Message grammars and enumerations: the part of the language written with braces.
//!
//! ```text
//! unit     := 'unit' '{' item* '}'
//! item     := '%' NAME [NAME | path] '=' expr ';'     # `%on timeout = ...`, `%loud self.opcode = ...`
//!           | [NAME] ':' type attr* ';'
//!           | 'var' NAME ':' type attr* ';'
//!           | literal | bits | check | switch         # see `items.rs`
//! attr     := '&' NAME ['=' expr ['=' expr]]       # the second `=` assigns: `&serialize = self.len = ...`
//! enum     := 'enum' [type] '{' (NAME ['=' expr]),* '}'
//! ```

use rowan::Checkpoint;

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const UNIT: Construct = Construct { name: "a grammar", shape: "`type cmd = unit { name : type; ... };`" };
const FIELD: Construct = Construct {
    name: "a field of a grammar",
    shape: "`name : type &attribute = value;` (without a name: `: uint8;`)",
};
const PROPERTY: Construct = Construct { name: "a property of a grammar", shape: "`%byteorder = big;`" };
const ATTR: Construct = Construct { name: "an attribute", shape: "`&length = self.key_len` or `&streamed`" };
/// Names that are read as an attribute without its `&`, not as the name of a field.
const ATTRS: &[&str] = &[
    "children",
    "count",
    "fault",
    "if",
    "length",
    "min",
    "nocase",
    "of",
    "optional",
    "parse",
    "requires",
    "serialize",
    "signed",
    "streamed",
    "to_close",
    "until",
];

const ENUM: Construct = Construct { name: "an enum", shape: "`type op = enum uint8 { get = 0, set = 1 };`" };

impl Parser<'_> {
    /// Parses from the word `unit` on; `checkpoint` stands before `type`.
    pub(super) fn unit_decl(&mut self, checkpoint: Checkpoint) {
        self.start_at(checkpoint, UnitDecl);
        self.bump();
        let open = self.here();
        if !self.expect(LBrace, UNIT) {
            self.skip_line();
            return;
        }
        self.is_unit = true;
        self.unit_items();
        self.is_unit = false;
        self.expect_closing(RBrace, open, UNIT);
    }

    /// Parses items up to the `}` behind them.
    pub(super) fn unit_items(&mut self) {
        while !self.at(RBrace) && !self.current().is_virtual() {
            let before = self.position;
            self.unit_item();
            if self.position == before {
                self.skip_item();
            }
        }
    }

    fn unit_item(&mut self) {
        match self.current() {
            Percent => {
                self.start(UnitProperty);
                self.bump();
                if self.field_name(PROPERTY) {
                    if self.at(SelfKw) || self.at(Ident) && self.nth(1) == Dot {
                        self.path_expr();
                    } else if self.current().is_word() {
                        self.bump_as(Ident);
                    }
                    if self.expect(Eq, PROPERTY) {
                        self.expr();
                    }
                }
                self.end_of_item(PROPERTY);
            }
            Semi => {
                self.note(
                    SyntaxErrorKind::StraySemicolon,
                    self.here(),
                    "unnecessary trailing semicolon",
                    "remove it",
                );
                self.bump();
            }
            _ if self.wire_item() || self.foreign_item() => {}
            _ if self.at_word("var") && self.nth(1) != Colon => {
                self.start(UnitVar);
                self.bump();
                self.field_name(FIELD);
                self.field_rest();
            }
            kind if kind.is_word() || kind == Colon => {
                self.start(UnitField);
                if !self.at(Colon) {
                    self.field_name(FIELD);
                }
                self.field_rest();
            }
            _ => {
                self.expected("a field or a property", UNIT);
                self.skip_item();
            }
        }
    }

    fn field_rest(&mut self) {
        if self.expect(Colon, FIELD) {
            if self.at(Str) {
                let help = format!("remove the name and the `:`, and write `{};`", self.text());
                self.disrupt(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "a literal in a grammar cannot have a name",
                    help,
                );
                self.skip_until(|kind| matches!(kind, Semi | RBrace));
            } else {
                self.type_ref();
                self.size_in_brackets();
                self.attrs();
            }
        }
        self.end_of_item(FIELD);
    }

    /// Reports the `[5]` of `x : uint8[5];`.
    fn size_in_brackets(&mut self) {
        if self.at(LBrack) {
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                "brackets are not allowed after a type",
                "write `bytes &length = 5` for 5 bytes, `[uint8]<5> &count = 5` for 5 elements, `string<5>` for a bound",
            );
            self.skip_until(|kind| matches!(kind, Amp | Semi | RBrace));
        }
    }

    /// Says whether an attribute without its `&` stands here.
    fn at_bare_attr(&self) -> bool {
        let is_bare = ATTRS.contains(&self.text()) && self.current().is_word();
        is_bare && self.nth(1) != Colon && !self.is_on_new_line()
    }

    pub(super) fn attrs(&mut self) {
        loop {
            if self.at_bare_attr() {
                let title = "missing `&` in front of an attribute";
                let help = format!("write `&{}`", self.text());
                self.note(SyntaxErrorKind::Expected, self.here(), title, help);
            } else if !self.at(Amp) {
                return;
            }
            self.attr();
        }
    }

    fn attr(&mut self) {
        self.start(Attr);
        self.eat(Amp);
        let name = self.text().to_owned();
        if self.field_name(ATTR) && self.attr_value_follows(&name) {
            self.expr();
            if self.eat(Eq) {
                self.expr();
            }
        }
        self.finish();
    }

    /// Steps over the `=` of an attribute; says whether a value follows.
    fn attr_value_follows(&mut self, name: &str) -> bool {
        let is_foreign = match self.current() {
            Eq2 | Colon | ColonEq => true,
            Str | Number | SelfKw | LParen => !self.is_on_new_line(),
            kind => kind.is_word() && !ATTRS.contains(&self.text()) && !self.is_on_new_line(),
        };
        if is_foreign {
            let has_sign = matches!(self.current(), Eq2 | Colon | ColonEq);
            let title = "missing `=` in front of the value of an attribute";
            self.note(
                SyntaxErrorKind::EqualsConfusion,
                self.here(),
                title,
                format!("write `&{name} = value`"),
            );
            if has_sign {
                self.bump();
            }
            return true;
        }
        self.eat(Eq)
    }

    /// Expects the `;` of an item and closes the item's node.
    pub(super) fn end_of_item(&mut self, construct: Construct) {
        if !self.at(Semi) {
            let next_is_item = match self.current() {
                Colon | Percent | RBrace => true,
                Str | SwitchKw => self.is_on_new_line(),
                kind => {
                    kind.is_virtual()
                        || kind.is_word() && (self.nth(1) == Colon || self.at_word("var"))
                        || self.at_wire_item() && self.is_on_new_line()
                }
            };
            if self.at(Comma) {
                let title = format!("expected `;` after {}, found `,`", construct.name);
                self.disrupt(
                    SyntaxErrorKind::MissingSemicolon,
                    self.here(),
                    title,
                    "write `;` instead of `,`",
                );
                self.bump();
            } else if next_is_item {
                let title = format!("missing semicolon after {}", construct.name);
                let help = format!("add `;` here; the syntax is {}", construct.shape);
                self.disrupt(SyntaxErrorKind::MissingSemicolon, self.end_of_previous(), title, help);
            } else {
                self.expected("`;`", construct);
                self.skip_until(|kind| matches!(kind, Semi | RBrace));
            }
        }
        self.eat(Semi);
        self.finish();
        self.is_quiet = false;
    }

    /// Says whether a line break stands before the current token.
    fn is_on_new_line(&self) -> bool {
        let end = self.tokens.get(self.position).map_or(self.raw.len(), |token| token.raw as usize);
        self.raw[..end]
            .iter()
            .rev()
            .take_while(|token| token.kind.is_trivia())
            .any(|token| token.kind == LineBreak)
    }

    /// Skips what is no item, up to behind its `;`.
    pub(super) fn skip_item(&mut self) {
        self.start(Error);
        while !matches!(self.current(), Semi | RBrace) && !self.current().is_virtual() {
            self.bump();
        }
        self.eat(Semi);
        self.finish();
        self.is_quiet = false;
    }

    /// Parses from the word `enum` on; `checkpoint` stands before `type`.
    pub(super) fn enum_decl(&mut self, checkpoint: Checkpoint) {
        self.start_at(checkpoint, EnumDecl);
        self.bump();
        if !self.at(LBrace) {
            self.type_ref();
        }
        let open = self.here();
        if !self.expect(LBrace, ENUM) {
            self.skip_line();
            return;
        }
        while !self.at(RBrace) && !self.current().is_virtual() {
            self.start(EnumVariant);
            if !self.field_name(ENUM) {
                self.skip_until(|kind| matches!(kind, Comma | RBrace));
            } else if self.eat(Eq) {
                self.expr();
            }
            self.finish();
            if self.at(Semi) {
                let title = "expected `,` between the members of an enum, found `;`";
                self.note(SyntaxErrorKind::Expected, self.here(), title, "write `,` instead of `;`");
                self.bump();
            } else if !self.eat(Comma) {
                if self.at(RBrace) || self.current().is_virtual() {
                    break;
                }
                self.expected("`,` or `}`", ENUM);
                self.skip_until(|kind| matches!(kind, Comma | RBrace));
                self.eat(Comma);
            }
        }
        self.expect_closing(RBrace, open, ENUM);
    }
}
