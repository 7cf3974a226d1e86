//! The ring, the buffers it receives into, and every unsafe line of the io_uring driver.
//! Promises: the kernel writes only into the spare bytes of provided buffers ([`ProvidedBuf`]), in the order of the
//! results; a ring that ends waits until the kernel releases them and what is being sent, or leaks them if it does not.
//! Refuses: knowing connections; a request carries a [`RequestToken`].
//! Source: io_uring_enter(2), io_uring_register(2), io_uring_setup(2); incremental provided buffers as in Linux
//! 6.12 (`IOU_PBUF_RING_INC`).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use flick_buffers::{BufClass, Pool, ProvidedBuf, Slice};
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};

use super::token::RequestToken;
use crate::limits::{
    PROVIDED_BUFS_MAX, RING_DRAIN_ROUNDS_MAX, RING_REQUESTS_MAX, RING_RESULTS_MAX, RING_RETRY,
    RING_SUBMITS_MAX, RING_VECTORS_MAX, WRITE_SLICES_MAX,
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
    /// Error with which the kernel refused requests; the next poll returns it.
    failure: Option<io::Error>,
    #[cfg(test)]
    refusals: Vec<i32>,
}

/// The first release of Linux 6.12 that certainly reports results in order, see [`reports_in_order`].
const ORDERED_PATCH_MIN: u32 = 35;

/// The buffers provided to the kernel, and the shared memory that lists them.
struct Provided {
    entries: NonNull<BufRingEntry>,
    /// Indexed by buffer number.
    bufs: [Option<ProvidedBuf>; PROVIDED_BUFS_MAX as usize],
    count: u16,
    tail: u16,
}

/// Returns whether a kernel of this release reports receives into one buffer in the order in which it has filled it.
/// Before Linux 6.15, the result of a single receive may come behind that of a later one that goes on, of another
/// connection: each would get bytes of the other. The mend is in the later releases of 6.12.
pub(super) fn reports_in_order(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match [next(), next(), next()] {
        [6, 12, patch] => patch >= ORDERED_PATCH_MIN,
        version => version >= [6, 15, 0],
    }
}

/// The release of the kernel, such as 6.12.35.
fn release() -> String {
    // SAFETY: all-zero is a valid `utsname`: empty texts.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes texts that end with a zero to `names`, and nothing else.
    unsafe { libc::uname(&raw mut names) };
    names.release.iter().map_while(|byte| (*byte != 0).then_some(*byte as u8 as char)).collect()
}

impl Ring {
    /// Builds the ring.
    ///
    /// Errors: those of io_uring_setup(2) and io_uring_register(2); `Unsupported` where the kernel lacks a feature.
    pub(super) fn new() -> io::Result<Ring> {
        let io = IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(RING_RESULTS_MAX)
            .build(RING_REQUESTS_MAX)?;
        let has_features = io.params().is_feature_nodrop() && io.params().is_feature_ext_arg();
        if !has_features || !reports_in_order(&release()) {
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
            #[cfg(test)]
            refusals: Vec::new(),
        })
    }

    /// Receives until it is cancelled, into the provided buffers.
    pub(super) fn receive(&mut self, socket: impl AsFd, token: RequestToken) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_fd().as_raw_fd()), GROUP).build();
        self.push(entry, token);
    }

    /// Receives once, at most what one provided buffer holds.
    pub(super) fn receive_once(&mut self, socket: impl AsFd, token: RequestToken) {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let entry = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP).build();
        self.push(entry.flags(squeue::Flags::BUFFER_SELECT), token);
    }

    /// Accepts once, or until it is cancelled.
    pub(super) fn accept(&mut self, socket: impl AsFd, multi: bool, token: RequestToken) {
        let (fd, null) = (Fd(socket.as_fd().as_raw_fd()), std::ptr::null_mut());
        let entry = if multi {
            opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
        } else {
            opcode::Accept::new(fd, null, null.cast()).flags(libc::SOCK_CLOEXEC).build()
        };
        self.push(entry, token);
    }

    /// Waits for readiness, once or until it is cancelled.
    pub(super) fn watch(&mut self, fd: impl AsFd, events: i16, multi: bool, token: RequestToken) {
        let events = u32::from(events.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(fd.as_fd().as_raw_fd()), events).multi(multi).build();
        self.push(entry, token);
    }

    /// Cancels a request. The cancellation's own result carries `token`.
    pub(super) fn cancel(&mut self, request: RequestToken, token: RequestToken) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(request.pack())).build();
        self.push(entry, token);
    }

    /// Cancels every request on a socket. The cancellation's own result carries `token`.
    pub(super) fn cancel_all(&mut self, socket: impl AsFd, token: RequestToken) {
        let target = CancelBuilder::fd(Fd(socket.as_fd().as_raw_fd())).all();
        self.push(opcode::AsyncCancel2::new(target).build(), token);
    }

    /// Cancels a request; when this returns, the kernel has released its socket.
    pub(super) fn cancel_now(&mut self, request: RequestToken) {
        self.submit();
        let timeout = Some(Timespec::new().sec(1));
        // `NotFound` means that it has ended by itself, which is as good.
        let _ = self.io.submitter().register_sync_cancel(timeout, CancelBuilder::user_data(request.pack()));
        // Deferred work releases the request; this runs it.
        self.submit();
    }

    /// Sends the first [`WRITE_SLICES_MAX`] pieces and returns their bytes. The caller keeps them queued until the
    /// result.
    pub(super) fn send<'queue>(
        &mut self,
        socket: impl AsFd,
        pieces: impl Iterator<Item = &'queue Slice>,
        token: RequestToken,
    ) -> usize {
        let fd = Fd(socket.as_fd().as_raw_fd());
        if self.vectors.len() - self.vectors_used < WRITE_SLICES_MAX
            || self.headers_used == self.headers.len()
        {
            self.submit();
            if self.vectors_used > 0 {
                self.refuse_request();
                return 0;
            }
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
        self.push(entry, token);
        bytes
    }

    fn push(&mut self, entry: squeue::Entry, token: RequestToken) {
        let entry = entry.user_data(token.pack());
        if self.io.submission().is_full() {
            self.submit();
        }
        // SAFETY: descriptors named by the entry stay open until its last result (the driver drops a socket
        // only then); pieces, vectors and headers it points to live as `send` says; receive buffers are provided.
        let pushed = unsafe { self.io.submission().push(&entry) };
        match pushed {
            Ok(()) => self.open_requests += 1,
            Err(_) => self.refuse_request(),
        }
    }

    /// Submits the requests to the kernel, which copies vectors and headers. While it takes none, it is asked again for
    /// a bounded time; what it has not taken then stays in the queue.
    fn submit(&mut self) {
        for _ in 0..RING_SUBMITS_MAX {
            if let Err(error) = self.enter(0, None) {
                self.failure = Some(error);
                return;
            }
            if self.io.submission().is_empty() {
                return;
            }
        }
    }

    /// Notes that the kernel takes no requests, so that one cannot be made. The next poll fails: its caller counts it.
    fn refuse_request(&mut self) {
        self.failure.get_or_insert_with(|| io::Error::from_raw_os_error(libc::EBUSY));
    }

    /// Returns whether an [`Ring::enter`] without waiting would do anything.
    pub(super) fn has_work(&mut self) -> bool {
        let submission = self.io.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Returns how many requests are to be submitted.
    pub(super) fn requests(&mut self) -> usize {
        self.io.submission().len()
    }

    /// Submits the requests to the kernel and waits for `want` results, at most `timeout`. Without memory for requests
    /// the kernel leaves them in the queue, for the next call, and this waits for [`RING_RETRY`] at most.
    pub(super) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let entered = self.submit_and_wait(want, timeout);
        if self.io.submission().is_empty() {
            // `IORING_FEAT_SUBMIT_STABLE`: what requests point to was copied when they were taken.
            self.vectors_used = 0;
            self.headers_used = 0;
        }
        let Err(error) = entered else { return Ok(()) };
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
            Some(libc::EAGAIN | libc::ENOMEM) => {
                self.wait_for_memory(timeout);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn submit_and_wait(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.refusals.pop() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        match timeout {
            Some(timeout) if want > 0 => {
                let time = timespec(timeout);
                self.io.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            _ => self.io.submitter().submit_and_wait(want),
        }
    }

    /// Waits for a result without submitting anything. Requests that end free memory, and a call that could not submit
    /// has not run the work that ends them.
    fn wait_for_memory(&mut self, timeout: Option<Duration>) {
        let wait = timeout.map_or(RING_RETRY, |timeout| timeout.min(RING_RETRY));
        let time = timespec(wait);
        let args = SubmitArgs::new().timespec(&time);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: nothing is submitted, and `args`, the argument that `EXT_ARG` announces, and the time that it points
        // to outlive the call.
        let waited = unsafe { self.io.submitter().enter(0, 1, flags.bits(), Some(&args)) };
        let is_refused = |error: io::Error| matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM));
        if waited.is_err_and(is_refused) {
            std::thread::sleep(wait);
        }
    }

    /// Returns how many results are ready.
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

    /// Takes the bytes of a receive.
    ///
    /// Called for every result of a receive, in their order: in this order the kernel consumed the buffers.
    pub(super) fn take_data(&mut self, completion: Completion) -> Option<Slice> {
        let number = usize::from(cqueue::buffer_select(completion.flags)?);
        let slot = &mut self.provided.bufs[number];
        let provided = slot.as_ref().expect("the kernel uses only buffers that were provided");
        let bytes = u32::try_from(completion.result).unwrap_or(0);
        let start = provided.buf().len();
        // SAFETY: the kernel has written `bytes` bytes at the position it had reached in this buffer, which is
        // the buffer's length because every earlier result was committed here; it continues behind them.
        unsafe { provided.commit(bytes) };
        let slice = provided.buf().slice(start..start + bytes);
        if !cqueue::buffer_more(completion.flags) {
            *slot = None;
            self.provided.count -= 1;
        }
        (bytes > 0).then_some(slice)
    }

    /// Takes the socket of an accept.
    pub(super) fn take_socket(completion: Completion) -> Option<OwnedFd> {
        // SAFETY: a result of a successful accept is a new descriptor without another owner; the driver
        // calls this once per result, for accepts only.
        (completion.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(completion.result) })
    }

    /// Returns whether [`Ring::provide`] would return true.
    pub(super) fn can_provide(&self, pool: &Pool) -> bool {
        self.provided.count > 0 || pool.free_count(BufClass::Large) > 0
    }

    /// Makes the kernel signal an eventfd whenever there is something to enter for: deferred work does not make the
    /// ring's own descriptor readable.
    ///
    /// Errors: those of io_uring_register(2).
    pub(super) fn signal(&self, eventfd: impl AsFd) -> io::Result<()> {
        self.io.submitter().register_eventfd(eventfd.as_fd().as_raw_fd())
    }

    /// Pauses or resumes [`Ring::signal`]. Results that come meanwhile are never signalled.
    pub(super) fn pause_signal(&mut self, paused: bool) {
        let completion = self.io.completion();
        if paused { completion.disable_eventfd() } else { completion.enable_eventfd() }
    }

    /// Provides as many buffers as the kernel may hold. Returns whether it has any.
    pub(super) fn provide(&mut self, pool: &Pool) -> bool {
        self.provided.fill(pool);
        self.provided.count > 0
    }
}

impl Ring {
    /// Cancels all requests and waits for their last results, for a bounded time. Returns whether all have come: only
    /// then may the memory that they name be freed.
    pub(super) fn end(&mut self) -> bool {
        if self.open_requests == self.io.submission().len() {
            // The kernel has none of them, and gets none now: an accept would take a peer that another thread serves.
            self.open_requests = 0;
            return true;
        }
        self.push(opcode::AsyncCancel2::new(CancelBuilder::any()).build(), RequestToken::Ignored);
        for _ in 0..RING_DRAIN_ROUNDS_MAX {
            while let Some(completion) = self.next_completion() {
                if let RequestToken::Accept(_) = RequestToken::unpack(completion.user_data) {
                    // A connection accepted in the last moment is closed again.
                    drop(Ring::take_socket(completion));
                }
            }
            if self.open_requests == 0 || self.enter(1, Some(Duration::from_millis(10))).is_err() {
                break;
            }
        }
        self.open_requests == 0
    }

    /// As if the next calls of the kernel failed with these errors.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, errnos: &[i32]) {
        self.refusals = errnos.to_vec();
    }

    #[cfg(test)]
    pub(super) fn has_open_requests(&self) -> bool {
        self.open_requests > 0
    }

    /// As if the kernel did not end one request.
    #[cfg(test)]
    pub(super) fn keep_one_request(&mut self) {
        self.open_requests += 1;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // `UringDriver` has ended it.
        let unregistered = self.io.submitter().unregister_buf_ring(GROUP);
        if self.open_requests > 0 || unregistered.is_err() {
            // The kernel may still write there: leaking the buffers is safer than reusing them.
            self.provided.forget();
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::new().sec(time.as_secs()).nsec(time.subsec_nanos())
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
        Provided { entries, bufs: [const { None }; PROVIDED_BUFS_MAX as usize], count: 0, tail: 0 }
    }

    fn fill(&mut self, pool: &Pool) {
        let share = pool.capacity_count(BufClass::Large) / 8;
        let target = share.clamp(1, u32::from(PROVIDED_BUFS_MAX)) as u16;
        let before = self.tail;
        while self.count < target {
            let Some(number) = self.bufs.iter().position(Option::is_none) else { break };
            let Some(buf) = pool.alloc(BufClass::Large) else { break };
            let provided = buf.into_provided();
            let position = usize::from(self.tail % PROVIDED_BUFS_MAX);
            // SAFETY: `position < PROVIDED_BUFS_MAX`, the number of entries behind `entries`.
            let entry = unsafe { self.entries.add(position) };
            // SAFETY: the kernel reads an entry only below the tail, which is moved over this one below; it is
            // done with the position because at most `PROVIDED_BUFS_MAX` buffers are provided.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.set_addr(provided.spare_ptr() as u64);
            entry.set_len(provided.spare());
            entry.set_bid(number as u16);
            self.bufs[number] = Some(provided);
            self.count += 1;
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

    /// Leaks the provided buffers.
    fn forget(&mut self) {
        for provided in &mut self.bufs {
            std::mem::forget(provided.take());
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
