//! Connections of the driver above: the two ends of a kernel connection agree through them to use their rings.
//! Promises: bytes are read exactly as many as asked for, so that those behind them stay in the ring.
//! Not here: what the bytes mean (`any/upgrade.rs`).

use std::io;

use flick_shm::conn::RingRead;

use super::ShmTransport;
use crate::driver::{Handle, ListenerId};
use crate::fault::ConnFault;
use crate::listen::ListenSocket;

/// Result of a read of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimRead {
    All,
    /// Nothing has arrived.
    Nothing,
    /// The other side has ended it, or violated the protocol.
    Over,
}

/// Content of a ring that is not read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimPeek {
    Empty,
    Input,
    /// The other side has ended its direction, and all is read.
    Finished,
}

impl ShmTransport {
    pub(crate) fn conns_max(&self) -> u32 {
        self.limits.conns_max
    }

    /// Adds a listener whose connections the driver above takes.
    ///
    /// Errors: as [`ShmTransport::listen_on`].
    pub(crate) fn listen_for_claims(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        self.add_listener(socket, true)
    }

    /// Shows the present user of this process at a listener; see [`ListenSocket::renew_user`].
    ///
    /// Errors: those of listen(2).
    pub(crate) fn renew_user(&self, id: ListenerId) -> io::Result<()> {
        self.listeners.get(id).map_or(Ok(()), |listener| listener.socket.renew_user())
    }

    /// Starts connecting a claim.
    ///
    /// Errors: `Refused` if no process listens there; `Exhausted`, `System`.
    pub(crate) fn claim(&mut self, name: &str) -> Result<Handle, ConnFault> {
        if !self.free_slot() {
            return Err(ConnFault::Exhausted);
        }
        let pair = self.pairs.pair_to(name, self.clock.now_ns())?;
        let handle = self.insert(pair, None, false);
        self.set_claim(handle.index, true);
        self.pairs.add_waiting(pair, handle.index);
        self.open_waiting(pair);
        Ok(handle)
    }

    /// Makes a connection a claim, or one that the platform reads.
    pub(crate) fn set_claim(&mut self, index: u32, on: bool) {
        if let Some(conn) = self.conns.at_mut(index) {
            conn.part.is_claim = on;
            self.conns.ready.push(index);
        }
    }

    /// Takes a claim that has something to read.
    pub(crate) fn next_claim(&mut self) -> Option<u32> {
        self.claims.pop()
    }

    pub(crate) fn handle_at(&self, index: u32) -> Handle {
        self.conns.handle(index)
    }

    /// Sends bytes at once, before any output of the platform; returns whether the ring took them.
    pub(crate) fn write_claim(&mut self, index: u32, bytes: &[u8]) -> bool {
        let Some(ring) = &mut self.rings[index as usize] else { return false };
        matches!(ring.push(bytes), Ok(count) if count == bytes.len()) && ring.publish().is_ok()
    }

    /// Fills `out` from the ring.
    pub(crate) fn read_claim(&mut self, index: u32, out: &mut [u8]) -> ClaimRead {
        let Some(ring) = &mut self.rings[index as usize] else { return ClaimRead::Over };
        match ring.receive(out) {
            // The other side publishes a message at once, so a part of one is a violation.
            Ok(RingRead::Bytes(count)) if count == out.len() => {
                self.end_silence(index);
                ClaimRead::All
            }
            Ok(RingRead::Empty) if !self.is_gone(index) => {
                self.poll_again(index);
                ClaimRead::Nothing
            }
            Ok(RingRead::Bytes(_) | RingRead::Empty | RingRead::Finished | RingRead::Reset) | Err(_) => {
                ClaimRead::Over
            }
        }
    }

    /// Looks at the ring without reading from it.
    pub(crate) fn peek(&mut self, index: u32) -> ClaimPeek {
        let Some(ring) = &mut self.rings[index as usize] else { return ClaimPeek::Input };
        match ring.is_idle() {
            Ok(true) => ClaimPeek::Empty,
            Ok(false) if matches!(ring.receive(&mut []), Ok(RingRead::Finished)) => ClaimPeek::Finished,
            Ok(false) | Err(_) => ClaimPeek::Input,
        }
    }

    /// Returns how many bytes of the ring the other side has read.
    pub(crate) fn consumed_bytes(&mut self, index: u32) -> u64 {
        let ring = self.rings[index as usize].as_mut();
        ring.and_then(|ring| ring.consumed_bytes().ok()).unwrap_or(0)
    }

    /// Fails a connection. What arrived before can still be read.
    pub(crate) fn fail_conn(&mut self, index: u32, fault: ConnFault) {
        if self.conns.at(index).is_some() {
            self.set_claim(index, false);
            self.hold_fault(index, false);
            self.fail(index, fault);
        }
    }

    /// Returns the number of the other process.
    pub(crate) fn pid_of(&self, index: u32) -> Option<i32> {
        self.pairs.pid(self.conns.at(index)?.part.pair)
    }

    /// Returns the user of the other process.
    pub(crate) fn uid_of(&self, index: u32) -> Option<u32> {
        self.pairs.uid(self.conns.at(index)?.part.pair)
    }

    /// Holds the report of a connection's fault, or lets it go.
    pub(crate) fn hold_fault(&mut self, index: u32, on: bool) {
        self.conns.hold_fault(self.conns.handle(index), on);
    }

    /// Returns whether the other process is gone.
    pub(crate) fn is_gone(&self, index: u32) -> bool {
        self.conns.at(index).is_none_or(|conn| self.pairs.is_gone(conn.part.pair))
    }
}
