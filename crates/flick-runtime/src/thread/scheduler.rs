//! A thread that several services share, each with a worker of its own: driver, buffers, tables and limits.
//! Promises: a service that was idle runs as soon as it has work, after at most one quantum of each other; a quantum
//! takes about [`QUANTUM_NS`], at most [`QUANTUM_NS_MAX`], plus the rest of a message, or up to [`LONE_QUANTUM_NS`]
//! while no other service has had work for [`LONE_AFTER_NS`]; under load each service gets processor time by its
//! weight, and never more than its maximum; one that panics ends its program and no other.
//! Refuses: interrupting a task. Steps of tasks are bounded, and the clock is read between two.
//! Source: FLICK §5.2, cooperative scheduling, one layer up; deficit round robin (Shreedhar and Varghese, 1995).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flick_net::{AnyDriver, Driver, Endpoint, Poller, PrereadConn, SharedListener, Waker, monotonic_ns};

use crate::clock::thread_cpu_ns;
use crate::limits::{LONE_AFTER_NS, LONE_LONG_NS, QUANTUM_NS};
use crate::shared::Shared;
use crate::thread::cpu_share::CpuShare;
use crate::worker::Worker;

/// Outcome of a worker that has ended.
pub enum WorkerExit {
    /// It was asked to, or the system refused.
    Over(std::io::Result<()>),
    /// A broken invariant of ours.
    Panicked(Box<dyn Any + Send>),
}

/// The services of one program: they share its dictionaries, so they fall together.
#[derive(Default)]
pub struct ProgramGroup {
    services: Mutex<Vec<Arc<Shared>>>,
    wakers: Mutex<Vec<Waker>>,
    has_fallen: AtomicBool,
}

impl ProgramGroup {
    /// Adds what its services are stopped by.
    pub fn add_service(&self, shared: Arc<Shared>) {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).push(shared);
    }

    /// Adds what one of its workers is woken by.
    pub fn add_waker(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// Whether a panic has stopped it.
    pub fn has_fallen(&self) -> bool {
        self.has_fallen.load(Ordering::Acquire)
    }

    /// Stops all its services on all threads, because one of them has panicked.
    pub fn stop(&self) {
        self.has_fallen.store(true, Ordering::Release);
        self.services.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|shared| shared.stop());
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Waker::wake);
    }
}

/// A service on this thread.
pub struct ScheduledService {
    worker: Option<Worker<AnyDriver>>,
    name: String,
    group: Arc<ProgramGroup>,
    shared: Arc<Shared>,
    end: Option<WorkerExit>,
    /// It has something to do, or something has arrived.
    is_ready: bool,
    /// It is not watched, because it may not run before a time.
    is_held: bool,
    /// It had nothing to do when it was last asked.
    has_slept: bool,
    /// Something has come for it since the last look.
    is_named: bool,
    /// Time at which the poller last reported an event for it.
    polled_ns: u64,
    /// Its last quantum beside quiet services was long: it was, or the thread was interrupted, which the clock counts
    /// too. So its next one is measured by processor time.
    seems_long: bool,
    budget: CpuShare,
}

impl ScheduledService {
    /// A worker that has its listeners and has not started.
    pub fn new(
        worker: Worker<AnyDriver>,
        name: String,
        group: Arc<ProgramGroup>,
        shared: Arc<Shared>,
    ) -> Self {
        let (weight, max_percent) = worker.share();
        Self {
            worker: Some(worker),
            name,
            group,
            shared,
            end: None,
            is_ready: true,
            is_held: false,
            has_slept: true,
            is_named: false,
            polled_ns: 0,
            seems_long: false,
            budget: CpuShare::new(weight, max_percent),
        }
    }

    /// Makes clients that are accepted at a shared address use rings in shared memory, where they do so too.
    pub fn offer_rings_at(&mut self, at: &Endpoint) {
        if let Some(worker) = &mut self.worker {
            worker.driver().offer_rings_at(at);
        }
    }

    /// Runs to its end on a thread of its own.
    pub fn run_alone(mut self) -> WorkerExit {
        let worker = self.worker.take();
        let mut worker = worker.expect("a member has its worker until it ends");
        let outcome = catch_unwind(AssertUnwindSafe(|| worker.run()));
        match outcome {
            Ok(result) => WorkerExit::Over(result),
            Err(panic) => {
                self.group.stop();
                WorkerExit::Panicked(panic)
            }
        }
    }

    /// It has something to do, and may.
    fn is_runnable(&self) -> bool {
        self.is_ready && !self.is_held && self.worker.is_some()
    }

    /// Whether it has had no work for so long that the others need not wait for it.
    fn is_quiet(&self, now_ns: u64) -> bool {
        self.worker.is_none() || (!self.is_ready && now_ns.saturating_sub(self.polled_ns) > LONE_AFTER_NS)
    }

    /// Runs it for a quantum, and returns the time that it used, in nanoseconds. `cpu_ns`: processor time of the thread
    /// so far, if it was just read.
    fn run(&mut self, cpu_ns: &mut Option<u64>) -> u64 {
        let Some(worker) = &mut self.worker else { return 0 };
        // A worker that has slept may have answered all that came; a busy one sends everything in its next iteration.
        let flushes = self.has_slept;
        (self.is_ready, self.has_slept) = (false, false);
        let quantum = self.budget.quantum();
        let begun_ns = cpu_ns.unwrap_or_else(thread_cpu_ns);
        let outcome = catch_unwind(AssertUnwindSafe(|| worker.short_iteration(&quantum, flushes)));
        let ended_ns = thread_cpu_ns();
        *cpu_ns = Some(ended_ns);
        let used_ns = ended_ns.saturating_sub(begun_ns);
        worker.note_iteration(used_ns);
        self.budget.spend(used_ns);
        self.note_end(outcome);
        used_ns
    }

    /// Waits at most `wait` for an event of this service or of the poller that its driver hosts, then runs it for a
    /// quantum, which may be longer: all others are quiet. Returns the time that it used, in nanoseconds, and whether
    /// it has waited. This time is no debt, and the clock says enough, which costs no system call.
    fn run_lone(&mut self, wait: Option<Duration>) -> (u64, bool) {
        let Some(worker) = &mut self.worker else { return (0, false) };
        let quantum = self.budget.lone_quantum().expect("a service with a maximum does not run alone");
        let reads_clock = !self.seems_long;
        let begun_ns = if reads_clock { monotonic_ns() } else { thread_cpu_ns() };
        let before_ns = worker.driver_ref().waited_ns();
        let outcome = catch_unwind(AssertUnwindSafe(|| worker.waiting_iteration(wait, &quantum)));
        let waited_ns = worker.driver_ref().waited_ns() - before_ns;
        let used_ns = if reads_clock {
            monotonic_ns().saturating_sub(begun_ns + waited_ns)
        } else {
            thread_cpu_ns().saturating_sub(begun_ns)
        };
        worker.note_iteration(used_ns);
        self.seems_long = used_ns > LONE_LONG_NS;
        if !(reads_clock && self.seems_long) {
            self.budget.spend_lone(used_ns);
        }
        self.note_end(outcome);
        (used_ns, waited_ns > 0)
    }

    /// Notes that it has ended, if an iteration says so.
    fn note_end(&mut self, outcome: std::thread::Result<std::io::Result<bool>>) {
        let end = match outcome {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => WorkerExit::Over(Ok(())),
            Ok(Err(error)) => WorkerExit::Over(Err(error)),
            Err(panic) => {
                tracing::error!(service = self.name, "a broken invariant: the program of this service stops");
                self.group.stop();
                WorkerExit::Panicked(panic)
            }
        };
        self.end = Some(end);
        self.worker = None;
    }
}

/// An address of several services, and by first byte which member it is for.
pub struct SharedAddressListener {
    /// The address.
    pub listener: SharedListener,
    /// By byte: index of a member of the crew.
    pub whose: Box<[Option<u16>; 256]>,
    /// The services behind it, by index of a member.
    pub members: Vec<u16>,
}

impl SharedAddressListener {
    /// All services behind it take no new clients any more.
    fn all_drain(&self, members: &[ScheduledService]) -> bool {
        self.members.iter().all(|index| members[usize::from(*index)].shared.drain_asked().is_some())
    }
}

/// A thread's services.
pub struct Scheduler {
    members: Vec<ScheduledService>,
    shared_listeners: Vec<SharedAddressListener>,
    /// Time of the last poll in which a client connected to one of those.
    opened_ns: u64,
    poller: Poller,
    /// Index of the service that the round robin among services that always have work checks next.
    next: usize,
    /// Number of completed rounds of that round robin.
    round: u64,
}

impl Scheduler {
    /// Watches all. Errors: the system's.
    pub fn new(
        mut members: Vec<ScheduledService>,
        shared_listeners: Vec<SharedAddressListener>,
    ) -> std::io::Result<Self> {
        let mut poller = Poller::new(members.len() + shared_listeners.len())?;
        for (token, member) in members.iter_mut().enumerate() {
            if let Some(worker) = &mut member.worker {
                worker.driver().register(&mut poller, token as u32)?;
            }
        }
        for (index, shared_listener) in shared_listeners.iter().enumerate() {
            poller.add(&shared_listener.listener, (members.len() + index) as u32)?;
        }
        Ok(Self { members, shared_listeners, opened_ns: 0, poller, next: 0, round: 1 })
    }

    /// Runs all services to their ends. How each ended, in their order.
    pub fn run(mut self) -> Vec<WorkerExit> {
        for member in &mut self.members {
            let Some(worker) = &mut member.worker else { continue };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.start())) {
                member.group.stop();
                (member.end, member.worker) = (Some(WorkerExit::Panicked(panic)), None);
            }
        }
        while self.members.iter().any(|member| member.worker.is_some()) {
            if let Err(error) = self.iterations() {
                // Without its poll set the thread can serve no client.
                let kind = error.kind();
                for member in self.members.iter_mut().filter(|member| member.worker.is_some()) {
                    (member.end, member.worker) = (Some(WorkerExit::Over(Err(kind.into()))), None);
                }
            }
        }
        let ended = |member: ScheduledService| member.end.unwrap_or(WorkerExit::Over(Ok(())));
        self.members.into_iter().map(ended).collect()
    }

    /// Waits until a service has work, then runs services for about one quantum, and one more.
    fn iterations(&mut self) -> std::io::Result<()> {
        let timeout = self.timeout()?;
        let now_ns = self.look(timeout)?;
        if let Some(index) = self.lone(now_ns)
            && self.iterations_of_lone(index)?
        {
            return Ok(());
        }
        let (mut used_ns, mut cpu_ns) = (0, None);
        while used_ns < QUANTUM_NS
            && let Some(index) = self.awake()
        {
            used_ns += self.members[index].run(&mut cpu_ns);
        }
        if let Some(index) = self.busy() {
            self.members[index].run(&mut cpu_ns);
        }
        Ok(())
    }

    /// Waits at most `timeout` until the poller has a report; marks the services that have work, and lets clients in.
    /// Returns the time.
    fn look(&mut self, timeout: Option<Duration>) -> std::io::Result<u64> {
        let (members, shared_listeners) = (&mut self.members, self.shared_listeners.len());
        let (mut opened, mut named) = (false, false);
        let count = members.len();
        self.poller.wait(timeout, |token| match members.get_mut(token as usize) {
            Some(member) => (member.is_ready, member.is_named, named) = (true, true, true),
            None => opened |= (token as usize) < count + shared_listeners,
        })?;
        let now_ns = monotonic_ns();
        if named {
            for member in members.iter_mut().filter(|member| member.is_named) {
                (member.is_named, member.polled_ns) = (false, now_ns);
            }
        }
        let is_due = |shared_listener: &SharedAddressListener| {
            shared_listener.listener.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns)
        };
        let must_close = |shared_listener: &SharedAddressListener| {
            shared_listener.listener.is_open() && shared_listener.all_drain(&self.members)
        };
        if opened {
            self.opened_ns = now_ns;
        }
        if opened
            || self
                .shared_listeners
                .iter()
                .any(|shared_listener| is_due(shared_listener) || must_close(shared_listener))
        {
            self.let_in(now_ns)?;
        }
        Ok(now_ns)
    }

    /// Returns the service that has work, if all others are quiet.
    fn lone(&self, now_ns: u64) -> Option<usize> {
        let index = self.members.iter().position(ScheduledService::is_runnable)?;
        let member = &self.members[index];
        let may_be_lone = member.budget.lone_quantum().is_some() && member.shared.drain_asked().is_none();
        (may_be_lone && self.is_lone(index, now_ns)).then_some(index)
    }

    /// Runs a service until another one has work. Its driver waits, also for the poller, so that its requests cost no
    /// system call of the poller. Returns `false`, and has done nothing, if the system refuses that.
    fn iterations_of_lone(&mut self, index: usize) -> std::io::Result<bool> {
        let due_ns = self.due_ns(monotonic_ns(), Some(index))?;
        let (member, poller) = (&mut self.members[index], &mut self.poller);
        let Some(worker) = &mut member.worker else { return Ok(false) };
        if worker.driver().host_poller(poller, index as u32).is_err() {
            return Ok(false);
        }
        let mut unseen_ns = 0;
        loop {
            let now_ns = monotonic_ns();
            let member = &mut self.members[index];
            let is_due = due_ns.is_some_and(|due_ns| due_ns <= now_ns);
            if is_due || member.shared.drain_asked().is_some() {
                break;
            }
            let wait = due_ns.map(|due_ns| Duration::from_nanos(due_ns - now_ns));
            let (used_ns, has_waited) = member.run_lone(wait);
            // A wait sees a report at once.
            unseen_ns = if has_waited { 0 } else { unseen_ns + used_ns };
            // Its driver ended with it, and hosts nothing.
            let Some(worker) = &mut member.worker else { return Ok(true) };
            if worker.driver().take_poller_ready() || unseen_ns >= QUANTUM_NS {
                unseen_ns = 0;
                let now_ns = self.look(Some(Duration::ZERO))?;
                if !self.is_lone(index, now_ns) {
                    break;
                }
            }
        }
        let (member, poller) = (&mut self.members[index], &mut self.poller);
        (member.is_ready, member.has_slept) = (true, true);
        if let Some(worker) = &mut member.worker {
            worker.driver().release_poller(poller, index as u32)?;
        }
        Ok(true)
    }

    /// Whether for `LONE_AFTER_NS` no other service has had an event, and no client has connected to a shared listener.
    fn is_lone(&self, index: usize, now_ns: u64) -> bool {
        let mut others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        let is_opened = now_ns.saturating_sub(self.opened_ns) <= LONE_AFTER_NS;
        !is_opened && others.all(|(_, member)| member.is_quiet(now_ns))
    }

    /// Returns the service that has the most time left of those that slept and have work now.
    fn awake(&mut self) -> Option<usize> {
        let round = self.round;
        let awake = self.members.iter_mut().enumerate();
        let awake = awake.filter(|(_, member)| member.has_slept && member.is_runnable());
        let with_time = awake.filter_map(|(index, member)| Some((member.budget.pay(round)?, index)));
        with_time.max_by_key(|(credit_ns, _)| *credit_ns).map(|(_, index)| index)
    }

    /// Returns the next service of the round robin: one that always has work, or has used up its time.
    fn busy(&mut self) -> Option<usize> {
        for _ in 0..self.members.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.members.len();
            self.round += u64::from(self.next == 0);
            let member = &mut self.members[index];
            if !member.is_runnable() {
                continue;
            }
            if member.budget.pay(self.round).is_some() {
                return Some(index);
            }
        }
        None
    }

    /// Returns the longest time that the thread may sleep; `None`: until an event. Marks the services that have work,
    /// and those that must wait although they have some. Errors: the system's.
    fn timeout(&mut self) -> std::io::Result<Option<Duration>> {
        let now_ns = monotonic_ns();
        let next_ns = self.due_ns(now_ns, None)?;
        Ok(next_ns.map(|next_ns| Duration::from_nanos(next_ns.saturating_sub(now_ns))))
    }

    /// Returns when a service, other than `but`, or a shared listener must run although no event arrives.
    fn due_ns(&mut self, now_ns: u64, but: Option<usize>) -> std::io::Result<Option<u64>> {
        let mut next_ns: Option<u64> = None;
        let mut note = |at_ns: u64| next_ns = Some(next_ns.map_or(at_ns, |next: u64| next.min(at_ns)));
        for (token, member) in self.members.iter_mut().enumerate() {
            let Some(worker) = &mut member.worker else { continue };
            if but == Some(token) {
                continue;
            }
            if !member.is_ready {
                match worker.quantum_due_ns() {
                    Some(due_ns) if due_ns <= now_ns => member.is_ready = true,
                    Some(due_ns) => {
                        member.has_slept = true;
                        note(due_ns);
                    }
                    None => member.has_slept = true,
                }
            }
            let held = if member.is_ready { member.budget.held_until_ns(now_ns) } else { None };
            if let Some(until_ns) = held {
                note(until_ns);
            } else if member.is_ready {
                note(now_ns);
            }
            if member.is_held != held.is_some() {
                member.is_held = held.is_some();
                let Some(worker) = &member.worker else { continue };
                if member.is_held {
                    worker.note_throttled();
                }
                worker.driver_ref().set_paused(&mut self.poller, token as u32, member.is_held)?;
            }
        }
        self.shared_listeners
            .iter()
            .filter_map(|shared_listener| shared_listener.listener.deadline_ns())
            .for_each(note);
        Ok(next_ns)
    }

    /// Hands each client that was accepted on an address of several services to its service.
    fn let_in(&mut self, now_ns: u64) -> std::io::Result<()> {
        for shared_listener in &mut self.shared_listeners {
            if !shared_listener.listener.is_open() {
                continue;
            }
            let members = &mut self.members;
            let is_over = shared_listener.all_drain(members);
            let (whose, before) = (&shared_listener.whose, shared_listener.listener.dropped());
            let mut unknown = 0;
            let arrived = |PrereadConn { socket, peer, first_byte }| {
                let member = whose[usize::from(first_byte)].map(|index| &mut members[usize::from(index)]);
                match member.and_then(|member| Some((&mut member.is_ready, member.worker.as_mut()?))) {
                    Some((is_ready, worker)) => {
                        *is_ready = true;
                        worker.adopt(socket, peer);
                    }
                    None => unknown += 1,
                }
            };
            if is_over {
                shared_listener.listener.finish(now_ns, arrived);
            } else {
                shared_listener.listener.poll(now_ns, arrived)?;
            }
            let silent = shared_listener.listener.dropped() - before;
            let first = shared_listener
                .members
                .first()
                .and_then(|index| members[usize::from(*index)].worker.as_ref());
            if let Some(worker) = first
                && (silent > 0 || unknown > 0)
            {
                worker.note_strangers(silent, unknown);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flick_net::{Endpoint, ListenSocket, SharedListener, monotonic_ns};

    use super::{Scheduler, SharedAddressListener};
    use crate::limits::LONE_AFTER_NS;

    #[test]
    fn services_of_one_address_never_had_long_quanta() {
        let address = Endpoint::Tcp("127.0.0.1:0".parse().expect("an address of the loopback"));
        let socket = ListenSocket::open(&address).expect("a free port");
        let listener = SharedListener::new(socket, 1_000_000_000).expect("a listening socket");
        let address = SharedAddressListener { listener, whose: Box::new([None; 256]), members: Vec::new() };
        let mut scheduler = Scheduler::new(Vec::new(), vec![address]).expect("an epoll");
        let now_ns = monotonic_ns();
        assert!(scheduler.is_lone(0, now_ns), "no client has come");
        scheduler.opened_ns = now_ns;
        assert!(!scheduler.is_lone(0, now_ns + LONE_AFTER_NS), "others may come");
        assert!(scheduler.is_lone(0, now_ns + LONE_AFTER_NS + 1));
    }
}
