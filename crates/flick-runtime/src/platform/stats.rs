//! A service as seen from outside: what is counted, by anybody, at any time.
//! Promises: looking costs the workers nothing but the cache lines that are read; a watch outlives its service.

use std::sync::Arc;
use std::time::Duration;

use flick_abi::Program;
use flick_net::{Endpoint, Waker};

use crate::backend_set::Slot;
use crate::limits::SESSION_LIST_MS;
use crate::observe::counters::{BackendCounters, Counters, Totals};
use crate::observe::edge_counters::{self, EdgeCounters, EdgeTotals};
use crate::observe::latency::LatencyTotals;
use crate::observe::session_list::{self, SessionInfo};
use crate::observe::task_counters::{KINDS, TaskTotals};
use crate::setup::Setup;
use crate::shared::Shared;
use crate::state::State;
use crate::tunables::{TunableValues, Tunables};

/// What one worker counts.
#[derive(Clone, Debug)]
pub(crate) struct WorkerStats {
    pub(crate) counters: Arc<Counters>,
    pub(crate) backend_counters: Arc<Vec<BackendCounters>>,
    pub(crate) edge_counters: Arc<EdgeCounters>,
}

/// A handle on everything that a service counts.
#[derive(Clone)]
pub struct ServiceStats {
    pub(crate) name: String,
    pub(crate) setup: Arc<Setup>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<State>,
    pub(crate) workers: Vec<WorkerStats>,
    pub(crate) addresses: Vec<(String, Endpoint)>,
    pub(crate) io: &'static str,
    /// By worker.
    pub(crate) wakers: Vec<Waker>,
}

/// Counters of one backend over all workers.
#[derive(Clone, Debug)]
pub struct BackendTotals {
    /// Name of its channel.
    pub channel: String,
    /// Its number in the channel's array.
    pub element: u64,
    /// It has left the list, and what is under way on it finishes.
    pub is_draining: bool,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests for it that the platform answered itself.
    pub failures: u64,
    /// Workers whose shared connection to it is up.
    pub up: u64,
    /// Workers that send it nothing: too many requests have failed, or its checks do.
    pub unhealthy: u64,
    /// Workers whose checks of it fail, whether it is out for that or not.
    pub health_checks_failing: u64,
    /// Times that a worker put it out because too many requests in a row had failed.
    pub ejections: u64,
    /// Checks that failed.
    pub health_check_failures: u64,
    /// Requests that were not sent because it had as many as it may.
    pub shed: u64,
    /// The platform knows how it is without a client: false where each session dials its own.
    pub is_monitored: bool,
    /// How long it took.
    pub times: LatencyTotals,
}

/// What one worker has counted.
#[derive(Clone, Debug)]
pub struct WorkerTotals {
    /// Its counters.
    pub totals: Totals,
    /// How long its requests took.
    pub times: LatencyTotals,
    /// How long its tasks ran at a time, in one turn of a few.
    pub slices: LatencyTotals,
    /// Its tasks, in the order of `KINDS`.
    pub tasks: [TaskTotals; KINDS.len()],
}

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct StatsSnapshot {
    /// Of the platform.
    pub totals: Totals,
    /// How long requests took, from the first byte's turn to the reply.
    pub times: LatencyTotals,
    /// By worker.
    pub workers: Vec<WorkerTotals>,
    /// By backend.
    pub backends: Vec<BackendTotals>,
    /// The settings that may be changed while a service runs; of one service only.
    pub tunables: Option<TunableValues>,
    /// By edge of the task graph; of one service only.
    pub edge_counters: Option<EdgeTotals>,
}

impl ServiceStats {
    /// What operators call the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a handle on the same service of the same generation.
    pub fn is_same(&self, other: &ServiceStats) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// What it runs.
    pub fn program(&self) -> &Program {
        &self.setup.program
    }

    /// The channel that clients connect to.
    pub fn listened(&self) -> &str {
        &self.setup.program.channels[self.setup.listened].name
    }

    /// Where clients can connect, by channel.
    pub fn addresses(&self) -> &[(String, Endpoint)] {
        &self.addresses
    }

    /// Which kernel interface carries the bytes.
    pub fn io(&self) -> &'static str {
        self.io
    }

    /// Most sessions at a time.
    pub fn max_connections(&self) -> u32 {
        self.setup.limits.max_connections
    }

    /// The settings that may be changed while it runs.
    pub fn tunables(&self) -> &Arc<Tunables> {
        &self.setup.tunables
    }

    /// The part of each thread that it has at most: below 100, its turns are counted as if there were others.
    pub fn cpu_max_percent(&self) -> u32 {
        self.setup.limits.cpu_max_percent
    }

    /// What the program's code shares: its counters and dictionaries.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Some of its clients, asked of all its workers.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let questions = (0..self.wakers.len()).filter_map(|worker| self.shared.question(worker));
        session_list::ask(questions.zip(&self.wakers), Duration::from_millis(SESSION_LIST_MS))
    }

    /// It takes no new clients any more.
    pub fn is_draining(&self) -> bool {
        self.shared.drain_asked().is_some()
    }

    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let (mut totals, mut times) = (Totals::default(), LatencyTotals::default());
        let program = &self.setup.program;
        let mut edge_counters = EdgeTotals::new(edge_counters::names(program), program);
        for worker in &self.workers {
            totals.absorb(&worker.counters);
            times.absorb(&worker.counters.times);
            edge_counters.absorb(&worker.edge_counters);
        }
        StatsSnapshot {
            totals,
            times,
            workers: self.workers.iter().map(WorkerStats::totals).collect(),
            backends: self.backends(),
            tunables: Some(self.setup.tunables.get()),
            edge_counters: Some(edge_counters),
        }
    }

    /// Those of the lists, in their order, and behind them those that have left and have not finished.
    /// Channels whose list of backends is empty now: names that do not resolve, say.
    pub fn channels_without_backends(&self) -> Vec<&str> {
        let backend_set = self.setup.backend_sets.latest();
        let mut empty: Vec<usize> = self.setup.slots.clone();
        empty.dedup();
        empty.retain(|channel| backend_set.list(*channel).next().is_none());
        empty.into_iter().map(|channel| self.setup.program.channels[channel].name.as_str()).collect()
    }

    fn backends(&self) -> Vec<BackendTotals> {
        let backend_set = self.setup.backend_sets.latest();
        let mut backends: Vec<BackendTotals> = backend_set
            .slots()
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| self.backend(index, slot))
            .collect();
        let names = self.setup.program.channels.iter().map(|channel| channel.name.as_str());
        let names: Vec<&str> = names.collect();
        let place = |name: &str| names.iter().position(|known| *known == name);
        backends.sort_by_key(|backend| (place(&backend.channel), backend.is_draining, backend.element));
        backends
    }

    fn backend(&self, index: usize, slot: &Slot) -> Option<BackendTotals> {
        let counters = || self.workers.iter().map(|worker| &worker.backend_counters[index]);
        let is_tracked = counters().any(|counters| counters.tracked.get() > 0);
        let endpoint = slot.endpoint.as_ref().filter(|_| slot.element.is_some() || is_tracked)?;
        let mut times = LatencyTotals::default();
        counters().for_each(|counters| times.absorb(&counters.times));
        Some(BackendTotals {
            channel: self.setup.program.channels[self.setup.slots[index]].name.clone(),
            element: slot.element.unwrap_or_default(),
            is_draining: slot.element.is_none(),
            endpoint: endpoint.clone(),
            requests: counters().map(|counters| counters.requests.get()).sum(),
            failures: counters().map(|counters| counters.failures.get()).sum(),
            up: counters().map(|counters| counters.up.get()).sum(),
            unhealthy: counters().map(|counters| counters.unhealthy.get()).sum(),
            health_checks_failing: counters()
                .map(|counters| u64::from(counters.health.get().fails_checks))
                .sum(),
            ejections: counters().map(|counters| counters.ejections.get()).sum(),
            health_check_failures: counters().map(|counters| counters.health_check_failures.get()).sum(),
            shed: counters().map(|counters| counters.shed.get()).sum(),
            is_monitored: !self.setup.is_relay,
            times,
        })
    }
}

impl BackendTotals {
    /// What it has counted; what it is now is not added.
    fn add_earlier(&mut self, earlier: &BackendTotals) {
        self.requests += earlier.requests;
        self.failures += earlier.failures;
        self.ejections += earlier.ejections;
        self.health_check_failures += earlier.health_check_failures;
        self.shed += earlier.shed;
        self.times.merge(&earlier.times);
    }
}

impl StatsSnapshot {
    /// Adds what the service has counted whose place this one took, so that its counters go on from where they were. Backends
    /// that this one does not have any more are left unhealthy.
    pub fn add_earlier(&mut self, earlier: &StatsSnapshot) {
        self.totals.merge(&earlier.totals);
        self.times.merge(&earlier.times);
        let known = self.workers.len().min(earlier.workers.len());
        for (own, other) in self.workers.iter_mut().zip(&earlier.workers) {
            own.totals.merge(&other.totals);
            own.times.merge(&other.times);
            own.slices.merge(&other.slices);
            own.tasks.iter_mut().zip(&other.tasks).for_each(|(own, other)| own.merge(other));
        }
        self.workers.extend_from_slice(&earlier.workers[known..]);
        if let (Some(own), Some(other)) = (&mut self.edge_counters, &earlier.edge_counters) {
            own.merge(other);
        }
        for other in &earlier.backends {
            let is_same =
                |own: &&mut BackendTotals| other.channel == own.channel && other.endpoint == own.endpoint;
            // An address may stand in a list more than once; what it has counted is counted once.
            let mut same: Vec<_> = self.backends.iter_mut().filter(is_same).collect();
            let at = same.iter().position(|own| own.element == other.element).unwrap_or_default();
            if let Some(own) = same.get_mut(at) {
                own.add_earlier(other);
            }
        }
    }

    /// Of several services together.
    pub(crate) fn of(watches: &[ServiceStats]) -> Self {
        let (mut totals, mut times) = (Totals::default(), LatencyTotals::default());
        let (mut workers, mut backends) = (Vec::new(), Vec::new());
        for watch in watches {
            for worker in &watch.workers {
                totals.absorb(&worker.counters);
                times.absorb(&worker.counters.times);
            }
            let own = watch.snapshot();
            workers.extend(own.workers);
            backends.extend(own.backends);
        }
        Self { totals, times, workers, backends, tunables: None, edge_counters: None }
    }
}

impl WorkerStats {
    fn totals(&self) -> WorkerTotals {
        let (mut totals, mut times, mut slices) =
            (Totals::default(), LatencyTotals::default(), LatencyTotals::default());
        totals.absorb(&self.counters);
        times.absorb(&self.counters.times);
        slices.absorb(&self.counters.slices);
        let mut tasks = [TaskTotals::default(); KINDS.len()];
        for (totals, (kind, _)) in tasks.iter_mut().zip(KINDS) {
            totals.absorb(self.counters.tasks.of(kind));
        }
        WorkerTotals { totals, times, slices, tasks }
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendTotals, LatencyTotals, StatsSnapshot, Totals};

    fn backend(element: u64, at: &str, counted: u64) -> BackendTotals {
        BackendTotals {
            channel: "backends".to_owned(),
            element,
            is_draining: false,
            endpoint: at.parse().expect("an endpoint"),
            requests: counted,
            failures: counted,
            up: 1,
            unhealthy: 0,
            health_checks_failing: 0,
            ejections: counted,
            health_check_failures: counted,
            shed: counted,
            is_monitored: true,
            times: LatencyTotals::default(),
        }
    }

    fn snapshot(backends: Vec<BackendTotals>) -> StatsSnapshot {
        let (totals, times) = (Totals::default(), LatencyTotals::default());
        StatsSnapshot { totals, times, workers: Vec::new(), backends, tunables: None, edge_counters: None }
    }

    #[test]
    fn an_address_that_stands_in_a_list_twice_counted_double_with_each_reload() {
        let [one, two, three] = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let mut now = snapshot(vec![backend(0, one, 1), backend(1, one, 2), backend(2, two, 0)]);
        let before = [backend(0, one, 10), backend(1, one, 20), backend(5, two, 40), backend(6, three, 80)];
        now.add_earlier(&snapshot(before.to_vec()));
        let counted = now.backends.iter().map(|of| {
            let of = [of.requests, of.failures, of.ejections, of.health_check_failures, of.shed, of.up];
            assert!(of[..5].iter().all(|count| *count == of[0]) && of[5] == 1, "{of:?}");
            of[0]
        });
        assert_eq!(counted.collect::<Vec<_>>(), [11, 22, 40]);
    }
}
