//! Reads one path of an admin side: for `flick top`, and for tests; and asks for a reload.
//! Promises: an answer has a deadline and a bound.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::limits::{ANSWER_BYTES_MAX, ASK_TIME_MAX, EXCHANGE_TIME_MAX};
use crate::request::ASK_FIELD;
use crate::server::Address;
use crate::state::State;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, say.
    pub status: u16,
    /// The head behind the status line.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Asks for a path.
///
/// Errors: nobody answers in time, or not in HTTP.
pub fn get(address: &Address, path: &str, token: Option<&str>) -> io::Result<Reply> {
    exchange(address, &format!("GET {path}"), token, "", EXCHANGE_TIME_MAX)
}

/// Asks for something to be done.
///
/// Errors: as [`get`].
pub fn post(address: &Address, path: &str, token: Option<&str>) -> io::Result<Reply> {
    let field = format!("{ASK_FIELD}: yes\r\nContent-Length: 0\r\n");
    exchange(address, &format!("POST {path}"), token, &field, ASK_TIME_MAX)
}

fn exchange(
    address: &Address,
    line: &str,
    token: Option<&str>,
    fields: &str,
    time_max: Duration,
) -> io::Result<Reply> {
    let bearer = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{bearer}{fields}\r\n");
    let mut bytes = Vec::new();
    match address {
        Address::Tcp(address) => {
            let mut stream = TcpStream::connect_timeout(address, EXCHANGE_TIME_MAX)?;
            stream.set_read_timeout(Some(time_max))?;
            stream.set_write_timeout(Some(EXCHANGE_TIME_MAX))?;
            stream.write_all(request.as_bytes())?;
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(time_max))?;
            stream.set_write_timeout(Some(EXCHANGE_TIME_MAX))?;
            stream.write_all(request.as_bytes())?;
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        }
    }
    parse(bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what answers there does not speak HTTP"))
}

/// Reads the state.
///
/// Errors: as [`get`]; the answer is not a state.
pub fn state(address: &Address, token: Option<&str>) -> io::Result<State> {
    let reply = get(address, "/api/state", token)?;
    match reply.status {
        200 => serde_json::from_str(&reply.body).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("what answers there is no flick: {error}"))
        }),
        _ => Err(io::Error::other(reply.body.trim_end().to_owned())),
    }
}

fn parse(bytes: Vec<u8>) -> Option<Reply> {
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (line, head) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Reply { status, head: head.to_owned(), body: body.to_owned() })
}
