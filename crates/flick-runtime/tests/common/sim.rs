//! A whole service in the simulator: scripted memcached servers, clients that check every reply, faults from a seed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flick_abi::{Engine, Program};
use flick_net::sim::{Actor, PeerIo, Rng, SimConfig, SimDriver, SimNet};
use flick_net::{Driver, DriverLimits, Endpoint};
use flick_runtime::{
    BackendCounters, Binding, Counters, Limits, PlatformConfig, Setup, Shared, Timeouts, Worker, WorkerConfig,
};

pub const MS: u64 = 1_000_000;

pub const GET: u8 = 0x00;
pub const SET: u8 = 0x01;
pub const GETQ: u8 = 0x09;
pub const NOOP: u8 = 0x0a;
pub const STAT: u8 = 0x10;
pub const SETQ: u8 = 0x11;

/// One message of the memcached binary protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cmd {
    pub magic: u8,
    pub opcode: u8,
    pub status: u16,
    pub opaque: u32,
    pub cas: u64,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Cmd {
    pub fn request(opcode: u8, opaque: u32, key: &[u8], value: &[u8]) -> Self {
        let extras =
            if matches!(opcode, SET | SETQ) { vec![0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0] } else { vec![] };
        Self {
            magic: 0x80,
            opcode,
            status: 0,
            opaque,
            cas: 0,
            extras,
            key: key.to_vec(),
            value: value.to_vec(),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let total = (self.extras.len() + self.key.len() + self.value.len()) as u32;
        let mut bytes = vec![self.magic, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0]);
        bytes.extend(self.status.to_be_bytes());
        bytes.extend(total.to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend(&self.extras);
        bytes.extend(&self.key);
        bytes.extend(&self.value);
        bytes
    }

    /// Takes the first whole message off `bytes`.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        if bytes.len() < 24 {
            return None;
        }
        let total = u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
        if bytes.len() < 24 + total {
            return None;
        }
        let (key_len, extras_len) =
            (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), usize::from(bytes[4]));
        let body = &bytes[24..24 + total];
        let cmd = Self {
            magic: bytes[0],
            opcode: bytes[1],
            status: u16::from_be_bytes([bytes[6], bytes[7]]),
            opaque: u32::from_be_bytes(bytes[12..16].try_into().expect("four bytes")),
            cas: u64::from_be_bytes(bytes[16..24].try_into().expect("eight bytes")),
            extras: body[..extras_len].to_vec(),
            key: body[extras_len..extras_len + key_len].to_vec(),
            value: body[extras_len + key_len..].to_vec(),
        };
        bytes.drain(..24 + total);
        Some(cmd)
    }
}

/// The value a server has for a key: it tells the key, and is long for keys that say so (`..#LEN`).
pub fn value_of(key: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(key);
    let len: usize = text.split('#').nth(1).and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut value = format!("value of {text};").into_bytes();
    let pattern = value.clone();
    while value.len() < len {
        value.extend(&pattern);
    }
    if len > 0 {
        value.truncate(len.max(pattern.len()));
    }
    value
}

/// A scripted memcached server connection. Keys that begin with `miss` are not found.
#[derive(Default)]
pub struct Server {
    input: Vec<u8>,
}

impl Actor for Server {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while let Some(request) = Cmd::take(&mut self.input) {
            for reply in answer(&request) {
                io.write(&reply.bytes());
            }
        }
    }
}

/// What a memcached server says to a request.
pub fn answer(request: &Cmd) -> Vec<Cmd> {
    let reply =
        Cmd { magic: 0x81, extras: vec![], key: vec![], value: vec![], cas: 0, status: 0, ..request.clone() };
    match request.opcode {
        GET | GETQ if request.key.starts_with(b"miss") => {
            if request.opcode == GETQ {
                vec![]
            } else {
                vec![Cmd { status: 1, ..reply }]
            }
        }
        GET | GETQ => vec![Cmd {
            extras: vec![1, 2, 3, 4],
            cas: 0x0102_0304_0506_0708,
            value: value_of(&request.key),
            ..reply
        }],
        SETQ => vec![],
        SET => {
            assert_eq!(request.value, value_of(&request.key), "a stored value arrives as it was sent");
            vec![reply]
        }
        STAT => (0..3)
            .map(|at| Cmd { key: format!("stat{at}").into_bytes(), value: b"1".to_vec(), ..reply.clone() })
            .chain([reply.clone()])
            .collect(),
        _ => vec![reply],
    }
}

/// What became of one client.
#[derive(Debug, Default)]
pub struct Verdict {
    pub answered: u32,
    pub failed: u32,
    pub finished: bool,
    pub closed: bool,
    pub wrong: Option<String>,
    pub finished_ns: u64,
}

/// A client that pipelines its requests and checks that replies come in order, each with its own opaque and value.
pub struct Client {
    pub requests: Vec<Cmd>,
    pub waiting: VecDeque<Cmd>,
    pub input: Vec<u8>,
    pub verdict: Rc<RefCell<Verdict>>,
    /// Leaves after this many replies.
    pub leaves_after: Option<u32>,
}

impl Client {
    pub fn new(requests: Vec<Cmd>, verdict: Rc<RefCell<Verdict>>) -> Self {
        let waiting = requests.iter().cloned().collect();
        Self { requests, waiting, input: Vec::new(), verdict, leaves_after: None }
    }

    fn check(&mut self, reply: &Cmd) -> Result<(), String> {
        loop {
            let Some(expected) = self.waiting.front() else {
                return Err(format!("a reply nobody asked for: {reply:?}"));
            };
            if (reply.opaque, reply.opcode, reply.magic) == (expected.opaque, expected.opcode, 0x81) {
                break;
            }
            // Only a quiet request may stay without a reply.
            if !matches!(expected.opcode, GETQ | SETQ) {
                return Err(format!("expected the reply to {expected:?}, got {reply:?}"));
            }
            self.waiting.pop_front();
        }
        let expected = self.waiting.front().expect("looked at just now");
        let mut verdict = self.verdict.borrow_mut();
        if matches!(reply.status, 0x85 | 0x86) {
            verdict.failed += 1;
            self.waiting.pop_front();
            return Ok(());
        }
        let miss = expected.key.starts_with(b"miss");
        match expected.opcode {
            GET | GETQ if miss => {
                if reply.status != 1 || expected.opcode == GETQ {
                    return Err(format!("a miss answered by {reply:?}"));
                }
            }
            GET | GETQ => {
                if reply.value != value_of(&expected.key)
                    || reply.cas != 0x0102_0304_0506_0708
                    || reply.status != 0
                {
                    return Err(format!(
                        "wrong value for {expected:?}: {} bytes, {:?}",
                        reply.value.len(),
                        reply.status
                    ));
                }
            }
            SETQ => return Err(format!("a quiet success was not silent: {reply:?}")),
            STAT if !reply.key.is_empty() => return Ok(()),
            _ if reply.status != 0 => return Err(format!("{expected:?} answered by {reply:?}")),
            _ => {}
        }
        verdict.answered += 1;
        self.waiting.pop_front();
        Ok(())
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        for request in std::mem::take(&mut self.requests) {
            io.write(&request.bytes());
        }
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while let Some(reply) = Cmd::take(&mut self.input) {
            if let Err(wrong) = self.check(&reply) {
                self.verdict.borrow_mut().wrong.get_or_insert(wrong);
                return;
            }
        }
        let mut verdict = self.verdict.borrow_mut();
        if self.waiting.is_empty() && !verdict.finished {
            verdict.finished = true;
            verdict.finished_ns = io.now_ns();
        }
        if self.leaves_after.is_some_and(|count| verdict.answered + verdict.failed >= count) {
            verdict.closed = true;
            io.reset();
        }
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.verdict.borrow_mut().closed = true;
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.verdict.borrow_mut().closed = true;
    }
}

/// A service in the simulator.
pub struct Service {
    pub net: SimNet,
    pub worker: Worker<SimDriver>,
    pub counters: Arc<Counters>,
    pub backend_counters: Arc<Vec<BackendCounters>>,
    pub shared: Arc<Shared>,
    pub listen: Endpoint,
    pub backends: Vec<Endpoint>,
}

pub fn small_limits() -> Limits {
    Limits {
        sessions_max: 256,
        requests_max: 8192,
        buffer_bytes: 16 << 20,
        lent_links_max: 2,
        ..Limits::default()
    }
}

impl Service {
    /// `servers` scripted servers, the given program in front of them.
    pub fn new(
        seed: u64,
        sim: SimConfig,
        servers: usize,
        limits: Limits,
        (program, engine): (Arc<Program>, Arc<dyn Engine>),
        server: impl Fn() -> Box<dyn Actor> + Clone + 'static,
    ) -> Self {
        let net = SimNet::new(seed, sim);
        let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
        let backends: Vec<Endpoint> = (0..servers)
            .map(|_| {
                let server = server.clone();
                net.serve(&any, move |_| Some(server()))
            })
            .collect();
        let listen: Endpoint = "127.0.0.1:11211".parse().expect("an address");
        let config = PlatformConfig {
            workers: 1,
            pin: false,
            io: Default::default(),
            listen: vec![Binding {
                channel: program.channels[0].name.clone(),
                endpoints: vec![listen.clone()],
            }],
            connect: vec![Binding { channel: program.channels[1].name.clone(), endpoints: backends.clone() }],
            limits,
            timeouts: Timeouts::default(),
        };
        let setup = Arc::new(Setup::new(program, engine, &config).expect("the bindings fit"));
        let driver = net
            .driver(DriverLimits {
                conns_max: Worker::<SimDriver>::conns_max(&setup),
                output_slices_max: 65_536,
                events_max: 4096,
                receive_bytes: 16 * 1024,
            })
            .expect("a driver");
        let counters = Arc::new(Counters::default());
        let backend_counters: Arc<Vec<BackendCounters>> =
            Arc::new((0..servers).map(|_| Default::default()).collect());
        let shared = Arc::new(Shared::default());
        let mut worker = Worker::new(
            driver,
            WorkerConfig {
                setup,
                shared: Arc::clone(&shared),
                counters: Arc::clone(&counters),
                backend_counters: Arc::clone(&backend_counters),
                workers: 1,
                seed,
                time_slices: false,
            },
        );
        let listener = worker.driver().listen(&listen).expect("listens");
        worker.add_listener(listener);
        worker.start();
        Self { net, worker, counters, backend_counters, shared, listen, backends }
    }

    /// Adds a client that dials at a time.
    pub fn client(&self, at_ns: u64, requests: Vec<Cmd>) -> Rc<RefCell<Verdict>> {
        let verdict = Rc::new(RefCell::new(Verdict::default()));
        self.net.dial(&self.listen, at_ns, Box::new(Client::new(requests, Rc::clone(&verdict))));
        verdict
    }

    /// Runs until `done` or a moment of simulated time.
    pub fn run(&mut self, until_ns: u64, mut done: impl FnMut() -> bool) {
        let mut turns = 0_u64;
        while self.net.now_ns() < until_ns && !done() {
            let left = Duration::from_nanos(until_ns - self.net.now_ns());
            let goes_on = self
                .worker
                .turn(Some(left.min(Duration::from_millis(10))))
                .expect("the simulator never fails");
            turns += 1;
            assert!(turns < 5_000_000, "the service spins: {turns} turns for {} ms", self.net.now_ns() / MS);
            if !goes_on {
                break;
            }
        }
    }
}

/// Random requests of one client, ending in a noop.
pub fn random_requests(rng: &mut Rng, client: u64, count: u64) -> Vec<Cmd> {
    let mut requests: Vec<Cmd> = (0..count)
        .map(|at| {
            let opaque = rng.next_u64() as u32;
            let key = match rng.between(0, 9) {
                0 => format!("miss-{client}-{at}"),
                1 => format!("long-{client}-{at}#{}", rng.between(3_000, 12_000)),
                2 if rng.chance(150) => format!("huge-{client}-{at}#{}", rng.between(17_000, 60_000)),
                _ => format!("key-{client}-{at}"),
            };
            match rng.between(0, 9) {
                0 => Cmd::request(STAT, opaque, b"", b""),
                1 => Cmd::request(NOOP, opaque, b"", b""),
                2 | 3 => Cmd::request(SET, opaque, key.as_bytes(), &value_of(key.as_bytes())),
                4 => Cmd::request(SETQ, opaque, key.as_bytes(), &value_of(key.as_bytes())),
                5 | 6 => Cmd::request(GETQ, opaque, key.as_bytes(), b""),
                _ => Cmd::request(GET, opaque, key.as_bytes(), b""),
            }
        })
        .collect();
    requests.push(Cmd::request(NOOP, 0xffff_0000 | client as u32, b"", b""));
    requests
}
