//! Messages of up to 1 MiB that a program looks at whole: buffered, answered, built, forwarded, asked for; a client
//! that sends half of one holds a buffer until its timeout, and a client that finds none waits. In the simulator and on
//! sockets.
//!
//! The protocol, written by hand: `length u32` (big endian, of what follows), a byte that says what the rule does with
//! the message (see [`Frames::run`]), the rest.

use std::sync::Arc;

use flick_abi::frame::{SLOT_ECHO_READY, SLOT_HEAD, SLOT_TOTAL};
use flick_abi::limits::BIG_HEAD_BYTES_MAX;
use flick_abi::{
    Ask, Bounds, Channel, Engine, FaultCause, Frame, FuncId, ParseStep, Program, Protocol, ReplyOrder, Rule,
    RuleAction, RuleCall, RuleOutcome, Send, SendBody, Units, View,
};
use flick_net::IoKind;
use flick_testkit::scenario::parse;
use flick_testkit::scenario::stage::{Command, PeerId, Simulated, Sockets, Stage, Transport};
use flick_testkit::service::Subject;

const PARSE: FuncId = FuncId(0);
const RULE: FuncId = FuncId(1);
const BUILD: u32 = 2;
/// Turns within which what is expected must happen.
const ITERATIONS_MAX: u32 = 100_000;

struct Frames;

impl Engine for Frames {
    fn parse(&self, _parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        frame.slots[SLOT_ECHO_READY] = 1;
        let Some(length) = data.first_chunk::<4>() else { return ParseStep::NeedMore(4) };
        let total = 4 + u64::from(u32::from_be_bytes(*length));
        if total < 5 || total > BIG_HEAD_BYTES_MAX as u64 {
            return ParseStep::Fault { field: 0, cause: FaultCause::TooLong };
        }
        if (data.len() as u64) < total {
            return ParseStep::NeedMore(total);
        }
        (frame.slots[SLOT_HEAD], frame.slots[SLOT_TOTAL]) = (total, total);
        ParseStep::Done
    }

    /// `o`: its own bytes are its answer; `b`: they are built again, `B` in capitals; `p`: it is passed on; `a`: asked.
    fn run(&self, _rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        let to = |channel, body| Send { channel, element: 0, body };
        if call.resume > 0 {
            match call.answers[0] {
                message @ 1.. => call.sends.push(to(0, SendBody::Message(message as u8))),
                reason => call.failure = Some((-1 - reason) as u32),
            }
            return RuleOutcome::Finished;
        }
        match call.message[4] {
            b'o' => call.sends.push(to(0, SendBody::Original)),
            b'b' => {
                let (offset, len) = (call.out_len, call.message.len());
                call.out[offset..offset + len].copy_from_slice(call.message);
                call.out[offset + 4..offset + len].make_ascii_uppercase();
                call.out_len += len;
                let (offset, len) = (offset as u32, len as u32);
                call.sends.push(to(0, SendBody::Rebuilt { offset, len, tail_from: u32::MAX, tail_of: 0 }));
            }
            b'p' => call.sends.push(to(1, SendBody::Original)),
            _ => {
                call.asks.push(Ask { send: to(1, SendBody::Original), timeout_ns: 0 });
                return RuleOutcome::Suspended(1);
            }
        }
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        unreachable!("nothing is merged")
    }

    fn build(&self, builder: FuncId, _frame: &Frame, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&[0, 0, 0, 2, b'!', b'0' + (builder.0 - BUILD) as u8]);
        6
    }
}

fn subject() -> Subject {
    let view = View {
        parse_request: PARSE,
        parse_reply: PARSE,
        parse_asked: PARSE,
        reply_flags: None,
        head_bytes_max: BIG_HEAD_BYTES_MAX as u32,
        first: None,
    };
    let channel = |name: &str, is_array| Channel {
        name: name.into(),
        is_array,
        view: Some(view.clone()),
        sends: true,
        protocol: 0,
        units: Units::default(),
    };
    let program = Program {
        name: "Frames".into(),
        channels: vec![channel("client", false), channel("backends", true)],
        rules: vec![
            Rule { source: 1, action: RuleAction::Pass { to: 0 }, asks: false, lookup: None },
            Rule { source: 0, action: RuleAction::Run { rule: RULE }, asks: true, lookup: None },
        ],
        protocols: vec![Protocol {
            name: "frame".into(),
            order: ReplyOrder::InOrder,
            exclusive: false,
            log_fields: Vec::new(),
            has_status: false,
            keep_last: 0,
            keep_client: 0,
            correlate: None,
            non_quiet: None,
            echo: vec![],
            failures: std::array::from_fn(|reason| Some(FuncId(BUILD + reason as u32))),
            message_bytes_max: BIG_HEAD_BYTES_MAX as u64,
        }],
        merges: vec![],
        handlers: vec![],
        timers: vec![],
        dicts: vec![],
        counters: vec![],
        state_words: 0,
        init_state: None,
        bounds: Bounds {
            asks_max: 1,
            out_bytes_max: BIG_HEAD_BYTES_MAX as u64,
            head_bytes_max: BIG_HEAD_BYTES_MAX as u64,
            ..Bounds::default()
        },
    };
    Subject { program: Arc::new(program), engine: Arc::new(Frames) }
}

/// A message of `len` bytes in all.
fn message(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = ((len - 4) as u32).to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend((5..len).map(|at| b'a' + (at * 7 / 3 % 26) as u8));
    bytes
}

/// Takes a whole message off the front.
fn take(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let total = 4 + u32::from_be_bytes(*input.first_chunk::<4>()?) as usize;
    (input.len() >= total).then(|| input.drain(..total).collect())
}

/// One turn; backends send back what they are sent.
fn iteration(stage: &mut dyn Stage) {
    stage.step();
    for peer in stage.connections(0) {
        let mut asked = None;
        stage.with_input(peer, &mut |input| asked = take(input));
        if let Some(asked) = asked {
            stage.command(peer, Command::Write(asked));
        }
    }
}

fn answer(stage: &mut dyn Stage, client: PeerId) -> Vec<u8> {
    for _ in 0..ITERATIONS_MAX {
        iteration(stage);
        let mut found = None;
        stage.with_input(client, &mut |input| found = take(input));
        if let Some(found) = found {
            return found;
        }
    }
    panic!("no answer: {:?}", stage.counters());
}

fn check_all(stage: &mut dyn Stage) {
    for len in [5, 2048, 2049, 16_384, 16_385, 70_000, 1 << 20, BIG_HEAD_BYTES_MAX] {
        for kind in *b"obpa" {
            let client = stage.open();
            let sent = message(kind, len);
            // Two at once: the second begins in the buffer that the first one ends in.
            stage.command(client, Command::Write([sent.clone(), message(kind, 9)].concat()));
            let expected =
                if kind == b'b' { [&sent[..4], &sent[4..].to_ascii_uppercase()].concat() } else { sent };
            let context = format!("kind {}, {len} bytes: {:?}", char::from(kind), stage.counters());
            assert!(answer(stage, client) == expected, "another answer; {context}");
            assert_eq!(answer(stage, client).len(), 9, "{context}");
            stage.command(client, Command::Close);
        }
    }
    settle(stage);
}

fn settle(stage: &mut dyn Stage) {
    for _ in 0..ITERATIONS_MAX {
        iteration(stage);
        if stage.expect_quiet().is_ok() {
            return;
        }
    }
    stage.expect_quiet().expect("nothing is in flight");
}

/// Four huge buffers, two of which requests may take.
const FEW: &str = "limit buffer_memory 8912896\ntimeout client_request 100 ms\nbackends 1";

#[test]
fn long_messages_are_looked_at_whole_in_the_simulator() {
    let scenario = parse(FEW).expect("it is a scenario");
    check_all(&mut Simulated::new(&scenario, &subject()).expect("the limits exist"));
}

#[test]
fn long_messages_are_looked_at_whole_on_sockets() {
    for io in [IoKind::Epoll, IoKind::Uring] {
        let scenario = parse("limit buffer_memory 67108864\nbackends 1").expect("it is a scenario");
        match Sockets::new(&scenario, &subject(), io, Transport::Tcp).expect("the limits exist") {
            Some(mut stage) => check_all(&mut stage),
            None => eprintln!("not tested: this machine does not grant {io:?}"),
        }
    }
}

#[test]
fn a_stalled_sender_loses_its_buffer_and_a_client_without_one_waits() {
    let scenario = parse(FEW).expect("it is a scenario");
    let mut stage = Simulated::new(&scenario, &subject()).expect("the limits exist");
    let stage: &mut dyn Stage = &mut stage;
    let half = message(b'o', 1 << 20)[..500_000].to_vec();
    let stopped = [stage.open(), stage.open()];
    stopped.iter().for_each(|client| stage.command(*client, Command::Write(half.clone())));
    // Who only announces a long message takes nothing from the others.
    let announcing = stage.open();
    stage.command(announcing, Command::Write(half[..10_000].to_vec()));
    (0..20).for_each(|_| iteration(stage));
    let waiting = stage.open();
    stage.command(waiting, Command::Write(message(b'o', 1 << 20)));
    for _ in 0..20 {
        iteration(stage);
        stage.with_input(waiting, &mut |input| assert!(input.is_empty(), "there was a buffer left"));
    }
    let short = stage.open();
    stage.command(short, Command::Write(message(b'o', 100)));
    assert_eq!(answer(stage, short).len(), 100, "others go on meanwhile");
    assert_eq!(answer(stage, waiting).len(), 1 << 20, "it waits, and goes on");
    assert!(stopped.iter().all(|client| stage.is_closed(*client)), "their time was over");
    [waiting, short].iter().for_each(|client| stage.command(*client, Command::Close));
    settle(stage);
}

#[test]
fn too_little_memory_for_long_messages_is_refused() {
    let scenario = parse("limit buffer_memory 4000000\nbackends 1").expect("it is a scenario");
    let error = Simulated::new(&scenario, &subject()).err().expect("it does not start");
    assert!(error.contains("--buffer-memory") && error.contains("1114112"), "{error}");
}
