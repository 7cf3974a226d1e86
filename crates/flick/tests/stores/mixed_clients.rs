//! Clients that read and write one key of `flick store` at the same time: every reply must be explained by one order of
//! all requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use flick_net::sim::SimRng;

use super::connect;
use super::linearizable::{Answer, Call, Op, check};
use super::store_command::store;
use crate::stores::exchange;

/// Clients of one key.
const CLIENTS: u64 = 8;
/// Keys, one behind the other.
const KEYS: u64 = 10;
/// Requests of each client for each key.
const REQUESTS: u64 = 64;
/// Requests that a client sends at once.
const PIPELINED: u64 = 4;

struct Client {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    random: SimRng,
    /// The last CAS value that it has seen.
    unique: u64,
}

impl Client {
    fn new(address: SocketAddr, seed: u64) -> Self {
        let writer = connect(address);
        let reader = BufReader::new(writer.try_clone().expect("a socket can be shared"));
        Self { writer, reader, random: SimRng::new(seed), unique: 1 }
    }

    /// A request that stores `value`, if any.
    fn op(&mut self, value: u64) -> Op {
        match self.random.between(0, 10) {
            0..=2 => Op::Get,
            3 => Op::Set(value),
            4 => Op::Add(value),
            5 | 6 => Op::Cas(self.unique, value),
            7 => Op::Incr,
            8 => Op::Delete(Some(self.unique)),
            9 => Op::Flush,
            _ => Op::Delete(None),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the server answers");
        line.strip_suffix("\r\n").unwrap_or_else(|| panic!("`{line}` has an end")).to_owned()
    }

    /// A meta command or, if there is one that does the same, sometimes a text command.
    fn command(&mut self, key: &str, op: Op) -> String {
        let is_text = self.random.chance(400);
        match op {
            Op::Get if is_text => format!("get {key}\r\n"),
            Op::Incr if is_text => format!("incr {key} 1\r\n"),
            Op::Delete(None) if is_text => format!("delete {key}\r\n"),
            Op::Set(value) if is_text => format!("set {key} 0 0 {}\r\n{value}\r\n", value.to_string().len()),
            Op::Flush => "flush_all\r\n".to_owned(),
            Op::Get => format!("mg {key} v c\r\n"),
            Op::Incr => format!("ma {key} v c\r\n"),
            Op::Delete(None) => format!("md {key}\r\n"),
            Op::Delete(Some(unique)) => format!("md {key} C{unique}\r\n"),
            Op::Set(value) => format!("ms {key} {} c\r\n{value}\r\n", value.to_string().len()),
            Op::Add(value) => format!("ms {key} {} c ME\r\n{value}\r\n", value.to_string().len()),
            Op::Cas(unique, value) => {
                format!("ms {key} {} c C{unique}\r\n{value}\r\n", value.to_string().len())
            }
        }
    }

    fn answer(&mut self) -> Answer {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{line}`"));
        let cas = words.iter().skip(1).find_map(|word| word.strip_prefix('c')).map(number);
        let answer = match words[0] {
            "VALUE" => {
                let value = number(&self.line());
                assert_eq!(self.line(), "END");
                Answer::Value(value, None)
            }
            "VA" => Answer::Value(number(&self.line()), cas),
            "HD" | "STORED" | "DELETED" | "OK" => Answer::Done(cas),
            "EN" | "NF" | "NOT_FOUND" | "END" => Answer::Missing,
            "NS" => Answer::NotStored,
            "EX" => Answer::Exists,
            digits => Answer::Value(number(digits), None),
        };
        let refused = matches!(answer, Answer::NotStored | Answer::Exists);
        self.unique = cas.filter(|_| !refused).unwrap_or(self.unique);
        answer
    }
}

/// The calls of one client for one key.
fn calls(client: &mut Client, number: u64, key: &str, began: Instant) -> Vec<Call> {
    let now = || began.elapsed().as_nanos() as u64;
    let mut calls = Vec::new();
    for batch in 0..REQUESTS / PIPELINED {
        // Increments do not lead from one value to the next.
        let value = |n| ((number + 1) * REQUESTS + batch * PIPELINED + n) * 1000;
        let ops: Vec<Op> = (0..PIPELINED).map(|n| client.op(value(n))).collect();
        let commands: String = ops.iter().map(|op| client.command(key, *op)).collect();
        let start = now();
        client.writer.write_all(commands.as_bytes()).expect("the server reads");
        for op in ops {
            let answer = client.answer();
            calls.push(Call { start, end: now(), op, answer });
        }
    }
    calls
}

#[test]
fn requests_for_one_key_have_one_order() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    println!("seed {seed}");
    let store = store(&[]);
    let (began, all_here) = (Instant::now(), Barrier::new(CLIENTS as usize));
    let histories: Vec<Vec<Vec<Call>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = Client::new(store.address, seed ^ number);
                let all_here = &all_here;
                scope.spawn(move || {
                    let of_key = |key| {
                        all_here.wait();
                        calls(&mut client, number, &format!("key{key}"), began)
                    };
                    (0..KEYS).map(of_key).collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no assertion failed")).collect()
    });
    let mut overlapping = 0;
    for key in 0..KEYS as usize {
        let clients: Vec<Vec<Call>> = histories.iter().map(|client| client[key].clone()).collect();
        let mut all = clients.concat();
        all.sort_by_key(|call| call.start);
        overlapping += all.windows(2).filter(|pair| pair[1].start < pair[0].end).count();
        if let Err((count, rest)) = check(&clients) {
            panic!("seed {seed}: of {} requests, none of these can follow {count}: {rest:#?}", all.len());
        }
    }
    assert!(overlapping > 1000, "{overlapping} of {} requests at the same time", CLIENTS * KEYS * REQUESTS);
    store.drained();
}

/// Clients that flush all the time, and a few that store an item, flush and look for it.
#[test]
fn flush_was_undone_by_one_that_had_begun_before() {
    const FLUSHERS: usize = 4;
    const CHECKERS: usize = 3;
    const ROUNDS: usize = 3_000;
    let store = store(&[]);
    let is_over = AtomicBool::new(false);
    let flush = || {
        let mut client = connect(store.address);
        while !is_over.load(Ordering::Relaxed) {
            exchange(&mut client, &b"flush_all\r\n".repeat(16), &b"OK\r\n".repeat(16));
        }
    };
    let find = |name: usize| {
        let mut client = connect(store.address);
        let request = format!("set c{name} 0 0 1\r\n1\r\nflush_all\r\nget c{name}\r\n").repeat(8);
        (0..ROUNDS)
            .for_each(|_| exchange(&mut client, request.as_bytes(), &b"STORED\r\nOK\r\nEND\r\n".repeat(8)));
    };
    let find = &find;
    std::thread::scope(|scope| {
        (0..FLUSHERS).for_each(|_| drop(scope.spawn(flush)));
        let checkers: Vec<_> = (0..CHECKERS).map(|name| scope.spawn(move || find(name))).collect();
        let ended: Vec<_> = checkers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "an item was there behind a flush");
    });
    store.drained();
}

/// The first requests of a store arrive at the same time on all its workers, and each prepares what it needs.
#[test]
fn flush_was_undone_by_a_slow_first_request() {
    const STORES: usize = 12;
    const CLIENTS: usize = 8;
    for _ in 0..STORES {
        let store = store(&[]);
        let all_here = Barrier::new(CLIENTS);
        let find = |name: usize| {
            let mut client = connect(store.address);
            let request = format!("set c{name} 0 0 1\r\n1\r\nflush_all\r\nget c{name}\r\n").repeat(8);
            all_here.wait();
            exchange(&mut client, request.as_bytes(), &b"STORED\r\nOK\r\nEND\r\n".repeat(8));
        };
        let find = &find;
        std::thread::scope(|scope| (0..CLIENTS).for_each(|name| drop(scope.spawn(move || find(name)))));
        store.drained();
    }
}
