//! After warming up, exchanges on dedicated connections, streamed bodies and relays do not allocate: whole services on
//! loopback sockets, their worker's allocations counted in each iteration.

use std::sync::Arc;

use flick_alloc_counter::{CountingAllocator, allocations};
use flick_net::IoKind;
use flick_testkit::scenario::parse;
use flick_testkit::scenario::stage::{Command, PeerId, Sockets, Stage, Transport};
use flick_testkit::service::Subject;

#[path = "exchanges/peers.rs"]
#[expect(dead_code, reason = "only what reads and writes messages is needed here")]
mod peers;
#[path = "exchanges/tiny.rs"]
mod tiny;

use peers::{DeliveredTo, body, message};
use tiny::Kind;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Rounds before counting begins: tables are touched, connections are up.
const WARM_UP_ROUNDS: u32 = 20;
/// Rounds that are counted.
const ROUNDS: u32 = 60;
/// Turns within which a round must be over.
const ITERATIONS_MAX: u32 = 20_000;

/// Returns the requests of one client in a round: short and long ones, some in parts, and some that fail; the last one
/// is `done`.
fn requests(kind: Kind) -> Vec<u8> {
    let (long, short) = (body("long", 50_000), body("short", 40));
    let asks = [
        message("put long0", &long, None),
        message("put long1", &long, Some(777)),
        message("put short0 hop keep=3", &short, Some(3)),
        b"get k0 retry\n".to_vec(),
        b"get k1 keep=9\n".to_vec(),
    ];
    let local = if kind == Kind::Exclusive { &b"get local0\nget quiet\nget wrong0\n"[..] } else { b"" };
    [&asks.concat()[..], local, b"get done0\n"].concat()
}

/// Lets backends answer what they were asked until the client has the reply to its last request.
fn serve(stage: &mut Sockets, client: PeerId) {
    for _ in 0..ITERATIONS_MAX {
        stage.step();
        for peer in (0..2).flat_map(|backend| stage.connections(backend)).collect::<Vec<_>>() {
            let mut asked = None;
            stage.with_input(peer, &mut |input| asked = DeliveredTo::take(input, false).expect("a request"));
            if stage.is_closed(peer) {
                stage.command(peer, Command::Close);
            }
            if let Some(request) = asked {
                let parts = (request.body.len() % 2 == 0).then_some(1 + request.body.len() / 5);
                let reply = message(&format!("ok {}", request.words[1]), &request.body, parts);
                stage.command(peer, Command::Write(reply));
            }
        }
        let mut done = false;
        stage.with_input(client, &mut |input| {
            while let Some(is_delivered) = DeliveredTo::take(input, false).expect("a reply") {
                done |= is_delivered.words.iter().any(|word| word == "done0");
            }
        });
        if done {
            return;
        }
    }
    panic!("a round is not over after {ITERATIONS_MAX} iterations: {:?}", stage.counters());
}

fn round(stage: &mut Sockets, steady: PeerId, kind: Kind) {
    let passing = stage.open();
    for client in [steady, passing] {
        stage.command(client, Command::Write(requests(kind)));
        serve(stage, client);
    }
    stage.command(passing, Command::Close);
}

fn check(io: IoKind) {
    for kind in [Kind::Exclusive, Kind::Private, Kind::Raw] {
        let scenario = parse("backends 2").expect("it is a scenario");
        let subject = Subject { program: tiny::program(kind), engine: Arc::new(tiny::Tiny) };
        let Some(mut stage) =
            Sockets::new(&scenario, &subject, io, Transport::Tcp).expect("the limits exist")
        else {
            return eprintln!("not tested: this machine does not grant {io:?}");
        };
        let steady = stage.open();
        for _ in 0..WARM_UP_ROUNDS {
            round(&mut stage, steady, kind);
        }
        stage.watch(allocations);
        for _ in 0..ROUNDS {
            round(&mut stage, steady, kind);
        }
        assert_eq!(stage.gauged(), 0, "the worker allocated after warming up ({io:?}, {kind:?})");
    }
}

#[test]
fn exchanges_and_relays_allocate_nothing_on_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn exchanges_and_relays_allocate_nothing_on_io_uring() {
    check(IoKind::Uring);
}
