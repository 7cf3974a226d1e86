//! A way for descriptors from one process to another that takes its place, and listening sockets that were there before us.
//! Promises: a message arrives whole, with its descriptor, or not at all; descriptors that arrive are closed on exec.
//! Refuses: strangers. The two ends are a pair, one of which a child has as its standard input.
//! Source: unix(7), SCM_RIGHTS over a socket of sequenced packets; sd_listen_fds(3).

mod raw;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::address::PeerAddr;
use crate::limits::{INHERITED_MAX, PASSAGE_BYTES_MAX};
use crate::listen::ListenSocket;
use crate::socket;

/// One end.
#[derive(Debug)]
pub struct Passage(OwnedFd);

/// What came through.
#[derive(Debug)]
pub struct Passed {
    /// What it is, in the sender's words.
    pub text: String,
    /// The descriptor, if one came with it.
    pub fd: Option<OwnedFd>,
}

impl Passage {
    /// Both ends. Errors: the system's.
    pub fn pair() -> io::Result<(Passage, Passage)> {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Passage(a), Passage(b)))
    }

    /// The end that a descriptor is.
    pub fn of(fd: OwnedFd) -> Passage {
        Passage(fd)
    }

    /// The descriptor, for a child.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// How long `receive` and `send` wait; `None`: for as long as it takes.
    ///
    /// Errors: the system's.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Send, patience)?;
        Ok(set_socket_timeout(&self.0, Timeout::Recv, patience)?)
    }

    /// Sends a message; waits while the other end does not take what came before.
    ///
    /// Errors: the other end is gone, for one, or did not take it in time (`WouldBlock`).
    pub fn send(&self, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "there is space for one descriptor");
        }
        let end = text.floor_char_boundary(PASSAGE_BYTES_MAX);
        let bytes = [IoSlice::new(&text.as_bytes()[..end])];
        // Where there is a time-out the system does not go on by itself behind a signal.
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.0, &bytes, &mut control, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    /// The next message; `None` when the other end is gone.
    ///
    /// Errors: nothing came in time (`WouldBlock`), or it is no message of ours.
    pub fn receive(&self) -> io::Result<Option<Passed>> {
        let mut bytes = vec![0; PASSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // As above.
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
        Ok(Some(Passed { text, fd }))
    }
}

/// Who is at the other end of a connection that somebody else accepted.
pub fn peer_of(connection: impl AsFd) -> PeerAddr {
    socket::peer_of(connection)
}

/// The listening sockets that systemd opened for this process, if it did. Asking twice gives them once: the second time the
/// environment is still the same, so the caller asks once, at the start.
///
/// Errors: one of them is no listening socket that we know.
pub fn inherited() -> io::Result<Vec<ListenSocket>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else {
        return Ok(Vec::new());
    };
    if pid != std::process::id() {
        return Ok(Vec::new());
    }
    (0..count.min(INHERITED_MAX)).map(|index| ListenSocket::adopt(raw::inherited(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::Passage;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_whole_with_its_descriptor_and_the_end_is_told() {
        let (a, b) = Passage::pair().expect("a pair of sockets");
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        a.send("client one", Some(far.as_fd())).expect("the other end is there");
        a.send("go", None).expect("the other end is there");
        drop((a, far));
        let passed = b.receive().expect("it arrives").expect("the end is not there yet");
        assert_eq!(passed.text, "client one");
        let mut far = UnixStream::from(passed.fd.expect("it came with it"));
        near.write_all(b"x").expect("the other end is open");
        let mut byte = [0];
        far.read_exact(&mut byte).expect("a byte was written");
        let passed = b.receive().expect("it arrives").expect("the end is not there yet");
        assert!(passed.text == "go" && passed.fd.is_none());
        assert!(b.receive().expect("the end is no error").is_none());
    }
}
