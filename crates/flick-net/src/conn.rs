//! The connection core: the life of a connection, the same under every driver.
//! Promises: the platform's calls and the kernel's news change the state here only; what must be done to a socket is
//! returned ([`Then`]), what the platform must learn is put into the poll's events in a fixed order; nothing is
//! allocated after `new`.
//! Refuses: I/O. A driver keeps its own part `P` of a connection: the socket, and its readiness or its requests.
//! Source: sans-I/O protocol cores (quinn-proto, s2n-quic-core); lingering close, RFC 9112 §9.6.

mod kernel;
mod linger;
pub(crate) mod quota;
pub(crate) mod report;
pub(crate) mod slices;
mod state;
#[cfg(test)]
mod tests;

use flick_buffers::{Slice, pinned_bytes};

use crate::driver::{DriverLimits, Handle};
use crate::fault::ConnFault;
use crate::limits::{FLUSH_NS_MAX, LINGER_NS_MAX};
use crate::slot_queue::SlotQueue;
use crate::table::Table;
use linger::LingerQueue;
use slices::{SliceQueue, SliceSlab};
use state::{Live, ReadSide, SendState, Stage, State, Watermark, WriteSide};

/// The connections of one driver, and the queues of those to work on.
pub(crate) struct Conns<P> {
    table: Table<Conn<P>>,
    outputs: SliceSlab,
    watermarks: Watermarks,
    /// Connections with something to report or to read.
    pub(crate) ready: SlotQueue,
    /// Connections with output to send.
    pub(crate) dirty: SlotQueue,
    /// Failed connections whose fault is held.
    held_faults: SlotQueue,
    lingerers: LingerQueue,
    /// Connections closed without lingering, whose output the kernel may never take.
    flushers: LingerQueue,
    /// Closed connections with output that the peer takes as slowly as it likes, up to a time.
    slow_flushers: LingerQueue,
}

/// One connection.
pub(crate) struct Conn<P> {
    /// The driver's part.
    pub(crate) part: P,
    state: State,
    send: SendState,
    output: SliceQueue,
    /// A fault is not reported: what the peer sent by another transport comes first.
    holds_fault: bool,
}

/// Next operation of the driver on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the socket is not told otherwise"]
pub(crate) enum Then {
    Nothing,
    /// Send a FIN.
    ShutDownWrite,
    /// Send a FIN, then discard input: [`Conns::discard`] and [`Conns::discard_end`] say when that is over.
    Linger,
    /// Close the socket. All output is sent.
    Close,
    /// Close the socket. It was never established.
    Drop,
    /// Close the socket so that the peer sees a reset. It failed: output may be lost, and the peer must not take what
    /// it got for the whole.
    Reset,
}

/// No node is left for output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputFull;

/// Watermarks of a connection's output: `Drained` is reported when it falls from the high one to the low one.
#[derive(Clone, Copy, Debug)]
struct Watermarks {
    high_bytes: usize,
    low_bytes: usize,
}

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks { high_bytes: 256 * 1024, low_bytes: 64 * 1024 }
    }
}

impl<P> Conn<P> {
    fn live(&self) -> Option<&Live> {
        if let State::Live(live) = &self.state { Some(live) } else { None }
    }

    fn live_mut(&mut self) -> Option<&mut Live> {
        if let State::Live(live) = &mut self.state { Some(live) } else { None }
    }

    /// Returns whether the platform has the handle.
    pub(crate) fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// Returns whether it is still connecting.
    pub(crate) fn is_connecting(&self) -> bool {
        let is_connecting = self.live().is_some_and(|live| live.stage == Stage::Connecting);
        is_connecting || self.state == State::ConnectingToFlush
    }

    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering { .. })
    }

    /// Returns whether the platform has closed it and the kernel has still to take some of its output.
    pub(crate) fn is_flushing(&self) -> bool {
        matches!(self.state, State::Flushing { .. })
    }

    /// Returns whether the platform has closed it and the kernel has still to take some of its output, once it is
    /// connected.
    pub(crate) fn is_closed_unsent(&self) -> bool {
        self.is_flushing() || self.state == State::ConnectingToFlush
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Returns whether it is live and has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault().is_some()
    }

    pub(crate) fn holds_fault(&self) -> bool {
        self.holds_fault
    }

    /// Returns the fault that is still to be reported.
    pub(crate) fn fault(&self) -> Option<ConnFault> {
        self.live().and_then(Live::fault)
    }

    /// Returns whether the FIN is due or sent, though the connection is live.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.live().is_some_and(|live| live.write == WriteSide::ShutDown)
    }

    /// Returns whether the platform receives, and the end of the stream has not come.
    pub(crate) fn awaits_input(&self) -> bool {
        self.live().is_some_and(|live| live.stage != Stage::Connecting && live.read == ReadSide::Receiving)
    }

    /// Returns whether the platform receives, and something may still be delivered.
    pub(crate) fn wants_input(&self) -> bool {
        self.live().is_some_and(|live| live.read.is_wanted())
    }

    /// Returns whether the peer's end of the stream was found: all that it had sent was delivered.
    pub(crate) fn has_input_end(&self) -> bool {
        self.live().is_some_and(|live| live.read.has_end())
    }

    /// Returns whether output can be offered to the kernel now.
    pub(crate) fn is_sendable(&self) -> bool {
        let may_send = match &self.state {
            State::Live(live) => live.is_open() && live.write != WriteSide::Corked,
            State::Flushing { .. } => true,
            State::ConnectingToFlush | State::Lingering { .. } | State::Dead => false,
        };
        may_send && self.send == SendState::Idle && !self.output.is_empty()
    }

    /// Returns whether output waits for space.
    pub(crate) fn is_blocked(&self) -> bool {
        self.send == SendState::Blocked
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output.bytes()
    }
}

/// The table.
impl<P> Conns<P> {
    /// Allocates everything. At most `lingerers_max` connections linger; 0 where the driver's peers need none.
    pub(crate) fn new(limits: &DriverLimits, lingerers_max: u32) -> Conns<P> {
        Conns {
            table: Table::new(limits.conns_max),
            outputs: SliceSlab::new(limits.output_slices_max),
            watermarks: Watermarks::default(),
            ready: SlotQueue::new(limits.conns_max),
            dirty: SlotQueue::new(limits.conns_max),
            held_faults: SlotQueue::new(limits.conns_max),
            lingerers: LingerQueue::new(lingerers_max, LINGER_NS_MAX),
            flushers: LingerQueue::new(limits.conns_max, LINGER_NS_MAX),
            slow_flushers: LingerQueue::new(limits.conns_max, FLUSH_NS_MAX),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// Adds a connection that is established, or still connecting. Panics when the table is full.
    pub(crate) fn insert(&mut self, part: P, is_established: bool) -> Handle {
        let stage = if is_established { Stage::Open } else { Stage::Connecting };
        let state = State::Live(Live::new(stage));
        let conn =
            Conn { part, state, send: SendState::Idle, output: SliceQueue::default(), holds_fault: false };
        self.table.insert(conn).expect("the caller has checked that a slot is free")
    }

    /// Removes a connection and its output; returns the driver's part.
    pub(crate) fn remove(&mut self, index: u32) -> Option<P> {
        let mut conn = self.table.remove(index)?;
        self.outputs.clear(&mut conn.output);
        Some(conn.part)
    }

    /// Marks a connection as over, from any state.
    pub(crate) fn kill(&mut self, index: u32) {
        if let Some(conn) = self.table.at_mut(index) {
            conn.state = State::Dead;
        }
    }

    pub(crate) fn handle(&self, index: u32) -> Handle {
        self.table.handle(index)
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&Conn<P>> {
        self.table.get(handle)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut Conn<P>> {
        self.table.get_mut(handle)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&Conn<P>> {
        self.table.at(index)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Conn<P>> {
        self.table.at_mut(index)
    }

    /// Returns the number of slots that were ever used: the first ones.
    pub(crate) fn used(&self) -> u32 {
        self.table.used()
    }
}

/// The platform's calls.
impl<P> Conns<P> {
    pub(crate) fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.watermarks = Watermarks { high_bytes, low_bytes };
    }

    /// Turns receiving on or off; returns the connection if it is live.
    pub(crate) fn set_receiving(&mut self, handle: Handle, on: bool) -> Option<&mut Conn<P>> {
        let conn = self.table.get_mut(handle)?;
        conn.live_mut()?.read.set(on);
        Some(conn)
    }

    /// Appends output. Errors: the driver fails the connection as exhausted.
    pub(crate) fn send(&mut self, handle: Handle, data: Slice) -> Result<(), OutputFull> {
        let Some(conn) = self.table.get_mut(handle) else { return Ok(()) };
        let State::Live(live) = &mut conn.state else { return Ok(()) };
        let may_append = matches!(live.write, WriteSide::Open | WriteSide::Corked);
        if !may_append || live.fault().is_some() {
            return Ok(());
        }
        if !self.outputs.push(&mut conn.output, data) {
            return Err(OutputFull);
        }
        if conn.output.bytes() >= self.watermarks.high_bytes {
            live.watermark = Watermark::Above;
        }
        self.queue_output(handle.index);
        Ok(())
    }

    /// Keeps the output back, or sends it again.
    pub(crate) fn set_corked(&mut self, handle: Handle, on: bool) {
        let Some(live) = self.table.get_mut(handle).and_then(Conn::live_mut) else { return };
        if let WriteSide::Open | WriteSide::Corked = live.write {
            live.write = if on { WriteSide::Corked } else { WriteSide::Open };
            self.queue_output(handle.index);
        }
    }

    /// Returns the bytes of output that the kernel has not taken; 0 for a dead handle or a failed connection.
    pub(crate) fn backlog_bytes(&self, handle: Handle) -> usize {
        let conn = self.table.get(handle).filter(|conn| conn.is_live() && !conn.has_failed());
        conn.map_or(0, Conn::output_bytes)
    }

    /// Returns the bytes of the buffers in which that output is. Input is the driver's.
    pub(crate) fn pinned_bytes(&self, handle: Handle) -> u64 {
        let conn = self.table.get(handle).filter(|conn| conn.is_live() && !conn.has_failed());
        conn.map_or(0, |conn| pinned_bytes(self.outputs.iter(&conn.output)))
    }

    /// Returns whether a connection that the platform has closed still has output.
    pub(crate) fn is_flushing(&self) -> bool {
        self.table.values().any(Conn::is_closed_unsent)
    }

    /// Ends the write side once the output is sent.
    pub(crate) fn shutdown(&mut self, handle: Handle) -> Then {
        let Some(live) = self.table.get_mut(handle).and_then(Conn::live_mut) else { return Then::Nothing };
        if let WriteSide::Open | WriteSide::Corked = live.write {
            live.write = WriteSide::ShuttingDown;
        }
        self.queue_output(handle.index);
        self.shut_down_if_sent(handle.index)
    }

    /// The peer sends nothing more: the close that follows does not wait for its end, and flushes for a limited time.
    /// `false`: too many do so already.
    pub(crate) fn expect_no_input(&mut self, handle: Handle, now_ns: u64) -> bool {
        let is_over = |handle| self.table.get(handle).is_none_or(|conn| !conn.is_flushing());
        while self.flushers.oldest().is_some_and(is_over) {
            self.flushers.pop_oldest();
        }
        let Some(live) = self.table.get_mut(handle).and_then(Conn::live_mut) else { return false };
        let fits = self.flushers.push(handle, now_ns);
        if fits {
            live.read.end();
        }
        fits
    }

    /// Ends the connection once the output is sent. The handle is dead from here on.
    pub(crate) fn close(&mut self, handle: Handle, now_ns: u64) -> Then {
        let Some(conn) = self.table.get_mut(handle) else { return Then::Nothing };
        let State::Live(live) = conn.state else { return Then::Nothing };
        conn.state = match live.stage {
            Stage::Connecting if conn.output.is_empty() => State::Dead,
            Stage::Connecting => State::ConnectingToFlush,
            Stage::Connected | Stage::Open => {
                State::Flushing { peer_ended: live.read.has_end(), discarded_bytes: 0 }
            }
            Stage::Failed { .. } => {
                conn.state = State::Dead;
                return Then::Reset;
            }
        };
        if conn.is_dead() {
            return Then::Drop;
        }
        let has_output = !conn.output.is_empty();
        self.queue_output(handle.index);
        if has_output {
            self.bound_flush(handle, now_ns);
        }
        self.finish_if_sent(handle.index, now_ns)
    }

    /// Bounds the time that a closed connection keeps its slot and its buffers for a peer that does not read.
    fn bound_flush(&mut self, handle: Handle, now_ns: u64) {
        if !self.slow_flushers.push(handle, now_ns) {
            let table = &self.table;
            self.slow_flushers.retain(|handle| table.get(handle).is_some_and(Conn::is_closed_unsent));
            let fits = self.slow_flushers.push(handle, now_ns);
            assert!(fits, "no more connections flush than there are");
        }
    }

    /// Holds the report of a connection's fault, or lets it go.
    pub(crate) fn hold_fault(&mut self, handle: Handle, on: bool) {
        if let Some(conn) = self.table.get_mut(handle) {
            conn.holds_fault = on;
            if !on && conn.has_failed() {
                self.ready.push(handle.index);
            }
        }
    }

    /// Returns whether [`Conns::take_held_fault`] has something to take.
    pub(crate) fn has_held_faults(&self) -> bool {
        !self.held_faults.is_empty()
    }

    /// Takes a connection whose fault is held, with the fault.
    pub(crate) fn take_held_fault(&mut self) -> Option<(Handle, ConnFault)> {
        loop {
            let index = self.held_faults.pop()?;
            if let Some(fault) = self.at(index).and_then(Conn::fault) {
                return Some((self.handle(index), fault));
            }
        }
    }

    /// Returns whether a connection may be given to another driver once its output is sent.
    pub(crate) fn is_detachable(&self, handle: Handle) -> bool {
        let live = self.table.get(handle).and_then(Conn::live);
        live.is_some_and(|live| live.is_open() && matches!(live.write, WriteSide::Open | WriteSide::Corked))
    }
}

/// Lingering connections.
impl<P> Conns<P> {
    /// Returns when the next lingering or flushing connection is to be closed.
    pub(crate) fn linger_deadline_ns(&self) -> Option<u64> {
        let queues = [&self.lingerers, &self.flushers, &self.slow_flushers];
        queues.into_iter().filter_map(LingerQueue::deadline_ns).min()
    }

    /// Returns a connection that has flushed long enough: it is to be reset, as its peer would take the end of what it
    /// has got for the end of all.
    pub(crate) fn expired_flusher(&mut self, now_ns: u64) -> Option<u32> {
        let table = &self.table;
        let flushes = |handle| table.get(handle).is_some_and(Conn::is_closed_unsent);
        self.flushers.pop_expired(now_ns, flushes).or_else(|| self.slow_flushers.pop_expired(now_ns, flushes))
    }

    /// Returns a connection that has lingered long enough.
    pub(crate) fn expired_lingerer(&mut self, now_ns: u64) -> Option<u32> {
        let table = &self.table;
        self.lingerers.pop_expired(now_ns, |handle| table.get(handle).is_some_and(Conn::is_lingering))
    }

    /// Returns the connection that has lingered longest, whose slot is needed.
    pub(crate) fn oldest_lingerer(&mut self) -> Option<u32> {
        self.expired_lingerer(u64::MAX)
    }
}

/// Transitions that several calls share.
impl<P> Conns<P> {
    fn queue_output(&mut self, index: u32) {
        if self.table.at(index).is_some_and(Conn::is_sendable) {
            self.dirty.push(index);
        }
    }

    fn shut_down_if_sent(&mut self, index: u32) -> Then {
        let Some(conn) = self.table.at_mut(index) else { return Then::Nothing };
        let is_sent = conn.output.is_empty();
        match &mut conn.state {
            State::Live(live) if is_sent && live.is_open() && live.write == WriteSide::ShuttingDown => {
                live.write = WriteSide::ShutDown;
                Then::ShutDownWrite
            }
            _ => Then::Nothing,
        }
    }

    /// Ends a closed connection whose output is sent: it lingers, unless the peer has ended its side too.
    fn finish_if_sent(&mut self, index: u32, now_ns: u64) -> Then {
        let handle = self.table.handle(index);
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.output.is_empty()) else {
            return Then::Nothing;
        };
        let State::Flushing { peer_ended, discarded_bytes } = conn.state else { return Then::Nothing };
        if !peer_ended && self.lingerers.push(handle, now_ns) {
            conn.state = State::Lingering { discarded_bytes };
            Then::Linger
        } else {
            conn.state = State::Dead;
            Then::Close
        }
    }
}
