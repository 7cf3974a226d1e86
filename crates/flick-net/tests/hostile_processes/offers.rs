//! Processes that offer something else than a segment and two eventfds, or stop in the middle.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use flick_shm::segment::{LAYOUT_VERSION, Segment, SegmentConfig};
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::raw::{
    self, HELLO, Map, RawPeer, SLOTS_AT, VERSION_AT, answer, connect, event, pass, wait_closed,
};
use crate::service::{Honest, ShmPeer};
use crate::with_services;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
const CONFIG: SegmentConfig = SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };

fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("flick-test", MemfdFlags::ALLOW_SEALING).expect("memory files exist");
    ftruncate(&file, bytes).expect("it can grow");
    if !seals.is_empty() {
        fcntl_add_seals(&file, seals).expect("it can be sealed");
    }
    file
}

/// Returns a segment in which one word of the header has another value.
fn segment_with(at: usize, value: u64) -> OwnedFd {
    let (_segment, file) = Segment::create(&CONFIG).expect("memory files exist");
    Map::new(&file, 4096).wide(at).store(value, Ordering::Release);
    file
}

/// The driver refuses the offer, or closes the socket at once.
fn check_refused(socket: &UnixStream, what: &str) {
    assert!(matches!(answer(socket), None | Some(0)), "{what}");
    wait_closed(socket);
}

#[test]
fn wrong_offers_are_refused_and_leave_nothing() {
    with_services(|service| {
        let honest = Honest::start(service);
        let silent: Vec<UnixStream> = (0..20).map(|_| connect(&service.shm)).collect();
        let (events, (reader, writer)) =
            ([event(EventfdFlags::empty()), event(EventfdFlags::empty())], std::io::pipe().unwrap());
        let [one, other] = [events[0].as_fd(), events[1].as_fd()];
        let files = [
            ("a file without seals", file(8 << 20, SealFlags::empty())),
            ("a file that can shrink", file(8 << 20, SealFlags::GROW)),
            ("an empty file", file(0, SEALS)),
            ("a file of one byte", file(1, SEALS)),
            ("a file of one page", file(4096, SEALS)),
            ("a file of zeros", file(8 << 20, SEALS)),
            ("a file that cannot be written", file(8 << 20, SEALS | SealFlags::WRITE)),
            ("a file of a terabyte", file(1 << 40, SEALS)),
            ("another magic", segment_with(0, 1)),
            ("another version", segment_with(VERSION_AT, u64::from(LAYOUT_VERSION) + 1)),
            ("a huge version", segment_with(VERSION_AT, u64::MAX)),
            ("many slots", segment_with(SLOTS_AT, 1 << 16)),
            ("a huge number of slots", segment_with(SLOTS_AT, u64::MAX)),
            ("a number of slots that is no power of two", segment_with(SLOTS_AT, 129)),
            ("another size", segment_with(16, 16 << 20)),
            ("a huge size", segment_with(16, u64::MAX)),
        ];
        for (what, file) in &files {
            let socket = connect(&service.shm);
            pass(&socket, &HELLO, &[file.as_fd(), one, other]);
            check_refused(&socket, what);
        }
        let good = || Segment::create(&CONFIG).expect("memory files exist").1;
        let file = good();
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Monotonic,
            rustix::time::TimerfdFlags::NONBLOCK,
        );
        let timer = timer.expect("timers exist");
        let nested = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        rustix::fs::fcntl_setfl(&nested, rustix::fs::OFlags::NONBLOCK).unwrap();
        let blocking = rustix::event::eventfd(0, EventfdFlags::empty()).unwrap();
        for (what, descriptors) in [
            ("no descriptor", &[][..]),
            ("one descriptor", &[file.as_fd()]),
            ("two descriptors", &[file.as_fd(), one]),
            ("four descriptors", &[file.as_fd(), one, other, one]),
            ("eight descriptors", &[file.as_fd(), one, other, one, one, one, one, one]),
            ("a pipe as an eventfd", &[file.as_fd(), reader.as_fd(), other]),
            ("a pipe as the other eventfd", &[file.as_fd(), one, writer.as_fd()]),
            ("a timer as an eventfd", &[file.as_fd(), one, timer.as_fd()]),
            ("an epoll as an eventfd", &[file.as_fd(), one, nested.as_fd()]),
            ("an eventfd that blocks", &[file.as_fd(), one, blocking.as_fd()]),
            ("an eventfd as a segment", &[one, one, other]),
        ] {
            let socket = connect(&service.shm);
            pass(&socket, &HELLO, descriptors);
            check_refused(&socket, what);
        }
        let descriptors = [file.as_fd(), one, other];
        for (what, message) in [
            ("half a message", &HELLO[..8]),
            ("a message of one byte", &HELLO[..1]),
            ("another protocol", b"GET / HTTP/1.1\r\n"),
            ("another version of the message", b"flickshm\xff\0\0\0\0\0\0\0"),
        ] {
            let socket = connect(&service.shm);
            pass(&socket, message, &descriptors);
            check_refused(&socket, what);
        }
        // More than the message: a pair, which ends because its processes have nothing to say.
        let socket = connect(&service.shm);
        pass(&socket, &[HELLO, HELLO].concat(), &[good().as_fd(), one, other]);
        wait_closed(&socket);
        // Ends at each step.
        drop(connect(&service.shm));
        (&connect(&service.shm)).write_all(&HELLO[..5]).unwrap();
        drop(RawPeer::offer(&service.shm, &CONFIG, EventfdFlags::empty()));
        drop(RawPeer::paired(&service.shm, &CONFIG));
        let mut peer = RawPeer::paired(&service.shm, &CONFIG);
        let conn = peer.pair().open(4096).expect("the pair is new");
        drop((peer, conn));
        // Bytes and descriptors behind the handshake end the pair.
        let peer = RawPeer::paired(&service.shm, &CONFIG);
        raw::pass(&peer.socket, b"x", &descriptors);
        wait_closed(&peer.socket);
        ShmPeer::connect(&service.shm, 4).round_trip(1000);
        silent.iter().for_each(wait_closed);
        honest.check("wrong offers");
    });
}
