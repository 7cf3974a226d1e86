//! How a worker waits for its next turn: looking again and again for a while, if the operator wants that, then asleep.
//! Promises: with something to do it does not wait; what it spins counts as rest where workers compare how busy they are.
//! Refuses: spinning in the simulator and where services share a thread: its time would be everybody's.

use std::time::Duration;

use flick_net::{Driver, Event, monotonic_ns};

use super::Worker;

impl<D: Driver> Worker<D> {
    /// Asks the driver what has arrived, and waits for it at most so long. `rests`: no task is runnable.
    pub(super) fn poll(
        &mut self,
        wait: Option<Duration>,
        rests: bool,
        events: &mut Vec<Event>,
    ) -> std::io::Result<()> {
        if let Some(balance) = &self.balance
            && rests
        {
            balance.rests(Some(self.driver.now_ns()));
        }
        let left = if rests && self.spin_ns > 0 { self.spin(wait, events)? } else { Some(wait) };
        if let Some(wait) = left {
            self.driver.poll(&self.pool, wait, events)?;
        }
        if let Some(balance) = &mut self.balance {
            balance.rests(None);
            balance.turn(self.driver.now_ns(), self.driver.waited_ns() + self.spun_ns);
        }
        Ok(())
    }

    /// Looks until something has arrived or the time for it is over; how long to sleep then, unless something has.
    fn spin(
        &mut self,
        wait: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> std::io::Result<Option<Option<Duration>>> {
        let begun_ns = monotonic_ns();
        let most_ns = wait.map_or(self.spin_ns, |wait| self.spin_ns.min(wait.as_nanos() as u64));
        // Each look takes its time, so the clock bounds how many there are.
        loop {
            self.driver.poll(&self.pool, Some(Duration::ZERO), events)?;
            let passed_ns = monotonic_ns().saturating_sub(begun_ns);
            if !events.is_empty() {
                self.spun_ns += passed_ns;
                return Ok(None);
            }
            if passed_ns >= most_ns {
                self.spun_ns += passed_ns;
                return Ok(Some(wait.map(|wait| wait.saturating_sub(Duration::from_nanos(passed_ns)))));
            }
        }
    }
}
