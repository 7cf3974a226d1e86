//! Lengths of lists in grammars: `len` of a list in counts, variables, switches and checks.

use flick_abi::ParseStep;

use crate::engines::Engines;
use crate::source;

const PROGRAM: &str = r#"
type item = unit { text : string<9> &until = ","; };
type line = unit {
  first : [item]<5> &until = ";";
  var n : uint8 &parse = len(self.first) * 2;
  switch len(self.first) {
    1: { second : [item]<5> &count = len(self.first) + 1; }
    else: {}
  };
  check self.n < 8 and len(self.second) != 5;
  "\n";
  %order = in_order;
};
proc P: (line/line client)
  client => step() => client
fun step: (m: line) -> (line)
  if m.n == 2: m else: line{first = ["a", "b"]}
"#;

/// Whether a message is of the grammar, wherever it is cut.
fn check(engines: &Engines, message: &str, is_of_it: bool) {
    let parser = engines.find("parse_request.client");
    let (step, _) = engines.parse_at_every_cut(parser, message.as_bytes());
    assert_eq!(step == ParseStep::Done, is_of_it, "{message:?}: {step:?}");
}

#[test]
fn elements_of_a_list_are_counted() {
    let engines = Engines::new(source::lower(PROGRAM, source::library()));
    for (message, is_of_it) in [
        (";\n", true),
        ("a,;x,y,\n", true),
        ("a,;x,\n", false),
        ("a,b,;\n", true),
        ("a,b,;x,\n", false),
        ("a,b,c,;\n", true),
        ("a,b,c,d,;\n", false),
    ] {
        check(&engines, message, is_of_it);
    }
}
