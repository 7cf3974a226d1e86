//! A worker that shares its thread with those of other services: the scheduler sleeps for it, its iterations are short,
//! and it adopts connections that the thread has accepted.
//! Promises: an iteration ends soon after its time is over, between two tasks; what is left runs in the next.
//! Refuses: batch delay, which would delay the other services.

use std::os::fd::OwnedFd;
use std::time::Duration;

use flick_net::{AnyDriver, Driver, PeerAddr};

use super::Worker;
use crate::limits::CPU_WEIGHT_MAX;

/// Bounds of one scheduling quantum.
pub struct Quantum {
    /// Length of the quantum.
    pub length_ns: u64,
    /// Events that are taken.
    pub events_max: usize,
    /// Bytes that are sent.
    pub sent_bytes_max: usize,
}

impl Worker<AnyDriver> {
    /// Prepares the worker to share its thread. Of the services of one program, one `sweeps` their dictionaries.
    pub(crate) fn share_thread(&mut self, sweeps: bool) {
        self.listeners.stop_balancing();
        self.clock.share_thread();
        if !sweeps {
            self.rules.never_sweep();
        }
    }

    /// Its weight among the services of the thread, and its maximum share of the thread, in percent.
    pub(crate) fn share(&self) -> (u32, u32) {
        let limits = &self.ctx.setup().limits;
        (limits.cpu_weight.clamp(1, CPU_WEIGHT_MAX), limits.cpu_max_percent.clamp(1, 100))
    }

    /// The driver, for waiting on it.
    pub(crate) fn driver_ref(&self) -> &AnyDriver {
        self.io.driver()
    }

    /// Returns the time, by the driver's clock, at which it must run although no event arrives: 0 is at once, `None`
    /// never.
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

    /// Runs one iteration without waiting. `flushes`: replies are sent at its end, not at the beginning of the next
    /// one, before which other services run; so are they when there is nothing else to do.
    pub(crate) fn short_iteration(&mut self, quantum: &Quantum, flushes: bool) -> std::io::Result<bool> {
        let goes_on = self.waiting_iteration(Some(Duration::ZERO), quantum)?;
        if flushes || self.is_idle() {
            self.io.driver_mut().flush()?;
        }
        Ok(goes_on)
    }

    /// Runs one iteration, before which it waits at most `wait` for events. Its replies are sent by the next one.
    pub(crate) fn waiting_iteration(
        &mut self,
        wait: Option<Duration>,
        quantum: &Quantum,
    ) -> std::io::Result<bool> {
        self.io.driver_mut().limit_poll(quantum.events_max, quantum.sent_bytes_max);
        self.clock.limit_iteration(Duration::from_nanos(quantum.length_ns));
        self.run_once(wait)
    }

    /// Adopts a client that the thread accepted on an address of several services.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, peer: PeerAddr) {
        match self.io.driver_mut().adopt(socket) {
            Ok(conn) => {
                self.io.set_peer(conn, peer);
                self.accepted(conn);
            }
            // The table of connections is full, so it is rejected whatever `on-max-connections` says.
            Err(_) => self.observe.counters().connections_rejected.add(1),
        }
    }

    /// Counts an iteration and its processor time.
    pub(crate) fn note_iteration(&self, busy_ns: u64) {
        self.observe.counters().loops.add(1);
        self.observe.counters().busy_ns.add(busy_ns);
    }

    /// Counts a wait because its maximum share of the processor time is used up.
    pub(crate) fn note_throttled(&self) {
        self.observe.counters().cpu_throttled.add(1);
    }

    /// Counts clients of an address of several services that sent nothing in time, or nothing that any service knows.
    pub(crate) fn note_strangers(&self, silent: u64, unknown: u64) {
        self.observe.counters().first_byte_timeouts.add(silent);
        self.observe.counters().protocol_errors_client.add(unknown);
    }
}
