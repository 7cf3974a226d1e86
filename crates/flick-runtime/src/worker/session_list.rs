//! A worker's answer to a query for the list of its clients.

use flick_net::Driver;

use super::Worker;
use crate::downstream::client::ClientConn;
use crate::downstream::stream::Wait;
use crate::limits::SESSIONS_LISTED_MAX;
use crate::observe::session_list::SessionInfo;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Answers a pending query for the list of this worker's clients.
    pub(super) fn answer_session_list(&mut self) {
        let Some(question) = self.ctx.shared().question(self.ctx.index()) else { return };
        question.answer(|list| {
            let sessions = self.downstream.clients().take(SESSIONS_LISTED_MAX);
            let now_ns = self.io.now_ns();
            list.extend(sessions.map(|session| SessionInfo {
                worker: self.ctx.index(),
                client: self.io.peer(session.handle()),
                age_ms: session.age_ns(now_ns) / MS,
                idle_ms: session.idle_ns(now_ns) / MS,
                state: state_of(session),
                inflight: session.stream().requests().len(),
                bytes_in: session.bytes_in(),
                bytes_out: session.bytes_out(),
            }));
        });
    }
}

fn state_of(session: &ClientConn) -> &'static str {
    match session.stream().wait() {
        _ if session.is_lingering() => "closing",
        _ if session.is_draining() => "flushing replies",
        _ if session.stream().tunnel().is_some() => "tunnel",
        Wait::Client => "client does not read",
        Wait::Capacity { .. } => "queued",
        _ if session.stream().has_upload() => "receiving body",
        _ if !session.stream().requests().is_empty() => "waiting for replies",
        _ if session.inbox().in_message() => "receiving request",
        _ => "idle",
    }
}
