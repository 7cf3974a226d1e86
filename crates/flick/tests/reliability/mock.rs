//! A backend that does what a test wants: one thread for each connection, running the test's own code.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use flick_load::binary::{Header, MAGIC_RESPONSE, Status, encode_message};

use crate::wire;

/// A listening backend; dropping it ends its threads.
pub struct Mock {
    /// Address that it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    accepted: AtomicU64,
    streams: Mutex<Vec<Weak<TcpStream>>>,
}

/// One connection to a mock.
pub struct Conversation {
    stream: Arc<TcpStream>,
}

impl Conversation {
    /// Takes over a connection that a test has accepted itself.
    pub fn of(stream: TcpStream) -> Self {
        Self { stream: Arc::new(stream) }
    }

    /// The next whole request; `None` when the connection has ended.
    pub fn request(&mut self) -> Option<(Header, Vec<u8>)> {
        wire::read_message(&mut &*self.stream)
    }

    /// Fills `bytes`; `None` when the connection has ended.
    pub fn read(&mut self, bytes: &mut [u8]) -> Option<()> {
        wire::read_exact(&mut &*self.stream, bytes)
    }

    /// Makes the end of the connection a reset.
    pub fn end_with_reset(&self) {
        let set = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        set.expect("a live socket");
    }

    /// Writes bytes; a peer that has gone is no concern of a mock.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = (&*self.stream).write_all(bytes);
    }

    /// Answers a request.
    pub fn answer(&mut self, to: &Header, status: Status, value: &[u8]) {
        self.write(&answer(to, status, value));
    }
}

/// The bytes of an answer to a request.
pub fn answer(to: &Header, status: Status, value: &[u8]) -> Vec<u8> {
    let header = Header {
        magic: MAGIC_RESPONSE,
        opcode: to.opcode,
        status: status.code(),
        opaque: to.opaque,
        ..Header::default()
    };
    let mut bytes = Vec::new();
    encode_message(header, &[], &[], value, &mut bytes);
    bytes
}

/// The key of a request.
pub fn key_of<'a>(header: &Header, body: &'a [u8]) -> &'a [u8] {
    let from = usize::from(header.extras_len);
    &body[from..from + usize::from(header.key_len)]
}

impl Mock {
    /// Listens and runs `serve` for each connection, on a thread of its own.
    pub fn start(serve: impl Fn(&mut Conversation) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let (state, serve) = (Arc::clone(&shared), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            for stream in listener.incoming() {
                if state.stop.load(Ordering::Acquire) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                state.accepted.fetch_add(1, Ordering::AcqRel);
                stream.set_nodelay(true).expect("a live socket");
                let stream = Arc::new(stream);
                state.streams.lock().expect("no holder panics").push(Arc::downgrade(&stream));
                let serve = Arc::clone(&serve);
                // One that has ended holds its stack as long as its handle is there.
                threads.retain(|thread| !thread.is_finished());
                threads.push(std::thread::spawn(move || serve(&mut Conversation { stream })));
            }
            for thread in threads {
                let _ = thread.join();
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// Connections so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Acquire)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the accepting thread; it may be gone already.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams.lock().expect("no holder panics").iter().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
