//! Listing 1 as the compiler makes it, as a whole service in the simulator: with machine code and with the
//! interpreter, through every fault there is. The runs and what must hold after each are in
//! `flick_testkit::service::fault_injection`; the scenarios of `tests/scenarios` are played here too.

#[path = "simulated/allocations.rs"]
mod allocations;
#[path = "simulated/authentication.rs"]
mod authentication;
#[path = "simulated/bad_backends.rs"]
mod bad_backends;
#[path = "simulated/drill.rs"]
mod drill;
#[path = "simulated/ejection.rs"]
mod ejection;
#[path = "simulated/examples.rs"]
mod examples;
#[path = "simulated/forwarding.rs"]
mod forwarding;
#[path = "simulated/hadoop.rs"]
mod hadoop;
#[path = "simulated/health.rs"]
mod health;
#[path = "common/hadoop.rs"]
mod pairs;
#[path = "simulated/request_runs.rs"]
mod request_runs;
#[path = "simulated/retries.rs"]
mod retries;
#[path = "simulated/scenarios.rs"]
mod scenarios;
#[path = "simulated/services.rs"]
mod services;
#[path = "simulated/smuggling.rs"]
mod smuggling;
#[path = "simulated/subject.rs"]
mod subject;

use flick_testkit::service::fault_injection::{self, FaultPlan, Outcome};
use flick_testkit::service::{Subject, seeds};

/// Runs the seeds; every run must hold what it promises. The sum of their outcomes.
fn check(count: u64, plan: &FaultPlan, subject: &Subject) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds(count) {
        match fault_injection::run(seed, plan, subject) {
            Ok(outcome) => {
                sum.answered += outcome.answered;
                sum.failed += outcome.failed;
                sum.cut += outcome.cut;
            }
            Err(text) => panic!("FLICK_SEED={seed}: {text}"),
        }
    }
    println!("{} replies, {} error responses, {} connections cut", sum.answered, sum.failed, sum.cut);
    assert!(sum.answered > 0, "the test does something");
    sum
}

#[test]
fn replies_reach_their_clients_while_backends_reset() {
    check(10_000, &FaultPlan::resets(), &subject::native());
}

#[test]
fn misbehaving_peers_leave_nothing_allocated() {
    check(4_000, &FaultPlan::everything(), &subject::native());
}

#[test]
fn every_request_is_answered_with_split_and_delayed_bytes() {
    let outcome = check(1_000, &FaultPlan { habits: false, ..FaultPlan::hostile() }, &subject::native());
    assert_eq!((outcome.failed, outcome.cut), (0, 0));
}

#[test]
fn draining_at_any_time_ends_and_loses_no_request() {
    check(1_000, &FaultPlan { drains: true, ..FaultPlan::everything() }, &subject::native());
}

#[test]
fn large_values_with_few_buffers_are_answered() {
    check(200, &FaultPlan::crowded(), &subject::native());
}

#[test]
fn both_engines_give_the_same_run_for_every_seed() {
    let (native, interpreted) = (subject::native(), subject::interpreted());
    for plan in [FaultPlan::resets(), FaultPlan::everything()] {
        for seed in seeds(500) {
            let run = |subject| fault_injection::run(seed, &plan, subject);
            assert_eq!(run(&native), run(&interpreted), "FLICK_SEED={seed}");
        }
    }
}
