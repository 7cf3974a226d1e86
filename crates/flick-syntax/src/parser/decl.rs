//! Declarations: what may stand at the left margin of a file.
//!
//! ```text
//! file    := (use | type | global | proc | fun)*
//! use     := 'use' NAME ['as' NAME]
//! proc    := 'proc' NAME ':' params ':'? block
//! fun     := 'fun' NAME ':' params '->' results ':'? block
//!          | 'fun' NAME params '->' results ':' block
//! params  := '(' (chan_type NAME | NAME ':' type),* ')'
//! results := '(' type,* ')'
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const USE: Construct =
    Construct { name: "a `use` line", shape: "`use memcached_binary` or `use memcached_binary as mc`" };
const DECLARATION: Construct = Construct {
    name: "a declaration",
    shape: "`global name: counter` or `global name: dict<string<64>, int> max 1000 entries`",
};
const PROC: Construct = Construct {
    name: "a process",
    shape: "`proc Name: (cmd/cmd client, [cmd/cmd] backends)` with indented rules",
};
const FUN: Construct = Construct {
    name: "a function",
    shape: "`fun name: (-/cmd out, req: cmd) -> (uint16)` with an indented body",
};
const PARAMS: Construct = Construct {
    name: "a parameter list",
    shape: "`(in/out channel, [in/out] channels, name: type)`; `-` for no messages in that direction",
};
const RESULTS: Construct = Construct { name: "a return type", shape: "`-> (type)`, or `-> ()` for none" };

impl Parser<'_> {
    pub(super) fn file(&mut self) {
        while !self.at(EndOfFile) {
            match self.current() {
                LineEnd | Dedent => self.bump(),
                Indent => {
                    self.unexpected_indent();
                    self.bump();
                }
                Semi => {
                    self.stray_semicolon();
                }
                _ => self.declaration(),
            }
        }
    }

    fn declaration(&mut self) {
        match self.current() {
            UseKw => self.use_decl(),
            TypeKw => self.type_decl(),
            ProcKw => self.proc_decl(),
            FunKw => self.fun_decl(),
            GlobalKw => {
                self.global_decl();
                self.end_of_line(DECLARATION);
            }
            LocalKw => {
                let help = "move it into the process and indent it; state shared by all sessions is `global`";
                self.note(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "`local` is only allowed in a process",
                    help,
                );
                self.local_stmt();
                self.end_of_line(DECLARATION);
            }
            Ident if self.foreign_declaration() => {}
            _ => {
                let title = format!("expected a declaration, found {}", self.found());
                let help = "declarations begin with `use`, `type`, `global`, `proc` or `fun`; indent everything else in one of them";
                self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
                self.skip_line();
                self.skip_block();
            }
        }
    }

    /// Consumes the block after a line that could not be understood, without looking into it.
    pub(super) fn skip_block(&mut self) {
        if !(self.at(LineEnd) && self.nth(1) == Indent) {
            return;
        }
        self.start(Error);
        self.bump();
        let mut open_blocks = 0u32;
        loop {
            match self.current() {
                EndOfFile => break,
                Indent => open_blocks += 1,
                Dedent => open_blocks -= 1,
                _ => {}
            }
            self.bump();
            if open_blocks == 0 {
                break;
            }
        }
        self.finish();
        self.after_dedent = true;
    }

    fn use_decl(&mut self) {
        self.start(UseDecl);
        self.bump();
        let has_name = self.name("the name of a library", USE);
        if has_name && self.eat_word("as") {
            self.name("a name for the library", USE);
        } else if has_name && matches!(self.current(), Dot | Slash) {
            let title = "expected the name of a library, found a path";
            let help =
                "write `use name`; flick searches the standard library and the directory of the program";
            self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
            self.skip_line();
        }
        self.finish();
        self.end_of_line(USE);
    }

    /// Steps over the lines of a block that nothing opened, as one error node.
    pub(super) fn skip_extra_indent(&mut self) {
        self.start(Error);
        let mut open_blocks = 0u32;
        while !self.at(EndOfFile) {
            match self.current() {
                Indent => open_blocks += 1,
                Dedent => open_blocks -= 1,
                _ => {}
            }
            self.bump();
            if open_blocks == 0 {
                break;
            }
        }
        self.finish();
    }

    fn proc_decl(&mut self) {
        self.start(ProcDecl);
        self.bump();
        self.name("the name of a process", PROC);
        if self.at(LParen) {
            let help = "write `proc Name: (...)`";
            self.note(
                SyntaxErrorKind::Expected,
                self.here(),
                "missing `:` between the name of a process and its channels",
                help,
            );
        } else {
            self.expect(Colon, PROC);
        }
        self.params(PROC);
        if self.at(Arrow) {
            let help = "a process sends its results to channels; remove `->` and what follows";
            self.disrupt(SyntaxErrorKind::Expected, self.here(), "a process cannot have a return type", help);
            self.skip_until(|kind| kind == Colon);
        }
        self.body(PROC);
        self.finish();
    }

    fn fun_decl(&mut self) {
        self.start(FunDecl);
        self.fun_heading_and_body();
        self.finish();
    }

    /// Parses a function from its introducing word on; the node is already open.
    pub(super) fn fun_heading_and_body(&mut self) {
        self.bump();
        self.name("the name of a function", FUN);
        if !self.eat(Colon) && !self.at(LParen) {
            self.expected("`:` or `(`", FUN);
        }
        self.params(FUN);
        if self.at(FatArrow) {
            self.note(
                SyntaxErrorKind::ArrowConfusion,
                self.here(),
                "expected `->` before the return type, found `=>`",
                "write `-> (type)`; `=>` sends a message",
            );
            self.results();
        } else if self.at(Arrow) {
            self.results();
        } else {
            self.expected("`->`", RESULTS);
            self.skip_until(|kind| kind == Colon);
        }
        self.body(FUN);
    }

    /// Parses an optional `:` and the block below a heading.
    fn body(&mut self, construct: Construct) {
        if self.at(LBrace) {
            self.brace_block();
            self.skip_line();
        }
        if !self.eat(Colon) && !self.at(LineEnd) {
            self.expected("`:` or the end of the line", construct);
            self.skip_line();
        }
        self.block(construct);
        if !self.after_dedent {
            self.end_of_line(construct);
        }
    }

    pub(super) fn params(&mut self, construct: Construct) {
        self.start(ParamList);
        let open = self.here();
        if self.expect(LParen, construct) {
            while !self.at(RParen) && !self.current().is_virtual() {
                self.param();
                if !self.eat(Comma) {
                    break;
                }
            }
            if !self.expect_closing(RParen, open, PARAMS) {
                self.skip_until(|kind| matches!(kind, RParen | Arrow | Colon));
                self.eat(RParen);
            }
        }
        self.finish();
    }

    fn param(&mut self) {
        self.start(Param);
        if self.current().is_word() && self.nth(1) == Colon {
            self.name("the name of a parameter", PARAMS);
            self.bump();
            self.value_param_type();
        } else if matches!(self.current(), Ident | Minus | LBrack) {
            self.chan_type();
            self.name("the name of a channel", PARAMS);
        } else {
            self.expected("a parameter", PARAMS);
            self.skip_until(|kind| matches!(kind, Comma | RParen));
        }
        self.finish();
    }

    /// Parses the type behind `name:`, where channels are out of place.
    fn value_param_type(&mut self) {
        let start = self.here().start;
        let is_channel = self.at(Minus)
            || (self.at(Ident) && self.nth(1) == Slash)
            || (self.at(Ident) && self.nth(1) == Dot && self.nth(3) == Slash)
            || (self.at(LBrack) && matches!((self.nth(1), self.nth(2)), (Minus, _) | (_, Slash)));
        if !is_channel {
            return self.type_ref();
        }
        self.chan_type();
        let range = self.since(start);
        let help = format!("put it in front: `{} name`", &self.source[range.clone()]);
        self.note(
            SyntaxErrorKind::ChannelForm,
            range,
            "expected the type of a channel before its name",
            help,
        );
    }

    fn results(&mut self) {
        self.start(ResultList);
        self.bump();
        let open = self.here();
        if self.at(LParen) {
            self.bump();
            while !self.at(RParen) && !self.current().is_virtual() {
                self.type_ref();
                if !self.eat(Comma) {
                    break;
                }
            }
            if !self.expect_closing(RParen, open, RESULTS) {
                self.skip_until(|kind| matches!(kind, RParen | Colon));
                self.eat(RParen);
            }
        } else if self.at(Ident) {
            let title = "missing parentheses around the return type";
            let help = format!("write `-> ({})`", self.text());
            self.note(SyntaxErrorKind::Expected, self.here(), title, help);
            self.type_ref();
        } else {
            self.expected("`(`", RESULTS);
            self.skip_until(|kind| kind == Colon);
        }
        self.finish();
    }
}
