//! The formatter: one layout for every program, with the author's line breaks and comments kept.
//! Promises: the result has the tokens, the comments and the tree of the source; formatting it again changes nothing.
//! Refuses: to touch a source with errors, whose structure it could only guess. Two spaces to a level, one between
//! tokens; the items of a grammar on lines of their own; the colons or equals signs of neighbouring items and the
//! comments behind neighbouring lines aligned; at most one empty line in a row.

mod align;
mod blocks;
mod spacing;

use crate::Parse;
use crate::error::ErrorSink;
use crate::layout::layout;
use crate::lexer::lex;
use crate::syntax_kind::SyntaxKind::{self, *};
use align::Line;

const LEVEL_COLUMNS: usize = 2;
/// Indentation of a line that continues the one above, relative to that.
const CONTINUATION_COLUMNS: usize = 4;

/// Formats a parsed source; one with errors is returned unchanged.
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
        item: File,
        is_continued: false,
        lines: Vec::new(),
        last_comment_column: None,
        has_code: false,
    };
    let mut previous = None;
    let mut next = 0;
    for (index, piece) in pieces.iter().enumerate() {
        if piece.is_comment() {
            next = next.max(index + 1);
            while pieces[next].is_comment() {
                next += 1; // stops at the `EndOfFile` at the latest
            }
            printer.comment(piece, &pieces[next]);
        } else {
            printer.token(previous, piece);
            previous = Some(piece);
        }
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
    /// Kind of the item that starts with this token.
    item: Option<SyntaxKind>,
    /// Says whether it belongs to braces of a grammar whose items stand on lines of their own.
    is_spread: bool,
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
        self.item.is_some()
    }

    /// Says whether neighbouring items are aligned at this token.
    fn is_marker(&self) -> bool {
        match self.kind {
            Colon => is_aligned_colon(self),
            Eq => matches!(self.parent, UnitProperty | EnumVariant),
            _ => false,
        }
    }
}

/// Lists the tokens and comments of the source, and behind them the end of the file.
fn collect(parse: &Parse, source: &str) -> Vec<Piece> {
    let raw = lex(source, &mut ErrorSink::default());
    let mut layout = layout(source, &raw, &mut ErrorSink::default()).into_iter().peekable();
    let mut pieces: Vec<Piece> = Vec::new();
    let spread = blocks::Spread::of(&parse.syntax());
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
                let item = parent.as_ref().and_then(|node| blocks::item_at(node, &token));
                let owner = item.as_ref().and_then(|item| item.parent()).or_else(|| parent.clone());
                pieces.push(Piece {
                    kind,
                    text: token.text().to_owned(),
                    parent: parent.as_ref().map_or(File, |node| node.kind()),
                    starts_parent: parent
                        .is_some_and(|node| node.text_range().start() == token.text_range().start()),
                    item: item.map(|item| item.kind()),
                    is_spread: owner.is_some_and(|node| spread.contains(&node)),
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
        item: None,
        is_spread: false,
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

/// An open bracket: what it belongs to, and the indentation of the line it stands on.
struct Bracket {
    construct: SyntaxKind,
    line_indent: usize,
}

struct Printer {
    levels: Vec<Level>,
    brackets: Vec<Bracket>,
    /// The kind of the item that was begun last.
    item: SyntaxKind,
    /// The last line continues the one before it, so a block below is indented more than it.
    is_continued: bool,
    lines: Vec<Line>,
    /// Column in the source of the comment behind the last line.
    last_comment_column: Option<usize>,
    /// Something other than a comment was printed.
    has_code: bool,
}

impl Printer {
    fn token(&mut self, previous: Option<&Piece>, piece: &Piece) {
        let is_logical_start = self.apply_layout(piece) || previous.is_none();
        if piece.kind == EndOfFile {
            return;
        }
        let starts_line = is_logical_start
            || piece.line_breaks_before > 0
                && !previous.is_some_and(|previous| is_empty_block(previous, piece))
            || previous.is_some_and(|previous| must_break(previous, piece));
        if starts_line {
            let indent = if is_logical_start { self.base() } else { self.continuation(piece) };
            self.is_continued = !is_logical_start && !is_closing(piece.kind);
            self.start_line(indent, piece);
        }
        self.append(previous.filter(|_| !starts_line), piece);
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

    /// Returns the indentation of a line that starts inside brackets or continues the one above.
    fn continuation(&self, piece: &Piece) -> usize {
        let Some(open) = self.brackets.last() else {
            let is_step = matches!(piece.kind, FatArrow | Join | Dot | ElseKw)
                || matches!(piece.text.as_str(), "ordering" | "timeout")
                || matches!(piece.parent, MaxProp | ExpireProp | EvictProp | SnapshotProp)
                    && piece.starts_parent;
            return self.base() + if is_step { LEVEL_COLUMNS } else { CONTINUATION_COLUMNS };
        };
        open.line_indent
            + match open.construct {
                _ if is_closing(piece.kind) => 0,
                kind if !blocks::holds_items(kind) => LEVEL_COLUMNS,
                _ if piece.starts_item() => LEVEL_COLUMNS,
                _ if piece.kind == Amp || self.item == UnitProperty => 2 * LEVEL_COLUMNS,
                _ => 2 * LEVEL_COLUMNS + CONTINUATION_COLUMNS,
            }
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

    /// Adds a token to the last line; `previous` is the one before it on that line.
    fn append(&mut self, previous: Option<&Piece>, piece: &Piece) {
        let line = self.lines.last_mut().expect("the first token starts a line");
        if previous.is_some() && piece.starts_item() && piece.item != Some(UnitLiteral) {
            line.forget_marker(); // several items on a line: nothing to align
        }
        if line.starts_item && line.marker.is_none() && piece.is_marker() {
            line.marker = Some((piece.kind, line.code.len()));
        } else if previous.is_some_and(|previous| spacing::has_space(previous, piece)) {
            line.code.push(' ');
        }
        line.code.push_str(&piece.text);
        self.has_code = true;
    }

    fn track_brackets(&mut self, piece: &Piece) {
        if piece.starts_item() {
            self.item = piece.item.unwrap_or(File);
        }
        if matches!(piece.kind, LParen | LBrack | LBrace) {
            let line_indent = self.lines.last().map_or(0, |line| line.indent);
            self.brackets.push(Bracket { construct: piece.parent, line_indent });
        } else if is_closing(piece.kind) {
            self.brackets.pop();
        }
    }

    /// Prints a comment, behind the last line or on a line of its own; `next` is the token behind it.
    fn comment(&mut self, piece: &Piece, next: &Piece) {
        let is_first = self.lines.is_empty();
        // A lone carriage return ends a comment and no line: another comment may follow it there.
        if piece.line_breaks_before == 0
            && let Some(line) = self.lines.last_mut().filter(|line| line.comment.is_none())
        {
            line.comment = Some(piece.text.clone());
            self.last_comment_column = Some(piece.column);
            return;
        }
        let follows_comment = piece.line_breaks_before == 1 && self.last_comment_column == Some(piece.column);
        let indent = if next.starts_logical_line() || !self.has_code {
            self.comment_level(piece, next)
        } else if is_closing(next.kind) {
            self.continuation(next) + LEVEL_COLUMNS
        } else {
            self.continuation(next)
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

/// Says whether a line of the result starts at `piece` although none may in the source.
fn must_break(previous: &Piece, piece: &Piece) -> bool {
    let opens = previous.kind == LBrace && previous.is_spread;
    let closes = piece.kind == RBrace && piece.is_spread;
    // A literal stays beside what it ends or begins: `size : hex<8>; "\r\n";`
    let is_beside_literal = previous.parent == UnitLiteral || piece.item == Some(UnitLiteral);
    let starts_item = piece.is_spread && piece.starts_item() && !is_beside_literal;
    opens || closes || starts_item
}

/// Says whether these are the braces of a case without items.
fn is_empty_block(previous: &Piece, piece: &Piece) -> bool {
    previous.kind == LBrace && piece.kind == RBrace && !piece.is_spread && blocks::holds_items(piece.parent)
}

/// Says whether this is the `:` between a name and its type.
fn is_aligned_colon(piece: &Piece) -> bool {
    matches!(piece.parent, RecordField | UnitField | UnitVar | BitField | VariantCase)
}

fn is_closing(kind: SyntaxKind) -> bool {
    matches!(kind, RParen | RBrack | RBrace)
}
