//! A worker: the event loop of one thread, with its own driver, buffers and run queue. An iteration polls the driver,
//! handles its events, runs tasks and sends what they wrote.
//! Promises: no lock and no shared cache line on the path of a message; no heap allocation after `new`; a task
//! yields between messages when its time slice is over.
//! Refuses: knowing a protocol. What a message is, where it goes and what a failure looks like is generated code.
//! Source: FLICK §5; one thread per core, nothing shared.

mod accepting;
mod access;
mod audit;
mod backend_conns;
mod backend_set_update;
mod backend_view;
mod bodies;
mod dedicated;
mod deliver;
mod drain;
mod events;
mod eviction;
mod fair_queue;
mod health;
mod measuring;
mod merging;
mod migrate;
mod mirrors;
mod outgoing;
mod overload;
mod pace;
mod poll_wait;
mod preloading;
mod relay;
mod relay_run;
mod replies;
mod reply_flags;
mod request_run;
mod requests;
mod retrying;
mod rules;
mod running;
#[cfg(test)]
mod scripted;
mod sending;
mod session_list;
mod stalls;
mod suspend;
mod thread_share;
mod timeouts;
mod timers;
mod tunnels;
mod uploads;

pub use audit::WorkerAudit;
pub use thread_share::Quantum;

use std::sync::Arc;
use std::time::Duration;

use flick_buffers::{HUGE_BYTES, LARGE_BYTES, PoolConfig, SMALL_BYTES};
use flick_net::{ConnFault, Driver, DriverEvent, Handle, ListenerId, ShmStats};

use crate::clock::Clock;
use crate::context::Context;
use crate::downstream::Downstream;
use crate::downstream::stream::Wait;
use crate::inflight::Inflight;
use crate::io::{Io, Role};
use crate::limits::{BACKLOG_LOW_BYTES, SESSION_BACKLOG_BYTES_MAX};
use crate::listener::Listeners;
use crate::merge::Hub;
use crate::observe::Observe;
use crate::observe::access_log::AccessLogSink;
use crate::observe::backend_log::WhyDown;
use crate::observe::counters::{BackendCounters, Counters};
use crate::observe::edge_counters::EdgeCounters;
use crate::observe::heartbeat::HeartbeatReader;
use crate::overload::batch_delay::Arrivals;
use crate::rules::host::WorkerHost;
use crate::rules::locals::Locals;
use crate::rules::suspended::SuspendedRules;
use crate::rules::{Rules, program_timers};
use crate::run_queue::RunQueue;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::shared::worker_loads::ConnectionBalancer;
use crate::state::State;
use crate::upstream::Upstream;
use merging::Merging;

/// One worker.
pub struct Worker<D: Driver> {
    ctx: Context,
    io: Io<D>,
    listeners: Listeners,
    downstream: Downstream,
    upstream: Upstream,
    inflight: Inflight,
    rules: Rules,
    merging: Option<Box<Merging>>,
    clock: Clock,
    observe: Observe,
    tasks: RunQueue,
}

/// Parameters of a worker.
pub struct WorkerConfig {
    /// Name of the service.
    pub service: String,
    /// The bound program.
    pub setup: Arc<Setup>,
    /// State that it shares with the other workers and the control thread.
    pub shared: Arc<Shared>,
    /// The state that the program's code shares.
    pub state: Arc<State>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Its counters of each backend.
    pub backend_counters: Arc<Vec<BackendCounters>>,
    /// Its counters of the edges of the task graph.
    pub edge_counters: Arc<EdgeCounters>,
    /// Index of the worker, from 0: the first one runs the program's timers.
    pub index: usize,
    /// Number of workers.
    pub workers: usize,
    /// State shared by the workers of a process that merges.
    pub hub: Option<Arc<Hub>>,
    /// Its end of the access log, if there is one.
    pub access: Option<AccessLogSink>,
    /// Seed of the reconnect jitter.
    pub seed: u64,
    /// Measure time slices with the real clock; off in the simulator.
    pub time_slices: bool,
}

impl<D: Driver> Worker<D> {
    /// Builds a worker; everything it will ever use is allocated here.
    pub fn new(driver: D, config: WorkerConfig) -> Self {
        let WorkerConfig { service, index, workers, seed, time_slices, hub, access, .. } = config;
        let WorkerConfig { setup, shared, state, counters, backend_counters, edge_counters, .. } = config;
        shared.prepare(&setup.limits);
        state.observe(Arc::clone(&counters));
        let (needs, max_connections) = (&setup.needs, setup.limits.session_slots() as usize);
        let (buffers, max_suspended_rules) =
            (pool_of(&setup, workers), needs.suspended_rules_of_worker(workers));
        let upstream = Upstream::new(&setup, seed);
        let (conns_max, connected) =
            (Self::conns_max(&setup) as usize, max_connections + upstream.conns_count());
        // As many handles again are those of shared memory.
        let handles = 2 * conns_max;
        let merge_tasks = hub.as_ref().map_or(0, |hub| hub.tree.tasks() as usize);
        let balance = ConnectionBalancer::new(shared.loads(), index);
        let balance = balance.filter(|_| time_slices && setup.merge.is_none());
        Self {
            rules: Rules::new(
                SuspendedRules::new(max_suspended_rules, needs.shape),
                Locals::new(max_connections + max_suspended_rules, needs.state_words),
                WorkerHost::new(state, Arc::clone(upstream.backend_set().load_balancer()), index),
                program_timers::timers(&setup.program, index, driver.now_ns()),
                index == 0 && !setup.program.dicts.is_empty(),
            ),
            io: Io::new(driver, buffers, handles, connected),
            listeners: Listeners::new(conns_max, shared.intake(index), balance),
            downstream: Downstream::new(max_connections, upstream.conns_count()),
            upstream,
            inflight: Inflight::new(needs.requests_of_worker(setup.limits.max_inflight_requests, workers)),
            merging: Merging::new(&setup, hub, index),
            clock: Clock::new(&setup, time_slices),
            observe: Observe::new(counters, backend_counters, edge_counters, access),
            tasks: RunQueue::new(
                connected + max_suspended_rules + merge_tasks,
                huge_reserve(&setup, buffers.huge_count),
            ),
            ctx: Context::new(setup, shared, service, index),
        }
    }

    /// Connections that a driver must have capacity for, given the limits of a service.
    pub fn conns_max(setup: &Setup) -> u32 {
        let backend_conns: u32 =
            setup.slots.iter().map(|channel| 1 + setup.max_dedicated_connections(*channel)).sum();
        let checks = setup.slots.len() as u32;
        setup.limits.session_slots() + backend_conns + checks + LINGERING_CONNS_MAX as u32
    }

    /// The driver, for opening listeners.
    pub fn driver(&mut self) -> &mut D {
        self.io.driver_mut()
    }

    /// Adds a listener that the driver has opened.
    pub fn add_listener(&mut self, listener: ListenerId) {
        self.listeners.add(listener);
    }

    /// Returns the heartbeat that the watchdog reads.
    pub(crate) fn reader(&self) -> HeartbeatReader {
        self.observe.heartbeat_reader()
    }

    /// Connects to every backend.
    pub fn start(&mut self) {
        self.io.driver_mut().set_watermarks(SESSION_BACKLOG_BYTES_MAX, BACKLOG_LOW_BYTES);
        self.apply_backend_sets();
        self.take_over_outliers();
    }

    /// Runs until asked to stop or drained.
    pub fn run(&mut self) -> std::io::Result<()> {
        self.start();
        while self.run_once(None)? {}
        Ok(())
    }

    /// Runs one iteration; waits at most `wait_max` for an event. Returns `false` when the worker is finished.
    pub fn run_once(&mut self, wait_max: Option<Duration>) -> std::io::Result<bool> {
        self.observe.beat();
        self.clock.read_tunables(self.ctx.setup());
        if self.ctx.setup().backend_sets.version() != self.upstream.backend_set().version() {
            let latest = self.ctx.setup().backend_sets.latest();
            self.upstream.set_backend_set(latest);
            self.apply_backend_sets();
        }
        let is_idle = self.is_idle();
        let wait = if is_idle { self.wait_time() } else { Some(Duration::ZERO) };
        let wait = match (wait, wait_max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut events = self.io.take_events();
        self.limit_accepts();
        self.poll(wait, is_idle, &mut events)?;
        let mut arrived = Arrivals::default();
        // Before the batch delay: the worker must receive from a new connection before its peer may end it.
        self.reset_broken_sessions();
        self.handle_all(&mut events, &mut arrived);
        if let Some(wait) = self.clock.batch_wait(arrived) {
            self.observe.counters().batch_delays.add(1);
            std::thread::sleep(wait);
            self.io.poll(Some(Duration::ZERO), &mut events)?;
            self.handle_all(&mut events, &mut arrived);
        }
        self.io.return_events(events);
        if arrived.woken {
            // After the events: an adopted connection may get the number of one whose end was among them.
            self.take_over();
            self.answer_session_list();
            self.change_tap();
        }
        self.clock.note_arrivals(arrived, self.io.now_ns());
        self.try_batch_delay();
        self.rules.host_mut().set_now(self.io.now_ns());
        self.run_timers();
        if self.merging.is_some() {
            self.run_merge_tasks();
        }
        self.clock.note_queue(self.tasks.len(), self.io.driver().queue_delay(), self.io.now_ns());
        self.run_tasks();
        self.relieve_buffers();
        self.release_fills();
        if self.tasks.is_idle() {
            self.io.release_memory();
        }
        if self.observe.has_answered() {
            // Replies are sent at the beginning of the next iteration; the driver's clock is that of this one.
            let driver_ns = self.io.now_ns();
            let now_ns = if cfg!(feature = "uncounted") { driver_ns } else { self.clock.now_ns(driver_ns) };
            let backends = self.upstream.backends();
            self.observe.flush_answered(now_ns, |at| backends[at as usize].endpoint());
        }
        self.clock.end_iteration(self.io.now_ns());
        let is_over = self.ctx.shared().must_stop() || self.drained();
        if is_over {
            if let Some(stats) = self.io.driver().shm_stats() {
                let none = ShmStats { conns: 0, pairs: 0, ring_bytes: 0, upgraded: 0, ..stats };
                self.observe.counters().publish_shm(none);
            }
            self.abandon_merge();
        }
        Ok(!is_over)
    }

    fn handle_all(&mut self, events: &mut Vec<DriverEvent>, arrived: &mut Arrivals) {
        for event in events.drain(..) {
            arrived.note(&event);
            self.handle(event);
        }
    }

    /// No task is runnable.
    fn is_idle(&self) -> bool {
        let is_called = self.merging.as_ref().is_some_and(|merging| merging.is_called());
        self.tasks.is_idle() && !is_called && !self.downstream.has_resets()
    }

    fn handle(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Accepted { listener, conn, peer: _ } if self.merging.is_some() => {
                self.merge_accepted(listener, conn);
            }
            DriverEvent::Accepted { listener: _, conn, peer } => {
                self.io.set_peer(conn, peer);
                if let Some(conn) = self.hand_to_idle(conn) {
                    self.accepted(conn);
                }
            }
            DriverEvent::AcceptFailed { listener: _, errno } => self.accept_failed(errno),
            DriverEvent::Connected { conn } => match self.role(conn) {
                Role::BackendConn { backend_conn, .. } => self.backend_connected(backend_conn),
                Role::Check(at) => self.check_connected(at as usize, conn),
                Role::Sink => self.sink_connected(),
                _ => {}
            },
            DriverEvent::Data { conn, data } => match self.role(conn) {
                Role::Client(key) => self.client_data(key, data),
                Role::BackendConn { backend_conn, .. } => self.backend_data(backend_conn, data),
                Role::Check(at) => self.check_data(at as usize, &data),
                Role::Stream(stream) => self.stream_data(stream, data),
                Role::Sink | Role::Waiting | Role::Unused => {}
            },
            DriverEvent::Eof { conn } => match self.role(conn) {
                Role::Client(key) => self.client_eof(key),
                Role::BackendConn { backend_conn, .. } => {
                    self.upstream.conn_mut(backend_conn).end_input();
                    self.enqueue_backend_conn(backend_conn);
                }
                Role::Stream(stream) => self.stream_eof(stream),
                Role::Check(at) => self.check_over(at as usize, Err(WhyDown::Closed)),
                Role::Sink => self.sink_eof(),
                Role::Waiting | Role::Unused => {}
            },
            DriverEvent::Failed { conn, fault } => self.conn_failed(conn, fault),
            DriverEvent::Drained { conn } => match self.role(conn) {
                Role::Client(key) => {
                    self.tasks.free_capacity();
                    if self
                        .downstream
                        .client(key)
                        .is_some_and(|session| session.stream().wait() == Wait::Client)
                    {
                        self.enqueue_session(key);
                    }
                }
                Role::BackendConn { .. } => self.tasks.free_capacity(),
                Role::Sink => self.sink_drained(),
                Role::Stream(_) | Role::Check(_) | Role::Waiting | Role::Unused => {}
            },
            // Handled after all events.
            DriverEvent::Woken => {}
        }
    }

    /// The driver has lost a connection.
    fn conn_failed(&mut self, conn: Handle, fault: ConnFault) {
        match self.role(conn) {
            Role::Client(key) => {
                self.observe.counters().exhausted.add(u64::from(fault == ConnFault::Exhausted));
                self.end_session(key, false);
            }
            Role::BackendConn { backend_conn, .. } => self.backend_conn_lost(backend_conn, fault),
            Role::Waiting => self.listeners.remove_waiting(conn),
            Role::Stream(stream) => self.stream_failed(stream),
            Role::Check(at) => {
                self.upstream.backend_mut(at as usize).health_mut().take_check_conn();
                self.check_over(at as usize, Err(WhyDown::Fault(fault)));
            }
            Role::Sink => self.sink_failed(),
            Role::Unused => {}
        }
    }

    /// The role of a connection. `Unused` if it is closed: its number may belong to another connection now.
    fn role(&self, conn: Handle) -> Role {
        let role = self.io.role(conn);
        let current = match role {
            Role::Unused => return Role::Unused,
            Role::Waiting => self.listeners.is_waiting(conn).then_some(conn),
            Role::Client(key) => self.downstream.client(key).map(|session| session.handle()),
            Role::BackendConn { backend_conn, epoch } => self.upstream.conn(backend_conn).handle_of(epoch),
            Role::Check(at) => self.upstream.backend(at as usize).health().check_conn(),
            Role::Stream(_) | Role::Sink => self.merge_conn(role),
        };
        if current == Some(conn) { role } else { Role::Unused }
    }

    /// Wakes what waited for shared capacity: blocked sessions and stalled backend connections.
    fn resume_waiting(&mut self) {
        self.upstream.forget_promises();
        for _ in 0..self.downstream.blocked_len() {
            let Some((key, wants)) = self.downstream.pop_blocked() else { break };
            if wants.is_some_and(|backend| !self.promise(backend)) {
                self.downstream.block_again(key);
                continue;
            }
            if let Some(backend) = self.downstream.unblock(key) {
                self.upstream.backend_mut(backend as usize).remove_pending();
                self.begin_quantum(key, backend);
            }
            self.enqueue_session(key);
        }
        while let Some(backend_conn) = self.upstream.next_stalled() {
            self.enqueue_backend_conn(backend_conn);
        }
    }

    fn release_fills(&mut self) {
        self.downstream.release_fills();
        self.upstream.release_batches();
    }
}

/// Huge buffers that requests leave to replies: without one a reply would wait for its request, which waits for it.
fn huge_reserve(setup: &Setup, huge_count: u32) -> u32 {
    if setup.slots.is_empty() { 0 } else { huge_count / 2 }
}

/// Divides a worker's share of the buffer memory into buffers.
fn pool_of(setup: &Setup, workers: usize) -> PoolConfig {
    let workers = workers as u64;
    let all_bytes = setup.limits.buffer_memory / workers;
    let huge_count = crate::setup::requirements::huge_count(setup.whole_bytes_max, all_bytes);
    // Rings leave the huge buffers as they are, which a program cannot do without.
    let bytes = setup.pool_memory / workers - u64::from(huge_count) * u64::from(HUGE_BYTES);
    PoolConfig {
        huge_count,
        small_count: (bytes / 4 / u64::from(SMALL_BYTES)).max(64) as u32,
        large_count: (bytes * 3 / 4 / u64::from(LARGE_BYTES)).max(64) as u32,
    }
}

/// Connections that linger after their session slot was released.
const LINGERING_CONNS_MAX: usize = 64;
