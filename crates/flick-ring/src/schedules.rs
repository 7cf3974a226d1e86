//! Random schedules of three and four threads, which are too many for the model checker:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p flick-ring --lib`; `FLICK_SCHEDULES` sets how many per test.
//! Promises: a run fails if a thread waits for a signal that never comes, or if a record is lost or duplicated; a
//! failure prints its schedule, which `shuttle::replay` runs again.
//! Refuses: weak memory, which loom has (`model.rs`). Half of the schedules switch anywhere, half at a few points only,
//! which finds faults that need one thread to be very late.
//! Source: Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010.

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use crate::mailbox::Mailbox;
use crate::wakeup::WakeSet;
use crate::{Consumer, Producer, ring};

/// Schedules per test, unless `FLICK_SCHEDULES` is set.
const SCHEDULES: usize = 10_000;
/// Points at which a schedule of the second half switches.
const SWITCHES: usize = 4;

/// Runs `body` under that many schedules.
fn check(body: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("FLICK_SCHEDULES").ok().and_then(|count| count.parse().ok());
    let count: usize = asked.unwrap_or(SCHEDULES).max(2);
    let body = std::sync::Arc::new(body);
    let again = std::sync::Arc::clone(&body);
    shuttle::check_random(move || body(), count / 2);
    shuttle::check_pct(move || again(), count - count / 2, SWITCHES);
}

/// A thread that is woken as a worker is: a set of tasks and one signal for all.
struct Worker {
    tasks: WakeSet,
    is_signalled: Mutex<bool>,
    changed: Condvar,
}

impl Worker {
    fn new(tasks: u32) -> Arc<Self> {
        Arc::new(Self {
            tasks: WakeSet::new(tasks),
            is_signalled: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn signal(&self, is_due: bool) {
        if is_due {
            *self.is_signalled.lock().expect("no thread panics") = true;
            self.changed.notify_one();
        }
    }

    fn wake(&self, task: u32) {
        self.signal(self.tasks.wake(task));
    }

    /// Sleeps unless it is signalled, as a worker does before its next iteration.
    fn sleep(&self) {
        let mut is_signalled = self.is_signalled.lock().expect("no thread panics");
        while !*is_signalled {
            is_signalled = self.changed.wait(is_signalled).expect("no thread panics");
        }
        *is_signalled = false;
    }
}

/// Numbers that pass through a merge.
const NUMBERS: u64 = 6;

/// Pushes what fits and wakes the reader; returns whether the last number is pushed. Otherwise the thread must sleep.
fn push_all(out: &mut Producer, next: &mut u64, above: &Worker) -> bool {
    loop {
        while *next < NUMBERS && out.push(&next.to_le_bytes()) {
            *next += 1;
        }
        if out.publish() {
            above.wake(0);
        }
        if *next == NUMBERS || out.prepare_wait() {
            return *next == NUMBERS;
        }
    }
}

/// Pops what is there, in order; returns whether the last number has arrived.
fn pop_all(from: &mut Consumer, next: &mut u64, below: &Worker) -> bool {
    loop {
        let mut bytes = [0; 8];
        while from.pop(&mut bytes).is_some() {
            assert_eq!(u64::from_le_bytes(bytes), *next, "whole, once and in order");
            *next += 1;
        }
        if from.release() {
            below.wake(0);
        }
        if *next == NUMBERS || from.prepare_wait() {
            return *next == NUMBERS;
        }
    }
}

/// A feeder, a node and a sink on three workers, with rings of two numbers: all of them sleep often, in both
/// directions.
#[test]
fn a_merge_on_three_workers_delivers_everything_and_no_worker_sleeps_forever() {
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
                feeder.tasks.take(|_| {});
            }
        });
        let merging = thread::spawn(move || {
            let (mut taken, mut sent, mut waiting) = (0, 0, None);
            while sent < NUMBERS {
                // One number is kept, as a node keeps an element; the node sleeps only when it cannot continue.
                if waiting.is_none() {
                    let mut bytes = [0; 8];
                    if first_out.pop(&mut bytes).is_some() {
                        assert_eq!(u64::from_le_bytes(bytes), taken, "whole, once and in order");
                        taken += 1;
                        waiting = Some(bytes);
                    }
                    if first_out.release() {
                        below_node.wake(0);
                    }
                }
                let must_sleep = match waiting {
                    Some(bytes) if last_in.push(&bytes) => {
                        (waiting, sent) = (None, sent + 1);
                        false
                    }
                    Some(_) => last_in.prepare_wait(),
                    None => first_out.prepare_wait(),
                };
                if last_in.publish() {
                    above_node.wake(0);
                }
                if must_sleep {
                    node.sleep();
                    node.tasks.take(|_| {});
                }
            }
        });
        let mut next = 0;
        while !pop_all(&mut last_out, &mut next, &below_sink) {
            sink.sleep();
            sink.tasks.take(|_| {});
        }
        feeding.join().expect("a feeder ends");
        merging.join().expect("a node ends");
    });
}

/// Clients that each busy worker pushes to the idle one.
const CLIENTS: u64 = 2;
/// Busy workers.
const PUSHERS: u64 = 3;

/// Three busy workers push clients to an idle one that serves, sleeps and ends: each client is served once, there or by
/// the worker that keeps it.
#[test]
fn clients_pushed_to_an_ending_worker_are_served_once() {
    check(|| {
        let (mailbox, idle) = (Arc::new(Mailbox::new(2)), Worker::new(1));
        let served: Arc<[AtomicU64; (CLIENTS * PUSHERS) as usize]> = Arc::new(Default::default());
        let done = Arc::new(AtomicU64::new(0));
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|pusher| {
                let (mailbox, idle, served) = (Arc::clone(&mailbox), Arc::clone(&idle), Arc::clone(&served));
                let done = Arc::clone(&done);
                thread::spawn(move || {
                    for client in pusher * CLIENTS..(pusher + 1) * CLIENTS {
                        match mailbox.push_within(2, client) {
                            Ok(()) => idle.signal(idle.tasks.wake_thread()),
                            Err(client) => {
                                served[client as usize].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Release);
                    idle.signal(idle.tasks.wake_thread());
                })
            })
            .collect();
        let take_in = || {
            while let Some(client) = mailbox.pop() {
                served[client as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        // It ends while the last of them may still push.
        while done.load(Ordering::Acquire) + 1 < PUSHERS {
            idle.sleep();
            idle.tasks.take(|_| {});
            take_in();
        }
        while !mailbox.close() {
            take_in();
        }
        pushers.into_iter().for_each(|thread| thread.join().expect("it only pushes"));
        assert_eq!(mailbox.pop(), None, "a closed mailbox is empty");
        let served: Vec<u64> = served.iter().map(|times| times.load(Ordering::Relaxed)).collect();
        assert!(served.iter().all(|times| *times == 1), "{served:?}");
    });
}

/// Tasks of the worker that is woken.
const TASKS: u32 = 3;

/// Three threads each request their own task of one worker twice: no request is lost, though the worker may take two as
/// one.
#[test]
fn a_worker_woken_by_three_threads_takes_every_request() {
    check(|| {
        let worker = Worker::new(TASKS);
        let requested: Arc<[AtomicU64; TASKS as usize]> = Arc::new(Default::default());
        let requesters: Vec<_> = (0..TASKS)
            .map(|task| {
                let (worker, requested) = (Arc::clone(&worker), Arc::clone(&requested));
                thread::spawn(move || {
                    for _ in 0..2 {
                        requested[task as usize].fetch_add(1, Ordering::Relaxed);
                        worker.wake(task);
                    }
                })
            })
            .collect();
        let mut seen = [0; TASKS as usize];
        while seen != [2; TASKS as usize] {
            worker.sleep();
            worker.tasks.take(|task| seen[task as usize] = requested[task as usize].load(Ordering::Relaxed));
        }
        requesters.into_iter().for_each(|thread| thread.join().expect("it only requests"));
    });
}
