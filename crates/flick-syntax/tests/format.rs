//! The formatter: golden programs, and for any program the promises of `format`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use flick_syntax::{SyntaxElement, SyntaxNode, format, parse};
use proptest::prelude::*;

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

#[test]
fn listing_1_keeps_its_form() {
    let listing = include_str!("data/listing1.flick");
    check(listing, &listing.replace("req:cmd", "req: cmd"));
}

#[test]
fn listing_2_keeps_its_form() {
    let listing = include_str!("data/listing2.flick");
    check(listing, listing);
}

#[test]
fn listing_3_keeps_its_form() {
    let listing = include_str!("data/listing3.flick");
    check(listing, &listing.replace("key : string", "key   : string"));
}

#[test]
fn untidy_program() {
    check(
        "use   raw\r\n\n\n\n# both ways\nproc   P:( cmd / - a,[ - / cmd ]b ):\n\n      # rules\n      |a=>f( b )   # one\n      |   a   =>\n            f(b) # two\n      # the end\n\n\nfun f(x:int)->(int,string<250>):\n    let y=- x+( 1-2 )*3   \n    if y==1:g{a=1,b=2}\n    else if   not y<2:\n       h{ }\n    else:\n           x with a=1 ,b = 2\n   # after f\n",
        "use raw

# both ways
proc P: (cmd/- a, [-/cmd] b):

  # rules
  | a => f(b) # one
  | a =>
      f(b) # two
  # the end

fun f(x: int) -> (int, string<250>):
  let y = -x + (1 - 2) * 3
  if y == 1: g{a = 1, b = 2}
  else if not y < 2:
    h{}
  else:
    x with a = 1, b = 2
# after f
",
    );
}

#[test]
fn untidy_grammar() {
    check(
        "type a=unit{%order = big;  x:uint8;:uint8;longer:bytes&length=self.x&streamed;# why\n\n var y:int\n&parse=(self.x+\n1) ; # last\n}\ntype e=enum uint8{a=1,b}",
        "type a = unit {
  %order = big;
  x      : uint8;
         : uint8;
  longer : bytes &length = self.x &streamed; # why

  var y : int
    &parse = (self.x +
      1); # last
}
type e = enum uint8 { a = 1, b }
",
    );
}

#[test]
fn tables_and_sets() {
    check(
        "type a=unit{%loud   self . op=map self.op{getq:get,-1 :getk,else:self.op};%loud self.op = map self.op {
 getq:get, # quiet
 # all others
 else : map x {a:b} };%silent=self.op in{getq,getkq ,
  gatq} and (self.x
 == 0);
x:uint8&requires=map $$ {
 1:true,
 else:false
};}
fun f(x: int) -> (bool):\n  let y = map x{a:1,\n else:2\n}\n  not x in{a,b}
",
        "type a = unit {
  %loud self.op = map self.op { getq: get, -1: getk, else: self.op };
  %loud self.op = map self.op {
    getq: get, # quiet
    # all others
    else: map x { a: b } };
  %silent = self.op in { getq, getkq,
    gatq } and (self.x
      == 0);
  x : uint8 &requires = map $$ {
    1: true,
    else: false
  };
}
fun f(x: int) -> (bool):
  let y = map x { a: 1,
    else: 2
  }
  not x in { a, b }
",
    );
}

#[test]
fn broken_lines_and_comments_inside() {
    check(
        "fun f: (\n a: int, # first\n b: int # second\n # third\n) -> (int)\n let x = a\n  + b\n let y = switch a:\n  1, -2: b\n  # otherwise\n  else: if a == b: 1\n   else: 2\n f(x,\n  y)\n",
        "fun f: (
  a: int, # first
  b: int  # second
  # third
) -> (int)
  let x = a
      + b
  let y = switch a:
    1, -2: b
    # otherwise
    else: if a == b: 1
      else: 2
  f(x,
    y)
",
    );
}

#[test]
fn nothing_and_only_comments() {
    check("", "");
    check("\n\n  \n", "");
    check("  # a\n\n\n\n# b", "# a\n\n# b\n");
    check("# a\n# b\n\nuse c # d\n    # e\n", "# a\n# b\n\nuse c # d\n# e\n");
}

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
    "else: 2 }",
    "in { a, b }",
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
];

fn lines_of(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    let tails = prop::sample::select(&["\n", "\n", " # tail\n", "  \n", "\n\n\n"][..]);
    let line = (0usize..4, prop::sample::select(pieces), tails);
    prop::collection::vec(line, 0..12).prop_map(|lines| {
        lines.iter().map(|(level, text, tail)| format!("{}{text}{tail}", " ".repeat(2 + level * 2))).collect()
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
    let leaf =
        prop::sample::select(&["a", "b.c", "1", "0x1f", "50ms", "\"s #\"", "true", "self", "$$", "x[1]"][..]);
    let operator = prop::sample::select(
        &["+", "-", "*", "/", " mod ", " and ", " or ", "==", "<", ">=", " with k="][..],
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
            (inner.clone(), space(), inner.clone())
                .prop_map(|(a, s, b)| format!("(if {a}{s}:{s}{b} else:{b})")),
        ]
    })
}

/// Lines of a block, without its indentation; comments and empty lines among them.
fn block(depth: u32) -> BoxedStrategy<Vec<String>> {
    let simple = (expr(), expr(), space(), 0..6u8).prop_map(|(a, b, s, form)| {
        vec![match form {
            0 => format!("let{s} x={s}{a}"),
            1 => format!("{a}{s}=>{s}{b}"),
            2 => format!("|{s}{a} =>{b}{s}"),
            3 => format!("{a}\n{s}      =>{s}{b}"),
            4 => format!("if {a}{s}:{s}{b}"),
            _ => format!("{a}{s} # tail"),
        }]
    });
    let comment = "(\n){0,2}[ ]{0,5}# alone";
    let statement = if depth == 0 {
        simple.boxed()
    } else {
        let step = 1..5usize;
        let nested = (expr(), block(depth - 1), block(depth - 1), step, 0..4u8).prop_map(
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
    fn promises_hold_for_any_body(body in lines_of(LINES)) {
        check_promises(&format!("fun f: (a: int) -> (int)\n{body}fun g: () -> (): ...\n"));
    }

    #[test]
    fn promises_hold_for_any_grammar(items in lines_of(ITEMS)) {
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

#[test]
fn a_line_behind_a_block_is_not_its_argument() {
    let source = "proc P: (a/a b):
  let z = foldt on m
    ordering e f, g by a as h:
      x
  (x) => b
  let y = switch a:
    c: 1
    else: 2
  -y => b
";
    check(source, source);
}

#[test]
fn equals_signs_of_neighbours_are_aligned() {
    check(
        "type op = enum uint8 {\n a = 0, # first\n  # between\n longer = 1,# second\n\n x=2,\n y,\n z = 3, more = 4,\n w = 5\n};\ntype u = unit { %a = b; %c longer=d; x : e; };\n",
        "type op = enum uint8 {
  a      = 0, # first
  # between
  longer = 1, # second

  x = 2,
  y,
  z = 3, more = 4,
  w = 5
};
type u = unit {
  %a        = b;
  %c longer = d;
  x : e;
};
",
    );
}

#[test]
fn promises_hold_for_every_shipped_program() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("stdlib"), root.join("examples")];
    let mut program_count = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "flick") {
                let source = std::fs::read_to_string(&path).unwrap();
                assert_eq!(parse(&source).errors(), [], "{}", path.display());
                check_promises(&source);
                program_count += 1;
            }
        }
    }
    assert!(program_count > 0, "no program was found");
}

#[test]
fn cost_is_linear_in_the_source() {
    // A quadratic step would take minutes here.
    for piece in ["# a\n", "use a # b\n", "\n", "fun f: () -> ()\n  x\n  # a\n"] {
        check_promises(&piece.repeat(200_000 / piece.len()));
    }
    let wide = format!("fun f: () -> ()\n  f({})\n", vec!["# a\n  x"; 20_000].join(", "));
    check_promises(&wide);
}
