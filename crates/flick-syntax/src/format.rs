//! The formatter: one layout for every program, with the author's line breaks and comments kept.
//! Promises: the result has the tokens, the comments and the tree of the source; formatting it again changes nothing.
//! Refuses: to touch a source with errors, whose structure it could only guess.
//! Two spaces to a level, one between tokens; the items of a grammar on lines of their own; the colons of neighbouring
//! fields and the comments behind neighbouring lines aligned; at most one empty line in a row.

mod align;
mod spacing;

use crate::Parse;
use crate::error::ErrorSink;
use crate::layout::layout;
use crate::lexer::lex;
use crate::syntax_kind::SyntaxKind::{self, *};
use align::Line;

const LEVEL_COLUMNS: usize = 2;
/// How far a line is indented that continues the one above.
const CONTINUATION_COLUMNS: usize = 4;

/// Formats a parsed source; one with errors comes back as it was.
///
/// Cost: linear in the source.
pub fn format(parse: &Parse) -> String {
    let source = parse.syntax().text().to_string();
    if !parse.errors().is_empty() {
        return source;
    }
    let pieces = collect(parse, &source);
    let mut printer = Printer {
        levels: vec![Level { out: 0, original: 0 }],
        brackets: Vec::new(),
        is_continued: false,
        lines: Vec::new(),
        last_comment_column: None,
        has_code: false,
    };
    for (index, piece) in pieces.iter().enumerate() {
        printer.piece(&pieces[..index], piece, &pieces[index + 1..]);
    }
    align::render(printer.lines)
}

/// A token or a comment, with what stood before it.
struct Piece {
    kind: SyntaxKind,
    text: String,
    /// Kind of the node that the token is a child of.
    parent: SyntaxKind,
    /// Says whether the node that the token is a child of starts with it.
    starts_parent: bool,
    line_breaks_before: usize,
    column: usize,
    /// The virtual tokens of the layout before it.
    layout: Vec<SyntaxKind>,
}

impl Piece {
    fn is_comment(&self) -> bool {
        self.kind == Comment
    }

    fn starts_logical_line(&self) -> bool {
        self.layout.contains(&LineEnd)
    }

    fn starts_item(&self) -> bool {
        self.starts_parent && matches!(self.parent, UnitProperty | UnitField | UnitVar | RecordField)
    }
}

/// Lists the tokens and comments of the source, and behind them the end of the file.
fn collect(parse: &Parse, source: &str) -> Vec<Piece> {
    let raw = lex(source, &mut ErrorSink::default());
    let mut layout = layout(source, &raw, &mut ErrorSink::default()).into_iter().peekable();
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut column, mut line_breaks) = (0, 0);
    let tokens = parse.syntax().descendants_with_tokens().filter_map(|element| element.into_token());
    for (index, token) in tokens.enumerate() {
        let width = token.text().chars().count();
        match token.kind() {
            LineBreak => (column, line_breaks) = (0, line_breaks + 1),
            Whitespace => column += width,
            kind => {
                let mut before = Vec::new();
                while let Some(ahead) = layout.next_if(|ahead| ahead.raw as usize <= index) {
                    before.extend(ahead.kind.is_virtual().then_some(ahead.kind));
                }
                let parent = token.parent();
                pieces.push(Piece {
                    kind,
                    text: token.text().to_owned(),
                    parent: parent.as_ref().map_or(File, |node| node.kind()),
                    starts_parent: parent
                        .is_some_and(|node| node.text_range().start() == token.text_range().start()),
                    line_breaks_before: line_breaks,
                    column,
                    layout: before,
                });
                (column, line_breaks) = (column + width, 0);
            }
        }
    }
    pieces.push(Piece {
        kind: EndOfFile,
        text: String::new(),
        parent: File,
        starts_parent: false,
        line_breaks_before: 1,
        column: 0,
        layout: layout.map(|ahead| ahead.kind).collect(),
    });
    pieces
}

/// An open block: where its lines stand in the result and in the source.
#[derive(Clone, Copy)]
struct Level {
    out: usize,
    original: usize,
}

struct Printer {
    levels: Vec<Level>,
    /// The constructs whose brackets are open.
    brackets: Vec<SyntaxKind>,
    /// The last line continues the one before it, so a block below must stand deeper to be told apart.
    is_continued: bool,
    lines: Vec<Line>,
    /// Where in the source the comment behind the last line stood.
    last_comment_column: Option<usize>,
    /// Something other than a comment was printed.
    has_code: bool,
}

impl Printer {
    fn piece(&mut self, before: &[Piece], piece: &Piece, after: &[Piece]) {
        let has_own_line = piece.line_breaks_before > 0 || before.is_empty();
        if piece.is_comment() {
            if has_own_line {
                self.comment_line(before.is_empty(), piece, after);
            } else if let Some(line) = self.lines.last_mut() {
                line.comment = Some(piece.text.clone());
                self.last_comment_column = Some(piece.column);
            }
            return;
        }
        let is_logical_start = self.apply_layout(piece) || !self.has_code;
        if piece.kind == EndOfFile {
            return;
        }
        let previous = before.iter().rev().find(|piece| !piece.is_comment());
        let starts_line = is_logical_start || has_own_line || self.must_break(previous, piece);
        if starts_line {
            let indent = if is_logical_start { self.base() } else { self.continuation(piece) };
            self.is_continued = !is_logical_start && !is_closing(piece.kind);
            self.start_line(indent, piece);
        }
        self.token(previous.filter(|_| !starts_line), piece);
        self.track_brackets(piece);
    }

    /// Opens and closes blocks; says whether a logical line starts.
    fn apply_layout(&mut self, piece: &Piece) -> bool {
        for kind in &piece.layout {
            match kind {
                Indent => {
                    let step = if self.is_continued { CONTINUATION_COLUMNS } else { LEVEL_COLUMNS };
                    self.levels.push(Level { out: self.base() + step, original: piece.column });
                }
                Dedent => {
                    self.levels.pop();
                }
                _ => {}
            }
        }
        piece.starts_logical_line()
    }

    fn base(&self) -> usize {
        self.levels.last().map_or(0, |level| level.out)
    }

    /// Says whether a line of the result starts here although none does in the source.
    fn must_break(&self, previous: Option<&Piece>, piece: &Piece) -> bool {
        let Some(previous) = previous else { return true };
        let opens_unit = previous.kind == LBrace && previous.parent == UnitDecl;
        let ends_item =
            previous.kind == Semi && matches!(previous.parent, UnitProperty | UnitField | UnitVar);
        let closes_unit = piece.kind == RBrace && piece.parent == UnitDecl;
        opens_unit || ends_item || closes_unit
    }

    /// Returns the indentation of a line that starts inside brackets or continues the one above.
    fn continuation(&self, piece: &Piece) -> usize {
        let depth = self.brackets.len() - usize::from(is_closing(piece.kind) && !self.brackets.is_empty());
        let base = self.base();
        if self.brackets.first() == Some(&UnitDecl) {
            return base
                + match depth {
                    0 => 0,
                    1 if piece.starts_item() => LEVEL_COLUMNS,
                    1 if piece.kind == Amp => 2 * LEVEL_COLUMNS,
                    _ => 2 * LEVEL_COLUMNS + CONTINUATION_COLUMNS + LEVEL_COLUMNS * (depth - 1),
                };
        }
        if !self.brackets.is_empty() {
            return base + LEVEL_COLUMNS * depth;
        }
        let is_step = matches!(piece.kind, FatArrow | Join | Dot | ElseKw) || piece.text == "ordering";
        base + if is_step { LEVEL_COLUMNS } else { CONTINUATION_COLUMNS }
    }

    fn start_line(&mut self, indent: usize, piece: &Piece) {
        self.lines.push(Line {
            indent,
            is_after_blank: piece.line_breaks_before > 1 && !self.lines.is_empty(),
            starts_item: piece.starts_item(),
            ..Line::default()
        });
        self.last_comment_column = None;
    }

    fn token(&mut self, previous: Option<&Piece>, piece: &Piece) {
        let line = self.lines.last_mut().expect("the first token starts a line");
        let is_field_colon = piece.kind == Colon && matches!(piece.parent, RecordField | UnitField | UnitVar);
        if is_field_colon && line.starts_item && line.colon.is_none() {
            line.colon = Some(line.code.len());
        } else if previous.is_some_and(|previous| spacing::has_space(previous, piece)) {
            line.code.push(' ');
        }
        line.code.push_str(&piece.text);
        self.has_code = true;
    }

    fn track_brackets(&mut self, piece: &Piece) {
        if matches!(piece.kind, LParen | LBrack | LBrace) {
            self.brackets.push(piece.parent);
        } else if is_closing(piece.kind) {
            self.brackets.pop();
        }
    }

    /// Prints a comment that has a line of its own.
    fn comment_line(&mut self, is_first: bool, piece: &Piece, after: &[Piece]) {
        let follows_comment = piece.line_breaks_before == 1 && self.last_comment_column == Some(piece.column);
        let next = after.iter().find(|piece| !piece.is_comment());
        let indent = match next {
            Some(next) if next.starts_logical_line() || !self.has_code => self.comment_level(piece, next),
            Some(next) if next.kind == RBrace && next.parent == UnitDecl => self.base() + LEVEL_COLUMNS,
            Some(next) if is_closing(next.kind) => self.base() + LEVEL_COLUMNS * self.brackets.len(),
            Some(next) => self.continuation(next),
            None => 0,
        };
        self.lines.push(Line {
            indent,
            is_after_blank: piece.line_breaks_before > 1 && !is_first,
            comment: Some(piece.text.clone()),
            follows_comment,
            ..Line::default()
        });
        if !follows_comment {
            self.last_comment_column = None;
        }
    }

    /// Returns the indentation of the block that a comment between two logical lines belongs to: the deepest one,
    /// of those open before it and behind it, that the comment stands inside of.
    fn comment_level(&self, comment: &Piece, next: &Piece) -> usize {
        let dedents = next.layout.iter().filter(|kind| **kind == Dedent).count();
        let mut candidates = self.levels[self.levels.len() - 1 - dedents..].to_vec();
        if next.layout.contains(&Indent) {
            let step = if self.is_continued { CONTINUATION_COLUMNS } else { LEVEL_COLUMNS };
            candidates.push(Level { out: self.base() + step, original: next.column });
        }
        let inside = candidates.iter().rev().find(|level| level.original <= comment.column);
        inside.or(candidates.first()).map_or(0, |level| level.out)
    }
}

fn is_closing(kind: SyntaxKind) -> bool {
    matches!(kind, RParen | RBrack | RBrace)
}
