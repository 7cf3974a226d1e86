//! Blocks and statements.
//!
//! ```text
//! block  := LINE-END INDENT stmt+ DEDENT | stmt          # the second form on the line of its heading
//! stmt   := '|' chain | 'let' binding '=' expr | chain | if | switch | for | local | except | every | '...'
//! chain  := expr ('=>' expr)* | expr '<=>' expr | expr ':=' expr
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::*;

const LET: Construct = Construct { name: "a `let`", shape: "`let name = value` or `let (a, b) = pair`" };
const STATEMENT: Construct = Construct {
    name: "a statement",
    shape: "one to a line, like `let x = f(y)`, `req => backends[i]` or `| client => f(backends)`",
};

impl Parser<'_> {
    /// Parses what stands below a heading, or behind it on the same line.
    pub(super) fn block(&mut self, construct: Construct) {
        if !self.enter() {
            self.skip_block();
            return;
        }
        let was_condition = std::mem::replace(&mut self.is_condition, false);
        self.start(Block);
        if self.at(LineEnd) && self.nth(1) == Indent {
            let was_inline = std::mem::replace(&mut self.is_inline, false);
            self.bump();
            self.bump();
            self.statements();
            self.eat(Dedent);
            self.is_inline = was_inline;
        } else if self.current().is_virtual() {
            self.missing_block("a body", &format!("the syntax is {}", construct.shape));
        } else {
            let was_inline = std::mem::replace(&mut self.is_inline, true);
            self.statement();
            self.is_inline = was_inline;
        }
        self.finish();
        self.is_condition = was_condition;
        self.leave();
    }

    fn statements(&mut self) {
        while !matches!(self.current(), Dedent | EndOfFile) {
            match self.current() {
                LineEnd => self.bump(),
                Indent => self.stray_block(),
                Semi => self.stray_semicolon(),
                _ => {
                    let before = self.position;
                    self.after_dedent = false;
                    self.statement();
                    if self.position == before {
                        self.skip_line();
                    }
                    self.end_of_line(STATEMENT);
                }
            }
        }
    }

    /// Parses lines that are deeper than they should be as a block of their own.
    fn stray_block(&mut self) {
        if !self.line_was_bad {
            self.unexpected_indent();
        }
        if !self.enter() {
            self.bump(); // the `Indent`; its lines are then parsed as part of the block around them
            return;
        }
        self.start(Block);
        self.bump();
        self.statements();
        self.eat(Dedent);
        self.finish();
        self.leave();
    }

    pub(super) fn statement(&mut self) {
        self.loose_else = None;
        match self.current() {
            Pipe => {
                self.start(Rule);
                self.bump();
                self.chain();
                self.finish();
            }
            LetKw => {
                self.let_stmt();
                self.loose_else = None; // what is named may well be an option's default
            }
            IfKw => self.if_expr(),
            SwitchKw => self.switch_expr(),
            ForKw => self.for_stmt(),
            LocalKw => self.local_stmt(),
            GlobalKw => self.nested_global(),
            ElseKw => self.stray_else(),
            Ellipsis => {
                self.start(EllipsisStmt);
                self.bump();
                self.finish();
            }
            UseKw | TypeKw | ProcKw | FunKw => self.nested_declaration(),
            Ident if self.event() || self.foreign_statement() || self.unparenthesised_log() => {}
            _ => self.chain(),
        }
    }

    fn let_stmt(&mut self) {
        self.start(LetStmt);
        self.bump();
        if self.at_word("mut") && self.nth(1) == Ident {
            let title = "`mut` is not supported: variables are immutable";
            self.note(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                title,
                "write `let name = value`; mutable state is `local` or `global`",
            );
            self.bump_as(Unknown);
        }
        if self.let_names() {
            if self.at(Colon) {
                let title = "type annotations are not allowed in a `let`";
                self.note(SyntaxErrorKind::Expected, self.here(), title, "write `let name = value`");
                self.bump();
                self.type_ref();
            }
            if matches!(self.current(), Eq2 | ColonEq) {
                let title = format!("expected `=` in a `let`, found `{}`", self.text());
                self.note(SyntaxErrorKind::EqualsConfusion, self.here(), title, "write `let name = value`");
                self.bump();
                self.expr();
            } else if self.expect(Eq, LET) {
                self.expr();
            }
        }
        self.finish();
    }

    /// Parses what stands between `let` and `=`.
    fn let_names(&mut self) -> bool {
        let checkpoint = self.checkpoint();
        let start = self.here().start;
        if !self.at(LParen) && !self.current().is_word() {
            self.expected("a name", LET);
            return false;
        }
        self.binding(LET);
        if self.at(Comma) {
            self.start_at(checkpoint, Binding);
            while self.eat(Comma) {
                self.binding(LET);
            }
            self.finish();
            let range = self.since(start);
            let help = format!("write `let ({}) = value`", &self.source[range.clone()]);
            self.note(SyntaxErrorKind::Expected, range, "missing parentheses around several names", help);
        }
        true
    }

    fn chain(&mut self) {
        let checkpoint = self.checkpoint();
        let start = self.here().start;
        self.expr();
        if self.after_dedent {
            self.start_at(checkpoint, ExprStmt); // the value ended with a block: what follows is the next line
            self.finish();
            return;
        }
        match self.current() {
            FatArrow | Arrow | PipeGt => {
                self.start_at(checkpoint, ChainStmt);
                while matches!(self.current(), FatArrow | Arrow | PipeGt) {
                    self.check_arrow();
                    self.bump();
                    self.expr();
                }
            }
            Join => {
                self.start_at(checkpoint, JoinStmt);
                self.bump();
                self.expr();
            }
            ColonEq => {
                self.start_at(checkpoint, AssignStmt);
                self.bump();
                self.expr();
                self.loose_else = None; // the value that is stored may well be an option's default
            }
            Eq | PlusEq | MinusEq => {
                self.start_at(checkpoint, ExprStmt);
                self.reassignment(self.since(start));
            }
            _ => self.start_at(checkpoint, ExprStmt),
        }
        self.finish();
    }

    /// Expects the line to end; takes the `LineEnd` if it is not that of a block already closed.
    pub(super) fn end_of_line(&mut self, construct: Construct) {
        if self.after_dedent {
            return;
        }
        while self.at(Semi) {
            self.stray_semicolon();
        }
        if !self.current().is_virtual() {
            if matches!(self.current(), RParen | RBrack | RBrace) {
                let title = format!("unexpected closing delimiter: `{}`", self.text());
                self.disrupt(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    title,
                    "remove it, or add the opening delimiter",
                );
            } else {
                let title = format!("expected the end of the line, found {}", self.found());
                let help = match self.current() {
                    IfKw => "write `if condition: a else: b` to choose between two values".to_owned(),
                    ElseKw if self.nth(1) == IfKw => {
                        "write the `if` after this `else` in parentheses; an `else if` needs an `if` in front"
                            .to_owned()
                    }
                    _ => format!("the syntax of {} is {}", construct.name, construct.shape),
                };
                self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
            }
            self.skip_line();
        }
        self.eat(LineEnd);
    }

    pub(super) fn stray_semicolon(&mut self) {
        let title = format!("unexpected `{}` at the end of a line", self.text());
        self.note(
            SyntaxErrorKind::StraySemicolon,
            self.here(),
            title,
            "remove it; only the items of a grammar end with `;`",
        );
        self.bump();
    }

    pub(super) fn unexpected_indent(&mut self) {
        let here = self.tokens.get(self.position + 1).and_then(|token| self.raw.get(token.raw as usize));
        let range = here.map_or_else(|| self.here(), |token| token.range());
        self.note(
            SyntaxErrorKind::UnexpectedIndentation,
            range,
            "unexpected indentation",
            "align it with the line above; to continue that line, begin this one with an operator or keep a bracket open",
        );
    }

    pub(super) fn missing_block(&mut self, what: &str, help: &str) {
        let title = format!("missing {} after this line", what.trim_start_matches("a "));
        self.disrupt(SyntaxErrorKind::MissingBlock, self.end_of_previous(), title, help);
    }
}
