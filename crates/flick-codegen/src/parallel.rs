//! Work on the functions of a module by all processors that this process may use.
//! Promises: results are in the order of the items, not of the work; a panic of the work is a panic of the caller; a
//! thread that cannot be started is done without.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Threads of one compilation at most. Above, starting them takes longer than they save.
const THREADS_MAX: usize = 8;

/// Threads that a compilation uses. Cost: reads the affinity and the limits of the process's control group.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

/// Calls `work` once for each item, those of the highest cost first, and returns its results.
pub(crate) fn map<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    cost: impl Fn(&T) -> usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let mut rest: Vec<_> = items.into_iter().zip(&mut results).collect();
    rest.sort_by_cached_key(|(item, _)| cost(item));
    let rest = Mutex::new(rest);
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run = || {
        while let Some((item, result)) = next() {
            *result = Some(work(item));
        }
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().name("flick-codegen".to_owned()).spawn_scoped(scope, run).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        run();
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    results
        .into_iter()
        .map(|result| result.expect("every item was taken by a thread that has ended"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_items() {
        for count in [0, 1, 2, 1000] {
            let results = map(3, (0..count).collect(), |item| item % 7, |item: usize| item * 2);
            assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn panic_of_the_work_reaches_the_caller() {
        let work = |item| assert_ne!(item, 2, "an invariant");
        let panic = std::panic::catch_unwind(|| map(2, vec![1, 2, 3], |_| 0, work));
        let message = panic.expect_err("the work on 2 panics");
        let message = message.downcast_ref::<String>().expect("a panic with values has a String");
        assert!(message.contains("an invariant"), "{message}");
    }
}
