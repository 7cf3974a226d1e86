//! Every interleaving of a sender that reads the sleep word plainly and a receiver that executes a barrier on all cores
//! before it sleeps, with a store buffer; also of a receiver that asks for fences in its first sleep, sleeps without a
//! barrier from then on, and frees the sender of the fences at any time. loom covers the variants in which both sides
//! have fences (`model.rs`).

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
    /// The sender's fence when the bit asks for it.
    SenderFence,
    /// The sender's second look at the sleep word, behind the fence.
    LoadAgain,
    /// The bit is in memory before the first barrier, not after.
    AskBeforeBarrier,
    /// The first sleep after the sender was freed has a barrier.
    BarrierAfterEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SenderAt {
    Publish,
    LoadSleepWord,
    Fence(bool),
    LoadAgain,
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
    /// The bit of the sleep word that asks for fences.
    asks_fences: bool,
    /// Whether the receiver relies on the sender's fences.
    is_fenced: bool,
    is_signalled: bool,
    sender: (SenderAt, u8),
    receiver: (ReceiverAt, u8),
}

impl State {
    fn drain(&mut self) {
        self.head = self.buffered_head.take().unwrap_or(self.head);
    }

    /// Returns the state after the sender's next step.
    fn after_sender(mut self, without: Option<SleepRule>) -> Self {
        let (at, published) = &mut self.sender;
        match at {
            SenderAt::Publish if *published == MESSAGES => {}
            SenderAt::Publish => {
                *published += 1;
                self.buffered_head = Some(*published);
                *at = SenderAt::LoadSleepWord;
            }
            SenderAt::LoadSleepWord if self.asks_fences => *at = SenderAt::Fence(self.sleep_word),
            SenderAt::Fence(was_asleep) => {
                *at = match (without, *was_asleep) {
                    (Some(SleepRule::LoadAgain), false) => SenderAt::Publish,
                    _ => SenderAt::LoadAgain,
                };
                if without != Some(SleepRule::SenderFence) {
                    self.drain();
                }
            }
            SenderAt::LoadSleepWord | SenderAt::LoadAgain => {
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
    fn after_receiver(mut self, is_thread: bool, without: Option<SleepRule>) -> Option<Self> {
        let head = self.head;
        let (at, seen) = &mut self.receiver;
        match at {
            ReceiverAt::Look if *seen == MESSAGES => return None,
            ReceiverAt::Look if head > *seen => *seen = head,
            ReceiverAt::Look if without == Some(SleepRule::AnnounceFirst) => *at = ReceiverAt::LookAgain,
            ReceiverAt::Look => *at = ReceiverAt::Announce,
            ReceiverAt::Announce => {
                self.sleep_word = true;
                self.asks_fences =
                    is_thread && (self.is_fenced || without != Some(SleepRule::AskBeforeBarrier));
                *at = match without {
                    Some(SleepRule::AnnounceFirst | SleepRule::LookAgain) => ReceiverAt::Sleep,
                    Some(SleepRule::Barrier) => ReceiverAt::LookAgain,
                    _ if self.is_fenced => ReceiverAt::LookAgain,
                    _ => ReceiverAt::Barrier,
                };
            }
            ReceiverAt::Barrier => {
                *at = ReceiverAt::LookAgain;
                self.is_fenced = is_thread;
                self.drain();
            }
            ReceiverAt::LookAgain if head > *seen => *at = ReceiverAt::Cancel,
            ReceiverAt::LookAgain if without == Some(SleepRule::AnnounceFirst) => *at = ReceiverAt::Announce,
            ReceiverAt::LookAgain => *at = ReceiverAt::Sleep,
            ReceiverAt::Cancel => {
                (self.sleep_word, self.asks_fences) = (false, self.is_fenced);
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

impl State {
    /// Returns the state after the receiver has freed the sender of its fences; `None` if it may not.
    fn after_end_of_fences(mut self, without: Option<SleepRule>) -> Option<Self> {
        if self.receiver.0 != ReceiverAt::Look || !self.asks_fences {
            return None;
        }
        self.asks_fences = false;
        self.is_fenced = without == Some(SleepRule::BarrierAfterEnd);
        Some(self)
    }
}

/// Visits every state; returns how many there are. `is_thread`: the receiver asks for fences when it sleeps.
///
/// Errors: a state in which the receiver sleeps although a message was published and no signal follows.
fn explore(is_thread: bool, without: Option<SleepRule>) -> Result<usize, State> {
    let first = State {
        head: 0,
        buffered_head: None,
        sleep_word: false,
        asks_fences: false,
        is_fenced: false,
        is_signalled: false,
        sender: (SenderAt::Publish, 0),
        receiver: (ReceiverAt::Look, 0),
    };
    let (mut seen, mut open) = (HashSet::from([first]), vec![first]);
    while let Some(state) = open.pop() {
        let mut drained = state;
        drained.drain();
        let receiver = state.after_receiver(is_thread, without);
        let next =
            [Some(state.after_sender(without)), Some(drained), receiver, state.after_end_of_fences(without)];
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
    for is_thread in [false, true] {
        let states = explore(is_thread, None).unwrap_or_else(|state| panic!("a lost wake-up: {state:?}"));
        std::println!("{states} states, fences on request: {is_thread}");
    }
}

#[test]
fn without_any_one_part_a_wake_up_is_lost() {
    for rule in [SleepRule::Barrier, SleepRule::LookAgain, SleepRule::AnnounceFirst] {
        assert!(explore(false, Some(rule)).is_err(), "no wake-up is lost without {rule:?}");
    }
    let on_request = [
        SleepRule::SenderFence,
        SleepRule::LoadAgain,
        SleepRule::AskBeforeBarrier,
        SleepRule::BarrierAfterEnd,
    ];
    for rule in on_request {
        assert!(explore(true, Some(rule)).is_err(), "no wake-up is lost without {rule:?}");
    }
}
