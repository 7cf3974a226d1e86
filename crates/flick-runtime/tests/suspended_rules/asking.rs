//! Rules that ask, written by hand around the engine of the first listing: what the compiler makes of `ask`, so that
//! tests of the platform do not depend on the compiler.

use std::sync::Arc;

use flick_abi::{Ask, Engine, Frame, FuncId, ParseStep, Program, RuleCall, RuleOutcome, Send, SendBody};

use super::common::{self, Hand, KEY_LEN, OPCODE};

/// Behaviour of the rule for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Asks the backend of the key, and if it does not answer in time the next one, built again.
    FailOver,
    /// Asks the backend of the key up to three times, then says that it was too slow.
    Retry,
    /// Asks all backends at once and passes on the first answer in their order.
    All,
    /// Asks one backend whether it is there (a `noop`), then sends the request on to that of the key.
    Forward,
    /// Answers at once with what one backend says, and asks another afterwards.
    WriteBehind,
}

/// The asking engine. `timeout_ns` of each ask; not above 0: none.
pub struct Asking {
    pub style: Style,
    pub timeout_ns: i64,
}

const RULE: FuncId = FuncId(20);
const STAT: u64 = 0x10;
const TIMEOUT: u32 = 1;

impl Asking {
    fn ask(&self, call: &mut RuleCall<'_>, element: u64, body: SendBody) {
        let send = Send { channel: 1, element: element % call.channel_lens[1], body };
        call.asks.push(Ask { send, timeout_ns: self.timeout_ns });
    }

    /// The request, with its header copied.
    fn rebuilt(call: &mut RuleCall<'_>) -> SendBody {
        let offset = call.out_len;
        call.out[offset..offset + 24].copy_from_slice(&call.message[..24]);
        call.out_len += 24;
        SendBody::Rebuilt { offset: offset as u32, len: 24, tail_from: 24, tail_of: 0 }
    }

    /// A `noop` of the rule's own.
    fn noop(call: &mut RuleCall<'_>) -> SendBody {
        let offset = call.out_len;
        call.out[offset..offset + 24].fill(0);
        call.out[offset] = 0x80;
        call.out[offset + 1] = 0x0a;
        call.out[offset + 12] = 0x77;
        call.out_len += 24;
        SendBody::Rebuilt { offset: offset as u32, len: 24, tail_from: u32::MAX, tail_of: 0 }
    }

    fn pass_on(call: &mut RuleCall<'_>, message: i64) {
        call.sends.push(Send { channel: 0, element: 0, body: SendBody::Message(message as u8) });
    }

    fn fail(call: &mut RuleCall<'_>) {
        let reason = call.answers.iter().find(|answer| **answer < 0).map_or(0, |answer| -1 - answer);
        call.failure = Some(reason as u32);
    }

    /// Resumes the rule with the answers to its asks; `target` is the backend that the rule has kept.
    fn go_on(&self, call: &mut RuleCall<'_>, target: u64) -> RuleOutcome {
        let answer = call.answers[0];
        match (self.style, call.resume) {
            (Style::FailOver, 1) if answer < 0 => {
                let body = Self::rebuilt(call);
                self.ask(call, target + 1, body);
                RuleOutcome::Suspended(2)
            }
            (Style::Retry, 1..3) if answer < 0 => {
                self.ask(call, target, SendBody::Original);
                RuleOutcome::Suspended(call.resume + 1)
            }
            (Style::Retry, 3) if answer < 0 => {
                call.failure = Some(TIMEOUT);
                RuleOutcome::Finished
            }
            (Style::All, 1) => {
                match call.answers.iter().find(|answer| **answer > 0) {
                    Some(message) => Self::pass_on(call, *message),
                    None => Self::fail(call),
                }
                RuleOutcome::Finished
            }
            (Style::Forward, 1) => {
                call.sends.push(Send { channel: 1, element: target, body: SendBody::Original });
                RuleOutcome::Finished
            }
            (Style::WriteBehind, 1) if answer > 0 => {
                Self::pass_on(call, answer);
                let body = Self::noop(call);
                self.ask(call, target + 1, body);
                RuleOutcome::Suspended(2)
            }
            (Style::WriteBehind, 2) => RuleOutcome::Finished,
            _ if answer > 0 => {
                assert!(call.others[answer as usize - 1].bytes.len() >= 24, "a reply is there whole");
                Self::pass_on(call, answer);
                RuleOutcome::Finished
            }
            _ => {
                Self::fail(call);
                RuleOutcome::Finished
            }
        }
    }
}

impl Engine for Asking {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        Hand.parse(parser, frame, data)
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        assert_eq!(rule, RULE);
        let start = call.frame.slots[16] as usize;
        let key = &call.message[start..start + call.frame.slots[KEY_LEN] as usize];
        let target = flick_abi::hash::hash(key) % call.channel_lens[1];
        if call.resume > 0 {
            assert_eq!(call.spills[..2], [target, !target], "what was kept is there again");
            return self.go_on(call, target);
        }
        // Several replies, and what is too long to be kept: sent on.
        if call.frame.slots[OPCODE] == STAT || call.frame.total_bytes() > 16 * 1024 {
            call.sends.push(Send { channel: 1, element: target, body: SendBody::Original });
            return RuleOutcome::Finished;
        }
        call.spills[..2].copy_from_slice(&[target, !target]);
        match self.style {
            Style::All => {
                for element in 0..call.channel_lens[1] {
                    self.ask(call, element, SendBody::Original);
                }
            }
            Style::Forward => {
                let body = Self::noop(call);
                self.ask(call, target + 1, body);
            }
            _ => self.ask(call, target, SendBody::Original),
        }
        RuleOutcome::Suspended(1)
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        unreachable!("nothing is merged")
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        Hand.build(builder, frame, out)
    }
}

/// The program of the first listing with a rule of that style.
pub fn program(style: Style) -> Arc<Program> {
    let mut program = (*common::program()).clone();
    program.rules[1].asks = true;
    program.rules[1].action = flick_abi::RuleAction::Run { rule: RULE };
    program.bounds.spill_words = 2;
    program.bounds.out_bytes_max = 48;
    program.bounds.kept_bytes_max = 48;
    program.bounds.sends_per_message_max = 1;
    match style {
        Style::All => program.bounds.array_asks_max = 1,
        Style::Retry => program.bounds.asks_max = 3,
        _ => program.bounds.asks_max = 2,
    }
    Arc::new(program)
}
