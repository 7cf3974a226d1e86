//! Clients that ask for more than their share, in simulated time: beside them an innocent client is served as before.

mod common;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode, status, value_of};
use flick_testkit::service::server::{MemcachedServer, answer};
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

fn hand() -> Subject {
    Subject { program: common::program(), engine: Arc::new(common::Hand) }
}

fn get(opaque: u32, key: &str) -> Cmd {
    Cmd { cas: u64::from(opaque) + 1, ..Cmd::request(opcode::GET, opaque, key.as_bytes(), b"") }
}

/// A key that Listing 1 sends to that one of two backends.
fn key_on(backend: u64, name: &str) -> String {
    let keys = (0..).map(|at| format!("{name}-{at}"));
    let mut keys = keys.filter(|key| flick_abi::hash::hash(key.as_bytes()) % 2 == backend);
    keys.next().expect("half of all keys are there")
}

/// A server that reads and answers nothing.
struct Unresponsive;

impl Actor for Unresponsive {
    fn on_data(&mut self, _io: &mut PeerIo<'_>, _data: &[u8]) {}
}

/// Outcome of an innocent client.
#[derive(Default)]
struct Innocent {
    answered: Cell<u32>,
    failed: Cell<u32>,
    is_gone: Cell<bool>,
    longest_ns: Cell<u64>,
}

/// A client that asks for one short value after the other, and measures how long the last of its keys takes.
struct OneByOne {
    keys: Vec<String>,
    left: u32,
    asked_ns: u64,
    input: Vec<u8>,
    found: Rc<Innocent>,
}

impl OneByOne {
    fn start(service: &SimService, at_ns: u64, key: &str, times: u32) -> Rc<Innocent> {
        Self::start_with(service, at_ns, vec![key.to_owned()], times)
    }

    fn start_with(service: &SimService, at_ns: u64, keys: Vec<String>, left: u32) -> Rc<Innocent> {
        let found = Rc::new(Innocent::default());
        let client = Self { keys, left, asked_ns: 0, input: Vec::new(), found: Rc::clone(&found) };
        service.net.connect(&service.listen, at_ns, Box::new(client));
        found
    }

    /// The key that it asks for now: the last one at the end of each round.
    fn key_at(&self) -> usize {
        self.keys.len() - 1 - (self.left as usize - 1) % self.keys.len()
    }

    fn ask(&mut self, io: &mut PeerIo<'_>) {
        self.asked_ns = io.now_ns();
        io.write(&get(self.left, &self.keys[self.key_at()]).bytes());
    }
}

impl Actor for OneByOne {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.ask(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        let Some(reply) = Cmd::take(&mut self.input) else { return };
        let at = self.key_at();
        let is_right = reply.status == status::OK && reply.value == value_of(self.keys[at].as_bytes());
        let count = if is_right { &self.found.answered } else { &self.found.failed };
        count.set(count.get() + 1);
        if at + 1 == self.keys.len() {
            self.found.longest_ns.set(self.found.longest_ns.get().max(io.now_ns() - self.asked_ns));
        }
        self.left -= 1;
        if self.left == 0 {
            io.close();
        } else {
            self.ask(io);
        }
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.found.is_gone.set(true);
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.found.is_gone.set(true);
    }
}

/// One backend is stalled; clients send a request for it, and many for the other one behind it, whose replies wait.
#[test]
fn replies_held_behind_a_stalled_backend_make_no_innocent_client_busy() {
    for (value_bytes, inflight_max) in [(40, 131_072), (1_000, 131_072), (1_000, 4_096), (12_000, 131_072)] {
        let mut config = SimServiceConfig::new(2, 2);
        config.limits.max_connections = 300;
        config.limits.max_inflight_requests = inflight_max;
        config.limits.buffer_memory = 32 << 20;
        let mut service = SimService::new(&config, &hand(), |index, _| {
            if index == 0 { Some(Box::new(Unresponsive)) } else { Some(Box::new(MemcachedServer::honest())) }
        });
        let stalled = key_on(0, "stalled");
        for client in 0..200_u32 {
            let behind = (0..).map(|at| format!("k{client}-{at}#{value_bytes}"));
            let behind = behind.filter(|key| flick_abi::hash::hash(key.as_bytes()) % 2 == 1);
            let keys = std::iter::once(stalled.clone()).chain(behind.take(254));
            let requests: Vec<Cmd> = (0..).zip(keys).map(|(at, key)| get(at, &key)).collect();
            service.client(u64::from(client) * MS / 10, &requests, Habit::Plain);
        }
        let innocent = OneByOne::start(&service, 0, &key_on(1, "innocent"), 20_000);
        service.run(1_500 * MS, |_| innocent.is_gone.get()).expect("no spinning");
        let case = format!("{value_bytes} bytes, {inflight_max} in flight");
        let totals = service.totals();
        assert_eq!((innocent.failed.get(), innocent.is_gone.get()), (0, false), "{case}: {totals:?}");
        assert!(innocent.answered.get() > 5_000, "{case}: {} answered; {totals:?}", innocent.answered.get());
        assert_eq!(totals.exhausted, 0, "{case}: {totals:?}");
    }
}

/// Clients pipeline requests for long values over the connection that an innocent client shares with them.
#[test]
fn long_replies_of_some_clients_do_not_slow_an_innocent_one_down() {
    let mut config = SimServiceConfig::new(3, 1);
    config.limits.buffer_memory = 64 << 20;
    config.sim.window_bytes = 16 * 1024;
    config.limits.max_dedicated_connections = 16;
    let mut service = SimService::new(&config, &hand(), |_, _| Some(Box::new(MemcachedServer::honest())));
    let verdicts: Vec<_> = (0..4)
        .map(|client| {
            let requests: Vec<Cmd> = (0..250).map(|at| get(at, &format!("k{client}-{at}#300000"))).collect();
            service.client(0, &requests, Habit::Plain)
        })
        .collect();
    // When the first requests of a client are sent, nothing is known of their replies.
    let begun_ns = 20 * MS;
    let innocent = OneByOne::start(&service, begun_ns, "innocent", 100);
    let is_over = |_: &SimService| innocent.answered.get() == 100;
    service.run(5_000 * MS, is_over).expect("no spinning");
    let still = verdicts.iter().filter(|verdict| !verdict.borrow().is_over()).count();
    let took_ns = service.net.now_ns() - begun_ns;
    assert!(still > 0, "the others are being served meanwhile");
    assert!(
        innocent.longest_ns.get() < MS && took_ns < 50 * MS,
        "longest {} ns, all {took_ns} ns; {:?}",
        innocent.longest_ns.get(),
        service.totals()
    );
    service
        .run(20_000 * MS, |_| verdicts.iter().all(|verdict| verdict.borrow().is_over()))
        .expect("no spinning");
    for verdict in &verdicts {
        let verdict = verdict.borrow();
        assert!(verdict.finished && verdict.failed == 0, "{verdict:?}; {:?}", service.totals());
    }
}

/// Many clients ask one backend for a long value at one time. A new client asks that backend for a short value, and
/// then the other one, which is idle.
#[test]
fn second_request_of_a_new_client_waited_for_a_backend_that_it_did_not_ask() {
    let mut config = SimServiceConfig::new(5, 2);
    config.limits.max_connections = 300;
    config.limits.buffer_memory = 256 << 20;
    config.sim.window_bytes = 16 * 1024;
    let mut service = SimService::new(&config, &hand(), |_, _| Some(Box::new(MemcachedServer::honest())));
    let long = (0..).map(|at| format!("long{at}#300000"));
    let long: Vec<String> =
        long.filter(|key| flick_abi::hash::hash(key.as_bytes()).is_multiple_of(2)).take(200).collect();
    for key in &long {
        let requests: Vec<Cmd> = (0..3).map(|at| get(at, key)).collect();
        service.client(0, &requests, Habit::Plain);
    }
    let keys = vec![key_on(0, "innocent"), key_on(1, "innocent")];
    let innocent = OneByOne::start_with(&service, MS, keys, 6);
    let is_over = |_: &SimService| innocent.answered.get() == 6;
    service.run(60_000 * MS, is_over).expect("no spinning");
    let totals = service.totals();
    assert_eq!((innocent.answered.get(), innocent.failed.get()), (6, 0), "{totals:?}");
    assert!(innocent.longest_ns.get() < 5 * MS, "longest {} ns; {totals:?}", innocent.longest_ns.get());
}

/// A server that answers `REPLIES_PER_TICK` requests each `TICK_NS`, in order.
#[derive(Default)]
struct Paced {
    input: Vec<u8>,
    due: VecDeque<Cmd>,
    /// Most requests that have waited at one time.
    most: Rc<Cell<usize>>,
    ticks: bool,
}

/// Time for which [`Paced`] works on a few requests.
const TICK_NS: u64 = 20_000;
/// Requests that it then answers.
const REPLIES_PER_TICK: usize = 5;
/// Time that it takes for each.
const SERVICE_NS: u64 = TICK_NS / REPLIES_PER_TICK as u64;

impl Actor for Paced {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while let Some(request) = Cmd::take(&mut self.input) {
            self.due.push_back(request);
        }
        self.most.set(self.most.get().max(self.due.len()));
        if !std::mem::replace(&mut self.ticks, true) {
            io.timer(TICK_NS, 0);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        let some = self.due.len().min(REPLIES_PER_TICK);
        for request in self.due.drain(..some) {
            answer(&request).iter().for_each(|reply| io.write(&reply.bytes()));
        }
        io.timer(TICK_NS, 0);
    }
}

/// A client that always has that many short requests unanswered, and the beginning of one more.
struct Greedy {
    depth: u32,
    sent: u32,
    input: Vec<u8>,
    answered: Rc<Cell<u32>>,
}

impl Greedy {
    fn start(service: &SimService, depth: u32) -> Rc<Cell<u32>> {
        let answered = Rc::new(Cell::new(0));
        let client = Self { depth, sent: 0, input: Vec::new(), answered: Rc::clone(&answered) };
        service.net.connect(&service.listen, 0, Box::new(client));
        answered
    }

    /// Sends the rest of the request that has begun, others, and the beginning of the last.
    fn ask(&mut self, io: &mut PeerIo<'_>) {
        const BEGINNING: usize = 10;
        let mut bytes = Vec::new();
        let from = if self.sent == 0 { 0 } else { BEGINNING };
        while self.sent < self.answered.get() + self.depth {
            bytes.extend(get(self.sent, "greedy").bytes());
            self.sent += 1;
        }
        bytes.extend(&get(self.sent, "greedy").bytes()[..BEGINNING]);
        io.write(&bytes[from..]);
    }
}

impl Actor for Greedy {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.ask(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        let before = self.answered.get();
        while let Some(reply) = Cmd::take(&mut self.input) {
            assert_eq!(
                (reply.opaque, reply.status),
                (self.answered.get(), status::OK),
                "in order, and answered"
            );
            self.answered.set(self.answered.get() + 1);
        }
        if self.answered.get() > before {
            self.ask(io);
        }
    }
}

/// A service before one [`Paced`] server, and the most requests that wait there at one time.
fn paced(inflight_max: u32) -> (SimService, Rc<Cell<usize>>) {
    let mut config = SimServiceConfig::new(4, 1);
    config.limits.max_inflight_per_client = inflight_max;
    config.limits.max_inflight_requests = 131_072;
    config.limits.buffer_memory = 256 << 20;
    let most = Rc::new(Cell::new(0));
    let server = Rc::clone(&most);
    let service = SimService::new(&config, &hand(), move |_, _| {
        Some(Box::new(Paced { most: Rc::clone(&server), ..Paced::default() }))
    });
    (service, most)
}

/// Twenty clients have 256 short requests in flight each; all of theirs were sent before one of an innocent client.
#[test]
fn a_request_waits_behind_all_requests_of_pipelining_clients() {
    const MOST_AHEAD: u64 = 1_500;
    let (mut service, _) = paced(256);
    let greedy: Vec<_> = (0..20).map(|_| Greedy::start(&service, 256)).collect();
    let innocent = OneByOne::start(&service, 20 * MS, "innocent", 10_000);
    let run_ns = 150 * MS;
    service.run(run_ns, |_| innocent.is_gone.get()).expect("no spinning");
    let totals = service.totals();
    assert!(innocent.answered.get() > 20 && innocent.failed.get() == 0, "{totals:?}");
    assert!(
        innocent.longest_ns.get() < MOST_AHEAD * SERVICE_NS,
        "{} ns behind the others",
        innocent.longest_ns.get()
    );
    let counts: Vec<u32> = greedy.iter().map(|answered| answered.get()).collect();
    let (all, mean) = (counts.iter().sum::<u32>(), counts.iter().sum::<u32>() / 20);
    assert!(u64::from(all) > run_ns / SERVICE_NS * 95 / 100, "the server is never idle: {all}");
    assert!(counts.iter().all(|count| count.abs_diff(mean) < mean / 5), "they take turns: {counts:?}");
    assert_eq!((totals.requests_shed, totals.exhausted), (0, 0), "{totals:?}");
}

/// Clients wait for turns at a connection while its backend is lost, and comes back.
#[test]
fn clients_that_wait_at_a_lost_connection_go_on() {
    let (mut service, _) = paced(256);
    let verdicts: Vec<_> = (0..20)
        .map(|client| {
            let requests: Vec<Cmd> = (0..1_000).map(|at| get(at, &format!("k{client}"))).collect();
            service.client(0, &requests, Habit::Plain)
        })
        .collect();
    service.net.kill_at(5 * MS, &service.backends[0]);
    let are_over = |_: &SimService| verdicts.iter().all(|verdict| verdict.borrow().is_over());
    service.run(5_000 * MS, are_over).expect("no spinning");
    for verdict in &verdicts {
        assert!(verdict.borrow().finished, "{:?}; {:?}", verdict.borrow(), service.totals());
    }
    assert!(
        verdicts.iter().any(|verdict| verdict.borrow().failed > 0),
        "requests were lost with the connection"
    );
}

#[test]
fn a_client_alone_has_the_whole_connection() {
    let (mut service, most) = paced(2_000);
    let answered = Greedy::start(&service, 2_000);
    service.run(50 * MS, |_| false).expect("no spinning");
    assert!(answered.get() > 10_000 && most.get() > 1_500, "{} at one time", most.get());
}

/// A client that sends requests and reads nothing.
struct NonReader {
    requests: Vec<u8>,
}

impl Actor for NonReader {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.pause_reading(true);
        io.write(&self.requests);
    }

    fn on_data(&mut self, _io: &mut PeerIo<'_>, _data: &[u8]) {}
}

/// Twenty clients connect beside an innocent one, ask for 24 values of a megabyte each, and read nothing.
#[test]
fn long_replies_to_new_clients_that_do_not_read_stall_an_innocent_client() {
    let mut config = SimServiceConfig::new(5, 1);
    config.sim.window_bytes = 64 * 1024;
    config.limits.buffer_memory = 256 << 20;
    let mut service = SimService::new(&config, &hand(), |_, _| Some(Box::new(MemcachedServer::honest())));
    let innocent = OneByOne::start(&service, 0, "innocent", 1_000_000);
    for client in 0..20 {
        let requests = (0..24).flat_map(|at| get(at, &format!("k{client}-{at}#1000000")).bytes()).collect();
        service.net.connect(&service.listen, 10 * MS, Box::new(NonReader { requests }));
    }
    service.run(500 * MS, |_| innocent.is_gone.get()).expect("no spinning");
    let totals = service.totals();
    assert!(innocent.failed.get() == 0 && !innocent.is_gone.get(), "{totals:?}");
    assert!(innocent.longest_ns.get() < 50 * MS, "{} ns; {totals:?}", innocent.longest_ns.get());
}
