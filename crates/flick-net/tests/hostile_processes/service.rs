//! The service under test: a driver on a thread of its own that echoes, and the peers that check every byte.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, Handle, IoKind, Waker};
use flick_shm::conn::RingRead;
use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest};

pub const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 400,
    output_slices_max: 1 << 16,
    events_max: 256,
    receive_bytes: 16384,
};

/// Output from which on a connection is not received from.
const OUTPUT_HIGH_BYTES: usize = 16384;
/// Longest round trip of a peer that keeps the protocol, on a machine that has a core for it.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// Waits of a round trip for a core, in the service and in the peer: it is up to 25 exchanges.
const WAITS_FOR_CORE: u32 = 50;
/// First byte of a connection whose bytes are checked and counted, not echoed.
pub const SINK: u8 = b'S';
const ECHO: u8 = b'E';

/// End of a connection that was counted.
#[derive(Debug)]
pub struct ConnEnd {
    /// Number that the peer sent behind [`SINK`].
    pub id: u8,
    pub bytes: u64,
    pub has_failed: bool,
    pub at: Instant,
}

#[derive(Debug)]
enum Use {
    New,
    Echo,
    /// `None` until the second byte has come.
    Sink {
        id: Option<u8>,
        bytes: u64,
    },
}

/// Counters of the service's thread.
#[derive(Debug, Default)]
pub struct Counters {
    pub polls: AtomicU64,
    pub conns: AtomicU32,
    pub refused: AtomicU32,
    pub slowest_poll_us: AtomicU64,
}

/// A driver on a thread of its own.
pub struct Service {
    pub shm: String,
    pub tcp: String,
    pub counters: Arc<Counters>,
    pub ends: mpsc::Receiver<ConnEnd>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: JoinHandle<()>,
}

/// The byte at an offset of the stream of a peer.
pub fn byte(id: u8, offset: u64) -> u8 {
    (((offset % 65_521).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).wrapping_add(id)
}

pub fn bytes(id: u8, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| byte(id, at)).collect()
}

/// Returns a name that no other service has.
pub fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("flick-hostile-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Service {
    /// Starts a service; `None` where the kernel has no such driver.
    pub fn start(kind: IoKind) -> Option<Service> {
        if let Err(error) = AnyDriver::open(kind, LIMITS) {
            eprintln!("not tested: {error}");
            return None;
        }
        let (shm, stop) = (fresh_name(), Arc::new(AtomicBool::new(false)));
        let ((started, at), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let counters = Arc::new(Counters::default());
        let of_thread = (shm.clone(), Arc::clone(&stop), Arc::clone(&counters));
        let thread = std::thread::spawn(move || {
            let (shm, stop, counters) = of_thread;
            let mut driver = AnyDriver::open(kind, LIMITS).expect("as above");
            driver.set_watermarks(OUTPUT_HIGH_BYTES, OUTPUT_HIGH_BYTES / 4);
            driver.listen(&Endpoint::Shm(shm)).expect("the name is fresh");
            let tcp = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
            let tcp = driver.local_addr(tcp).expect("it listens").to_string();
            started.send((tcp, driver.waker())).expect("the test waits");
            serve(&mut driver, &stop, &counters, &end);
        });
        let (tcp, waker) = at.recv().expect("the service starts");
        Some(Service { shm, tcp, counters, ends, stop, waker, thread })
    }

    /// Ends the service; panics if it has panicked.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.join().expect("the service does not panic");
    }

    /// Waits until all connections have ended.
    pub fn wait_unused(&self) {
        wait_until("all connections have ended", || self.counters.conns.load(Ordering::Relaxed) == 0);
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "10 seconds later it does not hold that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Buffers for a driver.
pub fn pool() -> Pool {
    Pool::new(PoolConfig { small_count: 64, large_count: 1024, huge_count: 0 })
}

fn serve(driver: &mut AnyDriver, stop: &AtomicBool, counters: &Counters, end: &mpsc::Sender<ConnEnd>) {
    let pool = pool();
    let (mut conns, mut events) = (BTreeMap::<Handle, Use>::new(), Vec::with_capacity(LIMITS.events_max));
    while !stop.load(Ordering::Acquire) {
        let may_wait = driver.poll_timeout(&pool, None) != Some(Duration::ZERO);
        let begun = Instant::now();
        driver.poll(&pool, None, &mut events).expect("the driver polls");
        if !may_wait {
            let poll_us = begun.elapsed().as_micros() as u64;
            counters.slowest_poll_us.fetch_max(poll_us, Ordering::Relaxed);
        }
        counters.polls.fetch_add(1, Ordering::Relaxed);
        for event in events.drain(..) {
            handle(driver, &mut conns, counters, end, event);
        }
        counters.conns.store(conns.len() as u32, Ordering::Relaxed);
    }
}

fn handle(
    driver: &mut AnyDriver,
    conns: &mut BTreeMap<Handle, Use>,
    counters: &Counters,
    end: &mpsc::Sender<ConnEnd>,
    event: DriverEvent,
) {
    let mut ended = |conn, has_failed| {
        if let Some(Use::Sink { id: Some(id), bytes }) = conns.remove(&conn) {
            // The test may be over.
            let _ = end.send(ConnEnd { id, bytes, has_failed, at: Instant::now() });
        }
    };
    match event {
        DriverEvent::Accepted { conn, .. } => {
            conns.insert(conn, Use::New);
            driver.receive(conn, true);
        }
        DriverEvent::AcceptFailed { .. } => {
            counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        DriverEvent::Data { conn, data } => {
            let of_conn = conns.get_mut(&conn).expect("data is of a connection");
            if let Use::New = of_conn {
                let is_sink = data.bytes()[0] == SINK;
                *of_conn = if is_sink { Use::Sink { id: None, bytes: 0 } } else { Use::Echo };
            }
            match of_conn {
                Use::Sink { id, bytes } => take(id, bytes, data.bytes()),
                Use::New | Use::Echo => {
                    driver.send(conn, data);
                    if driver.backlog_bytes(conn) >= OUTPUT_HIGH_BYTES {
                        driver.receive(conn, false);
                    }
                }
            }
        }
        DriverEvent::Drained { conn } => driver.receive(conn, true),
        DriverEvent::Eof { conn } => {
            ended(conn, false);
            driver.close(conn);
        }
        DriverEvent::Failed { conn, .. } => ended(conn, true),
        DriverEvent::Connected { .. } | DriverEvent::Woken => {}
    }
}

/// Checks what a peer has sent to be counted: [`SINK`], its number, its bytes. Peers that break rules have numbers
/// from 128 on and may send anything.
fn take(id: &mut Option<u8>, bytes: &mut u64, mut data: &[u8]) {
    if id.is_none() {
        let from = usize::from(data[0] == SINK);
        let Some((number, rest)) = data[from..].split_first() else { return };
        (*id, data) = (Some(*number), rest);
    }
    let number = id.expect("it was set above");
    if number < 128 {
        let wrong = data.iter().zip(*bytes..).find(|(got, at)| **got != byte(number, *at));
        assert!(wrong.is_none(), "a byte of peer {number} is wrong: {wrong:?}");
    }
    *bytes += data.len() as u64;
}

/// Round trips of a peer.
#[derive(Debug)]
pub struct RoundTrips {
    pub count: u64,
    pub slowest: Duration,
}

/// Peers that keep the protocol, on threads of their own.
pub struct Honest {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<RoundTrips>>,
    /// Returns how long a thread waited for a core: other processes of the machine may take them all.
    load: JoinHandle<Duration>,
}

/// Measures how long a thread that has slept waits for a core at most.
fn measure_load(stop: &AtomicBool) -> Duration {
    const SLEEP: Duration = Duration::from_millis(1);
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        std::thread::sleep(SLEEP);
        longest = longest.max(begun.elapsed().saturating_sub(SLEEP));
    }
    longest
}

impl Honest {
    /// Starts two peers through shared memory, one that sleeps at once and one that polls first, and one on TCP.
    pub fn start(service: &Service) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (id, busy_poll_us) in [(1, 0), (2, 20)] {
            let (name, stop) = (service.shm.clone(), Arc::clone(&stop));
            let config = StreamConfig { busy_poll_us, ..StreamConfig::default() };
            threads.push(std::thread::spawn(move || {
                let stream = ShmStream::connect(&name, &config).expect("the service listens");
                repeat(&stop, ShmPeer { id, offset: 0, stream })
            }));
        }
        let (at, of_tcp) = (service.tcp.clone(), Arc::clone(&stop));
        threads.push(std::thread::spawn(move || {
            let stream = TcpStream::connect(at).expect("the service listens");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a positive timeout");
            repeat(&of_tcp, TcpPeer { id: 3, offset: 0, stream })
        }));
        let of_load = Arc::clone(&stop);
        let load = std::thread::spawn(move || measure_load(&of_load));
        Honest { stop, threads, load }
    }

    /// Ends the peers. They have lost nothing, and none had to wait for long. Returns how long a thread waited for a
    /// core.
    pub fn check(self, what: &str) -> Duration {
        self.stop.store(true, Ordering::Release);
        let load = self.load.join().expect("it only sleeps");
        let slowest_max = ROUND_TRIP_MAX + WAITS_FOR_CORE * load;
        for thread in self.threads {
            let trips = thread.join().expect("a peer that keeps the protocol loses nothing");
            println!("{what}: {trips:?}");
            assert!(trips.count > 0, "{trips:?}");
            assert!(trips.slowest < slowest_max, "{trips:?}, {load:?} without a core");
        }
        load
    }
}

/// A peer that sends bytes and waits for them.
trait EchoPeer {
    fn exchange(&mut self, len: usize);
}

fn repeat(stop: &AtomicBool, mut peer: impl EchoPeer) -> RoundTrips {
    let mut trips = RoundTrips { count: 0, slowest: Duration::ZERO };
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let len = if trips.count % 64 == 63 { 100_000 } else { 1 + (trips.count * 97 % 3000) as usize };
        peer.exchange(len);
        trips.slowest = trips.slowest.max(begun.elapsed());
        trips.count += 1;
        // Some round trips find the service asleep.
        if trips.count.is_multiple_of(16) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    trips
}

/// Returns the bytes of an exchange; the first ones say that they are to be echoed.
fn message(id: u8, offset: &mut u64, len: usize) -> Vec<u8> {
    let mut message = bytes(id, *offset, len);
    if *offset == 0 {
        message[0] = ECHO;
    }
    *offset += len as u64;
    message
}

struct TcpPeer {
    id: u8,
    offset: u64,
    stream: TcpStream,
}

impl EchoPeer for TcpPeer {
    fn exchange(&mut self, len: usize) {
        for len in std::iter::repeat_n(4096, len / 4096).chain([len % 4096]).filter(|len| *len > 0) {
            let message = message(self.id, &mut self.offset, len);
            self.stream.write_all(&message).expect("the service lives");
            let mut echo = vec![0; len];
            self.stream.read_exact(&mut echo).expect("the service lives");
            assert!(echo == message, "the echo on TCP differs");
        }
    }
}

/// A peer through shared memory.
pub struct ShmPeer {
    pub id: u8,
    pub offset: u64,
    pub stream: ShmStream,
}

impl ShmPeer {
    /// Connects a peer.
    pub fn connect(name: &str, id: u8) -> ShmPeer {
        let stream = ShmStream::connect(name, &StreamConfig::default()).expect("the service listens");
        ShmPeer { id, offset: 0, stream }
    }

    /// Sends bytes and waits for their echo.
    pub fn round_trip(&mut self, len: usize) {
        self.exchange(len);
    }
}

impl EchoPeer for ShmPeer {
    fn exchange(&mut self, len: usize) {
        let end = Instant::now() + Duration::from_secs(10);
        let message = message(self.id, &mut self.offset, len);
        let (mut sent, mut got, mut echo) = (0, 0, vec![0; 8192]);
        while got < len {
            assert!(Instant::now() < end, "{got} of {len} bytes came back, {sent} were sent");
            sent += self.stream.send(&message[sent..]).expect("the service lives");
            match self.stream.receive(&mut echo).expect("the service lives") {
                RingRead::Bytes(count) => {
                    assert!(
                        got + count <= len && echo[..count] == message[got..got + count],
                        "the echo differs"
                    );
                    got += count;
                }
                RingRead::Empty if sent < len => {
                    // Either direction may move next.
                    self.stream.wait(StreamInterest::Readable, Some(1)).expect("the service lives");
                }
                RingRead::Empty => {
                    self.stream.wait(StreamInterest::Readable, Some(1000)).expect("the service lives");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
