//! Accepts clients, queues them, or rejects them.
//! Promises: over all workers, never more clients than `max-connections`, and of one address never more than
//! `max-connections-per-ip`; no more new ones in a second than `connection-rate-limit`. With
//! `OnMaxConnections::Queue`, a client that was accepted before accepting paused is not rejected but queued. A rejected
//! client is sent an error response where the protocol has one for that. Without descriptors, accepting pauses and is
//! tried again; where they are few, an idle client makes way for a new one (`eviction.rs`). A busy worker hands new
//! clients to an idle one.

use flick_abi::Frame;
use flick_abi::limits::FAILURE_BYTES_MAX;
use flick_buffers::BufClass;
use flick_net::{Detached, Driver, Handle};

use super::Worker;
use super::deliver::append;
use super::outgoing::{Outgoing, Rest};
use crate::config::OnMaxConnections;
use crate::downstream::client::ClientConn;
use crate::downstream::stream::Stream;
use crate::io::{Role, WriteParts};
use crate::observe::descriptor_log::DESCRIPTOR_LOG;
use crate::shared::handoff::HandedConn;

/// Time for which accepting pauses when no slot is free, unless a client of this worker ends before, in nanoseconds.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// Outcome of an attempt to give a session to a client that was accepted.
enum Entry {
    /// It has a session, or was rejected.
    Settled,
    /// It exceeds the rate limit until that time.
    Early(u64),
    /// No slot is free.
    Full,
}

impl<D: Driver> Worker<D> {
    /// Hands a client that has just been accepted, and not been read from, to a worker that is idle while this one is
    /// busy. Returns the client if it stays.
    pub(super) fn hand_to_idle(&mut self, conn: Handle) -> Option<Handle> {
        let now_ns = self.io.now_ns();
        let other = self.listeners.balancer().and_then(|balance| balance.lighter(now_ns));
        let Some((other, intake)) = other.and_then(|other| Some((other, self.ctx.shared().intake(other)?)))
        else {
            return Some(conn);
        };
        let Detached::Socket(socket) = self.io.driver_mut().detach(conn) else { return Some(conn) };
        let peer = self.io.peer(conn);
        match intake.leave_to_idle(HandedConn { socket, peer, counted: None }) {
            Ok(()) => {
                self.listeners.balancer().into_iter().for_each(|balance| balance.handed(other, now_ns));
                None
            }
            Err(client) => {
                // That worker ends, or its queue is full: this one takes the client back after all events.
                let stays = self.listeners.handoff().is_some_and(|own| own.leave(client).is_ok());
                self.observe.counters().connections_rejected.add(u64::from(!stays));
                None
            }
        }
    }

    pub(super) fn accepted(&mut self, conn: Handle) {
        let pauses = self.ctx.setup().limits.on_max_connections == OnMaxConnections::Queue;
        if self.migrates() {
            // The kernel assigned it to this process before the successor accepted.
            return self.keep_waiting(conn);
        }
        if self.address_is_full(conn) {
            self.observe.counters().connections_over_ip_limit.add(1);
            self.reject_client(conn);
        } else if self.listeners.waiting_len() > 0 {
            self.keep_waiting(conn);
        } else {
            self.evict_idle();
            match self.admit(conn) {
                Entry::Settled => {}
                Entry::Early(at_ns) => self.keep_waiting_until(conn, at_ns),
                Entry::Full if pauses => self.keep_waiting(conn),
                Entry::Full => {
                    self.observe.counters().connections_rejected.add(1);
                    self.reject_client(conn);
                }
            }
        }
        if pauses && self.is_full_for_good() {
            self.pause_accept();
            self.evict_greedy();
        }
    }

    /// Whether no slot is free, and the next client would get none by eviction.
    fn is_full_for_good(&self) -> bool {
        let limits = &self.ctx.setup().limits;
        !limits.few_descriptors && self.ctx.shared().sessions_full(limits.max_connections)
    }

    /// Lets a client in, if it may come now.
    fn admit(&mut self, conn: Handle) -> Entry {
        let limits = &self.ctx.setup().limits;
        if self.ctx.shared().sessions_full(limits.max_connections) {
            return Entry::Full;
        }
        if limits.connection_rate_limit > 0
            && let Err(at_ns) =
                self.ctx.shared().accepts().take(self.io.now_ns(), limits.connection_rate_limit)
        {
            return Entry::Early(at_ns);
        }
        if !self.ctx.shared().session_count().take(limits.max_connections) {
            return Entry::Full;
        }
        let (peer, most) = (self.io.peer(conn), limits.max_connections_per_ip);
        if self
            .ctx
            .shared()
            .connection_limits()
            .is_some_and(|connection_limits| !connection_limits.take(peer, most))
        {
            self.ctx.shared().session_count().give();
            self.observe.counters().connections_over_ip_limit.add(1);
            self.reject_client(conn);
            return Entry::Settled;
        }
        self.observe.counters().connections_accepted.add(1);
        self.open_session(conn);
        Entry::Settled
    }

    /// Begins the session of a client that the predecessor of this service hands over: it has its session slot already,
    /// and is not rejected now because of its address.
    pub(super) fn open_migrated(&mut self, conn: Handle) {
        if let Some(connection_limits) = self.ctx.shared().connection_limits() {
            connection_limits.take(self.io.peer(conn), u32::MAX);
        }
        self.observe.counters().connections_migrated_in.add(1);
        self.open_session(conn);
    }

    fn address_is_full(&self, conn: Handle) -> bool {
        let (peer, most) = (self.io.peer(conn), self.ctx.setup().limits.max_connections_per_ip);
        self.ctx
            .shared()
            .connection_limits()
            .is_some_and(|connection_limits| connection_limits.is_full(peer, most))
    }

    /// Releases the slot of a session, and that of its address.
    pub(super) fn release_session_slot(&mut self, conn: Handle) {
        self.ctx.shared().session_count().give();
        if let Some(connection_limits) = self.ctx.shared().connection_limits() {
            connection_limits.give(self.io.peer(conn));
        }
    }

    pub(super) fn refuse(&mut self, conn: Handle) {
        self.observe.counters().connections_rejected.add(1);
        self.io.driver_mut().abort(conn);
    }

    /// Rejects a client from which nothing was received, with the overload response where the protocol has one that
    /// needs no request.
    fn reject_client(&mut self, conn: Handle) {
        if let Some(builder) = self.ctx.setup().response_before_request() {
            let (frame, mut text) = (Frame::new(), [0; FAILURE_BYTES_MAX]);
            let len = self.ctx.setup().engine.build(builder, &frame, &mut text);
            let message = Outgoing { front: &text[..len], cuts: None, rest: Rest::Nothing };
            let WriteParts { driver, pool, .. } = self.io.write_parts();
            let mut emit = |slice| driver.send(conn, slice);
            // Without buffers it is closed without a response.
            append(pool, &mut None, BufClass::Small, &message, [None, None], &mut emit);
        }
        self.io.driver_mut().close(conn);
    }

    /// Queues a client, and reads nothing from it. The kernel may accept several at once, and another worker may have
    /// taken the last slot.
    pub(super) fn keep_waiting(&mut self, conn: Handle) {
        self.queue(conn);
        self.pause_accept();
    }

    fn queue(&mut self, conn: Handle) {
        self.io.set_role(conn, Role::Waiting);
        self.listeners.queue(conn);
        self.io.driver_mut().wait_for_session(conn);
    }

    fn keep_waiting_until(&mut self, conn: Handle, at_ns: u64) {
        self.queue(conn);
        if !self.listeners.is_paused() {
            self.observe.counters().accept_rate_limited.add(1);
            self.stop_listening();
        }
        self.accept_again_at(at_ns);
    }

    /// Begins a session, for which a slot has been taken.
    pub(super) fn open_session(&mut self, conn: Handle) {
        let now_ns = self.io.now_ns();
        let state = self.rules.locals_mut().take();
        let stream = Stream::new(state, self.ctx.setup().is_relay);
        let Some(key) = self.downstream.insert(ClientConn::new(conn, stream, now_ns)) else {
            self.rules.locals_mut().give(state);
            self.release_session_slot(conn);
            self.refuse(conn);
            return;
        };
        self.observe.counters().connections_open.add(1);
        self.io.set_role(conn, Role::Client(key));
        self.arm_idle(key);
        self.set_receiving(key, true);
        if self.ctx.setup().is_relay {
            // The message of a raw relay begins with the connection.
            self.enqueue_session(key);
        }
    }

    pub(super) fn accept_failed(&mut self, errno: i32) {
        if let Some(left_out) = DESCRIPTOR_LOG.admit(self.io.now_ns()) {
            let service = self.ctx.service();
            if errno == rustix::io::Errno::NFILE.raw_os_error() {
                tracing::warn!(
                    service,
                    left_out,
                    "cannot accept a client: all connections that the worker may have are in use, or all files that \
                     the system may open; clients wait in the listen queue"
                );
            } else {
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(service, %error, left_out, "cannot accept a client; clients wait in the listen queue");
            }
        }
        self.observe.counters().accept_pauses.add(1);
        self.listeners.pause();
        self.accept_again();
    }

    fn accept_again(&mut self) {
        self.accept_again_at(self.io.now_ns() + ACCEPT_AGAIN_NS);
    }

    fn accept_again_at(&mut self, at_ns: u64) {
        self.listeners.pause_until(at_ns);
        self.note_due(at_ns);
    }

    fn pause_accept(&mut self) {
        if self.listeners.is_paused() {
            return;
        }
        self.observe.counters().accept_pauses.add(1);
        self.stop_listening();
        self.accept_again();
    }

    fn stop_listening(&mut self) {
        self.listeners.pause();
        for listener in self.listeners.ids() {
            self.io.driver_mut().accept(*listener, false);
        }
    }

    /// Admits queued clients while slots are free, and then accepts again if one still is.
    pub(super) fn resume_accept(&mut self) {
        self.listeners.clear_again();
        if !self.listeners.is_paused() || self.migrates() {
            return;
        }
        if self.merging.is_some() {
            self.merge_resume_accept();
            return;
        }
        if self.listeners.waiting_len() > 0 {
            self.evict_idle();
        }
        let pauses = self.ctx.setup().limits.on_max_connections == OnMaxConnections::Queue;
        while let Some(conn) = self.listeners.pop_waiting() {
            match self.admit(conn) {
                Entry::Settled => continue,
                Entry::Full if !pauses => {
                    self.observe.counters().connections_rejected.add(1);
                    self.reject_client(conn);
                    continue;
                }
                Entry::Early(at_ns) => self.accept_again_at(at_ns),
                Entry::Full => {
                    self.evict_greedy();
                    self.accept_again();
                }
            }
            self.listeners.queue_first(conn);
            return;
        }
        if pauses && self.is_full_for_good() {
            self.evict_greedy();
            self.accept_again();
            return;
        }
        self.listeners.resume();
        for listener in self.listeners.ids() {
            self.io.driver_mut().accept(*listener, true);
        }
    }

    /// Makes the driver accept no more connections through shared memory than there are sessions for. One more shows
    /// that none is left.
    pub(super) fn limit_accepts(&mut self) {
        let limits = &self.ctx.setup().limits;
        let waits = limits.on_max_connections == OnMaxConnections::Queue && !limits.few_descriptors;
        let free = limits.max_connections.saturating_sub(self.ctx.shared().session_count().sessions());
        self.io.driver_mut().limit_accepts(if waits { free.max(1) } else { u32::MAX });
    }

    /// Lets a process that waits with few connections have one of the process that holds most.
    fn evict_greedy(&mut self) {
        if self.io.driver_mut().evict_greedy() {
            self.observe.counters().clients_evicted.add(1);
        }
    }

    /// Closes the listeners. Clients in their backlogs are accepted first, and served, except by a merge: they would
    /// miss the job that ends.
    pub(super) fn stop_accepting(&mut self) {
        for listener in self.listeners.take_ids() {
            match self.merging {
                Some(_) => self.io.driver_mut().close_listener(listener),
                None => self.io.driver_mut().finish_listener(listener),
            }
        }
    }

    /// Whether the worker's clients, and those that it accepts, go to a successor.
    fn migrates(&self) -> bool {
        self.listeners.is_draining() && self.ctx.shared().is_replaced()
    }

    /// Rejects queued clients, from which nothing has been read.
    pub(super) fn reject_waiting(&mut self) {
        while let Some(conn) = self.listeners.pop_waiting() {
            self.observe.counters().connections_rejected.add(1);
            self.reject_client(conn);
        }
    }
}
