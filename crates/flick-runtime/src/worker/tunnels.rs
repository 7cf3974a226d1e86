//! Tunnels: behind a reply that says so, a session and its dedicated connection carry raw bytes in both directions.
//! Promises: constant memory, back-pressure both ways; each side's end is passed on while the other side goes on; a
//! reset ends both. What the client had sent behind its request before the tunnel began is its first bytes, in order.
//! Refuses: looking at what goes through.

use flick_net::Driver;

use super::Worker;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::stream::{Stream, Tunnel};
use crate::limits::{HALF_TUNNEL_IDLE_MS, SESSION_BACKLOG_BYTES_MAX, TUNNEL_IDLE_MS};
use crate::run_queue::Flow;
use crate::slab::Key;
use crate::upstream::conn::Recipient;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Joins a session and the connection that its last exchange was on.
    pub(super) fn begin_tunnel(&mut self, key: Key, backend_conn: u32) {
        let epoch = self.upstream.conn(backend_conn).epoch();
        let Some(session) = self.downstream.client_mut(key) else {
            self.retire_backend_conn(backend_conn);
            return;
        };
        // A tunnel never migrates, and a client that migrates is not received from.
        session.stay();
        session.stream_mut().begin_tunnel(backend_conn, epoch);
        self.upstream.conn_mut(backend_conn).begin_tunnel(key);
        self.observe.counters().tunnels.add(1);
        self.tunnel_moves(key);
        self.enqueue_session(key);
        self.enqueue_backend_conn(backend_conn);
    }

    /// Something goes through: it is not idle.
    fn tunnel_moves(&mut self, key: Key) {
        let tunnel = self.downstream.stream(key).and_then(Stream::tunnel);
        let is_half = tunnel.is_some_and(Tunnel::is_half_closed);
        self.bytes_move(key, is_half, Some(TUNNEL_IDLE_MS * MS));
    }

    /// As `tunnel_moves`, for a relay.
    pub(super) fn relay_moves(&mut self, key: Key, is_half: bool) {
        let idle = self.ctx.setup().timeouts.idle(true);
        self.bytes_move(key, is_half, idle.map(|idle| idle.as_nanos() as u64));
    }

    /// Sets the deadline of what passes on bytes until one of its sides ends.
    fn bytes_move(&mut self, key: Key, is_half: bool, idle_ns: Option<u64>) {
        let now_ns = self.io.now_ns();
        let Some(session) = self.downstream.client_mut(key) else { return };
        session.note_active(now_ns);
        match idle_ns {
            _ if is_half => {
                self.set_deadline(key, DeadlineKind::HalfTunnel, now_ns + HALF_TUNNEL_IDLE_MS * MS)
            }
            Some(idle_ns) => self.set_deadline(key, DeadlineKind::Tunnel, now_ns + idle_ns),
            None => self.downstream.clear_deadline(key),
        }
    }

    /// The client's side of a tunnel has nothing more to pass on.
    pub(super) fn tunnel_session_is_idle(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let receives = !session.stream().is_waiting() && !session.has_ended() && session.takes_requests();
        self.set_receiving(key, receives);
        self.end_tunnel_if_over(key);
    }

    /// Passes on what the client has sent.
    pub(super) fn tunnel_out(&mut self, key: Key, tunnel: Tunnel) -> Flow {
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let conn = self.upstream.conn(tunnel.backend_conn()).handle_of(tunnel.epoch());
        let Some(conn) = conn else { return Flow::Stop };
        if self.io.driver().backlog_bytes(conn) > SESSION_BACKLOG_BYTES_MAX {
            return self.block(key, None);
        }
        if let Some(piece) = session.inbox_mut().take_raw(self.io.pieces_mut(), u64::MAX) {
            self.pass_to_backend_conn(tunnel.backend_conn(), conn, piece);
            self.tunnel_moves(key);
            return Flow::Go;
        }
        if session.has_ended() && session.stream_mut().tunnel_mut().is_some_and(Tunnel::end_client) {
            self.io.driver_mut().shutdown(conn);
            self.tunnel_moves(key);
        }
        Flow::Stop
    }

    /// Passes on what the backend has sent.
    pub(super) fn tunnel_back(&mut self, backend_conn: u32, key: Key) -> Flow {
        if !self.client_takes(backend_conn, key) {
            return Flow::Stop;
        }
        let state = self.upstream.conn_mut(backend_conn);
        if let Some(piece) = state.inbox_mut().take_raw(self.io.pieces_mut(), u64::MAX) {
            self.deliver_piece(Recipient::Client(key), piece);
            self.tunnel_moves(key);
            return Flow::Go;
        }
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let ends = state.has_ended() && state.handle().is_some();
        if ends && session.stream_mut().tunnel_mut().is_some_and(Tunnel::end_backend) {
            self.io.driver_mut().shutdown(session.handle());
            self.tunnel_moves(key);
        }
        Flow::Stop
    }

    /// The backend's side of a tunnel has nothing more to pass on. Whether the connection is over.
    pub(super) fn tunnel_is_idle(&mut self, backend_conn: u32, key: Key) {
        let state = self.upstream.conn(backend_conn);
        if state.has_ended() && state.handle().is_none() && !state.is_held() {
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Unavailable, None);
            return;
        }
        self.end_tunnel_if_over(key);
    }

    /// Both sides have said that they send no more: what is left goes out, and both connections end.
    //= RFC 9110 section 9.3.6
    //# the intermediary MUST attempt to send any outstanding data that came from the closed side to the other side,
    //# close both connections, and then discard any remaining data left undelivered
    fn end_tunnel_if_over(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let closed = session.stream().tunnel().filter(|tunnel| tunnel.is_closed());
        let Some(backend_conn) = closed.map(Tunnel::backend_conn) else { return };
        session.stream_mut().end_tunnel();
        session.linger();
        self.upstream.conn_mut(backend_conn).leave_tunnel(true);
        self.retire_backend_conn(backend_conn);
        self.linger_on(key);
    }

    /// Ends a tunnel in which nothing has moved for long, or that a worker that drains does not wait for.
    pub(super) fn end_tunnel(&mut self, key: Key) {
        if let Some(session) = self.downstream.client_mut(key) {
            // What is still on its way to the client goes out.
            session.linger();
        }
        self.end_session(key, true);
    }

    /// The backend connection of a tunnel is lost. What the backend sent before it closed its side still goes out.
    pub(super) fn tunnel_lost(&mut self, key: Key) {
        let tunnel = self.downstream.stream(key).and_then(Stream::tunnel);
        if tunnel.is_some_and(Tunnel::backend_has_ended) {
            self.end_tunnel(key);
        } else {
            self.end_session(key, true);
        }
    }

    /// The session of a tunnel has ended. What the client sent before it closed its side still goes out.
    pub(super) fn leave_tunnel(&mut self, tunnel: Tunnel) {
        let state = self.upstream.conn_mut(tunnel.backend_conn());
        if state.epoch() == tunnel.epoch() {
            state.leave_tunnel(tunnel.client_has_ended());
            self.enqueue_backend_conn(tunnel.backend_conn());
        }
    }
}
