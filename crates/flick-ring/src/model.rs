//! Interleavings of two threads on a ring of four words: `RUSTFLAGS="--cfg loom" cargo test -p flick-ring --lib`. All
//! interleavings where each side sleeps at most once; those with at most [`PREEMPTIONS_MAX`] preemptions where they
//! sleep more often.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::mailbox::Mailbox;
use crate::ring;
use crate::wakeup::{WakeFlag, WakeSet};

/// Preemptions of one run of the larger models: almost all faults of lock-free code show with two.
const PREEMPTIONS_MAX: usize = 4;
/// Records of one word each; the ring holds two, so the producer of the third must wait.
const RECORDS: [&[u8]; 3] = [b"a", b"bcdefgh", b"ij"];

/// The signal of a thread, as an eventfd is. Loom fails a run in which a thread waits for a signal that never comes.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        let mut is_set = self.is_set.lock().expect("no thread panics");
        *is_set = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock().expect("no thread panics");
        while !*is_set {
            is_set = self.changed.wait(is_set).expect("no thread panics");
        }
        *is_set = false;
    }
}

/// Passes records through a ring; both sides sleep whenever they may.
fn check(records: &'static [&'static [u8]], preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let (mut producer, mut consumer) = ring(32);
        let (data, space) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (data_in, space_in) = (Arc::clone(&data), Arc::clone(&space));
        let pushing = thread::spawn(move || {
            for record in records {
                while !producer.push(record) {
                    if producer.prepare_wait() {
                        space_in.wait();
                    }
                }
                if producer.publish() {
                    data_in.set();
                }
            }
        });
        for expected in records {
            let mut out = [0; 8];
            let len = loop {
                if let Some(len) = consumer.pop(&mut out) {
                    break len;
                }
                if consumer.prepare_wait() {
                    data.wait();
                }
            };
            assert_eq!(&out[..len], *expected);
            if consumer.release() {
                space.set();
            }
        }
        pushing.join().expect("the producer ends");
    });
}

#[test]
fn one_record_arrives_whole_and_its_wake_up_too() {
    check(&RECORDS[..1], None);
}

#[test]
fn no_wake_up_is_lost_when_both_sides_sleep_repeatedly() {
    check(&RECORDS, Some(PREEMPTIONS_MAX));
}

#[test]
fn a_batch_is_visible_whole_or_not_at_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(32);
        let pushing = thread::spawn(move || {
            assert!(producer.push(b"one"));
            assert!(producer.push(b"two"));
            // The consumer has not announced that it sleeps.
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

/// Two threads each request a task of a third one, through one signal for both. The third sees the relaxed writes
/// before each request, and does not sleep while a task is requested.
#[test]
fn requests_of_two_threads_are_both_taken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (tasks, signal) = (Arc::new(WakeSet::new(2)), Arc::new(Signal::default()));
        let written: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let requesters: Vec<_> = (0..2_u32)
            .map(|task| {
                let (tasks, signal, written) =
                    (Arc::clone(&tasks), Arc::clone(&signal), Arc::clone(&written));
                thread::spawn(move || {
                    written[task as usize].store(1, Ordering::Relaxed);
                    if tasks.wake(task) {
                        signal.set();
                    }
                })
            })
            .collect();
        let mut taken = [0; 2];
        while taken != [1, 1] {
            if !tasks.is_requested() {
                signal.wait();
            }
            tasks.take(|task| {
                assert_eq!(
                    written[task as usize].load(Ordering::Relaxed),
                    1,
                    "the write before the request is visible"
                );
                taken[task as usize] += 1;
            });
            assert!(taken.iter().all(|times| *times <= 1), "{taken:?}: a request is taken once");
        }
        requesters.into_iter().for_each(|thread| thread.join().expect("it only requests"));
    });
}

/// The wake-up of a driver: a signal that stays set until it is read, as an eventfd does, and the flag behind it. The
/// sleeper reads the signal first. (In the other order loom finds a lost wake-up.)
#[test]
fn a_wake_up_during_the_take_of_another_is_not_lost() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (flag, signal) = (Arc::new(WakeFlag::default()), Arc::new(Signal::default()));
        let work = Arc::new(AtomicU64::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (flag, signal, work) = (Arc::clone(&flag), Arc::clone(&signal), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    if flag.request() {
                        signal.set();
                    }
                })
            })
            .collect();
        while work.load(Ordering::Relaxed) < 2 {
            signal.wait();
            flag.take();
        }
        wakers.into_iter().for_each(|waker| waker.join().expect("it only wakes"));
    });
}

/// Busy workers push clients to a sleeping worker that is about to end: each client is popped there or comes back.
#[test]
fn items_pushed_while_the_mailbox_closes_are_popped_or_returned() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(|| {
        let (mailbox, tasks, signal) =
            (Arc::new(Mailbox::new(2)), Arc::new(WakeSet::new(1)), Arc::new(Signal::default()));
        let pushers: Vec<_> = (0..2_u32)
            .map(|client| {
                let (mailbox, tasks, signal) =
                    (Arc::clone(&mailbox), Arc::clone(&tasks), Arc::clone(&signal));
                thread::spawn(move || {
                    let pushed = mailbox.push_within(2, client);
                    if pushed.is_ok() && tasks.wake_thread() {
                        signal.set();
                    }
                    pushed.is_err()
                })
            })
            .collect();
        take_if_requested(&signal, &tasks);
        let mut served = 0;
        while !mailbox.close() {
            while mailbox.pop().is_some() {
                served += 1;
            }
        }
        let returned: u32 =
            pushers.into_iter().map(|thread| u32::from(thread.join().expect("it only pushes"))).sum();
        assert_eq!(served + returned, 2, "{served} served, {returned} returned");
        assert!(mailbox.pop().is_none(), "a closed mailbox is empty");
    });
}

/// A worker that ends does not wait for a request; it takes one that is there.
fn take_if_requested(signal: &Signal, tasks: &WakeSet) {
    if tasks.is_requested() {
        signal.wait();
        tasks.take(|_| {});
    }
}
