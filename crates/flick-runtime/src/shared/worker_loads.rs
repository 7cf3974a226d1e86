//! Published loads of the workers of a service, and the choice of the worker that serves a new client.
//! Promises: nothing here is on the path of a message. A worker publishes its load once in [`LOAD_WINDOW_NS`], in a
//! cache line of its own, and reads the others' only when a client comes while it was busy for a whole window. Each
//! client that is handed to a worker counts as load there until its next window, so that one worker does not get all of
//! them.
//! Refuses: moving a client that has sent something. The kernel spreads connections evenly on average; this is for when
//! it did not.
//! Source: FLICK §5, scavenging; here the idle worker is given clients, as it sleeps in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::limits::{BUSY_PER_MILLE, CLIENT_LOAD_PER_MILLE, IDLE_PER_MILLE, LOAD_WINDOW_NS};

/// The load that a worker publishes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerLoad {
    /// Busy time of its last window, and what was handed to it since.
    per_mille: AtomicU32,
    /// Time at which it began to wait for events; 0 while it runs.
    idle_since_ns: AtomicU64,
}

/// The published loads of all workers of a service.
#[derive(Debug, Default)]
pub(crate) struct WorkerLoads(Vec<WorkerLoad>);

impl WorkerLoads {
    /// Loads of `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| WorkerLoad::default()).collect())
    }

    /// Estimated load of a worker.
    fn per_mille(&self, worker: usize, now_ns: u64) -> u32 {
        let context = &self.0[worker];
        let since_ns = context.idle_since_ns.load(Ordering::Relaxed);
        if since_ns > 0 && now_ns.saturating_sub(since_ns) > LOAD_WINDOW_NS {
            // Its last window is outdated; a client handed to it meanwhile would have reset `idle_since_ns`.
            return 0;
        }
        context.per_mille.load(Ordering::Relaxed)
    }
}

/// A worker's own part.
#[derive(Debug)]
pub(crate) struct ConnectionBalancer {
    loads: Arc<WorkerLoads>,
    index: usize,
    window_from_ns: u64,
    /// Time it had waited when the window began.
    waited_ns: u64,
    per_mille: u32,
}

impl ConnectionBalancer {
    /// Creates the balancer of worker `index`; `None` where it is the only worker.
    pub(crate) fn new(loads: Arc<WorkerLoads>, index: usize) -> Option<Self> {
        (loads.0.len() > 1).then_some(Self { loads, index, window_from_ns: 0, waited_ns: 0, per_mille: 0 })
    }

    /// Publishes since when the worker has waited for events; `None`: it runs again.
    pub(crate) fn is_idle(&self, since_ns: Option<u64>) {
        self.loads.0[self.index].idle_since_ns.store(since_ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// An event-loop iteration begins; `waited_ns`: total time that the worker has waited for events. Publishes the
    /// load once per window.
    pub(crate) fn iteration(&mut self, now_ns: u64, waited_ns: u64) {
        if self.window_from_ns == 0 {
            (self.window_from_ns, self.waited_ns) = (now_ns, waited_ns);
        }
        let passed_ns = now_ns.saturating_sub(self.window_from_ns);
        if passed_ns < LOAD_WINDOW_NS {
            return;
        }
        let idle = waited_ns.saturating_sub(self.waited_ns).saturating_mul(1000) / passed_ns;
        self.per_mille = 1000 - idle.min(1000) as u32;
        (self.window_from_ns, self.waited_ns) = (now_ns, waited_ns);
        self.loads.0[self.index].per_mille.store(self.per_mille, Ordering::Relaxed);
    }

    /// The worker that a new client of this worker is handed to: the least loaded one, if this one is busy and that one
    /// is idle.
    pub(crate) fn lighter(&self, now_ns: u64) -> Option<usize> {
        if self.per_mille < BUSY_PER_MILLE {
            return None;
        }
        let others = (0..self.loads.0.len()).filter(|worker| *worker != self.index);
        let (load, worker) = others.map(|worker| (self.loads.per_mille(worker, now_ns), worker)).min()?;
        (load <= IDLE_PER_MILLE).then_some(worker)
    }

    /// Adds the estimated load of a client to the `worker` that it was handed to.
    pub(crate) fn handed(&self, worker: usize, now_ns: u64) {
        let load = self.loads.per_mille(worker, now_ns) + CLIENT_LOAD_PER_MILLE;
        let context = &self.loads.0[worker];
        // It is being woken.
        context.idle_since_ns.store(0, Ordering::Relaxed);
        context.per_mille.store(load, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionBalancer, WorkerLoads};
    use crate::limits::LOAD_WINDOW_NS as WINDOW;
    use std::sync::Arc;

    /// Checks how many of a hundred clients that come to the first of two workers at once are handed to the second.
    /// `idle`: how long each was idle, in thousandths of a window.
    fn check(idle: [u64; 2], expected: usize) {
        let loads = Arc::new(WorkerLoads::new(2));
        let mut workers =
            [0, 1].map(|index| ConnectionBalancer::new(Arc::clone(&loads), index).expect("there are two"));
        for (worker, idle) in workers.iter_mut().zip(idle) {
            worker.iteration(WINDOW, 0);
            worker.iteration(2 * WINDOW, idle * WINDOW / 1000);
        }
        let handed = (0..100).filter(|_| {
            let lighter = workers[0].lighter(2 * WINDOW);
            lighter.iter().for_each(|worker| workers[0].handed(*worker, 2 * WINDOW));
            lighter.is_some()
        });
        assert_eq!(handed.count(), expected, "{idle:?}");
    }

    #[test]
    fn a_busy_worker_hands_clients_to_one_that_is_idle_and_no_herd() {
        check([0, 1000], 11);
        check([50, 900], 9);
    }

    #[test]
    fn no_client_moves_where_both_workers_are_busy_or_the_first_is_not() {
        check([0, 400], 0);
        check([0, 0], 0);
        check([200, 1000], 0);
        check([1000, 1000], 0);
    }

    #[test]
    fn who_has_slept_for_a_window_is_idle_whatever_was_before() {
        let loads = Arc::new(WorkerLoads::new(2));
        let mut workers =
            [0, 1].map(|index| ConnectionBalancer::new(Arc::clone(&loads), index).expect("there are two"));
        workers.iter_mut().for_each(|worker| worker.iteration(WINDOW, 0));
        workers.iter_mut().for_each(|worker| worker.iteration(2 * WINDOW, 0));
        workers[1].is_idle(Some(2 * WINDOW));
        assert_eq!(workers[0].lighter(2 * WINDOW + 1), None);
        assert_eq!(workers[0].lighter(3 * WINDOW + 1), Some(1));
        workers[0].handed(1, 3 * WINDOW + 1);
        assert_eq!(workers[0].lighter(3 * WINDOW + 1), Some(1), "one client is no herd");
        workers[1].is_idle(None);
        workers[1].iteration(4 * WINDOW, 0);
        assert_eq!(workers[0].lighter(4 * WINDOW), None, "it runs again, and its last window was full");
    }

    #[test]
    fn a_single_worker_hands_no_client_over() {
        assert!(ConnectionBalancer::new(Arc::new(WorkerLoads::new(1)), 0).is_none());
    }
}
