//! Counters of one worker, written by that worker only and read by anybody.
//! Promises: an update is a load and a store of a cache line that only this worker writes.

use flick_net::ShmStats;

use crate::observe::counter::Counter;
use crate::observe::latency::LatencyHistogram;
use crate::observe::outlier::PublishedHealth;
use crate::observe::task_counters::Tasks;

macro_rules! counters {
    ($($name:ident: $doc:literal),+ $(,)?) => {
        /// Counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(#[doc = $doc] pub $name: Counter,)+
            /// From the request that was taken in to its last reply, handed to the connection of its client.
            pub times: LatencyHistogram,
            /// Durations of task runs, sampled in one of `SAMPLE_EVERY_ITERATIONS` iterations.
            pub slices: LatencyHistogram,
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

            /// Adds what another worker has counted.
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
    connections_accepted: "Client connections accepted.",
    connections_open: "Client connections open.",
    connections_rejected: "Client connections rejected: no capacity.",
    connections_over_ip_limit: "Client connections rejected: limit of connections per IP address.",
    accept_rate_limited: "Times that accepting paused: connection rate limit.",
    connections_migrated_out: "Client connections handed to the service's successor.",
    connections_migrated_in: "Client connections taken over from the service's predecessor.",
    accept_pauses: "Times that accepting paused: limit of connections or of file descriptors.",
    requests: "Requests taken from clients.",
    replies: "Replies passed to clients, error responses included.",
    responses_1xx: "Replies passed to clients whose status code is 100 to 199.",
    responses_2xx: "Replies passed to clients whose status code is 200 to 299.",
    responses_3xx: "Replies passed to clients whose status code is 300 to 399.",
    responses_4xx: "Replies passed to clients whose status code is 400 to 499.",
    responses_5xx: "Replies passed to clients whose status code is any other.",
    replies_suppressed: "Replies that the client had asked not to get.",
    errors_unavailable: "Error responses: backend not available.",
    errors_timeout: "Error responses: backend too slow.",
    errors_overload: "Error responses: limit reached.",
    requests_shed: "Requests answered with overload instead of late, or after waiting too long for capacity.",
    errors_malformed: "Error responses: request not of the grammar.",
    protocol_errors_client: "Clients closed because of what they sent.",
    protocol_errors_backend: "Backend connections closed because of what they sent.",
    truncated: "Connections that ended inside a message.",
    slow_clients_dropped: "Clients dropped because they did not read.",
    clients_evicted: "Clients closed because they held what others needed: a backend connection, idle, or most buffers.",
    client_request_timeouts: "Clients closed because a request did not arrive in time.",
    late_replies: "Replies drained because their client had gone.",
    rules_suspended: "Rules that suspended themselves, or that a handler or timer started.",
    rules_cancelled: "Suspended rules cancelled because their client had gone.",
    asks: "Requests sent by `ask`.",
    ask_timeouts: "Asks that timed out.",
    sends_dropped: "Messages of handlers and timers, and copies for mirrors, dropped: no client, or no capacity.",
    events_dropped: "Events whose handler did not run: no capacity.",
    requests_retried: "Requests sent again, on a new connection or to another backend.",
    retries_denied: "Requests not retried: retry budget used up.",
    tunnels: "Connections that became tunnels.",
    backend_connections_opened: "Backend connections opened.",
    backend_connections_closed: "Backend connections that ended after they were opened.",
    backend_connect_errors: "Attempts to connect to a backend that failed.",
    streamed: "Messages too large to buffer, streamed.",
    loops: "Loop iterations of workers that share their thread with other services.",
    busy_ns: "Nanoseconds of these iterations.",
    cpu_throttled: "Times that a service had to wait because it had used its `cpu_max`.",
    first_byte_timeouts: "Clients of an address of several services that sent nothing in time.",
    slices_exceeded: "Times that a task used up its time slice.",
    batch_delays: "Event-loop iterations delayed to batch messages.",
    batch_trials_kept: "Trials that brought the batch delay into force, or left it so.",
    batch_trials_dropped: "Trials after which the batch delay was not in force.",
    merges_completed: "Merges whose whole result was passed on.",
    merges_failed: "Merges that failed.",
    merge_elements: "Elements taken in by merge tasks, those between tasks included.",
    access_log_lines: "Access log lines handed to the writer.",
    access_log_dropped: "Access log lines dropped: the writer is behind, or too many requests are in flight.",
    shm_connections_open: "Connections through shared memory, of clients and to backends, open.",
    shm_processes: "Pairs of a worker and another process that share connections through shared memory, open.",
    shm_ring_bytes: "Bytes of the rings of this process in shared memory.",
    shm_bytes_received: "Bytes received through shared memory.",
    shm_bytes_sent: "Bytes sent through shared memory.",
    shm_wake_ups: "Times that another process woke a worker through shared memory.",
    shm_busy_polled_ns: "Nanoseconds in which workers busy-polled shared memory before they slept.",
    shm_upgraded_open: "Connections of sockets that use shared memory now.",
    shm_upgrades: "Times that a connection of a socket began to use shared memory.",
    shm_downgrades: "Times that such a connection returned to its socket.",
    shm_plain_remote: "Backend connections that stay on their sockets: the backend is on another host.",
    shm_plain_no_peer: "Backend connections that stay on their sockets: no process at the backend uses shared memory.",
    shm_plain_refused: "Backend connections that stay on their sockets: no worker at the backend moves them.",
    shm_plain_other_user: "Backend connections that stay on their sockets: the other end is not known to belong to the same user.",
    shm_plain_limit: "Attempts to use shared memory that found a limit reached.",
    shm_plain_off: "Backend connections within this host that stay on their sockets: `--shm off`.",
    shm_plain_short_lived: "Backend connections that ended before their third exchange.",
    shm_refused: "Clients at `shm:NAME` refused because there was no memory for their rings; `exhausted` has them, too.",
    exhausted: "Connections closed because buffers or tables were full.",
}

impl Counters {
    /// Publishes the use of shared memory.
    pub(crate) fn publish_shm(&self, stats: ShmStats) {
        let ShmStats { conns, pairs, ring_bytes, received_bytes, sent_bytes, wake_ups, .. } = stats;
        self.shm_connections_open.set(conns);
        self.shm_processes.set(pairs);
        self.shm_ring_bytes.set(ring_bytes);
        self.shm_bytes_received.set(received_bytes);
        self.shm_bytes_sent.set(sent_bytes);
        self.shm_wake_ups.set(wake_ups);
        self.shm_busy_polled_ns.set(stats.busy_polled_ns);
        self.exhausted.add(stats.refused.saturating_sub(self.shm_refused.get()));
        self.shm_refused.set(stats.refused);
        self.shm_upgraded_open.set(stats.upgraded);
        self.shm_upgrades.set(stats.upgrades);
        self.shm_downgrades.set(stats.downgrades);
        self.shm_plain_remote.set(stats.plain_remote);
        self.shm_plain_no_peer.set(stats.plain_no_peer);
        self.shm_plain_refused.set(stats.plain_refused);
        self.shm_plain_other_user.set(stats.plain_other_user);
        self.shm_plain_limit.set(stats.plain_limit);
        self.shm_plain_off.set(stats.plain_off);
        self.shm_plain_short_lived.set(stats.plain_short_lived);
    }

    /// Counts a reply to a client by its status code.
    pub(crate) fn count_status(&self, status: u16) {
        let classes = [
            &self.responses_1xx,
            &self.responses_2xx,
            &self.responses_3xx,
            &self.responses_4xx,
            &self.responses_5xx,
        ];
        classes[status_class(status)].add(1);
    }
}

/// Number of classes of status codes.
const STATUS_CLASSES: usize = 5;

/// Returns the class of a status code, from 0 for 1xx. A code of no class counts as 5xx.
fn status_class(status: u16) -> usize {
    // RFC 9110 section 15 recommends to treat a status code of no class as 5xx.
    match status {
        100..500 => usize::from(status / 100) - 1,
        _ => STATUS_CLASSES - 1,
    }
}

/// Counters of one backend as seen by one worker.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// Requests sent to it.
    pub requests: Counter,
    /// Requests for it that the platform answered itself.
    pub failures: Counter,
    /// Replies received from it, by the class of their status code.
    pub responses: [Counter; STATUS_CLASSES],
    /// Bytes sent to it, without those of health checks.
    pub bytes_sent: Counter,
    /// Bytes received from it, without those of health checks.
    pub bytes_received: Counter,
    /// 1 while the shared connection is up.
    pub up: Counter,
    /// 1 while it gets no requests: too many have failed, or its checks do.
    pub unhealthy: Counter,
    /// Times that it was ejected because too many requests in a row had failed.
    pub ejections: Counter,
    /// Checks that failed.
    pub health_check_failures: Counter,
    /// Requests that were not sent because it had as many as it may.
    pub shed: Counter,
    /// 1 while the worker tracks it: it is in the list, or was removed and has not drained.
    pub tracked: Counter,
    /// Health of the backend, for the next generation of the service.
    pub health: PublishedHealth,
    /// From the request that was sent to its last reply.
    pub times: LatencyHistogram,
}

impl BackendCounters {
    /// Counts a reply of the backend by its status code.
    pub(crate) fn count_status(&self, status: u16) {
        self.responses[status_class(status)].add(1);
    }

    /// Sets all to zero, for another backend in the same slot.
    pub(crate) fn clear(&self) {
        for counter in [
            &self.requests,
            &self.failures,
            &self.bytes_sent,
            &self.bytes_received,
            &self.up,
            &self.unhealthy,
            &self.ejections,
            &self.health_check_failures,
            &self.shed,
            &self.tracked,
        ] {
            counter.clear();
        }
        self.responses.iter().for_each(Counter::clear);
        self.health.clear();
        self.times.clear();
    }
}
