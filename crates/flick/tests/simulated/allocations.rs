//! After warming up, the path of a message touches the heap not once: a whole service on loopback sockets, its worker's
//! allocations counted iteration by iteration.

use std::collections::BTreeMap;
use std::sync::Mutex;

use flick_alloc_counter::{CountingAllocator, allocations};
use flick_net::IoKind;
use flick_testkit::scenario::stage::{Command, PeerId, Sockets, Stage, Transport};
use flick_testkit::scenario::{Scenario, Step, parse};
use flick_testkit::service::Subject;
use flick_testkit::service::memcached::{Cmd, opcode, value_of};
use flick_testkit::service::server::answer;

use super::scenarios::RING_SEEDS;
use super::subject;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Rounds before counting begins: tables are touched, connections are up.
const WARM_UP_ROUNDS: u32 = 20;
/// Rounds that are counted.
const ROUNDS: u32 = 100;
/// Turns within which a round must be over.
const ITERATIONS_MAX: u32 = 20_000;

/// Returns the requests of one client in a round: short, quiet, buffered, streamed, both ways; some over connections of
/// this round.
fn requests(round: u32) -> Vec<Cmd> {
    let ask = |at: u32, opcode: u8, key: &str| {
        let value = if opcode == opcode::SET { value_of(key.as_bytes()) } else { Vec::new() };
        Cmd::request(opcode, round * 16 + at, key.as_bytes(), &value)
    };
    vec![
        ask(0, opcode::GET, "k"),
        ask(1, opcode::GETQ, "miss"),
        ask(2, opcode::SET, "abc"),
        ask(3, opcode::GET, "long#9000"),
        ask(4, opcode::SET, "long#9000"),
        ask(5, opcode::GET, "large#100000"),
        ask(6, opcode::SET, "large#100000"),
        ask(7, opcode::STAT, ""),
        ask(8, opcode::NOOP, ""),
    ]
}

/// Lets backends answer what they were asked until the client has the reply to its noop.
fn serve(stage: &mut Sockets, client: PeerId, backends: usize) {
    for _ in 0..ITERATIONS_MAX {
        stage.step();
        for peer in (0..backends).flat_map(|backend| stage.connections(backend)).collect::<Vec<_>>() {
            let mut asked = None;
            stage.with_input(peer, &mut |input| asked = Cmd::take(input));
            if let Some(request) = asked {
                stage.command(peer, Command::Write(answer(&request).iter().flat_map(Cmd::bytes).collect()));
            }
        }
        let mut last = None;
        stage.with_input(client, &mut |input| last = std::iter::from_fn(|| Cmd::take(input)).last());
        if last.is_some_and(|reply| reply.opcode == opcode::NOOP) {
            return;
        }
    }
    panic!("a round is not over after {ITERATIONS_MAX} iterations");
}

/// A steady client asks; over TCP, so does one that comes and goes. A process that pairs costs memory.
fn round(stage: &mut Sockets, steady: PeerId, transport: Transport, backends: usize, number: u32) {
    let passing = (transport == Transport::Tcp).then(|| stage.open());
    for client in [Some(steady), passing].into_iter().flatten() {
        let bytes = requests(number).iter().flat_map(Cmd::bytes).collect();
        stage.command(client, Command::Write(bytes));
        serve(stage, client, backends);
    }
    if let Some(passing) = passing {
        stage.command(passing, Command::Close);
    }
}

fn check(io: IoKind, transport: Transport) {
    let scenario: Scenario = parse("backends 2").expect("it is a scenario");
    let Some(mut stage) =
        Sockets::new(&scenario, &subject::native(), io, transport).expect("the limits exist")
    else {
        return eprintln!("not tested: this machine does not grant {io:?}");
    };
    let steady = stage.open();
    for number in 0..WARM_UP_ROUNDS {
        round(&mut stage, steady, transport, scenario.backends, number);
    }
    stage.watch(allocations);
    for number in 0..ROUNDS {
        round(&mut stage, steady, transport, scenario.backends, number);
    }
    assert_eq!(stage.gauged(), 0, "the worker allocated after warming up ({io:?})");
    let requests =
        stage.counters().iter().find(|(name, _)| *name == "requests").map_or(0, |(_, count)| *count);
    assert!(requests >= i64::from(ROUNDS) * 9, "the rounds did something: {requests} requests");
}

#[test]
fn messages_allocate_nothing_on_epoll() {
    check(IoKind::Epoll, Transport::Tcp);
}

#[test]
fn messages_allocate_nothing_on_io_uring() {
    check(IoKind::Uring, Transport::Tcp);
}

#[test]
fn messages_allocate_nothing_on_shared_memory() {
    check(IoKind::Epoll, Transport::SharedMemory);
    check(IoKind::Uring, Transport::SharedMemory);
}

/// Scenario for balancers without scenarios of their own.
const ONE_EXCHANGE: &str = r#"
backends 1
client a  sends "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
backend 0 expects "GET /a HTTP/1.1\r\n" ... "\r\n\r\n", sends "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
client a  expects "HTTP/1.1 200 OK\r\n" ... "ok", closes
"#;
/// Scenario for binary servers without scenarios of their own.
const ONE_NOOP: &str = "limit buffer_memory 8912896\nclient a sends noop\nclient a expects noop ok, closes";
/// Programs that are played something here, and what.
const PLAYED_HERE: [(&str, &str); 6] = [
    ("http_balancer/by_address.flick", ONE_EXCHANGE),
    ("http_balancer/by_url.flick", ONE_EXCHANGE),
    ("http_balancer/least_loaded.flick", ONE_EXCHANGE),
    ("http_balancer/sticky.flick", ONE_EXCHANGE),
    ("http_balancer/two_choices.flick", ONE_EXCHANGE),
    ("key_value_server/binary_server.flick", ONE_NOOP),
];
/// Scenarios of one program that are played: some of them wait for timeouts.
const SCENARIOS_OF_ONE_MAX: usize = 2;
/// Programs that are counted elsewhere: above, in `crates/flick-runtime/tests/merging`, as parts of other examples.
const COUNTED_ELSEWHERE: [&str; 3] = [
    "memcached_proxy/memcached_proxy.flick",
    "hadoop_wordcount/hadoop_wordcount.flick",
    "key_value_server/both_protocols.flick",
];

/// Longest wait of a scenario that is played by the real clock, in milliseconds.
const WAIT_MS_MAX: u64 = 100;

/// Programs that are played at the same time: most scenarios wait for a timeout.
const LANES: usize = 4;

/// Scenarios whose first request goes to the backend that is connected first, which the real clock does not fix.
const BY_ORDER_OF_CONNECTS: [&str; 2] =
    ["http_overload_retry.scn", "refused_connections_are_connect_errors.scn"];

/// Every example that is a service, by its path below `examples`, with the scenarios for it.
fn examples() -> BTreeMap<String, Vec<(String, Scenario)>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found = BTreeMap::<String, Vec<(String, Scenario)>>::new();
    let folders = std::fs::read_dir(&root).expect("the examples are there");
    for folder in folders.map(|entry| entry.expect("a readable folder").path()).filter(|path| path.is_dir()) {
        let name = |path: &std::path::Path| {
            let below = path.strip_prefix(&root).expect("it is below the examples");
            below.to_string_lossy().into_owned()
        };
        let files = std::fs::read_dir(&folder).expect("a readable folder");
        let files: Vec<_> = files.map(|entry| entry.expect("a readable folder").path()).collect();
        let ends = |path: &std::path::Path, ending: &str| path.extension().is_some_and(|is| is == ending);
        let text = |path: &std::path::Path| std::fs::read_to_string(path).expect("it is text");
        let is_service = |path: &std::path::Path| text(path).lines().any(|line| line.starts_with("proc "));
        let programs: Vec<_> = files
            .iter()
            .filter(|path| ends(path, "flick") && is_service(path))
            .map(|path| name(path))
            .collect();
        for path in files.iter().filter(|path| ends(path, "scn")) {
            let scenario = parse(&text(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let program =
                scenario.service.as_ref().map_or(programs[0].clone(), |file| name(&folder.join(file)));
            found.entry(program).or_default().push((name(path), scenario));
        }
        programs.into_iter().for_each(|program| {
            found.entry(program).or_default();
        });
    }
    for (program, text) in PLAYED_HERE {
        let scenario = parse(text).expect("it is a scenario");
        found.entry(program.to_owned()).or_default().push((program.to_owned(), scenario));
    }
    found
}

/// Gives each example to `play`, several at a time, and returns what it returned.
fn in_lanes<R: Send>(
    examples: BTreeMap<String, Vec<(String, Scenario)>>,
    play: impl Fn((String, Vec<(String, Scenario)>)) -> R + Sync,
) -> Vec<R> {
    let waiting = Mutex::new(examples);
    let next = || waiting.lock().expect("no lane panicked").pop_first();
    let lane = || std::iter::from_fn(next).map(&play).collect::<Vec<R>>();
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("no assertion failed")).collect()
    })
}

/// Returns how long a scenario waits, in milliseconds.
fn waits_ms(scenario: &Scenario) -> u64 {
    let wait_ms = |(_, step): &(_, Step)| if let Step::Wait(wait_ms) = step { *wait_ms } else { 0 };
    scenario.steps.iter().map(wait_ms).sum()
}

/// Plays scenarios of a program, the ones with short waits first; from the first iteration of its worker on, it leaves
/// the heap alone. Returns how many were played, or `None` if this machine does not grant the kernel interface.
fn check_example(program: &str, mut scenarios: Vec<(String, Scenario)>, io: IoKind) -> Option<usize> {
    assert!(!scenarios.is_empty(), "{program} has no scenario: add one beside it, or here");
    let (subject, _) = subject::example(program);
    scenarios.retain(|(_, scenario)| Transport::Tcp.plays(scenario));
    scenarios.sort_by_key(|(_, scenario)| waits_ms(scenario));
    scenarios.truncate(SCENARIOS_OF_ONE_MAX);
    for (name, scenario) in &scenarios {
        // The first time, what the process has only once comes to be: where the log's lines are, for example.
        for is_counted in [false, true] {
            let mut stage =
                Sockets::new(scenario, &subject, io, Transport::Tcp).expect("the limits exist")?;
            stage.watch(allocations);
            if let Err(what) = flick_testkit::scenario::play(scenario, &mut stage) {
                // By the clock of this machine some come true differently; the heap is to be left alone all the same.
                println!("{name} ({io:?}): {what}");
            }
            if is_counted {
                assert_eq!(stage.gauged(), 0, "{program} allocated after its start in {name} ({io:?})");
            }
        }
    }
    Some(scenarios.len())
}

/// Starts and drives each example.
fn check_examples(io: IoKind) {
    let mut examples = examples();
    examples.retain(|program, _| !COUNTED_ELSEWHERE.contains(&program.as_str()));
    let played = in_lanes(examples, |(program, scenarios)| check_example(&program, scenarios, io));
    let Some(played) = played.into_iter().collect::<Option<Vec<usize>>>() else {
        return eprintln!("not tested: this machine does not grant {io:?}");
    };
    let turned: usize = played.iter().sum();
    assert!(turned >= 20, "only {turned} scenarios were played");
}

#[test]
fn examples_allocate_nothing_after_start_on_epoll() {
    check_examples(IoKind::Epoll);
}

#[test]
fn examples_allocate_nothing_after_start_on_io_uring() {
    check_examples(IoKind::Uring);
}

/// Plays the scenarios of all examples that both `picked` and shared memory allow, each with the number that it has
/// among those of its program. `play` returns `false` if this machine does not grant the kernel interface.
fn scenarios_pass(
    picked: impl Fn(&Scenario) -> bool + Sync,
    play: impl Fn(usize, &Scenario, &Subject) -> Result<bool, String> + Sync,
) {
    let outcomes = in_lanes(examples(), |(program, mut scenarios)| {
        let (subject, _) = subject::example(&program);
        scenarios.retain(|(name, scenario)| {
            let is_ordered = BY_ORDER_OF_CONNECTS.iter().any(|one| name.ends_with(one));
            Transport::SharedMemory.plays(scenario) && picked(scenario) && !is_ordered
        });
        let numbered = scenarios.iter().enumerate();
        let play_one = |(number, (name, scenario)): (usize, &(String, Scenario))| {
            play(number, scenario, &subject).map_err(|what| format!("{name} ({number}): {what}"))
        };
        numbered.map(play_one).collect::<Vec<_>>()
    });
    let (passed, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().flatten().partition(Result::is_ok);
    let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    let played = passed.iter().filter(|played| matches!(played, Ok(true))).count();
    assert!(played >= 60, "only {played} scenarios were played");
}

#[test]
fn scenarios_of_examples_pass_on_shared_memory() {
    let is_short = |one: &Scenario| {
        one.steps.iter().all(|(_, step)| !matches!(step, Step::Wait(wait_ms) if *wait_ms > WAIT_MS_MAX))
    };
    // One after the other, because some take seconds by the real clock.
    scenarios_pass(is_short, |number, scenario, subject| {
        let io = if number.is_multiple_of(2) { IoKind::Epoll } else { IoKind::Uring };
        Sockets::play(scenario, subject, io, Transport::SharedMemory)
    });
}

#[test]
fn scenarios_of_examples_pass_on_simulated_rings() {
    // One seed after the other: waits cost nothing, but each iteration of the worker does.
    scenarios_pass(
        |_| true,
        |number, scenario, subject| {
            let seed = RING_SEEDS.start() + (number % RING_SEEDS.count()) as u64;
            Sockets::play_simulated(scenario, subject, seed).map(|()| true)
        },
    );
}
