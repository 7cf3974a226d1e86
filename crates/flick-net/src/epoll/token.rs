//! Token of an epoll registration: a waker, a listener or a connection, in 64 bits of data.

use rustix::event::epoll;

use crate::driver::Handle;
use crate::table::GENERATION_END;

const WAKER_TOKEN: u64 = u64::MAX;
const WATCHED_TOKEN: u64 = u64::MAX - 1;
const POLLER_TOKEN: u64 = u64::MAX - 2;

pub(super) enum EpollToken {
    Waker,
    /// The watch of shared memory.
    Watched,
    /// A poller of the thread's other services.
    Poller,
    Listener(u32),
    Conn(Handle),
}

impl EpollToken {
    pub(super) fn pack(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            EpollToken::Waker => WAKER_TOKEN,
            EpollToken::Watched => WATCHED_TOKEN,
            EpollToken::Poller => POLLER_TOKEN,
            EpollToken::Listener(index) => u64::from(GENERATION_END) << 32 | u64::from(index),
            EpollToken::Conn(conn) => u64::from(conn.generation) << 32 | u64::from(conn.index),
        })
    }

    pub(super) fn unpack(data: epoll::EventData) -> EpollToken {
        let word = data.u64();
        let (generation, index) = ((word >> 32) as u32, word as u32);
        match generation {
            _ if word == WAKER_TOKEN => EpollToken::Waker,
            _ if word == WATCHED_TOKEN => EpollToken::Watched,
            _ if word == POLLER_TOKEN => EpollToken::Poller,
            GENERATION_END => EpollToken::Listener(index),
            _ => EpollToken::Conn(Handle { index, generation }),
        }
    }
}
