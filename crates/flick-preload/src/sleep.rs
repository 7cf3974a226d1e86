//! The word by which a receiver says that it sleeps, and the event by which it is woken.
//! Promises: a sender that has published bytes finds a receiver asleep which has not seen them, and one of several
//! senders to that thread takes the word; so no wake-up is lost. The model below looks at each order of both ends.
//! Not here: how an event is had and signalled (`wake.rs`), the wait (`wait.rs`, `transfer.rs`).

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

use crate::ring::{Control, PipeEnd};
use crate::sync::fence;

/// Value of the word of a sleep: the receiver sleeps on the word.
pub const ON_WORD: u32 = 1;
/// It waits in the kernel beside its event.
pub const ON_EVENT: u32 = 2;

/// Outcome of saying that a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallingAsleep {
    /// The sender executes a fence between its bytes and its look at the word.
    Known,
    /// The sender may not know yet that there is an event: this thread has to execute the fence for it.
    First,
    /// The sender cannot wake the thread, or another thread waits for the direction.
    Refused,
}

impl Control {
    /// Says to the sender that a thread with this event sleeps. A fence has to follow, and a look at the bytes.
    pub fn fall_asleep(&self, event: u64) -> FallingAsleep {
        let shared = &self.shared.0;
        let known = shared.receiver_event.load(Relaxed);
        if self.is_wake_refused() || known != event && shared.receiver_sleeps.load(Relaxed) == ON_EVENT {
            return FallingAsleep::Refused;
        }
        if known != event {
            shared.receiver_event.store(event, Relaxed);
        }
        shared.receiver_sleeps.store(ON_EVENT, Release);
        if known == event { FallingAsleep::Known } else { FallingAsleep::First }
    }

    /// Says that the thread with this event sleeps no more. Returns false if it does not sleep here, or a sender has
    /// taken the word.
    pub fn awake(&self, event: u64) -> bool {
        let shared = &self.shared.0;
        let is_asleep = shared.receiver_sleeps.load(Relaxed) == ON_EVENT;
        is_asleep
            && shared.receiver_event.load(Relaxed) == event
            && shared.receiver_sleeps.compare_exchange(ON_EVENT, 0, AcqRel, Relaxed).is_ok()
    }

    /// Whether the receiver sleeps. Asked by the sender after it has published bytes.
    #[inline]
    pub fn is_receiver_asleep(&self) -> bool {
        let shared = &self.shared.0;
        if shared.receiver_event.load(Relaxed) != 0 || self.has_fences(PipeEnd::Receiver) {
            // The receiver looks at the bytes after its own fence: one of both sees what the other one has stored.
            fence(SeqCst);
        }
        shared.receiver_sleeps.load(Relaxed) != 0
    }

    /// Orders the capacity that a receiver has published before its look at the sender's word.
    #[inline]
    pub fn order_capacity(&self) {
        if self.has_fences(PipeEnd::Sender) {
            fence(SeqCst);
        }
    }

    /// Whether the other end executes fences for the sleeps of this one.
    #[inline]
    fn has_fences(&self, sleeper: PipeEnd) -> bool {
        self.shared.0.fences.load(Relaxed) & sleeper as u32 != 0
    }

    /// Orders the word of an end that is about to sleep before its look at what the other end publishes. The first
    /// sleep executes `barrier`, which interrupts all cores, and asks the other end for fences from now on.
    pub fn order_sleep(&self, sleeper: PipeEnd, barrier: impl Fn()) {
        if self.has_fences(sleeper) {
            fence(SeqCst);
        } else {
            self.shared.0.fences.fetch_or(sleeper as u32, AcqRel);
            barrier();
        }
    }

    /// Frees the other end of its fences, for an end that has not slept for a while. It must not be asleep.
    pub fn end_fences(&self, sleeper: PipeEnd) {
        if self.has_fences(sleeper) {
            self.shared.0.fences.fetch_and(!(sleeper as u32), AcqRel);
        }
    }

    /// Takes the word of a receiver that sleeps, to wake it. 0: another one has.
    pub fn take_sleep(&self) -> u32 {
        self.shared.0.receiver_sleeps.swap(0, AcqRel)
    }

    /// Whether the sender could not get an event.
    pub fn is_wake_refused(&self) -> bool {
        self.shared.0.event_refused.load(Relaxed) != 0
    }
}

/// All orders of a sender and a receiver that waits beside its event, or on its word:
/// `RUSTFLAGS="--cfg loom" cargo test -p flick-preload --lib`. The receiver has slept before, so the fences are both
/// ends' own: loom has no barrier on other cores, as the first sleep executes it.
#[cfg(all(test, loom))]
mod tests {
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::ring::{Ctl, PipeState};

    const EVENT: u64 = 9 << 32 | 5;
    const BASE: u64 = 1000;

    /// The event. Loom fails a run in which a thread waits for a signal that never comes.
    #[derive(Default)]
    struct Signal {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Signal {
        fn set(&self) {
            *self.is_set.lock().expect("no thread panics") = true;
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

    /// A direction in its ring, whose receiver has slept before, beside its event or on its word.
    fn in_ring(asleep: u32) -> (Control, Ctl) {
        let control = Control::default();
        let entering = control.enter(control.look(), BASE).expect("no one else changes it");
        assert!(control.change(entering, PipeState::Ring));
        if asleep == ON_EVENT {
            assert_eq!(control.fall_asleep(EVENT), FallingAsleep::First);
            assert!(control.awake(EVENT));
        } else {
            control.order_sleep(PipeEnd::Receiver, || ());
        }
        let seen = control.look();
        (control, seen)
    }

    fn send(control: &Control, seen: Ctl, index: u64, asleep: u32, signal: &Signal) {
        assert!(control.publish(seen, index, || ()));
        if control.is_receiver_asleep() && control.take_sleep() == asleep {
            signal.set();
        }
    }

    fn fall_asleep(control: &Control, asleep: u32) {
        if asleep == ON_EVENT {
            assert_eq!(control.fall_asleep(EVENT), FallingAsleep::Known);
            fence(SeqCst);
        } else {
            control.shared.0.receiver_sleeps.store(ON_WORD, SeqCst);
            control.order_sleep(PipeEnd::Receiver, || unreachable!("the bit is set"));
        }
    }

    fn awake(control: &Control, asleep: u32) {
        if asleep == ON_EVENT {
            control.awake(EVENT);
        } else {
            control.shared.0.receiver_sleeps.store(0, Relaxed);
        }
    }

    /// A sender of messages, and a receiver that sleeps until it has all.
    fn check(messages: u64, asleep: u32) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let (control, seen) = in_ring(asleep);
            let (control, signal) = (Arc::new(control), Arc::new(Signal::default()));
            let (controls, signals) = (Arc::clone(&control), Arc::clone(&signal));
            let sending = loom::thread::spawn(move || {
                (1..=messages).for_each(|index| send(&controls, seen, BASE + index, asleep, &signals));
            });
            let mut read = BASE;
            while read < BASE + messages {
                let head = || control.head.0.load(core::sync::atomic::Ordering::Acquire);
                if head() == read {
                    fall_asleep(&control, asleep);
                    if head() == read {
                        signal.wait();
                    }
                    awake(&control, asleep);
                }
                read = head();
            }
            sending.join().expect("it only sends");
        });
    }

    #[test]
    fn sender_looked_at_the_sleep_before_its_bytes_were_visible() {
        check(1, ON_EVENT);
    }

    #[test]
    fn receiver_that_sleeps_for_each_message_missed_a_wake_up() {
        check(3, ON_EVENT);
    }

    #[test]
    fn receiver_that_sleeps_on_its_word_missed_a_wake_up() {
        check(2, ON_WORD);
    }
}
