//! Running rules: the memory that an activation works in, and the calls into the program's code.
//! Promises: activations never nest, so that one such memory is enough; nothing here allocates after start.

use std::sync::atomic::AtomicU64;

use flick_abi::limits::MESSAGES_MAX;
use flick_abi::{
    AskList, Engine, FailureReason, Frame, FuncId, Host, Message, MessageDone, MessageFlags, MessageRun,
    RuleAction, RuleCall, RuleOutcome, Send, SendBody, SendList,
};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::backend_view::BackendView;
use crate::limits::{FEW_MESSAGES, WHOLE_BYTES_MAX};
use crate::rules::RuleParts;
use crate::rules::locals::StateId;
use crate::rules::scratch::Scratch;
use crate::setup::Setup;
use crate::slab::Key;

/// Point at which a rule has suspended itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paused {
    /// The rule.
    pub rule: FuncId,
    /// State to go on in.
    pub resume: u32,
    /// The channel and the number of its rule behind that one.
    pub next: Option<(usize, usize)>,
}

/// The message that starts rules.
pub(super) struct Start<'a> {
    /// Index of the channel that it came on.
    pub channel: usize,
    /// Element of that channel.
    pub element: u64,
    /// Its bytes, at least its head.
    pub message: &'a [u8],
}

/// Context of the rules of a channel: the same for all messages.
pub(super) struct RuleContext<'a> {
    setup: &'a Setup,
    engine: &'a dyn Engine,
    actions: &'a [RuleAction],
    /// Elements of each channel.
    lens: &'a [u64],
    /// The program's counters of this worker.
    counters: &'a [AtomicU64],
}

/// Flags of requests that are not handled in runs.
pub(super) const LEFT_FLAGS: u64 = MessageFlags::ENDS | MessageFlags::ONE_WAY | MessageFlags::LAST;

impl<'a> RuleContext<'a> {
    pub(super) fn new(setup: &'a Setup, channel: usize, lens: &'a [u64], counters: &'a [AtomicU64]) -> Self {
        Self { setup, engine: &*setup.engine, actions: &setup.actions[channel], lens, counters }
    }

    /// Runs a rule on the whole messages at the front of `bytes`, as [`Engine::run_each`]; the first one builds from
    /// `out_len` on.
    pub(super) fn run_each(
        &self,
        rule: FuncId,
        (frame, ahead, bytes): (&mut Frame, &mut [Frame], &[u8]),
        (sends, asks, spills): (&mut SendList, &mut AskList, &mut [u64]),
        (out, out_len): (&mut [u8], usize),
        (state, host): (&mut [u64], &mut dyn Host),
        done: &mut dyn FnMut(MessageDone<'_>) -> Option<usize>,
    ) {
        asks.clear();
        let parser = self.setup.view(self.setup.listened).parse_request;
        // Requests that get no reply, or are the last of their session, are handled by themselves.
        let leaves = if self.setup.is_relay { 0 } else { LEFT_FLAGS };
        let run = MessageRun { parser, rule, frame, ahead, bytes, whole_bytes_max: WHOLE_BYTES_MAX, leaves };
        let mut call = RuleCall {
            frame: &EMPTY,
            message: &[],
            others: &[],
            source_element: 0,
            channel_lens: self.lens,
            counters: self.counters,
            out,
            out_len,
            sends,
            asks,
            answers: &[],
            spills,
            resume: 0,
            state,
            failure: None,
            host,
        };
        self.engine.run_each(run, &mut call, done);
    }
}

impl<D: Driver> Worker<D> {
    /// Runs all rules of a channel on the message in `scratch.frame`, or up to one that suspends itself; the sends are
    /// in `scratch.sends`, the asks in `scratch.asks`, and what they build is in `out`.
    pub(super) fn run_rules(
        &RuleContext { setup, engine, actions, lens, counters }: &RuleContext<'_>,
        (scratch, out): (&mut Scratch, &mut [u8]),
        state: &mut [u64],
        host: &mut dyn Host,
        start: &Start<'_>,
    ) -> Option<Paused> {
        scratch.sends.clear();
        scratch.out_len = 0;
        scratch.failure = None;
        for (at, action) in actions.iter().enumerate() {
            match *action {
                RuleAction::Pass { to } => {
                    scratch.sends.push(Send { channel: to as u32, element: 0, body: SendBody::Original });
                }
                RuleAction::Run { rule } => {
                    scratch.asks.clear();
                    let mut call = RuleCall {
                        frame: &scratch.frame,
                        message: start.message,
                        others: &[],
                        source_element: start.element,
                        channel_lens: lens,
                        counters,
                        out,
                        out_len: scratch.out_len,
                        sends: &mut scratch.sends,
                        asks: &mut scratch.asks,
                        answers: &[],
                        spills: &mut scratch.spills,
                        resume: 0,
                        state,
                        failure: None,
                        host,
                    };
                    let outcome = engine.run(rule, &mut call);
                    let (out_len, failure) = (call.out_len, call.failure);
                    scratch.out_len = out_len;
                    scratch.failure = failure.map(reason).or(scratch.failure);
                    if let RuleOutcome::Suspended(resume) = outcome {
                        return Some(paused(setup, rule, resume, (start.channel, at + 1)));
                    }
                }
            }
        }
        None
    }

    /// Runs the rule of an activation that waits, from its start or from where it suspended itself.
    pub(super) fn run_rule_of(&mut self, scratch: &mut Scratch, key: Key, state: StateId) -> RuleOutcome {
        let few = self.rules.suspended().get(key).is_none_or(|suspended| suspended.replies() <= FEW_MESSAGES);
        if few {
            self.run_rule_with::<FEW_MESSAGES>(scratch, key, state)
        } else {
            self.run_rule_with::<MESSAGES_MAX>(scratch, key, state)
        }
    }

    /// As `run_rule_of`, for an activation that has at most `MOST` replies.
    fn run_rule_with<const MOST: usize>(
        &mut self,
        scratch: &mut Scratch,
        key: Key,
        state: StateId,
    ) -> RuleOutcome {
        let RuleParts { suspended: table, locals, host, counters } = self.rules.parts();
        let Some(suspended) = table.get(key) else { return RuleOutcome::Finished };
        let (rule, resume, element) = (suspended.rule, suspended.resume, suspended.element);
        let mut messages = [Message { frame: &EMPTY, bytes: &[] }; MOST];
        let count = table.messages(key, &mut messages);
        scratch.sends.clear();
        scratch.asks.clear();
        let session = suspended.session.and_then(|session| self.downstream.client(session));
        let client = session.map(|session| self.io.peer(session.handle()));
        let setup = &**self.ctx.setup();
        let around = BackendView { setup, upstream: &self.upstream, now_ns: self.io.now_ns(), client };
        let mut call = RuleCall {
            frame: table.frame(key),
            message: suspended.message.as_ref().map_or(&[], Slice::bytes),
            others: &messages[..count],
            source_element: element,
            channel_lens: self.upstream.backend_set().lens(),
            counters,
            out: &mut scratch.out,
            out_len: scratch.out_len,
            sends: &mut scratch.sends,
            asks: &mut scratch.asks,
            answers: table.answers(key),
            spills: &mut scratch.spills,
            resume,
            state: locals.words_mut(state),
            failure: None,
            host: &mut host.view(&around),
        };
        let outcome = self.ctx.setup().engine.run(rule, &mut call);
        let (out_len, failure) = (call.out_len, call.failure);
        scratch.out_len = out_len;
        scratch.failure = failure.map(reason);
        outcome
    }

    /// Gives a state its first values, if it has none yet.
    pub(super) fn first_values(&mut self, scratch: &mut Scratch, state: StateId) {
        if !self.rules.locals_mut().is_first_use(state) {
            return;
        }
        let Some(rule) = self.ctx.setup().program.init_state else { return };
        let setup = &**self.ctx.setup();
        let around = BackendView { setup, upstream: &self.upstream, now_ns: self.io.now_ns(), client: None };
        scratch.sends.clear();
        scratch.asks.clear();
        let RuleParts { locals, host, counters, .. } = self.rules.parts();
        let mut call = RuleCall {
            frame: &EMPTY,
            message: &[],
            others: &[],
            source_element: 0,
            channel_lens: self.upstream.backend_set().lens(),
            counters,
            out: &mut scratch.out,
            out_len: 0,
            sends: &mut scratch.sends,
            asks: &mut scratch.asks,
            answers: &[],
            spills: &mut scratch.spills,
            resume: 0,
            state: locals.words_mut(state),
            failure: None,
            host: &mut host.view(&around),
        };
        let outcome = self.ctx.setup().engine.run(rule, &mut call);
        assert!(outcome == RuleOutcome::Finished, "first values wait for no reply");
        assert!(scratch.sends.as_slice().is_empty(), "first values are not sent");
    }
}

/// Frame of a rule that has no message.
static EMPTY: Frame = Frame::new();

/// Returns the point at which a rule has suspended itself, given the position of the rule behind it.
fn paused(setup: &Setup, rule: FuncId, resume: u32, next: (usize, usize)) -> Paused {
    assert!(setup.needs.asks, "only a rule that says so suspends itself");
    Paused { rule, resume, next: Some(next).filter(|(channel, at)| *at < setup.actions[*channel].len()) }
}

/// The reason with that number.
pub(super) fn reason(number: u32) -> FailureReason {
    let named = FailureReason::NAMES.get(number as usize);
    named.expect("a rule fails a request for a reason that there is").1
}
