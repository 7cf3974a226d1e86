//! The epoll driver's part of a connection and of a listener.

use std::os::fd::OwnedFd;

use crate::address::PeerAddr;
use crate::driver::ListenerId;
use crate::listen::ListenSocket;
use crate::listeners::Accepting;

/// State of a connection in the epoll driver.
pub(super) struct Readiness {
    pub(super) socket: OwnedFd,
    pub(super) input: Input,
    /// Its last receive brought little.
    pub(super) is_light: bool,
    /// Registered for writability too.
    pub(super) watches_output: bool,
}

/// Whether the kernel may have input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Dry,
    Readable,
    /// The kernel has announced the end of the stream or an error: a short read does not mean empty.
    ReadToEnd,
}

impl Readiness {
    pub(super) fn new(socket: OwnedFd) -> Readiness {
        Readiness { socket, input: Input::Dry, is_light: true, watches_output: false }
    }

    /// Notes a report of the kernel.
    pub(super) fn note_input(&mut self, is_ending: bool) {
        let reads_to_end = is_ending || self.input == Input::ReadToEnd;
        self.input = if reads_to_end { Input::ReadToEnd } else { Input::Readable };
    }
}

/// A peer that was accepted from a listener which is closed meanwhile.
pub(super) struct ParkedPeer {
    pub(super) listener: ListenerId,
    pub(super) socket: OwnedFd,
    pub(super) peer: PeerAddr,
}

/// A listening socket of the epoll driver.
pub(super) struct EpollListener {
    pub(super) socket: ListenSocket,
    pub(super) accepting: Accepting,
    /// The kernel reported a pending connection in this poll.
    pub(super) is_ready: bool,
}
