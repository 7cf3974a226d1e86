//! One run under injected faults, all derived from one seed, and the checks after it.
//! Promises: every client gets its reply, an error response or the end of its connection within a bounded time; no
//! client gets a reply to another's request; when all clients have disconnected, no resource is in use; when the
//! faults are over, every backend serves again. A [`Traffic`] is the clients and servers of a run: those of the
//! memcached binary protocol here, of any protocol in `traffic.rs`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Actor, Reachability, SimConfig, SimRng};
use flick_net::{Endpoint, PeerAddr};
use flick_runtime::{BackendAddress, TaskScheduling, Timeouts};

use super::client::{Habit, Verdict, random_requests, tag};
use super::memcached::{Cmd, opcode, value_of};
use super::server::{Complaints, Manner, MemcachedServer, Order};
use super::{MS, SimService, SimServiceConfig, Subject};

/// The faults and the size of a run.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The network.
    pub sim: SimConfig,
    /// Number of backends.
    pub servers: usize,
    /// Number of clients.
    pub clients: u64,
    /// Number of requests of each client, besides the last.
    pub requests: u64,
    /// Number of keys, of 1000, whose values are too long to buffer.
    pub huge_per_mille: u32,
    /// Kills servers, refuses connections, and drops all packets of a server for a while.
    pub breaks_servers: bool,
    /// Number of connections to servers, of 1000, that are served dishonestly.
    pub manners_per_mille: u32,
    /// Clients have habits.
    pub habits: bool,
    /// Drain at a random time.
    pub drains: bool,
    /// Lists of backends change at random times, to any elements in any order.
    pub changes_lists: bool,
    /// Memory for buffers.
    pub buffer_memory: u64,
    /// The program sends each client's requests on in their order: rules that ask first may not.
    pub keeps_order: bool,
    /// Misbehaving servers also do what no client can detect: they omit replies, repeat them, or send another's.
    pub lies: bool,
}

impl FaultPlan {
    /// Clients and servers without faults on a quiet network.
    pub fn none() -> Self {
        Self {
            sim: SimConfig::default(),
            servers: 4,
            clients: 4,
            requests: 12,
            huge_per_mille: 15,
            breaks_servers: false,
            manners_per_mille: 0,
            habits: false,
            drains: false,
            changes_lists: false,
            buffer_memory: 8 << 20,
            keeps_order: true,
            lies: true,
        }
    }

    /// Bytes are cut, delayed and reordered; nothing is lost.
    pub fn hostile() -> Self {
        Self { sim: SimConfig::hostile(), ..Self::none() }
    }

    /// Connections are reset at random, servers killed, refused and cut off.
    pub fn resets() -> Self {
        let sim = SimConfig { reset_per_mille: 150, ..SimConfig::hostile() };
        Self { sim, breaks_servers: true, ..Self::none() }
    }

    /// Everything at once, but no connection is lost without a cause.
    pub fn everything() -> Self {
        Self { breaks_servers: true, manners_per_mille: 300, habits: true, ..Self::hostile() }
    }

    /// Many large values, clients that read them slowly, and few buffers.
    pub fn crowded() -> Self {
        let sim = SimConfig { window_bytes: 64 * 1024, split_bytes_max: 5_000, ..SimConfig::hostile() };
        Self {
            sim,
            clients: 12,
            requests: 24,
            huge_per_mille: 600,
            buffer_memory: 1 << 20,
            ..Self::everything()
        }
    }

    /// Returns whether the plan has no fault that could fail a request.
    pub fn is_lossless(&self) -> bool {
        self.sim.reset_per_mille == 0 && !self.breaks_servers && self.manners_per_mille == 0
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Replies that servers gave.
    pub answered: u64,
    /// Replies that the platform gave in their place.
    pub failed: u64,
    /// Connections that the service ended before all was answered.
    pub cut: u64,
    /// Fingerprint of everything that happened.
    pub trace_hash: u64,
}

/// Faults happen before this.
pub const CALM_NS: u64 = 60 * MS;
/// Longest time that draining may take.
const DRAIN: Duration = Duration::from_millis(5_000);
/// Longest a run may take from the end of the faults, in simulated time: the reply timeout for each of a client's
/// large requests in a row, and the pauses of clients that stop reading.
const REST_NS: u64 = 20_000 * MS;
/// Time for connections to come up again: the connect timeout, and the longest reconnect backoff.
const RECOVERY_NS: u64 = 1_500 * MS;

/// A client's habit, and what became of it.
pub type Followed = (Habit, Rc<RefCell<Verdict>>);

/// Makes the connection of the server of that number.
pub type Servers = Box<dyn FnMut(usize, PeerAddr) -> Option<Box<dyn Actor>>>;

/// The clients and servers of a service.
pub trait Traffic {
    /// Settings that the service needs beside those of the plan.
    fn configure(&self, config: &mut SimServiceConfig) {
        let _ = config;
    }

    /// The servers of one run.
    fn servers(&self, seed: u64, plan: &FaultPlan, complaints: &Complaints) -> Servers;

    /// Connects client number `client`.
    fn client(&self, rng: &mut SimRng, plan: &FaultPlan, client: u64, service: &SimService) -> Followed;

    /// Connects one more client after the faults, which every backend must serve.
    fn last_client(&self, rng: &mut SimRng, plan: &FaultPlan, service: &SimService) -> Rc<RefCell<Verdict>>;
}

/// Runs one seed with peers of the memcached binary protocol.
///
/// Errors: what did not hold. The seed gives the same run again.
pub fn run(seed: u64, plan: &FaultPlan, subject: &Subject) -> Result<Outcome, String> {
    run_with(seed, plan, subject, &Memcached)
}

/// Runs one seed with any peers.
///
/// Errors: what did not hold. The seed gives the same run again.
pub fn run_with(
    seed: u64,
    plan: &FaultPlan,
    subject: &Subject,
    traffic: &dyn Traffic,
) -> Result<Outcome, String> {
    let mut rng = SimRng::new(seed ^ 0xf11c);
    let mut config = SimServiceConfig::new(seed, plan.servers);
    config.sim = plan.sim.clone();
    config.limits.buffer_memory = plan.buffer_memory;
    // Whatever the policy, the same must hold.
    config.limits.task_scheduling = match seed % 4 {
        0 => TaskScheduling::RunToCompletion,
        1 => TaskScheduling::RoundRobin,
        _ => TaskScheduling::Cooperative,
    };
    config.timeouts = Timeouts {
        connect: Duration::from_millis(100),
        response: Some(Duration::from_millis(200)),
        ..Timeouts::default()
    };
    if plan.changes_lists {
        config.limits.max_backends = plan.servers as u32;
    }
    traffic.configure(&mut config);
    let complaints = Complaints::default();
    let mut service = SimService::new(&config, subject, traffic.servers(seed, plan, &complaints));
    if plan.breaks_servers && plan.servers > 0 {
        break_servers(&mut rng, &service);
    }
    let drain_ns = if plan.drains { Some(rng.between(0, 40 * MS)) } else { None };
    let verdicts: Vec<Followed> =
        (0..plan.clients).map(|client| traffic.client(&mut rng, plan, client, &service)).collect();
    if plan.changes_lists {
        change_lists(&mut rng, &mut service)?;
    }
    let all_over = |_: &SimService| verdicts.iter().all(|(_, verdict)| verdict.borrow().is_over());
    match drain_ns {
        Some(drain_ns) => {
            service.run(drain_ns, |_| false)?;
            service.shared.drain(DRAIN);
            service.run(CALM_NS + REST_NS, |_| false)?;
            if !service.is_finished {
                return Err(format!("drains for ever: {:?}", service.worker.audit()));
            }
            service.wind_up(CALM_NS + REST_NS, all_over)?;
        }
        None => service.run(CALM_NS + REST_NS, all_over)?,
    }
    if let Some(complaint) = complaints.borrow().first() {
        return Err(complaint.clone());
    }
    let mut outcome =
        tally(plan, drain_ns, &verdicts).map_err(|what| format!("{what}; {:?}", service.totals()))?;
    if drain_ns.is_none() {
        settle(&mut service)?;
        if plan.sim.reset_per_mille == 0 {
            recover(&mut service, plan, traffic)?;
            if let Some(complaint) = complaints.borrow().first() {
                return Err(complaint.clone());
            }
        }
    }
    outcome.trace_hash = service.net.trace_hash();
    Ok(outcome)
}

/// Gives the program's channel of backends other lists, and all of them in the end.
fn change_lists(rng: &mut SimRng, service: &mut SimService) -> Result<(), String> {
    let all: Vec<BackendAddress> = service.backends.iter().cloned().map(BackendAddress::from).collect();
    let mut at_ns = 0;
    for _ in 0..rng.between(2, 12) {
        at_ns = rng.between(at_ns, CALM_NS);
        service.run(at_ns, |_| false)?;
        let mut list = all.clone();
        for at in (1..list.len()).rev() {
            list.swap(at, rng.between(0, at as u64) as usize);
        }
        list.truncate(rng.between(1, all.len() as u64) as usize);
        list.iter_mut().for_each(|member| member.weight = rng.between(1, 3) as u32);
        service.setup.backend_sets.publish(1, &list)?;
    }
    service.run(CALM_NS, |_| false)?;
    service.setup.backend_sets.publish(1, &all).map(|_| ())
}

fn break_servers(rng: &mut SimRng, service: &SimService) {
    let count = service.backends.len() as u64;
    let any = |rng: &mut SimRng| service.backends[rng.between(0, count - 1) as usize].clone();
    for _ in 0..rng.between(1, 4) {
        let server = any(rng);
        service.net.kill_at(rng.between(0, 20 * MS), &server);
    }
    for reach in [Reachability::Refuse, Reachability::BlackHole] {
        if rng.chance(500) {
            let server = any(rng);
            set_reachability_for_a_while(rng, service, &server, reach);
        }
    }
}

fn set_reachability_for_a_while(
    rng: &mut SimRng,
    service: &SimService,
    server: &Endpoint,
    reach: Reachability,
) {
    let from_ns = rng.between(0, 20 * MS);
    service.net.set_reachability_at(from_ns, server, reach);
    service.net.set_reachability_at(rng.between(from_ns, CALM_NS), server, Reachability::Up);
    // Another fault may have made it unreachable meanwhile: in the end all are up.
    service.net.set_reachability_at(CALM_NS, server, Reachability::Up);
}

/// Checks and counts the results of the clients.
fn tally(plan: &FaultPlan, drain_ns: Option<u64>, verdicts: &[Followed]) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (client, (habit, verdict)) in verdicts.iter().enumerate() {
        let verdict = verdict.borrow();
        if let Some(wrong) = &verdict.wrong {
            return Err(format!("client {client}: {wrong}"));
        }
        if !verdict.is_over() {
            return Err(format!("client {client} ({habit:?}) waits for ever: {verdict:?}"));
        }
        let is_served = verdict.finished && verdict.failed == 0;
        if plan.is_lossless() && drain_ns.is_none() && habit.is_owed_everything() && !is_served {
            return Err(format!("client {client} ({habit:?}) was failed without a fault: {verdict:?}"));
        }
        outcome.answered += u64::from(verdict.answered);
        outcome.failed += u64::from(verdict.failed);
        outcome.cut += u64::from(verdict.closed && !verdict.finished);
    }
    Ok(outcome)
}

/// Checks that no resource is in use a while after all clients have disconnected.
fn settle(service: &mut SimService) -> Result<(), String> {
    let until_ns = service.net.now_ns().max(CALM_NS) + RECOVERY_NS;
    service.run(until_ns, |_| false)?;
    service.expect_quiet()
}

/// The faults are over: one more client must be served by every backend without a failure.
fn recover(service: &mut SimService, plan: &FaultPlan, traffic: &dyn Traffic) -> Result<(), String> {
    let from_ns = service.net.now_ns();
    let verdict = traffic.last_client(&mut SimRng::new(from_ns), plan, service);
    service.run(from_ns + RECOVERY_NS, |_| verdict.borrow().is_over())?;
    let verdict = verdict.borrow();
    if !verdict.finished || verdict.failed > 0 || verdict.wrong.is_some() {
        return Err(format!("not whole again {RECOVERY_NS} ns after the last fault: {verdict:?}"));
    }
    Ok(())
}

/// Peers of the memcached binary protocol.
struct Memcached;

impl Traffic for Memcached {
    fn servers(&self, seed: u64, plan: &FaultPlan, complaints: &Complaints) -> Servers {
        let mut rng = SimRng::new(seed ^ 0x5e7e);
        let per_mille = plan.manners_per_mille;
        let complaints = Rc::clone(complaints);
        // After a fault, what was sent before may arrive behind what was sent later, on another connection.
        let orders: Option<Vec<Order>> = (plan.is_lossless() && plan.keeps_order)
            .then(|| (0..plan.servers).map(|_| Order::default()).collect());
        Box::new(move |index, _| {
            let manner = if rng.chance(per_mille) { Manner::random(&mut rng) } else { Manner::Honest };
            let server = MemcachedServer::new(manner, CALM_NS, Rc::clone(&complaints));
            Some(Box::new(match &orders {
                Some(orders) => server.minding(Rc::clone(&orders[index])),
                None => server,
            }))
        })
    }

    fn client(&self, rng: &mut SimRng, plan: &FaultPlan, client: u64, service: &SimService) -> Followed {
        let requests = random_requests(rng, client, plan.requests, plan.huge_per_mille);
        let habit = if plan.habits { Habit::random(rng) } else { Habit::Plain };
        let verdict = service.client(rng.between(0, 10 * MS), &requests, habit.clone());
        (habit, verdict)
    }

    fn last_client(&self, rng: &mut SimRng, plan: &FaultPlan, service: &SimService) -> Rc<RefCell<Verdict>> {
        let gets = (0..8 * plan.servers as u32).map(|at| {
            let key = format!("after-{at}");
            Cmd {
                cas: tag(rng, plan.clients, u64::from(at)),
                ..Cmd::request(opcode::GET, at, key.as_bytes(), b"")
            }
        });
        let mut requests: Vec<Cmd> = gets.collect();
        let huge = format!("after-huge#{}", 40_000);
        let set = Cmd::request(opcode::SET, 77, huge.as_bytes(), &value_of(huge.as_bytes()));
        requests.push(Cmd { cas: tag(rng, plan.clients, requests.len() as u64), ..set });
        service.client(service.net.now_ns(), &requests, Habit::Plain)
    }
}
