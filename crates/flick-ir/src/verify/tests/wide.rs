//! Tests of the verifier's errors about loops, asks, state, calls of the platform and orders.

use crate::text;
use crate::verify::verify;

/// A program with one of everything.
const PROGRAM: &str = r#"program "p" {
  channel "c" single protocol 0
  channel "d" array protocol 0
  dict "one" max 9 key 8 value 16 evict lru layout 1
  counter "n"
  gauge "g"
  state 10
  rule 0 run f0 asks
} const "abc""#;

/// Verifies a rule against the messages expected, in order. `v2` is an integer, `v3` a channel, `v4` bytes.
fn check(body: &str, expected: &[&str]) {
    let function = format!(
        "fn f0 rule \"r\" {{ b0(v0: frame, v1: uint):
           v2: int = const 1 v3: chan = const 1 v4: bytes = const_bytes 0, 3 {body} }}"
    );
    check_text(&format!("{PROGRAM} {function}"), expected);
}

/// Verifies a rule that is resumed in state 1 at `b2`. Its own code starts at `b1`.
fn check_waiting(body: &str, expected: &[&str]) {
    let function = format!(
        "fn f0 rule \"r\" {{ b0(v0: frame, v1: uint):
           v2: int = resume_state v3: chan = const 0 switch v2 {{ 1: b2, else: b1 }} {body} }}"
    );
    check_text(&format!("{PROGRAM} {function}"), expected);
}

fn check_text(text: &str, expected: &[&str]) {
    let module = text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let messages: Vec<String> = verify(&module).iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{text}");
}

#[test]
fn loops_have_one_head_and_a_bound() {
    check("jump b1(v2) b1(v5: int) loop 3: v6: bool = lt_s v5, v2 branch v6, b1(v5), b2 b2(): return", &[]);
    check(
        "jump b1(v2) b1(v5: int): v6: bool = lt_s v5, v2 branch v6, b1(v5), b2 b2(): return",
        &["f0 `r`, b1: b1 is the head of a loop without a bound"],
    );
    check(
        "v5: bool = const 1 branch v5, b1, b2 b1() loop 3: branch v5, b2, b3 b2() loop 3: jump b1 b3(): return",
        &["f0 `r`, b2: b1 is a way back, but no head of a loop"],
    );
    // What is defined in the body is not there before it.
    check(
        "jump b1 b1() loop 3: v5: bool = lt_s v2, v6 branch v5, b2, b3 b2(): v6: int = const 3 jump b1 b3(): return",
        &["f0 `r`, b1: v6 is not defined on every way here"],
    );
}

#[test]
fn work_in_loops_counts_for_each_round() {
    let text = |trips: u32| {
        format!(
            "jump b1 b1() loop {trips}: v5: bool = const 1 branch v5, b2, b3
             b2(): send_original v3 jump b1 b3(): return"
        )
    };
    check(&text(256), &[]);
    check(&text(257), &["f0 `r`: sends up to 257 messages, more than 256"]);
    check(
        "jump b1 b1() loop 2000: v5: bool = const 1 branch v5, b2, b3
         b2(): v6: bytes = words_new v2 max 1024 jump b1 b3(): return",
        &["f0 `r`: builds up to 16384000 bytes, more than 8388608"],
    );
}

#[test]
fn facts_of_lengths_hold_in_loops() {
    let text = |bytes: u32| {
        format!(
            "{PROGRAM} fn f0 rule \"r\" {{ b0(v0: frame, v1: uint): return }}
             fn f1 parser \"p\" {{ b0(v0: frame, v1: int): need 4 -> b1 state 0
               b1(): jump b2(v1)
               b2(v2: int) loop 9: v3: int = load.u8be {bytes} v4: bool = lt_s v3, v2 branch v4, b2(v3), b3
               b3(): done }}"
        )
    };
    check_text(&text(3), &[]);
    check_text(&text(4), &["f1 `p`, b2: no `need` covers the load of bytes 4 to 5 of the message"]);
}

#[test]
fn suspensions_go_on_where_the_entry_says() {
    check_waiting("b1(): ask_original v3 timeout v2 suspend -> b2 state 1 b2(): return", &[]);
    check_waiting(
        "b1(): suspend -> b2 state 2 b2(): return",
        &[
            "f0 `r`, b1: the entry does not go on at b2 in state 2",
            "f0 `r`: the entry goes on at b2 in state 1, which nothing leaves behind",
        ],
    );
    check_waiting(
        "b1(): suspend -> b3 state 1 b2(): return b3(): return",
        &[
            "f0 `r`, b1: the entry does not go on at b3 in state 1",
            "f0 `r`: the entry goes on at b2 in state 1, which nothing leaves behind",
        ],
    );
    check_waiting(
        "b1(): v4: bool = const 1 branch v4, b3, b2 b2(): return b3(): suspend -> b2 state 1",
        &["f0 `r`, b3: b2 has another way in"],
    );
    check(
        "suspend -> b1 state 0 b1(): v5: int = resume_state return",
        &[
            "f0 `r`, b0: 0 is no state of its own to go on in",
            "f0 `r`, b0: b1 has another way in",
            "f0 `r`, b0: the entry does not go on at b1 in state 0",
            "f0 `r`, b1: only the entry asks in which state it goes on",
        ],
    );
    check_waiting(
        "b1(): v4: int = const 1 ask_original v3 timeout v2 suspend -> b2 state 1 b2(): v5: int = add v4, v4 return",
        &[
            "f0 `r`, b2: v4 is not defined on every way here",
            "f0 `r`, b2: v4 is not defined on every way here",
        ],
    );
}

#[test]
fn asks_are_waited_for() {
    check("ask_original v3 timeout v2 return", &["f0 `r`, b0: what was asked is not waited for"]);
    let asks = "ask_original v3 timeout v2 ".repeat(65);
    check_waiting(
        &format!("b1(): {asks} suspend -> b2 state 1 b2(): return"),
        &["f0 `r`, b1: waits for 65 answers, more than 64"],
    );
    check_waiting(
        &format!("b1(): {} suspend -> b2 state 1 b2(): return", "ask_original v3 timeout v2 ".repeat(64)),
        &[],
    );
}

#[test]
fn words_are_kept_before_they_are_asked_for() {
    check_waiting("b1(): spill_set 0, v3 suspend -> b2 state 1 b2(): v4: chan = spill_get 0 return", &[]);
    check_waiting(
        "b1(): spill_set 1, v3 suspend -> b2 state 1 b2(): v4: chan = spill_get 0 return",
        &["f0 `r`, b2: word 0 is not kept on every way here"],
    );
    check_waiting(
        "b1(): spill_set 0, v2 suspend -> b2 state 1 b2(): v4: chan = spill_get 0 return",
        &["f0 `r`, b2: word 0 is kept as two types"],
    );
    check_waiting(
        "b1(): spill_set 512, v2 suspend -> b2 state 1 b2(): return",
        &["f0 `r`, b1: nothing is kept in word 512"],
    );
    check_waiting(
        "b1(): v4: bool = const 1 branch v4, b3, b4 b2(): v5: int = spill_get 0 return
         b3(): spill_set 0, v2 jump b4 b4(): suspend -> b2 state 1",
        &["f0 `r`, b2: word 0 is not kept on every way here"],
    );
}

#[test]
fn only_rules_wait_and_only_where_the_program_says() {
    let helper =
        "fn f1 helper \"h\" { b0(v0: chan, v1: int): ask_original v0 timeout v1 suspend -> b1 state 1
        b1(): v2: int = answer v1 spill_set 0, v1 return }";
    check_text(
        &format!("{PROGRAM} fn f0 rule \"r\" {{ b0(v0: frame, v1: uint): return }} {helper}"),
        &[
            "f1 `h`, b0: a Helper does not `ask_original`",
            "f1 `h`, b0: a Helper does not suspend",
            "f1 `h`, b1: a Helper does not `answer`",
            "f1 `h`, b1: a Helper does not `spill_set`",
        ],
    );
    let waiting =
        "fn f0 rule \"r\" { b0(v0: frame, v1: uint): v2: int = resume_state switch v2 { 1: b2, else: b1 }
        b1(): suspend -> b2 state 1 b2(): return }";
    let program =
        PROGRAM.replace("run f0 asks", "run f0").replace("state 10", "state 10 init f0 handler closed 0 f0");
    check_text(
        &format!("{program} {waiting}"),
        &[
            "the code of rule 0 is f0, which must not suspend",
            "the code of handler 0 is f0, which must not suspend",
            "what starts the state is f0, which must not suspend",
        ],
    );
}

#[test]
fn operations_get_what_they_are_made_for() {
    for (op, expected) in [
        ("v5: bytes = concat(v4, v2) max 9", "`concat` takes bytes, but v2 is int"),
        ("v5: bytes = concat(v4) max 8388609", "no output has room for 8388609 bytes"),
        ("v5: bytes = pack(v3) max 9", "`pack` takes what is packed, but v3 is chan"),
        ("v5: bytes = format_int.s7 v2", "no number is written in base 7"),
        ("v5: bytes = split v4, v4 max 0", "`split` makes 1 to 1024 parts, not 0"),
        ("v5: bytes = split v4, v4 max 1025", "`split` makes 1 to 1024 parts, not 1025"),
        ("v5: bytes = words_new v4 max 9", "`words_new` takes a number, but v4 is bytes"),
        ("v5: frame = word_get v4, v2", "v5 is frame, but `word_get` gives what a list holds"),
        ("word_set v4, v2, v0", "`word_set` takes what a list holds, but v0 is frame"),
        ("v5: int = slice v4, v2, v2", "v5 is int, but `slice` gives bytes"),
        ("v5: message = const 0", "0 is no message"),
        ("v5: message = as_message v4", "`as_message` takes a number, but v4 is bytes"),
        ("v5: int = message_get v2, 9", "`message_get` takes message, but v2 is int"),
        ("send_message v3, v2", "`send_message` takes message, but v2 is int"),
        ("fail v4", "`fail` takes a number, but v4 is bytes"),
        ("v5: int = state_load 10", "the state has no words from 10 to 11"),
        ("v5: bytes = state_load 1", "v5 is bytes, but `state_load` gives what a word of state holds"),
        ("state_store 9, v4", "`state_store` takes what a word of state holds, but v4 is bytes"),
        ("v5: bytes = state_load_bytes 8 max 9", "the state has no words from 8 to 11"),
        ("state_store_bytes 8, v4 max 9", "the state has no words from 8 to 11"),
        ("v5: bool = is_missing v2", "`is_missing` takes bytes, but v2 is int"),
        ("v5: int = host now(v2)", "`host now` takes 0 values, but gets 1"),
        ("v5: int = host pick.ketama(v2, v4)", "`host` takes chan, but v2 is int"),
        ("v5: int = host log(v4)", "v5 stays undefined: `host` gives nothing"),
        ("v5: bytes = host dict_get.1(v4) max 16", "`host dict_get.1` is about what the program has not"),
        ("v5: bytes = host dict_get.0(v4) max 15", "`host dict_get.0` gives more than 15 bytes"),
        ("v5: bytes = host peer(v3) max 17", "`host peer` gives more than 17 bytes"),
        ("v5: bool = host dict_has.0(v4) max 1", "`host dict_has.0` gives no bytes"),
        ("host counter_add.2(v2)", "`host counter_add.2` is about what the program has not"),
        ("host gauge_set.0(v2)", "`host gauge_set.0` is about what the program has not"),
        ("ask_message v3, v2 timeout v2", "`ask_message` takes message, but v2 is int"),
    ] {
        let ends = if op.starts_with("ask") { "jump b1 b1() loop 0: jump b1" } else { "return" };
        let found = format!("f0 `r`, b0: {expected}");
        check(&format!("{op} {ends}"), &[&found]);
    }
}

#[test]
fn orders_only_read() {
    let order = |body: &str| {
        format!(
            "{PROGRAM} fn f0 rule \"r\" {{ b0(v0: frame, v1: uint): return }}
             fn f1 helper \"pure\" {{ b0(v0: int): v1: int = add v0, v0 return }}
             fn f2 helper \"effects\" {{ b0(v0: int): call f3(v0) return }}
             fn f3 helper \"counter\" {{ b0(v0: int): host counter_add.0(v0) return }}
             fn f4 order \"o\" -> int {{ b0(v0: frame): v1: int = const 1 {body} }}"
        )
    };
    check_text(
        &order(
            "v2: message = as_message v1 v3: bytes = message_get v2, 9 v4: bytes = lower v3 max 9 call f1(v1) return v1",
        ),
        &[],
    );
    check_text(&order("call f2(v1) return v1"), &["f4 `o`: an Order only reads, and so does what it calls"]);
    check_text(&order("v2: int = out_mark return v1"), &["f4 `o`, b0: a Order does not `out_mark`"]);
    check_text(
        &order("return").replace("order \"o\" -> int", "order \"o\""),
        &["f4 `o`: an Order gives one int"],
    );
}

#[test]
fn what_the_program_keeps_is_bounded() {
    let text = r#"program "p" {
        channel "c" single protocol 0
        merge 0 order f0 combine f0 pass 7
        handler broken 9 f0
        timer 0 f1
        dict "big" max 0 key 4097 value 1 evict lru layout 1
        state 8193
      } fn f0 rule "r" { b0(v0: frame, v1: uint): return }"#;
    check_text(
        text,
        &[
            "the order of merge 0 is f0, which is no Order",
            "the code of timer 0 is f1, which is no Rule",
            "timer 0 has no interval",
            "merge 0 is of no array of channels",
            "merge 0 names a channel that does not exist",
            "handler 0 names a channel that does not exist",
            "a program has at most 8192 words of state, not 8193",
            "dictionary `big` has too long keys or values",
            "dictionary `big` has no room",
        ],
    );
}
