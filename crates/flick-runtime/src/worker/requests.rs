//! The session's side: bytes from a client become requests, and requests go where the program sends them.

use flick_abi::frame::SLOT_LOUD;
use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{FailureReason, Frame, MessageFlags, Send, SendBody, Step, WireField};
use flick_buffers::Slice;
use flick_net::Driver;

use super::{Flow, Scratch, Worker, tools};
use crate::backend::LinkState;
use crate::deadlines::Kind;
use crate::inbox::{Next, Tools};
use crate::limits::{COPY_BYTES_MAX, LINK_BACKLOG_BYTES_MAX, SESSION_BACKLOG_BYTES_MAX};
use crate::session::{Phase, Upload, Wait};
use crate::slab::Key;

/// Fields to overwrite in a message on its way out.
pub(super) type Patches = [Option<(WireField, u64)>; 2];

/// A message as it leaves: what is written first, what follows by reference.
pub(super) struct Outgoing<'a> {
    /// Copied, with the patches applied.
    pub front: &'a [u8],
    /// Passed on by reference.
    pub rest: Option<Slice>,
}

impl<D: Driver> Worker<D> {
    pub(super) fn client_data(&mut self, key: Key, data: Slice) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.phase != Phase::Open {
            return;
        }
        if !session.inbox.push(&mut self.pieces, data) {
            self.counters.exhausted.add(1);
            self.end_session(key, true);
            return;
        }
        session.active_ns = self.driver.now_ns();
        if session.wait == Wait::Nothing {
            self.enqueue_session(key);
        } else {
            self.set_receiving(key, false);
        }
    }

    pub(super) fn client_eof(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.eof = true;
        match session.phase {
            Phase::Lingering => self.linger_on(key),
            Phase::Open | Phase::Closing => self.enqueue_session(key),
        }
    }

    pub(super) fn run_session(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.queued = false;
        session.wait = Wait::Nothing;
        if !self.run_steps(|worker| worker.session_step(key)) {
            self.enqueue_session(key);
            return;
        }
        self.session_rests(key);
    }

    /// After a task has run out of work: what to receive, which deadline runs, whether the session is over.
    fn session_rests(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.phase != Phase::Open {
            session.inbox.clear(&mut self.pieces, &mut self.frames);
        }
        let waiting = session.wait != Wait::Nothing;
        let mid_message = session.inbox.in_message() || session.upload != Upload::None;
        let (phase, over) = (session.phase, session.eof && !waiting && session.phase == Phase::Open);
        if over && mid_message {
            self.counters.truncated.add(1);
            self.abandon_upload(key);
        }
        if over && let Some(session) = self.sessions.get_mut(key) {
            session.phase = Phase::Closing;
            session.inbox.clear(&mut self.pieces, &mut self.frames);
        }
        if phase == Phase::Open && !over {
            self.arm_message(key, mid_message && !waiting);
            self.set_receiving(key, !waiting);
        }
        self.close_if_finished(key);
    }

    pub(super) fn set_receiving(&mut self, key: Key, on: bool) {
        if let Some(session) = self.sessions.get_mut(key)
            && session.receiving != on
        {
            session.receiving = on;
            self.driver.receive(session.conn, on);
        }
    }

    /// Notes what a session waits for; those that wait for something shared stand in line.
    pub(super) fn wait_for(&mut self, key: Key, wait: Wait) -> Flow {
        if let Some(session) = self.sessions.get_mut(key) {
            session.wait = wait;
            if wait == Wait::Shared {
                self.blocked.push_back(key);
            }
        }
        Flow::Stop
    }

    fn session_step(&mut self, key: Key) -> Flow {
        let Some(session) = self.sessions.get_mut(key) else { return Flow::Stop };
        if session.phase != Phase::Open {
            return Flow::Stop;
        }
        match session.upload {
            Upload::To { .. } => return self.forward_body(key),
            Upload::Discard { .. } => return self.discard_body(key),
            Upload::None => {}
        }
        let under_way = session.requests.len();
        if under_way >= self.setup.limits.session_requests_max || (session.barrier && under_way > 0) {
            return self.wait_for(key, Wait::Replies);
        }
        session.barrier = false;
        if self.driver.backlog_bytes(session.conn) > SESSION_BACKLOG_BYTES_MAX {
            return self.wait_for(key, Wait::Client);
        }
        if self.ledger.room() == 0 && !session.inbox.is_empty() {
            return self.wait_for(key, Wait::Shared);
        }
        let parser = self.setup.view(session.channel).parse_request;
        let mut scratch = self.scratch.take().expect("activations never nest");
        let next = session.inbox.next(&mut tools!(self), parser, &mut scratch.frame);
        let flow = match next {
            Next::Whole(message) => self.whole_request(key, &mut scratch, message),
            Next::Large(seen) => self.large_request(key, &mut scratch, seen),
            Next::Starved => Flow::Stop,
            Next::Fault { field, cause, answerable } => {
                tracing::debug!(field, cause, "client sent what is not of the grammar");
                self.request_fault(key, &mut scratch, answerable);
                Flow::Stop
            }
            Next::NoBuffers => {
                self.counters.exhausted.add(1);
                self.end_session(key, true);
                Flow::Stop
            }
        };
        self.scratch = Some(scratch);
        flow
    }

    fn whole_request(&mut self, key: Key, scratch: &mut Scratch, message: Slice) -> Flow {
        let Some(channel) = self.sessions.get(key).map(|session| session.channel) else { return Flow::Stop };
        let flags = scratch.frame.flags();
        if flags.has(MessageFlags::ENDS) {
            self.consume(key, message.len());
            self.counters.requests.add(1);
            self.farewell(key, scratch, flags);
            return Flow::Stop;
        }
        Self::run_rules(&self.setup, scratch, channel, 0, message.bytes());
        if !self.has_room(scratch.sends.as_slice()) {
            return self.wait_for(key, Wait::Shared);
        }
        self.consume(key, message.len());
        self.counters.requests.add(1);
        let mut answered = flags.has(MessageFlags::MUTE);
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            if send.channel as usize == self.setup.listened {
                self.answer_directly(key, scratch, &send, &message);
            } else {
                self.send_request(key, scratch, &send, &message, answered);
            }
            answered = true;
        }
        if !answered {
            self.fail_new_request(key, &scratch.frame, FailureReason::Unavailable);
        }
        Flow::Go
    }

    pub(super) fn consume(&mut self, key: Key, bytes: u32) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.inbox.consume(&mut tools!(self), bytes);
        }
    }

    /// Whether everything a message's sends may need is there: ledger entries, room on the connections.
    fn has_room(&self, sends: &[Send]) -> bool {
        if self.ledger.room() <= sends.len() {
            return false;
        }
        sends.iter().all(|send| {
            let Some(backend) = self.backend_of(send) else { return true };
            let link = &self.links[self.backends[backend as usize].shared as usize];
            link.conn.is_none_or(|conn| self.driver.backlog_bytes(conn) <= LINK_BACKLOG_BYTES_MAX)
        })
    }

    /// The backend a send names; `None` for the session's own channel and for an element outside its array.
    pub(super) fn backend_of(&self, send: &Send) -> Option<u32> {
        let (first, count) = self.setup.elements[send.channel as usize];
        (send.element < u64::from(count)).then_some(first + send.element as u32)
    }

    /// A reply that the program gives itself, in order behind those under way.
    fn answer_directly(&mut self, key: Key, scratch: &mut Scratch, send: &Send, message: &Slice) {
        let echo = self.echo_of(&scratch.frame);
        let Some(request) = self.open_request(Some(key), echo, u64::MAX) else { return };
        self.deliver_message(request, &outgoing(scratch, send.body, message), [None, None]);
        self.finish_request(request);
    }

    /// Sends one whole request on a shared connection. `copy`: nobody waits for the reply.
    fn send_request(&mut self, key: Key, scratch: &mut Scratch, send: &Send, message: &Slice, copy: bool) {
        let mute = scratch.frame.flags().has(MessageFlags::MUTE);
        let Some(backend) = self.backend_of(send).filter(|backend| self.shared_link_is_usable(*backend))
        else {
            if let Some(backend) = self.backend_of(send) {
                self.backend_counters[backend as usize].failures.add(1);
            }
            if !copy && !mute {
                self.fail_new_request(key, &scratch.frame, FailureReason::Unavailable);
            }
            return;
        };
        let link = self.backends[backend as usize].shared;
        self.backend_counters[backend as usize].requests.add(1);
        let number = self.links[link as usize].next_number;
        let patches = self.request_patches(scratch, send, number);
        if !mute {
            let echo = self.echo_of(&scratch.frame);
            let session = if copy { None } else { Some(key) };
            let deadline_ns = self.reply_deadline(link);
            let Some(request) = self.open_request(session, echo, deadline_ns) else { return };
            self.ledger.get_mut(request).number = number & number_mask(&self.setup.protocol().correlate);
            self.links[link as usize].next_number = number.wrapping_add(1);
            self.ledger.push_link(&mut self.links[link as usize].requests, request);
        }
        let sent = self.write_to_link(link, &outgoing(scratch, send.body, message), patches);
        if !sent {
            self.counters.exhausted.add(1);
            self.link_broken(link, FailureReason::Overload);
        }
    }

    /// What to overwrite in a request on a shared connection: its number, and its loud twin.
    pub(super) fn request_patches(&self, scratch: &mut Scratch, send: &Send, number: u64) -> Patches {
        let protocol = self.setup.protocol();
        let mut loud = scratch.frame.slots[SLOT_LOUD];
        if let (SendBody::Rebuilt { offset, len, .. }, Some(_)) = (send.body, protocol.loud) {
            // The program may have changed what decides the loud twin: ask the grammar again.
            if let Some(view) = &self.setup.program.channels[self.setup.listened].view {
                scratch.other.restart();
                let head = &scratch.out[offset as usize..(offset + len) as usize];
                if self.setup.engine.parse(view.parse_request, &mut scratch.other, head) == Step::Done {
                    loud = scratch.other.slots[SLOT_LOUD];
                }
            }
        }
        [protocol.correlate.map(|field| (field, number)), protocol.loud.map(|field| (field, loud))]
    }

    /// The echo fields of a parsed request.
    pub(super) fn echo_of(&self, frame: &Frame) -> [u64; ECHO_FIELDS_MAX] {
        let mut echo = [0; ECHO_FIELDS_MAX];
        for (kept, field) in echo.iter_mut().zip(&self.setup.protocol().echo) {
            *kept = frame.slots[usize::from(field.slot)];
        }
        echo
    }

    pub(super) fn shared_link_is_usable(&self, backend: u32) -> bool {
        let backend = &self.backends[backend as usize];
        let link = &self.links[backend.shared as usize];
        match link.state {
            LinkState::Up => link.conn.is_some(),
            LinkState::Connecting => backend.failures == 0,
            LinkState::Down => false,
        }
    }

    fn request_fault(&mut self, key: Key, scratch: &mut Scratch, answerable: bool) {
        self.counters.peer_faults_client.add(1);
        if answerable {
            self.counters.failed_malformed.add(1);
            self.fail_new_request(key, &scratch.frame, FailureReason::Malformed);
        }
        self.stop_reading(key);
    }

    fn farewell(&mut self, key: Key, scratch: &mut Scratch, flags: MessageFlags) {
        if !flags.has(MessageFlags::MUTE) {
            self.fail_new_request(key, &scratch.frame, FailureReason::Farewell);
        }
        self.stop_reading(key);
    }

    /// Takes no further request of this session; it ends when its replies are out.
    pub(super) fn stop_reading(&mut self, key: Key) {
        if let Some(session) = self.sessions.get_mut(key)
            && session.phase == Phase::Open
        {
            session.phase = Phase::Closing;
            session.inbox.clear(&mut self.pieces, &mut self.frames);
            self.deadlines.clear(key.index);
        }
    }

    pub(super) fn arm_message(&mut self, key: Key, mid_message: bool) {
        let kind = self.deadlines.kind(key.index);
        if mid_message {
            if kind != Some(Kind::Message) {
                let deadline = self.driver.now_ns() + self.setup.timeouts.request.as_nanos() as u64;
                self.set_deadline(key.index, Kind::Message, deadline);
            }
        } else if kind == Some(Kind::Message) {
            self.deadlines.clear(key.index);
            self.arm_idle(key);
        } else if kind == Some(Kind::Idle) {
            self.arm_idle(key);
        }
    }

    pub(super) fn arm_idle(&mut self, key: Key) {
        let idle = self.setup.timeouts.idle;
        if !idle.is_zero() {
            self.set_deadline(key.index, Kind::Idle, self.driver.now_ns() + idle.as_nanos() as u64);
        }
    }
}

/// The part of a number that the correlate field can carry.
pub(super) fn number_mask(correlate: &Option<WireField>) -> u64 {
    match correlate {
        Some(field) if field.width_bytes < 8 => (1 << (u64::from(field.width_bytes) * 8)) - 1,
        _ => u64::MAX,
    }
}

/// How a whole message leaves: short ones are copied, of long ones only the front is.
pub(super) fn outgoing<'a>(scratch: &'a Scratch, body: SendBody, message: &'a Slice) -> Outgoing<'a> {
    match body {
        SendBody::Original if message.len() <= COPY_BYTES_MAX => {
            Outgoing { front: message.bytes(), rest: None }
        }
        SendBody::Original => {
            let front = (scratch.frame.head_bytes() as u32).min(message.len());
            Outgoing {
                front: &message.bytes()[..front as usize],
                rest: Some(message.sub(front..message.len())),
            }
        }
        SendBody::Message(_) => unreachable!("an activation that never asks has one message"),
        SendBody::Rebuilt { offset, len, tail_from, .. } => {
            let front = &scratch.out[offset as usize..(offset + len) as usize];
            let rest = (tail_from < message.len()).then(|| message.sub(tail_from..message.len()));
            Outgoing { front, rest }
        }
    }
}
