//! Clients that ask for more than their share, in simulated time: beside them an innocent client is served as before.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode, status, value_of};
use flick_testkit::service::server::MemcachedServer;
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

/// A client that asks for one short value after the other.
struct OneByOne {
    key: String,
    left: u32,
    asked_ns: u64,
    input: Vec<u8>,
    found: Rc<Innocent>,
}

impl OneByOne {
    fn start(service: &SimService, at_ns: u64, key: &str, times: u32) -> Rc<Innocent> {
        let found = Rc::new(Innocent::default());
        let (key, left) = (key.to_owned(), times);
        let client = Self { key, left, asked_ns: 0, input: Vec::new(), found: Rc::clone(&found) };
        service.net.connect(&service.listen, at_ns, Box::new(client));
        found
    }

    fn ask(&mut self, io: &mut PeerIo<'_>) {
        self.asked_ns = io.now_ns();
        io.write(&get(self.left, &self.key).bytes());
    }
}

impl Actor for OneByOne {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.ask(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        let Some(reply) = Cmd::take(&mut self.input) else { return };
        let is_right = reply.status == status::OK && reply.value == value_of(self.key.as_bytes());
        let count = if is_right { &self.found.answered } else { &self.found.failed };
        count.set(count.get() + 1);
        self.found.longest_ns.set(self.found.longest_ns.get().max(io.now_ns() - self.asked_ns));
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
    let begun_ns = 60 * MS;
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
