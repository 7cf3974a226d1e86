//! Backends that fail under a running service: who else gets how many requests, what is seen of it, and what a reload
//! still knows.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::http::{Backend, exchange, get, numbered, reply};
use common::peers::free_address;
use common::service::{Service, seen};
use common::{Scratch, client, wait};

/// The balancer that gives each backend its turn.
const BALANCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/http_balancer/round_robin.flick");

/// Response of a bad backend to a request, before it closes.
const NOTHING: &[u8] = b"";
const FAILED: &[u8] = b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n";

/// A backend that reads one request of each connection, says this, and closes.
struct Bad {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Bad {
    fn start(says: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let requests = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().expect("a descriptor is free")).lines();
                if lines.by_ref().map_while(Result::ok).any(|line| line.is_empty()) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    // Who has gone does not hear it.
                    let _ = stream.write_all(says);
                }
            }
        });
        Self { address, requests }
    }
}

fn good() -> Backend {
    // Another process may take a free port before the backend does.
    let started = (0..20).find_map(|_| Backend::start_at(free_address(), numbered, 7));
    started.expect("one of the ports is free")
}

/// Runs the balancer with one worker before these.
fn balancer(backends: &[SocketAddr], extra: &[&str]) -> Service {
    let list: Vec<String> = backends.iter().map(ToString::to_string).collect();
    let connect = format!("backends={}", list.join(","));
    let fixed = ["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", &connect];
    Service::start(&[&fixed[..], &["--admin", "0", "--workers", "1"], extra].concat())
}

/// A figure of one backend.
fn figure(service: &Service, name: &str, backend: SocketAddr) -> u64 {
    let (_, text) = seen(service.admin_address(), "/metrics");
    let is_it = |line: &&str| line.starts_with(name) && line.contains(&backend.to_string());
    let value = text.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} of {backend} in\n{text}"))
}

fn is_up(service: &Service, backend: SocketAddr) {
    wait::until("a backend to be up", || (figure(service, "flick_backend_up{", backend) == 1).then_some(()));
}

/// Reloads it for the first time.
fn reload(service: &Service) {
    service.signal("HUP");
    wait::until("the reload", || {
        seen(service.admin_address(), "/metrics")
            .1
            .contains("flick_config_reloads_total{result=\"success\"} 1")
            .then_some(())
    });
}

/// The statuses of N requests, one after the other.
fn statuses(stream: &mut TcpStream, count: usize) -> Vec<u16> {
    (0..count).map(|_| exchange(stream, "/").expect("each is answered").0).collect()
}

#[test]
fn round_robin_after_a_retry_skips_the_failed_backend() {
    const REQUESTS: usize = 40;
    for budget in [
        ["--retry-budget", "0%", "--retry-min-per-second", "0"],
        ["--retry-budget", "100%", "--retry-min-per-second", "50"],
    ] {
        let (good, bad) = (good(), Bad::start(NOTHING));
        let never_ejects = [&budget[..], &["--outlier-consecutive-failures", "0"]].concat();
        let service = balancer(&[good.address, bad.address], &never_ejects);
        [good.address, bad.address].iter().for_each(|backend| is_up(&service, *backend));
        let seen = statuses(&mut client::connect(service.address), REQUESTS);
        let failed = seen.iter().filter(|status| **status == 502).count();
        let tried = bad.requests.load(Ordering::SeqCst) as usize;
        // The first one goes to it once more: the connection that was there at the start was idle.
        assert_eq!(tried, REQUESTS / 2 + 1, "{budget:?}: every other request is its: {seen:?}");
        let may_fail = if budget[1] == "0%" { REQUESTS / 2 } else { 0 };
        assert_eq!(failed, may_fail, "{budget:?}: {seen:?}");
        let failures = figure(&service, "flick_backend_errors_total{", bad.address);
        assert_eq!(failures as usize, REQUESTS / 2, "failures count, sent to another one or not");
        let log = service.drained();
        assert!(log.contains("backend ended a connection before its reply was whole"), "{log}");
    }
}

/// A backend that answers, but for requests for `/held`; from some time on it closes instead.
struct Moody {
    address: SocketAddr,
    closes: Arc<AtomicBool>,
    /// Requests that are held, each with its connection.
    held: Arc<Mutex<Vec<TcpStream>>>,
}

const FINE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

impl Moody {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (closes, held) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (closing, holds) = (Arc::clone(&closes), Arc::clone(&held));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (closing, holds) = (Arc::clone(&closing), Arc::clone(&holds));
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor is free")).lines();
                    while let Some(Ok(first)) = lines.next() {
                        let _ = lines.by_ref().map_while(Result::ok).find(String::is_empty);
                        if closing.load(Ordering::SeqCst) {
                            return;
                        }
                        if first.contains("/held") {
                            let clone = stream.try_clone().expect("a descriptor is free");
                            holds.lock().expect("no panic").push(clone);
                        } else if stream.write_all(FINE).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, closes, held }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.held.lock().expect("no panic")
    }
}

/// Two backends with two connections each, and a budget of one retry a second. `held` requests wait at one
/// backend; the other fails the next one, which the first cannot take.
fn with_busy_backend(held: usize, extra: &[&str]) -> (Service, Moody, Moody) {
    let (busy, fails) = (Moody::start(), Moody::start());
    let fixed = ["--max-connections-per-backend", "1", "--outlier-consecutive-failures", "0"];
    let budget = ["--retry-budget", "0%", "--retry-min-per-second", "1"];
    let service = balancer(&[busy.address, fails.address], &[&fixed[..], &budget, extra].concat());
    [busy.address, fails.address].iter().for_each(|backend| is_up(&service, *backend));
    // Until the other one has had its turn.
    while figure(&service, "flick_backend_requests_total{", fails.address) == 0 {
        assert_eq!(statuses(&mut client::connect(service.address), 1), [200]);
    }
    let mut clients: Vec<TcpStream> = (0..held).map(|_| client::connect(service.address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        if number > 0 {
            assert_eq!(
                statuses(&mut client::connect(service.address), 1),
                [200],
                "the turn of the other one"
            );
        }
        client.write_all(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the service reads");
        wait::until("a held request", || (busy.held().len() > number).then_some(()));
    }
    fails.closes.store(true, Ordering::SeqCst);
    assert_eq!(statuses(&mut client::connect(service.address), 1), [502], "none can take it");
    busy.held().drain(..).for_each(|mut held| held.write_all(FINE).expect("the service reads"));
    clients.iter_mut().for_each(|client| assert_eq!(reply(client).expect("a reply").0, 200));
    (service, busy, fails)
}

/// No request was sent again, and the next ones were not either.
#[test]
fn retry_that_found_no_connection_used_up_the_budget() {
    let (service, _busy, fails) = with_busy_backend(2, &[]);
    let has_failed_again = || figure(&service, "flick_backend_errors_total{", fails.address) == 2;
    while !has_failed_again() {
        assert_eq!(statuses(&mut client::connect(service.address), 1), [200]);
    }
    let (_, text) = seen(service.admin_address(), "/metrics");
    let denied = text.lines().find(|line| line.starts_with("flick_retries_denied_total"));
    assert!(denied.is_some_and(|line| line.ends_with(" 0")), "{denied:?}");
    service.drained();
}

#[test]
fn backend_that_was_only_considered_for_a_retry_had_rejected_a_request() {
    let (service, busy, _fails) = with_busy_backend(1, &["--max-requests-per-backend", "1"]);
    assert_eq!(figure(&service, "flick_backend_requests_rejected_total{", busy.address), 0);
    service.drained();
}

#[test]
fn a_stalled_backend_does_not_cost_every_request_its_timeout() {
    // It accepts, and reads nothing.
    let stalled = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (good, stalled_address) = (good(), stalled.local_addr().expect("a bound socket has an address"));
    let service = balancer(&[good.address, stalled_address], &["--retry-timeout", "200ms"]);
    [good.address, stalled_address].iter().for_each(|backend| is_up(&service, *backend));
    let from = std::time::Instant::now();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let address = service.address;
            std::thread::spawn(move || statuses(&mut client::connect(address), 200))
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), [200; 200]);
    }
    let took = from.elapsed();
    // The default timeout of one response is 60 s.
    assert!(took < std::time::Duration::from_secs(30), "800 requests took {took:?}");
    assert_eq!(figure(&service, "flick_backend_ejected{", stalled_address), 1);
    let log = service.drained();
    assert!(log.contains("backend is ejected: it answers nothing"), "{log}");
}

#[test]
fn service_with_only_ejected_backends_is_not_ready() {
    let bad = Bad::start(NOTHING);
    let ejects = [
        "--outlier-consecutive-failures",
        "3",
        "--outlier-max-ejected",
        "100%",
        "--outlier-ejection-time",
        "600s",
    ];
    let service = balancer(&[bad.address], &ejects);
    is_up(&service, bad.address);
    assert_eq!(seen(service.admin_address(), "/readyz").0, 200);
    assert_eq!(statuses(&mut client::connect(service.address), 3), [502; 3]);
    let (status, why) = seen(service.admin_address(), "/readyz");
    assert_eq!((status, why.as_str()), (503, "Balancer: every backend of `backends` is ejected or down\n"));
    reload(&service);
    // The new worker shows it in its first iteration; no client asks that backend meanwhile.
    wait::until("the ejection behind a reload", || {
        (figure(&service, "flick_backend_ejected{", bad.address) == 1).then_some(())
    });
    service.drained();
}

#[test]
fn ejected_backend_was_logged_as_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let connect = format!("backends={address}");
    let fixed =
        ["run", common::PROXY, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let ejects = ["--outlier-consecutive-failures", "1", "--outlier-max-ejected", "100%"];
    let lasts = ["--outlier-ejection-time", "600s", "--reconnect-backoff-max", "20ms", "--workers", "1"];
    let service = Service::start(&[&fixed[..], &ejects, &lasts].concat());
    is_up(&service, address);
    let (mut stream, _) = listener.accept().expect("the service connects");
    let mut client = client::connect(service.address);
    // A request for the key `k`.
    let mut request = [0; 25];
    (request[0], request[3], request[11], request[24]) = (0x80, 1, 1, b'k');
    client.write_all(&request).expect("the service reads");
    stream.read_exact(&mut [0; 25]).expect("the request comes");
    drop((stream, listener));
    client.read_exact(&mut [0; 24]).expect("the request is answered");
    wait::until("a refused connection", || {
        let (_, metrics) = seen(service.admin_address(), "/metrics");
        let errors = metrics.lines().find(|line| line.starts_with("flick_backend_connect_errors_total{"));
        errors.is_some_and(|line| !line.ends_with(" 0")).then_some(())
    });
    let _listener = TcpListener::bind(address).expect("the port is free again");
    is_up(&service, address);
    assert_eq!(figure(&service, "flick_backend_ejected{", address), 1);
    drop(client);
    let log = service.drained();
    let expected = "backend accepts connections again, but is still ejected";
    assert!(log.contains(expected) && !log.contains("backend is up"), "{log}");
}

#[test]
fn reload_keeps_ejections() {
    let scratch = Scratch::new("reload-health");
    let (good, fails, closes) = (good(), Bad::start(FAILED), Bad::start(NOTHING));
    // The second time the checks take longer than the test.
    let settings = |every: &str| {
        let list = [good.address, fails.address, closes.address].map(|at| format!("\"{at}\"")).join(", ");
        format!(
            "workers = 1\n[admin]\nlisten = \"0\"\n[[service]]\nprogram = \"{BALANCER}\"\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
             connect = {{ backends = [{list}] }}\n[health]\ncheck_every = \"{every}\"\ncheck_send = \"GET /c HTTP/1.1\\\\r\\\\nHost: c\\\\r\\\\n\\\\r\\\\n\"\n\
             health_check_expect = \"HTTP/1.1 200\"\ncheck_fall = 2\neject_failures = 2\neject_max = \"70%\"\neject_time = \"600s\"\n"
        )
    };
    let file = scratch.write("flick.toml", &settings("20ms"));
    let service = Service::start(&["run", "--config", file.to_str().expect("the path is UTF-8")]);
    for backend in [fails.address, closes.address] {
        wait::until("a backend to be out", || {
            (figure(&service, "flick_backend_ejected{", backend) == 1).then_some(())
        });
    }
    assert_eq!(statuses(&mut client::connect(service.address), 12), [200; 12]);
    scratch.write("flick.toml", &settings("600s"));
    reload(&service);
    assert_eq!(statuses(&mut client::connect(service.address), 12), [200; 12], "behind the reload");
    for backend in [fails.address, closes.address] {
        assert_eq!(figure(&service, "flick_backend_ejected{", backend), 1);
    }
    service.drained();
}

#[test]
fn failing_health_checks_are_shown_with_ignored_ejections() {
    let bad = Bad::start(FAILED);
    let send = "GET /c HTTP/1.1\\r\\nHost: c\\r\\n\\r\\n";
    let checks = [
        "--health-check-interval",
        "20ms",
        "--health-check-send",
        send,
        "--health-check-expect",
        "HTTP/1.1 200",
    ];
    let service = balancer(&[bad.address], &checks);
    wait::until("its checks to fail", || {
        (figure(&service, "flick_backend_health_check_failing{", bad.address) == 1).then_some(())
    });
    assert_eq!(figure(&service, "flick_backend_ejected{", bad.address), 0, "there is no other backend");
    assert_eq!(statuses(&mut client::connect(service.address), 1), [500]);
    service.drained();
}

/// They took the connections that their own replies had freed, and another client waited for seconds.
#[test]
fn clients_that_pipeline_kept_all_connections() {
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 20_000;
    let backend = good();
    let service = balancer(&[backend.address], &["--max-connections-per-backend", "2"]);
    let requests = Arc::new("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(REQUESTS));
    let answered = Arc::new(AtomicU64::new(0));
    let greedy = (0..CLIENTS).flat_map(|_| {
        let mut writes = client::connect(service.address);
        let mut reads = writes.try_clone().expect("a descriptor is free");
        let (requests, answered) = (Arc::clone(&requests), Arc::clone(&answered));
        // Both end with the service.
        let writer = std::thread::spawn(move || drop(writes.write_all(requests.as_bytes())));
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(len @ 1..) = reads.read(&mut piece) {
                let heads = piece[..len].windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
                answered.fetch_add(heads as u64, Ordering::SeqCst);
            }
        });
        [writer, reader]
    });
    let threads: Vec<_> = greedy.collect();
    wait::until("the first replies", || (answered.load(Ordering::SeqCst) > 0).then_some(()));
    assert_eq!(statuses(&mut client::connect(service.address), 20), [200; 20]);
    let all = (CLIENTS * REQUESTS) as u64;
    assert!(answered.load(Ordering::SeqCst) < all, "the other client has waited for all of them");
    drop(service);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends with the service"));
}

/// A program that sends each request to `mirror` and then to its backend.
fn mirroring(mirror: &str) -> String {
    format!(
        "use http\n\nproc Mirrored: (request/response client, response/request backend, {mirror} mirror)\n\
         \x20 | backend => client\n  | client => both(backend, mirror)\n\n\
         fun both: (-/request backend, -/request mirror, req: request) -> ()\n  req => mirror\n  req => backend\n"
    )
}

/// Runs a service with a mirror at that address, and returns it with its backend.
fn mirrored(name: &str, mirror: &str, at: SocketAddr, extra: &[&str]) -> (Service, Backend) {
    let scratch = Scratch::new(name);
    let program = scratch.write("mirrored.flick", &mirroring(mirror)).display().to_string();
    let backend = good();
    let (of_backend, of_mirror) = (format!("backend={}", backend.address), format!("mirror={at}"));
    let fixed = ["run", &program, "--listen", "client=127.0.0.1:0", "--workers", "1", "--admin", "0"];
    let connect = ["--connect", &of_backend, "--connect", &of_mirror, "--max-connections-per-backend", "4"];
    (Service::start(&[&fixed[..], &connect, extra].concat()), backend)
}

/// Asks a service with a mirror at that address, and returns it with the number of the requests at the backend.
fn ask_mirrored(name: &str, mirror: &str, at: SocketAddr, requests: usize, extra: &[&str]) -> (Service, u64) {
    let (service, backend) = mirrored(name, mirror, at, extra);
    let mut stream = client::connect(service.address);
    for number in 0..requests {
        let (status, _) = exchange(&mut stream, "/page").expect("the backend answers");
        assert_eq!(status, 200, "request {number}");
    }
    (service, backend.requests.load(Ordering::SeqCst))
}

/// Copies, among others, that a service has dropped.
fn messages_dropped(service: &Service) -> u64 {
    let (_, metrics) = seen(service.admin_address(), "/metrics");
    let dropped = metrics.lines().find(|line| line.starts_with("flick_messages_dropped_total"));
    let dropped = dropped.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    dropped.unwrap_or_else(|| panic!("no flick_messages_dropped_total in\n{metrics}"))
}

/// A mirror that accepts and says nothing took all its connections; then each request waited for one.
#[test]
fn silent_mirror_stopped_its_clients() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = silent.local_addr().expect("a bound socket has an address");
    let (service, asked) = ask_mirrored("silent_mirror", "response/request", at, 200, &[]);
    assert_eq!(asked, 200);
    let dropped = messages_dropped(&service);
    assert!((100..=200).contains(&dropped), "{dropped}");
}

/// The mirror got the body, the backend nothing, and the client no response.
#[test]
fn body_went_to_the_mirror_instead_of_the_backend() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = silent.local_addr().expect("a bound socket has an address");
    for mirror in ["response/request", "-/request"] {
        let (service, backend) = mirrored("mirrored_body", mirror, at, &[]);
        let mut stream = client::connect(service.address);
        let head = "POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("the service reads");
        stream.write_all(&[b'b'; 100_000]).expect("the service reads");
        let (status, _) = reply(&mut stream).expect("the backend answers");
        assert_eq!((status, backend.requests.load(Ordering::SeqCst)), (200, 1), "{mirror}");
    }
}

/// Its responses were taken for ones that no request asked for, which ended the connection with the copies on it.
#[test]
fn mirror_without_responses_got_half_of_the_copies() {
    let mirror = good();
    let (service, asked) = ask_mirrored("answering_mirror", "-/request", mirror.address, 500, &[]);
    let got = || mirror.requests.load(Ordering::SeqCst);
    wait::until("all copies", || (got() == 500).then_some(()));
    assert_eq!(asked, 500);
    drop(service.drained());
}

/// Headers that fill the buffers of a connection after some requests.
fn long_headers() -> String {
    format!("X-Long: {}\r\n", "l".repeat(4000)).repeat(3)
}

/// The copies in the service's buffers were waited for, and the log said that clients were.
#[test]
fn drain_waited_for_copies_that_a_mirror_did_not_read() {
    let unread = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = unread.local_addr().expect("a bound socket has an address");
    let (service, _) = ask_mirrored("unread_mirror", "-/request", at, 1, &["--shutdown-timeout", "10s"]);
    let mut stream = client::connect(service.address);
    let is_full = |stream: &mut TcpStream| {
        let (status, _) = get(stream, "/page", &long_headers()).expect("the backend answers");
        assert_eq!(status, 200);
        messages_dropped(&service) > 0
    };
    wait::until("copies to be dropped", || is_full(&mut stream).then_some(()));
    drop(stream);
    let log = service.drained();
    assert!(log.contains("drained") && !log.contains("the shutdown timeout passed"), "{log}");
}

/// Runs a program that sends its requests to a sink which does not read, and returns it with the sink.
fn recorded(name: &str, program: &str, extra: &[&str]) -> (Service, TcpListener) {
    let unread = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let sink = format!("sink={}", unread.local_addr().expect("a bound socket has an address"));
    let scratch = Scratch::new(name);
    let program = scratch.write("recorded.flick", program).display().to_string();
    let fixed = ["run", &program, "--listen", "client=127.0.0.1:0", "--connect", &sink, "--workers", "1"];
    (Service::start(&[&fixed[..], &["--shutdown-timeout", "1s"], extra].concat()), unread)
}

/// The service went on until its buffers were used up: 43,083 requests of 12 KB.
#[test]
fn requests_to_an_unread_sink_of_http_filled_the_buffers() {
    let program = "use http\n\nproc Recorded: (request/response client, -/request sink)\n\
                   \x20 | client => record(client, sink)\n\n\
                   fun record: (-/response client, -/request sink, req: request) -> ()\n  req => sink\n\
                   \x20 response{status = 200, reason = \"OK\", headers = [], body = \"\"} => client\n";
    let (service, _sink) = recorded("unread_http_sink", program, &["--max-connections-per-backend", "1"]);
    let mut stream = client::connect(service.address);
    let headers = long_headers();
    let mut ask = || get(&mut stream, "/page", &headers).ok().map(|(status, _)| status);
    let taken =
        std::iter::repeat_with(&mut ask).take_while(|status| *status == Some(200)).take(4_000).count();
    assert!(taken < 4_000, "48 MB wait for the sink");
    drop(stream);
    drop(service.drained());
}

/// It said that clients were closed, of which there were none.
#[test]
fn drain_blamed_clients_for_requests_that_a_backend_did_not_read() {
    let program = "use memcached_text\n\nproc Recorded: (command/reply client, -/command sink)\n\
                   \x20 | client => record(client, sink)\n\n\
                   fun record: (-/reply client, -/command sink, req: command) -> ()\n  req => sink\n\
                   \x20 reply{wire = \"STORED\\r\\n\"} => client\n";
    let (service, _sink) = recorded("unread_sink", program, &[]);
    let mut stream = client::connect(service.address);
    let set = format!("set k 0 0 12000\r\n{}\r\n", "v".repeat(12_000));
    let mut reply = || {
        stream.write_all(set.as_bytes()).expect("the service reads");
        client::read_until(&mut stream, b"\n")
    };
    let refusal = std::iter::repeat_with(&mut reply).find(|reply| reply != b"STORED\r\n");
    assert_eq!(refusal.as_deref(), Some(&b"SERVER_ERROR too busy\r\n"[..]), "it waited for the sink");
    drop(stream);
    let log = service.drained();
    let warning = "dropped what peers had not read: the shutdown timeout passed";
    assert!(log.contains(warning) && !log.contains("closed the remaining clients"), "{log}");
}
