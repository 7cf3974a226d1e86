//! Clients that send one request after another on a connection of their own and know each answer.
//! Promises: another client's data fails the test at once; an error does unless an outage explains it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::common::client::connect;
use super::common::http::exchange;

/// Clients of each service.
const CLIENTS: usize = 4;
/// Pause between two requests, which leaves the machine to the others.
const PACE: Duration = Duration::from_millis(2);
/// After an outage, requests may fail for this long: flick reconnects with a backoff.
const AFTERMATH: Duration = Duration::from_millis(2_500);

/// Times at which something that a service needs was away.
#[derive(Default)]
pub struct Outages(Mutex<Vec<(Instant, Option<Instant>)>>);

impl Outages {
    /// Calls `action`, during which requests may fail.
    pub fn during<T>(&self, action: impl FnOnce() -> T) -> T {
        self.0.lock().expect("no holder panics").push((Instant::now(), None));
        let done = action();
        if let Some(last) = self.0.lock().expect("no holder panics").last_mut() {
            last.1 = Some(Instant::now());
        }
        done
    }

    /// Returns whether a request between two moments may have failed for one.
    fn explain(&self, from: Instant, to: Instant) -> bool {
        let outages = self.0.lock().expect("no holder panics");
        outages.iter().any(|(begin, end)| *begin <= to && end.is_none_or(|end| from <= end + AFTERMATH))
    }
}

/// The request that a client sends.
#[derive(Clone, Copy, Debug)]
pub enum Exchange {
    /// A GET whose backend answers with the target.
    Http,
    /// A GET of the page that every client gets.
    Page,
    /// A SET and a GET of the client's own key, in memcached's text protocol.
    Memcached,
    /// The same for Redis.
    Redis,
}

/// Judgement of an answer.
enum Answer {
    Right,
    Refused(String),
    /// Data that no server owes this client.
    Wrong(String),
}

impl Exchange {
    fn ask(self, stream: &mut TcpStream, client: usize, count: u64) -> io::Result<Answer> {
        let (key, value) = (format!("soak-{client}"), format!("{client}/{count}"));
        match self {
            Self::Http => page(stream, &format!("/{value}"), format!("/{value}").as_bytes()),
            Self::Page => page(stream, "/", b"Hello from flick\n"),
            Self::Memcached => {
                let request = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
                stream.write_all(request.as_bytes())?;
                let stored = line(stream)?;
                let found = line(stream)?;
                if found != format!("VALUE {key} 0 {}", value.len()) {
                    return Ok(Answer::Refused(format!("{stored}, {found}")));
                }
                let got = line(stream)?;
                let end = line(stream)?;
                Ok(judge(stored == "STORED" && end == "END", &got, &value))
            }
            Self::Redis => {
                let set =
                    format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len());
                let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
                stream.write_all((set + &get).as_bytes())?;
                let stored = line(stream)?;
                let found = line(stream)?;
                if found != format!("${}", value.len()) {
                    return Ok(Answer::Refused(format!("{stored}, {found}")));
                }
                let got = line(stream)?;
                Ok(judge(stored == "+OK", &got, &value))
            }
        }
    }
}

/// Judges a value that was set and read again. After an outage it may be an older one of the same client.
fn judge(stored: bool, got: &str, value: &str) -> Answer {
    if stored && got == value {
        return Answer::Right;
    }
    let answer = format!("{got} instead of {value}");
    let own = got.split('/').next() == value.split('/').next();
    if own { Answer::Refused(answer) } else { Answer::Wrong(answer) }
}

fn page(stream: &mut TcpStream, target: &str, expected: &[u8]) -> io::Result<Answer> {
    let (status, body) = exchange(stream, target)?;
    Ok(match status {
        200 if body == expected => Answer::Right,
        200 => Answer::Wrong(String::from_utf8_lossy(&body).into_owned()),
        other => Answer::Refused(other.to_string()),
    })
}

/// Reads a line; without its end.
fn line(stream: &mut TcpStream) -> io::Result<String> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n") {
        match stream.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => bytes.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(bytes.len() - 2);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Counts of the clients of a service.
#[derive(Default)]
struct Counts {
    served: AtomicU64,
    failed: AtomicU64,
    /// The first error that nothing explains.
    unexplained: Mutex<Option<String>>,
}

/// The clients of a service.
pub struct Clients {
    name: &'static str,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts them. Errors of `name` at `address` are explained by `outages` only.
    pub fn start(
        name: &'static str,
        exchange: Exchange,
        address: SocketAddr,
        outages: &Arc<Outages>,
    ) -> Self {
        let (stop, counts) = (Arc::<AtomicBool>::default(), Arc::<Counts>::default());
        let client = |client: usize| {
            let (stop, counts, outages) = (Arc::clone(&stop), Arc::clone(&counts), Arc::clone(outages));
            std::thread::spawn(move || {
                if let Err(error) = run(exchange, address, client, &stop, &outages, &counts) {
                    let first = format!("{name}: {error}");
                    counts.unexplained.lock().expect("no holder panics").get_or_insert(first);
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Self { name, stop, counts, threads }
    }

    /// Returns the first error that nothing explains.
    pub fn unexplained(&self) -> Option<String> {
        self.counts.unexplained.lock().expect("no holder panics").clone()
    }

    /// Ends them. Panics if one got an error that nothing explains, or none was served.
    pub fn end(mut self) -> String {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client does not panic");
        }
        assert_eq!(self.unexplained(), None);
        let [served, failed] =
            [&self.counts.served, &self.counts.failed].map(|count| count.load(Ordering::SeqCst));
        assert!(served > 0, "{} serves", self.name);
        format!("{}: {served} served, {failed} failed in outages", self.name)
    }
}

/// Runs one client; it reconnects only when an outage explains why its connection was closed.
fn run(
    exchange: Exchange,
    address: SocketAddr,
    client: usize,
    stop: &AtomicBool,
    outages: &Outages,
    counts: &Counts,
) -> Result<(), String> {
    let mut stream = connect(address);
    for count in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let from = Instant::now();
        let answer = exchange.ask(&mut stream, client, count);
        let error = match answer {
            Ok(Answer::Right) => {
                counts.served.fetch_add(1, Ordering::SeqCst);
                None
            }
            Ok(Answer::Wrong(data)) => return Err(format!("client {client} got {data}")),
            Ok(Answer::Refused(reason)) => Some(reason),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            if !outages.explain(from, Instant::now()) {
                return Err(format!("client {client}: {error} after {:?}, in no outage", from.elapsed()));
            }
            counts.failed.fetch_add(1, Ordering::SeqCst);
            stream = connect(address);
        }
        std::thread::sleep(PACE);
    }
    Ok(())
}
