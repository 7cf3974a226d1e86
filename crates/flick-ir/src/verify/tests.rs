//! Tests of the verifier's errors, one text for each rule.

mod wide;

use super::verify;
use crate::text;

/// Verifies the functions of a text against the messages expected, in order.
fn check(functions: &str, expected: &[&str]) {
    let program = r#"program "p" { channel "c" single protocol 0 channel "d" array protocol 0 } const "abc""#;
    let module = text::parse(&format!("{program} {functions}")).expect("the test's text is of the form");
    let messages: Vec<String> = verify(&module).iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{functions}");
}

fn check_parser(body: &str, expected: &[&str]) {
    check(&format!("fn f0 parser \"p\" {{ b0(v0: frame, v1: int): {body} }}"), expected);
}

fn check_rule(body: &str, expected: &[&str]) {
    check(&format!("fn f0 rule \"r\" {{ b0(v0: frame, v1: uint): {body} }}"), expected);
}

#[test]
fn loads_want_a_need_of_the_same_base() {
    check_parser("need 4 -> b1 state 0 b1(): v2: int = load.u32be 0 done", &[]);
    let load = "f0 `p`, b1: no `need` covers the load of";
    check_parser(
        "need 4 -> b1 state 0 b1(): v2: int = load.u32be 1 done",
        &[&format!("{load} bytes 1 to 5 of the message")],
    );
    check_parser(
        "v2: int = frame_get 9 need v2 + 4 -> b1 state 0 b1(): v3: int = load.u16be v2 + 2 done",
        &[],
    );
    check_parser(
        "v2: int = frame_get 9 v3: int = frame_get 9 need v2 + 4 -> b1 state 0
         b1(): v4: int = load.u16be v3 + 2 done",
        &[&format!("{load} bytes v3 + 2 to v3 + 4 of the message")],
    );
}

#[test]
fn a_need_on_one_of_two_paths_covers_nothing_behind_their_meeting() {
    let text = |second: u32| {
        format!(
            "v2: bool = const 1 branch v2, b1, b2
             b1(): need 8 -> b3 state 0
             b2(): need {second} -> b3 state 1
             b3(): v3: int = load.u64le 0 done"
        )
    };
    check_parser(&text(8), &[]);
    check_parser(&text(7), &["f0 `p`, b3: no `need` covers the load of bytes 0 to 8 of the message"]);
}

#[test]
fn bytes_of_the_message_want_a_need_of_their_end() {
    let text = |base: &str| {
        format!(
            "v2: int = frame_get 9 v3: int = frame_get 10 need {base} + 0 -> b1 state 0
             b1(): v4: bytes = message_bytes v2, v3 frame_set 8, v4 done"
        )
    };
    check_parser(&text("v3"), &[]);
    check_parser(&text("v2"), &["f0 `p`, b1: no `need` covers the bytes up to v3 of the message"]);
}

#[test]
fn values_are_used_as_what_they_are() {
    check_rule("v2: bool = add v1, v1 return", &["f0 `r`, b0: v2 is bool, but `add` gives a number"]);
    check_rule(
        "v2: bytes = const_bytes 0, 3 v3: uint = add v1, v2 return",
        &["f0 `r`, b0: `add` takes a number, but v2 is bytes"],
    );
    check_rule("v2: bool = const 2 return", &["f0 `r`, b0: 2 is no bool"]);
    check_rule("v2: chan = const 2 return", &["f0 `r`, b0: 2 is no chan"]);
    check_rule(
        "v2: bytes = const_bytes 1, 3 return",
        &["f0 `r`, b0: the program has no constants from 1 to 4"],
    );
    check_rule("v2: int = frame_get 71 return", &["f0 `r`, b0: a frame has no slot 71"]);
    check_rule("jump b1 b1(v2: int): return", &["f0 `r`, b0: b1 takes 1 values, but gets 0"]);
    check_rule("jump b1(v0) b1(v2: int): return", &["f0 `r`, b0: b1 takes int, but v0 is frame"]);
}

#[test]
fn values_come_before_their_uses() {
    check_rule(
        "v2: bool = const 1 branch v2, b1, b2 b1(): v3: int = const 1 jump b2 b2(): v4: int = add v3, v3 return",
        &[
            "f0 `r`, b2: v3 is not defined on every way here",
            "f0 `r`, b2: v3 is not defined on every way here",
        ],
    );
    check_rule(
        "v2: uint = add v3, v3 v3: uint = const 1 return",
        &[
            "f0 `r`, b0: v3 is not defined on every way here",
            "f0 `r`, b0: v3 is not defined on every way here",
        ],
    );
    check_rule("v2: int = const 1 v2: int = const 2 return", &["f0 `r`: v2 is defined twice"]);
}

#[test]
fn loops_and_recursion_are_refused() {
    check_rule(
        "jump b1 b1(): jump b2 b2(): jump b1",
        &["f0 `r`, b2: b1 is the head of a loop without a bound"],
    );
    check_rule("jump b0", &["f0 `r`: the entry is no target"]);
    check(
        "fn f0 helper \"a\" { b0(): call f1() return } fn f1 helper \"b\" { b0(): call f0() return }",
        &["f0 `a`: the function calls itself"],
    );
}

#[test]
fn every_kind_has_its_instructions() {
    check_rule("frame_set 8, v1 return", &["f0 `r`, b0: a Rule does not `frame_set`"]);
    check_rule("done", &["f0 `r`, b0: a Rule does not end in a step"]);
    check_parser(
        "v2: chan = const 0 send_original v2 done",
        &["f0 `p`, b0: a Parser does not `send_original`"],
    );
    check_parser("return", &["f0 `p`, b0: a Parser does not return"]);
    check(
        "fn f0 builder \"x\" { b0(v0: frame): v1: chan = const 0 v2: int = chan_len v1 return }",
        &["f0 `x`, b0: a Builder does not `chan_len`"],
    );
    check("fn f0 rule \"r\" { b0(v0: frame): return }", &["f0 `r`: a Rule takes (frame, uint)"]);
}

#[test]
fn sends_are_bounded() {
    let send = "send_original v2 ".repeat(257);
    check_rule(
        &format!("v2: chan = const 0 {send} return"),
        &["f0 `r`: sends up to 257 messages, more than 256"],
    );
}

#[test]
fn the_platform_finds_functions_of_the_right_kind() {
    let text = r#"program "p" { channel "c" single protocol 0 rule 0 run f0 rule 3 pass 0 }
        fn f0 helper "h" { b0(): return }"#;
    let module = text::parse(text).expect("the test's text is of the form");
    let messages: Vec<String> = verify(&module).iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        ["the code of rule 0 is f0, which is no Rule", "rule 1 names a channel that does not exist"]
    );
}
