//! The ring, the buffers it receives into, and every unsafe line of the io_uring driver.
//! Promises: the kernel writes only into spare bytes lent to it ([`Lent`]), in the order the results tell;
//! dropping a ring waits until the kernel lets go of them, or leaks them if it does not.
//! Refuses: knowing connections; a request is told apart by its `user_data`.
//! Source: io_uring_enter(2), io_uring_register(2), io_uring_setup(2); incremental provided buffers as in Linux
//! 6.12 (`IOU_PBUF_RING_INC`).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use flick_buffers::{Class, Lent, Pool, Slice};
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::limits::{
    PROVIDED_BUFS_MAX, RING_DRAIN_ROUNDS_MAX, RING_REQUESTS_MAX, RING_RESULTS_MAX, RING_VECTORS_MAX,
    WRITE_SLICES_MAX,
};

/// The one group of provided buffers.
const GROUP: u16 = 0;

/// `IOU_PBUF_RING_INC`: a buffer is used up piece by piece instead of whole.
const INCREMENTAL: u16 = 2;

/// A result of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    pub(super) result: i32,
    flags: u32,
}

impl Completion {
    /// More results of the same request will come.
    pub(super) fn is_more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

/// An io_uring with one ring of provided buffers.
pub(super) struct Ring {
    io: IoUring,
    provided: Provided,
    vectors: Box<[libc::iovec]>,
    vectors_used: usize,
    headers: Box<[libc::msghdr]>,
    headers_used: usize,
    /// Requests submitted whose last result has not been seen.
    open_requests: usize,
    /// Why the kernel refused to take requests; the next poll returns it.
    failure: Option<io::Error>,
}

/// Buffers lent to the kernel and the shared memory that tells it so.
struct Provided {
    entries: NonNull<BufRingEntry>,
    /// Indexed by buffer number.
    lent: [Option<Lent>; PROVIDED_BUFS_MAX as usize],
    lent_count: u16,
    tail: u16,
}

impl Ring {
    /// Builds the ring, or says why this kernel (or a policy) refuses it.
    pub(super) fn new() -> io::Result<Ring> {
        let io = IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(RING_RESULTS_MAX)
            .build(RING_REQUESTS_MAX)?;
        if !(io.params().is_feature_nodrop() && io.params().is_feature_ext_arg()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let provided = Provided::new();
        let address = provided.entries.as_ptr() as u64;
        // SAFETY: `entries` has `PROVIDED_BUFS_MAX` entries on a page boundary and outlives the registration:
        // `Drop` of `Ring` unregisters before `Provided` is dropped.
        unsafe {
            io.submitter().register_buf_ring_with_flags(address, PROVIDED_BUFS_MAX, GROUP, INCREMENTAL)
        }?;
        let no_vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero is a valid `msghdr`: no name, no vectors, no control data.
        let no_header: libc::msghdr = unsafe { std::mem::zeroed() };
        Ok(Ring {
            io,
            provided,
            vectors: vec![no_vector; RING_VECTORS_MAX].into_boxed_slice(),
            vectors_used: 0,
            headers: vec![no_header; RING_REQUESTS_MAX as usize].into_boxed_slice(),
            headers_used: 0,
            open_requests: 0,
            failure: None,
        })
    }

    /// Receives until told otherwise, into the provided buffers.
    pub(super) fn receive(&mut self, socket: impl AsFd, user_data: u64) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_fd().as_raw_fd()), GROUP).build();
        self.push(entry, user_data);
    }

    /// Receives once, at most what one provided buffer has room for.
    pub(super) fn receive_once(&mut self, socket: impl AsFd, user_data: u64) {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let entry = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP).build();
        self.push(entry.flags(squeue::Flags::BUFFER_SELECT), user_data);
    }

    /// Accepts until told otherwise.
    pub(super) fn accept(&mut self, socket: impl AsFd, user_data: u64) {
        let entry =
            opcode::AcceptMulti::new(Fd(socket.as_fd().as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
        self.push(entry, user_data);
    }

    /// Waits for readiness, once or until told otherwise.
    pub(super) fn watch(&mut self, fd: impl AsFd, events: i16, multi: bool, user_data: u64) {
        let events = u32::from(events.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(fd.as_fd().as_raw_fd()), events).multi(multi).build();
        self.push(entry, user_data);
    }

    /// Cancels the request with this `user_data`. Its own result comes as `answer`.
    pub(super) fn cancel(&mut self, user_data: u64, answer: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(user_data)).build();
        self.push(entry, answer);
    }

    /// Cancels every request on a socket. Its own result comes as `answer`.
    pub(super) fn cancel_all(&mut self, socket: impl AsFd, answer: u64) {
        let target = CancelBuilder::fd(Fd(socket.as_fd().as_raw_fd())).all();
        self.push(opcode::AsyncCancel2::new(target).build(), answer);
    }

    /// Cancels the request with this `user_data`; the kernel has let go of its socket when this returns.
    pub(super) fn cancel_now(&mut self, user_data: u64) {
        self.submit();
        let timeout = Some(Timespec::new().sec(1));
        // Not found means it has ended by itself, which is as good.
        let _ = self.io.submitter().register_sync_cancel(timeout, CancelBuilder::user_data(user_data));
        // The request is given up by deferred work, which this runs.
        self.submit();
    }

    /// Sends the first [`WRITE_SLICES_MAX`] pieces. The caller keeps them in its queue until the result. How many bytes they have.
    pub(super) fn send<'queue>(
        &mut self,
        socket: impl AsFd,
        pieces: impl Iterator<Item = &'queue Slice>,
        user_data: u64,
    ) -> usize {
        let fd = Fd(socket.as_fd().as_raw_fd());
        if self.vectors.len() - self.vectors_used < WRITE_SLICES_MAX
            || self.headers_used == self.headers.len()
        {
            self.submit();
        }
        let start = self.vectors_used;
        for piece in pieces.take(WRITE_SLICES_MAX) {
            let bytes = piece.bytes();
            self.vectors[self.vectors_used] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            self.vectors_used += 1;
        }
        let vectors = &mut self.vectors[start..self.vectors_used];
        let bytes = vectors.iter().map(|vector| vector.iov_len).sum();
        let entry = if let [only] = vectors {
            let len = u32::try_from(only.iov_len).expect("a piece lies in one buffer");
            opcode::Send::new(fd, only.iov_base.cast(), len).flags(libc::MSG_NOSIGNAL).build()
        } else {
            let header = &mut self.headers[self.headers_used];
            self.headers_used += 1;
            header.msg_iov = vectors.as_mut_ptr();
            header.msg_iovlen = vectors.len();
            opcode::SendMsg::new(fd, header).flags(libc::MSG_NOSIGNAL as u32).build()
        };
        self.push(entry, user_data);
        bytes
    }

    fn push(&mut self, entry: squeue::Entry, user_data: u64) {
        let entry = entry.user_data(user_data);
        if self.io.submission().is_full() {
            self.submit();
        }
        // SAFETY: descriptors named by the entry stay open until its last result (the driver drops a socket
        // only then); pieces, vectors and headers it points to live as `send` says; receive buffers are lent.
        let pushed = unsafe { self.io.submission().push(&entry) };
        match pushed {
            Ok(()) => self.open_requests += 1,
            Err(_) => self.failure = Some(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }

    /// Hands the requests to the kernel, which copies vectors and headers while it does.
    fn submit(&mut self) {
        self.enter(0, None).unwrap_or_else(|error| self.failure = Some(error));
    }

    /// Says whether an [`Ring::enter`] without waiting would do anything.
    pub(super) fn has_work(&mut self) -> bool {
        let submission = self.io.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Hands the requests to the kernel and waits for `want` results, at most `timeout`.
    pub(super) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let entered = match timeout {
            Some(timeout) if want > 0 => {
                let time = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                self.io.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            _ => self.io.submitter().submit_and_wait(want),
        };
        if self.io.submission().is_empty() {
            // `IORING_FEAT_SUBMIT_STABLE`: what requests point to was copied when they were taken.
            self.vectors_used = 0;
            self.headers_used = 0;
        }
        match entered {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Results that wait to be taken.
    pub(super) fn completions(&mut self) -> usize {
        self.io.completion().len()
    }

    /// Takes the next result.
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        let entry = self.io.completion().next()?;
        if !cqueue::more(entry.flags()) {
            self.open_requests -= 1;
        }
        Some(Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() })
    }

    /// The bytes a receive brought.
    ///
    /// To be called for every result of a receive and in their order, because that is the order in which the
    /// kernel used the buffers up.
    pub(super) fn take_data(&mut self, completion: Completion) -> Option<Slice> {
        let number = usize::from(cqueue::buffer_select(completion.flags)?);
        let place = &mut self.provided.lent[number];
        let lent = place.as_ref().expect("the kernel uses only buffers it was lent");
        let bytes = u32::try_from(completion.result).unwrap_or(0);
        let start = lent.buf().len();
        // SAFETY: the kernel has written `bytes` bytes at the place it had reached in this buffer, which is
        // the buffer's length because every earlier result was committed here; it goes on behind them.
        unsafe { lent.commit(bytes) };
        let slice = lent.buf().slice(start..start + bytes);
        if !cqueue::buffer_more(completion.flags) {
            *place = None;
            self.provided.lent_count -= 1;
        }
        (bytes > 0).then_some(slice)
    }

    /// The socket an accept brought.
    pub(super) fn take_socket(completion: Completion) -> Option<OwnedFd> {
        // SAFETY: a result of a successful accept is a new descriptor that nobody else knows of; the driver
        // calls this once, for results of accepts only.
        (completion.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(completion.result) })
    }

    /// Says whether [`Ring::provide`] would come to have any.
    pub(super) fn can_provide(&self, pool: &Pool) -> bool {
        self.provided.lent_count > 0 || pool.free_count(Class::Large) > 0
    }

    /// Has the kernel signal an eventfd whenever there is something to enter for: deferred work does not make the ring's own
    /// descriptor readable.
    pub(super) fn signal(&self, eventfd: impl AsFd) -> io::Result<()> {
        self.io.submitter().register_eventfd(eventfd.as_fd().as_raw_fd())
    }

    /// Lends the kernel as many buffers as it may hold. Says whether it has any.
    pub(super) fn provide(&mut self, pool: &Pool) -> bool {
        self.provided.fill(pool);
        self.provided.lent_count > 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.push(opcode::AsyncCancel2::new(CancelBuilder::any()).build(), 0);
        for _ in 0..RING_DRAIN_ROUNDS_MAX {
            while let Some(completion) = self.next_completion() {
                if completion.user_data >> super::KIND_SHIFT == super::KIND_ACCEPT {
                    // A connection accepted in the last moment is closed again.
                    drop(Ring::take_socket(completion));
                }
            }
            if self.open_requests == 0 || self.enter(1, Some(Duration::from_millis(10))).is_err() {
                break;
            }
        }
        let unregistered = self.io.submitter().unregister_buf_ring(GROUP);
        if self.open_requests > 0 || unregistered.is_err() {
            // The kernel may still write: better to lose the buffers than to give them to somebody else.
            self.provided.forget();
        }
    }
}

impl Provided {
    const BYTES: usize = PROVIDED_BUFS_MAX as usize * size_of::<BufRingEntry>();

    fn layout() -> Layout {
        Layout::from_size_align(Self::BYTES, 4096).expect("a small power of two of entries")
    }

    fn new() -> Provided {
        // SAFETY: the layout's size is not zero, as `PROVIDED_BUFS_MAX` is a power of two.
        let memory = unsafe { alloc_zeroed(Self::layout()) };
        let Some(entries) = NonNull::new(memory.cast::<BufRingEntry>()) else {
            handle_alloc_error(Self::layout())
        };
        Provided { entries, lent: [const { None }; PROVIDED_BUFS_MAX as usize], lent_count: 0, tail: 0 }
    }

    fn fill(&mut self, pool: &Pool) {
        let share = pool.capacity_count(Class::Large) / 8;
        let target = share.clamp(1, u32::from(PROVIDED_BUFS_MAX)) as u16;
        let before = self.tail;
        while self.lent_count < target {
            let Some(number) = self.lent.iter().position(Option::is_none) else { break };
            let Some(buf) = pool.alloc(Class::Large) else { break };
            let lent = buf.lend();
            let place = usize::from(self.tail % PROVIDED_BUFS_MAX);
            // SAFETY: `place < PROVIDED_BUFS_MAX`, the number of entries behind `entries`.
            let entry = unsafe { self.entries.add(place) };
            // SAFETY: the kernel reads an entry only below the tail, which is moved over this one below; it is
            // done with the place because at most `PROVIDED_BUFS_MAX` buffers are lent.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.set_addr(lent.spare_ptr() as u64);
            entry.set_len(lent.spare());
            entry.set_bid(number as u16);
            self.lent[number] = Some(lent);
            self.lent_count += 1;
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != before {
            self.publish();
        }
    }

    fn publish(&self) {
        // SAFETY: `entries` points to the first entry of the ring, zeroed or filled.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is an aligned 16-bit field of our own memory; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Leaves lent buffers to the kernel for good.
    fn forget(&mut self) {
        for lent in &mut self.lent {
            std::mem::forget(lent.take());
        }
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the ring was unregistered by `Ring::drop`, or never
        // registered. (If unregistering failed, closing the ring descriptor ends the kernel's use of it: the
        // kernel has pinned the pages and writes no entry without a request.)
        unsafe { dealloc(self.entries.as_ptr().cast(), Self::layout()) }
    }
}
