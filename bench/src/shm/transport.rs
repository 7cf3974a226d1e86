//! The transports under one interface: send all of a message, receive all of it.

use std::fs::File;
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use flick_ring::{Consumer, Producer, ring};
use flick_shm::conn::RingRead;
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest, StreamTransport};
use flick_shm::watch::{PeerWatch, PeerWatchHandle, WatchError};
use rustix::io::Errno;
use rustix::thread::futex;

/// Bytes of a bare ring.
const RING_BYTES: usize = 64 << 10;
/// Longest sleep of a side that busy-polls first, in milliseconds.
const SLEEP_MS: u32 = 10_000;

/// A transport and how its sides wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    BlockingTcp,
    PolledTcp,
    UnixSocket,
    Pipe,
    /// Never sleeps.
    PolledShm,
    /// Waits as a client with the default settings does.
    DefaultShm,
    /// Sleeps whenever it has to wait, without a limit: a thread watches for the end of the other side.
    AsleepShm,
    BareRing,
    /// Moves a number in a cache line of each direction: what the two cores take to show each other anything.
    BareLine,
    /// Wakes and sleeps for each message, and moves nothing but its number: what any sleep of a thread costs.
    BareFutex,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BlockingTcp => "TCP, blocking",
            Self::PolledTcp => "TCP, polled",
            Self::UnixSocket => "Unix socket",
            Self::Pipe => "pipe",
            Self::PolledShm => "shared memory, polled",
            Self::DefaultShm => "shared memory, default",
            Self::AsleepShm => "shared memory, asleep",
            Self::BareRing => "`flick-ring` within the process, polled",
            Self::BareLine => "cache lines alone, polled",
            Self::BareFutex => "wake-ups of futexes alone",
        }
    }

    pub(super) fn is_polled(self) -> bool {
        matches!(self, Self::PolledTcp | Self::PolledShm | Self::BareRing | Self::BareLine)
    }
}

/// One side of a transport.
pub(super) trait Side: Send {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn receive_all(&mut self, out: &mut [u8]) -> io::Result<()>;
}

/// Creates both sides.
pub(super) fn sides(kind: Kind) -> io::Result<(Box<dyn Side>, Box<dyn Side>)> {
    match kind {
        Kind::BlockingTcp | Kind::PolledTcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let far = listener.accept()?.0;
            for stream in [&near, &far] {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(kind == Kind::PolledTcp)?;
            }
            files(near.into(), far.into())
        }
        Kind::UnixSocket => {
            let (near, far) = UnixStream::pair()?;
            files(near.into(), far.into())
        }
        Kind::Pipe => {
            let ((near_in, far_out), (far_in, near_out)) = (io::pipe()?, io::pipe()?);
            let near =
                Files { from: File::from(OwnedFd::from(near_in)), to: File::from(OwnedFd::from(near_out)) };
            let far =
                Files { from: File::from(OwnedFd::from(far_in)), to: File::from(OwnedFd::from(far_out)) };
            Ok((Box::new(near), Box::new(far)))
        }
        Kind::PolledShm | Kind::DefaultShm | Kind::AsleepShm => streams(kind),
        Kind::BareRing => {
            let ((to_far, from_near), (to_near, from_far)) = (ring(RING_BYTES), ring(RING_BYTES));
            let near = Bare { producer: to_far, consumer: from_far };
            Ok((Box::new(near), Box::new(Bare { producer: to_near, consumer: from_near })))
        }
        Kind::BareLine => {
            let (to_far, to_near) = (Arc::new(Line::default()), Arc::new(Line::default()));
            let near = BareLine { to: Arc::clone(&to_far), from: Arc::clone(&to_near), seen: 0 };
            Ok((Box::new(near), Box::new(BareLine { to: to_near, from: to_far, seen: 0 })))
        }
        Kind::BareFutex => {
            let (to_far, to_near) = (Arc::new(FutexWord::default()), Arc::new(FutexWord::default()));
            let near = BareFutex { to: Arc::clone(&to_far), from: Arc::clone(&to_near), seen: 0 };
            Ok((Box::new(near), Box::new(BareFutex { to: to_near, from: to_far, seen: 0 })))
        }
    }
}

/// Descriptors of the kernel.
struct Files {
    from: File,
    to: File,
}

fn files(near: OwnedFd, far: OwnedFd) -> io::Result<(Box<dyn Side>, Box<dyn Side>)> {
    let side = |socket: OwnedFd| -> io::Result<Box<dyn Side>> {
        Ok(Box::new(Files { from: File::from(socket.try_clone()?), to: File::from(socket) }))
    };
    Ok((side(near)?, side(far)?))
}

impl Side for Files {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.to.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive_all(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            match self.from.read(out) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => out = &mut out[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Wait of a side of a stream in shared memory.
enum ShmWait {
    Polled,
    /// For a time in milliseconds at most.
    Limited(u32),
    /// Without a limit, while the thread watches.
    Watched(#[expect(dead_code, reason = "its drop ends the thread")] Arc<WatchThread>),
}

/// One side of a stream in shared memory.
struct Shm {
    stream: ShmStream,
    wait: ShmWait,
}

/// The thread that watches for the end of both sides.
struct WatchThread {
    handle: PeerWatchHandle,
    thread: Option<JoinHandle<Result<(), WatchError>>>,
}

impl WatchThread {
    fn start() -> io::Result<Self> {
        let watch = PeerWatch::new()?;
        let handle = watch.handle();
        Ok(Self { handle, thread: Some(std::thread::spawn(move || watch.run())) })
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.handle.stop();
        // The figures are taken; a failure would have made waits end with errors.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn streams(kind: Kind) -> io::Result<(Box<dyn Side>, Box<dyn Side>)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("shm:bench-{}-{number}", std::process::id());
    let mut config = StreamConfig::default();
    if kind == Kind::AsleepShm {
        config.busy_poll_us = 0;
    }
    let listener = PairListener::bind(&name, PairPolicy::SameUser).map_err(io::Error::other)?;
    let (near, far) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| ShmStream::accept(&listener, &config));
        (ShmStream::connect(&name, &config), accepting.join())
    });
    let far = far.map_err(|_| io::Error::other("the accepting side panicked"))?;
    let watch = if kind == Kind::AsleepShm { Some(Arc::new(WatchThread::start()?)) } else { None };
    let side = |mut stream: ShmStream| -> io::Result<Box<dyn Side>> {
        if let StreamTransport::Kernel(reason) = stream.transport() {
            return Err(io::Error::other(reason));
        }
        let wait = match &watch {
            Some(watch) => {
                stream.watch_peer(&watch.handle).map_err(io::Error::other)?;
                ShmWait::Watched(Arc::clone(watch))
            }
            None if kind == Kind::PolledShm => ShmWait::Polled,
            None => ShmWait::Limited(SLEEP_MS),
        };
        Ok(Box::new(Shm { stream, wait }))
    };
    Ok((side(near.map_err(io::Error::other)?)?, side(far.map_err(io::Error::other)?)?))
}

impl Shm {
    fn wait(&mut self, interest: StreamInterest) -> io::Result<()> {
        let timeout_ms = match self.wait {
            ShmWait::Polled => {
                spin_loop();
                return Ok(());
            }
            ShmWait::Limited(timeout_ms) => Some(timeout_ms),
            ShmWait::Watched(_) => None,
        };
        self.stream.wait(interest, timeout_ms).map(drop).map_err(io::Error::other)
    }
}

impl Side for Shm {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.send(bytes).map_err(io::Error::other)? {
                0 => self.wait(StreamInterest::Writable)?,
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    fn receive_all(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            match self.stream.receive(out).map_err(io::Error::other)? {
                RingRead::Bytes(count) => out = &mut out[count..],
                RingRead::Empty => self.wait(StreamInterest::Readable)?,
                RingRead::Finished | RingRead::Reset => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }
}

/// The ring between threads, which carries records.
struct Bare {
    producer: Producer,
    consumer: Consumer,
}

impl Side for Bare {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        while !self.producer.push(bytes) {
            spin_loop();
        }
        // No side of this transport sleeps.
        let _ = self.producer.publish();
        Ok(())
    }

    fn receive_all(&mut self, out: &mut [u8]) -> io::Result<()> {
        while self.consumer.pop(out).is_none() {
            spin_loop();
        }
        let _ = self.consumer.release();
        Ok(())
    }
}

/// A number plus one, which shares neither its cache line nor the one that is fetched together with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// One side of an exchange of different numbers in which each waits for the other's.
struct BareLine {
    to: Arc<Line>,
    from: Arc<Line>,
    /// Value that was received last.
    seen: u64,
}

impl Side for BareLine {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let number: [u8; 8] = bytes.try_into().map_err(io::Error::other)?;
        self.to.0.store(u64::from_le_bytes(number).wrapping_add(1), Ordering::Release);
        Ok(())
    }

    fn receive_all(&mut self, out: &mut [u8]) -> io::Result<()> {
        let line = loop {
            let line = self.from.0.load(Ordering::Acquire);
            if line != self.seen {
                break line;
            }
            spin_loop();
        };
        self.seen = line;
        out.copy_from_slice(&line.wrapping_sub(1).to_le_bytes());
        Ok(())
    }
}

/// A number of eight bytes, and the futex that says that it is there.
#[derive(Default)]
struct FutexWord {
    count: AtomicU32,
    number: AtomicU64,
}

/// One side of an exchange of numbers in which each waits for the other's.
struct BareFutex {
    to: Arc<FutexWord>,
    from: Arc<FutexWord>,
    /// Numbers received.
    seen: u32,
}

impl Side for BareFutex {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let number: [u8; 8] = bytes.try_into().map_err(io::Error::other)?;
        self.to.number.store(u64::from_le_bytes(number), Ordering::Relaxed);
        self.to.count.fetch_add(1, Ordering::Release);
        // As for two processes: the kernel looks the page up.
        futex::wake(&self.to.count, futex::Flags::empty(), 1)?;
        Ok(())
    }

    fn receive_all(&mut self, out: &mut [u8]) -> io::Result<()> {
        while self.from.count.load(Ordering::Acquire) == self.seen {
            match futex::wait(&self.from.count, futex::Flags::empty(), self.seen, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.seen = self.seen.wrapping_add(1);
        out.copy_from_slice(&self.from.number.load(Ordering::Relaxed).to_le_bytes());
        Ok(())
    }
}
