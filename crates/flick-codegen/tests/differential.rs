//! Compiled code against the interpreter, on random modules, frames and messages.
//! Compared to the bit: steps, frames, sends, output; parsers on every prefix and on input that grows while the
//! frame is kept. Also: what the interpreter counts never exceeds the bound.
//! `FLICK_DIFFERENTIAL_MODULES` asks for more modules, `FLICK_DIFFERENTIAL_SEED` for others.

use flick_abi::limits::{MESSAGES_MAX, OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{AskList, Engine, Frame, FuncId, Message, NoHost, Outcome, RuleCall, SendList, Step};
use flick_codegen::{Compiled, Optimise, Options, compile};
use flick_ir::Interpreter;
use flick_ir::bounds::{FunctionBounds, bounds};
use flick_ir::random::{self, Rng};

const PARSER: FuncId = FuncId(0);
const BUILDER: FuncId = FuncId(1);
const RULE: FuncId = FuncId(4);
/// Without optimisation each module takes milliseconds.
const MODULES: u64 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
const THREADS: u64 = 2;

/// One module on all engines.
struct Case<'a> {
    interpreter: &'a Interpreter,
    bounds: &'a [FunctionBounds],
    compiled: &'a [Compiled],
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

#[test]
fn engines_agree_on_random_modules() {
    let first = number("FLICK_DIFFERENTIAL_SEED", 0);
    let modules = number("FLICK_DIFFERENTIAL_MODULES", MODULES);
    let run = |thread: u64| {
        let mut refused = 0;
        let mut out = [vec![0; OUT_BYTES_MAX], vec![0; OUT_BYTES_MAX]];
        for seed in (first + thread..first + modules).step_by(THREADS as usize) {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed, &mut out)));
            match result {
                Ok(was_accepted) => refused += u64::from(!was_accepted),
                Err(_) => panic!("seed {seed}:\n{}", flick_ir::text::print(&random::module(seed))),
            }
        }
        refused
    };
    let refused: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the engines agree")).sum()
    });
    assert!(refused * 20 <= modules, "the verifier refuses {refused} of {modules}");
}

/// Compares all engines on one module. Returns whether the verifier let it pass.
fn check(seed: u64, out: &mut [Vec<u8>; 2]) -> bool {
    let module = random::module(seed);
    if !flick_ir::verify(&module).is_empty() {
        return false;
    }
    // Cranelift's own checks cost more than compiling; a part of the modules is enough to find its bugs.
    let is_checked = seed.is_multiple_of(8);
    let options = |optimise| Options {
        optimise,
        clif_verifier: is_checked,
        regalloc_checker: is_checked,
        ..Options::default()
    };
    let compiled = [Optimise::None, Optimise::Speed].map(|optimise| {
        compile(&module, &options(optimise)).expect("what the verifier lets pass can be compiled")
    });
    let bounds = bounds(&module);
    let interpreter = Interpreter::new(module);
    let case = Case { interpreter: &interpreter, bounds: &bounds, compiled: &compiled };
    let mut rng = Rng::new(!seed);
    for _ in 0..3 {
        let message = random::message(&mut rng);
        check_parser(&case, &random::fresh_frame(&mut rng), &message);
        let frame = random::frame(&mut rng, &message);
        let lens = [1, rng.below(9) as u64];
        let mut given = Given {
            frame: &frame,
            message: &message,
            others: Vec::new(),
            source_element: rng.corner(),
            channel_lens: &lens,
            answers: Vec::new(),
            resume: 0,
        };
        check_rule(&case, &mut given, &mut rng);
        check_builder(&case, &random::frame(&mut rng, &[]), out);
    }
    true
}

/// Every prefix with a new frame, then the same message as it grows.
fn check_parser(case: &Case<'_>, fresh: &Frame, message: &[u8]) {
    for end in 0..=message.len() {
        parse_all(case, &mut [(); 3].map(|()| fresh.clone()), &message[..end]);
    }
    let mut frames = [(); 3].map(|()| fresh.clone());
    let mut end = 0;
    // Each round asks for more bytes than it was given, so there are at most as many as bytes.
    while let Step::NeedMore(need) = parse_all(case, &mut frames, &message[..end]) {
        assert!(need > end as u64, "a parser asks for more than it was given");
        end = need.min(usize::MAX as u64) as usize;
        if end > message.len() {
            break;
        }
    }
}

/// Parses with all engines; frames and steps must be the same.
fn parse_all(case: &Case<'_>, frames: &mut [Frame; 3], data: &[u8]) -> Step {
    let (expected, used) = case.interpreter.parse_counted(PARSER, &mut frames[2], data);
    assert!(used <= case.bounds[PARSER.0 as usize].steps, "the bound holds");
    for (index, compiled) in case.compiled.iter().enumerate() {
        let step = compiled.parse(PARSER, &mut frames[index], data);
        assert_eq!(step, expected, "engine {index} on {data:?}");
        assert_eq!(frames[index].slots, frames[2].slots, "engine {index} on {data:?}");
    }
    expected
}

/// Everything one engine changes.
struct Side {
    out: Vec<u8>,
    out_len: usize,
    sends: SendList,
    asks: AskList,
    spills: Vec<u64>,
    state: Vec<u64>,
    failure: Option<u32>,
    host: NoHost,
}

impl Side {
    fn new(state: &[u64]) -> Self {
        Self {
            out: vec![0; OUT_BYTES_MAX],
            out_len: 0,
            sends: SendList::new(),
            asks: AskList::new(),
            spills: vec![0; SPILL_WORDS_MAX],
            state: state.to_vec(),
            failure: None,
            host: NoHost,
        }
    }

    /// Runs a rule from its start or a suspension.
    fn run<T>(&mut self, given: &Given<'_>, run: impl FnOnce(&mut RuleCall<'_>) -> T) -> T {
        self.sends.clear();
        self.asks.clear();
        let mut call = RuleCall {
            frame: given.frame,
            message: given.message,
            others: &given.others,
            source_element: given.source_element,
            channel_lens: given.channel_lens,
            out: &mut self.out,
            out_len: self.out_len,
            sends: &mut self.sends,
            asks: &mut self.asks,
            answers: &given.answers,
            spills: &mut self.spills,
            resume: given.resume,
            state: &mut self.state,
            failure: self.failure,
            host: &mut self.host,
        };
        let result = run(&mut call);
        (self.out_len, self.failure) = (call.out_len, call.failure);
        result
    }
}

/// What all engines get.
struct Given<'a> {
    frame: &'a Frame,
    message: &'a [u8],
    others: Vec<Message<'a>>,
    source_element: u64,
    channel_lens: &'a [u64],
    answers: Vec<i64>,
    resume: u32,
}

/// Suspensions that one activation is followed through.
const RESUMPTIONS_MAX: u32 = 8;

fn check_rule(case: &Case<'_>, given: &mut Given<'_>, rng: &mut Rng) {
    let state: Vec<u64> = (0..case.interpreter.module().program.state_words).map(|_| rng.corner()).collect();
    let mut expected = Side::new(&state);
    let mut found: Vec<Side> = case.compiled.iter().map(|_| Side::new(&state)).collect();
    let bound = &case.bounds[RULE.0 as usize];
    for _ in 0..RESUMPTIONS_MAX {
        let (outcome, used) = expected.run(given, |call| case.interpreter.run_counted(RULE, call));
        assert!(used <= bound.steps, "the bound on steps holds");
        assert!(expected.sends.as_slice().len() as u64 <= bound.sends, "the bound on sends holds");
        for (side, compiled) in found.iter_mut().zip(case.compiled) {
            assert_eq!(side.run(given, |call| compiled.run(RULE, call)), outcome, "outcome");
            assert_eq!(side.sends, expected.sends, "sends");
            assert_eq!(side.asks, expected.asks, "asks");
            assert_eq!(side.out[..side.out_len], expected.out[..expected.out_len], "output");
            assert_eq!(side.state, expected.state, "state");
            assert_eq!(side.failure, expected.failure, "failure");
        }
        let Outcome::Suspended(state) = outcome else { return };
        given.resume = state;
        given.answers = expected.asks.as_slice().iter().map(|_| answer(given, rng)).collect();
    }
}

/// A failure, or a new message like the first.
fn answer(given: &mut Given<'_>, rng: &mut Rng) -> i64 {
    if rng.below(3) == 0 || given.others.len() + 1 >= MESSAGES_MAX {
        return -1 - rng.below(5) as i64;
    }
    given.others.push(Message { frame: given.frame, bytes: given.message });
    given.others.len() as i64
}

fn check_builder(case: &Case<'_>, frame: &Frame, out: &mut [Vec<u8>; 2]) {
    let [expected, found] = out;
    let (len, used) = case.interpreter.build_counted(BUILDER, frame, expected);
    assert!(used <= case.bounds[BUILDER.0 as usize].steps, "the bound holds");
    for compiled in case.compiled {
        let found_len = compiled.build(BUILDER, frame, found);
        assert_eq!(found[..found_len], expected[..len], "output");
    }
}
