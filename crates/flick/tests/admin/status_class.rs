//! Responses by the class of their status code: of the service, and of each backend.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use super::common::http::exchange;
use super::common::peers::Memcached;
use super::common::service::Service;
use super::common::{client, wait};
use super::{Metrics, metrics};

const BALANCER: &str = "examples/http_balancer/round_robin.flick";

/// A backend that answers each request with the status that its target names: `/404`. After `/0` it closes.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a descriptor");
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                for line in lines.filter(|line| line.starts_with("GET /")) {
                    let status = line.trim_start_matches("GET /").split(' ').next().unwrap_or_default();
                    if status == "0" {
                        return;
                    }
                    let interim = if status == "201" { "HTTP/1.1 103 Early Hints\r\n\r\n" } else { "" };
                    let response = format!("{interim}HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
                    if writer.write_all(response.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The counts of a family by class, of the backend with this address if one is given.
fn by_class(seen: &Metrics, family: &str, backend: Option<SocketAddr>) -> Vec<(String, f64)> {
    let label = |labels: &[(String, String)], name: &str| {
        labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    };
    let is_its = |labels: &[(String, String)]| {
        backend.is_none_or(|at| label(labels, "backend") == Some(at.to_string()))
    };
    let samples = seen.samples(family).filter(|sample| is_its(&sample.labels) && sample.value > 0.0);
    samples
        .map(|sample| (label(&sample.labels, "status_class").expect("each has a class"), sample.value))
        .collect()
}

fn counts(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    expected.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect()
}

#[test]
fn the_one_backend_that_answers_with_5xx_was_not_visible() {
    for engine in ["native", "interpreter"] {
        let (good, bad) = (backend(), backend());
        let connect = format!("backends={good},{bad}");
        let listen = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect];
        let more = ["--workers", "1", "--admin", "0", "--engine", engine];
        let service = Service::start(&[&listen[..], &more].concat());
        let mut stream = client::connect(service.address);
        // Each backend gets every other request.
        for [first, second] in [["/200", "/500"], ["/203", "/503"], ["/301", "/599"], ["/404", "/200"]] {
            for target in [first, second] {
                let (status, _) = exchange(&mut stream, target).expect("an answer");
                assert_eq!(format!("/{status}"), target);
            }
        }
        let seen = metrics(service.admin_address());
        let all = [("2xx", 3.0), ("3xx", 1.0), ("4xx", 1.0), ("5xx", 3.0)];
        assert_eq!(by_class(&seen, "flick_responses_by_status_total", None), counts(&all), "{engine}");
        let name = "flick_backend_responses_by_status_total";
        let (one, other) = (by_class(&seen, name, Some(good)), by_class(&seen, name, Some(bad)));
        let mut found = [one, other];
        found.sort_by_key(Vec::len);
        let expected =
            [counts(&[("2xx", 1.0), ("5xx", 3.0)]), counts(&[("2xx", 2.0), ("3xx", 1.0), ("4xx", 1.0)])];
        assert_eq!(found, expected, "{engine}");
        service.drained();
    }
}

#[test]
fn error_responses_of_flick_itself_were_in_no_class() {
    let only = backend();
    let connect = format!("backends={only}");
    let listen = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect];
    let service = Service::start(&[&listen[..], &["--workers", "1", "--admin", "0"]].concat());
    let mut stream = client::connect(service.address);
    assert_eq!(exchange(&mut stream, "/0").expect("an answer").0, 502);
    let mut malformed = client::connect(service.address);
    malformed.write_all(b"GET / HTTP/1.1\r\nno colon\r\n\r\n").expect("the service reads");
    client::read_until(&mut malformed, b"\r\n\r\n");
    let seen = metrics(service.admin_address());
    let expected = counts(&[("4xx", 1.0), ("5xx", 1.0)]);
    assert_eq!(by_class(&seen, "flick_responses_by_status_total", None), expected);
    assert_eq!(by_class(&seen, "flick_backend_responses_by_status_total", None), []);
    service.drained();
}

#[test]
fn interim_responses_have_a_class_of_their_own() {
    let connect = format!("backends={}", backend());
    let listen = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect];
    let service = Service::start(&[&listen[..], &["--workers", "1", "--admin", "0"]].concat());
    let mut stream = client::connect(service.address);
    stream.write_all(b"GET /201 HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
    client::read_until(&mut stream, b"201 X\r\nContent-Length: 0\r\n\r\n");
    let expected = counts(&[("1xx", 1.0), ("2xx", 1.0)]);
    wait::until("both to be counted", || {
        let seen = metrics(service.admin_address());
        (by_class(&seen, "flick_responses_by_status_total", None) == expected).then_some(())
    });
    service.drained();
}

#[test]
fn protocol_without_a_status_has_no_series_by_status() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--admin", "0"]);
    let seen = metrics(service.admin());
    for name in ["flick_responses_by_status_total", "flick_backend_responses_by_status_total"] {
        assert_eq!(seen.samples(name).count(), 0, "{name}");
    }
    assert_eq!(seen.samples("flick_responses_total").count(), 1);
    service.drained();
}
