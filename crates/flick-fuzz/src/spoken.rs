//! Properties of any bytes from a peer: both engines parse them alike, also in pieces, and write the same output.

use std::cell::RefCell;

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{
    AskList, Engine, Frame, FuncId, ParseStep, RuleAction, RuleCall, RuleOutcome, Send, SendBody, SendList,
};
use flick_ir::Interpreter;
use flick_ir::random::MockHost;
use flick_testkit::feed::{FeedOutcome, feed};

use crate::reach;
use crate::speakers::{Speaker, readers, writers};
use crate::targets;

/// Bound, excluded, of the value that a request keeps for the parser of its reply (`%keep`).
const ASKED_MAX: u64 = 16;
/// Bytes that a parser may wait for together.
const LATE_BYTES_MAX: usize = 128;
/// Elements of arrays of channels.
const ELEMENTS: u64 = 3;
/// Longest message that is made of a program's literals.
const LITERAL_BYTES_MAX: usize = 2000;
/// Messages that programs of the project read.
const SAMPLES: &[&[u8]] = &[
    b"GET /a?b HTTP/1.1\r\nHost: h\r\nCookie: c=d\r\nConnection: close\r\n\r\n",
    b"POST http://h/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"\x80\x01\0\x03\x08\0\0\0\0\0\0\x0d\0\0\0\x07\0\0\0\0\0\0\0\0flagsexpkeyva",
    b"\x80\0\0\x03\0\0\0\0\0\0\0\x03\0\0\0\x07\0\0\0\0\0\0\0\0key",
    b"set key 1 0 3 noreply\r\nabc\r\n",
    b"gets key other\r\n",
    b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\nva\r\n",
    b"*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"\x03\x02keyva\x8f\x01\0k",
    b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0",
    b"SEND\ncontent-length:2\ndestination:/a\n\nab\0",
];

/// Feeds both engines and checks that they agree.
fn read(
    of: usize,
    speaker: &Speaker,
    parser: FuncId,
    data: &[u8],
    asked: u64,
    ends: &[usize],
) -> (FeedOutcome, Frame) {
    let both = |frame: &mut Frame, have: &[u8]| {
        let mut other = frame.clone();
        let step = speaker.compiled.parse(parser, frame, have);
        let mut visitor = |function, from, to| reach::went(of, function, from, to);
        let interpreted = speaker.interpreter.parse_visited(parser, &mut other, have, &mut visitor);
        assert_eq!(step, interpreted, "the engines differ");
        assert_eq!(frame.slots, other.slots, "the engines' frames differ");
        assert_eq!(frame.items(), other.items(), "the engines' items differ");
        let end = u64::from(u32::MAX);
        assert!(frame.forwarded(0, end).eq(other.forwarded(0, end)), "the engines forward something else");
        step
    };
    feed(both, data, asked, ends)
}

/// Parses bytes as messages: the first four bytes choose a grammar, a parser, what was asked and where to cut; both
/// engines agree on the rest, also when it arrives in two pieces.
pub fn messages(data: &[u8]) {
    let [grammar, parser, asked, cut, rest @ ..] = data else { return };
    let of = usize::from(*grammar) % readers().len();
    let speaker = &readers()[of];
    let parser = speaker.parsers[usize::from(*parser) % speaker.parsers.len()];
    let asked = u64::from(*asked) % ASKED_MAX;
    let whole = read(of, speaker, parser, rest, asked, &[rest.len()]).0;
    let cut = usize::from(*cut).min(rest.len());
    in_two_pieces(of, speaker, parser, rest, asked, cut, &whole);
}

/// Checks that two pieces parse as the whole. A fault may be found later: a parser that waits for the rest of the
/// shortest message is not called with less.
fn in_two_pieces(
    of: usize,
    speaker: &Speaker,
    parser: FuncId,
    data: &[u8],
    asked: u64,
    cut: usize,
    whole: &FeedOutcome,
) {
    let outcome = read(of, speaker, parser, data, asked, &[cut, data.len()]).0;
    if let (FeedOutcome::Fault(..), FeedOutcome::Starved) = (whole, &outcome) {
        let more = [data, &[0; LATE_BYTES_MAX]].concat();
        let later = read(of, speaker, parser, &more, asked, &[cut, data.len(), more.len()]).0;
        assert!(matches!(later, FeedOutcome::Fault(..)), "{later:?}, a fault when whole, cut at {cut}");
    } else {
        assert_eq!(outcome, *whole, "cut at {cut}");
    }
}

/// Parses and rewrites bytes: the first two bytes choose a program and where the second of two messages begins. Both
/// engines send the same for each, and what they send is one message of the grammar.
pub fn rewritten(data: &[u8]) {
    let [program, cut, rest @ ..] = data else { return };
    let of = usize::from(*program) % writers().len();
    let speaker = &writers()[of];
    let mut sides = [Side::new(speaker, &speaker.interpreter), Side::new(speaker, &speaker.compiled)];
    let (first, second) = rest.split_at(usize::from(*cut).min(rest.len()));
    for message in [first, second] {
        receive(of + readers().len(), speaker, &mut sides, message);
    }
}

/// Compiles text and runs it: an accepted program reads messages of every protocol and the literals of its own text,
/// and runs its rules on them, on both engines.
pub fn programs(data: &[u8]) {
    let Some(module) = targets::ir(data) else { return };
    let speaker = Speaker::new(module);
    let mut sides = [Side::new(&speaker, &speaker.interpreter), Side::new(&speaker, &speaker.compiled)];
    let texts = data.split(|byte| *byte == b'"').skip(1).step_by(2);
    let literals: Vec<u8> = texts.flat_map(|text| [text, b" "].concat()).take(LITERAL_BYTES_MAX).collect();
    for message in SAMPLES.iter().copied().chain([&literals[..]]) {
        for parser in &speaker.parsers {
            let whole = read(0, &speaker, *parser, message, 0, &[message.len()]).0;
            let cut = message.len() / 2;
            in_two_pieces(0, &speaker, *parser, message, 0, cut, &whole);
        }
        receive(0, &speaker, &mut sides, message);
    }
}

/// A message arrives on the first channel of a program; its rule runs on both engines.
fn receive(of: usize, speaker: &Speaker, sides: &mut [Side<'_>; 2], data: &[u8]) {
    let program = &speaker.interpreter.module().program;
    let Some(view) = program.channels[0].view.as_ref() else { return };
    let (FeedOutcome::Done(total), last) = read(of, speaker, view.parse_request, data, 0, &[data.len()])
    else {
        return;
    };
    let message = &data[..total as usize];
    // A rule runs on the first part of a message.
    let mut frame = Frame::new();
    let step = speaker.compiled.parse(view.parse_request, &mut frame, message);
    assert_eq!(step, ParseStep::Done, "a message has a first part");
    assert!(frame.total_bytes() <= total && last.total_bytes() <= total, "a part is longer than its message");
    // What has no rule is thrown away, or merged.
    let Some(rule) = program.rules.iter().find(|rule| rule.source == 0) else { return };
    let RuleAction::Run { rule } = rule.action else { return };
    let [interpreted, compiled] = sides;
    // A rule sees the head only; the rest of the message may not have arrived.
    let head = &message[..frame.head_bytes() as usize];
    interpreted.run(rule, &frame, head, Some((of, &speaker.interpreter)));
    compiled.run(rule, &frame, head, None);
    assert_eq!(interpreted.outcome, compiled.outcome, "one engine waits");
    assert_eq!(interpreted.host.calls, compiled.host.calls, "the engines call the platform differently");
    assert_eq!(
        interpreted.sends.as_slice(),
        compiled.sends.as_slice(),
        "the engines send different messages"
    );
    assert_eq!(interpreted.failure, compiled.failure, "one engine has the request fail");
    assert_eq!(interpreted.state, compiled.state, "the engines keep different things");
    assert_eq!(
        interpreted.out[..interpreted.out_len],
        compiled.out[..compiled.out_len],
        "the engines write different bytes"
    );
    for send in interpreted.sends.as_slice() {
        let Some(sent) = interpreted.rebuilt(send, message).filter(|_| speaker.reads_back) else { continue };
        let outcome = read(of, speaker, view.parse_request, &sent, 0, &[sent.len()]).0;
        assert_eq!(
            outcome,
            FeedOutcome::Done(sent.len() as u64),
            "what is written does not read back: {}",
            sent.escape_ascii()
        );
    }
}

thread_local! {
    /// Output buffers that are reused: clearing a new one for each input takes a hundred times as long as the input.
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// One engine with what it keeps.
struct Side<'e> {
    engine: &'e dyn Engine,
    state: Vec<u64>,
    channel_lens: Vec<u64>,
    spills: Vec<u64>,
    out: Vec<u8>,
    out_len: usize,
    sends: SendList,
    asks: AskList,
    failure: Option<u32>,
    outcome: RuleOutcome,
    host: MockHost,
}

impl<'e> Side<'e> {
    fn new(speaker: &Speaker, engine: &'e dyn Engine) -> Self {
        let program = &speaker.interpreter.module().program;
        let lens = program.channels.iter().map(|channel| if channel.is_array { ELEMENTS } else { 1 });
        // What the mock lets others write is not of the type of a program's dictionary.
        let mut host = MockHost::new(1);
        host.contention_percent = 0;
        let mut side = Side {
            engine,
            state: vec![0; program.state_words as usize],
            channel_lens: lens.collect(),
            spills: vec![0xdead; program.bounds.spill_words as usize],
            out: OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; OUT_BYTES_MAX]),
            out_len: 0,
            sends: SendList::new(),
            asks: AskList::new(),
            failure: None,
            outcome: RuleOutcome::Finished,
            host,
        };
        if let Some(init) = program.init_state {
            side.run(init, &Frame::new(), &[], None);
        }
        side
    }

    /// Runs a rule on a message, up to what it asks.
    fn run(
        &mut self,
        rule: FuncId,
        frame: &Frame,
        message: &[u8],
        interpreter: Option<(usize, &Interpreter)>,
    ) {
        self.sends.clear();
        self.asks.clear();
        let mut call = RuleCall {
            frame,
            message,
            others: &[],
            source_element: 0,
            channel_lens: &self.channel_lens,
            counters: &[],
            out: &mut self.out,
            out_len: 0,
            sends: &mut self.sends,
            asks: &mut self.asks,
            answers: &[],
            spills: &mut self.spills,
            resume: 0,
            state: &mut self.state,
            failure: None,
            host: &mut self.host,
        };
        self.outcome = match interpreter {
            Some((of, engine)) => engine
                .run_visited(rule, &mut call, &mut |function, from, to| reach::went(of, function, from, to)),
            None => self.engine.run(rule, &mut call),
        };
        (self.out_len, self.failure) = (call.out_len, call.failure);
    }

    /// The bytes of a message that was changed or built; `None`: it is one that arrived, or is not there whole.
    fn rebuilt(&self, send: &Send, message: &[u8]) -> Option<Vec<u8>> {
        let SendBody::Rebuilt { offset, len, tail_from, tail_of: 0 } = send.body else { return None };
        let mut bytes = self.out[offset as usize..(offset + len) as usize].to_vec();
        if tail_from != u32::MAX {
            bytes.extend(&message[tail_from as usize..]);
        }
        Some(bytes)
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        OUTPUTS.with_borrow_mut(|outputs| outputs.push(std::mem::take(&mut self.out)));
    }
}
