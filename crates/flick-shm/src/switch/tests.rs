//! The transport switch on real sockets. `interleaved.rs` runs both ends and a monitor as coroutines of one thread:
//! every access to a shared word or socket is a point at which another may continue. `FLICK_SHM_CYCLES` sets how often
//! a direction returns to the kernel, `FLICK_SHM_RULE_CYCLES` the same without a rule, `FLICK_SHM_SEED` the first seed.

#[cfg(target_arch = "x86_64")]
mod interleaved;
#[cfg(target_arch = "x86_64")]
mod raw;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::vec::Vec;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::*;
use crate::sys::Mapping;

/// Both ends of a direction that is in the ring, and its socket.
struct Switched {
    mapping: Arc<Mapping>,
    sender: SwitchSender<PlainSteps>,
    receiver: SwitchReceiver<PlainSteps>,
    sockets: (UnixStream, UnixStream),
}

impl Switched {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::allocate(2 * 4096));
        let sockets = UnixStream::pair().expect("Unix sockets exist");
        let (sender, receiver) = (SwitchSender::new(ring(&mapping)), SwitchReceiver::new(ring(&mapping)));
        Self { mapping, sender, receiver, sockets }
    }

    fn injector(&self, number: u32) -> Injector<PlainSteps> {
        Injector::new(ring(&self.mapping), number)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        send(&self.sockets.0, bytes, SendFlags::DONTWAIT).expect("a short write")
    }

    /// Sends by the kernel, enters the ring, and sends there.
    fn fill(&mut self) {
        assert_eq!(self.sender.send(b"kernel", true), Ok(SwitchedSend::Kernel));
        assert_eq!(self.write(b"kernel"), 6);
        self.sender.kernel_sent(6);
        assert!(self.receiver.offer() && !self.receiver.offer());
        assert_eq!(self.sender.send(b"refused", false), Ok(SwitchedSend::Kernel));
        assert_eq!(self.sender.send(b"0123456789", true), Ok(SwitchedSend::Sent(10, Wake::NotNeeded)));
    }

    /// Receives everything that either transport has.
    fn drain(&mut self) -> Vec<u8> {
        let (mut all, mut bytes) = (Vec::new(), [0; 64]);
        loop {
            match self.receiver.receive(&mut bytes).expect("an honest sender") {
                SwitchedReceive::Received(count, _) => all.extend(&bytes[..count]),
                SwitchedReceive::Empty => return all,
                SwitchedReceive::Kernel => match recv(&self.sockets.1, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((_, count @ 1..)) => {
                        self.receiver.kernel_received(count);
                        all.extend(&bytes[..count]);
                    }
                    _ => return all,
                },
            }
        }
    }
}

fn ring(mapping: &Arc<Mapping>) -> SwitchedRing<PlainSteps> {
    SwitchedRing {
        words: Words::at(mapping, 0).expect("inside"),
        area: Area::small(mapping, 4096, 64),
        fencing: Fencing::Both,
        steps: PlainSteps,
    }
}

#[test]
fn bytes_follow_each_other_from_the_kernel_to_the_ring_and_back() {
    let mut switched = Switched::new();
    switched.fill();
    let mut bytes = [0; 64];
    assert_eq!(switched.receiver.receive(&mut bytes), Ok(SwitchedReceive::Kernel), "those before the ring");
    let (mut monitor, mut other) = (switched.injector(7), switched.injector(8));
    assert_eq!(monitor.freeze(None), Freeze::Frozen);
    assert_eq!(
        (other.freeze(None), switched.sender.send(b"x", true)),
        (Freeze::Busy, Ok(SwitchedSend::Wait))
    );
    assert_eq!(monitor.next(&mut bytes[..4]), Ok(Injection::Write(4)));
    assert_eq!(switched.write(b"0123"), 4);
    monitor.injected(4);
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Write(6)));
    assert_eq!((switched.write(&bytes[..6]), &bytes[..6]), (6, &b"456789"[..]));
    monitor.injected(6);
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Done));
    assert_eq!(switched.sender.send(b"after", true), Ok(SwitchedSend::Kernel));
    assert_eq!(switched.write(b"after"), 5);
    switched.sender.kernel_sent(5);
    assert_eq!(switched.drain(), b"kernel0123456789after");
    assert_eq!(other.freeze(Some(SwitchHolder::EndOne)), Freeze::InKernel);
    assert!(
        !switched.receiver.offer() && other.is_held(SwitchHolder::EndOne),
        "a held direction is not offered"
    );
    other.release(SwitchHolder::EndOne);
    assert!(switched.receiver.offer());
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
    assert_eq!(switched.receiver.receive_left_over(&mut bytes), Ok(0), "the kernel comes first");
    assert_eq!(monitor.next(&mut bytes), Ok(Injection::Write(10)));
    assert_eq!(switched.write(&bytes[..3]), 3);
    assert_eq!(switched.drain(), b"kernel012");
    assert_eq!(switched.receiver.receive_left_over(&mut bytes[..4]), Ok(4));
    assert_eq!(switched.receiver.receive_left_over(&mut bytes[4..]), Ok(3));
    assert_eq!(&bytes[..7], b"3456789");
    assert_eq!(switched.receiver.receive_left_over(&mut bytes), Ok(0));
    assert_eq!((own.complete_for(9), own.complete_for(7)), (Ok(false), Ok(true)));
    assert_eq!(switched.sender.send(b"after", true), Ok(SwitchedSend::Kernel));
    assert_eq!((switched.write(b"after"), switched.drain()), (5, b"after".to_vec()));
    assert!(switched.receiver.offer(), "the next epoch begins");
}

#[test]
fn wrong_words_of_the_peer_are_faults_of_the_direction() {
    let check = |corrupt: fn(&Direction), expected: PeerFault| {
        let mut switched = Switched::new();
        switched.fill();
        assert_eq!(switched.drain(), b"kernel0123456789");
        corrupt(&ring(&switched.mapping).words);
        let (mut bytes, mut monitor) = ([0; 64], switched.injector(7));
        let sent = switched.sender.send(b"x", true).err();
        let received = switched.receiver.receive(&mut bytes).err();
        let injected =
            if monitor.freeze(None) == Freeze::Frozen { monitor.next(&mut bytes).err() } else { None };
        assert_eq!(sent.or(received).or(injected), Some(expected));
    };
    check(|words| words.receiver.tail.store(3, Ordering::Relaxed), PeerFault::TailDecreased);
    check(|words| words.receiver.tail.store(17, Ordering::Relaxed), PeerFault::TailOutOfRange);
    check(|words| words.shared.data_sleep.store(9, Ordering::Relaxed), PeerFault::SleepWord);
    check(|words| words.switch.cut.store(1 << 50, Ordering::Relaxed), PeerFault::SwitchCut);
    let check_receiver = |head: u64, expected: PeerFault| {
        let mut switched = Switched::new();
        switched.fill();
        assert_eq!(switched.drain(), b"kernel0123456789");
        ring(&switched.mapping).words.sender.head.store(head, Ordering::Relaxed);
        assert_eq!(switched.receiver.receive(&mut [0; 8]), Err(expected));
    };
    check_receiver(15, PeerFault::HeadDecreased);
    check_receiver(16 + 65, PeerFault::HeadOutOfRange);
}
