//! Load shedding: requests that get an overload response instead of being served late or being queued for ever.
//! Promises: a request is answered once, in order, with the overload response of its grammar; a one-way request is
//! dropped; no rule sees it. Where the grammar has no overload response nothing is shed.

use flick_abi::frame::SLOT_CARRIED;
use flick_abi::{FailureReason, Frame, MessageFlags};
use flick_buffers::{BufClass, Pool, SMALL_BYTES, Slice};
use flick_net::Driver;

use super::Worker;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::stream::Share;
use crate::limits::{BUFFERS_SHARE, FIRST_SHARE, SCARCE_SHARE};
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Whether the next request is shed.
    pub(super) fn sheds_next(&mut self) -> bool {
        self.clock.may_shed()
            && (self.clock.sheds_next() || self.buffers_are_few(SCARCE_SHARE))
            && self.inflight.can_answer()
    }

    /// Returns the share of one client in what is in flight: the smaller, the more others have.
    #[inline]
    pub(super) fn client_share(&self) -> Share {
        let most = self.ctx.setup().limits.max_inflight_per_client;
        let small = BufClass::Small;
        let kept = self.io.pool().capacity_count(small) / FIRST_SHARE;
        let free = self.io.pool().free_count(small).saturating_sub(kept);
        let asks = if self.ctx.setup().needs.asks { self.rules.suspended().client_share() } else { most };
        Share {
            inflight_max: most.min(asks).min(self.inflight.client_share(self.io.pieces())),
            bytes_max: u64::from(free) * u64::from(SMALL_BYTES) / BUFFERS_SHARE,
        }
    }

    /// Whether less than one in `share` of the buffers is free: they are kept for requests in flight.
    pub(super) fn buffers_are_few(&self, share: u32) -> bool {
        buffers_are_few(self.io.pool(), share)
    }

    /// Blocks a session whose next message needs shared capacity, for at most the queue timeout.
    pub(super) fn wait_for_capacity(&mut self, key: Key, backend: Option<u32>) -> Flow {
        let bound = self.ctx.setup().timeouts.queue(self.ctx.setup().protocol().exclusive);
        if !bound.is_zero()
            && self.ctx.setup().has_overload_response()
            && !self.ctx.setup().is_relay
            && self.downstream.deadline(key) != Some(DeadlineKind::Queue)
        {
            self.set_deadline(key, DeadlineKind::Queue, self.io.now_ns() + bound.as_nanos() as u64);
        }
        self.block(key, backend)
    }

    /// Blocks a session whose message needs a huge buffer, when none is free.
    pub(super) fn wait_for_buffer(&mut self, key: Key) -> Flow {
        self.tasks.need_huge();
        self.wait_for_capacity(key, None)
    }

    /// A message of a session has been taken: if it was served, the queue timeout of the next one starts from zero.
    pub(super) fn message_taken(&mut self, key: Key, shed_before: u64) {
        self.leave_queue(key);
        if self.observe.counters().requests_shed.get() == shed_before
            && let Some(session) = self.downstream.client_mut(key)
        {
            session.stream_mut().set_overdue(false);
        }
    }

    /// A session has left the queue: its message was taken, or waits for something else.
    pub(super) fn leave_queue(&mut self, key: Key) {
        if self.downstream.deadline(key) == Some(DeadlineKind::Queue) {
            self.downstream.clear_deadline(key);
            self.arm_idle(key);
        }
    }

    /// Answers a whole request with the overload response; no rule has had any effect.
    pub(super) fn shed_request(&mut self, key: Key, scratch: &mut Scratch, bytes: u32) -> Flow {
        let flags = scratch.frame.flags();
        self.consume(key, bytes, scratch.frame.slots[SLOT_CARRIED]);
        self.note_last(key, flags);
        self.observe.counters().requests.add(1);
        self.observe.counters().requests_shed.add(1);
        if !flags.has(MessageFlags::ONE_WAY) {
            self.fail_new_request(key, &scratch.frame, FailureReason::Overload);
        }
        Flow::Go
    }

    /// The same for a request whose body is streamed.
    pub(super) fn shed_large(&mut self, key: Key, scratch: &mut Scratch, head: &Slice) -> Flow {
        self.observe.counters().requests_shed.add(1);
        self.take_unsent_large(key, scratch, head);
        if !scratch.frame.flags().has(MessageFlags::ONE_WAY) {
            self.fail_new_request(key, &scratch.frame, FailureReason::Overload);
        }
        Flow::Go
    }

    /// The same for a request that cannot be read for lack of a buffer: what follows it cannot be found either.
    pub(super) fn shed_unread(&mut self, key: Key, frame: &Frame) -> Flow {
        self.observe.counters().requests_shed.add(1);
        self.observe.look(&[], 0, None);
        if self.ctx.setup().protocol().echo.is_empty() {
            self.fail_new_request(key, frame, FailureReason::Overload);
            self.stop_reading(key);
        } else {
            self.end_session(key, true);
        }
        Flow::Stop
    }
}

/// As [`Worker::buffers_are_few`], of a pool.
pub(super) fn buffers_are_few(pool: &Pool, share: u32) -> bool {
    let are_few = |class| pool.free_count(class) < pool.capacity_count(class) / share;
    are_few(BufClass::Small) || are_few(BufClass::Large)
}
