//! A small protocol of lines with everything that a grammar may say of exchanges, written by hand, so that tests of the
//! platform do not depend on the compiler:
//!
//! ```text
//! get k0 keep=5 hop retry\n        a request for backend 0
//! put k0 len=3\nabc                 with a body, or `parts`: each `3\nabc`, the last `0\n`
//! ok len=3\nabc                     a reply; or `parts`, or `close`: until close; `len=asked`: what `keep` said
//! ok last, ok tunnel, wait more     the last on its connection; raw behind it; not the last reply
//! ```
//! A key that begins with `local` is answered by the rule, `ask` asked, `made` forwarded as another request, `drop`
//! dropped; `quiet` is answered with a suppressed reply, `wrong` with malformed bytes, or, with a digit, forwarded as
//! such.

use std::sync::Arc;

use flick_abi::frame::{SLOT_ASKED, SLOT_ECHO_READY, SLOT_FLAGS, SLOT_HEAD, SLOT_STATE, SLOT_TOTAL};
use flick_abi::{
    Ask, Bounds, Channel, Engine, FaultCause, Frame, FuncId, MessageFlags, ParseStep, Program, Protocol,
    ReplyOrder, Rule, RuleAction, RuleCall, RuleOutcome, Send, SendBody, Units, View,
};

const REQUEST: FuncId = FuncId(0);
const REPLY: FuncId = FuncId(1);
const ASKED: FuncId = FuncId(2);
const RULE: FuncId = FuncId(3);
const BUILD: u32 = 4;
const RAW: FuncId = FuncId(20);
const FIRST: FuncId = FuncId(21);
/// Of a request: start and length of its key.
const KEY: usize = 12;
/// Longest line.
const LINE_BYTES_MAX: usize = 100;

/// The engine.
pub struct Tiny;

/// Returns the end of the first line, line break included.
fn line(data: &[u8]) -> Result<usize, ParseStep> {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(at) if at < LINE_BYTES_MAX => Ok(at + 1),
        None if data.len() < LINE_BYTES_MAX => Err(ParseStep::NeedMore(data.len() as u64 + 1)),
        _ => Err(ParseStep::Fault { field: 0, cause: FaultCause::TooLong }),
    }
}

/// The words of a line and where they start.
fn words(line: &[u8]) -> impl Iterator<Item = (usize, &str)> {
    let text = std::str::from_utf8(&line[..line.len() - 1]).unwrap_or("!");
    text.split(' ').scan(0, |next, word| {
        let at = *next;
        *next += word.len() + 1;
        Some((at, word))
    })
}

fn number(text: &str, asked: u64) -> u64 {
    if text == "asked" { asked } else { text.parse().unwrap_or(0) }
}

fn first_part(frame: &mut Frame, data: &[u8]) -> Result<(), ParseStep> {
    let head = line(data)?;
    let (mut total, mut flags) = (head as u64, 0);
    let asked = frame.slots[SLOT_ASKED];
    for (nth, (at, word)) in words(&data[..head]).enumerate() {
        flags |= match word {
            "parts" => MessageFlags::PARTS,
            "close" => MessageFlags::UNTIL_CLOSE,
            "last" => MessageFlags::LAST,
            "retry" => MessageFlags::RETRY,
            "whole" => MessageFlags::WHOLE,
            "tunnel" => MessageFlags::TUNNEL,
            "more" => MessageFlags::MORE,
            "silent" => MessageFlags::SILENT,
            _ => 0,
        };
        match word.split_once('=') {
            Some(("len", len)) => total += number(len, asked),
            Some(("keep", kept)) => frame.slots[SLOT_ASKED] = number(kept, asked),
            _ => {}
        }
        if word == "hop" {
            assert!(frame.cut(at as u64 - 1, (at + word.len()) as u64), "few hops");
        }
        if nth == 1 {
            frame.slots[KEY] = (at as u64) << 32 | word.len() as u64;
        }
        if word.starts_with('!') {
            return Err(ParseStep::Fault { field: nth as u32, cause: FaultCause::Malformed });
        }
    }
    if flags & MessageFlags::UNTIL_CLOSE != 0 {
        total = u64::MAX;
    }
    frame.slots[SLOT_HEAD] = head as u64;
    frame.slots[SLOT_TOTAL] = total;
    frame.slots[SLOT_FLAGS] = flags;
    frame.slots[SLOT_STATE] = u64::from(flags & MessageFlags::PARTS != 0);
    Ok(())
}

fn further_part(frame: &mut Frame, data: &[u8]) -> Result<(), ParseStep> {
    let head = line(data)?;
    let mut size = None;
    for (nth, (at, word)) in words(&data[..head]).enumerate() {
        if nth == 0 {
            size = u64::from_str_radix(word, 16).ok();
        } else if word == "hop" {
            assert!(frame.cut(at as u64 - 1, (at + word.len()) as u64), "few hops");
        }
    }
    let Some(size) = size else { return Err(ParseStep::Fault { field: 9, cause: FaultCause::Malformed }) };
    frame.slots[SLOT_HEAD] = head as u64;
    frame.slots[SLOT_TOTAL] = head as u64 + size;
    frame.slots[SLOT_FLAGS] &= if size == 0 { !MessageFlags::PARTS } else { u64::MAX };
    Ok(())
}

/// All parts at once.
fn whole(frame: &mut Frame, data: &[u8]) -> Result<(), ParseStep> {
    let asked = frame.slots[SLOT_ASKED];
    frame.restart();
    frame.slots[SLOT_ASKED] = asked;
    first_part(frame, data)?;
    let head = frame.head_bytes();
    let mut end = frame.total_bytes();
    while frame.flags().has(MessageFlags::PARTS) {
        let Some(rest) = data.get(end as usize..) else { return Err(ParseStep::NeedMore(end)) };
        further_part(frame, rest).map_err(|step| match step {
            ParseStep::NeedMore(bytes) => ParseStep::NeedMore(end + bytes),
            other => other,
        })?;
        end += frame.total_bytes();
    }
    frame.slots[SLOT_HEAD] = head;
    frame.slots[SLOT_TOTAL] = end;
    frame.slots[SLOT_STATE] = 0;
    Ok(())
}

impl Tiny {
    fn built(call: &mut RuleCall<'_>, text: &str) -> SendBody {
        let offset = call.out_len;
        call.out[offset..offset + text.len()].copy_from_slice(text.as_bytes());
        call.out_len += text.len();
        SendBody::Rebuilt { offset: offset as u32, len: text.len() as u32, tail_from: u32::MAX, tail_of: 0 }
    }
}

impl Engine for Tiny {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        frame.slots[SLOT_ECHO_READY] = 1;
        if parser == RAW {
            frame.slots[SLOT_HEAD] = 0;
            frame.slots[SLOT_TOTAL] = u64::MAX;
            frame.slots[SLOT_FLAGS] = MessageFlags::UNTIL_CLOSE;
            return ParseStep::Done;
        }
        let parsed = match (parser, frame.slots[SLOT_STATE]) {
            (ASKED, _) => whole(frame, data),
            (_, 0) => first_part(frame, data),
            _ => further_part(frame, data),
        };
        parsed.map_or_else(|step| step, |()| ParseStep::Done)
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        if rule == FIRST {
            call.sends.push(Send { channel: 1, element: 0, body: SendBody::Original });
            return RuleOutcome::Finished;
        }
        assert_eq!(rule, RULE);
        if call.resume > 0 {
            match call.answers[0] {
                message @ 1.. => {
                    call.sends.push(Send { channel: 0, element: 0, body: SendBody::Message(message as u8) });
                }
                reason => call.failure = Some((-1 - reason) as u32),
            }
            return RuleOutcome::Finished;
        }
        let (start, len) = ((call.frame.slots[KEY] >> 32) as usize, call.frame.slots[KEY] as u32 as usize);
        let key = &call.message[start..start + len];
        let element = u64::from(key.last().map_or(0, |byte| byte & 7)) % call.channel_lens[1].max(1);
        if key.starts_with(b"local") {
            let body = Self::built(call, "ok len=5\nlocal");
            call.sends.push(Send { channel: 0, element: 0, body });
        } else if key.starts_with(b"ask") {
            let send = Send { channel: 1, element, body: SendBody::Original };
            call.asks.push(Ask { send, timeout_ns: 0 });
            return RuleOutcome::Suspended(1);
        } else if key.starts_with(b"quiet") {
            let body = Self::built(call, "ok silent len=5\nquiet");
            call.sends.push(Send { channel: 0, element: 0, body });
        } else if key.starts_with(b"wrong") {
            let body = Self::built(call, if key == b"wrong" { "ok !\n" } else { "get !\n" });
            let channel = u32::from(key != b"wrong");
            call.sends.push(Send { channel, element, body });
        } else if key.starts_with(b"drop") {
            return RuleOutcome::Finished;
        } else if key.starts_with(b"made") {
            let body = Self::built(call, "get other0 keep=3\n");
            call.sends.push(Send { channel: 1, element, body });
        } else {
            call.sends.push(Send { channel: 1, element, body: SendBody::Original });
        }
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        unreachable!("nothing is merged")
    }

    fn build(&self, builder: FuncId, _frame: &Frame, out: &mut [u8]) -> usize {
        let text = [b'f', b'a', b'i', b'l', b' ', b'0' + (builder.0 - BUILD) as u8, b'\n'];
        out[..text.len()].copy_from_slice(&text);
        text.len()
    }
}

/// Kind of a service of that protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A proxy whose exchanges have connections for themselves.
    Exclusive,
    /// One whose rule may ask.
    Asks,
    /// Each client has backend connections of its own.
    Private,
    /// The same, and all there is are bytes.
    Raw,
}

/// The program: a proxy of that protocol.
pub fn program(kind: Kind) -> Arc<Program> {
    let asks = kind == Kind::Asks;
    let raw = View {
        parse_request: RAW,
        parse_reply: RAW,
        parse_asked: RAW,
        reply_flags: None,
        head_bytes_max: 0,
        first: None,
    };
    let view = View {
        parse_request: REQUEST,
        parse_reply: REPLY,
        parse_asked: ASKED,
        reply_flags: None,
        head_bytes_max: 100,
        first: None,
    };
    let channel = |name: &str, is_array| Channel {
        name: name.into(),
        is_array,
        view: Some(if kind == Kind::Raw { raw.clone() } else { view.clone() }),
        sends: true,
        protocol: 0,
        units: Units::default(),
    };
    Arc::new(Program {
        name: "Tiny".into(),
        channels: vec![channel("client", false), channel("backends", true)],
        rules: vec![
            Rule { source: 1, action: RuleAction::Pass { to: 0 }, asks: false, lookup: None },
            Rule {
                source: 0,
                action: RuleAction::Run { rule: if kind == Kind::Raw { FIRST } else { RULE } },
                asks,
                lookup: None,
            },
        ],
        protocols: vec![Protocol {
            name: "request".into(),
            order: if matches!(kind, Kind::Private | Kind::Raw) {
                ReplyOrder::None
            } else {
                ReplyOrder::InOrder
            },
            exclusive: !matches!(kind, Kind::Private | Kind::Raw),
            has_status: false,
            log_fields: Vec::new(),
            keep_last: 0,
            keep_client: 0,
            correlate: None,
            non_quiet: None,
            echo: vec![],
            failures: std::array::from_fn(|reason| Some(FuncId(BUILD + reason as u32))),
            message_bytes_max: u64::MAX,
        }],
        merges: vec![],
        handlers: vec![],
        timers: vec![],
        dicts: vec![],
        counters: vec![],
        state_words: 0,
        init_state: None,
        bounds: Bounds {
            asks_max: u32::from(asks),
            out_bytes_max: 64,
            kept_bytes_max: 64,
            ..Bounds::default()
        },
    })
}
