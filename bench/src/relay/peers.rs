//! Source and sink of long bodies on both sides of a relay: a server and a client in this process.
//! Promises: a body is a pattern in which each byte follows from its position, sent from memory with `sendfile`; a sink
//! counts every byte, and compares each where it is asked to.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::RecvFlags;

/// Bytes of the pattern; bodies repeat it.
const PATTERN_BYTES: usize = 1 << 20;
/// Data of one chunk of a chunked body.
const CHUNK_BYTES: usize = 16 << 10;
/// Bytes received at once.
const SINK_BYTES: usize = 1 << 20;
/// Bytes of the longest head that a peer reads.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The shape of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Bytes from server to client, until the connection ends.
    Bytes,
    /// A reply with `Content-Length`.
    Download,
    /// A reply in chunks.
    Chunked,
    /// A request with `Content-Length`.
    Upload,
}

impl Shape {
    pub(super) const ALL: [Shape; 4] = [Shape::Bytes, Shape::Download, Shape::Chunked, Shape::Upload];

    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Bytes => "bytes, server to client",
            Shape::Download => "HTTP reply, Content-Length",
            Shape::Chunked => "HTTP reply, chunks of 16 KiB",
            Shape::Upload => "HTTP request, Content-Length",
        }
    }

    pub(super) fn is_http(self) -> bool {
        self != Shape::Bytes
    }
}

/// A server that answers one connection after the other, and what its clients need.
pub(super) struct Peers {
    shape: Shape,
    addr: SocketAddr,
    source: Arc<Source>,
    /// Detached with the process: it waits for a connection that no longer comes.
    _server: JoinHandle<()>,
}

impl Peers {
    pub(super) fn new(shape: Shape) -> io::Result<Peers> {
        let source = Arc::new(Source::new(shape)?);
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let addr = listener.local_addr()?;
        let of_server = Arc::clone(&source);
        let server = std::thread::spawn(move || {
            for conn in listener.incoming().flatten() {
                // A relay that only probes whether the port is open disconnects without a byte.
                let _ = serve(shape, &of_server, conn);
            }
        });
        Ok(Peers { shape, addr, source, _server: server })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Moves a body through the relay at `relay` and compares every byte of it.
    pub(super) fn checked(&self, relay: SocketAddr, bytes: u64) -> io::Result<()> {
        self.exchange(relay, bytes, true)
    }

    /// Moves a body through the relay at `relay` and counts what arrives.
    pub(super) fn moved(&self, relay: SocketAddr, bytes: u64) -> io::Result<()> {
        self.exchange(relay, bytes, false)
    }

    fn exchange(&self, relay: SocketAddr, bytes: u64, compare: bool) -> io::Result<()> {
        let mut conn = TcpStream::connect(relay)?;
        conn.set_nodelay(true)?;
        let verb = if compare { "checked" } else { "moved" };
        if self.shape == Shape::Upload {
            let head = format!(
                "POST /{verb}/{bytes} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
            );
            conn.write_all(head.as_bytes())?;
            self.source.send(&conn, bytes)?;
            let mut reply = String::new();
            conn.read_to_string(&mut reply)?;
            let is_good = reply.starts_with("HTTP/1.1 200 ");
            return if is_good { Ok(()) } else { Err(io::Error::other(format!("answered {reply:?}"))) };
        }
        conn.write_all(
            format!("GET /{verb}/{bytes} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").as_bytes(),
        )?;
        if self.shape == Shape::Bytes {
            return Sink::new(compare).take(&conn, &[], bytes);
        }
        let (head, behind) = head(&mut conn)?;
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(io::Error::other(format!("answered {head:?}")));
        }
        match (self.shape, compare) {
            (Shape::Chunked, true) => unchunked(&conn, behind, bytes),
            // Relays may cut chunks as they like, so the end of the connection is the end of the body.
            (Shape::Chunked, false) => at_least(&conn, behind.len() as u64, bytes),
            _ => Sink::new(compare).take(&conn, &behind, bytes),
        }
    }
}

/// Answers the one request of a connection.
fn serve(shape: Shape, source: &Source, mut conn: TcpStream) -> io::Result<()> {
    conn.set_nodelay(true)?;
    let (head, behind) = head(&mut conn)?;
    let mut words = head.split([' ', '/']).skip(2);
    let compare = words.next() == Some("checked");
    let bytes = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    match shape {
        Shape::Bytes => source.send(&conn, bytes)?,
        Shape::Download => {
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n");
            conn.write_all(head.as_bytes())?;
            source.send(&conn, bytes)?;
        }
        Shape::Chunked => {
            conn.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let framed = bytes / PATTERN_BYTES as u64 * source.bytes as u64;
            source.send(&conn, framed)?;
            conn.write_all(b"0\r\n\r\n")?;
        }
        Shape::Upload => {
            let outcome = Sink::new(compare).take(&conn, &behind, bytes);
            let status = if outcome.is_ok() { "200 OK" } else { "400 Bad Request" };
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            conn.write_all(head.as_bytes())?;
        }
    }
    conn.shutdown(Shutdown::Write)?;
    // Until the other side has ended as well, so that closing does not reset what is in flight.
    while conn.read(&mut [0; 512])? > 0 {}
    Ok(())
}

/// Reads a head; returns it with the bytes received after it.
fn head(conn: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let behind = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), behind));
        }
        match conn.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if bytes.len() > HEAD_BYTES_MAX => return Err(io::Error::other("the head has no end")),
            count => bytes.extend_from_slice(&some[..count]),
        }
    }
}

/// The byte of a body at `at`.
fn pattern(at: usize) -> u8 {
    let at = (at % PATTERN_BYTES) as u32;
    (at.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// The pattern in memory, in chunks where the body is chunked.
struct Source {
    file: OwnedFd,
    bytes: usize,
}

impl Source {
    fn new(shape: Shape) -> io::Result<Source> {
        let plain: Vec<u8> = (0..PATTERN_BYTES).map(pattern).collect();
        let content: Vec<u8> = match shape {
            Shape::Chunked => {
                let framed =
                    |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
                plain.chunks(CHUNK_BYTES).flat_map(framed).collect()
            }
            _ => plain,
        };
        let file = memfd_create("body", MemfdFlags::CLOEXEC)?;
        let mut left = &content[..];
        while !left.is_empty() {
            left = &left[rustix::io::write(&file, left)?..];
        }
        Ok(Source { file, bytes: content.len() })
    }

    /// Sends `bytes` bytes, repeating the pattern.
    fn send(&self, conn: &TcpStream, bytes: u64) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes {
            let mut at = sent % self.bytes as u64;
            let most = (self.bytes as u64 - at).min(bytes - sent) as usize;
            sent += sendfile(conn, &self.file, Some(&mut at), most)? as u64;
        }
        Ok(())
    }
}

/// Receives a body of known length.
struct Sink {
    compare: bool,
    buffer: Vec<u8>,
}

impl Sink {
    fn new(compare: bool) -> Sink {
        Sink { compare, buffer: vec![0; SINK_BYTES] }
    }

    fn take(&mut self, conn: &TcpStream, behind: &[u8], bytes: u64) -> io::Result<()> {
        let mut taken = behind.len() as u64;
        let is_right = |start: u64, some: &[u8]| {
            some.iter().zip(start as usize..).all(|(byte, at)| *byte == pattern(at))
        };
        if self.compare && !is_right(0, behind) {
            return Err(io::Error::other("another body than was sent"));
        }
        while taken < bytes {
            let most = (bytes - taken).min(SINK_BYTES as u64) as usize;
            let count = if self.compare {
                let count = (&*conn).read(&mut self.buffer[..most])?;
                if !is_right(taken, &self.buffer[..count]) {
                    return Err(io::Error::other("another body than was sent"));
                }
                count
            } else {
                // The kernel drops the bytes without copying them.
                let buffer = &mut self.buffer[..most];
                rustix::net::recv(conn, buffer, RecvFlags::TRUNC).map(|(_, count)| count)?
            };
            if count == 0 {
                return Err(io::Error::other(format!("cut after {taken} of {bytes} bytes")));
            }
            taken += count as u64;
        }
        Ok(())
    }
}

/// Receives everything until the connection ends: at least `bytes` bytes.
fn at_least(conn: &TcpStream, behind: u64, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; SINK_BYTES];
    let mut taken = behind;
    loop {
        match rustix::net::recv(conn, &mut buffer[..], RecvFlags::TRUNC).map(|(_, count)| count)? {
            0 if taken < bytes => {
                return Err(io::Error::other(format!("cut after {taken} of {bytes} bytes")));
            }
            0 => return Ok(()),
            count => taken += count as u64,
        }
    }
}

/// Receives a chunked body until the connection ends and compares its data.
fn unchunked(mut conn: &TcpStream, mut wire: Vec<u8>, bytes: u64) -> io::Result<()> {
    conn.read_to_end(&mut wire)?;
    let (mut at, mut data) = (0, 0_usize);
    loop {
        let line = wire[at..].windows(2).position(|two| two == b"\r\n");
        let line = line.ok_or_else(|| io::Error::other("a chunk without a size"))?;
        let size = std::str::from_utf8(&wire[at..at + line])
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or_else(|| io::Error::other("a chunk without a size"))?;
        at += line + 2;
        let chunk = wire.get(at..at + size).ok_or_else(|| io::Error::other("a chunk that is cut"))?;
        if !chunk.iter().zip(data..).all(|(byte, at)| *byte == pattern(at)) {
            return Err(io::Error::other("another body than was sent"));
        }
        at += size + 2;
        data += size;
        if size == 0 {
            let is_whole = data as u64 == bytes;
            return if is_whole {
                Ok(())
            } else {
                Err(io::Error::other(format!("{data} bytes instead of {bytes}")))
            };
        }
    }
}
