//! A service with state, handlers and timers, written by hand around the engine of the first listing.

use std::sync::Arc;

use flick_abi::{
    Ask, Engine, Event, Frame, FuncId, Handler, ParseStep, Program, RuleAction, RuleCall, RuleOutcome, Send,
    SendBody, Timer,
};

use super::common::{self, Hand, KEY_LEN, OPAQUE, OPCODE};

/// Initial state of a session.
const FIRST: u64 = 40;
const RULE: FuncId = FuncId(20);
const INIT: FuncId = FuncId(21);
const FAILED: FuncId = FuncId(22);
const GONE: FuncId = FuncId(23);
const TICK: FuncId = FuncId(24);
const WRONG: FuncId = FuncId(25);

/// The engine. It counts a session's requests in its state.
pub struct Eventful;

/// Builds a message with the header's fields and a key; gives its place.
fn build(call: &mut RuleCall<'_>, header: [u8; 4], opaque: u64, key: &[u8]) -> SendBody {
    let [magic, opcode, status_high, status_low] = header;
    let (offset, len) = (call.out_len, 24 + key.len());
    let message = &mut call.out[offset..offset + len];
    message[..24].fill(0);
    message[..2].copy_from_slice(&[magic, opcode]);
    message[3] = key.len() as u8;
    message[6..8].copy_from_slice(&[status_high, status_low]);
    message[11] = key.len() as u8;
    message[12..16].copy_from_slice(&(opaque as u32).to_be_bytes());
    message[24..].copy_from_slice(key);
    call.out_len += len;
    SendBody::Rebuilt { offset: offset as u32, len: len as u32, tail_from: u32::MAX, tail_of: 0 }
}

/// A reply of our own to the request in the frame: the state is in its key.
fn reply(call: &mut RuleCall<'_>, status: u8) {
    let (opcode, opaque) = (call.frame.slots[OPCODE] as u8, call.frame.slots[OPAQUE]);
    let text = call.state[0].to_string();
    let body = build(call, [0x81, opcode, 0, status], opaque, text.as_bytes());
    call.sends.push(Send { channel: 0, element: 0, body });
}

fn get(call: &mut RuleCall<'_>, key: &[u8]) -> Send {
    Send { channel: 1, element: 0, body: build(call, [0x80, 0, 0, 0], 0, key) }
}

impl Engine for Eventful {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        Hand.parse(parser, frame, data)
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        match rule {
            INIT => call.state[0] = FIRST,
            RULE => {
                call.state[0] += 1;
                let start = call.frame.slots[16] as usize;
                if call.message[start..].starts_with(b"count") && call.frame.slots[KEY_LEN] == 5 {
                    reply(call, 0);
                } else {
                    call.sends.push(Send { channel: 1, element: 0, body: SendBody::Original });
                }
            }
            FAILED => {
                call.state[0] += 100;
                reply(call, 0x86);
            }
            WRONG => reply(call, 0x04),
            GONE => {
                let key = format!("gone{}", call.state[0]);
                let send = get(call, key.as_bytes());
                call.sends.push(send);
                // There is no backend left.
                reply(call, 0);
            }
            TICK if call.resume == 0 => {
                call.state[0] += 1;
                let send = get(call, b"tick");
                call.asks.push(Ask { send, timeout_ns: 30_000_000 });
                return RuleOutcome::Suspended(1);
            }
            TICK => {
                let key = if call.answers[0] > 0 { &b"tock"[..] } else { b"late" };
                assert_eq!(call.state[0], FIRST + 1, "a timer has its state until it is over");
                let send = get(call, key);
                call.sends.push(send);
            }
            other => panic!("no such rule: {other:?}"),
        }
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        unreachable!("nothing is merged")
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        Hand.build(builder, frame, out)
    }
}

/// The program; with a timer, or without.
pub fn program(every_ms: Option<u64>) -> Arc<Program> {
    let mut program = (*common::program()).clone();
    program.rules[1].action = RuleAction::Run { rule: RULE };
    program.state_words = 2;
    program.init_state = Some(INIT);
    let on = |event, channel, rule| Handler { event, channel, rule };
    program.handlers = vec![
        on(Event::Refused, 1, FAILED),
        on(Event::Broken, 1, FAILED),
        on(Event::TimedOut, 1, FAILED),
        on(Event::Closed, 0, GONE),
        on(Event::Broken, 0, GONE),
        on(Event::Malformed, 0, WRONG),
    ];
    if let Some(every_ms) = every_ms {
        program.timers = vec![Timer { interval_ns: every_ms * 1_000_000, rule: TICK }];
        program.bounds.asks_max = 1;
        program.bounds.out_bytes_max = 64;
        program.bounds.kept_bytes_max = 64;
    }
    Arc::new(program)
}
