//! Crowds of clients that ask for much and do not read, or send bodies slowly, beside many honest ones, with default
//! settings: no honest request fails.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::service::Service;
use crate::common::{client, http};
use crate::machine;
use crate::wire;

/// Clients that hold what they can.
const HOLDERS: usize = 3_000;
/// Clients that ask for a short page now and then.
const HONEST: usize = 500;
/// Time between two requests of an honest client.
const PAUSE: Duration = Duration::from_millis(250);
/// Time in which honest clients ask.
const LENGTH: Duration = Duration::from_secs(4);
/// Most bytes that a client which does not read may cost.
const READER_BYTES_MAX: u64 = 100_000;
/// Memory of free buffers that the service may keep once they are gone: each worker keeps a little of each class.
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// Longest time in which it returns the rest.
const RETURN_TIME: Duration = Duration::from_secs(30);
/// Length of the page that they ask for.
const LARGE_BYTES: usize = 5_000_000;

/// Starts a backend that makes no page in memory: 5 MB for `/large`, and five bytes for everything else.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port 0 is free");
    // The service connects a thousand times at once.
    rustix::net::listen(&listener, 4096).expect("a longer queue of a socket that listens");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection ends when the service closes it.
            std::thread::spawn(move || serve(&stream));
        }
    });
    address
}

fn serve(stream: &TcpStream) -> Option<()> {
    const PIECE: [u8; 10_000] = [b'x'; 10_000];
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            (input.read_until(b'\n', &mut head).ok()? > 0).then_some(())?;
        }
        let bytes = if head.starts_with(b"GET /large ") { LARGE_BYTES } else { 5 };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        output.write_all(head.as_bytes()).ok()?;
        for from in (0..bytes).step_by(PIECE.len()) {
            output.write_all(&PIECE[..PIECE.len().min(bytes - from)]).ok()?;
        }
    }
}

/// Asks every [`PAUSE`] until it is over, with an odd number on a new connection each time. Returns how many requests
/// were answered.
fn ask(address: SocketAddr, number: usize, is_over: &AtomicBool, failed: &AtomicU32) -> u64 {
    std::thread::sleep(PAUSE * number as u32 / HONEST as u32);
    let (mut stream, mut answered) = (client::connect(address), 0);
    while !is_over.load(Ordering::Relaxed) {
        match http::exchange(&mut stream, "/small") {
            Ok((200, body)) if body.len() == 5 => answered += 1,
            other => {
                println!("honest client {number}: {other:?}");
                failed.fetch_add(1, Ordering::Relaxed);
                stream = client::connect(address);
            }
        }
        std::thread::sleep(PAUSE);
        if number % 2 == 1 {
            stream = client::connect(address);
        }
    }
    answered
}

/// Returns the most memory by which the service grew beside such holders; no honest request may fail.
fn serves_honest_clients_beside(io: &str, holder: impl Fn(SocketAddr) -> TcpStream) -> u64 {
    machine::want_descriptors(2 * HOLDERS as u64 + 4 * HONEST as u64 + 4_000);
    let connect = format!("backends={}", backend());
    let program = crate::common::root().join("examples/http_balancer/http_balancer.flick");
    let program = program.to_str().expect("a path of the repository");
    let listen = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--io", io];
    let service = Service::start(&listen);
    let (is_over, failed, answered) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU64::new(0));
    let (before, most) = std::thread::scope(|scope| {
        for number in 0..HONEST {
            let (address, is_over, failed, answered) = (service.address, &is_over, &failed, &answered);
            scope.spawn(move || {
                answered.fetch_add(ask(address, number, is_over, failed), Ordering::Relaxed);
            });
        }
        crate::common::wait::until("honest clients to be there", || {
            (machine::descriptors(service.pid()) > HONEST as u64).then_some(())
        });
        let before = machine::resident_bytes(service.pid());
        let held: Vec<TcpStream> = (0..HOLDERS).map(|_| holder(service.address)).collect();
        let (begun, mut most) = (Instant::now(), 0);
        while begun.elapsed() < LENGTH {
            most = machine::resident_bytes(service.pid()).saturating_sub(before).max(most);
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        drop(held);
        (before, most)
    });
    println!(
        "{io}: {} honest requests; memory grew by {} KiB",
        answered.load(Ordering::Relaxed),
        most / 1024
    );
    assert_eq!(failed.load(Ordering::Relaxed), 0, "{io}: honest requests that failed");
    assert!(answered.load(Ordering::Relaxed) >= HONEST as u64, "every honest client was served");
    let returned = || machine::resident_bytes(service.pid()).saturating_sub(before) < KEPT_BYTES_MAX;
    let is_returned = crate::common::wait::within(RETURN_TIME, || returned().then_some(())).is_some();
    assert!(is_returned, "{io}: memory that no client uses stays with the service");
    service.drained();
    most
}

fn clients_that_do_not_read_fail_no_honest_request(io: &str) {
    let _machine = machine::alone();
    let most = serves_honest_clients_beside(io, |address| {
        let mut reader = wire::connect_narrow(address);
        reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        reader
    });
    assert!(most < HOLDERS as u64 * READER_BYTES_MAX, "{io}: {most} bytes");
}

#[test]
fn three_thousand_clients_that_do_not_read_fail_no_honest_request_epoll() {
    clients_that_do_not_read_fail_no_honest_request("epoll");
}

#[test]
fn three_thousand_clients_that_do_not_read_fail_no_honest_request_uring() {
    clients_that_do_not_read_fail_no_honest_request("uring");
}

#[test]
fn three_thousand_clients_that_upload_slowly_fail_no_honest_request() {
    let _machine = machine::alone();
    serves_honest_clients_beside("auto", |address| {
        let mut sender = client::connect(address);
        let head = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n0123456789";
        sender.write_all(head).expect("the service reads");
        sender
    });
}
