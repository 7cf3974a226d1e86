//! The buffer that receives go into: one for all connections of a driver, filled front to back.
//! Promises: many small receives share one large buffer; an idle connection holds none; a buffer whose views
//! are all gone starts over in place, so a quiet service keeps using the same warm lines.
//! Refuses: waiting. No buffer left is `None`, and the driver pauses the connection.

use flick_buffers::{Buf, Class, Pool};

use crate::limits::RECEIVE_SPARE_MIN;

/// The current receive buffer.
#[derive(Default)]
pub(crate) struct Intake {
    current: Option<Buf>,
}

impl Intake {
    /// A buffer with at least [`RECEIVE_SPARE_MIN`] bytes of room.
    pub(crate) fn room(&mut self, pool: &Pool) -> Option<&Buf> {
        let usable = match &mut self.current {
            Some(buf) => buf.reset() || buf.spare() >= RECEIVE_SPARE_MIN,
            None => false,
        };
        if !usable {
            // Given up first: its views keep it alive, and if there are none it is the one to come back.
            self.current = None;
            self.current = pool.alloc(Class::Large);
        }
        self.current.as_ref()
    }

    /// Says whether [`Intake::room`] would find a buffer now.
    pub(crate) fn has_room(&self, pool: &Pool) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|buf| buf.is_unique() || buf.spare() >= RECEIVE_SPARE_MIN)
            || pool.free_count(Class::Large) > 0
    }
}
