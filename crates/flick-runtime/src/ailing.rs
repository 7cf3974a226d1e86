//! Backends that ail, as one generation of a service knows them and tells the next one: after a reload clients do not find out again
//! what was known.
//! Promises: shown by one worker, read by anybody; who is well is not listed; a time is of the clock that all generations have.
//! Refuses: another process, which has to find out by itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flick_net::Endpoint;

use crate::backend::Backend;

/// What a worker shows of a backend that it has.
#[derive(Debug, Default)]
pub struct Ails {
    ejected_until_ns: AtomicU64,
    fails_checks: AtomicBool,
    is_down: AtomicBool,
}

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ailment {
    /// It is out until then, for what became of requests; 0: it is not.
    pub ejected_until_ns: u64,
    /// Its checks fail.
    pub fails_checks: bool,
    /// It cannot be dialled.
    pub is_down: bool,
}

/// A backend with which something is wrong.
#[derive(Clone, Debug)]
pub struct Ailing {
    /// Name of its channel.
    pub channel: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// What.
    pub ailment: Ailment,
}

impl Ails {
    /// Shows how a backend is now.
    pub(crate) fn show(&self, backend: &Backend) {
        let health = &backend.health;
        self.set(Ailment {
            ejected_until_ns: if health.is_ejected { health.until_ns } else { 0 },
            fails_checks: health.fails_checks,
            is_down: backend.failures > 0,
        });
    }

    /// Nothing is known.
    pub(crate) fn clear(&self) {
        self.set(Ailment::default());
    }

    fn set(&self, ailment: Ailment) {
        self.ejected_until_ns.store(ailment.ejected_until_ns, Ordering::Relaxed);
        self.fails_checks.store(ailment.fails_checks, Ordering::Relaxed);
        self.is_down.store(ailment.is_down, Ordering::Relaxed);
    }

    /// What is wrong with it.
    pub(crate) fn get(&self) -> Ailment {
        Ailment {
            ejected_until_ns: self.ejected_until_ns.load(Ordering::Relaxed),
            fails_checks: self.fails_checks.load(Ordering::Relaxed),
            is_down: self.is_down.load(Ordering::Relaxed),
        }
    }
}
