//! Backends that fail: out for a while, back, checked, protected from too much. Everything in simulated time.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, Reachability};
use flick_runtime::HealthLimits;
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

fn hand() -> Subject {
    Subject { program: common::program(), engine: Arc::new(common::Hand) }
}

/// A server that is silent while `is_silent` is set.
struct Moody {
    is_silent: Rc<Cell<bool>>,
    server: MemcachedServer,
}

impl Actor for Moody {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        if !self.is_silent.get() {
            self.server.on_data(io, data);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        self.server.on_timer(io, id);
    }
}

/// A service of four backends, the first of which is moody.
fn service(health: HealthLimits) -> (SimService, Rc<Cell<bool>>) {
    let mut config = SimServiceConfig::new(3, 4);
    config.limits.health = health;
    config.timeouts.response = Some(Duration::from_millis(100));
    let silent = Rc::new(Cell::new(false));
    let known = Rc::clone(&silent);
    let service = SimService::new(&config, &hand(), move |index, _| {
        let is_silent = if index == 0 { Rc::clone(&known) } else { Rc::default() };
        Some(Box::new(Moody { is_silent, server: MemcachedServer::honest() }))
    });
    (service, silent)
}

/// Keys of the first backend.
fn keys_of_the_first(count: usize) -> Vec<String> {
    let keys = (0..).map(|at| format!("key-{at}"));
    keys.filter(|key| flick_abi::hash::hash(key.as_bytes()).is_multiple_of(4)).take(count).collect()
}

/// Asks the first backend for `count` keys, one after the other; returns answers, failures and milliseconds.
fn ask(service: &mut SimService, count: usize) -> (u32, u32, u64) {
    let from_ns = service.net.now_ns();
    let (mut answered, mut failed) = (0, 0);
    for (at, key) in keys_of_the_first(count).iter().enumerate() {
        let at = at as u32;
        let get = Cmd { cas: u64::from(at) + 1, ..Cmd::request(opcode::GET, at, key.as_bytes(), b"") };
        let verdict = service.client(service.net.now_ns(), &[get], Habit::Plain);
        let until_ns = service.net.now_ns() + 5_000 * MS;
        service.run(until_ns, |_| verdict.borrow().is_over()).expect("no spinning");
        let verdict = verdict.borrow();
        assert_eq!(verdict.wrong, None);
        answered += verdict.answered;
        failed += verdict.failed;
    }
    (answered, failed, (service.net.now_ns() - from_ns) / MS)
}

fn pass(service: &mut SimService, ms: u64) {
    let until_ns = service.net.now_ns() + ms * MS;
    service.run(until_ns, |_| false).expect("no spinning");
}

/// Asks now and then until the first backend is out.
fn ask_until_out(service: &mut SimService) {
    for _ in 0..50 {
        ask(service, 1);
        pass(service, 20);
        if service.backend_counters[0].unhealthy.get() == 1 {
            return;
        }
    }
    panic!("it was never ejected");
}

fn ejecting() -> HealthLimits {
    HealthLimits {
        outlier_consecutive_failures: Some(3),
        outlier_ejection_time: Duration::from_secs(5),
        ..HealthLimits::default()
    }
}

#[test]
fn a_backend_that_does_not_answer_is_out_after_some_failures_and_costs_no_time_then() {
    let (mut service, silent) = service(ejecting());
    assert_eq!(ask(&mut service, 5).0, 5);
    silent.set(true);
    let (answered, failed, took_ms) = ask(&mut service, 20);
    assert_eq!((answered, failed), (0, 20));
    assert!((300..500).contains(&took_ms), "three timeouts, then at once: {took_ms} ms");
    assert_eq!(service.backend_counters[0].ejections.get(), 1);
    assert_eq!((0..4).map(|at| service.backend_counters[at].unhealthy.get()).sum::<u64>(), 1);
}

#[test]
fn one_that_was_out_is_back_after_its_time_and_out_for_twice_as_long_the_next_time() {
    let (mut service, silent) = service(ejecting());
    silent.set(true);
    ask_until_out(&mut service);
    silent.set(false);
    assert_eq!(ask(&mut service, 5).1, 5, "it is out though it is well");
    pass(&mut service, 5_000);
    assert_eq!((service.backend_counters[0].unhealthy.get(), ask(&mut service, 5).0), (0, 5));
    silent.set(true);
    ask_until_out(&mut service);
    silent.set(false);
    pass(&mut service, 6_000);
    assert_eq!(ask(&mut service, 2).1, 2, "ten seconds this time");
    pass(&mut service, 5_000);
    assert_eq!(ask(&mut service, 2).0, 2);
}

#[test]
fn never_more_backends_are_out_than_may_be() {
    let (mut service, silent) = service(HealthLimits { outlier_max_ejected_percent: 20, ..ejecting() });
    silent.set(true);
    let (_, failed, took_ms) = ask(&mut service, 10);
    assert_eq!(
        (failed, service.backend_counters[0].ejections.get()),
        (10, 0),
        "one of four is more than 20 %"
    );
    assert!(took_ms >= 300, "it was asked again and again: {took_ms} ms");
}

#[test]
fn what_failed_now_and_then_does_not_add_up() {
    let (mut service, silent) = service(ejecting());
    for _ in 0..5 {
        silent.set(true);
        ask(&mut service, 2);
        silent.set(false);
        pass(&mut service, 100);
        assert_eq!(ask(&mut service, 1).0, 1);
    }
    assert_eq!(service.backend_counters[0].ejections.get(), 0);
}

/// Checks each second with a question of the protocol and the beginning of its answer.
fn checking() -> HealthLimits {
    HealthLimits {
        health_check_interval: Duration::from_secs(1),
        health_check_timeout: Duration::from_millis(200),
        health_check_send: Cmd::request(opcode::GET, 7, b"check", b"").bytes(),
        health_check_expect: vec![0x81],
        ..HealthLimits::default()
    }
}

#[test]
fn checks_find_one_that_is_silent_before_a_client_does_and_that_it_is_well() {
    let (mut service, silent) = service(checking());
    pass(&mut service, 5_000);
    assert_eq!(service.backend_counters[0].health_check_failures.get(), 0);
    silent.set(true);
    pass(&mut service, 5_000);
    let (_, failed, took_ms) = ask(&mut service, 10);
    assert_eq!(failed, 10);
    assert!(took_ms < 50, "no request waits for a timeout: {took_ms} ms");
    silent.set(false);
    pass(&mut service, 4_000);
    assert_eq!(ask(&mut service, 10).0, 10);
    service.expect_quiet().expect("nothing is left behind");
}

#[test]
fn a_backend_whose_checks_pass_again_is_no_longer_ejected() {
    let limits = HealthLimits {
        outlier_consecutive_failures: Some(3),
        outlier_ejection_time: Duration::from_secs(60),
        ..checking()
    };
    let (mut service, silent) = service(limits);
    silent.set(true);
    assert_eq!(ask(&mut service, 10).0, 0);
    pass(&mut service, 5_000);
    assert_eq!(service.backend_counters[0].ejections.get(), 1);
    silent.set(false);
    pass(&mut service, 4_000);
    assert_eq!(ask(&mut service, 10).0, 10, "the ejection has 50 s left");
}

#[test]
fn a_wrong_answer_and_a_refused_connection_fail_a_check() {
    let (mut service, _) =
        service(HealthLimits { health_check_expect: b"HTTP/1.1 200".to_vec(), ..checking() });
    pass(&mut service, 5_000);
    assert!((0..4).all(|at| service.backend_counters[at].health_check_failures.get() >= 4));
    assert_eq!(ask(&mut service, 5).0, 5, "all fail: then checks do not count");
    let only_connect =
        HealthLimits { health_check_send: Vec::new(), health_check_expect: Vec::new(), ..checking() };
    let (mut service, _) = self::service(only_connect);
    let first = service.backends[0].clone();
    service.net.set_reachability_at(2_000 * MS, &first, Reachability::Refuse);
    pass(&mut service, 8_000);
    let failures: Vec<bool> =
        (0..4).map(|at| service.backend_counters[at].health_check_failures.get() > 2).collect();
    assert_eq!(failures, [true, false, false, false]);
}

#[test]
fn a_backend_that_has_enough_to_do_gets_no_more() {
    let (mut service, silent) =
        service(HealthLimits { max_requests_per_backend: 4, ..HealthLimits::default() });
    silent.set(true);
    let gets: Vec<Cmd> = keys_of_the_first(10)
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let at = at as u32;
            Cmd { cas: u64::from(at) + 1, ..Cmd::request(opcode::GET, at, key.as_bytes(), b"") }
        })
        .collect();
    // A new client has few requests in flight, so each is one of another.
    let verdicts: Vec<_> = gets.chunks(1).map(|get| service.client(0, get, Habit::Plain)).collect();
    let are_over = |_: &SimService| verdicts.iter().all(|verdict| verdict.borrow().is_over());
    service.run(1_000 * MS, are_over).expect("no spinning");
    for verdict in &verdicts {
        assert_eq!((verdict.borrow().failed, verdict.borrow().wrong.clone()), (1, None));
    }
    assert_eq!((service.backend_counters[0].requests.get(), service.backend_counters[0].shed.get()), (4, 6));
    let totals = service.totals();
    assert_eq!((totals.errors_timeout, totals.errors_overload), (4, 6));
    assert_eq!(service.backend_counters[1].shed.get(), 0);
}
