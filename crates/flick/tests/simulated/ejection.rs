//! Backends that stall, are slow, or answer 500, with default settings: which requests pay for it, and which backends
//! get no more for a while. The service is the HTTP balancer of the examples.

use std::cell::RefCell;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

use super::subject;

/// Nanoseconds of a second.
const S: u64 = 1_000 * MS;
/// Time of a client from a response to its next request.
const THINKS_NS: u64 = 2 * MS;

/// Conduct of a backend with a request.
#[derive(Clone, Copy)]
enum Conduct {
    Answers(u16),
    AnswersAfter(u64),
    /// It has accepted the connection, and reads.
    Stalls,
}

/// Backend, time and path of a request: what becomes of it.
type Plan = fn(server: usize, now_ns: u64, path: &str) -> Conduct;

/// Requests and responses that the peers observed.
#[derive(Default)]
struct Observed {
    /// Requests at backends: time, backend and path.
    asked: Vec<(u64, usize, String)>,
    /// Responses at clients: the time that each took, its status and path.
    answered: Vec<(u64, u16, String)>,
}

impl Observed {
    /// Requests at a backend within a time.
    fn of(&self, server: usize, from_ns: u64, to_ns: u64) -> usize {
        let own =
            |(at_ns, other, _): &&(u64, usize, String)| *other == server && (from_ns..to_ns).contains(at_ns);
        self.asked.iter().filter(own).count()
    }

    /// Responses with a status.
    fn with(&self, status: u16) -> usize {
        self.answered.iter().filter(|answer| answer.1 == status).count()
    }

    /// Requests for a path at all backends.
    fn asked_for(&self, path: &str) -> usize {
        self.asked.iter().filter(|request| request.2 == path).count()
    }
}

/// One connection to a backend.
struct Origin {
    server: usize,
    plan: Plan,
    observed: Rc<RefCell<Observed>>,
    seen: Vec<u8>,
}

impl Actor for Origin {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.seen.extend_from_slice(data);
        while let Some(end) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = self.seen.drain(..end + 4).collect();
            let head = String::from_utf8(head).expect("a head is text");
            let path = head.split(' ').nth(1).expect("a target").to_owned();
            let conduct = (self.plan)(self.server, io.now_ns(), &path);
            self.observed.borrow_mut().asked.push((io.now_ns(), self.server, path));
            match conduct {
                Conduct::Answers(status) => answer(io, status),
                Conduct::AnswersAfter(after_ns) => io.timer(after_ns, 0),
                Conduct::Stalls => {}
            }
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        answer(io, 200);
    }
}

fn answer(io: &mut PeerIo<'_>, status: u16) {
    io.write(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").as_bytes());
}

/// A client that sends the same request again and again on one connection.
struct Client {
    method: &'static str,
    path: &'static str,
    /// It sends no more from then on.
    until_ns: u64,
    sent_ns: u64,
    received: Vec<u8>,
    observed: Rc<RefCell<Observed>>,
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.sent_ns = io.now_ns();
        let body = if self.method == "POST" { "Content-Length: 0\r\n" } else { "" };
        io.write(format!("{} {} HTTP/1.1\r\nHost: a\r\n{body}\r\n", self.method, self.path).as_bytes());
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.received.extend_from_slice(data);
        if !self.received.ends_with(b"\r\n\r\n") {
            return;
        }
        let text = String::from_utf8(std::mem::take(&mut self.received)).expect("a head is text");
        let status = text[9..12].parse().expect("a status");
        let took_ns = io.now_ns() - self.sent_ns;
        self.observed.borrow_mut().answered.push((took_ns, status, self.path.to_owned()));
        if io.now_ns() + THINKS_NS < self.until_ns {
            io.timer(THINKS_NS, 0);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        self.on_open(io);
    }
}

/// A client of the run: its first request and its last, method and path.
type Asks = (u64, u64, &'static str, &'static str);

/// Runs a program between backends and clients for some time.
fn play(
    subject: &Subject,
    (servers, plan): (usize, Plan),
    clients: &[Asks],
    until_ns: u64,
) -> (SimService, Rc<RefCell<Observed>>) {
    let observed = Rc::new(RefCell::new(Observed::default()));
    let own = Rc::clone(&observed);
    let mut service = SimService::new(&SimServiceConfig::new(5, servers), subject, move |server, _| {
        Some(Box::new(Origin { server, plan, observed: Rc::clone(&own), seen: Vec::new() }))
    });
    for (from_ns, until_ns, method, path) in clients.iter().copied() {
        let (sent_ns, received, observed) = (0, Vec::new(), Rc::clone(&observed));
        let client = Client { method, path, until_ns, sent_ns, received, observed };
        service.net.connect(&service.listen, from_ns, Box::new(client));
    }
    service.run(until_ns, |_| false).expect("the simulation ends");
    (service, observed)
}

/// Plays with both engines, which must make the same run.
fn check(program: &str, expect: impl Fn(&Subject) -> SimService) {
    let (native, interpreted) = subject::example(&format!("http_balancer/{program}.flick"));
    let hashes = [native, interpreted].map(|subject| expect(&subject).net.trace_hash());
    assert_eq!(hashes[0], hashes[1], "{program}: the engines differ");
}

fn ejections(service: &SimService) -> Vec<u64> {
    service.backend_counters.iter().map(|backend| backend.ejections.get()).collect()
}

const POLICIES: [&str; 3] = ["round_robin", "least_loaded", "two_choices"];

/// Four clients from 100 ms on.
const FOUR: [Asks; 4] = [(100 * MS, 5_100 * MS, "GET", "/"); 4];

#[test]
fn a_stalled_backend_does_not_cost_every_request_its_timeout() {
    let well: Plan = |_, _, _| Conduct::Answers(200);
    let stalled: Plan = |server, now_ns, _| match server == 0 && now_ns > 200 * MS {
        true => Conduct::Stalls,
        false => Conduct::Answers(200),
    };
    for policy in POLICIES {
        check(policy, |subject| {
            let without = play(subject, (2, well), &FOUR, 6 * S).1.borrow().with(200);
            let (service, observed) = play(subject, (2, stalled), &FOUR, 6 * S);
            let seen = observed.borrow();
            let slow = seen.answered.iter().filter(|answer| answer.0 > 100 * MS).count();
            println!("{policy}: {} of {without} responses, {slow} of them slow", seen.with(200));
            assert_eq!(seen.with(200), seen.answered.len(), "{policy}: each request is answered");
            assert!(seen.with(200) * 10 > without * 7, "{policy}: {} of {without}", seen.with(200));
            assert!(slow <= 4, "{policy}: each client waits once at most: {slow}");
            assert!(seen.answered.iter().all(|answer| answer.0 < 1_100 * MS), "{policy}");
            assert_eq!(ejections(&service), [1, 0], "{policy}");
            drop(seen);
            service
        });
    }
}

#[test]
fn a_stalled_backend_is_tried_with_one_request_when_its_ejection_is_over() {
    let stalled: Plan = |server, now_ns, _| match server == 0 && (200 * MS..20 * S).contains(&now_ns) {
        true => Conduct::Stalls,
        false => Conduct::Answers(200),
    };
    check("round_robin", |subject| {
        let (service, observed) = play(subject, (2, stalled), &[(100 * MS, 45 * S, "GET", "/"); 4], 46 * S);
        let seen = observed.borrow();
        assert_eq!(seen.with(200), seen.answered.len());
        // It is out from 1.2 s to 11.2 s, then tried, and out from 12.2 s to 32.2 s.
        assert_eq!(seen.of(0, 1_300 * MS, 32 * S), 1, "one request finds out that it still stalls");
        assert_eq!(ejections(&service), [2, 0]);
        let (own, other) = (seen.of(0, 33 * S, 45 * S), seen.of(1, 33 * S, 45 * S));
        assert!(own.abs_diff(other) <= 4, "then it has its share again: {own} and {other}");
        drop(seen);
        service
    });
}

#[test]
fn a_request_that_may_not_be_repeated_waits_at_a_stalled_backend() {
    let stalled: Plan = |server, now_ns, path| match server == 0 && now_ns > S || path == "/post" {
        true => Conduct::Stalls,
        false => Conduct::Answers(200),
    };
    check("round_robin", |subject| {
        let clients = [(100 * MS, 70 * S, "GET", "/"), (2 * S, 2 * S, "POST", "/post")];
        let (service, observed) = play(subject, (2, stalled), &clients, 70 * S);
        let seen = observed.borrow();
        assert_eq!(seen.asked_for("/post"), 1, "a POST is sent once");
        let post = seen.answered.iter().find(|answer| answer.2 == "/post").expect("it is answered");
        assert_eq!((post.1, post.0 / S), (504, 60));
        assert_eq!(seen.with(504), 1, "nothing else fails");
        drop(seen);
        service
    });
}

#[test]
fn a_slow_response_is_not_taken_for_a_stalled_backend() {
    const SLOW: u64 = 30 * S;
    let slow: Plan = |_, _, path| match path {
        "/slow" => Conduct::AnswersAfter(SLOW),
        _ => Conduct::Answers(200),
    };
    check("round_robin", |subject| {
        let clients = [
            (100 * MS, 40 * S, "GET", "/"),
            (100 * MS, 40 * S, "GET", "/"),
            (S, S, "GET", "/slow"),
            (2 * S, 2 * S, "POST", "/slow"),
        ];
        let (service, observed) = play(subject, (2, slow), &clients, 60 * S);
        let seen = observed.borrow();
        assert_eq!(seen.asked_for("/slow"), 2, "each is asked for once");
        assert_eq!((seen.with(200), ejections(&service)), (seen.answered.len(), vec![0, 0]));
        assert_eq!(seen.answered.iter().filter(|answer| answer.0 >= SLOW).count(), 2);
        drop(seen);
        service
    });
}

#[test]
fn backends_that_take_five_seconds_for_each_response_are_not_taken_for_stalled() {
    let slow: Plan = |_, _, _| Conduct::AnswersAfter(5 * S);
    for policy in POLICIES {
        check(policy, |subject| {
            let (service, observed) = play(subject, (3, slow), &[(100 * MS, 60 * S, "GET", "/"); 8], 70 * S);
            let seen = observed.borrow();
            assert_eq!((seen.with(200), seen.asked.len()), (seen.answered.len(), seen.answered.len()));
            assert_eq!(service.totals().requests_retried, 0, "{policy}");
            assert_eq!(ejections(&service), [0, 0, 0], "{policy}");
            drop(seen);
            service
        });
    }
}

#[test]
fn when_all_backends_stall_no_request_is_sent_more_than_twice() {
    let stalled: Plan = |_, now_ns, _| if now_ns > S { Conduct::Stalls } else { Conduct::Answers(200) };
    check("round_robin", |subject| {
        let (service, observed) = play(subject, (3, stalled), &[(100 * MS, 3 * S, "GET", "/"); 6], 200 * S);
        let seen = observed.borrow();
        let late = seen.asked.iter().filter(|request| request.0 > S).count();
        assert_eq!(seen.with(504), 6, "each is answered: {:?}", seen.answered.last());
        assert!((6..=12).contains(&late), "{late} requests for six of clients");
        let out = (0..3).filter(|at| service.backend_counters[*at].unhealthy.get() == 1).count();
        assert!(out <= 1, "most are not out: {out}");
        drop(seen);
        service
    });
}

#[test]
fn a_backend_that_answers_500_gets_no_requests_for_a_while() {
    for (status, is_out) in [(500, true), (502, true), (503, true), (504, true), (501, false), (404, false)] {
        let failing: Plan = match status {
            500 => |server, _, _| Conduct::Answers(if server == 1 { 500 } else { 200 }),
            501 => |server, _, _| Conduct::Answers(if server == 1 { 501 } else { 200 }),
            502 => |server, _, _| Conduct::Answers(if server == 1 { 502 } else { 200 }),
            503 => |server, _, _| Conduct::Answers(if server == 1 { 503 } else { 200 }),
            504 => |server, _, _| Conduct::Answers(if server == 1 { 504 } else { 200 }),
            _ => |server, _, _| Conduct::Answers(if server == 1 { 404 } else { 200 }),
        };
        check("round_robin", |subject| {
            let (service, observed) = play(subject, (3, failing), &FOUR, 6 * S);
            let seen = observed.borrow();
            assert_eq!(seen.with(status), seen.of(1, 0, 6 * S), "each response reaches its client");
            assert_eq!(service.totals().requests_retried, 0, "a response is not asked for again");
            // Requests may be in flight when the fifth failure is counted.
            let had = seen.with(status);
            assert_eq!((5..9).contains(&had), is_out, "{status}: {had} requests");
            assert_eq!(ejections(&service), [0, u64::from(is_out), 0], "{status}");
            drop(seen);
            service
        });
    }
}

#[test]
fn backends_that_all_answer_500_are_not_all_ejected() {
    let failing: Plan = |_, _, _| Conduct::Answers(500);
    for servers in [1, 2, 5] {
        check("round_robin", |subject| {
            let (service, observed) = play(subject, (servers, failing), &FOUR, 6 * S);
            let seen = observed.borrow();
            assert!(seen.with(500) > 4_000 && seen.with(500) == seen.answered.len(), "all are forwarded");
            let out = (0..servers).filter(|at| service.backend_counters[*at].unhealthy.get() == 1).count();
            assert_eq!(out, servers / 2, "at most half of them");
            drop(seen);
            service
        });
    }
}

#[test]
fn an_ejected_backend_is_used_when_all_others_are_down() {
    let failing: Plan =
        |server, now_ns, _| Conduct::Answers(if server == 0 && now_ns < S { 500 } else { 200 });
    check("round_robin", |subject| {
        let observed = Rc::new(RefCell::new(Observed::default()));
        let own = Rc::clone(&observed);
        let mut service = SimService::new(&SimServiceConfig::new(5, 2), subject, move |server, _| {
            let (plan, observed) = (failing, Rc::clone(&own));
            Some(Box::new(Origin { server, plan, observed, seen: Vec::new() }))
        });
        let other = service.backends[1].clone();
        service.net.kill_at(2 * S, &other);
        service.net.set_reachability_at(2 * S, &other, flick_net::sim::Reachability::Refuse);
        for (from_ns, until_ns) in [(100 * MS, 1_900 * MS), (3 * S, 5 * S)] {
            let (method, path, sent_ns, received) = ("GET", "/", 0, Vec::new());
            let observed = Rc::clone(&observed);
            let client = Client { method, path, until_ns, sent_ns, received, observed };
            service.net.connect(&service.listen, from_ns, Box::new(client));
        }
        service.run(6 * S, |_| false).expect("the simulation ends");
        let seen = observed.borrow();
        assert_eq!(ejections(&service), [1, 0]);
        assert_eq!((seen.with(500), seen.with(502)), (5, 0), "none fails for want of a backend");
        assert!(seen.of(0, 3 * S, 6 * S) > 900, "it is out, and the only one");
        drop(seen);
        service
    });
}

#[test]
fn a_backend_that_is_chosen_by_key_is_not_ejected_by_default() {
    let failing: Plan = |_, _, _| Conduct::Answers(500);
    check("by_url", |subject| {
        let (service, observed) = play(subject, (3, failing), &FOUR, 6 * S);
        let seen = observed.borrow();
        assert!(seen.with(500) > 4_000 && seen.with(500) == seen.answered.len(), "all are forwarded");
        assert_eq!(ejections(&service), [0, 0, 0]);
        drop(seen);
        service
    });
}
