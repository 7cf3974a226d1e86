//! Messages of grammars that programs write again: all fields replaced by themselves give the same bytes, and a message
//! built from all fields of another reads as the other. RELIABILITY P2 and P3.
//! `FLICK_TEST_CASES` asks for another number of messages of each grammar, `FLICK_SEED` for one message.

#[path = "suite/engines.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod engines;
#[path = "suite/platform.rs"]
mod platform;
#[path = "suite/session.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod session;
#[path = "suite/source.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod source;

#[path = "messages/decode.rs"]
mod decode;
#[path = "messages/env.rs"]
mod env;
#[path = "messages/generate.rs"]
mod generate;
#[path = "messages/grammars.rs"]
mod grammars;

use decode::{Verdict, decode};
use engines::Engines;
use flick_testkit::generate::Rng;
use generate::Generator;
use grammars::{BINARY, CALC};
use session::Session;

/// Messages of each grammar.
const CASES: u64 = 150;
/// At least this share of what is made must be of the grammar, in percent, or the test tests nothing.
const GOOD_PERCENT_MIN: u64 = 20;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FLICK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_TEST_CASES").unwrap_or(CASES),
    }
}

/// Sends each message of a grammar as `made` says (`m` is the message), and holds what left against it.
fn check(name: &str, grammar: &str, made: &str, is_right: impl Fn(&[u8], &[u8], &str)) {
    let text = format!(
        "use {name}\nproc P: (msg/msg client, msg/msg server)\n  client => step(server)\n  server => client\n\n\
         fun step: (-/msg server, m: msg) -> ()\n  {made} => server\n"
    );
    let (program, module) = source::try_lower_with(&text, &[(name, grammar)]).expect("it is a program");
    let engines = Engines::new(module);
    let unit = program.units.iter().find(|unit| unit.name == "msg").expect("the grammar has a `msg`");
    let generator = Generator::new(&program, unit);
    let (mut good, mut all) = (0, 0);
    for seed in seeds() {
        let message = generator.message(&mut Rng::new(seed), 0);
        let context = format!("FLICK_SEED={seed} {made}, \"{}\"", message.escape_ascii());
        let (verdict, _) =
            decode(&program, unit, &message, 0).unwrap_or_else(|unknown| panic!("{unknown:?}"));
        all += 1;
        if verdict != Verdict::Done(message.len() as u64) {
            continue;
        }
        good += 1;
        let mut session = Session::new(&engines, 1);
        let effects = session.receive("client", &message, &mut |_, _| panic!("nothing is asked"));
        assert_eq!((effects.failure, effects.sends.len()), (None, 1), "{context}");
        let sent = &effects.sends[0].2;
        let (verdict, _) = decode(&program, unit, sent, 0).unwrap_or_else(|unknown| panic!("{unknown:?}"));
        assert_eq!(verdict, Verdict::Done(sent.len() as u64), "\"{}\" from {context}", sent.escape_ascii());
        is_right(&message, sent, &context);
    }
    let percent = good * 100 / all;
    assert!(all < 100 || percent >= GOOD_PERCENT_MIN, "{name}: only {percent} % are messages");
}

/// Checks that the message sent equals the message received, byte by byte.
fn same_bytes(message: &[u8], sent: &[u8], context: &str) {
    assert_eq!(sent.escape_ascii().to_string(), message.escape_ascii().to_string(), "{context}");
}

#[test]
fn fields_replaced_by_themselves_change_nothing() {
    for made in [
        "m with count = m.count",
        "m with verb = m.verb, count = m.count, key = m.key",
        "m with data = m.data, count = m.count",
    ] {
        check("calc", CALC, made, same_bytes);
    }
    for made in [
        "m with version = m.version, kind = m.kind",
        "m with id = m.id, signed = m.signed, vint = m.vint",
        "m with size = m.size, vint = m.vint",
    ] {
        check("binary", BINARY, made, same_bytes);
    }
}

#[test]
fn messages_built_from_all_fields_read_the_same() {
    // What is written has its own form of numbers and blanks; written again it stays as it is.
    let made = "let put = msg{verb = m.verb, count = m.count, data = m.data}\n  \
        let get = msg{verb = m.verb, count = m.count, key = m.key}\n  \
        let built = if m.verb == \"put\": put else: get\n  built";
    let again = |message: &[u8], sent: &[u8], context: &str| {
        let front = |bytes: &[u8]| bytes.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
        assert_eq!(front(message), front(sent), "{context}");
        assert!(sent.len() <= message.len() + 1, "{context}");
    };
    check("calc", CALC, made, again);
}
