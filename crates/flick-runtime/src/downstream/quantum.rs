//! Turn of a client at the shared connections to backends: what it may still send on one before others that wait.
//! Promises: a client with a few requests in flight needs no turn; a turn ends when its bytes are spent, and what is
//! left of it is lost when its client has nothing more to send.
//! Not here: the order of the clients that wait for a turn (`blocked.rs`); when a connection is full
//! (`upstream/load.rs`).
//! Source: deficit round robin (Shreedhar and Varghese, 1995); flows that send little go first, as in RFC 8290.

use crate::limits::{CONN_QUANTUM_BYTES, FREE_BYTES};

/// The turn of one client.
#[derive(Clone, Copy, Debug)]
pub struct ConnQuantum {
    /// Bytes of cost that are left of the turn it got last.
    left_bytes: u64,
    /// The backend at whose shared connection its next request needs a turn.
    needed_at: Option<u32>,
}

impl ConnQuantum {
    /// The turn of a client that has sent nothing yet.
    pub const fn new() -> Self {
        Self { left_bytes: 0, needed_at: None }
    }

    /// A request of that cost is sent to a backend; `inflight` are then in flight.
    #[inline]
    pub fn spend(&mut self, backend: u32, cost_bytes: u32, inflight: u32) {
        let cost_bytes = u64::from(cost_bytes);
        self.left_bytes = self.left_bytes.saturating_sub(cost_bytes);
        // As many more as this one: what the next one will cost is not known.
        let is_over = self.left_bytes == 0 && (u64::from(inflight) + 1) * cost_bytes > FREE_BYTES;
        self.needed_at = is_over.then_some(backend);
    }

    /// The backend at whose shared connection its next request needs a turn, if others wait there or it is full.
    #[inline]
    pub fn needed_at(&self) -> Option<u32> {
        self.needed_at
    }

    /// It gets a turn, or needs none.
    #[inline]
    pub fn begin(&mut self) {
        (self.left_bytes, self.needed_at) = (CONN_QUANTUM_BYTES, None);
    }

    /// It has nothing more to send for now. Returns whether a part of its turn is left, which others may have.
    #[inline]
    pub fn end(&mut self) -> bool {
        std::mem::take(&mut self.left_bytes) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::ConnQuantum;
    use crate::limits::{CONN_QUANTUM_BYTES, FREE_BYTES, REQUEST_COST_BYTES};

    #[test]
    fn a_quantum_ends_when_it_is_spent_and_a_few_requests_need_none() {
        let cost_bytes = REQUEST_COST_BYTES;
        let free = (FREE_BYTES / u64::from(cost_bytes)) as u32;
        let mut quantum = ConnQuantum::new();
        for inflight in 1..free {
            quantum.spend(3, cost_bytes, inflight);
            assert_eq!(quantum.needed_at(), None);
        }
        quantum.spend(3, cost_bytes, free);
        assert_eq!(quantum.needed_at(), Some(3));
        quantum.begin();
        let in_quantum = CONN_QUANTUM_BYTES / u64::from(cost_bytes);
        for sent in 1..in_quantum {
            quantum.spend(3, cost_bytes, free);
            assert_eq!(quantum.needed_at(), None, "{sent} of {in_quantum}");
        }
        quantum.spend(4, cost_bytes, free);
        assert_eq!(quantum.needed_at(), Some(4));
        assert!(!quantum.end());
        quantum.begin();
        assert!(quantum.end() && !quantum.end());
    }
}
