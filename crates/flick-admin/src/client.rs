//! Reads one path of an admin side: for `flick top`, and for tests; and asks for a reload.
//! Promises: an answer has a deadline and a bound; what was waited for in vain, and for how long, is said.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::limits::{ANSWER_BYTES_MAX, ASK_TIME_MAX, EXCHANGE_TIME_MAX};
use crate::request::ASK_FIELD;
use crate::server::{Address, Stream};
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
    // The service says by itself when that is over.
    exchange(address, &format!("POST {path}"), token, &field, ASK_TIME_MAX + EXCHANGE_TIME_MAX)
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
    match address {
        Address::Tcp(address) => {
            let connected = TcpStream::connect_timeout(address, EXCHANGE_TIME_MAX);
            talk(
                connected.map_err(|error| late(error, "no connection", EXCHANGE_TIME_MAX))?,
                &request,
                time_max,
            )
        }
        Address::Unix(path) => talk(UnixStream::connect(path)?, &request, time_max),
    }
}

/// Sends a request and reads the answer, of which the next piece may take that long.
fn talk(mut stream: impl Stream, request: &str, time_max: Duration) -> io::Result<Reply> {
    stream.set_deadlines(EXCHANGE_TIME_MAX)?;
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, ENDED);
    match stream.write_all(request.as_bytes()) {
        Err(error) if has_gone(&error) => return Err(ended()),
        sent => sent.map_err(|error| late(error, "nobody reads the request", EXCHANGE_TIME_MAX))?,
    }
    stream.set_deadlines(time_max)?;
    let mut bytes = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes) {
        Ok(length) if length > 0 => {}
        Err(error) if !has_gone(&error) => return Err(late(error, "no answer", time_max)),
        Ok(_) | Err(_) => return Err(ended()),
    }
    let reply = parse(bytes);
    let reply = reply.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "what answers there does not speak HTTP")
    })?;
    match reply.is_whole() {
        true => Ok(reply),
        false => Err(ended()),
    }
}

/// What a connection that ends too early means: answers are made as a whole.
const ENDED: &str = "the service ended before it had answered; its log may say why";

fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// An error of a connection; of a time-out, which the system reports as an operation that would block, what was not there in
/// time.
fn late(error: io::Error, what: &str, time_max: Duration) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("{what} in {time_max:?}"))
        }
        _ => error,
    }
}

impl Reply {
    /// Whether all of the body is there that the head says.
    fn is_whole(&self) -> bool {
        let length = self.head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        length.and_then(|length| length.parse().ok()).is_none_or(|length: usize| self.body.len() >= length)
    }
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

#[cfg(test)]
mod tests {
    use super::{ENDED, talk};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const REQUEST: &str = "GET / HTTP/1.1\r\n\r\n";

    /// What is said of a service that has answered so, and then waits or has ended.
    fn told(answer: &str, is_there: bool) -> String {
        let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
        let answer = answer.to_owned();
        let service = std::thread::spawn(move || {
            far.read_exact(&mut [0; REQUEST.len()]).expect("it is asked");
            far.write_all(answer.as_bytes()).expect("there is room");
            // Who waits, waits until it is let go of.
            is_there.then(|| far.read(&mut [0]))
        });
        let outcome = talk(near, REQUEST, Duration::from_millis(20));
        service.join().expect("no panic");
        outcome.map_or_else(|error| error.to_string(), |reply| reply.body)
    }

    #[test]
    fn an_answer_that_did_not_come_in_time_was_a_resource_temporarily_unavailable() {
        assert_eq!(told("", true), "no answer in 20ms");
        assert_eq!(told("HTTP/1.1 200 OK\r\n", true), "no answer in 20ms");
    }

    #[test]
    fn a_service_that_ended_was_told_to_speak_no_http() {
        assert_eq!(told("", false), ENDED);
        assert_eq!(told("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false), ENDED);
        assert_eq!(told("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false), "ab");
        assert_eq!(told("what?", false), "what answers there does not speak HTTP");
    }
}
