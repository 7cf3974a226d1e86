//! The driver for kernels that have all of it (6.12 and later): io_uring.
//! Promises: requests of all connections go to the kernel in one system call per poll; a connection is armed
//! once and receives until it is paused; many small receives share one buffer; no allocation after `new`.
//! Refuses: kernels and policies that deny any part: `new` says so and the caller takes epoll.
//! Source: io_uring(7); provided buffer rings used up piece by piece (Linux 6.12).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use flick_buffers::{Pool, Slice};
use rustix::event::{EventfdFlags, eventfd};

use crate::address::Endpoint;
use crate::driver::{ConnFault, Detached, Driver, DriverLimits, Event, Handle, Line, ListenerId, checked};
use crate::epoll::monotonic_ns;
use crate::limits::{ACCEPTS_PARKED_MAX, LISTENERS_MAX, STASH_SLICES_MAX};
use crate::line::LineWatch;
use crate::linger::Lingerers;
use crate::listen::ListenSocket;
use crate::output::{Allowance, Marks, OutputQueue, OutputSlab};
use crate::queue::SlotQueue;
use crate::socket::{self, Dial};
use crate::table::Table;
use crate::waker::Waker;

mod complete;
mod looks;
mod sys;
mod turn;

use looks::{Doubt, Looks};
use sys::Ring;

/// Kernel sockets through io_uring.
pub struct UringDriver {
    /// First, so that it is dropped first: it waits for the kernel to let go of sockets and output.
    ring: Ring,
    limits: DriverLimits,
    marks: Marks,
    conns: Table<Conn>,
    listeners: Vec<Option<Listener>>,
    outputs: OutputSlab,
    /// What arrived for connections whose receiving had been turned off.
    stashes: OutputSlab,
    /// Connections with something to report.
    ready: SlotQueue,
    watched: LineWatch,
    line: Line,
    /// Connections with output appended, or left over from a short send.
    dirty: SlotQueue,
    allowance: Allowance,
    /// Connections whose receive is to be armed.
    unarmed: SlotQueue,
    /// The same, but no buffer was left for them last time: they come first.
    hungry: SlotQueue,
    lingerers: Lingerers,
    looks: Looks,
    waker: Waker,
    waker_is_armed: bool,
    announcer: Option<OwnedFd>,
    now_ns: u64,
    waited_ns: u64,
}

struct Conn {
    socket: OwnedFd,
    phase: Phase,
    output: OutputQueue,
    stash: OutputQueue,
    /// Requests whose last result has not been seen; the socket stays open that long.
    requests: u32,
    is_shutting: bool,
    /// The platform's handle is dead.
    is_closing: bool,
    wants: bool,
    receive: Receive,
    /// Something has arrived since receiving was last asked for.
    is_fed: bool,
    is_sending: bool,
    /// The platform will append more: what there is waits.
    is_held: bool,
    /// The end of the stream was met, and reported.
    met_eof: bool,
    saw_eof: bool,
    is_above_high: bool,
    drained: bool,
    connected: bool,
    fault: Option<ConnFault>,
    /// A reset that a send met: what the peer said before it is still to be received, up to its end.
    reads_on: bool,
    lingered_bytes: usize,
    doubt: Doubt,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Dialling,
    Open,
    /// All is sent and the write side shut; what arrives is thrown away for a while.
    Lingering,
    /// Waits for the last results of its requests.
    Dead,
}

/// The state of a connection's receive request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    Idle,
    Armed,
    Cancelling,
}

struct Listener {
    /// None once the platform has closed it; the slot then waits for the last result.
    socket: Option<ListenSocket>,
    is_accepting: bool,
    is_armed: bool,
    waits_for_slot: bool,
    /// Closed, but somebody else goes on listening: the peers that we have are still handed out.
    is_left: bool,
    /// Peers the kernel accepted before it learned of a pause.
    parked: VecDeque<OwnedFd>,
}

/// What a request is told apart by: its kind above, its slot below.
const KIND_SHIFT: u32 = 56;
const KIND_IGNORED: u64 = 0;
const KIND_WAKER: u64 = 1;
const KIND_ACCEPT: u64 = 2;
const KIND_RECEIVE: u64 = 3;
const KIND_SEND: u64 = 4;
const KIND_DIAL: u64 = 5;

const fn token(kind: u64, index: u32) -> u64 {
    kind << KIND_SHIFT | index as u64
}

impl UringDriver {
    /// Builds the ring and everything the driver will ever allocate.
    ///
    /// Errors: the kernel is too old, or a policy denies io_uring; the caller falls back to epoll.
    pub fn new(limits: DriverLimits) -> io::Result<UringDriver> {
        let limits = checked(limits)?;
        Ok(UringDriver {
            ring: Ring::new()?,
            limits,
            marks: Marks::default(),
            conns: Table::new(limits.conns_max),
            listeners: Vec::with_capacity(LISTENERS_MAX),
            outputs: OutputSlab::new(limits.output_slices_max),
            stashes: OutputSlab::new(STASH_SLICES_MAX),
            ready: SlotQueue::new(limits.conns_max),
            watched: LineWatch::new(),
            line: Line::Empty,
            dirty: SlotQueue::new(limits.conns_max),
            allowance: Allowance::unlimited(),
            unarmed: SlotQueue::new(limits.conns_max),
            hungry: SlotQueue::new(limits.conns_max),
            lingerers: Lingerers::new(limits.conns_max),
            looks: Looks::new(monotonic_ns()),
            waker: Waker::with_eventfd()?,
            waker_is_armed: false,
            announcer: None,
            now_ns: monotonic_ns(),
            waited_ns: 0,
        })
    }

    /// From here on an eventfd tells, by an edge, whenever there is something to poll for.
    ///
    /// Errors: the system's.
    pub fn announce(&mut self) -> io::Result<()> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.ring.signal(&eventfd)?;
        self.announcer = Some(eventfd);
        Ok(())
    }

    /// The eventfds of [`UringDriver::announce`]: the ring's, and the waker's own. A wake-up that went through the ring would have
    /// to signal one eventfd while another is being signalled, which the kernel puts off (for milliseconds) the first time, and
    /// forgets the second time (seen on 6.18).
    pub fn announcers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.announcer.as_ref().map(AsFd::as_fd).into_iter().chain(self.waker.fd())
    }

    /// Whether the waker is looked at by whoever announces for this driver, and not by the ring.
    fn is_announced(&self) -> bool {
        self.announcer.is_some()
    }

    pub(crate) fn bounds_mut(&mut self) -> (&mut DriverLimits, &mut Allowance) {
        (&mut self.limits, &mut self.allowance)
    }

    /// A handle other threads end this driver's wait with.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn open_conn(&mut self, conn: Handle) -> Option<&mut Conn> {
        self.conns.get_mut(conn).filter(|conn| !conn.is_closing)
    }

    fn listener_mut(&mut self, listener: ListenerId) -> Option<&mut Listener> {
        self.listeners.get_mut(listener.0 as usize)?.as_mut()
    }

    /// Marks a connection as failed. What arrived before is handed out first, if it is wanted.
    fn fail(&mut self, index: u32, fault: ConnFault) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        if conn.is_closing {
            return self.end(index);
        }
        if conn.fault.is_none() {
            conn.reads_on = fault == ConnFault::Reset && conn.phase == Phase::Open && !conn.met_eof;
        }
        conn.fault.get_or_insert(fault);
        if conn.receive == Receive::Armed {
            // Of a peer that is well, because it may send for ever. Of one that is gone, because its receive may never end: the
            // kernel (seen on 6.18) forgets a reset that came right behind data. What is there is received anew, up to the end.
            conn.receive = Receive::Cancelling;
            self.ring.cancel(token(KIND_RECEIVE, index), token(KIND_IGNORED, 0));
        }
        self.ready.push(index);
    }

    /// Ends a connection for good: the handle is dead at once, the slot is free after the last result.
    fn end(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        conn.is_closing = true;
        conn.wants = false;
        conn.phase = Phase::Dead;
        self.stashes.clear(&mut conn.stash);
        if conn.requests == 0 {
            self.free(index);
        } else {
            self.ring.cancel_all(&conn.socket, token(KIND_IGNORED, 0));
        }
    }

    /// Frees the slot of a connection that has no request left.
    fn free(&mut self, index: u32) {
        let Some(mut conn) = self.conns.remove(index) else { return };
        assert!(conn.requests == 0, "the kernel has let go of a socket that is closed");
        self.outputs.clear(&mut conn.output);
        self.stashes.clear(&mut conn.stash);
        self.looks.set(&mut conn.doubt, Doubt::None);
        self.accept_where_full();
    }

    /// A slot is free: listeners that waited for one go on.
    fn accept_where_full(&mut self) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].as_ref().is_some_and(|listener| listener.waits_for_slot) {
                self.accept(ListenerId(index as u32), true);
            }
        }
    }

    /// Ends a connection whose output is sent: says so, then waits a while for the peer to end its side.
    fn finish_close(&mut self, index: u32) {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return };
        let may_linger = conn.phase == Phase::Open && !conn.met_eof;
        if !may_linger || !self.lingerers.push(handle, self.now_ns) {
            return self.end(index);
        }
        socket::shutdown_write(&conn.socket);
        conn.phase = Phase::Lingering;
        self.unarmed.push(index);
    }
}

impl Listener {
    /// Peers that it has may be handed out.
    fn hands_out(&self) -> bool {
        self.is_accepting || self.is_left
    }
}

impl Conn {
    fn new(socket: OwnedFd, phase: Phase) -> Conn {
        Conn {
            socket,
            phase,
            output: OutputQueue::default(),
            stash: OutputQueue::default(),
            requests: 0,
            is_shutting: false,
            is_closing: false,
            wants: false,
            receive: Receive::Idle,
            is_fed: false,
            is_sending: false,
            is_held: false,
            met_eof: false,
            saw_eof: false,
            is_above_high: false,
            drained: false,
            connected: false,
            fault: None,
            reads_on: false,
            lingered_bytes: 0,
            doubt: Doubt::None,
        }
    }
}

impl Driver for UringDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        self.listen_on(ListenSocket::open(at)?)
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        socket::set_blocking(&socket, true)?;
        let free = self.listeners.iter().position(Option::is_none);
        let index = free.unwrap_or(self.listeners.len());
        if index == LISTENERS_MAX {
            return Err(io::Error::other("a driver has at most 64 listeners"));
        }
        let listener = Some(Listener {
            socket: Some(socket),
            is_accepting: false,
            is_armed: false,
            waits_for_slot: false,
            is_left: false,
            parked: VecDeque::with_capacity(ACCEPTS_PARKED_MAX),
        });
        if index == self.listeners.len() {
            self.listeners.push(listener);
        } else {
            self.listeners[index] = listener;
        }
        let id = ListenerId(index as u32);
        self.accept(id, true);
        Ok(id)
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        let listener = self.listeners.get(listener.0 as usize).and_then(Option::as_ref);
        let socket = listener.and_then(|listener| listener.socket.as_ref());
        socket.map(|socket| socket.local_addr().clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn accept(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let Some(socket) = &listener.socket else { return };
        listener.is_accepting = on;
        listener.waits_for_slot = false;
        let accept = token(KIND_ACCEPT, id.0);
        if on && !listener.is_armed {
            listener.is_armed = true;
            self.ring.accept(socket, accept);
        } else if !on && listener.is_armed {
            self.ring.cancel(accept, token(KIND_IGNORED, 0));
        }
    }

    fn close_listener(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        listener.is_accepting = false;
        listener.waits_for_slot = false;
        listener.parked.clear();
        if listener.is_armed {
            // Waited for, because a socket with a request on it goes on listening.
            self.ring.cancel_now(token(KIND_ACCEPT, id.0));
            listener.socket = None;
        } else {
            self.listeners[id.0 as usize] = None;
        }
    }

    fn leave_listener(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        listener.is_left = true;
        listener.is_accepting = false;
        listener.waits_for_slot = false;
        let socket = listener.socket.take();
        if let Some(socket) = socket.filter(|_| listener.is_armed) {
            self.ring.cancel_now(token(KIND_ACCEPT, id.0));
            // The kernel tells one of all who wait on a socket that somebody is there. That may have been us, who no longer wait: the
            // others would be told of nobody before the next one comes.
            listener
                .parked
                .extend(std::iter::from_fn(|| socket::accept_if_any(&socket)).take(ACCEPTS_PARKED_MAX));
        }
        self.forget_left(id);
    }

    fn is_leaving(&self) -> bool {
        self.listeners.iter().flatten().any(|listener| listener.is_left)
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if self.conns.is_full() && !self.make_room() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let (socket, dial) = socket::dial(to)?;
        socket::set_blocking(&socket, true)?;
        let handle =
            self.conns.insert(Conn::new(socket, Phase::Dialling)).expect("a slot was free just above");
        match dial {
            Dial::Failed(fault) => self.fail(handle.index, fault),
            Dial::Done => self.end_dial(handle.index),
            Dial::Pending => {
                let conn = self.conns.get_mut(handle).expect("inserted just above");
                conn.requests += 1;
                self.ring.watch(&conn.socket, libc::POLLOUT, false, token(KIND_DIAL, handle.index));
            }
        }
        Ok(handle)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        if !self.make_room() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        socket::set_blocking(&socket, true)?;
        Ok(self.conns.insert(Conn::new(socket, Phase::Open)).expect("a slot was free just above"))
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        let Some(state) = self.open_conn(conn) else { return Detached::Never };
        if state.fault.is_some() || state.is_shutting || state.phase != Phase::Open {
            return Detached::Never;
        }
        if !state.stash.is_empty() {
            return Detached::Holds;
        }
        if state.requests > 0 || !state.output.is_empty() {
            return Detached::Later;
        }
        if socket::set_blocking(&state.socket, false).is_err() {
            return Detached::Never;
        }
        let mut removed = self.conns.remove(conn.index).expect("it was there just above");
        self.looks.set(&mut removed.doubt, Doubt::None);
        self.accept_where_full();
        Detached::Socket(removed.socket)
    }

    fn rest(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        if self.is_announced() && self.waker.is_asked() {
            return Some(Duration::ZERO);
        }
        let must_arm = !(self.waker_is_armed || self.is_announced())
            || ((!self.unarmed.is_empty() || !self.hungry.is_empty()) && self.ring.can_provide(pool));
        let has_work = !self.ready.is_empty() || !self.dirty.is_empty() || self.has_parked();
        if must_arm || has_work || self.ring.has_work() || self.ring.completions() > 0 {
            return Some(Duration::ZERO);
        }
        self.wait_time(timeout)
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.open_conn(conn) else { return };
        state.wants = on;
        if on {
            self.ready.push(conn.index);
        } else if state.receive == Receive::Armed {
            state.receive = Receive::Cancelling;
            self.ring.cancel(token(KIND_RECEIVE, conn.index), token(KIND_IGNORED, 0));
        }
    }

    fn send(&mut self, conn: Handle, data: Slice) {
        let high_bytes = self.marks.high_bytes;
        let Some(state) = self.conns.get_mut(conn).filter(|conn| !conn.is_closing) else { return };
        if state.fault.is_some() || state.is_shutting {
            return;
        }
        if !self.outputs.push(&mut state.output, data) {
            return self.fail(conn.index, ConnFault::Exhausted);
        }
        state.is_above_high |= state.output.bytes() >= high_bytes;
        self.dirty.push(conn.index);
    }

    fn hold_output(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.conns.get_mut(conn) else { return };
        state.is_held = on && !state.is_closing && !state.is_shutting;
        if !state.is_held && !state.output.is_empty() {
            self.dirty.push(conn.index);
        }
    }

    fn backlog_bytes(&self, conn: Handle) -> usize {
        let state = self.conns.get(conn).filter(|conn| !conn.is_closing && conn.fault.is_none());
        state.map_or(0, |state| state.output.bytes())
    }

    fn is_gone(&self, conn: Handle) -> bool {
        self.conns.get(conn).is_some_and(|conn| socket::is_hung_up(&conn.socket))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.start_sends();
        if self.ring.has_work() { self.ring.enter(0, None) } else { Ok(()) }
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    fn line(&self) -> Line {
        self.line
    }

    fn is_flushing(&self) -> bool {
        self.conns.values().any(|conn| conn.is_closing && conn.output.bytes() > 0)
    }

    fn set_marks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.marks = Marks { high_bytes, low_bytes };
    }

    fn shutdown(&mut self, conn: Handle) {
        self.hold_output(conn, false);
        let Some(state) = self.open_conn(conn) else { return };
        state.is_shutting = true;
        if state.phase == Phase::Open && state.output.is_empty() {
            socket::shutdown_write(&state.socket);
        }
    }

    fn close(&mut self, conn: Handle) {
        self.hold_output(conn, false);
        let Some(state) = self.conns.get_mut(conn).filter(|conn| !conn.is_closing) else { return };
        state.is_closing = true;
        state.wants = false;
        self.stashes.clear(&mut state.stash);
        if state.fault.is_some() {
            self.end(conn.index);
        } else if state.output.is_empty() {
            self.finish_close(conn.index);
        }
    }

    fn abort(&mut self, conn: Handle) {
        let Some(state) = self.conns.get_mut(conn) else { return };
        if state.phase != Phase::Dead {
            socket::reset_on_close(&state.socket);
            self.end(conn.index);
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turn(pool, timeout, events)
    }
}
