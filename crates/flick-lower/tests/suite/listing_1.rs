//! Listing 1 through both engines: what is refused when, what goes where, what the platform answers.

use flick_abi::frame::{SLOT_ECHO_READY, SLOT_NON_QUIET};
use flick_abi::{FaultCause, Frame, MessageFlags, ParseStep, hash};

use crate::engines::Engines;
use crate::memcached::{Message, header};
use crate::random::{Random, cases};
use crate::source;

fn engines() -> Engines {
    Engines::new(source::lower(source::LISTING_1, source::FIXTURE))
}

#[test]
fn nonsense_is_refused_at_its_first_byte() {
    for grammar in [source::FIXTURE, source::library()] {
        let engines = Engines::new(source::lower(source::LISTING_1, grammar));
        let parser = engines.find("parse_request.client");
        let (step, _) = engines.parse_whole(parser, b"G");
        assert_eq!(step, ParseStep::Fault { field: 0, cause: FaultCause::Malformed });
        let (step, frame) = engines.parse_whole(parser, b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(step, ParseStep::Fault { field: 0, cause: FaultCause::Malformed });
        assert_eq!(frame.slots[SLOT_ECHO_READY], 0, "the echo field is not known yet");
    }
}

#[test]
fn a_reply_is_no_request_and_the_other_way_round() {
    let engines = engines();
    for (parser, magic) in [("parse_request.client", 0x81), ("parse_reply.backends", 0x80)] {
        let (step, _) = engines.parse_whole(engines.find(parser), &header(magic, 0, 0, 0, 0));
        assert_eq!(step, ParseStep::Fault { field: 0, cause: FaultCause::Malformed }, "{parser}");
    }
}

#[test]
fn impossible_lengths_are_refused_with_an_answer() {
    let engines = engines();
    let parser = engines.find("parse_request.client");
    let (step, frame) = engines.parse_at_every_cut(parser, &header(0x80, 0, 3, 4, 6));
    assert_eq!(step, ParseStep::Fault { field: 9, cause: FaultCause::Arithmetic }, "value_len would be -1");
    assert_eq!(frame.slots[SLOT_ECHO_READY], 1, "opcode and opaque are known: it can be answered");
    let (step, _) = engines.parse_at_every_cut(parser, &header(0x80, 0, 251, 0, 251));
    assert_eq!(
        step,
        ParseStep::Fault { field: 11, cause: FaultCause::TooLong },
        "the key is longer than the protocol allows"
    );
}

#[test]
fn the_parser_waits_for_what_it_needs_and_no_more() {
    let engines = engines();
    let parser = engines.find("parse_request.client");
    let mut message = header(0x80, 0, 3, 8, 1_000_011);
    message.extend([0; 8]);
    message.extend(b"key");
    let mut asked = Vec::new();
    let mut frame = Frame::new();
    for len in 0..=message.len() {
        if let ParseStep::NeedMore(bytes) = engines.parse(parser, &mut frame, &message[..len])
            && asked.last() != Some(&bytes)
        {
            asked.push(bytes);
        }
    }
    assert_eq!(asked, [1, 16, 35], "the magic byte, the header's part in use, the key; never the value");
    let (step, frame) = engines.parse_whole(parser, &message);
    assert_eq!((step, frame.total_bytes(), frame.head_bytes()), (ParseStep::Done, 1_000_035, 35));
}

#[test]
fn keys_decide_where_requests_go() {
    let engines = engines();
    let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.2"));
    let mut random = Random(1);
    for _ in 0..200 {
        let message = Message { magic: 0x80, ..Message::random(&mut random) };
        let bytes = message.bytes();
        let (step, frame) = engines.parse_whole(parser, &bytes);
        assert_eq!(step, ParseStep::Done);
        for backends in [1, 2, 4, 7] {
            let sent = engines.run(rule, &frame, &bytes, &[1, backends]);
            assert_eq!(sent, [(1, hash::hash(&message.key) % backends, bytes.clone())]);
        }
    }
}

#[test]
fn flags_and_non_quiet_twins_are_those_of_the_protocol() {
    let engines = engines();
    let parser = engines.find("parse_request.client");
    for opcode in 0..=255 {
        let (step, frame) = engines.parse_whole(parser, &header(0x80, opcode, 0, 0, 0));
        assert_eq!(step, ParseStep::Done);
        let flags = match opcode {
            0x07 => MessageFlags::ENDS,
            0x17 => MessageFlags::ENDS | MessageFlags::ONE_WAY,
            0x21 | 0x22 => MessageFlags::STATEFUL,
            _ => 0,
        };
        assert_eq!(frame.flags().0, flags, "flags of opcode {opcode:#x}");
        let twin = match opcode {
            0x09 | 0x0d => opcode - 9 + if opcode == 0x0d { 8 } else { 0 },
            0x11..=0x16 => opcode - 0x10,
            0x18 => 0x08,
            0x19 | 0x1a => opcode - 0x0b,
            0x1e | 0x24 => opcode - 1,
            0x32 | 0x34 | 0x36 | 0x38 | 0x3a | 0x3c => opcode - 1,
            _ => opcode,
        };
        assert_eq!(frame.slots[SLOT_NON_QUIET], u64::from(twin), "non-quiet twin of opcode {opcode:#x}");
    }
}

#[test]
fn flags_of_a_reply_follow_from_the_restored_opcode() {
    let engines = engines();
    let view = engines.module.program.channels[1].view.clone().unwrap();
    let opcode = engines.module.program.protocols[0].made_non_quiet().unwrap().request;
    let check = |sent: u8, restored: u8, status: u16, key: &[u8], expected: u64| {
        let message = Message {
            magic: 0x81,
            opcode: sent,
            data_type: 0,
            status,
            opaque: 7,
            cas: 0,
            extras: vec![],
            key: key.to_vec(),
            value: vec![1],
        };
        let bytes = message.bytes();
        let (step, mut frame) = engines.parse_at_every_cut(view.parse_reply, &bytes);
        assert_eq!(step, ParseStep::Done);
        assert_eq!(frame.flags().0, 0, "a reply parser judges nothing");
        frame.slots[usize::from(opcode.slot)] = u64::from(restored);
        assert_eq!(engines.parse(view.reply_flags.unwrap(), &mut frame, &bytes), ParseStep::Done);
        assert_eq!(frame.flags().0, expected, "{restored:#x} sent as {sent:#x}, status {status}");
    };
    check(0x00, 0x09, 1, b"", MessageFlags::SILENT);
    check(0x00, 0x09, 0, b"", 0);
    check(0x00, 0x00, 1, b"", 0);
    check(0x01, 0x11, 0, b"", MessageFlags::SILENT);
    check(0x01, 0x11, 2, b"", 0);
    check(0x10, 0x10, 0, b"pid", MessageFlags::MORE);
    check(0x10, 0x10, 0, b"", 0);
    check(0x10, 0x10, 1, b"pid", 0);
}

#[test]
fn the_platforms_own_replies_echo_the_request() {
    let engines = engines();
    let parser = engines.find("parse_request.client");
    let mut request = header(0x80, 0x0c, 3, 0, 3);
    request[12..16].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let (_, frame) = engines.parse_whole(parser, &request);
    for (name, status, value) in [
        ("on_unavailable.cmd", 0x86, "backend unavailable"),
        ("on_overload.cmd", 0x85, "too busy"),
        ("on_farewell.cmd", 0, ""),
    ] {
        let reply = Message::parse(&engines.build(engines.find(name), &frame));
        assert_eq!((reply.magic, reply.opcode, reply.opaque), (0x81, 0x0c, 0xdead_beef), "{name}");
        assert_eq!((reply.status, &reply.value[..]), (status, value.as_bytes()), "{name}");
    }
}

#[test]
fn random_messages_cut_at_every_byte() {
    for grammar in [source::FIXTURE, source::library()] {
        check_random_messages(&Engines::new(source::lower(source::LISTING_1, grammar)));
    }
}

fn check_random_messages(engines: &Engines) {
    let parsers = ["parse_request.client", "parse_reply.backends"].map(|name| engines.find(name));
    for seed in 0..cases(500) {
        let mut random = Random(seed);
        let mut message = Message::random(&mut random);
        let parser = *random.pick(&parsers);
        if parser == parsers[1] && message.magic == 0x80 {
            message.magic = 0x81;
        }
        let mut bytes = message.bytes();
        if random.once_in(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        bytes.extend(random.bytes(3));
        let (step, frame) = engines.parse_at_every_cut(parser, &bytes);
        if step == ParseStep::Done {
            assert!(frame.head_bytes() <= frame.total_bytes(), "seed {seed}");
        }
    }
}

/// RELIABILITY P7: the length of the value can never wrap.
#[test]
fn lengths_agree_with_integers_without_end() {
    let engines = engines();
    let library = Engines::new(source::lower(source::LISTING_1, source::library()));
    let library_parser = library.find("parse_request.client");
    let parser = engines.find("parse_request.client");
    let keys = (0..=300_u32).chain([65_533, 65_534, 65_535]);
    for key_len in keys {
        for extras_len in 0..=255_u32 {
            let sum = key_len + extras_len;
            let around = (0..=4).map(|step| i64::from(sum) + step - 2);
            let edges = [0, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 1];
            for total in around.chain(edges) {
                let Ok(total_len) = u32::try_from(total) else { continue };
                let bytes = header(0x80, 0, key_len as u16, extras_len as u8, total_len);
                let (step, frame) = engines.parse_whole(parser, &bytes);
                let value_len = i128::from(total_len) - i128::from(key_len) - i128::from(extras_len);
                let head = u64::from(24 + sum);
                let expected = match () {
                    () if value_len < 0 => ParseStep::Fault { field: 9, cause: FaultCause::Arithmetic },
                    () if key_len > 250 => ParseStep::Fault { field: 11, cause: FaultCause::TooLong },
                    () if head > 24 => ParseStep::NeedMore(head),
                    () => ParseStep::Done,
                };
                assert_eq!(step, expected, "key {key_len}, extras {extras_len}, total {total_len}");
                if value_len >= 0 && key_len <= 250 {
                    assert_eq!(frame.total_bytes(), 24 + u64::from(total_len));
                    assert_eq!(frame.head_bytes(), head);
                }
                // The library refuses more, for the server's sake, but accepts nothing that the model does not.
                let (step, frame) = library.parse_whole(library_parser, &bytes);
                if let ParseStep::Done | ParseStep::NeedMore(_) = step {
                    assert_eq!((step, frame.total_bytes()), (expected, 24 + u64::from(total_len)));
                }
            }
        }
    }
}
