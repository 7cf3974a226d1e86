//! Generated programs: the promises of `format` for each.

use flick_syntax::parse;
use proptest::prelude::*;

use crate::check_promises;

const LINES: &[&str] = &[
    "let x = a",
    "let y = if a: 1",
    "else: 2",
    "else:",
    "if a == b:",
    "else if c:",
    "switch a:",
    "a, b.c: 1",
    "-1: x",
    "f(a,",
    "b)",
    "=> c",
    "<=> d",
    "+ 1",
    "- 1",
    "| a => b",
    "x",
    "# note",
    "...",
    "for x in xs:",
    "(a",
    ")",
    "local n := 0",
    "r with a = 1",
    "let r = foldt on m",
    "ordering e a, b by e.k as k:",
    "k{a = 1,",
    "b = 2}",
    "n := n + 1",
    "not a or",
    "[1, 2]",
    "map x { a: 1,",
    "map (x) { a: -1,",
    "else: 2 }",
    "in { a, b }",
    "let (a, (b, _)) = c",
    "for i in 0..a + 1:",
    "let s = fold x in xs,",
    "n = 0:",
    "map x in xs: x.0.1",
    "let t = filter x in a[1..]:",
    "update d[k] from v: v else 0",
    "ask c with m timeout 5ms",
    "timeout a",
    "else none",
    "ask all [c with m, d with",
    "ask all [x in xs: c with",
    "x] else",
    "except broken cs[i]:",
    "every 1s: x",
    "rect (w, h), some v:",
    "d[k] := a else b else c",
    "",
];
const GLOBALS: &[&str] = &[
    "global a: dict<int, (int, bool)>",
    "max 10 entries",
    "expire 1s,",
    "evict lru",
    "snapshot \"a\" every 1s",
    ", evict oldest",
    "global b: counter",
    "type c: enum",
    "type d: variant",
    "a",
    "bb = 2",
    "cc : (int, int)",
    "use a as b",
    "# note",
    "",
];
const ITEMS: &[&str] = &[
    "a : uint8;",
    ": uint8;",
    "longer : bytes &length = self.a;",
    "%order = big;",
    "%on error = cmd{a = 1,",
    "b = 2};",
    "var v : int",
    "&parse = self.a -",
    "(1 + 2)",
    "&serialize = self.b = $$;",
    "# note",
    "x : string<10>;",
    "",
    "c:int;",
    "\" \";",
    "\"a\" &nocase; d : hex<4>;",
    "check self.a - 1",
    "&fault = too_long;",
    "bits<8> { a : 1; b : 7; };",
    "bits<8> {",
    "l : 1; : 2;",
    "};",
    "switch self.a {",
    "1, b.c: { \"x\"; e : uint8; }",
    "2: {",
    "else: { f : [g(1)]<2> &count = 1; var h : int; }",
    "else: {",
    "}",
    "",
];

fn lines_of(pieces: &'static [&'static str], columns: usize) -> impl Strategy<Value = String> {
    let tails = prop::sample::select(&["\n", "\n", " # tail\n", "  \n", "\n\n\n"][..]);
    let line = (0usize..4, prop::sample::select(pieces), tails);
    prop::collection::vec(line, 0..12).prop_map(move |lines| {
        lines
            .iter()
            .map(|(level, text, tail)| format!("{}{text}{tail}", " ".repeat(columns + level * 2)))
            .collect()
    })
}

/// White space that means nothing between two tokens of a line.
fn space() -> impl Strategy<Value = String> {
    "[ ]{0,2}"
}

/// White space that means nothing inside brackets.
fn gap() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 2 => Just("  ".to_owned()), 1 => "\n[ ]{0,3}", 1 => " # in\n[ ]{0,3}(# on\n)?"]
}

fn expr() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(
        &["a", "b.c", "1", "0x1f", "50ms", "\"s #\"", "true", "self", "$$", "x[1]", "p.0.1", "n.k{}"][..],
    );
    let operator = prop::sample::select(
        &["+", "-", "*", "/", " mod ", " and ", " or ", "==", "<", ">=", " with k=", " else "][..],
    );
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, move |inner| {
        prop_oneof![
            (inner.clone(), space(), operator.clone(), space(), inner.clone())
                .prop_map(|(a, s, op, t, b)| format!("{a}{s}{op}{t}({b})")),
            (gap(), inner.clone(), gap()).prop_map(|(g, a, h)| format!("({g}{a}{h})")),
            (inner.clone(), gap(), gap(), inner.clone(), gap())
                .prop_map(|(a, g, h, b, i)| format!("f({g}{a},{h}{b}{i})")),
            (inner.clone(), gap(), gap()).prop_map(|(a, g, h)| format!("k{{{g}b=({a}){h}}}")),
            (inner.clone(), gap(), gap()).prop_map(|(a, g, h)| format!("[{g}{a},1{h}]")),
            (inner.clone(), space()).prop_map(|(a, s)| format!("-{s}({a})")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            (inner.clone(), gap(), gap(), inner.clone())
                .prop_map(|(a, g, h, b)| format!("s[{g}({a})..{h}({b})]")),
            (inner.clone(), gap(), inner.clone())
                .prop_map(|(a, g, b)| format!("s[{g}..({a})]+s[({b}){g}..]")),
            (inner.clone(), space(), inner.clone())
                .prop_map(|(a, s, b)| format!("(fold x in ({a}),{s}y={s}{b}{s}:{s}x)")),
            (inner.clone(), space(), inner.clone())
                .prop_map(|(a, s, b)| format!("(map x in ({a}){s}..{s}({b}):x)")),
            (inner.clone(), space(), inner.clone())
                .prop_map(|(a, s, b)| format!("(ask c[({a})] with ({b}){s} timeout 5ms{s} else none)")),
            (inner.clone(), gap()).prop_map(|(a, g)| format!("(ask all [{g}c with ({a}),{g}d with e{g}])")),
            (inner.clone(), gap()).prop_map(|(a, g)| format!("(ask all [{g}x in xs:{g}c[x] with ({a}){g}])")),
            (inner.clone(), space()).prop_map(|(a, s)| format!("(update d[{s}k] from v{s}:{s}{a})")),
            (inner.clone(), space(), inner.clone())
                .prop_map(|(a, s, b)| format!("(if {a}{s}:{s}{b} else:{b})")),
        ]
    })
}

/// Lines of a block, without its indentation; comments and empty lines among them.
fn block(depth: u32) -> BoxedStrategy<Vec<String>> {
    let simple = (expr(), expr(), space(), 0..9u8).prop_map(|(a, b, s, form)| {
        vec![match form {
            0 => format!("let{s} x={s}{a}"),
            1 => format!("{a}{s}=>{s}{b}"),
            2 => format!("|{s}{a} =>{b}{s}"),
            3 => format!("{a}\n{s}      =>{s}{b}"),
            4 => format!("if {a}{s}:{s}({b})"),
            5 => format!("let ({s}x,(y,{s}_)){s}={a}"),
            6 => format!("d[{a}]{s}:={s}{b}"),
            7 => format!("for x in {a}{s}:{s}{b}"),
            _ => format!("{a}{s} # tail"),
        }]
    });
    let comment = "(\n){0,2}[ ]{0,5}# alone";
    let statement = if depth == 0 {
        simple.boxed()
    } else {
        let step = 1..5usize;
        let nested = (expr(), block(depth - 1), block(depth - 1), step, 0..8u8).prop_map(
            |(a, then, other, step, form)| {
                let (then, other) = (indented(&then, step), indented(&other, step + 1));
                let text = match form {
                    0 => format!("if {a}:\n{then}else:\n{other}"),
                    1 => format!("if {a}:\n{then}else if b:\n{other}"),
                    2 => format!(
                        "switch {a}:\n  p, q.r:\n{}  else:\n{}",
                        indented(&[then], 2),
                        indented(&[other], 2)
                    ),
                    3 => format!("switch {a}:\n  p x, q.r (y, _):\n{}", indented(&[then], 2)),
                    4 => format!("let z = fold x in ({a}), y = 1:\n{then}"),
                    5 => format!("every 1s:\n{then}except closed c:\n{other}"),
                    6 => format!("let z = update d[k] from v:\n{then}"),
                    _ => format!("let z = foldt on m\n  ordering e f, g by {a} as h:\n{then}"),
                };
                vec![text.trim_end_matches('\n').to_owned()]
            },
        );
        prop_oneof![3 => simple, 1 => nested].boxed()
    };
    let line = (statement, prop::option::weighted(0.2, comment));
    prop::collection::vec(line, 1..4)
        .prop_map(|lines| {
            lines.into_iter().flat_map(|(lines, comment)| lines.into_iter().chain(comment)).collect()
        })
        .boxed()
}

/// Items of a grammar without errors, with white space and comments wherever they may stand.
fn items(depth: u32) -> BoxedStrategy<Vec<String>> {
    let simple = (gap(), gap(), gap(), 0..8u8).prop_map(|(g, h, i, form)| match form {
        0 => format!("a{g}:{h}uint8{i};"),
        1 => format!("\" \"{g};{h}"),
        2 => format!("{g}\"x\"{h}&nocase{i};"),
        3 => format!("check{g} self{h}.a{i};"),
        4 => format!("bits{g}<8>{h}{{{i}a{g}:{h}1;: 7{i}; }};"),
        5 => format!("var v{g}:{h}uint8 &parse{g}={h}1{i};"),
        6 => format!(":{g}[{h}u({i}1{g})]<{h}2>{i};"),
        _ => format!("bb{g}:{h}hex<4>;{i}"),
    });
    let item = if depth == 0 {
        simple.boxed()
    } else {
        let choice = (items(depth - 1), items(depth - 1), gap(), gap(), gap()).prop_map(|(a, b, g, h, i)| {
            let (a, b) = (a.concat(), b.concat());
            format!("switch{g} self.a{h}{{{i}1{g},b{h}:{i}{{{g}{a}{h}}}{i}else{g}:{h}{{{b}}}{i}}}{g};{h}")
        });
        prop_oneof![5 => simple, 1 => choice].boxed()
    };
    let line = (item, gap()).prop_map(|(item, gap)| format!("{item}{gap}"));
    prop::collection::vec(line, 0..5).boxed()
}

/// Indents every line by `columns`; lines inside brackets move along, which means nothing.
fn indented(lines: &[String], columns: usize) -> String {
    let lines = lines.iter().flat_map(|text| text.split('\n'));
    lines
        .map(|line| if line.trim().is_empty() { "\n".to_owned() } else { format!("{:columns$}{line}\n", "") })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_for_any_body(body in lines_of(LINES, 2)) {
        check_promises(&format!("fun f: (a: int) -> (int)\n{body}fun g: () -> (): ...\n"));
    }

    #[test]
    fn promises_hold_for_any_declarations(lines in lines_of(GLOBALS, 0)) {
        check_promises(&lines);
    }

    #[test]
    fn promises_hold_for_any_items(items in items(3)) {
        let source = format!("type a = unit {{\n{}}};\n", items.concat());
        let errors = parse(&source).errors().to_vec();
        prop_assert_eq!(errors, [], "{}", source);
        check_promises(&source);
    }

    #[test]
    fn promises_hold_for_any_grammar(items in lines_of(ITEMS, 2)) {
        check_promises(&format!("type a = unit {{\n{items}}};\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_for_programs(body in block(4), space in space()) {
        let source = format!("proc P: (a/a b){space}:\n{}", indented(&body, 1 + space.len()));
        let errors = parse(&source).errors().to_vec();
        prop_assert_eq!(errors, [], "{}", source);
        check_promises(&source);
    }
}
