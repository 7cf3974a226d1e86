//! Hub of a merge, shared by its workers: assigns tasks to workers, wakes them, and lets one job follow another.
//! Promises: no lock on the path of an element: the one lock here is taken when a connection comes, and when a job
//! ends. A job begins only when nothing of the one before is left anywhere.
//! Refuses: elements; they go through rings.
//!
//! A job ends in two stages, each over when every worker has gone through it. *Stopping*: no task runs any more, and
//! the connections of the job are closed (aborted, if it has failed). *Clearing*: no task pushes now, so the task
//! that pops from a ring empties it. Then streams may join again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use flick_net::Waker;
use flick_ring::wakeup::WakeSet;
use flick_ring::{Consumer, Producer, ring};

use super::input::{NodeInput, drain};
use super::node::Node;
use super::tree::{TaskId, Tree};
use super::{MergeSetup, chunk_bytes};

/// Outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its result has been passed on.
    Complete,
    /// It has failed, and its connections are reset.
    Failed,
}

/// Stage of the present job; the same for all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStage {
    /// Streams come and are merged.
    Open,
    /// Tasks stop, connections are closed.
    Stopping(JobEnd),
    /// Rings are emptied.
    Clearing,
}

/// A stream that has been let in.
#[derive(Debug)]
pub struct Leaf {
    /// Its number.
    pub stream: u32,
    /// Ring that its bytes are pushed into.
    pub ring: Producer,
}

#[derive(Debug)]
struct Control {
    stage: JobStage,
    /// Workers that have gone through the stage.
    through: u32,
    /// Streams of the present job.
    joined: u32,
    /// No stream may join any more.
    is_draining: bool,
    /// Ends of the rings whose other ends the nodes hold, while no connection uses them.
    leaves: Vec<Option<Producer>>,
    root: Option<Consumer>,
    /// Nodes by worker, until it takes them.
    nodes: Vec<Vec<(TaskId, Node)>>,
}

/// Calls one worker.
#[derive(Debug)]
struct Bell {
    tasks: WakeSet,
    waker: OnceLock<Waker>,
}

impl Bell {
    /// Wakes the worker if a signal `is_due`.
    fn ring(&self, is_due: bool) {
        if is_due && let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// State that the workers of a merge share.
#[derive(Debug)]
pub struct Hub {
    /// The shape.
    pub tree: Tree,
    workers: u32,
    /// By task: the worker that runs it.
    owners: Vec<AtomicU32>,
    bells: Vec<Bell>,
    /// Changes with each stage.
    version: AtomicU32,
    control: Mutex<Control>,
}

impl Hub {
    /// Makes all rings and nodes, and places the nodes: each worker has about as much to do as any other.
    pub fn new(setup: &MergeSetup, workers: usize) -> Self {
        let tree = Tree::new(setup.streams);
        let (mut producers, mut consumers): (Vec<_>, Vec<_>) = tree
            .edges
            .iter()
            .map(|_| ring(setup.ring_bytes))
            .map(|(push, pop)| (Some(push), Some(pop)))
            .unzip();
        let streams = setup.streams as usize;
        let leaves = producers[..streams].iter_mut().map(Option::take).collect();
        let root = consumers.last_mut().and_then(Option::take);
        let mut nodes: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let session_slots = tree.session_slots(workers);
        let chunk = chunk_bytes(setup.ring_bytes);
        for task in 0..tree.nodes {
            let mut inputs = [NodeInput::new(None, 0), NodeInput::new(None, 0)];
            for (at, edge) in tree.edges.iter().enumerate().filter(|(_, edge)| edge.to == task) {
                inputs[edge.side] = NodeInput::new(consumers[at].take(), edge.from);
            }
            let out = tree.edges.iter().position(|edge| edge.from == task).expect("every node has an output");
            let push = producers[out].take().expect("every ring has one producer");
            let is_last = tree.edges[out].to == tree.sink();
            nodes[session_slots[task as usize] as usize]
                .push((task, Node::new(inputs, push, tree.edges[out].to, is_last, chunk)));
        }
        let bell = |_| Bell { tasks: WakeSet::new(tree.tasks()), waker: OnceLock::new() };
        let client_of = |task: TaskId| AtomicU32::new(session_slots[task.min(tree.nodes - 1) as usize]);
        Self {
            workers: workers as u32,
            owners: (0..tree.tasks()).map(client_of).collect(),
            bells: (0..workers).map(bell).collect(),
            version: AtomicU32::new(0),
            control: Mutex::new(Control {
                stage: JobStage::Open,
                through: 0,
                joined: 0,
                is_draining: false,
                leaves,
                root,
                nodes,
            }),
            tree,
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().expect("no worker panics while it holds the lock")
    }

    /// The nodes of a worker; each may take them once.
    pub fn take_nodes(&self, worker: u32) -> Vec<(TaskId, Node)> {
        std::mem::take(&mut self.control().nodes[worker as usize])
    }

    /// Says how a worker is woken from its sleep.
    pub fn set_waker(&self, worker: u32, waker: Waker) {
        let first = self.bells[worker as usize].waker.set(waker);
        assert!(first.is_ok(), "a worker has one waker");
    }

    /// Calls a task.
    pub fn call(&self, task: TaskId) {
        let client_of = self.owners[task as usize].load(Ordering::Acquire);
        let bell = &self.bells[client_of as usize];
        bell.ring(bell.tasks.wake(task));
    }

    /// Calls the task that a task pushes to.
    pub fn call_behind(&self, task: TaskId) {
        let edge = self.tree.edges.iter().find(|edge| edge.from == task);
        self.call(edge.expect("only the sink pushes to no task").to);
    }

    /// Calls the task that the sink pops from.
    pub fn call_before_sink(&self) {
        self.call(self.tree.edges.last().expect("a tree has edges").from);
    }

    fn call_all_workers(&self) {
        self.bells.iter().for_each(|bell| bell.ring(bell.tasks.wake_thread()));
    }

    /// Whether a worker has been called since it last looked.
    pub fn is_called(&self, worker: u32) -> bool {
        self.bells[worker as usize].tasks.is_requested()
    }

    /// Takes the calls of a worker and hands each task to `run`.
    pub fn take_calls(&self, worker: u32, run: impl FnMut(TaskId)) {
        self.bells[worker as usize].tasks.take(run);
    }

    /// Adds a stream, if the present job still lacks one. The worker that adds the last one calls the sink.
    pub fn join(&self, worker: u32) -> Option<Leaf> {
        let mut control = self.control();
        if control.stage != JobStage::Open || control.is_draining || control.joined == self.tree.streams {
            return None;
        }
        let stream = control.joined;
        let ring =
            control.leaves[stream as usize].take().expect("a stream without a feeder has its ring here");
        control.joined += 1;
        let is_last = control.joined == self.tree.streams;
        drop(control);
        self.owners[self.tree.feeder(stream) as usize].store(worker, Ordering::Release);
        if is_last {
            self.call(self.tree.sink());
        }
        Some(Leaf { stream, ring })
    }

    /// Hands the result's end to a worker that has a connection for it. `early`: also while streams are missing.
    pub fn claim_root(&self, worker: u32, early: bool) -> Option<Consumer> {
        let mut control = self.control();
        let is_ready = control.joined == self.tree.streams || (early && !control.is_draining);
        if control.stage != JobStage::Open || !is_ready {
            return None;
        }
        let root = control.root.take()?;
        drop(control);
        self.owners[self.tree.sink() as usize].store(worker, Ordering::Release);
        Some(root)
    }

    /// Gives the result's end back; `false`, and it stays with the worker, when a job has begun.
    pub fn return_root(&self, root: Consumer) -> Result<(), Consumer> {
        let mut control = self.control();
        if control.stage == JobStage::Open && control.joined > 0 {
            return Err(root);
        }
        control.root = Some(root);
        Ok(())
    }

    /// Ends the present job, if it has not ended; whether it had not.
    pub fn end(&self, ending: JobEnd) -> bool {
        let mut control = self.control();
        if control.stage != JobStage::Open {
            return false;
        }
        self.enter(&mut control, JobStage::Stopping(ending));
        true
    }

    fn enter(&self, control: &mut Control, stage: JobStage) {
        control.stage = stage;
        control.through = 0;
        self.version.fetch_add(1, Ordering::Release);
        self.call_all_workers();
    }

    /// Refuses further streams. A job that lacks streams would wait for ever, so it fails; returns whether one did.
    pub fn drain(&self) -> bool {
        let mut control = self.control();
        let lacks_streams = (1..self.tree.streams).contains(&control.joined);
        if std::mem::replace(&mut control.is_draining, true) {
            return false;
        }
        let fails = control.stage == JobStage::Open && lacks_streams;
        if fails {
            self.enter(&mut control, JobStage::Stopping(JobEnd::Failed));
        }
        self.call_all_workers();
        fails
    }

    /// Whether no job is running and none can begin.
    pub fn is_finished(&self) -> bool {
        let control = self.control();
        control.is_draining && control.stage == JobStage::Open && control.joined == 0
    }

    /// The stage, if it is another than a worker saw last; `seen` is what it keeps for that.
    pub fn new_stage(&self, seen: &mut u32) -> Option<JobStage> {
        if self.version.load(Ordering::Acquire) == *seen {
            return None;
        }
        let control = self.control();
        *seen = self.version.load(Ordering::Acquire);
        Some(control.stage)
    }

    /// A worker has stopped its tasks; it gives back the ends of rings it was given.
    pub fn stopped(&self, leaves: impl Iterator<Item = Leaf>, root: Option<Consumer>) {
        let mut control = self.control();
        for leaf in leaves {
            control.leaves[leaf.stream as usize] = Some(leaf.ring);
        }
        if root.is_some() {
            control.root = root;
        }
        control.through += 1;
        if control.through == self.workers {
            self.enter(&mut control, JobStage::Clearing);
        }
    }

    /// A worker has cleared its nodes; `bytes` can hold a record. The last one empties the rings that no worker holds,
    /// and lets the next job begin.
    pub fn cleared(&self, bytes: &mut [u8]) {
        let mut control = self.control();
        control.through += 1;
        if control.through == self.workers {
            let root = control.root.as_mut().expect("a stopped merge has its ends of rings here");
            drain(root, bytes);
            control.joined = 0;
            self.enter(&mut control, JobStage::Open);
        }
    }
}
