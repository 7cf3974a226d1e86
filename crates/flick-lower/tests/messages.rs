//! Messages of every grammar: made from seeds, cut at every byte and at random, read by both engines and by a walk of the
//! grammar's tree that shares nothing with the compiler.
//! Promises: same verdict, same length, same frames however the bytes were cut (P1); every step asks for more than it has (P4).
//! `FLICK_TEST_CASES` asks for another number of messages of each grammar, `FLICK_SEED` for one message.

#[path = "suite/engines.rs"]
#[expect(dead_code, reason = "the other tests of this crate use the rest")]
mod engines;
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
use flick_abi::{Frame, FuncId};
use flick_check::hir::Program;
use flick_testkit::feed::{Told, feed};
use flick_testkit::generate::Rng;
use generate::Generator;
use grammars::{BINARY, CALC};

/// Messages of each grammar.
const CASES: u64 = 300;
/// Messages up to this length are cut at every byte.
const EVERY_CUT_BYTES_MAX: usize = 80;
/// Bytes at fixed places that a grammar has behind each other, at most.
const FIXED_BYTES_MAX: usize = 24;
/// At least this share of what is made must be of the grammar, in percent, or the test tests refusals only. Most of what
/// the grammar of HTTP has is there to refuse.
const GOOD_PERCENT_MIN: u64 = 4;

/// One grammar of a program, and how it is read.
struct Subject<'p> {
    name: String,
    program: &'p Program,
    unit: usize,
    engines: &'p Engines,
    /// Reads a message whole, and part by part.
    parsers: [FuncId; 2],
}

impl Subject<'_> {
    /// Everybody must say the same of `data`; whether a message stands at its front.
    fn check(&self, data: &[u8], asked: u64, rng: &mut Rng, what: &str) -> bool {
        let unit = &self.program.units[self.unit];
        let said = decode(self.program, unit, data, asked);
        let (verdict, _) = said.unwrap_or_else(|unknown| panic!("{}: {unknown:?}", self.name));
        for (index, &parser) in self.parsers.iter().enumerate() {
            let place = || format!("{what}, parser {index}, of \"{}\"", data.escape_ascii());
            let parse = |frame: &mut Frame, have: &[u8]| self.engines.parse(parser, frame, have);
            let whole = feed(parse, data, asked, &[data.len()]);
            let agrees = match (&verdict, &whole.0) {
                (Verdict::Done(total), Told::Done(told)) => total == told,
                (Verdict::UntilClose, Told::UntilClose) | (Verdict::Fault(_), Told::Fault(..)) => true,
                // What is wrong may be known before all of it is there, and what comes in parts is not looked ahead for.
                (Verdict::Incomplete, Told::Starved | Told::Fault(..)) => true,
                // Bytes at fixed places behind each other are waited for together.
                (Verdict::Fault(at), Told::Starved) => data.len() - *at < FIXED_BYTES_MAX,
                _ => false,
            };
            assert!(agrees, "the tree says {verdict:?}, the parser {:?}; {}", whole.0, place());
            for ends in cuts(data.len(), rng) {
                let cut = feed(parse, data, asked, &ends);
                assert_eq!(cut.0, whole.0, "cut at {ends:?}; {}", place());
                // Where the last part of several begins hangs on what was there.
                if whole.0 == Told::Done(whole.1.total_bytes()) {
                    let seen = |frame: &Frame| (frame.total_bytes(), frame.head_bytes(), frame.flags());
                    assert_eq!(seen(&cut.1), seen(&whole.1), "cut at {ends:?}; {}", place());
                }
            }
        }
        matches!(verdict, Verdict::Done(_) | Verdict::UntilClose)
    }
}

/// Ways to cut: at every byte once if that is not too often, byte by byte, and at random.
fn cuts(len: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let mut ways: Vec<Vec<usize>> = Vec::new();
    if len <= EVERY_CUT_BYTES_MAX {
        ways.extend((0..len).map(|at| vec![at, len]));
        ways.push((0..=len).collect());
    } else {
        ways.extend((0..6).map(|_| vec![rng.below(len as u32) as usize, len]));
    }
    for _ in 0..3 {
        let mut ends: Vec<usize> = (0..rng.below(6)).map(|_| rng.below(len as u32 + 1) as usize).collect();
        ends.sort_unstable();
        ends.push(len);
        ways.push(ends);
    }
    ways
}

/// The number of messages, or the one seed, to look at.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FLICK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_TEST_CASES").unwrap_or(CASES),
    }
}

/// Makes messages of each grammar that `text` receives and checks them, as they are and spoiled.
fn check(name: &str, text: &str, files: &[(&str, &str)]) {
    let program = source::program_with(text, files);
    let engines = Engines::new(source::verified(flick_lower::lower(&program)));
    let process = program.process.as_ref().expect("the text has a process");
    for (index, channel) in process.channels.iter().enumerate() {
        let (Some(unit), Some(view)) =
            (channel.receives, engines.module.program.channels[index].view.as_ref())
        else {
            continue;
        };
        let streaming = if index == 0 { view.parse_request } else { view.parse_reply };
        let subject = Subject {
            name: format!("{name}, {}", channel.name),
            program: &program,
            unit: unit.0 as usize,
            engines: &engines,
            parsers: [if index == 0 { streaming } else { view.parse_asked }, streaming],
        };
        let generator = Generator::new(&program, &program.units[subject.unit]);
        let (mut good, mut all) = (0, 0);
        for seed in seeds() {
            let mut rng = Rng::new(seed);
            let asked = u64::from(rng.below(4));
            let message = generator.message(&mut rng, asked);
            let what = format!("FLICK_SEED={seed} {}", subject.name);
            all += 1;
            good += u64::from(subject.check(&message, asked, &mut rng, &what));
            subject.check(&spoiled(message, &mut rng), asked, &mut rng, &format!("{what}, spoiled"));
        }
        let percent = good * 100 / all.max(1);
        assert!(all < 100 || percent >= GOOD_PERCENT_MIN, "{}: only {percent} % are messages", subject.name);
    }
}

/// The message with something wrong, something missing, or something behind it.
fn spoiled(mut message: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let odd: [&[u8]; 8] = [b"\r", b"\n", b"\0", b" ", b"-1", b"\xff", b"\r\n\r\n", b"99999999999999999999"];
    for _ in 0..=rng.below(2) {
        let at = rng.below(message.len() as u32 + 1) as usize;
        match rng.below(5) {
            0 => message.truncate(at),
            1 if at < message.len() => message[at] ^= 1 << rng.below(8),
            2 if at < message.len() => drop(message.remove(at)),
            3 => drop(message.splice(at..at, rng.pick(&odd).iter().copied())),
            _ => message.extend((0..rng.below(4)).map(|_| rng.below(256) as u8)),
        }
    }
    message
}

#[test]
fn choices_runs_and_numbers_in_text() {
    check("calc", &balancer("calc", "msg", "msg", "key"), &[("calc", CALC)]);
}

#[test]
fn bits_lists_trees_and_what_streams() {
    check("binary", &balancer("binary", "msg", "answer", "vint"), &[("binary", BINARY)]);
}

/// A balancer over what a library's units are.
fn balancer(library: &str, request: &str, reply: &str, field: &str) -> String {
    format!(
        "use {library}\n\nproc P: ({request}/{reply} client, [{reply}/{request}] backends)\n  | backends => client\n  \
         | client => pick(backends)\n\nfun pick: ([-/{request}] backends, req: {request}) -> ()\n  \
         req => backends[hash(req.{field}) mod len(backends)]\n"
    )
}

macro_rules! libraries {
    ($($test:ident: $library:literal, $request:literal, $reply:literal, $field:literal;)*) => {
        $(
            #[test]
            fn $test() {
                const TEXT: &str = include_str!(concat!("../../../stdlib/", $library, ".flick"));
                check($library, &balancer($library, $request, $reply, $field), &[($library, TEXT)]);
            }
        )*
    };
}

libraries! {
    http: "http", "request", "response", "target";
    memcached_text: "memcached_text", "command", "reply", "verb";
    resp: "resp", "command", "reply", "verb";
}
