//! Runs in which some backends are faulty for a while, of any protocol: which requests fail, how long they take, and
//! what clients receive.
//! Promises: only requests bound for a faulty backend may fail, and at most as many of them; each is over within the
//! time that the fault explains, with the protocol's error response if it has one; all others are served as without
//! faults, also while the fault lasts; after it every request is served again.
//! Refuses: chance. Clients connect one after the other; a first run without faults shows where their requests go.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Reachability, SimRng};
use flick_runtime::Timeouts;

use super::client::{Habit, Verdict};
use super::fault_injection::FaultPlan;
use super::server::Complaints;
use super::traffic::{Owed, Peers, TrafficRequest};
use super::{MS, SimService, SimServiceConfig, Subject};

/// A fault of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFault {
    /// Its process is killed: connections are reset, new ones refused.
    Killed,
    /// It has shut down: connections are closed, new ones refused.
    Refuses,
    /// It closes a connection when a request arrives.
    ClosesOnRequest,
    /// It is stopped: connections are accepted, nothing is read. It continues to read when the fault is over.
    Stalls,
    /// All packets to and from it are dropped silently.
    Unreachable,
    /// It is slow, but faster than the timeout.
    Slow,
    /// It closes its side of each connection, and still accepts.
    HalfCloses,
    /// It was restarted: connections that were open are reset when something arrives on them.
    Forgets,
    /// It answers with bytes that are not of the protocol.
    Garbage,
    /// Its replies break off in the middle.
    CutsReplies,
}

impl BackendFault {
    /// All there are.
    pub const ALL: [BackendFault; 10] = [
        BackendFault::Killed,
        BackendFault::Refuses,
        BackendFault::ClosesOnRequest,
        BackendFault::Stalls,
        BackendFault::Unreachable,
        BackendFault::Slow,
        BackendFault::HalfCloses,
        BackendFault::Forgets,
        BackendFault::Garbage,
        BackendFault::CutsReplies,
    ];

    /// Longest that a request bound for it may take.
    fn bears_ns(self) -> u64 {
        match self {
            BackendFault::Stalls | BackendFault::Unreachable => REPLY_NS + LATE_NS,
            BackendFault::Slow => SLOW_NS + PROMPT_NS,
            _ => PROMPT_NS,
        }
    }
}

/// A fault and the time that it lasts.
#[derive(Clone, Debug)]
pub struct TimedFault {
    /// The fault.
    pub fault: BackendFault,
    /// Time of the fault, from its beginning to its end.
    pub while_ns: Range<u64>,
}

/// A service and the peers of a run.
pub struct FaultCase<'a> {
    /// The service.
    pub subject: &'a Subject,
    /// The peers on both sides.
    pub peers: &'a Peers,
    /// Number of backends.
    pub servers: usize,
    /// Maximum number of requests that each client sends, one behind the other.
    pub requests: u64,
    /// Consecutive failures before a backend is ejected; 0: never.
    pub outlier_consecutive_failures: u32,
    /// The program streams replies, so that no error response can replace one.
    pub streams: bool,
}

/// For each client, the backends that its requests go to, one entry for each.
pub type Bound = Vec<Vec<usize>>;

/// Faulty backends, each with its fault.
pub type BackendFaults = [(usize, BackendFault)];

/// Results of the clients.
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
    /// Longest time of a client with requests for a faulty backend.
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

/// Delay of the answers of a slow backend.
pub const SLOW_NS: u64 = 50 * MS;
/// Timeout of replies.
const REPLY_NS: u64 = 200 * MS;
/// Longest time from the timeout of a request to its end.
const LATE_NS: u64 = 50 * MS;
/// Maximum time to fail a request whose backend is known to be gone, or to serve one of a healthy backend.
const PROMPT_NS: u64 = 20 * MS;
/// Faults begin.
const FROM_NS: u64 = 100 * MS;
/// They are over.
const TO_NS: u64 = 400 * MS;
/// From here on every request is served: the reconnect backoff and a connect that began before are over.
const RECOVERED_NS: u64 = TO_NS + 500 * MS;
/// One client after another.
const EVERY_NS: u64 = 10 * MS;
/// The same where each is alone.
const ALONE_NS: u64 = 20 * MS;
/// Number of clients.
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

impl FaultCase<'_> {
    /// Plays it; `bound` says where requests go without faults.
    ///
    /// Errors: what did not hold.
    pub fn play(&self, seed: u64, faults: &BackendFaults, bound: &Bound) -> Result<Report, String> {
        self.run(seed, faults, |client, at, report| self.judge(client, (faults, &bound[at]), report))
    }

    /// Plays it where the program may send a request to any backend: only requests for which `may_fail` holds may
    /// fail or be late.
    ///
    /// Errors: what did not hold.
    pub fn survive(
        &self,
        seed: u64,
        faults: &BackendFaults,
        may_fail: impl Fn(&[u8]) -> bool,
    ) -> Result<Report, String> {
        self.run(seed, faults, |client, _, report| {
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

    /// Runs the clients while backends are faulty, and calls `judge` for each.
    fn run(
        &self,
        seed: u64,
        faults: &BackendFaults,
        judge: impl Fn(&Followed, usize, &mut Report) -> Result<(), String>,
    ) -> Result<Report, String> {
        let (mut service, complaints) = self.service(seed, faults);
        for (server, fault) in faults {
            let endpoint = &service.backends[*server];
            let reach = match fault {
                BackendFault::Killed | BackendFault::Refuses => Reachability::Refuse,
                BackendFault::Unreachable => Reachability::BlackHole,
                _ => continue,
            };
            if *fault == BackendFault::Killed {
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

    fn service(&self, seed: u64, faults: &BackendFaults) -> (SimService, Complaints) {
        let mut config = SimServiceConfig::new(seed, self.servers);
        config.limits.max_suspended_rules = 1024;
        config.limits.max_connections = 1024;
        config.limits.health.outlier_consecutive_failures = Some(self.outlier_consecutive_failures);
        config.timeouts = Timeouts {
            connect: Duration::from_millis(100),
            response: Some(Duration::from_nanos(REPLY_NS)),
            reconnect_backoff_max: Duration::from_millis(200),
            ..Timeouts::default()
        };
        self.peers.protocol().configure(&mut config);
        let timed = |(server, fault): &(usize, BackendFault)| {
            (*server, TimedFault { fault: *fault, while_ns: FROM_NS..TO_NS })
        };
        let complaints = Complaints::default();
        let servers = self.peers.faulty_servers(faults.iter().map(timed).collect(), &complaints);
        (SimService::new(&config, self.subject, servers), complaints)
    }

    /// One client after another.
    fn clients(&self, seed: u64, every_ns: u64, service: &SimService) -> Vec<Followed> {
        let plan = FaultPlan {
            requests: self.requests,
            servers: self.servers,
            huge_per_mille: 0,
            ..FaultPlan::none()
        };
        let connect = |client: u64| {
            let mut rng = SimRng::new(seed << 16 | client);
            let requests: Vec<TrafficRequest> =
                self.peers.protocol().requests(&mut rng, client, &plan, false);
            let owed = requests.iter().filter(|request| request.owed == Owed::Reply).count();
            let said = requests.iter().flat_map(|request| request.bytes.clone()).collect();
            let (sent, from_ns) = (requests.len(), (1 + client) * every_ns);
            let verdict = self.peers.connect(service, from_ns, requests, Habit::Plain);
            Followed { from_ns, owed, sent, said, verdict }
        };
        (0..CLIENTS).map(connect).collect()
    }

    /// Returns the backends that requests go to without faults, each client alone.
    ///
    /// Errors: a request failed without faults.
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
                .map_err(|what| format!("without faults, client {at}: {what}; {:?}", client.verdict))?;
        }
        Ok(bound)
    }

    fn judge(
        &self,
        client: &Followed,
        (faults, calls): (&BackendFaults, &[usize]),
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
        let is_faulty = |server: &&usize| faults.iter().any(|(other, _)| other == *server);
        let suffers = calls.iter().filter(is_faulty).count();
        if suffers == 0 || client.from_ns + PROMPT_NS < FROM_NS || client.from_ns > RECOVERED_NS {
            return match verdict.finished && verdict.failed == 0 && took_ns <= PROMPT_NS {
                true => Ok(()),
                false => Err(format!("no fault concerned it, and it took {took_ns} ns")),
            };
        }
        report.worst_ns = report.worst_ns.max(took_ns);
        let own = faults.iter().filter(|(server, _)| calls.contains(server)).map(|(_, own)| *own);
        let is_relay = self.peers.protocol().may_wait_for_ever();
        // Nothing says how long the backend of a relay may take.
        let waits =
            |own: BackendFault| is_relay && matches!(own, BackendFault::Stalls | BackendFault::Unreachable);
        let bears_ns: u64 = own.clone().map(BackendFault::bears_ns).max().unwrap_or_default();
        let bears_ns = if own.clone().any(waits) {
            bears_ns.max((TO_NS + PROMPT_NS).saturating_sub(client.from_ns))
        } else {
            bears_ns * client.sent as u64
        };
        if !verdict.is_over() || took_ns > bears_ns {
            return Err(format!("over after {took_ns} ns, not {bears_ns}"));
        }
        let may_be_cut = is_relay || self.streams && own.clone().any(|own| own == BackendFault::CutsReplies);
        if is_cut && !may_be_cut {
            return Err("it got no error response".into());
        }
        if own.clone().all(|own| own == BackendFault::Slow) && (verdict.failed > 0 || is_cut) {
            return Err("its backends were only slow".into());
        }
        if verdict.failed as usize > suffers {
            return Err(format!("{suffers} of its requests were bound for faulty backends"));
        }
        if !is_cut && (verdict.answered + verdict.failed) as usize != client.owed {
            return Err(format!("{} replies are owed to it", client.owed));
        }
        Ok(())
    }
}

/// Runs until all clients have disconnected and a reply timeout has passed.
fn run(service: &mut SimService, clients: &[Followed]) -> Result<(), String> {
    let last_ns = clients.iter().map(|client| client.from_ns).max().unwrap_or_default();
    let all_over = |service: &SimService| {
        service.net.now_ns() > last_ns && clients.iter().all(|client| client.verdict.borrow().is_over())
    };
    service.run(last_ns + 20 * REPLY_NS, all_over)?;
    service.run(service.net.now_ns() + REPLY_NS, |_| false)
}
