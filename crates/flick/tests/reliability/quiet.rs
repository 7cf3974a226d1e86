//! Requests without reply, and everything of a message that a proxy has no business with.

use std::sync::mpsc;

use flick_load::binary::{Header, MAGIC_REQUEST, MAGIC_RESPONSE, Opcode, Status, encode_message};

use crate::machine;
use crate::mock::Mock;
use crate::proxy::{IOS, Proxy, stores};
use crate::wire::{Client, Reply, get, key_on, noop, request, set};

#[test]
fn m5_quiet_reads_answer_hits_in_order_and_nothing_else() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(4);
        let proxy = Proxy::start(&backends, io, |_| {});
        let mut client = Client::connect(proxy.address());
        let hits: Vec<String> = (0..4).map(|backend| key_on(backend, 4, "hit")).collect();
        let misses: Vec<String> = (0..4).map(|backend| key_on(backend, 4, "miss")).collect();
        for key in &hits {
            assert_eq!(client.ask(&set(0, key, key.as_bytes())).status(), Some(Status::NoError), "{io:?}");
        }
        let quiet = |opcode, opaque, key: &str| request(opcode, opaque, &[], key.as_bytes(), &[]);
        for round in 0..200 {
            let mut pipeline = Vec::new();
            for backend in (0..4).rev() {
                pipeline.extend(quiet(Opcode::GetQ, 10 + backend as u32, &hits[backend]));
                pipeline.extend(quiet(Opcode::GetQ, 20 + backend as u32, &misses[backend]));
                pipeline.extend(quiet(Opcode::GetKQ, 30 + backend as u32, &hits[backend]));
                pipeline.extend(quiet(Opcode::GetKQ, 40 + backend as u32, &misses[backend]));
            }
            pipeline.extend(noop(1_000 + round));
            client.send(&pipeline);
            for backend in (0..4).rev() {
                let (plain, with_key) = (client.reply(), client.reply());
                assert_eq!(plain.outcome(), (Some(Status::NoError), 10 + backend as u32), "{io:?}");
                assert_eq!(
                    (plain.header.opcode, plain.value()),
                    (Opcode::GetQ.byte(), hits[backend].as_bytes())
                );
                assert_eq!(with_key.outcome(), (Some(Status::NoError), 30 + backend as u32), "{io:?}");
                assert_eq!(with_key.header.opcode, Opcode::GetKQ.byte());
                assert_eq!(usize::from(with_key.header.key_len), hits[backend].len());
            }
            let end = client.reply();
            assert_eq!(
                (end.header.opcode, end.header.opaque),
                (Opcode::Noop.byte(), 1_000 + round),
                "{io:?}"
            );
        }
        assert_eq!(proxy.totals().replies_suppressed, 200 * 8);
    }
}

#[test]
fn m5_quiet_writes_answer_failures_and_nothing_else() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(4);
        let proxy = Proxy::start(&backends, io, |_| {});
        let mut client = Client::connect(proxy.address());
        let keys: Vec<String> = (0..4).map(|backend| key_on(backend, 4, "key")).collect();
        for round in 0..100 {
            let mut pipeline = Vec::new();
            for (opaque, key) in (0_u32..).zip(&keys) {
                let key = key.as_bytes();
                pipeline.extend(request(Opcode::SetQ, opaque, &[0; 8], key, b"quietly"));
                // It is there now.
                pipeline.extend(request(Opcode::AddQ, 10 + opaque, &[0; 8], key, b"too late"));
                pipeline.extend(request(Opcode::AppendQ, 20 + opaque, &[], key, b" appended"));
                pipeline.extend(with_cas(Opcode::SetQ, 30 + opaque, key, 0xdead_beef));
                pipeline.extend(request(Opcode::Get, 40 + opaque, &[], key, &[]));
                pipeline.extend(request(Opcode::DeleteQ, 50 + opaque, &[], key, &[]));
                pipeline.extend(request(Opcode::DeleteQ, 60 + opaque, &[], key, &[]));
            }
            pipeline.extend(noop(1_000 + round));
            client.send(&pipeline);
            for opaque in 0..4 {
                let expected = [
                    (Opcode::AddQ, Status::KeyExists, 10),
                    (Opcode::SetQ, Status::KeyExists, 30),
                    (Opcode::Get, Status::NoError, 40),
                    (Opcode::DeleteQ, Status::KeyNotFound, 60),
                ];
                for (opcode, status, base) in expected {
                    let reply = client.reply();
                    assert_eq!(reply.outcome(), (Some(status), base + opaque), "{io:?}, {opcode:?}");
                    assert_eq!(reply.header.opcode, opcode.byte(), "{io:?}");
                    assert!(opcode != Opcode::Get || reply.value() == b"quietly appended", "{io:?}");
                }
            }
            assert_eq!(client.reply().header.opaque, 1_000 + round, "{io:?}");
        }
    }
}

/// A quiet request to a dead backend fails, and failures are answered.
#[test]
fn m5_quiet_requests_to_a_dead_backend_are_answered() {
    let _machine = machine::together();
    for io in IOS {
        let proxy = Proxy::start(&[crate::common::peers::free_address()], io, |_| {});
        let mut client = Client::connect(proxy.address());
        for round in 0..50 {
            client.send(
                &[
                    request(Opcode::GetQ, round, &[], b"a", &[]),
                    request(Opcode::SetQ, 1_000 + round, &[0; 8], b"a", b"v"),
                    noop(2_000 + round),
                ]
                .concat(),
            );
            for (opcode, opaque) in [(Opcode::GetQ, 0), (Opcode::SetQ, 1_000), (Opcode::Noop, 2_000)] {
                let reply = client.reply();
                assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), opaque + round), "{io:?}");
                assert_eq!(reply.header.opcode, opcode.byte(), "{io:?}");
            }
        }
    }
}

fn with_cas(opcode: Opcode, opaque: u32, key: &[u8], cas: u64) -> Vec<u8> {
    let header = Header { magic: MAGIC_REQUEST, opcode: opcode.byte(), opaque, cas, ..Header::default() };
    let mut bytes = Vec::new();
    encode_message(header, &[0; 8], key, b"value", &mut bytes);
    bytes
}

#[test]
fn m11_opaque_cas_flags_arrive_byte_for_byte() {
    let _machine = machine::together();
    for io in IOS {
        let (seen_by_mock, mock_saw) = mpsc::channel();
        let seen_by_mock = std::sync::Mutex::new(seen_by_mock);
        // Answers with everything that a reply can carry, made from the request.
        let mock = Mock::start(move |conversation| {
            while let Some((header, body)) = conversation.request() {
                let seed = header.cas.rotate_left(17) ^ u64::MAX;
                let reply = Header {
                    magic: MAGIC_RESPONSE,
                    opcode: header.opcode,
                    opaque: header.opaque,
                    cas: seed,
                    ..Header::default()
                };
                let mut bytes = Vec::new();
                encode_message(reply, &seed.to_be_bytes()[..4], b"", &body, &mut bytes);
                let _ = seen_by_mock.lock().expect("no holder panics").send((header, body));
                conversation.write(&bytes);
            }
        });
        let proxy = Proxy::start(&[mock.address], io, |_| {});
        let mut client = Client::connect(proxy.address());
        let mut random: u64 = 0x5eed_0011;
        println!("seed {random:#x}");
        for round in 0..1_000_u32 {
            let mut next = || {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                random ^ random >> 29
            };
            let edge = |value: u64, round: u32| match round % 5 {
                0 => 0,
                1 => u64::MAX,
                _ => value,
            };
            let cas = edge(next(), round);
            let opaque = edge(next(), round / 5) as u32;
            let extras = edge(next(), round / 25).to_be_bytes();
            let value: Vec<u8> = (0..next() % 300).map(|_| next() as u8).collect();
            let header =
                Header { magic: MAGIC_REQUEST, opcode: Opcode::Set.byte(), opaque, cas, ..Header::default() };
            let mut bytes = Vec::new();
            encode_message(header, &extras, b"key", &value, &mut bytes);
            let Reply { header: reply, body } = client.ask(&bytes);
            let (seen, seen_body) = mock_saw.recv().expect("the mock reports");
            let sent = Header::decode(&bytes).expect("a whole header");
            assert_eq!(Header { opaque: 0, ..seen }, Header { opaque: 0, ..sent }, "{io:?}");
            assert_eq!(seen_body, bytes[24..], "{io:?}");
            let seed = cas.rotate_left(17) ^ u64::MAX;
            assert_eq!((reply.opaque, reply.cas), (opaque, seed), "{io:?}");
            assert_eq!(body, [&seed.to_be_bytes()[..4], &seen_body[..]].concat(), "{io:?}");
        }
        assert_eq!(client.ask(&get(5, "key")).header.opaque, 5);
    }
}
