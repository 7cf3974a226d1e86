//! Text to HTML.
//! Promises: what came from the author never becomes markup.

use flick_syntax::ast::AstNode;
use flick_syntax::{FlickLanguage, SyntaxKind, SyntaxNode};

use crate::limits::{LABEL_BYTES_MAX, LABEL_WORDS_MAX};

/// Escapes `text` for an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes `text` as a piece of the program.
pub(crate) fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// Returns the text of a node on one line, without comments.
pub(crate) fn one_line(node: &impl AstNode<Language = FlickLanguage>) -> String {
    let mut out = String::new();
    let mut gap = false;
    for token in node.syntax().descendants_with_tokens().filter_map(|element| element.into_token()) {
        if token.kind().is_trivia() {
            gap = true;
            continue;
        }
        if std::mem::take(&mut gap) && !out.is_empty() {
            out.push(' ');
        }
        out.push_str(token.text());
    }
    out
}

/// Returns a node on one line, escaped, as a piece of the program.
pub(crate) fn code_of(node: &impl AstNode<Language = FlickLanguage>) -> String {
    code(&one_line(node))
}

/// Returns a node as a piece of the program, escaped: on one line if its author wrote it so, else in their lines with
/// the indentation that they have beyond the least.
pub(crate) fn code_in_lines(node: &impl AstNode<Language = FlickLanguage>) -> String {
    let mut lines = vec![(0, String::new())];
    let mut gap = String::new();
    for token in node.syntax().descendants_with_tokens().filter_map(|element| element.into_token()) {
        if token.kind() == SyntaxKind::Comment {
            continue;
        }
        if token.kind().is_trivia() {
            gap.push_str(token.text());
            continue;
        }
        let (_, line) = lines.last().expect("there is a first line");
        match gap.rsplit_once('\n') {
            Some((_, indent)) if !line.is_empty() => lines.push((indent.len(), String::new())),
            _ if gap.is_empty() || line.is_empty() => {}
            _ => lines.last_mut().expect("there is a first line").1.push(' '),
        }
        gap.clear();
        lines.last_mut().expect("there is a first line").1.push_str(token.text());
    }
    if lines.len() == 1 {
        return code(&lines[0].1);
    }
    let least = lines[1..].iter().map(|(indent, _)| *indent).min().unwrap_or(0);
    let indented = lines
        .iter()
        .map(|(indent, line)| format!("{:width$}{}", "", escape(line), width = indent.saturating_sub(least)));
    format!("<code class=\"lines\">{}</code>", indented.collect::<Vec<_>>().join("\n"))
}

/// Turns prose of the author into paragraphs: `` `code` `` is code, an empty line or a label such as `Promises:`
/// begins a paragraph.
pub(crate) fn prose(lines: &[String]) -> String {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut begins = true;
    for line in lines {
        let line = line.trim();
        if line.is_empty() {
            begins = true;
            continue;
        }
        match paragraphs.last_mut() {
            Some(last) if !begins && !begins_with_label(last, line) => {
                last.push(' ');
                last.push_str(line);
            }
            _ => paragraphs.push(line.to_owned()),
        }
        begins = false;
    }
    let texts = paragraphs.iter().enumerate();
    texts.map(|(index, text)| format!("<p>{}</p>\n", paragraph(text, index == 0))).collect()
}

/// Says whether `line` begins a paragraph of its own behind `last`.
fn begins_with_label(last: &str, line: &str) -> bool {
    label_of(line).is_some_and(|label| !label.contains(' ') || last.ends_with('.'))
}

/// Returns prose without paragraphs, for a cell of a table.
pub(crate) fn sentence(lines: &[String]) -> String {
    inline(&lines.join(" "))
}

/// Returns the label that a line begins with: a few words before a colon, as in `Promises:`.
fn label_of(text: &str) -> Option<&str> {
    let (label, _) = text.split_once(": ")?;
    let begins = label.starts_with(|c: char| c.is_ascii_uppercase());
    let is_short = label.len() <= LABEL_BYTES_MAX && label.split(' ').count() <= LABEL_WORDS_MAX;
    let has_words = label.chars().skip(1).all(|c| c.is_ascii_lowercase() || c == ' ');
    (begins && is_short && has_words).then_some(label)
}

/// Marks the label of a paragraph; the first one has a label only of one word, or it is a sentence about the whole.
fn paragraph(text: &str, is_first: bool) -> String {
    match label_of(text).filter(|label| !is_first || !label.contains(' ')) {
        Some(label) => format!("<b>{label}:</b>{}", inline(&text[label.len() + 1..])),
        None => inline(text),
    }
}

/// Escapes prose and turns what stands between back quotes into code.
fn inline(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape(text); // a back quote without its partner is one
    }
    let pieces = parts.iter().enumerate();
    pieces.map(|(index, part)| if index % 2 == 1 { code(part) } else { escape(part) }).collect()
}

/// Returns the source with its comments, strings and words marked.
pub(crate) fn source(root: &SyntaxNode) -> String {
    let mut out = String::new();
    for token in root.descendants_with_tokens().filter_map(|element| element.into_token()) {
        let class = match token.kind() {
            SyntaxKind::Comment => "c",
            SyntaxKind::Str => "s",
            kind if kind.is_keyword() => "k",
            _ => "",
        };
        let text = escape(token.text());
        if class.is_empty() {
            out.push_str(&text);
        } else {
            out.push_str(&format!("<i class=\"{class}\">{text}</i>"));
        }
    }
    out
}
