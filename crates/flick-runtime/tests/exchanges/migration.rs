//! Clients of a worker that is replaced while their exchanges are in flight.

use std::sync::Arc;
use std::time::Duration;

use flick_runtime::{HandedConn, Successor};
use flick_testkit::scenario::parse;
use flick_testkit::scenario::stage::{Command, PeerId, Simulated, Stage};
use flick_testkit::service::Subject;

use super::tiny::{self, Kind};

/// Simulated time within which bytes arrive.
const WAIT_MS: u64 = 1_000;

/// A successor that takes no client.
#[derive(Debug)]
struct Absent;

impl Successor for Absent {
    fn take(&self, _worker: usize, client: HandedConn) -> Result<(), HandedConn> {
        Err(client)
    }
}

/// Waits until one of these peers has received exactly this, and returns it.
fn expect(stage: &mut Simulated, peers: impl Fn(&mut Simulated) -> Vec<PeerId>, text: &str) -> PeerId {
    let until_ms = stage.now_ms() + WAIT_MS;
    while stage.now_ms() < until_ms {
        stage.step();
        for peer in peers(stage) {
            let mut is_there = false;
            stage.with_input(peer, &mut |input| is_there = input == text.as_bytes());
            if is_there {
                stage.with_input(peer, &mut Vec::clear);
                return peer;
            }
        }
    }
    panic!("{text:?} has not arrived");
}

fn send(stage: &mut Simulated, peer: PeerId, text: &str) {
    stage.command(peer, Command::Write(text.into()));
}

#[test]
fn a_tunnel_that_begins_while_its_client_migrates_receives_from_it() {
    let scenario = parse("backends 1").expect("a scenario");
    let subject = Subject { program: tiny::program(Kind::Exclusive), engine: Arc::new(tiny::Tiny) };
    let mut stage = Simulated::new(&scenario, &subject).expect("limits that there are");
    let client = stage.open();
    send(&mut stage, client, "up k0\n");
    let backend = expect(&mut stage, |stage| stage.connections(0), "up k0\n");
    stage.shared().replace(Duration::from_secs(60), Arc::new(Absent));
    let replaced_ms = stage.now_ms();
    while stage.now_ms() < replaced_ms + WAIT_MS {
        stage.step();
    }
    for (from, to, text) in
        [(backend, client, "ok tunnel\n"), (client, backend, "there"), (backend, client, "back")]
    {
        send(&mut stage, from, text);
        expect(&mut stage, |_| vec![to], text);
    }
}
