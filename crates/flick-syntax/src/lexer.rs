//! Text to tokens, and the mistakes that a single token shows.
//! Promises: the tokens cover the source without gaps; every fault of a token is reported once, here.
//! Not here: indentation (`layout.rs`), anything about two tokens (`parser.rs`).

use std::ops::Range;

use logos::Logos;

use crate::error::{ErrorSink, SyntaxErrorKind};
use crate::literal::{NumberFault, parse_number, unescape};
use crate::syntax_kind::SyntaxKind;

/// One token of the source: its kind and where it ends and starts, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LexToken {
    pub(crate) kind: SyntaxKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl LexToken {
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Splits `source` into tokens.
///
/// Shape: `source.len() <= SOURCE_BYTES_MAX`; the tokens' ranges follow each other from 0 to `source.len()`.
pub(crate) fn lex(source: &str, errors: &mut ErrorSink) -> Vec<LexToken> {
    let mut tokens: Vec<LexToken> = Vec::with_capacity(source.len() / 3);
    let mut lexer = SyntaxKind::lexer(source);
    while let Some(result) = lexer.next() {
        let range = lexer.span();
        let kind = result.unwrap_or(SyntaxKind::Unknown);
        let (start, end) = (range.start as u32, range.end as u32);
        if kind == SyntaxKind::Unknown
            && let Some(last) = tokens.last_mut()
            && last.kind == SyntaxKind::Unknown
        {
            last.end = end;
            continue;
        }
        if kind == SyntaxKind::FractionalNumber
            && tokens.last().is_some_and(|last| last.kind == SyntaxKind::Dot)
        {
            split_positions(source, range, &mut tokens, errors);
            continue;
        }
        report_fault(kind, range.clone(), &source[range], errors);
        tokens.push(LexToken { kind, start, end });
    }
    tokens
}

/// Takes the `0.1` of `pair.0.1` for what it is behind a dot: two positions.
fn split_positions(source: &str, range: Range<usize>, tokens: &mut Vec<LexToken>, errors: &mut ErrorSink) {
    let (start, end) = (range.start as u32, range.end as u32);
    let dot = start + source[range].find('.').expect("a number with a decimal point has one") as u32;
    for (kind, start, end) in [
        (SyntaxKind::Number, start, dot),
        (SyntaxKind::Dot, dot, dot + 1),
        (SyntaxKind::Number, dot + 1, end),
    ] {
        let token = LexToken { kind, start, end };
        report_fault(kind, token.range(), &source[token.range()], errors);
        tokens.push(token);
    }
}

fn report_fault(kind: SyntaxKind, range: Range<usize>, text: &str, errors: &mut ErrorSink) {
    match kind {
        SyntaxKind::Unknown => {
            let (title, help) = describe_character(text.chars().next().unwrap_or('?'));
            errors.push(SyntaxErrorKind::UnexpectedCharacter, range, title, help);
        }
        SyntaxKind::OpenStr => errors.push(
            SyntaxErrorKind::UnterminatedString,
            range,
            "this string has no closing quote on its line",
            "close it with `\"`; a line break inside a string is written `\\n`",
        ),
        SyntaxKind::SingleQuoted => errors.push(
            SyntaxErrorKind::SingleQuotedString,
            range,
            "strings are not written in single quotes",
            format!("write it in double quotes: \"{}\"", text.trim_matches('\'')),
        ),
        SyntaxKind::FractionalNumber => errors.push(
            SyntaxErrorKind::FractionalNumber,
            range,
            "flick has no numbers with a decimal point",
            "use a smaller unit (`1500ms` for 1.5 s, `1536KiB` for 1.5 MiB) or multiply before you divide",
        ),
        SyntaxKind::ForeignComment => errors.push(
            SyntaxErrorKind::ForeignComment,
            range.start..range.start + 2,
            "`//` does not start a comment",
            "a comment starts with `#`; division is a single `/`",
        ),
        SyntaxKind::Number => report_number(range, text, errors),
        SyntaxKind::Str => {
            for fault in unescape(text).1 {
                let escape = &text[fault.clone()];
                errors.push(
                    SyntaxErrorKind::BadEscape,
                    range.start + fault.start..range.start + fault.end,
                    format!("`{escape}` is not an escape"),
                    "the escapes are \\r \\n \\t \\0 \\\\ \\\" and \\xNN with two hexadecimal digits",
                );
            }
        }
        _ => {}
    }
}

fn report_number(range: Range<usize>, text: &str, errors: &mut ErrorSink) {
    match parse_number(text) {
        Ok(_) => {}
        Err(NumberFault::TooLarge) => errors.push(
            SyntaxErrorKind::NumberTooLarge,
            range,
            "this number does not fit 64 bits",
            "the largest number is 18446744073709551615 (0xffff_ffff_ffff_ffff); durations count nanoseconds",
        ),
        Err(NumberFault::NoDigits) => errors.push(
            SyntaxErrorKind::BadNumber,
            range,
            "this number has no digits",
            "hexadecimal is written `0x1f`, decimal `31`",
        ),
        Err(NumberFault::UnknownUnit { unit_start }) => errors.push(
            SyntaxErrorKind::BadNumber,
            range.start + unit_start..range.end,
            format!("`{}` is not a unit", &text[unit_start..]),
            "sizes end in B, KiB, MiB or GiB, durations in ns, us, ms, s, min or h; a name never starts with a digit",
        ),
    }
}

fn describe_character(c: char) -> (String, &'static str) {
    let help = match c {
        '“' | '”' | '„' | '`' | '‘' | '’' => "strings are written in plain double quotes: \"text\"",
        '–' | '—' | '−' => "write the plain minus sign `-`",
        '→' | '⇒' => "a message is passed on with `=>`",
        '\u{a0}' => "this is a no-break space; write a plain space",
        '?' => "a choice between two values is written `if condition: a else: b`",
        '^' | '~' => "flick has no bit operators; a grammar describes bits as fields",
        '@' | '\\' => "remove it; long lines continue inside brackets or with a leading operator",
        '$' => "the value being parsed or written is `$$`",
        _ => "remove it; outside strings and comments flick is written in ASCII",
    };
    let shown = if c.is_control() { format!("U+{:04X}", c as u32) } else { format!("`{c}`") };
    (format!("{shown} has no meaning here"), help)
}
