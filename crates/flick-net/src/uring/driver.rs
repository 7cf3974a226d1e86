//! The io_uring driver: what it keeps, and the platform's calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flick_buffers::{Pool, Slice, pinned_bytes};
use rustix::event::{EventfdFlags, eventfd};

use super::probe::{ProbeSchedule, ProbeState};
use super::requests::{ListenerState, Receive, Requests, UringListener};
use super::sys::Ring;
use super::token::RequestToken;
use crate::address::Endpoint;
use crate::clock::monotonic_ns;
use crate::conn::quota::SendQuota;
use crate::conn::slices::SliceSlab;
use crate::conn::{Conn, Conns, Then};
use crate::driver::{Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId, checked};
use crate::fault::ConnFault;
use crate::limits::STASH_SLICES_MAX;
use crate::listen::ListenSocket;
use crate::listeners::{Accepting, Listeners};
use crate::poller::Poller;
use crate::queue_delay::{QueueDelay, QueueDelayMeter};
use crate::slot_queue::SlotQueue;
use crate::socket::{self, ConnectStart};
use crate::waker::Waker;

/// Kernel sockets through io_uring.
pub struct UringDriver {
    /// First, so that it is dropped first.
    pub(super) ring: Ring,
    pub(super) limits: DriverLimits,
    pub(super) conns: Conns<Requests>,
    /// Connections that are over, and whose slots are free after their last results.
    ending_count: u32,
    pub(super) listeners: Listeners<UringListener>,
    /// The nodes of [`Requests::stash`].
    pub(super) stashes: SliceSlab,
    pub(super) quota: SendQuota,
    pub(super) queue_meter: QueueDelayMeter,
    pub(super) queue_delay: QueueDelay,
    /// Connections whose receive is to be armed.
    pub(super) unarmed: SlotQueue,
    /// The same, but no buffer was left for them last time: they come first.
    pub(super) starved: SlotQueue,
    /// All that are to be armed and receive little at a time: they come before the others.
    pub(super) light: SlotQueue,
    /// No buffer was left for one of them last time.
    pub(super) is_light_starved: bool,
    pub(super) probes: ProbeSchedule,
    pub(super) waker: Waker,
    pub(super) wake_path: WakePath,
    pub(super) watch: Watch,
    /// The poller of [`UringDriver::host_poller`].
    pub(super) poller: Watch,
    /// Each accept request is for one connection.
    pub(super) accepts_singly: bool,
    pub(super) now_ns: u64,
    pub(super) waited_ns: u64,
}

/// A descriptor that ends polls when it is readable.
#[derive(Default)]
pub(super) struct Watch {
    /// A duplicate, which lives as long as requests for it.
    pub(super) descriptor: Option<OwnedFd>,
    /// The ring has a request for it.
    pub(super) is_armed: bool,
    /// That request was made since the last poll.
    pub(super) is_just_armed: bool,
    pub(super) is_ready: bool,
}

impl Watch {
    /// Has the ring watch the descriptor, if there is one and the ring does not do so yet. Once per report, so that
    /// each request begins with a look: an epoll is readable until it was looked into.
    pub(super) fn arm(&mut self, ring: &mut Ring, token: RequestToken) {
        if !self.is_armed
            && let Some(descriptor) = &self.descriptor
        {
            (self.is_armed, self.is_just_armed) = (true, true);
            ring.watch(descriptor, libc::POLLIN, false, token);
        }
    }

    /// Ends the watching of the ring; its last result is still to come.
    fn disarm(&self, ring: &mut Ring, token: RequestToken) {
        if self.is_armed {
            ring.cancel_now(token);
        }
    }

    /// Notes the result of a request.
    pub(super) fn complete(&mut self) {
        (self.is_ready, self.is_armed) = (true, false);
    }
}

/// Drivers whose output was leaked, because the kernel did not end all requests.
static LEAKED_OUTPUTS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of drivers of this process whose output was leaked at their end, because the kernel did not end
/// all requests: it might still read the memory.
pub fn leaked_outputs() -> u64 {
    LEAKED_OUTPUTS.load(Ordering::Relaxed)
}

impl Drop for UringDriver {
    /// Waits until the kernel releases sockets and output. If it does not, they are leaked: memory that is freed would
    /// be sent with other content, perhaps that of another client.
    fn drop(&mut self) {
        if !self.ring.end() {
            LEAKED_OUTPUTS.fetch_add(1, Ordering::Relaxed);
            let none = DriverLimits { conns_max: 1, output_slices_max: 1, ..self.limits };
            std::mem::forget(std::mem::replace(&mut self.conns, Conns::new(&none, none.conns_max)));
        }
    }
}

/// Path on which a wake-up reaches the driver.
pub(super) enum WakePath {
    /// The ring polls the waker's eventfd.
    Ring { is_armed: bool },
    /// A [`crate::Poller`] watches the waker's eventfd, and this one, which the ring signals.
    Poller(OwnedFd),
}

impl UringDriver {
    /// Builds the ring and allocates everything the driver will ever need.
    ///
    /// Errors: those of io_uring_setup(2) and io_uring_register(2): the kernel is too old, or a policy denies io_uring.
    pub fn new(limits: DriverLimits) -> io::Result<UringDriver> {
        let limits = checked(limits)?;
        Ok(UringDriver {
            ring: Ring::new()?,
            limits,
            conns: Conns::new(&limits, limits.conns_max),
            ending_count: 0,
            listeners: Listeners::new(),
            stashes: SliceSlab::new(STASH_SLICES_MAX),
            quota: SendQuota::unlimited(),
            queue_meter: QueueDelayMeter::new(),
            queue_delay: QueueDelay::None,
            unarmed: SlotQueue::new(limits.conns_max),
            starved: SlotQueue::new(limits.conns_max),
            light: SlotQueue::new(limits.conns_max),
            is_light_starved: false,
            probes: ProbeSchedule::new(monotonic_ns()),
            waker: Waker::with_eventfd()?,
            wake_path: WakePath::Ring { is_armed: false },
            watch: Watch::default(),
            poller: Watch::default(),
            accepts_singly: false,
            now_ns: monotonic_ns(),
            waited_ns: 0,
        })
    }

    /// Makes the ring signal an eventfd, by an edge, whenever there is something to poll for.
    ///
    /// Errors: those of eventfd(2) and io_uring_register(2).
    pub fn use_eventfd(&mut self) -> io::Result<()> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.ring.signal(&eventfd)?;
        self.wake_path = WakePath::Poller(eventfd);
        Ok(())
    }

    /// Returns the eventfds of [`UringDriver::use_eventfd`]: the ring's, and the waker's own. Each signal is an edge. A
    /// wake-up through the ring would signal one eventfd from within the signalling of another, which the kernel delays
    /// (by milliseconds) the first time and forgets the second time (seen on 6.18).
    pub fn eventfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ring = match &self.wake_path {
            WakePath::Ring { .. } => None,
            WakePath::Poller(eventfd) => Some(eventfd.as_fd()),
        };
        ring.into_iter().chain(self.waker.fd())
    }

    /// Returns the descriptor of [`UringDriver::watch`]. It is readable until it was looked into, which not every poll
    /// does: a poller must not take the report for done.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.descriptor.as_ref().map(OwnedFd::as_fd)
    }

    /// Returns whether the poll itself must look at the waker, because the ring does not.
    pub(super) fn polls_waker(&self) -> bool {
        matches!(self.wake_path, WakePath::Poller(_))
    }

    /// Makes polls end when a descriptor is readable, which [`UringDriver::take_watch_ready`] then reports.
    pub(crate) fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.watch.descriptor = Some(descriptor.try_clone_to_owned()?);
        Ok(())
    }

    /// Returns whether [`UringDriver::take_watch_ready`] is exact: the ring watches the descriptor.
    pub(crate) fn knows_watch(&self) -> bool {
        !self.polls_waker() || self.poller.descriptor.is_some()
    }

    /// Returns whether the watched descriptor may have become readable. A [`crate::Poller`] does not say.
    pub(crate) fn take_watch_ready(&mut self) -> bool {
        std::mem::take(&mut self.watch.is_ready) || !self.knows_watch()
    }

    /// Makes polls end when `poller` has a report, and the ring signal nothing, until it is released.
    pub(crate) fn host_poller(&mut self, poller: &Poller) -> io::Result<()> {
        self.poller.descriptor = Some(poller.as_fd().try_clone_to_owned()?);
        self.ring.pause_signal(true);
        // The ring watches it from now on, and what came before is to be looked at.
        self.watch.is_ready = true;
        Ok(())
    }

    /// Results that came meanwhile were not signalled, so a poll has to follow.
    pub(crate) fn release_poller(&mut self) {
        // Before results are signalled again: one that the signal itself causes would be delayed, as a wake-up through
        // the ring (see [`UringDriver::eventfds`]).
        self.poller.disarm(&mut self.ring, RequestToken::Poller);
        self.watch.disarm(&mut self.ring, RequestToken::Watched);
        (self.poller.descriptor, self.poller.is_ready) = (None, false);
        self.ring.pause_signal(false);
    }

    pub(crate) fn take_poller_ready(&mut self) -> bool {
        std::mem::take(&mut self.poller.is_ready)
    }

    /// The peer sends nothing more. What it has sent all the same is read after a close, or a reset would follow.
    pub(crate) fn expect_no_input(&mut self, conn: Handle) -> bool {
        let is_read = self.conns.get(conn).is_some_and(|conn| conn.part.stash.is_empty());
        is_read && self.conns.expect_no_input(conn, self.now_ns)
    }

    pub(crate) fn hold_fault(&mut self, conn: Handle, on: bool) {
        self.conns.hold_fault(conn, on);
    }

    pub(crate) fn take_held_fault(&mut self) -> Option<(Handle, ConnFault)> {
        self.conns.take_held_fault()
    }

    /// Returns the socket of a connection that the platform has.
    pub(crate) fn socket_of(&self, conn: Handle) -> Option<BorrowedFd<'_>> {
        self.conns.get(conn).filter(|conn| conn.is_live()).map(|conn| conn.part.socket.as_fd())
    }

    pub(crate) fn bounds_mut(&mut self) -> (&mut DriverLimits, &mut SendQuota) {
        (&mut self.limits, &mut self.quota)
    }

    /// Returns a handle with which other threads end this driver's wait.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Does what the connection core asks for.
    pub(super) fn apply(&mut self, index: u32, then: Then) {
        match then {
            Then::Nothing => {}
            Then::ShutDownWrite | Then::Linger => {
                let Some(conn) = self.conns.at(index) else { return };
                socket::shutdown_write(&conn.part.socket);
                if then == Then::Linger {
                    self.await_input(index, false);
                }
            }
            Then::Close | Then::Drop => self.end(index),
            Then::Reset => self.reset(index),
        }
    }

    /// Has one of the next polls arm a connection. `was_left_out`: it was armed, and no buffer was left for it.
    pub(super) fn await_input(&mut self, index: u32, was_left_out: bool) {
        let is_light = self.conns.at(index).is_some_and(|conn| conn.part.is_light);
        self.is_light_starved |= is_light && was_left_out;
        let queue = match (is_light, was_left_out) {
            (true, _) => &mut self.light,
            (false, true) => &mut self.starved,
            (false, false) => &mut self.unarmed,
        };
        queue.push(index);
    }

    /// Returns whether connections are to be armed.
    pub(super) fn has_unarmed(&self) -> bool {
        !self.light.is_empty() || !self.starved.is_empty() || !self.unarmed.is_empty()
    }

    /// Takes in a socket whose connect was started.
    pub(crate) fn insert_connecting(&mut self, socket: OwnedFd, start: ConnectStart) -> io::Result<Handle> {
        socket::set_blocking(&socket, true)?;
        let handle = self.conns.insert(Requests::new(socket), false);
        match start {
            ConnectStart::Failed(fault) => self.fail(handle.index, fault),
            ConnectStart::Done => self.end_connect(handle.index),
            ConnectStart::Pending => {
                let conn = self.conns.get_mut(handle).expect("inserted just above");
                conn.part.count += 1;
                self.ring.watch(&conn.part.socket, libc::POLLOUT, false, RequestToken::Connect(handle.index));
            }
        }
        Ok(handle)
    }

    /// Fails a connection. What arrived before is delivered first, if it is wanted.
    pub(crate) fn fail(&mut self, index: u32, fault: ConnFault) {
        if let Some(conn) = self.conns.at(index).filter(|conn| conn.is_live()) {
            // The receive behind it has to end, also if the peer broke an agreement through a healthy socket.
            socket::shutdown_read(&conn.part.socket);
        }
        let then = self.conns.fail(index, fault);
        self.conns.ready.push(index);
        self.cancel_receive(index);
        self.apply(index, then);
    }

    /// Cancels an armed receive. After a fault: a healthy peer might send forever; a dead one's receive may never end,
    /// because the kernel (seen on 6.18) misses a reset right behind data. Receiving again, up to the end, finds it.
    pub(super) fn cancel_receive(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index).filter(|conn| conn.is_live()) else { return };
        if conn.part.receive.is_armed() {
            conn.part.receive.cancel();
            self.ring.cancel(RequestToken::Receive(index), RequestToken::Ignored);
        }
    }

    /// Ends a connection at once; its peer sees a reset.
    pub(super) fn reset(&mut self, index: u32) {
        if let Some(conn) = self.conns.at(index) {
            socket::reset_on_close(&conn.part.socket);
        }
        self.end(index);
    }

    /// Ends a connection: the handle is dead at once, the slot is free after the last result.
    pub(super) fn end(&mut self, index: u32) {
        self.conns.kill(index);
        let Some(conn) = self.conns.at_mut(index) else { return };
        self.stashes.clear(&mut conn.part.stash);
        if conn.part.count > 0 && !std::mem::replace(&mut conn.part.is_ending, true) {
            self.ending_count += 1;
        }
        match conn.part.count {
            0 => self.free(index),
            // Most often: the kernel looks for one request by its token faster than for all of a socket.
            1 if conn.part.receive.is_armed() => {
                conn.part.receive.cancel();
                self.ring.cancel(RequestToken::Receive(index), RequestToken::Ignored);
            }
            _ => self.ring.cancel_all(&conn.part.socket, RequestToken::Ignored),
        }
    }

    /// Frees the slot of a connection that has no request left.
    pub(super) fn free(&mut self, index: u32) {
        if let Some(mut part) = self.remove(index) {
            self.stashes.clear(&mut part.stash);
        }
    }

    fn remove(&mut self, index: u32) -> Option<Requests> {
        let mut part = self.conns.remove(index)?;
        assert!(part.count == 0, "the kernel has released a socket that is closed");
        self.probes.set(&mut part.probe, ProbeState::Unneeded);
        self.ending_count -= u32::from(part.is_ending);
        self.accept_with_free_slot();
        Some(part)
    }

    /// Resumes the listeners that wait for a slot.
    fn accept_with_free_slot(&mut self) {
        for id in self.listeners.ids() {
            if self.listeners.get(id).is_some_and(|listener| listener.is(Accepting::WaitsForSlot)) {
                self.accept(id, true);
            }
        }
    }

    /// Returns whether a slot is free; ends the oldest lingering connection if its slot is needed. Most often the slot
    /// becomes free only in a later poll, when the kernel has released the connection; no other is ended until then.
    pub(super) fn free_slot(&mut self) -> bool {
        if self.conns.is_full()
            && self.ending_count == 0
            && let Some(oldest) = self.conns.oldest_lingerer()
        {
            self.end(oldest);
        }
        !self.conns.is_full()
    }
}

impl Driver for UringDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        self.listen_on(ListenSocket::open(at)?)
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        socket::set_blocking_briefly(&socket)?;
        let id = self.listeners.insert(UringListener::new(socket))?;
        self.accept(id, true);
        Ok(id)
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        let socket = self.listeners.get(listener).and_then(UringListener::socket);
        socket.map(|socket| socket.local_addr().clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn accept(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        listener.set_accepting(if on { Accepting::On } else { Accepting::Off });
        let Some(socket) = listener.socket() else { return };
        if on && !listener.is_armed {
            self.ring.accept(socket, !self.accepts_singly, RequestToken::Accept(id));
            listener.is_armed = true;
        } else if !on && listener.is_armed {
            self.ring.cancel(RequestToken::Accept(id), RequestToken::Ignored);
        }
    }

    fn close_listener(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        listener.parked.clear();
        if listener.is_armed {
            // Waited for, because a socket with a request on it still listens.
            self.ring.cancel_now(RequestToken::Accept(id));
            listener.state = ListenerState::Closed;
        } else {
            self.listeners.remove(id);
        }
    }

    fn finish_listener(&mut self, id: ListenerId) {
        self.park_backlog(id, true);
    }

    fn drain_listener(&mut self, id: ListenerId) {
        // The kernel wakes one of all that wait on a socket. That may have been this driver, which no longer waits: the
        // others would be woken only for the next peer.
        self.park_backlog(id, false);
    }

    fn is_draining_listeners(&self) -> bool {
        self.listeners.iter().any(UringListener::is_draining)
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if !self.free_slot() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let (socket, start) = socket::start_connect(to)?;
        self.insert_connecting(socket, start)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        if !self.free_slot() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        socket::set_blocking(&socket, true)?;
        Ok(self.conns.insert(Requests::new(socket), true))
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        if !self.conns.is_detachable(conn) {
            return Detached::Refused;
        }
        let Some(state) = self.conns.get(conn) else { return Detached::Refused };
        if !state.part.stash.is_empty() {
            return Detached::HasInput;
        }
        if state.part.count > 0 || state.has_output() {
            return Detached::Busy;
        }
        if socket::set_blocking(&state.part.socket, false).is_err() {
            return Detached::Refused;
        }
        Detached::Socket(self.remove(conn.index).expect("it is in the table").socket)
    }

    fn poll_timeout(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let must_wake = match &self.wake_path {
            WakePath::Ring { is_armed } => !is_armed,
            WakePath::Poller(_) => self.waker.is_requested(),
        };
        let must_arm = self.has_unarmed() && self.ring.can_provide(pool);
        let has_work = !self.conns.ready.is_empty() || !self.conns.dirty.is_empty() || self.has_parked();
        if must_wake || must_arm || has_work || self.ring.has_work() || self.ring.completions() > 0 {
            return Some(Duration::ZERO);
        }
        self.wait_time(timeout)
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        if self.conns.set_receiving(conn, on).is_none() {
            return;
        }
        if on {
            self.conns.ready.push(conn.index);
        } else {
            self.cancel_receive(conn.index);
        }
    }

    fn send(&mut self, conn: Handle, data: Slice) {
        if self.conns.send(conn, data).is_err() {
            self.fail(conn.index, ConnFault::Exhausted);
        }
    }

    fn set_corked(&mut self, conn: Handle, on: bool) {
        self.conns.set_corked(conn, on);
    }

    fn backlog_bytes(&self, conn: Handle) -> usize {
        self.conns.backlog_bytes(conn)
    }

    fn pinned_bytes(&self, conn: Handle) -> u64 {
        let stash = self.conns.get(conn).map_or(0, |conn| pinned_bytes(self.stashes.iter(&conn.part.stash)));
        self.conns.pinned_bytes(conn) + stash
    }

    fn is_hung_up(&self, conn: Handle) -> bool {
        self.conns.get(conn).is_some_and(|conn| socket::is_hung_up(&conn.part.socket))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.start_sends();
        if self.ring.has_work() { self.ring.enter(0, None) } else { Ok(()) }
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    fn queue_delay(&self) -> QueueDelay {
        self.queue_delay
    }

    fn is_flushing(&self) -> bool {
        self.conns.is_flushing()
    }

    fn accept_singly(&mut self) {
        self.accepts_singly = true;
    }

    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.conns.set_watermarks(high_bytes, low_bytes);
    }

    fn shutdown(&mut self, conn: Handle) {
        let then = self.conns.shutdown(conn);
        self.apply(conn.index, then);
    }

    fn close(&mut self, conn: Handle) {
        if let Some(state) = self.conns.get_mut(conn).filter(|conn| conn.is_live()) {
            self.stashes.clear(&mut state.part.stash);
        }
        let then = self.conns.close(conn, self.now_ns);
        self.apply(conn.index, then);
    }

    fn abort(&mut self, conn: Handle) {
        let state = self.conns.get(conn).filter(|conn: &&Conn<Requests>| !conn.is_dead());
        if let Some(state) = state {
            socket::reset_on_close(&state.part.socket);
            self.end(conn.index);
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        self.run_poll(pool, timeout, events)
    }
}

impl Requests {
    /// Counts a receive request, and says that it is armed.
    pub(super) fn arm_receive(&mut self) {
        self.receive = Receive::Armed { is_fed: false };
        self.count += 1;
    }
}
