//! Interleavings of two processes on small rings: `RUSTFLAGS="--cfg loom" cargo test -p flick-shm --lib`. Both sides
//! use sequentially consistent fences here, always or because the sleep words ask for them: loom has no barrier on
//! other cores.

use alloc::sync::Arc as StdArc;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::control::Direction;
use crate::raw::{Window, WordList, Words};
use crate::ready::ReadyBitmap;
use crate::ring::{RingReceiver, RingSender};
use crate::sleep::{self, Fencing, SleepKind, Sleeper, Wake};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Preemptions of one run of the larger models: almost all faults of lock-free code show with two.
const PREEMPTIONS_MAX: usize = 3;

/// The futex of a sleep word. Loom fails a run in which a thread waits for a signal that never comes.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self, wake: Wake) {
        if wake != Wake::NotNeeded {
            *self.is_set.lock().expect("no thread panics") = true;
            self.changed.notify_one();
        }
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock().expect("no thread panics");
        while !*is_set {
            is_set = self.changed.wait(is_set).expect("no thread panics");
        }
        *is_set = false;
    }
}

/// Creates both sides of a ring; `sizes` are those of the rings that the sender may use. With `Fencing::Sleeper` both
/// sides have slept before.
fn ring(sizes: &[usize], fencing: Fencing) -> (RingSender, RingReceiver) {
    let words = Words(StdArc::new(Direction::default()));
    let window = Window::new(sizes);
    let mut sender = RingSender::new(words.clone(), window.clone(), fencing, 0).expect("ring 0 exists");
    let mut receiver = RingReceiver::new(words, window, fencing).expect("ring 0 exists");
    if fencing == Fencing::Sleeper {
        sender.begin_fences();
        receiver.begin_fences();
    }
    (sender, receiver)
}

/// Sends bytes in the given pieces; both sides sleep whenever they may. Before piece `n` the sender moves to ring `n`,
/// if there is one.
fn check(sizes: &'static [usize], pieces: &'static [&'static [u8]], preemptions: Option<usize>) {
    check_with(Fencing::Both, sizes, pieces, preemptions);
    // Without a bound this takes minutes also for one byte.
    check_with(Fencing::Sleeper, sizes, pieces, Some(PREEMPTIONS_MAX));
}

fn check_with(
    fencing: Fencing,
    sizes: &'static [usize],
    pieces: &'static [&'static [u8]],
    preemptions: Option<usize>,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let (mut sender, mut receiver) = ring(sizes, fencing);
        let (data, space) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (data_in, space_in) = (Arc::clone(&data), Arc::clone(&space));
        let sending = thread::spawn(move || {
            for (at, piece) in pieces.iter().enumerate() {
                if (1..sizes.len()).contains(&at) {
                    let _ = sender.change_ring(at as u64).expect("an honest receiver");
                }
                let mut rest = *piece;
                while !rest.is_empty() {
                    let count = sender.push(rest).expect("an honest receiver");
                    rest = &rest[count..];
                    data_in.set(sender.publish().expect("an honest receiver"));
                    if count == 0 && sender.prepare_sleep(SleepKind::Thread).expect("an honest receiver") {
                        space_in.wait();
                    }
                }
            }
            data_in.set(sender.close().expect("an honest receiver"));
        });
        for expected in pieces.iter().flat_map(|piece| piece.iter()) {
            let mut out = [0];
            while receiver.pop(&mut out).expect("an honest sender") == 0 {
                assert!(!receiver.is_finished().expect("an honest sender"), "a byte is missing");
                if receiver.prepare_sleep(SleepKind::Thread).expect("an honest sender") {
                    data.wait();
                }
            }
            assert_eq!(out[0], *expected);
            space.set(receiver.release().expect("an honest sender"));
        }
        while !receiver.is_finished().expect("an honest sender") {
            if receiver.prepare_sleep(SleepKind::Thread).expect("an honest sender") {
                data.wait();
            }
        }
        sending.join().expect("the sender ends");
    });
}

#[test]
fn one_byte_arrives_and_wakes_the_receiver() {
    check(&[2], &[b"a"], None);
}

#[test]
fn no_wake_up_is_lost_when_both_sides_sleep_repeatedly() {
    check(&[2], &[b"abc"], Some(PREEMPTIONS_MAX));
}

#[test]
fn bytes_of_two_rings_arrive_in_order() {
    check(&[2, 4], &[b"a", b"bc"], Some(PREEMPTIONS_MAX));
}

#[test]
fn bytes_of_a_smaller_ring_arrive_in_order() {
    check(&[4, 2], &[b"ab", b"c"], Some(PREEMPTIONS_MAX));
}

/// The other process publishes and dies; a watch then changes a word, and the receiver, which has no other limit, finds
/// the byte and the change.
fn check_watch(fencing: Fencing) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(move || {
        let (mut sender, mut receiver) = ring(&[2], fencing);
        let (signal, state) = (Arc::new(Signal::default()), Arc::new(AtomicU64::new(0)));
        let words = sender.words().clone();
        let (published, watched) = (Arc::clone(&signal), Arc::clone(&state));
        let sending = thread::spawn(move || {
            sender.push(b"a").expect("an honest receiver");
            published.set(sender.publish().expect("an honest receiver"));
            // The kernel tells the watch of the end behind it.
            let sleep_words = [&words.shared.data_sleep, &words.shared.space_sleep];
            if sleep::interrupt(&watched, 1, sleep_words) {
                published.set(Wake::Thread);
            }
        });
        let mut out = [0];
        while receiver.pop(&mut out).expect("an honest sender") == 0 {
            wait_watched(&mut receiver, &signal, &state);
        }
        let _ = receiver.release().expect("an honest sender");
        while state.load(Ordering::Acquire) == 0 {
            wait_watched(&mut receiver, &signal, &state);
        }
        sending.join().expect("the sender ends");
    });
}

/// Sleeps as a thread of a watched stream does. A wake-up that comes before the sleep makes its futex refuse to sleep.
fn wait_watched(receiver: &mut RingReceiver, signal: &Signal, state: &AtomicU64) {
    if receiver.prepare_sleep(SleepKind::Thread).expect("an honest sender") {
        if state.load(Ordering::Acquire) == 0 {
            signal.wait();
        }
        receiver.cancel_sleep();
    }
}

#[test]
fn a_sleep_that_only_a_watch_ends_misses_no_byte_and_no_end() {
    check_watch(Fencing::Both);
    check_watch(Fencing::Sleeper);
}

/// Two sending threads each publish a number and set their bit; the event loop sleeps whenever it may.
#[test]
fn the_event_loop_sees_every_ready_connection_before_it_sleeps() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let list = || WordList(StdArc::new([AtomicU64::new(0)]));
        let ready = ReadyBitmap::new(list(), list());
        let asleep = Arc::new(AtomicU32::new(0));
        let published: Arc<[AtomicU64; 2]> = Arc::default();
        let signal = Arc::new(Signal::default());
        let senders: [_; 2] = core::array::from_fn(|slot| {
            let (ready, asleep) = (ready.clone(), Arc::clone(&asleep));
            let (published, signal) = (Arc::clone(&published), Arc::clone(&signal));
            thread::spawn(move || {
                published[slot].store(1, Ordering::Relaxed);
                ready.set(slot as u32);
                Fencing::Both.after_publication();
                signal.set(sleep::take(&asleep).expect("only valid values"));
            })
        });
        let (mut seen, sleeper) = ([0; 2], Sleeper::new(Fencing::Both));
        while seen != [1; 2] {
            ready.take(|slot| seen[slot as usize] = published[slot as usize].load(Ordering::Relaxed));
            sleeper.announce(&asleep, SleepKind::EventLoop);
            assert!(Fencing::Both.before_sleep());
            if ready.is_any() || seen == [1; 2] {
                sleeper.cancel(&asleep);
            } else {
                signal.wait();
            }
        }
        senders.into_iter().for_each(|sender| sender.join().expect("it only sends"));
    });
}
