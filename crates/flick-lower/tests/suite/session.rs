//! One session of a program with the platform around it, on both engines at once: messages in, sends out, asks
//! answered by the test.

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{
    Ask, AskList, Engine, FailureReason, Frame, FuncId, Message, ParseStep, RuleAction, RuleCall,
    RuleOutcome, SendList,
};

use crate::engines::{Engines, Sent, bytes_of};
use crate::platform::Platform;

/// Effects of one activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Messages that left.
    pub sends: Vec<Sent>,
    /// Reason for which the program failed the request; `None` if it did not.
    pub failure: Option<u32>,
    /// Bytes that it built.
    pub built: u64,
}

/// Answers an ask: channel, element, bytes, timeout.
pub type Answerer<'a> = dyn FnMut(&Sent, i64) -> Result<Vec<u8>, FailureReason> + 'a;

/// One engine's session.
#[derive(Clone, Debug, Default, PartialEq)]
struct Side {
    state: Vec<u64>,
    platform: Platform,
}

/// A session on both engines.
pub struct Session<'e> {
    engines: &'e Engines,
    sides: [Side; 2],
    channel_lens: Vec<u64>,
}

/// A message of an activation: its frame and bytes.
type Given = (Frame, Vec<u8>);

impl<'e> Session<'e> {
    /// A new session; each array of channels has `array_len` elements.
    pub fn new(engines: &'e Engines, array_len: u64) -> Self {
        let program = &engines.module.program;
        let side = Side { state: vec![0; program.state_words as usize], platform: Platform::default() };
        let lens = program.channels.iter().map(|channel| if channel.is_array { array_len } else { 1 });
        let mut session = Self { engines, sides: [side.clone(), side], channel_lens: lens.collect() };
        if let Some(init) = program.init_state {
            session.run(init, None, 0, &mut |_, _| panic!("nothing is asked at the start"));
        }
        session
    }

    /// The platform, which is the same on both sides.
    pub fn platform(&self) -> &Platform {
        &self.sides[0].platform
    }

    /// Changes the platform.
    pub fn with_platform(&mut self, change: impl Fn(&mut Platform)) {
        self.sides.iter_mut().for_each(|side| change(&mut side.platform));
    }

    /// A message arrives on a channel; its rules run.
    pub fn receive(&mut self, channel: &str, bytes: &[u8], answer: &mut Answerer<'_>) -> Effects {
        let program = &self.engines.module.program;
        let index = program.channels.iter().position(|known| known.name == channel);
        let index = index.unwrap_or_else(|| panic!("the program has a channel `{channel}`"));
        let view = program.channels[index].view.as_ref().expect("the channel receives");
        // The first channel is the listened one in these tests.
        let parser = if index == 0 { view.parse_request } else { view.parse_reply };
        let (step, frame) = self.engines.parse_at_every_cut(parser, bytes);
        assert_eq!(step, ParseStep::Done, "{bytes:?}");
        let mut all = Effects::default();
        for rule in program.rules.iter().filter(|rule| rule.source == index) {
            match rule.action {
                RuleAction::Pass { to } => all.sends.push((to as u32, 0, bytes.to_vec())),
                RuleAction::Run { rule } => {
                    let effects = self.run(rule, Some((frame.clone(), bytes.to_vec())), 0, answer);
                    all.sends.extend(effects.sends);
                    all.failure = all.failure.or(effects.failure);
                }
            }
        }
        all
    }

    /// Runs a handler, a timer or another rule without a message.
    pub fn event(&mut self, rule: FuncId, element: u64) -> Effects {
        self.run(rule, None, element, &mut |_, _| Err(FailureReason::Unavailable))
    }

    fn run(
        &mut self,
        rule: FuncId,
        first: Option<Given>,
        element: u64,
        answer: &mut Answerer<'_>,
    ) -> Effects {
        let first = first.unwrap_or((Frame::new(), Vec::new()));
        let mut asked: Vec<(Sent, i64)> = Vec::new();
        let mut replies: Vec<Result<Given, FailureReason>> = Vec::new();
        let engines = self.engines;
        let mut effects = Vec::new();
        for (engine, side) in [engines.interpreter(), engines.compiled()].into_iter().zip(&mut self.sides) {
            let mut next = 0;
            let mut give = |ask: &Sent, timeout: i64| {
                if next == asked.len() {
                    asked.push((ask.clone(), timeout));
                    replies.push(answer(ask, timeout).map(|bytes| parsed_reply(engines, ask.0, bytes)));
                }
                assert_eq!(asked[next], (ask.clone(), timeout), "both engines ask the same");
                next += 1;
                replies[next - 1].clone()
            };
            effects.push(activate(engine, rule, side, &first, element, &self.channel_lens, &mut give));
        }
        assert_eq!(effects[0], effects[1], "both engines do the same");
        assert!(
            effects[0].built <= engines.built_max(rule),
            "{} bytes are more than its bound",
            effects[0].built
        );
        assert_eq!(self.sides[0], self.sides[1], "both engines leave the same");
        effects.swap_remove(0)
    }
}

fn parsed_reply(engines: &Engines, channel: u32, bytes: Vec<u8>) -> Given {
    let view = engines.module.program.channels[channel as usize].view.as_ref().expect("who is asked answers");
    let (step, frame) = engines.parse_whole(view.parse_reply, &bytes);
    assert_eq!(step, ParseStep::Done, "{bytes:?}");
    (frame, bytes)
}

/// Runs one activation to its end.
fn activate(
    engine: &dyn Engine,
    rule: FuncId,
    side: &mut Side,
    first: &Given,
    source_element: u64,
    channel_lens: &[u64],
    answer: &mut dyn FnMut(&Sent, i64) -> Result<Given, FailureReason>,
) -> Effects {
    let mut out = vec![0xee; OUT_BYTES_MAX];
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    let mut spills = [0xdead; 512];
    let mut others: Vec<Given> = Vec::new();
    let (mut answers, mut out_len, mut resume, mut failure) = (Vec::new(), 0, 0, None);
    loop {
        asks.clear();
        let numbered: Vec<Message<'_>> =
            others.iter().map(|(frame, bytes)| Message { frame, bytes }).collect();
        let mut call = RuleCall {
            frame: &first.0,
            message: &first.1,
            others: &numbered,
            source_element,
            channel_lens,
            counters: &[],
            out: &mut out,
            out_len,
            sends: &mut sends,
            asks: &mut asks,
            answers: &answers,
            spills: &mut spills,
            resume,
            state: &mut side.state,
            failure,
            host: &mut side.platform,
        };
        let outcome = engine.run(rule, &mut call);
        (out_len, failure) = (call.out_len, call.failure);
        let RuleOutcome::Suspended(state) = outcome else { break };
        resume = state;
        answers.clear();
        for Ask { send, timeout_ns } in asks.as_slice() {
            let messages: Vec<&[u8]> =
                [&first.1[..]].into_iter().chain(others.iter().map(|(_, bytes)| &bytes[..])).collect();
            let sent = (send.channel, send.element, bytes_of(send.body, &messages, &out));
            answers.push(match answer(&sent, *timeout_ns) {
                Ok(reply) => {
                    others.push(reply);
                    others.len() as i64
                }
                Err(reason) => -1 - reason as i64,
            });
        }
    }
    let messages: Vec<&[u8]> =
        [&first.1[..]].into_iter().chain(others.iter().map(|(_, bytes)| &bytes[..])).collect();
    let sent = sends.as_slice().iter();
    let sent = sent.map(|send| (send.channel, send.element, bytes_of(send.body, &messages, &out)));
    Effects { sends: sent.collect(), failure, built: out_len as u64 }
}
