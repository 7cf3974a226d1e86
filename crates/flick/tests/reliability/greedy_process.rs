//! A process that holds all connections of a service through shared memory, and others that come later.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::conn::RingRead;
use flick_shm::pairing::{PairPolicy, connect_pair};
use flick_shm::segment::SegmentConfig;
use rustix::event::Timespec;

use crate::common::http::Backend;
use crate::common::service::{Service, seen};
use crate::common::wait;
use crate::machine;

/// Variable that makes this binary the greedy process.
const NAME: &str = "FLICK_TEST_GREEDY_PROCESS";
const CONNECTIONS_MAX: u32 = 40;
const DESCRIPTORS: u64 = 256;
/// Time for which clients wait at once.
const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The greedy process, when this binary is started again; otherwise nothing. It ends with its standard input.
#[test]
fn holder() {
    let Ok(name) = std::env::var(NAME) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let of_input = Arc::clone(&is_over);
    let input = std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        of_input.store(true, Ordering::Release);
    });
    let conns = 3 * CONNECTIONS_MAX;
    let mut clients = ClientSet::new(&ClientConfig::new(conns)).expect("an epoll");
    let to = ClientAddress::Shm(name);
    (0..conns).for_each(|token| clients.connect(token, &to).expect("the service pairs"));
    let mut events = Vec::with_capacity(64);
    while !is_over.load(Ordering::Acquire) {
        clients.wait(&mut events, Some(SHORT)).expect("an epoll");
        for event in &events {
            // It lost one, and wants another.
            if let ClientEvent::Readable(token) | ClientEvent::Failed(token) = *event {
                clients.close(token);
                let _ = clients.connect(token, &to);
            }
        }
    }
    input.join().expect("it only reads");
}

fn client_connections(service: &Service) -> u32 {
    let (_, text) = seen(service.admin_address(), "/metrics");
    let line = text.lines().find(|line| line.starts_with("flick_client_connections"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no metric in\n{text}")) as u32
}

/// Sends a request through each of `conns` connections of its own, and keeps them until all have a response.
fn ask(to: &ClientAddress, conns: u32) {
    let mut client = ClientSet::new(&ClientConfig::new(conns)).expect("an epoll");
    (0..conns).for_each(|token| client.connect(token, to).expect("the service pairs"));
    let (mut events, mut out) = (Vec::with_capacity(64), [0; 512]);
    let mut waiting: Vec<u32> = (0..conns).collect();
    wait::until("responses beside a greedy process", || {
        client.wait(&mut events, Some(SHORT)).expect("an epoll");
        for event in &events {
            assert!(!matches!(event, ClientEvent::Failed(_)), "{event:?}");
            if let ClientEvent::Connected(token) = *event {
                let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                assert_eq!(client.send(token, request).ok(), Some(request.len()));
            }
        }
        waiting.retain(|token| match client.receive(*token, &mut out) {
            Ok(RingRead::Bytes(count)) => {
                let response = String::from_utf8_lossy(&out[..count]);
                assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                false
            }
            Ok(RingRead::Empty) => true,
            other => panic!("{other:?}"),
        });
        waiting.is_empty().then_some(())
    });
}

/// Starts a service in front of a backend; returns its name, too.
fn start(io: &str) -> (Backend, String, Service) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_at(any, |_, _| b"hello".to_vec(), 0).expect("a free port");
    let program = crate::common::root().join("examples/http_balancer/round_robin.flick");
    let name = format!("greedy-process-{io}-{}", std::process::id());
    let listen = format!("client=127.0.0.1:0,shm:{name}");
    let connect = format!("backends={}", backend.address);
    let program = program.to_str().expect("a path of the repository");
    let most = CONNECTIONS_MAX.to_string();
    let options = ["--workers", "1", "--io", io, "--admin", "0", "--max-connections", &most];
    let args = ["run", program, "--listen", &listen, "--connect", &connect];
    let service = Service::start(&[&args[..], &options].concat());
    (backend, name, service)
}

/// Processes that pair as often as they can, with a service that has few descriptors.
#[test]
fn pairs_of_one_process_took_all_descriptors() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let (backend, name, service) = start(io);
        let before = machine::descriptors(service.pid());
        machine::limit_descriptors(service.pid(), DESCRIPTORS);
        let config = SegmentConfig { slots: 128, arena_bytes: 64 << 10, huge_pages: false };
        let pairs: Vec<_> = (0..DESCRIPTORS)
            .filter_map(|_| connect_pair(&name, &config, PairPolicy::SameUser).ok())
            .collect();
        assert!(pairs.iter().any(|(_, pair)| pair.is_ok()), "{io}: a process has its first pair");
        let taken = machine::descriptors(service.pid()) - before;
        assert!(taken < DESCRIPTORS / 8, "{io}: {taken} of {DESCRIPTORS} descriptors");
        let mut client = TcpStream::connect(service.address).expect("the service listens");
        let (status, _) = crate::common::http::exchange(&mut client, "/").expect("a descriptor is left");
        assert_eq!(status, 200, "{io}");
        drop((pairs, client));
        service.drained();
        backend.stop();
    }
}

/// Runs a service beside the greedy process, which holds all connections, with each driver.
fn beside_greedy_process(run: impl Fn(&ClientAddress)) {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let (backend, name, service) = start(io);
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "greedy_process::holder", "--nocapture"]).env(NAME, &name);
        let mut greedy =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("this binary starts");
        wait::until("the greedy process to hold all connections", || {
            (client_connections(&service) == CONNECTIONS_MAX).then_some(())
        });
        run(&ClientAddress::Shm(name));
        drop(greedy.stdin.take());
        assert!(greedy.wait().expect("it is a child").success());
        service.drained();
        backend.stop();
    }
}

#[test]
fn a_process_that_held_all_connections_kept_others_out() {
    beside_greedy_process(|to| {
        for _ in 0..3 {
            ask(to, 1);
        }
    });
}

#[test]
fn a_process_that_came_late_got_one_connection_of_its_share() {
    beside_greedy_process(|to| ask(to, CONNECTIONS_MAX / 2 - 2));
}
