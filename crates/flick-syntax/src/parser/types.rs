//! Types.
//!
//! ```text
//! type      := NAME ['.' NAME] ['<' size '>' | '<' type,+ '>'] ['(' expr,* ')']
//!            | '[' type ']' ['<' size '>'] | '(' type,* ')'
//! chan_type := end '/' end | '[' end '/' end ']'
//! end       := '-' | type
//! ```
//! Behind `string` and `bytes`, and where a number stands, `<...>` holds sizes; elsewhere types. Values in
//! parentheses, those of a grammar with parameters, stand only within a grammar.

use std::ops::Range;

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const TYPE_REF: Construct =
    Construct { name: "a type", shape: "like `uint16`, `string<250>`, `[cmd]<64>` or `dict<string, cmd>`" };
const CHANNEL: Construct = Construct {
    name: "a channel",
    shape: "`in/out name`, or `[in/out] names` for an array; `-` for no messages in that direction",
};

impl Parser<'_> {
    pub(super) fn type_ref(&mut self) {
        if !self.enter() {
            return;
        }
        match self.current() {
            Ident if self.foreign_type() => {}
            Ident => self.named_type(),
            LBrack => {
                self.start(ListType);
                let open = self.here();
                self.bump();
                self.type_ref();
                if self.is_unit && matches!(self.current(), Semi | Comma) && self.nth(2) == RBrack {
                    let help = "write `[uint8]<5> &count = 5`: the maximum after the `]`, the number in an attribute";
                    let title = "unexpected number of elements inside `[...]`";
                    self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
                    self.skip_until(|kind| kind == RBrack);
                }
                self.expect_closing(RBrack, open, TYPE_REF);
                if self.at(Lt) {
                    self.type_args(true);
                }
                self.finish();
            }
            LParen => {
                self.start(TupleType);
                let open = self.here();
                self.bump();
                while !self.at(RParen) && !self.current().is_virtual() {
                    self.type_ref();
                    if !self.eat(Comma) {
                        break;
                    }
                }
                self.expect_closing(RParen, open, TYPE_REF);
                self.finish();
            }
            kind if kind.is_keyword() => {
                self.start(NamedType);
                self.name("the name of a type", TYPE_REF);
                self.finish();
            }
            _ => self.expected("a type", TYPE_REF),
        }
        self.leave();
    }

    fn named_type(&mut self) {
        self.start(NamedType);
        let has_size = matches!(self.text(), "string" | "bytes");
        self.bump();
        if self.eat(Dot) {
            self.name("the name of a type", TYPE_REF); // behind that of a library
        }
        if self.at(Lt) {
            self.type_args(has_size);
        }
        if self.is_unit && self.at(LParen) {
            self.argument_list();
        }
        self.finish();
    }

    pub(super) fn type_args(&mut self, has_size: bool) {
        self.start(TypeArgs);
        let open = self.here();
        self.bump();
        while !self.at(Gt) && !self.current().is_virtual() {
            if has_size || matches!(self.current(), Number | Minus) {
                self.size_expr();
            } else {
                self.type_ref();
            }
            if !self.eat(Comma) {
                break;
            }
        }
        self.expect_closing(Gt, open, TYPE_REF);
        self.finish();
    }

    pub(super) fn chan_type(&mut self) {
        let checkpoint = self.checkpoint();
        if self.at(LBrack) {
            self.start(ChanArrayType);
            let open = self.here();
            self.bump();
            self.chan_ends();
            self.expect_closing(RBrack, open, CHANNEL);
            self.finish();
        } else {
            self.start_at(checkpoint, ChanType);
            self.chan_ends();
            self.finish();
        }
    }

    fn chan_ends(&mut self) {
        let start = self.here().start;
        self.chan_end();
        if self.eat(Slash) {
            self.chan_end();
        } else if self.current().is_word() || matches!(self.current(), RBrack | Comma | RParen) {
            self.incomplete_channel(self.since(start));
        } else {
            self.expected("`/`", CHANNEL);
        }
    }

    fn incomplete_channel(&mut self, range: Range<usize>) {
        let text = &self.source[range.clone()];
        let (title, help) = if matches!(self.current(), Comma | RParen) {
            let help = format!("write `{text}: type` for a value, `type/type {text}` for a channel");
            ("missing type of a parameter", help)
        } else {
            let help = format!(
                "write `{text}/{text}` to receive and send, `{text}/-` to receive only, `-/{text}` to send only; \
                 write `name: {text}` for a plain value"
            );
            ("missing direction: a channel type is `in/out`", help)
        };
        self.disrupt(SyntaxErrorKind::ChannelForm, range, title, help);
    }

    fn chan_end(&mut self) {
        self.start(ChanEnd);
        if !self.eat(Minus) {
            self.type_ref();
        }
        self.finish();
    }
}
