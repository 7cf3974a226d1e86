//! E01xx: the errors of the parser, under their codes.

use flick_syntax::ast::{self, AstNode};
use flick_syntax::{SyntaxError, SyntaxErrorKind};

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// Diagnostic of a parser error.
pub(crate) enum FromParser {
    /// The error itself.
    Error(Diagnostic),
    /// A construct that is not supported yet: parser errors after it are about its body.
    NotYet(Diagnostic),
}

/// Converts a parser error to a diagnostic. `text` and `tree` are the source it is about.
pub(crate) fn from_parser(file: u32, text: &str, tree: &ast::File, error: &SyntaxError) -> FromParser {
    let span = Span { file, range: error.range.start as u32..error.range.end as u32 };
    let before = text.get(..error.range.start).unwrap_or_default().trim_end_matches(' ');
    let word_start = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
    let word = &before[word_start..];
    let word_span = Span { file, range: word_start as u32..before.len() as u32 };
    if error.kind == SyntaxErrorKind::Expected && word == "switch" && error.title.contains("a grammar") {
        let help = "declare what follows as one `bytes` field";
        return FromParser::NotYet(super::unsupported::grammar(word_span, "a choice between fields", help));
    }
    let span =
        if is_missing(error) { behind_previous(file, text, tree, &span).unwrap_or(span) } else { span };
    FromParser::Error(Diagnostic::error(code(error.kind), span, error.title.clone()).help(error.help.clone()))
}

/// The location after the previous token, for an error that was found at the first token of a later line.
fn behind_previous(file: u32, text: &str, tree: &ast::File, span: &Span) -> Option<Span> {
    let line_start = text.get(..span.range.start as usize)?.rfind('\n')? + 1;
    let is_first = text.get(line_start..span.range.start as usize)?.trim().is_empty();
    let token = tree.syntax().token_at_offset(span.range.start.into()).right_biased().filter(|_| is_first)?;
    let mut before = token.prev_token()?;
    while before.kind().is_trivia() {
        before = before.prev_token()?;
    }
    let end = u32::from(before.text_range().end());
    Some(Span { file, range: end..end })
}

/// Whether the error says that something is missing, rather than that something is wrong.
fn is_missing(error: &SyntaxError) -> bool {
    let title = error.title.as_str();
    // The first token of the line may itself be the error.
    let is_arrow = title.ends_with("found `=>`") || title.ends_with("found `=`");
    let is_value = title.starts_with("expected an expression") && !is_arrow;
    is_value || title.starts_with("expected `") || title.starts_with("unclosed delimiter")
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
        // A kind without a code of its own is an unexpected token.
        _ => "E0120",
    }
}
