//! What the workers of one platform share with each other and the control thread: a few numbers, none of them on the
//! path of a message.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::config::Limits;
use crate::guests::{AcceptClock, Guests};

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const STOPPED: u8 = 2;

/// The shared numbers.
#[derive(Debug, Default)]
pub struct Shared {
    state: AtomicU8,
    drain_ms: AtomicU64,
    sessions: AtomicU32,
    /// Only of a service that bounds the clients of an address.
    guests: OnceLock<Guests>,
    accepts: AcceptClock,
}

impl Shared {
    /// Makes what the limits of a service need, once, whichever worker comes first.
    pub(crate) fn prepare(&self, limits: &Limits) {
        if limits.connections_per_address_max > 0 {
            self.guests.get_or_init(|| Guests::new(limits.sessions_max));
        }
    }

    /// Who is connected from where, if that is bounded.
    pub(crate) fn guests(&self) -> Option<&Guests> {
        self.guests.get()
    }

    /// When the next client may come.
    pub(crate) fn accepts(&self) -> &AcceptClock {
        &self.accepts
    }

    /// Asks all workers to finish what they have.
    pub fn drain(&self, deadline: Duration) {
        self.drain_ms.store(deadline.as_millis() as u64, Ordering::Relaxed);
        let _ = self.state.compare_exchange(RUNNING, DRAINING, Ordering::Release, Ordering::Relaxed);
    }

    /// Asks all workers to stop at once.
    pub fn stop(&self) {
        self.state.store(STOPPED, Ordering::Release);
    }

    /// How long draining may take, if it was asked for.
    pub fn drain_asked(&self) -> Option<Duration> {
        (self.state.load(Ordering::Acquire) >= DRAINING)
            .then(|| Duration::from_millis(self.drain_ms.load(Ordering::Relaxed)))
    }

    /// Whether stopping was asked for.
    pub fn must_stop(&self) -> bool {
        self.state.load(Ordering::Acquire) == STOPPED
    }

    /// Counts a session in, unless there are `most` already.
    pub fn take_session(&self, most: u32) -> bool {
        self.sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1))
            .is_ok()
    }

    /// Counts a session out.
    pub fn give_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the next session would be refused.
    pub fn sessions_full(&self, most: u32) -> bool {
        self.sessions.load(Ordering::Relaxed) >= most
    }
}
