//! After warming up, the path of a message touches the heap not once: a whole service on loopback sockets, its worker's
//! allocations counted turn by turn.

use flick_counting::{Counting, allocations};
use flick_net::IoKind;
use flick_testkit::scenario::stage::{Command, PeerId, Sockets, Stage};
use flick_testkit::scenario::{Scenario, parse};
use flick_testkit::service::memcached::{Cmd, opcode, value_of};
use flick_testkit::service::server::answer;

use super::subject;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds before counting begins: tables are touched, connections are up.
const WARM_UP_ROUNDS: u32 = 20;
/// Rounds that are counted.
const ROUNDS: u32 = 100;
/// Turns within which a round must be over.
const TURNS_MAX: u32 = 20_000;

/// What one client asks in a round: short, quiet, gathered, streamed, both ways; some over connections of this round.
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
    for _ in 0..TURNS_MAX {
        stage.turn();
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
    panic!("a round is not over after {TURNS_MAX} turns");
}

fn round(stage: &mut Sockets, steady: PeerId, backends: usize, number: u32) {
    let passing = stage.open();
    for client in [steady, passing] {
        let bytes = requests(number).iter().flat_map(Cmd::bytes).collect();
        stage.command(client, Command::Write(bytes));
        serve(stage, client, backends);
    }
    stage.command(passing, Command::Close);
}

fn check(io: IoKind) {
    let scenario: Scenario = parse("backends 2").expect("it is a scenario");
    let Some(mut stage) = Sockets::new(&scenario, &subject::native(), io).expect("the limits exist") else {
        return eprintln!("not tested: this machine does not grant {io:?}");
    };
    let steady = stage.open();
    for number in 0..WARM_UP_ROUNDS {
        round(&mut stage, steady, scenario.backends, number);
    }
    stage.watch(allocations);
    for number in 0..ROUNDS {
        round(&mut stage, steady, scenario.backends, number);
    }
    assert_eq!(stage.gauged(), 0, "the worker allocated after warming up ({io:?})");
    let requests =
        stage.counters().iter().find(|(name, _)| *name == "requests").map_or(0, |(_, count)| *count);
    assert!(requests >= i64::from(ROUNDS) * 18, "the rounds did something: {requests} requests");
}

#[test]
fn the_path_of_a_message_allocates_nothing_on_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn the_path_of_a_message_allocates_nothing_on_io_uring() {
    check(IoKind::Uring);
}
