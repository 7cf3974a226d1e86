//! The language, construct by construct: a program, what arrives, what must leave. On both engines.

use flick_abi::FailureReason;

use crate::engines::Engines;
use crate::memcached::Message;
use crate::session::{Effects, Session};
use crate::source;

/// Messages of these tests: a number and a text. `!text` is a refusal of the platform.
const GRAMMAR: &str = "\
type msg = unit {
  %byteorder = big;
  n    : int64;
  len  : uint8;
  text : string<200> &length = self.len;
  %order = in_order;
};
";

/// A message of [`GRAMMAR`].
pub fn msg(n: i64, text: &str) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[text.len() as u8], text.as_bytes()].concat()
}

/// A message as `n text`.
fn shown(bytes: &[u8]) -> String {
    let n = i64::from_be_bytes(bytes[..8].try_into().expect("a message starts with its number"));
    assert_eq!(usize::from(bytes[8]), bytes.len() - 9, "the length follows the text");
    format!("{n} {}", String::from_utf8_lossy(&bytes[9..]))
}

/// Formats the effects of an activation, one line for each send (channel, element, message) and for a failure.
pub fn effects(effects: &Effects) -> Vec<String> {
    let sends = effects.sends.iter().map(|(channel, element, bytes)| {
        let name = ["client", "backends"][*channel as usize];
        match channel {
            0 => format!("{name}: {}", shown(bytes)),
            _ => format!("{name}[{element}]: {}", shown(bytes)),
        }
    });
    let failure = effects.failure.map(|reason| format!("fails {reason}"));
    sends.chain(failure).collect()
}

/// A process whose requests go through `entry`.
fn program(text: &str) -> String {
    let process = "proc P: (msg/msg client, [msg/msg] backends)\n";
    let rules = "  | client => entry(client, backends)\n  | backends => client\n";
    let view = "type msg: record\n  n : int\n  text : string<200>\n\n";
    match text.contains("\nproc ") || text.starts_with("proc ") {
        true => format!("use msg\n{view}{text}"),
        false => format!("use msg\n{view}{process}{rules}\n{text}"),
    }
}

/// Prepares a program of [`GRAMMAR`].
pub fn engines(text: &str) -> Engines {
    Engines::new(source::lower_with(&program(text), &[("msg", GRAMMAR)]))
}

/// `entry`, whose request is `req`.
fn entry(body: &str) -> String {
    let body: String = body.lines().map(|line| format!("  {line}\n")).collect();
    format!("fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()\n{body}")
}

/// Sends each request and compares what leaves; who is asked answers its number plus 100 and the text reversed,
/// or `unavailable` for the text `down`, `timeout` for `slow`.
pub fn check(text: &str, steps: &[(i64, &str, &[&str])]) {
    let engines = engines(text);
    let mut session = Session::new(&engines, 3);
    for (n, request, expected) in steps {
        let found = session.receive("client", &msg(*n, request), &mut |(_, _, bytes), _| answer(bytes));
        assert_eq!(effects(&found), *expected, "{n} {request}\n{text}");
    }
}

fn answer(bytes: &[u8]) -> Result<Vec<u8>, FailureReason> {
    let (n, text) = (i64::from_be_bytes(bytes[..8].try_into().expect("8 bytes")), &bytes[9..]);
    match text {
        b"down" => Err(FailureReason::Unavailable),
        b"slow" => Err(FailureReason::Timeout),
        text => {
            let text: String = String::from_utf8_lossy(text).chars().rev().collect();
            Ok(msg(n + 100, &text))
        }
    }
}

/// As [`check`], for a body of `entry`.
pub fn check_entry(body: &str, steps: &[(i64, &str, &[&str])]) {
    check(&entry(body), steps);
}

#[test]
fn an_ask_goes_on_with_the_reply_or_fails_the_request() {
    check_entry(
        "let reply = ask backends[req.n] with req
reply with n = reply.n + req.n => client",
        &[(1, "abc", &["client: 102 cba"]), (7, "down", &["fails 0"]), (2, "slow", &["fails 1"])],
    );
}

#[test]
fn a_local_counts_requests_of_its_session() {
    check(
        "proc P: (msg/msg client, [msg/msg] backends)
  local n := 40
  local last: string<200> := \"-\"
  | client => entry(client)
  | backends => client

fun entry: (-/msg client, req: msg) -> ()
  n := n + 1
  req with n = n, text = last => client
  last := req.text
",
        &[(0, "a", &["client: 41 -"]), (0, "bc", &["client: 42 a"]), (0, "", &["client: 43 bc"])],
    );
}

#[test]
fn messages_of_several_origins_meet() {
    check_entry(
        "let first = ask backends[0] with req else req
let second = if first.n > 100: (ask backends[1] with first) else: first with text = \"changed\"
let third = if second.n mod 2 == 0: second with n = second.n + 1000 else: second
third => backends[third.n]
third => client",
        &[
            (1, "abc", &["backends[201]: 201 abc", "client: 201 abc"]),
            (2, "abc", &["backends[1202]: 1202 abc", "client: 1202 abc"]),
            (3, "down", &["backends[3]: 3 changed", "client: 3 changed"]),
            (4, "down", &["backends[1004]: 1004 changed", "client: 1004 changed"]),
        ],
    );
}

#[test]
fn a_function_that_asks_is_part_of_its_rule() {
    check(
        "fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let a = fetch(backends[0], req)
  let b = fetch(backends[1], a)
  b with n = a.n + b.n => client

fun fetch: (msg/msg backend, req: msg) -> (msg)
  if req.text == \"direct\":
    req
  else:
    ask backend with req
",
        &[
            (1, "abc", &["client: 302 abc"]),
            (1, "tcerid", &["client: 202 direct"]),
            (5, "down", &["fails 0"]),
        ],
    );
}

#[test]
fn the_rest_of_a_changed_reply_follows_it() {
    let text = "use memcached_binary

type cmd: record
  opcode : int
  key    : string
  cas    : uint64

proc P: (cmd/cmd client, [cmd/cmd] backends)
  | client => entry(client, backends)
  | backends => client

fun entry: (-/cmd client, [cmd/cmd] backends, req: cmd) -> ()
  let reply = ask backends[0] with req
  reply with key = \"changed\", opcode = req.opcode => client
  reply => client
";
    let engines = Engines::new(source::lower(text, source::FIXTURE));
    let mut session = Session::new(&engines, 1);
    let request = Message { magic: 0x80, opcode: 0x0c, key: b"key".to_vec(), ..Message::default() };
    let reply = Message {
        magic: 0x81,
        cas: 7,
        opcode: 0x0c,
        extras: vec![1, 2, 3, 4],
        key: b"k".to_vec(),
        value: vec![b'v'; 5000],
        ..Message::default()
    };
    let effects = session.receive("client", &request.bytes(), &mut |asked, _| {
        assert_eq!(*asked, (1, 0, request.bytes()));
        Ok(reply.bytes())
    });
    let changed = Message { key: b"changed".to_vec(), ..reply.clone() };
    assert_eq!(effects.sends, [(0, 0, changed.bytes()), (0, 0, reply.bytes())]);
}
