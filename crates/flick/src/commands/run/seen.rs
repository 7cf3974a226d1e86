//! What is seen of the services from outside, whichever generation of them runs.
//! Promises: a service's counters go on over a reload; what an older generation still does is counted, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use flick_admin::faults::Faults;
use flick_admin::limits::ASK_TIME_MAX;
use flick_admin::state::{Reloads, Service, Sessions, State};
use flick_admin::{Ask, Source, process};
use flick_ir::data::Module;
use flick_runtime::{Snapshot, Watch};

use super::admin::{self, View};
use crate::supervise::Call;

/// Everything that is shown.
pub struct Seen {
    shown: Mutex<Shown>,
    faults: Faults,
    /// Lines of the access log that its file did not take.
    access_unwritten: Arc<AtomicU64>,
    start: Instant,
    confined: OnceLock<String>,
    /// The control thread. Of several readers one is heard at a time.
    control: Mutex<Sender<Call>>,
}

struct Shown {
    views: Vec<View>,
    /// Of generations that still serve somebody.
    older: Vec<Watch>,
    /// By service: what generations that have ended had counted.
    ended: BTreeMap<String, Snapshot>,
    generation: u64,
    since: Instant,
    failed: u64,
    /// Workers that hang, by service and number.
    hung: Vec<(String, usize)>,
}

impl Seen {
    /// Shows nothing yet.
    pub fn new(faults: Faults, access_unwritten: Arc<AtomicU64>, control: Sender<Call>) -> Self {
        let start = Instant::now();
        let shown = Shown {
            views: Vec::new(),
            older: Vec::new(),
            ended: BTreeMap::new(),
            generation: 0,
            since: start,
            failed: 0,
            hung: Vec::new(),
        };
        let confined = OnceLock::new();
        let (shown, control) = (Mutex::new(shown), Mutex::new(control));
        Self { shown, faults, access_unwritten, start, confined, control }
    }

    /// From here on shows these services, which run these modules; the others are older.
    pub fn show(&self, watches: Vec<Watch>, modules: &[Arc<Module>]) {
        let views = watches.into_iter().zip(modules).map(|(watch, module)| View::new(watch, module));
        let views: Vec<View> = views.collect();
        let mut shown = self.shown();
        let before = std::mem::replace(&mut shown.views, views);
        shown.older.extend(before.into_iter().map(View::into_watch));
        shown.generation += 1;
        shown.since = Instant::now();
    }

    /// What the process has given up; the first time counts.
    pub fn confined(&self, line: String) {
        let _ = self.confined.set(line);
    }

    /// A reload has failed.
    pub fn failed(&self) {
        self.shown().failed += 1;
    }

    /// These workers hang, and no others.
    pub fn hang(&self, hung: Vec<(String, usize)>) {
        let before = std::mem::replace(&mut self.shown().hung, hung.clone());
        for (service, worker) in hung.iter().filter(|one| !before.contains(one)) {
            tracing::error!(service, worker, "a worker hangs: it does not turn though it was called");
        }
        for (service, worker) in before.iter().filter(|one| !hung.contains(one)) {
            tracing::warn!(service, worker, "a worker that hung turns again");
        }
    }

    /// How often something was shown.
    pub fn generation(&self) -> u64 {
        self.shown().generation
    }

    /// These have ended: what they have counted is kept as numbers.
    pub fn forget(&self, watches: &[Watch]) {
        let mut shown = self.shown();
        for watch in watches {
            shown.older.retain(|older| !older.is_same(watch));
            let mut counted = watch.snapshot();
            if let Some(earlier) = shown.ended.get(watch.name()) {
                counted.add_earlier(earlier);
            }
            shown.ended.insert(watch.name().to_owned(), counted);
        }
    }

    /// What ended generations of a service have counted.
    pub fn earlier(&self, service: &str) -> Option<Snapshot> {
        self.shown().ended.get(service).cloned()
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    /// One service. What it shares with an earlier one, whose program is the same, stands there, or it would count twice.
    fn service(&self, index: usize) -> Service {
        let view = &self.views[index];
        let mut snapshot = view.watch().snapshot();
        let name = view.watch().name();
        self.older.iter().filter(|older| older.name() == name).for_each(|older| {
            snapshot.add_earlier(&older.snapshot());
        });
        if let Some(ended) = self.ended.get(name) {
            snapshot.add_earlier(ended);
        }
        let is_alone = self.views.len() == 1 && view.watch().cpu_max_percent() >= 100;
        let service = view.service(&snapshot, is_alone);
        let is_shown = |earlier: &View| std::ptr::eq(earlier.watch().state(), view.watch().state());
        if self.views[..index].iter().any(is_shown) {
            return Service { program: Vec::new(), dictionaries: Vec::new(), ..service };
        }
        service
    }
}

impl Source for Seen {
    fn state(&self) -> State {
        let (faults, faults_lost) = self.faults.all();
        let shown = self.shown();
        State {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: process::read(self.start.elapsed().as_millis() as u64),
            confined: self.confined.get().cloned().unwrap_or_default(),
            is_draining: shown.views.iter().any(|view| view.watch().is_draining()),
            services: (0..shown.views.len()).map(|index| shown.service(index)).collect(),
            reloads: Reloads {
                generation: shown.generation,
                age_ms: shown.since.elapsed().as_millis() as u64,
                ok: shown.generation.saturating_sub(1),
                failed: shown.failed,
                older: shown.older.len() as u64,
            },
            faults,
            faults_lost,
            access_unwritten: self.access_unwritten.load(Ordering::Relaxed),
        }
    }

    fn sessions(&self) -> Sessions {
        // Asked behind the lock: workers take their time.
        let watches: Vec<Watch> = {
            let shown = self.shown();
            shown.views.iter().map(View::watch).chain(&shown.older).cloned().collect()
        };
        let sessions = watches.iter().flat_map(|watch| {
            watch.sessions().into_iter().map(|listed| admin::session(watch.name(), &listed))
        });
        let open = watches.iter().map(|watch| watch.snapshot().totals.sessions_open).sum();
        Sessions { open, sessions: sessions.collect() }
    }

    fn alive(&self) -> Result<(), String> {
        let shown = self.shown();
        let each = shown.hung.iter().map(|(service, worker)| format!("worker {worker} of {service} hangs"));
        match each.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => Err(some.join("; ")),
        }
    }

    fn ready(&self) -> Result<(), String> {
        self.shown().views.iter().try_for_each(View::ready)
    }

    fn ask(&self, ask: Ask) -> Result<String, String> {
        let (sender, answer) = mpsc::channel();
        let call = match ask {
            Ask::Reload => Call::Reload(sender),
            Ask::Upgrade => Call::Upgrade(sender),
        };
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.send(call).is_err() {
            return Err("the service is ending".to_owned());
        }
        drop(control);
        answer.recv_timeout(ASK_TIME_MAX).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => {
                    format!("it is not done in {ASK_TIME_MAX:?}; it goes on, and the log will say what comes of it")
                }
                RecvTimeoutError::Disconnected => "the service ended before it was done".to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;
    use flick_admin::faults::Faults;
    use flick_admin::{Ask, Source};
    use std::sync::mpsc;

    #[test]
    fn a_service_that_ended_meanwhile_was_said_to_take_too_long() {
        let (calls, receiver) = mpsc::channel();
        let seen = Seen::new(Faults::default(), Default::default(), calls);
        let ends = std::thread::spawn(move || receiver.recv().map(drop));
        assert_eq!(seen.ask(Ask::Reload), Err("the service ended before it was done".to_owned()));
        ends.join().expect("no panic").expect("it was called");
        assert_eq!(seen.ask(Ask::Reload), Err("the service is ending".to_owned()));
    }
}
