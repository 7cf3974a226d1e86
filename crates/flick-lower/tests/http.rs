//! `stdlib/http.flick` against what RFC 9110 and 9112 say: tables of verdicts, and random messages beside a strict
//! reader, on both engines, whole and cut. `FLICK_TEST_CASES` asks for more random messages, `FLICK_SEED` for others.

#[path = "http/subject.rs"]
mod subject;

use flick_testkit::generate::Rng;
use flick_testkit::http::strict::{self, BodyEnd, Trouble};
use flick_testkit::http::table::{Case, replies, requests};
use flick_testkit::http::{Asked, generate};
use subject::{Seen, Subject};

/// Random messages of one run, of each direction.
const MESSAGES: u64 = 2000;
/// Longest message that is cut at every byte.
const EVERY_CUT_BYTES_MAX: usize = 700;
/// Random ways to cut a message.
const RANDOM_CUTS: usize = 8;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

/// Reads it whole and cut, which must be the same.
fn read(subject: &Subject, asked: Option<Asked>, bytes: &[u8], cuts_max: usize) -> Seen {
    let whole = subject.read(asked, bytes, &[]);
    let check = |cuts: &[usize]| {
        let cut = subject.read(asked, bytes, cuts);
        assert_eq!(cut, whole, "cut at {cuts:?}: {}", bytes.escape_ascii());
    };
    if bytes.len() <= cuts_max {
        (1..bytes.len()).for_each(|at| check(&[at]));
        check(&(1..bytes.len()).collect::<Vec<_>>());
    }
    let mut rng = Rng::new(bytes.len() as u64);
    for _ in 0..RANDOM_CUTS {
        let mut cuts: Vec<usize> =
            (0..rng.below(6)).map(|_| rng.below(bytes.len() as u32 + 1) as usize).collect();
        cuts.sort_unstable();
        check(&cuts);
    }
    whole
}

#[test]
fn every_request_of_the_table_has_its_verdict() {
    let subject = Subject::new();
    let wrong: Vec<String> = requests().iter().filter_map(|case| verdict_of(&subject, case, None)).collect();
    assert!(wrong.is_empty(), "{} requests:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_reply_of_the_table_has_its_verdict() {
    let subject = Subject::new();
    let wrong = replies();
    let wrong: Vec<String> =
        wrong.iter().filter_map(|case| verdict_of(&subject, case, Some(case.asked))).collect();
    assert!(wrong.is_empty(), "{} replies:\n{}", wrong.len(), wrong.join("\n"));
}

/// Describes the difference between the verdict on a case and the expected one; `None`: they are the same.
fn verdict_of(subject: &Subject, case: &Case, asked: Option<Asked>) -> Option<String> {
    let seen = read(subject, asked, &case.bytes, EVERY_CUT_BYTES_MAX);
    let found = match &seen {
        Seen::Whole { end, .. } => match end {
            BodyEnd::Next => "ok",
            BodyEnd::Last if case.verdict == "close" => "close",
            BodyEnd::Last if asked.is_none() => "ok",
            BodyEnd::Last => "close",
            BodyEnd::More => "more",
            BodyEnd::Tunnel => "tunnel",
            BodyEnd::Close => "end",
        },
        Seen::Refused(_) if asked.is_some() => "bad",
        Seen::Refused(400) => "400",
        Seen::Refused(414) => "414",
        Seen::Refused(431) => "431",
        Seen::Refused(501) => "501",
        Seen::Refused(_) => "another status",
        Seen::Short if asked.is_some() => "short",
        Seen::Short => "more",
    };
    let Case { name, verdict, class, section, .. } = case;
    if found != verdict {
        return Some(format!("{name} ({class}, RFC {section}): {found} instead of {verdict}"));
    }
    match seen {
        Seen::Whole { next, body, .. } if (next, &body) != (case.next, &case.body) => Some(format!(
            "{name} ({class}, RFC {section}): the next at {next} instead of {}, body {}",
            case.next,
            body.escape_ascii()
        )),
        _ => None,
    }
}

/// The grammar accepts what the strict reader accepts, and sees the same in it.
fn compare(seed: u64, seen: &Seen, expected: &Result<strict::HttpMessage<'_>, Trouble>, bytes: &[u8]) {
    let shown = || format!("seed {seed}: {}", bytes.escape_ascii());
    match (expected, seen) {
        (Ok(message), Seen::Whole { next, body, end }) => {
            assert_eq!((*next, *end), (message.next, message.end), "{}", shown());
            assert_eq!(body, &message.body, "{}", shown());
        }
        (Ok(_), _) => panic!("{seen:?} of what is HTTP: {}", shown()),
        (Err(Trouble::Bad(_)), Seen::Refused(_)) | (Err(Trouble::Short), Seen::Short | Seen::Refused(_)) => {}
        // The reader looks for the end of a line before it looks into it.
        (Err(Trouble::Bad(_)), Seen::Short) => {}
        (Err(trouble), Seen::Whole { .. }) => panic!("{trouble:?}, yet it is accepted: {}", shown()),
    }
}

#[test]
fn random_messages_are_read_as_the_strict_reader_reads_them() {
    let subject = Subject::new();
    let (first, count) = (number("FLICK_SEED", 0), number("FLICK_TEST_CASES", MESSAGES));
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        // Every cut of a few, random ones of all: a parser costs as much as the message is long.
        let cuts_max = if seed % 16 == 0 { EVERY_CUT_BYTES_MAX } else { 0 };
        let (mut bytes, asked) = generate::request(&mut rng);
        if rng.one_in(2) {
            generate::harm(&mut rng, &mut bytes);
        }
        compare(seed, &read(&subject, None, &bytes, cuts_max), &strict::request(&bytes), &bytes);
        let (mut bytes, _) = generate::reply(&mut rng, asked);
        if rng.one_in(2) {
            generate::harm(&mut rng, &mut bytes);
        }
        let expected = strict::reply(&bytes, asked);
        compare(seed, &read(&subject, Some(asked), &bytes, cuts_max), &expected, &bytes);
    }
}
