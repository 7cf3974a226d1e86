//! Points of the switch between two accesses, at which tests interleave threads, and the rules that tests leave out.

#[cfg(not(loom))]
use crate::limits::{TOKEN_BUSY_POLLS, TOKEN_NAP_NS, TOKEN_YIELDS};
#[cfg(not(loom))]
use crate::sync::AtomicU32;
#[cfg(not(loom))]
use crate::sys;
use crate::token::TokenSteps;

/// Rules without which bytes are lost or doubled. Tests leave one out to show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchRule {
    /// The sender looks at the control word after it has loaded the receiver's index, before it uses the space.
    LookAfterTail,
    /// The sender looks at the control word after it has published.
    LookAfterPublication,
    /// The receiver looks at the control word after it has released.
    LookAfterRelease,
    /// A cut reads the receiver's index before the sender's.
    TailBeforeHead,
    /// All take the first cut of an epoch.
    OneCutPerEpoch,
    /// Only the injector writes to the kernel while a direction is frozen.
    FrozenSenderWaits,
    /// Each holder has a bit of its own.
    HoldPerHolder,
    /// A side waits until its other threads are in no call before it prepares for the ring.
    OthersIdle,
    /// Each return to the kernel begins an epoch.
    EpochPerReturn,
    /// A thread that has waited for the token looks at the control word again.
    LookAfterWait,
}

/// Points between two accesses to shared words or sockets; tests interleave the two ends there.
pub trait SwitchSteps: TokenSteps {
    /// The rule that is left out; `None` outside of tests.
    const WITHOUT: Option<SwitchRule> = None;

    /// Runs between two accesses.
    #[inline]
    fn reach(self) {}
}

/// Steps of production code: none is interrupted, no rule is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainSteps;

#[cfg(not(loom))]
impl SwitchSteps for PlainSteps {}

#[cfg(not(loom))]
impl TokenSteps for PlainSteps {
    #[inline(never)]
    fn pause(self, look: u32) {
        if look < TOKEN_BUSY_POLLS {
            core::hint::spin_loop();
        } else if look < TOKEN_BUSY_POLLS + TOKEN_YIELDS {
            rustix::thread::sched_yield();
        } else {
            sys::nap(TOKEN_NAP_NS);
        }
    }

    fn sleep(self, word: &AtomicU32, value: u32) {
        sys::futex_wait(word, value, Some(1));
    }

    fn wake(self, word: &AtomicU32) {
        sys::futex_wake(word);
    }

    fn now_ns(self) -> u64 {
        sys::now_ns()
    }
}
