//! When there is more to do than a worker can: which of the new requests it answers *busy* at once instead of serving
//! them late.
//! Promises: nothing is shed unless every turn of two windows in a row took longer than the operator bears and had
//! many requests in it: a burst, a single long request or a pause of the whole machine is no overload; some requests
//! are always served; one decision costs an addition. The same for the same turns, so that runs can be repeated.
//! Refuses: to guess what waits where it cannot see. A client that sends many requests ahead waits behind itself, and
//! services that share a thread have short turns: there the time in line bounds what waits (`Timeouts::queue`).
//! Source: K. Nichols, V. Jacobson, "Controlling queue delay" (2012): what tells a standing queue from a burst is the
//! least delay of a window. Requests are not packets and do not slow down for a lost one, so that a share is shed.

use std::time::Duration;

use crate::limits::{SHED_REQUESTS_MIN, SHED_SHARE_MAX, SHED_SHARES, SHED_TURNS_MIN, SHED_WINDOW_NS};

/// What a worker knows of its own delay.
#[derive(Debug)]
pub(crate) struct Shedder {
    target_ns: u64,
    window_from_ns: u64,
    turns: u32,
    least_ns: u64,
    was_late: bool,
    /// So many of [`SHED_SHARES`] requests are shed.
    share: u32,
    owed: u32,
}

impl Shedder {
    /// Bears turns of this length; zero: of any.
    pub fn new(target: Duration) -> Self {
        let target_ns = target.as_nanos() as u64;
        Self {
            target_ns,
            window_from_ns: 0,
            turns: 0,
            least_ns: u64::MAX,
            was_late: false,
            share: 0,
            owed: 0,
        }
    }

    /// Whether turns need to be noted at all.
    pub fn is_on(&self) -> bool {
        self.target_ns > 0
    }

    /// Whether a turn with so many new requests tells more than that it was short.
    pub fn wants_time(&self, requests: u64) -> bool {
        self.is_on() && requests >= SHED_REQUESTS_MIN
    }

    /// Notes a turn which ended at `now_ns`: for so long whoever came at its beginning has waited.
    pub fn note(&mut self, took_ns: u64, now_ns: u64) {
        self.least_ns = self.least_ns.min(took_ns);
        self.turns += 1;
        let is_over = now_ns.saturating_sub(self.window_from_ns) >= SHED_WINDOW_NS;
        if !is_over || (self.turns < SHED_TURNS_MIN && self.least_ns > self.target_ns) {
            return;
        }
        let is_late = self.least_ns > self.target_ns;
        if is_late && self.was_late {
            self.share = (self.share + ((SHED_SHARES - self.share) / 4).max(8)).min(SHED_SHARE_MAX);
        } else if self.least_ns < self.target_ns / 2 {
            self.share -= (self.share / 8 + 4).min(self.share);
        }
        self.was_late = is_late;
        (self.window_from_ns, self.turns, self.least_ns) = (now_ns, 0, u64::MAX);
    }

    /// Whether the next request is shed.
    pub fn sheds(&mut self) -> bool {
        self.owed += self.share;
        let sheds = self.owed >= SHED_SHARES;
        self.owed -= if sheds { SHED_SHARES } else { 0 };
        sheds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Shedder;

    const MS: u64 = 1_000_000;

    /// Turns of these lengths, one behind the other; how many of the next thousand requests are shed.
    fn check(turns_ms: &[u64], expected: std::ops::RangeInclusive<usize>) {
        let mut shedder = Shedder::new(Duration::from_millis(50));
        let mut now_ns = 7_000 * MS;
        for turn in turns_ms {
            now_ns += turn * MS;
            shedder.note(turn * MS, now_ns);
        }
        let shed = (0..1000).filter(|_| shedder.sheds()).count();
        assert!(expected.contains(&shed), "{shed} of 1000 after turns of {turns_ms:?} ms");
    }

    #[test]
    fn turns_that_are_all_too_long_shed_more_and_more_but_never_all() {
        check(&[60; 5], 0..=0);
        check(&[60; 6], 245..=255);
        check(&[60; 30], 850..=950);
        check(&[60; 400], 945..=955);
    }

    #[test]
    fn one_short_turn_shows_that_nothing_stands() {
        check(&[60, 60, 60, 1, 60, 60, 60, 1, 60, 60, 60, 1, 60, 60, 60, 1], 0..=0);
        check(&[10; 100], 0..=0);
    }

    #[test]
    fn a_pause_of_the_machine_is_no_overload() {
        check(&[1, 1, 1, 5000, 1, 1, 1, 1], 0..=0);
        check(&[1, 5000, 5000, 1], 0..=0);
    }

    #[test]
    fn it_ends_when_turns_are_short_again() {
        let turns: Vec<u64> = [60; 30].into_iter().chain([1; 6000]).collect();
        check(&turns, 0..=0);
    }
}
