//! A client of the admin endpoint, for `flick top`, `flick reload` and tests.
//! Promises: a response is limited in time and size; the error of a timeout says what was late, and by how much.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};

use crate::limits::{EXCHANGE_TIME_MAX, REQUEST_HEADERS_MAX, REQUEST_TIME_MAX, RESPONSE_BYTES_MAX};
use crate::request::CSRF_HEADER;
use crate::server::{Address, Stream};
use crate::state::StateReport;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The head behind the status line.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends a GET request.
///
/// Errors: no response in time, or not HTTP.
pub fn get(address: &Address, path: &str, token: Option<&str>) -> io::Result<Reply> {
    get_as(address, path, token, "")
}

/// As [`get`], with further headers, each ended by a line break.
pub fn get_as(address: &Address, path: &str, token: Option<&str>, headers: &str) -> io::Result<Reply> {
    exchange(address, &format!("GET {path}"), token, headers, EXCHANGE_TIME_MAX)
}

/// Sends a POST request, which executes a command.
///
/// Errors: as [`get`].
pub fn post(address: &Address, path: &str, token: Option<&str>) -> io::Result<Reply> {
    let headers = format!("{CSRF_HEADER}: yes\r\nContent-Length: 0\r\n");
    // The server reports the timeout of the command itself.
    exchange(address, &format!("POST {path}"), token, &headers, REQUEST_TIME_MAX + EXCHANGE_TIME_MAX)
}

fn exchange(
    address: &Address,
    line: &str,
    token: Option<&str>,
    headers: &str,
    time_max: Duration,
) -> io::Result<Reply> {
    let bearer = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{bearer}{headers}\r\n");
    match address {
        Address::Tcp(address) => {
            let connected = TcpStream::connect_timeout(address, EXCHANGE_TIME_MAX);
            let stream =
                connected.map_err(|error| describe_timeout(error, "cannot connect", EXCHANGE_TIME_MAX))?;
            round_trip(stream, &request, time_max)
        }
        Address::Unix(path) => round_trip(UnixStream::connect(path)?, &request, time_max),
    }
}

/// Sends a request and reads the response, each piece of which may take `time_max`.
fn round_trip(mut stream: impl Stream, request: &str, time_max: Duration) -> io::Result<Reply> {
    stream.set_timeouts(EXCHANGE_TIME_MAX)?;
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, ENDED);
    match stream.write_all(request.as_bytes()) {
        Err(error) if is_disconnect(&error) => return Err(ended()),
        sent => sent.map_err(|error| describe_timeout(error, "request not sent", EXCHANGE_TIME_MAX))?,
    }
    stream.set_timeouts(time_max)?;
    let mut bytes = Vec::new();
    match stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes) {
        Ok(length) if length > 0 => {}
        Err(error) if !is_disconnect(&error) => {
            return Err(describe_timeout(error, "no response", time_max));
        }
        Ok(_) | Err(_) => return Err(ended()),
    }
    let (reply, length) = parse(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the response is not HTTP"))?;
    if length.is_some_and(|length| reply.body.len() < length) {
        return Err(ended());
    }
    Ok(reply)
}

/// The error for a connection that ends before the response does.
const ENDED: &str = "the service ended before it responded; see its log";

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Adds to a timeout what was late. The system reports it as an operation that would block.
fn describe_timeout(error: io::Error, what: &str, time_max: Duration) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {time_max:?}"))
        }
        _ => error,
    }
}

/// Reads the state of a process.
///
/// Errors: as [`get`]; the response is not a state.
pub fn state(address: &Address, token: Option<&str>) -> io::Result<StateReport> {
    let reply = get(address, "/api/state", token)?;
    match reply.status {
        200 => serde_json::from_str(&reply.body).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the response is not a state of flick: {error}"),
            )
        }),
        _ => Err(io::Error::other(reply.body.trim_end().to_owned())),
    }
}

/// Parses a response, and its `Content-Length`.
fn parse(bytes: &[u8]) -> Option<(Reply, Option<usize>)> {
    let mut headers = [EMPTY_HEADER; REQUEST_HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let Status::Complete(end) = head.parse(bytes).ok()? else { return None };
    let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    let status = head.code?;
    let (head, body) = (std::str::from_utf8(&bytes[..end]).ok()?, std::str::from_utf8(&bytes[end..]).ok()?);
    let head = head.split_once("\r\n").map_or("", |(_, rest)| rest.trim_end());
    Some((Reply { status, head: head.to_owned(), body: body.to_owned() }, length))
}

#[cfg(test)]
mod tests {
    use super::{ENDED, round_trip};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const REQUEST: &str = "GET / HTTP/1.1\r\n\r\n";

    /// The body or the error, for a service that sends `response` and then stays connected or not.
    fn result(response: &str, stays: bool) -> String {
        let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
        let response = response.to_owned();
        let service = std::thread::spawn(move || {
            far.read_exact(&mut [0; REQUEST.len()]).expect("the request arrives");
            far.write_all(response.as_bytes()).expect("the socket buffer is empty");
            stays.then(|| far.read(&mut [0]))
        });
        let outcome = round_trip(near, REQUEST, Duration::from_millis(20));
        service.join().expect("no panic");
        outcome.map_or_else(|error| error.to_string(), |reply| reply.body)
    }

    #[test]
    fn late_response_is_a_timeout() {
        assert_eq!(result("", true), "no response within 20ms");
        assert_eq!(result("HTTP/1.1 200 OK\r\n", true), "no response within 20ms");
    }

    #[test]
    fn truncated_response_is_an_ended_service() {
        assert_eq!(result("", false), ENDED);
        assert_eq!(result("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false), ENDED);
        assert_eq!(result("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false), "ab");
        assert_eq!(result("what?", false), "the response is not HTTP");
    }
}
