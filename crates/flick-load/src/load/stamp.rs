//! When the kernel had a reply, rather than when the load came to read it.
//!
//! Promises: a stamp is that of the newest bytes a read has returned, taken when they entered the receiving host's network stack;
//! on loopback that is on the core of who has sent them, so the load's own delays are not in it.
//! Refuses: telling replies of one read apart: all have the stamp of the last.
//! Source: `SO_TIMESTAMPNS`, socket(7) and the kernel's documentation of time stamping.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

/// Has the kernel stamp what arrives on a socket.
pub(super) fn ask_for(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::ReceiveTimestampns, &true)?;
    Ok(())
}

/// Now, by the clock of the stamps.
pub(super) fn now_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The stamps of one connection.
#[derive(Debug)]
pub(super) struct Stamps {
    /// Where the kernel writes them.
    control: Vec<u8>,
    last_ns: u64,
}

impl Stamps {
    pub(super) fn new() -> Stamps {
        Stamps { control: nix::cmsg_space!(TimeSpec), last_ns: 0 }
    }

    /// Reads once, and notes the stamp of what has come.
    pub(super) fn read(&mut self, stream: &TcpStream, room: &mut [u8]) -> io::Result<usize> {
        let mut parts = [IoSliceMut::new(room)];
        let read = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut self.control), MsgFlags::empty())?;
        for message in read.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(time) = message {
                self.last_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
            }
        }
        Ok(read.bytes)
    }

    /// The stamp of what was received last.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }
}
