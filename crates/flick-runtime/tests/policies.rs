//! Length of a task's run under each policy, in a service in the simulator: one client sends everything at once, when
//! earlier replies have opened its window.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use flick_net::sim::{Actor, PeerIo};
use flick_runtime::task_counters::TaskKind;
use flick_runtime::{Limits, TaskScheduling};
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

/// Requests of the client: more than a task handles in one run, in fewer bytes than are received at once.
const REQUESTS: u32 = 600;

/// Requests that it sends before.
const FIRST: u32 = 100;

/// The client.
struct Client {
    input: Vec<u8>,
    replies: Rc<Cell<u32>>,
}

impl Client {
    fn send(io: &mut PeerIo<'_>, count: u32) {
        let requests = (0..count).flat_map(|number| Cmd::request(opcode::GET, number, b"k", b"").bytes());
        io.write(&requests.collect::<Vec<u8>>());
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        Self::send(io, FIRST);
        io.timer(50 * MS, 0);
    }

    fn on_data(&mut self, _io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while Cmd::take(&mut self.input).is_some() {
            self.replies.set(self.replies.get() + 1);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        Self::send(io, REQUESTS);
    }
}

/// Runs of the client's task, and how many of them ended before it had nothing to do, are in these ranges.
fn check(policy: TaskScheduling, runs: std::ops::RangeInclusive<u64>, exceeded: u64) {
    let subject = Subject { program: common::program(), engine: Arc::new(common::Hand) };
    let mut config = SimServiceConfig::new(7, 1);
    config.limits = Limits {
        task_scheduling: policy,
        max_inflight_per_client: 4096,
        max_inflight_requests: 1 << 16,
        buffer_memory: 128 << 20,
        ..config.limits
    };
    let mut service = SimService::new(&config, &subject, |_, _| Some(Box::new(MemcachedServer::honest())));
    let replies = Rc::<Cell<u32>>::default();
    let client = Client { input: Vec::new(), replies: Rc::clone(&replies) };
    service.net.connect(&service.listen, 5 * MS, Box::new(client));
    service.run(30 * MS, |_| false).expect("nothing spins");
    assert_eq!(replies.get(), FIRST, "{policy:?}");
    let before = service.counters.tasks.of(TaskKind::Client).runs.get();
    service.run(2_000 * MS, |_| replies.get() == FIRST + REQUESTS).expect("nothing spins");
    assert_eq!(replies.get(), FIRST + REQUESTS, "{policy:?}: every request has its reply");
    let session = service.counters.tasks.of(TaskKind::Client);
    let seen = session.runs.get() - before;
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
