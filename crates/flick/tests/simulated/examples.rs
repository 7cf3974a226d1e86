//! The services of `examples`, each under injected faults from seeds, between peers of its own protocol that check
//! every reply. The checks are in `flick_testkit::service::fault_injection`, the peers in `service::traffic`.
//!
//! A run plays 100 seeds of each; `cargo xtask faults --seeds 10000` plays as many. Every tenth is played by both
//! engines, which must make the same run of it.

use flick_testkit::service::fault_injection::{self, FaultPlan, Outcome, Traffic};
use flick_testkit::service::seeds;
use flick_testkit::service::traffic::http::{Http, HttpKind};
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
fn plan_of(seed: u64, servers: usize) -> FaultPlan {
    let quiet = FaultPlan { servers, habits: false, lies: false, keeps_order: false, ..FaultPlan::hostile() };
    let everything = FaultPlan { servers, lies: false, keeps_order: false, ..FaultPlan::everything() };
    match seed % 8 {
        0 => quiet,
        1 | 2 => FaultPlan { servers, lies: false, keeps_order: false, ..FaultPlan::resets() },
        3 => FaultPlan { drains: true, ..everything },
        4 => FaultPlan { lies: true, ..everything },
        5 => FaultPlan {
            servers,
            lies: false,
            keeps_order: false,
            requests: 12,
            clients: 8,
            ..FaultPlan::crowded()
        },
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
        let plan = plan_of(seed, servers);
        let plan = FaultPlan { buffer_memory: plan.buffer_memory.max(buffer_memory), ..plan };
        let run = |subject| fault_injection::run_with(seed, &plan, subject, traffic);
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

fn http(program: &str, servers: usize, kind: HttpKind) {
    let outcome = check(program, servers, &Peers::new(Http(kind)));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn http_balancer_round_robin() {
    http("http_balancer/round_robin.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_balancer_by_url() {
    http("http_balancer/by_url.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_balancer_by_address() {
    http("http_balancer/by_address.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_balancer_least_loaded() {
    http("http_balancer/least_loaded.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_balancer_sticky() {
    http("http_balancer/sticky.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_balancer_two_choices() {
    http("http_balancer/two_choices.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_overload_retry() {
    http("http_overload_retry/http_overload_retry.flick", 3, HttpKind::Balancer);
}

#[test]
fn http_cache() {
    http("http_cache/http_cache.flick", 3, HttpKind::Cache);
}

#[test]
fn http_filter() {
    http("http_filter/http_filter.flick", 3, HttpKind::Filter);
}

#[test]
fn http_rate_limiter() {
    http("http_rate_limiter/http_rate_limiter.flick", 3, HttpKind::Limiter);
}

#[test]
fn http_router() {
    http("http_router/http_router.flick", 5, HttpKind::Router);
}

#[test]
fn http_static() {
    http("http_static/http_static.flick", 0, HttpKind::Static);
}

#[test]
fn http_statistics() {
    http("http_statistics/http_statistics.flick", 3, HttpKind::Statistics);
}

fn memcached(program: &str, kind: memcached_text::MemcachedTextKind) {
    let outcome = check(program, 3, &Peers::new(MemcachedText(kind)));
    assert!(outcome.answered > 0, "the test does something");
}

#[test]
fn memcached_text_proxy() {
    memcached("memcached_text_proxy/memcached_text_proxy.flick", memcached_text::MemcachedTextKind::Sharded);
}

#[test]
fn memcached_cache() {
    memcached("memcached_cache/memcached_cache.flick", memcached_text::MemcachedTextKind::Cached);
}

#[test]
fn memcached_failover() {
    memcached("memcached_failover/memcached_failover.flick", memcached_text::MemcachedTextKind::Copies);
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
    let outcome =
        fault_injection::run_with(SEED, &plan_of(SEED, 1), &native, &Peers::new(lines::Lines::any()));
    assert!(outcome.is_ok(), "seed {SEED}: {outcome:?}");
}

#[test]
fn retry_does_not_reuse_the_id_of_a_closing_connection() {
    const SEED: u64 = 95;
    let (native, _) = subject::example("http_balancer/round_robin.flick");
    let outcome =
        fault_injection::run_with(SEED, &plan_of(SEED, 3), &native, &Peers::new(Http(HttpKind::Balancer)));
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
    let peers = Peers::new(MemcachedText(memcached_text::MemcachedTextKind::Cached));
    let outcome = fault_injection::run_with(SEED, &plan_of(SEED, 3), &native, &peers);
    assert!(outcome.is_ok(), "seed {SEED}: {outcome:?}");
}
