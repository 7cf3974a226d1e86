//! State that the workers of a service share with each other and the control thread: a few numbers, none of them on the
//! path of a message.

pub(crate) mod connection_limits;
pub mod handoff;
pub(crate) mod worker_loads;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flick_net::{Endpoint, ListenSockets};

use crate::config::Limits;
use crate::observe::outlier::UnhealthyBackend;
use crate::observe::session_list::SessionQuery;
use crate::observe::tap::TapQueries;
use crate::shared::connection_limits::{ConnectionRate, ConnectionsPerIp};
use crate::shared::handoff::{HandoffQueue, SessionCount, Successor};
use crate::shared::worker_loads::WorkerLoads;

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const REPLACED: u8 = 2;
const STOPPED: u8 = 3;

/// The shared numbers.
#[derive(Debug, Default)]
pub struct Shared {
    state: AtomicU8,
    drain_ms: AtomicU64,
    /// Of this service and of those that it replaces, which serve some of its clients still.
    sessions: SessionCount,
    /// Only of a service that bounds the clients of an address.
    connection_limits: OnceLock<ConnectionsPerIp>,
    accepts: ConnectionRate,
    /// By worker: the clients that are handed to it.
    intakes: Vec<Arc<HandoffQueue>>,
    /// By worker: the query for the list of its clients.
    questions: Vec<SessionQuery>,
    /// Changes of what workers copy to an observer.
    taps: Arc<TapQueries>,
    loads: Arc<WorkerLoads>,
    /// A duplicate of every socket that it listens on, by address, for its successor. Closed when the service accepts
    /// no client any more, or clients would wait in a backlog that no worker accepts from.
    kept: Mutex<Vec<(Endpoint, ListenSockets)>>,
    /// By worker of the service that it replaces: the backends that the worker knew to be unhealthy.
    health_problems: Vec<Vec<UnhealthyBackend>>,
    /// Service that takes over its clients; `None`: none yet.
    successor: Mutex<Option<Arc<dyn Successor>>>,
}

impl Shared {
    /// State of a service with `workers` workers, which takes over clients from the service that it replaces, if any.
    pub(crate) fn new(workers: usize, earlier: Option<&Shared>) -> Self {
        let sessions = earlier.map_or_else(SessionCount::default, |earlier| earlier.sessions.clone());
        let intakes = (0..workers).map(|_| Arc::default()).collect();
        let questions = (0..workers).map(|_| SessionQuery::default()).collect();
        let taps = Arc::new(TapQueries::new(workers));
        let loads = Arc::new(WorkerLoads::new(workers));
        Self { sessions, intakes, questions, taps, loads, ..Self::default() }
    }

    /// Sets the unhealthy backends that the workers of the replaced service knew.
    pub(crate) fn knowing(self, health_problems: Vec<Vec<UnhealthyBackend>>) -> Self {
        Self { health_problems, ..self }
    }

    /// Returns the unhealthy backends that a worker knows from the start, from the service that this one replaces.
    pub(crate) fn health_problems(&self, worker: usize) -> &[UnhealthyBackend] {
        self.health_problems.get(worker % self.health_problems.len().max(1)).map_or(&[], Vec::as_slice)
    }

    /// Makes what the limits of a service need, once, whichever worker comes first.
    pub(crate) fn prepare(&self, limits: &Limits) {
        if limits.max_connections_per_ip > 0 {
            self.connection_limits.get_or_init(|| ConnectionsPerIp::new(limits.max_connections));
        }
    }

    /// Returns the number of clients of each address; `None` if it is not bounded.
    pub(crate) fn connection_limits(&self) -> Option<&ConnectionsPerIp> {
        self.connection_limits.get()
    }

    /// Returns the rate limiter of new clients.
    pub(crate) fn accepts(&self) -> &ConnectionRate {
        &self.accepts
    }

    /// Asks all workers to finish what they have; also when they are being replaced.
    pub fn drain(&self, deadline: Duration) {
        self.end(deadline, DRAINING, &[RUNNING, REPLACED]);
    }

    /// Asks all workers to hand over what they can, and to finish the rest.
    pub fn replace(&self, deadline: Duration, successor: Arc<dyn Successor>) {
        self.set_successor(successor);
        self.end(deadline, REPLACED, &[RUNNING]);
    }

    /// Goes on to the state `how` from one of these; from any other it stays as it is.
    fn end(&self, deadline: Duration, how: u8, from: &[u8]) {
        if !from.contains(&self.state.load(Ordering::Relaxed)) {
            return;
        }
        self.drain_ms.store(deadline.as_millis() as u64, Ordering::Relaxed);
        // Before workers learn of it: a client that connects between a worker's last accept and the close of the last
        // duplicate would be reset.
        self.kept().clear();
        for from in from {
            let _ = self.state.compare_exchange(*from, how, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The duplicates of its sockets.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Vec<(Endpoint, ListenSockets)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands its clients to a successor.
    pub(crate) fn set_successor(&self, successor: Arc<dyn Successor>) {
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
    }

    /// Returns the service that takes over its clients; `None`: none yet.
    pub(crate) fn successor(&self) -> Option<Arc<dyn Successor>> {
        self.successor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it has a successor.
    pub(crate) fn is_replaced(&self) -> bool {
        self.state.load(Ordering::Acquire) == REPLACED
    }

    /// Returns the published loads of its workers.
    pub(crate) fn loads(&self) -> Arc<WorkerLoads> {
        Arc::clone(&self.loads)
    }

    /// Returns the queue of the clients that are handed to a worker; `None`: there is no such worker.
    pub(crate) fn intake(&self, worker: usize) -> Option<Arc<HandoffQueue>> {
        self.intakes.get(worker).cloned()
    }

    /// Returns the query for the list of a worker's clients; `None`: there is no such worker.
    pub(crate) fn question(&self, worker: usize) -> Option<&SessionQuery> {
        self.questions.get(worker)
    }

    /// Returns the changes of what workers copy to an observer.
    pub(crate) fn taps(&self) -> &Arc<TapQueries> {
        &self.taps
    }

    /// Returns the queues of the clients that are handed to workers, by worker.
    pub(crate) fn intakes(&self) -> Vec<Arc<HandoffQueue>> {
        self.intakes.clone()
    }

    /// Asks all workers to stop at once.
    pub fn stop(&self) {
        self.state.store(STOPPED, Ordering::Release);
        self.kept().clear();
    }

    /// Returns the time limit of draining; `None` if draining was not asked for.
    pub fn drain_asked(&self) -> Option<Duration> {
        (self.state.load(Ordering::Acquire) >= DRAINING)
            .then(|| Duration::from_millis(self.drain_ms.load(Ordering::Relaxed)))
    }

    /// Whether stopping was asked for.
    pub fn must_stop(&self) -> bool {
        self.state.load(Ordering::Acquire) == STOPPED
    }

    /// Returns the count of its sessions.
    pub fn session_count(&self) -> &SessionCount {
        &self.sessions
    }

    /// Whether the next session would be refused.
    pub fn sessions_full(&self, most: u32) -> bool {
        self.sessions.sessions() >= most
    }
}
