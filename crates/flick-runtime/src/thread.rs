//! One thread of the platform: built on itself, so that what it touches is near it, then handed to its crew.

pub(crate) mod cpu_share;
pub(crate) mod scheduler;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use flick_net::{AnyDriver, Driver, DriverLimits, IoKind, ListenSocket, SharedListener, Waker};

use crate::limits::{EVENTS_LONE_MAX, EVENTS_MAX};
use crate::observe::heartbeat::HeartbeatReader;
use crate::setup::Setup;
use crate::thread::scheduler::{
    ProgramGroup, ScheduledService, Scheduler, SharedAddressListener, WorkerExit,
};
use crate::worker::{Worker, WorkerConfig};

/// A service's part of a thread.
pub struct ServicePart {
    pub name: String,
    pub config: WorkerConfig,
    pub sockets: Vec<ListenSocket>,
    pub group: Arc<ProgramGroup>,
    /// It looks after what the services of its program share.
    pub sweeps: bool,
}

/// An address of several services.
pub struct SharedListenerPart {
    pub socket: ListenSocket,
    pub services: Vec<u16>,
    pub whose: Box<[Option<u16>; 256]>,
    pub silent_ns: u64,
}

/// Everything a thread is built from.
pub struct ThreadPlan {
    pub parts: Vec<ServicePart>,
    pub shared_listeners: Vec<SharedListenerPart>,
    pub io: IoKind,
    /// Connections within this host use shared memory.
    pub upgrades_to_shm: bool,
    /// The core it stays on, counted among those the process may use.
    pub core: Option<usize>,
}

/// Report of a thread that has been built: by service, the handle on its worker; and the name of its kernel interface.
pub type ThreadReady = std::io::Result<(Vec<WorkerHandle>, &'static str)>;

/// Handle on a worker, to wake it and to watch its heartbeat.
pub struct WorkerHandle {
    /// Wakes it.
    pub waker: Waker,
    /// Publishes the number of its iterations.
    pub reader: HeartbeatReader,
}

/// The services of a thread.
enum Services {
    /// One service, which has the thread to itself.
    Alone(Vec<ScheduledService>),
    /// Several, or those behind shared addresses.
    Scheduled(Scheduler),
}

impl ThreadPlan {
    /// Builds everything, says so, and runs to the end of all services when `begins` says that all threads are built.
    /// If that has no sender left, it ends without having accepted a client. How each service ended.
    pub fn run(self, ready: &Sender<ThreadReady>, begins: &Receiver<()>) -> Vec<WorkerExit> {
        if let Some(core) = self.core {
            pin_to_core(core);
        }
        // Waits of a worker are short; the usual slack of 50 µs would double them.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let groups: Vec<Arc<ProgramGroup>> = self.parts.iter().map(|part| Arc::clone(&part.group)).collect();
        let is_alone = self.parts.len() == 1
            && self.shared_listeners.is_empty()
            && self.parts.iter().all(|part| part.config.setup.limits.cpu_max_percent >= 100);
        // Before it says so: what a thread cannot open fails the start, or the reload, and ends nothing that runs.
        let built = self.build(is_alone).and_then(|(members, shared_listeners, handles, name)| {
            let services = match is_alone {
                true => Services::Alone(members),
                false => Services::Scheduled(Scheduler::new(members, shared_listeners)?),
            };
            Ok((services, handles, name))
        });
        let services = match built {
            Ok((services, handles, name)) => {
                let _ = ready.send(Ok((handles, name)));
                if begins.recv().is_err() {
                    return Vec::new();
                }
                services
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                return Vec::new();
            }
        };
        let scheduler = match services {
            Services::Alone(members) => {
                return members.into_iter().map(ScheduledService::run_alone).collect();
            }
            Services::Scheduled(scheduler) => scheduler,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| scheduler.run()));
        outcome.unwrap_or_else(|panic| {
            groups.iter().for_each(|group| group.stop());
            vec![WorkerExit::Panicked(panic)]
        })
    }

    #[expect(clippy::type_complexity, reason = "the one caller takes it apart at once")]
    fn build(
        self,
        is_alone: bool,
    ) -> std::io::Result<(Vec<ScheduledService>, Vec<SharedAddressListener>, Vec<WorkerHandle>, &'static str)>
    {
        let (mut members, mut handles, mut io) = (Vec::new(), Vec::new(), "none");
        for part in self.parts {
            let mut driver = AnyDriver::open(self.io, driver_limits(&part.config.setup, is_alone))?;
            driver.limit_rings(part.config.setup.ring_memory_max / part.config.workers as u64);
            if part.config.setup.limits.few_descriptors {
                driver.accept_singly();
            }
            // A service whose processor time is limited has none to wait with.
            if part.config.setup.limits.cpu_max_percent == 100 {
                driver.busy_poll_rings(part.config.setup.limits.shm_busy_poll.as_micros() as u32);
            }
            if self.upgrades_to_shm {
                driver.enable_upgrades();
            }
            let waker = driver.waker();
            io = driver.name();
            part.group.add_waker(waker.clone());
            if let Some(intake) = part.config.shared.intake(part.config.index) {
                intake.set_waker(waker.clone());
            }
            if let Some(hub) = &part.config.hub {
                hub.set_waker(part.config.index as u32, waker.clone());
            }
            let shared = Arc::clone(&part.config.shared);
            let mut worker = Worker::new(driver, part.config);
            handles.push(WorkerHandle { waker, reader: worker.reader() });
            if !is_alone {
                worker.share_thread(part.sweeps);
            }
            for socket in part.sockets {
                let listener = worker.driver().listen_on(socket)?;
                worker.add_listener(listener);
            }
            members.push(ScheduledService::new(worker, part.name, part.group, shared));
        }
        let shared_listener = |part: SharedListenerPart| {
            for service in &part.services {
                members[usize::from(*service)].offer_rings_at(part.socket.local_addr());
            }
            let listener = SharedListener::new(part.socket, part.silent_ns)?;
            Ok(SharedAddressListener { listener, whose: part.whose, members: part.services })
        };
        let shared_listeners =
            self.shared_listeners.into_iter().map(shared_listener).collect::<std::io::Result<Vec<_>>>()?;
        Ok((members, shared_listeners, handles, io))
    }
}

fn driver_limits(setup: &Setup, is_alone: bool) -> DriverLimits {
    DriverLimits {
        conns_max: Worker::<AnyDriver>::conns_max(setup),
        shm_conns_max: Worker::<AnyDriver>::conns_max(setup),
        output_slices_max: setup.limits.max_inflight_requests.max(65_536),
        events_max: if is_alone { EVENTS_MAX } else { EVENTS_LONE_MAX },
        receive_bytes: flick_buffers::LARGE_BYTES,
    }
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
