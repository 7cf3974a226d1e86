//! Many clients and servers of the small protocol on a network that a seed makes as bad as it may be.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Reachability, SimConfig, SimRng};
use flick_runtime::Timeouts;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject, seeds};

use super::peers::{Client, Complaints, Server, Verdict};
use super::tiny::{self, Kind};

/// Faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The network.
    pub sim: SimConfig,
    /// Requests of 1000 that servers treat badly.
    pub misbehaving_per_mille: u32,
    /// Servers are killed and cut off; clients break off.
    pub resets_when_sent: bool,
    /// The worker drains at a random time.
    pub drains: bool,
    /// There are few buffers.
    pub crowded: bool,
}

const CALM_NS: u64 = 60 * MS;
const END_NS: u64 = 60_000 * MS;

fn one(seed: u64, kind: Kind, faults: &Faults) -> Result<(u32, u32), String> {
    let mut rng = SimRng::new(seed ^ 0x7149);
    // What several backends say to a session of its own connections comes in no order.
    let servers = if kind == Kind::Exclusive { 3 } else { 1 };
    let mut config = SimServiceConfig::new(seed, servers as usize);
    config.sim = faults.sim.clone();
    if faults.crowded {
        config.limits.buffer_memory = 1 << 20;
    }
    config.limits.max_connections_per_backend = rng.between(1, 5) as u32;
    config.timeouts = Timeouts {
        connect: Duration::from_millis(100),
        response: Some(Duration::from_millis(200)),
        stream_idle: Duration::from_secs(30),
        ..Timeouts::default()
    };
    let subject = Subject { program: tiny::program(kind), engine: Arc::new(tiny::Tiny) };
    let complaints = Complaints::default();
    // Where nothing says which reply is whose, one that is left out is not found out.
    let misbehaving = if kind == Kind::Exclusive { faults.misbehaving_per_mille } else { 0 };
    let (context, mut count) = (Rc::clone(&complaints), 0);
    let mut service = SimService::new(&config, &subject, move |_, _| {
        count += 1;
        Some(Box::new(Server::new(seed ^ (count << 20), misbehaving, CALM_NS, &context)))
    });
    if faults.resets_when_sent {
        for _ in 0..rng.between(1, 4) {
            let server = service.backends[rng.between(0, servers - 1) as usize].clone();
            service.net.kill_at(rng.between(0, 40 * MS), &server);
        }
        for reach in [Reachability::Refuse, Reachability::BlackHole] {
            let server = service.backends[rng.between(0, servers - 1) as usize].clone();
            service.net.set_reachability_at(rng.between(0, 30 * MS), &server, reach);
            service.net.set_reachability_at(CALM_NS, &server, Reachability::Up);
        }
    }
    let verdicts: Vec<Rc<RefCell<Verdict>>> = (0..8)
        .map(|name| {
            let verdict = Rc::new(RefCell::new(Verdict::default()));
            let requests = rng.between(1, 12);
            let client =
                Client::new(&mut rng, name, requests, (kind, faults.resets_when_sent), Rc::clone(&verdict));
            service.net.connect(&service.listen, rng.between(0, 20 * MS), Box::new(client));
            verdict
        })
        .collect();
    let is_over = |verdict: &Rc<RefCell<Verdict>>| verdict.borrow().finished || verdict.borrow().closed;
    if faults.drains {
        let at_ns = rng.between(0, 40 * MS);
        service.run(at_ns, |_| false)?;
        service.shared.drain(Duration::from_secs(5));
        service.run(END_NS, |_| false)?;
        if !service.is_finished {
            return Err(format!("drains for ever: {:?}", service.worker.audit()));
        }
    } else {
        service.run(END_NS, |_| verdicts.iter().all(is_over))?;
    }
    if let Some(complaint) = complaints.borrow().first() {
        return Err(complaint.clone());
    }
    let (mut answered, mut failed) = (0, 0);
    for (name, verdict) in verdicts.iter().enumerate() {
        let verdict = verdict.borrow();
        if let Some(wrong) = &verdict.wrong {
            return Err(format!("client {name}: {wrong}"));
        }
        if !(faults.drains || verdict.finished || verdict.closed) {
            return Err(format!("client {name} waits for ever: {verdict:?} {:?}", service.worker.audit()));
        }
        // A backend that closes behind its last reply ends a session of its own connections.
        let may_be_cut = kind != Kind::Exclusive;
        let without_fault = faults.misbehaving_per_mille == 0
            && !faults.resets_when_sent
            && !faults.drains
            && !faults.crowded;
        if without_fault && (verdict.failed > 0 || (verdict.cut && !may_be_cut)) {
            return Err(format!(
                "client {name} was failed without a fault: {verdict:?} {:?}",
                service.totals()
            ));
        }
        answered += verdict.answered;
        failed += verdict.failed;
    }
    if !faults.drains {
        let until_ns = service.net.now_ns() + 2_000 * MS;
        service.run(until_ns, |_| false)?;
        service.expect_quiet()?;
    }
    Ok((answered, failed))
}

/// Runs `count` seeds.
pub fn check(count: u64, kind: Kind, faults: &Faults) {
    let (mut answered, mut failed) = (0, 0);
    for seed in seeds(count) {
        match one(seed, kind, faults) {
            Ok((more, not)) => {
                answered += more;
                failed += not;
            }
            Err(what) => panic!("FLICK_SEED={seed} {kind:?}: {what}"),
        }
    }
    println!("{kind:?}: {answered} replies, {failed} failures told");
    assert!(answered > 0, "the test does something");
}
