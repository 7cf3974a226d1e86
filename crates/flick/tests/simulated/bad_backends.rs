//! Backends that are killed, refuse, stall, are slow, half open, forget, talk nonsense or break off, one by one and
//! together, for every protocol of the library. What must hold is said in `flick_testkit::service::backend_faults`.

use flick_testkit::service::backend_faults::{BackendFault, FaultCase, Report};
use flick_testkit::service::traffic::frames::Frames;
use flick_testkit::service::traffic::http::{Http, HttpKind};
use flick_testkit::service::traffic::lines::Lines;
use flick_testkit::service::traffic::memcached_binary::MemcachedBinary;
use flick_testkit::service::traffic::memcached_text::{self, MemcachedText};
use flick_testkit::service::traffic::mqtt::Mqtt;
use flick_testkit::service::traffic::resp::Resp;
use flick_testkit::service::traffic::stomp::Stomp;
use flick_testkit::service::traffic::{Peers, TrafficProtocol};
use flick_testkit::service::{Subject, seeds};

use super::subject;

/// Seeds of an ordinary run; `FLICK_SEEDS` asks for more.
const SEEDS: u64 = 1;
/// Backends of each service.
const SERVERS: usize = 3;

/// Sessions whose messages all go to one backend, that of the client's port.
const BY_CLIENT: &str = "
proc Gateway: (M/M client, [M/M] servers)
  | servers => client
  | client => pass(client, servers)

fun pass: (-/M client, [-/M] servers, m: M) -> ()
  m => servers[hash(port(peer(client))) mod len(servers)]
";

/// Faults of several backends at once; the rest of the three are healthy.
const TOGETHER: [&[(usize, BackendFault)]; 5] = [
    &[(0, BackendFault::Killed), (1, BackendFault::Killed)],
    &[(0, BackendFault::Stalls), (1, BackendFault::Garbage)],
    &[(1, BackendFault::Unreachable), (2, BackendFault::ClosesOnRequest)],
    &[(0, BackendFault::Slow), (1, BackendFault::CutsReplies), (2, BackendFault::Refuses)],
    &[(0, BackendFault::HalfCloses), (1, BackendFault::Forgets), (2, BackendFault::Stalls)],
];

/// Plays every fault of one backend with clients of one request, and several together with clients that send a few,
/// one behind the other.
fn check(
    name: &str,
    (native, interpreted): &(Subject, Subject),
    streams: bool,
    protocol: impl TrafficProtocol + 'static,
) {
    let peers = Peers::new(protocol);
    let alone = BackendFault::ALL.iter().enumerate().map(|(at, fault)| vec![(at % SERVERS, *fault)]);
    let alone: Vec<Vec<(usize, BackendFault)>> = alone.collect();
    let together: Vec<Vec<(usize, BackendFault)>> = TOGETHER.iter().map(|faults| faults.to_vec()).collect();
    for (seed, requests, all) in seeds(SEEDS).flat_map(|seed| [(seed, 1, &alone), (seed, 6, &together)]) {
        let case = |subject| FaultCase {
            subject,
            peers: &peers,
            servers: SERVERS,
            requests,
            outlier_consecutive_failures: 0,
            streams,
        };
        let bound =
            case(native).bound(seed).unwrap_or_else(|what| panic!("FLICK_SEED={seed} {name}: {what}"));
        for server in 0..SERVERS {
            assert!(
                bound.iter().flatten().any(|other| *other == server),
                "{name}: no client uses server {server}: {bound:?}"
            );
        }
        let mut sum = Report::default();
        for faults in all {
            let run = format!("FLICK_SEED={seed} {name}, up to {requests} requests, {faults:?}");
            let report =
                case(native).play(seed, faults, &bound).unwrap_or_else(|what| panic!("{run}: {what}"));
            if faults.len() > 1 {
                let other = case(interpreted).play(seed, faults, &bound);
                assert_eq!(Ok(report), other, "{run}: the engines differ");
            }
            println!("| {name} | {requests} | {faults:?} | {:.1} ms |", report.worst_ns as f64 / 1e6);
            sum.answered += report.answered;
            sum.failed += report.failed;
            sum.cut += report.cut;
        }
        println!(
            "| {name} | {requests} | {} answered | {} failed | {} cut |",
            sum.answered, sum.failed, sum.cut
        );
        assert!(sum.answered > 0 && sum.failed + sum.cut > 0, "{name}: the test does something");
    }
}

/// A gateway for messages of a grammar of the library.
fn gateway(library: &str, message: &str) -> (Subject, Subject) {
    subject::text(&format!("use {library}\n{}", BY_CLIENT.replace('M', message)))
}

#[test]
fn bad_backends_http() {
    check("http", &subject::example("http_balancer/by_url.flick"), true, Http(HttpKind::Balancer));
}

#[test]
fn bad_backends_memcached_text() {
    let subject = subject::example("memcached_text_proxy/memcached_text_proxy.flick");
    check("memcached_text", &subject, false, MemcachedText(memcached_text::MemcachedTextKind::Sharded));
}

#[test]
fn bad_backends_memcached_binary() {
    let subject = subject::example("memcached_proxy/memcached_proxy.flick");
    check("memcached_binary", &subject, false, MemcachedBinary);
}

#[test]
fn bad_backends_redis() {
    check("redis", &subject::example("redis_sharding/redis_sharding.flick"), true, Resp);
}

#[test]
fn bad_backends_mqtt() {
    check("mqtt", &subject::example("mqtt_gateway/mqtt_gateway.flick"), true, Mqtt);
}

#[test]
fn bad_backends_stomp() {
    check("stomp", &subject::example("stomp_gateway/stomp_gateway.flick"), true, Stomp);
}

#[test]
fn bad_backends_frames() {
    check("frames", &gateway("frames", "frame16"), true, Frames);
}

#[test]
fn bad_backends_lines() {
    check("lines", &gateway("lines", "line"), true, Lines { len_max: 3_000 });
}

#[test]
fn bad_backends_relay() {
    check("relay", &gateway("raw", "raw"), true, Lines::any());
}
