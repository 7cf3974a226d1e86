//! Runs of a rule over all messages of a buffer: both engines do what calls for one message after the other do.

use std::sync::atomic::AtomicU64;

use flick_abi::limits::{OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{
    AskList, Engine, Frame, MessageRun, NoHost, ParseStep, RuleAction, RuleCall, RuleOutcome, Send, SendList,
};

use crate::engines::Engines;
use crate::random::{Random, cases};
use crate::source;

const EDIT: &str = include_str!("../../../../examples/packet_edit/packet_edit.flick");
const PCAP_IPV4: &str = include_str!("../../../../examples/packet_edit/pcap_ipv4.flick");

/// Longest message that is whole although its head is shorter, here.
const WHOLE_BYTES_MAX: u64 = 100;

/// Results for the messages of a buffer.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// By message: its position, what was sent, and what was built for it.
    messages: Vec<(usize, usize, Vec<Send>, Vec<u8>)>,
    taken: usize,
    counters: Vec<u64>,
}

impl Outcome {
    /// No message was handled; the program has two counters.
    fn new() -> Self {
        Self { counters: vec![0; 2], ..Self::default() }
    }
}

/// A capture of a few packets of random lengths, the last one cut most of the time.
fn capture(random: &mut Random) -> Vec<u8> {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 1].map(u32::to_le_bytes).concat();
    for _ in 0..random.below(8) {
        let len = random.below(120) as u32;
        bytes.extend([1, 2, len, len + random.below(3) as u32].map(u32::to_le_bytes).concat());
        bytes.extend((0..len).map(|_| random.next() as u8));
    }
    bytes.truncate(bytes.len() - random.below(40) as usize % bytes.len());
    bytes
}

/// Makes a call of the rule on a message, which has built `out_len` bytes; what it counts goes to the outcome.
fn call<T>(
    outcome: &mut Outcome,
    (frame, message): (&Frame, &[u8]),
    out_len: usize,
    act: impl FnOnce(&mut RuleCall<'_>, &mut Outcome) -> T,
) -> T {
    let counters: Vec<_> = outcome.counters.iter().map(|count| AtomicU64::new(*count)).collect();
    let mut call = RuleCall {
        frame,
        message,
        others: &[],
        source_element: 0,
        channel_lens: &[1, 1],
        counters: &counters,
        out: &mut vec![0; OUT_BYTES_MAX],
        out_len,
        sends: &mut SendList::new(),
        asks: &mut AskList::new(),
        answers: &[],
        spills: &mut [0; SPILL_WORDS_MAX],
        resume: 0,
        state: &mut [],
        failure: None,
        host: &mut NoHost,
    };
    let result = act(&mut call, outcome);
    outcome.counters = counters.into_iter().map(AtomicU64::into_inner).collect();
    result
}

/// The frames of at most `count` messages behind the first one.
fn parsed_ahead(engines: &Engines, mut bytes: &[u8], count: usize) -> Vec<Frame> {
    let view = engines.module.program.channels[0].view.as_ref().expect("it is received");
    let mut frames = Vec::new();
    while frames.len() <= count {
        let mut frame = Frame::new();
        if engines.parse(view.parse_request, &mut frame, bytes) != ParseStep::Done {
            break;
        }
        let rest = bytes.get(frame.total_bytes() as usize..);
        frames.push(frame);
        let Some(rest) = rest else { break };
        bytes = rest;
    }
    frames.into_iter().skip(1).collect()
}

/// A way to handle the messages of a buffer, of which some have been parsed ahead. The rule builds at the position in
/// the output that the function says, given the end of what was built last and the number of messages so far, until it
/// says `None`.
fn run(
    engine: &dyn Engine,
    engines: &Engines,
    (bytes, ahead_max): (&[u8], usize),
    position: &dyn Fn(usize, usize) -> Option<usize>,
) -> Outcome {
    let program = &engines.module.program;
    let view = program.channels[0].view.as_ref().expect("it is received");
    let RuleAction::Run { rule } = program.rules[0].action else { panic!("it runs code") };
    let mut outcome = Outcome::new();
    let (mut frame, mut ahead) = (Frame::new(), parsed_ahead(engines, bytes, ahead_max));
    let each = MessageRun {
        parser: view.parse_request,
        rule,
        frame: &mut frame,
        ahead: &mut ahead,
        bytes,
        whole_bytes_max: WHOLE_BYTES_MAX,
        leaves: 0,
    };
    outcome.taken = call(&mut outcome, (&Frame::new(), &[]), 7, |call, outcome| {
        engine.run_each(each, call, &mut |done| {
            assert_eq!(done.failure, None);
            assert!(done.frame.is_whole(done.range.len() as u64, WHOLE_BYTES_MAX));
            let built = done.out[done.built.clone()].to_vec();
            outcome.messages.push((done.range.start, done.range.end, done.sends.as_slice().to_vec(), built));
            position(done.built.end, outcome.messages.len())
        })
    });
    outcome
}

/// The same by calls for one message.
fn one_by_one(engines: &Engines, bytes: &[u8], messages_max: usize) -> Outcome {
    let program = &engines.module.program;
    let view = program.channels[0].view.as_ref().expect("it is received");
    let RuleAction::Run { rule } = program.rules[0].action else { panic!("it runs code") };
    let mut outcome = Outcome::new();
    while outcome.messages.len() < messages_max {
        let (rest, mut frame) = (&bytes[outcome.taken..], Frame::new());
        if engines.parse(view.parse_request, &mut frame, rest) != ParseStep::Done
            || !frame.is_whole(rest.len() as u64, WHOLE_BYTES_MAX)
        {
            break;
        }
        let (start, end) = (outcome.taken, outcome.taken + frame.total_bytes() as usize);
        let message = call(&mut outcome, (&frame, &bytes[start..end]), 0, |call, _| {
            assert_eq!(engines.interpreter().run(rule, call), RuleOutcome::Finished);
            (start, end, call.sends.as_slice().to_vec(), call.out[..call.out_len].to_vec())
        });
        outcome.messages.push(message);
        outcome.taken = end;
    }
    outcome
}

#[test]
fn run_over_a_buffer_differed_from_calls_for_each_message() {
    let engines = Engines::new(source::lower_with(EDIT, &[("pcap_ipv4", PCAP_IPV4)]));
    let mut handled = 0;
    for seed in 0..cases(200) {
        let mut random = Random(seed);
        let bytes = capture(&mut random);
        let messages_max = 1 + random.below(9) as usize;
        let gap = random.below(90) as usize;
        let position = |end: usize, messages: usize| (messages < messages_max).then_some((end + gap) % 1000);
        let expected = one_by_one(&engines, &bytes, messages_max);
        for engine in [engines.interpreter(), engines.compiled()] {
            for ahead_max in [0, random.below(5) as usize] {
                let outcome = run(engine, &engines, (&bytes, ahead_max), &position);
                assert_eq!(outcome, expected, "seed {seed}, {ahead_max} ahead");
            }
        }
        handled += expected.messages.len();
    }
    assert!(handled > 0, "messages were handled");
}
