//! A byte stream between two processes of a host, as a client uses it: over rings where the two could pair, otherwise
//! over the Unix socket between them.
//! Promises: the same calls for both; bytes that the other process published before it died are delivered before the
//! error; a wait sees the death of the other process within 50 ms; it busy-polls for a bounded time, then sleeps.
//! A sleep that sees it by itself has a time limit, and arms a timer; one without needs a thread that watches for it
//! (`watch.rs`).
//! Refuses: more than one connection per pair of processes; `pair.rs` has those.

use alloc::boxed::Box;
use core::fmt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::busy_poll::BusyPoll;
use crate::conn::{RingConn, RingRead, SleepLimit};
use crate::fault::PeerFault;
use crate::limits::{FUTEX_SLEEP_MS_MAX, RING_BYTES_MIN, RING_GROWTH};
use crate::pair::{OpenError, Pair};
use crate::pairing::{PairError, PairListener, PairPolicy, PeerProcess, connect_pair};
use crate::segment::SegmentConfig;
use crate::watch::{PeerState, PeerWatchHandle, WatchError, WatchedPeer};

/// Connections that one look answers; the other side need not open more at a time.
const OPENED_MAX: usize = 64;

/// Waits without a sleep after which the other side need not execute fences any more.
const AWAKE_WAITS: u32 = 64;

/// Failure of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The other process violated the protocol.
    Peer(PeerFault),
    /// The other process died, closed its socket, or reset the stream before it ended it.
    PeerGone,
    /// The connection could not be accepted.
    Open(OpenError),
    /// A system call failed.
    System(Errno),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(fault) => write!(f, "the other process violated the protocol: {fault}"),
            Self::PeerGone => f.write_str("the other process ended without closing the stream"),
            Self::Open(error) => error.fmt(f),
            Self::System(errno) => write!(f, "system call failed: {errno}"),
        }
    }
}

impl core::error::Error for StreamError {}

impl From<PeerFault> for StreamError {
    fn from(fault: PeerFault) -> Self {
        Self::Peer(fault)
    }
}

impl From<Errno> for StreamError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Settings of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Sizes of the segment.
    pub segment: SegmentConfig,
    /// Bytes of the ring that this side sends through.
    pub ring_bytes: u64,
    /// Users that may be at the other end.
    pub policy: PairPolicy,
    /// Most bytes of that ring after it has grown, which it does when it is often full.
    pub ring_bytes_max: u64,
    /// Longest time in microseconds that a wait busy-polls before it sleeps; 0: it sleeps at once. Waits that have
    /// polled in vain make it rare.
    pub busy_poll_us: u32,
}

impl Default for StreamConfig {
    fn default() -> Self {
        let segment =
            SegmentConfig { slots: crate::limits::SLOTS_MIN, arena_bytes: 2 << 20, huge_pages: false };
        Self {
            segment,
            ring_bytes: 16 * RING_BYTES_MIN,
            ring_bytes_max: 256 * RING_BYTES_MIN,
            policy: PairPolicy::SameUser,
            busy_poll_us: 50,
        }
    }
}

/// Operation that a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamInterest {
    /// Bytes, or the end of the stream, can be received.
    Readable,
    /// Bytes can be sent.
    Writable,
}

/// Transport of a stream, as a caller may want to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamTransport {
    /// Rings in shared memory.
    SharedMemory,
    /// The Unix socket; the reason is why the processes are no pair.
    Kernel(PairError),
}

#[derive(Debug)]
enum Transport {
    Rings(Box<Rings>),
    Kernel(PairError),
}

#[derive(Debug)]
struct Rings {
    pair: Pair,
    /// `None` until the other side's connection was accepted.
    conn: Option<RingConn>,
}

/// A byte stream between two processes of a host.
#[derive(Debug)]
pub struct ShmStream {
    peer: PeerProcess,
    transport: Transport,
    ring_bytes: u64,
    ring_bytes_max: u64,
    busy_poll: BusyPoll,
    /// Waits since the last one that slept.
    awake_waits: u32,
    /// Slot in a watch of other processes.
    watched: Option<WatchedPeer>,
}

impl ShmStream {
    /// Connects to `shm:NAME`.
    ///
    /// Errors: those of [`connect_pair`].
    pub fn connect(name: &str, config: &StreamConfig) -> Result<Self, PairError> {
        let (peer, pair) = connect_pair(name, &config.segment, config.policy)?;
        let transport = match pair {
            Ok(mut pair) => {
                let conn = Some(pair.open(config.ring_bytes)?);
                Transport::Rings(Box::new(Rings { pair, conn }))
            }
            Err(reason) => Transport::Kernel(reason),
        };
        Ok(Self::new(peer, transport, config))
    }

    /// Accepts a stream.
    ///
    /// Cost: blocks until a process connects.
    /// Errors: those of [`PairListener::accept`].
    pub fn accept(listener: &PairListener, config: &StreamConfig) -> Result<Self, PairError> {
        let (peer, pair) = listener.accept()?;
        let transport = match pair {
            Ok(pair) => Transport::Rings(Box::new(Rings { pair, conn: None })),
            Err(reason) => Transport::Kernel(reason),
        };
        Ok(Self::new(peer, transport, config))
    }

    fn new(peer: PeerProcess, transport: Transport, config: &StreamConfig) -> Self {
        let busy_poll = BusyPoll::new(config.busy_poll_us);
        let StreamConfig { ring_bytes, ring_bytes_max, .. } = *config;
        Self { peer, transport, ring_bytes, ring_bytes_max, busy_poll, awake_waits: 0, watched: None }
    }

    /// Returns the other process.
    pub fn peer(&self) -> &PeerProcess {
        &self.peer
    }

    /// Returns the transport.
    pub fn transport(&self) -> StreamTransport {
        match self.transport {
            Transport::Rings(_) => StreamTransport::SharedMemory,
            Transport::Kernel(reason) => StreamTransport::Kernel(reason),
        }
    }

    /// Lets a watch see the end of the other process, so that waits without a time limit sleep without one while the
    /// watch runs. The slot in a former watch is given back. A stream without a pair needs no watch.
    ///
    /// Cost: a system call, and two if there was a former watch.
    /// Errors: `Full`, `Stopped`, `Forked`, `System`: the stream has no watch, and sleeps with a limit.
    pub fn watch_peer(&mut self, watch: &PeerWatchHandle) -> Result<(), WatchError> {
        self.watched = None;
        if matches!(self.transport, Transport::Rings(_)) {
            self.watched = Some(watch.register(self.peer.shared_socket())?);
        }
        Ok(())
    }

    /// Takes the ready bits, and accepts the other side's connection if it has opened one. A bit that is not taken
    /// would keep this side awake.
    fn accept_ring(pair: &mut Pair, conn: &mut Option<RingConn>, ring_bytes: u64) -> Result<(), StreamError> {
        if !pair.is_any_ready() {
            return Ok(());
        }
        // A stream has one connection; the other side opens further ones elsewhere.
        let mut opened = [None; OPENED_MAX];
        let mut count = 0;
        pair.take_ready(|slot| {
            if let Some(entry) = opened.get_mut(count) {
                *entry = Some(slot);
                count += 1;
            }
        });
        for slot in opened.into_iter().flatten() {
            if conn.is_some() {
                pair.refuse(slot);
            } else {
                *conn = pair.accept(slot, ring_bytes).map_err(StreamError::Open)?;
            }
        }
        Ok(())
    }

    /// Sends the front of `bytes` and returns how many bytes were taken; 0 means that the caller should wait. While a
    /// reply is unread behind which the other side has closed the stream, bytes are taken and discarded.
    ///
    /// Errors: `Peer`, `PeerGone`, `System`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        match &mut self.transport {
            Transport::Rings(rings) => {
                let Rings { pair, conn } = &mut **rings;
                Self::accept_ring(pair, conn, self.ring_bytes)?;
                let Some(conn) = conn else { return Ok(0) };
                if conn.is_peer_gone() {
                    let is_discarded = conn.is_closed_unread()?;
                    return if is_discarded { Ok(bytes.len()) } else { Err(StreamError::PeerGone) };
                }
                let count = conn.send(bytes)?;
                if count == bytes.len() {
                    return Ok(count);
                }
                pair.return_unused(conn)?;
                let grown = (RING_GROWTH * conn.send_capacity()).min(self.ring_bytes_max);
                if grown <= conn.send_capacity() || !pair.resize(conn, grown)? {
                    return Ok(count);
                }
                Ok(count + conn.send(&bytes[count..])?)
            }
            Transport::Kernel(_) => {
                match send(self.peer.socket(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                    Err(Errno::PIPE | Errno::CONNRESET) => Err(StreamError::PeerGone),
                    sent => Ok(sent?),
                }
            }
        }
    }

    /// Receives bytes to the front of `out`. `Empty` means that the caller should wait; `Reset` is an error instead.
    ///
    /// Errors: `Peer`, `PeerGone`, `Open`, `System`.
    pub fn receive(&mut self, out: &mut [u8]) -> Result<RingRead, StreamError> {
        match &mut self.transport {
            Transport::Rings(rings) => {
                let Rings { pair, conn } = &mut **rings;
                Self::accept_ring(pair, conn, self.ring_bytes)?;
                match conn.as_mut().map_or(Ok(RingRead::Empty), |conn| conn.receive(out))? {
                    RingRead::Reset => Err(StreamError::PeerGone),
                    read => Ok(read),
                }
            }
            Transport::Kernel(_) => match recv(self.peer.socket(), out, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => Ok(RingRead::Finished),
                Ok((_, count)) => Ok(RingRead::Bytes(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(RingRead::Empty),
                Err(Errno::CONNRESET) => Err(StreamError::PeerGone),
                Err(errno) => Err(errno.into()),
            },
        }
    }

    /// Blocks until the operation can be tried again, or the time is over; returns whether it can. `None`: there is no
    /// limit, and the result is `true`. A wait may end early.
    ///
    /// Cost: a sleep has a timer, unless there is no limit and a [watch](Self::watch_peer) runs.
    /// Errors: `PeerGone`: the other process is gone. A wait for `Readable` says so only when nothing is left to be
    /// received; one for `Writable` at once, and what is left is received behind it. `Peer`, `Open`, `System`.
    pub fn wait(&mut self, interest: StreamInterest, timeout_ms: Option<u32>) -> Result<bool, StreamError> {
        let Transport::Rings(rings) = &mut self.transport else {
            let flags = match interest {
                StreamInterest::Readable => PollFlags::IN,
                StreamInterest::Writable => PollFlags::OUT,
            };
            let mut sources = [PollFd::from_borrowed_fd(self.peer.socket(), flags)];
            return match poll(&mut sources, timeout_ms.map(timespec).as_ref()) {
                Err(Errno::INTR) => Ok(timeout_ms.is_none()),
                count => Ok(count? > 0),
            };
        };
        let Rings { pair, conn } = &mut **rings;
        let ring_bytes = self.ring_bytes;
        let mut look = || {
            Self::accept_ring(pair, conn, ring_bytes)?;
            is_ready(conn, interest)
        };
        let is_ready_now = if timeout_ms == Some(0) { look()? } else { self.busy_poll.run(|_| look())? };
        if is_ready_now {
            self.awake_waits = self.awake_waits.saturating_add(1);
            if self.awake_waits == AWAKE_WAITS
                && let Some(conn) = conn
            {
                conn.end_fences();
            }
            return Ok(true);
        }
        self.awake_waits = 0;
        // Most waits are short, and a futex is the cheapest sleep. It shows no death of the other process.
        let Some(conn) = conn.as_mut().filter(|conn| conn.is_accepted()) else {
            return self.sleep(interest, timeout_ms);
        };
        let futex_ms = timeout_ms.unwrap_or(FUTEX_SLEEP_MS_MAX).min(FUTEX_SLEEP_MS_MAX);
        let limit = match &self.watched {
            Some(watched) if timeout_ms.is_none() => match watched.attach(conn) {
                PeerState::Watched => SleepLimit::PeerEnd(watched),
                PeerState::Ended => return self.sleep(interest, None),
                PeerState::Foreign | PeerState::New | PeerState::Idle => SleepLimit::Ms(futex_ms),
            },
            Some(_) | None => SleepLimit::Ms(futex_ms),
        };
        let is_over = match interest {
            StreamInterest::Readable => conn.wait_readable(limit)?,
            StreamInterest::Writable => conn.wait_writable(limit)?,
        };
        self.busy_poll.slept();
        if is_over { self.sleep(interest, timeout_ms.map(|ms| ms - futex_ms)) } else { Ok(true) }
    }

    /// Sleeps until the other side signals through the socket or dies, or the time is over.
    fn sleep(&mut self, interest: StreamInterest, timeout_ms: Option<u32>) -> Result<bool, StreamError> {
        let Transport::Rings(rings) = &mut self.transport else { return Ok(false) };
        let Rings { pair, conn } = &mut **rings;
        Self::accept_ring(pair, conn, self.ring_bytes)?;
        if !prepare_sleep(pair, conn, interest)? {
            return Ok(true);
        }
        let mut sources = [PollFd::from_borrowed_fd(pair.socket(), PollFlags::IN | PollFlags::RDHUP)];
        let polled = poll(&mut sources, timeout_ms.map(timespec).as_ref());
        let reported = sources[0].revents();
        let is_gone = reported.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR);
        if reported.is_empty() {
            pair.end_sleep();
        } else {
            pair.end_signalled_sleep();
        }
        if let Some(conn) = conn {
            conn.cancel_sleep();
        }
        match polled {
            Err(Errno::INTR) => return Ok(timeout_ms.is_none()),
            Err(errno) => return Err(errno.into()),
            Ok(0) => return Ok(false),
            Ok(_) => {}
        }
        Self::accept_ring(pair, conn, self.ring_bytes)?;
        // What the other process published before it died is there now; look before it is lost.
        let has_more = match conn {
            Some(conn) => interest == StreamInterest::Readable && !conn.is_idle()?,
            None => false,
        };
        if is_gone && !has_more { Err(StreamError::PeerGone) } else { Ok(true) }
    }

    /// Gives the stream up: the other side finds a reset behind the bytes that were sent. Without a pair it finds the
    /// end of the stream.
    pub fn reset(mut self) {
        if let Transport::Rings(rings) = &mut self.transport
            && let Some(conn) = rings.conn.take()
        {
            rings.pair.reset(conn);
        }
    }

    /// Announces that this side sends no more.
    ///
    /// Errors: `Peer`, `System`.
    pub fn finish_sending(&mut self) -> Result<(), StreamError> {
        match &mut self.transport {
            Transport::Rings(rings) => Ok(rings.conn.as_mut().map_or(Ok(()), RingConn::finish_sending)?),
            Transport::Kernel(_) => {
                Ok(rustix::net::shutdown(self.peer.socket(), rustix::net::Shutdown::Write)?)
            }
        }
    }
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        // The end of this side's socket is no end of the other process.
        self.watched = None;
        if let Transport::Rings(rings) = &mut self.transport
            && let Some(conn) = rings.conn.take()
        {
            rings.pair.close(conn);
        }
    }
}

/// Returns whether an operation can be tried again.
fn is_ready(conn: &mut Option<RingConn>, interest: StreamInterest) -> Result<bool, StreamError> {
    match (conn, interest) {
        (None, _) => Ok(false),
        (Some(conn), StreamInterest::Readable) => Ok(!conn.is_idle()?),
        (Some(conn), StreamInterest::Writable) => Ok(conn.is_peer_gone() || conn.has_much_space()?),
    }
}

fn timespec(ms: u32) -> Timespec {
    Timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 }
}

/// Announces a sleep; `false`: look again.
fn prepare_sleep(
    pair: &Pair,
    conn: &mut Option<RingConn>,
    interest: StreamInterest,
) -> Result<bool, StreamError> {
    if let Some(conn) = conn {
        match interest {
            StreamInterest::Readable => conn.announce_sleep()?,
            StreamInterest::Writable if !conn.announce_full()? => return Ok(false),
            StreamInterest::Writable => {}
        }
    }
    if !pair.prepare_sleep() {
        return Ok(false);
    }
    if let Some(conn) = conn
        && interest == StreamInterest::Readable
        && !conn.is_idle()?
    {
        pair.end_sleep();
        conn.cancel_sleep();
        return Ok(false);
    }
    Ok(true)
}
