//! Limits and time-outs: the same fields as options and as keys of `flick.toml`.

use std::time::Duration;

use clap::Args;
use flick_runtime::{Limits, Overflow, Policy, Timeouts};
use serde::Deserialize;

use super::units::{Count, Lasting, Percent, Period, Positive, Size, Span};

/// What to do with a client beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverflowSetting {
    /// Stop accepting until a session ends
    Pause,
    /// Accept and close at once
    Refuse,
}

/// How long a task runs before the next one has its turn
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicySetting {
    /// Until its time slice is over, or it has nothing to do
    Cooperative,
    /// Until it has nothing to do
    RunToCompletion,
    /// For one message
    RoundRobin,
}

/// Limits of each service, over all its workers.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Limits")]
pub struct LimitSettings {
    /// Client connections at one time [default: 20000]
    #[arg(long, value_name = "N")]
    sessions_max: Option<Positive>,
    /// What happens to a client beyond that [default: pause]
    #[arg(long, value_name = "WHAT")]
    overflow: Option<OverflowSetting>,
    /// Client connections of one address at one time, of IPv6 of one /64; 0 bounds them only in all [default: 0]
    #[arg(long, value_name = "N")]
    connections_per_address_max: Option<u32>,
    /// New clients let in per second, a tenth of them at once; the others wait; 0: as fast as they come [default: 0]
    #[arg(long, value_name = "N")]
    accept_rate: Option<u32>,
    /// Requests of one client under way at one time [default: 256]
    #[arg(long, value_name = "N")]
    session_requests_max: Option<Positive>,
    /// Requests under way at one time [default: 131072]
    #[arg(long, value_name = "N")]
    requests_max: Option<Positive>,
    /// Activations of rules that wait for replies to what they asked, or for their turn [default: 16384]
    #[arg(long, value_name = "N")]
    activations_max: Option<Positive>,
    /// Memory that the program's own state may take: `local`s, rules that wait, dictionaries [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    state: Option<Size>,
    /// Memory that the service may need in all; one that could need more does not start [default: the machine's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Memory for network buffers; touched only when used [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    buffers: Option<Size>,
    /// Connections of one worker to one backend that carry one large message each [default: 16]
    #[arg(long, value_name = "N")]
    lent_links_max: Option<Positive>,
    /// Connections of one worker to one backend where each exchange has one for itself, as in HTTP [default: 1024]
    #[arg(long, value_name = "N")]
    exclusive_links_max: Option<Positive>,
    /// Most elements of a channel whose list of backends may change [default: 16 where one is read from a file or names]
    #[arg(long, value_name = "N")]
    backends_max: Option<Count<1, 512>>,
    /// How long one task runs before others get their turn [default: cooperative]
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicySetting>,
    /// Longest that all turns of a worker may take before a part of the requests is told that it is busy; 0ms: any time [default: 200ms]
    #[arg(long, value_name = "TIME")]
    shed_delay: Option<Period>,
    /// How long one task may run before others get their turn, where the policy is cooperative, 100ms at most [default: 50us]
    #[arg(long, value_name = "TIME")]
    time_slice: Option<Span<0, 100_000>>,
    /// Longest that a busy worker waits to gather messages into one turn, 10ms at most; 0ms: never [default: 200us]
    #[arg(long, value_name = "TIME")]
    gather_max: Option<Span<0, 10_000>>,
    /// How long a worker without work looks for some before it sleeps, 1ms at most; 0ms: not at all [default: 0ms]
    #[arg(long, value_name = "TIME")]
    spin: Option<Span<0, 1_000>>,
    /// Weight of a service against others that are busy on the same threads, 1 to 10000 [default: 100]
    #[arg(long, value_name = "N")]
    cpu_weight: Option<Count<1, 10_000>>,
    /// Part of each thread that a service has at most, busy others or not [default: 100%]
    #[arg(long, value_name = "PERCENT")]
    cpu_max: Option<Percent>,
}

impl LimitSettings {
    /// Memory that the service may need in all, in bytes.
    pub fn memory(&self) -> Option<u64> {
        self.memory.map(|size| size.0)
    }

    /// Whether the memory for network buffers is set.
    pub fn sets_buffers(&self) -> bool {
        self.buffers.is_some()
    }

    /// Overwrites what is set here.
    pub fn apply(&self, limits: &mut Limits) {
        set(&mut limits.sessions_max, self.sessions_max.map(|count| count.0));
        let overflow = self.overflow.map(|overflow| match overflow {
            OverflowSetting::Pause => Overflow::Pause,
            OverflowSetting::Refuse => Overflow::Refuse,
        });
        set(&mut limits.overflow, overflow);
        set(&mut limits.connections_per_address_max, self.connections_per_address_max);
        set(&mut limits.accept_rate, self.accept_rate);
        set(&mut limits.session_requests_max, self.session_requests_max.map(|count| count.0));
        set(&mut limits.requests_max, self.requests_max.map(|count| count.0));
        set(&mut limits.activations_max, self.activations_max.map(|count| count.0));
        set(&mut limits.state_bytes, self.state.map(|size| size.0));
        set(&mut limits.buffer_bytes, self.buffers.map(|size| size.0));
        set(&mut limits.lent_links_max, self.lent_links_max.map(|count| count.0));
        set(&mut limits.exclusive_links_max, self.exclusive_links_max.map(|count| count.0));
        set(&mut limits.backends_max, self.backends_max.map(|count| count.0));
        let policy = self.policy.map(|policy| match policy {
            PolicySetting::Cooperative => Policy::Cooperative,
            PolicySetting::RunToCompletion => Policy::RunToCompletion,
            PolicySetting::RoundRobin => Policy::RoundRobin,
        });
        set(&mut limits.policy, policy);
        set(&mut limits.shed_delay, self.shed_delay.map(|period| period.0));
        set(&mut limits.time_slice, self.time_slice.map(|period| period.0));
        set(&mut limits.gather_max, self.gather_max.map(|period| period.0));
        set(&mut limits.spin, self.spin.map(|period| period.0));
        set(&mut limits.cpu_weight, self.cpu_weight.map(|count| count.0));
        set(&mut limits.cpu_max_percent, self.cpu_max.map(|percent| percent.0));
    }
}

/// Time-outs.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Time-outs")]
pub struct TimeoutSettings {
    /// Dialling a backend [default: 1s]
    #[arg(id = "connect_timeout", long = "connect-timeout", value_name = "TIME")]
    connect: Option<Lasting>,
    /// From a request's leaving to its whole reply [default: 2s]
    #[arg(id = "reply_timeout", long = "reply-timeout", value_name = "TIME")]
    reply: Option<Lasting>,
    /// Between two pieces of a reply that is passed on as it comes, on a connection of its own [default: 30s]
    #[arg(id = "gap_timeout", long = "gap-timeout", value_name = "TIME")]
    gap: Option<Lasting>,
    /// From the taking of a request to the end of its reply, whatever is tried meanwhile; 0: however long [default: 0]
    #[arg(id = "whole_timeout", long = "whole-timeout", value_name = "TIME")]
    whole: Option<Period>,
    /// In line for room that others have, before a request is told that it is busy; 0: however long [default: 1s]
    #[arg(id = "queue_timeout", long = "queue-timeout", value_name = "TIME")]
    queue: Option<Period>,
    /// From the first byte of a request to its last [default: 30s]
    #[arg(id = "request_timeout", long = "request-timeout", value_name = "TIME")]
    request: Option<Lasting>,
    /// How long a client may leave a reply unread that holds up others [default: 200ms]
    #[arg(id = "slow_client_timeout", long = "slow-client-timeout", value_name = "TIME")]
    slow_client: Option<Period>,
    /// A client connection without traffic; 0 never closes one [default: 0]
    #[arg(id = "idle_timeout", long = "idle-timeout", value_name = "TIME")]
    idle: Option<Period>,
    /// What is under way on a backend that has left its list [default: 10s]
    #[arg(id = "leave_timeout", long = "leave-timeout", value_name = "TIME")]
    leave: Option<Period>,
    /// First pause before a failed backend is dialled again [default: 10ms]
    #[arg(long, value_name = "TIME")]
    backoff_min: Option<Period>,
    /// Longest such pause [default: 500ms]
    #[arg(long, value_name = "TIME")]
    backoff_max: Option<Period>,
}

impl TimeoutSettings {
    /// `backoff_min` or `backoff_max`.
    pub fn backoff(&self, key: &str) -> Option<Duration> {
        let period = if key == "backoff_min" { self.backoff_min } else { self.backoff_max };
        period.map(|period| period.0)
    }

    /// Overwrites what is set here.
    pub fn apply(&self, timeouts: &mut Timeouts) {
        let period = |setting: Option<Period>| setting.map(|period| period.0);
        set(&mut timeouts.connect, self.connect.map(|time| time.0));
        set(&mut timeouts.reply, self.reply.map(|time| time.0));
        set(&mut timeouts.gap, self.gap.map(|time| time.0));
        set(&mut timeouts.whole, period(self.whole));
        set(&mut timeouts.queue, period(self.queue));
        set(&mut timeouts.request, self.request.map(|time| time.0));
        set(&mut timeouts.slow_client, period(self.slow_client));
        set(&mut timeouts.idle, period(self.idle));
        set(&mut timeouts.leave, period(self.leave));
        set(&mut timeouts.backoff_min, period(self.backoff_min));
        set(&mut timeouts.backoff_max, period(self.backoff_max));
    }
}

pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}
