//! The end of polling: which connections and pairs are looked at in every poll, and how they
//! begin to sleep.
//! A connection that was active is looked at in every poll. After [`SHM_IDLE_LOOKS_MAX`] looks at an empty ring, or
//! when the thread is about to sleep, its sleep word is stored: the other side then sets its ready bit. A pair whose
//! ready bits stay empty is put to sleep likewise: the other side then signals through the socket.

use flick_shm::sleep::Fencing;

use super::{ShmPart, ShmTransport};
use crate::conn::Conn;
use crate::limits::SHM_IDLE_LOOKS_MAX;

impl ShmTransport {
    /// Looks at a connection in every poll from now on.
    pub(super) fn poll_again(&mut self, index: u32) {
        self.polled.push(index);
    }

    /// Looks at all connections that were active lately.
    pub(super) fn look_at_polled(&mut self, may_rest: bool) {
        let mut is_any_idle = false;
        for _ in 0..self.polled.len() {
            let Some(index) = self.polled.pop() else { break };
            let (Some(conn), Some(ring)) = (self.conns.at_mut(index), &mut self.rings[index as usize]) else {
                continue;
            };
            if is_watched(conn) && !matches!(ring.is_idle(), Ok(true)) {
                conn.part.idle_looks = 0;
                self.conns.ready.push(index);
                continue;
            }
            conn.part.idle_looks += u32::from(may_rest);
            is_any_idle |= conn.part.idle_looks >= SHM_IDLE_LOOKS_MAX;
            self.polled.push(index);
        }
        if may_rest && is_any_idle {
            self.rest_polled(SHM_IDLE_LOOKS_MAX);
        }
    }

    /// Returns whether rings of other processes are looked at in a poll, so that those need not signal.
    pub(crate) fn is_awake(&self) -> bool {
        !self.pairs.has_internal && (!self.polled.is_empty() || self.pairs.is_any_awake())
    }

    /// Prepares a wait in the kernel. `false`: something is to be done first.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        self.pairs.announce_sleep();
        let is_quiet = self.rest_polled(0);
        self.pairs.confirm_sleep(is_quiet)
    }

    /// Stores the sleep words of polled connections that found their ring empty at least `looks_min` times. Returns
    /// whether none of them has anything to do.
    fn rest_polled(&mut self, looks_min: u32) -> bool {
        let Self { polled, conns, rings, sleepers, .. } = self;
        sleepers.clear();
        let mut needs_barrier = false;
        let mut is_quiet = true;
        for _ in 0..polled.len() {
            let Some(index) = polled.pop() else { break };
            let (Some(conn), Some(ring)) = (conns.at(index), &mut rings[index as usize]) else { continue };
            if conn.part.idle_looks < looks_min {
                polled.push(index);
            } else if ring.announce_sleep().is_err() {
                // Serving it finds the fault again.
                conns.ready.push(index);
                is_quiet = false;
            } else {
                needs_barrier |= ring.needs_barrier();
                sleepers.push(index);
            }
        }
        // The barrier of one kind does not replace the other.
        let can_rest = Fencing::Both.before_sleep() && (!needs_barrier || Fencing::Sleeper.before_sleep());
        for index in sleepers.drain(..) {
            let (Some(conn), Some(ring)) = (conns.at(index), &mut rings[index as usize]) else { continue };
            let is_idle = can_rest && (!is_watched(conn) || matches!(ring.is_idle(), Ok(true)));
            if can_rest {
                ring.note_barrier();
            }
            if !is_idle {
                ring.cancel_sleep();
                polled.push(index);
                conns.ready.push(index);
                is_quiet = false;
            }
        }
        is_quiet
    }
}

/// Returns whether input of a connection is taken, or thrown away.
fn is_watched(conn: &Conn<ShmPart>) -> bool {
    conn.awaits_input() || conn.is_lingering() || conn.part.is_claim
}
