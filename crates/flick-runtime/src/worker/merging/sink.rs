//! The output task of a merge: the result goes to the reducer, and then the job is complete, or it is not.
//! Promises: the reducer sees a good end only behind the whole result; a job is complete only when the reducer has
//! been handed everything and has not complained.

use flick_buffers::{BufClass, LARGE_BYTES};
use flick_net::{Driver, Handle};
use flick_ring::Consumer;

use super::{Merging, Role, Worker};
use crate::limits::{MERGE_FLUSH_TICK_MS, MERGE_LINGER_MS, SESSION_BACKLOG_BYTES_MAX};
use crate::merge::{JobEnd, SinkAt};
use crate::run_queue::Flow;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until then.
    Connecting { deadline_ns: u64 },
    /// The result is being sent.
    Up,
    /// All of it has been sent, and our end; to be looked after at `next_ns`, given up at `give_up_ns`.
    Finishing { next_ns: u64, give_up_ns: Option<u64> },
}

/// The connection to the reducer.
#[derive(Debug)]
pub(super) struct Sink {
    /// `None`: the reducer has left.
    pub(super) conn: Option<Handle>,
    /// The result.
    pub(super) ring: Consumer,
    state: State,
    /// The reducer closed its side behind the end of ours.
    acknowledged: bool,
}

impl<D: Driver> Worker<D> {
    /// A reducer that connects to us.
    pub(super) fn sink_accepted(&mut self, conn: Handle) {
        let claimed = self.with_merging(|worker, merging| {
            let ring = merging.hub.claim_root(merging.index, true)?;
            worker.io.set_role(conn, Role::Sink);
            merging.sink = Some(Sink { conn: Some(conn), ring, state: State::Up, acknowledged: false });
            worker.io.driver_mut().receive(conn, true);
            worker.observe.counters().backend_connections_opened.add(1);
            let task = merging.hub.tree.sink();
            worker.enqueue_merge(merging, task);
            Some(())
        });
        if claimed.flatten().is_none() {
            self.refuse(conn);
        }
    }

    pub(in crate::worker) fn sink_connected(&mut self) {
        self.with_merging(|worker, merging| {
            let Some(sink) = merging.sink.as_mut() else { return };
            sink.state = State::Up;
            if let Some(conn) = sink.conn {
                worker.io.driver_mut().receive(conn, true);
            }
            worker.observe.counters().backend_connections_opened.add(1);
            let task = merging.hub.tree.sink();
            worker.enqueue_merge(merging, task);
        });
    }

    pub(in crate::worker) fn sink_drained(&mut self) {
        self.with_merging(|worker, merging| {
            let task = merging.hub.tree.sink();
            worker.enqueue_merge(merging, task);
        });
    }

    /// The reducer closes its side: behind the end of ours that says that it has everything. During a job it says
    /// nothing, as it need not write; between jobs, that it does not wait for one any more.
    pub(in crate::worker) fn sink_eof(&mut self) {
        self.with_merging(|worker, merging| {
            let Some(mut sink) = merging.sink.take() else { return };
            if !matches!(sink.state, State::Finishing { .. }) {
                match merging.hub.return_root(sink.ring) {
                    Ok(()) => return worker.sink_left(sink.conn),
                    Err(ring) => sink.ring = ring,
                }
            } else {
                sink.acknowledged = true;
            }
            merging.sink = Some(sink);
            worker.look_after_sink(merging);
        });
    }

    fn sink_left(&mut self, conn: Option<Handle>) {
        self.observe.counters().backend_connections_closed.add(1);
        if let Some(conn) = conn {
            self.io.driver_mut().close(conn);
        }
    }

    /// The reducer cannot be reached, or has gone away.
    pub(in crate::worker) fn sink_failed(&mut self) {
        self.with_merging(|worker, merging| {
            let Some(mut sink) = merging.sink.take() else { return };
            let counters = worker.observe.counters();
            match sink.state {
                State::Connecting { .. } => counters.backend_connect_errors.add(1),
                State::Up | State::Finishing { .. } => counters.backend_connections_closed.add(1),
            }
            sink.conn = None;
            // One that waited for a job and got none of it may be followed by another.
            if let Err(ring) = merging.hub.return_root(sink.ring) {
                tracing::warn!("the reducer cannot be reached, or has gone away: a merge failed");
                sink.ring = ring;
                merging.sink = Some(sink);
                worker.fail_merge(merging);
            }
        });
    }

    pub(super) fn sink_step(&mut self, merging: &mut Merging) -> Flow {
        let Some(sink) = merging.sink.as_mut() else { return self.connect_sink(merging) };
        let (State::Up, Some(conn)) = (sink.state, sink.conn) else { return Flow::Stop };
        if self.io.driver().backlog_bytes(conn) > SESSION_BACKLOG_BYTES_MAX {
            return Flow::Stop;
        }
        let Some(buf) = self.io.pool().alloc(BufClass::Large) else {
            self.observe.counters().exhausted.add(1);
            self.fail_merge(merging);
            return Flow::Stop;
        };
        let (mut is_over, mut is_starved) = (false, false);
        while !is_over {
            match sink.ring.front_bytes() {
                None => is_starved = true,
                Some(len) if len > buf.spare() as usize => {}
                Some(0) => {
                    is_over = true;
                    sink.ring.pop(&mut []);
                    continue;
                }
                Some(_) => {
                    let ring = &mut sink.ring;
                    buf.append_with(LARGE_BYTES, |capacity| ring.pop(capacity).unwrap_or(0) as u32);
                    continue;
                }
            }
            break;
        }
        if sink.ring.release() {
            merging.hub.call_before_sink();
        }
        if !buf.is_empty() {
            self.io.driver_mut().send(conn, buf.slice(0..buf.len()));
        }
        if is_over {
            self.io.driver_mut().shutdown(conn);
            sink.state = State::Finishing { next_ns: 0, give_up_ns: None };
            self.look_after_sink(merging);
            return Flow::Stop;
        }
        if is_starved && sink.ring.prepare_wait() { Flow::Stop } else { Flow::Go }
    }

    /// Connects to the reducer, if the present job has all its streams.
    fn connect_sink(&mut self, merging: &mut Merging) -> Flow {
        let Some(SinkAt::Connect(to)) = self.ctx.setup().merge.as_ref().map(|merge| &merge.sink) else {
            return Flow::Stop;
        };
        let Some(ring) = merging.hub.claim_root(merging.index, false) else { return Flow::Stop };
        let deadline_ns = self.io.now_ns() + self.ctx.setup().timeouts.connect.as_nanos() as u64;
        let conn = self.io.driver_mut().connect(to);
        let state = State::Connecting { deadline_ns };
        match &conn {
            Ok(conn) => {
                self.io.set_role(*conn, Role::Sink);
                self.note_due(deadline_ns);
            }
            Err(error) => tracing::warn!(%to, %error, "cannot connect to the reducer: a merge failed"),
        }
        merging.sink = Some(Sink { conn: conn.as_ref().ok().copied(), ring, state, acknowledged: false });
        if conn.is_err() {
            self.fail_merge(merging);
        }
        Flow::Stop
    }

    /// Returns the time of the sink's next check: its connect timeout, or the next one while it finishes, if any.
    pub(in crate::worker) fn merge_due_ns(&self) -> Option<u64> {
        let merging = self.merging.as_ref().filter(|merging| merging.is_running)?;
        match merging.sink.as_ref()?.state {
            State::Connecting { deadline_ns } => Some(deadline_ns),
            State::Up => None,
            State::Finishing { next_ns, .. } => Some(next_ns),
        }
    }

    pub(in crate::worker) fn merge_due(&mut self) {
        self.with_merging(|worker, merging| worker.look_after_sink(merging));
    }

    /// Fails the job if connecting takes too long; completes it when the reducer has everything.
    fn look_after_sink(&mut self, merging: &mut Merging) {
        let now_ns = self.io.now_ns();
        let Some(sink) = merging.sink.as_mut() else { return };
        match sink.state {
            State::Connecting { deadline_ns } if deadline_ns <= now_ns => {
                tracing::warn!("the reducer does not answer: a merge failed");
                self.observe.counters().backend_connect_errors.add(1);
                self.fail_merge(merging);
            }
            State::Connecting { .. } | State::Up => {}
            State::Finishing { give_up_ns, .. } => {
                let is_out = sink.conn.is_none_or(|conn| self.io.driver().backlog_bytes(conn) == 0);
                let give_up_ns = give_up_ns.or(is_out.then_some(now_ns + MERGE_LINGER_MS * MS));
                if is_out && (sink.acknowledged || give_up_ns.is_some_and(|due| due <= now_ns)) {
                    merging.is_running = false;
                    if merging.hub.end(JobEnd::Complete) {
                        self.observe.counters().merges_completed.add(1);
                    }
                    return;
                }
                let next_ns = now_ns + MERGE_FLUSH_TICK_MS * MS;
                sink.state = State::Finishing { next_ns, give_up_ns };
                self.note_due(next_ns);
            }
        }
    }
}
