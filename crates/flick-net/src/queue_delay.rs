//! Measures how long a queue takes: the meter marks the queue's tail now and then and times the mark to the head.
//! Promises: no allocation after `new`; one addition per dequeued item.
//! Refuses: reading clocks; the caller passes the time.

use std::collections::VecDeque;

use crate::limits::{QUEUE_MARK_NS, QUEUE_MARKS_MAX};

/// Delay of ready connections before a poll serves them, when one poll returns less than is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueDelay {
    /// Nothing is queued.
    #[default]
    None,
    /// Something is queued; the delay is not measured yet.
    Unknown,
    /// The last poll reached the connection that was at the queue's tail at `since_ns`.
    Measured {
        /// Queue length at that time.
        queued: u64,
        /// By the driver's clock.
        since_ns: u64,
    },
}

/// Measures the delay of one queue.
#[derive(Debug)]
pub struct QueueDelayMeter {
    /// Items dequeued so far.
    dequeued: u64,
    /// Items dequeued up to the last sample.
    sampled: u64,
    marks: VecDeque<Mark>,
}

/// The tail of the queue at some time.
#[derive(Debug)]
struct Mark {
    /// The mark is at the head when this many items have been dequeued.
    end: u64,
    queued: u64,
    at_ns: u64,
}

/// A mark that has reached the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySample {
    /// Queue length when the mark was made.
    pub queued: u64,
    /// Items dequeued since the sample before.
    pub count: u64,
    /// Time at which the mark was made, in nanoseconds.
    pub since_ns: u64,
}

impl QueueDelayMeter {
    /// Creates a meter for an empty queue.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> QueueDelayMeter {
        QueueDelayMeter { dequeued: 0, sampled: 0, marks: VecDeque::with_capacity(QUEUE_MARKS_MAX) }
    }

    /// Forgets all marks and keeps their memory.
    pub fn clear(&mut self) {
        (self.dequeued, self.sampled) = (0, 0);
        self.marks.clear();
    }

    /// Counts one item taken from the head.
    #[inline]
    pub fn count_dequeued(&mut self) {
        self.dequeued += 1;
    }

    /// Returns whether no mark is in the queue.
    #[inline]
    pub fn has_no_marks(&self) -> bool {
        self.marks.is_empty()
    }

    /// Returns whether a mark has reached the head.
    #[inline]
    pub fn has_sample(&self) -> bool {
        self.marks.front().is_some_and(|mark| mark.end <= self.dequeued)
    }

    /// Marks the tail: `ahead` items must be dequeued first. The item there has waited since `at_ns` behind `queued`
    /// items, some of them in a queue before this one. At most one mark per [`QUEUE_MARK_NS`].
    pub fn mark(&mut self, queued: u64, ahead: u64, at_ns: u64) {
        if self.marks.is_empty() {
            self.sampled = self.dequeued;
        }
        let is_time = self.marks.back().is_none_or(|mark| at_ns >= mark.at_ns + QUEUE_MARK_NS);
        if is_time && self.marks.len() < QUEUE_MARKS_MAX {
            self.marks.push_back(Mark { end: self.dequeued + ahead, queued, at_ns });
        }
    }

    /// Takes the marks that have reached the head. Of several at once it returns the newest, which has waited least:
    /// the older ones may include a stall of the whole thread.
    pub fn take_sample(&mut self) -> Option<DelaySample> {
        let mut newest = None;
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.end <= self.dequeued) {
            newest = Some(mark);
        }
        let Mark { end, queued, at_ns } = newest?;
        let count = end - std::mem::replace(&mut self.sampled, end);
        Some(DelaySample { queued, count, since_ns: at_ns })
    }

    /// Ends a poll that left `queued` items behind.
    #[inline]
    pub(crate) fn end_poll(&mut self, queued: usize, now_ns: u64) -> QueueDelay {
        if queued == 0 && self.marks.is_empty() {
            QueueDelay::None
        } else {
            self.measure(queued as u64, now_ns)
        }
    }

    fn measure(&mut self, queued: u64, now_ns: u64) -> QueueDelay {
        let sample = self.take_sample();
        if queued > 0 {
            self.mark(queued, queued, now_ns);
        }
        match sample {
            Some(DelaySample { queued, since_ns, .. }) => QueueDelay::Measured { queued, since_ns },
            None => QueueDelay::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DelaySample, QueueDelay, QueueDelayMeter};

    const MS: u64 = 1_000_000;

    fn measured(queued: u64, since_ms: u64) -> QueueDelay {
        QueueDelay::Measured { queued, since_ns: since_ms * MS }
    }

    /// Runs polls 10 ms apart, each given as (items dequeued, items left), and checks what the last one measures.
    fn check(polls: &[(usize, usize)], expected: QueueDelay) {
        let (mut meter, mut delay) = (QueueDelayMeter::new(), QueueDelay::None);
        for (at, (dequeued, left)) in (1..).zip(polls) {
            (0..*dequeued).for_each(|_| meter.count_dequeued());
            delay = meter.end_poll(*left, at * 10 * MS);
        }
        assert_eq!(delay, expected, "{polls:?}");
    }

    #[test]
    fn the_delay_is_the_time_a_mark_takes_from_tail_to_head() {
        check(&[(5, 0), (7, 0)], QueueDelay::None);
        check(&[(5, 10)], QueueDelay::Unknown);
        check(&[(5, 10), (4, 10)], QueueDelay::Unknown);
        // Items queued after the mark do not count.
        check(&[(5, 10), (4, 10), (6, 4)], measured(10, 10));
        check(&[(5, 10), (4, 10), (6, 4), (3, 2)], QueueDelay::Unknown);
        check(&[(5, 10), (4, 10), (6, 4), (3, 2), (1, 1)], measured(4, 30));
        check(&[(5, 10), (10, 0)], measured(10, 10));
        check(&[(5, 10), (10, 0), (0, 0)], QueueDelay::None);
    }

    #[test]
    fn of_several_marks_at_once_the_newest_counts() {
        check(&[(0, 1), (0, 2), (0, 3), (3, 0)], measured(3, 30));
    }

    #[test]
    fn items_behind_the_first_mark_are_counted_once() {
        let mut meter = QueueDelayMeter::new();
        meter.count_dequeued();
        let mut counted = 0;
        for at in 1..1000 {
            meter.mark(20, 20, at * 10 * MS);
            (0..at % 5).for_each(|_| meter.count_dequeued());
            counted += meter.take_sample().map_or(0, |sample| sample.count);
        }
        assert_eq!(counted, meter.sampled - 1);
    }

    #[test]
    fn a_long_queue_keeps_a_bounded_number_of_marks() {
        let mut meter = QueueDelayMeter::new();
        for at in 1..1000 {
            meter.mark(at, at, at * 10 * MS);
        }
        assert!(!meter.has_sample());
        (0..1000).for_each(|_| meter.count_dequeued());
        assert!(meter.has_sample());
        assert!(matches!(meter.take_sample(), Some(DelaySample { count, .. }) if count < 1000));
        assert!(meter.has_no_marks());
    }
}
