//! Load of a shared connection: the requests that may be on their way at one time before its clients take turns.
//! Promises: a request that is sent waits about a millisecond behind those of others, however many clients there are.
//! Refuses: a clock; the time of the fastest reply is that of a request which waited for no other.

use crate::limits::{CONN_BYTES_PER_US, CONN_INFLIGHT_BYTES, CONN_INFLIGHT_BYTES_MAX, CONN_QUANTUM_BYTES};

/// The load that one connection takes.
#[derive(Clone, Copy, Debug)]
pub struct ConnLoad {
    /// Time of the fastest reply since it was connected.
    fastest_ns: u64,
}

impl ConnLoad {
    /// Of a connection that has answered nothing yet.
    pub const fn new() -> Self {
        Self { fastest_ns: u64::MAX }
    }

    /// A reply was complete after so long.
    #[inline]
    pub fn note_reply_time(&mut self, took_ns: u64) {
        self.fastest_ns = self.fastest_ns.min(took_ns);
    }

    /// Cost of the requests that may be in flight without turns: the more, the farther away the backend is.
    fn bytes_max(&self) -> u64 {
        if self.fastest_ns == u64::MAX {
            return CONN_INFLIGHT_BYTES;
        }
        let far = self.fastest_ns / 1000 * CONN_BYTES_PER_US;
        (CONN_INFLIGHT_BYTES + far).min(CONN_INFLIGHT_BYTES_MAX)
    }

    /// Turns that can begin while requests of that cost are in flight.
    #[inline]
    pub fn quanta(&self, inflight_bytes: u64) -> u64 {
        self.bytes_max().saturating_sub(inflight_bytes).div_ceil(CONN_QUANTUM_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::ConnLoad;
    use crate::limits::{
        CONN_BYTES_PER_US, CONN_INFLIGHT_BYTES, CONN_INFLIGHT_BYTES_MAX, CONN_QUANTUM_BYTES,
    };

    #[test]
    fn a_far_backend_has_more_in_flight() {
        let mut load = ConnLoad::new();
        assert_eq!(load.quanta(0), CONN_INFLIGHT_BYTES.div_ceil(CONN_QUANTUM_BYTES));
        assert_eq!(load.quanta(CONN_INFLIGHT_BYTES - 1), 1);
        assert_eq!(load.quanta(CONN_INFLIGHT_BYTES), 0);
        load.note_reply_time(2_000_000);
        load.note_reply_time(5_000_000);
        let bytes_max = CONN_INFLIGHT_BYTES + 2_000 * CONN_BYTES_PER_US;
        assert_eq!((load.quanta(bytes_max - 1), load.quanta(bytes_max)), (1, 0));
        let mut load = ConnLoad::new();
        load.note_reply_time(60_000_000_000);
        assert_eq!(load.quanta(CONN_INFLIGHT_BYTES_MAX), 0);
    }
}
