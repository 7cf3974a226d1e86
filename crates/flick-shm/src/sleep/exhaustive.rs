//! Every interleaving of a sender that reads the sleep word plainly and a receiver that executes a barrier on all cores
//! before it sleeps, with a store buffer; also of a receiver that asks for fences in its first sleep, sleeps without a
//! barrier from then on, and frees the sender of the fences at any time. With a watch, the sender dies at any time: the
//! watch then changes a word and wakes the receiver. loom covers the variants in which both sides have fences
//! (`model.rs`).

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
    /// The receiver's look at the watch's word between announcement and sleep.
    LookAtWatch,
    /// The watch changes its word before it takes the sleep word, not after.
    ChangeFirst,
    /// The watch's change is in memory when it takes the sleep word.
    ChangeBeforeTake,
    /// The watch takes the sleep word, so that a receiver on its way to the futex does not sleep.
    TakeByWatch,
    /// The watch also wakes a receiver whose sleep word the sender has taken, and died before it woke it.
    WakeAlways,
    /// The receiver's last look at the ring, behind the watch's word.
    LastLook,
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
    LookAtWatch,
    /// The kernel compares the sleep word before it lets a thread sleep.
    EnterFutex,
    Cancel,
    Sleep,
    /// The watch's word has shown the end.
    LastLook,
    Ended,
}

/// Position of the watch; without one it waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WatchAt {
    /// The sender lives.
    Wait,
    /// Whether the sleep word was taken before, here and below.
    Change(bool),
    Take,
    Wake(bool),
    Done,
}

/// Kind of a receiver, which decides about its sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiverKind {
    EventLoop,
    /// It asks for fences when it sleeps.
    Thread,
    /// The same, and a watch sees the death of the sender.
    WatchedThread,
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
    /// The watch's word, and its change that is not in memory yet.
    is_ended: bool,
    buffered_end: bool,
    sender: (SenderAt, u8),
    receiver: (ReceiverAt, u8),
    watch: WatchAt,
}

impl State {
    fn drain(&mut self) {
        self.head = self.buffered_head.take().unwrap_or(self.head);
        self.is_ended |= std::mem::take(&mut self.buffered_end);
    }

    /// Returns the state after the sender's next step.
    fn after_sender(mut self, kind: ReceiverKind, without: Option<SleepRule>) -> Self {
        let (at, published) = &mut self.sender;
        match at {
            _ if self.watch != WatchAt::Wait => {}
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
                *at = SenderAt::Publish;
                self.signal(kind);
            }
        }
        self
    }

    /// A signal waits for an event loop, and finds a thread only if it sleeps.
    fn signal(&mut self, kind: ReceiverKind) {
        self.is_signalled |= kind == ReceiverKind::EventLoop || self.receiver.0 == ReceiverAt::Sleep;
    }

    /// Returns the state after the watch's next step; the first is the death of the sender. `None` behind the last.
    fn after_watch(mut self, kind: ReceiverKind, without: Option<SleepRule>) -> Option<Self> {
        let is_change_late = without == Some(SleepRule::ChangeFirst);
        match self.watch {
            WatchAt::Wait if kind != ReceiverKind::WatchedThread => return None,
            WatchAt::Wait => {
                self.drain();
                self.watch = if is_change_late { WatchAt::Take } else { WatchAt::Change(false) };
            }
            WatchAt::Change(was_set) => {
                self.buffered_end = true;
                self.watch = if is_change_late { WatchAt::Wake(was_set) } else { WatchAt::Take };
            }
            WatchAt::Take => {
                if without != Some(SleepRule::ChangeBeforeTake) {
                    self.drain();
                }
                let was_set = self.sleep_word;
                self.sleep_word &= without == Some(SleepRule::TakeByWatch);
                self.watch = if is_change_late { WatchAt::Change(was_set) } else { WatchAt::Wake(was_set) };
            }
            WatchAt::Wake(was_set) => {
                if was_set || without != Some(SleepRule::WakeAlways) {
                    self.signal(kind);
                }
                self.watch = WatchAt::Done;
            }
            WatchAt::Done => return None,
        }
        Some(self)
    }

    /// Returns the state after the receiver's next step; `None` while it sleeps, or after the last message.
    fn after_receiver(mut self, kind: ReceiverKind, without: Option<SleepRule>) -> Option<Self> {
        let (head, is_thread) = (self.head, kind != ReceiverKind::EventLoop);
        let look_at_watch = without != Some(SleepRule::LookAtWatch);
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
            ReceiverAt::LookAgain => {
                *at = match kind {
                    ReceiverKind::EventLoop => ReceiverAt::Sleep,
                    ReceiverKind::WatchedThread if look_at_watch => ReceiverAt::LookAtWatch,
                    ReceiverKind::Thread | ReceiverKind::WatchedThread => ReceiverAt::EnterFutex,
                };
            }
            ReceiverAt::LookAtWatch if self.is_ended => *at = ReceiverAt::Cancel,
            ReceiverAt::LookAtWatch => *at = ReceiverAt::EnterFutex,
            ReceiverAt::EnterFutex if self.sleep_word => *at = ReceiverAt::Sleep,
            ReceiverAt::EnterFutex => *at = ReceiverAt::Cancel,
            ReceiverAt::Cancel => {
                (self.sleep_word, self.asks_fences) = (false, self.is_fenced);
                *at = if self.is_ended { ReceiverAt::LastLook } else { ReceiverAt::Look };
            }
            ReceiverAt::LastLook if head > *seen && without != Some(SleepRule::LastLook) => {
                *at = ReceiverAt::Look;
            }
            ReceiverAt::LastLook => *at = ReceiverAt::Ended,
            ReceiverAt::Ended => return None,
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

/// Visits every state; returns how many there are.
///
/// Errors: a state in which the receiver sleeps for ever, or has not seen a message that was published.
fn explore(kind: ReceiverKind, without: Option<SleepRule>) -> Result<usize, State> {
    let first = State {
        head: 0,
        buffered_head: None,
        sleep_word: false,
        asks_fences: false,
        is_fenced: false,
        is_signalled: false,
        is_ended: false,
        buffered_end: false,
        sender: (SenderAt::Publish, 0),
        receiver: (ReceiverAt::Look, 0),
        watch: WatchAt::Wait,
    };
    let (mut seen, mut open) = (HashSet::from([first]), vec![first]);
    while let Some(state) = open.pop() {
        let mut drained = state;
        drained.drain();
        let next = [
            Some(state.after_sender(kind, without)),
            Some(drained),
            state.after_receiver(kind, without),
            state.after_end_of_fences(without),
            state.after_watch(kind, without),
        ];
        let is_stuck = next.iter().flatten().all(|next| *next == state);
        let (at, received) = state.receiver;
        let is_complete = at == ReceiverAt::Ended && received == state.head;
        if is_stuck && received < MESSAGES && !is_complete {
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
    for kind in [ReceiverKind::EventLoop, ReceiverKind::Thread, ReceiverKind::WatchedThread] {
        let states = explore(kind, None).unwrap_or_else(|state| panic!("a lost wake-up: {state:?}"));
        std::println!("{states} states: {kind:?}");
    }
}

#[test]
fn without_any_one_part_a_wake_up_is_lost() {
    let of_event_loops = [SleepRule::Barrier, SleepRule::LookAgain, SleepRule::AnnounceFirst];
    let on_request = [
        SleepRule::SenderFence,
        SleepRule::LoadAgain,
        SleepRule::AskBeforeBarrier,
        SleepRule::BarrierAfterEnd,
    ];
    let of_watches = [
        SleepRule::LookAtWatch,
        SleepRule::ChangeFirst,
        SleepRule::ChangeBeforeTake,
        SleepRule::TakeByWatch,
        SleepRule::WakeAlways,
        SleepRule::LastLook,
    ];
    for (kind, rules) in [
        (ReceiverKind::EventLoop, &of_event_loops[..]),
        (ReceiverKind::Thread, &on_request),
        (ReceiverKind::WatchedThread, &of_watches),
    ] {
        for rule in rules {
            assert!(explore(kind, Some(*rule)).is_err(), "{kind:?}: no wake-up is lost without {rule:?}");
        }
    }
}
