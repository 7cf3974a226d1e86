//! Many client connections of one thread, through shared memory or through the kernel (TCP, Unix sockets), behind one
//! type: connect, send, receive, and wait on all of them.
//! Promises: the same calls for each transport; nothing is allocated after set-up but per process that is paired with;
//! what a process has published before it died is delivered before the error; its death ends a wait at once; a set that
//! waits uses no processor time after a bounded busy poll.
//! Refuses: accepting connections; host names; more than one thread; a kernel's socket in place of a pair that fails.
//! Start reading here; `client/pairs.rs` has the processes.
//!
//! A connection has a **token**, a number below [`ClientConfig::conns_max`] that the caller chooses and that the events
//! carry. An event [`Readable`](ClientEvent::Readable) is for one or more receives, until one returns fewer bytes than
//! asked for; more bytes are then reported again.
//!
//! The first page of this crate has a client of a service; this one has two transports.
//!
//! ```no_run
//! use flick_shm::client::{ClientConfig, ClientEvent, ClientSet};
//!
//! let mut set = ClientSet::new(&ClientConfig::new(2))?;
//! set.connect(0, &"shm:orders".parse()?)?;
//! set.connect(1, &"127.0.0.1:80".parse()?)?;
//! let (mut events, mut reply) = (Vec::with_capacity(16), [0; 4096]);
//! loop {
//!     set.wait(&mut events, None)?;
//!     for event in &events {
//!         match *event {
//!             ClientEvent::Connected(token) => drop(set.send(token, b"hello")?),
//!             ClientEvent::Readable(token) => println!("{token}: {:?}", set.receive(token, &mut reply)?),
//!             ClientEvent::Failed(token) => set.close(token),
//!             ClientEvent::Writable(_) | ClientEvent::Watched(_) => {}
//!         }
//!     }
//! }
//! # #[expect(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod pairs;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with, sockopt,
};

pub use address::ClientAddress;
pub use rustix::event::Timespec;
pub use rustix::io::Errno;

pub use crate::conn::RingRead;
pub use crate::pairing::{PairError, PairPolicy};
pub use crate::stream::StreamError;

use crate::busy_poll::BusyPoll;
use crate::conn::{OpenAnswer, RingConn};
use crate::limits::{
    ARENA_BYTES_MAX, CLIENT_CONNS_MAX, CLIENT_GROWN_RINGS, CLIENT_IDLE_LOOKS_MAX, CLIENT_LOOKS_MAX,
    CLIENT_MOVES_MAX, CLIENT_REPORTS_MAX, CLIENT_RING_SHARE, RING_BYTES_MIN, RING_GROWTH, SLOTS_MAX,
    SLOTS_MIN,
};
use crate::segment::SegmentConfig;
use crate::sleep::Fencing;
use crate::slot_queue::SlotQueue;
use pairs::{ClientPairs, Progress};

/// Settings of a set of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Most connections; tokens are below it.
    pub conns_max: u32,
    /// Bytes of the ring that a connection begins to send through.
    pub ring_bytes: u64,
    /// Most bytes of that ring after it has grown, which it does when it is full.
    pub ring_bytes_max: u64,
    /// Users that may be at the other end of shared memory.
    pub policy: PairPolicy,
    /// Longest time in microseconds that a wait busy-polls shared memory before it sleeps; 0: it sleeps at once.
    pub busy_poll_us: u32,
}

impl ClientConfig {
    /// Returns the defaults for a number of connections.
    pub fn new(conns_max: u32) -> Self {
        Self {
            conns_max,
            ring_bytes: RING_BYTES_MIN,
            ring_bytes_max: 64 * RING_BYTES_MIN,
            policy: PairPolicy::SameUser,
            busy_poll_us: 50,
        }
    }

    /// Returns the sizes of the segment of a pair: all connections may be of one.
    fn segment(&self) -> SegmentConfig {
        let slots = (2 * self.conns_max).next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX);
        let few = CLIENT_GROWN_RINGS * self.ring_bytes_max;
        let arena_bytes = (u64::from(self.conns_max) * CLIENT_RING_SHARE * self.ring_bytes)
            .max(few)
            .min(u64::from(self.conns_max) * self.ring_bytes_max)
            .max(self.ring_bytes_max)
            .next_power_of_two()
            .min(ARENA_BYTES_MAX / 4);
        SegmentConfig { slots, arena_bytes, huge_pages: false }
    }
}

/// News of a connection, by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// It can send.
    Connected(u32),
    /// It could not be opened. The caller closes it.
    Failed(u32),
    /// Bytes, the end of the stream or an error can be received.
    Readable(u32),
    /// It can send, as asked for with [`ClientSet::request_writable`].
    Writable(u32),
    /// A descriptor of the caller is readable; see [`ClientSet::watch`].
    Watched(u32),
}

/// Report of the epoll, packed into its 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// A connection of the kernel.
    Conn(u32),
    /// A descriptor of the caller.
    Watched(u32),
    /// The socket of a pair.
    Socket(u32),
}

impl News {
    fn pack(self) -> epoll::EventData {
        let (kind, number) = match self {
            Self::Conn(token) => (0, token),
            Self::Watched(token) => (1, token),
            Self::Socket(pair) => (2, pair),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn unpack(data: epoll::EventData) -> Self {
        let number = data.u64() as u32;
        match data.u64() >> 32 {
            0 => Self::Conn(number),
            1 => Self::Watched(number),
            _ => Self::Socket(number),
        }
    }
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it stays in the table, and nothing is allocated per connection"
)]
enum Conn {
    Kernel(KernelConn),
    Ring(ClientRing),
}

#[derive(Debug)]
struct KernelConn {
    socket: OwnedFd,
    is_connected: bool,
    wants_writable: bool,
    watched: epoll::EventFlags,
}

#[derive(Debug)]
struct ClientRing {
    pair: u32,
    /// `None` until the handshake of the pair is over.
    ring: Option<RingConn>,
    /// Pairs that have not accepted it.
    moves: u32,
    is_connected: bool,
    has_failed: bool,
    wants_writable: bool,
    /// Looks at an empty ring since something was there.
    idle_looks: u32,
}

impl ClientRing {
    fn new(pair: u32) -> Self {
        Self {
            pair,
            ring: None,
            moves: 0,
            is_connected: false,
            has_failed: false,
            wants_writable: false,
            idle_looks: 0,
        }
    }
}

/// Client connections of one thread.
#[derive(Debug)]
pub struct ClientSet {
    epoll: OwnedFd,
    /// By token.
    conns: Box<[Option<Conn>]>,
    pairs: ClientPairs,
    /// Rings to be reported, if there is something to report.
    ready: SlotQueue,
    /// Rings that are looked at in every wait, because they were active lately.
    polled: SlotQueue,
    /// Rings whose sleep is being announced.
    sleepers: Vec<u32>,
    busy_poll: BusyPoll,
    /// Waits since the kernel was asked.
    looks: u32,
    ring_bytes_max: u64,
}

impl ClientSet {
    /// Makes a set without connections.
    ///
    /// Errors: `INVAL` for more than [`CLIENT_CONNS_MAX`] connections; those of epoll_create(2).
    pub fn new(config: &ClientConfig) -> Result<Self, Errno> {
        if !(1..=CLIENT_CONNS_MAX).contains(&config.conns_max) {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            conns: (0..config.conns_max).map(|_| None).collect(),
            pairs: ClientPairs::new(config),
            ready: SlotQueue::new(config.conns_max),
            polled: SlotQueue::new(config.conns_max),
            sleepers: Vec::with_capacity(config.conns_max as usize),
            busy_poll: BusyPoll::new(config.busy_poll_us),
            looks: 0,
            ring_bytes_max: config.ring_bytes_max,
        })
    }

    /// Watches a descriptor of the caller, a timer for example, until the caller closes it.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn watch(&self, descriptor: impl AsFd, token: u32) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, News::Watched(token).pack(), epoll::EventFlags::IN)
    }

    /// Starts to connect; an event reports the result. The token must not be in use. A connection through shared memory
    /// that a process refuses goes to the one that listens at the name then: a service that is reloaded or upgraded
    /// refuses what comes to its former workers.
    ///
    /// Errors: `Name`, `User`, `Segment`, `Handshake` of a pair; `System`.
    pub fn connect(&mut self, token: u32, to: &ClientAddress) -> Result<(), PairError> {
        let Some(None) = self.conns.get(token as usize) else { return Err(PairError::System(Errno::INVAL)) };
        let conn = match to {
            ClientAddress::Shm(name) => {
                let pair = self.pairs.connect(name, &self.epoll)?;
                self.ready.push(token);
                Conn::Ring(ClientRing::new(pair))
            }
            ClientAddress::Ip(_) | ClientAddress::Unix(_) => {
                let watched = epoll::EventFlags::OUT;
                let socket = begin_connect(to)?;
                epoll::add(&self.epoll, &socket, News::Conn(token).pack(), watched)?;
                Conn::Kernel(KernelConn { socket, is_connected: false, wants_writable: false, watched })
            }
        };
        self.conns[token as usize] = Some(conn);
        Ok(())
    }

    /// Returns the kernel's socket of a connection, if it has one, for socket options and ancillary data.
    pub fn socket(&self, token: u32) -> Option<BorrowedFd<'_>> {
        match self.conns.get(token as usize)? {
            Some(Conn::Kernel(conn)) => Some(conn.socket.as_fd()),
            Some(Conn::Ring(_)) | None => None,
        }
    }

    /// Sends the front of `bytes` and returns how many bytes were taken. If not all, [`ClientSet::request_writable`]
    /// asks for an event. While a reply is unread behind which the other side has closed the connection, bytes are
    /// taken and discarded.
    ///
    /// Errors: `Peer`, `PeerGone`, also for a token without a connection; `System`.
    #[inline]
    pub fn send(&mut self, token: u32, bytes: &[u8]) -> Result<usize, StreamError> {
        match self.conns.get_mut(token as usize) {
            Some(Some(Conn::Kernel(conn))) => send_to_kernel(conn, bytes),
            Some(Some(Conn::Ring(conn))) => {
                let is_gone = self.pairs.is_gone(conn.pair);
                let pair = self.pairs.pair(conn.pair);
                let (Some(ring), Some(pair)) = (&mut conn.ring, pair) else { return Ok(0) };
                if is_gone || ring.is_peer_gone() {
                    let is_discarded = ring.is_closed_unread()?;
                    return if is_discarded { Ok(bytes.len()) } else { Err(StreamError::PeerGone) };
                }
                let sent = ring.send(bytes)?;
                let grown = (RING_GROWTH * ring.send_capacity()).min(self.ring_bytes_max);
                if sent == bytes.len() || grown <= ring.send_capacity() || !pair.resize(ring, grown)? {
                    return Ok(sent);
                }
                Ok(sent + ring.send(&bytes[sent..])?)
            }
            Some(None) | None => Err(StreamError::PeerGone),
        }
    }

    /// Receives bytes to the front of `out`. [`RingRead::Reset`] is never returned: a reset is the error `PeerGone`.
    ///
    /// Errors: `Peer`, `PeerGone`, also for a token without a connection; `System`.
    #[inline]
    pub fn receive(&mut self, token: u32, out: &mut [u8]) -> Result<RingRead, StreamError> {
        match self.conns.get_mut(token as usize) {
            Some(Some(Conn::Kernel(conn))) => match recv(&conn.socket, &mut *out, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => Ok(RingRead::Finished),
                Ok((_, count)) => Ok(RingRead::Bytes(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(RingRead::Empty),
                Err(Errno::CONNRESET | Errno::PIPE) => Err(StreamError::PeerGone),
                Err(errno) => Err(errno.into()),
            },
            Some(Some(Conn::Ring(conn))) => {
                let is_gone = self.pairs.is_gone(conn.pair);
                let Some(ring) = &mut conn.ring else { return Ok(RingRead::Empty) };
                conn.idle_looks = 0;
                match ring.receive(out)? {
                    RingRead::Reset => Err(StreamError::PeerGone),
                    RingRead::Empty if is_gone => Err(StreamError::PeerGone),
                    RingRead::Bytes(count) if count < out.len() && !is_gone => {
                        self.polled.push(token);
                        Ok(RingRead::Bytes(count))
                    }
                    RingRead::Bytes(count) => {
                        self.ready.push(token);
                        Ok(RingRead::Bytes(count))
                    }
                    RingRead::Empty => {
                        self.polled.push(token);
                        Ok(RingRead::Empty)
                    }
                    RingRead::Finished => Ok(RingRead::Finished),
                }
            }
            Some(None) | None => Err(StreamError::PeerGone),
        }
    }

    /// Asks for one event [`Writable`](ClientEvent::Writable), which comes when the connection can send.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn request_writable(&mut self, token: u32) -> Result<(), Errno> {
        match self.conns.get_mut(token as usize) {
            Some(Some(Conn::Kernel(conn))) => {
                conn.wants_writable = true;
                watch_conn(&self.epoll, token, conn, epoll::EventFlags::IN | epoll::EventFlags::OUT)
            }
            Some(Some(Conn::Ring(conn))) => {
                conn.wants_writable = true;
                self.ready.push(token);
                Ok(())
            }
            Some(None) | None => Ok(()),
        }
    }

    /// Announces that a connection sends no more.
    ///
    /// Errors: `Peer`, `System`.
    pub fn finish_sending(&mut self, token: u32) -> Result<(), StreamError> {
        match self.conns.get_mut(token as usize) {
            Some(Some(Conn::Kernel(conn))) => {
                Ok(rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Write)?)
            }
            Some(Some(Conn::Ring(conn))) => {
                Ok(conn.ring.as_mut().map_or(Ok(()), RingConn::finish_sending)?)
            }
            Some(None) | None => Ok(()),
        }
    }

    /// Closes a connection; its token is free. Bytes that were sent can still be read by the other side.
    pub fn close(&mut self, token: u32) {
        if let Some(Some(Conn::Ring(conn))) = self.conns.get_mut(token as usize).map(Option::take) {
            self.pairs.close(conn.pair, conn.ring);
        }
    }

    /// Waits until there are events, or the time is over; fills `events` up to its capacity, which is at least 2.
    /// Without a timeout it waits for ever. A wait may end early without events, when the state of a pair has changed.
    ///
    /// Errors: those of epoll_wait(2); an interrupted wait ends without events.
    pub fn wait(&mut self, events: &mut Vec<ClientEvent>, timeout: Option<Timespec>) -> Result<(), Errno> {
        events.clear();
        if !self.pairs.is_used() {
            return self.ask_kernel(events, timeout);
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.busy_poll(timeout == Some(zero));
        self.report_ready(events);
        if !events.is_empty() && self.looks < CLIENT_LOOKS_MAX {
            self.looks += 1;
            return Ok(());
        }
        self.looks = 0;
        let may_wait = events.is_empty() && timeout != Some(zero) && self.prepare_sleep();
        self.ask_kernel(events, if may_wait { timeout } else { Some(zero) })?;
        self.busy_poll.slept();
        self.look();
        self.report_ready(events);
        Ok(())
    }

    /// Looks at shared memory, for a bounded time until something is there.
    fn busy_poll(&mut self, is_once: bool) {
        if is_once || (self.polled.is_empty() && !self.pairs.is_any_awake()) {
            self.look();
            return;
        }
        let mut busy_poll = self.busy_poll;
        let Ok(_) = busy_poll.run(|_| Ok::<bool, core::convert::Infallible>(self.look()));
        self.busy_poll = busy_poll;
    }

    /// Looks at all ready bits and at the rings that were active lately; returns whether any is to be reported.
    fn look(&mut self) -> bool {
        let Self { pairs, ready, conns, polled, .. } = self;
        pairs.take_ready(|token| ready.push(token));
        let mut may_rest = false;
        for _ in 0..polled.len() {
            let Some(token) = polled.pop() else { break };
            let Some((ring, idle_looks)) = ring_of(conns, token) else { continue };
            if !matches!(ring.is_idle(), Ok(true)) {
                *idle_looks = 0;
                ready.push(token);
                continue;
            }
            *idle_looks += 1;
            may_rest |= *idle_looks >= CLIENT_IDLE_LOOKS_MAX;
            polled.push(token);
        }
        if may_rest {
            self.announce_sleeps(CLIENT_IDLE_LOOKS_MAX);
            let is_ordered = self.order_sleeps();
            self.confirm_sleeps(is_ordered);
        }
        !self.ready.is_empty()
    }

    /// Prepares a sleep in the kernel: announces it to all rings and pairs, with one barrier. `false`: look again.
    fn prepare_sleep(&mut self) -> bool {
        self.announce_sleeps(0);
        self.pairs.announce_sleep();
        let is_ordered = self.order_sleeps();
        let is_quiet = self.confirm_sleeps(is_ordered);
        self.pairs.confirm_sleep(is_ordered && is_quiet)
    }

    /// Stores the sleep words of rings that were found empty at least `looks_min` times.
    fn announce_sleeps(&mut self, looks_min: u32) {
        let Self { conns, polled, sleepers, ready, .. } = self;
        sleepers.clear();
        for _ in 0..polled.len() {
            let Some(token) = polled.pop() else { break };
            let Some((ring, idle_looks)) = ring_of(conns, token) else { continue };
            if *idle_looks < looks_min {
                polled.push(token);
            } else if ring.announce_sleep().is_err() {
                // Receiving finds the fault again.
                ready.push(token);
            } else {
                sleepers.push(token);
            }
        }
    }

    /// Orders the announcements of this thread before its next looks. `false`: the kernel refused.
    fn order_sleeps(&mut self) -> bool {
        let Self { conns, sleepers, .. } = self;
        let mut needs_barrier = false;
        for token in &*sleepers {
            needs_barrier |= ring_of(conns, *token).is_some_and(|(ring, _)| ring.needs_barrier());
        }
        // The barrier of one kind does not replace the other.
        if !Fencing::Both.before_sleep() || (needs_barrier && !Fencing::Sleeper.before_sleep()) {
            return false;
        }
        for token in &*sleepers {
            if let Some((ring, _)) = ring_of(conns, *token) {
                ring.note_barrier();
            }
        }
        true
    }

    /// Looks at the rings whose sleep was announced. Returns whether none of them has anything.
    fn confirm_sleeps(&mut self, is_ordered: bool) -> bool {
        let Self { conns, sleepers, ready, polled, .. } = self;
        for token in sleepers.drain(..) {
            let Some((ring, _)) = ring_of(conns, token) else { continue };
            if !is_ordered {
                ring.cancel_sleep();
                polled.push(token);
            } else if !matches!(ring.is_idle(), Ok(true)) {
                ring.cancel_sleep();
                ready.push(token);
            }
        }
        is_ordered && ready.is_empty()
    }

    /// Reports what is there of the rings that may have something.
    fn report_ready(&mut self, events: &mut Vec<ClientEvent>) {
        for _ in 0..self.ready.len() {
            // One ring may have two events.
            if events.capacity() - events.len() < 2 {
                return;
            }
            let Some(token) = self.ready.pop() else { return };
            let Some(Some(Conn::Ring(conn))) = self.conns.get_mut(token as usize) else { continue };
            if !conn.is_connected {
                report_connect(token, conn, (&mut self.pairs, &self.epoll), events);
            }
            let Some(ring) = conn.ring.as_mut().filter(|_| conn.is_connected) else { continue };
            let is_gone = self.pairs.is_gone(conn.pair);
            if conn.wants_writable && (is_gone || ring.is_peer_gone() || is_writable(ring)) {
                conn.wants_writable = false;
                events.push(ClientEvent::Writable(token));
            }
            if is_gone || !matches!(ring.is_idle(), Ok(true)) {
                events.push(ClientEvent::Readable(token));
            } else {
                conn.idle_looks = 0;
                self.polled.push(token);
            }
        }
    }

    /// Asks the kernel, and waits there.
    fn ask_kernel(&mut self, events: &mut Vec<ClientEvent>, timeout: Option<Timespec>) -> Result<(), Errno> {
        let mut space = [const { MaybeUninit::uninit() }; CLIENT_REPORTS_MAX];
        let reports = match epoll::wait(&self.epoll, &mut space[..], timeout.as_ref()) {
            Ok((reports, _)) => reports,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for report in reports {
            let (flags, data) = (report.flags, report.data);
            match News::unpack(data) {
                News::Conn(token) => self.report_conn(token, flags, events)?,
                News::Watched(token) if events.len() < events.capacity() => {
                    events.push(ClientEvent::Watched(token));
                }
                // Level-triggered: it is reported again.
                News::Watched(_) => {}
                News::Socket(pair) => {
                    let is_over = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
                    if self.pairs.advance(pair, is_over, &self.epoll) != Progress::Nothing {
                        self.ready_all_of(pair);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reports a connection of the kernel. What finds no space in `events` is level-triggered.
    fn report_conn(
        &mut self,
        token: u32,
        flags: epoll::EventFlags,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Errno> {
        use epoll::EventFlags;
        if events.capacity() - events.len() < 2 {
            return Ok(());
        }
        let Some(Some(Conn::Kernel(conn))) = self.conns.get_mut(token as usize) else { return Ok(()) };
        if !conn.is_connected {
            conn.is_connected = matches!(sockopt::socket_error(&conn.socket), Ok(Ok(())));
            if !conn.is_connected {
                events.push(ClientEvent::Failed(token));
                // Not again and again until the caller closes it.
                return epoll::delete(&self.epoll, &conn.socket);
            }
            events.push(ClientEvent::Connected(token));
            let out = if conn.wants_writable { EventFlags::OUT } else { EventFlags::empty() };
            return watch_conn(&self.epoll, token, conn, EventFlags::IN | out);
        }
        if flags.contains(EventFlags::OUT) {
            if core::mem::take(&mut conn.wants_writable) {
                events.push(ClientEvent::Writable(token));
            } else {
                // The caller did not ask again.
                watch_conn(&self.epoll, token, conn, EventFlags::IN)?;
            }
        }
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            events.push(ClientEvent::Readable(token));
        }
        Ok(())
    }

    /// Looks at all connections of a pair whose process has answered or is gone.
    fn ready_all_of(&mut self, pair: u32) {
        for (token, conn) in self.conns.iter().enumerate() {
            if matches!(conn, Some(Conn::Ring(conn)) if conn.pair == pair) {
                self.ready.push(token as u32);
            }
        }
    }
}

impl Drop for ClientSet {
    fn drop(&mut self) {
        for token in 0..self.conns.len() {
            self.close(token as u32);
        }
    }
}

/// Returns the ring of a connection, and its looks.
fn ring_of(conns: &mut [Option<Conn>], token: u32) -> Option<(&mut RingConn, &mut u32)> {
    match conns.get_mut(token as usize)? {
        Some(Conn::Ring(conn)) => Some((conn.ring.as_mut()?, &mut conn.idle_looks)),
        Some(Conn::Kernel(_)) | None => None,
    }
}

/// Opens a connection whose pair is there, and reports how it was answered. One that was refused is opened in another
/// pair, with the process that listens at the name now.
fn report_connect(
    token: u32,
    conn: &mut ClientRing,
    (pairs, epoll): (&mut ClientPairs, &OwnedFd),
    events: &mut Vec<ClientEvent>,
) {
    while !conn.has_failed {
        match open_answer(token, conn, pairs) {
            OpenAnswer::Pending => return,
            OpenAnswer::Accepted => {
                conn.is_connected = true;
                return events.push(ClientEvent::Connected(token));
            }
            OpenAnswer::Refused => {}
        }
        // The next connect, too, goes to another pair.
        pairs.replace(conn.pair);
        let may_move = conn.moves < CLIENT_MOVES_MAX;
        match may_move.then(|| pairs.connect_instead(conn.pair, epoll)) {
            Some(Ok(next)) => {
                pairs.close(conn.pair, conn.ring.take());
                conn.pair = next;
                conn.moves += 1;
            }
            Some(Err(_)) | None => {
                conn.has_failed = true;
                events.push(ClientEvent::Failed(token));
            }
        }
    }
}

/// Opens a connection once its pair is there, and returns how it was answered. A process that is gone, violates the
/// protocol, or has no memory has refused it.
fn open_answer(token: u32, conn: &mut ClientRing, pairs: &mut ClientPairs) -> OpenAnswer {
    if conn.ring.is_none() && pairs.is_open(conn.pair) {
        conn.ring = pairs.open(conn.pair, token);
        if conn.ring.is_none() {
            return OpenAnswer::Refused;
        }
    }
    match conn.ring.as_mut().map(RingConn::answer) {
        Some(Ok(OpenAnswer::Accepted)) => OpenAnswer::Accepted,
        Some(Ok(OpenAnswer::Pending)) | None if !pairs.is_gone(conn.pair) => OpenAnswer::Pending,
        Some(_) | None => OpenAnswer::Refused,
    }
}

/// Returns whether a ring has space; otherwise its ready bit is set when it has.
fn is_writable(ring: &mut RingConn) -> bool {
    // The caller finds a fault when it sends.
    ring.has_space().unwrap_or(true) || !ring.announce_full().unwrap_or(false)
}

#[inline]
fn send_to_kernel(conn: &KernelConn, bytes: &[u8]) -> Result<usize, StreamError> {
    match send(&conn.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => Ok(0),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(StreamError::PeerGone),
        sent => Ok(sent?),
    }
}

fn watch_conn(
    epoll: &OwnedFd,
    token: u32,
    conn: &mut KernelConn,
    flags: epoll::EventFlags,
) -> Result<(), Errno> {
    if conn.watched != flags {
        epoll::modify(epoll, &conn.socket, News::Conn(token).pack(), flags)?;
        conn.watched = flags;
    }
    Ok(())
}

/// Begins to connect a socket of the kernel.
fn begin_connect(to: &ClientAddress) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, begun) = match to {
        ClientAddress::Ip(addr) => {
            let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            let begun = connect(&socket, addr);
            (socket, begun)
        }
        ClientAddress::Unix(path) | ClientAddress::Shm(path) => {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let begun = connect(&socket, &SocketAddrUnix::new(path.as_bytes())?);
            (socket, begun)
        }
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}
