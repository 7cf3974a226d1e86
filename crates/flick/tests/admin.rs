//! The admin side of a running service, read by a client of the tests' own: what it shows, to whom, and what it bears.

mod common;
#[path = "admin/edges.rs"]
mod edges;
#[path = "admin/four_services.rs"]
mod four_services;
#[path = "admin/openmetrics.rs"]
mod openmetrics;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::peers::{Memcached, free_address};
use common::service::Service;
use common::wait::{self, WAIT_MAX};
use common::{Scratch, client, flick, http, run, told};
use flick_load::binary::{Opcode, Status};
use openmetrics::Metrics;

/// Says something to a service and reads until its reply has this end.
fn ask(stream: &mut TcpStream, text: &str, end: &str) {
    stream.write_all(text.as_bytes()).expect("the service reads");
    let mut reply = Vec::new();
    while !reply.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply goes on to its end");
        reply.push(byte[0]);
    }
}

/// Asks for a path with further fields; status and body.
fn get(mut stream: impl Read + Write, path: &str, fields: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("the admin side reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the admin side answers and closes");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
    (status, body.to_owned())
}

fn tcp(admin: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(admin).expect("the admin side listens");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("the time is not zero");
    stream
}

fn metrics(admin: SocketAddr) -> Metrics {
    let (status, text) = get(tcp(admin), "/metrics", "");
    assert_eq!(status, 200, "{text}");
    Metrics::parse(&text).unwrap_or_else(|wrong| panic!("{wrong} in\n{text}"))
}

#[test]
fn metrics_count_what_a_service_did() {
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
        ("flick_replies_total", 50.0),
        ("flick_sessions_open", 1.0),
        ("flick_backend_requests_total", 50.0),
        ("flick_backend_failures_total", 0.0),
        ("flick_backend_up", 2.0),
        ("flick_request_seconds_count", 50.0),
        ("flick_backend_reply_seconds_count", 50.0),
    ] {
        assert_eq!(seen.sum(name), expected, "{name}");
    }
    assert!(seen.sum("flick_request_seconds_sum") >= seen.sum("flick_backend_reply_seconds_sum"));
    assert!(seen.sum("process_resident_memory_bytes") > 0.0);
    let worker = seen.samples("flick_requests_total").next().expect("each worker has one");
    let labels: Vec<&str> = worker.labels.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(labels, ["service", "channel", "worker"]);
    service.drained();
}

#[test]
fn what_is_not_counted_of_one_service_was_shown_as_zero() {
    let service = Service::proxy(&[free_address()], &["--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    let seen = metrics(admin);
    for name in ["flick_turns_total", "flick_busy_ns_total", "flick_share_waits_total"] {
        assert_eq!(seen.samples(name).count(), 0, "{name}");
    }
    assert_eq!(seen.samples("flick_requests_total").count(), 1);
    // What stands behind those that are left out is what its name says.
    assert_eq!(seen.sum("flick_links_connected_total"), 0.0);
    let (_, state) = get(tcp(admin), "/api/state", "");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let service_shown = &state["services"][0];
    let counters = service_shown["counters"].as_array().expect("a list");
    assert_eq!(service_shown["workers"][0]["values"].as_array().map(Vec::len), Some(counters.len()));
    assert!(counters.iter().all(|counter| counter["name"] != "busy_ns"), "{counters:?}");
    service.drained();
    let service = Service::proxy(&[free_address()], &["--workers", "1", "--admin", "0", "--cpu-max", "90%"]);
    wait::until("turns that are counted", || {
        (metrics(service.admin_address()).sum("flick_turns_total") > 0.0).then_some(())
    });
    service.drained();
}

/// A backend that reads one request of each connection and ends it; how many it has read.
fn hangs_up() -> (SocketAddr, Arc<AtomicU64>) {
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
fn metrics_count_each_request_that_is_sent_again_or_not() {
    const REQUESTS: u64 = 40;
    let good = http::Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), http::filled, 5);
    let good = good.expect("port 0 is free");
    for budget in
        [["--retry-budget", "100%", "--retry-min", "100"], ["--retry-budget", "0%", "--retry-min", "0"]]
    {
        let (bad, asked) = hangs_up();
        let connect = format!("backends={},{bad}", good.address);
        let program = "examples/http_balancer/round_robin.flick";
        let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect];
        let more = ["--workers", "1", "--admin", "0"];
        let service = Service::start(&[args.as_slice(), &more, &budget].concat());
        let statuses: Vec<u16> = (0..REQUESTS)
            .map(|_| http::exchange(&mut client::connect(service.address), "/").expect("a reply").0)
            .collect();
        let failed = statuses.iter().filter(|status| **status == 502).count() as u64;
        let hung_up = asked.load(Ordering::SeqCst);
        let (seen, is_allowed) = (metrics(service.admin()), budget[1] == "100%");
        assert!(hung_up > 10, "the test does something: {hung_up}");
        assert_eq!(failed, if is_allowed { 0 } else { hung_up }, "{budget:?}: {statuses:?}");
        let expected = if is_allowed { (hung_up, 0) } else { (0, hung_up) };
        let counted = ["flick_retried_total", "flick_retries_denied_total"].map(|name| seen.sum(name) as u64);
        assert_eq!((counted[0], counted[1]), expected, "{budget:?}");
        service.drained();
    }
}

#[test]
fn clients_are_named_with_what_they_do_when_somebody_asks() {
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
        // Who is counted and who is named are asked one behind the other.
        if read["open"] != 2 {
            return None;
        }
        let own = stream.local_addr().expect("it is connected").to_string();
        read["sessions"].as_array()?.iter().find(|session| session["client"] == own.as_str()).cloned()
    };
    let begun = wait::until("the half request to be seen", || {
        named(&silent).filter(|session| session["state"] == "sends a request")
    });
    assert_eq!((&begun["bytes_in"], &begun["bytes_out"]), (&2.into(), &0.into()), "{begun}");
    let rests = named(&asking).expect("it is there");
    assert_eq!((&rests["state"], &rests["service"]), (&"rests".into(), &"Memcached".into()), "{rests}");
    assert_eq!(
        (&rests["bytes_in"], &rests["bytes_out"]),
        (&25.into(), &(24 + "Not found".len()).into()),
        "{rests}"
    );
    service.drained();
}

/// Reads OpenMetrics on its standard input; the families on its output.
const PARSER: &str = "import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
for family in read(sys.stdin.read()):
    print(family.name, family.type, len(family.samples))";

#[test]
fn a_parser_of_prometheus_reads_the_metrics() {
    let memcached = Memcached::start();
    let connect = format!("backends={}", memcached.address);
    let program = "examples/memcached_cache/memcached_cache.flick";
    let listen = "client=127.0.0.1:0";
    let service =
        Service::start(&["run", program, "--listen", listen, "--connect", &connect, "--admin", "0"]);
    let mut client = client::connect(service.address);
    client.write_all(b"get key\r\n").expect("the service reads");
    client.read_exact(&mut [0; 5]).expect("it answers");
    let (_, text) = get(tcp(service.admin()), "/metrics", "");
    let mut parser = std::process::Command::new("/usr/bin/python3")
        .args(["-c", PARSER])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    parser.stdin.take().expect("it was asked for").write_all(text.as_bytes()).expect("it reads");
    let (status, families, complaint) = told(parser.wait_with_output().expect("our own child"));
    assert_eq!(status, 0, "{complaint}\n{text}");
    for expected in ["flick_requests counter", "flick_request_seconds histogram", "flick_sessions_open gauge"]
    {
        assert!(families.lines().any(|line| line.starts_with(expected)), "no `{expected}` in\n{families}");
    }
    service.drained();
}

/// The threads of a service, by name.
fn thread_of(service: &Service, wanted: &str) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).expect("it runs");
    let named = tasks
        .map(|task| task.expect("it runs").path())
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == wanted));
    let name = named.as_deref().and_then(std::path::Path::file_name).and_then(std::ffi::OsStr::to_str);
    name.and_then(|number| number.parse().ok()).expect("the thread is there")
}

#[test]
fn a_worker_that_hangs_is_told_by_name_and_one_that_sleeps_is_not() {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    let memcached = Memcached::start();
    let extra = ["--workers", "2", "--admin", "0", "--hang-after", "1s"];
    let service = Service::proxy(&[memcached.address], &extra);
    let admin = service.admin();
    let health = || get(tcp(admin), "/healthz", "");
    let worker = Pid::from_raw(thread_of(&service, "flick-1"));
    // Nobody asks anything: all workers sleep, for longer than any may hang.
    let asleep = std::time::Instant::now();
    wait::until("two seconds of sleep", || {
        assert_eq!(health().0, 200, "a worker that sleeps does not hang");
        (asleep.elapsed().as_secs() >= 2).then_some(())
    });
    ptrace::seize(worker, ptrace::Options::empty()).expect("it is a thread of our own child");
    ptrace::interrupt(worker).expect("it is ours");
    waitpid(worker, Some(WaitPidFlag::__WALL)).expect("it stops");
    wait::until("the worker to be missed", || {
        let (status, told) = health();
        (status == 503).then(|| assert_eq!(told, "worker 1 of Memcached hangs\n"))
    });
    ptrace::detach(worker, None).expect("it is ours");
    wait::until("the worker to be found again", || (health().0 == 200).then_some(()));
    let log = service.drained();
    assert!(log.contains("a worker hangs") && log.contains("a worker that hung turns again"), "{log}");
}

#[test]
fn counters_of_programs_stand_under_their_own_names() {
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
fn a_line_about_a_backend_named_neither_service_nor_worker() {
    let gone = free_address();
    let service = Service::proxy(&[gone], &["--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    wait::until("the line", || get(tcp(admin), "/api/state", "").1.contains("backend is down").then_some(()));
    let log = service.drained();
    let line = log.lines().find(|line| line.contains("backend is down")).expect("it was seen");
    let expected = format!("service=\"Memcached\" worker=0 address={gone}");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn a_service_is_ready_while_it_has_backends() {
    let service = Service::proxy(&[free_address()], &["--admin", "0"]);
    let admin = service.admin();
    assert_eq!(get(tcp(admin), "/healthz", ""), (200, "ok\n".to_owned()));
    let (status, why) = get(tcp(admin), "/readyz", "");
    assert_eq!((status, why.as_str()), (503, "Memcached: no backend of `backends` is up\n"));
    service.drained();
}

#[test]
fn a_service_whose_list_of_backends_was_empty_called_itself_ready() {
    let scratch = Scratch::new("admin-empty-list");
    let list = scratch.write("list", "# nobody yet\n");
    let connect = format!("backends=file:{}", list.display());
    let arguments =
        ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&arguments);
    let (status, why) = get(tcp(service.admin()), "/readyz", "");
    assert_eq!((status, why.as_str()), (503, "Memcached: `backends` has no backends\n"));
    service.drained();
}

#[test]
fn the_state_is_for_those_with_the_token() {
    let scratch = Scratch::new("admin-token");
    let file = scratch.write("token", "s3cret\nmore\n");
    let file = file.to_str().expect("the path is UTF-8");
    let service = Service::proxy(&[free_address()], &["--admin", "0", "--admin-token-file", file]);
    let admin = service.admin();
    assert_eq!(get(tcp(admin), "/api/state", "").0, 401);
    assert_eq!(get(tcp(admin), "/metrics", "Authorization: Bearer wrong!\r\n").0, 401);
    assert_eq!(get(tcp(admin), "/metrics", "Authorization: Bearer s3cret\r\n").0, 200);
    assert_eq!(get(tcp(admin), "/healthz", "").0, 200);
    let log = service.drained();
    assert!(!log.contains("s3cret"), "{log}");
}

#[test]
fn a_new_token_was_read_at_the_next_start_only() {
    let scratch = Scratch::new("admin-token-new");
    let file = scratch.write("token", "old\n");
    let file = file.to_str().expect("the path is UTF-8");
    let service = Service::proxy(&[free_address()], &["--admin", "0", "--admin-token-file", file]);
    let admin = service.admin();
    let status = |token: &str| get(tcp(admin), "/metrics", &format!("Authorization: Bearer {token}\r\n")).0;
    assert_eq!((status("old"), status("new")), (200, 401));
    scratch.write("token", "new\n");
    service.signal("HUP");
    wait::until("the new token to hold", || (status("new") == 200).then_some(()));
    assert_eq!(status("old"), 401);
    // One that cannot be read changes nothing.
    std::fs::remove_file(file).expect("it is there");
    service.signal("HUP");
    let fields = "Authorization: Bearer new\r\n";
    wait::until("the refusal", || {
        get(tcp(admin), "/metrics", fields).1.contains("flick_reloads_failed_total 1").then_some(())
    });
    let log = service.drained();
    assert!(log.contains("not reloaded") && log.contains("cannot read the token in "), "{log}");
}

#[test]
fn a_failed_upgrade_opened_the_state_to_those_without_the_token() {
    let scratch = Scratch::new("admin-token-gone");
    let token = scratch.write("token", "secret\n");
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
fn what_others_could_read_needs_a_token() {
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
fn a_socket_file_is_for_its_owner_and_goes_with_the_service() {
    let scratch = Scratch::new("admin-unix");
    let path = scratch.path().join("admin.sock");
    let admin = format!("unix:{}", path.display());
    // Left over from a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the directory can be written"));
    let service = Service::proxy(&[free_address()], &["--admin", &admin]);
    let connect = || std::os::unix::net::UnixStream::connect(&path);
    let first = wait::until("the admin side to listen", || connect().ok());
    let mode = std::fs::metadata(&path).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(get(first, "/healthz", "").0, 200);
    let (status, text, stderr) =
        told(flick().args(["top", &admin, "--once"]).output().expect("the tool starts"));
    assert_eq!((status, stderr.as_str()), (0, ""));
    for piece in [
        "flick 0.",
        "serving",
        "Services",
        "Memcached ",
        "Backends",
        "down",
        "Latest faults",
        "backend is down",
    ] {
        assert!(text.contains(piece), "`{piece}` is not in\n{text}");
    }
    service.drained();
    assert!(!path.exists(), "the socket file is left behind");
}

#[test]
fn readers_who_dawdle_hold_up_nobody() {
    let service = Service::proxy(&[free_address()], &["--admin", "0"]);
    let admin = service.admin();
    // As many as are borne at once, and a few more: these are told so or wait, and nobody is left out for good.
    let dawdlers: Vec<TcpStream> = (0..24).map(|_| tcp(admin)).collect();
    for mut dawdler in &dawdlers {
        dawdler.write_all(b"GET /met").expect("a head may come in pieces");
    }
    // Whoever has asked for nothing yet makes room: who watches the service would end it otherwise.
    let mut stream = tcp(admin);
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("it has a place");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is answered");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let mut stream = tcp(admin);
    stream.write_all(long.as_bytes()).expect("it is taken by the kernel");
    let mut text = vec![0; 12];
    stream.read_exact(&mut text).expect("it is answered");
    assert_eq!(text, b"HTTP/1.1 431");
    drop(dawdlers);
    service.drained();
}
