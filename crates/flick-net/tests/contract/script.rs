//! The steps of a scripted peer, and the code that plays them on a kernel socket.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flick_net::Waker;
use flick_shm::conn::RingRead;
use flick_shm::stream::{ShmStream, StreamError, StreamInterest};

/// One step of a peer. A peer reads only in the steps that expect something; otherwise it pauses.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Expect(Vec<u8>),
    ExpectEof,
    ExpectReset,
    ShutdownWrite,
    Close,
    Reset,
    /// Continues once the test opens the gate.
    Wait(Gate),
}

/// Lets a test decide when a peer continues.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Bytes that differ by position, so that a lost or duplicated piece shows.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

/// A blocking kernel socket of either family.
pub trait Socket: Read + Write + Send + 'static {
    fn shut(&self, how: Shutdown);
    fn reset(&self);
}

impl Socket for std::net::TcpStream {
    fn shut(&self, how: Shutdown) {
        self.shutdown(how).expect("the peer's socket is up");
    }

    fn reset(&self) {
        rustix::net::sockopt::set_socket_linger(self, Some(std::time::Duration::ZERO)).expect("TCP lingers");
    }
}

impl Socket for std::os::unix::net::UnixStream {
    fn shut(&self, how: Shutdown) {
        self.shutdown(how).expect("the peer's socket is up");
    }

    fn reset(&self) {}
}

/// A blocking stream through shared memory.
pub struct ShmSocket(RefCell<Option<ShmStream>>);

impl ShmSocket {
    pub fn new(stream: ShmStream) -> ShmSocket {
        ShmSocket(RefCell::new(Some(stream)))
    }

    /// Tries until the stream can, and waits in between.
    fn blocking<T>(
        &self,
        interest: StreamInterest,
        mut attempt: impl FnMut(&mut ShmStream) -> Result<Option<T>, StreamError>,
    ) -> io::Result<T> {
        let mut stream = self.0.borrow_mut();
        let stream = stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            if let Some(done) = attempt(stream).map_err(error_of)? {
                return Ok(done);
            }
            stream.wait(interest, Some(10_000)).map_err(error_of)?;
        }
    }
}

fn error_of(error: StreamError) -> io::Error {
    match error {
        StreamError::PeerGone => io::ErrorKind::ConnectionReset.into(),
        other => io::Error::other(other.to_string()),
    }
}

impl Read for ShmSocket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.blocking(StreamInterest::Readable, |stream| {
            Ok(match stream.receive(out)? {
                RingRead::Bytes(count) => Some(count),
                RingRead::Finished => Some(0),
                RingRead::Empty => None,
                RingRead::Reset => return Err(StreamError::PeerGone),
            })
        })
    }
}

impl Write for ShmSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blocking(StreamInterest::Writable, |stream| {
            Ok(Some(stream.send(bytes)?).filter(|sent| *sent > 0))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for ShmSocket {
    fn shut(&self, how: Shutdown) {
        assert!(how == Shutdown::Write, "scripts end their own direction only");
        let mut stream = self.0.borrow_mut();
        let stream = stream.as_mut().expect("the stream is up");
        stream.finish_sending().expect("an honest driver");
    }

    fn reset(&self) {
        if let Some(stream) = self.0.take() {
            stream.reset();
        }
    }
}

/// Runs a script; the error names the step that failed.
pub fn run(mut socket: impl Socket, steps: Vec<Step>, wake: &Waker) -> Result<(), String> {
    for (number, step) in steps.into_iter().enumerate() {
        let what = format!("step {number}");
        let failed = |error: io::Error| format!("{what}: {error}");
        match step {
            Step::Send(bytes) => socket.write_all(&bytes).map_err(failed)?,
            Step::Expect(bytes) => {
                let mut got = vec![0; bytes.len()];
                socket.read_exact(&mut got).map_err(failed)?;
                if got != bytes {
                    return Err(format!("{what}: other bytes than expected"));
                }
            }
            Step::ExpectEof => {
                let mut rest = [0; 64];
                match socket.read(&mut rest).map_err(failed)? {
                    0 => {}
                    more => return Err(format!("{what}: {more} more bytes instead of the end")),
                }
            }
            Step::ExpectReset => {
                let mut rest = vec![0; 1 << 16];
                let reset = loop {
                    match socket.read(&mut rest) {
                        Ok(0) => break false,
                        Ok(_) => {}
                        Err(error) => break error.kind() == io::ErrorKind::ConnectionReset,
                    }
                };
                if !reset {
                    return Err(format!("{what}: a clean end instead of a reset"));
                }
            }
            Step::ShutdownWrite => socket.shut(Shutdown::Write),
            Step::Close => return Ok(()),
            Step::Reset => {
                socket.reset();
                return Ok(());
            }
            Step::Wait(gate) => {
                wake.wake();
                while !gate.is_open() {
                    std::thread::yield_now();
                }
            }
        }
    }
    Ok(())
}
