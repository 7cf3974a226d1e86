//! Schedules of three and four threads, more than the model checker can try all of, drawn from a seed:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p flick-ring --lib`, as many as `FLICK_SCHEDULES` says of each test.
//! Promises: a run in which a thread waits for a call that never comes fails, and so does one in which something is lost or
//! comes twice; what fails prints the schedule, which `shuttle::replay` runs again.
//! Refuses: weak memory, which loom has (`model.rs`). Half of the schedules switch anywhere, half at a few places only, which
//! finds what needs one thread to be very late.
//! Source: Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010.

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use crate::calls::Calls;
use crate::mailbox::Mailbox;
use crate::{Consumer, Producer, ring};

/// Schedules of each test, unless `FLICK_SCHEDULES` says how many.
const SCHEDULES: usize = 10_000;
/// Places at which a schedule of the second half switches.
const SWITCHES: usize = 4;

/// Runs `body` under so many schedules.
fn check(body: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("FLICK_SCHEDULES").ok().and_then(|count| count.parse().ok());
    let count: usize = asked.unwrap_or(SCHEDULES).max(2);
    let body = std::sync::Arc::new(body);
    let again = std::sync::Arc::clone(&body);
    shuttle::check_random(move || body(), count / 2);
    shuttle::check_pct(move || again(), count - count / 2, SWITCHES);
}

/// A thread that is called as a worker is: tasks in a set, and one signal for all.
struct Worker {
    calls: Calls,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Worker {
    fn new(tasks: u32) -> Arc<Self> {
        Arc::new(Self { calls: Calls::new(tasks), rung: Mutex::new(false), changed: Condvar::new() })
    }

    fn signal(&self, is_due: bool) {
        if is_due {
            *self.rung.lock().expect("nobody panics") = true;
            self.changed.notify_one();
        }
    }

    fn call(&self, task: u32) {
        self.signal(self.calls.call(task));
    }

    /// Sleeps unless somebody has called, as a worker does before its next turn.
    fn sleep(&self) {
        let mut rung = self.rung.lock().expect("nobody panics");
        while !*rung {
            rung = self.changed.wait(rung).expect("nobody panics");
        }
        *rung = false;
    }
}

/// Numbers that go through a merge.
const NUMBERS: u64 = 6;

/// Pushes what there is room for and calls who takes it; whether that was the last number. Otherwise it must rest.
fn push_all(out: &mut Producer, next: &mut u64, above: &Worker) -> bool {
    loop {
        while *next < NUMBERS && out.push(&next.to_le_bytes()) {
            *next += 1;
        }
        if out.publish() {
            above.call(0);
        }
        if *next == NUMBERS || out.wait() {
            return *next == NUMBERS;
        }
    }
}

/// Takes what is there, in order; whether the last number has come.
fn pop_all(from: &mut Consumer, next: &mut u64, below: &Worker) -> bool {
    loop {
        let mut bytes = [0; 8];
        while from.pop(&mut bytes).is_some() {
            assert_eq!(u64::from_le_bytes(bytes), *next, "whole, once and in order");
            *next += 1;
        }
        if from.release() {
            below.call(0);
        }
        if *next == NUMBERS || from.wait() {
            return *next == NUMBERS;
        }
    }
}

/// A feeder, a node and a sink on three workers, with rings that hold two numbers: everybody rests often, in both directions.
#[test]
fn a_merge_on_three_workers_passes_everything_on_and_nobody_sleeps_for_ever() {
    check(|| {
        let workers = [Worker::new(1), Worker::new(1), Worker::new(1)];
        let [feeder, node, sink] = workers.clone();
        let ((mut first_in, mut first_out), (mut last_in, mut last_out)) = (ring(32), ring(32));
        let (above_feeder, above_node, below_node) =
            (Arc::clone(&node), Arc::clone(&sink), Arc::clone(&feeder));
        let below_sink = Arc::clone(&node);
        let feeding = thread::spawn(move || {
            let mut next = 0;
            while !push_all(&mut first_in, &mut next, &above_feeder) {
                feeder.sleep();
                feeder.calls.take(|_| {});
            }
        });
        let merging = thread::spawn(move || {
            let (mut taken, mut sent, mut waiting) = (0, 0, None);
            while sent < NUMBERS {
                // One number is kept back, as a node keeps an element; it rests only where it cannot go on.
                if waiting.is_none() {
                    let mut bytes = [0; 8];
                    if first_out.pop(&mut bytes).is_some() {
                        assert_eq!(u64::from_le_bytes(bytes), taken, "whole, once and in order");
                        taken += 1;
                        waiting = Some(bytes);
                    }
                    if first_out.release() {
                        below_node.call(0);
                    }
                }
                let rests = match waiting {
                    Some(bytes) if last_in.push(&bytes) => {
                        (waiting, sent) = (None, sent + 1);
                        false
                    }
                    Some(_) => last_in.wait(),
                    None => first_out.wait(),
                };
                if last_in.publish() {
                    above_node.call(0);
                }
                if rests {
                    node.sleep();
                    node.calls.take(|_| {});
                }
            }
        });
        let mut next = 0;
        while !pop_all(&mut last_out, &mut next, &below_sink) {
            sink.sleep();
            sink.calls.take(|_| {});
        }
        feeding.join().expect("a feeder ends");
        merging.join().expect("a node ends");
    });
}

/// Clients that each busy worker leaves for the idle one.
const CLIENTS: u64 = 2;
/// Busy workers.
const GIVERS: u64 = 3;

/// Three busy workers hand clients over to one that serves, sleeps and ends when it has seen enough: each client is served once, there
/// or by who keeps it.
#[test]
fn clients_that_are_scavenged_are_served_once_whoever_ends() {
    check(|| {
        let (mailbox, idle) = (Arc::new(Mailbox::new(2)), Worker::new(1));
        let served: Arc<[AtomicU64; (CLIENTS * GIVERS) as usize]> = Arc::new(Default::default());
        let done = Arc::new(AtomicU64::new(0));
        let givers: Vec<_> = (0..GIVERS)
            .map(|giver| {
                let (mailbox, idle, served) = (Arc::clone(&mailbox), Arc::clone(&idle), Arc::clone(&served));
                let done = Arc::clone(&done);
                thread::spawn(move || {
                    for client in giver * CLIENTS..(giver + 1) * CLIENTS {
                        match mailbox.leave_within(2, client) {
                            Ok(()) => idle.signal(idle.calls.call_thread()),
                            Err(client) => {
                                served[client as usize].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Release);
                    idle.signal(idle.calls.call_thread());
                })
            })
            .collect();
        let take_in = || {
            while let Some(client) = mailbox.take() {
                served[client as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        // It ends while the last of them may still be giving.
        while done.load(Ordering::Acquire) + 1 < GIVERS {
            idle.sleep();
            idle.calls.take(|_| {});
            take_in();
        }
        while !mailbox.close() {
            take_in();
        }
        givers.into_iter().for_each(|giver| giver.join().expect("it only gives"));
        assert_eq!(mailbox.take(), None, "nobody is left in a closed box");
        let served: Vec<u64> = served.iter().map(|times| times.load(Ordering::Relaxed)).collect();
        assert!(served.iter().all(|times| *times == 1), "{served:?}");
    });
}

/// Tasks of the worker that is called.
const TASKS: u32 = 3;

/// Three threads call one for tasks of their own, twice each: no call is lost, though the sleeper may take two for one.
#[test]
fn a_worker_that_is_called_from_all_sides_takes_every_call() {
    check(|| {
        let worker = Worker::new(TASKS);
        let asked: Arc<[AtomicU64; TASKS as usize]> = Arc::new(Default::default());
        let callers: Vec<_> = (0..TASKS)
            .map(|task| {
                let (worker, asked) = (Arc::clone(&worker), Arc::clone(&asked));
                thread::spawn(move || {
                    for _ in 0..2 {
                        asked[task as usize].fetch_add(1, Ordering::Relaxed);
                        worker.call(task);
                    }
                })
            })
            .collect();
        let mut seen = [0; TASKS as usize];
        while seen != [2; TASKS as usize] {
            worker.sleep();
            worker.calls.take(|task| seen[task as usize] = asked[task as usize].load(Ordering::Relaxed));
        }
        callers.into_iter().for_each(|caller| caller.join().expect("it only calls"));
    });
}
