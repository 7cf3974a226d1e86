//! Coroutines: stacks of one thread, between which a test switches at chosen points.
//! Promises: one coroutine runs at a time; a schedule is a function of its seed; a panic of a coroutine ends the run
//! and is its failure.
//! Refuses: other processors than x86-64, and another number of coroutines.

use core::arch::naked_asm;
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::thread_local;
use std::vec::Vec;

/// Coroutines of a run.
pub(super) const COROUTINES: usize = 5;
/// Number of the thread's own stack.
const MAIN: usize = COROUTINES;
/// Bytes of a stack.
const STACK_BYTES: usize = 256 << 10;
/// Points after which the schedule changes its style.
const STYLE_POINTS: u64 = 1024;

type Body = Box<dyn FnOnce()>;

struct Scheduler {
    stacks: [Cell<usize>; COROUTINES + 1],
    is_alive: [Cell<bool>; COROUTINES],
    current: Cell<usize>,
    random: Cell<u64>,
    style: Cell<u64>,
    points: Cell<u64>,
    points_max: Cell<u64>,
    bodies: RefCell<[Option<Body>; COROUTINES]>,
    failure: RefCell<Option<String>>,
}

thread_local! {
    static SCHEDULER: Scheduler = const { Scheduler {
        stacks: [const { Cell::new(0) }; COROUTINES + 1],
        is_alive: [const { Cell::new(false) }; COROUTINES],
        current: Cell::new(MAIN),
        random: Cell::new(1),
        style: Cell::new(0),
        points: Cell::new(0),
        points_max: Cell::new(0),
        bodies: RefCell::new([const { None }; COROUTINES]),
        failure: RefCell::new(None),
    } };
}

/// Saves the registers that a call preserves and the stack in `*save`, and continues on the stack `load`.
#[unsafe(naked)]
unsafe extern "sysv64" fn swap(save: *mut usize, load: usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Continues another coroutine, or the thread.
fn switch_to(next: usize) {
    let (save, load) = SCHEDULER.with(|scheduler| {
        let current = scheduler.current.replace(next);
        (scheduler.stacks[current].as_ptr(), scheduler.stacks[next].get())
    });
    // SAFETY: `load` is the stack that `swap` saved for `next`, or the first one that `run` made; both stay allocated
    // until `run` returns. `save` is a cell of this thread's scheduler, and coroutines do not change threads.
    unsafe { swap(save, load) };
}

/// Runs the body of the current coroutine, and never returns.
extern "sysv64" fn start() -> ! {
    let body = SCHEDULER.with(|scheduler| scheduler.bodies.borrow_mut()[scheduler.current.get()].take());
    if let Some(body) = body
        && catch_unwind(AssertUnwindSafe(body)).is_err()
    {
        fail("a panic");
    }
    loop {
        let next = SCHEDULER.with(|scheduler| {
            scheduler.is_alive[scheduler.current.get()].set(false);
            (0..COROUTINES).find(|other| scheduler.is_alive[*other].get()).unwrap_or(MAIN)
        });
        switch_to(next);
    }
}

/// Returns the next number of the run's seed.
pub(super) fn random() -> u64 {
    SCHEDULER.with(|scheduler| {
        let mut state = scheduler.random.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        scheduler.random.set(state);
        state
    })
}

/// Returns true once in `count` calls, on average.
pub(super) fn one_in(count: u64) -> bool {
    random().is_multiple_of(count)
}

/// Ends the run with a failure; the first one counts.
pub(super) fn fail(why: &str) {
    SCHEDULER.with(|scheduler| {
        let _ = scheduler.failure.borrow_mut().get_or_insert_with(|| why.into());
    });
}

/// Returns the first failure, once.
pub(super) fn take_failure() -> Option<String> {
    SCHEDULER.with(|scheduler| scheduler.failure.borrow_mut().take())
}

/// Returns whether the run has failed: every coroutine then returns.
pub(super) fn has_failed() -> bool {
    SCHEDULER.with(|scheduler| scheduler.failure.borrow().is_some())
}

/// Returns the points that the run has passed.
pub(super) fn points() -> u64 {
    SCHEDULER.with(|scheduler| scheduler.points.get())
}

/// Passes a point: another coroutine may continue. Some styles run one for long, some leave one stopped for long.
pub(super) fn point() {
    let number = random();
    let next = SCHEDULER.with(|scheduler| {
        let points = scheduler.points.get();
        scheduler.points.set(points + 1);
        if points.is_multiple_of(STYLE_POINTS) {
            scheduler.style.set(number >> 40);
        }
        let style = scheduler.style.get();
        if style % 8 < 3 && !number.is_multiple_of(4) {
            return None;
        }
        let mut next = (number >> 8) as usize % COROUTINES;
        let stopped = (style >> 3) as usize % COROUTINES;
        if style % 8 >= 5 && next == stopped && !(number >> 20).is_multiple_of(64) {
            next = (next + 1 + (number >> 30) as usize % (COROUTINES - 1)) % COROUTINES;
        }
        (next != scheduler.current.get() && scheduler.is_alive[next].get()).then_some(next)
    });
    if SCHEDULER.with(|scheduler| scheduler.points.get() > scheduler.points_max.get()) {
        fail("no progress");
    }
    if let Some(next) = next {
        switch_to(next);
    }
}

/// Runs coroutines to their ends.
///
/// Errors: the first failure, also if they pass more than `points_max` points.
pub(super) fn run(seed: u64, points_max: u64, bodies: [Body; COROUTINES]) -> Result<(), String> {
    let mut stacks: Vec<Vec<u128>> =
        (0..COROUTINES).map(|_| std::vec![0_u128; STACK_BYTES / size_of::<u128>()]).collect();
    SCHEDULER.with(|scheduler| {
        for (at, stack) in stacks.iter_mut().enumerate() {
            let words = stack.len();
            // The last pair of words: the address that `swap` returns to, and a frame that is never used. Below it are
            // the six registers that `swap` restores.
            stack[words - 1] = start as *const () as u128;
            scheduler.stacks[at].set(&raw const stack[words - 1] as usize - 6 * 8);
            scheduler.is_alive[at].set(true);
        }
        *scheduler.bodies.borrow_mut() = bodies.map(Some);
        *scheduler.failure.borrow_mut() = None;
        scheduler.current.set(MAIN);
        scheduler.random.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        scheduler.points.set(0);
        scheduler.points_max.set(points_max);
    });
    switch_to(0);
    take_failure().map_or(Ok(()), Err)
}
