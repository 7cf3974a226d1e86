//! Backends that ail, as one generation of a service knows them and tells the next one: after a reload clients do not find out again
//! what was known.
//! Promises: shown by one worker, read by anybody; who is well and always was is not listed; a time is of the clock that all generations have.
//! Refuses: another process, which has to find out by itself.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use flick_net::Endpoint;

/// What a worker shows of a backend that it has.
#[derive(Debug, Default)]
pub struct PublishedHealth {
    until_ns: AtomicU64,
    back_ns: AtomicU64,
    ejections: AtomicU32,
    is_ejected: AtomicBool,
    fails_checks: AtomicBool,
    is_down: AtomicBool,
}

/// What is wrong with a backend, or was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthState {
    /// When it is back that is out for what became of requests, or was.
    pub until_ns: u64,
    /// Since when it is back, or new; 0: it always was there.
    pub back_ns: u64,
    /// Times in short order that it was out.
    pub ejections: u32,
    /// It is out for what became of requests.
    pub is_ejected: bool,
    /// Its checks fail.
    pub fails_checks: bool,
    /// It cannot be dialled.
    pub is_down: bool,
}

/// A backend with which something is wrong.
#[derive(Clone, Debug)]
pub struct UnhealthyBackend {
    /// Name of its channel.
    pub channel: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// What.
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

    /// What is wrong with it.
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
