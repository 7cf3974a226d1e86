//! Fields of requests in the access log: as they are forwarded, bounded, and whatever bytes clients send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use super::common::peers::Memcached;
use super::common::service::Service;
use super::common::{Scratch, client};
use super::{BALANCER, waited};
use flick_load::binary::Opcode;

/// Adds `X-Request-Id` and tells servers who the client is.
const FORWARDING: &str = "examples/http_balancer/http_balancer.flick";

/// A backend that answers each request with the `X-Request-Id` that it got, or with `none`.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut id, mut length) = ("none".to_owned(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let (name, value) = line.split_once(':').unwrap_or((line.trim_end(), ""));
            match name.to_ascii_lowercase().as_str() {
                "x-request-id" => id = value.trim().to_owned(),
                "content-length" => length = value.trim().parse().ok()?,
                "" => break,
                _ => {}
            }
        }
        std::io::copy(&mut (&mut stream).take(length), &mut std::io::sink()).ok()?;
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{id}", id.len());
        writer.write_all(response.as_bytes()).ok()?;
    }
}

/// Sends a request; the body of its response.
fn asked(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.write_all(request).expect("the service reads");
    let head = client::read_until(stream, b"\r\n\r\n");
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).expect("a length")];
    stream.read_exact(&mut body).expect("the whole body");
    String::from_utf8(body).expect("ASCII")
}

struct Logged {
    service: Service,
    log: std::path::PathBuf,
    _scratch: Scratch,
}

impl Logged {
    /// A balancer before a backend that logs these fields.
    fn start(program: &str, backend: SocketAddr, fields: &str, more: &[&str]) -> Self {
        let scratch = Scratch::new("access-fields");
        let log = scratch.path().join("access.log");
        let (connect, path) = (format!("backends={backend}"), log.display().to_string());
        let mut args = vec!["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect];
        args.extend(["--workers", "1", "--access-log", &path, "--access-log-fields", fields]);
        args.extend_from_slice(more);
        Self { service: Service::start(&args), log, _scratch: scratch }
    }

    /// Waits for N lines, and ends the service.
    fn lines(self, count: usize) -> Vec<Value> {
        let lines = waited(&self.log, count);
        self.service.drained();
        lines
    }
}

#[test]
fn request_id_of_the_log_is_the_one_that_the_backend_got() {
    for engine in ["native", "interpreter"] {
        let logged = Logged::start(FORWARDING, backend(), "User-Agent,X-Request-Id", &["--engine", engine]);
        let mut stream = client::connect(logged.service.address);
        let without = asked(&mut stream, b"GET /1 HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n");
        let with = asked(&mut stream, b"GET /2 HTTP/1.1\r\nHost: a\r\nX-Request-Id: own\r\n\r\n");
        let lines = logged.lines(2);
        // The program does not trust the client, so its id is replaced.
        assert!(without.len() == 32 && with.len() == 32 && with != without, "{without} {with}");
        assert_eq!(
            lines[0]["fields"],
            serde_json::json!({ "User-Agent": "curl/8", "X-Request-Id": without })
        );
        assert_eq!(lines[1]["fields"], serde_json::json!({ "User-Agent": null, "X-Request-Id": with }));
    }
}

#[test]
fn fields_of_a_forwarded_request_are_those_of_the_client() {
    for engine in ["native", "interpreter"] {
        let names = "x-request-id,REFERER,X-Missing";
        let logged = Logged::start(BALANCER, backend(), names, &["--engine", engine]);
        let mut stream = client::connect(logged.service.address);
        // Far behind the first bytes, and the first of two.
        let padding = format!("X-Padding: {}\r\n", "p".repeat(4000));
        let tail = "Referer: \"a\\b\"\t\u{e9}\r\nX-REQUEST-ID:  own \r\nreferer: second\r\n\r\n";
        let id = asked(&mut stream, format!("GET / HTTP/1.1\r\nHost: a\r\n{padding}{tail}").as_bytes());
        let line = logged.lines(1).remove(0);
        assert_eq!(id, "own");
        let fields = &line["fields"];
        assert_eq!(fields["x-request-id"], "own", "{line}");
        assert_eq!(fields["REFERER"], "\"a\\x5Cb\"\\x09\\xC3\\xA9", "{line}");
        assert_eq!(fields["X-Missing"], Value::Null, "{line}");
        assert_eq!(fields.as_object().map(serde_json::Map::len), Some(3), "{line}");
    }
}

#[test]
fn long_value_is_cut_in_the_log_only() {
    let logged = Logged::start(BALANCER, backend(), "X-Request-Id", &[]);
    let mut stream = client::connect(logged.service.address);
    let long = "i".repeat(7000);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: {long}\r\n\r\n");
    assert_eq!(asked(&mut stream, request.as_bytes()), long);
    assert_eq!(logged.lines(1)[0]["fields"]["X-Request-Id"], long[..200]);
}

#[test]
fn streamed_request_has_its_fields_in_the_log() {
    for (program, is_own) in [(BALANCER, true), (FORWARDING, false)] {
        let logged = Logged::start(program, backend(), "X-Request-Id", &[]);
        let mut stream = client::connect(logged.service.address);
        let body = "b".repeat(300_000);
        let head = format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nX-Request-Id: own\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let id = asked(&mut stream, (head + &body).as_bytes());
        assert_eq!(id == "own", is_own);
        assert_eq!(logged.lines(1)[0]["fields"]["X-Request-Id"], id);
    }
}

#[test]
fn request_that_no_backend_got_has_its_fields_in_the_log() {
    let down = super::common::peers::free_address();
    let logged = Logged::start(BALANCER, down, "X-Request-Id", &[]);
    let mut stream = client::connect(logged.service.address);
    asked(&mut stream, b"GET /1 HTTP/1.1\r\nHost: a\r\nX-Request-Id: own\r\n\r\n");
    stream.write_all(b"GET /2 HTTP/1.1\r\nno colon\r\n\r\n").expect("the service reads");
    client::read_until(&mut stream, b"400 Bad Request");
    let lines = logged.lines(2);
    assert_eq!(lines[0]["fields"]["X-Request-Id"], "own");
    // It could not be parsed.
    assert_eq!(lines[1]["fields"]["X-Request-Id"], Value::Null);
}

#[test]
fn protocol_without_named_fields_has_none_in_the_log() {
    let scratch = Scratch::new("access-no-fields");
    let log = scratch.path().join("access.log");
    let (memcached, path) = (Memcached::start(), log.display().to_string());
    let extra = ["--workers", "1", "--access-log", &path, "--access-log-fields", "User-Agent"];
    let service = Service::proxy(&[memcached.address], &extra);
    client::ask(&mut client::connect(service.address), Opcode::Set, 1, b"k", b"v");
    let line = waited(&log, 1).remove(0);
    assert_eq!(line.get("fields"), None, "{line}");
    service.drained();
}

#[test]
fn reload_changes_the_fields() {
    let scratch = Scratch::new("access-fields-reload");
    let program = super::common::root().join(BALANCER);
    let at = super::common::peers::free_address();
    let settings = |names: &str| {
        let service = format!(
            "[service]\nprogram = \"{}\"\nlisten = {{ client = \"{at}\" }}\nconnect = {{ backends = \"{}\" }}\n",
            program.display(),
            backend()
        );
        let top = format!("workers = 1\naccess_log = \"one.log\"\naccess_log_fields = {names}\n");
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
        scratch.write("flick.toml", &format!("{top}{admin}{service}")).display().to_string()
    };
    let service = Service::start(&["run", "--config", &settings("\"User-Agent\"")]);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl\r\nX-Request-Id: own\r\n\r\n";
    asked(&mut client::connect(service.address), request);
    settings("[\"X-Request-Id\", \"User-Agent\"]");
    let (status, _, error) = super::common::run(&["reload", &service.admin_address().to_string()]);
    assert_eq!(status, 0, "{error}");
    asked(&mut client::connect(service.address), request);
    let lines = waited(&scratch.path().join("one.log"), 2);
    assert_eq!(lines[0]["fields"], serde_json::json!({ "User-Agent": "curl" }));
    assert_eq!(lines[1]["fields"], serde_json::json!({ "X-Request-Id": "own", "User-Agent": "curl" }));
    service.drained();
}
