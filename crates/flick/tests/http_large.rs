//! Bodies and tunnels of any size pass in constant memory.
//! `FLICK_TEST_BYTES` asks for other sizes: 10000000000 is what is claimed of bodies.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use common::client::{connect, read_until};
use common::process::resident_kib;
use common::service::Service;

/// Bytes of each body, and each way through the tunnel.
const BYTES: u64 = 300_000_000;
/// Maximum growth of the service's memory while they pass, in KiB.
const GROWTH_KIB_MAX: u64 = 24 * 1024;
/// Bytes of one write, and of one chunk.
const PIECE_BYTES: usize = 256 * 1024;

fn bytes_asked() -> u64 {
    std::env::var("FLICK_TEST_BYTES").map_or(BYTES, |text| text.parse().expect("the variable is a number"))
}

/// Framing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Sized,
    Chunked,
    UntilClose,
}

/// One that takes a single connection and does this with it.
fn backend(serve: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let thread = std::thread::spawn(move || serve(listener.accept().expect("flick connects").0));
    (address, thread)
}

fn balancer(backend: SocketAddr) -> Service {
    let connect = format!("backends={backend}");
    let program = "examples/http_balancer/round_robin.flick";
    // A server that streams for minutes is not late.
    let timeouts = ["--response-timeout", "1h", "--client-request-timeout", "1h", "--workers", "1"];
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect];
    Service::start(&[args.as_slice(), &timeouts].concat())
}

/// Reads up to and with the empty line behind a head.
fn head(stream: &mut TcpStream) -> String {
    String::from_utf8(read_until(stream, b"\r\n\r\n")).expect("the head is ASCII")
}

/// Writes a body of `len` bytes whose content depends on the position.
fn write_body(stream: &mut TcpStream, framing: Framing, bytes: u64) {
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|at| (at % 251) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let len = piece.len().min(left as usize);
        if framing == Framing::Chunked {
            stream.write_all(format!("{len:x}\r\n").as_bytes()).expect("the peer reads");
        }
        stream.write_all(&piece[..len]).expect("the peer reads");
        if framing == Framing::Chunked {
            stream.write_all(b"\r\n").expect("the peer reads");
        }
        left -= len as u64;
    }
    if framing == Framing::Chunked {
        stream.write_all(b"0\r\n\r\n").expect("the peer reads");
    }
}

/// Reads N bytes that `write_body` wrote, dechunked, and checks them.
fn read_body(stream: &mut TcpStream, framing: Framing, bytes: u64) {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let len = buffer.len().min(left as usize);
        if framing == Framing::Chunked {
            expect(stream, format!("{len:x}\r\n").as_bytes());
        }
        stream.read_exact(&mut buffer[..len]).expect("the body comes");
        assert!(
            buffer[..len].iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8),
            "bytes are the same"
        );
        if framing == Framing::Chunked {
            expect(stream, b"\r\n");
        }
        left -= len as u64;
    }
    if framing == Framing::Chunked {
        expect(stream, b"0\r\n\r\n");
    }
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut found = vec![0; bytes.len()];
    stream.read_exact(&mut found).expect("bytes come");
    assert_eq!(found, bytes);
}

fn framed_by(framing: Framing, bytes: u64) -> String {
    match framing {
        Framing::Sized => format!("Content-Length: {bytes}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::UntilClose => String::new(),
    }
}

/// Runs `exchange` with a client's connection, and watches the service's memory.
fn in_constant_memory(
    backend: SocketAddr,
    served: JoinHandle<()>,
    exchange: impl FnOnce(TcpStream, &dyn Fn()),
) {
    let service = balancer(backend);
    let before = resident_kib(service.pid());
    let look = || {
        let now = resident_kib(service.pid());
        assert!(now <= before + GROWTH_KIB_MAX, "{before} KiB have become {now} KiB");
    };
    exchange(connect(service.address), &look);
    served.join().expect("the backend saw what it should");
    service.drained();
}

fn check_download(framing: Framing) {
    let bytes = bytes_asked();
    let (address, served) = backend(move |mut stream| {
        assert!(head(&mut stream).starts_with("GET /big HTTP/1.1\r\n"));
        let reply = format!("HTTP/1.1 200 OK\r\n{}\r\n", framed_by(framing, bytes));
        stream.write_all(reply.as_bytes()).expect("flick reads");
        write_body(&mut stream, framing, bytes);
    });
    in_constant_memory(address, served, |mut client, look| {
        client.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").expect("flick reads");
        assert!(head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
        look_through(&mut client, framing, bytes, look);
        if framing == Framing::UntilClose {
            assert_eq!(client.read(&mut [0]).expect("a clean end"), 0, "the body ends with the connection");
        }
    });
}

/// Reads a body and looks at the memory on the way.
fn look_through(client: &mut TcpStream, framing: Framing, bytes: u64, look: &dyn Fn()) {
    let half = bytes / 2 / PIECE_BYTES as u64 * PIECE_BYTES as u64;
    match framing {
        Framing::Chunked => read_body(client, framing, bytes),
        _ => {
            read_body(client, framing, half);
            look();
            read_body(client, framing, bytes - half);
        }
    }
    look();
}

fn check_upload(framing: Framing) {
    let bytes = bytes_asked();
    let (address, served) = backend(move |mut stream| {
        assert!(head(&mut stream).starts_with("PUT /big HTTP/1.1\r\n"));
        read_body(&mut stream, framing, bytes);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("flick reads");
    });
    in_constant_memory(address, served, |mut client, look| {
        let request = format!("PUT /big HTTP/1.1\r\nHost: a\r\n{}\r\n", framed_by(framing, bytes));
        client.write_all(request.as_bytes()).expect("flick reads");
        write_body(&mut client, framing, bytes);
        assert!(head(&mut client).starts_with("HTTP/1.1 204 No Content\r\n"));
        look();
    });
}

#[test]
fn sized_bodies_of_replies() {
    check_download(Framing::Sized);
}

#[test]
fn chunked_bodies_of_replies() {
    check_download(Framing::Chunked);
}

#[test]
fn bodies_until_the_connection_ends() {
    check_download(Framing::UntilClose);
}

#[test]
fn sized_bodies_of_requests() {
    check_upload(Framing::Sized);
}

#[test]
fn chunked_bodies_of_requests() {
    check_upload(Framing::Chunked);
}

#[test]
fn h10_tunnel_after_an_upgrade() {
    let bytes = bytes_asked();
    let (address, served) = backend(move |mut stream| {
        assert!(head(&mut stream).contains("Upgrade: x\r\n"), "what asks for the upgrade is passed on");
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
            .expect("flick reads");
        read_body(&mut stream, Framing::UntilClose, bytes);
        write_body(&mut stream, Framing::UntilClose, bytes);
        stream.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0, "the client has closed");
    });
    in_constant_memory(address, served, |mut client, look| {
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
            .expect("flick reads");
        assert!(head(&mut client).starts_with("HTTP/1.1 101 "));
        write_body(&mut client, Framing::UntilClose, bytes);
        look();
        look_through(&mut client, Framing::UntilClose, bytes, look);
        assert_eq!(client.read(&mut [0]).expect("a clean end"), 0, "its direction has ended");
    });
}
