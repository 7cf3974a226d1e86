//! Configuration of a platform: bindings, limits and timeouts, with their defaults.

mod backend_address;
mod health;

pub use backend_address::{BackendAddress, BackendMode, BackendOverride};
pub use health::{HealthLimits, RetryLimits};

use std::time::Duration;

use flick_net::{Endpoint, IoKind};

use crate::limits::{RING_MEMORY_MIN_BYTES, RING_MEMORY_SHARE, SHM_BUSY_POLL, TUNNEL_IDLE_MS};
use crate::observe::access_log::AccessLog;

/// Addresses for one channel of the process.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The channel's name in the signature.
    pub channel: String,
    /// Addresses to listen on, or addresses of the array's elements in order.
    pub endpoints: Vec<Endpoint>,
    /// Weights of the elements, in the same order; empty: all are equal.
    pub weights: Vec<u32>,
    /// Ranks of the elements, in the same order, see [`BackendAddress::rank`]; empty: no element is a backup.
    pub ranks: Vec<u16>,
    /// Mode of each of them; nothing: all are ready.
    pub modes: Vec<BackendMode>,
    /// The operator's changes of them.
    pub overrides: Vec<BackendOverride>,
}

impl Binding {
    /// Addresses that weigh the same.
    pub fn new(channel: impl Into<String>, endpoints: Vec<Endpoint>) -> Self {
        let (weights, ranks, modes, overrides) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { channel: channel.into(), endpoints, weights, ranks, modes, overrides }
    }

    /// The elements with their weights.
    pub fn members(&self) -> Vec<BackendAddress> {
        let weights = self.weights.iter().copied().chain(std::iter::repeat(1));
        let ranks = self.ranks.iter().copied().chain(std::iter::repeat(0));
        let modes = self.modes.iter().copied().chain(std::iter::repeat(BackendMode::Ready));
        let each = self.endpoints.iter().zip(weights).zip(ranks).zip(modes);
        let member = |(((at, weight), rank), mode): (((&Endpoint, u32), u16), BackendMode)| {
            BackendAddress::weighing(at.clone(), weight).ranking(rank).in_mode(mode)
        };
        each.map(member).collect()
    }
}

/// Action for a client beyond `Limits::max_connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnMaxConnections {
    /// Stop accepting until a session ends; peers wait in the kernel's queue.
    #[default]
    Queue,
    /// Accept and close at once.
    Reject,
}

/// Scheduling policy: how long a task runs before the next one. Source: FLICK §6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TaskScheduling {
    /// Until its time slice is over, or it has nothing to do.
    #[default]
    Cooperative,
    /// Until it has nothing to do.
    RunToCompletion,
    /// For one message.
    RoundRobin,
}

/// Limits of the whole process; each worker gets a share of those that count things.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Client connections at one time.
    pub max_connections: u32,
    /// Clients that a predecessor hands over. They are served although `max_connections` is lower now. Not a setting.
    pub inherited_connections: u32,
    /// The limit on open files has lowered `max_connections`: a client beyond it evicts one that is idle. Not a
    /// setting.
    pub few_descriptors: bool,
    /// Action for clients beyond `max_connections`.
    pub on_max_connections: OnMaxConnections,
    /// Client connections of one address at one time, of IPv6 of one /64; those beyond are turned away. Zero: as many
    /// as there are sessions.
    pub max_connections_per_ip: u32,
    /// Client connections let in per second; those beyond wait in the kernel's queue. Zero: as fast as they come.
    pub connection_rate_limit: u32,
    /// Requests of one client in flight. A client with more waits.
    pub max_inflight_per_client: u32,
    /// Requests in flight.
    pub max_inflight_requests: u32,
    /// Rules that wait at one time: for replies to what they asked, or, handlers, for their turn. A
    /// client whose request needs one more waits.
    pub max_suspended_rules: u32,
    /// Memory for the program's own state, in bytes: of sessions and of activations that wait. A program that could
    /// need more does not start.
    pub max_state_memory: u64,
    /// Memory for network buffers, in bytes. Touched only when used.
    pub buffer_memory: u64,
    /// Connections of one worker to one backend that are dedicated to one exchange each (messages too large to buffer).
    pub max_dedicated_connections: u32,
    /// Connections of one worker to one backend of a protocol in which each exchange has one for itself.
    pub max_connections_per_backend: u32,
    /// Most elements of a channel of backends whose list may change while the service runs; 0: as many as it is given
    /// at the start.
    pub max_backends: u32,
    /// Scheduling policy: how long a task runs before the next one.
    pub task_scheduling: TaskScheduling,
    /// Target queueing delay per worker. Above it, the worker sheds load by answering a fraction of the requests with
    /// *overload*. Zero: it sheds none.
    pub overload_queue_delay: Duration,
    /// Limits on requests to backends, by their health and their load.
    pub health: HealthLimits,
    /// Retry budget: the requests that may be sent to another backend when theirs has failed.
    pub retries: RetryLimits,
    /// Time a task may run before it goes to the back of the queue, where the policy is cooperative.
    pub time_slice: Duration,
    /// Bytes of the ring between two tasks of a merge, a power of two.
    pub merge_ring_bytes: usize,
    /// Longest time that a busy worker waits for more messages in one iteration; zero: never. See
    /// `overload/batch_delay.rs`.
    pub batch_delay_max: Duration,
    /// Time that a worker without work polls before it sleeps, at most a millisecond; zero: it sleeps at once.
    pub busy_poll: Duration,
    /// Time for which a worker busy-polls rings in shared memory before it sleeps, while the other side answers within
    /// it, at most a millisecond; zero: it sleeps at once.
    pub shm_busy_poll: Duration,
    /// Its part of a thread that it shares, against the other services that have something to do.
    pub cpu_weight: u32,
    /// The part of a thread that it has at most, in percent, whatever the others do.
    pub cpu_max_percent: u32,
}

impl Limits {
    /// Sessions that a worker has room for.
    pub(crate) fn session_slots(&self) -> u32 {
        self.max_connections.max(self.inherited_connections)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            inherited_connections: 0,
            few_descriptors: false,
            on_max_connections: OnMaxConnections::Queue,
            max_connections_per_ip: 0,
            connection_rate_limit: 0,
            max_inflight_per_client: 256,
            max_inflight_requests: 131_072,
            max_suspended_rules: 16_384,
            max_state_memory: 1 << 30,
            buffer_memory: 1 << 30,
            max_dedicated_connections: 16,
            max_connections_per_backend: 1024,
            max_backends: 0,
            health: HealthLimits::default(),
            retries: RetryLimits::default(),
            task_scheduling: TaskScheduling::default(),
            overload_queue_delay: Duration::from_secs(5),
            time_slice: Duration::from_micros(50),
            merge_ring_bytes: 128 * 1024,
            batch_delay_max: Duration::ZERO,
            busy_poll: Duration::ZERO,
            shm_busy_poll: SHM_BUSY_POLL,
            cpu_weight: 100,
            cpu_max_percent: 100,
        }
    }
}

/// Timeouts.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// Connecting to a backend.
    pub connect: Duration,
    /// From a request's leaving to its whole reply. The connection it went out on is closed when it passes. `None`:
    /// [`Timeouts::response`] decides.
    pub response: Option<Duration>,
    /// From a request's leaving until it is judged whether its backend is silent: then the request goes to another
    /// backend if it may, and picks without a key avoid the silent one. Zero: never before `response`.
    pub retry: Duration,
    /// Between two pieces of a reply whose body is passed on as it comes, on a connection that carries nothing else.
    pub stream_idle: Duration,
    /// From the taking of a request to the end of its reply, whatever is tried meanwhile; zero: however long.
    pub total: Duration,
    /// Waiting for capacity that other requests use: an entry in the in-flight table, a connection to the backend. A
    /// request that waits longer gets an overload response, if the grammar has one. Zero: no limit. `None`:
    /// [`Timeouts::queue`] decides.
    pub queue: Option<Duration>,
    /// From the first byte of a request to its last; a longer body has this long for each further 64 KiB.
    pub client_request: Duration,
    /// Longest time that a client may leave a reply unread that holds up a shared backend connection, or a dedicated
    /// one for which other clients wait.
    pub client_write: Duration,
    /// A client connection without any traffic, but for tunnels; zero: never closed for that. `None`:
    /// [`Timeouts::idle`] decides.
    pub idle: Option<Duration>,
    /// Longest time that requests in flight on a removed backend may go on.
    pub backend_drain: Duration,
    /// First pause before a worker connects to a failed backend again; doubles up to `reconnect_backoff_max`, with
    /// jitter.
    pub reconnect_backoff_min: Duration,
    /// Longest pause.
    pub reconnect_backoff_max: Duration,
}

impl Timeouts {
    /// Time that a backend may take for a response. By default long where the connection carries nothing else
    /// (`exclusive`): then only its own client waits. On a shared connection all clients wait behind a stalled backend.
    pub fn response(&self, exclusive: bool) -> Duration {
        self.response.unwrap_or(Duration::from_secs(if exclusive { 60 } else { 2 }))
    }

    /// Time that a request may wait for capacity. By default longer where each exchange has its own connection
    /// (`exclusive`): of those, clients that do not read hold all until they are evicted, some at a time.
    pub fn queue(&self, exclusive: bool) -> Duration {
        self.queue.unwrap_or(Duration::from_secs(if exclusive { 5 } else { 1 }))
    }
}

impl Timeouts {
    /// Time without traffic after which a client connection is closed, if it is ever. By default only one of a relay
    /// is: nothing else ends one whose peers are gone without a word.
    pub fn idle(&self, is_relay: bool) -> Option<Duration> {
        let default = if is_relay { Duration::from_millis(TUNNEL_IDLE_MS) } else { Duration::ZERO };
        Some(self.idle.unwrap_or(default)).filter(|idle| !idle.is_zero())
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: None,
            retry: Duration::from_millis(1_000),
            stream_idle: Duration::from_secs(300),
            total: Duration::ZERO,
            queue: None,
            client_request: Duration::from_secs(30),
            client_write: Duration::from_millis(200),
            idle: None,
            backend_drain: Duration::from_secs(10),
            reconnect_backoff_min: Duration::from_millis(10),
            reconnect_backoff_max: Duration::from_millis(500),
        }
    }
}

/// Everything `Platform::start` needs beside the program.
#[derive(Clone, Debug)]
pub struct PlatformConfig {
    /// Worker threads, each with its own listener, driver, buffers and graphs.
    pub workers: usize,
    /// Pin each worker to a core.
    pub pin: bool,
    /// Kernel interface that carries bytes.
    pub io: IoKind,
    /// Move connections of TCP within this host to shared memory, where the other side does so too.
    pub upgrades_to_shm: bool,
    /// All services that listen on port 0 of one IP address get the same port, not one each.
    pub shares_free_ports: bool,
    /// Channels that are listened on.
    pub listen: Vec<Binding>,
    /// Channels whose backends the service connects to.
    pub connect: Vec<Binding>,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Directory in which dictionaries are kept across restarts; `None`: they are not kept, whatever the program says.
    pub state_dir: Option<std::path::PathBuf>,
    /// The access log, if there is one.
    pub access: Option<AccessLog>,
}

impl PlatformConfig {
    /// One worker that is pinned to no core, with default limits and timeouts, and nothing of what is optional.
    pub fn new(listen: Vec<Binding>, connect: Vec<Binding>) -> Self {
        Self {
            workers: 1,
            pin: false,
            io: IoKind::default(),
            upgrades_to_shm: false,
            shares_free_ports: false,
            listen,
            connect,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            state_dir: None,
            access: None,
        }
    }

    /// Returns the bytes that rings in shared memory may have.
    pub fn ring_memory_max(&self) -> u64 {
        let least = RING_MEMORY_MIN_BYTES * self.workers.max(1) as u64;
        (self.limits.buffer_memory / RING_MEMORY_SHARE).max(least)
    }

    /// Whether a binding or the move of connections of sockets uses rings.
    fn uses_rings(&self) -> bool {
        self.upgrades_to_shm || self.is_at_shm()
    }

    /// Whether a binding is an address of shared memory.
    pub fn is_at_shm(&self) -> bool {
        let mut endpoints = self.listen.iter().chain(&self.connect).flat_map(|binding| &binding.endpoints);
        endpoints.any(|at| matches!(at, Endpoint::Shm(_)))
    }

    /// Returns the bytes that are set apart for rings: none, unless they are used.
    pub fn ring_memory(&self) -> u64 {
        if self.uses_rings() { self.ring_memory_max() } else { 0 }
    }

    /// Returns the part of the buffer memory that is for buffers.
    pub fn pool_memory(&self) -> u64 {
        let buffer_memory = self.limits.buffer_memory;
        if self.uses_rings() { buffer_memory - buffer_memory / RING_MEMORY_SHARE } else { buffer_memory }
    }
}
