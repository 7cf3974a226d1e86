//! Many clients at once, with and without backends that die: every reply must be the one that was asked for.

use std::time::{Duration, Instant};

use flick_load::load::{self, KeySize, LoadConfig, ValueSize};
use flick_load::store::StoreHandle;

use crate::common::peers::Memcached;
use crate::machine;
use crate::proxy::{IOS, Proxy, stores};

const CLIENTS: usize = 1_000;
const REQUESTS: u64 = 100 * CLIENTS as u64;

#[test]
fn thousand_pipelining_clients_get_their_replies() {
    let _machine = machine::together();
    machine::want_descriptors(4_000);
    for io in IOS {
        let (stores, backends) = stores(4);
        // A hundred thousand requests at once take seconds on a slow machine: none is to be shed for that.
        let proxy = Proxy::start(&backends, io, |config| {
            config.workers = 2;
            config.limits.overload_queue_delay = Duration::ZERO;
            (config.timeouts.queue, config.timeouts.response) =
                (Some(Duration::ZERO), Some(Duration::from_secs(60)));
        });
        let config = LoadConfig {
            connections: CLIENTS,
            depth: 100,
            threads: 2,
            keys: 2_000,
            key_size: KeySize::Fixed(12),
            value: ValueSize::Between(0, 120),
            get_ratio: 0.75,
            requests: Some(REQUESTS),
            split_writes: true,
            seed: 7,
            ..LoadConfig::new(proxy.address())
        };
        load::populate(&config).expect("every key can be written");
        let report = load::run(config).expect("the load starts");
        assert_eq!((report.counts.replies, report.faults()), (REQUESTS, 0), "{io:?}: {report:?}");
        assert!(
            stores.iter().map(StoreHandle::counters).all(|counters| {
                counters.requests.load(std::sync::atomic::Ordering::Relaxed) > REQUESTS / 8
            })
        );
        let totals = proxy.until("every session to end", |totals| totals.connections_open == 0);
        assert_eq!(
            (totals.requests, totals.replies, totals.replies_suppressed),
            (REQUESTS + 2_000, REQUESTS + 2_000, 0)
        );
        assert_eq!((totals.backend_connections_closed, totals.late_replies, totals.exhausted), (0, 0, 0));
    }
}

/// Values contain their key and writer, so that a reply to another client's request is detected.
#[test]
fn m1_wrong_client_no_foreign_reply_while_backends_are_killed_at_random() {
    let _machine = machine::together();
    let seconds = match std::env::var("FLICK_M1_SECONDS") {
        Ok(text) => text.parse().expect("FLICK_M1_SECONDS is a number of seconds"),
        Err(_) => 10,
    };
    for io in IOS {
        m1(io, Duration::from_secs(seconds) / IOS.len() as u32);
    }
}

fn m1(io: flick_net::IoKind, time: Duration) {
    let mut random: u64 = 0x5eed_0001;
    println!("seed {random:#x}");
    let mut servers: Vec<Option<_>> = Memcached::several(4).into_iter().map(Some).collect();
    let backends: Vec<_> = servers.iter().flatten().map(|server| server.address).collect();
    let proxy = Proxy::start(&backends, io, |config| config.workers = 2);
    (0..4).for_each(|backend| proxy.until_backend(backend, 2));
    let config = LoadConfig {
        connections: 64,
        depth: 8,
        keys: 500,
        value: ValueSize::Between(24, 2_000),
        get_ratio: 0.5,
        ..LoadConfig::new(proxy.address())
    };
    let run = load::start(config).expect("the load starts");
    let begun = Instant::now();
    let mut kills = 0;
    while begun.elapsed() < time || kills == 0 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = (random >> 33) as usize % servers.len();
        let replies = || run.progress().snapshot().counts.replies;
        let before = replies();
        crate::common::wait::until("the load to run", || (replies() > before + 2_000).then_some(()));
        servers[victim].take().expect("it was started again").kill();
        proxy.until_backend(victim, 0);
        let failed = |proxy: &Proxy| proxy.metrics().backends[victim].failures;
        let before = failed(&proxy);
        crate::common::wait::until("its keys to fail", || (failed(&proxy) > before + 10).then_some(()));
        servers[victim] =
            crate::common::wait::until("its port to be free", || Memcached::start_at(backends[victim]))
                .into();
        proxy.until_backend(victim, 2);
        kills += 1;
    }
    run.stop();
    let report = run.wait();
    let counts = report.counts;
    println!("{io:?}: {kills} kills, {} replies, {} errors", counts.replies, counts.errors);
    assert_eq!((counts.wrong, counts.lost, counts.disconnects), (0, 0, 0), "{report:?}");
    assert!(counts.errors > 0, "a killed backend is noticed");
    let statuses: Vec<_> = report.errors_by_status().map(|(status, _)| status).collect();
    assert_eq!(statuses, [flick_load::binary::Status::TemporaryFailure]);
    let totals = proxy.until("every session to end", |totals| totals.connections_open == 0);
    assert_eq!(
        (totals.requests, totals.protocol_errors_backend),
        (totals.replies + totals.replies_suppressed, 0)
    );
}
