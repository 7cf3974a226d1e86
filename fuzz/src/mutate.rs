//! Changes a program so that it stays nearly one: nodes for nodes of the same kind, names for names, lines moved.
//! Promises: the same input and seed give the same change; the result is never longer than asked.
//! A quarter of the changes is libFuzzer's own, so that no text is out of reach.

use flick_syntax::{SyntaxKind, SyntaxNode, SyntaxToken};

use crate::limits::{CHANGES_MAX, PROGRAM_BYTES_MAX};
use crate::random::Random;
use crate::seeds::{Piece, Seeds, column_of};

/// Numbers near which something is decided.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "7",
    "8",
    "63",
    "64",
    "65",
    "127",
    "128",
    "255",
    "256",
    "4095",
    "65535",
    "65536",
    "65537",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "0x7fffffffffffffff",
    "0xffff_ffff",
    "64KiB",
    "1MiB",
    "4GiB",
    "1ns",
    "50ms",
    "1s",
    "1h",
    "292h",
    "2562047h",
];
const OPERATORS: &[&str] =
    &["+", "-", "*", "/", "mod", "==", "!=", "<", "<=", ">", ">=", "and", "or", "else", "..", "with", "=>"];
const TYPES: &[&str] = &[
    "bool",
    "int",
    "int8",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "string",
    "string<8>",
    "bytes<64KiB>",
    "ipv4",
    "ipv6",
    "endpoint",
    "time",
    "duration",
    "option<int>",
    "option<string<4>>",
    "(int, bool)",
    "[int]<4>",
    "[(int, string<3>)]<2>",
    "dict<int, int>",
    "counter",
    "gauge",
    "vint",
];
const NAMES: &[&str] = &[
    "hash",
    "len",
    "starts_with",
    "contains",
    "min",
    "max",
    "abs",
    "find",
    "split",
    "lower",
    "upper",
    "trim",
    "same_text",
    "parse_int",
    "parse_hex",
    "str",
    "hex",
    "text",
    "raw",
    "now",
    "random",
    "log",
    "count",
    "set",
    "value",
    "alive",
    "load",
    "peer",
    "address",
    "port",
    "ketama",
    "rendezvous",
    "round_robin",
    "least_loaded",
    "two_choices",
    "remove",
    "nanos",
    "micros",
    "millis",
    "seconds",
    "unix",
    "ready",
    "all_ready",
    "none",
    "some",
    "ipv4",
    "ipv6",
    "endpoint",
    "self",
    "request",
    "true",
    "_",
];

/// Changes `data[..size]` in place and returns its new length; what libFuzzer's custom mutator is.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random::new(seed);
    let text = std::str::from_utf8(&data[..size]).ok().filter(|text| text.len() <= PROGRAM_BYTES_MAX);
    let (Some(text), true) = (text, random.below(4) > 0) else {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    };
    let mut text = text.to_owned();
    for _ in 0..=random.below(CHANGES_MAX) {
        text = change(&text, &mut random);
    }
    let mut end = text.len().min(max_size);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    data[..end].copy_from_slice(&text.as_bytes()[..end]);
    end
}

fn change(text: &str, random: &mut Random) -> String {
    let tree = flick_syntax::parse(text).syntax();
    match random.below(10) {
        0..=3 => splice(text, &tree, random),
        4 => remove_node(text, &tree, random),
        5 => repeat_node(text, &tree, random),
        6..=8 => replace_token(text, &tree, random),
        _ => move_line(text, random),
    }
}

fn nodes(tree: &SyntaxNode) -> Vec<SyntaxNode> {
    tree.descendants().skip(1).filter(|node| !node.text_range().is_empty()).collect()
}

/// Puts a node of the same kind, or another expression for an expression, in the place of a node.
fn splice(text: &str, tree: &SyntaxNode, random: &mut Random) -> String {
    let nodes = nodes(tree);
    let Some(target) = random.pick(&nodes) else { return text.to_owned() };
    let is_expr = |kind| (SyntaxKind::Literal..=SyntaxKind::UpdateExpr).contains(&kind);
    let own = random.below(3) == 0;
    let mut kind = target.kind();
    if is_expr(kind) && random.below(3) == 0 {
        let others: Vec<_> = nodes.iter().map(SyntaxNode::kind).filter(|kind| is_expr(*kind)).collect();
        kind = random.pick(&others).copied().unwrap_or(kind);
    }
    let range = std::ops::Range::<usize>::from(target.text_range());
    let column = column_of(text, range.start);
    let piece = if own {
        let same: Vec<_> = nodes.iter().filter(|node| node.kind() == kind).collect();
        random.pick(&same).map(|node| {
            let start = usize::from(node.text_range().start());
            indented(&Piece { text: node.text().to_string(), column: column_of(text, start) }, column)
        })
    } else {
        random.pick(Seeds::get().of(kind)).map(|piece| indented(piece, column))
    };
    let Some(piece) = piece else { return text.to_owned() };
    replaced(text, range, &piece)
}

fn remove_node(text: &str, tree: &SyntaxNode, random: &mut Random) -> String {
    match random.pick(&nodes(tree)) {
        Some(node) => replaced(text, node.text_range().into(), ""),
        None => text.to_owned(),
    }
}

/// Writes a node twice: behind a comma, or on a line of its own.
fn repeat_node(text: &str, tree: &SyntaxNode, random: &mut Random) -> String {
    let nodes = nodes(tree);
    let Some(node) = random.pick(&nodes) else { return text.to_owned() };
    let range = std::ops::Range::<usize>::from(node.text_range());
    let copy = node.text().to_string();
    let column = column_of(text, range.start);
    let starts_line = text[range.start - column..range.start].trim().is_empty();
    let between = if starts_line { format!("\n{}", " ".repeat(column)) } else { ", ".to_owned() };
    replaced(text, range.end..range.end, &(between + &copy))
}

fn replace_token(text: &str, tree: &SyntaxNode, random: &mut Random) -> String {
    let tokens: Vec<SyntaxToken> = tree
        .descendants_with_tokens()
        .filter_map(|element| element.into_token())
        .filter(|token| !token.kind().is_trivia())
        .collect();
    let Some(token) = random.pick(&tokens) else { return text.to_owned() };
    let parent = token.parent().map_or(SyntaxKind::File, |node| node.kind());
    let same: Vec<&str> =
        tokens.iter().filter(|other| other.kind() == token.kind()).map(SyntaxToken::text).collect();
    let table: &[&str] = match token.kind() {
        SyntaxKind::Number => NUMBERS,
        SyntaxKind::Ident if parent == SyntaxKind::NamedType => TYPES,
        SyntaxKind::Ident => NAMES,
        SyntaxKind::Str => {
            &["\"\"", "\"a\"", "\"\\xff\\0\"", "\"10.0.0.1\"", "\"::1\"", "\"10.0.0.1:80\"", "\"GET\""]
        }
        _ => OPERATORS,
    };
    // Names of the same program keep it a program more often than others do.
    let other = if random.below(3) > 0 { random.pick(&same) } else { random.pick(table) };
    replaced(text, token.text_range().into(), other.copied().unwrap_or_default())
}

/// Moves a line elsewhere, drops it, or changes its indentation.
fn move_line(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.is_empty() {
        return text.to_owned();
    }
    let index = random.below(lines.len());
    let line = lines.remove(index);
    match random.below(4) {
        0 => {}
        1 => lines.insert(random.below(lines.len() + 1), line),
        2 => {
            let deeper = format!("  {line}");
            return [lines[..index].concat(), deeper, lines[index..].concat()].concat();
        }
        _ => lines.insert(index, line.strip_prefix("  ").unwrap_or(line)),
    }
    lines.concat()
}

/// A piece as it stands at another column: its later lines move along.
fn indented(piece: &Piece, column: usize) -> String {
    let mut lines = piece.text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let spaces = (spaces + column).saturating_sub(piece.column);
        out.push('\n');
        out.push_str(&" ".repeat(spaces));
        out.push_str(line.trim_start_matches(' '));
    }
    out
}

fn replaced(text: &str, range: std::ops::Range<usize>, with: &str) -> String {
    [&text[..range.start], with, &text[range.end..]].concat()
}
