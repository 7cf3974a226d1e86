//! Clients that ask for much and do not read it, or send slowly: they cost bounded memory, and others are served.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flick_load::binary::Status;

use crate::common::http::{self, Backend};
use crate::common::peers::{self, Memcached};
use crate::common::service::Service;
use crate::machine::{self, Lateness};
use crate::wire::{self, Client, get, key_on, set};

const MIB: u64 = 1 << 20;
const READERS: usize = 300;
/// Memory that one of them may hold when memory is short: a bound of the platform, and the bytes of one receive beyond
/// it.
const READER_BYTES_MAX: u64 = 256 * 1024 + 64 * 1024;
/// Memory for buffers, and the share of it that slow readers may take before it counts as short.
const BUFFERS: u64 = 256 * MIB;
const PLENTY_BYTES: u64 = BUFFERS * 3 / 4 / 4;

#[test]
fn m13_slow_readers_of_large_values_cost_bounded_memory() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let servers = Memcached::several(2);
        let backends = peers::addresses(&servers);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io, "--buffer-memory", "256MiB"]);
        let (large, small) = (key_on(0, 2, "large"), key_on(0, 2, "small"));
        let elsewhere = key_on(1, 2, "elsewhere");
        let mut writer = Client::connect(service.address);
        let value = vec![b'v'; MIB as usize - 1_000];
        for (key, value) in [(&large, &value[..]), (&small, b"s"), (&elsewhere, b"e")] {
            assert_eq!(writer.ask(&set(1, key, value)).status(), Some(Status::NoError));
        }
        assert_eq!(writer.ask(&get(1, &large)).value().len(), value.len());
        // One that got long replies itself takes turns with those of the readers.
        let mut healthy = Client::connect(service.address);
        let before = machine::resident_bytes(service.pid());
        let asked: Vec<u8> = (0..3).flat_map(|opaque| get(opaque, &large)).collect();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let mut reader = wire::connect_narrow(service.address);
                reader.write_all(&asked).expect("the service reads");
                reader
            })
            .collect();
        let (begun, mut most, mut slowest) = (Instant::now(), 0, [Duration::ZERO; 2]);
        let mut rounds = 0;
        while begun.elapsed() < Duration::from_secs(6) {
            for (slowest, key) in slowest.iter_mut().zip([&small, &elsewhere]) {
                let asked = Instant::now();
                assert_eq!(healthy.ask(&get(rounds, key)).outcome(), (Some(Status::NoError), rounds), "{io}");
                *slowest = (*slowest).max(asked.elapsed());
            }
            rounds += 1;
            most = machine::resident_bytes(service.pid()).saturating_sub(before).max(most);
        }
        println!(
            "{io}: memory grew by {} MiB for {READERS} readers; {rounds} healthy rounds, slowest {:?} on their \
             backend, {:?} on another",
            most / MIB,
            slowest[0],
            slowest[1]
        );
        assert!(most < PLENTY_BYTES + READERS as u64 * READER_BYTES_MAX, "{io}: {most} bytes");
        // A machine that has other things to do is late with every wake-up, and a slow reader costs its backend
        // several.
        let late = lateness.allowance();
        assert!(slowest[0] < Duration::from_secs(4) + 4 * late, "{io}: their own backend: {:?}", slowest[0]);
        assert!(slowest[1] < Duration::from_millis(500) + late, "{io}: another backend: {:?}", slowest[1]);
        drop((readers, healthy, writer));
        service.drained();
    }
}

/// Large values to several clients that read at once: none is taken for a slow reader.
#[test]
fn large_values_of_several_backends_reach_their_clients() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let servers = Memcached::several(4);
        let backends = peers::addresses(&servers);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io]);
        let keys: Vec<String> = (0..4).map(|backend| key_on(backend, 4, "large")).collect();
        let value = vec![b'v'; MIB as usize - 1_000];
        let mut writer = Client::connect(service.address);
        for key in &keys {
            assert_eq!(writer.ask(&set(1, key, &value)).status(), Some(Status::NoError), "{io}");
        }
        std::thread::scope(|scope| {
            for client in 0..4_usize {
                let (address, keys, len) = (service.address, &keys, value.len());
                scope.spawn(move || {
                    let mut reader = Client::connect(address);
                    for round in 0..5_u32 {
                        // Each begins at another backend, so that they get into each other's way.
                        let asked =
                            (0..8).flat_map(|at| get(round * 8 + at, &keys[(client + at as usize) % 4]));
                        reader.send(&asked.collect::<Vec<u8>>());
                        for at in 0..8 {
                            let reply = reader.reply();
                            assert_eq!(reply.outcome(), (Some(Status::NoError), round * 8 + at), "{io}");
                            assert_eq!(reply.value().len(), len, "{io}");
                        }
                    }
                });
            }
        });
        drop(writer);
        service.drained();
    }
}

/// Connections to the backend, and clients that want to keep all of them.
const CONNECTIONS: &str = "16";
const HOLDERS: usize = 40;

/// 2 MB for `/large`, and little for everything else.
fn page(target: &str, size: usize) -> Vec<u8> {
    vec![b'x'; if target == "/large" { 2_000_000 } else { size }]
}

/// The HTTP balancer before one backend, with one worker.
fn balancer(backend: &Backend, extra: &[&str]) -> Service {
    let program = crate::common::root().join("examples/http_balancer/round_robin.flick");
    let program = program.to_str().expect("a path of the repository");
    let connect = format!("backends={}", backend.address);
    let mut args =
        vec!["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--workers", "1"];
    args.extend_from_slice(extra);
    Service::start(&args)
}

/// Requests of an honest client while other clients hold all connections to the backend: none fails.
fn serves_others_beside(holders: impl Fn(SocketAddr) -> TcpStream) {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let backend = Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 5).expect("a free port");
        let service = balancer(&backend, &["--io", io, "--max-connections-per-backend", CONNECTIONS]);
        let held: Vec<TcpStream> = (0..HOLDERS).map(|_| holders(service.address)).collect();
        for round in 0..50 {
            // A connection of its own for each request: the client that asks next must not be the one that pays.
            let mut honest = crate::common::client::connect(service.address);
            let (status, body) = http::exchange(&mut honest, "/small").expect("an honest client is answered");
            assert_eq!((status, body.len()), (200, 5), "{io}, request {round}");
        }
        drop(held);
        service.drained();
        backend.stop();
    }
}

#[test]
fn clients_that_do_not_read_do_not_take_all_backend_connections() {
    serves_others_beside(|address| {
        let mut reader = wire::connect_narrow(address);
        reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        reader
    });
}

#[test]
fn clients_that_upload_slowly_do_not_take_all_backend_connections() {
    serves_others_beside(|address| {
        let mut sender = crate::common::client::connect(address);
        let head = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n0123456789";
        sender.write_all(head).expect("the service reads");
        sender
    });
}

/// One client of an address holds a connection idle for longer than all others, which are of one other address.
#[test]
fn clients_of_the_address_that_holds_most_connections_are_closed_first() {
    let _machine = machine::alone();
    let asks = |last: u8, service: &Service| {
        let mut reader = wire::connect_narrow_from(Ipv4Addr::new(127, 0, 0, last), service.address);
        reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        reader
    };
    for io in ["epoll", "uring"] {
        let backend = Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 5).expect("a free port");
        let service = balancer(&backend, &["--io", io, "--max-connections-per-backend", "4"]);
        let mut first = asks(2, &service);
        crate::common::wait::until("its request to reach the backend", || {
            (backend.requests.load(Ordering::SeqCst) > 0).then_some(())
        });
        let held: Vec<TcpStream> = (0..8).map(|_| asks(3, &service)).collect();
        for round in 0..20 {
            let mut honest = crate::common::client::connect(service.address);
            let (status, _) = http::exchange(&mut honest, "/small").expect("an honest client is answered");
            assert_eq!(status, 200, "{io}, request {round}");
        }
        let mut reply = Vec::new();
        first.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout above zero");
        let read = Read::take(&mut first, 2_000_000).read_to_end(&mut reply);
        assert!(matches!(read, Ok(2_000_000)), "{io}: {read:?}, {} bytes", reply.len());
        drop(held);
        service.drained();
        backend.stop();
    }
}

/// Most bytes that one of them may cost: 32 KiB that wait to be sent, and what one poll receives beyond that.
const HTTP_READER_BYTES_MAX: u64 = 100_000;

/// More clients than a backend has connections for ask for much and do not read; others are served all the time.
#[test]
fn clients_that_do_not_read_cost_little_memory_and_no_request_of_others() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let backend = Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 5).expect("a free port");
        let service = balancer(&backend, &["--io", io, "--max-connections-per-backend", "400"]);
        let before = machine::resident_bytes(service.pid());
        let held: Vec<TcpStream> = (0..600)
            .map(|_| {
                let mut reader = wire::connect_narrow(service.address);
                reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
                reader
            })
            .collect();
        let (begun, mut most, mut rounds) = (Instant::now(), 0, 0);
        while begun.elapsed() < Duration::from_secs(2) {
            let mut honest = crate::common::client::connect(service.address);
            let (status, body) = http::exchange(&mut honest, "/small").expect("an honest client is answered");
            assert_eq!((status, body.len()), (200, 5), "{io}, request {rounds}");
            rounds += 1;
            most = machine::resident_bytes(service.pid()).saturating_sub(before).max(most);
        }
        println!("{io}: memory grew by {} KiB; {rounds} honest requests", most / 1024);
        // No more of them hold a connection at one time, and the tables of the service grow, too.
        assert!(most < 400 * HTTP_READER_BYTES_MAX + 8 * MIB, "{io}: {most} bytes");
        drop(held);
        service.drained();
        backend.stop();
    }
}

/// A container of 128 MiB with default settings: the buffers fit into it, and clients that do not read stay within it.
#[test]
fn clients_that_do_not_read_fit_into_a_small_container() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let backend = Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 5).expect("a free port");
        let service = balancer(&backend, &["--io", io, "--max-memory", "128MiB"]);
        let held: Vec<TcpStream> = (0..400)
            .map(|_| {
                let mut reader = wire::connect_narrow(service.address);
                reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
                reader
            })
            .collect();
        let (begun, mut most) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(3) {
            most = machine::resident_bytes(service.pid()).max(most);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(most < 128 * MIB, "{io}: {} MiB", most / MIB);
        drop(held);
        crate::common::wait::until("an honest client to be served", || {
            let mut honest = crate::common::client::connect(service.address);
            http::exchange(&mut honest, "/small").ok().filter(|(status, _)| *status == 200)
        });
        service.drained();
        backend.stop();
    }
}
