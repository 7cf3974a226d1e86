//! Batch delay: under load, a worker waits a moment before it polls again, so that one iteration serves many messages.
//! Promises: no wait unless the recent rate says that several messages arrive within it; none when what has arrived
//! is enough already; the wait is bounded by `Limits::batch_delay_max`.
//! Not here: whether a wait pays ([`super::batch_trial`]).
//! Refuses: the simulator, where waiting gains nothing, and long messages: their cost is their bytes, and while the
//! worker waits their peers are blocked with full buffers.
//! Source: interrupt moderation of network cards, one layer up. The cost of an iteration, and of each write to a
//! backend, is shared by all its messages; `docs/decisions/0010-batching-delay.md` has figures.

use std::time::Duration;

use flick_net::DriverEvent;

/// Messages that make an iteration worth its cost: with this many the worker does not wait.
const BATCH_ENOUGH: usize = 32;
/// Messages that must be expected within the longest wait, or there is none.
const BATCH_EXPECTED_MIN: u64 = 6;
/// A piece so long is of a long message.
const LONG_PIECE_BYTES: u32 = 4096;
/// Time over which the rate is taken.
const RATE_WINDOW_NS: u64 = 1_000_000;

/// Events that arrived in an iteration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// Events, which are messages as far as rates go.
    messages: usize,
    /// Pieces of long messages among them.
    long_pieces: usize,
    /// Another thread has woken the worker.
    pub woken: bool,
}

impl Arrivals {
    /// Notes one event.
    pub fn note(&mut self, event: &DriverEvent) {
        self.messages += 1;
        self.woken |= matches!(event, DriverEvent::Woken);
        if let DriverEvent::Data { data, .. } = event {
            self.long_pieces += usize::from(data.len() >= LONG_PIECE_BYTES);
        }
    }
}

/// Batch delay of a worker, adapted to the recent rate of messages.
#[derive(Debug)]
pub struct BatchDelay {
    wait_max_ns: u64,
    wait_ns: u64,
    window_from_ns: u64,
    window_messages: u64,
}

impl BatchDelay {
    /// Waits at most `wait_max`; zero: never.
    pub fn new(wait_max: Duration) -> Self {
        Self { wait_max_ns: wait_max.as_nanos() as u64, wait_ns: 0, window_from_ns: 0, window_messages: 0 }
    }

    /// Waits at most `wait_max` from now on; zero: never.
    pub fn set_max(&mut self, wait_max: Duration) {
        self.wait_max_ns = wait_max.as_nanos() as u64;
        self.wait_ns = self.wait_ns.min(self.wait_max_ns);
    }

    /// Notes what arrived in an iteration. Pieces of long messages are no sign that waiting pays.
    pub fn note(&mut self, arrived: Arrivals, now_ns: u64) {
        self.window_messages += (arrived.messages - arrived.long_pieces) as u64;
        let window_ns = now_ns.saturating_sub(self.window_from_ns);
        if window_ns < RATE_WINDOW_NS {
            return;
        }
        let expected = self.window_messages.saturating_mul(self.wait_max_ns) / window_ns;
        self.wait_ns = if expected < BATCH_EXPECTED_MIN {
            0
        } else {
            (self.wait_max_ns * BATCH_ENOUGH as u64 / expected).min(self.wait_max_ns)
        };
        self.window_from_ns = now_ns;
        self.window_messages = 0;
    }

    /// Whether it waits at all.
    pub fn is_on(&self) -> bool {
        self.wait_max_ns > 0
    }

    /// Whether messages arrive so fast that a wait batches several.
    pub fn can_batch(&self) -> bool {
        self.wait_ns > 0
    }

    /// Returns how long to wait when `arrived` is there already; `None`: no wait.
    pub fn wait(&self, arrived: Arrivals) -> Option<Duration> {
        let pays = self.wait_ns > 0 && arrived.messages < BATCH_ENOUGH && arrived.long_pieces == 0;
        pays.then(|| Duration::from_nanos(self.wait_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Arrivals, BATCH_ENOUGH, BatchDelay};

    const MAX: Duration = Duration::from_micros(100);

    fn short(messages: usize) -> Arrivals {
        Arrivals { messages, ..Arrivals::default() }
    }

    /// The wait after one window with `messages` in `window_ns`.
    fn check(messages: usize, window_ns: u64, expected: Option<Duration>) {
        let mut batch_delay = BatchDelay::new(MAX);
        batch_delay.note(short(0), 5_000_000);
        batch_delay.note(short(messages), 5_000_000 + window_ns);
        assert_eq!(batch_delay.wait(short(0)), expected, "{messages} messages in {window_ns} ns");
        assert_eq!(batch_delay.wait(short(BATCH_ENOUGH)), None, "enough is at hand");
        assert_eq!(
            batch_delay.wait(Arrivals { messages: 1, long_pieces: 1, woken: false }),
            None,
            "a long message goes on"
        );
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
    fn streams_of_long_pieces_stood_still_for_half_of_their_time() {
        let mut batch_delay = BatchDelay::new(MAX);
        batch_delay.note(short(0), 5_000_000);
        batch_delay.note(Arrivals { messages: 640, long_pieces: 640, woken: false }, 6_000_000);
        assert_eq!(batch_delay.wait(short(0)), None, "long pieces are no reason to wait");
    }

    #[test]
    fn zero_switches_it_off() {
        let mut batch_delay = BatchDelay::new(Duration::ZERO);
        batch_delay.note(short(1_000_000), 9_000_000);
        assert_eq!(batch_delay.wait(short(0)), None);
    }
}
