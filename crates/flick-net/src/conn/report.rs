//! Events of a connection for the platform, in this order: connected, drained, data (reported by the driver), end of
//! stream, fault.

use super::state::{ReadSide, State, Watermark};
use super::{Conn, Conns};
use crate::driver::DriverEvent;
use crate::event_sink::EventSink;

/// Whether [`Conns::report_fault`] has ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultReport {
    /// It has not failed.
    None,
    /// There is no capacity for the event.
    Later,
    /// `Failed` is reported; the driver resets and closes the socket.
    Ended,
}

impl<P> Conns<P> {
    /// Reports that a connect has succeeded and that output has drained; returns whether it was a connect. The sink has
    /// capacity for one event at least.
    pub(crate) fn report_progress(&mut self, index: u32, sink: &mut EventSink<'_>) -> bool {
        let conn = self.table.handle(index);
        let Some(live) = self.table.at_mut(index).and_then(Conn::live_mut) else { return false };
        let is_new = live.take_connected();
        if is_new {
            sink.put(DriverEvent::Connected { conn });
        }
        if live.watermark == Watermark::Drained && !sink.is_full() {
            live.watermark = Watermark::Below;
            sink.put(DriverEvent::Drained { conn });
        }
        is_new
    }

    /// Reports the end of the stream if it has come and receiving is on; all input is delivered. A failed connection
    /// reports its fault instead.
    pub(crate) fn report_end(&mut self, index: u32, sink: &mut EventSink<'_>) {
        let conn = self.table.handle(index);
        let Some(live) = self.table.at_mut(index).and_then(Conn::live_mut) else { return };
        if live.read != (ReadSide::Ending { is_receiving: true }) {
            return;
        }
        if live.fault().is_some() {
            live.read = ReadSide::Ended;
        } else if !sink.is_full() {
            live.read = ReadSide::Ended;
            sink.put(DriverEvent::Eof { conn });
        }
    }

    /// Reports the fault of a failed connection, whose input is delivered.
    pub(crate) fn report_fault(&mut self, index: u32, sink: &mut EventSink<'_>) -> FaultReport {
        let handle = self.table.handle(index);
        let Some(conn) = self.table.at_mut(index) else { return FaultReport::None };
        let Some(fault) = conn.fault() else { return FaultReport::None };
        if conn.holds_fault {
            self.held_faults.push(index);
            return FaultReport::None;
        }
        if sink.is_full() {
            return FaultReport::Later;
        }
        conn.state = State::Dead;
        sink.put(DriverEvent::Failed { conn: handle, fault });
        FaultReport::Ended
    }

    /// Returns whether a full sink has kept a report back: drained, or the end of the stream.
    pub(crate) fn has_report(&self, index: u32) -> bool {
        let live = self.table.at(index).and_then(Conn::live);
        live.is_some_and(|live| {
            live.watermark == Watermark::Drained || live.read == ReadSide::Ending { is_receiving: true }
        })
    }
}
