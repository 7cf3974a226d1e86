//! Requests that are made to be understood in two ways (`tests/http/smuggling.txt`), through the HTTP balancer with
//! both engines, whole and cut in two.
//! Promises: what reaches the backend has one meaning for every reader, and is what the strict reader sees in the
//! client's bytes; a refusal is a 4xx or 5xx and a closed connection. `FLICK_SEED` asks for other cuts.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::generate::Rng;
use flick_testkit::http::Asked;
use flick_testkit::http::ambiguity::{judge, understood};
use flick_testkit::http::corpus::{Attempt, attempts};
use flick_testkit::http::lenient::Understood;
use flick_testkit::http::strict::{self, BodyEnd, Trouble};
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject, seeds};

use super::subject;

const SMUGGLING: &str = include_str!("../../../../tests/http/smuggling.txt");
/// Requests that the issue asks for at least.
const ATTEMPTS_MIN: usize = 1500;
/// Pause of a client behind each of its writes. The service answers within it.
const PAUSE_NS: u64 = MS;
/// Longest that a client waits for the end of its connection, behind its own.
const END_NS: u64 = 500 * MS;
/// Failures that are shown.
const SHOWN_MAX: usize = 12;
/// Bytes of a request and of its response that are shown.
const SHOWN_BYTES: usize = 400;
/// Field of a response that the backend made.
const BACKEND: &str = "x-backend";
const BALANCER: &str = "
proc Balancer: (request/response client, [response/request] backends)
  | backends => client
  | client => balance(backends)

fun balance: ([-/request] backends, req: request) -> ()
  req => backends[round_robin(backends)]
";

/// A connection to the backend, with the bytes that it has carried.
#[derive(Default)]
struct Connection {
    bytes: Vec<u8>,
    /// Bytes of earlier attempts.
    judged: usize,
    is_closed: bool,
}

type Connections = Rc<RefCell<Vec<Rc<RefCell<Connection>>>>>;

/// Answers every request that the strict reader accepts.
struct Backend {
    connection: Rc<RefCell<Connection>>,
    answered: usize,
}

impl Actor for Backend {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        let mut connection = self.connection.borrow_mut();
        connection.bytes.extend(data);
        while let Ok(message) = strict::request(&connection.bytes[self.answered..]) {
            let status = if message.line.starts_with(b"CONNECT ") { "405 No" } else { "200 OK" };
            io.write(format!("HTTP/1.1 {status}\r\n{BACKEND}: 1\r\nContent-Length: 0\r\n\r\n").as_bytes());
            self.answered += message.next;
        }
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.connection.borrow_mut().is_closed = true;
        io.close();
    }

    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        self.connection.borrow_mut().is_closed = true;
    }
}

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    is_closed: bool,
    /// The service has ended the connection while the client had not.
    is_closed_first: bool,
}

/// Writes its pieces with a pause behind each, then ends its side.
struct Client {
    pieces: VecDeque<Vec<u8>>,
    has_ended: bool,
    received: Rc<RefCell<Received>>,
}

impl Client {
    fn next(&mut self, io: &mut PeerIo<'_>) {
        match self.pieces.pop_front() {
            Some(piece) => {
                io.write(&piece);
                io.timer(PAUSE_NS, 0);
            }
            None => {
                self.has_ended = true;
                io.shutdown_write();
            }
        }
    }

    fn closed(&self) {
        let mut received = self.received.borrow_mut();
        received.is_closed = true;
        received.is_closed_first = !self.has_ended;
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.next(io);
    }

    fn on_data(&mut self, _: &mut PeerIo<'_>, data: &[u8]) {
        self.received.borrow_mut().bytes.extend(data);
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.closed();
        io.close();
    }

    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        self.closed();
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _: u64) {
        self.next(io);
    }
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Played {
    /// Bytes that the client received.
    received: Vec<u8>,
    is_closed: bool,
    is_closed_first: bool,
    /// Bytes that each connection to the backend has carried, and whether it was closed then.
    forwarded: Vec<(Vec<u8>, bool)>,
}

/// A balancer before one backend.
struct Stage {
    service: SimService,
    connections: Connections,
}

impl Stage {
    fn new(seed: u64, subject: &Subject) -> Self {
        let connections = Connections::default();
        let made = Rc::clone(&connections);
        let service = SimService::new(&SimServiceConfig::new(seed, 1), subject, move |_, _| {
            let connection = Rc::<RefCell<Connection>>::default();
            made.borrow_mut().push(Rc::clone(&connection));
            Some(Box::new(Backend { connection, answered: 0 }))
        });
        Self { service, connections }
    }

    fn play(&mut self, pieces: &[&[u8]]) -> Played {
        let received = Rc::<RefCell<Received>>::default();
        let pieces: VecDeque<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let now_ns = self.service.net.now_ns();
        let end_ns = now_ns + PAUSE_NS * (pieces.len() as u64 + 1) + END_NS;
        let client = Client { pieces, has_ended: false, received: Rc::clone(&received) };
        self.service.net.connect(&self.service.listen, now_ns, Box::new(client));
        self.service.run(end_ns, |_| received.borrow().is_closed).expect("the service does not spin");
        // What is still in flight to the backend.
        let now_ns = self.service.net.now_ns();
        self.service.run(now_ns + PAUSE_NS, |_| false).expect("the service does not spin");
        let mut forwarded = Vec::new();
        self.connections.borrow_mut().retain(|connection| {
            let mut connection = connection.borrow_mut();
            if connection.judged < connection.bytes.len() {
                forwarded.push((connection.bytes[connection.judged..].to_vec(), connection.is_closed));
                connection.judged = connection.bytes.len();
            }
            !connection.is_closed
        });
        let Received { bytes, is_closed, is_closed_first } = received.take();
        Played { received: bytes, is_closed, is_closed_first, forwarded }
    }
}

/// The requests in a client's bytes.
struct Expected {
    requests: Vec<Understood>,
    /// The rest is no request.
    is_refused: bool,
    /// The rest begins with a whole head.
    has_head: bool,
}

fn expected(bytes: &[u8]) -> Expected {
    let (mut requests, mut rest) = (Vec::new(), bytes);
    let mut is_refused = false;
    while !rest.is_empty() {
        match strict::request(rest) {
            Ok(message) => {
                requests.push(understood(&message));
                rest = if message.end == BodyEnd::Last { &[] } else { &rest[message.next..] };
            }
            Err(trouble) => {
                is_refused = trouble != Trouble::Short;
                break;
            }
        }
    }
    let rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    let has_head = rest.windows(4).any(|window| window == b"\r\n\r\n");
    Expected { requests, is_refused, has_head }
}

/// The parts that must be the same, in an order that does not depend on which connection was used.
fn comparable(requests: &[Understood]) -> Vec<(&[u8], &[u8], &[u8])> {
    let each = requests.iter().map(|Understood { method, target, host, .. }| {
        // HTTP/1.0 knows requests without a Host, HTTP/1.1 does not.
        let host: &[u8] = if host == b"localhost" { b"" } else { host };
        (method.as_slice(), target.as_slice(), host)
    });
    let mut each: Vec<_> = each.collect();
    each.sort_unstable();
    each
}

/// Status of each response that a client received, and whether the backend made it.
///
/// Errors: bytes that are no response.
fn responses(received: &[u8]) -> Result<Vec<(u16, bool)>, String> {
    let (mut rest, mut found) = (received, Vec::new());
    while !rest.is_empty() {
        let message =
            strict::reply(rest, Asked::Get).map_err(|trouble| format!("no response: {trouble:?}"))?;
        let status = std::str::from_utf8(&message.line[9..12]).ok().and_then(|text| text.parse().ok());
        found.push((status.unwrap_or_default(), !message.values(BACKEND).is_empty()));
        rest = &rest[message.next..];
    }
    Ok(found)
}

/// Checks what came of an attempt; says what is wrong, or how many requests were forwarded and the status of the
/// refusal behind them.
fn check(sent: &[u8], played: &Played) -> Result<(usize, Option<u16>), String> {
    let mut forwarded = Vec::new();
    for (bytes, is_closed) in &played.forwarded {
        let judged = judge(bytes).map_err(|ambiguity| format!("ambiguous: {ambiguity:?}"))?;
        if judged.is_cut && !is_closed {
            return Err("an incomplete request is left on an open connection".into());
        }
        forwarded.extend(judged.requests);
    }
    let expected = expected(sent);
    if comparable(&forwarded) != comparable(&expected.requests) {
        return Err(format!("forwarded {forwarded:?} instead of {:?}", expected.requests));
    }
    if !played.is_closed {
        return Err("the client's connection stays open".into());
    }
    let responses = responses(&played.received)?;
    let answered = responses.iter().take_while(|(_, is_backends)| *is_backends).count();
    if answered != forwarded.len() {
        return Err(format!("{answered} of {} requests are answered: {responses:?}", forwarded.len()));
    }
    match &responses[answered..] {
        [] if expected.is_refused && expected.has_head => Err("refused without a response".into()),
        [] => Ok((answered, None)),
        // What the client has not completed is refused when the client has closed its side.
        [(400..=599, false)] if expected.is_refused && !played.is_closed_first => {
            Err("refused, and the connection stays open".into())
        }
        [(status @ 400..=599, false)] => Ok((answered, Some(*status))),
        further => Err(format!("responses to nothing: {further:?}")),
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii().to_string()
}

#[derive(Default)]
struct Summary {
    forwarded: usize,
    refused: usize,
    failures: Vec<String>,
}

/// Plays attempts with both engines, whole and cut.
fn play_all(seed: u64, all: &[Attempt], native: &Subject, interpreted: &Subject) -> Summary {
    let (mut native, mut interpreted) = (Stage::new(seed, native), Stage::new(seed, interpreted));
    let (mut rng, mut sum) = (Rng::new(seed), Summary::default());
    for Attempt { name, bytes } in all {
        let (front, back) = bytes.split_at(1 + rng.below(bytes.len() as u32 - 1) as usize);
        let mut outcomes = Vec::new();
        for pieces in [&[bytes.as_slice()][..], &[front, back]] {
            let played = native.play(pieces);
            let found = match check(bytes, &played) {
                _ if interpreted.play(pieces) != played => Err("the engines differ".into()),
                found => found,
            };
            let cut = pieces[0].len();
            outcomes.push(found.map_err(|what| {
                let (sent, got) = (shown(bytes), shown(&played.received));
                format!("FLICK_SEED={seed} {name}, cut at {cut}: {what}\n  sent {sent}\n  got {got}")
            }));
        }
        match &outcomes[..] {
            [Ok(whole), Ok(cut)] if whole != cut => {
                sum.failures.push(format!("FLICK_SEED={seed} {name}: whole {whole:?}, cut {cut:?}"));
            }
            [Ok((forwarded, refused)), Ok(_)] => {
                sum.forwarded += forwarded;
                sum.refused += usize::from(refused.is_some());
            }
            _ => sum.failures.extend(outcomes.into_iter().filter_map(Result::err)),
        }
    }
    sum
}

#[test]
fn no_smuggled_request_is_forwarded_with_two_meanings() {
    let (native, interpreted) = subject::example("http_balancer/round_robin.flick");
    let all = attempts(SMUGGLING);
    assert!(all.len() >= ATTEMPTS_MIN, "only {} requests", all.len());
    for seed in seeds(1) {
        let Summary { forwarded, refused, failures } = play_all(seed, &all, &native, &interpreted);
        println!("{} attempts: {forwarded} requests forwarded, {refused} attempts refused", all.len());
        let shown = failures[..failures.len().min(SHOWN_MAX)].join("\n");
        assert!(failures.is_empty(), "{} failures:\n{shown}", failures.len());
        assert!(forwarded > 0 && refused > ATTEMPTS_MIN / 2, "the test does something");
    }
}

/// Lines of the grammar, what a bug makes of them, and the template that shows it.
const BUGS: [(&str, &str, &str); 5] = [
    (r#"&once = ["host", "content-length", "transfer-encoding"]"#, r#"&once = ["host"]"#, "length_pairs"),
    (r#"&once = ["host", "content-length", "transfer-encoding"]"#, r#"&once = ["content-length"]"#, "hosts"),
    (r#""@/?#,\x5c", "\x7f".."\xff""#, r#""@/?#,\x5c", "\x7f""#, "hosts"),
    ("  check not self.hides;\n", "", "hop_by_hop"),
    (r#"  check self.ext == "" or starts_with(self.ext, ";");"#, "", "sizes"),
];

#[test]
fn grammars_with_bugs_are_caught() {
    let grammar = include_str!("../../../../stdlib/http.flick");
    let all = attempts(SMUGGLING);
    for (line, bug, template) in BUGS {
        assert!(grammar.contains(line), "the grammar has `{line}`");
        let (native, interpreted) = subject::text(&(grammar.replace(line, bug) + BALANCER));
        let is_of_it = |attempt: &&Attempt| attempt.name.split('#').next() == Some(template);
        let some: Vec<Attempt> = all.iter().filter(is_of_it).cloned().collect();
        let failures = play_all(0, &some, &native, &interpreted).failures;
        assert!(!failures.is_empty(), "`{bug}` instead of `{line}` is not seen in {} attempts", some.len());
    }
}
