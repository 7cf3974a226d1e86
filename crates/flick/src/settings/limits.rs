//! Limits, scheduling and timeouts: each field is an option of `flick run` and a key of `flick.toml`.

use std::time::Duration;

use clap::Args;
use flick_compiler::{REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_BYTES_MIN, RequestOptions};
use flick_runtime::{Limits, OnMaxConnections, TaskScheduling, Timeouts};
use serde::Deserialize;

use super::units::{
    Bounded, BoundedSize, Count, CountOrZero, NonZeroPeriod, Percent, Period, Positive, Size,
};

/// Action for a client connection above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMaxConnectionsSetting {
    /// Stop accepting; clients wait in the kernel's listen queue
    Queue,
    /// Accept, answer with the protocol's overload response if it has one, and close
    Reject,
}

/// Scheduling of tasks: the time at which a task yields to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskSchedulingSetting {
    /// A task runs until its time slice ends or it has no work
    Cooperative,
    /// A task runs until it has no work
    RunToCompletion,
    /// A task handles one message
    RoundRobin,
}

/// Limits of each service, over all its workers.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Limits")]
pub struct LimitSettings {
    /// Maximum number of open client connections. The default is lower where little memory is available.
    /// [default: 20000]
    #[arg(long, value_name = "N")]
    max_connections: Option<Positive>,
    /// Action for a client connection above `--max-connections`. [default: queue]
    #[arg(long, value_name = "ACTION")]
    on_max_connections: Option<OnMaxConnectionsSetting>,
    /// Maximum number of open client connections from one IP address (IPv6: one /64). Connections above it are
    /// rejected. Unix sockets do not count. 0 disables the limit. [default: 0]
    #[arg(long, value_name = "N")]
    max_connections_per_ip: Option<CountOrZero>,
    /// New client connections accepted per second, with a burst of a tenth of that. The rest wait in the kernel's
    /// listen queue. 0 disables the limit. [default: 0]
    #[arg(long, value_name = "N")]
    connection_rate_limit: Option<CountOrZero>,
    /// Maximum number of requests in flight from one client. flick stops reading from the client above it.
    /// [default: 256]
    #[arg(long, value_name = "N")]
    max_inflight_per_client: Option<Positive>,
    /// Maximum number of requests in flight. Requests above it wait for `--queue-timeout`, then are answered with
    /// *overload*. [default: 131072]
    #[arg(long, value_name = "N")]
    max_inflight_requests: Option<Positive>,
    /// Maximum size of a request's head, for protocols whose requests have named fields, such as HTTP: 1KiB to 16KiB. A
    /// larger one is answered with the grammar's error response (431). [default: that of the grammar, 16KiB]
    #[arg(long, value_name = "SIZE")]
    max_request_head: Option<BoundedSize<REQUEST_HEAD_BYTES_MIN, REQUEST_HEAD_BYTES_MAX>>,
    /// Maximum number of named fields of a request. One with more is answered with the grammar's error response (431).
    /// [default: that of the grammar; of HTTP 134]
    #[arg(long, value_name = "N")]
    max_request_fields: Option<Positive>,
    /// Maximum length of the target of a request. A longer one is answered with the grammar's error response (414).
    /// [default: that of the grammar; of HTTP 8KiB]
    #[arg(long, value_name = "SIZE")]
    max_request_target: Option<BoundedSize<1, { 1 << 20 }>>,
    /// Maximum number of rules suspended at one time: they wait for replies to their `ask`, or to be scheduled. A
    /// client whose request needs one more waits. [default: 16384, or as many as fit into `--max-state-memory`]
    #[arg(long, value_name = "N")]
    max_suspended_rules: Option<Positive>,
    /// Work for one message, in steps of about half a nanosecond. A program whose worst message may take more does not
    /// start; `flick check --bounds` prints the figure. 0 allows any. [default: 2000000]
    #[arg(long, value_name = "STEPS")]
    max_message_work: Option<u64>,
    /// Memory for the program's state: `local` variables, suspended rules, dictionaries. A program that could need more
    /// does not start. [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    max_state_memory: Option<Size>,
    /// Memory for everything: buffers, tables, state. Services that could need more do not start.
    /// [default: the machine's memory, or the limit of its cgroup]
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<Size>,
    /// Memory for network buffers. Pages are touched only when used.
    /// [default: 1GiB or what the available memory leaves, divided among the services]
    #[arg(long, value_name = "SIZE")]
    buffer_memory: Option<Size>,
    /// Maximum number of connections from one worker to one backend that are dedicated to a single large message.
    /// [default: 16]
    #[arg(long, value_name = "N")]
    max_dedicated_connections: Option<Positive>,
    /// Maximum number of connections from one worker to one backend, for protocols with one exchange per connection at
    /// a time, such as HTTP/1.1. Requests above it wait for `--queue-timeout`. The default is lower where little memory
    /// is available. [default: 1024]
    #[arg(long, value_name = "N")]
    max_connections_per_backend: Option<Positive>,
    /// Maximum number of backends of a channel whose list may change at run time. [default: 16]
    #[arg(long, value_name = "N")]
    max_backends: Option<Count<1, 512>>,
    /// Target queueing delay per worker. Above it, flick sheds load by answering a fraction of requests with
    /// *overload*. At most 1h. 0 disables. [default: 5s]
    #[arg(long, value_name = "DURATION", help_heading = SCHEDULING)]
    overload_queue_delay: Option<Bounded<0, 3_600_000_000>>,
    /// Policy by which a task yields to the next one. [default: cooperative]
    #[arg(long, value_name = "POLICY", help_heading = SCHEDULING)]
    task_scheduling: Option<TaskSchedulingSetting>,
    /// Time after which a task yields to the next one, with `--task-scheduling cooperative`. At most 100ms.
    /// [default: 50us]
    #[arg(long, value_name = "DURATION", help_heading = SCHEDULING)]
    time_slice: Option<Bounded<0, 100_000>>,
    /// Longest time that a busy worker waits to batch more messages into one event-loop iteration. It waits only while
    /// short trials show that it handles more requests so. At most 10ms. 0 disables. [default: 0]
    #[arg(long, value_name = "DURATION", help_heading = SCHEDULING)]
    batch_delay_max: Option<Bounded<0, 10_000>>,
    /// Time that an idle worker polls for events before it sleeps. At most 1ms. 0 disables busy polling. [default: 0]
    #[arg(long, value_name = "DURATION", help_heading = SCHEDULING)]
    busy_poll: Option<Bounded<0, 1_000>>,
    /// Time that a worker polls shared memory before it sleeps, while the other sides answer within it. At most 1ms. 0
    /// disables it; so does `--cpu-max`. [default: 80us]
    #[arg(long, value_name = "DURATION", help_heading = SCHEDULING)]
    shm_busy_poll: Option<Bounded<0, 1_000>>,
    /// Share of a thread, relative to the other busy services on it. 1 to 10000. [default: 100]
    #[arg(long, value_name = "WEIGHT", help_heading = SCHEDULING)]
    cpu_weight: Option<Count<1, 10_000>>,
    /// Maximum share of each thread that a service uses, even if the thread is otherwise idle. [default: 100%]
    #[arg(long, value_name = "PERCENT", help_heading = SCHEDULING)]
    cpu_max: Option<Percent>,
}

/// Help heading of the options that decide when work is done.
const SCHEDULING: &str = "Overload and scheduling";

impl LimitSettings {
    /// Sets the memory for state to `bytes`, unless it is set.
    pub fn default_state_memory(&mut self, bytes: u64) {
        self.max_state_memory.get_or_insert(Size(bytes));
    }

    /// Work that one message may cause, in steps.
    pub fn max_message_work(&self) -> Option<u64> {
        self.max_message_work
    }

    /// Memory that the service may need, in bytes.
    pub fn max_memory(&self) -> Option<u64> {
        self.max_memory.map(|size| size.0)
    }

    /// Whether the memory for network buffers is set.
    pub fn sets_buffer_memory(&self) -> bool {
        self.buffer_memory.is_some()
    }

    /// Whether the maximum number of client connections is set.
    pub fn sets_max_connections(&self) -> bool {
        self.max_connections.is_some()
    }

    /// Whether the maximum number of connections to a backend is set.
    pub fn sets_max_connections_per_backend(&self) -> bool {
        self.max_connections_per_backend.is_some()
    }

    /// Overwrites the limits of requests that are set.
    pub fn apply_to_requests(&self, options: &mut RequestOptions) {
        let head = self.max_request_head.map(|size| size.0);
        options.head_bytes_max = head.or(options.head_bytes_max);
        options.fields_max = self.max_request_fields.map(|count| count.0).or(options.fields_max);
        options.name_bytes_max = self.max_request_target.map(|size| size.0).or(options.name_bytes_max);
    }

    /// Overwrites the limits that are set.
    pub fn apply(&self, limits: &mut Limits) {
        set(&mut limits.max_connections, self.max_connections.map(|count| count.0));
        let on_max_connections = self.on_max_connections.map(|action| match action {
            OnMaxConnectionsSetting::Queue => OnMaxConnections::Queue,
            OnMaxConnectionsSetting::Reject => OnMaxConnections::Reject,
        });
        set(&mut limits.on_max_connections, on_max_connections);
        set(&mut limits.max_connections_per_ip, self.max_connections_per_ip.map(|count| count.0));
        set(&mut limits.connection_rate_limit, self.connection_rate_limit.map(|count| count.0));
        set(&mut limits.max_inflight_per_client, self.max_inflight_per_client.map(|count| count.0));
        set(&mut limits.max_inflight_requests, self.max_inflight_requests.map(|count| count.0));
        set(&mut limits.max_suspended_rules, self.max_suspended_rules.map(|count| count.0));
        set(&mut limits.max_state_memory, self.max_state_memory.map(|size| size.0));
        set(&mut limits.buffer_memory, self.buffer_memory.map(|size| size.0));
        set(&mut limits.max_dedicated_connections, self.max_dedicated_connections.map(|count| count.0));
        set(&mut limits.max_connections_per_backend, self.max_connections_per_backend.map(|count| count.0));
        set(&mut limits.max_backends, self.max_backends.map(|count| count.0));
        let policy = self.task_scheduling.map(|policy| match policy {
            TaskSchedulingSetting::Cooperative => TaskScheduling::Cooperative,
            TaskSchedulingSetting::RunToCompletion => TaskScheduling::RunToCompletion,
            TaskSchedulingSetting::RoundRobin => TaskScheduling::RoundRobin,
        });
        set(&mut limits.task_scheduling, policy);
        set(&mut limits.overload_queue_delay, self.overload_queue_delay.map(|period| period.0));
        set(&mut limits.time_slice, self.time_slice.map(|period| period.0));
        set(&mut limits.batch_delay_max, self.batch_delay_max.map(|period| period.0));
        set(&mut limits.busy_poll, self.busy_poll.map(|period| period.0));
        set(&mut limits.shm_busy_poll, self.shm_busy_poll.map(|period| period.0));
        set(&mut limits.cpu_weight, self.cpu_weight.map(|count| count.0));
        set(&mut limits.cpu_max_percent, self.cpu_max.map(|percent| percent.0));
    }
}

/// Timeouts of each service. An option is the key with `-timeout` behind it, but for the backoff.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Timeouts")]
pub struct TimeoutSettings {
    /// Time to connect to a backend. [default: 5s]
    #[arg(id = "connect_timeout", long = "connect-timeout", value_name = "DURATION")]
    connect: Option<NonZeroPeriod>,
    /// Time from sending a request to a backend to the end of the response, or to its first bytes if it is streamed.
    /// [default: 60s if each exchange has its own connection (HTTP), 2s on shared connections]
    #[arg(id = "response_timeout", long = "response-timeout", value_name = "DURATION")]
    response: Option<NonZeroPeriod>,
    /// Time after which a request without any byte of a response goes to another backend, once, if its own has sent
    /// nothing to any client since. At least four times as long as the slowest response of the last minute. Only
    /// requests that the protocol lets flick repeat (`%retry`), balanced without a key. 0 disables. [default: 1s]
    #[arg(id = "retry_timeout", long = "retry-timeout", value_name = "DURATION")]
    retry: Option<Period>,
    /// Time between two pieces of a streamed response, on a connection dedicated to it. [default: 5m]
    #[arg(id = "stream_idle_timeout", long = "stream-idle-timeout", value_name = "DURATION")]
    stream_idle: Option<NonZeroPeriod>,
    /// Time from receiving a request to the end of its response, body upload and retries included. 0 disables.
    /// [default: 0]
    #[arg(id = "total_timeout", long = "total-timeout", value_name = "DURATION")]
    total: Option<Period>,
    /// Time that a request waits for capacity: a slot among the requests in flight, or a backend connection. Then it is
    /// answered with *overload*. 0 waits without limit.
    /// [default: 5s if each exchange has its own connection (HTTP), 1s on shared connections]
    #[arg(id = "queue_timeout", long = "queue-timeout", value_name = "DURATION")]
    queue: Option<Period>,
    /// Time from the first byte of a request to its last. A client that has sent 240 bytes a second gets this time
    /// again. [default: 30s]
    #[arg(id = "client_request_timeout", long = "client-request-timeout", value_name = "DURATION")]
    client_request: Option<NonZeroPeriod>,
    /// Time that a client may leave a response unread while it blocks a shared backend connection. [default: 200ms]
    #[arg(id = "client_write_timeout", long = "client-write-timeout", value_name = "DURATION")]
    client_write: Option<Period>,
    /// Time without traffic after which a client connection is closed. 0 disables. Not for tunnels (`Upgrade`,
    /// `CONNECT`), which end after 10 minutes without traffic. [default: 10m for relays, else 0]
    #[arg(id = "idle_timeout", long = "idle-timeout", value_name = "DURATION")]
    idle: Option<Period>,
    /// Time for the requests in flight on a backend that was removed from its list. [default: 10s]
    #[arg(id = "backend_drain_timeout", long = "backend-drain-timeout", value_name = "DURATION")]
    backend_drain: Option<Period>,
    /// First delay before flick reconnects to a backend. It doubles with each failure, with jitter. [default: 10ms]
    #[arg(long, value_name = "DURATION")]
    reconnect_backoff_min: Option<Period>,
    /// Longest delay before flick reconnects to a backend. [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    reconnect_backoff_max: Option<Period>,
}

impl TimeoutSettings {
    /// `reconnect_backoff_min`, if set.
    pub fn reconnect_backoff_min(&self) -> Option<Duration> {
        self.reconnect_backoff_min.map(|period| period.0)
    }

    /// `reconnect_backoff_max`, if set.
    pub fn reconnect_backoff_max(&self) -> Option<Duration> {
        self.reconnect_backoff_max.map(|period| period.0)
    }

    /// Overwrites the timeouts that are set.
    pub fn apply(&self, timeouts: &mut Timeouts) {
        let period = |setting: Option<Period>| setting.map(|period| period.0);
        set(&mut timeouts.connect, self.connect.map(|time| time.0));
        set(&mut timeouts.response, self.response.map(|time| Some(time.0)));
        set(&mut timeouts.retry, period(self.retry));
        set(&mut timeouts.stream_idle, self.stream_idle.map(|time| time.0));
        set(&mut timeouts.total, period(self.total));
        set(&mut timeouts.queue, self.queue.map(|period| Some(period.0)));
        set(&mut timeouts.client_request, self.client_request.map(|time| time.0));
        set(&mut timeouts.client_write, period(self.client_write));
        set(&mut timeouts.idle, self.idle.map(|period| Some(period.0)));
        set(&mut timeouts.backend_drain, period(self.backend_drain));
        set(&mut timeouts.reconnect_backoff_min, period(self.reconnect_backoff_min));
        set(&mut timeouts.reconnect_backoff_max, period(self.reconnect_backoff_max));
    }
}

/// Overwrites `target` with a value that is set.
pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}
