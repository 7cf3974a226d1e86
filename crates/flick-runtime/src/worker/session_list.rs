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
            let now_ns = self.io.driver.now_ns();
            list.extend(sessions.map(|session| SessionInfo {
                worker: self.ctx.index(),
                client: self.io.peers[session.conn.index as usize],
                age_ms: now_ns.saturating_sub(session.begun_ns) / MS,
                quiet_ms: now_ns.saturating_sub(session.active_ns) / MS,
                state: state_of(session),
                under_way: session.requests.len(),
                bytes_in: session.bytes_in,
                bytes_out: session.bytes_out,
            }));
        });
    }
}

fn state_of(session: &Session) -> &'static str {
    match (session.phase, session.wait) {
        (Phase::Lingering, _) => "closed by us",
        (Phase::Closing, _) => "gets its last replies",
        _ if session.tunnel.is_some() => "tunnel",
        (_, Wait::Client) => "does not read",
        (_, Wait::Shared) => "waits for room",
        _ if session.upload != Upload::None => "sends a body",
        _ if !session.requests.is_empty() => "waits for replies",
        _ if session.inbox.in_message() => "sends a request",
        _ => "rests",
    }
}
