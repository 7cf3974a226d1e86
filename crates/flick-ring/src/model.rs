//! Interleavings of two threads on a ring of four words: `RUSTFLAGS="--cfg loom" cargo test -p flick-ring --lib`.
//! All of them where both sides rest at most once; with at most [`PREEMPTIONS_MAX`] preemptions where they rest again.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::calls::{Calls, Pending};
use crate::mailbox::Mailbox;
use crate::ring;

/// Preemptions of one run of the larger models: almost all faults of lock-free code show with two.
const PREEMPTIONS_MAX: usize = 4;
/// Records of one word each; the ring holds two, so that the producer of the third must wait for room.
const RECORDS: [&[u8]; 3] = [b"a", b"bcdefgh", b"ij"];

/// A thread that can be called. Loom fails a run in which a thread waits for a call that never comes.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.rung.lock().expect("nobody panics");
        *rung = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().expect("nobody panics");
        while !*rung {
            rung = self.changed.wait(rung).expect("nobody panics");
        }
        *rung = false;
    }
}

/// Passes records through a ring; both sides rest whenever they may.
fn check(records: &'static [&'static [u8]], preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let (mut producer, mut consumer) = ring(32);
        let (data, room) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let (data_in, room_in) = (Arc::clone(&data), Arc::clone(&room));
        let pushing = thread::spawn(move || {
            for record in records {
                while !producer.push(record) {
                    if producer.wait() {
                        room_in.wait();
                    }
                }
                if producer.publish() {
                    data_in.ring();
                }
            }
        });
        for expected in records {
            let mut out = [0; 8];
            let len = loop {
                if let Some(len) = consumer.pop(&mut out) {
                    break len;
                }
                if consumer.wait() {
                    data.wait();
                }
            };
            assert_eq!(&out[..len], *expected);
            if consumer.release() {
                room.ring();
            }
        }
        pushing.join().expect("the producer ends");
    });
}

#[test]
fn one_record_is_neither_lost_nor_torn_and_no_call_is_missed() {
    check(&RECORDS[..1], None);
}

#[test]
fn both_sides_rest_again_and_again() {
    check(&RECORDS, Some(PREEMPTIONS_MAX));
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(32);
        let pushing = thread::spawn(move || {
            assert!(producer.push(b"one"));
            assert!(producer.push(b"two"));
            // Nobody rests: the call may be asked for only by who has said so.
            assert!(!producer.publish());
        });
        let mut out = [0; 8];
        if consumer.pop(&mut out).is_some() {
            assert_eq!(&out[..3], b"one");
            assert_eq!(consumer.pop(&mut out), Some(3));
            assert_eq!(&out[..3], b"two");
        }
        pushing.join().expect("the producer ends");
    });
}

/// Two threads call a third one for a task each, through one signal for both. Relaxed writes before a call are seen by who
/// takes it, and nobody sleeps while a task is called.
#[test]
fn calls_of_two_threads_are_each_taken_and_wake_the_sleeper() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (calls, bell) = (Arc::new(Calls::new(2)), Arc::new(Bell::default()));
        let written: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let callers: Vec<_> = (0..2_u32)
            .map(|task| {
                let (calls, bell, written) = (Arc::clone(&calls), Arc::clone(&bell), Arc::clone(&written));
                thread::spawn(move || {
                    written[task as usize].store(1, Ordering::Relaxed);
                    if calls.call(task) {
                        bell.ring();
                    }
                })
            })
            .collect();
        let mut taken = [0; 2];
        while taken != [1, 1] {
            if !calls.is_called() {
                bell.wait();
            }
            calls.take(|task| {
                assert_eq!(written[task as usize].load(Ordering::Relaxed), 1, "what was written before");
                taken[task as usize] += 1;
            });
            assert!(taken.iter().all(|times| *times <= 1), "{taken:?}: a call is taken once");
        }
        callers.into_iter().for_each(|caller| caller.join().expect("it only calls"));
    });
}

/// The wake-up of a driver: a signal that stays until it is taken, as that of an eventfd does, and behind it what was asked for.
/// The sleeper takes the signal first. (The other way round loom finds a wake-up that is lost.)
#[test]
fn a_wake_up_that_comes_while_one_is_taken_is_not_lost() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (pending, bell) = (Arc::new(Pending::default()), Arc::new(Bell::default()));
        let work = Arc::new(AtomicU64::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (pending, bell, work) = (Arc::clone(&pending), Arc::clone(&bell), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    if pending.ask() {
                        bell.ring();
                    }
                })
            })
            .collect();
        while work.load(Ordering::Relaxed) < 2 {
            bell.wait();
            pending.take();
        }
        wakers.into_iter().for_each(|waker| waker.join().expect("it only wakes"));
    });
}

/// A busy worker hands a client to one that sleeps, while that is about to end: the client is served there, or comes back.
#[test]
fn who_changes_hands_while_the_other_ends_is_taken_or_given_back() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (mailbox, calls, bell) =
            (Arc::new(Mailbox::new(2)), Arc::new(Calls::new(1)), Arc::new(Bell::default()));
        let givers: Vec<_> = (0..2_u32)
            .map(|client| {
                let (mailbox, calls, bell) = (Arc::clone(&mailbox), Arc::clone(&calls), Arc::clone(&bell));
                thread::spawn(move || {
                    let left = mailbox.leave_within(2, client);
                    if left.is_ok() && calls.call_thread() {
                        bell.ring();
                    }
                    left.is_err()
                })
            })
            .collect();
        bell_or_end(&bell, &calls);
        let mut served = 0;
        while !mailbox.close() {
            while mailbox.take().is_some() {
                served += 1;
            }
        }
        let back: u32 = givers.into_iter().map(|giver| u32::from(giver.join().expect("it only gives"))).sum();
        assert_eq!(served + back, 2, "{served} served, {back} given back");
        assert!(mailbox.take().is_none(), "nobody is left in a closed box");
    });
}

/// The end of a worker does not wait for a call; one that has come is taken.
fn bell_or_end(bell: &Bell, calls: &Calls) {
    if calls.is_called() {
        bell.wait();
        calls.take(|_| {});
    }
}
