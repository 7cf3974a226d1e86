//! The kernel's timestamps: when a reply arrived, not when the load read it.
//!
//! Promises: a timestamp is that of the newest bytes of a read, taken when they entered the receiving host's network
//! stack. On loopback that happens on the sender's core, so the load's own delays are not included.
//! Refuses: separate timestamps for the replies of one read: all have that of the last.
//! Source: `SO_TIMESTAMPNS`, socket(7) and the kernel's documentation of time stamping.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

/// Makes the kernel timestamp what arrives on a socket.
pub(super) fn ask_for(socket: impl AsFd) -> io::Result<()> {
    setsockopt(&socket.as_fd(), sockopt::ReceiveTimestampns, &true)?;
    Ok(())
}

/// Returns the time by the clock of the timestamps.
pub(super) fn now_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The timestamps of one connection.
#[derive(Debug)]
pub(super) struct Stamps {
    /// The buffer for the kernel's control messages.
    control: Vec<u8>,
    last_ns: u64,
}

impl Stamps {
    pub(super) fn new() -> Stamps {
        Stamps { control: nix::cmsg_space!(TimeSpec), last_ns: 0 }
    }

    /// Reads once, and records the timestamp.
    pub(super) fn read(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let mut parts = [IoSliceMut::new(into)];
        let read = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut self.control), MsgFlags::empty())?;
        for message in read.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(time) = message {
                self.last_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
            }
        }
        Ok(read.bytes)
    }

    /// Returns the timestamp of the last read.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }
}
