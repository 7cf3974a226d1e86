//! Rules that ask, in the simulator, with every fault: replies arrive in order, each at the client that asked or at
//! none, and nothing leaks. The engine is written by hand (`common/asking.rs`).

#[path = "suspended_rules/asking.rs"]
mod asking;
mod common;

use std::sync::Arc;

use asking::{Asking, Style, program};
use flick_testkit::service::fault_injection::{self, FaultPlan};
use flick_testkit::service::{Subject, seeds};

const MS: i64 = 1_000_000;

fn subject(style: Style, timeout_ns: i64) -> Subject {
    Subject { program: program(style), engine: Arc::new(Asking { style, timeout_ns }) }
}

/// Runs `count` seeds; says how many requests servers answered, how many the platform did.
fn check(count: u64, plan: &FaultPlan, style: Style, timeout_ns: i64) -> (u64, u64) {
    let subject = subject(style, timeout_ns);
    let plan =
        &FaultPlan { keeps_order: !matches!(style, Style::Forward | Style::WriteBehind), ..plan.clone() };
    let (mut answered, mut failed) = (0, 0);
    for seed in seeds(count) {
        match fault_injection::run(seed, plan, &subject) {
            Ok(outcome) => {
                answered += outcome.answered;
                failed += outcome.failed;
            }
            Err(text) => panic!("FLICK_SEED={seed} {style:?}: {text}"),
        }
    }
    println!("{style:?}: {answered} replies, {failed} failures told in the protocol");
    assert!(answered > 0, "the test does something");
    (answered, failed)
}

/// Replies too long to be kept fail, which is said in `asks.rs` and tested elsewhere.
fn calm(plan: FaultPlan) -> FaultPlan {
    FaultPlan { huge_per_mille: 0, ..plan }
}

const STYLES: [Style; 5] = [Style::FailOver, Style::Retry, Style::All, Style::Forward, Style::WriteBehind];

#[test]
fn replies_keep_their_order_on_a_quiet_network() {
    for style in STYLES {
        let (_, failed) =
            check(40, &calm(FaultPlan { clients: 8, requests: 40, ..FaultPlan::none() }), style, 0);
        assert_eq!(failed, 0, "{style:?}");
    }
}

#[test]
fn replies_keep_their_order_however_bytes_are_cut_and_delayed() {
    for style in STYLES {
        check(100, &calm(FaultPlan { clients: 6, requests: 25, ..FaultPlan::hostile() }), style, 0);
    }
}

#[test]
fn no_reply_reaches_a_wrong_client_while_backends_reset_at_random() {
    for style in STYLES {
        check(200, &FaultPlan::resets(), style, 20 * MS);
    }
}

#[test]
fn nothing_is_left_behind_whatever_peers_do() {
    for style in STYLES {
        check(200, &FaultPlan::everything(), style, 5 * MS);
    }
}

#[test]
fn draining_at_any_time_ends() {
    for style in STYLES {
        check(100, &FaultPlan { drains: true, ..FaultPlan::everything() }, style, 5 * MS);
    }
}

#[test]
fn asking_elsewhere_helps() {
    let plan = FaultPlan { breaks_servers: true, ..calm(FaultPlan::none()) };
    let (answered, failed) = check(100, &plan, Style::FailOver, 20 * MS);
    let (_, failed_once) = check(100, &plan, Style::Forward, 20 * MS);
    assert!(failed * 3 < failed_once, "{failed} of {answered} failed, {failed_once} without");
}
