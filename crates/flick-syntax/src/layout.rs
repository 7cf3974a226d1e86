//! Indentation to tokens: where a line of the program ends, where a block opens and closes.
//! Promises: every `Indent` is matched by one `Dedent`; inside brackets there is no layout; the output is at most
//! three virtual tokens per line longer than the input. A line continues the one above when it starts with `=>`,
//! `<=>` or a binary operator, when the line above ends with one or with a comma and this line is deeper, when it
//! holds properties of a `global`, or when a bracket is open. An unclosed bracket ends where a line can only be a new
//! declaration or statement, so one missing `)` does not swallow the file.

use crate::error::{ErrorSink, SyntaxErrorKind};
use crate::lexer::LexToken;
use crate::syntax_kind::SyntaxKind::{self, *};

/// A tab reaches to the next multiple of this; only for going on after the error.
const TAB_COLUMNS: u32 = 4;

/// A token as the parser sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutToken {
    pub(crate) kind: SyntaxKind,
    /// Index of the token itself, or for a virtual token of the next one in the source.
    pub(crate) raw: u32,
}

/// Drops trivia from `raw` and adds `LineEnd`, `Indent`, `Dedent` and a final `EndOfFile`.
pub(crate) fn layout(source: &str, raw: &[LexToken], errors: &mut ErrorSink) -> Vec<LayoutToken> {
    let mut pass = Layout {
        source,
        raw,
        errors,
        out: Vec::with_capacity(raw.len()),
        levels: vec![Level { column: 0, reported: false }],
        brackets: Vec::new(),
        line_brackets: 0,
        line_first: EndOfFile,
        last: EndOfFile,
        tab_reported: false,
    };
    pass.run();
    pass.out
}

struct Level {
    column: u32,
    /// One complaint per block is enough.
    reported: bool,
}

struct Layout<'a> {
    source: &'a str,
    raw: &'a [LexToken],
    errors: &'a mut ErrorSink,
    out: Vec<LayoutToken>,
    levels: Vec<Level>,
    /// The closing brackets that are due, innermost last.
    brackets: Vec<SyntaxKind>,
    /// Number of brackets that were open when the current line of text began.
    line_brackets: usize,
    /// First token of the current logical line; `EndOfFile` before the first one.
    line_first: SyntaxKind,
    last: SyntaxKind,
    tab_reported: bool,
}

impl Layout<'_> {
    fn run(&mut self) {
        let mut column = 0;
        let mut at_line_start = true;
        let mut line_is_broken = false;
        for index in 0..self.raw.len() {
            let token = self.raw[index];
            match token.kind {
                LineBreak => {
                    at_line_start = true;
                    column = 0;
                    if std::mem::take(&mut line_is_broken) {
                        // The closing brackets may be inside the unterminated string.
                        self.brackets.truncate(self.line_brackets);
                    }
                    self.line_brackets = self.brackets.len();
                }
                Whitespace if at_line_start && column == 0 => column = self.width(index),
                kind if kind.is_trivia() => {}
                kind => {
                    if std::mem::take(&mut at_line_start) {
                        self.start_line(index, column);
                        self.line_brackets = self.brackets.len();
                    }
                    line_is_broken |= matches!(kind, OpenStr | SingleQuoted);
                    self.track_brackets(kind);
                    self.out.push(LayoutToken { kind, raw: index as u32 });
                    self.last = kind;
                }
            }
        }
        self.finish();
    }

    fn finish(&mut self) {
        let end = self.raw.len();
        if self.line_first != EndOfFile {
            self.emit(LineEnd, end);
        }
        for _ in 1..self.levels.len() {
            self.emit(Dedent, end);
        }
        self.emit(EndOfFile, end);
    }

    fn emit(&mut self, kind: SyntaxKind, before: usize) {
        self.out.push(LayoutToken { kind, raw: before as u32 });
    }

    /// Decides what the line that starts at token `index` is: a continuation, or a new line, deeper or shallower.
    fn start_line(&mut self, index: usize, column: u32) {
        if !self.brackets.is_empty() {
            if !self.ends_open_brackets(index, column) {
                return;
            }
            self.brackets.clear();
        } else if self.continues(index, column) {
            return;
        }
        let kind = self.raw[index].kind;
        let top = self.levels.last().map_or(0, |level| level.column);
        if kind == ElseKw && column > top && self.line_first != EndOfFile {
            return; // `let x = if a: 1` continued by a deeper `else: 2`
        }
        self.check_tabs(index);
        if self.line_first != EndOfFile {
            self.emit(LineEnd, index);
        }
        if column > top {
            self.emit(Indent, index);
            self.levels.push(Level { column, reported: false });
        } else {
            self.close_levels(index, column, kind);
        }
        if !(kind == ElseKw && self.levels.last().is_some_and(|level| column > level.column)) {
            self.line_first = kind;
        }
    }

    fn close_levels(&mut self, index: usize, column: u32, kind: SyntaxKind) {
        while self.levels.last().is_some_and(|level| level.column > column) {
            let below = self.levels[self.levels.len() - 2].column;
            if below < column && kind != ElseKw {
                // Between two blocks: stay in the deeper one, which is where the author most likely was.
                self.report_inconsistent(index, below);
                return;
            }
            self.levels.pop();
            self.emit(Dedent, index);
        }
    }

    fn report_inconsistent(&mut self, index: usize, below: u32) {
        let level = self.levels.last_mut().expect("the outermost level is never closed");
        if !std::mem::replace(&mut level.reported, true) {
            let range = self.raw[index].range();
            let column = level.column;
            self.errors.push(
                SyntaxErrorKind::InconsistentIndentation,
                range,
                "inconsistent indentation: this line does not match any enclosing block",
                format!(
                    "indent it by {column} spaces to stay in the block above, or by {below} to continue after the block"
                ),
            );
        }
    }

    fn check_tabs(&mut self, index: usize) {
        let Some(indent) = index.checked_sub(1).map(|before| self.raw[before]) else { return };
        if indent.kind != Whitespace || self.tab_reported {
            return;
        }
        if let Some(offset) = self.source[indent.range()].find('\t') {
            self.tab_reported = true;
            let start = indent.start as usize + offset;
            self.errors.push(
                SyntaxErrorKind::TabIndentation,
                start..start + 1,
                "tab in indentation",
                "indent with spaces, two for each level",
            );
        }
    }

    fn width(&self, index: usize) -> u32 {
        self.source[self.raw[index].range()].chars().fold(0, |column, c| match c {
            '\t' => (column / TAB_COLUMNS + 1) * TAB_COLUMNS,
            ' ' => column + 1,
            _ => column,
        })
    }

    /// Says whether the line continues the one above although no bracket is open.
    fn continues(&self, index: usize, column: u32) -> bool {
        if self.line_first == EndOfFile {
            return false;
        }
        let is_deeper = self.levels.last().is_some_and(|level| column > level.column);
        match self.raw[index].kind {
            FatArrow | Join | OrKw | AndKw | Eq2 | Neq | Lt | Le | Gt | Ge | Plus | Star | Slash | ModKw
            | WithKw | Amp2 | Pipe2 | Dot => true,
            // `-` also starts a value: directly in a block, or as a pattern of a `switch`.
            Minus => is_deeper && self.last != Colon && !matches!(self.line_first, FunKw | ProcKw),
            Ident if is_deeper && self.word(index) == "ordering" => self.next_kind(index) == Some(Ident),
            Ident if is_deeper && self.line_first == GlobalKw => true,
            Ident if is_deeper && self.word(index) == "timeout" => {
                matches!(self.next_kind(index), Some(Number | Ident | LParen))
            }
            Ident if self.word(index) == "in" => self.next_kind(index) == Some(LBrace),
            Pipe => false,
            _ => {
                is_deeper
                    && matches!(
                        self.last,
                        FatArrow
                            | Join
                            | OrKw
                            | AndKw
                            | NotKw
                            | Eq2
                            | Neq
                            | Le
                            | Ge
                            | Plus
                            | Minus
                            | Star
                            | Slash
                            | ModKw
                            | WithKw
                            | Eq
                            | ColonEq
                            | Comma
                            | Arrow
                    )
            }
        }
    }

    /// Says whether the line can only be a new declaration or statement, so that the open brackets were forgotten.
    fn ends_open_brackets(&self, index: usize, column: u32) -> bool {
        let next_is_word = self.next_kind(index).is_some_and(SyntaxKind::is_word);
        match self.raw[index].kind {
            UseKw | TypeKw | ProcKw | FunKw => column == 0 && next_is_word,
            LetKw | LocalKw | GlobalKw => self.line_first != TypeKw && next_is_word,
            Pipe => self.line_first != TypeKw,
            _ => false,
        }
    }

    fn track_brackets(&mut self, kind: SyntaxKind) {
        match kind {
            LParen => self.brackets.push(RParen),
            LBrack => self.brackets.push(RBrack),
            LBrace => self.brackets.push(RBrace),
            RParen | RBrack | RBrace => {
                if let Some(position) = self.brackets.iter().rposition(|due| *due == kind) {
                    self.brackets.truncate(position);
                }
            }
            _ => {}
        }
    }

    fn word(&self, index: usize) -> &str {
        &self.source[self.raw[index].range()]
    }

    fn next_kind(&self, index: usize) -> Option<SyntaxKind> {
        self.raw[index + 1..]
            .iter()
            .map(|token| token.kind)
            .find(|kind| *kind == LineBreak || !kind.is_trivia())
    }
}
