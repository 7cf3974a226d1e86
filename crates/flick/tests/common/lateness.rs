//! Lateness of this machine when it wakes a thread, which it adds to every time that a test measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures the lateness of this machine when it wakes a thread, which it adds to every time that a test measures.
pub struct Lateness {
    stop: Arc<AtomicBool>,
    worst_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Lateness {
    /// Begins to measure.
    pub fn watch() -> Self {
        let (stop, worst_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, worst) = (Arc::clone(&stop), Arc::clone(&worst_ns));
        let thread = std::thread::spawn(move || {
            let nap = Duration::from_millis(1);
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(nap);
                let late = begun.elapsed().saturating_sub(nap);
                worst.fetch_max(late.as_nanos() as u64, Ordering::Relaxed);
            }
        });
        Self { stop, worst_ns, thread: Some(thread) }
    }

    /// The worst so far, several times over: a reply wakes several threads on its way.
    pub fn allowance(&self) -> Duration {
        Duration::from_nanos(self.worst_ns.load(Ordering::Relaxed)) * 4
    }

    /// The worst since this was asked before.
    pub fn worst_since(&self) -> Duration {
        Duration::from_nanos(self.worst_ns.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
