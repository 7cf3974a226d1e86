//! An operator's limits of requests: their head, the number of their fields, and their target.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::common::client;
use super::common::http::{Backend, echoed};
use super::common::service::Service;
use super::common::{self, Scratch};

const ROUND_ROBIN: &str = "examples/http_balancer/round_robin.flick";
/// A program that adds fields.
const FORWARDING: &str = "examples/http_balancer/http_balancer.flick";
/// Bytes of the fields that it adds to a request of `Host: a` from 127.0.0.1.
const FORWARDING_BYTES: usize = 175;

fn backend() -> Backend {
    Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), echoed, 0).expect("the loopback has a free port")
}

fn balancer(program: &str, backend: &Backend, limits: &[&str]) -> Service {
    let connect = format!("backends={}", backend.address);
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--workers", "1"];
    Service::start(&[&args[..], limits].concat())
}

/// Sends a request on a connection of its own; the status of the response.
fn status(service: &Service, request: &str) -> u16 {
    let mut stream: TcpStream = client::connect(service.address);
    stream.write_all(request.as_bytes()).expect("the service reads");
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("a response");
    String::from_utf8_lossy(&line)[9..].parse().expect("a status")
}

/// A request whose head has this many bytes.
fn head_of(bytes: usize) -> String {
    let (front, end) = ("GET / HTTP/1.1\r\nHost: a\r\nX-Padding: ", "\r\n\r\n");
    format!("{front}{}{end}", "p".repeat(bytes - front.len() - end.len()))
}

/// As [`head_of`], with more bytes than one field can have.
fn long_head_of(bytes: usize) -> String {
    let half = format!("X-Half: {}", "h".repeat(8_190));
    head_of(bytes - half.len() - 2).replace("X-Padding", &format!("{half}\r\nX-Padding"))
}

/// A request with this many fields.
fn fields_of(count: usize) -> String {
    let others: String = (1..count).map(|number| format!("X-{number}: v\r\n")).collect();
    format!("GET / HTTP/1.1\r\nHost: a\r\n{others}\r\n")
}

/// A request whose target has this many bytes.
fn target_of(bytes: usize) -> String {
    format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "t".repeat(bytes - 1))
}

#[test]
fn limits_of_requests_needed_a_copy_of_the_grammar() {
    let backend = backend();
    for (program, engine) in [(ROUND_ROBIN, "native"), (ROUND_ROBIN, "interpreter"), (FORWARDING, "native")] {
        let limits = ["--max-request-head", "4KiB", "--max-request-fields", "10"];
        let more = ["--max-request-target", "100B", "--engine", engine];
        let service = balancer(program, &backend, &[&limits[..], &more].concat());
        for (request, expected) in [
            (head_of(100), 200),
            (head_of(4094), 200),
            (head_of(4200), 431),
            (head_of(20_000), 431),
            (fields_of(10), 200),
            (fields_of(11), 431),
            (fields_of(135), 431),
            (target_of(100), 200),
            (target_of(101), 414),
            (target_of(9000), 414),
        ] {
            let shown: String = request.chars().take(60).collect();
            assert_eq!(status(&service, &request), expected, "{program} {engine} {} {shown}", request.len());
        }
        // A body is not a part of the head.
        let body = "b".repeat(9000);
        let sized = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(status(&service, &sized), 200, "{program} {engine}");
        service.drained();
    }
}

#[test]
fn requests_have_the_limits_of_the_grammar_by_default() {
    let backend = backend();
    // The fields that a program adds count against the limits of the grammar.
    for (program, fields_max, head_max, beyond) in
        [(ROUND_ROBIN, 134, 16 * 1024, 431), (FORWARDING, 128, 16 * 1024 - FORWARDING_BYTES, 431)]
    {
        let service = balancer(program, &backend, &[]);
        for (request, expected) in [
            (head_of(8000), 200),
            (long_head_of(head_max), 200),
            (long_head_of(head_max + 1), beyond),
            (long_head_of(16 * 1024 + 1), 431),
            (fields_of(fields_max), 200),
            (fields_of(fields_max + 1), 431),
            (fields_of(135), 431),
            (target_of(8192), 200),
            (target_of(8193), 414),
        ] {
            let (bytes, fields) = (request.len(), request.matches(": ").count());
            assert_eq!(status(&service, &request), expected, "{program}: {bytes} bytes, {fields} fields");
        }
        service.drained();
    }
}

#[test]
fn long_heads_that_leave_no_capacity_for_added_fields_are_431_under_a_lower_limit() {
    let backend = backend();
    let service = balancer(FORWARDING, &backend, &["--max-request-head", "15KiB"]);
    for (bytes, expected) in [(15_000, 200), (16_000, 431), (16_384, 431)] {
        assert_eq!(status(&service, &long_head_of(bytes)), expected, "{bytes}");
    }
    service.drained();
}

#[test]
fn limit_above_that_of_the_grammar_is_an_error() {
    for (option, value, piece) in [
        ("--max-request-fields", "135", "`max_request_fields` is above 134, the maximum of the grammar"),
        ("--max-request-target", "9KiB", "`max_request_target` is above 8192B, the maximum of the grammar"),
        ("--max-request-head", "17KiB", "out of range; the range is 1024B to 16KiB"),
    ] {
        let (listen, connect) = ("client=127.0.0.1:0", "backends=127.0.0.1:1");
        let args = ["run", ROUND_ROBIN, "--check", "--listen", listen, "--connect", connect, option, value];
        let (status, _, error) = common::run(&args);
        assert!(status != 0 && error.contains(piece), "{status} {error}");
    }
}

#[test]
fn reload_changes_the_limits_of_requests() {
    let (scratch, backend) = (Scratch::new("http-limits"), backend());
    let at = common::peers::free_address();
    let settings = |fields: usize| {
        let text = format!(
            "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[service]\nprogram = \"{}\"\n\
             listen = {{ client = \"{at}\" }}\nconnect = {{ backends = \"{}\" }}\n\
             limits = {{ max_request_fields = {fields} }}\n",
            common::root().join(ROUND_ROBIN).display(),
            backend.address
        );
        scratch.write("flick.toml", &text).display().to_string()
    };
    let service = Service::start(&["run", "--config", &settings(20)]);
    assert_eq!((status(&service, &fields_of(20)), status(&service, &fields_of(21))), (200, 431));
    settings(5);
    let (result, _, error) = common::run(&["reload", &service.admin_address().to_string()]);
    assert_eq!(result, 0, "{error}");
    assert_eq!((status(&service, &fields_of(5)), status(&service, &fields_of(6))), (200, 431));
    service.drained();
}
