//! Many clients of the key-value server on few keys: M14 and M15.
//! Promises: what is checked follows from the replies alone: counters give each number once and in the order of time,
//! changes that compare lose none, a value that grows is seen whole.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use common::client::connect;
use common::service::Service;

const CLIENTS: usize = 16;
const KEYS: usize = 8;
/// Numbers that each client adds to.
const ADDITIONS: usize = 200;
/// Changes that each client brings about, whatever the others do.
const CHANGES: u64 = 25;
/// Attempts at one of them.
const ATTEMPTS_MAX: u32 = 100_000;
/// Parts that are appended to a value.
const APPENDED: usize = 2_500;
/// Times that it grows from nothing.
const GROWTHS: u32 = 3;

fn store() -> Service {
    let program = "examples/key_value_server/key_value_server.flick";
    Service::start(&["run", program, "--listen", "client=127.0.0.1:0", "--workers", "2"])
}

/// A connection and the line that answers each command.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self(BufReader::new(connect(address)))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(command.as_bytes()).expect("it is open");
        self.line()
    }

    /// The value of a key, and its number if that was asked for.
    fn value(&mut self, command: &str) -> Option<(String, Option<String>)> {
        let head = self.ask(command);
        if head == "END" {
            return None;
        }
        let words: Vec<&str> = head.split(' ').collect();
        let len: usize = words[3].parse().expect("a length");
        let mut data = vec![0; len + 2];
        self.0.read_exact(&mut data).expect("a value");
        assert_eq!((data.split_off(len), self.line()), (b"\r\n".to_vec(), "END".to_owned()));
        Some((String::from_utf8(data).expect("text"), words.get(4).map(|text| (*text).to_owned())))
    }
}

/// One addition as its client saw it.
struct Addition {
    key: usize,
    value: u64,
    asked: Instant,
    answered: Instant,
}

#[test]
fn m14_incr_is_linearizable() {
    let service = store();
    let address = service.address;
    let mut first = Client::new(address);
    (0..KEYS).for_each(|key| assert_eq!(first.ask(&format!("set n{key} 0 0 1\r\n0\r\n")), "STORED"));
    let add = |name: usize| {
        let mut client = Client::new(address);
        let one = |at: usize| {
            let key = (name + at * 7) % KEYS;
            let asked = Instant::now();
            let value = client.ask(&format!("incr n{key} 1\r\n")).parse().expect("a number");
            Addition { key, value, asked, answered: Instant::now() }
        };
        (0..ADDITIONS).map(one).collect::<Vec<_>>()
    };
    let mut all: Vec<Addition> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|name| scope.spawn(move || add(name))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client ends")).collect()
    });
    all.sort_by_key(|addition| (addition.key, addition.value));
    for one_key in all.chunk_by(|a, b| a.key == b.key) {
        let mut latest_asked = one_key[0].asked;
        for (at, addition) in one_key.iter().enumerate() {
            assert_eq!(addition.value, at as u64 + 1, "each number of n{} is given once", addition.key);
            assert!(addition.answered >= latest_asked, "a later addition to n{} came before", addition.key);
            latest_asked = latest_asked.max(addition.asked);
        }
    }
    assert_eq!(all.len(), CLIENTS * ADDITIONS);
    drop(first);
    service.drained();
}

#[test]
fn m14_cas_loses_no_update() {
    let service = store();
    let address = service.address;
    let mut first = Client::new(address);
    assert_eq!(first.ask("set n 0 0 1\r\n0\r\n"), "STORED");
    let change = || {
        let mut client = Client::new(address);
        let mut changed = 0;
        for _ in 0..ATTEMPTS_MAX {
            let (value, unique) = client.value("gets n\r\n").expect("it is there");
            let next = (value.parse::<u64>().expect("a number") + 1).to_string();
            let unique = unique.expect("gets tells it");
            let reply = client.ask(&format!("cas n 0 0 {} {unique}\r\n{next}\r\n", next.len()));
            match reply.as_str() {
                "STORED" => changed += 1,
                "EXISTS" => {}
                other => panic!("{other}"),
            }
            if changed == CHANGES {
                return;
            }
        }
        panic!("{changed} changes in {ATTEMPTS_MAX} attempts");
    };
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|_| {
            scope.spawn(change);
        });
    });
    let (value, _) = first.value("get n\r\n").expect("it is there");
    assert_eq!(value, (CLIENTS as u64 * CHANGES).to_string());
    drop(first);
    service.drained();
}

/// Whether a text is `0;1;2;` and so on, up to some number.
fn is_counted(text: &str) -> bool {
    text.ends_with(';')
        && text.trim_end_matches(';').split(';').enumerate().all(|(at, number)| number == at.to_string())
}

#[test]
fn m15_append_is_atomic_for_readers() {
    let service = store();
    let address = service.address;
    let mut writer = Client::new(address);
    assert_eq!(writer.ask("set v 0 0 2\r\n0;\r\n"), "STORED");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let read = || {
            let (mut client, mut reads) = (Client::new(address), 0_u64);
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let (value, _) = client.value("get v\r\n").expect("it is never gone");
                assert!(is_counted(&value), "not as written: {value}");
                reads += 1;
            }
            reads
        };
        let readers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(read)).collect();
        for _ in 0..GROWTHS {
            assert_eq!(writer.ask("set v 0 0 2\r\n0;\r\n"), "STORED");
            let stored = |at: &usize| {
                let part = format!("{at};");
                writer.ask(&format!("append v 0 0 {}\r\n{part}\r\n", part.len())) == "STORED"
            };
            let grown = (1..=APPENDED).take_while(stored).count();
            assert_eq!(grown, APPENDED, "it grew {grown} times");
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().expect("a reader ends")).sum::<u64>()
    });
    assert!(reads > 0, "a client read");
    drop(writer);
    service.drained();
}
