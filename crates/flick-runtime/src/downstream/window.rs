//! Window of a client: requests that it may have in flight, given how long its replies are. A share of each shared
//! connection.
//! Promises: a client with long replies has few requests in flight, at least one; one long reply lowers the number at
//! once, many short ones raise it again.
//! Not here: the limits of the operator and of the in-flight table, which hold beside this one (`stream.rs`).
//! Source: byte credit per flow, as the quantum of deficit round robin (Shreedhar and Varghese, 1995); the initial
//! window of TCP, RFC 6928.

use crate::limits::{BULK_REPLY_BYTES, WINDOW_BYTES, WINDOW_REPLY_BYTES_FIRST, WINDOW_SHARE};

/// The window of one client.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Estimate of the length of its next reply: rises at once, falls slowly.
    reply_bytes: u64,
    /// Length of its last reply, at most `WINDOW_BYTES`.
    last_bytes: u32,
    /// Something of this client travels on shared connections without an entry of its own in its queue.
    is_pinned: bool,
}

impl Window {
    /// The window of a client that got no reply yet.
    pub const fn new() -> Self {
        Self { reply_bytes: WINDOW_REPLY_BYTES_FIRST, last_bytes: 0, is_pinned: false }
    }

    /// Estimate of the length of the next reply, in bytes.
    #[inline]
    pub fn reply_bytes(&self) -> u32 {
        self.reply_bytes as u32
    }

    /// Length of the last reply, in bytes, at most `WINDOW_BYTES`; 0 before the first.
    #[inline]
    pub fn last_bytes(&self) -> u32 {
        self.last_bytes
    }

    /// Notes the length of a reply that arrives, in bytes.
    #[inline]
    pub fn note_reply(&mut self, bytes: u64) {
        self.last_bytes = bytes.min(WINDOW_BYTES) as u32;
        if bytes >= self.reply_bytes {
            self.reply_bytes = bytes.min(WINDOW_BYTES);
        } else {
            self.reply_bytes -= (self.reply_bytes - bytes).div_ceil(WINDOW_SHARE);
        }
    }

    /// A message of this client is sent that leaves no entry in its queue: a one-way request, a copy, an ask.
    pub fn pin(&mut self) {
        self.is_pinned = true;
    }

    /// Requests that may be in flight at one time, if their replies may come to `bytes_max`.
    #[inline]
    pub fn inflight_max(&self, bytes_max: u64) -> u32 {
        if self.has_long_replies() {
            return 1;
        }
        u32::try_from(bytes_max.min(WINDOW_BYTES) / self.reply_bytes.max(1)).unwrap_or(u32::MAX).max(1)
    }

    /// Whether its next request gets a connection of its own, if no other request of the client is in flight. One that
    /// might overtake what the client has sent before does not.
    pub fn is_bulk(&self) -> bool {
        self.has_long_replies() && !self.is_pinned
    }

    #[inline]
    fn has_long_replies(&self) -> bool {
        self.reply_bytes >= BULK_REPLY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::limits::{WINDOW_BYTES, WINDOW_REPLY_BYTES_FIRST};

    /// The window after replies of these lengths.
    fn after(replies: impl IntoIterator<Item = u64>) -> Window {
        let mut window = Window::new();
        replies.into_iter().for_each(|bytes| window.note_reply(bytes));
        window
    }

    #[test]
    fn short_replies_open_the_window_and_a_long_one_closes_it() {
        assert_eq!(u64::from(after([]).inflight_max(WINDOW_BYTES)), WINDOW_BYTES / WINDOW_REPLY_BYTES_FIRST);
        let short = std::iter::repeat_n(100, 64);
        assert!(after(short.clone()).inflight_max(WINDOW_BYTES) >= 2_000);
        let long = after(short.clone().chain([1 << 20]));
        assert_eq!((long.inflight_max(WINDOW_BYTES), long.is_bulk()), (1, true));
        let again = after([1 << 20].into_iter().chain(short));
        assert!(again.inflight_max(WINDOW_BYTES) >= 256 && !again.is_bulk());
        let endless = after([u64::MAX]);
        let found = (endless.inflight_max(WINDOW_BYTES), u64::from(endless.last_bytes()));
        assert_eq!(found, (1, WINDOW_BYTES), "a reply that ends with its connection");
    }

    #[test]
    fn a_client_that_sends_without_a_reply_has_no_connection_of_its_own() {
        let mut window = after([1 << 20]);
        window.pin();
        assert_eq!((window.inflight_max(WINDOW_BYTES), window.is_bulk()), (1, false));
    }
}
