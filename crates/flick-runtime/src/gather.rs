//! Gathering: under load, a worker waits a moment before it looks again, so that one turn serves many messages.
//! Promises: no wait unless the recent rate says that several messages arrive within it; none when what has arrived
//! is enough already; the wait is bounded by `Limits::gather_max`.
//! Refuses: the simulator, where nothing is gained by waiting.
//! Source: interrupt moderation of network cards, one floor up. What a turn costs, and each write to a backend, is
//! shared by all messages of the turn; `docs/decisions/0010-gathering.md` has figures.

use std::time::Duration;

/// Messages that make a turn worth its cost: with this many at hand nothing is waited for.
const GATHER_ENOUGH: usize = 32;
/// Messages that must be expected within the longest wait, or there is none.
const GATHER_EXPECTED_MIN: u64 = 6;
/// Time over which the rate is taken.
const RATE_WINDOW_NS: u64 = 1_000_000;

/// When and how long to wait.
#[derive(Debug)]
pub struct Gather {
    wait_max_ns: u64,
    wait_ns: u64,
    window_from_ns: u64,
    window_messages: u64,
}

impl Gather {
    /// Waits at most `wait_max`; zero: never.
    pub fn new(wait_max: Duration) -> Self {
        Self { wait_max_ns: wait_max.as_nanos() as u64, wait_ns: 0, window_from_ns: 0, window_messages: 0 }
    }

    /// Notes that `messages` arrived in a turn.
    pub fn note(&mut self, messages: usize, now_ns: u64) {
        self.window_messages += messages as u64;
        let window_ns = now_ns.saturating_sub(self.window_from_ns);
        if window_ns < RATE_WINDOW_NS {
            return;
        }
        let expected = self.window_messages.saturating_mul(self.wait_max_ns) / window_ns;
        self.wait_ns = if expected < GATHER_EXPECTED_MIN {
            0
        } else {
            (self.wait_max_ns * GATHER_ENOUGH as u64 / expected).min(self.wait_max_ns)
        };
        self.window_from_ns = now_ns;
        self.window_messages = 0;
    }

    /// How long to wait when `messages` are at hand.
    pub fn wait(&self, messages: usize) -> Option<Duration> {
        (self.wait_ns > 0 && messages < GATHER_ENOUGH).then(|| Duration::from_nanos(self.wait_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{GATHER_ENOUGH, Gather};

    const MAX: Duration = Duration::from_micros(100);

    /// The wait after one window with `messages` in `window_ns`.
    fn check(messages: usize, window_ns: u64, expected: Option<Duration>) {
        let mut gather = Gather::new(MAX);
        gather.note(0, 5_000_000);
        gather.note(messages, 5_000_000 + window_ns);
        assert_eq!(gather.wait(0), expected, "{messages} messages in {window_ns} ns");
        assert_eq!(gather.wait(GATHER_ENOUGH), None, "enough is at hand");
    }

    #[test]
    fn a_quiet_service_never_waits() {
        check(0, 1_000_000, None);
        check(20, 1_000_000, None);
    }

    #[test]
    fn a_busy_service_waits_as_long_as_it_pays() {
        check(100, 1_000_000, Some(MAX));
        check(640, 1_000_000, Some(MAX / 2));
    }

    #[test]
    fn zero_switches_it_off() {
        let mut gather = Gather::new(Duration::ZERO);
        gather.note(1_000_000, 9_000_000);
        assert_eq!(gather.wait(0), None);
    }
}
