//! Several threads of one process at the same pipes and connections: who may use a direction, who waits for it, and the
//! lock under which directions come and go.
//! Promises: one thread at a time is in a direction; a thread that another one keeps from it for long returns the file
//! to the kernel, so that a thread which has ended or left its call in the middle holds up none. A file whose bytes one
//! thread reads while another one waits for them in the kernel leaves its ring, or that one would never wake.
//! Refuses: taking over what another thread has begun. The cut judges it, as it judges a call that a signal handler
//! has interrupted.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

use crate::limits::{
    EPOLLS_MAX, FORKER_LOOKS, FORKERS_MAX, LOCK_NAP_NS, POLLED_BITS, TOKEN_NAP_NS, TOKEN_NAPS_MAX,
};
use crate::polling::BoundedPoll;
use crate::raw::{is_forking, known_thread, set_forking, set_known_thread};
use crate::registrations;
use crate::ring::PipeEnd;
use crate::state::{File, ProcessTable, flag};
use crate::sys::pipe::{self as sys, SignalsHeld};
use crate::sys::{is_thread_gone, process_id, thread_id};

/// Whether several threads may use the files that move.
#[inline]
pub fn are_several(state: &ProcessTable) -> bool {
    state.threads.load(Relaxed) != 0 && state.moves.load(Relaxed) != 0
}

/// Adds to a count, which only one thread does if there are not `several`.
#[inline]
pub fn add(count: &AtomicU64, amount: u64, are_several: bool) {
    if are_several {
        count.fetch_add(amount, Relaxed);
    } else {
        count.store(count.load(Relaxed).wrapping_add(amount), Relaxed);
    }
}

/// Counts a call on a file, before it looks whether there is a ring. Returns how many are counted already: those of
/// other threads, and those that this signal handler, or one that has left its call by `siglongjmp`, has interrupted.
#[inline]
pub fn begin_call(state: &ProcessTable, calls: &AtomicU32) -> u32 {
    if are_several(state) {
        return calls.fetch_add(1, SeqCst);
    }
    // A handler that comes in between has ended its own ones behind it.
    let others = calls.load(Relaxed);
    calls.store(others.wrapping_add(1), Relaxed);
    compiler_fence(SeqCst);
    others
}

/// Uncounts a call that has ended. A forked process may not have counted it.
#[inline]
pub fn end_call(state: &ProcessTable, calls: &AtomicU32) {
    if are_several(state) {
        calls.fetch_sub(1, SeqCst);
    } else {
        calls.store(calls.load(Relaxed).saturating_sub(1), Relaxed);
    }
}

/// Whether a call on a file that is counted is a signal handler's, within one on the same file that goes on in the
/// kernel. Other threads may move files beside such calls, since these are ended by the last write through the kernel.
pub fn is_within_call(state: &ProcessTable, file: &File) -> bool {
    !are_several(state) && file.sending.load(Relaxed).saturating_add(file.receiving.load(Relaxed)) > 1
}

/// The number of this thread.
#[inline]
pub fn own() -> u32 {
    match known_thread() {
        0 => {
            let thread = thread_id();
            set_known_thread(thread);
            thread
        }
        thread => thread,
    }
}

/// Outcome of taking a [`Token`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// This thread has it.
    Taken,
    /// This thread had it already: the call is a signal handler's, or one after a call that a handler has left.
    Nested,
    /// Another thread has it, and the call does not wait.
    Busy,
    /// Another thread keeps it, or is gone.
    Kept,
}

/// The right to use a direction: the thread that has it. 0: none.
#[derive(Debug)]
pub struct Token(AtomicU32);

/// Bit of a token: another thread sleeps until it is released.
const WAITED: u32 = 1 << 31;

impl Token {
    /// One that no thread has.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// No thread has it: the process is new.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Takes it, if no thread has it.
    #[inline]
    pub fn try_take(&self) -> bool {
        self.0.compare_exchange(0, own(), SeqCst, Relaxed).is_ok()
    }

    /// Takes it, if no thread has it, in a process that has one thread: a signal handler comes before or behind. If it
    /// makes a thread, this one may not be the only one that has the token, and must not use it.
    #[inline]
    pub fn try_take_alone(&self) -> bool {
        sys::exchange_alone(&self.0, 0, own())
    }

    /// Whether this thread has it.
    #[inline]
    pub fn is_own(&self) -> bool {
        let thread = self.0.load(Relaxed) & !WAITED;
        thread != 0 && thread == own()
    }

    /// Whether a thread has it.
    pub fn is_taken(&self) -> bool {
        self.0.load(SeqCst) != 0
    }

    /// The other thread that has it.
    pub fn other(&self) -> Option<u32> {
        let thread = self.0.load(SeqCst) & !WAITED;
        (thread != 0 && thread != own()).then_some(thread)
    }

    /// Takes it, and waits for another thread that has it.
    #[inline]
    pub fn take(&self, waits: bool) -> Taking {
        if self.try_take() { Taking::Taken } else { self.take_from_other(waits) }
    }

    #[cold]
    fn take_from_other(&self, waits: bool) -> Taking {
        if self.is_own() {
            return Taking::Nested;
        }
        let mut poll = BoundedPoll::new();
        while poll.pause() {
            if self.0.load(Relaxed) == 0 && self.try_take() {
                return Taking::Taken;
            }
        }
        for nap in 0..TOKEN_NAPS_MAX {
            let seen = self.0.load(Relaxed);
            if seen == 0 {
                // Others may sleep, too.
                if self.0.compare_exchange(0, own() | WAITED, SeqCst, Relaxed).is_ok() {
                    return Taking::Taken;
                }
                continue;
            }
            let marked = seen | WAITED;
            if marked != seen && self.0.compare_exchange(seen, marked, SeqCst, Relaxed).is_err() {
                continue;
            }
            sys::sleep(&self.0, marked, TOKEN_NAP_NS);
            if self.0.load(Relaxed) == marked && is_thread_gone(process_id(), marked & !WAITED) {
                return Taking::Kept;
            }
            if !waits && nap > 0 {
                return Taking::Busy;
            }
        }
        Taking::Kept
    }

    /// Gives it back in a process that has one thread, without a locked instruction, which would wait until the other
    /// end's core has given up the line of the bytes' index. A thread that a signal handler has made meanwhile looks
    /// again after a while.
    #[inline]
    pub fn release_alone(&self) {
        self.0.store(0, Release);
    }

    /// Gives it back.
    #[inline]
    pub fn release(&self) {
        if self.0.swap(0, SeqCst) & WAITED != 0 {
            sys::wake(&self.0);
        }
    }
}

/// The lock under which directions are attached and left. 0: free, 1: taken, 2: another thread sleeps for it.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// The lock, while it is taken. Signals are held back, so that no handler finds it taken by its own thread.
#[derive(Debug)]
pub struct Locked {
    _held: SignalsHeld,
}

impl Locked {
    /// Takes the lock.
    pub fn new() -> Self {
        let held = SignalsHeld::new();
        if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while LOCK.swap(2, AcqRel) != 0 {
                sys::sleep(&LOCK, 2, LOCK_NAP_NS);
            }
        }
        Self { _held: held }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if LOCK.swap(0, AcqRel) == 2 {
            sys::wake(&LOCK);
        }
    }
}

/// Threads that make a process, or run another program: nothing moves meanwhile.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// The numbers of the first of them. 0: none.
static FORKERS: [AtomicU32; FORKERS_MAX] = [const { AtomicU32::new(0) }; FORKERS_MAX];

/// A thread makes a process, and its number is in [`FORKERS`], or is not.
const NOTED: u32 = 1;
const NOT_NOTED: u32 = 2;

/// This thread is about to make a process or to run another program. Until its next call nothing of the process moves;
/// that is `wait4` or `waitid` where it waits for the process.
pub fn forking(state: &ProcessTable) {
    if are_several(state) && is_forking() == 0 {
        FORKING.fetch_add(1, SeqCst);
        let is_noted = FORKERS.iter().any(|forker| exchange(forker, 0, own()));
        set_forking(if is_noted { NOTED } else { NOT_NOTED });
    }
}

fn exchange(word: &AtomicU32, expected: u32, new: u32) -> bool {
    word.compare_exchange(expected, new, SeqCst, Relaxed).is_ok()
}

/// The thread makes its next call. What the monitor has seen meanwhile is not true any more.
#[inline]
pub fn has_forked(state: &ProcessTable) {
    let how = is_forking();
    if how != 0 {
        note_forked(state, how);
    }
}

#[cold]
fn note_forked(state: &ProcessTable, how: u32) {
    set_forking(0);
    if how == NOT_NOTED || FORKERS.iter().any(|forker| exchange(forker, own(), 0)) {
        end_forking(state);
    }
}

fn end_forking(state: &ProcessTable) {
    state.fork_epoch.fetch_add(1, SeqCst);
    FORKING.fetch_sub(1, SeqCst);
}

/// Whether a thread makes a process. Looks from time to time for one that has ended since.
pub fn is_any_forking(state: &ProcessTable) -> bool {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    if FORKING.load(SeqCst) != 0 && LOOKS.fetch_add(1, Relaxed) % FORKER_LOOKS == FORKER_LOOKS - 1 {
        forget_forkers(state);
    }
    FORKING.load(SeqCst) != 0
}

/// Forgets threads that make a process and have ended since: they make no next call.
pub fn forget_forkers(state: &ProcessTable) {
    if FORKING.load(SeqCst) == 0 {
        return;
    }
    for forker in &FORKERS {
        let thread = forker.load(Relaxed);
        if thread != 0 && is_thread_gone(process_id(), thread) && exchange(forker, thread, 0) {
            end_forking(state);
        }
    }
}

/// This is a forked process: it has one thread.
pub fn forked() {
    set_known_thread(0);
    set_forking(0);
    for word in [&LOCK, &FORKING].into_iter().chain(&FORKERS).chain(&POLLS).chain(&WAITS) {
        word.store(0, Relaxed);
    }
}

/// An epoll instance is closed: its number may become that of another one.
pub fn epoll_closed(index: usize) {
    if let Some(waits) = WAITS.get(index) {
        waits.fetch_and(!SHARED, SeqCst);
    }
}

/// The count of threads in calls at one end of a file.
pub fn calls_at(file: &File, role: PipeEnd) -> &AtomicU32 {
    if role == PipeEnd::Receiver { &file.receiving } else { &file.sending }
}

/// Threads in `poll` or `select`, by the bits of the files that they wait for.
static POLLS: [AtomicU32; POLLED_BITS] = [const { AtomicU32::new(0) }; POLLED_BITS];
/// Threads that wait for each epoll instance, as `registrations.rs` numbers them; [`SHARED`]: several have done so.
static WAITS: [AtomicU32; EPOLLS_MAX] = [const { AtomicU32::new(0) }; EPOLLS_MAX];
/// Several threads have waited for an epoll instance at a time.
const SHARED: u32 = 1 << 31;

/// A wait of a thread, from before it looks at rings to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadWait {
    /// One that is not counted.
    Other,
    /// By `poll` or `select` for files with these bits.
    Poll(u64),
    /// For an epoll instance.
    Epoll(usize),
}

impl ThreadWait {
    /// Begins a wait. Returns whether its files may not move any more: other threads wait for the same instance.
    pub fn begin(self) -> bool {
        match self {
            ThreadWait::Other => false,
            ThreadWait::Poll(files) => {
                for polls in polls_of(files) {
                    polls.fetch_add(1, SeqCst);
                }
                false
            }
            ThreadWait::Epoll(index) => WAITS.get(index).is_some_and(|waits| {
                let is_second = waits.fetch_add(1, SeqCst) != 0;
                if is_second {
                    waits.fetch_or(SHARED, SeqCst);
                }
                is_second
            }),
        }
    }

    /// Ends it.
    pub fn end(self) {
        match self {
            ThreadWait::Other => {}
            ThreadWait::Poll(files) => {
                for polls in polls_of(files) {
                    polls.fetch_sub(1, SeqCst);
                }
            }
            ThreadWait::Epoll(index) => {
                if let Some(waits) = WAITS.get(index) {
                    waits.fetch_sub(1, SeqCst);
                }
            }
        }
    }

    /// The wait in a word, for the time of a call.
    pub fn into_word(self) -> u64 {
        match self {
            ThreadWait::Other => 0,
            ThreadWait::Poll(files) => files << 1 | 1,
            ThreadWait::Epoll(index) => (index as u64 + 1) << 1,
        }
    }

    /// The wait of a word.
    pub fn from_word(word: u64) -> Self {
        match word {
            0 => ThreadWait::Other,
            files if files & 1 == 1 => ThreadWait::Poll(files >> 1),
            index => ThreadWait::Epoll((index >> 1) as usize - 1),
        }
    }
}

fn waits_of(file: &File) -> u32 {
    let waits = registrations::index_of(file).and_then(|index| WAITS.get(index));
    waits.map_or(0, |waits| waits.load(SeqCst))
}

/// Whether another thread may wait for a file in the kernel.
pub fn is_awaited(file: &File) -> bool {
    waits_of(file) != 0 || POLLS[polled_number(file)].load(SeqCst) != 0
}

/// The bit of a file that is waited for by `poll` or `select`. Other files may have it, too.
pub fn polled_bit(file: &File) -> u64 {
    1 << polled_number(file)
}

fn polled_number(file: &File) -> usize {
    file.fd.load(Relaxed) as usize % POLLED_BITS
}

fn polls_of(files: u64) -> impl Iterator<Item = &'static AtomicU32> {
    POLLS.iter().enumerate().filter(move |(bit, _)| files >> bit & 1 == 1).map(|(_, polls)| polls)
}

/// Whether the file has to stay in the kernel, since its threads use it in a way that a ring does not serve.
pub fn keep_in_kernel(file: &File) -> bool {
    file.flags.load(Relaxed) & flag::BY_THREADS != 0 || waits_of(file) & SHARED != 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn one_thread_at_a_time_has_a_token() {
        static TOKEN: Token = Token::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        assert_eq!(TOKEN.take(true), Taking::Taken);
                        assert!(TOKEN.is_own() && TOKEN.other().is_none());
                        // Not atomic on purpose: two threads at a time would lose some.
                        COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
                        TOKEN.release();
                    }
                });
            }
        });
        assert_eq!(COUNT.load(Relaxed), 60_000);
    }

    #[test]
    fn token_of_a_thread_that_has_ended_is_not_waited_for() {
        static TOKEN: Token = Token::new();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(TOKEN.take(true), Taking::Taken));
        });
        assert_eq!(TOKEN.take(true), Taking::Kept);
    }

    #[test]
    fn call_within_a_call_does_not_wait_for_itself() {
        let token = Token::new();
        assert_eq!((token.take(true), token.take(true)), (Taking::Taken, Taking::Nested));
    }

    #[test]
    fn epoll_instance_of_two_waits_is_shared_from_then_on() {
        let (file, wait) = (File::default(), ThreadWait::Epoll(EPOLLS_MAX - 1));
        file.epoll.store(EPOLLS_MAX as u64, Relaxed);
        assert!(!wait.begin() && is_awaited(&file) && !keep_in_kernel(&file));
        assert!(wait.begin());
        wait.end();
        ThreadWait::from_word(wait.into_word()).end();
        assert!(keep_in_kernel(&file));
    }

    #[test]
    fn poll_of_one_thread_returned_the_files_of_others_to_the_kernel() {
        let of_fd = |fd: u32| File { fd: fd.into(), ..File::default() };
        let (polled, other) = (of_fd(5), of_fd(6));
        let wait = ThreadWait::Poll(polled_bit(&polled) | polled_bit(&of_fd(POLLED_BITS as u32 - 1)));
        assert_eq!(ThreadWait::from_word(wait.into_word()), wait);
        wait.begin();
        assert!(is_awaited(&polled) && !is_awaited(&other));
        ThreadWait::from_word(wait.into_word()).end();
        assert!(!is_awaited(&polled));
    }
}
