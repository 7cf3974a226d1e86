//! Which backends get how many requests, counted one by one: one that is back gets its share in steps, one that fails
//! too often gets none, never more than may be out are out. The service is the library's balancer, between peers that
//! keep books.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, Reachability};
use flick_runtime::HealthLimits;
use flick_testkit::service::{MS, Service, ServiceConfig, Subject};

use super::subject;

/// Nanoseconds of a second.
const S: u64 = 1_000 * MS;
/// Clients come at this pace, one request each.
const CLIENTS_PER_S: u64 = 400;

/// What the peers have seen.
#[derive(Default)]
struct Books {
    /// Requests that came to backends: when, and to which.
    asked: Vec<(u64, usize)>,
    /// Answers that clients got: when, and their status.
    told: Vec<(u64, u16)>,
}

impl Books {
    /// Requests that came to a backend in some time.
    fn of(&self, server: usize, from_ns: u64, to_ns: u64) -> u64 {
        let own = |&&(at_ns, other): &&(u64, usize)| other == server && (from_ns..to_ns).contains(&at_ns);
        self.asked.iter().filter(own).count() as u64
    }
}

/// One connection to a backend, which closes it instead of answering where `fails` says so.
struct Origin {
    server: usize,
    books: Rc<RefCell<Books>>,
    fails: fn(server: usize, nth: u64) -> bool,
    seen: Vec<u8>,
}

impl Actor for Origin {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.seen.extend_from_slice(data);
        while let Some(end) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
            self.seen.drain(..end + 4);
            let nth = self.books.borrow().of(self.server, 0, u64::MAX);
            self.books.borrow_mut().asked.push((io.now_ns(), self.server));
            if (self.fails)(self.server, nth) {
                return io.close();
            }
            io.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    }
}

/// A client of one request.
struct Asking {
    books: Rc<RefCell<Books>>,
    heard: Vec<u8>,
}

impl Actor for Asking {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.heard.extend_from_slice(data);
        let text = String::from_utf8_lossy(&self.heard);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let status: u16 = head[9..12].parse().expect("a status");
            if status != 200 || body.len() == 2 {
                self.books.borrow_mut().told.push((io.now_ns(), status));
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
) -> (Service, Rc<RefCell<Books>>) {
    ranked(subject, (weights, &[], seconds), health, fails)
}

/// As [`service`]; some stand in for others.
fn ranked(
    subject: &Subject,
    (weights, ranks, seconds): (&[u32], &[u16], u64),
    health: &HealthLimits,
    fails: fn(usize, u64) -> bool,
) -> (Service, Rc<RefCell<Books>>) {
    let mut config = ServiceConfig::new(5, weights.len());
    config.ranks = ranks.to_vec();
    config.weights = weights.to_vec();
    config.limits.health = health.clone();
    let books = Rc::new(RefCell::new(Books::default()));
    let own = Rc::clone(&books);
    let service = Service::new(&config, subject, move |server, _| {
        Some(Box::new(Origin { server, books: Rc::clone(&own), fails, seen: Vec::new() }))
    });
    for client in 0..seconds * CLIENTS_PER_S {
        let asking = Asking { books: Rc::clone(&books), heard: Vec::new() };
        service.net.connect(&service.listen, (client + 1) * S / CLIENTS_PER_S, Box::new(asking));
    }
    (service, books)
}

fn pass(service: &mut Service, until_ns: u64) {
    service.run(until_ns, |_| false).expect("no spinning");
}

/// Plays with both engines, which must make the same run.
fn check(policy: &str, play: impl Fn(&Subject) -> Service) {
    let (native, interpreted) = subject::example(&format!("http_balancer/{policy}.flick"));
    let hashes = [native, interpreted].map(|subject| play(&subject).net.trace_hash());
    assert_eq!(hashes[0], hashes[1], "{policy}: the engines differ");
}

/// Backend 0 of four is away for two seconds. In each second after it is back it has what its share of then is.
fn comes_back_in_steps(policy: &str) {
    const STEPS: u64 = 5;
    check(policy, |subject| {
        let health = HealthLimits { slow_start: Duration::from_secs(STEPS), ..HealthLimits::default() };
        let (mut service, books) = service(subject, (&[1; 4], 12), &health, |_, _| false);
        let first = service.backends[0].clone();
        service.net.kill_at(S, &first);
        service.net.set_reachability_at(S, &first, Reachability::Refuse);
        service.net.set_reachability_at(3 * S, &first, Reachability::Up);
        pass(&mut service, 13 * S);
        let books = books.borrow();
        assert!(books.told.len() as u64 == 12 * CLIENTS_PER_S, "everybody is told something");
        assert!(books.told.iter().all(|(_, status)| *status == 200), "a GET does not notice");
        let whole = CLIENTS_PER_S / 4;
        let before = books.of(0, 0, S);
        assert!(
            (whole * 8 / 10..=whole * 12 / 10).contains(&before),
            "{policy}: {before} of {whole} at first"
        );
        assert_eq!(books.of(0, S + 10 * MS, 3 * S), 0, "{policy}: it is away");
        let back_ns = 3 * S;
        let seen: Vec<u64> = (0..9).map(|at| books.of(0, back_ns + at * S, back_ns + (at + 1) * S)).collect();
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
        drop(books);
        service
    });
}

#[test]
fn a_backend_that_is_back_gets_its_share_in_steps() {
    for policy in ["round_robin", "least_loaded", "two_choices"] {
        comes_back_in_steps(policy);
    }
}

/// Out by the part of requests that fail.
fn by_share(outlier_failure_percent: u32, outlier_max_ejected_percent: u32) -> HealthLimits {
    HealthLimits {
        outlier_failure_percent,
        outlier_max_ejected_percent,
        outlier_min_requests: 20,
        outlier_ejection_time: Duration::from_secs(60),
        ..HealthLimits::default()
    }
}

/// So many of four backends are out after two seconds, none of them well; they get nothing after that, and the others
/// do.
fn out(health: &HealthLimits, fails: fn(usize, u64) -> bool, expected: usize) {
    check("round_robin", |subject| {
        let (mut service, books) = service(subject, (&[1; 4], 4), health, fails);
        pass(&mut service, 2 * S);
        let out: Vec<usize> =
            (0..4).filter(|at| service.backend_counters[*at].unhealthy.get() == 1).collect();
        assert_eq!(out.len(), expected, "{out:?} with {health:?}");
        assert!(out.iter().all(|server| (0..4).any(|nth| fails(*server, nth))), "{out:?} with {health:?}");
        pass(&mut service, 5 * S);
        let books = books.borrow();
        for server in 0..4 {
            let had = books.of(server, 2 * S + 10 * MS, u64::MAX);
            assert_eq!(had == 0, out.contains(&server), "backend {server} had {had} requests");
            let ejections = service.backend_counters[server].ejections.get();
            assert_eq!(ejections, u64::from(out.contains(&server)), "backend {server}");
        }
        drop(books);
        service
    });
}

#[test]
fn a_backend_is_out_when_that_part_of_its_requests_fails() {
    // Of four, the first ends a connection that has been used and counts for a stale one, the next is the same request
    // again.
    let third = |server, nth: u64| server == 2 && nth % 4 < 2;
    out(&by_share(30, 50), third, 1);
    out(&by_share(60, 50), third, 0);
}

#[test]
fn no_more_are_out_than_may_be_however_many_fail() {
    let most = |server, _| server != 3;
    out(&by_share(50, 25), most, 1);
    out(&by_share(50, 50), most, 2);
    out(&by_share(50, 75), most, 3);
    out(&by_share(50, 50), |_, _| true, 2);
    out(&by_share(50, 24), most, 0);
}

#[test]
fn retries_are_counted_one_by_one() {
    check("round_robin", |subject| {
        let (mut service, books) =
            service(subject, (&[1; 4], 1), &HealthLimits::default(), |server, _| server == 1);
        pass(&mut service, 2 * S);
        let (books, totals) = (books.borrow(), service.totals());
        let failed = books.told.iter().filter(|told| told.1 == 502).count() as u64;
        let had = books.of(1, 0, 2 * S);
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
        drop(books);
        service
    });
}

/// Four backends of these weights are asked so often as `expected` says, of all that clients ask in two seconds; one
/// may have so many more or fewer.
fn by_weight(policy: &str, expected: [u64; 4], most_off: u64) {
    check(policy, |subject| {
        let weights = [5, 1, 1, 3];
        let (mut service, books) = service(subject, (&weights, 2), &HealthLimits::default(), |_, _| false);
        pass(&mut service, 3 * S);
        let had = [0, 1, 2, 3].map(|server| books.borrow().of(server, 0, u64::MAX));
        println!("{policy}: {had:?} by weights of {weights:?}");
        assert_eq!(had.iter().sum::<u64>(), 2 * CLIENTS_PER_S);
        let is_right = had.iter().zip(expected).all(|(had, expected)| had.abs_diff(expected) <= most_off);
        assert!(is_right, "{policy}: {had:?}, {expected:?} expected");
        service
    });
}

#[test]
fn backends_are_asked_by_their_weight() {
    by_weight("round_robin", [400, 80, 80, 240], 0);
    by_weight("least_loaded", [400, 80, 80, 240], 20);
    by_weight("two_choices", [400, 80, 80, 240], 60);
}

#[test]
fn of_backends_that_weigh_more_one_dies_and_the_others_share_its_part() {
    check("round_robin", |subject| {
        let (mut service, books) =
            service(subject, (&[5, 1, 1, 3], 4), &HealthLimits::default(), |_, _| false);
        let first = service.backends[0].clone();
        service.net.kill_at(S, &first);
        service.net.set_reachability_at(S, &first, Reachability::Refuse);
        pass(&mut service, 5 * S);
        let books = books.borrow();
        assert!(books.told.iter().all(|(_, status)| *status == 200), "a GET does not notice");
        let had = [1, 2, 3].map(|server| books.of(server, 2 * S, 3 * S));
        assert_eq!(had, [80, 80, 240]);
        drop(books);
        service
    });
}

#[test]
fn backends_that_stand_in_are_asked_while_the_others_are_away_and_nobody_notices() {
    for policy in ["round_robin", "least_loaded", "two_choices"] {
        check(policy, |subject| {
            let ranks = [0, 0, 1, 1];
            let (mut service, books) =
                ranked(subject, (&[1; 4], &ranks, 8), &HealthLimits::default(), |_, _| false);
            for at in [0, 1] {
                let away = service.backends[at].clone();
                service.net.kill_at((1 + at as u64) * S, &away);
                service.net.set_reachability_at((1 + at as u64) * S, &away, Reachability::Refuse);
                service.net.set_reachability_at(4 * S, &away, Reachability::Up);
            }
            pass(&mut service, 9 * S);
            let books = books.borrow();
            assert_eq!(books.told.len() as u64, 8 * CLIENTS_PER_S);
            assert!(books.told.iter().all(|(_, status)| *status == 200), "a GET does not notice");
            let of = |servers: [usize; 2], from_s: u64, to_s: u64| -> u64 {
                servers.map(|server| books.of(server, from_s * S, to_s * S)).iter().sum()
            };
            assert_eq!((of([0, 1], 0, 1), of([2, 3], 0, 2)), (CLIENTS_PER_S - 1, 0), "{policy}");
            assert_eq!(of([0, 1], 2, 4), 0, "{policy}: both are away");
            let each = [2, 3].map(|server| books.of(server, 2 * S, 4 * S));
            let half = CLIENTS_PER_S * 8 / 10..=CLIENTS_PER_S * 12 / 10;
            assert!(each.iter().all(|had| half.contains(had)), "{policy}: {each:?}");
            assert_eq!(of([2, 3], 5, 9), 0, "{policy}: both are back");
            drop(books);
            service
        });
    }
}
