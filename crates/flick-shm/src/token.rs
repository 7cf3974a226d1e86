//! A token: which of several threads, of one process or of many, may use the ring at one end of a direction.
//! Promises: one thread at a time; the thread that owns it takes it with plain stores and loads; no thread waits for
//! another one that is stopped: it gets [`Acquired::Stalled`] after about a millisecond.
//! Refuses: fairness, and threads that wait for more than a call: a call ends soon, or its thread is stopped.
//!
//! The owner marks itself as in a call, and looks at the word. A taker changes the word, executes a barrier on every
//! core, and waits until the owner's mark is gone: one of the two sees the other's store. Each change has a number, so
//! that a taker that was stopped fails. After takeovers in quick succession the threads share a lock instead; one that
//! locks often without another that waits owns the token again.
//! Source: biased locking (Kawachiya et al., OOPSLA 2002), with `membarrier(2)` in place of stopping the owner.

use crate::control::TokenWords;
use crate::limits::{
    BIAS_AFTER_LOCKS, REVOCATION_WINDOW_NS, SHARED_AFTER_REVOCATIONS, TOKEN_BUSY_POLLS, TOKEN_GIVE_WAY_LOOKS,
    TOKEN_NAPS, TOKEN_YIELDS,
};
use crate::members::{Call, EndNumber, Member, Threads};
use crate::raw::Words;
use crate::sleep::Fencing;
use crate::sync::{AtomicU32, Ordering};

/// Low bits of the word: the owner's index plus 1; 0: none.
const OWNER: u32 = 0xffff;
/// A thread wants the token.
const WANT: u32 = 1 << 30;
/// The threads share the lock.
const SHARED: u32 = 1 << 31;
/// Position of the number of changes.
const CHANGES_SHIFT: u32 = 32;
/// Bit of the lock: a thread waits for it.
const CONTENDED: u32 = 1 << 31;
/// Position of the thread in the word of the streak.
const STREAK_SHIFT: u32 = 16;

/// Looks for a token before the thread that has it counts as stopped.
const LOOKS_MAX: u32 = if cfg!(loom) { 6 } else { TOKEN_BUSY_POLLS + TOKEN_YIELDS + TOKEN_NAPS };
/// Looks for which the owner gives way. Models have few of both.
const GIVE_WAY_LOOKS: u32 = if cfg!(loom) { 2 } else { TOKEN_GIVE_WAY_LOOKS };
/// Looks for the shared lock; each sleeps.
const LOCK_LOOKS_MAX: u32 = if cfg!(loom) { 3 } else { TOKEN_NAPS };

/// Rules of a token; tests leave one out to show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRule {
    /// The owner looks at the word after it has marked itself.
    LookAfterMark,
    /// A taker waits until the owner's mark is gone.
    WaitForOwner,
    /// Each change of the word has a number.
    NumberedChanges,
    /// A thread that has locked looks whether the lock is still the one that counts.
    LookAfterLock,
}

/// Services that a token needs besides memory; tests interleave threads there.
pub trait TokenSteps: Copy {
    /// The rule that is left out; `None` outside of tests.
    const WITHOUT_TOKEN_RULE: Option<TokenRule> = None;

    /// Runs between two accesses.
    #[inline]
    fn step(self) {}

    /// Waits before look number `look`.
    fn pause(self, look: u32);

    /// Sleeps while the word has the value, for a moment.
    fn sleep(self, word: &AtomicU32, value: u32);

    /// Wakes one that sleeps on the word.
    fn wake(self, word: &AtomicU32);

    /// Returns the time in nanoseconds.
    fn now_ns(self) -> u64;
}

/// Right to use the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// This thread owned the token already.
    Owned,
    /// This thread owns the token now; it may have waited.
    Biased,
    /// This thread has the lock.
    Locked,
    /// The thread that has the token appears to be stopped.
    Stalled,
    /// The kernel refuses the barrier.
    NoBarrier,
}

/// The token of one end, as a thread of a member sees it.
#[derive(Debug)]
pub(crate) struct Token {
    pub words: Words<TokenWords>,
    pub end: EndNumber,
    pub threads: Threads,
    pub fencing: Fencing,
}

fn is_kept<S: TokenSteps>(rule: TokenRule) -> bool {
    S::WITHOUT_TOKEN_RULE != Some(rule)
}

impl Token {
    /// Acquires the token for a call that is marked.
    #[inline]
    pub fn acquire<S: TokenSteps>(&self, member: &Member, call: Call, steps: S) -> Acquired {
        if !is_kept::<S>(TokenRule::LookAfterMark) {
            member.suspend(call);
        }
        steps.step();
        let is_owner = self.words.owner.load(Ordering::Acquire) as u32 == member.thread() + 1;
        if !is_kept::<S>(TokenRule::LookAfterMark) {
            steps.step();
            member.resume(call, self.end, self.fencing);
        }
        if is_owner { Acquired::Owned } else { self.acquire_from_others(member, call, steps) }
    }

    /// Makes a thread the owner while no other one is in a call at this end, and none begins to use the ring.
    pub fn reset<S: TokenSteps>(&self, member: &Member) {
        for _ in 0..LOOKS_MAX {
            let word = self.words.owner.load(Ordering::Acquire);
            if self.change::<S>(word, member.thread() + 1) {
                break;
            }
        }
        // A lock that is taken is that of a dead thread.
        self.words.lock.store(0, Ordering::Release);
    }

    /// Gives the right to use the ring back, before the call ends.
    #[inline]
    pub fn release<S: TokenSteps>(&self, member: &Member, acquired: Acquired, steps: S) {
        if acquired == Acquired::Locked {
            self.unlock(member, steps);
        }
    }

    /// Replaces the word that was read; returns whether it was still there.
    fn change<S: TokenSteps>(&self, word: u64, new: u32) -> bool {
        let changes =
            (word >> CHANGES_SHIFT).wrapping_add(u64::from(is_kept::<S>(TokenRule::NumberedChanges)));
        let new = changes << CHANGES_SHIFT | u64::from(new);
        self.words.owner.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn acquire_from_others<S: TokenSteps>(&self, member: &Member, call: Call, steps: S) -> Acquired {
        let own = member.thread() + 1;
        let mut ordered = None;
        for look in 0..LOOKS_MAX {
            steps.step();
            let word = self.words.owner.load(Ordering::Acquire);
            let low = word as u32;
            match low {
                _ if low == own => return Acquired::Biased,
                0 => {
                    if self.change::<S>(word, own) {
                        return Acquired::Biased;
                    }
                }
                _ if low & SHARED != 0 => {
                    if let Some(acquired) = self.lock(member, steps) {
                        return acquired;
                    }
                }
                // A thread wants the token of this one, which gives way for a while.
                _ if low & OWNER == own && look < GIVE_WAY_LOOKS => {
                    member.suspend(call);
                    steps.pause(look);
                    member.resume(call, self.end, self.fencing);
                }
                _ if low & OWNER == own => {
                    if self.change::<S>(word, own) {
                        return Acquired::Biased;
                    }
                }
                _ if low & WANT == 0 => {
                    self.change::<S>(word, low | WANT);
                }
                _ => {
                    if ordered != Some(word) {
                        if !self.fencing.before_sleep() {
                            return Acquired::NoBarrier;
                        }
                        ordered = Some(word);
                        steps.step();
                    }
                    if let Some(acquired) = self.take_over(member, word, look, steps) {
                        return acquired;
                    }
                    steps.pause(look);
                }
            }
        }
        Acquired::Stalled
    }

    /// Takes the token over, if its owner is in no call at this end, or dead. `None`: look again.
    fn take_over<S: TokenSteps>(&self, member: &Member, word: u64, look: u32, steps: S) -> Option<Acquired> {
        let owner = (word as u32 & OWNER).wrapping_sub(1);
        let is_busy = is_kept::<S>(TokenRule::WaitForOwner) && self.threads.is_busy(owner, self.end);
        if is_busy && !(look + 1 == LOOKS_MAX && self.is_dead(owner)) {
            return None;
        }
        steps.step();
        let now_ns = steps.now_ns();
        let is_quick =
            now_ns.wrapping_sub(self.words.taken_ns.load(Ordering::Relaxed)) < REVOCATION_WINDOW_NS;
        let count =
            if is_quick { self.words.revocations.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        let is_shared = count > SHARED_AFTER_REVOCATIONS;
        if !self.change::<S>(word, if is_shared { SHARED } else { member.thread() + 1 }) {
            return None;
        }
        self.words.taken_ns.store(now_ns, Ordering::Relaxed);
        self.words.revocations.store(count, Ordering::Relaxed);
        (!is_shared).then_some(Acquired::Biased)
    }

    /// Takes the shared lock. `None`: the lock is no longer the one that counts, or not free yet.
    fn lock<S: TokenSteps>(&self, member: &Member, steps: S) -> Option<Acquired> {
        let own = member.thread() + 1;
        let lock = &self.words.lock;
        let mut has_waited = false;
        for look in 0..LOCK_LOOKS_MAX {
            let contended = if has_waited { CONTENDED } else { 0 };
            steps.step();
            let held = lock.load(Ordering::Relaxed);
            let holder = held & OWNER;
            // A lock with this thread's number is that of a dead thread whose record it has.
            let can_take =
                holder == 0 || holder == own || (look + 1 == LOCK_LOOKS_MAX && self.is_dead(holder - 1));
            if can_take {
                let taken = lock.compare_exchange(held, own | contended, Ordering::AcqRel, Ordering::Relaxed);
                if taken.is_ok() {
                    return self.check_lock(member, has_waited, steps);
                }
                continue;
            }
            let marked = held | CONTENDED;
            let is_marked = held == marked
                || lock.compare_exchange(held, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_marked {
                has_waited = true;
                steps.sleep(lock, marked);
            }
        }
        Some(Acquired::Stalled)
    }

    /// Looks whether the lock still counts, and returns to bias after many locks of this thread alone.
    fn check_lock<S: TokenSteps>(&self, member: &Member, has_waited: bool, steps: S) -> Option<Acquired> {
        steps.step();
        let word = self.words.owner.load(Ordering::Acquire);
        if is_kept::<S>(TokenRule::LookAfterLock) && word as u32 & SHARED == 0 {
            self.unlock(member, steps);
            return None;
        }
        let own = member.thread() + 1;
        let streak = self.words.streak.load(Ordering::Relaxed);
        let is_own = streak >> STREAK_SHIFT == own && !has_waited;
        let count = if is_own { (streak & OWNER) + 1 } else { 0 };
        if count < BIAS_AFTER_LOCKS {
            self.words.streak.store(own << STREAK_SHIFT | count, Ordering::Relaxed);
            return Some(Acquired::Locked);
        }
        self.words.streak.store(0, Ordering::Relaxed);
        self.words.revocations.store(0, Ordering::Relaxed);
        if self.change::<S>(word, own) {
            self.unlock(member, steps);
            return Some(Acquired::Biased);
        }
        Some(Acquired::Locked)
    }

    /// Gives the lock back, unless it was reset and is another thread's now.
    fn unlock<S: TokenSteps>(&self, member: &Member, steps: S) {
        let lock = &self.words.lock;
        let own = member.thread() + 1;
        for held in [own, own | CONTENDED] {
            if lock.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if held != own {
                    steps.wake(lock);
                }
                return;
            }
        }
    }

    #[cfg(not(loom))]
    fn is_dead(&self, thread: u32) -> bool {
        self.threads.is_dead(thread)
    }

    #[cfg(loom)]
    fn is_dead(&self, _: u32) -> bool {
        false
    }
}
