//! Limits on clients and load shedding, over real sockets: which clients are rejected, how, and which wait.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::client::connect;
use common::http::{exchange, reply};
use common::service::{Service, read_all};
use common::{Scratch, wait};
use rustix::net::{AddressFamily, SocketType};

/// The two kernel interfaces.
const IOS: [&str; 2] = ["epoll", "uring"];

fn page(extra: &[&str]) -> Service {
    let program = "examples/http_static/http_static.flick";
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--workers", "2"];
    Service::start(&[args.as_slice(), extra].concat())
}

/// Connects from that address of this machine.
fn connect_from(from: u8, to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor is left");
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from)), 0);
    rustix::net::bind(&socket, &from).expect("all of 127/8 is ours");
    rustix::net::connect(&socket, &to).expect("the service listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    stream
}

/// Requests the page and returns the status.
fn ask(stream: &mut TcpStream) -> u16 {
    exchange(stream, "/").expect("an answer comes").0
}

#[test]
fn max_connections_per_ip_rejects_only_that_address() {
    for io in IOS {
        let service = page(&["--io", io, "--max-connections-per-ip", "3"]);
        let mut present: Vec<TcpStream> = (0..3).map(|_| connect_from(1, service.address)).collect();
        present.iter_mut().for_each(|client| assert_eq!(ask(client), 200, "{io}"));
        for _ in 0..5 {
            // It has sent something already, as browsers do; the answer is not lost behind a reset.
            let mut fourth = connect_from(1, service.address);
            let _ = fourth.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = String::from_utf8_lossy(&read_all(&mut fourth)).into_owned();
            assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{io}: {answer}");
        }
        assert_eq!(ask(&mut connect_from(2, service.address)), 200, "{io}: another address");
        present.pop();
        wait::until("the connection to be closed", || {
            (ask(&mut connect_from(1, service.address)) == 200).then_some(())
        });
        present.iter_mut().for_each(|client| assert_eq!(ask(client), 200, "{io}"));
        drop(present);
        let log = service.drained();
        assert!(log.contains("connections_over_ip_limit"), "{io}: {log}");
    }
}

#[test]
fn max_connections_rejects_with_a_protocol_error_response() {
    let service = page(&["--max-connections", "1", "--on-max-connections", "reject"]);
    let mut first = connect(service.address);
    assert_eq!(ask(&mut first), 200);
    let answer = read_all(connect(service.address));
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{:?}", String::from_utf8_lossy(&answer));
    drop(first);
    service.drained();

    let program = "examples/key_value_server/key_value_server.flick";
    let args = [
        "run",
        program,
        "--listen",
        "client=127.0.0.1:0",
        "--max-connections",
        "1",
        "--on-max-connections",
        "reject",
    ];
    let service = Service::start(&args);
    let mut first = connect(service.address);
    first.write_all(b"get a\r\n").expect("the service reads");
    first.read_exact(&mut [0; 5]).expect("END comes");
    assert_eq!(read_all(connect(service.address)), b"SERVER_ERROR too busy\r\n");
    drop(first);
    service.drained();
}

#[test]
fn connection_rate_limit_delays_clients() {
    for io in IOS {
        let service = page(&["--io", io, "--connection-rate-limit", "50"]);
        let begun = Instant::now();
        let mut clients: Vec<TcpStream> = (0..25).map(|_| connect(service.address)).collect();
        clients.iter_mut().for_each(|client| assert_eq!(ask(client), 200, "{io}"));
        // Five come at once, the other twenty 20 ms after one another.
        assert!(begun.elapsed() >= Duration::from_millis(390), "{io}: {:?}", begun.elapsed());
        drop(clients);
        let log = service.drained();
        assert!(log.contains("accept_rate_limited"), "{io}: {log}");
    }
}

/// A page that costs more than a moment, so that a few hundred clients are too many for one worker.
const HEAVY: &str = r#"use http

proc Heavy: (request/response client)
  | client => work() => client

fun work: (req: request) -> (response)
  let sum = fold i in 0..20000, sum = 0: (sum * 31 + i) mod 1000003
  if sum == 1000007: response{status = 404, reason = "Not Found", headers = [], body = ""}
  else: response{status = 200, reason = "OK", headers = [], body = "Hello from flick\n"}
"#;

/// Clients that ask again as soon as they are answered.
const EAGER: usize = 100;
/// Pages of all clients where all requests wait.
const PAGES_PATIENT: usize = 600;
/// The same with load shedding. Shedding grows per event-loop iteration, of which a busy machine has few per second, so
/// the run ends after a number of pages and not after a time.
const PAGES_SHEDDING: usize = 2_000;

/// Pages of a service with a low `cpu_max`, with and without shedding: latency is so high that more would take too
/// long.
const PAGES_HELD: usize = 300;

/// Loads a slow service until it has served `pages`. Returns the 90th percentile of the queueing delay of the last
/// quarter, the number of these pages, and the number of rejected requests. The delay of a page is the number of other
/// pages that were served between its request and its response: a busy machine does not change it, as it makes all of
/// them slower.
fn eager(queue_delay: &str, options: &[&str], pages: usize) -> (usize, usize, usize) {
    let scratch = Scratch::new(&format!("heavy-{queue_delay}{}", options.concat()));
    let program = scratch.write("heavy.flick", HEAVY);
    let program = program.to_str().expect("the path is UTF-8");
    let args = ["--workers", "1", "--overload-queue-delay", queue_delay];
    let args = [["run", program, "--listen", "client=127.0.0.1:0"].as_slice(), &args, options].concat();
    let service = Service::start(&args);
    let (address, got) = (service.address, Arc::new(AtomicUsize::new(0)));
    let client = move || {
        let (mut stream, mut delays, mut refused) = (connect(address), Vec::new(), 0);
        loop {
            let before = got.load(Ordering::Relaxed);
            if before >= pages {
                break;
            }
            match ask(&mut stream) {
                200 => {
                    let served = got.fetch_add(1, Ordering::Relaxed);
                    if served > pages / 4 * 3 {
                        delays.push(served - before);
                    }
                }
                _ => {
                    refused += 1;
                    // A shorter pause than a client that backs off makes.
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }
        }
        (delays, refused)
    };
    let clients: Vec<_> = (0..EAGER).map(|_| std::thread::spawn(client.clone())).collect();
    let (mut delays, mut refused) = (Vec::new(), 0);
    for client in clients {
        let (own, own_refused) = client.join().expect("every request is answered");
        delays.extend(own);
        refused += own_refused;
    }
    service.drained();
    delays.sort();
    let p90 = delays.get(delays.len() * 9 / 10).copied().expect("some are always served");
    println!(
        "queue_delay {queue_delay} {options:?}: p90 {p90} pages, of {} pages, {refused} refused",
        delays.len()
    );
    (p90, delays.len(), refused)
}

#[test]
fn load_shedding_bounds_the_queueing_delay() {
    shortens_the_queue(&["--engine", "interpreter"], PAGES_PATIENT, PAGES_SHEDDING);
}

fn check_with_a_cpu_limit(io: &str) {
    shortens_the_queue(&["--cpu-max", "5%", "--queue-timeout", "0ms", "--io", io], PAGES_HELD, PAGES_HELD);
}

#[test]
fn load_shedding_with_a_cpu_limit_epoll() {
    check_with_a_cpu_limit("epoll");
}

#[test]
fn load_shedding_with_a_cpu_limit_uring() {
    check_with_a_cpu_limit("uring");
}

/// Compares the queueing delay of the same load with and without shedding.
fn shortens_the_queue(options: &[&str], pages_patient: usize, pages_shedding: usize) {
    let (patient, _, refused) = eager("0ms", options, pages_patient);
    assert_eq!(refused, 0, "nothing is shed unless that is asked for");
    let (shedding, served, refused) = eager("20ms", options, pages_shedding);
    assert!(refused > 0 && served > 0, "{refused} refused, {served} served");
    assert!(shedding < patient * 2 / 3, "{options:?}: {shedding} pages with shedding, {patient} without");
}

#[test]
fn queue_timeout_applies_to_waiting_for_a_backend_connection() {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let connect_to = format!("backends={}", silent.local_addr().expect("it is bound"));
    let program = "examples/http_balancer/round_robin.flick";
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect_to, "--workers", "1"];
    let limits =
        ["--max-connections-per-backend", "1", "--response-timeout", "4s", "--queue-timeout", "100ms"];
    let service = Service::start(&[args.as_slice(), &limits].concat());
    let mut first = connect(service.address);
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
    let _taken = silent.accept().expect("the first request has its connection");
    let mut clients: Vec<TcpStream> = (0..8).map(|_| connect(service.address)).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
    }
    let begun = Instant::now();
    let refused = wait::within(Duration::from_secs(3), || {
        clients.iter_mut().for_each(|client| client.set_nonblocking(true).expect("a socket"));
        let answered = clients.iter().filter(|client| client.peek(&mut [0]).is_ok()).count();
        (answered >= 7).then_some(answered)
    });
    // Two have connections, or one if it is the same.
    assert!(refused.is_some(), "most are refused long before the reply is late, {:?}", begun.elapsed());
    // The first of them to be received from has the second connection.
    for client in clients.iter_mut().filter(|client| client.peek(&mut [0]).is_ok()) {
        client.set_nonblocking(false).expect("a socket");
        assert_eq!(reply(client).expect("an answer comes").0, 503);
    }
    drop((clients, first));
    service.signal("KILL");
    service.ended();
}

#[test]
fn max_inflight_requests_bounds_requests_in_flight() {
    const CLIENTS: usize = 20;
    const INFLIGHT_MAX: usize = 8;
    // The kernel completes its connections; no process accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let backends = format!("backends={}", silent.local_addr().expect("it is bound"));
    let program = "examples/http_balancer/round_robin.flick";
    let fixed = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &backends, "--workers", "1"];
    let limits = ["--max-inflight-requests", "8", "--queue-timeout", "200ms", "--response-timeout", "3s"];
    let service = Service::start(&[&fixed[..], &limits[..]].concat());
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(service.address)).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
    }
    let statuses: Vec<u16> =
        clients.iter_mut().map(|client| reply(client).expect("each is answered").0).collect();
    let late = statuses.iter().filter(|status| **status == 504).count();
    let busy = statuses.iter().filter(|status| **status == 503).count();
    assert_eq!(late + busy, CLIENTS, "{statuses:?}");
    // A request reserves one entry more than it needs.
    assert!((INFLIGHT_MAX - 2..=INFLIGHT_MAX).contains(&late), "{late} were in flight: {statuses:?}");
    service.drained();
}
