//! A worker's answers to a thread that observes its connections: lists of them, and copies of their bytes.

use flick_net::{Driver, Handle, TapSink, TransportKind};

use super::Worker;
use crate::downstream::client::ClientConn;
use crate::downstream::stream::Wait;
use crate::limits::{BACKEND_CONNS_LISTED_MAX, CONNS_LOOKED_MAX, SESSIONS_LISTED_MAX};
use crate::observe::session_list::{BackendConnInfo, SessionInfo};
use crate::upstream::conn::BackendConn;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Answers a pending query for the list of this worker's clients.
    pub(super) fn answer_session_list(&mut self) {
        let Some(question) = self.ctx.shared().question(self.ctx.index()) else { return };
        question.answer(|list| {
            let now_ns = self.io.now_ns();
            let (driver, worker) = (self.io.driver(), self.ctx.index());
            let uses_rings = |handle| !matches!(driver.transport(handle), TransportKind::Kernel(_));
            let sessions = some_of_both(
                || self.downstream.clients().take(CONNS_LOOKED_MAX),
                |session| uses_rings(session.handle()),
                SESSIONS_LISTED_MAX,
            );
            list.sessions.extend(sessions.map(|session| SessionInfo {
                worker,
                conn: session.handle(),
                transport: driver.transport(session.handle()),
                client: self.io.peer(session.handle()),
                age_ms: session.age_ns(now_ns) / MS,
                idle_ms: session.idle_ns(now_ns) / MS,
                state: state_of(session),
                inflight: session.stream().requests().len(),
                bytes_in: session.bytes_in(),
                bytes_out: session.bytes_out(),
            }));
            let conns = some_of_both(
                || self.backend_conns().take(CONNS_LOOKED_MAX),
                |(_, handle)| uses_rings(*handle),
                BACKEND_CONNS_LISTED_MAX,
            );
            list.backend_conns.extend(conns.map(|(conn, handle)| BackendConnInfo {
                worker,
                conn: handle,
                slot: conn.backend() as usize,
                transport: driver.transport(handle),
                inflight: conn.requests().len(),
                bytes_in: conn.bytes().received,
                bytes_out: conn.bytes().sent,
            }));
        });
    }

    /// The connections to backends that are established.
    fn backend_conns(&self) -> impl Iterator<Item = (&BackendConn, Handle)> {
        let conns = (0..self.upstream.conns_count() as u32).map(|at| self.upstream.conn(at));
        conns.filter(|conn| conn.is_connected()).filter_map(|conn| Some((conn, conn.handle()?)))
    }

    /// Begins or ends copies for an observer.
    pub(super) fn change_tap(&mut self) {
        let Some(change) = self.ctx.shared().taps().take(self.ctx.index()) else { return };
        let tap = change.map(|mut recorder| {
            for session in self.downstream.clients() {
                recorder.begin(session.handle(), true, self.io.peer(session.handle()));
            }
            for (conn, handle) in self.backend_conns() {
                recorder.begin(handle, false, self.upstream.backend(conn.backend() as usize).endpoint());
            }
            recorder as Box<dyn TapSink>
        });
        self.io.driver_mut().set_tap(tap);
    }
}

/// Takes at most `most` of some items. Of those that are something, and of those that are not, it takes half each if
/// there are as many.
fn some_of_both<'a, T: 'a, I: Iterator<Item = T>>(
    items: impl Fn() -> I + 'a,
    is_it: impl Fn(&T) -> bool + Copy + 'a,
    most: usize,
) -> impl Iterator<Item = T> {
    let are = items().filter(is_it).take(most).count();
    let are_not = items().filter(move |item| !is_it(item)).take(most).count();
    let are = are.min(most - are_not.min(most / 2));
    let first = items().filter(is_it).take(are);
    first.chain(items().filter(move |item| !is_it(item)).take(most - are))
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
        _ if session.inbox().is_amid() => "receiving request",
        _ => "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::some_of_both;

    /// Takes four of the numbers up to `count`.
    fn taken(count: u32, is_it: impl Fn(&u32) -> bool + Copy) -> Vec<u32> {
        some_of_both(|| 0..count, is_it, 4).collect()
    }

    #[test]
    fn all_that_were_listed_had_one_transport() {
        assert_eq!(taken(10, |number| *number >= 5), [5, 6, 0, 1]);
        assert_eq!(taken(10, |number| *number >= 9), [9, 0, 1, 2]);
        assert_eq!(taken(10, |number| *number >= 1), [1, 2, 3, 0]);
        assert_eq!(taken(10, |_| true), [0, 1, 2, 3]);
        assert_eq!(taken(10, |_| false), [0, 1, 2, 3]);
        assert_eq!(taken(2, |number| *number == 0), [0, 1]);
    }
}
