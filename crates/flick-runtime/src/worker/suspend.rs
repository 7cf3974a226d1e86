//! Rules that suspend themselves: the worker sends what they ask, keeps the replies, and resumes them when the last
//! reply has arrived. Handlers and timers run in the same way, without waiting for a reply.
//! Promises: the request of a suspended rule is in its session's queue from the start, so that replies keep the order
//! of requests; every ask has one answer, its own reply or a reason; a reply that arrives after its ask has timed out
//! is drained, never taken for another; a request is answered once.
//! Refuses: keeping replies too long to buffer (`WHOLE_BYTES_MAX`): such an ask fails with `Overload`.

use flick_abi::frame::SLOT_ASKED;
use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{Event, FailureReason, MessageFlags, ParseStep, RuleAction, RuleOutcome, Send, SendBody};
use flick_buffers::{BufClass, SMALL_BYTES, Slice};
use flick_net::Driver;

use super::Worker;
use super::deliver::{large_are_plentiful, reply_patches, restore_echo};
use super::outgoing::{Outgoing, Patches, flags_of_sent, outgoing_reply};
use super::replies::ReplySource;
use super::reply_flags::Verdict;
use super::rules::Paused;
use super::sending::{BackendIncident, Unsent, Waiter};
use crate::inflight::{ReplyTarget, RequestId};
use crate::limits::BACKEND_CONN_BACKLOG_BYTES_MAX;
use crate::observe::edge_counters::StartId;
use crate::rules::locals::StateId;
use crate::rules::scratch::Scratch;
use crate::rules::suspended::SuspendedRule;
use crate::run_queue::{Flow, Task};
use crate::slab::Key;
use crate::upstream::conn::{Download, Recipient};

impl<D: Driver> Worker<D> {
    /// Keeps a rule that has suspended itself on a client's request, and sends what it has left.
    pub(super) fn suspend_request(
        &mut self,
        (session, channel): (Key, usize),
        scratch: &mut Scratch,
        paused: Paused,
        message: &Slice,
    ) {
        let echo = self.echo_of(&scratch.frame);
        let Some(request) = self.open_request(Some(session), echo, u64::MAX) else { return };
        self.inflight.get_mut(request).keep(scratch.frame.slots[SLOT_ASKED]);
        self.pin_to_shared(session);
        let one_way = scratch.frame.flags().has(MessageFlags::ONE_WAY);
        let start = StartId::channel(channel);
        self.observe.edges().started(start, 1);
        let suspended = SuspendedRule {
            session: Some(session),
            request: Some(request),
            forwards: true,
            reason: Some(FailureReason::Unavailable).filter(|_| !one_way),
            message: Some(self.to_keep(message)),
            ..SuspendedRule::new(paused.rule, start)
        };
        let Some(key) = self.rules.suspended_mut().insert(suspended, &scratch.frame) else {
            self.fail_request(request, FailureReason::Overload);
            return;
        };
        self.observe.counters().rules_suspended.add(1);
        self.inflight.get_mut(request).set_reply_target(ReplyTarget::Answerer(key));
        scratch.has_frame = true;
        self.carry_out(key, scratch);
        self.suspend(key, scratch, paused);
        scratch.named = None;
    }

    /// A message to be kept while its rule is suspended: by reference or, when buffers are scarce, as a copy in a small
    /// buffer, so that its large buffer is freed.
    fn to_keep(&self, message: &Slice) -> Slice {
        if large_are_plentiful(self.io.pool()) || message.len() > SMALL_BYTES {
            return message.clone();
        }
        let Some(small) = self.io.pool().alloc(BufClass::Small) else { return message.clone() };
        let taken = small.append(message.bytes());
        assert!(taken == message.len(), "a small message fits a small buffer");
        small.slice(0..taken)
    }

    /// Runs a suspended rule from the run queue.
    pub(super) fn run_suspended_rule(&mut self, key: Key) {
        let mut scratch = self.rules.take_scratch();
        if let Some(state) = self.state_of(key) {
            self.first_values(&mut scratch, state);
            self.go_on(key, &mut scratch, state);
            scratch.named = None;
        }
        self.rules.return_scratch(scratch);
    }

    /// The state that an activation works on; `None` when it is over because its client has gone.
    fn state_of(&mut self, key: Key) -> Option<StateId> {
        let suspended = self.rules.suspended().get(key)?;
        let state = match suspended.session {
            Some(session) => self.downstream.client(session).map(|session| session.stream().state()),
            None => suspended.state,
        };
        if state.is_none() {
            self.cancel(key);
        }
        state
    }

    /// Runs an activation until it suspends itself or is over, and the rules behind it.
    fn go_on(&mut self, key: Key, scratch: &mut Scratch, state: StateId) {
        scratch.out_len = self.rules.suspended().restore(key, &mut scratch.out, &mut scratch.spills);
        scratch.has_frame = false;
        for _ in 0..=self.ctx.setup().program.rules.len() {
            let outcome = self.run_rule_of(scratch, key, state);
            self.carry_out(key, scratch);
            let Some(suspended) = self.rules.suspended_mut().get_mut(key) else { return };
            if let RuleOutcome::Suspended(resume) = outcome {
                let paused = Paused { rule: suspended.rule, resume, next: suspended.next };
                self.suspend(key, scratch, paused);
                return;
            }
            if let Some(reason) = scratch.failure {
                suspended.reason = suspended.reason.map(|_| reason);
                self.note_too_long(reason);
            }
            if !self.next_rule(key, scratch) {
                break;
            }
        }
        self.finish_rule(key);
    }

    /// Makes an activation ready for the next rule of its channel that runs, carrying out those before it that only
    /// pass the message on. Whether there is one.
    fn next_rule(&mut self, key: Key, scratch: &mut Scratch) -> bool {
        self.rules.suspended_mut().reset_progress(key);
        scratch.out_len = 0;
        while let Some(suspended) = self.rules.suspended_mut().get_mut(key)
            && let Some((channel, at)) = suspended.next.take()
        {
            let actions = &self.ctx.setup().actions[channel];
            suspended.resume = 0;
            suspended.next = Some((channel, at + 1)).filter(|(_, at)| *at < actions.len());
            match actions[at] {
                RuleAction::Run { rule } => {
                    suspended.rule = rule;
                    return true;
                }
                RuleAction::Pass { to } => {
                    let send = Send { channel: to as u32, element: 0, body: SendBody::Original };
                    scratch.sends.push(send);
                    self.carry_out(key, scratch);
                }
            }
        }
        false
    }

    /// Keeps a suspended activation and sends what it asks.
    fn suspend(&mut self, key: Key, scratch: &mut Scratch, paused: Paused) {
        let asks = scratch.asks.as_slice().len();
        let Some(suspended) = self.rules.suspended_mut().get_mut(key) else { return };
        (suspended.rule, suspended.resume, suspended.next) = (paused.rule, paused.resume, paused.next);
        self.rules.suspended_mut().suspend(key, &scratch.out[..scratch.out_len], &scratch.spills, asks);
        if asks == 0 {
            self.tasks.push(Task::SuspendedRule(key));
        }
        self.observe.counters().asks.add(asks as u64);
        self.load_frame(key, scratch);
        for at in 0..asks {
            if let Err(unsent) = self.send_ask(key, scratch, at as u8) {
                self.ask_failed(key, at as u8, unsent.reason());
            }
        }
    }

    fn send_ask(&mut self, key: Key, scratch: &mut Scratch, at: u8) -> Result<(), Unsent> {
        let ask = scratch.asks.as_slice()[usize::from(at)];
        let Some(suspended) = self.rules.suspended().get(key) else { return Ok(()) };
        let (message, session) = (suspended.message.clone(), suspended.session);
        self.observe.edges().asked(suspended.start, ask.send.channel);
        self.name_message(key, scratch, ask.send.body);
        let deadline_ns = match u64::try_from(ask.timeout_ns) {
            Ok(timeout_ns) if timeout_ns > 0 => self.io.now_ns().saturating_add(timeout_ns),
            _ => u64::MAX,
        };
        if self.ctx.setup().program.channels[ask.send.channel as usize].view.is_none() {
            return Err(Unsent::Unanswerable);
        }
        let waiter = Waiter::Ask { suspended: key, ask: at, deadline_ns };
        self.send_request(scratch, &ask.send, message.as_ref(), waiter)?;
        if deadline_ns != u64::MAX {
            self.note_due(deadline_ns);
        }
        if let Some(session) = session {
            self.note_clog(session, &ask.send);
        }
        Ok(())
    }

    /// Copies the frame of a rule's message into `scratch`, if it is not there: a rule that only forwards a reply does
    /// not need it.
    fn load_frame(&self, key: Key, scratch: &mut Scratch) {
        if !std::mem::replace(&mut scratch.has_frame, true) {
            scratch.frame.copy_from(self.rules.suspended().frame(key));
        }
    }

    /// Puts the message that `body` names, if it is a reply to an ask, where `outgoing` finds it.
    fn name_message(&mut self, key: Key, scratch: &mut Scratch, body: SendBody) {
        let number = match body {
            SendBody::Original => 0,
            SendBody::Message(number) => number,
            SendBody::Rebuilt { tail_of, tail_from, .. } if tail_from != u32::MAX => tail_of,
            SendBody::Rebuilt { .. } => 0,
        };
        scratch.named = None;
        if number > 0 {
            scratch.named = self.rules.suspended().reply(key, usize::from(number)).cloned();
            scratch.named_frame.copy_edits(self.rules.suspended().reply_frame(key, usize::from(number)));
        }
    }

    /// A session that has sent to a backend connection which is full takes no further message until it drains.
    pub(super) fn note_clog(&mut self, session: Key, send: &Send) {
        let Some(backend) = self.backend_of(send) else { return };
        if let Some(backend_conn) = self.upstream.backend(backend as usize).next_conn() {
            self.note_full(session, backend_conn, BACKEND_CONN_BACKLOG_BYTES_MAX);
        }
    }

    /// A session takes no further message until a backend connection drains, if more than `bytes_max` bytes wait there.
    pub(super) fn note_full(&mut self, session: Key, backend_conn: u32, bytes_max: usize) {
        if self.is_clogged(backend_conn, bytes_max)
            && let Some(session) = self.downstream.client_mut(session)
        {
            session.stream_mut().set_full_conn(Some(backend_conn));
        }
    }

    /// Sends what the rule of an activation has left to send.
    fn carry_out(&mut self, key: Key, scratch: &mut Scratch) {
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            let Some(suspended) = self.rules.suspended().get(key) else { return };
            let (message, request) = (suspended.message.clone(), suspended.request);
            self.observe.edges().carried(suspended.start, &[send]);
            self.name_message(key, scratch, send.body);
            let is_for_client = send.channel as usize == self.ctx.setup().listened;
            if !is_for_client || request.is_none() || scratch.named.is_none() {
                self.load_frame(key, scratch);
            }
            if is_for_client {
                self.send_to_client(key, scratch, &send, message.as_ref());
            } else {
                self.send_to_backend(key, scratch, &send, message.as_ref());
            }
        }
        scratch.sends.clear();
        scratch.named = None;
    }

    /// Sends a message of a rule to its client: part of the reply to the request while that waits for the rule, a reply
    /// of its own after the others when the request has been forwarded.
    fn send_to_client(&mut self, key: Key, scratch: &mut Scratch, send: &Send, message: Option<&Slice>) {
        let Some(suspended) = self.rules.suspended().get(key) else { return };
        let (request, session, forwards) = (suspended.request, suspended.session, suspended.forwards);
        if let Some(request) = request {
            let entry = self.inflight.get(request);
            let (echo, kept) = (*entry.echo(), entry.kept());
            let Some(client) = entry.session() else { return };
            let mut verdict = self.judge(scratch, send.body, message, (client, &echo, kept));
            let flags = self.flags_of_passed(key, send.body);
            if flags.has(MessageFlags::SILENT) {
                verdict = Verdict::Silent;
            } else if flags.has(MessageFlags::CLOSES) && verdict == Verdict::Delivered {
                verdict = Verdict::DeliveredAndLast;
            }
            if verdict == Verdict::Wrong {
                self.observe.counters().sends_dropped.add(1);
                return;
            }
            if let Some(suspended) = self.rules.suspended_mut().get_mut(key) {
                suspended.is_answered = true;
            }
            if verdict == Verdict::Silent {
                self.observe.counters().replies_suppressed.add(1);
                return;
            }
            self.inflight.get_mut(request).note_begun();
            let patches = reply_patches(self.ctx.setup(), &echo);
            let to = Recipient::Request(request);
            let flags = flags_of_sent(scratch, send.body, flags);
            self.deliver_message(to, &outgoing_reply(scratch, send.body, message), flags, patches);
            if verdict == Verdict::DeliveredAndLast {
                self.ends_with_reply(request);
            }
        } else if let Some(session) = session.filter(|_| forwards) {
            self.answer_directly(session, scratch, send, message);
        } else {
            self.observe.counters().sends_dropped.add(1);
        }
    }

    /// Flags of a reply that a rule passes on to its client.
    fn flags_of_passed(&self, key: Key, body: SendBody) -> MessageFlags {
        match body {
            SendBody::Message(number) | SendBody::Rebuilt { tail_of: number, .. } if number > 0 => {
                self.rules.suspended().reply_flags(key, usize::from(number))
            }
            _ => MessageFlags::default(),
        }
    }

    /// A message of an activation for a backend: its client's request sent on, the first time, or a copy.
    fn send_to_backend(&mut self, key: Key, scratch: &mut Scratch, send: &Send, message: Option<&Slice>) {
        let Some(suspended) = self.rules.suspended_mut().get_mut(key) else { return };
        let session = suspended.session;
        let may_forward = suspended.forwards
            && !suspended.is_answered
            && suspended.reason.is_some()
            && self.ctx.setup().has_rule_of(send.channel);
        let request = suspended.request.filter(|_| may_forward);
        let is_mirrored = request.is_none() && self.is_mirrored(send, scratch.sends.as_slice());
        if is_mirrored && !self.has_capacity_for_copy(send) {
            self.observe.counters().sends_dropped.add(1);
            return;
        }
        let Some(suspended) = self.rules.suspended_mut().get_mut(key) else { return };
        let waiter = request.map_or(Waiter::NoClient, Waiter::InFlight);
        if let Some(request) = request {
            // From here on its reply answers it, or the connection's end.
            suspended.request = None;
            suspended.is_answered = true;
            self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
        }
        let sent = self.send_request(scratch, send, message, waiter);
        match (sent, request) {
            (Ok(()), _) => {}
            (Err(unsent), Some(request)) => self.fail_unsent(request, unsent),
            (Err(_), None) => self.observe.counters().sends_dropped.add(1),
        }
        if let Some(session) = session.filter(|_| !is_mirrored) {
            self.note_clog(session, send);
        }
    }

    /// A request that could not be sent: its handler may answer it, or we do.
    pub(super) fn fail_unsent(&mut self, request: RequestId, unsent: Unsent) {
        let incident = match unsent {
            Unsent::Down(backend) => Some(BackendIncident { event: Event::Refused, backend }),
            _ => None,
        };
        self.fail_or_handle(request, unsent.reason(), incident);
    }

    /// The reply to an ask: kept if it is whole; of a large one nothing is.
    pub(super) fn ask_reply(
        &mut self,
        source: ReplySource,
        scratch: &mut Scratch,
        (suspended, ask): (Key, u8),
        seen: Slice,
        whole: bool,
    ) -> Flow {
        let ReplySource { backend_conn, channel, request } = source;
        let echo = *self.inflight.get(request).echo();
        restore_echo(&mut scratch.frame, &self.ctx.setup().protocol_of(channel).echo, &echo);
        if let Some(judge) = self.ctx.setup().view(channel).reply_flags {
            let step = self.ctx.setup().engine.parse(judge, &mut scratch.frame, seen.bytes());
            assert!(step == ParseStep::Done, "a reply's flags are judged on what has been parsed");
        }
        let flags = scratch.frame.flags();
        self.count_status(backend_conn, flags);
        let last = !flags.has(MessageFlags::MORE);
        let ends = [MessageFlags::LAST, MessageFlags::UNTIL_CLOSE, MessageFlags::TUNNEL];
        if ends.iter().any(|end| flags.has(*end)) {
            self.upstream.conn_mut(backend_conn).close_after_exchange();
        }
        let exclusive = self.upstream.backend_of(backend_conn).is_exclusive();
        if whole && !last && exclusive {
            // News of the exchange; what answers it is yet to come.
            self.consume_reply(backend_conn, seen.len());
            return Flow::Go;
        }
        self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
        if whole {
            self.consume_reply(backend_conn, seen.len());
            self.inflight.get_mut(request).note_begun();
            let reply = self.to_keep(&seen);
            if self.rules.suspended_mut().answer(suspended, ask, &scratch.frame, reply) {
                self.tasks.push(Task::SuspendedRule(suspended));
            }
            if last {
                self.reply_was_last(backend_conn, request);
            }
            return Flow::Go;
        }
        let (_, body) = self.take_reply_head(backend_conn, &scratch.frame, &seen);
        self.ask_failed(suspended, ask, FailureReason::Overload);
        let to = Recipient::Request(request);
        let download = Download { to, body, last, is_delivered: false, drain_max: None };
        if !self.upstream.conn_mut(backend_conn).set_download(Some(download)) {
            self.drop_body(body);
        }
        self.leave_exchange(backend_conn);
        Flow::Go
    }

    /// An ask gets no reply.
    pub(super) fn ask_failed(&mut self, suspended: Key, ask: u8, reason: FailureReason) {
        if self.rules.suspended_mut().fail(suspended, ask, reason) {
            self.tasks.push(Task::SuspendedRule(suspended));
        }
    }

    /// Gives up the asks whose time is over. Their entries stay until their replies have been drained.
    pub(super) fn run_ask_timers(&mut self, now_ns: u64) {
        while let Some(key) = self.rules.suspended().expired(now_ns) {
            while let Some((ask, request)) = self.rules.suspended().open_ask(key, Some(now_ns)) {
                self.observe.counters().ask_timeouts.add(1);
                self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
                self.abandon_exchange(request);
                self.ask_failed(key, ask, FailureReason::Timeout);
            }
            self.rules.suspended_mut().set_alarm(key);
        }
    }

    /// Ends a rule. Its request is answered by the worker if the rule has not answered it.
    fn finish_rule(&mut self, key: Key) {
        let Some(suspended) = self.end_rule(key) else { return };
        let Some(request) = suspended.request else { return };
        self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
        match suspended.reason {
            Some(reason) if !suspended.is_answered => self.fail_request(request, reason),
            _ => self.finish_request(request),
        }
    }

    /// The client of an activation has gone: it does not go on, and its asks are drained.
    pub(super) fn cancel(&mut self, key: Key) {
        while let Some((ask, request)) = self.rules.suspended().open_ask(key, None) {
            self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
            self.abandon_exchange(request);
            self.rules.suspended_mut().fail(key, ask, FailureReason::Unavailable);
        }
        if self.end_rule(key).is_some() {
            self.observe.counters().rules_cancelled.add(1);
        }
    }

    fn end_rule(&mut self, key: Key) -> Option<SuspendedRule> {
        let suspended = self.rules.suspended_mut().remove(key)?;
        if let Some(state) = suspended.state {
            self.rules.locals_mut().give(state);
        }
        if let Some(timer) = suspended.timer {
            self.rules.end_timer(timer);
        }
        if self.downstream.has_blocked() {
            self.tasks.free_capacity();
        }
        Some(suspended)
    }

    /// Sends a reply of the program itself, in order after those in flight.
    pub(super) fn answer_directly(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        send: &Send,
        message: Option<&Slice>,
    ) {
        let (echo, kept) = (self.echo_of(&scratch.frame), scratch.frame.slots[SLOT_ASKED]);
        let verdict = self.judge(scratch, send.body, message, (key, &echo, kept));
        // What a reply repeats of its request is not the author's business.
        let patches = match send.body {
            SendBody::Original => [None, None],
            _ => reply_patches(self.ctx.setup(), &echo),
        };
        let flags = flags_of_sent(scratch, send.body, MessageFlags::default());
        let message = outgoing_reply(scratch, send.body, message);
        if self.answers_at_once(key, verdict) {
            self.answer_at_once(key, verdict, (&message, flags, patches));
        } else {
            self.answer_in_order(key, verdict, echo, (&message, flags, patches));
        }
    }

    /// Whether a reply of the program itself needs no entry in the in-flight table: its client waits for no other
    /// reply, and no log follows it.
    #[inline]
    fn answers_at_once(&self, key: Key, verdict: Verdict) -> bool {
        let stream = self.downstream.stream(key);
        verdict != Verdict::Wrong
            && !self.observe.has_access_log()
            && stream.is_some_and(|stream| stream.requests().is_empty())
    }

    fn answer_at_once(
        &mut self,
        key: Key,
        verdict: Verdict,
        (message, flags, patches): (&Outgoing<'_>, MessageFlags, Patches),
    ) {
        let now_ns = self.io.now_ns();
        let is_silent = verdict == Verdict::Silent;
        if is_silent {
            self.observe.counters().replies_suppressed.add(1);
        } else {
            self.deliver_message(Recipient::Client(key), message, flags, patches);
        }
        if verdict == Verdict::DeliveredAndLast {
            self.takes_no_more(key);
        }
        let answers = is_silent || !flags.has(MessageFlags::MORE);
        self.observe.note_answered(answers.then_some(now_ns), None, now_ns);
        self.go_on_after_reply(key);
    }

    fn answer_in_order(
        &mut self,
        key: Key,
        verdict: Verdict,
        echo: [u64; ECHO_FIELDS_MAX],
        (message, flags, patches): (&Outgoing<'_>, MessageFlags, Patches),
    ) {
        let Some(request) = self.open_request(Some(key), echo, u64::MAX) else { return };
        match verdict {
            Verdict::Delivered => {}
            Verdict::DeliveredAndLast => self.ends_with_reply(request),
            Verdict::Silent => {
                self.observe.counters().replies_suppressed.add(1);
                self.finish_request(request);
                return;
            }
            Verdict::Wrong => {
                self.fail_request(request, FailureReason::Unavailable);
                return;
            }
        }
        let is_continued = flags.has(MessageFlags::MORE);
        if is_continued {
            self.inflight.get_mut(request).note_continued();
        }
        self.deliver_message(Recipient::Request(request), message, flags, patches);
        if is_continued {
            self.log_continued(request);
        }
        self.finish_request(request);
    }

    /// The session of a request ends with the reply that is being delivered: nothing follows it.
    pub(super) fn ends_with_reply(&mut self, request: RequestId) {
        let entry = self.inflight.get_mut(request);
        entry.note_last();
        if let Some(key) = entry.session() {
            self.takes_no_more(key);
        }
    }

    /// A session takes no request after those that are in flight.
    fn takes_no_more(&mut self, key: Key) {
        if let Some(session) = self.downstream.client_mut(key)
            && !session.stream().ends_after_reply()
        {
            session.stream_mut().end_after_reply();
        }
    }
}
