//! Token of a request of the ring, as its 64 bits of user data: the kind above, the slot below.

use crate::driver::ListenerId;

const KIND_SHIFT: u32 = 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestToken {
    /// A cancellation, whose result says nothing new.
    Ignored,
    Waker,
    /// The watch of shared memory.
    Watched,
    /// A poller of the thread's other services.
    Poller,
    Accept(ListenerId),
    Receive(u32),
    Send(u32),
    Connect(u32),
}

impl RequestToken {
    pub(super) fn pack(self) -> u64 {
        let (kind, index) = match self {
            RequestToken::Ignored => (0, 0),
            RequestToken::Waker => (1, 0),
            RequestToken::Watched => (6, 0),
            RequestToken::Poller => (7, 0),
            RequestToken::Accept(listener) => (2, listener.0),
            RequestToken::Receive(index) => (3, index),
            RequestToken::Send(index) => (4, index),
            RequestToken::Connect(index) => (5, index),
        };
        kind << KIND_SHIFT | u64::from(index)
    }

    pub(super) fn unpack(user_data: u64) -> RequestToken {
        let index = user_data as u32;
        match user_data >> KIND_SHIFT {
            1 => RequestToken::Waker,
            2 => RequestToken::Accept(ListenerId(index)),
            3 => RequestToken::Receive(index),
            4 => RequestToken::Send(index),
            5 => RequestToken::Connect(index),
            6 => RequestToken::Watched,
            7 => RequestToken::Poller,
            other => {
                assert!(other == 0, "every request has a kind");
                RequestToken::Ignored
            }
        }
    }
}
