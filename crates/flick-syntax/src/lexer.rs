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
    if matches!(kind, SyntaxKind::Str | SyntaxKind::Comment) {
        report_directions(range.start, text, errors);
    }
    match kind {
        SyntaxKind::Unknown => {
            let (title, help) = describe_character(text.chars().next().unwrap_or('?'));
            errors.push(SyntaxErrorKind::UnexpectedCharacter, range, title, help);
        }
        SyntaxKind::OpenStr => errors.push(
            SyntaxErrorKind::UnterminatedString,
            range,
            "unterminated string literal",
            "add a closing `\"`; write a line break as `\\n`",
        ),
        SyntaxKind::SingleQuoted => errors.push(
            SyntaxErrorKind::SingleQuotedString,
            range,
            "string literal in single quotes",
            format!("write it in double quotes: \"{}\"", text.trim_matches('\'')),
        ),
        SyntaxKind::FractionalNumber => errors.push(
            SyntaxErrorKind::FractionalNumber,
            range,
            "floating-point literals are not supported",
            "use a smaller unit (`1500ms` for 1.5 s, `1536KiB` for 1.5 MiB) or multiply before you divide",
        ),
        SyntaxKind::ForeignComment => errors.push(
            SyntaxErrorKind::ForeignComment,
            range.start..range.start + 2,
            "expected a comment to start with `#`, found `//`",
            "write `#`; division is a single `/`",
        ),
        SyntaxKind::Number => report_number(range, text, errors),
        SyntaxKind::Str => {
            for fault in unescape(text).1 {
                let escape = &text[fault.clone()];
                errors.push(
                    SyntaxErrorKind::BadEscape,
                    range.start + fault.start..range.start + fault.end,
                    format!("unknown character escape: `{escape}`"),
                    "the escapes are \\r \\n \\t \\0 \\\\ \\\" and \\xNN with two hexadecimal digits",
                );
            }
        }
        _ => {}
    }
}

/// Characters that change the direction of text let a line look other than it is: that of Trojan Source.
fn report_directions(start: usize, text: &str, errors: &mut ErrorSink) {
    let is_direction = |c: &char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    for (at, c) in text.char_indices().filter(|(_, c)| is_direction(c)) {
        errors.push(
            SyntaxErrorKind::UnexpectedCharacter,
            start + at..start + at + c.len_utf8(),
            format!("character that changes the direction of text: U+{:04X}", c as u32),
            "remove it: the line looks other than it is; in a string, write its bytes as `\\xNN`",
        );
    }
}

fn report_number(range: Range<usize>, text: &str, errors: &mut ErrorSink) {
    match parse_number(text) {
        Ok(_) => {}
        Err(NumberFault::TooLarge) => errors.push(
            SyntaxErrorKind::NumberTooLarge,
            range,
            "integer literal is too large",
            "the largest number is 18446744073709551615 (0xffff_ffff_ffff_ffff); durations count nanoseconds",
        ),
        Err(NumberFault::NoDigits) => errors.push(
            SyntaxErrorKind::BadNumber,
            range,
            "integer literal has no digits",
            "write `0x1f` for hexadecimal, `31` for decimal",
        ),
        Err(NumberFault::UnknownUnit { unit_start }) => errors.push(
            SyntaxErrorKind::BadNumber,
            range.start + unit_start..range.end,
            format!("invalid suffix `{}` for a number literal", &text[unit_start..]),
            "the suffixes are B, KiB, MiB and GiB for sizes, ns, us, ms, s, min and h for durations; a name cannot start with a digit",
        ),
    }
}

fn describe_character(c: char) -> (String, &'static str) {
    let help = match c {
        '“' | '”' | '„' | '`' | '‘' | '’' => "write strings in plain double quotes: \"text\"",
        '–' | '—' | '−' => "write the plain minus sign `-`",
        '→' | '⇒' => "send a message with `=>`",
        '\u{a0}' => "this is a no-break space; write a plain space",
        '?' => "write `if condition: a else: b` to choose between two values",
        '^' | '~' => "flick has no bitwise operators; declare bits as fields of a grammar",
        '@' | '\\' => "remove it; long lines continue inside brackets or with a leading operator",
        '$' => "write `$$` for the value that is parsed or written",
        _ => "remove it; only strings and comments may contain characters outside ASCII",
    };
    let shown = if c.is_control() { format!("U+{:04X}", c as u32) } else { format!("`{c}`") };
    (format!("unknown start of token: {shown}"), help)
}
