//! One simulated connection: two streams with a window each, a peer at one end, the driver at the other.
//! Promises: no segment overtakes another of its stream; a stream never holds more than its window.

use std::collections::VecDeque;

use super::event_queue::{Segment, SimConnId};
use crate::address::{Endpoint, PeerAddr};
use crate::driver::Handle;

/// The state of a connection apart from the driver's own view of it.
pub(super) struct SimConn {
    pub(super) driver_end: DriverSide,
    /// The server's address, if the driver connected to one.
    pub(super) server: Option<Endpoint>,
    pub(super) peer: PeerSide,
    /// The peer does not read.
    pub(super) peer_is_paused: bool,
    pub(super) to_driver: SimStream,
    pub(super) to_peer: SimStream,
    /// Written by the peer and not yet sent.
    pub(super) peer_out: VecDeque<u8>,
    /// Reset both ends after this many more segments.
    pub(super) segments_to_reset: Option<u64>,
    /// The network has reset both ends: what was in flight is lost.
    pub(super) is_broken: bool,
}

/// The driver's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverSide {
    /// In a listener's backlog, or not there yet.
    Pending,
    Attached(Handle),
    /// The driver has closed it; what still arrives is discarded, and answered with a reset beyond a limit.
    Closed {
        at_ns: u64,
        discarded_bytes: usize,
    },
}

/// The peer's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerSide {
    Open,
    /// It writes no more.
    HalfClosed,
    /// It is closed; what it had written is still sent.
    Closed,
    /// It is reset, or has learned of a reset.
    Gone,
}

/// One direction.
#[derive(Default)]
pub(super) struct SimStream {
    /// Bytes in flight, or arrived and not read.
    pub(super) held_bytes: usize,
    /// Bytes ever sent, and ever read.
    pub(super) sent_bytes: u64,
    pub(super) read_bytes: u64,
    /// Nothing arrives before this.
    pub(super) last_ns: u64,
    /// Arrived and not read.
    pub(super) arrived: VecDeque<Segment>,
    pub(super) fin_is_sent: bool,
}

impl SimConn {
    pub(super) fn new(server: Option<Endpoint>) -> SimConn {
        SimConn {
            driver_end: DriverSide::Pending,
            server,
            peer: PeerSide::Open,
            peer_is_paused: false,
            to_driver: SimStream::default(),
            to_peer: SimStream::default(),
            peer_out: VecDeque::new(),
            segments_to_reset: None,
            is_broken: false,
        }
    }

    /// Returns the driver's handle, while it has one.
    pub(super) fn handle(&self) -> Option<Handle> {
        if let DriverSide::Attached(handle) = self.driver_end { Some(handle) } else { None }
    }

    /// Returns whether the peer receives nothing any more.
    pub(super) fn peer_is_gone(&self) -> bool {
        matches!(self.peer, PeerSide::Closed | PeerSide::Gone)
    }

    /// Returns whether the peer has ended its stream cleanly.
    pub(super) fn peer_has_ended(&self) -> bool {
        matches!(self.peer, PeerSide::HalfClosed | PeerSide::Closed)
    }

    /// Ends the peer's side without a clean end.
    pub(super) fn lose_peer(&mut self) {
        self.peer = PeerSide::Gone;
        self.peer_out.clear();
    }

    /// Discards what has arrived at the driver's end.
    pub(super) fn discard_arrived(&mut self) {
        while let Some(segment) = self.to_driver.arrived.pop_front() {
            if let Segment::Bytes { offset, bytes } = segment {
                self.to_driver.note_read(offset, bytes.len());
            }
        }
    }

    /// Returns whether a reset has arrived at the driver's end.
    pub(super) fn has_reset(&self) -> bool {
        self.to_driver.arrived.iter().any(|segment| matches!(segment, Segment::Reset))
    }
}

impl SimStream {
    /// Notes that bytes were read; `offset` is their position in the stream.
    pub(super) fn note_read(&mut self, offset: u64, bytes: usize) {
        assert!(offset == self.read_bytes, "bytes of a connection are read in the order they were sent");
        assert!(bytes <= self.held_bytes, "no more is read than is held");
        self.read_bytes += bytes as u64;
        self.held_bytes -= bytes;
    }
}

/// Returns the address of a connection's client end: no two of one run share it soon.
pub(super) fn peer_addr(conn: SimConnId) -> PeerAddr {
    PeerAddr::Tcp(([127, 0, 0, 1], 1024 + (conn % 30_000) as u16).into())
}
