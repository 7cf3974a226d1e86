//! Support for tests of stores: starting an example's service, an exchange of bytes, a capture and its receiver.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::common::service::Service;

/// Runs an example whose channel `client` or `capture` listens, with one channel of backends, if it has any.
pub fn service(name: &str, backends: Option<(&str, &[SocketAddr])>, extra: &[&str]) -> Service {
    let program = format!("examples/{name}/{name}.flick");
    let listen = if name == "packet_counter" { "capture=127.0.0.1:0" } else { "client=127.0.0.1:0" };
    let mut args = vec!["run", &program, "--listen", listen];
    let connect = backends.map(|(channel, addresses)| {
        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("{channel}={}", list.join(","))
    });
    if let Some(connect) = &connect {
        args.extend(["--connect", connect]);
    }
    args.extend_from_slice(extra);
    Service::start(&args)
}

/// Sends, and reads as many bytes as are expected; they must be those.
pub fn exchange(client: &mut TcpStream, request: &[u8], expected: &[u8]) {
    client.write_all(request).expect("the service reads");
    let mut got = Vec::new();
    let read = client.take(expected.len() as u64).read_to_end(&mut got);
    assert!(
        got == expected,
        "`{}` was answered `{}`, `{}` expected ({read:?})",
        request.escape_ascii(),
        got.escape_ascii(),
        expected.escape_ascii()
    );
}

/// A capture in pcap's format, and what the counter must say of it.
pub struct Capture {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Bytes on the wire.
    pub octets: u64,
    /// Packets of which not all was captured.
    pub cut_short: u64,
}

/// A capture of N packets: empty ones, small ones, every tenth cut short, the last as large as there are.
pub fn capture(packets: u32) -> Capture {
    const LARGEST: u32 = 256 * 1024;
    let mut capture = Capture { bytes: Vec::new(), octets: 0, cut_short: 0 };
    let put = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // Magic number, version 2.4, two unused fields, the length kept, Ethernet.
    capture.bytes.extend(put(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, LARGEST, 1]));
    for n in 0..packets {
        let size = if n + 1 == packets { LARGEST } else { n * 5 % 1500 };
        let kept = if n % 10 == 7 { size / 2 } else { size };
        capture.octets += u64::from(size);
        capture.cut_short += u64::from(kept < size);
        capture.bytes.extend(put(&[1_700_000_000 + n, n, kept, size]));
        capture.bytes.extend((0..kept).map(|at| (at + n) as u8));
    }
    capture
}

/// Server that takes all that a service sends to it.
pub struct Sink {
    /// Address that it listens on.
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Sink {
    /// Starts one. It lives as long as the test's process.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let received = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let shared = Arc::clone(&received);
        std::thread::spawn(move || {
            for (index, mut stream) in listener.incoming().flatten().enumerate() {
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(Vec::new());
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let mut piece = vec![0; 64 * 1024];
                    while let Ok(count @ 1..) = stream.read(&mut piece) {
                        shared.lock().unwrap_or_else(PoisonError::into_inner)[index]
                            .extend_from_slice(&piece[..count]);
                    }
                });
            }
        });
        Self { address, received }
    }

    /// Returns the number of bytes received, over all connections.
    pub fn len(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum()
    }

    /// All that has come, one connection behind the other.
    pub fn bytes(&self) -> Vec<u8> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).concat()
    }
}
