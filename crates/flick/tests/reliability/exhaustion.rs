//! The limits of the machine and of the operator: reached, borne, and left again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use flick_load::binary::Status;
use flick_runtime::OnMaxConnections;
use rustix::net::{AddressFamily, SocketType};

use crate::common::client::connect;
use crate::common::http::{self, Backend};
use crate::common::peers::free_address;
use crate::common::service::Service;
use crate::common::{self, wait};
use crate::machine::{self, Lateness};
use crate::proxy::{IOS, Proxy, stores};
use crate::wire::{Client, get};

const IDLE: usize = 10_000;
/// User memory that an idle connection may cost.
const IDLE_BYTES_MAX: u64 = 2 * 1024;

#[test]
fn idle_connections_cost_little() {
    let _machine = machine::alone();
    machine::want_descriptors(IDLE as u64 + 500);
    for io in ["epoll", "uring"] {
        let (_stores, backends) = stores(2);
        // The same service for few clients: what both have is not the price of a connection, the larger tables are.
        let small = Service::proxy(&backends, &["--workers", "1", "--io", io, "--max-connections", "100"]);
        let _few: Vec<Client> = (0..90).map(|number| used(small.address, number)).collect();
        let most = (IDLE + 100).to_string();
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io, "--max-connections", &most]);
        let mut probe = Client::connect(service.address);
        let idle: Vec<Client> = (0..IDLE).map(|number| used(service.address, number)).collect();
        assert_eq!(probe.ask(&get(1, "probe")).status(), Some(Status::KeyNotFound), "{io}");
        let sockets = machine::descriptors(service.pid());
        assert!(sockets > IDLE as u64, "{io}: all of them are connected: {sockets}");
        let (few, many) = (machine::resident_bytes(small.pid()), machine::resident_bytes(service.pid()));
        let each = many.saturating_sub(few) / IDLE as u64;
        println!(
            "{io}: {each} bytes for each of {IDLE} idle connections; {few} bytes in all for few, {many} for many"
        );
        assert!(each <= IDLE_BYTES_MAX, "{io}: {each} bytes for each idle connection");
        drop((idle, probe));
        service.drained();
    }
}

/// A connection that has been used once, from one of two addresses so that ports suffice.
pub fn used(address: SocketAddr, number: usize) -> Client {
    let from = Ipv4Addr::new(127, 0, 0, 1 + (number % 2) as u8);
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor is left");
    rustix::net::bind(&socket, &SocketAddr::new(IpAddr::V4(from), 0)).expect("all of 127/8 is ours");
    rustix::net::connect(&socket, &address).expect("the service accepts");
    let mut client = Client::of(TcpStream::from(socket));
    let reply = client.ask(&get(number as u32, &format!("key-{number}")));
    assert_eq!(reply.outcome(), (Some(Status::KeyNotFound), number as u32));
    client
}

#[test]
fn file_descriptors_exhausted_pauses_accepting_without_a_busy_loop() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let (_stores, backends) = stores(2);
        let service = Service::proxy(&backends, &["--workers", "2", "--io", io]);
        let mut present: Vec<Client> = (0..8).map(|number| used(service.address, number)).collect();
        let limited = Instant::now();
        let before = machine::limit_descriptors(service.pid(), machine::descriptors(service.pid()) + 20);
        // The kernel completes these; the service cannot accept most of them.
        let mut waiting: Vec<Client> = (0..200).map(|_| Client::connect(service.address)).collect();
        waiting.iter_mut().for_each(|client| client.send(&get(9, "waiting")));
        wait::until("the descriptors to be used up", || {
            (machine::descriptors(service.pid()) >= 20 + 8).then_some(())
        });
        // Over a second, present clients are served, and that is all that costs time.
        let (begun, used_before) = (Instant::now(), machine::processor_time(service.pid()));
        let mut asked = 0;
        while begun.elapsed() < Duration::from_secs(1) {
            for client in &mut present {
                asked += 1;
                assert_eq!(client.ask(&get(asked, "present")).status(), Some(Status::KeyNotFound), "{io}");
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let busy = machine::processor_time(service.pid()) - used_before;
        println!("{io}: {busy:?} of processor time in {:?} without descriptors", begun.elapsed());
        // One worker that spins uses a core whole.
        assert!(busy < begun.elapsed() / 2, "{io}: {busy:?}");
        machine::limit_descriptors(service.pid(), before);
        let released = Instant::now();
        for client in &mut waiting {
            assert_eq!(client.reply().outcome(), (Some(Status::KeyNotFound), 9), "{io}");
        }
        let took = released.elapsed();
        assert!(took < Duration::from_secs(1) + lateness.allowance(), "{io}: {took:?} until all were served");
        println!("{io}: all served {took:?} after the release");
        drop((present, waiting));
        let log = service.drained();
        // Both workers together: one line a second.
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("os error 24")).collect();
        let lines_max = released.duration_since(limited).as_secs() as usize + 1;
        assert!(lines.len() <= lines_max, "{io}: at most {lines_max}: {lines:#?}");
        // An accept that io_uring has taken before obeys the limit of that time.
        let is_logged = lines.first().is_some_and(|line| line.contains("cannot accept a client"));
        assert!(is_logged || io == "uring", "{io}: {lines:#?}");
    }
}

/// The other way out: clients leave.
#[test]
fn file_descriptors_exhausted_resumes_accepting_when_clients_disconnect() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let (_stores, backends) = stores(1);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io]);
        let present: Vec<Client> = (0..50).map(|number| used(service.address, number)).collect();
        machine::limit_descriptors(service.pid(), machine::descriptors(service.pid()));
        let mut waiting: Vec<Client> = (0..40).map(|_| Client::connect(service.address)).collect();
        waiting.iter_mut().for_each(|client| client.send(&get(9, "waiting")));
        drop(present);
        let released = Instant::now();
        for client in &mut waiting {
            assert_eq!(client.reply().outcome(), (Some(Status::KeyNotFound), 9), "{io}");
        }
        let took = released.elapsed();
        assert!(took < Duration::from_secs(1) + lateness.allowance(), "{io}: {took:?}");
        drop(waiting);
        service.drained();
    }
}

#[test]
fn over_the_limit_clients_are_rejected_with_reject() {
    let _machine = machine::together();
    for io in IOS {
        for workers in [1, 2] {
            let (_stores, backends) = stores(1);
            let proxy = Proxy::start(&backends, io, |config| {
                config.workers = workers;
                config.limits.max_connections = 10;
                config.limits.on_max_connections = OnMaxConnections::Reject;
            });
            let mut present: Vec<Client> = (0..10).map(|number| used(proxy.address(), number)).collect();
            for number in 1..=5 {
                Client::connect(proxy.address()).expect_closed();
                proxy.until("the refusal to be counted", |totals| totals.connections_rejected == number);
            }
            for (opaque, client) in (0..).zip(&mut present) {
                assert_eq!(client.ask(&get(opaque, "key")).status(), Some(Status::KeyNotFound), "{io:?}");
            }
            present.pop();
            proxy.until("one session to end", |totals| totals.connections_open == 9);
            used(proxy.address(), 1);
            let totals = proxy.totals();
            assert_eq!((totals.connections_accepted, totals.accept_pauses), (11, 0), "{io:?}");
        }
    }
}

#[test]
fn over_the_limit_clients_wait_with_queue() {
    let _machine = machine::together();
    for io in IOS {
        for workers in [1, 2] {
            let (_stores, backends) = stores(1);
            let proxy = Proxy::start(&backends, io, |config| {
                config.workers = workers;
                config.limits.max_connections = 10;
                config.limits.on_max_connections = OnMaxConnections::Queue;
            });
            let mut present: Vec<Client> = (0..10).map(|number| used(proxy.address(), number)).collect();
            proxy.until("accepting to pause", |totals| totals.accept_pauses > 0);
            let mut waiting: Vec<Client> = (0..30).map(|_| Client::connect(proxy.address())).collect();
            waiting.iter_mut().for_each(|client| client.send(&get(9, "waiting")));
            for (opaque, client) in (0..).zip(&mut present) {
                assert_eq!(client.ask(&get(opaque, "key")).status(), Some(Status::KeyNotFound), "{io:?}");
            }
            drop(present);
            // All are served, ten at a time, in whatever order they are let in.
            let mut served = 0;
            while !waiting.is_empty() {
                wait::until("the next ones to be served", || {
                    let answered = waiting.len();
                    waiting.retain_mut(|client| {
                        let is_answered = client.is_readable();
                        if is_answered {
                            assert_eq!(client.reply().outcome(), (Some(Status::KeyNotFound), 9), "{io:?}");
                        }
                        !is_answered
                    });
                    served += answered - waiting.len();
                    (answered > waiting.len()).then_some(())
                });
            }
            assert_eq!(served, 30);
            let totals = proxy.totals();
            assert_eq!(
                (totals.connections_rejected, totals.connections_accepted),
                (0, 40),
                "{io:?}, {workers} workers"
            );
        }
    }
}

/// Descriptors of a service that may have few, and the clients that come to it and say nothing.
const FEW: u32 = 100;
const SILENT: usize = 150;

#[test]
fn idle_clients_took_all_descriptors_and_requests_were_answered_with_503() {
    let _machine = machine::together();
    let backend = Backend::start_at(([127, 0, 0, 1], 0).into(), http::filled, 10).expect("a free port");
    for io in ["epoll", "uring"] {
        let mut command = Command::new("sh");
        let (script, backends) =
            (format!("ulimit -n {FEW}; exec \"$0\" \"$@\""), format!("backends={}", backend.address));
        command.args(["-c", &script, env!("CARGO_BIN_EXE_flick"), "run"]);
        command.args(["examples/http_balancer/http_balancer.flick", "--listen", "client=127.0.0.1:0"]);
        command.args(["--connect", &backends, "--io", io, "--workers", "1"]);
        command.current_dir(common::root()).env("NO_COLOR", "1").env_remove("FLICK_LOG");
        let service = Service::start_as(command);
        let mut early = connect(service.address);
        let ask = |client: &mut TcpStream, who: &str| {
            let reply = http::exchange(client, "/").unwrap_or_else(|error| panic!("{io}, {who}: {error}"));
            assert_eq!(reply.0, 200, "{io}, {who}");
        };
        ask(&mut early, "a client that was there before");
        let silent: Vec<TcpStream> = (0..SILENT).map(|_| connect(service.address)).collect();
        let address = service.address;
        let late = std::thread::spawn(move || {
            let mut late = connect(address);
            (0..100).map(|_| http::exchange(&mut late, "/").map(|reply| reply.0).ok()).collect::<Vec<_>>()
        });
        let mut asked = 0;
        while !late.is_finished() {
            ask(&mut early, "a client that was there before");
            asked += 1;
        }
        let late = late.join().expect("no panic");
        assert!(late.iter().all(|status| *status == Some(200)), "{io}: {late:?}");
        assert!(asked > 100, "{asked} requests are no load");
        drop((early, silent));
        let log = service.drained();
        assert!(
            log.contains("each service takes at most ") && log.contains("clients_evicted"),
            "{io}: {log}"
        );
        assert!(!log.contains("cannot connect") && !log.contains("cannot accept"), "{io}: {log}");
    }
}

/// Descriptors that are free when a reload begins: from those that a client needs to more than a reload needs.
const FREE_DESCRIPTORS: std::ops::Range<u64> = 4..64;

/// A reload with few free descriptors serves, or fails and changes nothing. It had begun to serve when its thread found
/// that it could not open the last of them.
#[test]
fn reload_with_few_descriptors_left_its_services_without_a_thread() {
    let _machine = machine::alone();
    let scratch = common::Scratch::new("few-descriptors");
    let program = common::root().join("examples/http_static/http_static.flick");
    let mut outcomes = [0; 2];
    for free in FREE_DESCRIPTORS.step_by(2) {
        let at = [free_address(), free_address()];
        let services = at.iter().enumerate().map(|(index, at)| {
            format!(
                "[[service]]\nname = \"page{index}\"\nprogram = {program:?}\nlisten = {{ client = \"{at}\" }}\n"
            )
        });
        let settings = format!("workers = 1\n{}", services.collect::<String>());
        let settings = scratch.write("flick.toml", &settings);
        let state = scratch.path().join("state");
        let (settings, state) = (settings.to_str().expect("UTF-8"), state.to_str().expect("UTF-8"));
        let service = Service::start(&["run", "--config", settings, "--state-dir", state]);
        let serve = || {
            for address in at {
                wait::until("a response", || {
                    let mut client = TcpStream::connect(address).ok()?;
                    http::exchange(&mut client, "/").ok().filter(|(status, _)| *status == 200)
                });
            }
        };
        serve();
        machine::cap_descriptors(service.pid(), machine::descriptors(service.pid()) + free);
        service.signal("HUP");
        let outcome = wait::until("the reload to end", || {
            let log = service.log();
            ["the reload failed", "reloaded: "].iter().position(|outcome| log.contains(outcome))
        });
        outcomes[outcome] += 1;
        serve();
        let log = service.drained();
        assert!(!log.contains("a worker ended"), "{log}");
    }
    let [failed, done] = outcomes;
    println!("{failed} reloads failed, {done} served");
    assert!(failed > 0 && done > 0, "{failed} reloads failed, {done} served");
}
