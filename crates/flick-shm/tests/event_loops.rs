//! Two event loops with many connections between them: each sleeps on its socket whenever it has nothing to do, and
//! reads the signals of several sleeps at once, as the kernel reports each arrival. A wake-up that is lost fails the
//! test, because no wait is expected to reach its timeout. `FLICK_SHM_REQUESTS` sets the number of requests.
#![cfg(not(loom))]

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pair::{Pair, Signals};
use flick_shm::segment::{Segment, SegmentConfig};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

const CONNS: usize = 100;
/// Seconds without a wake-up after which it is lost.
const LOST_AFTER_S: i64 = 20;
/// Bytes of a request, and of its reply.
const REQUEST_BYTES: usize = 24;

/// One side: its pair, its connections by slot, and those that it polls because they had news.
struct EventLoop {
    pair: Pair,
    epoll: OwnedFd,
    conns: Vec<Option<RingConn>>,
    polled: Vec<u32>,
    sleeps: u64,
}

impl EventLoop {
    fn new(pair: Pair) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("descriptors are free");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, pair.socket(), epoll::EventData::new_u64(0), flags).expect("it is new");
        Self { pair, epoll, conns: (0..128).map(|_| None).collect(), polled: Vec::new(), sleeps: 0 }
    }

    /// Takes the ready bits: new connections are accepted, all are polled until the next sleep.
    fn take_ready(&mut self) {
        let mut ready = Vec::new();
        self.pair.take_ready(|slot| ready.push(slot));
        for slot in ready {
            let conn = &mut self.conns[slot as usize];
            if conn.is_none() {
                *conn = self.pair.accept(slot, 4096).expect("memory");
            }
            if conn.is_some() && !self.polled.contains(&slot) {
                self.polled.push(slot);
            }
        }
    }

    /// Sleeps until the other side has news, unless it has some already.
    fn sleep(&mut self) {
        for slot in &self.polled {
            let conn = self.conns[*slot as usize].as_mut().expect("it is polled");
            conn.announce_sleep().expect("an honest peer");
        }
        let may_sleep = self.pair.prepare_sleep();
        let is_idle = self.polled.iter().all(|slot| {
            let conn = self.conns[*slot as usize].as_mut().expect("it is polled");
            conn.is_idle().expect("an honest peer")
        });
        if may_sleep && is_idle {
            self.wait();
            self.sleeps += 1;
            // The connections have announced their sleep: a ready bit says which has news.
            self.polled.clear();
        } else {
            for slot in &self.polled {
                self.conns[*slot as usize].as_mut().expect("it is polled").cancel_sleep();
            }
        }
        self.pair.wake();
    }

    /// Waits for a signal, which may be one of an earlier sleep.
    fn wait(&self) {
        let mut reports = [const { std::mem::MaybeUninit::uninit() }; 1];
        let timeout = Timespec { tv_sec: LOST_AFTER_S, tv_nsec: 0 };
        let (reports, _) = epoll::wait(&self.epoll, &mut reports[..], Some(&timeout)).expect("an epoll");
        assert_eq!(reports.len(), 1, "a wake-up is lost");
        assert_ne!(self.pair.note_signal(), Signals::Over, "the other side lives");
    }

    /// Receives from all polled connections; returns whether there was something.
    fn receive(&mut self, mut use_bytes: impl FnMut(u32, &mut RingConn, &[u8])) -> bool {
        let (mut bytes, mut is_any) = ([0; 4096], false);
        for slot in &self.polled {
            let conn = self.conns[*slot as usize].as_mut().expect("it is polled");
            if let RingRead::Bytes(count) = conn.receive(&mut bytes).expect("an honest peer") {
                is_any = true;
                use_bytes(*slot, conn, &bytes[..count]);
            }
        }
        is_any
    }
}

fn pairs() -> (Pair, Pair) {
    let config = SegmentConfig { slots: 256, arena_bytes: 1 << 20, huge_pages: false };
    let (segment, file) = Segment::create(&config).expect("memory files exist");
    let other = Segment::open(&file).expect("it is sealed");
    let (zero, one) = UnixStream::pair().expect("sockets exist");
    let zero = Pair::new(segment, Arc::new(zero.into())).expect("both are attached");
    (zero, Pair::new(other, Arc::new(one.into())).expect("both are attached"))
}

#[test]
fn no_event_loop_misses_a_wake_up_of_a_hundred_connections() {
    let asked = std::env::var("FLICK_SHM_REQUESTS").ok().and_then(|requests| requests.parse().ok());
    let requests: u64 = asked.unwrap_or(30_000);
    let (zero, one) = pairs();
    let serving = std::thread::spawn(move || {
        let (mut side, mut served) = (EventLoop::new(one), 0_u64);
        while served < requests * REQUEST_BYTES as u64 {
            side.take_ready();
            let is_any = side.receive(|_, conn, bytes| {
                assert_eq!(conn.send(bytes), Ok(bytes.len()), "the client waits for each reply");
                served += bytes.len() as u64;
            });
            if !is_any {
                side.sleep();
            }
        }
        side.sleeps
    });
    let mut side = EventLoop::new(zero);
    for _ in 0..CONNS {
        let conn = side.pair.open(4096).expect("free");
        let slot = conn.slot();
        side.conns[slot as usize] = Some(conn);
        side.polled.push(slot);
    }
    let slots = side.polled.clone();
    let mut random = 88_172_645_463_325_252_u64;
    let (mut sent, mut missing) = (0, vec![0_usize; 128]);
    let mut replied = 0;
    while replied < requests {
        // A few requests at a time, so that both sides sleep often.
        while sent < requests && sent - replied < 1 + random % 4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let slot = slots[(random >> 20) as usize % slots.len()];
            if missing[slot as usize] == 0 {
                let conn = side.conns[slot as usize].as_mut().expect("it is open");
                assert_eq!(conn.send(&[slot as u8; REQUEST_BYTES]), Ok(REQUEST_BYTES));
                missing[slot as usize] = REQUEST_BYTES;
                sent += 1;
            }
        }
        side.take_ready();
        let is_any = side.receive(|slot, _, bytes| {
            assert!(bytes.iter().all(|byte| u32::from(*byte) == slot), "a reply of another connection");
            missing[slot as usize] -= bytes.len();
            replied += u64::from(missing[slot as usize] == 0);
        });
        if !is_any {
            side.sleep();
        }
    }
    let sleeps = serving.join().expect("it only serves");
    println!("{requests} requests, {} and {sleeps} sleeps", side.sleeps);
    assert!(sleeps > 0 && side.sleeps > 0);
}
