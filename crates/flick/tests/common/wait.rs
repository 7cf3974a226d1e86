//! Waiting for a condition, with a deadline: the one place of the tests that pauses, between two looks.

use std::time::{Duration, Instant};

/// Longest any test waits for anything.
pub const WAIT_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `look` gives something. Panics with `what` at the deadline.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(WAIT_MAX, look).unwrap_or_else(|| panic!("waited {WAIT_MAX:?} in vain for {what}"))
}

/// Waits at most `limit` until `look` gives something.
pub fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
