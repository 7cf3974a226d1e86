//! Backends that ail for a while, of any protocol: who suffers, how long, and what they are told.
//! Promises: only requests bound for a backend that ails may fail, and at most as many of them; each is over within the time that its
//! ailment explains, in the protocol's words where it has any; all others are served as if nothing had happened, also while it
//! lasts; when it is over, so is the damage.
//! Refuses: chance: clients come one after the other, a first run without ailments says where their requests go.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Reachability, SimRng};
use flick_runtime::Timeouts;

use super::client::{Habit, Verdict};
use super::server::Complaints;
use super::storm::Storm;
use super::traffic::{Owed, Peers, Request};
use super::{MS, Service, ServiceConfig, Subject};

/// What ails a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// Its process is killed: connections are reset, new ones refused.
    Killed,
    /// It has shut down: connections are closed, new ones refused.
    Refuses,
    /// It closes a connection when it is asked something.
    HangsUp,
    /// It is stopped: connections are taken, nothing is read. It reads on when it is over.
    Stalls,
    /// Nothing comes through to it, and nobody is told.
    Unreachable,
    /// It is slow, but not as slow as to be given up.
    Slow,
    /// It closes its side of each connection, and listens.
    HalfCloses,
    /// It was started anew without a word: connections that were open are reset when something comes on them.
    Forgets,
    /// It answers with what is not of the protocol.
    Garbage,
    /// Its replies break off in the middle.
    CutsReplies,
}

impl Ailment {
    /// All there are.
    pub const ALL: [Ailment; 10] = [
        Ailment::Killed,
        Ailment::Refuses,
        Ailment::HangsUp,
        Ailment::Stalls,
        Ailment::Unreachable,
        Ailment::Slow,
        Ailment::HalfCloses,
        Ailment::Forgets,
        Ailment::Garbage,
        Ailment::CutsReplies,
    ];

    /// Longest that a request bound for it may take.
    fn bears_ns(self) -> u64 {
        match self {
            Ailment::Stalls | Ailment::Unreachable => REPLY_NS + LATE_NS,
            Ailment::Slow => SLOW_NS + PROMPT_NS,
            _ => PROMPT_NS,
        }
    }
}

/// What ails a backend, and when.
#[derive(Clone, Debug)]
pub struct Ailing {
    /// What.
    pub ailment: Ailment,
    /// From when to when.
    pub while_ns: Range<u64>,
}

/// A service, and what ails its backends.
pub struct Case<'a> {
    /// The service.
    pub subject: &'a Subject,
    /// Who speaks to it.
    pub peers: &'a Peers,
    /// How many backends.
    pub servers: usize,
    /// How many requests each client sends, one behind the other, at most.
    pub requests: u64,
    /// Requests that must fail in a row before a backend is out; 0: never.
    pub outlier_consecutive_failures: u32,
    /// What the program passes on before it has all of it, so that nothing can be said in its place.
    pub streams: bool,
}

/// For each client, the backends that its requests go to, one entry for each.
pub type Bound = Vec<Vec<usize>>;

/// Which backends ail, and how.
pub type Ailments = [(usize, Ailment)];

/// What became of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that backends answered.
    pub answered: u64,
    /// Requests that the platform answered.
    pub failed: u64,
    /// Connections that ended without all replies.
    pub cut: u64,
    /// Requests sent again.
    pub retried: u64,
    /// Requests not sent again because too many had been.
    pub denied: u64,
    /// Longest time of a client with requests for a backend that ailed.
    pub worst_ns: u64,
    /// Fingerprint of everything that happened.
    pub trace_hash: u64,
}

impl Report {
    fn count(&mut self, verdict: &Verdict) {
        self.answered += u64::from(verdict.answered);
        self.failed += u64::from(verdict.failed);
        self.cut += u64::from(!verdict.finished);
    }
}

/// Answers of a slow backend are so late.
pub const SLOW_NS: u64 = 50 * MS;
/// Time-out of replies.
const REPLY_NS: u64 = 200 * MS;
/// How long after its time-out a request may be over at the latest.
const LATE_NS: u64 = 50 * MS;
/// How long it takes at most to fail a request whose backend is seen to be gone, or to serve one that nothing ails.
const PROMPT_NS: u64 = 20 * MS;
/// Ailments begin.
const FROM_NS: u64 = 100 * MS;
/// They are over.
const TO_NS: u64 = 400 * MS;
/// What comes so long after that is served: the pause before a dial, and a dial that began before.
const RECOVERED_NS: u64 = TO_NS + 500 * MS;
/// One client after another.
const EVERY_NS: u64 = 10 * MS;
/// The same where each is alone.
const ALONE_NS: u64 = 20 * MS;
/// How many clients there are.
const CLIENTS: u64 = 100;

/// A client: what it asked of whom, when, and what became of it.
struct Followed {
    from_ns: u64,
    owed: usize,
    sent: usize,
    /// All that it sent.
    said: Vec<u8>,
    verdict: Rc<RefCell<Verdict>>,
}

impl Case<'_> {
    /// Plays it; `bound` says where requests go without ailments.
    ///
    /// Errors: what did not hold.
    pub fn play(&self, seed: u64, ailments: &Ailments, bound: &Bound) -> Result<Report, String> {
        self.run(seed, ailments, |client, at, report| self.judge(client, (ailments, &bound[at]), report))
    }

    /// Plays it where the program may send a request to any backend: none of which `may_fail` does not say so fails, or is
    /// late.
    ///
    /// Errors: what did not hold.
    pub fn survive(
        &self,
        seed: u64,
        ailments: &Ailments,
        may_fail: impl Fn(&[u8]) -> bool,
    ) -> Result<Report, String> {
        self.run(seed, ailments, |client, _, report| {
            let verdict = client.verdict.borrow();
            report.count(&verdict);
            if let Some(wrong) = &verdict.wrong {
                return Err(wrong.clone());
            }
            let is_served = verdict.finished && verdict.failed == 0;
            match is_served && verdict.finished_ns <= client.from_ns + PROMPT_NS || may_fail(&client.said) {
                true => Ok(()),
                false => Err("it was not served".into()),
            }
        })
    }

    /// Lets the clients come while backends ail, and asks `judge` of each.
    fn run(
        &self,
        seed: u64,
        ailments: &Ailments,
        judge: impl Fn(&Followed, usize, &mut Report) -> Result<(), String>,
    ) -> Result<Report, String> {
        let (mut service, complaints) = self.service(seed, ailments);
        for (server, ailment) in ailments {
            let endpoint = &service.backends[*server];
            let reach = match ailment {
                Ailment::Killed | Ailment::Refuses => Reachability::Refuse,
                Ailment::Unreachable => Reachability::BlackHole,
                _ => continue,
            };
            if *ailment == Ailment::Killed {
                service.net.kill_at(FROM_NS, endpoint);
            }
            service.net.set_reachability_at(FROM_NS, endpoint, reach);
            service.net.set_reachability_at(TO_NS, endpoint, Reachability::Up);
        }
        let clients = self.clients(seed, EVERY_NS, &service);
        run(&mut service, &clients)?;
        if let Some(complaint) = complaints.borrow().first() {
            return Err(complaint.clone());
        }
        let totals = service.totals();
        let (trace_hash, retried, denied) =
            (service.net.trace_hash(), totals.requests_retried, totals.retries_denied);
        let mut report = Report { trace_hash, retried, denied, ..Report::default() };
        for (at, client) in clients.iter().enumerate() {
            judge(client, at, &mut report).map_err(|what| {
                let (said, at_ms) = (client.said.escape_ascii(), client.from_ns / MS);
                format!("client {at} at {at_ms} ms: {what}; {:?}; it said {said}; {totals:?}", client.verdict)
            })?;
        }
        service.expect_quiet()?;
        Ok(report)
    }

    fn service(&self, seed: u64, ailments: &Ailments) -> (Service, Complaints) {
        let mut config = ServiceConfig::new(seed, self.servers);
        config.limits.max_suspended_rules = 1024;
        config.limits.max_connections = 1024;
        config.limits.health.outlier_consecutive_failures = self.outlier_consecutive_failures;
        config.timeouts = Timeouts {
            connect: Duration::from_millis(100),
            response: Duration::from_nanos(REPLY_NS),
            reconnect_backoff_max: Duration::from_millis(200),
            ..Timeouts::default()
        };
        self.peers.protocol().configure(&mut config);
        let ailing = |(server, ailment): &(usize, Ailment)| {
            (*server, Ailing { ailment: *ailment, while_ns: FROM_NS..TO_NS })
        };
        let complaints = Complaints::default();
        let servers = self.peers.patients(ailments.iter().map(ailing).collect(), &complaints);
        (Service::new(&config, self.subject, servers), complaints)
    }

    /// One client after another.
    fn clients(&self, seed: u64, every_ns: u64, service: &Service) -> Vec<Followed> {
        let storm =
            Storm { requests: self.requests, servers: self.servers, huge_per_mille: 0, ..Storm::none() };
        let dial = |client: u64| {
            let mut rng = SimRng::new(seed << 16 | client);
            let requests: Vec<Request> = self.peers.protocol().requests(&mut rng, client, &storm, false);
            let owed = requests.iter().filter(|request| request.owed == Owed::Reply).count();
            let said = requests.iter().flat_map(|request| request.bytes.clone()).collect();
            let (sent, from_ns) = (requests.len(), (1 + client) * every_ns);
            let verdict = self.peers.dial(service, from_ns, requests, Habit::Plain);
            Followed { from_ns, owed, sent, said, verdict }
        };
        (0..CLIENTS).map(dial).collect()
    }

    /// Where requests go without ailments, each client alone.
    ///
    /// Errors: not even then is all well.
    pub fn bound(&self, seed: u64) -> Result<Bound, String> {
        let (mut service, _) = self.service(seed, &[]);
        let clients = self.clients(seed, ALONE_NS, &service);
        run(&mut service, &clients)?;
        let mut bound = vec![Vec::new(); clients.len()];
        for (at_ns, server) in self.peers.asked() {
            bound[(at_ns / ALONE_NS - 1) as usize].push(server);
        }
        for (at, client) in clients.iter().enumerate() {
            self.judge(client, (&[], &[]), &mut Report::default())
                .map_err(|what| format!("without ailments, client {at}: {what}; {:?}", client.verdict))?;
        }
        Ok(bound)
    }

    fn judge(
        &self,
        client: &Followed,
        (ailments, calls): (&Ailments, &[usize]),
        report: &mut Report,
    ) -> Result<(), String> {
        let verdict = client.verdict.borrow();
        if let Some(wrong) = &verdict.wrong {
            return Err(wrong.clone());
        }
        report.count(&verdict);
        let is_cut = !verdict.finished;
        let took_ns =
            if is_cut { verdict.closed_ns } else { verdict.finished_ns }.saturating_sub(client.from_ns);
        let ailing = |server: &&usize| ailments.iter().any(|(other, _)| other == *server);
        let suffers = calls.iter().filter(ailing).count();
        if suffers == 0 || client.from_ns + PROMPT_NS < FROM_NS || client.from_ns > RECOVERED_NS {
            return match verdict.finished && verdict.failed == 0 && took_ns <= PROMPT_NS {
                true => Ok(()),
                false => Err(format!("it had nothing to do with what ails, and took {took_ns} ns")),
            };
        }
        report.worst_ns = report.worst_ns.max(took_ns);
        let own = ailments.iter().filter(|(server, _)| calls.contains(server)).map(|(_, own)| *own);
        let is_relay = self.peers.protocol().may_wait_for_ever();
        // Nothing says how long the backend of a relay may take.
        let waits = |own: Ailment| is_relay && matches!(own, Ailment::Stalls | Ailment::Unreachable);
        let bears_ns: u64 = own.clone().map(Ailment::bears_ns).max().unwrap_or_default();
        let bears_ns = if own.clone().any(waits) {
            bears_ns.max((TO_NS + PROMPT_NS).saturating_sub(client.from_ns))
        } else {
            bears_ns * client.sent as u64
        };
        if !verdict.is_over() || took_ns > bears_ns {
            return Err(format!("over after {took_ns} ns, not {bears_ns}"));
        }
        let may_be_cut = is_relay || self.streams && own.clone().any(|own| own == Ailment::CutsReplies);
        if is_cut && !may_be_cut {
            return Err("it has not been told".into());
        }
        if own.clone().all(|own| own == Ailment::Slow) && (verdict.failed > 0 || is_cut) {
            return Err("its backends were only slow".into());
        }
        if verdict.failed as usize > suffers {
            return Err(format!("{suffers} of its requests were bound for what ails"));
        }
        if !is_cut && (verdict.answered + verdict.failed) as usize != client.owed {
            return Err(format!("{} replies are owed to it", client.owed));
        }
        Ok(())
    }
}

/// Until all clients have gone, and the books can be looked at.
fn run(service: &mut Service, clients: &[Followed]) -> Result<(), String> {
    let last_ns = clients.iter().map(|client| client.from_ns).max().unwrap_or_default();
    let all_over = |service: &Service| {
        service.net.now_ns() > last_ns && clients.iter().all(|client| client.verdict.borrow().is_over())
    };
    service.run(last_ns + 20 * REPLY_NS, all_over)?;
    service.run(service.net.now_ns() + REPLY_NS, |_| false)
}
