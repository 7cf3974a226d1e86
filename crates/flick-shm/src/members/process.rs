//! Processes join a segment, fork, die and leave.

use alloc::sync::Arc;

use rustix::io::Errno;

use super::{GENERATION_SHIFT, IN_KERNEL, Member, ProcessId, Threads};
use crate::control::ProcessWords;
use crate::raw::Words;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Mapping};

/// States of an entry, in the low bits of its word; generation and process number are above.
const STATE: u64 = 0xff;
const FREE: u64 = 0;
/// A process has the entry.
const LISTED: u64 = 1;
/// A process has taken it for a child that it is about to make.
const RESERVED: u64 = 2;
const ENTRY_GENERATION_SHIFT: u32 = 8;
const ENTRY_GENERATION_MASK: u64 = 0xff_ffff;
const GENERATION_BITS: u32 = 24;
const PID_SHIFT: u32 = 32;

fn entry_of(pid: u32, generation: u64, state: u64) -> u64 {
    u64::from(pid) << PID_SHIFT | (generation & ENTRY_GENERATION_MASK) << ENTRY_GENERATION_SHIFT | state
}

fn generation_of(entry: u64) -> u64 {
    entry >> ENTRY_GENERATION_SHIFT & ENTRY_GENERATION_MASK
}

/// Returns the entry of a process and the word that it has; `None` once the process has left.
fn find(processes: &[ProcessWords], process: ProcessId) -> Option<(&ProcessWords, u64)> {
    let words = processes.get(((process.0 & 0xff) as usize).checked_sub(1)?)?;
    let entry = words.identity.load(Ordering::Acquire);
    let is_same = generation_of(entry) == u64::from(process.0 >> ENTRY_GENERATION_SHIFT);
    (is_same && entry & STATE != FREE).then_some((words, entry))
}

/// Returns whether a process has an entry; asks no kernel.
pub(super) fn is_listed(processes: &[ProcessWords], process: ProcessId) -> bool {
    find(processes, process).is_some()
}

/// Returns whether a process lives, and frees its entry if it does not.
pub(super) fn is_alive(processes: &[ProcessWords], process: ProcessId) -> bool {
    let Some((words, entry)) = find(processes, process) else { return false };
    // A value of another generation is that of an earlier process.
    let known = |word: &AtomicU64| {
        let value = word.load(Ordering::Acquire);
        let is_known = value & ENTRY_GENERATION_MASK == generation_of(entry);
        is_known.then_some(value >> GENERATION_BITS).filter(|value| *value != 0)
    };
    let is_own_number =
        known(&words.namespace).is_some_and(|number| Some(number) == sys::process_namespace());
    // A number of another namespace says nothing.
    if !is_own_number || sys::is_process_alive((entry >> PID_SHIFT) as u32, known(&words.birth)) {
        return true;
    }
    remove(words, entry);
    false
}

/// Frees an entry, unless it was used again.
fn remove(words: &ProcessWords, entry: u64) {
    let free = entry_of(0, generation_of(entry), FREE);
    let _ = words.identity.compare_exchange(entry, free, Ordering::AcqRel, Ordering::Relaxed);
}

/// Takes a free entry in a state.
fn take(processes: &[ProcessWords], pid: u32, state: u64) -> Option<(&ProcessWords, u64, ProcessId)> {
    processes.iter().enumerate().find_map(|(at, words)| {
        let entry = words.identity.load(Ordering::Acquire);
        if entry & STATE != FREE {
            return None;
        }
        let new = entry_of(pid, generation_of(entry) + 1, state);
        words.identity.compare_exchange(entry, new, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let id = ProcessId((generation_of(new) << ENTRY_GENERATION_SHIFT) as u32 | (at as u32 + 1));
        Some((words, new, id))
    })
}

/// Writes in which namespace the number of a process counts; without it the process counts as alive.
fn write_namespace(words: &ProcessWords, entry: u64) {
    let number = sys::process_namespace().unwrap_or(0);
    words.namespace.store(number << GENERATION_BITS | generation_of(entry), Ordering::Release);
}

/// Writes what tells this process from later ones with its number.
fn write_birth(words: &ProcessWords, entry: u64) {
    let birth = sys::process_birth((entry >> PID_SHIFT) as u32).unwrap_or(0);
    words.birth.store(birth << GENERATION_BITS | generation_of(entry), Ordering::Release);
    write_namespace(words, entry);
}

/// An entry for a child that is not made yet. Having one means: the ends that its parent holds for it stay open.
#[derive(Clone, Copy, Debug)]
#[must_use = "the child activates it, or the parent withdraws it"]
pub struct Reservation(ProcessId);

impl Reservation {
    /// Returns the process that the child will be.
    pub fn process(self) -> ProcessId {
        self.0
    }
}

/// A segment's members, as one process sees them. All of its threads share one, and a child inherits it.
#[derive(Clone, Debug)]
pub struct Members {
    pub(super) threads: Threads,
    /// Memory that the kernel clears in a child: the process that has joined.
    joined: Words<AtomicU64>,
}

impl Members {
    /// Creates the view of this process.
    ///
    /// Errors: those of `mmap(2)` and `madvise(2)`.
    pub(crate) fn new(threads: Threads) -> Result<Self, Errno> {
        let page = Arc::new(Mapping::cleared_by_fork()?);
        let joined = Words::at(&page, 0).expect("a page has a word");
        Ok(Self { threads, joined })
    }

    /// Joins as this process, if it has not yet; a child of a fork does so before it sends or receives. `None`: the
    /// table is full, so the process stays in the kernel.
    pub fn join(&self) -> Option<ProcessId> {
        if let Some(process) = self.process() {
            return Some(process);
        }
        sys::register_barrier();
        let (words, entry, process) = take(&self.threads.processes, sys::process_number(), LISTED)?;
        write_birth(words, entry);
        self.set_joined(words, entry, process)
    }

    /// Remembers the process, unless another thread has joined first.
    fn set_joined(&self, words: &ProcessWords, entry: u64, process: ProcessId) -> Option<ProcessId> {
        let word = u64::from(process.0);
        if self.joined.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            remove(words, entry);
        }
        self.process()
    }

    /// Returns this process, once it has joined.
    pub fn process(&self) -> Option<ProcessId> {
        let process = self.joined.load(Ordering::Acquire) as u32;
        (process != 0).then_some(ProcessId(process))
    }

    /// Adds the calling thread. `None`: this process has not joined, or there are too many threads.
    pub fn add_thread(&self) -> Option<Member> {
        let process = self.process()?;
        self.threads.records.iter().enumerate().find_map(|(thread, record)| {
            let before = record.identity.load(Ordering::Acquire);
            let owner = ProcessId(before as u32);
            // The record of a dead process is used again if it has no bytes to count.
            if owner.0 != 0 && (self.threads.is_listed(owner) || has_kernel_call(record)) {
                return None;
            }
            let generation = (before >> GENERATION_SHIFT).wrapping_add(1) as u32;
            let new = u64::from(generation) << GENERATION_SHIFT | u64::from(process.0);
            record.identity.compare_exchange(before, new, Ordering::AcqRel, Ordering::Relaxed).ok()?;
            record.busy.iter().for_each(|mark| mark.store(0, Ordering::Release));
            self.threads.header.threads_used.fetch_max(thread as u32 + 1, Ordering::AcqRel);
            let (threads, joined) = (self.threads.clone(), self.joined.clone());
            Some(Member { threads, thread: thread as u32, generation, process, joined })
        })
    }

    /// Removes a thread that ends. It is in no call.
    pub fn remove_thread(&self, member: Member) {
        if self.process() == Some(member.process) && !member.is_in_call() {
            let free = u64::from(member.generation) << GENERATION_SHIFT;
            member.record().identity.store(free, Ordering::Release);
        }
    }

    /// Takes an entry for a child, before a fork. `None`: the table is full.
    pub fn reserve(&self) -> Option<Reservation> {
        // Without a birth: the child writes its own.
        let (words, entry, process) = take(&self.threads.processes, sys::process_number(), RESERVED)?;
        write_namespace(words, entry);
        Some(Reservation(process))
    }

    /// Joins as the child of a fork with the entry that its parent has taken. `None`: the entry is lost, because the
    /// parent died, and the table is full.
    pub fn activate(&self, reservation: Reservation) -> Option<ProcessId> {
        sys::register_barrier();
        let found = find(&self.threads.processes, reservation.0);
        let Some((words, before)) = found.filter(|(_, entry)| entry & STATE == RESERVED) else {
            return self.join();
        };
        let entry = entry_of(sys::process_number(), generation_of(before), LISTED);
        if words.identity.compare_exchange(before, entry, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return self.join();
        }
        write_birth(words, entry);
        self.set_joined(words, entry, reservation.0)
    }

    /// Gives the entry of a child back that was not made.
    pub fn withdraw(&self, reservation: Reservation) {
        if let Some((words, entry)) = find(&self.threads.processes, reservation.0) {
            remove(words, entry);
        }
    }

    /// Leaves: this process holds nothing any more. Its threads are in no call.
    pub fn leave(&self) {
        if let Some(process) = self.process()
            && let Some((words, entry)) = find(&self.threads.processes, process)
        {
            self.joined.store(0, Ordering::Release);
            remove(words, entry);
        }
    }

    /// Asks the kernel which members have died and subtracts them; returns how many are left. A caller that sees the
    /// end of a process or of a socket calls it.
    pub fn reap(&self) -> usize {
        let all = self.threads.processes.iter().enumerate();
        all.filter(|(at, words)| {
            let entry = words.identity.load(Ordering::Acquire);
            let process = (generation_of(entry) << ENTRY_GENERATION_SHIFT) as u32 | (*at as u32 + 1);
            entry & STATE != FREE && is_alive(&self.threads.processes, ProcessId(process))
        })
        .count()
    }

    /// Returns whether the thread with a number as an injector belongs to a process that lives; asks the kernel.
    pub fn is_injector_alive(&self, number: u32) -> bool {
        number.checked_sub(1).is_some_and(|thread| !self.threads.is_dead(thread))
    }

    /// Returns whether a process lives; asks the kernel.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        is_alive(&self.threads.processes, process)
    }
}

fn has_kernel_call(record: &crate::control::ThreadWords) -> bool {
    record.busy.iter().any(|mark| mark.load(Ordering::Acquire) & IN_KERNEL != 0)
}
