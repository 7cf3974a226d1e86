//! Lines of more keys than a message holds: answered as memcached answers them, in constant memory, while others are
//! served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connect;
use super::store_command::store;
use crate::common::peers::Memcached;
use crate::common::process::resident_kib;
use crate::stores::exchange;

/// Numbers of keys around the 200 of a message.
const COUNTS: &[usize] = &[1, 199, 200, 201, 400, 401, 10_000];
/// Lengths of keys, from the shortest to the longest.
const LENGTHS: &[usize] = &[5, 5, 6, 40, 100, 250];
/// Bytes of a line that does not end.
const ENDLESS_BYTES: usize = 100_000_000;
/// Further memory that the store may take for such a line, in KiB.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

fn keys() -> Vec<String> {
    let last = COUNTS.iter().copied().max().expect("there are some");
    (0..last).map(|n| format!("{n:_<width$}", width = LENGTHS[n % LENGTHS.len()])).collect()
}

/// Returns what is answered up to the end of `mn`, which is sent behind the commands.
fn replies(client: &mut TcpStream, commands: &[u8]) -> Vec<u8> {
    let mut writer = client.try_clone().expect("a socket can be shared");
    let all = [commands, b"mn\r\n"].concat();
    let sent = std::thread::spawn(move || writer.write_all(&all));
    let (mut got, mut bytes) = (Vec::new(), [0; 65536]);
    while !got.ends_with(b"MN\r\n") {
        let count = client.read(&mut bytes).expect("the server answers");
        assert!(count > 0, "closed behind `{}`", got[got.len().saturating_sub(200)..].escape_ascii());
        got.extend(&bytes[..count]);
    }
    sent.join().expect("it only writes").expect("the server reads");
    got
}

/// Stores two of three keys.
fn fill(client: &mut TcpStream, keys: &[String]) {
    for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
        let value = "v".repeat(n % 50);
        let set = format!("set {key} {n} 0 {} noreply\r\n{value}\r\n", value.len());
        client.write_all(set.as_bytes()).expect("the server reads");
    }
    exchange(client, b"mn\r\n", b"MN\r\n");
}

fn same(theirs: &mut TcpStream, ours: &mut TcpStream, commands: &str) {
    let (expected, got) = (replies(theirs, commands.as_bytes()), replies(ours, commands.as_bytes()));
    let at = expected.iter().zip(&got).position(|(a, b)| a != b).unwrap_or(expected.len().min(got.len()));
    let near = |bytes: &[u8]| bytes[at.min(bytes.len())..].iter().take(80).copied().collect::<Vec<u8>>();
    assert!(
        got == expected,
        "`{}...` differs at {at}: `{}`, memcached `{}`",
        &commands[..commands.len().min(60)],
        near(&got).escape_ascii(),
        near(&expected).escape_ascii()
    );
}

/// A `get` of 201 keys was answered with `SERVER_ERROR line too long`.
#[test]
fn get_of_many_keys_was_refused() {
    let (memcached, keys) = (Memcached::start(), keys());
    for (io, engine, count_max) in [("epoll", "native", usize::MAX), ("auto", "interpreter", 1000)] {
        let store = store(&["--", "--io", io, "--engine", engine]);
        let (mut theirs, mut ours) = (connect(memcached.address), connect(store.address));
        for client in [&mut theirs, &mut ours] {
            exchange(client, b"flush_all\r\n", b"OK\r\n");
            fill(client, &keys);
        }
        for count in COUNTS.iter().filter(|count| **count <= count_max) {
            let all = keys[..*count].join(" ");
            same(&mut theirs, &mut ours, &format!("get {all}\r\n"));
            same(&mut theirs, &mut ours, &format!("get {0}\r\nget {all} \nget {0} {0}\r\n", keys[1]));
            let gets = [&mut theirs, &mut ours]
                .map(|client| replies(client, format!("gets {all}\r\ngets {}\r\n", keys[2]).as_bytes()));
            assert_eq!(without_cas(&gets[1]), without_cas(&gets[0]), "gets of {count}");
            // memcached closes the connection at a `gat` of more than 2048 bytes.
            let get = replies(&mut ours, format!("get {all}\r\n").as_bytes());
            assert!(replies(&mut ours, format!("gat 0 {all}\r\n").as_bytes()) == get, "gat of {count}");
            let gats = replies(&mut ours, format!("gats 0 {all}\r\ngets {}\r\n", keys[2]).as_bytes());
            assert_eq!(gats, gets[1], "gats of {count}");
        }
        let short: Vec<&str> = keys.iter().filter(|key| key.len() == 5).map(String::as_str).collect();
        same(&mut theirs, &mut ours, &format!("gat 100 {}\r\nget {}\r\n", short[..300].join(" "), short[1]));
        // Those of all parts have expired.
        same(&mut theirs, &mut ours, &format!("gat -1 {}\r\n", short[..300].join(" ")));
        same(&mut theirs, &mut ours, &format!("get {}\r\n", keys[..1000].join(" ")));
        store.drained();
    }
}

/// A reply with the CAS values left out.
fn without_cas(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply);
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words[..words.len().min(4)].join(" ")
    };
    text.lines().map(line).collect()
}

/// An error ends the reply to a line, and nothing behind it in the line is a command.
#[test]
fn errors_in_lines_of_many_keys_end_with_the_line() {
    let (memcached, store) = (Memcached::start(), store(&[]));
    let (mut theirs, mut ours) = (connect(memcached.address), connect(store.address));
    let (missing, long) = ("none ".repeat(450), "x".repeat(251));
    for line in [
        format!("get {missing}{long} {missing}"),
        format!("get {long} {missing}flush_all"),
        format!("gets {missing}{long}"),
        format!("get {missing}{long} get {missing}"),
    ] {
        // Before its error memcached drops the replies that it has not sent yet.
        same(&mut theirs, &mut ours, "set k 0 0 1\r\nx\r\n");
        same(&mut theirs, &mut ours, &format!("{line}\r\nget k\r\n"));
    }
    let got = replies(&mut ours, format!("gat x {missing}\r\nget k\r\n").as_bytes());
    let expected = "CLIENT_ERROR invalid exptime argument\r\nVALUE k 0 1\r\nx\r\nEND\r\nMN\r\n";
    assert_eq!(String::from_utf8_lossy(&got), expected);
    // The value was sent when the key that is too long had not come; memcached sends the error alone.
    let got = replies(&mut ours, format!("get k {missing}{long} {missing}k\r\nget none\r\n").as_bytes());
    let expected = "VALUE k 0 1\r\nx\r\nCLIENT_ERROR bad command line format\r\nEND\r\nMN\r\n";
    assert_eq!(String::from_utf8_lossy(&got), expected);
    store.drained();
}

/// More than a rule may build, in the first part of a line: the error ends the reply and the connection, so that no
/// later value is taken for the answer to something else.
#[test]
fn line_whose_values_exceed_the_output_ends_with_its_error() {
    let store = store(&[]);
    let mut client = connect(store.address);
    let value = "v".repeat(1_000_000);
    client
        .write_all(format!("set k 0 0 {} noreply\r\n{value}\r\n", value.len()).as_bytes())
        .expect("the store reads");
    let line = format!("get {}\r\nget k\r\n", "k ".repeat(450));
    client.write_all(line.as_bytes()).expect("the store reads");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("the reply ends");
    assert!(got.ends_with(b"\r\nSERVER_ERROR out of memory writing get response\r\n"), "{} bytes", got.len());
    assert_eq!(got.windows(12).filter(|window| window == b"SERVER_ERROR").count(), 1);
    store.drained();
}

/// Keys without end, from a client that reads the values, take no more memory, and no other client waits for it.
#[test]
fn line_without_end_takes_constant_memory() {
    let store = store(&[]);
    let mut other = connect(store.address);
    exchange(&mut other, b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    let mut hostile = connect(store.address);
    let words = format!("{} ", "none".repeat(25)).repeat(1000);
    hostile.write_all(b"get ").expect("the store reads");
    hostile.write_all(words.as_bytes()).expect("the store reads");
    exchange(&mut other, b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
    let before = resident_kib(store.pid());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ENDLESS_BYTES / words.len() {
                hostile.write_all(words.as_bytes()).expect("the store reads");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut served = 0;
        while !is_over.load(Ordering::Relaxed) {
            exchange(&mut other, b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
            served += 1;
        }
        assert!(served > 10, "{served} requests of another client");
    });
    let after = resident_kib(store.pid());
    assert!(after < before + GROWTH_KIB_MAX, "{before} KiB, then {after} KiB");
    exchange(&mut hostile, b"k\r\nmn\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\nMN\r\n");
    store.drained();
}
