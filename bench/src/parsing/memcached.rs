//! Requests of memcached's binary protocol: the library's whole grammar in the proxy of Listing 1, beside the same
//! parser as a person would write it in Rust. Both leave their findings in a frame and are called through a table.

use std::hint::black_box;

use flick_abi::frame::{SLOT_ECHO_READY, SLOT_FLAGS, SLOT_HEAD, SLOT_NON_QUIET, SLOT_STATE, SLOT_TOTAL};
use flick_abi::limits::FRAME_HEAD_SLOTS;
use flick_abi::{
    BytesRef, Engine, FaultCause, Frame, FuncId, MessageFlags, ParseStep, Region, RuleCall, RuleOutcome,
};

use super::{Compiled, Parser, Row, found};

/// Bytes in front of extras, key and value.
const HEADER_BYTES: u64 = 24;
/// Longest key of the protocol.
const KEY_BYTES_MAX: u64 = 250;

/// The proxy, compiled, and requests.
pub(super) struct Memcached {
    compiled: Compiled,
    requests: Vec<(&'static str, Vec<u8>)>,
}

impl Memcached {
    pub(super) fn new(listings: bool) -> Result<Self, String> {
        let proxy = include_str!("../../../examples/memcached_proxy/memcached_proxy.flick");
        Ok(Self { compiled: Compiled::new("memcached_proxy", proxy, listings)?, requests: requests() })
    }

    pub(super) fn rows(&self) -> Result<Vec<Row<'_>>, String> {
        let flick = self.compiled.requests()?;
        let hand: &dyn Engine = black_box(&ByHand);
        let hand = Parser { engine: hand, parser: FuncId(0) };
        let rows = self.requests.iter().map(|(name, message)| {
            check(flick, hand, message);
            Row {
                name: format!("memcached binary, {name}, {} bytes", message.len()),
                flick: Box::new(move |calls| flick.repeat(message, calls)),
                rival_name: "by hand",
                rival: Box::new(move |calls| hand.repeat(message, calls)),
            }
        });
        Ok(rows.collect())
    }
}

/// Both sides find the same in a message, and refuse the same at every byte of its header that may be wrong.
fn check(flick: Parser<'_>, hand: Parser<'_>, message: &[u8]) {
    let (mut ours, mut theirs) = (Frame::new(), Frame::new());
    let mut both = |message: &[u8]| {
        ours.restart();
        theirs.restart();
        let steps = (
            flick.engine.parse(flick.parser, &mut ours, message),
            hand.engine.parse(hand.parser, &mut theirs, message),
        );
        if let (ParseStep::Done, ParseStep::Done) = steps {
            for slot in [SLOT_TOTAL, SLOT_HEAD, SLOT_FLAGS, SLOT_NON_QUIET] {
                assert_eq!(ours.slots[slot], theirs.slots[slot], "slot {slot} of {message:?}");
            }
            let key = BytesRef(theirs.slots[FRAME_HEAD_SLOTS]).resolve(|_| Some(message), &[], &[]);
            let key = key.unwrap_or_default();
            assert!(found(&ours, message).contains(&key), "the key of {message:?} is found");
        }
        let same = std::mem::discriminant(&steps.0) == std::mem::discriminant(&steps.1);
        assert!(same, "{steps:?} of {message:?}");
        steps.0
    };
    assert_eq!(both(message), ParseStep::Done, "the messages are whole");
    for at in [0, 1, 2, 3, 4, 8, 9, 10, 11] {
        for byte in 0..=255 {
            let mut changed = message.to_vec();
            changed[at] = byte;
            both(&changed);
        }
    }
}

/// An engine for this protocol alone.
struct ByHand;

impl Engine for ByHand {
    fn parse(&self, _parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        parse(frame, data)
    }

    fn run(&self, _rule: FuncId, _call: &mut RuleCall<'_>) -> RuleOutcome {
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        0
    }

    fn build(&self, _builder: FuncId, _frame: &Frame, _out: &mut [u8]) -> usize {
        0
    }
}

/// The same checks, findings and answers as the grammar's, and, as `Engine::parse` promises, going on where it stopped
/// when it is called again.
fn parse(frame: &mut Frame, data: &[u8]) -> ParseStep {
    let state = frame.slots[SLOT_STATE];
    if state == 0 {
        match data.first() {
            None => return ParseStep::NeedMore(1),
            Some(0x80) => {}
            Some(_) => return ParseStep::Fault { field: 0, cause: FaultCause::Malformed },
        }
    }
    let (start, end);
    if state < 2 {
        let Some(header) = data.first_chunk::<{ HEADER_BYTES as usize }>() else {
            frame.slots[SLOT_STATE] = 1;
            return ParseStep::NeedMore(HEADER_BYTES);
        };
        let opcode = header[1];
        let key_len = u64::from(u16::from_be_bytes([header[2], header[3]]));
        let extras_len = u64::from(header[4]);
        let total_len = u64::from(u32::from_be_bytes([header[8], header[9], header[10], header[11]]));
        let opaque = u64::from(u32::from_be_bytes([header[12], header[13], header[14], header[15]]));
        frame.slots[FRAME_HEAD_SLOTS + 1] = u64::from(opcode);
        frame.slots[FRAME_HEAD_SLOTS + 2] = opaque;
        frame.slots[SLOT_ECHO_READY] = 1;
        if total_len < key_len + extras_len {
            return ParseStep::Fault { field: 9, cause: FaultCause::Arithmetic };
        }
        if key_len > KEY_BYTES_MAX {
            return ParseStep::Fault { field: 11, cause: FaultCause::TooLong };
        }
        if !is_request(opcode, extras_len, key_len, total_len) {
            return ParseStep::Fault { field: 0, cause: FaultCause::Malformed };
        }
        start = HEADER_BYTES + extras_len;
        end = start + key_len;
        frame.slots[FRAME_HEAD_SLOTS + 3] = start;
        frame.slots[FRAME_HEAD_SLOTS + 4] = end;
        frame.slots[SLOT_TOTAL] = HEADER_BYTES + total_len;
        frame.slots[SLOT_NON_QUIET] = u64::from(non_quiet(opcode));
        frame.slots[SLOT_FLAGS] = match opcode {
            0x07 => MessageFlags::ENDS,
            0x17 => MessageFlags::ENDS | MessageFlags::ONE_WAY,
            0x21 | 0x22 => MessageFlags::STATEFUL,
            _ => 0,
        };
    } else {
        (start, end) = (frame.slots[FRAME_HEAD_SLOTS + 3], frame.slots[FRAME_HEAD_SLOTS + 4]);
    }
    if (data.len() as u64) < end {
        frame.slots[SLOT_STATE] = 2;
        return ParseStep::NeedMore(end);
    }
    frame.slots[FRAME_HEAD_SLOTS] = BytesRef::new(Region::Message, start, (end - start) as u32).0;
    frame.slots[SLOT_HEAD] = end;
    ParseStep::Done
}

/// Whether a request has the one shape that the server has for its opcode.
fn is_request(opcode: u8, extras: u64, key: u64, total: u64) -> bool {
    let no_value = total == extras + key;
    match opcode {
        0x00 | 0x04 | 0x09 | 0x0c | 0x0d | 0x14 => extras == 0 && key > 0 && no_value,
        0x01..=0x03 | 0x11..=0x13 => extras == 8 && key > 0,
        0x0e | 0x0f | 0x19 | 0x1a | 0x21 | 0x22 => extras == 0 && key > 0,
        0x05 | 0x06 | 0x15 | 0x16 => extras == 20 && key > 0 && no_value,
        0x1c..=0x1e | 0x23 | 0x24 => extras == 4 && key > 0 && no_value,
        0x08 | 0x18 => (extras == 0 || extras == 4) && key == 0 && no_value,
        0x07 | 0x17 | 0x0a | 0x0b | 0x20 => total == 0,
        0x10 => extras == 0 && no_value,
        _ => key == 0 && extras == 0,
    }
}

/// The opcode that does the same and always has a reply.
fn non_quiet(opcode: u8) -> u8 {
    match opcode {
        0x09 => 0x00,
        0x0d => 0x0c,
        0x11..=0x16 => opcode - 0x10,
        0x18 => 0x08,
        0x19 | 0x1a => opcode - 0x0b,
        0x1e | 0x24 | 0x32 | 0x34 | 0x36 | 0x38 | 0x3a | 0x3c => opcode - 1,
        _ => opcode,
    }
}

/// Requests of several kinds, with keys of several lengths.
pub(super) fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let message = |opcode: u8, extras: usize, key: usize, value: usize| {
        let mut message = vec![0x80, opcode, 0, key as u8, extras as u8, 0, 0, 0];
        message.extend(((extras + key + value) as u32).to_be_bytes());
        message.resize(HEADER_BYTES as usize + extras, 7);
        message.resize(HEADER_BYTES as usize + extras + key, b'k');
        message.resize(HEADER_BYTES as usize + extras + key + value, b'v');
        message
    };
    vec![
        ("get", message(0x00, 0, 20, 0)),
        ("quiet get", message(0x09, 0, 64, 0)),
        ("set", message(0x01, 8, 32, 100)),
        ("delete", message(0x04, 0, 11, 0)),
        ("increment", message(0x05, 20, 16, 0)),
    ]
}
