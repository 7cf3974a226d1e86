//! Runs the functions of a random module on random inputs with any engine, and writes down all that can be seen.
//! Promises: the inputs depend on the module and the seed alone, so records of two engines may be compared.

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{Ask, AskList, Engine, Frame, FuncId, Message, Outcome, RuleCall, Send, SendList};

use super::{MockHost, ORDER, RULE, Rng, frame, message};
use crate::data::Module;

/// Resumptions of one activation; more would be a loop.
const RESUMES_MAX: usize = 32;
/// Word that stands where nothing was kept.
const STALE: u64 = 0xdead_beef_dead_beef;
/// Elements of each channel of a random module.
const CHANNEL_LENS: [u64; 2] = [1, 3];

/// All that can be seen of one activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How each run ended.
    pub outcomes: Vec<Outcome>,
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
    /// Calls of the platform and their results.
    pub calls: Vec<String>,
}

/// Runs the rule of a random module, resumed with random answers until it is over. `run` calls the engine, once for
/// each run. Panics when the rule never ends.
pub fn record_rule_with(
    module: &Module,
    seed: u64,
    mut run: impl FnMut(&mut RuleCall<'_>) -> Outcome,
) -> Record {
    let mut rng = Rng::new(seed);
    let first = message(&mut rng);
    let first_frame = frame(&mut rng, &first);
    let mut replies: Vec<(Frame, Vec<u8>)> = Vec::new();
    let mut answers: Vec<i64> = Vec::new();
    let mut host = MockHost::new(seed);
    let (mut out, mut out_len) = (vec![0; OUT_BYTES_MAX], 0);
    let mut state = random_state(&mut rng, module);
    let mut spills = vec![STALE; module.program.bounds.spill_words as usize];
    let (mut outcomes, mut asked, mut failure) = (Vec::new(), Vec::new(), None);
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    let mut resume = 0;
    for _ in 0..=RESUMES_MAX {
        let others: Vec<Message<'_>> =
            replies.iter().map(|(frame, bytes)| Message { frame, bytes }).collect();
        let mut call = RuleCall {
            frame: &first_frame,
            message: &first,
            others: &others,
            source_element: seed % 4,
            channel_lens: &CHANNEL_LENS,
            out: &mut out,
            out_len,
            sends: &mut sends,
            asks: &mut asks,
            answers: &answers,
            spills: &mut spills,
            resume,
            state: &mut state,
            failure,
            host: &mut host,
        };
        let outcome = run(&mut call);
        (out_len, failure) = (call.out_len, call.failure);
        outcomes.push(outcome);
        let Outcome::Suspended(next) = outcome else { break };
        resume = next;
        answers.clear();
        for ask in asks.as_slice() {
            asked.push(*ask);
            answers.push(answer(&mut rng, &mut replies));
        }
        asks.clear();
    }
    assert!(outcomes.last() == Some(&Outcome::Finished), "an activation ends after so many resumptions");
    out.truncate(out_len);
    Record { outcomes, sends: sends.as_slice().to_vec(), asks: asked, out, state, failure, calls: host.calls }
}

/// A reply or a failure.
fn answer(rng: &mut Rng, replies: &mut Vec<(Frame, Vec<u8>)>) -> i64 {
    if rng.chance(25) {
        return -1 - rng.below(3) as i64;
    }
    let bytes = message(rng);
    replies.push((frame(rng, &bytes), bytes));
    replies.len() as i64
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

/// Compares two random messages with the order of a random module. Gives the result and the output it needed.
pub fn record_order(engine: &dyn Engine, module: &Module, seed: u64) -> (i64, Vec<u8>) {
    let mut rng = Rng::new(seed);
    let messages = [(); 2].map(|()| message(&mut rng));
    let frames = [0, 1].map(|index: usize| frame(&mut rng, &messages[index]));
    let mut out = vec![0; OUT_BYTES_MAX];
    let mut call = RuleCall {
        frame: &frames[0],
        message: &messages[0],
        others: &[Message { frame: &frames[1], bytes: &messages[1] }],
        source_element: 0,
        channel_lens: &CHANNEL_LENS,
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
    out.truncate(out_len);
    (result, out)
}

/// Frames after each prefix of a random message, each parsed anew with the parser of a random module.
pub fn record_parser(engine: &dyn Engine, parser: FuncId, seed: u64) -> Vec<(flick_abi::Step, Vec<u64>)> {
    let mut rng = Rng::new(seed);
    let bytes = message(&mut rng);
    let fresh = super::fresh_frame(&mut rng);
    let parse = |end: usize| {
        let mut frame = fresh.clone();
        let step = engine.parse(parser, &mut frame, &bytes[..end]);
        (step, frame.slots.to_vec())
    };
    (0..=bytes.len()).map(parse).collect()
}
