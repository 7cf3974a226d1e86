//! Interleavings of two threads on a ring of four words: `RUSTFLAGS="--cfg loom" cargo test -p flick-ring --lib`.
//! All of them where both sides rest at most once; with at most [`PREEMPTIONS_MAX`] preemptions where they rest again.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

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
