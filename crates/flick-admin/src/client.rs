//! A client of the admin endpoint, for `flick top`, `flick reload` and tests.
//! Promises: a response is limited in time and size, and ends where its `Content-Length` says; the error of a timeout
//! says what was late, and by how much; a response of another server is an error that says so.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};
use serde::de::DeserializeOwned;

use crate::limits::{
    EXCHANGE_TIME_MAX, PIECE_BYTES, PROBE_TIME_MAX, REQUEST_HEADERS_MAX, REQUEST_TIME_MAX,
    RESPONSE_BYTES_MAX, TAP_LINE_BYTES_MAX,
};
use crate::request::CSRF_HEADER;
use crate::response::SERVER;
use crate::server::{Address, Stream};
use crate::state::{Sessions, StateReport, TapLine, TapLineKind};

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
    // A command may take long; a server that does not answer this is not flick's.
    exchange(address, "GET /healthz", None, "", PROBE_TIME_MAX)?;
    let headers = format!("{CSRF_HEADER}: yes\r\nContent-Length: 0\r\n");
    // The server reports the timeout of the command itself.
    exchange(address, &format!("POST {path}"), token, &headers, REQUEST_TIME_MAX + EXCHANGE_TIME_MAX)
}

/// Reads a tap line by line until it ends, or until `take` returns `false`, which gets `None` when the tap is accepted.
/// `path` has its parameters.
///
/// Errors: the tap is refused; the connection has ended before the tap.
pub fn tap(
    address: &Address,
    path: &str,
    token: Option<&str>,
    mut take: impl FnMut(Option<TapLine>) -> bool,
) -> io::Result<()> {
    let mut stream = connect(address)?;
    send(&mut *stream, &request(&format!("POST {path}"), token, &format!("{CSRF_HEADER}: yes\r\n")))?;
    let (mut bytes, mut piece, mut has_head) = (Vec::new(), [0; PIECE_BYTES], false);
    loop {
        let length = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_disconnect(&error) => return Err(ended()),
            read => read.map_err(|error| describe_timeout(error, "nothing", EXCHANGE_TIME_MAX))?,
        };
        bytes.extend_from_slice(&piece[..length]);
        if !has_head {
            let Some(head) = Head::parse(&bytes)? else {
                if length == 0 {
                    return Err(ended());
                }
                continue;
            };
            if head.status != 200 {
                let is_whole = head.length.is_some_and(|length| bytes.len() >= head.end + length);
                if is_whole || length == 0 {
                    return Err(io::Error::other(refusal(&head.reply(&bytes)?)));
                }
                continue;
            }
            bytes.drain(..head.end);
            has_head = true;
            if !take(None) {
                return Ok(());
            }
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            if line.len() > 1 {
                let line = serde_json::from_slice::<TapLine>(&line);
                let line = line.map_err(|error| not_flick(&format!("a line is not of a tap: {error}")))?;
                let is_over = line.kind == TapLineKind::Over;
                if !take(Some(line)) || is_over {
                    return Ok(());
                }
            }
        }
        if length == 0 || bytes.len() > TAP_LINE_BYTES_MAX {
            return Err(ended());
        }
    }
}

fn exchange(
    address: &Address,
    line: &str,
    token: Option<&str>,
    headers: &str,
    time_max: Duration,
) -> io::Result<Reply> {
    round_trip(&mut *connect(address)?, &request(line, token, headers), time_max)
}

fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp(address) => {
            let connected = TcpStream::connect_timeout(address, EXCHANGE_TIME_MAX);
            let connected =
                connected.map_err(|error| describe_timeout(error, "cannot connect", EXCHANGE_TIME_MAX));
            Ok(Box::new(connected.map_err(describe_refusal)?))
        }
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).map_err(describe_refusal)?)),
    }
}

/// Says what an address without a process lacks.
fn describe_refusal(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            format!("{error}; no process has its admin endpoint there (`flick run --admin ADDRESS`)"),
        ),
        _ => error,
    }
}

/// The text of a request; each of the `headers` is ended by a line break.
fn request(line: &str, token: Option<&str>, headers: &str) -> String {
    let bearer = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{bearer}{headers}\r\n")
}

fn send(stream: &mut dyn Stream, request: &str) -> io::Result<()> {
    stream.set_timeouts(EXCHANGE_TIME_MAX)?;
    match stream.write_all(request.as_bytes()) {
        Err(error) if is_disconnect(&error) => Err(ended()),
        sent => sent.map_err(|error| describe_timeout(error, "request not sent", EXCHANGE_TIME_MAX)),
    }
}

/// Sends a request and reads the response, each piece of which may take `time_max`.
fn round_trip(stream: &mut dyn Stream, request: &str, time_max: Duration) -> io::Result<Reply> {
    send(stream, request)?;
    stream.set_timeouts(time_max)?;
    let (mut bytes, mut head, mut piece) = (Vec::new(), None, [0; PIECE_BYTES]);
    loop {
        if head.is_none() {
            head = Head::parse(&bytes)?;
        }
        let is_whole = |head: &&Head| head.length.is_some_and(|length| bytes.len() - head.end >= length);
        if let Some(head) = head.as_ref().filter(is_whole) {
            return head.reply(&bytes);
        }
        if bytes.len() > RESPONSE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the response is too long"));
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_disconnect(&error) => break,
            Err(error) => return Err(describe_timeout(error, "no response", time_max)),
        }
    }
    match head {
        Some(head) if head.length.is_none() => head.reply(&bytes),
        _ => Err(ended()),
    }
}

/// The head of a response.
struct Head {
    status: u16,
    /// Its length.
    end: usize,
    /// `Content-Length`.
    length: Option<usize>,
}

impl Head {
    /// Parses the head at the front of `bytes`; `None`: it is not complete yet.
    ///
    /// Errors: this is not a response of flick's admin endpoint.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [EMPTY_HEADER; REQUEST_HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(bytes).map_err(|_| not_flick("the response is not HTTP"))?;
        let (Status::Complete(end), Some(status)) = (parsed, head.code) else { return Ok(None) };
        let value = |name: &str| {
            let header = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok()
        };
        // A process of an earlier version, which `flick upgrade` replaces, does not send `Server`.
        let of_earlier_version = || {
            value("cache-control") == Some("no-store") && value("x-content-type-options") == Some("nosniff")
        };
        if value("server") != Some(SERVER) && !of_earlier_version() {
            return Err(not_flick("another HTTP server answers"));
        }
        let length = value("content-length").and_then(|length| length.parse().ok());
        Ok(Some(Self { status, end, length }))
    }

    /// The response of these bytes. Errors: it is not text.
    fn reply(&self, bytes: &[u8]) -> io::Result<Reply> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| not_flick("the response is not text"));
        let end = self.length.map_or(bytes.len(), |length| self.end + length);
        let (head, body) = (text(&bytes[..self.end])?, text(&bytes[self.end..end])?);
        let head = head.split_once("\r\n").map_or("", |(_, rest)| rest.trim_end());
        Ok(Reply { status: self.status, head: head.to_owned(), body: body.to_owned() })
    }
}

/// The error for a connection that ends before the response does.
const ENDED: &str = "the connection ended before the response did: the service has ended (see its log), or this is not \
                     flick's admin endpoint";

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, ENDED)
}

fn not_flick(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is not flick's admin endpoint: {why}"))
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Adds to a timeout what was late. The system reports it as an operation that would block.
fn describe_timeout(error: io::Error, what: &str, time_max: Duration) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{what} within {time_max:?}; is this flick's admin endpoint?"),
        ),
        _ => error,
    }
}

/// The reason of a response that is not 200, as the command line shows it.
pub fn refusal(reply: &Reply) -> String {
    let text = reply.body.trim_end();
    match reply.status {
        401 => format!("{text}; give the token with `--token-file FILE`"),
        _ => text.to_owned(),
    }
}

/// Reads the state of a process.
///
/// Errors: as [`get`]; the response is not a state.
pub fn state(address: &Address, token: Option<&str>) -> io::Result<StateReport> {
    read(address, "/api/state", token)
}

/// Reads the lists of connections of a process.
///
/// Errors: as [`get`]; the response is no such list.
pub fn sessions(address: &Address, token: Option<&str>) -> io::Result<Sessions> {
    read(address, "/api/sessions", token)
}

fn read<T: DeserializeOwned>(address: &Address, path: &str, token: Option<&str>) -> io::Result<T> {
    let reply = get(address, path, token)?;
    match reply.status {
        200 => serde_json::from_str(&reply.body).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the response is not a state of flick: {error}"),
            )
        }),
        _ => Err(io::Error::other(refusal(&reply))),
    }
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
        let (mut near, mut far) = UnixStream::pair().expect("a pair of sockets");
        let response = response.to_owned();
        let service = std::thread::spawn(move || {
            far.read_exact(&mut [0; REQUEST.len()]).expect("the request arrives");
            far.write_all(response.as_bytes()).expect("the socket buffer is empty");
            stays.then(|| far.read(&mut [0]))
        });
        let outcome = round_trip(&mut near, REQUEST, Duration::from_millis(20));
        // This ends the service's last read.
        drop(near);
        service.join().expect("no panic");
        outcome.map_or_else(|error| error.to_string(), |reply| reply.body)
    }

    /// A response of the admin endpoint with this much of a body of `length` bytes.
    fn of_flick(length: usize, body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nServer: flick\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    #[test]
    fn late_response_is_a_timeout() {
        for response in ["", "HTTP/1.1 200 OK\r\n", &of_flick(3, "ab")] {
            let error = result(response, true);
            assert!(error.starts_with("no response within 20ms"), "{error}");
        }
    }

    #[test]
    fn truncated_response_is_an_ended_service() {
        assert_eq!(result("", false), ENDED);
        assert_eq!(result(&of_flick(3, "ab"), false), ENDED);
        assert_eq!(result(&of_flick(2, "ab"), false), "ab");
    }

    #[test]
    fn reload_at_a_wrong_port_does_not_wait_for_its_timeout() {
        // Servers that keep their connections open.
        for (response, expected) in [
            ("ERROR\r\n", "not flick's admin endpoint: the response is not HTTP"),
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                "not flick's admin endpoint: another HTTP server",
            ),
            (&of_flick(2, "ab"), "ab"),
        ] {
            let outcome = result(response, true);
            assert!(outcome.contains(expected), "{response:?}: {outcome}");
        }
    }

    #[test]
    fn response_of_an_earlier_version_is_accepted() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff";
        assert_eq!(result(&format!("{head}\r\n\r\nab"), true), "ab");
    }
}
