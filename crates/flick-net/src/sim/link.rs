//! One simulated connection: two streams with a window each, a peer at one end, the driver at the other.
//! Promises: a piece never overtakes another of its stream; a stream never holds more than its window.

use std::collections::VecDeque;

use super::agenda::{LinkId, Piece};
use crate::address::{Endpoint, PeerAddr};
use crate::driver::Handle;

/// The state of a connection apart from the driver's own view of it.
pub(super) struct Link {
    /// The driver's end; none before it is accepted and after it is closed.
    pub(super) conn: Option<Handle>,
    /// The server's address, if the driver dialled.
    pub(super) server: Option<Endpoint>,
    /// The peer hears of nothing any more.
    pub(super) peer_is_gone: bool,
    /// The driver has closed its end; what still arrives is thrown away (this many bytes so far) and then reset.
    pub(super) driver_is_gone: bool,
    pub(super) lingered_bytes: usize,
    pub(super) driver_gone_ns: u64,
    pub(super) to_driver: Stream,
    pub(super) to_peer: Stream,
    /// Written by the peer and not yet under way.
    pub(super) peer_out: VecDeque<u8>,
    pub(super) peer_ends: bool,
    pub(super) peer_is_paused: bool,
    /// Reset both ends after so many more pieces.
    pub(super) pieces_to_reset: Option<u64>,
    /// That has happened: what was under way is lost.
    pub(super) is_broken: bool,
}

/// One direction.
#[derive(Default)]
pub(super) struct Stream {
    /// Bytes under way or arrived and not read.
    pub(super) held_bytes: usize,
    /// Bytes ever put under way, and ever read.
    pub(super) sent_bytes: u64,
    pub(super) read_bytes: u64,
    /// Nothing arrives before this.
    pub(super) last_ns: u64,
    /// Arrived and not read.
    pub(super) arrived: VecDeque<Piece>,
    pub(super) fin_is_sent: bool,
}

impl Link {
    pub(super) fn new(server: Option<Endpoint>) -> Link {
        Link {
            conn: None,
            server,
            peer_is_gone: false,
            driver_is_gone: false,
            lingered_bytes: 0,
            driver_gone_ns: 0,
            to_driver: Stream::default(),
            to_peer: Stream::default(),
            peer_out: VecDeque::new(),
            peer_ends: false,
            peer_is_paused: false,
            pieces_to_reset: None,
            is_broken: false,
        }
    }
}

impl Stream {
    /// Notes that bytes were read; `offset` is where they say they belong.
    pub(super) fn note_read(&mut self, offset: u64, bytes: usize) {
        assert!(offset == self.read_bytes, "bytes of a connection are read in the order they were sent");
        assert!(bytes <= self.held_bytes, "no more is read than is held");
        self.read_bytes += bytes as u64;
        self.held_bytes -= bytes;
    }
}

/// The address a connection's dialling end has: no two of one run share it soon.
pub(super) fn peer_addr(link: LinkId) -> PeerAddr {
    PeerAddr::Tcp(([127, 0, 0, 1], 1024 + (link % 30_000) as u16).into())
}
