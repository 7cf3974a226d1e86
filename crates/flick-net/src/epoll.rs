//! The driver that works on every Linux: edge-triggered epoll.
//! Promises: one `epoll_wait` per poll; one write per connection and poll where 64 pieces suffice; no
//! registration is changed on the way of a message (interest in writing is added the first time a peer is
//! slow); no allocation after `new`.
//! Refuses: file descriptors of others; waiting more finely than a millisecond.
//! Source: epoll(7), "edge-triggered": read until short or empty, keep what is known of readiness oneself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use flick_buffers::{Pool, Slice};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

use crate::address::Endpoint;
use crate::driver::{ConnFault, Detached, Driver, DriverLimits, Event, Handle, Line, ListenerId, checked};
use crate::intake::Intake;
use crate::limits::{KERNEL_EVENTS_MAX, LINGER_SCRATCH_BYTES, LISTENERS_MAX};
use crate::line::LineWatch;
use crate::linger::Lingerers;
use crate::listen::ListenSocket;
use crate::output::{Allowance, Marks, OutputQueue, OutputSlab};
use crate::queue::SlotQueue;
use crate::socket::{self, Dial};
use crate::table::{GENERATION_END, Table};
use crate::waker::Waker;

mod linger;
mod turn;

/// Kernel sockets through epoll.
pub struct EpollDriver {
    epoll: OwnedFd,
    limits: DriverLimits,
    marks: Marks,
    conns: Table<Conn>,
    listeners: Vec<Option<Listener>>,
    outputs: OutputSlab,
    intake: Intake,
    /// Connections with something to report or to read.
    ready: SlotQueue,
    watched: LineWatch,
    line: Line,
    /// Every connection in `ready` waits for a receive buffer and for nothing else.
    is_starved: bool,
    /// Connections with output appended since their last write.
    dirty: SlotQueue,
    allowance: Allowance,
    lingerers: Lingerers,
    /// Where lingerers' input goes.
    scratch: Box<[u8]>,
    kernel_events: Vec<epoll::Event>,
    waker: Waker,
    now_ns: u64,
    waited_ns: u64,
}

struct Conn {
    socket: OwnedFd,
    phase: Phase,
    output: OutputQueue,
    /// Nothing may be appended any more; the write side is shut once the output is gone.
    is_shutting: bool,
    /// The platform's handle is dead; what is left is to send the output.
    is_closing: bool,
    /// The platform wants data.
    wants: bool,
    /// The kernel may have data.
    is_readable: bool,
    /// The kernel announced the end of the stream or an error: a short read does not mean empty.
    is_ended: bool,
    /// The end of the stream was read.
    saw_eof: bool,
    /// The kernel refused output; the next edge tells when to go on.
    is_blocked: bool,
    /// The platform will append more: what there is waits.
    is_held: bool,
    /// Registered for edges of writability.
    watches_output: bool,
    is_above_high: bool,
    /// `Drained` is to be reported.
    drained: bool,
    /// `Connected` is to be reported.
    connected: bool,
    /// `Failed` is to be reported, behind data that can still be read.
    fault: Option<ConnFault>,
    /// Bytes thrown away while lingering.
    lingered_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Dialling,
    Open,
    /// All is sent and the write side shut; what arrives is thrown away for a while.
    Lingering,
}

struct Listener {
    socket: ListenSocket,
    is_accepting: bool,
    /// The kernel reported a waiting connection in this poll.
    is_ready: bool,
    /// Paused by the driver because the table was full; resumed when it is not.
    waits_for_slot: bool,
}

const WAKER_TOKEN: u64 = u64::MAX;

/// What an epoll registration is told apart by.
enum Token {
    Waker,
    Listener(u32),
    Conn(Handle),
}

impl Token {
    fn pack(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Token::Waker => WAKER_TOKEN,
            Token::Listener(index) => u64::from(GENERATION_END) << 32 | u64::from(index),
            Token::Conn(conn) => u64::from(conn.generation) << 32 | u64::from(conn.index),
        })
    }

    fn unpack(data: epoll::EventData) -> Token {
        let word = data.u64();
        let (generation, index) = ((word >> 32) as u32, word as u32);
        match generation {
            _ if word == WAKER_TOKEN => Token::Waker,
            GENERATION_END => Token::Listener(index),
            _ => Token::Conn(Handle { index, generation }),
        }
    }
}

/// What a connection is registered for; interest in output comes with a dial or with the first slow write.
const INPUT_EDGES: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);

impl EpollDriver {
    /// Builds the driver and everything it will ever allocate.
    ///
    /// Errors: the system refuses an epoll or event descriptor; `InvalidInput` for limits that make no sense
    /// (fewer than [`crate::limits::EVENTS_MIN`] events, no bytes per receive).
    pub fn new(limits: DriverLimits) -> io::Result<EpollDriver> {
        let limits = checked(limits)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::with_eventfd()?;
        if let Some(eventfd) = waker.fd() {
            epoll::add(&epoll, eventfd, Token::Waker.pack(), epoll::EventFlags::IN)?;
        }
        Ok(EpollDriver {
            epoll,
            limits,
            marks: Marks::default(),
            conns: Table::new(limits.conns_max),
            listeners: Vec::with_capacity(LISTENERS_MAX),
            outputs: OutputSlab::new(limits.output_slices_max),
            intake: Intake::default(),
            ready: SlotQueue::new(limits.conns_max),
            watched: LineWatch::new(),
            line: Line::Empty,
            is_starved: false,
            dirty: SlotQueue::new(limits.conns_max),
            allowance: Allowance::unlimited(),
            lingerers: Lingerers::new(limits.conns_max),
            scratch: vec![0; LINGER_SCRATCH_BYTES].into_boxed_slice(),
            kernel_events: Vec::with_capacity(limits.events_max.min(KERNEL_EVENTS_MAX)),
            waker,
            now_ns: monotonic_ns(),
            waited_ns: 0,
        })
    }

    /// The descriptor that is readable while there is something to poll for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn bounds_mut(&mut self) -> (&mut DriverLimits, &mut Allowance) {
        (&mut self.limits, &mut self.allowance)
    }

    /// A handle other threads end this driver's wait with.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The connection a live handle names; closing ones are dead to the platform.
    fn open_conn(&mut self, conn: Handle) -> Option<&mut Conn> {
        self.conns.get_mut(conn).filter(|conn| !conn.is_closing)
    }

    fn push_ready(&mut self, index: u32) {
        self.is_starved = false;
        self.ready.push(index);
    }

    /// Forgets a connection; closing the socket ends its registration.
    fn drop_conn(&mut self, index: u32) {
        let Some(mut conn) = self.conns.remove(index) else { return };
        self.outputs.clear(&mut conn.output);
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

    /// Marks a connection as failed: its output is lost, what arrived before can still be read.
    fn fail(&mut self, index: u32, fault: ConnFault) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        self.outputs.clear(&mut conn.output);
        conn.fault.get_or_insert(fault);
        conn.is_readable |= conn.phase == Phase::Open && !conn.saw_eof;
        conn.is_ended = true;
        self.push_ready(index);
    }

    fn listener_mut(&mut self, listener: ListenerId) -> Option<&mut Listener> {
        self.listeners.get_mut(listener.0 as usize)?.as_mut()
    }
}

/// The kernel's monotonic clock, in nanoseconds: what drivers on sockets show.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Conn {
    fn new(socket: OwnedFd, phase: Phase) -> Conn {
        Conn {
            socket,
            phase,
            output: OutputQueue::default(),
            is_shutting: false,
            is_closing: false,
            wants: false,
            is_readable: false,
            is_ended: false,
            saw_eof: false,
            is_blocked: false,
            is_held: false,
            watches_output: false,
            is_above_high: false,
            drained: false,
            connected: false,
            fault: None,
            lingered_bytes: 0,
        }
    }

    /// Data or the end of the stream could be handed out now.
    fn can_receive(&self) -> bool {
        self.wants && self.is_readable && !self.saw_eof && self.phase == Phase::Open
    }
}

impl Driver for EpollDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        self.listen_on(ListenSocket::open(at)?)
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        // One that somebody else opened may wait.
        socket::set_blocking(&socket, false)?;
        let free = self.listeners.iter().position(Option::is_none);
        let index = free.unwrap_or(self.listeners.len());
        if index == LISTENERS_MAX {
            return Err(io::Error::other("a driver has at most 64 listeners"));
        }
        let id = ListenerId(index as u32);
        let listener = Some(Listener { socket, is_accepting: false, is_ready: false, waits_for_slot: false });
        if index == self.listeners.len() {
            self.listeners.push(listener);
        } else {
            self.listeners[index] = listener;
        }
        self.accept(id, true);
        Ok(id)
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        let listener = self.listeners.get(listener.0 as usize).and_then(Option::as_ref);
        listener.map(|listener| listener.socket.local_addr().clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn accept(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        listener.waits_for_slot = false;
        if listener.is_accepting == on {
            return;
        }
        listener.is_accepting = on;
        let changed = if on {
            // Level-triggered, so that peers left waiting are reported again; exclusive, so that of several
            // workers on one Unix socket only one wakes.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, &listener.socket, Token::Listener(id.0).pack(), flags)
        } else {
            listener.is_ready = false;
            epoll::delete(&self.epoll, &listener.socket)
        };
        if let Err(error) = changed {
            tracing::error!(%error, listener = id.0, on, "the system refused to change a listener's registration");
        }
    }

    fn close_listener(&mut self, listener: ListenerId) {
        // A Unix listener's descriptor may be shared with other workers, and then closing ours would leave it
        // registered.
        self.accept(listener, false);
        if let Some(slot) = self.listeners.get_mut(listener.0 as usize) {
            *slot = None;
        }
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if !self.make_room() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let (socket, dial) = socket::dial(to)?;
        let handle =
            self.conns.insert(Conn::new(socket, Phase::Dialling)).expect("a slot was free just above");
        if let Dial::Failed(fault) = dial {
            self.fail(handle.index, fault);
            return Ok(handle);
        }
        let conn = self.conns.get_mut(handle).expect("inserted just above");
        conn.watches_output = true;
        let flags = INPUT_EDGES | epoll::EventFlags::OUT;
        if let Err(error) = epoll::add(&self.epoll, &conn.socket, Token::Conn(handle).pack(), flags) {
            self.drop_conn(handle.index);
            return Err(error.into());
        }
        Ok(handle)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        if !self.make_room() {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let handle = self.conns.insert(Conn::new(socket, Phase::Open)).expect("a slot was free just above");
        let conn = self.conns.get(handle).expect("inserted just above");
        if let Err(error) = epoll::add(&self.epoll, &conn.socket, Token::Conn(handle).pack(), INPUT_EDGES) {
            self.drop_conn(handle.index);
            return Err(error.into());
        }
        Ok(handle)
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        let Some(state) = self.open_conn(conn) else { return Detached::Never };
        if state.fault.is_some() || state.is_shutting || state.phase != Phase::Open {
            return Detached::Never;
        }
        if !state.output.is_empty() {
            return Detached::Later;
        }
        let removed = self.conns.remove(conn.index).expect("it was there just above");
        // A registration lives as long as the open socket, which somebody else will hold. It cannot fail: the socket is
        // registered since it is ours.
        let deleted = epoll::delete(&self.epoll, &removed.socket);
        assert!(deleted.is_ok(), "a connection of the table is registered");
        self.accept_where_full();
        Detached::Socket(removed.socket)
    }

    fn rest(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        self.wait_time(pool, timeout)
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.open_conn(conn) else { return };
        state.wants = on;
        if on && state.can_receive() {
            self.push_ready(conn.index);
        }
    }

    fn pauses_for_free(&self) -> bool {
        true
    }

    fn send(&mut self, conn: Handle, data: Slice) {
        let high_bytes = self.marks.high_bytes;
        let Some(state) = self.conns.get_mut(conn).filter(|conn| !conn.is_closing) else { return };
        if state.fault.is_some() || state.is_shutting {
            return;
        }
        if !self.outputs.push(&mut state.output, data) {
            self.fail(conn.index, ConnFault::Exhausted);
            return;
        }
        state.is_above_high |= state.output.bytes() >= high_bytes;
        if state.phase == Phase::Open && !state.is_blocked && !state.is_held {
            self.dirty.push(conn.index);
        }
    }

    fn hold_output(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.conns.get_mut(conn) else { return };
        state.is_held = on && !state.is_closing && !state.is_shutting;
        let goes_on = state.phase == Phase::Open && !state.is_blocked && !state.output.is_empty();
        if !state.is_held && goes_on {
            self.dirty.push(conn.index);
        }
    }

    fn backlog_bytes(&self, conn: Handle) -> usize {
        let state = self.conns.get(conn).filter(|conn| !conn.is_closing);
        state.map_or(0, |state| state.output.bytes())
    }

    fn is_gone(&self, conn: Handle) -> bool {
        self.conns.get(conn).is_some_and(|conn| socket::is_hung_up(&conn.socket))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_dirty();
        Ok(())
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
        let Some(state) = self.open_conn(conn) else { return };
        state.is_closing = true;
        state.wants = false;
        if state.fault.is_some() {
            self.drop_conn(conn.index);
        } else if state.output.is_empty() {
            self.finish_close(conn.index);
        }
    }

    fn abort(&mut self, conn: Handle) {
        if let Some(state) = self.conns.get_mut(conn) {
            socket::reset_on_close(&state.socket);
            self.drop_conn(conn.index);
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.turn(pool, timeout, events)
    }
}
