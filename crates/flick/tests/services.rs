//! Several services in one process: those of one program share its dictionaries, one address may be shared by grammars
//! that differ in their first byte, and none notices what another does or suffers.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Scratch, wait};
use flick_abi::{Engine, FuncId, ParseStep, RuleCall, RuleOutcome};
use flick_compiler::{EngineKind, Executable, Input, compile};
use flick_net::{Endpoint, IoKind};
use flick_runtime::limits::{CLOCK_STEPS, LONE_AFTER_NS, LONE_QUANTUM_NS};
use flick_runtime::{Binding, Limits, Platform, PlatformConfig, ServiceConfig, Totals};
use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::conn::RingRead;

/// Two processes that share a dictionary: one takes shots of two bytes, one answers lines.
const STORE: &str = r#"
global last: dict<string<8>, int> max 100 entries
global asked: counter

type shot = unit {
  %order = in_order;
  magic : uint8;
  value : uint8;
  %request = self.magic == 0x80;
  %reply   = self.magic == 0x81;
};

type word = unit {
  %order = in_order;
  text : string<64> &until = "\n";
};

proc Binary: (shot/shot client)
  | client => keep(client)

proc Text: (word/word client)
  | client => tell(client)

fun keep: (-/shot client, req: shot) -> ()
  count(asked)
  last["x"] := req.value
  shot{magic = 0x81, value = req.value} => client

fun tell: (-/word client, req: word) -> ()
  count(asked)
  let seen = last["x"] else 0
  word{text = (req.text + " " + str(seen))[..64]} => client
"#;

const IOS: [IoKind; 2] = [IoKind::Epoll, IoKind::Uring];

/// The processes of a program, interpreted, each with an address to listen on; `change` sees the process's name.
fn services(
    text: &str,
    group: usize,
    io: IoKind,
    at: &[Endpoint],
    change: impl Fn(&str, &mut PlatformConfig),
) -> Vec<ServiceConfig> {
    services_on(EngineKind::Interpreter, text, group, io, at, change)
}

/// As [`services`], on this engine.
fn services_on(
    kind: EngineKind,
    text: &str,
    group: usize,
    io: IoKind,
    at: &[Endpoint],
    change: impl Fn(&str, &mut PlatformConfig),
) -> Vec<ServiceConfig> {
    let compiled = compile(&Input::text("test.flick", text), kind);
    let compiled = compiled.unwrap_or_else(|failure| panic!("it is a program: {failure}"));
    let service = |(executable, at): (Executable, &Endpoint)| {
        let program = executable.program();
        let mut config = PlatformConfig {
            io,
            limits: Limits { buffer_memory: 16 << 20, max_connections: 200, ..Limits::default() },
            ..PlatformConfig::new(vec![Binding::new("client", vec![at.clone()])], Vec::new())
        };
        change(&program.name, &mut config);
        ServiceConfig { name: program.name.clone(), program, engine: executable.engine, config, group }
    };
    compiled.executables.into_iter().zip(at).map(service).collect()
}

fn any_port() -> Endpoint {
    "127.0.0.1:0".parse().expect("an address")
}

fn address(platform: &Platform, service: &str) -> Endpoint {
    let found = platform.services().iter().find(|known| known.name() == service);
    found.expect("a service of that name").addresses()[0].1.clone()
}

fn connect(at: &Endpoint) -> Box<dyn ReadWrite> {
    match at {
        Endpoint::Tcp(at) => {
            let stream = TcpStream::connect(at).expect("it listens");
            stream.set_read_timeout(Some(wait::WAIT_MAX)).expect("a timeout");
            Box::new(stream)
        }
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).expect("it listens");
            stream.set_read_timeout(Some(wait::WAIT_MAX)).expect("a timeout");
            Box::new(stream)
        }
        Endpoint::Shm(_) | Endpoint::Descriptor(_) => panic!("no client of this test uses shared memory"),
    }
}

trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

/// Sends `request` and expects `reply`.
fn check(stream: &mut (impl Read + Write + ?Sized), request: &[u8], reply: &[u8]) {
    stream.write_all(request).expect("the service reads");
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap_or_else(|error| panic!("{request:?} has an answer: {error}"));
    assert_eq!(got, reply, "to {request:?}");
}

fn totals(platform: &Platform, service: &str) -> Totals {
    let watches = platform.stats();
    watches.iter().find(|watch| watch.name() == service).expect("a service of that name").snapshot().totals
}

fn start(services: Vec<ServiceConfig>) -> Option<Platform> {
    let io = services[0].config.io;
    match Platform::start_services(services) {
        Ok(platform) => Some(platform),
        Err(error) if io == IoKind::Uring => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("it starts: {error}"),
    }
}

#[test]
fn processes_of_a_program_share_dictionaries() {
    for io in IOS {
        let Some(platform) = start(services(STORE, 0, io, &[any_port(), any_port()], |_, _| {})) else {
            continue;
        };
        let mut binary = connect(&address(&platform, "Binary"));
        let mut text = connect(&address(&platform, "Text"));
        check(&mut binary, &[0x80, 7], &[0x81, 7]);
        check(&mut text, b"now\n", b"now 7\n");
        check(&mut binary, &[0x80, 8], &[0x81, 8]);
        check(&mut text, b"now\n", b"now 8\n");
        assert_eq!(platform.services()[1].state().counters()[0].value, 4, "both count in one place");
        assert_eq!((totals(&platform, "Binary").requests, totals(&platform, "Text").requests), (2, 2));
        platform.drain(Duration::from_secs(5));
        let outcome = platform.wait();
        assert_eq!((outcome.totals.requests, outcome.errors.len()), (4, 0));
    }
}

#[test]
fn first_byte_selects_the_service_of_a_shared_address() {
    for io in IOS {
        let scratch = Scratch::new(&format!("door-{io:?}"));
        let at = Endpoint::Unix(scratch.path().join("s"));
        let Some(platform) = start(services(STORE, 0, io, &[at.clone(), at.clone()], |_, _| {})) else {
            continue;
        };
        // A silent connection belongs to no service until its first byte.
        let mut late = connect(&at);
        let gone = connect(&at);
        check(&mut connect(&at), &[0x80, 9], &[0x81, 9]);
        let mut text = connect(&at);
        check(&mut text, b"a\nb\n", b"a 9\nb 9\n");
        drop(gone);
        let opened =
            totals(&platform, "Binary").connections_accepted + totals(&platform, "Text").connections_accepted;
        assert_eq!(opened, 2, "a silent peer costs no session");
        check(&mut late, b"late\n", b"late 9\n");
        platform.drain(Duration::from_secs(5));
        drop((late, text));
        platform.wait();
        assert!(UnixStream::connect(scratch.path().join("s")).is_err(), "no process listens");
    }
}

#[test]
fn ambiguous_grammars_cannot_share_an_address() {
    let scratch = Scratch::new("alike");
    let at = Endpoint::Unix(scratch.path().join("s"));
    let check = |text: &str, expected: &str| {
        let services = services(text, 0, IoKind::Epoll, &[at.clone(), at.clone()], |_, _| {});
        let error = match Platform::start_services(services) {
            Ok(_) => panic!("nothing tells their clients apart"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{error}");
    };
    check(
        &STORE.replace("(word/word client)\n  | client => tell", "(shot/shot client)\n  | client => keep"),
        "byte 0x80",
    );
    check(&STORE.replace("  %request = self.magic == 0x80;\n", ""), "neither grammar says with which byte");
}

#[test]
fn services_cannot_share_a_name_in_shared_memory() {
    let at = Endpoint::Shm(format!("shared-{}", std::process::id()));
    let services = services(STORE, 0, IoKind::Epoll, &[at.clone(), at], |_, _| {});
    match Platform::start_services(services) {
        Ok(_) => panic!("no client of it would be answered"),
        Err(error) => assert!(error.to_string().contains("give each a name of its own"), "{error}"),
    }
}

/// With io_uring, a request through a ring waited up to two seconds for the next timer.
#[test]
fn request_through_a_ring_waited_where_several_services_share_a_thread() {
    const REQUESTS: usize = 2_000;
    const CLIENTS: u32 = 2;
    for io in IOS {
        let name = format!("ring-{io:?}-{}", std::process::id());
        let at = [Endpoint::Shm(name.clone()), any_port()];
        let Some(platform) = start(services(STORE, 0, io, &at, |_, _| {})) else { continue };
        let mut clients = ClientSet::new(&ClientConfig::new(CLIENTS)).expect("an epoll");
        let to = ClientAddress::Shm(name);
        (0..CLIENTS).for_each(|token| clients.connect(token, &to).expect("the service pairs"));
        let (mut events, mut out) = (Vec::with_capacity(CLIENTS as usize), [0; 2]);
        let (mut sent, mut answered, begun) = ([0_u8; CLIENTS as usize], 0, Instant::now());
        while answered < REQUESTS {
            clients.wait(&mut events, None).expect("an epoll");
            for (token, sent) in (0..CLIENTS).zip(&mut sent) {
                let has_reply = matches!(clients.receive(token, &mut out), Ok(RingRead::Bytes(2)));
                if has_reply {
                    assert_eq!(out, [0x81, *sent], "{io:?}");
                    answered += 1;
                }
                let begins = events.contains(&ClientEvent::Connected(token));
                if has_reply || begins {
                    *sent = sent.wrapping_add(1);
                    assert_eq!(clients.send(token, &[0x80, *sent]).ok(), Some(2), "{io:?}");
                }
            }
            assert!(begun.elapsed() < wait::WAIT_MAX, "{io:?}: {answered} of {REQUESTS} replies");
        }
        drop(clients);
        platform.drain(Duration::from_secs(5));
        platform.wait();
    }
}

/// The thread waits in the driver of the one service that has work, and the other's clients end that wait.
#[test]
fn quiet_service_is_answered_while_another_one_waits_alone() {
    const ROUNDS: u8 = 20;
    for io in IOS {
        let Some(platform) = start(services(STORE, 0, io, &[any_port(), any_port()], |_, _| {})) else {
            continue;
        };
        let mut busy = connect(&address(&platform, "Binary"));
        let mut quiet = connect(&address(&platform, "Text"));
        for round in 0..ROUNDS {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_nanos(2 * LONE_AFTER_NS) {
                check(&mut busy, &[0x80, round], &[0x81, round]);
            }
            check(&mut quiet, b"a\n", format!("a {round}\n").as_bytes());
        }
        let mut late = connect(&address(&platform, "Text"));
        check(&mut late, b"b\n", b"b 19\n");
        platform.drain(Duration::from_secs(5));
        assert_eq!(platform.wait().errors.len(), 0);
    }
}

/// Keeps asking with as many requests as fit until told to stop; how many were answered.
fn flood(at: &Endpoint, stop: &AtomicBool) -> u64 {
    let mut stream = connect(at);
    let (request, mut reply) = (b"x\n".repeat(2000), vec![0; 4 * 2000]);
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&request).expect("it reads");
        stream.read_exact(&mut reply).expect("it answers");
        answered += 2000;
    }
    answered
}

#[test]
fn flooded_service_does_not_slow_another_down() {
    const ASKED: u64 = 300;
    for io in IOS {
        let mut both = services(STORE, 0, io, &[any_port()], |_, _| {});
        let hostile = STORE.replace("proc Binary: (shot/shot client)\n  | client => keep(client)\n", "");
        both.extend(services(&hostile, 1, io, &[any_port()], |_, _| {}));
        let Some(platform) = start(both) else { continue };
        let (at, stop) = (address(&platform, "Text"), Arc::new(AtomicBool::new(false)));
        let floods: Vec<_> = (0..4)
            .map(|_| {
                let (at, stop) = (at.clone(), Arc::clone(&stop));
                std::thread::spawn(move || flood(&at, &stop))
            })
            .collect();
        wait::until("the flood", || (totals(&platform, "Text").requests > 10_000).then_some(()));
        let mut stream = connect(&address(&platform, "Binary"));
        for number in 0..ASKED {
            check(&mut stream, &[0x80, number as u8], &[0x81, number as u8]);
        }
        let (small, flooded) = (totals(&platform, "Binary"), totals(&platform, "Text"));
        stop.store(true, Ordering::Relaxed);
        let answered: u64 =
            floods.into_iter().map(|flood| flood.join().expect("every request is answered")).sum();
        assert!(answered > 10_000);
        assert_eq!((small.requests, small.replies, small.connections_accepted), (ASKED, ASKED, 1));
        assert_eq!((small.exhausted, small.errors_overload), (0, 0), "{small:?}");
        // An iteration of the other service is bounded, so that it had at least as many.
        assert!(flooded.loops >= ASKED, "{flooded:?}");
        assert_eq!((small.cpu_throttled, flooded.cpu_throttled), (0, 0), "there is no `cpu_max`");
        platform.stop();
        platform.wait();
    }
}

#[test]
fn service_above_cpu_max_waits() {
    let limited = |name: &str, config: &mut PlatformConfig| {
        config.limits.cpu_max_percent = if name == "Text" { 10 } else { 100 };
    };
    for io in IOS {
        let Some(platform) = start(services(STORE, 0, io, &[any_port(), any_port()], limited)) else {
            continue;
        };
        let (at, stop) = (address(&platform, "Text"), Arc::new(AtomicBool::new(false)));
        let flooding = {
            let (at, stop) = (at.clone(), Arc::clone(&stop));
            std::thread::spawn(move || flood(&at, &stop))
        };
        wait::until("a wait", || (totals(&platform, "Text").cpu_throttled > 0).then_some(()));
        // How exactly is for `budget/tests.rs`, whose machine does nothing else; here it is a half that would be too
        // much by far.
        let (begun, before) = (Instant::now(), totals(&platform, "Text"));
        wait::until("many waits", || {
            let waits = totals(&platform, "Text").cpu_throttled - before.cpu_throttled;
            (waits > 30 && begun.elapsed() > Duration::from_millis(500)).then_some(())
        });
        let busy = Duration::from_nanos(totals(&platform, "Text").busy_ns - before.busy_ns);
        assert!(busy < begun.elapsed() / 2, "{busy:?} of {:?}", begun.elapsed());
        stop.store(true, Ordering::Relaxed);
        assert!(flooding.join().expect("every request is answered") > 0);
        assert_eq!(totals(&platform, "Binary").cpu_throttled, 0, "the other service is not throttled");
        check(&mut connect(&address(&platform, "Binary")), &[0x80, 1], &[0x81, 1]);
        platform.stop();
        platform.wait();
    }
}

/// Code that does something more with the bytes of each message before it reads them.
struct Meddled(Arc<dyn Engine>, fn(&[u8]));

impl Engine for Meddled {
    fn parse(&self, parser: FuncId, frame: &mut flick_abi::Frame, data: &[u8]) -> ParseStep {
        (self.1)(data);
        self.0.parse(parser, frame, data)
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        self.0.run(rule, call)
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        self.0.order(order, call)
    }

    fn build(&self, builder: FuncId, frame: &flick_abi::Frame, out: &mut [u8]) -> usize {
        self.0.build(builder, frame, out)
    }
}

/// A fault of ours: one request breaks an invariant.
fn broken(data: &[u8]) {
    assert!(!data.starts_with(b"break"), "an invariant that a test breaks");
}

/// Code whose rules get no output to build in, which a helper function called from machine code asserts.
struct NoOutput(Arc<dyn Engine>);

impl Engine for NoOutput {
    fn parse(&self, parser: FuncId, frame: &mut flick_abi::Frame, data: &[u8]) -> ParseStep {
        self.0.parse(parser, frame, data)
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        call.out = &mut [];
        self.0.run(rule, call)
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        self.0.order(order, call)
    }

    fn build(&self, builder: FuncId, frame: &flick_abi::Frame, out: &mut [u8]) -> usize {
        self.0.build(builder, frame, out)
    }
}

#[test]
fn panic_stops_only_its_program() {
    check_panic(EngineKind::Interpreter, |engine| Arc::new(Meddled(engine, broken)));
}

#[test]
fn panic_in_a_code_helper_stops_only_its_program() {
    check_panic(EngineKind::Native, |engine| Arc::new(NoOutput(engine)));
}

/// Makes the second of two processes of a program panic, beside another program.
fn check_panic(kind: EngineKind, breaks: fn(Arc<dyn Engine>) -> Arc<dyn Engine>) {
    let two = |config: &mut PlatformConfig| config.workers = 2;
    let mut all =
        services_on(kind, STORE, 0, IoKind::Epoll, &[any_port(), any_port()], |_, config| two(config));
    all[1].engine = breaks(Arc::clone(&all[1].engine));
    let other = STORE.replace("proc Binary", "proc Other");
    all.extend(services_on(kind, &other, 1, IoKind::Epoll, &[any_port()], |_, config| two(config)));
    let platform = start(all).expect("epoll is always there");
    let (binary, text) = (address(&platform, "Binary"), address(&platform, "Text"));
    let mut kept = connect(&address(&platform, "Other"));
    check(&mut kept, &[0x80, 1], &[0x81, 1]);
    let mut sibling = connect(&binary);
    check(&mut sibling, &[0x80, 2], &[0x81, 2]);
    connect(&text).write_all(b"break\n").expect("it reads");
    let mut rest = Vec::new();
    // A reset is as good as an end.
    let _ = sibling.read_to_end(&mut rest);
    let Endpoint::Tcp(binary) = binary else { panic!("it is a port") };
    wait::until("both processes of the program to end", || TcpStream::connect(binary).is_err().then_some(()));
    check(&mut kept, &[0x80, 3], &[0x81, 3]);
    platform.stop();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| platform.wait()));
    assert!(outcome.is_err(), "the panic is passed on when all have ended");
}

/// One service that says back what it hears.
const ECHO: &str = r#"
type word = unit {
  %order = in_order;
  text : string<64> &until = "\n";
};

proc Echo: (word/word client)
  | client => answer(client)

fun answer: (-/word client, req: word) -> ()
  word{text = req.text} => client
"#;

/// Some messages are dear.
fn dear(data: &[u8]) {
    let begun = Instant::now();
    while data.starts_with(b"dear") && begun.elapsed() < Duration::from_micros(200) {
        std::hint::spin_loop();
    }
}

/// A message that takes longer than any quantum.
fn long(data: &[u8]) {
    let begun = Instant::now();
    while data.starts_with(b"long") && begun.elapsed() < 2 * Duration::from_nanos(LONE_QUANTUM_NS) {
        std::hint::spin_loop();
    }
}

#[test]
fn quantum_ends_after_one_long_message() {
    // A program whose messages may take long, as its bounds say.
    let costly = ECHO.replace("proc Echo", "proc Costly").replace(
        "{text = req.text}",
        "{text = if (fold i in 0..500, n = 0: n + i) > 0: req.text else: \"\"}",
    );
    for io in IOS {
        let mut both = services(ECHO, 0, io, &[any_port()], |_, _| {});
        both.extend(services(&costly, 1, io, &[any_port()], |_, _| {}));
        both[1].engine = Arc::new(Meddled(Arc::clone(&both[1].engine), long));
        assert!(both[1].program.bounds.steps_per_message_max >= CLOCK_STEPS);
        let Some(platform) = start(both) else { continue };
        let at = address(&platform, "Costly");
        let many = b"long\n".repeat(32);
        let mut clients: Vec<_> = (0..4).map(|_| connect(&at)).collect();
        clients.iter_mut().for_each(|client| client.write_all(&many).expect("it reads"));
        let mut stream = connect(&address(&platform, "Echo"));
        for _ in 0..20 {
            check(&mut stream, b"short\n", b"short\n");
        }
        for client in &mut clients {
            check(client, b"", &many);
        }
        let costly = totals(&platform, "Costly");
        assert_eq!(costly.requests, 4 * 32);
        assert!(costly.loops >= costly.requests, "several long messages in a quantum: {costly:?}");
        platform.stop();
        platform.wait();
    }
}

/// Kernels place connections by a hash of their addresses, also where one worker has all the work.
#[test]
fn idle_worker_takes_connections_of_a_busy_one() {
    for io in IOS {
        let mut all = services(ECHO, 0, io, &[any_port()], |_, config| config.workers = 2);
        all[0].engine = Arc::new(Meddled(Arc::clone(&all[0].engine), dear));
        let Some(platform) = start(all) else { continue };
        let at = address(&platform, "Echo");
        let stop = Arc::new(AtomicBool::new(false));
        let (mut busy, stopped) = (connect(&at), Arc::clone(&stop));
        let flooding = std::thread::spawn(move || {
            let batch = b"dear\n".repeat(64);
            // Its worker always has requests: one that is idle between two batches takes clients from the other.
            busy.write_all(&batch.repeat(3)).expect("it reads");
            while !stopped.load(Ordering::Relaxed) {
                check(&mut busy, &batch, &batch);
            }
            check(&mut busy, b"", &batch.repeat(3));
        });
        let stolen = || {
            let watches = platform.stats();
            watches[0].snapshot().workers.iter().map(|worker| worker.tasks[0].stolen).collect::<Vec<u64>>()
        };
        let mut clients: Vec<Box<dyn ReadWrite>> = Vec::new();
        wait::until("a client to be handed over", || {
            clients.truncate(100);
            clients.insert(0, connect(&at));
            check(&mut clients[0], b"hello\n", b"hello\n");
            (stolen().iter().sum::<u64>() >= 5).then_some(())
        });
        let stolen = stolen();
        assert!(stolen.contains(&0), "{stolen:?}: only the idle worker takes others over");
        for (number, client) in clients.iter_mut().enumerate() {
            let request = format!("{number}\n");
            check(client, request.as_bytes(), request.as_bytes());
        }
        stop.store(true, Ordering::Relaxed);
        flooding.join().expect("every request is answered");
        platform.drain(Duration::from_secs(5));
        drop(clients);
        let outcome = platform.wait();
        assert_eq!((outcome.totals.connections_rejected, outcome.totals.connections_open), (0, 0), "{io:?}");
    }
}
