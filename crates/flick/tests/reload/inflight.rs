//! Work in flight during a reload: a body, a tunnel, an expected reply, a suspended rule. Each ends in the generation
//! that began it, at the latest at the timeout of old generations.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

use super::common::{client, wait};
use super::load::{get, reply};
use super::{Changing, balancer, connect};

/// A server whose replies wait until the test lets them go, and which takes bodies and tunnels.
pub struct Origin {
    pub address: SocketAddr,
    /// Lets one reply for `/late` go.
    pub go: Sender<()>,
    /// Says each request for `/late` that has come.
    asked: Receiver<()>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let ((go, gone), (asks, asked)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            let gone = std::sync::Arc::new(std::sync::Mutex::new(gone));
            for stream in listener.incoming().flatten() {
                let (asks, gone) = (asks.clone(), std::sync::Arc::clone(&gone));
                std::thread::spawn(move || serve(stream, &asks, &gone));
            }
        });
        Self { address, go, asked }
    }

    /// Sends a request for `/late`, and `ahead` behind it, and waits until the server has it.
    pub fn ask_late(&self, stream: &mut TcpStream, ahead: &str) {
        let requests = format!("GET /late HTTP/1.1\r\nHost: here\r\n\r\n{ahead}");
        stream.write_all(requests.as_bytes()).expect("the service reads");
        self.asked.recv_timeout(wait::WAIT_MAX).expect("the request comes");
    }
}

/// Serves one connection. Who has gone needs no answer, so that errors end it.
fn serve(mut stream: TcpStream, asks: &Sender<()>, gone: &std::sync::Mutex<Receiver<()>>) -> Option<()> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
                _ => return None,
            }
            continue;
        };
        let head: Vec<u8> = bytes.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = std::mem::take(&mut bytes);
        while body.len() < length.unwrap_or(0) {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => body.extend_from_slice(&piece[..length]),
                _ => return None,
            }
        }
        if head.contains("upgrade: echo") {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(switch.as_bytes()).ok()?;
            stream.write_all(&body).ok()?;
            return std::io::copy(&mut stream.try_clone().ok()?, &mut stream).ok().map(|_| ());
        }
        if head.starts_with("get /late ") {
            asks.send(()).ok()?;
            gone.lock().ok()?.recv().ok()?;
        }
        let text = format!("{} bytes", body.len());
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// A program before `origin`, reloaded to version 1 once `begin` has begun something.
fn reloaded(
    test: &str,
    origin: &Origin,
    extra: &[&str],
    program: fn(usize) -> String,
    begin: impl FnOnce(&mut TcpStream),
) -> (Changing, TcpStream) {
    let args = [&["--workers", "1"], extra].concat();
    let changing = Changing::start_before(test, origin.address, &program(0), &args);
    let mut stream = connect(changing.address());
    assert_eq!(get(&mut stream, "/version"), Ok("version 0".to_owned()));
    begin(&mut stream);
    changing.write(&program(1));
    wait::until("the reload", || (changing.figure("flick_config_generation") == 2).then_some(()));
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 1".to_owned()), "a new client");
    (changing, stream)
}

/// The client has changed hands: the next request is the new generation's, and the older one ends.
fn check_handed_over(changing: Changing, mut stream: TcpStream) {
    wait::until("the client to change hands", || {
        (get(&mut stream, "/version").expect("it is answered") == "version 1").then_some(())
    });
    wait::until("the older generation to end", || {
        (changing.figure("flick_draining_generations") == 0).then_some(())
    });
    drop(stream);
    changing.service.drained();
}

/// Half of a body; what follows has `BODY / 2` bytes.
const BODY: usize = 60_000;

fn send_half_a_body(stream: &mut TcpStream) {
    let head = format!("POST /page HTTP/1.1\r\nHost: here\r\nContent-Length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the service reads");
    stream.write_all(&vec![b'x'; BODY / 2]).expect("the service reads");
}

#[test]
fn client_with_a_body_in_flight_migrates_after_it() {
    let origin = Origin::start();
    let (changing, mut stream) = reloaded("inflight-body", &origin, &[], balancer, send_half_a_body);
    stream.write_all(&vec![b'x'; BODY / 2]).expect("the service reads on");
    assert_eq!(reply(&mut stream), Ok(format!("{BODY} bytes")));
    check_handed_over(changing, stream);
}

#[test]
fn client_waiting_for_a_reply_migrates_after_it() {
    let origin = Origin::start();
    let (changing, mut stream) =
        reloaded("inflight-reply", &origin, &[], balancer, |stream| origin.ask_late(stream, ""));
    origin.go.send(()).expect("the server runs");
    assert_eq!(reply(&mut stream), Ok("0 bytes".to_owned()));
    check_handed_over(changing, stream);
}

#[test]
fn pipelined_requests_are_answered_in_order_across_a_reload() {
    let origin = Origin::start();
    let (changing, mut stream) = reloaded("inflight-ahead", &origin, &[], balancer, |stream| {
        origin.ask_late(stream, "GET /version HTTP/1.1\r\nHost: here\r\n\r\n");
    });
    origin.go.send(()).expect("the server runs");
    let (mut received, mut piece) = (String::new(), [0; 4096]);
    while !received.contains("version ") {
        let length = stream.read(&mut piece).expect("the replies come");
        assert!(length > 0, "the connection ends after {received:?}");
        received.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    assert!(received.find("0 bytes") < received.find("version "), "{received}");
    check_handed_over(changing, stream);
}

/// A balancer whose rules wait for the server's answer, and say which version they are.
fn asking(version: usize) -> String {
    format!(
        r#"
use http

proc Asker: (request/response client, [response/request] backends)
  | client => asked(client, backends)

fun asked: (-/response client, [response/request] backends, req: request) -> ()
  if req.path == "/version": reply_with("version {version}") => client
  else:
    let answer = ask backends[round_robin(backends)] with req
    reply_with("version {version} received " + str(answer.status)) => client

fun reply_with: (text: string<60>) -> (response)
  response{{status = 200, reason = "OK", headers = [("content-type", "text/plain")], body = raw(text)}}
"#
    )
}

#[test]
fn suspended_rule_ends_in_its_generation() {
    let origin = Origin::start();
    let (changing, mut stream) =
        reloaded("inflight-ask", &origin, &[], asking, |stream| origin.ask_late(stream, ""));
    origin.go.send(()).expect("the server runs");
    assert_eq!(reply(&mut stream), Ok("version 0 received 200".to_owned()));
    check_handed_over(changing, stream);
}

fn open_tunnel(stream: &mut TcpStream) {
    let upgrade = "GET /tunnel HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).expect("the service reads");
    let head = client::read_until(stream, b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    check_tunnel(stream);
}

fn check_tunnel(stream: &mut TcpStream) {
    stream.write_all(b"said into the tunnel").expect("the tunnel is open");
    let mut received = [0; 20];
    stream.read_exact(&mut received).expect("the tunnel is open");
    assert_eq!(&received, b"said into the tunnel");
}

#[test]
fn tunnel_stays_in_its_generation() {
    let origin = Origin::start();
    let (changing, mut stream) = reloaded("inflight-tunnel", &origin, &[], balancer, open_tunnel);
    for version in 2..4 {
        check_tunnel(&mut stream);
        changing.write(&balancer(version));
        wait::until("another reload", || {
            (changing.figure("flick_config_generation") == version as u64 + 1).then_some(())
        });
    }
    check_tunnel(&mut stream);
    wait::until("the generations between to end", || {
        (changing.figure("flick_draining_generations") == 1).then_some(())
    });
    check_tunnel(&mut stream);
    drop(stream);
    wait::until("the older generation to end", || {
        (changing.figure("flick_draining_generations") == 0).then_some(())
    });
    changing.service.drained();
}

#[test]
fn tunnel_and_body_are_closed_at_old_generation_timeout() {
    let origin = Origin::start();
    let deadline = ["--old-generation-timeout", "300ms"];
    let (changing, mut stream) = reloaded("inflight-deadline", &origin, &deadline, balancer, open_tunnel);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the tunnel is closed");
    let mut stalled = connect(changing.address());
    send_half_a_body(&mut stalled);
    // The body has begun once the generation counts the request as its own.
    changing.write(&balancer(2));
    let mut received = Vec::new();
    // Told off or closed: either way it comes to an end by itself.
    let _ = stalled.read_to_end(&mut received);
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1.1 "),
        "{}",
        String::from_utf8_lossy(&received)
    );
    wait::until("the older generations to end", || {
        (changing.figure("flick_draining_generations") == 0).then_some(())
    });
    assert_eq!(get(&mut connect(changing.address()), "/version"), Ok("version 2".to_owned()));
    changing.service.drained();
}
