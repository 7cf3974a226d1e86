//! Segments that the monitor offers, and how a file enters its rings.
//! Promises: an offer is taken by the one descriptor of a file that nothing has happened to since the monitor looked.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::fence;

use super::returning::leave_locked;
use super::{COUNT, END, MOVED, Moved, is_socket, may_move};
use crate::limits::{OFFER_TRIES_MAX, PIPE_BYTES};
use crate::ring::{MAGIC, PipeEnd, PipeHeader};
use crate::socket;
use crate::state::{File, FileRef, Kind, ProcessTable, flag, kept};
use crate::sys::pipe::{self as sys, PipeSegment};
use crate::sys::{close, socket as sys_socket};
use crate::threads::{self, Locked};

/// Takes the segment that the monitor offers, unless something has changed since it looked.
#[cold]
pub(super) fn take_offer(state: &ProcessTable, found: FileRef, file: &File, fd: u64) {
    if threads::is_any_forking(state) || threads::is_within_call(state, file) {
        // Calls that the kernel makes meanwhile do not wait for each other.
        return;
    }
    let _locked = Locked::new();
    let offer = &file.offer;
    let tries = offer.is_ready.load(Acquire);
    if file.moved.load(Relaxed) != 0 || tries == 0 || threads::is_any_forking(state) {
        return;
    }
    let is_left = all_of(found).next().is_none();
    let is_of_now = is_left
        && !threads::keep_in_kernel(file)
        && offer.serial.load(Relaxed) == found.serial()
        && offer.epoch.load(Relaxed) == state.fork_epoch.load(Relaxed)
        && file.flags.load(Relaxed) & (flag::SHARED | flag::IN_EPOLL) == 0;
    let from = |fd: &AtomicU32| (offer.monitor.load(Relaxed), fd.load(Relaxed));
    let (offered, offered_out) = (from(&offer.fd), from(&offer.fd_out));
    offer.is_ready.store(0, Relaxed);
    let is_writer = file.kind.load(Relaxed) == Kind::PipeWrite as u32;
    let role = if is_writer { PipeEnd::Sender } else { PipeEnd::Receiver };
    let why = if !may_move(state) || !is_of_now || file.refs.load(Relaxed) != 1 {
        kept::LEFT
    } else if is_socket(file) {
        attach_socket(state, found, file, fd, (offered, offered_out)).err().unwrap_or(kept::NONE)
    } else if !sys::is_plain_pipe(fd, PIPE_BYTES) || !can_return(role, fd) {
        kept::SETTINGS
    } else {
        let is_own = |header: &PipeHeader| is_own_pipe(header, file, role);
        match attach(found, file, role, fd, offered, is_own) {
            Some(moved) => {
                if role == PipeEnd::Sender {
                    moved.release_reserve();
                }
                kept::NONE
            }
            None => kept::SEGMENT,
        }
    };
    file.kept.store(why, Relaxed);
    if why == kept::COUNTS && threads::are_several(state) && tries < OFFER_TRIES_MAX {
        // Another thread may have sent or received what it has not counted yet.
        offer.is_ready.store(tries + 1, Relaxed);
    }
    fence(SeqCst);
    if file.receiving.load(SeqCst) > 1 {
        file.flags.fetch_or(flag::BY_THREADS, SeqCst);
        leave_locked(state, file, kept::THREADS);
    }
}

/// The slots of a file, also those that a call is still in after it has left.
fn all_of(found: FileRef) -> impl Iterator<Item = &'static Moved> {
    let is_of =
        move |moved: &&Moved| moved.segment().is_some() && moved.file.load(Relaxed) == found.into_word();
    super::used().iter().filter(is_of)
}

/// Whether the segment of a pipe is meant for this process's end.
fn is_own_pipe(header: &PipeHeader, file: &File, role: PipeEnd) -> bool {
    let holder = if role == PipeEnd::Sender { &header.sender } else { &header.receiver };
    header.device.load(Relaxed) == file.id.load(Relaxed)
        && header.inode.load(Relaxed) == file.inode.load(Relaxed)
        && holder.load(Relaxed) == crate::sys::process_id()
}

/// Takes over the segments of both directions of a connection, or none.
///
/// Errors: a reason of [`kept`].
fn attach_socket(
    state: &ProcessTable,
    found: FileRef,
    file: &File,
    fd: u64,
    offers: ((u32, u32), (u32, u32)),
) -> Result<(), u32> {
    let kind = Kind::of(file.kind.load(Relaxed)).ok_or(kept::SETTINGS)?;
    if !sys_socket::is_plain(fd, kind) || !sys::can_sleep() || !sys::register_barrier() {
        return Err(kept::SETTINGS);
    }
    if !socket::is_counted(state, file, fd) {
        return Err(kept::COUNTS);
    }
    let is_own = |header: &PipeHeader| socket::is_own(header, file, PipeEnd::Receiver, fd);
    let moved = attach(found, file, PipeEnd::Receiver, fd, offers.0, is_own).ok_or(kept::PEER_SOCKET)?;
    let holds_back = kind == Kind::Tcp
        && moved.segment().is_some_and(|segment| socket::holds_back(&segment.control().header.0));
    moved.holds_back.store(u32::from(holds_back), Relaxed);
    let is_own = |header: &PipeHeader| socket::is_own(header, file, PipeEnd::Sender, fd);
    if attach(found, file, PipeEnd::Sender, fd, offers.1, is_own).is_none() {
        leave_locked(state, file, kept::SEGMENT);
        return Err(kept::SEGMENT);
    }
    Ok(())
}

/// Whether this process can do all that leaving the ring needs.
fn can_return(role: PipeEnd, fd: u64) -> bool {
    if role == PipeEnd::Receiver {
        let Some(sender) = sys::open_sender(fd) else { return false };
        close(sender);
    }
    sys::can_sleep() && sys::register_barrier()
}

fn attach(
    found: FileRef,
    file: &File,
    role: PipeEnd,
    fd: u64,
    offer: (u32, u32),
    is_own: impl Fn(&PipeHeader) -> bool,
) -> Option<&'static Moved> {
    let is_sender = role == PipeEnd::Sender;
    let mut free = MOVED.iter().enumerate().filter(|(index, moved)| {
        let is_idle = !moved.token.is_taken() && moved.injecting.load(SeqCst) == 0;
        (index % 2 == 1) == is_sender && moved.segment.load(SeqCst) == 0 && is_idle
    });
    let (index, moved) = free.next()?;
    let retired = PipeSegment::from_word(moved.memory.load(Relaxed));
    let (segment, reserve) = PipeSegment::map(offer.0, offer.1, retired)?;
    let header = &segment.control().header.0;
    if header.magic.load(Relaxed) != MAGIC || !is_own(header) {
        close(reserve);
        segment.discard(retired);
        return None;
    }
    moved.memory.store(segment.into_word(), Relaxed);
    moved.reserve.store(reserve as u32, Relaxed);
    moved.reset();
    moved.nonblocking.store(u32::from(!sys::is_blocking(fd)), Relaxed);
    moved.file.store(found.into_word(), Relaxed);
    moved.fd.store(fd as u32, Relaxed);
    moved.role.store(role as u32, Relaxed);
    moved.kind.store(file.kind.load(Relaxed), Relaxed);
    END.fetch_max(index as u32 + 1, SeqCst);
    moved.segment.store(segment.into_word(), SeqCst);
    COUNT.fetch_add(1, Relaxed);
    let has_two = moved.is_socket() && role == PipeEnd::Sender;
    let word = if has_two { &file.moved_out } else { &file.moved };
    word.store(index as u32 + 1, SeqCst);
    segment.control().shared.0.attached.fetch_or(role as u32, AcqRel);
    Some(moved)
}
