//! The transport switch on real sockets. `interleaved.rs` runs both ends and a monitor as coroutines of one thread:
//! every access to a shared word or socket is a point at which another may continue. `FLICK_SHM_CYCLES` sets how often
//! a direction returns to the kernel, `FLICK_SHM_RULE_CYCLES` the same without a rule, `FLICK_SHM_SEED` the first seed.

#[cfg(target_arch = "x86_64")]
mod interleaved;
#[cfg(target_arch = "x86_64")]
mod raw;
mod scripted;
mod stopped;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::vec::Vec;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::*;
use crate::control::Direction;
use crate::limits::{PROCESSES_MAX, THREADS_MAX};
use crate::members::{EndNumber, Members, Threads};
use crate::raw::WordList;
use crate::sleep::Wake;
use crate::sys::Mapping;

/// Bytes of the memory of a test: control words, members, rings.
const MEMORY_BYTES: usize = 8 * 4096;
/// Offset of the rings.
const RINGS_AT: u64 = 7 * 4096;

/// Returns the members of a test.
fn members(mapping: &Arc<Mapping>) -> Members {
    Members::new(threads(mapping)).expect("memory")
}

fn threads(mapping: &Arc<Mapping>) -> Threads {
    Threads {
        header: Words::at(mapping, 4096).expect("inside"),
        records: WordList::at(mapping, 4096 + 64, THREADS_MAX).expect("inside"),
        processes: WordList::at(mapping, 6 * 4096, PROCESSES_MAX).expect("inside"),
    }
}

/// Returns the token of an end of a direction.
fn token(mapping: &Arc<Mapping>, direction: u64, is_receiver: bool) -> Token {
    Token {
        words: Words::at(mapping, 1024 + (direction * 2 + u64::from(is_receiver)) * 64).expect("inside"),
        end: EndNumber::new(0, direction as u32, is_receiver),
        threads: threads(mapping),
        fencing: Fencing::Both,
    }
}

/// Both ends of a direction that is in the ring, a thread at each, and its socket.
struct Switched {
    mapping: Arc<Mapping>,
    members: Members,
    sending: Member,
    receiving: Member,
    sender: SwitchSender<PlainSteps>,
    receiver: SwitchReceiver<PlainSteps>,
    sockets: (UnixStream, UnixStream),
}

impl Switched {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::allocate(MEMORY_BYTES));
        let sockets = UnixStream::pair().expect("Unix sockets exist");
        let sender = SwitchSender::new(ring(&mapping), token(&mapping, 0, false));
        let receiver = SwitchReceiver::new(ring(&mapping), token(&mapping, 0, true));
        let members = members(&mapping);
        members.join().expect("the table is empty");
        let [sending, receiving] = [(); 2].map(|()| members.add_thread().expect("there are few"));
        Self { mapping, members, sending, receiving, sender, receiver, sockets }
    }

    fn send(&self, bytes: &[u8], can_switch: bool) -> Result<SwitchedSend, PeerFault> {
        self.sender.send(&self.sending, bytes, can_switch)
    }

    fn receive(&self, out: &mut [u8]) -> Result<SwitchedReceive, PeerFault> {
        self.receiver.receive(&self.receiving, out)
    }

    fn offer(&self) -> bool {
        self.receiver.offer(&self.receiving).expect("a barrier")
    }

    /// Sends through the kernel.
    fn send_by_kernel(&mut self, bytes: &[u8]) {
        assert_eq!(self.send(bytes, true), Ok(SwitchedSend::Kernel));
        assert_eq!(self.write(bytes), bytes.len());
        self.sender.kernel_sent(&self.sending, bytes.len());
    }

    fn injector(&self, number: u32) -> Injector<PlainSteps> {
        Injector::new(ring(&self.mapping), number)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        send(&self.sockets.0, bytes, SendFlags::DONTWAIT).expect("a short write")
    }

    /// Sends by the kernel, enters the ring, and sends there.
    fn fill(&mut self) {
        self.send_by_kernel(b"kernel");
        assert!(self.offer() && !self.offer());
        assert_eq!(self.send(b"refused", false), Ok(SwitchedSend::Kernel));
        self.sender.kernel_sent(&self.sending, 0);
        assert_eq!(self.send(b"0123456789", true), Ok(SwitchedSend::Sent(10, Wake::NotNeeded)));
    }

    /// Receives everything that either transport has.
    fn drain(&mut self) -> Vec<u8> {
        let (mut all, mut bytes) = (Vec::new(), [0; 64]);
        loop {
            match self.receive(&mut bytes).expect("an honest sender") {
                SwitchedReceive::Received(count, _) => all.extend(&bytes[..count]),
                SwitchedReceive::Kernel { .. } => {
                    let read = recv(&self.sockets.1, &mut bytes, RecvFlags::DONTWAIT);
                    let count = read.map_or(0, |(_, count)| count);
                    self.receiver.kernel_received(&self.receiving, count);
                    if count == 0 {
                        return all;
                    }
                    all.extend(&bytes[..count]);
                }
                _ => return all,
            }
        }
    }
}

fn ring(mapping: &Arc<Mapping>) -> SwitchedRing<PlainSteps> {
    ring_with(mapping, PlainSteps)
}

fn ring_with<S>(mapping: &Arc<Mapping>, steps: S) -> SwitchedRing<S> {
    SwitchedRing {
        words: Words::at(mapping, 0).expect("inside"),
        area: Area::small(mapping, RINGS_AT, 64),
        fencing: Fencing::Both,
        steps,
    }
}

#[test]
fn bytes_follow_each_other_from_the_kernel_to_the_ring_and_back() {
    let mut switched = Switched::new();
    switched.fill();
    let mut bytes = [0; 64];
    let kernel = Ok(SwitchedReceive::Kernel { may_sleep: false });
    assert_eq!(switched.receive(&mut bytes), kernel, "those before the ring");
    switched.receiver.kernel_received(&switched.receiving, 0);
    let (mut monitor, mut other) = (switched.injector(7), switched.injector(8));
    assert_eq!(monitor.freeze(None), Freeze::Frozen);
    assert_eq!((other.freeze(None), switched.send(b"x", true)), (Freeze::Busy, Ok(SwitchedSend::Wait)));
    assert_eq!(monitor.next(&mut bytes[..4]), Ok(Injection::Write(4)));
    assert_eq!(switched.write(b"0123"), 4);
    monitor.injected(4);
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Write(6)));
    assert_eq!((switched.write(&bytes[..6]), &bytes[..6]), (6, &b"456789"[..]));
    monitor.injected(6);
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Done));
    switched.send_by_kernel(b"after");
    assert_eq!(switched.drain(), b"kernel0123456789after");
    assert_eq!(other.freeze(Some(SwitchHolder::EndOne)), Freeze::InKernel);
    assert!(!switched.offer() && other.is_held(SwitchHolder::EndOne), "a held direction is not offered");
    other.release(SwitchHolder::EndOne);
    assert!(switched.offer());
}

#[test]
fn a_sender_continues_the_injection_of_a_dead_monitor() {
    // The monitor dies before its first write, between two writes, or after a write that it has not counted.
    for (written, counted) in [(0, 0), (4, 4), (4, 0), (10, 4)] {
        let mut switched = Switched::new();
        switched.fill();
        let (mut monitor, mut own) = (switched.injector(7), switched.injector(8));
        assert_eq!(monitor.freeze(None), Freeze::Frozen);
        let mut bytes = [0; 64];
        assert_eq!(monitor.next(&mut bytes), Ok(Injection::Write(10)));
        if written > 0 {
            assert_eq!(switched.write(&bytes[..written]), written);
        }
        monitor.injected(counted);
        assert_eq!(own.continue_for(9, 6), Ok(false), "another injector is at work");
        assert_eq!(own.continue_for(7, 6 + written as u64), Ok(true));
        while let Injection::Write(count) = own.next(&mut bytes).expect("an honest peer") {
            assert_eq!(switched.write(&bytes[..count]), count);
            own.injected(count);
        }
        assert_eq!(switched.drain(), b"kernel0123456789", "{written} written, {counted} counted");
    }
}

#[test]
fn an_injector_that_died_before_it_froze_is_succeeded() {
    let mut switched = Switched::new();
    switched.fill();
    ring(&switched.mapping).words.shared.injector.store(7, Ordering::Relaxed);
    let mut own = switched.injector(8);
    assert_eq!((own.freeze(None), own.discard_dead(9), own.discard_dead(7)), (Freeze::Busy, false, true));
    assert_eq!((own.freeze(None), own.discard_dead(8)), (Freeze::Frozen, false));
}

#[test]
fn a_receiver_reads_the_rest_of_the_ring_when_all_injectors_are_dead() {
    let mut switched = Switched::new();
    switched.fill();
    let (mut monitor, mut own) = (switched.injector(7), switched.injector(8));
    assert_eq!((own.complete_for(7), monitor.freeze(None)), (Ok(false), Freeze::Frozen));
    let mut bytes = [0; 64];
    assert_eq!(
        switched.receiver.receive_left_over(&switched.receiving, &mut bytes),
        Ok(0),
        "the kernel comes first"
    );
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Write(10)));
    assert_eq!(switched.write(&bytes[..3]), 3);
    assert_eq!(switched.drain(), b"kernel012");
    assert_eq!(switched.receiver.receive_left_over(&switched.receiving, &mut bytes[..4]), Ok(4));
    assert_eq!(switched.receiver.receive_left_over(&switched.receiving, &mut bytes[4..]), Ok(3));
    assert_eq!(&bytes[..7], b"3456789");
    assert_eq!(switched.receiver.receive_left_over(&switched.receiving, &mut bytes), Ok(0));
    assert_eq!((own.complete_for(9), own.complete_for(7)), (Ok(false), Ok(true)));
    switched.send_by_kernel(b"after");
    assert_eq!(switched.drain(), b"after");
    assert!(switched.offer(), "the next epoch begins");
}

#[test]
fn wrong_words_of_the_peer_are_faults_of_the_direction() {
    let check = |corrupt: fn(&Direction), expected: PeerFault| {
        let mut switched = Switched::new();
        switched.fill();
        assert_eq!(switched.drain(), b"kernel0123456789");
        corrupt(&ring(&switched.mapping).words);
        let (mut bytes, mut monitor) = ([0; 64], switched.injector(7));
        let sent = switched.send(b"x", true).err();
        let received = switched.receive(&mut bytes).err();
        let injected =
            if monitor.freeze(None) == Freeze::Frozen { monitor.next(&mut bytes).err() } else { None };
        assert_eq!(sent.or(received).or(injected), Some(expected));
    };
    check(|words| words.receiver.tail.store(11, Ordering::Relaxed), PeerFault::TailOutOfRange);
    check(|words| words.sender.head.store(10 + 65, Ordering::Relaxed), PeerFault::TailOutOfRange);
    check(|words| words.shared.data_sleep.store(9, Ordering::Relaxed), PeerFault::SleepWord);
    check(|words| words.switch.cut.store(1 << 50, Ordering::Relaxed), PeerFault::SwitchCut);
    let check_receiver = |head: u64, expected: PeerFault| {
        let mut switched = Switched::new();
        switched.fill();
        assert_eq!(switched.drain(), b"kernel0123456789");
        ring(&switched.mapping).words.sender.head.store(head, Ordering::Relaxed);
        assert_eq!(switched.receive(&mut [0; 8]), Err(expected));
    };
    check_receiver(9, PeerFault::HeadDecreased);
    check_receiver(10 + 65, PeerFault::HeadOutOfRange);
}
