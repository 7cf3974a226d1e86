//! E01xx: what the parser found, under its codes.

use flick_syntax::{SyntaxError, SyntaxErrorKind};

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// Gives a parser's error its code.
pub(crate) fn from_parser(file: u32, error: &SyntaxError) -> Diagnostic {
    let span = Span { file, range: error.range.start as u32..error.range.end as u32 };
    Diagnostic::error(code(error.kind), span, error.title.clone()).help(error.help.clone())
}

fn code(kind: SyntaxErrorKind) -> &'static str {
    use SyntaxErrorKind as K;
    match kind {
        K::SourceTooLarge => "E0101",
        K::UnexpectedCharacter => "E0102",
        K::UnterminatedString => "E0103",
        K::SingleQuotedString => "E0104",
        K::BadEscape => "E0105",
        K::NumberTooLarge | K::BadNumber => "E0106",
        K::FractionalNumber => "E0107",
        K::ForeignComment => "E0108",
        K::TabIndentation => "E0110",
        K::InconsistentIndentation => "E0111",
        K::UnexpectedIndentation => "E0112",
        K::MissingBlock => "E0113",
        K::BraceBlock => "E0114",
        K::MissingSemicolon => "E0121",
        K::StraySemicolon => "E0122",
        K::MissingClosing => "E0123",
        K::ReservedWord => "E0124",
        K::ForeignKeyword => "E0125",
        K::ForeignOperator => "E0126",
        K::EqualsConfusion => "E0127",
        K::ArrowConfusion => "E0128",
        K::Reassignment => "E0129",
        K::ChannelForm => "E0130",
        K::StrayElse => "E0131",
        K::NestingTooDeep => "E0132",
        // The kinds may grow; what has no code of its own yet is something found in the place of something else.
        _ => "E0120",
    }
}
