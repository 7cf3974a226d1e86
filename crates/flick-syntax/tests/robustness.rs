//! Any input: no panic, no loop, no overflow of the stack, and the tree is the source.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use flick_syntax::limits::{ERRORS_MAX, NESTING_DEPTH_MAX, SOURCE_BYTES_MAX};
use flick_syntax::{SyntaxErrorKind, SyntaxNode, parse};
use proptest::prelude::*;

const LISTINGS: [&str; 5] = [
    include_str!("data/grammar.flick"),
    include_str!("data/whole.flick"),
    include_str!("data/listing1.flick"),
    include_str!("data/listing2.flick"),
    include_str!("data/listing3.flick"),
];

/// Nodes that one level of nesting may add: a block, its heading's node and branch, and an error node.
const NODES_PER_LEVEL_MAX: usize = 6;

/// Nodes and tokens that a byte of source may become: `x` alone is a statement, a value, a name and its token.
const NODES_PER_BYTE_MAX: usize = 6;

/// Pieces that programs are made of, and some that they should not be made of.
const PIECES: &[&str] = &[
    "use",
    "type",
    "proc",
    "fun",
    "let",
    "if",
    "else",
    "switch",
    "for",
    "fold",
    "foldt",
    "local",
    "global",
    "and",
    "or",
    "not",
    "mod",
    "with",
    "true",
    "self",
    "record",
    "unit",
    "enum",
    "var",
    "on",
    "ordering",
    "by",
    "as",
    "in",
    "in {",
    "class {",
    "bits<8> {",
    "check",
    "switch x {",
    "1: {",
    "&until",
    "};",
    "is",
    "f\"s\"",
    "..",
    "map",
    "map x {",
    "while",
    "return",
    "elif",
    "def",
    "x",
    "cmd",
    "1",
    "0x1f",
    "64KiB",
    "1.5",
    "\"s\"",
    "\"open",
    "'q'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ":=",
    ",",
    ";",
    ".",
    "...",
    "|",
    "=>",
    "<=>",
    "->",
    "=",
    "==",
    "<",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "$$",
    "&&",
    "!",
    "//c",
    "# c",
    "..",
    "..=",
    "ask",
    "ask all",
    "ask all [",
    "timeout",
    "update",
    "update d[k] from v:",
    "except",
    "every",
    "closed",
    "none",
    "some",
    "max",
    "entries",
    "expire",
    "evict",
    "lru",
    "snapshot",
    "filter",
    "filter x in",
    "map x in",
    "fold x in",
    "variant",
    "enum",
    "p.0.1",
    "..b]",
    "a[1..",
    "let (",
    "(a, _)",
    "else x",
    "in range(",
    "try:",
    "case",
    "None",
    "++",
    "elif",
    "?",
    "é",
    "\t",
    "\r\n",
    "\n",
    "\n",
    "\n  ",
    "\n    ",
    "\n      ",
    "\n   ",
    " ",
];

fn height(root: &SyntaxNode) -> usize {
    root.descendants().map(|node| node.ancestors().count()).max().unwrap_or(0)
}

fn check(source: &str) {
    let parse = parse(source);
    assert_eq!(parse.syntax().text().to_string(), source);
    assert!(parse.errors().len() <= ERRORS_MAX);
    for error in parse.errors() {
        assert!(source.get(error.range.clone()).is_some(), "{error:?} does not lie in the source");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(source in ".{0,200}") {
        check(&source);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..80), spaced in any::<bool>()) {
        check(&pieces.join(if spaced { " " } else { "" }));
    }

    #[test]
    fn any_edit_of_a_listing(
        listing in 0..LISTINGS.len(), at in any::<prop::sample::Index>(), len in 0usize..12,
        piece in prop::sample::select(PIECES),
    ) {
        let mut source = LISTINGS[listing].to_owned();
        let start = at.index(source.len());
        let end = (start + len).min(source.len());
        source.replace_range(start..end, piece);
        check(&source);
    }
}

#[test]
fn every_prefix_of_a_listing() {
    for listing in LISTINGS {
        for end in 0..listing.len() {
            check(&listing[..end]);
        }
    }
}

/// Parses something nested `depth` levels deep on the small stack of a test's thread.
fn check_deep(name: &str, source: &str) {
    let parse = parse(source);
    let kinds: Vec<_> = parse.errors().iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [SyntaxErrorKind::NestingTooDeep], "{name}: {:?}", parse.errors());
    assert_eq!(parse.syntax().text().to_string(), source, "{name}");
    assert!(height(&parse.syntax()) <= (NESTING_DEPTH_MAX as usize + 4) * NODES_PER_LEVEL_MAX, "{name}");
}

#[test]
fn deep_nesting_is_one_error() {
    let n = 100_000;
    let body = |text: String| format!("fun f: (x: int) -> (int)\n  {text}\n");
    check_deep("parentheses", &body("(".repeat(n) + "x" + &")".repeat(n)));
    check_deep("calls", &body("f(".repeat(n) + "x" + &")".repeat(n)));
    check_deep("indices", &body("a[".repeat(n) + "x" + &"]".repeat(n)));
    check_deep("lists", &body("[".repeat(n) + "x" + &"]".repeat(n)));
    check_deep("sums", &body("x + ".repeat(n) + "x"));
    check_deep("fields", &body("x".to_owned() + &".x".repeat(n)));
    check_deep("calls of calls", &body("x".to_owned() + &"()".repeat(n)));
    check_deep("negations", &body("not ".repeat(n) + "x"));
    check_deep("updates", &body("x".to_owned() + &" with a = x".repeat(n)));
    check_deep("records", &body("a{b = ".repeat(n) + "x" + &"}".repeat(n)));
    check_deep("tables", &body("map x { a: ".repeat(n) + "x" + &" }".repeat(n)));
    check_deep("sets", &body("x".to_owned() + &" in { a }".repeat(n)));
    check_deep("defaults", &body("x else ".repeat(n) + "x"));
    check_deep("slices", &body("a[..".repeat(n) + "x" + &"]".repeat(n)));
    check_deep("parts", &body("x".to_owned() + &".0".repeat(n)));
    check_deep("names", &body("let ".to_owned() + &"(".repeat(n) + "a" + &")".repeat(n) + " = x"));
    check_deep("asks", &body("ask c with ".repeat(n) + "x"));
    check_deep("asks of asks", &body("ask c with x else ".repeat(n) + "x"));
    check_deep("lists of asks", &body("ask all [c with ".repeat(n) + "x" + &"]".repeat(n)));
    check_deep("updates of entries", &body("update d[k] from v: ".repeat(n) + "x"));
    check_deep("repetitions", &body("map x in ".repeat(n) + "x" + &": x".repeat(n)));
    check_deep("folds", &body("fold x in xs, a = ".repeat(n) + "x" + &": x".repeat(n)));
    check_deep("inline repetitions", &body("for x in xs: ".repeat(n) + "x"));
    check_deep("inline choices", &body("if x: ".repeat(n) + "x"));
    check_deep(
        "types",
        &("type a: record\n  x : ".to_owned() + &"[".repeat(n) + "int" + &"]".repeat(n) + "\n"),
    );
    let blocks: String = (1..1000).map(|level| " ".repeat(level) + "if x:\n").collect();
    check_deep("blocks", &format!("fun f: (x: int) -> (int)\n{blocks}{}x\n", " ".repeat(1000)));
    let weave = "(".repeat(100) + "x" + &(")".to_owned() + &" + x".repeat(100)).repeat(100);
    check_deep("sums in parentheses", &body(weave));
}

#[test]
fn depth_within_the_bound_is_accepted() {
    let n = NESTING_DEPTH_MAX as usize - 8;
    let source = format!("fun f: (x: int) -> (int)\n  {}x{}\n", "(".repeat(n), ")".repeat(n));
    assert_eq!(parse(&source).errors(), []);
    let source = format!("fun f: (x: int) -> (int)\n  x{}\n", " + x".repeat(n));
    assert_eq!(parse(&source).errors(), []);
    // Long lists and chains are not deep.
    let source = format!("fun f: (x: int) -> (int)\n  f({})\n", vec!["x"; 10_000].join(", "));
    assert_eq!(parse(&source).errors(), []);
}

/// Nodes and tokens of a tree are its memory: each has a bounded size but for the text, which is the source's.
#[test]
fn memory_is_linear_in_the_source() {
    for piece in PIECES {
        let source = piece.repeat(4_000);
        let count = parse(&source).syntax().descendants_with_tokens().count();
        let count_max = 64 + source.len() * NODES_PER_BYTE_MAX;
        assert!(count <= count_max, "{piece:?}: {count} nodes and tokens of {} bytes", source.len());
    }
}

#[test]
fn many_errors_are_cut_off() {
    let source = "use 1\n".repeat(10 * ERRORS_MAX);
    assert_eq!(parse(&source).errors().len(), ERRORS_MAX);
    check(&source);
}

#[test]
fn large_source_is_refused_and_the_largest_is_not() {
    let line = "# a comment that fills the file\n";
    let source = line.repeat(SOURCE_BYTES_MAX / line.len());
    assert_eq!(parse(&source).errors(), []);
    let source = " ".repeat(SOURCE_BYTES_MAX + 1);
    let kinds: Vec<_> = parse(&source).errors().iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [SyntaxErrorKind::SourceTooLarge]);
    for piece in [
        "(",
        "{",
        "if x:\n ",
        "x => ",
        "|",
        "fun f: (",
        "\"",
        "type a = unit {\n",
        "\n ",
        "ask all [",
        "let (",
        "a else ",
        "x..",
        "map x in ",
        "p.0.",
        "except ",
        "global a: b max ",
        "try:\n",
        "update d[k] from ",
        "type a: variant\n ",
    ] {
        let source = piece.repeat(SOURCE_BYTES_MAX / 8 / piece.len());
        let tree = parse(&source);
        assert_eq!(tree.syntax().text().len(), u32::try_from(source.len()).unwrap().into(), "{piece:?}");
    }
}
