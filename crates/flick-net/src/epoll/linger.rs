//! The end of a connection whose peer may still be sending.
//! Promises: what we wrote last is not destroyed by the reset that closing with unread input causes; bounded in
//! bytes, in time and in number; a peer that has ended its side already costs nothing.
//! Source: RFC 9112 §9.6 (lingering close).

use std::collections::VecDeque;

use rustix::io::Errno;

use super::{EpollDriver, Phase};
use crate::driver::Handle;
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS_MAX, LINGER_RECEIVES_MAX};
use crate::socket;

/// Connections that linger, the one to give up first in front.
pub(super) struct Lingerers {
    waiting: VecDeque<Lingerer>,
    scratch: Box<[u8]>,
}

struct Lingerer {
    conn: Handle,
    deadline_ns: u64,
}

const SCRATCH_BYTES: usize = 16 * 1024;

const _: () = assert!(SCRATCH_BYTES * LINGER_RECEIVES_MAX <= LINGER_BYTES_MAX);

impl Lingerers {
    pub(super) fn new(conns_max: u32) -> Lingerers {
        Lingerers {
            waiting: VecDeque::with_capacity(conns_max as usize),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
        }
    }

    /// When the first connection is to be given up.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.waiting.front().map(|lingerer| lingerer.deadline_ns)
    }
}

/// What throwing away a connection's input came to.
enum Discarded {
    /// End of stream, an error, or more than is worth waiting for.
    Over,
    /// Nothing left for now.
    Dry,
    /// The bound per poll was reached.
    More,
}

impl EpollDriver {
    /// Ends a connection whose output is sent: says so, then waits a while for the peer to end its side.
    pub(super) fn finish_close(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let may_linger = conn.phase == Phase::Open && !conn.saw_eof;
        if !may_linger || self.lingerers.waiting.len() == self.lingerers.waiting.capacity() {
            return self.drop_conn(index);
        }
        socket::shutdown_write(&conn.socket);
        conn.phase = Phase::Lingering;
        let deadline_ns = self.now_ns + LINGER_NS_MAX;
        let has_input = conn.is_readable;
        let conn = self.conns.handle(index);
        self.lingerers.waiting.push_back(Lingerer { conn, deadline_ns });
        if has_input {
            self.push_ready(index);
        }
    }

    /// Gives up the connection that has lingered longest if its slot is needed. Says whether the table has room.
    pub(super) fn make_room(&mut self) -> bool {
        while self.conns.is_full() {
            let Some(first) = self.lingerers.waiting.pop_front() else { return false };
            if self.conns.get(first.conn).is_some() {
                self.drop_conn(first.conn.index);
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
            match socket::discard(&conn.socket, &mut self.lingerers.scratch) {
                Err(Errno::AGAIN) => return Discarded::Dry,
                Err(Errno::INTR) => continue,
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
        while let Some(first) = self.lingerers.waiting.front()
            && first.deadline_ns <= self.now_ns
        {
            let conn = first.conn;
            self.lingerers.waiting.pop_front();
            if self.conns.get(conn).is_some() {
                self.drop_conn(conn.index);
            }
        }
    }
}
