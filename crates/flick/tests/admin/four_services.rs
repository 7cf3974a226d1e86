//! Four services in one process: each has its own limits, its own share of the thread and of the memory, and its own
//! metrics; overload of one does not affect the others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flick_load::binary::{Opcode, Status};

use super::common::peers::{Memcached, Server, free_address};
use super::common::service::{Service, read_all};
use super::common::{Scratch, client, http, root, run, wait};
use super::openmetrics::Metrics;
use super::{OPEN_METRICS, get, metrics};

/// Limits of each service: few client connections, a tenth of the thread, few buffers.
const LIMITS: [(&str, &str); 4] = [
    ("proxy", ""),
    ("page", "max_connections = 2, on_max_connections = \"reject\""),
    ("shards", "max_connections = 1, on_max_connections = \"reject\""),
    (
        "store",
        "max_connections = 40, on_max_connections = \"reject\", cpu_max = \"10%\", buffer_memory = \"16MiB\"",
    ),
];

/// The process and the addresses of its services, in the order of [`LIMITS`].
struct FourServices {
    service: Service,
    at: [SocketAddr; 4],
    memcached: Server,
    _scratch: Scratch,
}

impl FourServices {
    fn settings(head: &str, at: &[SocketAddr; 4], backend: SocketAddr) -> String {
        let programs = [
            ("memcached_proxy/memcached_proxy", "backends"),
            ("http_static/http_static", ""),
            ("redis_sharding/redis_sharding", "shards"),
            ("key_value_server/key_value_server", ""),
        ];
        let each = LIMITS.iter().zip(programs).zip(at).map(|(((name, limits), (program, channel)), at)| {
            let program = root().join(format!("examples/{program}.flick"));
            // The shards get no requests.
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

    /// Sends requests to the proxy and the page, which are not overloaded.
    fn check_others(&self, rounds: u32) {
        let (mut proxy, mut page) = (client::connect(self.at[0]), client::connect(self.at[1]));
        for round in 0..rounds {
            let reply = client::ask(&mut proxy, Opcode::Set, round, b"key", b"value");
            assert!(reply.is(Status::NoError), "{reply:?}");
            let (_, body) = http::exchange(&mut page, "/").expect("the page responds");
            assert_eq!(body, b"Hello from flick\n");
        }
    }
}

/// The sum of the samples of one service.
fn of(seen: &Metrics, name: &str, service: &str) -> f64 {
    let is_its =
        |labels: &[(String, String)]| labels.iter().any(|label| label.0 == "service" && label.1 == service);
    seen.samples(name).filter(|sample| is_its(&sample.labels)).map(|sample| sample.value).sum()
}

#[test]
fn each_service_rejects_clients_above_its_limit_in_its_protocol() {
    let four = FourServices::start("four-places", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    wait::until("the probing connections to be closed", || {
        (metrics(admin).sum("flick_client_connections") == 0.0).then_some(())
    });
    let mut present = Vec::new();
    for (at, (count, expected)) in four.at[1..].iter().zip([
        (2, "HTTP/1.1 503 "),
        (1, "-BUSY too busy\r\n"),
        (40, "SERVER_ERROR too busy\r\n"),
    ]) {
        let before = metrics(admin).sum("flick_client_connections");
        present.extend((0..count).map(|_| client::connect(*at)));
        let full = before + f64::from(count);
        wait::until("all connections to be accepted", || {
            (metrics(admin).sum("flick_client_connections") == full).then_some(())
        });
        let response = String::from_utf8(read_all(client::connect(*at))).expect("text");
        assert!(response.starts_with(expected), "{response:?}");
    }
    let mut proxy = client::connect(four.at[0]);
    assert!(client::ask(&mut proxy, Opcode::Set, 1, b"key", b"value").is(Status::NoError));
    let seen = metrics(admin);
    let refused = LIMITS.map(|(name, _)| of(&seen, "flick_client_connections_rejected_total", name));
    assert_eq!(refused, [0.0, 1.0, 1.0, 1.0]);
    let most = LIMITS.map(|(name, _)| of(&seen, "flick_client_connections_max", name));
    assert_eq!(most[1..], [2.0, 1.0, 40.0]);
    drop(present);
    four.service.drained();
}

/// Floods the store with requests until `stop` is set.
fn flood(at: SocketAddr, stop: &AtomicBool) {
    let mut stream = client::connect(at);
    let (requests, mut replies) = (b"get x\r\n".repeat(1000), vec![0; 5 * 1000]);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&requests).expect("the store reads");
        stream.read_exact(&mut replies).expect("the store answers");
    }
}

#[test]
fn service_above_its_cpu_share_is_throttled_alone() {
    let four = FourServices::start("four-share", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..4)
        .map(|_| {
            let (at, stop) = (four.at[3], Arc::clone(&stop));
            std::thread::spawn(move || flood(at, &stop))
        })
        .collect();
    wait::until("the store to be throttled", || {
        (of(&metrics(admin), "flick_cpu_throttled_total", "store") > 5.0).then_some(())
    });
    let before = metrics(admin);
    four.check_others(200);
    wait::until("the store to be throttled again", || {
        let throttled = |seen: &Metrics| of(seen, "flick_cpu_throttled_total", "store");
        (throttled(&metrics(admin)) - throttled(&before) > 30.0).then_some(())
    });
    let seen = metrics(admin);
    stop.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("every request is answered"));
    let since = |name: &str, service: &str| of(&seen, name, service) - of(&before, name, service);
    // Its actual share of the CPU is tested in `budget/tests.rs`, in simulated time.
    for service in ["proxy", "page"] {
        assert_eq!(since("flick_responses_total", service), 200.0, "{service}");
        for name in ["flick_requests_shed_total", "flick_errors_total"] {
            assert_eq!(since(name, service), 0.0, "{name} of {service}");
        }
    }
    four.service.drained();
}

#[test]
fn service_without_free_buffers_takes_none_of_the_others() {
    let four = FourServices::start("four-buffers", "[admin]\nlisten = \"127.0.0.1:0\"");
    let admin = four.service.admin();
    let mut first = client::connect(four.at[3]);
    let value = "x".repeat(500_000);
    first.write_all(format!("set big 0 0 500000\r\n{value}\r\n").as_bytes()).expect("the store reads");
    client::read_until(&mut first, b"STORED\r\n");
    // Together they request a hundred times the memory, and read nothing.
    let greedy: Vec<TcpStream> = (0..32)
        .map(|_| {
            let mut greedy = client::connect(four.at[3]);
            greedy.write_all(&b"get big\r\n".repeat(100)).expect("the kernel takes it");
            greedy
        })
        .collect();
    wait::until("the store to be overloaded", || {
        let seen = metrics(admin);
        let names = [
            "flick_connections_dropped_total",
            "flick_requests_shed_total",
            "flick_slow_clients_dropped_total",
        ];
        let busy: f64 = names.iter().map(|name| of(&seen, name, "store")).sum();
        (busy > 0.0 || of(&seen, "flick_requests_total", "store") > 32.0).then_some(())
    });
    four.check_others(100);
    let seen = metrics(admin);
    for service in ["proxy", "page"] {
        assert_eq!(of(&seen, "flick_responses_total", service), 100.0, "{service}");
        assert_eq!(of(&seen, "flick_connections_dropped_total", service), 0.0, "{service}");
    }
    drop(greedy);
    wait::until("the store to have free buffers again", || {
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
fn metrics_of_each_service_by_unix_socket_and_token() {
    let scratch = Scratch::new("four-figures");
    let (socket, token) =
        (scratch.path().join("admin"), scratch.write_private("token", "s3cret-of-sixteen\n"));
    let head =
        format!("[admin]\nlisten = \"unix:{}\"\ntoken_file = \"{}\"", socket.display(), token.display());
    let four = FourServices::start("four-figures-run", &head);
    four.check_others(10);
    let mut store = client::connect(four.at[3]);
    store.write_all(b"get x\r\n").expect("the store reads");
    client::read_until(&mut store, b"END\r\n");
    let read = |fields: &str| {
        get(
            UnixStream::connect(&socket).expect("the admin endpoint listens"),
            "/metrics",
            &format!("{OPEN_METRICS}{fields}"),
        )
    };
    assert_eq!(read("").0, 401);
    let (status, text) = read("Authorization: Bearer s3cret-of-sixteen\r\n");
    assert_eq!(status, 200, "{text}");
    let seen = Metrics::parse(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let served = LIMITS.map(|(name, _)| of(&seen, "flick_request_duration_seconds_count", name));
    assert_eq!(served, [10.0, 10.0, 0.0, 1.0]);
    assert_eq!(of(&seen, "flick_backend_request_duration_seconds_count", "proxy"), 10.0);
    assert_eq!(of(&seen, "get_misses_total", "store"), 1.0, "a counter of its program");
    let backend = four.memcached.address.to_string();
    for (name, wanted) in [
        ("flick_request_duration_seconds_count", &["service"][..]),
        ("flick_backend_request_duration_seconds_count", &["service", "channel", "backend"]),
        ("flick_task_busy_seconds_total", &["service", "task"]),
        ("flick_task_run_duration_seconds_count", &["service"]),
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
fn process_that_may_need_too_much_memory_does_not_start() {
    let scratch = Scratch::new("four-memory");
    let at = std::array::from_fn(|_| free_address());
    let check = |head: &str, change: &dyn Fn(String) -> String, expected: &[&str]| {
        let text = change(FourServices::settings(head, &at, free_address()));
        let settings = scratch.write("flick.toml", &text);
        let (status, _, stderr) = run(&["run", "--config", settings.to_str().expect("the path is UTF-8")]);
        assert_eq!(status, 1, "{stderr}");
        for piece in expected {
            assert!(stderr.contains(piece), "`{piece}` is not in\n{stderr}");
        }
    };
    check(
        "[limits]\nmax_memory = \"64MiB\"",
        &|text| text,
        &["may need", "allows 64 MiB", "flick does not start"],
    );
    let less = |text: String| text.replace("cpu_max = \"10%\"", "cpu_max = \"10%\", max_memory = \"8MiB\"");
    check("", &less, &["store", "may need", "8 MiB", "flick does not start"]);
}
