//! The simulator as a world: the same scripts, played by actors in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use flick_net::sim::{Actor, PeerIo, SimConfig};
use flick_net::{DriverLimits, Endpoint, SimDriver, SimNet};

use crate::script::Step;
use crate::world::{Kind, ScriptResult, World, fresh_kernel};

pub trait NetworkProfile {
    fn config() -> SimConfig;
}

thread_local! {
    /// The seed of this thread's next world; tests run on threads of their own.
    static SEED: Cell<u64> = const { Cell::new(20_160_622) };
}

pub struct Quiet;
pub struct Hostile;

impl NetworkProfile for Quiet {
    fn config() -> SimConfig {
        SimConfig::default()
    }
}

impl NetworkProfile for Hostile {
    fn config() -> SimConfig {
        // Small segments, but large enough that ten megabytes take no longer than a test may.
        SimConfig {
            split_bytes_max: 1000,
            split_per_mille: 200,
            window_bytes: 60_000,
            ..SimConfig::hostile()
        }
    }
}

pub type QuietWorld = SimWorld<Quiet>;
pub type HostileWorld = SimWorld<Hostile>;

pub struct SimWorld<W> {
    net: SimNet,
    driver: SimDriver,
    results: Rc<RefCell<Vec<ScriptResult>>>,
    peers: usize,
    profile: PhantomData<W>,
}

impl<W: NetworkProfile> World for SimWorld<W> {
    type Driver = SimDriver;

    fn with_limits(limits: DriverLimits) -> SimWorld<W> {
        let net = SimNet::new(SEED.get(), W::config());
        let driver = net.driver(limits).unwrap();
        SimWorld { net, driver, results: Rc::default(), peers: 0, profile: PhantomData }
    }

    fn driver(&mut self) -> &mut SimDriver {
        &mut self.driver
    }

    fn connect(&mut self, to: &Endpoint, steps: Vec<Step>) {
        self.peers += 1;
        self.net.connect(to, 0, Player::new(steps, &self.results));
    }

    fn serve(&mut self, at: &Endpoint, scripts: Vec<Vec<Step>>) -> Endpoint {
        self.peers += scripts.len();
        let (results, mut scripts) = (Rc::clone(&self.results), scripts.into_iter());
        self.net
            .serve(at, move |_| scripts.next().map(|steps| Player::new(steps, &results) as Box<dyn Actor>))
    }

    fn peers_are_done(&mut self) -> bool {
        for result in self.results.borrow().iter() {
            if let Err(what) = result {
                panic!("a peer's {what} (seed {})", SEED.get());
            }
        }
        let done = self.results.borrow().len() == self.peers;
        assert!(done || !self.net.is_idle(), "nothing more will happen (seed {})", SEED.get());
        done
    }

    fn fresh(&self, kind: Kind) -> Endpoint {
        fresh_kernel(kind)
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// Plays a script.
struct Player {
    steps: VecDeque<Step>,
    number: usize,
    inbox: VecDeque<u8>,
    results: Rc<RefCell<Vec<ScriptResult>>>,
    is_done: bool,
}

impl Player {
    fn new(steps: Vec<Step>, results: &Rc<RefCell<Vec<ScriptResult>>>) -> Box<Player> {
        let results = Rc::clone(results);
        Box::new(Player { steps: steps.into(), number: 0, inbox: VecDeque::new(), results, is_done: false })
    }

    fn end(&mut self, outcome: ScriptResult) {
        if !std::mem::replace(&mut self.is_done, true) {
            self.results.borrow_mut().push(outcome);
        }
    }

    fn fail(&mut self, what: &str) {
        let number = self.number;
        self.end(Err(format!("step {number}: {what}")));
    }

    /// Continues until a step has to wait. A write waits too, as a blocking one would.
    fn advance(&mut self, io: &mut PeerIo<'_>) {
        while !self.is_done {
            let reads =
                matches!(self.steps.front(), Some(Step::Expect(_) | Step::ExpectEof | Step::ExpectReset));
            io.pause_reading(!reads);
            match self.steps.front() {
                Some(Step::Send(bytes)) => io.write(bytes),
                Some(Step::Expect(bytes)) => {
                    if self.inbox.len() < bytes.len() {
                        return;
                    }
                    let got: Vec<u8> = self.inbox.drain(..bytes.len()).collect();
                    if got != *bytes {
                        return self.fail("other bytes than expected");
                    }
                }
                Some(Step::ExpectEof | Step::ExpectReset) => return,
                Some(Step::ShutdownWrite) => io.shutdown_write(),
                Some(Step::Reset) => {
                    io.reset();
                    return self.end(Ok(()));
                }
                Some(Step::Wait(gate)) => {
                    if !gate.is_open() {
                        return io.timer(50_000, 0);
                    }
                }
                Some(Step::Close) | None => {
                    io.close();
                    return self.end(Ok(()));
                }
            }
            self.steps.pop_front();
            self.number += 1;
        }
    }
}

impl Actor for Player {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.advance(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        match self.steps.front() {
            Some(Step::ExpectEof) => self.fail("more bytes instead of the end"),
            Some(Step::ExpectReset) => {}
            _ => {
                self.inbox.extend(data);
                self.advance(io);
            }
        }
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        if matches!(self.steps.front(), Some(Step::ExpectEof)) {
            self.steps.pop_front();
            self.number += 1;
            self.advance(io);
        } else {
            self.fail("the end of the stream");
        }
    }

    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        if matches!(self.steps.front(), Some(Step::ExpectReset)) {
            self.end(Ok(()));
        } else {
            self.fail("a reset");
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _: u64) {
        self.advance(io);
    }
}

/// The cases that depend on how the network cuts, delays and reorders, for many seeds.
#[test]
fn many_seeds_keep_the_promises() {
    use crate::cases;
    for seed in 0..100 {
        SEED.set(seed);
        cases::echo_v4::<HostileWorld>();
        cases::receive_off_returns_no_data_and_no_eof::<HostileWorld>();
        cases::a_half_closed_peer_still_gets_its_reply::<HostileWorld>();
        cases::shutdown_ends_our_side_only::<HostileWorld>();
        cases::close_lets_a_sending_peer_read_the_final_output::<HostileWorld>();
        cases::a_reset_peer_is_a_fault::<HostileWorld>();
        cases::abort_resets_the_peer::<HostileWorld>();
        cases::connect_exchanges_data_with_a_server::<HostileWorld>();
        cases::output_appended_while_connecting_is_sent::<HostileWorld>();
        cases::shutdown_while_connecting_follows_the_output::<HostileWorld>();
        cases::abort_after_close_drops_the_rest_of_the_output::<HostileWorld>();
        cases::a_reset_while_receiving_is_off_is_reported::<HostileWorld>();
        cases::a_full_table_pauses_the_listener::<HostileWorld>();
        cases::an_empty_pool_pauses_receiving::<HostileWorld>();
    }
}
