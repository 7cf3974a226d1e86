//! Every reply goes to the client that asked, or to nobody: whole services in the simulator, with every fault there is.

mod common;
#[path = "common/sim.rs"]
mod sim;

use std::sync::Arc;

use flick_net::sim::{Rng, SimConfig};
use sim::{MS, Service, random_requests, small_limits};

/// Seeds of one run; `FLICK_SEEDS` asks for another number, `FLICK_SEED` for one only.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FLICK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLICK_SEEDS").unwrap_or(default),
    }
}

fn hand() -> (Arc<flick_abi::Program>, Arc<dyn flick_abi::Engine>) {
    (common::program(), Arc::new(common::Hand))
}

/// Runs clients against four servers; `faults` are the network's. Returns what failed.
fn check(
    seed: u64,
    config: SimConfig,
    kills: bool,
    clients: u64,
    requests: u64,
) -> Result<(u32, u32), String> {
    let mut rng = Rng::new(seed ^ 0xf11c);
    let lossless = config.reset_per_mille == 0 && !kills;
    let mut service =
        Service::new(seed, config, 4, small_limits(), hand(), || Box::new(sim::Server::default()));
    if kills {
        for _ in 0..rng.between(1, 4) {
            let server = service.backends[rng.between(0, 3) as usize].clone();
            service.net.kill_at(rng.between(0, 20 * MS), &server);
        }
    }
    let verdicts: Vec<_> = (0..clients)
        .map(|client| {
            let requests = random_requests(&mut rng, client, requests);
            service.client(rng.between(0, 10 * MS), requests)
        })
        .collect();
    let all = verdicts.clone();
    service
        .run(20_000 * MS, || all.iter().all(|verdict| verdict.borrow().finished || verdict.borrow().closed));
    let (mut answered, mut failed) = (0, 0);
    for (client, verdict) in verdicts.iter().enumerate() {
        let verdict = verdict.borrow();
        if let Some(wrong) = &verdict.wrong {
            return Err(format!("client {client}: {wrong}"));
        }
        if !verdict.finished && !verdict.closed {
            return Err(format!("client {client} waits for ever: {verdict:?}"));
        }
        if lossless && !(verdict.finished && verdict.failed == 0) {
            return Err(format!("client {client} was failed without a fault: {verdict:?}"));
        }
        answered += verdict.answered;
        failed += verdict.failed;
    }
    Ok((answered, failed))
}

fn check_seeds(count: u64, config: impl Fn() -> SimConfig, kills: bool, clients: u64, requests: u64) {
    let (mut answered, mut failed) = (0, 0);
    for seed in seeds(count) {
        match check(seed, config(), kills, clients, requests) {
            Ok((a, f)) => {
                answered += a;
                failed += f;
            }
            Err(text) => panic!("FLICK_SEED={seed}: {text}"),
        }
    }
    println!("{answered} replies, {failed} failures told in the protocol");
    assert!(answered > 0, "the test does something");
}

#[test]
fn replies_come_in_order_on_a_quiet_network() {
    check_seeds(200, SimConfig::default, false, 8, 40);
}

#[test]
fn replies_come_in_order_however_bytes_are_cut_and_delayed() {
    check_seeds(500, SimConfig::hostile, false, 6, 25);
}

#[test]
fn no_reply_reaches_a_wrong_client_while_backends_reset_at_random() {
    let config = || SimConfig { reset_per_mille: 150, ..SimConfig::hostile() };
    check_seeds(10_000, config, true, 4, 12);
}
