//! Across threads: waking a driver, and several workers on one Unix address.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{open, pool};
use flick_buffers::Pool;
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind, ListenSockets, Poller};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};

/// Another thread counts up and wakes; every count arrives, though many wakes become one event.
fn check_waking(kind: IoKind) {
    let Some(mut driver) = open(kind, LIMITS) else { return };
    let (waker, pool) = (driver.waker(), pool());
    let (sender, receiver) = mpsc::channel();
    let other = std::thread::spawn(move || {
        for number in 0..10_000u32 {
            sender.send(number).expect("the driver's thread receives to the end");
            waker.wake();
        }
    });
    let (mut next, mut events, mut woken) = (0, Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(30);
    while next < 10_000 {
        assert!(Instant::now() < end, "a wake was lost after {next}");
        driver.poll(&pool, Some(Duration::from_secs(5)), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            assert!(matches!(event, DriverEvent::Woken), "{event:?}");
            woken += 1;
        }
        for number in receiver.try_iter() {
            assert_eq!(number, next);
            next += 1;
        }
    }
    assert!((1..=10_000).contains(&woken));
    other.join().expect("the other thread only counts");
}

/// A thread of several drivers sleeps in its poller between two wakes.
fn check_waking_a_poller(kind: IoKind) {
    let Some(mut driver) = open(kind, LIMITS) else { return };
    let (waker, pool, mut poller) = (driver.waker(), pool(), Poller::new(1).expect("the kernel polls"));
    driver.register(&mut poller, 7).expect("it can be registered");
    let (again, is_asleep) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        while is_asleep.recv().is_ok() {
            // So that the thread sleeps; before that it has nothing to lose.
            std::thread::park_timeout(Duration::from_millis(20));
            waker.wake();
        }
    });
    let mut events = Vec::new();
    for round in 0..10 {
        again.send(()).expect("the other thread waits");
        let end = Instant::now() + Duration::from_secs(5);
        while events.is_empty() {
            let wait = driver.poll_timeout(&pool, None).unwrap_or(Duration::from_secs(5));
            poller.wait(Some(wait), |token| assert_eq!(token, 7)).expect("the kernel polls");
            // A wake that only the end of the wait finds was lost.
            assert!(Instant::now() < end, "{kind:?}: wake {round} was lost");
            driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        }
        assert!(matches!(events[..], [DriverEvent::Woken]), "{events:?}");
        events.clear();
    }
    drop(again);
    other.join().expect("the other thread only wakes");
}

/// Polls a driver that hosts a poller until something came.
fn poll_until(driver: &mut AnyDriver, pool: &Pool, events: &mut Vec<DriverEvent>, what: &str) {
    let end = Instant::now() + Duration::from_secs(5);
    events.clear();
    while events.is_empty() && !driver.take_poller_ready() {
        assert!(Instant::now() < end, "{what}");
        driver.poll(pool, Some(Duration::from_secs(5)), events).expect("the driver polls");
    }
}

/// A thread waits in one driver for itself and for the poller of another driver, again and again.
fn check_hosting_a_poller(kind: IoKind) {
    let (Some(mut host), Some(mut other_driver)) = (open(kind, LIMITS), open(kind, LIMITS)) else { return };
    let (pool, mut poller, mut events) = (pool(), Poller::new(2).expect("the kernel polls"), Vec::new());
    host.register(&mut poller, 0).expect("it can be registered");
    other_driver.register(&mut poller, 1).expect("it can be registered");
    let (socket, mut peer) = UnixStream::pair().expect("a pair of sockets");
    let conn = host.adopt(socket.into()).expect("a slot is free");
    host.receive(conn, true);
    for round in 0..10 {
        host.host_poller(&mut poller, 0).expect("an epoll in an epoll");
        peer.write_all(b"a").expect("it is connected");
        poll_until(&mut host, &pool, &mut events, "an event of its own");
        assert!(matches!(events[..], [DriverEvent::Data { .. }]), "{kind:?}, {round}: {events:?}");
        let waker = other_driver.waker();
        let other = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(2));
            waker.wake();
        });
        let mut tokens = Vec::new();
        // A ring may have signalled something of its own before.
        while !tokens.contains(&1) {
            poll_until(&mut host, &pool, &mut events, "an event of the other driver");
            assert!(events.is_empty(), "{kind:?}, {round}: {events:?}");
            poller.wait(Some(Duration::ZERO), |token| tokens.push(token)).expect("the kernel polls");
        }
        other_driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        assert!(matches!(events[..], [DriverEvent::Woken]), "{kind:?}, {round}: {events:?}");
        other.join().expect("it only wakes");
        host.release_poller(&mut poller, 0).expect("it can be registered");
        events.clear();
        host.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        // As before: the poller has its events again.
        peer.write_all(b"b").expect("it is connected");
        let end = Instant::now() + Duration::from_secs(5);
        while events.is_empty() {
            assert!(Instant::now() < end, "{kind:?}, {round}: an event of the poller");
            let wait = host.poll_timeout(&pool, None).unwrap_or(Duration::from_secs(5));
            poller.wait(Some(wait), |token| assert_eq!(token, 0)).expect("the kernel polls");
            host.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        }
        assert!(matches!(events[..], [DriverEvent::Data { .. }]), "{kind:?}, {round}: {events:?}");
    }
}

#[test]
fn driver_of_epoll_waits_for_the_poller_that_it_hosts() {
    check_hosting_a_poller(IoKind::Epoll);
}

#[test]
fn driver_of_a_ring_waits_for_the_poller_that_it_hosts() {
    check_hosting_a_poller(IoKind::Uring);
}

#[test]
fn no_wake_is_lost_by_a_poller_of_epoll() {
    check_waking_a_poller(IoKind::Epoll);
}

#[test]
fn no_wake_is_lost_by_a_poller_of_a_ring() {
    check_waking_a_poller(IoKind::Uring);
}

#[test]
fn no_wake_is_lost_by_epoll() {
    check_waking(IoKind::Epoll);
}

#[test]
fn no_wake_is_lost_by_uring() {
    check_waking(IoKind::Uring);
}

/// A descriptor that the kernel has to close for a worker may take any time. Linux before 6.16 has no such option.
#[test]
fn descriptors_passed_to_a_unix_listener_were_closed_by_its_worker() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says its release");
    let mut numbers =
        release.split(|symbol: char| !symbol.is_ascii_digit()).map_while(|text| text.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let path = std::env::temp_dir().join(format!("flick-rights-{}.sock", std::process::id()));
    let mut sockets = ListenSockets::open(&Endpoint::Unix(path.clone()), 1).expect("a fresh path");
    let _listener = sockets.take().expect("a socket");
    let peer = UnixStream::connect(&path).expect("it listens");
    let passed = [std::os::fd::AsFd::as_fd(&peer)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&passed)));
    let text = [std::io::IoSlice::new(b"a")];
    let sent = rustix::net::sendmsg(&peer, &text, &mut ancillary, rustix::net::SendFlags::NOSIGNAL);
    assert_eq!(sent.is_err(), version >= (6, 16), "{sent:?} with Linux {release}");
    std::fs::remove_file(path).expect("the file of the listener");
}

/// Two workers accept from one Unix path until they are woken; all peers are served.
fn check_sharing(kind: IoKind) {
    const PEERS: usize = 40;
    if open(kind, LIMITS).is_none() {
        return;
    }
    let path = std::env::temp_dir().join(format!("flick-threads-{}-{kind:?}.sock", std::process::id()));
    let mut sockets = ListenSockets::open(&Endpoint::Unix(path.clone()), 2).expect("a fresh path");
    let (wakers, waker_of) = mpsc::channel();
    let workers: Vec<_> = std::iter::from_fn(|| sockets.take())
        .map(|socket| {
            let wakers = wakers.clone();
            std::thread::spawn(move || {
                let mut driver = open(kind, LIMITS).expect("opened once already");
                driver.listen_on(socket).expect("a listening socket");
                wakers.send(driver.waker()).expect("the test waits");
                let (pool, mut events, mut served) = (pool(), Vec::new(), 0);
                loop {
                    driver.poll(&pool, Some(Duration::from_secs(5)), &mut events).expect("the driver polls");
                    for event in events.drain(..) {
                        match event {
                            DriverEvent::Woken => return served,
                            DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                            DriverEvent::Data { conn, data } => driver.send(conn, data),
                            DriverEvent::Eof { conn } => {
                                served += 1;
                                driver.close(conn);
                            }
                            other => panic!("unexpected {other:?}"),
                        }
                    }
                }
            })
        })
        .collect();
    for _ in 0..PEERS {
        let mut peer = UnixStream::connect(&path).expect("two workers listen");
        peer.write_all(b"hello").expect("the connection is up");
        peer.shutdown(std::net::Shutdown::Write).expect("the connection is up");
        let mut reply = String::new();
        peer.read_to_string(&mut reply).expect("the reply comes");
        assert_eq!(reply, "hello");
    }
    waker_of.iter().take(2).for_each(|waker| waker.wake());
    let served: usize = workers.into_iter().map(|worker| worker.join().expect("no worker fails")).sum();
    assert_eq!(served, PEERS);
    assert!(!path.exists(), "the last worker removes the file");
}

#[test]
fn two_epoll_workers_share_a_unix_path() {
    check_sharing(IoKind::Epoll);
}

#[test]
fn two_uring_workers_share_a_unix_path() {
    check_sharing(IoKind::Uring);
}
