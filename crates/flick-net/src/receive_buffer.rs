//! The buffer that receives fill: one for all connections of a driver, from front to back.
//! Promises: many small receives share one large buffer; an idle connection holds none; a buffer without slices starts
//! over, so a quiet service reuses the same warm cache lines.
//! Refuses: waiting. Without a free buffer it returns `None`, and the driver pauses the connection.

use flick_buffers::{Buf, BufClass, Pool};

use crate::limits::RECEIVE_SPARE_MIN;

/// The current receive buffer of a driver.
#[derive(Default)]
pub(crate) struct ReceiveBuffer {
    current: Option<Buf>,
}

impl ReceiveBuffer {
    /// Returns a buffer with at least [`RECEIVE_SPARE_MIN`] spare bytes.
    pub(crate) fn get(&mut self, pool: &Pool) -> Option<&Buf> {
        let usable = match &mut self.current {
            Some(buf) => buf.reset() || buf.spare() >= RECEIVE_SPARE_MIN,
            None => false,
        };
        if !usable {
            // Dropped first: without slices it goes back to the pool, and may be the one that `alloc` returns.
            self.current = None;
            self.current = pool.alloc(BufClass::Large);
        }
        self.current.as_ref()
    }

    /// Returns whether [`ReceiveBuffer::get`] would find a buffer now.
    pub(crate) fn is_available(&self, pool: &Pool) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|buf| buf.is_unique() || buf.spare() >= RECEIVE_SPARE_MIN)
            || pool.free_count(BufClass::Large) > 0
    }
}
