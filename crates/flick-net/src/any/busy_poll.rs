//! Busy polling of rings before a sleep: a process that answers at once answers sooner than this one could fall asleep
//! and be woken, and needs not wake it.
//! Promises: sockets, wakers and other processes wait for [`SHM_BUSY_POLL_KERNEL_NS`] at most; a driver without rings
//! that were active since the last sleep sleeps at once; other threads of the core run first.
//! Refuses: waits that end sooner than the time to poll; services with filters, whose threads copy in large pieces; the
//! simulator, whose clock stands still in a poll.

use std::io;
use std::time::Duration;

use flick_buffers::Pool;
use flick_shm::busy_poll::BusyPoll;

use super::{AnyDriver, KernelDriver};
use crate::driver::{Driver, DriverEvent};
use crate::limits::SHM_BUSY_POLL_KERNEL_NS;

impl AnyDriver {
    /// Makes waits busy-poll rings that were active since the last sleep, for at most `time_us` microseconds; 0:
    /// they sleep at once, as they do by default.
    pub fn busy_poll_rings(&mut self, time_us: u32) {
        self.busy_poll = BusyPoll::new(time_us);
    }

    /// Looks at the rings that were active lately, and now and then at the kernel, before a wait sleeps. Returns
    /// whether the wait is over.
    pub(super) fn busy_poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<bool> {
        let time_ns = self.busy_poll.time_ns();
        let is_short = timeout.is_some_and(|timeout| timeout.as_nanos() <= u128::from(time_ns));
        if time_ns == 0 || is_short || !self.shm.is_awake() {
            return Ok(false);
        }
        // What waits to be sent is sent by a poll.
        either!(self, driver => driver.flush())?;
        let events_max = either!(self, driver => driver.bounds_mut()).0.events_max;
        let (begun_ns, before) = (self.shm.clock.now_ns(), events.len());
        let mut kernel_due_ns = (self.kernel_polled_ns + SHM_BUSY_POLL_KERNEL_NS).saturating_sub(begun_ns);
        let mut busy_poll = self.busy_poll;
        let is_over = busy_poll.run(|elapsed_ns| {
            if elapsed_ns >= kernel_due_ns {
                kernel_due_ns = elapsed_ns + SHM_BUSY_POLL_KERNEL_NS;
                self.poll_kernel_beside(pool, Some(Duration::ZERO), events, events_max)?;
            }
            self.shm.look(false);
            Ok::<bool, io::Error>(self.shm.has_work(pool) || events.len() > before)
        });
        self.busy_poll = busy_poll;
        let now_ns = self.shm.clock.now_ns();
        self.busy_polled_ns += now_ns.saturating_sub(begun_ns);
        if is_over? {
            self.shm.begin_poll(now_ns);
            self.serve_shm(pool, events, events_max - (events.len() - before));
            return Ok(true);
        }
        Ok(false)
    }
}
