//! A worker that is replaced: its clients go to the new one, each at a moment at which nothing of it is under way, and the
//! new one takes them in.
//! Promises: a client that changes hands loses nothing and notices nothing; nobody is closed because of it before the
//! deadline; a client with something of its own here (a state, a body, a tunnel, a backend connection) stays to its end.
//! Refuses: merges, whose streams belong together.
//! Source: the kernel's sockets carry what has not been read, so a descriptor is all that has to go.

use flick_net::{Detached, Driver, Handle};

use super::Worker;
use crate::downstream::client::ClientConn;
use crate::limits::SUCCESSOR_TRIES_MAX;
use crate::observe::task_counters::TaskKind;
use crate::shared::handoff::HandedConn;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Stops accepting without sending anybody away, and stops the program's timers, which run at the new one.
    pub(super) fn begin_to_leave(&mut self) {
        for listener in self.listeners.take_ids() {
            self.io.driver_mut().drain_listener(listener);
        }
        self.rules.stop_timers();
    }

    /// Hands over who can go now. Who could but for requests under way is not read from any more, so that its next request
    /// is the new worker's.
    pub(super) fn hand_over(&mut self) {
        for _ in 0..self.listeners.waiting_len() {
            let Some(conn) = self.listeners.pop_waiting() else { break };
            if !self.give_away(conn, false) {
                self.listeners.queue(conn);
            }
        }
        for index in 0..self.downstream.slots_used() {
            let Some(key) = self.downstream.key_at(index) else { continue };
            let Some(session) = self.downstream.client(key) else { continue };
            if !self.could_leave(session) {
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
                self.let_go(key, conn);
            }
        }
    }

    /// Whether nothing but replies keeps a session here.
    fn could_leave(&self, session: &ClientConn) -> bool {
        session.takes_requests()
            && !session.has_ended()
            && !session.stream().ends_after_reply()
            && session.inbox().is_empty()
            && !session.stream().has_upload()
            && session.stream().tunnel().is_none()
            && !self.ctx.setup().is_relay
            && self.rules.locals().is_untouched(session.stream().state())
    }

    fn let_go(&mut self, key: Key, conn: Handle) {
        if self.give_away(conn, true) {
            let Some(session) = self.downstream.remove(key) else { return };
            self.rules.locals_mut().give(session.stream().state());
            self.observe.counters().connections_open.sub(1);
            self.observe.counters().connections_migrated_out.add(1);
            if let Some(connection_limits) = self.ctx.shared().connection_limits() {
                // Its place among the sessions goes with it.
                connection_limits.give(self.io.peer(conn));
            }
        }
    }

    /// Gives a connection to who takes our place; `false` if it stays for now.
    fn give_away(&mut self, conn: Handle, is_counted: bool) -> bool {
        match self.io.driver_mut().detach(conn) {
            Detached::Socket(socket) => {
                let peer = self.io.peer(conn);
                self.pass_on(HandedConn { socket, peer, is_counted });
                true
            }
            Detached::HasInput => {
                // What has been taken from the kernel belongs to us: it is read, and answered, here.
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

    /// Leaves a client for who takes our place, or for who takes theirs meanwhile.
    fn pass_on(&mut self, client: HandedConn) {
        let mut client = client;
        for _ in 0..SUCCESSOR_TRIES_MAX {
            let Some(successor) = self.ctx.shared().successor() else { break };
            match successor.take(self.ctx.index(), client) {
                Ok(()) => return,
                Err(back) => client = back,
            }
        }
        // Everybody has ended, so the process is ending.
        if client.is_counted {
            self.ctx.shared().give_session();
        }
        self.observe.counters().connections_rejected.add(1);
    }

    /// Takes in the clients that another worker has left for us.
    pub(super) fn take_over(&mut self) {
        let Some(intake) = self.listeners.handoff().cloned() else { return };
        self.observe.counters().tasks.of(TaskKind::Client).stolen.add(u64::from(intake.take_scavenged()));
        while let Some(client) = intake.take() {
            if self.ctx.shared().is_replaced() {
                self.pass_on(client);
                continue;
            }
            let HandedConn { socket, peer, is_counted } = client;
            match self.io.driver_mut().adopt(socket) {
                Ok(conn) => {
                    self.io.set_peer(conn, peer);
                    if is_counted {
                        self.open_taken_over(conn);
                    } else {
                        self.accepted(conn);
                    }
                }
                // There is no place to keep it in: our limits are lower than those before us.
                Err(_) => {
                    if is_counted {
                        self.ctx.shared().give_session();
                    }
                    self.observe.counters().connections_rejected.add(1);
                }
            }
        }
    }

    /// Whether nobody waits to be taken in, and nobody will.
    pub(super) fn takes_nobody(&mut self) -> bool {
        let Some(intake) = self.listeners.handoff().cloned() else { return true };
        if !intake.close() {
            self.take_over();
        }
        intake.close()
    }
}
