//! The one interface between the platform and whatever carries bytes.
//! Promises: a driver knows bytes and readiness, never messages; it allocates nothing after it is built and
//! opened; it reads no more than it was told to; every outcome is an [`Event`], never a return value.
//! Refuses: framing, retries, time-outs, name resolution. Those are the platform's.
//! Source: FLICK §5 (input and output channels of a task graph are byte streams of connections).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use flick_buffers::{LARGE_BYTES, Pool, Slice};

use crate::address::{Endpoint, PeerAddr};
use crate::limits::EVENTS_MIN;
use crate::listen::ListenSocket;

/// One connection of one driver. Stays unique: a handle kept past its connection's end names nothing.
///
/// `index < DriverLimits::conns_max`, so the platform may keep its own state in an array beside the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// Slot in the driver's table; reused after the connection ends.
    pub index: u32,
    /// Counts the uses of the slot, so that an old handle is told from a new one.
    pub generation: u32,
}

/// One listening socket of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// What a driver may use; fixed when it is built.
#[derive(Clone, Copy, Debug)]
pub struct DriverLimits {
    /// Connections, accepted and dialled together.
    pub conns_max: u32,
    /// Pieces of output waiting to be sent, over all connections.
    pub output_slices_max: u32,
    /// Events handed out by one call of [`Driver::poll`].
    pub events_max: usize,
    /// Bytes asked from the kernel by one receive: one large buffer.
    pub receive_bytes: u32,
}

/// Why a connection ended otherwise than by a clean end of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnFault {
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection or vanished.
    Reset,
    /// The network, or the table of files, or memory, refused; the system's error number.
    System(i32),
    /// A limit of this driver was reached (output slices, buffers).
    Exhausted,
}

/// What happened since the last call. Data arrives in order for each connection.
#[derive(Debug)]
pub enum Event {
    /// A peer connected. The driver receives nothing until [`Driver::receive`] says so.
    Accepted {
        /// Where it arrived.
        listener: ListenerId,
        /// The new connection.
        conn: Handle,
        /// Who it is.
        peer: PeerAddr,
    },
    /// Accepting failed: out of file descriptors (`EMFILE`, `ENFILE`), or this driver's table of connections
    /// is full (`ENFILE` too). The driver has paused the listener by itself and the peers wait in the kernel;
    /// the platform resumes it with [`Driver::accept`] when it sees fit. A full table the driver also notices
    /// by itself: it resumes when a slot is free (a closed connection may keep its slot until its output is out).
    AcceptFailed {
        /// Where.
        listener: ListenerId,
        /// The system's error number.
        errno: i32,
    },
    /// A dialled connection is up.
    Connected {
        /// Which.
        conn: Handle,
    },
    /// Bytes arrived: never an empty slice.
    Data {
        /// From which connection.
        conn: Handle,
        /// The bytes, in the pooled buffer the kernel put them in.
        data: Slice,
    },
    /// The peer will send no more; it may still read.
    Eof {
        /// Which connection.
        conn: Handle,
    },
    /// The connection is gone and its handle with it; also when dialling failed.
    Failed {
        /// Which connection.
        conn: Handle,
        /// Why.
        fault: ConnFault,
    },
    /// Output that had reached [`Driver::backlog_bytes`] above the high mark has fallen to the low mark.
    Drained {
        /// Which connection.
        conn: Handle,
    },
    /// Another thread called the waker.
    Woken,
}

/// What became of the wish to give a connection away.
#[derive(Debug)]
pub enum Detached {
    /// Here it is, with everything that has not been handed out still in it, and not blocking.
    Socket(OwnedFd),
    /// Output is still on its way, or the kernel still works for it: ask again after the next poll.
    Later,
    /// Something has been taken from the kernel and not been handed out: receive it first.
    Holds,
    /// It is failing, or this driver gives nothing away.
    Never,
}

/// Who waits for a driver's next poll although they were ready for the last, because it hands out so much and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Line {
    /// Nobody.
    #[default]
    Empty,
    /// Some do; it is not known yet how long.
    Stands,
    /// The last poll has come to whoever stood at the end of the line at `since_ns`.
    Passed {
        /// So many stood in it then.
        stood: u64,
        /// By the driver's clock.
        since_ns: u64,
    },
}

/// A byte transport of one worker. All methods are called from that worker's thread only.
pub trait Driver {
    /// Opens a listening socket; accepting starts at once.
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId>;

    /// Takes over a socket that was opened before the workers started; accepting starts at once.
    ///
    /// Errors: `Unsupported` from a driver without kernel sockets.
    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The address a listener really got (port 0 was asked for).
    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint>;

    /// Pauses or resumes accepting.
    fn accept(&mut self, listener: ListenerId, on: bool);

    /// Closes a listening socket: new peers are refused from here on.
    fn close_listener(&mut self, listener: ListenerId);

    /// Starts dialling. Ends in `Connected` or `Failed`. Errors: the table of connections is full, or no
    /// file descriptor is left.
    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle>;

    /// Takes over a connection that somebody else accepted; as for any accepted one, nothing is received until
    /// [`Driver::receive`] says so. Errors: the table of connections is full (`ENFILE`), or the system's; the connection
    /// is closed then. `Unsupported` from a driver without kernel sockets.
    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        drop(socket);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives a connection away, for another driver to [`Driver::adopt`]: its handle is dead then. Receiving must be off, and
    /// stays off until the answer is [`Detached::Socket`]. No byte is lost, in neither direction.
    fn detach(&mut self, conn: Handle) -> Detached {
        let _ = conn;
        Detached::Never
    }

    /// As [`Driver::close_listener`], where somebody else goes on listening on a duplicate of the socket: peers that the
    /// kernel has given us already are still handed out as `Accepted`, by polls as long as [`Driver::is_leaving`].
    fn leave_listener(&mut self, listener: ListenerId) {
        self.close_listener(listener);
    }

    /// Whether peers of a listener that was left may still be handed out: whoever drops the driver then resets them.
    fn is_leaving(&self) -> bool {
        false
    }

    /// How long a poll with this timeout would wait at most: zero while there is something to do that no descriptor
    /// tells of. For whoever waits in the driver's place.
    fn rest(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let _ = pool;
        timeout
    }

    /// Starts or pauses receiving. While paused no poll hands out `Data` or `Eof` of this connection (what the
    /// poll before the pause handed out stays in the platform's hands, several pieces perhaps); that
    /// its peer has reset it may be told at once or only when it is resumed or written to.
    fn receive(&mut self, conn: Handle, on: bool);

    /// Whether pausing and resuming a connection costs nothing to speak of: no request to the kernel.
    fn pauses_for_free(&self) -> bool {
        false
    }

    /// Appends to the connection's output, before it is connected too. Never blocks, never fails: what goes
    /// wrong arrives as `Failed` (while receiving is on: behind the data that had arrived before).
    /// Everything appended between two calls of `poll` goes out together, in one system call where it can.
    /// What is appended to a connection that is still being dialled waits until it is up.
    fn send(&mut self, conn: Handle, data: Slice);

    /// Keeps what is appended to a connection from going out, or lets it go again: for a platform that is about to append
    /// more, and would rather send all of it at once. Closing and shutting down let it go, too. A driver need not heed it.
    fn hold_output(&mut self, conn: Handle, on: bool) {
        let _ = (conn, on);
    }

    /// Bytes appended and not yet taken by the kernel. 0 for a handle that names nothing.
    fn backlog_bytes(&self, conn: Handle) -> usize;

    /// Whether the peer has ended or reset a connection though no event has said so yet: worth a system call before something
    /// is sent on one that has rested and that nothing can be sent twice on.
    fn is_gone(&self, conn: Handle) -> bool {
        let _ = conn;
        false
    }

    /// Sets the marks for `Drained`.
    fn set_marks(&mut self, high_bytes: usize, low_bytes: usize);

    /// Tells the peer that nothing more will be sent, after the output so far has gone out (a FIN); receiving goes on,
    /// so that a reply under way is not destroyed by a reset. Nothing may be sent afterwards.
    fn shutdown(&mut self, conn: Handle);

    /// Ends a connection after its output has gone out. No more events of it are handed out but `Failed`
    /// (whose slot is free from then on) is *not*: the handle is dead for the caller at once.
    fn close(&mut self, conn: Handle);

    /// Sends what was appended since the last `poll` rather than at the next one, for whoever polls others meanwhile. The bound on
    /// what one poll sends is for both together; what goes wrong is told by the next poll. Errors: the system's.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// How long polls have waited in the kernel, all together: what a worker has not used of its time. Zero where that
    /// is not known.
    fn waited_ns(&self) -> u64 {
        0
    }

    /// The line that the last poll has left. A driver that hands out whatever there is has none.
    fn line(&self) -> Line {
        Line::Empty
    }

    /// Whether output that `close` left to finish is still here: whoever drops the driver then drops it too. Looks at
    /// every connection, so it is for the end of a worker.
    fn is_flushing(&self) -> bool;

    /// Ends a connection now; unsent output is dropped and the peer sees a reset. The one call that still
    /// works on a closed handle: it cuts short the sending that `close` left to finish.
    fn abort(&mut self, conn: Handle);

    /// Nanoseconds of the driver's monotonic clock (simulated time in the simulator), as of the last `poll`.
    fn now_ns(&self) -> u64;

    /// Sends what was appended, waits at most `timeout` (`None`: until something happens; zero: not at all)
    /// and appends what happened to `events`, at most [`DriverLimits::events_max`].
    ///
    /// Receive buffers are taken from `pool`; when it is empty, receiving pauses until buffers come back.
    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;
}

/// Refuses limits no driver can work with.
pub(crate) fn checked(limits: DriverLimits) -> io::Result<DriverLimits> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if limits.events_max < EVENTS_MIN {
        return invalid("a driver needs room for more events per poll");
    }
    if limits.receive_bytes == 0 {
        return invalid("a driver that receives no bytes cannot receive");
    }
    Ok(DriverLimits { receive_bytes: limits.receive_bytes.min(LARGE_BYTES), ..limits })
}
