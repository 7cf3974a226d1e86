//! Statistics of a service, which any thread may read at any time.
//! Promises: reading costs the workers nothing but the cache lines that are read; a handle outlives its service.

use std::sync::Arc;
use std::time::Duration;

use flick_abi::Program;
use flick_net::{AnyDriver, Endpoint, Handle, Waker};
use flick_stats::{BackendStats, TaskRuns, Times};

use crate::backend_set::Slot;
use crate::config::{BackendAddress, BackendOverride};
use crate::limits::SESSION_LIST_MS;
use crate::observe::counters::{BackendCounters, Counters, Totals};
use crate::observe::edge_counters::{self, EdgeCounters, EdgeTotals};
use crate::observe::session_list::{self, ConnLists};
use crate::observe::tap::Tap;
use crate::observe::task_counters::KINDS;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::state::State;
use crate::tunables::{TunableValues, Tunables};
use crate::worker::Worker;

/// Counters of one worker.
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

/// Totals of one worker's counters.
#[derive(Clone, Debug)]
pub struct WorkerTotals {
    /// Its counters.
    pub totals: Totals,
    /// Durations of its requests.
    pub times: Times,
    /// Durations of its task runs, sampled in some of its event-loop iterations.
    pub slices: Times,
    /// Its tasks, in the order of `KINDS`.
    pub tasks: Vec<TaskRuns>,
}

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct StatsSnapshot {
    /// Of the platform.
    pub totals: Totals,
    /// Request durations, from the event-loop iteration that takes the request into the in-flight table to its last
    /// reply.
    pub times: Times,
    /// By worker.
    pub workers: Vec<WorkerTotals>,
    /// By backend.
    pub backends: Vec<BackendStats>,
    /// The settings that may be changed while a service runs; of one service only.
    pub tunables: Option<TunableValues>,
    /// By edge of the task graph; of one service only.
    pub edge_counters: Option<EdgeTotals>,
}

impl ServiceStats {
    /// Returns the name by which operators know the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a handle on the same service of the same generation.
    pub fn is_same(&self, other: &ServiceStats) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the program that it runs.
    pub fn program(&self) -> &Program {
        &self.setup.program
    }

    /// The channel that clients connect to.
    pub fn listened(&self) -> &str {
        &self.setup.program.channels[self.setup.listened].name
    }

    /// Whether responses to clients have a status code, by which they are counted.
    pub fn has_status(&self) -> bool {
        self.setup.protocol().has_status
    }

    /// Returns the addresses that clients can connect to, by name of the channel.
    pub fn addresses(&self) -> &[(String, Endpoint)] {
        &self.addresses
    }

    /// Returns the name of the kernel interface that carries the bytes.
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

    /// Returns its maximum share of each thread, in percent: below 100, its quanta are as short as if other services
    /// had work.
    pub fn cpu_max_percent(&self) -> u32 {
        self.setup.limits.cpu_max_percent
    }

    /// Returns the state that the program's code shares: its counters and dictionaries.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Some of its connections, asked of all its workers.
    pub fn connections(&self) -> ConnLists {
        let questions = (0..self.wakers.len()).filter_map(|worker| self.shared.question(worker));
        session_list::ask(questions.zip(&self.wakers), Duration::from_millis(SESSION_LIST_MS))
    }

    /// Begins to copy what passes through one connection of a worker, or through those of all clients.
    ///
    /// Errors: the service has an observer already.
    pub fn tap(&self, only: Option<(usize, Handle)>) -> Result<Tap, &'static str> {
        let handles = 2 * Worker::<AnyDriver>::conns_max(&self.setup) as usize;
        Tap::start(self.shared.taps(), &self.wakers, handles, only)
    }

    /// It takes no new clients any more.
    pub fn is_draining(&self) -> bool {
        self.shared.drain_asked().is_some()
    }

    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let (mut totals, mut times) = (Totals::default(), Times::default());
        let program = &self.setup.program;
        let mut edge_counters = EdgeTotals::new(edge_counters::names(program), program);
        for worker in &self.workers {
            totals.absorb(&worker.counters);
            times.merge(&worker.counters.times.totals());
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

    /// Channels whose list of backends is empty now: names that do not resolve, say.
    pub fn channels_without_backends(&self) -> Vec<&str> {
        let backend_set = self.setup.backend_sets.latest();
        let mut empty: Vec<usize> = self.setup.slots.clone();
        empty.dedup();
        empty.retain(|channel| backend_set.list(*channel).next().is_none());
        empty.into_iter().map(|channel| self.setup.program.channels[channel].name.as_str()).collect()
    }

    /// Returns the backends of each channel's list, in its order, and behind them removed ones that have not drained.
    /// Backends of all channels: the channel, each as its list has it, and as it is with the operator's changes.
    pub fn listed_backends(&self) -> Vec<(&str, BackendAddress, BackendAddress)> {
        let channels = self.setup.program.channels.iter().enumerate();
        let of_channel = |(index, channel)| {
            let channel: &flick_abi::Channel = channel;
            let listed = self.setup.backend_sets.listed(index).into_iter();
            listed.map(|(given, now)| (channel.name.as_str(), given, now))
        };
        channels.flat_map(of_channel).collect()
    }

    /// Returns the channel and the address of the backend in a slot, also of one that was removed and drains.
    pub fn backend_at(&self, slot: usize) -> Option<(&str, Endpoint)> {
        let endpoint = self.setup.backend_sets.latest().slots().get(slot)?.endpoint.clone()?;
        Some((&self.setup.program.channels[self.setup.slots[slot]].name, endpoint))
    }

    /// Replaces what an operator has changed of a backend. Workers use it from their next iteration on.
    pub fn change_backend(&self, channel: &str, change: BackendOverride) {
        let channels = &self.setup.program.channels;
        let index = channels.iter().position(|known| known.name == channel);
        if index.is_some_and(|index| self.setup.backend_sets.change(index, change)) {
            self.wakers.iter().for_each(Waker::wake);
        }
    }

    fn backends(&self) -> Vec<BackendStats> {
        let backend_set = self.setup.backend_sets.latest();
        let mut backends: Vec<BackendStats> = backend_set
            .slots()
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| self.backend(index, slot))
            .collect();
        let names = self.setup.program.channels.iter().map(|channel| channel.name.as_str());
        let names: Vec<&str> = names.collect();
        let channel_index = |name: &str| names.iter().position(|known| *known == name);
        backends
            .sort_by_key(|backend| (channel_index(&backend.channel), backend.is_draining, backend.element));
        backends
    }

    fn backend(&self, index: usize, slot: &Slot) -> Option<BackendStats> {
        let counters = || self.workers.iter().map(|worker| &worker.backend_counters[index]);
        let is_tracked = counters().any(|counters| counters.tracked.get() > 0);
        let endpoint = slot.endpoint.as_ref().filter(|_| slot.element.is_some() || is_tracked)?;
        let mut times = Times::default();
        counters().for_each(|counters| times.merge(&counters.times.totals()));
        Some(BackendStats {
            channel: self.setup.program.channels[self.setup.slots[index]].name.clone(),
            element: slot.element.unwrap_or_default(),
            is_draining: slot.element.is_none(),
            mode: slot.mode.name().to_owned(),
            address: endpoint.to_string(),
            requests: counters().map(|counters| counters.requests.get()).sum(),
            failures: counters().map(|counters| counters.failures.get()).sum(),
            responses_by_class: self.setup.protocol_of(self.setup.slots[index]).has_status.then(|| {
                std::array::from_fn(|class| counters().map(|counters| counters.responses[class].get()).sum())
            }),
            bytes_sent: counters().map(|counters| counters.bytes_sent.get()).sum(),
            bytes_received: counters().map(|counters| counters.bytes_received.get()).sum(),
            workers_connected: counters().map(|counters| counters.up.get()).sum(),
            workers_ejected: counters().map(|counters| counters.unhealthy.get()).sum(),
            workers_failing: counters().map(|counters| u64::from(counters.health.get().fails_checks)).sum(),
            ejections: counters().map(|counters| counters.ejections.get()).sum(),
            health_check_failures: counters().map(|counters| counters.health_check_failures.get()).sum(),
            rejected: counters().map(|counters| counters.shed.get()).sum(),
            is_monitored: !self.setup.is_relay,
            times,
        })
    }
}

impl StatsSnapshot {
    /// Adds what the predecessor of the service has counted, so that counters never go back. Backends that this one
    /// does not have any more are left out.
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
            // An address may stand in a list more than once; what it has counted is counted once.
            let mut same: Vec<_> = self.backends.iter_mut().filter(|own| own.is_of_same(other)).collect();
            let at = same.iter().position(|own| own.element == other.element).unwrap_or_default();
            if let Some(own) = same.get_mut(at) {
                own.add_counters(other);
            }
        }
    }

    /// Adds the backends of a predecessor that this one does not have, where `is_listed`: a generation that runs on
    /// still counts them.
    pub fn keep_backends(&mut self, earlier: Vec<BackendStats>, is_listed: impl Fn(&BackendStats) -> bool) {
        for other in earlier {
            if !self.backends.iter().any(|own| own.is_of_same(&other)) && is_listed(&other) {
                self.backends.push(other);
            }
        }
    }

    /// Sums the counters of several services.
    pub(crate) fn of(watches: &[ServiceStats]) -> Self {
        let (mut totals, mut times) = (Totals::default(), Times::default());
        let (mut workers, mut backends) = (Vec::new(), Vec::new());
        for watch in watches {
            for worker in &watch.workers {
                totals.absorb(&worker.counters);
                times.merge(&worker.counters.times.totals());
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
        let mut totals = Totals::default();
        totals.absorb(&self.counters);
        let tasks = KINDS.iter().map(|(kind, name)| self.counters.tasks.of(*kind).totals(name)).collect();
        WorkerTotals {
            totals,
            times: self.counters.times.totals(),
            slices: self.counters.slices.totals(),
            tasks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendStats, StatsSnapshot, Times, Totals};

    fn backend(element: u64, at: &str, counted: u64) -> BackendStats {
        BackendStats {
            channel: "backends".to_owned(),
            element,
            is_draining: false,
            mode: "ready".to_owned(),
            address: at.to_owned(),
            requests: counted,
            failures: counted,
            responses_by_class: Some([counted; 5]),
            bytes_sent: counted,
            bytes_received: counted,
            workers_connected: 1,
            workers_ejected: 0,
            workers_failing: 0,
            ejections: counted,
            health_check_failures: counted,
            rejected: counted,
            is_monitored: true,
            times: Times::default(),
        }
    }

    fn snapshot(backends: Vec<BackendStats>) -> StatsSnapshot {
        let (totals, times) = (Totals::default(), Times::default());
        StatsSnapshot { totals, times, workers: Vec::new(), backends, tunables: None, edge_counters: None }
    }

    #[test]
    fn an_address_that_stands_in_a_list_twice_counted_double_with_each_reload() {
        let [one, two, three] = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let mut now = snapshot(vec![backend(0, one, 1), backend(1, one, 2), backend(2, two, 0)]);
        let before = [backend(0, one, 10), backend(1, one, 20), backend(5, two, 40), backend(6, three, 80)];
        now.add_earlier(&snapshot(before.to_vec()));
        let counted = now.backends.iter().map(|of| {
            let of = [
                of.requests,
                of.failures,
                of.ejections,
                of.health_check_failures,
                of.rejected,
                of.responses_by_class.expect("its protocol has a status")[4],
                of.workers_connected,
            ];
            assert!(of[..6].iter().all(|count| *count == of[0]) && of[6] == 1, "{of:?}");
            of[0]
        });
        assert_eq!(counted.collect::<Vec<_>>(), [11, 22, 40]);
    }

    #[test]
    fn counters_of_a_backend_were_lost_when_generations_ended_out_of_order() {
        let [one, two, three] = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        // The first generation has one backend and ends behind the second, which had three.
        let second = snapshot(vec![backend(0, one, 1), backend(1, two, 2), backend(2, three, 4)]);
        let mut ended = snapshot(vec![backend(0, one, 10)]);
        ended.add_earlier(&second);
        ended.keep_backends(second.backends, |of| of.address == two);
        let mut third = snapshot(vec![backend(0, one, 100), backend(1, two, 200)]);
        third.add_earlier(&ended);
        let requests: Vec<_> = third.backends.iter().map(|of| of.requests).collect();
        assert_eq!((requests, ended.backends.len()), (vec![111, 202], 2));
    }
}
