//! Habits from other languages: recognised, named, and answered with flick's spelling.
//! Promises: a foreign word is reported once, and what stands behind it is still parsed, so that the rest of the
//! file gets its own errors and no echo.

use super::Parser;
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

/// Words that begin a statement elsewhere: the word, what is wrong, what to write.
const STATEMENTS: &[(&str, &str, &str)] = &[
    (
        "while",
        "there is no `while`: every program ends by itself",
        "write `for x in values:` over something finite",
    ),
    (
        "loop",
        "there is no `loop`: every program ends by itself",
        "write `for x in values:`, or a rule `| channel => ...`, which runs for every message",
    ),
    ("do", "there is no `do`", "write `for x in values:` over something finite"),
    (
        "return",
        "there is no `return`: the last line of a function is its result",
        "write the value alone on the last line; choose between results with `if` and `else`",
    ),
    (
        "var",
        "there is no `var` outside grammars",
        "write `let name = value`; state that changes is `local name := value` or `global name: type`",
    ),
    ("const", "there is no `const`", "write `let name = value`"),
    ("elif", "there is no `elif`", "write `else if condition:`"),
    (
        "break",
        "there is no `break`",
        "choose with `if` what each step does; a `for` always visits every value",
    ),
    ("continue", "there is no `continue`", "choose with `if` what each step does"),
    ("match", "there is no `match`", "write `switch value:`"),
    ("try", "there is no `try`", "write an `except` handler in the process"),
    ("throw", "there is no `throw`", "nothing can fail half-way; return a value that says what happened"),
    ("raise", "there is no `raise`", "nothing can fail half-way; return a value that says what happened"),
];

/// Words that begin a declaration elsewhere.
const DECLARATIONS: &[(&str, &str, &str)] = &[
    ("def", "there is no `def`", "write `fun name: (parameters) -> (results)`"),
    ("func", "there is no `func`", "write `fun name: (parameters) -> (results)`"),
    ("function", "there is no `function`", "write `fun name: (parameters) -> (results)`"),
    ("fn", "there is no `fn`", "write `fun name: (parameters) -> (results)`"),
    ("process", "there is no `process`", "write `proc Name: (in/out channel)`"),
    ("import", "there is no `import`", "write `use name`"),
    ("include", "there is no `include`", "write `use name`"),
    ("from", "there is no `from ... import`", "write `use name`"),
    ("struct", "there is no `struct`", "write `type name: record`"),
    ("class", "there is no `class`", "write `type name: record`"),
    (
        "message",
        "there is no `message`",
        "write `type name: record`, or `type name = unit { ... };` for its bytes",
    ),
    ("record", "a record is declared with `type`", "write `type name: record`"),
    ("unit", "a grammar is declared with `type`", "write `type name = unit { ... };`"),
    ("enum", "an enumeration is declared with `type`", "write `type name = enum { a = 1, b };`"),
    ("grammar", "there is no `grammar`", "write `type name = unit { ... };`"),
    ("const", "there is no `const`", "write the value where it is used, or a `fun` that returns it"),
    ("var", "there is no `var` at the left margin", "write `global name: type` in a process"),
];

impl Parser<'_> {
    /// Reports and parses a declaration that begins with a foreign word; says whether there was one.
    pub(super) fn foreign_declaration(&mut self) -> bool {
        let Some(&(word, title, help)) = DECLARATIONS.iter().find(|(word, _, _)| *word == self.text()) else {
            return false;
        };
        if !self.nth(1).is_word() {
            return false;
        }
        self.disrupt(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        match word {
            "def" | "func" | "function" | "fn" => {
                self.start(FunDecl);
                self.fun_heading_and_body();
                self.finish();
            }
            _ => {
                self.skip_line();
                self.skip_block();
            }
        }
        true
    }

    /// Reports and parses a statement that begins with a foreign word; says whether there was one.
    pub(super) fn foreign_statement(&mut self) -> bool {
        // A foreign word may still be the name of a value, and then something is done with it.
        let is_value = matches!(self.nth(1), FatArrow | Join | Dot | LBrack | Eq | ColonEq | Comma);
        let Some(&(word, title, help)) = STATEMENTS.iter().find(|(word, _, _)| *word == self.text()) else {
            return false;
        };
        let is_bare_value = self.nth(1).is_virtual() && !matches!(word, "return" | "break" | "continue");
        if is_value || is_bare_value {
            return false;
        }
        self.disrupt(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        match word {
            "var" | "const" if self.nth(1) == Ident => {
                self.start(LetStmt);
                self.bump();
                self.bump();
                if self.eat(Colon) {
                    self.type_ref();
                }
                if self.eat(Eq) {
                    self.expr();
                }
                self.finish();
            }
            "return" if !self.nth(1).is_virtual() => {
                self.start(ExprStmt);
                self.bump_as(Unknown);
                self.expr();
                self.finish();
            }
            _ => {
                self.skip_line();
                self.skip_block();
            }
        }
        true
    }

    pub(super) fn nested_declaration(&mut self) {
        let title = format!("a `{}` stands at the left margin, not inside another declaration", self.text());
        let help = "move it out and remove its indentation; pass what it needs as parameters";
        self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
        self.skip_line();
        self.skip_block();
    }

    /// Reports the operator at the current token if it is spelled as elsewhere.
    pub(super) fn check_operator(&mut self) {
        let kind = match self.current() {
            Eq => SyntaxErrorKind::EqualsConfusion,
            _ => SyntaxErrorKind::ForeignOperator,
        };
        let (title, help) = match self.current() {
            Eq => ("`=` gives a name to a value; it does not compare", "write `==` to compare"),
            Amp2 => ("`&&` is not an operator", "write `and`"),
            Pipe2 => ("`||` is not an operator", "write `or`"),
            Bang => ("`!` is not an operator", "write `not`"),
            Percent => ("`%` is not an operator", "write `a mod b` for the remainder of a division"),
            _ => return,
        };
        self.note(kind, self.here(), title, help);
    }

    /// Reports the arrow at the current token if it does not pass a message on.
    pub(super) fn check_arrow(&mut self) {
        let (kind, title) = match self.current() {
            Arrow => (SyntaxErrorKind::ArrowConfusion, "a message is not passed on with `->`"),
            PipeGt => (SyntaxErrorKind::ForeignOperator, "a message is not passed on with `|>`"),
            _ => return,
        };
        self.note(kind, self.here(), title, "write `=>`");
    }

    /// Reports `name = value` or `name += value` where a statement stands, and skips it.
    pub(super) fn reassignment(&mut self) {
        let operator = self.text().to_owned();
        self.disrupt(
            SyntaxErrorKind::Reassignment,
            self.here(),
            format!("`{operator}` does not change a value here"),
            "write `let name = value` for a new name, `req with field = value` for a changed copy, `name := value` for a `local` or `global`",
        );
        self.skip_line();
    }

    /// Reports a `{` where a block begins.
    pub(super) fn brace_block(&mut self) {
        self.disrupt(
            SyntaxErrorKind::BraceBlock,
            self.here(),
            "a block is not written with braces",
            "write `:` and indent the lines of the block; braces are for grammars and record values",
        );
    }
}
