//! A worker that shares its thread with those of other services: it is asked when it wants a turn instead of sleeping
//! itself, its turns are short, and connections are handed to it that others accepted.
//! Promises: a turn ends soon after its time is over, between two tasks; what is left runs in the next.
//! Refuses: gathering, whose wait would be everybody's.

use std::os::fd::OwnedFd;
use std::time::Duration;

use flick_net::{AnyDriver, Driver, PeerAddr};

use super::Worker;
use crate::limits::CPU_WEIGHT_MAX;

impl Worker<AnyDriver> {
    /// Prepares it to share its thread. Of the services of one program, one `sweeps` what they share.
    pub(crate) fn share_thread(&mut self, sweeps: bool) {
        self.listeners.balance = None;
        self.clock.share_thread();
        if !sweeps {
            self.rules.never_sweep();
        }
    }

    /// Its weight among those who share the thread, and its part of the thread at most, in percent.
    pub(crate) fn share(&self) -> (u32, u32) {
        let limits = &self.ctx.setup().limits;
        (limits.cpu_weight.clamp(1, CPU_WEIGHT_MAX), limits.cpu_max_percent.clamp(1, 100))
    }

    /// The driver, for waiting on it.
    pub(crate) fn driver_ref(&self) -> &AnyDriver {
        self.io.driver()
    }

    /// When it wants its next turn though nothing arrives, by the driver's clock: 0 is at once, `None` never.
    pub(crate) fn quantum_due_ns(&mut self) -> Option<u64> {
        if !self.is_idle() {
            return Some(0);
        }
        let wait = self.wait_time();
        let wait = self.io.poll_timeout(wait)?;
        if wait.is_zero() {
            return Some(0);
        }
        Some(self.io.now_ns().saturating_add(wait.as_nanos() as u64))
    }

    /// One turn without waiting, of about this length and with so many events at most. `flushes`: what was answered leaves behind
    /// it, and not at the beginning of the next one, before which others have theirs.
    pub(crate) fn short_iteration(
        &mut self,
        length: Duration,
        events_max: usize,
        sent_bytes_max: usize,
        flushes: bool,
    ) -> std::io::Result<bool> {
        self.io.driver_mut().limit_poll(events_max, sent_bytes_max);
        self.clock.limit_iteration(length);
        let goes_on = self.run_once(Some(Duration::ZERO))?;
        if flushes {
            self.io.driver_mut().flush()?;
        }
        Ok(goes_on)
    }

    /// Takes a client over that came to an address of several services.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, peer: PeerAddr) {
        match self.io.driver_mut().adopt(socket) {
            Ok(conn) => {
                self.io.set_peer(conn, peer);
                self.accepted(conn);
            }
            // There is no place to keep it in: it is refused whatever happens with others who come too early.
            Err(_) => self.observe.counters().connections_rejected.add(1),
        }
    }

    /// Counts a turn and how long it took.
    pub(crate) fn note_iteration(&self, busy_ns: u64) {
        self.observe.counters().loops.add(1);
        self.observe.counters().busy_ns.add(busy_ns);
    }

    /// Counts a wait for its share of the processor.
    pub(crate) fn note_wait(&self) {
        self.observe.counters().cpu_throttled.add(1);
    }

    /// Counts who came to an address of several services and said nothing, or nothing that any of them knows.
    pub(crate) fn note_strangers(&self, silent: u64, unknown: u64) {
        self.observe.counters().first_byte_timeouts.add(silent);
        self.observe.counters().protocol_errors_client.add(unknown);
    }
}
