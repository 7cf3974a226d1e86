//! A worker: one thread with its own driver, buffers, graphs and run queue. One turn is: take what arrived, run the
//! tasks that became runnable, send what they left.
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
mod events;
mod health;
mod measuring;
mod merging;
mod migrate;
mod overload;
mod poll_wait;
mod relay;
mod replies;
mod reply_flags;
mod requests;
mod retrying;
mod rules;
mod running;
#[cfg(test)]
mod scripted;
mod sending;
mod session_list;
mod suspend;
mod thread_share;
mod timeouts;
mod timers;
mod tunnels;
mod uploads;

pub use audit::WorkerAudit;
use poll_wait::BusyPoll;
use rules::Scratch;
use running::{Flow, Pace, Task};

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flick_buffers::{HUGE_BYTES, LARGE_BYTES, Pool, PoolConfig, SMALL_BYTES};
use flick_net::{Driver, DriverEvent, Endpoint, Handle, ListenerId, PeerAddr, monotonic_ns};

use crate::backend_set::BackendSet;
use crate::downstream::deadlines::Deadlines;
use crate::downstream::session::{Session, Wait};
use crate::inflight::InflightTable;
use crate::inflight::retry_budget::RetryBudget;
use crate::limits::{
    ANSWERED_MAX, BACKLOG_LOW_BYTES, EVENTS_MAX, PARTIAL_FRAMES_MAX, SESSION_BACKLOG_BYTES_MAX,
};
use crate::merge::Hub;
use crate::observe::access_log::{AccessLogSink, AccessRecorder};
use crate::observe::counters::{BackendCounters, Counters};
use crate::observe::edge_counters::EdgeCounters;
use crate::observe::heartbeat::{Heartbeat, HeartbeatReader};
use crate::observe::latency::LatencyHistogram;
use crate::overload::batch_delay::{Arrivals, BatchDelay};
use crate::overload::detector::OverloadDetector;
use crate::pieces::Pieces;
use crate::rules::host::WorkerHost;
use crate::rules::locals::Locals;
use crate::rules::suspended::SuspendedRules;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::shared::handoff::HandoffQueue;
use crate::shared::worker_loads::ConnectionBalancer;
use crate::slab::{Key, Slab};
use crate::state::State;
use crate::upstream::backend::{Backend, BackendConn, BackendLife};
use crate::upstream::health::BackendHealth;
use merging::Merging;

/// What a connection of the driver is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Nobody,
    /// Accepted, without a session.
    Waiting,
    Client(Key),
    /// An element of the array that the process merges.
    Stream(u32),
    /// Who gets the result of a merge.
    Sink,
    BackendConn {
        backend_conn: u32,
        epoch: u32,
    },
    /// A check of the backend in that slot.
    Check(u32),
}

/// One worker.
pub struct Worker<D: Driver> {
    driver: D,
    pool: Pool,
    setup: Arc<Setup>,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    backend_counters: Arc<Vec<BackendCounters>>,
    edge_counters: Arc<EdgeCounters>,
    sessions: Slab<Session>,
    backend_conns: Vec<BackendConn>,
    backends: Vec<Backend>,
    /// The lists of backends that hold in this turn.
    backend_set: Arc<BackendSet>,
    /// Backends that have left their lists and have not finished.
    draining: u32,
    /// By the number of a connection. It may be of one that has ended: see [`Worker::role`].
    roles: Vec<Role>,
    /// What operators call its service.
    service: String,
    /// Which worker it is.
    index: usize,
    /// Where clients of a worker that it replaces are left for it.
    intake: Option<Arc<HandoffQueue>>,
    listeners: Vec<ListenerId>,
    inflight: InflightTable,
    pieces: Pieces,
    frames: Slab<flick_abi::Frame>,
    /// Parser states of messages in parts, between and inside their parts.
    bodies: Slab<flick_abi::Frame>,
    suspended_rules: SuspendedRules,
    locals: Locals,
    host: WorkerHost,
    /// By connection: who it is.
    peers: Vec<PeerAddr>,
    sweep_due_ns: Option<u64>,
    every: Vec<events::Every>,
    deadlines: Deadlines,
    run_queue: VecDeque<Task>,
    blocked: VecDeque<Key>,
    unblock: bool,
    /// Somebody waits for a huge buffer.
    wants_huge: bool,
    /// Huge buffers that requests leave to replies.
    huge_reserve: u32,
    stalled_count: u32,
    /// Links that were stalled since the last look; some of them may not be any more.
    stalled: Vec<u32>,
    filled: Vec<Key>,
    filled_conns: Vec<u32>,
    scratch: Option<Box<Scratch>>,
    events: Vec<DriverEvent>,
    accept_paused: bool,
    waiting: VecDeque<Handle>,
    accept_again_ns: Option<u64>,
    clock: timers::Clock,
    draining_since_ns: Option<u64>,
    random: u64,
    /// How long a task may run.
    pace: Pace,
    batch_delay: BatchDelay,
    shedder: OverloadDetector,
    busy_poll: BusyPoll,
    /// It may wait though something may have come: its thread is its own, and time is real.
    may_wait: bool,
    /// The version of the tunables that hold.
    tunables_version: u64,
    /// Where it shares the service with other workers, whose thread is its own.
    balance: Option<ConnectionBalancer>,
    budget: RetryBudget,
    /// Sessions whose reply has broken off: they are reset when what came of it has gone out.
    to_reset: Vec<Key>,
    merging: Option<Box<Merging>>,
    /// When the requests were taken in that were answered since the clock was last looked at.
    answered: Vec<u64>,
    access: Option<Box<AccessRecorder>>,
    heartbeat: Heartbeat,
    /// Where several services share the thread: when this turn should be over.
    iteration_end: Option<Instant>,
}

/// What a worker is built from.
pub struct WorkerConfig {
    /// What operators call the service.
    pub service: String,
    /// The bound program.
    pub setup: Arc<Setup>,
    /// What it shares with the other workers and the control thread.
    pub shared: Arc<Shared>,
    /// The state that the program's code shares.
    pub state: Arc<State>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Its counters of backends.
    pub backend_counters: Arc<Vec<BackendCounters>>,
    /// Its counters of edges.
    pub edge_counters: Arc<EdgeCounters>,
    /// Which worker it is, from 0: the first one runs the program's timers.
    pub index: usize,
    /// How many workers there are.
    pub workers: usize,
    /// What the workers of a process that merges share.
    pub hub: Option<Arc<Hub>>,
    /// Its end of the access log, if there is one.
    pub access: Option<AccessLogSink>,
    /// Seed of the jitter of dialling again.
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
        let (needs, max_connections) = (&setup.needs, setup.limits.session_slots() as usize);
        let ((backend_conns, backends), conns_max) = (backend_conns_of(&setup), Self::conns_max(&setup) as usize);
        let (buffers, max_suspended_rules) = (pool_of(&setup, workers), needs.suspended_rules_of_worker(workers));
        Self {
            every: events::timers(&setup.program, index, driver.now_ns()),
            driver,
            pieces: Pieces::new(pieces_max(&buffers)),
            pool: Pool::new(buffers),
            sessions: Slab::new(max_connections),
            service,
            index,
            intake: shared.intake(index),
            roles: vec![Role::Nobody; conns_max],
            listeners: Vec::new(),
            inflight: InflightTable::new(needs.requests_of_worker(setup.limits.max_inflight_requests, workers)),
            frames: Slab::new(PARTIAL_FRAMES_MAX),
            bodies: Slab::new(max_connections + backend_conns.len()),
            suspended_rules: SuspendedRules::new(max_suspended_rules, needs.shape),
            locals: Locals::new(max_connections + max_suspended_rules, needs.state_words),
            clock: timers::Clock::default(),
            sweep_due_ns: (index == 0 && !setup.program.dicts.is_empty()).then_some(0),
            host: WorkerHost::new(state, Arc::clone(setup.backend_sets.latest().load_balancer()), index),
            peers: vec![PeerAddr::Unix; conns_max],
            deadlines: Deadlines::new(max_connections),
            run_queue: tasks(max_connections + backend_conns.len() + max_suspended_rules, hub.as_deref()),
            blocked: VecDeque::with_capacity(max_connections),
            unblock: false,
            wants_huge: false,
            huge_reserve: huge_reserve(&setup, buffers.huge_count),
            stalled_count: 0,
            stalled: Vec::with_capacity(backend_conns.len()),
            filled: Vec::with_capacity(max_connections),
            filled_conns: Vec::with_capacity(backend_conns.len()),
            scratch: Some(Box::default()),
            events: Vec::with_capacity(EVENTS_MAX * 2),
            accept_paused: false,
            waiting: VecDeque::with_capacity(conns_max),
            accept_again_ns: None,
            draining_since_ns: None,
            random: seed | 1,
            pace: Pace::new(&setup, time_slices),
            shedder: OverloadDetector::new(Duration::ZERO),
            budget: RetryBudget::default(),
            to_reset: Vec::with_capacity(max_connections),
            batch_delay: BatchDelay::new(Duration::ZERO),
            busy_poll: BusyPoll::default(),
            may_wait: time_slices,
            tunables_version: u64::MAX,
            balance: ConnectionBalancer::new(shared.loads(), index)
                .filter(|_| time_slices && setup.merge.is_none()),
            merging: Merging::new(&setup, hub, index),
            answered: Vec::with_capacity(ANSWERED_MAX),
            access: access.map(|sink| Box::new(AccessRecorder::new(sink))),
            iteration_end: None,
            heartbeat: Heartbeat::default(),
            backend_conns,
            backends,
            backend_set: setup.backend_sets.latest(),
            draining: 0,
            setup,
            shared,
            counters,
            backend_counters,
            edge_counters,
        }
    }

    /// Connections a driver must have room for, given the limits of a service.
    pub fn conns_max(setup: &Setup) -> u32 {
        let backend_conns: u32 =
            setup.slots.iter().map(|channel| 1 + setup.max_dedicated_connections(*channel)).sum();
        let checks = setup.slots.len() as u32;
        setup.limits.session_slots() + backend_conns + checks + LINGERING_CONNS_MAX as u32
    }

    /// The driver, for opening listeners.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Adds a listener that the driver has opened.
    pub fn add_listener(&mut self, listener: ListenerId) {
        self.listeners.push(listener);
    }

    /// For who watches whether it still turns.
    pub(crate) fn reader(&self) -> HeartbeatReader {
        self.heartbeat.reader()
    }

    /// Dials every backend.
    pub fn start(&mut self) {
        self.driver.set_watermarks(SESSION_BACKLOG_BYTES_MAX, BACKLOG_LOW_BYTES);
        self.apply_backend_sets();
        self.take_over_outliers();
    }

    /// Runs until asked to stop or drained.
    pub fn run(&mut self) -> std::io::Result<()> {
        self.start();
        while self.run_once(None)? {}
        Ok(())
    }

    /// One turn; waits at most `wait_max` for something to happen. `false`: the worker is finished.
    pub fn run_once(&mut self, wait_max: Option<Duration>) -> std::io::Result<bool> {
        self.heartbeat.beat();
        self.read_tunables();
        if self.setup.backend_sets.version() != self.backend_set.version() {
            self.backend_set = self.setup.backend_sets.latest();
            self.apply_backend_sets();
        }
        let is_idle = self.is_idle();
        let wait = if is_idle { self.wait_time() } else { Some(Duration::ZERO) };
        let wait = match (wait, wait_max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut events = std::mem::take(&mut self.events);
        self.poll(wait, is_idle, &mut events)?;
        let mut arrived = Arrivals::default();
        // Handled before any wait: a connection that has just come up must be received from before its peer may end it.
        self.reset_broken_sessions();
        self.handle_all(&mut events, &mut arrived);
        if let Some(wait) = self.batch_delay.wait(arrived) {
            std::thread::sleep(wait);
            self.driver.poll(&self.pool, Some(Duration::ZERO), &mut events)?;
            self.handle_all(&mut events, &mut arrived);
        }
        self.events = events;
        if arrived.woken {
            // A connection that is taken over may get the number of one whose end is told behind the call.
            self.take_over();
            self.answer_session_list();
        }
        self.batch_delay.note(arrived, self.driver.now_ns());
        self.host.set_now(self.driver.now_ns());
        self.run_timers();
        if self.merging.is_some() {
            self.run_merge_tasks();
        }
        self.shedder.mark(self.run_queue.len(), self.driver.queue_delay(), self.driver.now_ns());
        self.run_tasks();
        self.release_fills();
        let logs = self.access.as_ref().is_some_and(|recorder| recorder.is_due());
        if !self.answered.is_empty() || logs {
            // What was answered goes out at the beginning of the next turn; the driver's clock shows the beginning of this.
            let reads_clock = self.pace.has_clock() && !cfg!(feature = "uncounted");
            let now_ns = if reads_clock { monotonic_ns() } else { self.driver.now_ns() };
            Self::note_answered(&self.counters.times, &mut self.answered, now_ns);
            self.log_iteration(now_ns);
        }
        let is_over = self.shared.must_stop() || self.drained();
        if is_over {
            self.abandon_merge();
        }
        Ok(!is_over)
    }

    /// Takes over tunables that have changed.
    fn read_tunables(&mut self) {
        let setup = &self.setup;
        let Some(values) = setup.tunables.changed_since(&mut self.tunables_version) else { return };
        // A merge has all the more to do the more has arrived; it waits for nothing.
        let batches = self.may_wait && setup.merge.is_none();
        // Shedding needs an error response, and messages that are requests.
        let sheds = setup.sheds_in_words() && !setup.is_relay;
        self.busy_poll.max_ns = if self.may_wait { values.busy_poll.as_nanos() as u64 } else { 0 };
        self.batch_delay.set_max(if batches { values.batch_delay_max } else { Duration::ZERO });
        self.shedder.set_target(if sheds { values.overload_queue_delay } else { Duration::ZERO });
        self.pace.set_slice(values.time_slice);
    }

    fn note_answered(times: &LatencyHistogram, answered: &mut Vec<u64>, now_ns: u64) {
        answered.drain(..).for_each(|taken_ns| times.note(now_ns.saturating_sub(taken_ns)));
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
        self.run_queue.is_empty() && !self.unblock && !is_called && self.to_reset.is_empty()
    }

    fn handle(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Accepted { listener, conn, peer: _ } if self.merging.is_some() => {
                self.merge_accepted(listener, conn);
            }
            DriverEvent::Accepted { listener: _, conn, peer } => {
                self.peers[conn.index as usize] = peer;
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
                Role::Sink | Role::Waiting | Role::Nobody => {}
            },
            DriverEvent::Eof { conn } => match self.role(conn) {
                Role::Client(key) => self.client_eof(key),
                Role::BackendConn { backend_conn, .. } => {
                    self.backend_conns[backend_conn as usize].eof = true;
                    self.enqueue_backend_conn(backend_conn);
                }
                Role::Stream(stream) => self.stream_eof(stream),
                Role::Check(at) => self.check_over(at as usize, false),
                Role::Sink => self.sink_eof(),
                Role::Waiting | Role::Nobody => {}
            },
            DriverEvent::Failed { conn, fault: _ } => self.conn_failed(conn),
            DriverEvent::Drained { conn } => match self.role(conn) {
                Role::Client(key) => {
                    self.unblock = true;
                    if self.sessions.get(key).is_some_and(|session| session.wait == Wait::Client) {
                        self.enqueue_session(key);
                    }
                }
                Role::BackendConn { .. } => self.unblock = true,
                Role::Sink => self.sink_drained(),
                Role::Stream(_) | Role::Check(_) | Role::Waiting | Role::Nobody => {}
            },
            // Seen to when all events are handled.
            DriverEvent::Woken => {}
        }
    }

    /// The driver has lost a connection.
    fn conn_failed(&mut self, conn: Handle) {
        match self.role(conn) {
            Role::Client(key) => self.end_session(key, false),
            Role::BackendConn { backend_conn, .. } => self.backend_conn_lost(backend_conn),
            Role::Waiting => self.waiting.retain(|waiting| *waiting != conn),
            Role::Stream(stream) => self.stream_failed(stream),
            Role::Check(at) => {
                self.backends[at as usize].health.check.conn = None;
                self.check_over(at as usize, false);
            }
            Role::Sink => self.sink_failed(),
            Role::Nobody => {}
        }
    }

    /// What a connection is to us, if it is still that: its number may have had another one's role before, or since.
    fn role(&self, conn: Handle) -> Role {
        let role = self.roles[conn.index as usize];
        let current = match role {
            Role::Nobody => return Role::Nobody,
            Role::Waiting => self.waiting.iter().copied().find(|waiting| *waiting == conn),
            Role::Client(key) => self.sessions.get(key).map(|session| session.conn),
            Role::BackendConn { backend_conn, epoch } => {
                let backend_conn = &self.backend_conns[backend_conn as usize];
                if backend_conn.epoch == epoch { backend_conn.conn } else { None }
            }
            Role::Check(at) => self.backends[at as usize].health.check.conn,
            Role::Stream(_) | Role::Sink => self.merge_conn(role),
        };
        if current == Some(conn) { role } else { Role::Nobody }
    }

    /// Wakes what waited for something shared: sessions that were refused room, links held up by a client.
    fn resume_waiting(&mut self) {
        self.backends.iter_mut().for_each(|backend| backend.promised = 0);
        for _ in 0..self.blocked.len() {
            let Some(key) = self.blocked.pop_front() else { break };
            let wants = self.sessions.get(key).and_then(|session| session.wants);
            if wants.is_some_and(|backend| !self.promise(backend)) {
                self.blocked.push_back(key);
                continue;
            }
            if let Some(session) = self.sessions.get_mut(key)
                && session.wait == Wait::Shared
            {
                session.wait = Wait::Nothing;
                if let Some(backend) = session.wants.take() {
                    self.backends[backend as usize].pending -= 1;
                }
                self.enqueue_session(key);
            }
        }
        while let Some(backend_conn) = self.stalled.pop() {
            self.backend_conns[backend_conn as usize].is_listed = false;
            let state = &self.backend_conns[backend_conn as usize];
            if state.stalled.is_some() || state.wants_huge {
                self.enqueue_backend_conn(backend_conn);
            }
        }
    }

    fn release_fills(&mut self) {
        for key in self.filled.drain(..) {
            if let Some(session) = self.sessions.get_mut(key) {
                session.fill = None;
            }
        }
        for backend_conn in self.filled_conns.drain(..) {
            self.backend_conns[backend_conn as usize].fill = None;
        }
    }
}

/// Splits a worker into the tools an inbox needs and the rest.
macro_rules! tools {
    ($worker:expr) => {
        ParseContext {
            engine: &*$worker.setup.engine,
            pieces: &mut $worker.pieces,
            frames: &mut $worker.frames,
            pool: &$worker.pool,
            whole_bytes_max: $worker.setup.whole_bytes_max,
            huge_reserve: 0,
        }
    };
}
use tools;

/// Room for so many tasks, and those of the merge, if there is one.
fn tasks(count: usize, hub: Option<&Hub>) -> VecDeque<Task> {
    VecDeque::with_capacity(count + hub.map_or(0, |hub| hub.tree.tasks() as usize))
}

/// Huge buffers that requests leave: replies must find one where requests have taken theirs, or both would wait.
fn huge_reserve(setup: &Setup, huge_count: u32) -> u32 {
    if setup.slots.is_empty() { 0 } else { huge_count / 2 }
}

/// Pieces of messages that may be kept: a few for each buffer.
fn pieces_max(buffers: &PoolConfig) -> usize {
    (buffers.small_count + buffers.large_count + buffers.huge_count) as usize * 4
}

/// The buffers that a worker's part of the bytes for them is made into.
fn pool_of(setup: &Setup, workers: usize) -> PoolConfig {
    let bytes = setup.limits.buffer_memory / workers as u64;
    let huge_count = crate::setup::requirements::huge_count(setup.whole_bytes_max, bytes);
    let bytes = bytes - u64::from(huge_count) * u64::from(HUGE_BYTES);
    PoolConfig {
        huge_count,
        small_count: (bytes / 4 / u64::from(SMALL_BYTES)).max(64) as u32,
        large_count: (bytes * 3 / 4 / u64::from(LARGE_BYTES)).max(64) as u32,
    }
}

/// The connections to all backends, none of them dialled yet.
fn backend_conns_of(setup: &Setup) -> (Vec<BackendConn>, Vec<Backend>) {
    let mut backend_conns = Vec::new();
    let mut backends = Vec::new();
    for (index, channel) in setup.slots.iter().copied().enumerate() {
        let shared_conn = backend_conns.len() as u32;
        let is_relay = setup.is_relay;
        let exclusive = setup.protocol_of(channel).exclusive || is_relay;
        let dedicated_max = setup.max_dedicated_connections(channel);
        let dedicated = shared_conn + 1..shared_conn + 1 + dedicated_max;
        let mut spare = Vec::with_capacity(dedicated_max as usize);
        spare.extend(dedicated.clone().rev().filter(|_| exclusive));
        backend_conns.push(BackendConn::new(index as u32, exclusive));
        backend_conns.extend((0..dedicated_max).map(|_| BackendConn::new(index as u32, true)));
        backends.push(Backend {
            life: BackendLife::Free,
            endpoint: NOWHERE,
            channel,
            element: 0,
            shared: shared_conn,
            dedicated,
            failures: 0,
            exclusive,
            is_relay,
            idle: Vec::with_capacity(1 + dedicated_max as usize),
            spare,
            promised: 0,
            pending: 0,
            health: BackendHealth::default(),
            is_up: false,
        });
    }
    (backend_conns, backends)
}

/// Where the backend of a slot is that nobody ever had.
const NOWHERE: Endpoint = Endpoint::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));
/// Connections that linger after their session's slot was given back.
const LINGERING_CONNS_MAX: usize = 64;
