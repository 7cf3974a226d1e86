//! Times within an iteration, by the processor's counter: the kernel's clock takes as long as a short rule.
//! Promises: where the rate of the counter changes by more than half, the clock is used until it has been measured
//! again.

use std::time::Duration;

use flick_net::{TickCounter, monotonic_ns};

/// Nanoseconds over which the rate of the counter is measured first, and again.
const FIRST_SPAN_NS: u64 = 10_000_000;
const SPAN_NS: u64 = 1_000_000_000;

/// A point in time. Those from before a call of [`Stopwatch::measure`] cannot be compared with later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u64);

/// Measures short times.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    counter: Option<TickCounter>,
    /// Ticks of the counter in a microsecond; `None`: not measured yet, and a tick is a nanosecond of the clock.
    per_us: Option<u64>,
    /// Begin of the measurement of the rate: ticks, and nanoseconds of the clock.
    from: (u64, u64),
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        let counter = TickCounter::find();
        let ticks = counter.map_or(0, TickCounter::read);
        Self { counter, per_us: None, from: (ticks, monotonic_ns()) }
    }

    /// Returns the present time.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        match (self.per_us, self.counter) {
            (Some(_), Some(counter)) => Tick(counter.read()),
            _ => Tick(monotonic_ns()),
        }
    }

    /// Returns the time `length` after `begin`.
    #[inline]
    pub(crate) fn after(&self, begin: Tick, length: Duration) -> Tick {
        let length_ns = length.as_nanos() as u64;
        let ticks = self.per_us.map_or(length_ns, |per_us| length_ns.saturating_mul(per_us) / 1000);
        Tick(begin.0.saturating_add(ticks))
    }

    /// Measures how long a tick is, now and then. `about_ns`: the clock's time, as far as it is known.
    #[inline]
    pub(crate) fn measure(&mut self, about_ns: u64) {
        let span_ns = if self.per_us.is_some() { SPAN_NS } else { FIRST_SPAN_NS };
        if let Some(counter) = self.counter
            && about_ns.saturating_sub(self.from.1) >= span_ns
        {
            self.measure_with(counter.read(), monotonic_ns());
        }
    }

    fn measure_with(&mut self, ticks: u64, now_ns: u64) {
        let (from_ticks, from_ns) = std::mem::replace(&mut self.from, (ticks, now_ns));
        let elapsed_ns = now_ns.saturating_sub(from_ns).max(1);
        let per_us = ticks.saturating_sub(from_ticks).saturating_mul(1000) / elapsed_ns;
        // The counter of another core may have stood elsewhere, and the machine may have been asleep.
        let is_likely = per_us > 0 && self.per_us.is_none_or(|last| (last / 2..=last * 2).contains(&per_us));
        self.per_us = is_likely.then_some(per_us);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{FIRST_SPAN_NS, Stopwatch};
    use flick_net::monotonic_ns;

    /// Whether a time of 2 ms, by the stopwatch, is between 1.5 ms and much too long by the clock.
    fn is_right(watch: &Stopwatch) -> bool {
        let (begin, end) = (Instant::now(), watch.after(watch.now(), Duration::from_millis(2)));
        while watch.now() < end {
            std::hint::spin_loop();
        }
        (Duration::from_micros(1500)..Duration::from_secs(5)).contains(&begin.elapsed())
    }

    #[test]
    fn times_are_those_of_the_clock() {
        let mut watch = Stopwatch::new();
        assert!(watch.per_us.is_none() && is_right(&watch));
        while monotonic_ns() - watch.from.1 < FIRST_SPAN_NS {
            std::hint::spin_loop();
        }
        watch.measure(monotonic_ns());
        assert_eq!(watch.per_us.is_some(), watch.counter.is_some());
        assert!(is_right(&watch), "{watch:?}");
    }

    #[test]
    fn rate_follows_the_counter() {
        let mut watch = Stopwatch { counter: None, per_us: None, from: (1_000, 5_000) };
        watch.measure_with(1_000 + 26_000, 5_000 + 10_000);
        assert_eq!(watch.per_us, Some(2600));
        assert_eq!(watch.after(super::Tick(7), Duration::from_micros(10)), super::Tick(26_007));
        // The counter of another core stands lower: the clock is used until the next measurement.
        watch.measure_with(20, 30_000);
        assert_eq!(watch.per_us, None);
    }
}
