//! Bytes in and out: the driver, the buffers, the parser states of unfinished messages, and the role of each
//! connection.

mod idle_memory;

use std::time::Duration;

use flick_abi::Frame;
use flick_buffers::{Pool, PoolConfig};
use flick_net::{Driver, DriverEvent, Handle, PeerAddr};

use crate::downstream::inbox::{Inbox, ParseContext};
use crate::limits::{EVENTS_MAX, PARTIAL_FRAMES_MAX};
use crate::pieces::Pieces;
use crate::setup::Setup;
use crate::slab::{Key, Slab};
use idle_memory::IdleMemory;

/// Role of a connection of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Unused,
    /// Accepted, without a session.
    Waiting,
    Client(Key),
    /// An element of the array that the process merges.
    Stream(u32),
    /// The receiver of a merge's result.
    Sink,
    BackendConn {
        backend_conn: u32,
        epoch: u32,
    },
    /// A check of the backend in that slot.
    Check(u32),
}

/// Driver, buffers and parser states.
///
/// Component of the worker.
pub(crate) struct Io<D: Driver> {
    driver: D,
    pool: Pool,
    idle_memory: IdleMemory,
    pieces: Pieces,
    /// Parser states of messages of which a part has arrived.
    frames: Slab<Frame>,
    /// Parser states of streamed messages, between and inside their parts.
    bodies: Slab<Frame>,
    /// By connection: its role. The entry of a closed connection stays until its number is used again.
    roles: Vec<Role>,
    /// By connection: the address of its peer.
    peers: Vec<PeerAddr>,
    /// Memory for the events of an iteration; absent while they are handled.
    events: Vec<DriverEvent>,
}

/// Parts of [`Io`] that are needed to write to a connection, borrowed separately.
pub(crate) struct WriteParts<'a, D: Driver> {
    pub(crate) driver: &'a mut D,
    pub(crate) pool: &'a Pool,
    pub(crate) pieces: &'a mut Pieces,
}

impl<D: Driver> Io<D> {
    /// Allocates buffers and tables for `conns_max` connections, `bodies_max` of which carry bodies at once.
    pub(crate) fn new(driver: D, buffers: PoolConfig, conns_max: usize, bodies_max: usize) -> Self {
        Self {
            driver,
            pieces: Pieces::new(pieces_max(&buffers)),
            pool: Pool::new(buffers),
            idle_memory: IdleMemory::default(),
            frames: Slab::new(PARTIAL_FRAMES_MAX),
            bodies: Slab::new(bodies_max),
            roles: vec![Role::Unused; conns_max],
            peers: vec![PeerAddr::Unix; conns_max],
            events: Vec::with_capacity(EVENTS_MAX * 2),
        }
    }

    /// The driver.
    #[inline]
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver.
    #[inline]
    pub(crate) fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The time at the beginning of the iteration, by the driver's clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.driver.now_ns()
    }

    /// Asks the driver for events, and waits for them at most `wait`.
    pub(crate) fn poll(
        &mut self,
        wait: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> std::io::Result<()> {
        self.driver.poll(&self.pool, wait, events)
    }

    /// Returns how long the driver can sleep if the worker wants it to sleep for `wait`; `None`: until an event.
    pub(crate) fn poll_timeout(&mut self, wait: Option<Duration>) -> Option<Duration> {
        self.driver.poll_timeout(&self.pool, wait)
    }

    /// Takes the memory for the events of an iteration, until [`Self::return_events`].
    pub(crate) fn take_events(&mut self) -> Vec<DriverEvent> {
        std::mem::take(&mut self.events)
    }

    /// Takes back what [`Self::take_events`] gave.
    pub(crate) fn return_events(&mut self, events: Vec<DriverEvent>) {
        self.events = events;
    }

    /// The buffers.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns memory of buffers that have not been used for a while to the kernel, a little at a time.
    #[inline]
    pub(crate) fn release_memory(&mut self) {
        self.idle_memory.release(&self.pool, self.driver.now_ns());
    }

    /// Returns when [`Self::release_memory`] has something to do.
    pub(crate) fn release_due_ns(&self) -> Option<u64> {
        self.idle_memory.due_ns()
    }

    /// The table of pieces.
    #[inline]
    pub(crate) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The table of pieces.
    #[inline]
    pub(crate) fn pieces_mut(&mut self) -> &mut Pieces {
        &mut self.pieces
    }

    /// Parser states of messages of which a part has arrived.
    pub(crate) fn frames(&self) -> &Slab<Frame> {
        &self.frames
    }

    /// Parser states of streamed messages.
    pub(crate) fn bodies_mut(&mut self) -> &mut Slab<Frame> {
        &mut self.bodies
    }

    /// Borrows the parts that are needed to write to a connection.
    #[inline]
    pub(crate) fn write_parts(&mut self) -> WriteParts<'_, D> {
        WriteParts { driver: &mut self.driver, pool: &self.pool, pieces: &mut self.pieces }
    }

    /// Returns the context in which an inbox parses messages of the program of `setup`.
    #[inline]
    pub(crate) fn parse_context<'a>(&'a mut self, setup: &'a Setup) -> ParseContext<'a> {
        self.parse_body_context(setup).0
    }

    /// Returns the same context for requests, which leave `huge_reserve` huge buffers to replies.
    #[inline]
    pub(crate) fn request_context<'a>(&'a mut self, setup: &'a Setup, huge_reserve: u32) -> ParseContext<'a> {
        ParseContext { huge_reserve, ..self.parse_context(setup) }
    }

    /// Returns the context in which an inbox parses the parts of a streamed message, and the parser states of such
    /// messages.
    #[inline]
    pub(crate) fn parse_body_context<'a>(
        &'a mut self,
        setup: &'a Setup,
    ) -> (ParseContext<'a>, &'a mut Slab<Frame>) {
        let context = ParseContext {
            engine: &*setup.engine,
            pieces: &mut self.pieces,
            frames: &mut self.frames,
            pool: &self.pool,
            whole_bytes_max: setup.whole_bytes_max,
            huge_reserve: 0,
        };
        (context, &mut self.bodies)
    }

    /// Discards what an inbox holds.
    pub(crate) fn clear_inbox(&mut self, inbox: &mut Inbox) {
        inbox.clear(&mut self.pieces, &mut self.frames);
    }

    /// The role of the connection, or of one that had its number before.
    #[inline]
    pub(crate) fn role(&self, conn: Handle) -> Role {
        self.roles[conn.index as usize]
    }

    /// Sets the role of a connection.
    #[inline]
    pub(crate) fn set_role(&mut self, conn: Handle, role: Role) {
        self.roles[conn.index as usize] = role;
    }

    /// The address of a connection's peer.
    #[inline]
    pub(crate) fn peer(&self, conn: Handle) -> PeerAddr {
        self.peers[conn.index as usize]
    }

    /// Notes the address of a connection's peer.
    #[inline]
    pub(crate) fn set_peer(&mut self, conn: Handle, peer: PeerAddr) {
        self.peers[conn.index as usize] = peer;
    }
}

/// Pieces of messages that may be kept: a few for each buffer.
fn pieces_max(buffers: &PoolConfig) -> usize {
    (buffers.small_count + buffers.large_count + buffers.huge_count) as usize * 4
}
