//! How long a line takes: its end is marked now and then, and timed until whoever stood there has come to the head.
//! Promises: no allocation after `new`; to pass somebody costs an addition.
//! Refuses: reading clocks.

use std::collections::VecDeque;

use crate::driver::Line;
use crate::limits::{LINE_MARK_NS, LINE_MARKS_MAX};

/// A line that is watched.
#[derive(Debug)]
pub struct LineWatch {
    /// How many have come to the head so far.
    passed: u64,
    /// How far of that is known how long it took.
    known: u64,
    marks: VecDeque<Mark>,
}

/// The end of the line at some time.
#[derive(Debug)]
struct Mark {
    /// It has come to the head when so many have passed.
    end: u64,
    stood: u64,
    at_ns: u64,
}

/// A mark has come to the head of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// So many stood in line when it was made.
    pub stood: u64,
    /// So many have passed since one was reached before.
    pub count: u64,
    /// When it was made, in nanoseconds.
    pub since_ns: u64,
}

impl LineWatch {
    /// Nobody stands there.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> LineWatch {
        LineWatch { passed: 0, known: 0, marks: VecDeque::with_capacity(LINE_MARKS_MAX) }
    }

    /// Somebody has come to the head.
    #[inline]
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// No mark is on its way.
    #[inline]
    pub fn is_unmarked(&self) -> bool {
        self.marks.is_empty()
    }

    /// A mark has come to the head.
    #[inline]
    pub fn is_reached(&self) -> bool {
        self.marks.front().is_some_and(|mark| mark.end <= self.passed)
    }

    /// Marks the end: `ahead` must pass first, and who stands there has waited since `at_ns` behind `stood`, who may have waited
    /// elsewhere. No more often than each [`LINE_MARK_NS`].
    pub fn mark(&mut self, stood: u64, ahead: u64, at_ns: u64) {
        if self.marks.is_empty() {
            self.known = self.passed;
        }
        let is_time = self.marks.back().is_none_or(|mark| at_ns >= mark.at_ns + LINE_MARK_NS);
        if is_time && self.marks.len() < LINE_MARKS_MAX {
            self.marks.push_back(Mark { end: self.passed + ahead, stood, at_ns });
        }
    }

    /// Takes the marks that have come to the head. Of several at once the last is told, which has waited least: before it
    /// the whole thread may have stood still.
    pub fn take_reached(&mut self) -> Option<Reached> {
        let mut last = None;
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.end <= self.passed) {
            last = Some(mark);
        }
        let Mark { end, stood, at_ns } = last?;
        let count = end - std::mem::replace(&mut self.known, end);
        Some(Reached { stood, count, since_ns: at_ns })
    }

    /// A poll is over that has left so many in line.
    #[inline]
    pub(crate) fn settle(&mut self, waiting: usize, now_ns: u64) -> Line {
        if waiting == 0 && self.marks.is_empty() { Line::Empty } else { self.look(waiting as u64, now_ns) }
    }

    fn look(&mut self, waiting: u64, now_ns: u64) -> Line {
        let reached = self.take_reached();
        if waiting > 0 {
            self.mark(waiting, waiting, now_ns);
        }
        match reached {
            Some(Reached { stood, since_ns, .. }) => Line::Passed { stood, since_ns },
            None => Line::Stands,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, LineWatch, Reached};

    const MS: u64 = 1_000_000;

    fn passed(stood: u64, since_ms: u64) -> Line {
        Line::Passed { stood, since_ns: since_ms * MS }
    }

    /// Polls, each with how many it looked at and how many it left behind, ten milliseconds apart; what the last one tells.
    fn check(polls: &[(usize, usize)], expected: Line) {
        let (mut watch, mut line) = (LineWatch::new(), Line::Empty);
        for (at, (looked_at, waiting)) in (1..).zip(polls) {
            (0..*looked_at).for_each(|_| watch.pass());
            line = watch.settle(*waiting, at * 10 * MS);
        }
        assert_eq!(line, expected, "{polls:?}");
    }

    #[test]
    fn a_line_takes_from_when_its_end_was_marked_until_that_was_looked_at() {
        check(&[(5, 0), (7, 0)], Line::Empty);
        check(&[(5, 10)], Line::Stands);
        check(&[(5, 10), (4, 10)], Line::Stands);
        // Who has come meanwhile stands behind those who are counted.
        check(&[(5, 10), (4, 10), (6, 4)], passed(10, 10));
        check(&[(5, 10), (4, 10), (6, 4), (3, 2)], Line::Stands);
        check(&[(5, 10), (4, 10), (6, 4), (3, 2), (1, 1)], passed(4, 30));
        check(&[(5, 10), (10, 0)], passed(10, 10));
        check(&[(5, 10), (10, 0), (0, 0)], Line::Empty);
    }

    #[test]
    fn who_comes_to_several_marks_at_once_has_waited_since_the_last() {
        check(&[(0, 1), (0, 2), (0, 3), (3, 0)], passed(3, 30));
    }

    #[test]
    fn all_who_pass_behind_the_first_mark_are_counted_once() {
        let mut watch = LineWatch::new();
        watch.pass();
        let mut counted = 0;
        for at in 1..1000 {
            watch.mark(20, 20, at * 10 * MS);
            (0..at % 5).for_each(|_| watch.pass());
            counted += watch.take_reached().map_or(0, |reached| reached.count);
        }
        assert_eq!(counted, watch.known - 1);
    }

    #[test]
    fn a_line_of_any_length_has_its_marks() {
        let mut watch = LineWatch::new();
        for at in 1..1000 {
            watch.mark(at, at, at * 10 * MS);
        }
        assert!(!watch.is_reached());
        (0..1000).for_each(|_| watch.pass());
        assert!(watch.is_reached());
        assert!(matches!(watch.take_reached(), Some(Reached { count, .. }) if count < 1000));
        assert!(watch.is_unmarked());
    }
}
