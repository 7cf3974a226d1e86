//! The balancers between real clients and real web servers, none of them ours.

#[path = "http/client.rs"]
mod client;
mod common;
#[path = "http/origin.rs"]
mod origin;
#[path = "http/servers.rs"]
mod servers;

use std::net::SocketAddr;
use std::process::Command;

use common::peers::output;
use common::service::Service;
use common::wait::WAIT_MAX;
use common::{captured, run, wait};
use flick_testkit::http::strict::{self, Trouble};
use flick_testkit::http::table::{Case, requests};
use servers::{HELLO, KINDS, Kind, LARGE_BYTES, Server};

/// The balancers of the example, one file each.
const BALANCERS: [&str; 6] = ["by_address", "round_robin", "least_loaded", "two_choices", "by_url", "sticky"];
/// A case that stands for bytes without end, which a server would wait for.
const RESPONSE_TIMEOUT: &str = "2s";

fn balancer(name: &str, backends: &[SocketAddr]) -> Service {
    let list: Vec<String> = backends.iter().map(ToString::to_string).collect();
    let connect = format!("backends={}", list.join(","));
    let program = format!("examples/http_balancer/{name}.flick");
    let timeout = ["--response-timeout", RESPONSE_TIMEOUT];
    Service::start(
        &[["run", &program, "--listen", "client=127.0.0.1:0", "--connect", &connect].as_slice(), &timeout]
            .concat(),
    )
}

/// Returns the numbers of requests of a case that a server must see and may see: one that is refused inside its body
/// may have begun.
fn requests_of(case: &Case) -> (usize, usize) {
    let (asked, refused) = client::expected(&case.bytes);
    let sure = asked.len();
    let mut rest = case.bytes.as_slice();
    while let Ok(message) = strict::request(rest) {
        rest = &rest[message.next..];
    }
    let has_head = rest.windows(4).any(|four| four == b"\r\n\r\n");
    let begun = refused != Some(false) && has_head && begins(rest);
    (sure, sure + usize::from(begun))
}

/// Whether what is no request as a whole has a head that is one: without its body it would be.
fn begins(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = &bytes[..end + 4];
    !matches!(strict::request(head), Err(Trouble::Bad(_)))
}

/// The bytes of all cases through flick to one server: it sees as many requests as flick did, neither more nor fewer.
fn same_number_of_requests(kind: Kind) {
    let server = Server::start(kind, "counted");
    let service = balancer("round_robin", &[server.address]);
    let before = server.seen().len();
    let (mut least, mut most) = (before, before);
    for case in requests() {
        let (sure, begun) = requests_of(&case);
        let got = client::exchange(service.address, &case.bytes);
        (least, most) = (least + sure, most + begun);
        let seen = wait::within(WAIT_MAX, || Some(server.seen().len()).filter(|seen| *seen >= least));
        let seen = seen.unwrap_or_else(|| {
            panic!("{kind:?} never saw `{}`, which was answered: {}", case.name, got.escape_ascii())
        });
        assert!(
            seen <= most,
            "{kind:?} saw more than was asked for with `{}`: {:?}",
            case.name,
            server.seen().last()
        );
        // What had begun and was cut is seen now or never; the next case counts from here.
        (least, most) = (seen.max(least), most);
    }
    service.drained();
    let seen = server.ended();
    assert!(
        (least..=most).contains(&seen.len()),
        "{kind:?}: {} requests, {least} to {most} expected",
        seen.len()
    );
}

#[test]
fn nginx_sees_as_many_requests_as_flick() {
    same_number_of_requests(Kind::Nginx);
}

#[test]
fn apache_sees_as_many_requests_as_flick() {
    same_number_of_requests(Kind::Apache);
}

#[test]
fn haproxy_sees_as_many_requests_as_flick() {
    same_number_of_requests(Kind::Haproxy);
}

fn curl(args: &[&str]) -> (i32, String, String) {
    captured(output(Command::new("curl").args(["-sS", "-m", "20"]).args(args), "curl"))
}

#[test]
fn curl_through_each_balancer_to_each_server() {
    for kind in KINDS {
        let servers = [Server::start(kind, "curl"), Server::start(kind, "curl")];
        for name in BALANCERS {
            let service = balancer(name, &[servers[0].address, servers[1].address]);
            let hello = format!("http://{}/hello", service.address);
            // Twice on one connection.
            let (status, stdout, stderr) = curl(&[&hello, &hello]);
            assert_eq!((status, stdout), (0, HELLO.repeat(2)), "{name} {kind:?}: {stderr}");
            service.drained();
        }
    }
}

#[test]
fn curl_loads_and_stores_large_bodies() {
    let server = Server::start(Kind::Nginx, "large");
    let service = balancer("round_robin", &[server.address]);
    let url = |path: &str| format!("http://{}{path}", service.address);
    let (status, stdout, stderr) = curl(&[&url("/large")]);
    assert_eq!((status, stdout.len()), (0, LARGE_BYTES), "{stderr}");
    let files = common::Scratch::new("upload");
    let upload = format!("@{}", files.write("body", &"x".repeat(LARGE_BYTES)).display());
    for extra in ["Expect: 100-continue", "Transfer-Encoding: chunked"] {
        let (status, stdout, stderr) = curl(&["--data-binary", &upload, "-H", extra, &url("/post")]);
        assert_eq!((status, stdout.as_str()), (0, "posted"), "{extra}: {stderr}");
    }
    let (status, stdout, stderr) = curl(&["-I", &url("/hello")]);
    assert!(status == 0 && stdout.starts_with("HTTP/1.1 200"), "{stdout}{stderr}");
    let (status, stdout, stderr) = curl(&["-0", "-i", &url("/hello")]);
    assert!(status == 0 && stdout.ends_with(HELLO), "{stdout}{stderr}");
    let (status, stdout, stderr) = curl(&["-i", &url("/status/")]);
    assert!(status == 0 && stdout.starts_with("HTTP/1.1 204"), "{stdout}{stderr}");
    service.drained();
}

#[test]
fn wrk_finds_no_errors() {
    for kind in KINDS {
        let servers = [Server::start(kind, "wrk"), Server::start(kind, "wrk")];
        let service = balancer("least_loaded", &[servers[0].address, servers[1].address]);
        let url = format!("http://{}/hello", service.address);
        // Kept connections, and one for each request, which ends with its response.
        for more in [&[][..], &["-H", "Connection: close"]] {
            let mut wrk = Command::new("wrk");
            let args = [&["-t", "1", "-c", "32", "-d", "2s"], more, &[&url]].concat();
            let (status, stdout, stderr) = captured(output(wrk.args(args), "wrk"));
            assert_eq!(status, 0, "{stderr}");
            let is_clean = !stdout.contains("Socket errors") && !stdout.contains("Non-2xx");
            assert!(is_clean && !stdout.contains(" 0 requests in"), "{kind:?} {more:?}: {stdout}");
        }
        service.drained();
    }
}

#[test]
fn flick_load_counts_the_requests_that_each_server_counts() {
    let modes = [&[][..], &["--http", "1.0", "--rate", "2k"], &["--connection-per-request"]];
    for kind in KINDS {
        let server = Server::start(kind, "load");
        let url = format!("http://{}/hello", server.address);
        let replies = modes.map(|mode| {
            let args = [&["load", &url, "--duration", "150ms", "--warm-up", "0", "--json"], mode].concat();
            let (status, stdout, stderr) = run(&args);
            assert_eq!(status, 0, "{kind:?} {mode:?}: {stderr}{stdout}");
            let found: serde_json::Value = serde_json::from_str(&stdout).expect("the results are JSON");
            assert_eq!(found["http_statuses"]["200"], found["replies"], "{kind:?} {mode:?}: {found}");
            found["replies"].as_u64().expect("a number")
        });
        assert!(replies.iter().all(|replies| *replies > 0), "{kind:?}: {replies:?}");
        let seen = server.ended().iter().filter(|line| line.contains("GET /hello")).count();
        assert_eq!(seen as u64, replies.iter().sum::<u64>(), "{kind:?}: {replies:?}");
    }
}

#[test]
fn access_log_of_each_server_matches() {
    for kind in KINDS {
        let server = Server::start(kind, "alone");
        let (status, stdout, stderr) = curl(&[&format!("http://{}/hello", server.address)]);
        assert_eq!((status, stdout.as_str()), (0, HELLO), "{kind:?}: {stderr}");
        client::exchange(server.address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n");
        let seen = server.ended();
        assert_eq!(seen.len(), 2, "{kind:?}: {seen:?}");
    }
}
