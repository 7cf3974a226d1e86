//! The interface between the platform and a byte transport.
//! Promises: a driver knows bytes and readiness, never messages; it allocates nothing after it is built and opened; it
//! receives only while the platform wants data; every result is an [`DriverEvent`], never a return value.
//! Refuses: framing, retries, timeouts, name resolution. The platform does those.
//! Source: FLICK §5 (input and output channels of a task graph are byte streams of connections).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use flick_buffers::{LARGE_BYTES, Pool, Slice};

use crate::address::{Endpoint, PeerAddr};
use crate::fault::ConnFault;
use crate::limits::EVENTS_MIN;
use crate::listen::ListenSocket;
use crate::queue_delay::QueueDelay;
use crate::tap::TapSink;

/// One connection of one driver. Unique for the driver's life: after the connection ends, its handle names nothing.
///
/// `index < conns_max + shm_conns_max` of [`DriverLimits`], so the platform may keep its own state in an array beside
/// the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// Slot in the driver's table; reused after the connection ends.
    pub index: u32,
    /// Counts the uses of the slot, so that an old handle differs from a new one.
    pub generation: u32,
}

/// One listening socket of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// Limits of a driver, fixed when it is built.
#[derive(Clone, Copy, Debug)]
pub struct DriverLimits {
    /// Connections through the kernel, accepted and outgoing together.
    pub conns_max: u32,
    /// Connections through shared memory; their handles follow those of the kernel's. A driver without shared memory
    /// ignores it.
    pub shm_conns_max: u32,
    /// Pieces of output waiting to be sent, over all connections.
    pub output_slices_max: u32,
    /// Events returned by one call of [`Driver::poll`].
    pub events_max: usize,
    /// Bytes asked from the kernel by one receive; at most one large buffer.
    pub receive_bytes: u32,
}

#[cfg(test)]
impl DriverLimits {
    /// Those of a driver that has a few connections of a test.
    pub(crate) const FEW: Self =
        Self { conns_max: 8, shm_conns_max: 0, output_slices_max: 8, events_max: 64, receive_bytes: 16384 };
}

/// Event that occurred since the last poll. The data of one connection arrives in order.
#[derive(Debug)]
pub enum DriverEvent {
    /// A peer connected. The driver receives nothing until [`Driver::receive`] turns receiving on.
    Accepted {
        /// The listener it arrived on.
        listener: ListenerId,
        /// The new connection.
        conn: Handle,
        /// The peer's address.
        peer: PeerAddr,
    },
    /// Accepting failed: no file descriptor is left (`EMFILE`, `ENFILE`), the driver's connection table is full (also
    /// `ENFILE`), or the system refused to watch the listener. The driver has paused the listener and new peers wait in
    /// the kernel's backlog; the platform resumes it with [`Driver::accept`]. After a full table the driver also
    /// resumes it when a slot becomes free (a closed connection may keep its slot until its output is sent).
    AcceptFailed {
        /// The listener.
        listener: ListenerId,
        /// The system's error number.
        errno: i32,
    },
    /// An outgoing connection is established.
    Connected {
        /// The connection.
        conn: Handle,
    },
    /// Bytes arrived; the slice is never empty.
    Data {
        /// The connection.
        conn: Handle,
        /// The bytes, in the pooled buffer that the kernel wrote them to.
        data: Slice,
    },
    /// The peer has ended its side of the stream; it may still read.
    Eof {
        /// The connection.
        conn: Handle,
    },
    /// The connection has ended and its handle is dead. Also the result of a failed connect.
    Failed {
        /// The connection.
        conn: Handle,
        /// The reason.
        fault: ConnFault,
    },
    /// Output that [`Driver::backlog_bytes`] had shown above the high watermark has fallen to the low watermark.
    Drained {
        /// The connection.
        conn: Handle,
    },
    /// Another thread called the waker.
    Woken,
}

/// Use of shared memory by a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmStats {
    /// Connections now.
    pub conns: u64,
    /// Processes that it is paired with now.
    pub pairs: u64,
    /// Bytes of its rings now.
    pub ring_bytes: u64,
    /// Bytes received so far.
    pub received_bytes: u64,
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// Times so far that another process has woken it.
    pub wake_ups: u64,
    /// Nanoseconds so far in which it busy-polled rings before a wait.
    pub busy_polled_ns: u64,
    /// Connections to listeners at `shm:` so far that were refused, because there was no memory for their rings.
    pub refused: u64,
    /// Connections of the kernel that use rings now.
    pub upgraded: u64,
    /// Times so far that a connection began to use rings.
    pub upgrades: u64,
    /// Times so far that a connection returned to the kernel.
    pub downgrades: u64,
    /// Outgoing connections so far that stay in the kernel, because the other side is on another host.
    pub plain_remote: u64,
    /// The same, because no process at the other side uses rings.
    pub plain_no_peer: u64,
    /// The same, because no worker at the other side could use rings for the connection.
    pub plain_refused: u64,
    /// The same, because the other end does not belong to the user of the process that this driver paired with, or the
    /// kernel does not tell; and claims that were refused for that.
    pub plain_other_user: u64,
    /// Attempts so far, of either side, that found no memory, or too many connections.
    pub plain_limit: u64,
    /// Outgoing connections so far to the loopback or to a Unix socket, by a driver that upgrades none.
    pub plain_off: u64,
    /// Outgoing connections so far that ended before their exchanges were enough.
    pub plain_short_lived: u64,
}

/// TransportKind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// A socket of the kernel, and why it uses no rings.
    Kernel(PlainReason),
    /// Rings of a pair of processes, from the beginning.
    SharedMemory {
        /// Times that the other process had to signal input, because this side no longer looked for it.
        wake_ups: u64,
    },
    /// A socket of the kernel whose bytes have moved to rings.
    Upgraded {
        /// As of [`TransportKind::SharedMemory`].
        wake_ups: u64,
    },
}

/// Reason why a connection of a socket uses no rings. Those of [`ShmStats`] are counted when they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainReason {
    /// This driver moves no connection.
    Off,
    /// The other side is, or may be, another host.
    Remote,
    /// No process at the other side uses rings.
    NoPeer,
    /// No worker at the other side could use rings for it.
    Refused,
    /// The other end does not belong to the user of the process that this driver paired with, or the kernel does not
    /// tell.
    OtherUser,
    /// There was no memory, or there were too many connections.
    Limit,
    /// It has not exchanged enough yet.
    FewExchanges,
    /// This side looks for the other one, or waits for its answer.
    Asking,
    /// It was accepted, and the other side, which would ask, has not.
    NotAsked,
}

impl PlainReason {
    /// Returns its name, as in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            PlainReason::Off => "off",
            PlainReason::Remote => "remote",
            PlainReason::NoPeer => "no_peer",
            PlainReason::Refused => "refused",
            PlainReason::OtherUser => "other_user",
            PlainReason::Limit => "limit",
            PlainReason::FewExchanges => "few_exchanges",
            PlainReason::Asking => "asking",
            PlainReason::NotAsked => "not_asked",
        }
    }
}

/// The result of [`Driver::detach`].
#[derive(Debug)]
pub enum Detached {
    /// The connection's socket, non-blocking, with all input that no event has delivered still in it.
    Socket(OwnedFd),
    /// Output is being sent, or the kernel still holds a request: try again after the next poll.
    Busy,
    /// The driver holds received bytes that no event has delivered: turn receiving on first.
    HasInput,
    /// The connection is failing or closing, or this driver detaches nothing.
    Refused,
}

/// A byte transport of one worker. All methods are called from that worker's thread only.
pub trait Driver {
    /// Opens a listening socket; accepting starts at once.
    ///
    /// Errors: those of bind(2) and listen(2), e.g. `AddrInUse`; more than `LISTENERS_MAX` listeners.
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId>;

    /// Adopts a socket that was opened before the workers started; accepting starts at once.
    ///
    /// Errors: `Unsupported` from a driver without kernel sockets; more than `LISTENERS_MAX` listeners.
    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the address a listener is bound to (the kernel's choice where port 0 was asked for).
    ///
    /// Errors: `NotFound` after the listener was closed.
    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint>;

    /// Pauses or resumes accepting.
    fn accept(&mut self, listener: ListenerId, on: bool);

    /// Closes a listening socket: the kernel refuses new peers from here on, and resets those in the listen backlog.
    fn close_listener(&mut self, listener: ListenerId);

    /// As [`Driver::close_listener`], but accepts the peers in the listen backlog first: polls still return them, as
    /// `Accepted`, while [`Driver::is_draining_listeners`]. Those for which no descriptor is left are reset.
    fn finish_listener(&mut self, listener: ListenerId) {
        self.close_listener(listener);
    }

    /// Starts connecting. Ends in `Connected` or `Failed`.
    ///
    /// Errors: `ENFILE` when the connection table is full; `EMFILE`, `ENFILE` when no file descriptor is left.
    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle>;

    /// Adopts a connection that another thread or process accepted. As for an accepted one, the driver receives nothing
    /// until [`Driver::receive`] turns receiving on.
    ///
    /// Errors: `ENFILE` when the connection table is full; `Unsupported` from a driver without kernel sockets. The
    /// connection is closed then.
    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        drop(socket);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Detaches a connection's socket, for another driver to [`Driver::adopt`]; its handle is dead then. Receiving must
    /// be off and stay off until the result is [`Detached::Socket`]. No byte is lost in either direction.
    fn detach(&mut self, conn: Handle) -> Detached {
        let _ = conn;
        Detached::Refused
    }

    /// Returns what carries a connection's bytes.
    fn transport(&self, conn: Handle) -> TransportKind {
        let _ = conn;
        TransportKind::Kernel(PlainReason::Off)
    }

    /// Copies what passes through connections to a tap, or stops that. Returns the former tap.
    fn set_tap(&mut self, tap: Option<Box<dyn TapSink>>) -> Option<Box<dyn TapSink>> {
        tap
    }

    /// Returns whether a connection can ever be detached: one through shared memory cannot.
    fn can_detach(&self, conn: Handle) -> bool {
        let _ = conn;
        true
    }

    /// As [`Driver::close_listener`] where another driver keeps listening on a duplicate of the socket: polls still
    /// return peers that the kernel has already given to this driver, as `Accepted`, while
    /// [`Driver::is_draining_listeners`].
    fn drain_listener(&mut self, listener: ListenerId) {
        self.close_listener(listener);
    }

    /// Returns whether a drained or finished listener may still deliver peers. Dropping the driver before that resets
    /// them.
    fn is_draining_listeners(&self) -> bool {
        false
    }

    /// Returns how long a poll with this timeout would wait at most; zero while the driver has work that its descriptor
    /// does not signal. For a thread that waits on several drivers at once.
    fn poll_timeout(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let _ = pool;
        timeout
    }

    /// Turns receiving on or off. While it is off, no poll returns `Data` or `Eof` of this connection (events that an
    /// earlier poll returned are already the platform's, several pieces perhaps); a reset by the peer may be reported
    /// at once, or when receiving resumes, or when the platform sends.
    fn receive(&mut self, conn: Handle, on: bool);

    /// Returns whether turning receiving off and on again costs no request to the kernel.
    fn pause_is_free(&self) -> bool {
        false
    }

    /// Appends to the connection's output, also before it is connected. Never blocks, never fails: errors arrive as
    /// `Failed` (while receiving is on: after the data that had arrived before).
    /// Everything appended between two polls goes out together, in one system call where possible.
    /// Output of a connection that is still connecting waits until it is established.
    fn send(&mut self, conn: Handle, data: Slice);

    /// Corks or uncorks a connection, as `TCP_CORK` does: a corked one keeps its output, because the platform is about
    /// to append more. Closing and shutting down uncork. A driver may ignore it.
    fn set_corked(&mut self, conn: Handle, on: bool) {
        let _ = (conn, on);
    }

    /// Returns the bytes appended that the kernel has not taken yet; 0 for a dead handle.
    fn backlog_bytes(&self, conn: Handle) -> usize;

    /// Returns the bytes of the buffers in which a connection's backlog is, and its input that was received but not
    /// reported: a few bytes keep a whole buffer from being reused. 0 for a dead handle.
    ///
    /// Cost: a step for each slice of them.
    fn pinned_bytes(&self, conn: Handle) -> u64;

    /// Returns whether the peer has ended or reset the connection, though no event has reported it yet. Costs a system
    /// call; worth it before sending a request that cannot be retried on a connection that was idle.
    fn is_hung_up(&self, conn: Handle) -> bool {
        let _ = conn;
        false
    }

    /// Accepts at most one connection of a listener before the platform learns of it, so that a burst of peers takes no
    /// more descriptors than the platform allows. Call it before the first listener is added.
    fn accept_singly(&mut self) {}

    /// Sets the watermarks for `Drained`.
    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize);

    /// Shuts the write side down (a FIN) after the output so far is sent; receiving goes on, so that a reset does not
    /// destroy a reply in flight. Nothing may be sent afterwards.
    fn shutdown(&mut self, conn: Handle);

    /// Closes a connection after its output is sent. The handle is dead at once: no poll returns events of it any more,
    /// not even `Failed`.
    fn close(&mut self, conn: Handle);

    /// The peer sends nothing more, as its protocol says: the close that follows at once does not wait for the peer to
    /// end its side. What it sends all the same may destroy the rest of the output on its way. Output that the kernel
    /// does not take for [`LINGER_NS_MAX`](crate::limits::LINGER_NS_MAX) after that close is lost, and the peer reset.
    /// `false`: the driver cannot do so for this connection.
    fn expect_no_input(&mut self, _conn: Handle) -> bool {
        false
    }

    /// Sends what was appended since the last `poll` without waiting for the next one, for a thread that polls other
    /// drivers in between. The limit on bytes per poll covers both together; connection errors are reported by the next
    /// poll.
    ///
    /// Errors: those of io_uring_enter(2).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns how long polls have waited in the kernel in total: the worker's idle time. Zero where it is not known.
    fn waited_ns(&self) -> u64 {
        0
    }

    /// Returns the use of shared memory; `None` if there was none yet.
    fn shm_stats(&self) -> Option<ShmStats> {
        None
    }

    /// Fails a connection of the process that holds most, if another one waits with fewer; for a platform whose
    /// sessions are all in use. Returns whether one was failed, of which an event reports the end.
    fn evict_greedy(&mut self) -> bool {
        false
    }

    /// Limits the connections through shared memory that are accepted until the next call, so that those that would
    /// have no session wait in the driver, which knows whose they are.
    fn limit_accepts(&mut self, _most: u32) {}

    /// Says that an accepted connection waits for a session. It ends with [`Driver::receive`].
    fn wait_for_session(&mut self, _conn: Handle) {}

    /// Returns the queue delay after the last poll. A driver whose polls return everything has none.
    fn queue_delay(&self) -> QueueDelay {
        QueueDelay::None
    }

    /// Returns whether a closed connection still has output to send; dropping the driver drops it. Scans the connection
    /// table, so it is for the end of a worker.
    fn is_flushing(&self) -> bool;

    /// Ends a connection now: unsent output is dropped and the peer sees a reset. The only call that still works on a
    /// closed handle: it cuts short the sending that `close` left to finish.
    fn abort(&mut self, conn: Handle);

    /// Returns the driver's monotonic clock (simulated time in the simulator) as of the last `poll`, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Sends what was appended, waits at most `timeout` (`None`: until something happens; zero: not at all) and appends
    /// what happened to `events`, at most [`DriverLimits::events_max`].
    ///
    /// Receive buffers are taken from `pool`; when it is empty, receiving pauses until buffers come back.
    ///
    /// Errors: those of epoll_wait(2) and io_uring_enter(2) except `EINTR`.
    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()>;
}

/// Checks limits and caps `receive_bytes`.
pub(crate) fn checked(limits: DriverLimits) -> io::Result<DriverLimits> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if limits.events_max < EVENTS_MIN {
        return invalid("a driver needs capacity for more events per poll");
    }
    if limits.receive_bytes == 0 {
        return invalid("a driver that receives no bytes cannot receive");
    }
    Ok(DriverLimits { receive_bytes: limits.receive_bytes.min(LARGE_BYTES), ..limits })
}
