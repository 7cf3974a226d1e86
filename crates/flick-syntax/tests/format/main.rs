//! The formatter: golden programs, and for any program the promises of `format`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod generated;
mod programs;
mod whole;

use std::fmt::Write as _;

use flick_syntax::{SyntaxElement, SyntaxNode, format, parse};

/// Prints the tree without white space and without the places of comments.
fn shape(node: &SyntaxNode, out: &mut String) {
    write!(out, "({:?}", node.kind()).unwrap();
    for child in node.children_with_tokens() {
        match child {
            SyntaxElement::Node(node) => shape(&node, out),
            SyntaxElement::Token(token) if token.kind().is_trivia() => {}
            SyntaxElement::Token(token) => write!(out, " {}", token.text()).unwrap(),
        }
    }
    out.push(')');
}

fn comments(node: &SyntaxNode) -> Vec<String> {
    let tokens = node.descendants_with_tokens().filter_map(|element| element.into_token());
    let comments = tokens.filter(|token| token.text().starts_with('#'));
    comments.map(|token| token.text().trim_end().to_owned()).collect()
}

/// Formats `source` and checks what `format` promises for every program.
fn check_promises(source: &str) -> String {
    let before = parse(source);
    let formatted = format(&before);
    let after = parse(&formatted);
    if !before.errors().is_empty() {
        assert_eq!(formatted, source, "a source with errors was touched");
        return formatted;
    }
    assert_eq!(after.errors(), [], "{source}\n--- became ---\n{formatted}");
    let (mut shape_before, mut shape_after) = (String::new(), String::new());
    shape(&before.syntax(), &mut shape_before);
    shape(&after.syntax(), &mut shape_after);
    assert_eq!(shape_before, shape_after, "{source}\n--- became ---\n{formatted}");
    assert_eq!(
        comments(&before.syntax()),
        comments(&after.syntax()),
        "{source}\n--- became ---\n{formatted}"
    );
    assert_eq!(format(&after), formatted, "not a fixpoint: {source}");
    formatted
}

fn check(source: &str, expected: &str) {
    assert_eq!(check_promises(source), expected);
}
