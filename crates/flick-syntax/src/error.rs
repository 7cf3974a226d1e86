//! Syntax errors: kind, range in the source, title and help.
//! Promises: every error has a range in the source, says what is wrong, and what to write instead.
//! Not here: error codes and rendering, which belong to the checker's diagnostics.

use std::ops::Range;

use crate::limits::ERRORS_MAX;

/// Kind of a syntax error, as a stable name. The checker gives each an error code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SyntaxErrorKind {
    /// The source is longer than `SOURCE_BYTES_MAX`; its tree is empty.
    SourceTooLarge,
    /// A character that starts no token.
    UnexpectedCharacter,
    /// A string without its closing quote.
    UnterminatedString,
    /// A string in single quotes.
    SingleQuotedString,
    /// A `\` escape that does not exist.
    BadEscape,
    /// A number that does not fit 64 bits.
    NumberTooLarge,
    /// A number with letters that are no unit, or with no digits.
    BadNumber,
    /// A number with a decimal point.
    FractionalNumber,
    /// A comment of another language.
    ForeignComment,
    /// A tab in the indentation of a line.
    TabIndentation,
    /// A line that stands at no column of the blocks around it.
    InconsistentIndentation,
    /// A line deeper than the one above although nothing opened a block.
    UnexpectedIndentation,
    /// A heading without its indented lines.
    MissingBlock,
    /// A block written with braces.
    BraceBlock,
    /// Some other thing stands where the grammar wants a certain one.
    Expected,
    /// An item of a grammar without its `;`.
    MissingSemicolon,
    /// A `;` where none is written.
    StraySemicolon,
    /// A bracket that is never closed.
    MissingClosing,
    /// A reserved word used as a name.
    ReservedWord,
    /// A keyword of another language.
    ForeignKeyword,
    /// An operator of another language.
    ForeignOperator,
    /// `=` for `==` or the reverse.
    EqualsConfusion,
    /// `->` for `=>` or the reverse.
    ArrowConfusion,
    /// An attempt to change a name.
    Reassignment,
    /// A channel without directions, or with its type behind its name.
    ChannelForm,
    /// An `else` that belongs to no `if`.
    StrayElse,
    /// Nesting deeper than `NESTING_DEPTH_MAX`.
    NestingTooDeep,
}

/// One syntax error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// Kind of the error.
    pub kind: SyntaxErrorKind,
    /// Range of the error, in bytes of the source; an empty range is a position between two characters.
    pub range: Range<usize>,
    /// Description of the error, in one sentence without a full stop.
    pub title: String,
    /// Correction: the form to write instead.
    pub help: String,
}

/// The errors found so far; keeps the first `ERRORS_MAX`.
#[derive(Default)]
pub(crate) struct ErrorSink {
    errors: Vec<SyntaxError>,
}

impl ErrorSink {
    pub(crate) fn push(
        &mut self,
        kind: SyntaxErrorKind,
        range: Range<usize>,
        title: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(SyntaxError { kind, range, title: title.into(), help: help.into() });
        }
    }

    /// Returns the errors of all phases in the order of the source.
    pub(crate) fn into_sorted(mut self, other: ErrorSink) -> Vec<SyntaxError> {
        self.errors.extend(other.errors);
        self.errors.sort_by_key(|error| (error.range.start, error.range.end));
        // The parser skips what is nested too deep, so a bracket that it reports there may be closed.
        let deep = self.errors.iter().position(|error| error.kind == SyntaxErrorKind::NestingTooDeep);
        if let Some(deep) = deep {
            let mut index = 0;
            self.errors.retain(|error| {
                index += 1;
                index <= deep + 1 || error.kind != SyntaxErrorKind::MissingClosing
            });
        }
        self.errors.truncate(ERRORS_MAX);
        self.errors
    }
}
