//! Asks whose answers may be missing, and asks of many, on both engines.

use crate::language::{check, check_entry};

#[test]
fn an_ask_may_have_another_value_or_none() {
    check_entry(
        "let reply = ask backends[0] with req timeout 50ms else msg{n = 7, text = \"else\"}
reply => client",
        &[(1, "abc", &["client: 101 cba"]), (2, "down", &["client: 7 else"])],
    );
    check_entry(
        "let reply = ask backends[0] with req else none
switch reply:
  some r: r with text = \"got\" => client
  none: req with text = \"none\" => client",
        &[(1, "abc", &["client: 101 got"]), (2, "down", &["client: 2 none"])],
    );
}

#[test]
fn all_of_an_array_are_asked_at_once() {
    check_entry(
        "let replies = ask all backends with (req with text = \"to all\")
let texts = map reply in replies:
  switch reply:
    some r: r.text
    none: \"-\"
req with n = len(replies), text = texts[2] else \"nothing\" => client",
        &[(1, "abc", &["client: 3 lla ot"])],
    );
    check_entry(
        "let replies = ask all [backends[0] with req, backends[1] with (req with text = \"down\")] timeout 1s
let got = fold reply in replies, sum = 0:
  switch reply:
    some r: sum + r.n
    none: sum + 1000
req with n = got => client",
        &[(1, "abc", &["client: 1101 abc"]), (1, "down", &["client: 2000 down"])],
    );
}

#[test]
fn each_element_of_a_list_is_asked_for_somewhere() {
    check_entry(
        "let parts = split(req.text, \",\", 4)
let replies = ask all [part in parts: backends[len(part) mod len(backends)] with (req with text = part)] timeout 1s
let texts = map reply in replies:
  switch reply:
    some r: r.text
    none: \"-\"
req with n = len(replies), text = ((texts[0] else \"\") + (texts[2] else \"nothing\"))[..200] => client",
        &[
            (1, "ab,down,cd", &["client: 3 badc"]),
            (2, "down", &["client: 1 -nothing"]),
            (3, "", &["client: 1 nothing"]),
        ],
    );
    check_entry(
        "let n = len(req.text) mod 4
let replies = ask all [i in 0..n: backends[i mod len(backends)] with (req with n = req.n + i)]
let sum = fold reply in replies, sum = 0:
  switch reply:
    some r: sum + r.n
    none: sum
req with n = sum => client",
        &[(1, "abc", &["client: 306 abc"]), (1, "", &["client: 0 "])],
    );
}

#[test]
fn replies_in_a_list_go_to_functions_and_leave() {
    check(
        "fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()
  let replies = ask all backends with req
  let good = filter reply in replies: reply != none
  let n = sum_of(good)
  switch replies[1]:
    some reply:
      switch reply:
        some r: r with n = n => client
        none: req with text = \"unanswered\" => client
    none: req => client

fun sum_of: (replies: [option<msg>]<64>) -> (int)
  fold reply in replies, sum = 0:
    switch reply:
      some r: sum + r.n + len(r.text)
      none: sum
",
        &[(1, "abc", &["client: 312 cba"]), (1, "down", &["client: 1 unanswered"])],
    );
}
