//! `flick tap`: what passes through connections on sockets and on rings, as messages and as packets.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use common::http::{self, Backend};
use common::process::OwnedChild;
use common::service::{Service, seen};
use common::{Scratch, client, flick, peers, root, wait};
use flick_shm::conn::RingRead;

/// A running tap and what it has printed.
struct Tap {
    child: OwnedChild,
    text: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Tap {
    fn start(admin: SocketAddr, arguments: &[&str]) -> Self {
        let mut command = flick();
        command.args(["tap", "--admin", &admin.to_string()]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = OwnedChild(command.spawn().expect("the tool starts"));
        let text = Arc::<Mutex<String>>::default();
        let stdout = child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        let stderr = child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        let readers = [stdout, stderr].into_iter().flatten().map(|stream| {
            let text = Arc::clone(&text);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    text.lock().expect("no panic").push_str(&(line + "\n"));
                }
            })
        });
        let readers = readers.collect();
        Self { child, text, readers }
    }

    fn text(&self) -> String {
        self.text.lock().expect("no panic").clone()
    }

    /// Waits for a line with all of these; fails at once if the tap has ended without one.
    fn until(&mut self, parts: &[&str]) {
        let found = wait::within(wait::WAIT_MAX, || {
            let ended = self.child.try_wait().expect("our own child");
            if ended.is_some() {
                self.readers.drain(..).for_each(|reader| reader.join().expect("no panic"));
            }
            let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
            let has_line = self.text().lines().any(has_all);
            (has_line || ended.is_some()).then_some(has_line)
        });
        assert!(found == Some(true), "{parts:?} are not in a line of\n{}", self.text());
    }

    fn ended(&mut self) -> ExitStatus {
        wait::until("the tap to end", || self.child.try_wait().expect("our own child"))
    }
}

fn balancer(listen: &str, backend: SocketAddr, options: &[&str]) -> Service {
    let program = root().join("examples/http_balancer/round_robin.flick");
    let connect = format!("backends={backend}");
    let program = program.to_str().expect("a path of the repository");
    let args = ["run", program, "--listen", listen, "--connect", &connect, "--workers", "1", "--admin", "0"];
    Service::start(&[&args[..], options].concat())
}

fn origin() -> Backend {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Backend::start_at(any, http::echoed, 0).expect("a free port")
}

/// Requests a page through shared memory.
fn exchange_on_ring(name: &str, target: &str) {
    let mut clients = client::on_ring(name);
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(clients.send(0, request.as_bytes()).ok(), Some(request.len()));
    let (mut events, mut out) = (Vec::with_capacity(4), [0; 1024]);
    wait::until("a reply through the ring", || {
        let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        clients.wait(&mut events, Some(short)).expect("an epoll");
        matches!(clients.receive(0, &mut out), Ok(RingRead::Bytes(_))).then_some(())
    });
    clients.close(0);
}

/// Bytes of the streams in a pcap file, one after the other; panics if a packet is cut.
fn streams(file: &std::path::Path) -> String {
    let mut bytes = Vec::new();
    File::open(file).and_then(|mut file| file.read_to_end(&mut bytes)).expect("the tap has written it");
    let mut rest = &bytes[24..];
    let mut text = String::new();
    while let Some((head, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (packet, after) = after.split_at_checked(length).expect("packets are whole");
        text.push_str(&String::from_utf8_lossy(&packet[40..]));
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes behind the last packet", rest.len());
    text
}

fn check_messages(io: &str) {
    let (backend, scratch) = (origin(), Scratch::new(&format!("tap-messages-{io}")));
    let name = format!("tap-messages-{io}-{}", std::process::id());
    let service = balancer(&format!("client=127.0.0.1:0,shm:{name}"), backend.address, &["--io", io]);
    let packets = scratch.path().join("packets.pcap");
    let mut earlier = client::connect(service.address);
    http::exchange(&mut earlier, "/earlier").expect("a reply");
    let path = packets.to_str().expect("the path is UTF-8");
    let mut tap = Tap::start(service.admin_address(), &["--grammar", "http", "--pcap", path]);
    let own = earlier.local_addr().expect("it is connected").to_string();
    tap.until(&[&own, "client, connection"]);
    http::exchange(&mut earlier, "/on-tcp").expect("a reply");
    tap.until(&["from", &own, "request", "GET /on-tcp HTTP/1.1"]);
    tap.until(&["to", &own, "reply", "HTTP/1.1 200"]);
    exchange_on_ring(&name, "/on-a-ring");
    tap.until(&["from", "shm", "request", "GET /on-a-ring HTTP/1.1"]);
    tap.until(&["shm", "has ended"]);
    peers::signal(tap.child.id(), "INT");
    tap.ended();
    assert!(!tap.text().contains("/earlier"), "{}", tap.text());
    let mode = packets.metadata().expect("the tap has written it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "all could read what clients send");
    let streams = streams(&packets);
    for part in ["GET /on-tcp HTTP/1.1", "GET /on-a-ring HTTP/1.1", "HTTP/1.1 200"] {
        assert!(streams.contains(part), "{streams}");
    }
    // The place of the observer is free again.
    let mut tap = wait::until("another tap to begin", || {
        let tap = Tap::start(service.admin_address(), &["--max-bytes", "1"]);
        wait::within(std::time::Duration::from_secs(1), || tap.text().contains(&own).then_some(()))?;
        Some(tap)
    });
    http::exchange(&mut earlier, "/dumped").expect("a reply");
    tap.until(&["47 45 54 20 2f 64", "GET /dumped HTTP"]);
    assert!(tap.ended().success(), "{}", tap.text());
    drop(earlier);
    service.drained();
    backend.stop();
}

#[test]
fn messages_on_sockets_and_rings_are_shown_epoll() {
    check_messages("epoll");
}

#[test]
fn messages_on_sockets_and_rings_are_shown_io_uring() {
    check_messages("auto");
}

#[test]
fn connection_that_moved_to_shared_memory_is_shown() {
    let backend = origin();
    let upgrades = ["--shm", "auto"];
    let back = balancer("client=127.0.0.1:0", backend.address, &upgrades);
    let front = balancer("client=127.0.0.1:0", back.address, &upgrades);
    let mut asking = client::connect(front.address);
    let id = wait::until("the connection to move", || {
        http::exchange(&mut asking, "/first").expect("a reply");
        let (_, text) = seen(front.admin_address(), "/api/sessions");
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let upstream = &all["backend_connections"][0];
        (upstream["transport"] == "upgraded").then(|| upstream["id"].as_str().map(str::to_owned)).flatten()
    });
    let mut tap = Tap::start(front.admin_address(), &[&id, "--grammar", "http"]);
    tap.until(&[&back.address.to_string(), "backend, connection"]);
    http::exchange(&mut asking, "/moved").expect("a reply");
    tap.until(&["to", "request", "GET /moved HTTP/1.1"]);
    tap.until(&["from", "reply", "HTTP/1.1 200"]);
    drop(asking);
    back.drained();
    // The connection ends with its other side.
    assert!(tap.ended().success(), "{}", tap.text());
    tap.until(&["the connection has ended"]);
    front.drained();
    backend.stop();
}

/// A request for a tap whose response is not read.
fn unread_tap(admin: SocketAddr, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(admin).expect("the admin endpoint listens");
    let request = format!("POST /api/tap HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("the admin endpoint reads");
    stream
}

#[test]
fn tap_that_is_not_read_loses_bytes_and_delays_no_request() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_at(any, |_, _| vec![b'x'; 2_000_000], 0).expect("a free port");
    let service = balancer("client=127.0.0.1:0", backend.address, &[]);
    let mut asking = client::connect(service.address);
    http::exchange(&mut asking, "/").expect("a reply");
    let tap = unread_tap(service.admin_address(), "X-Flick-Ask: 1\r\n");
    let mut lines = BufReader::new(tap).lines().map(|line| line.expect("the tap goes on"));
    let begun = lines.find(|line| line.contains("begin"));
    assert!(begun.is_some_and(|line| line.contains(&asking.local_addr().expect("connected").to_string())));
    // More than the ring and the sockets hold.
    for _ in 0..20 {
        let (status, page) = http::exchange(&mut asking, "/").expect("a reply");
        assert_eq!((status, page.len()), (200, 2_000_000));
    }
    let dropped = lines.find(|line| line.contains("\"kind\":\"dropped\"")).expect("it is shown");
    let dropped: serde_json::Value = serde_json::from_str(&dropped).expect("JSON");
    assert!(dropped["dropped_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{dropped}");
    drop((lines, asking));
    service.drained();
    backend.stop();
}

#[test]
fn tap_ends_when_its_service_is_replaced_and_needs_authority() {
    let backend = origin();
    let service = balancer("client=127.0.0.1:0", backend.address, &[]);
    let admin = service.admin_address();
    let mut refused = String::new();
    unread_tap(admin, "").read_to_string(&mut refused).expect("a response");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let (status, _, error) = common::run(&["tap", "--admin", &admin.to_string(), "0.999.9"]);
    assert!(status == 1 && error.contains("there is no such connection"), "{status} {error}");
    let scratch = Scratch::new("tap-refused");
    let earlier = scratch.write("earlier.pcap", "packets").display().to_string();
    for refused in [["--service", "missing"], ["0.999.9", "--max-bytes=9"]] {
        let args = ["tap", "--admin", &admin.to_string(), "--pcap", &earlier];
        let (status, _, error) = common::run(&[&args[..], &refused].concat());
        assert_eq!(status, 1, "{error}");
        let kept = std::fs::read(&earlier).expect("it is there");
        assert_eq!(kept, b"packets", "a refused tap emptied the file: {error}");
    }
    let mut tap = wait::until("a tap to begin", || {
        let mut tap = Tap::start(admin, &[]);
        // Nothing is shown without a client.
        let mut asking = client::connect(service.address);
        http::exchange(&mut asking, "/").expect("a reply");
        wait::until("the tap to show or end", || {
            (tap.text().contains("client, connection") || tap.child.try_wait().ok()?.is_some()).then_some(())
        });
        tap.text().contains("client, connection").then_some(tap)
    });
    let (status, _, error) = common::run(&["tap", "--admin", &admin.to_string()]);
    assert!(status == 1 && error.contains("has a tap already"), "{status} {error}");
    service.signal("HUP");
    assert!(tap.ended().success(), "{}", tap.text());
    tap.until(&["replaced in a reload"]);
    service.drained();
    backend.stop();
}
