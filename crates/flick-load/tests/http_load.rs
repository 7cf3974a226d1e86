//! The load with HTTP, on TCP and in shared memory, against small servers: it must count exactly what happened.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use flick_load::load::{self, LoadConfig, LoadProtocol, LoadReport};
use flick_shm::client::ClientAddress;
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pairing::{PairListener, PairPolicy};

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Returns the replies to the whole requests at the front of `received`, and removes those.
fn answer(received: &mut Vec<u8>, page: &[u8]) -> Vec<u8> {
    let mut replies = Vec::new();
    while let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
        assert!(received.starts_with(b"GET / HTTP/1.1\r\n"));
        received.drain(..end + 4);
        replies.extend_from_slice(page);
    }
    replies
}

fn serve_tcp(page: &'static [u8]) -> ClientAddress {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut received, mut bytes) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    received.extend_from_slice(&bytes[..count]);
                    if stream.write_all(&answer(&mut received, page)).is_err() {
                        return;
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
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let report = run(serve_tcp(chunked), |config| LoadConfig { connections: 1, requests: Some(1), ..config });
    assert_eq!((report.counts.wrong, report.counts.disconnects), (1, 1));
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
