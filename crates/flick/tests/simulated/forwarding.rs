//! The library `http_forwarding`: which addresses are private, and the fields of a trusted proxy.

use flick_testkit::scenario::stage::Simulated;
use flick_testkit::scenario::{parse, play};

use super::subject;

/// A service that answers with the verdict of `is_private` on one address.
const VERDICT: &str = "\
use http
use http_forwarding

proc Verdict: (request/response client)
  | client => answer() => client

fun answer: (_req: request) -> (response)
  let is = if is_private(endpoint(\"ADDRESS\")): \"private\" else: \"public\"
  response{status = 200, reason = \"OK\", body = raw(is)}
";

/// A balancer behind a proxy whose fields are true.
const TRUSTING: &str = "\
use http
use http_forwarding

proc Trusting: (request/response client, [response/request] backends)
  | backends => client
  | client => send(client, backends)

fun send: (-/response client, [-/request] backends, req: request) -> ()
  forwarded(req, peer(client), true) => backends[0]
";

/// Plays a scenario on a program, with both engines.
fn check(program: &str, scenario: &str) {
    let (native, interpreted) = subject::text(program);
    let scenario = parse(scenario).unwrap_or_else(|error| panic!("{error}"));
    for subject in [&native, &interpreted] {
        let mut stage = Simulated::new(&scenario, subject).expect("it asks for no limits");
        play(&scenario, &mut stage).unwrap_or_else(|what| panic!("{what}\nof\n{program}"));
    }
}

#[test]
fn addresses_of_other_networks_were_private() {
    let private = [
        "10.0.0.0:80",
        "10.255.255.255:80",
        "127.0.0.1:80",
        "172.16.0.0:80",
        "172.31.255.255:80",
        "192.168.1.1:80",
        "[::1]:80",
        "[fc00::1]:80",
        "[fdff:1::1]:80",
        "[::ffff:10.1.2.3]:80",
    ];
    // The first group of `fd::1` is 00fd.
    let public = [
        "8.8.8.8:80",
        "9.255.255.255:80",
        "11.0.0.1:80",
        "100.10.0.1:80",
        "172.15.255.255:80",
        "172.32.0.0:80",
        "192.167.0.1:80",
        "[::2]:80",
        "[::ffff:8.8.8.8]:80",
        "[2001:db8::1]:80",
        "[fd::1]:80",
        "[fd:1:2::3]:80",
        "[fc0::1]:80",
        "[fbff::1]:80",
        "[fe00::1]:80",
    ];
    let private = private.map(|address| (address, "private"));
    for (address, verdict) in private.into_iter().chain(public.map(|address| (address, "public"))) {
        let response = format!("HTTP/1.1 200 OK\\r\\ncontent-length: {}\\r\\n\\r\\n{verdict}", verdict.len());
        let scenario = format!(
            "client a sends \"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n\", expects \"{response}\", closes\nexpect quiet\n"
        );
        check(&VERDICT.replace("ADDRESS", address), &scenario);
    }
}

#[test]
fn fields_of_a_trusted_proxy_are_kept() {
    check(
        TRUSTING,
        r#"
client a sends "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: b\r\nX-Request-Id: 1\r\n\r\n"
backend 0 expects "GET / HTTP/1.1\r\nHost: a\r\nx-forwarded-host: b\r\nx-forwarded-proto: http\r\n"
    "x-forwarded-for: 127.0.0.1\r\nforwarded: for=127.0.0.1;proto=http\r\nvia: 1.1 flick\r\nx-request-id: 1\r\n\r\n",
    sends "HTTP/1.1 204 OK\r\n\r\n"
client a expects "HTTP/1.1 204 OK\r\n\r\n", closes
expect quiet
"#,
    );
}
