//! Whether workers hang: a look at each once in a while, and a call to those that have not turned since the last one.
//! Promises: a worker that sleeps is woken before it is judged; time in which the whole process stood still counts for
//! nobody, because looks are counted and not seconds. Refuses: ending what hangs; that is for who reads `/healthz`.

use std::time::{Duration, Instant};

/// Looks in a row that find a worker where it was, until it counts as hanging.
const LOOKS_MAX: u32 = 5;

/// Looks after the workers of one generation.
pub struct Watchdog {
    every: Duration,
    last: Instant,
    known: Vec<Known>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    turns: Option<u64>,
    missed: u32,
}

/// What a look has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Those that are to be woken, by their places.
    pub rouse: Vec<usize>,
    /// Those that hang.
    pub hung: Vec<usize>,
}

impl Watchdog {
    /// Workers hang that have not turned for so long; zero: they never do.
    pub fn new(hang_after: Duration) -> Self {
        Self { every: hang_after / LOOKS_MAX, last: Instant::now(), known: Vec::new() }
    }

    /// When it is time for a look, if it ever is.
    pub fn due_in(&self) -> Option<Duration> {
        (!self.every.is_zero()).then(|| self.every.saturating_sub(self.last.elapsed()))
    }

    /// Whether it is time for a look.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.due_in().is_some_and(|wait| wait.is_zero());
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }

    /// Looks at how often each has turned; who has ended has no number.
    pub fn look(&mut self, turns: &[Option<u64>]) -> Seen {
        self.known.resize(turns.len(), Known { turns: None, missed: 0 });
        let mut seen = Seen::default();
        for (at, (known, turns)) in self.known.iter_mut().zip(turns).enumerate() {
            if turns.is_none() || known.turns != *turns {
                *known = Known { turns: *turns, missed: 0 };
                continue;
            }
            known.missed = (known.missed + 1).min(LOOKS_MAX);
            seen.rouse.push(at);
            // The first look that misses a turn has woken nobody before.
            if known.missed == LOOKS_MAX {
                seen.hung.push(at);
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LOOKS_MAX, Seen, Watchdog};

    /// Looks at these turns one after the other; what the last look showed.
    fn check(looks: &[&[Option<u64>]], rouse: &[usize], hung: &[usize]) {
        let mut watchdog = Watchdog::new(Duration::from_secs(5));
        let last = looks.iter().map(|turns| watchdog.look(turns)).last();
        assert_eq!(last, Some(Seen { rouse: rouse.to_vec(), hung: hung.to_vec() }), "{looks:?}");
    }

    #[test]
    fn who_has_not_turned_is_called_and_who_does_not_come_hangs() {
        let (still, turned) = ([Some(7), Some(1)], [Some(7), Some(2)]);
        check(&[&still], &[], &[]);
        check(&[&still, &turned], &[0], &[]);
        let mut looks: Vec<Vec<Option<u64>>> =
            (0..LOOKS_MAX as u64).map(|at| vec![Some(7), Some(at)]).collect();
        let all = |looks: &[Vec<Option<u64>>], rouse: &[usize], hung: &[usize]| {
            check(&looks.iter().map(Vec::as_slice).collect::<Vec<_>>(), rouse, hung);
        };
        all(&looks, &[0], &[]);
        looks.push(vec![Some(7), Some(99)]);
        all(&looks, &[0], &[0]);
        looks.push(vec![Some(7), Some(99)]);
        all(&looks, &[0, 1], &[0]);
        looks.push(vec![Some(8), None]);
        all(&looks, &[], &[]);
    }

    #[test]
    fn who_has_ended_does_not_hang() {
        check(&[[None].as_slice(); 9], &[], &[]);
    }
}
