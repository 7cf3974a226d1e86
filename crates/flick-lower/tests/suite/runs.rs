//! Runs of a rule over all messages of a buffer: both engines do what calls for one message after the other do.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// A way to handle the messages of a buffer; the rule builds at the position in the output that the function says,
/// given the end of what was built last and the number of messages so far, until it says `None`.
fn run(
    engine: &dyn Engine,
    engines: &Engines,
    bytes: &[u8],
    position: &dyn Fn(usize, usize) -> Option<usize>,
) -> Outcome {
    let program = &engines.module.program;
    let view = program.channels[0].view.as_ref().expect("it is received");
    let RuleAction::Run { rule } = program.rules[0].action else { panic!("it runs code") };
    let (mut out, mut outcome) = (vec![0; OUT_BYTES_MAX], Outcome::default());
    let counters = [(); 2].map(|()| AtomicU64::default());
    let mut call = RuleCall {
        frame: &Frame::new(),
        message: &[],
        others: &[],
        source_element: 0,
        channel_lens: &[1, 1],
        counters: &counters,
        out: &mut out,
        out_len: 7,
        sends: &mut SendList::new(),
        asks: &mut AskList::new(),
        answers: &[],
        spills: &mut [0; SPILL_WORDS_MAX],
        resume: 0,
        state: &mut [],
        failure: None,
        host: &mut NoHost,
    };
    let mut frame = Frame::new();
    let each = MessageRun {
        parser: view.parse_request,
        rule,
        frame: &mut frame,
        bytes,
        whole_bytes_max: WHOLE_BYTES_MAX,
    };
    outcome.taken = engine.run_each(each, &mut call, &mut |done| {
        assert_eq!(done.failure, None);
        assert!(done.frame.is_whole(done.range.len() as u64, WHOLE_BYTES_MAX));
        let built = done.out[done.built.clone()].to_vec();
        outcome.messages.push((done.range.start, done.range.end, done.sends.as_slice().to_vec(), built));
        position(done.built.end, outcome.messages.len())
    });
    outcome.counters = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
    outcome
}

/// The same by calls for one message.
fn one_by_one(engines: &Engines, bytes: &[u8], messages_max: usize) -> Outcome {
    let program = &engines.module.program;
    let view = program.channels[0].view.as_ref().expect("it is received");
    let RuleAction::Run { rule } = program.rules[0].action else { panic!("it runs code") };
    let mut outcome = Outcome::default();
    let counters = [(); 2].map(|()| AtomicU64::default());
    while outcome.messages.len() < messages_max {
        let (rest, mut frame) = (&bytes[outcome.taken..], Frame::new());
        if engines.parse(view.parse_request, &mut frame, rest) != ParseStep::Done
            || !frame.is_whole(rest.len() as u64, WHOLE_BYTES_MAX)
        {
            break;
        }
        let (mut out, mut sends) = (vec![0; OUT_BYTES_MAX], SendList::new());
        let mut call = RuleCall {
            frame: &frame,
            message: &rest[..frame.total_bytes() as usize],
            others: &[],
            source_element: 0,
            channel_lens: &[1, 1],
            counters: &counters,
            out: &mut out,
            out_len: 0,
            sends: &mut sends,
            asks: &mut AskList::new(),
            answers: &[],
            spills: &mut [0; SPILL_WORDS_MAX],
            resume: 0,
            state: &mut [],
            failure: None,
            host: &mut NoHost,
        };
        assert_eq!(engines.interpreter().run(rule, &mut call), RuleOutcome::Finished);
        let (built, start) = (call.out_len, outcome.taken);
        outcome.taken += frame.total_bytes() as usize;
        outcome.messages.push((start, outcome.taken, sends.as_slice().to_vec(), out[..built].to_vec()));
    }
    outcome.counters = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
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
            assert_eq!(run(engine, &engines, &bytes, &position), expected, "seed {seed}");
        }
        handled += expected.messages.len();
    }
    assert!(handled > 0, "messages were handled");
}
