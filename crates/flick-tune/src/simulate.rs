//! A simulated run of a server at one setting: latencies, power, energy.
//! Promises: the same seed returns the same run; time and memory grow with the number of requests only.
//! Cores are independent (each has a queue of the card and its own interrupts), so that each is simulated alone, in the
//! order of its batches. Not here: the search for a good setting (`search.rs`).
//! Refuses: losses. A server that cannot keep up has a queue that grows until the run ends, and its latency shows it.

use crate::limits::{ARRIVALS_MAX, CORES_MAX, IDLE_HISTORY};
use crate::machine::{IDLE_STATES, Machine, NOMINAL_GHZ, Path};
use crate::random::SeededRandom;
use crate::setting::{Delivery, Setting};

/// The offered load of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests that are simulated, at most `ARRIVALS_MAX`.
    pub requests: usize,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// The result of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one request of a hundred exceeds.
    pub p99_us: f64,
    /// Power of all packages.
    pub watts: f64,
    /// Share of the time in which cores run.
    pub busy: f64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
    /// Share of the time in each idle state.
    pub idle: [f64; IDLE_STATES],
    latencies_us: Vec<f64>,
}

impl RunResult {
    /// Energy of a duration, in J.
    pub fn joules(&self, seconds: f64) -> f64 {
        self.watts * seconds
    }

    /// Share of requests with a longer latency.
    pub fn share_above(&self, latency_us: f64) -> f64 {
        let above = self.latencies_us.iter().filter(|latency| **latency > latency_us).count();
        above as f64 / self.latencies_us.len() as f64
    }
}

/// Time of one core, in microseconds.
#[derive(Clone, Copy, Default)]
struct CoreTime {
    busy: f64,
    idle: [f64; IDLE_STATES],
    interrupts: f64,
    end: f64,
}

/// Simulates a run.
///
/// Panics if the load is empty or exceeds `ARRIVALS_MAX`, or the machine has more than `CORES_MAX` cores.
pub fn simulate(machine: &Machine, path: &Path, setting: Setting, load: OfferedLoad) -> RunResult {
    assert!(load.requests > 0 && load.requests <= ARRIVALS_MAX, "a run has requests, and a limit");
    assert!(machine.cores > 0 && machine.cores <= CORES_MAX, "a server has cores, and a limit");
    let arrivals = arrivals(machine.cores, path, load);
    let mut latencies_us = Vec::with_capacity(load.requests);
    let mut times = Vec::with_capacity(machine.cores);
    for of_core in &arrivals {
        let core = Core { machine, path, setting, latencies_us: &mut latencies_us };
        times.push(core.run(of_core));
    }
    let end = times.iter().map(|time| time.end).fold(0.0, f64::max);
    let watts = power(machine, setting, &times);
    let total = end * machine.cores as f64;
    let sum = |read: fn(&CoreTime) -> f64| times.iter().map(read).sum::<f64>();
    let mut idle = [0.0; IDLE_STATES];
    for time in &times {
        for (sum, idle) in idle.iter_mut().zip(time.idle) {
            *sum += idle / total;
        }
    }
    RunResult {
        p50_us: percentile(&mut latencies_us, 0.50),
        p99_us: percentile(&mut latencies_us, 0.99),
        watts,
        busy: sum(|time| time.busy) / total,
        interrupts_per_s: sum(|time| time.interrupts) / end * 1e6,
        idle,
        latencies_us,
    }
}

/// Times at which requests reach each core: one stream of bursts, each on a connection of some core.
fn arrivals(cores: usize, path: &Path, load: OfferedLoad) -> Vec<Vec<f64>> {
    let mut random = SeededRandom::new(load.seed);
    let burst_mean = f64::from(path.burst_max + 1) / 2.0;
    let gap_us = 1e6 / load.requests_per_s * burst_mean;
    let mut arrivals = vec![Vec::with_capacity(load.requests / cores * 5 / 4); cores];
    let (mut now, mut count) = (0.0, 0);
    while count < load.requests {
        now += random.etc_gap(gap_us);
        let choice = random.next_u64();
        let core = ((choice >> 32) * cores as u64) >> 32;
        let burst = 1 + (((choice & 0xffff_ffff) * u64::from(path.burst_max)) >> 32) as usize;
        let burst = burst.min(load.requests - count);
        arrivals[core as usize].extend(std::iter::repeat_n(now, burst));
        count += burst;
    }
    arrivals
}

/// One core in its run.
struct Core<'a> {
    machine: &'a Machine,
    path: &'a Path,
    setting: Setting,
    latencies_us: &'a mut Vec<f64>,
}

impl Core<'_> {
    /// Handles all arrivals, batch by batch.
    fn run(self, arrivals: &[f64]) -> CoreTime {
        let scale = NOMINAL_GHZ / self.setting.clock_ghz;
        let memory = self.path.memory_share;
        let slowed = |time_us: f64| time_us * ((1.0 - memory) * scale + memory);
        let Path { request_us, interrupt_us, poll_us, .. } = *self.path;
        let [request_us, interrupt_us, poll_us] = [request_us, interrupt_us, poll_us].map(slowed);
        let mut time = CoreTime::default();
        let mut governor = Governor::default();
        let (mut free_at, mut last_interrupt) = (0.0, f64::NEG_INFINITY);
        let mut rest = arrivals;
        while let Some(first) = rest.first() {
            let (taken_at, is_interrupt) = take(self.setting.delivery, *first, free_at, last_interrupt);
            let mut now = free_at.max(taken_at);
            if taken_at > free_at {
                let polled = polled(self.setting.delivery, taken_at - free_at);
                time.busy += polled;
                let slept = taken_at - free_at - polled;
                if slept > 0.0 {
                    let index = governor.select(self.machine, slept);
                    let state = &self.machine.idle_states[index];
                    time.idle[index] += slept;
                    now += state.exit_us + state.refill_us;
                }
            }
            if is_interrupt {
                last_interrupt = taken_at;
                time.interrupts += 1.0;
            }
            now += if is_interrupt { interrupt_us } else { poll_us };
            let batch = rest.iter().take_while(|arrival| **arrival <= taken_at).count();
            for arrival in &rest[..batch] {
                now += request_us;
                self.latencies_us.push(now - arrival + self.machine.network_us);
            }
            time.busy += now - free_at.max(taken_at);
            free_at = now;
            rest = &rest[batch..];
        }
        time.end = free_at;
        time
    }
}

/// Moment at which the software takes the packets that have arrived, and whether an interrupt makes it.
fn take(delivery: Delivery, first: f64, free_at: f64, last_interrupt: f64) -> (f64, bool) {
    let interrupt = |delay_us: f64| (first.max(last_interrupt + delay_us), true);
    let poll = (first.max(free_at), false);
    match delivery {
        Delivery::Interrupt { delay_us } => interrupt(delay_us),
        Delivery::BusyPoll => poll,
        Delivery::AdaptivePoll { window_us, .. } if first <= free_at + window_us => poll,
        Delivery::Suspend { .. } if first <= free_at => poll,
        Delivery::AdaptivePoll { delay_us, .. } | Delivery::Suspend { delay_us } => interrupt(delay_us),
    }
}

/// Time that is polled of a period without packets.
fn polled(delivery: Delivery, period: f64) -> f64 {
    match delivery {
        Delivery::Interrupt { .. } | Delivery::Suspend { .. } => 0.0,
        Delivery::BusyPoll => period,
        Delivery::AdaptivePoll { window_us, .. } => period.min(window_us),
    }
}

/// The choice of an idle state: the deepest one that pays for the typical one of the last idle periods.
#[derive(Default)]
struct Governor {
    history: [f64; IDLE_HISTORY],
    next: usize,
}

impl Governor {
    /// Chooses a state, then learns how long the core was really idle.
    fn select(&mut self, machine: &Machine, slept: f64) -> usize {
        let predicted = self.history.iter().sum::<f64>() / IDLE_HISTORY as f64;
        self.history[self.next] = slept;
        self.next = (self.next + 1) % IDLE_HISTORY;
        let states = &machine.idle_states;
        states.iter().rposition(|state| state.residency_us <= predicted).unwrap_or(0)
    }
}

/// Mean power of all packages.
fn power(machine: &Machine, setting: Setting, times: &[CoreTime]) -> f64 {
    let v2f = machine.v2f(setting.clock_ghz);
    let clock = machine.core_watts * v2f;
    let leakage = machine.leakage_watts * machine.volts(setting.clock_ghz).powi(2);
    let mut watts = machine.constant_watts;
    for time in times {
        watts += (clock + leakage) * time.busy / time.end;
        for (state, idle) in machine.idle_states.iter().zip(time.idle) {
            watts += leakage * state.leakage_share * idle / time.end;
        }
    }
    let per_package = times.len().div_ceil(machine.packages);
    for package in times.chunks(per_package) {
        // Interrupts of the cores are independent, so that the share of the time in which all sleep is a product.
        let deep = |time: &CoreTime| -> f64 {
            let states = machine.idle_states.iter().zip(time.idle);
            states.filter(|(state, _)| state.is_deep).map(|(_, idle)| idle / time.end).sum()
        };
        let all_deep: f64 = package.iter().map(deep).product();
        let asleep_v2f = machine.v2f(machine.asleep_ghz.min(setting.clock_ghz));
        watts += machine.package_watts * (v2f * (1.0 - all_deep) + asleep_v2f * all_deep);
    }
    watts
}

/// A percentile; reorders the latencies.
fn percentile(latencies_us: &mut [f64], share: f64) -> f64 {
    let index = ((latencies_us.len() as f64 * share) as usize).min(latencies_us.len() - 1);
    *latencies_us.select_nth_unstable_by(index, f64::total_cmp).1
}
