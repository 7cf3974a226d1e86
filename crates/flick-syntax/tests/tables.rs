//! Tables, sets and the properties of a grammar that use them: what the typed tree says of a source without errors.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use flick_syntax::ast::{AstNode, Expr, Pattern, PatternKind, Stmt, UnitProperty};
use flick_syntax::parse;

/// Prints an expression in prefix form; what is neither an operator, a table nor a set is printed as written.
fn show(expr: &Expr) -> String {
    match expr {
        Expr::Binary(binary) => {
            format!("({:?} {} {})", binary.op().unwrap(), show_opt(binary.left()), show_opt(binary.right()))
        }
        Expr::Unary(unary) => format!("({:?} {})", unary.op().unwrap(), show_opt(unary.operand())),
        Expr::In(test) => {
            let patterns: Vec<String> = test.patterns().map(|pattern| show_pattern(&pattern)).collect();
            format!("(In {} [{}])", show_opt(test.subject()), patterns.join(" "))
        }
        Expr::Map(map) => {
            let mut entries: Vec<String> = map
                .arms()
                .map(|arm| format!("{}: {}", show_pattern(&arm.pattern().unwrap()), show_opt(arm.value())))
                .collect();
            entries.extend(map.else_value().map(|value| format!("else: {}", show(&value))));
            format!("(Map {} [{}])", show_opt(map.subject()), entries.join(", "))
        }
        other => other.syntax().text().to_string(),
    }
}

fn show_opt(expr: Option<Expr>) -> String {
    show(&expr.unwrap())
}

fn show_pattern(pattern: &Pattern) -> String {
    match pattern.kind().unwrap() {
        PatternKind::Name(name) => name.text().to_owned(),
        PatternKind::Qualified(base, name) => format!("{}.{}", base.text(), name.text()),
        PatternKind::Literal(_) => pattern.syntax().text().to_string(),
        PatternKind::Negative(value) => format!("-{value}"),
    }
}

fn show_property(property: &UnitProperty) -> String {
    let words = [property.name(), property.qualifier()].map(|name| name.map(|name| name.text().to_owned()));
    let target = property.target().map(|target| show(&target));
    let left: Vec<String> = words.into_iter().flatten().chain(target).collect();
    format!("%{} = {}", left.join(" "), show_opt(property.value()))
}

fn parse_ok(source: &str) -> flick_syntax::ast::File {
    let parse = parse(source);
    assert_eq!(parse.errors(), [], "{source}");
    assert_eq!(parse.syntax().text().to_string(), source);
    parse.file()
}

/// Checks the tree of an expression that stands alone in a function and as the value of a property.
fn check(expr: &str, expected: &str) {
    let file = parse_ok(&format!("fun f: (x: int) -> (int)\n  {expr}\n"));
    let stmt = file.funs().next().unwrap().body().unwrap().stmts().next().unwrap();
    let Stmt::Expr(stmt) = stmt else { panic!("{expr} is {stmt:?}") };
    assert_eq!(show_opt(stmt.expr()), expected);
    check_property(&format!("%ends = {expr};"), &format!("%ends = {expected}"));
}

fn check_property(property: &str, expected: &str) {
    let file = parse_ok(&format!("type cmd = unit {{\n  {property}\n  key : string;\n}};\n"));
    let properties: Vec<String> =
        file.units().next().unwrap().properties().map(|property| show_property(&property)).collect();
    assert_eq!(properties, [expected]);
}

#[test]
fn sets() {
    check("x in { a, op.b, 1, -1, \"s\", true }", "(In x [a op.b 1 -1 \"s\" true])");
    check("x in {a, b,}", "(In x [a b])");
    check("x.y in { a }", "(In x.y [a])");
    check("x in {\n  a,\n    b\n}", "(In x [a b])");
    check("x\n    in { a }", "(In x [a])");
}

#[test]
fn sets_bind_like_comparisons() {
    check("a or b + 1 in { c } and d", "(Or a (And (In (Add b 1) [c]) d))");
    check("not a in { b }", "(Not (In a [b]))");
    check("a == b in { true }", "(In (Equal a b) [true])");
    check("a in { b } == c", "(Equal (In a [b]) c)");
}

#[test]
fn tables() {
    check("map x { a: b, else: c }", "(Map x [a: b, else: c])");
    check(
        "map x {a: b, op.c: d.e, 1: f(x), \"s\": y + 1,}",
        "(Map x [a: b, op.c: d.e, 1: f(x), \"s\": (Add y 1)])",
    );
    check("map f(x) mod 2 {\n    0: a,\n    else: b\n  }", "(Map (Mod f(x) 2) [0: a, else: b])");
    check("map x { a: map y { b: c }, else: z in { d } }", "(Map x [a: (Map y [b: c]), else: (In z [d])])");
    check("1 + map x { a: b } + 2", "(Add (Add 1 (Map x [a: b])) 2)");
    check("map x { }", "(Map x [])");
    check("map x in { a } { true: b, else: c }", "(Map (In x [a]) [true: b, else: c])");
}

#[test]
fn tables_of_values_in_parentheses_and_of_negated_ones_were_not_parsed() {
    check("map (x) { a: b }", "(Map (x) [a: b])");
    check("map (x + 1) * 2 { 2: b, else: c }", "(Map (Mul (x + 1) 2) [2: b, else: c])");
    check("map (x in { a }) { true: b, else: c }", "(Map (x in { a }) [true: b, else: c])");
    check("map -x { -1: a, else: b }", "(Map (Neg x) [-1: a, else: b])");
    check("map - x{-1: a}", "(Map (Neg x) [-1: a])");
    check("1 - map (f(x)[0]) {0: a} + 2", "(Add (Sub 1 (Map (f(x)[0]) [0: a])) 2)");
    check("map (map (x) { a: b }) { b: c }", "(Map (map (x) { a: b }) [b: c])");
}

#[test]
fn the_words_are_names_elsewhere() {
    check("map - x", "(Sub map x)");
    check("map(x) - k{a = 1}", "(Sub map(x) k{a = 1})");
    check("map(x) in { a }", "(In map(x) [a])");
    check("map - x in { a }", "(In (Sub map x) [a])");
    check("map", "map");
    check("map(x)", "map(x)");
    check("map.in", "map.in");
    check("map{in = in, map = map}", "map{in = in, map = map}");
    check("map + in", "(Add map in)");
    check("map in { map, in }", "(In map [map in])");
    check("in in { in }", "(In in [in])");
    check("map map { map: map, in: in }", "(Map map [map: map, in: in])");
    check("map in.x { in: in }", "(Map in.x [in: in])");
    check("map from { a: b }", "(Map from [a: b])");
    parse_ok("type cmd = unit {\n  map : uint8;\n  in : bytes &length = self.map;\n};\n");
    parse_ok("type op = enum uint8 { map = 0, in = 1, };\n");
    parse_ok("type cmd: record\n  map : int\n  in : int\n");
    parse_ok(
        "fun map: (in: int) -> (int)\n  let map = in\n  for in in map:\n    map => f(in)\n  fold map in map, in = map: in\n",
    );
    parse_ok("proc P: (a/b map)\n  foldt on map ordering e a, b by e.map as in:\n    map\n");
}

#[test]
fn properties() {
    check_property(
        "%loud self.opcode = map self.opcode { getq: get, else: self.opcode };",
        "%loud self.opcode = (Map self.opcode [getq: get, else: self.opcode])",
    );
    check_property("%loud self.header.opcode = 1;", "%loud self.header.opcode = 1");
    check_property("%loud header.opcode = 1;", "%loud header.opcode = 1");
    check_property("%byteorder = big;", "%byteorder = big");
    check_property("%echo = self.opcode;", "%echo = self.opcode");
    check_property(
        "%silent = self.op in { getq } and self.status != 0;",
        "%silent = (And (In self.op [getq]) (NotEqual self.status 0))",
    );
    check_property("%on timeout = cmd{opcode = self.opcode};", "%on timeout = cmd{opcode = self.opcode}");
}

#[test]
fn enumerations_and_streams() {
    let file = parse_ok(
        "type op = enum uint8 {\n  get = 0x00, set = 0x01,\n};\ntype cmd = unit {\n  op : op;\n  : bytes &streamed;\n};\n",
    );
    let op = file.enums().next().unwrap();
    assert_eq!(op.base().unwrap().syntax().text(), "uint8");
    let variants: Vec<String> = op
        .variants()
        .map(|variant| format!("{} {}", variant.name().unwrap().text(), show_opt(variant.value())))
        .collect();
    assert_eq!(variants, ["get 0x00", "set 0x01"]);
    let attr = file.units().next().unwrap().fields().last().unwrap().attrs().next().unwrap();
    assert_eq!((attr.name().unwrap().text(), attr.value()), ("streamed", None));
}
