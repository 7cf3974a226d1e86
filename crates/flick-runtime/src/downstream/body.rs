//! The rest of a message whose head has been forwarded: a number of bytes, all bytes until the peer closes, or further
//! parts, each of which the grammar's parser begins.
//! Promises: one word of state for plain bodies; of a body in parts one frame besides, in a table of fixed size.
//! Refuses: knowing where the bytes go.

use crate::slab::Key;

/// Rest of a message that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingBody {
    /// Bytes left of the present part; [`UNTIL_CLOSE`]: all until the peer closes.
    pub bytes_left: u64,
    /// The parser's state for the parts behind it, in the worker's table of such frames.
    pub parts: Option<Key>,
}

/// Bytes left of a body that ends with its connection.
pub const UNTIL_CLOSE: u64 = u64::MAX;

impl RemainingBody {
    /// Whether all of it has come.
    pub fn is_over(self) -> bool {
        self.bytes_left == 0 && self.parts.is_none()
    }

    /// Whether only the end of its connection ends it.
    pub fn is_until_close(self) -> bool {
        self.bytes_left == UNTIL_CLOSE
    }

    /// The body when `bytes` more of its part have come.
    pub fn after(self, bytes: u32) -> Self {
        match self.bytes_left {
            UNTIL_CLOSE => self,
            left => Self { bytes_left: left - u64::from(bytes), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RemainingBody, UNTIL_CLOSE};

    #[test]
    fn a_body_until_the_end_never_shrinks() {
        let plain = RemainingBody { bytes_left: 10, parts: None };
        assert_eq!(plain.after(4).bytes_left, 6);
        assert!(plain.after(10).is_over());
        let endless = RemainingBody { bytes_left: UNTIL_CLOSE, parts: None };
        assert!(endless.after(u32::MAX).is_until_close());
    }
}
