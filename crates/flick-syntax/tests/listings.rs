//! The paper's listings, verbatim, and a program of all other constructs: no errors, and the tree they give.
//! `UPDATE=1 cargo test` rewrites the trees.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::path::Path;

use flick_syntax::{SyntaxElement, SyntaxNode, parse};

/// Prints nodes and tokens, one to a line, without white space.
fn dump(node: &SyntaxNode, depth: usize, out: &mut String) {
    writeln!(out, "{:1$}{2:?}", "", depth * 2, node.kind()).unwrap();
    for child in node.children_with_tokens() {
        match child {
            SyntaxElement::Node(node) => dump(&node, depth + 1, out),
            SyntaxElement::Token(token) if token.text().trim().is_empty() => {}
            SyntaxElement::Token(token) => {
                writeln!(out, "{:1$}{2:?} {3}", "", depth * 2 + 2, token.kind(), token.text()).unwrap();
            }
        }
    }
}

fn check(listing: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let source = std::fs::read_to_string(data.join(format!("{listing}.flick"))).unwrap();
    let parse = parse(&source);
    assert_eq!(parse.errors(), [], "{listing}");
    assert_eq!(parse.syntax().text().to_string(), source, "{listing} is not lossless");
    let mut tree = String::new();
    dump(&parse.syntax(), 0, &mut tree);
    let golden = data.join(format!("{listing}.tree"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&golden, &tree).unwrap();
    }
    assert_eq!(
        tree,
        std::fs::read_to_string(&golden).unwrap(),
        "{listing}: run with UPDATE=1 and review the difference"
    );
}

#[test]
fn rest_of_the_slice() {
    check("slice");
}

#[test]
fn listing_1_memcached_proxy() {
    check("listing1");
}

#[test]
fn listing_2_memcached_grammar() {
    check("listing2");
}

#[test]
fn listing_3_hadoop_aggregator() {
    check("listing3");
}

#[test]
fn listing_3_with_the_columns_of_the_paper() {
    check("listing3_printed");
}

#[test]
fn whole_grammars() {
    check("grammar");
}

#[test]
fn whole_language() {
    check("whole");
}
