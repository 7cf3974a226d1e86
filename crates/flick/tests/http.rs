//! An HTTP balancer between a client that sends anything and an origin that writes down what it gets: the classes of
//! failures H1 to H9, H12, H13, H17 and H24, each a test under its name. What needs time, resets or many peers is in
//! scenarios beside the examples.

#[path = "http/client.rs"]
mod client;
mod common;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/origin.rs"]
mod origin;

use client::{exchange, expected, replies};
use common::service::Service;
use flick_testkit::generate::Rng;
use flick_testkit::http::generate;
use flick_testkit::http::table::{Case, requests};
use origin::Origin;

/// Random exchanges of one run.
const EXCHANGES: u64 = 300;
/// Folders of HTTP services among the examples.
const SERVICES: usize = 8;

/// A balancer before one origin.
fn balancer(origin: &Origin) -> Service {
    let connect = format!("backends={}", origin.address);
    let program = "examples/http_balancer/round_robin.flick";
    Service::start(&["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect])
}

/// Describes an error in the answers to some bytes: every valid request must have its own answer, in order, and an
/// invalid one must end with its status. `None`: the answers are right.
fn trouble(service: &Service, bytes: &[u8], verdict: &str) -> Option<String> {
    let (asked, refused) = expected(bytes);
    let got = exchange(service.address, bytes);
    let kinds: Vec<_> = asked.iter().map(|(_, kind)| *kind).collect();
    let got = replies(&got, &kinds);
    let shown =
        || format!("sent {}\n  got {:?}, {}", bytes.escape_ascii(), got.replies, got.rest.escape_ascii());
    if !got.rest.is_empty() {
        return Some(format!("bytes that are no reply: {}", shown()));
    }
    for (index, (line, kind)) in asked.iter().enumerate() {
        let body = if *kind == flick_testkit::http::Asked::Head { "" } else { line };
        match got.replies.get(index) {
            Some((200 | 405, found)) if found == body.as_bytes() => {}
            _ => return Some(format!("no answer to `{line}`: {}", shown())),
        }
    }
    let further = &got.replies[asked.len()..];
    match (refused, further) {
        (Some(true), [(status, _)]) if status.to_string() == verdict || verdict == "any" => None,
        // What is cut may be refused as far as it is there, or be met with silence.
        (_, []) if verdict == "more" => None,
        (None, [] | [(400 | 414 | 431 | 501, _)]) | (Some(false), []) => None,
        _ => Some(format!("refused {refused:?}, {verdict} expected: {}", shown())),
    }
}

/// All cases of a class, through the balancer to the origin.
fn check_class(class: &str) {
    let origin = Origin::start();
    let service = balancer(&origin);
    let cases: Vec<Case> = requests().into_iter().filter(|case| case.class == class).collect();
    assert!(!cases.is_empty(), "the table has cases of {class}");
    let mut wrong = Vec::new();
    let mut whole = 0;
    for case in &cases {
        if let Some(trouble) = trouble(&service, &case.bytes, &case.verdict) {
            wrong.push(format!("{} (RFC {}): {trouble}", case.name, case.section));
        }
        whole += expected(&case.bytes).0.len();
    }
    service.drained();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    // The origin reads strictly: it panics on anything that could mean two things.
    assert_eq!(origin.requests().0.len(), whole, "requests that reached the origin");
}

#[test]
fn h1_both_a_length_and_chunks() {
    check_class("H1");
}

#[test]
fn h2_several_lengths() {
    check_class("H2");
}

#[test]
fn h3_invalid_lengths() {
    check_class("H3");
}

#[test]
fn h4_transfer_codings() {
    check_class("H4");
}

#[test]
fn h5_http_1_0() {
    check_class("H5");
}

#[test]
fn h6_chunk_sizes() {
    check_class("H6");
}

#[test]
fn h7_chunk_ends_and_extensions() {
    check_class("H7");
}

#[test]
fn h8_line_ends_and_controls() {
    check_class("H8");
}

#[test]
fn h9_hop_by_hop_fields() {
    check_class("H9");
}

#[test]
fn h10_declined_upgrades() {
    check_class("H10");
}

#[test]
fn h12_bodies_that_look_like_requests() {
    check_class("H12");
}

#[test]
fn h17_limits() {
    check_class("H17");
}

#[test]
fn h24_targets_and_hosts() {
    check_class("H24");
}

#[test]
fn ordinary_requests_pass() {
    check_class("-");
}

#[test]
fn h13_random_pipelines_are_answered_in_order() {
    let origin = Origin::start();
    let service = balancer(&origin);
    let mut whole = 0;
    for seed in 0..EXCHANGES {
        let mut rng = Rng::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..=rng.below(5) {
            bytes.extend(generate::request(&mut rng).0);
        }
        if rng.one_in(2) {
            generate::harm(&mut rng, &mut bytes);
        }
        whole += expected(&bytes).0.len();
        if let Some(trouble) = trouble(&service, &bytes, "any") {
            panic!("seed {seed}: {trouble}");
        }
    }
    service.drained();
    assert_eq!(origin.requests().0.len(), whole, "requests that reached the origin");
}

#[test]
fn scenarios_of_each_service_pass() {
    let examples = common::root().join("examples");
    let folders = std::fs::read_dir(examples).expect("the examples are there");
    let mut names: Vec<String> =
        folders.flatten().map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("http_"));
    assert_eq!(names.len(), SERVICES, "{names:?}");
    for name in names {
        let (status, stdout, stderr) = common::run(&["test", &format!("examples/{name}")]);
        assert_eq!(status, 0, "{name}:\n{stdout}\n{stderr}");
    }
}
