//! The state of all generations of services, as the admin endpoint shows it.
//! Promises: the counters of a service continue over a reload, and include those of older generations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use flick_admin::history::{History, Sample};
use flick_admin::limits::REQUEST_TIME_MAX;
use flick_admin::recent_events::RecentEvents;
use flick_admin::state::{BackendEntry, BackendStats, Reloads, Service, Sessions, StateReport};
use flick_admin::{AdminCommand, StateProvider, TapLines, process};
use flick_ir::data::Module;
use flick_runtime::{BackendAddress, ServiceStats, StatsSnapshot, program_log};

use super::admin::{self, ObservedService};
use super::backend_overrides::{self, BackendOverrides};
use super::tap;
use crate::logging::background;
use crate::supervise::ControlMessage;
use crate::version;

/// The observable state of the process.
pub struct ObservedState {
    generations: Mutex<ObservedGenerations>,
    recent: RecentEvents,
    history: Mutex<History>,
    /// Lines of the access log that could not be written.
    access_dropped: Arc<AtomicU64>,
    start: Instant,
    sandbox: OnceLock<String>,
    /// Requests to the control thread, one at a time.
    control: Mutex<Sender<ControlMessage>>,
    /// The operator's changes of backends.
    overrides: Arc<BackendOverrides>,
}

struct ObservedGenerations {
    current: Vec<ObservedService>,
    /// Services of older generations that still serve clients, with the number of their generation.
    older: Vec<(u64, ServiceStats)>,
    /// By service: the totals of generations that have ended.
    ended: BTreeMap<String, StatsSnapshot>,
    generation: u64,
    since: Instant,
    reloads_failed: u64,
    /// Stalled workers, by service and index.
    stalled: Vec<(String, usize)>,
    /// The new process of an upgrade has, or is about to get, what the operator has changed of backends.
    has_handed_over_backends: bool,
}

impl ObservedState {
    /// A process without services yet.
    pub fn new(
        recent: RecentEvents,
        access_dropped: Arc<AtomicU64>,
        control: Sender<ControlMessage>,
        overrides: Arc<BackendOverrides>,
    ) -> Self {
        let start = Instant::now();
        let generations = ObservedGenerations {
            current: Vec::new(),
            older: Vec::new(),
            ended: BTreeMap::new(),
            generation: 0,
            since: start,
            reloads_failed: 0,
            stalled: Vec::new(),
            has_handed_over_backends: false,
        };
        let sandbox = OnceLock::new();
        let (generations, control) = (Mutex::new(generations), Mutex::new(control));
        let history = Mutex::default();
        Self { generations, recent, history, access_dropped, start, sandbox, control, overrides }
    }

    /// The operator's changes of backends.
    pub fn overrides(&self) -> &BackendOverrides {
        &self.overrides
    }

    /// The operator's changes of backends, for the new process of an upgrade. Later ones are refused: they would be
    /// lost.
    pub fn hand_over_backends(&self) -> Vec<String> {
        self.generations().has_handed_over_backends = true;
        self.overrides.lines()
    }

    /// Accepts changes of backends again, as the upgrade has failed.
    pub fn keep_backends(&self) {
        self.generations().has_handed_over_backends = false;
    }

    /// Makes these services, which run these modules, the current generation.
    pub fn set_current(&self, watches: Vec<ServiceStats>, modules: &[Arc<Module>]) {
        let services = watches.into_iter().zip(modules);
        let services = services.map(|(watch, module)| ObservedService::new(watch, module)).collect();
        let mut generations = self.generations();
        let before = std::mem::replace(&mut generations.current, services);
        // What was changed while they were being prepared.
        generations.current.iter().for_each(|observed| self.apply_overrides(observed.watch()));
        let number = generations.generation;
        generations.older.extend(before.into_iter().map(|service| (number, service.into_watch())));
        generations.generation += 1;
        generations.since = Instant::now();
    }

    /// Applies what an operator has changed of the backends of a service.
    fn apply_overrides(&self, watch: &ServiceStats) {
        let listed = watch.listed_backends();
        for (channel, given, _) in &listed {
            watch.change_backend(channel, self.overrides.of_backend(watch.name(), channel, &given.endpoint));
        }
    }

    /// Sets the description of the sandbox. Only the first call has an effect.
    pub fn set_sandbox(&self, summary: String) {
        let _ = self.sandbox.set(summary);
    }

    /// Counts a failed reload.
    pub fn reload_failed(&self) {
        self.generations().reloads_failed += 1;
    }

    /// Sets the stalled workers, and logs the changes.
    pub fn set_stalled(&self, stalled: Vec<(String, usize)>) {
        let before = std::mem::replace(&mut self.generations().stalled, stalled.clone());
        for (service, worker) in stalled.iter().filter(|one| !before.contains(one)) {
            tracing::error!(service, worker, "worker stalled: no event-loop iteration though it was woken");
        }
        for (service, worker) in before.iter().filter(|one| !stalled.contains(one)) {
            tracing::warn!(service, worker, "stalled worker runs again");
        }
    }

    /// Number of the current generation; the first is 1.
    pub fn generation(&self) -> u64 {
        self.generations().generation
    }

    /// Removes services that have ended, and keeps their totals.
    pub fn remove(&self, watches: &[ServiceStats]) {
        let mut generations = self.generations();
        for watch in watches {
            generations.older.retain(|(_, older)| !older.is_same(watch));
            let mut totals = watch.snapshot();
            if let Some(earlier) = generations.ended.remove(watch.name()) {
                totals.add_earlier(&earlier);
                // A later generation with further backends may have ended before this one.
                let current = generations.current.iter().map(ObservedService::watch);
                let running = current.chain(generations.older.iter().map(|(_, older)| older));
                let of_service = running.filter(|other| other.name() == watch.name());
                let listed: Vec<BackendStats> =
                    of_service.flat_map(|other| other.snapshot().backends).collect();
                totals.keep_backends(earlier.backends, |of| listed.iter().any(|known| known.is_of_same(of)));
            }
            generations.ended.insert(watch.name().to_owned(), totals);
        }
    }

    /// Totals of the ended generations of a service.
    pub fn ended_totals(&self, service: &str) -> Option<StatsSnapshot> {
        self.generations().ended.get(service).cloned()
    }

    fn history_lock(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generations(&self) -> std::sync::MutexGuard<'_, ObservedGenerations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObservedGenerations {
    /// Number of older generations that still serve clients.
    fn draining(&self) -> u64 {
        self.older.chunk_by(|(one, _), (other, _)| one == other).count() as u64
    }

    /// The state of one service. Counters and dictionaries that services share appear at the first of them only, so
    /// that sums over services are right.
    fn service(&self, index: usize) -> Service {
        let observed = &self.current[index];
        let mut snapshot = observed.watch().snapshot();
        let name = observed.watch().name();
        self.older.iter().filter(|(_, older)| older.name() == name).for_each(|(_, older)| {
            snapshot.add_earlier(&older.snapshot());
        });
        if let Some(ended) = self.ended.get(name) {
            snapshot.add_earlier(ended);
        }
        let is_alone = self.current.len() == 1 && observed.watch().cpu_max_percent() >= 100;
        let service = observed.service(&snapshot, is_alone);
        let is_shared =
            |earlier: &ObservedService| std::ptr::eq(earlier.watch().state(), observed.watch().state());
        if self.current[..index].iter().any(is_shared) {
            return Service { program: Vec::new(), dictionaries: Vec::new(), ..service };
        }
        service
    }
}

impl StateProvider for ObservedState {
    fn state(&self) -> StateReport {
        let (events, events_dropped) = self.recent.all();
        let generations = self.generations();
        StateReport {
            version: version::RELEASE.to_owned(),
            commit: version::COMMIT.to_owned(),
            target: version::TARGET.to_owned(),
            process: process::read(self.start.elapsed().as_millis() as u64),
            sandbox: self.sandbox.get().cloned().unwrap_or_default(),
            is_draining: generations.current.iter().any(|observed| observed.watch().is_draining()),
            services: (0..generations.current.len()).map(|index| generations.service(index)).collect(),
            reloads: Reloads {
                generation: generations.generation,
                age_ms: generations.since.elapsed().as_millis() as u64,
                succeeded: generations.generation.saturating_sub(1),
                failed: generations.reloads_failed,
                draining: generations.draining(),
            },
            events,
            events_dropped,
            access_dropped: self.access_dropped.load(Ordering::Relaxed),
            log_lines_dropped: background::dropped(),
            program_lines_dropped: program_log::left_out(),
        }
    }

    fn record(&self) {
        let state = self.state();
        self.history_lock().add(&state);
    }

    fn history(&self) -> BTreeMap<String, Vec<Sample>> {
        self.history_lock().samples()
    }

    fn sessions(&self) -> Sessions {
        // The lock is released before the workers are queried, which takes time.
        let watches: Vec<ServiceStats> = {
            let generations = self.generations();
            let older = generations.older.iter().map(|(_, older)| older);
            generations.current.iter().map(ObservedService::watch).chain(older).cloned().collect()
        };
        let open = watches.iter().map(|watch| watch.snapshot().totals.connections_open).sum();
        let mut all = Sessions { open, ..Sessions::default() };
        for watch in &watches {
            let listed = watch.connections();
            all.sessions.extend(listed.sessions.iter().map(|one| admin::session(watch.name(), one)));
            let backend_conns = listed.backend_conns.iter();
            all.backend_connections.extend(backend_conns.map(|one| admin::backend_connection(watch, one)));
        }
        all
    }

    fn alive(&self) -> Result<(), String> {
        let generations = self.generations();
        let stalled = generations.stalled.iter();
        let each = stalled.map(|(service, worker)| format!("worker {worker} of {service} is stalled"));
        match each.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => Err(some.join("; ")),
        }
    }

    fn ready(&self) -> Result<(), String> {
        self.generations().current.iter().try_for_each(ObservedService::ready)
    }

    fn execute(&self, command: AdminCommand) -> Result<String, String> {
        let (sender, result) = mpsc::channel();
        let message = match command {
            AdminCommand::Reload => ControlMessage::Reload(sender),
            AdminCommand::Upgrade => ControlMessage::Upgrade(sender),
        };
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.send(message).is_err() {
            return Err("the service is shutting down".to_owned());
        }
        drop(control);
        result.recv_timeout(REQUEST_TIME_MAX).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => {
                    format!("not finished within {REQUEST_TIME_MAX:?}; it continues, and the log will have the result")
                }
                RecvTimeoutError::Disconnected => "the service ended before the request was finished".to_owned(),
            })
        })
    }

    fn tune(&self, service: Option<&str>, changes: &[(&str, &str)]) -> Result<(), String> {
        let parsed = admin::tunable_changes(changes)?;
        let generations = self.generations();
        let watches = generations.current.iter().map(ObservedService::watch);
        let chosen: Vec<&ServiceStats> =
            watches.filter(|watch| service.is_none_or(|name| name == watch.name())).collect();
        if chosen.is_empty() {
            return Err(format!("there is no service `{}`", service.unwrap_or_default()));
        }
        // The ranges are the same for every service: the first one refuses a value before any has changed.
        for watch in chosen {
            watch.tunables().set(&parsed).map_err(|error| error.to_string())?;
            tracing::info!(service = watch.name(), ?changes, "tunables changed");
        }
        Ok(())
    }

    fn tap(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn TapLines>, String> {
        let wanted =
            |name: &str| parameters.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        let generations = self.generations();
        let watches: Vec<&ServiceStats> = generations.current.iter().map(ObservedService::watch).collect();
        tap::begin(&watches, wanted("service"), wanted("connection"))
    }

    fn backends(&self) -> Vec<BackendEntry> {
        let generations = self.generations();
        let entries = generations.current.iter().flat_map(|observed| {
            let watch = observed.watch();
            let stats = watch.snapshot();
            let health = |channel: &str, address: &str| {
                let is_meant = |one: &&BackendStats| one.channel == channel && one.address == address;
                stats.backends.iter().find(is_meant).map(|backend| backend.health(stats.workers.len()))
            };
            let (mut of, mut elements) = ("", 0..);
            let listed = watch.listed_backends().into_iter();
            let entries = listed.map(|(channel, given, now)| {
                if of != channel {
                    (of, elements) = (channel, 0..);
                }
                let own = self.overrides.of_backend(watch.name(), channel, &given.endpoint);
                let address = now.endpoint.to_string();
                BackendEntry {
                    service: watch.name().to_owned(),
                    channel: channel.to_owned(),
                    element: elements.next().unwrap_or_default(),
                    backend: given.endpoint.to_string(),
                    health: health(channel, &address).unwrap_or_default(),
                    address,
                    mode: now.mode.name().to_owned(),
                    is_backup: now.rank > 0,
                    // A backend of weight 0 is drained, and its former weight is of no use to a reader.
                    weight: if own.weight == Some(0) { 0 } else { now.weight },
                }
            });
            entries.collect::<Vec<_>>()
        });
        entries.collect()
    }

    fn change_backend(&self, parameters: &[(&str, &str)]) -> Result<String, String> {
        let (selector, changes) = BackendSelector::split(parameters);
        let generations = self.generations();
        if generations.has_handed_over_backends {
            return Err("an upgrade is in progress; repeat the change when it has ended".to_owned());
        }
        let mut chosen = Vec::new();
        for watch in generations.current.iter().map(ObservedService::watch) {
            let meant =
                watch.listed_backends().into_iter().filter(|one| selector.is_meant(watch.name(), one));
            for (channel, given, _) in meant {
                let before = self.overrides.of_backend(watch.name(), channel, &given.endpoint);
                chosen.push((watch, channel.to_owned(), backend_overrides::changed(before, &changes)?));
            }
        }
        if chosen.is_empty() {
            return Err(format!(
                "no list has the backend `{}`; `flick backend ADMIN` lists them",
                selector.backend
            ));
        }
        let mut lines = Vec::new();
        for (watch, channel, change) in chosen {
            let older =
                generations.older.iter().map(|(_, older)| older).filter(|older| older.name() == watch.name());
            for watch in older.chain([watch]) {
                watch.change_backend(&channel, change.clone());
            }
            let line = format!("{}.{channel} {}", watch.name(), backend_overrides::describe(&change));
            tracing::info!("backend changed: {line}");
            lines.push(line);
            lines.extend(backend_overrides::why_not_ready(&change));
            self.overrides.set(watch.name(), &channel, change);
        }
        drop(generations);
        lines.push(match self.overrides.save() {
            Ok(true) => return Ok(lines.join("\n")),
            // Nothing is left that a restart could undo.
            Ok(false) if self.overrides.lines().is_empty() => return Ok(lines.join("\n")),
            Ok(false) => "a restart undoes this: `backend_state_file` is not set".to_owned(),
            Err(error) => {
                tracing::warn!(error, "a restart undoes the changes of backends");
                format!("a restart undoes this: {error}")
            }
        });
        Ok(lines.join("\n"))
    }
}

/// Backends that a request applies to.
#[derive(Default)]
struct BackendSelector<'a> {
    service: Option<&'a str>,
    channel: Option<&'a str>,
    backend: &'a str,
}

impl<'a> BackendSelector<'a> {
    /// Splits the parameters of a request into the selector and the changes.
    fn split(parameters: &[(&'a str, &'a str)]) -> (Self, Vec<(&'a str, &'a str)>) {
        let (mut selector, mut changes) = (Self::default(), Vec::new());
        for (name, value) in parameters {
            match *name {
                "service" => selector.service = Some(value),
                "channel" => selector.channel = Some(value),
                "backend" => selector.backend = value,
                _ => changes.push((*name, *value)),
            }
        }
        (selector, changes)
    }

    /// Whether a backend is meant: by the address in its list, or the one that it has now.
    fn is_meant(
        &self,
        service: &str,
        (channel, given, now): &(&str, BackendAddress, BackendAddress),
    ) -> bool {
        let has_address = [given, now].iter().any(|known| known.endpoint.to_string() == self.backend);
        self.service.is_none_or(|wanted| wanted == service)
            && self.channel.is_none_or(|wanted| wanted == *channel)
            && has_address
    }
}

#[cfg(test)]
mod tests {
    use super::ObservedState;
    use flick_admin::recent_events::RecentEvents;
    use flick_admin::{AdminCommand, StateProvider};
    use std::sync::mpsc;

    #[test]
    fn request_to_a_service_that_ends() {
        let (control, receiver) = mpsc::channel();
        let observed =
            ObservedState::new(RecentEvents::default(), Default::default(), control, Default::default());
        let control_thread = std::thread::spawn(move || receiver.recv().map(drop));
        let reload = || observed.execute(AdminCommand::Reload);
        assert_eq!(reload(), Err("the service ended before the request was finished".to_owned()));
        control_thread.join().expect("no panic").expect("it received the request");
        assert_eq!(reload(), Err("the service is shutting down".to_owned()));
    }
}
