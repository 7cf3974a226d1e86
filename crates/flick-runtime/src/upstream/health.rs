//! The health of one backend as one worker knows it: failed requests, health checks, slow start, throttled log lines.
//! Promises: plain numbers, no allocation; time is an argument, so that runs can be repeated.
//! Source: outlier ejection as service proxies do it: for a time that doubles, never too many backends at once.

use std::time::Duration;

use flick_net::Handle;

use crate::config::HealthLimits;
use crate::limits::{
    BACKEND_LOG_MS, EJECT_SHIFT_MAX, EJECT_WINDOW_NS, OUTLIER_FAILURES, SLOW_START_MIN_PER_MILLE,
    SLOWEST_WINDOW_NS,
};
use crate::observe::outlier::HealthState;

/// Requests that an ejected backend does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectedFrom {
    /// Those of picks without a key, which have a choice.
    Picks,
    /// All.
    Everything,
}

/// The health of one backend.
#[derive(Debug, Default)]
pub struct BackendHealth {
    /// Requests that failed since the last one that did not. By default only those of picks without a key.
    failures_in_row: u32,
    /// Start of the window of `ended` and `failed`.
    counted_ns: u64,
    /// Requests of the window that ended, one way or the other.
    ended: u32,
    /// Those of them that failed.
    failed: u32,
    /// It is ejected for its failed requests, until `until_ns`.
    ejected: Option<EjectedFrom>,
    /// It was ejected, or should have been, and has answered nothing since: picks without a key give it one request
    /// at a time.
    is_on_trial: bool,
    /// Time at which it last sent something.
    received_ns: u64,
    slowest: SlowestReply,
    /// End of its last ejection, which may have passed.
    until_ns: u64,
    /// Ejections in short order.
    ejections: u32,
    /// Its health checks fail.
    fails_checks: bool,
    /// Too many others fail their checks for that to count.
    is_needed: bool,
    /// Start of its last slow start; `None`: it had none.
    back_ns: Option<u64>,
    check: HealthCheck,
    log_throttle: LogThrottle,
}

/// A health check of a backend.
#[derive(Debug, Default)]
struct HealthCheck {
    /// Its connection, while it runs.
    conn: Option<Handle>,
    /// Time at which it begins, or must be over.
    due_ns: u64,
    /// Bytes of the answer that were right so far.
    len: usize,
    /// Outcomes in a row that contradict `fails_checks`.
    against: u32,
}

impl BackendHealth {
    /// A backend that is new at `now_ns`; `is_added`: the service was running before.
    pub fn new(now_ns: u64, is_added: bool) -> Self {
        let check = HealthCheck { due_ns: now_ns, ..HealthCheck::default() };
        Self { back_ns: is_added.then_some(now_ns), check, ..Self::default() }
    }

    /// Whether picks without a key avoid it.
    #[inline]
    pub fn is_out(&self) -> bool {
        self.is_ejected() || self.refuses()
    }

    /// Whether it gets no requests at all.
    #[inline]
    pub fn refuses(&self) -> bool {
        self.ejected == Some(EjectedFrom::Everything) || (self.fails_checks && !self.is_needed)
    }

    /// Whether it is ejected for its failed requests.
    #[inline]
    pub fn is_ejected(&self) -> bool {
        self.ejected.is_some()
    }

    /// Whether picks without a key give it one request at a time, until it answers one.
    #[inline]
    pub fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    /// Picks without a key give it one request at a time, until it answers one.
    pub fn put_on_trial(&mut self) {
        self.is_on_trial = true;
    }

    /// It has sent something.
    #[inline]
    pub fn note_received(&mut self, now_ns: u64) {
        self.received_ns = now_ns;
    }

    /// Returns the time at which it last sent something.
    pub fn received_ns(&self) -> u64 {
        self.received_ns
    }

    /// A reply has begun, this long after its request was sent.
    pub fn note_reply_time(&mut self, now_ns: u64, took_ns: u64) {
        self.slowest.note(now_ns, took_ns);
    }

    /// Returns the time that its slowest reply of about a minute took to begin; `None`: it has never replied.
    pub fn slowest_ns(&self) -> Option<u64> {
        self.slowest.get()
    }

    /// Whether its health checks fail.
    pub fn fails_checks(&self) -> bool {
        self.fails_checks
    }

    /// Too many others fail their checks for that to count, or not.
    pub fn set_needed(&mut self, on: bool) {
        self.is_needed = on;
    }

    /// It is up after it was not: slow start begins.
    pub fn note_back(&mut self, now_ns: u64) {
        self.back_ns = Some(now_ns);
    }

    /// Returns the state for the next generation of the service.
    pub fn state(&self, is_down: bool) -> HealthState {
        HealthState {
            until_ns: self.until_ns,
            back_ns: self.back_ns.unwrap_or_default(),
            ejections: self.ejections,
            is_ejected: self.is_ejected(),
            fails_checks: self.fails_checks,
            is_down,
        }
    }

    /// Takes over what the generation before knew. Returns when it is no longer ejected, if it is.
    pub fn inherit(&mut self, state: HealthState, limits: &HealthLimits, now_ns: u64) -> Option<u64> {
        let has_checks = !limits.health_check_interval.is_zero();
        self.fails_checks = state.fails_checks && has_checks;
        (self.until_ns, self.ejections) = (state.until_ns, state.ejections);
        self.back_ns = (state.back_ns > 0).then_some(state.back_ns);
        if state.is_ejected && state.until_ns > now_ns {
            self.ejected = Some(match limits.ejects_from_everything() {
                true => EjectedFrom::Everything,
                false => EjectedFrom::Picks,
            });
        }
        self.is_ejected().then_some(state.until_ns)
    }

    /// Returns the time at which an ejection ends, or a health check begins or must be over; `None`: neither is due.
    pub fn due_ns(&self, has_checks: bool) -> Option<u64> {
        let check_ns = has_checks.then_some(self.check.due_ns);
        check_ns.into_iter().chain(self.is_ejected().then_some(self.until_ns)).min()
    }

    /// Ends an ejection whose time is over. Returns whether there was one.
    pub fn end_ejection(&mut self, now_ns: u64) -> bool {
        let is_over = self.is_ejected() && self.until_ns <= now_ns;
        if is_over {
            self.ejected = None;
            self.put_on_trial();
            self.note_back(now_ns);
        }
        is_over
    }

    /// Lines about it that were left out since the last one; `None`: one more is to be left out.
    pub fn admit_log_line(&mut self, now_ns: u64) -> Option<u64> {
        self.log_throttle.admit(now_ns)
    }

    /// A request was answered.
    pub fn note_answer(&mut self, now_ns: u64) {
        (self.failures_in_row, self.is_on_trial) = (0, false);
        self.count(now_ns);
    }

    /// A request failed; `is_picked`: a pick without a key sent it there. Returns what the backend should be ejected
    /// from for that, if it should be.
    pub fn note_failure(
        &mut self,
        now_ns: u64,
        is_picked: bool,
        limits: &HealthLimits,
    ) -> Option<EjectedFrom> {
        self.count(now_ns);
        self.failed += 1;
        let share =
            u64::from(self.failed) * 100 >= u64::from(self.ended) * u64::from(limits.outlier_failure_percent);
        if limits.outlier_failure_percent > 0 && self.ended >= limits.outlier_min_requests && share {
            return Some(EjectedFrom::Everything);
        }
        let in_row = self.failures_in_row.saturating_add(1);
        match limits.outlier_consecutive_failures {
            Some(most) => {
                self.failures_in_row = in_row;
                (most > 0 && in_row >= most).then_some(EjectedFrom::Everything)
            }
            None if is_picked => {
                self.failures_in_row = in_row;
                (in_row >= OUTLIER_FAILURES || self.is_on_trial).then_some(EjectedFrom::Picks)
            }
            None => None,
        }
    }

    fn count(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.counted_ns) >= EJECT_WINDOW_NS || self.ended == u32::MAX {
            (self.counted_ns, self.ended, self.failed) = (now_ns, 0, 0);
        }
        self.ended += 1;
    }

    /// Ejects it. Returns until when.
    pub fn eject(&mut self, now_ns: u64, from: EjectedFrom, limits: &HealthLimits) -> u64 {
        let base_ns = limits.outlier_ejection_time.as_nanos() as u64;
        // A backend that was healthy for as long as it had been ejected starts with the shortest time again.
        let last_ns = base_ns << self.ejections.saturating_sub(1).min(EJECT_SHIFT_MAX);
        if now_ns > self.until_ns.saturating_add(last_ns) {
            self.ejections = 0;
        }
        self.until_ns = now_ns.saturating_add(base_ns << self.ejections.min(EJECT_SHIFT_MAX));
        self.ejections += 1;
        (self.ejected, self.failures_in_row) = (Some(from), 0);
        (self.counted_ns, self.ended, self.failed) = (now_ns, 0, 0);
        self.until_ns
    }

    /// Returns the part of its weight that slow start allows, in thousandths.
    pub fn share_per_mille(&self, now_ns: u64, slow_start: Duration) -> u64 {
        let (Some(back_ns), whole_ns @ 1..) = (self.back_ns, slow_start.as_nanos() as u64) else {
            return 1000;
        };
        let passed_ns = now_ns.saturating_sub(back_ns).min(whole_ns);
        let share = u128::from(passed_ns) * 1000 / u128::from(whole_ns);
        (share as u64).max(SLOW_START_MIN_PER_MILLE)
    }
}

/// Health checks.
impl BackendHealth {
    /// Whether a check begins now, or has run out of time.
    pub fn is_check_due(&self, now_ns: u64) -> bool {
        self.check.due_ns <= now_ns
    }

    /// The connection of the check that runs.
    pub fn check_conn(&self) -> Option<Handle> {
        self.check.conn
    }

    /// The connection of the check is gone, or is ended now.
    pub fn take_check_conn(&mut self) -> Option<Handle> {
        self.check.conn.take()
    }

    /// A check begins.
    pub fn begin_check(&mut self, conn: Handle, due_ns: u64) {
        self.check = HealthCheck { conn: Some(conn), due_ns, len: 0, against: self.check.against };
    }

    /// A part of the answer to a check has come. Returns whether it is the expected one, once that is known.
    pub fn compare_answer(&mut self, expected: &[u8], data: &[u8]) -> Option<bool> {
        let want = &expected[self.check.len.min(expected.len())..];
        let compared = want.len().min(data.len());
        let is_right = want[..compared] == data[..compared];
        self.check.len += compared;
        (!is_right || compared == want.len()).then_some(is_right)
    }

    /// A check has ended; the next one begins at `due_ns`. Returns whether as many in a row as `limits` ask for have
    /// changed the backend's state. A backend whose checks pass again is no longer ejected.
    pub fn end_check(&mut self, is_good: bool, due_ns: u64, limits: &HealthLimits) -> bool {
        self.check.due_ns = due_ns;
        if is_good != self.fails_checks {
            self.check.against = 0;
            return false;
        }
        self.check.against += 1;
        let needed = if is_good { limits.health_check_rise } else { limits.health_check_fall };
        let changes = self.check.against >= needed.max(1);
        if changes {
            (self.fails_checks, self.check.against) = (!is_good, 0);
            self.ejected = self.ejected.filter(|_| !is_good);
        }
        changes
    }
}

/// The slowest reply of this window and of the one before; a window without replies does not end.
#[derive(Debug, Default)]
struct SlowestReply {
    since_ns: u64,
    took_ns: Option<u64>,
    before_ns: Option<u64>,
}

impl SlowestReply {
    fn note(&mut self, now_ns: u64, took_ns: u64) {
        if now_ns.saturating_sub(self.since_ns) >= SLOWEST_WINDOW_NS {
            *self = Self { since_ns: now_ns, took_ns: None, before_ns: self.took_ns };
        }
        self.took_ns = self.took_ns.max(Some(took_ns));
    }

    fn get(&self) -> Option<u64> {
        self.took_ns.max(self.before_ns)
    }
}

/// One line of the log for each backend in a while.
#[derive(Debug, Default)]
struct LogThrottle {
    next_ns: u64,
    left_out: u64,
}

impl LogThrottle {
    /// Lines that were left out since the last one; `None`: one more is to be left out.
    fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            self.left_out += 1;
            return None;
        }
        self.next_ns = now_ns + BACKEND_LOG_MS * 1_000_000;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendHealth, EjectedFrom, LogThrottle, SlowestReply};
    use crate::config::HealthLimits;
    use std::time::Duration;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_ejection_in_short_order_is_twice_as_long() {
        let limits =
            HealthLimits { outlier_ejection_time: Duration::from_secs(10), ..HealthLimits::default() };
        let mut health = BackendHealth::default();
        for (at_s, until_s) in [(100, 110), (111, 131), (132, 172), (200, 280), (441, 451)] {
            assert_eq!(health.eject(at_s * S, EjectedFrom::Everything, &limits), until_s * S, "at {at_s} s");
        }
    }

    /// Notes requests, each a time in milliseconds and whether it failed. Returns when the backend is ejected.
    fn out_at(limits: &HealthLimits, requests: impl Iterator<Item = (u64, bool)>) -> Option<u64> {
        let mut health = BackendHealth::default();
        let mut out = requests.filter(|(at_ms, failed)| match failed {
            true => health.note_failure(at_ms * S / 1_000, true, limits).is_some(),
            false => {
                health.note_answer(at_ms * S / 1_000);
                false
            }
        });
        out.next().map(|(at_ms, _)| at_ms)
    }

    #[test]
    fn failures_count_in_a_row_or_by_their_share() {
        let by = |outlier_consecutive_failures, outlier_failure_percent| HealthLimits {
            outlier_consecutive_failures: Some(outlier_consecutive_failures),
            outlier_failure_percent,
            outlier_min_requests: 20,
            ..HealthLimits::default()
        };
        let every = |some: u64, pace_ms: u64| (1..1_000).map(move |at| (at * pace_ms, at % some == 0));
        assert_eq!(out_at(&by(3, 0), every(1, 10)), Some(30), "three in a row");
        assert_eq!(out_at(&by(3, 0), every(2, 10)), None, "never two in a row");
        assert_eq!(out_at(&by(0, 50), every(2, 10)), Some(200), "half of them, once there are twenty");
        assert_eq!(out_at(&by(0, 50), every(3, 10)), None, "a third of them");
        assert_eq!(out_at(&by(0, 50), every(1, 600)), None, "too few in ten seconds to tell");
        assert_eq!(out_at(&by(0, 0), every(1, 10)), None, "never");
    }

    #[test]
    fn five_failures_in_a_row_of_picks_without_a_key_eject_by_default() {
        let limits = HealthLimits::default();
        let failures = |is_picked: bool, count: u64| {
            let mut health = BackendHealth::default();
            (1..=count).map(|at| health.note_failure(at * S, is_picked, &limits)).last().flatten()
        };
        assert_eq!(failures(true, 4), None);
        assert_eq!(failures(true, 5), Some(EjectedFrom::Picks));
        assert_eq!(failures(false, 500), None, "the data of a key are nowhere else");
    }

    #[test]
    fn a_backend_that_fails_its_trial_is_ejected_at_once() {
        let limits = HealthLimits::default();
        let mut health = BackendHealth::default();
        let until_ns = health.eject(0, EjectedFrom::Picks, &limits);
        assert!(health.is_out() && !health.refuses(), "requests with a key still go there");
        assert!(health.end_ejection(until_ns) && health.is_on_trial());
        assert_eq!(health.note_failure(until_ns, false, &limits), None);
        assert_eq!(health.note_failure(until_ns, true, &limits), Some(EjectedFrom::Picks));
        health.note_answer(until_ns);
        assert!(!health.is_on_trial());
        assert_eq!(health.note_failure(until_ns, true, &limits), None);
    }

    #[test]
    fn the_slowest_reply_is_forgotten_after_two_windows_with_replies() {
        let mut slowest = SlowestReply::default();
        assert_eq!(slowest.get(), None);
        slowest.note(S, 3 * S);
        slowest.note(100 * S, S);
        assert_eq!(slowest.get(), Some(3 * S));
        slowest.note(1_000 * S, 2 * S);
        assert_eq!(slowest.get(), Some(2 * S));
    }

    #[test]
    fn slow_start_grows_the_share_of_a_backend() {
        let health = BackendHealth { back_ns: Some(100 * S), ..BackendHealth::default() };
        let share = |at_s: u64| health.share_per_mille(at_s * S, Duration::from_secs(10));
        assert_eq!([100, 105, 109, 110, 500].map(share), [50, 500, 900, 1000, 1000]);
        assert_eq!(health.share_per_mille(100 * S, Duration::ZERO), 1000);
        assert_eq!(BackendHealth::default().share_per_mille(0, Duration::from_secs(10)), 1000);
    }

    #[test]
    fn a_backend_that_fails_often_logs_one_line_a_second() {
        let mut log_throttle = LogThrottle::default();
        let lines: Vec<u64> = (0..4_000).filter_map(|at| log_throttle.admit(at * S / 2_000)).collect();
        assert_eq!(lines, [0, 1_999]);
        assert_eq!(log_throttle.admit(9 * S), Some(1_999));
    }
}
