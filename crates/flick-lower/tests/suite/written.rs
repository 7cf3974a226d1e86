//! Structured messages that programs read, change, build and send: what was changed reads back as intended, what was
//! not is the same to the byte, and what cannot be read back is never written. RELIABILITY P2, P3, P9.

use flick_abi::FailureReason;

use crate::engines::Engines;
use crate::session::{Effects, Session};
use crate::source::lower_with;

/// A text protocol with all that is written in ways of its own.
const NOTES: &str = r#"
type word = class { "a".."z", "A".."Z", "0".."9", "-" };
type shown = class not { "\x00".."\x1f", "\x7f" };
type blank = class { " ", "\t" };
type line = unit {
  name : string<32> &of = word;
  ":";
  : string<8> &of = blank &min = 0;
  value : string<64> &until = "\r\n" &of = shown;
};
type note = unit {
  verb : string<16> &of = word;
  " ";
  code : decimal<3> &default = 7;
  " ";
  size : hex<6>;
  "\r\n";
  headers : [line]<20> &until = "\r\n" &key = name &value = value &nocase &cut = ["hop"];
  var length : uint32 &parse = parse_int(self.headers["length"] else "0") else 0
    &serialize = self.headers["length"] = str($$);
  switch self.verb {
    "put": { body : bytes<200> &length = self.length; }
    "bye": { reason : string<40> &until = "\n" &of = shown; }
    else: {}
  };
  %order = in_order;
  %on unavailable = note{verb = "bye", code = 503, reason = "gone", headers = [("why", "none")]};
};
"#;

/// Runs a program of one rule on a message and gives what left.
fn run(rule: &str, message: &[u8]) -> Effects {
    let text = format!(
        "use notes\nproc P: (note/note client, note/note server)\n  client => step(server)\n  server => client\n\n{rule}"
    );
    let files = [("notes", NOTES)];
    let engines = Engines::new(lower_with(&text, &files));
    let mut session = Session::new(&engines, 1);
    session.receive("client", message, &mut |_, _| panic!("nothing is asked"))
}

fn check(rule: &str, message: &str, expected: &str) {
    let effects = run(rule, message.as_bytes());
    assert_eq!(effects.failure, None, "{rule}");
    let sent: Vec<String> =
        effects.sends.iter().map(|(_, _, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    assert_eq!(sent, [expected], "{rule}");
}

const PUT: &str = "put 200 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nhop: z\r\nlast:v\r\n\r\nabc";

fn step(body: &str) -> String {
    format!("fun step: (-/note server, m: note) -> ()\n  {body}\n")
}

#[test]
fn what_changes_nothing_leaves_all_but_the_cuts() {
    let kept = "put 200 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\n\r\nabc";
    check(&step("m with code = m.code => server"), PUT, kept);
    check(&step("m with size = 10 => server"), PUT, kept);
}

#[test]
fn fields_are_replaced_at_their_offset() {
    let with = |head: &str| format!("{head}host: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\n\r\nabc");
    check(&step("m with code = 9 => server"), PUT, &with("put 9 00A\r\n"));
    check(&step("m with size = 255 => server"), PUT, &with("put 200 ff\r\n"));
    check(&step("m with code = min(m.code + 1, 999), size = 0 => server"), PUT, &with("put 201 0\r\n"));
}

#[test]
fn values_that_follow_from_a_body_are_rewritten() {
    let expected = "put 200 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlast:v\r\nlength: 5\r\n\r\nhello";
    check(&step("m with body = raw(\"hello\") => server"), PUT, expected);
    // A field that the message does not have stays away, and so does what would follow from it.
    let get = "get 1 1\r\nlength: 0\r\n\r\n";
    check(&step("m with body = raw(\"hello\") => server"), get, get);
}

#[test]
fn what_a_field_that_is_not_there_is_given_need_not_be_writable() {
    let get = "get 1 1\r\n\r\n";
    check(&step("m with reason = m.verb + \"\\n\" => server"), get, get);
    let effects = run(&step("m with reason = m.verb + \"\\n\" => server"), b"bye 1 1\r\n\r\nso\n");
    assert_eq!(effects.sends, [], "what is there must hold it");
}

#[test]
fn a_length_in_more_bytes_than_it_needs_keeps_them_where_it_keeps_its_value() {
    let text = "use hadoop\nproc P: (kv/kv client, kv/kv server)\n  client => step(server)\n  server => client\n\n\
                fun step: (-/kv server, m: kv) -> ()\n  m with key = m.value, value = m.value => server\n";
    let engines = Engines::new(lower_with(text, &[]));
    let sent = |message: &[u8]| {
        let mut session = Session::new(&engines, 1);
        let effects = session.receive("client", message, &mut |_, _| panic!("nothing is asked"));
        effects.sends[0].2.clone()
    };
    assert_eq!(sent(b"\x8e\x00\x02\x8f\x02abxy"), b"\x8e\x00\x02\x8f\x02xyxy");
    assert_eq!(sent(b"\x8e\x00\x02\x8f\x01abx"), b"\x01\x8f\x01xx");
}

#[test]
fn keys_stand_once_at_the_end_or_not_at_all() {
    let with = |lines: &str| format!("put 200 00A\r\n{lines}\r\nabc");
    check(
        &step("m with headers[\"x\"] = \"new\" => server"),
        PUT,
        &with("host: a\r\nlength: 3\r\nlast:v\r\nx: new\r\n"),
    );
    check(&step("m with headers[\"x\"] = none => server"), PUT, &with("host: a\r\nlength: 3\r\nlast:v\r\n"));
    check(
        &step("m with headers[\"y\"] = m.headers[\"host\"] else \"\" => server"),
        PUT,
        &with("host: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\ny: a\r\n"),
    );
}

#[test]
fn a_key_is_not_added_to_a_list_that_is_full() {
    let lines = |count: usize| (0..count).map(|line| format!("l{line}: v\r\n")).collect::<String>();
    let check_full = |change: &str, lines: String, expected: Result<String, FailureReason>| {
        let rule = step(&format!("m with {change} => server"));
        let effects = run(&rule, format!("put 7 0\r\n{lines}\r\n").as_bytes());
        let sent = match effects.failure {
            Some(reason) => Err(reason),
            None => Ok(String::from_utf8_lossy(&effects.sends[0].2).into_owned()),
        };
        assert_eq!(effects.sends.is_empty(), sent.is_err(), "{change} of {lines:?}");
        let expected =
            expected.map(|lines| format!("put 7 0\r\n{lines}\r\n")).map_err(|reason| reason as u32);
        assert_eq!(sent, expected, "{change} of {lines:?}");
    };
    let (set, both) = ("headers[\"x\"] = \"9\"", "headers[\"x\"] = \"9\", headers[\"y\"] = \"8\"");
    check_full(set, lines(19), Ok(lines(19) + "x: 9\r\n"));
    check_full(set, lines(20), Err(FailureReason::TooLong));
    check_full(both, lines(18), Ok(lines(18) + "x: 9\r\ny: 8\r\n"));
    check_full(both, lines(19), Err(FailureReason::TooLong));
    // What is replaced takes no more room than before, and what is taken away takes none.
    check_full(set, format!("X: 1\r\n{}", lines(19)), Ok(lines(19) + "x: 9\r\n"));
    check_full("headers[\"x\"] = none", lines(20), Ok(lines(20)));
    check_full("headers[\"hop\"] = none, code = 7", lines(20), Ok(lines(20)));
    // A length that follows from a body is a line too.
    check_full("body = raw(\"\")", format!("length: 0\r\n{}", lines(19)), Ok(lines(19) + "length: 0\r\n"));
    check_full("body = raw(\"\")", lines(20), Err(FailureReason::TooLong));
    let list: Vec<String> = (0..20).map(|line| format!("(\"l{line}\", \"v\")")).collect();
    let list =
        format!("note{{verb = \"get\", code = 7, headers = [{}]}} with {set} => server", list.join(", "));
    assert_eq!(
        run(&step(&list), PUT.as_bytes()).failure,
        Some(FailureReason::Unavailable as u32),
        "the program's list"
    );
}

#[test]
fn keys_read_as_they_were_and_as_they_will_be() {
    let says = |value: &str| format!("get 7 0\r\nsays: {value}\r\n\r\n");
    let build =
        |value: &str| step(&format!("note{{verb = \"get\", headers = [(\"says\", {value})]}} => server"));
    check(&build("m.headers[\"x\"] else \"?\""), PUT, &says("1"));
    check(&build("m.headers[\"X\"] else \"?\""), PUT, &says("1"));
    check(&build("m.headers[\"none\"] else \"?\""), PUT, &says("?"));
    let changed = |change: &str| {
        step(&format!(
            "let c = m with {change}\n  note{{verb = \"get\", headers = [(\"says\", c.headers[\"x\"] else \"?\")]}} => server"
        ))
    };
    check(&changed("headers[\"x\"] = \"9\""), PUT, &says("9"));
    check(&changed("headers[\"x\"] = none"), PUT, &says("?"));
    check(&changed("code = 1"), PUT, &says("1"));
}

#[test]
fn messages_are_built_from_their_arms() {
    check(&step("note{verb = \"get\", code = 1} => server"), PUT, "get 1 0\r\n\r\n");
    check(&step("note{body = raw(\"xy\")} => server"), PUT, "put 7 0\r\nlength: 2\r\n\r\nxy");
    check(&step("note{reason = \"so\", size = 17} => server"), PUT, "bye 7 11\r\n\r\nso\n");
    check(
        &step("note{body = raw(\"xy\"), headers = [(\"length\", \"77\"), (\"a\", \"b\")]} => server"),
        PUT,
        "put 7 0\r\na: b\r\nlength: 2\r\n\r\nxy",
    );
}

#[test]
fn shapes_that_meet_are_written_as_they_were_made() {
    let rule = |cond: &str| {
        step(&format!(
            "let r = if {cond}: note{{body = raw(\"xy\")}} else: note{{reason = \"so\"}}\n  r => server"
        ))
    };
    check(&rule("m.code == 200"), PUT, "put 7 0\r\nlength: 2\r\n\r\nxy");
    check(&rule("m.code == 1"), PUT, "bye 7 0\r\n\r\nso\n");
    let rule = |cond: &str| {
        step(&format!(
            "let r = if {cond}: m with headers[\"x\"] = \"n\" else: m with code = 5\n  r => server"
        ))
    };
    check(&rule("m.code == 200"), PUT, "put 200 00A\r\nhost: a\r\nlength: 3\r\nlast:v\r\nx: n\r\n\r\nabc");
    check(
        &rule("m.code == 1"),
        PUT,
        "put 5 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\n\r\nabc",
    );
}

#[test]
fn messages_are_given_by_their_bytes() {
    check(&step("note{wire = raw(\"get 1 1\\r\\n\\r\\n\")} => server"), PUT, "get 1 1\r\n\r\n");
    check(
        &step("note{wire = wire(m)} => server"),
        PUT,
        "put 200 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\n\r\nabc",
    );
}

/// RELIABILITY P9: a value that ends its field, or has a byte that the field cannot hold, is never written.
#[test]
fn p9_values_never_break_out_of_their_fields() {
    let with_value = step("m with headers[\"x\"] = m.headers[\"host\"] + text(m.body)[..60] => server");
    let built = step("note{verb = \"get\", headers = [(\"x\", text(m.body)[..64])]} => server");
    let in_key = step("note{verb = \"get\", headers = [(text(m.body)[..32], \"x\")]} => server");
    let in_verb = step("note{verb = text(m.body)[..16]} => server");
    let put = |body: &str| format!("put 1 1\r\nhost: a\r\nlength: {}\r\n\r\n{body}", body.len());
    for (rule, body, is_written) in [
        (&with_value.replace("m.headers[\"host\"] + ", ""), "fine", true),
        (&with_value.replace("m.headers[\"host\"] + ", ""), "a\r\nevil: 1", false),
        (&built, "fine", true),
        (&built, "a\r\nevil: 1", false),
        (&built, "a\rb", false),
        (&built, "a\nb", false),
        (&built, "a\0b", false),
        (&built, "", true),
        (&in_key, "fine", true),
        (&in_key, "a b", false),
        (&in_key, "a:", false),
        (&in_key, "", false),
        (&in_verb, "get", true),
        (&in_verb, "get 1", false),
    ] {
        let effects = run(rule, put(body).as_bytes());
        assert_eq!(effects.sends.len(), usize::from(is_written), "{rule} {body:?}");
        let failure = (!is_written).then_some(FailureReason::Unavailable as u32);
        assert_eq!(effects.failure, failure, "{rule} {body:?}");
    }
}

/// Lists of every end, bits, integers of variable length, what is there only sometimes.
const PACKETS: &str = r#"
type bulk = unit { "$"; size : decimal<5>; "\r\n"; data : string<100> &length = self.size; "\r\n"; };
type word = class { "a".."z" };
type item = unit { name : string<20> &of = word; ","; };
type packet = unit {
  %byteorder = big;
  bits<16> { version : 4; flag : 1; rest : 11; };
  number : varint<4>;
  extra : uint16 &if = self.flag == 1;
  kind : uint8;
  switch self.kind {
    1: { count : decimal<3>; "\r\n"; args : [bulk]<20> &count = self.count; }
    2: { names : [item]<8> &until = "."; }
    3: { inner_size : uint8; inner : [item]<9> &length = self.inner_size; }
    else: { text : string<100> &until = "\n"; }
  };
  %order = in_order;
};
"#;

fn packet(rule: &str, message: &[u8]) -> Effects {
    packet_of(PACKETS, rule, message)
}

fn packet_of(grammar: &str, rule: &str, message: &[u8]) -> Effects {
    let text = format!(
        "use packets\nproc P: (packet/packet client, packet/packet server)\n  client => step(server)\n  server => client\n\nfun step: (-/packet server, m: packet) -> ()\n  {rule}\n"
    );
    let engines = Engines::new(lower_with(&text, &[("packets", grammar)]));
    Session::new(&engines, 1).receive("client", message, &mut |_, _| panic!("nothing is asked"))
}

fn check_packet(rule: &str, message: &[u8], expected: &[u8]) {
    let effects = packet(rule, message);
    assert_eq!(effects.failure, None, "{rule}");
    let sent: Vec<_> = effects.sends.iter().map(|(_, _, bytes)| bytes.as_slice()).collect();
    assert_eq!(sent, [expected], "{rule}");
}

const CALL: &[u8] = b"\x48\x07\x85\x01\x00\x2a\x013\r\n$3\r\nset\r\n$1\r\nk\r\n$04\r\nwxyz\r\n";
const TEXT: &[u8] = b"\x40\x07\x05\x09hello\n";

#[test]
fn bits_and_short_numbers_are_replaced_alone() {
    check_packet("m with version = 5 => server", TEXT, b"\x50\x07\x05\x09hello\n");
    check_packet("m with rest = 2047 => server", TEXT, b"\x47\xff\x05\x09hello\n");
    check_packet("m with number = 300 => server", TEXT, b"\x40\x07\xac\x02\x09hello\n");
    check_packet(
        "m with number = 5 => server",
        b"\x40\x07\x85\x00\x09hello\n",
        b"\x40\x07\x85\x00\x09hello\n",
    );
    check_packet("m with text = \"bye\" => server", TEXT, b"\x40\x07\x05\x09bye\n");
    check_packet("m with extra = 9 => server", TEXT, TEXT);
    let mut expected = CALL.to_vec();
    expected[5] = 9;
    check_packet("m with extra = 9 => server", CALL, &expected);
}

#[test]
fn a_field_of_63_bits_that_is_read_stopped_the_compiler() {
    let grammar = "type packet = unit {
  %order = in_order;
  %byteorder = big;
  bits<64> { wide : 63; : 1; };
  check self.wide > 5;
  bits<64> { all : 64; };
  text : string<50> &until = \"\\n\";
};\n";
    let says = |message: &[u8]| {
        let rule = "m with text = str(m.wide) + \" \" + str(m.all) => server";
        let effects = packet_of(grammar, rule, message);
        let sent: Vec<_> = effects.sends.iter().map(|(_, _, bytes)| bytes[16..].to_vec()).collect();
        String::from_utf8(sent.concat()).expect("digits")
    };
    let max = [[0xff; 16].as_slice(), b"\n"].concat();
    assert_eq!(says(&max), "9223372036854775807 18446744073709551615\n");
    let small = [&[0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 1, 0][..], b"\n"].concat();
    assert_eq!(says(&small), "6 256\n");
}

#[test]
fn bits_without_a_name_were_cleared_by_a_change_of_those_beside_them() {
    let grammar = |bits: &str| {
        format!(
            "type packet = unit {{\n  %order = in_order;\n  %byteorder = big;\n  {bits}\n  text : uint8;\n}};\n"
        )
    };
    let check = |bits: &str, change: &str, message: &[u8], expected: &[u8]| {
        let effects = packet_of(&grammar(bits), &format!("{change} => server"), message);
        let sent: Vec<_> = effects.sends.iter().map(|(_, _, bytes)| bytes.as_slice()).collect();
        assert_eq!(sent, [expected], "{bits} {change}");
    };
    let bits = "bits<8> { flag : 1; : 6; more : 1; };";
    check(bits, "m with flag = 0", b"\xff\x01", b"\x7f\x01");
    check(bits, "m with flag = 1", b"\x2a\x01", b"\xaa\x01");
    check(bits, "m with flag = 0, more = 0", b"\xff\x01", b"\x7e\x01");
    check(bits, "packet{flag = 1, text = 2}", b"\xff\x01", b"\x80\x02");
    let wide = "bits<64> { : 1; low : 62; : 1; };";
    check(wide, "m with low = 0", b"\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\0\0\0\0\0\0\x01\x01");
    let middle = "bits<16> { a : 4; : 8; b : 4; };";
    check(middle, "m with b = 0", b"\xff\xff\x01", b"\xff\xf0\x01");
}

/// Bytes and elements whose lengths are not in every message.
const MEASURED: &str = r#"
type item = unit { name : string<20> &until = ","; };
type packet = unit {
  %order = in_order;
  f : uint8;
  switch self.f {
    1: { x : uint8; size : uint8; }
    2: { w : uint8; }
    else: {}
  };
  var n : uint8 &parse = if self.f == 1: self.x else: if self.f == 2: self.w else: 0 &serialize = self.x = $$;
  y : bytes<9> &length = self.n;
  items : [item]<9> &count = self.size;
  t : string<20> &until = ";";
};
"#;

#[test]
fn bytes_were_written_whose_length_was_written_nowhere() {
    let run =
        |change: &str, message: &[u8]| packet_of(MEASURED, &format!("m with {change} => server"), message);
    let sent = |change: &str, message: &[u8], expected: &[u8]| {
        let effects = run(change, message);
        assert_eq!(effects.failure, None, "{change}");
        let sent: Vec<_> = effects.sends.iter().map(|(_, _, bytes)| bytes.as_slice()).collect();
        assert_eq!(sent, [expected], "{change}");
    };
    let unsent = |change: &str, message: &[u8]| {
        let effects = run(change, message);
        assert_eq!(effects.sends, [], "{change}");
        assert_eq!(effects.failure, Some(FailureReason::Unavailable as u32), "{change}");
    };
    let (none, one, two) = (b"\0abc;", b"\x01\x01\x01ab,c;", b"\x02\x01abc;");
    sent("y = \"hey\"", one, b"\x01\x03\x01heyb,c;");
    unsent("y = \"hey\"", none);
    unsent("y = \"hey\"", two);
    // No longer than before, and no shorter.
    sent("y = \"e\"", two, b"\x02\x01ebc;");
    sent("y = \"\"", none, none);
    sent("items = [\"de\", \"f\"]", one, b"\x01\x01\x02ade,f,c;");
    unsent("items = [\"de\", \"f\"]", none);
    sent("items = []", none, none);
    sent("t = \"defg\"", none, b"\0defg;");
}

#[test]
fn lists_are_read_as_lists() {
    let says = |value: &str| format!("m with text = {value} => server");
    let both = |value: &str| format!("packet{{kind = 9, text = {value}}} => server");
    let built = |text: &[u8]| [b"\x00\x00\x00\x09", text, b"\n"].concat();
    check_packet(&both("str(len(m.args))"), CALL, &built(b"3"));
    check_packet(&both("m.args[1] else \"?\""), CALL, &built(b"k"));
    check_packet(&both("m.args[2] else \"?\""), CALL, &built(b"wxyz"));
    check_packet(&both("m.args[3] else \"?\""), CALL, &built(b"?"));
    check_packet(&both("str(len(m.args[1..]))"), CALL, &built(b"2"));
    check_packet(&both("str(fold a in m.args, n = 0: n + len(a))"), CALL, &built(b"8"));
    check_packet(&says("str(len(m.args))"), TEXT, b"\x40\x07\x05\x090\n");
    let row = b"\x40\x07\x05\x02ab,c,.";
    check_packet(&both("m.names[1] else \"?\""), row, &built(b"c"));
    let inner = b"\x40\x07\x05\x03\x05ab,c,";
    check_packet(&both("m.inner[0] else \"?\""), inner, &built(b"ab"));
}

#[test]
fn lists_are_changed_and_built() {
    let head = |count: &str, rest: &str| [&CALL[..7], count.as_bytes(), b"\r\n", rest.as_bytes()].concat();
    check_packet(
        "m with args = [\"get\", \"key\"] => server",
        CALL,
        &head("2", "$3\r\nget\r\n$3\r\nkey\r\n"),
    );
    check_packet("m with args = m.args[1..] => server", CALL, &head("2", "$1\r\nk\r\n$4\r\nwxyz\r\n"));
    check_packet(
        "m with args = m.args => server",
        CALL,
        &CALL
            .strip_suffix(b"$04\r\nwxyz\r\n")
            .map(|front| [front, b"$4\r\nwxyz\r\n"].concat())
            .expect("the end is known"),
    );
    check_packet("packet{version = 1, args = [\"x\"]} => server", TEXT, b"\x10\x00\x00\x011\r\n$1\r\nx\r\n");
    check_packet("packet{names = [\"x\", \"yz\"]} => server", TEXT, b"\x00\x00\x00\x02x,yz,.");
    check_packet(
        "packet{flag = 1, extra = 5, number = 128, text = \"a\"} => server",
        TEXT,
        b"\x08\x00\x80\x01\x00\x05\x00a\n",
    );
    let row = b"\x40\x07\x05\x02ab,c,.";
    check_packet("m with names = [\"q\"] => server", row, b"\x40\x07\x05\x02q,.");
    check_packet("m with names = [] => server", row, b"\x40\x07\x05\x02.");
}

#[test]
fn a_list_that_was_changed_on_another_way_keeps_its_count() {
    let rule = |cond: &str| {
        format!("let r = if {cond}: m with args = [\"x\"] else: m with number = 9\n  r => server")
    };
    let mut expected = CALL.to_vec();
    expected.splice(2..4, [9]);
    check_packet(&rule("m.version == 1"), CALL, &expected);
    let changed = [&CALL[..7], b"1\r\n$1\r\nx\r\n"].concat();
    check_packet(&rule("m.version == 4"), CALL, &changed);
    let read = "let r = if m.version == 4: m with args = [\"x\"] else: m\n  \
        packet{kind = 9, text = (r.args[0] else \"?\")[..9] + str(len(r.args))} => server";
    check_packet(read, CALL, b"\x00\x00\x00\x09x1\n");
    check_packet(&read.replace("== 4", "== 1"), CALL, b"\x00\x00\x00\x09set3\n");
}

/// RELIABILITY P9, of elements of lists.
#[test]
fn p9_elements_never_break_out_of_their_lists() {
    for (rule, is_written) in [
        ("packet{names = [m.text[..20]]} => server", true),
        ("packet{names = [\"a\", m.text[1..4] + \",\"]} => server", false),
        ("packet{names = map x in [m.text[..9], \"B\"]: lower(x)} => server", true),
        ("packet{names = map x in [m.text[..9], \"B\"]: x} => server", false),
        ("packet{args = [\"any\\r\\n\", m.text[..98] + \"\\r\\n\"]} => server", true),
        ("m with text = m.text[..4] + \"\\n\" => server", false),
    ] {
        let effects = packet(rule, TEXT);
        assert_eq!(effects.sends.len(), usize::from(is_written), "{rule}");
        assert_eq!(effects.failure.is_some(), !is_written, "{rule}");
    }
}

/// Runs a program of the notes' grammar whose rule may ask the server, which answers what `answer` says.
fn ask(rule: &str, message: &str, reply: Result<&str, FailureReason>) -> (Vec<String>, Effects) {
    let text = format!(
        "use notes\nproc P: (note/note client, note/note server)\n  client => step(server, client)\n\n{rule}"
    );
    let engines = Engines::new(lower_with(&text, &[("notes", NOTES)]));
    let mut asked = Vec::new();
    let effects = Session::new(&engines, 1).receive("client", message.as_bytes(), &mut |sent, _| {
        asked.push(format!("{}:{}", sent.1 as u16, String::from_utf8_lossy(&sent.2)));
        if sent.1 == 0 {
            reply.map(|bytes| bytes.as_bytes().to_vec())
        } else {
            Err(FailureReason::Unavailable)
        }
    });
    (asked, effects)
}

#[test]
fn replies_to_asks_are_read_and_changed_too() {
    let rule = "fun step: (note/note server, -/note client, m: note) -> ()\n  \
        let r = ask server with (m with headers[\"asked\"] = \"yes\")\n  \
        let host = m.headers[\"host\"] else \"?\"\n  \
        r with headers[\"x\"] = (r.headers[\"x\"] else \"none\")[..20] + host[..20], code = 3 => client\n";
    let reply = "bye 1 1\r\nx: 9\r\nhop: gone\r\n\r\nwhy\n";
    let rule = rule.replace(", code = 3", "");
    let (asked, effects) = ask(&rule, "get 1 2\r\nhost: h\r\n\r\n", Ok(reply));
    assert_eq!(asked, ["0:get 1 2\r\nhost: h\r\nasked: yes\r\n\r\n"]);
    assert_eq!(String::from_utf8_lossy(&effects.sends[0].2), "bye 1 1\r\nx: 9h\r\n\r\nwhy\n");
}

/// RELIABILITY P9: an ask with an unwritable message fails as unavailable.
#[test]
fn p9_asks_with_what_cannot_be_written_fail() {
    let rule = "fun step: (note/note server, -/note client, m: note) -> ()\n  \
        let r = ask server with (m with headers[\"x\"] = text(m.body)[..64]) else none\n  \
        switch r:\n    some reply: reply => client\n    none: note{reason = \"no\"} => client\n";
    let (asked, effects) = ask(rule, "put 1 2\r\nlength: 2\r\n\r\n\r\n", Ok("get 1 1\r\n\r\n"));
    assert_eq!(asked, ["65535:"]);
    assert_eq!(String::from_utf8_lossy(&effects.sends[0].2), "bye 7 0\r\n\r\nno\n");
    let (asked, effects) = ask(rule, "put 1 2\r\nlength: 2\r\n\r\nok", Ok("get 1 1\r\n\r\n"));
    assert_eq!(asked, ["0:put 1 2\r\nlength: 2\r\nx: ok\r\n\r\nok"]);
    assert_eq!(String::from_utf8_lossy(&effects.sends[0].2), "get 1 1\r\n\r\n");
}

#[test]
fn functions_take_and_give_messages() {
    let rule = |body: &str| {
        format!(
            "fun host_of: (m: note) -> (string<64>)\n  m.headers[\"host\"] else \"?\"\n\n\
            fun tagged: (m: note, tag: string<8>) -> (note)\n  m with headers[\"tag\"] = tag\n\n{}",
            step(body)
        )
    };
    check(
        &rule("note{verb = \"get\", headers = [(\"h\", host_of(m))]} => server"),
        PUT,
        "get 7 0\r\nh: a\r\n\r\n",
    );
    check(
        &rule("tagged(tagged(m, \"one\"), host_of(m)[..8]) => server"),
        PUT,
        "put 200 00A\r\nhost: a\r\nx: 1\r\nX: 2\r\nlength: 3\r\nlast:v\r\ntag: a\r\n\r\nabc",
    );
    check(
        &rule("tagged(note{body = m.body}, \"t\") => server"),
        PUT,
        "put 7 0\r\nlength: 3\r\ntag: t\r\n\r\nabc",
    );
    check(
        &rule(
            "let c = tagged(m, \"t\")\n  note{verb = \"get\", headers = [(\"w\", str(len(wire(m)))), (\"t\", c.headers[\"tag\"] else \"?\")]} => server",
        ),
        PUT,
        "get 7 0\r\nw: 58\r\nt: t\r\n\r\n",
    );
}

#[test]
fn lists_of_pairs_are_computed() {
    let rule = step(
        "let pairs = map x in [\"a\", m.headers[\"host\"] else \"?\", \"Length\"]: (x[..32], x[..8] + \"1\")\n  note{body = m.body, headers = pairs} => server",
    );
    check(&rule, PUT, "put 7 0\r\na: a1\r\na: a1\r\nlength: 3\r\n\r\nabc");
    let both = step(
        "let r = if m.code == 1: m with verb = \"get\" else: m with headers = [(\"only\", \"one\")]\n  r => server",
    );
    check(&both, "bye 2 1\r\na: b\r\n\r\nx\n", "bye 2 1\r\nonly: one\r\n\r\nx\n");
    check(&both, "bye 1 1\r\na: b\r\n\r\nx\n", "get 1 1\r\na: b\r\n\r\nx\n");
}

/// Sends a request, then the reply of its backend, through a program with these two rules' texts.
fn exchange(request: &str, reply: &str, messages: [&str; 2]) -> [Effects; 2] {
    let text = format!(
        "use http\nproc P: (request/response client, response/request server)\n  client => up(server)\n  server => down(client)\n\n\
         fun up: (-/request server, m: request) -> ()\n  {request} => server\n\n\
         fun down: (-/response client, m: response) -> ()\n  {reply} => client\n"
    );
    let engines = Engines::new(lower_with(&text, &[]));
    let mut session = Session::new(&engines, 1);
    let mut no_answer = |_: &_, _| panic!("nothing is asked");
    [("client", messages[0]), ("server", messages[1])]
        .map(|(channel, message)| session.receive(channel, message.as_bytes(), &mut no_answer))
}

fn check_exchange(request: &str, reply: &str, messages: [&str; 2], expected: [&str; 2]) {
    let effects = exchange(request, reply, messages);
    let sent = effects.map(|effects| {
        assert_eq!((effects.failure, effects.sends.len()), (None, 1), "{request}, {reply}");
        String::from_utf8_lossy(&effects.sends[0].2).into_owned()
    });
    assert_eq!(sent, expected, "{request}, {reply}");
}

const GET: &str =
    "GET /a%20b HTTP/1.1\r\nHost: h\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nAccept: *\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nconnection: close\r\nETag: e\r\n\r\nabc";

#[test]
fn requests_and_replies_of_http_are_changed() {
    check_exchange(
        "m with headers[\"x-path\"] = (percent_decode(m.target) else \"\")[..99]",
        "m with headers[\"etag\"] = none, status = 201",
        [GET, OK],
        [
            "GET /a%20b HTTP/1.1\r\nHost: h\r\nAccept: *\r\nx-path: /a b\r\n\r\n",
            "HTTP/1.1 201 OK\r\nContent-Length: 3\r\n\r\nabc",
        ],
    );
    check_exchange(
        "m with target = \"/new\", headers[\"host\"] = \"other\"",
        "m with body = raw(\"hello\")",
        [GET, OK],
        [
            "GET /new HTTP/1.1\r\nAccept: *\r\nhost: other\r\n\r\n",
            "HTTP/1.1 200 OK\r\nETag: e\r\ncontent-length: 5\r\n\r\nhello",
        ],
    );
}

/// A body that the framing of a message has no place for does not come in, and no length is promised for it.
#[test]
fn p2_a_body_in_chunks_keeps_its_framing() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let message = format!("{chunked}3\r\nabc\r\n0\r\n\r\n");
    let effects =
        exchange("m", "m with body = raw(\"hello\"), status = 203", [GET, &format!("{chunked}0\r\n\r\n")]);
    let sent = String::from_utf8_lossy(&effects[1].sends[0].2).into_owned();
    assert!(sent.starts_with("HTTP/1.1 203 OK\r\ntransfer-encoding: chunked\r\n\r\n"), "{sent} of {message}");
    assert!(!sent.contains("hello") && !sent.contains("content-length"), "{sent}");
}

/// RELIABILITY P9: text that a client chose never becomes a header of its own, nor a line, nor a target.
#[test]
fn p9_clients_write_no_headers_of_others() {
    let request = "m with headers[\"x-path\"] = (percent_decode(m.target) else \"\")[..99]";
    let target = "m with target = (percent_decode(m.target) else \"/\")[..99]";
    let reply = "response{status = 200, reason = (m.headers[\"x\"] else \"\")[..99], headers = [(\"location\", (percent_decode(m.headers[\"to\"] else \"\") else \"\")[..99])]}";
    for (rule, path, is_written) in [
        (request, "/a%20b", true),
        (request, "/a%0d%0aEvil:%201", false),
        (request, "/a%0aEvil:%201", false),
        (request, "/a%0d", false),
        (request, "/a%00", false),
        (request, "/a%zz", true),
        (target, "/a%7eb", true),
        (target, "/a%20HTTP/1.1%0d%0a", false),
        (target, "/a%20b", false),
    ] {
        let get = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let effects = exchange(rule, "m", [&get, OK]);
        assert_eq!(effects[0].sends.len(), usize::from(is_written), "{rule} {path}");
        assert_eq!(effects[0].failure.is_some(), !is_written, "{rule} {path}");
    }
    for (to, is_written) in [("/ok", true), ("/%0d%0aSet-Cookie:%20a=b", false), ("%00", false)] {
        let effects =
            exchange("m", reply, [GET, &OK.replace("ETag", "to").replace(": e\r", &format!(": {to}\r"))]);
        assert_eq!(effects[1].sends.len(), usize::from(is_written), "{to}");
    }
}
