//! A client that speaks the binary protocol byte by byte, and messages that no client library would send.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use flick_load::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, Opcode, Status, encode_message};
use flick_net::Endpoint;

use crate::common::wait::WAIT_MAX;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// Extras, key and value.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns the status of the request.
    pub fn status(&self) -> Option<Status> {
        Status::from_code(self.header.status)
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.body[usize::from(self.header.extras_len) + usize::from(self.header.key_len)..]
    }

    /// Status and opaque: all that most tests look at.
    pub fn outcome(&self) -> (Option<Status>, u32) {
        (self.status(), self.header.opaque)
    }
}

trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// One connection of a client.
pub struct Client {
    stream: Box<dyn Stream>,
}

impl Client {
    /// Connects over TCP.
    pub fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("the service accepts"))
    }

    /// Takes over a TCP connection.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a live socket");
        stream.set_write_timeout(Some(WAIT_MAX)).expect("a live socket");
        stream.set_nodelay(true).expect("a live socket");
        Self { stream: Box::new(stream) }
    }

    /// Connects over TCP or a Unix socket.
    pub fn to(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp(address) => Self::connect(*address),
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).expect("the service accepts");
                stream.set_read_timeout(Some(WAIT_MAX)).expect("a live socket");
                Self { stream: Box::new(stream) }
            }
            Endpoint::Shm(_) | Endpoint::Descriptor(_) => panic!("no client of this test uses shared memory"),
        }
    }

    /// Writes all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the service takes what it is sent");
    }

    /// Writes all of `bytes`, unless the service has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply; `None` when the connection was closed instead. Panics when neither happens.
    pub fn try_reply(&mut self) -> Option<Reply> {
        read_message(&mut self.stream).map(|(header, body)| Reply { header, body })
    }

    /// Whether something has arrived, or the end of the connection.
    pub fn is_readable(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.stream.as_fd(), PollFlags::IN)], Some(&now));
        ready.expect("a live socket") > 0
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply, not the end of the connection")
    }

    /// Sends one request and takes its reply.
    pub fn ask(&mut self, request: &[u8]) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Expects the end of the connection, and no byte before it.
    pub fn expect_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("a byte where the connection should have ended: {byte:?}"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

/// Reads one whole message; `None` at the end of the connection, whole or inside a message.
pub fn read_message(stream: &mut impl Read) -> Option<(Header, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    read_exact(stream, &mut head)?;
    let header = Header::decode(&head).expect("a whole header");
    let mut body = vec![0; header.body_len as usize];
    read_exact(stream, &mut body)?;
    Some((header, body))
}

/// Fills `bytes`; `None` at the end of the connection. Panics when nothing comes.
pub fn read_exact(stream: &mut impl Read, bytes: &mut [u8]) -> Option<()> {
    match stream.read_exact(bytes) {
        Ok(()) => Some(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("nothing came for {WAIT_MAX:?}")
        }
        Err(_) => None,
    }
}

/// A TCP connection whose kernel buffer for replies is small, so that not reading is noticed soon.
pub fn connect_narrow(address: SocketAddr) -> TcpStream {
    connect_narrow_from(Ipv4Addr::LOCALHOST, address)
}

/// The same from that address of this host.
pub fn connect_narrow_from(local: Ipv4Addr, address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a descriptor is left");
    sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("a live socket");
    if address.is_ipv4() {
        rustix::net::bind(&socket, &SocketAddr::from((local, 0))).expect("all of 127.0.0.0/8 is this host's");
    }
    rustix::net::connect(&socket, &address).expect("the service accepts");
    TcpStream::from(socket)
}

/// Closes a connection with a reset.
pub fn reset(stream: TcpStream) {
    let linger = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    linger.expect("a live socket");
    drop(stream);
}

/// A request.
pub fn request(opcode: Opcode, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = Header { magic: MAGIC_REQUEST, opcode: opcode.byte(), opaque, ..Header::default() };
    let mut bytes = Vec::new();
    encode_message(header, extras, key, value, &mut bytes);
    bytes
}

/// A read.
pub fn get(opaque: u32, key: &str) -> Vec<u8> {
    request(Opcode::Get, opaque, &[], key.as_bytes(), &[])
}

/// A write.
pub fn set(opaque: u32, key: &str, value: &[u8]) -> Vec<u8> {
    request(Opcode::Set, opaque, &[0; 8], key.as_bytes(), value)
}

/// A request that does nothing.
pub fn noop(opaque: u32) -> Vec<u8> {
    request(Opcode::Noop, opaque, &[], &[], &[])
}

/// A key that Listing 1 sends to `backend` of `backends`; another one for each `name`.
pub fn key_on(backend: usize, backends: usize, name: &str) -> String {
    (0..)
        .map(|number| format!("{name}-{number}"))
        .find(|key| flick_abi::hash::hash(key.as_bytes()) % backends as u64 == backend as u64)
        .expect("some key hashes to each backend")
}

/// A listener that answers no further connection.
pub struct FullListener {
    /// Address that it listens on.
    pub address: SocketAddr,
    _socket: std::os::fd::OwnedFd,
    _waiting: Vec<std::os::fd::OwnedFd>,
}

/// A listener that never accepts and whose queue is full.
pub fn full_listener() -> FullListener {
    use rustix::net::{AddressFamily, SocketType};
    let stream = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
    let socket = stream();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("the loopback has a free port");
    rustix::net::listen(&socket, 0).expect("a bound socket");
    let name = rustix::net::getsockname(&socket).expect("a bound socket has a name");
    let address = SocketAddr::try_from(name).expect("it is of the internet");
    let waiting = (0..4).map(|_| {
        let peer = stream();
        rustix::io::ioctl_fionbio(&peer, true).expect("a live socket");
        // In progress, or refused a place in the queue: either way it is full afterwards.
        let _ = rustix::net::connect(&peer, &address);
        peer
    });
    let waiting = waiting.collect();
    FullListener { address, _socket: socket, _waiting: waiting }
}
