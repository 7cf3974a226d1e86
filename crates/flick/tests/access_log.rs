//! The access log of a running service: every line is JSON, whatever clients send, and no client waits for the log.

mod common;
#[path = "access_log/fields.rs"]
mod fields;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use common::http::{Backend, echoed, exchange};
use common::peers::Memcached;
use common::service::Service;
use common::{Scratch, captured, client, flick, wait};
use flick_load::binary::Opcode;
use serde_json::Value;

const BALANCER: &str = "examples/http_balancer/round_robin.flick";
const SERVER: &str = "examples/key_value_server/key_value_server.flick";

/// The lines of a log so far; what is not whole is none.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(read).collect()
}

/// Waits for N lines.
fn waited(path: &Path, count: usize) -> Vec<Value> {
    wait::until("the lines of the access log", || Some(lines(path)).filter(|lines| lines.len() >= count))
}

fn http_backend() -> Backend {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Backend::start_at(any, echoed, 0).expect("the loopback has a free port")
}

/// A balancer of one worker before a backend, with its access log there.
fn balancer(backend: &Backend, log: &Path, extra: &[&str]) -> Service {
    let connect = format!("backends={}", backend.address);
    let log = log.display().to_string();
    let mut args = vec!["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect];
    args.extend(["--workers", "1", "--access-log", &log]);
    args.extend_from_slice(extra);
    Service::start(&args)
}

#[test]
fn line_describes_an_http_request() {
    let scratch = Scratch::new("access-http");
    let (log, backend) = (scratch.path().join("access.log"), http_backend());
    let service = balancer(&backend, &log, &[]);
    let mut stream = client::connect(service.address);
    let own = stream.local_addr().expect("it is connected").to_string();
    let (status, body) = exchange(&mut stream, "/found").expect("an answer");
    assert_eq!((status, body.as_slice()), (200, &b"/found"[..]));
    let line = waited(&log, 1).remove(0);
    let at = backend.address.to_string();
    for (field, expected) in [
        ("client", Value::from(own)),
        ("request", "GET /found HTTP/1.1".into()),
        ("reply", "HTTP/1.1 200 OK".into()),
        ("backend", at.into()),
        ("outcome", "backend".into()),
        ("worker", 0.into()),
        ("bytes_in", "GET /found HTTP/1.1\r\nHost: localhost\r\n\r\n".len().into()),
    ] {
        assert_eq!(line[field], expected, "{field} in {line}");
    }
    assert!(line["bytes_out"].as_u64() > Some(6), "{line}");
    assert!(line["latency_us"].as_u64().is_some_and(|us| us < 20_000_000), "{line}");
    service.drained();
}

#[test]
fn bytes_in_and_out_include_bodies() {
    let scratch = Scratch::new("access-bodies");
    let log = scratch.path().join("access.log");
    let backend = Memcached::start();
    let log_path = log.display().to_string();
    let service = Service::proxy(&[backend.address], &["--workers", "1", "--access-log", &log_path]);
    let mut stream = client::connect(service.address);
    let value = vec![b'v'; 300_000];
    client::ask(&mut stream, Opcode::Set, 1, b"k", &value);
    client::ask(&mut stream, Opcode::Get, 2, b"k", b"");
    let lines = waited(&log, 2);
    // Header, extras, key and value.
    assert_eq!(lines[0]["bytes_in"], 24 + 8 + 1 + 300_000, "{}", lines[0]);
    assert_eq!(lines[0]["bytes_out"], 24, "{}", lines[0]);
    assert_eq!(lines[1]["bytes_in"], 25, "{}", lines[1]);
    assert_eq!(lines[1]["bytes_out"], 24 + 4 + 300_000, "{}", lines[1]);
    assert!(lines[1]["request"].as_str().is_some_and(|text| text.starts_with("\\x80\\x00\\x00\\x01")));
    assert!(lines[1]["reply"].as_str().is_some_and(|text| text.starts_with("\\x81")), "{}", lines[1]);
    service.drained();
}

#[test]
fn bytes_out_were_those_of_the_first_of_several_replies() {
    let scratch = Scratch::new("access-several");
    let log = scratch.path().join("access.log");
    let log_path = log.display().to_string();
    let args = ["run", SERVER, "--listen", "client=127.0.0.1:0", "--workers", "1", "--access-log", &log_path];
    let service = Service::start(&args);
    let mut stream = client::connect(service.address);
    for command in ["set a 0 0 5\r\nfirst\r\n", "set b 0 0 6\r\nsecond\r\n"] {
        stream.write_all(command.as_bytes()).expect("the service reads");
        let mut answer = [0; "STORED\r\n".len()];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"STORED\r\n");
    }
    let replies = "VALUE a 0 5\r\nfirst\r\nVALUE b 0 6\r\nsecond\r\nEND\r\n";
    stream.write_all(b"get a b c\r\nget c\r\n").expect("the service reads");
    let mut answer = vec![0; replies.len() + "END\r\n".len()];
    stream.read_exact(&mut answer).expect("an answer");
    service.drained();
    let lines = lines(&log);
    let found: Vec<_> = lines.iter().map(|line| (&line["request"], &line["bytes_out"])).collect();
    let of = |line: usize, request: &str, bytes: usize| {
        assert_eq!(found[line], (&Value::from(request), &Value::from(bytes)), "{found:?}");
    };
    assert_eq!(found.len(), 4, "{found:?}");
    of(2, "get a b c", replies.len());
    of(3, "get c", "END\r\n".len());
}

#[test]
fn request_without_a_backend_is_logged() {
    let scratch = Scratch::new("access-down");
    let (log, backend) = (scratch.path().join("access.log"), http_backend());
    let service = balancer(&backend, &log, &[]);
    let mut stream = client::connect(service.address);
    exchange(&mut stream, "/up").expect("an answer");
    backend.stop();
    wait::until("the balancer to answer itself", || {
        let mut stream = client::connect(service.address);
        exchange(&mut stream, "/down").ok().filter(|(status, _)| *status == 503 || *status == 502)
    });
    service.drained();
    let lines = lines(&log);
    let own =
        lines.iter().find(|line| line["outcome"] == "unavailable").expect("a line of the platform's answer");
    assert!(own["reply"].as_str().is_some_and(|text| text.starts_with("HTTP/1.1 50")), "{own}");
    assert_eq!(own["request"], "GET /down HTTP/1.1", "{own}");
}

#[test]
fn malformed_requests_break_no_line() {
    let scratch = Scratch::new("access-nonsense");
    let (log, backend) = (scratch.path().join("access.log"), http_backend());
    let service = balancer(&backend, &log, &[]);
    let nonsense: [&[u8]; 6] = [
        b"GET /\"},{\"request\":\"\\ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x00\x01\x02\n\n\n\"\"\"",
        b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n",
        b"}{\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    ];
    for bytes in nonsense {
        let mut stream = client::connect(service.address);
        stream.write_all(bytes).expect("the service reads");
        stream.shutdown(std::net::Shutdown::Write).expect("the connection is there");
        // A reset is an answer, too.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    exchange(&mut client::connect(service.address), "/last").expect("an answer");
    service.drained();
    let lines = lines(&log);
    assert!(lines.iter().all(|line| line.as_object().is_some_and(|fields| fields.len() == 13)), "{lines:?}");
    assert_eq!(lines.last().map(|line| &line["request"]), Some(&Value::from("GET /last HTTP/1.1")));
}

#[test]
fn sample_of_one_in_ten_is_exact() {
    let scratch = Scratch::new("access-sample");
    let (log, backend) = (scratch.path().join("access.log"), http_backend());
    let service = balancer(&backend, &log, &["--access-log-sample", "1/10"]);
    let mut stream = client::connect(service.address);
    for number in 0..95 {
        exchange(&mut stream, &format!("/{number}")).expect("an answer");
    }
    service.drained();
    let asked: Vec<Value> = lines(&log).iter().map(|line| line["request"].clone()).collect();
    let expected: Vec<Value> = (0..10).map(|ten| format!("GET /{} HTTP/1.1", ten * 10).into()).collect();
    assert_eq!(asked, expected);
}

#[test]
fn moved_log_is_reopened_on_sigusr1() {
    let scratch = Scratch::new("access-rotate");
    let (log, old) = (scratch.path().join("access.log"), scratch.path().join("access.log.1"));
    let backend = http_backend();
    let service = balancer(&backend, &log, &[]);
    let mut stream = client::connect(service.address);
    exchange(&mut stream, "/before").expect("an answer");
    waited(&log, 1);
    std::fs::rename(&log, &old).expect("both are in one directory");
    service.signal("USR1");
    wait::until("the file to be there again", || log.exists().then_some(()));
    service.signal("HUP");
    exchange(&mut stream, "/after").expect("an answer");
    let after = waited(&log, 1);
    assert_eq!(after[0]["request"], "GET /after HTTP/1.1");
    assert_eq!(lines(&old).len(), 1);
    service.drained();
}

#[test]
fn slow_log_reader_costs_only_lines() {
    const REQUESTS: usize = 20_000;
    let scratch = Scratch::new("access-full");
    let log = scratch.path().join("access.pipe");
    let made = std::process::Command::new("mkfifo").arg(&log).status().expect("mkfifo starts");
    assert!(made.success());
    // Opened for both, so that neither side waits for the other.
    let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(&log).expect("our own pipe");
    let path = log.display().to_string();
    let listen = "client=127.0.0.1:0";
    let args = ["run", SERVER, "--listen", listen, "--workers", "1", "--access-log", &path];
    let service = Service::start(&args);
    let mut stream = client::connect(service.address);
    let (mut writer, sent) = (stream.try_clone().expect("a descriptor"), "get k\r\n".repeat(REQUESTS));
    let sender = std::thread::spawn(move || writer.write_all(sent.as_bytes()));
    let mut answers = vec![0; "END\r\n".len() * REQUESTS];
    stream.read_exact(&mut answers).expect("everybody is answered while the log stands still");
    sender.join().expect("no panic").expect("the service reads");
    // Read now, or the service could not end: it writes what it has.
    let reader = std::thread::spawn(move || {
        let (mut text, mut piece) = (Vec::new(), [0; 65_536]);
        while !text.ends_with(b"the end\n") {
            let len = pipe.read(&mut piece).expect("our own pipe");
            text.extend(&piece[..len]);
        }
        String::from_utf8(text).expect("lines are ASCII")
    });
    let log_text = service.drained();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .and_then(|mut pipe| pipe.write_all(b"the end\n"))
        .expect("our own pipe");
    let text = reader.join().expect("no panic");
    let written = text.lines().filter(|line| *line != "the end").inspect(|line| {
        let read: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(read["request"], "get k");
    });
    let written = written.count();
    let lost = counted(&log_text, "access_log_dropped");
    assert!(lost > 0, "nothing was dropped though no process read");
    assert_eq!(written + lost, REQUESTS, "every request is a line, or counted");
    assert_eq!(counted(&log_text, "access_log_lines"), written);
}

/// Returns the value of a counter in the last line of the log.
fn counted(log: &str, name: &str) -> usize {
    let totals = log.lines().rfind(|line| line.contains("totals")).expect("the totals are logged");
    let after = totals.split(name).nth(1).unwrap_or(" 0");
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a count")
}

#[test]
fn lines_dropped_by_a_full_disk_are_counted() {
    let backend = http_backend();
    let service = balancer(&backend, Path::new("/dev/full"), &["--admin", "0"]);
    let mut stream = client::connect(service.address);
    for _ in 0..3 {
        exchange(&mut stream, "/kept").expect("an answer");
    }
    let admin = flick_admin::Address::Tcp(service.admin_address());
    wait::until("the count of three lines", || {
        let metrics =
            flick_admin::client::get(&admin, "/metrics", None).expect("the admin endpoint answers").body;
        metrics
            .lines()
            .any(|line| line == "flick_access_log_lines_dropped_total{reason=\"write_error\"} 3")
            .then_some(())
    });
    let log = service.drained();
    let warning = log.lines().find(|line| line.contains("cannot write lines of the access log"));
    let warning = warning.unwrap_or_else(|| panic!("no warning: {log}"));
    assert!(warning.contains("path=/dev/full") && warning.contains("os error 28"), "{warning}");
}

#[test]
fn failed_reload_keeps_the_access_log() {
    let (scratch, backend) = (Scratch::new("access-refused"), http_backend());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let taken = taken.local_addr().expect("it listens");
    let program = common::root().join(BALANCER);
    let settings = |log: &str, listen: SocketAddr| {
        let top = format!("workers = 1\naccess_log = \"{log}\"\nadmin.listen = \"127.0.0.1:0\"");
        let listen = format!(
            "listen = {{ client = \"{listen}\" }}\nconnect = {{ backends = \"{}\" }}",
            backend.address
        );
        let text = format!("{top}\n[service]\nprogram = \"{}\"\n{listen}\n", program.display());
        scratch.write("flick.toml", &text).display().to_string()
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let service = Service::start(&["run", "--config", &settings("one.log", any)]);
    settings("two.log", taken);
    let (status, _, error) = common::run(&["reload", &service.admin_address().to_string()]);
    assert!(status == 1 && error.contains("cannot listen on"), "{error}");
    exchange(&mut client::connect(service.address), "/kept").expect("an answer");
    service.drained();
    assert_eq!(lines(&scratch.path().join("one.log")).len(), 1);
    assert_eq!(lines(&scratch.path().join("two.log")).len(), 0);
}

#[test]
fn unwritable_log_is_a_start_error() {
    let output = flick()
        .args(["run", SERVER, "--listen", "client=127.0.0.1:0", "--access-log", "/nowhere/at/all.log"])
        .output()
        .expect("the tool starts");
    let (status, _, said) = captured(output);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("cannot write the access log /nowhere/at/all.log"), "{said}");
}

#[test]
fn access_log_on_stdout() {
    let mut command = flick();
    command.args(["run", SERVER, "--listen", "client=127.0.0.1:0", "--access-log", "-"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let stderr = child.stderr.take().expect("it was asked for");
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    let line = said.find(|line| line.contains("listening")).expect("it says where it listens");
    let at = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(b"get k\r\n").expect("it reads");
    stream.read_exact(&mut [0; 5]).expect("it answers");
    common::peers::signal(child.id(), "TERM");
    // Read to its end, or it could not say it.
    std::thread::spawn(move || said.count());
    let output = child.wait_with_output().expect("our own child");
    let read: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(read["request"], "get k");
}
