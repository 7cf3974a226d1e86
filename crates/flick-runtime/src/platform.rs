//! A running service: its workers, and the handle the control thread holds on them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use flick_abi::{Engine, Program};
use flick_net::{AnyDriver, Driver, DriverLimits, Endpoint, ListenSockets, Waker, monotonic_ns};

use crate::config::PlatformConfig;
use crate::counters::{BackendCounters, Counters, Totals};
use crate::limits::EVENTS_MAX;
use crate::merge::Hub;
use crate::setup::{Setup, StartError};
use crate::shared::Shared;
use crate::state::snapshots::Keeper;
use crate::state::{Origin, State};
use crate::watch::{Snapshot, Watch, WorkerWatch};
use crate::worker::{Worker, WorkerConfig};

/// What became of a platform.
#[derive(Debug)]
pub struct Outcome {
    /// The last counters.
    pub totals: Totals,
    /// Workers that ended by an error of the system, with what it said.
    pub errors: Vec<std::io::Error>,
}

struct WorkerHandle {
    thread: JoinHandle<std::io::Result<()>>,
    waker: Waker,
    watch: WorkerWatch,
}

/// A running service.
pub struct Platform {
    setup: Arc<Setup>,
    shared: Arc<Shared>,
    hub: Option<Arc<Hub>>,
    state: Arc<State>,
    keeper: Option<Keeper>,
    workers: Vec<WorkerHandle>,
    addresses: Vec<(String, Endpoint)>,
    io: &'static str,
}

impl Platform {
    /// Binds, opens and starts everything; when this returns, clients can connect.
    ///
    /// Errors: see [`StartError`]; nothing is left running then.
    pub fn start(
        program: Arc<Program>,
        engine: Arc<dyn Engine>,
        config: PlatformConfig,
    ) -> Result<Self, StartError> {
        let setup = Arc::new(Setup::new(program, engine, &config)?);
        let workers = config.workers.max(1);
        let state = State::new(&setup.program, workers, Origin::System(monotonic_ns()));
        let state = Arc::new(state.map_err(|(name, error)| {
            StartError::Program(format!("dictionary `{name}` cannot be made: {error}"))
        })?);
        let mut sockets = open_listeners(&setup, workers)?;
        let keeper = keep(&state, config.state_dir.as_deref())?;
        let name = |channel: usize| setup.program.channels[channel].name.clone();
        let listens = setup.listen.iter().zip(&sockets);
        let addresses =
            listens.map(|((channel, _), set)| (name(*channel), set.local_addr().clone())).collect();
        let hub = setup.merge.as_ref().map(|merge| Arc::new(Hub::new(merge, workers)));
        let mut platform = Self {
            setup,
            shared: Arc::new(Shared::default()),
            hub,
            state,
            keeper,
            workers: Vec::new(),
            addresses,
            io: "none",
        };
        for index in 0..workers {
            let started = platform.start_worker(index, workers, &config, &mut sockets);
            if let Err(error) = started {
                platform.stop();
                platform.wait();
                return Err(StartError::Io { doing: format!("start worker {index}"), error });
            }
        }
        Ok(platform)
    }

    fn start_worker(
        &mut self,
        index: usize,
        workers: usize,
        config: &PlatformConfig,
        sockets: &mut [ListenSockets],
    ) -> std::io::Result<()> {
        let counters = Arc::new(Counters::default());
        let backend_counters: Arc<Vec<BackendCounters>> =
            Arc::new(self.setup.backends.iter().map(|_| BackendCounters::default()).collect());
        let own: Vec<_> = sockets.iter_mut().filter_map(ListenSockets::take).collect();
        let worker_config = WorkerConfig {
            setup: Arc::clone(&self.setup),
            shared: Arc::clone(&self.shared),
            state: Arc::clone(&self.state),
            counters: Arc::clone(&counters),
            backend_counters: Arc::clone(&backend_counters),
            workers,
            index,
            hub: self.hub.clone(),
            seed: 0x9e37_79b9_7f4a_7c15 ^ ((index as u64) << 32),
            time_slices: true,
        };
        let limits = driver_limits(&self.setup);
        let core = config.pin.then_some(index);
        let io = config.io;
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("flick-{index}")).spawn(move || {
            if let Some(core) = core {
                pin_to_core(core);
            }
            // Waits of a worker are short; the usual slack of 50 µs would double them.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            let built = AnyDriver::open(io, limits).and_then(|driver| {
                let (waker, name) = (driver.waker(), driver.name());
                if let Some(hub) = &worker_config.hub {
                    hub.set_waker(index as u32, waker.clone());
                }
                let mut worker = Worker::new(driver, worker_config);
                for socket in own {
                    let listener = worker.driver().listen_on(socket)?;
                    worker.add_listener(listener);
                }
                Ok((worker, waker, name))
            });
            match built {
                Ok((mut worker, waker, name)) => {
                    let _ = ready.send(Ok((waker, name)));
                    worker.run()
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    Ok(())
                }
            }
        })?;
        let (waker, name) =
            started.recv().map_err(|_| std::io::Error::other("the worker ended before it began"))??;
        self.io = name;
        self.workers.push(WorkerHandle { thread, waker, watch: WorkerWatch { counters, backend_counters } });
        Ok(())
    }

    /// Where clients can connect, by channel.
    pub fn addresses(&self) -> &[(String, Endpoint)] {
        &self.addresses
    }

    /// What the program's code shares: its counters and dictionaries.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Which kernel interface carries the bytes.
    pub fn io(&self) -> &'static str {
        self.io
    }

    /// A handle on all that is counted, for other threads.
    pub fn watch(&self) -> Watch {
        Watch {
            setup: Arc::clone(&self.setup),
            shared: Arc::clone(&self.shared),
            state: Arc::clone(&self.state),
            workers: self.workers.iter().map(|worker| worker.watch.clone()).collect(),
            addresses: self.addresses.clone(),
            io: self.io,
        }
    }

    /// The counters now.
    pub fn metrics(&self) -> Snapshot {
        self.watch().snapshot()
    }

    /// Asks all workers to take no new clients and to end when the present ones are served, at `deadline` at latest.
    pub fn drain(&self, deadline: Duration) {
        self.shared.drain(deadline);
        self.wake();
    }

    /// Asks all workers to end at once.
    pub fn stop(&self) {
        self.shared.stop();
        self.wake();
    }

    fn wake(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }

    /// Whether all workers have ended.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(|worker| worker.thread.is_finished())
    }

    /// Waits until all workers have ended. A worker that panicked passes its panic on.
    pub fn wait(self) -> Outcome {
        let mut errors = Vec::new();
        let mut totals = Totals::default();
        for worker in self.workers {
            match worker.thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.push(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
            totals.absorb(&worker.watch.counters);
        }
        // The workers have ended: nothing is written any more.
        if let Some(keeper) = self.keeper {
            keeper.finish();
        }
        Outcome { totals, errors }
    }
}

/// Reads back what the program keeps across restarts, and starts to write it.
fn keep(state: &Arc<State>, directory: Option<&std::path::Path>) -> Result<Option<Keeper>, StartError> {
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

/// Keeps this thread on one of the cores the process may use; a refusal is logged and borne.
fn pin_to_core(index: usize) {
    let pinned = rustix::thread::sched_getaffinity(None).and_then(|allowed| {
        let cores: Vec<usize> =
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let Some(core) = cores.get(index % cores.len().max(1)) else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        set.set(*core);
        rustix::thread::sched_setaffinity(None, &set)
    });
    if let Err(error) = pinned {
        tracing::warn!(index, %error, "cannot pin a worker to a core");
    }
}

fn driver_limits(setup: &Setup) -> DriverLimits {
    DriverLimits {
        conns_max: Worker::<AnyDriver>::conns_max(setup),
        output_slices_max: setup.limits.requests_max.max(65_536),
        events_max: EVENTS_MAX,
        receive_bytes: flick_buffers::LARGE_BYTES,
    }
}

fn open_listeners(setup: &Setup, workers: usize) -> Result<Vec<ListenSockets>, StartError> {
    let open = |at: &Endpoint| {
        ListenSockets::open(at, workers)
            .map_err(|error| StartError::Io { doing: format!("listen on {at}"), error })
    };
    setup.listen.iter().map(|(_, at)| open(at)).collect()
}
