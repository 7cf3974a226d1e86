//! State that outlives a message (locals, dictionaries, counters), and code that runs without one (handlers and
//! timers).

use flick_abi::{Event, FailureReason};

use crate::engines::Engines;
use crate::language::{check, effects, engines, msg};
use crate::session::Session;

/// Runs one request of `n text` and gives what left.
fn request(session: &mut Session<'_>, n: i64, text: &str) -> Vec<String> {
    effects(&session.receive("client", &msg(n, text), &mut |_, _| Err(FailureReason::Unavailable)))
}

fn check_with<'e>(engines: &'e Engines, run: impl FnOnce(&mut Session<'e>)) {
    run(&mut Session::new(engines, 3));
}

#[test]
fn a_local_may_be_of_any_type() {
    check(
        "type point: record
  x : int
  label : string<16>

type shape: variant
  circle : int
  named : string<10>

proc P: (msg/msg client, [msg/msg] backends)
  local at: point := point{x = 1, label = \"start\"}
  local last: option<string<200>> := none
  local pair: (int, bool) := (7, true)
  local shape: shape := shape.named(\"bc\")
  local when: time := now()
  | client => entry(client)
  | backends => client

fun entry: (-/msg client, req: msg) -> ()
  let before = last else \"none\"
  let (n, flag) = pair
  let name = at.label + \" \" + before[..20] + \" \" + spelled(shape)
  let sum = if flag: 0 else: nanos(now() - when)
  req with n = n * 1000 + sum, text = name => client
  at := at with label = \"moved\"
  last := some(req.text)
  pair := (n + 1, not flag)
  shape := if req.n == 6: shape.circle(3) else: shape.named(req.text[..2])

fun spelled: (s: shape) -> (string<10>)
  switch s:
    circle r: str(r)[..10]
    named name: name
",
        &[
            (5, "hello", &["client: 7000 start none bc"]),
            (6, "there", &["client: 8000 moved hello he"]),
            (6, "x", &["client: 9000 moved there 3"]),
        ],
    );
}

#[test]
fn dictionaries_keep_values_of_several_parts() {
    let text = "type point: record
  x : int
  label : string<200>

global places: dict<(int, string<200>), point> max 10 entries
global flags: dict<int, (int, option<bool>)> max 10 entries

fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  switch places[(req.n, req.text)]:
    some p: req with n = p.x, text = p.label => client
    none: req with text = \"new\" => client
  places[(req.n, req.text)] := point{x = req.n * 2, label = (req.text + \"!\")[..200]}
";
    check(
        text,
        &[
            (1, "a", &["client: 1 new"]),
            (2, "a", &["client: 2 new"]),
            (1, "a", &["client: 2 a!"]),
            (2, "a", &["client: 4 a!"]),
        ],
    );
    let engines = engines(text);
    let dicts = &engines.module.program.dicts;
    assert_eq!((dicts[0].key_bytes_max, dicts[0].value_bytes_max), (8 + 8 + 200, 8 + 8 + 200));
    assert_eq!((dicts[1].key_bytes_max, dicts[1].value_bytes_max), (8, 24));
}

#[test]
fn the_layout_follows_the_types() {
    let layout = |ty: &str| {
        let text = format!(
            "global d: dict<string<20>, {ty}> max 10 entries

fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  if req.text[..20] in d:
    req => client
"
        );
        engines(&text).module.program.dicts[0].layout
    };
    // Frozen: a snapshot of one release is read by the next.
    assert_eq!(layout("int"), layout("int"));
    assert_ne!(layout("int"), layout("uint8"));
    assert_ne!(layout("string<4>"), layout("string<5>"));
    assert_ne!(layout("(int, option<int>)"), layout("(int, int)"));
    assert_ne!(layout("(int, bool)"), layout("(bool, int)"));
}

#[test]
fn an_update_is_retried_until_it_commits() {
    let text = "global hits: dict<string<200>, int> max 10 entries

fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let n = update hits[req.text] from old: (old else 0) + req.n
  req with n = n => client
";
    let engines = engines(text);
    check_with(&engines, |session| {
        assert_eq!(request(session, 5, "a"), ["client: 5 a"]);
        session.with_platform(|platform| platform.lost_races = 3);
        assert_eq!(request(session, 6, "a"), ["client: 11 a"]);
        assert_eq!(session.platform().attempts, [0, 0, 1, 2, 3]);
        assert_eq!(request(session, 1, "b"), ["client: 1 b"]);
    });
}

#[test]
fn an_update_may_remove_and_large_ones_lock_at_once() {
    let text = "global left: dict<int, int> max 10 entries
global texts: dict<int, string<2000>> max 10 entries

fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let after = update left[req.n] from old:
    switch old:
      some n: if n > 1: some(n - 1) else: none
      none: some(2)
  let _text = update texts[req.n] from old: ((old else \"\") + req.text)[..2000]
  let there = if req.n in left: \"there\" else: \"gone\"
  req with n = after else 0, text = there => client
";
    let engines = engines(text);
    check_with(&engines, |session| {
        assert_eq!(request(session, 5, "a"), ["client: 2 there"]);
        assert_eq!(request(session, 5, "a"), ["client: 1 there"]);
        assert_eq!(request(session, 5, "a"), ["client: 0 gone"]);
        assert_eq!(session.platform().attempts, [0, 7, 0, 7, 0, 7]);
    });
}

#[test]
fn program_reads_the_state_of_its_dictionary_and_its_clients() {
    let text = "global first: dict<int, string<8>> max 10 entries
global second: dict<int, string<8>> max 10 entries

proc P: (msg/msg client, [msg/msg] backends)
  | client => entry(client)
  | backends => client

fun entry: (-/msg client, req: msg) -> ()
  first[1] := \"abc\"
  let used = if bytes_used(second) == 0 and bytes_used(first) >= 3: len(first) else: 0
  req with n = used * 100 + evictions(second) * 10 + open_clients() => client
";
    // This platform has removed seven entries of its first dictionary and eight of its second, and has three clients.
    check_with(&engines(text), |session| assert_eq!(request(session, 0, ""), ["client: 183 "]));
}

#[test]
fn counters_count_and_handlers_and_timers_run() {
    let text = "global served: counter
global level: gauge

proc P: (msg/msg client, [msg/msg] backends)
  local n := 3
  | client => entry(client)
  | backends => client
  except broken backends[i]:
    count(served, i)
    msg{n = i, text = \"broken\"} => client
  except timed_out backends[i]:
    set(level, value(served) + i)
  every 5s:
    count(level, -1)
    log(\"tick\")

fun entry: (-/msg client, req: msg) -> ()
  n := n + 1
  count(served)
  req with n = value(served) * 10 + n => client
";
    let engines = engines(text);
    check_with(&engines, |session| {
        let program = &engines.module.program;
        let handler =
            |event| program.handlers.iter().find(|handler| handler.event == event).expect("it is there");
        assert_eq!(request(session, 0, ""), ["client: 14 "]);
        assert_eq!(effects(&session.event(handler(Event::Broken).rule, 2)), ["client: 2 broken"]);
        session.event(handler(Event::TimedOut).rule, 1);
        assert_eq!(session.platform().counters[&1], 4);
        assert_eq!(program.timers[0].interval_ns, 5_000_000_000);
        session.event(program.timers[0].rule, 0);
        assert_eq!(session.platform().counters[&1], 3);
        assert_eq!(session.platform().log, ["tick"]);
        assert_eq!(request(session, 0, ""), ["client: 45 "]);
    });
}
