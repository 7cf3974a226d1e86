//! State and events: what lives with a session or with the service, and what happens without a message.
//!
//! ```text
//! global := 'global' NAME ':' type (','? property)*                       # at the left margin
//! property := 'max' expr 'entries' [',' expr 'bytes'] | 'expire' expr | 'evict' ('lru' | 'oldest' | 'nothing')
//!           | 'snapshot' STRING ['every' expr]
//! local  := 'local' NAME [':' type] ':=' expr
//! update := 'update' path 'from' NAME ':' block
//! except := 'except' event NAME ['[' NAME ']'] ':' block
//! event  := 'closed' | 'broken' | 'refused' | 'timed_out' | 'malformed'
//! every  := 'every' expr ':' block
//! ```
//! The properties of a `global` may go on on deeper lines. All words but `global` and `local` are special only here.

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::{self, *};

const LOCAL: Construct =
    Construct { name: "a `local`", shape: "`local name := value` or `local name: type := value`" };
const GLOBAL: Construct = Construct {
    name: "a `global`",
    shape: "`global name: dict<string<64>, int> max 1000 entries, expire 60s` or `global name: counter`",
};
const MAX: Construct = Construct {
    name: "the bound of a `global`",
    shape: "`max 1000 entries` or `max 1000 entries, 64MiB bytes`",
};
const EVICT: Construct =
    Construct { name: "`evict`", shape: "`evict lru`, `evict oldest` or `evict nothing`" };
const SNAPSHOT: Construct = Construct { name: "`snapshot`", shape: "`snapshot \"name\" every 30s`" };
const UPDATE: Construct = Construct { name: "an `update`", shape: "`update d[k] from v: (v else 0) + 1`" };
const EXCEPT: Construct = Construct {
    name: "an `except`",
    shape: "`except closed client:` or `except broken backends[i]:` with an indented block",
};
const EVERY: Construct = Construct { name: "an `every`", shape: "`every 1s:` with an indented block" };

/// Names of the events of a channel.
const EVENTS: [&str; 5] = ["closed", "broken", "refused", "timed_out", "malformed"];
const POLICIES: [&str; 3] = ["lru", "oldest", "nothing"];
const PROPERTIES: [(&str, SyntaxKind); 4] =
    [("max", MaxProp), ("expire", ExpireProp), ("evict", EvictProp), ("snapshot", SnapshotProp)];

impl Parser<'_> {
    pub(super) fn global_decl(&mut self) {
        self.start(GlobalDecl);
        self.bump();
        if self.name("the name of a global", GLOBAL) {
            if self.at(ColonEq) {
                let help =
                    "write `global name: counter`, or `global name: dict<string<64>, int> max 1000 entries`";
                self.disrupt(SyntaxErrorKind::Expected, self.here(), "missing type of a `global`", help);
                self.skip_line();
            } else if self.expect(Colon, GLOBAL) {
                self.type_ref();
                self.global_props();
            }
        }
        self.finish();
    }

    fn global_props(&mut self) {
        let mut seen = [false; PROPERTIES.len()];
        loop {
            let has_comma = self.at(Comma);
            if has_comma {
                self.bump();
            }
            if matches!(self.current(), ColonEq | Eq) {
                let help = "remove it: counters start at 0 and dictionaries empty; state of a session is `local name := value`";
                self.disrupt(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "a `global` cannot have an initial value",
                    help,
                );
                self.skip_line();
                return;
            }
            let found = PROPERTIES.iter().position(|(word, _)| self.at_word(word));
            let Some(index) = found else {
                if has_comma || self.at(Ident) {
                    self.expected("`max`, `expire`, `evict` or `snapshot`", GLOBAL);
                    self.skip_line();
                }
                return;
            };
            if std::mem::replace(&mut seen[index], true) {
                let title = format!("`{}` is specified more than once", self.text());
                self.note(SyntaxErrorKind::Expected, self.here(), title, "remove one of them");
            }
            self.global_prop(PROPERTIES[index].1);
        }
    }

    fn global_prop(&mut self, kind: SyntaxKind) {
        self.start(kind);
        self.bump();
        if self.at(Eq) {
            let title = "unexpected `=` after the name of a property";
            self.note(
                SyntaxErrorKind::EqualsConfusion,
                self.here(),
                title,
                format!("the syntax is {}", GLOBAL.shape),
            );
            self.bump();
        }
        match kind {
            MaxProp => {
                self.size_expr();
                if !self.eat_word("entries") {
                    self.expected("`entries`", MAX);
                } else if self.at(Comma) && self.nth(1) == Number {
                    self.bump();
                    self.size_expr();
                    if !self.eat_word("bytes") {
                        self.expected("`bytes`", MAX);
                    }
                }
            }
            ExpireProp => self.size_expr(),
            EvictProp if !self.at(Ident) => self.expected("`lru`, `oldest` or `nothing`", EVICT),
            EvictProp => {
                if !POLICIES.contains(&self.text()) {
                    self.expected("`lru`, `oldest` or `nothing`", EVICT);
                }
                self.bump();
            }
            _ => {
                if matches!(self.current(), Str | OpenStr | SingleQuoted) {
                    self.single(Literal);
                } else {
                    self.expected("the name of a file, in quotes,", SNAPSHOT);
                }
                if self.eat_word("every") {
                    self.size_expr();
                }
            }
        }
        self.finish();
    }

    /// Parses a `global` inside a process or function, where it does not belong.
    pub(super) fn nested_global(&mut self) {
        let help = "move it out of the process; state of a session is `local name := value`";
        self.note(
            SyntaxErrorKind::Expected,
            self.here(),
            "a `global` is not allowed in a process or function",
            help,
        );
        self.global_decl();
    }

    pub(super) fn local_stmt(&mut self) {
        self.start(LocalStmt);
        self.bump();
        if self.name("the name of a local", LOCAL) {
            if self.eat(Colon) {
                self.type_ref();
            }
            if self.at(Eq) {
                let title = "expected `:=` after the name of a `local`, found `=`";
                self.note(
                    SyntaxErrorKind::EqualsConfusion,
                    self.here(),
                    title,
                    "write `local name := value`",
                );
                self.bump();
                self.expr();
            } else if self.at(LineEnd) {
                let title = "missing initial value of a `local`";
                self.note(
                    SyntaxErrorKind::Expected,
                    self.end_of_previous(),
                    title,
                    format!("the syntax is {}", LOCAL.shape),
                );
            } else if self.expect(ColonEq, LOCAL) {
                self.expr();
            }
        }
        self.finish();
    }

    /// Says whether the word `update` changes an entry here.
    pub(super) fn at_update(&self) -> bool {
        self.at_word("update")
            && self.nth(1) == Ident
            && match self.nth(2) {
                LBrack | Dot => true,
                Ident => self.nth_text(2) == "from",
                _ => false,
            }
    }

    pub(super) fn update_expr(&mut self) {
        self.start(UpdateExpr);
        self.bump();
        self.path_expr();
        if self.eat_word("from") {
            self.name("the name of the old value", UPDATE);
        } else {
            self.expected("`from`", UPDATE);
            self.skip_until(|kind| kind == Colon);
        }
        self.colon_block(UPDATE);
        self.finish();
    }

    /// Parses a handler or a timer that begins with the current word; says whether there was one.
    pub(super) fn event(&mut self) -> bool {
        if self.at_word("except") && (self.nth(1).is_word() || matches!(self.nth(1), Colon | LParen)) {
            self.except_stmt();
            return true;
        }
        let is_every = self.at_word("every")
            && match self.nth(1) {
                Number | FractionalNumber | Ident | Colon => true,
                LParen => self.nth(2) == Number,
                _ => false,
            };
        if is_every {
            self.start(EveryStmt);
            self.bump();
            self.expr();
            self.colon_block(EVERY);
            self.finish();
        }
        is_every
    }

    fn except_stmt(&mut self) {
        self.start(ExceptStmt);
        self.bump();
        if self.except_event() {
            self.except_channel();
        } else {
            self.skip_until(|kind| kind == Colon);
        }
        self.colon_block(EXCEPT);
        self.finish();
    }

    fn except_channel(&mut self) {
        if self.at(LParen) {
            let title = "unexpected `(` before the channel of an `except`";
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                title,
                format!("the syntax is {}", EXCEPT.shape),
            );
            self.skip_until(|kind| kind == Colon);
        } else if self.name("the name of a channel", EXCEPT) && self.at(LBrack) {
            let open = self.here();
            self.bump();
            if matches!(self.current(), Number | RBrack) {
                let title = "expected a name for the index of an `except`, found a value: the handler is for all channels of the array";
                let help = "write a name between the brackets, as in `except broken backends[i]:`";
                self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
                self.skip_until(|kind| kind == RBrack);
            } else {
                self.name("a name for the index", EXCEPT);
            }
            self.expect_closing(RBrack, open, EXCEPT);
        }
    }

    /// Parses the word for what happened; says whether the name of a channel is to follow.
    fn except_event(&mut self) -> bool {
        if self.at(Ident) && EVENTS.contains(&self.text()) {
            self.bump();
            return true;
        }
        if self.at(Ident) && EVENTS.contains(&self.nth_text(1)) {
            let help = format!("write `except {} {}:`", self.nth_text(1), self.text());
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                "expected the event before the channel of an `except`",
                help,
            );
            return false;
        }
        let help = "write `except closed client:`; the events are `closed`, `broken`, `refused`, `timed_out` and `malformed`";
        let title = format!("expected an event after `except`, found {}", self.found());
        self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
        let has_channel = self.at(Ident) && self.nth(1) == Ident;
        if has_channel {
            self.bump();
        }
        has_channel
    }
}
