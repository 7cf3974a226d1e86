//! A hand-written engine for the memcached binary protocol and the program of the first listing: what the compiler
//! makes, written by a person, so that tests of the platform do not depend on the compiler.

use std::sync::Arc;

use flick_abi::frame::{SLOT_ECHO_READY, SLOT_FLAGS, SLOT_HEAD, SLOT_NON_QUIET, SLOT_TOTAL};
use flick_abi::{
    Bounds, Channel, EchoField, Engine, FaultCause, Frame, FuncId, MessageFlags, ParseStep, Program,
    Protocol, ReplyOrder, Rule, RuleAction, RuleCall, RuleOutcome, Send, SendBody, Units, View, WireField,
};

pub const OPCODE: usize = 12;
pub const OPAQUE: usize = 13;
const STATUS: usize = 14;
pub const KEY_LEN: usize = 15;

const PARSE_REQUEST: FuncId = FuncId(0);
const PARSE_REPLY: FuncId = FuncId(1);
const REPLY_FLAGS: FuncId = FuncId(2);
const TARGET: FuncId = FuncId(3);
/// Status of each error response, by number of its reason; it has none for later reasons.
const STATUSES: [u16; 7] = [0x86, 0x86, 0x85, 0x04, 0, 0x04, 0x04];
const BUILD: u32 = 4;

pub struct Hand;

const QUIET: [(u8, u8); 18] = [
    (0x09, 0x00),
    (0x0d, 0x0c),
    (0x11, 0x01),
    (0x12, 0x02),
    (0x13, 0x03),
    (0x14, 0x04),
    (0x15, 0x05),
    (0x16, 0x06),
    (0x18, 0x08),
    (0x19, 0x0e),
    (0x1a, 0x0f),
    (0x1e, 0x1d),
    (0x24, 0x23),
    (0x17, 0x07),
    (0x09, 0x00),
    (0x0d, 0x0c),
    (0x1e, 0x1d),
    (0x24, 0x23),
];

fn non_quiet(opcode: u8) -> u8 {
    QUIET.iter().find(|(quiet, _)| *quiet == opcode).map_or(opcode, |(_, non_quiet)| *non_quiet)
}

impl Engine for Hand {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        if parser == REPLY_FLAGS {
            let (opcode, status) = (frame.slots[OPCODE] as u8, frame.slots[STATUS]);
            let quiet = non_quiet(opcode) != opcode;
            let lookup = matches!(non_quiet(opcode), 0x00 | 0x0c | 0x1d | 0x23);
            let silent = quiet && if lookup { status == 1 } else { status == 0 };
            let more = opcode == 0x10 && status == 0 && frame.slots[KEY_LEN] > 0;
            frame.slots[SLOT_FLAGS] =
                if silent { MessageFlags::SILENT } else { 0 } | if more { MessageFlags::MORE } else { 0 };
            return ParseStep::Done;
        }
        let Some(magic) = data.first() else { return ParseStep::NeedMore(1) };
        if *magic != if parser == PARSE_REQUEST { 0x80 } else { 0x81 } {
            return ParseStep::Fault { field: 0, cause: FaultCause::Malformed };
        }
        if data.len() < 24 {
            return ParseStep::NeedMore(24);
        }
        let key_len = u16::from_be_bytes([data[2], data[3]]);
        let extras_len = data[4];
        let total_len = u32::from_be_bytes([data[8], data[9], data[10], data[11]]);
        frame.slots[OPCODE] = u64::from(data[1]);
        frame.slots[OPAQUE] = u64::from(u32::from_be_bytes([data[12], data[13], data[14], data[15]]));
        frame.slots[STATUS] = u64::from(u16::from_be_bytes([data[6], data[7]]));
        frame.slots[KEY_LEN] = u64::from(key_len);
        frame.slots[SLOT_ECHO_READY] = 1;
        let front = u32::from(extras_len) + u32::from(key_len);
        if front > total_len {
            return ParseStep::Fault { field: 10, cause: FaultCause::Arithmetic };
        }
        if key_len > 250 {
            return ParseStep::Fault { field: 12, cause: FaultCause::TooLong };
        }
        let head = 24 + if parser == PARSE_REQUEST { u64::from(front) } else { 0 };
        if (data.len() as u64) < head {
            return ParseStep::NeedMore(head);
        }
        frame.slots[16] = u64::from(24 + u32::from(extras_len));
        frame.slots[SLOT_HEAD] = head;
        frame.slots[SLOT_TOTAL] = 24 + u64::from(total_len);
        let opcode = data[1];
        frame.slots[SLOT_NON_QUIET] = u64::from(non_quiet(opcode));
        frame.slots[SLOT_FLAGS] = match opcode {
            0x07 => MessageFlags::ENDS,
            0x17 => MessageFlags::ENDS | MessageFlags::ONE_WAY,
            _ => 0,
        };
        ParseStep::Done
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        assert_eq!(rule, TARGET);
        let start = call.frame.slots[16] as usize;
        let key = &call.message[start..start + call.frame.slots[KEY_LEN] as usize];
        let element = flick_abi::hash::hash(key) % call.channel_lens[1];
        call.sends.push(Send { channel: 1, element, body: SendBody::Original });
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        unreachable!("the first listing merges nothing")
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        let status = STATUSES[(builder.0 - BUILD) as usize];
        out[..24].fill(0);
        out[0] = 0x81;
        out[1] = frame.slots[OPCODE] as u8;
        out[6..8].copy_from_slice(&status.to_be_bytes());
        out[12..16].copy_from_slice(&(frame.slots[OPAQUE] as u32).to_be_bytes());
        24
    }
}

/// The program of the first listing, as the compiler describes it.
pub fn program() -> Arc<Program> {
    let opcode = WireField { offset: 1, width_bytes: 1, big_endian: true, slot: OPCODE as u16 };
    let opaque = WireField { offset: 12, width_bytes: 4, big_endian: true, slot: OPAQUE as u16 };
    let view = Some(View {
        parse_request: PARSE_REQUEST,
        parse_reply: PARSE_REPLY,
        parse_asked: PARSE_REPLY,
        reply_flags: Some(REPLY_FLAGS),
        head_bytes_max: 529,
        first: None,
    });
    let channel = |name: &str, is_array| Channel {
        name: name.into(),
        is_array,
        view: view.clone(),
        sends: true,
        protocol: 0,
        units: Units::default(),
    };
    Arc::new(Program {
        name: "Memcached".into(),
        channels: vec![channel("client", false), channel("backends", true)],
        rules: vec![
            Rule { source: 1, action: RuleAction::Pass { to: 0 }, asks: false, lookup: None },
            Rule { source: 0, action: RuleAction::Run { rule: TARGET }, asks: false, lookup: None },
        ],
        protocols: vec![Protocol {
            name: "cmd".into(),
            order: ReplyOrder::InOrder,
            exclusive: false,
            log_fields: Vec::new(),
            has_status: false,
            keep_last: 0,
            keep_client: 0,
            correlate: Some(1),
            non_quiet: Some(0),
            echo: [opcode, opaque].map(|field| EchoField { request: field, reply: Some(field) }).to_vec(),
            failures: std::array::from_fn(|reason| {
                (reason < STATUSES.len()).then_some(FuncId(BUILD + reason as u32))
            }),
            message_bytes_max: 24 + u64::from(u32::MAX),
        }],
        merges: vec![],
        handlers: vec![],
        timers: vec![],
        dicts: vec![],
        counters: vec![],
        state_words: 0,
        init_state: None,
        bounds: Bounds::default(),
    })
}
