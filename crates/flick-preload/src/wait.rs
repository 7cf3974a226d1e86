//! Waits for several files of which some are in rings: `poll`, `select` and `epoll_wait` in all their forms.
//! Promises: a wait that lasts is made by the kernel, so that signals, timeouts, ends and edges are the kernel's: first
//! beside an event that the senders of the rings signal (`wake.rs`), for [`SLEEP_NS_MAX`] at most; then everything that
//! is waited for is in the kernel. A file in a ring is reported as the kernel would report it, and edges once more than
//! needed rather than once less.
//! Refuses: `EPOLLONESHOT`, `EPOLLEXCLUSIVE`, a file in two epoll instances: such a file stays in the kernel. A process
//! that waits for an epoll instance as for a file, or duplicates it, keeps everything there.

mod time;

use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::calls::{Call, HookDecision};
use crate::limits::{
    ASK_CYCLES, ASK_SKIPS_MAX, FDS_MAX, POLL_ENTRIES_MAX, SELECT_FDS_MAX, SLEEP_NS_MAX, SPURIOUS_MAX,
};
use crate::moving::{self, Moved, MovedSet};
use crate::numbers as nr;
use crate::polling::Polling;
use crate::registrations::{self, EDGE, EVENT_BYTES, EVENT_DATA, Instance, Interest};
use crate::ring::{Control, PipeEnd, PipeState};
use crate::sleep::FallingAsleep;
use crate::state::{File, ProcessTable, Seen, kept};
use crate::sys::event::{self, Beside, SET_WORDS};
use crate::sys::pipe::{self as sys, PipeSegment};
use crate::sys::{ProgramMemory, state};
use crate::threads::ThreadWait;
use crate::transfer::{self, Readiness};
use crate::wake::Waiter;
use time::WaitTime;

/// `POLLIN` and `POLLRDNORM`, which `EPOLLIN` and `EPOLLRDNORM` equal.
const IN: u32 = 0x41;
/// `POLLOUT` and `POLLWRNORM`.
const OUT: u32 = 0x104;

/// The directions that a call waits for.
struct Wanted(MovedSet);

impl Wanted {
    const fn new() -> Self {
        Self(MovedSet::new())
    }

    fn add(&mut self, moved: &'static Moved) {
        self.0.add(moved);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &'static Moved> {
        self.0.iter()
    }

    fn is_any_ready(&self) -> bool {
        self.iter().any(is_ready)
    }

    /// Returns senders to the kernel whose ring is full: the kernel says when more can be sent.
    fn return_full(&self) {
        self.return_those(|moved| moved.role() == PipeEnd::Sender);
    }

    /// Returns what is not ready in its ring to the kernel, which is to wait for it.
    fn return_those(&self, is_meant: impl Fn(&Moved) -> bool) {
        for moved in self.iter().filter(|moved| is_meant(moved)) {
            if let Some(segment) = moved.segment() {
                transfer::return_unless_ready(moved, segment);
            }
        }
    }

    /// Polls the rings for a short time, where that has helped before. Returns whether one is ready.
    fn poll(&self) -> bool {
        static POLLING: Polling = Polling::new();
        let shares_core = |moved: &Moved| {
            moved.segment().is_some_and(|segment| transfer::shares_core(moved, segment.control()))
        };
        POLLING.poll(|| self.iter().any(shares_core), || self.is_any_ready())
    }

    /// Waits until rings or the kernel have what a `poll` or a `select` waits for.
    fn wait(
        &self,
        call: &mut Call,
        time: &mut WaitTime,
        memory: ProgramMemory,
        beside: impl FnMut(u32, u64) -> Option<Beside>,
    ) -> Waited {
        self.return_full();
        if self.is_any_ready() {
            return Waited::Ready;
        }
        if !time.waits() {
            return Waited::ByKernel;
        }
        if self.poll() {
            return Waited::Ready;
        }
        let slept = self.sleep(time, || self.is_any_ready(), beside);
        if slept == Slept::Long {
            self.return_those(|_| true);
            // What has come since the last look was not returned.
            return if self.is_any_ready() { Waited::Ready } else { time.wait_in_kernel(call, memory) };
        }
        time.note_rest(memory);
        match slept {
            Slept::Ready | Slept::Long => Waited::Ready,
            Slept::Kernel(error) if error < 0 => {
                call.result = error;
                Waited::Done
            }
            Slept::Kernel(count) => Waited::Beside(count),
            Slept::Over => Waited::Beside(0),
        }
    }

    /// Whether a ring is in use whose sender can wake this process: a wait in the kernel would return it there.
    fn is_any_in_ring(&self) -> bool {
        let is_in_ring = |control: &Control| control.look().state() == PipeState::Ring;
        self.segments().any(|segment| is_in_ring(segment.control()) && !segment.control().is_wake_refused())
    }

    /// The segments of what is received.
    fn segments(&self) -> impl Iterator<Item = PipeSegment> {
        self.iter().filter(|moved| moved.role() == PipeEnd::Receiver).filter_map(Moved::segment)
    }

    /// Sleeps in the kernel beside the event of this thread, which the senders of the rings signal.
    fn sleep(
        &self,
        time: &mut WaitTime,
        is_due: impl Fn() -> bool,
        mut beside: impl FnMut(u32, u64) -> Option<Beside>,
    ) -> Slept {
        if !self.is_any_in_ring() {
            return Slept::Long;
        }
        let (Some(waiter), Some(state)) = (Waiter::own(), state()) else { return Slept::Long };
        for _ in 0..SPURIOUS_MAX {
            let rest = time.rest_ns().unwrap_or(u64::MAX);
            let mut is_first = false;
            for moved in self.iter().filter(|moved| moved.role() == PipeEnd::Receiver) {
                let Some(segment) = moved.segment() else { continue };
                match waiter.fall_asleep(segment.control()) {
                    FallingAsleep::Known => {}
                    FallingAsleep::First => is_first = true,
                    FallingAsleep::Refused => transfer::return_now(moved, segment),
                }
            }
            if is_first {
                sys::barrier();
            } else {
                fence(SeqCst);
            }
            if is_due() {
                self.segments().for_each(|segment| waiter.awake(segment.control()));
                return Slept::Ready;
            }
            state.sleeps.fetch_add(1, Relaxed);
            let outcome = beside(waiter.fd(), rest.min(SLEEP_NS_MAX));
            self.segments().for_each(|segment| waiter.awake(segment.control()));
            let Some(Beside { result, is_signalled, is_over }) = outcome else { return Slept::Long };
            if (is_signalled || result == event::BAD_DESCRIPTOR) && !waiter.drain() && result <= 0 {
                return Slept::Long;
            }
            if result != 0 {
                return Slept::Kernel(result);
            }
            if is_due() {
                state.late.fetch_add(u64::from(is_over), Relaxed);
                return Slept::Kernel(0);
            }
            if is_over {
                return if rest <= SLEEP_NS_MAX { Slept::Over } else { Slept::Long };
            }
        }
        Slept::Long
    }
}

/// Outcome of a sleep beside rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slept {
    /// A ring has what is waited for. The kernel was not asked.
    Ready,
    /// The kernel has as many files that are ready, or an error. If it has none, a ring has what is waited for.
    Kernel(i64),
    /// The time of the call is over.
    Over,
    /// Nothing has come for long, or the thread cannot sleep beside the rings.
    Long,
}

/// Outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// The kernel is to make the call of the program.
    ByKernel,
    /// The call has its result.
    Done,
    /// Rings have something. The kernel was not asked.
    Ready,
    /// The kernel has said which files are ready, and how many; rings may have something.
    Beside(i64),
}

fn is_ready(moved: &'static Moved) -> bool {
    readiness(moved) == Readiness::Ready
}

fn readiness(moved: &Moved) -> Readiness {
    moved.segment().map_or(Readiness::Kernel, |segment| transfer::readiness(moved, segment))
}

/// The directions of a descriptor, if it is in a ring. A call within a call of the same file takes it out.
fn slots_at(state: &ProcessTable, fd: u32) -> impl Iterator<Item = &'static Moved> {
    let found = if let Seen::File(found) = state.look(fd as usize) { Some(found) } else { None };
    let is_free = |file: &&File| {
        let is_busy = moving::slots_of(file).any(Moved::is_busy);
        if is_busy {
            moving::leave_moved(state, file, kept::LEFT);
        }
        !is_busy
    };
    found.and_then(|found| state.file(found)).filter(is_free).into_iter().flat_map(moving::slots_of)
}

/// Makes a call that waits if a ring is ready. `None`: the kernel is to make it.
pub fn before(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> Option<HookDecision> {
    match call.number() {
        nr::POLL | nr::PPOLL => poll(state, call, memory),
        nr::SELECT | nr::PSELECT6 => select(state, call, memory),
        _ => epoll_wait(state, call, memory),
    }
}

/// The wait that a call is, for the other threads. `fds_end`: there is no descriptor from it on. `polled` returns the
/// bit of a file that may move.
pub fn of_call(
    call: &Call,
    memory: ProgramMemory,
    fds_end: usize,
    polled: impl Fn(u64) -> Option<u64>,
) -> ThreadWait {
    let [first, second, ..] = call.arguments();
    let mut files = 0;
    match call.number() {
        nr::POLL | nr::PPOLL => {
            for index in 0..second.min(FDS_MAX as u64) {
                files |= polled(memory.word(first + 8 * index) & 0xffff_ffff).unwrap_or_default();
            }
        }
        nr::SELECT | nr::PSELECT6 => {
            let [count, reads, ..] = call.arguments();
            // The kernel reads a set up to the size of its table of descriptors, whatever the program says.
            let count = u64::try_from(count as i32).unwrap_or_default();
            for fd in 0..count.min(fds_end.max(SELECT_FDS_MAX) as u64) {
                let is_set = reads != 0 && memory.word(reads + fd / 64 * 8) >> (fd % 64) & 1 == 1;
                files |= is_set.then(|| polled(fd)).flatten().unwrap_or_default();
            }
        }
        _ => {
            return Instance::of_new(first as u32)
                .map_or(ThreadWait::Other, |instance| ThreadWait::Epoll(instance.index()));
        }
    }
    if files == 0 { ThreadWait::Other } else { ThreadWait::Poll(files) }
}

/// Bits that a direction stands for.
fn bits_of(moved: &Moved) -> u32 {
    if moved.role() == PipeEnd::Receiver { IN } else { OUT }
}

/// Makes `poll` and `ppoll`. Not inlined, as the other two: no other call needs their memory on the stack.
#[inline(never)]
fn poll(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> Option<HookDecision> {
    let [list, count, ..] = call.arguments();
    let mut wanted = Wanted::new();
    for index in 0..count.min(FDS_MAX as u64) {
        let entry = memory.word(list + 8 * index);
        if registrations::is_instance(entry as u32) {
            moving::stay(state, kept::LEFT);
            return None;
        }
        let slots = slots_at(state, entry as u32);
        slots.filter(|moved| bits_of(moved) & (entry >> 32) as u32 != 0).for_each(|moved| wanted.add(moved));
    }
    let mut time = WaitTime::of(call, memory)?;
    if wanted.is_empty() {
        return None;
    }
    until_decided(|| poll_once(state, call, memory, &wanted, &mut time))
}

/// Decision on a call that waits: `Continue` if it has no result yet and waits on.
type Decision = ControlFlow<Option<HookDecision>>;

const DONE: Decision = ControlFlow::Break(Some(HookDecision::Done));

/// Makes a call again while it has no result: a ring that was ready had returned to the kernel, which was asked before.
fn until_decided(mut once: impl FnMut() -> Decision) -> Option<HookDecision> {
    (0..SPURIOUS_MAX).find_map(|_| once().break_value()).unwrap_or(Some(HookDecision::Done))
}

/// The decision on a call with this result, which has none if it is zero before its time is over.
fn decision_on(result: i64, time: &mut WaitTime) -> Decision {
    if result != 0 || !time.is_left() { DONE } else { ControlFlow::Continue(()) }
}

/// Makes `poll` and `ppoll` once.
fn poll_once(
    state: &ProcessTable,
    call: &mut Call,
    memory: ProgramMemory,
    wanted: &Wanted,
    time: &mut WaitTime,
) -> Decision {
    let [list, count, _, mask, mask_bytes, _] = call.arguments();
    let (count, is_ppoll) = (count.min(FDS_MAX as u64), call.number() == nr::PPOLL);
    let mut entries = [0; POLL_ENTRIES_MAX + 1];
    let beside = |event: u32, ns: u64| {
        let entries = entries.get_mut(..=count as usize)?;
        for (entry, index) in entries.iter_mut().zip(0..count) {
            *entry = memory.word(list + 8 * index) & 0xffff_ffff_ffff;
        }
        let mask = if is_ppoll { [mask, mask_bytes] } else { [0; 2] };
        Some(event::poll(entries, event, ns, mask))
    };
    match wanted.wait(call, time, memory, beside) {
        Waited::ByKernel => return ControlFlow::Break(None),
        Waited::Done => return DONE,
        Waited::Beside(_) => {
            for (entry, index) in entries.iter().zip(0..count) {
                memory.set_word(list + 8 * index, *entry);
            }
        }
        Waited::Ready => {
            let zero = [0_u64; 2];
            let time = if is_ppoll { zero.as_ptr() as u64 } else { 0 };
            // Without the mask: what is ready comes before a signal.
            call.result = sys::repeat(call.number(), [list, count, time, 0, 0, 0]);
            if call.result < 0 && call.result != sys::INTERRUPTED {
                return DONE;
            }
        }
    }
    call.result = 0;
    for index in 0..count {
        let at = list + 8 * index;
        let mut entry = memory.word(at);
        let events = (entry >> 32) as u32 & 0xffff;
        for moved in slots_at(state, entry as u32).filter(|moved| is_ready(moved)) {
            entry |= u64::from(bits_of(moved) & events) << 48;
        }
        memory.set_word(at, entry);
        call.result += i64::from(entry >> 48 != 0);
    }
    decision_on(call.result, time)
}

/// The words of a set of `select`, without files that are not meant. `None`: there are too many.
fn words_of(set: u64, count: u64, memory: ProgramMemory) -> Option<[u64; SET_WORDS]> {
    let mut words = [0; SET_WORDS];
    for (word, at) in words.iter_mut().zip(0..count.div_ceil(64)).filter(|_| set != 0) {
        let others = (64 * (at + 1)).saturating_sub(count);
        *word = memory.word(set + at * 8) << others >> others;
    }
    (count <= SELECT_FDS_MAX as u64).then_some(words)
}

/// Stores the words of a set of `select`, if the call has it.
fn set_words(set: u64, words: &[u64; SET_WORDS], count: u64, memory: ProgramMemory) {
    for (word, at) in words.iter().zip(0..count.div_ceil(64)).filter(|_| set != 0) {
        memory.set_word(set + at * 8, *word);
    }
}

/// The set of a `select` in which a direction is waited for.
fn set_of(moved: &Moved, call: &Call) -> u64 {
    let [_, reads, writes, ..] = call.arguments();
    if moved.role() == PipeEnd::Receiver { reads } else { writes }
}

/// Returns files to the kernel that a `select` names by another descriptor than the one which their calls use, and
/// which a ring's readiness is reported for.
fn leave_duplicates(state: &ProcessTable, call: &Call, has: impl Fn(u64, u32) -> bool) {
    for moved in moving::all() {
        let Some(file) = moved.file(state).filter(|file| file.refs.load(Relaxed) > 1) else { continue };
        let used = moved.fd.load(Relaxed);
        let is_other = |fd: u32| {
            let is_of = |found| matches!(found, Seen::File(found) if moved.is_of(found));
            fd != used && is_of(state.look(fd as usize)) && has(set_of(moved, call), fd)
        };
        if (0..state.fds_end() as u32).any(is_other) {
            moving::leave_moved(state, file, kept::LEFT);
        }
    }
}

/// Makes `select` and `pselect6`.
#[inline(never)]
fn select(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> Option<HookDecision> {
    let [count, reads, writes, others, ..] = call.arguments();
    let has = |set: u64, fd: u32| is_in_set(set, count, fd, memory);
    if registrations::instances().any(|fd| has(reads, fd) || has(writes, fd) || has(others, fd)) {
        moving::stay(state, kept::LEFT);
        return None;
    }
    leave_duplicates(state, call, has);
    let mut wanted = Wanted::new();
    for moved in moving::all() {
        let fd = moved.fd.load(Relaxed);
        if has(set_of(moved, call), fd) {
            let own = slots_at(state, fd).filter(|slot| core::ptr::eq(*slot, moved));
            own.for_each(|moved| wanted.add(moved));
        }
    }
    let mut time = WaitTime::of(call, memory)?;
    if wanted.is_empty() {
        return None;
    }
    let saved = [reads, writes, others].map(|set| words_of(set, count, memory));
    until_decided(|| {
        let decision = select_once(call, memory, &wanted, &mut time);
        if decision.is_continue() {
            // The kernel has emptied the sets.
            for (set, words) in [reads, writes, others].into_iter().zip(&saved) {
                let Some(words) = words else { return DONE };
                set_words(set, words, count, memory);
            }
        }
        decision
    })
}

/// Makes `select` and `pselect6` once.
fn select_once(call: &mut Call, memory: ProgramMemory, wanted: &Wanted, time: &mut WaitTime) -> Decision {
    let [count, reads, writes, others, _, mask] = call.arguments();
    let is_pselect = call.number() == nr::PSELECT6;
    let own_sets = [reads, writes, others];
    let mut sets = [[0; SET_WORDS]; 3];
    let beside = |event: u32, ns: u64| {
        for (words, own) in sets.iter_mut().zip(own_sets) {
            *words = words_of(own, count, memory)?;
        }
        event::select(&mut sets, count, event, ns, if is_pselect { mask } else { 0 })
    };
    match wanted.wait(call, time, memory, beside) {
        Waited::ByKernel => return ControlFlow::Break(None),
        Waited::Done => return DONE,
        Waited::Beside(result) => {
            for (words, own) in sets.iter().zip(own_sets) {
                set_words(own, words, count, memory);
            }
            call.result = result;
        }
        Waited::Ready => {
            let zero = [0_u64; 2];
            // As with `poll`; an interrupted call has not written its sets.
            call.result = sys::repeat(call.number(), [count, reads, writes, others, zero.as_ptr() as u64, 0]);
            if call.result == sys::INTERRUPTED {
                own_sets.iter().for_each(|set| set_words(*set, &[0; SET_WORDS], count, memory));
                call.result = 0;
            } else if call.result < 0 {
                return DONE;
            }
        }
    }
    for moved in wanted.iter().filter(|moved| is_ready(moved)) {
        let (set, fd) = (set_of(moved, call), moved.fd.load(Relaxed));
        if !is_in_set(set, count, fd, memory) {
            let at = set + u64::from(fd / 64) * 8;
            memory.set_word(at, memory.word(at) | 1 << (fd % 64));
            call.result += 1;
        }
    }
    decision_on(call.result, time)
}

fn is_in_set(set: u64, count: u64, fd: u32, memory: ProgramMemory) -> bool {
    u64::from(fd) < count && set != 0 && memory.word(set + u64::from(fd / 64) * 8) >> (fd % 64) & 1 == 1
}

/// Whether `epoll_wait` is to report a direction of a file with these events.
fn is_reportable(moved: &Moved, events: u32) -> bool {
    let is_ready = match readiness(moved) {
        Readiness::Ready => true,
        Readiness::NotReady => false,
        // The kernel saw no refused send, and so tells no edge.
        Readiness::Kernel => moved.role() == PipeEnd::Sender && moved.is_refused() && moved.is_writable(),
    };
    is_ready && (events & EDGE == 0 || moved.has_edge())
}

/// Makes `epoll_wait` in one of its forms. The kernel gets what was registered before it is asked.
#[inline(never)]
fn epoll_wait(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> Option<HookDecision> {
    let decision = epoll_wait_in_rings(state, call, memory);
    match decision {
        Some(_) => registrations::answered(call),
        None => registrations::flush(state),
    }
    decision
}

fn epoll_wait_in_rings(state: &ProcessTable, call: &mut Call, memory: ProgramMemory) -> Option<HookDecision> {
    let [epoll, _, max, ..] = call.arguments();
    let (instance, max) = (Instance::of(epoll as u32)?, max as u32);
    let mut wanted = Wanted::new();
    for moved in moving::all() {
        let Some(file) = moved.file(state).filter(|file| registrations::is_in(file, instance)) else {
            continue;
        };
        if moved.is_busy() {
            moving::leave_all(state);
            return None;
        }
        if bits_of(moved) & registrations::interest(file).events != 0 {
            wanted.add(moved);
        }
    }
    let mut time = WaitTime::of(call, memory)?;
    if wanted.is_empty() || max == 0 || max > i32::MAX as u32 {
        return None;
    }
    until_decided(|| epoll_wait_once(state, call, memory, (instance, &wanted), &mut time))
}

/// Makes `epoll_wait` once, for this instance.
fn epoll_wait_once(
    state: &ProcessTable,
    call: &mut Call,
    memory: ProgramMemory,
    (instance, wanted): (Instance, &Wanted),
    time: &mut WaitTime,
) -> Decision {
    let [_, list, max, ..] = call.arguments();
    let max = u64::from(max as u32);
    let is_due = |moved: &'static Moved| {
        moved.file(state).is_some_and(|file| is_reportable(moved, registrations::interest(file).events))
    };
    // An edge that was reported is not waited for.
    wanted.return_those(|moved| moved.role() == PipeEnd::Sender && !is_idle_edge(state, moved));
    let is_any_due = || wanted.iter().any(is_due);
    let (number, arguments) = (call.number(), call.arguments());
    let mut asked = None;
    let waits = time.waits();
    if !(is_any_due() || waits && wanted.poll() && is_any_due()) {
        if !waits {
            return ControlFlow::Break(None);
        }
        let beside = |event: u32, ns: u64| {
            registrations::flush(state);
            Some(wait_beside(number, arguments, event, ns))
        };
        match wanted.sleep(time, is_any_due, beside) {
            Slept::Long => {
                return_to_wait(state, wanted);
                if !is_any_due() {
                    registrations::flush(state);
                    let is_done = time.wait_in_kernel(call, memory) == Waited::Done;
                    return ControlFlow::Break(is_done.then_some(HookDecision::Done));
                }
            }
            Slept::Kernel(error) if error < 0 => {
                call.result = error;
                return DONE;
            }
            Slept::Kernel(count) => asked = Some(count as u64),
            Slept::Over => asked = Some(0),
            Slept::Ready => {}
        }
    }
    let due = wanted.iter().filter(|moved| is_due(moved)).count() as u64;
    let mut reported = match asked {
        Some(count) => count,
        None if asks_kernel(max) => {
            registrations::flush(state);
            let capacity = max.saturating_sub(due).max(1);
            u64::try_from(ask_epoll(number, arguments, capacity)).unwrap_or_default()
        }
        None => 0,
    };
    for moved in wanted.iter().filter(|moved| is_due(moved)) {
        // Another thread may have closed it meanwhile.
        let Some(file) = moved.file(state).filter(|file| registrations::is_in(file, instance)) else {
            continue;
        };
        reported = report(moved, file, list, reported, max, memory);
    }
    call.result = reported as i64;
    decision_on(call.result, time)
}

/// Makes an `epoll_wait` without waiting; returns the kernel's result.
fn ask_epoll(number: u32, [epoll, list, _, _, mask, mask_bytes]: [u64; 6], capacity: u64) -> i64 {
    let zero = [0_u64; 2];
    let time = if number == nr::EPOLL_PWAIT2 { zero.as_ptr() as u64 } else { 0 };
    sys::repeat(number, [epoll, list, capacity, time, mask, mask_bytes])
}

/// Makes an `epoll_wait` that ends with an event, too, and after `ns` at most.
fn wait_beside(number: u32, arguments: [u64; 6], event: u32, ns: u64) -> Beside {
    let [epoll, _, max, _, mask, mask_bytes] = arguments;
    let mut entries = [event::readable(epoll as u32), 0];
    let mask = if number == nr::EPOLL_WAIT { [0; 2] } else { [mask, mask_bytes] };
    let beside = event::poll(&mut entries, event, ns, mask);
    if beside.result <= 0 {
        return beside;
    }
    Beside { result: ask_epoll(number, arguments, u64::from(max as u32)), ..beside }
}

/// Returns what an `epoll_wait` waits for to the kernel, which is to wait for it.
fn return_to_wait(state: &ProcessTable, wanted: &Wanted) {
    wanted.return_those(|moved| !is_idle_edge(state, moved));
    // The kernel tells the next edge of what is waited for by edges, also if the ring has bytes of an earlier one.
    let is_edge = |file: &File| registrations::interest(file).events & EDGE != 0;
    let by_edges = wanted.iter().filter_map(|moved| moved.file(state)).filter(|file| is_edge(file));
    by_edges.for_each(moving::return_awaited);
}

/// Whether only an edge of a direction is reported, and none has come: the kernel need not watch it.
fn is_idle_edge(state: &ProcessTable, moved: &Moved) -> bool {
    let is_edge = moved.file(state).is_some_and(|file| registrations::interest(file).events & EDGE != 0);
    is_edge && moved.role() == PipeEnd::Sender && !moved.is_refused()
}

/// Adds what a ring has to the events that are reported of its file. Returns how many events there are then.
fn report(moved: &Moved, file: &File, list: u64, reported: u64, max: u64, memory: ProgramMemory) -> u64 {
    let Interest { events, data } = registrations::interest(file);
    let at = |index: u64| list + EVENT_BYTES * index;
    let own = (0..reported).find(|index| memory.word(at(*index) + EVENT_DATA) == data);
    let index = own.unwrap_or(reported);
    if index == max {
        return reported;
    }
    let before = if own.is_some() { memory.half(at(index)) } else { 0 };
    memory.set_half(at(index), before | bits_of(moved) & events);
    memory.set_word(at(index) + EVENT_DATA, data);
    moved.note_edge();
    reported.max(index + 1)
}

/// Whether the kernel is to be asked, too: it is from time to time while rings are ready, and where there is space for
/// one event only, not twice in a row.
fn asks_kernel(max: u64) -> bool {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    static SKIPPED: AtomicU32 = AtomicU32::new(0);
    let now = sys::cycles();
    let skipped = SKIPPED.load(Relaxed);
    let is_recent = now.wrapping_sub(ASKED.load(Relaxed)) < ASK_CYCLES && skipped < ASK_SKIPS_MAX;
    if is_recent || max == 1 && skipped == 0 {
        SKIPPED.store(skipped + 1, Relaxed);
        return false;
    }
    ASKED.store(now, Relaxed);
    SKIPPED.store(0, Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_has_always_something_hid_rings_from_waits_for_one_event() {
        let mut was_asked = false;
        for _ in 0..10 {
            let began = sys::cycles();
            while sys::cycles().wrapping_sub(began) <= ASK_CYCLES {}
            let is_asked = asks_kernel(1);
            assert!(!(is_asked && was_asked), "the kernel came first twice");
            was_asked = is_asked;
        }
        assert!(was_asked || asks_kernel(64), "the kernel is asked");
    }
}
