//! HTTP for the tests' own: a backend that can be stopped, and one request at a time.

use std::io::{self, ErrorKind, Read, Write};
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

/// The target itself.
pub fn echoed(target: &str, _size: usize) -> Vec<u8> {
    target.as_bytes().to_vec()
}

fn serve(mut stream: TcpStream, page: impl Fn(&str) -> Vec<u8>, requests: &AtomicU64, ended: &AtomicBool) {
    let (mut pending, mut piece) = (Vec::<u8>::new(), [0; 4096]);
    // Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
    stream.set_nodelay(true).expect("a connection of ours");
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(len) => pending.extend(&piece[..len]),
        }
        while let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = pending.drain(..end + 4).collect();
            requests.fetch_add(1, Ordering::SeqCst);
            let body = page(String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default());
            if ended.load(Ordering::SeqCst) {
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                return;
            }
        }
    }
}

/// Sends a request and reads its whole reply: status and body. Errors: there is none with a length.
pub fn exchange(stream: &mut TcpStream, target: &str) -> io::Result<(u16, Vec<u8>)> {
    exchange_with(stream, "GET", target)
}

/// As `exchange`, with a method of one's own; there is no body.
pub fn exchange_with(stream: &mut TcpStream, method: &str, target: &str) -> io::Result<(u16, Vec<u8>)> {
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    stream.write_all(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n").as_bytes())?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let told = || {
        let digits = head.split_once("content-length: ")?.1.split_once("\r\n")?.0;
        Some((head.get(9..12)?.parse().ok()?, digits.parse().ok()?))
    };
    let (status, length) = told().ok_or(ErrorKind::InvalidData)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}
