//! The epoll driver: what it keeps, and the platform's calls.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use flick_buffers::{Pool, Slice};
use rustix::event::epoll;

use super::readiness::{EpollListener, Input, ParkedPeer, Readiness};
use super::token::EpollToken;
use crate::address::Endpoint;
use crate::clock::monotonic_ns;
use crate::conn::quota::SendQuota;
use crate::conn::{Conns, Then};
use crate::driver::{Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId, checked};
use crate::fault::ConnFault;
use crate::limits::{ACCEPTS_PER_POLL_MAX, KERNEL_EVENTS_MAX, LINGER_SCRATCH_BYTES};
use crate::listen::ListenSocket;
use crate::listeners::{AcceptFaults, Accepting, Listeners};
use crate::poller::Poller;
use crate::queue_delay::{QueueDelay, QueueDelayMeter};
use crate::receive_buffer::ReceiveBuffer;
use crate::slot_queue::SlotQueue;
use crate::socket::{self, ConnectStart};
use crate::waker::Waker;

/// Kernel sockets through epoll.
pub struct EpollDriver {
    pub(super) epoll: OwnedFd,
    pub(super) limits: DriverLimits,
    pub(super) conns: Conns<Readiness>,
    /// Connections that wait for a receive buffer and for nothing else.
    pub(super) starved: SlotQueue,
    /// Connections with new input of which the last receive brought little: they come before the others that are ready.
    pub(super) ready_light: SlotQueue,
    pub(super) listeners: Listeners<EpollListener>,
    pub(super) accept_faults: AcceptFaults,
    /// Peers of finished listeners, which are delivered still.
    pub(super) parked: VecDeque<ParkedPeer>,
    pub(super) receive_buffer: ReceiveBuffer,
    pub(super) quota: SendQuota,
    pub(super) queue_meter: QueueDelayMeter,
    pub(super) queue_delay: QueueDelay,
    /// Buffer for the input of lingering connections, which is discarded.
    pub(super) scratch: Box<[u8]>,
    pub(super) kernel_events: Vec<epoll::Event>,
    pub(super) waker: Waker,
    pub(super) now_ns: u64,
    pub(super) waited_ns: u64,
    /// Bytes received by this poll.
    pub(super) received_bytes: usize,
    /// Connections that one poll accepts from each listener.
    pub(super) accepts_max: usize,
    /// The descriptor of [`EpollDriver::watch`] was readable.
    pub(super) is_watch_ready: bool,
    /// The poller of [`EpollDriver::host_poller`] had a report.
    pub(super) is_poller_ready: bool,
}

/// Events that a connection is registered for. A connect or the first short write adds writability.
pub(super) const INPUT_EDGES: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);

impl EpollDriver {
    /// Builds the driver and allocates everything it will ever need.
    ///
    /// Errors: those of epoll_create(2) and eventfd(2); `InvalidInput` for limits without capacity
    /// (fewer than [`crate::limits::EVENTS_MIN`] events, no bytes per receive).
    pub fn new(limits: DriverLimits) -> io::Result<EpollDriver> {
        let limits = checked(limits)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::with_eventfd()?;
        if let Some(eventfd) = waker.fd() {
            epoll::add(&epoll, eventfd, EpollToken::Waker.pack(), epoll::EventFlags::IN)?;
        }
        Ok(EpollDriver {
            epoll,
            limits,
            conns: Conns::new(&limits, limits.conns_max),
            starved: SlotQueue::new(limits.conns_max),
            ready_light: SlotQueue::new(limits.conns_max),
            listeners: Listeners::new(),
            accept_faults: AcceptFaults::new(),
            parked: VecDeque::new(),
            receive_buffer: ReceiveBuffer::default(),
            quota: SendQuota::unlimited(),
            queue_meter: QueueDelayMeter::new(),
            queue_delay: QueueDelay::None,
            scratch: vec![0; LINGER_SCRATCH_BYTES].into_boxed_slice(),
            kernel_events: Vec::with_capacity(limits.events_max.min(KERNEL_EVENTS_MAX)),
            waker,
            now_ns: monotonic_ns(),
            waited_ns: 0,
            received_bytes: 0,
            accepts_max: ACCEPTS_PER_POLL_MAX,
            is_watch_ready: false,
            is_poller_ready: false,
        })
    }

    /// Returns the descriptor that is readable while there is something to poll for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes polls end when a descriptor is readable, which [`EpollDriver::take_watch_ready`] then reports.
    pub(crate) fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EpollToken::Watched.pack(), epoll::EventFlags::IN)?)
    }

    /// Returns whether [`EpollDriver::take_watch_ready`] is exact.
    pub(crate) fn knows_watch(&self) -> bool {
        true
    }

    pub(crate) fn take_watch_ready(&mut self) -> bool {
        std::mem::take(&mut self.is_watch_ready)
    }

    /// Makes polls end when `poller` has a report, until it is released.
    pub(crate) fn host_poller(&mut self, poller: &Poller) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, poller, EpollToken::Poller.pack(), epoll::EventFlags::IN)?)
    }

    pub(crate) fn release_poller(&mut self, poller: &Poller) -> io::Result<()> {
        self.is_poller_ready = false;
        Ok(epoll::delete(&self.epoll, poller)?)
    }

    pub(crate) fn take_poller_ready(&mut self) -> bool {
        std::mem::take(&mut self.is_poller_ready)
    }

    /// The peer sends nothing more. What it has sent all the same is read after a close, or a reset would follow.
    pub(crate) fn expect_no_input(&mut self, conn: Handle) -> bool {
        let is_read = self.conns.get(conn).is_some_and(|conn| conn.part.input == Input::Dry);
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

    /// Takes in a socket whose connect was started.
    pub(crate) fn insert_connecting(&mut self, socket: OwnedFd, start: ConnectStart) -> io::Result<Handle> {
        if let ConnectStart::Failed(fault) = start {
            let handle = self.conns.insert(Readiness::new(socket), false);
            self.fail(handle.index, fault);
            return Ok(handle);
        }
        self.insert(socket, false, INPUT_EDGES | epoll::EventFlags::OUT)
    }

    /// Does what the connection core asks for.
    pub(super) fn apply(&mut self, index: u32, then: Then) {
        match then {
            Then::Nothing => {}
            Then::ShutDownWrite | Then::Linger => {
                let Some(conn) = self.conns.at(index) else { return };
                socket::shutdown_write(&conn.part.socket);
                if then == Then::Linger && conn.part.input != Input::Dry {
                    self.conns.ready.push(index);
                }
            }
            Then::Close | Then::Drop => self.drop_conn(index),
            Then::Reset => self.reset(index),
        }
    }

    /// Ends a connection at once; its peer sees a reset.
    pub(super) fn reset(&mut self, index: u32) {
        if let Some(conn) = self.conns.at(index) {
            socket::reset_on_close(&conn.part.socket);
        }
        self.drop_conn(index);
    }

    /// Closes a connection's socket, which also ends its registration, and frees the slot.
    pub(super) fn drop_conn(&mut self, index: u32) {
        if self.conns.remove(index).is_some() {
            self.accept_with_free_slot();
        }
    }

    /// Resumes the listeners that wait for a slot.
    fn accept_with_free_slot(&mut self) {
        for id in self.listeners.ids() {
            let waits = |listener: &EpollListener| listener.accepting == Accepting::WaitsForSlot;
            if self.listeners.get(id).is_some_and(waits) {
                self.accept(id, true);
            }
        }
    }

    /// Returns whether a slot is free; closes the oldest lingering connection if its slot is needed.
    pub(super) fn free_slot(&mut self) -> bool {
        while self.conns.is_full() {
            let Some(oldest) = self.conns.oldest_lingerer() else { return false };
            self.drop_conn(oldest);
        }
        true
    }

    /// Fails a connection. What arrived before can still be read.
    pub(crate) fn fail(&mut self, index: u32, fault: ConnFault) {
        let then = self.conns.fail(index, fault);
        if let Some(conn) = self.conns.at_mut(index) {
            conn.part.input = Input::ReadToEnd;
            self.conns.ready.push(index);
        }
        self.apply(index, then);
    }

    /// Adds a connection to the table and its socket to the epoll. The caller has checked that a slot is free.
    pub(super) fn insert(
        &mut self,
        socket: OwnedFd,
        is_established: bool,
        flags: epoll::EventFlags,
    ) -> io::Result<Handle> {
        let watches_output = flags.contains(epoll::EventFlags::OUT);
        let part = Readiness { watches_output, ..Readiness::new(socket) };
        let handle = self.conns.insert(part, is_established);
        let conn = self.conns.get(handle).expect("inserted just above");
        if let Err(error) = epoll::add(&self.epoll, &conn.part.socket, EpollToken::Conn(handle).pack(), flags)
        {
            self.drop_conn(handle.index);
            return Err(error.into());
        }
        Ok(handle)
    }
}

impl Driver for EpollDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        self.listen_on(ListenSocket::open(at)?)
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        // An inherited socket may be blocking.
        socket::set_blocking(&socket, false)?;
        let id =
            self.listeners.insert(EpollListener { socket, accepting: Accepting::Off, is_ready: false })?;
        self.accept(id, true);
        Ok(id)
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        let listener = self.listeners.get(listener).ok_or(io::ErrorKind::NotFound)?;
        Ok(listener.socket.local_addr().clone())
    }

    fn accept(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let accepting = if on { Accepting::On } else { Accepting::Off };
        let was_on = std::mem::replace(&mut listener.accepting, accepting) == Accepting::On;
        if was_on == on {
            return;
        }
        if on {
            // Level-triggered, so that peers left in the backlog are reported again; exclusive, so that of several
            // workers on one Unix socket only one wakes.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            let added = epoll::add(&self.epoll, &listener.socket, EpollToken::Listener(id.0).pack(), flags);
            if let Err(error) = added {
                listener.accepting = Accepting::Off;
                self.accept_faults.note(id, error.raw_os_error());
            }
        } else {
            listener.is_ready = false;
            if let Err(error) = epoll::delete(&self.epoll, &listener.socket) {
                tracing::error!(%error, listener = id.0, "the system refused to end a listener's registration");
            }
        }
    }

    fn close_listener(&mut self, listener: ListenerId) {
        // Other workers may share a Unix listener's descriptor, and then closing ours would not end its registration.
        self.accept(listener, false);
        self.accept_faults.forget(listener);
        self.listeners.remove(listener);
    }

    fn finish_listener(&mut self, listener: ListenerId) {
        self.accept(listener, false);
        self.accept_faults.forget(listener);
        self.park_backlog(listener);
    }

    fn is_draining_listeners(&self) -> bool {
        !self.parked.is_empty()
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
        self.insert(socket, true, INPUT_EDGES)
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        if !self.conns.is_detachable(conn) {
            return Detached::Refused;
        }
        if self.conns.backlog_bytes(conn) > 0 {
            return Detached::Busy;
        }
        let part = self.conns.remove(conn.index).expect("it is in the table");
        // A registration lives as long as the open socket, which another driver will hold.
        let deleted = epoll::delete(&self.epoll, &part.socket);
        assert!(deleted.is_ok(), "a connection of the table is registered");
        self.accept_with_free_slot();
        Detached::Socket(part.socket)
    }

    fn poll_timeout(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        self.wait_time(pool, timeout)
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.conns.set_receiving(conn, on) else { return };
        if state.awaits_input() && state.part.input != Input::Dry {
            self.conns.ready.push(conn.index);
        }
    }

    fn pause_is_free(&self) -> bool {
        true
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
        self.conns.pinned_bytes(conn)
    }

    fn is_hung_up(&self, conn: Handle) -> bool {
        self.conns.get(conn).is_some_and(|conn| socket::is_hung_up(&conn.part.socket))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_dirty();
        Ok(())
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
        self.accepts_max = 1;
    }

    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.conns.set_watermarks(high_bytes, low_bytes);
    }

    fn shutdown(&mut self, conn: Handle) {
        let then = self.conns.shutdown(conn);
        self.apply(conn.index, then);
    }

    fn close(&mut self, conn: Handle) {
        let then = self.conns.close(conn, self.now_ns);
        self.apply(conn.index, then);
    }

    fn abort(&mut self, conn: Handle) {
        if let Some(state) = self.conns.get(conn) {
            socket::reset_on_close(&state.part.socket);
            self.drop_conn(conn.index);
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
