//! Responses that a client must receive, and those that it does receive, by the strict parser.
#![allow(dead_code, reason = "each test program uses its part")]

use flick_testkit::http::Asked;
use flick_testkit::http::strict::{self, BodyEnd, HttpMessage, Trouble};

pub use crate::common::http::exchange_bytes as exchange;
use crate::common::http::status_of;

/// The responses that a client received.
pub struct Received {
    /// The responses, interim ones included: status and body.
    pub replies: Vec<(u16, Vec<u8>)>,
    /// The bytes behind the last complete one.
    pub rest: Vec<u8>,
}

/// The well-formed requests at the front of `bytes`, and whether the rest must be rejected; `None` if it is incomplete.
pub fn expected(bytes: &[u8]) -> (Vec<(String, Asked)>, Option<bool>) {
    let (mut rest, mut asked) = (bytes, Vec::new());
    loop {
        if rest.is_empty() {
            return (asked, Some(false));
        }
        match strict::request(rest) {
            Ok(message) => {
                asked.push((forwarded(&super::origin::asked(&message)), asked_of(&message)));
                if message.end == BodyEnd::Last {
                    return (asked, Some(false));
                }
                rest = &rest[message.next..];
            }
            Err(Trouble::Short) => return (asked, None),
            Err(Trouble::Bad(_)) => return (asked, Some(true)),
        }
    }
}

/// Method and target as they are forwarded: a target with a scheme as path and query (RFC 9112 section 3.2.2).
fn forwarded(asked: &str) -> String {
    let (method, target) = asked.split_once(' ').expect("a method and a target");
    let lower = target.to_ascii_lowercase();
    let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme));
    let Some(behind) = scheme.map(|scheme| &target[scheme.len()..]) else { return asked.to_owned() };
    let path = &behind[behind.find(['/', '?']).unwrap_or(behind.len())..];
    match path {
        "" if method == "OPTIONS" => format!("{method} *"),
        path if path.starts_with('/') => format!("{method} {path}"),
        path => format!("{method} /{path}"),
    }
}

fn asked_of(message: &HttpMessage<'_>) -> Asked {
    match message.line {
        line if line.starts_with(b"HEAD ") => Asked::Head,
        line if line.starts_with(b"CONNECT ") => Asked::Connect,
        line if line.ends_with(b"1.0") => Asked::Get10,
        _ if message.has_token("connection", "upgrade") => Asked::Upgrade,
        _ => Asked::Get,
    }
}

/// Splits the responses, given the kind of each request.
pub fn replies(bytes: &[u8], asked: &[Asked]) -> Received {
    let (mut rest, mut replies, mut asked) = (bytes, Vec::new(), asked.iter());
    let mut current = asked.next().copied().unwrap_or(Asked::Get);
    while !rest.is_empty() {
        let Ok(message) = strict::reply(rest, current) else { break };
        replies.push((status_of(&message), message.body.clone()));
        rest = &rest[message.next..];
        if message.end != BodyEnd::More {
            current = asked.next().copied().unwrap_or(Asked::Get);
        }
    }
    Received { replies, rest: rest.to_vec() }
}
