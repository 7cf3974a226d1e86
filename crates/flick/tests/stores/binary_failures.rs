//! Failures of memcached's binary protocol, and replies that are easily missed, byte for byte as memcached answers.

use std::io::{Read, Write};
use std::net::TcpStream;

use flick_load::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, encode_message};

use super::connect;
use super::store_command::store;
use crate::common::peers::Memcached;

const NOOP: u8 = 0x0a;
/// Bytes of a header that hold the CAS value.
const CAS: std::ops::Range<usize> = 16..24;
/// Item flags and lifetime of a command that stores.
const STORED: &[u8] = &[0; 8];

/// A request: opcode, key, extras, value, CAS value.
type Request = (u8, &'static str, &'static [u8], &'static str, u64);

/// Adds or subtracts 1, and fails where there is no item.
const BY_ONE: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255];

const REQUESTS: &[(&str, Request)] = &[
    ("get", (0x00, "none", b"", "", 0)),
    ("get with key", (0x0c, "none", b"", "", 0)),
    ("quiet get", (0x09, "none", b"", "", 0)),
    ("set", (0x01, "word", STORED, "abc", 0)),
    ("set a number", (0x01, "number", STORED, "7", 0)),
    ("add an item that is there", (0x02, "word", STORED, "x", 0)),
    ("quiet add of it", (0x12, "word", STORED, "x", 0)),
    ("replace", (0x03, "none", STORED, "x", 0)),
    ("set another version", (0x01, "word", STORED, "x", 999_999)),
    ("set a version of nothing", (0x01, "none", STORED, "x", 99)),
    ("increment a word", (0x05, "word", BY_ONE, "", 0)),
    ("increment nothing", (0x05, "none", BY_ONE, "", 0)),
    ("decrement nothing", (0x06, "none", BY_ONE, "", 0)),
    ("increment another version of a word", (0x05, "word", BY_ONE, "", 999_999)),
    ("increment another version", (0x05, "number", BY_ONE, "", 999_999)),
    ("decrement another version", (0x06, "number", BY_ONE, "", 999_999)),
    ("the number as before", (0x00, "number", b"", "", 0)),
    ("append to nothing", (0x0e, "none", b"", "x", 0)),
    ("prepend to nothing", (0x0f, "none", b"", "x", 0)),
    ("append to another version", (0x0e, "word", b"", "x", 999_999)),
    ("append to a version of nothing", (0x0e, "none", b"", "x", 7)),
    ("prepend to a version of nothing", (0x0f, "none", b"", "x", 7)),
    ("delete nothing", (0x04, "none", b"", "", 0)),
    ("quiet delete of nothing", (0x14, "none", b"", "", 0)),
    ("delete another version", (0x04, "word", b"", "", 999_999)),
    ("touch nothing", (0x1c, "none", &[0; 4], "", 0)),
    ("get and touch nothing", (0x1d, "none", &[0; 4], "", 0)),
    ("get with key and touch nothing", (0x23, "none", &[0; 4], "", 0)),
    ("touch", (0x1c, "word", &[0; 4], "", 0)),
    ("set with flags for 80 years", (0x01, "late", &[0, 0, 0, 9, 0x95, 0, 0, 0], "abc", 0)),
    ("touch for longer", (0x1c, "late", &[255, 255, 255, 254], "", 0)),
    ("get what lives long", (0x00, "late", b"", "", 0)),
    ("statistics that nothing has", (0x10, "nothing", b"", "", 0)),
    ("an unknown opcode", (0x77, "", b"", "", 0)),
];

fn frame((opcode, key, extras, value, cas): Request) -> Vec<u8> {
    let header = Header { magic: MAGIC_REQUEST, opcode, opaque: 7, cas, ..Header::default() };
    let mut bytes = Vec::new();
    encode_message(header, extras, key.as_bytes(), value.as_bytes(), &mut bytes);
    bytes
}

/// The header of the next reply, and the reply without its CAS value.
fn next_reply(client: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut bytes = vec![0; HEADER_BYTES];
    client.read_exact(&mut bytes).expect("a reply begins");
    let header = Header::decode(&bytes).expect("it is long enough");
    bytes[CAS].fill(0);
    bytes.resize(HEADER_BYTES + header.body_len as usize, 0);
    client.read_exact(&mut bytes[HEADER_BYTES..]).expect("a reply ends");
    (header, bytes)
}

/// All replies to a request, without their CAS values: those before the reply to a no-op.
fn replies(client: &mut TcpStream, request: Request) -> Vec<Vec<u8>> {
    let both = [frame(request), frame((NOOP, "", b"", "", 0))].concat();
    client.write_all(&both).expect("the server reads");
    let mut replies = Vec::new();
    loop {
        let (header, bytes) = next_reply(client);
        if header.opcode == NOOP {
            return replies;
        }
        replies.push(bytes);
    }
}

#[test]
fn binary_failures_had_no_text_and_increments_ignored_the_cas_value() {
    let memcached = Memcached::start();
    let stores = ["native", "interpreter"].map(|engine| store(&["--", "--engine", engine]));
    let mut theirs = connect(memcached.address);
    let mut ours = stores.each_ref().map(|store| connect(store.address));
    for (what, request) in REQUESTS {
        let expected = replies(&mut theirs, *request);
        let got = ours.each_mut().map(|client| replies(client, *request));
        assert_eq!(got, [expected.clone(), expected], "{what}");
    }
    stores.into_iter().for_each(|store| drop(store.drained()));
}

/// The reply to a request, and its CAS value.
fn reply_with_cas(client: &mut TcpStream, request: Request) -> (Vec<u8>, u64) {
    client.write_all(&frame(request)).expect("the server reads");
    let (header, bytes) = next_reply(client);
    (bytes, header.cas)
}

/// memcached takes every command with a CAS value for one that compares it.
#[test]
fn binary_add_refused_the_version_that_is_there() {
    let memcached = Memcached::start();
    let stores = ["native", "interpreter"].map(|engine| store(&["--", "--engine", engine]));
    let replaced = |mut client: TcpStream| {
        let (_, cas) = reply_with_cas(&mut client, (0x01, "word", STORED, "abc", 0));
        let added = reply_with_cas(&mut client, (0x02, "word", STORED, "x", cas)).0;
        [added, reply_with_cas(&mut client, (0x00, "word", b"", "", 0)).0]
    };
    let expected = replaced(connect(memcached.address));
    assert_eq!(expected[0][6..8], [0, 0], "memcached stores it");
    let got = stores.each_ref().map(|store| replaced(connect(store.address)));
    assert_eq!(got, [expected.clone(), expected]);
    stores.into_iter().for_each(|store| drop(store.drained()));
}
