//! The admin endpoint of a running service: its contents, its access control, and its limits.

mod common;
#[path = "admin/connections.rs"]
mod connections;
#[path = "admin/edges.rs"]
mod edges;
#[path = "admin/four_services.rs"]
mod four_services;
#[path = "admin/openmetrics.rs"]
mod openmetrics;
#[path = "admin/request_durations.rs"]
mod request_durations;
#[path = "admin/status_class.rs"]
mod status_class;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::peers::{Memcached, free_address};
use common::service::Service;
use common::wait::{self, WAIT_MAX};
use common::{Scratch, captured, client, flick, http, run};
use flick_admin::limits::REQUEST_TIME_MAX;
use flick_load::binary::{Opcode, Status};
use openmetrics::Metrics;

/// Sends a text and reads until the response ends with `end`.
fn ask(stream: &mut TcpStream, text: &str, end: &str) {
    stream.write_all(text.as_bytes()).expect("the service reads");
    client::read_until(stream, end.as_bytes());
}

/// Requests OpenMetrics.
const OPEN_METRICS: &str = "Accept: application/openmetrics-text; version=1.0.0\r\n";

/// Sends a GET request with further headers; status and body.
fn get(mut stream: impl Read + Write, path: &str, headers: &str) -> (u16, String) {
    let (status, body) = http::get(&mut stream, path, headers).expect("the admin endpoint responds");
    (status, String::from_utf8(body).expect("responses are text"))
}

fn tcp(admin: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(admin).expect("the admin endpoint listens");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("the time is not zero");
    stream
}

fn metrics(admin: SocketAddr) -> Metrics {
    metrics_of(admin, "/metrics")
}

fn metrics_of(admin: SocketAddr, path: &str) -> Metrics {
    let (status, text) = get(tcp(admin), path, OPEN_METRICS);
    assert_eq!(status, 200, "{text}");
    Metrics::parse(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

#[test]
fn metrics_count_requests_and_connections() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "2", "--admin", "0"]);
    let admin = service.admin();
    wait::until("the backend to be up", || (get(tcp(admin), "/readyz", "").0 == 200).then_some(()));
    let mut client = client::connect(service.address);
    for round in 0..50 {
        let reply = client::ask(&mut client, Opcode::Set, round, b"key", b"value");
        assert!(reply.is(Status::NoError), "{reply:?}");
    }
    let seen = metrics(admin);
    for (name, expected) in [
        ("flick_requests_total", 50.0),
        ("flick_responses_total", 50.0),
        ("flick_client_connections", 1.0),
        ("flick_backend_requests_total", 50.0),
        ("flick_backend_errors_total", 0.0),
        // A set has 24 + 8 + 3 + 5 bytes, its response 24.
        ("flick_backend_sent_bytes_total", 50.0 * 40.0),
        ("flick_backend_received_bytes_total", 50.0 * 24.0),
        ("flick_backend_up", 1.0),
        ("flick_backend_workers_connected", 2.0),
        ("flick_request_duration_seconds_count", 50.0),
        ("flick_backend_request_duration_seconds_count", 50.0),
    ] {
        assert_eq!(seen.sum(name), expected, "{name}");
    }
    assert!(
        seen.sum("flick_request_duration_seconds_sum")
            >= seen.sum("flick_backend_request_duration_seconds_sum")
    );
    assert!(seen.sum("process_resident_memory_bytes") > 0.0);
    let labels = |metrics: &Metrics| -> Vec<Vec<String>> {
        let each = metrics.samples("flick_requests_total");
        each.map(|sample| sample.labels.iter().map(|(name, _)| name.clone()).collect()).collect()
    };
    assert_eq!(labels(&seen), [["service"]]);
    let per_worker = metrics_of(admin, "/metrics?per_worker=1");
    assert_eq!(labels(&per_worker), [["service", "worker"]; 2]);
    assert_eq!(per_worker.sum("flick_requests_total"), 50.0);
    service.drained();
}

#[test]
fn metrics_of_shared_threads_are_missing_for_a_single_service() {
    let service = Service::proxy(&[free_address()], &["--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    let seen = metrics(admin);
    for name in ["flick_worker_loops_total", "flick_worker_busy_seconds_total", "flick_cpu_throttled_total"] {
        assert_eq!(seen.samples(name).count(), 0, "{name}");
    }
    assert_eq!(seen.samples("flick_requests_total").count(), 1);
    // The counters behind the missing ones keep their values.
    assert_eq!(seen.sum("flick_backend_connections_opened_total"), 0.0);
    let (_, state) = get(tcp(admin), "/api/state", "");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let service_shown = &state["services"][0];
    let counters = service_shown["counters"].as_array().expect("a list");
    assert_eq!(service_shown["workers"][0]["values"].as_array().map(Vec::len), Some(counters.len()));
    assert!(counters.iter().all(|counter| counter["name"] != "busy_ns"), "{counters:?}");
    service.drained();
    let service = Service::proxy(&[free_address()], &["--workers", "1", "--admin", "0", "--cpu-max", "90%"]);
    wait::until("the loops to be counted", || {
        (metrics(service.admin_address()).sum("flick_worker_loops_total") > 0.0).then_some(())
    });
    service.drained();
}

/// A backend that reads one request of each connection and closes it; the number of requests.
fn closing_backend() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, count) = (listener.local_addr().expect("it is bound"), Arc::<AtomicU64>::default());
    let asked = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || {
                if stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    (address, count)
}

#[test]
fn metrics_count_retries_and_denied_retries() {
    const REQUESTS: u64 = 40;
    let good = http::Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), http::filled, 5);
    let good = good.expect("port 0 is free");
    for budget in [
        ["--retry-budget", "100%", "--retry-min-per-second", "100"],
        ["--retry-budget", "0%", "--retry-min-per-second", "0"],
    ] {
        let (bad, asked) = closing_backend();
        let connect = format!("backends={},{bad}", good.address);
        let program = "examples/http_balancer/round_robin.flick";
        let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect];
        let more = ["--workers", "1", "--admin", "0", "--outlier-consecutive-failures", "0"];
        let service = Service::start(&[args.as_slice(), &more, &budget].concat());
        let statuses: Vec<u16> = (0..REQUESTS)
            .map(|_| http::exchange(&mut client::connect(service.address), "/").expect("a reply").0)
            .collect();
        let failed = statuses.iter().filter(|status| **status == 502).count() as u64;
        let closed = asked.load(Ordering::SeqCst);
        let (seen, is_allowed) = (metrics(service.admin()), budget[1] == "100%");
        assert!(closed > 10, "the backend got requests: {closed}");
        let counted = ["flick_retries_total", "flick_retries_denied_total"].map(|name| seen.sum(name) as u64);
        let (retried, denied) = (counted[0], counted[1]);
        assert_eq!((retried + denied, denied), (closed, failed), "{budget:?}: {statuses:?}");
        // What goes again to the same backend, on another connection than the idle one that was there at the start, is
        // not of the budget.
        assert!(if is_allowed { denied == 0 } else { retried <= 1 }, "{budget:?}: {statuses:?}");
        service.drained();
    }
}

#[test]
fn sessions_lists_clients_with_their_state() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "2", "--admin", "0"]);
    let admin = service.admin();
    let mut asking = client::connect(service.address);
    client::ask(&mut asking, Opcode::Get, 1, b"k", b"");
    let mut silent = client::connect(service.address);
    silent.write_all(&[0x80, 0]).expect("the service reads");
    let named = |stream: &TcpStream| {
        let (status, text) = get(tcp(admin), "/api/sessions", "");
        assert_eq!(status, 200, "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // The count and the list are read one after the other.
        if read["open"] != 2 {
            return None;
        }
        let own = stream.local_addr().expect("it is connected").to_string();
        read["sessions"].as_array()?.iter().find(|session| session["client"] == own.as_str()).cloned()
    };
    let begun = wait::until("the partial request to be shown", || {
        named(&silent).filter(|session| session["state"] == "receiving request")
    });
    assert_eq!((&begun["bytes_in"], &begun["bytes_out"]), (&2.into(), &0.into()), "{begun}");
    let idle = named(&asking).expect("it is there");
    assert_eq!((&idle["state"], &idle["service"]), (&"idle".into(), &"Memcached".into()), "{idle}");
    assert_eq!(
        (&idle["bytes_in"], &idle["bytes_out"]),
        (&25.into(), &(24 + "Not found".len()).into()),
        "{idle}"
    );
    service.drained();
}

/// Parses metrics on standard input with a module of prometheus_client, and prints the families.
const PARSER: &str = "import sys, importlib
parser = importlib.import_module(sys.argv[1])
for family in parser.text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, len(family.samples))";

/// Runs a program with this standard input; status and output.
fn run_with_input(program: &str, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("`{program}` is installed: {error}"));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the program reads");
    captured(child.wait_with_output().expect("a child of this test"))
}

#[test]
fn prometheus_parsers_accept_both_formats() {
    let memcached = Memcached::start();
    let connect = format!("backends={}", memcached.address);
    let program = "examples/memcached_cache/memcached_cache.flick";
    let listen = "client=127.0.0.1:0";
    let service =
        Service::start(&["run", program, "--listen", listen, "--connect", &connect, "--admin", "0"]);
    let mut client = client::connect(service.address);
    client.write_all(b"get key\r\n").expect("the service reads");
    client.read_exact(&mut [0; 5]).expect("it answers");
    let admin = service.admin();
    for path in ["/metrics", "/metrics?per_worker=1"] {
        for (headers, parser, info) in [
            (OPEN_METRICS, "prometheus_client.openmetrics.parser", "flick_build info"),
            ("", "prometheus_client.parser", "flick_build_info gauge"),
        ] {
            let (_, text) = get(tcp(admin), path, headers);
            let (status, families, error) =
                run_with_input("/usr/bin/python3", &["-c", PARSER, parser], &text);
            assert_eq!(status, 0, "{error}\n{text}");
            for expected in [
                info,
                "flick_requests counter",
                "flick_request_duration_seconds histogram",
                "flick_draining gauge",
            ] {
                assert!(
                    families.lines().any(|line| line.starts_with(expected)),
                    "no `{expected}` in\n{families}"
                );
            }
        }
    }
    let (_, text) = get(tcp(admin), "/metrics", "");
    let (status, lints, error) = run_with_input("promtool", &["check", "metrics"], &text);
    assert_eq!((status, lints.as_str(), error.as_str()), (0, "", ""), "{text}");
    service.drained();
}

/// The values of `/api/tunables` and `/metrics` for one service, in nanoseconds and in seconds.
fn busy_poll(admin: SocketAddr, service: &str) -> (u64, f64) {
    let (status, text) = get(tcp(admin), "/api/tunables", "");
    assert_eq!(status, 200, "{text}");
    let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let metric = metrics(admin);
    let sample = metric.samples("flick_busy_poll_seconds").find(|sample| sample.labels[0].1 == service);
    (read[service]["busy_poll_ns"].as_u64().expect("a number"), sample.expect("a metric").value)
}

#[test]
fn tunables_change_on_a_running_service() {
    let memcached = Memcached::start();
    let connect = format!("backends={}", memcached.address);
    let program = "examples/memcached_cache/memcached_cache.flick";
    let fixed = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&fixed);
    let admin = service.admin();
    let (_, text) = get(tcp(admin), "/api/tunables", "");
    let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let name = read.as_object().expect("services").keys().next().expect("a service").clone();
    assert_eq!(busy_poll(admin, &name), (0, 0.0));
    let put = |query: &str, headers: &str| {
        let mut stream = tcp(admin);
        let request = format!("PUT /api/tunables?{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("the endpoint reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("the endpoint answers");
        reply
    };
    let csrf = "X-Flick-Ask: 1\r\n";
    for (query, headers, status, piece) in [
        ("busy_poll=50us", "", "403", "X-Flick-Ask"),
        ("busy_poll=2ms&time_slice=7us", csrf, "400", "at most 1ms"),
        ("busy_poll=50", csrf, "400", "is not a duration"),
        ("workers=3", csrf, "400", "the tunables are `busy_poll`"),
        ("", csrf, "400", "no tunable is given"),
        ("service=Other&busy_poll=50us", csrf, "400", "there is no service `Other`"),
    ] {
        let reply = put(query, headers);
        let is_right = reply.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_right && reply.to_lowercase().contains(&piece.to_lowercase()), "{query}: {reply}");
        assert_eq!(busy_poll(admin, &name), (0, 0.0), "{query}");
    }
    let reply = put(&format!("service={name}&busy_poll=50us&overload_queue_delay=0"), csrf);
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("\"overload_queue_delay_ns\":0"), "{reply}");
    assert_eq!(busy_poll(admin, &name), (50_000, 0.000_05));
    let mut client = client::connect(service.address);
    client.write_all(b"get key\r\n").expect("the service reads");
    client.read_exact(&mut [0; 5]).expect("it answers");
    assert!(service.drained().contains("tunables changed"));
}

/// The id of a service's thread of this name.
fn thread_of(service: &Service, wanted: &str) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).expect("it runs");
    let named = tasks
        .map(|task| task.expect("it runs").path())
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == wanted));
    let name = named.as_deref().and_then(std::path::Path::file_name).and_then(std::ffi::OsStr::to_str);
    name.and_then(|number| number.parse().ok()).expect("the thread is there")
}

#[test]
fn healthz_names_a_stalled_worker_and_no_sleeping_one() {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    let memcached = Memcached::start();
    let extra = ["--workers", "2", "--admin", "0", "--watchdog-timeout", "1s"];
    let service = Service::proxy(&[memcached.address], &extra);
    let admin = service.admin();
    let health = || get(tcp(admin), "/healthz", "");
    let worker = Pid::from_raw(thread_of(&service, "flick-1"));
    // Without requests all workers sleep, for longer than the watchdog timeout.
    let asleep = std::time::Instant::now();
    wait::until("two seconds of sleep", || {
        assert_eq!(health().0, 200, "a sleeping worker is not stalled");
        (asleep.elapsed().as_secs() >= 2).then_some(())
    });
    ptrace::seize(worker, ptrace::Options::empty()).expect("it is a thread of our own child");
    ptrace::interrupt(worker).expect("it is ours");
    waitpid(worker, Some(WaitPidFlag::__WALL)).expect("it stops");
    let reported = wait::within(WAIT_MAX, || Some(health()).filter(|(status, _)| *status == 503));
    // Before anything fails: a stopped thread would keep the service from ending.
    ptrace::detach(worker, None).expect("the thread was seized");
    assert_eq!(reported.expect("the stalled worker is reported").1, "worker 1 of Memcached is stalled\n");
    wait::until("the worker to run again", || (health().0 == 200).then_some(()));
    let log = service.drained();
    assert!(log.contains("worker stalled") && log.contains("stalled worker runs again"), "{log}");
}

#[test]
fn program_counters_keep_their_names() {
    let memcached = Memcached::start();
    let connect = format!("backends={}", memcached.address);
    let program = "examples/memcached_cache/memcached_cache.flick";
    let listen = "client=127.0.0.1:0";
    let service = Service::start(&[
        "run",
        program,
        "--listen",
        listen,
        "--connect",
        &connect,
        "--workers",
        "1",
        "--admin",
        "0",
    ]);
    let mut client = client::connect(service.address);
    ask(&mut client, "set key 0 0 5\r\nvalue\r\n", "STORED\r\n");
    for _ in 0..5 {
        ask(&mut client, "get key\r\n", "END\r\n");
    }
    let seen = metrics(service.admin());
    assert_eq!((seen.sum("hits_total"), seen.sum("misses_total")), (4.0, 1.0));
    assert_eq!(seen.sum("flick_dictionary_entries"), 1.0);
    service.drained();
}

#[test]
fn log_of_a_backend_names_the_service_and_the_reason() {
    let gone = free_address();
    let service = Service::proxy(&[gone], &["--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    wait::until("the line", || get(tcp(admin), "/api/state", "").1.contains("backend is down").then_some(()));
    let log = service.drained();
    let line = log.lines().find(|line| line.contains("backend is down")).expect("it was seen");
    let expected = format!("service=\"Memcached\" address={gone} why=connection refused");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn service_without_a_backend_is_not_ready() {
    let service = Service::proxy(&[free_address()], &["--admin", "0"]);
    let admin = service.admin();
    assert_eq!(get(tcp(admin), "/healthz", ""), (200, "ok\n".to_owned()));
    let (status, why) = get(tcp(admin), "/readyz", "");
    assert_eq!((status, why.as_str()), (503, "Memcached: no backend of `backends` is up\n"));
    service.drained();
}

#[test]
fn service_with_an_empty_backend_list_is_not_ready() {
    let scratch = Scratch::new("admin-empty-list");
    let list = scratch.write("list", "# empty\n");
    let connect = format!("backends=file:{}", list.display());
    let arguments =
        ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&arguments);
    let (status, why) = get(tcp(service.admin()), "/readyz", "");
    assert_eq!((status, why.as_str()), (503, "Memcached: `backends` has no backends\n"));
    service.drained();
}

#[test]
fn state_needs_the_token() {
    let scratch = Scratch::new("admin-token");
    let file = scratch.write_private("token", "s3cret-of-sixteen\nmore\n");
    let file = file.to_str().expect("the path is UTF-8");
    let service = Service::proxy(&[free_address()], &["--admin", "0", "--admin-token-file", file]);
    let admin = service.admin();
    assert_eq!(get(tcp(admin), "/api/state", "").0, 401);
    assert_eq!(get(tcp(admin), "/metrics", "Authorization: Bearer wrong!\r\n").0, 401);
    assert_eq!(get(tcp(admin), "/metrics", "Authorization: Bearer s3cret-of-sixteen\r\n").0, 200);
    assert_eq!(get(tcp(admin), "/healthz", "").0, 200);
    let log = service.drained();
    assert!(!log.contains("s3cret"), "{log}");
}

#[test]
fn reload_reads_the_token_again() {
    let scratch = Scratch::new("admin-token-new");
    let file = scratch.write_private("token", "old-of-sixteen-characters\n");
    let file = file.to_str().expect("the path is UTF-8");
    let service = Service::proxy(&[free_address()], &["--admin", "0", "--admin-token-file", file]);
    let admin = service.admin();
    let status = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}-of-sixteen-characters\r\n");
        get(tcp(admin), "/metrics", &bearer).0
    };
    assert_eq!((status("old"), status("new")), (200, 401));
    scratch.write_private("token", "new-of-sixteen-characters\n");
    service.signal("HUP");
    wait::until("the new token to apply", || (status("new") == 200).then_some(()));
    assert_eq!(status("old"), 401);
    // A token that cannot be read changes nothing.
    std::fs::remove_file(file).expect("it is there");
    service.signal("HUP");
    let fields = "Authorization: Bearer new-of-sixteen-characters\r\n";
    wait::until("the failed reload", || {
        get(tcp(admin), "/metrics", fields)
            .1
            .contains("flick_config_reloads_total{result=\"failure\"} 1")
            .then_some(())
    });
    let log = service.drained();
    assert!(log.contains("the reload failed") && log.contains("cannot read the token in "), "{log}");
}

#[test]
fn failed_upgrade_keeps_the_token_required() {
    let scratch = Scratch::new("admin-token-gone");
    let token = scratch.write_private("token", "secret-of-sixteen\n");
    let token = token.to_str().expect("the path is UTF-8");
    scratch
        .write("a.flick", &std::fs::read_to_string(common::root().join(common::PROXY)).expect("an example"));
    let admin = free_address();
    let settings = |extra: &str| {
        let service = "program = \"a.flick\"\nlisten = { client = \"127.0.0.1:0\" }\nconnect = { backends = \"127.0.0.1:1\" }";
        let text = format!("workers = 1\n[admin]\nlisten = \"{admin}\"\n{extra}\n[service]\n{service}\n");
        scratch.write("flick.toml", &text).display().to_string()
    };
    let service = Service::start(&["run", "--config", &settings("token_file = \"token\"")]);
    settings("");
    let asked = |what: &str| run(&[what, &admin.to_string(), "--token-file", token]);
    let (status, _, error) = asked("reload");
    assert_eq!(status, 0, "{error}");
    scratch.write("a.flick", "this is no program");
    let (status, _, error) = asked("upgrade");
    assert_eq!(status, 1, "{error}");
    let status = || get(tcp(admin), "/api/state", "").0;
    assert_eq!(status(), 401);
    service.drained();
}

#[test]
fn short_and_world_readable_tokens_are_refused() {
    let scratch = Scratch::new("admin-token-weak");
    let weak = [
        (scratch.write_private("short", "fifteen-letters\n"), "must be 16 to 4096"),
        (
            scratch.write("open", "long-enough-to-be-a-token\n"),
            "every user of this machine can read the token",
        ),
    ];
    std::fs::set_permissions(&weak[1].0, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    for (file, reason) in &weak {
        let file = file.to_str().expect("the path is UTF-8");
        let program =
            ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", "backends=127.0.0.1:1"];
        for arguments in [
            [&program[..], &["--admin", "0", "--admin-token-file", file]].concat(),
            vec!["reload", "1", "--token-file", file],
        ] {
            let (status, _, stderr) = run(&arguments);
            assert!(status == 2 && stderr.contains(reason), "{arguments:?}: {status}: {stderr}");
        }
    }
}

#[test]
fn other_user_on_loopback_changes_nothing() {
    use std::os::unix::process::CommandExt;

    if !rustix::process::geteuid().is_root() {
        return;
    }
    let service = Service::proxy(&[free_address()], &["--admin", "0"]);
    let admin = service.admin();
    let put = |user: u32| {
        let url = format!("http://{admin}/api/tunables?busy_poll=1us");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-X", "PUT", "-H", "X-Flick-Ask: 1", &url]).uid(user).current_dir("/");
        captured(curl.output().expect("curl is installed: cargo xtask packages")).1
    };
    assert!(put(65534).contains("only user id 0 (or root) of this machine may change something"));
    assert_eq!(metrics(admin).sum("flick_busy_poll_seconds"), 0.0);
    assert!(put(0).contains("\"busy_poll_ns\":1000"));
    service.drained();
}

#[test]
fn read_token_may_not_reload() {
    let scratch = Scratch::new("admin-token-read");
    let (control, read) = ("control-of-sixteen", "read-only-of-sixteen");
    let file = |name: &str, token: &str| scratch.write_private(name, token).display().to_string();
    let (control_file, read_file) = (file("control", control), file("read", read));
    let tokens = ["--admin-token-file", &control_file, "--admin-read-token-file", &read_file];
    let service = Service::proxy(&[free_address()], &[&["--admin", "0"], &tokens[..]].concat());
    let admin = service.admin();
    for (token, status) in [(control, 200), (read, 200), ("neither-of-the-two", 401)] {
        assert_eq!(
            get(tcp(admin), "/metrics", &format!("Authorization: Bearer {token}\r\n")).0,
            status,
            "{token}"
        );
    }
    for (file, piece) in [(Some(&read_file), "may read, and change nothing"), (None, "`--token-file FILE`")] {
        let token = file.map_or(Vec::new(), |file| vec!["--token-file", file]);
        let (status, _, stderr) = run(&[&["reload", &admin.to_string()], &token[..]].concat());
        assert!(status == 1 && stderr.contains(piece), "{stderr}");
    }
    let (status, _, stderr) = run(&["reload", &admin.to_string(), "--token-file", &control_file]);
    assert_eq!(status, 0, "{stderr}");
    service.drained();
    let same = ["--admin-token-file", &control_file, "--admin-read-token-file", &control_file];
    let program =
        ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", "backends=127.0.0.1:1"];
    let (status, _, stderr) = run(&[&program[..], &["--admin", "0"], &same].concat());
    assert!(status == 2 && stderr.contains("is the one that may change something"), "{stderr}");
}

#[test]
fn reload_at_the_port_of_another_server_says_so_at_once() {
    let origin = http::Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), http::filled, 5);
    let origin = origin.expect("port 0 is free").address.to_string();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("it is bound").to_string();
    let begun = std::time::Instant::now();
    for (command, at, piece) in [
        (&["reload"][..], &origin, "this is not flick's admin endpoint"),
        (&["top", "--once"], &origin, "this is not flick's admin endpoint"),
        (&["reload"], &silent, "no response within 3s; is this flick's admin endpoint?"),
    ] {
        let (status, _, stderr) = run(&[command, &[at.as_str()]].concat());
        assert!(status == 1 && stderr.contains(piece), "{command:?}: {stderr}");
    }
    // A reload may take a minute, which was the time that this took.
    assert!(begun.elapsed() < REQUEST_TIME_MAX, "{:?}", begun.elapsed());
}

#[test]
fn public_address_needs_a_token() {
    let arguments =
        ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", "backends=127.0.0.1:1"];
    let (status, _, stderr) = run(&[&arguments[..], &["--admin", "0.0.0.0:0"]].concat());
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("--admin-token-file"), "{stderr}");
    let (status, _, stderr) = run(&[&arguments[..], &["--admin", "somewhere"]].concat());
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("unix:PATH"), "{stderr}");
}

#[test]
fn socket_file_is_private_and_removed_at_the_end() {
    let scratch = Scratch::new("admin-unix");
    let path = scratch.path().join("admin.sock");
    let admin = format!("unix:{}", path.display());
    // A stale socket of a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the directory can be written"));
    let service = Service::proxy(&[free_address()], &["--admin", &admin]);
    let connect = || std::os::unix::net::UnixStream::connect(&path);
    let first = wait::until("the admin endpoint to listen", || connect().ok());
    let mode = std::fs::metadata(&path).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(get(first, "/healthz", "").0, 200);
    let (status, text, stderr) =
        captured(flick().args(["top", &admin, "--once"]).output().expect("the tool starts"));
    assert_eq!((status, stderr.as_str()), (0, ""));
    for piece in [
        "flick 0.",
        "serving",
        "Services",
        "Memcached ",
        "Backends",
        "down",
        "Recent warnings and errors",
        "backend is down",
    ] {
        assert!(text.contains(piece), "`{piece}` is not in\n{text}");
    }
    service.drained();
    assert!(!path.exists(), "the socket file is left behind");
}

#[test]
fn slow_clients_do_not_block_others() {
    let service = Service::proxy(&[free_address()], &["--admin", "0"]);
    let admin = service.admin();
    // More than the limit: each new connection replaces the oldest without a request.
    let slow_clients: Vec<TcpStream> = (0..24).map(|_| tcp(admin)).collect();
    for mut client in &slow_clients {
        client.write_all(b"GET /met").expect("a head may come in pieces");
    }
    // A health check must get a connection, or the service would be restarted.
    let mut stream = tcp(admin);
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("the connection is open");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is answered");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let mut stream = tcp(admin);
    stream.write_all(long.as_bytes()).expect("it is taken by the kernel");
    let mut text = vec![0; 12];
    stream.read_exact(&mut text).expect("it is answered");
    assert_eq!(text, b"HTTP/1.1 431");
    drop(slow_clients);
    service.drained();
}
