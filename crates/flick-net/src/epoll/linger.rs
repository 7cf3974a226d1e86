//! The end of a connection whose peer is still sending.
//! Promises: what we wrote last is not destroyed by the reset that closing with unread input causes; bounded in
//! bytes, in time and in number; a connection with nothing unread closes at once.
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
    /// Ends a connection whose output is sent. Keeps it only if its peer has sent what nobody read.
    pub(super) fn finish_close(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let may_linger = conn.phase == Phase::Open && !conn.saw_eof;
        if !may_linger || self.lingerers.waiting.len() == self.lingerers.waiting.capacity() {
            return self.drop_conn(index);
        }
        match socket::discard(&conn.socket, &mut self.lingerers.scratch) {
            Err(_) | Ok(0) => self.drop_conn(index),
            Ok(_) => {
                socket::shutdown_write(&conn.socket);
                conn.phase = Phase::Lingering;
                let deadline_ns = self.now_ns + LINGER_NS_MAX;
                let conn = self.conns.handle(index);
                self.lingerers.waiting.push_back(Lingerer { conn, deadline_ns });
                self.push_ready(index);
            }
        }
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
