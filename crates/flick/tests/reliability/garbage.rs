//! Bytes that are not of the protocol, from backends and from clients: answered in the protocol or closed, counted,
//! and no other client notices.

use std::time::Duration;

use flick_load::binary::{HEADER_BYTES, Header, MAGIC_RESPONSE, Opcode, Status};
use flick_net::IoKind;

use crate::common::peers::{self, Memcached};
use crate::common::service::Service;
use crate::machine;
use crate::mock::{Mock, answer, key_of};
use crate::proxy::{IOS, Proxy, stores};
use crate::wire::{self, Client, get, key_on};

const MIB: u64 = 1 << 20;

/// Result of the request that was answered with garbage.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// The platform answers it: the backend is not available.
    Unavailable,
    /// The platform answers it: the backend is too slow.
    TimedOut,
    /// It was answered well; the garbage came behind.
    Answered,
}

/// Counter that the platform increments.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    Fault,
    Truncated,
    TimedOut,
}

struct Garbage {
    name: &'static str,
    /// The bytes that are sent instead of the answer.
    bytes: fn(&Header) -> Vec<u8>,
    closes: bool,
    fate: Fate,
    counted: Counted,
}

/// The answer `good` with one field changed.
fn changed(to: &Header, change: fn(&mut Header)) -> Vec<u8> {
    let good = answer(to, Status::NoError, b"value");
    let mut header = Header::decode(&good).expect("a whole header");
    change(&mut header);
    [&header.encode(), &good[HEADER_BYTES..]].concat()
}

const GARBAGE: &[Garbage] = &[
    Garbage {
        name: "wrong magic",
        bytes: |to| changed(to, |header| header.magic = 0x82),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "a request instead of a reply",
        bytes: |to| changed(to, |header| header.magic = 0x80),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "text",
        bytes: |_| b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "wrong opaque",
        bytes: |to| changed(to, |header| header.opaque ^= 1),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "body shorter than its extras and key",
        bytes: |to| changed(to, |header| (header.extras_len, header.key_len) = (4, 2)),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "a key longer than keys are",
        bytes: |to| changed(to, |header| (header.key_len, header.body_len) = (251, 300)),
        closes: false,
        fate: Fate::Unavailable,
        counted: Counted::Fault,
    },
    Garbage {
        name: "an extra reply behind",
        bytes: |to| [answer(to, Status::NoError, b"value"), answer(to, Status::NoError, b"again")].concat(),
        closes: false,
        fate: Fate::Answered,
        counted: Counted::Fault,
    },
    Garbage {
        name: "a body longer than what is sent",
        bytes: |to| changed(to, |header| header.body_len += 1),
        closes: false,
        fate: Fate::TimedOut,
        counted: Counted::TimedOut,
    },
    Garbage {
        name: "a body shorter than what is sent",
        bytes: |to| [changed(to, |header| header.body_len -= 1), vec![b'e'; 30]].concat(),
        closes: false,
        fate: Fate::Answered,
        counted: Counted::Fault,
    },
    Garbage {
        name: "half a body",
        bytes: |to| changed(to, |header| header.body_len += 100),
        closes: true,
        fate: Fate::Unavailable,
        counted: Counted::Truncated,
    },
    Garbage {
        name: "half a header",
        bytes: |to| answer(to, Status::NoError, b"")[..13].to_vec(),
        closes: true,
        fate: Fate::Unavailable,
        counted: Counted::Truncated,
    },
];

#[test]
fn m10_malformed_backend_reply_closes_the_backend_connection() {
    let _machine = machine::together();
    for io in IOS {
        for garbage in GARBAGE {
            m10(io, garbage);
        }
    }
}

fn m10(io: IoKind, garbage: &'static Garbage) {
    let name = format!("{io:?}, {}", garbage.name);
    let mock = Mock::start(|conversation| {
        while let Some((header, body)) = conversation.request() {
            if key_of(&header, &body).starts_with(b"bad") {
                conversation.write(&(garbage.bytes)(&header));
                if garbage.closes {
                    return;
                }
            } else {
                conversation.answer(&header, Status::NoError, key_of(&header, &body));
            }
        }
    });
    let (_stores, others) = stores(1);
    let proxy = Proxy::start(&[mock.address, others[0]], io, |config| {
        config.timeouts.response = Some(Duration::from_millis(100));
    });
    (0..2).for_each(|backend| proxy.until_backend(backend, 1));
    let (bad, good, other) = (key_on(0, 2, "bad"), key_on(0, 2, "good"), key_on(1, 2, "other"));
    let mut client = Client::connect(proxy.address());
    let mut neighbour = Client::connect(proxy.address());
    let reply = client.ask(&get(77, &bad));
    let expected = match garbage.fate {
        Fate::Answered => Status::NoError,
        Fate::Unavailable | Fate::TimedOut => Status::TemporaryFailure,
    };
    assert_eq!(reply.outcome(), (Some(expected), 77), "{name}");
    match garbage.fate {
        Fate::Unavailable => assert_eq!(reply.value(), b"backend unavailable", "{name}"),
        Fate::TimedOut => assert_eq!(reply.value(), b"backend timed out", "{name}"),
        Fate::Answered => {}
    }
    assert_eq!(neighbour.ask(&get(1, &other)).status(), Some(Status::KeyNotFound), "{name}");
    proxy.until("the connection to be given up", |totals| totals.backend_connections_closed == 1);
    proxy.until_backend(0, 1);
    assert_eq!(client.ask(&get(78, &good)).value(), good.as_bytes(), "{name}");
    assert_eq!(neighbour.ask(&get(2, &other)).status(), Some(Status::KeyNotFound), "{name}");
    let totals = proxy.totals();
    let counted = |what| u64::from(garbage.counted == what);
    assert_eq!(
        (
            totals.protocol_errors_backend,
            totals.truncated,
            totals.errors_timeout,
            totals.backend_connections_closed
        ),
        (counted(Counted::Fault), counted(Counted::Truncated), counted(Counted::TimedOut), 1),
        "{name}"
    );
    assert_eq!((totals.connections_open, mock.accepted()), (2, 2), "{name}");
}

/// Lengths that contradict each other or that nothing could hold, as in CVE-2011-4971, CVE-2016-8704, CVE-2020-10931.
fn impossible_lengths() -> Vec<(String, Header)> {
    let header = |opcode: Opcode, extras_len, key_len, body_len| Header {
        magic: 0x80,
        opcode: opcode.byte(),
        extras_len,
        key_len,
        body_len,
        opaque: 0x0bad_cafe,
        ..Header::default()
    };
    let mut all = Vec::new();
    for opcode in [Opcode::Get, Opcode::Set, Opcode::SetQ, Opcode::Append, Opcode::Increment, Opcode::Delete]
    {
        for (name, extras_len, key_len, body_len) in [
            ("key and extras longer than the body", 8, 20, 27),
            ("key longer than the body", 0, 10, 4),
            ("a body of 2^31", 8, 3, 0x8000_0000),
            ("a body of 2^31, without key", 0, 0, 0x8000_0000),
            ("a body of 2^32-1", 8, 3, 0xffff_ffff),
            ("a body of 2^32-1, without anything else", 0, 0, 0xffff_ffff),
            ("extras of 255 in a body of 4", 255, 0, 4),
            ("extras of 255 in a body of 255", 255, 0, 255),
            ("a key of 251 bytes", 8, 251, 300),
            ("a key of 65535 bytes", 0, 0xffff, 0xffff),
            ("the longest key and extras in a body of 1", 255, 0xffff, 1),
            ("no key", 0, 0, 0),
            ("extras and no key", 8, 0, 8),
        ] {
            all.push((format!("{opcode:?}, {name}"), header(opcode, extras_len, key_len, body_len)));
        }
    }
    all
}

#[test]
fn m7_length_overflow_is_rejected() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let servers = Memcached::several(2);
        let backends = peers::addresses(&servers);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io]);
        let mut neighbour = Client::connect(service.address);
        let before = machine::resident_bytes(service.pid());
        for (name, header) in impossible_lengths() {
            let name = format!("{io}, {name}");
            let mut client = Client::connect(service.address);
            // What follows the header would be taken for a request, if its lengths were believed to be other ones.
            let body = vec![0x80; (header.body_len as usize).min(600)];
            let sent = client.try_send(&header.encode()).and_then(|()| client.try_send(&body));
            let quiet = header.opcode == Opcode::SetQ.byte();
            if sent.is_ok() && header.body_len >= 0x8000_0000 {
                // The rest may still come: the client gives up first.
                drop(client);
            } else if let Some(reply) = client.try_reply() {
                assert_eq!(reply.header.magic, MAGIC_RESPONSE, "{name}");
                assert_eq!(reply.header.opaque, 0x0bad_cafe, "{name}");
                assert_ne!(reply.status(), Some(Status::NoError), "{name}");
                assert!(reply.status().is_some() || quiet, "{name}");
            }
            for opaque in 0..4 {
                let key = format!("neighbour-{opaque}");
                let reply = neighbour.ask(&get(opaque, &key));
                assert_eq!(reply.outcome(), (Some(Status::KeyNotFound), opaque), "{name}");
            }
        }
        let grown = machine::resident_bytes(service.pid()).saturating_sub(before);
        println!("{io}: memory grew by {} KiB", grown / 1024);
        assert!(grown < 8 * MIB, "{io}: memory grew by {grown} bytes");
        drop(neighbour);
        service.drained();
    }
}

/// The same bytes get the same answer however they are cut: here one by one, each on its own.
#[test]
fn m7_length_overflow_is_rejected_in_split_headers() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(1);
        let proxy = Proxy::start(&backends, io, |_| {});
        let mut neighbour = Client::connect(proxy.address());
        for (name, header) in impossible_lengths() {
            if header.body_len >= 0x8000_0000 && header.lengths_agree() {
                // Well-formed but too large to store; there is no answer yet.
                continue;
            }
            let name = format!("{io:?}, {name}");
            let body = vec![0; header.body_len.min(1_000) as usize];
            let mut whole = Client::connect(proxy.address());
            whole.send(&[&header.encode()[..], &body].concat());
            let mut cut = Client::connect(proxy.address());
            let mut refused = false;
            for byte in header.encode() {
                refused |= cut.try_send(&[byte]).is_err();
                // Behind this reply the byte has been looked at: both are one worker's business.
                assert_eq!(neighbour.ask(&get(1, "other")).status(), Some(Status::KeyNotFound), "{name}");
            }
            if !refused {
                // The rest is refused where the header has been.
                let _ = cut.try_send(&body);
            }
            let reply = whole.reply();
            assert_eq!(reply.outcome(), (Some(Status::InvalidArguments), 0x0bad_cafe), "{name}");
            assert_eq!(cut.try_reply(), Some(reply), "{name}");
        }
    }
}

#[test]
fn m12_cross_protocol_requests_are_closed_at_once() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(1);
        let proxy = Proxy::start(&backends, io, |_| {});
        let strangers: [&[u8]; 6] = [
            b"GET / HTTP/1.0\r\n\r\n",
            b"POST /key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nset a 0 0 1\r\nb\r\nquit",
            b"get key\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\r\n",
            b"G",
        ];
        for (count, bytes) in strangers.iter().enumerate() {
            let mut client = Client::connect(proxy.address());
            client.send(bytes);
            client.expect_closed();
            let totals = proxy
                .until("the fault to be counted", |totals| totals.protocol_errors_client == count as u64 + 1);
            assert_eq!(totals.requests, 0, "{io:?}");
        }
    }
}

/// A request behind garbage on the same connection is never looked at: its place is lost.
#[test]
fn bytes_after_a_malformed_request_are_not_parsed() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(1);
        let proxy = Proxy::start(&backends, io, |_| {});
        let mut client = Client::connect(proxy.address());
        client.send(&[get(1, "a"), b"garbage".to_vec(), wire::set(2, "poison", b"x"), get(3, "b")].concat());
        assert_eq!(client.reply().outcome(), (Some(Status::KeyNotFound), 1), "{io:?}");
        client.expect_closed();
        let mut other = Client::connect(proxy.address());
        assert_eq!(other.ask(&get(4, "poison")).status(), Some(Status::KeyNotFound), "{io:?}");
    }
}
