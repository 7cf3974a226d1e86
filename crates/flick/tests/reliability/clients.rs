//! Clients that leave, dawdle or stop half-way.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use flick_load::binary::Status;
use flick_load::load::{self, LoadConfig};

use crate::common::wait;
use crate::machine;
use crate::mock::{Mock, key_of};
use crate::proxy::{IOS, Proxy, stores};
use crate::wire::{self, Client, get, set};

#[test]
fn m4_reply_of_a_disconnected_client_is_discarded_on_the_shared_connection() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(4);
        let proxy = Proxy::start(&backends, io, |_| {});
        (0..4).for_each(|backend| proxy.until_backend(backend, 1));
        let config = LoadConfig { connections: 8, depth: 4, keys: 500, ..LoadConfig::new(proxy.address()) };
        load::populate(&config).expect("every key can be written");
        let run = load::start(config).expect("the load starts");
        let rounds = machine::rounds(4_000);
        for round in 0..rounds {
            let mut stream = TcpStream::connect(proxy.address()).expect("the service accepts");
            let requests: Vec<u8> =
                (0..5).flat_map(|opaque| get(opaque, &format!("{round}-{opaque}"))).collect();
            stream.write_all(&requests).expect("the service reads");
            match round % 4 {
                0 => wire::reset(stream),
                1 => drop(stream),
                2 => {
                    // In the middle of a request.
                    stream.write_all(&set(9, "half", b"value")[..30]).expect("the service reads");
                    drop(stream);
                }
                _ => {
                    // It sends no more, and still wants its replies.
                    stream.shutdown(Shutdown::Write).expect("a live socket");
                    let mut client = Client::of(stream);
                    for opaque in 0..5 {
                        assert_eq!(client.reply().outcome(), (Some(Status::KeyNotFound), opaque), "{io:?}");
                    }
                    client.expect_closed();
                }
            }
        }
        run.stop();
        let report = run.wait();
        assert_eq!(report.faults(), 0, "{io:?}: {report:?}");
        let totals = proxy.until("every session to end", |totals| totals.connections_open == 0);
        assert_eq!(
            (totals.backend_connections_closed, totals.protocol_errors_backend, totals.exhausted),
            (0, 0, 0),
            "{io:?}"
        );
        assert_eq!(totals.connections_accepted, u64::from(rounds) + 8 + 1, "{io:?}");
        // Those that end inside a request, and those whose reset overtakes the rest of what they sent.
        assert!(totals.truncated <= u64::from(2 * rounds.div_ceil(4)), "{io:?}: {totals:?}");
    }
}

/// The reply is certainly in flight: the backend answers only after the client has disconnected.
#[test]
fn m4_reply_of_a_disconnected_client_reaches_no_other() {
    let _machine = machine::together();
    for io in IOS {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = std::sync::Mutex::new(gone);
        let mock = Mock::start(move |conversation| {
            while let Some((header, body)) = conversation.request() {
                let key = key_of(&header, &body);
                if key == b"abandoned" {
                    let _ = gone.lock().expect("no holder panics").recv_timeout(wait::WAIT_MAX);
                }
                conversation.answer(&header, Status::NoError, key);
            }
        });
        let proxy = Proxy::start(&[mock.address], io, |config| {
            config.timeouts.response = Some(Duration::from_secs(60));
        });
        proxy.until_backend(0, 1);
        let mut patient = Client::connect(proxy.address());
        let rounds = machine::rounds(500);
        for round in 0..rounds {
            let mut leaving = TcpStream::connect(proxy.address()).expect("the service accepts");
            leaving.write_all(&get(1, "abandoned")).expect("the service reads");
            proxy.until("the request to be taken", |totals| totals.requests == 2 * u64::from(round) + 1);
            // Behind the abandoned one, on the same shared connection, with the same opaque.
            patient.send(&get(1, "wanted"));
            wire::reset(leaving);
            proxy.until("the client to be gone", |totals| totals.connections_open == 1);
            go.send(()).expect("the mock waits for it");
            assert_eq!(patient.reply().value(), b"wanted", "{io:?}");
        }
        let totals = proxy.totals();
        let late = u64::from(rounds);
        assert_eq!(
            (totals.late_replies, totals.backend_connections_closed, mock.accepted()),
            (late, 0, 1),
            "{io:?}"
        );
    }
}

/// One byte at a time: answered when it is complete, and others are not held up by it.
#[test]
fn slow_request_is_served_and_a_stalled_one_times_out() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(2);
        let proxy =
            Proxy::start(&backends, io, |config| config.timeouts.client_request = Duration::from_millis(400));
        let mut healthy = Client::connect(proxy.address());
        let mut slow = Client::connect(proxy.address());
        for (opaque, byte) in set(1, "slow", b"value").iter().enumerate() {
            slow.send(&[*byte]);
            let key = format!("healthy-{opaque}");
            assert_eq!(healthy.ask(&get(1, &key)).status(), Some(Status::KeyNotFound), "{io:?}");
        }
        assert_eq!(slow.reply().outcome(), (Some(Status::NoError), 1), "{io:?}");
        // And now it stops in the middle, in a header and in a body.
        for cut in [1, 23, 24, 30] {
            let mut stopping = Client::connect(proxy.address());
            stopping.send(&set(2, "never", b"complete")[..cut]);
            stopping.expect_closed();
        }
        let totals = proxy.until("the sessions to end", |totals| totals.connections_open == 2);
        assert_eq!((totals.client_request_timeouts, totals.truncated), (4, 4), "{io:?}");
        assert_eq!(healthy.ask(&get(3, "never")).status(), Some(Status::KeyNotFound), "{io:?}");
    }
}

#[test]
fn truncated_header_is_counted_and_not_forwarded() {
    let _machine = machine::together();
    for io in IOS {
        let (_stores, backends) = stores(1);
        let proxy = Proxy::start(&backends, io, |_| {});
        let request = set(2, "never", b"complete");
        for cut in 1..request.len() {
            let mut stream = TcpStream::connect(proxy.address()).expect("the service accepts");
            stream.write_all(&request[..cut]).expect("the service reads");
            drop(stream);
        }
        let most = request.len() as u64 - 1;
        let totals = proxy.until("every session to be counted", |totals| totals.truncated == most);
        assert_eq!((totals.requests, totals.protocol_errors_client), (0, 0), "{io:?}");
        proxy.until("every session to end", |totals| totals.connections_open == 0);
    }
}
