//! Sleep words: how a side that waits gets a wake-up without a fence in every message.
//! Promises: the side that publishes reads the sleep word plainly; the side that sleeps stores it, executes a memory
//! barrier on every core (`membarrier`), and looks again. One of the two sees the other's write.
//! A side that sleeps asks for more with a bit of its sleep word, before its first barrier: while the bit is set, the
//! side that publishes executes a fence too, and the sleeper needs no further `membarrier`. That call interrupts every
//! core that runs a process which uses it, and costs more than the rest of a sleep.
//! Refuses: waking. The caller that gets a [`Wake`] sets a bit of the ready bitmap or wakes a futex.
//! Where the kernel refuses `membarrier`, both sides use sequentially consistent fences.

#[cfg(all(test, not(loom)))]
mod exhaustive;

use crate::fault::PeerFault;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Value of a sleep word whose side looks at the ring by itself.
pub(crate) const AWAKE: u32 = 0;
/// Bit of a sleep word: the side that publishes executes a fence before it relies on the rest of the word.
pub(crate) const FENCED: u32 = 1 << 31;

/// Kind of a sleep; its number is the value of the sleep word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SleepKind {
    /// The side's event loop waits for a bit of the ready bitmap.
    EventLoop = 1,
    /// A thread waits on the futex of the sleep word itself.
    Thread = 2,
}

/// Wake-up that the other side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a sleeping side must be woken"]
pub enum Wake {
    /// The other side looks by itself.
    NotNeeded,
    /// The other side's event loop needs a bit of the ready bitmap.
    EventLoop,
    /// A thread of the other side sleeps on the futex of the sleep word.
    Thread,
}

/// Side of the protocol that executes the expensive fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// The sleeping side, on all cores: `membarrier` is available to both.
    Sleeper,
    /// Both sides.
    Both,
}

impl Fencing {
    /// Orders a publication before the look at a sleep word.
    pub(crate) fn after_publication(self) {
        match self {
            // The other side's barrier interrupts this core between two instructions; the compiler must keep the order.
            #[cfg(not(loom))]
            Self::Sleeper => core::sync::atomic::compiler_fence(Ordering::SeqCst),
            // The models of this variant begin with the bit `FENCED`.
            #[cfg(loom)]
            Self::Sleeper => {}
            Self::Both => fence(Ordering::SeqCst),
        }
    }

    /// Orders the store of a sleep word before a look at what the other side publishes. `false`: the kernel refused.
    #[must_use = "without a barrier the caller must not sleep"]
    pub fn before_sleep(self) -> bool {
        match self {
            #[cfg(not(loom))]
            Self::Sleeper => crate::sys::barrier_everywhere(),
            #[cfg(loom)]
            Self::Sleeper => unreachable!("loom has no barrier on other cores"),
            Self::Both => {
                fence(Ordering::SeqCst);
                true
            }
        }
    }
}

/// A side's view of its own sleep word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper {
    fencing: Fencing,
    /// Whether the other side executes fences: every publication that this side may miss without is behind a barrier.
    is_fenced: bool,
}

impl Sleeper {
    pub fn new(fencing: Fencing) -> Self {
        Self { fencing, is_fenced: false }
    }

    /// Returns the word of a sleeping side, which is also the value of the futex.
    pub fn asleep(&self, kind: SleepKind) -> u32 {
        let asks = self.is_fenced || self.fencing == Fencing::Sleeper;
        if asks { kind as u32 | FENCED } else { kind as u32 }
    }

    /// Returns whether an announcement needs a barrier on all cores, because the other side executes no fences yet.
    pub fn needs_barrier(&self) -> bool {
        !self.is_fenced && self.fencing == Fencing::Sleeper
    }

    /// Relies on the other side's fences: a barrier was executed after the last announcement.
    pub fn note_barrier(&mut self) {
        // The bit was in memory before the barrier: the other side's later looks find it.
        self.is_fenced |= self.fencing == Fencing::Sleeper;
    }

    /// Announces a sleep. The caller then calls [`before_sleep`](Self::before_sleep), or [`Fencing::before_sleep`] for
    /// several at once, and looks again.
    pub fn announce(&self, word: &AtomicU32, kind: SleepKind) {
        // An exchange, because the other side's are too: none is ordered after a later one.
        word.swap(self.asleep(kind), Ordering::AcqRel);
    }

    /// Orders the announcement before the look that follows. `false`: the kernel refused.
    #[must_use = "without a barrier the caller must not sleep"]
    pub fn before_sleep(&mut self) -> bool {
        if self.is_fenced {
            fence(Ordering::SeqCst);
            return true;
        }
        let is_ordered = self.fencing.before_sleep();
        if is_ordered {
            self.note_barrier();
        }
        is_ordered
    }

    /// Takes an announcement back.
    pub fn cancel(&self, word: &AtomicU32) {
        word.swap(if self.is_fenced { FENCED } else { AWAKE }, Ordering::AcqRel);
    }

    /// Begins where a thread has slept before.
    #[cfg(all(test, loom))]
    pub fn begin_fences(&mut self, word: &AtomicU32) {
        self.is_fenced = true;
        self.cancel(word);
    }

    /// Frees the other side of its fences, for a side that has not slept for a while. It must not be asleep.
    pub fn end_fences(&mut self, word: &AtomicU32) {
        if core::mem::take(&mut self.is_fenced) {
            word.swap(AWAKE, Ordering::AcqRel);
        }
    }
}

/// Takes the other side's announcement, after [`Fencing::after_publication`].
///
/// Errors: `SleepWord` for a value that no side writes.
pub(crate) fn take(word: &AtomicU32) -> Result<Wake, PeerFault> {
    let value = word.load(Ordering::Relaxed);
    if value == AWAKE {
        return Ok(Wake::NotNeeded);
    }
    if value & FENCED != 0 {
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) == FENCED {
            return Ok(Wake::NotNeeded);
        }
    }
    match word.fetch_and(FENCED, Ordering::AcqRel) & !FENCED {
        // The sleeper has woken by itself.
        AWAKE => Ok(Wake::NotNeeded),
        value if value == SleepKind::EventLoop as u32 => Ok(Wake::EventLoop),
        value if value == SleepKind::Thread as u32 => Ok(Wake::Thread),
        _ => Err(PeerFault::SleepWord),
    }
}

/// Changes a word of this process that a thread looks at between the announcement of a sleep and the sleep, and takes
/// the announcement, which may be on either word. The caller then wakes both futexes. The thread finds the change, or
/// is woken: both sides exchange the sleep word, and the later exchange sees what was done before the earlier one, so
/// this side needs no fence. The announcement of an event loop stays, because it sleeps on something else. Returns
/// whether a thread's was there; a dishonest peer may have taken it.
pub(crate) fn interrupt(word: &AtomicU64, value: u64, sleep_words: [&AtomicU32; 2]) -> bool {
    let thread = SleepKind::Thread as u32;
    word.store(value, Ordering::Release);
    let [first, second] =
        sleep_words.map(|sleep_word| sleep_word.fetch_and(!thread, Ordering::AcqRel) & thread != 0);
    first || second
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_takes_the_announcement_of_a_thread_and_of_nothing_else() {
        let thread = SleepKind::Thread as u32;
        let event_loop = SleepKind::EventLoop as u32;
        for (before, after) in [
            (AWAKE, AWAKE),
            (FENCED, FENCED),
            (thread, AWAKE),
            (thread | FENCED, FENCED),
            (event_loop, event_loop),
            (event_loop | FENCED, event_loop | FENCED),
        ] {
            let (word, sleep_words) = (AtomicU64::new(1), [AtomicU32::new(before), AtomicU32::new(before)]);
            let was_thread = interrupt(&word, 2, [&sleep_words[0], &sleep_words[1]]);
            assert_eq!((was_thread, word.into_inner()), (before & thread != 0, 2));
            assert_eq!(sleep_words.map(AtomicU32::into_inner), [after; 2]);
        }
    }

    #[test]
    fn the_request_for_fences_survives_a_wake_up() {
        let word = AtomicU32::new(AWAKE);
        let mut sleeper = Sleeper { fencing: Fencing::Sleeper, is_fenced: true };
        for kind in [SleepKind::Thread, SleepKind::EventLoop] {
            sleeper.announce(&word, kind);
            assert_eq!(word.load(Ordering::Relaxed), kind as u32 | FENCED);
            let wake = if kind == SleepKind::Thread { Wake::Thread } else { Wake::EventLoop };
            assert_eq!(take(&word), Ok(wake));
            assert_eq!(word.load(Ordering::Relaxed), FENCED);
            assert_eq!(take(&word), Ok(Wake::NotNeeded));
        }
        sleeper.end_fences(&word);
        assert_eq!(word.load(Ordering::Relaxed), AWAKE);
    }

    #[test]
    fn a_word_that_no_side_writes_is_a_fault_with_and_without_the_request() {
        for value in [3, 1 << 30, 3 | FENCED, u32::MAX] {
            assert_eq!(take(&AtomicU32::new(value)), Err(PeerFault::SleepWord), "{value:x}");
        }
    }
}
