//! Follows the requests that will be in the access log.
//! Promises: where there is none, a look at an empty field; nothing of a message is kept but its first bytes.

use flick_abi::Send;
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::outgoing::outgoing;
use super::sending::Waiter;
use crate::inflight::RequestId;
use crate::observe::access_log::AnsweredBy;
use crate::rules::scratch::Scratch;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Ends the access log's look at a session's messages: a request that is opened now was not read from one.
    pub(super) fn log_looked(&mut self) {
        self.observe.look_away();
    }

    /// A request of this session has been opened: the access log may choose it.
    pub(super) fn log_opened(&mut self, key: Key, request: RequestId) {
        let Some(recorder) = self.observe.recorder() else { return };
        if let continued @ Some(_) = recorder.take_continued() {
            self.inflight.get_mut(request).set_logged(continued);
            return;
        }
        if !recorder.chooses() {
            return;
        }
        let Some(session) = self.downstream.client(key) else { return };
        let client = self.io.peer(session.handle());
        let entry = self.inflight.get_mut(request);
        let logged = recorder.open(client, entry.taken_ns());
        entry.set_logged(logged);
        self.observe.counters().access_log_dropped.add(u64::from(logged.is_none()));
    }

    /// A backend was sent something of what is waited for.
    pub(super) fn log_sent(&mut self, waiter: Waiter, entry: Option<RequestId>, backend: u32) {
        let now_ns = self.io.now_ns();
        let Some(recorder) = self.observe.recorder() else { return };
        let request = match waiter {
            Waiter::Ask { suspended, .. } => {
                self.rules.suspended().get(suspended).and_then(|known| known.request)
            }
            Waiter::NoClient | Waiter::Session(_) | Waiter::InFlight(_) => entry,
        };
        let logged = request.and_then(|request| self.inflight.get(request).logged());
        if let Some(entry) = logged.and_then(|key| recorder.entry(key)) {
            entry.note_sent(backend, now_ns);
        }
    }

    /// A backend was sent a request. `changed`: what a rule made of it, whose fields the access log has then.
    pub(super) fn log_request(
        &mut self,
        waiter: Waiter,
        request: RequestId,
        backend: u32,
        changed: Option<(&Scratch, &Send, Option<&Slice>)>,
    ) {
        self.log_sent(waiter, Some(request), backend);
        let Some((scratch, send, message)) = changed else { return };
        // An ask is another request than its client's.
        let is_its = matches!(waiter, Waiter::Session(_) | Waiter::InFlight(_));
        let setup = self.ctx.setup();
        let same = std::ptr::eq(setup.protocol_of(send.channel as usize), setup.protocol());
        let Some(recorder) = self.observe.recorder().filter(|recorder| recorder.has_fields()) else { return };
        let Some(key) = self.inflight.get(request).logged().filter(|_| is_its && same) else { return };
        let built = outgoing(scratch, send.body, message).front;
        // Where it was parsed from: see `read_again`.
        let is_joined = scratch.other.head_bytes() > built.len() as u64;
        let bytes = if is_joined { scratch.joined.as_slice() } else { built };
        recorder.note_sent_fields(key, &scratch.other, bytes);
    }

    /// Counts bytes of the body that a client is sending.
    pub(super) fn log_body(&mut self, key: Key, bytes: u32) {
        let Some(recorder) = self.observe.recorder() else { return };
        let Some(request) =
            self.downstream.client(key).and_then(|session| session.stream().requests().back())
        else {
            return;
        };
        let logged = self.inflight.get(request).logged();
        if let Some(entry) = logged.and_then(|key| recorder.entry(key)) {
            entry.bytes_in += u64::from(bytes);
        }
    }

    /// Counts bytes that go to the client of a request.
    pub(super) fn log_reply(&mut self, logged: Option<Key>, front: &[u8], bytes: u64) {
        let now_ns = self.io.now_ns();
        let entry = self.observe.recorder().zip(logged).and_then(|(recorder, key)| recorder.entry(key));
        if let Some(entry) = entry {
            entry.note_reply(front, now_ns);
            entry.bytes_out += bytes;
        }
    }

    /// A reply to a request is sent, and further ones follow, each as a request of its own.
    pub(super) fn log_continued(&mut self, request: RequestId) {
        if let Some(recorder) = self.observe.recorder()
            && let Some(key) = self.inflight.get_mut(request).set_logged(None)
        {
            recorder.continue_later(key);
        }
    }

    /// Notes how a request was answered.
    pub(super) fn log_outcome(&mut self, request: RequestId, outcome: AnsweredBy) {
        let Some(recorder) = self.observe.recorder() else { return };
        let logged = self.inflight.get(request).logged();
        if let Some(entry) = logged.and_then(|key| recorder.entry(key)) {
            entry.outcome = outcome;
        }
    }

    /// The client of a request has gone before it was answered.
    pub(super) fn log_gone(&mut self, request: RequestId) {
        self.log_outcome(request, AnsweredBy::Gone);
        if let Some(recorder) = self.observe.recorder()
            && let Some(key) = self.inflight.get_mut(request).set_logged(None)
        {
            recorder.end(key);
        }
    }
}
