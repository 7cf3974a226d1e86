//! Amplification: the memory that the service holds for the bytes that a client has sent, and the processor time that
//! it spends on them. Source of the limit: a factor of a hundred, which Envoy's maintainers hold their parsers to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::common::process::{processor_time, resident_kib, want_descriptors};
use super::common::{http, wait};
use super::{backend, balancer, connect};

/// Bytes held for each byte sent, at most; the same for time against the client's own.
const FACTOR_MAX: u64 = 100;
/// Clients of one kind at a time, so that what each holds can be seen in the process's memory.
const CLIENTS: usize = 500;
/// Memory that is held for the shortest request: a buffer, and the kernel gives whole pages. So a request of less than
/// 80 bytes may hold more than a hundred times its length.
const HELD_BYTES_MIN: u64 = 8 * 1024;

/// Beginnings of requests: name, bytes; none of them is complete, so that they are held.
fn beginnings() -> Vec<(&'static str, Vec<u8>)> {
    let fields = |count: usize| "A: b\r\n".repeat(count);
    let head = "GET / HTTP/1.1\r\nHost: a\r\n";
    vec![
        ("a short head without its end", head.to_owned().into_bytes()),
        ("many small fields", format!("{head}{}", fields(90)).into_bytes()),
        ("one long field", format!("{head}A: {}", "x".repeat(8_000)).into_bytes()),
        ("a long target", format!("GET /{}", "x".repeat(7_000)).into_bytes()),
        (
            "most of a head",
            format!("{head}A: {}\r\nB: {}", "x".repeat(8_000), "y".repeat(8_000)).into_bytes(),
        ),
        ("a declared body", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999\r\n\r\nx".to_vec()),
        (
            "a chunk of four gigabytes",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx".to_vec(),
        ),
    ]
}

#[test]
fn memory_amplification_is_below_a_hundred() {
    want_descriptors(4 * CLIENTS as u64 + 500);
    let origin = backend(100);
    for (name, bytes) in beginnings() {
        let service = balancer(origin.address, &[]);
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(service.address)).collect();
        // All of them are there, known by one exchange each, so that what a connection costs is not counted.
        for client in &mut clients {
            assert_eq!(http::exchange(client, "/").expect("it is answered").0, 200, "{name}");
        }
        let before = resident_kib(service.pid());
        let mut held = 0;
        for client in &mut clients {
            client.write_all(&bytes).expect("it is open");
        }
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(300) {
            held = held.max(resident_kib(service.pid()).saturating_sub(before));
            std::thread::yield_now();
        }
        let sent = (bytes.len() * CLIENTS) as u64;
        let held_bytes = held * 1024;
        println!("{name}: {} bytes sent, {} held for each", bytes.len(), held_bytes / CLIENTS as u64);
        assert!(
            held_bytes <= (FACTOR_MAX * sent).max(HELD_BYTES_MIN * CLIENTS as u64),
            "{name}: {held_bytes} bytes for {sent}"
        );
        drop(clients);
        service.drained();
    }
}

/// Sends a piece N times over one connection, then reads the replies to the end.
fn spend(stream: &mut TcpStream, piece: &[u8], rounds: usize) {
    for _ in 0..rounds {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    // The service has read it all when it answers the end.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn cpu_amplification_is_below_a_hundred() {
    let origin = backend(100);
    let service = balancer(origin.address, &[]);
    let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(98));
    let kinds: [(&str, Vec<u8>, usize); 5] = [
        ("single bytes of a head", b"x".to_vec(), 4_000),
        ("nonsense in large pieces", vec![0xff; 16_000], 1),
        ("heads of a hundred fields, ahead of all replies", fields.into_bytes(), 200),
        ("chunks of one byte", b"1\r\nx\r\n".to_vec(), 4_000),
        ("empty lines", b"\r\n".to_vec(), 4_000),
    ];
    for (name, piece, rounds) in kinds {
        let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..10 {
            let mut stream = connect(service.address);
            if name.starts_with("chunks") {
                let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(head).expect("it is open");
            }
            let (before, own) = (processor_time(service.pid()), own_time());
            spend(&mut stream, &piece, rounds);
            theirs += own_time() - own;
            ours += processor_time(service.pid()).saturating_sub(before);
        }
        let factor = ours.as_secs_f64() / theirs.as_secs_f64();
        println!("{name}: {ours:?} of the service for {theirs:?} of the client, {factor:.1}");
        assert!(factor < FACTOR_MAX as f64, "{name}: {ours:?} for {theirs:?}");
    }
    let mut after = connect(service.address);
    wait::until("an ordinary client", || http::exchange(&mut after, "/").ok());
    drop(after);
    service.drained();
}
