//! A worker's part in a merge: it runs its nodes, feeds the streams it has accepted, and perhaps sends the result.
//! Promises: a job that is not complete never looks so: when anything goes wrong, all its connections are reset; a
//! task that has nothing to do costs nothing; no task keeps the worker longer than its time slice.
//! Refuses: sessions. A process that merges has none.

mod feeder;
mod sink;

use std::sync::Arc;

use flick_abi::FuncId;
use flick_net::{Driver, Handle, ListenerId};

use self::feeder::Feeder;
use self::sink::Sink;
use super::Worker;
use crate::config::OnMaxConnections;
use crate::io::Role;
use crate::limits::MERGE_CHUNK_BYTES_MAX;
use crate::merge::{Hub, JobEnd, JobStage, MergeCode, MergeFault, MergeScratch, Node, NodeState};
use crate::observe::edge_counters::StartId;
use crate::observe::task_counters::TaskKind;
use crate::run_queue::{Flow, Task};
use crate::setup::Setup;

/// Component of the worker. Its part of a merge: nodes, feeders and the sink.
pub(super) struct Merging {
    hub: Arc<Hub>,
    index: u32,
    parser: FuncId,
    nodes: Vec<(u32, Node)>,
    /// By stream: its feeder, if this worker accepted it.
    feeders: Vec<Option<Feeder>>,
    sink: Option<Sink>,
    /// By task: it is in the run queue.
    queued: Vec<bool>,
    /// The last stage this worker has seen.
    seen: u32,
    /// Tasks run; not between the end of a job and the beginning of the next.
    is_running: bool,
    scratch: MergeScratch,
}

impl Merging {
    /// The part of worker `index`, if the program merges.
    pub(super) fn new(setup: &Setup, hub: Option<Arc<Hub>>, index: usize) -> Option<Box<Self>> {
        let merge = setup.merge.as_ref()?;
        let hub = hub.expect("the workers of a merge share a hub");
        let nodes = hub.take_nodes(index as u32);
        nodes.iter().for_each(|(task, _)| hub.call(*task));
        Some(Box::new(Self {
            index: index as u32,
            parser: setup.view(merge.merge.source).parse_request,
            nodes,
            feeders: (0..merge.streams).map(|_| None).collect(),
            sink: None,
            queued: vec![false; hub.tree.tasks() as usize],
            seen: 0,
            is_running: true,
            scratch: MergeScratch::new(setup.program.state_words),
            hub,
        }))
    }

    /// Whether something has happened on another worker, or on this one for itself.
    pub(super) fn is_called(&self) -> bool {
        self.hub.is_called(self.index)
    }

    /// Connections of the present job.
    pub(super) fn conns_count(&self) -> usize {
        self.feeders.iter().flatten().count() + usize::from(self.sink.is_some())
    }
}

impl<D: Driver> Worker<D> {
    /// Runs `work` with the worker's part of the merge, which nothing else can reach meanwhile.
    fn with_merging<R>(&mut self, work: impl FnOnce(&mut Self, &mut Merging) -> R) -> Option<R> {
        let mut merging = self.merging.take()?;
        let result = work(self, &mut merging);
        self.merging = Some(merging);
        Some(result)
    }

    fn enqueue_merge(&mut self, merging: &mut Merging, task: u32) {
        if !std::mem::replace(&mut merging.queued[task as usize], true) {
            self.tasks.push(Task::Merge(task));
        }
    }

    /// A new connection: a stream of the present job, or its reducer; otherwise it waits, or is refused.
    pub(super) fn merge_accepted(&mut self, listener: ListenerId, conn: Handle) {
        let at = self.listeners.ids().iter().position(|open| *open == listener).unwrap_or(0);
        let is_stream = self.ctx.setup().listen[at].0 == self.ctx.setup().listened;
        let may_wait = self.ctx.setup().limits.on_max_connections == OnMaxConnections::Queue
            && !self.listeners.is_draining();
        if !is_stream {
            self.sink_accepted(conn);
        } else if self.listeners.waiting_len() > 0 || !self.join(conn) {
            if may_wait { self.keep_waiting(conn) } else { self.refuse(conn) }
        }
    }

    /// Admits queued clients, while the current job lacks streams.
    pub(super) fn merge_resume_accept(&mut self) {
        while let Some(conn) = self.listeners.first_waiting() {
            if !self.join(conn) {
                return;
            }
            self.listeners.pop_waiting();
        }
        self.listeners.resume();
        for listener in self.listeners.ids() {
            self.io.driver_mut().accept(*listener, true);
        }
    }

    /// Handles what other workers have changed since the last iteration.
    pub(super) fn run_merge_tasks(&mut self) {
        let stage = self.with_merging(|worker, merging| {
            let hub = Arc::clone(&merging.hub);
            if worker.listeners.is_draining() && hub.drain() {
                worker.observe.counters().merges_failed.add(1);
            }
            hub.take_calls(merging.index, |task| worker.enqueue_merge(merging, task));
            let stage = hub.new_stage(&mut merging.seen);
            match stage {
                Some(JobStage::Stopping(ending)) => worker.stop_merging(merging, ending),
                Some(JobStage::Clearing) => {
                    merging.nodes.iter_mut().for_each(|(_, node)| node.clear());
                    hub.cleared(&mut [0; MERGE_CHUNK_BYTES_MAX]);
                }
                Some(JobStage::Open) => {
                    merging.is_running = true;
                    merging.nodes.iter().for_each(|(task, _)| hub.call(*task));
                }
                None => {}
            }
            stage
        });
        let may_accept = self.listeners.is_paused() && !self.listeners.is_draining();
        if stage.flatten() == Some(JobStage::Open) && may_accept {
            self.merge_resume_accept();
        }
    }

    /// Closes the connections of a job that has ended, and gives the ends of its rings back.
    fn stop_merging(&mut self, merging: &mut Merging, ending: JobEnd) {
        merging.is_running = false;
        let end = |worker: &mut Self, conn: Option<Handle>| {
            let Some(conn) = conn else { return };
            match ending {
                JobEnd::Complete => worker.io.driver_mut().close(conn),
                JobEnd::Failed => worker.io.driver_mut().abort(conn),
            }
        };
        let mut leaves = Vec::new();
        for slot in &mut merging.feeders {
            let Some(mut feeder) = slot.take() else { continue };
            end(self, feeder.conn);
            self.io.pieces_mut().clear(&mut feeder.pieces);
            self.observe.counters().connections_open.sub(1);
            leaves.push(feeder.leaf);
        }
        let root = merging.sink.take().map(|sink| {
            end(self, sink.conn);
            sink.ring
        });
        merging.hub.stopped(leaves.into_iter(), root);
    }

    /// Resets the connections of a job that this worker leaves: it ends before the job does, which fails.
    pub(super) fn abandon_merge(&mut self) {
        self.with_merging(|worker, merging| {
            merging.is_running = false;
            let has_streams = merging.feeders.iter().any(Option::is_some);
            if has_streams && merging.hub.end(JobEnd::Failed) {
                let service = worker.ctx.service();
                tracing::warn!(service, "a merge was cut off: its service ends");
                worker.observe.counters().merges_failed.add(1);
            }
            for mut feeder in merging.feeders.iter_mut().filter_map(Option::take) {
                worker.io.pieces_mut().clear(&mut feeder.pieces);
                worker.observe.counters().connections_open.sub(1);
                feeder.conn.into_iter().for_each(|conn| worker.io.driver_mut().abort(conn));
            }
            if let Some(conn) = merging.sink.as_ref().and_then(|sink| sink.conn) {
                worker.io.driver_mut().abort(conn);
            }
        });
    }

    /// Whether a draining worker is finished: no worker runs a job.
    pub(super) fn merge_is_finished(&self) -> bool {
        self.merging.as_ref().is_none_or(|merging| merging.hub.is_finished())
    }

    /// Ends the present job as failed.
    fn fail_merge(&mut self, merging: &mut Merging) {
        merging.is_running = false;
        if merging.hub.end(JobEnd::Failed) {
            self.observe.counters().merges_failed.add(1);
        }
    }

    pub(super) fn run_merge(&mut self, task: u32) {
        if let Some(merging) = &mut self.merging {
            merging.queued[task as usize] = false;
        }
        let step = |worker: &mut Self| {
            worker.with_merging(|worker, merging| worker.merge_step(merging, task)).unwrap_or(Flow::Stop)
        };
        if !self.run_steps(TaskKind::Merge, step) {
            self.with_merging(|worker, merging| worker.enqueue_merge(merging, task));
        }
    }

    fn merge_step(&mut self, merging: &mut Merging, task: u32) -> Flow {
        if !merging.is_running {
            return Flow::Stop;
        }
        match merging.hub.tree.stream_of(task) {
            Some(stream) => self.feed_step(merging, stream),
            None if task == merging.hub.tree.sink() => self.sink_step(merging),
            None => self.node_step(merging, task),
        }
    }

    fn node_step(&mut self, merging: &mut Merging, task: u32) -> Flow {
        let Merging { hub, nodes, scratch, parser, .. } = merging;
        let Some((_, node)) = nodes.iter_mut().find(|(own, _)| *own == task) else { return Flow::Stop };
        let setup = self.ctx.setup().merge.as_ref().expect("a worker merges as its program says");
        let mut code = MergeCode {
            engine: &*self.ctx.setup().engine,
            setup,
            parser: *parser,
            channel_lens: self.upstream.backend_set().lens(),
            scratch,
            host: &mut self.rules.host_mut().view(&()),
        };
        let rest = node.run(&mut code, &mut |task| hub.call(task), self.clock.merge_elements());
        let taken = node.taken();
        self.observe.counters().merge_elements.add(taken[0] + taken[1]);
        let of_streams = |side: &usize| hub.tree.stream_of(node.position(*side).0).is_some();
        let start = StartId::channel(setup.merge.source);
        self.observe
            .edges()
            .started(start, [0, 1].into_iter().filter(of_streams).map(|side| taken[side]).sum());
        self.observe.edges().sent(start, setup.sink_channel as u32, scratch.finished());
        match rest {
            Ok(NodeState::Tired) => Flow::Go,
            Ok(NodeState::Waiting) => Flow::Stop,
            Err((fault, side)) => {
                let (from, offset) = node.position(side);
                match hub.tree.stream_of(from) {
                    Some(stream) => tracing::warn!(stream, offset, ?fault, "a merge failed"),
                    None => tracing::warn!(task, offset, ?fault, "a merge failed"),
                }
                match fault {
                    MergeFault::Truncated => self.observe.counters().truncated.add(1),
                    MergeFault::Combine | MergeFault::Finish => {}
                    MergeFault::Malformed { .. } | MergeFault::TooLong { .. } | MergeFault::Disorder => {
                        self.observe.counters().protocol_errors_client.add(1);
                    }
                }
                self.fail_merge(merging);
                Flow::Stop
            }
        }
    }

    /// The present connection of a stream or of the sink.
    pub(super) fn merge_conn(&self, role: Role) -> Option<Handle> {
        let merging = self.merging.as_ref()?;
        match role {
            Role::Stream(stream) => merging.feeders[stream as usize].as_ref()?.conn,
            Role::Sink => merging.sink.as_ref()?.conn,
            _ => None,
        }
    }
}
