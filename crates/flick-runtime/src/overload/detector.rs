//! Overload detector: which new requests an overloaded worker answers with an overload response instead of serving them
//! late.
//! Promises: nothing is shed unless in two windows in a row nearly all requests, and many, were served in iterations
//! that took longer than the target: a burst, a single long request or a pause of the whole machine is no overload; a
//! window is never shorter than the target, or the end of one burst would be two of them;
//! some requests are always served; one decision costs an addition. Equal iterations give equal decisions, so that runs
//! can be repeated.
//! Refuses: to shed requests where they are not the load: beside thousands of long replies that are streamed, a request
//! waits its turn, and refusing it would relieve nothing. To guess what waits where it cannot see. A client that
//! pipelines many requests waits for itself. Services that share a thread have short iterations, so most of their queue
//! is in front of their driver, which says how long the delay there is ([`QueueDelay`]).
//! Source: K. Nichols, V. Jacobson, "Controlling queue delay" (2012): a standing queue differs from a burst in what a
//! whole window has in common. There it is the least delay; here nearly all requests count, because the few that come
//! first after a long iteration have a short one to themselves. Requests do not slow down for a lost one, so a fraction
//! is shed.

use std::time::Duration;

use flick_net::{DelaySample, QueueDelay, QueueDelayMeter};

use crate::limits::{
    SHED_IDLE_ITERATIONS_MAX, SHED_ITERATIONS_MIN, SHED_REQUESTS_MIN, SHED_SHARE_MAX, SHED_SHARES,
    SHED_TASKS_PER_REQUEST_MAX, SHED_WINDOW_NS,
};

/// Measurements of a worker's queueing delay, and the share of requests that it sheds.
#[derive(Debug)]
pub(crate) struct OverloadDetector {
    target_ns: u64,
    window_from_ns: u64,
    requests: u64,
    /// New requests of the window, shed ones included.
    new_requests: u64,
    late: Late,
    was_late: bool,
    /// Of [`SHED_SHARES`] requests this many are shed.
    share: u32,
    owed: u32,
    queue: QueueDelayMeter,
}

/// The iterations of a window that exceeded the target.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    iterations: u32,
    requests: u64,
    ns: u64,
}

impl OverloadDetector {
    /// A detector with this target delay. With zero it never sheds.
    pub fn new(target: Duration) -> Self {
        Self {
            target_ns: target.as_nanos() as u64,
            window_from_ns: 0,
            requests: 0,
            new_requests: 0,
            late: Late::default(),
            was_late: false,
            share: 0,
            owed: 0,
            queue: QueueDelayMeter::new(),
        }
    }

    /// Sets the target delay. If it changes, all measurements are reset. Allocates nothing.
    pub fn set_target(&mut self, target: Duration) {
        let target_ns = target.as_nanos() as u64;
        if target_ns != self.target_ns {
            self.queue.clear();
            (self.target_ns, self.window_from_ns, self.requests, self.new_requests) = (target_ns, 0, 0, 0);
            (self.late, self.was_late, self.share, self.owed) = (Late::default(), false, 0, 0);
        }
    }

    /// Whether anything is ever shed.
    pub fn is_on(&self) -> bool {
        self.target_ns > 0
    }

    /// Marks the end of the run queue, which has `queued` tasks, to measure how long they wait. If connections are
    /// queued in front of the `driver`, the wait begins where the driver marked the end of its queue. A short queue
    /// counts as no delay.
    pub fn mark(&mut self, queued: usize, driver: QueueDelay, now_ns: u64) {
        if !self.is_on() {
            return;
        }
        if self.share > 0 && self.queue.has_no_marks() {
            self.note(0, 0, now_ns);
        }
        let queued = queued as u64;
        let (stood, since_ns) = match driver {
            QueueDelay::Measured { queued: stood, since_ns } => (stood + queued, since_ns),
            QueueDelay::None => (queued, now_ns),
            // The delay is known only when the driver's own mark reaches the head.
            QueueDelay::Unknown => return,
        };
        if stood < SHED_REQUESTS_MIN && self.queue.has_no_marks() {
            return self.note(queued, 0, now_ns);
        }
        self.queue.mark(stood, queued, since_ns);
        if queued == 0 {
            self.reach(now_ns);
        }
    }

    /// Counts a task that leaves the queue. Returns whether a marked task is now at the head.
    pub fn pass(&mut self) -> bool {
        self.queue.count_dequeued();
        self.queue.has_sample()
    }

    /// A marked task is at the head of the queue: records how long it waited.
    pub fn reach(&mut self, now_ns: u64) {
        if let Some(DelaySample { queued: stood, count, since_ns }) = self.queue.take_sample() {
            let took_ns = if stood < SHED_REQUESTS_MIN { 0 } else { now_ns.saturating_sub(since_ns) };
            self.note(count, took_ns, now_ns);
        }
    }

    /// Records that `requests` requests were served in `took_ns`, and ends the window if it is over at `now_ns`.
    fn note(&mut self, requests: u64, took_ns: u64, now_ns: u64) {
        self.requests += requests;
        if took_ns > self.target_ns {
            self.late.iterations += 1;
            self.late.requests += requests;
            self.late.ns += took_ns;
        }
        let window_ns = now_ns.saturating_sub(self.window_from_ns);
        if window_ns < SHED_WINDOW_NS.max(self.target_ns) {
            return;
        }
        let is_late = self.late.requests * 10 > self.requests * 9
            && self.late.ns > window_ns / 2
            && self.new_requests * SHED_TASKS_PER_REQUEST_MAX >= self.requests;
        if is_late && self.late.iterations < SHED_ITERATIONS_MIN {
            return;
        }
        if is_late && self.was_late {
            self.share = (self.share + ((SHED_SHARES - self.share) / 4).max(8)).min(SHED_SHARE_MAX);
        } else if self.late.requests < self.requests.div_ceil(2) || self.requests == 0 {
            // An idle worker calls this rarely: each window that has passed counts.
            for _ in 0..(window_ns / SHED_WINDOW_NS).min(SHED_IDLE_ITERATIONS_MAX) {
                self.share -= (self.share / 8 + 4).min(self.share);
            }
        }
        self.was_late = is_late;
        (self.window_from_ns, self.requests, self.new_requests) = (now_ns, 0, 0);
        self.late = Late::default();
    }

    /// Whether [`Self::sheds`] is false for all new requests until the next measurement.
    pub fn sheds_none(&self) -> bool {
        self.share == 0
    }

    /// Notes new requests while none is shed.
    pub fn note_unshed(&mut self, requests: u64) {
        self.new_requests += requests;
    }

    /// Whether the next request, a new one, is shed.
    pub fn sheds(&mut self) -> bool {
        self.new_requests += 1;
        self.owed += self.share;
        let sheds = self.owed >= SHED_SHARES;
        self.owed -= if sheds { SHED_SHARES } else { 0 };
        sheds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OverloadDetector, QueueDelay};

    const MS: u64 = 1_000_000;

    /// As many new requests come.
    fn asks(shedder: &mut OverloadDetector, count: u64) {
        (0..count).for_each(|_| {
            shedder.sheds();
        });
    }

    #[test]
    fn requests_beside_many_long_replies_are_not_shed() {
        let shed_beside = |tasks: u64| {
            let mut shedder = OverloadDetector::new(Duration::from_millis(50));
            for iteration in 1..100 {
                asks(&mut shedder, 60);
                shedder.note(60 + tasks, 60 * MS, iteration * 60 * MS);
            }
            (0..1000).filter(|_| shedder.sheds()).count()
        };
        assert!(shed_beside(60) > 900, "the requests and their replies are the load");
        assert_eq!(shed_beside(3000), 0, "pieces of long replies are the load");
    }

    /// Checks how many of a thousand requests are shed after iterations of these lengths, with a request for each
    /// millisecond.
    fn check(iterations_ms: &[u64], expected: std::ops::RangeInclusive<usize>) {
        let mut shedder = OverloadDetector::new(Duration::from_millis(50));
        let mut now_ns = 7_000 * MS;
        for iteration in iterations_ms {
            now_ns += iteration * MS;
            asks(&mut shedder, *iteration);
            shedder.note(*iteration, iteration * MS, now_ns);
        }
        let shed = (0..1000).filter(|_| shedder.sheds()).count();
        assert!(expected.contains(&shed), "{shed} of 1000 after iterations of {iterations_ms:?} ms");
    }

    #[test]
    fn long_iterations_raise_the_shed_fraction_but_never_to_all_requests() {
        check(&[60; 6], 0..=0);
        check(&[60; 7], 245..=255);
        check(&[60; 30], 850..=950);
        check(&[60; 400], 945..=955);
    }

    #[test]
    fn short_first_waits_after_a_long_iteration_do_not_hide_an_overload() {
        let iterations: Vec<u64> = [60, 2].into_iter().cycle().take(60).collect();
        check(&iterations, 700..=950);
    }

    /// A shared thread: each ten milliseconds it takes two queued tasks and serves those it took ten iterations before.
    /// Returns how many of the next thousand requests are shed if they had waited `waited_ms` before they were taken.
    fn shares_a_thread(waited_ms: u64, stood: u64) -> usize {
        let mut shedder = OverloadDetector::new(Duration::from_millis(250));
        for iteration in 100..400 {
            let now_ns = iteration * 10 * MS;
            let line = QueueDelay::Measured { queued: stood, since_ns: now_ns - waited_ms * MS };
            asks(&mut shedder, 2);
            shedder.mark(20, line, now_ns);
            for _ in 0..2 {
                if shedder.pass() {
                    shedder.reach(now_ns + MS);
                }
            }
            shedder.mark(20, QueueDelay::Unknown, now_ns + 2 * MS);
        }
        (0..1000).filter(|_| shedder.sheds()).count()
    }

    #[test]
    fn the_delay_in_front_of_the_driver_counts_on_a_shared_thread() {
        assert!(shares_a_thread(200, 100) > 900);
        assert_eq!(shares_a_thread(100, 100), 0);
    }

    #[test]
    fn a_queue_that_many_iterations_do_not_empty_is_late_in_each() {
        let mut shedder = OverloadDetector::new(Duration::from_millis(50));
        for iteration in 100..200 {
            let now_ns = iteration * 10 * MS;
            asks(&mut shedder, 10);
            shedder.mark(if iteration == 100 { 100 } else { 90 }, QueueDelay::None, now_ns);
            for _ in 0..10 {
                if shedder.pass() {
                    shedder.reach(now_ns + MS);
                }
            }
        }
        assert!((0..1000).filter(|_| shedder.sheds()).count() > 0, "a new request waits for ten iterations");
    }

    #[test]
    fn a_request_long_after_an_overload_is_not_shed() {
        for rest_s in [10, 1_000_000] {
            for queued in [1, 20] {
                let mut shedder = OverloadDetector::new(Duration::from_millis(50));
                let mut now_ns = 7_000 * MS;
                for _ in 0..100 {
                    now_ns += 60 * MS;
                    asks(&mut shedder, 60);
                    shedder.note(60, 60 * MS, now_ns);
                }
                assert!((0..100).filter(|_| shedder.sheds()).count() > 90);
                shedder.mark(queued, QueueDelay::None, now_ns + rest_s * 1000 * MS);
                assert_eq!((0..100).filter(|_| shedder.sheds()).count(), 0, "{queued} after {rest_s} s");
            }
        }
    }

    #[test]
    fn a_few_are_no_queue() {
        let mut shedder = OverloadDetector::new(Duration::from_millis(50));
        for iteration in 100..200 {
            shedder.mark(10, QueueDelay::Measured { queued: 5, since_ns: 0 }, iteration * 10 * MS);
            (0..10).for_each(|_| {
                if shedder.pass() {
                    shedder.reach(iteration * 10 * MS);
                }
            });
        }
        assert_eq!((0..1000).filter(|_| shedder.sheds()).count(), 0);
    }

    #[test]
    fn iterations_within_the_target_shed_nothing() {
        check(&[10; 100], 0..=0);
        let iterations: Vec<u64> = [60, 10].into_iter().cycle().take(60).collect();
        check(&iterations, 0..=0);
    }

    #[test]
    fn a_pause_of_the_machine_is_no_overload() {
        check(&[1, 1, 1, 5000, 1, 1, 1, 1], 0..=0);
        check(&[1, 5000, 5000, 1], 0..=0);
    }

    #[test]
    fn the_rest_of_one_burst_was_shed_while_it_was_served() {
        let mut shedder = OverloadDetector::new(Duration::from_secs(1));
        shedder.mark(1, QueueDelay::None, 0);
        // Two thousand requests come at once, and a few after them; all are served in 1.8 s.
        asks(&mut shedder, 2000);
        for ms in 1000..1800 {
            asks(&mut shedder, 1);
            shedder.note(4, (ms + 1) * MS, ms * MS);
        }
        assert_eq!((0..1000).filter(|_| shedder.sheds()).count(), 0);
    }

    #[test]
    fn shedding_ends_when_iterations_are_short_again() {
        let iterations: Vec<u64> = [60; 30].into_iter().chain([1; 6000]).collect();
        check(&iterations, 0..=0);
    }
}
