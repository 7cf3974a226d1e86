//! Thousands of slow clients beside a normal load: the load goes on as if they were not there, in the memory that was
//! allowed.
//! Promises: the same load is measured before, beside and after the crowd; what it costs the service is measured as its
//! own processor time, which others on the machine do not change.
//!
//! `FLICK_CROWD` says how many slow clients there are (400 by default), and each measurement then takes ten seconds.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::client::connect;
use crate::common::http::Backend;
use crate::common::process::{processor_time, resident_kib, want_descriptors};
use crate::common::wait;
use crate::{balancer, get};

/// Slow clients of an ordinary run.
const CROWD: usize = 400;
/// Connections of the normal load.
const LOADERS: usize = 8;
/// Interval at which a slow client writes or reads a little; slowhttptest uses ten seconds. The crowd takes its
/// processor time from the same two cores as everything else.
const BREATH: Duration = Duration::from_secs(5);
/// Memory that the service is allowed, by its certificate; also what it may use.
const MEMORY_KIB: u64 = 256 * 1024;

/// Behaviours of the slow clients, one after the other.
const KINDS: [Kind; 4] = [Kind::Head, Kind::Body, Kind::Reader, Kind::Silent];

/// Behaviour of a slow client.
#[derive(Clone, Copy)]
enum Kind {
    Head,
    Body,
    Reader,
    Silent,
}

struct Slow {
    stream: TcpStream,
    kind: Kind,
}

impl Slow {
    /// A head without an end, a body that trickles, a reply that is hardly read, or nothing at all.
    fn new(address: SocketAddr, number: usize) -> Self {
        let mut stream = connect(address);
        let kind = KINDS[number % KINDS.len()];
        let first: &[u8] = match kind {
            Kind::Head => b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            Kind::Body => b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n",
            Kind::Reader => b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
            Kind::Silent => b"",
        };
        stream.write_all(first).expect("it was accepted a moment ago");
        stream.set_nonblocking(true).expect("a connection of ours");
        Self { stream, kind }
    }

    /// Says or reads a little; `false`: it was sent away.
    fn breathe(&mut self) -> bool {
        let outcome = match self.kind {
            Kind::Head | Kind::Body => self.stream.write(b"a"),
            Kind::Reader => self.stream.read(&mut [0; 5]),
            Kind::Silent => self.stream.read(&mut [0]),
        };
        match outcome {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// All slow clients, kept going by one thread.
struct Crowd {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, usize)>,
}

impl Crowd {
    /// They come one after another: N connects at once would overflow the listen backlog of the backend, and it would
    /// count as down.
    fn connect_all(address: SocketAddr, count: usize, backend: &Backend) -> Self {
        let mut slow = Vec::with_capacity(count);
        for number in 0..count {
            let asked = backend.requests.load(Ordering::SeqCst);
            slow.push(Slow::new(address, number));
            if matches!(slow[number].kind, Kind::Reader) {
                let is_asked = || (backend.requests.load(Ordering::SeqCst) > asked).then_some(());
                wait::until("the backend to be asked", is_asked);
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut breaths, mut at) = (0, 0);
            let begun = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                // As many as are due by now, so that they come evenly.
                let due = (begun.elapsed().as_nanos() * count as u128 / BREATH.as_nanos()) as usize;
                while breaths < due && !slow.is_empty() {
                    at = (at + 1) % slow.len();
                    if !slow[at].breathe() {
                        slow.swap_remove(at);
                    }
                    breaths += 1;
                }
                std::thread::park_timeout(Duration::from_millis(5));
            }
            (breaths, slow.len())
        });
        Self { stop, thread }
    }

    /// Breaths that it took, and how many are still connected.
    fn leave(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("slow clients do not panic")
    }
}

/// Results of the load.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    /// Processor time of the service for one request.
    cost_us: f64,
}

/// Loads the service for so long; every reply is checked.
fn load(address: SocketAddr, pid: u32, length: Duration) -> Figures {
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loaders: Vec<_> = (0..LOADERS)
        .map(|_| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            std::thread::spawn(move || {
                let mut stream = connect(address);
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(get(&mut stream), Some((200, 100)), "the normal load is served");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    wait::until("the load to run", || (served.load(Ordering::Relaxed) > 100).then_some(()));
    let (begun, from, used) = (Instant::now(), served.load(Ordering::Relaxed), processor_time(pid));
    std::thread::park_timeout(length);
    let (took, count) = (begun.elapsed().as_secs_f64(), served.load(Ordering::Relaxed) - from);
    let used = processor_time(pid).saturating_sub(used);
    stop.store(true, Ordering::Relaxed);
    loaders.into_iter().for_each(|loader| loader.join().expect("every reply is right"));
    Figures { per_second: count as f64 / took, cost_us: used.as_secs_f64() * 1e6 / count.max(1) as f64 }
}

fn page(target: &str, size: usize) -> Vec<u8> {
    vec![b'x'; if target == "/long" { 30_000 } else { size }]
}

#[test]
fn slow_clients_do_not_reduce_the_throughput_of_others() {
    let asked = std::env::var("FLICK_CROWD").ok().and_then(|text| text.parse::<usize>().ok());
    let (count, length) = (asked.unwrap_or(CROWD), Duration::from_secs(if asked.is_some() { 10 } else { 1 }));
    want_descriptors(count as u64 + 1_000);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_at(any, page, 100).expect("port 0 is free");
    let sessions = (count + 500).to_string();
    let limits = [
        "--max-memory",
        "256MiB",
        "--buffer-memory",
        "128MiB",
        "--max-state-memory",
        "16MiB",
        "--max-inflight-requests",
        "32768",
    ];
    let more = ["--max-connections", &sessions, "--client-request-timeout", "300s"];
    let service = balancer(backend.address, &[limits.as_slice(), more.as_slice()].concat());
    let before = load(service.address, service.pid(), length);
    let crowd = Crowd::connect_all(service.address, count, &backend);
    let beside = load(service.address, service.pid(), length);
    let memory = resident_kib(service.pid());
    let (breaths, left) = crowd.leave();
    let after = load(service.address, service.pid(), length);
    let throughput = beside.per_second / f64::midpoint(before.per_second, after.per_second);
    let cost = beside.cost_us / f64::midpoint(before.cost_us, after.cost_us);
    println!(
        "{left} of {count} slow clients, {breaths} breaths: {:.0} requests/s beside {:.0} and {:.0} without them ({throughput:.2}), \
         {:.1} µs of the service for each beside {:.1} and {:.1} ({cost:.2}), {memory} KiB resident",
        beside.per_second, before.per_second, after.per_second, beside.cost_us, before.cost_us, after.cost_us,
    );
    // The figure means little on a busy machine: it is checked on request only.
    let least = if asked.is_some() { 0.9 } else { 0.1 };
    assert!(throughput >= least, "{throughput:.2} of the throughput is left");
    if asked.is_some() {
        assert!(cost <= 1.25, "a request costs {cost:.2} of what it costs without slow clients");
    }
    assert!(memory <= MEMORY_KIB, "{memory} KiB, and {MEMORY_KIB} were allowed");
    assert!(left >= count * 9 / 10, "only {left} of {count} slow clients were there to the end");
    service.drained();
}
