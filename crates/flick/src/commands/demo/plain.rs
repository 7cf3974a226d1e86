//! The demonstration as lines: one each second.

use std::time::{Duration, Instant};

use super::Scene;

/// Prints a line each second until the load has ended or a signal comes.
pub fn show(scene: &Scene<'_>) {
    let progress = scene.run.progress();
    crate::console::sayln!(
        "{} clients, one proxy ({}), {} {}",
        scene.connections,
        scene.platform.io(),
        scene.platform.snapshot().backends.len(),
        scene.backends
    );
    let start = Instant::now();
    let mut before = progress.snapshot();
    let mut shown_s = 0;
    while !scene.run.is_finished() {
        if scene.signals.recv_timeout(Duration::from_millis(20)).is_ok() {
            return;
        }
        if start.elapsed().as_secs() == shown_s {
            continue;
        }
        shown_s = start.elapsed().as_secs();
        let now = progress.snapshot();
        let shares: Vec<String> =
            shares(scene).iter().map(|share| format!("{:.0} %", share * 100.0)).collect();
        crate::console::sayln!(
            "{shown_s:>3} s  {:>8.0} requests/s  p50 {:>5} us  p99 {:>6} us  errors {}  backends {}",
            now.rate_since(&before),
            now.latency.p50_us,
            now.latency.p99_us,
            now.counts.faults(),
            shares.join("  ")
        );
        before = now;
    }
}

/// The share of requests each backend got so far, from 0 to 1.
pub fn shares(scene: &Scene<'_>) -> Vec<f64> {
    let backends = scene.platform.snapshot().backends;
    let total: u64 = backends.iter().map(|backend| backend.requests).sum();
    backends.iter().map(|backend| backend.requests as f64 / total.max(1) as f64).collect()
}
