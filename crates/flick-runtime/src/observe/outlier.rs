//! Health of backends as one generation of a service passes it to the next, so that unhealthy ones stay ejected after a
//! reload.
//! Promises: published by one worker, read by any thread; a backend that always was healthy is not listed; times are of
//! the clock that all generations share.
//! Refuses: another process, which has to find out by itself.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use flick_net::Endpoint;

/// Health of a backend, published by one worker.
#[derive(Debug, Default)]
pub struct PublishedHealth {
    until_ns: AtomicU64,
    back_ns: AtomicU64,
    ejections: AtomicU32,
    is_ejected: AtomicBool,
    fails_checks: AtomicBool,
    is_down: AtomicBool,
}

/// Health of a backend at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthState {
    /// Time at which its ejection ends, or ended.
    pub until_ns: u64,
    /// Time since which it is healthy again, or new; 0: it always was healthy.
    pub back_ns: u64,
    /// Times that it was ejected in a short time.
    pub ejections: u32,
    /// It is ejected because its requests failed.
    pub is_ejected: bool,
    /// Its health checks fail.
    pub fails_checks: bool,
    /// Connecting to it fails.
    pub is_down: bool,
}

/// A backend that is unhealthy.
#[derive(Clone, Debug)]
pub struct UnhealthyBackend {
    /// Name of its channel.
    pub channel: String,
    /// Address of the backend.
    pub endpoint: Endpoint,
    /// Health of the backend, as its worker has seen it.
    pub health_problem: HealthState,
}

impl PublishedHealth {
    /// Nothing is known.
    pub(crate) fn clear(&self) {
        self.set(HealthState::default());
    }

    /// Shows the state of a backend.
    pub(crate) fn set(&self, health_problem: HealthState) {
        self.until_ns.store(health_problem.until_ns, Ordering::Relaxed);
        self.back_ns.store(health_problem.back_ns, Ordering::Relaxed);
        self.ejections.store(health_problem.ejections, Ordering::Relaxed);
        self.is_ejected.store(health_problem.is_ejected, Ordering::Relaxed);
        self.fails_checks.store(health_problem.fails_checks, Ordering::Relaxed);
        self.is_down.store(health_problem.is_down, Ordering::Relaxed);
    }

    /// Returns the published health of the backend.
    pub(crate) fn get(&self) -> HealthState {
        HealthState {
            until_ns: self.until_ns.load(Ordering::Relaxed),
            back_ns: self.back_ns.load(Ordering::Relaxed),
            ejections: self.ejections.load(Ordering::Relaxed),
            is_ejected: self.is_ejected.load(Ordering::Relaxed),
            fails_checks: self.fails_checks.load(Ordering::Relaxed),
            is_down: self.is_down.load(Ordering::Relaxed),
        }
    }
}
