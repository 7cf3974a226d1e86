//! The ring against a queue of the standard library, and against a peer that writes anything into its words.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::arena::Arena;
use crate::control::Direction;
use crate::sync::AtomicU32;
use crate::sys::Mapping;

const ARENA_BYTES: u64 = 64 << 10;

/// Both sides of a ring in memory of this process.
struct Both {
    mapping: Arc<Mapping>,
    arena: Arena,
    sender: RingSender,
    receiver: RingReceiver,
}

impl Both {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::allocate(4096 + ARENA_BYTES as usize));
        let mut arena = Arena::new(ARENA_BYTES);
        let location = arena.take(4096).expect("an empty arena");
        let words = || Words::at(&mapping, 0).expect("a page");
        let window = Window::at(&mapping, 4096, ARENA_BYTES).expect("the rest");
        let sender = RingSender::new(words(), window.clone(), Fencing::Both, location).expect("valid");
        let receiver = RingReceiver::new(words(), window, Fencing::Both).expect("valid");
        Self { mapping, arena, sender, receiver }
    }

    fn words(&self) -> Words<Direction> {
        Words::at(&self.mapping, 0).expect("a page")
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Publish,
    Pop(usize),
    Release,
    Change(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..20_000_usize).prop_map(Step::Push),
        2 => Just(Step::Publish),
        3 => (0..20_000_usize).prop_map(Step::Pop),
        2 => Just(Step::Release),
        1 => (0..4_u32).prop_map(Step::Change),
    ]
}

const CASES: u32 = if cfg!(miri) { 2 } else { 256 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_ring_delivers_what_a_queue_delivers(steps in prop::collection::vec(step(), 1..100)) {
        let mut both = Both::new();
        // Bytes copied in, published, and not read.
        let (mut pushed, mut published) = (VecDeque::new(), VecDeque::new());
        let (mut next, mut in_use) = (0_u8, 0);
        for step in steps {
            match step {
                Step::Push(len) => {
                    let bytes: Vec<u8> = (0..len).map(|at| next.wrapping_add(at as u8)).collect();
                    let count = both.sender.push(&bytes).expect("honest");
                    prop_assert!(count == len || both.sender.free_bytes(usize::MAX).expect("honest") == 0);
                    next = next.wrapping_add(count as u8);
                    pushed.extend(&bytes[..count]);
                }
                Step::Publish => {
                    prop_assert_eq!(both.sender.publish(), Ok(Wake::NotNeeded));
                    in_use += pushed.len();
                    published.append(&mut pushed);
                }
                Step::Pop(len) => {
                    let mut out = std::vec![0; len];
                    let count = both.receiver.pop(&mut out).expect("honest");
                    // A smaller ring that follows a larger one needs another call.
                    prop_assert!(count == len.min(published.len()) || both.receiver.next.is_some());
                    let expected: Vec<u8> = published.drain(..count).collect();
                    prop_assert_eq!(&out[..count], &expected[..]);
                }
                Step::Release => {
                    prop_assert_eq!(both.receiver.release(), Ok(Wake::NotNeeded));
                    in_use = published.len();
                }
                Step::Change(order) => {
                    let _ = both.sender.publish().expect("honest");
                    in_use += pushed.len();
                    published.append(&mut pushed);
                    if let Some(unused) = both.sender.take_unused_ring().expect("honest") {
                        both.arena.give_back(unused);
                    }
                    if let Some(location) = both.arena.take(4096 << order)
                        && !both.sender.change_ring(location).expect("honest")
                    {
                        both.arena.give_back(location);
                    }
                }
            }
            prop_assert!(in_use >= published.len());
        }
    }
}

#[test]
fn a_sleeping_side_is_woken_once_by_the_kind_of_its_sleep() {
    let mut both = Both::new();
    assert_eq!(both.receiver.prepare_sleep(SleepKind::EventLoop), Ok(true));
    assert_eq!(both.sender.push(b"a"), Ok(1));
    assert_eq!((both.sender.publish(), both.sender.publish()), (Ok(Wake::EventLoop), Ok(Wake::NotNeeded)));
    assert_eq!(both.receiver.prepare_sleep(SleepKind::Thread), Ok(false));
    assert_eq!(both.sender.push(&[0; 5000]), Ok(4095));
    assert_eq!(both.sender.publish(), Ok(Wake::NotNeeded));
    assert_eq!(both.sender.prepare_sleep(SleepKind::Thread), Ok(true));
    let mut out = [0; 2047];
    assert_eq!((both.receiver.pop(&mut out), both.receiver.release()), (Ok(2047), Ok(Wake::NotNeeded)));
    assert_eq!((both.receiver.pop(&mut out[..1]), both.receiver.release()), (Ok(1), Ok(Wake::Thread)));
    assert_eq!(both.sender.prepare_sleep(SleepKind::Thread), Ok(false));
}

#[test]
fn each_wrong_index_is_reported_by_what_the_peer_did() {
    let check = |corrupt: fn(&Direction), expected: PeerFault| {
        let mut both = Both::new();
        assert_eq!(both.sender.push(&[1; 100]).and(both.sender.publish()), Ok(Wake::NotNeeded));
        assert_eq!(both.receiver.pop(&mut [0; 50]).and(both.receiver.release()), Ok(Wake::NotNeeded));
        assert_eq!(
            (both.sender.free_bytes(usize::MAX), both.receiver.available_bytes(50)),
            (Ok(4046), Ok(50))
        );
        corrupt(&both.words());
        let sent = both.sender.free_bytes(usize::MAX).and(both.sender.push(b"x")).and(both.sender.publish());
        let received = both.receiver.available_bytes(usize::MAX).and(both.receiver.pop(&mut [0; 200]));
        assert_eq!(sent.err().or(received.err()), Some(expected));
    };
    check(|words| words.receiver.tail.store(49, Ordering::Relaxed), PeerFault::TailDecreased);
    check(|words| words.receiver.tail.store(101, Ordering::Relaxed), PeerFault::TailOutOfRange);
    check(|words| words.shared.data_sleep.store(3, Ordering::Relaxed), PeerFault::SleepWord);
    // The sender's own publication would repair its index, so these run without it.
    let check = |corrupt: fn(&Direction), expected: PeerFault| {
        let mut both = Both::new();
        assert_eq!(both.sender.push(&[1; 100]).and(both.sender.publish()), Ok(Wake::NotNeeded));
        assert_eq!(both.receiver.available_bytes(1), Ok(100));
        corrupt(&both.words());
        assert_eq!(both.receiver.available_bytes(usize::MAX), Err(expected));
    };
    check(|words| words.sender.head.store(99, Ordering::Relaxed), PeerFault::HeadDecreased);
    check(|words| words.sender.head.store(4097, Ordering::Relaxed), PeerFault::HeadOutOfRange);
    check(|words| words.sender.ring_number.store(2, Ordering::Relaxed), PeerFault::RingNumber);
    check(|words| words.sender.ring_number.store(1, Ordering::Relaxed), PeerFault::RingStart);
    let move_to = |words: &Direction, location| {
        words.sender.ring_location[1].store(location, Ordering::Relaxed);
        words.sender.ring_start[1].store(100, Ordering::Relaxed);
        words.sender.ring_number.store(1, Ordering::Relaxed);
    };
    let mut both = Both::new();
    assert_eq!(both.sender.push(&[1; 100]).and(both.sender.publish()), Ok(Wake::NotNeeded));
    move_to(&both.words(), 1 << 40);
    assert_eq!(both.receiver.available_bytes(1), Err(PeerFault::RingLocation));
}

#[test]
fn known_bytes_are_delivered_before_a_fault_and_later_calls_report_it_again() {
    let mut both = Both::new();
    assert_eq!(both.sender.push(b"first").and(both.sender.publish()), Ok(Wake::NotNeeded));
    let location = both.arena.take(8192).expect("memory");
    assert_eq!(both.sender.change_ring(location), Ok(true));
    assert_eq!(both.sender.push(b"second").and(both.sender.publish()), Ok(Wake::NotNeeded));
    // The receiver learns of both rings, then the index jumps beyond the second one.
    assert_eq!(both.receiver.available_bytes(1), Ok(5));
    both.words().sender.head.store(5 + 8193, Ordering::Relaxed);
    let mut out = [0; 5];
    assert_eq!((both.receiver.pop(&mut out), &out), (Ok(5), b"first"));
    assert_eq!(both.receiver.release(), Ok(Wake::NotNeeded));
    assert_eq!(both.receiver.pop(&mut out), Err(PeerFault::HeadOutOfRange));
    assert_eq!(both.receiver.prepare_sleep(SleepKind::Thread), Err(PeerFault::HeadOutOfRange));
}

/// A generator of numbers from a seed, the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number that is small, near a limit, near an expected value, or anything.
    fn hostile(&mut self, near: u64) -> u64 {
        let small = self.next() % 8192;
        match self.next() % 6 {
            0 => small,
            1 => near.wrapping_add(small % 64).wrapping_sub(32),
            2 => near.wrapping_add(small),
            3 => u64::MAX - small,
            4 => 1 << (small % 64),
            _ => self.next(),
        }
    }
}

/// Writes a hostile number into one of a direction's words.
fn corrupt(words: &Direction, random: &mut Random) {
    let which = random.next() % 14;
    let (head, tail) =
        (words.sender.head.load(Ordering::Relaxed), words.receiver.tail.load(Ordering::Relaxed));
    let store = |word: &AtomicU32, value: u64| word.store(value as u32, Ordering::Relaxed);
    match which {
        0 | 1 => words.sender.head.store(random.hostile(head), Ordering::Relaxed),
        2 | 3 => words.receiver.tail.store(random.hostile(tail), Ordering::Relaxed),
        4 => {
            let number = words.sender.ring_number.load(Ordering::Relaxed);
            store(&words.sender.ring_number, random.hostile(u64::from(number)));
        }
        5 | 6 => {
            let at = random.next() as usize % 2;
            words.sender.ring_location[at].store(random.hostile(0x101), Ordering::Relaxed);
        }
        7 => {
            let at = random.next() as usize % 2;
            words.sender.ring_start[at].store(random.hostile(head), Ordering::Relaxed);
        }
        8 => store(&words.sender.closed, random.hostile(0)),
        9 => store(&words.shared.receiver_closed, random.hostile(0)),
        10 | 11 => store(&words.shared.data_sleep, random.hostile(1)),
        _ => store(&words.shared.space_sleep, random.hostile(1)),
    }
}

/// Calls everything on both sides while words change. A wrong access of memory would end the process or be seen in the
/// guarded bytes; a panic fails the test.
#[test]
fn corrupted_words_cause_faults_and_nothing_else() {
    let asked = std::env::var("FLICK_SHM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: u64 = asked.unwrap_or(if cfg!(miri) { 300 } else { 1_000_000 });
    let seed = std::env::var("FLICK_SHM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(19);
    std::println!("{rounds} rounds, seed {seed}");
    let mut random = Random(seed * 2 + 1);
    let (mut both, mut faults, mut bytes) = (Both::new(), [0_u64; 8], [0; 600]);
    for _ in 0..rounds {
        corrupt(&both.words(), &mut random);
        let len = random.next() as usize % bytes.len();
        let Both { sender, receiver, arena, .. } = &mut both;
        let result = match random.next() % 9 {
            0 | 1 => sender.push(&bytes[..len]).and_then(|_| sender.publish()).map(drop),
            2 | 3 => receiver.pop(&mut bytes[..len]).and_then(|_| receiver.release()).map(drop),
            4 => sender.publish().and_then(|_| sender.prepare_sleep(SleepKind::Thread)).map(drop),
            5 => receiver.release().and_then(|_| receiver.prepare_sleep(SleepKind::EventLoop)).map(drop),
            6 => receiver.is_finished().and_then(|_| receiver.is_idle()).map(drop),
            7 => sender.close().map(drop),
            _ => sender.publish().and_then(|_| {
                if let Some(unused) = sender.take_unused_ring()? {
                    arena.give_back(unused);
                }
                let Some(location) = arena.take(4096 << (len % 4)) else { return Ok(()) };
                if !sender.change_ring(location).inspect_err(|_| arena.give_back(location))? {
                    arena.give_back(location);
                }
                Ok(())
            }),
        };
        if let Err(fault) = result {
            faults[fault as usize] += 1;
            // What a connection does after a fault: it ends, and the slot gets another one.
            let clean = Words::<Direction>::at(&both.mapping, 0).expect("a page");
            clean.reset();
            let mut arena = Arena::new(ARENA_BYTES);
            let location = arena.take(4096).expect("an empty arena");
            let window = Window::at(&both.mapping, 4096, ARENA_BYTES).expect("the rest");
            both.sender =
                RingSender::new(clean.clone(), window.clone(), Fencing::Both, location).expect("valid");
            both.receiver = RingReceiver::new(clean, window, Fencing::Both).expect("valid");
            both.arena = arena;
        }
    }
    std::println!("faults by kind: {faults:?}");
    assert!(
        rounds < 100_000 || faults.iter().all(|count| *count > 0),
        "every kind of fault occurs: {faults:?}"
    );
}

/// Two threads exchange bytes through one ring: for Miri, which finds accesses that race.
#[test]
fn two_threads_pass_bytes_in_order() {
    const BYTES: usize = if cfg!(miri) { 6000 } else { 5_000_000 };
    let Both { mut sender, mut receiver, .. } = Both::new();
    let sending = std::thread::spawn(move || {
        let mut next = 0_usize;
        while next < BYTES {
            let piece: [u8; 700] = core::array::from_fn(|at| ((next + at) % 251) as u8);
            next += sender.push(&piece[..piece.len().min(BYTES - next)]).expect("honest");
            let _ = sender.publish().expect("honest");
            std::thread::yield_now();
        }
    });
    let (mut next, mut out) = (0_usize, [0; 900]);
    while next < BYTES {
        let count = receiver.pop(&mut out).expect("honest");
        assert!(out[..count].iter().enumerate().all(|(at, byte)| *byte == ((next + at) % 251) as u8));
        next += count;
        let _ = receiver.release().expect("honest");
        std::thread::yield_now();
    }
    sending.join().expect("it only sends");
}
