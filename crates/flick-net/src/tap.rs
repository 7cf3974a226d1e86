//! Copies of what passes through connections, for an observer.
//! Promises: a driver without a tap pays one comparison for each send and poll; a tap sees the bytes as the platform
//! does, whatever carries them.
//! Refuses: waiting for the observer, and deciding which connections it wants; the sink does both.

use crate::address::PeerAddr;
use crate::driver::{DriverEvent, Handle};

/// Receiver of the copies, on the driver's thread. No call may block or allocate.
pub trait TapSink: Send {
    /// A peer connected.
    fn accepted(&mut self, conn: Handle, peer: PeerAddr);
    /// Bytes arrived.
    fn received(&mut self, conn: Handle, bytes: &[u8]);
    /// The platform sends bytes.
    fn sent(&mut self, conn: Handle, bytes: &[u8]);
    /// The connection has ended.
    fn ended(&mut self, conn: Handle);
    /// Makes everything visible to the observer, at this time.
    fn publish(&mut self, now_ns: u64);
}

/// Shows the events of one poll to a tap.
pub(crate) fn show_events(tap: &mut dyn TapSink, events: &[DriverEvent], now_ns: u64) {
    tap.publish(now_ns);
    for event in events {
        match event {
            DriverEvent::Accepted { conn, peer, .. } => tap.accepted(*conn, *peer),
            DriverEvent::Data { conn, data } => tap.received(*conn, data.bytes()),
            DriverEvent::Failed { conn, .. } => tap.ended(*conn),
            DriverEvent::AcceptFailed { .. }
            | DriverEvent::Connected { .. }
            | DriverEvent::Eof { .. }
            | DriverEvent::Drained { .. }
            | DriverEvent::Woken => {}
        }
    }
    tap.publish(now_ns);
}
