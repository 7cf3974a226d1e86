//! Results of operations on a connection, from the kernel or the simulated network.

use flick_buffers::Slice;

use super::state::{SendState, Stage, State, Watermark};
use super::{Conn, Conns, Then};
use crate::fault::ConnFault;
use crate::limits::LINGER_BYTES_MAX;

impl<P> Conns<P> {
    /// A connect has succeeded; the driver reports it.
    pub(crate) fn established(&mut self, index: u32) -> Then {
        let Some(conn) = self.table.at_mut(index) else { return Then::Nothing };
        match &mut conn.state {
            State::Live(live) if live.stage == Stage::Connecting => {
                live.stage = Stage::Connected;
            }
            state if *state == State::ConnectingToFlush => {
                *state = State::Flushing { peer_ended: false, discarded_bytes: 0 };
            }
            _ => {}
        }
        self.queue_output(index);
        self.shut_down_if_sent(index)
    }

    /// A connection has failed: its output is lost; the driver delivers the input that arrived before, then reports the
    /// fault. One that the platform has closed is over.
    pub(crate) fn fail(&mut self, index: u32, fault: ConnFault) -> Then {
        let Some(conn) = self.table.at_mut(index) else { return Then::Nothing };
        let State::Live(live) = &mut conn.state else {
            conn.state = State::Dead;
            return Then::Reset;
        };
        live.fail(fault);
        if conn.send != SendState::InFlight {
            self.outputs.clear(&mut conn.output);
        }
        Then::Nothing
    }

    /// The kernel reads the output's buffers until [`Conns::send_done`].
    pub(crate) fn begin_send(&mut self, index: u32) {
        if let Some(conn) = self.table.at_mut(index) {
            conn.send = SendState::InFlight;
        }
    }

    /// The kernel has read the buffers it was given.
    pub(crate) fn send_done(&mut self, index: u32) {
        if let Some(conn) = self.table.at_mut(index) {
            conn.send = SendState::Idle;
            if conn.has_failed() {
                self.outputs.clear(&mut conn.output);
            }
        }
    }

    /// The socket's buffer is full.
    pub(crate) fn block_output(&mut self, index: u32) {
        if let Some(conn) = self.table.at_mut(index) {
            conn.send = SendState::Blocked;
        }
    }

    /// The socket's buffer has space again; returns whether it was full.
    pub(crate) fn unblock_output(&mut self, index: u32) -> bool {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.send == SendState::Blocked) else {
            return false;
        };
        conn.send = SendState::Idle;
        true
    }

    /// Returns the first pieces of a connection's output, until they have `bytes` bytes or more.
    pub(crate) fn output(&self, conn: &Conn<P>, bytes: usize) -> impl Iterator<Item = &Slice> {
        self.outputs.first(&conn.output, bytes)
    }

    /// The kernel has taken the first `bytes` bytes of the output.
    pub(crate) fn consume(&mut self, index: u32, bytes: usize) {
        if let Some(conn) = self.table.at_mut(index) {
            self.outputs.consume(&mut conn.output, bytes);
        }
    }

    /// Some output is sent: checks the low watermark, and whether a shutdown or close can finish.
    pub(crate) fn sent(&mut self, index: u32, now_ns: u64) -> Then {
        let low_bytes = self.watermarks.low_bytes;
        let Some(conn) = self.table.at_mut(index) else { return Then::Nothing };
        let output_bytes = conn.output.bytes();
        if let Some(live) = conn.live_mut()
            && live.watermark == Watermark::Above
            && output_bytes <= low_bytes
        {
            live.watermark = Watermark::Drained;
            self.ready.push(index);
        }
        match self.finish_if_sent(index, now_ns) {
            Then::Nothing => self.shut_down_if_sent(index),
            then => then,
        }
    }

    /// The end of the stream has come, behind input that is still to be delivered.
    pub(crate) fn end_input(&mut self, index: u32) {
        if let Some(live) = self.table.at_mut(index).and_then(Conn::live_mut) {
            live.read.end();
        }
    }

    /// Input of a closed connection is thrown away; returns whether that was enough and the socket is to be closed.
    pub(crate) fn discard(&mut self, index: u32, bytes: usize) -> bool {
        match self.table.at_mut(index).map(|conn| &mut conn.state) {
            Some(State::Flushing { discarded_bytes, .. } | State::Lingering { discarded_bytes }) => {
                *discarded_bytes += bytes;
                *discarded_bytes > LINGER_BYTES_MAX
            }
            _ => false,
        }
    }

    /// The peer of a closed connection has ended its side; returns whether the socket is to be closed.
    pub(crate) fn discard_end(&mut self, index: u32) -> bool {
        match self.table.at_mut(index).map(|conn| &mut conn.state) {
            Some(State::Flushing { peer_ended, .. }) => {
                *peer_ended = true;
                false
            }
            Some(State::Lingering { .. }) => true,
            _ => false,
        }
    }
}
