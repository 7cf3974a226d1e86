//! Replays the fuzzing corpus and mutations of it, without libFuzzer and its C++ compiler. A line of
//! `corpus/TARGET.txt` is an input, its bytes escaped as in a string; `cargo xtask fuzz TARGET --keep` writes it.
//! `FLICK_TEST_CASES` asks for more changed inputs, `FLICK_SEED` for others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use flick_fuzz::targets;
use flick_testkit::generate::Rng;

/// Changed inputs of each target.
const CASES: u64 = 2_000;
/// Most changes of one input.
const CHANGES_MAX: u32 = 4;
/// Most bytes that one change copies or removes.
const PIECE_BYTES_MAX: u32 = 16;

/// Plays a target's corpus, then as much again that is made of it.
fn check(target: &str, inputs_min: usize, cases_max: u64, run: fn(&[u8])) {
    let inputs = corpus(target);
    assert!(inputs.len() >= inputs_min, "{target}: {} inputs are too few to be a corpus", inputs.len());
    for (at, input) in inputs.iter().enumerate() {
        play(run, input, || format!("{target}: line {} of its corpus", at + 1));
    }
    let number = |name, otherwise| {
        let text = std::env::var(name).ok();
        text.map_or(otherwise, |text| text.parse::<u64>().expect("a number"))
    };
    let first = number("FLICK_SEED", 0);
    for seed in first..first + number("FLICK_TEST_CASES", cases_max) {
        let input = changed(&inputs, &mut Rng::new(seed));
        play(run, &input, || format!("{target}: FLICK_SEED={seed}: {}", input.escape_ascii()));
    }
}

fn play(run: fn(&[u8]), input: &[u8], name: impl Fn() -> String) {
    assert!(catch_unwind(AssertUnwindSafe(|| run(input))).is_ok(), "{}", name());
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{target}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(unescaped).collect()
}

/// The bytes that `escape_ascii` has escaped.
fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits").into());
                let value = digits.map(|digit: char| digit.to_digit(16).expect("a digit") as u8);
                value[0] << 4 | value[1]
            }
            Some(same) => same,
            None => panic!("a line ends in the middle of a byte: {line}"),
        });
    }
    bytes
}

/// An input with a few changes: bits, numbers, pieces of others, less.
fn changed(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = pick(inputs, rng).clone();
    for _ in 0..1 + rng.below(CHANGES_MAX) {
        let other = pick(inputs, rng);
        let at = rng.below(bytes.len() as u32 + 1) as usize;
        let len = (rng.below(PIECE_BYTES_MAX) as usize + 1).min(bytes.len() - at);
        match rng.below(4) {
            0 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
            1 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = rng.below(256) as u8),
            2 => drop(bytes.drain(at..at + len)),
            _ => {
                let from = rng.below(other.len() as u32 + 1) as usize;
                let piece = &other[from..(from + len).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}

fn pick<'a>(inputs: &'a [Vec<u8>], rng: &mut Rng) -> &'a Vec<u8> {
    &inputs[rng.below(inputs.len() as u32) as usize]
}

#[test]
fn texts_have_a_tree_and_a_layout() {
    check("text", 500, CASES, targets::text);
}

#[test]
fn both_engines_read_messages_alike() {
    check("messages", 500, CASES * 10, targets::messages);
}

#[test]
fn both_engines_write_messages_alike() {
    check("rewritten", 500, CASES * 10, targets::rewritten);
}

#[test]
fn programs_do_the_same_on_both_engines() {
    check("programs", 100, CASES / 20, targets::programs);
}

#[test]
fn bytes_are_read_as_they_were_escaped() {
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(unescaped(&bytes.escape_ascii().to_string()), bytes);
}
