//! Reasons for the end of a connection without a clean end of stream, and the error numbers that mean them.

use rustix::io::Errno;

/// Reason for the end of a connection without a clean end of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnFault {
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection or vanished.
    Reset,
    /// The kernel returned this error number (network, descriptor table, memory).
    System(i32),
    /// A limit of this driver was reached (output slices, buffers).
    Exhausted,
    /// The process at a `shm:` address belongs to another user.
    OtherUser,
    /// This process or the one at a `shm:` address has too little memory for a further pair, or for the rings of a
    /// further connection.
    PairMemory,
}

impl ConnFault {
    /// Converts an error of connect(2). A missing Unix socket file counts as refused, as a closed port does.
    pub(crate) fn of_connect(errno: Errno) -> ConnFault {
        match errno {
            Errno::CONNREFUSED | Errno::NOENT => ConnFault::Refused,
            Errno::CONNRESET => ConnFault::Reset,
            other => ConnFault::System(other.raw_os_error()),
        }
    }

    /// Converts an error of an established connection.
    pub(crate) fn of_established(errno: Errno) -> ConnFault {
        match errno {
            Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT => ConnFault::Reset,
            other => ConnFault::System(other.raw_os_error()),
        }
    }
}
