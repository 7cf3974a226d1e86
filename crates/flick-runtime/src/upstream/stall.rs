//! Stalls of a backend connection: the reason why it is not read, and the time for which a client may cause that.
//! Promises: looking again does not extend the time of a client, only a delivered byte does; the time that a connection
//! is stalled does not count against its backend.
//! Refuses: the list of stalled connections (`upstream.rs`); dropping the client (`worker/replies.rs`).

use crate::limits::{CALM_SHARE, IMPATIENCE_SHIFT_MAX};
use crate::slab::Key;

/// Reason why a connection is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing: it is read.
    None,
    /// A client that does not read what it is sent.
    Client {
        /// The client.
        client: Key,
        /// Time at which the client is dropped.
        until_ns: u64,
        /// Start of the stall.
        since_ns: u64,
    },
    /// A huge buffer for a message that has begun to arrive.
    HugeBuffer,
}

/// Time for which a client may stall a connection without taking a byte.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    client: Key,
    begun_ns: u64,
    until_ns: u64,
}

/// The stalls of one backend connection.
#[derive(Debug)]
pub struct Stall {
    hold: Hold,
    /// Of the stalls since a byte was delivered: the client, when the first began, and when the client is dropped.
    allowance: Option<Allowance>,
    /// Time at which a client was last dropped for a stall.
    dropped_ns: u64,
    /// Clients dropped in short order, up to a bound: each halves the time of the next one.
    impatience: u32,
    /// Time this connection has spent stalled: deadlines of its requests do not count it.
    clock_lag_ns: u64,
    /// It is in the worker's list of stalled connections.
    is_listed: bool,
}

impl Stall {
    /// No stall yet.
    pub const fn new() -> Self {
        Self {
            hold: Hold::None,
            allowance: None,
            dropped_ns: 0,
            impatience: 0,
            clock_lag_ns: 0,
            is_listed: false,
        }
    }

    /// Returns the reason why the connection is not read.
    #[inline]
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// Time to add to the deadlines of its requests.
    #[inline]
    pub fn clock_lag_ns(&self) -> u64 {
        self.clock_lag_ns
    }

    /// Stalls for `client`, for at most `timeout_ns`. Returns when the client is dropped.
    pub(super) fn begin(&mut self, client: Key, now_ns: u64, timeout_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.dropped_ns) > timeout_ns * CALM_SHARE {
            self.impatience = 0;
        }
        let allowance = match self.allowance {
            Some(allowance) if allowance.client == client => allowance,
            _ => Allowance { client, begun_ns: now_ns, until_ns: now_ns + (timeout_ns >> self.impatience) },
        };
        self.allowance = Some(allowance);
        self.hold = Hold::Client { client, until_ns: allowance.until_ns, since_ns: now_ns };
        allowance.until_ns
    }

    /// The client that stalls it, and since when that client has taken no byte.
    pub fn stalled_by(&self) -> Option<(Key, u64)> {
        let Hold::Client { client, .. } = self.hold else { return None };
        self.allowance.map(|allowance| (client, allowance.begun_ns))
    }

    /// Waits for a huge buffer.
    pub(super) fn wait_for_huge(&mut self) {
        self.hold = Hold::HugeBuffer;
    }

    /// Reads again. Returns whether a client had stalled the connection.
    #[inline]
    pub(super) fn end(&mut self, now_ns: u64) -> bool {
        let Hold::Client { since_ns, .. } = std::mem::replace(&mut self.hold, Hold::None) else {
            return false;
        };
        self.clock_lag_ns += now_ns - since_ns;
        true
    }

    /// A byte was delivered: the next stall has its full time.
    #[inline]
    pub fn note_delivered(&mut self) {
        self.allowance = None;
    }

    /// A client was dropped. Many slow clients in a row must not cost the others the sum of their times, so the next
    /// one has less.
    pub fn note_dropped(&mut self, now_ns: u64) {
        self.dropped_ns = now_ns;
        self.impatience = (self.impatience + 1).min(IMPATIENCE_SHIFT_MAX);
    }

    /// Puts it in the worker's list, or takes it out. Returns whether it was in it.
    pub(super) fn set_listed(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.is_listed, on)
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, Stall};
    use crate::slab::Key;

    const A: Key = Key { index: 0, generation: 0 };
    const B: Key = Key { index: 1, generation: 0 };

    #[test]
    fn looking_again_does_not_extend_the_time_of_a_client() {
        let mut stall = Stall::new();
        assert_eq!(stall.begin(A, 1_000, 100), 1_100);
        assert!(stall.end(1_040));
        assert_eq!(stall.begin(A, 1_050, 100), 1_100);
        assert!(stall.end(1_060));
        assert_eq!((stall.clock_lag_ns(), stall.hold()), (50, Hold::None));
        stall.note_delivered();
        assert_eq!(stall.begin(A, 1_070, 100), 1_170);
    }

    #[test]
    fn each_slow_client_in_a_row_has_half_the_time_of_the_one_before() {
        let mut stall = Stall::new();
        assert_eq!(stall.begin(A, 10_000, 100), 10_100);
        stall.note_dropped(10_100);
        assert_eq!(stall.begin(B, 10_100, 100), 10_150);
        stall.note_dropped(10_150);
        assert_eq!(stall.begin(A, 10_150, 100), 10_175);
        stall.note_delivered();
        assert_eq!(stall.begin(A, 90_000, 100), 90_100, "after a calm time");
    }

    #[test]
    fn a_wait_for_a_buffer_is_not_the_fault_of_a_client() {
        let mut stall = Stall::new();
        stall.wait_for_huge();
        assert_eq!(stall.hold(), Hold::HugeBuffer);
        assert!(!stall.end(5));
        assert_eq!(stall.clock_lag_ns(), 0);
    }
}
