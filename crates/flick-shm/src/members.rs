//! Members of a segment: the processes that use its switched directions, and their threads.
//! Promises: a number of a process or a thread is never that of another one, also if the kernel uses its process number
//! again; a process that was forked is not a member until it joins, and owns nothing of its parent; a process that died
//! is subtracted by the first who notices.
//! Refuses: `vfork(2)`. Its child runs in the memory of its parent and must not call anything here.
//! Source: hazard pointers (Michael, 2004) for marks that only their thread writes.

#[cfg(not(loom))]
mod process;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

#[cfg(not(loom))]
pub use process::{Members, Reservation};

#[cfg(not(loom))]
use crate::control::ProcessWords;
use crate::control::{MembersWords, ThreadWords};
use crate::raw::{WordList, Words};
use crate::sleep::Fencing;
use crate::sync::{AtomicU64, Ordering};

/// Bits of an end in a mark; the generation of the thread's record is above them.
const END_MASK: u64 = (1 << 31) - 1;
/// Bit of a mark: the thread uses the kernel's socket.
const IN_KERNEL: u64 = 1 << 31;
const GENERATION_SHIFT: u32 = 32;

/// Process that is a member of a segment: an entry of the segment's table, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId(pub(crate) u32);

/// The end of a direction at which a thread sends or receives; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndNumber(u32);

impl EndNumber {
    pub fn new(slot: u32, sender: u32, is_receiver: bool) -> Self {
        Self(1 + ((slot << 1 | sender) << 1 | u32::from(is_receiver)))
    }

    fn is_in(self, mark: u64) -> bool {
        mark & END_MASK == u64::from(self.0)
    }
}

/// Reason why a thread cannot begin a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A signal handler interrupts a call of its thread at the same end.
    Nested,
    /// The process was forked and has not joined.
    NotJoined,
}

/// Result of a look at the other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// None is in a call at the end.
    Idle,
    Busy,
    /// One died while it used the kernel's socket: how many bytes it moved is unknown.
    Uncounted,
}

/// The records of all threads.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    pub header: Words<MembersWords>,
    pub records: WordList<ThreadWords>,
    #[cfg(not(loom))]
    pub processes: WordList<ProcessWords>,
}

impl Threads {
    fn used(&self) -> &[ThreadWords] {
        let used = self.header.threads_used.load(Ordering::Acquire) as usize;
        &self.records[..used.min(self.records.len())]
    }

    /// Returns whether a thread is in a call at an end.
    pub fn is_busy(&self, thread: u32, end: EndNumber) -> bool {
        let record = self.records.get(thread as usize);
        record.is_some_and(|record| record.busy.iter().any(|mark| end.is_in(mark.load(Ordering::Acquire))))
    }

    /// Looks for calls at an end, but for the one that a thread is in itself.
    pub fn others(&self, end: EndNumber, member: &Member, call: Call) -> Others {
        let mut others = Others::Idle;
        for (thread, record) in self.used().iter().enumerate() {
            for (depth, mark) in record.busy.iter().enumerate() {
                let value = mark.load(Ordering::Acquire);
                let is_own = thread as u32 == member.thread && depth == call.0;
                if is_own || !end.is_in(value) {
                    continue;
                }
                if !self.is_gone(record) {
                    return Others::Busy;
                }
                if value & IN_KERNEL != 0 {
                    others = Others::Uncounted;
                }
            }
        }
        others
    }

    /// Forgets the calls of dead threads at an end, once their bytes in the kernel are counted.
    pub fn forget_dead(&self, end: EndNumber) {
        for record in self.used().iter().filter(|record| self.is_gone(record)) {
            for mark in &record.busy {
                let value = mark.load(Ordering::Acquire);
                if end.is_in(value) {
                    // The generation in the mark keeps the next owner of the record apart.
                    let _ = mark.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns whether the process of a record has left, as far as it is known without asking the kernel.
    #[cfg(not(loom))]
    fn is_gone(&self, record: &ThreadWords) -> bool {
        let process = ProcessId(record.identity.load(Ordering::Acquire) as u32);
        !process::is_listed(&self.processes, process)
    }

    #[cfg(loom)]
    fn is_gone(&self, _: &ThreadWords) -> bool {
        false
    }

    /// Returns whether the process of a thread is dead; asks the kernel.
    #[cfg(not(loom))]
    pub fn is_dead(&self, thread: u32) -> bool {
        let Some(record) = self.records.get(thread as usize) else { return false };
        let process = ProcessId(record.identity.load(Ordering::Acquire) as u32);
        !process::is_alive(&self.processes, process)
    }

    /// Returns whether a process has not left.
    #[cfg(not(loom))]
    pub fn is_listed(&self, process: ProcessId) -> bool {
        process::is_listed(&self.processes, process)
    }
}

/// A call of a thread at an end: the index of its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(usize);

/// One thread that is a member of a segment. Signal handlers of the thread use the same one.
#[derive(Debug)]
pub struct Member {
    threads: Threads,
    thread: u32,
    generation: u32,
    process: ProcessId,
    /// The process in memory that a fork clears in the child.
    joined: Words<AtomicU64>,
}

impl Member {
    /// Returns the process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns the number of the thread as an [`Injector`](crate::switch::Injector).
    pub fn injector_number(&self) -> u32 {
        self.thread + 1
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    fn record(&self) -> &ThreadWords {
        &self.threads.records[self.thread as usize]
    }

    /// Returns whether the thread is in a call. A signal handler for which it is must not fork: the child would
    /// continue the call of its parent.
    pub fn is_in_call(&self) -> bool {
        self.record().busy.iter().any(|mark| mark.load(Ordering::Relaxed) != 0)
    }

    /// Marks the thread as one in a call, visibly before what it looks at next.
    #[inline]
    pub(crate) fn enter(&self, end: EndNumber, fencing: Fencing) -> Result<Call, Refused> {
        if self.joined.load(Ordering::Relaxed) != u64::from(self.process.0) {
            return Err(Refused::NotJoined);
        }
        let busy = &self.record().busy;
        let depth = if busy[0].load(Ordering::Relaxed) == 0 { 0 } else { self.depth(end)? };
        let call = Call(depth);
        self.resume(call, end, fencing);
        Ok(call)
    }

    /// Returns the first free mark of a thread that a signal handler has interrupted.
    #[cold]
    fn depth(&self, end: EndNumber) -> Result<usize, Refused> {
        let mut free = Err(Refused::Nested);
        for (depth, mark) in self.record().busy.iter().enumerate() {
            let value = mark.load(Ordering::Relaxed);
            // The kernel keeps calls of one thread in order itself.
            if end.is_in(value) && value & IN_KERNEL == 0 {
                return Err(Refused::Nested);
            }
            free = if value != 0 { Err(Refused::Nested) } else { free.or(Ok(depth)) };
        }
        free
    }

    /// Takes the mark of a call back while it waits: it has done nothing yet.
    pub(crate) fn suspend(&self, call: Call) {
        self.leave(call);
    }

    /// Marks a call again, as [`enter`](Self::enter) does.
    #[inline]
    pub(crate) fn resume(&self, call: Call, end: EndNumber, fencing: Fencing) {
        let generation = u64::from(self.generation) << GENERATION_SHIFT;
        self.record().busy[call.0].store(generation | u64::from(end.0), Ordering::Relaxed);
        fencing.after_publication();
    }

    /// Marks the call as one that uses the kernel's socket.
    pub(crate) fn use_kernel(&self, call: Call) {
        self.record().busy[call.0].fetch_or(IN_KERNEL, Ordering::AcqRel);
    }

    /// Returns the call at an end that uses the kernel's socket, the innermost one.
    pub(crate) fn kernel_call(&self, end: EndNumber) -> Option<Call> {
        let is_such = |mark: &AtomicU64| {
            let value = mark.load(Ordering::Relaxed);
            end.is_in(value) && value & IN_KERNEL != 0
        };
        self.record().busy.iter().rposition(is_such).map(Call)
    }

    /// Ends a call: what it did is visible to a thread that no longer finds its mark.
    #[inline]
    pub(crate) fn leave(&self, call: Call) {
        self.record().busy[call.0].store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
impl Member {
    /// Returns the members of a model, and their records.
    pub(crate) fn all<const N: usize>() -> (Threads, [Self; N]) {
        use alloc::sync::Arc;
        let records = (0..N).map(|_| ThreadWords::default()).collect::<alloc::vec::Vec<_>>();
        let header = Words(Arc::new(MembersWords::default()));
        header.threads_used.store(N as u32, Ordering::Relaxed);
        let threads = Threads { header, records: WordList(records.into()) };
        let joined = Words(Arc::new(AtomicU64::new(1)));
        let members = core::array::from_fn(|thread| Self {
            threads: threads.clone(),
            thread: thread as u32,
            generation: 0,
            process: ProcessId(1),
            joined: joined.clone(),
        });
        (threads, members)
    }
}
