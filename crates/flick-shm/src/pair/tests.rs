//! Two sides of a pair in one process.

use std::os::unix::net::UnixStream;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::conn::{OpenAnswer, RingRead};
use crate::limits::SLOTS_MIN;
use crate::segment::SegmentConfig;

fn pairs(arena_bytes: u64) -> (Pair, Pair) {
    let config = SegmentConfig { slots: SLOTS_MIN, arena_bytes, huge_pages: false };
    let (zero, file) = Segment::create(&config).expect("memory files exist");
    let one = Segment::open(&file).expect("it is sealed");
    let (zero_socket, one_socket) = UnixStream::pair().expect("sockets exist");
    let zero = Pair::new(zero, Arc::new(zero_socket.into())).expect("both are attached");
    (zero, Pair::new(one, Arc::new(one_socket.into())).expect("both are attached"))
}

fn accept(pair: &mut Pair) -> Vec<RingConn> {
    let mut slots = Vec::new();
    pair.take_ready(|slot| slots.push(slot));
    slots.into_iter().filter_map(|slot| pair.accept(slot, 4096).expect("memory")).collect()
}

/// Reclaims on both sides: the side that opened finishes after the other one.
fn reclaim(zero: &mut Pair, one: &mut Pair) {
    zero.reclaim();
    one.reclaim();
    zero.reclaim();
}

fn receive(conn: &mut RingConn) -> Result<String, RingRead> {
    let mut out = [0; 64];
    match conn.receive(&mut out).expect("an honest peer") {
        RingRead::Bytes(count) => Ok(std::str::from_utf8(&out[..count]).expect("text").into()),
        other => Err(other),
    }
}

#[test]
fn both_sides_open_connections_and_exchange_bytes() {
    let (mut zero, mut one) = pairs(1 << 20);
    let (mut a, mut b) = (zero.open(4096).expect("free"), one.open(4096).expect("free"));
    assert_eq!((a.send(b"early"), b.send(b"late")), (Ok(5), Ok(4)));
    assert_eq!(receive(&mut a), Err(RingRead::Empty));
    let (mut at_one, mut at_zero) = (accept(&mut one), accept(&mut zero));
    let ([a_peer], [b_peer]) = (&mut at_one[..], &mut at_zero[..]) else { panic!("one connection each") };
    assert_eq!((receive(a_peer).as_deref(), receive(b_peer).as_deref()), (Ok("early"), Ok("late")));
    assert_eq!(a_peer.send(b"reply"), Ok(5));
    assert_eq!((receive(&mut a).as_deref(), receive(&mut a)), (Ok("reply"), Err(RingRead::Empty)));
    a.finish_sending().expect("an honest peer");
    assert_eq!(receive(a_peer), Err(RingRead::Finished));
    assert_eq!(a_peer.send(b"still"), Ok(5));
    assert_eq!(receive(&mut a).as_deref(), Ok("still"));
}

#[test]
fn a_slot_is_used_again_only_after_both_sides_closed() {
    let (mut zero, mut one) = pairs(1 << 20);
    let first = zero.open(4096).expect("free");
    let (slot, generation) = (first.slot(), first.generation);
    let accepted = accept(&mut one).pop().expect("it was opened");
    zero.close(first);
    zero.reclaim();
    assert_eq!((zero.closed_conns(), zero.ring_bytes()), (1, 4096));
    one.close(accepted);
    reclaim(&mut zero, &mut one);
    assert_eq!((zero.closed_conns(), zero.ring_bytes(), one.closed_conns(), one.ring_bytes()), (0, 0, 0, 0));
    assert!(accept(&mut one).is_empty(), "the closed connection is not accepted again");
    let second = zero.open(4096).expect("free");
    assert_eq!((second.slot(), second.generation), (slot, generation + 1));
    assert_eq!(accept(&mut one).len(), 1);
}

#[test]
fn every_slot_is_opened_once_and_the_next_open_fails() {
    let (mut zero, mut one) = pairs(1 << 20);
    let conns: Vec<_> = (0..SLOTS_MIN / 2).map(|_| zero.open(1).expect("free")).collect();
    assert_eq!(zero.open(1).err(), Some(OpenError::NoSlot));
    assert_eq!(accept(&mut one).len(), conns.len());
    assert_eq!(one.accept(conns[0].slot(), 1).expect("no error").map(|_| ()), None);
    assert_eq!(one.accept(u32::MAX, 1).expect("no error").map(|_| ()), None);
    assert_eq!(one.accept(SLOTS_MIN - 1, 1).expect("no error").map(|_| ()), None, "an own slot");
}

#[test]
fn a_connection_without_memory_is_refused_and_ends_at_the_other_side() {
    let (mut zero, mut one) = pairs(4096);
    let (mut a, _) = (zero.open(1).expect("free"), one.open(1).expect("free"));
    assert_eq!(zero.open(1).err(), Some(OpenError::NoMemory));
    let mut slots = Vec::new();
    one.take_ready(|slot| slots.push(slot));
    assert_eq!(one.accept(slots[0], 1).err(), Some(OpenError::NoMemory));
    assert_eq!(receive(&mut a), Err(RingRead::Finished));
    assert!(a.is_peer_gone() && a.is_refused_for_memory());
    zero.close(a);
    reclaim(&mut zero, &mut one);
    assert_eq!((zero.ring_bytes(), zero.closed_conns(), one.closed_conns()), (0, 0, 0));
}

#[test]
fn a_connection_shows_whether_memory_was_the_reason_for_its_refusal() {
    for is_memory in [false, true] {
        let (mut zero, mut one) = pairs(1 << 20);
        let mut conn = zero.open(4096).expect("free");
        if is_memory {
            assert!(one.refuse_for_memory(conn.slot()));
            assert!(!one.refuse_for_memory(conn.slot()), "it is refused already");
        } else {
            one.refuse(conn.slot());
        }
        assert_eq!((conn.answer(), conn.is_refused_for_memory()), (Ok(OpenAnswer::Refused), is_memory));
    }
}

#[test]
fn a_ring_is_zeroed_before_another_connection_gets_it() {
    let (mut zero, mut one) = pairs(4096);
    let mut conn = zero.open(4096).expect("free");
    assert_eq!(conn.send(b"secret"), Ok(6));
    let content = |zero: &Pair| {
        let mut bytes = [0; 4096];
        zero.segment.window(Side::Zero).area(0).expect("the only ring").copy_out(0, &mut bytes);
        bytes
    };
    assert!(content(&zero).starts_with(b"secret"));
    let accepted = accept(&mut one).pop().expect("it was opened");
    zero.close(conn);
    one.close(accepted);
    zero.reclaim();
    assert_eq!(content(&zero), [0; 4096]);
}

#[test]
fn a_ring_grows_and_shrinks_while_bytes_are_in_it() {
    let (mut zero, mut one) = pairs(1 << 20);
    let mut conn = zero.open(4096).expect("free");
    let mut peer = accept(&mut one).pop().expect("it was opened");
    let (mut sent, mut received) = (0_u64, 0_u64);
    for round in 0..200_u32 {
        let bytes: Vec<u8> = (0..3000).map(|at| ((sent + at) % 251) as u8).collect();
        sent += conn.send(&bytes).expect("an honest peer") as u64;
        let _ = zero.resize(&mut conn, 4096 << (round % 4)).expect("an honest peer");
        let mut out = std::vec![0; 2000 + 17 * (round as usize % 100)];
        if let RingRead::Bytes(count) = peer.receive(&mut out).expect("an honest peer") {
            assert!(out[..count].iter().zip(received..).all(|(byte, at)| u64::from(*byte) == at % 251));
            received += count as u64;
        }
    }
    assert!(received > 300_000 && sent - received <= 2 * 32768, "{sent} sent, {received} received");
    zero.return_unused(&mut conn).expect("an honest peer");
    assert!(zero.ring_bytes() <= 2 * 32768, "{}", zero.ring_bytes());
}

/// Memory that the kernel counts for the segment's file, after each of many connections has carried a byte each way.
#[test]
fn an_idle_connection_costs_at_most_9_kib() {
    const CONNS: u64 = 5000;
    let config = SegmentConfig { slots: 1 << 14, arena_bytes: 64 << 20, huge_pages: false };
    let (zero, file) = Segment::create(&config).expect("memory files exist");
    let one = Segment::open(&file).expect("it is sealed");
    let (zero_socket, one_socket) = UnixStream::pair().expect("sockets exist");
    let mut zero = Pair::new(zero, Arc::new(zero_socket.into())).expect("both are attached");
    let mut one = Pair::new(one, Arc::new(one_socket.into())).expect("both are attached");
    let bytes = || rustix::fs::fstat(&file).expect("it is open").st_blocks as u64 * 512;
    let before = bytes();
    let mut conns: Vec<_> = (0..CONNS).map(|_| zero.open(4096).expect("free")).collect();
    for mut peer in accept(&mut one) {
        assert_eq!(peer.send(b"a"), Ok(1));
    }
    for conn in &mut conns {
        assert_eq!((conn.send(b"b"), receive(conn).as_deref()), (Ok(1), Ok("a")));
    }
    let each = (bytes() - before) / CONNS;
    std::println!("{each} bytes for each of {CONNS} connections");
    assert!(each <= 9 << 10, "{each} bytes");
}

#[test]
fn an_event_loop_is_signalled_once_while_it_sleeps() {
    let (mut zero, mut one) = pairs(1 << 20);
    let mut conn = zero.open(4096).expect("free");
    let mut peer = accept(&mut one).pop().expect("it was opened");
    let is_signalled = |pair: &Pair| pair.take_signals() == Signals::Arrived;
    assert_eq!((conn.send(b"a"), is_signalled(&one)), (Ok(1), false), "an awake side needs no signal");
    peer.announce_sleep().expect("an honest peer");
    assert!(one.prepare_sleep() && !peer.is_idle().expect("an honest peer"), "a byte is there");
    one.end_sleep();
    assert_eq!(receive(&mut peer).as_deref(), Ok("a"));
    peer.announce_sleep().expect("an honest peer");
    assert!(one.prepare_sleep() && peer.is_idle().expect("an honest peer"));
    assert_eq!((conn.send(b"b"), conn.send(b"c")), (Ok(1), Ok(1)));
    assert!(is_signalled(&one) && !is_signalled(&one));
    one.end_sleep();
    let mut slots = Vec::new();
    one.take_ready(|slot| slots.push(slot));
    assert_eq!(slots, [peer.slot()]);
    assert_eq!(receive(&mut peer).as_deref(), Ok("bc"));
}

/// The other side announces sleeps and takes no signal, until its socket takes no further one.
#[test]
fn unread_signals_blocked_the_side_that_signals() {
    let (mut zero, one) = pairs(1 << 20);
    let conn = zero.open(4096).expect("free");
    let signalling = std::thread::spawn(move || {
        for _ in 0..10_000 {
            one.announce_sleep();
            zero.notifier.mark_ready(conn.slot());
        }
        one
    });
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !signalling.is_finished() {
        assert!(std::time::Instant::now() < end, "a signal blocks");
        std::thread::yield_now();
    }
    let one = signalling.join().expect("it only signals");
    assert_eq!(one.take_signals(), Signals::Arrived);
}

/// An event loop reads few of its signals, because the kernel reports each arrival; the socket holds a few hundred.
#[test]
fn signals_that_fill_the_socket_lose_no_wake_up() {
    use rustix::event::{Timespec, epoll};
    let (mut zero, one) = pairs(1 << 20);
    let conn = zero.open(4096).expect("free");
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("descriptors are free");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&watch, one.socket(), epoll::EventData::new_u64(0), flags).expect("it is new");
    for sleep in 0..2000 {
        one.take_ready(|_| {});
        assert!(one.prepare_sleep(), "nothing is ready");
        zero.notifier.mark_ready(conn.slot());
        let mut reports = [const { core::mem::MaybeUninit::uninit() }; 1];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (reports, _) = epoll::wait(&watch, &mut reports[..], Some(&no_wait)).expect("an epoll");
        assert_eq!(reports.len(), 1, "the signal of sleep {sleep} is lost");
        assert_eq!(one.note_signal(), Signals::Arrived);
        one.wake();
    }
}

/// Rounds after which a pair has few slots left that the peer has not spoilt, and a new pair begins.
const ROUNDS_PER_PAIR: u64 = 500;

/// Writes a number that the peer should not write into one word of a slot or of a side.
fn corrupt(zero: &Pair, one: &Pair, next: &mut dyn FnMut() -> u64) {
    // The first slots are those that are opened first.
    let slots = if next().is_multiple_of(2) { 8 } else { SLOTS_MIN };
    let slot = (next() % u64::from(slots)) as u32;
    let words = zero.words(slot, if next().is_multiple_of(2) { Side::Zero } else { Side::One });
    let value = if next().is_multiple_of(2) { next() % 4 } else { next() };
    match next() % 10 {
        0 => words.sender.generation.store(value as u32, Ordering::Relaxed),
        1 => words.sender.ring_location[0].store(value, Ordering::Relaxed),
        2 => words.sender.head.store(value, Ordering::Relaxed),
        3 => words.receiver.tail.store(value, Ordering::Relaxed),
        4 => words.shared.receiver_closed.store(value as u32, Ordering::Relaxed),
        5 => one.notifier.ready.set(slot),
        6 => one.own.sleep.store(value as u32, Ordering::Relaxed),
        _ => words.sender.ring_number.store(value as u32, Ordering::Relaxed),
    }
}

/// Opens, accepts, uses, closes and reclaims on the honest side; returns whether there was a fault.
fn step(zero: &mut Pair, conns: &mut Vec<RingConn>, next: &mut dyn FnMut() -> u64) -> bool {
    match next() % 4 {
        0 => conns.extend(zero.open(next() % 9000).ok()),
        1 => {
            let mut slots = Vec::new();
            zero.take_ready(|slot| slots.push(slot));
            conns.extend(slots.into_iter().filter_map(|slot| zero.accept(slot, 1).ok().flatten()));
        }
        _ => {}
    }
    let mut is_fault = false;
    if !conns.is_empty() {
        let at = (next() % conns.len() as u64) as usize;
        let conn = &mut conns[at];
        let result = conn.send(&[7; 300]).and_then(|_| conn.receive(&mut [0; 500])).and_then(|_| {
            conn.announce_sleep()?;
            conn.is_idle()?;
            conn.cancel_sleep();
            zero.resize(conn, 8192)
        });
        is_fault = result.is_err();
        if is_fault || next().is_multiple_of(8) {
            zero.close(conns.swap_remove(at));
        }
    }
    zero.reclaim();
    let _ = zero.prepare_sleep();
    zero.end_sleep();
    is_fault
}

#[test]
fn a_peer_that_corrupts_slots_causes_faults_and_nothing_else() {
    let asked = std::env::var("FLICK_SHM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: u64 = asked.unwrap_or(50_000);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut faults, mut used) = (0_u64, 0_u64);
    for _ in 0..rounds.div_ceil(ROUNDS_PER_PAIR) {
        let ((mut zero, one), mut conns) = (pairs(1 << 20), Vec::new());
        for _ in 0..ROUNDS_PER_PAIR {
            corrupt(&zero, &one, &mut next);
            faults += u64::from(step(&mut zero, &mut conns, &mut next));
            used += u64::from(!conns.is_empty());
        }
    }
    std::println!("{rounds} rounds, {used} with a connection, {faults} faults");
    assert!(faults > 0 && used > rounds / 2, "{used} rounds with a connection, {faults} faults");
}
