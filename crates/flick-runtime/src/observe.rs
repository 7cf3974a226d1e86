//! Observability of a worker: counters, latencies, the access log, the heartbeat and the session list.

pub mod access_log;
pub(crate) mod backend_log;
pub mod counter;
pub mod counters;
pub(crate) mod descriptor_log;
pub mod edge_counters;
pub(crate) mod heartbeat;
pub mod latency;
pub(crate) mod outlier;
pub mod program_log;
pub mod session_list;
pub mod tap;
pub mod task_counters;

use std::sync::Arc;

use flick_abi::Frame;
use flick_net::Endpoint;

use self::access_log::{AccessLogSink, AccessRecorder};
use self::counters::{BackendCounters, Counters};
use self::edge_counters::EdgeCounters;
use self::heartbeat::{Heartbeat, HeartbeatReader};
use crate::limits::ANSWERED_MAX;
use crate::slab::Key;

/// Its counters, the recorder of the access log, and the heartbeat that a watchdog reads.
///
/// Component of the worker.
pub(crate) struct Observe {
    counters: Arc<Counters>,
    backends: Arc<Vec<BackendCounters>>,
    edges: Arc<EdgeCounters>,
    access: Option<Box<AccessRecorder>>,
    heartbeat: Heartbeat,
    /// Arrival times of the requests that were answered since the clock was last read.
    answered: Vec<u64>,
}

impl Observe {
    /// Counts in the given counters; `access`: where the access log goes, if there is one.
    pub(crate) fn new(
        counters: Arc<Counters>,
        backends: Arc<Vec<BackendCounters>>,
        edges: Arc<EdgeCounters>,
        access: Option<AccessLogSink>,
    ) -> Self {
        Self {
            counters,
            backends,
            edges,
            access: access.map(|sink| Box::new(AccessRecorder::new(sink))),
            heartbeat: Heartbeat::default(),
            answered: Vec::with_capacity(ANSWERED_MAX),
        }
    }

    /// Counters of the worker.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counters of the backend in slot `at`.
    #[inline]
    pub(crate) fn backend(&self, at: usize) -> &BackendCounters {
        &self.backends[at]
    }

    /// Counters of the edges of the task graph.
    #[inline]
    pub(crate) fn edges(&self) -> &EdgeCounters {
        &self.edges
    }

    /// Notes for the watchdog that an iteration begins.
    pub(crate) fn beat(&mut self) {
        self.heartbeat.beat();
    }

    /// Returns the reader of the heartbeat, for the watchdog.
    pub(crate) fn heartbeat_reader(&self) -> HeartbeatReader {
        self.heartbeat.reader()
    }

    /// Whether there is an access log.
    #[inline]
    pub(crate) fn has_access_log(&self) -> bool {
        self.access.is_some()
    }

    /// The recorder of the access log, if there is one.
    #[inline]
    pub(crate) fn recorder(&mut self) -> Option<&mut AccessRecorder> {
        self.access.as_deref_mut()
    }

    /// Shows the access log the message of `bytes` bytes, parsed into `frame`, from which a request may be opened next.
    #[inline]
    pub(crate) fn look(&mut self, front: &[u8], bytes: u32, frame: Option<&Frame>) {
        if let Some(recorder) = &mut self.access {
            recorder.look(front, bytes, frame);
        }
    }

    /// Ends what [`Self::look`] has begun: a request that is opened now was not read from a message.
    #[inline]
    pub(crate) fn look_away(&mut self) {
        if let Some(recorder) = &mut self.access {
            recorder.look_away();
        }
    }

    /// Notes that a reply is sent, and if it answers its request, when that arrived (`taken_ns`). The duration is
    /// measured at the end of the iteration, or now if too many are noted.
    #[inline]
    pub(crate) fn note_answered(&mut self, taken_ns: Option<u64>, logged: Option<Key>, now_ns: u64) {
        self.answered.extend(taken_ns);
        if let Some((recorder, key)) = self.access.as_mut().zip(logged) {
            recorder.end(key);
        }
        if self.answered.len() == ANSWERED_MAX {
            self.measure_answered(now_ns);
        }
    }

    /// Whether [`Self::flush_answered`] has something to do.
    pub(crate) fn has_answered(&self) -> bool {
        !self.answered.is_empty() || self.access.as_ref().is_some_and(|recorder| recorder.is_due())
    }

    /// Measures the requests that were answered in this iteration, and hands them to the writer of the access log.
    /// `address_of`: the address of the backend in a slot.
    pub(crate) fn flush_answered<'a>(&mut self, now_ns: u64, address_of: impl Fn(u32) -> &'a Endpoint) {
        self.measure_answered(now_ns);
        if let Some(recorder) = &mut self.access
            && recorder.is_due()
        {
            recorder.write(&self.counters, now_ns, address_of);
        }
    }

    fn measure_answered(&mut self, now_ns: u64) {
        let times = &self.counters.times;
        self.answered.drain(..).for_each(|taken_ns| times.note(now_ns.saturating_sub(taken_ns)));
    }
}
