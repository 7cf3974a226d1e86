//! Words, numbers, strings and punctuation of the text form, each with its line.

use super::TextError;

/// One piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Letters, digits, `_` and `.`, not starting with a digit.
    Word(String),
    /// A decimal number, perhaps negative; 128 bits hold every signed and unsigned word.
    Number(i128),
    /// The text between quotes, without escapes.
    Text(Vec<u8>),
    /// A single character, or `->`.
    Mark(&'static str),
}

const MARKS: [&str; 12] = ["->", "{", "}", "(", ")", ":", ",", "=", "+", "@", "[", "]"];

/// Splits `text`; comments run from `;` to the end of the line.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, TextError> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with(';') {
            let (token, after) = token(rest).map_err(|message| TextError { line: index + 1, message })?;
            tokens.push((token, index + 1));
            rest = after.trim_start();
        }
    }
    Ok(tokens)
}

fn token(rest: &str) -> Result<(Token, &str), String> {
    if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
        return Ok((Token::Mark(mark), &rest[mark.len()..]));
    }
    let first = rest.chars().next().unwrap_or(' ');
    if first == '"' {
        return string(&rest[1..]);
    }
    let is_number = first == '-' || first.is_ascii_digit();
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || (!is_number && c == '.');
    let tail = &rest[first.len_utf8()..];
    let len = first.len_utf8() + tail.find(|c| !in_word(c)).unwrap_or(tail.len());
    let (word, after) = rest.split_at(len);
    if is_number {
        let number = word.parse().map_err(|_| format!("`{word}` is no number"))?;
        return Ok((Token::Number(number), after));
    }
    if !first.is_ascii_alphabetic() && first != '_' {
        return Err(format!("`{first}` means nothing here"));
    }
    Ok((Token::Word(word.to_owned()), after))
}

/// The rest of a string after its opening quote.
fn string(rest: &str) -> Result<(Token, &str), String> {
    let mut bytes = Vec::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Text(bytes), &rest[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => bytes.push(b'\n'),
                Some((_, quoted @ ('\\' | '"'))) => bytes.push(quoted as u8),
                Some((at, 'x')) => {
                    let digits = rest.get(at + 1..at + 3).ok_or("`\\x` wants two digits")?;
                    bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "`\\x` wants two digits")?);
                    chars.nth(1);
                }
                _ => return Err("a string knows only the escapes \\n \\\\ \\\" \\xNN".to_owned()),
            },
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err("a string ends on its line".to_owned())
}

/// Writes `bytes` between quotes so that [`tokens`] reads them back.
pub(super) fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\\' | b'"' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}
