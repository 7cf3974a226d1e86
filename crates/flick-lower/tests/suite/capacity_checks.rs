//! Branches that are taken only where there is room for what they build: `room()`.

use flick_abi::FailureReason;
use flick_abi::limits::{BUILT_BYTES_MAX, CAPACITY_CHECK_BYTES_MAX};

use crate::language::{effects, engines, msg};
use crate::session::Session;

/// Rounds of the programs' repetition.
const ROUNDS: usize = 100;
/// Texts of a hundred bytes, doubled eleven times.
const LONGEST: usize = 100 << 11;

/// Builds something long in each round, and as long a text behind the repetition.
const BUILDS: &str = "proc P: (msg/msg client, [msg/msg] backends)
  | client => told(client)
  | backends => client

fun told: (-/msg client, req: msg) -> ()
  for i in 0..100:
    if room():
      req with n = i, text = str(len(doubled(req.text))) => client
    else:
      req with n = i, text = \"no room\" => client
  req with text = str(len(doubled(req.text))) => client

fun doubled: (text: string<200>) -> (string<200KiB>)
  fold i in 0..11, all = \"\": (if i == 0: (text + text)[..200KiB] else: (all + all)[..200KiB])
";

/// Returns what each round of [`BUILDS`] sends, and what the function sends after the loop.
fn said(text: &str) -> (Vec<String>, String) {
    let engines = engines(BUILDS);
    let mut session = Session::new(&engines, 1);
    let mut answer = |_: &_, _| Err(FailureReason::Unavailable);
    let mut all = effects(&session.receive("client", &msg(0, text), &mut answer));
    let last = all.pop().expect("something is sent behind the repetition");
    (all, last)
}

#[test]
fn iterations_that_build_little_all_have_capacity() {
    let (rounds, last) = said("x");
    let expected: Vec<String> = (0..ROUNDS).map(|n| format!("client: {n} 2048")).collect();
    assert_eq!(rounds, expected);
    assert_eq!(last, "client: 0 2048");
}

#[test]
fn iterations_that_build_much_have_capacity_up_to_the_bound() {
    let (rounds, last) = said(&"x".repeat(100));
    let fit = rounds.iter().take_while(|outcome| !outcome.ends_with("no room")).count();
    let built = 2 * LONGEST * fit;
    assert!(built <= CAPACITY_CHECK_BYTES_MAX, "{fit} rounds build {built} bytes");
    // What the next one might have built, with the longest text of 200 bytes, did not fit.
    let longest = 12 * 2 * 200 * 1024;
    assert!(
        longest < BUILT_BYTES_MAX && built + longest > CAPACITY_CHECK_BYTES_MAX,
        "{fit} rounds build {built} bytes"
    );
    let expected = (0..ROUNDS).map(|n| {
        let text = if n < fit { LONGEST.to_string() } else { "no room".to_owned() };
        format!("client: {n} {text}")
    });
    assert_eq!(rounds, expected.collect::<Vec<_>>());
    assert_eq!(last, format!("client: 0 {LONGEST}"));
}
