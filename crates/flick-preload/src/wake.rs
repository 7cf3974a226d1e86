//! Wake-ups of a receiver that waits for several files: its thread waits in the kernel beside an event of its own, and
//! says so in the rings. A sender that finds it asleep gets the event once, and signals it.
//! Promises: a sender signals once for a sleep, not once for a message; one that cannot signal returns its bytes to the
//! kernel, which wakes the receiver; a thread that is not woken looks again after [`crate::limits::SLEEP_NS_MAX`].
//! Not here: the wait itself (`wait.rs`), receivers that wait for one file (`transfer.rs`).

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::limits::{WAITER_MISSES, WAITERS_MAX};
use crate::moving::{self, Moved};
use crate::ring::{Control, PipeEnd};
use crate::sleep::{FallingAsleep, ON_EVENT};
use crate::sys::{self, close, event, pipe};
use crate::threads;

/// A thread that waits beside an event of its own, which it keeps.
#[derive(Debug)]
pub struct Waiter {
    /// The thread. 0: none.
    thread: AtomicU32,
    /// Its event: the descriptor, and 1; above it the kernel's number of it. 0: none yet.
    event: AtomicU64,
}

static WAITERS: [Waiter; WAITERS_MAX] =
    [const { Waiter { thread: AtomicU32::new(0), event: AtomicU64::new(0) } }; WAITERS_MAX];

/// 1: this process has made an event, or has got one.
static ARE_ANY: AtomicU32 = AtomicU32::new(0);

/// The descriptor of an event in the process whose it is.
fn fd_of(event: u64) -> u32 {
    (event as u32).wrapping_sub(1)
}

impl Waiter {
    /// This thread's. `None`: there are too many, or the kernel has no events.
    pub fn own() -> Option<&'static Self> {
        let thread = threads::own();
        let known = || WAITERS.iter().find(|waiter| waiter.thread.load(Relaxed) == thread);
        let free = || WAITERS.iter().find(|waiter| waiter.claim(0, thread));
        let waiter = known().or_else(free).or_else(|| Self::of_gone(thread))?;
        if waiter.event.load(Relaxed) == 0 {
            let (fd, id) = event::create()?;
            waiter.event.store(u64::from(id) << 32 | u64::from(fd + 1), Relaxed);
            ARE_ANY.store(1, Relaxed);
        }
        Some(waiter)
    }

    /// Takes it over from another thread.
    fn claim(&self, other: u32, thread: u32) -> bool {
        self.thread.compare_exchange(other, thread, AcqRel, Relaxed).is_ok()
    }

    /// That of a thread which has ended. Looked for from time to time only, since it takes a call for each.
    fn of_gone(thread: u32) -> Option<&'static Self> {
        static MISSES: AtomicU32 = AtomicU32::new(0);
        if !MISSES.fetch_add(1, Relaxed).is_multiple_of(WAITER_MISSES) {
            return None;
        }
        let process = sys::process_id();
        WAITERS.iter().find(|waiter| {
            let other = waiter.thread.load(Relaxed);
            sys::is_thread_gone(process, other) && waiter.claim(other, thread)
        })
    }

    /// The descriptor of its event.
    pub fn fd(&self) -> u32 {
        fd_of(self.event.load(Relaxed))
    }

    /// Says to the sender of a direction that this thread sleeps. A fence has to follow.
    pub fn fall_asleep(&self, control: &Control) -> FallingAsleep {
        control.fall_asleep(self.event.load(Relaxed))
    }

    /// Says that it sleeps no more.
    pub fn awake(&self, control: &Control) {
        control.awake(self.event.load(Relaxed));
    }

    /// Takes back the signal of a sender. Returns false if the program has closed the event; the next wait makes
    /// another one.
    pub fn drain(&self) -> bool {
        let event = self.event.load(Relaxed);
        let is_there = event != 0 && event::drain(fd_of(event));
        if !is_there {
            self.event.store(0, Relaxed);
        }
        is_there
    }
}

/// This is a forked process: it has the events of its parent, and needs none.
pub fn forked() {
    for waiter in &WAITERS {
        waiter.thread.store(0, Relaxed);
    }
    close_all();
}

/// Closes the events of this process. A thread that waits beside one looks again after a while.
pub fn close_all() {
    for waiter in &WAITERS {
        let event = waiter.event.swap(0, Relaxed);
        if event != 0 {
            close(u64::from(fd_of(event)));
        }
    }
}

/// The program closes descriptors of these numbers, or replaces one: those of the library are its own no more.
pub fn closing_numbers(first: u64, last: u64) {
    if ARE_ANY.load(Relaxed) == 0 {
        return;
    }
    let is_closed = |fd: u32| (first..=last).contains(&u64::from(fd));
    for waiter in WAITERS.iter().filter(|waiter| is_closed(waiter.fd())) {
        waiter.event.store(0, Relaxed);
    }
    for moved in moving::all().filter(|moved| is_closed(moved.event_fd.load(Relaxed))) {
        moved.event_fd.store(0, Relaxed);
        moved.event.store(0, Relaxed);
    }
}

/// Wakes the receiver of bytes that were published. Returns false if it has to be woken by the kernel.
#[inline]
pub fn receiver(moved: &Moved, control: &Control) -> bool {
    !control.is_receiver_asleep() || wake(moved, control)
}

/// Wakes the sender, if it sleeps until there is the capacity that was published.
#[inline]
pub fn sender(control: &Control) {
    control.order_capacity();
    pipe::wake_sleeper(&control.shared.0.sender_sleeps);
}

#[cold]
fn wake(moved: &Moved, control: &Control) -> bool {
    match control.take_sleep() {
        0 => return true,
        ON_EVENT => {}
        _ => {
            pipe::wake(&control.shared.0.receiver_sleeps);
            return true;
        }
    }
    // The other directions to that thread need no signal. One whose word is cleared here is signalled below, also if it
    // has begun to sleep again meanwhile.
    let event = control.shared.0.receiver_event.load(Relaxed);
    for other in moving::all().filter(|other| other.role() == PipeEnd::Sender) {
        if let Some(segment) = other.segment() {
            segment.control().awake(event);
        }
    }
    let state = sys::state();
    // The program may have closed the descriptor: it is got again then.
    let signal = || {
        let is_woken = event_of(moved, control, event).is_some_and(event::signal);
        if !is_woken {
            moved.event.store(0, Relaxed);
            moved.event_fd.store(0, Relaxed);
        }
        is_woken
    };
    let is_woken = signal() || signal();
    let count = state.map(|state| if is_woken { &state.wakes } else { &state.wakes_refused });
    if let Some(count) = count {
        count.fetch_add(1, Relaxed);
    }
    if !is_woken {
        control.shared.0.event_refused.store(1, Relaxed);
    }
    is_woken
}

/// This process's descriptor of the receiver's event. Only the thread that has the direction's token calls this.
fn event_of(moved: &Moved, control: &Control, event: u64) -> Option<u32> {
    if moved.event.load(Relaxed) != event {
        release(moved);
        let process = control.header.0.receiver.load(Relaxed);
        let fd = event::of_process(process, fd_of(event), (event >> 32) as u32)?;
        moved.event_fd.store(fd, Relaxed);
        moved.event.store(event, Relaxed);
        ARE_ANY.store(1, Relaxed);
    }
    Some(moved.event_fd.load(Relaxed)).filter(|fd| *fd != 0)
}

/// Gives the receiver's event up.
pub fn release(moved: &Moved) {
    moved.event.store(0, Relaxed);
    let fd = moved.event_fd.swap(0, Relaxed);
    if fd != 0 {
        close(u64::from(fd));
    }
}
