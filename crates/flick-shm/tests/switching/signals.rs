//! A signal handler sends on the direction on which the thread that it interrupts sends, in the middle of its calls.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use flick_shm::members::Member;
use flick_shm::segment::{Segment, SegmentConfig, Side};
use flick_shm::switch::{
    Freeze, Injection, PlainSteps, SwitchReceiver, SwitchSender, SwitchedReceive, SwitchedSend,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{number, raw, sockets};

/// Bytes that the thread sends; a handler's bytes are others.
const BYTES: u64 = 200_000;
/// Bytes of one send.
const MESSAGE: [u8; 8] = *b"abcdefgh";
const HANDLERS_MESSAGE: [u8; 8] = *b"ABCDEFGH";

struct Sending {
    sender: SwitchSender<PlainSteps>,
    member: Member,
    socket: OwnedFd,
}

static SENDING: OnceLock<Sending> = OnceLock::new();
/// Bytes that handlers have sent, and sends that they were refused.
static SENT: AtomicU64 = AtomicU64::new(0);
static NESTED: AtomicU64 = AtomicU64::new(0);

impl Sending {
    /// Sends all or nothing; returns whether all.
    fn send(&self, message: &[u8]) -> bool {
        match self.sender.send(&self.member, message, true) {
            Ok(SwitchedSend::Sent(count, _)) => {
                assert_eq!(count, message.len(), "the ring is a multiple of both messages");
                true
            }
            Ok(SwitchedSend::Kernel) => {
                let sent = send(&self.socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                self.sender.kernel_sent(&self.member, sent.unwrap_or(0));
                assert!(sent == Ok(message.len()) || sent == Err(Errno::AGAIN));
                sent.is_ok()
            }
            Ok(SwitchedSend::Nested) => {
                NESTED.fetch_add(1, Ordering::Relaxed);
                false
            }
            Ok(SwitchedSend::Wait) => false,
            other => panic!("{other:?}"),
        }
    }
}

extern "C" fn handle(_: libc::c_int) {
    if let Some(sending) = SENDING.get()
        && sending.send(&HANDLERS_MESSAGE)
    {
        SENT.fetch_add(HANDLERS_MESSAGE.len() as u64, Ordering::Relaxed);
    }
}

struct Receiving {
    receiver: SwitchReceiver<PlainSteps>,
    member: Member,
    socket: OwnedFd,
    all: Vec<u8>,
}

impl Receiving {
    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        let count = match self.receiver.receive(&self.member, &mut bytes).expect("an honest sender") {
            SwitchedReceive::Received(count, _) => count,
            SwitchedReceive::Kernel { .. } => {
                let read = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT);
                let count = read.map_or(0, |(_, count)| count);
                self.receiver.kernel_received(&self.member, count);
                count
            }
            _ => 0,
        };
        self.all.extend(&bytes[..count]);
    }
}

#[test]
fn a_signal_handler_that_sends_in_a_send_neither_overtakes_nor_deadlocks() {
    let config = SegmentConfig { slots: 128, arena_bytes: 4096, huge_pages: false };
    let (segment, _file) = Segment::create(&config).expect("memory files exist");
    let members = segment.members().expect("memory");
    members.join().expect("the table is empty");
    let [one, other] = sockets(false);
    let bytes = number("FLICK_SHM_SIGNAL_BYTES", BYTES);
    let duplicate = one.try_clone().expect("a copy");
    let mut injector = segment.injector(0, Side::Zero, 0, 99).expect("slot 0");
    let mut receiving = Receiving {
        receiver: segment.switch_receiver(0, Side::Zero, 0).expect("slot 0"),
        member: members.add_thread().expect("there are few"),
        socket: other,
        all: Vec::new(),
    };
    let sending = Sending {
        sender: segment.switch_sender(0, Side::Zero, 0).expect("slot 0"),
        member: members.add_thread().expect("there are few"),
        socket: one,
    };
    assert!(SENDING.set(sending).is_ok());
    raw::on_signal(handle);
    let (tell, thread_of) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(raw::this_thread()).expect("the test waits");
        let (sending, mut sent) = (SENDING.get().expect("it was set"), 0);
        while sent < bytes {
            if sending.send(&MESSAGE) {
                sent += MESSAGE.len() as u64;
            } else {
                std::thread::yield_now();
            }
        }
    });
    let number = thread_of.recv().expect("it tells");
    for round in 0_u64.. {
        if thread.is_finished() {
            break;
        }
        raw::interrupt(number);
        receiving.receiver.offer(&receiving.member).expect("a barrier");
        receiving.receive();
        if round % 16 == 0 && injector.freeze(None) == Freeze::Frozen {
            let mut bytes = [0; 4096];
            while let Injection::Write(count) = injector.next(&mut bytes).expect("honest ends") {
                if let Ok(count) = send(duplicate.as_fd(), &bytes[..count], SendFlags::DONTWAIT) {
                    injector.injected(count);
                }
                receiving.receive();
            }
        }
    }
    thread.join().expect("it only sends");
    let before = receiving.all.len();
    for _ in 0..2 + before / 4096 + 64 {
        receiving.receive();
    }
    let (own, handlers): (Vec<u8>, Vec<u8>) =
        receiving.all.iter().partition(|byte| byte.is_ascii_lowercase());
    assert_eq!((own.len() as u64, handlers.len() as u64), (bytes, SENT.load(Ordering::Relaxed)));
    assert!(own.chunks(8).all(|message| message == MESSAGE));
    // A handler's bytes are never within those of a send.
    let mut rest = &receiving.all[..];
    while !rest.is_empty() {
        let is_whole = rest.starts_with(&MESSAGE) || rest.starts_with(&HANDLERS_MESSAGE);
        assert!(is_whole, "{:?}", &rest[..rest.len().min(16)]);
        rest = &rest[MESSAGE.len()..];
    }
    println!("{} bytes of handlers, {} refused", handlers.len(), NESTED.load(Ordering::Relaxed));
}
