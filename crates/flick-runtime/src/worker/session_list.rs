//! What a worker says of its clients when it is asked.

use flick_net::Driver;

use super::Worker;
use crate::downstream::session::{Phase, Session, Upload, Wait};
use crate::limits::SESSIONS_LISTED_MAX;
use crate::observe::session_list::SessionInfo;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Answers who wants to know which clients there are.
    pub(super) fn answer_session_list(&mut self) {
        let Some(question) = self.ctx.shared().question(self.ctx.index()) else { return };
        question.answer(|list| {
            let keys = (0..self.downstream.sessions.slots_used())
                .filter_map(|slot| self.downstream.sessions.key_at(slot));
            let sessions = keys.filter_map(|key| self.downstream.sessions.get(key)).take(SESSIONS_LISTED_MAX);
            let now_ns = self.io.now_ns();
            list.extend(sessions.map(|session| SessionInfo {
                worker: self.ctx.index(),
                client: self.io.peer(session.conn),
                age_ms: now_ns.saturating_sub(session.begun_ns) / MS,
                idle_ms: now_ns.saturating_sub(session.active_ns) / MS,
                state: state_of(session),
                inflight: session.requests.len(),
                bytes_in: session.bytes_in,
                bytes_out: session.bytes_out,
            }));
        });
    }
}

fn state_of(session: &Session) -> &'static str {
    match (session.phase, session.wait) {
        (Phase::Lingering, _) => "closing",
        (Phase::Closing, _) => "flushing replies",
        _ if session.tunnel.is_some() => "tunnel",
        (_, Wait::Client) => "client does not read",
        (_, Wait::Shared) => "queued",
        _ if session.upload != Upload::None => "receiving body",
        _ if !session.requests.is_empty() => "waiting for replies",
        _ if session.inbox.in_message() => "receiving request",
        _ => "idle",
    }
}
