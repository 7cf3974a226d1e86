//! Busy keep-alive clients of HTTP while a service drains: a response of each says that it is the last.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::client::connect;
use crate::common::http::{self, Backend};
use crate::common::service::Service;
use crate::common::{Scratch, wait};
use crate::machine;

const CLIENTS: u64 = 12;
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// All clients are answered once more, and close.
const DRAIN_MAX: Duration = Duration::from_secs(4);
/// Half of it, from the end of the reload on, must pass before responses to clients with a state of their own say
/// `close`.
const OLD_GENERATION_TIMEOUT: Duration = Duration::from_secs(4);

/// A balancer whose clients have a state of their own, and so cannot migrate.
const STATEFUL: &str = r"
use http

proc Balancer: (request/response client, [response/request] backends)
  local asked := 0
  | backends => client
  | client => counted() => backends[0]

fun counted: (req: request) -> (request)
  asked := asked + 1
  req
";

/// Clients that ask without pause until a response says that it is the last.
struct Busy {
    clients: Vec<JoinHandle<Result<(), String>>>,
    replies: &'static AtomicU64,
}

impl Busy {
    fn start(address: SocketAddr, replies: &'static AtomicU64) -> Self {
        replies.store(0, Ordering::SeqCst);
        let clients = (0..CLIENTS).map(|_| std::thread::spawn(move || ask(address, replies))).collect();
        wait::until("the clients to be busy", || {
            (replies.load(Ordering::SeqCst) > 50 * CLIENTS).then_some(())
        });
        Self { clients, replies }
    }

    /// Checks that every client has had every response, the last of which said so.
    fn check(self) {
        for client in self.clients {
            let answered = client.join().expect("a client does not panic");
            assert_eq!(answered, Ok(()), "after {} replies", self.replies.load(Ordering::SeqCst));
        }
    }
}

/// Asks until a response says `Connection: close`; the connection ends behind it.
fn ask(address: SocketAddr, replies: &AtomicU64) -> Result<(), String> {
    let mut stream = connect(address);
    loop {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).map_err(|error| format!("no request can be sent: {error}"))?;
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok") {
            let mut piece = [0; 512];
            match stream.read(&mut piece) {
                Ok(0) => return Err(format!("closed after {:?}", String::from_utf8_lossy(&response))),
                Ok(len) => response.extend_from_slice(&piece[..len]),
                Err(error) => return Err(format!("no response: {error}")),
            }
        }
        replies.fetch_add(1, Ordering::SeqCst);
        if String::from_utf8_lossy(&response).contains("\r\nconnection: close\r\n") {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).map_err(|error| format!("not closed in order: {error}"))?;
            return if rest.is_empty() { Ok(()) } else { Err("bytes behind the last response".to_owned()) };
        }
    }
}

fn ok(_target: &str, _size: usize) -> Vec<u8> {
    b"ok".to_vec()
}

fn origin() -> Backend {
    Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), ok as fn(&str, usize) -> Vec<u8>, 0)
        .expect("a free port is free")
}

#[test]
fn drain_of_busy_keep_alive_clients_took_the_whole_deadline() {
    static REPLIES: AtomicU64 = AtomicU64::new(0);
    let _machine = machine::together();
    for io in ["epoll", "uring"] {
        let origin = origin();
        let connect = format!("backends={}", origin.address);
        let timeout = format!("{}s", SHUTDOWN_TIMEOUT.as_secs());
        let service = Service::start(&[
            "run",
            "examples/http_balancer/round_robin.flick",
            "--listen",
            "client=127.0.0.1:0",
            "--connect",
            &connect,
            "--workers",
            "2",
            "--io",
            io,
            "--shutdown-timeout",
            &timeout,
        ]);
        let busy = Busy::start(service.address, &REPLIES);
        let begun = Instant::now();
        service.signal("TERM");
        busy.check();
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(0), "{io}:\n{log}");
        let took = begun.elapsed();
        assert!(took < DRAIN_MAX, "{io}: it is over with the last response, not after {took:?}");
    }
}

#[test]
fn reload_cut_the_last_requests_of_clients_with_state() {
    static REPLIES: AtomicU64 = AtomicU64::new(0);
    let _machine = machine::together();
    let origin = origin();
    let scratch = Scratch::new("reload_cut");
    let program = scratch.write("balancer.flick", STATEFUL);
    let program = program.to_str().expect("a path of ours is a text");
    let connect = format!("backends={}", origin.address);
    let timeout = format!("{}s", OLD_GENERATION_TIMEOUT.as_secs());
    let service = Service::start(&[
        "run",
        program,
        "--listen",
        "client=127.0.0.1:0",
        "--connect",
        &connect,
        "--workers",
        "2",
        "--old-generation-timeout",
        &timeout,
    ]);
    let busy = Busy::start(service.address, &REPLIES);
    let begun = Instant::now();
    service.signal("HUP");
    busy.check();
    let took = begun.elapsed();
    assert!(took >= OLD_GENERATION_TIMEOUT / 2, "their state is kept for a while: {took:?}");
    let mut stream = crate::common::client::connect(service.address);
    assert_eq!(http::exchange(&mut stream, "/").expect("the new generation answers").1, b"ok");
    drop(stream);
    service.drained();
}
