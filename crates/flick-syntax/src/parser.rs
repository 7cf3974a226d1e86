//! Recursive descent with recovery: tokens to the lossless tree.
//! Promises: never stops at an error, never reports two errors where one mistake was made, terminates on every input
//! (each loop consumes a token or leaves), and builds no tree higher than `NESTING_DEPTH_MAX` allows.
//! Not here: what names mean (the checker). Each part of the grammar stands at the top of its file.
//! Source: the event-less variant of the method of rust-analyzer's syntax crate: nodes go straight into the tree
//! builder.

mod ask;
mod class;
mod decl;
mod expr;
mod flow;
mod foreign;
mod items;
mod loops;
mod pattern;
mod sorts;
mod state;
mod stmt;
mod table;
mod types;
mod unit;

use std::cell::Cell;
use std::ops::Range;

use rowan::{Checkpoint, GreenNode, GreenNodeBuilder, Language};

use crate::error::{ErrorSink, SyntaxErrorKind};
use crate::layout::LayoutToken;
use crate::lexer::LexToken;
use crate::limits::{LOOKS_PER_TOKEN_MAX, NESTING_DEPTH_MAX, QUOTE_CHARS_MAX};
use crate::literal::parse_number;
use crate::syntax_kind::FlickLanguage;
use crate::syntax_kind::SyntaxKind::{self, *};

/// Builds the tree of a whole file.
pub(crate) fn parse_file(source: &str, raw: &[LexToken], tokens: &[LayoutToken]) -> (GreenNode, ErrorSink) {
    let mut parser = Parser {
        source,
        raw,
        tokens,
        position: 0,
        raw_position: 0,
        builder: GreenNodeBuilder::new(),
        errors: ErrorSink::default(),
        depth: 0,
        deepest: 0,
        is_quiet: false,
        line_was_bad: false,
        after_dedent: false,
        is_inline: false,
        is_unit: false,
        is_condition: false,
        is_subject: false,
        loose_else: None,
        looks: Cell::new(0),
    };
    parser.builder.start_node(FlickLanguage::kind_to_raw(File));
    parser.file();
    parser.flush_trivia();
    parser.builder.finish_node();
    (parser.builder.finish(), parser.errors)
}

/// The construct being parsed: what to call it in a message, and how it is written.
#[derive(Clone, Copy)]
struct Construct {
    name: &'static str,
    shape: &'static str,
}

struct Parser<'s> {
    source: &'s str,
    raw: &'s [LexToken],
    tokens: &'s [LayoutToken],
    position: usize,
    /// Tokens of `raw` before this index are in the tree.
    raw_position: usize,
    builder: GreenNodeBuilder<'static>,
    errors: ErrorSink,
    depth: u32,
    /// Depth of the deepest node since the innermost running `expr` began; see `wrap`.
    deepest: u32,
    /// An error was reported on this line (or item of a grammar): what follows is likely its echo.
    is_quiet: bool,
    line_was_bad: bool,
    after_dedent: bool,
    /// Inside a block that stands on the line of its heading.
    is_inline: bool,
    /// Inside a grammar.
    is_unit: bool,
    /// Inside the condition of an `if`.
    is_condition: bool,
    /// Inside the subject of a grammar's `switch`, where `{` opens the cases.
    is_subject: bool,
    /// The outermost `else` without `:` in the running statement, and its depth. Behind an inline `if` the author most
    /// likely meant `else:`.
    loose_else: Option<(u32, Range<usize>)>,
    /// Number of calls of `nth` since the last token was consumed.
    looks: Cell<u32>,
}

impl Parser<'_> {
    // Looking ahead.

    fn current(&self) -> SyntaxKind {
        self.nth(0)
    }

    fn nth(&self, ahead: usize) -> SyntaxKind {
        self.looks.set(self.looks.get() + 1);
        assert!(
            self.looks.get() <= LOOKS_PER_TOKEN_MAX,
            "every loop of the parser consumes a token or leaves"
        );
        self.tokens.get(self.position + ahead).map_or(EndOfFile, |token| token.kind)
    }

    fn at(&self, kind: SyntaxKind) -> bool {
        self.current() == kind
    }

    /// Says whether the current token is the name `word`, which is special only here.
    fn at_word(&self, word: &str) -> bool {
        self.at(Ident) && self.text() == word
    }

    fn text(&self) -> &str {
        self.nth_text(0)
    }

    fn nth_text(&self, ahead: usize) -> &str {
        match self.tokens.get(self.position + ahead) {
            Some(token) if !token.kind.is_virtual() => &self.source[self.raw[token.raw as usize].range()],
            _ => "",
        }
    }

    // Consuming.

    fn bump(&mut self) {
        self.bump_as(self.current());
    }

    /// Consumes the current token under another kind; a virtual token leaves no trace in the tree.
    fn bump_as(&mut self, kind: SyntaxKind) {
        let Some(&token) = self.tokens.get(self.position) else { return };
        if token.kind == EndOfFile {
            return;
        }
        self.looks.set(0);
        self.after_dedent = token.kind == Dedent;
        if token.kind.is_virtual() {
            self.position += 1;
            self.line_was_bad = self.is_quiet;
            self.is_quiet = false;
            return;
        }
        self.flush_trivia();
        self.position += 1;
        let raw = self.raw[token.raw as usize];
        self.builder.token(FlickLanguage::kind_to_raw(kind), &self.source[raw.range()]);
        self.raw_position = token.raw as usize + 1;
        if matches!(token.kind, OpenStr | SingleQuoted | FractionalNumber) {
            self.is_quiet = true; // the lexer has reported it
        }
    }

    fn eat(&mut self, kind: SyntaxKind) -> bool {
        let is_there = self.at(kind);
        if is_there {
            self.bump();
        }
        is_there
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let is_there = self.at_word(word);
        if is_there {
            self.bump();
        }
        is_there
    }

    fn expect(&mut self, kind: SyntaxKind, construct: Construct) -> bool {
        let is_there = self.eat(kind);
        if !is_there {
            self.expected(kind.describe(), construct);
        }
        is_there
    }

    /// Consumes a name; a reserved word in its place is reported and taken as the name.
    fn name(&mut self, what: &str, construct: Construct) -> bool {
        let kind = self.current();
        if kind.is_keyword() {
            let title = format!("expected {what}, found keyword `{}`", self.text());
            let help = format!("choose another name, for example `{}_`", self.text());
            self.note(SyntaxErrorKind::ReservedWord, self.here(), title, help);
        } else if kind != Ident {
            self.expected(what, construct);
            return false;
        }
        self.bump_as(Ident);
        true
    }

    /// Consumes the name of a field, which may be any word.
    fn field_name(&mut self, construct: Construct) -> bool {
        let is_there = self.current().is_word();
        if is_there {
            self.bump_as(Ident);
        } else {
            self.expected("the name of a field", construct);
        }
        is_there
    }

    // Building. Trivia goes in front of a node, never inside at its edges, so that ranges are those of the text.

    fn flush_trivia(&mut self) {
        let end = self.tokens.get(self.position).map_or(self.raw.len(), |token| token.raw as usize);
        let was_quiet = self.is_quiet;
        for token in self.raw.get(self.raw_position..end).unwrap_or_default() {
            self.builder.token(FlickLanguage::kind_to_raw(token.kind), &self.source[token.range()]);
            match token.kind {
                Unknown => self.is_quiet = true, // the lexer has reported it
                LineBreak => self.is_quiet = was_quiet,
                _ => {}
            }
        }
        self.raw_position = self.raw_position.max(end);
    }

    fn start(&mut self, kind: SyntaxKind) {
        self.flush_trivia();
        self.builder.start_node(FlickLanguage::kind_to_raw(kind));
    }

    fn checkpoint(&mut self) -> Checkpoint {
        self.flush_trivia();
        self.builder.checkpoint()
    }

    fn start_at(&mut self, checkpoint: Checkpoint, kind: SyntaxKind) {
        self.builder.start_node_at(checkpoint, FlickLanguage::kind_to_raw(kind));
    }

    fn finish(&mut self) {
        self.builder.finish_node();
    }

    /// Goes one level deeper, or reports that this is too deep and skips the rest of the line.
    fn enter(&mut self) -> bool {
        if self.depth >= NESTING_DEPTH_MAX {
            self.too_deep();
            return false;
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        true
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Opens a node around everything since `checkpoint`, as `a + b` does to `a`: that makes all of it one level
    /// deeper.
    fn wrap(&mut self, checkpoint: Checkpoint, kind: SyntaxKind) -> bool {
        if self.deepest >= NESTING_DEPTH_MAX {
            self.too_deep();
            return false;
        }
        self.deepest += 1;
        self.start_at(checkpoint, kind);
        true
    }

    fn too_deep(&mut self) {
        self.disrupt(
            SyntaxErrorKind::NestingTooDeep,
            self.here(),
            format!("nested too deeply: the limit is {NESTING_DEPTH_MAX} levels"),
            "name parts of it with `let`, or move them into functions",
        );
        self.skip_line();
    }

    // Errors.

    fn here(&self) -> Range<usize> {
        match self.tokens.get(self.position) {
            Some(token) if !token.kind.is_virtual() => self.raw[token.raw as usize].range(),
            _ => self.end_of_previous(),
        }
    }

    /// Returns the empty range behind the last token consumed.
    fn end_of_previous(&self) -> Range<usize> {
        let before = self.tokens[..self.position].iter().rev().find(|token| !token.kind.is_virtual());
        let end = before.map_or(0, |token| self.raw[token.raw as usize].end as usize);
        end..end
    }

    /// Returns the range from `start` to the end of the last token consumed; empty if none was.
    fn since(&self, start: usize) -> Range<usize> {
        start..self.end_of_previous().end.max(start)
    }

    /// Reports a mistake that does not disturb the parsing of what follows.
    fn note(
        &mut self,
        kind: SyntaxErrorKind,
        range: Range<usize>,
        title: impl Into<String>,
        help: impl Into<String>,
    ) {
        let hides_unknown = self.raw[self.raw_position..]
            .iter()
            .take_while(|token| token.kind.is_trivia() && token.kind != LineBreak)
            .any(|token| token.kind == Unknown);
        let is_known_fault = match self.current() {
            OpenStr | SingleQuoted | FractionalNumber => true,
            Number => parse_number(self.text()).is_err(),
            _ => false,
        };
        if !self.is_quiet && !hides_unknown && !is_known_fault {
            self.errors.push(kind, range, title, help);
        }
    }

    /// Reports a mistake after which errors on the same line are likely its echo.
    fn disrupt(
        &mut self,
        kind: SyntaxErrorKind,
        range: Range<usize>,
        title: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.note(kind, range, title, help);
        self.is_quiet = true;
    }

    fn expected(&mut self, what: &str, construct: Construct) {
        let within = if construct.name == what { String::new() } else { format!(" in {}", construct.name) };
        let title = format!("expected {what}{within}, found {}", self.found());
        self.disrupt(
            SyntaxErrorKind::Expected,
            self.here(),
            title,
            format!("the syntax is {}", construct.shape),
        );
    }

    /// Describes the current token as it is written in the source.
    fn found(&self) -> String {
        if self.current().is_virtual() {
            return self.current().describe().to_owned();
        }
        let text = self.text();
        match text.char_indices().nth(QUOTE_CHARS_MAX) {
            Some((cut, _)) => format!("`{}...`", &text[..cut]),
            None => format!("`{text}`"),
        }
    }

    /// Expects the bracket that closes the one at `open`.
    fn expect_closing(&mut self, kind: SyntaxKind, open: Range<usize>, construct: Construct) -> bool {
        if self.eat(kind) {
            return true;
        }
        let opened = &self.source[open];
        let title = format!(
            "unclosed delimiter `{opened}` of {}: expected {}, found {}",
            construct.name,
            kind.describe(),
            self.found()
        );
        let help = format!("add {} here; the syntax is {}", kind.describe(), construct.shape);
        self.disrupt(SyntaxErrorKind::MissingClosing, self.here(), title, help);
        false
    }

    // Recovery.

    /// Puts the rest of the line, as far as there is any, into an error node.
    fn skip_line(&mut self) {
        self.skip_until(|_| false);
    }

    /// Puts tokens into an error node until `stop` or the end of the line.
    fn skip_until(&mut self, stop: impl Fn(SyntaxKind) -> bool) {
        if self.current().is_virtual() || stop(self.current()) {
            return;
        }
        self.start(Error);
        while !self.current().is_virtual() && !stop(self.current()) {
            self.bump();
        }
        self.finish();
    }
}
