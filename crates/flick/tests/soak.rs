//! A soak: three services in one process under load, while programs are reloaded, backends killed and started again,
//! and clients misbehave, in an order that is drawn from a seed. No error without a
//! cause, no reply to another client, no growth.
//!
//! `FLICK_SOAK_SECONDS=1800` makes it half an hour; `FLICK_SEED` chooses the order.

mod common;

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::http::{Backend, echoed, exchange};
use common::lateness::Lateness;
use common::peers::{self, Memcached};
use common::process::held;
use common::service::Service;
use common::{Scratch, wait};
use flick_load::load::{self, LoadConfig, LoadRun, MemcachedProtocol, ValueSize};

/// Duration of an ordinary run, in seconds.
const SECONDS: u64 = 12;
/// Requests a second of each of the two loads of memcached clients.
const RATE_PER_S: f64 = 1_500.0;
/// Clients of the HTTP balancer, each with a connection of its own.
const HTTP_CLIENTS: usize = 4;
/// After a backend is back, requests for it may fail for this long: flick reconnects with a backoff.
const AFTERMATH: Duration = Duration::from_millis(2_500);
/// Growth of resident memory that is none: allocators keep what they had once.
const GROWTH_KIB_MAX: u64 = 16 * 1024;
/// Descriptors that may be open beyond those after the start: clients that misbehave come and go.
const DESCRIPTORS_MORE_MAX: usize = 40;

/// Events that are printed with a failure.
const DIARY_LINES: usize = 12;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Times at which the HTTP backend was down, which explain failures.
#[derive(Default)]
struct Outages(Mutex<Vec<(Instant, Option<Instant>)>>);

impl Outages {
    fn begin(&self) {
        self.0.lock().expect("no holder panics").push((Instant::now(), None));
    }

    fn end(&self) {
        if let Some(last) = self.0.lock().expect("no holder panics").last_mut() {
            last.1 = Some(Instant::now());
        }
    }

    /// Whether something between two moments may have failed for it.
    fn explains(&self, from: Instant, to: Instant) -> bool {
        let outages = self.0.lock().expect("no holder panics");
        outages.iter().any(|(begin, end)| *begin <= to && end.is_none_or(|end| from <= end + AFTERMATH))
    }
}

/// Clients of the balancer, and their first unexplained error.
struct HttpLoad {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
    wrong: Arc<Mutex<Option<String>>>,
}

impl HttpLoad {
    fn start(address: SocketAddr, outages: &Arc<Outages>) -> Self {
        let (stop, served, failed) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let wrong = Arc::<Mutex<Option<String>>>::default();
        let client = |number: usize| {
            let (stop, outages) = (Arc::clone(&stop), Arc::clone(outages));
            let (counts, wrong) = ((Arc::clone(&served), Arc::clone(&failed)), Arc::clone(&wrong));
            std::thread::spawn(move || {
                if let Err(what) = ask(address, number, &stop, &outages, (&counts.0, &counts.1)) {
                    wrong.lock().expect("no holder panics").get_or_insert(what);
                }
            })
        };
        let threads = (0..HTTP_CLIENTS).map(client).collect();
        Self { stop, served, failed, threads, wrong }
    }

    /// The first unexplained error of a client.
    fn wrong(&self) -> Option<String> {
        self.wrong.lock().expect("no holder panics").clone()
    }

    fn end(mut self) -> (u64, u64) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client does not panic");
        }
        assert_eq!(self.wrong(), None);
        (self.served.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

/// One client: sends on one connection, and reconnects only if a failure explains why it was closed.
fn ask(
    address: SocketAddr,
    number: usize,
    stop: &AtomicBool,
    outages: &Outages,
    (served, failed): (&AtomicU64, &AtomicU64),
) -> Result<(), String> {
    let mut stream = common::client::connect(address);
    let mut count = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        count += 1;
        let target = format!("/{number}/{count}");
        let from = Instant::now();
        let got = exchange(&mut stream, &target);
        match got {
            Ok((200, body)) if body == target.as_bytes() => _ = served.fetch_add(1, Ordering::SeqCst),
            Ok((200, body)) => {
                return Err(format!("{target} was answered with {}", String::from_utf8_lossy(&body)));
            }
            other if outages.explains(from, Instant::now()) => {
                failed.fetch_add(1, Ordering::SeqCst);
                if other.is_err() {
                    stream = common::client::connect(address);
                }
            }
            other => {
                return Err(format!(
                    "{target}: {other:?} after {:?}, and no backend was away",
                    from.elapsed()
                ));
            }
        }
        // A pace that leaves the machine to the others.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn memcached_load(addr: SocketAddr, protocol: MemcachedProtocol, seed: u64) -> LoadRun {
    let config = LoadConfig {
        protocol,
        connections: 24,
        depth: 4,
        keys: 2_000,
        value: ValueSize::Between(0, 3_000),
        get_ratio: 0.8,
        rate_per_s: Some(RATE_PER_S),
        seed,
        ..LoadConfig::new(addr)
    };
    load::start(config).expect("the load starts")
}

/// A client that says nonsense, half of something, or nothing, and leaves.
fn misbehave(random: &mut Random, addresses: &[SocketAddr]) {
    let address = addresses[random.below(addresses.len() as u64) as usize];
    let mut stream = common::client::connect(address);
    let said: &[u8] = match random.below(4) {
        0 => b"\x00\xff nonsense of no protocol\r\n\r\n",
        1 => b"GET / HTTP/1.1\r\nHost",
        2 => b"\x80\x01\x00\x05\x08\x00\x00\x00\x00\x00\x00\x12",
        _ => b"",
    };
    // It may be rejected before it has sent everything.
    let _ = stream.write_all(said);
}

/// The last events, printed with a failure.
struct Diary {
    begun: Instant,
    lines: VecDeque<String>,
    lateness: Lateness,
}

impl Diary {
    fn note(&mut self, what: &str, from: Instant) {
        if self.lines.len() == DIARY_LINES {
            self.lines.pop_front();
        }
        let late = self.lateness.worst_since();
        self.lines.push_back(format!(
            "{:?} to {:?}: {what}; a thread was woken {late:?} late",
            from - self.begun,
            self.begun.elapsed()
        ));
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("  {line}\n")).collect()
    }
}

/// Everything that runs beside the service.
struct Scene {
    http: SocketAddr,
    echo: Option<Backend>,
    memcacheds: Vec<Option<Memcached>>,
    backends: Vec<SocketAddr>,
    outages: Arc<Outages>,
    program: PathBuf,
    versions: u64,
    kills: u64,
}

impl Scene {
    /// Something happens; what it was.
    fn event(&mut self, random: &mut Random, service: &Service, addresses: &[SocketAddr]) -> &'static str {
        match random.below(6) {
            0 | 1 => {
                let text = std::fs::read_to_string(common::root().join(BALANCER)).expect("an example");
                self.versions += 1;
                let text = format!("{text}\n# Version {}.\n", self.versions);
                std::fs::write(&self.program, text).expect("the directory can be written");
                service.signal("HUP");
                "a reload"
            }
            2 => {
                let which = random.below(self.memcacheds.len() as u64) as usize;
                self.memcacheds[which].take().expect("it was started again").kill();
                let address = self.backends[which];
                let again = wait::until("its port to be free", || Memcached::start_at(address));
                self.memcacheds[which] = Some(again);
                self.kills += 1;
                "a memcached was killed and is back"
            }
            3 => {
                self.outages.begin();
                self.echo.take().expect("it was started again").stop();
                std::thread::sleep(Duration::from_millis(random.below(300)));
                self.echo =
                    Some(wait::until("its port to be free", || Backend::start_at(self.http, echoed, 0)));
                self.outages.end();
                "the balancer's backend was away"
            }
            _ => {
                (0..5).for_each(|_| misbehave(random, addresses));
                "clients misbehaved"
            }
        }
    }
}

const BALANCER: &str = "examples/http_balancer/round_robin.flick";

/// The settings of three services; the balancer's program is one that changes.
fn settings(
    scratch: &Scratch,
    addresses: &[SocketAddr],
    http: SocketAddr,
    backends: &[SocketAddr],
) -> PathBuf {
    let root = common::root();
    let list: Vec<String> = backends.iter().map(|backend| format!("\"{backend}\"")).collect();
    let text = format!(
        "workers = 2\ndrain_deadline = \"5s\"\n\n\
         [[service]]\nname = \"balancer\"\nprogram = \"{}\"\nlisten = {{ client = \"{}\" }}\n\
         connect = {{ backends = [\"{http}\"] }}\n\n\
         [[service]]\nname = \"proxy\"\nprogram = \"{}\"\nlisten = {{ client = \"{}\" }}\nconnect = {{ backends = [{}] }}\n\n\
         [[service]]\nname = \"store\"\nprogram = \"{}\"\nlisten = {{ client = \"{}\" }}\n",
        scratch.path().join("balancer.flick").display(),
        addresses[0],
        root.join(common::PROXY).display(),
        addresses[1],
        list.join(", "),
        root.join("examples/key_value_server/key_value_server.flick").display(),
        addresses[2],
    );
    scratch.write("flick.toml", &text)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn soak_with_reloads_and_restarts_has_no_leaks_and_no_unexplained_errors() {
    let time = Duration::from_secs(number("FLICK_SOAK_SECONDS", SECONDS));
    let seed = number("FLICK_SEED", 1);
    println!("FLICK_SEED={seed}");
    let mut random = Random(seed);
    let scratch = Scratch::new("soak");
    let memcacheds: Vec<_> = Memcached::several(3).into_iter().map(Some).collect();
    let backends: Vec<_> = memcacheds.iter().flatten().map(|one| one.address).collect();
    let http = peers::free_address();
    let addresses: Vec<_> = (0..3).map(|_| peers::free_address()).collect();
    let program = scratch.write(
        "balancer.flick",
        &std::fs::read_to_string(common::root().join(BALANCER)).expect("an example"),
    );
    let config = settings(&scratch, &addresses, http, &backends);
    let echo = wait::until("a port", || Backend::start_at(http, echoed, 0));
    let outages = Arc::<Outages>::default();
    let mut scene =
        Scene { http, echo: Some(echo), memcacheds, backends, outages, program, versions: 0, kills: 0 };
    let service = Service::start(&["run", "--config", &config.display().to_string()]);
    for address in &addresses {
        wait::until("every service to listen", || TcpStream::connect(address).ok());
    }
    let proxy = memcached_load(addresses[1], MemcachedProtocol::Binary, seed);
    let store = memcached_load(addresses[2], MemcachedProtocol::Text, seed + 1);
    let web = HttpLoad::start(addresses[0], &scene.outages);
    let (begun, mut warm, mut most) = (Instant::now(), (0, 0), (0, 0));
    let mut printed = Instant::now();
    let mut diary = Diary { begun, lines: VecDeque::new(), lateness: Lateness::watch() };
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(100 + random.below(700)));
        let from = Instant::now();
        let what = scene.event(&mut random, &service, &addresses);
        diary.note(what, from);
        if let Some(wrong) = web.wrong() {
            panic!("after {:?}: {wrong}\n{}", begun.elapsed(), diary.text());
        }
        let now = held(service.pid());
        // A third of the time for everything to have been used once; of the other two, the peaks are compared: how much
        // there is swings with the generations that are there at a time.
        let elapsed = begun.elapsed();
        if elapsed > time / 3 {
            let peak = if elapsed > time * 2 / 3 { &mut most } else { &mut warm };
            *peak = (now.0.max(peak.0), now.1.max(peak.1));
        }
        if printed.elapsed() > Duration::from_secs(30) {
            printed = Instant::now();
            println!(
                "{:?}: {} KiB, {} descriptors, {} reloads",
                begun.elapsed(),
                now.0,
                now.1,
                scene.versions
            );
        }
    }
    let (served, failed) = web.end();
    [&proxy, &store].into_iter().for_each(LoadRun::stop);
    let (proxy, store) = (proxy.wait(), store.wait());
    println!(
        "{} reloads, {} kills; balancer {served} served, {failed} failed with their backend; proxy {} and {} errors; store {}; {warm:?} became {most:?}",
        scene.versions, scene.kills, proxy.counts.replies, proxy.counts.errors, store.counts.replies,
    );
    assert!(served > 0 && proxy.counts.replies > 0 && store.counts.replies > 0, "the test does something");
    for (name, report) in [("proxy", &proxy), ("store", &store)] {
        let counts = &report.counts;
        assert_eq!((counts.wrong, counts.lost, counts.disconnects), (0, 0, 0), "{name}: {report:?}");
    }
    assert_eq!(store.counts.errors, 0, "nothing of the store was killed: {store:?}");
    assert!(proxy.counts.errors == 0 || scene.kills > 0, "no backend was killed: {proxy:?}");
    let log = service.drained();
    assert!(most.0 <= warm.0 + GROWTH_KIB_MAX, "{} KiB have become {} KiB", warm.0, most.0);
    assert!(most.1 <= warm.1 + DESCRIPTORS_MORE_MAX, "{} descriptors have become {}", warm.1, most.1);
    assert!(!log.contains("panicked"), "{log}");
}
