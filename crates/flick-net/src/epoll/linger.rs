//! The end of a connection whose peer may still be sending.
//! Promises: what we wrote last is not destroyed by the reset that closing with unread input causes; bounded in
//! bytes, in time and in number; a peer that has ended its side already costs nothing.
//! Source: RFC 9112 §9.6 (lingering close).

use rustix::io::Errno;

use super::{EpollDriver, Phase};
use crate::limits::{LINGER_BYTES_MAX, LINGER_RECEIVES_MAX, LINGER_SCRATCH_BYTES};
use crate::socket;

/// What throwing away a connection's input came to.
enum Discarded {
    /// End of stream, an error, or more than is worth waiting for.
    Over,
    /// Nothing left for now.
    Dry,
    /// The bound per poll was reached.
    More,
}

const _: () = assert!(LINGER_SCRATCH_BYTES * LINGER_RECEIVES_MAX <= LINGER_BYTES_MAX);

impl EpollDriver {
    /// Ends a connection whose output is sent: says so, then waits a while for the peer to end its side.
    pub(super) fn finish_close(&mut self, index: u32) {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return };
        let may_linger = conn.phase == Phase::Open && !conn.saw_eof;
        if !may_linger || !self.lingerers.push(handle, self.now_ns) {
            return self.drop_conn(index);
        }
        socket::shutdown_write(&conn.socket);
        conn.phase = Phase::Lingering;
        if conn.is_readable {
            self.push_ready(index);
        }
    }

    /// Gives up the connection that has lingered longest if its slot is needed. Says whether the table has room.
    pub(super) fn make_room(&mut self) -> bool {
        while self.conns.is_full() {
            let Some(oldest) = self.lingerers.pop_oldest() else { return false };
            if self.conns.get(oldest).is_some() {
                self.drop_conn(oldest.index);
            }
        }
        true
    }

    /// Throws away what arrived for a lingering connection; says whether there may be more at once.
    pub(super) fn linger(&mut self, index: u32) -> bool {
        match self.discard(index) {
            Discarded::Over => {
                self.drop_conn(index);
                false
            }
            Discarded::Dry => false,
            Discarded::More => true,
        }
    }

    fn discard(&mut self, index: u32) -> Discarded {
        let Some(conn) = self.conns.at_mut(index) else { return Discarded::Dry };
        for _ in 0..LINGER_RECEIVES_MAX {
            match socket::discard(&conn.socket, &mut self.scratch) {
                Err(Errno::AGAIN) => return Discarded::Dry,
                Err(Errno::INTR) => {}
                Err(_) | Ok(0) => return Discarded::Over,
                Ok(bytes) => {
                    conn.lingered_bytes += bytes;
                    if conn.lingered_bytes > LINGER_BYTES_MAX {
                        return Discarded::Over;
                    }
                }
            }
        }
        Discarded::More
    }

    /// Gives up on peers that had their time.
    pub(super) fn expire_lingerers(&mut self) {
        while let Some(conn) = self.lingerers.pop_expired(self.now_ns) {
            if self.conns.get(conn).is_some() {
                self.drop_conn(conn.index);
            }
        }
    }
}
