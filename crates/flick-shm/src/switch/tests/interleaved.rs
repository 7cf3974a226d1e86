//! The interleaved run: what two threads of each end and the monitor do, and the tests.

use core::cell::{Cell, RefCell};
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

use super::raw::{fail, has_failed, one_in, point, points, random, run, take_failure};
use super::{MEMORY_BYTES, RINGS_AT, members, token};
use crate::members::Member;
use crate::raw::{Area, Words};
use crate::sleep::Fencing;
use crate::switch::{
    Freeze, Injection, Injector, SwitchHolder, SwitchReceiver, SwitchRule, SwitchSender, SwitchSteps,
    SwitchedReceive, SwitchedRing, SwitchedSend,
};
use crate::sync::AtomicU32;
use crate::sys::Mapping;
use crate::token::{TokenRule, TokenSteps};

/// Bytes of a ring: short, so that it wraps and fills often.
const RING_BYTES: u64 = 64;
/// Most bytes of one message, longer than the ring.
const MESSAGE_BYTES_MAX: u64 = 100;
/// Points of a run per cycle, after which it makes no progress.
const POINTS_PER_CYCLE_MAX: u64 = 3_000;
/// Threads of an end.
const THREADS: usize = 2;
/// Nanoseconds of a point, for what depends on time.
const POINT_NS: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
enum Rule {
    Switch(SwitchRule),
    Token(TokenRule),
}

/// The rules that a run can leave out; the number of one is its place in the list.
const RULES: [Rule; 10] = [
    Rule::Switch(SwitchRule::LookAfterTail),
    Rule::Switch(SwitchRule::LookAfterPublication),
    Rule::Switch(SwitchRule::LookAfterRelease),
    Rule::Switch(SwitchRule::TailBeforeHead),
    Rule::Switch(SwitchRule::OneCutPerEpoch),
    Rule::Switch(SwitchRule::FrozenSenderWaits),
    Rule::Switch(SwitchRule::HoldPerHolder),
    Rule::Switch(SwitchRule::OthersIdle),
    Rule::Token(TokenRule::LookAfterMark),
    Rule::Token(TokenRule::WaitForOwner),
];
/// No rule is left out.
const NONE: usize = RULES.len();

/// Steps that may switch to another coroutine, without the rule of that number.
#[derive(Clone, Copy, Debug)]
struct Interleaved<const RULE: usize>;

impl<const RULE: usize> SwitchSteps for Interleaved<RULE> {
    const WITHOUT: Option<SwitchRule> = if RULE < NONE
        && let Rule::Switch(rule) = RULES[RULE]
    {
        Some(rule)
    } else {
        None
    };

    fn reach(self) {
        point();
    }
}

impl<const RULE: usize> TokenSteps for Interleaved<RULE> {
    const WITHOUT_TOKEN_RULE: Option<TokenRule> = if RULE < NONE
        && let Rule::Token(rule) = RULES[RULE]
    {
        Some(rule)
    } else {
        None
    };

    fn step(self) {
        point();
    }

    fn pause(self, _: u32) {
        point();
    }

    fn sleep(self, _: &AtomicU32, _: u32) {
        point();
    }

    fn wake(self, _: &AtomicU32) {}

    fn now_ns(self) -> u64 {
        points() * POINT_NS
    }
}

/// State that all share outside of the protocol.
#[derive(Default)]
struct Run {
    cycles: Cell<u64>,
    cycles_max: u64,
    injected: Cell<u64>,
    stalls: Cell<u64>,
    /// Ends that the threads of an end must not receive at once: they would not know the order of what they got.
    is_ordered: bool,
    is_receiving: [Cell<bool>; 2],
    /// By end and thread.
    has_ended: [[Cell<bool>; THREADS]; 2],
    /// By end: 1 while it wants to be in the kernel only, 2 once the monitor has done its part.
    kernel_only: [Cell<u32>; 2],
    /// By end: what its threads have sent.
    sent: [[Sent; THREADS]; 2],
    /// By end: what it has received.
    received: [RefCell<Received>; 2],
}

/// Bytes that one thread has sent.
#[derive(Default)]
struct Sent {
    total: Cell<u64>,
    is_complete: Cell<bool>,
    /// Totals after each call, where another thread's bytes may follow.
    ends: RefCell<std::collections::HashSet<u64>>,
}

impl Sent {
    fn add(&self, count: usize) {
        self.total.set(self.total.get() + count as u64);
        self.ends.borrow_mut().insert(self.total.get());
    }
}

/// Bytes that the threads of an end have received.
#[derive(Default)]
struct Received {
    total: u64,
    /// By sending thread: its bytes.
    totals: [u64; THREADS],
    last: Option<usize>,
    /// Positions at which the bytes of another thread follow: the thread and its total.
    changes: Vec<(usize, u64)>,
    /// By value, for threads that receive at once.
    counts: Vec<u64>,
}

/// Returns a byte of a thread's stream: the highest bit is its number.
fn pattern(side: usize, thread: usize, offset: u64) -> u8 {
    let number = ((offset + side as u64 * 1000) % 65_521).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number.to_le_bytes()[5] & 0x7f) | (thread as u8) << 7
}

fn bytes_of(side: usize, thread: usize, offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| pattern(side, thread, at)).collect()
}

impl Run {
    /// Checks bytes that a thread of an end has received.
    fn check(&self, side: usize, bytes: &[u8]) {
        let mut received = self.received[side].borrow_mut();
        received.total += bytes.len() as u64;
        received.counts.resize(256, 0);
        for byte in bytes {
            received.counts[*byte as usize] += 1;
            let thread = usize::from(byte >> 7);
            if self.is_ordered && *byte != pattern(1 - side, thread, received.totals[thread]) {
                fail("a wrong byte");
            }
            if let Some(last) = received.last.replace(thread)
                && last != thread
            {
                let total = received.totals[last];
                received.changes.push((last, total));
            }
            received.totals[thread] += 1;
        }
    }

    /// Checks an end that has received everything.
    fn check_all(&self, side: usize) {
        let (received, sent) = (self.received[side].borrow(), &self.sent[1 - side]);
        let mut counts = std::vec![0; 256];
        for (thread, sent) in sent.iter().enumerate() {
            bytes_of(1 - side, thread, 0, sent.total.get())
                .iter()
                .for_each(|byte| counts[usize::from(*byte)] += 1);
        }
        if counts != received.counts && received.total > 0 {
            fail("bytes are lost or doubled");
        }
        let is_end = |(thread, total): &(usize, u64)| sent[*thread].ends.borrow().contains(total);
        if self.is_ordered && !received.changes.iter().all(is_end) {
            fail("the bytes of one send do not follow each other");
        }
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

/// One end, which its threads share.
struct End<S> {
    side: usize,
    socket: Rc<OwnedFd>,
    sender: SwitchSender<S>,
    receiver: SwitchReceiver<S>,
    run: Rc<Run>,
}

/// A thread of an end.
struct Worker<S> {
    end: Rc<End<S>>,
    number: usize,
    member: Member,
    /// Of the outgoing and of the incoming direction.
    injectors: [Injector<S>; 2],
    is_injecting: bool,
}

impl<S: SwitchSteps> Worker<S> {
    fn sent(&self) -> &Sent {
        &self.end.run.sent[self.end.side][self.number]
    }

    fn run(mut self) {
        let (end, run) = (Rc::clone(&self.end), Rc::clone(&self.end.run));
        let side = end.side;
        while !has_failed() {
            if run.cycles.get() >= run.cycles_max && !self.is_injecting {
                self.sent().is_complete.set(true);
            }
            let other = &run.sent[1 - side];
            let total = other.iter().map(|sent| sent.total.get()).sum::<u64>();
            if self.sent().is_complete.get()
                && other.iter().all(|sent| sent.is_complete.get())
                && run.received[side].borrow().total >= total
            {
                run.has_ended[side][self.number].set(true);
                return;
            }
            if one_in(3) {
                self.offer();
            }
            if self.is_injecting {
                self.is_injecting = !inject(&mut self.injectors[0], &end.socket, &run);
            } else if !self.sent().is_complete.get() {
                self.send();
            }
            self.receive();
            if self.number == 0 && one_in(400) && !self.sent().is_complete.get() && !self.is_injecting {
                self.use_kernel_only();
            }
            point();
        }
    }

    fn offer(&self) {
        if let Err(fault) = self.end.receiver.offer(&self.member) {
            fail(&std::format!("receiver: {fault}"));
        }
    }

    fn send(&mut self) {
        let (end, member) = (&self.end, &self.member);
        let from = self.sent().total.get();
        let message = bytes_of(end.side, self.number, from, 1 + random() % MESSAGE_BYTES_MAX);
        match end.sender.send(member, &message, one_in(2)) {
            Ok(SwitchedSend::Sent(count, _)) => self.sent().add(count),
            Ok(SwitchedSend::Kernel) => {
                let written = write_some(&end.socket, &message);
                self.sent().add(written);
                point();
                end.sender.kernel_sent(member, written);
            }
            Ok(SwitchedSend::Stalled) => {
                end.run.stalls.set(end.run.stalls.get() + 1);
                self.is_injecting = self.injectors[0].freeze(None) == Freeze::Frozen;
            }
            Ok(SwitchedSend::Wait) => {}
            Ok(other) => fail(&std::format!("{other:?}")),
            Err(fault) => fail(&std::format!("sender: {fault}")),
        }
    }

    fn receive(&self) {
        let (end, run) = (&self.end, &self.end.run);
        if run.is_ordered && run.is_receiving[end.side].replace(true) {
            point();
            return;
        }
        let mut bytes = [0; 2 * MESSAGE_BYTES_MAX as usize];
        let len = 1 + random() as usize % (bytes.len() - 1);
        match end.receiver.receive(&self.member, &mut bytes[..len]) {
            Ok(SwitchedReceive::Received(count, _)) => run.check(end.side, &bytes[..count]),
            Ok(SwitchedReceive::Kernel { .. }) => self.receive_by_kernel(),
            // The monitor returns the direction to the kernel soon.
            Ok(SwitchedReceive::Stalled) => run.stalls.set(run.stalls.get() + 1),
            Ok(SwitchedReceive::Empty) => {}
            Ok(other) => fail(&std::format!("{other:?}")),
            Err(fault) => fail(&std::format!("receiver: {fault}")),
        }
        run.is_receiving[end.side].set(false);
    }

    fn receive_by_kernel(&self) {
        let mut bytes = [0; 3 * MESSAGE_BYTES_MAX as usize];
        let len = 1 + random() as usize % (bytes.len() - 1);
        point();
        let count = match recv(&*self.end.socket, &mut bytes[..len], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                fail("the end of the stream");
                0
            }
            Ok((_, count)) => count,
            Err(Errno::AGAIN) => 0,
            Err(errno) => {
                fail(&std::format!("{errno}"));
                0
            }
        };
        point();
        self.end.run.check(self.end.side, &bytes[..count]);
        self.end.receiver.kernel_received(&self.member, count);
    }

    /// Becomes a program that knows nothing of the ring, and comes back: both directions are held in the kernel. This
    /// thread returns the outgoing direction, the monitor the incoming one.
    fn use_kernel_only(&mut self) {
        let (end, run) = (Rc::clone(&self.end), Rc::clone(&self.end.run));
        let holder = holder(end.side);
        run.kernel_only[end.side].set(1);
        let mut is_frozen = false;
        while !has_failed() {
            if !is_frozen {
                match self.injectors[0].freeze(Some(holder)) {
                    Freeze::InKernel => break,
                    Freeze::Frozen => is_frozen = true,
                    Freeze::Busy => {}
                }
            }
            if is_frozen && inject(&mut self.injectors[0], &end.socket, &run) {
                break;
            }
            self.receive();
        }
        for _ in 0..random() % 60 {
            if one_in(2) {
                self.send();
            }
            self.receive();
        }
        while !has_failed() && run.kernel_only[end.side].get() != 2 {
            self.receive();
        }
        if !self.injectors.iter().all(|injector| injector.is_held(holder)) {
            fail("another holder has taken the hold back");
        }
        run.kernel_only[end.side].set(0);
        point();
        self.injectors[1].release(holder);
        point();
        self.injectors[0].release(holder);
    }
}

fn holder(side: usize) -> SwitchHolder {
    if side == 0 { SwitchHolder::EndZero } else { SwitchHolder::EndOne }
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
        while !has_failed() && !self.run.has_ended.as_flattened().iter().all(Cell::get) {
            for direction in 0..2 {
                let receiver = 1 - direction;
                if self.is_pending[direction] {
                    self.is_pending[direction] = !self.inject(direction);
                } else if self.run.kernel_only[receiver].get() == 1 {
                    let freeze = self.injectors[direction].freeze(Some(holder(receiver)));
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
    let mapping = Arc::new(Mapping::allocate(MEMORY_BYTES));
    let members = members(&mapping);
    members.join().expect("the table is empty");
    let ring = |direction: usize| SwitchedRing {
        words: Words::at(&mapping, direction as u64 * 256).expect("inside"),
        area: Area::small(&mapping, RINGS_AT + direction as u64 * RING_BYTES, RING_BYTES),
        fencing: Fencing::Both,
        steps: Interleaved::<RULE>,
    };
    let token = |direction: usize, is_receiver| token(&mapping, direction as u64, is_receiver);
    let sockets = sockets(is_tcp, if seed.is_multiple_of(2) { 1 } else { 1 << 16 });
    let is_ordered = !(seed >> 1).is_multiple_of(3);
    let shared = Rc::new(Run { cycles_max: cycles, is_ordered, ..Run::default() });
    let ends = [0, 1].map(|side| {
        Rc::new(End {
            side,
            socket: Rc::clone(&sockets[side]),
            sender: SwitchSender::new(ring(side), token(side, false)),
            receiver: SwitchReceiver::new(ring(1 - side), token(1 - side, true)),
            run: Rc::clone(&shared),
        })
    });
    let worker = |side: usize, number: usize| {
        let member = members.add_thread().expect("there are few");
        let injectors = [side, 1 - side].map(|at| Injector::new(ring(at), member.injector_number()));
        let worker = Worker { end: Rc::clone(&ends[side]), number, member, injectors, is_injecting: false };
        Box::new(move || worker.run()) as Box<dyn FnOnce()>
    };
    let monitor = Monitor {
        injectors: [0, 1].map(|direction| Injector::new(ring(direction), 99)),
        sockets: [Rc::clone(&sockets[0]), Rc::clone(&sockets[1])],
        run: Rc::clone(&shared),
        is_pending: [false; 2],
    };
    let bodies = [worker(0, 0), worker(0, 1), worker(1, 0), worker(1, 1), Box::new(move || monitor.run())];
    run(seed, POINTS_PER_CYCLE_MAX * cycles.max(100), bodies)
        .and_then(|()| {
            (0..2).for_each(|side| shared.check_all(side));
            take_failure().map_or(Ok(()), Err)
        })
        .map_err(|why| std::format!("{why} after {} cycles, seed {seed}", shared.cycles.get()))?;
    let changes = shared.received.iter().map(|received| received.borrow().changes.len()).sum::<usize>();
    Ok(std::format!(
        "{} cycles, {} bytes injected, {} points, {changes} changes of the sender, {} stalls",
        shared.cycles.get(),
        shared.injected.get(),
        points(),
        shared.stalls.get()
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
    let cycles = number("FLICK_SHM_RULE_CYCLES", 40_000);
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

#[test]
fn without_waiting_for_the_other_threads_a_run_fails() {
    fails_without::<7>();
}

#[test]
fn without_a_rule_of_the_token_a_run_fails() {
    fails_without::<8>();
    fails_without::<9>();
}
