//! Interleavings of the switch under weak memory: `RUSTFLAGS="--cfg loom" cargo test -p flick-shm --lib`. Two senders
//! with a token, a receiver and an injector run the code itself; loom gives loads every value that C11 allows, so no
//! ordering of a processor is relied upon. Fences are sequentially consistent on both sides: loom has no barrier on
//! other cores.

use alloc::collections::VecDeque;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;
use crate::control::{Direction, TokenWords};
use crate::members::{EndNumber, Threads};
use crate::raw::Window;
use crate::sync::AtomicU32;
use crate::token::TokenSteps;

/// Preemptions of one run: almost all faults of lock-free code show with two.
const PREEMPTIONS_MAX: usize = 2;
/// Attempts of a party that cannot continue, after which it leaves the rest to the end of the model.
const ATTEMPTS_MAX: usize = 4;

/// Steps in which a thread that waits lets others run.
#[derive(Clone, Copy, Debug)]
struct Yielding;

impl SwitchSteps for Yielding {}

impl TokenSteps for Yielding {
    fn pause(self, _: u32) {
        thread::yield_now();
    }

    fn sleep(self, _: &AtomicU32, _: u32) {
        thread::yield_now();
    }

    fn wake(self, _: &AtomicU32) {}

    // Each takeover is a quick one.
    fn now_ns(self) -> u64 {
        1
    }
}

/// A direction in shared memory, and its socket.
#[derive(Clone)]
struct Model {
    words: Words<Direction>,
    tokens: [Words<TokenWords>; 2],
    window: Window,
    threads: Threads,
    socket: Arc<Mutex<VecDeque<u8>>>,
}

impl Model {
    fn ring(&self) -> SwitchedRing<Yielding> {
        let area = self.window.area(0).expect("ring 0 exists");
        SwitchedRing { words: self.words.clone(), area, fencing: Fencing::Both, steps: Yielding }
    }

    fn token(&self, is_receiver: bool) -> Token {
        Token {
            words: self.tokens[usize::from(is_receiver)].clone(),
            end: EndNumber::new(0, 0, is_receiver),
            threads: self.threads.clone(),
            fencing: Fencing::Both,
        }
    }

    fn sender(&self) -> SwitchSender<Yielding> {
        SwitchSender::new(self.ring(), self.token(false))
    }

    /// Sends bytes; returns those that it has sent before it gave up.
    fn send(&self, member: &Member, bytes: &[u8], can_switch: bool) -> usize {
        let sender = self.sender();
        let mut sent = 0;
        for _ in 0..ATTEMPTS_MAX {
            if sent == bytes.len() {
                break;
            }
            match sender.send(member, &bytes[sent..], can_switch).expect("honest peers") {
                SwitchedSend::Sent(count, _) => sent += count,
                SwitchedSend::Kernel => {
                    self.socket.lock().expect("no thread panics").extend(&bytes[sent..]);
                    sender.kernel_sent(member, bytes.len() - sent);
                    sent = bytes.len();
                }
                _ => thread::yield_now(),
            }
        }
        sent
    }

    /// Returns the direction to the kernel.
    fn inject(&self) {
        let mut injector = Injector::new(self.ring(), 9);
        if injector.freeze(None) != Freeze::Frozen {
            return;
        }
        let mut bytes = [0; 4];
        while let Injection::Write(count) = injector.next(&mut bytes).expect("honest peers") {
            self.socket.lock().expect("no thread panics").extend(&bytes[..count]);
            injector.injected(count);
        }
    }

    /// Receives once; returns whether there was something.
    fn receive(&self, member: &Member, all: &mut Vec<u8>) -> bool {
        let receiver = SwitchReceiver::new(self.ring(), self.token(true));
        let mut bytes = [0; 4];
        let count = match receiver.receive(member, &mut bytes).expect("honest peers") {
            SwitchedReceive::Received(count, _) => count,
            SwitchedReceive::Kernel { .. } => {
                let mut socket = self.socket.lock().expect("no thread panics");
                let count = socket.len().min(bytes.len());
                for (to, from) in bytes.iter_mut().zip(socket.drain(..count)) {
                    *to = from;
                }
                drop(socket);
                receiver.kernel_received(member, count);
                count
            }
            _ => 0,
        };
        all.extend(&bytes[..count]);
        count > 0
    }
}

/// Runs two senders, a receiver, and an injector if `has_injector`; the direction is in the ring, or offered.
fn check(is_in_ring: bool, has_injector: bool, bytes: [&'static [u8]; 2]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(move || {
        let (threads, [one, other, receiving]) = Member::all();
        let token = || Words(StdArc::new(TokenWords::default()));
        let model = Model {
            words: Words(StdArc::new(Direction::default())),
            tokens: [token(), token()],
            window: Window::new(&[2]),
            threads,
            socket: Arc::default(),
        };
        let receiver = SwitchReceiver::new(model.ring(), model.token(true));
        assert!(receiver.offer(&receiving).expect("a barrier"));
        if is_in_ring {
            assert_eq!(model.sender().send(&one, &[], true).expect("honest peers"), SwitchedSend::Wait);
        }
        let sending = [(one, bytes[0]), (other, bytes[1])].map(|(member, bytes)| {
            let model = model.clone();
            thread::spawn(move || model.send(&member, bytes, true))
        });
        let mut all = Vec::new();
        for _ in 0..2 {
            model.receive(&receiving, &mut all);
        }
        if has_injector {
            model.inject();
        }
        let sent = sending.map(|sending| sending.join().expect("it only sends"));
        while model.receive(&receiving, &mut all) {}
        for (sent, bytes) in sent.into_iter().zip(bytes) {
            let received = all.iter().filter(|byte| bytes.contains(byte)).copied().collect::<Vec<_>>();
            assert_eq!(received, bytes[..sent], "the bytes of one sender, in order");
        }
    });
}

#[test]
fn two_senders_of_a_ring_lose_no_byte() {
    check(true, false, [b"a", b"b"]);
}

#[test]
fn two_senders_of_a_ring_that_is_frozen_lose_no_byte() {
    check(true, true, [b"a", b"b"]);
}

#[test]
fn two_senders_that_take_an_offer_lose_no_byte() {
    check(false, true, [b"a", b"b"]);
}
