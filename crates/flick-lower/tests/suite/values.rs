//! Values of all types: what expressions give, on both engines. Each program answers with what it computed.

use crate::language::{check, check_entry};

/// Programs whose answer is the text of an expression over `req`.
fn check_text(expr: &str, steps: &[(i64, &str, &str)]) {
    for (n, text, expected) in steps {
        let line = format!("client: {n} {expected}");
        let body = format!("let found = {expr}\nreq with text = found => client");
        check_entry(&body, &[(*n, text, &[&line])]);
    }
}

/// Programs whose answer is the number that an expression over `req` gives.
fn check_number(expr: &str, steps: &[(i64, &str, i64)]) {
    let body = format!("let found = {expr}\nreq with n = found => client");
    let lines: Vec<String> = steps.iter().map(|(_, text, n)| format!("client: {n} {text}")).collect();
    let expected: Vec<[&str; 1]> = lines.iter().map(|line| [line.as_str()]).collect();
    let steps: Vec<(i64, &str, &[&str])> =
        steps.iter().zip(&expected).map(|((n, text, _), line)| (*n, *text, &line[..])).collect();
    check_entry(&body, &steps);
}

#[test]
fn text_is_joined_cut_and_searched() {
    check_text("\"<\" + req.text[1..3] + \">\"", &[(1, "abcde", "<bc>"), (1, "a", "<>")]);
    check_text("(req.text + \"-\" + str(req.n))[..200]", &[(-7, "x", "x--7"), (0, "", "-0")]);
    check_text("upper(trim(req.text))", &[(1, "  aBc\r\n", "ABC")]);
    check_text("hex(req.n)", &[(255, "", "ff"), (-1, "", "ffffffffffffffff")]);
    check_number("find(req.text, \"b\") else -5", &[(0, "aab", 2), (0, "xyz", -5), (0, "b", 0)]);
    check_number("req.text[1] else 1000", &[(0, "ab", 98), (0, "a", 1000)]);
    check_number(
        "parse_int(req.text) else -1",
        &[
            (0, "42", 42),
            (0, "-9223372036854775808", i64::MIN),
            (0, "9223372036854775808", -1),
            (0, "4x", -1),
            (0, "", -1),
        ],
    );
    check_number("parse_hex(req.text) else -1", &[(0, "ff", 255), (0, "g", -1)]);
    check_number("if same_text(req.text, \"Get\"): 1 else: 0", &[(5, "gEt", 1), (5, "got", 0)]);
}

#[test]
fn durations_of_a_uint64_were_unsigned_unless_a_let_stood_between() {
    let check = |expr: &str, n: i64, expected: i64| {
        let line = format!("client: {expected} -5000000000");
        let body = format!(
            "let n = uint64(parse_int(req.text) else 0)\nlet found = {expr}\nreq with n = found => client"
        );
        check_entry(&body, &[(n, "-5000000000", &[&line])]);
    };
    check("if n * 1ns < 0s: 1 else: 0", 0, 1);
    check("if 0s > 1ns * n: 1 else: 0", 0, 1);
    check("(n * 1ns) / 1s", 0, -5);
    check("nanos(1h + n * 1ns) / 1000000000", 0, 3595);
    check("seconds(now() + n * 1ns - now())", 0, -5);
    check("(n * -1ns) / 1s", 0, 5);
    check("-(n * 1ns) / 1s", 0, 5);
    check("(1s / max(n, 1)) / 1ns", 0, -1);
    check("seconds(abs(n * 1ns))", 0, 5);
    check("(uint64(7) * -1s) / 1s", 0, -7);
}

#[test]
fn durations_are_divided_by_durations_that_are_computed() {
    let check = |expr: &str, n: i64, expected: i64| {
        let line = format!("client: {expected} x");
        let body = format!("let window = req.n * 1s\nlet found = {expr}\nreq with n = found => client");
        check_entry(&body, &[(n, "x", &[&line])]);
    };
    check("100s / window", 5, 20);
    check("100s / window", -3, -34);
    check("100s / window", 0, 0);
    check("seconds(101s mod window)", 5, 1);
    check("seconds(101s mod window)", 0, 0);
    check("100s / -5s", 0, -20);
    check("100s / max(window, 1s)", 0, 100);
}

#[test]
fn split_gives_a_bounded_list() {
    let text = "let parts = split(req.text, \",\", 3)
let first = parts[0] else \"none\"
let last = parts[len(parts) - 1] else \"none\"
let n = fold part in parts, sum = 0: sum + len(part)
req with n = n * 10 + len(parts), text = (first + \"|\" + last)[..200] => client";
    check_entry(
        text,
        &[
            (0, "a,bb,ccc,d", &["client: 83 a|ccc,d"]),
            (0, "abc", &["client: 31 abc|abc"]),
            (0, "", &["client: 1 |"]),
        ],
    );
}

#[test]
fn lists_are_gone_through_mapped_filtered_and_compared() {
    check_number("fold x in [3, 1, 2], acc = 0: acc * 10 + x", &[(0, "", 312)]);
    check_number("len(filter x in [1, 5, req.n, 7]: x > 4)", &[(9, "", 3), (0, "", 2)]);
    check_number(
        "fold x in (map y in filter z in [1, 2, 3, 4]: z mod 2 == 0: y * y), s = 0: s + x",
        &[(0, "", 20)],
    );
    check_number("if req.n in [1, 2, 3]: 1 else: 0", &[(2, "", 1), (4, "", 0)]);
    check_number("if req.text in [\"a\", req.text + \"b\", \"c\"]: 1 else: 0", &[(2, "c", 1), (4, "ab", 0)]);
    check_number("[10, 20, 30, 40][1..3][1] else 0", &[(0, "", 30)]);
    check_number("[10, 20, 30][req.n] else -1", &[(0, "", 10), (2, "", 30), (3, "", -1), (-1, "", -1)]);
    check_number("len([1, 2, 3][req.n..])", &[(0, "", 3), (2, "", 1), (7, "", 0), (-3, "", 3)]);
}

#[test]
fn text_is_looked_for_among_constants_of_several_lengths() {
    let found =
        [("", 1), ("a", 2), ("b", 3), ("cc", 4), ("abcdefghij", 5), ("c", 0), ("abcdefghik", 0), ("abc", 0)];
    let texts: Vec<(i64, &str, i64)> = found.iter().map(|(text, number)| (0, *text, *number)).collect();
    let cases = "\"\": 1, \"a\": 2, \"b\": 3, \"cc\": 4, \"abcdefghij\": 5";
    check_number(&format!("map req.text {{ {cases}, else: 0 }}"), &texts);
    let is_there: Vec<(i64, &str, i64)> =
        texts.iter().map(|(n, text, at)| (*n, *text, (*at > 0).into())).collect();
    let list = "[\"cc\", \"a\", \"\", \"b\", \"a\", \"abcdefghij\"]";
    check_number(&format!("if req.text in {list}: 1 else: 0"), &is_there);
    check_number(&format!("if not (req.text in {list}): 0 else: 1"), &is_there);
    check_number("if req.text[..1] in [\"a\", \"longer\"]: 1 else: 0", &[(0, "ab", 1), (0, "longer", 0)]);
    check_number("if req.n in [3, -1, 3]: 1 else: 0", &[(3, "", 1), (-1, "", 1), (1, "", 0)]);
    check_number("if (req.n == 1) in [true]: 1 else: 0", &[(1, "", 1), (2, "", 0)]);
}

#[test]
fn ranges_are_gone_through() {
    check_number("fold i in 0..5, acc = 0: acc + i", &[(0, "", 10)]);
    check_number("fold i in 3..max(0, min(req.n, 100)), acc = 0: acc + i", &[(6, "", 12), (2, "", 0)]);
    check_number("fold i in 0..3, a = 0: (fold j in 0..i, b = a: b + j + 1)", &[(0, "", 4)]);
    check_entry(
        "for i in 0..3:
  req with n = i => backends[i]",
        &[(0, "x", &["backends[0]: 0 x", "backends[1]: 1 x", "backends[2]: 2 x"])],
    );
}

#[test]
fn tuples_records_and_variants_hold_parts() {
    let types = "type point: record
  x : int
  y : int

type shape: variant
  circle : int
  rect   : (int, int)
  named  : string<20>
  nothing

";
    check(
        &format!(
            "{types}fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let p = point{{x = req.n, y = 2}}
  let q = moved(p)
  let (sum, name) = summary(q, req.text)
  req with n = sum, text = name => client

fun moved: (p: point) -> (point)
  p with x = p.x + 100

fun summary: (p: point, name: string<200>) -> ((int, string<200>))
  (p.x + p.y, name)
"
        ),
        &[(5, "abc", &["client: 107 abc"])],
    );
    check(
        &format!(
            "{types}fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let s = parse(req)
  req with n = area(s) => client

fun parse: (req: msg) -> (shape)
  switch req.text:
    \"circle\": shape.circle(req.n)
    \"rect\": shape.rect((req.n, 3))
    \"nothing\": shape.nothing
    else: shape.named(req.text[..20])

fun area: (s: shape) -> (int)
  switch s:
    circle r: r * r * 3
    rect (w, h): w * h
    named name: len(name)
    nothing: -1
"
        ),
        &[
            (5, "circle", &["client: 75 circle"]),
            (5, "rect", &["client: 15 rect"]),
            (5, "nothing", &["client: -1 nothing"]),
            (5, "other", &["client: 5 other"]),
        ],
    );
    check_number("if (req.n, req.text) == (1, \"a\"): 1 else: 0", &[(1, "a", 1), (2, "a", 0), (1, "b", 0)]);
}

#[test]
fn options_default_and_match() {
    check(
        "fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let found = first(req.text)
  let n = switch found:
    some (at, rest): at * 100 + len(rest)
    none: -1
  req with n = n => client

fun first: (line: string<200>) -> (option<(int, string<200>)>)
  let at = find(line, \":\")
  switch at:
    some i: some((i, line[i + 1..]))
    none: none
",
        &[(0, "ab:cde", &["client: 203 ab:cde"]), (0, "ab", &["client: -1 ab"])],
    );
    check_number("if find(req.text, \"a\") == none: 1 else: 0", &[(0, "xyz", 1), (0, "a", 0)]);
}

#[test]
fn numbers_are_converted_and_times_computed() {
    check_number("uint8(req.n)", &[(256 + 7, "", 7), (-1, "", 255)]);
    check_number("int8(req.n)", &[(255, "", -1), (128, "", -128), (127, "", 127)]);
    check_number("int16(req.n)", &[(0x1_8000, "", -32768)]);
    check_number("abs(req.n)", &[(-4, "", 4), (4, "", 4)]);
    check_number("millis(2s + 50ms * 3 - 1us)", &[(0, "", 2149)]);
    check_number("1h / 1min", &[(0, "", 60)]);
    check_number("seconds(now() - now())", &[(0, "", 0)]);
}

#[test]
fn addresses_and_ports_are_read() {
    check_entry(
        "let from = peer(client)
let name = if address(from) == ipv6(\"::ffff:10.0.0.0\"): \"ten\" else: \"other\"
req with n = port(from), text = name => client",
        &[(0, "", &["client: 8080 ten"])],
    );
}

#[test]
fn addresses_are_written_as_people_write_them() {
    check_entry(
        "let from = peer(client)
let six = str(ipv6(\"2001:db8::1\")) + str(endpoint(\"[::1]:80\"))
req with text = str(from) + str(address(from)) + str(ipv4(\"1.2.3.255\")) + six => client",
        &[(0, "", &["client: 0 10.0.0.0:808010.0.0.01.2.3.2552001:db8::1[::1]:80"])],
    );
}

#[test]
fn conditions_with_effects_keep_their_order() {
    check(
        "global seen: dict<string<200>, int> max 10 entries

fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  seen[req.text] := 1
  let gone = req.n > 5 and remove(seen, req.text)
  let still = req.text in seen
  req with n = (if gone: 10 else: 0) + (if still: 1 else: 0) => client
",
        &[(1, "a", &["client: 1 a"]), (6, "a", &["client: 10 a"])],
    );
}

#[test]
fn large_functions_give_their_parts_in_memory() {
    let steps: String =
        (0..40).map(|i| format!("  let x{} = (x{i} * 3 + {i}) mod 1000003\n", i + 1)).collect();
    let model = |n: i64| (0..40).fold(n, |x, i| (x * 3 + i).rem_euclid(1_000_003));
    check(
        &format!(
            "fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let (a, name) = long(req.n, req.text)
  let (b, _) = long(a, name)
  req with n = b, text = name => client

fun long: (x0: int, name: string<200>) -> ((int, string<200>))
{steps}  (x40, name)
"
        ),
        &[(5, "abc", &[&format!("client: {} abc", model(model(5)))])],
    );
}
