//! Settings that an operator or a controller changes while a service runs.
//! Promises: a worker reads them once per loop iteration, so a change holds for whole iterations; reading costs one
//! load of a cache line that no worker writes; values out of range are refused, and none is changed then.
//! Not here: settings that size tables or buffers. They are fixed when a worker is built.
//!
//! The handle is an `Arc<Tunables>`, from [`RunningService::tunables`](crate::RunningService::tunables) or
//! [`ServiceStats::tunables`](crate::ServiceStats::tunables):
//!
//! ```ignore
//! let now: TunableValues = service.tunables().get();
//! service.tunables().set(&TunableChanges { busy_poll: Some(Duration::from_micros(50)), ..Default::default() })?;
//! ```
//!
//! A reload starts a new generation with the values of its settings file. A change takes effect in a worker's next
//! iteration; a sleeping worker need not be woken, as no tunable concerns a worker that has nothing to do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::Limits;
use crate::limits::{BATCH_DELAY_MAX, BUSY_POLL_MAX, OVERLOAD_QUEUE_DELAY_MAX, TIME_SLICE_MAX};

/// The tunables of a service, shared by its workers.
#[derive(Debug)]
#[repr(align(128))]
pub struct Tunables {
    /// Counts changes, so that a worker reads one word per iteration.
    version: AtomicU64,
    busy_poll_ns: AtomicU64,
    batch_delay_max_ns: AtomicU64,
    time_slice_ns: AtomicU64,
    overload_queue_delay_ns: AtomicU64,
}

/// The values of all tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunableValues {
    /// Longest time a worker polls before it sleeps; zero: it sleeps at once. No effect where services share threads.
    pub busy_poll: Duration,
    /// Longest time a busy worker waits to batch messages; zero: it never waits. No effect where services share
    /// threads, and for merges.
    pub batch_delay_max: Duration,
    /// Longest time one task runs before the next one, with cooperative scheduling.
    pub time_slice: Duration,
    /// Target queueing delay per worker above which it sheds load; zero: it sheds none.
    pub overload_queue_delay: Duration,
}

/// Changes of tunables; `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunableChanges {
    /// See [`TunableValues::busy_poll`]; at most [`BUSY_POLL_MAX`].
    pub busy_poll: Option<Duration>,
    /// See [`TunableValues::batch_delay_max`]; at most [`BATCH_DELAY_MAX`].
    pub batch_delay_max: Option<Duration>,
    /// See [`TunableValues::time_slice`]; at most [`TIME_SLICE_MAX`].
    pub time_slice: Option<Duration>,
    /// See [`TunableValues::overload_queue_delay`]; at most [`OVERLOAD_QUEUE_DELAY_MAX`].
    pub overload_queue_delay: Option<Duration>,
}

/// Error of a change that sets an option beyond its largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunableOutOfRange {
    /// Its name, such as `busy_poll`.
    pub name: &'static str,
    /// Its largest value.
    pub max: Duration,
}

impl std::fmt::Display for TunableOutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is at most {:?}", self.name, self.max)
    }
}

impl std::error::Error for TunableOutOfRange {}

impl Tunables {
    /// The tunables of a service with these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            version: AtomicU64::new(0),
            busy_poll_ns: AtomicU64::new(nanos(limits.busy_poll.min(BUSY_POLL_MAX))),
            batch_delay_max_ns: AtomicU64::new(nanos(limits.batch_delay_max)),
            time_slice_ns: AtomicU64::new(nanos(limits.time_slice)),
            overload_queue_delay_ns: AtomicU64::new(nanos(limits.overload_queue_delay)),
        }
    }

    /// The present values.
    pub fn get(&self) -> TunableValues {
        let read = |value: &AtomicU64| Duration::from_nanos(value.load(Ordering::Relaxed));
        TunableValues {
            busy_poll: read(&self.busy_poll_ns),
            batch_delay_max: read(&self.batch_delay_max_ns),
            time_slice: read(&self.time_slice_ns),
            overload_queue_delay: read(&self.overload_queue_delay_ns),
        }
    }

    /// Changes values; workers use them from their next iteration on. Returns the values now.
    ///
    /// Errors: [`TunableOutOfRange`]; no value is changed then.
    pub fn set(&self, changes: &TunableChanges) -> Result<TunableValues, TunableOutOfRange> {
        let each = [
            ("busy_poll", changes.busy_poll, BUSY_POLL_MAX, &self.busy_poll_ns),
            ("batch_delay_max", changes.batch_delay_max, BATCH_DELAY_MAX, &self.batch_delay_max_ns),
            ("time_slice", changes.time_slice, TIME_SLICE_MAX, &self.time_slice_ns),
            (
                "overload_queue_delay",
                changes.overload_queue_delay,
                OVERLOAD_QUEUE_DELAY_MAX,
                &self.overload_queue_delay_ns,
            ),
        ];
        if let Some((name, _, max, _)) =
            each.iter().find(|(_, value, max, _)| value.is_some_and(|it| it > *max))
        {
            return Err(TunableOutOfRange { name, max: *max });
        }
        for (_, value, _, target) in each {
            if let Some(value) = value {
                target.store(nanos(value), Ordering::Relaxed);
            }
        }
        // A worker that reads the new version reads the new values.
        self.version.fetch_add(1, Ordering::Release);
        Ok(self.get())
    }

    /// The values, if they have changed since version `seen`, which becomes the present one.
    pub(crate) fn changed_since(&self, seen: &mut u64) -> Option<TunableValues> {
        let version = self.version.load(Ordering::Acquire);
        (version != std::mem::replace(seen, version)).then(|| self.get())
    }
}

fn nanos(value: Duration) -> u64 {
    u64::try_from(value.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{TunableChanges, TunableOutOfRange, Tunables};
    use crate::config::Limits;
    use crate::limits::BUSY_POLL_MAX;
    use std::time::Duration;

    #[test]
    fn a_change_is_read_once_and_keeps_the_other_values() {
        let tunables = Tunables::new(&Limits::default());
        let (before, mut seen) = (tunables.get(), 0);
        assert_eq!(tunables.changed_since(&mut seen), None);
        let changes = TunableChanges { busy_poll: Some(Duration::from_micros(50)), ..Default::default() };
        let after = tunables.set(&changes).expect("50 us are in range");
        assert_eq!((after.busy_poll, after.time_slice), (Duration::from_micros(50), before.time_slice));
        assert_eq!(tunables.changed_since(&mut seen), Some(after));
        assert_eq!(tunables.changed_since(&mut seen), None);
    }

    #[test]
    fn a_value_out_of_range_changes_nothing() {
        let tunables = Tunables::new(&Limits::default());
        let before = tunables.get();
        let busy_poll = Some(BUSY_POLL_MAX + Duration::from_nanos(1));
        let changes =
            TunableChanges { busy_poll, time_slice: Some(Duration::from_micros(7)), ..Default::default() };
        let error = tunables.set(&changes);
        assert_eq!(error, Err(TunableOutOfRange { name: "busy_poll", max: BUSY_POLL_MAX }));
        assert_eq!((tunables.get(), tunables.changed_since(&mut 0)), (before, None));
    }
}
