//! A memcached client of the tests' own: one blocking connection, one request at a time or many.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use flick_load::binary::{self, HEADER_BYTES, Header, MAGIC_REQUEST, Opcode, Status};
use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};

use super::wait::{self, WAIT_MAX};

/// One reply.
#[derive(Debug)]
pub struct Reply {
    /// Its opaque.
    pub opaque: u32,
    /// Its status.
    pub status: u16,
    /// Its value, behind extras and key.
    pub value: Vec<u8>,
}

impl Reply {
    /// Whether it has this status.
    pub fn is(&self, status: Status) -> bool {
        self.status == status.code()
    }
}

/// One request as bytes.
pub fn request(opcode: Opcode, opaque: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let extras: &[u8] =
        if matches!(opcode, Opcode::Set | Opcode::Add | Opcode::Replace) { &[0; 8] } else { &[] };
    let header = Header { magic: MAGIC_REQUEST, opcode: opcode.byte(), opaque, ..Header::default() };
    let mut bytes = Vec::new();
    binary::encode_message(header, extras, key, value, &mut bytes);
    bytes
}

/// A connection to `shm:NAME`, with the token 0.
pub fn on_ring(name: &str) -> ClientSet {
    let mut ring = ClientSet::new(&ClientConfig::new(1)).expect("an epoll");
    ring.connect(0, &ClientAddress::Shm(name.to_owned())).expect("the service pairs");
    let mut events = Vec::with_capacity(4);
    wait::until("a client on rings to be connected", || {
        let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        ring.wait(&mut events, Some(short)).expect("an epoll");
        events.contains(&ClientEvent::Connected(0)).then_some(())
    });
    ring
}

/// Connects; reads and writes give up after the tests' deadline.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the service takes clients");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("the time is not zero");
    stream.set_write_timeout(Some(WAIT_MAX)).expect("the time is not zero");
    stream.set_nodelay(true).expect("it is a TCP socket");
    stream
}

/// Reads up to and with these bytes, and nothing behind them. Panics when the connection ends first.
pub fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(end) {
        stream
            .read_exact(&mut byte)
            .unwrap_or_else(|error| panic!("{error} behind {:?}", String::from_utf8_lossy(&bytes)));
        bytes.push(byte[0]);
    }
    bytes
}

/// Reads one reply. Panics when the connection ends first.
pub fn reply(stream: &mut impl Read) -> Reply {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).expect("a reply begins");
    let header = Header::decode(&header).expect("it is long enough");
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body).expect("a reply ends");
    let value = body.split_off(usize::from(header.extras_len) + usize::from(header.key_len));
    Reply { opaque: header.opaque, status: header.status, value }
}

/// Sends one request and reads its reply.
pub fn ask(stream: &mut (impl Read + Write), opcode: Opcode, opaque: u32, key: &[u8], value: &[u8]) -> Reply {
    stream.write_all(&request(opcode, opaque, key, value)).expect("the service reads");
    let reply = reply(stream);
    assert_eq!(reply.opaque, opaque, "a reply carries its request's opaque");
    reply
}
