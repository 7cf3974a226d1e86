//! Counters of one worker, written by that worker only and read by anybody.
//! Promises: an update is a load and a store of a cache line that only this worker writes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ailing::Ails;
use crate::latencies::Latency;
use crate::tasks::Tasks;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the owning worker calls this.
    pub fn add(&self, amount: u64) {
        if cfg!(feature = "uncounted") {
            return;
        }
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts. Only the owning worker calls this.
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    /// Begins anew. Only the owning worker calls this.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Reads.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($name:ident: $doc:literal),+ $(,)?) => {
        /// Counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(#[doc = $doc] pub $name: Counter,)+
            /// From the request that was taken in to its last reply, handed to the connection of its client.
            pub times: Latency,
            /// How long a task ran at a time, in one turn of a few.
            pub slices: Latency,
            /// By kind of task.
            pub tasks: Tasks,
        }

        /// Counters of the whole platform at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Totals { $(#[doc = $doc] pub $name: u64,)+ }

        impl Totals {
            /// Adds one worker's counters.
            pub fn absorb(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)+
            }

            /// Adds what somebody else has counted.
            pub fn merge(&mut self, other: &Totals) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }

            /// Names and what they count, in a fixed order.
            pub fn meanings() -> &'static [(&'static str, &'static str)] {
                &[$((stringify!($name), $doc)),+]
            }

            /// Names and values, in a fixed order.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    sessions_accepted: "Client connections accepted.",
    sessions_open: "Client connections open now.",
    sessions_refused: "Client connections closed at once for want of room.",
    sessions_over_address: "Client connections turned away: their address has as many as it may.",
    accept_waits: "Times that accepting paused: clients came faster than they are let in.",
    sessions_handed_over: "Client connections handed to the service that took this one's place.",
    sessions_taken_over: "Client connections taken over from the service whose place this one took.",
    accept_pauses: "Times that accepting paused: the limit of sessions, or of file descriptors, was reached.",
    requests: "Requests taken from clients.",
    replies: "Replies passed to clients, those of the platform included.",
    silent: "Replies that the client had asked not to hear.",
    failed_unavailable: "Requests answered by the platform: backend not available.",
    failed_timeout: "Requests answered by the platform: backend too slow.",
    failed_overload: "Requests answered by the platform: limit reached.",
    shed: "Requests answered by the platform because they would have been served late, or had waited too long for room.",
    failed_malformed: "Requests answered by the platform: not of the grammar.",
    peer_faults_client: "Clients closed because of what they sent.",
    peer_faults_backend: "Backend connections closed because of what they sent.",
    truncated: "Connections that ended inside a message.",
    slow_clients_dropped: "Clients dropped because they did not read and held up a shared connection.",
    request_timeouts: "Clients closed because a request did not arrive in time.",
    orphan_replies: "Replies drained because their client had gone.",
    activations: "Activations of rules that suspended themselves, or that a handler or timer started.",
    activations_cancelled: "Activations cancelled because their client had gone.",
    asks: "Requests that rules asked with.",
    asks_late: "Asks whose own time-out passed.",
    sends_dropped: "Messages of handlers and timers for a client that they do not have, or for which there was no room.",
    events_lost: "Events whose handler did not run for want of room.",
    retried: "Requests sent again, on a fresh connection or to another backend: theirs had ended before a reply began.",
    retries_denied: "Requests not sent to another backend because too many had been.",
    tunnels: "Connections that became tunnels.",
    links_connected: "Backend connections that came up.",
    links_failed: "Backend connections that failed or were closed by us.",
    streamed: "Messages too large to gather, passed on as they arrived.",
    turns: "Turns of workers that share their thread with other services.",
    busy_ns: "Nanoseconds of such turns.",
    share_waits: "Times that a service had to wait although it had something to do: it had used its share.",
    silent_dropped: "Clients of an address of several services who said nothing in time.",
    slices_exceeded: "Times that a task used up its time slice.",
    jobs_complete: "Merges whose whole result was passed on.",
    jobs_failed: "Merges that failed; all their connections were reset.",
    merge_elements: "Elements taken in by merge tasks, those between tasks included.",
    access_lines: "Lines of the access log handed to its writer.",
    access_lost: "Lines of the access log left out: its writer did not keep up, or too many requests were under way.",
    exhausted: "Connections closed because buffers or tables were full.",
}

/// Counters of one backend as seen by one worker.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// Requests sent to it.
    pub requests: Counter,
    /// Requests for it that the platform answered itself.
    pub failures: Counter,
    /// 1 while the shared connection is up.
    pub up: Counter,
    /// 1 while it gets no requests: too many have failed, or its checks do.
    pub out: Counter,
    /// Times that it was put out because too many requests in a row had failed.
    pub ejections: Counter,
    /// Checks that failed.
    pub check_failures: Counter,
    /// Requests that were not sent because it had as many as it may.
    pub shed: Counter,
    /// 1 while the worker has to do with it: it is in the list, or has left it and has not finished.
    pub held: Counter,
    /// What is wrong with it.
    pub ails: Ails,
    /// From the request that was sent to its last reply.
    pub times: Latency,
}

impl BackendCounters {
    /// Begins anew for another backend in the same place.
    pub(crate) fn clear(&self) {
        for counter in [
            &self.requests,
            &self.failures,
            &self.up,
            &self.out,
            &self.ejections,
            &self.check_failures,
            &self.shed,
            &self.held,
        ] {
            counter.clear();
        }
        self.ails.clear();
        self.times.clear();
    }
}
