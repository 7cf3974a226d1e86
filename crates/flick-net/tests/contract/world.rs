//! A driver with scripted peers, and the loop that plays the platform.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};
use flick_net::{
    AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, EpollDriver, IoKind, UringDriver, Waker,
};
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::stream::{ShmStream, StreamConfig};

use crate::script::{self, Gate, ShmSocket, Step};

/// Longest time that a test may take before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub const LIMITS: DriverLimits = DriverLimits {
    conns_max: 600,
    shm_conns_max: 0,
    output_slices_max: 4096,
    events_max: 256,
    receive_bytes: 16384,
};

pub trait World: Sized {
    type Driver: Driver;

    /// Returns why this machine has no such driver.
    fn unavailable() -> Option<String> {
        None
    }
    fn with_limits(limits: DriverLimits) -> Self;
    fn driver(&mut self) -> &mut Self::Driver;
    /// Starts a peer that connects to the driver.
    fn connect(&mut self, to: &Endpoint, steps: Vec<Step>);
    /// Starts peers that accept a connection of the driver, one after the other.
    fn serve(&mut self, at: &Endpoint, scripts: Vec<Vec<Step>>) -> Endpoint;
    /// Opens the gate and waits until all peers have ended, where they can do so while the driver is not polled.
    fn let_peers_end(&mut self, _gate: &Gate) {}
    /// Returns whether all peers have ended their scripts; panics if one failed.
    fn peers_are_done(&mut self) -> bool;
    /// Returns an unused address, for a listener or a server.
    fn fresh(&self, kind: Kind) -> Endpoint;
    /// Returns the bytes that a peer can send while neither side receives, and the platform holds half a megabyte.
    fn unread_bytes(&self) -> usize {
        1 << 20
    }
    /// Returns how long one poll may wait.
    fn timeout(&self) -> Option<Duration>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    V4,
    V6,
    Unix,
}

pub fn pool() -> Pool {
    Pool::new(PoolConfig { small_count: 64, large_count: 512, huge_count: 0 })
}

/// Polls until `app`, called with `None` after each poll, returns that it is done, and all peers are.
pub fn run<W: World>(
    world: &mut W,
    pool: &Pool,
    app: impl FnMut(&mut W::Driver, Option<DriverEvent>) -> bool,
) {
    let timeout = world.timeout();
    run_polling(world, pool, timeout, app);
}

/// As [`run`], for a platform that has work in every iteration and so never waits.
pub fn run_busy<W: World>(
    world: &mut W,
    pool: &Pool,
    app: impl FnMut(&mut W::Driver, Option<DriverEvent>) -> bool,
) {
    run_polling(world, pool, Some(Duration::ZERO), app);
}

fn run_polling<W: World>(
    world: &mut W,
    pool: &Pool,
    timeout: Option<Duration>,
    mut app: impl FnMut(&mut W::Driver, Option<DriverEvent>) -> bool,
) {
    let end = Instant::now() + TEST_TIMEOUT;
    let mut events = Vec::with_capacity(256);
    loop {
        world.driver().poll(pool, timeout, &mut events).unwrap();
        for event in events.drain(..) {
            app(world.driver(), Some(event));
        }
        let done = app(world.driver(), None);
        if done && world.peers_are_done() {
            return;
        }
        assert!(Instant::now() < end, "the test timed out");
    }
}

/// The result of a peer's script.
pub type ScriptResult = Result<(), String>;

/// Peers on threads with blocking sockets, for the kernel drivers.
pub struct Peers {
    waker: Waker,
    results: (mpsc::Sender<ScriptResult>, mpsc::Receiver<ScriptResult>),
    running: usize,
    /// Sockets that peers listen at.
    paths: Vec<PathBuf>,
}

impl Peers {
    pub fn new(waker: Waker) -> Peers {
        Peers { waker, results: mpsc::channel(), running: 0, paths: Vec::new() }
    }

    fn start(&mut self, peer: impl FnOnce(&Waker) -> ScriptResult + Send + 'static) {
        let (waker, sender) = (self.waker.clone(), self.results.0.clone());
        self.running += 1;
        std::thread::spawn(move || {
            let result = peer(&waker);
            sender.send(result).ok();
            waker.wake();
        });
    }

    pub fn connect(&mut self, to: &Endpoint, steps: Vec<Step>) {
        let to = to.clone();
        self.start(move |wake| match to {
            Endpoint::Tcp(to) => script::run(TcpStream::connect(to).map_err(|e| e.to_string())?, steps, wake),
            Endpoint::Unix(to) => {
                script::run(UnixStream::connect(to).map_err(|e| e.to_string())?, steps, wake)
            }
            Endpoint::Shm(name) => {
                let stream = ShmStream::connect(&name, &StreamConfig::default());
                script::run(ShmSocket::new(stream.map_err(|error| error.to_string())?), steps, wake)
            }
            Endpoint::Descriptor(_) => panic!("drivers refuse descriptors"),
        });
    }

    pub fn serve(&mut self, at: &Endpoint, scripts: Vec<Vec<Step>>) -> Endpoint {
        match at {
            Endpoint::Tcp(at) => {
                let listener = TcpListener::bind(at).unwrap();
                let at = Endpoint::Tcp(listener.local_addr().unwrap());
                self.start(move |wake| {
                    scripts.into_iter().try_for_each(|steps| {
                        script::run(listener.accept().map_err(|e| e.to_string())?.0, steps, wake)
                    })
                });
                at
            }
            Endpoint::Unix(path) => {
                let listener = UnixListener::bind(path).unwrap();
                self.paths.push(path.clone());
                self.start(move |wake| {
                    scripts.into_iter().try_for_each(|steps| {
                        script::run(listener.accept().map_err(|e| e.to_string())?.0, steps, wake)
                    })
                });
                at.clone()
            }
            Endpoint::Shm(name) => {
                let listener = PairListener::bind(name, PairPolicy::SameUser).unwrap();
                self.start(move |wake| {
                    scripts.into_iter().try_for_each(|steps| {
                        let stream = ShmStream::accept(&listener, &StreamConfig::default());
                        script::run(ShmSocket::new(stream.map_err(|error| error.to_string())?), steps, wake)
                    })
                });
                at.clone()
            }
            Endpoint::Descriptor(_) => panic!("drivers refuse descriptors"),
        }
    }

    pub fn are_done(&mut self) -> bool {
        for result in self.results.1.try_iter() {
            self.running -= 1;
            if let Err(what) = result {
                panic!("a peer's {what}");
            }
        }
        self.running == 0
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for path in &self.paths {
            // One that is gone leaves nothing behind, either.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// An unused address: the kernel's choice of port, or a path of this process alone.
pub fn fresh_kernel(kind: Kind) -> Endpoint {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    match kind {
        Kind::V4 => "127.0.0.1:0".parse().unwrap(),
        Kind::V6 => "[::1]:0".parse().unwrap(),
        Kind::Unix => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("flick-net-{}-{number}.sock", std::process::id());
            Endpoint::Unix(std::env::temp_dir().join(name))
        }
    }
}

/// A kernel driver with threads for peers.
pub struct KernelWorld<D> {
    driver: D,
    peers: Peers,
}

pub type EpollWorld = KernelWorld<EpollDriver>;
pub type UringWorld = KernelWorld<UringDriver>;

pub trait KernelDriver: Driver + Sized {
    fn open(limits: DriverLimits) -> io::Result<(Self, Waker)>;
}

impl KernelDriver for EpollDriver {
    fn open(limits: DriverLimits) -> io::Result<(EpollDriver, Waker)> {
        let driver = EpollDriver::new(limits)?;
        let waker = driver.waker();
        Ok((driver, waker))
    }
}

impl KernelDriver for UringDriver {
    fn open(limits: DriverLimits) -> io::Result<(UringDriver, Waker)> {
        let driver = UringDriver::new(limits)?;
        let waker = driver.waker();
        Ok((driver, waker))
    }
}

impl<D: KernelDriver> World for KernelWorld<D> {
    type Driver = D;

    fn unavailable() -> Option<String> {
        D::open(LIMITS).err().map(|error| error.to_string())
    }

    fn with_limits(limits: DriverLimits) -> KernelWorld<D> {
        let (driver, waker) = D::open(limits).unwrap();
        KernelWorld { driver, peers: Peers::new(waker) }
    }

    fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    fn connect(&mut self, to: &Endpoint, steps: Vec<Step>) {
        self.peers.connect(to, steps);
    }

    fn serve(&mut self, at: &Endpoint, scripts: Vec<Vec<Step>>) -> Endpoint {
        self.peers.serve(at, scripts)
    }

    fn let_peers_end(&mut self, gate: &Gate) {
        gate.open();
        let end = Instant::now() + TEST_TIMEOUT;
        while !self.peers.are_done() {
            assert!(Instant::now() < end, "the peers wait for the driver");
            std::thread::yield_now();
        }
    }

    fn peers_are_done(&mut self) -> bool {
        self.peers.are_done()
    }

    fn fresh(&self, kind: Kind) -> Endpoint {
        fresh_kernel(kind)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }
}

/// Shared memory beside a kernel driver, with threads for peers that use the client library.
pub struct ShmWorld<const IS_URING: bool> {
    driver: AnyDriver,
    peers: Peers,
}

impl<const IS_URING: bool> ShmWorld<IS_URING> {
    fn open(limits: DriverLimits) -> io::Result<AnyDriver> {
        let limits = DriverLimits { shm_conns_max: limits.conns_max, ..limits };
        AnyDriver::open(if IS_URING { IoKind::Uring } else { IoKind::Epoll }, limits)
    }
}

impl<const IS_URING: bool> World for ShmWorld<IS_URING> {
    type Driver = AnyDriver;

    fn unavailable() -> Option<String> {
        Self::open(LIMITS).err().map(|error| error.to_string())
    }

    fn with_limits(limits: DriverLimits) -> Self {
        let driver = Self::open(limits).unwrap();
        let peers = Peers::new(driver.waker());
        ShmWorld { driver, peers }
    }

    fn driver(&mut self) -> &mut AnyDriver {
        &mut self.driver
    }

    fn connect(&mut self, to: &Endpoint, steps: Vec<Step>) {
        self.peers.connect(to, steps);
    }

    fn serve(&mut self, at: &Endpoint, scripts: Vec<Vec<Step>>) -> Endpoint {
        self.peers.serve(at, scripts)
    }

    fn peers_are_done(&mut self) -> bool {
        self.peers.are_done()
    }

    fn fresh(&self, _kind: Kind) -> Endpoint {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Endpoint::Shm(format!("flick-net-{}-{number}", std::process::id()))
    }

    fn unread_bytes(&self) -> usize {
        512 << 10
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }
}
