//! A worker's wait for events: it polls for `busy-poll`, if that is set, then sleeps.
//! Promises: with work it does not wait; time spent polling counts as idle where workers compare their loads.
//! Refuses: polling in the simulator and where services share a thread, whose time it would take.

use std::time::Duration;

use flick_net::{Driver, DriverEvent, monotonic_ns};

use super::Worker;
use crate::overload::batch_trial::TrialResult;

impl<D: Driver> Worker<D> {
    /// Polls the driver, waiting at most `wait`. `is_idle`: no task is runnable.
    pub(super) fn poll(
        &mut self,
        wait: Option<Duration>,
        is_idle: bool,
        events: &mut Vec<DriverEvent>,
    ) -> std::io::Result<()> {
        if let Some(balance) = self.listeners.balancer()
            && is_idle
        {
            balance.is_idle(Some(self.io.now_ns()));
        }
        let left = if is_idle && self.clock.busy_poll_max_ns() > 0 {
            self.busy_poll(wait, events)?
        } else {
            Some(wait)
        };
        if let Some(wait) = left {
            let before_ns = self.io.driver().waited_ns();
            self.io.poll(wait, events)?;
            self.clock.extend_iteration(self.io.driver().waited_ns() - before_ns);
        }
        if let Some(stats) = self.io.driver().shm_stats() {
            self.observe.counters().publish_shm(stats);
        }
        if let Some(balance) = self.listeners.balancer_mut() {
            balance.is_idle(None);
            balance.iteration(self.io.now_ns(), self.io.driver().waited_ns() + self.clock.busy_polled_ns());
        }
        Ok(())
    }

    /// Goes on with the trial of the batch delay, when it is time.
    #[inline]
    pub(super) fn try_batch_delay(&mut self) {
        let counters = self.observe.counters();
        match self.clock.try_batch_delay(counters.requests.get(), self.io.now_ns()) {
            Some(TrialResult::Kept) => counters.batch_trials_kept.add(1),
            Some(TrialResult::Dropped) => counters.batch_trials_dropped.add(1),
            None => {}
        }
    }

    /// Polls until an event has arrived or `busy-poll` is over. Returns how long to sleep then, if no event has
    /// arrived.
    fn busy_poll(
        &mut self,
        wait: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> std::io::Result<Option<Option<Duration>>> {
        let begun_ns = monotonic_ns();
        let most_ns = wait.map_or(self.clock.busy_poll_max_ns(), |wait| {
            self.clock.busy_poll_max_ns().min(wait.as_nanos() as u64)
        });
        // Each poll takes time, so the clock bounds their number.
        loop {
            self.io.poll(Some(Duration::ZERO), events)?;
            let passed_ns = monotonic_ns().saturating_sub(begun_ns);
            if !events.is_empty() {
                self.clock.note_busy_poll(passed_ns);
                return Ok(None);
            }
            if passed_ns >= most_ns {
                self.clock.note_busy_poll(passed_ns);
                return Ok(Some(wait.map(|wait| wait.saturating_sub(Duration::from_nanos(passed_ns)))));
            }
        }
    }
}
