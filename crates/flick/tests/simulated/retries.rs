//! Retries on another backend: where the program balances without a key and the grammar allows retries, clients do not
//! notice that a backend dies; a POST is never repeated; retries stay within their budget.

use flick_testkit::service::backend_faults::{BackendFault, FaultCase, Report};
use flick_testkit::service::traffic::Peers;
use flick_testkit::service::traffic::http::{Http, HttpKind};
use flick_testkit::service::{Subject, seeds};

use super::subject;

/// Backends of each service.
const SERVERS: usize = 3;
/// Clients come at this pace.
const CLIENTS_PER_S: u64 = 100;
/// The default: a fifth of the requests of a second, and ten.
const RETRIES_PER_S_MAX: u64 = CLIENTS_PER_S / 5 + 10;

/// Whether a request may fail because it may not be repeated: it posts, or has a body that is streamed.
fn may_fail(said: &[u8]) -> bool {
    said.starts_with(b"POST") || said.starts_with(b"PUT")
}

/// Plays the same with both engines. Servers complain of a POST that they see twice.
fn play(
    subjects: &(Subject, Subject),
    (outlier_consecutive_failures, seed): (u32, u64),
    faults: &[(usize, BackendFault)],
    may_fail: fn(&[u8]) -> bool,
) -> Report {
    let peers = Peers::new(Http(HttpKind::Balancer));
    let one = |subject| {
        let case = FaultCase {
            subject,
            peers: &peers,
            servers: SERVERS,
            requests: 1,
            outlier_consecutive_failures,
            streams: true,
        };
        case.survive(seed, faults, may_fail)
            .unwrap_or_else(|what| panic!("FLICK_SEED={seed} {faults:?}: {what}"))
    };
    let report = one(&subjects.0);
    assert_eq!(report, one(&subjects.1), "FLICK_SEED={seed} {faults:?}: the engines differ");
    println!(
        "{faults:?}: {} answered, {} failed, {} sent again",
        report.answered, report.failed, report.retried
    );
    report
}

#[test]
fn no_get_fails_when_one_of_three_backends_dies() {
    let faults = [
        BackendFault::Killed,
        BackendFault::Refuses,
        BackendFault::HalfCloses,
        BackendFault::Forgets,
        BackendFault::ClosesOnRequest,
    ];
    for policy in ["round_robin", "least_loaded", "two_choices"] {
        let subjects = subject::example(&format!("http_balancer/{policy}.flick"));
        for (seed, fault) in seeds(2).flat_map(|seed| faults.map(|fault| (seed, fault))) {
            let report = play(&subjects, (3, seed), &[(1, fault)], may_fail);
            assert!(report.denied == 0, "{policy}, {fault:?}: the budget is enough: {report:?}");
        }
    }
}

#[test]
fn no_get_fails_when_two_of_three_backends_die() {
    let subjects = subject::example("http_balancer/round_robin.flick");
    for seed in seeds(2) {
        let report =
            play(&subjects, (3, seed), &[(0, BackendFault::Killed), (2, BackendFault::Refuses)], may_fail);
        assert!(report.retried > 0, "the test does something");
    }
}

#[test]
fn retries_stay_within_their_budget() {
    let subjects = subject::example("http_balancer/round_robin.flick");
    let all = [0, 1, 2].map(|server| (server, BackendFault::ClosesOnRequest));
    for seed in seeds(2) {
        let report = play(&subjects, (0, seed), &all, |_| true);
        // The fault lasts less than a second, which may overlap two seconds of the budget.
        assert!(report.retried > 0 && report.retried <= 2 * RETRIES_PER_S_MAX, "{report:?}");
        assert!(report.denied > 0, "more would have been sent: {report:?}");
    }
}

#[test]
fn keyed_requests_are_not_retried() {
    let subjects = subject::example("http_balancer/by_url.flick");
    for seed in seeds(1) {
        let report = play(&subjects, (0, seed), &[(1, BackendFault::ClosesOnRequest)], |_| true);
        assert!(report.failed > 0 && report.denied == 0, "{report:?}");
    }
}
