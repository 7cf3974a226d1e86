//! The way out of the rings: what returns files to the kernel for good, or until the monitor offers other segments.
//! Promises: a slot is given up under the lock; what a dead sender has left in a ring is read there until the file is
//! closed.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::{Moved, has_moved, is_socket, slot, slots_of, used};
use crate::limits::CLOSE_NS_MAX;
use crate::registrations;
use crate::state::{File, FileRef, ProcessTable, kept};
use crate::sys::now_ns;
use crate::threads::{self, Locked};
use crate::{transfer, wake};

/// Returns a file to the kernel for good, or until the monitor offers another segment.
#[cold]
pub(super) fn leave(state: &ProcessTable, file: &File, why: u32) {
    if slots_of(file).next().is_some() {
        let _locked = Locked::new();
        leave_locked(state, file, why);
    }
}

/// Does so under the lock.
pub(super) fn leave_locked(state: &ProcessTable, file: &File, why: u32) {
    registrations::flush_file(state, file);
    // Whatever follows needs the bytes in the kernel, but for a close.
    let until = if why == kept::CLOSED { now_ns() + CLOSE_NS_MAX } else { u64::MAX };
    for word in [&file.moved_out, &file.moved] {
        let Some(moved) = slot(word) else { continue };
        let Some(segment) = moved.segment() else { continue };
        segment.control().end();
        transfer::leave(moved, segment, u64::from(moved.fd.load(Relaxed)), until);
        // What a dead sender has left stays in the ring, and is read there.
        if moved.rest.load(Relaxed) == 0 || why == kept::CLOSED {
            moved.release_reserve();
            word.store(0, SeqCst);
            moved.is_retired.store(1, SeqCst);
            moved.give_up_if_retired();
        }
    }
    let stays = state.stays.load(Relaxed);
    file.kept.store(if stays == 0 { why } else { stays }, Relaxed);
}

/// Returns the file of a descriptor to the kernel.
pub fn leave_file(state: &ProcessTable, found: FileRef) {
    if !has_moved() {
        return;
    }
    if let Some(file) = state.file(found) {
        leave_moved(state, file, kept::LEFT);
    }
}

/// Returns a file to the kernel, if it is in a ring.
pub fn leave_moved(state: &ProcessTable, file: &File, why: u32) {
    if slots_of(file).next().is_some() {
        leave(state, file, why);
    }
}

/// Returns the file of a descriptor that is closed to the kernel, if it is the last one or the one that is used.
pub fn closing(state: &ProcessTable, file: &File, fd: u64) {
    let is_last = file.refs.load(Relaxed) == 1;
    part_and_leave(state, file, (fd, is_last), if is_last { kept::CLOSED } else { kept::LEFT });
}

/// Does so for a descriptor that is replaced if the kernel does not refuse that.
pub fn replacing(state: &ProcessTable, file: &File, fd: u64) {
    part_and_leave(state, file, (fd, file.refs.load(Relaxed) == 1), kept::LEFT);
}

/// The descriptor was replaced: what a dead sender has left is not read any more, if it was the last one.
pub fn replaced(state: &ProcessTable, file: &File) {
    let has_rest = |moved: &Moved| moved.rest.load(Relaxed) > 0;
    if file.refs.load(Relaxed) == 1 && slots_of(file).any(has_rest) {
        leave(state, file, kept::CLOSED);
    }
}

fn part_and_leave(state: &ProcessTable, file: &File, (fd, is_last): (u64, bool), why: u32) {
    let is_used = |moved: &Moved| moved.is_socket() || u64::from(moved.fd.load(Relaxed)) == fd;
    if slots_of(file).any(|moved| is_last || is_used(moved)) {
        let slots = [slot(&file.moved_out), slot(&file.moved)];
        let parted = slots.map(|moved| moved.and_then(|moved| Some((moved, moved.part(fd)?))));
        leave(state, file, why);
        for (moved, parted) in parted.into_iter().flatten() {
            moved.await_parted(parted);
        }
    }
}

/// The program closes descriptors of these numbers, or replaces one: those of the library are its own no more.
pub fn closing_numbers(first: u64, last: u64) {
    wake::closing_numbers(first, last);
    if has_moved() {
        for moved in used() {
            if (first..=last).contains(&u64::from(moved.reserve.load(Relaxed))) {
                moved.reserve.store(0, Relaxed);
            }
        }
    }
}

/// Returns everything to the kernel.
pub fn leave_all(state: &ProcessTable) {
    leave_each(state, kept::LEFT);
}

/// The process exits: all is closed.
pub fn closing_all(state: &ProcessTable) {
    leave_each(state, kept::CLOSED);
}

fn leave_each(state: &ProcessTable, why: u32) {
    if threads::are_several(state) {
        // What another thread is taking over returns, too. One that begins later sees that nothing may move.
        drop(Locked::new());
    }
    if !has_moved() {
        return;
    }
    for moved in used() {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if moved.segment().is_some()
            && let Some(file) = state.file(file)
        {
            leave_moved(state, file, why);
        }
    }
}

/// Returns everything to the kernel, and keeps it and later files there.
pub fn stay(state: &ProcessTable, why: u32) {
    state.stays.store(why, Relaxed);
    leave_all(state);
}

/// Returns a file to the kernel of which this process has got another end that it uses.
pub fn leave_same(state: &ProcessTable, id: (u64, u64)) {
    if !has_moved() {
        return;
    }
    for moved in used() {
        let file = FileRef::from_word(moved.file.load(Relaxed));
        if let Some(file) = state.file(file).filter(|_| moved.segment().is_some())
            && file.id.load(Relaxed) == id.0
            && (is_socket(file) || file.inode.load(Relaxed) == id.1)
        {
            leave_moved(state, file, kept::HOLDERS);
        }
    }
}
