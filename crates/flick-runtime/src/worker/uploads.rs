//! Large requests: too long to gather, so each is streamed over a connection lent to it alone. A client that sends
//! slowly holds up nobody but itself.
//! Promises: constant memory per large request; requests of one client before and after it keep their order.

use flick_abi::{Event, FailureReason, Send, SendBody};
use flick_buffers::Slice;
use flick_net::Driver;

use super::rules::{Scratch, Start};
use super::sending::{Outgoing, outgoing};
use super::{Flow, Worker};
use crate::backend::LinkState;
use crate::deadlines::Kind;
use crate::limits::{LENT_REST_MS, LINK_BACKLOG_BYTES_MAX};
use crate::session::{Upload, Wait};
use crate::slab::Key;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Body bytes after which the time for a request to arrive starts anew.
const PROGRESS_BYTES: u64 = 64 * 1024;

impl<D: Driver> Worker<D> {
    /// Begins a large request, of which `seen` has arrived: at least its head.
    pub(super) fn large_request(&mut self, key: Key, scratch: &mut Scratch, seen: Slice) -> Flow {
        let Some(session) = self.sessions.get_mut(key) else { return Flow::Stop };
        if !session.requests.is_empty() {
            // Requests before it are on other connections: they must be answered first to keep their order.
            return self.wait_for(key, Wait::Replies);
        }
        let (channel, gathered) = (session.channel, session.inbox.in_message());
        if self.setup.needs.has_effects && !self.all_lend() {
            return self.wait_for(key, Wait::Shared);
        }
        let paused = self.run_rules_of(key, scratch, &Start { channel, element: 0, message: seen.bytes() });
        let chosen = scratch
            .sends
            .as_slice()
            .iter()
            .find(|send| send.channel as usize != self.setup.listened)
            .copied();
        // A gathered head is consumed as it lies; otherwise exactly the head, and the rest by reference later.
        let head = if gathered { seen.len() } else { scratch.frame.head_bytes() as u32 };
        if paused.is_some() {
            // It would be kept as long as its rule waits, and is too long to be kept.
            return self.refuse_large(key, scratch, head, FailureReason::Overload);
        }
        let unsent = scratch.failure.unwrap_or(FailureReason::Unavailable);
        let Some((send, backend)) = chosen.and_then(|send| Some((send, self.backend_of(&send)?))) else {
            return self.refuse_large(key, scratch, head, unsent);
        };
        let Some(link) = self.borrow_link(backend) else {
            if self.shared_link_is_usable(backend) && self.lends(backend) {
                return self.wait_for(key, Wait::Shared);
            }
            self.backend_counters[backend as usize].failures.add(1);
            return self.refuse_large(key, scratch, head, FailureReason::Unavailable);
        };
        self.begin_upload(key, scratch, &send, link, seen.sub(0..head));
        Flow::Go
    }

    fn begin_upload(&mut self, key: Key, scratch: &mut Scratch, send: &Send, link: u32, head: Slice) {
        let total = scratch.frame.total_bytes();
        let number = self.links[link as usize].next_number;
        let channel = send.channel as usize;
        let examined = self.examine(scratch, send, Some(&head), false);
        let patches = self.request_patches(scratch, channel, examined, number);
        let echo = self.echo_of(&scratch.frame);
        let Some(request) = self.open_request(Some(key), echo, u64::MAX) else { return };
        self.counters.requests.add(1);
        self.counters.streamed.add(1);
        self.backend_counters[self.links[link as usize].backend as usize].requests.add(1);
        self.ledger.get_mut(request).number =
            number & super::sending::number_mask(&self.setup.protocol_of(channel).correlate);
        let state = &mut self.links[link as usize];
        state.next_number = number.wrapping_add(1);
        state.uploading = true;
        let epoch = state.epoch;
        self.ledger.push_link(&mut state.requests, request);
        let written = self.write_to_link(link, &outgoing_head(scratch, send.body, &head), patches);
        let streams = !matches!(send.body, SendBody::Rebuilt { tail_from: u32::MAX, .. });
        self.consume(key, head.len());
        let bytes_left = total - u64::from(head.len());
        if let Some(session) = self.sessions.get_mut(key) {
            session.barrier = true;
            session.upload =
                if streams { Upload::To { link, epoch, bytes_left } } else { Upload::Discard { bytes_left } };
        }
        if !streams {
            self.upload_sent(link);
        }
        if !written {
            self.counters.exhausted.add(1);
            self.link_broken(link, FailureReason::Overload, Some(Event::Broken));
        }
    }

    /// A large request that cannot be sent: it is answered, and its body swallowed.
    fn refuse_large(&mut self, key: Key, scratch: &mut Scratch, head: u32, reason: FailureReason) -> Flow {
        let total = scratch.frame.total_bytes();
        self.counters.requests.add(1);
        self.consume(key, head);
        if let Some(session) = self.sessions.get_mut(key) {
            session.upload = Upload::Discard { bytes_left: total - u64::from(head) };
        }
        self.fail_new_request(key, &scratch.frame, reason);
        Flow::Go
    }

    /// Passes on what has arrived of a body.
    pub(super) fn forward_body(&mut self, key: Key) -> Flow {
        let Some(session) = self.sessions.get_mut(key) else { return Flow::Stop };
        let Upload::To { link, epoch, bytes_left } = session.upload else { return Flow::Go };
        let state = &self.links[link as usize];
        let Some(conn) = state.conn.filter(|_| state.epoch == epoch) else {
            session.upload = Upload::Discard { bytes_left };
            return Flow::Go;
        };
        if self.driver.backlog_bytes(conn) > LINK_BACKLOG_BYTES_MAX {
            session.wait = Wait::Shared;
            self.blocked.push_back(key);
            self.upload_waits(link);
            return Flow::Stop;
        }
        let Some(piece) = session.inbox.take_raw(&mut self.pieces, bytes_left) else { return Flow::Stop };
        if let Some(request) = state.requests.front() {
            self.ledger.get_mut(request).deadline_ns = u64::MAX;
        }
        let left = bytes_left - u64::from(piece.len());
        session.upload = if left == 0 { Upload::None } else { Upload::To { link, epoch, bytes_left: left } };
        self.note_progress(key, bytes_left, left);
        self.driver.send(conn, piece);
        if left == 0 {
            self.upload_sent(link);
        }
        Flow::Go
    }

    pub(super) fn discard_body(&mut self, key: Key) -> Flow {
        let Some(session) = self.sessions.get_mut(key) else { return Flow::Stop };
        let Upload::Discard { bytes_left } = session.upload else { return Flow::Go };
        let piece = session.inbox.take_raw(&mut self.pieces, bytes_left);
        let left = bytes_left - piece.as_ref().map_or(0, |piece| u64::from(piece.len()));
        session.upload = if left == 0 { Upload::None } else { Upload::Discard { bytes_left: left } };
        self.note_progress(key, bytes_left, left);
        if left == 0 || piece.is_some() { Flow::Go } else { Flow::Stop }
    }

    /// A body has this much time for each stretch of it.
    fn note_progress(&mut self, key: Key, before: u64, after: u64) {
        if before / PROGRESS_BYTES != after / PROGRESS_BYTES {
            let deadline = self.driver.now_ns() + self.setup.timeouts.request.as_nanos() as u64;
            self.set_deadline(key.index, Kind::Message, deadline);
        }
    }

    /// The backend does not take the body any more: it has the time of a reply to go on.
    fn upload_waits(&mut self, link: u32) {
        let Some(request) = self.links[link as usize].requests.front() else { return };
        if self.ledger.get(request).deadline_ns == u64::MAX {
            self.ledger.get_mut(request).deadline_ns = self.reply_deadline(link);
        }
    }

    /// Whether an upload that waited for its backend can go on, if that was not noticed before; then it does.
    pub(super) fn upload_goes_on(&mut self, link: u32) -> bool {
        let state = &self.links[link as usize];
        let (true, Some(conn), Some(request)) = (state.uploading, state.conn, state.requests.front()) else {
            return false;
        };
        if self.driver.backlog_bytes(conn) > LINK_BACKLOG_BYTES_MAX {
            return false;
        }
        self.ledger.get_mut(request).deadline_ns = u64::MAX;
        self.unblock = true;
        true
    }

    /// The last byte of a large request has been handed over: now its reply is due.
    fn upload_sent(&mut self, link: u32) {
        let deadline = self.reply_deadline(link);
        let state = &mut self.links[link as usize];
        state.uploading = false;
        if let Some(request) = state.requests.front() {
            self.ledger.get_mut(request).deadline_ns = deadline;
        }
    }

    /// The client has gone inside a body: the connection it was lent cannot be used any more.
    pub(super) fn abandon_upload(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let upload = std::mem::replace(&mut session.upload, Upload::None);
        self.break_lent(upload);
    }

    /// Ends the connection that an unfinished body was going to.
    pub(super) fn break_lent(&mut self, upload: Upload) {
        if let Upload::To { link, epoch, .. } = upload
            && self.links[link as usize].epoch == epoch
        {
            self.link_broken(link, FailureReason::Unavailable, None);
        }
    }

    /// A lent connection to `backend` that is free, dialled now if need be.
    fn borrow_link(&mut self, backend: u32) -> Option<u32> {
        if !self.shared_link_is_usable(backend) {
            return None;
        }
        let lent = self.backends[backend as usize].lent.clone();
        let is_free = |link: &u32| {
            let link = &self.links[*link as usize];
            link.state == LinkState::Up && link.conn.is_some() && link.requests.is_empty() && !link.uploading
        };
        let rests_since_ns = |link: &u32| self.links[*link as usize].rests_since_ns;
        let free = lent.clone().filter(is_free).min_by_key(rests_since_ns);
        let rested_ns = self.driver.now_ns().saturating_sub(LENT_REST_MS * MS);
        if free.is_some_and(|link| rests_since_ns(&link) <= rested_ns) {
            return free;
        }
        let down = lent.clone().find(|link| self.links[*link as usize].state == LinkState::Down);
        down.filter(|link| self.dial(*link)).or(free)
    }

    /// Whether every backend that can be reached has a connection to lend, whichever a rule chooses.
    fn all_lend(&self) -> bool {
        (0..self.backends.len() as u32).filter(|backend| self.shared_link_is_usable(*backend)).all(
            |backend| {
                let mut lent = self.backends[backend as usize].lent.clone();
                lent.any(|link| {
                    let link = &self.links[link as usize];
                    let is_free = link.state == LinkState::Up && link.requests.is_empty() && !link.uploading;
                    link.state == LinkState::Down || is_free
                })
            },
        )
    }

    /// Whether a lent connection of `backend` will become free, so that it is worth waiting for one.
    fn lends(&self, backend: u32) -> bool {
        let mut lent = self.backends[backend as usize].lent.clone();
        lent.any(|link| self.links[link as usize].state != LinkState::Down)
    }
}

/// How the head of a large message leaves: whole, as the rest of it follows by reference.
fn outgoing_head<'a>(scratch: &'a Scratch, body: SendBody, head: &'a Slice) -> Outgoing<'a> {
    match body {
        SendBody::Original => Outgoing { front: head.bytes(), rest: None },
        other => outgoing(scratch, other, Some(head)),
    }
}
