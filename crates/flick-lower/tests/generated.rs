//! Generated programs, compiled and interpreted, on random messages: the same to the bit, and within their
//! certificates. Followed through whole activations: asks are answered with replies or failures, state and
//! dictionaries live on from one message to the next. `FLICK_TEST_CASES` asks for more programs, `FLICK_SEED` for
//! others, `FLICK_TEST_RUNS` for more messages of each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flick_abi::limits::{MESSAGES_MAX, OUT_BYTES_MAX};
use flick_abi::{
    Ask, AskList, Engine, Frame, FuncId, Message, ParseStep, Program, RuleAction, RuleCall, RuleOutcome,
    Send, SendList,
};
use flick_codegen::{Options, compile};
use flick_compiler::Input;
use flick_ir::Interpreter;
use flick_ir::bounds::{FunctionBounds, bounds};
use flick_ir::random::MockHost;
use flick_testkit::generate::{Rng, Size, program};

/// Programs of one run; each takes some milliseconds to compile without optimisation of our own code.
const PROGRAMS: u64 = 150;
/// Messages of one program.
const RUNS: u64 = 40;
/// Elements of the array of backends.
const BACKENDS: u64 = 3;
/// Resumptions of one activation; generated programs ask less often.
const RESUMPTIONS_MAX: usize = 8;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

#[test]
fn engines_agree_on_generated_programs_within_their_certificates() {
    let (first, programs) = (number("FLICK_SEED", 0), number("FLICK_TEST_CASES", PROGRAMS));
    let messages = number("FLICK_TEST_RUNS", RUNS);
    let mut runs = 0;
    for seed in first..first + programs {
        let text = program(seed, Size { effects: !seed.is_multiple_of(5), ..Size::PAGE });
        let result = catch_unwind(AssertUnwindSafe(|| compare(&text, seed, messages)));
        runs += result.unwrap_or_else(|_| panic!("seed {seed}:\n{text}"));
    }
    println!("{runs} runs of {programs} programs");
    assert!(
        runs * 10 >= programs * messages * 8,
        "only {runs} activations ran; most programs must be accepted"
    );
}

/// Runs a program on both engines. Returns how many activations were compared.
fn compare(text: &str, seed: u64, messages: u64) -> u64 {
    // What is refused, and why it may be, is tested with the checker.
    let Ok(module) = flick_compiler::module(&Input::text("generated.flick", text)) else { return 0 };
    let compiled = compile(&module, &Options::default()).expect("a verified module compiles");
    let interpreter = Interpreter::new(module);
    let bounds = bounds(interpreter.module());
    let mut sides = [Side::new(&interpreter, seed), Side::new(&compiled, seed)];
    let program = &interpreter.module().program;
    for side in &mut sides {
        side.start(program);
    }
    assert_eq!(sides[0].state, sides[1].state, "state at the start of a session");
    let mut rng = Rng::new(seed);
    let mut runs = 0;
    for _ in 0..messages {
        let from_client = !rng.one_in(3);
        let given = Given { bytes: message(&mut rng), channel: usize::from(!from_client), seed: rng.word() };
        let expected = sides[0].activation(program, &given, Some((&interpreter, &bounds)));
        let found = sides[1].activation(program, &given, None);
        assert_eq!(found, expected, "an activation");
        assert_eq!(sides[1].host.calls, sides[0].host.calls, "calls of the platform");
        assert_eq!(sides[1].state, sides[0].state, "state");
        runs += 1;
    }
    for rule in
        program.handlers.iter().map(|handler| handler.rule).chain(program.timers.iter().map(|t| t.rule))
    {
        let given = Given { bytes: Vec::new(), channel: 0, seed: rng.word() };
        let expected = sides[0].rule(program, rule, Frame::new(), &given, None);
        assert_eq!(sides[1].rule(program, rule, Frame::new(), &given, None), expected, "a handler or timer");
    }
    runs
}

/// A message in a channel.
struct Given {
    bytes: Vec<u8>,
    channel: usize,
    /// Seed of the answers to asks.
    seed: u64,
}

/// One engine with a session and a platform of its own.
struct Side<'e> {
    engine: &'e dyn Engine,
    host: MockHost,
    state: Vec<u64>,
    out: Vec<u8>,
}

/// All that can be seen of one activation.
#[derive(Debug, PartialEq)]
struct Seen {
    step: ParseStep,
    runs: Vec<Run>,
}

/// Outputs of one run, up to a suspension or the end.
#[derive(Debug, PartialEq)]
struct Run {
    outcome: RuleOutcome,
    sends: Vec<Send>,
    asks: Vec<Ask>,
    out: Vec<u8>,
    failure: Option<u32>,
}

impl<'e> Side<'e> {
    fn new(engine: &'e dyn Engine, seed: u64) -> Self {
        // What the mock lets others write is not of the type of a program's dictionary.
        let mut host = MockHost::new(seed);
        host.contention_percent = 0;
        Self { engine, host, state: Vec::new(), out: vec![0; OUT_BYTES_MAX] }
    }

    /// Gives the session's state its first values.
    fn start(&mut self, program: &Program) {
        self.state = vec![0; program.state_words as usize];
        if let Some(init) = program.init_state {
            let given = Given { bytes: Vec::new(), channel: 0, seed: 0 };
            self.rule(program, init, Frame::new(), &given, None);
        }
    }

    /// Parses a message and runs the rule of its channel.
    fn activation(
        &mut self,
        program: &Program,
        given: &Given,
        counted: Option<(&Interpreter, &[FunctionBounds])>,
    ) -> Seen {
        let view = program.channels[given.channel].view.as_ref().expect("both channels receive");
        let parser = if given.channel == 0 { view.parse_request } else { view.parse_reply };
        let mut frame = Frame::new();
        frame.restart();
        let step = self.engine.parse(parser, &mut frame, &given.bytes);
        let rule = program.rules.iter().find(|rule| rule.source == given.channel).expect("both have a rule");
        let (ParseStep::Done, RuleAction::Run { rule }) = (step, rule.action) else {
            return Seen { step, runs: Vec::new() };
        };
        self.rule(program, rule, frame, given, counted)
    }

    fn rule(
        &mut self,
        program: &Program,
        rule: FuncId,
        frame: Frame,
        given: &Given,
        counted: Option<(&Interpreter, &[FunctionBounds])>,
    ) -> Seen {
        let mut rng = Rng::new(given.seed);
        let (mut sends, mut asks) = (SendList::new(), AskList::new());
        let mut spills = vec![0xdead; program.bounds.spill_words as usize];
        let mut replies: Vec<(Frame, Vec<u8>)> = Vec::new();
        let (mut answers, mut resume, mut out_len, mut failure) = (Vec::new(), 0, 0, None);
        let (mut steps, mut sent, mut runs) = (0, 0, Vec::new());
        for _ in 0..=RESUMPTIONS_MAX {
            sends.clear();
            asks.clear();
            let others: Vec<Message<'_>> =
                replies.iter().map(|(frame, bytes)| Message { frame, bytes }).collect();
            let mut call = RuleCall {
                frame: &frame,
                message: &given.bytes,
                others: &others,
                source_element: 1,
                channel_lens: &[1, BACKENDS],
                counters: &[],
                out: &mut self.out,
                out_len,
                sends: &mut sends,
                asks: &mut asks,
                answers: &answers,
                spills: &mut spills,
                resume,
                state: &mut self.state,
                failure,
                host: &mut self.host,
            };
            let outcome = match counted {
                Some((interpreter, _)) => {
                    let (outcome, used) = interpreter.run_counted(rule, &mut call);
                    steps += used;
                    outcome
                }
                None => self.engine.run(rule, &mut call),
            };
            (out_len, failure) = (call.out_len, call.failure);
            sent += sends.as_slice().len() as u64;
            runs.push(Run {
                outcome,
                sends: sends.as_slice().to_vec(),
                asks: asks.as_slice().to_vec(),
                out: self.out[..out_len].to_vec(),
                failure,
            });
            let RuleOutcome::Suspended(state) = outcome else { break };
            resume = state;
            answers.clear();
            for _ in asks.as_slice() {
                answers.push(self.answer(program, &mut rng, &mut replies));
            }
        }
        if let Some((_, bounds)) = counted {
            let bound = &bounds[rule.0 as usize];
            assert!(steps <= bound.steps, "{steps} steps are more than the certified {}", bound.steps);
            assert!(sent <= bound.sends, "{sent} sends are more than the certified {}", bound.sends);
            assert!(
                out_len as u64 <= bound.all_out_bytes(),
                "{out_len} bytes built, certified {}",
                bound.all_out_bytes()
            );
            assert!(
                bound.all_steps() <= program.bounds.steps_per_message_max,
                "the program's bound holds for its rules"
            );
        }
        Seen { step: ParseStep::Done, runs }
    }

    /// A reply, or a failure.
    fn answer(&mut self, program: &Program, rng: &mut Rng, replies: &mut Vec<(Frame, Vec<u8>)>) -> i64 {
        let reason = i64::from(rng.below(3));
        if rng.one_in(3) || replies.len() + 1 >= MESSAGES_MAX {
            return -1 - reason;
        }
        let view = program.channels[1].view.as_ref().expect("backends answer");
        let bytes = message(rng);
        let mut frame = Frame::new();
        frame.restart();
        if self.engine.parse(view.parse_reply, &mut frame, &bytes) != ParseStep::Done {
            return -1 - reason;
        }
        replies.push((frame, bytes));
        replies.len() as i64
    }
}

/// A message of the grammar that generated programs speak; one in ten is cut or has a length that lies.
fn message(rng: &mut Rng) -> Vec<u8> {
    let texts = [
        "",
        "a",
        "a,b,,c",
        "12",
        "-7",
        "ff",
        "Key-With Spaces ",
        "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
        "9223372036854775807",
    ];
    let (key, value) = (*rng.pick(&texts), *rng.pick(&texts));
    let mut bytes = vec![*rng.pick(&[1, 2, 3, 77])];
    bytes.push(rng.word() as u8);
    bytes.extend((rng.number() as i16).to_be_bytes());
    bytes.extend((rng.word() as u32).to_be_bytes());
    bytes.extend(rng.number().to_be_bytes());
    bytes.extend(rng.number().to_be_bytes());
    bytes.push(key.len() as u8);
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend(key.bytes().chain(value.bytes()));
    if rng.one_in(10) {
        bytes.truncate(rng.below(bytes.len() as u32) as usize);
    } else if rng.one_in(20) {
        bytes[24] = 255;
    }
    bytes
}
