//! The input task of a stream: what arrives on its connection goes into the ring of its leaf.
//! Promises: when the ring is full the connection is not read, so that its sender waits; the end of a stream is passed
//! on only when its connection was closed in good order.

use flick_buffers::Slice;
use flick_net::{Driver, Handle};

use super::{Merging, Role, Worker};
use crate::merge::Leaf;
use crate::pieces::PieceQueue;
use crate::run_queue::Flow;

/// Records put into the ring by one step.
const RECORDS_PER_STEP: u32 = 4;

/// A stream that this worker accepted.
#[derive(Debug)]
pub(super) struct Feeder {
    /// Its connection, until its peer has left.
    pub(super) conn: Option<Handle>,
    /// Bytes that have arrived and are not in the ring yet.
    pub(super) pieces: PieceQueue,
    /// Leaf of the merge tree that they go to.
    pub(super) leaf: Leaf,
    receiving: bool,
    eof: bool,
    /// The end has been passed on.
    ended: bool,
}

impl<D: Driver> Worker<D> {
    /// Makes a connection a stream of the present job; `false`: it has all it needs.
    pub(super) fn join(&mut self, conn: Handle) -> bool {
        self.with_merging(|worker, merging| {
            let Some(leaf) = merging.hub.join(merging.index) else { return false };
            let stream = leaf.stream;
            tracing::debug!(stream, "a stream begins");
            worker.observe.counters().connections_accepted.add(1);
            worker.observe.counters().connections_open.add(1);
            worker.io.set_role(conn, Role::Stream(stream));
            merging.feeders[stream as usize] = Some(Feeder {
                conn: Some(conn),
                pieces: PieceQueue::new(),
                leaf,
                receiving: true,
                eof: false,
                ended: false,
            });
            worker.io.driver_mut().receive(conn, true);
            true
        })
        .unwrap_or(false)
    }

    pub(in crate::worker) fn stream_data(&mut self, stream: u32, data: Slice) {
        self.with_merging(|worker, merging| {
            let Some(feeder) = merging.feeders[stream as usize].as_mut() else { return };
            if !worker.io.pieces_mut().push(&mut feeder.pieces, data) {
                worker.observe.counters().exhausted.add(1);
                worker.fail_merge(merging);
                return;
            }
            let task = merging.hub.tree.feeder(stream);
            worker.enqueue_merge(merging, task);
        });
    }

    pub(in crate::worker) fn stream_eof(&mut self, stream: u32) {
        self.with_merging(|worker, merging| {
            if let Some(feeder) = merging.feeders[stream as usize].as_mut() {
                feeder.eof = true;
            }
            let task = merging.hub.tree.feeder(stream);
            worker.enqueue_merge(merging, task);
        });
    }

    /// The connection is gone otherwise than in good order. That matters as long as not all of its bytes are in.
    pub(in crate::worker) fn stream_failed(&mut self, stream: u32) {
        self.with_merging(|worker, merging| {
            let Some(feeder) = merging.feeders[stream as usize].as_mut() else { return };
            feeder.conn = None;
            if !feeder.eof {
                tracing::warn!(stream, "a stream was reset: a merge failed");
                worker.observe.counters().truncated.add(1);
                worker.fail_merge(merging);
            }
        });
    }

    pub(super) fn feed_step(&mut self, merging: &mut Merging, stream: u32) -> Flow {
        let chunk_bytes = self.ctx.setup().merge.as_ref().map_or(0, |merge| merge.chunk_bytes()) as u32;
        let Some(feeder) = merging.feeders[stream as usize].as_mut() else { return Flow::Stop };
        let ring = &mut feeder.leaf.ring;
        let (mut is_full, mut is_empty) = (false, false);
        for _ in 0..RECORDS_PER_STEP {
            let front = self.io.pieces().front(&feeder.pieces);
            is_empty = front.is_none() && (!feeder.eof || feeder.ended);
            let record = front.map(|piece| &piece.bytes()[..piece.len().min(chunk_bytes) as usize]);
            is_full = !is_empty && !ring.push(record.unwrap_or_default());
            if is_empty || is_full {
                break;
            }
            match record.map(|record| record.len() as u32) {
                Some(len) => self.io.pieces_mut().advance(&mut feeder.pieces, len),
                None => feeder.ended = true,
            }
        }
        if ring.publish() {
            merging.hub.call_behind(merging.hub.tree.feeder(stream));
        }
        is_full &= ring.prepare_wait();
        if feeder.receiving == is_full
            && !feeder.eof
            && (is_full || is_empty)
            && let Some(conn) = feeder.conn
        {
            feeder.receiving = !is_full;
            self.io.driver_mut().receive(conn, feeder.receiving);
        }
        if is_full || is_empty { Flow::Stop } else { Flow::Go }
    }
}
