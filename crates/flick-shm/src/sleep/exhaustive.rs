//! Every interleaving of a sender that reads the sleep word plainly and a receiver that executes a barrier on all cores
//! before it sleeps, with a store buffer. loom covers the variant in which both sides have fences (`model.rs`).

use std::collections::HashSet;
use std::vec;

/// Messages of a run; the receiver may sleep before each.
const MESSAGES: u8 = 3;

/// Parts of the protocol that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SleepRule {
    /// The barrier between the store of the sleep word and the look at the ring.
    Barrier,
    /// The look at the ring after the barrier.
    LookAgain,
    /// The receiver stores the sleep word before it looks, not after.
    AnnounceFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SenderAt {
    Publish,
    LoadSleepWord,
    TakeSleepWord,
    Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ReceiverAt {
    Look,
    Announce,
    Barrier,
    LookAgain,
    Cancel,
    Sleep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    head: u8,
    /// The sender's store of the head that is not in memory yet. A later one replaces it, which loses nothing.
    buffered_head: Option<u8>,
    sleep_word: bool,
    is_signalled: bool,
    sender: (SenderAt, u8),
    receiver: (ReceiverAt, u8),
}

impl State {
    fn drain(&mut self) {
        self.head = self.buffered_head.take().unwrap_or(self.head);
    }

    /// Returns the state after the sender's next step.
    fn after_sender(mut self) -> Self {
        let (at, published) = &mut self.sender;
        match at {
            SenderAt::Publish if *published == MESSAGES => {}
            SenderAt::Publish => {
                *published += 1;
                self.buffered_head = Some(*published);
                *at = SenderAt::LoadSleepWord;
            }
            SenderAt::LoadSleepWord => {
                *at = if self.sleep_word { SenderAt::TakeSleepWord } else { SenderAt::Publish };
            }
            SenderAt::TakeSleepWord => {
                let was_set = std::mem::take(&mut self.sleep_word);
                *at = if was_set { SenderAt::Signal } else { SenderAt::Publish };
                // An exchange is a full barrier on x86-64, and releases the head everywhere.
                self.drain();
            }
            SenderAt::Signal => {
                self.is_signalled = true;
                *at = SenderAt::Publish;
            }
        }
        self
    }

    /// Returns the state after the receiver's next step; `None` while it sleeps, or after the last message.
    fn after_receiver(mut self, without: Option<SleepRule>) -> Option<Self> {
        let head = self.head;
        let (at, seen) = &mut self.receiver;
        match at {
            ReceiverAt::Look if *seen == MESSAGES => return None,
            ReceiverAt::Look if head > *seen => *seen = head,
            ReceiverAt::Look if without == Some(SleepRule::AnnounceFirst) => *at = ReceiverAt::LookAgain,
            ReceiverAt::Look => *at = ReceiverAt::Announce,
            ReceiverAt::Announce => {
                self.sleep_word = true;
                *at = match without {
                    Some(SleepRule::AnnounceFirst | SleepRule::LookAgain) => ReceiverAt::Sleep,
                    Some(SleepRule::Barrier) => ReceiverAt::LookAgain,
                    None => ReceiverAt::Barrier,
                };
            }
            ReceiverAt::Barrier => {
                *at = ReceiverAt::LookAgain;
                self.drain();
            }
            ReceiverAt::LookAgain if head > *seen => *at = ReceiverAt::Cancel,
            ReceiverAt::LookAgain if without == Some(SleepRule::AnnounceFirst) => *at = ReceiverAt::Announce,
            ReceiverAt::LookAgain => *at = ReceiverAt::Sleep,
            ReceiverAt::Cancel => {
                self.sleep_word = false;
                *at = ReceiverAt::Look;
            }
            ReceiverAt::Sleep if self.is_signalled => {
                self.is_signalled = false;
                *at = ReceiverAt::Cancel;
            }
            ReceiverAt::Sleep => return None,
        }
        Some(self)
    }
}

/// Visits every state; returns how many there are.
///
/// Errors: a state in which the receiver sleeps although a message was published and no signal follows.
fn explore(without: Option<SleepRule>) -> Result<usize, State> {
    let first = State {
        head: 0,
        buffered_head: None,
        sleep_word: false,
        is_signalled: false,
        sender: (SenderAt::Publish, 0),
        receiver: (ReceiverAt::Look, 0),
    };
    let (mut seen, mut open) = (HashSet::from([first]), vec![first]);
    while let Some(state) = open.pop() {
        let mut drained = state;
        drained.drain();
        let receiver = state.after_receiver(without);
        let next = [Some(state.after_sender()), Some(drained), receiver];
        let is_stuck = next.iter().flatten().all(|next| *next == state);
        if is_stuck && state.receiver.1 < MESSAGES {
            return Err(state);
        }
        for next in next.into_iter().flatten() {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn a_receiver_that_pays_for_the_barrier_misses_no_wake_up() {
    let states = explore(None).unwrap_or_else(|state| panic!("a lost wake-up: {state:?}"));
    std::println!("{states} states");
}

#[test]
fn without_any_one_part_a_wake_up_is_lost() {
    for rule in [SleepRule::Barrier, SleepRule::LookAgain, SleepRule::AnnounceFirst] {
        assert!(explore(Some(rule)).is_err(), "no wake-up is lost without {rule:?}");
    }
}
