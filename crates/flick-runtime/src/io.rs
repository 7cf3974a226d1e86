//! Bytes in and out: the driver, the buffers, the parser states of unfinished messages, and what each connection is
//! used for.

use flick_abi::Frame;
use flick_buffers::{Pool, PoolConfig};
use flick_net::{Driver, DriverEvent, PeerAddr};

use crate::limits::{EVENTS_MAX, PARTIAL_FRAMES_MAX};
use crate::pieces::Pieces;
use crate::slab::{Key, Slab};

/// What a connection of the driver is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Nobody,
    /// Accepted, without a session.
    Waiting,
    Client(Key),
    /// An element of the array that the process merges.
    Stream(u32),
    /// Who gets the result of a merge.
    Sink,
    BackendConn {
        backend_conn: u32,
        epoch: u32,
    },
    /// A check of the backend in that slot.
    Check(u32),
}

/// Component of the worker. Driver, buffers and parser states.
pub(crate) struct Io<D: Driver> {
    pub(crate) driver: D,
    pub(crate) pool: Pool,
    pub(crate) pieces: Pieces,
    /// Parser states of messages that have not arrived whole.
    pub(crate) frames: Slab<Frame>,
    /// Parser states of messages in parts, between and inside their parts.
    pub(crate) bodies: Slab<Frame>,
    /// By connection: its use. The entry of a closed connection stays until its number is used again.
    pub(crate) roles: Vec<Role>,
    /// By connection: the address of its peer.
    pub(crate) peers: Vec<PeerAddr>,
    /// Events of the present iteration.
    pub(crate) events: Vec<DriverEvent>,
}

impl<D: Driver> Io<D> {
    /// Allocates buffers and tables for `conns_max` connections, `bodies_max` of which carry bodies at once.
    pub(crate) fn new(driver: D, buffers: PoolConfig, conns_max: usize, bodies_max: usize) -> Self {
        Self {
            driver,
            pieces: Pieces::new(pieces_max(&buffers)),
            pool: Pool::new(buffers),
            frames: Slab::new(PARTIAL_FRAMES_MAX),
            bodies: Slab::new(bodies_max),
            roles: vec![Role::Nobody; conns_max],
            peers: vec![PeerAddr::Unix; conns_max],
            events: Vec::with_capacity(EVENTS_MAX * 2),
        }
    }
}

/// Pieces of messages that may be kept: a few for each buffer.
fn pieces_max(buffers: &PoolConfig) -> usize {
    (buffers.small_count + buffers.large_count + buffers.huge_count) as usize * 4
}
