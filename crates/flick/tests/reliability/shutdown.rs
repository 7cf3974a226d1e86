//! The end of a service: nothing that was taken is lost, and nothing keeps it alive beyond its deadline.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flick_load::load::{self, LoadConfig};

use crate::common::service::Service;
use crate::common::wait;
use crate::machine::{self, Lateness};
use crate::mock::Mock;
use crate::proxy::stores;
use crate::wire::{Client, get, set};

/// Time by which a client that does not close its side may exceed a deadline.
const LINGER: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(300);

#[test]
fn drain_under_load_loses_no_request() {
    let _machine = machine::together();
    for io in ["epoll", "uring"] {
        let (_stores, backends) = stores(4);
        let service = Service::proxy(&backends, &["--workers", "2", "--io", io, "--shutdown-timeout", "15s"]);
        let config = LoadConfig { connections: 32, depth: 8, keys: 500, ..LoadConfig::new(service.address) };
        load::populate(&config).expect("every key can be written");
        let run = load::start(config).expect("the load starts");
        let replies = || run.progress().snapshot().counts.replies;
        wait::until("the load to run", || (replies() > 2_000).then_some(()));
        service.signal("TERM");
        let address = service.address;
        wait::until("new clients to be refused", || TcpStream::connect(address).is_err().then_some(()));
        let seen = replies();
        wait::until("present clients to be served", || (replies() > seen + 2_000).then_some(()));
        // Half-way through the drain the load ends by itself, with every reply.
        run.stop();
        let report = run.wait();
        assert_eq!(report.faults(), 0, "{io}: {report:?}");
        let ended = Instant::now();
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(0), "{io}:\n{log}");
        assert!(
            ended.elapsed() < Duration::from_secs(5),
            "{io}: it ends when its clients have, not at the deadline"
        );
    }
}

/// Clients that never stop, of a protocol that cannot say that a reply is the last: in the second half of the deadline
/// each connection ends behind a reply, one after another.
#[test]
fn drain_ends_before_the_shutdown_timeout_with_complete_replies() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let (_stores, backends) = stores(2);
        let service =
            Service::proxy(&backends, &["--workers", "2", "--io", io, "--shutdown-timeout", "500ms"]);
        let (address, running) = (service.address, Arc::new(AtomicU32::new(0)));
        let clients: Vec<_> = (0..8)
            .map(|number| (number, Arc::clone(&running)))
            .map(|(number, running)| std::thread::spawn(move || ask_until_closed(address, number, &running)))
            .collect();
        let first = Client::connect(address);
        wait::until("the load to run", || (running.load(Ordering::Relaxed) == 8).then_some(()));
        let begun = Instant::now();
        service.signal("TERM");
        let asked: Vec<u32> =
            clients.into_iter().map(|client| client.join().expect("no wrong reply")).collect();
        assert!(asked.iter().all(|count| *count > 0), "{io}: {asked:?}");
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(250), "{io}: they were served in the first half: {took:?}");
        drop(first);
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(0), "{io}:\n{log}");
        let most = Duration::from_millis(500) + LINGER + SLACK + lateness.allowance();
        assert!(begun.elapsed() < most, "{io}: {:?}", begun.elapsed());
    }
}

/// Asks without pause until the connection ends; it must end between replies, never inside one. Counts itself in
/// `running` at the first reply. Returns the replies.
fn ask_until_closed(address: std::net::SocketAddr, number: u32, running: &AtomicU32) -> u32 {
    let mut client = Client::connect(address);
    let key = format!("client-{number}");
    for opaque in 0.. {
        let request = if opaque % 2 == 0 { set(opaque, &key, key.as_bytes()) } else { get(opaque, &key) };
        if client.try_send(&request).is_err() {
            return opaque;
        }
        match client.try_reply() {
            Some(reply) => {
                assert_eq!(reply.header.opaque, opaque);
                running.fetch_add(u32::from(opaque == 0), Ordering::Relaxed);
            }
            None => return opaque,
        }
    }
    unreachable!("the service ends first")
}

/// A backend that never answers: the deadline holds all the same.
#[test]
fn shutdown_timeout_applies_to_requests_in_flight() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let mock = silent();
        let service = Service::proxy(
            &[mock.address],
            &["--workers", "1", "--io", io, "--shutdown-timeout", "300ms", "--response-timeout", "60s"],
        );
        let mut client = Client::connect(service.address);
        client.send(&get(1, "key"));
        wait::until("the request to be in flight", || (mock.accepted() > 0).then_some(()));
        let begun = Instant::now();
        service.signal("TERM");
        let (status, log) = service.ended();
        let took = begun.elapsed();
        assert_eq!(status.code(), Some(0), "{io}:\n{log}");
        assert!(took >= Duration::from_millis(280), "{io}: {took:?}");
        let most = Duration::from_millis(300) + LINGER + SLACK + lateness.allowance();
        assert!(took < most, "{io}: {took:?}");
        client.expect_closed();
    }
}

#[test]
fn second_signal_exits_at_once() {
    let _machine = machine::alone();
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let lateness = Lateness::watch();
        let mock = silent();
        let service = Service::proxy(
            &[mock.address],
            &["--workers", "1", "--shutdown-timeout", "60s", "--response-timeout", "60s"],
        );
        let mut client = Client::connect(service.address);
        client.send(&get(1, "key"));
        service.signal("TERM");
        let address = service.address;
        wait::until("the drain to begin", || TcpStream::connect(address).is_err().then_some(()));
        let begun = Instant::now();
        service.signal(signal);
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(code), "{log}");
        assert!(begun.elapsed() < SLACK + lateness.allowance(), "{:?}", begun.elapsed());
        client.expect_closed();
    }
}

/// Takes requests and never answers.
fn silent() -> Mock {
    Mock::start(|conversation| while conversation.request().is_some() {})
}

/// The kernel completes connections while the process is stopped. When it goes on, it has the signal, and a backlog of
/// clients that no worker has accepted: each has its reply before the listening sockets are gone for it.
#[test]
fn sigterm_reset_clients_in_the_listen_backlog() {
    const CLIENTS: u32 = 300;
    let _machine = machine::together();
    for io in ["epoll", "uring"] {
        let (_stores, backends) = stores(2);
        let service = Service::proxy(&backends, &["--workers", "2", "--io", io, "--shutdown-timeout", "20s"]);
        service.signal("STOP");
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(service.address)).collect();
        for (opaque, client) in clients.iter_mut().enumerate() {
            client.send(&get(opaque as u32, "key"));
        }
        service.signal("TERM");
        service.signal("CONT");
        for (opaque, client) in clients.iter_mut().enumerate() {
            let reply = client.try_reply().unwrap_or_else(|| panic!("{io}: client {opaque} has no reply"));
            assert_eq!(reply.header.opaque, opaque as u32, "{io}");
        }
        drop(clients);
        let (status, log) = service.ended();
        assert_eq!(status.code(), Some(0), "{io}:\n{log}");
    }
}
