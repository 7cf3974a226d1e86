//! One file in one epoll instance: what the program wants, and what the kernel has.
//! Promises: each change is one exchange of a word, so a signal handler that comes in the middle of one finds all of
//! the old registration, and its own changes are not overwritten.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, compiler_fence};

use super::Instance;
use crate::state::File;

/// Events and data of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// The events.
    pub events: u32,
    /// The data that the program has given.
    pub data: u64,
}

/// Difference between the program's registration of a file and the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deferral {
    /// None: the kernel has what the program wants.
    None = 0,
    /// Other events or data, or the next edge is wanted.
    Change = 1,
    /// The program has removed the file.
    Removal = 2,
}

/// The word of a file, from its lowest bit: the slot of the instance, and 1 (8 bits; 0: the file is in none); a
/// [`Deferral`] (2); which [`Interest`] is the program's (3) and which the kernel's (3); the count of changes (16); the
/// count of the instance's slot (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registration(u64);

const INSTANCE: u64 = 0xffff_ffff_0000_00ff;
const DEFERRAL_SHIFT: u32 = 8;
const PROGRAM_SHIFT: u32 = 10;
const KERNEL_SHIFT: u32 = 13;
const SLOT: u64 = 7;
const CHANGE: u64 = 1 << 16;
const CHANGES: u64 = 0xffff_0000;

/// Changes that are being made: one that a signal handler makes may be within another one.
static DEPTH: AtomicU32 = AtomicU32::new(0);

/// A change, from before it looks at a registration to its end.
#[derive(Debug)]
pub(super) struct Change {
    depth: u32,
}

impl Change {
    /// Begins.
    pub fn begin() -> Self {
        let depth = DEPTH.load(Relaxed);
        DEPTH.store(depth.wrapping_add(1), Relaxed);
        compiler_fence(SeqCst);
        Self { depth }
    }

    /// This is a forked process, in which none is being made.
    pub fn forked() {
        DEPTH.store(0, Relaxed);
    }

    /// Whether it is within another one. It may not be deferred.
    pub fn is_nested(&self) -> bool {
        self.depth > 0
    }

    /// The slots in which it stores events and data, so that none of another change is overwritten. A nested one finds
    /// one of two free, since nothing is deferred.
    fn slots(&self) -> Range<u64> {
        if self.is_nested() { 3..5 } else { 0..3 }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        DEPTH.store(self.depth, Relaxed);
    }
}

impl Registration {
    /// That of a file.
    pub fn of(file: &File) -> Self {
        Self(file.epoll.load(Relaxed))
    }

    /// The instance in which the kernel has the file.
    pub fn instance(self) -> Option<Instance> {
        let instance = self.0 & INSTANCE;
        (instance as u32 != 0).then_some(Instance(instance))
    }

    /// The instance in which the program has the file.
    pub fn of_program(self) -> Option<Instance> {
        self.instance().filter(|_| self.deferral() != Deferral::Removal)
    }

    /// The difference to the kernel.
    pub fn deferral(self) -> Deferral {
        match self.0 >> DEFERRAL_SHIFT & 3 {
            0 => Deferral::None,
            1 => Deferral::Change,
            _ => Deferral::Removal,
        }
    }

    fn program_slot(self) -> u64 {
        self.0 >> PROGRAM_SHIFT & SLOT
    }

    fn kernel_slot(self) -> u64 {
        self.0 >> KERNEL_SHIFT & SLOT
    }

    fn at(file: &File, slot: u64) -> Interest {
        let (events, data) = (file.epoll_events.get(slot as usize), file.epoll_data.get(slot as usize));
        Interest {
            events: events.map_or(0, |events| events.load(Relaxed)),
            data: data.map_or(0, |data| data.load(Relaxed)),
        }
    }

    /// Events and data that the program wants.
    pub fn interest(self, file: &File) -> Interest {
        Self::at(file, self.program_slot())
    }

    /// Events and data that the kernel has.
    pub fn kernel_interest(self, file: &File) -> Interest {
        Self::at(file, self.kernel_slot())
    }

    /// Replaces it. Returns false if a signal handler has done so meanwhile.
    fn replace(self, file: &File, deferral: Deferral, (program, kernel): (u64, u64), instance: u64) -> bool {
        let changes = self.0.wrapping_add(CHANGE) & CHANGES;
        let deferral = (deferral as u64) << DEFERRAL_SHIFT;
        let next = instance | deferral | program << PROGRAM_SHIFT | kernel << KERNEL_SHIFT | changes;
        file.epoll.compare_exchange(self.0, next, AcqRel, Relaxed).is_ok()
    }

    /// Stores where nothing is that counts; returns the slot.
    fn store(self, file: &File, interest: Interest, change: &Change) -> u64 {
        let is_free = |slot: &u64| *slot != self.program_slot() && *slot != self.kernel_slot();
        let slot = change.slots().find(is_free).unwrap_or_default();
        let (events, data) = (file.epoll_events.get(slot as usize), file.epoll_data.get(slot as usize));
        if let (Some(events), Some(data)) = (events, data) {
            events.store(interest.events, Relaxed);
            data.store(interest.data, Relaxed);
        }
        slot
    }

    /// The kernel has the file in an instance, as the program wants it.
    pub fn registered(self, file: &File, instance: Instance, interest: Interest, change: &Change) -> bool {
        let slot = self.store(file, interest, change);
        self.replace(file, Deferral::None, (slot, slot), instance.0)
    }

    /// Neither has the file.
    pub fn unregistered(self, file: &File) -> bool {
        self.replace(file, Deferral::None, (0, 0), 0)
    }

    /// The program wants this now; the kernel does not know it yet.
    pub fn defer_change(self, file: &File, interest: Interest, change: &Change) -> bool {
        let slot = self.store(file, interest, change);
        self.replace(file, Deferral::Change, (slot, self.kernel_slot()), self.0 & INSTANCE)
    }

    /// The program wants what the kernel has.
    pub fn end_deferral(self, file: &File) -> bool {
        self.replace(file, Deferral::None, (self.kernel_slot(), self.kernel_slot()), self.0 & INSTANCE)
    }

    /// The program has removed the file; the kernel does not know it yet.
    pub fn defer_removal(self, file: &File) -> bool {
        self.replace(file, Deferral::Removal, (self.program_slot(), self.kernel_slot()), self.0 & INSTANCE)
    }

    /// The kernel has what the program wants.
    pub fn changed(self, file: &File) -> bool {
        self.replace(file, Deferral::None, (self.program_slot(), self.program_slot()), self.0 & INSTANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE_3: Instance = Instance(7 << 32 | 3);
    const IN: Interest = Interest { events: 1, data: 11 };
    const OUT: Interest = Interest { events: 4, data: 44 };

    fn now(file: &File) -> Registration {
        Registration::of(file)
    }

    #[test]
    fn table_knows_what_the_kernel_got_last() {
        let (file, change) = (File::default(), Change { depth: 0 });
        let now = || now(&file);
        assert_eq!(now().instance(), None);
        assert!(now().registered(&file, INSTANCE_3, IN, &change));
        for interest in [OUT, Interest { data: 5, ..OUT }, Interest { data: 6, ..IN }] {
            assert!(now().defer_removal(&file));
            assert_eq!((now().of_program(), now().instance()), (None, Some(INSTANCE_3)));
            assert!(now().defer_change(&file, interest, &change));
            assert_eq!((now().interest(&file), now().kernel_interest(&file)), (interest, IN));
            assert_eq!((now().deferral(), now().of_program()), (Deferral::Change, Some(INSTANCE_3)));
        }
        assert!(now().end_deferral(&file));
        assert_eq!((now().interest(&file), now().deferral()), (IN, Deferral::None));
        assert!(now().defer_change(&file, OUT, &change) && now().changed(&file));
        assert_eq!((now().interest(&file), now().kernel_interest(&file)), (OUT, OUT));
        assert!(now().unregistered(&file));
        assert_eq!(now().of_program(), None);
    }

    #[test]
    fn change_of_a_signal_handler_was_overwritten() {
        let (file, main, handler) = (File::default(), Change { depth: 0 }, Change { depth: 1 });
        let other = Interest { events: 5, data: 5 };
        assert!(now(&file).registered(&file, INSTANCE_3, IN, &main));
        for round in 0..20 {
            let interrupted = now(&file);
            // The handler sends what was deferred, and asks the kernel.
            assert!(round % 2 == 0 || now(&file).changed(&file));
            assert!(now(&file).registered(&file, INSTANCE_3, OUT, &handler));
            assert!(!interrupted.defer_removal(&file) && !interrupted.defer_change(&file, IN, &main));
            assert_eq!((now(&file).interest(&file), now(&file).deferral()), (OUT, Deferral::None));
            assert!(now(&file).defer_change(&file, other, &main));
            assert_eq!((now(&file).interest(&file), now(&file).kernel_interest(&file)), (other, OUT));
            assert!(round % 3 > 0 || now(&file).defer_removal(&file));
            assert!(now(&file).changed(&file));
        }
    }
}
