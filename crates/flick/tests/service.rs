//! `flick run` as an operator meets it: settings file, addresses, log, signals.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::client::{ask, connect, reply, request};
use common::process::OwnedChild;
use common::service::{Service, read_all};
use common::{PROXY, Scratch, wait};
use flick_load::binary::{Opcode, Status};
use flick_load::store::{EmbeddedStore, StoreHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const STATIC: &str = "examples/http_static/http_static.flick";
const KERNEL_INTERFACES: [&str; 2] = ["epoll", "auto"];

fn store() -> StoreHandle {
    EmbeddedStore::start(SocketAddr::from(([127, 0, 0, 1], 0))).expect("the loopback has a free port")
}

/// Writes a value through `stream` and reads it back.
fn check_works(stream: &mut (impl Read + Write)) {
    let stored = ask(stream, Opcode::Set, 7, b"a key", b"a value");
    assert!(stored.is(Status::NoError), "{stored:?}");
    let read = ask(stream, Opcode::Get, 8, b"a key", b"");
    assert_eq!((read.status, read.value.as_slice()), (Status::NoError.code(), b"a value".as_slice()));
}

#[test]
fn serves_with_both_kernel_interfaces_and_engines() {
    let store = store();
    for extra in [["--io", "epoll"], ["--io", "auto"], ["--engine", "interpreter"], ["--engine", "native"]] {
        let service = Service::proxy(&[store.addr()], &extra);
        check_works(&mut connect(service.address));
        service.drained();
    }
}

#[test]
fn settings_file_equals_options() {
    let (store, scratch) = (store(), Scratch::new("runs"));
    let program = std::fs::read_to_string(common::root().join(PROXY)).expect("the example is there");
    scratch.write("proxy.flick", &program);
    let settings = format!(
        "workers = 1\nio = \"epoll\"\nlog = \"json\"\ndrain_deadline = \"2s\"\n[service]\nprogram = \"proxy.flick\"\n\
         [listen]\nclient = \"127.0.0.1:0\"\n[connect]\nbackends = [\"{}\"]\n\
         [limits]\nsessions_max = 100\nbuffers = \"64MiB\"\n[timeouts]\nreply = \"500ms\"\n",
        store.addr()
    );
    let path = scratch.write("flick.toml", &settings);
    let service = Service::start(&["run", "--config", path.to_str().expect("the path is UTF-8")]);
    check_works(&mut connect(service.address));
    let log = service.drained();
    let line = log.lines().find(|line| line.contains("listening")).expect("it was waited for");
    assert!(line.starts_with('{') && line.contains(r#""channel":"client""#), "{line}");
}

/// Listing 1 with an unused field, which the compiler warns of.
fn proxy_with_a_field_too_many() -> String {
    let program = std::fs::read_to_string(common::root().join(PROXY)).expect("the example is there");
    let field = "  key : string\n";
    assert!(program.contains(field), "{program}");
    program.replace(field, "  key : string\n  opcode : opcode\n")
}

/// The events of a log, each of which is one line of JSON.
fn events(log: &str) -> Vec<serde_json::Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\nin {log}"));
    log.lines().map(read).collect()
}

#[test]
fn compiler_warnings_are_logged_as_json() {
    let (store, scratch) = (store(), Scratch::new("json-warnings"));
    let path = scratch.write("proxy.flick", &proxy_with_a_field_too_many());
    let path = path.to_str().expect("the path is UTF-8");
    let connect_to = format!("backends={}", store.addr());
    let service = Service::start(&[
        "run",
        path,
        "--listen",
        "client=127.0.0.1:0",
        "--connect",
        &connect_to,
        "--log",
        "json",
        "-v",
        "--admin",
        "0",
    ]);
    let admin = service.admin().to_string();
    let (status, _, said) = common::run(&["reload", &admin]);
    assert_eq!(status, 0, "{said}");
    scratch.write("proxy.flick", "proc Proxy: (nothing/nothing client)\n");
    let (status, _, said) = common::run(&["reload", &admin]);
    assert_ne!(status, 0, "{said}");
    let events = events(&service.drained());
    let warnings: Vec<_> = events.iter().filter(|event| event["code"] == "E0212").collect();
    assert_eq!(warnings.len(), 2, "{events:?}");
    for event in warnings {
        assert_eq!((&event["level"], &event["file"]), (&"WARN".into(), &path.into()), "{event}");
        assert!(event["line"].as_u64() > Some(1), "{event}");
        assert!(event["message"].as_str().is_some_and(|text| text.contains("`opcode`")), "{event}");
    }
    let refused = |event: &serde_json::Value| {
        event["message"]
            .as_str()
            .is_some_and(|text| text.contains("the reload failed") && text.contains("nothing"))
    };
    assert!(events.iter().any(|event| event["level"] == "WARN" && refused(event)), "{events:?}");
}

#[test]
fn settings_file_may_be_a_pipe() {
    let (store, scratch) = (store(), Scratch::new("once"));
    let path = scratch.path().join("settings");
    let program = common::root().join(PROXY);
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo starts");
    assert!(made.success());
    let settings = format!(
        "log = \"json\"\nworkers = 1\n[service]\nprogram = {program:?}\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
         connect = {{ backends = \"{}\" }}\n",
        store.addr()
    );
    let pipe = path.clone();
    let writing = std::thread::spawn(move || std::fs::write(pipe, settings));
    let service = Service::start(&["run", "--config", path.to_str().expect("the path is UTF-8")]);
    writing.join().expect("no panic").expect("it was read");
    check_works(&mut connect(service.address));
    assert!(!events(&service.drained()).is_empty());
}

#[test]
fn start_failure_is_logged_as_json() {
    let scratch = Scratch::new("json-failures");
    let program = scratch.write("wrong.flick", "proc Proxy: (nothing/nothing client)\n");
    let program = program.to_str().expect("the path is UTF-8");
    let settings = scratch.write("flick.toml", "log = \"json\"\nworkers = 1\nwrokers = 2\n");
    let settings = settings.to_str().expect("the path is UTF-8");
    for (arguments, status, said) in [
        (&["run", program, "--log", "json"][..], 1, "E0"),
        (&["run", "--config", settings], 2, "wrokers"),
        (&["run", PROXY, "--log", "json"], 2, "are not bound"),
        (&["run", "missing.flick", "--log", "json"], 1, "cannot read missing.flick"),
        (&["run", "--config", "missing.toml", "--log", "json"], 2, "cannot read the settings"),
    ] {
        let (actual, _, log) = common::run(arguments);
        assert_eq!(actual, status, "{arguments:?}: {log}");
        let events = events(&log);
        let [event] = events.as_slice() else { panic!("{arguments:?}: {log}") };
        assert_eq!(event["level"], "ERROR", "{event}");
        let is_said =
            event["message"].as_str().is_some_and(|text| text.contains(said) && !text.contains('\u{1b}'));
        assert!(is_said, "{arguments:?}: {event}");
    }
}

#[test]
fn listens_on_ipv6_and_unix_sockets() {
    let (store, scratch) = (store(), Scratch::new("unix"));
    let connect_to = format!("backends={}", store.addr());
    let service = Service::start(&["run", PROXY, "--listen", "client=[::1]:0", "--connect", &connect_to]);
    assert!(service.address.is_ipv6());
    check_works(&mut connect(service.address));
    service.drained();

    let path = scratch.path().join("client.sock");
    let listen = format!("client=127.0.0.1:0,unix:{}", path.display());
    let service = Service::start(&["run", PROXY, "--listen", &listen, "--connect", &connect_to]);
    let mut stream = wait::until("the Unix socket", || UnixStream::connect(&path).ok());
    stream.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    check_works(&mut stream);
    check_works(&mut connect(service.address));
    drop(stream);
    service.drained();
}

#[test]
fn verbose_prints_start_time_by_phase() {
    const START_MS_MAX: f64 = 20.0;
    // Tests beside this one take both cores for seconds; the promise is of a start that has one.
    const TRIES_MAX: usize = 50;
    let store = store();
    let (mut best, mut tries) = (f64::INFINITY, 0);
    while best > START_MS_MAX && tries < TRIES_MAX {
        tries += 1;
        let service = Service::proxy(&[store.addr()], &["-v"]);
        let log = service.drained();
        let line = log.lines().find(|line| line.contains("source to running code")).expect("-v says it");
        for phase in ["parse", "check", "lower", "compile"] {
            assert!(line.contains(phase), "{line}");
        }
        let total = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it has a total");
        best = best.min(total.parse().expect("it is a number"));
    }
    assert!(best <= START_MS_MAX, "the fastest of {tries} starts took {best} ms");
}

#[test]
fn drain_answers_every_received_request() {
    const REQUESTS: u32 = 20_000;
    let stores: Vec<_> = (0..2).map(|_| store()).collect();
    let addresses: Vec<_> = stores.iter().map(StoreHandle::addr).collect();
    let service = Service::proxy(&addresses, &["--workers", "2"]);
    let mut stream = connect(service.address);
    let mut writer = stream.try_clone().expect("a descriptor is free");
    let writing = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        for opaque in 0..REQUESTS {
            bytes.extend(request(Opcode::Get, opaque, format!("key {}", opaque % 97).as_bytes(), b""));
        }
        writer.write_all(&bytes).expect("a drain still reads what clients have sent");
    });
    let mut answered = vec![false; REQUESTS as usize];
    for count in 0..REQUESTS {
        let reply = reply(&mut stream);
        assert!(reply.is(Status::KeyNotFound), "request {} of {REQUESTS}: {reply:?}", reply.opaque);
        let is_first = !std::mem::replace(&mut answered[reply.opaque as usize], true);
        assert!(is_first, "request {} was answered twice", reply.opaque);
        if count == 0 {
            service.signal("TERM");
        }
    }
    writing.join().expect("the writer got rid of everything");
    assert_eq!(read_all(&mut stream), b"", "after the last reply the connection ends");
    let (status, log) = service.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("drained"), "{log}");
}

#[test]
fn second_signal_exits_at_once() {
    for (name, status) in [("TERM", 143), ("INT", 130)] {
        // A backend that takes requests and never answers keeps the drain waiting.
        let silent = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let silent_address = silent.local_addr().expect("a bound socket has an address");
        let service = Service::proxy(
            &[silent_address],
            &["--workers", "1", "--response-timeout", "5m", "--shutdown-timeout", "5m"],
        );
        let mut stream = connect(service.address);
        stream.write_all(&request(Opcode::Get, 1, b"key", b"")).expect("the service reads");
        let (mut taken, _) = silent.accept().expect("the request is on its way");
        taken.read_exact(&mut [0; 27]).expect("the request arrives");
        service.signal(name);
        wait::until("the drain to begin", || TcpStream::connect(service.address).is_err().then_some(()));
        service.signal(name);
        let (actual, log) = service.ended();
        assert_eq!(actual.code(), Some(status), "{log}");
    }
}

#[test]
fn address_in_use_is_named() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let address = taken.local_addr().expect("a bound socket has an address").to_string();
    let listen = format!("client={address}");
    let (status, _, stderr) =
        common::run(&["run", PROXY, "--listen", &listen, "--connect", "backends=127.0.0.1:1"]);
    assert_eq!(status, 1, "{stderr}");
    let expected = format!("cannot listen on {address}: Address already in use");
    assert!(stderr.contains(&expected) && stderr.contains("another process listens there"), "{stderr}");
}

#[test]
fn address_given_twice_was_said_to_be_in_use_by_another_process() {
    let taken = common::peers::free_address();
    for listen in [format!("client={taken},{taken}"), "client=shm:twice,shm:twice".to_owned()] {
        let run = ["run", PROXY, "--listen", &listen, "--connect", "backends=127.0.0.1:1", "--check"];
        // A check had said that all is well.
        for args in [&run[..6], &run] {
            let (status, _, stderr) = common::run(args);
            assert!(status != 0 && stderr.contains("twice; leave one out"), "{stderr}");
        }
    }
}

/// The proxy of a backend under these limits on open files, as a shell sets them.
fn limited(limits: &str, backend: SocketAddr) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit {limits}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_flick"), "run", PROXY, "--max-connections", "300"]);
    command.args(["--workers", "1", "--listen", "client=127.0.0.1:0"]);
    command.args(["--connect", &format!("backends={backend}")]);
    command.current_dir(common::root()).env("NO_COLOR", "1").env_remove("FLICK_LOG");
    command
}

fn with_limits(limits: &str) -> Service {
    Service::start_as(limited(limits, SocketAddr::from(([127, 0, 0, 1], 1))))
}

/// Starts a service; its process if it listens, else its status and log.
fn try_start(mut command: std::process::Command) -> Result<(OwnedChild, SocketAddr), (i32, String)> {
    let child = command.stderr(std::process::Stdio::piped()).spawn().expect("a shell starts");
    let mut child = OwnedChild(child);
    let mut lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
    let mut log = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some(address) = common::service::address_in(&line, "listening") {
            // Its log must be read, so that it can write.
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok((child, address));
        }
        log += &line;
    }
    Err((child.wait().expect("our own child").code().unwrap_or(-1), log))
}

#[test]
fn service_that_starts_has_descriptors_for_a_client() {
    let store = store();
    for io in KERNEL_INTERFACES {
        let start = |limit: u32| {
            let mut command = limited(&format!("-n {limit}"), store.addr());
            command.args(["--io", io]);
            try_start(command)
        };
        // Below that, a program cannot be loaded.
        let mut refusals = 0;
        let (_service, address) = (10..64)
            .find_map(|limit| match start(limit) {
                Ok(started) => Some(started),
                Err((status, log)) => {
                    let is_named = log.contains("Too many open files (os error 24)");
                    assert!(status == 1 && is_named, "{io}, {limit}: {status}: {log}");
                    refusals += 1;
                    None
                }
            })
            .expect("some limit is enough");
        assert!(refusals > 0, "{io}");
        check_works(&mut connect(address));
    }
}

#[test]
fn check_did_not_see_the_limit_on_open_files() {
    let check = |limits: &str| {
        let mut command = std::process::Command::new("sh");
        let script = format!("ulimit {limits}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_flick"), "run", "--check", PROXY]);
        command.args(["--max-connections", "300", "--workers", "1", "--listen", "client=127.0.0.1:0"]);
        command.args(["--connect", "backends=127.0.0.1:1"]).current_dir(common::root()).env("NO_COLOR", "1");
        common::captured(command.output().expect("a shell starts"))
    };
    let (status, stdout, stderr) = check("-n 200");
    assert_eq!(status, 0, "{stderr}");
    assert!(
        stdout.starts_with("ok: ") && stderr.starts_with("warning: clients and backends may need"),
        "{stderr}"
    );
    assert!(stderr.contains("LimitNOFILE=") && stderr.contains("(limit 200, needed "), "{stderr}");
    let (status, _, stderr) = check("-Sn 200");
    assert_eq!((status, stderr.as_str()), (0, ""), "a start raises the soft limit");
}

#[test]
fn low_open_files_limit_is_logged() {
    let service = with_limits("-n 200");
    let log = service.drained();
    let needed = log.split("LimitNOFILE=").nth(1).and_then(|rest| rest.split('`').next());
    let needed: u64 = needed.and_then(|needed| needed.parse().ok()).unwrap_or_else(|| panic!("{log}"));
    assert!((300..1000).contains(&needed) && log.contains("limit=200"), "{log}");
    // The soft limit is raised, and what is enough is not spoken of.
    let service = with_limits(&format!("-Sn 200; ulimit -Hn {needed}"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", service.pid())).expect("it is there");
    let of_files = limits.lines().find(|line| line.starts_with("Max open files")).expect("Linux says so");
    let soft = of_files.split_whitespace().nth(3).and_then(|soft| soft.parse().ok());
    assert_eq!(soft, Some(needed), "{of_files}");
    let log = service.drained();
    assert!(!log.contains("open files"), "{log}");
}

/// Sends bytes to a web server with that kernel interface and reads until it ends the connection, however it does.
fn exchange_to_the_end(io: &str, bytes: &[u8]) -> (Service, TcpStream, Vec<u8>) {
    let listen = ["--listen", "client=127.0.0.1:0", "--io", io];
    let service = Service::start(&[["run", STATIC].as_slice(), &listen].concat());
    let mut stream = connect(service.address);
    stream.write_all(bytes).expect("it is connected");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the connection ends in good order");
    (service, stream, reply)
}

#[test]
fn connection_lingered_after_the_last_request_of_its_client() {
    for io in KERNEL_INTERFACES {
        for request in ["GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
            let (service, mut stream, reply) = exchange_to_the_end(io, request.as_bytes());
            assert!(reply.starts_with(b"HTTP/1.1 200"), "{io}: {}", reply.escape_ascii());
            // The kernel refuses bytes to a socket that is closed; one that lingers takes them.
            stream.write_all(b"x").expect("the reset comes later");
            let mut sources = [PollFd::new(&stream, PollFlags::empty())];
            let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(poll(&mut sources, Some(&timeout)).expect("it waits"), 1, "{io}: {request}");
            service.drained();
        }
    }
}

#[test]
fn reply_to_a_last_request_was_destroyed_by_what_followed_it() {
    let further = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let requests = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{further}");
    for io in KERNEL_INTERFACES {
        let (service, _, reply) = exchange_to_the_end(io, requests.as_bytes());
        let replies = reply.windows(8).filter(|eight| eight == b"HTTP/1.1").count();
        assert!(replies == 1 && reply.ends_with(b"\n"), "{io}: {}", reply.escape_ascii());
        service.drained();
    }
}

/// Answers each request with few bytes.
const EMPTY: &str = "\
use http

proc Empty: (request/response client)
  | client => answer() => client

fun answer: (_req: request) -> (response)
  response{status = 204, reason = \"No Content\", headers = [(\"a\", \"b\")], body = \"\"}
";

#[test]
fn client_that_read_nothing_kept_its_connection_after_the_last_reply_for_ever() {
    for io in KERNEL_INTERFACES {
        let scratch = Scratch::new(&format!("unread-{io}"));
        let (program, path) = (scratch.path().join("empty.flick"), scratch.path().join("client"));
        std::fs::write(&program, EMPTY).expect("the directory can be written");
        let program = program.to_str().expect("the path is UTF-8");
        let listen = format!("client=127.0.0.1:0,unix:{}", path.display());
        let service = Service::start(&["run", program, "--listen", &listen, "--io", io]);
        let mut stream = wait::until("the Unix socket", || UnixStream::connect(&path).ok());
        // Each reply is a message of its own, so few bytes fill the kernel's buffer.
        let mut unread_bytes = 0;
        loop {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is connected");
            let asked = Instant::now();
            let bytes = loop {
                let bytes = rustix::io::ioctl_fionread(&stream).expect("it is a socket");
                if bytes > unread_bytes || asked.elapsed() > Duration::from_millis(500) {
                    break bytes;
                }
                std::thread::yield_now();
            };
            if bytes == unread_bytes {
                break;
            }
            unread_bytes = bytes;
        }
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is connected");
        let mut sources = [PollFd::new(&stream, PollFlags::empty())];
        let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(poll(&mut sources, Some(&timeout)).expect("it waits"), 1, "{io}: {unread_bytes} bytes");
        service.drained();
    }
}
