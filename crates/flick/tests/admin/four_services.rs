//! Four services of one process, as whoever is on call has them: each has its own places, its own part of the thread and of the memory,
//! and its own figures; what one of them suffers, the others do not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flick_load::binary::{Opcode, Status};

use super::common::peers::{Memcached, free_address};
use super::common::service::{Service, read_all};
use super::common::{Scratch, client, root, run, wait};
use super::openmetrics::Metrics;
use super::{get, metrics};

/// What each of them may: places for one client or two, a tenth of the thread, few buffers.
const LIMITS: [(&str, &str); 4] = [
    ("proxy", ""),
    ("page", "sessions_max = 2, overflow = \"refuse\""),
    ("shards", "sessions_max = 1, overflow = \"refuse\""),
    ("store", "sessions_max = 40, overflow = \"refuse\", cpu_max = \"10%\", buffers = \"16MiB\""),
];

/// The process and where its services are, in the order of [`LIMITS`].
struct Four {
    service: Service,
    at: [SocketAddr; 4],
    memcached: Memcached,
    _scratch: Scratch,
}

impl Four {
    fn settings(head: &str, at: &[SocketAddr; 4], backend: SocketAddr) -> String {
        let programs = [
            ("memcached_proxy/memcached_proxy", "backends"),
            ("http_static/http_static", ""),
            ("redis_sharding/redis_sharding", "shards"),
            ("key_value_server/key_value_server", ""),
        ];
        let each = LIMITS.iter().zip(programs).zip(at).map(|(((name, limits), (program, channel)), at)| {
            let program = root().join(format!("examples/{program}.flick"));
            // Nobody asks the shards anything.
            let connect =
                if channel.is_empty() { String::new() } else { format!("{channel} = [\"{backend}\"]") };
            format!(
                "[[service]]\nname = \"{name}\"\nprogram = {program:?}\nlisten = {{ client = \"{at}\" }}\n\
                 connect = {{ {connect} }}\nlimits = {{ {limits} }}\n\n"
            )
        });
        format!("workers = 1\n{head}\n{}", each.collect::<String>())
    }

    fn start(test: &str, head: &str) -> Self {
        let (scratch, memcached) = (Scratch::new(test), Memcached::start());
        let at = std::array::from_fn(|_| free_address());
        let settings = scratch.write("flick.toml", &Self::settings(head, &at, memcached.address));
        let state = scratch.path().join("state");
        let (settings, state) = (settings.to_str(), state.to_str());
        let service = Service::start(&[
            "run",
            "--config",
            settings.expect("the path is UTF-8"),
            "--state-dir",
            state.expect("the path is UTF-8"),
        ]);
        at.iter().for_each(|at| drop(wait::until("the service", || TcpStream::connect(at).ok())));
        Self { service, at, memcached, _scratch: scratch }
    }

    /// Asks the proxy and the page, which have done nothing wrong.
    fn check_others(&self, rounds: u32) {
        let (mut proxy, mut page) = (client::connect(self.at[0]), client::connect(self.at[1]));
        for round in 0..rounds {
            let reply = client::ask(&mut proxy, Opcode::Set, round, b"key", b"value");
            assert!(reply.is(Status::NoError), "{reply:?}");
            page.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the page reads");
            until(&mut page, b"Hello from flick\n");
        }
    }
}

/// The sum of the samples of one service.
fn of(seen: &Metrics, name: &str, service: &str) -> f64 {
    let is_its =
        |labels: &[(String, String)]| labels.iter().any(|label| label.0 == "service" && label.1 == service);
    seen.samples(name).filter(|sample| is_its(&sample.labels)).map(|sample| sample.value).sum()
}

/// Reads up to these bytes.
fn until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} behind {bytes:?}"));
        bytes.push(byte[0]);
    }
    bytes
}

#[test]
fn each_service_has_its_own_places_and_says_so_in_its_own_words() {
    let four = Four::start("four-places", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    wait::until("those who looked whether it listens to be gone", || {
        (metrics(admin).sum("flick_sessions_open") == 0.0).then_some(())
    });
    let mut present = Vec::new();
    for (at, (count, words)) in four.at[1..].iter().zip([
        (2, "HTTP/1.1 503 "),
        (1, "-BUSY too busy\r\n"),
        (40, "SERVER_ERROR too busy\r\n"),
    ]) {
        let before = metrics(admin).sum("flick_sessions_open");
        present.extend((0..count).map(|_| client::connect(*at)));
        let full = before + f64::from(count);
        wait::until("all to be let in", || (metrics(admin).sum("flick_sessions_open") == full).then_some(()));
        let told = String::from_utf8(read_all(client::connect(*at))).expect("words");
        assert!(told.starts_with(words), "{told:?}");
    }
    let mut proxy = client::connect(four.at[0]);
    assert!(client::ask(&mut proxy, Opcode::Set, 1, b"key", b"value").is(Status::NoError));
    let seen = metrics(admin);
    let refused = LIMITS.map(|(name, _)| of(&seen, "flick_sessions_refused_total", name));
    assert_eq!(refused, [0.0, 1.0, 1.0, 1.0]);
    let most = LIMITS.map(|(name, _)| of(&seen, "flick_sessions_max", name));
    assert_eq!(most[1..], [2.0, 1.0, 40.0]);
    drop(present);
    four.service.drained();
}

/// Keeps asking the store for as much as fits, until told to stop.
fn flood(at: SocketAddr, stop: &AtomicBool) {
    let mut stream = client::connect(at);
    let (requests, mut replies) = (b"get x\r\n".repeat(1000), vec![0; 5 * 1000]);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&requests).expect("the store reads");
        stream.read_exact(&mut replies).expect("the store answers");
    }
}

#[test]
fn a_service_over_its_share_waits_and_the_others_do_not_notice() {
    let four = Four::start("four-share", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..4)
        .map(|_| {
            let (at, stop) = (four.at[3], Arc::clone(&stop));
            std::thread::spawn(move || flood(at, &stop))
        })
        .collect();
    wait::until("the store to wait", || {
        (of(&metrics(admin), "flick_share_waits_total", "store") > 5.0).then_some(())
    });
    let before = metrics(admin);
    four.check_others(200);
    wait::until("the store to wait again", || {
        let waits = |seen: &Metrics| of(seen, "flick_share_waits_total", "store");
        (waits(&metrics(admin)) - waits(&before) > 30.0).then_some(())
    });
    let seen = metrics(admin);
    stop.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("every request is answered"));
    let since = |name: &str, service: &str| of(&seen, name, service) - of(&before, name, service);
    // How much of the processor it had is for `budget/tests.rs`, whose machine does nothing else.
    for service in ["proxy", "page"] {
        assert_eq!(since("flick_replies_total", service), 200.0, "{service}");
        for nothing in ["flick_shed_total", "flick_failed_overload_total"] {
            assert_eq!(since(nothing, service), 0.0, "{nothing} of {service}");
        }
    }
    four.service.drained();
}

#[test]
fn a_service_whose_buffers_are_used_up_takes_none_of_the_others() {
    let four = Four::start("four-buffers", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    let mut first = client::connect(four.at[3]);
    let value = "x".repeat(500_000);
    first.write_all(format!("set big 0 0 500000\r\n{value}\r\n").as_bytes()).expect("the store reads");
    until(&mut first, b"STORED\r\n");
    // Together they ask for a hundred times what there is, and read nothing.
    let greedy: Vec<TcpStream> = (0..32)
        .map(|_| {
            let mut greedy = client::connect(four.at[3]);
            greedy.write_all(&b"get big\r\n".repeat(100)).expect("the kernel takes it");
            greedy
        })
        .collect();
    wait::until("the store to have enough", || {
        let seen = metrics(admin);
        let told = ["flick_exhausted_total", "flick_shed_total", "flick_slow_clients_dropped_total"];
        let busy: f64 = told.iter().map(|name| of(&seen, name, "store")).sum();
        (busy > 0.0 || of(&seen, "flick_requests_total", "store") > 32.0).then_some(())
    });
    four.check_others(100);
    let seen = metrics(admin);
    for service in ["proxy", "page"] {
        assert_eq!(of(&seen, "flick_replies_total", service), 100.0, "{service}");
        assert_eq!(of(&seen, "flick_exhausted_total", service), 0.0, "{service}");
    }
    drop(greedy);
    wait::until("the store to have room again", || {
        let mut stream = TcpStream::connect(four.at[3]).ok()?;
        stream.set_read_timeout(Some(wait::WAIT_MAX)).ok()?;
        stream.write_all(b"get nothing\r\n").ok()?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).ok()?;
        (&reply == b"END\r\n").then_some(())
    });
    four.service.drained();
}

#[test]
fn each_service_has_its_own_figures_behind_a_unix_socket_and_a_token() {
    let scratch = Scratch::new("four-figures");
    let (socket, token) = (scratch.path().join("admin"), scratch.write("token", "s3cret\n"));
    let head =
        format!("[admin]\nlisten = \"unix:{}\"\ntoken_file = \"{}\"", socket.display(), token.display());
    let four = Four::start("four-figures-run", &head);
    four.check_others(10);
    let mut store = client::connect(four.at[3]);
    store.write_all(b"get x\r\n").expect("the store reads");
    until(&mut store, b"END\r\n");
    let read =
        |fields: &str| get(UnixStream::connect(&socket).expect("the admin side listens"), "/metrics", fields);
    assert_eq!(read("").0, 401);
    let (status, text) = read("Authorization: Bearer s3cret\r\n");
    assert_eq!(status, 200, "{text}");
    let seen = Metrics::parse(&text).unwrap_or_else(|wrong| panic!("{wrong} in\n{text}"));
    let served = LIMITS.map(|(name, _)| of(&seen, "flick_request_seconds_count", name));
    assert_eq!(served, [10.0, 10.0, 0.0, 1.0]);
    assert_eq!(of(&seen, "flick_backend_reply_seconds_count", "proxy"), 10.0);
    assert_eq!(of(&seen, "misses_total", "store"), 1.0, "a counter of its program");
    let backend = four.memcached.address.to_string();
    for (name, wanted) in [
        ("flick_request_seconds_count", &["service", "channel", "worker"][..]),
        ("flick_backend_reply_seconds_count", &["service", "channel", "backend", "address"]),
        ("flick_task_seconds_total", &["service", "worker", "task"]),
        ("flick_task_slice_seconds_count", &["service", "worker"]),
        ("flick_edge_messages_total", &["service", "from", "to", "kind"]),
    ] {
        let sample = seen.samples(name).next().unwrap_or_else(|| panic!("there is `{name}`"));
        let labels: Vec<&str> = sample.labels.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, wanted, "{name}");
    }
    let is_known = |labels: &[(String, String)]| labels.iter().any(|label| label.1 == backend);
    assert!(seen.samples("flick_backend_requests_total").any(|sample| is_known(&sample.labels)));
    four.service.drained();
}

#[test]
fn memory_that_could_not_be_had_is_told_before_anybody_is_served() {
    let scratch = Scratch::new("four-memory");
    let at = std::array::from_fn(|_| free_address());
    let check = |head: &str, change: &dyn Fn(String) -> String, expected: &[&str]| {
        let text = change(Four::settings(head, &at, free_address()));
        let settings = scratch.write("flick.toml", &text);
        let (status, _, stderr) = run(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
        assert_eq!(status, 1, "{stderr}");
        for piece in expected {
            assert!(stderr.contains(piece), "`{piece}` is not in\n{stderr}");
        }
    };
    check("[limits]\nmemory = \"64MiB\"", &|text| text, &["may need", "allows 64 MiB", "it does not start"]);
    let less = |text: String| text.replace("cpu_max = \"10%\"", "cpu_max = \"10%\", memory = \"8MiB\"");
    check("", &less, &["store", "may need", "8 MiB", "it does not start"]);
}
