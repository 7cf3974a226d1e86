//! The HTTP client of the tests, and a backend that can be stopped.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flick_testkit::http::Asked;
use flick_testkit::http::strict::{self, BodyEnd, HttpMessage, Trouble};

use super::client::connect;

/// The response of a backend, by target and size.
type Page = fn(&str, usize) -> Vec<u8>;

/// A backend that answers every request with 200.
pub struct Backend {
    /// Its address.
    pub address: SocketAddr,
    /// Number of requests.
    pub requests: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Backend {
    /// Starts a backend at this address, if it is free. `page` makes responses of the target and of `size`.
    pub fn start_at(address: SocketAddr, page: Page, size: usize) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
        // The standard library's queue of 128 overflows when a service connects for hundreds of clients at once, and
        // then connects last for a second or more.
        rustix::net::listen(&listener, 4096).expect("a longer queue of a socket that listens");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (requests, stopped) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, ended) = (Arc::clone(&requests), Arc::clone(&stopped));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (counted, ended) = (Arc::clone(&counted), Arc::clone(&ended));
                std::thread::spawn(move || serve(stream, |target| page(target, size), &counted, &ended));
            }
        });
        Some(Self { address, requests, stopped })
    }

    /// Stops listening, and closes each connection at its next request.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, so that it closes the socket.
        let _ = TcpStream::connect(self.address);
    }
}

/// A body of `size` bytes.
pub fn filled(_target: &str, size: usize) -> Vec<u8> {
    vec![b'x'; size]
}

/// `size` as a number.
pub fn numbered(_target: &str, size: usize) -> Vec<u8> {
    size.to_string().into_bytes()
}

/// The target itself.
pub fn echoed(target: &str, _size: usize) -> Vec<u8> {
    target.as_bytes().to_vec()
}

fn serve(stream: TcpStream, page: impl Fn(&str) -> Vec<u8>, requests: &AtomicU64, ended: &AtomicBool) {
    // Head and body are two writes; without this the second waits 40 ms for an acknowledgement.
    stream.set_nodelay(true).expect("a TCP socket");
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_until(b'\n', &mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().expect("a length is a number"));
        if io::copy(&mut stream.by_ref().take(length), &mut io::sink()).is_err() {
            return;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let mut body = page(head.split(' ').nth(1).unwrap_or_default());
        if ended.load(Ordering::SeqCst) {
            return;
        }
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if head.starts_with("HEAD ") {
            body.clear();
        }
        let stream = stream.get_mut();
        if stream.write_all(reply.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
            return;
        }
    }
}

/// Sends a GET request and reads the response: status and body. Errors: as [`reply`].
pub fn exchange(stream: &mut (impl Read + Write), target: &str) -> io::Result<(u16, Vec<u8>)> {
    get(stream, target, "")
}

/// As [`exchange`], with further headers, each ended by a line break.
pub fn get(stream: &mut (impl Read + Write), target: &str, headers: &str) -> io::Result<(u16, Vec<u8>)> {
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())?;
    reply(stream)
}

/// Sends a POST request without a body, and reads the response. Errors: as [`reply`].
pub fn post(stream: &mut (impl Read + Write), target: &str) -> io::Result<(u16, Vec<u8>)> {
    let request = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    reply(stream)
}

/// Sends bytes, half-closes, and reads until the peer closes.
pub fn exchange_bytes(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A service that rejects the front may close before it has read the rest, and reset the connection.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    response
}

/// Reads one response to a GET request, and nothing behind it: status and body.
///
/// Errors: the connection ends before the response does; it is malformed.
pub fn reply(stream: &mut impl Read) -> io::Result<(u16, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match strict::reply(&bytes, Asked::Get) {
            Ok(message) if message.end != BodyEnd::Close => {
                assert_eq!(message.next, bytes.len(), "bytes behind the response");
                return Ok((status_of(&message), message.body));
            }
            Ok(_) | Err(Trouble::Short) => {}
            Err(Trouble::Bad(error)) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
        }
        match stream.read(&mut piece) {
            Ok(0) => {
                let error = format!("the connection ends after {:?}", String::from_utf8_lossy(&bytes));
                return Err(io::Error::new(ErrorKind::UnexpectedEof, error));
            }
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
            // A socket with a timeout reports this when the process was stopped and continues.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
    }
}

/// Status of a response.
pub fn status_of(message: &HttpMessage<'_>) -> u16 {
    String::from_utf8_lossy(&message.line[9..12]).parse().unwrap_or(0)
}
