//! Every reply goes to the client that asked, or to none: whole services in the simulator, with every fault, around an
//! engine written by hand. The same runs with the compiler's engines are in `crates/flick/tests/simulated.rs`.

mod common;

use std::sync::Arc;

use flick_testkit::service::fault_injection::{self, FaultPlan};
use flick_testkit::service::{Subject, seeds};

fn hand() -> Subject {
    Subject { program: common::program(), engine: Arc::new(common::Hand) }
}

fn check(count: u64, plan: &FaultPlan) {
    let subject = hand();
    let (mut answered, mut failed, mut cut) = (0, 0, 0);
    for seed in seeds(count) {
        match fault_injection::run(seed, plan, &subject) {
            Ok(outcome) => {
                answered += outcome.answered;
                failed += outcome.failed;
                cut += outcome.cut;
            }
            Err(text) => panic!("FLICK_SEED={seed}: {text}"),
        }
    }
    println!("{answered} replies, {failed} failures told in the protocol, {cut} connections cut");
    assert!(answered > 0, "the test does something");
}

#[test]
fn replies_come_in_order_on_a_quiet_network() {
    check(200, &FaultPlan { clients: 8, requests: 40, ..FaultPlan::none() });
}

#[test]
fn replies_come_in_order_however_bytes_are_cut_and_delayed() {
    check(500, &FaultPlan { clients: 6, requests: 25, ..FaultPlan::hostile() });
}

#[test]
fn no_reply_reaches_a_wrong_client_while_backends_reset_at_random() {
    check(1_000, &FaultPlan::resets());
}

#[test]
fn nothing_is_left_behind_whatever_peers_do() {
    check(1_000, &FaultPlan::everything());
}

#[test]
fn draining_at_any_time_ends() {
    check(500, &FaultPlan { drains: true, ..FaultPlan::everything() });
}

#[test]
fn large_values_and_few_buffers_end_in_answers() {
    check(200, &FaultPlan::crowded());
}

#[test]
fn large_values_to_slow_clients_fail_no_other_request() {
    let calm = FaultPlan {
        manners_per_mille: 0,
        breaks_servers: false,
        buffer_memory: 64 << 20,
        ..FaultPlan::crowded()
    };
    check(200, &calm);
    check(200, &FaultPlan { habits: false, ..calm });
}
