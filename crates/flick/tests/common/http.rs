//! HTTP for the tests' own: a backend that can be stopped, and one request at a time.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a backend answers, by target.
type Page = fn(&str, usize) -> Vec<u8>;

/// A backend that answers every request with 200.
pub struct Backend {
    /// Where it listens.
    pub address: SocketAddr,
    /// Requests so far.
    pub requests: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Backend {
    /// Starts one at this address, if that is free. Replies are made of the target and of `size`.
    pub fn start_at(address: SocketAddr, page: Page, size: usize) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
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

    /// Refuses from now on, and lets go of its connections with their next request.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, so that the port is free.
        let _ = TcpStream::connect(self.address);
    }
}

/// A body of so many bytes, whatever is asked for.
pub fn filled(_target: &str, size: usize) -> Vec<u8> {
    vec![b'x'; size]
}

/// So many, as a number.
pub fn numbered(_target: &str, size: usize) -> Vec<u8> {
    size.to_string().into_bytes()
}

/// The target itself.
pub fn echoed(target: &str, _size: usize) -> Vec<u8> {
    target.as_bytes().to_vec()
}

fn serve(stream: TcpStream, page: impl Fn(&str) -> Vec<u8>, requests: &AtomicU64, ended: &AtomicBool) {
    // Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
    stream.set_nodelay(true).expect("a connection of ours");
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_until(b'\n', &mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let mut body = page(String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default());
        if ended.load(Ordering::SeqCst) {
            return;
        }
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if head.starts_with(b"HEAD ") {
            body.clear();
        }
        let stream = stream.get_mut();
        if stream.write_all(reply.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
            return;
        }
    }
}

/// Sends a request and reads its whole reply: status and body. Errors: as of [`reply`].
pub fn exchange(stream: &mut TcpStream, target: &str) -> io::Result<(u16, Vec<u8>)> {
    exchange_with(stream, "GET", target)
}

/// As `exchange`, with a method of one's own; there is no body.
pub fn exchange_with(stream: &mut TcpStream, method: &str, target: &str) -> io::Result<(u16, Vec<u8>)> {
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    stream.write_all(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n").as_bytes())?;
    reply(stream)
}

/// Reads one reply, whose length is known or that comes in chunks, and nothing behind it: status and body.
///
/// Errors: it breaks off, or is none.
pub fn reply(stream: &mut TcpStream) -> io::Result<(u16, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => {
                let told = format!("the connection ends after {:?}", String::from_utf8_lossy(&bytes));
                return Err(io::Error::new(ErrorKind::UnexpectedEof, told));
            }
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
            // A process that was stopped and goes on is told so, where its reads have a time-out.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(whole) = whole(&bytes)? {
            return Ok(whole);
        }
    }
}

/// The reply that these bytes are; `None`: it is not all there.
fn whole(bytes: &[u8]) -> io::Result<Option<(u16, Vec<u8>)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let (head, body) = (String::from_utf8_lossy(&bytes[..end + 2]).to_ascii_lowercase(), &bytes[end + 4..]);
    let wrong = || io::Error::new(ErrorKind::InvalidData, format!("{head:?} is no head of a reply"));
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    if head.contains("transfer-encoding: chunked\r\n") {
        return Ok(unchunked(body).map(|body| (status, body)));
    }
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.split_once("\r\n"));
    let length: usize = length.and_then(|(length, _)| length.parse().ok()).ok_or_else(wrong)?;
    assert!(body.len() <= length, "nothing was asked for that would come behind {head:?}");
    Ok((body.len() == length).then(|| (status, body.to_vec())))
}

/// What chunks hold; `None`: the last one is not there.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        let chunk = rest.get(line + 2..line + 2 + size + 2)?;
        body.extend_from_slice(&chunk[..size]);
        if size == 0 {
            return Some(body);
        }
        rest = &rest[line + 2 + size + 2..];
    }
}
