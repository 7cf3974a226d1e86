//! Running services: their threads, and the handle the control thread holds on them.
//! Promises: everything is open when [`Platform::start_services`] returns, or nothing is; one service on its own runs
//! on its threads as if there were no others.
//! Start reading at [`Platform::start_services`], then `thread.rs` (the parts of a thread) and `thread/scheduler.rs`
//! (how services share it).

mod handoff;
pub mod memory;
pub mod open_files;
mod service;
mod shared_addresses;
mod stats;

pub use handoff::Handoff;
pub use service::{BackendSetHandle, RunningService, ServiceConfig};
pub use stats::{ServiceStats, StatsSnapshot, WorkerTotals};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flick_abi::{Dict, Engine, Program};
use flick_net::{Endpoint, ListenSocket, ListenSockets, monotonic_ns};

use crate::config::PlatformConfig;
use crate::limits::{SERVICES_MAX, SILENT_MS};
use crate::merge::Hub;
use crate::observe::counters::Totals;
use crate::observe::edge_counters::EdgeCounters;
use crate::setup::{Setup, StartError};
use crate::shared::Shared;
use crate::shared::handoff::{HandedConn, Successor, SuccessorWorkers};
use crate::state::snapshots::Keeper;
use crate::state::{Origin, State};
use crate::thread::scheduler::WorkerExit;
use crate::thread::{ServicePart, SharedListenerPart, ThreadPlan};
use crate::worker::WorkerConfig;
use shared_addresses::SharedAddress;
use stats::WorkerStats;

/// Result of a platform that has ended: its last counters and its errors.
#[derive(Debug)]
pub struct ExitReport {
    /// The last counters, of all services.
    pub totals: Totals,
    /// By service.
    pub services: Vec<(String, Totals)>,
    /// Workers that ended by an error of the system, with what it said.
    pub errors: Vec<std::io::Error>,
    /// By service: the first backend that a session of a relay has lost before its client's end, and why.
    pub lost_backends: Vec<(String, Endpoint, String)>,
    /// Kept dictionaries that could not be written at the end.
    pub unsaved: usize,
}

/// Services that run together, with their threads.
pub struct Platform {
    services: Vec<RunningService>,
    keepers: Vec<(usize, Keeper)>,
    /// Threads of keepers that have left, and may still be writing.
    leaving: Vec<JoinHandle<usize>>,
    threads: Vec<JoinHandle<Vec<WorkerExit>>>,
    io: &'static str,
}

/// Services whose state is there, before an address is opened and a worker runs.
pub struct LoadedPlatform {
    platform: Platform,
    /// Of the first service: what is the same for all.
    config: PlatformConfig,
    handoff: Handoff,
}

/// Listening sockets that are open before the threads start.
struct Opened {
    /// By service: the sockets of its own addresses.
    own: Vec<Vec<ListenSockets>>,
    shared: Vec<(SharedAddress, ListenSockets)>,
}

impl LoadedPlatform {
    /// Opens the addresses and starts the workers. Snapshots are written from [`Platform::keep_snapshots`] on.
    ///
    /// Errors: as [`Platform::start_services`]; no snapshot has changed then.
    pub fn start(self) -> Result<Platform, StartError> {
        let Self { mut platform, config, handoff } = self;
        let workers = config.workers.max(1);
        let mut opened = platform.open(workers, config.shares_free_ports, handoff)?;
        let mut built = Vec::new();
        for index in 0..workers {
            let plan = platform.plan(index, workers, &config, &mut opened);
            match platform.build_thread(index, plan) {
                Ok(begin) => built.push(begin),
                Err(error) => {
                    // Those that are built end. They have accepted no client.
                    drop(built);
                    platform.leave_snapshots();
                    platform.wait();
                    return Err(StartError::Io { doing: format!("start worker {index}"), error });
                }
            }
        }
        // A thread that has panicked is noticed at its end.
        for begin in built {
            let _ = begin.send(());
        }
        Ok(platform)
    }
}

impl Platform {
    /// Checks the addresses of services, as a start does before it opens any.
    ///
    /// Errors: `Binding`.
    pub fn check(services: &[ServiceConfig]) -> Result<(), StartError> {
        let setup = |service: &ServiceConfig| {
            Setup::new(Arc::clone(&service.program), Arc::clone(&service.engine), &service.config)
        };
        let setups = services.iter().map(setup).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = services.iter().map(|service| service.name.clone()).collect();
        let shares_free_ports = services.first().is_some_and(|service| service.config.shares_free_ports);
        shared_addresses::shared(&setups.iter().collect::<Vec<_>>(), &names, shares_free_ports).map(drop)
    }

    /// Starts one service: see [`Platform::start_services`].
    pub fn start(
        program: Arc<Program>,
        engine: Arc<dyn Engine>,
        config: PlatformConfig,
    ) -> Result<Self, StartError> {
        let name = program.name.clone();
        Self::start_services(vec![ServiceConfig { name, program, engine, config, group: 0 }])
    }

    /// Binds, opens and starts everything; when this returns, clients can connect.
    ///
    /// Errors: see [`StartError`]; nothing is left running then.
    /// Panics: there is no service, or services of one group do not have the same dictionaries.
    pub fn start_services(services: Vec<ServiceConfig>) -> Result<Self, StartError> {
        Self::start_with(services, Handoff::default())
    }

    /// Starts services as the successor of another platform: takes over its listening sockets where the addresses are
    /// the same, and the state that its programs declare alike.
    ///
    /// Errors and panics as [`Platform::start_services`]; the other platform goes on then, with all clients.
    pub fn start_with(services: Vec<ServiceConfig>, handoff: Handoff) -> Result<Self, StartError> {
        let platform = Self::load(services, handoff)?.start()?;
        platform.keep_snapshots([]);
        Ok(platform)
    }

    /// The first half of [`Platform::start_with`]: reads back the state that the programs keep, which takes seconds for
    /// gigabytes, and opens nothing that clients or other processes notice.
    pub fn load(mut services: Vec<ServiceConfig>, handoff: Handoff) -> Result<LoadedPlatform, StartError> {
        if services.len() > SERVICES_MAX {
            return Err(StartError::Binding(format!(
                "{} services are too many for one process; at most {SERVICES_MAX} work",
                services.len()
            )));
        }
        let config = services.first().expect("a platform has a service").config.clone();
        for service in &mut services {
            service.config.limits.inherited_connections = handoff.clients_of(&service.name);
        }
        let (running, keepers) = bind(services, config.workers.max(1), &handoff)?;
        let platform =
            Self { services: running, keepers, leaving: Vec::new(), threads: Vec::new(), io: "none" };
        Ok(LoadedPlatform { platform, config, handoff })
    }

    /// Opens every address, those of several services once.
    fn open(
        &mut self,
        workers: usize,
        shares_free_ports: bool,
        mut handoff: Handoff,
    ) -> Result<Opened, StartError> {
        let mut open = |at: &Endpoint, whose: &Shared| {
            let opened = handoff.listen(at, workers).and_then(|opened| {
                whose.kept().push((at.clone(), opened.duplicate(0)?));
                Ok(opened)
            });
            opened.map_err(|error| StartError::Io { doing: format!("listen on {at}"), error })
        };
        let setups: Vec<&Setup> = self.services.iter().map(|service| &*service.setup).collect();
        let names: Vec<String> = self.services.iter().map(|service| service.name.clone()).collect();
        let shareds: Vec<Arc<Shared>> =
            self.services.iter().map(|service| Arc::clone(&service.shared)).collect();
        let shared = shared_addresses::shared(&setups, &names, shares_free_ports)?;
        let shared = shared.into_iter().map(|shared| {
            let first = shared.services.first().map_or(0, |first| usize::from(*first));
            let sockets = open(&shared.at, &shareds[first])?;
            Ok((shared, sockets))
        });
        let shared = shared.collect::<Result<Vec<_>, StartError>>()?;
        let mut own = Vec::new();
        for service in &mut self.services {
            let mut sockets = Vec::new();
            for (channel, at) in &service.setup.listen {
                let name = service.setup.program.channels[*channel].name.clone();
                if let Some((_, sockets)) = shared.iter().find(|(known, _)| known.at == *at) {
                    service.addresses.push((name, sockets.local_addr().clone()));
                    continue;
                }
                let opened = open(at, &service.shared)?;
                service.addresses.push((name, opened.local_addr().clone()));
                sockets.push(opened);
            }
            own.push(sockets);
        }
        Ok(Opened { own, shared })
    }

    /// Plans thread number `index`: the worker of each service on it, with its sockets, and its shared listeners.
    fn plan(
        &mut self,
        index: usize,
        workers: usize,
        config: &PlatformConfig,
        opened: &mut Opened,
    ) -> ThreadPlan {
        let mut parts = Vec::new();
        for (service, sockets) in self.services.iter_mut().zip(&mut opened.own) {
            let backend_counters = Arc::new(service.setup.backend_counters());
            let edge_counters = Arc::new(EdgeCounters::of(&service.setup.program));
            let watch = WorkerStats { counters: Arc::default(), backend_counters, edge_counters };
            service.workers.push(watch.clone());
            let WorkerStats { counters, backend_counters, edge_counters } = watch;
            let config = WorkerConfig {
                service: service.name.clone(),
                setup: Arc::clone(&service.setup),
                shared: Arc::clone(&service.shared),
                state: Arc::clone(&service.state),
                counters,
                backend_counters,
                edge_counters,
                workers,
                index,
                hub: service.hub.clone(),
                access: service
                    .access
                    .as_ref()
                    .map(|access| access.sink_of(&service.name, index, &service.setup.protocol().log_fields)),
                seed: 0x9e37_79b9_7f4a_7c15 ^ ((index as u64) << 32),
                time_slices: true,
            };
            let sockets = sockets.iter_mut().flat_map(|sockets| share(sockets, workers - index)).collect();
            let (name, group) = (service.name.clone(), Arc::clone(&service.group));
            parts.push(ServicePart { name, config, sockets, group, sweeps: service.is_first_of_group });
        }
        let services = &self.services;
        let shared_listener = |(shared, sockets): &mut (SharedAddress, ListenSockets)| {
            let taken = share(sockets, workers - index);
            let idle = |service: &u16| services[usize::from(*service)].setup.timeouts.idle(false);
            let idle = shared.services.iter().filter_map(idle).max();
            let part = |socket| SharedListenerPart {
                socket,
                services: shared.services.clone(),
                whose: shared.whose.clone(),
                silent_ns: idle.unwrap_or(Duration::from_millis(SILENT_MS)).as_nanos() as u64,
            };
            taken.into_iter().map(part).collect::<Vec<_>>()
        };
        let shared_listeners = opened.shared.iter_mut().flat_map(shared_listener).collect();
        ThreadPlan {
            parts,
            shared_listeners,
            io: config.io,
            upgrades_to_shm: config.upgrades_to_shm,
            core: config.pin.then_some(index),
        }
    }

    /// Starts a thread, which builds its part and waits. Returns what lets it run; dropped, that ends it.
    fn build_thread(&mut self, index: usize, plan: ThreadPlan) -> std::io::Result<Sender<()>> {
        let ((ready, started), (begin, begins)) = (channel(), channel());
        let thread = std::thread::Builder::new().name(format!("flick-{index}"));
        let thread = thread.spawn(move || plan.run(&ready, &begins))?;
        self.threads.push(thread);
        let (handles, io) =
            started.recv().map_err(|_| std::io::Error::other("the worker ended before it began"))??;
        for (service, handle) in self.services.iter_mut().zip(handles) {
            service.wakers.push(handle.waker);
            service.readers.push(handle.reader);
        }
        self.io = io;
        Ok(begin)
    }

    /// The services, in the order in which they were given.
    pub fn services(&self) -> &[RunningService] {
        &self.services
    }

    /// Returns the addresses that clients can connect to, by channel, service after service.
    pub fn addresses(&self) -> Vec<(String, Endpoint)> {
        self.services.iter().flat_map(|service| service.addresses.iter().cloned()).collect()
    }

    /// Returns the state that the code of the first program shares: its counters and dictionaries.
    pub fn state(&self) -> &Arc<State> {
        &self.services[0].state
    }

    /// Returns the name of the kernel interface that carries the bytes.
    pub fn io(&self) -> &'static str {
        self.io
    }

    /// Handles on all that is counted, for other threads: one for each service.
    pub fn stats(&self) -> Vec<ServiceStats> {
        self.services.iter().map(|service| service.stats(self.io)).collect()
    }

    /// The counters now, of all services together.
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot::of(&self.stats())
    }

    /// Asks all services to take no new clients and to end when the present ones are served, at `deadline` at latest.
    pub fn drain(&self, deadline: Duration) {
        self.services.iter().for_each(|service| service.drain(deadline));
    }

    /// Returns what the platform hands over to its successor. The platform itself does not change.
    ///
    /// Errors: `EMFILE` and other errors of duplicating sockets.
    pub fn handoff(&self) -> std::io::Result<Handoff> {
        Handoff::of(&self.services)
    }

    /// Hands its clients over to `next`, each when it has no request in flight, and ends when the rest is served, or at
    /// `deadline`. A predecessor that is being replaced already hands over to `next` from now on.
    pub fn replace(&mut self, next: &Platform, deadline: Duration) {
        self.leave_snapshots();
        for service in &self.services {
            let successor = next.services.iter().find(|other| other.name == service.name);
            let successor = successor.filter(|other| other.succeeds(service));
            match successor.or_else(|| next.services.iter().find(|other| other.succeeds(service))) {
                Some(successor) => {
                    service.replace(deadline, Arc::new(SuccessorWorkers(successor.shared.intakes())))
                }
                None => service.drain(deadline),
            }
        }
    }

    /// As [`Platform::replace`], by another process, to which `successor_of` gives the clients of a service.
    pub fn hand_off(&mut self, deadline: Duration, successor_of: impl Fn(&str) -> Arc<dyn Successor>) {
        self.leave_snapshots();
        for service in &self.services {
            let give_away = |(_, sockets): &(Endpoint, ListenSockets)| {
                sockets.iter().for_each(ListenSocket::release_file);
            };
            service.shared.kept().iter().for_each(give_away);
            match service.hub {
                None => service.replace(deadline, successor_of(&service.name)),
                Some(_) => service.drain(deadline),
            }
        }
    }

    /// Notes that this process has changed its user; see [`ListenSocket::renew_user`]. Workers do the same with the
    /// sockets that they have opened.
    ///
    /// Errors: those of listen(2).
    pub fn renew_user(&self) -> std::io::Result<()> {
        self.services.iter().try_for_each(|service| {
            let kept = service.shared.kept();
            service.wakers.iter().for_each(flick_net::Waker::wake);
            kept.iter().flat_map(|(_, sockets)| sockets.iter()).try_for_each(ListenSocket::renew_user)
        })
    }

    /// Writes the snapshots of the dictionaries from now on, at their intervals and at the end; behind what those that
    /// this one has replaced are writing.
    pub fn keep_snapshots<'a>(&self, replaced: impl IntoIterator<Item = &'a Platform> + Clone) {
        for (service, keeper) in &self.keepers {
            let directory = &self.services[*service].state_dir;
            let before = replaced.clone().into_iter().flat_map(|platform| &platform.services);
            let before = before.filter(|service| service.state_dir == *directory);
            keeper.begin(before.map(|service| Arc::clone(&service.state)).collect());
        }
    }

    /// Leaves the snapshots of the dictionaries to the successor. Waits for no disk.
    fn leave_snapshots(&mut self) {
        self.leaving.extend(self.keepers.drain(..).map(|(_, keeper)| keeper.leave()));
    }

    /// Whether a snapshot is being written that was begun before it was left to the successor.
    pub fn is_leaving_snapshots(&self) -> bool {
        self.leaving.iter().any(|thread| !thread.is_finished())
    }

    /// Returns what writes the dictionaries that are kept, for a successor to read, and says how many it could not.
    pub fn snapshot_save(&self) -> impl FnOnce() -> usize + Send + use<> {
        let kept = self.keepers.iter().filter_map(|(service, _)| {
            let service = &self.services[*service];
            Some((Arc::clone(&service.state), service.state_dir.clone()?))
        });
        let kept: Vec<_> = kept.collect();
        move || kept.iter().map(|(state, directory)| state.save_snapshots(directory)).sum()
    }

    /// Whether a successor with these services reads back a file that this one writes, as it declares the dictionary
    /// differently, or in a service of another name.
    pub fn is_read_back_by(&self, services: &[ServiceConfig]) -> bool {
        services.iter().any(|next| {
            let before = self.services.iter().find(|service| service.name == next.name);
            let is_handed_over =
                |dict: &Dict| before.is_some_and(|before| before.state.dictionary_like(dict).is_some());
            let is_written = |dict: &Dict| {
                let mut beside =
                    self.services.iter().filter(|service| service.state_dir == next.config.state_dir);
                beside.any(|service| service.state.writes_file_of(dict))
            };
            next.config.state_dir.is_some()
                && next.program.dicts.iter().any(|dict| !is_handed_over(dict) && is_written(dict))
        })
    }

    /// Adopts a client of the process that this one succeeds, in the service of that name; without one, in the service
    /// at the address that the client connected to. Errors: the connection, where neither takes clients.
    pub fn adopt_client(&self, service: &str, worker: usize, socket: OwnedFd) -> Result<(), OwnedFd> {
        let known = self.services.iter().find(|known| known.name == service).or_else(|| {
            let address = flick_net::local_endpoint(&socket).ok()?;
            self.services.iter().find(|known| known.hub.is_none() && known.listens_at(&address))
        });
        let Some(service) = known else { return Err(socket) };
        // One of which the kernel has no address any more is over.
        let Some(peer) = flick_net::peer_addr(&socket) else { return Ok(()) };
        let count = service.shared.session_count();
        count.add();
        let client = HandedConn { socket, peer, counted: Some(count.clone()) };
        SuccessorWorkers(service.shared.intakes()).take(worker, client).map_err(|client| {
            count.give();
            client.socket
        })
    }

    /// Asks all services to end at once.
    pub fn stop(&self) {
        self.services.iter().for_each(RunningService::stop);
    }

    /// Whether all threads have ended.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all services have ended. A worker that panicked passes its panic on, when all others have ended too.
    pub fn wait(self) -> ExitReport {
        let (mut errors, mut panic) = (Vec::new(), None);
        for thread in self.threads {
            match thread.join() {
                Ok(ends) => {
                    for end in ends {
                        match end {
                            WorkerExit::Over(Ok(())) => {}
                            WorkerExit::Over(Err(error)) => errors.push(error),
                            WorkerExit::Panicked(what) => panic = Some(what),
                        }
                    }
                }
                Err(what) => panic = Some(what),
            }
        }
        self.services.iter().for_each(|service| service.state.end());
        // The workers have ended: nothing is written any more. Of a program that fell nothing is: who knows what its
        // dictionaries hold.
        let mut unsaved = 0;
        for (service, keeper) in self.keepers {
            if !self.services[service].group.has_fallen() {
                unsaved += keeper.finish();
            }
        }
        for thread in self.leaving {
            panic = panic.or(thread.join().err());
        }
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        let mut totals = Totals::default();
        let mut services = Vec::new();
        for service in &self.services {
            let mut of_service = Totals::default();
            for worker in &service.workers {
                of_service.absorb(&worker.counters);
                totals.absorb(&worker.counters);
            }
            services.push((service.name.clone(), of_service));
        }
        let lost_backends = self.services.iter().filter_map(RunningService::lost_backend).collect();
        ExitReport { totals, services, errors, lost_backends, unsaved }
    }
}

/// Takes the share of an address's sockets that the next of `threads` threads listens on: one, or more if the sockets
/// of a service with more threads were taken over.
fn share(sockets: &mut ListenSockets, threads: usize) -> Vec<ListenSocket> {
    let count = sockets.len().div_ceil(threads.max(1));
    (0..count).filter_map(|_| sockets.take()).collect()
}

/// Keepers with the service that they are of.
type Keepers = Vec<(usize, Keeper)>;

/// Binds each service, and makes what the services of one program share once.
fn bind(
    services: Vec<ServiceConfig>,
    workers: usize,
    handoff: &Handoff,
) -> Result<(Vec<RunningService>, Keepers), StartError> {
    let mut running: Vec<RunningService> = Vec::new();
    let mut groups: Vec<usize> = Vec::new();
    let mut keepers = Vec::new();
    let mut kept: Vec<PathBuf> = Vec::new();
    for service in services {
        let ServiceConfig { name, program, engine, config, group: number } = service;
        let setup = Arc::new(Setup::new(program, engine, &config)?);
        let first = groups.iter().position(|known| *known == number).map(|at| &running[at]);
        let is_first_of_group = first.is_none();
        let (state, group) = match first {
            Some(first) => {
                assert!(
                    same_dicts(&first.setup.program, &setup.program),
                    "the processes of a program declare the same dictionaries"
                );
                (Arc::clone(&first.state), Arc::clone(&first.group))
            }
            None => {
                let before = handoff.state_of(&name);
                let origin = Origin::System(monotonic_ns());
                let state = State::after(&setup.program, workers, origin, before.as_deref());
                let state = state.map_err(|(name, error)| {
                    StartError::Program(format!("dictionary `{name}` cannot be made: {error}"))
                })?;
                let state = Arc::new(state);
                if let Some(before) = before {
                    for changed in before.differences(&setup.program) {
                        let reads = config.state_dir.is_some() && is_kept(&setup.program, &changed);
                        let then = if reads { "reading its snapshot" } else { "starting empty" };
                        tracing::warn!(service = name, name = changed, "declaration changed; {then}");
                    }
                }
                own_files(&setup.program, config.state_dir.as_deref(), &mut kept)?;
                if let Some(keeper) = keep(&state, config.state_dir.as_deref())? {
                    keepers.push((running.len(), keeper));
                }
                (state, Arc::default())
            }
        };
        let shared = Arc::new(handoff.shared_for(&name, workers));
        group.add_service(Arc::clone(&shared));
        groups.push(number);
        running.push(RunningService {
            hub: setup.merge.as_ref().map(|merge| Arc::new(Hub::new(merge, workers))),
            name,
            setup,
            shared,
            state,
            group,
            is_first_of_group,
            state_dir: config.state_dir.clone(),
            access: config.access.clone(),
            addresses: Vec::new(),
            workers: Vec::new(),
            wakers: Vec::new(),
            readers: Vec::new(),
        });
    }
    Ok((running, keepers))
}

/// Whether the program has a dictionary of this name that is kept across restarts.
fn is_kept(program: &Program, name: &str) -> bool {
    program.dicts.iter().any(|dict| dict.name == name && dict.snapshot.is_some())
}

fn same_dicts(a: &Program, b: &Program) -> bool {
    let shape = |program: &Program| -> Vec<_> {
        let dicts = program.dicts.iter();
        dicts.map(|dict| (dict.layout, dict.key_bytes_max, dict.value_bytes_max, dict.entries_max)).collect()
    };
    shape(a) == shape(b) && a.counters.len() == b.counters.len()
}

/// Adds the files of a program's snapshots in that directory to those that are `kept` there.
///
/// Errors: another program would write one of them.
pub fn own_files(
    program: &Program,
    directory: Option<&Path>,
    kept: &mut Vec<PathBuf>,
) -> Result<(), StartError> {
    let Some(directory) = directory else { return Ok(()) };
    for snapshot in program.dicts.iter().filter_map(|dict| dict.snapshot.as_ref()) {
        let path = directory.join(&snapshot.file);
        if kept.contains(&path) {
            return Err(StartError::Program(format!(
                "two programs keep a dictionary in {}; give one of them another `state_dir`",
                path.display()
            )));
        }
        kept.push(path);
    }
    Ok(())
}

/// Reads back what the program keeps across restarts.
fn keep(state: &Arc<State>, directory: Option<&Path>) -> Result<Option<Keeper>, StartError> {
    let Some(directory) = directory else {
        if state.has_snapshots() {
            tracing::warn!(
                "there is no state directory: dictionaries with a snapshot start empty and are not kept"
            );
        }
        return Ok(None);
    };
    Keeper::start(state, directory).map_err(|error| {
        StartError::Program(format!("cannot keep dictionaries in {}: {error}", directory.display()))
    })
}
