//! Tests of the number of requests that each backend gets, with slow start, ejection, weights, ranks and retries. The
//! service is the HTTP balancer of the examples, between peers that count requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, Reachability};
use flick_runtime::HealthLimits;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

use super::subject;

/// Nanoseconds of a second.
const S: u64 = 1_000 * MS;
/// Clients come at this pace, one request each.
const CLIENTS_PER_S: u64 = 400;

/// Requests and responses that the peers observed.
#[derive(Default)]
struct Observed {
    /// Requests at backends: time and backend.
    asked: Vec<(u64, usize)>,
    /// Responses at clients: time and status.
    answered: Vec<(u64, u16)>,
}

impl Observed {
    /// Requests at a backend within a time.
    fn of(&self, server: usize, from_ns: u64, to_ns: u64) -> u64 {
        let own = |&&(at_ns, other): &&(u64, usize)| other == server && (from_ns..to_ns).contains(&at_ns);
        self.asked.iter().filter(own).count() as u64
    }
}

/// One connection to a backend, which closes it instead of answering where `fails` says so.
struct Origin {
    server: usize,
    observed: Rc<RefCell<Observed>>,
    fails: fn(server: usize, nth: u64) -> bool,
    seen: Vec<u8>,
}

impl Actor for Origin {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.seen.extend_from_slice(data);
        while let Some(end) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
            self.seen.drain(..end + 4);
            let nth = self.observed.borrow().of(self.server, 0, u64::MAX);
            self.observed.borrow_mut().asked.push((io.now_ns(), self.server));
            if (self.fails)(self.server, nth) {
                return io.close();
            }
            io.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    }
}

/// A client of one request.
struct Asking {
    observed: Rc<RefCell<Observed>>,
    received: Vec<u8>,
}

impl Actor for Asking {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.received.extend_from_slice(data);
        let text = String::from_utf8_lossy(&self.received);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let status: u16 = head[9..12].parse().expect("a status");
            if status != 200 || body.len() == 2 {
                self.observed.borrow_mut().answered.push((io.now_ns(), status));
                io.close();
            }
        }
    }
}

/// The balancer before some backends, and clients for some seconds.
fn service(
    subject: &Subject,
    (weights, seconds): (&[u32], u64),
    health: &HealthLimits,
    fails: fn(usize, u64) -> bool,
) -> (SimService, Rc<RefCell<Observed>>) {
    ranked(subject, (weights, &[], seconds), health, fails)
}

/// As [`service`]; some stand in for others.
fn ranked(
    subject: &Subject,
    (weights, ranks, seconds): (&[u32], &[u16], u64),
    health: &HealthLimits,
    fails: fn(usize, u64) -> bool,
) -> (SimService, Rc<RefCell<Observed>>) {
    let mut config = SimServiceConfig::new(5, weights.len());
    config.ranks = ranks.to_vec();
    config.weights = weights.to_vec();
    config.limits.health = health.clone();
    let observed = Rc::new(RefCell::new(Observed::default()));
    let own = Rc::clone(&observed);
    let service = SimService::new(&config, subject, move |server, _| {
        Some(Box::new(Origin { server, observed: Rc::clone(&own), fails, seen: Vec::new() }))
    });
    for client in 0..seconds * CLIENTS_PER_S {
        let asking = Asking { observed: Rc::clone(&observed), received: Vec::new() };
        service.net.connect(&service.listen, (client + 1) * S / CLIENTS_PER_S, Box::new(asking));
    }
    (service, observed)
}

fn pass(service: &mut SimService, until_ns: u64) {
    service.run(until_ns, |_| false).expect("the simulation ends");
}

/// Plays with both engines, which must make the same run.
fn check(policy: &str, play: impl Fn(&Subject) -> SimService) {
    let (native, interpreted) = subject::example(&format!("http_balancer/{policy}.flick"));
    let hashes = [native, interpreted].map(|subject| play(&subject).net.trace_hash());
    assert_eq!(hashes[0], hashes[1], "{policy}: the engines differ");
}

/// Backend 0 of four is away for two seconds. In each second after it is back it has what its share of then is.
fn comes_back_in_steps(policy: &str) {
    const STEPS: u64 = 5;
    check(policy, |subject| {
        let health = HealthLimits { slow_start: Duration::from_secs(STEPS), ..HealthLimits::default() };
        let (mut service, observed) = service(subject, (&[1; 4], 12), &health, |_, _| false);
        let first = service.backends[0].clone();
        service.net.kill_at(S, &first);
        service.net.set_reachability_at(S, &first, Reachability::Refuse);
        service.net.set_reachability_at(3 * S, &first, Reachability::Up);
        pass(&mut service, 13 * S);
        let observed = observed.borrow();
        assert!(observed.answered.len() as u64 == 12 * CLIENTS_PER_S, "every client is answered");
        assert!(observed.answered.iter().all(|(_, status)| *status == 200), "a GET does not notice");
        let whole = CLIENTS_PER_S / 4;
        let before = observed.of(0, 0, S);
        assert!(
            (whole * 8 / 10..=whole * 12 / 10).contains(&before),
            "{policy}: {before} of {whole} at first"
        );
        assert_eq!(observed.of(0, S + 10 * MS, 3 * S), 0, "{policy}: it is away");
        let back_ns = 3 * S;
        let seen: Vec<u64> =
            (0..9).map(|at| observed.of(0, back_ns + at * S, back_ns + (at + 1) * S)).collect();
        println!("{policy}: {seen:?} of {whole} in each second after it is back");
        let steps = &seen[1..STEPS as usize];
        assert!(steps.windows(2).all(|two| two[0] < two[1]), "{policy}: more in each second: {seen:?}");
        for (at, had) in seen.iter().enumerate().take(STEPS as usize) {
            // It is found to be back up to half a second late.
            let at = at as u64;
            let (least, most) = (whole * at.saturating_sub(1) / STEPS, whole * (at + 1) / STEPS + whole / 10);
            assert!((least..=most).contains(had), "{policy}: {had} in second {at}: {seen:?}");
        }
        for had in &seen[STEPS as usize + 1..] {
            assert!((whole * 8 / 10..=whole * 12 / 10).contains(had), "{policy}: its share again: {seen:?}");
        }
        drop(observed);
        service
    });
}

#[test]
fn slow_start_raises_the_share_of_a_recovered_backend() {
    for policy in ["round_robin", "least_loaded", "two_choices"] {
        comes_back_in_steps(policy);
    }
}

/// Ejection by the percentage of failed requests.
fn by_share(outlier_failure_percent: u32, outlier_max_ejected_percent: u32) -> HealthLimits {
    HealthLimits {
        outlier_failure_percent,
        outlier_max_ejected_percent,
        outlier_min_requests: 20,
        outlier_ejection_time: Duration::from_secs(60),
        ..HealthLimits::default()
    }
}

/// Expects that N of four backends are ejected after two seconds, all of them failing, and get no further request.
fn out(health: &HealthLimits, fails: fn(usize, u64) -> bool, expected: usize) {
    check("round_robin", |subject| {
        let (mut service, observed) = service(subject, (&[1; 4], 4), health, fails);
        pass(&mut service, 2 * S);
        let out: Vec<usize> =
            (0..4).filter(|at| service.backend_counters[*at].unhealthy.get() == 1).collect();
        assert_eq!(out.len(), expected, "{out:?} with {health:?}");
        assert!(out.iter().all(|server| (0..4).any(|nth| fails(*server, nth))), "{out:?} with {health:?}");
        pass(&mut service, 5 * S);
        let observed = observed.borrow();
        for server in 0..4 {
            let had = observed.of(server, 2 * S + 10 * MS, u64::MAX);
            assert_eq!(had == 0, out.contains(&server), "backend {server} had {had} requests");
            let ejections = service.backend_counters[server].ejections.get();
            assert_eq!(ejections, u64::from(out.contains(&server)), "backend {server}");
        }
        drop(observed);
        service
    });
}

#[test]
fn outlier_failure_percent_ejects() {
    // Of four, the first ends a connection that has been used and counts for a stale one, the next is the same request
    // again.
    let third = |server, nth: u64| server == 2 && nth % 4 < 2;
    out(&by_share(30, 50), third, 1);
    out(&by_share(60, 50), third, 0);
}

#[test]
fn outlier_max_ejected_bounds_ejections() {
    let most = |server, _| server != 3;
    out(&by_share(50, 25), most, 1);
    out(&by_share(50, 50), most, 2);
    out(&by_share(50, 75), most, 3);
    out(&by_share(50, 50), |_, _| true, 2);
    out(&by_share(50, 24), most, 0);
}

#[test]
fn retries_and_denied_retries_are_counted() {
    check("round_robin", |subject| {
        let never_ejects = HealthLimits { outlier_consecutive_failures: Some(0), ..HealthLimits::default() };
        let (mut service, observed) = service(subject, (&[1; 4], 1), &never_ejects, |server, _| server == 1);
        pass(&mut service, 2 * S);
        let (observed, totals) = (observed.borrow(), service.totals());
        let failed = observed.answered.iter().filter(|answer| answer.1 == 502).count() as u64;
        let had = observed.of(1, 0, 2 * S);
        println!("{had} hung up on, {} sent again, {} not", totals.requests_retried, totals.retries_denied);
        assert_eq!(
            totals.requests_retried + totals.retries_denied,
            had,
            "each that failed is one or the other"
        );
        assert_eq!((totals.retries_denied, totals.errors_unavailable), (failed, failed));
        let most = 10 + CLIENTS_PER_S / 5;
        assert!(
            (most - 2..=most).contains(&totals.requests_retried),
            "ten, and a fifth of the requests of a second"
        );
        drop(observed);
        service
    });
}

/// Expects these numbers of requests at four backends with weights, with at most `most_off` more or fewer.
fn by_weight(policy: &str, expected: [u64; 4], most_off: u64) {
    check(policy, |subject| {
        let weights = [5, 1, 1, 3];
        let (mut service, observed) = service(subject, (&weights, 2), &HealthLimits::default(), |_, _| false);
        pass(&mut service, 3 * S);
        let had = [0, 1, 2, 3].map(|server| observed.borrow().of(server, 0, u64::MAX));
        println!("{policy}: {had:?} by weights of {weights:?}");
        assert_eq!(had.iter().sum::<u64>(), 2 * CLIENTS_PER_S);
        let is_right = had.iter().zip(expected).all(|(had, expected)| had.abs_diff(expected) <= most_off);
        assert!(is_right, "{policy}: {had:?}, {expected:?} expected");
        service
    });
}

#[test]
fn requests_are_balanced_by_weight() {
    by_weight("round_robin", [400, 80, 80, 240], 0);
    by_weight("least_loaded", [400, 80, 80, 240], 20);
    by_weight("two_choices", [400, 80, 80, 240], 60);
}

#[test]
fn remaining_backends_take_the_share_of_a_dead_one_by_weight() {
    check("round_robin", |subject| {
        let (mut service, observed) =
            service(subject, (&[5, 1, 1, 3], 4), &HealthLimits::default(), |_, _| false);
        let first = service.backends[0].clone();
        service.net.kill_at(S, &first);
        service.net.set_reachability_at(S, &first, Reachability::Refuse);
        pass(&mut service, 5 * S);
        let observed = observed.borrow();
        assert!(observed.answered.iter().all(|(_, status)| *status == 200), "a GET does not notice");
        let had = [1, 2, 3].map(|server| observed.of(server, 2 * S, 3 * S));
        assert_eq!(had, [80, 80, 240]);
        drop(observed);
        service
    });
}

#[test]
fn backup_backends_serve_while_all_others_are_down() {
    for policy in ["round_robin", "least_loaded", "two_choices"] {
        check(policy, |subject| {
            let ranks = [0, 0, 1, 1];
            let (mut service, observed) =
                ranked(subject, (&[1; 4], &ranks, 8), &HealthLimits::default(), |_, _| false);
            for at in [0, 1] {
                let away = service.backends[at].clone();
                service.net.kill_at((1 + at as u64) * S, &away);
                service.net.set_reachability_at((1 + at as u64) * S, &away, Reachability::Refuse);
                service.net.set_reachability_at(4 * S, &away, Reachability::Up);
            }
            pass(&mut service, 9 * S);
            let observed = observed.borrow();
            assert_eq!(observed.answered.len() as u64, 8 * CLIENTS_PER_S);
            assert!(observed.answered.iter().all(|(_, status)| *status == 200), "a GET does not notice");
            let of = |servers: [usize; 2], from_s: u64, to_s: u64| -> u64 {
                servers.map(|server| observed.of(server, from_s * S, to_s * S)).iter().sum()
            };
            assert_eq!((of([0, 1], 0, 1), of([2, 3], 0, 2)), (CLIENTS_PER_S - 1, 0), "{policy}");
            assert_eq!(of([0, 1], 2, 4), 0, "{policy}: both are away");
            let each = [2, 3].map(|server| observed.of(server, 2 * S, 4 * S));
            let half = CLIENTS_PER_S * 8 / 10..=CLIENTS_PER_S * 12 / 10;
            assert!(each.iter().all(|had| half.contains(had)), "{policy}: {each:?}");
            assert_eq!(of([2, 3], 5, 9), 0, "{policy}: both are back");
            drop(observed);
            service
        });
    }
}
