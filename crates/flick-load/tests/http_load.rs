//! The load with HTTP, on TCP and in shared memory, against small servers: it must count exactly what happened.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use flick_load::http::{HttpRequest, HttpVersion};
use flick_load::load::{self, Gaps, LoadConfig, LoadProtocol, LoadReport};
use flick_shm::client::ClientAddress;
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pairing::{PairListener, PairPolicy};

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Returns the replies to the whole requests at the front of `received`, and removes those.
fn answer(received: &mut Vec<u8>, page: &[u8]) -> Vec<u8> {
    let mut replies = Vec::new();
    while let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
        assert!(received.starts_with(b"GET / HTTP/1."));
        received.drain(..end + 4);
        replies.extend_from_slice(page);
    }
    replies
}

fn serve_tcp(page: &'static [u8]) -> ClientAddress {
    serve_tcp_until(page, usize::MAX)
}

/// Serves pages; ends each connection behind `pages_max` of them, and ignores the requests that follow.
fn serve_tcp_until(page: &'static [u8], pages_max: usize) -> ClientAddress {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut received, mut bytes, mut pages) = (Vec::new(), [0; 4096], 0);
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    received.extend_from_slice(&bytes[..count]);
                    let mut replies = answer(&mut received, page);
                    let left = (pages_max - pages.min(pages_max)).saturating_mul(page.len());
                    replies.truncate(left);
                    pages += replies.len() / page.len();
                    if stream.write_all(&replies).is_err() {
                        return;
                    }
                    if pages == pages_max {
                        // Unread requests would reset the connection, and lose the replies before them.
                        let _ = stream.shutdown(std::net::Shutdown::Write);
                    }
                }
            });
        }
    });
    addr.into()
}

/// Serves one process until it closes the pair; dies after `replies_max` requests.
fn serve_shm(test: &str, replies_max: usize) -> (ClientAddress, JoinHandle<()>) {
    let name = format!("test-http-{test}-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let serving = std::thread::spawn(move || {
        let (peer, pair) = listener.accept().expect("the load connects");
        let (mut pair, mut replies) = (pair.expect("both can pair"), 0);
        let mut conns: Vec<(RingConn, Vec<u8>)> = Vec::new();
        while !peer.is_gone() && replies < replies_max {
            let mut ready = Vec::new();
            pair.take_ready(|slot| ready.push(slot));
            for slot in ready {
                let accepted = pair.accept(slot, 4096).expect("memory");
                conns.extend(accepted.map(|conn| (conn, Vec::new())));
            }
            for (conn, received) in &mut conns {
                let mut bytes = [0; 4096];
                if let RingRead::Bytes(count) = conn.receive(&mut bytes).expect("an honest peer") {
                    received.extend_from_slice(&bytes[..count]);
                    let reply = answer(received, PAGE);
                    assert_eq!(conn.send(&reply), Ok(reply.len()), "the ring holds all that is asked for");
                    replies += 1;
                }
            }
            std::thread::yield_now();
        }
    });
    (ClientAddress::Shm(name), serving)
}

fn run(addr: ClientAddress, change: impl FnOnce(LoadConfig) -> LoadConfig) -> LoadReport {
    let config = LoadConfig {
        protocol: LoadProtocol::Http,
        get_ratio: 1.0,
        requests: Some(5_000),
        ..LoadConfig::new(addr)
    };
    load::run(change(config)).expect("the load runs")
}

#[test]
fn every_page_is_counted_on_tcp_and_in_shared_memory() {
    for addr in [serve_tcp(PAGE), serve_shm("pages", usize::MAX).0] {
        for depth in [1, 10] {
            let report = run(addr.clone(), |config| LoadConfig { connections: 30, depth, ..config });
            assert_eq!((report.replies, report.faults()), (5_000, 0), "{addr}: {:?}", report.counts);
            if matches!(addr, ClientAddress::Shm(_)) {
                // The server serves one process.
                break;
            }
        }
    }
}

#[test]
fn other_statuses_are_errors_and_other_bytes_are_wrong() {
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let report = run(serve_tcp(busy), |config| LoadConfig { requests: Some(100), ..config });
    assert_eq!((report.counts.errors, report.counts.wrong), (100, 0));
    assert_eq!((report.replies, report.http_statuses.get(&503)), (100, Some(&100)));
    assert_eq!(report.first_error.as_deref(), Some("status 503"));
    let both = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    let report = run(serve_tcp(both), |config| LoadConfig { connections: 1, requests: Some(1), ..config });
    assert_eq!((report.counts.wrong, report.counts.disconnects), (1, 1));
    assert!(report.first_wrong.is_some_and(|why| why.contains("a length and chunks")));
}

#[test]
fn pages_in_chunks_are_counted() {
    let page = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let report = run(serve_tcp(page), |config| LoadConfig { depth: 4, ..config });
    assert_eq!((report.replies, report.faults()), (5_000, 0), "{report:?}");
    assert_eq!(report.counts.received_bytes, 5_000 * page.len() as u64);
}

#[test]
fn requests_behind_an_announced_close_are_sent_again() {
    let page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello";
    let last = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    for rate_per_s in [None, Some(20_000.0)] {
        let report = run(serve_tcp_until(last, 1), |config| LoadConfig {
            connections: 4,
            depth: 8,
            requests: Some(1_000),
            rate_per_s,
            ..config
        });
        assert_eq!((report.replies, report.faults()), (1_000, 0), "{report:?}");
        assert!(report.counts.connects >= 1_000, "{report:?}");
    }
    // A close that no reply has announced is a fault.
    let report = run(serve_tcp_until(page, 10), |config| LoadConfig { connections: 4, ..config });
    assert_eq!((report.replies, report.counts.disconnects), (40, 4), "{report:?}");
}

#[test]
fn each_request_can_have_a_connection() {
    let to_the_end = b"HTTP/1.0 200 OK\r\n\r\nuntil the connection ends";
    let old = HttpRequest { version: HttpVersion::Http10, ..HttpRequest::default() };
    for (page, pages_max, http) in [
        (PAGE, usize::MAX, HttpRequest::default()),
        (to_the_end, 1, HttpRequest::default()),
        (to_the_end, 1, old),
    ] {
        for rate_per_s in [None, Some(10_000.0)] {
            let report = run(serve_tcp_until(page, pages_max), |config| LoadConfig {
                connection_per_request: true,
                connections: 8,
                requests: Some(1_000),
                rate_per_s,
                gaps: Gaps::Poisson,
                http: http.clone(),
                ..config
            });
            assert_eq!((report.replies, report.faults()), (1_000, 0), "{report:?}");
            assert_eq!(report.counts.connects, 1_000);
        }
    }
    let gone =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let report = run(gone.into(), |config| LoadConfig { connection_per_request: true, ..config });
    assert_eq!((report.replies, report.counts.connect_failures, report.counts.lost), (0, 16, 16));
}

#[test]
fn half_a_page_before_a_reset_was_a_good_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The request has to be read.
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf a page").expect("the load reads");
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        }
    });
    for stamped in [false, true] {
        let report = run(addr.into(), |config| LoadConfig {
            connection_per_request: true,
            connections: 1,
            requests: Some(1),
            stamped,
            ..config
        });
        assert_eq!((report.replies, report.counts.disconnects, report.counts.lost), (0, 1, 1), "{report:?}");
    }
}

/// The server stalls once, for longer than all requests of the open loop are due in.
#[test]
fn a_stall_counts_for_every_request_that_it_delays() {
    const STALL: Duration = Duration::from_millis(200);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the load connects");
        let (mut received, mut bytes, mut has_stalled) = (Vec::new(), [0; 4096], false);
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if !has_stalled {
                std::thread::sleep(STALL);
                has_stalled = true;
            }
            received.extend_from_slice(&bytes[..count]);
            stream.write_all(&answer(&mut received, PAGE)).expect("the load reads");
        }
    });
    let report = run(addr.into(), |config| LoadConfig {
        connections: 1,
        requests: Some(100),
        rate_per_s: Some(1_000.0),
        ..config
    });
    assert_eq!((report.replies, report.faults()), (100, 0), "{report:?}");
    // The last of 100 was due 99 ms after the first: it has waited for the rest of the stall.
    assert!(report.latency.max_us >= 200_000, "{report:?}");
    assert!(report.latency.p50_us >= 100_000, "without the waiting requests it would be short: {report:?}");
}

#[test]
fn a_service_in_shared_memory_that_dies_ends_all_connections() {
    let (addr, serving) = serve_shm("death", 1_000);
    // More than the service answers: the load ends when all its connections are lost.
    let report = run(addr, |config| LoadConfig { requests: Some(1_000_000), ..config });
    serving.join().expect("it only serves");
    assert_eq!(report.counts.disconnects, 16, "{:?}", report.counts);
    assert_eq!(report.counts.wrong, 0);
}

#[test]
fn writes_and_timestamps_are_refused_where_there_are_none() {
    let addr = serve_tcp(PAGE);
    let http = LoadConfig { protocol: LoadProtocol::Http, requests: Some(1), ..LoadConfig::new(addr) };
    assert!(load::run(http).is_err(), "HTTP only reads");
    let shm = LoadConfig {
        stamped: true,
        requests: Some(1),
        ..LoadConfig::new(ClientAddress::Shm("no-such-name".to_owned()))
    };
    assert!(load::run(shm).is_err(), "shared memory has no timestamps");
}
