//! Services that talk through shared memory, of which one is killed or stopped again and again while clients ask: each
//! request gets its own reply whole, an error, or the end of its connection, and a dead process is noticed at once.
//! `FLICK_RELOAD_KILLS` sets how often each kind of service is killed.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use super::common::http::Backend;
use super::common::lateness::Lateness;
use super::common::service::Service;
use super::common::{self, Scratch, http, wait};
use super::shared_memory::stop;
use super::upgraded_connections::await_upgrade;
use super::{balancer, connect};

/// Longest time from a kill to the answer of the fastest kill, beyond what the machine was late meanwhile.
const NOTICED: Duration = Duration::from_millis(50);
/// The same of the slowest one: the process has to run until it is dead, and the service to be scheduled.
const NOTICED_MAX: Duration = Duration::from_secs(1);
/// Clients that ask all the time.
const CLIENTS: usize = 2;
/// Time for which a process is stopped.
const STOPPED: Duration = Duration::from_millis(20);
/// Exchanges that make a connection for each client, and move each to rings.
const WARM_UP: usize = 16;
/// Pause of a client that was refused, or whose connection has ended.
const PAUSE: Duration = Duration::from_millis(1);

fn kills() -> usize {
    std::env::var("FLICK_RELOAD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

/// The page at a target; no two are alike, and none is another's beginning.
fn page(target: &str, _: usize) -> Vec<u8> {
    format!("{target};").repeat(300).into_bytes()
}

/// A service before an origin server, and one that clients reach before it.
struct Chain {
    scratch: Scratch,
    /// The service in front connects to it.
    between: String,
    origin: SocketAddr,
    back: Service,
    front: Service,
}

impl Chain {
    /// `name`: of an address in shared memory; without one, connections begin as TCP.
    fn start(test: &str, name: Option<&str>) -> Self {
        let scratch = Scratch::new(test);
        scratch.write("back.flick", &balancer(0));
        scratch.write("front.flick", &balancer(0));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let origin = Backend::start_at(any, page, 0).expect("a free port").address;
        let between = name.map(|name| format!("shm:{name}"));
        // Connections of other tests begin at 127.0.0.1 and take no port of this address, which is used again.
        let listen = between.clone().unwrap_or_else(|| "127.0.0.2:0".to_owned());
        let back = start(&scratch, "back", &listen, &origin.to_string());
        let between = between.unwrap_or_else(|| back.address.to_string());
        let front = start(&scratch, "front", &any.to_string(), &between);
        Self { scratch, between, origin, back, front }
    }

    fn restart_back(&mut self) {
        self.back.gone();
        if let Ok(address) = self.between.parse() {
            wait::until("the port to be free", || is_free(address).then_some(()));
        }
        self.back = start(&self.scratch, "back", &self.between, &self.origin.to_string());
    }

    fn restart_front(&mut self) {
        self.front = start(&self.scratch, "front", "127.0.0.1:0", &self.between);
    }

    /// Asks until both services use rings.
    fn await_rings(&self) {
        if self.between.starts_with("shm:") {
            wait::until("a page", || is_page(self.front.address).then_some(()));
        } else {
            await_upgrade(self.front.address, [self.front.admin_address(), self.back.admin_address()], "/");
        }
    }
}

fn start(scratch: &Scratch, program: &str, listen: &str, to: &str) -> Service {
    let program = scratch.path().join(format!("{program}.flick")).display().to_string();
    let listen = if listen.starts_with("shm:") { format!("127.0.0.1:0,{listen}") } else { listen.to_owned() };
    let (listen, connect) = (format!("client={listen}"), format!("backends={to}"));
    let options = ["--admin", "0", "--shm", "auto", "--workers", "1"];
    Service::start(&[&["run", &program, "--listen", &listen, "--connect", &connect], &options[..]].concat())
}

/// Whether a socket may listen there: what io_uring holds of a killed process is closed later.
fn is_free(address: SocketAddr) -> bool {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).expect("a socket has that option");
    rustix::net::bind(&socket, &address).is_ok()
}

fn is_page(front: SocketAddr) -> bool {
    http::exchange(&mut connect(front), "/").is_ok_and(|(status, body)| status == 200 && body == page("/", 0))
}

/// Replies of clients that ask all the time.
#[derive(Debug, Default)]
struct Replies {
    whole: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
}

/// Clients at work until they are stopped.
struct Clients {
    is_over: Arc<AtomicBool>,
    replies: Arc<Replies>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(at: SocketAddr) -> Self {
        let (is_over, replies) = (Arc::<AtomicBool>::default(), Arc::<Replies>::default());
        let threads = (0..CLIENTS).map(|client| {
            let (is_over, replies) = (Arc::clone(&is_over), Arc::clone(&replies));
            std::thread::spawn(move || ask(at, client, &is_over, &replies))
        });
        Self { threads: threads.collect(), is_over, replies }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("each reply is its own"));
        println!("{:?}", self.replies);
        assert!(self.replies.whole.load(Ordering::Relaxed) > kills() as u64, "that is a load");
    }
}

/// Asks for pages that no other request is for.
fn ask(at: SocketAddr, client: usize, is_over: &AtomicBool, replies: &Replies) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = connect(at);
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let target = format!("/{client}-{number}");
            let count = match http::exchange(&mut stream, &target) {
                Ok((200, body)) => {
                    assert!(body == page(&target, 0), "{target} got {:?}", String::from_utf8_lossy(&body));
                    &replies.whole
                }
                Ok((502 | 503, _)) => &replies.refused,
                Ok(other) => panic!("{target} got {other:?}"),
                Err(error) => {
                    assert!(error.kind() != ErrorKind::InvalidData, "{target}: {error}");
                    assert!(error.kind() != ErrorKind::WouldBlock, "{target} got nothing");
                    &replies.cut
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
            if !std::ptr::eq(count, &replies.whole) {
                std::thread::sleep(PAUSE);
            }
            if std::ptr::eq(count, &replies.cut) {
                break;
            }
        }
    }
}

/// Kills a process with a request in flight, and returns the time until `answered` is, beyond what the machine was
/// late meanwhile.
fn kill(service: &Service, lateness: &Lateness, answered: impl FnOnce()) -> Duration {
    let (begun, _) = (Instant::now(), lateness.worst_since());
    common::peers::signal(service.pid(), "KILL");
    answered();
    begun.elapsed().saturating_sub(lateness.allowance())
}

/// Checks times of all kills of a kind: the best one shows what the service needs, the worst one what the machine adds.
fn check_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{what}: {} kills, {:?} {:?} {:?} {:?}", times.len(), at(0.0), at(0.5), at(0.99), at(1.0));
    assert!(at(0.0) < NOTICED && at(1.0) < NOTICED_MAX, "{what}: noticed after {times:?}");
}

/// Kills and stops the service behind. In every second round it is stopped first, so that a request is in flight for
/// sure.
fn check_back(chain: &mut Chain) {
    let (clients, lateness) = (Clients::start(chain.front.address), Lateness::watch());
    let mut times = Vec::new();
    for round in 0..kills() {
        chain.await_rings();
        let mut client = connect(chain.front.address);
        for _ in 0..WARM_UP {
            let (status, body) = http::exchange(&mut client, "/").expect("an answer");
            assert!(status == 200 && body == page("/", 0), "{status}");
        }
        stop(&chain.back);
        client.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        std::thread::sleep(STOPPED);
        if round % 2 == 1 {
            common::peers::signal(chain.back.pid(), "CONT");
            let (status, body) = http::reply(&mut client).expect("an answer");
            assert!(status == 200 && body == page("/held", 0), "{status}");
            client.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
        }
        times.push(kill(&chain.back, &lateness, || {
            let (status, body) = http::reply(&mut client).expect("an answer");
            let is_whole = round % 2 == 1 && status == 200 && body == page("/held", 0);
            assert!(is_whole || status == 502 || status == 503, "{status}");
        }));
        chain.restart_back();
    }
    chain.await_rings();
    clients.stop();
    check_times("behind", times);
}

/// Kills the service in front, which its clients notice as the end of their connections.
fn check_front(chain: &mut Chain) {
    let (mut times, lateness) = (Vec::new(), Lateness::watch());
    for _ in 0..kills() {
        chain.await_rings();
        let mut client = connect(chain.front.address);
        stop(&chain.front);
        client.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
        times.push(kill(&chain.front, &lateness, || {
            assert!(!matches!(client.read(&mut [0]), Ok(1)), "nothing can answer");
        }));
        chain.front.gone();
        let back = chain.back.admin_address();
        wait::until("the connections of the dead process to end", || {
            let open = ["flick_client_connections", "flick_shm_upgraded_connections"];
            open.iter().all(|name| super::figure(back, name) == 0).then_some(())
        });
        chain.restart_front();
    }
    check_times("in front", times);
}

#[test]
fn killed_process_was_not_noticed_through_an_upgraded_connection() {
    check_back(&mut Chain::start("kills-upgraded", None));
}

#[test]
fn killed_process_was_not_noticed_through_shared_memory() {
    let name = format!("kills-{}", std::process::id());
    check_back(&mut Chain::start("kills-shm", Some(&name)));
}

#[test]
fn killed_process_in_front_left_its_connections_behind() {
    let name = format!("kills-front-{}", std::process::id());
    check_front(&mut Chain::start("kills-front-shm", Some(&name)));
    check_front(&mut Chain::start("kills-front-upgraded", None));
}
