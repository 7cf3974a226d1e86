//! Sleep words: how a side that waits gets a wake-up without a fence in every message.
//! Promises: the side that publishes reads the sleep word plainly; the side that sleeps stores it, executes a memory
//! barrier on every core (`membarrier`), and looks again. One of the two sees the other's write.
//! Refuses: waking. The caller that gets a [`Wake`] sets a bit of the ready bitmap or wakes a futex.
//! Where the kernel refuses `membarrier`, both sides use sequentially consistent fences.

#[cfg(all(test, not(loom)))]
mod exhaustive;

use crate::fault::PeerFault;
use crate::sync::{AtomicU32, Ordering, fence};

/// Value of a sleep word whose side looks at the ring by itself.
pub(crate) const AWAKE: u32 = 0;

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
            #[cfg(loom)]
            Self::Sleeper => unreachable!("loom has no barrier on other cores"),
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

/// Announces a sleep. The caller then calls [`Fencing::before_sleep`] and looks again.
pub(crate) fn announce(word: &AtomicU32, kind: SleepKind) {
    // An exchange, because the other side's are too: none is ordered after a later one.
    word.swap(kind as u32, Ordering::AcqRel);
}

/// Takes an announcement back.
pub(crate) fn cancel(word: &AtomicU32) {
    word.swap(AWAKE, Ordering::AcqRel);
}

/// Takes the other side's announcement, after [`Fencing::after_publication`].
///
/// Errors: `SleepWord` for a value that no side writes.
pub(crate) fn take(word: &AtomicU32) -> Result<Wake, PeerFault> {
    if word.load(Ordering::Relaxed) == AWAKE {
        return Ok(Wake::NotNeeded);
    }
    match word.swap(AWAKE, Ordering::AcqRel) {
        // The sleeper has woken by itself.
        AWAKE => Ok(Wake::NotNeeded),
        value if value == SleepKind::EventLoop as u32 => Ok(Wake::EventLoop),
        value if value == SleepKind::Thread as u32 => Ok(Wake::Thread),
        _ => Err(PeerFault::SleepWord),
    }
}
