//! State of sessions, handlers of events and timers, told as scenarios. The engine is written by hand
//! (`event_handlers/eventful.rs`); what must happen is in `docs/internals/events.md`.

mod common;
#[path = "event_handlers/eventful.rs"]
mod eventful;

use std::sync::Arc;

use flick_testkit::scenario::stage::Simulated;
use flick_testkit::scenario::{parse, play};
use flick_testkit::service::Subject;
use flick_testkit::service::fault_injection::{self, FaultPlan};

fn subject(every_ms: Option<u64>) -> Subject {
    Subject { program: eventful::program(every_ms), engine: Arc::new(eventful::Eventful) }
}

fn check_with(every_ms: Option<u64>, text: &str) {
    // Lines are written indented here, which would make them go on with the one before.
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let scenario = parse(&lines.join("\n")).expect("a scenario");
    let subject = subject(every_ms);
    let mut stage = Simulated::new(&scenario, &subject).expect("limits that there are");
    if let Err(what) = play(&scenario, &mut stage) {
        panic!("{what}\n{text}");
    }
}

fn check(text: &str) {
    check_with(None, text);
}

#[test]
fn each_session_counts_for_itself() {
    check(
        "client a  sends get \"count\", expects get ok \"41\", sends get \"count\", expects get ok \"42\"
         client b  sends get \"count\", expects get ok \"41\"
         client a  sends get \"count\", expects get ok \"43\", closes
         backend 0 expects get \"gone43\", sends get ok
         client b  sends get \"count\", expects get ok \"42\", closes
         backend 0 expects get \"gone42\", sends get ok
         expect quiet",
    );
}

#[test]
fn a_reused_state_has_its_first_values() {
    check(
        "client a  sends get \"count\", expects get ok \"41\", sends get \"count\", expects get ok \"42\", closes
         backend 0 expects get \"gone42\", sends get ok
         wait 20 ms
         client b  sends get \"count\", expects get ok \"41\", closes
         backend 0 expects get \"gone41\", sends get ok
         expect quiet",
    );
}

#[test]
fn a_handler_answers_failed_requests_in_order() {
    check(
        "client a  sends get \"k\" opaque 1, sends get \"l\" opaque 2, sends get \"count\" opaque 3
         backend 0 expects get \"k\", resets
         client a  expects get unavailable \"143\" opaque 1, expects get unavailable \"243\" opaque 2
         client a  expects get ok \"43\" opaque 3
         expect counter rules_suspended == 2
         expect counter errors_unavailable == 0
         expect counter sends_dropped == 0",
    );
}

#[test]
fn a_handler_runs_for_a_connection_without_requests_in_flight() {
    check(
        "client a  sends get \"k\"
         backend 0 expects get \"k\", sends get ok, resets
         client a  expects get ok
         expect counter rules_suspended == 1
         expect counter sends_dropped == 1
         client a  sends get \"count\", expects get ok \"42\"
         expect counter backend_connections_opened == 2",
    );
}

#[test]
fn a_request_that_finds_its_backend_down_is_handled() {
    check(
        "client a  sends get \"k\"
         backend 0 expects get \"k\", sends get ok, refuses, resets
         client a  expects get ok
         wait 30 ms
         client a  sends get \"l\" opaque 5, expects get unavailable \"142\" opaque 5
         client a  sends get \"count\", expects get ok \"143\"",
    );
}

#[test]
fn a_reply_that_comes_late_is_handled_as_timed_out() {
    check(
        "timeout response 50 ms
         client a  sends get \"k\" opaque 1
         backend 0 expects get \"k\"
         client a  expects get unavailable \"141\" opaque 1 within 500 ms
         backend 0 expects closed
         expect counter errors_timeout == 0",
    );
}

#[test]
fn the_handler_of_a_malformed_client_answers_once() {
    let key = "k".repeat(251);
    check(&format!(
        "client a  sends get \"count\", expects get ok \"41\"
         client a  sends get \"{key}\" opaque 7, expects get invalid \"41\" opaque 7, expects closed
         client a  closes
         wait 100 ms
         expect counter rules_suspended == 1
         expect quiet",
    ));
}

#[test]
fn a_timer_asks_and_is_left_out_while_it_waits() {
    check_with(
        Some(20),
        "backend 0 expects get \"tick\" within 30 ms, sends get ok, expects get \"tock\", sends get ok
         backend 0 expects get \"tick\" within 30 ms
         wait 25 ms
         expect counter events_dropped == 1
         backend 0 expects get \"late\" within 30 ms
         expect counter ask_timeouts == 1",
    );
}

#[test]
fn a_reply_that_comes_late_to_a_timer_is_drained() {
    check_with(
        Some(200),
        "backend 0 expects get \"tick\" within 300 ms
         wait 40 ms
         backend 0 expects get \"late\"
         client a  sends get \"k\" opaque 9
         backend 0 expects get \"k\"
         client a  expects nothing for 10 ms
         expect counter late_replies == 0",
    );
}

#[test]
fn handlers_and_state_leave_nothing_behind_whatever_peers_do() {
    let subject = subject(None);
    for seed in flick_testkit::service::seeds(400) {
        if let Err(what) = fault_injection::run(seed, &FaultPlan::everything(), &subject) {
            panic!("FLICK_SEED={seed}: {what}");
        }
    }
}
