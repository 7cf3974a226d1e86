//! One simulated connection: two streams with a window each, a peer at one end, the driver at the other.
//! Promises: no segment overtakes another of its stream; a stream never holds more than its window.

use std::collections::VecDeque;

use super::event_queue::{Segment, SimConnId};
use crate::address::{Endpoint, PeerAddr};
use crate::driver::Handle;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// That of the driver under test.
    Driver,
    /// That of an actor, or of the peers' driver.
    Peer,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Driver => Side::Peer,
            Side::Peer => Side::Driver,
        }
    }
}

/// The state of a connection apart from the drivers' own view of it.
pub(super) struct SimConn {
    pub(super) driver_end: DriverSide,
    /// The end of the peers' driver, if that has the connection.
    pub(super) hosted_end: Option<DriverSide>,
    /// Address that the side which connected has asked for.
    pub(super) to: Option<Endpoint>,
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
            hosted_end: None,
            to: server.clone(),
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

    /// Returns the end of a driver.
    pub(super) fn end(&self, side: Side) -> DriverSide {
        match side {
            Side::Driver => self.driver_end,
            Side::Peer => self.hosted_end.unwrap_or(DriverSide::Pending),
        }
    }

    pub(super) fn set_end(&mut self, side: Side, end: DriverSide) {
        match side {
            Side::Driver => self.driver_end = end,
            Side::Peer => self.hosted_end = Some(end),
        }
    }

    /// Returns the handle of a driver, while it has one.
    pub(super) fn handle(&self, side: Side) -> Option<Handle> {
        if let DriverSide::Attached(handle) = self.end(side) { Some(handle) } else { None }
    }

    /// Returns the direction in which a side receives.
    pub(super) fn stream_to(&self, side: Side) -> &SimStream {
        match side {
            Side::Driver => &self.to_driver,
            Side::Peer => &self.to_peer,
        }
    }

    pub(super) fn stream_to_mut(&mut self, side: Side) -> &mut SimStream {
        match side {
            Side::Driver => &mut self.to_driver,
            Side::Peer => &mut self.to_peer,
        }
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

    /// Discards what has arrived at a driver's end.
    pub(super) fn discard_arrived(&mut self, side: Side) {
        let stream = self.stream_to_mut(side);
        while let Some(segment) = stream.arrived.pop_front() {
            if let Segment::Bytes { offset, bytes } = segment {
                stream.note_read(offset, bytes.len());
            }
        }
    }

    /// Returns whether a reset has arrived at a driver's end.
    pub(super) fn has_reset(&self, side: Side) -> bool {
        self.stream_to(side).arrived.iter().any(|segment| matches!(segment, Segment::Reset))
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
