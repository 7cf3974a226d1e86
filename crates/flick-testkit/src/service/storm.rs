//! One run with faults, all from one seed, and what must hold after it.
//! Promises: whatever happens on the way, every client is answered, told, or closed within a bounded time; nobody gets
//! what another asked for; when all clients have gone, nothing is left behind; when the faults are over, the service
//! is whole again.
//! Who asks and who answers is a [`Traffic`]: the memcached binary protocol's peers here, any protocol's in `traffic.rs`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Actor, Reachability, SimConfig, SimRng};
use flick_net::{Endpoint, PeerAddr};
use flick_runtime::{BackendAddress, TaskScheduling, Timeouts};

use super::client::{Habit, Verdict, random_requests, tag};
use super::memcached::{Cmd, opcode, value_of};
use super::server::{Complaints, Manner, Order, Server};
use super::{MS, Service, ServiceConfig, Subject};

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Storm {
    /// The network.
    pub sim: SimConfig,
    /// How many backends.
    pub servers: usize,
    /// How many clients.
    pub clients: u64,
    /// How many requests each sends, besides the last.
    pub requests: u64,
    /// How many, of 1000 keys, have values too long to gather.
    pub huge_per_mille: u32,
    /// Kill servers, refuse dials, let all bytes to and from one vanish for a while.
    pub breaks_servers: bool,
    /// How many, of 1000 connections to servers, are served dishonestly.
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
    /// Dishonest servers also tell what nobody can find out: they leave replies out, give them twice, or another's.
    pub lies: bool,
}

impl Storm {
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

    /// Whether nothing in it gives a reason to fail anybody.
    pub fn is_lossless(&self) -> bool {
        self.sim.reset_per_mille == 0 && !self.breaks_servers && self.manners_per_mille == 0
    }
}

/// What a run came to.
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
/// How long draining may take.
const DRAIN: Duration = Duration::from_millis(5_000);
/// Longest a run may take from the end of the faults, in simulated time: the reply time-out for each of a client's
/// large requests in a row, and the pauses of clients that stop reading.
const REST_NS: u64 = 20_000 * MS;
/// Time for connections to come up again: the connect time-out, and the longest pause before a dial.
const RECOVERY_NS: u64 = 1_500 * MS;

/// A client's habit, and what became of it.
pub type Followed = (Habit, Rc<RefCell<Verdict>>);

/// Makes the connection of the server of that number.
pub type Servers = Box<dyn FnMut(usize, PeerAddr) -> Option<Box<dyn Actor>>>;

/// Who asks a service, and who answers it.
pub trait Traffic {
    /// What the service needs beside what the storm says.
    fn configure(&self, config: &mut ServiceConfig) {
        let _ = config;
    }

    /// The servers of one run.
    fn servers(&self, seed: u64, storm: &Storm, complaints: &Complaints) -> Servers;

    /// Lets client number `client` dial.
    fn client(&self, rng: &mut SimRng, storm: &Storm, client: u64, service: &Service) -> Followed;

    /// Lets one more client dial, after the faults, whom every backend must serve.
    fn last_client(&self, rng: &mut SimRng, storm: &Storm, service: &Service) -> Rc<RefCell<Verdict>>;
}

/// Runs one seed with peers of the memcached binary protocol.
///
/// Errors: what did not hold. The seed gives the same run again.
pub fn run(seed: u64, storm: &Storm, subject: &Subject) -> Result<Outcome, String> {
    run_with(seed, storm, subject, &Memcached)
}

/// Runs one seed with any peers.
///
/// Errors: what did not hold. The seed gives the same run again.
pub fn run_with(
    seed: u64,
    storm: &Storm,
    subject: &Subject,
    traffic: &dyn Traffic,
) -> Result<Outcome, String> {
    let mut rng = SimRng::new(seed ^ 0xf11c);
    let mut config = ServiceConfig::new(seed, storm.servers);
    config.sim = storm.sim.clone();
    config.limits.buffer_memory = storm.buffer_memory;
    // Whatever the policy, the same must hold.
    config.limits.task_scheduling = match seed % 4 {
        0 => TaskScheduling::RunToCompletion,
        1 => TaskScheduling::RoundRobin,
        _ => TaskScheduling::Cooperative,
    };
    config.timeouts = Timeouts {
        connect: Duration::from_millis(100),
        response: Duration::from_millis(200),
        ..Timeouts::default()
    };
    if storm.changes_lists {
        config.limits.max_backends = storm.servers as u32;
    }
    traffic.configure(&mut config);
    let complaints = Complaints::default();
    let mut service = Service::new(&config, subject, traffic.servers(seed, storm, &complaints));
    if storm.breaks_servers && storm.servers > 0 {
        break_servers(&mut rng, &service);
    }
    let drain_ns = if storm.drains { Some(rng.between(0, 40 * MS)) } else { None };
    let verdicts: Vec<Followed> =
        (0..storm.clients).map(|client| traffic.client(&mut rng, storm, client, &service)).collect();
    if storm.changes_lists {
        change_lists(&mut rng, &mut service)?;
    }
    let all_over = |_: &Service| verdicts.iter().all(|(_, verdict)| verdict.borrow().is_over());
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
        tally(storm, drain_ns, &verdicts).map_err(|what| format!("{what}; {:?}", service.totals()))?;
    if drain_ns.is_none() {
        settle(&mut service)?;
        if storm.sim.reset_per_mille == 0 {
            recover(&mut service, storm, traffic)?;
            if let Some(complaint) = complaints.borrow().first() {
                return Err(complaint.clone());
            }
        }
    }
    outcome.trace_hash = service.net.trace_hash();
    Ok(outcome)
}

/// Gives the program's channel of backends other lists, and all of them in the end.
fn change_lists(rng: &mut SimRng, service: &mut Service) -> Result<(), String> {
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

fn break_servers(rng: &mut SimRng, service: &Service) {
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

fn set_reachability_for_a_while(rng: &mut SimRng, service: &Service, server: &Endpoint, reach: Reachability) {
    let from_ns = rng.between(0, 20 * MS);
    service.net.set_reachability_at(from_ns, server, reach);
    service.net.set_reachability_at(rng.between(from_ns, CALM_NS), server, Reachability::Up);
    // Somebody else may have made it unreachable meanwhile: in the end all are up.
    service.net.set_reachability_at(CALM_NS, server, Reachability::Up);
}

/// What became of the clients.
fn tally(storm: &Storm, drain_ns: Option<u64>, verdicts: &[Followed]) -> Result<Outcome, String> {
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
        if storm.is_lossless() && drain_ns.is_none() && habit.is_owed_everything() && !is_served {
            return Err(format!("client {client} ({habit:?}) was failed without a fault: {verdict:?}"));
        }
        outcome.answered += u64::from(verdict.answered);
        outcome.failed += u64::from(verdict.failed);
        outcome.cut += u64::from(verdict.closed && !verdict.finished);
    }
    Ok(outcome)
}

/// All clients have gone: the books must balance after a while.
fn settle(service: &mut Service) -> Result<(), String> {
    let until_ns = service.net.now_ns().max(CALM_NS) + RECOVERY_NS;
    service.run(until_ns, |_| false)?;
    service.expect_quiet()
}

/// The faults are over: one more client must be served by every backend without a failure.
fn recover(service: &mut Service, storm: &Storm, traffic: &dyn Traffic) -> Result<(), String> {
    let from_ns = service.net.now_ns();
    let verdict = traffic.last_client(&mut SimRng::new(from_ns), storm, service);
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
    fn servers(&self, seed: u64, storm: &Storm, complaints: &Complaints) -> Servers {
        let mut rng = SimRng::new(seed ^ 0x5e7e);
        let per_mille = storm.manners_per_mille;
        let complaints = Rc::clone(complaints);
        // After a fault, what was sent before may arrive behind what was sent later, on another connection.
        let orders: Option<Vec<Order>> = (storm.is_lossless() && storm.keeps_order)
            .then(|| (0..storm.servers).map(|_| Order::default()).collect());
        Box::new(move |index, _| {
            let manner = if rng.chance(per_mille) { Manner::random(&mut rng) } else { Manner::Honest };
            let server = Server::new(manner, CALM_NS, Rc::clone(&complaints));
            Some(Box::new(match &orders {
                Some(orders) => server.minding(Rc::clone(&orders[index])),
                None => server,
            }))
        })
    }

    fn client(&self, rng: &mut SimRng, storm: &Storm, client: u64, service: &Service) -> Followed {
        let requests = random_requests(rng, client, storm.requests, storm.huge_per_mille);
        let habit = if storm.habits { Habit::random(rng) } else { Habit::Plain };
        let verdict = service.client(rng.between(0, 10 * MS), &requests, habit.clone());
        (habit, verdict)
    }

    fn last_client(&self, rng: &mut SimRng, storm: &Storm, service: &Service) -> Rc<RefCell<Verdict>> {
        let gets = (0..8 * storm.servers as u32).map(|at| {
            let key = format!("after-{at}");
            Cmd {
                cas: tag(rng, storm.clients, u64::from(at)),
                ..Cmd::request(opcode::GET, at, key.as_bytes(), b"")
            }
        });
        let mut requests: Vec<Cmd> = gets.collect();
        let huge = format!("after-huge#{}", 40_000);
        let set = Cmd::request(opcode::SET, 77, huge.as_bytes(), &value_of(huge.as_bytes()));
        requests.push(Cmd { cas: tag(rng, storm.clients, requests.len() as u64), ..set });
        service.client(service.net.now_ns(), &requests, Habit::Plain)
    }
}
