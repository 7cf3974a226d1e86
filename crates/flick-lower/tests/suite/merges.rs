//! `foldt`: order, combination and what happens with the result, on both engines.

use std::cmp::Ordering;

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{
    AskList, Engine, Frame, FuncId, Message, NoHost, ParseStep, RuleAction, RuleCall, RuleOutcome, SendList,
};

use crate::engines::{Engines, bytes_of};
use crate::model::vint_bytes;
use crate::source;

/// Listing 3 with numbers in decimal as values.
const WORD_COUNT: &str = "use hadoop

type kv: record
  key   : string
  value : string

proc hadoop: ([kv/-] mappers, -/kv reducer):
  if (all_ready(mappers)):
    let result = foldt on mappers
      ordering elem e1, e2 by elem.key as e_key:
        let v = combine(e1.value, e2.value)
        kv(e_key, v)
    result => reducer

fun combine: (v1: string, v2: string) -> (string)
  (v1 + \"+\")[..1024]
";

fn pair(key: &str, value: &str) -> Vec<u8> {
    [vint_bytes(key.len() as i64), vint_bytes(value.len() as i64), key.into(), value.into()].concat()
}

/// Calls `run` with messages 0 and 1 on an engine.
fn with_both<T>(
    engines: &Engines,
    engine: &dyn Engine,
    messages: [&[u8]; 2],
    run: impl FnOnce(&dyn Engine, &mut RuleCall<'_>) -> T,
) -> (T, Vec<(u32, u64, Vec<u8>)>) {
    let parser = engines.find("parse_reply.mappers");
    let frames = messages.map(|bytes| {
        let (step, frame) = engines.parse_at_every_cut(parser, bytes);
        assert_eq!(step, ParseStep::Done);
        frame
    });
    let [first, second]: [Frame; 2] = frames;
    let mut out = vec![0; OUT_BYTES_MAX];
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    let mut call = RuleCall {
        frame: &first,
        message: messages[0],
        others: &[Message { frame: &second, bytes: messages[1] }],
        source_element: 0,
        channel_lens: &[8, 1],
        counters: &[],
        out: &mut out,
        out_len: 0,
        sends: &mut sends,
        asks: &mut asks,
        answers: &[],
        spills: &mut [],
        resume: 0,
        state: &mut [],
        failure: None,
        host: &mut NoHost,
    };
    let result = run(engine, &mut call);
    let sent = sends.as_slice().iter();
    let sent = sent.map(|send| (send.channel, send.element, bytes_of(send.body, &messages, &out)));
    (result, sent.collect())
}

fn order(engines: &Engines, order: FuncId, a: &[u8], b: &[u8]) -> Ordering {
    let [one, other] = [engines.interpreter(), engines.compiled()]
        .map(|engine| with_both(engines, engine, [a, b], |engine, call| engine.order(order, call)).0);
    assert_eq!(one, other);
    one.cmp(&0)
}

fn combine(engines: &Engines, rule: FuncId, a: &[u8], b: &[u8]) -> Vec<u8> {
    let [one, other] = [engines.interpreter(), engines.compiled()].map(|engine| {
        let (outcome, sent) = with_both(engines, engine, [a, b], |engine, call| engine.run(rule, call));
        assert_eq!(outcome, RuleOutcome::Finished);
        let [(0, 0, bytes)] = &sent[..] else { panic!("one message to the merge's own channel: {sent:?}") };
        bytes.clone()
    });
    assert_eq!(one, other);
    one
}

#[test]
fn pairs_are_ordered_by_key_and_combined() {
    let engines = Engines::new(source::lower_with(WORD_COUNT, &[]));
    let [merge] = &engines.module.program.merges[..] else { panic!("one merge") };
    assert!(matches!(merge.finish, RuleAction::Pass { to: 1 }), "{:?}", merge.finish);
    let keys = ["", "a", "aa", "b", "\u{e9}"];
    for (i, a) in keys.iter().enumerate() {
        for (j, b) in keys.iter().enumerate() {
            assert_eq!(order(&engines, merge.order, &pair(a, "1"), &pair(b, "2")), i.cmp(&j), "{a} {b}");
        }
    }
    let long = "k".repeat(300);
    for key in ["word", &long] {
        assert_eq!(combine(&engines, merge.combine, &pair(key, "1"), &pair(key, "22")), pair(key, "1+"));
    }
}
