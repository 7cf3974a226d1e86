//! A channel that carries short texts and file descriptors between two processes during a hot restart.
//! Promises: a message arrives whole, with its descriptor, or not at all; received descriptors are close-on-exec.
//! Refuses: authentication. The two ends are a socket pair, one of which the child inherits as its standard input.
//! Source: unix(7), SCM_RIGHTS over a socket of sequenced packets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::limits::FD_MESSAGE_BYTES_MAX;

/// One end of the channel.
#[derive(Debug)]
pub struct FdChannel(OwnedFd);

/// A received message.
#[derive(Debug)]
pub struct FdMessage {
    /// The sender's text.
    pub text: String,
    /// The descriptor, if the message carried one.
    pub fd: Option<OwnedFd>,
}

impl FdChannel {
    /// Creates a connected pair.
    ///
    /// Errors: `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn pair() -> io::Result<(FdChannel, FdChannel)> {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((FdChannel(a), FdChannel(b)))
    }

    /// Wraps a descriptor that is one end of a pair.
    pub fn from_fd(fd: OwnedFd) -> FdChannel {
        FdChannel(fd)
    }

    /// Returns the descriptor, to give it to a child process.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sets how long `receive` and `send` wait; `None` waits forever.
    ///
    /// Errors: `EINVAL` for a zero timeout.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Send, timeout)?;
        Ok(set_socket_timeout(&self.0, Timeout::Recv, timeout)?)
    }

    /// Sends a message; waits while the other end's queue is full.
    ///
    /// Errors: `WouldBlock` after the timeout; `BrokenPipe` when the other end is closed.
    pub fn send(&self, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "there is space for one descriptor");
        }
        let end = text.floor_char_boundary(FD_MESSAGE_BYTES_MAX);
        let bytes = [IoSlice::new(&text.as_bytes()[..end])];
        // With a timeout set, the kernel does not restart the call after a signal.
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.0, &bytes, &mut control, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    /// Closes the channel in both directions, as an exit of this process would: both ends send nothing more.
    pub fn shut_down(&self) {
        // It fails if the other end has gone, which is the same.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// Receives the next message; `None` when the other end is closed.
    ///
    /// Errors: `WouldBlock` after the timeout; `InvalidData` when the text is not UTF-8.
    pub fn receive(&self) -> io::Result<Option<FdMessage>> {
        let mut bytes = vec![0; FD_MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // As in `send`.
        let received = rustix::io::retry_on_intr(|| {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last().or(fd);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        let text = String::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Some(FdMessage { text, fd }))
    }
}

#[cfg(test)]
mod tests {
    use super::FdChannel;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_whole_with_its_descriptor_and_then_the_end() {
        let (a, b) = FdChannel::pair().expect("a pair of sockets");
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        a.send("client one", Some(far.as_fd())).expect("the other end is open");
        a.send("go", None).expect("the other end is open");
        drop((a, far));
        let message = b.receive().expect("it arrives").expect("the end comes later");
        assert_eq!(message.text, "client one");
        let mut far = UnixStream::from(message.fd.expect("it carries a descriptor"));
        near.write_all(b"x").expect("the other end is open");
        let mut byte = [0];
        far.read_exact(&mut byte).expect("a byte was written");
        let message = b.receive().expect("it arrives").expect("the end comes later");
        assert!(message.text == "go" && message.fd.is_none());
        assert!(b.receive().expect("the end is no error").is_none());
    }
}
