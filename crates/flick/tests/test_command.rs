//! `flick test` as an author meets it.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::{Scratch, run};

/// Passes everything on to one of two backends of different channels.
const PROGRAM: &str = r#"use memcached_binary

type cmd: record
  key : string

proc Tiers: (cmd/cmd client, cmd/cmd first, [cmd/cmd] copies)
  | first => client
  | copies => client
  | client => pick(first, copies)

fun pick: (-/cmd first, [-/cmd] copies, req: cmd) -> ()
  if starts_with(req.key, "a"): req => first
  else: req => copies[1]
"#;

/// Plays scenarios beside [`PROGRAM`] and compares the status; each of `said` must be in stdout or stderr.
fn check(scenarios: &[(&str, &str)], args: &[&str], status: i32, said: &[&str]) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let folder = Scratch::new(&format!("test-command-{}", CALLS.fetch_add(1, Ordering::Relaxed)));
    folder.write("tiers.flick", PROGRAM);
    for (name, text) in scenarios {
        folder.write(name, text);
    }
    let path = folder.path().display().to_string();
    let (actual, stdout, stderr) = run(&[&["test", &path], args].concat());
    assert_eq!(actual, status, "stdout: {stdout}\nstderr: {stderr}");
    for text in said {
        assert!(stdout.contains(text) || stderr.contains(text), "no `{text}` in {stdout}\n{stderr}");
    }
}

const RIGHT: &str = r#"backends first 1
backends copies 2
seeds 25
client a sends get "alpha" opaque 3, sends get "beta" opaque 4
backend first expects get "alpha", sends get ok value "1"
backend copies 1 expects get "beta", sends get ok value "2"
client a expects get ok value "1" opaque 3, expects get ok value "2" opaque 4
client a closes
expect quiet
"#;

#[test]
fn passed_scenarios_are_counted() {
    check(&[("right.scn", RIGHT)], &[], 0, &["right.scn ... ok", "25 seeds", "1 passed, 0 failed"]);
}

#[test]
fn failed_scenario_is_shown_with_a_diagram_and_a_command() {
    let wrong = RIGHT.replace("value \"2\" opaque 4\n", "value \"3\" opaque 4\n");
    let said = [
        "wrong.scn ... FAILED with seed 1 (compiled)",
        "line 7: got get ok value \"2\" opaque 4",
        "a get \"alpha\" opaque 3",
        "copies 1",
        "wrong.scn --seed 1",
        "1 passed, 1 failed",
    ];
    check(&[("right.scn", RIGHT), ("wrong.scn", &wrong)], &[], 1, &said);
    check(&[("wrong.scn", &wrong)], &["--engine", "interpreter"], 1, &["(interpreted)"]);
}

#[test]
fn scenario_was_not_played_with_the_last_seed() {
    let wrong = RIGHT.replace("value \"2\" opaque 4\n", "value \"3\" opaque 4\n");
    let last = u64::MAX.to_string();
    check(&[("wrong.scn", &wrong)], &["--seed", &last], 1, &[&format!("FAILED with seed {last}")]);
    check(&[("right.scn", RIGHT)], &["--seed", &last], 0, &["right.scn ... ok"]);
}

#[test]
fn expectations_compare_bytes() {
    let raw = "backends first 1\nbackends copies 2\n\
               client a sends \"\\x80\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"\n\
               \x20              \"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"\n\
               backend copies 1 expects \"\\x80\" ... \"\\x00\\x00\\x00\", expects 19 bytes, expects nothing for 1 ms\n";
    let said = ["ok"];
    check(&[("raw.scn", raw)], &["--seed", "1"], 0, &said);
}

#[test]
fn errors_in_scenarios_name_the_line() {
    check(
        &[("bad.scn", "client a dances")],
        &[],
        1,
        &["bad.scn, line 1: `dances` is not an action; the actions are `sends`"],
    );
    check(&[("bad.scn", "backend third expects \"x\"")], &[], 1, &["line 1: `third` has no backends"]);
    check(&[("few.scn", "backends first 1\nclient a closes")], &[], 1, &["channel `copies`", "is not bound"]);
    let both = [
        "bad.scn, line 1: `dances`",
        "worse.scn, line 2: `third` has no",
        "right.scn ... ok",
        "1 passed, 2 failed",
    ];
    let worse = "backends first 1\nbackend third expects \"x\"";
    check(&[("bad.scn", "client a dances"), ("worse.scn", worse), ("right.scn", RIGHT)], &[], 1, &both);
    let broken = [("broken.flick", "proc P: ("), ("of_it.scn", "service broken.flick\nclient a closes")];
    let right = [("right.scn", &*RIGHT.replacen("backends", "service tiers.flick\nbackends", 1))];
    check(&[&broken[..], &right[..]].concat(), &[], 1, &["error[", "right.scn ... ok", "1 passed, 1 failed"]);
    check(&[], &[], 1, &["no scenario found", "client a  sends"]);
    check(
        &[("two.flick", PROGRAM), ("right.scn", RIGHT)],
        &[],
        1,
        &["2 programs are beside", "`service tiers.flick`"],
    );
}

/// Counts requests, and those in flight.
const COUNTING: &str = r#"type q = unit { m : decimal<2>; "\n"; };
global asked: counter
global last: gauge

proc P: (q/q client)
  | client => noted() => client

fun noted: (req: q) -> (q)
  count(asked, 2)
  set(last, 0 - req.m)
  req
"#;

#[test]
fn expectations_on_counters_of_the_program() {
    let scenario = |last: &str| {
        format!(
            "service counting.flick\nclient a sends \"7\\n\", expects \"7\\n\"\nexpect counter asked == 2\n\
             expect counter last == {last}\nexpect counter connections_accepted == 1\n"
        )
    };
    let files = |text| [("counting.flick", COUNTING.to_owned()), ("counting.scn", text)];
    let play = |last, status, said| {
        let files = files(scenario(last));
        check(&files.each_ref().map(|(name, text)| (*name, text.as_str())), &[], status, &[said]);
    };
    play("-7", 0, "1 passed");
    play("8", 1, "counter last is -7, not 8");
}

/// Gives a backend, and a client, two messages where one is due.
const DOUBLE: &str = r#"type q = unit {
  m : decimal<2>; "\n";
  %replies = r;
  %order   = in_order;
};
type r = unit { code : decimal<3>; "\n"; };

proc P: (q/r client, [r/q] backends)
  | backends => client
  | client => to(client, backends)

fun to: (-/r client, [-/q] backends, req: q) -> ()
  if req.m == 1: q{wire = wire(req) + wire(req)} => backends[0]
  else: r{wire = "100\n200\n"} => client
"#;

#[test]
fn second_reply_to_one_request_is_never_sent() {
    let scenario = "service double.flick\nclient a sends \"1\\n\"\nbackend 0 expects nothing for 20 ms\n\
                    client a expects closed\nclient b sends \"2\\n\", expects closed\n";
    check(&[("double.flick", DOUBLE), ("double.scn", scenario)], &[], 0, &["1 passed"]);
}

#[test]
fn library_beside_the_program_is_not_the_subject() {
    let library = "type line = unit { text : string<8> &until = \"\\n\"; };\n";
    check(&[("library.flick", library), ("right.scn", RIGHT)], &[], 0, &["1 passed"]);
}

#[test]
fn scenarios_of_all_examples_pass() {
    let (status, stdout, stderr) = run(&["test", "examples"]);
    assert_eq!(status, 0, "stdout: {stdout}\nstderr: {stderr}");
    assert!(stdout.contains("mqtt_gateway") && stdout.contains("stomp_gateway"), "all are found: {stdout}");
}

#[test]
fn scenario_names_its_process() {
    let folder = Scratch::new("test-process");
    let process =
        |name: &str, word: &str| format!("proc {name}: (line/line client)\n  | client => {word}(client)\n");
    let fun = |word: &str| {
        format!("fun {word}: (-/line client, req: line) -> ()\n  line{{text = \"{word}\"}} => client\n")
    };
    let grammar = "type line = unit {\n  %order = in_order;\n  text : string<64> &until = \"\\n\";\n};\n";
    let program = [grammar.to_owned(), process("One", "one"), process("Two", "two"), fun("one"), fun("two")];
    folder.write("both.flick", &program.join("\n"));
    folder.write("first.scn", "client a  sends \"x\\n\", expects \"one\\n\"\n");
    folder.write("second.scn", "process Two\nclient a  sends \"x\\n\", expects \"two\\n\"\n");
    folder.write("third.scn", "process Three\nclient a  sends \"x\\n\"\n");
    let path = folder.path().display().to_string();
    let (status, stdout, stderr) = run(&["test", &path]);
    assert_eq!(status, 1, "{stdout}\n{stderr}");
    assert!(stdout.contains("2 passed, 1 failed"), "{stdout}\n{stderr}");
    assert!(stderr.contains("no process `Three`; its processes are: One, Two"), "{stdout}\n{stderr}");
}
