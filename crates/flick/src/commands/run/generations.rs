//! The services that run now, and those before them that still serve somebody.
//! Promises: a reload happens whole or not at all: what cannot be read, compiled or opened changes nothing and says why;
//! at most [`GENERATIONS_MAX`] older generations are there, beyond which the oldest is told to end at once.
//! Refuses: settings that belong to the process: they take effect at the next start, and the log and the answer say which.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use flick_admin::Address;
use flick_net::IoKind;
use flick_runtime::memory::Part;
use flick_runtime::{Outcome, Platform, State};
use signal_hook::consts::SIGUSR1;
use tracing::{info, warn};

use super::backends::Opened;
use super::prepare::Prepared;
use super::pulse::Watchdog;
use super::seen::Seen;
use super::{admin, backends, not_started, open_files};
use crate::access::AccessLog;
use crate::confine::{InForce, User};
use crate::failure::Failure;
use crate::holding::Held;
use crate::settings::{RunFlags, Settings};
use crate::sources::{Known, Watchers};
use crate::sys;
use crate::takeover::{Bequest, Legacy, Successor};

/// Older generations that may still serve somebody.
const GENERATIONS_MAX: usize = 8;

/// What a reload compiles with: a quarter of a core that somebody who serves wants all of.
const COMPILER_NICE: i32 = 5;

/// How long whoever asked for an upgrade may take to hear that it worked, when nobody else is left.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// All generations of the services.
pub struct Generations {
    flags: RunFlags,
    settings: Settings,
    current: Platform,
    older: Vec<Older>,
    /// Reads lists of backends for the current one.
    watchers: Watchers,
    /// What they read last.
    known: Known,
    seen: Arc<Seen>,
    /// Its dictionaries, as far as memory goes.
    dicts: Vec<Part>,
    /// What the process has given up, once it has.
    in_force: Option<InForce>,
    /// Where the current one keeps dictionaries.
    held: Held,
    files: Vec<PathBuf>,
    /// Programs that the settings named when a reload failed.
    wanted: Vec<PathBuf>,
    read_at: SystemTime,
    admin: Option<flick_admin::Server>,
    /// Where the process before had its own, if that is elsewhere.
    admin_before: Option<Address>,
    /// What the admin side was asked before another process had its address: to have that process, for one.
    answers: Option<flick_admin::Answers>,
    /// This binary, as it was called when it was started: a new one may lie there since.
    binary: Option<PathBuf>,
    /// The process that has our place.
    successor: Option<Successor>,
    /// The first panic of an older generation, which ends with the process.
    panic: Option<Box<dyn std::any::Any + Send>>,
    watchdog: Watchdog,
    /// Ends last: it writes what all have noted.
    access: AccessLog,
}

/// A generation that was replaced.
struct Older {
    platform: Platform,
    /// Its clients have backends that may still leave their lists.
    _lists: Watchers,
}

impl Generations {
    /// Starts the first.
    ///
    /// Errors: what cannot be opened.
    pub fn start(
        flags: RunFlags,
        prepared: Prepared,
        legacy: Legacy,
        seen: Arc<Seen>,
        mut access: AccessLog,
    ) -> Result<Self, Failure> {
        let Prepared { settings, services, modules, opened, dicts, files, begun, .. } = prepared;
        let Legacy { estate, held, admin: inherited } = legacy;
        let log = access.open(settings.access_log.as_ref(), settings.user.as_ref())?;
        access.write_to(log);
        let binary = std::env::current_exe().ok();
        let current = Platform::start_with(services, estate).map_err(not_started)?;
        let known = Known::of(opened.iter().flatten().map(Opened::reader));
        let watchers = backends::watch(&current, opened)?;
        seen.show(current.watches(), &modules);
        let watchdog = Watchdog::new(settings.hang_after);
        let (older, answers, successor, panic) = (Vec::new(), None, None, None);
        // A socket that is not wanted any more is closed here, and its file goes when this process has the other's place.
        let before = inherited.socket.as_ref().map(|(at, _)| at.clone());
        let admin_before = before.filter(|at| settings.admin.as_ref() != Some(at));
        let admin = admin::open(&settings, inherited, Arc::clone(&seen))?;
        Ok(Self {
            flags,
            settings,
            current,
            older,
            watchers,
            known,
            seen,
            dicts,
            in_force: None,
            held,
            files,
            wanted: Vec::new(),
            read_at: begun,
            admin,
            admin_before,
            answers,
            binary,
            successor,
            panic,
            watchdog,
            access,
        })
    }

    /// From here on answers on the admin side; the process before has ended its own.
    pub fn serve_admin(&mut self) {
        if let Some(Address::Unix(path)) = self.admin_before.take() {
            // Somebody may have removed it before us, which is what we want.
            let _ = std::fs::remove_file(path);
        }
        self.admin.iter_mut().for_each(flick_admin::Server::serve);
    }

    /// Says where clients can connect.
    pub fn tell_addresses(&self) {
        tell_addresses(&self.current, self.settings.workers);
    }

    /// The settings that hold now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When the files were last begun to be read.
    pub fn read_at(&self) -> SystemTime {
        self.read_at
    }

    /// The files that the services that run now were made of, and those that were named when the last reload failed.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().chain(&self.wanted).cloned().collect()
    }

    /// Reads everything again and goes on with it. Says what has changed, in words.
    ///
    /// Errors: why nothing has changed.
    pub fn reload(&mut self) -> Result<String, String> {
        let outcome = self.try_reload().map_err(|failure| match &self.in_force {
            Some(in_force) => in_force.explain(failure.text()),
            None => failure.text(),
        });
        match &outcome {
            Ok(told) => {
                self.wanted.clear();
                info!(generation = self.seen.generation(), "reloaded: {told}");
            }
            Err(why) => {
                let named = Settings::resolve(self.flags.clone());
                self.wanted = named.map_or_else(
                    |_| Vec::new(),
                    |settings| settings.entries.into_iter().map(|own| own.program).collect(),
                );
                self.seen.failed();
                warn!("not reloaded, everything goes on as before: {why}");
            }
        }
        outcome
    }

    /// What the process has given up.
    pub fn confined(&mut self, in_force: InForce) {
        self.seen.confined(in_force.line());
        self.in_force = Some(in_force);
    }

    fn try_reload(&mut self) -> Result<String, Failure> {
        self.read_at = SystemTime::now();
        let mut prepared = self.prepare()?;
        // Listening sockets that are taken over fit one kind of driver only.
        let io = IoKind::from_str(self.current.io()).unwrap_or(self.settings.io);
        prepared.services.iter_mut().for_each(|service| service.config.io = io);
        let Prepared { mut settings, services, modules, opened, dicts, files, .. } = prepared;
        // A list that neither its source gives nor the services know that run now would begin empty.
        backends::complete(&opened)?;
        let is_same_file = settings.admin_token_file == self.settings.admin_token_file;
        let known = self.admin.as_ref().filter(|_| is_same_file).and_then(flick_admin::Server::token);
        let token = admin::token(&settings, known)?;
        open_files::provide(&services)?;
        let held = Held::take(&services, &self.held)?;
        let estate = self
            .current
            .estate()
            .map_err(|error| Failure::failed(format!("cannot take the listening sockets over: {error}")))?;
        let log = self.access.open(settings.access_log.as_ref(), settings.user.as_ref())?;
        let next = Platform::start_with(services, estate).map_err(not_started)?;
        self.access.write_to(log);
        let known = Known::of(opened.iter().flatten().map(Opened::reader));
        let kept = kept(&next, &opened);
        let mut before_lists = Watchers::default();
        match backends::watch(&next, opened) {
            Ok(watchers) => {
                (before_lists, self.known) = (std::mem::replace(&mut self.watchers, watchers), known)
            }
            Err(failure) => warn!("lists of backends stay as they are: {}", failure.text()),
        }
        let later = only_at_start(&self.settings, &settings).into_iter().map(|name| {
            warn!(setting = name, "takes effect at the next start only");
            format!("`{name}` takes effect at the next start only")
        });
        let told: Vec<String> = std::iter::once(self.changes(&next)).chain(kept).chain(later).collect();
        let told = told.join("; ");
        tell_addresses(&next, settings.workers);
        let deadline = settings.reload_deadline;
        // Who is being replaced already hands over to the newest before the current one begins to leave.
        self.older.iter_mut().for_each(|older| older.platform.replace(&next, deadline));
        self.seen.show(next.watches(), &modules);
        let mut before = std::mem::replace(&mut self.current, next);
        before.replace(&self.current, deadline);
        self.older.push(Older { platform: before, _lists: before_lists });
        // The one before writes nothing any more: what it kept elsewhere is free.
        self.held = held;
        self.watchdog = Watchdog::new(settings.hang_after);
        if self.older.len() > GENERATIONS_MAX {
            warn!("the oldest of {} generations is told to end at once", self.older.len());
            self.older[0].platform.drain(Duration::ZERO);
        }
        if let (Some(admin), Some(token)) = (&self.admin, token) {
            admin.set_token(token);
        }
        // What holds from the next start on does not hold before, where a new process is told what this one has.
        settings.admin = self.settings.admin.take();
        settings.admin_token_file = settings.admin_token_file.or(self.settings.admin_token_file.take());
        (self.settings, self.files, self.dicts) = (settings, files, dicts);
        Ok(told)
    }

    /// Reads and compiles what comes next, behind the work of what runs: on a thread of its own, because a priority that was
    /// lowered is not had again. Nothing of what runs is touched, so that not even a broken invariant of the compiler can harm it.
    fn prepare(&self) -> Result<Prepared, Failure> {
        let (flags, port, known, there) = (&self.flags, self.access.port(), &self.known, &self.dicts);
        let prepare = || {
            // Without the right to it the priority is what it was.
            let _ = rustix::process::nice(COMPILER_NICE);
            Prepared::new(flags, &port, known, there)
        };
        thread::scope(|scope| {
            let compiler =
                thread::Builder::new().name("flick-compiler".to_owned()).spawn_scoped(scope, prepare);
            let compiler = compiler
                .map_err(|error| Failure::failed(format!("cannot start a thread to compile in: {error}")))?;
            compiler.join().map_err(|_| {
                Failure::failed("the compiler broke an invariant of its own; standard error says which")
            })?
        })
    }

    /// Starts the binary that lies where this one did, with the same arguments; it takes the listening sockets and the clients
    /// over. Says which process it is. The new process is not waited for any more once this one is to end.
    ///
    /// Errors: why everything goes on as before.
    pub fn upgrade(&mut self, is_to_end: &mut dyn FnMut() -> bool) -> Result<String, String> {
        let outcome = self.try_upgrade(is_to_end);
        match &outcome {
            Ok(told) => info!("upgraded: {told}"),
            Err(why) => warn!("not upgraded, everything goes on as before: {why}"),
        }
        outcome
    }

    fn try_upgrade(&mut self, is_to_end: &mut dyn FnMut() -> bool) -> Result<String, String> {
        if self.in_force.as_ref().is_some_and(InForce::starts_nothing) {
            let why = "this process is confined strictly and starts no other; end it and start it anew";
            return Err(why.to_owned());
        }
        let Some(binary) = &self.binary else { return Err("nobody knows where the binary lies".to_owned()) };
        let estate = self.current.estate();
        let estate = estate.map_err(|error| format!("cannot pass the listening sockets on: {error}"))?;
        let unsaved = self.current.save_snapshots();
        if unsaved > 0 {
            return Err(format!(
                "snapshots cannot be written for the new process: {unsaved}; the log says why"
            ));
        }
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let admin = self.settings.admin.as_ref().zip(self.admin.as_ref());
        let bequest = Bequest { estate: &estate, held: &self.held, admin };
        let successor = Successor::start(binary, &arguments, &bequest, is_to_end)?;
        // Who asks from here on is heard by the new process, which listens on the same socket.
        self.answers = self.admin.take().map(flick_admin::Server::give_away);
        let deadline = self.settings.reload_deadline;
        for platform in self.older.iter_mut().map(|older| &mut older.platform).chain([&mut self.current]) {
            platform.give_away(deadline, |service| successor.heir_of(service));
        }
        // The new process has the same hold, and it alone writes there: whoever is still served here must not keep others out
        // when that one has ended.
        self.held = Held::default();
        let told = format!("process {}", successor.pid());
        self.successor = Some(successor);
        Ok(told)
    }

    /// The process that has this one's place.
    pub fn successor(&self) -> Option<u32> {
        self.successor.as_ref().map(Successor::pid)
    }

    /// Passes a signal on to the process that has this one's place, if there is one.
    pub fn pass_on(&self, signal: i32) {
        self.successor.iter().for_each(|successor| successor.signal(signal));
    }

    /// The files of logs may have been moved away; whoever has this process's place writes there, too.
    pub fn reopen_logs(&mut self) {
        self.pass_on(SIGUSR1);
        self.access.reopen(self.settings.user.as_ref());
    }

    /// Takes in a client from the process whose place this one took.
    pub fn take_in(&self, service: &str, worker: usize, socket: OwnedFd) {
        if self.current.take_in(service, worker, socket).is_err() {
            warn!(service, "a client of the process before this one finds no service");
        }
    }

    /// What is different with these services, in words.
    fn changes(&self, next: &Platform) -> String {
        let at = |platform: &Platform| -> Vec<String> {
            let each = platform.services().iter().flat_map(|service| {
                service
                    .addresses()
                    .iter()
                    .map(move |(channel, at)| format!("{}.{channel} at {at}", service.name()))
            });
            each.collect()
        };
        let (before, after) = (at(&self.current), at(next));
        let listed = |what: &str, these: &[String], others: &[String]| -> Option<String> {
            let new: Vec<&str> =
                these.iter().filter(|one| !others.contains(one)).map(String::as_str).collect();
            (!new.is_empty()).then(|| format!("{what} {}", new.join(", ")))
        };
        let differences = [listed("opened", &after, &before), listed("closed", &before, &after)];
        let services = next.services().len();
        let services = if services == 1 { "1 service".to_owned() } else { format!("{services} services") };
        let parts: Vec<String> = std::iter::once(services).chain(differences.into_iter().flatten()).collect();
        parts.join("; ")
    }

    /// When [`Generations::look_after_workers`] is due, if it ever is.
    pub fn look_due_in(&self) -> Option<Duration> {
        self.watchdog.due_in()
    }

    /// Looks whether workers hang, if it is time for that, and has those turn that sleep.
    pub fn look_after_workers(&mut self) {
        if !self.watchdog.is_due() {
            return;
        }
        let services = self.current.services();
        let all = services.iter().flat_map(|service| {
            service.turns().into_iter().enumerate().map(move |(worker, turns)| (service, worker, turns))
        });
        let all: Vec<_> = all.collect();
        let seen = self.watchdog.look(&all.iter().map(|(_, _, turns)| *turns).collect::<Vec<_>>());
        for at in seen.rouse {
            all[at].0.rouse(all[at].1);
        }
        let hung = seen.hung.iter().map(|at| (all[*at].0.name().to_owned(), all[*at].1));
        self.seen.hang(hung.collect());
    }

    /// Sees older generations out that have ended.
    pub fn reap(&mut self) {
        let mut at = 0;
        while at < self.older.len() {
            if !self.older[at].platform.is_finished() {
                at += 1;
                continue;
            }
            let Older { platform: ended, .. } = self.older.remove(at);
            let watches = ended.watches();
            match catch_unwind(AssertUnwindSafe(|| ended.wait())) {
                Ok(outcome) => outcome.errors.iter().for_each(|error| warn!(%error, "a worker ended")),
                Err(panic) => self.panic = self.panic.take().or(Some(panic)),
            }
            self.seen.forget(&watches);
            sys::give_memory_back();
        }
    }

    /// Whether the services that run now have ended.
    pub fn is_finished(&self) -> bool {
        self.current.is_finished()
    }

    /// Whether older ones still serve somebody.
    pub fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Platform> {
        std::iter::once(&self.current).chain(self.older.iter().map(|older| &older.platform))
    }

    /// Clients, of all generations.
    pub fn sessions_open(&self) -> u64 {
        self.all().map(|platform| platform.metrics().totals.sessions_open).sum()
    }

    /// Takes no new clients, and ends all generations when their clients are served.
    pub fn drain(&self, deadline: Duration) {
        self.all().for_each(|platform| platform.drain(deadline));
    }

    /// Ends all at once.
    pub fn stop(&self) {
        self.all().for_each(Platform::stop);
    }

    /// The end of the current generation, with what those before it had counted; and what its programs share.
    pub fn wait(self) -> (Outcome, Vec<Arc<State>>) {
        let services = self.current.services().iter().filter(|service| service.is_first_of_program());
        let states = services.map(|service| Arc::clone(service.state())).collect();
        let mut outcome = self.current.wait();
        if let Some(successor) = self.successor {
            successor.finish();
        }
        if let Some(answers) = self.answers {
            answers.finish(ANSWER_TIME_MAX);
        }
        if let Some(panic) = self.panic {
            std::panic::resume_unwind(panic);
        }
        for (name, totals) in &mut outcome.services {
            if let Some(earlier) = self.seen.earlier(name) {
                totals.merge(&earlier.totals);
                outcome.totals.merge(&earlier.totals);
            }
        }
        (outcome, states)
    }
}

fn tell_addresses(platform: &Platform, workers: usize) {
    for service in platform.services() {
        for (channel, address) in service.addresses() {
            let process = service.name();
            info!(process, channel, %address, io = platform.io(), workers, "listening");
        }
    }
}

/// Lists of backends that could not be read and begin as they were, in words.
fn kept(platform: &Platform, opened: &[Vec<Opened>]) -> Vec<String> {
    let services = platform.services().iter().zip(opened);
    let each =
        services.flat_map(|(service, opened)| opened.iter().map(move |opened| (service.name(), opened)));
    let kept = each.filter_map(|(service, opened)| Some((service, opened, opened.kept.as_ref()?)));
    let told = kept.map(|(service, opened, error)| {
        let (channel, source) = (opened.channel(), opened.reader().source());
        warn!(service, channel, %source, error, "the list of backends cannot be read and begins as it was");
        format!("the list of {service}.{channel} stays as it was: {error}")
    });
    told.collect()
}

/// Names of settings that belong to the process and have changed.
fn only_at_start(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let changed = [
        ("io", before.io != after.io),
        ("admin.listen", before.admin != after.admin),
        ("admin.token_file", before.admin_token_file.is_some() && after.admin_token_file.is_none()),
        ("user", before.user.as_ref().map(User::ids) != after.user.as_ref().map(User::ids)),
        ("perf_map", before.perf_map != after.perf_map),
        ("confine", before.confine != after.confine),
        ("log", before.log != after.log),
    ];
    changed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name).collect()
}
