//! Backends that answer too early, too late or not at all.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flick_load::binary::{Opcode, Status};
use flick_net::IoKind;

use crate::common::peers::{self, Memcached, Server};
use crate::common::wait;
use crate::machine::{self, Lateness};
use crate::mock::{Conversation, Mock, answer, key_of};
use crate::proxy::{IOS, Proxy, stores};
use crate::wire::{self, Client, get, key_on, set};

/// Longest delay of a reply beyond a deadline, on an idle machine.
const SLACK: Duration = Duration::from_millis(50);
const MIB: usize = 1 << 20;
/// Clients, and late replies of each, in a long run.
const WRITERS: u32 = 8;
const TOGETHER: u32 = 64;
/// Writes beyond this are refused early.
const REFUSED_BYTES: usize = 64 * 1024;

/// Answers small requests; of a large write it takes the first bytes of the body, refuses it and closes at once,
/// which destroys what was not read with a reset.
fn refuses_large_writes_early(conversation: &mut Conversation) {
    let mut head = [0; 24];
    while conversation.read(&mut head).is_some() {
        let header = flick_load::binary::Header::decode(&head).expect("a whole header");
        if header.body_len > REFUSED_BYTES as u32 {
            let _ = conversation.read(&mut [0; 10]);
            conversation.answer(&header, Status::ValueTooLarge, b"too large");
            return;
        }
        let mut body = vec![0; header.body_len as usize];
        if conversation.read(&mut body).is_none() {
            return;
        }
        conversation.answer(&header, Status::NoError, key_of(&header, &body));
    }
}

/// A value that is refused; a smaller one in long runs.
fn refused_value(rounds: u32) -> Vec<u8> {
    vec![b'v'; if rounds > 100 { 2 * REFUSED_BYTES } else { 2 * MIB }]
}

#[test]
fn m2_early_reply_reaches_only_its_client() {
    let _machine = machine::together();
    for io in IOS {
        let mock = Mock::start(refuses_large_writes_early);
        let proxy = Proxy::start(&[mock.address], io, |_| {});
        proxy.until_backend(0, 1);
        let rounds = machine::rounds(4 * 50) / 4;
        let value = refused_value(rounds);
        std::thread::scope(|scope| {
            for client in 0..4_u32 {
                let (address, value) = (proxy.address(), &value);
                scope.spawn(move || {
                    let mut writer = Client::connect(address);
                    for round in 0..rounds {
                        let opaque = client << 24 | round;
                        let reply = writer.ask(&set(opaque, "large", value));
                        let (said, expected) =
                            (reply.value().escape_ascii(), (Some(Status::ValueTooLarge), opaque));
                        assert_eq!(reply.outcome(), expected, "{io:?}: {said}");
                        assert_eq!(writer.ask(&get(opaque, "after")).value(), b"after");
                    }
                });
                scope.spawn(move || {
                    let mut reader = Client::connect(address);
                    for round in 0..10 * rounds {
                        let key = format!("small-{client}-{round}");
                        assert_eq!(reader.ask(&get(round, &key)).value(), key.as_bytes(), "{io:?}");
                    }
                });
            }
        });
        let totals = proxy.totals();
        assert_eq!((totals.protocol_errors_backend, totals.errors_unavailable), (0, 0));
        assert_eq!(proxy.metrics().backends[0].workers_connected, 1, "the shared connection was not touched");
    }
}

/// The reply overtakes the body: the client learns it at once, and what it still sends is swallowed.
#[test]
fn m2_early_reply_arrives_before_the_request_is_complete() {
    let _machine = machine::together();
    for io in IOS {
        let mock = Mock::start(refuses_large_writes_early);
        let proxy = Proxy::start(&[mock.address], io, |_| {});
        let mut client = Client::connect(proxy.address());
        let rounds = machine::rounds(100);
        for round in 0..rounds {
            let request = set(round, "large", &refused_value(rounds));
            let (first, rest) = request.split_at(24 + 8 + 5 + 20_000);
            let reply = client.ask(first);
            assert_eq!(reply.outcome(), (Some(Status::ValueTooLarge), round), "{io:?}");
            client.send(rest);
            assert_eq!(client.ask(&get(round, "after")).value(), b"after");
        }
    }
}

#[test]
fn m3_late_reply_is_discarded_with_its_connection() {
    let _machine = machine::together();
    for io in IOS {
        // Connections so far, and those of them on which what is late may be said.
        let (opened, released) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
        let seen = Arc::clone(&released);
        let mock = Mock::start(move |conversation| {
            let own = opened.fetch_add(1, Ordering::SeqCst);
            while let Some((header, body)) = conversation.request() {
                let key = key_of(&header, &body);
                if key == b"late" {
                    wait::until("the late moment", || (seen.load(Ordering::SeqCst) > own).then_some(()));
                }
                conversation.answer(&header, Status::NoError, key);
            }
        });
        // In a long run many replies are late at once, and the timeout is longer than a busy machine delays them.
        let (rounds, writers, together, timeout_ms) = match machine::rounds(20) {
            20 => (20, 1, 1, 100),
            many => (many.div_ceil(WRITERS * TOGETHER), WRITERS, TOGETHER, 1_000),
        };
        let proxy = Proxy::start(&[mock.address], io, |config| {
            config.timeouts.response = Some(Duration::from_millis(timeout_ms));
        });
        proxy.until_backend(0, 1);
        let mut clients: Vec<Client> = (0..writers).map(|_| Client::connect(proxy.address())).collect();
        for round in 0..rounds {
            let late = (0..together).flat_map(|opaque| get(opaque, "late")).collect::<Vec<u8>>();
            clients.iter_mut().for_each(|client| client.send(&late));
            for client in &mut clients {
                for opaque in 0..together {
                    let reply = client.reply();
                    assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), opaque), "{io:?}");
                    assert_eq!(reply.value(), b"backend timed out");
                }
            }
            released.store(round + 1, Ordering::SeqCst);
            proxy.until_backend(0, 1);
            for (index, client) in clients.iter_mut().enumerate() {
                let next = format!("next-{round}-{index}");
                assert_eq!(client.ask(&get(1_000 + round, &next)).value(), next.as_bytes(), "{io:?}");
            }
            assert_eq!(mock.accepted(), u64::from(round) + 2, "a fresh connection for each");
        }
        let totals = proxy.totals();
        let late = u64::from(rounds * writers * together);
        assert_eq!(
            (totals.errors_timeout, totals.late_replies, totals.protocol_errors_backend),
            (late, 0, 0)
        );
    }
}

#[test]
fn stalled_backend_fails_only_its_keys() {
    let _machine = machine::alone();
    for io in IOS {
        let lateness = Lateness::watch();
        let servers = Memcached::several(2);
        let backends = peers::addresses(&servers);
        let timeout = Duration::from_millis(300);
        let proxy = Proxy::start(&backends, io, |config| config.timeouts.response = Some(timeout));
        (0..2).for_each(|backend| proxy.until_backend(backend, 1));
        let stalled = key_on(0, 2, "stalled");
        let healthy = key_on(1, 2, "healthy");
        let (mut asking, mut other) = (Client::connect(proxy.address()), Client::connect(proxy.address()));
        let paused = Paused::of(&servers[0]);
        let begun = Instant::now();
        asking.send(&get(1, &stalled));
        let mut slowest = Duration::ZERO;
        for opaque in 0.. {
            let asked = Instant::now();
            assert_eq!(other.ask(&get(opaque, &healthy)).status(), Some(Status::KeyNotFound));
            slowest = slowest.max(asked.elapsed());
            if begun.elapsed() > timeout / 2 {
                break;
            }
        }
        let reply = asking.reply();
        let took = begun.elapsed();
        assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), 1), "{io:?}");
        assert_eq!(reply.value(), b"backend timed out");
        let most = timeout + SLACK + lateness.allowance();
        assert!((timeout..most).contains(&took), "{io:?}: {took:?}, at most {most:?}");
        assert!(slowest < SLACK + lateness.allowance(), "{io:?}: a healthy key took {slowest:?}");
        drop(paused);
        let recovered = wait::within(Duration::from_secs(2), || {
            (asking.ask(&get(2, &stalled)).status() == Some(Status::KeyNotFound)).then_some(())
        });
        assert!(recovered.is_some(), "{io:?}: whole again when the backend goes on");
    }
}

/// A body that the backend does not take is bounded in time as well, however large it is.
#[test]
fn backend_stalled_in_a_large_write_times_out() {
    let _machine = machine::alone();
    for io in IOS {
        let lateness = Lateness::watch();
        let server = Memcached::start();
        let timeout = Duration::from_millis(300);
        let proxy = Proxy::start(&[server.address], io, |config| config.timeouts.response = Some(timeout));
        proxy.until_backend(0, 1);
        let paused = Paused::of(&server);
        let mut client = Client::connect(proxy.address());
        let begun = Instant::now();
        // More than the kernel's buffers and ours hold together.
        client.send(&wire::request(Opcode::Set, 9, &[0; 8], b"key", &vec![0; 64 * MIB]));
        let reply = client.reply();
        assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), 9), "{io:?}");
        let most = Duration::from_secs(2) + lateness.allowance();
        assert!(begun.elapsed() < most, "{io:?}: {:?}", begun.elapsed());
        drop(paused);
        let works = || (client.ask(&get(2, "key")).status() == Some(Status::KeyNotFound)).then_some(());
        wait::until("the backend to be used again", works);
    }
}

/// A backend that takes no connection: its keys are answered at once, the others' keys as ever.
#[test]
fn refusing_backend_fails_requests_at_once() {
    let _machine = machine::alone();
    for io in IOS {
        let lateness = Lateness::watch();
        let (_stores, mut backends) = stores(1);
        backends.push(peers::free_address());
        let proxy = Proxy::start(&backends, io, |_| {});
        proxy.until_backend(0, 1);
        let (there, gone) = (key_on(0, 2, "there"), key_on(1, 2, "gone"));
        let mut client = Client::connect(proxy.address());
        for round in 0..200 {
            let begun = Instant::now();
            let reply = client.ask(&get(round, &gone));
            assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), round), "{io:?}");
            assert_eq!(reply.value(), b"backend unavailable");
            assert!(begun.elapsed() < SLACK + lateness.allowance(), "{io:?}: {:?}", begun.elapsed());
            assert_eq!(client.ask(&get(round, &there)).status(), Some(Status::KeyNotFound));
        }
        // It comes up later: it is found without being asked for.
        let listener = TcpListener::bind(backends[1]).expect("the port is still free");
        let (stream, _) = listener.accept().expect("the platform reconnects");
        proxy.until_backend(1, 1);
        let mut found = Conversation::of(stream);
        client.send(&get(7, &gone));
        let (header, body) = found.request().expect("the request arrives");
        found.write(&answer(&header, Status::NoError, key_of(&header, &body)));
        assert_eq!(client.reply().value(), gone.as_bytes());
    }
}

/// A stopped server (SIGSTOP): the kernel still takes connections and bytes for it. Continued when dropped.
struct Paused(u32);

impl Paused {
    fn of(server: &Server) -> Self {
        peers::signal(server.pid(), "STOP");
        // A signal takes effect a moment after it was sent, and for each thread by itself.
        wait::until("the server to stop", || machine::is_stopped(server.pid()).then_some(()));
        Self(server.pid())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        peers::signal(self.0, "CONT");
    }
}

/// Every request of a client goes through one backend's reset: each is answered, in the protocol.
#[test]
fn reply_before_a_reset_is_delivered() {
    let _machine = machine::together();
    for io in IOS {
        let served = Arc::new(Mutex::new(0_u32));
        let count = Arc::clone(&served);
        let mock = Mock::start(move |conversation| {
            // One answer, then a reset: the request behind it is lost.
            if let (Some((first, body)), Some(_)) = (conversation.request(), conversation.request()) {
                *count.lock().expect("no holder panics") += 1;
                conversation.answer(&first, Status::NoError, key_of(&first, &body));
                conversation.end_with_reset();
            }
        });
        let proxy = Proxy::start(&[mock.address], io, |_| {});
        let mut client = Client::connect(proxy.address());
        for round in 0..50 {
            // Not that it is down in between: by the time that this thread looks it may be up again.
            proxy.until("a connection for this round", |totals| {
                totals.backend_connections_opened > u64::from(round)
            });
            proxy.until_backend(0, 1);
            client.send(&[get(2 * round, "answered"), get(2 * round + 1, "lost")].concat());
            assert_eq!(client.reply().value(), b"answered", "{io:?} round {round}");
            assert_eq!(client.reply().outcome(), (Some(Status::TemporaryFailure), 2 * round + 1), "{io:?}");
        }
        assert_eq!(*served.lock().expect("no holder panics"), 50);
    }
}

/// One kernel interface is enough where the other differs in nothing that matters.
#[test]
fn black_holed_backend_fails_after_the_connect_timeout() {
    let _machine = machine::alone();
    let lateness = Lateness::watch();
    // A listener whose queue is full: further connections get no answer from the kernel.
    let listener = wire::full_listener();
    let timeout = Duration::from_millis(200);
    let proxy = Proxy::start(&[listener.address], IoKind::Epoll, |config| {
        config.timeouts.connect = timeout;
    });
    let mut client = Client::connect(proxy.address());
    let begun = Instant::now();
    let reply = client.ask(&get(1, "key"));
    assert_eq!(reply.outcome(), (Some(Status::TemporaryFailure), 1));
    assert!(begun.elapsed() < timeout + SLACK + lateness.allowance(), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(client.ask(&get(2, "key")).outcome(), (Some(Status::TemporaryFailure), 2));
    assert!(begun.elapsed() < SLACK + lateness.allowance(), "{:?}", begun.elapsed());
}
