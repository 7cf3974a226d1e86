//! Sending: one write per connection and poll where it suffices.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use flick_buffers::Slice;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::driver::{EpollDriver, INPUT_EDGES};
use super::token::EpollToken;
use crate::fault::ConnFault;
use crate::limits::{WRITE_SLICES_MAX, WRITES_PER_CONN_MAX};

impl EpollDriver {
    pub(super) fn write_dirty(&mut self) {
        for _ in 0..self.conns.dirty.len() {
            if self.quota.is_used_up() {
                return;
            }
            if let Some(index) = self.conns.dirty.pop() {
                self.write(index);
            }
        }
    }

    /// Writes a connection's output until it is sent, the socket is full or a limit is reached.
    pub(super) fn write(&mut self, index: u32) {
        let mut writes = 0;
        let mut is_blocked = false;
        while let Some(conn) = self.conns.at(index).filter(|conn| conn.is_sendable()) {
            if writes == WRITES_PER_CONN_MAX || self.quota.is_used_up() {
                self.conns.dirty.push(index);
                break;
            }
            writes += 1;
            let pieces = self.conns.output(conn, self.quota.left_bytes());
            match write_some(&conn.part.socket, pieces) {
                Ok(bytes) => {
                    self.quota.take(bytes);
                    self.conns.consume(index, bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    is_blocked = true;
                    self.conns.block_output(index);
                }
                Err(errno) => return self.fail(index, ConnFault::of_established(errno)),
            }
        }
        if is_blocked && !self.watch_output(index) {
            return;
        }
        if writes > 0 {
            let then = self.conns.sent(index, self.now_ns);
            self.apply(index, then);
        }
    }

    /// The kernel reports that the socket has space again.
    pub(super) fn unblock(&mut self, index: u32) {
        if self.conns.unblock_output(index) {
            self.write(index);
        }
    }

    /// Registers a connection for writability, if it is not yet; returns whether the connection goes on.
    fn watch_output(&mut self, index: u32) -> bool {
        let token = EpollToken::Conn(self.conns.handle(index)).pack();
        let Some(conn) = self.conns.at_mut(index) else { return false };
        if conn.part.watches_output {
            return true;
        }
        conn.part.watches_output = true;
        let flags = INPUT_EDGES | epoll::EventFlags::OUT;
        let changed = epoll::modify(&self.epoll, &conn.part.socket, token, flags);
        if let Err(errno) = changed {
            self.fail(index, ConnFault::System(errno.raw_os_error()));
        }
        changed.is_ok()
    }
}

/// Offers pieces to the kernel; returns how many bytes it took.
fn write_some<'queue>(socket: &OwnedFd, slices: impl Iterator<Item = &'queue Slice>) -> Result<usize, Errno> {
    let mut pieces = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let mut count = 0;
    for (piece, slice) in pieces.iter_mut().zip(slices) {
        *piece = IoSlice::new(slice.bytes());
        count += 1;
    }
    if count == 1 {
        return rustix::net::send(socket, &pieces[0], SendFlags::NOSIGNAL);
    }
    let mut no_control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, &pieces[..count], &mut no_control, SendFlags::NOSIGNAL)
}
