//! Backend sets that change while a service runs, in the simulator: which backend gets requests from when on, what
//! happens to requests in flight, and that only removed backends are affected.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::service::client::{Habit, Verdict};
use flick_testkit::service::fault_injection::{self, FaultPlan};
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject, seeds};

fn hand() -> Subject {
    Subject { program: common::program(), engine: Arc::new(common::Hand) }
}

/// Room for three backends, and three servers.
fn config() -> SimServiceConfig {
    let mut config = SimServiceConfig::new(7, 3);
    config.limits.max_backends = 3;
    config.limits.buffer_memory = 32 << 20;
    config
}

fn gets(count: u32) -> Vec<Cmd> {
    let get = |at: u32| {
        let key = format!("key-{at}");
        Cmd { cas: u64::from(at) + 1, ..Cmd::request(opcode::GET, at, key.as_bytes(), b"") }
    };
    (0..count).map(get).collect()
}

/// A server that answers after a while, and counts what it was asked.
struct Late {
    after_ns: u64,
    asked: Rc<RefCell<[u32; 3]>>,
    index: usize,
    input: Vec<u8>,
    server: MemcachedServer,
}

impl Actor for Late {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.asked.borrow_mut()[self.index] += 1;
        self.input.extend_from_slice(data);
        io.timer(self.after_ns, 99);
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        let input = std::mem::take(&mut self.input);
        self.server.on_data(io, &input);
    }
}

/// A service, and by server how often something was sent there.
fn service(config: &SimServiceConfig, after_ns: u64) -> (SimService, Rc<RefCell<[u32; 3]>>) {
    let asked = Rc::new(RefCell::new([0; 3]));
    let known = Rc::clone(&asked);
    let service = SimService::new(config, &hand(), move |index, _| {
        let (asked, server) = (Rc::clone(&known), MemcachedServer::honest());
        Some(Box::new(Late { after_ns, asked, index, input: Vec::new(), server }))
    });
    (service, asked)
}

fn publish(service: &SimService, elements: &[usize]) {
    let list: Vec<_> = elements.iter().map(|at| service.backends[*at].clone().into()).collect();
    assert_eq!(service.setup.backend_sets.publish(1, &list), Ok(true));
}

/// Lets a client ask 20 keys from now on; how many were answered and how many failed.
fn ask(service: &mut SimService) -> (u32, u32) {
    let verdict = service.client(service.net.now_ns(), &gets(20), Habit::Plain);
    let until_ns = service.net.now_ns() + 20_000 * MS;
    service.run(until_ns, |_| verdict.borrow().is_over()).expect("no spinning");
    let verdict = verdict.borrow();
    assert_eq!(verdict.wrong, None);
    (verdict.answered, verdict.failed)
}

#[test]
fn requests_go_where_the_list_of_the_moment_says() {
    let (mut service, asked) = service(&config(), 0);
    for (list, served) in [
        (vec![0, 1], [true, true, false]),
        (vec![2], [false, false, true]),
        (vec![0, 1, 2], [true, true, true]),
        (vec![1], [false, true, false]),
    ] {
        publish(&service, &list);
        let now_ns = service.net.now_ns();
        service.run(now_ns + 50 * MS, |_| false).expect("no spinning");
        *asked.borrow_mut() = [0; 3];
        assert_eq!(ask(&mut service), (20, 0), "{list:?}");
        assert_eq!(asked.borrow().map(|count| count > 0), served, "{list:?}");
        let backend_conns = service.worker.audit().backend_conns;
        assert_eq!(backend_conns, list.len(), "who has left is not connected to any more: {list:?}");
    }
}

#[test]
fn an_empty_list_is_answered_at_once() {
    let (mut service, _) = service(&config(), 0);
    publish(&service, &[]);
    assert_eq!(ask(&mut service), (0, 20));
    assert!(service.net.now_ns() < 100 * MS, "no request waited for a timeout");
    publish(&service, &[2, 0]);
    let now_ns = service.net.now_ns();
    service.run(now_ns + 50 * MS, |_| false).expect("no spinning");
    assert_eq!(ask(&mut service), (20, 0));
}

/// Removes all backends while requests of some clients are in flight, with a drain timeout of `leave_ms`.
fn remove_all(leave_ms: u64) -> ((u32, u32), u64) {
    let mut config = config();
    config.timeouts.backend_drain = Duration::from_millis(leave_ms);
    let (mut service, _) = service(&config, 300 * MS);
    let verdicts: Vec<_> = gets(20).chunks(1).map(|get| service.client(10 * MS, get, Habit::Plain)).collect();
    service.run(50 * MS, |_| false).expect("no spinning");
    publish(&service, &[]);
    let are_over = |_: &SimService| verdicts.iter().all(|verdict| verdict.borrow().is_over());
    service.run(5_000 * MS, are_over).expect("no spinning");
    let over_ns = service.net.now_ns();
    assert!(verdicts.iter().all(|verdict| verdict.borrow().wrong.is_none()));
    service.run(over_ns + 1_500 * MS, |_| false).expect("no spinning");
    service.expect_quiet().expect("nothing is left behind");
    assert_eq!(service.worker.audit().backend_conns, 0, "the set is empty");
    let sum = |count: fn(&Verdict) -> u32| verdicts.iter().map(|verdict| count(&verdict.borrow())).sum();
    ((sum(|verdict| verdict.answered), sum(|verdict| verdict.failed)), over_ns / MS)
}

#[test]
fn a_removed_backend_answers_its_requests_in_flight() {
    let (served, over_ms) = remove_all(1_000);
    assert_eq!(served, (20, 0));
    assert!((300..500).contains(&over_ms), "{over_ms}");
}

#[test]
fn a_removed_backend_is_closed_after_the_drain_timeout_and_its_clients_get_an_error() {
    let (served, over_ms) = remove_all(100);
    assert_eq!(served, (0, 20));
    assert!((150..250).contains(&over_ms), "{over_ms}");
}

#[test]
fn one_that_comes_back_before_it_has_finished_keeps_its_connection() {
    let (mut service, _) = service(&config(), 100 * MS);
    let verdict = service.client(10 * MS, &gets(20), Habit::Plain);
    service.run(50 * MS, |_| false).expect("no spinning");
    let connected = service.totals().backend_connections_opened;
    publish(&service, &[]);
    service.run(60 * MS, |_| false).expect("no spinning");
    publish(&service, &[2, 1, 0]);
    service.run(5_000 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
    let verdict = verdict.borrow();
    assert_eq!((verdict.answered, verdict.failed, verdict.wrong.as_deref()), (20, 0, None));
    let kept = service.totals().backend_connections_opened;
    assert_eq!(kept, connected, "backends with requests kept their connections");
}

/// Random lists at random times; every run must hold what it promises.
fn check(count: u64, plan: &FaultPlan) {
    for seed in seeds(count) {
        if let Err(text) =
            fault_injection::run(seed, &FaultPlan { changes_lists: true, ..plan.clone() }, &hand())
        {
            panic!("FLICK_SEED={seed}: {text}");
        }
    }
}

#[test]
fn no_request_fails_when_backend_sets_change() {
    check(150, &FaultPlan::none());
    check(150, &FaultPlan::hostile());
}

#[test]
fn no_reply_reaches_a_wrong_client_while_lists_change_and_backends_break() {
    check(150, &FaultPlan::everything());
    check(150, &FaultPlan::resets());
}
