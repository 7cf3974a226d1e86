//! A hand-written engine that merges short pairs: a byte for each length, a key, a value. What the compiler makes,
//! written by a person, so that tests of merging do not depend on the compiler.

use std::sync::Arc;

use flick_abi::frame::{SLOT_HEAD, SLOT_TOTAL};
use flick_abi::{
    Bounds, BytesRef, Channel, Engine, FaultCause, Frame, FuncId, Merge, ParseStep, Program, Protocol,
    Region, ReplyOrder, RuleAction, RuleCall, RuleOutcome, Send, SendBody, Units, View,
};
use flick_testkit::service::Subject;

const KEY: usize = 12;
const VALUE: usize = 13;
/// Length of a key that the grammar does not have.
pub const BAD_KEY_LEN: u8 = 0xff;
/// Channels of the process.
pub const MAPPERS: usize = 0;
/// See [`MAPPERS`].
pub const REDUCER: usize = 1;

const PARSE: FuncId = FuncId(0);
const ORDER: FuncId = FuncId(1);
const COMBINE: FuncId = FuncId(2);
const FINISH: FuncId = FuncId(3);

/// Combination of two elements with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Values are numbers, and added.
    Add,
    /// Values are put one behind the other: tells in which order elements were combined.
    Join,
}

/// A pair as it travels.
pub fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key.len() as u8, value.len() as u8];
    bytes.extend(key);
    bytes.extend(value);
    bytes
}

/// Pairs of a whole stream. Panics when it ends inside one.
pub fn pairs(mut stream: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    while let [key, value, rest @ ..] = stream {
        let (key, rest) = rest.split_at(usize::from(*key));
        let (value, rest) = rest.split_at(usize::from(*value));
        found.push((key.to_vec(), value.to_vec()));
        stream = rest;
    }
    assert!(stream.is_empty(), "a stream ends behind a pair");
    found
}

/// Returns the correct merge of `streams`, each sorted: sorted by key and, of equal keys, by stream, then combined.
pub fn expected(streams: &[Vec<u8>], combine: Combine) -> Vec<u8> {
    let mut all: Vec<_> = streams.iter().flat_map(|stream| pairs(stream)).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (key, value) in all {
        match out.last_mut().filter(|last| last.0 == key) {
            Some(last) => last.1 = combined(combine, &last.1, &value),
            None => out.push((key, value)),
        }
    }
    out.iter().flat_map(|(key, value)| pair(key, value)).collect()
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn combined(combine: Combine, first: &[u8], second: &[u8]) -> Vec<u8> {
    match combine {
        Combine::Add => (number(first) + number(second)).to_string().into_bytes(),
        Combine::Join => [first, second].concat(),
    }
}

/// The engine.
pub struct Hand(pub Combine);

fn field<'a>(frame: &Frame, slot: usize, message: &'a [u8]) -> &'a [u8] {
    BytesRef(frame.slots[slot]).resolve(|_| Some(message), &[], &[]).expect("a field lies in its message")
}

impl Engine for Hand {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        assert!(parser == PARSE, "there is one parser");
        let [key, value, ..] = data else { return ParseStep::NeedMore(2) };
        if *key == BAD_KEY_LEN {
            return ParseStep::Fault { field: 0, cause: FaultCause::TooLong };
        }
        let total = 2 + u64::from(*key) + u64::from(*value);
        if (data.len() as u64) < total {
            return ParseStep::NeedMore(total);
        }
        frame.slots[SLOT_TOTAL] = total;
        frame.slots[SLOT_HEAD] = total;
        frame.slots[KEY] = BytesRef::new(Region::Message, 2, u32::from(*key)).0;
        frame.slots[VALUE] = BytesRef::new(Region::Message, 2 + u64::from(*key), u32::from(*value)).0;
        ParseStep::Done
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        let (channel, built) = if rule == COMBINE {
            let other = call.others[0];
            let key = field(call.frame, KEY, call.message);
            assert_eq!(key, field(other.frame, KEY, other.bytes), "only equal elements are combined");
            let first = field(call.frame, VALUE, call.message);
            let value = combined(self.0, first, field(other.frame, VALUE, other.bytes));
            if value.len() > 255 {
                call.failure = Some(0);
                return RuleOutcome::Finished;
            }
            (MAPPERS, pair(key, &value))
        } else {
            assert!(rule == FINISH, "there are two rules");
            (REDUCER, call.message.to_ascii_uppercase())
        };
        call.out[..built.len()].copy_from_slice(&built);
        let body = SendBody::Rebuilt { offset: 0, len: built.len() as u32, tail_from: u32::MAX, tail_of: 0 };
        call.sends.push(Send { channel: channel as u32, element: 0, body });
        RuleOutcome::Finished
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        assert!(order == ORDER, "there is one order");
        let other = call.others[0];
        field(call.frame, KEY, call.message).cmp(field(other.frame, KEY, other.bytes)) as i64
    }

    fn build(&self, _: FuncId, _: &Frame, _: &mut [u8]) -> usize {
        unreachable!("a merge sends no error response")
    }
}

/// The process: merges `mappers` into `reducer`, as it is or through a rule that makes letters large.
pub fn subject(combine: Combine, through_rule: bool) -> Subject {
    Subject { program: program(through_rule), engine: Arc::new(Hand(combine)) }
}

/// The program alone.
pub fn program(through_rule: bool) -> Arc<Program> {
    let view = View {
        parse_request: PARSE,
        parse_reply: PARSE,
        parse_asked: PARSE,
        reply_flags: None,
        head_bytes_max: 512,
        first: None,
    };
    let channel = |name: &str, is_array, view: Option<View>| Channel {
        name: name.to_owned(),
        is_array,
        sends: view.is_none(),
        view,
        protocol: 0,
        units: Units::default(),
    };
    let finish =
        if through_rule { RuleAction::Run { rule: FINISH } } else { RuleAction::Pass { to: REDUCER } };
    Arc::new(Program {
        name: "pairs".to_owned(),
        channels: vec![channel("mappers", true, Some(view)), channel("reducer", false, None)],
        rules: Vec::new(),
        protocols: vec![Protocol {
            name: "pair".to_owned(),
            order: ReplyOrder::None,
            exclusive: false,
            log_fields: Vec::new(),
            has_status: false,
            keep_last: 0,
            keep_client: 0,
            correlate: None,
            non_quiet: None,
            echo: Vec::new(),
            failures: [None; flick_abi::FailureReason::COUNT],
            message_bytes_max: 512,
        }],
        merges: vec![Merge { source: MAPPERS, order: ORDER, combine: COMBINE, finish }],
        handlers: Vec::new(),
        timers: Vec::new(),
        dicts: Vec::new(),
        counters: Vec::new(),
        state_words: 0,
        init_state: None,
        bounds: Bounds::default(),
    })
}
