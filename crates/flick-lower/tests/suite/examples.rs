//! Every example and every good golden program, on both engines: parsers cut at every byte, rules, replies.

use std::fs;
use std::path::{Path, PathBuf};

use flick_abi::{Frame, ParseStep, RuleAction};

use crate::engines::Engines;
use crate::memcached::Message;
use crate::random::{Random, cases};
use crate::source;

/// The flick files of a directory of the repository and its subdirectories, by name.
fn programs(dir: &str) -> Vec<PathBuf> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(dir)];
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "flick") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Bytes that a parser may get: a message of memcached with something wrong or not, or small numbers.
fn input(random: &mut Random) -> Vec<u8> {
    let mut bytes = if random.once_in(3) {
        (0..random.below(120))
            .map(|_| if random.once_in(2) { random.below(9) as u8 } else { random.next() as u8 })
            .collect()
    } else {
        let magic = *random.pick(&[0x80, 0x81]);
        Message { magic, ..Message::random(random) }.bytes()
    };
    if random.once_in(3) && !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
    }
    bytes
}

/// Runs what the platform would run for one input, on both engines.
fn exercise(engines: &Engines, random: &mut Random) -> bool {
    let program = &engines.module.program;
    let source = random.below(program.channels.len() as u64) as usize;
    let Some(view) = &program.channels[source].view else { return false };
    let parser = if random.once_in(2) { view.parse_request } else { view.parse_reply };
    let bytes = input(random);
    let (step, mut frame) = engines.parse_at_every_cut(parser, &bytes);
    for builder in program.protocols.iter().flat_map(|protocol| protocol.failures).flatten() {
        engines.build(builder, &frame);
    }
    // The platform runs rules and flags only on messages whose head is there.
    if step != ParseStep::Done || frame.head_bytes() > bytes.len() as u64 {
        return false;
    }
    if parser == view.parse_reply
        && let Some(flags) = view.reply_flags
    {
        assert_eq!(engines.parse(flags, &mut frame, &bytes), ParseStep::Done);
    }
    let lens: Vec<u64> = program
        .channels
        .iter()
        .map(|channel| if channel.is_array { 1 + random.below(5) } else { 1 })
        .collect();
    run_rules(engines, source, &frame, &bytes, &lens);
    true
}

fn run_rules(engines: &Engines, source: usize, frame: &Frame, bytes: &[u8], lens: &[u64]) {
    let program = &engines.module.program;
    for rule in program.rules.iter().filter(|rule| rule.source == source) {
        if let RuleAction::Run { rule } = rule.action {
            let mut whole = bytes.to_vec();
            whole.resize((frame.total_bytes().min(1 << 12) as usize).max(bytes.len()), 0);
            let sent = engines.run(rule, frame, &whole, lens);
            assert!(sent.len() as u64 <= program.bounds.sends_per_message_max, "more sends than the bound");
        }
    }
}

#[test]
fn engines_agree_on_every_example_and_golden_program() {
    let mut ran = 0;
    let mut done = 0;
    for path in programs("examples").into_iter().chain(programs("tests/golden/ok")) {
        let text = fs::read_to_string(&path).unwrap();
        let Some(module) = source::try_lower(&text) else { continue };
        let engines = Engines::new(module);
        ran += 1;
        for seed in 0..cases(15) {
            let mut random = Random(seed);
            done += u64::from(exercise(&engines, &mut random));
        }
    }
    assert!(ran > 0 && done > 0, "{ran} programs ran, {done} messages reached rules");
}
