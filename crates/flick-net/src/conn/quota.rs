//! The limit on the bytes that one poll sends.
//! Promises: a poll exceeds it by one piece at most; the next poll sends the rest.

/// Limit on the bytes of each poll, and the bytes that are left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendQuota {
    poll_bytes_max: usize,
    left_bytes: usize,
}

impl SendQuota {
    pub(crate) fn unlimited() -> SendQuota {
        SendQuota { poll_bytes_max: usize::MAX, left_bytes: usize::MAX }
    }

    /// Sets the limit from the next poll on.
    pub(crate) fn set(&mut self, poll_bytes_max: usize) {
        self.poll_bytes_max = poll_bytes_max;
    }

    /// Starts a poll.
    pub(crate) fn renew(&mut self) {
        self.left_bytes = self.poll_bytes_max;
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.left_bytes == 0
    }

    pub(crate) fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}
