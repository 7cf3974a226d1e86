//! A client that sends bytes as they are and reads what comes until the service closes.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use flick_testkit::http::Asked;
use flick_testkit::http::strict::{self, End, Message, Trouble};

use crate::common::client::connect;

/// What a client got.
pub struct Got {
    /// The replies, interim ones too: status and body.
    pub replies: Vec<(u16, Vec<u8>)>,
    /// What stands behind the last one that is whole.
    pub rest: Vec<u8>,
}

/// The requests that are well-formed at the front of `bytes`, and whether what follows is refused; `None` when it is not there whole.
pub fn expected(bytes: &[u8]) -> (Vec<(String, Asked)>, Option<bool>) {
    let (mut rest, mut asked) = (bytes, Vec::new());
    loop {
        if rest.is_empty() {
            return (asked, Some(false));
        }
        match strict::request(rest) {
            Ok(message) => {
                asked.push((super::origin::asked(&message), asked_of(&message)));
                if message.end == End::Last {
                    return (asked, Some(false));
                }
                rest = &rest[message.next..];
            }
            Err(Trouble::Short) => return (asked, None),
            Err(Trouble::Bad(_)) => return (asked, Some(true)),
        }
    }
}

fn asked_of(message: &Message<'_>) -> Asked {
    match message.line {
        line if line.starts_with(b"HEAD ") => Asked::Head,
        line if line.starts_with(b"CONNECT ") => Asked::Connect,
        line if line.ends_with(b"1.0") => Asked::Get10,
        _ if message.has_token("connection", "upgrade") => Asked::Upgrade,
        _ => Asked::Get,
    }
}

/// Sends the bytes, ends its own direction, and reads until the service does the same.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A service that refuses the front may close before it has all.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut got = Vec::new();
    // A reset behind a refusal takes nothing away that was read before it.
    let _ = stream.read_to_end(&mut got);
    got
}

/// Takes the replies apart, given what each request asked.
pub fn replies(bytes: &[u8], asked: &[Asked]) -> Got {
    let (mut rest, mut replies, mut asked) = (bytes, Vec::new(), asked.iter());
    let mut current = asked.next().copied().unwrap_or(Asked::Get);
    while !rest.is_empty() {
        let Ok(message) = strict::reply(rest, current) else { break };
        let status = String::from_utf8_lossy(&message.line[9..12]).parse().unwrap_or(0);
        replies.push((status, message.body.clone()));
        rest = &rest[message.next..];
        if message.end != End::More {
            current = asked.next().copied().unwrap_or(Asked::Get);
        }
    }
    Got { replies, rest: rest.to_vec() }
}
