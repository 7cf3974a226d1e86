//! Length of a task's run under each policy, in a service in the simulator: one client sends everything at once.

mod common;

use std::sync::Arc;

use flick_runtime::task_counters::TaskKind;
use flick_runtime::{Limits, TaskScheduling};
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

/// Requests of the client: more than a task handles in one run, in fewer bytes than are received at once.
const REQUESTS: u32 = 600;

/// Runs of the client's task, and how many of them ended before it had nothing to do, are in these ranges.
fn check(policy: TaskScheduling, runs: std::ops::RangeInclusive<u64>, exceeded: u64) {
    let subject = Subject { program: common::program(), engine: Arc::new(common::Hand) };
    let mut config = SimServiceConfig::new(7, 1);
    config.limits = Limits {
        task_scheduling: policy,
        max_inflight_per_client: 4096,
        max_inflight_requests: 4096,
        ..config.limits
    };
    let mut service = SimService::new(&config, &subject, |_, _| Some(Box::new(MemcachedServer::honest())));
    let requests: Vec<Cmd> =
        (0..REQUESTS).map(|number| Cmd::request(opcode::GET, number, b"k", b"")).collect();
    let verdict = service.client(5 * MS, &requests, Habit::Plain);
    service.run(2_000 * MS, |_| verdict.borrow().is_over()).expect("nothing spins");
    assert_eq!(service.totals().replies, u64::from(REQUESTS), "{policy:?}: every request has its reply");
    let session = service.counters.tasks.of(TaskKind::Client);
    let seen = session.runs.get();
    assert!(runs.contains(&seen), "{policy:?}: {seen} runs of the client's task, {runs:?} expected");
    assert_eq!(session.slices_exceeded.get(), exceeded, "{policy:?}");
    assert_eq!(session.busy_ns.get(), 0, "the simulator has no clock to measure runs with");
}

#[test]
fn a_cooperative_task_goes_to_the_back_of_the_queue_when_its_slice_is_over() {
    check(TaskScheduling::Cooperative, 3..=8, 2);
}

#[test]
fn a_task_that_runs_to_completion_ends_when_it_has_nothing_to_do() {
    check(TaskScheduling::RunToCompletion, 1..=4, 0);
}

#[test]
fn round_robin_runs_one_message_of_a_task_at_a_time() {
    let requests = u64::from(REQUESTS);
    check(TaskScheduling::RoundRobin, requests..=requests + 8, 0);
}
