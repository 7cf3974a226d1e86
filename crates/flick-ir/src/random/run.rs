//! Runs the functions of a random module on random inputs with any engine, and writes down all that can be seen.
//! Promises: the inputs depend on the module and the seed alone, so records of two engines may be compared.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use flick_abi::limits::{MESSAGES_MAX, OUT_BYTES_MAX};
use flick_abi::{Ask, AskList, Engine, Frame, FuncId, Message, RuleCall, RuleOutcome, Send, SendList};

use super::{MockHost, ORDER, RULE, Rng, frame, message};
use crate::Interpreter;
use crate::data::Module;

/// Resumptions of one activation; more would be a loop.
const RESUMES_MAX: usize = 32;
/// Asks of one activation; more would be refused.
const ANSWERS_MAX: usize = MESSAGES_MAX;
/// Word that stands where nothing was kept.
const STALE: u64 = 0xdead_beef_dead_beef;
/// Elements of each channel of a random module.
const CHANNEL_LENS: [u64; 2] = [1, 3];

/// All that can be seen of one activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The outcome of each run.
    pub outcomes: Vec<RuleOutcome>,
    /// Messages sent over all runs.
    pub sends: Vec<Send>,
    /// Messages asked with over all runs.
    pub asks: Vec<Ask>,
    /// The output.
    pub out: Vec<u8>,
    /// The session's state at the end.
    pub state: Vec<u64>,
    /// The failure.
    pub failure: Option<u32>,
    /// The counters that it has added to without the platform.
    pub counters: Vec<u64>,
    /// Calls of the platform and their results.
    pub calls: Vec<String>,
}

/// The inputs of a rule: the same for every engine.
struct Inputs {
    /// The message that starts it, and all replies in the order in which they come.
    messages: Vec<(Frame, Vec<u8>)>,
    /// Answers by ask; what comes behind them is unavailable.
    answers: Vec<i64>,
    state: Vec<u64>,
}

impl Inputs {
    fn new(module: &Module, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let random_message = |rng: &mut Rng| {
            let bytes = message(rng);
            (frame(rng, &bytes), bytes)
        };
        // Frames are large: moving them as the list grows cost a tenth of a comparison's time.
        let mut messages = Vec::with_capacity(1 + ANSWERS_MAX);
        messages.push(random_message(&mut rng));
        let state = random_state(&mut rng, module);
        let mut answers = Vec::with_capacity(ANSWERS_MAX);
        for _ in 0..ANSWERS_MAX {
            let is_failure = rng.chance(25);
            answers.push(if is_failure { -1 - rng.below(3) as i64 } else { messages.len() as i64 });
            if !is_failure {
                messages.push(random_message(&mut rng));
            }
        }
        Self { messages, answers, state }
    }

    /// Takes what was asked behind `asked`, and puts the answers in its place.
    fn answer<'a>(&'a self, replies: &'a [Message<'a>], call: &mut RuleCall<'a>, asked: &mut Vec<Ask>) {
        let from = asked.len();
        asked.extend(call.asks.as_slice());
        call.asks.clear();
        let arrived = self.answers[..asked.len()].iter().filter(|answer| **answer > 0).count();
        (call.answers, call.others) = (&self.answers[from..asked.len()], &replies[..arrived]);
    }
}

/// Runs the rule of a random module, resumed with random answers until it is over. `run` calls the engine, once for
/// each run. Panics when the rule never ends.
pub fn record_rule_with(
    module: &Module,
    seed: u64,
    mut run: impl FnMut(&mut RuleCall<'_>) -> RuleOutcome,
) -> Record {
    record(module, seed, &Inputs::new(module, seed), Way::Runs(&mut run))
}

/// As [`record_rule`], of the interpreter in one go: what suspensions must not change. The module may be one that the
/// spill pass has not seen.
pub fn record_rule_through(interpreter: &Interpreter, seed: u64) -> Record {
    let module = interpreter.module();
    record(module, seed, &Inputs::new(module, seed), Way::Through(interpreter))
}

/// The way to run a rule.
enum Way<'a> {
    /// Run by run.
    Runs(&'a mut dyn FnMut(&mut RuleCall<'_>) -> RuleOutcome),
    /// In one go.
    Through(&'a Interpreter),
}

thread_local! {
    /// The output of the runs of this thread. Clearing one for each would cost more than most runs do.
    static OUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An output with anything in it.
fn borrow_out() -> Vec<u8> {
    let mut out = OUT.take();
    out.resize(OUT_BYTES_MAX, 0);
    out
}

/// Returns what was built, and keeps the output for the next `borrow_out`.
fn give_back(out: Vec<u8>, built: usize) -> Vec<u8> {
    let copy = out[..built].to_vec();
    OUT.set(out);
    copy
}

/// Runs a rule until it is over.
fn record(module: &Module, seed: u64, inputs: &Inputs, mut way: Way<'_>) -> Record {
    let replies: Vec<Message<'_>> =
        inputs.messages[1..].iter().map(|(frame, bytes)| Message { frame, bytes }).collect();
    let mut asked: Vec<Ask> = Vec::new();
    let mut host = MockHost::new(seed);
    let mut out = borrow_out();
    let mut state = inputs.state.clone();
    let mut spills = vec![STALE; module.program.bounds.spill_words as usize];
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    let mut outcomes = Vec::new();
    // With some seeds the platform gives its counters, with the others it is called.
    let given = if seed.is_multiple_of(2) { module.program.counters.len() } else { 0 };
    let counters: Vec<_> = (0..given).map(|_| AtomicU64::default()).collect();
    let mut call = RuleCall {
        frame: &inputs.messages[0].0,
        message: &inputs.messages[0].1,
        others: &[],
        source_element: seed % 4,
        channel_lens: &CHANNEL_LENS,
        counters: &counters,
        out: &mut out,
        out_len: 0,
        sends: &mut sends,
        asks: &mut asks,
        answers: &[],
        spills: &mut spills,
        resume: 0,
        state: &mut state,
        failure: None,
        host: &mut host,
    };
    for _ in 0..=RESUMES_MAX {
        let outcome = match &mut way {
            Way::Runs(run) => run(&mut call),
            Way::Through(interpreter) => {
                interpreter.run_through(RULE, &mut call, &mut |call| {
                    inputs.answer(&replies, call, &mut asked);
                });
                RuleOutcome::Finished
            }
        };
        outcomes.push(outcome);
        let RuleOutcome::Suspended(next) = outcome else { break };
        inputs.answer(&replies, &mut call, &mut asked);
        call.resume = next;
    }
    assert!(
        outcomes.last() == Some(&RuleOutcome::Finished),
        "an activation ends within the tried resumptions"
    );
    let (out_len, failure) = (call.out_len, call.failure);
    let out = give_back(out, out_len);
    let counters = counters.into_iter().map(AtomicU64::into_inner).collect();
    let sends = sends.as_slice().to_vec();
    Record { outcomes, sends, asks: asked, out, state, failure, counters, calls: host.calls }
}

/// State as an earlier activation may have left it: any words, bytes within their bounds.
fn random_state(rng: &mut Rng, module: &Module) -> Vec<u64> {
    let mut state: Vec<u64> = (0..module.program.state_words).map(|_| rng.corner()).collect();
    for (word, max_bytes) in super::STATE_BYTES {
        state[word as usize] = rng.below(max_bytes as usize + 1) as u64;
    }
    state
}

/// [`record_rule_with`] of an engine.
pub fn record_rule(engine: &dyn Engine, module: &Module, seed: u64) -> Record {
    record_rule_with(module, seed, |call| engine.run(RULE, call))
}

/// As [`record_rule`], of each engine: what they get is made once, which costs more than most runs.
pub fn record_rules(engines: &[&dyn Engine], module: &Module, seed: u64) -> Vec<Record> {
    let inputs = Inputs::new(module, seed);
    let record =
        |engine: &&dyn Engine| record(module, seed, &inputs, Way::Runs(&mut |call| engine.run(RULE, call)));
    engines.iter().map(record).collect()
}

/// Compares two random messages with the order of a random module. Gives the result and the output it needed.
pub fn record_order(engine: &dyn Engine, module: &Module, seed: u64) -> (i64, Vec<u8>) {
    let mut rng = Rng::new(seed);
    let messages = [(); 2].map(|()| message(&mut rng));
    let frames = [0, 1].map(|index: usize| frame(&mut rng, &messages[index]));
    let mut out = borrow_out();
    let mut call = RuleCall {
        frame: &frames[0],
        message: &messages[0],
        others: &[Message { frame: &frames[1], bytes: &messages[1] }],
        source_element: 0,
        channel_lens: &CHANNEL_LENS,
        counters: &[],
        out: &mut out,
        out_len: 0,
        sends: &mut SendList::new(),
        asks: &mut AskList::new(),
        answers: &[],
        spills: &mut [],
        resume: 0,
        state: &mut vec![0; module.program.state_words as usize],
        failure: None,
        host: &mut MockHost::new(seed),
    };
    let result = engine.order(ORDER, &mut call);
    let out_len = call.out_len;
    (result, give_back(out, out_len))
}

/// Frames after each prefix of a random message, each parsed from its start with the parser of a random module.
pub fn record_parser(
    engine: &dyn Engine,
    parser: FuncId,
    seed: u64,
) -> Vec<(flick_abi::ParseStep, Vec<u64>)> {
    let mut rng = Rng::new(seed);
    let bytes = message(&mut rng);
    let fresh = super::fresh_frame(&mut rng);
    let parse = |end: usize| {
        let mut frame = fresh.clone();
        let step = engine.parse(parser, &mut frame, &bytes[..end]);
        (step, [&frame.slots[..], frame.items()].concat())
    };
    (0..=bytes.len()).map(parse).collect()
}
