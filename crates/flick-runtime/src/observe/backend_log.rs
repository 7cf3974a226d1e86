//! Counts of the workers that have found something wrong with a backend, so that the log says it once for all of them.
//! Promises: a line when the first worker finds it, and one when the last worker finds it no more; counting costs the
//! workers nothing while nothing changes.
//! Not here: what a worker does about it (`upstream/health.rs`).

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use flick_net::ConnFault;

/// Trouble that a worker finds with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It cannot be connected, or has lost its connection.
    Down,
    /// It is ejected: too many requests have failed.
    Ejected,
    /// Its health checks fail.
    FailsChecks,
}

impl Trouble {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Down, Self::Ejected, Self::FailsChecks];
}

/// Number of workers of a service, by backend and trouble, and the first backend that a session of a relay has lost.
#[derive(Debug)]
pub struct BackendLog {
    workers: Box<[[AtomicU32; Trouble::ALL.len()]]>,
    lost: OnceLock<(usize, WhyDown)>,
}

impl BackendLog {
    /// Counts for this number of slots of backends.
    pub(crate) fn new(slots: usize) -> Self {
        Self { workers: (0..slots).map(|_| Default::default()).collect(), lost: OnceLock::new() }
    }

    /// A session of a relay has lost a backend before its client's end.
    pub(crate) fn note_lost(&self, at: usize, why: WhyDown) {
        // The first one counts.
        let _ = self.lost.set((at, why));
    }

    /// Returns the slot of the first backend that a session of a relay has lost, and why.
    pub(crate) fn lost(&self) -> Option<(usize, WhyDown)> {
        self.lost.get().copied()
    }

    /// A worker has found the trouble, or finds it no more. Returns whether it is the first, or was the last one.
    pub(crate) fn note(&self, at: usize, trouble: Trouble, on: bool) -> bool {
        let workers = &self.workers[at][trouble as usize];
        if on {
            workers.fetch_add(1, Ordering::Relaxed) == 0
        } else {
            workers.fetch_sub(1, Ordering::Relaxed) == 1
        }
    }
}

/// The reason for which a backend is down, or fails its health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WhyDown {
    /// It has closed its connection.
    #[default]
    Closed,
    /// The connection has failed.
    Fault(ConnFault),
    /// It did not accept the connection in time.
    ConnectTimeout,
    /// It did not answer in time.
    ResponseTimeout,
    /// It has sent what is not a response to a request.
    WrongResponse,
    /// It did not answer a health check in time.
    NoReply,
    /// It has answered a health check with something else.
    UnexpectedReply,
}

impl fmt::Display for WhyDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "it closed the connection",
            Self::Fault(ConnFault::Refused) => "connection refused",
            Self::Fault(ConnFault::Reset) => "connection reset",
            Self::Fault(ConnFault::Exhausted) => "no buffer is free",
            Self::Fault(ConnFault::OtherUser) => {
                "it belongs to another user, and only processes of one user share memory; use TCP or a Unix socket"
            }
            Self::Fault(ConnFault::PairMemory) => {
                "no memory for further rings, here or there; raise --buffer-memory or --max-memory"
            }
            Self::Fault(ConnFault::System(errno)) => {
                return write!(f, "{}", std::io::Error::from_raw_os_error(*errno));
            }
            Self::ConnectTimeout => "no connection within the connect timeout",
            Self::ResponseTimeout => "no response within the response timeout",
            Self::WrongResponse => "wrong response",
            Self::NoReply => "no reply within `health_check_timeout`",
            Self::UnexpectedReply => "its reply does not begin with `health_check_expect`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendLog, Trouble};

    #[test]
    fn backend_that_all_workers_find_down_is_logged_once() {
        let log = BackendLog::new(2);
        let note = |on| log.note(1, Trouble::Down, on);
        assert_eq!([true, true, true].map(note), [true, false, false]);
        assert!(
            log.note(1, Trouble::Ejected, true) && log.note(0, Trouble::Down, true),
            "others are counted apart"
        );
        assert_eq!([false, false, true, false, false].map(note), [false, false, false, false, true]);
    }
}
