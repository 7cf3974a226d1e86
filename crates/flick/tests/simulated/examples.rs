//! The services of `examples`, each through storms of faults from seeds, between peers of its own protocol that check
//! every reply. What must hold is said in `flick_testkit::service::storm`, how the peers speak in `service::traffic`.
//!
//! A run plays 100 seeds of each; `cargo xtask faults --seeds 10000` plays as many. Every tenth is played by both
//! engines, which must make the same run of it.

use flick_testkit::service::seeds;
use flick_testkit::service::storm::{self, Outcome, Storm, Traffic};
use flick_testkit::service::traffic::http::{Http, Kind};
use flick_testkit::service::traffic::memcached_text::{self, MemcachedText};
use flick_testkit::service::traffic::mqtt::Mqtt;
use flick_testkit::service::traffic::resp::Resp;
use flick_testkit::service::traffic::stomp::Stomp;
use flick_testkit::service::traffic::store::Store;
use flick_testkit::service::traffic::{Peers, lines};

use super::subject;

/// Seeds of an ordinary run.
const SEEDS: u64 = 100;
/// One in this many seeds is run by both engines.
const BOTH_EVERY: u64 = 10;

/// The faults of a seed: only split and delayed bytes; resets; all faults; and lies that clients cannot detect.
fn storm_of(seed: u64, servers: usize) -> Storm {
    let quiet = Storm { servers, habits: false, lies: false, keeps_order: false, ..Storm::hostile() };
    let everything = Storm { servers, lies: false, keeps_order: false, ..Storm::everything() };
    match seed % 8 {
        0 => quiet,
        1 | 2 => Storm { servers, lies: false, keeps_order: false, ..Storm::resets() },
        3 => Storm { drains: true, ..everything },
        4 => Storm { lies: true, ..everything },
        5 => Storm { servers, lies: false, keeps_order: false, requests: 12, clients: 8, ..Storm::crowded() },
        _ => everything,
    }
}

/// Plays the seeds of one service.
fn check(program: &str, servers: usize, traffic: &dyn Traffic) -> Outcome {
    check_with(program, servers, 0, traffic)
}

/// As `check`, with at least N bytes of buffers.
fn check_with(program: &str, servers: usize, buffer_memory: u64, traffic: &dyn Traffic) -> Outcome {
    let (native, interpreted) = subject::example(program);
    let mut sum = Outcome::default();
    for seed in seeds(SEEDS) {
        let storm = storm_of(seed, servers);
        let storm = Storm { buffer_memory: storm.buffer_memory.max(buffer_memory), ..storm };
        let run = |subject| storm::run_with(seed, &storm, subject, traffic);
        let outcome = run(&native).unwrap_or_else(|what| panic!("FLICK_SEED={seed} {program}: {what}"));
        if seed.is_multiple_of(BOTH_EVERY) {
            assert_eq!(Ok(outcome), run(&interpreted), "FLICK_SEED={seed} {program}: the engines differ");
        }
        sum.answered += outcome.answered;
        sum.failed += outcome.failed;
        sum.cut += outcome.cut;
    }
    println!("| {program} | {} | {} | {} |", sum.answered, sum.failed, sum.cut);
    sum
}

fn http(program: &str, servers: usize, kind: Kind) {
    let outcome = check(program, servers, &Peers::new(Http(kind)));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn http_balancer_round_robin() {
    http("http_balancer/round_robin.flick", 3, Kind::Balancer);
}

#[test]
fn http_balancer_by_url() {
    http("http_balancer/by_url.flick", 3, Kind::Balancer);
}

#[test]
fn http_balancer_by_address() {
    http("http_balancer/by_address.flick", 3, Kind::Balancer);
}

#[test]
fn http_balancer_least_loaded() {
    http("http_balancer/least_loaded.flick", 3, Kind::Balancer);
}

#[test]
fn http_balancer_sticky() {
    http("http_balancer/sticky.flick", 3, Kind::Balancer);
}

#[test]
fn http_balancer_two_choices() {
    http("http_balancer/two_choices.flick", 3, Kind::Balancer);
}

#[test]
fn http_overload_retry() {
    http("http_overload_retry/http_overload_retry.flick", 3, Kind::Balancer);
}

#[test]
fn http_cache() {
    http("http_cache/http_cache.flick", 3, Kind::Cache);
}

#[test]
fn http_filter() {
    http("http_filter/http_filter.flick", 3, Kind::Filter);
}

#[test]
fn http_rate_limiter() {
    http("http_rate_limiter/http_rate_limiter.flick", 3, Kind::Limiter);
}

#[test]
fn http_router() {
    http("http_router/http_router.flick", 5, Kind::Router);
}

#[test]
fn http_static() {
    http("http_static/http_static.flick", 0, Kind::Static);
}

#[test]
fn http_statistics() {
    http("http_statistics/http_statistics.flick", 3, Kind::Statistics);
}

fn memcached(program: &str, kind: memcached_text::Kind) {
    let outcome = check(program, 3, &Peers::new(MemcachedText(kind)));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn memcached_text_proxy() {
    memcached("memcached_text_proxy/memcached_text_proxy.flick", memcached_text::Kind::Sharded);
}

#[test]
fn memcached_cache() {
    memcached("memcached_cache/memcached_cache.flick", memcached_text::Kind::Cached);
}

#[test]
fn memcached_failover() {
    memcached("memcached_failover/memcached_failover.flick", memcached_text::Kind::Copies);
}

#[test]
fn key_value_server() {
    // It looks at values of up to 1 MiB.
    let outcome = check_with("key_value_server/key_value_server.flick", 0, 8_912_896, &Peers::new(Store));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn redis_sharding() {
    let outcome = check("redis_sharding/redis_sharding.flick", 3, &Peers::new(Resp));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn tcp_relay() {
    let outcome = check("tcp_relay/tcp_relay.flick", 1, &Peers::new(lines::Lines::any()));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn drain_waits_for_the_last_bytes_of_a_relay() {
    const SEED: u64 = 1443;
    let (native, _) = subject::example("tcp_relay/tcp_relay.flick");
    let outcome = storm::run_with(SEED, &storm_of(SEED, 1), &native, &Peers::new(lines::Lines::any()));
    assert!(outcome.is_ok(), "seed {SEED}: {outcome:?}");
}

#[test]
fn retry_does_not_reuse_the_id_of_a_closing_connection() {
    const SEED: u64 = 95;
    let (native, _) = subject::example("http_balancer/round_robin.flick");
    let outcome = storm::run_with(SEED, &storm_of(SEED, 3), &native, &Peers::new(Http(Kind::Balancer)));
    assert!(outcome.is_ok(), "seed {SEED}: {outcome:?}");
}

#[test]
fn packet_counter() {
    check("packet_counter/packet_counter.flick", 1, &Peers::new(lines::Captures));
}

#[test]
fn mqtt_gateway() {
    let outcome = check("mqtt_gateway/mqtt_gateway.flick", 3, &Peers::new(Mqtt));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn stomp_gateway() {
    let outcome = check("stomp_gateway/stomp_gateway.flick", 3, &Peers::new(Stomp));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn cache_does_not_store_a_value_of_another_key() {
    const SEED: u64 = 5716;
    let (native, _) = subject::example("memcached_cache/memcached_cache.flick");
    let peers = Peers::new(MemcachedText(memcached_text::Kind::Cached));
    let outcome = storm::run_with(SEED, &storm_of(SEED, 3), &native, &peers);
    assert!(outcome.is_ok(), "seed {SEED}: {outcome:?}");
}
