//! The interleaved run: what the ends and the monitor do, and the tests.

use core::cell::Cell;
use std::boxed::Box;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::raw::{fail, has_failed, one_in, point, points, random, run};
use crate::raw::{Area, Words};
use crate::sleep::Fencing;
use crate::switch::{
    Freeze, Injection, Injector, SwitchHolder, SwitchReceiver, SwitchRule, SwitchSender, SwitchSteps,
    SwitchedReceive, SwitchedRing, SwitchedSend,
};
use crate::sys::Mapping;

/// Bytes of a ring: short, so that it wraps and fills often.
const RING_BYTES: u64 = 64;
/// Most bytes of one message, longer than the ring.
const MESSAGE_BYTES_MAX: u64 = 100;
/// Points of a run per cycle, after which it makes no progress.
const POINTS_PER_CYCLE_MAX: u64 = 100_000;

/// The rules that a run can leave out; the number of one is its place in the list.
const RULES: [SwitchRule; 7] = [
    SwitchRule::LookAfterTail,
    SwitchRule::LookAfterPublication,
    SwitchRule::LookAfterRelease,
    SwitchRule::TailBeforeHead,
    SwitchRule::OneCutPerEpoch,
    SwitchRule::FrozenSenderWaits,
    SwitchRule::HoldPerHolder,
];
/// No rule is left out.
const NONE: usize = RULES.len();

/// Steps that may switch to another coroutine, without the rule of that number.
#[derive(Clone, Copy, Debug)]
struct Interleaved<const RULE: usize>;

impl<const RULE: usize> SwitchSteps for Interleaved<RULE> {
    const WITHOUT: Option<SwitchRule> = if RULE < NONE { Some(RULES[RULE]) } else { None };

    fn reach(self) {
        point();
    }
}

/// State that the three share outside of the protocol.
#[derive(Default)]
struct Run {
    cycles: Cell<u64>,
    cycles_max: u64,
    injected: Cell<u64>,
    /// By end: total that it has sent, once it sends no more.
    totals: [Cell<Option<u64>>; 2],
    has_ended: [Cell<bool>; 2],
    /// By end: 1 while it wants to be in the kernel only, 2 once the monitor has done its part.
    kernel_only: [Cell<u32>; 2],
}

fn pattern(side: usize, offset: u64) -> u8 {
    ((offset + side as u64 * 1000) % 65_521).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5]
}

fn bytes_of(side: usize, offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| pattern(side, at)).collect()
}

/// Returns the other end's byte stream that was received, or fails.
fn check(side: usize, bytes: &[u8], offset: u64) {
    if bytes.iter().zip(offset..).any(|(byte, at)| *byte != pattern(1 - side, at)) {
        fail("a wrong byte");
    }
}

/// Writes without blocking; 0 if the socket is full.
fn write_some(socket: &OwnedFd, bytes: &[u8]) -> usize {
    point();
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(count) => count,
        Err(Errno::AGAIN) => 0,
        Err(errno) => {
            fail(&std::format!("{errno}"));
            0
        }
    }
}

/// Injects until all is done (`true`) or the socket is full.
fn inject<S: SwitchSteps>(injector: &mut Injector<S>, socket: &OwnedFd, run: &Run) -> bool {
    let mut bytes = [0; RING_BYTES as usize];
    while !has_failed() {
        match injector.next(&mut bytes) {
            Ok(Injection::Done) => {
                run.cycles.set(run.cycles.get() + 1);
                return true;
            }
            Ok(Injection::Write(count)) => {
                let part = if one_in(4) { 1 + random() as usize % count } else { count };
                let written = write_some(socket, &bytes[..part]);
                if written == 0 {
                    return false;
                }
                point();
                injector.injected(written);
                run.injected.set(run.injected.get() + written as u64);
            }
            Err(fault) => fail(&std::format!("injector: {fault}")),
        }
    }
    true
}

struct End<S> {
    side: usize,
    socket: Rc<OwnedFd>,
    sender: SwitchSender<S>,
    receiver: SwitchReceiver<S>,
    /// Of the outgoing and of the incoming direction.
    injectors: [Injector<S>; 2],
    run: Rc<Run>,
    is_quiet: bool,
}

impl<S: SwitchSteps> End<S> {
    fn holder(&self) -> SwitchHolder {
        if self.side == 0 { SwitchHolder::EndZero } else { SwitchHolder::EndOne }
    }

    fn run(mut self) {
        while !has_failed() {
            let run = &self.run;
            if run.cycles.get() >= run.cycles_max && !self.is_quiet {
                self.is_quiet = true;
                run.totals[self.side].set(Some(self.sender.sent()));
            }
            if self.is_quiet && run.totals[1 - self.side].get() == Some(self.receiver.received()) {
                run.has_ended[self.side].set(true);
                return;
            }
            if one_in(2) {
                self.receiver.offer();
            }
            if !self.is_quiet {
                self.send();
            }
            self.receive();
            if one_in(400) && !self.is_quiet {
                self.use_kernel_only();
            }
            point();
        }
    }

    fn send(&mut self) {
        let message = bytes_of(self.side, self.sender.sent(), 1 + random() % MESSAGE_BYTES_MAX);
        match self.sender.send(&message, one_in(2)) {
            Ok(SwitchedSend::Sent(..) | SwitchedSend::Wait) => {}
            Ok(SwitchedSend::Kernel) => self.send_by_kernel(&message),
            Err(fault) => fail(&std::format!("sender: {fault}")),
        }
    }

    fn send_by_kernel(&mut self, message: &[u8]) {
        let written = write_some(&self.socket, message);
        point();
        self.sender.kernel_sent(written);
    }

    fn receive(&mut self) {
        let mut bytes = [0; 2 * MESSAGE_BYTES_MAX as usize];
        let len = 1 + random() as usize % (bytes.len() - 1);
        match self.receiver.receive(&mut bytes[..len]) {
            Ok(SwitchedReceive::Received(count, _)) => {
                check(self.side, &bytes[..count], self.receiver.received() - count as u64);
            }
            Ok(SwitchedReceive::Kernel) => self.receive_by_kernel(),
            Ok(SwitchedReceive::Empty) => {}
            Err(fault) => fail(&std::format!("receiver: {fault}")),
        }
    }

    fn receive_by_kernel(&mut self) {
        let mut bytes = [0; 3 * MESSAGE_BYTES_MAX as usize];
        let len = 1 + random() as usize % (bytes.len() - 1);
        point();
        match recv(&*self.socket, &mut bytes[..len], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => fail("the end of the stream"),
            Ok((_, count)) => {
                check(self.side, &bytes[..count], self.receiver.received());
                self.receiver.kernel_received(count);
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => fail(&std::format!("{errno}")),
        }
    }

    /// Becomes a program that knows nothing of the ring, and comes back: both directions are held in the kernel. This
    /// end returns its outgoing direction, the monitor the incoming one.
    fn use_kernel_only(&mut self) {
        let (holder, run) = (self.holder(), Rc::clone(&self.run));
        run.kernel_only[self.side].set(1);
        let mut is_frozen = false;
        while !has_failed() {
            if !is_frozen {
                match self.injectors[0].freeze(Some(holder)) {
                    Freeze::InKernel => break,
                    Freeze::Frozen => is_frozen = true,
                    Freeze::Busy => {}
                }
            }
            if is_frozen && inject(&mut self.injectors[0], &self.socket, &run) {
                break;
            }
            self.receive_by_kernel();
        }
        for _ in 0..random() % 60 {
            if one_in(2) {
                let message = bytes_of(self.side, self.sender.sent(), 1 + random() % MESSAGE_BYTES_MAX);
                self.send_by_kernel(&message);
            }
            self.receive_by_kernel();
        }
        while !has_failed() && run.kernel_only[self.side].get() != 2 {
            self.receive_by_kernel();
        }
        if !self.injectors.iter().all(|injector| injector.is_held(holder)) {
            fail("another holder has taken the hold back");
        }
        run.kernel_only[self.side].set(0);
        point();
        self.injectors[1].release(holder);
        point();
        self.injectors[0].release(holder);
    }
}

struct Monitor<S> {
    /// By direction, which is the number of its sender.
    injectors: [Injector<S>; 2],
    sockets: [Rc<OwnedFd>; 2],
    run: Rc<Run>,
    is_pending: [bool; 2],
}

impl<S: SwitchSteps> Monitor<S> {
    fn run(mut self) {
        while !has_failed() && !self.run.has_ended.iter().all(Cell::get) {
            for direction in 0..2 {
                let receiver = 1 - direction;
                if self.is_pending[direction] {
                    self.is_pending[direction] = !self.inject(direction);
                } else if self.run.kernel_only[receiver].get() == 1 {
                    let holder = if receiver == 0 { SwitchHolder::EndZero } else { SwitchHolder::EndOne };
                    let freeze = self.injectors[direction].freeze(Some(holder));
                    self.is_pending[direction] = freeze == Freeze::Frozen && !self.inject(direction);
                    if freeze == Freeze::InKernel || (freeze == Freeze::Frozen && !self.is_pending[direction])
                    {
                        self.run.kernel_only[receiver].set(2);
                    }
                } else if one_in(2) {
                    let freeze = self.injectors[direction].freeze(None);
                    self.is_pending[direction] = freeze == Freeze::Frozen && !self.inject(direction);
                }
            }
            for _ in 0..random() % 64 {
                point();
            }
            point();
        }
    }

    fn inject(&mut self, direction: usize) -> bool {
        inject(&mut self.injectors[direction], &self.sockets[direction], &self.run)
    }
}

fn sockets(is_tcp: bool, buffer_bytes: usize) -> [Rc<OwnedFd>; 2] {
    let pair: [OwnedFd; 2] = if is_tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback exists");
        let one = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        [one.into(), listener.accept().expect("it connected").0.into()]
    } else {
        let (one, other) = UnixStream::pair().expect("Unix sockets exist");
        [one.into(), other.into()]
    };
    for socket in &pair {
        sockopt::set_socket_send_buffer_size(socket, buffer_bytes).expect("a small buffer");
    }
    pair.map(Rc::new)
}

/// Runs until directions have returned to the kernel `cycles` times; returns how many did, and the points.
fn cycle<const RULE: usize>(seed: u64, cycles: u64, is_tcp: bool) -> Result<String, String> {
    let mapping = Arc::new(Mapping::allocate(2 * 4096));
    let ring = |direction: usize| SwitchedRing {
        words: Words::at(&mapping, direction as u64 * 256).expect("inside"),
        area: Area::small(&mapping, 4096 + direction as u64 * RING_BYTES, RING_BYTES),
        fencing: Fencing::Both,
        steps: Interleaved::<RULE>,
    };
    let sockets = sockets(is_tcp, if seed.is_multiple_of(2) { 1 } else { 1 << 16 });
    let shared = Rc::new(Run { cycles_max: cycles, ..Run::default() });
    let end = |side: usize| {
        let end = End {
            side,
            socket: Rc::clone(&sockets[side]),
            sender: SwitchSender::new(ring(side)),
            receiver: SwitchReceiver::new(ring(1 - side)),
            injectors: [
                Injector::new(ring(side), 10 + side as u32),
                Injector::new(ring(1 - side), 10 + side as u32),
            ],
            run: Rc::clone(&shared),
            is_quiet: false,
        };
        Box::new(move || end.run()) as Box<dyn FnOnce()>
    };
    let monitor = Monitor {
        injectors: [Injector::new(ring(0), 7), Injector::new(ring(1), 7)],
        sockets: [Rc::clone(&sockets[0]), Rc::clone(&sockets[1])],
        run: Rc::clone(&shared),
        is_pending: [false; 2],
    };
    let bodies = [end(0), end(1), Box::new(move || monitor.run())];
    run(seed, POINTS_PER_CYCLE_MAX * cycles.max(100), bodies)
        .map_err(|why| std::format!("{why} after {} cycles, seed {seed}", shared.cycles.get()))?;
    Ok(std::format!(
        "{} cycles, {} bytes injected, {} points",
        shared.cycles.get(),
        shared.injected.get(),
        points()
    ))
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_byte_arrives_once_through_up_and_downgrades_at_any_step() {
    let (seed, cycles) = (number("FLICK_SHM_SEED", 1), number("FLICK_SHM_CYCLES", 8000));
    for (is_tcp, offset) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let seed = seed * 2 + offset;
        let done = cycle::<NONE>(seed, cycles / 4, is_tcp).unwrap_or_else(|why| panic!("{why}"));
        std::println!("{} seed {seed}: {done}", if is_tcp { "TCP" } else { "Unix" });
    }
}

/// Runs without one rule until something fails.
fn fails_without<const RULE: usize>() {
    let cycles = number("FLICK_SHM_RULE_CYCLES", 100_000);
    // Runs with sockets of both kinds: a failure needs a schedule in which the rule matters.
    let failure = (1..=8_u64).find_map(|seed| cycle::<RULE>(seed, cycles / 8, seed > 4).err());
    let failure =
        failure.unwrap_or_else(|| panic!("nothing fails in {cycles} cycles without {:?}", RULES[RULE]));
    std::println!("without {:?}: {failure}", RULES[RULE]);
}

#[test]
fn without_a_look_at_the_control_word_a_run_fails() {
    fails_without::<0>();
    fails_without::<1>();
    fails_without::<2>();
}

#[test]
fn without_one_cut_that_reads_the_tail_first_a_run_fails() {
    fails_without::<3>();
    fails_without::<4>();
}

#[test]
fn without_waiting_while_frozen_a_run_fails() {
    fails_without::<5>();
}

#[test]
fn without_a_hold_for_each_holder_a_run_fails() {
    fails_without::<6>();
}
