//! The current generation of services, and older ones that still serve clients.
//! Promises: a reload is atomic: if anything cannot be read, compiled or opened, nothing changes and the error says
//! why; at most [`GENERATIONS_MAX`] older generations exist, beyond which the oldest closes its clients.
//! Refuses: to change settings of the process; they take effect at the next start, and the log and the response name
//! them.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, SystemTime};

use flick_admin::{Address, StateProvider, Tokens};
use flick_check::counted;
use flick_compiler::without_pipes;
use flick_discovery::{LastLists, Watchers};
use flick_net::IoKind;
use flick_runtime::memory::MemoryPart;
use flick_runtime::{ExitReport, LoadedPlatform, Platform, ServiceConfig, State};
use signal_hook::consts::SIGUSR1;
use tracing::{info, warn};

use super::backends::{DiscoveredChannel, FirstReads};
use super::changes::{self, ServiceSummary};
use super::follow_load::LoadFollower;
use super::observed_state::ObservedState;
use super::open_files::OpenFilesLimit;
use super::prepare::Prepared;
use super::watchdog::Watchdog;
use super::{admin, backends, start_failure};
use crate::access::AccessLog;
use crate::descriptors;
use crate::failure::Failure;
use crate::hot_restart::{self, HandedResources, InheritedResources, NewProcess, RunningOldProcess};
use crate::launcher::Launcher;
use crate::notify::KeepAlive;
use crate::sandbox::{ActiveSandbox, SandboxMode, User};
use crate::settings::{RunFlags, Settings, Shm, TokenFile};
use crate::state_dir_lock::StateDirLocks;
use crate::supervise::ControlMessage;
use crate::sys;

/// Maximum number of older generations.
const GENERATIONS_MAX: usize = 8;

/// Priority of the compiler thread of a reload: a quarter of a core that a worker keeps busy.
const COMPILER_NICE: i32 = 5;

/// Interval at which the control thread checks whether the thread that it waits for has finished.
const THREAD_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time that the old process of an upgrade waits for its last admin responses to be delivered.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(1);

/// All generations of the services.
pub struct Generations {
    flags: RunFlags,
    settings: Settings,
    current: Platform,
    older: Vec<Older>,
    /// Update the backend lists of the current generation.
    watchers: Watchers,
    /// The lists that the watchers read last.
    known: LastLists,
    observed: Arc<ObservedState>,
    /// Memory of the current dictionaries.
    dicts: Vec<MemoryPart>,
    /// Programs and settings of the current services, for comparison.
    summaries: Vec<ServiceSummary>,
    open_files: OpenFilesLimit,
    /// The active sandbox, once there is one.
    sandbox: Option<ActiveSandbox>,
    /// Locks on the state directories of the current generation.
    locks: StateDirLocks,
    /// Files that the current generation was made of.
    files: Vec<PathBuf>,
    /// Programs named by the settings of a reload that failed.
    failed_files: Vec<PathBuf>,
    read_at: SystemTime,
    admin: Option<flick_admin::Server>,
    /// Address of the old process's admin endpoint, if this process has another one.
    old_admin_address: Option<Address>,
    /// Responses of the admin endpoint that were in progress when the new process took it over, for example to the
    /// request for the upgrade.
    responses: Option<flick_admin::Responses>,
    /// Starts the new process of an upgrade. `None`: no process can be started.
    launcher: Option<Launcher>,
    /// The process that replaces this one.
    new_process: Option<NewProcess>,
    /// The process that this one replaces, until that has exited.
    old_process: Option<RunningOldProcess>,
    /// The first panic of an older generation, which is resumed at the end.
    panic: Option<Box<dyn std::any::Any + Send>>,
    watchdog: Watchdog,
    /// Changes tunables of the current generation.
    follower: Option<LoadFollower>,
    keep_alive: KeepAlive,
    /// Dropped last: its thread writes the records of all generations.
    access: AccessLog,
}

/// A generation that was replaced.
struct Older {
    platform: Platform,
    /// Its remaining clients follow changes of backend lists.
    _watchers: Watchers,
    /// Until it has written its last snapshot.
    locks: StateDirLocks,
}

impl Generations {
    /// Starts the first generation. Calls `before_open` once the state of the services has been read back, before a
    /// socket is opened. Snapshots are written from [`Generations::keep_snapshots`] on.
    ///
    /// Errors: a socket or file cannot be opened; that of `before_open`.
    pub fn start(
        flags: RunFlags,
        prepared: Prepared,
        inherited: InheritedResources,
        observed: Arc<ObservedState>,
        mut access: AccessLog,
        launcher: Option<Launcher>,
        before_open: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let summaries = ServiceSummary::of(&prepared);
        let Prepared { settings, mut services, modules, opened, dicts, files, begun, .. } = prepared;
        let mut open_files = OpenFilesLimit::default();
        open_files.raise_limit(&mut services)?;
        let InheritedResources { handoff, locks, admin: inherited, .. } = inherited;
        let log = access.open(settings.access_log.as_ref(), settings.user.as_ref())?;
        access.write_to(log);
        let loaded = Platform::load(services, handoff).map_err(start_failure)?;
        before_open()?;
        // An inherited socket that is not needed is closed here; its file is removed in `serve_admin`.
        let old_address = inherited.socket.as_ref().map(|(at, _)| at.clone());
        let old_admin_address = old_address.filter(|at| settings.admin.as_ref() != Some(at));
        // Before the workers start: clients that they have accepted would be reset where this fails.
        let admin = admin::open(&settings, inherited, Arc::clone(&observed))?;
        let current = loaded.start().map_err(start_failure)?;
        let known = LastLists::of(opened.iter().flatten().map(DiscoveredChannel::reader));
        let watchers = backends::watch(&current, opened)?;
        observed.set_current(current.stats(), &modules);
        let watchdog = Watchdog::new(settings.watchdog_timeout);
        let follower = LoadFollower::new(&settings, current.stats());
        let (older, responses, new_process, panic) = (Vec::new(), None, None, None);
        Ok(Self {
            flags,
            settings,
            current,
            older,
            watchers,
            known,
            observed,
            dicts,
            summaries,
            open_files,
            sandbox: None,
            locks,
            files,
            failed_files: Vec::new(),
            read_at: begun,
            admin,
            old_admin_address,
            responses,
            launcher,
            new_process,
            old_process: None,
            panic,
            watchdog,
            follower,
            keep_alive: KeepAlive::from_environment(hot_restart::is_new_process()),
            access,
        })
    }

    /// Starts answering at the admin endpoint, once the old process has stopped.
    pub fn serve_admin(&mut self) {
        if let Some(Address::Unix(path)) = self.old_admin_address.take() {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
        self.admin.iter_mut().for_each(flick_admin::Server::serve);
    }

    /// Writes the snapshots of dictionaries from now on, once nothing can fail the start, and an old process has left
    /// them to this one.
    pub fn keep_snapshots(&self) {
        self.current.keep_snapshots([]);
    }

    /// Logs where the services listen.
    pub fn log_addresses(&self) {
        log_addresses(&self.current, self.settings.workers);
    }

    /// The current settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the time at which the last read of the files began.
    pub fn read_at(&self) -> SystemTime {
        self.read_at
    }

    /// The files of the current generation, and those named by the last reload if it failed.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().chain(&self.failed_files).cloned().collect()
    }

    /// Reads programs and settings again and starts a new generation. Returns what has changed. Gives up where it
    /// waits for name servers when this process must exit.
    ///
    /// Errors: why nothing has changed.
    pub fn reload(&mut self, must_exit: &mut dyn FnMut() -> bool) -> Result<String, String> {
        without_pipes(|| self.reload_regular_files(must_exit))
    }

    fn reload_regular_files(&mut self, must_exit: &mut dyn FnMut() -> bool) -> Result<String, String> {
        let result = self.try_reload(must_exit).map_err(|failure| match &self.sandbox {
            Some(sandbox) => sandbox.explain(failure.text()),
            None => failure.text(),
        });
        match &result {
            Ok(changes) => {
                self.failed_files.clear();
                info!(generation = self.observed.generation(), "reloaded: {changes}");
            }
            Err(error) => {
                let settings = Settings::resolve(self.flags.clone());
                self.failed_files = settings.map_or_else(
                    |_| Vec::new(),
                    |settings| settings.programs.into_iter().map(|own| own.program).collect(),
                );
                self.observed.reload_failed();
                warn!("the reload failed and changed nothing: {error}");
            }
        }
        result
    }

    /// Sets the active sandbox. The process may have another user now.
    pub fn set_sandbox(&mut self, sandbox: ActiveSandbox) {
        if let Err(error) = self.current.renew_user() {
            warn!(%error, "processes of the same user cannot connect through shared memory");
        }
        self.observed.set_sandbox(sandbox.summary());
        self.sandbox = Some(sandbox);
    }

    fn try_reload(&mut self, must_exit: &mut dyn FnMut() -> bool) -> Result<String, Failure> {
        self.read_at = SystemTime::now();
        let mut prepared = self.prepare(must_exit)?;
        descriptors::forbid_successor(&prepared.services)?;
        // The inherited listening sockets fit one kind of driver only.
        let io = IoKind::from_str(self.current.io()).unwrap_or(self.settings.io);
        for service in &mut prepared.services {
            (service.config.io, service.config.upgrades_to_shm) = (io, self.settings.shm == Shm::Auto);
        }
        let summaries = ServiceSummary::of(&prepared);
        let Prepared { mut settings, mut services, modules, opened, dicts, files, .. } = prepared;
        // A list that neither its source nor the current generation provides would be empty.
        backends::complete(&opened)?;
        let tokens = admin::tokens(&settings, self.known_tokens(&settings))?;
        self.open_files.raise_limit(&mut services)?;
        let locks = StateDirLocks::lock(&services, &self.locks)?;
        let log = self.access.open(settings.access_log.as_ref(), settings.user.as_ref())?;
        let next = self.start_next(services, must_exit)?;
        self.access.write_to(log);
        let known = LastLists::of(opened.iter().flatten().map(DiscoveredChannel::reader));
        let stale = stale_lists(&next, &opened);
        let mut old_watchers = Watchers::default();
        match backends::watch(&next, opened) {
            Ok(watchers) => {
                (old_watchers, self.known) = (std::mem::replace(&mut self.watchers, watchers), known)
            }
            Err(failure) => warn!("backend lists are no longer updated: {}", failure.text()),
        }
        let later = only_at_start(&self.settings, &settings).into_iter().map(|name| {
            warn!(setting = name, "the setting takes effect at the next start only");
            format!("`{name}` takes effect at the next start only")
        });
        let changes = self.changes(&next, &summaries, &settings).into_iter().chain(stale).chain(later);
        let changes = changes.collect::<Vec<_>>().join("; ");
        self.summaries = summaries;
        settings.warn_deprecated();
        log_addresses(&next, settings.workers);
        let timeout = settings.old_generation_timeout;
        // Older generations hand over to the newest one, before the current one starts to drain.
        self.older.iter_mut().for_each(|older| older.platform.replace(&next, timeout));
        self.observed.set_current(next.stats(), &modules);
        let mut before = std::mem::replace(&mut self.current, next);
        before.replace(&self.current, timeout);
        let locks = std::mem::replace(&mut self.locks, locks);
        self.older.push(Older { platform: before, _watchers: old_watchers, locks });
        self.current.keep_snapshots(self.older.iter().map(|older| &older.platform));
        self.watchdog = Watchdog::new(settings.watchdog_timeout);
        self.follower = LoadFollower::new(&settings, self.current.stats());
        if self.older.len() > GENERATIONS_MAX {
            warn!("closing the clients of the oldest of {} old generations", self.older.len());
            self.older[0].platform.drain(Duration::ZERO);
        }
        self.admin.iter().for_each(|admin| admin.set_tokens(tokens.clone()));
        self.keep_settings_of_start(&mut settings);
        (self.settings, self.files, self.dicts) = (settings, files, dicts);
        Ok(changes)
    }

    /// Starts the next generation beside the current one, whose snapshots are written first if it reads one back.
    ///
    /// Errors: a snapshot cannot be written; as [`Platform::start_with`].
    fn start_next(
        &mut self,
        services: Vec<ServiceConfig>,
        must_exit: &mut dyn FnMut() -> bool,
    ) -> Result<Platform, Failure> {
        let Self { current, observed, keep_alive, .. } = self;
        if current.is_read_back_by(&services) {
            save_snapshots(current, "generation", observed, keep_alive, must_exit)
                .map_err(Failure::failed)?;
        }
        let handoff = current
            .handoff()
            .map_err(|error| Failure::failed(format!("cannot inherit the listening sockets: {error}")))?;
        Platform::load(services, handoff).and_then(LoadedPlatform::start).map_err(start_failure)
    }

    /// Moves those of the current settings that a reload does not change into the new ones.
    fn keep_settings_of_start(&mut self, settings: &mut Settings) {
        // These take effect at the next start; until then the current values apply, and the next reload compares with
        // them.
        (settings.io, settings.perf_map) = (self.settings.io, self.settings.perf_map);
        settings.shm = self.settings.shm;
        (settings.sandbox, settings.log) = (self.settings.sandbox, self.settings.log);
        settings.backend_state_file = self.settings.backend_state_file.take();
        (settings.admin, settings.user) = (self.settings.admin.take(), self.settings.user.take());
        settings.admin_token_file =
            settings.admin_token_file.take().or(self.settings.admin_token_file.take());
        settings.admin_read_token_file =
            settings.admin_read_token_file.take().or(self.settings.admin_read_token_file.take());
    }

    /// The current tokens, as far as the same files have them in `settings`.
    fn known_tokens(&self, settings: &Settings) -> Tokens {
        let Some(Tokens { control, read }) = self.admin.as_ref().map(flick_admin::Server::tokens) else {
            return Tokens::default();
        };
        let is_same = |one: &Option<TokenFile>, other: &Option<TokenFile>| {
            one.as_ref().map(|file| &file.path) == other.as_ref().map(|file| &file.path)
        };
        let before = &self.settings;
        Tokens {
            control: control.filter(|_| is_same(&settings.admin_token_file, &before.admin_token_file)),
            read: read.filter(|_| is_same(&settings.admin_read_token_file, &before.admin_read_token_file)),
        }
    }

    /// Reads and compiles the next generation, on a thread of lower priority: a priority cannot be raised again. A
    /// panic of the compiler does not affect the running services.
    fn prepare(&mut self, must_exit: &mut dyn FnMut() -> bool) -> Result<Prepared, Failure> {
        let Self { flags, access, known, dicts, observed, keep_alive, .. } = self;
        let (port, overrides) = (access.port(), observed.overrides());
        let reads = FirstReads { known: Some(known), cancelled: Arc::default() };
        let prepare = || {
            // If that is not permitted, the priority stays.
            let _ = rustix::process::nice(COMPILER_NICE);
            without_pipes(|| Prepared::new(flags, &port, &reads, dicts, overrides))
        };
        thread::scope(|scope| {
            let compiler =
                thread::Builder::new().name("flick-compiler".to_owned()).spawn_scoped(scope, prepare);
            let compiler = compiler
                .map_err(|error| Failure::failed(format!("cannot start a compiler thread: {error}")))?;
            while !compiler.is_finished() {
                keep_alive.send_if_due(|| observed.alive().is_ok());
                reads.cancelled.store(must_exit(), Ordering::Relaxed);
                thread::sleep(THREAD_POLL_INTERVAL);
            }
            let prepared = compiler
                .join()
                .map_err(|_| Failure::failed("the compiler panicked; standard error has the message"))??;
            if must_exit() { Err(Failure::failed("flick ends")) } else { Ok(prepared) }
        })
    }

    /// Starts the binary at the path of this one, with the same arguments, and hands it the listening sockets and the
    /// clients. Returns its process id. Stops waiting for it when this process must exit. The control thread gets a
    /// message when the new process ends.
    ///
    /// Errors: why nothing has changed.
    pub fn upgrade(
        &mut self,
        control: Sender<ControlMessage>,
        must_exit: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        let result = self.try_upgrade(control, must_exit);
        match &result {
            Ok(process) => info!("upgraded: {process}"),
            Err(error) => warn!("the upgrade failed and changed nothing: {error}"),
        }
        result
    }

    fn try_upgrade(
        &mut self,
        control: Sender<ControlMessage>,
        must_exit: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        if self.settings.sandbox == SandboxMode::Strict {
            return Err(
                "`--sandbox strict` does not allow starting a process; restart flick instead".to_owned()
            );
        }
        descriptors::forbid_successor(&[]).map_err(|failure| failure.text())?;
        let Some(launcher) = &self.launcher else {
            return Err("the path of the running binary is unknown".to_owned());
        };
        let handoff = self.current.handoff();
        let handoff = handoff.map_err(|error| format!("cannot hand over the listening sockets: {error}"))?;
        save_snapshots(&self.current, "process", &self.observed, &mut self.keep_alive, must_exit)?;
        let admin = self.settings.admin.as_ref().zip(self.admin.as_ref());
        let resources = HandedResources {
            handoff: &handoff,
            locks: &self.locks,
            admin,
            overrides: self.observed.hand_over_backends(),
        };
        let keep_alive = &mut self.keep_alive;
        let new_process = NewProcess::start(launcher, &resources, control, &mut || {
            keep_alive.send_if_due(|| self.observed.alive().is_ok());
            must_exit()
        })
        .inspect_err(|_| self.observed.keep_backends())?;
        // The new process answers further admin requests; it listens on the same socket.
        self.responses = self.admin.take().map(flick_admin::Server::hand_over);
        let timeout = self.settings.old_generation_timeout;
        for platform in self.older.iter_mut().map(|older| &mut older.platform).chain([&mut self.current]) {
            platform.hand_off(timeout, |service| new_process.successor_of(service));
        }
        // The new process shares the locks and is the only one to write. This process must not hold them after the new
        // one has ended.
        self.locks = StateDirLocks::default();
        let process = format!("process {}", new_process.pid());
        self.new_process = Some(new_process);
        Ok(process)
    }

    /// Id of the process that replaces this one.
    pub fn new_process(&self) -> Option<u32> {
        self.new_process.as_ref().map(NewProcess::pid)
    }

    /// Forwards a signal to the process that replaces this one.
    pub fn forward_signal(&self, signal: i32) {
        self.new_process.iter().for_each(|new_process| new_process.signal(signal));
    }

    /// Reopens the access log, here and in the process that replaces this one.
    pub fn reopen_logs(&mut self) {
        self.forward_signal(SIGUSR1);
        self.access.reopen(self.settings.user.as_ref());
    }

    /// Adopts a client of the old process, or passes it on when this process has been replaced, too.
    pub fn adopt_client(&self, service: &str, worker: usize, socket: OwnedFd) {
        match (self.current.adopt_client(service, worker, socket), &self.new_process) {
            (Ok(()), _) => {}
            (Err(socket), Some(new_process)) => new_process.adopt_client(service, worker, socket),
            (Err(_), None) => {
                warn!(service, "closed a client of the old process: no such service takes clients");
            }
        }
    }

    /// Sets the process that this one replaces.
    pub fn set_old_process(&mut self, old_process: RunningOldProcess) {
        self.old_process = Some(old_process);
    }

    /// Notes that the old process has handed over its last client.
    pub fn note_no_more_clients(&mut self) {
        self.old_process.iter_mut().for_each(RunningOldProcess::end_handover);
    }

    /// Notes that the old process has exited.
    pub fn note_old_process_exited(&mut self) {
        self.old_process = None;
    }

    /// Whether the old process has not exited.
    pub fn has_old_process(&self) -> bool {
        self.old_process.is_some()
    }

    /// Whether the old process may still hand over clients.
    pub fn takes_clients_over(&self) -> bool {
        self.old_process.as_ref().is_some_and(RunningOldProcess::hands_over)
    }

    /// Requests the old process to drain the clients that it still has, as this process ends.
    pub fn drain_old_process(&self) {
        self.old_process.iter().for_each(RunningOldProcess::request_drain);
    }

    /// Describes how `next`, with these services and settings, differs from the current generation.
    fn changes(&self, next: &Platform, services: &[ServiceSummary], settings: &Settings) -> Vec<String> {
        let count = counted(next.services().len(), "service");
        let mut differences = changes::of_services(&self.summaries, services);
        differences.extend(changes::of_addresses(&self.current, next));
        differences.extend(changes::of_process(&self.settings, settings));
        if differences.is_empty() {
            differences.push("services unchanged".to_owned());
        }
        let generation = format!("generation {}", self.observed.generation() + 1);
        [generation, count].into_iter().chain(differences).collect()
    }

    /// Time until [`Generations::check_workers`] is due; `None`: never.
    pub fn watchdog_due_in(&self) -> Option<Duration> {
        self.watchdog.due_in()
    }

    /// Checks for stalled workers if it is due, and wakes those that may only sleep.
    pub fn check_workers(&mut self) {
        self.keep_alive.send_if_due(|| self.observed.alive().is_ok());
        if !self.watchdog.is_due() {
            return;
        }
        let services = self.current.services();
        let all = services.iter().flat_map(|service| {
            service.loops().into_iter().enumerate().map(move |(worker, loops)| (service, worker, loops))
        });
        let all: Vec<_> = all.collect();
        let checked = self.watchdog.check(&all.iter().map(|(_, _, loops)| *loops).collect::<Vec<_>>());
        for at in checked.wake {
            all[at].0.wake_worker(all[at].1);
        }
        let stalled = checked.stalled.iter().map(|at| (all[*at].0.name().to_owned(), all[*at].1));
        self.observed.set_stalled(stalled.collect());
    }

    /// Changes tunables with the load, if that is set and due.
    pub fn follow_load(&mut self) {
        if self.follower.as_mut().is_some_and(|follower| !follower.run_if_due()) {
            self.follower = None;
        }
    }

    /// Removes older generations that have ended, and warns of a launcher that has.
    pub fn reap(&mut self) {
        if self.launcher.as_mut().is_some_and(Launcher::has_just_ended) {
            warn!(
                "the process that starts upgrades (flick-launcher) has ended: an upgrade needs a restart now"
            );
        }
        let mut at = 0;
        while at < self.older.len() {
            let Older { platform, locks, .. } = &mut self.older[at];
            if platform.is_leaving_snapshots() {
                at += 1;
                continue;
            }
            // It writes no more snapshots, so its directories are unlocked, except those of the current generation.
            *locks = StateDirLocks::default();
            match platform.is_finished() {
                true => self.remove_older(at),
                false => at += 1,
            }
        }
    }

    /// Waits for the end of an older generation.
    fn remove_older(&mut self, at: usize) {
        let Older { platform: ended, .. } = self.older.remove(at);
        let watches = ended.stats();
        match catch_unwind(AssertUnwindSafe(|| ended.wait())) {
            Ok(outcome) => outcome.errors.iter().for_each(|error| warn!(%error, "a worker ended")),
            Err(panic) => self.panic = self.panic.take().or(Some(panic)),
        }
        self.observed.remove(&watches);
        sys::trim_memory();
    }

    /// Whether the current generation has ended.
    pub fn is_finished(&self) -> bool {
        self.current.is_finished()
    }

    /// Whether older generations still serve clients.
    pub fn has_older(&self) -> bool {
        self.older.iter().any(|older| !older.platform.is_finished())
    }

    fn all(&self) -> impl Iterator<Item = &Platform> {
        std::iter::once(&self.current).chain(self.older.iter().map(|older| &older.platform))
    }

    /// Number of client connections of all generations.
    pub fn client_connections(&self) -> u64 {
        self.all().map(|platform| platform.snapshot().totals.connections_open).sum()
    }

    /// Drains all generations: no new clients, and the end when all clients are served.
    pub fn drain(&self, timeout: Duration) {
        self.all().for_each(|platform| platform.drain(timeout));
    }

    /// Hands no more clients to the new process. A worker that drains keeps a client that comes back.
    pub fn end_handover(&self) {
        self.new_process.iter().for_each(NewProcess::end_handover);
    }

    /// Stops all generations at once.
    pub fn stop(&self) {
        self.all().for_each(Platform::stop);
    }

    /// Waits for the end of the current generation. Returns its totals, with those of the older ones, and the state of
    /// its programs. Waits for a process that replaces this one until `must_end`.
    pub fn wait(mut self, must_end: impl FnMut() -> bool) -> (ExitReport, Vec<Arc<State>>) {
        while !self.older.is_empty() {
            // It serves no client, but may still write a snapshot.
            self.remove_older(0);
        }
        let services = self.current.services().iter().filter(|service| service.is_first_of_program());
        let states = services.map(|service| Arc::clone(service.state())).collect();
        let mut outcome = self.current.wait();
        if let Some(new_process) = self.new_process {
            new_process.finish(must_end);
        }
        if let Some(launcher) = self.launcher {
            launcher.finish();
        }
        if let Some(responses) = self.responses {
            responses.finish(RESPONSE_TIME_MAX);
        }
        if let Some(panic) = self.panic {
            std::panic::resume_unwind(panic);
        }
        for (name, totals) in &mut outcome.services {
            if let Some(earlier) = self.observed.ended_totals(name) {
                totals.merge(&earlier.totals);
                outcome.totals.merge(&earlier.totals);
            }
        }
        (outcome, states)
    }
}

fn log_addresses(platform: &Platform, workers: usize) {
    for service in platform.services() {
        for (channel, address) in service.addresses() {
            let process = service.name();
            let address = descriptors::shown(address.clone());
            info!(process, channel, %address, io = platform.io(), workers, "listening");
        }
    }
}

/// Describes the backend lists that could not be read and keep their old contents.
fn stale_lists(platform: &Platform, opened: &[Vec<DiscoveredChannel>]) -> Vec<String> {
    let services = platform.services().iter().zip(opened);
    let each =
        services.flat_map(|(service, opened)| opened.iter().map(move |opened| (service.name(), opened)));
    let stale = each.filter_map(|(service, opened)| Some((service, opened, opened.kept.as_ref()?)));
    let described = stale.map(|(service, opened, error)| {
        let (channel, source) = (opened.channel(), opened.reader().source());
        warn!(service, channel, %source, error, "cannot read the backend list; it keeps its old contents");
        format!("the backend list of {service}.{channel} keeps its old contents: {error}")
    });
    described.collect()
}

/// Names of changed settings that take effect at the next start.
fn only_at_start(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let changed = [
        ("io", before.io != after.io),
        ("shm", before.shm != after.shm),
        ("admin.listen", before.admin != after.admin),
        ("admin.token_file", before.admin_token_file.is_some() && after.admin_token_file.is_none()),
        (
            "admin.read_token_file",
            before.admin_read_token_file.is_some() && after.admin_read_token_file.is_none(),
        ),
        ("user", before.user.as_ref().map(User::ids) != after.user.as_ref().map(User::ids)),
        ("perf_map", before.perf_map != after.perf_map),
        ("sandbox", before.sandbox != after.sandbox),
        ("log", before.log != after.log),
        ("backend_state_file", before.backend_state_file != after.backend_state_file),
    ];
    changed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name).collect()
}

/// Writes the dictionaries that are kept for a new `reader`, on a thread of its own, and waits for that.
///
/// Errors: not all could be written; the thread cannot be started; this process must exit.
fn save_snapshots(
    platform: &Platform,
    reader: &str,
    observed: &ObservedState,
    keep_alive: &mut KeepAlive,
    must_exit: &mut dyn FnMut() -> bool,
) -> Result<(), String> {
    let saving = thread::Builder::new().name("flick-snapshots".to_owned()).spawn(platform.snapshot_save());
    let saving = saving.map_err(|error| format!("cannot start a thread for snapshots: {error}"))?;
    while !saving.is_finished() {
        if must_exit() {
            return Err("flick ends".to_owned());
        }
        keep_alive.send_if_due(|| observed.alive().is_ok());
        thread::sleep(THREAD_POLL_INTERVAL);
    }
    match saving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        0 => Ok(()),
        unsaved => Err(format!("cannot write {unsaved} snapshots for the new {reader}; see the log")),
    }
}
