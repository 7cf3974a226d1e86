//! Peers that stop reading, each case in simulated time: who waits, for how long, and that it ends.

mod common;

use std::sync::Arc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo};
use flick_runtime::OnMaxConnections;
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode, value_of};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

fn hand() -> Subject {
    Subject { program: common::program(), engine: Arc::new(common::Hand) }
}

fn get(opaque: u32, key: &str) -> Cmd {
    Cmd { cas: u64::from(opaque) + 1, ..Cmd::request(opcode::GET, opaque, key.as_bytes(), b"") }
}

fn set(opaque: u32, key: &str) -> Cmd {
    let value = value_of(key.as_bytes());
    Cmd { cas: u64::from(opaque) + 1, ..Cmd::request(opcode::SET, opaque, key.as_bytes(), &value) }
}

/// A server whose connections first read after a while.
struct ReadsLate {
    after_ns: u64,
    server: MemcachedServer,
}

impl Actor for ReadsLate {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.pause_reading(true);
        io.timer(self.after_ns, 1);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.server.on_data(io, data);
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        self.server.on_timer(io, id);
    }
}

/// A client that asks, closes its side and never reads.
struct NeverReads {
    requests: Vec<Cmd>,
    half_closes: bool,
}

impl Actor for NeverReads {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        io.pause_reading(true);
        for request in &self.requests {
            io.write(&request.bytes());
        }
        if self.half_closes {
            io.shutdown_write();
        }
    }

    fn on_data(&mut self, _io: &mut PeerIo<'_>, _data: &[u8]) {}
}

fn honest(config: &SimServiceConfig) -> SimService {
    SimService::new(config, &hand(), |_, _| Some(Box::new(MemcachedServer::honest())))
}

/// One client sends a value of `value_bytes` to a backend that reads after `after_ns`.
/// Says whether it was answered by the backend, by the platform, or not at all.
fn upload(value_bytes: usize, after_ns: u64) -> (u32, u32) {
    let config = SimServiceConfig::new(1, 1);
    let mut service = SimService::new(&config, &hand(), move |_, _| {
        Some(Box::new(ReadsLate { after_ns, server: MemcachedServer::honest() }))
    });
    let verdict = service.client(0, &[set(1, &format!("big#{value_bytes}"))], Habit::Plain);
    service.run(10_000 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
    let verdict = verdict.borrow();
    assert_eq!(verdict.wrong, None);
    (verdict.answered, verdict.failed)
}

#[test]
fn an_upload_goes_on_when_its_backend_reads_again() {
    for value_bytes in [100_000, 1_000_000, 1_200_000, 3_000_000] {
        assert_eq!(upload(value_bytes, 50 * MS), (1, 0), "{value_bytes} bytes");
    }
}

#[test]
fn an_upload_to_a_backend_that_never_reads_is_answered() {
    for value_bytes in [100_000, 1_000_000, 1_200_000, 3_000_000] {
        assert_eq!(upload(value_bytes, 60_000 * MS), (0, 1), "{value_bytes} bytes");
    }
}

#[test]
fn a_client_that_reads_again_in_time_keeps_its_connection() {
    let config = SimServiceConfig::new(1, 1);
    let mut service = honest(&config);
    let gets: Vec<Cmd> = (0..60).map(|at| get(at, &format!("k{at}#16000"))).collect();
    let habit = Habit::SlowReader { every_bytes: 100_000, pause_ns: 60 * MS };
    let verdict = service.client(0, &gets, habit);
    service.run(20_000 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
    let verdict = verdict.borrow();
    assert!(verdict.finished, "{verdict:?}; {:?}", service.totals());
}

#[test]
fn clients_that_never_read_take_no_capacity_from_others() {
    for half_closes in [false, true] {
        let mut config = SimServiceConfig::new(1, 1);
        config.limits.max_connections = 8;
        config.timeouts.idle = Some(Duration::from_millis(500));
        let mut service = honest(&config);
        for client in 0..200_u32 {
            let requests: Vec<Cmd> = (0..8).map(|at| get(at, &format!("k{client}-{at}#16000"))).collect();
            let client = NeverReads { requests, half_closes };
            service.net.connect(&service.listen, 0, Box::new(client));
        }
        let verdict = service.client(100_000 * MS, &[get(1, "k")], Habit::Plain);
        service.run(200_000 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
        let verdict = verdict.borrow();
        assert!(verdict.finished, "half_closes {half_closes}: {verdict:?}; {:?}", service.totals());
    }
}

/// Each of them keeps a large buffer by the last two kilobytes of a reply: all buffers, but few bytes.
#[test]
fn ends_of_replies_that_were_not_read_kept_all_buffers() {
    let mut config = SimServiceConfig::new(1, 1);
    (config.limits.max_connections, config.limits.buffer_memory) = (200, 2 << 20);
    config.sim.window_bytes = 14_000;
    let mut service = honest(&config);
    for client in 0..150 {
        let requests = vec![get(client, &format!("k{client}#16000"))];
        service.net.connect(&service.listen, 0, Box::new(NeverReads { requests, half_closes: false }));
    }
    let gets: Vec<Cmd> = (0..20).map(|at| get(at, &format!("h{at}#16000"))).collect();
    let begin_ns = 100 * MS;
    let verdict = service.client(begin_ns, &gets, Habit::Plain);
    service.run(begin_ns + 500 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
    let (verdict, totals) = (verdict.borrow(), service.totals());
    assert!(verdict.finished && verdict.failed == 0, "{verdict:?}; {totals:?}");
    assert!(totals.clients_evicted > 0, "{totals:?}");
}

#[test]
fn silent_clients_kept_others_out_where_descriptors_are_few() {
    for action in [OnMaxConnections::Queue, OnMaxConnections::Reject] {
        let mut config = SimServiceConfig::new(1, 1);
        (config.limits.max_connections, config.limits.few_descriptors) = (8, true);
        config.limits.on_max_connections = action;
        config.timeouts.idle = Some(Duration::ZERO);
        let mut service = honest(&config);
        for _ in 0..20 {
            let silent = NeverReads { requests: Vec::new(), half_closes: false };
            service.net.connect(&service.listen, 0, Box::new(silent));
        }
        let verdict = service.client(300 * MS, &[get(1, "k")], Habit::Plain);
        service.run(10_000 * MS, |_| verdict.borrow().is_over()).expect("no spinning");
        let verdict = verdict.borrow();
        assert!(verdict.finished && verdict.failed == 0, "{action:?}: {verdict:?}; {:?}", service.totals());
        assert!(service.totals().clients_evicted > 0, "{action:?}: {:?}", service.totals());
    }
}

#[test]
fn a_full_inflight_table_blocks_clients_without_busy_looping() {
    let mut config = SimServiceConfig::new(1, 2);
    config.limits.max_inflight_requests = 1;
    config.limits.max_connections = 64;
    let mut service = SimService::new(&config, &hand(), |_, _| {
        Some(Box::new(ReadsLate { after_ns: 1_000 * MS, server: MemcachedServer::honest() }))
    });
    let verdicts: Vec<_> = (0..12_u32)
        .map(|client| {
            let mut requests: Vec<Cmd> = (0..200).map(|at| get(at, &format!("k{client}-{at}"))).collect();
            if client > 6 {
                requests = vec![set(7, &format!("big{client}#50000"))];
            }
            service.client(u64::from(client) * MS, &requests, Habit::Plain)
        })
        .collect();
    let all_over = |_: &SimService| verdicts.iter().all(|verdict| verdict.borrow().is_over());
    service.run(20_000 * MS, all_over).expect("no spinning");
    for verdict in &verdicts {
        let verdict = verdict.borrow();
        assert!(verdict.finished && verdict.failed == 0, "{verdict:?}; {:?}", service.totals());
    }
    service.run(30_000 * MS, |_| false).expect("no spinning");
    service.expect_quiet().expect("the books balance");
}

#[test]
fn a_queued_client_past_its_queue_timeout_gets_an_overload_response_and_keeps_its_connection() {
    let mut config = SimServiceConfig::new(1, 2);
    config.limits.max_inflight_requests = 8;
    config.timeouts.queue = Some(Duration::from_millis(200));
    // A message needs few entries of the in-flight table.
    let mut program = (*common::program()).clone();
    program.bounds.sends_per_message_max = 1;
    let program = Arc::new(program);
    let mut service = SimService::new(&config, &Subject { program, ..hand() }, |_, _| {
        Some(Box::new(ReadsLate { after_ns: 1_000 * MS, server: MemcachedServer::honest() }))
    });
    let verdicts: Vec<_> = (0..40_u32)
        .map(|client| {
            let requests: Vec<Cmd> = (0..60).map(|at| get(at, &format!("k{client}-{at}"))).collect();
            service.client(u64::from(client) * MS, &requests, Habit::Plain)
        })
        .collect();
    let all_over = |_: &SimService| verdicts.iter().all(|verdict| verdict.borrow().is_over());
    service.run(20_000 * MS, all_over).expect("no spinning");
    let (mut answered, mut early) = (0, 0);
    for verdict in &verdicts {
        let verdict = verdict.borrow();
        assert!(verdict.finished && verdict.answered + verdict.failed == 60, "{verdict:?}");
        answered += verdict.answered;
        early += u32::from(verdict.finished_ns < 300 * MS);
    }
    let totals = service.totals();
    // As many clients as have room are served by a backend, late as it is; who found none did not wait for that.
    assert!(answered >= 300 && early >= 10, "{answered} answered, {early} early; {totals:?}");
    assert_eq!(totals.requests_shed, 2400 - u64::from(answered), "{totals:?}");
    service.run(30_000 * MS, |_| false).expect("no spinning");
    service.expect_quiet().expect("the books balance");
}

/// Most large buffers, beyond the quarter of all that may be in use before memory counts as scarce, that one client who
/// does not read may cost: its backlog, what pieces leave unused, and what the network has delivered meanwhile.
const SLOW_CLIENT_BUFS_MAX: u32 = 64;

#[test]
fn a_client_that_does_not_read_makes_no_memory_grow() {
    // Values short enough to be buffered whole, and streamed ones.
    for value_bytes in [15_000, 40_000] {
        let mut config = SimServiceConfig::new(1, 2);
        config.limits.buffer_memory = 4 << 20;
        // Three quarters of the memory are large buffers of 16 KiB.
        let all = 4 * 64 * 3 / 4;
        let mut service = honest(&config);
        let requests: Vec<Cmd> = (0..250).map(|at| get(at, &format!("k{at}#{value_bytes}"))).collect();
        service.net.connect(&service.listen, 0, Box::new(NeverReads { requests, half_closes: false }));
        let mut most = 0;
        service
            .run(1_000 * MS, |service| {
                most = most.max(service.worker.audit().large_bufs);
                false
            })
            .expect("no spinning");
        assert!(
            most > 0 && most <= all / 4 + SLOW_CLIENT_BUFS_MAX,
            "{most} buffers for values of {value_bytes} bytes"
        );
    }
}
