//! Golden programs: what comes in, what comes out.

use flick_syntax::parse;

use crate::{check, check_promises};

#[test]
fn listing_1_keeps_its_form() {
    let listing = include_str!("../data/listing1.flick");
    check(listing, &listing.replace("req:cmd", "req: cmd"));
}

#[test]
fn listing_2_keeps_its_form() {
    let listing = include_str!("../data/listing2.flick");
    check(listing, listing);
}

#[test]
fn listing_3_keeps_its_form() {
    let listing = include_str!("../data/listing3.flick");
    check(listing, &listing.replace("key : string", "key   : string"));
}

#[test]
fn comment_behind_a_lone_carriage_return_was_lost() {
    check("# one\r# two\n", "# one\n# two\n");
    check("use raw # one\r  # two\r# three\n# four\n", "use raw # one\n# two\n# three\n# four\n");
    check(
        "fun f(x: int) -> ():\n  g(x) # one\r# two\n  h(x)\n",
        "fun f(x: int) -> ():\n  g(x) # one\n  # two\n  h(x)\n",
    );
}

#[test]
fn number_before_a_dot_and_a_number_became_a_fraction() {
    for (source, expected) in [
        ("fun f(x: int) -> ():\n  g(0.  5)\n", "fun f(x: int) -> ():\n  g(0 .5)\n"),
        ("fun f(x: int) -> ():\n  g(0  .5)\n", "fun f(x: int) -> ():\n  g(0 .5)\n"),
        ("fun f(x: int) -> ():\n  g(0 . 5 . 6)\n", "fun f(x: int) -> ():\n  g(0 .5.6)\n"),
        ("fun f(x: int) -> ():\n  g(x . 0 . 5)\n", "fun f(x: int) -> ():\n  g(x.0.5)\n"),
    ] {
        check(source, expected);
    }
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
fun g(x: int) -> (int):\n  map(x+1){2:3,else:4}+map-x {1 :2, else: 3}
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
fun g(x: int) -> (int):
  map (x + 1) { 2: 3, else: 4 } + map -x { 1: 2, else: 3 }
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
    let mut folders = vec![root.join("stdlib"), root.join("examples"), root.join("tests/golden/ok")];
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
