//! Registrations of the program in its epoll instances, and the kernel's.
//! Promises: `epoll_ctl` returns what the kernel would return. In a process with one thread a change of a file in a
//! ring that is sure to succeed is kept in the table, and the kernel gets the difference before it is asked and before
//! anything else could see it ([`flush`]).
//! Refuses: files with `EPOLLONESHOT` or `EPOLLEXCLUSIVE`, or in two instances: they stay in the kernel. Instances that
//! are duplicated, polled or in another one: so does the whole process. Changes of an instance that another process may
//! have are the kernel's.

mod registration;

use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

use crate::calls::Call;
use crate::limits::EPOLLS_MAX;
use crate::moving::{self, Moved, SharedMovedSet};
use crate::state::{File, ProcessTable, Seen, flag, kept};
use crate::sys::pipe::SignalsHeld;
use crate::sys::{ProgramMemory, event};
use crate::threads;
pub use registration::Interest;
use registration::{Change, Deferral, Registration};

/// `EPOLLET`.
pub const EDGE: u32 = 1 << 31;
/// `EPOLLONESHOT`, `EPOLLWAKEUP`, `EPOLLEXCLUSIVE`.
const NOT_FOLLOWED: u32 = 7 << 28;
/// Bytes of a `struct epoll_event`, and the offset of its data.
pub const EVENT_BYTES: u64 = 12;
pub const EVENT_DATA: u64 = 4;
/// `EPOLL_CTL_ADD` and its kin.
const ADD: u32 = 1;
const DELETE: u32 = 2;
const MODIFY: u32 = 3;

/// An epoll instance that the program adds files to: its descriptor, and 1. The upper half counts the instances in
/// this slot, so that files which were added to an earlier one are in none.
static INSTANCES: [AtomicU64; EPOLLS_MAX] = [const { AtomicU64::new(0) }; EPOLLS_MAX];
/// Instances that this process has made and no other one can have.
static OWN: [OwnInstance; EPOLLS_MAX] = [const { OwnInstance::new() }; EPOLLS_MAX];
/// Files of which the kernel may have something else, by their first directions.
static DEFERRED: SharedMovedSet = SharedMovedSet::new();

/// An epoll instance: its slot, and 1, and the count of the slot in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance(u64);

impl Instance {
    /// That of a descriptor. `None`: it is not known.
    pub fn of(fd: u32) -> Option<Self> {
        let known = |(index, word): (usize, &AtomicU64)| {
            let word = word.load(Relaxed);
            let is_known = word as u32 == fd.wrapping_add(1) && word as u32 != 0;
            is_known.then_some(Self((word >> 32) << 32 | (index as u64 + 1)))
        };
        INSTANCES.iter().enumerate().find_map(known)
    }

    /// That of a descriptor, which becomes known if there is a free slot.
    pub fn of_new(fd: u32) -> Option<Self> {
        if let Some(instance) = Self::of(fd) {
            return Some(instance);
        }
        for word in &INSTANCES {
            let value = word.load(Relaxed);
            let taken = (value >> 32) << 32 | u64::from(fd.wrapping_add(1));
            if value as u32 == 0 && word.compare_exchange(value, taken, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        Self::of(fd)
    }

    /// The number of its slot.
    pub fn index(self) -> usize {
        (self.0 as u32 as usize).saturating_sub(1)
    }

    /// Its descriptor, unless it is closed.
    fn fd(self) -> Option<u32> {
        let value = INSTANCES.get(self.index())?.load(Relaxed);
        (value >> 32 == self.0 >> 32).then_some(value as u32)?.checked_sub(1)
    }
}

/// The descriptors of the instances.
pub fn instances() -> impl Iterator<Item = u32> {
    INSTANCES.iter().filter_map(|word| (word.load(Relaxed) as u32).checked_sub(1))
}

/// Whether a descriptor is an epoll instance that files were added to.
pub fn is_instance(fd: u32) -> bool {
    instances().any(|known| known == fd)
}

/// An instance that only this process can have.
#[derive(Debug)]
struct OwnInstance {
    /// Its descriptor, and 1. 0: none.
    fd: AtomicU32,
    /// Frame of the `epoll_wait` that is on its way to the kernel, or was the last time. 0: none. What a signal handler
    /// changes meanwhile is the kernel's, which may wait by then; waits of the handler do not end the one below them.
    awaited_in: AtomicU64,
}

impl OwnInstance {
    const fn new() -> Self {
        Self { fd: AtomicU32::new(0), awaited_in: AtomicU64::new(0) }
    }

    /// That of a descriptor.
    fn of(fd: u32) -> Option<&'static Self> {
        let word = fd.wrapping_add(1);
        OWN.iter().find(|own| word != 0 && own.fd.load(Relaxed) == word)
    }
}

/// The program has made an instance.
pub fn made(fd: u32) {
    if let Some(free) = OWN.iter().find(|own| own.fd.load(Relaxed) == 0) {
        free.awaited_in.store(0, Relaxed);
        free.fd.store(fd.wrapping_add(1), Relaxed);
    }
}

/// These descriptors are not instances that only this process has, or not any more.
fn disown(first: u64, last: u64) {
    for own in &OWN {
        let fd = own.fd.load(Relaxed);
        if fd != 0 && (first..=last).contains(&u64::from(fd - 1)) {
            own.fd.store(0, Relaxed);
        }
    }
}

/// An `epoll_wait` begins. The kernel makes it, unless [`answered`] follows. `memory`: of the program.
pub fn waiting(call: &Call, memory: ProgramMemory) {
    let Some(own) = OwnInstance::of(call.arguments()[0] as u32) else { return };
    let (frame, before) = (frame_of(call), own.awaited_in.load(Relaxed));
    // One in a deeper frame has ended, where both are on one stack: it was a signal handler's, or of a deeper function.
    if before == 0 || before <= frame && memory.is_on_stack(frame, 0) {
        own.awaited_in.store(frame, Relaxed);
    }
}

/// The hook has made an `epoll_wait`.
pub fn answered(call: &Call) {
    if let Some(own) = OwnInstance::of(call.arguments()[0] as u32)
        && own.awaited_in.load(Relaxed) == frame_of(call)
    {
        own.awaited_in.store(0, Relaxed);
    }
}

/// The place of a call on its stack: the same for the same call of a program's loop.
fn frame_of(call: &Call) -> u64 {
    ptr::from_ref(call).addr() as u64
}

/// Whether the program has a file in an instance.
#[inline]
pub fn is_in(file: &File, instance: Instance) -> bool {
    Registration::of(file).of_program() == Some(instance)
}

/// Events and data that the program waits for.
#[inline]
pub fn interest(file: &File) -> Interest {
    Registration::of(file).interest(file)
}

/// The slot of the instance that a file is in, also if that is closed.
pub fn index_of(file: &File) -> Option<usize> {
    Registration::of(file).of_program().map(Instance::index)
}

/// Whether a file is in an epoll instance that is there.
fn is_registered(file: &File) -> bool {
    Registration::of(file).of_program().is_some_and(|instance| instance.fd().is_some())
}

/// The file of a descriptor, if it is followed.
fn file_of(state: &ProcessTable, fd: u64) -> Option<&File> {
    match state.look(fd as u32 as usize) {
        Seen::File(found) => state.file(found),
        _ => None,
    }
}

/// Keeps an `epoll_ctl` in the table, so that the kernel does not get it now. Returns false if the kernel is to make
/// the call; it has got what it needs to know for that.
pub fn keep(state: &ProcessTable, call: &Call, memory: ProgramMemory) -> bool {
    let fd = call.arguments()[2];
    let Some(file) = file_of(state, fd) else {
        // An instance in another one, which may have no file yet.
        if OwnInstance::of(fd as u32).is_some() {
            moving::stay(state, kept::LEFT);
        }
        sharing(state, fd);
        return false;
    };
    let change = Change::begin();
    let is_kept = !change.is_nested() && defer(state, file, call, &change, memory);
    if is_kept {
        threads::add(&state.controls_kept, 1, false);
    } else {
        flush_file(state, file);
    }
    is_kept
}

/// Keeps a call that is sure to succeed: the kernel has the file in this instance by this descriptor, and the
/// program has it there, too, or adds it again.
fn defer(state: &ProcessTable, file: &File, call: &Call, change: &Change, memory: ProgramMemory) -> bool {
    let [epoll, operation, fd, event, ..] = call.arguments();
    let known = Registration::of(file);
    let is_known = known.instance().is_some_and(|instance| instance.fd() == Some(epoll as u32))
        && file.epoll_fd.load(Relaxed) == fd as u32
        && file.refs.load(Relaxed) == 1;
    let may_defer = state.threads.load(Relaxed) == 0
        && OwnInstance::of(epoll as u32).is_some_and(|own| own.awaited_in.load(Relaxed) == 0);
    let Some(first) = moving::slots_of(file).next().filter(|_| is_known && may_defer) else { return false };
    let is_kept = match (operation as u32, known.deferral()) {
        (DELETE, Deferral::None | Deferral::Change) => {
            DEFERRED.add(first);
            known.defer_removal(file)
        }
        (ADD, Deferral::Removal) | (MODIFY, Deferral::None | Deferral::Change)
            if memory.is_on_stack(event, EVENT_BYTES) =>
        {
            let interest = interest_at(event, memory);
            if interest.events & NOT_FOLLOWED != 0 {
                return false;
            }
            if interest.events & EDGE == 0 && interest == known.kernel_interest(file) {
                known.end_deferral(file)
            } else {
                // Also what is equal: the kernel tells the next edge again.
                DEFERRED.add(first);
                known.defer_change(file, interest, change)
            }
        }
        _ => false,
    };
    if is_kept {
        // A signal handler may have flushed before the change.
        DEFERRED.add(first);
        if operation as u32 != DELETE {
            moving::slots_of(file).for_each(Moved::arm);
        }
    }
    is_kept
}

/// The `struct epoll_event` at an address.
fn interest_at(event: u64, memory: ProgramMemory) -> Interest {
    Interest { events: memory.half(event), data: memory.word(event + EVENT_DATA) }
}

/// Sends the kernel what it does not have yet.
#[inline]
pub fn flush(state: &ProcessTable) {
    // What a signal handler changes is here, or the handler finds what the caller has stored before.
    compiler_fence(SeqCst);
    if !DEFERRED.is_empty() {
        flush_all(state);
    }
}

fn flush_all(state: &ProcessTable) {
    let held = SignalsHeld::new();
    for moved in DEFERRED.take().iter() {
        if let Some(file) = moved.file(state) {
            send(state, file, &held);
        }
    }
}

/// Sends the kernel what it does not have yet of a file.
pub fn flush_file(state: &ProcessTable, file: &File) {
    if Registration::of(file).deferral() != Deferral::None {
        send(state, file, &SignalsHeld::new());
    }
}

/// Sends the kernel what it does not have yet of a file, while signals are held back.
fn send(state: &ProcessTable, file: &File, _held: &SignalsHeld) {
    let known = Registration::of(file);
    let operation = match known.deferral() {
        Deferral::None => return,
        Deferral::Change => MODIFY,
        Deferral::Removal => DELETE,
    };
    let is_there = known.instance().and_then(Instance::fd).is_some_and(|epoll| {
        let Interest { events, data } = known.interest(file);
        let fd = file.epoll_fd.load(Relaxed);
        event::control(epoll, operation, fd, (events, data)) == 0 && operation == MODIFY
    });
    threads::add(&state.controls_sent, 1, false);
    if is_there {
        known.changed(file);
    } else {
        known.unregistered(file);
    }
}

/// The program replaces a descriptor, if the kernel does not refuse that.
pub fn replacing(state: &ProcessTable, fd: u64) {
    if is_instance(fd as u32) {
        flush(state);
    }
}

/// The program closes descriptors of these numbers.
pub fn closing(state: &ProcessTable, first: u64, last: u64) {
    disown(first, last);
    for (index, word) in INSTANCES.iter().enumerate() {
        let value = word.load(Relaxed);
        if (value as u32).checked_sub(1).is_some_and(|fd| (first..=last).contains(&u64::from(fd))) {
            flush(state);
            word.store(((value >> 32) + 1) << 32, Relaxed);
            threads::epoll_closed(index);
        }
    }
}

/// The program duplicates a descriptor, or passes it to another process: of an epoll instance, calls by another number
/// would not be known; of a file in one, the kernel would keep what is closed.
pub fn duplicating(state: &ProcessTable, fd: u64) {
    // Also one that has no file yet: files that are added by the other number would be in another instance.
    let is_known = is_instance(fd as u32) || OwnInstance::of(fd as u32).is_some();
    sharing(state, fd);
    if is_known {
        moving::stay(state, kept::LEFT);
    }
    if let Some(file) = file_of(state, fd) {
        flush_file(state, file);
    }
}

/// An instance gets known to another process or instance, or by another number.
fn sharing(state: &ProcessTable, fd: u64) {
    let fd = u64::from(fd as u32);
    disown(fd, fd);
    if is_instance(fd as u32) {
        flush(state);
    }
}

/// A process is made that has all instances. Everything has returned to the kernel.
pub fn forking(state: &ProcessTable, has_own_memory: bool) {
    disown(0, u64::MAX);
    // It may wait there for files that it has closed.
    for file in state.files().filter(|file| has_own_memory && is_registered(file)) {
        file.flags.fetch_or(flag::SHARED, Relaxed);
    }
}

/// This is a forked process, whose files do not move.
pub fn forked() {
    disown(0, u64::MAX);
    Change::forked();
    DEFERRED.take();
}

/// Notes what a successful `epoll_ctl` has changed in the kernel.
pub fn control(state: &ProcessTable, call: &Call, memory: ProgramMemory) {
    let [epoll, operation, fd, event, ..] = call.arguments();
    if is_instance(fd as u32) {
        moving::stay(state, kept::LEFT);
    }
    let Seen::File(found) = state.look(fd as u32 as usize) else { return };
    let Some(file) = state.file(found) else { return };
    let change = Change::begin();
    let known = Registration::of(file);
    if operation as u32 == DELETE {
        known.unregistered(file);
        return;
    }
    let interest = interest_at(event, memory);
    let is_second = operation as u32 == ADD && is_registered(file);
    let is_followed = interest.events & NOT_FOLLOWED == 0 && !is_second && file.refs.load(Relaxed) == 1;
    let Some(instance) = Instance::of_new(epoll as u32).filter(|_| is_followed) else {
        file.flags.fetch_or(flag::IN_EPOLL, Relaxed);
        moving::leave_file(state, found);
        return;
    };
    file.epoll_fd.store(fd as u32, Relaxed);
    known.registered(file, instance, interest, &change);
    drop(change);
    moving::slots_of(file).for_each(Moved::arm);
    if threads::is_awaited(file) {
        moving::return_awaited(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_with_an_invalid_descriptor_kept_the_whole_process_in_the_kernel() {
        assert!(OwnInstance::of(u32::MAX).is_none() && !is_instance(u32::MAX));
        assert!(Instance::of(u32::MAX).is_none());
    }
}
