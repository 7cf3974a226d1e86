//! Migrates the clients of a worker that is replaced to its successor, each when none of its requests is in flight.
//! Promises: a client that migrates loses nothing and notices nothing; migration closes no client before the deadline;
//! a client with state on this worker (a `local`, a body, a tunnel, a backend connection) stays until it ends; one
//! through shared memory stays with its process, and ends behind a reply (`drain.rs`); a client that no successor takes
//! stays here.
//! Refuses: merges, whose streams belong together.
//! Source: the kernel's socket keeps what has not been read, so a descriptor is all that is handed over.

use flick_net::{Detached, Driver, Handle};

use super::Worker;
use crate::downstream::client::ClientConn;
use crate::limits::SUCCESSOR_TRIES_MAX;
use crate::observe::task_counters::TaskKind;
use crate::shared::handoff::{HandedConn, SessionCount};
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Stops accepting without rejecting any client, and stops the program's timers, which run at the successor.
    pub(super) fn begin_migration(&mut self) {
        for listener in self.listeners.take_ids() {
            self.io.driver_mut().drain_listener(listener);
        }
        self.rules.stop_timers();
    }

    /// Keeps all clients: there is no successor any more, and the worker drains. Those that it did not read, so that
    /// they could migrate, are read again.
    pub(super) fn end_migration(&mut self) {
        for index in 0..self.downstream.slots_used() {
            let Some(key) = self.downstream.key_at(index) else { continue };
            if self.downstream.client_mut(key).is_some_and(ClientConn::stay) {
                self.set_receiving(key, true);
            }
        }
    }

    /// Hands over the clients that can migrate now. One that has requests in flight is not read from any more, so that
    /// the successor reads its next request.
    pub(super) fn migrate_clients(&mut self) {
        for _ in 0..self.listeners.waiting_len() {
            let Some(conn) = self.listeners.pop_waiting() else { break };
            if !self.hand_to_successor(conn, None) {
                self.listeners.queue(conn);
            }
        }
        for index in 0..self.downstream.slots_used() {
            let Some(key) = self.downstream.key_at(index) else { continue };
            let Some(session) = self.downstream.client(key) else { continue };
            if !self.can_migrate(session) {
                continue;
            }
            let conn = session.handle();
            let is_owed = !session.stream().requests().is_empty()
                || session.stream().held_bytes() > 0
                || session.stream().is_waiting()
                || session.is_queued();
            if let Some(session) = self.downstream.client_mut(key)
                && session.migrate()
            {
                self.io.driver_mut().receive(conn, false);
            }
            if !is_owed && !self.rules.suspended().has_any_of(key) {
                self.migrate_session(key, conn);
            }
        }
    }

    /// Whether a client can migrate once its replies are written.
    pub(super) fn can_migrate(&self, session: &ClientConn) -> bool {
        session.takes_requests()
            && !session.has_ended()
            && !session.stream().ends_after_reply()
            && session.inbox().is_at_boundary()
            && !session.stream().has_upload()
            && session.stream().tunnel().is_none()
            && !self.ctx.setup().is_relay
            && self.io.driver().can_detach(session.handle())
            && self.rules.locals().is_untouched(session.stream().state())
    }

    fn migrate_session(&mut self, key: Key, conn: Handle) {
        if self.hand_to_successor(conn, Some(self.ctx.shared().session_count().clone())) {
            let Some(session) = self.downstream.remove(key) else { return };
            self.rules.locals_mut().give(session.stream().state());
            self.observe.counters().connections_open.sub(1);
            self.observe.counters().connections_migrated_out.add(1);
            if let Some(connection_limits) = self.ctx.shared().connection_limits() {
                // Its session slot migrates with it.
                connection_limits.give(self.io.peer(conn));
            }
        }
    }

    /// Hands a connection to the successor; `false` if it stays for now.
    fn hand_to_successor(&mut self, conn: Handle, counted: Option<SessionCount>) -> bool {
        match self.io.driver_mut().detach(conn) {
            Detached::Socket(socket) => {
                let peer = self.io.peer(conn);
                if let Err(client) = self.pass_on(HandedConn { socket, peer, counted }) {
                    self.keep(client);
                }
                true
            }
            Detached::HasInput => {
                // Bytes were received from it: they are parsed and answered here.
                if let crate::io::Role::Client(key) = self.role(conn)
                    && let Some(session) = self.downstream.client_mut(key)
                {
                    session.stay();
                    self.set_receiving(key, true);
                }
                false
            }
            Detached::Busy | Detached::Refused => false,
        }
    }

    /// Hands a client to the successor, or to the successor's successor. Errors: the client, because all have ended.
    fn pass_on(&mut self, client: HandedConn) -> Result<(), HandedConn> {
        let mut client = client;
        for _ in 0..SUCCESSOR_TRIES_MAX {
            let Some(successor) = self.ctx.shared().successor() else { break };
            match successor.take(self.ctx.index(), client) {
                Ok(()) => return Ok(()),
                Err(back) => client = back,
            }
        }
        Err(client)
    }

    /// Takes back a client that no successor takes, behind all events of this iteration.
    fn keep(&mut self, client: HandedConn) {
        let Some(own) = self.listeners.handoff().cloned() else { return self.lose(&client) };
        if let Err(client) = own.leave(client) {
            self.lose(&client);
        }
    }

    /// Counts a client that is closed, as no worker can serve it.
    fn lose(&mut self, client: &HandedConn) {
        if let Some(count) = &client.counted {
            count.give();
        }
        self.observe.counters().connections_rejected.add(1);
    }

    /// Takes the clients that other workers have handed to this one.
    pub(super) fn take_over(&mut self) {
        let Some(intake) = self.listeners.handoff().cloned() else { return };
        self.observe.counters().tasks.of(TaskKind::Client).stolen.add(u64::from(intake.take_scavenged()));
        while let Some(client) = intake.take() {
            let passed = if self.ctx.shared().is_replaced() { self.pass_on(client) } else { Err(client) };
            let Err(HandedConn { socket, peer, counted }) = passed else { continue };
            match self.io.driver_mut().adopt(socket) {
                Ok(conn) => {
                    self.io.set_peer(conn, peer);
                    match counted {
                        Some(count) => {
                            self.ctx.shared().session_count().move_from(&count);
                            self.open_migrated(conn);
                        }
                        None => self.accepted(conn),
                    }
                }
                // No slot is free: the limits of this process are lower than those of its predecessor.
                Err(_) => {
                    if let Some(count) = counted {
                        count.give();
                    }
                    self.observe.counters().connections_rejected.add(1);
                }
            }
        }
    }

    /// Closes the handoff queue; the clients in it are lost. It is empty unless the worker was stopped.
    pub(super) fn lose_handed(&mut self) {
        let Some(intake) = self.listeners.handoff().cloned() else { return };
        while !intake.close() {
            while let Some(client) = intake.take() {
                self.lose(&client);
            }
        }
    }

    /// Whether the handoff queue is empty and closed.
    pub(super) fn drained_handoff_queue(&mut self) -> bool {
        let Some(intake) = self.listeners.handoff().cloned() else { return true };
        if !intake.close() {
            self.take_over();
        }
        intake.close()
    }
}
