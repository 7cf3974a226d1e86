//! Carrier of the bytes of a peer on a stage: a TCP socket, or rings in shared memory.
//! Promises: nothing blocks; what cannot be done yet is `WouldBlock`, as on a non-blocking socket.

use std::cell::RefCell;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::scenario::{Scenario, Stages};
use flick_net::Endpoint;
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pair::Pair;
use flick_shm::pairing::{Handshake, Offer, PairListener, PairPolicy, PeerProcess};
use flick_shm::segment::SegmentConfig;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Transport between the service and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP on the loopback.
    Tcp,
    /// Shared memory.
    SharedMemory,
}

/// Bytes of the rings of peers, which are full after one turn of a peer with much to send.
const RING_BYTES: u64 = 16 * flick_shm::limits::RING_BYTES_MIN;
/// Segments of peers that connect.
const SEGMENT: SegmentConfig = SegmentConfig { slots: 128, arena_bytes: 16 << 20, huge_pages: false };

impl Transport {
    /// Returns whether a scenario can be played on this transport.
    pub fn plays(self, scenario: &Scenario) -> bool {
        match scenario.stages {
            Stages::All => true,
            Stages::TcpOnly => self == Transport::Tcp,
            Stages::SimulatorOnly => false,
        }
    }

    /// Returns an address that no other stage has; for TCP the kernel chooses the port.
    pub fn fresh_address(self) -> Endpoint {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        match self {
            Transport::Tcp => Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            Transport::SharedMemory => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                Endpoint::Shm(format!("flick-stage-{}-{number}", std::process::id()))
            }
        }
    }
}

/// A process at the other end, and its pair.
struct Process {
    peer: PeerProcess,
    pair: Pair,
}

/// A connection of a peer.
#[expect(clippy::large_enum_variant, reason = "a stage has few, and does not move them")]
pub enum PeerConn {
    /// A TCP socket.
    Tcp(TcpStream),
    /// Rings.
    Shm(ShmConn),
}

/// A connection of a peer through shared memory.
#[expect(clippy::large_enum_variant, reason = "a stage has few, and does not move them")]
pub enum ShmConn {
    /// The handshake is not over.
    Pairing(Box<Offer>),
    /// It can be used.
    Open(OpenConn),
    /// It could not be opened.
    Failed,
}

/// An open connection; dropped, it is closed.
pub struct OpenConn {
    process: Rc<RefCell<Process>>,
    conn: Option<RingConn>,
}

impl PeerConn {
    /// Connects to a service that is polled by the same thread.
    pub fn connect(to: &Endpoint) -> PeerConn {
        match to {
            Endpoint::Tcp(at) => PeerConn::tcp(TcpStream::connect(at).expect("the service listens")),
            Endpoint::Shm(name) => {
                let offer = Offer::begin(name, &SEGMENT, PairPolicy::SameUser).expect("the service listens");
                PeerConn::Shm(ShmConn::Pairing(Box::new(offer)))
            }
            Endpoint::Unix(_) | Endpoint::Descriptor(_) => panic!("a stage has no Unix sockets"),
        }
    }

    fn tcp(stream: TcpStream) -> PeerConn {
        stream.set_nonblocking(true).expect("a socket may be non-blocking");
        PeerConn::Tcp(stream)
    }

    /// Writes the front of `bytes`.
    ///
    /// Errors: `WouldBlock`; others mean that the connection is gone.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            PeerConn::Tcp(stream) => stream.write(bytes),
            PeerConn::Shm(peer_conn) => peer_conn.open()?.write(bytes),
        }
    }

    /// Reads to the front of `out`; 0 is the end of the stream.
    ///
    /// Errors: `WouldBlock`; others mean that the connection is gone.
    pub fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            PeerConn::Tcp(stream) => stream.read(out),
            PeerConn::Shm(peer_conn) => peer_conn.open()?.read(out),
        }
    }

    /// Ends the write side. A connection that is gone already has none.
    pub fn shutdown_write(&mut self) {
        match self {
            PeerConn::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            PeerConn::Shm(peer_conn) => {
                if let Ok(OpenConn { conn: Some(conn), .. }) = peer_conn.open() {
                    conn.finish_sending().expect("an honest service");
                }
            }
        }
    }

    /// Resets the connection.
    pub fn reset(self) {
        match self {
            PeerConn::Tcp(stream) => {
                rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("a TCP socket");
            }
            PeerConn::Shm(ShmConn::Open(mut open)) => {
                let conn = open.conn.take().expect("it has its connection until it ends");
                open.process.borrow_mut().pair.reset(conn);
            }
            PeerConn::Shm(ShmConn::Pairing(_) | ShmConn::Failed) => {}
        }
    }
}

impl ShmConn {
    /// Returns the connection; goes on with the handshake first.
    fn open(&mut self) -> io::Result<&mut OpenConn> {
        if let ShmConn::Pairing(_) = self {
            let ShmConn::Pairing(offer) = std::mem::replace(self, ShmConn::Failed) else { unreachable!() };
            match offer.advance() {
                Ok(Handshake::Pending(offer)) => *self = ShmConn::Pairing(Box::new(offer)),
                Ok(Handshake::Done(peer, Ok(mut pair))) => {
                    let conn = pair.open(RING_BYTES).map_err(|error| Error::other(error.to_string()))?;
                    let process = Rc::new(RefCell::new(Process { peer, pair }));
                    *self = ShmConn::Open(OpenConn { process, conn: Some(conn) });
                }
                Ok(Handshake::Done(_, Err(error))) | Err(error) => {
                    return Err(Error::other(error.to_string()));
                }
            }
        }
        match self {
            ShmConn::Open(open) => Ok(open),
            ShmConn::Pairing(_) => Err(ErrorKind::WouldBlock.into()),
            ShmConn::Failed => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

impl OpenConn {
    fn conn(&mut self) -> &mut RingConn {
        self.conn.as_mut().expect("it has its connection until it ends")
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.conn().is_peer_gone() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        match self.conn().send(bytes).map_err(|fault| Error::other(fault.to_string()))? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let is_gone = self.process.borrow().peer.is_gone();
        match self.conn().receive(out).map_err(|fault| Error::other(fault.to_string()))? {
            RingRead::Bytes(count) => Ok(count),
            RingRead::Finished => Ok(0),
            RingRead::Reset => Err(ErrorKind::ConnectionReset.into()),
            // What it had published before was read.
            RingRead::Empty if is_gone => Err(ErrorKind::ConnectionReset.into()),
            RingRead::Empty => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Drop for OpenConn {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.process.borrow_mut().pair.close(conn);
        }
    }
}

/// Listener of a backend on a stage.
pub struct BackendListener {
    at: Endpoint,
    socket: Option<Socket>,
    /// Processes that have paired; they can open connections also after the socket is closed, and are refused then.
    processes: Vec<Rc<RefCell<Process>>>,
}

enum Socket {
    Tcp(TcpListener),
    Shm(PairListener),
}

impl BackendListener {
    /// Listens at an address.
    pub fn listen(at: &Endpoint) -> BackendListener {
        let mut listener = BackendListener { at: at.clone(), socket: None, processes: Vec::new() };
        listener.set_open(true);
        listener
    }

    /// Returns the address.
    pub fn at(&self) -> &Endpoint {
        &self.at
    }

    /// Listens again, or no more.
    pub fn set_open(&mut self, is_open: bool) {
        self.socket = None;
        if !is_open {
            return;
        }
        self.socket = Some(match &self.at {
            Endpoint::Tcp(at) => {
                let listener = TcpListener::bind(at).expect("the loopback has a free port");
                listener.set_nonblocking(true).expect("a socket may be non-blocking");
                self.at = Endpoint::Tcp(listener.local_addr().expect("a bound socket has an address"));
                Socket::Tcp(listener)
            }
            Endpoint::Shm(name) => {
                let bound = PairListener::bind(name, PairPolicy::SameUser);
                Socket::Shm(bound.expect("the name is this stage's own"))
            }
            Endpoint::Unix(_) | Endpoint::Descriptor(_) => panic!("a stage has no Unix sockets"),
        });
    }

    /// Accepts all connections that wait.
    pub fn accept_all(&mut self) -> Vec<PeerConn> {
        let mut accepted = Vec::new();
        match &self.socket {
            Some(Socket::Tcp(listener)) => {
                while let Ok((stream, _)) = listener.accept() {
                    accepted.push(PeerConn::tcp(stream));
                }
            }
            Some(Socket::Shm(listener)) => {
                while is_readable(listener) {
                    // A service that went away meanwhile is none of this backend's business.
                    let Ok((peer, Ok(pair))) = listener.accept() else { continue };
                    self.processes.push(Rc::new(RefCell::new(Process { peer, pair })));
                }
            }
            None => {}
        }
        for process in &self.processes {
            let mut slots = Vec::new();
            let mut with = process.borrow_mut();
            with.pair.reclaim();
            with.pair.take_ready(|slot| slots.push(slot));
            for slot in slots {
                if self.socket.is_none() {
                    with.pair.refuse(slot);
                } else if let Ok(Some(conn)) = with.pair.accept(slot, RING_BYTES) {
                    let peer_conn = OpenConn { process: Rc::clone(process), conn: Some(conn) };
                    accepted.push(PeerConn::Shm(ShmConn::Open(peer_conn)));
                }
            }
        }
        accepted
    }
}

fn is_readable(listener: &PairListener) -> bool {
    let socket = listener.socket();
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&no_wait));
    polled.is_ok_and(|count| count > 0)
}
